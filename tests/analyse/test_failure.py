"""What a failure costs: every number from a series whose truth is known, and what may not change it."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulate import ar1

import hcilib as hci
from hcilib import aligned, failure_summary, failure_verdicts, failures

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
    assert row["gap_sum_s"] == GAP_S
    assert (row["whole_s"], row["max_lat_ns"], row["runtime_s"]) == (16.5, 3.2e9, END_S)
    assert row["back_s"] == pytest.approx(RESYNC_S, abs=1), (
        "a window that begins one second early may still be within 10 %"
    )
    assert row["warnings"] == ""
    late = failures(series(truth()), happened(whole_s=END_S + 5.0)).iloc[0]
    assert late["warnings"] == "not-whole"
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


def test_a_degraded_level_is_judged_after_its_transient():
    y = truth(gap_s=0)
    y[FAIL_S : FAIL_S + 10] = np.linspace(100, 4000, 10)
    row = failures(series(y), happened()).iloc[0]
    assert np.isnan(row["gap_s"])
    assert row["degraded_iops"] == pytest.approx(DEGRADED, rel=0.01)


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
    assert summary.index[summary["warnings"] == "bound"].tolist() == ["gap_s"]
    one = failure_summary(repeats(1)).set_index("column")
    assert one["mean_lo"].drop("gap_s").isna().all()
    assert tuple(one.loc["gap_s", ["mean_lo", "mean_hi"]]) == (3, 5)
    assert one["warnings"].map(lambda own: set(own.split()) - {"bound"} == {"single-run"}).all()


@pytest.mark.parametrize(
    ("degraded", "n", "verdict"),
    [(4400, 4, "faster"), (500, 4, "slower"), (1000, 4, "undecided"), (4400, 1, "untested")],
)
def test_a_failure_has_the_verdict_of_its_interval(degraded, n, verdict):
    costs = repeats(n).assign(ratio=lambda t: t["ratio"] * degraded / DEGRADED)
    [row] = failure_verdicts(failure_summary(costs)).to_dict("records")
    assert (row["verdict"], row["runs"]) == (verdict, n)


def test_unlike_runs_of_a_failure_are_no_repeats():
    summary = failure_summary(
        pd.concat([repeats(2).assign(placement=place) for place in ("owner", "non-owner")]),
        ["system", "pattern", "failure", "placement"],
    )
    assert (summary["n"] == 2).all()
    assert list(failure_verdicts(summary)["placement"]) == ["owner", "non-owner"]


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


def silent(*spans, rep=1, resolution_s=0.1) -> pd.DataFrame:
    """As `read_io_gaps` gives them."""
    keys = {**CELL, "run_id": "r", "block": rep, "rep": rep}
    return pd.DataFrame([{**keys, "from_s": a, "to_s": b, "resolution_s": resolution_s} for a, b in spans])


def test_the_outage_is_the_longest_of_the_run_and_the_sum_of_all_stands_beside_it():
    """From the failure (30.2 s) on; what began before it and lasted is not cut, what ended before it is no part."""
    spans = silent((10.0, 15.0), (30.0, 31.5), (50.0, 50.25), (71.0, 73.5))
    row = failures(series(truth(gap_s=0)), happened(), silences=spans).iloc[0]
    assert (row["gap_s"], row["gap_from_s"], row["gap_sum_s"]) == (2.5, 71.0, 4.25)
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
    assert fine["gap_s"].min() >= 1, "every cut link and killed node stopped it for a second or more"
    assert list(hci.text(fine)["Outage (s)"][fine["failure"] == "fail-drive"]) == ["< 1"] * 3
    summary = failure_summary(fine)
    outage = summary.query("failure == 'fail-drive' and column == 'gap_s'")
    assert hci.text(outage)[["Median", "Worst"]].to_numpy().tolist() == [["< 1", "< 1"]]


def test_runs_are_laid_over_each_other_at_the_failure():
    costs = pd.concat([failures(series(truth()), happened())])
    laid = aligned(series(truth()), costs)
    assert list(laid["since_s"]) == list(np.arange(END_S) - FAIL_S)
    assert laid.loc[laid["since_s"] == 0, "iops"].item() == 0


STALL = [1, 15, 20, 161, 100, 71]
RECOVERIES = {
    "at the level less the tolerance": ([900] * 60, 0.0, 0, 10),
    "just below it": ([890] * 60, 0.0, NAN, 11),
    "counted from the repair itself": ([400] * 15, 0.4, 14.6, 60),
    "crossing the level on the way down": ([4400, 3000, *[1000] * 3, *[400] * 20], 0.0, 25, 60),
    "a fast start, then a stall": ([3000] * 18 + [100] * 7, 0.0, 25, 90),
    "a fast start, then slow to the end": ([3000] * 18 + [100] * 42, 0.0, NAN, 90),
    "a mean that a burst pulls up": ([4000, *STALL], 0.0, 7, 99.9),
    "one slow second long after": ([*[1000] * 40, 50], 0.0, 0, 95),
}


@pytest.mark.parametrize(("after", "late_s", "back_s", "dip_pct"), RECOVERIES.values(), ids=RECOVERIES)
def test_the_recovery_and_the_lowest_second_after_the_repair(after, late_s, back_s, dip_pct):
    y = truth(resync_s=0)
    y[HEAL_S : HEAL_S + len(after)] = after
    row = late_heal(y, HEAL_S + late_s).iloc[0]
    assert (row["back_s"], row["dip_pct"]) == pytest.approx((back_s, dip_pct), nan_ok=True)
    assert row["warnings"] == ("not-back" if np.isnan(back_s) else "")


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


def test_the_worst_failure_comes_first():
    mild = [failures(series(truth(gap_s=1), rep), happened(rep)) for rep in (1, 2)]
    long = [failures(series(truth(gap_s=8), rep), happened(rep)).assign(failure="kill-node2") for rep in (1, 2)]
    never = [
        failures(series(truth(gap_s=0, resync_s=60), rep), happened(rep)).assign(failure="fail-drive") for rep in (1, 2)
    ]
    summary = failure_summary(pd.concat([*mild, *long, *never]))
    assert failure_verdicts(summary)["failure"].tolist() == ["fail-drive", "kill-node2", "cut-link"]
    lost = failure_verdicts(summary, stamped("lost"))["failure"]
    assert lost.tolist() == ["cut-link", "fail-drive", "kill-node2"], "a lost write is worse than any outage"


def test_each_quantity_has_a_median_and_a_worst_run():
    levels = [(1, 500, 20, 4400), (2, 400, 60, 3000), (6, 100, 10, 5000)]
    costs = pd.concat([failures(series(truth(gap_s=g, dip=d, resync_s=s, degraded=level), rep), happened(rep))
                       for rep, (g, d, s, level) in enumerate(levels)])  # fmt: skip
    summary = failure_summary(costs).set_index("column")
    assert summary.loc[["gap_s", "dip_pct", "back_s", "ratio"], "median"].tolist() == [2, 60, 20, 4.4]
    assert summary.loc[["gap_s", "dip_pct", "back_s", "ratio"], "worst"].tolist() == [6, 90, np.inf, 3]
    back = summary.loc["back_s"]
    assert (back["warnings"], back["n"], back["seen"]) == ("not-seen", 3, 2)
    assert np.isnan(back["mean"]), "a run that did not live to see it has no time"


def stamped(*verdicts, failure="cut-link") -> pd.DataFrame:
    """Rows of results as of runs with stamped writes."""
    return pd.DataFrame({**CELL, "events": f"{failure}@30 heal-link@70", "integrity": list(verdicts)})


@pytest.mark.parametrize(
    ("verdicts", "counts"),
    [
        (["kept", "lost", "kept"], (1, 2, 0)),
        (["kept", "not checkable: no block could be read"], (0, 1, 1)),
        ([None, None], (0, 0, 0)),
    ],
)
def test_runs_that_lost_writes_are_counted_by_failure(verdicts, counts):
    summary = failure_summary(failures(series(truth()), happened()))
    row = failure_verdicts(summary, stamped(*verdicts)).iloc[0]
    assert tuple(row[["lost", "kept", "unchecked"]]) == counts
