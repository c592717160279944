"""Latency over the IOPS that were delivered: the field's picture of a storage system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from hcilib.metrics import METRICS, pattern_order
from hcilib.show.figures.forest import plot_forest
from hcilib.show.figures.style import (
    INK,
    QUIET,
    caption,
    darker,
    drawn,
    dress,
    labelled,
    looks,
    pattern_label,
    runs_note,
    source_of,
    value_axis,
)

DASHES: tuple[Any, ...] = ("-", "--", ":")
"""Of the metrics in the order of the table: the median solid, the tails broken."""


@drawn
def plot_demand(
    table: pd.DataFrame,
    limits: Mapping[str, float] | None = None,
    hue: str = "system",
    labels: Mapping[str, str] | None = None,
    source: str | None = None,
    columns: int = 3,
) -> np.ndarray:
    """A panel a pattern: every system's latencies over its delivered IOPS, log; one dash a metric, one colour a system.

    Parameters
    ----------
    table : as ``load_curve`` returns it for one metric or several. Demands that were not kept up with are hollow and
        not joined: their latencies are lower bounds
    limits : metric -> ns, drawn as lines

    Raises
    ------
    ValueError : the table has no row
    """
    if table.empty:
        raise ValueError("plot_demand: the table has no row: no demand was offered, so there is nothing to draw")
    patterns = pattern_order(table["pattern"].unique())
    metrics = list(dict.fromkeys(table["metric"]))
    columns = min(columns, len(patterns))
    rows = -(-len(patterns) // columns)
    fig, grid = plt.subplots(
        rows, columns, figsize=(3.6 * columns + 0.4, 3.0 * rows + 0.9), layout="constrained", squeeze=False
    )
    axes = grid.ravel()
    names = labelled(labels)
    for ax, pattern in zip(axes, patterns, strict=False):
        _panel(dress(ax), table[table["pattern"] == pattern], metrics, hue, limits or {})
        ax.set_title(pattern_label(pattern))
    for ax in axes[len(patterns) :]:
        ax.remove()
    fig.supylabel("Latency (ms)", fontsize=10)
    axes[0].set_xlabel("Delivered IOPS", loc="left")
    fig.legend(handles=_handles(table, metrics, hue, names), loc="outside upper left", ncols=4)
    caption(
        axes[0],
        runs_note(table, hollow=False),
        "Hollow: the demand was not met, the latency is a lower bound.",
        source_of(table, source),
    )
    return axes[: len(patterns)]


def _panel(ax: Axes, table: pd.DataFrame, metrics: list[str], hue: str, limits: Mapping[str, float]) -> None:
    for name, (colour, marker) in looks(table[hue]).items():
        for metric, dash in zip(metrics, DASHES * len(metrics), strict=False):
            curve = table[(table[hue] == name) & (table["metric"] == metric)].sort_values("iops")
            met = curve["open_loop"].to_numpy(bool)
            x, y = curve["iops"].to_numpy(float), curve["center"].to_numpy(float) / 1e6
            lo, hi = (curve[side].to_numpy(float) / 1e6 for side in ("lo", "hi"))
            ax.plot(x[met], y[met], dash, color=colour, zorder=3)
            ax.plot(x[met], y[met], marker, color=colour, markersize=4.5, zorder=4)
            ax.plot(
                x[~met], y[~met], marker, markeredgecolor=colour, markerfacecolor="white", zorder=4, gid="saturated"
            )
            known = np.isfinite(lo)
            ax.vlines(x[known], lo[known], hi[known], color=colour, linewidth=1, alpha=0.7, zorder=2)
    ax.set_yscale("log")
    for metric, limit_ns in limits.items():
        ax.axhline(limit_ns / 1e6, color=INK, linewidth=0.9, linestyle=(0, (1, 2)), gid="limit")
        ax.annotate(
            f"{METRICS[metric].label} {limit_ns / 1e6:g} ms",
            (0.01, limit_ns / 1e6),
            (0, 2),
            fontsize=8,
            color=QUIET,
            xycoords=ax.get_yaxis_transform(),
            textcoords="offset points",
        )
    ax.set_xlim(left=0)
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    value_axis(ax.xaxis, "")


def _handles(table: pd.DataFrame, metrics: list[str], hue: str, names: Mapping[str, str]) -> list[Line2D]:
    systems = [
        Line2D([], [], color=darker(colour), marker=marker, label=names.get(name, str(name)))
        for name, (colour, marker) in looks(table[hue]).items()
    ]
    return systems + [
        Line2D([], [], color=QUIET, linestyle=dash, label=METRICS[metric].label)
        for metric, dash in zip(metrics, DASHES * len(metrics), strict=False)
    ]


@drawn
def plot_neighbours(
    table: pd.DataFrame, labels: Mapping[str, str] | None = None, source: str | None = None
) -> np.ndarray:
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
    metrics, names = list(dict.fromkeys(table["metric"])), labelled(labels)
    several = table["system"].nunique() > 1
    who = [
        f"{names.get(row.system, row.system) + ': ' if several else ''}{row.tenant}, {pattern_label(row.pattern)}"
        for row in table.itertuples()
    ]
    limited = table["beside"].str.contains("-rate").map({True: "with the limit", False: "beside the others"})
    drawn_as = table.assign(who=who, of=table["system"], system=limited)
    _, grid = plt.subplots(
        1,
        len(metrics),
        figsize=(4.6 * len(metrics) + 1.6, 1.9 + 0.42 * len(set(who))),
        layout="constrained",
        squeeze=False,
    )
    for ax, metric in zip(grid[0], metrics, strict=True):
        plot_forest(drawn_as[drawn_as["metric"] == metric], "alone", metric, ["who"], ax=dress(ax))
        if ax is not grid[0, 0]:
            ax.set_yticklabels([])
            ax.get_legend().remove()
    caption(grid[0, 0], runs_note(table, hollow=False), "Grey band: as alone.", source_of(table, source))
    return grid[0]
