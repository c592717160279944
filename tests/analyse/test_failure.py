"""What a failure costs: every number from a series whose truth is known, and what may not change it."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulate import ar1

import hcilib as hci
from hcilib import aligned, failure_summary, failure_verdicts, failures, summarize

HEALTHY, DEGRADED, DIP = 1000.0, 4400.0, 400.0
FAIL_S, GAP_S, HEAL_S, RESYNC_S, END_S = 30, 3, 70, 15, 130
NAN = np.nan
CELL = {"system": "box-drbd", "pattern": "4k-randwrite", "iodepth": 8, "events": "cut-link@30 heal-link@70"}


def truth(healthy=HEALTHY, degraded=DEGRADED, gap_s=GAP_S, dip=DIP, resync_s=RESYNC_S, end_s=END_S) -> np.ndarray:
    """Healthy, silent, degraded, and after the heal low until the copies are whole."""
    y = np.full(end_s, healthy)
    y[FAIL_S : FAIL_S + gap_s] = 0
    y[FAIL_S + gap_s : HEAL_S] = degraded
    y[HEAL_S : HEAL_S + resync_s] = dip
    return y


def series(y, rep=1, hosts=1, **cell) -> pd.DataFrame:
    shares = np.arange(1, hosts + 1) / np.arange(1, hosts + 1).sum()
    return pd.concat(
        pd.DataFrame({**CELL, **cell, "run_id": "r", "block": rep, "rep": rep, "host": f"vm{h}", "ddir": "write",
                      "t_s": np.arange(len(y)), "iops": y * share, "lat_ns": 1e6})
        for h, share in enumerate(shares)
    ).reset_index(drop=True)  # fmt: skip


def happened(rep=1, heal=True, whole_s=None, **cell) -> pd.DataFrame:
    rows = [(False, "cut-link", FAIL_S + 0.2), *([(False, "heal-link", HEAL_S + 0.0)] if heal else [])]
    rows += [(True, "whole", whole_s)] if whole_s else []
    keys = {**CELL, **cell, "run_id": "r", "block": rep, "rep": rep}
    return pd.DataFrame([{**keys, "seen": k, "what": w, "t_s": t} for k, w, t in rows])


def test_every_number_of_a_run_without_noise():
    hosts = happened().iloc[:1].assign(lat_ns_max=3.2e9)
    [row] = failures(series(truth()), happened(whole_s=HEAL_S + 16.5), hosts).to_dict("records")
    assert (row["failure"], row["heal"], row["fail_s"], row["heal_s"]) == ("cut-link", "heal-link", 30.2, 70.0)
    assert (row["healthy_iops"], row["degraded_iops"], row["ratio"]) == (HEALTHY, DEGRADED, DEGRADED / HEALTHY)
    assert (row["gap_s"], row["gap_from_s"], row["degraded_from_s"]) == (GAP_S, FAIL_S, FAIL_S + GAP_S)
    assert row["dip_pct"] == pytest.approx(60)
    assert (row["gaps"], row["gap_sum_s"]) == (1, GAP_S)
    assert (row["whole_s"], row["max_lat_ns"], row["runtime_s"]) == (16.5, 3.2e9, END_S)
    assert row["back_s"] == pytest.approx(RESYNC_S, abs=1), (
        "a window that begins one second early may still be within 10 %"
    )
    assert row["warnings"] == ""


def test_columns_and_keys():
    costs = failures(series(truth()), happened())
    assert costs.loc[0, "events"] == CELL["events"]
    assert failures(series(truth()), happened().iloc[:0]).empty


def test_levels_carry_intervals_that_know_autocorrelation():
    rng = np.random.default_rng(1)
    y = np.r_[1000 + 50 * ar1(rng, (200,), 3), np.zeros(2), 4000 + 200 * ar1(rng, (300,), 3)]
    done = happened(heal=False).assign(t_s=200.4)
    [row] = failures(series(y), done).to_dict("records")
    assert row["healthy_iops_lo"] < row["healthy_iops"] < row["healthy_iops_hi"]
    assert row["degraded_iops_lo"] < row["degraded_iops"] < row["degraded_iops_hi"]
    assert row["degraded_iops"] == pytest.approx(4000, rel=0.03)
    short = failures(series(truth()[1:]), happened().assign(t_s=lambda t: t["t_s"] - 1)).iloc[0]
    assert np.isnan(short["healthy_iops_lo"]), "29 seconds carry no interval"


def test_a_system_that_does_not_go_on_has_a_gap_to_the_end_and_no_degraded_level():
    y = truth()
    y[FAIL_S:] = 0
    row = failures(series(y), happened(heal=False)).iloc[0]
    assert row["gap_s"] == END_S - FAIL_S
    assert np.isnan(row["ratio"])
    assert "no-level" in row["warnings"].split()


def test_a_run_that_ends_before_it_is_back_says_so():
    row = failures(series(truth(resync_s=60)), happened()).iloc[0]
    assert np.isnan(row["back_s"])
    assert set(row["warnings"].split()) == {"not-back"}
    assert row["dip_pct"] == pytest.approx(60)


def test_crossing_the_healthy_level_on_the_way_down_is_not_being_back():
    y = truth()
    y[HEAL_S : HEAL_S + 5] = [4400, 3000, 1000, 1000, 1000]
    y[HEAL_S + 5 : HEAL_S + 25] = DIP
    assert failures(series(y), happened()).iloc[0]["back_s"] == pytest.approx(25, abs=1)


def test_a_degraded_level_is_judged_after_its_transient():
    y = truth(gap_s=0)
    y[FAIL_S : FAIL_S + 10] = np.linspace(100, 4000, 10)
    row = failures(series(y), happened()).iloc[0]
    assert np.isnan(row["gap_s"])
    assert row["degraded_iops"] == pytest.approx(DEGRADED, rel=0.01)


levels = st.floats(50, 5e5)


@given(healthy=levels, degraded=levels, gap=st.integers(0, 20), resync=st.integers(0, 30), dip=st.floats(0.05, 0.85))
def test_truth_is_found_whatever_the_levels(healthy, degraded, gap, resync, dip):
    y = truth(healthy, degraded, gap, dip * healthy, resync)
    row = failures(series(y), happened()).iloc[0]
    assert np.isnan(row["gap_s"]) if gap == 0 else row["gap_s"] == gap
    assert row["ratio"] == pytest.approx(degraded / healthy)
    assert row["back_s"] == resync
    assert resync < 5 or row["dip_pct"] == pytest.approx(100 * (1 - dip))


@given(scale=st.floats(1e-3, 1e3), hosts=st.integers(1, 4), seed=st.integers(0, 99))
def test_what_may_not_change_the_answer(scale, hosts, seed):
    rng = np.random.default_rng(seed)
    y = truth() * np.exp(0.1 * rng.standard_normal(END_S))
    plain = failures(series(y), happened()).iloc[0]
    moved = series(scale * y, hosts=hosts)
    moved = moved[moved["iops"] > 0].sample(frac=1, random_state=seed)  # no row for a silent second, rows in any order
    same = failures(moved, happened().iloc[::-1]).iloc[0]
    for column in ("ratio", "gap_s", "dip_pct", "back_s", "degraded_from_s"):
        assert same[column] == pytest.approx(plain[column], nan_ok=True), column
    assert same["healthy_iops"] == pytest.approx(scale * plain["healthy_iops"])


def repeats(n, sd=0.05, seed=0, **levels) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    runs = [truth(**{"degraded": DEGRADED * np.exp(sd * rng.standard_normal()), **levels}) for _ in range(n)]
    return failures(
        pd.concat([series(y, rep) for rep, y in enumerate(runs)]), pd.concat([happened(rep) for rep in range(n)])
    )


def test_repeats_give_intervals():
    summary = failure_summary(repeats(5)).set_index("column")
    assert (summary["n"] == 5).all()
    assert summary.loc["ratio", "mean_lo"] < summary.loc["ratio", "mean"] < summary.loc["ratio", "mean_hi"]
    assert tuple(summary.loc["gap_s", ["mean", "mean_lo", "mean_hi"]]) == (3, 3, 5), "two seconds more are not resolved"
    assert "gap_sum_s" not in summary.index, "of one outage it is the same"
    deep = failure_summary(repeats(3).assign(dip_pct=[0.0, 50.0, 100.0])).set_index("column").loc["dip_pct"]
    assert (deep["mean_lo"], deep["mean_hi"]) == (0, 100), "an interval of a share ends where shares do"
    assert deep["warnings"] == "bound", "what covers everything is no interval of 95 %"
    assert summary["warnings"].map({"bound": "bound", "": ""}).to_dict() == {
        **dict.fromkeys(summary.index, ""), "gap_s": "bound"
    }  # fmt: skip
    one = failure_summary(repeats(1)).set_index("column")
    assert one["mean_lo"].drop("gap_s").isna().all()
    assert tuple(one.loc["gap_s", ["mean_lo", "mean_hi"]]) == (3, 5)
    assert one["warnings"].map(lambda own: set(own.split()) - {"bound"} == {"single-run"}).all()


def test_the_interval_of_the_ratio_covers_the_truth():
    hits = 0
    for seed in range(50):
        ratio = failure_summary(repeats(3, seed=seed)).set_index("column").loc["ratio"]
        hits += ratio["mean_lo"] <= DEGRADED / HEALTHY <= ratio["mean_hi"]
    assert 44 <= hits <= 50


def test_a_quantity_not_lived_to_see_has_no_mean():
    costs = pd.concat([repeats(2), repeats(1, resync_s=60).assign(rep=9)])
    back = failure_summary(costs).set_index("column").loc["back_s"]
    assert np.isnan(back["mean"])
    assert (back["warnings"], back["n"], back["seen"]) == ("not-seen", 3, 2)


@pytest.mark.parametrize(
    ("degraded", "n", "verdict"),
    [(4400, 4, "faster"), (500, 4, "slower"), (1000, 4, "undecided"), (4400, 1, "untested")],
)
def test_a_failure_has_the_verdict_of_its_interval(degraded, n, verdict):
    costs = repeats(n).assign(ratio=lambda t: t["ratio"] * degraded / DEGRADED)
    [row] = failure_verdicts(failure_summary(costs)).to_dict("records")
    assert (row["verdict"], row["runs"]) == (verdict, n)


@pytest.mark.parametrize(
    ("factor", "values"), [("vms", (2, 4)), ("numjobs", (1, 2)), ("placement", ("owner", "non-owner"))]
)
def test_unlike_runs_of_a_failure_are_no_repeats(factor, values):
    costs = pd.concat([repeats(2).assign(**{factor: value}) for value in values])
    summary = failure_summary(costs, ["system", "pattern", "iodepth", "failure", factor])
    assert (summary["n"] == 2).all()
    assert list(failure_verdicts(summary)[factor]) == list(values)


def late_heal(y, heal_s, rep=1) -> pd.DataFrame:
    return failures(series(y, rep), happened(rep).assign(t_s=[FAIL_S + 0.2, heal_s]))


@pytest.mark.parametrize("silent", [0, 2])
def test_a_heal_just_before_the_end_has_its_silence_and_no_dip(silent):
    y = truth(end_s=60)
    y[57 : 57 + silent] = 0
    costs = pd.concat([late_heal(y, 57.0, rep) for rep in (1, 2)])
    assert costs[["dip_pct", "back_s"]].isna().all(axis=None), "three seconds are no window"
    summary = failure_summary(costs).set_index("column")
    assert tuple(summary.loc["back_s", ["n", "seen", "median"]]) == (2, 0, np.inf)
    assert "dip_pct" not in summary.index
    assert ("gap_sum_s" in summary.index) == bool(silent)
    assert not silent or tuple(summary.loc["gap_sum_s", ["median", "worst"]]) == (5, 5)


def test_a_heal_after_the_last_second_has_no_silence():
    back = failure_summary(late_heal(truth(end_s=60), 61.0)).set_index("column").loc["back_s"]
    assert (back["n"], back["seen"]) == (1, 0)


def silent(*spans, rep=1, resolution_s=0.1) -> pd.DataFrame:
    """As `read_io_gaps` gives them."""
    keys = {**CELL, "run_id": "r", "block": rep, "rep": rep}
    return pd.DataFrame([{**keys, "from_s": a, "to_s": b, "resolution_s": resolution_s} for a, b in spans])


def test_an_outage_across_the_heal_is_one():
    y = truth()
    y[FAIL_S : HEAL_S + 1] = 0
    row = late_heal(y, HEAL_S + 0.4).iloc[0]
    assert (row["gap_s"], row["gaps"], row["gap_sum_s"]) == (HEAL_S + 1 - FAIL_S, 1, HEAL_S + 1 - FAIL_S)


def test_the_outage_is_the_longest_of_the_run_and_the_sum_of_all_stands_beside_it():
    """From the failure (30.2 s) on; what began before it and lasted is not cut, what ended before it is no part."""
    spans = silent((10.0, 15.0), (30.0, 31.5), (50.0, 50.25), (71.0, 73.5))
    row = failures(series(truth(gap_s=0)), happened(), silences=spans).iloc[0]
    assert (row["gap_s"], row["gap_from_s"], row["gaps"], row["gap_sum_s"]) == (2.5, 71.0, 3, 4.25)
    shuffled = failures(series(truth(gap_s=0)), happened(), silences=spans.iloc[::-1].assign(i=0).set_index("i"))
    assert shuffled.iloc[0]["gap_from_s"] == 71.0


@cache
def in_the_box(*names: str) -> tuple[pd.DataFrame, ...]:
    """Return series, events, hosts and silences of committed campaigns, read once."""
    folders = [hci.ROOT / "data/samples/box" / name for name in names]
    return tuple(read(folders) for read in (hci.read_series, hci.read_events, hci.read_hosts, hci.read_io_gaps))


def test_an_outage_that_was_not_seen_is_never_zero():
    series_, events, _, silences = in_the_box("failure-drbd")
    seconds = failures(series_, events)
    assert not (seconds["gap_s"] == 0).any()
    assert (seconds["resolution_s"] == 1).all()
    fine = failures(series_, events, silences=silences)
    assert not (fine[["gap_s", "gap_sum_s"]] == 0).any(axis=None)
    assert (fine["gap_s"].isna() == (fine["failure"] == "fail-drive")).all()
    assert list(hci.text(fine)["Outage (s)"][fine["failure"] == "fail-drive"]) == ["< 1"] * 3
    summary = failure_summary(fine)
    outage = summary.query("failure == 'fail-drive' and column == 'gap_s'")
    assert hci.text(outage)[["Median", "Worst"]].to_numpy().tolist() == [["< 1", "< 1"]]


def test_the_way_back_is_counted_from_the_heal_itself():
    whole, part = (late_heal(truth(), HEAL_S + late).iloc[0]["back_s"] for late in (0.0, 0.4))
    assert part == pytest.approx(whole - 0.4)


def test_runs_are_laid_over_each_other_at_the_failure():
    costs = pd.concat([failures(series(truth()), happened())])
    laid = aligned(series(truth()), costs)
    assert list(laid["since_s"]) == list(np.arange(END_S) - FAIL_S)
    assert laid.loc[laid["since_s"] == 0, "iops"].item() == 0


def test_a_disturbed_run_is_never_averaged_with_healthy_ones():
    rows = pd.DataFrame(
        {
            "system": "a",
            "run_id": "r",
            "block": [1, 2, 3, 4],
            "rep": [1, 2, 3, 4],
            "pattern": "4k-randwrite",
            "iodepth": 8,
            "iops": [1.0, 1.1, 4.0, 4.1],
            "events": [np.nan, np.nan, "cut-link@10", "cut-link@10"],
        }
    )
    assert len(summarize(rows, by=["system", "pattern", "iodepth", "events"])) == 2


@pytest.mark.parametrize(("level", "back"), [(0.96, 0), (0.9, 0), (0.89, None), (3.0, 0)])
def test_recovered_is_at_or_above_the_level_before_less_the_tolerance(level, back):
    row = failures(series(truth(resync_s=60, dip=level * HEALTHY)), happened()).iloc[0]
    assert np.isnan(row["back_s"]) if back is None else row["back_s"] == back
    assert ("not-back" in row["warnings"].split()) == (back is None)


@pytest.mark.parametrize(
    ("spread", "given", "tolerance", "code"),
    [
        (0.04, None, 0.1, "not-back"),
        (0.1, None, 0.2, "not-back"),
        (0.1, 0.25, 0.25, "not-back"),
        (0.1, 0.15, NAN, "recovery-unknown"),
        (0.3, None, NAN, "recovery-unknown"),
        (0.3, 0.7, 0.7, ""),
    ],
)
def test_recovery_is_judged_by_twice_the_spread_of_healthy_seconds_or_not_at_all(spread, given, tolerance, code):
    y = truth(resync_s=60, dip=0.6 * HEALTHY)
    y[:FAIL_S] *= 1 + spread * np.tile([1, -1], FAIL_S // 2) * np.sqrt((FAIL_S - 1) / FAIL_S)
    row = failures(series(y), happened(), tolerance=given).iloc[0]
    assert row["tolerance"] == pytest.approx(tolerance, nan_ok=True)
    assert row["warnings"] == code
    assert np.isnan(row["back_s"]) == bool(code)
    back = failure_summary(row.to_frame().T.infer_objects()).set_index("column").loc["back_s"]
    assert back["n"] == (code != "recovery-unknown")
    assert ("recovery-unknown" in back["warnings"]) == (code == "recovery-unknown")
    assert np.isinf(back["worst"]) == (code == "not-back")


def test_a_fast_start_does_not_pay_for_a_later_stall():
    """A node comes back: fast while it starts, slow while its copy is made, then as before; or the run ends slow."""
    y = truth(resync_s=0)
    y[HEAL_S : HEAL_S + 18], y[HEAL_S + 18 : HEAL_S + 25] = 3 * HEALTHY, 100
    assert failures(series(y), happened()).iloc[0]["back_s"] == 25
    y[HEAL_S + 18 :] = 100
    assert np.isnan(failures(series(y), happened()).iloc[0]["back_s"])


def test_a_run_that_ended_before_its_copies_were_whole_says_so():
    row = failures(series(truth()), happened(whole_s=END_S + 5.0)).iloc[0]
    assert set(row["warnings"].split()) == {"not-whole"}


def test_a_burst_does_not_pay_for_a_stall():
    """Seconds of box DRBD after a node came back; their mean is that of a healthy system."""
    y = truth(healthy=414.0, resync_s=0, dip=414.0)
    y[HEAL_S : HEAL_S + 6] = [1607, 322, 15, 20, 161, 71]
    row = failures(series(y), happened()).iloc[0]
    assert row["dip_pct"] == pytest.approx(100 * (1 - 15 / 414))
    assert row["back_s"] == 6


def test_the_dip_is_sought_to_the_end_of_the_run():
    y = truth(resync_s=0, dip=HEALTHY)
    y[HEAL_S + 40] = 50
    row = failures(series(y), happened()).iloc[0]
    assert (row["back_s"], row["dip_pct"]) == (0, pytest.approx(95))


def test_an_outage_is_known_to_the_resolution_of_the_logs():
    fine = pd.DataFrame(
        {**CELL, "run_id": "r", "block": 1, "rep": 1, "from_s": [30.4], "to_s": [31.4], "resolution_s": 0.5}, index=[0]
    )
    row = failures(series(truth(gap_s=0)), happened(), silences=fine).iloc[0]
    assert (row["gap_s"], row["gap_from_s"], row["resolution_s"]) == (1.0, 30.4, 0.5)


def test_the_worst_failure_comes_first():
    mild = [failures(series(truth(gap_s=1), rep), happened(rep)) for rep in (1, 2)]
    long = [failures(series(truth(gap_s=8), rep), happened(rep)).assign(failure="kill-node2") for rep in (1, 2)]
    never = [
        failures(series(truth(gap_s=0, resync_s=60), rep), happened(rep)).assign(failure="fail-drive") for rep in (1, 2)
    ]
    verdicts = failure_verdicts(failure_summary(pd.concat([*mild, *long, *never])))
    assert verdicts["failure"].tolist() == ["fail-drive", "kill-node2", "cut-link"]


def test_the_known_outages_of_the_box_are_seen():
    """Its 500 ms logs hold a second or more without an I/O in every cut link and killed node."""
    *tables, silences = in_the_box("failure-drbd", "failure-ceph")
    costs = hci.failures(*tables, silences=silences)
    known = costs[costs["failure"].isin(["cut-link", "kill-node2"])]
    assert len(known) == 6
    assert (known["gap_s"] >= 1.0).all()
    assert (known["gap_s"] <= known["max_lat_ns"] / 1e9).all(), "no longer than the longest I/O"
    assert (costs["resolution_s"] == 0.5).all()
    block2 = known.query("failure == 'kill-node2' and block == 2").iloc[0]
    assert block2["dip_pct"] > 95
    assert np.isnan(block2["back_s"])


def test_three_quantities_have_a_median_and_a_worst_run():
    costs = pd.concat([failures(series(truth(gap_s=g, dip=d, resync_s=s), rep), happened(rep))
                       for rep, (g, d, s) in enumerate([(1, 500, 20), (2, 400, 60), (6, 100, 10)])])  # fmt: skip
    summary = failure_summary(costs).set_index("column")
    assert summary.loc[["gap_s", "dip_pct", "back_s"], "median"].tolist() == [2, 60, 20]
    assert summary.loc[["gap_s", "dip_pct", "back_s"], "worst"].tolist() == [6, 90, np.inf]
    assert summary.loc["ratio", "worst"] == summary.loc["ratio", "median"] == DEGRADED / HEALTHY


# Each system and each kind of campaign once; the other two are read and drawn by the same lines.
OTHERS = [pytest.param(name, marks=pytest.mark.deep) for name in ("failure-ceph", "stamped-drbd")]


@pytest.mark.parametrize("name", ["failure-drbd", "stamped-ceph", *OTHERS])
def test_summary_figure_and_table_of_a_page_have_one_outage(name):
    series_, events, hosts, silences = in_the_box(name)
    costs = failures(series_, events, hosts, 0.2, silences=silences)
    summary = failure_summary(costs)
    outages = summary.query("column == 'gap_s'").set_index("failure")["worst"]
    shown, places = hci.text(costs), hci.phases(costs).query("place == 'worst'")
    places = places.groupby("failure")["block"].first()
    axes = hci.plot_failure(aligned(series_, costs), costs)
    for ax, (failure, own) in zip(axes, costs.groupby("failure", sort=False), strict=True):
        lines = [line.get_linewidth() for line in ax.get_lines() if line.get_gid() == "run"]
        thick = own["block"].iloc[int(np.argmax(lines))]
        assert places[failure] == thick, "the figure's worst run is that of the lanes"
        red = [patch.get_width() for patch in ax.patches if patch.get_gid() == "outage"]
        if own["gap_s"].isna().all():
            assert not any(width > 0 for width in red)
            assert outages[failure] == 0
            continue
        worst = own.loc[own["gap_s"].idxmax()]
        lengths = silences.merge(own[["events", "block", "fail_s"]]).query("to_s > fail_s").eval("to_s - from_s")
        assert worst["gap_s"] == lengths.max(), "the longest silence, whole"
        never = own[own["back_s"].isna() & own["heal_s"].notna()]  # METHODS section 9: the worst case
        marked = never.loc[never["gap_s"].idxmax()] if len(never) else worst
        assert places[failure] == marked["block"]
        assert outages[failure] == pytest.approx(worst["gap_s"])
        at = shown["Outage (s)"][(costs["failure"] == failure) & (costs["block"] == worst["block"])]
        assert float(at.item()) == pytest.approx(worst["gap_s"], rel=0.005)
        assert max(red) == pytest.approx(worst["gap_s"])


def stamped(*verdicts, failure="cut-link") -> pd.DataFrame:
    """Rows of results as of runs with stamped writes."""
    return pd.DataFrame({**CELL, "events": f"{failure}@30 heal-link@70", "integrity": list(verdicts)})


@pytest.mark.parametrize(
    ("verdicts", "counts"),
    [
        (["kept"] * 5, (0, 5, 0)),
        (["kept", "lost", "kept"], (1, 2, 0)),
        (["kept", "not checkable: no block could be read"], (0, 1, 1)),
        ([None, None], (0, 0, 0)),
    ],
)
def test_runs_that_lost_writes_are_counted_by_failure(verdicts, counts):
    summary = failure_summary(failures(series(truth()), happened()))
    row = failure_verdicts(summary, stamped(*verdicts)).iloc[0]
    assert tuple(row[["lost", "kept", "unchecked"]]) == counts
    other = failure_verdicts(summary, stamped(*verdicts, failure="kill-node2")).iloc[0]
    assert tuple(other[["lost", "kept", "unchecked"]]) == (0, 0, 0)


def test_a_lost_write_is_worse_than_any_silence():
    never = failures(series(truth(end_s=80)), happened())
    mild = failures(series(truth(gap_s=0), rep=2), happened(rep=2))
    costs = pd.concat([never, mild.assign(failure="fail-drive")])
    summary = failure_summary(costs)
    assert failure_verdicts(summary)["failure"].tolist() == ["cut-link", "fail-drive"]
    lost = stamped("lost", failure="fail-drive")
    assert failure_verdicts(summary, lost)["failure"].tolist() == ["fail-drive", "cut-link"]
