"""How a column of a table is called, scaled and printed; which columns a reader wants of which table, in which order.

What a metric is called stands in hcilib.model.metrics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

import numpy as np
import pandas as pd

from hcilib.model.metrics import CHECK_UNITS, CHECKS, FACTORS, METRICS, PLACES, Metric, steady, time_unit
from hcilib.model.system import known_labels

DIGITS = 3
"""Significant digits at least: with three, one step of the last digit is at most 1 % of the number."""

PLAIN = (
    "iodepth", "numjobs", "vms", "nodes", "rwmixread", "n", "n_baseline", "block", "rep", "row", "outstanding", "rank",
    "points", "knee", "smallest_vms", "gaps", "peak_vms", "cells", "given", "missing", "contexts", "possible", "runs",
)  # fmt: skip
"""Counts: never padded with decimals."""

LOWER = ("iodepth", "numjobs", "rw", "rwmixread", "n", "n_baseline", "k", "p", "f", "df", "p_adjusted")
"""fio's words and the letters of statistics keep their small initial."""

WORDS = {
    "p_adjusted": "p adjusted",
    "vms": "VMs",
    "peak_vms": "VMs at the peak",
    "smallest_vms": "Smallest VMs",
    "n_baseline": "n of the baseline",
    "ok": "Holds",
    "cpu_bound": "CPU bound",
    "run_id": "Run",
    "vm": "VM",
    "cpu_iops": "CPU (IOPS)",
    "pct_of_best": "Share of the best (%)",
    "pct_of_peak": "Share of the peak (%)",
    "pct_of_binding": "Used of what binds (%)",
    "pct_of_datasheet": "Share of the datasheet (%)",
    "rwmixread": "rwmixread (%)",
    "off_pct": "Off by (%)",
    "difference_pct": "True difference (%)",
    "held_pct": "Intervals that held it (%)",
    "pct_of_ceiling": "Share of the ceiling (%)",
    "leave_one_out": "Leave-one-out",
    "pct_of_arithmetic": "Share of the arithmetic ceiling (%)",
    "given_back_pct": "Given back by the limit (%)",
    "jain": "Jain's index",
    "gap_s": "Outage (s)",
    "gaps": "Outages",
    "gap_sum_s": "All outages (s)",
    "heal_gap_s": "Outage after the heal (s)",
    "within_cv_pct": "CV within runs (%)",
    "between_cv_pct": "CV between runs (%)",
    "second_cv_pct": "CV of one second (%)",
    "block_cv_pct": "CV of blocks (%)",
    "rest_cv_pct": "CV of the rest (%)",
    "rmse_pct": "RMS error (%)",
    "per_vm": "Per VM (IOPS)",
    "due_p999_ns": "p99.9 that the stall makes (ms)",
    "ios": "I/Os",
    "ddir": "Direction",
    "owner": "VM on the owner",
    "non_owner": "VM on another node",
    "lo": "Interval from",
    "hi": "Interval to",
    "id": "ID",
}
DERIVED = ("p", "p_adjusted", "tost_p", "tost_p_adjusted", "df", "cv_pct")
OF_ROUNDED = ("iops_per_usable_tib",)
MISSING, NOTHING = "missing", "–"
"""What was to be measured and is not there; and what was not: words that nobody gave, and what cannot be worked out."""
SIZES = {
    "usable_tib": ("usable_gib", 1024),
    "usable_tb": ("usable_gb", 1000),
    "reserve_tib": ("reserve_gib", 1024),
    "reserve_tb": ("reserve_gb", 1000),
}
SMALL = 0.1
"""Of a TiB: capacities below are shown in GiB."""
WORKED_OUT = re.compile(
    r"p|p_adjusted|tost_p|tost_p_adjusted|f|df|\w*cv_pct|(\w+_)?ratio|gain|knee|slope_\w+|peak|peak_vms|smallest_vms|(pct_of|load)_\w+"
    r"|\w+_(lo|hi)|lowest|highest|overstated|given_back_pct|stated_pct|took_s|back_s|gap_sum_s|heal_gap_s|dip_pct|expected|claimed|recomputed"
    r"|(ceiling|harmonic|arithmetic|drives|network|cpu)_iops"
)
"""Columns that are made of others, or said by somebody: nothing was lost where they have no value."""
UNITS = (
    ("_bytes_per_s", "MiB/s", 2.0**20),
    ("_bytes", "GiB", 2.0**30),
    ("_iops", "IOPS", 1.0),
    ("_tib", "TiB", 1.0),
    ("_gib", "GiB", 1.0),
    ("_gb", "GB", 1.0),
    ("_tb", "TB", 1.0),
    ("_ns", "ms", 1e6),
    ("_s", "s", 1.0),
    ("_pct", "%", 1.0),
)
KNOWN = METRICS | {
    m.name: m
    for m in (
        Metric("cv_pct", "CV", "%", "", 1, "{:,.1f}"),
        Metric("efficiency", "Usable share of raw", "%", "higher", 0.01, "{:,.1f}"),
        Metric("bytes_per_s", "Throughput", "MiB/s", "higher", 2**20, "{:,.1f}"),
        Metric("usable_tib", "Usable", "TiB", "higher", 1, "{:,.2f}"),
        Metric("usable_tb", "Usable", "TB", "higher", 1, "{:,.2f}"),
        Metric("iops_per_usable_tib", "IOPS per usable TiB", "", "higher"),
        Metric("bytes_written", "Written", "GiB", "", 2**30, "{:,.1f}"),
        Metric("bs_bytes", "Block size", "KiB", "", 2**10),
        Metric("latency_ns", "Latency", "ms", "lower", 1e6, "{:,.3f}"),
    )
}
NAMES = {name: metric.label for name, metric in METRICS.items()} | {
    "reads": "reads", "writes": "writes", "read_bytes": "bytes read", "write_bytes": "bytes written",
}  # fmt: skip
NAMED = {"metric": NAMES, "measure": NAMES, "latency": NAMES, "check": CHECKS, "placement": PLACES}
"""Columns whose cells are names: of metrics, of what drives count, of laws, of where a VM runs; and what those are
called."""


def header(column: str, metric: str | None) -> str:
    """The column's title with its unit; ``center`` is titled as the metric it is the center of."""
    if column in ("center", "center_baseline") and metric:
        return KNOWN[metric].axis + (" of the baseline" if column == "center_baseline" else "")
    side = {"_lo": " from", "_hi": " to"}.get(column[-3:])
    text = WORDS.get(column) or (column[:-3] + side if side else printed_as(column, metric).axis)
    return text if column in LOWER else text[:1].upper() + text[1:]


def printed_as(column: str, metric: str | None) -> Metric:
    """How a column is called, scaled and printed."""
    if column in ("center", "center_baseline") and metric:
        return KNOWN[metric]
    if column in KNOWN and column not in PLAIN:
        return KNOWN[column]
    end, unit, scale = next((u for u in UNITS if column.endswith(u[0])), ("", "", 1.0))
    form = "{:,.10g}" if column in PLAIN else "{:,.0f}"
    return Metric(column, column.removesuffix(end).replace("_", " "), unit, "", scale, form)


def texts(values: pd.Series, column: str, metric: str | None) -> list[str]:
    """The column's cells as text."""
    if column in KNOWN and values.isna().all():
        values = values.astype(float)  # a metric that nobody gave has no type
    shown = _given(values, column, metric)
    return [_absent(values) if gone else text for gone, text in zip(values.isna(), shown, strict=True)]


def _absent(values: pd.Series) -> str:
    """What stands where a column has no value: of measured numbers another word than of what was set, told or worked
    out."""
    told = values.name in FACTORS or WORKED_OUT.fullmatch(str(values.name))
    measured = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    return MISSING if measured and (values.name in METRICS or not told) else NOTHING


def _given(values: pd.Series, column: str, metric: str | None) -> list[str]:
    """The column's cells as text, those without a value too."""
    if pd.api.types.is_bool_dtype(values):
        return ["yes" if v else "no" for v in values.fillna(False)]
    if not pd.api.types.is_numeric_dtype(values):
        return [_words(v, NAMED.get(column, known_labels())) for v in values]
    if pd.api.types.is_integer_dtype(values) and column not in KNOWN and printed_as(column, metric).scale == 1:
        return ["" if pd.isna(v) else f"{v:,}" for v in values]  # a count has no decimals
    how, given = printed_as(column, metric), values.astype(float)
    if column in DERIVED:
        return ["<0.0001" if column not in ("df", "cv_pct") and v < 1e-4 else number(v) for v in given]
    if column in PLAIN and not given.dropna().mod(1).eq(0).all():  # worked out between two counts: a crossing, a knee
        return [number(float(f"{v:.{DIGITS}g}"), "{:,.10g}", 1) for v in given]
    if column in OF_ROUNDED:  # of two rounded numbers: more digits than these say nothing
        return [number(float(f"{v / how.scale:.4g}"), how.format) for v in given]
    return [number(v / how.scale, how.format, digits(column)) for v in given]


def in_fit_unit(values: pd.Series) -> pd.Series:
    """Few hours as minutes or seconds, and capacities far below a TiB as GiB, under that name; any other column as it
    is."""
    name, most = str(values.name), values.max() if values.name in (*SIZES, "hours") else np.nan
    if name == "hours" and most == most:
        span, name = time_unit(3600 * most)
        return (values * 3600 / span).rename(name)
    if 0 < most < SMALL:
        smaller, times = SIZES[name]
        return (values * times).rename(smaller)
    return values


def with_units(frame: pd.DataFrame) -> pd.DataFrame:
    """The two sides of each check in the unit of that check, which stands beside them."""
    if not {"check", "measured", "expected"} <= set(frame.columns):
        return frame
    known = [CHECK_UNITS.get(check, ("", 1.0)) for check in frame["check"]]
    scale = [size for _, size in known]
    units = [unit for unit, _ in known]
    return frame.assign(unit=units, measured=frame["measured"] / scale, expected=frame["expected"] / scale)


def with_intervals(frame: pd.DataFrame, column: str, metric: str | None) -> tuple[list[str], list[str]]:
    """The `column` and, as ``[lo, hi]``, what bounds it: all three with the digits that the interval leaves a meaning.

    That is two digits of its half-width, and never fewer than the column shows without an interval.
    """
    how, shown = printed_as(column, metric), digits(column)
    values, bounds = [], []
    for row in (frame[[column, "lo", "hi"]].astype(float) / how.scale).to_numpy():
        last = _last_digit(row, shown)
        value, lo, hi = (_rounded(number(v, how.format, shown), v, last) for v in row)
        values.append(value if row[0] == row[0] else _absent(frame[column]))
        bounds.append("none" if row[1] != row[1] else f"[{lo}, {hi}]")
    return values, bounds


def _last_digit(row: Sequence[float], shown: int) -> int | None:
    """Which power of ten the last digit of a value and its interval is worth; None where there is no interval."""
    value, lo, hi = row
    if not (isfinite(hi - lo) and hi > lo and value):
        return None
    return min(floor(log10((hi - lo) / 2)) - 1, floor(log10(abs(value))) - shown + 1)


def _rounded(text: str, value: float, last: int | None) -> str:
    """The number as printed, cut to its last digit."""
    if last is None or last < -len(text.partition(".")[2]):
        return text
    return f"{round(steady(value), -last):,.{max(0, -last)}f}"


def digits(column: str) -> int:
    return 1 if column in (*PLAIN, "bs_bytes") else 4 if column == "ratio" else DIGITS


def number(value: float, form: str = "{:,.0f}", digits: int = DIGITS) -> str:
    """A number in its metric's format, with more decimals where that leaves fewer than `digits` significant ones."""
    if value is None or value != value:
        return MISSING
    if not isfinite(value):
        return "∞" if value > 0 else "-∞"
    value = steady(value)
    text = form.format(value)
    decimals = len(text.partition(".")[2])
    needed = digits - 1 - floor(log10(abs(value))) if value else 0
    return text if needed <= decimals else f"{value:,.{min(needed, 15)}f}"


def _words(value: object, labels: Mapping) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(_words(v, labels) for v in value)
    if value is None or value is pd.NA or value != value:
        return NOTHING
    return str(labels.get(value, value))


# ---- What tables there are. One is known by columns that no other has, so it stays known when it was filtered,
# joined or read back from a file; who knows better says so in attrs["kind"] or with hci.table(..., kind=...). A
# column with ? is shown only where it says something: where its values differ, or where a note is there at all. One
# with ! gives its table away, as do those behind a slash, which are not shown.


@dataclass(frozen=True)
class Kind:
    """The columns that give a table away, and those that are shown of it."""

    marks: frozenset[str]
    shown: tuple[str, ...]


def _kinds(text: str) -> dict[str, Kind]:
    """Kinds by name, of lines as ``name: shown / not shown``."""
    kinds = {}
    for entry in re.findall(r"^[^\s#].*(?:\n .*)*", text, re.M):
        name, _, columns = entry.partition(": ")
        shown, _, hidden = columns.partition("/")
        marks = [column.rstrip("?!") for column in shown.split() if column.endswith("!")]
        kinds[name] = Kind(frozenset([*marks, *hidden.split()]), tuple(shown.replace("!", "").split()))
    return kinds


KINDS = _kinds("""
# the plan and what stands behind a comparison
plan: step! kind block rep pattern numjobs iodepth vms duration_s! bytes_written!
prepared: host! command! executed!
pooled: system runs! invalid?! campaigns! source
# the drive, its datasheet and its ceilings
baseline: pattern numjobs iodepth n measured! datasheet! pct_of_datasheet! verdict
drive rates: access! bs_bytes! read_iops! write_iops!
ceilings: / scheme harmonic_iops arithmetic_iops
mix: rwmixread write_cost! harmonic_iops! arithmetic_iops! overstated!
share of ceiling: system? pattern curve vms? iodepth? block? iops! ceiling_iops! pct_of_ceiling! arithmetic_iops?
    pct_of_arithmetic?
against the dial: what! system pattern expected! measured! lo hi off_pct!
calibration: difference_pct! n different! equivalent inconclusive wrong! held_pct! lo hi half_width_pct load_lo load_hi
# files of other tools
files: file! tool version what in_file! in_name! missing? run? skipped?!
kinds of files: files! tool version what! missing? skipped?! first!
# who shares a storage
neighbours: system? tenant pattern beside! limit? came? metric ratio lo hi n verdict given_back_pct?! / alone
fairness: system? together! tenants! n jain! lo hi
# what was compared
comparison: system pattern iodepth ratio! lo hi p_adjusted! n n_baseline verdict / tost_p center_baseline
cost: system pattern? center! center_baseline! added_ns! ratio! lo hi n verdict
everywhere: system pattern n lowest! highest! verdict sentence!
crossover: pattern iodepth below! above! ratio_below! ratio_above! verdict sentence
rank: pattern iodepth rank! system tied_with! center! lo hi verdict
peak: system? pattern best! center! lo hi n tied! smallest_tied! leave_one_out bias_pct verdict
regimes: system? pattern vms? iodepth iops best_iops! best_at! ratio n kind! verdict note?
winners: system pattern iodepth n center pct_of_best! state! iops_per_cpu_pct? / tied_with
per usable TiB: system pattern iops_per_usable_tib! / usable_tib best tied center
front: pattern system best! center! lo hi usable_tib! iops_per_usable_tib! front! / tied
# checks
audit: system? pattern vms? numjobs? iodepth? block? check?! measured! expected! unit ratio! ok! note?
odd plan: about! warning! detail!
not given: / rows given missing
rounding: system pattern iodepth metric value unit half_unit_pct! / coarse
working sets: system vms span_bytes! ratio! alike! note
claims: id what! finding! verdict / claimed recomputed
worked out: what! claimed! recomputed! unit verdict formula! / finding
facts: key! kind?! value! unit! note?
# the network and the fleet
expected traffic: placement! ddir! expected! / redirected
traffic: pattern placement ddir owner_node! n observed observed_lo observed_hi net_bytes_per_s! vdisk_bytes_per_s note?
traffic checked: placement ddir! expected! observed! ratio! ok! note?
amplification: system? pattern iodepth? placement? measure! n seen! seen_lo seen_hi expected! ratio ok explained?!
drives' own counters: run_id? node device carries? model bytes_written unit_bytes?! wear_before_pct! wear_after_pct!
gains: curve vms n center! gain! per_vm!
knees: system? pattern curve points knee! lo hi slope_before! slope_after! smallest_vms peak peak_vms model
loads: system? pattern? vms? numjobs iodepth outstanding! n iops lat_ns? p99_ns? pct_of_best! within! chosen!
stop rules: system? pattern curve? rule! vms iops pct_of_peak! node_cpu_pct why!
mixed latency: system vms?! numjobs?! iodepth latency! n center! lo hi
load curve: system? pattern? demand! offered_iops! iops metric! center! lo hi n open_loop!
one I/O: system pattern vms numjobs iodepth block? iops bw_bytes lat_ns lat_unweighted_ns?
links: source! target! transport! tool streams bytes_per_s latency_ns! label_bytes_per_s?! card? note
binding: system? pattern curve? placement? vms? iodepth? iops drives_iops! network_iops! cpu_iops! binds! pct_of_binding
    said
# resiliency and capacity
grid: system resiliency dedup write_pct iops! lat_ns node_cpu_pct cpu_bound! note? / missing
effects: effect! level! baseline ratio lo hi contexts! possible! used
capacity: system scheme drives? efficiency! usable_tib! usable_tb reserve_tib? reserve_tb? stated_pct? agrees? /
    write_cost survives
survival: system survives_drives survives_servers survives write_cost stripe_cost
# the method
noise: system pattern iodepth n runtime_s cv_pct lo hi within_cv_pct! between_cv_pct! basis!
pooled noise: cells! n cv_pct lo hi within_cv_pct! between_cv_pct! second_cv_pct
drift: system blocks! cells block_cv_pct! rest_cv_pct! f p
precision: protocol! order cells runs read_s write_s hours cv_pct half_width_pct! assured_pct!
coverage: situation! runs method! n coverage! lo hi half_width_pct
protocols: protocol! order runs run_s hours time_ratio rmse_pct! coverage! lo hi half_width_pct
protocols measured: pattern protocol! runs run_s hours half_width_pct time_ratio! ratio lo hi / load_before
# campaigns and failures
regression: system? pattern iodepth k! n ratio! lo hi p_adjusted verdict / center_baseline sentence
campaign noise: system campaigns! cells n cv_pct lo hi from_runs_pct!
visible change: k! lower_pct! higher_pct!
chance to see: loss_pct! k! chance_pct!
campaign times: run_id began! ended!
events: system block t_s seen! what! took_s!
failures: system failure block healthy_iops! gap_s! gaps gap_sum_s degraded_iops! ratio heal_gap_s dip_pct back_s
    whole_s max_lat_ns
levels: system? failure block healthy_iops healthy_lo? healthy_hi? degraded_iops degraded_lo? degraded_hi?
failure summary: system failure! quantity! n median worst center! lo hi
acknowledged writes: run_id? vm replica! acknowledged checked! in_flight lost torn foreign unreadable at_most_pct?!
    verdict!
unseen runs: system pattern block events! attempts! why!
# views of any table
stamped writes: system block events acknowledged in_flight lost torn foreign unreadable integrity
sentences: sentence
runs: system pattern iodepth block? events? iops bw_bytes lat_ns lat_unweighted_ns? / valid rep
""")


FINDINGS = ("audit", "claims", "files", "not given", "odd plan", "regimes", "rounding", "unseen runs", "working sets")
"""Tables of what was found wrong: without a row nothing was. Of every other one nothing was there."""


def looked_at(frame: pd.DataFrame) -> bool:
    """Whether something was looked at for the rows of a table; a table of findings may tell how much that was."""
    return kind_of(frame) in FINDINGS and frame.attrs.get("looked_at", 1) > 0


def kind_of(frame: pd.DataFrame) -> str | None:
    """The kind that a frame says it is, else the one with the most marks of those that all are there."""
    if said := frame.attrs.get("kind"):
        return said if said in KINDS else None
    there = set(map(str, frame.columns))
    fitting = [name for name, kind in KINDS.items() if kind.marks and kind.marks <= there]
    return max(fitting, key=lambda name: len(KINDS[name].marks), default=None)


def shown_columns(frame: pd.DataFrame, kind: str | None) -> Sequence[str] | None:
    """The columns to show of a frame of that kind, with what it was asked by; None where its kind prescribes none.

    Raises
    ------
    KeyError : no such kind
    """
    if kind is not None and kind not in KINDS:
        raise KeyError(f"there is no table of kind {kind!r}; there are {', '.join(KINDS)}")
    wanted = KINDS[kind].shown if kind else ()
    columns = [c.removesuffix("?") for c in wanted if c.removesuffix("?") in frame]
    optional = {c.removesuffix("?") for c in wanted if c.endswith("?")}
    shown = [c for c in columns if c not in optional or _says_something(frame[c])]
    by = [c for c in frame.attrs.get("by", ()) if c in frame]
    told = [c for c in by if c not in columns and _says_something(frame[c])]  # rows that else nothing tells apart
    at = max((n for n, c in enumerate(shown, 1) if c in by), default=0)
    return [*shown[:at], *told, *shown[at:]] or None


def _says_something(values: pd.Series) -> bool:
    """Whether a column differs from row to row, or holds a remark."""
    given = values[values.notna() & values.astype(str).ne("")]
    return bool(given.nunique() > 1 or (len(given) and given.dtype.kind not in "biuf" and len(given) < len(values)))
