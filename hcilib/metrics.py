"""One table says what each metric is: its unit, which way is better, how it is labelled and printed.

Base units live in the frames (`_ns`, `_s`, `_bytes`, `_pct`; IOPS is bare); scaling happens only here, when shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

KEYS = ("source", "system", "run_id", "tool", "block", "rep", "pair")
"""Which run a row is, and what measured it. Never a reason to refuse pooling by itself."""

FACTORS = (
    "pattern", "rw", "rwmixread", "bs_bytes", "numjobs", "iodepth", "sync", "rate_bytes",
    "vms", "nodes", "placement", "span_bytes", "events", "demand",
)  # fmt: skip
"""What was set before the run. Rows that differ in one of these are never pooled (METHODS section 1)."""

VALIDITY = ("valid", "warnings", "derived", "open_loop")
"""What is known about a row's trustworthiness; `open_loop` whether a demand was met; `derived` names the columns that
were computed, not printed."""


@dataclass(frozen=True)
class Metric:
    """How one column of the results table is read and printed.

    `unit` is the unit after division by `scale`; `better` is "higher", "lower" or "" where neither way is better.
    """

    name: str
    label: str
    unit: str
    better: str
    scale: float = 1.0
    format: str = "{:,.0f}"

    @property
    def axis(self) -> str:
        """Axis label, e.g. ``Mean latency (ms)``."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    def show(self, value: float) -> str:
        """Print one value in the shown unit; a missing value is printed as such, never as zero."""
        return "missing" if value != value else self.format.format(steady(value / self.scale))


def steady(value: float) -> float:
    """`value` as it is to be rounded: half goes up, whatever its binary form, and the last digits of a float, in which
    processors and numpy's versions differ, decide nothing: 9.999999999999998 prints as 10 does."""
    return value * (1 + 1e-13)


_MS, _MIB = 1e6, 2**20
METRICS = {
    m.name: m
    for m in (
        Metric("iops", "IOPS", "", "higher"),
        Metric("read_iops", "Read IOPS", "", "higher"),
        Metric("write_iops", "Write IOPS", "", "higher"),
        Metric("bw_bytes", "Throughput", "MiB/s", "higher", _MIB),
        Metric("lat_ns", "Mean latency", "ms", "lower", _MS, "{:,.3f}"),
        Metric("lat_unweighted_ns", "Mean latency, (read + write)/2", "ms", "lower", _MS, "{:,.3f}"),
        Metric("read_lat_ns", "Mean read latency", "ms", "lower", _MS, "{:,.3f}"),
        Metric("write_lat_ns", "Mean write latency", "ms", "lower", _MS, "{:,.3f}"),
        Metric("p50_ns", "Median latency", "ms", "lower", _MS, "{:,.3f}"),
        Metric("p99_ns", "p99 latency", "ms", "lower", _MS, "{:,.3f}"),
        Metric("p999_ns", "p99.9 latency", "ms", "lower", _MS, "{:,.3f}"),
        Metric("sync_lat_ns", "Mean latency of a flush", "ms", "lower", _MS, "{:,.3f}"),
        Metric("sync_p99_ns", "p99 latency of a flush", "ms", "lower", _MS, "{:,.3f}"),
        Metric("offered_iops", "Demand", "IOPS", ""),
        Metric("delivered_pct", "Delivered of the demand", "%", "higher", 1, "{:,.1f}"),
        Metric("full_depth_pct", "I/Os that found the queue full", "%", "lower", 1, "{:,.2f}"),
        Metric("node_cpu_pct", "Node CPU", "%", "lower", 1, "{:,.1f}"),
        Metric("iops_per_cpu_pct", "IOPS per node and 1 % CPU", "", "higher"),
        Metric("net_bytes_per_s", "Network traffic of the nodes", "MiB/s", "lower", _MIB),
        Metric("outstanding", "Outstanding I/Os", "", ""),
        Metric("runtime_s", "Runtime", "s", "", 1, "{:,.1f}"),
        Metric("warmup_ratio", "Written before measuring / span", "", "", 1, "{:,.2f}"),
    )
}


def metric(name: str) -> Metric:
    """The metric of that name; a KeyError lists the known ones.

    Examples
    --------
    >>> hci.metric("lat_ns").axis
    'Mean latency (ms)'
    """
    try:
        return METRICS[name]
    except KeyError:
        raise KeyError(f"unknown metric {name!r}; known: {', '.join(METRICS)}") from None


def factors(columns) -> list[str]:
    """The columns of a results table that are factors, in the order of `columns`.

    A column of a user's own that is neither key, metric nor validity counts as a factor too: better to refuse
    to pool than to mix what the table itself tells apart.
    """
    known = {*KEYS, *METRICS, *VALIDITY}
    return [c for c in columns if c not in known]


def pattern_order(patterns: Iterable[str]) -> list[str]:
    """Patterns by block size, then read, mixed, write, then synchronous, then with fdatasync: the order of the
    articles' figures."""

    def key(pattern: str):
        match = re.match(r"(\d+)([km])-(?:rand)?(read|rw|write)(\d*)(-sync|-fdatasync)?", pattern)
        if not match:
            return (1, 0, 0, 0, 0, pattern)
        size = int(match[1]) * {"k": 1, "m": 1024}[match[2]]
        rank = ("read", "rw", "write").index(match[3])
        return (0, (None, "-sync", "-fdatasync").index(match[5]), size, rank, -int(match[4] or 0), pattern)

    return sorted(dict.fromkeys(map(str, patterns)), key=key)
