"""A table is read as nbval reads it: as text."""

import re

import numpy as np
import pandas as pd
import pytest

from hcilib import text
from hcilib.show.tables.tables import LEAD, SINGLE, number, unfolded

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


def row_of(shown, *needles: str) -> str:
    return next(line for line in repr(shown).splitlines() if all(n in line for n in needles))


def test_header_has_units_numbers_have_separators_and_intervals_stand_beside():
    shown = text(summary())
    assert list(shown.cells.columns) == [
        "System",
        "Pattern",
        "iodepth",
        "IOPS",
        "95 % interval",
        "n",
        "CV (%)",
        "Unstable",
        "Warnings",
    ]
    assert "10,000" in row_of(shown, "lab-single", "[9,500, 10,500]")
    latency = summary().assign(lat_ns=2.5e6)
    assert list(text(latency).cells["Mean latency (ms)"]) == ["2.500"] * 4


def test_every_column_is_shown_an_own_one_too():
    own = summary().assign(cost_eur=[9.5, 10.0, 11.25, NAN], rack="r1")
    assert list(text(own).cells)[-3:] == ["Cost eur", "Rack", "Warnings"]
    assert list(text(own, "rack system iops").cells) == ["Rack", "System", "IOPS", "95 % interval", "Warnings"]
    assert list(text(own, ["rack", "iops_lo"]).cells) == ["Rack", "IOPS from", "Warnings"]


def test_missing_is_said_and_never_zero():
    assert text(summary()).cells["IOPS"].iloc[3] == "missing"
    assert text(summary()).cells["95 % interval"].iloc[0] == "[9,500, 10,500]"
    assert "none" in text(summary()).cells["95 % interval"].iloc[1]


def test_text_and_html_are_the_same_every_time_and_hold_no_address():
    one, two = text(summary()), text(summary())
    assert (repr(one), one._repr_html_()) == (repr(two), two._repr_html_())
    assert " at 0x" not in repr(one) + one._repr_html_()


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


def test_codes_of_warnings_are_the_last_column_where_a_row_has_one():
    shown = text(summary(), "system iops").cells
    assert shown.columns[-1] == "Warnings"
    assert shown["Warnings"].tolist() == summary()["warnings"].tolist()
    assert "Warnings" not in text(summary().assign(warnings="")).cells


def test_wide_has_a_column_per_system_and_says_what_is_missing():
    known = {"lab-single": "drbd-tcp-pve", "lab-mirror": "ceph-pve"}
    shown = text(summary().drop(index=2).replace(known), wide="system")
    assert list(shown.cells.columns) == ["Pattern", "iodepth", "Linstor/DRBD TCP", "Ceph"]
    assert shown.cells["Linstor/DRBD TCP"].iloc[0] == "10,000 [9,500, 10,500]"
    assert list(shown.cells["Ceph"]) == ["missing", "missing (single-run busy)"]
    assert shown.caption == "IOPS", "its heads are systems: what they have stands above them"
    with pytest.raises(ValueError, match="several rows for one Pattern, iodepth and system"):
        text(pd.concat([summary(), summary()]), wide="system")


def test_a_summary_without_a_value_is_a_sentence_that_says_why():
    assert repr(text(summary().head(0), wide="system")) == "No value of IOPS is known."
    p99 = summary().rename(columns=lambda name: name.replace("iops", "p99_ns"))
    lost = p99.assign(p99_ns=np.nan, warnings="percentiles")
    shown = text(lost)
    assert repr(shown) == "No value of p99 latency is known."
    assert shown._repr_html_() == '<p class="nothing">No value of p99 latency is known.</p>'
    some = lost.assign(p99_ns=[1e6, *[np.nan] * 3], p99_ns_lo=np.nan, p99_ns_hi=np.nan)
    assert "missing" in repr(text(some))


def test_a_table_without_a_row_says_what_its_notebook_says():
    assert repr(text(summary().head(0), empty="Every check holds.")) == "Every check holds."
    assert "10,000" in repr(text(summary(), empty="Every check holds."))


def ranks(**best: list[bool]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "pattern": "4k-randread",
            "iodepth": [1, 1, 8, 8],
            "rank": [1.0, 2.0, 1.0, 1.0],
            "verdict": "ranked",
            "system": ["lab-single", "lab-mirror"] * 2,
            "tied_with": ["", "", "lab-mirror", "lab-single"],
            **best,
        }
    )


def test_ranks_mark_the_leader_of_each_row_and_nobody_where_two_are_tied():
    shown = text(summary(), wide="system", ranks=ranks(best=[True, False, False, False]))
    assert "10,000* [9,500, 10,500]" in repr(shown)
    assert LEAD in shown.notes
    assert [
        [text.split(" ")[0].endswith("*") for text in shown.cells[name]] for name in ("lab-single", "lab-mirror")
    ] == [
        [True, False],
        [False, False],
    ]
    assert shown._repr_html_().count("font-weight:bold") == 1
    none = text(summary(), wide="system", ranks=ranks(best=[False] * 4))
    assert "*" not in repr(none)
    assert "bold" not in none._repr_html_()


def test_what_takes_several_runs_to_say_is_not_shown_of_single_ones():
    single = summary().assign(n=1, iops_lo=NAN, iops_hi=NAN, cv_pct=NAN, unstable=False, p_adjusted=NAN)
    assert list(text(single).cells) == ["System", "Pattern", "iodepth", "IOPS", "n", "Warnings"]
    assert "p adjusted" not in text(single, ["system", "iops", "p_adjusted"]).cells
    assert {"CV (%)", "Unstable"} < set(text(single.assign(n=[1, 1, 1, 2])).cells)
    assert "Unstable" in text(single.assign(unstable=True)).cells  # never hidden when it says something


def test_several_values_in_a_cell_are_a_list():
    assert list(text(pd.DataFrame({"tied": [(64,), (8, 16)]})).cells["Tied"]) == ["64", "8, 16"]


def test_a_header_says_the_unit_its_name_says():
    frame = pd.DataFrame(
        {"ceiling_iops": [1.0], "pct_of_ceiling": [1.0], "added_ns": [1.0], "rwmixread": [70], "iodepth": 8}
    )
    assert list(text(frame).cells) == [
        "Ceiling (IOPS)", "Share of the ceiling (%)", "Added (ms)", "rwmixread (%)", "iodepth",
    ]  # fmt: skip


def test_single_means_have_no_interval_column_and_the_note_says_why():
    said = ["single-run", "single-run", "single-run busy", ""]
    shown = text(summary().assign(iops_lo=NAN, iops_hi=NAN, n=1, warnings=said))
    assert "95 % interval" not in shown.cells
    assert shown.notes == (SINGLE,)
    assert shown.cells["Warnings"].tolist() == ["", "", "busy", ""]


def test_a_comparison_shows_ratio_interval_and_p():
    frame = pd.DataFrame(
        {
            "system": ["b"],
            "pattern": ["4k-randread"],
            "ratio": [0.96334809],
            "ratio_lo": [0.93836784],
            "ratio_hi": [0.98899334],
            "p_adjusted": [1e-7],
            "verdict": ["lower"],
            "metric": ["iops"],
            "value": [858e3],
            "value_baseline": [892e3],
            "sentence": ["long"],
            "confidence": [0.95],
        }
    )
    shown = text(frame).cells.iloc[0].to_dict()
    assert shown == {
        "System": "b",
        "Pattern": "4k-randread",
        "Ratio": "0.9633",
        "95 % interval": "[0.9384, 0.9890]",
        "p adjusted": "<0.0001",
        "Verdict": "lower",
        "Metric": "IOPS",
        "IOPS": "858,000",
        "IOPS of the baseline": "892,000",
    }
    both = pd.concat([frame, frame.assign(metric="lat_ns", value=2e6)])
    assert text(both, "metric value").cells["Value"].tolist() == ["858,000", "2.000 ms"]


def test_a_long_table_has_twelve_rows_in_sight_and_all_others_behind_a_fold():
    frame = pd.DataFrame({"system": [f"s{n}" for n in range(31)], "iops": np.arange(31.0)})
    shown = text(frame, caption="All")
    html = shown._repr_html_()
    sight, _, fold = html.partition("<details")
    rows = re.compile(r"<tr>.*?>(s\d+)<")
    assert rows.findall(sight) == [f"s{n}" for n in range(12)]
    assert rows.findall(fold) == [f"s{n}" for n in range(12, 31)]
    assert "<summary>and 19 more rows</summary>" in fold
    assert unfolded(html).count("<table") == 1
    assert rows.findall(unfolded(html)) == [f"s{n}" for n in range(31)]
    assert repr(shown).count("\n") == 32
    short = text(frame[:12])._repr_html_()
    assert "<details" not in short
    assert unfolded(short) == short


def test_html_is_escaped_and_columns_are_scoped():
    html = text(pd.DataFrame({"system": ["<b>&"], "iops": [1.0]}))._repr_html_()
    assert "&lt;b&gt;&amp;" in html
    assert '<th scope="col"' in html


def test_an_empty_table_says_none_below_its_header():
    """A bare header reads as a table that was cut off."""
    html = text(pd.DataFrame({"system": [], "pattern": []}))._repr_html_()
    assert '<tbody>\n<tr data-empty><td colspan="2" style="text-align:left">none</td></tr>\n</tbody>' in html
    assert ">none<" not in text(pd.DataFrame({"system": ["a"], "pattern": ["b"]}))._repr_html_()


def test_an_empty_frame_and_an_absent_column():
    assert "IOPS" in repr(text(summary()[:0]))
    with pytest.raises(KeyError, match="no column 'iopz'"):
        text(summary(), ["system", "iopz"])


def test_nullable_booleans_and_bytes():
    frame = pd.DataFrame(
        {
            "check": ["little", "ceiling"],
            "ok": pd.array([True, pd.NA], dtype="boolean"),
            "span_bytes": [2**30, 3 * 2**30],
        }
    )
    shown = text(frame).cells
    assert list(shown["Holds"]) == ["yes", "–"]
    assert list(shown["Span (GiB)"]) == ["1.00", "3.00"]


def test_where_nothing_crosses_no_number_is_missing():
    frame = pd.DataFrame(
        {"iodepth": [NAN, NAN, NAN], "ratio_below": [0.5, 0.5, NAN], "verdict": ["none", "undecided", "missing"]}
    )
    assert list(text(frame).cells["iodepth"]) == ["none", "none", "–"]


def test_a_number_worked_out_has_no_more_digits_than_it_was_made_of():
    """A crossing at iodepth 5.846118583, and 105,920,337 IOPS per TiB, were printed once."""
    crossing = pd.DataFrame({"iodepth": [5.846118583, np.nan]})
    assert text(crossing).cells["iodepth"].tolist() == ["5.85", "–"]
    assert text(pd.DataFrame({"iodepth": [8, 16]})).cells["iodepth"].tolist() == ["8", "16"]
    per_tib = text(pd.DataFrame({"system": ["a"], "iops_per_usable_tib": [105_920_337.0]}))
    assert per_tib.cells["IOPS per usable TiB"].tolist() == ["105,900,000"]


def test_a_wide_table_shows_the_column_it_is_asked_for():
    """A table of peaks has IOPS, and IOPS per TiB beside it."""
    peaks = pd.DataFrame(
        {
            "system": ["a", "b"],
            "pattern": "1m-read",
            "best": 8,
            "smallest_tied": 8,
            "tied": [(8,), (8,)],
            "n": 1,
            "iops": [100.0, 200.0],
            "usable_tib": [2.0, 8.0],
            "iops_per_usable_tib": [50.0, 25.0],
        }
    )
    shown = text(peaks, "pattern iops_per_usable_tib", wide="system")
    assert shown.cells[["a", "b"]].iloc[0].tolist() == ["50.0", "25.0"]


@pytest.mark.parametrize(
    ("value", "lo", "hi", "shown", "interval"),
    [
        (96_432.0, 90_112.0, 102_003.0, "96,400", "[90,100, 102,000]"),
        (96_432.0, 96_391.0, 96_478.0, "96,432", "[96,391, 96,478]"),
        (431.0, 120.0, 800.0, "431", "[120, 800]"),
        (1_234_567.0, 1_100_000.0, 1_400_000.0, "1,230,000", "[1,100,000, 1,400,000]"),
    ],
)
def test_a_number_has_the_digits_its_interval_leaves_it(value, lo, hi, shown, interval):
    iops = {"iops": [value], "iops_lo": [lo], "iops_hi": [hi]}
    cells = text(pd.DataFrame({"system": ["a"], **iops, "n": [3], "confidence": [0.95]})).cells
    assert (cells["IOPS"][0], cells["95 % interval"][0]) == (shown, interval)
    ends = {"lat_ns": [12.345e6], "lat_ns_lo": [10.9e6], "lat_ns_hi": [14.2e6]}
    latency = text(pd.DataFrame({"system": ["a"], **ends, "n": [3], "confidence": [0.95]})).cells
    assert (latency["Mean latency (ms)"][0], latency["95 % interval"][0]) == ("12.3", "[10.9, 14.2]")


def test_words_and_what_is_worked_out_are_not_missing_where_they_are_not_there():
    frame = pd.DataFrame({"system": ["a", "a"], "note": [None, "seen"], "gain": [NAN, 5.0], "iops": [NAN, 7.0],
                          "stated_pct": [NAN, 40.0], "took_s": [NAN, 1.0], "vms": [NAN, 2.0]})  # fmt: skip
    assert text(frame, columns=list(frame)).cells.iloc[0].tolist() == ["a", "–", "–", "missing", "–", "–", "–"]
    bounded = pd.DataFrame({"ratio": [NAN, 2.0], "ratio_lo": [NAN, 1.5], "ratio_hi": [NAN, 2.5], "n": 3})
    assert text(bounded).cells["Ratio"].tolist() == ["–", "2.000"]


def test_a_few_seconds_are_not_thousandths_of_an_hour():
    cost = pd.DataFrame({"kind": ["prefill", "measure"], "steps": [1, 12], "hours": [0.000233, 0.01]})
    assert text(cost).cells["Seconds"].tolist() == ["0.839", "36.0"]
    assert text(cost.assign(hours=[0.5, 1.5])).cells["Minutes"].tolist() == ["30.0", "90.0"]
    assert text(cost.assign(hours=[0.5, 15])).cells["Hours"].tolist() == ["0.500", "15.0"]


def test_a_small_capacity_is_in_gib():
    box = pd.DataFrame({"system": ["a", "b"], "usable_tib": [2 / 1024, 1 / 1024], "usable_tb": [0.00215, 0.00107]})
    assert list(text(box).cells) == ["System", "Usable (GiB)", "Usable (GB)"]
    assert text(box).cells["Usable (GiB)"].tolist() == ["2.00", "1.00"]
    assert list(text(box.assign(usable_tib=[8.0, 0.01])).cells)[1] == "Usable (TiB)"


def test_each_check_has_its_unit():
    found = pd.DataFrame({"system": "a", "pattern": "4k-randread", "check": ["little", "bandwidth", "mine"],
                          "measured": [48.0, 2**21, 3.0], "expected": [50.0, 2**20, 3.0], "ratio": [0.96, 2.0, 1.0],
                          "ok": [True, False, True], "note": ""})  # fmt: skip
    shown = text(found).cells
    assert shown[["Measured", "Expected", "Unit"]].to_numpy().tolist() == [
        ["48.0", "50.0", "I/Os"], ["2.00", "1.00", "MiB/s"], ["3.00", "3.00", ""],
    ]  # fmt: skip


def test_a_system_that_did_not_come_back_has_no_missing_time():
    costs = pd.DataFrame({"healthy_iops": [9.0, 9.0], "degraded_iops": 5.0, "gap_s": 0.0, "back_s": NAN,
                          "heal_s": [20.0, NAN], "system": "a", "failure": "kill", "block": [1, 2]})  # fmt: skip
    cells = text(costs, "failure block back_s").cells
    assert cells["IOPS recovered after the repair (s)"].tolist() == ["not recovered", "–"]


def test_ceilings_that_nobody_knows_are_a_sentence():
    rows = pd.DataFrame({"pattern": ["4k-randread"], "iops": [9.0], "ceiling_iops": [NAN], "pct_of_ceiling": [NAN]})
    assert repr(text(rows)) == "Nothing to check, because the speed of one drive is not known."


def test_how_many_runs_has_no_decimals_unless_it_is_a_mean():
    assert text(pd.DataFrame({"runs": [3.0, 5.0, 9.44]})).cells["Runs"].tolist() == ["3", "5", "9.44"]
