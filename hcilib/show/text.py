"""How is a table printed? Numbers as text under headings with units, intervals behind their values.

What a column is called stands in hcilib/model/columns.csv. nbval compares tables as text, so no cell
has so few digits that a change of 1 % stays unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import floor, isfinite, log10

import numpy as np
import pandas as pd

from hcilib.model.caveats import BEYOND, PERCENTILES, THIN_TAIL, warnings_of
from hcilib.model.metrics import (
    FACTORS,
    KNOWN,
    LISTED,
    METRICS,
    Metric,
    column_of,
    in_order,
    metric_of,
    steady,
    time_unit,
)
from hcilib.model.system import known_labels
from hcilib.say.codes import REASONS, action_words, events_words, limit_words
from hcilib.say.words import CHECK_UNITS, CHECKS, CURVES, ORDERS, PARTS, PLACES

DIGITS = 3
"""Significant digits at least: with three, one step of the last digit is at most 1 % of the number."""
MISSING, NOTHING = "missing", "–"
"""A value that should have been measured, and one that was never expected."""
WORKED_OUT = ("factor", "computed", "share")
"""Kinds of columns in which an empty cell is no lost measurement."""
ASIDE = ("warnings", "confidence")
"""Columns that are shown only by name: the last column has the codes, and intervals are of 95 %."""
SIZES = {
    "usable_tib": ("usable_gib", 1024),
    "usable_tb": ("usable_gb", 1000),
    "filled_tib": ("filled_gib", 1024),
    "reserve_tib": ("reserve_gib", 1024),
    "raw_tb": ("raw_gb", 1000),
}
SMALL = 0.1
"""Of a TiB: capacities below are shown in GiB."""
OUTAGES = ("gap_s", "median", "worst", "mean")
"""Columns of outages, of which 0 is never said where `resolution_s` is known."""
NOT_THERE, CROSSED = ("none", "undecided"), ("iodepth", "below", "above")
"""Verdicts of a crossover without a place, and the columns of it: that is not a missing number."""
VALUES = ("value", "value_baseline", "alone")
"""Columns whose metric the column ``metric`` names."""
_METRICS = {name: metric.label for name, metric in METRICS.items()}
NAMED: dict[str, Mapping[str, str]] = {
    "metric": _METRICS,
    "measure": _METRICS | {"read_bytes": "bytes read", "write_bytes": "bytes written"},
    "latency": _METRICS,
    "check": CHECKS,
    "placement": PLACES,
    "curve": CURVES,
    "order": ORDERS,
    "code": REASONS,
    "part": {part: words[0] for part, words in PARTS.items()},
}
"""Column -> its values -> what tables and figures call them."""
FORMED: dict[str, Callable[[str], str]] = {
    "limit": limit_words,
    "failure": action_words,
    "heal": action_words,
    "events": events_words,
    "event": action_words,
}
"""Column whose values have a form, such as ``64m`` and ``cut-link@12`` -> how one is called."""


def text(frame: pd.DataFrame, columns: str | Sequence[str] | None = None) -> pd.DataFrame:
    """Return columns as text for reading, under headings with units.

    What has ``_lo`` and ``_hi`` beside it is one cell: ``12,300 [11,800, 12,900]``. Systems and factors
    are ordered, so ``pivot``, ``set_index`` and ``sort_index`` keep their order. The codes of
    `warnings` are the last column, but for those of every row; :func:`hcilib.glossary` explains them.

    Parameters
    ----------
    frame : DataFrame
        Of any function of this library, or your own. An unknown column is shown as it is.
    columns : str or list of str, optional
        Which, in this order: a list, or names with blanks between. Without it, all that have a value, and metrics.

    Returns
    -------
    DataFrame
        Of text, with the index of `frame`. Without a row, one row says "none".

    Raises
    ------
    KeyError
        A column that is not there, by name.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and iodepth == 4")
    >>> bandwidth = hci.text(hci.summarize(results, "bw_bytes"), "pattern system bw_bytes")
    >>> bandwidth.pivot(index="Pattern", columns="System", values="Throughput (MiB/s)").to_dict("records")
    [{'Ceph': '22,600', 'Linstor/DRBD TCP': '30,200', 'StarWind RDMA': '31,700', 'StarWind TCP': '21,700'}]
    """
    ends = {f"{column}{end}" for column in frame for end in ("_lo", "_hi") if f"{column}_hi" in frame}
    if isinstance(columns, str):
        columns = columns.split()
    frame = in_order(_in_unit_of_check(frame))
    if absent := [column for column in columns or () if column not in frame]:
        there = ", ".join(map(str, frame.columns[frame.notna().any()]))
        raise KeyError(f"the table has no column {absent[0]!r}; it has {there}")
    own = [column for column in frame if column not in ends and column not in ASIDE]
    shown = columns or [c for c in own if frame[c].notna().any() or frame.empty or c in METRICS]
    metric = _own_metric(frame)
    cells = {}
    for column in shown:
        values = _in_fit_unit(frame[column])
        heading = _heading(str(values.name), metric)
        cells[column if heading in cells else heading] = _cells(frame, values, metric)
    if frame.empty:
        return pd.DataFrame([["none", *[""] * (len(cells) - 1)]], columns=list(cells))
    codes = _codes(frame, shown)
    if any(codes) and "warnings" not in shown:
        cells[_heading("warnings", None)] = codes
    return pd.DataFrame(cells, index=frame.index)


def _own_metric(frame: pd.DataFrame) -> str | None:
    """Return the one metric that the table's values are of; several latencies are latency."""
    names = frame["metric"].dropna().unique() if "metric" in frame else []
    if len(names) > 1 and all(str(name).endswith("_ns") for name in names):
        return "latency_ns"
    return names[0] if len(names) == 1 and names[0] in KNOWN else None


def _heading(column: str, metric: str | None) -> str:
    """Return the column's title with its unit."""
    if column in VALUES and metric:
        return KNOWN[metric].axis + (" of the baseline" if column == "value_baseline" else "")
    if side := {"_lo": " from", "_hi": " to"}.get(column[-3:]):
        return _heading(column[:-3], metric) + side
    title = column_of(column).axis
    return title if column in LISTED and column not in METRICS else title[:1].upper() + title[1:]


def word_of(column: str, value: str) -> str | None:
    """Return what a value of a column is called; None where it has no other name."""
    return FORMED[column](value) if column in FORMED else NAMED.get(column, {}).get(value)


def _cells(frame: pd.DataFrame, values: pd.Series, metric: str | None) -> pd.Series:
    """Return a column as text. Systems and factors are ordered."""
    column = str(values.name)
    if column in KNOWN and values.isna().all():
        values = values.astype(float)  # a metric that nobody gave has no type
    if column in VALUES and metric is None and "metric" in frame:
        each = zip(frame["metric"].map(metric_of), values, strict=True)
        return pd.Series([f"{what.show(value)} {what.unit}".strip() for what, value in each], frame.index)
    is_bool = pd.api.types.is_bool_dtype(values)
    is_number = pd.api.types.is_numeric_dtype(values) and not is_bool
    absent = MISSING if is_number and column_of(column).kind not in WORKED_OUT else NOTHING
    if is_number:
        shown = _numbers(frame, values, KNOWN[metric] if column in VALUES and metric else column_of(column))
    elif is_bool:
        shown = ["yes" if value else "no" for value in values.fillna(False)]
    else:
        shown = [_named(column, value) for value in values]
    cells = pd.Series(shown, frame.index, dtype=object).mask(values.isna(), absent)
    cells = _not_lost(frame, values, cells)
    return _ordered(cells, values) if column == "system" or column in FACTORS else cells


def _ordered(cells: pd.Series, values: pd.Series) -> pd.Series:
    """Return text in the order of its values: numbers by size, a Categorical in its own, names as they come."""
    order = cells
    if isinstance(values.dtype, pd.CategoricalDtype):
        order = cells.iloc[np.argsort(values.cat.codes, kind="stable")]
    elif pd.api.types.is_numeric_dtype(values):
        order = cells.iloc[np.argsort(values.to_numpy(float), kind="stable")]
    return pd.Series(pd.Categorical(cells, [*order.unique()], ordered=True), cells.index)


def _named(column: str, value: object) -> str:
    """Return what a value that is no number is called."""
    if isinstance(value, tuple | list):
        return ", ".join(_named(column, each) for each in value)
    name = str(value)
    return word_of(column, name) or (known_labels().get(name, name) if column not in NAMED else name)


def _numbers(frame: pd.DataFrame, values: pd.Series, what: Metric) -> list[str]:
    """Return numbers in their unit, with their intervals where there are any."""
    name, given = str(values.name), values.astype(float) / what.scale
    if pd.api.types.is_integer_dtype(values) and name not in KNOWN and what.scale == 1:
        return ["" if value is pd.NA else f"{value:,}" for value in values]  # a count has no decimals
    if what.form == "p":
        return ["<0.0001" if value < 1e-4 else number(value) for value in given]
    if what.form == "count" and given.dropna().mod(1).ne(0).any():  # a crossing, a mean of counts
        return [number(float(f"{value:.{DIGITS}g}"), what.format, 1) for value in given]
    if what.form == "rounded":
        return [number(float(f"{value:.4g}"), what.format) for value in given]
    digits = 1 if what.form in ("count", "given") else 4 if name == "ratio" else DIGITS
    if f"{name}_lo" not in frame or f"{name}_hi" not in frame:
        return [number(value, what.format, digits) for value in given]
    ends = frame[[f"{name}_lo", f"{name}_hi"]].astype(float) / what.scale
    rows = zip(given, *ends.to_numpy().T, strict=True)
    return [_with_interval(value, lo, hi, what.format, digits) for value, lo, hi in rows]


def _with_interval(value: float, lo: float, hi: float, form: str, digits: int) -> str:
    """Return a value and its interval with two digits of its half-width, and no fewer than `digits`."""
    last = None
    if isfinite(hi - lo) and hi > lo and value:
        last = min(floor(log10((hi - lo) / 2)) - 1, floor(log10(abs(value))) - digits + 1)
    shown = number(value, form, digits, last)
    if lo != lo:
        return shown
    upper = number(hi, form, digits, last) if hi == hi else "unknown"
    return f"{shown} [{number(lo, form, digits, last)}, {upper}]"


def number(value: float, form: str = "{:,.0f}", digits: int = DIGITS, last: int | None = None) -> str:
    """Return a number in its format, with as many decimals as `digits` need, cut at the power of ten `last`."""
    if value is None or value != value:
        return MISSING
    if not isfinite(value):
        return "∞" if value > 0 else "-∞"
    value = steady(value)
    shown = (form if abs(value) < 1000 else "{:,.0f}").format(value)
    decimals = len(shown.partition(".")[2])
    needed = min(digits - 1 - floor(log10(abs(value))), 15) if value else 0
    if last is not None and -last <= max(decimals, needed):
        return f"{round(value, -last):,.{max(0, -last)}f}"
    return shown if needed <= decimals else f"{value:,.{needed}f}"


def _in_fit_unit(values: pd.Series) -> pd.Series:
    """Return few hours as minutes or seconds, and capacities far below a TiB as GiB, under that name."""
    most = values.max() if values.name in (*SIZES, "hours") else np.nan
    if values.name == "hours" and most == most:
        span, name = time_unit(3600 * most)
        return (values * 3600 / span).rename(name)
    if 0 < most < SMALL:
        smaller, times = SIZES[str(values.name)]
        return (values * times).rename(smaller)
    return values


def _in_unit_of_check(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the two sides of each check in the unit of that check, which stands beside them."""
    if not {"check", "measured", "expected"} <= set(frame):
        return frame
    known = [CHECK_UNITS.get(check, ("", 1.0)) for check in frame["check"]]
    scale = np.array([size for _, size in known])
    sides = {side: frame[side] / scale for side in ("measured", "expected")}
    return frame.assign(unit=[unit for unit, _ in known], **sides)


def _not_lost(frame: pd.DataFrame, values: pd.Series, cells: pd.Series) -> pd.Series:
    """Replace "missing" where no value was lost: no crossing, no recovery, an outage below the logs' resolution."""
    if values.name == "back_s" and "tolerance" in frame:
        return cells.mask(values.isna() & frame[["heal_s", "tolerance"]].notna().all(axis=1), "not recovered")
    if values.name in OUTAGES and "resolution_s" in frame:
        known = (values.isna() | values.eq(0)) & frame["resolution_s"].notna()
        least = (2 * frame["resolution_s"]).map("< {:g}".format)
        return cells.mask(known, least).mask(values.eq(np.inf), "not recovered")
    if values.name in CROSSED and "verdict" in frame:
        return cells.mask(values.isna() & frame["verdict"].isin(NOT_THERE), "none")
    return cells


def _codes(frame: pd.DataFrame, shown: Iterable[str]) -> list[str]:
    """Return each row's codes, without those of all rows, and without those of percentiles that nobody sees."""
    rows = [row.split() for row in warnings_of(frame)]
    needless = set.intersection(*map(set, rows)) if len(rows) > 1 else set()
    if not any(column in METRICS and column.startswith("p") for column in shown):
        needless |= {THIN_TAIL, PERCENTILES, BEYOND}
    return [" ".join(code for code in row if code not in needless) for row in rows]
