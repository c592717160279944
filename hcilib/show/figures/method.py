"""The method itself: what precision costs, which interval holds, and a campaign against its predecessors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from hcilib.metrics import metric as metric_of
from hcilib.metrics import pattern_order
from hcilib.show.figures.style import INK, QUIET, WARN, canvas, caption, drawn, looks, pattern_label

STEPS = (1, 1.5, 2, 3, 5, 7)
VERDICTS = {"regression": WARN, "improvement": "#009E73", "changed": "#AA4499", "no change seen": "#0072B2"}
LATEST, EARLIER = "D", "o"
FINE = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2)
COARSE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)
WIDEST = 4.0  # an interval of one degree of freedom would leave no room for the points: it ends in an arrow


@drawn
def plot_precision(
    planned: pd.DataFrame, own: pd.DataFrame | None = None, target: float | None = None, ax: Axes | None = None
) -> Axes:
    """Expected half-width against hours, a line per protocol, the number of runs at its points.

    Parameters
    ----------
    planned : as ``precision`` returns it for several numbers of runs: ``protocol``, ``runs``, ``hours``,
        ``half_width_pct``
    own : the same for the runs each protocol prescribes, drawn large
    target : relative half-width wanted, a dashed line
    """
    fresh = ax is None
    ax = canvas(ax, 7.6, 4.4)
    style = looks(planned["protocol"])
    for name, part in planned.groupby("protocol", sort=False):
        part = part.sort_values("hours")
        ax.plot(part["hours"], part["half_width_pct"], color=style[name][0], marker=".", zorder=2, gid="plan")
        for row in part.iloc[[0, -1]].itertuples():
            ax.annotate(
                f"{row.runs} runs",
                (row.hours, row.half_width_pct),
                (4, 5),
                textcoords="offset points",
                fontsize=8,
                color=QUIET,
            )
    for row in own.itertuples() if own is not None else ():
        colour, marker = style[row.protocol]
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
        ax.axhline(100 * target, color=INK, linestyle="--", linewidth=1, gid="target")
        ax.axhspan(1e-3, 100 * target, color="#00956B", alpha=0.1, linewidth=0, zorder=0, gid="precise enough")
    _log_axes(ax, planned, 100 * target if target else np.nan)
    ax.set(xlabel="Hours of running both systems", ylabel="Half-width of the comparison (%)")
    handles = [Line2D([], [], color=c, marker=m, label=name) for name, (c, m) in style.items()]
    ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)
    if fresh:
        cells = planned["cells"].iloc[0]
        caption(ax, f"{cells} cells on each of two systems, without prefill and warm-up." if len(planned) else None,
                "Large: the runs the protocol prescribes." if own is not None else None,
                f"Dashed: the target, ±{100 * target:g} %." if target else None)  # fmt: skip
    return ax


@drawn
def plot_coverage(coverage: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """How often each interval held the truth, a row per situation and number of runs, the promise as a line.

    Parameters
    ----------
    coverage : as ``simulate_coverage`` returns it: ``situation``, ``runs``, ``method``, ``coverage``, ``lo``, ``hi``,
        ``nominal``
    """
    fresh = ax is None
    rows = list(dict.fromkeys(zip(coverage["situation"], coverage["runs"], strict=True)))
    ax = canvas(ax, 7.6, 1.4 + 0.42 * len(rows))
    style = looks(coverage["method"])
    for nominal in coverage["nominal"].unique():
        ax.axvline(nominal, color=INK, linestyle="--", linewidth=1, zorder=1, gid="nominal")
        ax.axvspan(nominal, 1.05, color="#00956B", alpha=0.1, linewidth=0, zorder=0, gid="as promised")
    for lane, (name, (colour, marker)) in enumerate(style.items()):
        part = coverage[coverage["method"] == name]
        y = np.array([rows.index(key) for key in zip(part["situation"], part["runs"], strict=True)]) + 0.5 * (
            (lane + 0.5) / len(style) - 0.5
        )
        error = [part["coverage"] - part["lo"], part["hi"] - part["coverage"]]
        ax.errorbar(part["coverage"], y, xerr=error, fmt=marker, color=colour, elinewidth=1.5, label=name, zorder=3)
    ax.set_yticks(range(len(rows)), [f"{situation}, {n} runs" for situation, n in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(min(0.3, coverage["lo"].min()), 1.01)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:.0f} %"))
    ax.set_xlabel("Intervals that hold the truth")
    ax.grid(False, axis="y")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, handletextpad=0.3, borderaxespad=0.2)
    if fresh:
        caption(ax, f"{coverage['n'].iloc[0]} simulated campaigns a row; dashed: what is promised.")
    return ax


@drawn
def plot_regression(
    found: pd.DataFrame,
    history: pd.DataFrame | None = None,
    margin: float = 0.05,
    metric: str = "iops",
    by: Sequence[str] = ("pattern", "iodepth"),
    ax: Axes | None = None,
) -> Axes:
    """The new campaign relative to the earlier ones, and the range in which one more campaign was to be expected.

    Parameters
    ----------
    found : as ``regression`` returns it, one system: the `by` columns, ``ratio``, ``lo``, ``hi``, ``k``, ``verdict``.
        Where k = 1 there is no such range and the declared `margin` is drawn instead, hatched
    history : as ``campaign_ratios`` returns it: every campaign's ``ratio``, small open points
    """
    fresh, by = ax is None, list(by)
    if found.empty:
        raise ValueError("plot_regression: the table has no row to draw")
    order = {name: i for i, name in enumerate(pattern_order(found["pattern"]))} if "pattern" in found else {}
    found = found.sort_values(by, key=lambda c: c.map(order) if c.name == "pattern" else c)
    rows = {cell: y for y, cell in enumerate(found[by].itertuples(index=False, name=None))}
    ax = canvas(ax, 7.6, 1.6 + 0.36 * len(rows))
    ax.axvline(1, color=QUIET, linewidth=1, zorder=1, gid="reference")
    if history is not None:
        for cell, part in history.groupby(by, observed=True):
            ax.plot(
                part["ratio"],
                np.full(len(part), rows[cell]),
                EARLIER,
                markerfacecolor="none",
                markeredgecolor=QUIET,
                zorder=3,
            )
    for y, row in enumerate(found.to_dict("records")):
        _expected(ax, y, row, margin)
        _latest(ax, y, row)
    ax.set_yticks(range(len(rows)), [_cell_name(by, cell) for cell in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    _ratio_axis(ax, found, history, margin)
    ax.set_xlabel(f"{metric_of(metric).label} relative to the earlier campaigns")
    ax.grid(False, axis="y")
    _regression_legend(ax, found, history)
    if fresh:
        caption(ax, *_regression_notes(found, margin))
    return ax


def _expected(ax: Axes, y: int, row: Mapping, margin: float) -> None:
    """Where one more campaign of the same kind was to be expected: the interval of the ratio, turned around 1."""
    look: dict[str, Any] = {"hatch": "////", "facecolor": "none", "edgecolor": "#9aa0a6", "gid": "margin"}
    if row["k"] == 1:
        lo, hi = 1 / (1 + margin), 1 + margin
    elif row["lo"] == row["lo"]:
        lo, hi = max(row["lo"] / row["ratio"], 1 / WIDEST), min(row["hi"] / row["ratio"], WIDEST)
        look = {"color": "#9aa0a6", "alpha": 0.3, "linewidth": 0, "gid": "expected"}
        if row["hi"] / row["ratio"] > WIDEST:
            ax.plot([lo, hi], [y, y], linestyle="", marker="$↔$", color=QUIET, markersize=9, gid="beyond", zorder=2)
    else:
        return
    ax.fill_betweenx([y - 0.32, y + 0.32], lo, hi, zorder=0, **look)


def _latest(ax: Axes, y: int, row: Mapping) -> None:
    if row["ratio"] != row["ratio"]:
        ax.text(
            0.995,
            y,
            "missing",
            transform=ax.get_yaxis_transform(),
            fontsize=8,
            style="italic",
            color=QUIET,
            ha="right",
            va="center",
            gid="missing",
        )
        return
    ax.plot(row["ratio"], y, LATEST, color=VERDICTS[row["verdict"]], markersize=8, zorder=4, gid="new")


def _cell_name(by: Sequence[str], cell: tuple) -> str:
    return ", ".join(
        pattern_label(value) if name == "pattern" else f"{name} {value}" for name, value in zip(by, cell, strict=True)
    )


def _ratio_axis(ax: Axes, found: pd.DataFrame, history: pd.DataFrame | None, margin: float) -> None:
    drawn_ratios = [
        found["ratio"],
        (found["lo"] / found["ratio"]).clip(lower=1 / WIDEST),
        (found["hi"] / found["ratio"]).clip(upper=WIDEST),
    ]
    drawn_ratios += [history["ratio"]] if history is not None else []
    every = pd.concat([*drawn_ratios, pd.Series([1 / (1 + margin), 1 + margin])]).dropna()
    least, most = every.min() / 1.06, every.max() * 1.06
    ax.set_xscale("log")
    ax.set_xlim(least, most)
    ax.xaxis.set_major_locator(FixedLocator([t for t in (FINE if most / least < 3 else COARSE) if least <= t <= most]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}×"))


def _regression_legend(ax: Axes, found: pd.DataFrame, history: pd.DataFrame | None) -> None:
    handles: list[Artist] = [Line2D([], [], color=colour, marker=LATEST, linestyle="", label=verdict)
               for verdict, colour in VERDICTS.items() if (found["verdict"] == verdict).any()]  # fmt: skip
    if history is not None:
        handles.append(
            Line2D(
                [],
                [],
                markerfacecolor="none",
                markeredgecolor=QUIET,
                marker=EARLIER,
                linestyle="",
                label="each campaign",
            )
        )
    if (found["k"] > 1).any():
        handles.append(Patch(color="#9aa0a6", alpha=0.3, label="to be expected"))
    if (found["k"] == 1).any():
        handles.append(Patch(facecolor="none", edgecolor="#9aa0a6", hatch="////", label="declared margin"))
    ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, handletextpad=0.4, borderaxespad=0.2)


def _regression_notes(found: pd.DataFrame, margin: float) -> list[str | None]:
    several = found.loc[found["k"] > 1]
    percent = f"{100 * several['confidence'].max():.0f} % " if len(several) else ""
    k = "/".join(str(k) for k in sorted(several["k"].unique()))
    beyond = (several["hi"] / several["ratio"] > WIDEST).any()
    return [
        f"Grey: where one more campaign was to be expected, {percent}from {k} earlier ones." if len(several) else None,
        f"A double arrow: the range goes on beyond {WIDEST:g}×." if beyond else None,
        f"Hatched: one earlier campaign, no such range; judged by ±{100 * margin:g} %."
        if (found["k"] == 1).any()
        else None,
    ]


def _log_axes(ax: Axes, planned: pd.DataFrame, target: float) -> None:
    for axis, values, limits in (
        (ax.xaxis, planned["hours"], ax.set_xlim),
        (ax.yaxis, planned["half_width_pct"], ax.set_ylim),
    ):
        least, most = np.nanmin(values), np.nanmax(values)
        if axis is ax.yaxis:
            least, most = np.nanmin([least, target]), np.nanmax([most, target])
        axis.axes.set_xscale("log") if axis is ax.xaxis else axis.axes.set_yscale("log")
        limits(least / 1.25, most * 1.35)
        decades = range(int(np.floor(np.log10(least))) - 1, int(np.ceil(np.log10(most))) + 1)
        axis.set_major_locator(FixedLocator([s * 10.0**d for d in decades for s in STEPS]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
