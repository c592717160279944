"""Coverage: how often intervals of simulated campaigns contain the truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from hcilib.say.words import SITUATIONS, counted
from hcilib.show.figures import style
from hcilib.show.figures.style import INK, drawn, looks


@drawn
def plot_coverage(coverage: pd.DataFrame) -> Axes:
    """Draw how often each interval contains the truth, a row per situation and number of runs.

    Parameters
    ----------
    coverage : as ``simulate_coverage`` returns it: ``situation``, ``runs``, ``method``, ``coverage``, ``coverage_lo``,
        ``coverage_hi``, ``nominal``
    """
    rows = list(dict.fromkeys(zip(coverage["situation"], coverage["runs"], strict=True)))
    ax = style.canvas(7.6, 1.4 + 0.42 * len(rows))
    systems = looks(coverage["method"])
    for nominal in coverage["nominal"].unique():
        ax.axvline(nominal, color=INK, linestyle="--", linewidth=1, zorder=1, gid="nominal")
        ax.axvspan(nominal, 1.05, color="#00956B", alpha=0.1, linewidth=0, zorder=0, gid="as promised")
        ax.text(nominal, 1.005, f"nominal: {100 * nominal:g} % or more →", transform=ax.get_xaxis_transform(),
                ha="right", va="bottom", fontsize=8.5, color="#00603F")  # fmt: skip
    for lane, (name, (colour, marker)) in enumerate(systems.items()):
        part = coverage[coverage["method"] == name]
        y = np.array([rows.index(key) for key in zip(part["situation"], part["runs"], strict=True)])
        error = [part["coverage"] - part["coverage_lo"], part["coverage_hi"] - part["coverage"]]
        y = y + 0.5 * ((lane + 0.5) / len(systems) - 0.5)
        ax.errorbar(part["coverage"], y, xerr=error, fmt=marker, color=colour,
                    elinewidth=1.5, label=name, zorder=3)  # fmt: skip
    style.row_axis(ax, [f"{SITUATIONS.get(name, name)}, {n} runs" for name, n in rows])
    ax.set_xlim(min(0.3, coverage["coverage_lo"].min()), 1.01)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:.0f} %"))
    ax.set_xlabel("Intervals that contain the true value")
    style.legend(ax, [style.mark(*look, name) for name, look in systems.items()])
    worst = coverage.loc[coverage["coverage"].idxmin()]
    share = f"{100 * worst['nominal']:g} % intervals contain the true value in only {100 * worst['coverage']:.0f} %"
    situation = SITUATIONS.get(worst["situation"], worst["situation"])
    case = f"“{situation}” with {counted(worst['runs'], 'run')} and the method “{worst['method']}”"
    style.say(ax, f"The worst case is {case}. There, {share} of the simulated campaigns.")
    rows_note = f"{coverage['n'].iloc[0]} simulated campaigns per row."
    style.caption(ax, rows_note, "Dashed: the nominal share, which intervals should reach.")
    return ax
