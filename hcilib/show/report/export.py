"""An IPython extension for the kernels of `report`: tables carry their numbers along, figures their vectors.

The notebooks know nothing of it. A kernel started with ``--ext=hcilib.show.report.export`` adds to every table it
shows, whether made by ``hci.text`` or a bare DataFrame, its unrounded numbers as CSV and as Parquet;
hcilib.show.report.page makes files of them. Kernels of JupyterLab and nbval do not load it: committed notebooks
hold no second copy of their numbers.
"""

from __future__ import annotations

import json
import logging
import re
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from html import escape
from textwrap import wrap
from typing import Any

import pandas as pd
from IPython.core import pylabtools
from IPython.core.formatters import BaseFormatter
from IPython.core.interactiveshell import InteractiveShell
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

from hcilib.show.figures.style import folded, grid_of, has_colorbar
from hcilib.show.plots import theme
from hcilib.show.report.page import NARROW, escaped, width_pt
from hcilib.show.tables.tables import Shown

# jupyter_client interrupts a kernel before it asks it to end. One that is still busy with its last message then logs an
# error in the middle of the progress bar, about a scenario that has succeeded. Every other error is said.
_ENDED = "KeyboardInterrupt caught in kernel"
PHONE = 4.4
"""Inches: as wide as a phone shows at full size."""
LINE = 38
"""Letters that such a panel has room for."""
CSV, PARQUET = "text/csv", "application/vnd.apache.parquet"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by IPython once, before the first cell."""
    logging.getLogger("IPKernelApp").addFilter(lambda record: _ENDED not in record.getMessage())
    assert shell.display_formatter is not None  # a shell has one from its start
    formatters = shell.display_formatter.formatters
    for mime, rendered in ((CSV, as_csv), (PARQUET, as_parquet)):
        formatter = BaseFormatter(parent=shell.display_formatter, format_type=mime, print_method="_repr_numbers_")
        for shown in (pd.DataFrame, Shown):
            formatter.for_type(shown, rendered)
        formatters[mime] = formatter
    pylabtools.print_figure = with_tips(pylabtools.print_figure)
    theme()  # a kernel that is forked has imported hcilib before there was a shell


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


def as_csv(table: pd.DataFrame | Shown) -> str:
    """Comma-separated, full precision; what is missing is an empty field. No text is a spreadsheet's formula."""
    frame = _plain(table)
    frame.columns = [escaped(name) for name in frame.columns]
    for place, dtype in enumerate(frame.dtypes):
        if isinstance(dtype, pd.CategoricalDtype) or dtype.kind not in "biufcmM":
            frame.isetitem(place, frame.iloc[:, place].astype(object).map(escaped, na_action="ignore"))
    return frame.to_csv(index=False, lineterminator="\n")


def as_parquet(table: pd.DataFrame | Shown) -> str:
    """Parquet as base64 text, which is how notebooks hold bytes."""
    return b64encode(_plain(table).to_parquet(index=False)).decode()


def _plain(table: pd.DataFrame | Shown) -> pd.DataFrame:
    """An index that means something as columns; a column of mixed types as text, for Parquet's columns have one type.

    attrs are left behind: pandas would write them as JSON and fail on a frame among them.
    """
    frame: Any = table.frame if isinstance(table, Shown) else table
    frame = frame.reset_index(drop=all(name is None for name in frame.index.names))
    frame.columns = [" ".join(map(str, c)).strip() if isinstance(c, tuple) else str(c) for c in frame.columns]
    frame.attrs = {}
    objects = [name for name in frame if pd.api.types.is_object_dtype(frame[name])]
    mixed = [name for name in objects if pd.api.types.infer_dtype(frame[name]) != "string"]
    return frame.assign(**{name: frame[name].map(str, na_action="ignore").astype("string") for name in mixed})
