"""What a failure did, second by second: every run laid over the others at the failure."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from hcilib.metrics import FACTORS, KEYS
from hcilib.show.figures.style import (
    INK,
    QUIET,
    WARN,
    caption,
    count,
    drawn,
    dress,
    labelled,
    looks,
    pattern_label,
    source_of,
)

GAP, RETURN = WARN, "#E69F00"
RUN = ("run", "step_id", *KEYS, *FACTORS)
"""What tells one run from another."""


@drawn
def plot_failure(
    series: pd.DataFrame,
    costs: pd.DataFrame,
    labels: Mapping[str, str] | None = None,
    source: str | None = None,
) -> np.ndarray:
    """One panel a system, pattern and failure: the rates of its runs, what was done when, the gap shaded, the levels.

    Parameters
    ----------
    series : as ``aligned`` returns it: the run's keys, since_s, iops
    costs : as ``failures`` returns it, whose rows say where the levels, the gap and the return are drawn

    Returns the panels' Axes in the order of `costs`. Raises ValueError for runs of one panel that vary in a factor, or
    in what was done.
    """
    keys = [c for c in ("system", "pattern", "iodepth", "failure") if c in costs]
    groups = list(costs.groupby(keys, sort=False, dropna=False))
    if not groups:
        raise ValueError("plot_failure: the table has no row, so there is no failure to draw")
    _refuse_unlike(costs, keys)
    _, grid = plt.subplots(len(groups), 1, figsize=(8.4, 0.9 + 2.6 * len(groups)), layout="constrained", squeeze=False)
    for ax, (_, runs) in zip(grid[:, 0], groups, strict=True):
        _panel(dress(ax), series.merge(runs[[c for c in series if c in runs and c != "iops"]]), runs, labelled(labels))
    grid[-1, 0].set_xlabel("Seconds since the failure")
    n = sorted({len(runs) for _, runs in groups})
    caption(
        grid[-1, 0],
        (
            f"A thin line is a run ({' to '.join(map(str, n[:: max(1, len(n) - 1)]))} each); bars are the mean levels "
            "of all runs."
        ),
        "Red: seconds without any I/O." if (costs["gap_s"] > 0).any() or (costs["heal_gap_s"] > 0).any() else None,
        "Amber: healed, and not yet back." if (costs["back_s"] > 0).any() else None,
        source_of(costs, source),
    )
    return grid[:, 0]


def _refuse_unlike(costs: pd.DataFrame, keys: list[str]) -> None:
    """The levels drawn are means over a panel's runs: these are repeats, or there is no such level."""
    for name in (c for c in ("system", *FACTORS, "heal") if c in costs and c not in keys):
        if (costs.groupby(keys, dropna=False)[name].nunique(dropna=False) > 1).any():
            seen = ", ".join(str(v) or "none" for v in pd.unique(costs[name]))
            raise ValueError(
                f"plot_failure: the runs of a panel vary in {name}: {seen}; filter the table to one of each"
            )


def _panel(ax: Axes, series: pd.DataFrame, runs: pd.DataFrame, labels: Mapping[str, str]) -> None:
    first = runs.iloc[0]
    system = first.get("system", "")
    colour = looks([system])[system][0]
    _returns(ax, runs)
    for _, run in series.groupby([c for c in RUN if c in series], dropna=False):
        run = run.sort_values("since_s")
        for second in run.loc[run["iops"] == 0, "since_s"]:
            ax.axvspan(second, second + 1, color=GAP, alpha=0.35 / len(runs), linewidth=0, gid="gap")
        ax.plot(run["since_s"], run["iops"], color=colour, linewidth=1.0, alpha=0.7, gid="run")
    start, end = (float(series["since_s"].agg(f)) for f in ("min", "max"))
    heal = float((runs["heal_s"] - runs["fail_s"]).mean())
    _mark(ax, 0.0, first["failure"])
    if heal == heal:
        _mark(ax, heal, first["heal"])
    _bar(ax, start, 0.0, runs["healthy_iops"].mean(), "healthy")
    _bar(ax, float((runs["degraded_from_s"] - runs["fail_s"]).mean()), heal if heal == heal else end,
         runs["degraded_iops"].mean(), "degraded")  # fmt: skip
    ax.set(xlim=(start, end + 1), ylabel="IOPS")
    ax.set_ylim(0, 1.22 * max(float(series["iops"].max()), 1.0))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: count(y)))
    where = f", {pattern_label(first['pattern'])} at iodepth {first['iodepth']}" if "pattern" in runs else ""
    ax.set_title(f"{labels.get(system, system)}{where}: {first['failure']}", loc="left")


def _returns(ax: Axes, runs: pd.DataFrame) -> None:
    """The way back of every run, lightly, so that what they share is darker."""
    for run in runs[runs["back_s"] > 0].itertuples():
        healed = run.heal_s - run.fail_s
        ax.axvspan(healed, healed + run.back_s, color=RETURN, alpha=0.35 / len(runs), linewidth=0, gid="return")


def _mark(ax: Axes, at_s: float, what: str) -> None:
    ax.axvline(at_s, color=INK, linewidth=1.2, gid="event")
    ax.annotate(what, (at_s, 0.985), (4, 0), xycoords=ax.get_xaxis_transform(), textcoords="offset points", va="top",
                fontsize=9, color=INK)  # fmt: skip


def _bar(ax: Axes, start: float, end: float, level: float, name: str) -> None:
    """A level over its seconds, its value above its right end."""
    if level == level and start == start:
        ax.hlines(level, start, end, color=INK, linewidth=2.2, gid=name)
        ax.annotate(
            f"{name} {count(level)}",
            (end, level),
            (-3, 3),
            textcoords="offset points",
            ha="right",
            va="bottom",
            bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8},
            fontsize=8.5,
            color=QUIET,
            fontweight="bold",
        )
