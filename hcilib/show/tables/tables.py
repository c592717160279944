"""Tables for notebooks and reports: units in the header, thousands separators, intervals as [lo, hi], warnings below.

What a cell shows is compared by nbval as text, so a table prints the same characters every time, holds no memory
address, and never so few digits that a change of 1 % stays unseen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd

from hcilib.model.caveats import PERCENTILES, THIN_TAIL, warnings_of
from hcilib.model.metrics import FACTORS, KNOWN, RENAMED, column_of, metric_of, pattern_order
from hcilib.model.system import known_labels
from hcilib.say.words import noun
from hcilib.say.words import value as show_value
from hcilib.show.tables.columns import (
    VALUES,
    header,
    in_fit_unit,
    number,
    texts,
    with_intervals,
    with_units,
)

__all__ = ["Shown", "number", "text"]

ASIDE = ("warnings", "confidence", "sentence")
"""Columns with a place of their own: the last column, the heading of an interval, and below a row of a page."""
FROM_RUNS = ("cv_pct", "unstable", "p_adjusted")
"""What takes two runs to say: not shown where every row has one, the note says why."""
OUTAGES = ("gap_s", "median", "worst", "mean")
"""Columns of outages, of which 0 is never said where `resolution_s` is known."""
NOT_THERE = ("none", "undecided")
"""Verdicts of a crossover without a place: that is not a missing number."""
ROWS = 12
"""So many rows are in sight; a longer table is folded below them."""
FOLDED = re.compile(
    r'\n</tbody>\n</table>\n<details class="more">.*?<tbody>'
    r"(.*?\n</tbody>\n</table>)</details>",
    re.S,
)
LEAD = "* Significantly better than every other system. Rows that lack a system have no mark."
SINGLE = "One run or published value each (n = 1), so there are no intervals."


@dataclass(frozen=True)
class Shown:
    """A table ready for eyes: text cells, header, footnotes. Its text and HTML depend on nothing but the numbers."""

    cells: pd.DataFrame
    notes: tuple[str, ...] = ()
    caption: str = ""
    text_columns: frozenset[str] = frozenset()
    said: tuple[str, ...] = ()
    """What each row says as a sentence, which a page opens below the row; empty where the table shows it or has
    none."""
    instead: str = ""
    """A sentence that is shown in place of a table without a row, or without a single value."""
    frame: pd.DataFrame | None = None
    """What it was made of: all columns, in base units."""

    def __repr__(self) -> str:
        if self.instead:
            return self.instead
        body = self.cells.to_string(index=False) if len(self.cells) else f"none ({', '.join(self.cells.columns)})"
        lines = [self.caption] * bool(self.caption) + [body, *self.notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if self.instead:
            return f'<p class="nothing">{escape(self.instead)}</p>'
        align = ["left" if c in self.text_columns else "right" for c in self.cells.columns]
        rows = (zip(row, align, strict=True) for row in self.cells.itertuples(index=False, name=None))
        told = (f' data-note="{escape(text)}"' if text else "" for text in self.said or [""] * len(self.cells))
        lines = [
            f"<tr{note}>" + "".join(self._value(value, a) for value, a in row) + "</tr>"
            for row, note in zip(rows, told, strict=True)
        ]
        none = f'<tr data-empty><td colspan="{len(align)}" style="text-align:left">none</td></tr>'
        caption = f'<caption style="text-align:left">{escape(self.caption)}</caption>' if self.caption else ""
        shown = self._part(caption, align, lines[:ROWS] or [none])
        if rest := lines[ROWS:]:
            many = f"and {len(rest)} more row{'s' * (len(rest) > 1)}"
            more = self._part("", align, rest)
            shown += f'\n<details class="more"><summary>{many}</summary>\n{more}</details>'
        notes = "".join(f"<br>{escape(note)}" for note in self.notes)
        return shown + (f'<p class="footnotes"><small>{notes.removeprefix("<br>")}</small></p>' if notes else "")

    def _part(self, caption: str, align: list[str], lines: list[str]) -> str:
        """Some of the rows as a table with all headings."""
        head = "".join(
            _cell("th", c, a, ' scope="col"' + ' data-kind="number"' * (a == "right"))
            for c, a in zip(self.cells.columns, align, strict=True)
        )
        body = "\n".join(lines)
        return (
            f'<table class="dataframe hci">{caption}\n<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody>\n</table>"
        )

    def _value(self, value: object, align: str) -> str:
        leads = LEAD in self.notes and align == "right" and "*" in str(value)
        return _cell("td", value, align + ";font-weight:bold" * leads)


def unfolded(html: str) -> str:
    """The HTML of a table with all rows in one body, as a page folds, sorts and filters them by itself."""
    return FOLDED.sub(r"\1", html)


def text(
    frame: pd.DataFrame,
    columns: str | Sequence[str] | None = None,
    wide: str | None = None,
    caption: str = "",
    ranks: pd.DataFrame | None = None,
    empty: str = "",
) -> Shown:
    """Show a frame for reading: units in the header, thousands separators, intervals beside their values.

    Every column is shown, in the frame's order. The unit and the digits follow from a column's
    name. Unknown columns are shown unchanged. ``iops_lo`` and ``iops_hi`` become one column right
    of ``iops``. Twelve rows are in sight; a click shows the others. The codes of ``warnings`` are the
    last column, and :func:`hcilib.glossary` lists what they mean. ``confidence`` is in the heading of
    the intervals.

    Parameters
    ----------
    columns : the columns to show, in this order: a list, or names with blanks between
    wide : a column (``system``) whose values become columns, each with the value and its interval. The value is the
        first of `columns` with an interval, or the first of them that is no factor
    caption : text above the table
    ranks : what :func:`hcilib.rank` returns of the same results: the leader of each row is marked with ``*``
    empty : a sentence in place of a table without rows

    Raises
    ------
    KeyError : a column that is not there, by name
    ValueError : several rows for one cell of a wide table

    Notes
    -----
    Where every row is a single run, columns that take several (spread, adjusted p) are left out, and a note says why.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1 and iodepth == 4")
    >>> hci.text(hci.summarize(results, "bw_bytes"))
              System Pattern iodepth Throughput (MiB/s) n
                Ceph 1m-read       4             22,600 1
    Linstor/DRBD TCP 1m-read       4             30,200 1
       StarWind RDMA 1m-read       4             31,700 1
        StarWind TCP 1m-read       4             21,700 1
    One run or published value each (n = 1), so there are no intervals.
    """  # noqa: E501
    given, frame = frame, with_units(frame)
    chosen = columns.split() if isinstance(columns, str) else columns
    absent = [c for c in [*(chosen or ()), *([wide] if wide else [])] if c not in frame]
    if absent:
        there = frame.columns[frame.notna().any()]  # of dozens, those that hold something
        new = f" (now {RENAMED[absent[0]]})" if absent[0] in RENAMED else ""
        raise KeyError(f"the table has no column {absent[0]!r}{new}; it has {', '.join(map(str, there))}")
    if instead := (empty if frame.empty else "") or _nothing(frame):
        return Shown(frame.iloc[:0], instead=instead, frame=given)
    metric = _own_metric(frame)
    shown_columns = chosen or [c for c in frame.columns if c not in ASIDE]
    best = pd.Series(False if ranks is None else _leads(frame, ranks), index=frame.index)
    single = _single(frame)
    shown, numeric = _texts(frame, metric, shown_columns, single, best)
    shown = _with_codes(frame, shown, single, wide)
    notes: tuple[str, ...] = ()
    if wide and len(frame):
        value = _spread(frame, shown_columns)
        shown = _widen(shown, frame, metric, wide, value)
        numeric |= {str(known_labels().get(v, v)) for v in frame[wide]}
        caption = ": ".join(filter(None, [header(value, metric), caption]))
    if single:
        notes = (SINGLE, *notes)
    if best.any():
        notes = (LEAD, *notes)
    apart = "sentence" in frame and not wide and "sentence" not in shown_columns
    said = tuple("" if text != text or text is None else str(text) for text in frame["sentence"]) if apart else ()
    words = frozenset(map(str, shown.columns)) - frozenset(numeric)
    return Shown(shown, notes, caption, words, said, frame=given)


def _own_metric(frame: pd.DataFrame) -> str | None:
    names = frame["metric"].dropna().unique() if "metric" in frame else []
    if len(names) > 1 and all(str(name).endswith("_ns") for name in names):
        return "latency_ns"
    return names[0] if len(names) == 1 and names[0] in KNOWN else None


def _nothing(frame: pd.DataFrame) -> str:
    """The sentence in place of a table without a value: a metric that no source gives."""
    if {"ceiling_iops", "pct_of_ceiling"} <= set(frame.columns) and len(frame) and frame["ceiling_iops"].isna().all():
        return "Nothing to check, because the speed of one drive is not known."
    given = bounded(frame)
    if not given or not {"cv_pct", "unstable"} <= set(frame.columns) or frame[given].notna().any(axis=None):
        return ""
    return f"No value of {noun(metric_of(given[0]))} is known."


def _single(frame: pd.DataFrame) -> bool:
    """Whether every row rests on one run, so that none has an interval."""
    ends = [f"{column}_lo" for column in bounded(frame)]
    if "n" not in frame or not ends or frame.empty:
        return False
    return bool(frame[ends].isna().all(axis=None) and (frame["n"] <= 1).all())


def bounded(frame: pd.DataFrame) -> list[str]:
    """Return the columns that have an interval beside them, such as ``iops`` with ``iops_lo`` and ``iops_hi``."""
    names = set(frame.columns)
    return [str(column) for column in frame if {f"{column}_lo", f"{column}_hi"} <= names]


def _texts(
    frame: pd.DataFrame, metric: str | None, chosen: Sequence[str], single: bool, best: pd.Series
) -> tuple[pd.DataFrame, set[str]]:
    """Header -> text cells, and which headers are numbers. An interval becomes one column right of its value."""
    values_with_interval = [c for c in bounded(frame) if c in chosen]
    ends = {f"{c}{end}" for c in values_with_interval for end in ("_lo", "_hi")}
    hidden = {c for c in FROM_RUNS if single and c in frame and _empty(frame[c])}
    cells, numeric = {}, set()
    for column in (c for c in chosen if c not in ends and c not in hidden):
        values = in_fit_unit(frame[column])
        column = str(values.name)
        title = header(column, metric)
        title = column if title in cells else title
        cells[title] = _nothing_lost(texts(values, column, metric), values, frame)
        if column in VALUES and metric is None and "metric" in frame:
            cells[title] = [show_value(metric_of(m), v) for m, v in zip(frame["metric"], values, strict=True)]
        if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
            numeric.add(title)
        if column in values_with_interval and frame[f"{column}_lo"].notna().any():
            name = _interval_header(frame) if len(values_with_interval) == 1 else f"{title}, {_interval_header(frame)}"
            told, cells[name] = with_intervals(frame, column, metric)
            cells[title] = cells[title] if column_of(column).form == "count" else _nothing_lost(told, values, frame)
            numeric.add(name)
    shown = pd.DataFrame(cells, index=frame.index)
    value = header(values_with_interval[0], metric) if values_with_interval else None
    if value in shown:
        shown[value] += ["*" if leads else "" for leads in best]
    return shown, numeric


def _nothing_lost(shown: list[str], values: pd.Series, frame: pd.DataFrame) -> list[str]:
    """Replace "missing" where no value was lost: curves that do not cross, a system that did not recover.

    An outage that no sample shows is below the resolution of the logs.
    """
    if values.name == "back_s" and "heal_s" in frame:
        never = values.isna() & frame["heal_s"].notna()
        return ["not recovered" if gone else text for gone, text in zip(never, shown, strict=True)]
    if values.name in OUTAGES and "resolution_s" in frame:
        unseen = (values.isna() | values.eq(0)) & frame["resolution_s"].notna()
        least = 2 * frame["resolution_s"]
        shown = [f"< {s:g}" if no else text for no, s, text in zip(unseen, least, shown, strict=True)]
        return ["not recovered" if never else text for never, text in zip(values.eq(np.inf), shown, strict=True)]
    if "verdict" not in frame:
        return shown
    none = (values.isna() & frame["verdict"].isin(NOT_THERE)).to_numpy()
    return ["none" if nothing else text for nothing, text in zip(none, shown, strict=True)]


def _empty(values: pd.Series) -> bool:
    """Whether the column says nothing: all missing, or a condition that holds nowhere."""
    return bool((values.isna() | values.eq(False)).all())


def _interval_header(frame: pd.DataFrame) -> str:
    levels = frame["confidence"].dropna().unique() if "confidence" in frame else []
    return f"{100 * levels[0]:g} % interval" if len(levels) == 1 else "Interval"


def _leads(frame: pd.DataFrame, ranks: pd.DataFrame) -> list[bool]:
    """Which rows are of the system that `ranks` shows to lead its cell."""
    keys = [c for c in ranks.columns if c in frame and (c == "system" or c in FACTORS)]
    first = set(ranks.loc[ranks["best"].eq(True), keys].itertuples(index=False, name=None))
    return [row in first for row in frame[keys].itertuples(index=False, name=None)]


def _with_codes(frame: pd.DataFrame, shown: pd.DataFrame, single: bool, wide: str | None) -> pd.DataFrame:
    """Add the codes of `warnings` as the last column; in a wide table to the cells, which have no row of their own."""
    tails = [header(column, None) for column in frame if re.fullmatch(r"p\d+_ns", str(column))]
    needless = {"single-run"} if single else set()  # one note says it for all rows
    if tails and not set(tails) & set(shown):  # runs whose percentiles nobody sees
        needless |= {THIN_TAIL, PERCENTILES}
    codes = [" ".join(code for code in row.split() if code not in needless) for row in warnings_of(frame)]
    if shown.empty or not any(codes):
        return shown
    if not wide:
        return shown.assign(**{header("warnings", None): codes})
    carrier = next((c for c in shown if c.lower().endswith("interval")), shown.columns[-1])
    marks = [f" ({row})" if row else "" for row in codes]
    return shown.assign(**{carrier: shown[carrier].astype(str) + marks})


def _spread(frame: pd.DataFrame, chosen: Sequence[str]) -> str:
    """Return the column whose values a wide table spreads."""
    spread = [column for column in bounded(frame) if column in chosen]
    spread += [column for column in chosen if column not in (*FACTORS, "system", "run_id")]
    if not spread:
        raise KeyError(f"a wide table needs a value to spread; {', '.join(map(str, chosen))} are factors")
    return str(spread[0])


def _widen(shown: pd.DataFrame, frame: pd.DataFrame, metric: str | None, wide: str, column: str) -> pd.DataFrame:
    """One row per cell, one column per value of `wide`, holding value and interval."""
    value, interval = header(column, metric), _interval_header(frame)
    keys = [h for h in (header(c, metric) for c in frame.columns if c in FACTORS and c != wide) if h in shown]
    both = shown[value] + (" " + shown[interval].str.removeprefix("none").str.strip() if interval in shown else "")
    names = frame[wide].map(lambda v: f"{known_labels().get(v, v)}")
    long = shown[keys].assign(_name=names, _text=both.str.strip())
    if long.duplicated([*keys, "_name"]).any():
        raise ValueError(f"several rows for one {', '.join(keys)} and {wide}: filter the table first")
    order = long[keys].drop_duplicates()
    if header("pattern", None) in keys:  # whoever of the columns has it first
        place = {name: n for n, name in enumerate(pattern_order(order[header("pattern", None)]))}
        order = order.sort_values(header("pattern", None), key=lambda names: names.map(place), kind="stable")
    spread = long.pivot(index=keys, columns="_name", values="_text").reindex(columns=list(dict.fromkeys(names)))
    return order.merge(spread.fillna("missing").reset_index(), on=keys).rename_axis(columns=None)


def _cell(tag: str, value: object, align: str, extra: str = "") -> str:
    return f'<{tag}{extra} style="text-align:{align}">{escape(str(value))}</{tag}>'
