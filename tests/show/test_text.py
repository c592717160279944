"""A table is read as nbval reads it: as text."""

import numpy as np
import pandas as pd
import pytest

from hcilib import text
from hcilib.say.words import CHECKS, CURVES, ORDERS, PLACES
from hcilib.show.text import number

NAN = np.nan
SUMMARY = pd.DataFrame(
    {
        "system": ["lab-single", "lab-single", "lab-mirror", "lab-mirror"],
        "pattern": "4k-randread",
        "iodepth": [1, 8] * 2,
        "iops": [10_000.0, 50_000.0, 9_000.0, NAN],
        "iops_lo": [9_500.0, NAN, 8_500.0, NAN],
        "iops_hi": [10_500.0, NAN, 9_500.0, NAN],
        "n": [3, 3, 3, 0],
        "confidence": 0.95,
        "cv_pct": [1.25, NAN, 2.0, NAN],
        "unstable": [False, False, True, False],
        "warnings": ["", "single-run", "", "single-run busy"],
    }
)


@pytest.mark.parametrize("metric", ["iops", "lat_ns", "node_cpu_pct", "bw_bytes"])
def test_one_percent_more_changes_the_text(metric):
    for value in np.geomspace(1e-3, 1e12, 31):
        frame = pd.DataFrame({"system": ["a"], metric: [value]})
        assert repr(text(frame)) != repr(text(frame.assign(**{metric: 1.01 * value}))), value


def test_number_of_odd_values():
    assert [number(v) for v in (0, NAN, np.inf, -np.inf, None, 1_234_567, -0.5)] == [
        "0", "missing", "∞", "-∞", "missing", "1,234,567", "-0.500",
    ]  # fmt: skip


def test_what_processors_leave_in_the_last_digits_decides_nothing():
    for value, shown in ((10.0, "10.0"), (1.0, "1.00"), (-2.675, "-2.68"), (0.5, "0.500"), (22.25, "22.3")):
        near = [value * (1 + noise * np.finfo(float).eps) for noise in range(-20, 21)]
        assert {number(v, "{:,.1f}") for v in near} == {shown}
    assert {number(v, "{:,.0f}", 4) for v in (0.7187499999999998, 0.71875, 0.7187500000000009)} == {"0.7188"}
    assert number(999_999_999_999.0) == "999,999,999,999"


BACK = {"healthy_iops": 9.0, "degraded_iops": 5.0, "back_s": NAN, "failure": "kill", "block": [1, 2, 3]}
CHECKED = {"check": ["little", "bandwidth", "mine"], "measured": [48.0, 2**21, 3.0], "expected": [50.0, 2**20, 3.0]}
COMPARED = {"system": "b", "ratio": [0.96334809], "ratio_lo": 0.93836784, "ratio_hi": 0.98899334, "p_adjusted": 1e-7,
            "metric": "iops", "value": 858e3, "value_baseline": 892e3}  # fmt: skip
CAPACITY = {"usable_tib": [2 / 1024, 1 / 1024], "usable_tb": [0.00215, 0.00107]}
COST = {"kind": ["prefill", "measure"], "steps": [1, 12]}
SHOWN = {
    # what is shown: a frame, and its cells by their headings
    "a list": ({"tied": [(64,), (8, 16)]}, {"Tied": ["64", "8, 16"]}),
    "units": (
        {"ceiling_iops": [1.0], "pct_of_ceiling": 1.0, "added_ns": 1.0, "rwmixread": 70, "iodepth": 8},
        {"Ceiling (IOPS)": ["1.00"], "Share of the ceiling (%)": ["1.00"], "Added (ms)": ["0.00000100"],
         "rwmixread (%)": ["70"], "iodepth": ["8"]},
    ),
    "unknown booleans": ({"ok": pd.array([True, pd.NA], dtype="boolean")}, {"Holds": ["yes", "–"]}),
    "bytes": ({"span_bytes": [2**30, 3 * 2**30]}, {"Span (GiB)": ["1.00", "3.00"]}),
    "no crossing": (
        {"iodepth": [5.846118583, NAN, NAN, NAN], "verdict": ["higher", "none", "undecided", "missing"]},
        {"iodepth": ["5.85", "none", "none", "–"], "Verdict": ["higher", "none", "undecided", "missing"]},
    ),
    "an undecided row of no crossing": (
        {"sync_lat_ns": [NAN, 1e6], "verdict": ["undecided", "same"]},
        {"Mean latency of a flush (ms)": ["missing", "1.000"]},
    ),
    "what is worked out": ({"iops_per_usable_tib": [105_920_337.0]}, {"IOPS per usable TiB": ["105,900,000"]}),
    "what was never there": (
        {"note": [None, "seen"], "gain": [NAN, 5.0], "iops": [NAN, 7.0], "took_s": [NAN, 1.0], "vms": [NAN, 2.0]},
        {"Note": ["–", "seen"], "Gain": ["–", "5.00"], "IOPS": ["missing", "7.00"], "Duration (s)": ["–", "1.00"],
         "VMs": ["–", "2"]},
    ),
    "no ratio": (
        {"ratio": [NAN, 2.0], "ratio_lo": [NAN, 1.5], "ratio_hi": [NAN, 2.5]},
        {"Ratio": ["–", "2.000 [1.500, 2.500]"]},
    ),
    "seconds": (COST | {"hours": [0.000233, 0.01]}, {"Seconds": ["0.839", "36.0"]}),
    "minutes": (COST | {"hours": [0.5, 1.5]}, {"Minutes": ["30.0", "90.0"]}),
    "hours": (COST | {"hours": [0.5, 15]}, {"Hours": ["0.500", "15.0"]}),
    "a small capacity": (CAPACITY, {"Usable (GiB)": ["2.00", "1.00"], "Usable (GB)": ["2.15", "1.07"]}),
    "a large capacity": (CAPACITY | {"usable_tib": [8.0, 0.01]}, {"Usable (TiB)": ["8.00", "0.0100"]}),
    "units of checks": (
        CHECKED,
        {"Measured": ["48.0", "2.00", "3.00"], "Expected": ["50.0", "1.00", "3.00"], "Unit": ["I/Os", "MiB/s", ""]},
    ),
    "no recovery": (
        BACK | {"heal_s": [20.0, NAN, 20.0], "tolerance": [0.2, 0.2, NAN]},
        {"IOPS recovered after the repair (s)": ["not recovered", "–", "–"]},
    ),
    "a mean of counts": ({"runs": [3.0, 5.0, 9.44]}, {"Runs": ["3", "5", "9.44"]}),
    "a comparison": (
        COMPARED,
        {"Ratio": ["0.9633 [0.9384, 0.9890]"], "p adjusted": ["<0.0001"], "Metric": ["IOPS"], "IOPS": ["858,000"],
         "IOPS of the baseline": ["892,000"]},
    ),
    "metrics of rows": (
        {"metric": ["iops", "lat_ns"], "value": [858e3, 2e6]}, {"Value": ["858,000", "2.000 ms"]},
    ),
    "an interval": (
        SUMMARY.assign(lat_ns=2.5e6),
        {"IOPS": ["10,000 [9,500, 10,500]", "50,000", "9,000 [8,500, 9,500]", "missing"],
         "CV (%)": ["1.25", "–", "2.00", "–"], "Mean latency (ms)": ["2.500"] * 4,
         "Warnings": ["", "single-run", "", "single-run busy"]},
    ),
    "a code of every row": (
        {"iops": [1.0] * 3, "warnings": ["few-runs", "few-runs", "few-runs busy"]}, {"Warnings": ["", "", "busy"]},
    ),
}  # fmt: skip


NAMED = ("what was never there", "no recovery")
"""Frames whose columns are asked for: one without a value is shown then."""


@pytest.mark.parametrize("name", SHOWN)
def test_a_column_is_shown_as_it_is_called_and_measured(name):
    frame, cells = SHOWN[name]
    frame = pd.DataFrame(frame)
    shown = text(frame, list(frame) if name in NAMED else None)
    assert {heading: shown[heading].tolist() for heading in cells} == cells


def test_an_own_column_is_shown_too_and_a_named_one_in_its_place():
    own = SUMMARY.assign(cost_eur=[9.5, 10.0, 11.25, NAN], rack="r1")
    assert list(text(own))[-3:] == ["Cost eur", "Rack", "Warnings"]
    assert list(text(own, "rack system iops")) == ["Rack", "System", "IOPS", "Warnings"]
    assert list(text(own, ["rack", "iops_lo"])) == ["Rack", "IOPS from", "Warnings"]
    with pytest.raises(KeyError, match="no column 'iopz'"):
        text(SUMMARY, ["system", "iopz"])


def test_codes_are_shown_but_those_of_every_row_and_of_percentiles_that_are_not():
    assert "Warnings" not in text(SUMMARY.assign(warnings="few-runs"))
    assert text(SUMMARY.head(1).assign(warnings="few-runs"))["Warnings"].tolist() == ["few-runs"]
    thin = SUMMARY.assign(p99_ns=1e6, warnings=["thin-tail", "percentiles", "", ""])
    assert "Warnings" not in text(thin, "system iops")
    assert text(thin, "system p99_ns")["Warnings"].tolist() == ["thin-tail", "percentiles", "", ""]


def test_a_pivot_has_loads_by_size_patterns_as_the_articles_and_systems_as_they_come():
    rows = pd.MultiIndex.from_product(
        [["ceph-pve", "drbd-tcp-pve"], ["1m-read", "4k-randread"], [128, 8]], names=["system", "pattern", "iodepth"]
    )
    frame = pd.DataFrame({"iops": np.arange(8.0)}, rows).reset_index()
    wide = text(frame).pivot(index=["Pattern", "iodepth"], columns="System", values="IOPS")
    assert [*wide.index] == [("4k-randread", "8"), ("4k-randread", "128"), ("1m-read", "8"), ("1m-read", "128")]
    assert wide.columns.tolist() == ["Ceph", "Linstor/DRBD TCP"]
    assert wide.loc[("1m-read", "128"), "Ceph"] == "0"


def test_the_index_stays_and_a_frame_without_a_row_says_none():
    some = SUMMARY.query("iodepth == 8")
    assert text(some).assign(Own=some["iops"])["Own"].tolist()[:1] == [50_000.0]
    assert text(SUMMARY.head(0), "system iops").to_numpy().tolist() == [["none", ""]]


@pytest.mark.parametrize(
    ("value", "lo", "hi", "shown"),
    [
        (96_432.0, 90_112.0, 102_003.0, "96,400 [90,100, 102,000]"),
        (96_432.0, 96_391.0, 96_478.0, "96,432 [96,391, 96,478]"),
        (431.0, 120.0, 800.0, "431 [120, 800]"),
        (1_234_567.0, 1_100_000.0, 1_400_000.0, "1,230,000 [1,100,000, 1,400,000]"),
        (431.0, 120.0, NAN, "431 [120, unknown]"),
    ],
)
def test_a_number_has_the_digits_its_interval_leaves_it(value, lo, hi, shown):
    assert text(pd.DataFrame({"iops": [value], "iops_lo": [lo], "iops_hi": [hi]}))["IOPS"].tolist() == [shown]


@pytest.mark.parametrize(
    ("column", "words"), [("check", CHECKS), ("placement", PLACES), ("order", ORDERS), ("curve", CURVES)]
)
def test_codes_of_a_column_are_shown_by_their_words(column, words):
    shown = text(pd.DataFrame({column: list(words), "ratio": 1.0}), column)
    assert shown.iloc[:, 0].tolist() == list(words.values())
