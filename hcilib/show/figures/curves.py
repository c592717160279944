"""Lines over a load: iodepth or VM count."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import unwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from hcilib.metrics import METRICS, Metric, pattern_order
from hcilib.metrics import metric as metric_of
from hcilib.show.figures.style import (
    INK,
    QUIET,
    canvas,
    caption,
    darker,
    dash,
    direct_labels,
    drawn,
    dress,
    iodepth_axis,
    labelled,
    looks,
    metric_drawn,
    pattern_label,
    runs_note,
    say,
    source_of,
    tip,
    value_axis,
)

OVER = {"iodepth": "iodepth (outstanding I/Os per job)", "vms": "Number of VMs", "numjobs": "numjobs (jobs per VM)"}


@drawn
def plot_sweep(
    table: pd.DataFrame,
    metric: str | None = None,
    over: str = "iodepth",
    hue: str = "system",
    labels: Mapping[str, str] | None = None,
    title: str | None = None,
    source: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One line per `hue` over the load, with intervals where the table has them.

    Parameters
    ----------
    table : as ``summarize`` returns it for one pattern: `hue`, `over`, ``center`` (or the metric's own column),
        ``lo``, ``hi``, ``n``; one row per `hue` and `over`. A cell without a value is marked with a cross on the axis.

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
    own, metric = ax is None, metric_drawn(table, metric)
    ax = canvas(ax)
    missing = _curves(ax, table, metric, over, hue, labelled(labels))
    lines = _ends(ax, table, metric, over, hue, labelled(labels))
    if len(lines) <= 4:
        direct_labels(ax, lines)
    else:
        ax.legend(handles=_handles(table, hue, labelled(labels), False), loc="upper left", bbox_to_anchor=(1.01, 1))
    patterns = table["pattern"].dropna().unique() if "pattern" in table else []
    ax.set_title(title if title is not None else pattern_label(patterns[0]) if len(patterns) == 1 else "")
    if own:
        lost = table[over].isna().sum()
        caption(ax, runs_note(table), "× no value." if missing else None,
                f"{lost} rows without {over} not drawn." if lost else None, source_of(table, source))  # fmt: skip
    return ax


@drawn
def plot_panels(
    table: pd.DataFrame,
    metric: str | None = None,
    by: str = "pattern",
    over: str = "iodepth",
    hue: str = "system",
    labels: Mapping[str, str] | None = None,
    source: str | None = None,
    columns: int = 4,
) -> np.ndarray:
    """Small multiples of :func:`plot_sweep`, one panel per `by`, one legend. Returns the panels' Axes in order."""
    metric = metric_drawn(table, metric)
    values = pattern_order(table[by]) if by == "pattern" else list(dict.fromkeys(table[by]))
    if not values:
        raise ValueError(f"plot_panels: the table has no row, so there is no {by} to draw")
    named = 2 <= table[hue].nunique() <= 4  # one needs none; more names than that would stand on each other
    columns = min(columns - named, len(values))
    rows = -(-len(values) // columns)
    width = 3.5 if named else 2.6
    fig, grid = plt.subplots(rows, columns, figsize=(width * columns + 0.2, 2.4 * rows + 0.8), layout="constrained")
    axes = np.atleast_1d(grid).ravel()
    missing = False
    for ax, value in zip(axes, values, strict=False):
        panel = table[table[by] == value]
        missing |= _curves(dress(ax), panel, metric, over, hue, labelled(labels))
        ax.set_title(pattern_label(value) if by == "pattern" else f"{by} {value}")
        ax.set(xlabel="", ylabel="")
        if named:
            direct_labels(ax, _ends(ax, panel, metric, over, hue, labelled(labels)), size=7.5)
    for ax in axes[len(values) :]:
        ax.remove()
    fig.supylabel(metric_of(metric).axis, fontsize=10)
    axes[-columns].set_xlabel(OVER.get(over, over), loc="left")
    if not named:
        handles = _handles(table, hue, labelled(labels), missing)
        fig.legend(handles=handles, loc="outside upper left", ncols=columns + 1 if columns > 1 else 1)
    caption(axes[0], runs_note(table), "× no value." if named and missing else None, source_of(table, source))
    say(axes[0], _highest(table, metric, by, over, hue, labelled(labels)))
    return axes[: len(values)]


def _highest(table: pd.DataFrame, metric: str, by: str, over: str, hue: str, labels: Mapping[str, str]) -> str:
    """Who stands best in each panel, for those who do not see it."""
    column, what = "center" if "center" in table else metric, metric_of(metric)
    values = table.dropna(subset=[column])
    if values.empty:
        return f"{what.label}: no value given."
    groups = values.groupby(by, observed=True, sort=False)[column]
    best = values.loc[groups.idxmin() if what.better == "lower" else groups.idxmax()]
    way = "lowest" if what.better == "lower" else "highest"
    said = (
        (
            f"{pattern_label(row[by])} {labels.get(row[hue], row[hue])} with {what.show(row[column])} at {over} "
            f"{row[over]:g}"
        )
        for row in best.to_dict("records")
    )
    return f"{way.capitalize()} {what.axis}: {'; '.join(said)}."


@drawn
def plot_scaling(
    table: pd.DataFrame,
    saturation: pd.DataFrame | None = None,
    metric: str | None = None,
    hue: str = "system",
    labels: Mapping[str, str] | None = None,
    title: str | None = None,
    source: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A metric over the VM count with the knee and, where the table has it, the knee's interval.

    Parameters
    ----------
    saturation : as ``saturation`` returns it, with `hue`, ``knee``, ``lo``, ``hi``, ``slope_before``, ``slope_after``
    """
    metric = metric_drawn(table, metric)
    ax = unwrap(plot_sweep)(table, metric, "vms", hue, labels, title, source, ax)
    ax.set_xlim(left=0)
    if saturation is not None:
        several = table[hue].nunique() > 1
        for row in saturation[saturation[hue].isin(table[hue])].to_dict("records"):
            _knee(ax, row, metric_of(metric), looks(table[hue])[row[hue]][0] if several else INK)
    return ax


def _curves(ax: Axes, table: pd.DataFrame, metric: str, over: str, hue: str, labels: Mapping[str, str]) -> bool:
    """Every line of one panel; True where a cell had no value."""
    data = _points(table, metric, over, hue)
    loads = sorted(data[over].unique())
    missing = False
    for name, (colour, marker) in looks(table[hue]).items():
        curve = data[data[hue] == name].set_index(over).reindex(loads)
        _line(ax, curve, colour, marker, labels.get(name, str(name)), dash(name))
        absent = curve.index[curve["value"].isna()]
        missing |= len(absent) > 0
        ax.plot(absent, [0.02] * len(absent), "x", color=colour, transform=ax.get_xaxis_transform(), gid="missing")
    _axes(ax, metric_of(metric), over, loads, data)
    return missing


def _points(table: pd.DataFrame, metric: str, over: str, hue: str) -> pd.DataFrame:
    """hue, over, value, lo, hi, n in the shown unit, one row a point."""
    column = "center" if "center" in table else metric
    absent = [c for c in (hue, over, column) if c not in table]
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
    scale = METRICS[metric].scale if metric in METRICS else 1.0
    nan = pd.Series(np.nan, index=table.index)
    return pd.DataFrame({
        hue: table[hue], over: table[over].astype(float), "value": table[column] / scale,
        "lo": table.get("lo", nan) / scale, "hi": table.get("hi", nan) / scale,
    })  # fmt: skip


def _line(ax: Axes, curve: pd.DataFrame, colour: str, marker: str, label: str, line) -> None:
    """A line that breaks where a value is missing, intervals, and hollow markers where there is no interval."""
    x, y = curve.index.to_numpy(float), curve["value"].to_numpy(float)
    lo, hi = curve["lo"].to_numpy(float), curve["hi"].to_numpy(float)
    sure = ~np.isnan(lo)
    [drawn_line] = ax.plot(x, y, color=colour, label=label, linestyle=line, zorder=3)
    tip(drawn_line, ax, label)
    ax.errorbar(x[sure], y[sure], yerr=[(y - lo)[sure], (hi - y)[sure]], fmt="none", ecolor=colour, elinewidth=1.2,
                capsize=3, zorder=3)  # fmt: skip
    [tested] = ax.plot(x[sure], y[sure], marker, color=colour, zorder=4)
    [single] = ax.plot(
        x[~sure], y[~sure], marker, markeredgecolor=colour, markerfacecolor="white", markeredgewidth=1.5, zorder=4
    )
    there = ~np.isnan(y)
    told = [
        f"{a:g}: {b:,.4g} [{c:,.4g}, {d:,.4g}]" for a, b, c, d in zip(x[sure], y[sure], lo[sure], hi[sure], strict=True)
    ]
    tip(tested, ax, label, told)
    tip(
        single,
        ax,
        label,
        [f"{a:g}: {b:,.4g}, one number" for a, b in zip(x[~sure & there], y[~sure & there], strict=True)],
    )


def _axes(ax: Axes, metric: Metric, over: str, loads: list[float], data: pd.DataFrame) -> None:
    """Labels and scales: latency spans decades and is drawn on a log axis, everything else from zero."""
    ax.set(xlabel=OVER.get(over, over), ylabel=metric.axis)
    if over == "iodepth":
        iodepth_axis(ax, loads)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.margins(x=0.06)
    if metric.unit == "ms" and data["value"].notna().any():
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low > 6 else (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8)))
        ax.yaxis.set_minor_locator(NullLocator())
        value_axis(ax.yaxis, metric.unit)
        return
    top = np.nanmax(data[["value", "hi"]].to_numpy(float), initial=0)
    ax.set_ylim(0, 1.08 * top if top > 0 else 1)
    value_axis(ax.yaxis, metric.unit)
    if data["value"].isna().all():  # a scale would be one of nothing
        ax.set_yticks([])
        ax.text(
            0.5, 0.5, "no value given", transform=ax.transAxes, ha="center", color=QUIET, style="italic", gid="missing"
        )


def _ends(ax: Axes, table: pd.DataFrame, metric: str, over: str, hue: str, labels: Mapping[str, str]) -> dict:
    """Label -> last drawn point and colour of each line."""
    data = _points(table, metric, over, hue).dropna(subset="value").sort_values(over).groupby(hue).last()
    style = looks(table[hue])
    return {
        labels.get(name, str(name)): (row[over], row["value"], darker(style[name][0])) for name, row in data.iterrows()
    }


def _handles(table: pd.DataFrame, hue: str, labels: Mapping[str, str], missing: bool) -> list[Line2D]:
    handles = [
        Line2D(
            [], [], color=colour, marker=marker, linestyle=dash(name), label=labels.get(name, str(name)), linewidth=1.8
        )
        for name, (colour, marker) in looks(table[hue]).items()
    ]
    return handles + [Line2D([], [], color=QUIET, marker="x", linestyle="", label="no value")] * missing


def _knee(ax: Axes, row: Mapping, metric: Metric, colour: str) -> None:
    """The knee as a line, its interval as a band, the gains per VM on both sides in words."""
    if row["knee"] != row["knee"]:
        return
    ax.axvline(row["knee"], color=colour, linestyle="--", linewidth=1.2, gid="knee")
    if row.get("lo", np.nan) == row.get("lo", np.nan):
        ax.axvspan(row["lo"], row["hi"], color=colour, alpha=0.12, linewidth=0, gid="knee interval")
    gains = [metric.format.format(row[side] / metric.scale) for side in ("slope_before", "slope_after")]
    unit = metric.axis if metric.unit else metric.label
    ax.annotate(
        f"knee at {row['knee']:g} VMs\n{unit} per added VM:\n{gains[0]} before, {gains[1]} after",
        (row["knee"], 0.04), (6, 0), xycoords=ax.get_xaxis_transform(), textcoords="offset points", fontsize=9,
        color=INK, va="bottom",
    )  # fmt: skip
