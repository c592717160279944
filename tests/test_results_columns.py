"""columns.csv lists every column that public functions return, docs/RESULTS.md shows it, and its example runs.

python -m tests.test_results_columns    writes the tables of docs/RESULTS.md anew
"""

import doctest
import json
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib.model.metrics import FACTORS, KEYS, LISTED, read_columns

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "RESULTS.md"
MARK = "<!-- hcilib/model/columns.csv, by `python -m tests.test_results_columns` -->\n"
NETS = ("samples", "captures", "earlier", "published")
"""Nets that hold tables of the readers, column by column (tests/snapshot)."""
SECTIONS = {
    "Which run it is": ("key",),
    "Settings (factors: rows that differ in one are never averaged together)": ("factor", "setting"),
    "Measured values": ("metric", "stamp", ""),
}
"""Tables of the results' columns -> the kinds of column that they list."""
OF_FILES = ("read_", "latency_", "history", "integrity")
"""How functions are called whose other columns are shown."""
SOURCES = """**run** a run directory of an hcilib campaign · **art** the articles' tables · **fio** files and folders
of fio, bench-fio, CBT, HCIBench · **dsk** DiskSPD, VMFleet · **names** the argument `names=` or `system=`
"""


def tables() -> str:
    """Return the tables of the document."""
    rows = read_columns()
    results = [row for row in rows if {"results", "read_results"} & {*row["returned_by"].split()}]
    others = [row for row in rows if row not in results and any(map(of_files, row["returned_by"].split()))]
    parts = [SOURCES]
    for title, kinds in SECTIONS.items():
        chosen = [row for row in results if row["kind"] in kinds]
        parts += [f"## {title}\n", *table(chosen, "filled_by")]
    return "\n".join([*parts, "## Columns of the other tables\n", *table(others, "returned_by")])


def of_files(function: str) -> bool:
    return function.startswith(OF_FILES)


def table(rows: list[dict[str, str]], last: str) -> Iterator[str]:
    """Yield the lines of a table: what a column is, and who gives it."""
    yield f"| column | meaning | {last.replace('_', ' ')} |\n|---|---|---|"
    for row in rows:
        names = [name for name in row[last].split() if last == "filled_by" or of_files(name)]
        yield f"| `{row['column']}` | {row['meaning']} | {' '.join(names)} |"
    yield ""


def test_the_document_shows_the_list():
    assert DOCUMENT.read_text("utf-8").partition(MARK)[2] == tables()


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


PUBLISHED = hci.published().query("source == 'proxmox-2node-hci' and vms > 1")
IOPS = hci.summarize(PUBLISHED, "iops")
CALLS: dict[str, Callable[[], pd.DataFrame]] = {
    "summarize": lambda: IOPS,
    "compare": lambda: hci.compare(PUBLISHED, "ceph-pve"),
    "rank": lambda: hci.rank(PUBLISHED, "iops"),
    "peak": lambda: hci.peak(PUBLISHED),
    "crossover": lambda: hci.crossover(PUBLISHED, "iops", "iodepth"),
    "overall": lambda: hci.overall(PUBLISHED, "ceph-pve"),
    "audit": lambda: hci.audit(PUBLISHED),
    "cost": lambda: hci.cost(hci.peak(PUBLISHED), hci.load_systems(hci.ROOT / "params/systems")),
    "check_claims": lambda: hci.check_claims(hci.published(), hci.published_claims()),
    "system_capacity": lambda: hci.system_capacity({}, {"a": "Mirror(2)"}, 1e13),
}


@pytest.mark.parametrize("function", CALLS)
def test_every_column_of_an_analysis_is_listed(function):
    assert [column for column in CALLS[function]() if not row_of(str(column))] == []


def test_every_name_is_public_and_every_meaning_short():
    names = {name for row in read_columns() for name in row["returned_by"].split()}
    assert names - {"results", "steps"} <= {*hci.__all__}
    assert [row["column"] for row in read_columns() if not 1 <= len(row["meaning"].split()) <= 20] == []
    assert len(LISTED) == len(read_columns())


def test_its_example_runs():
    text = DOCUMENT.read_text("utf-8")
    example = text[text.index("```python") : text.rindex("```")].replace("```python", "")
    test = doctest.DocTestParser().get_doctest(example, {}, DOCUMENT.name, str(DOCUMENT), 0)
    said: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(test, out=said.append).failed == 0, "".join(said)
    assert test.examples


if __name__ == "__main__":
    prose = DOCUMENT.read_text("utf-8").partition(MARK)[0]
    DOCUMENT.write_text(prose + MARK + tables(), "utf-8")
