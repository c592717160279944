"""Bars and tiles: one value per case, with what is missing hatched and said, never a bar of height zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from hcilib.metrics import metric as metric_of
from hcilib.metrics import pattern_order
from hcilib.show.figures.style import (
    INK,
    QUIET,
    WARN,
    canvas,
    caption,
    drawn,
    labelled,
    looks,
    metric_drawn,
    pattern_label,
    runs_note,
    say,
    source_of,
    value_axis,
)

ABSENT: dict[str, Any] = {
    "facecolor": "white",
    "edgecolor": "#b0b4b9",
    "hatch": "////",
    "linewidth": 0.8,
    "gid": "missing",
}
MEASURED, EXPECTED = "#0072B2", "#c9ced4"


@drawn
def plot_latency(
    table: pd.DataFrame,
    metric: str | None = None,
    by: str = "pattern",
    hue: str = "system",
    labels: Mapping[str, str] | None = None,
    source: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Grouped bars of what one I/O costs: `by` along the axis, a bar per `hue`, its value on top.

    Parameters
    ----------
    table : as ``summarize`` returns it: `by`, `hue`, ``center`` (or the metric's own column), ``lo``, ``hi``, ``n``
    """
    own, metric = ax is None, metric_drawn(table, metric, "lat_ns")
    kind, labels = metric_of(metric), labelled(labels)
    value = "center" if "center" in table else metric
    groups = pattern_order(table[by]) if by == "pattern" else [str(v) for v in dict.fromkeys(table[by])]
    ax = canvas(ax, max(5.2, 1.0 + 0.55 * len(groups) * table[hue].nunique()), 3.8)
    frame = table.assign(**{by: table[by].astype(str)}).set_index([hue, by])
    if frame.index.has_duplicates:
        raise ValueError(f"plot_latency: several rows for one {hue} and {by}; filter the table to one of each")
    systems = looks(table[hue])
    width = 0.8 / len(systems)
    for lane, (name, (colour, _)) in enumerate(systems.items()):
        part = frame.loc[name].reindex(groups)
        x = np.arange(len(groups)) + width * (lane + 0.5) - 0.4
        _bars(ax, x, part, value, kind, width * 0.9, colour, labels.get(name, str(name)))
    ax.set_xticks(range(len(groups)), [pattern_label(g) if by == "pattern" else g for g in groups])
    ax.set_ylabel(kind.axis)
    value_axis(ax.yaxis, kind.unit)
    ax.grid(False, axis="x")
    ax.margins(y=0.12)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)
    if own:
        hatch = "Hatched: no value." if frame[value].isna().any() or len(frame) < len(groups) * len(systems) else None
        caption(ax, runs_note(table, False), hatch, source_of(table, source))
    return ax


def _bars(ax: Axes, x, part: pd.DataFrame, value: str, kind, width: float, colour: str, label: str) -> None:
    height = part[value].to_numpy(float) / kind.scale
    there = ~np.isnan(height)
    ax.bar(x[there], height[there], width, color=colour, label=label)
    if "lo" in part:
        lo, hi = (part[c].to_numpy(float) / kind.scale for c in ("lo", "hi"))
        sure = ~np.isnan(lo)
        ax.errorbar(x[sure], height[sure], yerr=[(height - lo)[sure], (hi - height)[sure]], fmt="none", ecolor=INK,
                    capsize=3, elinewidth=1)  # fmt: skip
    tops = part["hi"].to_numpy(float) / kind.scale if "hi" in part else height
    for xi, h, top in zip(x[there], height[there], tops[there], strict=True):
        text = kind.show(h * kind.scale)
        ax.annotate(text, (xi, top if top == top else h), (0, 3), textcoords="offset points", ha="center", fontsize=8)
    for xi in x[~there]:
        ax.add_patch(Rectangle((xi - width / 2, 0), width, 0.25, transform=ax.get_xaxis_transform(), **ABSENT))
        ax.text(
            float(xi),
            0.27,
            "missing",
            transform=ax.get_xaxis_transform(),
            rotation=90,
            ha="center",
            fontsize=8,
            color=QUIET,
        )


@drawn
def plot_capacity(
    table: pd.DataFrame, labels: Mapping[str, str] | None = None, source: str | None = None, ax: Axes | None = None
) -> Axes:
    """Where the raw capacity goes: usable, reserve, copies and parity, as shares of raw.

    Parameters
    ----------
    table : as ``capacity_table`` returns it: ``system``, ``efficiency``; ``usable_bytes``, ``reserve_bytes`` with
        ``raw_bytes`` and ``dedup_ratio`` where known. Bars are what is stored; the number at the end, what
        deduplication makes of it.
    """
    labels = labelled(labels)
    own = ax is None
    ax = canvas(ax, 7.2, 1.3 + 0.48 * len(table))
    table = table.sort_values("efficiency", ascending=False, kind="stable", na_position="last")
    systems, y = looks(table["system"]), np.arange(len(table))
    usable = 100 * table["efficiency"].to_numpy(float)
    ratio = table["dedup_ratio"].to_numpy(float) if "dedup_ratio" in table else np.ones(len(table))
    stored = usable / ratio  # copies are made of what is stored, so the client's bytes leave no honest rest
    reserve = 100 * (table["reserve_bytes"] / table["raw_bytes"]).to_numpy(float) if "reserve_bytes" in table else 0 * y
    reserve = np.nan_to_num(reserve)  # no reserve is none, not an unknown share: efficiency already accounts for it
    there = ~np.isnan(usable)
    rest = np.clip(100 - stored - reserve, 0, None)
    ax.barh(y[there], stored[there], 0.62, color=[systems[s][0] for s in table["system"][there]], label="usable")
    ax.barh(y[there], reserve[there], 0.62, stored[there], color="#9aa0a6", label="reserve")
    ax.barh(y[there], rest[there], 0.62, (stored + reserve)[there], color=EXPECTED, label="copies and parity")
    for yi in y[~there]:
        ax.add_patch(Rectangle((0, yi - 0.31), 100, 0.62, **ABSENT))
        ax.text(50, yi, "missing", ha="center", va="center", fontsize=9, color=QUIET, backgroundcolor="white")
    for yi, share, row in zip(y, usable, table.to_dict("records"), strict=True):
        if share == share:
            usable_bytes = row.get("usable_bytes", np.nan)
            unit, size = ("TiB", 2**40) if not usable_bytes < 2**40 / 10 else ("GiB", 2**30)
            text = f"{share:.1f} %" + (f"  ({usable_bytes / size:,.2f} {unit})" if usable_bytes == usable_bytes else "")
            text += "\nafter deduplication" if row.get("dedup_ratio", 1.0) > 1 else ""
            ax.text(
                1.01, float(yi), text, transform=ax.get_yaxis_transform(), va="center", fontsize=9.5, fontweight="bold"
            )
    ax.set_yticks(y, [labels.get(s, str(s)) for s in table["system"]])
    ax.set(xlabel="Share of raw capacity (%)", xlim=(0, max(100, np.nanmax(stored, initial=0))))
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.grid(False, axis="y")
    usable_as = "usable, before deduplication" if (ratio > 1).any() else "usable (each system in its colour)"
    parts = [
        (usable_as, MEASURED),
        *([("reserve", "#9aa0a6")] if reserve.any() else []),
        ("copies and parity", EXPECTED),
    ]
    handles = [Rectangle((0, 0), 1, 1, color=colour, label=name) for name, colour in parts]
    ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)
    each = (f"{labels.get(s, s)} {u:.1f} %" for s, u in zip(table["system"], usable, strict=True) if u == u)
    say(ax, f"Usable share of the raw capacity: {', '.join(each)}.")
    if own:
        caption(ax, source_of(table, source))
    return ax


@drawn
def plot_traffic(
    table: pd.DataFrame,
    by: tuple[str, ...] = ("placement", "ddir"),
    title: str | None = None,
    source: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Network bytes per client byte: expected from the scheme beside observed on the nodes.

    Parameters
    ----------
    table : `by`, ``expected``, and ``observed`` where it was counted; as ``expected_traffic`` or ``check_traffic`` give
        it
    """
    own = ax is None
    names = [" · ".join(str(v) for v in row) for row in table[list(by)].itertuples(index=False, name=None)]
    ax = canvas(ax, 7.2, 1.2 + 0.55 * len(names))
    y = np.arange(len(names))
    _pair(ax, y, table["expected"], "expected from the scheme", EXPECTED, -0.18)
    if "observed" in table:
        _pair(ax, y, table["observed"], "observed on the nodes", MEASURED, 0.18)
    ax.set_yticks(y, names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(left=0)
    ax.margins(x=0.12)
    ax.set_xlabel("Network bytes per client byte")
    ax.grid(False, axis="y")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    ax.set_title(title or "", pad=26)  # above the legend
    if own:
        caption(ax, source_of(table, source))
    return ax


@drawn
def plot_baseline(
    table: pd.DataFrame,
    metric: str = "iops",
    by: str = "pattern",
    source: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The bare drive: measured beside the vendor's datasheet.

    Parameters
    ----------
    table : `by`, ``measured`` and ``datasheet`` in the metric's base unit; NaN where a datasheet says nothing
    """
    own, kind = ax is None, metric_of(metric)
    ax = canvas(ax, 7.2, 1.2 + 0.55 * len(table))
    y = np.arange(len(table))
    _pair(ax, y, table["measured"] / kind.scale, "measured", MEASURED, -0.18, kind.format)
    _pair(ax, y, table["datasheet"] / kind.scale, "datasheet", EXPECTED, 0.18, kind.format)
    ax.set_yticks(y, [pattern_label(v) if by == "pattern" else str(v) for v in table[by]])
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.set_xlim(left=0)
    ax.margins(x=0.12)
    ax.set_xlabel(kind.axis)
    value_axis(ax.xaxis, kind.unit)
    ax.grid(False, axis="y")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    if own:
        caption(ax, runs_note(table, False), source_of(table, source))
    return ax


def _pair(ax: Axes, y, values: pd.Series, label: str, colour: str, offset: float, form: str = "{:,.2f}") -> None:
    """One bar of a pair per row, its value at its end; 'missing' in words where there is none."""
    width = values.to_numpy(float)
    there = ~np.isnan(width)
    if there.any():  # a bar series without a bar would stand in the legend in the axes' own colour
        ax.barh(y[there] + offset, width[there], 0.34, color=colour, label=label)
    for yi, w in zip(y + offset, width, strict=True):
        text, x = (form.format(w), w) if w == w else (f"{label.split()[0]}: missing", 0)
        style: dict[str, Any] = {} if w == w else {"style": "italic", "color": QUIET, "gid": "missing"}
        ax.annotate(text, (x, yi), (4, 0), textcoords="offset points", va="center", fontsize=8.5, **style)


@drawn
def plot_factorial(
    table: pd.DataFrame,
    rows: str,
    columns: str,
    value: str = "center",
    metric: str = "iops",
    labels: Mapping[str, str] | None = None,
    flag: str | None = None,
    title: str | None = None,
    source: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Tiles of a factorial table, `rows` x `columns`, the value printed on each; a missing cell is hatched and says so.

    Where the column `flag` is true the tile is framed and carries the column's name; <NA> is not a flag.
    """
    own, kind, labels = ax is None, metric_of(metric), labelled(labels)
    if table.duplicated([rows, columns]).any():
        raise ValueError(f"plot_factorial: several rows for one {rows} and {columns}; filter the table first")
    grid = table.pivot(index=rows, columns=columns, values=value)
    grid = grid.reindex(index=dict.fromkeys(table[rows]), columns=dict.fromkeys(table[columns])) / kind.scale
    ax = canvas(ax, 2.6 + 1.35 * grid.shape[1], 1.5 + 0.55 * grid.shape[0])
    shades = LinearSegmentedColormap.from_list("quiet", ["#eef3f8", "#0072B2"])
    top = np.nanmax(grid.to_numpy(float), initial=0) or 1
    for (i, j), v in np.ndenumerate(grid.to_numpy(float)):
        look = {"facecolor": shades(v / top), "edgecolor": "white", "linewidth": 2} if v == v else ABSENT
        ax.add_patch(Rectangle((j - 0.48, i - 0.46), 0.96, 0.92, **look))
        text, ink = (kind.format.format(v), "white" if v / top > 0.6 else INK) if v == v else ("missing", QUIET)
        box: dict[str, Any] = {} if v == v else {"backgroundcolor": "white"}
        ax.text(j, i, text, ha="center", va="center", color=ink, fontsize=9.5, **box)
    if flag:
        _flags(ax, table, rows, columns, flag, grid)
    ax.set_xticks(range(grid.shape[1]), [labels.get(c, _level(columns, c)) for c in grid.columns])
    ax.set_yticks(range(grid.shape[0]), [labels.get(r, str(r)) for r in grid.index])
    ax.set(xlim=(-0.5, grid.shape[1] - 0.5), ylim=(grid.shape[0] - 0.5, -0.5))
    ax.grid(False)
    plt.setp(ax.spines.values(), visible=False)
    ax.set_title(title if title is not None else kind.axis)
    if own:
        caption(ax, runs_note(table, False), source_of(table, source))
    return ax


def _level(factor: str, level: object) -> str:
    """A level as it is said: ``30 % write`` of write_pct, ``iodepth 8``."""
    shown = f"{level:g}" if isinstance(level, float | int) else str(level)
    return f"{shown} % {factor.removesuffix('_pct')}" if factor.endswith("_pct") else f"{factor} {shown}"


def _flags(ax: Axes, table: pd.DataFrame, rows: str, columns: str, flag: str, grid: pd.DataFrame) -> None:
    """Frame the flagged tiles and add the flag to their text."""
    flagged = table[table[flag].astype("boolean").fillna(False)]
    at = set(zip(flagged[rows].map(grid.index.get_loc), flagged[columns].map(grid.columns.get_loc), strict=True))
    tiles = {(round(text.get_position()[1]), round(text.get_position()[0])): text for text in ax.texts}
    for i, j in at:
        frame: dict[str, Any] = {"facecolor": "none", "edgecolor": WARN, "linewidth": 2, "gid": "flagged", "zorder": 3}
        ax.add_patch(Rectangle((j - 0.46, i - 0.43), 0.92, 0.86, **frame))
        tiles[i, j].set_text(f"{tiles[i, j].get_text()}\n{flag.replace('_', ' ').replace('cpu', 'CPU')}")
