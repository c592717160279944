"""Latency ridges: how the I/Os of each system are spread over latencies, a ridge a system."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from hcilib.model.metrics import metric_of, pattern_order
from hcilib.say.words import noun, value
from hcilib.show.figures import style
from hcilib.show.figures.style import drawn

HEIGHT = 0.86
"""Of a ridge, in rows."""
MARKS = ("o", "D", "s", "^")


@drawn
def plot_ridges(shares: pd.DataFrame, percentiles: Sequence[pd.DataFrame]) -> np.ndarray:
    """Draw a panel for each pattern, and in it a ridge for each system.

    Parameters
    ----------
    shares : as ``hci.latency_shares`` returns it, by system and pattern
    percentiles : summaries of percentiles, one table each, such as ``hci.summarize(one, "p99_ns")``.
        Each is a mark on the ridges, with its interval over runs

    Returns
    -------
    Axes of the panels

    Raises
    ------
    ValueError : the table has no row

    Examples
    --------
    >>> runs = hci.read_results(hci.samples()["lab-single"]).query("iodepth == 1")
    >>> shares = hci.latency_shares(hci.read_bins(hci.samples()["lab-single"]), runs)
    >>> len(hci.plot_ridges(shares, [hci.summarize(runs, "p50_ns")]))
    3
    """
    if shares.empty:
        raise ValueError("plot_ridges: the table has no row, so there is no latency to draw")
    patterns, systems = pattern_order(shares["pattern"]), list(dict.fromkeys(shares["system"]))
    names = [style.pattern_label(pattern) for pattern in patterns]
    _, axes = style.panels(names, 2, 4.6 if len(names) > 1 else 7.2, 0.75 + 0.48 * len(systems))
    metrics = [metric_of(next(c for c in table if f"{c}_lo" in table)) for table in percentiles]
    said = []
    for ax, pattern, name in zip(axes, patterns, names, strict=True):
        own = shares[shares["pattern"] == pattern]
        rows = [system for system in systems if system in set(own["system"])]
        style.row_axis(ax, [style.system_label(system) for system in rows])
        ax.set_ylim(len(rows) - 0.7, -HEIGHT - 0.15)
        for row, system in enumerate(rows):
            _ridge(ax, row, own[own["system"] == system], style.looks(systems)[system][0])
            words = []
            for mark, what, table in zip(MARKS, metrics, percentiles, strict=False):
                cell = table[(table["system"] == system) & (table["pattern"] == pattern)]
                words += _mark(ax, row, cell, what, (style.looks(systems)[system][0], mark), system)
            said.append(f"{name}, {style.system_label(system)}: {', '.join(words)}.")
    lows, highs = shares["lat_lo_ns"].min() / 1e6, shares["lat_hi_ns"].max() / 1e6
    for ax in axes:
        style.log_axis(ax.xaxis, "ms", lows, highs)
    axes[-1].set_xlabel("Latency (ms)", loc="left")
    grey = style.QUIET
    marks = zip(MARKS, metrics, strict=False)
    style.legend(axes[0], [style.mark(grey, mark, what.label) for mark, what in marks])
    style.say(axes[0], "\n".join(said))
    style.caption(
        axes[-1],
        "The height of a ridge shows how many I/Os had that latency, over all runs, scaled to its own peak.",
        "A percentile with fewer than ten slower I/Os has no mark.",
        style.runs_note(pd.concat(percentiles)),
        style.source_words(percentiles[0]),
    )
    return axes


def _ridge(ax: Axes, row: int, shares: pd.DataFrame, colour: str) -> None:
    """Draw a distribution upwards from its row; ranges without I/O are at zero."""
    edges = np.append(shares["lat_lo_ns"], shares["lat_hi_ns"]) / 1e6
    heights = np.append(shares["pct_of_ios"], np.zeros(len(shares)))
    steps = pd.Series(heights, edges.round(9)).groupby(level=0).max()  # an end is the next beginning
    along = np.repeat(steps.index.to_numpy(), 2)
    tops = np.append(np.append(row, np.repeat(row - HEIGHT * steps.to_numpy() / steps.max(), 2)[:-2]), row)
    [ridge] = ax.fill(along, tops, facecolor=(colour, 0.3), edgecolor=colour, linewidth=0.8)
    ridge.set_gid("ridge")


def _mark(ax: Axes, row: int, cell: pd.DataFrame, what, look: tuple[str, str], system: str) -> list[str]:
    """Draw a percentile with its interval; return it in words, nothing where it is not known."""
    ends = cell[[what.name, f"{what.name}_lo", f"{what.name}_hi"]].to_numpy(float)
    if not len(ends) or np.isnan(ends[0, 0]):
        return []
    label = style.system_label(system)
    show = lambda ns: value(what, ns)  # noqa: E731
    scaled = np.array([float(row)]), ends / 1e6
    style.points(ax, *scaled, look, label, [what.label], lambda ms: show(ms * 1e6), "x", elinewidth=2.6)
    return [f"{noun(what)} {show(ends[0, 0])}"]
