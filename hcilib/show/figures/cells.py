"""The house style on an analyst's own seaborn figure: colours before it is drawn, words and order after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from hcilib.model.metrics import pattern_order
from hcilib.show.figures import style
from hcilib.show.figures.loads import OVER
from hcilib.show.figures.marks import Entry, Grid, entries, measure, named, names_of, panels, refuse_averaged, word
from hcilib.show.figures.style import GRID, INK, LOOK, QUIET, darker, dash, looks, pattern_label

COLOURED = ("bar", "box", "boxen", "violin", "strip", "swarm", "count")
"""Kinds of figures that tell names apart by colour alone."""
LEAST_RANGE = 3.0
"""A log axis of values spans at least this ratio, so that it has ticks."""
DASHES: tuple[Any, ...] = ("-", style.DASHED, style.DOTTED, style.MIXED)


def theme() -> None:
    """Set the house style for all figures that are drawn from now on.

    Examples
    --------
    >>> hci.theme()
    """
    ticks = {f"{way}tick.{key}": value for way in "xy" for key, value in (("color", INK), ("labelsize", 9.5))}
    spines = {f"axes.spines.{side}": False for side in ("left", "top", "right")}
    size = {"figure.figsize": (7.2, 4.0), "grid.color": GRID}
    sns.set_theme(style="whitegrid", rc={**LOOK, **ticks, **spines, **size})


def by(column: str, table: pd.DataFrame, style: str | bool | None = None, **changes: Any) -> dict[str, Any]:
    """Return seaborn's arguments for the house's fixed colours, marks and dashes of a column.

    Parameters
    ----------
    column : the column that colours tell apart, such as ``system``
    table : the table that is drawn
    style : another column that dashes tell apart; marks are then drawn by ``intervals``. False:
        colours alone, as bars and histograms take them
    changes : arguments of your own, which win. ``kind`` is passed on, and chooses the arguments that
        this kind of figure takes; without one they are those of ``kind="line"``

    Returns
    -------
    dict : ``hue``, ``hue_order``, ``palette`` and, as far as the kind takes them, style, markers and
        dashes. seaborn draws no interval of its own.

    Examples
    --------
    >>> look = hci.by("system", hci.published().query("source == 'proxmox-2node-hci'"))
    >>> look["hue"], look["palette"]["ceph-pve"]
    ('system', '#8E2A12')
    """
    names = list(table[column].dropna().unique())
    others = table["baseline"].dropna().unique() if "baseline" in table and column == "system" else ()
    chosen, kind = looks([*names, *others]), changes.get("kind", "line")
    chosen = {name: chosen[name] for name in names}  # as in a figure that shows the baseline too
    given: dict[str, Any] = {"hue": column, "hue_order": names}
    given["palette"] = {name: colour for name, (colour, _) in chosen.items()}
    markers = {name: mark for name, (_, mark) in chosen.items()}
    lanes = 0.66 * (len(names) - 1) / max(1, len(names))
    if kind == "point":
        given |= {"markers": [*markers.values()], "linestyle": "none", "dodge": lanes, "errorbar": None}
    elif kind in COLOURED or style is False:
        given |= {"errorbar": None, "saturation": 1} if kind == "bar" else {}
    elif kind == "scatter":
        given |= {"style": column, "markers": markers}
    else:
        own = list(table[style or column].dropna().unique())
        lines = [dash(name) for name in own] if style is None else [DASHES[n % 4] for n in range(len(own))]
        dashes = {name: "" if line == "-" else line[1] for name, line in zip(own, lines, strict=True)}
        given |= {"style": style or column, "markers": style is None and markers, "dashes": dashes}
        given |= {"errorbar": None}
    return given | changes


def finish(
    g: Grid,
    source: str | Iterable[str] | pd.DataFrame | None = None,
    labels: bool | None = None,
    says: str | None = None,
    note: str | None = None,
    band: float | None = None,
) -> None:
    """Write units, names, legend, caption and alternative text, and put panels in their order.

    Units come from the columns' names. A label, title, tick or order that is not seaborn's own stays.

    Parameters
    ----------
    g : what ``sns.relplot`` or ``sns.catplot`` returned, or the Axes of ``sns.lineplot``, ...
    source : for the caption: names of sources, or the results with their column ``source``
    labels : whether names are beside the lines or points instead of in a legend. Without it, where
        there are two to four lines
    says : the alternative text, for readers who do not see the figure; else that of ``intervals``
    note : a sentence for the caption
    band : of a figure of ratios: within this share of equal, a difference does not matter (0.05)

    Raises
    ------
    ValueError : a bar or a point of a line is the mean of several rows, or two rows are one mark. The message
        says what to do

    Examples
    --------
    >>> import seaborn as sns
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> ax = sns.lineplot(results, x="iodepth", y="lat_ns", **hci.by("system", results))
    >>> hci.finish(ax, source=results)
    >>> ax.get_ylabel()
    'Mean latency (ms)'
    """
    refuse_averaged(g)
    fig, lines, legend = style.sheet(next(panels(g))[0]), _lines(g), entries(g)
    axes, single = [ax for line in lines for ax in line], max(map(len, lines)) == 1
    _drop_legend(g, fig)
    for ax in axes:
        style.dress(ax).grid(not any(isinstance(tiles, QuadMesh) for tiles in ax.collections))
    rows = {getattr(ax, f"{way}axis") for ax in axes for way in "xy" if named(getattr(ax, f"{way}axis"))}
    _place(g, fig, lines, legend)
    for way in "xy":
        columns = [getattr(ax, f"get_{way}label")() for ax in axes]
        column = next(filter(None, columns), "")
        for ax, own in zip(axes, columns, strict=True):
            axis = getattr(ax, f"{way}axis")
            (_name_rows if axis in rows else _format)(ax, way, own or column)
        _label(fig, axes, way)
    for n, line in enumerate(lines):
        for ax in line:
            _show_ticks(ax, "y", ax is line[0])
            _show_ticks(ax, "x", not single or n == len(lines) - 1)
    for ax, where in panels(g):
        _title(ax, where)
        _ratios(ax, band)
    names = {word(entry.column, entry.text): entry.colour for entry in legend}
    joined = any(_joined(line) for ax in axes for _, line, _ in _named_lines(ax, names))
    few = 2 <= len(names) <= 4 and len({entry.column for entry in legend}) == 1
    if labels or (labels is None and joined and few):
        for ax in axes:
            label_lines(ax, names, 7.5 if len(axes) > 1 else 9.5)
    elif legend and not _in_titles(g, legend):
        style.legend(axes[0], _handles(legend))
    percent = f"Grey band: differences of at most {100 * band:g} %." if band else None
    notes = fig.__dict__.get("hci_notes", [])
    style.caption(axes[0], *notes, note, percent, style.source_words(source))
    style.say(axes[0], says or fig.__dict__.get("hci_said", ""))
    fig.set_layout_engine("tight" if style.has_colorbar(fig) else "constrained")


def label_lines(ax: Axes, names: Mapping[str, Any] | None = None, size: float = 9.5) -> None:
    """Write names at the ends of their lines, or at their points, in the colour of each.

    Parameters
    ----------
    ax : where the lines are
    names : name -> its colour; else those of the legend, which is then removed
    size : of the letters, in points

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> ax = plt.figure().add_subplot()
    >>> _ = ax.plot([1, 2], [3, 4], color="#004C8C")
    >>> hci.label_lines(ax, {"StarWind RDMA": "#004C8C"})
    """
    if names is None:
        names = {word(entry.column, entry.text): entry.colour for entry in entries(ax)}
        _drop_legend(ax, None)
    ends: dict[str, tuple[float, float, Any]] = {}
    points: dict[str, tuple[float, float, Any]] = {}
    for name, line, xy in _named_lines(ax, names):
        (ends if _joined(line) else points)[name] = (*xy[-1], darker(names[name]))
    if ends:
        style.direct_labels(ax, ends, size)
    elif points:
        for way, last in zip("xy", np.max([point[:2] for point in points.values()], axis=0), strict=True):
            low, high = getattr(ax, f"get_{way}lim")()
            if getattr(ax, f"get_{way}scale")() == "linear":  # room for the names
                ax.set(**{f"{way}lim": (low, max(high, last + 0.15 * (last - low)))})
        style.point_labels(ax, points, size)


def _named_lines(ax: Axes, names: Mapping[str, Any]) -> Iterator[tuple[str, Line2D, np.ndarray]]:
    """Lines of data in the colour of a name, with their points."""
    known = {to_hex(colour): name for name, colour in names.items()}
    for line in (line for line in ax.get_lines() if line.get_transform() == ax.transData):
        xy = np.asarray(line.get_xydata(), float)
        xy = xy[np.isfinite(xy).all(axis=1)]
        if len(xy) and to_hex(line.get_color()) in known:
            yield known[to_hex(line.get_color())], line, xy


def _joined(line: Line2D) -> bool:
    return line.get_linestyle() not in ("None", "")


def _lines(g: Grid) -> list[list[Axes]]:
    """Panels in lines of about equal length, patterns in the articles' order."""
    if isinstance(g, Axes) or not g.axes_dict:
        return [[ax for ax, _ in panels(g)]]
    rows, columns = _order(g, g._row_var, g.row_names), _order(g, g._col_var, g.col_names)
    if rows and columns:
        return [[g.axes_dict[row, column] for column in columns] for row in rows]
    names = columns or rows
    cuts = np.array_split(np.arange(len(names)), -(-len(names) // g._ncol))
    return [[g.axes_dict[names[n]] for n in cut] for cut in cuts]


def _order(g: Any, column: str | None, names: list) -> list:
    """The order of panels; of patterns the articles', unless the analyst chose one."""
    if not column or list(names) != list(g.data[column].dropna().unique()):
        return list(names)
    patterns = all(isinstance(name, str) and pattern_label(name) != name for name in names)
    return pattern_order(names) if patterns else list(names)


def _drop_legend(g: Grid, fig: Any) -> None:
    """Take away seaborn's legend and the width that it added."""
    legend = g.get_legend() if isinstance(g, Axes) else g.legend
    if legend is None:
        return
    if not isinstance(g, Axes) and legend in fig.legends:
        fig.set_figwidth(fig.get_figwidth() - legend.get_window_extent().width / fig.dpi)
    legend.remove()


def _place(g: Grid, fig: Any, lines: list[list[Axes]], legend: list[Entry]) -> None:
    """Fill every line of panels, and give rows of names the height that they need."""
    all_named = all(named(line[0].yaxis) for line in lines)
    rows = [max(len(ax.get_yticks()) for ax in line) for line in lines]
    lanes = 1 if _in_titles(g, legend) else max(1, len(legend))
    heights = [0.38 + n * (0.17 + 0.06 * lanes) for n in rows] if all_named else [1.0] * len(lines)
    wide = max(map(len, lines))
    if isinstance(g, Axes):
        if all_named:
            fig.set_figheight(0.8 + sum(heights))
        return
    fig.set_figwidth(fig.get_figwidth() * wide / g._ncol)
    fig.set_figheight(0.8 + (sum(heights) if all_named else fig.get_figheight()))
    if len({len(line) for line in lines}) == 1:
        grid = fig.add_gridspec(len(lines), wide, height_ratios=heights)
        places = [[grid[n, m] for m in range(wide)] for n in range(len(lines))]
    else:
        outer = fig.add_gridspec(len(lines), 1, height_ratios=heights)
        places = [list(spec.subgridspec(1, len(line))) for spec, line in zip(outer, lines, strict=True)]
    for line, specs in zip(lines, places, strict=True):
        for ax, spec in zip(line, specs, strict=True):
            ax.set_subplotspec(spec)


def _in_titles(g: Grid, legend: list[Entry]) -> bool:
    """Whether each panel is of one entry of the legend, which its title names."""
    columns = set() if isinstance(g, Axes) else {g._row_var, g._col_var}
    return {entry.column for entry in legend} <= columns


def _format(ax: Axes, way: str, column: str) -> None:
    """Units, ticks and their names on one axis, and the words of its label."""
    axis = getattr(ax, f"{way}axis")
    if isinstance(axis.get_major_locator(), AutoDateLocator):
        axis.set_major_formatter(ConciseDateFormatter(axis.get_major_locator()))
        axis.set_label_text("")
        return
    value, what = ax.__dict__.get("hci_measure", {}).get(way, ("", None))
    what = what if what and value == column else measure(column, pd.DataFrame())
    if what.unit == "TiB" and max(axis.get_view_interval()) < 0.1:
        what = replace(what, unit="GiB", scale=1 / 1024)
    axis.set_label_text(OVER.get(column, what.axis))
    alike = getattr(ax, f"get_shared_{way}_axes")().get_siblings(ax) if column != value else ()
    loads = sorted({load for one in alike for load in one.__dict__.get("hci_loads", ())})
    log, ends = axis.get_scale() == "log", np.sort(axis.get_view_interval()) / what.scale
    if log and not loads and what.name != "ratio" and ends[1] < LEAST_RANGE * ends[0]:
        ends = np.sqrt(ends[0] * ends[1] * np.array([1 / LEAST_RANGE, LEAST_RANGE]))
        ax.set(**{f"{way}lim": tuple(ends * what.scale)})
    if axis.isDefault_majloc and what.name == "ratio" and log:
        style.ratio_ticks(axis)
    elif axis.isDefault_majloc and len(loads):
        whole = np.all(np.mod(loads, 1) == 0)
        axis.set_major_locator(FixedLocator(loads) if log else MaxNLocator(integer=whole))
        axis.set_minor_locator(NullLocator())
    elif axis.isDefault_majloc and log:
        style.log_ticks(axis, ends[0], ends[1], what.scale)
    elif axis.isDefault_majloc:
        several = way == "x" and sum(style.grid_of(ax)) > 2
        axis.set_major_locator(style.ShownTicks(what.scale, 5 if several else "auto"))
    if axis.isDefault_majfmt:
        style.value_axis(axis, what.unit or "plain" * bool(loads), what.scale)
        if what.name == "ratio":
            axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}×"))


def _name_rows(ax: Axes, way: str, column: str) -> None:
    """Names of rows as figures write them; they need no label."""
    axis = getattr(ax, f"{way}axis")
    if named(axis):  # not yet by a panel that shares it
        places = axis.get_ticklocs()
        names = [word(column, text) for text in axis.get_major_formatter().format_ticks(places)]
        axis.set_major_locator(FixedLocator(places))
        axis.set_major_formatter(style.RowNames(ax, names) if way == "y" else FixedFormatter(names))
        ends = (min(places) - 0.5, max(places) + 0.5)
        ax.set(**{f"{way}lim": ends[::-1] if axis.get_inverted() else ends})
    axis.set_label_text("")
    axis.grid(False)


def _show_ticks(ax: Axes, way: str, first: bool) -> None:
    """Tick labels, which panels with a shared axis have once (a phone has them at each)."""
    axis, side = getattr(ax, f"{way}axis"), "left" if way == "y" else "bottom"
    shared = len(getattr(ax, f"get_shared_{way}_axes")().get_siblings(ax)) > 1
    for label in axis.get_ticklabels():
        label.set_visible(True)
    axis.set_tick_params(**{f"label{side}": first or not shared})


def _label(fig: Any, axes: list[Axes], way: str) -> None:
    """Axis labels; one for all panels where they have the same."""
    labels = [getattr(ax, f"get_{way}label")() for ax in axes]
    for ax in axes:
        getattr(ax, f"{way}axis").label.set_visible(True)
    if len(axes) == 1 or len(set(labels)) > 1:
        return
    for ax in axes:
        ax.set(**{f"{way}label": ""})
    if way == "y" and labels[0]:
        fig.supylabel(labels[0], fontsize=10)
    elif labels[0]:
        axes[-1].set_xlabel(labels[0], loc="left")


def _title(ax: Axes, where: Mapping[str, Any]) -> None:
    """Name a panel by what it is of, unless the analyst named it."""
    text = ax.get_title() or ax.get_title(loc="left")
    if text in (_seaborns(where), _seaborns(dict(reversed(list(where.items()))))):
        text = ", ".join(word(*pair) for pair in where.items())
    ax.set_title("", loc="center")
    ax.set_title(text, loc="left", fontsize=LOOK["axes.titlesize"], fontweight="bold")


def _seaborns(where: Mapping[str, Any]) -> str:
    """The title that seaborn gives a panel."""
    return " | ".join(f"{column} = {value}" for column, value in where.items())


def _ratios(ax: Axes, band: float | None) -> None:
    """The line at 1 and the band around it, on the axis of ratios."""
    way = next((way for way, (_, what) in ax.__dict__.get("hci_measure", {}).items() if what.name == "ratio"), "")
    if not way:
        return
    line, span = (ax.axvline, ax.axvspan) if way == "x" else (ax.axhline, ax.axhspan)
    line(1, color=QUIET, linewidth=1, zorder=1, gid="reference")
    if band:
        span(1 / (1 + band), 1 + band, color="#9aa0a6", alpha=0.22, linewidth=0, zorder=0, gid="margin")
    low, high = sorted(getattr(ax, f"get_{way}lim")())
    ax.set(**{f"{way}lim": (min(low / 1.02, 0.93 / 1.06), max(high * 1.02, 1.07 * 1.06))})


def _handles(legend: list[Entry]) -> list[Any]:
    """A legend's entries in the house's words; where marks are of one column, the dashes of another have none."""
    made: list[Any] = []
    for entry in legend:
        look: dict[str, Any] = {"color": entry.colour, "label": word(entry.column, entry.text)}
        if not isinstance(entry.handle, Line2D):
            made.append(Patch(**look))
            continue
        look |= {"linestyle": entry.handle.get_linestyle(), "marker": entry.handle.get_marker()}
        if entry.column != legend[-1].column:  # dashes are of another column
            look |= {"linestyle": "", "marker": looks(names_of(legend))[entry.text][1]}
        made.append(Line2D([], [], **look))
    return made
