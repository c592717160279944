"""What a plan does with its hours."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from hcilib.metrics import pattern_order
from hcilib.show.figures.style import canvas, caption, drawn, pattern_label

KINDS = {"prefill": "#9aa0a6", "warmup": "#E69F00", "canary": "#CC79A7", "measure": "#0072B2"}
UNITS = ((2 * 3600, 3600, "hours"), (120, 60, "minutes"), (0, 1, "seconds"))


@drawn
def plot_plan(frame: pd.DataFrame, title: str | None = None, ax: Axes | None = None) -> Axes:
    """A plan's steps along time, a row per pattern, coloured by kind.

    Parameters
    ----------
    frame : as ``plan.to_frame()`` gives it, in order: ``kind``, ``pattern``, ``duration_s``. A step whose duration is
        not known before it runs (prefill: 0 or NaN) is a tick without width.
    """
    own = ax is None
    rows = pattern_order(frame["pattern"])
    ax = canvas(ax, 8.4, 1.5 + 0.3 * len(rows))
    seconds = frame["duration_s"].fillna(0).to_numpy(float)
    span, name = next((span, name) for least, span, name in UNITS if seconds.sum() >= least)
    start = (np.cumsum(seconds) - seconds) / span
    y = frame["pattern"].astype(str).map({p: i for i, p in enumerate(rows)}).to_numpy()
    for kind, colour in KINDS.items():
        mask = (frame["kind"] == kind).to_numpy()
        ax.barh(y[mask], seconds[mask] / span, 0.7, start[mask], color=colour, edgecolor="white", linewidth=0.3)
        open_end = mask & (seconds == 0)
        ax.plot(
            start[open_end], y[open_end], "|", color=colour, markersize=16, markeredgewidth=2.5, gid="unknown duration"
        )
    ax.set_yticks(range(len(rows)), [pattern_label(p) for p in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set(xlabel=f"Time since the start ({name})", title=title or "")
    ax.margins(x=0.01)
    ax.grid(False, axis="y")
    handles = [Patch(color=colour, label=kind) for kind, colour in KINDS.items() if (frame["kind"] == kind).any()]
    plt.setp(ax.spines.values(), visible=False)
    ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)
    if own:
        note = "A tick is a step whose duration is known only when it ends." if (seconds == 0).any() else None
        caption(ax, f"{len(frame)} steps, {seconds.sum() / span:,.1f} {name} of runtime.", note)
    return ax
