"""How everything looks: one colour and marker per system through the whole repository, axes, captions, labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from functools import wraps
from textwrap import wrap
from typing import Any, ParamSpec, TypeVar, cast
from zlib import crc32

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)
from matplotlib.transforms import offset_copy
from scipy.optimize import isotonic_regression

from hcilib.model.system import known_labels
from hcilib.model.workload import NAME
from hcilib.say.words import cap_words

INK, QUIET, GRID, WARN = "#222222", "#5f6368", "#e4e6e9", "#b3261e"

# First match wins, so the narrower glob stands first. Every colour stands out from white by 3 : 1 (a page turns them
# for a dark screen, hcilib.show.report.page), and those of a figure are told apart under the common colour-vision
# deficiencies (a test simulates them). In grey and in print the mark and the dash tell what the colour does not.
SOLID, DASHED, DOTTED, MIXED = "-", (0, (5, 1.6)), (0, (1.4, 1.4)), (0, (6, 1.5, 1.2, 1.5))
LINES = {"solid": SOLID, "dashed": DASHED, "dotted": DOTTED, "mixed": MIXED}
SYSTEMS = tuple(
    row.rsplit(maxsplit=3)
    for row in """
starwind-rdma-*        #004C8C o solid
starwind-tcp-*         #2B93C4 s dashed
starwind-iscsi-*       #004C8C o solid
drbd-*                 #B97A00 D mixed
ceph-*                 #8E2A12 ^ dotted
s2d-*two-way*dedup*    #882255 P dashed
s2d-*two-way*          #332288 D solid
s2d-*dedup*            #6B6100 X dotted
s2d-nmap-mirror-parity #C870B0 v dotted
s2d-nmap-mirror        #00956B s dashed
s2d-csv-owner*         #004C8C o solid
s2d-csv-*              #B97A00 D mixed
s2d-*                  #C870B0 v mixed
lab-single             #3B6AA0 o solid
lab-mirror             #B8485A s dashed
box-raid5              #117733 o solid
box-drbd               #B97A00 D mixed
box-nvme-*             #7B52AB s dashed
box-ceph-ec            #A05FCB v dashed
box-ceph               #8E2A12 ^ dotted
box-*                  #4A4A4A X solid
*-raw                  #4A4A4A X solid
nvme-*                 #4A4A4A X solid
client                 #4A4A4A o solid
outside                #4A4A4A o solid
network                #004C8C s solid
osd-replica            #004C8C s solid
mirror                 #C870B0 v solid
unexplained            #AA4499 v solid
volume                 #4A2377 D solid
array                  #882255 P solid
osd-queue              #882255 P solid
drive-reads-first      #B97A00 ^ solid
drive-reads            #00956B < solid
osd-read               #00956B < solid
drive-writes           #8E2A12 > solid
osd-commit             #8E2A12 > solid
drive                  #8E2A12 > solid
flush                  #2B93C4 h solid
wait                   #8F8F8F X solid
measured               #004C8C o solid
gains added up         #004C8C o solid
printed                #8E2A12 D dashed
""".strip().splitlines()
)
"""Glob of a name, colour, mark, line: products, stand-ins, bare drives, then the parts of one I/O's latency, and last
the ways one curve is told, where a figure has one system."""
FINE = (0, (1, 2))
"""The dots of a limit, and of what leads to a name."""
P = ParamSpec("P")
Drawn = TypeVar("Drawn")  # an Axes, or an array of them

# No black: matplotlib leaves it out of an SVG, so that a dark page could not turn it round.
SPARE = ("#117733", "#AA4499", "#7D7D20", "#661100", "#4C78A8", "#A87900", "#332288", "#2B8C82", "#BB5566", "#111111")
MARKERS = "osD^vPX<>h"
PLATE = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.6}
"""Behind words that cover lines; an outline around letters would turn each of them into a path of 200 bytes."""
NARROW, LETTERS = 5.0, 36
"""Inches: a sheet that is narrower is a phone's (hcilib.show.report.export); so many letters a row's name has there."""

LOOK: Any = {
    "font.family": "DejaVu Sans", "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.labelsize": 10, "axes.labelcolor": INK, "text.color": INK,
    "axes.edgecolor": "#9aa0a6", "axes.linewidth": 0.8, "axes.axisbelow": True, "figure.dpi": 110, "savefig.dpi": 160,
    "figure.facecolor": "white", "lines.linewidth": 1.8, "lines.markersize": 6.5, "legend.frameon": False,
    "legend.fontsize": 9.5, "hatch.linewidth": 0.6, "svg.hashsalt": "hcilib", "svg.fonttype": "none",
}  # fmt: skip


def drawn(plot: Callable[P, Drawn]) -> Callable[P, Drawn]:
    """Draw inside the house style and leave the caller's rcParams as they were."""

    @wraps(plot)
    def styled(*args: P.args, **kwargs: P.kwargs) -> Drawn:
        with plt.rc_context({**sns.axes_style("whitegrid"), **LOOK}):
            axes = plot(*args, **kwargs)
            interactive = plt.isinteractive()
        # A notebook's backend turns interactive when the first figure is made; undone with the context, no later one
        # shows.
        plt.interactive(interactive)
        return axes

    return styled


def looks(systems: Iterable[str]) -> dict[str, tuple[str, str]]:
    """System -> (colour, marker): the table's, and for an unknown system one fixed by its name.

    No two systems of one call share a colour: where two would, the later by name takes the next spare one.
    """
    systems = list(dict.fromkeys(systems))
    chosen: dict[str, tuple[str, str]] = {}
    for name in sorted(map(str, systems), key=lambda name: (_known(name) is None, name)):
        start = _by_name(name, SPARE)  # by name, not by order: the same in every figure
        spare = [(SPARE[(start + i) % len(SPARE)], MARKERS[(start + i) % len(MARKERS)]) for i in range(len(SPARE))]
        taken = {colour for colour, _ in chosen.values()}
        known = _known(name)
        free = (look for look in ([known[:2]] if known else []) + spare if look[0] not in taken)
        chosen[name] = next(free, spare[0])
    return {name: chosen[str(name)] for name in systems}


def dash(system: str) -> Any:
    """How a system's line is drawn: a third sign beside colour and mark, which grey print keeps."""
    known, dashes = _known(str(system)), list(LINES.values())
    return known[2] if known else dashes[_by_name(str(system), dashes)]


def _by_name(name: str, choices: Sequence) -> int:
    return crc32(name.encode()) % len(choices)


def _known(name: str) -> tuple[str, str, Any] | None:
    return next(((colour, mark, LINES[line]) for glob, colour, mark, line in SYSTEMS if fnmatch(name, glob)), None)


def system_label(system: str) -> str:
    """Return the short label of params/systems, else the name itself."""
    return known_labels().get(system, str(system))


def tip(artist: Artist, ax: Axes, system: str, texts: Sequence[str] = ()) -> None:
    """Set the tooltip of each mark of an artist, in the order of its points, and the system by which a page dims it.

    Both are kept with the figure, and the report's kernel writes them into the SVG (hcilib.show.report.export).
    """
    tips = sheet(ax).__dict__.setdefault("hci_tips", {})
    artist.set_gid(f"mark-{len(tips) + 1}")
    tips[artist.get_gid()] = {"s": system, **({"t": list(texts)} if texts else {})}


def say(ax: Axes, finding: str) -> None:
    """Set the alternative text of a figure: its finding, for readers who cannot see it."""
    sheet(ax).__dict__["hci_said"] = finding


def canvas(width: float = 7.2, height: float = 4.0) -> Axes:
    """Return axes on a figure of their own, which a laptop shows at full size."""
    _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return dress(ax)


def dress(ax: Axes) -> Axes:
    """Grid and ticks set on the axes themselves: ticks are made at drawing time, when our rcParams are gone."""
    ax.tick_params(labelsize=9.5, colors=INK, length=0, which="both")
    ax.grid(True, color=GRID, linewidth=0.8)
    sns.despine(ax=ax, left=True)
    return ax


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


def count(value: float) -> str:
    """A count as an axis says it: 250k, 1.5M."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1e3:.3g}k" if size >= 1e3 else f"{value:.3g}"


def value_axis(axis, unit: str, scale: float = 1.0) -> None:
    """Counts in k and M, everything with a unit in plain numbers with thousands separators.

    `scale`: the unit's size in the unit of the axis.
    """
    show = (lambda y: f"{y:,.10g}") if unit else count
    axis.set_major_formatter(FuncFormatter(lambda y, _: show(y / scale)))


def log_axis(axis, unit: str, least: float, most: float) -> None:
    """A log axis from `least` to `most`: 1, 2 and 5 are named where there is room, every digit has its tick."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    if np.isfinite([least, most]).all() and least > 0:
        axis.axes.set(**{f"{axis.axis_name}lim": (least / 1.3, most * 1.3)})
    log_ticks(axis, least, most)
    value_axis(axis, unit)


def log_ticks(axis, least: float, most: float, scale: float = 1.0) -> None:
    """Ticks of a log axis from `least` to `most` in the shown unit, which is `scale` of the axis' own."""
    few, many = (1, 5, 2), (1, 3, 5, 2, 8, 4, 6, 1.5, 2.5)
    named = (1,) if most / least > 500 else few if most / least > 6 else many
    axis.set_major_locator(
        RoomyTicks(axis, [scale * digit * 10.0**decade for digit in named for decade in range(-9, 13)])
    )
    tens = np.log10(scale) % 1 == 0
    axis.set_minor_locator(LogLocator(subs=range(1, 10), numticks=30) if tens else NullLocator())
    axis.set_minor_formatter(NullFormatter())
    side = "bottom" if axis.axis_name == "x" else "left"
    axis.axes.tick_params(axis.axis_name, which="minor", length=3, width=0.7, color="#9aa0a6", **{side: True})


LABEL = {"x": 34, "y": 12}
"""Points that a tick's label takes along its axis."""


class RoomyTicks(FixedLocator):
    """Of the ticks of a log axis those whose labels have room on it, however long it is drawn; the first come first."""

    def __init__(self, axis, ticks: Sequence[float]) -> None:
        super().__init__(ticks)
        self.along, self.wanted = axis, ticks

    def __call__(self) -> list[float]:
        box, (least, most) = self.along.axes.bbox, sorted(self.along.get_view_interval())
        points = (box.width if self.along.axis_name == "x" else box.height) / sheet(self.along.axes).dpi * 72
        apart = LABEL[self.along.axis_name] / points * np.log(most / least)
        shown: list[float] = []
        for tick in (tick for tick in self.wanted if least <= tick <= most):
            if all(abs(np.log(tick / other)) > apart for other in shown):
                shown.append(tick)
        return sorted(shown)


class RowNames(FixedFormatter):
    """Folded on a phone's sheet."""

    def __init__(self, ax: Axes, names: Sequence[str]) -> None:
        super().__init__(list(names))
        self.ax = ax

    def __call__(self, x: float, pos: int | None = None) -> str:
        name = super().__call__(x, pos)
        if sheet(self.ax).get_figwidth() > NARROW:
            return name
        return "\n".join(line for part in name.splitlines() for line in wrap(part, LETTERS))


class Aside(Text):
    """Said where a phone's sheet has no room for it: there it is `narrow`, or nothing."""

    def __init__(self, *args, narrow: str = "", **kwargs) -> None:
        super().__init__(*args, clip_on=False, **kwargs)
        self.narrow = narrow

    def _on_phone(self) -> bool:
        return self.axes is not None and sheet(cast(Axes, self.axes)).get_figwidth() <= NARROW

    def get_visible(self) -> bool:
        return super().get_visible() and bool(self.narrow or not self._on_phone())

    def get_text(self) -> str:
        return self.narrow if self._on_phone() else super().get_text()


def aside(ax: Axes, x: float, y: float, text: str, away: Sequence[float] = (0, 0), over: Any = None, **look) -> None:
    """Words beside a place in data units, or those of `over`, and so many points away (:class:`Aside`)."""
    beside = offset_copy(over or ax.transData, sheet(ax), x=away[0], y=away[1], units="points")
    ax.add_artist(Aside(x, y, text, transform=beside, **look))


def row_axis(ax: Axes, names: Sequence[str]) -> np.ndarray:
    """One row a name, the first on top; returns their heights."""
    heights = np.arange(len(names), dtype=float)
    ax.set_yticks(heights, names)
    ax.yaxis.set_major_formatter(RowNames(ax, names))
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(False, axis="y")
    return heights


def legend(ax: Axes, handles: Sequence[Artist], columns: int = 4) -> None:
    """Above and beside the axes, so that its width takes nothing from theirs; of many names on a slim figure in fewer
    columns."""
    columns = 2 if len(handles) > columns and sheet(ax).get_figwidth() < NARROW else columns
    sheet(ax).legend(handles=handles, loc="outside upper left", ncols=columns, handletextpad=0.5)


def points(
    ax: Axes,
    at: np.ndarray,
    values: np.ndarray,
    look: tuple[str, str],
    label: str,
    told: Sequence[str],
    show: Callable[[float], str],
    along: str = "y",
    **bars: Any,
) -> None:
    """Draw rows of centre, lo and hi as marks with their intervals along an axis, open where there is none.

    A mark's tooltip has its text of `told` and its numbers as `show` writes them.
    """
    (colour, marker), (centre, lo, hi) = look, values.T
    x, y = (at, centre) if along == "y" else (centre, at)
    sure = ~np.isnan(lo)
    dot: dict[str, Any] = {"linestyle": "", "marker": marker}
    error: dict[str, Any] = {f"{along}err": [(centre - lo)[sure], (hi - centre)[sure]]}
    ax.errorbar(x[sure], y[sure], **error, fmt="none", ecolor=colour, zorder=3, **bars)
    ends = [f" [{show(low)}, {show(high)}]" if low == low else ", untested" for low, high in zip(lo, hi, strict=True)]
    for those, face, edge in ((sure, colour, 1.0), (~sure & ~np.isnan(centre), "white", 1.5)):
        [marks] = ax.plot(x[those], y[those], color=colour, mfc=face, mew=edge, zorder=4, **dot)
        tip(marks, ax, label, [f"{told[i]}: {show(centre[i])}{ends[i]}" for i in np.flatnonzero(those).tolist()])


def mark(colour: str, marker: str, label: str, hollow: bool = False) -> Line2D:
    """A point in a legend."""
    return Line2D([], [], linestyle="", marker=marker, color=colour, label=label,
                  markerfacecolor="white" if hollow else colour)  # fmt: skip


def panels(titles: Sequence[str], columns: int, width: float, height: float) -> tuple[Figure, np.ndarray]:
    """Axes with these titles in rows of `columns`, dressed; the figure is high enough for a legend and a caption."""
    columns = min(columns, len(titles))
    rows = -(-len(titles) // columns)
    size = (width * columns + 0.3, height * rows + 0.8)
    fig, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    axes = grid.ravel()[: len(titles)]
    for ax in grid.ravel()[len(titles) :]:
        ax.remove()
    for ax, title in zip(axes, titles, strict=True):
        dress(ax).set_title(title)
    return fig, axes


def nothing(ax: Axes, said: str) -> Axes:
    """A page without its figure looks broken."""
    ax.set_axis_off()
    ax.text(0, 0.5, said, transform=ax.transAxes, va="center", color=QUIET, gid="nothing")
    return ax


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


def has_colorbar(fig: Figure) -> bool:
    """Whether seaborn put a colour bar beside axes, which the constrained layout cannot move."""
    return any(ax.get_label() == "<colorbar>" for ax in fig.axes)


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


def darker(colour: str, share: float = 0.25) -> tuple[float, float, float]:
    """The colour as text: light hues on white need more ink."""
    return tuple(np.array(plt.matplotlib.colors.to_rgb(colour)) * (1 - share))
