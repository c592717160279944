"""Latency at a demand: curves whose truth is known, and what may not be concluded from them."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci

MEAN_NS = 1e6


def campaign(blocks=5, rate=1000.0, shares=(0.3, 0.6, 0.8, 0.95, 1.1), spread=0.0, seed=1, **columns):
    """An M/D/1-like server of `rate`: p99 rises as 1 + 4 r / (1 - r); what asks for more than it gives is saturated."""
    draw = np.random.default_rng(seed)
    rows = []
    for block in range(1, blocks + 1):
        own = rate * np.exp(spread * draw.standard_normal())
        rows.append({"block": block, "iodepth": 8, "iops": own, "p99_ns": 8e6, "open_loop": None})
        for share in shares:
            delivered = min(share, 1.0) * own
            wait = 1 + 4 * min(share, 0.999) / (1 - min(share, 0.999))
            rows.append({"block": block, "iodepth": 256, "rate_iops": f"{share:g}", "offered_iops": share * own,
                         "iops": delivered, "p99_ns": MEAN_NS * wait, "open_loop": share < 1})  # fmt: skip
    fixed = {"source": "bed", "run_id": "r", "system": "A", "pattern": "4k-randread", "valid": True, "warnings": ""}
    return pd.DataFrame(rows).assign(**(fixed | columns))


def test_a_curve_has_one_row_a_demand_and_marks_what_did_not_keep_up():
    curve = hci.load_curve(campaign())
    assert curve["rate_iops"].tolist() == ["0.3", "0.6", "0.8", "0.95", "1.1"]
    assert curve["open_loop"].tolist() == [True] * 4 + [False]
    assert curve["n"].tolist() == [5] * 5
    assert curve["latency_ns"].iloc[1] == pytest.approx(MEAN_NS * (1 + 4 * 0.6 / 0.4))
    assert curve["latency_ns_hi"].isna().tolist() == [False] * 4 + [True], "a lower bound has no interval"
    assert [sorted(w.split()) for w in curve["warnings"]] == [[]] * 4 + [["above-maximum", "saturated"]]


def test_a_dip_of_chance_does_not_make_latency_fall_with_load():
    results = campaign(blocks=1)
    results.loc[results["rate_iops"] == "0.6", "p99_ns"] = MEAN_NS
    at = hci.latency_at(results, [300, 450, 600, 700])["latency_ns"]
    assert at.is_monotonic_increasing
    level = np.sqrt(MEAN_NS * results["p99_ns"].iloc[1])
    assert at.iloc[:3].tolist() == pytest.approx([level] * 3)


def test_the_limit_is_crossed_where_the_curve_crosses_it():
    held = hci.load_within(campaign(spread=0.02), p99_ns=10e6)
    expected = np.interp(np.log(10e6), np.log([MEAN_NS * 7, MEAN_NS * 17]), [600, 800])
    assert held["iops"].item() == pytest.approx(expected, rel=0.03)
    assert held["iops_lo"].item() < expected < held["iops_hi"].item()
    assert held["bound"].item() == ""


@pytest.mark.parametrize(("limit", "bound", "lo", "hi"), [(1e6, "below", 0, 300), (1e9, "at least", 950, np.inf)])
def test_beyond_what_was_measured_there_is_a_bound_and_no_number(limit, bound, lo, hi):
    held = hci.load_within(campaign(), p99_ns=limit).iloc[0]
    assert held["bound"] == bound
    assert (held["iops_lo"], held["iops_hi"]) == (pytest.approx(lo), pytest.approx(hi))
    assert set(held["warnings"].split()) == {bound.replace(" ", "-")}


def test_nothing_is_interpolated_through_saturation():
    """Between the last demand kept up with and a saturated one lies no curve."""
    held = hci.load_within(campaign(shares=(0.3, 0.6, 1.1)), p99_ns=50e6).iloc[0]
    assert held["bound"] == "at least"
    assert held["iops"] == pytest.approx(600)


def of_server(latency_ns: float) -> float:
    """The IOPS at which a server of 1,000 has this p99, as `campaign` makes it."""
    waits = latency_ns / MEAN_NS - 1
    return 1000 * waits / (4 + waits)


@pytest.mark.parametrize("limit", [3e6, 8e6, 12e6, 20e6, 60e6])
@pytest.mark.parametrize("shares", [(0.3, 0.6, 0.8, 0.95), (0.2, 0.95), (0.1, 0.3, 0.5, 0.7, 0.9, 0.97)])
def test_what_the_levels_leave_open_between_them_is_in_the_interval(limit, shares):
    """Without any noise: the line between two levels is not the curve."""
    held = hci.load_within(campaign(shares=shares), p99_ns=limit).iloc[0]
    assert held["iops_lo"] <= of_server(limit) * 1.000001
    assert held["iops_hi"] >= of_server(limit) * 0.999999
    if held["bound"] == "":
        assert held["iops_hi"] > held["iops_lo"]


@pytest.mark.parametrize("asked", [350, 700, 900, 940])
def test_a_latency_between_two_levels_has_what_they_leave_open_in_its_interval(asked):
    at = hci.latency_at(campaign(), asked).iloc[0]
    truth = MEAN_NS * (1 + 4 * asked / (1000 - asked))
    assert at["latency_ns_lo"] <= truth <= at["latency_ns_hi"] * 1.000001
    assert at["latency_ns_lo"] <= at["latency_ns"] <= at["latency_ns_hi"]


def test_what_was_offered_beyond_the_closed_loops_maximum_is_no_part_of_the_curve():
    """A run of a few seconds seems to keep up with it, by the credit of a bucket or a cache."""
    fast = campaign(shares=(0.3, 0.6, 0.95, 1.05))
    fast.loc[fast["rate_iops"] == "1.05", ["open_loop", "iops"]] = [True, 1050]
    curve = hci.load_curve(fast)
    assert curve["open_loop"].tolist() == [True, True, True, False]
    assert set(curve["warnings"].iloc[3].split()) == {"above-maximum"}
    held = hci.load_within(fast, p99_ns=90e6).iloc[0]
    assert (held["bound"], held["iops_lo"], held["iops_hi"]) == ("at least", pytest.approx(950), np.inf)
    assert np.isnan(hci.latency_at(fast, 1000)["latency_ns"].item())


def test_a_run_too_short_to_show_a_shortfall_says_so_and_stays():
    short = campaign()
    short["open_loop"] = short["open_loop"].map({True: None, False: False})
    curve = hci.load_curve(short)
    assert curve["open_loop"].tolist() == [True] * 4 + [False]
    assert [set(w.split()) for w in curve["warnings"]][:4] == [{"too-few"}] * 4


def test_bounds_and_values_are_never_averaged():
    """One of four blocks whose least demand exceeds the limit makes the answer a bound, with the count."""
    slow = campaign(blocks=1).assign(block=4)
    slow["p99_ns"] *= 3
    mixed = pd.concat([campaign(blocks=3, spread=0.01), slow])
    held = hci.load_within(mixed, p99_ns=7e6).iloc[0]
    assert (held["bound"], held["iops_lo"]) == ("below", 0)
    assert held["iops_hi"] == held["iops"]
    assert held["warnings"] == "below"
    quick = campaign(blocks=1).assign(block=4)
    quick["p99_ns"] /= 30
    held = hci.load_within(pd.concat([campaign(blocks=3, spread=0.01), quick]), p99_ns=7e6).iloc[0]
    assert (held["bound"], held["iops_hi"]) == ("at least", np.inf)
    assert held["iops_lo"] == held["iops"]


def test_a_runs_length_lowers_a_bound_by_what_may_wait_at_its_end():
    long, short = (campaign(shares=(0.3, 0.6)).assign(runtime_s=seconds) for seconds in (3600, 10))
    bounds = [hci.load_within(runs, p99_ns=2e7)["iops_lo"].item() for runs in (long, short)]
    assert bounds == pytest.approx([600, 600 / (1 + (0.007 / 0.99 + 0.25) / 10)], rel=1e-4)


def test_latency_at_a_demand_refuses_to_extrapolate():
    at = hci.latency_at(campaign(spread=0.01), [700, 2000]).set_index("iops")
    between = np.exp(np.interp(700, [600, 800], np.log([MEAN_NS * 7, MEAN_NS * 17])))
    assert at.loc[700, "latency_ns"] == pytest.approx(between, rel=0.1)
    assert at.loc[700, "latency_ns_lo"] < at.loc[700, "latency_ns"] < at.loc[700, "latency_ns_hi"]
    assert np.isnan(at.loc[2000, "latency_ns"])
    assert "not-measured" in at.loc[2000, "warnings"].split()


def test_blocks_that_disagree_give_no_number():
    slow = campaign(blocks=1).assign(block=2)
    slow["p99_ns"] *= 20
    mixed = pd.concat([campaign(blocks=1, shares=(0.3, 0.6)), slow])
    held = hci.load_within(mixed, p99_ns=20e6).iloc[0]
    assert np.isnan(held["iops"])
    assert set(held["warnings"].split()) == {"disagree"}


def test_what_a_limit_allows_two_systems_is_compared_block_by_block():
    both = pd.concat([campaign(spread=0.02), campaign(rate=680.0, spread=0.02, seed=2, system="B")])
    runs = hci.load_within_runs(both, p99_ns=10e6)
    verdict = hci.compare(runs, "A", metric="iops", by=("pattern",)).iloc[0]
    assert verdict["verdict"] == "lower"
    assert verdict["ratio"] == pytest.approx(0.68, rel=0.05)


@pytest.mark.parametrize("spread", [1.5, 10.0])
def test_an_end_above_everything_that_was_measured_is_unknown(spread):
    """Three rounds that differ much: the t interval on logs ends at thousands of seconds."""
    rounds = [
        {"system": "A", "pattern": "4k-randread", "block": block, "rate_iops": share, "offered_iops": 1000 * share,
         "iops": 1000 * share, "open_loop": True, "p99_ns": 1e6 * factor * share / (1 - share)}
        for block, factor in enumerate((1.0, spread, 1 / spread))
        for share in (0.3, 0.6, 0.9)
    ]  # fmt: skip
    results = pd.DataFrame(rounds)
    at = hci.latency_at(results, [500.0, 700.0])
    most, unknown = results["p99_ns"].max(), at["latency_ns_hi"].isna()
    assert (at.loc[~unknown, "latency_ns_hi"] <= most).all()
    assert unknown.tolist() == [spread > 2] * 2
    assert at["warnings"].str.contains("beyond-measured").tolist() == unknown.tolist()
    assert at["latency_ns_lo"].notna().all()
    curve = hci.load_curve(results)
    assert (curve["latency_ns_hi"].dropna() <= most).all()
    assert curve["warnings"].str.contains("beyond-measured").tolist() == curve["latency_ns_hi"].isna().tolist()
