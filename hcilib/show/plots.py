"""How does a figure look? The house style, rows with their intervals, and words around a grid.

``FacetGrid.map_dataframe`` hands ``marks``, ``bars`` and ``at_right`` their rows, which they collect.
``finish`` draws them, as it knows all names of a panel.
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
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import EngFormatter, FixedLocator, LogLocator, MaxNLocator, NullFormatter, NullLocator
from scipy.optimize import isotonic_regression

from hcilib.model.metrics import FACTORS, METRICS, Metric, column_of
from hcilib.model.system import known_labels
from hcilib.say.words import pattern_words
from hcilib.show.looks import GRID, INK, QUIET, darker, looks
from hcilib.show.text import word_of

MARKS = ["layer", "name", "case", "value", "lo", "hi", "line", "full", "is_flat", "factor", "moves"]
MARKS += ["ink", "mark", "style", "size"]
"""Columns of collected marks."""
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

    For ``FacetGrid.map_dataframe``. ``finish`` draws them, and moves marks apart where they collide.

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
    data = data.dropna(subset=[case])
    if case in FACTORS and not is_row:
        data = data.sort_values(case)
    ends = data.reindex(columns=[value, f"{value}_lo", f"{value}_hi"]).astype(float)
    rows = (ends / _column(value, data).scale).set_axis(["value", "lo", "hi"], axis=1)
    extent = rows.to_numpy().ravel()
    rows["case"] = data[case].astype(object) if is_row else data[case] / _column(case, data).scale
    rows["line"] = data[joined] if isinstance(joined, str) else joined and not is_row
    rows["full"] = data[full] if full else rows["lo"].notna()
    rows = rows.astype({"line": bool, "full": bool}).assign(is_flat=value == x)
    rows["factor"] = case if case in FACTORS and not is_row else ""
    rows["moves"] = f"{value}_lo" in data and (is_row or case in FACTORS)
    look = {"ink": to_hex(color), "mark": marker, "style": linestyle, "size": size}
    _collect("marks", rows, name=label, **look)
    at = np.zeros(len(rows)) if is_row else rows["case"]
    spots = np.column_stack([np.repeat(at, 3), extent])
    spots, room = (spots[:, ::-1], "updatey") if value == x else (spots, "updatex")
    plt.gca().update_datalim(spots, **{room: not is_row})  # axes are as wide as what will be drawn
    plt.gca().autoscale_view()


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
    rows = pd.DataFrame({"case": data[y].astype(object), "words": words, "bold": data[bold] if bold else False})
    _collect("words", rows.dropna(subset=["words"]), ink=darker(color))


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
    _collect("bars", rows.astype({"case": object}), name=label, ink=to_hex(color), is_stacked=bool(left))


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
    wide = _lay_out(g, panels, y)
    notes, drawn = [note], []
    for ax, rows in panels:
        _refuse_averaged(ax, rows, x, y)
        _give_room(ax)
        is_shared = len(ax.get_shared_y_axes().get_siblings(ax)) > 1
        names = _names(ax, (g.data if is_shared else rows)[y])
        _draw_bars(ax, names)
        _draw_equal(ax, x, band)
        _set_ticks(ax.xaxis, x, rows, [])
        _set_ticks(ax.yaxis, y, rows, names)
        drawn.append(_draw_marks(ax, rows, names))
        notes += [_write_words(ax, names), _draw_arrows(ax, drawn[-1])]
    _label_axes(g, panels, wide, {"x": x, "y": y})
    _name_hues(g, [ax for ax, _ in panels], drawn, y)
    if band:
        notes += [f"Grey band: differences of at most {100 * band:g} %."]
    caption(panels[0][0], source, *_runs(g.data, pd.concat(drawn), note), *dict.fromkeys(notes))


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
    drawn += len(_collected(ax, "marks")) + len(_collected(ax, "bars"))
    if drawn < len(rows.dropna(subset=[x, y])):
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
        title = ", ".join(called(column, value) for column, value in values.items())
        ax.set_title(fill(title, int(10 * g.figure.get_figwidth() / g._ncol)))  # bold letters an inch
        panels.append((ax, rows))
    return panels


def _lay_out(g: sns.FacetGrid, panels: list[tuple[Axes, pd.DataFrame]], y: str) -> int:
    """Fill the lines of panels evenly, give names the height they need; return panels a line."""
    most = min(g._ncol, g.data[g._col_var].nunique()) if g._row_var and g._col_var else g._ncol
    fig, lines = g.figure, -(-len(panels) // most)
    wide = -(-len(panels) // lines)
    needs = [fig.get_figheight() / g._nrow] * lines
    if _is_text(g.data[y]):
        lane = 0.34 if g._hue_var not in (None, y) else 0.27
        counts = [rows[y].nunique() for _, rows in panels]
        needs = [0.5 + lane * max(counts[line * wide :][:wide]) for line in range(lines)]
    grid = fig.add_gridspec(lines, wide, height_ratios=needs)
    for n, (ax, _) in enumerate(panels):
        ax.set_subplotspec(grid[n])
    fig.set_size_inches(fig.get_figwidth() * wide / g._ncol, 0.7 + sum(needs))
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
            ax.set(**{f"{way}label": titles[n] if is_outer or len({*titles}) > 1 else ""})
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
    if not _is_text(values):
        return []
    if isinstance(ax.yaxis.get_major_formatter(), StrCategoryFormatter):
        return ax.yaxis.get_major_formatter().format_ticks(list(ax.get_yticks()))
    if isinstance(values.dtype, pd.CategoricalDtype):
        return list(values.cat.remove_unused_categories().cat.categories)
    return list(values.dropna().unique())


def _set_ticks(axis: Any, column: str, rows: pd.DataFrame, names: list) -> None:
    """Set ticks: rows by name, loads that were set, or round numbers in the shown unit."""
    (low, high), is_log = sorted(axis.get_view_interval()), axis.get_scale() == "log"
    if names:
        axis.set_ticks(range(len(names)), [called(column, name) for name in names])
        axis.axes.set_ylim(len(names) - 0.5, -0.5)
    elif column in FACTORS:
        loads = np.sort(rows[column].dropna().unique())
        at_loads = is_log or len(loads) < 8
        axis.set_major_locator(FixedLocator(list(loads)) if at_loads else MaxNLocator(integer=True))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
        if len(loads) == 1:  # room beside a single load
            axis.axes.set_xlim(loads[0] / 2.3, loads[0] * 2.3)
    elif rows[column].dtype.kind == "M":
        axis.set_major_locator(AutoDateLocator(minticks=2, maxticks=5))
        axis.set_major_formatter(ConciseDateFormatter(axis.get_major_locator()))
    else:
        if is_log:
            subs = (1,) if high / low > 200 else (1, 2, 5)
            axis.set_major_locator(LogLocator(subs=subs) if high / low > 4 else MaxNLocator(5, steps=[1, 2, 5, 10]))
            axis.set_minor_formatter(NullFormatter())
        elif axis.get_scale() == "symlog" and high - low < 9:  # its own locator has no ticks between powers
            axis.set_major_locator(MaxNLocator(5, integer=True))
        is_count = high >= 1000 and not _column(column, rows).unit
        times = "×" * (column == "ratio")
        axis.set_major_formatter(EngFormatter(sep="") if is_count else f"{{x:,.6g}}{times}")


# ---- what is drawn when all names of a panel are known


def _collect(kind: str, rows: pd.DataFrame, **look: Any) -> None:
    """Keep rows of one name on its panel, until all names of the panel are known."""
    layers = plt.gca().__dict__.setdefault(f"hci_{kind}", [])
    layers.append(rows.assign(layer=len(layers), **look))


def _collected(ax: Axes, kind: str) -> pd.DataFrame:
    """Return the rows of all names of a panel."""
    return pd.concat(ax.__dict__.get(f"hci_{kind}", [pd.DataFrame()]), ignore_index=True)


def _draw_marks(ax: Axes, rows: pd.DataFrame, names: list) -> pd.DataFrame:
    """Draw lines, intervals, and full and open marks at their rows or loads; return them with their places."""
    table = _collected(ax, "marks").reindex(columns=MARKS)
    table["at"] = (table["case"].map(names.index) if names else table["case"]).astype(float)
    moved = _moved_apart(ax, table[table["moves"].eq(True)], 0.2 / len(names) if names else 0.03)
    table.loc[moved.index, "at"] = moved
    for _, own in table.groupby("layer"):
        look: Any = own.iloc[0]
        turn = -1 if look["is_flat"] else 1
        line, sure = own[own["line"]], own.dropna(subset=["lo"])
        if look["factor"]:
            line = _interrupted(line, np.sort(rows[look["factor"]].dropna().unique()))
        path = (line["at"], line["value"])[::turn]
        ax.plot(*path, color=look["ink"], linestyle=look["style"], zorder=2)
        span = ax.hlines if look["is_flat"] else ax.vlines
        span(sure["at"], sure["lo"], sure["hi"], look["ink"], linewidth=1.5, zorder=3, gid="interval")
        dots = own.dropna(subset=["value"]).sort_values("full", ascending=False)  # as the legend has the first
        x, y = (dots["at"], dots["value"])[::turn]
        style: Any = {"marker": look["mark"], "s": look["size"] ** 2, "label": f" {look['name']}", "zorder": 4}
        is_full = dots["full"] | (look["mark"] == "|")  # which has no face
        style |= {"c": np.where(is_full, look["ink"], "white"), "linewidths": 1.5}
        style |= {} if look["mark"] == "|" else {"edgecolors": look["ink"]}
        ax.scatter(x, y, **style)
    return table


def _interrupted(line: pd.DataFrame, loads: np.ndarray) -> pd.DataFrame:
    """Return a line with a gap at each load that it lacks, unless it was measured at other loads."""
    if 2 * len(line) < len(loads):
        return line
    gaps = line.set_index("case").reindex(loads)
    return gaps.assign(at=gaps["at"].fillna(pd.Series(loads, loads)))


def _moved_apart(ax: Axes, rows: pd.DataFrame, step: float) -> pd.Series:
    """Return new places of marks that collide, or whose intervals do, apart by shares of the axis."""
    rows = rows.dropna(subset=["value"])
    turn = -1 if rows["is_flat"].any() else 1
    if turn == 1:  # single runs at a load are told apart by their lines
        rows = rows[rows.groupby("at")["lo"].transform("count") > 0]
    if rows.empty:
        return rows["at"]
    to_share = ax.transScale + ax.transLimits
    ends = (np.column_stack([rows["at"], rows[end].fillna(rows["value"])]) for end in ("lo", "hi"))
    low, high = (to_share.transform(spots[:, ::turn])[:, ::turn] for spots in ends)
    shares = pd.DataFrame({"load": rows["at"], "at": low[:, 0], "low": low[:, 1], "high": high[:, 1]})
    shares = shares.sort_values(["load", "low"])
    reach = shares.groupby("load")["high"].cummax().groupby(shares["load"]).shift() + NEAR
    crowd = (~(shares["low"] < reach)).cumsum().sort_index()  # marks that collide have one number
    number, size = crowd.groupby(crowd).cumcount(), crowd.groupby(crowd).transform("size")
    places = shares["at"].sort_index() + step * turn * (number - (size - 1) / 2)
    spots = np.column_stack([places, np.zeros(len(places))])
    return pd.Series(to_share.inverted().transform(spots[:, ::turn])[:, ::turn][:, 0], places.index)


def _draw_bars(ax: Axes, names: list) -> None:
    """Draw bars at their rows, those of several names beside each other."""
    table = _collected(ax, "bars")
    if table.empty:
        return
    most, every = table.groupby("case")["name"].nunique().max(), list(table["name"].unique())
    for _, rows in table.groupby("layer"):
        name, ink, is_stacked = rows[["name", "ink", "is_stacked"]].iloc[0]
        hues = [name] if is_stacked or most == 1 else every
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
    """Draw the line at equal and the band around it."""
    equal = 1 if x == "ratio" else 100
    if x == "ratio":
        ax.axvline(equal, color=QUIET, linewidth=1, zorder=1)
    if band:
        ax.axvspan(equal / (1 + band), equal * (1 + band), color="#9aa0a6", alpha=0.22, lw=0, zorder=0)


def _write_words(ax: Axes, names: list) -> str | None:
    """Write at the right of each row; return what bold means where something is bold."""
    words = _collected(ax, "words")
    if words.empty:
        return None
    rows = words.groupby("case")["case"]
    number, count = rows.cumcount(), rows.transform("size")
    words["at"] = words["case"].map(names.index) + (number - (count - 1) / 2) * (0.8 / count).clip(upper=0.4)
    place: Any = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": 8.5}
    for row in words.itertuples():
        look = {"color": row.ink, "fontweight": "bold" if row.bold else "normal"}
        ax.text(1.02, row.at, row.words.replace("$", r"\$"), **look, **place)
    return "Bold: significant at 5 %." if words["bold"].any() else None


def _draw_arrows(ax: Axes, table: pd.DataFrame) -> str | None:
    """Put an arrow where an interval goes beyond the axis; return what it means where there is one."""
    low, high = sorted(ax.get_xlim())
    flat = table[table["is_flat"].eq(True)]
    cut = [(0, "<", flat[flat["lo"] < low]), (1, ">", flat[flat["hi"] > high])]
    cut = [(place, arrow, rows) for place, arrow, rows in cut if len(rows)]
    look: Any = {"transform": ax.get_yaxis_transform(), "clip_on": False, "gid": "arrow", "s": 25}
    for place, arrow, rows in cut:
        ax.scatter([place] * len(rows), rows["at"], marker=arrow, c=rows["ink"], **look)
    return "Arrows: the interval goes beyond the axis." if cut else None


def _runs(data: pd.DataFrame, table: pd.DataFrame, note: str | None) -> list[str]:
    """Return how many runs an interval has, what an open mark is, and what verdicts rest on."""
    known, notes = table.dropna(subset=["value"]), []
    if known["lo"].notna().any():
        n = data["n"][data["n"] > 0] if "n" in data else pd.Series(dtype=float)
        runs = " to ".join(dict.fromkeys(f"{count:g}" for count in (n.min(), n.max()) if count > 0))
        levels = sorted(data.get("confidence", pd.Series([0.95])).dropna().unique())
        sure = " to ".join(dict.fromkeys(f"{100 * level:.3g}" for level in levels))
        notes += [f"{runs} runs each, with {sure} % intervals." if runs else f"Bars: {sure} % intervals."]
    if not (known["full"] | known["mark"].eq("|")).all() and "Open marks" not in (note or ""):
        notes += ["Open marks have no interval, so significance is not tested."]
    if "p" in data and (data["p_adjusted"] > data["p"]).any():
        notes += ["Intervals are per test. Verdicts are corrected for the number of tests."]
    return notes


def _name_hues(g: sns.FacetGrid, panels: list[Axes], drawn: list[pd.DataFrame], y: str) -> None:
    """Write names at the ends of two to four lines, else in a legend, open where all are open."""
    top: Any = {"loc": "outside upper left", "ncols": 5, "handletextpad": 0.5}
    if g.legend is not None:  # of relplot or catplot
        sns.move_legend(g, title=None, frameon=False, **top)
    if not g.hue_names or g._hue_var in (g._col_var, g._row_var, y):
        return
    if 2 <= len(g.hue_names) <= 4 and any(table["line"].any() for table in drawn):
        for ax, table in zip(panels, drawn, strict=True):
            _name_lines(ax, table, g._hue_var, 7.5 if len(panels) > 1 else 9.5)
        return
    found = [pair for ax in panels for pair in zip(*ax.get_legend_handles_labels(), strict=True)]
    found.sort(key=lambda pair: isinstance(pair[0], PathCollection))  # bars before marks
    handles = {text.strip(): handle for handle, text in found[::-1]}  # the first of each name
    shown = [name for name in g.hue_names if str(name) in handles]
    rows = [name for start in range(5) for name in shown[start::5]]  # a legend fills columns, people read rows
    g.figure.legend([handles[str(name)] for name in rows], [f" {called(g._hue_var, name)}" for name in rows], **top)


def _name_lines(ax: Axes, table: pd.DataFrame, column: str, size: float) -> None:
    """Write each name at the end of its line, moved apart where names would overlap."""
    known = table.dropna(subset=["value"])
    if known.empty:
        return
    is_end = known["line"] | ~known.groupby("layer")["line"].transform("any")
    ends = known[is_end.astype(bool)].groupby("layer").tail(1)
    to_axes = ax.transScale + ax.transLimits
    ends = ends.assign(high=to_axes.transform(ends[["at", "value"]].to_numpy(float))[:, 1]).sort_values("high")
    figure: Any = ax.figure
    inches = figure.get_figheight() / (ax.get_gridspec() or figure.add_gridspec()).nrows
    room = 0.026 * size / inches * np.arange(len(ends))
    heights = isotonic_regression(ends["high"] - room).x + room
    heights = heights - max(0, heights[-1] - 0.96)  # below the title
    for row, height in zip(ends.itertuples(), heights, strict=True):
        ink = darker(row.ink)
        dotted = {"arrowstyle": "-", "linestyle": ":", "linewidth": 0.7, "color": ink}
        look: Any = {"color": ink, "va": "center", "fontsize": size, "fontweight": "bold"}
        place: Any = {"textcoords": "axes fraction", "annotation_clip": False, "arrowprops": dotted}
        ax.annotate(called(column, row.name), (row.at, row.value), (1.03, height), **place, **look)
