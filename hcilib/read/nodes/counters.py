"""Counters of the nodes: /proc text -> numbers, and a step's counters.csv -> the `counters` table."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

COLUMNS = ("node", "t_s", "interval_s", "cpu_pct", "core_max_pct", "nic", "rx_bytes_per_s", "tx_bytes_per_s")
_NEVER_MISSING = ("node", "device", "carries")
_NEVER_PHYSICAL = re.compile(
    r"lo$|(?:bond|vmbr|br-|br\d|virbr|tap|veth|fwbr|fwpr|fwln|docker|ovs|vxlan)|\S+\.\d+$"  # the last are VLANs
)
"""Names of a Linux node's cards whose bytes go through another of them too (or, of a VM's, stay on the node)."""


def parse_proc_stat(text: str) -> dict[str, tuple[int, int]]:
    """cpu name (``cpu`` is all of them) -> (busy, total) in ticks since boot.

    Busy is user + nice + system + irq + softirq over the first eight fields: idle, iowait and steal are not busy, and
    guest time is already inside user (proc(5)).
    """
    counts = {}
    for line in text.splitlines():
        name, *fields = line.split() or [""]
        if name.startswith("cpu"):
            user, nice, system, idle, iowait, irq, softirq, steal = (int(f) for f in fields[:8])
            busy = user + nice + system + irq + softirq
            counts[name] = (busy, busy + idle + iowait + steal)
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
    """Rows of the counters table, one a network card, from two samples (epoch second, /proc/stat, /proc/net/dev)."""
    seconds = after[0] - before[0]
    stat0, stat1 = parse_proc_stat(before[1]), parse_proc_stat(after[1])
    if stat1["cpu"][1] < stat0["cpu"][1]:  # booted between the two: all counters began anew
        return []
    share = {cpu: _share(stat0[cpu], stat1[cpu]) for cpu in stat1 if cpu in stat0}
    cores = [value for cpu, value in share.items() if cpu != "cpu"]
    head = {"node": node, "t_s": after[0], "interval_s": seconds, "cpu_pct": share.get("cpu", float("nan")),
            "core_max_pct": max(cores, default=float("nan"))}  # fmt: skip
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


def _share(before: tuple[int, int], after: tuple[int, int]) -> float:
    total = after[1] - before[1]
    return 100 * (after[0] - before[0]) / total if total else float("nan")


def read_counters_csv(content: bytes | None, file: str) -> pd.DataFrame:
    """One step's counters: node, t_s (epoch second at the end of the interval), interval_s, cpu_pct, core_max_pct, nic,
    rx, tx; as `read_step_csv`."""
    return read_step_csv(content, file, COLUMNS, "counters")


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
        numbers = pd.to_numeric(table[name], errors="coerce")
        wrong = np.flatnonzero(numbers.isna() & table[name].notna())
        if len(wrong):
            said = str(table[name][wrong[0]])[:80]
            raise ValueError(
                f"{file}: line {wrong[0] + 2}: not the {what} of a step: {name} is {said!r}, expected a number"
            )
    return table


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
    if counters.empty:
        return {"node_cpu_pct": float("nan"), "net_bytes_per_s": float("nan")}
    code, nodes = pd.factorize(counters["node"])
    rows = counters.assign(node=code)
    cpu = _means(rows.drop_duplicates(["node", "t_s"]), "cpu_pct", len(nodes))
    cards = rows[rows["nic"] == "lo"] if one_kernel else _physical(rows)
    moved = _means(cards, "rx_bytes_per_s", len(nodes))
    return {
        "node_cpu_pct": float(cpu.mean(skipna=one_kernel)),
        "net_bytes_per_s": float(moved.mean() if one_kernel else moved.sum(skipna=False)),
    }


def _physical(rows: pd.DataFrame) -> pd.DataFrame:
    """The cards that count each byte once; of a node that has none of them, a VM say, all but its loopback."""
    virtual = [name for name in rows["nic"].unique() if _NEVER_PHYSICAL.match(str(name))]
    physical = ~rows["nic"].isin(virtual)
    without = ~rows["node"].isin(rows.loc[physical, "node"])
    return rows[physical | without & (rows["nic"] != "lo")]


def _means(rows: pd.DataFrame, column: str, nodes: int) -> pd.Series:
    """Of every node the sum over its rows of an interval, as a mean by time over the intervals in which all are
    known."""
    node, t_s, seconds, values = (rows[name].to_numpy() for name in ("node", "t_s", "interval_s", column))
    pairs = node + 1j * t_s  # sorted as one number each
    _, first, interval = np.unique(pairs, return_index=True, return_inverse=True)
    amount = np.bincount(interval, values * seconds)  # a row that is not known makes its interval unknown
    known = ~np.isnan(amount)
    of = node[first][known]
    with np.errstate(invalid="ignore"):
        return pd.Series(np.bincount(of, amount[known], nodes) / np.bincount(of, seconds[first][known], nodes))
