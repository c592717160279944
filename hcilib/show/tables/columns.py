"""How a column of a table is called, scaled and printed.

What a column is called stands in hcilib/model/columns.csv.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor, isfinite, log10

import numpy as np
import pandas as pd

from hcilib.model.metrics import KNOWN, LISTED, METRICS, Metric, column_of, steady, time_unit
from hcilib.model.system import known_labels
from hcilib.say.codes import REASONS, action_words, events_words, limit_words, report_words
from hcilib.say.words import CHECK_UNITS, CHECKS, CURVES, ORDERS, PARTS, PLACES

DIGITS = 3
"""Significant digits at least: with three, one step of the last digit is at most 1 % of the number."""

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
WORKED_OUT = ("factor", "computed", "share")
"""Kinds of columns that are set, computed from others or declared: an empty cell is no lost measurement."""
NAMES = {name: metric.label for name, metric in METRICS.items()} | {
    "reads": "reads", "writes": "writes", "read_bytes": "bytes read", "write_bytes": "bytes written",
}  # fmt: skip
NAMED = {"metric": NAMES, "measure": NAMES, "latency": NAMES, "check": CHECKS, "placement": PLACES,
         "curve": CURVES, "order": ORDERS, "code": REASONS,
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
    if side := {"_lo": " from", "_hi": " to"}.get(column[-3:]):
        return header(column[:-3], metric) + side
    text = column_of(column).axis
    return text if column in LISTED and column not in METRICS else text[:1].upper() + text[1:]


def printed_as(column: str, metric: str | None) -> Metric:
    """How a column is called, scaled and printed."""
    return KNOWN[metric] if column in VALUES and metric else column_of(column)


def texts(values: pd.Series, column: str, metric: str | None) -> list[str]:
    """The column's cells as text."""
    if column in KNOWN and values.isna().all():
        values = values.astype(float)  # a metric that nobody gave has no type
    shown = _given(values, column, metric)
    return [_absent(values) if gone else text for gone, text in zip(values.isna(), shown, strict=True)]


def _absent(values: pd.Series) -> str:
    """Return the text of an empty cell: `MISSING` for measurements, else `NOTHING`."""
    measured = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    return MISSING if measured and column_of(str(values.name)).kind not in WORKED_OUT else NOTHING


def _given(values: pd.Series, column: str, metric: str | None) -> list[str]:
    """The column's cells as text, those without a value too."""
    if pd.api.types.is_bool_dtype(values):
        return ["yes" if v else "no" for v in values.fillna(False)]
    if not pd.api.types.is_numeric_dtype(values):
        if column in FORMED:
            return [FORMED[column](str(v)) for v in values]
        return [_words(v, NAMED.get(column, known_labels())) for v in values]
    how, given = printed_as(column, metric), values.astype(float)
    if pd.api.types.is_integer_dtype(values) and column not in KNOWN and how.scale == 1:
        return ["" if pd.isna(v) else f"{v:,}" for v in values]  # a count has no decimals
    if how.form == "p":
        return ["<0.0001" if v < 1e-4 else number(v) for v in given]
    if how.form == "count" and not given.dropna().mod(1).eq(0).all():  # between two counts: a crossing, a knee
        return [number(float(f"{v:.{DIGITS}g}"), how.format, 1) for v in given]
    if how.form == "rounded":
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
    return 1 if column_of(column).form in ("count", "given") else 4 if column == "ratio" else DIGITS


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
