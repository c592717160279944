"""The cache of a run directory: never wrong, whatever happens to it or to the raw files; gone or damaged it changes
nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import zstandard

from hcilib import read_hosts, read_results
from hcilib.read.run import steps as cache
from tests.read.test_run import MIXED, client, direction, mixed_clients, write_counters, write_plan, write_step

ROOT = Path(__file__).parents[2]
STEPS = 7


@pytest.fixture
def run_dir(tmp_path) -> Path:
    """A prefill and six runs with different counts, files older than a clock's tick."""
    run = tmp_path / "run"
    write_plan(run)
    write_step(
        run, "prefill", 0, 1000, [client(1, write=direction(128, 1, 1e6, {10**6: 128}, bs=2**20))], pattern="1m-write"
    )
    for n in range(1, STEPS):
        add_step(run, n)
    rest(run)
    return run


def add_step(run: Path, n: int, **changes) -> Path:
    step = write_step(
        run,
        "measure",
        n,
        1000 + 20 * n,
        [client(1, direction(8000 + n, 8, 5e5, {500_000 + 64 * n: 8000 + n}))],
        **{"nodes": 1, **changes},
    )
    write_counters(step, 1000 + 20 * n, {"node1": 40.0 + n})
    return step


def rest(run: Path) -> None:
    """As if written long ago: the change time cannot be set, so what is young is told by a shorter rest instead."""
    for file in run.glob("steps/*/*"):
        os.utime(file, (1, 1))


@pytest.fixture(autouse=True)
def _soon_at_rest(monkeypatch):
    monkeypatch.setattr("hcilib.read.run.steps.RESTLESS_NS", 0)


@contextlib.contextmanager
def from_the_cache_alone():
    """Reading a raw step is an error."""

    def refuse(folders, **_):
        raise AssertionError(f"{len(folders)} steps were read from raw files")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "_measure", refuse)
        yield


def without_cache(run: Path) -> pd.DataFrame:
    """What a copy of the raw files comes to."""
    copy = shutil.copytree(run, run.parent / "copy" / run.name)
    try:
        return read_results(copy)
    finally:
        shutil.rmtree(copy.parent)


def assert_right(run: Path, wanted: pd.DataFrame | None = None) -> None:
    wanted = without_cache(run) if wanted is None else wanted
    pd.testing.assert_frame_equal(read_results(run), wanted, check_exact=True)


def replace_output(step: Path, ios: int) -> None:
    other = write_step(step.parents[1] / "other", "measure", 1, 1, [client(1, direction(ios, 8, 5e5, {500_000: ios}))])
    (step / "fio.json.zst").write_bytes((other / "fio.json.zst").read_bytes())
    shutil.rmtree(step.parents[1] / "other")


# --- it is used


def test_the_second_read_opens_no_raw_file_and_gives_the_same(run_dir):
    first = read_results(run_dir)
    with from_the_cache_alone():
        assert_right(run_dir, first)
    assert_right(run_dir)
    assert first["rep"].tolist() == list(range(1, STEPS))
    assert first["node_cpu_pct"].tolist() == [41, 42, 43, 44, 45, 46]


def test_touched_and_copied_files_are_read_anew_once(run_dir):
    first = read_results(run_dir)
    for file in run_dir.glob("steps/*/*"):
        os.utime(file, (2, 2))
    copy = run_dir.parent / "elsewhere" / run_dir.name
    shutil.copytree(run_dir, copy)
    for place in (run_dir, copy):
        assert_right(place, first)
        with from_the_cache_alone():
            assert_right(place, first)


def test_the_name_of_the_run_is_that_of_its_folder_now(run_dir):
    read_results(run_dir)
    moved = run_dir.rename(run_dir.with_name("renamed"))
    assert set(read_results(moved)["run_id"]) == {"renamed"}


# --- raw files change


def test_an_output_that_was_replaced_is_read_again(run_dir):
    before = read_results(run_dir)
    [step] = run_dir.glob("steps/measure3*")
    replace_output(step, 4000)
    assert read_results(run_dir)["iops"].tolist() != before["iops"].tolist()
    assert_right(run_dir)


def test_a_change_of_the_same_size_and_time_is_seen(run_dir):
    read_results(run_dir)
    [step] = run_dir.glob("steps/measure3*")
    file = step / "step.json"
    found, text = file.stat(), file.read_text()
    file.write_text(text.replace('"lab-mirror"', '"lab-errorm"'))
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (found.st_size, found.st_mtime_ns)
    assert list(read_results(run_dir)["system"]).count("lab-errorm") == 1
    assert_right(run_dir)


def test_what_may_change_within_a_clock_tick_is_not_kept_yet(run_dir, monkeypatch):
    """Two writes that the file system stamps alike: what had just been written is not trusted by its times."""
    monkeypatch.setattr(cache, "RESTLESS_NS", 10**12)  # on a slow machine two seconds pass before it is read
    read_results(run_dir)
    assert not cache._place(run_dir).exists()


def test_what_changes_while_it_is_read_is_not_kept(run_dir, monkeypatch):
    [step] = run_dir.glob("steps/measure3*")
    real = cache._measure

    def read_and_replace(folders, **plan):
        read = real(folders, **plan)
        replace_output(step, 4000)
        return read

    with monkeypatch.context() as patch:
        patch.setattr(cache, "_measure", read_and_replace)
        read_results(run_dir)
    assert read_results(run_dir)["iops"].tolist()[2] == 500.0


@pytest.mark.parametrize("change", ["added", "removed", "moved", "invalid", "counters", "no counters", "renamed"])
def test_steps_that_come_and_go_are_followed(run_dir, change):
    read_results(run_dir)
    [step] = run_dir.glob("steps/measure2*")
    if change == "added":
        add_step(run_dir, 9)
    elif change == "removed":
        shutil.rmtree(step)
    elif change == "moved":
        (run_dir / "failed").mkdir()
        step.rename(run_dir / "failed" / step.name)
    elif change == "invalid":
        (step / "step.json").write_text((step / "step.json").read_text().replace('"valid": true', '"valid": false'))
    elif change == "counters":
        write_counters(step, 1040, {"node1": 90.0})
    elif change == "no counters":
        (step / "counters.csv").unlink()
    else:
        step.rename(step.with_name("another"))
    assert_right(run_dir)
    with from_the_cache_alone():
        assert_right(run_dir, read_results(run_dir))


def test_whether_nodes_share_a_kernel_is_the_plans_to_say(run_dir):
    lab = read_results(run_dir)["net_bytes_per_s"]
    write_plan(run_dir, one_kernel=False)
    assert (read_results(run_dir)["net_bytes_per_s"] == 5.0).all()
    assert (lab != 5.0).all()


def test_other_code_reads_anew(run_dir, monkeypatch):
    read_results(run_dir)
    monkeypatch.setattr(cache, "code", lambda: b"another version")
    with from_the_cache_alone(), pytest.raises(AssertionError, match="7 steps were read"):
        read_results(run_dir)
    assert_right(run_dir)


# --- the cache is damaged


@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "garbage", "folder"])
def test_a_damaged_file_is_ignored_and_made_again(run_dir, damage):
    wanted = read_results(run_dir)
    file = cache._place(run_dir)
    raw = file.read_bytes()
    file.unlink()
    if damage == "folder":
        file.mkdir()
    elif damage != "gone":
        file.write_bytes({"cut": raw[: len(raw) // 2], "empty": b"", "garbage": os.urandom(len(raw))}[damage])
    assert_right(run_dir, wanted)
    if damage != "folder":
        with from_the_cache_alone():
            assert_right(run_dir, wanted)


@pytest.mark.parametrize("home", ["file", "none"])
def test_a_cache_that_cannot_be_written_costs_only_speed(run_dir, tmp_path, home, monkeypatch):
    wanted = without_cache(run_dir)
    folder = tmp_path / "home"
    folder.write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder) if home == "file" else "relative")
    assert_right(run_dir, wanted)
    assert not cache._place(run_dir).exists()


def test_the_run_directories_that_were_read_last_are_kept(run_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "MOST_RUNS", 2)
    copies = [shutil.copytree(run_dir, tmp_path / str(n) / "run") for n in range(3)]
    for copy in copies:
        rest(copy)
        read_results(copy)
    assert [cache._place(copy).exists() for copy in copies] == [False, True, True]
    with from_the_cache_alone():
        read_results(copies[1])


# --- several processes

READ = """
import sys
from hcilib import read_results
from hcilib.read.run import steps as cache
cache.AT_ONCE = int(sys.argv[2])
cache.RESTLESS_NS = 0
print("ready", flush=True)
sys.stdin.readline()
for _ in range(3):
    print(read_results(sys.argv[1])["iops"].sum(), flush=True)
"""


def test_readers_at_once_write_one_cache_and_all_are_right(run_dir):
    iops = read_results(run_dir)["iops"].sum()
    cache._place(run_dir).unlink()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", READ, str(run_dir), str(size)],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for size in (1, 2, 5)
    ]
    try:
        assert [process.stdout.readline() for process in started] == ["ready\n"] * 3
        said = [process.communicate("go\n", timeout=60)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert said == [f"{iops}\n" * 3] * 3
    with from_the_cache_alone():
        assert read_results(run_dir)["iops"].sum() == iops


def test_a_running_campaign_is_right_at_every_moment_and_kept_when_it_is_over(run_dir):
    with open(run_dir / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert len(read_results(run_dir)) == STEPS - 1
        for n in (7, 8, 9):
            add_step(run_dir, n)
            assert read_results(run_dir)["rep"].tolist() == list(range(1, n + 1))
        assert not cache._place(run_dir).exists()
    assert_right(run_dir)
    with from_the_cache_alone():
        read_results(run_dir)


def test_mixed_steps_keep_every_column(tmp_path):
    """Percentiles and options that only later steps have; texts that only some have."""
    run = tmp_path / "run"
    write_plan(run)
    add_step(run, 1)
    step = write_step(run, "measure", 2, 1900, mixed_clients(), pattern=MIXED)
    raw = zstandard.decompress((step / "fio.json.zst").read_bytes()).decode()
    raw = raw.replace('"N": 24000,', '"N": 24000, "percentile": {"99.000000": 5, "50.000000": 3},')
    (step / "fio.json.zst").write_bytes(
        zstandard.compress(raw.replace('"rw": "randrw"', '"rw": "randrw", "own": "yes"').encode())
    )
    first = read_hosts(run)
    names = list(first)
    assert names.index("lat_ns_p50") + 1 == names.index("lat_ns_p99") < names.index("usr_cpu")
    assert first["opt_own"].tolist()[0] != first["opt_own"].tolist()[0]
    assert first["opt_own"].tolist()[1] == "yes"
    assert first["lat_ns_p50"].notna().sum() == 1
