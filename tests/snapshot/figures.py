"""Record what a figure draws as rows: panel, series, x, y, lo and hi, however they were drawn.

A row is a mark, an end of a bar, a corner of an outline or a tile with its value as `lo`. An
interval belongs to the mark on it. A series is known by its colour. Places of names are read as
the names, and loads that were moved apart as the loads. A line through marks adds no row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.category import StrCategoryFormatter
from matplotlib.collections import Collection, LineCollection, PathCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.ticker import FixedFormatter, FixedLocator

from .content import Cells, text_of
from .values import Normal

ROWS = ("panel", "series", "x", "y", "lo", "hi")
TICKS = ("label", "way", "scale", "low", "high", "at", "text")
DIGITS = 9
"""Significant digits: ends of an interval are drawn by their distance from the middle."""
NEAR = 1e-6
"""How far a mark and the line of its interval may be apart, as a share."""
APART = 0.45
"""How far marks of one load are moved apart, in doublings or steps."""
UNKNOWN = float("nan")


def record_figure(figure: Figure, normal: Normal) -> Iterator[tuple[str, str, Cells]]:
    """Draw a figure once, then yield kind, name and table of each part that shows something."""
    figure.canvas.draw()
    texts = [*(text.get_text() for text in figure.texts)]
    legends: list[Legend | None] = [*figure.legends]
    for ax in axes_of(figure):
        titles = [ax.get_title(side) for side in ("left", "center", "right")]
        title = next(filter(None, titles), "")
        texts += [*titles, *(text.get_text() for text in ax.texts)]
        legends.append(ax.get_legend())
        panel = [(title, *row) for row in drawn_rows(ax)]
        ticks = [row for axis in (ax.xaxis, ax.yaxis) for row in ticks_of(axis)]
        yield "figures", "panel", table_of(ROWS, panel, normal)
        yield "axes", "ticks", table_of(TICKS, ticks, normal)
    for legend in filter(None, legends):
        named = zip(legend.legend_handles, legend.get_texts(), strict=True)
        rows = [(colours(handle)[0], text.get_text()) for handle, text in named]
        yield "axes", "legend", table_of(("series", "text"), rows, normal)
    yield "words", "figure", table_of(("value",), [(text,) for text in texts if text], normal)


def axes_of(figure: Figure) -> Iterator[Axes]:
    """Yield every visible panel, and the panels inside it."""
    for ax in figure.axes:
        if ax.get_visible():
            yield ax
            yield from (inset for inset in ax.child_axes if isinstance(inset, Axes))


def table_of(columns: Sequence[str], rows: Iterable[tuple], normal: Normal) -> Cells:
    """Return rows as a table, numbers to nine digits. Without rows it has no columns."""
    unique = dict.fromkeys(tuple(text_of(rounded(v), normal) for v in row) for row in rows)
    return {
        name: list(cells) for name, cells in zip(columns, zip(*unique, strict=True), strict=False)
    }


def rounded(value: Any) -> Any:
    """Return a number to nine significant digits, anything else as it is."""
    return value if isinstance(value, str) else float(f"{value:.{DIGITS}g}")


def ticks_of(axis: Axis) -> Iterator[tuple]:
    """Yield the ticks that lie within the limits of an axis, with its label, scale and limits."""
    low, high = sorted(axis.get_view_interval())
    for tick in axis.get_major_ticks():
        if low <= tick.get_loc() <= high:
            text = tick.label1.get_text()
            own = axis.get_label_text(), axis.axis_name, axis.get_scale()
            yield *own, low, high, float(tick.get_loc()), text


# ---- What is drawn in a panel


def drawn_rows(ax: Axes) -> list[tuple]:
    """Return series, x, y, lo and hi of every mark, and of every interval without a mark."""
    marks, spans = [], []
    for artist in artists_of(ax):
        for series, corners in shapes(artist, ax):
            (spans if is_span(artist, corners) else marks).append((series, corners))
    points = list(dict.fromkeys((s, *map(float, place)) for s, places in marks for place in places))
    ends = {point: (UNKNOWN, UNKNOWN) for point in points}
    alone = []
    for series, corners in spans:
        (x, y), (lo, hi) = middle(corners)
        on = [point for point in points if is_on(point, x, y, lo, hi)]
        own = [point for point in on if point[0] == series] or on
        ends |= dict.fromkeys(own, (lo, hi))
        alone += [] if own else [(series, x, y, lo, hi)]
    rows = [*((*point, *interval) for point, interval in ends.items()), *alone]
    tiles = [row for mesh in ax.collections if isinstance(mesh, QuadMesh) for row in tiles_of(mesh)]
    xs, ys = (named(axis, [row[n] for row in rows]) for n, axis in ((1, ax.xaxis), (2, ax.yaxis)))
    return [(s, x, y, lo, hi) for (s, _, _, lo, hi), x, y in zip(rows, xs, ys, strict=True)] + tiles


def artists_of(ax: Axes) -> list[Artist]:
    """Return what shows data: lines, outlines and collections, without the caps of intervals."""
    errors = [c for c in ax.containers if isinstance(c, ErrorbarContainer)]
    caps = {id(line) for container in errors for line in container.lines[1]}
    drawn = [*ax.lines, *ax.collections, *ax.patches]
    return [a for a in drawn if id(a) not in caps and a.get_visible()]


def shapes(artist: Artist, ax: Axes) -> Iterator[tuple[str, np.ndarray]]:
    """Yield colour and places of each part of an artist; a side that is not data is unknown."""
    if isinstance(artist, Line2D):
        parts, transform = [artist.get_xydata()], artist.get_transform()
    elif isinstance(artist, PathCollection):
        parts = [np.atleast_2d(place) for place in np.ma.filled(artist.get_offsets(), UNKNOWN)]
        transform = artist.get_offset_transform()
    elif isinstance(artist, QuadMesh | FancyArrowPatch):
        return
    elif isinstance(artist, Collection):
        parts = [path.vertices for path in artist.get_paths()]
        transform = artist.get_transform()
    elif isinstance(artist, Patch):
        outline = artist.get_patch_transform().transform_path(artist.get_path()).vertices
        parts, transform = [ends_of_bar(artist, outline, ax)], artist.get_data_transform()
    else:
        return
    known, inks = np.array(sides(transform, ax)), colours(artist)
    for number, part in enumerate(parts if known.any() else ()):
        places = np.asarray(part, dtype=float)
        there = np.isfinite(places[:, known]).all(axis=1)
        yield inks[number % len(inks)], np.where(known, places, UNKNOWN)[there]


def sides(transform: Any, ax: Axes) -> tuple[bool, bool]:
    """Return whether x and y are in units of the data."""
    if transform == ax.transData:
        return True, True
    return transform == ax.get_xaxis_transform(), transform == ax.get_yaxis_transform()


def ends_of_bar(patch: Patch, outline: np.ndarray, ax: Axes) -> np.ndarray:
    """Return the ends of a bar in the middle of its width, 0 left out; of another patch all."""
    for container in (c for c in ax.containers if isinstance(c, BarContainer)):
        if patch in container.patches:
            along = 0 if container.orientation == "horizontal" else 1
            low, high = outline.min(axis=0), outline.max(axis=0)
            ends = [end for end in (low, high) if end[along]] or [low]
            places = np.array([(low + high) / 2] * len(ends))
            places[:, along] = [end[along] for end in ends]
            return places
    return outline


def is_span(artist: Artist, corners: np.ndarray) -> bool:
    """Return whether a part is the straight line of an interval."""
    straight = len(corners) == 2 and bool((corners[0] == corners[1]).any())
    return isinstance(artist, LineCollection) and straight


def middle(corners: np.ndarray) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return where an interval stands, unknown along itself, and its ends."""
    (x, y), (to_x, to_y) = corners.tolist()
    return ((x, UNKNOWN), (y, to_y)) if x == to_x else ((UNKNOWN, y), (x, to_x))


def is_on(point: tuple, x: float, y: float, lo: float, hi: float) -> bool:
    """Return whether a mark stands on an interval."""
    across, where, along = (point[1], x, point[2]) if np.isnan(y) else (point[2], y, point[1])
    low, high = sorted((lo, hi))
    room = NEAR * max(abs(low), abs(high))
    there = math.isclose(across, where, rel_tol=NEAR, abs_tol=NEAR**2)
    return there and low - room <= along <= high + room


def tiles_of(mesh: QuadMesh) -> list[tuple]:
    """Return each tile of a heat map at its lower left corner; its value is `lo`."""
    corners = mesh.get_coordinates()[:-1, :-1].reshape(-1, 2).tolist()
    values = np.ma.filled(np.ma.asarray(mesh.get_array(), dtype=float), UNKNOWN).ravel().tolist()
    return [("tile", x, y, v, UNKNOWN) for (x, y), v in zip(corners, values, strict=True)]


def named(axis: Axis, places: list[float]) -> list[Any]:
    """Return places as the names at them; as loads where all are at loads, but for the dodge."""
    ticks, formatter = np.asarray(axis.get_majorticklocs(), dtype=float), axis.get_major_formatter()
    names = isinstance(formatter, FixedFormatter | StrCategoryFormatter)
    loads = type(axis.get_major_locator()) is FixedLocator
    if not len(ticks) or not (names or loads):
        return places
    log = axis.get_scale() == "log" and not names
    found = [nearest(place, ticks, log) for place in places]
    known = [n is not None or np.isnan(place) for n, place in zip(found, places, strict=True)]
    if loads and not names and not all(known):
        return places
    texts = formatter.format_ticks(ticks) if names else []
    read = [" ".join(text.split()) for text in texts] or ticks.tolist()
    return [place if n is None else read[n] for n, place in zip(found, places, strict=True)]


def nearest(place: float, ticks: np.ndarray, log: bool) -> int | None:
    """Return which tick a place belongs to, if it belongs to one."""
    if np.isnan(place) or (log and place <= 0):
        return None
    away = np.abs(np.log2(ticks / place)) if log else np.abs(ticks - place)
    return int(away.argmin()) if away.min() <= APART else None


def colours(artist: Any) -> list[str]:
    """Return the colour of each part as #rrggbb; of an open mark that of its edge."""
    if isinstance(artist, Line2D):
        return [to_hex(artist.get_color())]
    if isinstance(artist, LineCollection):
        return [to_hex(ink) for ink in np.atleast_2d(artist.get_color())] or ["none"]
    faces, edges = (np.atleast_2d(ink) for ink in (artist.get_facecolor(), artist.get_edgecolor()))
    if not faces.size:
        faces = edges
    return [
        to_hex(edges[n % len(edges)] if edges.size and to_hex(face) == "#ffffff" else face)
        for n, face in enumerate(faces)
        if face.size
    ] or ["none"]
