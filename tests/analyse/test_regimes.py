"""Drops along a curve: the articles' two regimes, what a test shows and what it does not, and numbers that are the
tables'."""

import numpy as np
import pandas as pd
import pytest

from hcilib import load_losses, peak, summarize


def published(**columns):
    base = {"source": "article", "system": "a", "pattern": "4k-randread", "run_id": "article", "block": 0, "rep": 0}
    return pd.DataFrame(base | columns)


def measured(values, runs=(0.99, 1.0, 1.01), depths=(1, 2, 4, 8, 16), **columns):
    """A run per entry of `runs` at every depth; `values` may hold a list of its own runs."""
    rows = [
        {"iodepth": depth, "rep": rep, "iops": run}
        for depth, value in zip(depths, values, strict=False)
        for rep, run in enumerate(value if isinstance(value, list) else [value * share for share in runs], start=1)
    ]
    return pd.DataFrame(rows).assign(**{"system": "a", "pattern": "4k-randread", "run_id": "r", "block": 1} | columns)


def s2d_sweep(**columns):
    depth, iops = [2, 4, 8, 16, 32, 64], [410e3, 113.4e3, 58.2e3, 667e3, 908e3, 941e3]
    return published(**({"pattern": "4k-randrw70", "iodepth": depth, "iops": iops} | columns))


def test_the_regimes_of_s2ds_mirror_are_found_and_called_untested():
    table = load_losses(s2d_sweep())
    assert list(table["iodepth"]) == [4, 8]
    assert list(table["kind"]) == ["dip", "dip"]
    assert list(table["verdict"]) == ["untested", "untested"]
    assert list(table["ratio"]) == pytest.approx([113.4 / 410, 58.2 / 410])
    assert table[["best_iops", "best_at"]].iloc[1].tolist() == pytest.approx([410e3, 2])


def test_a_collapse_past_the_peak_is_a_decline():
    table = load_losses(published(iodepth=[2, 4, 8, 16, 32], iops=[201e3, 288e3, 341e3, 330e3, 196e3]))
    assert table[["iodepth", "best_at", "kind"]].to_numpy().tolist() == [[32, 8, "decline"]]
    partly = load_losses(published(iodepth=[2, 4, 8, 16], iops=[100, 50, 80, 99]))
    assert list(partly["kind"]) == ["decline", "decline"], "99 never regains the 100"
    assert load_losses(published(iodepth=[2, 4], iops=[100, 91])).empty
    assert len(load_losses(published(iodepth=[2, 4], iops=[100, 91]), drop=0.05)) == 1


def test_a_drop_that_runs_do_not_show_is_not_told():
    """The table of peaks calls the two points tied."""
    lower = measured([[10000.0, 10500, 9500], [3000, 9800, 13000]], depths=(1, 8))
    assert summarize(lower, "iops")["iops"].pct_change().iloc[1] < -0.1, "a drop there is"
    assert peak(lower)["tied"].iloc[0] == "1, 8"
    assert load_losses(lower).empty


def test_a_drop_that_runs_show_is_told_in_the_numbers_of_the_table():
    runs = measured([[30000.0, 22000, 21000], [5000.0, 6000, 9000]], depths=(1, 8))
    table, means = load_losses(runs), summarize(runs, "iops").set_index("iodepth")["iops"]
    assert table[["best_iops", "iops"]].iloc[0].tolist() == means.loc[[1, 8]].tolist()
    assert means.loc[8] == pytest.approx((5000 * 6000 * 9000) ** (1 / 3)), "the geometric mean, as in the table"
    assert table[["verdict", "n"]].iloc[0].tolist() == ["lower", 3]
    assert table["warnings"].iloc[0] == "unstable"


def test_a_curve_that_comes_back_to_a_tie_is_a_dip():
    assert list(load_losses(measured([100, 50, 99.5]))["kind"]) == ["dip"]
    assert list(load_losses(measured([100, 50, 80]))["kind"]) == ["decline", "decline"]


def test_a_single_run_among_several_is_untested():
    table = load_losses(measured([100, [50.0]], depths=(1, 8)))
    assert table[["verdict", "n"]].to_numpy().tolist() == [["untested", 1]]
    three = measured([100, 50, [20.0]])
    both = load_losses(three)
    assert list(both["verdict"]) == ["lower", "untested"]
    counts = published(iodepth=[1, 2], iops=[100, 40])
    halves = load_losses(counts, drop=0.5)
    assert halves["verdict"].tolist() == ["untested"]
    assert halves["ratio"].item() == pytest.approx(0.4)


def test_without_data():
    assert load_losses(s2d_sweep(iops=np.nan)).empty
    assert load_losses(s2d_sweep().iloc[:0]).empty
