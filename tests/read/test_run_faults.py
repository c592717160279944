"""Rules of own runs, asked of committed campaigns: a limit that moves is seen by each row."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib.model.archives import unpacked

SAMPLES = hci.ROOT / "data/samples"


def rows_of(name: str) -> pd.DataFrame:
    return hci.read_results(unpacked(SAMPLES / name))


def has(rows: pd.DataFrame, code: str) -> list[bool]:
    return [code in codes.split() for codes in rows["warnings"]]


@pytest.mark.parametrize(
    ("name", "rows", "code", "limit"),
    [
        (
            "box/neighbours-drbd",
            "rate_bytes > 0",
            "cap-missed",
            "bw_bytes < 0.95 * rate_bytes * vms",
        ),
        ("lab-neighbours", "rate_bytes > 0", "cap-missed", "bw_bytes < 0.95 * rate_bytes * vms"),
        (
            "box/placement-drbd",
            "rate_bytes > 0",
            "cap-missed",
            "bw_bytes < 0.95 * rate_bytes * vms",
        ),
        ("lab-demand", "vms > 0", "busy", "node_cpu_pct > 90"),
        ("lab-dedup", "vms > 0", "busy", "node_cpu_pct > 90"),
    ],
)
def test_a_code_is_of_the_rows_beyond_its_limit(name, rows, code, limit):
    own = rows_of(name).query(rows)
    assert len(own)
    assert has(own, code) == own.eval(limit).tolist()


def test_a_run_directory_that_changed_just_now_is_not_kept(tmp_path, monkeypatch):
    """Its files may change once more within a tick of the clock."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = shutil.copytree(hci.samples()["lab-flushed"], tmp_path / "run")
    plan = run / "plan.json"
    plan.write_text(plan.read_text())
    hci.read_results(run)
    assert not list((tmp_path / "cache").glob("hcilib/runs/*"))


class Writing(ThreadPoolExecutor):
    """Another program that writes into the run directory while it is read."""

    def __init__(self, run: Path) -> None:
        super().__init__(1)
        self.run = run

    def map(self, read: Callable, *chunks: Iterable, **_: object) -> list:
        found = list(map(read, *chunks))
        with (self.run / "journal.jsonl").open("a") as journal:
            journal.write('{"t": 1, "event": "start"}\n')
        return found


@pytest.mark.parametrize("is_written", [False, True])
def test_what_changes_while_it_is_read_is_not_kept(tmp_path, monkeypatch, is_written):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = shutil.copytree(hci.samples()["lab-flushed"], tmp_path / "run")
    time.sleep(2.1)
    hci.read_results(run, executor=Writing(run) if is_written else None)
    assert bool(list((tmp_path / "cache").glob("hcilib/runs/*"))) is not is_written


def test_the_rounds_of_a_search_are_in_the_order_of_their_numbers(tmp_path):
    search = shutil.copytree(unpacked(SAMPLES / "lab-load"), tmp_path / "search")
    for old, new in ((1, 9), (2, 10)):
        (search / f"round-{old}").rename(search / f"round-{new}")
    names = hci.read_results([search])["run_id"].unique()
    assert [name.rpartition("-")[2] for name in names] == ["9", "10"]
