"""What hosts print about their devices, and what is understood of it. The captures were composed after real hosts of
each kind."""

import subprocess
from pathlib import Path

import pytest

from hcilib.drive.guard.devices import END, INVENTORY, Device, DevicesError, content_of, find, identity, parse, sections

DATA = Path(__file__).parents[1] / "data" / "devices"
GIB100 = 100 * 2**30


def capture(name: str) -> str:
    return (DATA / f"{name}.txt").read_text()


def devices(name: str) -> dict[str, Device]:
    return parse(capture(name)).devices


def test_a_blank_disk_has_nothing_against_it():
    disk = devices("debian12_proxmox")["sdb"]
    assert disk == Device(
        "sdb", "8:16", GIB100, "/dev/sdb", frozenset({"PVE01-D0", "qemu    qemu harddisk   pve01-d0"}),
        ("scsi-0QEMU_QEMU_HARDDISK_PVE01-D0", "scsi-SQEMU_QEMU_HARDDISK_PVE01-D0"), sequence="10", unjudged="",
    )  # fmt: skip


def test_a_boot_disk_carries_what_its_partitions_carry():
    disk = devices("debian12_proxmox")["sda"]
    assert disk.partitions == ("sda1", "sda14", "sda15")
    assert disk.mounts == (("/", "sda1"), ("/boot/efi", "sda15"))
    assert disk.signatures == ("gpt partition table",)
    assert devices("debian12_proxmox")["sda15"].partition


def test_a_root_on_lvm_on_luks_is_found_through_all_of_them():
    found = devices("rocky8_lvm_on_luks")
    assert found["sda"].mounts == (("/boot", "sda1"), ("/", "dm-1"), ("[SWAP]", "dm-2"))
    assert found["dm-1"].slaves == ("dm-0",)
    assert found["sda2"].holders == ("dm-0",)
    assert found["md127"].mounts == ()


def test_an_lsblk_without_the_newer_columns_still_tells_serials_and_mounts():
    found = devices("rocky8_lvm_on_luks")
    assert found["sdd"].mounts == (("[SWAP]", "sdd"),)
    assert found["sdg"].mounts == (("/srv/my data", "sdg"),), (
        "btrfs has no device number of its own; a blank is an octal number"
    )
    assert found["sdc"].identifiers == {"PV1"}
    assert found["sdc"].signatures == ("LVM2_member",)


def test_first_bytes_tell_what_an_old_blkid_does_not_know():
    disk = devices("rocky8_lvm_on_luks")["sdh"]
    assert disk.signatures == ("ceph_bluestore",)


def test_a_name_with_a_slash():
    disk = devices("rocky8_lvm_on_luks")["cciss!c0d0"]
    assert (disk.path, disk.read_only) == ("/dev/cciss/c0d0", True)
    assert disk.signatures == ("several signatures at once",)


@pytest.mark.parametrize(
    ("serial", "name"),
    [
        ("60022480000000000000000000000001", "sdb"),
        ("0x60022480000000000000000000000001", "sdb"),
        ("naa.60022480000000000000000000000001", "sdb"),
        ("scsi-360022480000000000000000000000002", "sdc"),
        ("wwn-0x60022480000000000000000000000000-part1", "sda1"),
    ],
)
def test_a_disk_is_known_by_serial_wwn_or_link(serial, name):
    assert [d.name for d in find(parse(capture("ubuntu_hyperv_user")), serial)] == [name]


@pytest.mark.parametrize("serial", ["PVE01", "PVE01-D", "pve01-d0", "sdb", "/dev/sdb", "scsi-0QEMU_QEMU_HARDDISK", ""])
def test_half_a_serial_is_none(serial):
    assert find(parse(capture("debian12_proxmox")), serial) == []


def test_a_partition_is_not_found_by_the_wwn_it_inherits():
    assert [d.name for d in find(parse(capture("ubuntu_hyperv_user")), "60022480000000000000000000000000")] == ["sda"]


def test_the_path_for_fio_is_the_link_that_names_the_serial():
    [disk] = find(parse(capture("debian12_proxmox")), "PVE01-D1")
    assert disk.path == "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_PVE01-D1"
    [disk] = find(parse(capture("alpine_busybox")), "ALP-D0")
    assert disk.path == "/dev/vdb", "no udev, no link: the kernel's name, found anew in every campaign"


@pytest.mark.parametrize(("old", "new"), [("dev=8:16\t", ""), ("size=209715200", "size=many"), ("head=00", "head=zz")])
def test_an_answer_of_another_form_is_an_error(old, new):
    text = capture("debian12_proxmox")
    assert old in text
    with pytest.raises(DevicesError, match="cannot be understood"):
        parse(text.replace(old, new))


def test_a_host_whose_mounts_are_hidden_is_an_error():
    text = capture("debian12_proxmox")
    hidden = text[: text.index("24 31 0:22")] + text[text.index("==== swaps") :]
    with pytest.raises(DevicesError, match="mountinfo cannot be read"):
        parse(hidden)


def test_identity():
    assert (
        identity("0xABCDEF0123456789")
        == identity("naa.abcdef0123456789")
        == identity("ABCDEF0123456789")
        == "abcdef0123456789"
    )
    assert identity("S6CKNN0W") == "S6CKNN0W"
    assert identity("s6cknn0w") != identity("S6CKNN0W"), "a serial is not a number: its case counts"


def test_sections_keep_text_that_looks_alike():
    assert sections("noise\n==== one\na\n  ==== b\n==== two\n") == {"one": "a\n  ==== b\n", "two": ""}


def sizes() -> dict[str, int]:
    return {file.parent.name: int(file.read_text()) for file in Path("/sys/class/block").glob("*/size")}


def test_the_script_runs_on_this_machine_and_tells_its_root():
    before = sizes()
    done = subprocess.run(
        ["sh", "-u", "-c", INVENTORY + content_of() + END], capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stderr) == (0, "")
    as_they_were = before.items() & sizes().items()  # other tests make loop devices meanwhile
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for device in parse(done.stdout).devices.values():
        if device.name in dict(as_they_were):
            assert device.size_bytes == 512 * before[device.name]
        assert (("/", device.name) in device.mounts) == any(m[2] == device.number and m[4] == "/" for m in mounts)
