"""What a guest boots: built once for its content, root's own inside, without any key."""

import re

import pytest

from hcilab.cluster_image import image

pytestmark = pytest.mark.box


def members(archive) -> dict[str, tuple[int, int, int]]:
    """Name -> (uid, gid, mode) of every file of an archive in cpio's format newc."""
    data, at, found = archive.read_bytes(), 0, {}
    while True:
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, uid, gid, size, length = fields[1], fields[2], fields[3], fields[6], fields[11]
        name = data[at + 110 : at + 110 + length - 1].decode()
        if name == "TRAILER!!!":
            return found
        found[name] = (uid, gid, mode)
        at = (at + 110 + length + 3) // 4 * 4
        at = (at + size + 3) // 4 * 4


@pytest.fixture(scope="module")
def archive(box_programs):
    return box_programs[1][1]


def test_it_is_built_once_and_found_again(box_programs):
    before = [(file, file.stat().st_mtime_ns) for file in box_programs[1]]
    assert [(file, file.stat().st_mtime_ns) for file in image()] == before


def test_it_holds_what_the_stacks_need(archive):
    names = set(members(archive))
    tools = (
        "bash",
        "fio",
        "sshd",
        "mdadm",
        "drbdadm",
        "drbdsetup",
        "nvme",
        "dmsetup",
        "modprobe",
        "lsblk",
        "blkid",
    )
    assert not [t for t in tools if not {f"usr/bin/{t}", f"usr/sbin/{t}"} & names]
    modules = {re.sub(r"\.ko.*", "", name.rpartition("/")[2]) for name in names if ".ko" in name}
    assert {"virtio_blk", "raid456", "raid1", "drbd", "nvmet-tcp", "nvme-tcp", "dm-mod"} <= modules
