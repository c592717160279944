"""How a column of a table is called, scaled and printed.

What a metric is called stands in hcilib.model.metrics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import floor, isfinite, log10

import numpy as np
import pandas as pd

from hcilib.model.metrics import FACTORS, METRICS, SHARES, Metric, read_metrics, steady, time_unit
from hcilib.model.system import known_labels
from hcilib.say.curves.neighbours import limit_words
from hcilib.say.runs.failure import action_words, events_words, report_words
from hcilib.say.words import CHECK_UNITS, CHECKS, CURVES, ORDERS, PARTS, PLACES

DIGITS = 3
"""Significant digits at least: with three, one step of the last digit is at most 1 % of the number."""

PLAIN = (
    "iodepth", "numjobs", "vms", "nodes", "rwmixread", "n", "n_baseline", "block", "rep", "row", "outstanding", "rank",
    "points", "knee", "rate_iops", "smallest_vms", "gaps", "peak_vms", "cells", "given", "missing", "contexts", "possible", "runs",
    "n_one",
)  # fmt: skip
"""Counts: never padded with decimals."""

AS_GIVEN = ("bs_bytes", "price", "years", "rack_units", "watts", "fill_pct")
"""What somebody set or declared: with the digits that it was given."""

LOWER = ("iodepth", "numjobs", "rw", "rwmixread", "n", "n_baseline", "n_one", "k", "p", "f", "df", "p_adjusted")
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
    "latency_ns_baseline": "Latency of the baseline (ms)",
    "raw_tb": "Raw (TB)",
    "filled_gib": "Usable at the fill level (GiB)",
    "cpu_iops": "CPU (IOPS)",
    "pct_of_best": "Share of the best (%)",
    "pct_of_peak": "Share of the peak (%)",
    "binds": "Bottleneck",
    "pct_of_binding": "Use of the bottleneck (%)",
    "pct_of_link": "Share of the link (%)",
    "pct_of_datasheet": "Share of the datasheet (%)",
    "rwmixread": "rwmixread (%)",
    "off_pct": "Off by (%)",
    "difference_pct": "True difference (%)",
    "held_pct": "Intervals that contain it (%)",
    "pct_of_ceiling": "Share of the ceiling (%)",
    "pct_of_arithmetic": "Share of the arithmetic ceiling (%)",
    "gap_s": "Outage (s)",
    "gaps": "Outages",
    "gap_sum_s": "All outages (s)",
    "heal_gap_s": "Outage after the repair (s)",
    "dip_pct": "Lowest second after the repair (% below healthy)",
    "back_s": "IOPS recovered after the repair (s)",
    "whole_s": "Copies complete after the repair (s)",
    "t_s": "Time (s)",
    "took_s": "Duration (s)",
    "within_cv_pct": "CV within runs (%)",
    "between_cv_pct": "CV between runs (%)",
    "second_cv_pct": "CV of one second (%)",
    "block": "Round",
    "blocks": "Rounds",
    "rmse_pct": "RMS error (%)",
    "protocol": "Plan",
    "assured_pct": "Half width in 9 of 10 campaigns (%)",
    "runs_basis": "Spread of runs",
    "seconds_basis": "Spread of seconds",
    "asked": "Measured by",
    "visible_pct": "Smallest provable loss (%)",
    "needed": "Campaigns needed",
    "rate_iops": "Rate, as set",
    "due_p999_ns": "Expected p99.9 (ms)",
    "ios": "I/Os",
    "ddir": "Direction",
    "owner": "VM on the owner",
    "non_owner": "VM on another node",
    "id": "ID",
    "without_ns": "Without the part (ms)",
    "less_pct": "Largest saving (%)",
    "other": "Fastest other system",
    "with_other_ns": "With that system's time (ms)",
    "visits": "Visits per I/O",
    "one_ns": "At iodepth 1 (ms)",
    "n_one": "n at iodepth 1",
}
DERIVED = ("p", "p_adjusted", "tost_p", "tost_p_adjusted", "df", "cv_pct")
OF_ROUNDED = ("iops_per_usable_tib", *SHARES)
MISSING, NOTHING = "missing", "–"
"""A value that should have been measured, and one that was never expected: an absent word, an undefined ratio."""
SIZES = {
    "usable_tib": ("usable_gib", 1024),
    "usable_tb": ("usable_gb", 1000),
    "filled_tib": ("filled_gib", 1024),
    "reserve_tib": ("reserve_gib", 1024),
    "reserve_tb": ("reserve_gb", 1000),
    "raw_tb": ("raw_gb", 1000),
}
SMALL = 0.1
"""Of a TiB: capacities below are shown in GiB."""
WORKED_OUT = re.compile(
    r"p|p_adjusted|tost_p|tost_p_adjusted|f|df|\w*cv_pct|(\w+_)?ratio|gain|knee|slope_\w+|peak|peak_vms|smallest_vms|(pct_of|load)_\w+"
    r"|\w+_(lo|hi)|lowest|highest|overstated|stated_pct|took_s|back_s|gap_sum_s|heal_gap_s|dip_pct|expected|claimed|recomputed"
    r"|(ceiling|harmonic|arithmetic|drives|network|cpu)_iops"
    r"|with_other_ns|price|years|rack_units|watts|yearly_price|\w+_per_(price|yearly_price|rack_unit|watt)"
)
"""Columns that are computed from others or declared: an empty cell is no lost measurement."""
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
KNOWN = (
    METRICS
    | SHARES
    | read_metrics("""
cv_pct              | CV                       | %     |        | 1          | .1f
efficiency          | Usable share of raw      | %     | higher | 0.01       | .1f
bytes_per_s         | Throughput               | MiB/s | higher | 1048576    | .1f
usable_tib          | Usable                   | TiB   | higher | 1          | .2f
usable_tb           | Usable                   | TB    | higher | 1          | .2f
iops_per_usable_tib | IOPS per usable TiB      |       | higher | 1          | .0f
filled_tib          | Usable at the fill level | TiB   | higher | 1          | .2f
fill_pct            | Fill level               | %     |        | 1          | .10g
gb_per_s            | Throughput               | GB/s  | higher | 1          | .2f
price               | Price (declared)         |       | lower  | 1          | .10g
years               | Years (declared)         |       |        | 1          | .10g
rack_units          | Rack units (declared)    |       | lower  | 1          | .10g
watts               | Watts (declared)         |       | lower  | 1          | .10g
bytes_written       | Written                  | GiB   |        | 1073741824 | .1f
bs_bytes            | Block size               | KiB   |        | 1024       | .0f
latency_ns          | Latency                  | ms    | lower  | 1e+06      | .3f
""")
)
NAMES = {name: metric.label for name, metric in METRICS.items()} | {
    "reads": "reads", "writes": "writes", "read_bytes": "bytes read", "write_bytes": "bytes written",
}  # fmt: skip
NAMED = {"metric": NAMES, "measure": NAMES, "latency": NAMES, "check": CHECKS, "placement": PLACES,
         "curve": CURVES, "order": ORDERS,
         "part": {part: words[0] for part, words in PARTS.items()}}  # fmt: skip
"""Column -> its values -> what tables and figures call them. Another column's equal values stay as they are."""
FORMED: dict[str, Callable[[str], str]] = {
    "limit": limit_words,
    "failure": action_words,
    "heal": action_words,
    "events": events_words,
    "event": report_words,
}
"""Column whose values have a form, such as ``64m`` and ``cut-link@12`` -> how one is called."""
VALUES = ("value", "value_baseline", "alone")
"""Columns whose metric the column ``metric`` names."""


def header(column: str, metric: str | None) -> str:
    """Return the column's title with its unit; a ``value`` is titled as the metric that the table names."""
    if column in VALUES and metric:
        return KNOWN[metric].axis + (" of the baseline" if column == "value_baseline" else "")
    side = {"_lo": " from", "_hi": " to"}.get(column[-3:])
    if side and column not in WORDS:
        return header(column[:-3], metric) + side
    text = WORDS.get(column) or printed_as(column, metric).axis
    return text if column in LOWER else text[:1].upper() + text[1:]


def printed_as(column: str, metric: str | None) -> Metric:
    """How a column is called, scaled and printed."""
    if column in VALUES and metric:
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
    """Return the text of an empty cell: `MISSING` for measurements, else `NOTHING`."""
    told = values.name in FACTORS or WORKED_OUT.fullmatch(str(values.name))
    measured = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    return MISSING if measured and (values.name in METRICS or not told) else NOTHING


def _given(values: pd.Series, column: str, metric: str | None) -> list[str]:
    """The column's cells as text, those without a value too."""
    if pd.api.types.is_bool_dtype(values):
        return ["yes" if v else "no" for v in values.fillna(False)]
    if not pd.api.types.is_numeric_dtype(values):
        if column in FORMED:
            return [FORMED[column](str(v)) for v in values]
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


def word_of(column: str, text: str) -> str | None:
    """Return what a value of a column is called in tables and figures; None where it has no other name."""
    return FORMED[column](text) if column in FORMED else NAMED.get(column, {}).get(text)


def words(column: str) -> dict[str, str]:
    """Return what the values of a column are called, for names that you join yourself.

    Parameters
    ----------
    column : ``check``, ``placement``, ``part``, ``curve``, ``order`` or ``metric``

    Returns
    -------
    dict : value -> its name; empty for a column whose values have no other names

    Examples
    --------
    >>> hci.words("placement")["owner"]
    'VM on the owner'
    """
    return dict(NAMED.get(column, {}))


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
    """The `column` and, as ``[lo, hi]``, its interval: all three with the digits that the interval leaves a meaning.

    That is two digits of its half-width, and never fewer than the column shows without an interval.
    """
    how, shown = printed_as(column, metric), digits(column)
    values, bounds = [], []
    for row in (frame[[column, f"{column}_lo", f"{column}_hi"]].astype(float) / how.scale).to_numpy():
        last = _last_digit(row, shown)
        value, lo, hi = (_rounded(number(v, how.format, shown), v, last) for v in row)
        values.append(value if row[0] == row[0] else _absent(frame[column]))
        hi = "unknown" if row[2] != row[2] else hi  # as above everything that was measured
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
    return 1 if column in (*PLAIN, *AS_GIVEN) else 4 if column == "ratio" else DIGITS


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
