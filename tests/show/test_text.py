"""A table is read as nbval reads it: as text."""

import numpy as np
import pandas as pd
import pytest

from hcilib import text
from hcilib.say.words import CHECKS, CURVES, ORDERS, PLACES
from hcilib.show.text import number

NAN = np.nan


def summary() -> pd.DataFrame:
    return pd.DataFrame(
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


@pytest.mark.parametrize("metric", ["iops", "lat_ns", "node_cpu_pct", "bw_bytes", "p99_ns"])
def test_one_percent_more_changes_the_text(metric):
    for value in np.geomspace(1e-3, 1e12, 61):
        frame = pd.DataFrame({"system": ["a"], metric: [value]})
        assert repr(text(frame)) != repr(text(frame.assign(**{metric: 1.01 * value}))), value


@pytest.mark.parametrize("value", np.geomspace(1e-9, 1e9, 37))
def test_a_number_shows_three_digits_at_least(value):
    assert abs(float(number(value).replace(",", "")) - value) <= 0.005 * value


def test_number_of_odd_values():
    assert [number(v) for v in (0, NAN, np.inf, -np.inf, None, 1_234_567, -0.5)] == [
        "0", "missing", "∞", "-∞", "missing", "1,234,567", "-0.500",
    ]  # fmt: skip


def test_what_processors_leave_in_the_last_digits_decides_nothing():
    for value, shown in (
        (10.0, "10.0"),
        (1.0, "1.00"),
        (2.675, "2.68"),
        (-2.675, "-2.68"),
        (0.5, "0.500"),
        (22.25, "22.3"),
    ):
        near = [value * (1 + noise * np.finfo(float).eps) for noise in range(-20, 21)]
        assert {number(v, "{:,.1f}") for v in near} == {shown}
    assert {number(v, "{:,.0f}", 4) for v in (0.7187499999999998, 0.71875, 0.7187500000000009)} == {"0.7188"}
    assert number(999_999_999_999.0) == "999,999,999,999"


def test_several_values_in_a_cell_are_a_list():
    assert list(text(pd.DataFrame({"tied": [(64,), (8, 16)]}))["Tied"]) == ["64", "8, 16"]


def test_a_header_says_the_unit_its_name_says():
    frame = pd.DataFrame(
        {"ceiling_iops": [1.0], "pct_of_ceiling": [1.0], "added_ns": [1.0], "rwmixread": [70], "iodepth": 8}
    )
    assert list(text(frame)) == [
        "Ceiling (IOPS)", "Share of the ceiling (%)", "Added (ms)", "rwmixread (%)", "iodepth",
    ]  # fmt: skip


def test_nullable_booleans_and_bytes():
    frame = pd.DataFrame(
        {
            "check": ["little", "ceiling"],
            "ok": pd.array([True, pd.NA], dtype="boolean"),
            "span_bytes": [2**30, 3 * 2**30],
        }
    )
    shown = text(frame)
    assert list(shown["Holds"]) == ["yes", "–"]
    assert list(shown["Span (GiB)"]) == ["1.00", "3.00"]


def test_where_nothing_crosses_no_number_is_missing():
    frame = pd.DataFrame(
        {"iodepth": [NAN, NAN, NAN], "ratio_below": [0.5, 0.5, NAN], "verdict": ["none", "undecided", "missing"]}
    )
    assert list(text(frame, "iodepth")["iodepth"]) == ["none", "none", "–"]


def test_a_number_worked_out_has_no_more_digits_than_it_was_made_of():
    """A crossing at iodepth 5.846118583, and 105,920,337 IOPS per TiB, were printed once."""
    crossing = pd.DataFrame({"iodepth": [5.846118583, np.nan]})
    assert text(crossing)["iodepth"].tolist() == ["5.85", "–"]
    assert text(pd.DataFrame({"iodepth": [8, 16]}))["iodepth"].tolist() == ["8", "16"]
    per_tib = text(pd.DataFrame({"system": ["a"], "iops_per_usable_tib": [105_920_337.0]}))
    assert per_tib["IOPS per usable TiB"].tolist() == ["105,900,000"]


def test_words_and_what_is_worked_out_are_not_missing_where_they_are_not_there():
    frame = pd.DataFrame({"system": ["a", "a"], "note": [None, "seen"], "gain": [NAN, 5.0], "iops": [NAN, 7.0],
                          "stated_pct": [NAN, 40.0], "took_s": [NAN, 1.0], "vms": [NAN, 2.0]})  # fmt: skip
    assert text(frame, columns=list(frame)).iloc[0].tolist() == ["a", "–", "–", "missing", "–", "–", "–"]
    bounded = pd.DataFrame({"ratio": [NAN, 2.0], "ratio_lo": [NAN, 1.5], "ratio_hi": [NAN, 2.5], "n": 3})
    assert text(bounded)["Ratio"].tolist() == ["–", "2.000 [1.500, 2.500]"]


def test_a_few_seconds_are_not_thousandths_of_an_hour():
    cost = pd.DataFrame({"kind": ["prefill", "measure"], "steps": [1, 12], "hours": [0.000233, 0.01]})
    assert text(cost)["Seconds"].tolist() == ["0.839", "36.0"]
    assert text(cost.assign(hours=[0.5, 1.5]))["Minutes"].tolist() == ["30.0", "90.0"]
    assert text(cost.assign(hours=[0.5, 15]))["Hours"].tolist() == ["0.500", "15.0"]


def test_a_small_capacity_is_in_gib():
    box = pd.DataFrame({"system": ["a", "b"], "usable_tib": [2 / 1024, 1 / 1024], "usable_tb": [0.00215, 0.00107]})
    assert list(text(box)) == ["System", "Usable (GiB)", "Usable (GB)"]
    assert text(box)["Usable (GiB)"].tolist() == ["2.00", "1.00"]
    assert list(text(box.assign(usable_tib=[8.0, 0.01])))[1] == "Usable (TiB)"


def test_each_check_has_its_unit():
    found = pd.DataFrame({"system": "a", "pattern": "4k-randread", "check": ["little", "bandwidth", "mine"],
                          "measured": [48.0, 2**21, 3.0], "expected": [50.0, 2**20, 3.0], "ratio": [0.96, 2.0, 1.0],
                          "ok": [True, False, True], "note": ""})  # fmt: skip
    shown = text(found)
    assert shown[["Measured", "Expected", "Unit"]].to_numpy().tolist() == [
        ["48.0", "50.0", "I/Os"], ["2.00", "1.00", "MiB/s"], ["3.00", "3.00", ""],
    ]  # fmt: skip


def test_a_system_that_did_not_come_back_has_no_missing_time():
    known = {"healthy_iops": 9.0, "degraded_iops": 5.0, "gap_s": 0.0, "back_s": NAN, "system": "a", "failure": "kill"}
    costs = pd.DataFrame({**known, "block": [1, 2, 3], "heal_s": [20.0, NAN, 20.0], "tolerance": [0.2, 0.2, NAN]})
    cells = text(costs, "failure block back_s")
    assert cells["IOPS recovered after the repair (s)"].tolist() == ["not recovered", "–", "–"]


def test_how_many_runs_has_no_decimals_unless_it_is_a_mean():
    assert text(pd.DataFrame({"runs": [3.0, 5.0, 9.44]}))["Runs"].tolist() == ["3", "5", "9.44"]


def test_headings_have_units_and_an_interval_is_in_the_cell_of_its_value():
    shown = text(summary().assign(lat_ns=2.5e6))
    assert list(shown) == [
        "System", "Pattern", "iodepth", "IOPS", "n", "CV (%)", "Unstable", "Mean latency (ms)", "Warnings",
    ]  # fmt: skip
    assert shown["IOPS"].tolist() == ["10,000 [9,500, 10,500]", "50,000", "9,000 [8,500, 9,500]", "missing"]
    assert shown["Mean latency (ms)"].tolist() == ["2.500"] * 4


def test_an_own_column_is_shown_too_and_a_named_one_in_its_place():
    own = summary().assign(cost_eur=[9.5, 10.0, 11.25, NAN], rack="r1")
    assert list(text(own))[-3:] == ["Cost eur", "Rack", "Warnings"]
    assert list(text(own, "rack system iops")) == ["Rack", "System", "IOPS", "Warnings"]
    assert list(text(own, ["rack", "iops_lo"])) == ["Rack", "IOPS from", "Warnings"]
    with pytest.raises(KeyError, match="no column 'iopz'"):
        text(summary(), ["system", "iopz"])


def test_codes_are_the_last_column_but_those_of_every_row():
    assert text(summary(), "system iops")["Warnings"].tolist() == summary()["warnings"].tolist()
    assert "Warnings" not in text(summary().assign(warnings="few-runs"))
    shown = text(summary().assign(warnings=["few-runs", "few-runs", "few-runs", "few-runs busy"]))
    assert shown["Warnings"].tolist() == ["", "", "", "busy"]
    assert text(summary().head(1).assign(warnings="few-runs"))["Warnings"].tolist() == ["few-runs"]


def test_codes_of_percentiles_are_shown_beside_percentiles_alone():
    thin = summary().assign(p99_ns=1e6, warnings=["thin-tail", "percentiles", "", ""])
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


def test_the_index_stays_so_that_a_column_can_be_added():
    some = summary().query("iodepth == 8")
    assert text(some).assign(Own=some["iops"])["Own"].tolist()[:1] == [50_000.0]


def test_a_frame_without_a_row_is_a_row_that_says_none():
    assert text(summary().head(0), "system iops").to_numpy().tolist() == [["none", ""]]


def test_a_comparison_shows_ratio_and_p():
    frame = pd.DataFrame({"system": ["b"], "ratio": [0.96334809], "ratio_lo": [0.93836784], "ratio_hi": [0.98899334],
                          "p_adjusted": [1e-7], "verdict": ["lower"], "metric": ["iops"], "value": [858e3],
                          "value_baseline": [892e3], "confidence": [0.95]})  # fmt: skip
    assert text(frame).iloc[0].to_dict() == {
        "System": "b",
        "Ratio": "0.9633 [0.9384, 0.9890]",
        "p adjusted": "<0.0001",
        "Verdict": "lower",
        "Metric": "IOPS",
        "IOPS": "858,000",
        "IOPS of the baseline": "892,000",
    }
    both = pd.concat([frame, frame.assign(metric="lat_ns", value=2e6)])
    assert text(both, "metric value")["Value"].tolist() == ["858,000", "2.000 ms"]


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
    ends = {"lat_ns": [12.345e6], "lat_ns_lo": [10.9e6], "lat_ns_hi": [14.2e6]}
    assert text(pd.DataFrame(ends))["Mean latency (ms)"].tolist() == ["12.3 [10.9, 14.2]"]


@pytest.mark.parametrize(
    ("column", "words"), [("check", CHECKS), ("placement", PLACES), ("order", ORDERS), ("curve", CURVES)]
)
def test_codes_of_a_column_are_shown_by_their_words(column, words):
    shown = text(pd.DataFrame({column: list(words), "ratio": 1.0}), column)
    assert shown.iloc[:, 0].tolist() == list(words.values())
