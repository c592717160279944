"""What hosts print about their devices, what is understood of it, and what the guard makes of it. The captures were
composed after real hosts of each kind; that of arrays and DRBD is a virtual node's, as it printed it."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from plain import plain_bed

from hcilib.drive.guard.devices import END, INVENTORY, Device, DevicesError, Inventory, find, parse
from hcilib.drive.guard.guard import judge, refusals
from hcilib.model.testbed import Disk, Node, Testbed, identity

DATA = Path(__file__).parents[1] / "data" / "devices"
GIB100 = 100 * 2**30
NODE = Node(name="n1", address="192.0.2.1")
PROXMOX, ROCKY, HYPERV, BOX = "debian12_proxmox", "rocky8_lvm_on_luks", "ubuntu_hyperv_user", "box_drbd_on_raid5"


def capture(name: str) -> str:
    return (DATA / f"{name}.txt").read_text()


def inventory(name: str) -> Inventory:
    return parse(capture(name))


def test_a_blank_disk_is_understood():
    assert inventory(PROXMOX).devices["sdb"] == Device(
        "sdb", "8:16", GIB100, "/dev/sdb", frozenset({"PVE01-D0", "qemu    qemu harddisk   pve01-d0"}),
        ("scsi-0QEMU_QEMU_HARDDISK_PVE01-D0", "scsi-SQEMU_QEMU_HARDDISK_PVE01-D0"),
    )  # fmt: skip


UNDERSTOOD = {
    "what partitions carry": (PROXMOX, "sda", {"mounts": (("/", "sda1"), ("/boot/efi", "sda15")),
                                               "partitions": ("sda1", "sda14", "sda15"),
                                               "signatures": ("gpt partition table",)}),
    "a root on LVM on LUKS": (ROCKY, "sda", {"mounts": (("/boot", "sda1"), ("/", "dm-1"), ("[SWAP]", "dm-2"))}),
    "a name with a slash": (ROCKY, "cciss!c0d0", {"path": "/dev/cciss/c0d0", "read_only": True}),
    "DRBD": (BOX, "drbd1", {"stack": "drbd-r1-0", "role": "Primary", "slaves": ("dm-0",)}),
}  # fmt: skip


@pytest.mark.parametrize("case", UNDERSTOOD)
def test_what_a_host_prints_is_understood(case):
    name, device, wanted = UNDERSTOOD[case]
    found = inventory(name).devices[device]
    assert {key: getattr(found, key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("name", "serial", "paths"),
    [
        (HYPERV, "60022480000000000000000000000001", ["disk/by-id/wwn-0x60022480000000000000000000000001"]),
        (HYPERV, "naa.60022480000000000000000000000001", ["disk/by-id/wwn-0x60022480000000000000000000000001"]),
        (HYPERV, "scsi-360022480000000000000000000000002", ["disk/by-id/scsi-360022480000000000000000000000002"]),
        (HYPERV, part := "wwn-0x60022480000000000000000000000000-part1", [f"disk/by-id/{part}"]),
        (HYPERV, "60022480000000000000000000000000", [f"disk/by-id/{part[:-6]}"]),  # its partitions inherit the number
        (PROXMOX, "PVE01-D1", ["disk/by-id/scsi-0QEMU_QEMU_HARDDISK_PVE01-D1"]),
        ("alpine_busybox", "ALP-D0", ["vdb"]),  # without udev there is no link
        *((PROXMOX, half, []) for half in ("PVE01-D", "pve01-d0", "sdb", "/dev/sdb", "scsi-0QEMU_QEMU_HARDDISK", "")),
    ],
)
def test_a_disk_is_known_by_its_whole_serial_wwn_or_link_which_leads_to_it(name, serial, paths):
    assert [device.path for device in find(inventory(name), serial)] == [f"/dev/{path}" for path in paths]


MOUNTS = capture(PROXMOX)[capture(PROXMOX).index("24 31 0:22") : capture(PROXMOX).index("==== swaps")]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("dev=8:16\t", "", "cannot be understood"),
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
    asked = ["sh", "-u", "-c", INVENTORY + END]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    devices = parse(done.stdout).devices
    assert devices
    for device in devices.values():
        assert (("/", device.name) in device.mounts) == any(m[2] == device.number and m[4] == "/" for m in mounts)


# What the guard makes of it


def guest(serial: str, size: int = GIB100, **changes) -> Testbed:
    bed = plain_bed({"vm1": {serial: size}}, consent="wipe")
    return bed.model_copy(update={"vms": (bed.vms[0].model_copy(update=changes),)})


def reasons(serial: str, asked: bool = True, **known: Inventory) -> list[str]:
    """What speaks against a disk of vm1 that, where it is asked, says nothing of itself."""
    size = max((device.size_bytes for device in find(known["vm1"], serial)), default=GIB100)
    looked = {("vm1", serial): []} if asked else {}
    return [refusal.reason for refusal in judge(guest(serial, size), 1, 1, known, looked=looked)[1]]


def changed(name: str, device: str, **change) -> Inventory:
    whole = inventory(name)
    return replace(whole, devices={**whole.devices, device: replace(whole.devices[device], **change)})


VOLUME = changed(BOX, "dm-0", links=("dm-name-vol1",))
ARRAY = "md-uuid-11b9b5ff:94fc585b:beffed85:8238abb7"
JUDGED = [
    (inventory(PROXMOX), "PVE01-D0", None),
    (inventory(PROXMOX), "drive-scsi0", "sda is the boot disk"),
    (inventory(ROCKY), "VB1", "sda is the boot disk"),
    (inventory(ROCKY), "SWAP1", "sdd is in use as swap"),
    (inventory(ROCKY), "BTR1", "sdg is mounted on /srv/my data"),
    (inventory(ROCKY), "MD1", "sdb is held by md127"),
    (inventory(ROCKY), "MP1", "2 devices have this serial"),
    (inventory(ROCKY), "PV1", "sdc carries LVM2_member; "),
    (inventory(HYPERV), part, "sda1 is a partition"),
    (inventory(BOX), ARRAY, "md0 is held by dm-0, dm-1"),
    (inventory(BOX), "BOX-N1D1", "vda is held by md0"),
    (inventory(BOX), "drbd-r1-0", None),
    (inventory(BOX), "drbd-r2-0", "drbd2 is Secondary here"),
    (VOLUME, "dm-name-vol1", "dm-0 is held by drbd1"),
    (VOLUME, "dm-name-vol1", "dm-0 is built on md0"),
    (changed(BOX, "md0", holders=(), signatures=()), ARRAY, None),
    (changed(BOX, "md0", stack="", identifiers=frozenset({"X"})), "X", "md0 is built on vda, vdb"),
]


@pytest.mark.parametrize(("known", "serial", "said"), JUDGED, ids=[f"{serial} {said}" for _, serial, said in JUDGED])
def test_what_a_host_says_of_a_disk_is_judged(known, serial, said):
    """A command that destroys is suggested of what nobody uses alone."""
    found = reasons(serial, vm1=known)
    assert any(reason.startswith(said) for reason in found) if said else found == []
    assert ("wipefs" in "".join(found)) == ("carries" in (said or ""))


def test_a_disk_that_nobody_asked_is_refused():
    [reason] = reasons("PVE01-D0", asked=False, vm1=inventory(PROXMOX))
    assert "it was not asked" in reason


def test_a_medium_that_another_host_may_write_is_refused():
    """A DRBD device's copy cannot be opened: only a second primary is a danger."""
    here = inventory(BOX)
    assert reasons("drbd-r1-0", vm1=here, vm2=changed(BOX, "drbd1", role="Secondary")) == []
    assert "a shared disk" in reasons("drbd-r1-0", vm1=here, vm2=here)[0]
    stray = changed(ROCKY, "sdc", identifiers=frozenset({"PVE01-D0"}))
    [reason] = reasons("PVE01-D0", asked=False, vm1=inventory(PROXMOX), vm2=stray)
    assert reason.startswith("sdb has the serial or WWN of vm2 (sdc)")


@pytest.mark.parametrize("changes", [{"os": "windows"}, {"disks": (Disk(serial="A", size_bytes=1, uri="nbd://h/x"),)}])
def test_what_is_no_disk_of_a_linux_vm_is_refused_and_no_host_asked(changes):
    assert [refusal.device for refusal in refusals(guest("A", **changes), consent="wipe")] == ["A"]
