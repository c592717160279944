"""Points: performance against capacity, and what was measured against what physics expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from hcilib.metrics import METRICS, pattern_order
from hcilib.show.figures.style import (
    INK,
    QUIET,
    WARN,
    canvas,
    caption,
    darker,
    direct_labels,
    drawn,
    dress,
    labelled,
    looks,
    pattern_label,
    runs_note,
    source_of,
    tip,
    value_axis,
)

AXES = {
    "efficiency": ("Usable share of raw capacity (%)", 0.01),
    "usable_bytes": ("Usable capacity (TiB)", 2.0**40),
    "usable_tib": ("Usable capacity (TiB)", 1.0),
    "usable_tb": ("Usable capacity (TB)", 1.0),
    "iops_per_usable_tib": ("IOPS per usable TiB", 1.0),
}
CHECKS = {
    "little": "Little's law: IOPS × latency / outstanding",
    "bandwidth": "Throughput = IOPS × block size",
    "cpu_efficiency": "IOPS per 1 % CPU",
    "ceiling": "Share of the ceiling",
}
GATES = {"little": (0.95, 1.05), "bandwidth": (0.95, 1.05), "cpu_efficiency": (0.95, 1.05), "ceiling": (0.0001, 1.0)}
"""Check -> the ratios within which a row holds (hcilib.analyse.physics.audit)."""

MOST_NAMES = 5
"""More systems than these have a legend: their names would stand on each other."""

LEAST, MOST = 0.1, 10
"""Ratios beyond are drawn at the end: one I/O at a time is a ten-thousandth of any ceiling."""

FINE_TICKS = (0.2, 0.33, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5)
WIDE_TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10)


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
    own, labels = ax is None, labelled(labels)
    ax = canvas(ax, 6.6, 4.2)
    (x_label, x_scale), (y_label, y_scale) = _axis(x), _axis(y)
    data = table.assign(_x=table[x] / x_scale, _y=table[y] / y_scale)
    there = data.dropna(subset=["_x", "_y"])
    style = looks(table[hue])
    if "front" in there:
        _front(ax, there[there["front"].fillna(False).astype(bool)])
    for row in there.to_dict("records"):
        colour, marker = style[row[hue]]
        ax.plot(row["_x"], row["_y"], marker, color=colour, markersize=9, zorder=3)
        ax.annotate(labels.get(row[hue], str(row[hue])), (row["_x"], row["_y"]), (8, 6), textcoords="offset points",
                    fontsize=9.5, fontweight="bold", color=darker(colour))  # fmt: skip
    ax.set(xlabel=x_label, ylabel=y_label, title=title or "")
    value_axis(ax.yaxis, METRICS[y].unit if y in METRICS else "")
    ax.margins(0.18)
    ax.set(xlim=(0, None), ylim=(0, None))
    if own:
        lost = [labels.get(name, str(name)) for name in data.loc[~data.index.isin(there.index), hue].unique()]
        caption(ax, "Dashed: Pareto front." if "front" in there else None,
                f"Missing: {', '.join(lost)}." if lost else None, source_of(table, source))  # fmt: skip
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
    """Small multiples of :func:`plot_pareto`, one panel per `by`, one legend. Returns the panels' Axes in order.

    Parameters
    ----------
    table : as for :func:`plot_pareto`; ``front`` judged within each `by` (``pareto(..., by=by)``)
    """
    values = pattern_order(table[by]) if by == "pattern" else list(dict.fromkeys(table[by]))
    if not values:
        return np.array([_nothing(canvas(None, 7.2, 1.5), "nothing was measured")])
    columns = min(columns, len(values))
    rows = -(-len(values) // columns)
    fig, grid = plt.subplots(rows, columns, figsize=(3.4 * columns + 0.2, 2.4 * rows + 0.8), layout="constrained")
    axes, style, (x_label, x_scale) = np.atleast_1d(grid).ravel(), looks(table[hue]), _axis(x)
    for ax, value in zip(axes, values, strict=False):
        panel = table[table[by] == value]
        dress(ax).set_xlim(0, 1.12 * np.nanmax(table[x] / x_scale, initial=0) or 1)
        _panel(ax, panel.assign(_x=panel[x] / x_scale, _y=panel[y] / _axis(y)[1]), hue, style, y, labelled(labels))
        ax.set_title(pattern_label(value) if by == "pattern" else f"{by} {value}")
    for ax in axes[len(values) :]:
        ax.remove()
    fig.supylabel(_axis(y)[0], fontsize=10)
    axes[-columns].set_xlabel(x_label, loc="left")
    handles = [Line2D([], [], color=c, marker=m, linestyle="", label=(labelled(labels)).get(name, str(name)))
               for name, (c, m) in style.items()]  # fmt: skip
    if table[hue].nunique() > MOST_NAMES:
        fig.legend(handles=handles, loc="outside upper left", ncols=columns)
    lost = sorted(
        {(labelled(labels)).get(name, str(name)) for name in table.loc[table[[x, y]].isna().any(axis=1), hue]}
    )
    caption(axes[0], "Dashed: Pareto front." if "front" in table else None, runs_note(table, False),
            f"Missing somewhere: {', '.join(lost)}." if lost else None, source_of(table, source))  # fmt: skip
    return axes[: len(values)]


def _panel(ax: Axes, panel: pd.DataFrame, hue: str, style: Mapping, y: str, labels: Mapping[str, str]) -> None:
    there = panel.dropna(subset=["_x", "_y"])
    if "front" in there:
        _front(ax, there[there["front"].fillna(False).astype(bool)])
    ends: dict[str, tuple[float, float, Any]] = {}
    for row in there.to_dict("records"):
        colour, marker = style[row[hue]]
        [point] = ax.plot(row["_x"], row["_y"], marker, color=colour, markersize=8, zorder=3)
        name, load = (
            labels.get(row[hue], str(row[hue])),
            f" at {row['best']:g}" if row.get("best", np.nan) == row.get("best", np.nan) else "",
        )
        tip(point, ax, name, [f"{row['_y']:,.4g} over {row['_x']:,.3g}{load}"])
        ends[f"{name}{load}"] = (row["_x"], row["_y"], darker(colour))
        if y in METRICS and row.get("hi", np.nan) == row.get("hi", np.nan):  # lo and hi are the metric's own
            ax.vlines(
                row["_x"], row["lo"] / METRICS[y].scale, row["hi"] / METRICS[y].scale, color=colour, gid="interval"
            )
    ax.xaxis.set_major_locator(MaxNLocator(4))
    value_axis(ax.yaxis, METRICS[y].unit if y in METRICS else "")
    ax.margins(y=0.12)
    ax.set_ylim(bottom=0)
    if len(ends) <= MOST_NAMES:
        direct_labels(ax, ends, size=7.5)


def _axis(column: str) -> tuple[str, float]:
    if column in METRICS:
        return METRICS[column].axis, METRICS[column].scale
    return AXES.get(column, (column.replace("_", " "), 1.0))


def _nothing(ax: Axes, said: str) -> Axes:
    """A page without its figure looks broken."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, said, transform=ax.transAxes, ha="center", color=QUIET, gid="missing")
    return ax


def _front(ax: Axes, front: pd.DataFrame) -> None:
    """Steps, not slopes: nothing between two systems of the front can be bought."""
    front = front.sort_values("_x")
    if front.empty:
        return
    x, y = [0, *front["_x"], front["_x"].iloc[-1]], [front["_y"].iloc[0], *front["_y"], 0]
    ax.step(x, y, where="pre", color=QUIET, linestyle="--", linewidth=1.1, zorder=2, gid="front")


@drawn
def plot_audit(
    audit: pd.DataFrame,
    gates: Mapping[str, tuple[float, float]] | None = None,
    source: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Measured over expected, one row of points per check: inside the gate blue, outside red, counts in words.

    Parameters
    ----------
    audit : as ``audit`` returns it: ``check``, ``ratio``, ``ok`` (<NA>: could not be checked)
    gates : check -> (low, high) of the ratio, drawn as a bar behind its points
    """
    own = ax is None
    checks = list(dict.fromkeys(audit["check"]))
    ax = canvas(ax, 7.2, 1.5 + 0.75 * len(checks))
    if not checks:
        return _nothing(ax, "nothing to check")
    ax.axvline(1, color="#5f6368", linewidth=1, zorder=1, gid="reference")
    for y, check in enumerate(checks):
        _check(ax, y, audit[audit["check"] == check], (gates if gates is not None else GATES).get(check))
    names = [f"{CHECKS.get(c, c)}\n{_verdict(audit[audit['check'] == c])}" for c in checks]
    ax.set_yticks(range(len(checks)), names)
    ax.set_ylim(len(checks) - 0.5, -0.5)
    beyond = _ratio_axis(ax, audit["ratio"].to_numpy(float))
    ax.grid(False, axis="y")
    handles = [Line2D([], [], marker="o", linestyle="", color="#0072B2", label="holds"),
               Line2D([], [], marker="X", linestyle="", color=WARN, label="does not hold")]  # fmt: skip
    ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    if own:
        caption(ax, "Grey: what holds." if gates or gates is None else None, beyond, source_of(audit, source))
    return ax


def _check(ax: Axes, y: int, part: pd.DataFrame, gate: tuple[float, float] | None) -> None:
    """Points spread over the row in their own order, so that the same table is always the same picture."""
    if gate:
        ax.fill_betweenx([y - 0.34, y + 0.34], *gate, color="#9aa0a6", alpha=0.25, linewidth=0, gid="gate")
    spread = y + 0.5 * ((np.arange(len(part)) * 0.618) % 1 - 0.5)
    ok, ratio = part["ok"].astype("boolean"), part["ratio"].to_numpy(float).clip(LEAST, MOST)
    for marker, colour, chosen in (("o", "#0072B2", ok.fillna(False)), ("X", WARN, ~ok.fillna(True))):
        mask = chosen.to_numpy(bool)
        ax.plot(ratio[mask], spread[mask], marker, color=colour, alpha=0.75, markersize=5, markeredgewidth=0)


def _verdict(part: pd.DataFrame) -> str:
    ok = part["ok"].astype("boolean")
    unknown = f", {ok.isna().sum()} not checkable" if ok.isna().any() else ""
    return f"{ok.sum()} of {ok.notna().sum()} hold{unknown}"


def _ratio_axis(ax: Axes, ratio: np.ndarray) -> str | None:
    """A log axis: half and double are equally far from agreement. Returns what had to be drawn at its end."""
    ratio = ratio[np.isfinite(ratio) & (ratio > 0)]
    beyond = int(((ratio < LEAST) | (ratio > MOST)).sum())
    ratio = ratio.clip(LEAST, MOST)
    least, most = min(ratio.min(initial=0.9), 0.9), max(ratio.max(initial=1.1), 1.1)
    wide = most / least > 5
    ticks = WIDE_TICKS if wide else FINE_TICKS
    ax.set_xscale("log")
    ax.set_xlim(least / 1.05, most * 1.05)
    ax.xaxis.set_major_locator(FixedLocator([t for t in ticks if least <= t <= most]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.set_xlabel("Measured / expected", color=INK)
    return f"{beyond} beyond {LEAST:g} or {MOST:g}, drawn at the end." if beyond else None
