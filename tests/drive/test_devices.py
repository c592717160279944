"""What hosts print about their devices, what is understood of it, and what the guard makes of it. The captures were
composed after real hosts of each kind; that of arrays and DRBD is a virtual node's, as it printed it."""

import subprocess
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from hcilib import GuardError, Testbed, load_testbed
from hcilib.drive.guard.devices import (
    END,
    INVENTORY,
    Device,
    DevicesError,
    Inventory,
    content_of,
    find,
    parse,
)
from hcilib.drive.guard.guard import identify, judge, refusals
from hcilib.model.testbed import Disk, Node, Vm, identity

DATA = Path(__file__).parents[1] / "data" / "devices"
GIB100 = 100 * 2**30
NODE = Node(name="n1", address="192.0.2.1")
PROXMOX, ROCKY, HYPERV, BOX = "debian12_proxmox", "rocky8_lvm_on_luks", "ubuntu_hyperv_user", "box_drbd_on_raid5"


def capture(name: str) -> str:
    return (DATA / f"{name}.txt").read_text()


def inventory(name: str) -> Inventory:
    return parse(capture(name))


def test_a_blank_disk_has_nothing_against_it():
    assert inventory(PROXMOX).devices["sdb"] == Device(
        "sdb", "8:16", GIB100, "/dev/sdb", frozenset({"PVE01-D0", "qemu    qemu harddisk   pve01-d0"}),
        ("scsi-0QEMU_QEMU_HARDDISK_PVE01-D0", "scsi-SQEMU_QEMU_HARDDISK_PVE01-D0"), sequence="10", unjudged="",
    )  # fmt: skip


UNDERSTOOD = {
    "what partitions carry": (PROXMOX, "sda", {"mounts": (("/", "sda1"), ("/boot/efi", "sda15")),
                                               "partitions": ("sda1", "sda14", "sda15"),
                                               "signatures": ("gpt partition table",)}),
    "a partition": (PROXMOX, "sda15", {"partition": True}),
    "a root on LVM on LUKS": (ROCKY, "sda", {"mounts": (("/boot", "sda1"), ("/", "dm-1"), ("[SWAP]", "dm-2"))}),
    "LUKS": (ROCKY, "dm-1", {"slaves": ("dm-0",)}),
    "an old lsblk's swap": (ROCKY, "sdd", {"mounts": (("[SWAP]", "sdd"),)}),
    "btrfs has no number of its own": (ROCKY, "sdg", {"mounts": (("/srv/my data", "sdg"),)}),
    "LVM": (ROCKY, "sdc", {"identifiers": {"PV1"}, "signatures": ("LVM2_member",)}),
    "first bytes that an old blkid does not know": (ROCKY, "sdh", {"signatures": ("ceph_bluestore",)}),
    "a name with a slash": (ROCKY, "cciss!c0d0", {"path": "/dev/cciss/c0d0", "read_only": True,
                                                  "signatures": ("several signatures at once",)}),
    "DRBD": (BOX, "drbd1", {"stack": "drbd-r1-0", "role": "Primary", "slaves": ("dm-0",)}),
    "DRBD's other role": (BOX, "drbd2", {"stack": "drbd-r2-0", "role": "Secondary"}),
}  # fmt: skip


@pytest.mark.parametrize("case", UNDERSTOOD)
def test_what_a_host_prints_is_understood(case):
    name, device, wanted = UNDERSTOOD[case]
    found = inventory(name).devices[device]
    assert {key: getattr(found, key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("name", "serial", "devices"),
    [
        (HYPERV, "60022480000000000000000000000001", ["sdb"]),
        (HYPERV, "naa.60022480000000000000000000000001", ["sdb"]),
        (HYPERV, "scsi-360022480000000000000000000000002", ["sdc"]),
        (HYPERV, "wwn-0x60022480000000000000000000000000-part1", ["sda1"]),
        (HYPERV, "60022480000000000000000000000000", ["sda"]),  # its partitions inherit the number
        *((PROXMOX, half, []) for half in ("PVE01-D", "pve01-d0", "sdb", "/dev/sdb", "scsi-0QEMU_QEMU_HARDDISK", "")),
    ],
)
def test_a_disk_is_known_by_its_whole_serial_wwn_or_link(name, serial, devices):
    assert [device.name for device in find(inventory(name), serial)] == devices


def test_the_path_for_fio_is_the_link_that_names_the_serial():
    [disk] = find(inventory(PROXMOX), "PVE01-D1")
    assert disk.path == "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_PVE01-D1"
    [disk] = find(inventory("alpine_busybox"), "ALP-D0")
    assert disk.path == "/dev/vdb", "no udev, no link: the kernel's name, found anew in every campaign"


MOUNTS = capture(PROXMOX)[capture(PROXMOX).index("24 31 0:22") : capture(PROXMOX).index("==== swaps")]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("dev=8:16\t", "", "cannot be understood"),
        ("size=209715200", "size=many", "cannot be understood"),
        ("head=00", "head=zz", "cannot be understood"),
        (MOUNTS, "", "mountinfo cannot be read"),
    ],
)
def test_an_answer_of_another_form_is_an_error(old, new, said):
    text = capture(PROXMOX)
    assert old in text
    with pytest.raises(DevicesError, match=said):
        parse(text.replace(old, new))


def test_an_identity_is_compared_without_its_prefix_and_a_serial_by_its_case():
    heads = ("0x", "naa.", "3", "")
    assert {identity(f"{head}0123456789ABCDEF") for head in heads} == {"0123456789abcdef"}
    assert identity("s6cknn0w") != identity("S6CKNN0W") == "S6CKNN0W"


def test_the_script_runs_on_this_machine_and_tells_its_root():
    asked = ["sh", "-u", "-c", INVENTORY + content_of() + END]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    devices = parse(done.stdout).devices
    assert devices
    for device in devices.values():
        assert (("/", device.name) in device.mounts) == any(m[2] == device.number and m[4] == "/" for m in mounts)


# What the guard makes of it


def guests(size: int = GIB100, **disks: tuple[str, ...]) -> Testbed:
    """VMs by name with disks by serial, all of one size."""
    vms = tuple(
        Vm(name=vm, address=f"192.0.2.{10 + i}", node="n1", disks=tuple(Disk(serial=s, size_bytes=size) for s in own))
        for i, (vm, own) in enumerate(disks.items())
    )
    return Testbed(name="real", nodes=(NODE,), vms=vms, consent="wipe")


def reasons(serial: str, size: int, **known: Inventory) -> list[str]:
    return [refusal.reason for refusal in judge(guests(size, vm1=(serial,)), 1, 1, known)[1]]


def changed(name: str, device: str, **change) -> Inventory:
    whole = inventory(name)
    return Inventory({**whole.devices, device: replace(whole.devices[device], **change)})


@pytest.mark.parametrize(
    ("name", "serial"), [(PROXMOX, "drive-scsi0"), *((ROCKY, s) for s in ("VB1", "MD1", "SWAP1", "BTR1"))]
)
def test_no_command_that_destroys_is_suggested_for_a_disk_in_use(name, serial):
    said = reasons(serial, GIB100, vm1=inventory(name))
    assert said
    assert "wipefs" not in "; ".join(said)


STACKS = {
    "under another device": ("md0", {}, None, "md0 is held by dm-0, dm-1"),
    "under DRBD": ("dm-0", {"links": ("dm-name-vol1",)}, "dm-name-vol1", "dm-0 is held by drbd1"),
    "a mapping": ("dm-0", {"links": ("dm-name-vol1",)}, "dm-name-vol1", "dm-0 is built on md0: name the disk itself"),
    "a member": ("vda", {}, "BOX-N1D1", "vda is held by md0"),
    "an array by itself": ("md0", {"holders": (), "signatures": ()}, None, ""),
    "an array without a name": ("md0", {"holders": (), "signatures": (), "stack": "", "identifiers": frozenset({"X"})},
                                "X", "md0 is built on vda, vdb, vdc, vdd, vde: name the disk itself"),
    "not the primary": ("drbd2", {}, None, "drbd2 is Secondary here"),
    "exported": ("drbd1", {"exports": ("nvmet/subsystems/a",)}, None, "drbd1 is exported to other hosts"),
}  # fmt: skip


@pytest.mark.parametrize("case", STACKS)
def test_what_is_part_of_something_is_refused(case):
    device, change, serial, said = STACKS[case]
    known = changed(BOX, device, **change)
    own = known.devices[device]
    found = reasons(serial or own.stack, own.size_bytes, vm1=known)
    assert any(reason.startswith(said) for reason in found) if said else found == []


def test_a_medium_that_another_host_may_write_is_refused():
    """A DRBD device's copy cannot be opened: only a second primary is a danger."""
    here, size = inventory(BOX), inventory(BOX).devices["drbd1"].size_bytes
    assert reasons("drbd-r1-0", size, vm1=here, vm2=changed(BOX, "drbd1", role="Secondary")) == []
    assert "a shared disk" in reasons("drbd-r1-0", size, vm1=here, vm2=here)[0]
    stray = changed(ROCKY, "sdc", identifiers=frozenset({"PVE01-D0"}))
    [reason] = reasons("PVE01-D0", GIB100, vm1=inventory(PROXMOX), vm2=stray)
    assert reason.startswith("sdb has the serial or WWN of vm2 (sdc)")


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
        def run(self, commands, limit_s):
            assert strange.vms[0].os == "linux" or not commands, "a Windows host is not sent a shell script"
            return {}

    with pytest.raises(GuardError, match=said):
        identify(Nobody(), strange, 1, 1, "wipe")


@pytest.mark.parametrize(("name", "vms", "os"), [("proxmox", 16, "linux"), ("hyperv", 20, "windows")])
def test_the_examples_load_and_are_refused_without_their_token(name, vms, os):
    testbed = load_testbed(Path(__file__).parents[2] / "params" / "testbeds" / f"{name}.example.yaml")
    assert (len(testbed.vms), {len(vm.disks) for vm in testbed.vms}) == (vms, {3})
    assert [node.os for node in testbed.nodes] == [os, os]
    assert len({identity(disk.serial) for vm in testbed.vms for disk in vm.disks}) == 3 * vms
    documentation = ip_network("192.0.2.0/24")
    assert all(ip_address(host.address) in documentation for host in (*testbed.nodes, *testbed.vms))
    assert refusals(testbed, consent=testbed.consent) == []
    assert [r.device for r in refusals(testbed, consent="overwrite")] == ["consent"]
