"""What happened second by second? IOPS of every run around a failure, and latency of each second."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import EngFormatter, NullFormatter

from hcilib.model.metrics import FACTORS
from hcilib.say.codes import event_words
from hcilib.show.looks import INK, WARN, darker, looks
from hcilib.show.plots import called, caption

PANEL = ["system", "pattern", "iodepth", "failure"]
"""What a panel shows one of."""
PALE = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 1}
"""Behind words over data."""
AMBER = "#E69F00"
"""The recovery."""


def plot_failure(series: pd.DataFrame, costs: pd.DataFrame) -> np.ndarray:
    """Draw IOPS of all runs of each failure, with their outages, recoveries and mean levels.

    Parameters
    ----------
    series : DataFrame
        As ``aligned`` returns it: keys of the runs, ``since_s`` (s), ``iops``.
    costs : DataFrame
        As ``failures`` returns it.

    Returns
    -------
    ndarray of Axes
        A panel a system, pattern and failure, in the order of `costs`.

    Raises
    ------
    ValueError
        No row, or runs of one panel that differ in a factor or in the repair.

    Examples
    --------
    >>> source = "data/samples/box/stamped-drbd"
    >>> series = hci.read_series(source)
    >>> costs = hci.failures(series, hci.read_events(source), hci.read_hosts(source))
    >>> len(hci.plot_failure(hci.aligned(series, costs), costs))
    3
    """
    groups = [runs for _, runs in costs.groupby(PANEL, sort=False, dropna=False)]
    if not groups:
        raise ValueError("plot_failure: the table has no row, so there is no failure to draw")
    axes = _panels(len(groups))
    for ax, runs in zip(axes, groups, strict=True):
        _refuse_unlike(runs)
        _draw_runs(ax, _of(series, runs), runs)
        _draw_levels(ax, runs)
        _draw_events(ax, runs.iloc[0])
        ax.set(ylabel="IOPS", ylim=(0, 1.2 * max(ax.dataLim.y1, 1)))
        ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    lines = "A line is a run, the thick one the worst. Black bars: mean levels over all runs."
    spans = "Red: the longest outage. Amber: repaired, not yet recovered."
    caption(axes[0], costs, lines, spans)
    return axes


def plot_latency_over_time(table: pd.DataFrame, costs: pd.DataFrame) -> np.ndarray:
    """Draw how many I/Os of each second had which latency, in the worst run of each failure.

    Parameters
    ----------
    table : DataFrame
        As ``latency_over_time`` returns it, made with `costs`.
    costs : DataFrame
        As ``failures`` returns it.

    Returns
    -------
    ndarray of Axes
        A panel a failure. The line is the median.

    Raises
    ------
    ValueError
        No row, because no histograms were kept.

    Examples
    --------
    >>> source = "data/samples/box/stamped-drbd"
    >>> costs = hci.failures(hci.read_series(source), hci.read_events(source))
    >>> table = hci.latency_over_time(hci.read_histograms(source), costs)
    >>> len(hci.plot_latency_over_time(table, costs))
    3
    """
    if table.empty:
        raise ValueError(
            "plot_latency_over_time: no histograms were kept. Set fio: {log_hist_msec: 500} and measure again."
        )
    groups = costs.groupby(PANEL, sort=False, dropna=False)
    worst = [_by_harm(runs).head(1) for _, runs in groups]
    shown = [run for run in worst if len(_of(table, run))]
    axes = _panels(len(shown))
    for ax, run in zip(axes, shown, strict=True):
        _draw_latencies(ax, _of(table, run), table["count"].max())
        _draw_events(ax, run.iloc[0])
    cells = "Darker: more I/Os of that second had that latency. Line: the median."
    caption(axes[0], table, cells, "Red: seconds without I/O. Latency is completion latency.")
    return axes


def _of(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of these runs."""
    return table.merge(runs[[name for name in table if name in runs]])


def _refuse_unlike(runs: pd.DataFrame) -> None:
    """Raise ValueError where runs of a panel are no repeats, as their mean levels are drawn."""
    for name in (c for c in (*FACTORS, "heal") if c in runs):
        if runs[name].nunique(dropna=False) > 1:
            raise ValueError(f"plot_failure: runs of one panel differ in {name}. Filter the table.")


def _by_harm(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs in the order of ``phases``: the worst first."""
    judged = runs["heal_s"].notna() & runs["tolerance"].notna()
    back_s = runs["back_s"].fillna(np.inf).where(judged, 0.0)
    order = runs.assign(never=np.isinf(back_s), still=runs["gap_s"].fillna(0), back_s=back_s)
    by = ["never", "still", "back_s", "degraded_iops"]
    return runs.loc[order.sort_values(by, ascending=[False] * 3 + [True], kind="stable").index]


def _panels(number: int) -> np.ndarray:
    size = (8.4, 0.9 + 2.6 * number)
    _, grid = plt.subplots(number, 1, figsize=size, squeeze=False)
    grid[-1, 0].set_xlabel("Seconds since the failure")
    return grid[:, 0]


def _draw_runs(ax: Axes, series: pd.DataFrame, runs: pd.DataFrame) -> None:
    """Draw every run. Where several have an outage or a recovery, the colour is darker."""
    system, worst = runs["system"].iloc[0], _by_harm(runs).index[0]
    colour = looks([system])[system].colour
    faint: Any = {"alpha": 0.35 / len(runs), "linewidth": 0}
    for run in runs.itertuples():
        own = _of(series, runs.loc[[run.Index]]).sort_values("since_s")
        is_worst = run.Index == worst
        ink = darker(colour, 0.45 * is_worst)
        ax.plot(own["since_s"], own["iops"], color=ink, lw=1 + is_worst, gid="run")
        healed, back_s = run.heal_s - run.fail_s, np.nan_to_num(run.back_s, nan=np.inf)
        begin = run.gap_from_s - np.floor(run.fail_s)
        end = min(healed + back_s, series["since_s"].max() + 1) if run.tolerance > 0 else np.nan
        ax.axvspan(begin, begin + run.gap_s, color=WARN, gid="outage", **faint)
        ax.axvspan(healed, end, color=AMBER, gid="recovery", **faint)
    ax.set_xlim(series["since_s"].min(), series["since_s"].max() + 1)


def _draw_levels(ax: Axes, runs: pd.DataFrame) -> None:
    """Draw the mean levels before the failure and until the repair."""
    first, last = ax.get_xlim()
    begin, heal = ((runs[c] - runs["fail_s"]).mean() for c in ("degraded_from_s", "heal_s"))
    healthy = np.exp(np.log(runs["healthy_iops"]).mean())  # as ``failure_summary``
    ax.hlines(healthy, first, 0, color=INK, linewidth=2.2, gid="healthy")
    level, until = runs["degraded_iops"].mean(), heal if heal == heal else last
    ax.hlines(level, begin, until, color=INK, linewidth=2.2, gid="degraded")


def _draw_events(ax: Axes, run: pd.Series) -> None:
    """Mark the failure and, a line lower, its repair; name the panel and the run."""
    for line, (at, what) in enumerate([(0.0, "failure"), (run["heal_s"] - run["fail_s"], "heal")]):
        if at == at:
            ax.axvline(at, color=INK, linewidth=1.2, gid="event")
            place: Any = {"xycoords": ax.get_xaxis_transform(), "textcoords": "offset points"}
            ax.annotate(event_words(run[what]), (at, 0.985), (4, -12 * line), va="top", bbox=PALE, **place)
    ax.set_title(", ".join(called(name, run[name]) for name in PANEL), loc="left")


def _draw_latencies(ax: Axes, run: pd.DataFrame, most: float) -> None:
    """Draw a column a second: the darker a latency, the more I/Os had it."""
    bottom, top = run["lat_lo_ns"] / 1e6, run["lat_hi_ns"] / 1e6
    rows = np.log(top.max() / bottom.min()) / np.log(top / bottom).mean()
    edges = np.geomspace(bottom.min(), top.max(), round(rows) + 1)
    at = (run["since_s"] - run["since_s"].min()).round()
    along = run["since_s"].min() + np.arange(at.max() + 2)
    look: Any = {"cmap": "Blues", "norm": LogNorm(0.3, most), "rasterized": True, "gid": "latencies"}
    bins: Any = {"bins": [along, edges], "weights": run["count"], "cmin": 0.5}
    drawn, *_ = ax.hist2d(along[0] + at + 0.5, 1.01 * bottom, **bins, **look)
    for silent in along[:-1][np.isnan(drawn).all(axis=1)]:
        ax.axvspan(silent, silent + 1, color=WARN, alpha=0.35, linewidth=0, gid="gap")
    medians_ms = run.groupby(at)["p50_ns"].first().reindex(range(len(along) - 1)) / 1e6
    ax.plot(along[:-1] + 0.5, medians_ms, color=INK, linewidth=1.3)
    ax.set(yscale="log", ylabel="Latency (ms)", xlim=(along[0], along[-1]))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
