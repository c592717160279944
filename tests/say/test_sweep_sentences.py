"""A sweep's sentences: the numbers are the rows', and no verdict gets lost."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from tests.style import faults

DEPTHS = (1, 4, 8, 32, 128)


def curve(levels, runs=3, spread=0.01, seed=0, **columns) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    rows = [
        {"iodepth": depth, "block": block, "rep": 0, "iops": level * np.exp(spread * draw.standard_normal())}
        for depth, level in zip(DEPTHS, levels, strict=False)
        for block in range(runs)
    ]
    return pd.DataFrame(rows).assign(**{"system": "a", "pattern": "4k-randread", "run_id": "r", "vms": 4} | columns)


@given(
    st.lists(st.integers(100, 5_000_000), min_size=1, max_size=5),
    st.integers(1, 3),
    st.sampled_from([0.0001, 0.02, 0.3]),
    st.integers(0, 99),
    st.sampled_from(["4k-randread", "4k-randrw70", "1m-write"]),
)
def test_a_sweep_is_said_as_its_tables_have_it(levels, runs, spread, seed, pattern):
    results = curve(levels, runs, spread, seed, pattern=pattern)
    peaks, regimes = hci.peak(results), hci.load_losses(results)
    answer = hci.sweep_answer(peaks, regimes, results, {"a": "Array A"})
    row = peaks.iloc[0]
    assert faults(answer) == []
    assert answer.startswith(f"Array A delivers up to {row['iops']:,.0f} IOPS")
    assert f"at iodepth {row['best']:g}." in answer
    several = len(levels) > 1
    assert ("untested" in answer) == (several and runs == 1)
    assert ("is not significant" in answer) == (several and row["verdict"] == "plateau")
    assert ("Every other iodepth has significantly fewer" in answer) == (several and row["verdict"] == "peak")
    assert ("the effect of more load is unknown" in answer) == (not several)
    assert f"at least {row['n']} runs each" in answer or row["verdict"] == "untested" or not several
    for verdict, basis in (("lower", r"lower one\."), ("untested", r"lower one \(single runs\)\.")):
        count = (regimes["verdict"] == verdict).sum()
        assert bool(re.search(rf"In {count} cases?, [^.]*{basis}", answer)) == (count > 0)


def test_drops_of_a_test_and_of_single_runs_are_counted_apart():
    three = pd.concat([curve([100, 50]), curve([0, 0, 20.0], runs=1).query("iodepth == 8")])
    text = hci.regimes_sentence(hci.load_losses(three), three)
    assert text.count("In 1 case, a higher iodepth gives over 10 % fewer IOPS") == 2
    assert faults(text) == []
    single = curve([100, 40], runs=1)
    halves = hci.regimes_sentence(hci.load_losses(single, 0.5), single, 0.5)
    assert "a higher iodepth gives over 50 % fewer IOPS" in halves


def test_without_a_valid_run_there_is_no_peak():
    peaks = hci.peak(curve([100, 200]).assign(valid=False))
    assert hci.peak_sentence(peaks) == "No system has a valid run with IOPS."


def test_the_load_of_a_peak_is_the_one_where_it_was_measured():
    tied = hci.peak(curve([11742, 23522], spread=0.6, seed=1))
    assert tied["smallest_tied"].item() == 1
    text = hci.peak_sentence(tied)
    assert f"{tied['iops'].item():,.0f} IOPS" in text
    assert f"at iodepth {tied['best'].item()}." in text


STATED = {
    "all met": {"4k-randread": 900, "4k-randwrite": 450},
    "one met": {"4k-randread": 900},
    "one missed": {"4k-randread": 2000, "4k-randwrite": 450},
    "none met": {"4k-randread": 2000},
    "not measured": {"4k-randread": 900, "1m-read": 10},
    "none stated": {},
}


@pytest.mark.parametrize("stated", STATED.values(), ids=STATED)
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("spread", [0.001, 0.5])
def test_a_bare_drive_meets_and_misses_as_counted(stated, runs, spread):
    raw = pd.concat([curve([1000], runs, spread), curve([500], runs, spread, pattern="4k-randwrite")])
    table = hci.against_datasheet(raw.assign(numjobs=1), stated)
    answer = hci.baseline_answer(table, "Drive D")
    best = table.loc[table["measured"].idxmax()]
    assert faults(answer) == []
    assert answer.startswith(f"Drive D delivers up to {best['measured']:,.0f} IOPS")
    assert ("one value" in answer) == (runs == 1)
    count = table.loc[table["datasheet"].notna(), "verdict"].value_counts()
    for verdict, words in (
        ("below", "{} is missed"),
        ("undecided", "{} is too close"),
        ("not measured", "{} is not"),
    ):
        if count.get(verdict) == 1:
            assert words.format(1) in answer
    if count.get("meets", 0) == len(stated) > 0:
        assert "It meets" in answer
    assert ("No datasheet figures" in answer) == (not stated)


def test_a_drive_without_a_value_says_so():
    none = hci.against_datasheet(curve([1000]).assign(numjobs=1, iops=np.nan), {})
    assert hci.baseline_answer(none, "Drive D") == "Drive D has no measured value."


@pytest.mark.parametrize("without", [{"iops": np.nan}, {"valid": False}])
def test_a_load_without_valid_iops_is_no_second_load(without):
    one = curve([100.0], runs=1).assign(valid=True)
    alone = hci.regimes_sentence(hci.load_losses(one), one)
    both = pd.concat([one, one.assign(**{"iodepth": 16} | without)])
    assert hci.regimes_sentence(hci.load_losses(both), both) == alone
    measured = pd.concat([one, one.assign(iodepth=16, iops=150.0)])
    assert hci.regimes_sentence(hci.load_losses(measured), measured) != alone
