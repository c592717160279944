"""A row a case and its points along it: ratios, checks, campaigns, intervals that hold, one I/O, the bare drive."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from hcilib.model.metrics import CHECKS, metric_of, noun, pattern_order
from hcilib.show.figures import style
from hcilib.show.figures.style import INK, QUIET, WARN, drawn, looks, system_label, tip

VERDICTS = {"regression": WARN, "improvement": "#00805A", "changed": "#AA4499", "no change seen": "#0072B2"}
HOLDS = "#0072B2"
WIDEST = 4.0
"""A range from one degree of freedom would leave no room for the points: beyond this it ends in an arrow."""
EXPECTED: dict[str, Any] = {"color": "#9aa0a6", "alpha": 0.3, "linewidth": 0}
MARGIN: dict[str, Any] = {"hatch": "////", "facecolor": "none", "edgecolor": "#9aa0a6"}
"""How a range is drawn in which one more campaign was to be expected, and one declared where nothing tells it."""
LEAST, MOST = 0.1, 10
"""Ratios beyond are drawn at the end."""
OFFENDERS = 3
"""So many rows that break a law are named in the figure, the farthest first; each says its name when pointed at."""
GATES = {"little": (0.95, 1.05), "bandwidth": (0.95, 1.05), "cpu_efficiency": (0.95, 1.05), "ceiling": (0.0001, 1.0)}
"""Check -> the ratios within which a row holds (hcilib.analyse.physics.audit)."""


@drawn
def plot_forest(
    comparison: pd.DataFrame,
    baseline: str | None = None,
    metric: str | None = None,
    by: Sequence[str] = ("pattern", "iodepth"),
    source: str | None = None,
) -> Axes:
    """Ratios on a log axis, a line at 1 and the band inside which a difference does not matter.

    Parameters
    ----------
    comparison : as ``compare`` returns it: system, the `by` columns, ``ratio``, ``ratio_lo``, ``ratio_hi``. Rows of one
        ``by[0]`` stand under its heading. Points without an interval are hollow; a row without a ratio says missing.
        Of a baseline that was measured alone there is no row, and the figure says so.
    baseline, metric : for the axis label; the comparison's own columns of that name by default
    """
    if comparison.empty:
        return style.nothing(style.canvas(7.2, 0.6), "One system alone: nothing to compare.")
    baseline = baseline or _only(comparison, "baseline", "the baseline")
    margin = _only(comparison, "margin", 0.05)
    metric = metric or _only(comparison, "metric", "iops")
    high = len(_rows(comparison[list(by)]))
    lanes = comparison.loc[comparison["system"] != baseline, "system"].nunique()
    ax = style.canvas(7.2, 1.5 + 0.19 * high + 0.06 * high * (lanes - 1))
    handles = _forest(ax, comparison, baseline, metric, list(by))
    style.legend(ax, handles)
    note = "Hollow: n = 1, no interval." if comparison["ratio_lo"].isna().any() else None
    band = f"Grey band: within {100 * margin:g} % of equal."
    style.caption(ax, _interval_note(comparison), note, band, style.source_of(comparison, source))
    return ax


def _forest(ax: Axes, comparison: pd.DataFrame, baseline: str, metric: str, by: list[str]) -> list[Line2D]:
    """Draw a row a cell and a lane a system, and return what a legend says of the systems."""
    margin, what = _only(comparison, "margin", 0.05), metric_of(metric).label
    rows = _rows(style.in_order(comparison, by)[by])
    systems = looks([*comparison["system"], baseline])  # as where all are drawn
    systems.pop(baseline, None)
    ax.axvspan(1 / (1 + margin), 1 + margin, color="#9aa0a6", alpha=0.22, linewidth=0, zorder=0, gid="margin")
    _headed_axis(ax, rows, by)
    for lane, (name, look) in enumerate(systems.items()):
        part = comparison[comparison["system"] == name]
        cells = list(part[by].itertuples(index=False, name=None))
        y = np.array([rows[cell] for cell in cells]) + 0.66 * ((lane + 0.5) / len(systems) - 0.5)
        told = [", ".join(map(str, cell)) for cell in cells]
        values = part[["ratio", "ratio_lo", "ratio_hi"]].to_numpy(float)
        style.points(ax, y, values, look, system_label(name), told, "{:.3f}×", "x", elinewidth=1.5)
        _missing(ax, y[np.isnan(values[:, 0])], look[0])
    ends = comparison[["ratio", "ratio_lo", "ratio_hi"]].to_numpy(float).ravel()
    label = f"{what} relative to {system_label(baseline)}"
    style.ratio_axis(ax, ends, label)
    style.say(ax, f"{label}: {'; '.join(_counted(comparison))}.")
    return [style.mark(*look, system_label(name)) for name, look in systems.items()]


@drawn
def plot_neighbours(table: pd.DataFrame) -> np.ndarray:
    """A panel a metric: each tenant beside the others, as a ratio to itself alone. Returns the panels' Axes.

    Parameters
    ----------
    table : as ``neighbours`` returns it

    Raises
    ------
    ValueError : the table has no row
    """
    if table.empty:
        raise ValueError("plot_neighbours: the table has no row: no tenant was measured beside another")
    metrics = list(dict.fromkeys(table["metric"]))
    several = table["system"].nunique() > 1
    who = [
        f"{system_label(row.system) + ': ' if several else ''}{row.tenant}, {style.pattern_label(row.pattern)}"
        for row in table.itertuples()
    ]
    limited = table["beside"].str.contains("-rate").map({True: "with the limit", False: "beside the others"})
    drawn_as = table.assign(who=who, of=table["system"], system=limited)
    _, grid = style.panels([""] * len(metrics), len(metrics), 4.6, 1.1 + 0.42 * len(set(who)))
    handles: dict[str, Line2D] = {}
    for ax, metric in zip(grid, metrics, strict=True):
        marks = _forest(ax, drawn_as[drawn_as["metric"] == metric], "alone", metric, ["who"])
        handles |= {str(mark.get_label()): mark for mark in marks}
        if ax is not grid[0]:
            ax.yaxis.get_major_formatter().shared = True
    style.legend(grid[0], list(handles.values()))
    style.caption(grid[0], style.runs_note(table, hollow=False), "Grey band: as alone.", style.source_of(table))
    return grid


def _counted(comparison: pd.DataFrame) -> Iterable[str]:
    """How many ratios of each system lie above 1, and how many of all a test shows."""
    for name, part in comparison.groupby("system", sort=False, observed=True):
        ratio = part["ratio"].dropna()
        shown = part["verdict"].isin(("higher", "lower")).sum() if "verdict" in part else 0
        ends = f" ({ratio.min():.2f} to {ratio.max():.2f})" if len(ratio) else ""
        yield f"{system_label(name)} above in {(ratio > 1).sum()} of {len(ratio)}{ends}, {shown} shown by a test"


def _only(comparison: pd.DataFrame, column: str, otherwise):
    """The one value of a column that says how the comparison was made."""
    values = comparison[column].dropna().unique() if column in comparison else []
    if len(values) > 1:
        mixed = ", ".join(map(str, values))
        raise ValueError(f"plot_forest: the comparison mixes {column} {mixed}; draw one at a time")
    return values[0] if len(values) else otherwise


def _rows(cells: pd.DataFrame) -> dict[tuple, float]:
    """Cell -> y, top to bottom; before the first cell of each group its heading, a 1-tuple."""
    rows: dict[tuple, float] = {}
    for cell in cells.itertuples(index=False, name=None):
        for row in (cell[:1], cell):
            rows.setdefault(row, float(len(rows)))
    return rows


def _headed_axis(ax: Axes, rows: Mapping[tuple, float], by: Sequence[str], names: Sequence[str] | None = None) -> None:
    """Headings bold, the cells under them, every second group shaded; no grid line crosses a row."""
    under = (", ".join(f"{f} {v}" for f, v in zip(by[1:], cell[1:], strict=False)) for cell in rows)
    said = [text or style.pattern_label(cell[0]) for text, cell in zip(under, rows, strict=True)]
    style.row_axis(ax, names or said)
    heads = [y for cell, y in rows.items() if len(cell) == 1]
    for y in heads:
        ax.get_yticklabels()[int(y)].set_fontweight("bold")
    for top, bottom in list(zip(heads, [*heads[1:], float(len(rows))], strict=True))[::2]:
        ax.axhspan(top - 0.5, bottom - 0.5, color="#f4f5f6", linewidth=0, zorder=-1)


def _missing(ax: Axes, heights: Iterable[float], colour: str = QUIET) -> None:
    """Rows without a value say so."""
    for height in heights:
        ax.text(0.995, height, "missing", transform=ax.get_yaxis_transform(), fontsize=8, style="italic", color=colour,
                va="center", ha="right", gid="missing")  # fmt: skip


def _interval_note(comparison: pd.DataFrame) -> str | None:
    if comparison["ratio_lo"].isna().all():
        return None
    percent = f"{100 * comparison['confidence'].max():.0f} % " if "confidence" in comparison else ""
    corrected = {"p", "p_adjusted"} <= set(comparison) and (comparison["p_adjusted"] > comparison["p"]).any()
    more = ", each cell's own; verdicts are corrected for their number" if corrected else ""
    return f"Bars: {percent}intervals{more}."


@drawn
def plot_latency(table: pd.DataFrame) -> Axes:
    """What one I/O costs: a row a system under each pattern, the best first, on a log axis, the value beside its dot.

    Parameters
    ----------
    table : as ``summarize`` returns it: ``pattern``, ``system``, the metric and its interval, ``n``
    """
    what = metric_of(style.metric_drawn(table, otherwise="lat_ns"))
    keys = ["pattern", "system"]
    if table.duplicated(keys).any():
        raise ValueError("plot_latency: several rows for one system and pattern; filter the table to one of each")
    value = what.name
    ladder = pd.MultiIndex.from_product([pattern_order(table["pattern"]), table["system"].unique()], names=keys)
    table = table.assign(pattern=table["pattern"].astype(str)).set_index(keys).reindex(ladder).reset_index()
    table = table.sort_values(value, ascending=what.better == "lower", na_position="last", kind="stable")
    rows = _rows(style.in_order(table, ["pattern"])[keys])
    ax = style.canvas(7.2, 1.0 + 0.25 * len(rows))
    names = [system_label(c[1]) if len(c) == 2 else style.pattern_label(c[0]) for c in rows]
    _headed_axis(ax, rows, keys, names)
    values = table.reindex(columns=[value, f"{value}_lo", f"{value}_hi"]).astype(float) / what.scale
    for name, look in looks(table["system"]).items():
        mine = (table["system"] == name).to_numpy()
        cells = list(table.loc[mine, keys].itertuples(index=False, name=None))
        y, at = np.array([rows[cell] for cell in cells]), values[mine].to_numpy(float)
        told = [style.pattern_label(pattern) for pattern, _ in cells]
        style.points(ax, y, at, look, system_label(name), told, what.format, "x", elinewidth=1.5)
        _missing(ax, y[np.isnan(at[:, 0])], look[0])
        for height, (centre, _, hi) in zip(y, at, strict=True):
            if centre == centre:
                text = what.show(centre * what.scale)
                ax.annotate(text, (np.nanmax([centre, hi]), height), (8, 0), textcoords="offset points", va="center",
                            fontsize=8.5, fontweight="bold", color=style.darker(look[0]))  # fmt: skip
    ends = values.to_numpy(float)
    style.log_axis(ax.xaxis, what.unit, np.nanmin(ends, initial=np.inf), np.nanmax(ends, initial=-np.inf))
    ax.set_xlabel(what.axis)
    best = table.dropna(subset=[value]).groupby("pattern", sort=False).first()
    said = (
        f"{style.pattern_label(g)} {system_label(r['system'])} with {what.show(r[value])}" for g, r in best.iterrows()
    )
    style.say(ax, f"Best {what.axis}: {'; '.join(said)}.")
    style.caption(ax, style.runs_note(table), style.source_of(table))
    return ax


@drawn
def plot_baseline(table: pd.DataFrame, source: str | None = None) -> Axes:
    """The bare drive on a log axis: measured, filled, beside the vendor's datasheet, hollow, and its share of it.

    Parameters
    ----------
    table : ``pattern``, ``measured`` and ``datasheet`` in IOPS; NaN where a datasheet says nothing; intervals where
        ``measured_lo`` and ``measured_hi`` are known
    """
    what = metric_of("iops")
    ax = style.canvas(7.2, 1.2 + 0.4 * len(table))
    y = style.row_axis(ax, [style.pattern_label(v) for v in table["pattern"]])
    ends = table.reindex(columns=["measured", "datasheet", "measured_lo", "measured_hi"]).to_numpy(float) / what.scale
    values, bounds = ends[:, :2], ends[:, 2:]
    least, most = np.nanmin(ends, initial=np.inf), np.nanmax(ends, initial=-np.inf)
    style.log_axis(ax.xaxis, what.unit, least, most)
    middle, known = np.sqrt(least * most), np.isfinite(values[:, 1]).any()
    ax.hlines(y, *bounds.T, color=HOLDS, linewidth=1.5, zorder=3, gid="interval")
    for height, (measured, stated), bound in zip(y, values, bounds, strict=True):
        ax.hlines(height, *sorted((measured, stated)), color="#b0b4b9", linewidth=2, zorder=2)
        share = f"{100 * measured / stated:.0f} % of the datasheet's {what.format.format(stated)}"
        said = [what.format.format(measured) if measured == measured else "measured: missing"]
        if known:  # else the caption says once that there is none
            told = share if measured == measured else what.show(stated)
            said += ["datasheet: missing" if stated != stated else told]
        brief = f"{said[0]} ({100 * measured / stated:.0f} %)" if not np.isnan(measured / stated) else said[0]
        low, high = np.nanmin([measured, stated, *bound, most]), np.nanmax([measured, stated, *bound, least])
        left = low > middle
        x, away, side = (low, -9, "right") if left else (high, 9, "left")
        style.aside(ax, x, height, ", ".join(said), (away, 0), narrow=brief, va="center", ha=side, fontsize=8.5,
                    gid="missing" if "missing" in said[-1] else "said")  # fmt: skip
    ax.plot(values[:, 1], y, "D", ms=11, markeredgecolor=INK, markerfacecolor="white", zorder=3, gid="datasheet")
    ax.plot(values[:, 0], y, "o", color=HOLDS, zorder=4, gid="measured")
    ax.set_xlabel(what.axis)
    stated_too = [style.mark(INK, "D", "datasheet", True)] if known else []
    style.legend(ax, [style.mark(HOLDS, "o", "measured"), *stated_too])
    none = None if known else "No figure of the vendor is known."
    style.caption(ax, style.runs_note(table, False), none, style.source_of(table, source))
    return ax


@drawn
def plot_audit(
    audit: pd.DataFrame,
    source: str | None = None,
) -> Axes:
    """Measured over expected, one row of points per check: the tolerance as a band, who breaks it by name.

    Shares of a ceiling, which span decades and break nothing below 1, stand on an axis of their own below.

    Parameters
    ----------
    audit : as ``audit`` returns it: ``check``, ``ratio``, ``ok`` (<NA>: could not be checked); with the columns of
        ``name_rows``, or the ``id`` of a claim, the rows that break it are named
    """
    checks = [c for c in dict.fromkeys(audit["check"]) if audit.loc[audit["check"] == c, "ok"].notna().any()]
    unjudged = [CHECKS.get(c, c) for c in dict.fromkeys(audit["check"]) if c not in checks]
    if not checks:
        return style.nothing(style.canvas(7.2, 1.0), _why_nothing(audit))
    laws, shares = [c for c in checks if c != "ceiling"], [c for c in checks if c == "ceiling"]
    if laws and shares:
        heights = [len(laws) + 0.3, 1.3]
        _, (ax, below) = plt.subplots(2, 1, figsize=(9.0, 2.2 + 0.75 * len(checks)), height_ratios=heights,
                                        layout="constrained")  # fmt: skip
        beyond = [_checks(style.dress(ax), audit, laws), _checks(style.dress(below), audit, shares)]
        below.set_xlabel("Share of what the drives can give (1 = their ceiling)")
    else:
        ax = style.canvas(9.0, 1.5 + 0.75 * len(checks))
        beyond = [_checks(ax, audit, checks)]
    breaks = [style.mark(WARN, "X", "does not hold")] if audit["ok"].eq(False).any() else []
    style.legend(ax, [style.mark(HOLDS, "o", "holds"), *breaks])
    style.say(ax, "; ".join(f"{CHECKS.get(c, c)}: {_verdict(audit[audit['check'] == c])}" for c in checks) + ".")
    band = "Grey: the tolerance." if any(check in GATES for check in checks) else None
    blank = f"Not checkable: {', '.join(unjudged)}." if unjudged else None
    style.caption(ax, band, *beyond, blank, style.source_of(audit, source))
    return ax


def _why_nothing(audit: pd.DataFrame) -> str:
    """What the rows would have had to print."""
    notes = map(str, audit["note"]) if len(audit) and "note" in audit else ()
    needed = dict.fromkeys(found[1] for note in notes if (found := re.search(r"needs (\w+)$", note)))
    named = " or ".join(noun(metric_of(name)) for name in needed)
    return f"Nothing can be held against physics: no row prints {named}." if named else "Nothing here to check."


def _checks(ax: Axes, audit: pd.DataFrame, checks: Sequence[str]) -> str | None:
    """The rows of these checks; returns what had to be drawn at the axis' end."""
    parts = [audit[audit["check"] == check] for check in checks]
    style.row_axis(ax, [f"{CHECKS.get(c, c)}\n{_verdict(p)}" for c, p in zip(checks, parts, strict=True)])
    judged = pd.concat(parts)
    ratios = judged.loc[judged["ok"].notna(), "ratio"].to_numpy(float)
    ratios = ratios[np.isfinite(ratios) & (ratios > 0)]
    for y, (check, part) in enumerate(zip(checks, parts, strict=True)):
        _check(ax, y, part, GATES.get(check))
    style.ratio_axis(ax, ratios.clip(LEAST, MOST), "Measured / expected")
    beyond = int(((ratios < LEAST) | (ratios > MOST)).sum())
    return f"{beyond} beyond {LEAST:g} or {MOST:g}, drawn at the end." if beyond else None


def _check(ax: Axes, y: int, part: pd.DataFrame, gate: tuple[float, float] | None) -> None:
    """Points spread over the row in their own order, so that the same table is always the same picture."""
    if gate:
        ax.fill_betweenx([y - 0.36, y + 0.36], *gate, color="#9aa0a6", alpha=0.25, linewidth=0, gid="gate")
    spread = y + 0.5 * ((np.arange(len(part)) * 0.618) % 1 - 0.5)
    ok, ratio = part["ok"].astype("boolean"), part["ratio"].to_numpy(float).clip(LEAST, MOST)
    names = _row_names(part)
    for marker, colour, chosen in (("o", HOLDS, ok.fillna(False)), ("X", WARN, ~ok.fillna(True))):
        mask = chosen.to_numpy(bool)
        [points] = ax.plot(ratio[mask], spread[mask], marker, color=colour, alpha=0.75, markersize=5, markeredgewidth=0)
        tip(points, ax, "", [f"{names[i]}: {_times(part['ratio'].iloc[i])}" for i in np.flatnonzero(mask)])
    wrong = np.flatnonzero((~ok.fillna(True)).to_numpy(bool) & np.isfinite(ratio))
    named = [i for i in wrong[np.argsort(-np.abs(np.log(ratio[wrong])), kind="stable")] if names[i]]
    told = [f"× {names[i]}: {_times(part['ratio'].iloc[i])}" for i in named[:OFFENDERS]]
    told += [f"and {len(named) - OFFENDERS} more"] if len(named) > OFFENDERS else []
    if told:
        style.aside(ax, 1.01, y, "\n".join(told), over=ax.get_yaxis_transform(), fontsize=7.5, color=WARN, va="center",
                    gid="offender")  # fmt: skip
    if ok.notna().any() and not np.isfinite(ratio[ok.notna().to_numpy()]).any():
        ax.text(0.5, y, "no ratio to draw", transform=ax.get_yaxis_transform(), fontsize=8, style="italic",
                color=QUIET, va="center", ha="center", gid="no ratio")  # fmt: skip


def _times(ratio: float) -> str:
    """With the digits that tell it from 1."""
    return f"{ratio:.3g}×" if abs(ratio - 1) >= 0.05 else f"{ratio:.4f}×"


def _row_names(part: pd.DataFrame) -> list[str]:
    """What a row of results or a claim is called in a figure."""
    if "id" in part:
        return [f"claim {number}" for number in part["id"]]
    if "system" not in part:
        return [""] * len(part)
    return [
        f"{system_label(row['system'])}, {style.pattern_label(row['pattern'])}"
        + (f" at iodepth {row['iodepth']:g}" if "iodepth" in row and row["iodepth"] == row["iodepth"] else "")
        for row in part.to_dict("records")
    ]


def _verdict(part: pd.DataFrame) -> str:
    ok = part["ok"].astype("boolean")
    unknown = f", {ok.isna().sum()} not checkable" if ok.isna().any() else ""
    return f"{ok.sum()} of {ok.notna().sum()} hold{unknown}"


@drawn
def plot_coverage(coverage: pd.DataFrame) -> Axes:
    """How often each interval held the truth, a row per situation and number of runs, the promise as a line.

    Parameters
    ----------
    coverage : as ``simulate_coverage`` returns it: ``situation``, ``runs``, ``method``, ``coverage``, ``coverage_lo``,
        ``coverage_hi``,
        ``nominal``
    """
    rows = list(dict.fromkeys(zip(coverage["situation"], coverage["runs"], strict=True)))
    ax = style.canvas(7.6, 1.4 + 0.42 * len(rows))
    systems = looks(coverage["method"])
    for nominal in coverage["nominal"].unique():
        ax.axvline(nominal, color=INK, linestyle="--", linewidth=1, zorder=1, gid="nominal")
        ax.axvspan(nominal, 1.05, color="#00956B", alpha=0.1, linewidth=0, zorder=0, gid="as promised")
        ax.text(nominal, 1.005, f"as promised: {100 * nominal:g} % or more →", transform=ax.get_xaxis_transform(),
                ha="right", va="bottom", fontsize=8.5, color="#00603F")  # fmt: skip
    for lane, (name, (colour, marker)) in enumerate(systems.items()):
        part = coverage[coverage["method"] == name]
        y = np.array([rows.index(key) for key in zip(part["situation"], part["runs"], strict=True)])
        error = [part["coverage"] - part["coverage_lo"], part["coverage_hi"] - part["coverage"]]
        y = y + 0.5 * ((lane + 0.5) / len(systems) - 0.5)
        ax.errorbar(part["coverage"], y, xerr=error, fmt=marker, color=colour,
                    elinewidth=1.5, label=name, zorder=3)  # fmt: skip
    style.row_axis(ax, [f"{situation}, {n} runs" for situation, n in rows])
    ax.set_xlim(min(0.3, coverage["coverage_lo"].min()), 1.01)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:.0f} %"))
    ax.set_xlabel("Intervals that hold the truth")
    style.legend(ax, [style.mark(*look, name) for name, look in systems.items()])
    style.caption(ax, f"{coverage['n'].iloc[0]} simulated campaigns a row; dashed: what is promised.")
    return ax


@drawn
def plot_regression(
    found: pd.DataFrame,
    history: pd.DataFrame | None = None,
    margin: float = 0.05,
    metric: str = "iops",
) -> Axes:
    """The new campaign relative to the earlier ones, and the range in which one more campaign was to be expected.

    Parameters
    ----------
    found : as ``regression`` returns it, one system: ``pattern``, ``iodepth``, ``ratio``, ``ratio_lo``, ``ratio_hi``,
        ``k``,
        ``verdict``. Where k = 1 there is no such range and the declared `margin` is drawn instead, hatched
    history : as ``campaign_ratios`` returns it: every campaign's ``ratio``, small open points, and when it was, if
        ``date`` is there
    """
    by = ["pattern", "iodepth"]
    if found.empty:
        raise ValueError("plot_regression: the table has no row to draw")
    found = style.in_order(found, by)
    rows = {cell: y for y, cell in enumerate(found[by].itertuples(index=False, name=None))}
    ax = style.canvas(7.6, 1.6 + 0.36 * len(rows))
    style.row_axis(ax, [f"{style.pattern_label(pattern)}, iodepth {depth}" for pattern, depth in rows])
    if history is not None:
        for cell, part in history.groupby(by, observed=True):
            [points] = ax.plot(part["ratio"], np.full(len(part), rows[cell]), "o", markerfacecolor="none",
                               markeredgecolor=QUIET, zorder=3)  # fmt: skip
            runs = zip(part["run_id"], part["ratio"], strict=True)
            tip(points, ax, "", [f"{run}: {ratio:.3f}×" for run, ratio in runs])
    # the interval of the ratio, turned around 1: where one more campaign of the same kind was to be expected
    single, declared = found["k"] == 1, (1 / (1 + margin), 1 + margin)
    least = (found["ratio_lo"] / found["ratio"]).clip(lower=1 / WIDEST).mask(single, declared[0])
    most = (found["ratio_hi"] / found["ratio"]).clip(upper=WIDEST).mask(single, declared[1])
    for y, (row, lo, hi) in enumerate(zip(found.to_dict("records"), least, most, strict=True)):
        look = MARGIN | {"gid": "margin"} if row["k"] == 1 else EXPECTED | {"gid": "expected"}
        if lo == lo:
            ax.fill_betweenx([y - 0.32, y + 0.32], lo, hi, zorder=0, **look)
        if row["k"] != 1 and row["ratio_hi"] / row["ratio"] > WIDEST:
            ax.plot([lo, hi], [y, y], linestyle="", marker="$↔$", color=QUIET, markersize=9, gid="beyond", zorder=2)
        if row["ratio"] != row["ratio"]:
            _missing(ax, [y])
        else:
            ax.plot(row["ratio"], y, "D", color=VERDICTS[row["verdict"]], markersize=8, zorder=4, gid="new")
    ratios = np.concatenate([found["ratio"], least, most, declared, [] if history is None else history["ratio"]])
    style.ratio_axis(ax, ratios, f"{metric_of(metric).label} relative to the earlier campaigns (1 = their mean)")
    style.legend(ax, list(_regression_handles(found, history)))
    style.caption(ax, _when(history), *_regression_notes(found, margin))
    return ax


def _regression_handles(found: pd.DataFrame, history: pd.DataFrame | None) -> Iterable[Any]:
    for verdict, colour in VERDICTS.items():
        if (found["verdict"] == verdict).any():
            yield style.mark(colour, "D", f"new: {verdict}")
    if history is not None:
        yield style.mark(QUIET, "o", "each campaign", True)
    if (found["k"] > 1).any():
        yield Patch(**EXPECTED, label="to be expected")
    if (found["k"] == 1).any():
        yield Patch(**MARGIN, label="declared margin")


def _when(history: pd.DataFrame | None) -> str | None:
    """Which campaigns the open points are, in the order of their days where these are known."""
    if history is None or "date" not in history:
        return None
    days = history[["run_id", "date"]].drop_duplicates().sort_values("date")
    return "Campaigns: " + ", ".join(f"{run} ({day})" for run, day in days.itertuples(index=False)) + "."


def _regression_notes(found: pd.DataFrame, margin: float) -> Iterable[str]:
    several = found.loc[found["k"] > 1]
    if len(several):
        k = "/".join(str(k) for k in sorted(several["k"].unique()))
        percent = f"{100 * several['confidence'].max():.0f} %"
        yield f"Grey: where one more campaign was to be expected, {percent} from {k} earlier ones."
    if (several["ratio_hi"] / several["ratio"] > WIDEST).any():
        yield f"A double arrow: the range goes on beyond {WIDEST:g}×."
    if (found["k"] == 1).any():
        yield f"Hatched: one earlier campaign, no such range; judged by ±{100 * margin:g} %."
