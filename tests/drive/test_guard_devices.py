"""The guard on real block devices: captures for what this kernel lacks, loop devices on the lab's hosts for everything
else."""

from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from hcilib.drive.guard.devices import identity, parse
from hcilib.drive.guard.guard import GuardError, identify, judge, refusals, same
from hcilib.model.testbed import Disk, Node, Testbed, Vm, load_testbed

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


def test_three_blank_disks_are_found_and_allowed():
    serials = ("PVE01-D0", "PVE01-D1", "PVE01-D2")
    found, refused = judge(guests(vm1=serials), 1, 3, {"vm1": inventory("debian12_proxmox")})
    assert refused == []
    assert {s: d.name for s, d in found["vm1"].items()} == dict(zip(serials, ("sdb", "sdc", "sdd"), strict=True))


@pytest.mark.parametrize(
    ("host", "serial", "said"),
    [
        (
            "debian12_proxmox",
            "drive-scsi0",
            [
                "sda is the boot disk: it carries / (through sda1), /boot/efi (through sda15)",
                "sda has partition(s) sda1, sda14, sda15",
                "sda carries gpt partition table",
                "bytes where",
            ],
        ),
        (
            "rocky8_lvm_on_luks",
            "VB1",
            [
                "sda is the boot disk: it carries /boot (through sda1), / (through dm-1)",
                "sda is in use as swap (through dm-2)",
            ],
        ),
        ("rocky8_lvm_on_luks", "MD1", ["sdb is held by md127", "sdb carries linux_raid_member"]),
        (
            "rocky8_lvm_on_luks",
            "PV1",
            ["sdc carries LVM2_member; if nothing on it is needed, clear it on the host with `wipefs --all /dev/sdc`"],
        ),
        ("rocky8_lvm_on_luks", "SWAP1", ["sdd is in use as swap"]),
        ("rocky8_lvm_on_luks", "BTR1", ["sdg is mounted on /srv/my data", "sdg carries btrfs"]),
        (
            "rocky8_lvm_on_luks",
            "OSD1",
            ["sdh carries ceph_bluestore", "sdh is open for writing by ceph-osd (process 2211)"],
        ),
        ("rocky8_lvm_on_luks", "MP1", ["2 devices have this serial, WWN or by-id link: sde, sdf"]),
        (
            "rocky8_lvm_on_luks",
            "dm-name-rl-root",
            ["dm-1 is the boot disk", "dm-1 is built on dm-0: name the disk itself"],
        ),
        ("rocky8_lvm_on_luks", "PAFGF0N9SXQ0MH", ["cciss!c0d0 is read-only", "several signatures at once"]),
        (
            "rocky8_lvm_on_luks",
            "NOPE",
            ["no device of this host has this serial, WWN or by-id link; it has sda (VB1, 214748364800 bytes)"],
        ),
        ("alpine_busybox", "ALP-D0", ["vdb: its content cannot be probed: `blkid -p` ended with 1"]),
        ("ubuntu_hyperv_user", "60022480000000000000000000000001", ["sdb: user bench may not read it"]),
        ("ubuntu_hyperv_user", "60022480000000000000000000000003", ["sdd: reading its first block failed"]),
        (
            "ubuntu_hyperv_user",
            "wwn-0x60022480000000000000000000000000-part1",
            ["sda1 is a partition, not a whole disk"],
        ),
        (
            "ubuntu_hyperv_user",
            "google-image",
            ["/dev/disk/by-id/google-image leads to /srv/disk.img, which is no block device"],
        ),
        ("ubuntu_hyperv_user", "gone", ["leads to /dev/sdz, which is no block device"]),
    ],
)
def test_what_is_refused_is_refused_by_name(host, serial, said):
    for sentence in said:
        assert sentence in reasons(host, serial)


@pytest.mark.parametrize("serial", ["drive-scsi0", "VB1", "MD1", "SWAP1", "BTR1", "OSD1"])
def test_no_command_that_destroys_is_suggested_for_a_disk_in_use(serial):
    assert "wipefs" not in reasons("debian12_proxmox" if serial == "drive-scsi0" else "rocky8_lvm_on_luks", serial)


def test_a_disk_that_another_vm_sees_is_refused_on_both_sides():
    both = guests(vm1=("60022480000000000000000000000001",), vm2=("wwn-0x60022480000000000000000000000001",))
    _, refused = judge(both, 2, 1, dict.fromkeys(("vm1", "vm2"), inventory("ubuntu_hyperv_user")))
    shared = {(r.host, r.reason) for r in refused if "shared" in r.reason}
    said = "sdb has the serial or WWN of {} (sdb): a shared disk, or one number given twice"
    assert shared == {("vm1", said.format("vm2")), ("vm2", said.format("vm1"))}


def test_a_disk_attached_to_a_vm_that_does_not_name_it_is_refused_too():
    two = guests(vm1=("PVE01-D0",), vm2=("MD1",))
    other = inventory("rocky8_lvm_on_luks")
    stray = replace(other.devices["sdc"], identifiers=frozenset({"PVE01-D0"}))
    known = {"vm1": inventory("debian12_proxmox"), "vm2": replace(other, devices={**other.devices, "sdc": stray})}
    [refusal] = [r for r in judge(two, 2, 1, known)[1] if r.host == "vm1"]
    assert "sdb has the serial or WWN of vm2 (sdc)" in refusal.reason


def test_a_host_that_did_not_answer_is_refused_for_each_disk():
    _, refused = judge(guests(vm1=("A", "B")), 1, 2, {"vm1": "its devices could not be listed: no answer within 60 s"})
    assert [(r.host, r.device) for r in refused] == [("vm1", "A"), ("vm1", "B")]
    assert [r.reason for r in judge(guests(vm1=("A",)), 1, 1, {})[1]] == ["its host was not asked"]


def test_the_same_is_the_same_and_anything_else_is_not():
    [(vm, devices)] = judge(guests(vm1=("PVE01-D0",)), 1, 1, {"vm1": inventory("debian12_proxmox")})[0].items()
    before, disk = {vm: devices}, devices["PVE01-D0"]
    assert same(before, before) == []
    assert same(before, {vm: {"PVE01-D0": replace(disk, mounts=(("/srv", "sdb"),))}}) == [], "use is not identity"
    for change, said in [
        ({"number": "8:32"}, "number 8:16 is now 8:32"),
        ({"size_bytes": 1}, f"bytes {GIB100} is now 1"),
        ({"identifiers": frozenset({"X"})}, "is now ['X']"),
        ({"sequence": "11"}, "disk sequence 10 is now 11"),
        ({"path": "/dev/sdz"}, "is now /dev/sdz"),
    ]:
        [refusal] = same(before, {vm: {"PVE01-D0": replace(disk, **change)}})
        assert (refusal.host, refusal.device) == ("vm1", "PVE01-D0")
        assert f"{disk.path} came back as another device since it was checked: " in refusal.reason
        assert said in refusal.reason
    for gone in ({}, {vm: {}}):
        [refusal] = same(before, gone)
        assert "(sdb) vanished" in refusal.reason


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
    assert refusals(testbed, vms, 3, testbed.consent) == []
    assert [r.device for r in refusals(testbed, vms, 3, "overwrite")] == ["consent"]
