"""How everything looks: one colour and marker per system through the whole repository, axes, captions, labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import isotonic_regression

from hcilib.model.workload import NAME
from hcilib.say.words import cap_words
from hcilib.show.looks import INK, QUIET

FINE = (0, (1, 2))
"""The dots of a limit, and of what leads to a name."""

PLATE = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.6}
"""Behind words that cover lines; an outline around letters would turn each of them into a path of 200 bytes."""

LOOK: Any = {
    "font.family": "DejaVu Sans", "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.labelsize": 10, "axes.labelcolor": INK, "text.color": INK,
    "axes.edgecolor": "#9aa0a6", "axes.linewidth": 0.8, "axes.axisbelow": True, "figure.dpi": 110, "savefig.dpi": 160,
    "figure.facecolor": "white", "lines.linewidth": 1.8, "lines.markersize": 6.5, "legend.frameon": False,
    "legend.fontsize": 9.5, "hatch.linewidth": 0.6, "svg.hashsalt": "hcilib", "svg.fonttype": "none",
}  # fmt: skip


def sheet(ax: Axes) -> Figure:
    """The figure the axes lie on; nothing here draws on sub-figures."""
    return cast(Figure, ax.figure)


def caption(ax: Axes, *sentences: str | None) -> None:
    """Write sentences in small quiet type under the figure. Empty ones are left out."""
    text = " ".join(s for s in sentences if s)
    if text:
        sheet(ax).supxlabel(folded(text, sheet(ax).get_figwidth()), x=0.01, ha="left", fontsize=8, color=QUIET,
                           gid="caption")  # fmt: skip


def folded(text: str, inches: float) -> str:
    """A caption in lines that a figure of this width has room for."""
    return re.sub(rf"(.{{1,{int(inches * 15.5)}}})(?:\s+|$)", r"\1\n", text.replace("\n", " ")).strip()


def source_words(source: str | Iterable[str] | pd.DataFrame | None) -> str | None:
    """Where the numbers are from: names, or a table's own column ``source``."""
    if isinstance(source, pd.DataFrame):
        source = source["source"].dropna().unique() if "source" in source else None
    names = [source] if isinstance(source, str) else dict.fromkeys(map(str, source if source is not None else ()))
    return f"Source: {', '.join(names)}." if names else None


def runs_note(table: pd.DataFrame, marks: bool = True) -> str | None:
    """Return how many runs each mark has, and whether it has an interval. A figure without `marks` draws none."""
    if "n" not in table or table["n"].isna().all():
        return None
    n = table.loc[table["n"] > 0, "n"].astype(int)
    if n.empty or n.max() == 1:
        one = "one run or published value each, so significance is not tested."
        return f"Open markers: {one}" if marks else one.capitalize()
    if not (marks and table.filter(regex="(^|_)lo$").notna().any(axis=None)):
        return f"{n.max()} runs each." if n.nunique() == 1 else f"{n.min()} to {n.max()} runs each."
    runs = f"{n[n > 1].min()}" if n[n > 1].nunique() == 1 else f"{n[n > 1].min()} to {n.max()}"
    percent = f"{100 * table['confidence'].max():.0f} % " if "confidence" in table else ""
    single = " Open markers: one run, so significance is not tested." * int(n.min() == 1)
    return f"{runs} runs each with {percent}intervals.{single}"


def pattern_label(pattern: str) -> str:
    """``4k-randrw70`` as the articles say it: ``4k random 70/30``."""
    match = NAME.fullmatch(str(pattern))
    if not match:
        return str(pattern)
    mix, theta, hits, sync = match.group("mix", "theta", "hits", "sync")
    size, random = match["size"] + match["unit"].replace("m", "M"), "random" if match["random"] else ""
    share = f"{mix}/{100 - int(mix)}" if mix else match["way"]
    hot = f"(zipf{theta})" if theta else f"(zoned{hits}on{match['span']})" if hits else ""
    words = [size, random, share, hot, f"({sync[1:]})" if sync else ""]
    return " ".join(filter(None, words)) + (f" at {cap_words(match['cap'])}" if match["cap"] else "")


def grid_of(ax: Axes) -> tuple[int, int]:
    """Return the rows of panels on the sheet and the panels of the row that the axes are in."""
    place = ax.get_subplotspec()
    if place is None:
        return 1, 1
    return place.get_topmost_subplotspec().get_gridspec().nrows, place.get_gridspec().ncols


def direct_labels(ax: Axes, ends: Mapping[str, tuple[float, float, Any]], size: float = 9.5) -> None:
    """Name each line at its right end, pushed apart where they would overlap.

    Parameters
    ----------
    ends : label -> (x, y, colour) of the line's last point, in data units
    """
    to_axes = lambda x, y: ax.transLimits.transform(ax.transScale.transform((x, y)))[1]  # noqa: E731
    names = sorted(ends, key=lambda name: ends[name][1])
    wanted = np.array([to_axes(*ends[name][:2]) for name in names])
    high = sheet(ax).get_figheight() / grid_of(ax)[0]
    gap = 1.37 * size / (high * 72 * 0.72)  # a line of text as a share of the axes' height
    for name, height in zip(names, _apart(wanted, gap), strict=True):
        x, y, colour = ends[name]
        dotted = {"linewidth": 0.6, "linestyle": FINE, "color": colour}  # it leads to a name and is no curve
        ax.annotate(name, (x, y), (1.03, height), textcoords="axes fraction", color=colour, va="center", fontsize=size,
                    fontweight="bold", annotation_clip=False,
                    arrowprops={"arrowstyle": "-", "shrinkB": 5, "shrinkA": 1, **dotted})  # fmt: skip


def _apart(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Ascending positions moved as little as possible so that neighbours are `gap` apart (pool adjacent violators)."""
    room = gap * np.arange(len(wanted))
    return isotonic_regression(wanted - room).x + room if len(wanted) else wanted
