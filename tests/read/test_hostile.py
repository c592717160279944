"""Damaged input of every format ends in a table or in a named error with the file's name, soon and in little memory."""

import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hcilib.read.diskspd.diskspd import DiskspdOutputError, read_diskspd
from hcilib.read.fio.fio_document import FioOutputError
from hcilib.read.fio.fio_json import read_fio
from hcilib.read.logs.fio_log import FioLogError, read_log
from hcilib.read.run.run import read_bins, read_results
from tests.read.mutations import FAMILIES, STEPS, compiled_rollup, mutated, outcome, plain_rollup

CASES = {"fio": 600, "fio_log": 700, "diskspd": 700}
SHARE = st.floats(0, 1, width=32)
DAMAGE = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), SHARE, SHARE, st.integers(0, 255)), min_size=1, max_size=4)
HOSTILE = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
LARGE = 2 * 2**30
SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "lab-single-2"


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_damaged_capture_gives_a_table_or_a_named_error(kind, tmp_path):
    family = FAMILIES[kind]
    captures = [p for p in family.captures if p.stat().st_size < 70_000]
    contents = {p: p.read_bytes() for p in captures}

    @settings(HOSTILE, max_examples=CASES[kind])
    @given(st.sampled_from(captures), st.sampled_from(captures), DAMAGE)
    @example(captures[0], captures[0], [("cut", 0.0, 0.0, 0)])
    def damaged(capture, other, steps):
        path = tmp_path / capture.name
        path.write_bytes(mutated(contents[capture], steps, contents[other]))
        outcome(family, path)

    damaged()


READERS = {
    "fio.json": (read_fio, FioOutputError), "p_lat.1.log": (read_log, FioLogError), "p_clat.1.log": (plain_rollup, FioLogError),
    "d.xml": (read_diskspd, DiskspdOutputError),
}  # fmt: skip
if find_spec("numba"):
    READERS["p_slat.1.log"] = (compiled_rollup, FioLogError)


def test_what_a_call_takes_is_seen():
    assert grown(lambda: b"x" * 2**27) > 2**26


@pytest.mark.parametrize("name", READERS)
def test_two_gigabytes_of_one_line_are_refused_in_little_memory(name, tmp_path):
    """A sparse file: no disk is used. Read whole, it would take more than the peak this allows."""
    read, error = READERS[name]
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(LARGE)
    assert grown(lambda: refused(read, path, error)) < LARGE / 4


def grown(call: Callable[[], object]) -> int:
    """Bytes of memory the call took at its peak, beyond what the process held before."""
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is held now
    before = _status("VmRSS")
    call()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def refused(read: Callable, path: Path, error: type[Exception], named: Path | None = None) -> None:
    with pytest.raises(error, match=re.escape(str(named or path))):
        read(path)


@pytest.mark.parametrize("name", READERS)
def test_a_small_file_that_unpacks_to_gigabytes_is_refused(name, tmp_path):
    read, error = READERS[name]
    path = tmp_path / f"{name}.zst"
    packer = zstandard.ZstdCompressor().compressobj()
    path.write_bytes(b"".join([*(packer.compress(bytes(2**24)) for _ in range(LARGE // 2**24)), packer.flush()]))
    assert grown(lambda: refused(read, path, error)) < LARGE / 4


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_compressed_file_cut_off_anywhere_is_an_error(kind, tmp_path):
    family = FAMILIES[kind]
    path = tmp_path / f"{family.captures[0].name}.zst"
    packed = zstandard.compress(family.captures[0].read_bytes())
    for length in range(4, len(packed), max(len(packed) // 12, 1)):
        path.write_bytes(packed[:length])
        assert outcome(family, path)[0] != "table"


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_file_that_grows_while_it_is_read(kind, tmp_path):
    """What stands there when the reader opens it counts: each time a table, or an error that names the file."""
    family, path = FAMILIES[kind], tmp_path / FAMILIES[kind].captures[0].name
    content, seen, looked = FAMILIES[kind].captures[0].read_bytes(), [], threading.Event()
    path.touch()
    writer = threading.Thread(target=_append_slowly, args=(path, content, looked))
    writer.start()
    while writer.is_alive():
        seen.append(outcome(family, path)[0])
        looked.set()
    writer.join()
    assert outcome(family, path)[0] == "table"
    assert len(seen) > 1


def _append_slowly(path: Path, content: bytes, looked: threading.Event, pieces: int = 40) -> None:
    """Piece by piece; beyond half of them once the reader has looked."""
    size = len(content) // pieces + 1
    with path.open("ab", buffering=0) as file:
        for start in range(0, len(content), size):
            if start > len(content) / 2:
                looked.wait(20)
            file.write(content[start : start + size])
            time.sleep(0.001)


def test_a_run_directory_with_two_gigabytes_in_a_step_is_refused_in_little_memory(tmp_path):
    run_dir = shutil.copytree(SAMPLE, tmp_path / "run", ignore=shutil.ignore_patterns("tables"))
    large = next(run_dir.glob("steps/*/fio.json.zst"))
    os.truncate(large, LARGE)
    assert grown(lambda: refused(read_results, run_dir, FioOutputError, large)) < LARGE / 4


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("table", ["steps", "hosts", "bins"])
def test_a_cache_half_written_is_read_again_from_the_raw_files(table, keep, tmp_path):
    run_dir = shutil.copytree(SAMPLE, tmp_path / "run", ignore=shutil.ignore_patterns("tables"))
    wanted = read_results(run_dir), read_bins(run_dir)
    part = next((run_dir / "tables").glob(f"{table}-*.parquet"))
    os.truncate(part, int(keep * part.stat().st_size))
    for _ in range(2):  # as it stands, and after it was mended
        found = read_results(run_dir), read_bins(run_dir)
        for one, other in zip(found, wanted, strict=True):
            pd.testing.assert_frame_equal(one, other, check_exact=True)


@pytest.mark.parametrize(
    ("kind", "name", "edit"),
    [
        ("fio", "local.json", lambda raw: raw.replace(b'"runtime" : ', b'"runtime" : ' + b"9" * 5000, 1)),
        ("fio", "local.json", lambda raw: b"text around it\n" + raw.replace(b'"io_bytes" : ', b'"io_bytes" : ' + b"9" * 5000, 1)),
        ("fio", "enospc_continued.json", lambda raw: raw.replace(b'"1.000', b'"1.000' + bytes(30_000), 1)),
        ("fio_log", "cell_lat.1.log.127.0.200.1", lambda raw: b"1000, 93862, 0, 4096, 0, \x8e, 0\n" + raw),
        ("diskspd", "two_streams.txt", lambda raw: raw.replace(b"threads per file: ", b"threads per file: " + b"9" * 30)),
    ],
    ids=["digits", "digits beside text", "a long text", "no text", "threads"],
)  # fmt: skip
def test_what_fifty_thousand_damaged_files_found(kind, name, edit, tmp_path):
    family = FAMILIES[kind]
    capture = next(path for path in family.captures if path.name == name)
    (tmp_path / name).write_bytes(edit(capture.read_bytes()))
    outcome(family, tmp_path / name)
