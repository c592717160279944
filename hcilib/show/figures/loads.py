"""Threads x outstanding I/Os as a map: what each load gives, which of them cost too much time, and the one chosen."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.patches import Rectangle

from hcilib.metrics import METRICS
from hcilib.show.figures.style import INK, caption, count, drawn, labelled, pattern_label, runs_note, say, source_of


@drawn
def plot_loads(
    table: pd.DataFrame,
    labels: Mapping[str, str] | None = None,
    source: str | None = None,
    columns: int = 3,
) -> np.ndarray:
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
    columns = min(columns, len(groups))
    rows = -(-len(groups) // columns)
    deep, wide = table["numjobs"].nunique(), table["iodepth"].nunique()
    size = (columns * (1.6 + 0.72 * wide), rows * (1.4 + 0.6 * deep))
    _, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for ax in axes.flat[len(groups) :]:
        ax.set_visible(False)
    said = []
    for ax, ((system, pattern, vms), own) in zip(axes.flat, groups, strict=False):
        name = labelled(labels).get(system, system)
        _map(ax, own, metric)
        ax.set_title(f"{name}, {pattern_label(pattern)}, {vms:.0f} VM{'s' * (vms != 1)}")
        said.append(f"{name}, {pattern}: {'; '.join(filter(None, own['why'].unique()))}")
    say(axes.flat[0], ". ".join(said) + ".")
    below = METRICS[metric].axis
    caption(
        axes.flat[0],
        f"Number: IOPS, below it {below[0].lower()}{below[1:]}; framed: the load to choose; ×: above "
        "the latency that a load may cost; empty: not measured.",
        runs_note(table, hollow=False),
        source_of(table, source),
    )
    return axes


def _map(ax, own: pd.DataFrame, metric: str) -> None:
    grid = own.pivot(index="numjobs", columns="iodepth", values="iops").sort_index(ascending=False)
    sns.heatmap(grid, ax=ax, cmap="Blues", vmin=0, cbar=False, linewidths=1, linecolor="white")
    rank = {int(v): n for n, v in enumerate(grid.index)}, {int(v): n for n, v in enumerate(grid.columns)}
    for row in own.itertuples():
        if np.isnan(row.iops):
            continue
        y, x = rank[0][int(row.numjobs)], rank[1][int(row.iodepth)]
        dark = row.iops > 0.6 * own["iops"].max()
        ax.text(
            x + 0.5, y + 0.4, count(row.iops), ha="center", va="center", fontsize=9.5, color="white" if dark else INK
        )
        late = METRICS[metric].show(getattr(row, metric)) + " ×" * (not row.within)
        ax.text(x + 0.5, y + 0.7, late, ha="center", va="center", fontsize=7.5, color="white" if dark else INK)
        if row.chosen:
            ax.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor=INK, linewidth=2.2, clip_on=False, zorder=5))
    ax.set(xlabel="iodepth (outstanding I/Os per job)", ylabel="numjobs (jobs per VM)")
    ax.tick_params(rotation=0)
    ax.set_xticklabels([f"{v:g}" for v in grid.columns])
    ax.set_yticklabels([f"{v:g}" for v in grid.index])
