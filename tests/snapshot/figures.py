"""Record what a figure draws as rows: panel, look, x, y and value.

A row is a mark, a corner of a line, a bar or an outline, or a tile with its value. A look is the
colours of a part: a series is known by it, and an open mark from a full one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import Collection, PathCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .content import Cells, text_of

ROWS = ("panel", "look", "x", "y", "value")
TICKS = ("label", "way", "scale", "low", "high", "at", "text")
DIGITS = 9
"""Significant digits: ends of an interval are drawn by their distance from the middle."""
UNKNOWN = float("nan")


def record_figure(add: Callable[[str, str, Cells], None], figure: Figure) -> None:
    """Draw a figure once, and record each part that shows something: kind, name and table."""
    figure.canvas.draw()
    said, legends = list(figure.texts), list(figure.legends)
    panels = [panel for ax in figure.axes for panel in (ax, *ax.child_axes)]
    for ax in (panel for panel in panels if isinstance(panel, Axes) and panel.get_visible()):
        titles = [ax.get_title(side) for side in ("left", "center", "right")]
        ticks = [row for axis in (ax.xaxis, ax.yaxis) for row in ticks_of(axis)]
        add("figures", "panel", table_of(ROWS, (("".join(titles), *row) for row in drawn(ax))))
        add("axes", "ticks", table_of(TICKS, ticks))
        add("words", "titles", {"value": [text_of(titles)]})
        said += ax.texts
        legends += [ax.get_legend()] if ax.get_legend() else []
    for legend in legends:
        named = zip(legend.legend_handles, legend.get_texts(), strict=True)
        rows = [(looks(handle)[0], text.get_text()) for handle, text in named]
        add("axes", "legend", table_of(("look", "text"), rows))
    add("words", "figure", table_of(("value",), ((text.get_text(),) for text in said)))


def table_of(columns: Sequence[str], rows: Iterable[tuple]) -> Cells:
    """Return rows as a table, numbers to nine digits. Without rows it has no columns."""
    unique = dict.fromkeys(tuple(text_of(rounded(value)) for value in row) for row in rows)
    cells = zip(*unique, strict=True)
    return {name: list(texts) for name, texts in zip(columns, cells, strict=False)}


def rounded(value: Any) -> Any:
    """Return a number to nine significant digits, anything else as it is."""
    return value if isinstance(value, str) else float(f"{value:.{DIGITS}g}")


def ticks_of(axis: Axis) -> Iterator[tuple]:
    """Yield the ticks that lie within the limits of an axis, with its label, scale and limits."""
    low, high = sorted(axis.get_view_interval())
    own = axis.get_label_text(), axis.axis_name, axis.get_scale(), low, high
    for tick in axis.get_major_ticks():
        if low <= tick.get_loc() <= high:
            yield *own, tick.get_loc(), tick.label1.get_text()


def drawn(ax: Axes) -> Iterator[tuple]:
    """Yield look, x, y and value of every part that is drawn where data are."""
    for artist in (*ax.lines, *ax.collections, *ax.patches):
        if not artist.get_visible():
            continue
        if isinstance(artist, QuadMesh):
            yield from tiles_of(artist)
            continue
        parts, transform = shapes(artist)
        ways = ax.transData, ax.get_xaxis_transform(), ax.get_yaxis_transform()
        is_x, is_y = (transform in (ways[0], way) for way in ways[1:])
        for part, look in zip(parts, cycle(looks(artist)), strict=False):
            for x, y in part if is_x or is_y else ():
                yield look, x if is_x else UNKNOWN, y if is_y else UNKNOWN, UNKNOWN


def shapes(artist: Artist) -> tuple[list[np.ndarray], Any]:
    """Return the places of each part of an artist, and their transform."""
    if isinstance(artist, Line2D):
        return [artist.get_xydata()], artist.get_transform()
    if isinstance(artist, PathCollection):
        places = np.ma.filled(artist.get_offsets(), UNKNOWN)
        return [np.atleast_2d(place) for place in places], artist.get_offset_transform()
    if isinstance(artist, Collection):
        return [path.vertices for path in artist.get_paths()], artist.get_transform()
    outline = artist.get_patch_transform().transform_path(artist.get_path())
    return [outline.vertices], artist.get_data_transform()


def tiles_of(mesh: QuadMesh) -> Iterator[tuple]:
    """Yield each tile of a heat map at its lower left corner."""
    corners = mesh.get_coordinates()[:-1, :-1].reshape(-1, 2)
    values = np.ma.filled(np.ma.asarray(mesh.get_array(), dtype=float), UNKNOWN).ravel()
    for (x, y), value in zip(corners, values, strict=True):
        yield "tile", x, y, value


def looks(artist: Any) -> list[str]:
    """Return the colours of each part of an artist, of the face and of the edge."""
    if isinstance(artist, Line2D):
        return [to_hex(artist.get_color())]
    inks = [np.atleast_2d(ink) for ink in (artist.get_facecolor(), artist.get_edgecolor())]
    known = [[to_hex(ink) for ink in own if ink.size] or ["none"] for own in inks]
    most = max(map(len, known))
    return [" ".join(own[n % len(own)] for own in known) for n in range(most)]
