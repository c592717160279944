"""Which disks of a node are drives, and what they did: from captured texts."""

from math import isnan

import pytest

from hcilib.read.nodes.counters import DRIVE_COLUMNS, Blocks, moved, parse_diskstats, read_drives_csv, totals

# A node of Linux 6.18 (20 fields), its system disk and a loop device; the last line as Linux 4.17 wrote it (14 fields).
CAPTURED = """\
   7       0 loop0 321832 1 5634060 26134 279828 366982 17887364 75657 0 29348 108399 66 0 1081410 133 908 6473
 254       0 vda 1779137 106842 35017002 5222096 372161 445174 42810864 487572 1 297132 5795400 290784 88 21625672 80509 21670 5222
   8      16 sdb 10 2 80 5 20 3 160 7 0 9 12
"""  # noqa: E501


def test_fields_are_told_by_their_places_and_sectors_are_512_bytes():
    counts = parse_diskstats(CAPTURED)
    assert counts["vda"] == (1779137, 372161, 35017002 * 512, 42810864 * 512, 106842 + 445174, 21670)
    assert counts["loop0"].writes == 279828
    assert counts["sdb"][:5] == (10, 20, 80 * 512, 160 * 512, 5)
    assert isnan(counts["sdb"].flushes), "not counted before Linux 5.5: missing, and not 0"


@pytest.mark.parametrize("text", ["", "8 0 sda 1 2 3", "8 0 sda a b c d e f g h i j k", "sda", "8 0"])
def test_a_line_of_another_form_is_no_drive(text):
    assert parse_diskstats(text) == {}


PCI = "../../devices/pci0000:00"
NODE = Blocks(
    links={
        "sda": f"{PCI}/ata1/host0/target0:0:0/block/sda",
        "sda1": f"{PCI}/ata1/host0/target0:0:0/block/sda/sda1",
        "sda2": f"{PCI}/ata1/host0/target0:0:0/block/sda/sda2",
        "nvme0n1": f"{PCI}/0000:00:1d.0/nvme/nvme0/nvme0n1",
        "nvme1n1": f"{PCI}/0000:00:1e.0/nvme/nvme1/nvme1n1",
        "nvme2n1": "../../devices/virtual/nvme-subsystem/nvme-subsys2/nvme2n1",
        "nvme3n1": "../../devices/virtual/nvme-fabrics/ctl/nvme3/nvme3n1",
        "sdc": "../../devices/platform/host3/session1/target3:0:0/3:0:0:1/block/sdc",
        "md0": "../../devices/virtual/block/md0",
        "dm-0": "../../devices/virtual/block/dm-0",
        "dm-1": "../../devices/virtual/block/dm-1",
        "drbd0": "../../devices/virtual/block/drbd0",
        "rbd0": "../../devices/virtual/block/rbd0",
        "nbd0": "../../devices/virtual/block/nbd0",
        "zram0": "../../devices/virtual/block/zram0",
        "vdb": f"{PCI}/virtio1/block/vdb",
    },
    holders={"sda2": ["dm-0"], "nvme0n1": ["md0"], "nvme1n1": ["md0"], "md0": ["dm-1"]},
    named={"dm-0": "pve-root", "dm-1": "vg-vms"},
    transports={"nvme0n1": "pcie", "nvme1n1": "pcie", "nvme2n1": "tcp", "nvme3n1": "tcp"},
    mounts="proc /proc proc rw 0 0\n/dev/mapper/pve-root / ext4 rw 0 0\n/dev/sda1 /boot/efi vfat rw 0 0\n"
    "/dev/sda1 /home/ada/benchmarks ext4 rw 0 0\n",
)


def test_drives_are_whole_disks_of_the_node_with_nothing_below_them():
    assert NODE.drives == {"nvme0n1": "md0 dm-1", "nvme1n1": "md0 dm-1", "sda": "dm-0 / /boot/efi /...", "vdb": ""}


def test_two_samples_are_what_was_done_between_them():
    before, after = "8 0 sda 10 1 80 0 5 0 40 0 0 0 0\n", "8 0 sda 13 2 104 0 9 1 88 0 0 0 0\n"
    [row] = moved("n1", {"sda": "md0", "gone": ""}, (100.0, before), (102.0, after))
    assert tuple(row) == DRIVE_COLUMNS
    assert [row[name] for name in ("node", "t_s", "interval_s", "device", "carries")] == [
        "n1",
        102.0,
        2.0,
        "sda",
        "md0",
    ]
    assert [row[name] for name in ("reads", "writes", "read_bytes", "write_bytes", "merged")] == [
        3,
        4,
        24 * 512,
        48 * 512,
        2,
    ]


def test_a_drive_that_was_exchanged_or_a_node_that_booted_gives_no_row():
    before, after = "8 0 sda 10 1 80 0 5 0 40 0 0 0 0\n", "8 0 sda 1 0 8 0 9 1 88 0 0 0 0\n"
    assert moved("n1", {"sda": ""}, (100.0, before), (102.0, after)) == []


def test_totals_are_over_the_intervals_that_are_known():
    text = ",".join(DRIVE_COLUMNS) + "\nn1,1.0,1.0,vda,md0,2,3,1024,1536,0,\nn1,3.0,2.0,vda,md0,4,5,2048,2560,1,\n"
    [row] = totals(read_drives_csv(text.encode(), "f")).to_dict("records")
    assert (row["seconds"], row["reads"], row["writes"], row["write_bytes"]) == (3.0, 6, 8, 4096)
    assert isnan(row["flushes"])
    assert totals(read_drives_csv(None, "f")).empty


def test_a_node_named_nan_and_a_drive_that_carries_nothing_are_kept():
    text = ",".join(DRIVE_COLUMNS) + "\nnan,1.0,1.0,vda,,2,3,1024,1536,0,1\n"
    [row] = totals(read_drives_csv(text.encode(), "f")).to_dict("records")
    assert (row["node"], row["carries"], row["flushes"]) == ("nan", "", 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,b\n1,2\n", "line 1: not the drives"),
        (
            ",".join(DRIVE_COLUMNS).encode() + b"\nn,x,1,sda,,1,1,1,1,1,1\n",
            "line 2: not the drives of a step: t_s is 'x'",
        ),
        (b"\xff\xfe\x00", "not the drives"),
    ],
)
def test_a_file_that_is_something_else_is_named(content, said):
    with pytest.raises(ValueError, match=f"steps/x/drives.csv: {said}"):
        read_drives_csv(content, "steps/x/drives.csv")
