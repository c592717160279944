"""Tables for notebooks and reports: units in the header, thousands separators, intervals as [lo, hi], warnings below.

What a cell shows is compared by nbval as text, so a table prints the same characters every time, holds no memory
address, and never so few digits that a change of 1 % stays unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, isfinite, log10

import pandas as pd

from hcilib.metrics import FACTORS, METRICS, Metric

DIGITS = 3
"""Significant digits at least: with three, one step of the last digit is at most 1 % of the number."""

LEFT_OUT = ("sentence", "confidence", "baseline", "metric", "method", "adjust", "margin", "warnings", "best",
            "df", "p", "tost_p", "tost_lo", "tost_hi")  # fmt: skip
PLAIN = (
    "iodepth",
    "numjobs",
    "vms",
    "nodes",
    "rwmixread",
    "n",
    "n_baseline",
    "block",
    "rep",
    "row",
    "outstanding",
    "rank",
    "points",
    "knee",
    "smallest_vms",
    "peak_vms",
    "cells",
    "given",
    "missing",
    "contexts",
    "possible",
)
WORDS = {"system": "System", "pattern": "Pattern", "p_adjusted": "p adjusted", "tied_with": "tied with", "vms": "VMs",
         "n_baseline": "n of the baseline", "ok": "holds", "cpu_bound": "CPU bound",
         "effective_tib": "Effective (TiB)"}  # fmt: skip
SINGLE = "n = 1: no interval"  # as hcilib.analyse says it
DERIVED = ("p", "p_adjusted", "tost_p", "df", "cv_pct")
UNITS = (
    ("_bytes_per_s", "MiB/s", 2.0**20),
    ("_bytes", "GiB", 2.0**30),
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


@dataclass(frozen=True)
class Shown:
    """A table ready for eyes: text cells, header, footnotes. Its text and HTML depend on nothing but the numbers."""

    cells: pd.DataFrame
    notes: tuple[str, ...] = ()
    caption: str = ""
    text_columns: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        body = self.cells.to_string(index=False) if len(self.cells) else f"none ({', '.join(self.cells.columns)})"
        lines = [self.caption] * bool(self.caption) + [body, *self.notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        align = ["left" if c in self.text_columns else "right" for c in self.cells.columns]
        head = "".join(_cell("th", c, a, ' scope="col"') for c, a in zip(self.cells.columns, align, strict=True))
        rows = (zip(row, align, strict=True) for row in self.cells.itertuples(index=False, name=None))
        body = "\n".join("<tr>" + "".join(_cell("td", value, a) for value, a in row) + "</tr>" for row in rows)
        caption = f'<caption style="text-align:left">{escape(self.caption)}</caption>' if self.caption else ""
        notes = "".join(f"<br>{escape(note)}" for note in self.notes)
        below = f'<p class="footnotes"><small>{notes.removeprefix("<br>")}</small></p>' if notes else ""
        return f'<table class="dataframe hci">{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>{below}'


def table(
    frame: pd.DataFrame,
    metric: str | None = None,
    columns: Sequence[str] | None = None,
    wide: str | None = None,
    labels: Mapping[str, str] | None = None,
    caption: str = "",
) -> Shown:
    """A frame as a reader wants it: the last expression of its notebook cell.

    Parameters
    ----------
    metric : what ``center`` (and its ``lo``, ``hi``) measures, for unit and scale; the frame's own ``metric`` column or
        attribute by default
    columns : which columns, in which order; all but the wordy ones by default
    wide : a column (``system``) whose values become columns, one per value, each holding value and interval
    labels : text to show instead of an id, in cells and in headers

    Notes
    -----
    ``warnings`` become footnotes, numbered where they first appear. A true ``best``, or a ``rank`` of 1 that no other
    row ties with, is marked ``*``: the analysis says that the lead is real, never this function.

    Raises
    ------
    KeyError : a column that is not there, by name
    """
    absent = [c for c in [*(columns or ()), *([wide] if wide else [])] if c not in frame]
    if absent:
        raise KeyError(f"the table has no column {absent[0]!r}; it has {', '.join(map(str, frame.columns))}")
    metric = metric or _own_metric(frame)
    texts, numeric = _texts(frame, metric, columns, labels or {})
    single = (
        {"n", "lo"} <= set(frame.columns) and frame["lo"].isna().all() and (frame["n"] <= 1).all() and len(frame) > 0
    )
    notes, texts = _footnotes(frame, texts, single)
    if wide:
        texts = _widen(texts, frame, metric, wide, labels or {})
        numeric |= {str(labels.get(v, v)) for v in frame[wide]} if labels else set(map(str, frame[wide]))
    if single:
        notes = ("No interval: one run or one published mean each (n = 1).", *notes)
    if _best(frame).any():
        notes = ("* best where the difference is real.", *notes)
    return Shown(texts, notes, caption, frozenset(map(str, texts.columns)) - frozenset(numeric))


def number(value: float, form: str = "{:,.0f}", digits: int = DIGITS) -> str:
    """A number in its metric's format, with more decimals where that leaves fewer than `digits` significant ones."""
    if value is None or value != value:
        return "missing"
    if not isfinite(value):
        return "∞" if value > 0 else "-∞"
    text = form.format(value)
    decimals = len(text.partition(".")[2])
    needed = digits - 1 - floor(log10(abs(value))) if value else 0
    return text if needed <= decimals else f"{value:,.{min(needed, 15)}f}"


def _own_metric(frame: pd.DataFrame) -> str | None:
    names = frame["metric"].dropna().unique() if "metric" in frame else []
    return names[0] if len(names) == 1 else frame.attrs.get("metric")


def _texts(
    frame: pd.DataFrame, metric: str | None, columns: Sequence[str] | None, labels: Mapping
) -> tuple[pd.DataFrame, set[str]]:
    """Header -> text cells, and which headers are numbers. lo and hi become one column right of what they bound."""
    chosen = list(columns) if columns else [c for c in frame.columns if c not in LEFT_OUT]
    bounded = next((c for c in ("ratio", "knee", "center", "mean", "coverage", "cv_pct") if c in frame), None)
    paired = {"lo", "hi"} <= set(frame.columns) and bounded in chosen
    texts, numeric = {}, set()
    for column in (c for c in chosen if not (paired and c in ("lo", "hi"))):
        values, header = frame[column], _header(column, metric)
        header = column if header in texts else header
        texts[header] = _column(values, column, metric, labels)
        if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
            numeric.add(header)
        if paired and column == bounded and frame["lo"].notna().any():
            texts[name := _interval_header(frame)] = _intervals(frame, column, metric)
            numeric.add(name)
    shown = pd.DataFrame(texts, index=frame.index)
    value = _header(bounded, metric) if bounded else None
    if value in shown:
        shown[value] += ["*" if best else "" for best in _best(frame)]
    return shown, numeric


def _header(column: str, metric: str | None) -> str:
    if column in ("center", "center_baseline") and metric:
        return KNOWN[metric].axis + (" of the baseline" if column == "center_baseline" else "")
    return WORDS.get(column) or _kind(column, metric).axis


def _kind(column: str, metric: str | None) -> Metric:
    """How a column is called, scaled and printed."""
    if column in ("center", "center_baseline") and metric:
        return KNOWN[metric]
    if column in KNOWN and column not in PLAIN:
        return KNOWN[column]
    end, unit, scale = next((u for u in UNITS if column.endswith(u[0])), ("", "", 1.0))
    form = "{:,.10g}" if column in PLAIN else "{:,.0f}"
    return Metric(column, column.removesuffix(end).replace("_", " "), unit, "", scale, form)


def _column(values: pd.Series, column: str, metric: str | None, labels: Mapping) -> list[str]:
    if pd.api.types.is_bool_dtype(values):
        return ["missing" if pd.isna(v) else "yes" if v else "no" for v in values]
    if not pd.api.types.is_numeric_dtype(values):
        return ["missing" if v is None or v is pd.NA or v != v else str(labels.get(v, v)) for v in values]
    kind = _kind(column, metric)
    if column in DERIVED:  # nothing to compute it from is not a lost value
        return [
            "none" if v != v else "<0.0001" if column.startswith(("p", "tost")) and v < 1e-4 else number(v)
            for v in values.astype(float)
        ]
    if pd.api.types.is_integer_dtype(values) and column not in KNOWN and kind.scale == 1:  # a count has no decimals
        return ["missing" if pd.isna(v) else f"{v:,}" for v in values]
    return [number(v / kind.scale, kind.format, _digits(column)) for v in values.astype(float)]


def _digits(column: str) -> int:
    return 1 if column in PLAIN else 4 if column == "ratio" else DIGITS


def _interval_header(frame: pd.DataFrame) -> str:
    levels = frame["confidence"].dropna().unique() if "confidence" in frame else []
    return f"{100 * levels[0]:g} % interval" if len(levels) == 1 else "interval"


def _intervals(frame: pd.DataFrame, column: str, metric: str | None) -> list[str]:
    kind, digits = _kind(column, metric), _digits(column)
    pairs = zip(frame["lo"] / kind.scale, frame["hi"] / kind.scale, strict=True)
    return [
        "none" if lo != lo else f"[{number(lo, kind.format, digits)}, {number(hi, kind.format, digits)}]"
        for lo, hi in pairs
    ]


def _best(frame: pd.DataFrame) -> pd.Series:
    """Where the analysis found a real lead: `best`, or a `rank` of 1 that was tested and is tied with nobody."""
    if "best" in frame and pd.api.types.is_bool_dtype(frame["best"]):
        return frame["best"].fillna(False).astype(bool)
    if not {"rank", "tied_with", "verdict"} <= set(frame.columns):
        return pd.Series(False, index=frame.index)
    return (frame["rank"] == 1) & (frame["tied_with"] == "") & (frame["verdict"] == "ranked")


def _footnotes(frame: pd.DataFrame, texts: pd.DataFrame, single: bool) -> tuple[tuple[str, ...], pd.DataFrame]:
    """Warnings numbered by first appearance; each row's interval, or last cell, carries its mark."""
    if "warnings" not in frame or texts.empty:
        return (), texts
    warnings = frame["warnings"].fillna("").astype(str)
    if single:  # one note says it for all rows
        warnings = warnings.map(lambda text: "; ".join(w for w in text.split("; ") if not w.endswith(SINGLE)))
    order = {text: i for i, text in enumerate(dict.fromkeys(w for w in warnings if w), start=1)}
    marks = [f" ({order[w]})" if w else "" for w in warnings]
    carrier = next((c for c in texts if c.endswith("interval")), texts.columns[-1])
    notes = tuple(f"({i}) {text}" for text, i in order.items())
    return notes, texts.assign(**{carrier: texts[carrier].astype(str) + marks})


def _widen(texts: pd.DataFrame, frame: pd.DataFrame, metric: str | None, wide: str, labels: Mapping) -> pd.DataFrame:
    """One row per cell, one column per value of `wide`, holding value and interval."""
    bounded = next((c for c in ("ratio", "center", metric) if c in frame), None)
    if bounded is None:
        raise KeyError("a wide table needs a column center, ratio or the metric itself to spread")
    value, interval = _header(bounded, metric), _interval_header(frame)
    keys = [h for h in (_header(c, metric) for c in frame.columns if c in FACTORS and c != wide) if h in texts]
    both = texts[value] + (" " + texts[interval].str.removeprefix("none").str.strip() if interval in texts else "")
    names = frame[wide].map(lambda v: f"{labels.get(v, v)}")
    long = texts[keys].assign(_name=names, _text=both.str.strip())
    if long.duplicated([*keys, "_name"]).any():
        raise ValueError(f"several rows for one {', '.join(keys)} and {wide}: filter the table first")
    order = long[keys].drop_duplicates()
    spread = long.pivot(index=keys, columns="_name", values="_text").reindex(columns=list(dict.fromkeys(names)))
    return order.merge(spread.fillna("missing").reset_index(), on=keys).rename_axis(columns=None)


def _cell(tag: str, value: object, align: str, extra: str = "") -> str:
    return f'<{tag}{extra} style="text-align:{align}">{escape(str(value))}</{tag}>'
