"""What an analyst sees when the library refuses: a real kernel runs a real notebook."""

import re

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from hcilib.show.errors import paragraph

CELLS = {
    "pattern": "hci.sweep(['4k-nonsense'])",
    "file": "from hcilib.model.testbed import load_testbed as load\nload('params/testbeds/nowhere.yaml')",
    "column": "hci.text(hci.published(), columns=['iopz'])",
    "mixture": "hci.summarize(hci.published(), 'iops', by=['system'])",
    "own": "{}['mine']",
    "other": "hci.published().no_such_column",
}


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    """What stands below each cell, as text without colours; one kernel for all."""
    cells = [new_code_cell("import hcilib as hci"), *map(new_code_cell, CELLS.values())]
    book = new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    NotebookClient(book, allow_errors=True, timeout=120).execute()
    errors = [next(o for o in cell.outputs if o.output_type == "error") for cell in book.cells[1:]]
    nbformat.validate(book)
    return {name: re.sub(r"\x1b\[[\d;]*m", "", "\n".join(e.traceback)) for name, e in zip(CELLS, errors, strict=True)}


@pytest.mark.parametrize(
    ("cell", "what", "to_do"),
    [
        ("pattern", "field patterns.0.0: unknown pattern '4k-nonsense'", "e.g. 4k-randread"),
        ("file", "params/testbeds/nowhere.yaml: no such file", "YAML file under params/"),
        ("column", "the table has no column 'iopz'", "it has source, system"),
        ("mixture", "results vary in pattern", "add it to by= or filter"),
    ],
)
def test_an_error_of_the_library_is_a_paragraph_and_then_its_traceback(shown, cell, what, to_do):
    first, _, below = shown[cell].partition("\n\n")
    assert first.startswith(what)
    assert to_do in " ".join(first.split())
    assert "Traceback (most recent call last)" in below
    assert len(first) < 600
    assert max(map(len, first.splitlines())) <= 100


@pytest.mark.parametrize("cell", ["own", "other"])
def test_other_errors_look_as_ever(shown, cell):
    assert not re.match(r"\w[^\n]*\n\n", shown[cell])
    assert shown[cell].startswith("---")


def test_lines_of_a_list_stay_lines_and_long_ones_wrap():
    text = paragraph(ValueError("two of three failed:\n  a: " + "x " * 80 + "\n  b: y")).strip("\033[1m0")
    assert [line[:5] for line in text.splitlines()] == ["two o", "  a: ", "  x x", "  b: "]
