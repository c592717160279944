"""What the drives of a Linux node did: /proc/diskstats and /sys/class/block -> numbers, and a step's drives.csv -> the
`drives` table.

A drive is where a stack ends: a whole disk with nothing below it, of this node. Arrays, volumes, partitions, DRBD and
network block devices are built of drives or reach those of another node, and would count a byte twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd

from hcilib.read.nodes.counters import read_step_csv

COLUMNS = (
    "node",
    "t_s",
    "interval_s",
    "device",
    "carries",
    "reads",
    "writes",
    "read_bytes",
    "write_bytes",
    "merged",
    "flushes",
)
COUNTS = ("reads", "writes", "read_bytes", "write_bytes", "merged", "flushes")
SECTOR = 512
"""Bytes of a sector of /proc/diskstats, whatever the drive's own are (Documentation/block/stat.rst of the kernel)."""
_OF_AN_OS = ("/", "/boot", "/boot/efi", "/home", "/opt", "/srv", "/tmp", "/usr", "/var", "/var/lib", "/mnt")
_NO_DRIVE = re.compile(r"(?:ram|zram|sr|fd|nbd|rbd|drbd|md|dm-)\d")
_OF_NETWORK = re.compile(r"/session\d+/|/nvme-fabrics/|/rport-")
"""In the path of a disk that is reached over a network: iSCSI, NVMe over fabrics, Fibre Channel."""


class Counts(NamedTuple):
    """Totals of one block device since boot. `merged`: I/Os joined to a neighbour before they were counted; `flushes`:
    NaN before Linux 5.5."""

    reads: int
    writes: int
    read_bytes: int
    write_bytes: int
    merged: int
    flushes: float


@dataclass(frozen=True)
class Blocks:
    """What /sys/class/block of a node says. `links`: device -> where its entry points; `holders`: device -> what is
    built on it; `named`: dm-N -> its name in /dev/mapper; `transports`: NVMe namespace -> pcie, tcp, rdma, fc;
    `mounts`: /proc/mounts."""

    links: Mapping[str, str]
    holders: Mapping[str, Sequence[str]] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    transports: Mapping[str, str] = field(default_factory=dict)
    mounts: str = ""

    @property
    def drives(self) -> dict[str, str]:
        """Drive -> what it carries, from the bottom up: the devices built on it, then where it is mounted ("/..." for a
        folder of somebody's own, whose name is nobody's business who reads the results); "" where nothing is."""
        return {name: " ".join(self._carried(name)) for name in sorted(self.links) if self._is_drive(name)}

    def _is_drive(self, name: str) -> bool:
        link = self.links[name]
        if _NO_DRIVE.match(name) or self._is_part(name) or _OF_NETWORK.search(link):
            return False
        return self.transports.get(name, "pcie") == "pcie"

    def _is_part(self, name: str) -> bool:
        return self.links[name].rstrip("/").split("/")[-2] in self.links

    def _carried(self, drive: str) -> list[str]:
        """Holders of the drive and its partitions, theirs in turn, and every mount point of any of them."""
        parts = [name for name, link in self.links.items() if link.rstrip("/").split("/")[-2] == drive]
        found, todo = [], [drive, *parts]
        while todo:
            above = [name for name in self.holders.get(todo.pop(0), ()) if name not in found]
            found += above
            todo += above
        known = {drive, *parts, *found, *(f"mapper/{self.named[name]}" for name in found if name in self.named)}
        mounted = [line.split()[:2] for line in self.mounts.splitlines() if line.startswith("/dev/")]
        where = (where for what, where in mounted if what.removeprefix("/dev/") in known)
        return [*found, *dict.fromkeys(place if place in _OF_AN_OS else "/..." for place in where)]


def parse_diskstats(text: str) -> dict[str, Counts]:
    """Device -> its counts since boot (Documentation/admin-guide/iostats.rst); a line of another form is left out."""
    counts = {}
    for line in text.splitlines():
        _, _, name, *numbers = [*line.split(), "", "", ""][: max(3, len(line.split()))]
        if len(numbers) >= 11 and all(number.isdigit() for number in numbers):
            reads, read_merged, read_sectors, _, writes, write_merged, written_sectors = map(int, numbers[:7])
            flushes = float(numbers[15]) if len(numbers) > 15 else float("nan")
            counts[name] = Counts(
                reads, writes, SECTOR * read_sectors, SECTOR * written_sectors, read_merged + write_merged, flushes
            )
    return counts


def moved(node: str, drives: Mapping[str, str], before: tuple[float, str], after: tuple[float, str]) -> list[dict]:
    """Rows of drives.csv, one a drive, from two samples (epoch second, /proc/diskstats). No row of a drive whose
    counters began anew."""
    was, now = parse_diskstats(before[1]), parse_diskstats(after[1])
    rows = []
    for device, carries in drives.items():
        if device not in was or device not in now:
            continue
        done = [later - earlier for earlier, later in zip(was[device], now[device], strict=True)]
        if not any(count < 0 for count in done):  # of a drive that was exchanged, or a node that booted
            head = {"node": node, "t_s": after[0], "interval_s": after[0] - before[0], "device": device}
            rows.append({**head, "carries": carries, **dict(zip(COUNTS, done, strict=True))})
    return rows


def read_drives_csv(content: bytes | None, file: str) -> pd.DataFrame:
    """One step's rows of COLUMNS; as `read_step_csv`."""
    return read_step_csv(content, file, COLUMNS, "drives")


def totals(rows: pd.DataFrame) -> pd.DataFrame:
    """What every drive did in a window: node, device, carries, seconds (the intervals that are known), COUNTS."""
    keys = ["node", "device", "carries"]
    sums = rows.groupby(keys, sort=False)[["interval_s", *COUNTS]].sum(min_count=1).reset_index()
    return sums.rename(columns={"interval_s": "seconds"})
