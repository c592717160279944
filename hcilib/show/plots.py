"""How a figure looks: fixed colours, rows of a table with their intervals, words around a grid.

``FacetGrid.map_dataframe`` hands each function its rows, so nothing is looked up in drawn artists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.category import StrCategoryFormatter
from matplotlib.collections import PolyCollection
from matplotlib.dates import ConciseDateFormatter
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    EngFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from hcilib.model.metrics import FACTORS, METRICS, Metric
from hcilib.model.system import known_labels
from hcilib.show.figures import style
from hcilib.show.figures.style import LOOK, pattern_label
from hcilib.show.looks import GRID, INK, QUIET, darker, looks
from hcilib.show.text import printed_as, word_of

NEAR = 0.04
"""Of an axis: marks that are nearer to each other than this are moved apart."""
BAND: dict[str, Any] = {"color": "#9aa0a6", "alpha": 0.22, "linewidth": 0, "zorder": 0}
"""The grey band of differences that do not matter."""
TENTHS = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.6, 1.8, 2]
RATIOS = [0.2, 0.33, 0.5, 0.75, 1, 1.5, 2, 3, 5]
DECADES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
"""Ticks of ratios, by how far they reach."""
OVER = {"iodepth": "iodepth (outstanding I/Os per job)", "vms": "Number of VMs", "numjobs": "numjobs (jobs per VM)"}
"""Loads, as an axis names them."""
SEEN = {
    "cross": "Crosses mark loads without a value.",
    "bold": "Bold: significant at 5 %.",
    "arrow": "Arrows: the interval goes beyond the axis.",
}
"""Marks that a caption explains where there are any."""


def theme() -> None:
    """Set the house style for all figures that are drawn from now on.

    Examples
    --------
    >>> hci.theme()
    """
    ticks = {f"{way}tick.{key}": v for way in "xy" for key, v in (("color", INK), ("labelsize", 9.5))}
    spines = {f"axes.spines.{side}": False for side in ("left", "top", "right")}
    size = {"figure.figsize": (7.2, 4.0), "grid.color": GRID}
    sns.set_theme(style="whitegrid", rc={**LOOK, **ticks, **spines, **size})


def by(column: str, table: pd.DataFrame, **changes: Any) -> dict[str, Any]:
    """Return ``FacetGrid``'s arguments for the fixed colour, mark and line of each name.

    Parameters
    ----------
    column : str
        Whose names are told apart, such as ``system``.
    table : DataFrame
        The table that is drawn.
    changes
        Arguments of your own, which win, such as ``palette={"ceph-pve": "black"}``.

    Returns
    -------
    dict
        ``hue``, ``hue_order``, ``palette`` and ``hue_kws``.

    Examples
    --------
    >>> look = hci.by("system", hci.published().query("source == 'proxmox-2node-hci'"))
    >>> look["hue"], look["palette"]["ceph-pve"]
    ('system', '#8E2A12')
    """
    known = table[column].dropna()
    is_ordered = isinstance(known.dtype, pd.CategoricalDtype)
    names = list((known.sort_values() if is_ordered else known).unique())
    others = table["baseline"].dropna().unique() if "baseline" in table and column == "system" else ()
    chosen = looks([*names, *others])  # as in a figure that shows the baseline too
    return {
        "hue": column,
        "hue_order": names,
        "palette": {name: chosen[str(name)].colour for name in names},
        "hue_kws": {
            "marker": [chosen[str(name)].mark for name in names],
            "linestyle": [chosen[str(name)].line for name in names],
        },
    } | changes


def marks(
    data: pd.DataFrame,
    x: str,
    y: str,
    color: Any = "#0072B2",
    marker: str = "o",
    linestyle: Any = "-",
    label: str | None = None,
    joined: bool | str = True,
    full: str | None = None,
    size: float = 6.5,
) -> None:
    """Draw rows with their 95 % intervals, as open marks where there is none.

    For ``FacetGrid.map_dataframe``. ``finish`` then moves marks apart where they collide.

    Parameters
    ----------
    data : DataFrame
        Rows of one panel and name.
    x, y : str
        Columns on the axes. One has ``_lo`` and ``_hi`` beside it: it is the value. A column of
        your own may have none: its marks are open.
    color, marker, linestyle, label
        Given by the grid, as ``by`` chose them.
    joined : bool or str
        Whether a line joins the marks, or a column that says which of them it joins.
    full : str, optional
        A column that says which marks are full. Without it, those with an interval.
    size : float
        Of the marks, in points.

    Raises
    ------
    ValueError
        A metric has no interval columns, as after a mean by hand, or two rows are one mark.

    Examples
    --------
    >>> import seaborn as sns
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and vms > 1")
    >>> iops = hci.summarize(results, "iops")
    >>> g = sns.FacetGrid(iops, col="pattern", col_wrap=4, sharey=False, **hci.by("system", iops))
    >>> _ = g.map_dataframe(hci.marks, x="iodepth", y="iops").set(xscale="log", ylim=(0, None))
    """
    value, case = _value_and_case(data, x, y)
    _refuse_twice(data, value, case)
    if case in FACTORS and not _is_text(data[case]):
        data = data.sort_values(case)
    is_own = f"{value}_lo" not in data
    data = data.dropna(subset=[case])
    if is_own:
        data = data.assign(**{f"{value}_lo": np.nan, f"{value}_hi": np.nan})
    ends = data[[value, f"{value}_lo", f"{value}_hi"]].astype(float) / _printed(value, data).scale
    rows = ends.set_axis(["value", "lo", "hi"], axis=1).assign(case=data[case], line=joined)
    if isinstance(joined, str):
        rows["line"] = data[joined].astype(bool)
    rows["full"] = data[full].astype(bool) if full else rows["lo"].notna()
    if not _is_text(data[case]):
        rows["case"] = data[case].astype(float) / _printed(case, data).scale
    is_line = joined is not False and not _is_text(data[case])
    look = {"color": color, "marker": marker, "linestyle": linestyle if is_line else "", "size": size}
    ax = plt.gca()
    groups = ax.__dict__.setdefault("hci_groups", [])
    group = {"rows": rows, "look": look, "name": label, "artists": [], "is_own": is_own}
    groups.append(group | {"along": "y" if value == y else "x"})
    names = pd.concat([each["rows"]["case"] for each in groups]).unique()
    _draw(ax, groups[-1], _places(rows["case"], list(names)))


def _value_and_case(data: pd.DataFrame, x: str, y: str) -> tuple[str, str]:
    """Return the column of values, which has an interval or is the analyst's own, and the other."""
    if f"{y}_lo" not in data and (f"{x}_lo" in data or _is_text(data[y])):
        x, y = y, x
    if f"{y}_lo" not in data and y in METRICS:
        raise ValueError(
            f"marks: the table has no column {y}_lo, so nobody knows how sure a mark is. "
            f"Pool runs by hci.summarize or hci.compare, never by a mean."
        )
    return y, x


def _refuse_twice(data: pd.DataFrame, value: str, case: str) -> None:
    """Raise ValueError where two rows would be one mark."""
    factors = [name for name in FACTORS if name in data and name != case]
    keys = [case, *factors] if case in METRICS else [case]  # equal IOPS at two loads are two marks
    twice = data[data[value].notna() & data[case].notna()]
    twice = twice[twice.duplicated(keys, keep=False)]
    if twice.empty:
        return
    first = twice[(twice[keys] == twice[keys].iloc[0]).all(axis=1)].astype(str)
    ends = (value, f"{value}_lo", f"{value}_hi")
    differ = [name for name in [*factors, *first] if name not in ends and first[name].nunique() > 1]
    which = f" that differ in {differ[0]} ({', '.join(first[differ[0]].unique())})" if differ else ""
    raise ValueError(
        f"marks: {len(first)} rows{which} would be one mark at {case} {first[case].iloc[0]}. Give the column "
        f"to hue, row or col, filter the table to one value, or pool runs by hci.summarize."
    )


def _is_text(values: pd.Series) -> bool:
    return not pd.api.types.is_numeric_dtype(values.dtype) or values.dtype == bool


def _printed(column: str, rows: pd.DataFrame) -> Any:
    """Return how a column is called, scaled and printed."""
    if column == "ratio":
        return Metric("ratio", "Ratio", format="{:.3f}×")
    metrics = rows["metric"].dropna().unique() if "metric" in rows else []
    own = column in ("value", "latency_ns") and len(metrics) == 1
    return printed_as(metrics[0] if own else column, None)


def _places(cases: pd.Series, names: list) -> np.ndarray:
    """Return where each case is on its axis: numbers at themselves, names in their order."""
    if not _is_text(cases):
        return cases.to_numpy(float)
    return cases.astype(object).map({name: n for n, name in enumerate(names)}).to_numpy(float)


def _draw(ax: Axes, group: dict[str, Any], at: np.ndarray) -> None:
    """Draw the line, the intervals, and the full and open marks of one name, anew if need be."""
    for artist in group["artists"]:
        artist.remove()
    rows, look, turn = group["rows"], group["look"], slice(None, None, 1 if group["along"] == "y" else -1)
    value, sure = rows["value"].to_numpy(), rows["lo"].notna().to_numpy()
    known, line = rows["value"].notna().to_numpy(), rows["line"].to_numpy(bool)
    full = rows["full"].fillna(False).to_numpy(bool)
    [path] = ax.plot(*(at[line], value[line])[turn], color=look["color"], linestyle=look["linestyle"], zorder=2)
    bars = ax.vlines if group["along"] == "y" else ax.hlines
    ends = bars(at[sure], rows["lo"][sure], rows["hi"][sure], color=look["color"], linewidth=1.5, zorder=3)
    ends.set_gid("interval")
    dots = {
        "marker": look["marker"],
        "linestyle": "",
        "color": look["color"],
        "mew": 1.5,
        "ms": look["size"],
        "zorder": 4,
    }
    group["artists"] = [path, ends]
    for those, face in ((known & full, look["color"]), (known & ~full, "white")):
        group["artists"] += ax.plot(*(at[those], value[those])[turn], mfc=face, **dots)
    group["at"] = at


def at_right(data: pd.DataFrame, y: str, text: str, color: Any = INK, bold: str | None = None, **_: Any) -> None:
    """Write a column at the right edge of each row of names. For ``FacetGrid.map_dataframe``.

    Parameters
    ----------
    data : DataFrame
        Rows of one panel and name.
    y : str
        The column of the rows' names.
    text : str
        The column that is written: numbers as tables print them, text as it is. A row
        without a number says ``missing``, one without text says nothing.
    color : color
        Given by the grid.
    bold : str, optional
        A column of booleans: which rows are bold.

    Examples
    --------
    >>> import seaborn as sns
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read'")
    >>> best = hci.best_points(results)
    >>> g = sns.FacetGrid(best, **hci.by("system", best))
    >>> g = g.map_dataframe(hci.marks, x="pct_of_best", y="system")
    >>> _ = g.map_dataframe(hci.at_right, y="system", text="iops")
    """
    words = data[text]
    if pd.api.types.is_numeric_dtype(words):
        words = words.map(_printed(text, data).show)
        plt.gca().__dict__["hci_numbers"] = True  # they say where one is missing
    heavy = data[bold] if bold else pd.Series(False, data.index)
    told = pd.DataFrame({"case": data[y], "words": words, "bold": heavy, "color": [darker(color)] * len(data)})
    plt.gca().__dict__.setdefault("hci_at_right", []).append(told.dropna(subset=["words"]))


def bars(
    data: pd.DataFrame,
    x: str,
    y: str,
    color: Any = "#0072B2",
    label: str | None = None,
    left: str | None = None,
    text: str | None = None,
    **_: Any,
) -> None:
    """Draw a bar for each row of names, from 0 or from the column `left`. For ``FacetGrid.map_dataframe``.

    Bars of several names in one row are beside each other, unless `left` stacks them.

    Parameters
    ----------
    data : DataFrame
        Rows of one panel and name.
    x, y : str
        The column of lengths, and that of the rows' names.
    color, label
        Given by the grid.
    left : str, optional
        The column of the bars' beginnings.
    text : str, optional
        A column that is written at the bars' ends, or into the middle of stacked bars.

    Raises
    ------
    ValueError
        Two rows are one bar.

    Examples
    --------
    >>> import pandas as pd
    >>> import seaborn as sns
    >>> parts = pd.DataFrame({"system": ["a", "a"], "part": ["read", "wait"], "ms": [1, 2], "from": [0, 1]})
    >>> g = sns.FacetGrid(parts, **hci.by("part", parts))
    >>> _ = g.map_dataframe(hci.bars, x="ms", y="system", left="from")
    """
    if not left:
        _refuse_twice(data, x, y)
    scale = _printed(x, data).scale
    rows = pd.DataFrame({"case": data[y], "length": data[x].astype(float) / scale})
    rows = rows.assign(left=data[left] / scale if left else 0.0, text=data[text] if text else "")
    group = {"rows": rows, "color": color, "name": label, "is_stacked": left is not None}
    plt.gca().__dict__.setdefault("hci_bars", []).append(group)


def finish(
    g: sns.FacetGrid,
    x: str,
    y: str,
    source: str | Iterable[str] | pd.DataFrame | None = None,
    note: str | None = None,
    band: float | None = None,
) -> None:
    """Write units, ticks, names and a caption, fill rows of panels, and move colliding marks apart.

    Parameters
    ----------
    g : FacetGrid
        After ``map_dataframe``.
    x, y : str
        The columns on the axes.
    source : sequence of str or DataFrame
        For the caption: names of sources, or a table with its column ``source``.
    note : str, optional
        A sentence for the caption.
    band : float, optional
        Of ratios on x: within this share of equal, a difference does not matter (0.05).

    Raises
    ------
    ValueError
        seaborn averaged rows: a line or a bar has fewer points than rows, or an interval.

    Examples
    --------
    >>> import seaborn as sns
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read'")
    >>> table = hci.summarize(results, "lat_ns")
    >>> g = sns.FacetGrid(table, **hci.by("system", table))
    >>> _ = g.map_dataframe(hci.marks, x="iodepth", y="lat_ns")
    >>> hci.finish(g, "iodepth", "lat_ns", source=results)
    >>> g.ax.get_ylabel()
    'Mean latency (ms)'
    """
    lines = _lines(g)
    for ax in {*g.axes.flat}.difference(*lines):
        ax.remove()
    panels = dict(_panels(g))
    for ax, (_, rows) in panels.items():
        _refuse_averaged(g, ax, rows, x, y)
    _fill(g, lines, [max(_height(panels[ax][1], y, g._hue_var) for ax in line) for line in lines])
    for ax, (title, rows) in panels.items():
        ax.set_title(title, loc="left", fontweight="bold")
        is_shared = len(ax.get_shared_y_axes().get_siblings(ax)) > 1
        rows = g.data if is_shared and _is_text(rows[y]) else rows
        if _is_text(rows[y]):
            _draw_bars(ax, _names(ax, "y", rows[y]))
        _ratios(ax, x, band)
        _axis(ax, "x", x, rows)
        _axis(ax, "y", y, rows)
        _give_room(ax)
        _place(ax, rows, x, y)
        _arrows(ax)
    _label_axes(g, lines, panels, x, y)
    _name(g, list(panels), y)
    source = style.source_words(source)
    percent = f"Grey band: differences of at most {100 * band:g} %." if band else None
    seen = {mark for ax in panels for mark in ax.__dict__.get("hci_seen", ())}
    notes = [text for mark, text in SEEN.items() if mark in seen]
    notes = [_runs(g.data, x, y)] * any("hci_groups" in ax.__dict__ for ax in panels) + notes
    style.caption(lines[0][0], *notes, note, percent, source)
    g.figure.set_layout_engine("constrained")


def _runs(table: pd.DataFrame, x: str, y: str) -> str:
    """Say how many runs a mark has, and what an open mark and an interval are."""
    ends = [f"{name}_lo" for name in (x, y) if f"{name}_lo" in table]
    runs = style.runs_note(table[[*ends, *(name for name in ("n", "confidence") if name in table)]]) or ""
    if not ends:
        return f"{runs} Open markers have no interval.".strip()
    if {"p", "p_adjusted"} <= set(table) and (table["p_adjusted"] > table["p"]).any():
        return f"{runs} Intervals are per test. Verdicts are corrected for the number of tests."
    return runs


def _panels(g: sns.FacetGrid) -> Iterator[tuple[Axes, tuple[str, pd.DataFrame]]]:
    """Every panel with its title and its rows."""
    columns = [name for name in (g._row_var, g._col_var) if name]
    there = {key: ax for key, ax in (g.axes_dict or {(): g.ax}).items() if ax.figure}
    for key, ax in there.items():
        values = dict(zip(columns, key if isinstance(key, tuple) else (key,), strict=True))
        rows = g.data[np.logical_and.reduce([g.data[c] == v for c, v in values.items()])] if values else g.data
        yield ax, (", ".join(called(column, value) for column, value in values.items()), rows)


def called(column: str, value: Any) -> str:
    """Return how a figure names a value of a column. Its parts are split by commas, and ``$`` is text."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    known = word_of(column, text)
    if known is None and column in FACTORS and text.replace(".", "", 1).isdigit():
        known = f"{text} VM{'s' * (text != '1')}" if column == "vms" else f"{column} {text}"
    if known is None:
        parts = text.split(", ") if column not in ("system", "pattern") else [text]
        known = ", ".join(known_labels().get(part, pattern_label(part)) for part in parts)
    return known.replace("$", r"\$")


def _refuse_averaged(g: sns.FacetGrid, ax: Axes, rows: pd.DataFrame, x: str, y: str) -> None:
    """Raise ValueError where seaborn drew the mean of several rows."""
    drawn = sum(np.size(line.get_xdata()) for line in ax.lines) + len(ax.patches)
    drawn += sum(len(np.asarray(dots.get_offsets())) for dots in ax.collections)
    bands = [c for c in ax.collections if isinstance(c, PolyCollection) and c.get_alpha() == 0.2]
    told = sum(len(group["rows"]) for group in ax.__dict__.get("hci_bars", []))
    if bands or max(drawn, told) < len(rows.dropna(subset=[x, y])):
        raise ValueError(
            "finish: seaborn drew the mean of several rows. Pool runs by hci.summarize, give every other column in "
            "which rows differ to hue, row or col, and draw by hci.marks."
        )


def _ratios(ax: Axes, x: str, band: float | None) -> None:
    """Draw the line at equal and the band around it, and show some of both sides of it."""
    if x == "ratio":
        low, high = sorted(ax.get_xlim())
        ax.set_xlim(min(low / 1.02, 0.93 / 1.06), max(high * 1.02, 1.07 * 1.06))
        ax.axvline(1, color=QUIET, linewidth=1, zorder=1)
    if band:
        equal = 1 if x == "ratio" else 100
        ax.axvspan(equal / (1 + band), equal * (1 + band), **BAND)


def _give_room(ax: Axes) -> None:
    """Leave room above the highest mark of an axis that begins at 0, unless the analyst cut it there."""
    for way in "xy":
        low, high = getattr(ax, f"get_{way}lim")()
        most = 0.0
        for group in ax.__dict__.get("hci_groups", []):
            columns = ["value", "hi"] if group["along"] == way else ["case"]
            most = max([most, *group["rows"][columns].max(numeric_only=True)])
        if low == 0 and getattr(ax, f"get_{way}scale")() == "linear" and most <= high < 1.06 * most:
            ax.set(**{f"{way}lim": (0, 1.06 * most)})


def _lines(g: sns.FacetGrid) -> list[list[Axes]]:
    """Panels that have rows, in lines of about equal length."""
    if not g.axes_dict:
        return [[g.ax]]
    rows, columns = _order(g, g._row_var, g.row_names), _order(g, g._col_var, g.col_names)
    if rows and columns:
        return [[g.axes_dict[row, column] for column in columns] for row in rows]
    names = columns or rows
    cuts = np.array_split(np.arange(len(names)), -(-len(names) // g._ncol))
    return [[g.axes_dict[names[n]] for n in cut] for cut in cuts]


def _order(g: sns.FacetGrid, column: str | None, names: list) -> list:
    """The names of panels that have rows: a filter leaves those of a Categorical that have none."""
    return [name for name in names if g.data[column].eq(name).any()]


def _height(rows: pd.DataFrame, y: str, hue: str | None) -> float:
    """Inches that rows of names need."""
    if not _is_text(rows[y]):
        return 0.0
    lanes = rows.groupby(y)[hue].nunique().max() if hue else 1
    return 0.5 + rows[y].nunique() * (0.2 + 0.07 * lanes)


def _fill(g: sns.FacetGrid, lines: list[list[Axes]], heights: list[float]) -> None:
    """Fill every line of panels, and give rows of names the height that they need."""
    fig, wide = g.figure, max(map(len, lines))
    fig.set_figwidth(fig.get_figwidth() * wide / g._ncol)
    high = fig.get_figheight() * len(lines) / g._nrow
    fig.set_figheight(0.7 + (sum(heights) if all(heights) else high))
    ratios = heights if all(heights) else None
    grid = fig.add_gridspec(len(lines), wide, height_ratios=ratios)
    below = fig.add_gridspec(len(lines), 1, height_ratios=ratios)
    for row, line in enumerate(lines):
        is_full = all(len(each) == wide for each in lines)
        specs = [grid[row, n] for n in range(wide)] if is_full else list(below[row].subgridspec(1, len(line)))
        for ax, spec in zip(line, specs, strict=True):
            ax.set_subplotspec(spec)


def _axis(ax: Axes, way: str, column: str, rows: pd.DataFrame) -> None:
    """Ticks of an axis: rows by name, loads that were set, dates, or round numbers in the shown unit."""
    axis, values = getattr(ax, f"{way}axis"), rows[column]
    if values.dtype.kind == "M":
        axis.set_major_formatter(ConciseDateFormatter(axis.get_major_locator()))
    elif _is_text(values):
        names = _names(ax, way, values)
        axis.set_major_locator(FixedLocator(range(len(names))))
        axis.set_ticks(range(len(names)), [called(column, name) for name in names])
        ends = (-0.5, len(names) - 0.5)
        ax.set(**{f"{way}lim": ends[::-1] if way == "y" else ends})
        axis.grid(False)
        if way == "y":
            ax.hlines(range(len(names)), 0, 1, color=GRID, linewidth=0.8, zorder=0, transform=ax.get_yaxis_transform())
    elif column in FACTORS:
        loads = np.sort(values.dropna().unique())
        is_fixed = axis.get_scale() == "log" or len(loads) < 8
        axis.set_major_locator(FixedLocator(list(loads)) if is_fixed else MaxNLocator(integer=True))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
        if len(loads) == 1:  # room beside a single load
            ax.set(**{f"{way}lim": (loads[0] / 2.3, loads[0] * 2.3)})
    else:
        _value_ticks(axis, column, rows)


def _value_ticks(axis: Any, column: str, rows: pd.DataFrame) -> None:
    """Ratios and log values at round numbers, counts in k and M, all else in plain numbers."""
    low, high = sorted(axis.get_view_interval())
    if axis.get_scale() == "log":
        if column == "ratio":
            ticks = TENTHS if high / low < 3 else RATIOS if high / low < 12 else DECADES
            axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
            axis.set_minor_locator(NullLocator())
        else:
            subs = (1,) if high / low > 200 else (1, 2, 5) if high / low > 10 else (1, 1.5, 2, 3, 5, 7)
            axis.set_major_locator(LogLocator(subs=subs) if high / low > 2 else MaxNLocator(5))
        times = "×" * (column == "ratio")
        is_count = high >= 1000 and not times
        axis.set_major_formatter(EngFormatter(sep="") if is_count else FuncFormatter(lambda v, _: f"{v:g}{times}"))
        axis.set_minor_formatter(NullFormatter())
    elif axis.get_scale() != "linear":
        axis.set_major_formatter("{x:g}")
    else:
        plain = _printed(column, rows).unit or high < 1000
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.10g}") if plain else EngFormatter(sep=""))


def _names(ax: Axes, way: str, values: pd.Series) -> list:
    """Names of rows: as seaborn drew them, of a Categorical in its order, of others as they come."""
    axis, there = getattr(ax, f"{way}axis"), values.dropna()
    if isinstance(axis.get_major_formatter(), StrCategoryFormatter):
        return axis.get_major_formatter().format_ticks(axis.get_ticklocs())
    if isinstance(there.dtype, pd.CategoricalDtype):
        return list(there.cat.remove_unused_categories().cat.categories)
    return list(there.unique())


def _place(ax: Axes, rows: pd.DataFrame, x: str, y: str) -> None:
    """Put marks, bars and words at their rows; move marks apart, and interrupt lines at missing loads."""
    groups, way = ax.__dict__.get("hci_groups", []), "y" if _is_text(rows[y]) else "x"
    names = _names(ax, way, rows[y if way == "y" else x])
    case = x if groups and groups[0]["along"] == "y" else y
    for group in groups:
        _break(ax, group, rows.dropna(subset=[x, y])[case])
        group["at"] = _places(group["rows"]["case"], names)
    if groups:
        if "hci_numbers" not in ax.__dict__:
            _write_missing(ax, groups, names)
        is_named = _is_text(rows[case])
        places = [group["at"] for group in groups]
        if is_named or case in FACTORS:  # a metric on the other axis must stay where it is
            places = list(_apart(ax, groups, is_named))
        for group, moved in zip(groups, places, strict=True):
            _draw(ax, group, moved)
    told = ax.__dict__.get("hci_at_right", [])
    if told:
        part = pd.concat(told, ignore_index=True)
        number, count = part.groupby("case").cumcount(), part.groupby("case")["case"].transform("size")
        spots = _places(part["case"], names) + (number - (count - 1) / 2) * (0.8 / count).clip(upper=0.25)
        ax.__dict__.setdefault("hci_seen", set()).update({"bold"} if part["bold"].any() else ())
        for spot, (_, words, bold, color) in zip(spots, part.itertuples(index=False), strict=True):
            ax.text(1.02, spot, words.replace("$", r"\$"), transform=ax.get_yaxis_transform(), va="center", color=color,
                    fontsize=8.5, fontweight="bold" if bold else "normal")  # fmt: skip


def _draw_bars(ax: Axes, names: list) -> None:
    """Draw bars at their rows, those of several names beside each other."""
    groups = ax.__dict__.get("hci_bars", [])
    labels = list(dict.fromkeys(group["name"] for group in groups))
    all_rows = pd.concat([group["rows"].assign(name=str(group["name"])) for group in groups] or [pd.DataFrame()])
    most = all_rows.groupby("case")["name"].nunique().max() if groups else 1
    for group in groups:
        rows, share = group["rows"], 1 if group["is_stacked"] else most
        lane = labels.index(group["name"]) - (len(labels) - 1) / 2 if share > 1 else 0
        at = _places(rows["case"], names) + 0.72 * lane / share
        drawn = ax.barh(
            at,
            rows["length"],
            0.72 / share,
            rows["left"],
            color=group["color"],
            linewidth=0.8,
            edgecolor=group["color"],
        )
        inside = {"label_type": "center"} if group["is_stacked"] else {"padding": 4}
        ax.bar_label(drawn, rows["text"].tolist(), fontsize=8.5, **inside)


def _write_missing(ax: Axes, groups: list[dict[str, Any]], names: list) -> None:
    """Name in each row what has no value there."""
    quiet: dict[str, Any] = {"fontsize": 7.5, "style": "italic", "color": QUIET, "va": "center"}
    for at, name in enumerate(names):
        own = [g for g in groups if g["rows"].loc[g["rows"]["case"].eq(name), "value"].isna().any()]
        own = [group for group in own if not group["is_own"]]
        if own and _is_text(own[0]["rows"]["case"]) and own[0]["along"] == "x":
            who = ", ".join(called("system", g["name"]) for g in own if g["name"] is not None)
            text = f"missing: {who}" if who else "missing"
            ax.text(0.005, at + 0.36, text, transform=ax.get_yaxis_transform(), bbox=style.PLATE, **quiet)


def _break(ax: Axes, group: dict[str, Any], cases: pd.Series) -> None:
    """Interrupt a line at loads without a value, and put a cross there."""
    if cases.name not in FACTORS or not group["look"]["linestyle"] or _is_text(cases):
        return
    loads = np.sort(cases.unique()).astype(float)
    own = group["rows"].dropna(subset=["value"])
    absent = loads[~np.isin(loads, own["case"])]
    if not len(absent) or 2 * len(absent) > len(loads):
        return
    group["rows"] = own.set_index("case").reindex(loads).reset_index()
    group["rows"]["line"] = True
    at_bottom: Any = {"gid": "cross", "color": group["look"]["color"], "transform": ax.get_xaxis_transform()}
    ax.plot(absent, [0.02] * len(absent), "x", **at_bottom)
    ax.__dict__.setdefault("hci_seen", set()).add("cross")


def _apart(ax: Axes, groups: list[dict[str, Any]], is_named: bool) -> Iterator[np.ndarray]:
    """Yield the places of each group's marks, moved apart where marks or intervals of one case collide."""
    all_rows = pd.concat(
        [g["rows"].assign(at=g["at"], group=n, is_own=g["is_own"]) for n, g in enumerate(groups)],
        ignore_index=True,
    )
    all_rows["moved"] = all_rows["at"]
    along = 1 if groups[0]["along"] == "y" else 0
    if not is_named:  # single runs at a load are told apart by their lines
        all_rows.loc[all_rows.groupby("at")["lo"].transform("count").eq(0), "value"] = np.nan
    for at, rows in all_rows[~all_rows["is_own"]].dropna(subset=["value", "at"]).groupby("at"):
        low, high = (_share(ax, rows[end].fillna(rows["value"]), along) for end in ("lo", "hi"))
        room = NEAR / 2
        meets = (low[:, None] - room < high + room) & (low < high[:, None] + 2 * room)
        crowd = rows[meets.sum(axis=1) > 1].sort_values("group")
        lanes = np.arange(len(crowd)) - (len(crowd) - 1) / 2
        if len(crowd):
            all_rows.loc[crowd.index, "moved"] = _beside(ax, at, lanes, 1 - along, is_named)
    for n in range(len(groups)):
        yield all_rows.loc[all_rows["group"] == n, "moved"].to_numpy()


def _share(ax: Axes, values: pd.Series, way: int) -> np.ndarray:
    """Return where values are on their axis, as shares of its length."""
    points = np.ones((len(values), 2))
    points[:, way] = values
    points[:, 1 - way] = (ax.get_ylim if way == 0 else ax.get_xlim)()[0]
    return (ax.transScale + ax.transLimits).transform(points)[:, way]


def _beside(ax: Axes, at: float, lanes: np.ndarray, way: int, is_named: bool) -> np.ndarray:
    """Return places beside a row, or beside a load however its axis is scaled."""
    if is_named:
        return at + lanes * min(0.2, 0.7 / len(lanes))
    to_share = ax.transScale + ax.transLimits
    points = np.ones((len(lanes), 2))
    points[:, way] = _share(ax, pd.Series([at]), way)[0] + 0.03 * lanes
    points[:, 1 - way] = 0.5
    return to_share.inverted().transform(points)[:, way]


def _arrows(ax: Axes) -> None:
    """Put an arrow where an interval goes beyond the axis."""
    low, high = sorted(ax.get_xlim())
    for group in ax.__dict__.get("hci_groups", []):
        if group["along"] == "y":
            continue
        [_, ends, *_] = group["artists"]
        for (start, at), (end, _) in ends.get_segments():
            for is_cut, edge, arrow in ((start < low, 0, "<"), (end > high, 1, ">")):
                if is_cut:
                    look = {"marker": arrow, "color": group["look"]["color"], "ms": 5, "clip_on": False, "gid": "arrow"}
                    ax.plot([edge], [at], transform=ax.get_yaxis_transform(), **look)
                    ax.__dict__.setdefault("hci_seen", set()).add("arrow")


def _label_axes(g: sns.FacetGrid, lines: list[list[Axes]], panels: dict[Axes, Any], x: str, y: str) -> None:
    """Label each axis: once where panels have the same, x below the last line, y at the left."""
    labels: dict[str, dict[Axes, str]] = {"x": {}, "y": {}}
    for way, column in (("x", x), ("y", y)):
        texts = [getattr(ax, f"get_{way}label")() for ax in panels]
        own = next((text for text in texts if text and text not in g.data), None)  # no label of seaborn's
        for ax, (_, rows) in panels.items():
            labels[way][ax] = own or ("" if _is_text(rows[column]) else _title(rows, column))
    is_one = {way: len(set(texts.values())) == 1 for way, texts in labels.items()}
    for n, line in enumerate(lines):
        for ax in line:
            is_first, is_last = ax is line[0], n == len(lines) - 1
            ax.set_xlabel(labels["x"][ax] if is_last or not is_one["x"] else "")
            ax.set_ylabel(labels["y"][ax] if not is_one["y"] or (is_first and len(lines) == 1) else "")
            is_shared = len(ax.get_shared_x_axes().get_siblings(ax)) > 1 and len(lines) > 1
            ax.tick_params("x", labelbottom=not is_shared or is_last)
            is_shared = len(ax.get_shared_y_axes().get_siblings(ax)) > 1
            ax.tick_params("y", labelleft=not is_shared or is_first)
    [label, *_], width = labels["x"].values(), g.figure.get_figwidth() / len(lines[-1])
    if is_one["x"] and len(label) * 0.09 > 0.7 * width:
        for ax in lines[-1]:
            ax.set_xlabel(label if ax is lines[-1][0] else "", loc="left")
    if is_one["y"] and len(lines) > 1:
        g.figure.supylabel(next(iter(labels["y"].values())), fontsize=10)


def _title(table: pd.DataFrame, column: str) -> str:
    """Return the label of an axis; of ratios also the metric and the baseline."""
    what = _printed(column, table)
    if column == "ratio":
        metrics, bases = (table[name].dropna().unique() if name in table else [] for name in ("metric", "baseline"))
        label = printed_as(metrics[0], None).label if len(metrics) == 1 else "Ratio"
        return label + (f" relative to {called('system', bases[0])}" if len(bases) == 1 else "")
    label = OVER.get(column, what.label)
    return f"{label[:1].upper()}{label[1:]} ({what.unit})" if what.unit else label


def _name(g: sns.FacetGrid, panels: list[Axes], y: str) -> None:
    """Write names at the ends of two to four lines, else in a legend, with open marks where all are open."""
    top: Any = {"loc": "outside upper left", "ncols": 5, "handletextpad": 0.5, "frameon": False}
    if g.legend is not None:  # of relplot or catplot
        sns.move_legend(g, title=None, **top)
    if not g.hue_names or g._hue_var in (g._col_var, g._row_var, y):
        return
    groups = [group for ax in panels for group in ax.__dict__.get("hci_groups", [])]
    are_lines = any(group["look"]["linestyle"] for group in groups)
    if are_lines and 2 <= len(g.hue_names) <= 4:
        for ax in panels:
            label_lines(ax, g._hue_var, 7.5 if len(panels) > 1 else 9.5)
        return
    handles: list[Any] = []
    for name, color in zip(g.hue_names, g._colors, strict=True):
        has_bars = any("hci_bars" in ax.__dict__ for ax in panels)
        own = [group for group in groups if group["name"] == name and not has_bars]
        look = own[0]["look"] if own else {"marker": "s", "linestyle": ""}
        is_open = bool(own) and not any(group["rows"]["full"].any() for group in own)
        dot: Any = {"marker": look["marker"], "linestyle": look["linestyle"], "mfc": "white" if is_open else color}
        handles.append(Line2D([], [], color=color, mew=1.5, label="name", **dot))
    legend = g.figure.legend(handles=handles, **top)
    for text, name in zip(legend.get_texts(), g.hue_names, strict=True):
        text.set_text(called(g._hue_var, name))  # a label that begins with _ would be left out


def label_lines(ax: Axes, column: str, size: float = 9.5) -> None:
    """Write each name at the end of its line, in its colour, moved apart where names would overlap.

    Parameters
    ----------
    ax : Axes
        Where ``marks`` drew lines.
    column : str
        The column that the names are values of.
    size : float
        Of the letters, in points.

    Examples
    --------
    >>> import seaborn as sns
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read'")
    >>> iops = hci.summarize(results, "iops")
    >>> g = sns.FacetGrid(iops, **hci.by("system", iops)).map_dataframe(hci.marks, x="iodepth", y="iops")
    >>> hci.label_lines(g.ax, "system")
    """
    ends = {}
    for group in ax.__dict__.get("hci_groups", []):
        last = group["artists"][0].get_xydata()
        last = last[np.isfinite(last).all(axis=1)]
        if len(last):
            ends[called(column, group["name"])] = (*last[-1], darker(group["look"]["color"]))
    style.direct_labels(ax, ends, size)
