"""Load maps: what each number of threads and outstanding I/Os gives, which cost too much time, and the choice."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.patches import Rectangle

from hcilib.model.metrics import METRICS
from hcilib.show.figures import style
from hcilib.show.figures.style import INK, count, drawn, pattern_label, system_label

OVER = {"iodepth": "iodepth (outstanding I/Os per job)", "vms": "Number of VMs", "numjobs": "numjobs (jobs per VM)"}
PAPER = 11.5
"""Inches that a page shows at full size."""


@drawn
def plot_loads(table: pd.DataFrame) -> np.ndarray:
    """Draw a map for each search: numjobs down, iodepth across, IOPS as colour and number, latency below.

    A frame marks the chosen load, and × loads above the latency limit. Loads that the search skipped are empty.

    Parameters
    ----------
    table : as ``loads`` returns it

    Raises
    ------
    ValueError : the table has no row
    """
    if table.empty:
        raise ValueError("plot_loads: the table has no row, because no load was measured")
    metric = next(name for name in table if name.endswith("_ns"))
    groups = list(table.groupby(["system", "pattern", "vms"], dropna=False, sort=False))
    deep, wide = (max(own[name].nunique() for _, own in groups) for name in ("numjobs", "iodepth"))
    columns = min(3, len(groups), max(1, int(PAPER // (1.6 + 0.72 * wide))))  # numbers stay readable
    rows = -(-len(groups) // columns)
    size = (columns * (1.6 + 0.72 * wide), rows * (1.4 + 0.6 * deep))
    _, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for ax in axes.flat[len(groups) :]:
        ax.set_visible(False)
    findings: list[str] = []
    for ax, ((system, pattern, vms), own) in zip(axes.flat, groups, strict=False):
        name = system_label(system)
        _map(ax, own, metric)
        ax.set_title(f"{name}, {pattern_label(pattern)}, {vms:.0f} VM{'s' * (vms != 1)}")
        findings += [f"{name}, {pattern_label(pattern)}: {why}." for why in filter(None, own["why"].unique())]
    style.say(axes.flat[0], "\n".join(findings))
    below = METRICS[metric].axis
    cells = f"Each cell shows IOPS and, below, {below[0].lower()}{below[1:]}. The frame marks the load to choose."
    limit = "× marks loads above the latency limit. Empty cells were not measured."
    style.caption(axes.flat[0], cells, limit, style.runs_note(table, marks=False), style.source_words(table))
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
