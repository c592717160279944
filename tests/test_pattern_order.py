"""Patterns come in the order of the articles' figures, so nobody sorts them: readers and analyses return them as an
ordered Categorical."""

import shutil
from functools import cache

import pandas as pd
import pytest

import hcilib as hci
from hcilib.read.run.run import read_rollup

BOX = [f"data/samples/box/box-{name}" for name in ("raid5", "drbd", "nvme-tcp")]
BUDGET, FAILURE = (f"data/samples/box/{name}-drbd" for name in ("budget", "failure"))
DRIVES, STAMPED = (f"data/samples/box/{name}-drbd" for name in ("drives", "stamped"))
ORDER = [
    "4k-randread", "4k-randrw70", "4k-randwrite", "8k-randread", "8k-randrw70", "16k-randwrite", "64k-read",
    "64k-randread", "64k-randrw70", "64k-randwrite", "1m-read", "1m-read-rate64m", "1m-write", "4k-randwrite-sync",
    "4k-randwrite-fdatasync",
]  # fmt: skip
LARGER = {"4k-randread": "8k-randread", "4k-randwrite": "16k-randwrite"}
"""Renamed so, a campaign of 4k alone has patterns whose order is not the alphabet's."""

READERS = {
    "published": hci.published,
    "history": lambda: hci.history("data/samples/history.csv"),
    "read_results": lambda: hci.read_results([*BOX, "data/published"]),
    "read_layers": lambda: hci.read_layers(BUDGET),
    "read_osds": lambda: hci.read_osds("data/samples/box/budget-ceph"),
    "read_rollup": lambda: read_rollup(hci.ROOT / STAMPED, log="clat_hist"),
} | {
    name: lambda name=name: getattr(hci, name)(DRIVES)
    for name in ("read_hosts", "read_bins", "read_series", "read_io_gaps", "read_counters", "read_drives")
}


@cache
def read(reader, path) -> pd.DataFrame:
    """Return what a reader finds, with names of patterns as text whose order is not the alphabet's."""
    frame = reader(list(path) if isinstance(path, tuple) else path)
    return frame.assign(pattern=frame["pattern"].astype(str).replace(LARGER))


def results(*path: str) -> pd.DataFrame:
    return read(hci.read_results, path)


def costs() -> pd.DataFrame:
    return hci.failures(read(hci.read_series, FAILURE), read(hci.read_events, FAILURE))


ANALYSES = {
    "compare": lambda: hci.compare(results(*BOX), "box-raid5"),
    "crossover": lambda: hci.crossover(results(*BOX), "box-raid5", "box-drbd"),
    "failure_summary": lambda: hci.failure_summary(costs(), by=["pattern", "failure"]),
    "changes": lambda: hci.changes(hci.history("data/samples/history.csv")),
}
"""Of every kind one: the tables of all others are held by tests/snapshot."""


def groups(frame: pd.DataFrame) -> list[str]:
    return [name for name, _ in frame.groupby("pattern")]


@pytest.mark.parametrize("name", [*READERS, *ANALYSES])
def test_groups_come_in_the_articles_order_without_a_sort(name):
    frame = (READERS | ANALYSES)[name]()
    assert groups(frame) == [pattern for pattern in ORDER if frame["pattern"].eq(pattern).any()]
    assert frame["pattern"].cat.ordered or frame.empty


def test_sources_that_pandas_put_together_are_analysed_as_those_that_were_read_together():
    paths = [*BOX, "data/samples/box/box-ceph"]
    mine = pd.concat([hci.read_results(path) for path in paths], ignore_index=True)
    assert not isinstance(mine["pattern"].dtype, pd.CategoricalDtype)  # unlike categories become text
    table, expected = (hci.compare(frame, "box-raid5") for frame in (mine, hci.read_results(paths)))
    pd.testing.assert_frame_equal(table, expected)
    one = hci.summarize(results(*BOX)).query("pattern == '8k-randread'")
    assert groups(hci.summarize(results(*BOX).query("pattern == '8k-randread'"))) == groups(one) == ["8k-randread"]


def test_patterns_come_by_block_size_then_reads_then_mixes_by_their_reads_and_flushes_last():
    names = ["own mix 10", "own mix 9", "4k-randwrite-fdatasync", "1m-read", "4k-randwrite-sync", "64k-randwrite",
             "4k-randrw30", "4k-randrw70", "4k-randread"]  # fmt: skip
    runs = pd.DataFrame({"system": "a", "pattern": names, "iodepth": 1, "iops": 1.0})
    assert groups(hci.summarize(runs)) == [
        "4k-randread", "4k-randrw70", "4k-randrw30", "64k-randwrite", "1m-read", "4k-randwrite-sync",
        "4k-randwrite-fdatasync", "own mix 9", "own mix 10",
    ]  # fmt: skip


def test_what_is_mapped_from_one_pattern_is_text(tmp_path):
    archive = f"{STAMPED}.tar.zst"
    shutil.copy(hci.ROOT / archive, tmp_path)
    months = hci.history(tmp_path)
    assert months["pattern"].nunique() == 1
    assert isinstance(months["setup"].dtype, pd.StringDtype)
