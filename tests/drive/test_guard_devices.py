"""The guard on real block devices: captures for what this kernel lacks, loop devices on the lab's hosts for everything
else."""

from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from hcilib import GuardError, Testbed, load_testbed
from hcilib.drive.guard.devices import identity, parse
from hcilib.drive.guard.guard import identify, judge, refusals
from hcilib.model.testbed import Disk, Node, Vm

DATA = Path(__file__).parents[1] / "data" / "devices"
GIB100 = 100 * 2**30
NODE = Node(name="n1", address="192.0.2.1")


def inventory(name: str):
    return parse((DATA / f"{name}.txt").read_text())


def guests(**disks: tuple[str, ...]) -> Testbed:
    """VMs by name with disks by serial, all of 100 GiB."""
    vms = tuple(
        Vm(
            name=vm,
            address=f"192.0.2.{10 + i}",
            node="n1",
            disks=tuple(Disk(serial=s, size_bytes=GIB100) for s in serials),
        )
        for i, (vm, serials) in enumerate(disks.items())
    )
    return Testbed(name="real", nodes=(NODE,), vms=vms, consent="wipe")


def reasons(host: str, serial: str) -> str:
    _, refused = judge(guests(vm1=(serial,)), 1, 1, {"vm1": inventory(host)})
    assert {(r.host, r.device) for r in refused} <= {("vm1", serial)}
    return "; ".join(r.reason for r in refused)


@pytest.mark.parametrize("serial", ["drive-scsi0", "VB1", "MD1", "SWAP1", "BTR1"])
def test_no_command_that_destroys_is_suggested_for_a_disk_in_use(serial):
    assert "wipefs" not in reasons("debian12_proxmox" if serial == "drive-scsi0" else "rocky8_lvm_on_luks", serial)


def test_a_disk_attached_to_a_vm_that_does_not_name_it_is_refused_too():
    two = guests(vm1=("PVE01-D0",), vm2=("MD1",))
    other = inventory("rocky8_lvm_on_luks")
    stray = replace(other.devices["sdc"], identifiers=frozenset({"PVE01-D0"}))
    known = {"vm1": inventory("debian12_proxmox"), "vm2": replace(other, devices={**other.devices, "sdc": stray})}
    [refusal] = [r for r in judge(two, 2, 1, known)[1] if r.host == "vm1"]
    assert "sdb has the serial or WWN of vm2 (sdc)" in refusal.reason


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"os": "windows"}, "the VM runs Windows"),
        ({"disks": (Disk(serial="A", size_bytes=1, uri="nbd://192.0.2.9/x"),)}, "no block device of the VM"),
    ],
)
def test_what_no_host_need_be_asked_about(changes, said):
    strange = guests(vm1=("A",))
    strange = strange.model_copy(update={"vms": (strange.vms[0].model_copy(update=changes),)})

    class Nobody:
        def run(self, command, hosts, limit_s):
            assert strange.vms[0].os == "linux" or not list(hosts), "a Windows host is not sent a shell script"
            return {}

    with pytest.raises(GuardError, match=said):
        identify(Nobody(), strange, 1, 1, "wipe")


@pytest.mark.parametrize(("name", "vms", "os"), [("proxmox", 16, "linux"), ("hyperv", 20, "windows")])
def test_the_examples_load_and_are_refused_without_their_token(name, vms, os):
    testbed = load_testbed(Path(__file__).parents[2] / "params" / "testbeds" / f"{name}.example.yaml")
    assert (len(testbed.vms), {len(vm.disks) for vm in testbed.vms}) == (vms, {3})
    assert [node.os for node in testbed.nodes] == [os, os]
    assert [vm.node for vm in testbed.fleet(4)] == [testbed.nodes[i].name for i in (0, 1, 0, 1)], (
        "spread over the nodes"
    )
    assert len({identity(disk.serial) for vm in testbed.vms for disk in vm.disks}) == 3 * vms
    documentation = ip_network("192.0.2.0/24")
    assert all(ip_address(host.address) in documentation for host in (*testbed.nodes, *testbed.vms))
    assert refusals(testbed, consent=testbed.consent) == []
    assert [r.device for r in refusals(testbed, consent="overwrite")] == ["consent"]
