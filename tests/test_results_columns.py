"""docs/RESULTS.md names every column and metric there is, and its example does what it says."""

import doctest
import re
from pathlib import Path

import pytest

import hcilib as hci
from hcilib.model.metrics import COLUMNS, FACTORS, KEYS

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "RESULTS.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def named() -> set[str]:
    """The columns in the first cells of its tables."""
    first = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    return {name for cell in first for name in re.findall(r"`(\w+)`", cell)}


def test_every_column_and_metric_is_listed_and_no_other():
    assert named() == {*COLUMNS}
    assert {*KEYS, *FACTORS, *hci.METRICS} <= named()


SAMPLE, DISTURBED = (hci.ROOT / "data" / "samples" / name for name in ("lab-single", "box/failure-drbd"))
LISTED = re.compile(r"[sc]?lat_ns_(min|max|mean|stddev|N|p[\d.]+)|opt_\w+")
"""Many of a kind: by their kind."""


@pytest.mark.parametrize(
    ("reader", "sample"),
    [
        ("read_hosts", SAMPLE), ("read_bins", SAMPLE), ("read_counters", SAMPLE), ("read_series", DISTURBED),
        ("read_events", DISTURBED), ("read_io_gaps", DISTURBED),
    ],
)  # fmt: skip
def test_every_column_of_the_other_tables_is_said(reader, sample):
    section = TEXT[TEXT.index("## The other tables of a run directory") : TEXT.index("## What the drives did")]
    shared, _, rows = section.partition("| table |")
    [row] = [line for line in rows.splitlines() if line.startswith(f"| of `{reader}`")]
    known = {*re.findall(r"`(\w+)`", shared), *re.findall(r"\w+", row)}
    found = set(getattr(hci, reader)(sample).columns)
    assert not {name for name in found - known if not LISTED.fullmatch(name)}


def test_its_example_runs():
    example = TEXT[TEXT.index("```python") : TEXT.rindex("```")].replace("```python", "")
    test = doctest.DocTestParser().get_doctest(example, {}, DOCUMENT.name, str(DOCUMENT), 0)
    said: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(test, out=said.append).failed == 0, "".join(said)
    assert test.examples
