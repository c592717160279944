"""Run one notebook in this process and record what it computes, draws and displays."""

from __future__ import annotations

import json
import types
import warnings
from functools import wraps
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from matplotlib.figure import Figure

from .figures import record_figure
from .values import Normal, Recorder

LIBRARY, NAME = "hcilib", "hci"
KEPT = ("text/plain", "text/markdown", "text/html")


class Calls:
    """Stand in for the library in a notebook and record what its functions return."""

    def __init__(self, library: types.ModuleType, recorder: Recorder):
        self.library, self.recorder = library, recorder
        self.cell = 0
        self.record: dict[str, Any] = {}
        self.count: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.library, name)
        if not isinstance(value, types.FunctionType):
            return value
        return self.recording(name, value)

    def __dir__(self) -> list[str]:
        return dir(self.library)

    def recording(self, name: str, function: Any) -> Any:
        """Return the function, with every result recorded under its name and number."""

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self.count[name] = number = self.count.get(name, 0) + 1
            value = self.recorder.plain(result)
            self.record[f"{name} #{number}"] = {"@cell": self.cell, "value": value}
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

    def run(self, source: str) -> tuple[BaseException | None, Any, list[Figure], list[str]]:
        """Return the cell's error, its output, its figures and its warnings."""
        self.displayed = []
        np.random.seed(0)  # seaborn's strip plots spread their points at random
        with warnings.catch_warnings(record=True) as caught, capture_output(stderr=True) as output:
            warnings.simplefilter("default")
            result = self.shell.run_cell(source)
        error = result.error_before_exec or result.error_in_exec
        left_open = [plt.figure(number) for number in plt.get_fignums()]
        figures = [f for f in dict.fromkeys([*left_open, *self.displayed])]
        said = [f"{w.category.__name__}: {w.message}" for w in caught]
        return error, output, figures, said


def run_notebook(notebook: Path, params: dict[str, Any], folders: list[str]) -> dict[str, Any]:
    """Run all cells in order with these parameters, and stop at the first error, as papermill does.

    Parameters
    ----------
    folders : paths of this checkout, which recorded texts must not name

    Returns
    -------
    dict : error, values (of calls, and of names left at the end), figures, words, tables
    """
    normal = Normal(folders)
    recorder = Recorder(normal)
    shell, calls, error = Shell(), None, None
    figures: dict[str, Any] = {}
    words: dict[str, Any] = {}
    given = set(shell.shell.user_ns)
    for number, source in cells_of(notebook, params):
        if calls:
            calls.cell = number
        problem, output, drawn, said = shell.run(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of drawing again what the cell has drawn
            for figure in drawn:
                recorded = {"@cell": number} | record_figure(figure, recorder)
                figures[f"figure {len(figures) + 1}"] = recorded
        plt.close("all")
        if shown := displayed(output, said, normal):
            words[f"cell {number}"] = shown
        if problem is not None:
            error = {
                "cell": number,
                "class": type(problem).__name__,
                "message": normal(str(problem)),
            }
            break
        calls = calls or replace_library(shell.shell, recorder)
    values = {
        "calls": calls.record if calls else {},
        "names": names_left(shell.shell, given, recorder),
    }
    return {
        "error": error,
        "values": values,
        "figures": figures,
        "words": words,
        "tables": recorder.tables,
    }


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


def replace_library(shell: Any, recorder: Recorder) -> Calls | None:
    """Put the recording stand-in where the notebook has imported the library, once."""
    module = shell.user_ns.get(NAME)
    if not isinstance(module, types.ModuleType) or module.__name__ != LIBRARY:
        return None
    shell.user_ns[NAME] = calls = Calls(module, recorder)
    return calls


def displayed(output: Any, said: list[str], normal: Normal) -> list[Any]:
    """Return what a cell printed, displayed and warned of.

    Standard error is left out: progress bars with times are all that is written there.
    """
    printed = [{"printed": normal(output.stdout)}] if output.stdout.strip() else []
    rich = [
        {mime: normal(str(out.data[mime])) for mime in KEPT if mime in out.data}
        for out in output.outputs
    ]
    return [*printed, *rich, *({"warned": normal(text)} for text in said)]


def names_left(shell: Any, given: set[str], recorder: Recorder) -> dict[str, Any]:
    """Return every value that the notebook leaves under a public name."""
    kept = {}
    for name, value in shell.user_ns.items():
        skip = name in given or name.startswith("_") or isinstance(value, types.ModuleType | Calls)
        if not skip:
            kept[name] = recorder.plain(value)
    return kept
