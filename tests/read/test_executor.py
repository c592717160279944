"""An executor of concurrent.futures reads the same tables, and its own error comes out."""

import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context

import pandas as pd
import pytest

import hcilib as hci

FILES = hci.ROOT / "tests/data/foreign/bench-fio"


def test_an_executor_reads_the_same_tables(tmp_path, monkeypatch):
    """Of a campaign, and of another tool; relative paths reach a worker that stands elsewhere."""
    monkeypatch.chdir(hci.ROOT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    places = ["tests/data/rundirs/1c-placement", "tests/data/foreign/bench-fio"]
    with ProcessPoolExecutor(1, get_context("spawn"), os.chdir, ("/",)) as pool:
        there = [hci.read_results(place, executor=pool) for place in places]
    for place, table in zip(places, there, strict=True):
        pd.testing.assert_frame_equal(table, hci.read_results(place), check_exact=True)


def test_a_part_whose_worker_is_killed_ends_in_the_executors_error():
    """It hung for ever (D14)."""
    soon = partial(signal.setitimer, signal.ITIMER_REAL, 0.1)
    with ProcessPoolExecutor(1, get_context("spawn"), soon) as pool, pytest.raises(BrokenProcessPool):
        hci.read_results(FILES, executor=pool)
