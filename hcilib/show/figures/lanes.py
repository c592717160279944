"""Failure lanes: a lane for each run, from normal through outage and repair to recovered, on one time axis."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from hcilib.say.codes import event_words
from hcilib.show.figures import style
from hcilib.show.figures.style import QUIET, WARN, drawn

COLOURS = {
    "normal": "#B9D8C4",
    "degraded": "#E8D9A8",
    "recovering": "#E69F00",
    "recovered": "#7FBF9A",
    "outage": WARN,
}
HEIGHT = 0.72
BEFORE_S = 5
"""Seconds of the normal phase that are shown."""


@drawn
def plot_lanes(phases: pd.DataFrame) -> np.ndarray:
    """Draw a panel for each system, pattern and failure, and in it a lane for each run.

    Parameters
    ----------
    phases : as ``hci.phases`` returns it

    Returns
    -------
    Axes of the panels. The worst and the median run of a failure are named, durations are numbers
    in the lanes, and the outage is a number at the right.

    Raises
    ------
    ValueError : the table has no row

    Examples
    --------
    >>> hci.plot_lanes(hci.phases(costs))  # doctest: +SKIP
    """
    keys = [name for name in ("system", "pattern", "failure") if name in phases]
    groups = list(phases.groupby(keys, sort=False, dropna=False))
    if not groups:
        raise ValueError("plot_lanes: the table has no row, so there is no failure to draw")
    lanes = [_runs(rows) for _, rows in groups]
    heights = [0.55 + 0.33 * len(runs) for runs in lanes]
    _, grid = plt.subplots(
        len(groups), 1, figsize=(8.4, 0.9 + sum(heights)), layout="constrained", squeeze=False, sharex=True,
        height_ratios=heights,
    )  # fmt: skip
    said = [_panel(style.dress(ax), runs) for ax, runs in zip(grid[:, 0], lanes, strict=True)]
    grid[-1, 0].set_xlim(-BEFORE_S, phases["to_s"].max())
    grid[-1, 0].set_xlabel("Seconds since the failure")
    style.legend(grid[0, 0], [Patch(color=colour, label=phase) for phase, colour in COLOURS.items()], len(COLOURS))
    style.say(grid[0, 0], "\n".join(f"{finding}." for finding in said))
    style.caption(
        grid[-1, 0],
        "One lane is one run. Numbers in a lane are seconds, the number at the right is its longest outage.",
        "Degraded lasts until the repair. Recovered means normal IOPS, while copies may be incomplete. "
        "A run that ends amber did not recover.",
        style.source_words(phases),
    )
    return grid[:, 0]


def _runs(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the phases of each run, by block."""
    keys = [name for name in ("run_id", "block", "rep", "step_id") if name in rows]
    return [run for _, run in rows.groupby(keys, dropna=False)] if keys else [rows]


def _panel(ax: Axes, runs: list[pd.DataFrame]) -> str:
    """Draw one failure; return its worst run in words."""
    first = runs[0].iloc[0]
    names = [f"round {run['block'].iloc[0]:g}" if "block" in run else f"run {n + 1}" for n, run in enumerate(runs)]
    marks = [run["place"].iloc[0] if len(runs) > 1 else "" for run in runs]
    style.row_axis(ax, [", ".join(filter(None, parts)) for parts in zip(names, marks, strict=True)])
    for row, run in enumerate(runs):
        outages = run[run["phase"] == "outage"]
        for phase in run[run["phase"] != "outage"].itertuples():
            _bar(ax, row, phase, outages)
        for outage in outages.itertuples():
            ax.barh(row, outage.duration_s, HEIGHT, outage.from_s, color=COLOURS["outage"], gid="outage")
        _outage(ax, row, run)
    where = f", {style.pattern_label(first['pattern'])}" if "pattern" in first else ""
    ax.set_title(f"{style.system_label(first['system'])}{where}: {event_words(first['failure'])}", loc="left")
    ax.grid(False, axis="y")
    worst = runs[marks.index("worst")] if "worst" in marks else runs[0]
    named = f"{style.system_label(first['system'])}{where}, {event_words(first['failure'])}"
    return f"{named}. In the worst run, {_words(worst)}"


def _bar(ax: Axes, row: int, phase: Any, outages: pd.DataFrame) -> None:
    """Draw one phase, with its seconds in the longest part without an outage, where there is room for them."""
    begin = max(phase.from_s, -BEFORE_S) if phase.phase == "normal" else phase.from_s
    ax.barh(row, phase.to_s - begin, HEIGHT, begin, color=COLOURS[phase.phase], gid=phase.phase)
    if phase.phase in ("degraded", "recovering") and phase.duration_s >= 3:
        inside = outages[(outages["to_s"] > begin) & (outages["from_s"] < phase.to_s)].sort_values("from_s")
        ends = zip([begin, *inside["to_s"]], [*inside["from_s"], phase.to_s], strict=True)
        middle = np.mean(max(ends, key=lambda part: part[1] - part[0]))
        # black is the one colour that a dark page does not turn round, and the lanes stay light there
        ax.text(middle, row, f"{phase.duration_s:.3g}", ha="center", va="center", fontsize=8.5, color="black")


def _outage(ax: Axes, row: int, run: pd.DataFrame) -> None:
    outage = run.loc[run["phase"] == "outage", "duration_s"]
    text = f"{outage.iloc[0]:.2g} s" if len(outage) else "none seen"
    colour = WARN if len(outage) else QUIET
    ax.text(1.01, row, text, transform=ax.get_yaxis_transform(), va="center", fontsize=8.5, color=colour)


def _words(run: pd.DataFrame) -> str:
    lasted = run.groupby("phase")["duration_s"].sum()
    never = "IOPS were still below normal when the run ended, {:.3g} s after the repair"
    words = {
        "outage": "the outage lasted {:.3g} s",
        "recovering": "IOPS stayed below normal for {:.3g} s after the repair" if "recovered" in lasted else never,
    }
    phases = [text.format(lasted[phase]) for phase, text in words.items() if phase in lasted]
    return " and ".join(phases) or "no outage was seen"
