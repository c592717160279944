"""How a column of a table is called, scaled and printed; what a metric is called stands in hcilib.metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, isfinite, log10

import pandas as pd

from hcilib.metrics import METRICS, Metric, steady

DIGITS = 3
"""Significant digits at least: with three, one step of the last digit is at most 1 % of the number."""

PLAIN = (
    "iodepth", "numjobs", "vms", "nodes", "rwmixread", "n", "n_baseline", "block", "rep", "row", "outstanding", "rank",
    "points", "knee", "smallest_vms", "peak_vms", "cells", "given", "missing", "contexts", "possible",
)  # fmt: skip
"""Counts: never padded with decimals."""

LOWER = ("iodepth", "numjobs", "rw", "ddir", "rwmixread", "n", "k", "p", "f", "df", "p_adjusted")
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
    "pct_of_datasheet": "Share of the datasheet (%)",
    "rwmixread": "rwmixread (%)",
    "off_pct": "Off by (%)",
    "difference_pct": "True difference (%)",
    "held_pct": "Intervals that held it (%)",
    "load_lo": "Load from",
    "load_hi": "Load to",
    "pct_of_ceiling": "Share of the ceiling (%)",
    "leave_one_out": "Leave-one-out",
    "pct_of_arithmetic": "Share of the arithmetic ceiling (%)",
    "given_back_pct": "Given back by the limit (%)",
    "jain": "Jain's index",
    "within_cv_pct": "CV within runs (%)",
    "between_cv_pct": "CV between runs (%)",
    "second_cv_pct": "CV of one second (%)",
    "block_cv_pct": "CV of blocks (%)",
    "rest_cv_pct": "CV of the rest (%)",
    "rmse_pct": "RMS error (%)",
    "per_vm": "Per VM (IOPS)",
    "due_p999_ns": "p99.9 that the stall makes (ms)",
    "ios": "I/Os",
    "id": "ID",
}
WORKED_OUT = ("iops_per_usable_tib",)
DERIVED = ("p", "p_adjusted", "tost_p", "df", "cv_pct")
UNITS = (
    ("_bytes_per_s", "MiB/s", 2.0**20),
    ("_bytes", "GiB", 2.0**30),
    ("_iops", "IOPS", 1.0),
    ("_tib", "TiB", 1.0),
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
        Metric("usable_tib", "Usable", "TiB", "higher", 1, "{:,.2f}"),
        Metric("usable_tb", "Usable", "TB", "higher", 1, "{:,.2f}"),
        Metric("iops_per_usable_tib", "IOPS per usable TiB", "", "higher"),
        Metric("bytes_written", "Written", "GiB", "", 2**30, "{:,.1f}"),
        Metric("bs_bytes", "Block size", "KiB", "", 2**10),
    )
}


def header(column: str, metric: str | None) -> str:
    """The column's title with its unit; ``center`` is titled as the metric it is the center of."""
    if column in ("center", "center_baseline") and metric:
        return KNOWN[metric].axis + (" of the baseline" if column == "center_baseline" else "")
    text = WORDS.get(column) or kind(column, metric).axis
    return text if column in LOWER else text[:1].upper() + text[1:]


def kind(column: str, metric: str | None) -> Metric:
    """How a column is called, scaled and printed."""
    if column in ("center", "center_baseline") and metric:
        return KNOWN[metric]
    if column in KNOWN and column not in PLAIN:
        return KNOWN[column]
    end, unit, scale = next((u for u in UNITS if column.endswith(u[0])), ("", "", 1.0))
    form = "{:,.10g}" if column in PLAIN else "{:,.0f}"
    return Metric(column, column.removesuffix(end).replace("_", " "), unit, "", scale, form)


def texts(values: pd.Series, column: str, metric: str | None, labels: Mapping) -> list[str]:
    """The column's cells as text."""
    if pd.api.types.is_bool_dtype(values):
        return ["missing" if pd.isna(v) else "yes" if v else "no" for v in values]
    if not pd.api.types.is_numeric_dtype(values):
        return [_words(v, labels) for v in values]
    how = kind(column, metric)
    if column in DERIVED:  # nothing to compute it from is not a lost value
        return [
            "none" if v != v else "<0.0001" if column.startswith(("p", "tost")) and v < 1e-4 else number(v)
            for v in values.astype(float)
        ]
    if column in PLAIN and not values.dropna().mod(1).eq(0).all():  # worked out between two counts: a crossing, a knee
        return [number(float(f"{v:.{DIGITS}g}"), "{:,.10g}", 1) if v == v else "missing" for v in values.astype(float)]
    if column in WORKED_OUT:  # of two rounded numbers: more digits than these say nothing
        return [
            number(float(f"{v / how.scale:.4g}"), how.format) if v == v else "missing" for v in values.astype(float)
        ]
    if pd.api.types.is_integer_dtype(values) and column not in KNOWN and how.scale == 1:  # a count has no decimals
        return ["missing" if pd.isna(v) else f"{v:,}" for v in values]
    return [number(v / how.scale, how.format, digits(column)) for v in values.astype(float)]


def with_intervals(frame: pd.DataFrame, column: str, metric: str | None) -> tuple[list[str], list[str]]:
    """The `column` and, as ``[lo, hi]``, what bounds it: all three with the digits that the interval leaves a meaning.

    That is two digits of its half-width, and never fewer than the column shows without an interval.
    """
    how, shown = kind(column, metric), digits(column)
    values, bounds = [], []
    for row in (frame[[column, "lo", "hi"]].astype(float) / how.scale).to_numpy():
        last = _last_digit(row, shown)
        value, lo, hi = (_rounded(number(v, how.format, shown), v, last) for v in row)
        values.append(value)
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
    return 1 if column in PLAIN else 4 if column == "ratio" else DIGITS


def number(value: float, form: str = "{:,.0f}", digits: int = DIGITS) -> str:
    """A number in its metric's format, with more decimals where that leaves fewer than `digits` significant ones."""
    if value is None or value != value:
        return "missing"
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
        return "missing"
    return str(labels.get(value, value))
