"""An IPython extension for the kernels of the report: ``hci.text`` displays the numbers of its frame too, as CSV.

hcilib.show.site.execute makes files of them. Kernels of JupyterLab and nbval do not load it.
"""

from __future__ import annotations

import logging
import re
from functools import wraps
from typing import Any

import pandas as pd
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display
from matplotlib import pyplot
from seaborn.axisgrid import Grid

import hcilib
from hcilib.show.site.kernels import BACKEND

_ENDED = "KeyboardInterrupt caught in kernel"
"""What a kernel logs that is busy with its last message when it is asked to end."""
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff0b\uff0d\uff1d\uff20]")
_NUMBER = re.compile(r"[+-](?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-](?:inf|nan)")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Let ``hci.text`` display the numbers of its frame, under the frame's name in the notebook."""
    logging.getLogger("IPKernelApp").addFilter(lambda record: _ENDED not in record.getMessage())
    hcilib.theme()  # hcilib is imported before seaborn here,
    hcilib.in_notebook()  # and in a forked kernel before there was a shell
    pyplot.switch_backend(BACKEND)
    pyplot.uninstall_repl_displayhook()  # it draws each figure once more, which nobody sees
    Grid.tight_layout = _lay_out_at_drawing
    text = hcilib.text

    @wraps(text)
    def recorded(frame: pd.DataFrame, *args: Any, **kwargs: Any) -> pd.DataFrame:
        shown = text(frame, *args, **kwargs)
        named = (name for name, value in shell.user_ns.items() if value is frame and not name.startswith("_"))
        display({"text/csv": as_csv(frame)}, raw=True, metadata={"name": next(named, "table")})
        return shown

    hcilib.text = recorded


def _lay_out_at_drawing(grid: Grid, **given: Any) -> Grid:
    """Stand in for seaborn's layout, which is made anew after each call and takes longer than to draw."""
    grid.figure.set_layout_engine("tight", rect=grid._tight_layout_rect, **given)
    return grid


def as_csv(frame: pd.DataFrame) -> str:
    """Return a frame as CSV, in full precision; what is missing is an empty field. No text is a formula."""
    frame = frame.reset_index(drop=all(name is None for name in frame.index.names))
    frame.columns = [escaped(" ".join(map(str, c)).strip() if isinstance(c, tuple) else str(c)) for c in frame]
    for place, dtype in enumerate(frame.dtypes):
        if isinstance(dtype, pd.CategoricalDtype) or dtype.kind not in "biufcmM":
            frame.isetitem(place, frame.iloc[:, place].astype(object).map(escaped, na_action="ignore"))
    return frame.to_csv(index=False, lineterminator="\n")


def escaped(cell: Any) -> Any:
    """Return the cell of a CSV file, behind an apostrophe if it is text that a spreadsheet would run."""
    if not isinstance(cell, str):
        return cell
    cell = cell.replace("\r", "\n")
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell


def unescaped(cell: str) -> str:
    """Return the text that `escaped` was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
