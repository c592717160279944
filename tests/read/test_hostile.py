"""Damaged input of every format ends in a table or in a named error with the file's name, soon and
in little memory."""

import gzip
import os
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hcilib import published, read_fio, read_results, recognise
from hcilib.cli import main
from hcilib.model import compressed
from hcilib.read.fio.fio import FioOutputError
from hcilib.read.fio.table import read_fio_bins
from hcilib.read.foreign.settings import ForeignError
from hcilib.read.logs.rollup import FioLogError
from hcilib.read.run.run import read_rollup
from tests.needs import examples
from tests.read.made import written
from tests.read.mutations import FAMILIES, STEPS, mutated, outcome

CASES = {"fio": 600, "fio_log": 700, "diskspd": 700}
SHARE = st.floats(0, 1, width=32)
DAMAGE = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), SHARE, SHARE, st.integers(0, 255)),
    min_size=1,
    max_size=4,
)
HOSTILE = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
LARGE = 2 * 2**30


SECRET = "root:$6$topsecret$abc:19000:0:99999:7:::\ndaemon:*:topsecret:0:99999:7:::\n"


def said_of(read: Callable, *given) -> str:
    try:
        found = read(*given)
    except (ValueError, OSError, RuntimeError) as error:
        return str(error)
    return found.to_csv() if isinstance(found, pd.DataFrame) else str(found)


@pytest.mark.parametrize(
    "name",
    [
        "x.json",
        "x.xml",
        "results.csv",
        "x.csv",
        "x.log",
        "x.yaml",
        "run1.json",
        "plan.json",
        "output.0",
    ],
)
def test_no_text_of_a_file_that_is_no_result_is_shown(name, tmp_path, capsys):
    """The file may be a link to anybody's secrets."""
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "given").mkdir()
    (file := tmp_path / "given" / name).symlink_to(tmp_path / "secret")
    readers = (
        read_fio,
        read_fio_bins,
        read_rollup,
        read_results,
        recognise,
        published,
    )
    texts = [said_of(read, file) for read in readers]
    texts += [said_of(read, tmp_path / "given") for read in (read_results, recognise, published)]
    assert all(text and "topsecret" not in text and "daemon" not in text for text in texts)
    main(["recognise", str(file), str(tmp_path / "given")])
    shown = capsys.readouterr()
    assert "topsecret" not in shown.out + shown.err


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_damaged_capture_gives_a_table_or_a_named_error(kind, tmp_path):
    family = FAMILIES[kind]
    captures = [p for p in family.captures if p.stat().st_size < 70_000]
    contents = {p: p.read_bytes() for p in captures}

    @settings(HOSTILE, max_examples=examples(CASES[kind]))
    @given(st.sampled_from(captures), st.sampled_from(captures), DAMAGE)
    @example(captures[0], captures[0], [("cut", 0.0, 0.0, 0)])
    def damaged(capture, other, steps):
        path = tmp_path / capture.name
        path.write_bytes(mutated(contents[capture], steps, contents[other]))
        outcome(family, path)

    damaged()


READERS = {
    "fio.json": (read_fio, FioOutputError),
    "p_clat.1.log": (read_rollup, FioLogError),
    "d.xml": (read_results, ForeignError),
}


def grown(call: Callable[[], object]) -> int:
    """Bytes of memory the call took at its peak, beyond what the process held before."""
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is held now
    before = _status("VmRSS")
    call()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


# --- what is no file, what holds no result, what is far too much
# ---------------------------------------------------------


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_named_and_nobody_waits_for_it(name, tmp_path):
    read, error = READERS[name]
    os.mkfifo(tmp_path / name)
    refused(read, tmp_path / name, error)


def test_a_file_that_grows_as_fast_as_it_is_read_is_refused(tmp_path, monkeypatch):
    """Its size was small when it was looked at: what counts is what comes."""
    monkeypatch.setattr(compressed, "LARGEST", 2**22)
    path = tmp_path / "fio.json"
    path.write_bytes(b"{" * 2**10)
    real = compressed.opened

    def grown_meanwhile(asked):
        file = real(asked)
        with path.open("ab") as more:
            more.write(b" " * 2**23)
        return file

    monkeypatch.setattr(compressed, "opened", grown_meanwhile)
    refused(read_fio, path, FioOutputError)


@pytest.mark.needs("root")
def test_a_file_that_waits_for_its_writer_is_not_waited_for(tmp_path):
    (tmp_path / "log.json").symlink_to("/proc/kmsg")
    refused(read_fio, tmp_path / "log.json", FioOutputError)


def test_a_result_that_grows_by_a_thousand_is_refused(tmp_path):
    """Each of its jobs would take a hundred times its text."""
    jobs = b'{"fio version": "fio-3.33", "jobs": [' + b'{"jobname": ""},' * 2**23
    path = written(tmp_path / "fio.json.gz", gzip.compress(jobs))
    with pytest.raises(
        FioOutputError, match=r"fio\.json\.gz: unpacks to more than 100 times its size"
    ):
        read_fio(path)


def refused(read: Callable, path: Path, error: type[Exception]) -> None:
    with pytest.raises(error, match=re.escape(str(path))):
        read(path)


def sparse(path: Path) -> Path:
    """Write one line of zeros; no disk is used. Read whole, it would take more than is allowed."""
    path.touch()
    os.truncate(path, LARGE)
    return path


def bomb(path: Path) -> Path:
    """Write a small file that unpacks to as much."""
    packer = zstandard.ZstdCompressor().compressobj()
    pieces = [packer.compress(bytes(2**24)) for _ in range(LARGE // 2**24)]
    return written(path.with_name(f"{path.name}.zst"), b"".join([*pieces, packer.flush()]))


@pytest.mark.deep
@pytest.mark.parametrize("make", [sparse, bomb])
@pytest.mark.parametrize("name", READERS)
def test_two_gigabytes_of_one_line_are_refused_in_little_memory(name, make, tmp_path):
    read, error = READERS[name]
    path = make(tmp_path / name)
    assert grown(lambda: refused(read, path, error)) < LARGE / 4


@pytest.mark.parametrize("suffix", ["zst", "gz"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_compressed_file_cut_off_anywhere_is_an_error(kind, suffix, tmp_path):
    family = FAMILIES[kind]
    path = tmp_path / f"{family.captures[0].name}.{suffix}"
    pack = {"zst": zstandard.compress, "gz": gzip.compress}[suffix]
    packed = pack(family.captures[0].read_bytes())
    for length in range(4, len(packed), max(len(packed) // 12, 1)):
        path.write_bytes(packed[:length])
        assert outcome(family, path)[0] != "table"
