"""Record what a figure draws: marks, texts, axes and ticks, as numbers and words."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.spines import Spine
from matplotlib.text import Annotation, Text

from .values import Recorder

DIGITS = 9
"""Significant digits of outlines: they are computed from the layout, whose last bits wobble."""


def record_figure(figure: Figure, recorder: Recorder) -> dict[str, Any]:
    """Draw the figure once, then return everything that it shows.

    Notes
    -----
    Alternative text and tooltips are attributes that the library adds to the figure. Every
    attribute that matplotlib does not know is recorded, whatever it is called.
    """
    figure.canvas.draw()
    added = sorted(set(vars(figure)) - set(vars(Figure())))
    added = [name for name in added if name.startswith("hci") or not name.startswith("_")]
    legends = [legend_texts(legend) for legend in figure.legends]
    return {
        "inches": numbers(figure.get_size_inches()),
        "added": {n: recorder.plain(vars(figure)[n]) for n in added if is_plain(vars(figure)[n])},
        "texts": [record_text(text) for text in figure_texts(figure)],
        "legends": legends,
        "axes": [record_axes(ax) for ax in figure.axes],
    }


def is_plain(value: Any) -> bool:
    """Return whether an attribute is data, not a part of matplotlib."""
    return isinstance(value, str | int | float | list | tuple | dict)


def figure_texts(figure: Figure) -> list[Text]:
    """Return titles, captions and other texts beside the axes."""
    named = [getattr(figure, f"_sup{name}", None) for name in ("title", "xlabel", "ylabel")]
    return list(dict.fromkeys([*(text for text in named if text is not None), *figure.texts]))


def record_axes(ax: Axes) -> dict[str, Any]:
    """Return titles, both axes and every artist of one panel."""
    legend = ax.get_legend()
    return {
        "visible": ax.get_visible() and ax.axison,
        "titles": [ax.get_title(side) for side in ("left", "center", "right")],
        "x": record_axis(ax.xaxis, ax.get_xlim()),
        "y": record_axis(ax.yaxis, ax.get_ylim()),
        "legend": legend_texts(legend) if legend else None,
        "artists": [record_artist(artist) for artist in drawn_artists(ax)],
        "insets": [record_inset(inset) for inset in ax.child_axes],
    }


def record_inset(inset: Any) -> dict[str, Any]:
    """Return a panel inside a panel; of a second scale of the same panel its two axes."""
    if isinstance(inset, Axes):
        return record_axes(inset)
    return {
        "x": record_axis(inset.xaxis, inset.get_xlim()),
        "y": record_axis(inset.yaxis, inset.get_ylim()),
    }


def record_axis(axis: Axis, limits: tuple[float, float]) -> dict[str, Any]:
    """Return label, scale, limits, and the ticks that lie within the limits, with their labels."""
    low, high = sorted(limits)
    ticks = [t for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
    minor = [t.get_loc() for t in axis.get_minor_ticks() if low <= t.get_loc() <= high]
    return {
        "label": axis.get_label_text(),
        "scale": axis.get_scale(),
        "limits": numbers(limits),
        "ticks": numbers([t.get_loc() for t in ticks]),
        "tick labels": [[t.label1.get_text(), t.label2.get_text()] for t in ticks],
        "labels shown": [[t.label1.get_visible(), t.label2.get_visible()] for t in ticks],
        "minor ticks": numbers(minor),
        "inverted": bool(axis.get_inverted()),
    }


def drawn_artists(ax: Axes) -> list[Artist]:
    """Return the artists of a panel in the order in which they were added, without its frame."""
    frame = {ax.patch, ax.title, ax._left_title, ax._right_title, ax.get_legend()}
    children = ax.get_children()
    return [a for a in children if a not in frame and not isinstance(a, Spine | Axis | Axes)]


def record_artist(artist: Artist) -> dict[str, Any]:
    """Return one artist's data: what its kind has, and what all kinds have."""
    common = {
        "kind": type(artist).__name__,
        "label": str(artist.get_label()) if not str(artist.get_label()).startswith("_") else "",
        "gid": artist.get_gid(),
        "visible": artist.get_visible(),
        "zorder": artist.get_zorder(),
        "alpha": artist.get_alpha() if np.isscalar(artist.get_alpha()) else None,
    }
    return common | details(artist)


def details(artist: Artist) -> dict[str, Any]:
    """Return what one kind of artist draws."""
    if isinstance(artist, Line2D):
        return record_line(artist)
    if isinstance(artist, Collection):
        return record_collection(artist)
    if isinstance(artist, Patch):
        return record_patch(artist)
    if isinstance(artist, Text):
        return record_text(artist)
    if isinstance(artist, AxesImage):
        return {"image": numbers(artist.get_array()), "extent": numbers(artist.get_extent())}
    if isinstance(artist, Legend):
        return {"legend": legend_texts(artist)}
    return {"texts": [text.get_text() for text in artist.findobj(Text)]}


def record_line(line: Line2D) -> dict[str, Any]:
    """Return a line's points as they were given, and its look."""
    return {
        "x": numbers(line.get_xdata(orig=True)),
        "y": numbers(line.get_ydata(orig=True)),
        "marker": str(line.get_marker()),
        "line": [str(line.get_linestyle()), str(line._unscaled_dash_pattern), line.get_linewidth()],
        "colours": colours([line.get_color(), line.get_markerfacecolor()]),
    }


def record_collection(collection: Collection) -> dict[str, Any]:
    """Return offsets, outlines, sizes and values of a collection."""
    sizes = collection.get_sizes() if hasattr(collection, "get_sizes") else []
    values = collection.get_array()
    return {
        "offsets": numbers(collection.get_offsets()),
        "paths": [rounded(path.vertices) for path in collection.get_paths()],
        "sizes": numbers(sizes),
        "values": None if values is None else numbers(values),
        "colours": [colours(collection.get_facecolor()), colours(collection.get_edgecolor())],
    }


def record_patch(patch: Patch) -> dict[str, Any]:
    """Return a patch's outline in data units; an arrow's ends, as its outline is in pixels."""
    look = {"colours": colours([patch.get_facecolor(), patch.get_edgecolor()])}
    look |= {"hatch": patch.get_hatch()}
    if isinstance(patch, FancyArrowPatch):
        return look | {"ends": rounded(patch._posA_posB or [])}
    return look | {
        "outline": rounded(patch.get_patch_transform().transform_path(patch.get_path()).vertices)
    }


def record_text(text: Text) -> dict[str, Any]:
    """Return the words, the place and, of an annotation, what it points at."""
    recorded = {"text": text.get_text(), "at": numbers(text.get_position())}
    recorded |= {"align": [text.get_ha(), text.get_va()], "shown": text.get_visible()}
    if isinstance(text, Annotation):
        recorded |= {"points at": numbers(text.xy), "offset": numbers(text.xyann)}
    return recorded


def legend_texts(legend: Legend) -> dict[str, Any]:
    """Return a legend's title and entries."""
    entries = [text.get_text() for text in legend.get_texts()]
    return {
        "title": legend.get_title().get_text(),
        "entries": entries,
        "shown": legend.get_visible(),
    }


def colours(given: Any) -> list[str]:
    """Return colours as hexadecimal codes; words such as ``none`` as they are."""
    return [c if isinstance(c, str) and c in ("none", "auto") else to_hex(c, True) for c in given]


def numbers(values: Any) -> list[Any]:
    """Return an array of any shape as exact numbers; other values as text."""
    masked = (
        np.ma.filled(np.ma.asarray(values, dtype=None), np.nan) if np.ma.isMA(values) else values
    )
    array = np.asarray(masked)
    if array.dtype.kind in "fiub":
        return array.tolist()
    return [float(v) if isinstance(v, int | float) else str(v) for v in array.ravel().tolist()]


def rounded(values: Any) -> list[Any]:
    """Return an array to nine significant digits."""
    flat = [float(f"{v:.{DIGITS}g}") for v in np.asarray(values, dtype=float).ravel().tolist()]
    return np.asarray(flat).reshape(np.shape(values)).tolist()
