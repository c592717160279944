"""Counters of nodes and drives: text of /proc -> numbers. A step's counters.csv and drives.csv -> tables."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import nan
from typing import NamedTuple

import pandas as pd

COLUMNS = ("node", "t_s", "interval_s", "cpu_pct", "core_max_pct", "nic", "rx_bytes_per_s", "tx_bytes_per_s")
_NEVER_MISSING = ("node", "device", "carries")
_NEVER_PHYSICAL = re.compile(
    r"lo$|(?:bond|vmbr|br-|br\d|virbr|tap|veth|fwbr|fwpr|fwln|docker|ovs|vxlan)|\S+\.\d+$"  # the last are VLANs
    r"|Hyper-V Virtual |Microsoft Network Adapter Multiplexor|isatap\.|Teredo "  # of Windows
)
"""Names of a node's cards whose bytes go through another of them too (or, of a VM's, stay on the node)."""


def parse_proc_stat(text: str) -> dict[str, tuple[int, int]]:
    """cpu name (``cpu`` is all of them) -> (busy, total) in ticks since boot.

    Busy is user + nice + system + irq + softirq over the first eight fields: idle, iowait and steal are not busy, and
    guest time is already inside user (proc(5)).
    """
    counts = {}
    for line in text.splitlines():
        name, *fields = line.split() or [""]
        if name.startswith("cpu"):
            ticks = [int(count) for count in fields[:8]]
            idle, iowait, steal = ticks[3], ticks[4], ticks[7]
            counts[name] = sum(ticks) - idle - iowait - steal, sum(ticks)
    return counts


def parse_net_dev(text: str) -> dict[str, tuple[int, int]]:
    """nic -> (received, transmitted) bytes since boot."""
    counts = {}
    for line in text.splitlines()[2:]:
        nic, _, fields = line.partition(":")
        values = fields.split()
        counts[nic.strip()] = (int(values[0]), int(values[8]))
    return counts


def rates(node: str, before: tuple[float, str, str], after: tuple[float, str, str]) -> list[dict]:
    """Rows of the counters table, one a network card, from two samples.

    before, after : epoch second, /proc/stat, /proc/net/dev
    """
    seconds = after[0] - before[0]
    stat0, stat1 = parse_proc_stat(before[1]), parse_proc_stat(after[1])
    if stat1["cpu"][1] < stat0["cpu"][1]:  # booted between the two: all counters began anew
        return []
    shares = {
        cpu: 100 * (busy - stat0[cpu][0]) / (total - stat0[cpu][1] or nan)
        for cpu, (busy, total) in stat1.items()
        if cpu in stat0
    }
    head = {"node": node, "t_s": after[0], "interval_s": seconds, "cpu_pct": shares.pop("cpu")}
    head["core_max_pct"] = max(shares.values(), default=nan)
    net0, net1 = parse_net_dev(before[2]), parse_net_dev(after[2])
    return [
        {
            **head,
            "nic": nic,
            "rx_bytes_per_s": (rx - net0[nic][0]) / seconds,
            "tx_bytes_per_s": (tx - net0[nic][1]) / seconds,
        }
        for nic, (rx, tx) in net1.items()
        if nic in net0
    ]


def read_step_csv(content: bytes | None, file: str, columns: Sequence[str], what: str) -> pd.DataFrame:
    """A table that was sampled in a step; empty where nothing was. ValueError names the file, and the line and field
    that are not the table's."""
    if content is None:
        return pd.DataFrame(columns=list(columns))
    missing = {name: ["", "nan"] for name in columns if name not in _NEVER_MISSING}  # a node may be called nan
    try:
        table = pd.read_csv(io.BytesIO(content), keep_default_na=False, na_values=missing)
    except (ValueError, UnicodeDecodeError) as error:  # pandas' own errors are ValueErrors, and name the line
        raise ValueError(f"{file}: not the {what} of a step: {error}") from None
    if absent := [name for name in columns if name not in table]:
        raise ValueError(f"{file}: line 1: not the {what} of a step: no column {', '.join(absent)}")
    for name in (name for name in columns if name not in ("nic", *_NEVER_MISSING)):
        is_text = pd.to_numeric(table[name], errors="coerce").isna() & table[name].notna()
        if len(wrong := table.index[is_text]):
            said = f"{name} is {str(table[name][wrong[0]])[:80]!r}, expected a number"
            raise ValueError(f"{file}: line {wrong[0] + 2}: not the {what} of a step: {said}")
    return table


read_counters_csv = partial(read_step_csv, columns=COLUMNS, what="counters")


def within(counters: pd.DataFrame, start_s: float, end_s: float) -> pd.DataFrame:
    """The intervals that lie wholly inside the measurement window (epoch seconds); all that touch it where none
    does."""
    begin = counters["t_s"] - counters["interval_s"]
    inside = counters[(begin >= start_s) & (counters["t_s"] <= end_s)]
    return inside if len(inside) else counters[(begin < end_s) & (counters["t_s"] > start_s)]


def node_means(counters: pd.DataFrame, one_kernel: bool = False) -> dict[str, float]:
    """node_cpu_pct (mean over nodes, weighted by time) and net_bytes_per_s (received by all nodes) of one window.

    ``one_kernel``: the nodes of a lab share a kernel, so each of them tells of all, and its loopback is counted, once.
    Means are over the intervals that are known. NaN where nothing was, and of real nodes where one of them has nothing.
    """
    nodes = counters["node"].unique()
    cpu = _means(counters.drop_duplicates(["node", "t_s"]), "cpu_pct").reindex(nodes)
    cards = counters[counters["nic"] == "lo"] if one_kernel else _physical(counters)
    moved = _means(cards, "rx_bytes_per_s").reindex(nodes)
    net = moved.mean() if one_kernel else moved.sum(skipna=False, min_count=1)
    return {"node_cpu_pct": float(cpu.mean(skipna=one_kernel)), "net_bytes_per_s": float(net)}


def _physical(rows: pd.DataFrame) -> pd.DataFrame:
    """The cards that count each byte once; of a node that has none of them, a VM say, all but its loopback."""
    virtual = [name for name in rows["nic"].unique() if _NEVER_PHYSICAL.match(str(name))]
    physical = ~rows["nic"].isin(virtual)
    without = ~rows["node"].isin(rows.loc[physical, "node"])
    return rows[physical | without & (rows["nic"] != "lo")]


def _means(rows: pd.DataFrame, column: str) -> pd.Series:
    """Of every node the sum over its rows of an interval, as a mean by time over the intervals in
    which all are known."""
    keys = [rows["node"], rows["t_s"]]
    known = rows[rows[column].notna().groupby(keys).transform("all")]
    amounts = (known[column] * known["interval_s"]).groupby(known["node"]).sum()
    seconds = known.drop_duplicates(["node", "t_s"]).groupby("node")["interval_s"].sum()
    return amounts / seconds


# Drives of a Linux node: /proc/diskstats and /sys/class/block -> numbers, and a step's drives.csv -> the `drives`
# table. A drive is where a stack ends: a whole disk with nothing below it, of this node. Arrays, volumes, partitions,
# DRBD and network block devices are built of drives or reach those of another node, and would count a byte twice.

DRIVE_COLUMNS = (
    "node", "t_s", "interval_s", "device", "carries", "reads", "writes", "read_bytes", "write_bytes", "merged",
    "flushes",
)  # fmt: skip
DRIVE_COUNTS = ("reads", "writes", "read_bytes", "write_bytes", "merged", "flushes")
SECTOR = 512
"""Bytes of a sector of /proc/diskstats, whatever the drive's own are (Documentation/block/stat.rst of the kernel)."""
_OF_AN_OS = ("/", "/boot", "/boot/efi", "/home", "/opt", "/srv", "/tmp", "/usr", "/var", "/var/lib", "/mnt")
_NO_DRIVE = re.compile(r"(?:ram|zram|sr|fd|nbd|rbd|drbd|md|dm-)\d")
_OF_NETWORK = re.compile(r"/session\d+/|/nvme-fabrics/|/rport-")
"""In the path of a disk that is reached over a network: iSCSI, NVMe over fabrics, Fibre Channel."""


class Counts(NamedTuple):
    """Totals of one block device since boot. `merged`: I/Os joined to a neighbour before they were counted; `flushes`:
    NaN before Linux 5.5; one that no data goes with is among the `writes` too, with no bytes (seen on Linux 6.18)."""

    reads: int
    writes: int
    read_bytes: int
    write_bytes: int
    merged: int
    flushes: float


@dataclass(frozen=True)
class Blocks:
    """What is known of a node's block devices.

    links : device -> its path in /sys, which tells the bus and, of a partition, its drive
    holders : device -> what is built on it
    named : dm-N -> its name in /dev/mapper
    transports : NVMe namespace -> pcie, tcp, rdma, fc
    mounts : text of /proc/mounts
    """

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
        is_part = link.rstrip("/").split("/")[-2] in self.links
        if _NO_DRIVE.match(name) or is_part or _OF_NETWORK.search(link):
            return False
        return self.transports.get(name, "pcie") == "pcie"

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
    """Device -> its counts since boot."""
    counts = {}
    for name, numbers in numbers_of_diskstats(text):
        reads, read_merged, read_sectors, _, writes, write_merged, written_sectors = numbers[:7]
        flushes = float(numbers[15]) if len(numbers) > 15 else nan
        counts[name] = Counts(
            reads, writes, SECTOR * read_sectors, SECTOR * written_sectors, read_merged + write_merged, flushes
        )
    return counts


def numbers_of_diskstats(text: str) -> Iterator[tuple[str, list[int]]]:
    """A device and its numbers (Documentation/admin-guide/iostats.rst); a line of another form is left out."""
    for line in text.splitlines():
        parts = line.split()
        if len(parts) >= 14 and all(map(str.isdigit, parts[3:])):
            yield parts[2], [int(number) for number in parts[3:]]


def moved(
    node: str, drives: Mapping[str, str] | None, before: tuple[float, str], after: tuple[float, str]
) -> list[dict]:
    """Rows of drives.csv, one a drive, from two samples (epoch second, /proc/diskstats). No row of a drive whose
    counters began anew; of a node whose drives are not known (None) one without a device and without counts, so that
    the others' are not taken for all."""
    head = {"node": node, "t_s": after[0], "interval_s": after[0] - before[0]}
    if drives is None:
        return [head | {"device": "", "carries": ""} | dict.fromkeys(DRIVE_COUNTS, "")]
    was, now = parse_diskstats(before[1]), parse_diskstats(after[1])
    rows = []
    for device in (name for name in drives if name in was and name in now):
        done = [later - earlier for earlier, later in zip(was[device], now[device], strict=True)]
        if not any(count < 0 for count in done):  # of a drive that was exchanged, or a node that booted
            counts = dict(zip(DRIVE_COUNTS, done, strict=True))
            rows.append(head | {"device": device, "carries": drives[device]} | counts)
    return rows


read_drives_csv = partial(read_step_csv, columns=DRIVE_COLUMNS, what="drives")


def totals(rows: pd.DataFrame) -> pd.DataFrame:
    """What every drive did in a window: node, device, carries, seconds (the intervals that are known), DRIVE_COUNTS."""
    keys = ["node", "device", "carries"]
    sums = rows.groupby(keys, sort=False)[["interval_s", *DRIVE_COUNTS]].sum(min_count=1).reset_index()
    return sums.rename(columns={"interval_s": "seconds"})
