"""The truth of a dialled lab, worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from hcilib import against_dial, compare, dialled, summarize

PATTERNS = pd.DataFrame(
    {
        "pattern": ["4k-randread", "4k-randrw70", "4k-randrw30", "4k-randwrite", "64k-write"],
        "bs_bytes": [4096] * 4 + [65536],
        "rwmixread": [100, 70, 30, 0, 0],
    }
)


def drives(copies: dict[str, int], rates: list[tuple[float, float]]) -> pd.DataFrame:
    """Every system behind the same drives, each of so many IOPS of 4 KiB read and written."""
    rows = [(system, f"node{i + 1}", n, 4096 * read, 4096 * write)
            for system, n in copies.items() for i, (read, write) in enumerate(rates)]  # fmt: skip
    return pd.DataFrame(rows, columns=["system", "node", "copies", "read_bytes_per_s", "write_bytes_per_s"])


def truth(copies: dict[str, int], rates: list[tuple[float, float]]) -> pd.DataFrame:
    table = dialled(drives(copies, rates), PATTERNS, baseline="single")
    return table.set_index(["system", "pattern"])


def test_two_copies_on_two_equal_drives():
    found = truth({"single": 1, "mirror": 2}, [(1000, 1000)] * 2)
    assert found.loc["single", "iops"].tolist() == pytest.approx([2000, 2000 / 0.7, 2000 / 0.7, 2000, 125])
    assert found.loc["mirror", "iops"].tolist() == pytest.approx([2000, 2000 / 0.7, 1000 / 0.7, 1000, 62.5])
    assert found.loc["mirror", "ratio"].tolist() == pytest.approx([1, 1, 0.5, 0.5, 0.5])


def test_a_drive_that_writes_slower_binds_the_mix_by_its_writes():
    found = truth({"single": 1, "mirror": 2}, [(1000, 400)] * 2)
    assert found.loc[("single", "4k-randrw70"), "iops"] == pytest.approx(800 / 0.3)
    assert found.loc[("mirror", "4k-randrw70"), "iops"] == pytest.approx(400 / 0.3)


def test_an_aged_drive_costs_one_copy_its_share_and_a_mirror_its_writes():
    found = truth({"single": 1, "mirror": 2}, [(1000, 1000), (250, 250)])["iops"]
    assert found["single"].tolist() == pytest.approx([1250, 1250 / 0.7, 1250 / 0.7, 1250, 1250 / 16])
    assert found["mirror", "4k-randread"] == pytest.approx(1250)
    assert found["mirror", "4k-randwrite"] == pytest.approx(250)


def test_three_nodes_and_two_copies_have_a_truth_only_where_the_drives_are_alike():
    assert truth({"single": 1, "mirror": 2}, [(1000, 1000)] * 3).loc[("mirror", "4k-randwrite"), "iops"] == 1500
    assert np.isnan(
        truth({"single": 1, "mirror": 2}, [(1000, 1000), (900, 900), (1000, 1000)]).loc[
            ("mirror", "4k-randwrite"), "iops"
        ]
    )


def test_a_drive_that_was_turned_has_none_and_nothing_dialled_is_an_empty_table():
    assert truth({"single": 1}, [(np.nan, np.nan), (1000, 1000)])["iops"].isna().all()
    empty = dialled(drives({}, []), PATTERNS, baseline="single")
    assert list(empty.columns) == ["system", "pattern", "iops", "ratio"]
    assert empty.empty


def test_without_a_baseline_there_is_no_ratio():
    assert dialled(drives({"single": 1}, [(1000, 1000)]), PATTERNS)["ratio"].isna().all()


def test_what_an_idle_drive_lets_through_at_once_comes_on_top():
    """0.1 s of the rate in runs of 4 s and of 2 s, of every system alike."""
    idle = drives({"single": 1, "mirror": 2}, [(1000, 1000)] * 2).assign(burst_s=0.1)
    lasting = PATTERNS.assign(runtime_s=[4.0, 4.0, 4.0, 2.0, 2.0])
    found = dialled(idle, lasting, baseline="single").set_index(["system", "pattern"])
    assert found.loc[("single", "4k-randread"), "iops"] == pytest.approx(2000 * 1.025)
    assert found.loc[("mirror", "4k-randwrite"), "iops"] == pytest.approx(1000 * 1.05)
    assert found.loc[("mirror", "4k-randwrite"), "ratio"] == pytest.approx(0.5)


def test_what_was_measured_stands_beside_what_the_drives_say():
    known = dialled(drives({"single": 1, "mirror": 2}, [(1000, 1000)] * 2), PATTERNS, baseline="single")
    runs = pd.DataFrame(
        [
            (system, "4k-randwrite", depth, level * (1 + 0.001 * rep))
            for system, level in (("single", 2000), ("mirror", 990))
            for depth, level in ((1, level / 2), (8, level))
            for rep in (-1, 0, 1)
        ],
        columns=["system", "pattern", "iodepth", "iops"],
    )
    table = against_dial(known, summarize(runs, "iops"), compare(runs[runs["iodepth"] == 8], "single"))
    assert table[["what", "system"]].to_numpy().tolist() == [
        ["IOPS", "single"],
        ["IOPS", "mirror"],
        ["ratio to single", "mirror"],
    ]
    assert table["expected"].tolist() == pytest.approx([2000, 1000, 0.5])
    assert table["off_pct"].tolist() == pytest.approx([0, -1, -1], abs=1e-3), "the best iodepth, which fills the drives"
    assert against_dial(known.head(0), summarize(runs, "iops")).empty
