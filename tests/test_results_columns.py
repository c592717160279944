"""columns.csv lists every column that public functions return, the site shows it, and its example runs."""

import doctest
import json
from fnmatch import fnmatchcase
from pathlib import Path

import hcilib as hci
from hcilib.model.metrics import FACTORS, KEYS, LISTED, read_columns

ROOT = Path(__file__).resolve().parents[1]
NETS = ("samples", "captures", "earlier", "published")
"""Nets that hold tables of the readers, column by column (tests/snapshot)."""


def row_of(column: str) -> str:
    """Return the name of the column's row, or of its family's."""
    families = (name for name in LISTED if "*" in name and fnmatchcase(column, name))
    return column if column in LISTED else next(families, "")


def test_every_column_of_the_readers_is_listed_with_its_reader():
    nets = [json.loads((ROOT / f"tests/data/nets/{name}.json").read_text("utf-8")) for name in NETS]
    lines = {line for net in nets for case in net.values() for line in case if ": " in line}
    returned = {tuple(line.split(": ", 1)) for line in lines if ": attrs " not in line}
    shared = {
        "results": {"read_results", "published"},
        "steps": {function for function, _ in returned if function.startswith("read_")},
    }
    said = {
        (function, row["column"])
        for row in read_columns()
        for name in row["returned_by"].split()
        for function in shared.get(name, {name})
    }
    alike = {*KEYS, *FACTORS}  # mean the same in every table
    own = sorted(pair for pair in returned if pair[1] not in alike)
    assert [pair for pair in own if (pair[0], row_of(pair[1])) not in said] == []


def test_every_name_is_public_and_every_meaning_short():
    names = {name for row in read_columns() for name in row["returned_by"].split()}
    assert names - {"results", "steps", "discover"} <= {*hci.__all__}
    assert [row["column"] for row in read_columns() if not 1 <= len(row["meaning"].split()) <= 20] == []
    assert len(LISTED) == len(read_columns())


def test_a_table_made_by_hand_is_compared_as_its_page_says():
    text = (ROOT / "docs/EXTEND.md").read_text("utf-8")
    test = doctest.DocTestParser().get_doctest(text, {}, "EXTEND", "EXTEND.md", 0)
    said: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(test, out=said.append).failed == 0, "".join(said)
    assert test.examples
