"""Intervals on an analyst's own seaborn figure: every mark is looked up in the table that was drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.category import StrCategoryFormatter
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.lines import Line2D
from seaborn import FacetGrid

from hcilib.model.metrics import FACTORS, KEYS, LISTED, METRICS, Metric, metric_of
from hcilib.model.system import known_labels
from hcilib.say.words import counted, listed, noun, sentence, share
from hcilib.say.words import value as value_of
from hcilib.show.figures import style
from hcilib.show.figures.style import QUIET, looks, pattern_label, tip
from hcilib.show.tables.columns import number, printed_as, word_of

Grid: TypeAlias = FacetGrid | Axes
ROOM = 1.2
"""So many doublings of a load, or steps, are free on each side of a single one."""


@dataclass(frozen=True)
class Entry:
    """An entry of a legend: the column that it is a value of, that value as text, its colour."""

    column: str
    text: str
    handle: Any

    @property
    def colour(self) -> str:
        """The colour of the marks that it names, as #rrggbb."""
        return _colour(self.handle)


@dataclass(frozen=True)
class Marks:
    """Marks of one colour: places along the cases and values of those `there`; `place`: from the middle name."""

    artist: Any
    at: np.ndarray
    values: np.ndarray
    there: np.ndarray
    colour: str
    marker: Any
    entry: Entry | None
    place: float


@dataclass(frozen=True)
class Panel:
    """Axes, the rows that were drawn there, and the columns on their axes."""

    ax: Axes
    rows: pd.DataFrame
    value: str
    over: str
    along: str
    title: str

    @property
    def axis(self) -> Any:
        """The axis of the cases, across the values."""
        return self.ax.xaxis if self.along == "y" else self.ax.yaxis

    @property
    def named(self) -> bool:
        """Whether the cases are names and not numbers."""
        return named(self.axis)

    @property
    def loads(self) -> np.ndarray:
        """The loads that were set, ascending; none where the axis shows names or a metric."""
        if self.named or self.over in METRICS or self.over not in self.rows:
            return np.array([])
        steps = np.sort(self.rows[self.over].dropna().unique()).astype(float)
        return steps if self.over in FACTORS or np.all(steps % 1 == 0) else np.array([])


def named(axis: Any) -> bool:
    """Whether an axis shows names and not numbers."""
    return isinstance(axis.get_major_formatter(), StrCategoryFormatter)


def panels(g: Grid) -> Iterator[tuple[Axes, dict[str, Any]]]:
    """Every panel, with the value of each column that it was made by."""
    if not isinstance(g, FacetGrid | Axes):
        raise TypeError(
            f"expected what relplot, catplot or displot returned (a FacetGrid) or Axes, not {type(g).__name__}"
        )
    if isinstance(g, Axes) or not g.axes_dict:
        yield (g if isinstance(g, Axes) else g.ax), {}
        return
    names = [name for name in (g._row_var, g._col_var) if name]
    for key, ax in g.axes_dict.items():
        yield ax, dict(zip(names, key if len(names) == 2 else (key,), strict=True))


def entries(g: Grid) -> list[Entry]:
    """What the legend of a figure names, in its order."""
    legend = g.get_legend() if isinstance(g, Axes) else g.legend
    if legend is None:
        return []
    column, named = legend.get_title().get_text(), []
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        unmarked = not isinstance(handle, Line2D) or handle.get_marker() in ("", "None", None)
        if unmarked and handle.get_linewidth() == 0:  # seaborn's heading of the entries below
            column = text.get_text()
        else:
            named.append(Entry(column, text.get_text(), handle))
    return named


def names_of(legend: list[Entry]) -> list[str]:
    """The values of the first column in a legend: those that have colours."""
    return [entry.text for entry in legend if entry.column == legend[0].column]


def word(column: str, value: Any) -> str:
    """A value of a column as a figure names it; of systems and patterns that an analyst joined by commas each."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if (known := word_of(column, text)) is not None:
        return known
    if column in FACTORS and text.replace(".", "", 1).isdigit():
        return f"{text} VM{'s' * (text != '1')}" if column == "vms" else f"{column} {text}"
    parts = text.split(", ") if column not in ("system", "pattern") else [text]
    return ", ".join(known_labels().get(part, pattern_label(part)) for part in parts)


def called(entry: Entry) -> str:
    """Return how a sentence calls an entry of a legend: a system by its name, anything else in quotes."""
    name = word(entry.column, entry.text)
    return name if entry.column == "system" else f"“{name}”"


def shown_columns(g: Grid) -> dict[str, str]:
    """The column on each axis, by the label that seaborn gave it."""
    axes = [ax for ax, _ in panels(g)]
    x, y = ([label for ax in axes if (label := getattr(ax, name)())] for name in ("get_xlabel", "get_ylabel"))
    return {"x": x[0] if x else "", "y": y[0] if y else ""}


DIFFERS = ("higher", "lower", "regression", "improvement", "changed")
"""Verdicts of a difference that a test showed."""


def intervals(
    g: Grid,
    table: pd.DataFrame,
    value: str,
    dodge: float = 0.0,
    values: bool = False,
    references: Sequence[str] = (),
) -> None:
    """Draw the 95 % interval of every mark, and single runs as open marks.

    Call it after the scales are set and before ``finish``. It also writes the tooltips, the number of
    runs for the caption and an alternative text, and it marks loads without a value.

    Parameters
    ----------
    g : what ``sns.relplot`` or ``sns.catplot`` returned, or the Axes of ``sns.lineplot``, ...
    table : the table that was drawn, with the columns `value`, ``<value>_lo`` and ``<value>_hi``;
        ``n`` is the number of runs of a row. A column of your own may have neither end: all its
        marks are open
    value : the column on one of the axes
    dodge : how far neighbours are moved apart where intervals would cover each other, in doublings of
        the load, or in its steps on a linear axis
    values : whether each value is written at the right edge of its row, or beside its mark
    references : systems that are shown for scale and not ranked: the caption names them, and the
        alternative text calls none of them best

    Raises
    ------
    ValueError : a column is missing, or a mark is no row of the table because seaborn averaged
        several. The message names the column in which they differ.

    Examples
    --------
    >>> import seaborn as sns
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and vms > 1")
    >>> iops = hci.summarize(results, "iops")
    >>> look = hci.by("system", iops)
    >>> g = sns.relplot(iops, x="iodepth", y="iops", col="pattern", col_wrap=4, kind="line", **look)
    >>> hci.intervals(g, iops, "iops")
    """
    ends = [f"{value}_lo", f"{value}_hi"]
    own = value in table and not set(ends) & set(table)
    if own:
        table = table.assign(**dict.fromkeys(ends, np.nan))
    absent = [name for name in (value, *ends) if name not in table]
    if absent:
        raise ValueError(
            f"intervals: the table has no column {absent[0]}; it has {', '.join(map(str, table))}. "
            f"summarize and compare return a value with its _lo and _hi."
        )
    shown = shown_columns(g)
    if value not in shown.values():
        raise ValueError(
            f"intervals: no axis shows {value}; they show {shown['x']!r} and {shown['y']!r}. "
            f"Call intervals before the axes get other labels."
        )
    along, other = ("y", "x") if shown["y"] == value else ("x", "y")
    legend, drawn, notes = entries(g), [], []
    for ax, where in panels(g):
        here = table[np.all([table[name] == v for name, v in where.items()], axis=0)] if where else table
        here = here[~here.astype(str).duplicated().to_numpy()].reset_index(drop=True)
        title, lanes = ", ".join(word(*pair) for pair in where.items()), {}
        panel = Panel(ax, here, value, shown[other], along, title)
        ax.__dict__["hci_measure"] = {along: (value, measure(value, here))}
        ax.__dict__["hci_loads"] = panel.loads
        for marks, part in _matched(panel, legend):
            drawn.append(_draw(panel, marks, part, dodge, values).assign(panel=title))
            notes.append(_gaps(panel, marks, dodge))
            if panel.named and marks.entry and len(marks.at):
                lanes[marks.entry.text] = marks.at[0] - round(marks.at[0])
        _missing_rows(panel, legend, lanes)
        _make_room(panel)
    fig = style.sheet(next(panels(g))[0])
    if {"p", "p_adjusted"} <= set(table) and (table["p_adjusted"] > table["p"]).any():
        notes.append("Intervals are per test. Verdicts are corrected for the number of tests.")
    runs = style.runs_note(table)
    fig.__dict__["hci_notes"] = [runs, "Open markers have no interval." if own else None, *dict.fromkeys(notes)]
    points, what = pd.concat(drawn, ignore_index=True) if drawn else pd.DataFrame(), measure(value, table)
    if len(points) and not what.better and "metric" in table and table["metric"].nunique() > 1:
        points["name"] = points["panel"] + " " + points["name"]  # one range would mix units
    points, aside = _ranked(what, points, [word("system", name) for name in references])
    fig.__dict__["hci_notes"].append(aside)
    fig.__dict__["hci_said"] = "\n".join(filter(None, [_finding(what, points), aside])) if drawn else ""


def measure(value: str, rows: pd.DataFrame) -> Metric:
    """How a column is labelled and printed; by the column ``metric`` where a table has several."""
    names = list(rows["metric"].dropna().unique()) if "metric" in rows and value not in METRICS else []
    known = [metric_of(name) for name in names]
    if value == "ratio":
        bases = list(rows["baseline"].dropna().unique()) if "baseline" in rows else []
        base = f" relative to {word('system', bases[0])}" if len(bases) == 1 else ""
        label = known[0].label if len(known) == 1 else "Ratio"
        return Metric(value, label + base, "", "", 1, "{:.3f}×")
    if known and value in ("value", "latency_ns"):
        alike = {(what.unit, what.scale) for what in known}
        if len(alike) == 1:
            label = LISTED["latency_ns"].label if known[0].unit == "ms" else "Value"
            return known[0] if len(known) == 1 else replace(known[0], name=value, label=label)
    what = printed_as(value, None)
    return replace(what, label=what.label[:1].upper() + what.label[1:]) if what.unit else metric_of(value)


def _matched(panel: Panel, legend: list[Entry]) -> Iterator[tuple[Marks, pd.DataFrame]]:
    """Marks of a panel, each group with its rows in the order of its marks."""
    groups = list(_groups(panel, legend))
    there = Counter(spot for marks in groups for spot in zip(marks.at, marks.values, strict=True))
    taken: Counter = Counter()
    for marks in groups:
        own = _own_rows(panel.rows, marks.entry)
        places = []
        for spot in zip(marks.at, marks.values, strict=True):
            case = own[_at(panel, own, spot[0])]
            same = case.index[np.isclose(case[panel.value].astype(float), spot[1], rtol=1e-9, atol=0)]
            if len(same) == 0 or len(same) > there[spot]:
                raise _unlike(panel, case, spot)
            places.append(same[taken[spot] % len(same)])
            taken[spot] += 1
        yield marks, panel.rows.loc[places]


def _groups(panel: Panel, legend: list[Entry]) -> Iterator[Marks]:
    """Marks that seaborn drew in a panel, by artist and colour."""
    ax, values = panel.ax, 1 if panel.along == "y" else 0
    named = {entry.colour: entry for entry in reversed(legend)}
    for line in ax.get_lines():
        data = line.get_transform() == ax.transData and not line.get_gid() and np.size(line.get_xdata())
        if data and (_colour(line) in named or not named):
            yield _group(line, line.get_xydata(), values, _colour(line), line.get_marker(), legend)
    for dots in [c for c in ax.collections if isinstance(c, PathCollection)]:
        xy, faces = np.asarray(dots.get_offsets()), [to_hex(face) for face in np.atleast_2d(dots.get_facecolor())]
        colours = np.array(faces if len(faces) == len(xy) else faces[:1] * len(xy))
        for colour in dict.fromkeys(colours):
            first = int(np.argmax(colours == colour)) % len(dots.get_paths())
            yield _group(dots, xy[colours == colour], values, colour, dots.get_paths()[first], legend)
    for bars in [c.patches for c in ax.containers if isinstance(c, BarContainer) and c.patches]:
        ends = [b.get_height() + b.get_y() if values else b.get_width() + b.get_x() for b in bars]
        middles = [b.get_center()[1 - values] for b in bars]
        xy = np.column_stack([middles, ends] if values else [ends, middles])
        if not bars[0].get_gid():
            yield _group(bars, xy, values, _colour(bars[0]), "", legend)


def _colour(artist: Any) -> str:
    """The colour of a line or a bar as #rrggbb."""
    face = hasattr(artist, "get_facecolor")
    return to_hex(artist.get_facecolor() if face else artist.get_color())


def _group(artist, xy, values: int, colour: str, marker: Any, legend: list[Entry]) -> Marks:
    """Marks that have a value, with their entry of the legend and their place among its names."""
    there, names = np.isfinite(xy[:, values]), names_of(legend)
    order = [entry.colour for entry in legend[: len(names)]]
    entry = legend[order.index(colour)] if colour in order else None
    place = order.index(colour) - (len(order) - 1) / 2 if entry else 0.0
    if isinstance(marker, str) and marker in ("", "None"):
        marker = looks(names)[entry.text][1] if entry else "o"
    return Marks(artist, xy[there, 1 - values], xy[there, values], there, colour, marker, entry, place)


def _own_rows(rows: pd.DataFrame, entry: Entry | None) -> pd.DataFrame:
    """The rows that an entry of the legend names; all where it names no column of the table."""
    if entry is None or entry.column not in rows:
        return rows
    own = rows[_texts(rows[entry.column]) == entry.text]
    return own if len(own) else rows


def _texts(values: pd.Series) -> np.ndarray:
    """Values as seaborn writes them."""
    return np.array([f"{v:g}" if isinstance(v, float) else str(v) for v in values], dtype=object)


def _at(panel: Panel, rows: pd.DataFrame, place: float) -> np.ndarray:
    """Which of the rows are of the case at a place on the axis."""
    if panel.over not in rows:
        return np.full(len(rows), True)
    if panel.named:
        [name] = panel.axis.get_major_formatter().format_ticks([round(place)])
        return (_texts(rows[panel.over]) == name) | (rows[panel.over].astype(str) == name).to_numpy()
    return np.isclose(pd.to_numeric(rows[panel.over], errors="coerce").astype(float), place, rtol=1e-9)


def _unlike(panel: Panel, case: pd.DataFrame, spot: tuple[float, float]) -> ValueError:
    """Why a mark is no row of the table."""
    known = [name for name in (*FACTORS, *KEYS) if name in case]
    own = [name for name in case if name not in (*known, *METRICS, "n") and not name.endswith(("_lo", "_hi"))]
    texts = case.astype(str)
    differ = [name for name in (*known, *own) if name != panel.value and texts[name].nunique() > 1]
    if not differ and len(case) > 1:
        return ValueError(
            f"One mark is the mean of {len(case)} rows that differ in no factor. Summarize "
            f"them first, or draw each with estimator=None."
        )
    if not differ:
        where = f" at {panel.over} {spot[0]:g}" if panel.over else ""
        return ValueError(
            f"intervals: the figure shows {panel.value} {spot[1]:g}{where}, which is no row of the "
            f"table. Give intervals the table that was drawn."
        )
    name = differ[0]
    return ValueError(
        f"One mark is the mean of {len(case)} rows, which differ in {name} "
        f"({', '.join(dict.fromkeys(texts[name]))}). Give {name} to hue, style, col or row, or filter "
        f"the table to one {name}."
    )


# ---- Marks that are no row


def refuse_averaged(g: Any) -> None:
    """Raise ValueError where a bar or a point of a line is the mean of several rows, or where two are one mark.

    Of Axes nobody knows the rows, so there an interval of seaborn's own shows it.
    """
    of_panels, legend = list(panels(g)), entries(g)
    known = isinstance(g, FacetGrid) and {g._x_var, g._y_var} <= set(g.data)
    for ax, where in of_panels:
        if "hci_measure" in ax.__dict__:  # `intervals` found a row for each mark
            continue
        if _has_own_interval(ax):
            raise ValueError(f"finish: {OWN_INTERVAL} {REMEDY}")
        if ax.collections or not all(isinstance(part, BarContainer) for part in ax.containers):
            continue  # boxes, violins and dots show several rows
        along = "x" if named(ax.yaxis) and not named(ax.xaxis) else "y"
        value, over = (g._x_var, g._y_var)[:: 1 if along == "x" else -1] if known else ("", "")
        panel = Panel(ax, pd.DataFrame(), value, over, along, "")
        groups = [group for group in _groups(panel, legend) if not _is_stepped(group.artist)]
        twice = any(len(group.at) > len(set(group.at)) for group in groups)
        if not known:
            if twice:
                raise ValueError(f"finish: two marks are at one place. {REMEDY}")
            continue
        rows = g.data[np.all([g.data[name] == v for name, v in where.items()], axis=0)] if where else g.data
        case = [over, *dict.fromkeys(entry.column for entry in legend if entry.column in rows)]
        rows = rows.dropna(subset=[value, *case])
        same = rows[rows.duplicated(case, keep=False)]
        if len(same) and groups and (twice or sum(len(group.at) for group in groups) < len(rows)):
            first = same[(same[case] == same[case].iloc[0]).all(axis=1)]
            raise _unlike(replace(panel, rows=rows), first, (np.nan, np.nan))


def _is_stepped(artist: Any) -> bool:
    return isinstance(artist, Line2D) and artist.get_drawstyle() != "default"


OWN_INTERVAL = "seaborn drew an interval of its own, so a mark is the mean of several rows."
REMEDY = (
    "Pool runs by hci.summarize first. Give every other column in which rows differ to hue, style, col or row, "
    "or filter the table to one value. hci.intervals draws the intervals."
)


def _has_own_interval(ax: Axes) -> bool:
    """Whether seaborn drew a band around a line, or a line across a bar's end."""
    lines = [line for line in ax.get_lines() if line.get_transform() == ax.transData and not line.get_gid()]
    bands = [c for c in ax.collections if isinstance(c, PolyCollection) and c.get_alpha() == 0.2]
    colours = {_colour(line) for line in lines}
    if any(to_hex(face) in colours for band in bands for face in np.atleast_2d(band.get_facecolor())):
        return True
    bars = [bar.get_center() for c in ax.containers if isinstance(c, BarContainer) for bar in c.patches]
    for line in lines:
        xy = np.asarray(line.get_xydata(), float)
        xy = xy[np.isfinite(xy).all(axis=1)]
        for start, step in zip(xy[:-1], np.diff(xy, axis=0), strict=True):
            for way in np.flatnonzero((step == 0) & (step[::-1] != 0)):  # straight along the bar
                if any(np.isclose(start[way], middle[way]) for middle in bars):
                    return True
    return False


def _draw(panel: Panel, marks: Marks, part: pd.DataFrame, dodge: float, values: bool) -> pd.DataFrame:
    """Draw one group with its intervals; returns what it shows, a row a mark."""
    ax, what, told = panel.ax, measure(panel.value, panel.rows), _cases(panel, part)
    ends = part[[panel.value, f"{panel.value}_lo", f"{panel.value}_hi"]].to_numpy(float)
    single = np.isnan(ends[:, 1])
    one = len(set(told)) == 1 and panel.named
    name = word(marks.entry.column, marks.entry.text) if marks.entry else told[0] if one else ""
    at = _moved(panel, marks, marks.at, dodge)
    several = "metric" in part and panel.rows["metric"].nunique() > 1
    tips = [f"{word('metric', m)}, {text}" for m, text in zip(part["metric"], told, strict=True)] if several else told
    tips = [panel.title if text == name and panel.title else text for text in tips]
    if isinstance(marks.artist, list):
        ends_of: dict[str, Any] = {f"{panel.along}err": np.abs(ends[:, 1:] - ends[:, :1]).T}
        x, y = (at, ends[:, 0]) if panel.along == "y" else (ends[:, 0], at)
        ax.errorbar(x, y, **ends_of, fmt="none", ecolor=style.INK, elinewidth=1.2, capsize=3, zorder=3)
        bars = [bar for bar, known in zip(marks.artist, marks.there, strict=True) if known]
        for bar, text, centre, alone in zip(bars, tips, ends[:, 0], single, strict=True):
            bar.set(edgecolor=marks.colour, facecolor="white" if alone else marks.colour)
            tip(bar, ax, name, [f"{text}: {value_of(what, centre)}"])
    else:
        look, bars_like = (marks.colour, marks.marker), {"elinewidth": 1.2, "capsize": 3 if panel.along == "y" else 0}
        show = partial(value_of, what)
        style.points(ax, at, ends, look, name, tips, show, panel.along, **bars_like)
        if isinstance(marks.artist, Line2D):
            marks.artist.set_marker("")
            tip(marks.artist, ax, name)
        elif marks.artist.axes:
            marks.artist.remove()
    if values:
        _write(panel, at, ends, marks.colour, what)
    shown = pd.DataFrame({"name": name, "at": told, "value": ends[:, 0]})
    of_system = marks.entry.column == "system" if marks.entry else one and panel.over == "system"
    shown = shown.assign(of_system=of_system, metric=part["metric"].to_numpy() if several else "")
    tested = part["verdict"].isin(DIFFERS).to_numpy() & ~single if "verdict" in part else False
    return shown.assign(shown=tested, single=single)


def _cases(panel: Panel, part: pd.DataFrame) -> list[str]:
    """Where each mark is, in words: its load or its case."""
    if panel.over not in part:
        return [""] * len(part)
    if panel.over not in FACTORS and pd.api.types.is_numeric_dtype(part[panel.over]):
        what = measure(panel.over, part)
        if what.unit == "TiB" and part[panel.over].max() < 0.1:
            what = replace(what, unit="GiB", scale=1 / 1024)
        unit = f"{what.unit} usable" if panel.over == "usable_tib" else what.unit or what.label
        told = [f"{what.show(v)} {unit}" for v in part[panel.over]]
        loads = part.get("iodepth", pd.Series(np.nan, part.index))
        told = [f"iodepth {n:g}, {text}" if n == n else text for n, text in zip(loads, told, strict=True)]
    else:
        told = [word(panel.over, v) for v in part[panel.over]]
    return told


def _moved(panel: Panel, marks: Marks, at: np.ndarray, dodge: float) -> np.ndarray:
    """Loads beside those of the other names, where intervals would cover each other."""
    loads, known = panel.loads, panel.rows[f"{panel.value}_lo"].notna().any()
    if not (dodge and known and len(loads)):
        return at
    log = panel.axis.get_scale() == "log"
    step = dodge * marks.place * (1.0 if len(loads) > 1 else 3.0 * ROOM)
    return at * 2**step if log else at + step


def _gaps(panel: Panel, marks: Marks, dodge: float) -> str | None:
    """Interrupt a line where a load has no value and put a cross there; returns a note."""
    line, loads = marks.artist, panel.loads
    if not isinstance(line, Line2D) or line.get_linestyle() in ("None", "") or not len(loads):
        return None
    if len(set(marks.at)) < len(marks.at):  # the analyst draws every row
        return None
    at, absent = _moved(panel, marks, loads, dodge), ~np.isin(loads, marks.at)
    values = pd.Series(marks.values, marks.at).reindex(loads).to_numpy()
    line.set_data(*((at, values) if panel.along == "y" else (values, at)))
    if not absent.any():
        return None
    if 2 * absent.sum() > len(loads):
        name = called(marks.entry) if marks.entry else "The line"
        return f"{name} was measured at {(~absent).sum()} of {len(loads)} loads."
    across = panel.ax.get_xaxis_transform() if panel.along == "y" else panel.ax.get_yaxis_transform()
    xy = (loads[absent], [0.02] * absent.sum())
    panel.ax.plot(*(xy if panel.along == "y" else xy[::-1]), "x", color=marks.colour, transform=across, gid="missing")
    return "Crosses mark loads without a value."


def _write(panel: Panel, at: np.ndarray, ends: np.ndarray, colour: str, what: Metric) -> None:
    """Write each value at the right edge of its row, or behind its interval where rows are shared or upright."""
    look: dict[str, Any] = {"fontsize": 8.5, "fontweight": "bold", "color": style.darker(colour), "bbox": style.PLATE}
    look |= {"ha": "left", "va": "center"} if panel.along == "x" else {"ha": "center", "va": "bottom"}
    shared = panel.over in panel.rows and panel.rows[panel.over].duplicated().any()
    for place, (centre, _, hi) in zip(at, ends, strict=True):
        end = np.nanmax([centre, hi])
        xy, away = ((end, place), (8, 0)) if panel.along == "x" else ((place, end), (0, 4))
        if panel.along == "x" and not shared:
            xy, look["xycoords"] = (1.0, place), panel.ax.get_yaxis_transform()
        panel.ax.annotate(what.show(centre), xy, away, textcoords="offset points", annotation_clip=False, **look)


def _missing_rows(panel: Panel, legend: list[Entry], lanes: dict[str, float]) -> None:
    """Name the rows that have no value; a load without one is `_gaps`' matter."""
    rows = panel.rows[panel.rows[panel.value].isna()]
    if not panel.named or panel.along != "x" or panel.over not in rows:
        return
    for row, name in zip(rows.to_dict("records"), _texts(rows[panel.over]), strict=True):
        panel.axis.update_units([name])  # seaborn leaves out a row without any value
        places = panel.axis.get_ticklocs()
        place = dict(zip(panel.axis.get_major_formatter().format_ticks(places), places, strict=True))[name]
        entry = next((e for e in legend if str(row.get(e.column)) == e.text), None)
        place += lanes.get(entry.text, 0.0) if entry else 0.0
        panel.ax.text(0.995, place, "missing", transform=panel.ax.get_yaxis_transform(), va="center", ha="right",
                      style="italic", fontsize=8, color=entry.colour if entry else QUIET, gid="missing")  # fmt: skip


def _make_room(panel: Panel) -> None:
    """Show whole intervals on axes whose limits were set before, and room beside a single load."""
    ax, loads = panel.ax, panel.loads
    axis = ax.yaxis if panel.along == "y" else ax.xaxis
    high = panel.rows[[panel.value, f"{panel.value}_hi"]].max(axis=None)
    low, top = axis.get_view_interval()
    if not getattr(ax, f"get_autoscale{panel.along}_on")() and high > 0.93 * top and low >= 0:
        ax.set(**{f"{panel.along}lim": (low, high + 0.08 * (high - low))})
    if len(loads) == 1:
        log = panel.axis.get_scale() == "log"
        ends = (loads[0] / 2**ROOM, loads[0] * 2**ROOM) if log else (loads[0] - ROOM, loads[0] + ROOM)
        ax.set(**{f"{'x' if panel.along == 'y' else 'y'}lim": ends})


def _ranked(what: Metric, drawn: pd.DataFrame, references: list[str]) -> tuple[pd.DataFrame, str]:
    """Return the marks of which one may be called the best, and which names are none of them."""
    aside = [name for name in references if len(drawn) and drawn["name"].eq(name).any()]
    if not aside:
        return drawn, ""
    others = drawn[~drawn["name"].isin(aside)]
    are = "is" if len(aside) == 1 else "are"
    said = f"{listed(aside)} {are} shown for scale and not ranked."
    return others if what.better and len(others) else drawn, said


def _finding(what: Metric, drawn: pd.DataFrame) -> str:
    """The alternative text: the best of each panel, or the range of each name where no way is better."""
    if drawn.empty:
        return f"No value of {noun(what)} is known."
    if not what.better:
        return "\n".join(_range(what, str(name), part) for name, part in drawn.groupby("name", sort=False))
    if drawn["name"].nunique() == 1 and not drawn["of_system"].all():
        drawn = drawn.assign(name="")  # such as the only curve
    groups = drawn.groupby("panel", sort=False)["value"]
    best = drawn.loc[groups.idxmin() if what.better == "lower" else groups.idxmax()]
    alone = groups.count()
    return "\n".join(_best(what, row, alone[row["panel"]] == 1) for row in best.to_dict("records"))


def _best(what: Metric, row: dict[str, Any], alone: bool) -> str:
    """Return the best value of a panel and whose it is; nothing is best where it is the only one."""
    what = metric_of(row["metric"]) if row["metric"] else what
    panel, name, value = row["panel"], row["name"], value_of(what, row["value"])
    at = f" ({row['at']})" * (row["at"] not in ("", name, panel))
    extreme = f"the {'lowest' if what.better == 'lower' else 'highest'} {noun(what)}"
    are = "are" if "IOPS" in what.label else "is"
    if not row["of_system"] or name in ("", panel):
        which = ", ".join(part for part in (f"“{name}”" * (name not in ("", panel)), at.strip(" ()")) if part)
        found = f"{f'the {noun(what)}' if alone else extreme} {are} {value}{f' ({which})' if which else ''}"
    elif alone:
        found = f"the {noun(what)} of {name} {are} {value}{at}"
    else:
        found = f"{name} has {extreme}: {value}{at}"
    return f"In {panel}, {found}." if panel else sentence(found) if found.startswith("the ") else f"{found}."


def _range(what: Metric, name: str, part: pd.DataFrame) -> str:
    """The least and the most of one name; of ratios also how many are above 1, and how many of them a test shows."""
    if what.name != "ratio":
        least, most = (number(part["value"].agg(end) / what.scale, what.format) for end in ("min", "max"))
        reach = f"between {least} and {most}" if least != most else most
        quantity = "Each part of the time" if what.name == "part_ns" else what.label
        return f"{quantity}{f' on {name}' * bool(name)} is {reach} {what.unit}".strip() + "."
    ends = list(dict.fromkeys(what.show(part["value"].agg(end)) for end in ("min", "max")))
    measured, _, base = what.label.partition(" relative to ")
    metric, times = noun(replace(what, label=measured)), " to ".join(end.removesuffix("×") for end in ends)
    differ = int(part["shown"].sum())
    sure = "The differences are not significant."
    if part["single"].all():
        sure = "These are single runs, so significance was not tested."
    elif differ:
        sure = sentence(f"{share(differ, len(part), 'difference')} {'is' if differ == 1 else 'are'} significant")
    found = f"{metric}{f' of {name}' * bool(name)} is {times} times {base or 'that of the baseline'}"
    if name and base:
        found = f"{name} has {times} times the {metric} of {base}"
    return f"In {counted(len(part), 'test')}, {found}. {sure}"
