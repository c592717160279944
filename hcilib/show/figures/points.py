"""Points of two goods: performance against capacity, precision against hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from hcilib.metrics import METRICS, pattern_order
from hcilib.show.figures import style
from hcilib.show.figures.style import INK, QUIET, darker, drawn, labelled, looks, pattern_label, tip

AXES = {
    "efficiency": ("Usable share of raw capacity (%)", 0.01),
    "usable_bytes": ("Usable capacity (TiB)", 2.0**40),
    "usable_tib": ("Usable capacity (TiB)", 1.0),
    "usable_tb": ("Usable capacity (TB)", 1.0),
    "iops_per_usable_tib": ("IOPS per usable TiB", 1.0),
}


@drawn
def plot_pareto(
    table: pd.DataFrame,
    x: str = "usable_tib",
    y: str = "iops",
    hue: str = "system",
    labels: Mapping[str, str] | None = None,
    title: str | None = None,
    source: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Performance against usable capacity, a named point per row, the front joined.

    Parameters
    ----------
    table : `hue`, `x`, `y` and ``front`` as ``pareto`` gives it (more is better in both). Rows without an x or a y are
        named under the figure as missing.
    """
    own = ax is None
    ax = style.canvas(ax, 6.6, 4.2)
    _panel(ax, table, x, y, hue, looks(table[hue]), labelled(labels), 9.5)
    ax.set(xlabel=_axis(x)[0], ylabel=_axis(y)[0], title=title or "")
    if own:
        style.caption(ax, *_notes(table, x, y, hue, labelled(labels)), style.source_of(table, source))
    return ax


@drawn
def plot_pareto_panels(
    table: pd.DataFrame,
    x: str = "usable_tib",
    y: str = "iops",
    by: str = "pattern",
    hue: str = "system",
    labels: Mapping[str, str] | None = None,
    source: str | None = None,
    columns: int = 3,
) -> np.ndarray:
    """Small multiples of :func:`plot_pareto`, one panel per `by`. Returns the panels' Axes in order.

    Parameters
    ----------
    table : as for :func:`plot_pareto`; ``front`` judged within each `by` (``pareto(..., by=by)``)
    """
    values = pattern_order(table[by]) if by == "pattern" else list(dict.fromkeys(table[by]))
    if not values:
        return np.array([style.nothing(style.canvas(None, 7.2, 0.6), "nothing was measured")])
    fig, axes = style.panels(len(values), columns, 3.4, 2.4)
    widest = 1.12 * np.nanmax(table[x] / _axis(x)[1], initial=0) or 1
    for ax, value in zip(axes, values, strict=True):
        _panel(ax, table[table[by] == value], x, y, hue, looks(table[hue]), labelled(labels), 7.5, widest)
        ax.set_title(pattern_label(value) if by == "pattern" else f"{by} {value}")
    fig.supylabel(_axis(y)[0], fontsize=10)
    axes[-1].set_xlabel(_axis(x)[0], loc="left")
    style.caption(axes[0], *_notes(table, x, y, hue, labelled(labels)), style.runs_note(table, False),
                  style.source_of(table, source))  # fmt: skip
    return axes


def _panel(
    ax: Axes,
    panel: pd.DataFrame,
    x: str,
    y: str,
    hue: str,
    marks: Mapping,
    labels: Mapping[str, str],
    size: float,
    widest=None,
) -> None:
    there = panel.assign(_x=panel[x] / _axis(x)[1], _y=panel[y] / _axis(y)[1]).dropna(subset=["_x", "_y"])
    if "front" in there:
        _front(ax, there[there["front"].fillna(False).astype(bool)])
    points: dict[str, tuple[float, float, Any]] = {}
    for row in there.to_dict("records"):
        colour, marker = marks[row[hue]]
        [point] = ax.plot(row["_x"], row["_y"], marker, color=colour, markersize=size, zorder=3)
        name = str(labels.get(row[hue], row[hue]))
        load = f" at {row['best']:g}" if row.get("best", np.nan) == row.get("best", np.nan) else ""
        tip(point, ax, name, [f"{row['_y']:,.4g} over {row['_x']:,.3g}{load and ' TiB, iodepth' + load[3:]}"])
        points[f"{name}{load}"] = (row["_x"], row["_y"], darker(colour))
        if y in METRICS and row.get("hi", np.nan) == row.get("hi", np.nan):  # lo and hi are the metric's own
            ends = (row["lo"] / METRICS[y].scale, row["hi"] / METRICS[y].scale)
            ax.vlines(row["_x"], *ends, color=colour, gid="interval")
    ax.xaxis.set_major_locator(MaxNLocator(4))
    style.value_axis(ax.yaxis, METRICS[y].unit if y in METRICS else "")
    ax.margins(0.15)
    ax.set_xlim(0, widest)
    ax.set_ylim(0, 1.18 * max([y for _, y, _ in points.values()], default=1.0))
    style.point_labels(ax, points, size)


def _notes(table: pd.DataFrame, x: str, y: str, hue: str, labels: Mapping[str, str]) -> list[str | None]:
    lost = dict.fromkeys(str(labels.get(name, name)) for name in table.loc[table[[x, y]].isna().any(axis=1), hue])
    best = "At a name: the iodepth of its best." if "best" in table and table["best"].notna().any() else None
    front = "Dashed: Pareto front." if "front" in table else None
    return [best, front, f"Missing: {', '.join(lost)}." if lost else None]


def _axis(column: str) -> tuple[str, float]:
    if column in METRICS:
        return METRICS[column].axis, METRICS[column].scale
    return AXES.get(column, (column.replace("_", " "), 1.0))


def _front(ax: Axes, front: pd.DataFrame) -> None:
    """Steps, not slopes: nothing between two systems of the front can be bought."""
    front = front.sort_values("_x")
    if front.empty:
        return
    x, y = [0, *front["_x"], front["_x"].iloc[-1]], [front["_y"].iloc[0], *front["_y"], 0]
    ax.step(x, y, where="pre", color=QUIET, linestyle="--", linewidth=1.1, zorder=2, gid="front")


@drawn
def plot_precision(
    planned: pd.DataFrame, own: pd.DataFrame | None = None, target: float | None = None, ax: Axes | None = None
) -> Axes:
    """Expected half-width against hours, a named line per protocol, the number of runs at its ends.

    Parameters
    ----------
    planned : as ``precision`` returns it for several numbers of runs: ``protocol``, ``runs``, ``hours``,
        ``half_width_pct``
    own : the same for the runs each protocol prescribes, drawn large
    target : relative half-width wanted, a dashed line over the zone that is precise enough
    """
    fresh, marks = ax is None, looks(planned["protocol"])
    ax = style.canvas(ax, 7.6, 4.4)
    aim = 100 * target if target else np.nan
    hours, widths = planned["hours"].to_numpy(float), [*planned["half_width_pct"], aim]
    style.log_axis(ax.xaxis, "h", np.nanmin(hours), np.nanmax(hours) * 1.6)
    style.log_axis(ax.yaxis, "%", np.nanmin(widths), np.nanmax(widths))
    for name, part in planned.groupby("protocol", sort=False):
        part = part.sort_values("hours")
        colour = marks[name][0]
        ax.plot(part["hours"], part["half_width_pct"], color=colour, marker=".", zorder=2, gid="plan")
        first, last = part.iloc[0], part.iloc[-1]
        for row, words, weight in (
            (first, f"{name}\n{first['runs']} runs", "bold"),
            (last, f"{last['runs']} runs", "normal"),
        ):
            ax.annotate(words, (row["hours"], row["half_width_pct"]), (6, 5), textcoords="offset points", fontsize=8.5,
                        color=darker(colour), fontweight=weight)  # fmt: skip
    for row in own.itertuples() if own is not None else ():
        colour, marker = marks[row.protocol]
        ax.plot(
            row.hours,
            row.half_width_pct,
            marker,
            color=colour,
            markersize=11,
            markeredgecolor="white",
            zorder=4,
            gid="own",
        )
    if target:
        ax.axhline(aim, color=INK, linestyle="--", linewidth=1, gid="target")
        ax.axhspan(1e-3, aim, color="#00956B", alpha=0.1, linewidth=0, zorder=0, gid="precise enough")
        ax.annotate(f"precise enough: ±{aim:g} % or better", (0.99, aim), (0, -4), xycoords=ax.get_yaxis_transform(),
                    textcoords="offset points", va="top", ha="right", fontsize=8.5, color="#00603F")  # fmt: skip
    ax.set(xlabel="Hours of running both systems", ylabel="Half-width of the comparison (%)")
    if fresh:
        cells = f"{planned['cells'].iloc[0]} cells on each of two systems, without prefill and warm-up."
        style.caption(ax, cells,
                      "Large: the runs the protocol prescribes." if own is not None else None,
                      f"Dashed: the target, ±{aim:g} %." if target else None)  # fmt: skip
    return ax
