"""What arrays and DRBD say about themselves, and what the guard makes of it. The texts are a virtual node's of
box-drbd, as it printed them."""

from dataclasses import replace
from pathlib import Path

import pytest

from hcilib import Testbed
from hcilib.drive.guard.devices import Inventory, parse, parse_exports, parse_stacks
from hcilib.drive.guard.guard import judge
from hcilib.model.testbed import Disk, Node, Vm

CAPTURE = Path(__file__).parents[1] / "data" / "devices" / "box_drbd_on_raid5.txt"
R1 = 132079616


@pytest.fixture(scope="module")
def node1() -> Inventory:
    return parse(CAPTURE.read_text())


def reasons(serial: str, size: int, **inventories: Inventory) -> list[str]:
    """Every objection against the one VM that names a device, where these hosts were asked."""
    vm = Vm(name="node1", address="192.0.2.11", node="n", disks=(Disk(serial=serial, size_bytes=size),))
    bed = Testbed(name="real", nodes=(Node(name="n", address="192.0.2.1"),), vms=(vm,), consent="wipe")
    return [refusal.reason for refusal in judge(bed, 1, 1, inventories)[1]]


def test_a_stack_has_an_identity_and_a_role(node1):
    known = {name: (device.stack, device.role) for name, device in node1.devices.items() if device.stack}
    assert set(known) == {"md0", "drbd1", "drbd2"}
    assert known["drbd1"] == ("drbd-r1-0", "Primary")
    assert known["drbd2"] == ("drbd-r2-0", "Secondary")
    assert known["md0"][0].startswith("md-uuid-")
    assert node1.devices["drbd1"].slaves == ("dm-0",)


def test_the_copy_on_the_other_node_is_no_second_writer_but_a_second_primary_is(node1):
    """Both nodes have the resource; only where it can be opened is it a danger."""
    other = _with(node1, "drbd1", role="Secondary")
    assert reasons("drbd-r1-0", R1, node1=node1, node2=other) == []
    assert "a shared disk" in reasons("drbd-r1-0", R1, node1=node1, node2=node1)[0]


def test_what_lies_under_a_resource_is_refused(node1):
    md0, dm0 = node1.devices["md0"], node1.devices["dm-0"]
    assert any(r.startswith("md0 is held by dm-0, dm-1") for r in reasons(md0.stack, md0.size_bytes, node1=node1))
    mapped = _with(node1, "dm-0", links=("dm-name-vol1",))
    said = reasons("dm-name-vol1", dm0.size_bytes, node1=mapped)
    assert any(r.startswith("dm-0 is held by drbd1") for r in said)
    assert any(r.startswith("dm-0 is built on md0: name the disk itself") for r in said)
    assert any("vda is held by md0" in r for r in reasons("BOX-N1D1", node1.devices["vda"].size_bytes, node1=node1))


def test_an_array_by_itself_may_be_written_if_it_says_who_it_is(node1):
    md0 = replace(node1.devices["md0"], holders=(), signatures=())
    alone = Inventory({**node1.devices, "md0": md0})
    assert reasons(md0.stack, md0.size_bytes, node1=alone) == []
    unknown = replace(md0, stack="", identifiers=frozenset({"X"}))
    assert reasons("X", md0.size_bytes, node1=Inventory({**node1.devices, "md0": unknown})) == [
        "md0 is built on vda, vdb, vdc, vdd, vde: name the disk itself"
    ]


def test_exports_are_known_by_their_node_or_by_the_name_of_a_mapping():
    text = (
        "/dev/dm-1 /dev/mapper/vol2 nvmet/subsystems/a/namespaces/1/device_path\n/dev/sdb /dev/disk/by-id/x "
        "target/core/iblock_0/d/udev_path\n"
    )
    by_path = {"/dev/mapper/vol2": "dm-1", "/dev/dm-1": "dm-1", "/dev/sdb": "sdb"}
    assert {name: len(entries) for name, entries in parse_exports(text, by_path).items()} == {"dm-1": 1, "sdb": 1}
    assert parse_exports("", by_path) == {}


def test_a_resource_whose_role_is_not_told_is_no_primary():
    assert parse_stacks("exists device name:r1 volume:0 minor:1 disk:UpToDate\n") == {"drbd1": ("drbd-r1-0", "Unknown")}
    assert parse_stacks("array md0 \nexists -\n") == {}, "an array that mdadm was not allowed to read has no identity"


def _with(inventory: Inventory, name: str, **change) -> Inventory:
    return Inventory({**inventory.devices, name: replace(inventory.devices[name], **change)})
