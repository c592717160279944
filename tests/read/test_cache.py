"""The cache of a run directory is never wrong, and gone or damaged it changes nothing."""

import contextlib
import fcntl
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from hcilib import read_results
from hcilib.read.run import steps as cache
from tests.read.made import client, direction, write_counters, write_plan, write_step

STEPS = 7


@pytest.fixture(autouse=True)
def _at_rest(tmp_path, monkeypatch):
    """Each test has a cache of its own, and files are at rest as soon as they are written."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "RESTLESS_NS", 0)


@pytest.fixture
def run_dir(tmp_path) -> Path:
    """A prefill and six runs with different counts."""
    run = tmp_path / "run"
    write_plan(run)
    fill = client(1, write=direction(128, 1, 1e6, {10**6: 128}, bs=2**20))
    write_step(run, "prefill", 0, 1000, [fill], pattern="1m-write")
    for n in range(1, STEPS):
        add_step(run, n)
    return run


def add_step(run: Path, n: int, ios: int = 8000) -> Path:
    reads = [client(1, direction(ios + n, 8, 5e5, {500_000 + 64 * n: ios + n}))]
    step = write_step(run, "measure", n, 1000 + 20 * n, reads, nodes=1)
    write_counters(step, 1000 + 20 * n, {"node1": 40.0 + n})
    return step


def third(run: Path) -> Path:
    [step] = run.glob("steps/measure3*")
    return step


@contextlib.contextmanager
def from_the_cache_alone():
    """Reading a raw step is an error."""

    def refuse(folders, **_):
        raise AssertionError(f"{len(folders)} steps were read from raw files")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "_measure", refuse)
        yield


def assert_right(run: Path) -> None:
    """Twice, as a copy of the raw files comes to."""
    copy = shutil.copytree(run, run.parent / "copy" / run.name)
    wanted = read_results(copy)
    shutil.rmtree(copy.parent)
    for _ in range(2):
        pd.testing.assert_frame_equal(read_results(run), wanted, check_exact=True)


def test_the_second_read_opens_no_raw_file_and_gives_the_same(run_dir):
    first = read_results(run_dir)
    assert first["rep"].tolist() == list(range(1, STEPS))
    assert first["node_cpu_pct"].tolist() == [41, 42, 43, 44, 45, 46]
    with from_the_cache_alone():
        pd.testing.assert_frame_equal(read_results(run_dir), first, check_exact=True)
    assert_right(run_dir)


def rename_system(run: Path) -> None:
    """As long as before, and of the same time."""
    file = third(run) / "step.json"
    found = file.stat()
    file.write_text(file.read_text().replace('"lab-mirror"', '"lab-errorm"'))
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (found.st_size, found.st_mtime_ns)


def touch(run: Path) -> None:
    for file in run.glob("steps/*/*"):
        os.utime(file, (2, 2))


CHANGES = {
    "a step that is gone": lambda run: shutil.rmtree(third(run)),
    "other output": lambda run: add_step_again(run),
    "another name": lambda run: third(run).rename(run / "steps/another"),
    "other content of the same size and time": rename_system,
    "other times": touch,
    "nodes on kernels of their own": lambda run: write_plan(run, one_kernel=False),
}


def add_step_again(run: Path) -> None:
    shutil.rmtree(third(run))
    add_step(run, 3, ios=4000)


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_read_again_once(run_dir, change):
    before = read_results(run_dir)
    CHANGES[change](run_dir)
    assert read_results(run_dir).equals(before) == (change in ("other times", "another name"))
    with from_the_cache_alone():
        read_results(run_dir)
    assert_right(run_dir)


def test_what_may_change_within_a_clock_tick_is_not_kept_yet(run_dir, monkeypatch, tmp_path):
    """Two writes that the file system stamps alike: what had just been written is not trusted by
    its times."""
    monkeypatch.setattr(
        cache, "RESTLESS_NS", 10**12
    )  # on a slow machine two seconds pass before it is read
    read_results(run_dir)
    assert not list(tmp_path.glob("cache/**/*.zst"))


def test_what_other_code_than_that_on_disk_reads_is_not_kept(run_dir, monkeypatch, tmp_path):
    """The library was edited after it was loaded: the digest of its files is not that of what runs."""
    monkeypatch.setattr(cache, "code", cache.code.__wrapped__)
    monkeypatch.setattr(cache, "LOADED_NS", 0)
    read_results(run_dir)
    assert not list(tmp_path.glob("cache/**/*.zst"))


def test_what_changes_while_it_is_read_is_not_kept(run_dir, monkeypatch):
    real = cache._measure

    def read_and_replace(folders, **plan):
        read = real(folders, **plan)
        add_step_again(run_dir)
        return read

    with monkeypatch.context() as patch:
        patch.setattr(cache, "_measure", read_and_replace)
        read_results(run_dir)
    assert read_results(run_dir)["iops"].tolist()[2] == 4003 / 8


def test_other_code_reads_anew(run_dir, monkeypatch):
    read_results(run_dir)
    monkeypatch.setattr(cache, "code", lambda: b"another version")
    with from_the_cache_alone(), pytest.raises(AssertionError, match="7 steps"):
        read_results(run_dir)


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[: len(raw) // 2], lambda _: b"", lambda raw: os.urandom(len(raw))]
)
def test_a_damaged_file_is_ignored_and_made_again(run_dir, damage, tmp_path):
    wanted = read_results(run_dir)
    [file] = tmp_path.glob("cache/**/*.zst")
    file.write_bytes(damage(file.read_bytes()))
    pd.testing.assert_frame_equal(read_results(run_dir), wanted)
    with from_the_cache_alone():
        pd.testing.assert_frame_equal(read_results(run_dir), wanted)


@pytest.mark.parametrize("home", ["file", "relative"])
def test_a_cache_that_cannot_be_written_costs_only_speed(run_dir, tmp_path, home, monkeypatch):
    wanted = read_results(run_dir)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file") if home == "file" else home)
    pd.testing.assert_frame_equal(read_results(run_dir), wanted)
    assert not Path(home).exists()


def test_the_run_directories_that_were_read_last_are_kept(run_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "MOST_RUNS", 2)
    copies = [shutil.copytree(run_dir, tmp_path / str(n) / "run") for n in range(3)]
    for copy in copies:
        read_results(copy)
    with from_the_cache_alone():
        read_results(copies[1])
        read_results(copies[2])
        with pytest.raises(AssertionError, match="7 steps"):
            read_results(copies[0])


def test_a_running_campaign_is_right_at_every_moment_and_kept_when_it_is_over(run_dir, tmp_path):
    with open(run_dir / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for n in (7, 8, 9):
            add_step(run_dir, n)
            assert read_results(run_dir)["rep"].tolist() == list(range(1, n + 1))
        assert not list(tmp_path.glob("cache/**/*.zst"))
    read_results(run_dir)
    with from_the_cache_alone():
        read_results(run_dir)
