"""The columns of the results table; and of each metric its unit, which way is better, how it is labelled and printed.

Base units live in the frames (`_ns`, `_s`, `_bytes`, `_pct`; IOPS is bare); scaling happens only here, when shown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from hcilib.model.workload import NAME, SYNC, UNIT

KEYS = ("source", "system", "run_id", "tool", "block", "rep", "pair")
"""Which run a row is, and what measured it. Never a reason to refuse pooling by itself."""


FACTORS = (
    "pattern", "rw", "rwmixread", "bs_bytes", "numjobs", "iodepth", "sync", "rate_bytes", "rate_iops",
    "random_distribution", "vms", "nodes", "placement", "span_bytes", "pool_fill_pct", "events", "tenant",
    "beside",
)  # fmt: skip
"""What was set before the run. Rows that differ in one of these are never pooled (METHODS section 1)."""
SETTINGS = (
    "ioengine", "direct", "set_runtime_s", "ramp_time_s", "size_bytes", "target", "iodepth_options", "buffer_options",
    "other_options",
)  # fmt: skip
"""Factors that only files of other tools state (docs/RESULTS.md): runs that differ in one are no repeats."""
MAY_BE_UNTOLD = ("pool_fill_pct", *SETTINGS)
"""Factors that many systems do not tell: a row without one is not known to differ from any other."""


STAMPED = ("integrity", "acknowledged", "in_flight", "lost", "torn", "foreign", "unreadable")
"""What became of a run's stamped writes (hcilib.analyse.runs.integrity): a result, which may differ as any."""
VALIDITY = ("valid", "warnings", "derived", "open_loop", *STAMPED)
"""What is known about a row's trustworthiness; `open_loop` whether a demand was met; `derived` names the columns that
were computed, not printed."""
OF_RATES = ("iops", "read_iops", "write_iops", "bw_bytes")
OF_MEANS = ("lat_ns", "lat_unweighted_ns", "read_lat_ns", "write_lat_ns")
QUANTILES = {"p50_ns": 50.0, "p95_ns": 95.0, "p99_ns": 99.0, "p999_ns": 99.9, "p9999_ns": 99.99}
"""In percent, as fio is asked for them: its target is a little more than 999 in a thousand, 0.999 a little less."""
OF_FLUSHES = ("sync_lat_ns", "sync_p99_ns")
COLUMNS = (
    *(*KEYS, *FACTORS),
    *(*OF_RATES, *OF_MEANS, *QUANTILES, "max_lat_ns", *OF_FLUSHES),
    *("offered_iops", "delivered_pct", "full_depth_pct", "open_loop"),
    *("node_cpu_pct", "iops_per_cpu_pct", "net_bytes_per_s"),
    *STAMPED,
    *("outstanding", "runtime_s", "warmup_ratio", "savings_pct", "valid", "warnings"),
)
"""Of the results table (docs/RESULTS.md), in their order; every reader of results gives these."""


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


RENAMED = {
    "center": "the metric's own name, such as iops, or value, latency_ns or mean",
    "center_baseline": "value_baseline, or latency_ns_baseline",
    "lo": "the value's name with _lo, such as iops_lo or ratio_lo",
    "hi": "the value's name with _hi, such as iops_hi or ratio_hi",
}
"""Columns of tables of version 0.1, and what they are called now. Kept for one version."""


def read_metrics(table: str) -> dict[str, Metric]:
    """Return the metrics of a table: name, label, unit, which way is better, scale, form of a number."""
    found = {}
    for line in table.strip().splitlines():
        name, label, unit, better, scale, form = map(str.strip, line.split("|"))
        found[name] = Metric(name, label, unit, better, float(scale), f"{{:,{form}}}")
    return found


METRICS = read_metrics("""
iops              | IOPS                            |       | higher | 1       | .0f
read_iops         | Read IOPS                       |       | higher | 1       | .0f
write_iops        | Write IOPS                      |       | higher | 1       | .0f
bw_bytes          | Throughput                      | MiB/s | higher | 1048576 | .0f
lat_ns            | Mean latency                    | ms    | lower  | 1e+06   | .3f
lat_unweighted_ns | Mean latency, (read + write)/2  | ms    | lower  | 1e+06   | .3f
read_lat_ns       | Mean read latency               | ms    | lower  | 1e+06   | .3f
write_lat_ns      | Mean write latency              | ms    | lower  | 1e+06   | .3f
p50_ns            | Median latency                  | ms    | lower  | 1e+06   | .3f
p95_ns            | p95 latency                     | ms    | lower  | 1e+06   | .3f
p99_ns            | p99 latency                     | ms    | lower  | 1e+06   | .3f
p999_ns           | p99.9 latency                   | ms    | lower  | 1e+06   | .3f
p9999_ns          | p99.99 latency                  | ms    | lower  | 1e+06   | .3f
max_lat_ns        | Max lat                         | ms    | lower  | 1e+06   | .3f
sync_lat_ns       | Mean latency of a flush         | ms    | lower  | 1e+06   | .3f
sync_p99_ns       | p99 latency of a flush          | ms    | lower  | 1e+06   | .3f
offered_iops      | Request rate                    | IOPS  |        | 1       | .0f
delivered_pct     | Delivered of the request rate   | %     | higher | 1       | .1f
full_depth_pct    | I/Os that found the queue full  | %     | lower  | 1       | .2f
node_cpu_pct      | Node CPU                        | %     | lower  | 1       | .1f
iops_per_cpu_pct  | IOPS per 1 % of a node's CPU    |       | higher | 1       | .0f
net_bytes_per_s   | Network traffic of the nodes    | MiB/s | lower  | 1048576 | .0f
outstanding       | Outstanding I/Os                |       |        | 1       | .0f
savings_pct       | Saved by deduplication          | %     | higher | 1       | .1f
runtime_s         | Runtime                         | s     |        | 1       | .1f
warmup_ratio      | Written before measuring / span |       |        | 1       | .2f
""")


WORTH = {"iops": "IOPS", "gb_per_s": "GB/s", "usable_tib": "Usable TiB", "filled_tib": "TiB at the fill level"}
"""What a system gives for its cost -> how that is called."""
COSTS = {"price": "price", "yearly_price": "yearly price", "rack_unit": "rack unit", "watt": "watt"}
"""What it is divided by -> how that is called."""


def _share(worth: str, cost: str) -> Metric:
    """What one unit of a cost gives; of a currency 1,000 units, which few GB/s and TiB take."""
    if worth == "iops" or not cost.endswith("price"):
        return Metric(f"{worth}_per_{cost}", f"{WORTH[worth]} per {COSTS[cost]}", "", "higher")
    return Metric(f"{worth}_per_{cost}", f"{WORTH[worth]} per 1,000 of {COSTS[cost]}", "", "higher", 1e-3)


SHARES = {share.name: share for share in (_share(worth, cost) for worth in WORTH for cost in COSTS)}
"""Columns of `hci.cost`. What is per price is in the currency of its row."""


def per_price(name: str) -> bool:
    """Return whether a column is in a currency, so that only rows of one currency compare."""
    return name in SHARES and name.endswith("price")


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
    """Return the columns that are known factors, in the order of `columns`."""
    return [c for c in columns if c in FACTORS or c in SETTINGS]


def own_columns(columns) -> list[str]:
    """Return the columns that no reader of results gives: an analyst added them."""
    known = {*COLUMNS, *SETTINGS, *METRICS, *VALIDITY, *SHARES, "gb_per_s"}
    return [c for c in columns if c not in known]


def pattern_order(patterns: Iterable[str]) -> list[str]:
    """Patterns by block size, then read, mixed, write, then synchronous, then with fdatasync: the order of the
    articles' figures."""

    def key(pattern: str):
        match = NAME.match(pattern)
        if not match:
            return (1, 0, 0, 0, 0, pattern)
        size = int(match["size"]) * UNIT[match["unit"]]
        rank = ("read", "rw", "write").index(match["way"])
        return (0, SYNC.index(match["sync"] or ""), size, rank, -int(match["mix"] or 0), pattern)

    return sorted(dict.fromkeys(map(str, patterns)), key=key)


def time_unit(seconds: float) -> tuple[int, str]:
    """The unit that so long a time is read in, as seconds and by name: 3600, hours; 60, minutes; 1, seconds."""
    if seconds >= 2 * 3600:
        return 3600, "hours"
    return (60, "minutes") if seconds >= 120 else (1, "seconds")


def natural(text: str) -> str:
    """What to sort a label by so that 320iops comes before 1040iops; decimals stay as they are."""
    return re.sub(r"(?<![\d.])\d+", lambda digits: digits[0].zfill(20), text)


# ---- metrics by name


def metric_of(name: str) -> Metric:
    """The metric, a share of a cost, or a bare one for a column of the user's own."""
    return METRICS.get(name) or SHARES.get(name) or Metric(name, name, "", "", 1, "{:,.6g}")


def better_sign(metric: str) -> int:
    """1 if more is better, -1 if less is; ValueError for a metric of which neither is known."""
    better = metric_of(metric).better
    if not better:
        raise ValueError(
            f"which way {metric!r} is better is not known to hcilib.model.metrics; the best cannot be named"
        )
    return 1 if better == "higher" else -1


# ---- Sizes as people write them: ``"100 GiB"``. TB and TiB are never mixed, so a unit is required


_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
          "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip
_SIZE = re.compile(rf"([0-9]{{1,20}}(?:\.[0-9]{{1,20}})?)\s*({'|'.join(_UNITS)})")


def parse_bytes(value: int | str) -> int:
    """Bytes from an integer or from text with a unit, ``"100 GiB"``; ValueError names what it was given."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(str(value).replace("_", "").strip())
    if not match:
        raise ValueError(f"{value!r} is not a size; expected bytes or a number with one of {', '.join(_UNITS)}")
    return int(Fraction(match[1]) * _UNITS[match[2]])


def meant(given: object, known: Iterable[str]) -> str:
    """ "did you mean libaio? " where a known name is nearly what was given, or begins with it; else nothing."""
    names = list(known)
    near = difflib.get_close_matches(str(given)[:80], names, 1)
    near = near or [name for name in names if given and name.startswith(str(given))]
    return f"did you mean {near[0]}? " if near and near[0] != given else ""
