"""The table of refusals on what real systems stack disks of: md RAID 5, device-mapper, DRBD and NVMe/TCP, held as root
and by an account of group disk."""

from dataclasses import replace

import pytest
from boxes import DRIVE_BYTES
from refusals import TAKERS, USES, Stack, Use, refuse_a_program, refuse_at_a_step, refuse_at_the_start

from hcilab.cluster import running
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.hosts.lease import Place

pytestmark = [pytest.mark.box, pytest.mark.deep, pytest.mark.needs("mkfs.ext4", "addpart", "blkdiscard", "mkswap")]
SYSTEMS = {"md": ("box-raid5", 1), "dm": ("box-drive", 1), "DRBD": ("box-drbd", 2), "NVMe/TCP": ("box-nvme-remote", 2)}
ACCOUNTS = {"root": ("python3", ()), "group disk": ("/run/python-of-group-disk", ("unflushed",))}
PREPARED = """
set -e
modprobe -a ext4 loop raid1 dm_mod nvmet
mkdir -p /mnt
[ -d /sys/kernel/config/nvmet ] || mount -t configfs config /sys/kernel/config
printf '#!/bin/sh\nexec setpriv --reuid=65534 --regid=6 --clear-groups python3 "$@"\n' >/run/python-of-group-disk
chmod 755 /run/python-of-group-disk
chown 0:6 {d}; chmod 660 {d}
"""
MAPPED = "modprobe dm_mod; DM_DISABLE_UDEV=1 dmsetup create free --table '0 {} linear /dev/vda 0'"
EXPORT = "cd /sys/kernel/config/nvmet/subsystems && "
IN_THE_BOX = USES | {
    "array": Use("mdadm --create /dev/md9 --run --force --level=1 --raid-devices=1 {d}",
                 "mdadm --stop /dev/md9; mdadm --zero-superblock {d}", "busy", None),
    "mapping": Use("DM_DISABLE_UDEV=1 dmsetup create upon --table '0 2048 linear {d} 0'",
                   "DM_DISABLE_UDEV=1 dmsetup remove upon", "busy", None),
    "export": Use(EXPORT + "mkdir x x/namespaces/1 && printf {d} >x/namespaces/1/device_path && "
                  "echo 1 >x/namespaces/1/enable", EXPORT + "rmdir x/namespaces/1 x", "used", "used"),
    "LUKS": Use(r"printf 'LUKS\272\276\000\002' | dd of={d} conv=notrunc,fsync",
                "dd if=/dev/zero of={d} bs=4096 count=1 conv=notrunc,fsync", "carries", "carries"),
    "Secondary": Use("drbdadm secondary r1", "drbdadm primary r1", "secondary", None),
}  # fmt: skip
LACKS = {"md": {"Secondary"}, "dm": {"Secondary", "partition"}, "DRBD": {"partition"}, "NVMe/TCP": {"Secondary"}}
"""What the kernel makes of no disk of the kind."""


@pytest.fixture(scope="module", params=SYSTEMS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def disk(kind, box_programs, tmp_path_factory):
    """One on node1 of a box, with nothing on it."""
    system, nodes = SYSTEMS[kind]
    root = tmp_path_factory.mktemp("box")
    with running(system, nodes, drive_bytes=DRIVE_BYTES, root=root) as box, Fleet(box.testbed) as fleet:
        own = Stack(fleet, box.testbed)
        if kind == "dm":
            own.made(MAPPED.format(DRIVE_BYTES // 512))
            own = replace(own, at=Place(own.run("cat /sys/block/dm-0/dev").value.strip(), "/dev/mapper/free"))
        own.made(PREPARED)
        yield own


@pytest.fixture(scope="module", params=ACCOUNTS)
def stack(request, disk):
    """The same, and the account whose process holds it."""
    python, always = ACCOUNTS[request.param]
    return replace(disk, testbed=disk.testbed.model_copy(update={"python": python}), always=always)


@pytest.mark.parametrize("refuse", [refuse_at_the_start, refuse_at_a_step])
@pytest.mark.parametrize("use", IN_THE_BOX)
def test_a_use_is_refused(kind, stack, use, refuse):
    if use in LACKS[kind]:
        assert not stack.run(IN_THE_BOX[use].make).ok
    else:
        refuse(stack, IN_THE_BOX[use])


@pytest.mark.parametrize("taker", TAKERS)
def test_a_held_disk_is_given_to_no_program(stack, taker):
    refuse_a_program(stack, taker)


def test_what_somebody_writes_between_steps_is_counted(stack):
    """Zeros over zeros, which no sample shows."""
    vm, serial = stack.place
    drawn = {"seed": 1, "places": 1}
    with stack.held() as lease:
        left = lease.ask("note", {vm: {serial: drawn}})[stack.place]
        assert stack.words(lease, left=left, **drawn) == []
        stack.made("dd if=/dev/zero of={d} bs=4k seek=5000 count=1 conv=notrunc,fsync")
        assert stack.words(lease, left=left, **drawn) == ["written"]
