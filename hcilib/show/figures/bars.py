"""Bars, tiles and points: one value per case, with what is missing hatched and said, never a bar of height zero; and of
two goods a point a case: performance against capacity, precision against hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from hcilib.model.metrics import METRICS, PLACES, pattern_order, scheme_words
from hcilib.model.metrics import metric as metric_of
from hcilib.model.system import known_labels
from hcilib.show.figures import style
from hcilib.show.figures.style import INK, QUIET, WARN, darker, drawn, looks, pattern_label, system_label, tip

ABSENT: dict[str, Any] = {
    "facecolor": "white",
    "edgecolor": "#b0b4b9",
    "hatch": "////",
    "linewidth": 0.8,
    "gid": "missing",
}
MEASURED, EXPECTED, RESERVE = "#0072B2", "#c9ced4", "#9aa0a6"
COUNTED = {"reads": "Drive reads", "writes": "Drive writes", "read_bytes": "Bytes read", "write_bytes": "Bytes written"}
"""What is counted on drives, as its panel is headed."""


def _with_reserve(usable_pct: float, reserve_pct: float) -> str:
    if not reserve_pct:
        return "without a reserve"
    return f"with a reserve ({usable_pct / (1 - reserve_pct / 100):.1f} % without)"


@drawn
def plot_capacity(table: pd.DataFrame, source: str | None = None) -> Axes:
    """Where the raw capacity goes, the most usable first: usable, reserve, and what of the rest is copies or parity.

    Parameters
    ----------
    table : as ``capacity_table`` returns it: ``system``, ``efficiency``; ``scheme``, ``usable_bytes``,
        ``reserve_bytes`` with ``raw_bytes`` and ``dedup_ratio`` where known. Bars are what is stored; the number at the
        end, what deduplication makes of it.
    """
    ax = style.canvas(7.2, 1.3 + 0.48 * len(table))
    table = table.sort_values("efficiency", ascending=False, kind="stable", na_position="last")
    systems = looks(table["system"])
    y = style.row_axis(ax, [system_label(s) for s in table["system"]])
    usable = 100 * table["efficiency"].to_numpy(float)
    ratio = table["dedup_ratio"].to_numpy(float) if "dedup_ratio" in table else np.ones(len(table))
    stored = usable / ratio  # copies are made of what is stored, so the client's bytes leave no honest rest
    reserve = 100 * (table["reserve_bytes"] / table["raw_bytes"]).to_numpy(float) if "reserve_bytes" in table else 0 * y
    reserve = np.nan_to_num(reserve)  # no reserve is none, not an unknown share: efficiency already accounts for it
    there = ~np.isnan(usable)
    rest = np.clip(100 - stored - reserve, 0, None)
    ax.barh(y[there], stored[there], 0.62, color=[systems[s][0] for s in table["system"][there]], label="usable")
    ax.barh(y[there], reserve[there], 0.62, stored[there], color=RESERVE, label="reserve")
    ax.barh(y[there], rest[there], 0.62, (stored + reserve)[there], color=EXPECTED, label="copies and parity")
    for yi in y[~there]:
        ax.add_patch(Rectangle((0, yi - 0.31), 100, 0.62, **ABSENT))
        ax.text(50, yi, "missing", ha="center", va="center", fontsize=9, color=QUIET, backgroundcolor="white")
    for row, at in zip(table.to_dict("records"), np.flatnonzero(there), strict=False):
        usable_bytes = row.get("usable_bytes", np.nan)
        unit, size = ("TiB", 2**40) if not usable_bytes < 2**40 / 10 else ("GiB", 2**30)
        text = f"{usable[at]:.1f} %"
        text += f"  ({usable_bytes / size:,.2f} {unit})" if usable_bytes == usable_bytes else ""
        text += "\nafter deduplication" if row.get("dedup_ratio", 1.0) > 1 else ""
        text += f"\n{_with_reserve(usable[at], reserve[at])}" if reserve.any() else ""
        ax.text(1.01, y[at], text, transform=ax.get_yaxis_transform(), va="center", fontsize=9.5, fontweight="bold")
        parts = [(stored[at] / 2, "usable", "white", stored[at])]
        parts += [(stored[at] + reserve[at] / 2, "reserve", INK, reserve[at])]
        parts += [(stored[at] + reserve[at] + rest[at] / 2, _redundancy(row.get("scheme", "")), INK, rest[at])]
        for middle, word, ink, width in parts:
            if width > 1.6 * len(word):
                style.aside(ax, middle, y[at], word, ha="center", va="center", fontsize=8, color=ink, gid="part")
    ax.set(xlabel="Share of raw capacity (%)", xlim=(0, max(100, np.nanmax(stored, initial=0))))
    usable_as = "usable, before deduplication" if (ratio > 1).any() else "usable (each system in its colour)"
    kept = [("reserve", RESERVE)] if reserve.any() else []
    parts_named = [(usable_as, MEASURED), *kept, ("copies and parity", EXPECTED)]
    style.legend(ax, [Patch(color=colour, label=name) for name, colour in parts_named])
    own = [f" {_with_reserve(*pair)}" if reserve.any() else "" for pair in zip(usable, reserve, strict=True)]
    named = zip(table["system"], usable, own, strict=True)
    each = (f"{system_label(s)} {u:.1f} %{words}" for s, u, words in named if u == u)
    style.say(ax, f"Usable share of the raw capacity: {', '.join(each)}.")
    style.caption(ax, style.source_of(table, source))
    return ax


def _redundancy(scheme: str) -> str:
    """What a scheme keeps beside the data, from its formula."""
    formula = str(scheme).lower()
    copies = any(word in formula for word in ("mirror", "nested"))
    parity = any(word in formula for word in ("raid", "erasure", "parity"))
    return "copies" if copies and not parity else "parity" if parity and not copies else "copies and parity"


@drawn
def plot_traffic(table: pd.DataFrame, title: str | None = None) -> Axes:
    """Network bytes per client byte: expected from the scheme beside observed on the nodes; a rejected scheme says so.

    Parameters
    ----------
    table : ``placement``, ``ddir``, ``expected``, and ``observed`` where it was counted; as ``expected_traffic`` or
        ``check_traffic`` give it; with ``ok`` a bar that does not fit is red and the title counts them
    """
    ax = style.canvas(7.2, 1.2 + 0.55 * len(table))
    ways = table[["placement", "ddir"]].itertuples(index=False, name=None)
    ok = table.reindex(columns=["ok"])["ok"].astype("boolean")
    both = table.reindex(columns=["expected", "observed"]).notna().all(axis=1)
    no_test = ("ok" in table) & both & ok.isna()  # the scheme was inferred from it
    names = [", ".join(PLACES.get(v, str(v)) for v in row) for row in ways]
    y = style.row_axis(ax, [name + "\n(no test)" * bool(of) for name, of in zip(names, no_test, strict=True)])
    wrong, judged = ok.eq(False).fillna(False).to_numpy(bool), ok.count()
    _series(ax, y - 0.18, table["expected"], "expected from the scheme", EXPECTED)
    handles = [Patch(color=EXPECTED, label="expected from the scheme")]
    if "observed" in table:
        _series(ax, y + 0.18, table["observed"], "observed on the nodes", np.where(wrong, WARN, MEASURED))
        handles += [Patch(color=MEASURED, label="observed on the nodes")]
        handles += [Patch(color=WARN, label="observed, does not fit")] if wrong.any() else []
    ax.set_xlim(left=0)
    ax.margins(x=0.12)
    ax.set_xlabel("Network bytes per client byte")
    style.legend(ax, handles)
    verdict = f"{judged} of {judged} fit" if judged else ""
    if wrong.any():
        verdict = f"rejected: {wrong.sum()} of {judged} do not fit"
    named = ": ".join(text for text in (scheme_words(title or ""), verdict) if text)
    named = named[:1].upper() + named[1:]
    ax.set_title(named, color=WARN if wrong.any() else INK, wrap=True)
    style.say(ax, named)
    style.caption(ax, style.source_of(table))
    return ax


@drawn
def plot_amplification(table: pd.DataFrame) -> Figure:
    """What the drives do for one I/O and one byte of the client, with its interval, beside what the scheme costs; red
    where more or less was counted than that.

    Parameters
    ----------
    table : as ``amplification`` returns it: ``system``, ``pattern``, ``measure``, ``seen``, ``seen_lo``, ``seen_hi``,
        ``expected``, ``ok``; what else it was grouped by stands in a row's name where it varies
    """
    varies = [name for name in ("iodepth", "placement") if name in table and table[name].nunique() > 1]
    rows = table[["system", "pattern", *varies]].drop_duplicates().reset_index(drop=True)
    if rows.empty:
        return style.sheet(style.nothing(style.canvas(7.2, 0.6), "No counters of drives were given."))
    names = [
        ", ".join([system_label(system), *(PLACES.get(value, f"iodepth {value}") for value in rest)])
        + f"\n{style.pattern_label(pattern)}"
        for system, pattern, *rest in rows.itertuples(index=False, name=None)
    ]
    titles, high = list(COUNTED.values()), 0.9 + (0.5 if varies else 0.36) * len(rows)
    fig, axes = style.panels(titles, len(titles), 2.3, high)
    for ax, measure in zip(axes, COUNTED, strict=True):
        y = style.row_axis(ax, names, shared=True)
        own = rows.merge(table[table["measure"] == measure], how="left")
        wrong = own["ok"].eq(False).fillna(False).to_numpy(bool)
        ax.plot(own["expected"], y, linestyle="", marker="|", markersize=13, markeredgewidth=3, color=RESERVE)
        for colour, those in ((MEASURED, ~wrong), (WARN, wrong)):
            ax.hlines(y[those], own["seen_lo"][those], own["seen_hi"][those], color=colour)
            ax.plot(own["seen"][those], y[those], linestyle="", marker="o", markersize=5, color=colour)
        ax.set_xlim(left=-0.02 * max(1.0, own[["seen_hi", "expected"]].max(axis=None)))
        ax.set_xlabel("per I/O" if measure in ("reads", "writes") else "per byte")
    judged, beyond = int(table["ok"].notna().sum()), int(table["ok"].eq(False).sum())
    costs = Patch(color=RESERVE, label="what the scheme costs")
    handles = [costs, style.mark(MEASURED, "o", "counted on the drives")]
    handles += [style.mark(WARN, "o", "counted, does not fit")] if beyond else []
    fig.legend(handles=handles, loc="outside upper left", ncols=3)
    style.say(axes[0], f"What the drives did fits the scheme in {judged - beyond} of {judged} counts.")
    style.caption(axes[-1], style.runs_note(table), style.source_of(table))
    return fig


def _series(ax: Axes, y: np.ndarray, values: pd.Series, label: str, colour) -> None:
    """A bar per row, its value at its end; 'missing' in words where there is none."""
    width = values.to_numpy(float)
    there = ~np.isnan(width)
    if there.any():
        ax.barh(y[there], width[there], 0.34, color=colour if isinstance(colour, str) else colour[there], label=label)
    for yi, w in zip(y, width, strict=True):
        text, x = (f"{w:,.2f}", w) if w == w else (f"{label.split()[0]}: missing", 0)
        look: dict[str, Any] = {} if w == w else {"style": "italic", "color": QUIET, "gid": "missing"}
        ax.annotate(text, (x, yi), (4, 0), textcoords="offset points", va="center", fontsize=8.5, **look)


@drawn
def plot_factorial(
    table: pd.DataFrame,
    rows: str,
    columns: str,
    value: str | Sequence[str] = "iops",
    flag: str | None = None,
    source: str | None = None,
) -> Axes | np.ndarray:
    """Tiles of a factorial table, `rows` x `columns`, the value printed on each; a missing cell is hatched and says so.

    Several values, each a metric's name, stand side by side, and an array of Axes is returned. Where the column `flag`
    is true the tile is framed and carries the column's name; <NA> is none.
    """
    if table.duplicated([rows, columns]).any():
        raise ValueError(f"plot_factorial: several rows for one {rows} and {columns}; filter the table first")
    if isinstance(value, str):
        size = (2.6 + 1.35 * table[columns].nunique(), 1.5 + 0.55 * table[rows].nunique())
        axes, names = np.array([style.canvas(*size)]), [value]
    else:
        names = list(value)
        size = (2.0 + 1.2 * table[columns].nunique(), 0.7 + 0.55 * table[rows].nunique())
        _, axes = style.panels([""] * len(names), len(names), *size)
    for place, (one, name) in enumerate(zip(axes, names, strict=True)):
        _tiles(one, table, rows, columns, name, flag)
        if place:
            one.set_yticklabels([])
    note = style.runs_note(table, False, intervals=False)
    style.caption(axes[0], note, style.source_of(table, source))
    return axes[0] if isinstance(value, str) else axes


def _tiles(ax: Axes, table: pd.DataFrame, rows: str, columns: str, value: str, flag: str | None) -> None:
    kind, cells = metric_of(value), table.set_index([rows, columns])
    places = {"index": dict.fromkeys(table[rows]), "columns": dict.fromkeys(table[columns])}
    grid = cells[value].unstack().reindex(**places) / kind.scale
    flagged = cells[flag].astype("boolean").unstack().reindex(**places).eq(True).fillna(False) if flag else grid != grid
    shades = LinearSegmentedColormap.from_list("quiet", ["#eef3f8", "#0072B2"])
    top = np.nanmax(grid.to_numpy(float), initial=0) or 1
    for (i, j), v in np.ndenumerate(grid.to_numpy(float)):
        look = {"facecolor": shades(v / top), "edgecolor": "white", "linewidth": 2} if v == v else ABSENT
        ax.add_patch(Rectangle((j - 0.48, i - 0.46), 0.96, 0.92, **look))
        text, ink = (kind.format.format(v), "white" if v / top > 0.6 else INK) if v == v else ("missing", QUIET)
        box: dict[str, Any] = {} if v == v else {"backgroundcolor": "white"}
        if flag and flagged.iloc[i, j]:
            text += f"\n{flag.replace('_', ' ').replace('cpu', 'CPU')}"
            frame: dict[str, Any] = {"facecolor": "none", "edgecolor": WARN, "linewidth": 2, "gid": "flagged"}
            ax.add_patch(Rectangle((j - 0.46, i - 0.43), 0.92, 0.86, zorder=3, **frame))
        ax.text(j, i, text, ha="center", va="center", color=ink, fontsize=9.5, **box)
    ax.set_xticks(range(grid.shape[1]), [known_labels().get(c, _level(columns, c)) for c in grid.columns])
    ax.set_yticks(range(grid.shape[0]), [system_label(r) for r in grid.index])
    ax.set(xlim=(-0.5, grid.shape[1] - 0.5), ylim=(grid.shape[0] - 0.5, -0.5))
    ax.set_title(kind.axis)
    ax.grid(False)
    plt.setp(ax.spines.values(), visible=False)


def _level(factor: str, level: object) -> str:
    """A level as it is said: ``30 % write`` of write_pct, ``iodepth 8``."""
    shown = f"{level:g}" if isinstance(level, float | int) else str(level)
    return f"{shown} % {factor.removesuffix('_pct')}" if factor.endswith("_pct") else f"{factor} {shown}"


# Points of two goods.

SMALL = 0.1
"""TiB: where every system has less, the axis is in GiB."""


def _usable(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The table with its capacities in the unit of the axis, and that unit."""
    if 0 < table["usable_tib"].max() < SMALL:
        return table.assign(usable_tib=1024 * table["usable_tib"]), "GiB"
    return table, "TiB"


@drawn
def plot_pareto(table: pd.DataFrame) -> Axes:
    """Performance against usable capacity, a named point per row, the front joined.

    Parameters
    ----------
    table : ``system``, ``usable_tib``, ``iops`` and ``front`` as ``pareto`` gives it. Rows without one of the two are
        named under the figure as missing.
    """
    table, unit = _usable(table)
    ax = style.canvas(6.6, 4.2)
    _panel(ax, table, unit, looks(table["system"]), 9.5)
    ax.set(xlabel=f"Usable capacity ({unit})", ylabel=METRICS["iops"].axis)
    style.caption(ax, *_notes(table), style.source_of(table))
    return ax


@drawn
def plot_pareto_panels(table: pd.DataFrame, source: str | None = None) -> np.ndarray:
    """Small multiples of :func:`plot_pareto`, one panel per ``pattern``. Returns the panels' Axes in order.

    Parameters
    ----------
    table : as for :func:`plot_pareto`; ``front`` judged within each pattern (``pareto(..., by="pattern")``)
    """
    values = pattern_order(table["pattern"])
    if not values:
        return np.array([style.nothing(style.canvas(7.2, 0.6), "nothing was measured")])
    fig, axes = style.panels([pattern_label(value) for value in values], 3, 3.4, 2.4)
    table, unit = _usable(table)
    widest = 1.12 * np.nanmax(table["usable_tib"], initial=0) or 1
    for ax, value in zip(axes, values, strict=True):
        _panel(ax, table[table["pattern"] == value], unit, looks(table["system"]), 7.5, widest)
    fig.supylabel(METRICS["iops"].axis, fontsize=10)
    axes[-1].set_xlabel(f"Usable capacity ({unit})", loc="left")
    style.caption(axes[0], *_notes(table), style.source_of(table, source))
    return axes


def _panel(
    ax: Axes,
    panel: pd.DataFrame,
    unit: str,
    marks: Mapping,
    size: float,
    widest: float | None = None,
) -> None:
    there = panel.dropna(subset=["usable_tib", "iops"])
    if "front" in there:
        _front(ax, there[there["front"].fillna(False).astype(bool)])
    points: dict[str, tuple[float, float, Any]] = {}
    for row in there.to_dict("records"):
        colour, marker = marks[row["system"]]
        face = "white" if row.get("n") == 1 else colour
        [point] = ax.plot(
            row["usable_tib"], row["iops"], marker, color=colour, markerfacecolor=face, markersize=size, zorder=3
        )
        name = system_label(row["system"])
        load = f" at {row['best']:g}" if row.get("best", np.nan) == row.get("best", np.nan) else ""
        where = f"{row['usable_tib']:,.3g} {unit}{load and ', iodepth' + load[3:]}"
        tip(point, ax, name, [f"{row['iops']:,.4g} over {where}"])
        points[f"{name}{load}"] = (row["usable_tib"], row["iops"], darker(colour))
        if row.get("iops_hi", np.nan) == row.get("iops_hi", np.nan):
            ax.vlines(row["usable_tib"], row["iops_lo"], row["iops_hi"], color=colour, gid="interval")
    ax.xaxis.set_major_locator(MaxNLocator(4))
    style.value_axis(ax.yaxis, METRICS["iops"].unit)
    ax.margins(0.15)
    ax.set_xlim(0, widest)
    highest = there.reindex(columns=["iops", "iops_hi"]).max(axis=None) if len(there) else 1.0
    ax.set_ylim(0, 1.18 * highest)
    style.point_labels(ax, points, size)


def _notes(table: pd.DataFrame) -> list[str | None]:
    without = table.loc[table[["usable_tib", "iops"]].isna().any(axis=1), "system"]
    lost = dict.fromkeys(map(system_label, without))
    best = "At a name: the iodepth of its best." if "best" in table and table["best"].notna().any() else None
    front = "Dashed: Pareto front." if "front" in table else None
    missing = f"Missing: {', '.join(lost)}." if lost else None
    return [best, front, missing, style.runs_note(table)]


def _front(ax: Axes, front: pd.DataFrame) -> None:
    """Steps, not slopes: nothing between two systems of the front can be bought."""
    front = front.sort_values("usable_tib")
    if front.empty:
        return
    tib, iops = front["usable_tib"], front["iops"]
    x, y = [0, *tib, tib.iloc[-1]], [iops.iloc[0], *iops, 0]
    ax.step(x, y, where="pre", color=QUIET, linestyle="--", linewidth=1.1, zorder=2, gid="front")


@drawn
def plot_precision(planned: pd.DataFrame, own: pd.DataFrame | None = None, target: float | None = None) -> Axes:
    """Expected half-width against hours, a named line per protocol, the number of runs at its ends.

    Parameters
    ----------
    planned : as ``precision`` returns it for several numbers of runs: ``protocol``, ``runs``, ``hours``,
        ``half_width_pct``
    own : the same for the runs each protocol prescribes, drawn large
    target : relative half-width wanted, a dashed line over the zone that is precise enough
    """
    marks, ax = looks(planned["protocol"]), style.canvas(7.6, 4.4)
    aim = 100 * target if target else np.nan
    hours, widths = planned["hours"].to_numpy(float), [*planned["half_width_pct"], aim]
    style.log_axis(ax.xaxis, "h", np.nanmin(hours), np.nanmax(hours) * 1.6)
    style.log_axis(ax.yaxis, "%", np.nanmin(widths), np.nanmax(widths))
    for n, (name, part) in enumerate(planned.groupby("protocol", sort=False)):
        part = part.sort_values("hours")
        colour = marks[name][0]
        ax.plot(part["hours"], part["half_width_pct"], color=colour, marker=".", zorder=2, gid="plan")
        first, last = part.iloc[0], part.iloc[-1]
        brief = name + "\n" * (n % 2)  # on a phone every other name stands a line higher
        few, many = (f"{row['runs']} runs" for row in (first, last))
        for row, words, narrow, weight in ((first, f"{name}\n{few}", brief, "bold"), (last, many, many, "normal")):
            style.aside(ax, row["hours"], row["half_width_pct"], words, (6, 5), narrow=narrow, va="bottom",
                        fontsize=8.5, color=darker(colour), fontweight=weight)  # fmt: skip
    for row in own.itertuples() if own is not None else ():
        colour, marker = marks[row.protocol]
        ax.plot(
            row.hours, row.half_width_pct, marker, color=colour, ms=11, markeredgecolor="white", zorder=4, gid="own"
        )
    if target:
        ax.axhline(aim, color=INK, linestyle="--", linewidth=1, gid="target")
        ax.axhspan(1e-3, aim, color="#00956B", alpha=0.1, linewidth=0, zorder=0, gid="precise enough")
        ax.annotate(f"precise enough: ±{aim:g} % or better", (0.99, aim), (0, -4), xycoords=ax.get_yaxis_transform(),
                    textcoords="offset points", va="top", ha="right", fontsize=8.5, color="#00603F")  # fmt: skip
    ax.set(xlabel="Hours of running both systems", ylabel="Half-width of the comparison (%)")
    cells = f"{planned['cells'].iloc[0]} cells on each of two systems, without prefill and warm-up."
    large = "Large: the runs the protocol prescribes." if own is not None else None
    style.caption(ax, cells, large, f"Dashed: the target, ±{aim:g} %." if target else None)
    return ax
