"""Damaged input of every format ends in a table or in a named error with the file's name, soon and in little memory."""

import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import hcilib
from hcilib import FioOutputError, read_fio, read_results, read_rollup
from hcilib.cli import main
from hcilib.model import compressed
from hcilib.model.places import shipped
from hcilib.read.fio.table import read_fio_bins
from hcilib.read.foreign.settings import ForeignError
from hcilib.read.logs.rollup import FioLogError
from tests.needs import examples
from tests.read.mutations import FAMILIES, STEPS, mutated, outcome

CASES = {"fio": 600, "fio_log": 700, "diskspd": 700}
SHARE = st.floats(0, 1, width=32)
DAMAGE = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), SHARE, SHARE, st.integers(0, 255)), min_size=1, max_size=4)
HOSTILE = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
LARGE = 2 * 2**30
SAMPLE = hcilib.samples()["lab-single-2"]
EARLIER = shipped("tests/data/box-short/box-drbd")


SECRET = "root:$6$topsecret$abc:19000:0:99999:7:::\ndaemon:*:topsecret:0:99999:7:::\n"


def said_of(read: Callable, *given) -> str:
    try:
        found = read(*given)
    except (ValueError, OSError, RuntimeError) as error:
        return str(error)
    return found.to_csv() if isinstance(found, pd.DataFrame) else str(found)


@pytest.mark.parametrize(
    "name", ["x.json", "x.xml", "results.csv", "x.csv", "x.log", "x.yaml", "run1.json", "plan.json", "output.0"]
)
def test_no_text_of_a_file_that_is_no_result_is_shown(name, tmp_path, capsys):
    """The file may be a link to anybody's secrets."""
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "given").mkdir()
    (file := tmp_path / "given" / name).symlink_to(tmp_path / "secret")
    readers = (read_fio, read_fio_bins, read_rollup, read_results, hcilib.recognise, hcilib.published)
    texts = [said_of(read, file) for read in readers]
    texts += [said_of(read, tmp_path / "given") for read in (read_results, hcilib.recognise, hcilib.published)]
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


def test_what_a_call_takes_is_seen():
    assert grown(lambda: b"x" * 2**27) > 2**26


@pytest.mark.deep
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


@pytest.fixture(scope="module")
def bomb() -> bytes:
    packer = zstandard.ZstdCompressor().compressobj()
    return b"".join([*(packer.compress(bytes(2**24)) for _ in range(LARGE // 2**24)), packer.flush()])


@pytest.mark.deep
@pytest.mark.parametrize("name", READERS)
def test_a_small_file_that_unpacks_to_gigabytes_is_refused(name, bomb, tmp_path):
    read, error = READERS[name]
    path = tmp_path / f"{name}.zst"
    path.write_bytes(bomb)
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


@pytest.mark.deep
def test_a_run_directory_with_two_gigabytes_in_a_step_is_refused_in_little_memory(tmp_path):
    """One of before digests were kept, which alone say that the file is another."""
    run_dir = shutil.copytree(EARLIER, tmp_path / "run")
    large = next(run_dir.glob("steps/*/fio.json.zst"))
    os.truncate(large, LARGE)
    assert grown(lambda: refused(read_results, run_dir, FioOutputError, large)) < LARGE / 4


def test_a_step_that_grew_is_named_and_the_others_are_read(tmp_path):
    """Alone among those that are read at once, as it is large: nothing of what was accepted is left in its table."""
    run_dir, found = shutil.copytree(SAMPLE, tmp_path / "run"), list[int]()
    [large] = run_dir.glob("steps/measure-b1-r1-4k-randread-nj1-qd8-vm4/fio.json.zst")
    os.truncate(large, LARGE)
    others = len(read_results(SAMPLE)) - 1
    with pytest.warns(hcilib.RunDirWarning, match=large.parent.name):
        assert grown(lambda: found.append(len(read_results(run_dir)))) < 2**29 + 2**26, "what is read of one file"
    assert found == [others]


@pytest.mark.parametrize(
    ("kind", "name", "edit"),
    [
        ("fio", "local.json", lambda raw: raw.replace(b'"runtime" : ', b'"runtime" : ' + b"9" * 5000, 1)),
        ("fio", "local.json", lambda raw: (b"text around "
                                          b"it\n") + raw.replace(b'"io_bytes" : ', b'"io_bytes" : ' + b"9" * 5000, 1)),
        ("fio", "enospc_continued.json", lambda raw: raw.replace(b'"1.000', b'"1.000' + bytes(30_000), 1)),
        ("fio_log", "cell_lat.1.log.127.0.200.1", lambda raw: b"1000, 93862, 0, 4096, 0, \x8e, 0\n" + raw),
        ("diskspd", "two_streams.txt", lambda raw: raw.replace(b"threads per file: "
                                                               b"", b"threads per file: " + b"9" * 30)),
    ],
    ids=["digits", "digits beside text", "a long text", "no text", "threads"],
)  # fmt: skip
def test_what_fifty_thousand_damaged_files_found(kind, name, edit, tmp_path):
    family = FAMILIES[kind]
    capture = next(path for path in family.captures if path.name == name)
    (tmp_path / name).write_bytes(edit(capture.read_bytes()))
    outcome(family, tmp_path / name)


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


SUMS_ALONE = (
    b'{"fio version": "fio-3.33", "client_stats": [{"jobname": "All clients", "groupid": 0, "read": {"iops": 5}}]}'
)


def one_job(more: bytes) -> bytes:
    read = b'"read": {"io_bytes": 4096, "total_ios": 1, "iops": 1.0, "bw": 4, "runtime": 1000}'
    return b'{"fio version": "fio-3.33", "jobs": [{"jobname": "a", "groupid": 0, "error": 0, %s%s}]}' % (more, read)


NO_RESULTS = {
    "All clients": SUMS_ALONE,
    "no report of any job": b'{"fio version": "fio-3.33", "jobs": []}',
    "another program's": b'{"jobs": [{"name": "build", "status": "green"}]}',
    "remove it": b'{"jobs": []}',
    "it is empty": b"",
    "port": one_job(b'"hostname": "a", "port": %s, ' % (b"9" * 400)),
}


@pytest.mark.parametrize("says", NO_RESULTS)
def test_what_holds_no_result_is_said_for_what_it_is_and_soon(says, tmp_path):
    path = tmp_path / "fio.json"
    path.write_bytes(NO_RESULTS[says])
    for read in (read_fio, read_fio_bins):
        began = time.process_time()
        with pytest.raises(FioOutputError, match=re.escape(says)) as error:
            read(path)
        assert str(path) in str(error.value)
        assert len(str(error.value)) < 1000
        assert time.process_time() - began < 10
