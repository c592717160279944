"""Run one notebook in this process and record what its functions return and its figures draw."""

from __future__ import annotations

import io
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import wraps
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from hcilib.show.site.scenarios import cells_of as cells_in

from .content import Cells, cells_of, text_of
from .figures import record_figure

NAME = "hci"
PRINTS = "text"
"""The function whose tables are texts, as they are printed."""
CELL = "cell"
"""In place of a function: what cells compute by themselves, and what they print."""


class Record:
    """Keep each table once, under its kind and the function that returned it.

    Kinds: values (numbers, names and states), words (sentences and printed tables), figures, axes.
    """

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}

    def add(self, kind: str, name: str, cells: Cells) -> None:
        """Keep a table of a function. A cell has only those that no function returned."""
        known = self.document.setdefault(kind, {})
        own = known.setdefault(name, [])
        compared = known.values() if name == CELL else [own]
        if cells and not any(cells in tables for tables in compared):
            own.append(cells)

    def result(self, name: str, value: Any) -> None:
        """Keep what a function returned: a table, or a value as a table of one cell."""
        if isinstance(value, pd.DataFrame | pd.Series):
            self.add("words" if name == PRINTS else "values", name, cells_of(value))
        elif value is not None:
            listed = value if isinstance(value, list) else [value]
            is_said = all(isinstance(item, str) for item in listed)
            self.add("words" if is_said else "values", name, {"value": [text_of(value)]})


class Calls:
    """Stand in for the library in a notebook and record what its functions return."""

    def __init__(self, library: types.ModuleType, record: Record):
        self.library, self.record = library, record

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.library, name)
        return self.recording(value) if isinstance(value, types.FunctionType) else value

    def recording(self, function: Callable) -> Callable:
        """Return the function, with every result recorded under its name."""

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self.record.result(function.__name__, result)
            return result

        return called


def run_notebook(record: Record, notebook: Path, params: dict[str, Any]) -> None:
    """Run all cells in order with these parameters, up to the first error, as papermill does."""
    names: dict[str, Any] = {"display": lambda *shown: None}
    for source in sources(notebook, params):
        np.random.seed(0)  # seaborn's strip plots spread their points at random
        printed = io.StringIO()
        with warnings.catch_warnings(), redirect_stdout(printed), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            exec(source, names)
            for number in plt.get_fignums():
                record_figure(record.add, plt.figure(number))
        plt.close("all")
        if said := printed.getvalue().strip():
            record.result(CELL, said.splitlines())
        if isinstance(names.get(NAME), types.ModuleType):
            names[NAME] = Calls(names[NAME], record)
    for value in names.values():
        if isinstance(value, pd.DataFrame | pd.Series):
            record.result(CELL, value)


def sources(notebook: Path, params: dict[str, Any]) -> Iterator[str]:
    """Yield the code of the cells; the given parameters follow the defaults."""
    for cell in cells_in(notebook):
        if cell.cell_type == "code":
            yield cell.source
        if "parameters" in cell.metadata.get("tags", []):
            yield "\n".join(f"{name} = {value!r}" for name, value in params.items())
