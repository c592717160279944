"""Read one run directory of each version of the format, and find the values stored beside it.

`python tests/read/test_format_versions.py` writes the values again, for a new version's archive.
"""

import hashlib
import json
import math
import tempfile
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib.model.archives import ARCHIVE, extract
from hcilib.model.caveats import caveats

DATA = Path(__file__).parents[1] / "data" / "rundirs"
VERSIONS = sorted(file.name.removesuffix(ARCHIVE) for file in DATA.glob(f"*{ARCHIVE}"))
TABLES = ["results", "hosts", "bins", "series", "silences", "counters", "drives"]
TABLES += ["pool_fill", "events", "rollup", "histograms", "network", "dials", "unseen"]
DIGESTS_SINCE = "1d"
"""The first version whose steps carry digests. Of older ones `verify` reports just that."""


def describe(run_dir: Path) -> dict:
    """Return every value of the results, and of each other table its rows and columns in brief."""
    results = hci.read_results(run_dir)
    results["warnings"] = results["warnings"].map(lambda said: sorted(caveats(said).codes))
    described = {"results": {str(name): listed(results[name]) for name in results}}
    for name in TABLES[1:]:
        table = getattr(hci, f"read_{name}")(run_dir)
        if len(table):
            columns = {str(c): brief(table[c]) for c in table if c != "run_id"}
            described[name] = {"rows": len(table)} | columns
    return described


def listed(column: pd.Series) -> list:
    """Return a column's values as JSON, missing ones as null, caveats as codes."""
    return [plain(value) for value in column]


def plain(value):
    """Return a value as JSON."""
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if pd.isna(value):
        return None
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, bool | int | float) else str(value)


def brief(column: pd.Series) -> list:
    """Return how many values a column has, and their sum or the number of different ones."""
    there = column.dropna()
    if pd.api.types.is_numeric_dtype(there) and not pd.api.types.is_bool_dtype(there):
        return [
            len(there),
            float(math.fsum(there)),
            float(there.abs().max()) if len(there) else 0.0,
        ]
    return [len(there), there.map(str).nunique()]


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file that is not a cache."""
    names = [f.relative_to(folder) for f in folder.rglob("*") if f.is_file()]
    kept = [name for name in names if "tables" not in name.parts]
    return {str(n): hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in kept}


def assert_same(found, expected, place=""):
    """Compare JSON; floats to 1e-9, as versions of numpy add up in another order."""
    if isinstance(expected, dict):
        assert set(expected) <= set(found), f"{place}: missing {sorted(set(expected) - set(found))}"
        for key in expected:
            assert_same(found[key], expected[key], f"{place}/{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{place}/{number}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9), place
    else:
        assert found == expected, place


@pytest.fixture
def run_dir(request, tmp_path):
    """A copy that may not be written: the cache of tables would lie beside the raw files."""
    copy = tmp_path / request.param
    extract(DATA / f"{request.param}{ARCHIVE}", copy)
    folders = [copy, *(f for f in copy.rglob("*") if f.is_dir())]
    for path in (*copy.rglob("*"), copy):
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield copy
    for folder in folders:
        folder.chmod(0o755)


@pytest.mark.parametrize("run_dir", VERSIONS, indirect=True)
def test_every_version_reads_as_it_did(run_dir):
    before = digests(run_dir)
    expected = json.loads((DATA / f"{run_dir.name}.json").read_text("utf-8"))
    assert_same(describe(run_dir), expected)
    assert digests(run_dir) == before


@pytest.mark.parametrize("run_dir", VERSIONS, indirect=True)
def test_verify_finds_every_step_as_it_was_accepted(run_dir):
    found = hci.verify(run_dir)["file"].tolist()
    assert found == ([] if run_dir.name >= DIGESTS_SINCE else ["steps"])


@pytest.mark.parametrize("run_dir", [v for v in VERSIONS if v >= DIGESTS_SINCE], indirect=True)
def test_an_edited_file_is_found_in_versions_with_digests(run_dir):
    job = sorted(run_dir.glob("steps/*/job.fio"))[0]
    for path in (job.parent, job):
        path.chmod(0o755)
    job.write_text(job.read_text() + "#\n")
    assert hci.verify(run_dir)["file"].tolist() == [f"steps/{job.parent.name}"]


if __name__ == "__main__":
    for version in VERSIONS:
        with tempfile.TemporaryDirectory() as folder:
            extract(DATA / f"{version}{ARCHIVE}", Path(folder) / version)
            values = json.dumps(describe(Path(folder) / version), indent=None)
        (DATA / f"{version}.json").write_text(values + "\n", "utf-8")
