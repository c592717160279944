"""Run one notebook in this process and record what its functions return and its figures draw."""

from __future__ import annotations

import json
import types
import warnings
from functools import wraps
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from matplotlib.figure import Figure

from .content import Cells, digest, renamed, tables_in
from .figures import record_figure
from .values import Normal

LIBRARY, NAME = "hcilib", "hci"
PRINTS = "text"
"""The function whose tables are texts, as they are printed."""
CELL = "cell"
"""In place of a function: what cells compute by themselves, and what they print."""


class Record:
    """Keep each table once, by its digest, under its kind and the functions that returned it.

    Kinds: values (numbers, names and states), words (sentences and printed tables), figures, axes.
    """

    def __init__(self, normal: Normal):
        self.normal = normal
        self.kinds: dict[str, dict[str, list[str]]] = {}
        self.tables: dict[str, Cells] = {}

    def add(self, kind: str, name: str, cells: Cells) -> None:
        """Keep a table of a function. A cell has only those that no function returned."""
        key = digest([json.dumps(cells, ensure_ascii=False, sort_keys=True)])
        known = self.kinds.setdefault(kind, {}).setdefault(name, [])
        if not cells or key in known or (name == CELL and key in self.tables):
            return
        self.tables[key] = cells
        known.append(key)

    def result(self, name: str, value: Any) -> None:
        """Keep the tables of what a function returned."""
        printed = renamed("function", name) == PRINTS
        shown = getattr(value, "cells", value) if printed else value
        for kind, cells in tables_in(shown, self.normal):
            self.add("words" if printed else kind, name, cells)

    @property
    def document(self) -> dict[str, Any]:
        """What is written to the file of a save."""
        return self.kinds | {"tables": self.tables}


class Calls:
    """Stand in for the library in a notebook and record what its functions return."""

    def __init__(self, library: types.ModuleType, record: Record):
        self.library, self.record = library, record

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.library, name)
        return self.recording(name, value) if isinstance(value, types.FunctionType) else value

    def __dir__(self) -> list[str]:
        return dir(self.library)

    def recording(self, name: str, function: Any) -> Any:
        """Return the function, with every result recorded under its name."""

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self.record.result(name, result)
            return result

        return called


class Shell:
    """An IPython shell that runs cells and collects the figures that they leave or display."""

    def __init__(self) -> None:
        self.shell = InteractiveShell.instance()
        self.shell.history_manager.enabled = False
        self.displayed: list[Figure] = []
        formatter = self.shell.display_formatter
        plain_format = formatter.format

        def collecting(value: Any, *args: Any, **kwargs: Any) -> Any:
            figure = getattr(value, "figure", None)
            found = value if isinstance(value, Figure) else figure
            if isinstance(found, Figure):
                self.displayed.append(found)
            return plain_format(value, *args, **kwargs)

        formatter.format = collecting

    def run(self, source: str) -> tuple[BaseException | None, str, list[Figure]]:
        """Return the cell's error, what it printed, and its figures."""
        self.displayed = []
        np.random.seed(0)  # seaborn's strip plots spread their points at random
        with warnings.catch_warnings(), capture_output(stderr=True) as output:
            warnings.simplefilter("ignore")
            result = self.shell.run_cell(source)
        left_open = [plt.figure(number) for number in plt.get_fignums()]
        figures = [*dict.fromkeys([*left_open, *self.displayed])]
        printed = output.stdout.partition("Out[")[0]  # what follows is displayed, not printed
        return result.error_before_exec or result.error_in_exec, printed, figures


def run_notebook(notebook: Path, params: dict[str, Any], folders: list[str]) -> dict[str, Any]:
    """Run all cells in order with these parameters, and stop at the first error, as papermill does.

    Parameters
    ----------
    folders : paths of this checkout, which recorded texts must not name

    Returns
    -------
    dict : error, the kinds of `Record` (name -> digests), and tables (digest -> cells)
    """
    record, shell, calls = Record(Normal(folders)), Shell(), None
    given = set(shell.shell.user_ns)
    for number, source in cells_of(notebook, params):
        problem, printed, drawn = shell.run(source)
        if printed.strip():
            record.result(CELL, printed.strip().splitlines())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of drawing again what the cell has drawn
            for figure in drawn:
                for part in record_figure(figure, record.normal):
                    record.add(*part)
        plt.close("all")
        if problem is not None:
            said = record.normal(str(problem))
            error = {"cell": number, "class": type(problem).__name__, "message": said}
            return {"error": error} | record.document
        calls = calls or replace_library(shell.shell, record)
    for name, value in shell.shell.user_ns.items():
        if name not in given and isinstance(value, pd.DataFrame | pd.Series):
            record.result(CELL, value)
    return {"error": None} | record.document


def cells_of(notebook: Path, params: dict[str, Any]) -> list[tuple[int, str]]:
    """Return (number, code) of the code cells; the given parameters follow the defaults."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    injected = "\n".join(f"{name} = {value!r}" for name, value in params.items())
    numbered = [] if any(is_parameters(cell) for cell in code) else [(0, injected)]
    for number, cell in enumerate(code, start=1):
        numbered.append((number, "".join(cell["source"])))
        if is_parameters(cell):
            numbered.append((number, injected))
    return numbered


def is_parameters(cell: dict[str, Any]) -> bool:
    """Return whether papermill sets parameters after this cell."""
    return "parameters" in cell["metadata"].get("tags", [])


def replace_library(shell: Any, record: Record) -> Calls | None:
    """Put the recording stand-in where the notebook has imported the library, once."""
    module = shell.user_ns.get(NAME)
    if not isinstance(module, types.ModuleType) or module.__name__ != LIBRARY:
        return None
    shell.user_ns[NAME] = calls = Calls(module, record)
    return calls
