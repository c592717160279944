"""How does a figure look? The house style, rows with their intervals, and words around a grid.

``FacetGrid.map_dataframe`` hands each function its rows, so nothing is looked up in drawn artists.
What has to know all names of a panel, ``finish`` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill
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
from matplotlib.ticker import EngFormatter, FixedLocator, LogLocator, MaxNLocator, NullFormatter, NullLocator
from scipy.optimize import isotonic_regression

from hcilib.model.metrics import FACTORS, METRICS, Metric, column_of
from hcilib.model.system import known_labels
from hcilib.say.words import pattern_words
from hcilib.show.looks import GRID, INK, QUIET, darker, looks
from hcilib.show.text import word_of

NEAR = 0.04
"""Of an axis: marks that are nearer to each other than this are moved apart."""
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans", "text.color": INK, "axes.labelcolor": INK, "grid.color": GRID,
    "axes.edgecolor": "#9aa0a6", "axes.linewidth": 0.8, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.spines.left": False, "axes.spines.top": False,
    "axes.spines.right": False, "legend.frameon": False, "lines.linewidth": 1.8,
    "figure.figsize": (7.2, 4.0), "figure.dpi": 110, "svg.fonttype": "none", "svg.hashsalt": "hcilib",
}  # fmt: skip


def theme() -> None:
    """Set the house style for all figures that are drawn from now on.

    Examples
    --------
    >>> hci.theme()
    """
    sns.set_theme("notebook", "whitegrid", font_scale=0.85, rc=STYLE)


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
    own = list(looks(names).values())
    return {
        "hue": column,
        "hue_order": names,
        "palette": {name: look.colour for name, look in zip(names, own, strict=True)},
        "hue_kws": {"marker": [look.mark for look in own], "linestyle": [look.line for look in own]},
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
    is_row = _is_text(data[case])
    data = data.dropna(subset=[case]).reset_index(drop=True)  # after concat an index repeats
    if case in FACTORS and not is_row:
        data = data.sort_values(case)
    ends = data.reindex(columns=[value, f"{value}_lo", f"{value}_hi"]).astype(float)
    rows = (ends / _column(value, data).scale).set_axis(["value", "lo", "hi"], axis=1)
    rows["case"] = data[case] if is_row else data[case] / _column(case, data).scale
    rows["line"] = data[joined] if isinstance(joined, str) else joined and not is_row
    rows["full"] = data[full] if full else rows["lo"].notna()
    rows["at"] = np.arange(float(len(rows))) if is_row else rows["case"].astype(float)
    group: dict[str, Any] = {"rows": rows.astype({"line": bool, "full": bool}), "case": case, "name": label}
    group |= {"ink": color, "mark": marker, "line": linestyle, "size": size}
    group |= {"is_flat": value == x, "is_own": f"{value}_lo" not in data}
    plt.gca().__dict__.setdefault("hci_marks", []).append(group)
    _draw(plt.gca(), group)


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
    words = data[text] if _is_text(data[text]) else data[text].map(_column(text, data).show)
    told = pd.DataFrame({"case": data[y], "words": words, "bold": data[bold] if bold else False})
    told["ink"] = [darker(color)] * len(told)
    plt.gca().__dict__.setdefault("hci_words", []).append(told.dropna(subset=["words"]))


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
    """Draw a bar for each row of names, from 0 or from `left`. For ``FacetGrid.map_dataframe``.

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
    >>> columns = {"system": ["a", "a"], "part": ["read", "wait"], "ms": [1, 2], "from": [0, 1]}
    >>> parts = pd.DataFrame(columns)
    >>> g = sns.FacetGrid(parts, **hci.by("part", parts))
    >>> _ = g.map_dataframe(hci.bars, x="ms", y="system", left="from")
    """
    if not left:
        _refuse_twice(data, x, y)
    scale = _column(x, data).scale
    rows = pd.DataFrame({"case": data[y], "length": data[x] / scale})
    rows = rows.assign(left=data[left] / scale if left else 0, text=data[text] if text else "")
    rows = rows.assign(name=str(label), ink=[color] * len(rows), is_stacked=bool(left))
    plt.gca().__dict__.setdefault("hci_bars", []).append(rows.astype({"case": object}))


def finish(
    g: sns.FacetGrid,
    x: str,
    y: str,
    source: str | Iterable[str] | pd.DataFrame | None = None,
    note: str | None = None,
    band: float | None = None,
) -> None:
    """Write units, ticks, names and a caption, and move colliding marks apart.

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
    panels = _panels(g)
    for ax, rows in panels:
        _refuse_averaged(ax, rows, x, y)
        _give_room(ax)
    wide = _lay_out(g, panels, y)
    notes = [note]
    for ax, rows in panels:
        is_shared = len(ax.get_shared_y_axes().get_siblings(ax)) > 1
        rows = g.data if is_shared and _is_text(rows[y]) else rows
        names = _names(ax, rows[y]) if _is_text(rows[y]) else []
        _draw_bars(ax, names)
        _draw_equal(ax, x, band)
        for axis, column in ((ax.xaxis, x), (ax.yaxis, y)):
            _set_ticks(axis, column, rows)
        _settle(ax, rows, names)
        notes += [_write_words(ax, names), _draw_arrows(ax)]
    _label_axes(g, panels, wide, {"x": x, "y": y})
    _name_hues(g, [ax for ax, _ in panels], y)
    if band:
        notes += [f"Grey band: differences of at most {100 * band:g} %."]
    caption(panels[0][0], source, *_runs(g, note), *dict.fromkeys(notes))


def label_lines(ax: Axes, column: str, size: float = 9.5) -> None:
    """Write each name at the end of its line, moved apart where names would overlap.

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
    >>> g = sns.FacetGrid(iops, **hci.by("system", iops))
    >>> g = g.map_dataframe(hci.marks, x="iodepth", y="iops")
    >>> hci.label_lines(g.ax, "system")
    """
    known = [(group, group["rows"].dropna(subset=["value"])) for group in _groups(ax)]
    known = [(group, rows[rows["line"]] if rows["line"].any() else rows) for group, rows in known]
    ends = [(group, rows.iloc[-1][["at", "value"]].to_list()) for group, rows in known if len(rows)]
    to_axes = ax.transScale + ax.transLimits
    ends.sort(key=lambda end: end[1][1])
    wanted = np.array([to_axes.transform(end)[1] for _, end in ends])
    figure: Any = ax.figure
    high = figure.get_figheight() / (ax.get_gridspec() or figure.add_gridspec()).nrows
    room = 0.026 * size / high * np.arange(len(ends))
    heights = isotonic_regression(wanted - room).x + room if ends else wanted
    heights = heights - max(0, *heights[-1:] - 0.96)  # below the title
    for (group, end), height in zip(ends, heights, strict=True):
        ink = darker(group["ink"])
        dotted = {"arrowstyle": "-", "linestyle": ":", "linewidth": 0.7, "color": ink}
        ax.annotate(called(column, group["name"]), end, (1.03, height), textcoords="axes fraction",
                    color=ink, va="center", fontsize=size, fontweight="bold",
                    annotation_clip=False, arrowprops=dotted)  # fmt: skip


def caption(ax: Axes, source: Any, *sentences: str | None) -> None:
    """Write sentences and the source in small quiet type under the figure."""
    if isinstance(source, pd.DataFrame):
        source = source["source"].dropna().unique() if "source" in source else None
    names = [source] if isinstance(source, str) else list(source if source is not None else [])
    told = [*sentences, f"Source: {', '.join(map(str, names))}." if names else None]
    figure: Any = ax.figure
    text = fill(" ".join(filter(None, told)), int(15.5 * figure.get_figwidth()))
    figure.supxlabel(text, x=0.01, ha="left", fontsize=8, color=QUIET, gid="caption")
    figure.set_layout_engine("constrained")


def called(column: str, value: Any) -> str:
    """Return how a figure names a value of a column: parts between commas each, ``$`` as text."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    word = word_of(column, text)
    if word is None and column in FACTORS and text.replace(".", "", 1).isdigit():
        word = f"{column} {text}"
    labels = known_labels()
    parts = [labels.get(part, pattern_words(part)) for part in text.split(", ")]
    return (word or ", ".join(parts)).replace("$", r"\$")


# ---- what marks and finish refuse


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
    known = data.dropna(subset=[value, case])
    twice = known[known.duplicated(keys, keep=False)]
    if len(twice):
        differ = [name for name in factors if twice[name].nunique() > 1]
        raise ValueError(
            f"marks: {len(twice)} rows share their places on {case} and differ in {differ}. Give a "
            f"column to hue, row or col, filter to one value, or pool runs by hci.summarize."
        )


def _refuse_averaged(ax: Axes, rows: pd.DataFrame, x: str, y: str) -> None:
    """Raise ValueError where seaborn drew the mean of several rows."""
    drawn = sum(np.size(line.get_xdata()) for line in ax.lines) + len(ax.patches)
    drawn += sum(len(np.asarray(dots.get_offsets())) for dots in ax.collections)
    drawn += sum(map(len, ax.__dict__.get("hci_bars", [])))
    bands = [c for c in ax.collections if isinstance(c, PolyCollection) and c.get_alpha() == 0.2]
    if bands or drawn < len(rows.dropna(subset=[x, y])):
        raise ValueError(
            "finish: seaborn drew the mean of several rows. Pool runs by hci.summarize, give every "
            "other column in which rows differ to hue, row or col, and draw by hci.marks."
        )


# ---- panels and axes


def _panels(g: sns.FacetGrid) -> list[tuple[Axes, pd.DataFrame]]:
    """Title every panel and return it with its rows."""
    columns, panels = [name for name in (g._row_var, g._col_var) if name], []
    for key, ax in (g.axes_dict or {(): g.ax}).items():
        values = dict(zip(columns, key if isinstance(key, tuple) else (key,), strict=True))
        rows = g.data.loc[(g.data[[*values]] == pd.Series(values, dtype=object)).all(axis=1)]
        if not all(g.data[column].eq(value).any() for column, value in values.items()):
            ax.remove()  # of a category that was filtered away
            continue
        ax.set_title(", ".join(called(column, value) for column, value in values.items()))
        panels.append((ax, rows))
    return panels


def _lay_out(g: sns.FacetGrid, panels: list[tuple[Axes, pd.DataFrame]], y: str) -> int:
    """Fill the lines of panels evenly, give names the height they need; return panels a line."""
    most = min(g._ncol, g.data[g._col_var].nunique()) if g._row_var and g._col_var else g._ncol
    fig, lines = g.figure, -(-len(panels) // most)
    wide = -(-len(panels) // lines)
    is_named, lane = _is_text(g.data[y]), 0.34 if g._hue_var not in (None, y) else 0.27
    counts = [rows[y].nunique() for _, rows in panels]
    needs = [0.5 + lane * max(counts[line * wide : (line + 1) * wide]) for line in range(lines)]
    grid = fig.add_gridspec(lines, wide, height_ratios=needs if is_named else None)
    for n, (ax, _) in enumerate(panels):
        ax.set_subplotspec(grid[divmod(n, wide)])
    height = sum(needs) if is_named else fig.get_figheight() * lines / g._nrow
    fig.set_size_inches(fig.get_figwidth() * wide / g._ncol, 0.7 + height)
    return wide


def _label_axes(g: sns.FacetGrid, panels: list, wide: int, columns: dict[str, str]) -> None:
    """Label axes where a label of the same words is not beside or below."""
    for way, column in columns.items():
        given = [getattr(ax, f"get_{way}label")() for ax, _ in panels]
        own = next((text for text in given if text and text not in g.data), None)  # no name of a column
        titles = [own or _title(rows, column) for _, rows in panels]
        for n, (ax, _) in enumerate(panels):
            is_outer = n % wide == 0 if way == "y" else n + wide >= len(panels)
            is_shared = len(getattr(ax, f"get_shared_{way}_axes")().get_siblings(ax)) > 1
            text = titles[n] if is_outer or len({*titles}) > 1 else ""
            getattr(ax, f"set_{way}label")(text)
            side = {"x": "labelbottom", "y": "labelleft"}[way]
            ax.tick_params(way, **{side: is_outer or not is_shared})


def _title(rows: pd.DataFrame, column: str) -> str:
    """Return the label of an axis; of ratios also the metric and the baseline."""
    if _is_text(rows[column]):
        return ""
    text = _column(column, rows).axis
    if column == "ratio":
        metrics, bases = (rows[c].dropna().unique() if c in rows else [] for c in ("metric", "baseline"))
        text = column_of(metrics[0]).label if len(metrics) == 1 else text
        text += "".join(f" relative to {called('system', base)}" for base in bases[:1])
    return text[:1].upper() + text[1:] if text[:2].isalpha() and column not in FACTORS else text


def _column(name: str, rows: pd.DataFrame) -> Metric:
    """Return how a column is called, scaled and printed; a value is of the metric beside it."""
    metrics = rows["metric"].dropna().unique() if "metric" in rows else []
    if name == "ratio":
        return Metric("ratio", "Ratio", format="{:.3f}×")
    return column_of(metrics[0] if name in ("value", "latency_ns") and len(metrics) == 1 else name)


def _is_text(values: pd.Series) -> bool:
    return not pd.api.types.is_numeric_dtype(values.dtype) or values.dtype == bool


def _names(ax: Axes, values: pd.Series) -> list:
    """Return the names of rows: as seaborn drew them, of a Categorical in its order, or as they come."""
    if isinstance(ax.yaxis.get_major_formatter(), StrCategoryFormatter):
        return ax.yaxis.get_major_formatter().format_ticks(list(ax.get_yticks()))
    if isinstance(values.dtype, pd.CategoricalDtype):
        return list(values.cat.remove_unused_categories().cat.categories)
    return list(values.dropna().unique())


def _set_ticks(axis: Any, column: str, rows: pd.DataFrame) -> None:
    """Set ticks: rows by name, loads that were set, dates, or round numbers in the shown unit."""
    values, (low, high) = rows[column], sorted(axis.get_view_interval())
    if values.dtype.kind == "M":
        axis.set_major_formatter(ConciseDateFormatter(axis.get_major_locator()))
    elif _is_text(values):
        names = _names(axis.axes, values)
        axis.set_ticks(range(len(names)), [called(column, name) for name in names])
        axis.axes.set_ylim(len(names) - 0.5, -0.5)
    elif column in FACTORS:
        loads = np.sort(values.dropna().unique())
        if axis.get_scale() == "log" or len(loads) < 8:
            axis.set_major_locator(FixedLocator(list(loads)))
        else:
            axis.set_major_locator(MaxNLocator(integer=True))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
        if len(loads) == 1:  # room beside a single load
            axis.axes.set_xlim(loads[0] / 2.3, loads[0] * 2.3)
    else:
        if axis.get_scale() == "log":
            subs = (1,) if high / low > 200 else (1, 2, 5)
            axis.set_major_locator(LogLocator(subs=subs) if high / low > 4 else MaxNLocator(5))
            axis.set_minor_formatter(NullFormatter())
        is_count = high >= 1000 and not _column(column, rows).unit
        times = "×" * (column == "ratio")
        axis.set_major_formatter(EngFormatter(sep="") if is_count else f"{{x:,.6g}}{times}")


# ---- what is drawn when all names of a panel are known


def _groups(ax: Axes) -> list[dict[str, Any]]:
    return ax.__dict__.get("hci_marks", [])


def _draw(ax: Axes, group: dict[str, Any]) -> None:
    """Draw the line, the intervals, and the full and open marks of one name, anew if need be."""
    for artist in group.pop("artists", []):
        artist.remove()
    rows, ink, turn = group["rows"], group["ink"], -1 if group["is_flat"] else 1
    line, sure = rows[rows["line"]], rows.dropna(subset=["lo"])
    path = {"color": ink, "linestyle": group["line"], "zorder": 2}
    group["artists"] = ax.plot(*(line["at"], line["value"])[::turn], **path)
    span = ax.hlines if group["is_flat"] else ax.vlines
    ends = span(sure["at"], sure["lo"], sure["hi"], color=ink, linewidth=1.5, zorder=3, gid="interval")
    group["artists"].append(ends)
    for is_open, dots in rows.dropna(subset=["value"]).groupby(~rows["full"]):
        face = {"mfc": "white" if is_open else ink, "mew": 1.5, "ms": group["size"], "zorder": 4}
        spots = (dots["at"], dots["value"])[::turn]
        look = {"color": ink, "linestyle": "", "marker": group["mark"], "label": f" {group['name']}"}
        group["artists"] += ax.plot(*spots, **look, **face)


def _draw_bars(ax: Axes, names: list) -> None:
    """Draw bars at their rows, those of several names beside each other."""
    groups = ax.__dict__.get("hci_bars", [])
    table = pd.concat(groups) if groups else pd.DataFrame({"name": [], "case": []})
    most = table.groupby("case")["name"].nunique().max()
    for rows in groups:
        name, ink, is_stacked = rows[["name", "ink", "is_stacked"]].iloc[0]
        hues = [name] if is_stacked or most == 1 else list(table["name"].unique())
        high = 0.72 / len(hues)
        at = rows["case"].map(names.index) + high * (hues.index(name) - (len(hues) - 1) / 2)
        look = {"color": ink, "edgecolor": ink, "linewidth": 0.8, "label": f" {name}"}
        drawn = ax.barh(at, rows["length"], high, rows["left"], **look)
        place: Any = {"label_type": "center"} if is_stacked else {"padding": 4}
        ax.bar_label(drawn, rows["text"].tolist(), fontsize=8.5, **place)


def _give_room(ax: Axes) -> None:
    """Leave room above the highest mark of an axis that begins at 0."""
    for way, axis in (("x", 0), ("y", 1)):
        low, high = getattr(ax, f"get_{way}lim")()
        most = ax.dataLim.max[axis]
        if low == 0 and most <= high < 1.06 * most:
            ax.set(**{f"{way}lim": (0, 1.06 * most)})


def _draw_equal(ax: Axes, x: str, band: float | None) -> None:
    """Draw the line at equal and the band around it, and show some of both sides of it."""
    equal = 1 if x == "ratio" else 100
    if x == "ratio":
        low, high = sorted(ax.get_xlim())
        ax.set_xlim(min(low / 1.02, 0.88), max(high * 1.02, 1.14))
        ax.axvline(equal, color=QUIET, linewidth=1, zorder=1)
    if band:
        ax.axvspan(equal / (1 + band), equal * (1 + band), color="#9aa0a6", alpha=0.22, lw=0, zorder=0)


def _settle(ax: Axes, rows: pd.DataFrame, names: list) -> None:
    """Put marks at their rows, interrupt lines at missing loads, and move marks apart."""
    groups = _groups(ax)
    for group in groups:
        own, case = group["rows"], group["case"]
        if names:
            own["at"] = [float(names.index(name)) for name in own["case"]]
        elif case in FACTORS and len(own):
            loads = np.sort(rows[case].dropna().unique())
            if own["value"].count() * 2 >= len(loads):  # else it was measured at other loads
                gaps = own.set_index("case").reindex(loads)
                own = gaps.assign(at=loads.astype(float), line=own["line"].any(), full=gaps["full"].eq(True))
                group["rows"] = own.rename_axis("case").reset_index()
    sure = [group for group in groups if not group["is_own"] and (names or group["case"] in FACTORS)]
    if sure:
        _move_apart(ax, sure, 0.2 / len(names) if names else 0.03)
    for group in groups:
        _draw(ax, group)


def _move_apart(ax: Axes, groups: list[dict[str, Any]], step: float) -> None:
    """Move marks apart by shares of the axis where they or their intervals collide."""
    turn = -1 if groups[0]["is_flat"] else 1
    to_share = ax.transScale + ax.transLimits
    tables = [group["rows"].dropna(subset=["value"]) for group in groups]
    for _, rows in pd.concat(tables, keys=range(len(groups))).groupby("at"):
        if turn == 1 and rows["lo"].isna().all():
            continue  # single runs at a load are told apart by their lines
        ends = [rows[end].fillna(rows["value"]) for end in ("value", "lo", "hi")]
        spots, low, high = (to_share.transform(np.column_stack([rows["at"], end][::turn]))[:, ::turn] for end in ends)
        meets = (low[:, None, 1] < high[:, 1] + NEAR) & (low[:, 1] < high[:, None, 1] + NEAR)
        crowd = meets.sum(axis=1) > 1
        spots[crowd, 0] += step * turn * (np.arange(crowd.sum()) - (crowd.sum() - 1) / 2)
        places = to_share.inverted().transform(spots[:, ::turn])[:, ::turn][:, 0]
        for (group, row), place in zip(rows.index[crowd], places[crowd], strict=True):
            groups[group]["rows"].loc[row, "at"] = place


def _write_words(ax: Axes, names: list) -> str | None:
    """Write at the right of each row; return what bold means where something is bold."""
    if "hci_words" not in ax.__dict__:
        return None
    told = pd.concat(ax.__dict__["hci_words"], ignore_index=True)
    number, count = told.groupby("case").cumcount(), told.groupby("case")["case"].transform("size")
    lanes = (number - (count - 1) / 2) * (0.8 / count).clip(upper=0.4)
    for row, lane in zip(told.itertuples(), lanes, strict=True):
        look = {"color": row.ink, "fontsize": 8.5, "fontweight": "bold" if row.bold else "normal"}
        ax.text(1.02, names.index(row.case) + lane, row.words.replace("$", r"\$"), va="center",
                transform=ax.get_yaxis_transform(), **look)  # fmt: skip
    return "Bold: significant at 5 %." if told["bold"].any() else None


def _draw_arrows(ax: Axes) -> str | None:
    """Put an arrow where an interval goes beyond the axis; return what it means where there is one."""
    (low, high), look = sorted(ax.get_xlim()), {"ms": 5, "clip_on": False, "gid": "arrow"}
    drawn = []
    for group in (group for group in _groups(ax) if group["is_flat"]):
        rows = group["rows"]
        for place, arrow, cut in ((0, "<", rows["lo"] < low), (1, ">", rows["hi"] > high)):
            for at in rows["at"][cut]:
                ink: Any = {"color": group["ink"], "transform": ax.get_yaxis_transform(), **look}
                drawn += ax.plot(place, at, arrow, **ink)
    return "Arrows: the interval goes beyond the axis." if drawn else None


def _runs(g: sns.FacetGrid, note: str | None) -> list[str]:
    """Return how many runs an interval has, what an open mark is, and what verdicts rest on."""
    drawn = [group["rows"].dropna(subset=["value"]) for ax in g.axes.flat for group in _groups(ax)]
    known, notes = pd.concat(drawn or [pd.DataFrame({"lo": [], "full": []})]), []
    if known["lo"].notna().any():
        n = g.data["n"][g.data["n"] > 0].unique() if "n" in g.data else []
        runs = " to ".join(f"{number:g}" for number in sorted({*n})[:: max(len(n) - 1, 1)])
        percent = f"{100 * g.data['confidence'].max():.0f} % " if "confidence" in g.data else ""
        notes += [f"{runs} runs each, with {percent}intervals." if runs else f"Bars: {percent}intervals."]
    if not known["full"].all() and "Open marks" not in (note or ""):
        notes += ["Open marks have no interval, so significance is not tested."]
    if "p" in g.data and (g.data["p_adjusted"] > g.data["p"]).any():
        notes += ["Intervals are per test. Verdicts are corrected for the number of tests."]
    return notes


def _name_hues(g: sns.FacetGrid, panels: list[Axes], y: str) -> None:
    """Write names at the ends of two to four lines, else in a legend, open where all are open."""
    top: Any = {"loc": "outside upper left", "ncols": 5, "handletextpad": 0.5}
    if g.legend is not None:  # of relplot or catplot
        sns.move_legend(g, title=None, frameon=False, **top)
    if not g.hue_names or g._hue_var in (g._col_var, g._row_var, y):
        return
    has_lines = any(group["rows"]["line"].any() for ax in panels for group in _groups(ax))
    if 2 <= len(g.hue_names) <= 4 and has_lines:
        for ax in panels:
            label_lines(ax, g._hue_var, 7.5 if len(panels) > 1 else 9.5)
        return
    found = [pair for ax in panels for pair in zip(*ax.get_legend_handles_labels(), strict=True)]
    found = sorted(found[::-1], key=lambda pair: not isinstance(pair[0], Line2D))  # the first, bars before marks
    handles = {text.strip(): handle for handle, text in found}
    named = {called(g._hue_var, name): handles[str(name)] for name in g.hue_names if str(name) in handles}
    g.figure.legend(named.values(), [f" {name}" for name in named], **top)
