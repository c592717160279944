"""An IPython extension for the kernels of `report`: tables carry their numbers along, figures their vectors.

The notebooks know nothing of it. In a kernel started with ``--ext=hcilib.show.report.export``, ``hci.text``
displays the unrounded numbers of its frame too, as CSV; hcilib.show.report.page makes files of them. Kernels of
JupyterLab and nbval do not load it: committed notebooks hold no second copy of their numbers.
"""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from html import escape
from textwrap import wrap
from typing import Any

import pandas as pd
from IPython.core import pylabtools
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

import hcilib
from hcilib.show.figures.style import folded, grid_of, has_colorbar
from hcilib.show.plots import theme
from hcilib.show.report.page import CSV, NAME, NARROW, escaped, width_pt

# jupyter_client interrupts a kernel before it asks it to end. One that is still busy with its last message then logs an
# error in the middle of the progress bar, about a scenario that has succeeded. Every other error is said.
_ENDED = "KeyboardInterrupt caught in kernel"
PHONE = 4.4
"""Inches: as wide as a phone shows at full size."""
LINE = 38
"""Letters that such a panel has room for."""


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by IPython once, before the first cell."""
    logging.getLogger("IPKernelApp").addFilter(lambda record: _ENDED not in record.getMessage())
    hcilib.text = recording(hcilib.text, shell)
    pylabtools.print_figure = with_tips(pylabtools.print_figure)
    theme()  # a kernel that is forked has imported hcilib before there was a shell


def recording(text: Callable[..., pd.DataFrame], shell: InteractiveShell) -> Callable[..., pd.DataFrame]:
    """``hci.text`` that displays the numbers of its frame too, under the frame's name in the notebook."""

    @wraps(text)
    def recorded(frame: pd.DataFrame, *args: Any, **kwargs: Any) -> pd.DataFrame:
        shown = text(frame, *args, **kwargs)
        named = (name for name, value in shell.user_ns.items() if value is frame and not name.startswith("_"))
        display({CSV: as_csv(frame)}, raw=True, metadata={NAME: next(named, "table")})
        return shown

    return recorded


def with_tips(print_figure: Callable[..., Any]) -> Callable[..., Any]:
    """IPython's own, whose SVG keeps text as text and carries what its marks say (hcilib.show.figures.style.tip)."""

    @wraps(print_figure)
    def printing(fig: Figure, fmt: str = "png", *args, **kwargs):
        if fmt != "svg":
            return print_figure(fig, fmt, *args, **kwargs)
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "hcilib"}):
            svg = _told(print_figure(fig, fmt, *args, **kwargs), fig)
            with warnings.catch_warnings(), narrow(fig) as fits:
                warnings.simplefilter("error", UserWarning)  # a layout that has no room warns
                try:
                    small = _told(print_figure(fig, fmt, *args, **kwargs), fig) if fits else ""
                except UserWarning:
                    return svg
            return svg + NARROW + small if 0 < width_pt(small) <= 72 * 1.15 * PHONE else svg

    return printing


def _told(svg: str, fig: Figure) -> str:
    """With what its marks say and what it shows."""
    tips, said = getattr(fig, "hci_tips", {}), getattr(fig, "hci_said", "")
    if not (tips or said):
        return svg
    data = escape(json.dumps(tips, ensure_ascii=False), quote=True)
    return re.sub(
        r"<svg\b([^>]*)>", lambda m: f'<svg{m[1]} data-tips="{data}"><desc>{escape(said)}</desc>', svg, count=1
    )


@contextmanager
def narrow(fig: Figure) -> Iterator[bool]:
    """The figure with its panels below each other, as wide as a phone; False where it is narrow or has no grid."""
    size = fig.get_size_inches()
    places = {ax: place for ax in fig.axes if ax.get_visible() and (place := ax.get_subplotspec())}
    if not places or size[0] <= 1.1 * PHONE or has_colorbar(fig):
        yield False
        return
    rows, columns = grid_of(next(iter(places)))
    columns = max([columns, *(place.get_gridspec().ncols for place in places.values())])
    inside = (child for ax in places for child in (*ax.get_children(), ax.xaxis.label))
    texts = (said for said in inside if isinstance(said, Text) and not said.get_wrap())  # those fold by themselves
    folds = {said: "\n".join(wrap(said.get_text(), LINE)) for said in texts if len(said.get_text()) > LINE}
    if caption := getattr(fig, "_supxlabel", None):
        folds[caption] = folded(caption.get_text(), PHONE)
    with ExitStack() as undo:
        for legend in list(fig.legends):
            undo.callback(legend.set, visible=True, in_layout=True)
            undo.callback(_folded_legend(fig, legend).remove)
        if not isinstance(fig.get_layout_engine(), ConstrainedLayoutEngine):  # an analyst's, without ``finish``
            undo.callback(fig.set_layout_engine, "none")
            fig.set_layout_engine("constrained")
        below = fig.add_gridspec(len(places), 1)
        for n, (ax, place) in enumerate(sorted(places.items(), key=lambda item: _reading_order(fig, item[1]))):
            undo.callback(ax.set_subplotspec, place)  # where they are beside each other or not: the layout begins anew
            if columns > 1:
                ax.set_subplotspec(below[n])
                undo.enter_context(_all_ticks_named(ax))
        for said, text in folds.items():
            undo.callback(said.set_text, said.get_text())
            said.set_text(text)
        undo.callback(fig.set_size_inches, *size)
        fig.set_size_inches(PHONE, (size[1] - 0.8) / rows * (len(places) if columns > 1 else rows) + 1.2)
        yield True


def _reading_order(fig: Figure, place: SubplotSpec) -> tuple[float, float]:
    """Where a panel is on its sheet: from above, then from the left."""
    box = place.get_position(fig)
    return -round(box.y1, 3), box.x0


@contextmanager
def _all_ticks_named(ax: Axes) -> Iterator[None]:
    """Name the ticks of panels that share an axis at each of them, as they are no longer beside each other."""
    sides = [("x", "labelbottom"), ("y", "labelleft")]
    hidden = [side for way, side in sides if not getattr(ax, f"{way}axis").get_tick_params().get(side, True)]
    for side in hidden:
        ax.tick_params("both", **{side: True})
    yield
    for side in hidden:
        ax.tick_params("both", **{side: False})


def _folded_legend(fig: Figure, legend: Any) -> Any:
    """The same in two columns, in its place."""
    legend.set(visible=False, in_layout=False)
    return fig.legend(
        handles=legend.legend_handles, labels=[text.get_text() for text in legend.get_texts()],
        loc="outside upper left", ncols=2, handletextpad=0.5, frameon=False, fontsize=9,
    )  # fmt: skip


def as_csv(frame: pd.DataFrame) -> str:
    """Comma-separated, full precision; what is missing is an empty field. No text is a spreadsheet's formula."""
    frame = frame.reset_index(drop=all(name is None for name in frame.index.names))
    frame.columns = [escaped(" ".join(map(str, c)).strip() if isinstance(c, tuple) else str(c)) for c in frame]
    for place, dtype in enumerate(frame.dtypes):
        if isinstance(dtype, pd.CategoricalDtype) or dtype.kind not in "biufcmM":
            frame.isetitem(place, frame.iloc[:, place].astype(object).map(escaped, na_action="ignore"))
    return frame.to_csv(index=False, lineterminator="\n")
