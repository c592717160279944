"""Curves: a metric over iodepth or VM count, a fleet's knee, and latency over the IOPS that were delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from hcilib.model.metrics import METRICS, Metric, pattern_order
from hcilib.model.metrics import metric as metric_of
from hcilib.model.system import known_labels
from hcilib.show.figures import style
from hcilib.show.figures.style import INK, QUIET, count, darker, dash, drawn, looks, pattern_label, system_label, tip

OVER = {"iodepth": "iodepth (outstanding I/Os per job)", "vms": "Number of VMs", "numjobs": "numjobs (jobs per VM)"}
APART = 0.07
"""Neighbouring systems whose intervals would cover each other stand so many doublings of the load apart."""
ROOM = 1.2
"""So many doublings of the load are free on each side of a single one."""
DASHES: tuple[Any, ...] = ("-", "--", ":")
"""Of the metrics in the order of the table: the median solid, the tails broken."""


@drawn
def plot_sweep(
    table: pd.DataFrame,
    metric: str | None = None,
) -> Axes:
    """One line a system over the load, with intervals where the table has them.

    Parameters
    ----------
    table : as ``summarize`` returns it for one pattern: ``system``, ``iodepth``, the metric and its
        interval, ``n``; one row a system and iodepth. A cell without a value is marked with a cross on
        the axis.

    Raises
    ------
    ValueError : a missing column, or two rows for one point

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> axes = hci.plot_sweep(hci.summarize(results, "bw_bytes"), "bw_bytes")
    >>> axes.get_ylabel()
    'Throughput (MiB/s)'
    """
    return _sweep(table, metric, "iodepth", "system")


def _sweep(table, metric, over, hue, title: str | None = None, top: float = 0.0) -> Axes:
    """The lines of one panel with all that stands around them; the axis reaches `top`, in the shown unit."""
    metric, ax = style.metric_drawn(table, metric), style.canvas()
    lines, missing = _curves(ax, table, metric, over, hue)
    ax.set_ylim(top=max(ax.get_ylim()[1], top))
    if len(lines) <= 4:
        style.direct_labels(ax, lines)
    else:
        ax.legend(handles=_handles(table, hue, False), loc="upper left", bbox_to_anchor=(1.01, 1))
    patterns = table["pattern"].dropna().unique() if "pattern" in table else []
    ax.set_title(title if title is not None else pattern_label(patterns[0]) if len(patterns) == 1 else "")
    lost = table[over].isna().sum()
    few = _hardly(_points(table, metric, over, hue), over, hue)
    absent = ["× no value." if missing else None, few, f"{lost} rows without {over} not drawn." if lost else None]
    style.caption(ax, style.runs_note(table), *absent, style.source_of(table))
    return ax


@drawn
def plot_panels(
    table: pd.DataFrame,
    metric: str | None = None,
    by: str | Sequence[str] = "pattern",
    over: str = "iodepth",
    hue: str = "system",
) -> np.ndarray:
    """Small multiples of :func:`plot_sweep`, one panel per `by` that has a value; the others are named in the caption.

    `by`: a column, or all that tell the loads apart, of which `over` is left out. Returns the panels' Axes in order.
    """
    metric = style.metric_drawn(table, metric)
    keys = [by] if isinstance(by, str) else [name for name in by if name != over]
    if table.empty:
        raise ValueError(f"plot_panels: the table has no row, so there is no {', '.join(keys)} to draw")
    table = table.assign(panel=[_head(keys, row) for row in table[keys].itertuples(index=False, name=None)])
    every = list((style.in_order(table, ["pattern"]) if "pattern" in keys else table)["panel"].unique())
    given = set(table.loc[table[metric].notna(), "panel"])
    values = [value for value in every if value in given]
    if not values:
        return np.array([style.nothing(style.canvas(7.2, 0.6), f"{metric_of(metric).label}: no value given.")])
    named = 2 <= table[hue].nunique() <= 4  # one needs none; more names than that would stand on each other
    fig, axes = style.panels(values, 4 - named, 3.5 if named else 2.6, 2.4)
    missing = False
    for ax, value in zip(axes, values, strict=True):
        panel = table[table["panel"] == value]
        lines, lacks = _curves(ax, panel, metric, over, hue)
        missing |= lacks
        ax.set(xlabel="", ylabel="")
        if named:
            style.direct_labels(ax, lines, size=7.5)
    fig.supylabel(metric_of(metric).axis, fontsize=10)
    axes[-1].set_xlabel(OVER.get(over, over), loc="left")
    if not named:
        style.legend(axes[0], _handles(table, hue, missing))
    lost = [value for value in every if value not in given]
    style.caption(axes[0], style.runs_note(table), "× no value." if named and missing else None,
                  f"No value given: {', '.join(lost)}." if lost else None, style.source_of(table))  # fmt: skip
    style.say(axes[0], _highest(table, metric, over, hue))
    return axes


def _head(keys: Sequence[str], values: Sequence[Any]) -> str:
    """What a panel is of, in words."""
    named = ((k, count(v) if isinstance(v, float) else v) for k, v in zip(keys, values, strict=True))
    return ", ".join(pattern_label(v) if k == "pattern" else f"{k} {v}" for k, v in named)


def _highest(table: pd.DataFrame, metric: str, over: str, hue: str) -> str:
    """Who stands best in each panel, for those who do not see it."""
    what = metric_of(metric)
    values = table.dropna(subset=[metric])
    if values.empty:
        return f"{what.label}: no value given."
    groups = values.groupby("panel", observed=True, sort=False)[metric]
    best = values.loc[groups.idxmin() if what.better == "lower" else groups.idxmax()]
    way = "lowest" if what.better == "lower" else "highest"
    said = (
        (f"{row['panel']} {system_label(row[hue])} with {what.show(row[metric])} at {over} {row[over]:g}")
        for row in best.to_dict("records")
    )
    return f"{way.capitalize()} {what.axis}: {'; '.join(said)}."


@drawn
def plot_scaling(
    table: pd.DataFrame,
    saturation: pd.DataFrame | None = None,
    hue: str = "system",
    ceiling: float | None = None,
) -> Axes:
    """A metric over the VM count with the knee and, where the table has it, the knee's interval.

    Parameters
    ----------
    saturation : as ``saturation`` returns it, with `hue`, ``knee``, ``knee_lo``, ``knee_hi``,
    ``slope_before``, ``slope_after`` ceiling : what the drives could give (``best_share``'s
    ``ceiling_iops``), in the metric's base unit: a line above
    """
    metric, title = style.metric_drawn(table), None
    about = [table[name].dropna().unique() for name in ("system", "pattern") if name in table and name != hue]
    if all(len(found) == 1 for found in about):
        title = ", ".join(known_labels().get(found[0], pattern_label(found[0])) for found in about)
    height = np.nan if ceiling is None else ceiling / metric_of(metric).scale
    top = 1.05 * height if height == height else 0.0
    ax = _sweep(table, metric, "vms", hue, title, top)
    ax.set_xlim(left=0)
    if height == height:
        ax.axhline(height, color=INK, linewidth=1, linestyle=style.FINE, gid="ceiling")
        ax.annotate(f"the drives' ceiling: {style.count(height)}", (0.01, height), (0, -4), va="top", color=QUIET,
                    fontsize=9,
                    xycoords=ax.get_yaxis_transform(), textcoords="offset points")  # fmt: skip
    if saturation is not None:
        several = table[hue].nunique() > 1
        for row in saturation[saturation[hue].isin(table[hue])].to_dict("records"):
            _knee(ax, row, metric_of(metric), looks(table[hue])[row[hue]][0] if several else INK)
    return ax


def _curves(
    ax: Axes, table: pd.DataFrame, metric: str, over: str, hue: str
) -> tuple[dict[str, tuple[float, float, Any]], bool]:
    """Every line of one panel: where each ends, by its name, with its colour; and whether a cell had no value."""
    data = _points(table, metric, over, hue)
    loads = sorted(data[over].unique())
    ends, missing = {}, False
    spread = _dodge(data, hue, over)
    for name, look in looks(table[hue]).items():
        curve = data[data[hue] == name].set_index(over).reindex(loads)[["value", "lo", "hi"]]
        absent, told = curve.index[curve["value"].isna()], [f"{load:g}" for load in loads]
        curve.index = pd.Index(spread(curve.index.to_numpy(float), name), name=over)
        label, colour = system_label(name), look[0]
        [line] = ax.plot(curve.index, curve["value"], color=colour, label=label, linestyle=dash(name), zorder=3)
        tip(line, ax, label)
        at, values = curve.index.to_numpy(float), curve.to_numpy(float)
        style.points(ax, at, values, look, label, told, "{:,.4g}", elinewidth=1.2, capsize=3)
        if len(given := curve["value"].dropna()):
            ends[label] = (given.index[-1], given.iloc[-1], darker(colour))
        if 2 * len(absent) <= len(loads):  # of a curve that is hardly there the caption says how much is
            missing |= len(absent) > 0
            ax.plot(absent, [0.02] * len(absent), "x", color=colour, transform=ax.get_xaxis_transform(), gid="missing")
    _axes(ax, metric_of(metric), over, loads, data)
    return ends, missing


def _hardly(data: pd.DataFrame, over: str, hue: str) -> str | None:
    """At how many loads the curves have a value that have one at less than half of them."""
    given, loads = data.dropna(subset=["value"]).groupby(hue, sort=False)[over].nunique(), data[over].nunique()
    few = given[given < loads / 2]
    said = (f"{system_label(name)} has a value at {n} of {loads}" for name, n in few.items())
    return "; ".join(said) + "." if len(few) else None


def _dodge(data: pd.DataFrame, hue: str, over: str):
    """Where a system's points stand: beside others where intervals would cover each other, else at their load."""
    names = list(dict.fromkeys(data[hue]))
    if len(names) < 2 or data["lo"].isna().all():
        return lambda loads, name: loads
    apart = APART if data[over].nunique() > 1 else 0.25
    steps = {name: apart * (place - (len(names) - 1) / 2) for place, name in enumerate(names)}
    return lambda loads, name: loads * 2 ** steps[name] if over == "iodepth" else loads + steps[name]


def _points(table: pd.DataFrame, metric: str, over: str, hue: str) -> pd.DataFrame:
    """hue, over, value, lo, hi, n in the shown unit, one row a point."""
    absent = [c for c in (hue, over, metric) if c not in table]
    if absent:
        raise ValueError(f"the table to draw has no column {absent[0]!r}; it has {', '.join(map(str, table.columns))}")
    table = table[table[over].notna()]
    twice = table.duplicated([hue, over])
    if twice.any():
        row = table[twice].iloc[0]
        raise ValueError(
            f"two rows for {hue} {row[hue]!r} at {over} {row[over]:g}: they differ in another column; "
            f"filter the table to one pattern, or use plot_panels"
        )
    columns = [hue, over, metric, f"{metric}_lo", f"{metric}_hi"]
    data = table.reindex(columns=columns).set_axis([hue, over, "value", "lo", "hi"], axis=1)
    scale = dict.fromkeys(("value", "lo", "hi"), metric_of(metric).scale) | {over: 1.0}
    return data.assign(**{name: data[name].astype(float) / size for name, size in scale.items()})


def _axes(ax: Axes, metric: Metric, over: str, loads: list[float], data: pd.DataFrame) -> None:
    """Labels and scales: latency spans decades and is drawn on a log axis, everything else from zero."""
    ax.set(xlabel=OVER.get(over, over), ylabel=metric.axis)
    if over == "iodepth":
        style.iodepth_axis(ax, loads)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.margins(x=0.06)
    if len(loads) == 1:  # systems that stand beside each other at one load are near each other, not a curve
        (load,) = loads
        ax.set_xlim((load / 2**ROOM, load * 2**ROOM) if over == "iodepth" else (load - ROOM, load + ROOM))
    if metric.unit == "ms" and data["value"].notna().any():
        drawn_values = data[["value", "lo", "hi"]].to_numpy(float)
        style.log_axis(ax.yaxis, metric.unit, np.nanmin(drawn_values), np.nanmax(drawn_values))
        return
    top = np.nanmax(data[["value", "hi"]].to_numpy(float), initial=0)
    ax.set_ylim(0, 1.08 * top if top > 0 else 1)
    style.value_axis(ax.yaxis, metric.unit)


def _handles(table: pd.DataFrame, hue: str, missing: bool) -> list[Line2D]:
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle=dash(name), label=system_label(name))
        for name, (colour, marker) in looks(table[hue]).items()
    ]
    return handles + [Line2D([], [], color=QUIET, marker="x", linestyle="", label="no value")] * missing


def _knee(ax: Axes, row: Mapping, metric: Metric, colour: str) -> None:
    """The knee as a line, its interval as a band, the gains per VM on both sides in words."""
    if row["knee"] != row["knee"]:
        return
    ax.axvline(row["knee"], color=colour, linestyle="--", linewidth=1.2, gid="knee")
    if row.get("knee_lo", np.nan) == row.get("knee_lo", np.nan):
        ax.axvspan(row["knee_lo"], row["knee_hi"], color=colour, alpha=0.12, linewidth=0, gid="knee interval")
    gains = [metric.format.format(row[side] / metric.scale) for side in ("slope_before", "slope_after")]
    unit = metric.axis if metric.unit else metric.label
    ax.annotate(
        f"knee at {row['knee']:g} VMs\n{unit} per added VM:\n{gains[0]} before, {gains[1]} after",
        (row["knee"], 0.04), (6, 0), xycoords=ax.get_xaxis_transform(), textcoords="offset points", fontsize=9,
        color=INK, va="bottom",
    )  # fmt: skip


@drawn
def plot_demand(
    table: pd.DataFrame,
    limits: Mapping[str, float] | None = None,
) -> np.ndarray:
    """A panel a pattern: every system's latencies over its delivered IOPS, log; one dash a metric, one colour a system.

    Parameters
    ----------
    table : as ``load_curve`` returns it for one metric or several, or ``latency_over_iops``. Demands that were not kept
        up with are hollow and not joined: their latencies are lower bounds. Of a closed loop, where the load was a
        queue, points are joined in the order of iodepth
    limits : metric -> ns, drawn as lines

    Raises
    ------
    ValueError : the table has no row
    """
    if table.empty:
        raise ValueError("plot_demand: the table has no row: no demand was offered, so there is nothing to draw")
    patterns, metrics = pattern_order(table["pattern"].unique()), list(dict.fromkeys(table["metric"]))
    fig, axes = style.panels([pattern_label(pattern) for pattern in patterns], 3, 3.6, 2.8)
    direct, colours = len(metrics) == 1 and 2 <= table["system"].nunique() <= 4, looks(table["system"])
    for ax, pattern in zip(axes, patterns, strict=True):
        panel = table[table["pattern"] == pattern]
        _latencies(ax, panel, metrics, limits or {})
        if direct:
            last = panel.dropna(subset=["iops", "latency_ns"]).groupby("system", sort=False).last()
            ends = {
                system_label(str(name)): (row["iops"], row["latency_ns"] / 1e6, darker(colours[name][0]))
                for name, row in last.iterrows()
            }
            style.direct_labels(ax, ends, 7.5)
    fig.supylabel("Latency (ms)" if len(metrics) > 1 else metric_of(metrics[0]).axis, fontsize=10)
    axes[-1].set_xlabel("Delivered IOPS", loc="left")
    dashes = zip(metrics, DASHES * len(metrics), strict=False)
    lines = [Line2D([], [], color=QUIET, linestyle=line, label=METRICS[metric].label) for metric, line in dashes]
    if not direct:
        systems = _handles(table, "system", False)
        if len(metrics) > 1:  # then the dash is the metric's
            plt.setp(systems, linestyle="")
            systems += lines
        style.legend(axes[0], systems)
    how = None
    if "iodepth" in table:
        how = "No demand was offered. Along a line iodepth grows: up without going right is queue, not work."
    elif not table["open_loop"].all():
        how = "Hollow: the demand was not met, or above the closed-loop maximum. Its latency is a lower bound."
    style.caption(axes[0], style.runs_note(table, hollow="iodepth" in table), how, style.source_of(table))
    return axes


def _latencies(ax: Axes, table: pd.DataFrame, metrics: list[str], limits: Mapping[str, float]) -> None:
    for name, (colour, marker) in looks(table["system"]).items():
        lines = (dash(name),) if len(metrics) == 1 else DASHES * len(metrics)
        for metric, line in zip(metrics, lines, strict=False):
            curve = table[(table["system"] == name) & (table["metric"] == metric)]
            curve = curve if "iodepth" in curve else curve.sort_values("iops")
            met = curve["open_loop"].to_numpy(bool)
            x, y = curve["iops"].to_numpy(float), curve["latency_ns"].to_numpy(float) / 1e6
            lo, hi = (curve[f"latency_ns_{end}"].to_numpy(float) / 1e6 for end in ("lo", "hi"))
            ax.plot(x[met], y[met], linestyle=line, color=colour, zorder=3)
            depths = curve.get("iodepth", curve["iops"] * np.nan)
            at = [f"iodepth {depth:g}: " if depth == depth else "" for depth in depths]
            single = met & np.isnan(lo) & ("iodepth" in curve)  # as in every figure; of demands hollow is not met
            dot: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4.5, "linestyle": "", "zorder": 4}
            for those, face in ((met & ~single, colour), (single, "white")):
                [points] = ax.plot(x[those], y[those], markerfacecolor=face, **dot)
                said = [f"{at[i]}{y[i]:,.4g} ms at {x[i]:,.0f} IOPS" for i in np.flatnonzero(those)]
                tip(points, ax, system_label(name), said)
            ax.plot(x[~met], y[~met], markerfacecolor="white", gid="saturated", **dot)
            known = np.isfinite(lo)
            ax.vlines(x[known], lo[known], hi[known], color=colour, linewidth=1, alpha=0.7, zorder=2)
    ends = table[["latency_ns", "latency_ns_lo", "latency_ns_hi"]].to_numpy(float) / 1e6
    style.log_axis(ax.yaxis, "ms", np.nanmin(ends, initial=np.inf), np.nanmax(ends, initial=-np.inf))
    for metric, limit_ns in limits.items():
        ax.axhline(limit_ns / 1e6, color=INK, linewidth=0.9, linestyle=style.FINE, gid="limit")
        ax.annotate(f"{METRICS[metric].label} {limit_ns / 1e6:g} ms", (0.01, limit_ns / 1e6), (0, 2), fontsize=8,
                    color=QUIET, xycoords=ax.get_yaxis_transform(), textcoords="offset points")  # fmt: skip
    ax.set_xlim(0, 1.06 * np.nanmax(table["iops"], initial=1))  # a single point stands inside
    ax.xaxis.set_major_locator(MaxNLocator(4))
    style.value_axis(ax.xaxis, "")


# Threads x outstanding I/Os as a map: what each load gives, which of them cost too much time, and the one chosen.


PAPER = 11.5
"""Inches that a page shows at full size."""


@drawn
def plot_loads(table: pd.DataFrame) -> np.ndarray:
    """A map for each search: numjobs down, iodepth across, IOPS as colour and number, the latency below it.

    The chosen load has a frame; × marks a load above the latency that it may cost. A load that was not
    measured is empty: the search had no need of it.

    Parameters
    ----------
    table : as ``loads`` returns it

    Raises
    ------
    ValueError : the table has no row
    """
    if table.empty:
        raise ValueError("plot_loads: the table has no row: no load was measured, so there is nothing to draw")
    metric = next(name for name in table if name.endswith("_ns"))
    groups = list(table.groupby(["system", "pattern", "vms"], dropna=False, sort=False, observed=True))
    deep, wide = (max(own[name].nunique() for _, own in groups) for name in ("numjobs", "iodepth"))
    columns = min(3, len(groups), max(1, int(PAPER // (1.6 + 0.72 * wide))))  # numbers stay readable
    rows = -(-len(groups) // columns)
    size = (columns * (1.6 + 0.72 * wide), rows * (1.4 + 0.6 * deep))
    _, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for ax in axes.flat[len(groups) :]:
        ax.set_visible(False)
    said = []
    for ax, ((system, pattern, vms), own) in zip(axes.flat, groups, strict=False):
        name = system_label(system)
        _map(ax, own, metric)
        ax.set_title(f"{name}, {pattern_label(pattern)}, {vms:.0f} VM{'s' * (vms != 1)}")
        said.append(f"{name}, {pattern}: {'; '.join(filter(None, own['why'].unique()))}")
    style.say(axes.flat[0], ". ".join(said) + ".")
    below = METRICS[metric].axis
    number = f"Number: IOPS, below it {below[0].lower()}{below[1:]}; framed: the load to choose;"
    rest = "×: above the latency that a load may cost; empty: not measured."
    how_many = style.runs_note(table, hollow=False, intervals=False)
    style.caption(axes.flat[0], number, rest, how_many, style.source_of(table))
    return axes


def _map(ax, own: pd.DataFrame, metric: str) -> None:
    grid = own.pivot(index="numjobs", columns="iodepth", values="iops").sort_index(ascending=False)
    sns.heatmap(grid, ax=ax, cmap="Blues", vmin=0, cbar=False, linewidths=1, linecolor="white")
    for row in own.itertuples():
        if np.isnan(row.iops):
            continue
        y, x = grid.index.get_loc(row.numjobs), grid.columns.get_loc(row.iodepth)
        late = METRICS[metric].show(getattr(row, metric)) + " ×" * (not row.within)
        ink = "white" if row.iops > 0.6 * own["iops"].max() else INK
        for down, text, size in ((0.4, count(row.iops), 9.5), (0.7, late, 7.5)):
            ax.text(x + 0.5, y + down, text, ha="center", va="center", fontsize=size, color=ink)
        if row.chosen:
            ax.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor=INK, linewidth=2.2, clip_on=False, zorder=5))
    ax.set(xlabel="iodepth (outstanding I/Os per job)", ylabel="numjobs (jobs per VM)")
    ax.tick_params(rotation=0)
    ax.set_xticklabels([f"{v:g}" for v in grid.columns])
    ax.set_yticklabels([f"{v:g}" for v in grid.index])
