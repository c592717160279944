"""The promises of the method, held by simulation: protocols, coverage, schedules; and what no order may change."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from simulate import runs, seconds, slow_drift, starts

import hcilib as hci
from hcilib.analyse.campaigns import simulation
from hcilib.analyse.campaigns.design import Protocol, half_width_factors, noise, precision
from hcilib.analyse.campaigns.simulation import drift_levels, schedule, simulate_coverage, simulate_protocols, welch
from hcilib.analyse.runs.series import (
    confidence_sequence,
    effective_samples,
    enough_runs,
    fleet,
    long_run_sd,
    mean_interval,
    stop_when,
)

PROTOCOLS = {
    "fixed": {"runs": 3, "read_s": 600, "write_s": 1800, "order": "back-to-back"},
    "short": {"runs": 5, "read_s": 300, "write_s": 300},
    "adaptive": {"runs": 5, "most_runs": 10, "read_s": 300, "write_s": 300, "first_s": 60},
}
NOISE = noise(
    pd.DataFrame(
        {
            "system": "a",
            "run_id": "c",
            "pattern": "p",
            "iodepth": range(6),
            "rwmixread": [100, 100, 100, 0, 0, 0],
            "iops": 1.0,
        }
    ),
    second_cv_pct=6.7,
    between_cv_pct=1.0,
    tau_s=5.0,
)

# The adaptive policy as a campaign would run it, on the tests' own simulator


def stopped_early(y, target):
    """When each row's run stops (looks every 30 s from 60 s), and its mean by then."""
    stopped, mean = np.full(len(y), float(y.shape[1])), y.mean(-1)
    running = np.arange(len(y))
    for t in range(60, y.shape[1], 30):
        seen = y[running, :t]
        stop = (effective_samples(seen) >= 30) & (confidence_sequence(t, long_run_sd(seen)) <= target * seen.mean(-1))
        stopped[running[stop]], mean[running[stop]] = t, seen.mean(-1)[stop]
        running = running[~stop]
    return stopped, mean


def until_enough(values, target):
    """Runs a cell needs, by `enough_runs`, one cell at a time."""
    return next((n for n in range(5, 11) if enough_runs(values[:n], target)), 10)


@pytest.mark.parametrize(
    ("within", "between", "target"),
    [
        ({"cv": 0.03}, {"sd": 0.005}, 0.02),
        ({"cv": 0.05}, {"sd": 0.01}, 0.02),
        ({"cv": 0.05, "outliers": 0.01}, {"sd": 0.01}, 0.03),
        ({"cv": 0.03, "second_level": 0.9}, {"sd": 0.01}, 0.03),
        ({"cv": 0.03}, {"sd": 0.01, "outliers": 0.05, "factor": 0.85}, 0.03),
    ],
    ids=["quiet", "lognormal", "stalled seconds", "regimes", "failing runs"],
)
def test_adaptive_blocks_beat_the_articles_protocol(within, between, target):
    """5 to 10 runs of 60-300 s in blocks against 3 x 600/1800 s back to back: no larger error, <= .45 of the time, >=
    .93."""
    rng, draws, cells = np.random.default_rng(21), 80, 4

    def drifting(order, repeats, run_s):
        shape = (draws, 2, cells, repeats)
        drift = slow_drift(rng, starts(order, run_s, cells, repeats, draws, rng).reshape(draws, -1))
        return runs(rng, shape, **between) * drift.reshape(shape)

    lengths = np.repeat([600, 1800], cells // 2)
    fixed = drifting("back-to-back", 3, lengths.mean())
    for cell, length in enumerate(lengths):
        fixed[:, :, cell] *= seconds(rng, (draws, 2, 3, length), mean=1.0, **within).mean(-1)
    stopped, mean = (x.reshape(draws, 2, cells, 10) for x in stopped_early(
        seconds(rng, (draws * 2 * cells * 10, 300), mean=1.0, **within), target))  # fmt: skip
    adaptive = mean * drifting("blocks", 10, stopped.mean())
    n = np.array([until_enough(v, target) for v in adaptive.reshape(-1, 10)]).reshape(draws, 2, cells, 1)
    used = np.arange(10) < n

    d_fixed, half_fixed = welch(*np.log(fixed).swapaxes(0, 1))
    d, half = welch(*np.log(np.where(used, adaptive, np.nan)).swapaxes(0, 1))
    assert np.sqrt((d**2).mean()) <= np.sqrt((d_fixed**2).mean())
    assert (stopped * used).sum() <= 0.45 * draws * 2 * 3 * lengths.sum()
    assert (np.abs(d) <= half).mean() >= 0.93
    assert (np.abs(d_fixed) <= half_fixed).mean() < 0.90


# The library's own simulation, which the notebook shows


def test_the_simulated_protocols_say_the_same():
    table = simulate_protocols(NOISE, PROTOCOLS, draws=120).set_index("protocol")
    assert table.loc["adaptive", "rmse_pct"] <= table.loc["fixed", "rmse_pct"]
    assert table.loc["adaptive", "time_ratio"] <= 0.45
    assert (table.loc[["short", "adaptive"], "coverage"] >= 0.93).all()
    assert table.loc["fixed", "coverage"] < 0.85
    assert table.loc["fixed", "hours"] == pytest.approx(2 * 3 * 3 * (600 + 1800) / 3600)
    assert table.loc["short", "hours"] == pytest.approx(2 * 6 * 5 * 300 / 3600)


def test_the_plan_is_what_the_simulation_finds_without_drift():
    planned = precision(NOISE, PROTOCOLS).set_index("protocol")
    found = simulate_protocols(NOISE, PROTOCOLS, drift_cv_pct=0, draws=120).set_index("protocol")
    assert found["coverage"].to_numpy() == pytest.approx(0.95, abs=0.03)
    assert found["hours"].to_numpy() == pytest.approx(planned["hours"].to_numpy(), rel=0.15)
    assert found["half_width_pct"].to_numpy() == pytest.approx(planned["half_width_pct"].to_numpy(), rel=0.1)


def test_which_interval_covers():
    table = simulate_coverage().set_index(["situation", "runs", "method"])["coverage"].unstack("method")
    situations = (
        "no drift",
        "drift, back to back",
        "drift, one after the other in blocks",
        "drift, side by side in pairs",
    )
    calm, back, apart, pairs = (table.loc[s] for s in situations)
    assert calm["Welch t on logs"].between(0.93, 0.98).all()
    assert 0.75 <= calm.loc[3, "bootstrap"] <= 0.83  # METHODS section 1: .79
    assert 0.84 <= calm.loc[3, "mean ± 1.96 se"] <= 0.90  # .86
    assert (back["Welch t on logs"] < 0.80).all()
    assert 0.40 <= back.loc[5, "Welch t on logs"] <= 0.60  # .49
    # One system after the other does not cover what it promises, however the blocks lie; side by side does (METHODS
    # section 7).
    assert apart.loc[5, "Welch t on logs"] < 0.9
    assert (pairs["paired t on logs"] >= 0.93).all()
    assert calm["paired t on logs"].isna().all()


def test_a_seed_makes_the_table():
    once, again, other = (simulate_coverage(draws=20, resamples=50, seed=s) for s in (1, 1, 2))
    pd.testing.assert_frame_equal(once, again)
    assert not once["coverage"].equals(other["coverage"])


def test_welch_here_is_scipys():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=4), rng.normal(0.3, 2, size=6)
    d, half = welch(np.append(a, [np.nan, np.nan])[None], b[None])
    truth = stats.ttest_ind(b, a, equal_var=False).confidence_interval()
    assert [d[0] - half[0], d[0] + half[0]] == pytest.approx([truth.low, truth.high])


def test_an_early_stop_is_stop_when(monkeypatch):
    y = np.random.default_rng(4).standard_normal((30, 300))
    monkeypatch.setattr(simulation, "LIBRARY", len(y))
    monkeypatch.setattr(simulation, "_ar1", lambda rng, shape, phi: y)
    stopped, mean = simulation._stopped_early(0.12, 1.0, 60, 300, 0.03, None)
    assert len(set(stopped)) > 1
    for row, at, level in zip(1 + 0.12 * y, stopped, mean, strict=True):
        decisions = (stop_when(row[:t], target=0.03, most=300) for t in range(60, 301, 30))
        first = next(d for d in decisions if d)
        assert (first.n, first.mean) == (at, pytest.approx(level))


def test_runs_are_added_as_enough_runs_says():
    logs = 0.025 * np.random.default_rng(5).standard_normal((3, 2, 4, 10))
    used = ~np.isnan(simulation._until_enough(logs, Protocol("adaptive", **PROTOCOLS["adaptive"]), 0.02))
    found = [until_enough(np.exp(cell), 0.02) for cell in logs.reshape(-1, 10)]
    assert used.sum(-1).ravel().tolist() == found
    assert {5, 10} < set(found)


@pytest.mark.parametrize("order", ["blocks", "back-to-back"])
def test_a_schedule_runs_one_thing_at_a_time(order):
    run_s = np.array([600.0, 1800.0, 600.0])
    start = schedule(order, run_s, 5, 7, np.random.default_rng(6))
    lasts = np.broadcast_to(run_s[:, None], (2, 3, 5))
    for campaign in start:
        at = np.argsort(campaign.ravel())
        assert campaign.ravel()[at] == pytest.approx(np.r_[0, np.cumsum(lasts.ravel()[at])[:-1]])
    if order == "blocks":
        block = start // (2 * run_s.sum())
        assert (block == np.arange(5)).all()
        assert len({tuple(c[:, :, 0].ravel()) for c in start}) > 1
    else:
        assert (start[:, 1].min(axis=(1, 2)) == 5 * run_s.sum()).all()
        assert (np.diff(start, axis=-1) == run_s[:, None]).all()


def test_drift_is_as_wide_and_as_slow_as_declared():
    start = np.tile(3600.0 * np.array([0, 4, 40]), (4000, 1))
    level = drift_levels(start, 2.0, 4.0, np.random.default_rng(7))
    assert level.std() == pytest.approx(0.02, rel=0.05)
    assert np.corrcoef(level[:, 0], level[:, 1])[0, 1] == pytest.approx(np.exp(-1), abs=0.05)
    assert abs(np.corrcoef(level[:, 0], level[:, 2])[0, 1]) < 0.05
    assert not drift_levels(start, 0.0, 4.0, None).any()


def test_a_half_width_without_drift_is_the_planned_one():
    table = simulate_coverage(run_cv_pct=1.0, drift_cv_pct=0.0, runs=(5,), draws=400).query(
        "method.str.startswith('Welch')"
    )
    assert table["half_width_pct"].to_numpy() == pytest.approx(half_width_factors(5)[0], rel=0.05)


# What no order may change


@given(st.integers(1, 4), st.randoms())
def test_order_of_hosts_is_irrelevant_to_the_fleets_series(hosts, random):
    y = seconds(np.random.default_rng(hosts), (120,))
    shares = np.arange(1.0, hosts + 1) / np.arange(1.0, hosts + 1).sum()
    rows = pd.concat(
        [
            pd.DataFrame({"host": f"vm{h}", "ddir": "read", "t_s": np.arange(120), "iops": y * share})
            for h, share in enumerate(shares)
        ],
        ignore_index=True,
    )
    names = random.sample([f"vm{h}" for h in range(hosts)], hosts)
    other = rows.assign(host=rows["host"].map(dict(zip([f"vm{h}" for h in range(hosts)], names, strict=True))))
    other = other.iloc[random.sample(range(len(rows)), len(rows))]
    [(_, summed, _)] = fleet(other)
    assert summed.to_numpy() == pytest.approx(y)
    numbers = ["mean", "mean_lo", "mean_hi", "tau"]
    assert mean_interval(other)[numbers].to_numpy() == pytest.approx(
        mean_interval(rows)[numbers].to_numpy(), nan_ok=True
    )


# ---- What the method's answer says of it: one noise a sentence, and verdicts by one rule

CALIBRATION = hci.ROOT / "data/samples/calibration.csv"


def _planned(cv_pct: float) -> pd.DataFrame:
    row = {"protocol": "fixed", "hours": 19.0, "half_width_pct": 25.7, "cv_pct": cv_pct, "cells": 9}
    return pd.DataFrame([row])


@pytest.mark.parametrize(("cv_pct", "back", "apart", "pairs"), [(9.26, 93, 95, 94), (1.0, 52, 77, 95)])
def test_shares_of_intervals_follow_the_noise_that_was_simulated(cv_pct, back, apart, pairs):
    """At 9.3 % noise the drift hardly matters, at 1 % it does."""
    [text] = hci.method_facts(simulate_coverage(cv_pct, draws=300, resamples=10))
    assert re.search(r"([\d.]+) % while", text)[1] == f"{cv_pct:.2g}"
    shares = [int(share) for share in re.findall(r"(\d+) %(?= of campaigns| in )", text)]
    assert shares == pytest.approx([back, apart, pairs], abs=2)


def test_saved_campaigns_are_judged_by_the_rule_of_today():
    """Two were called different by 0.05 and 0.08 % before 0.1 % was the least difference."""
    saved = pd.read_csv(CALIBRATION)
    assert saved["wrong"].sum() == 2
    found = hci.calibrated(saved).set_index("difference_pct")
    assert found["wrong"].sum() == 0
    assert found.loc[0, ["different", "equivalent", "inconclusive"]].tolist() == [0, 19, 1]
    told = saved[saved["difference_pct"] > 0]
    kept = [(told["verdict"] == name).sum() for name in ("equivalent", "inconclusive")]
    assert [found.loc[2:, name].sum() for name in ("equivalent", "inconclusive")] == kept
    assert "96 of 100 intervals" in hci.method_answer(_planned(1.0), hci.calibrated(saved))


@pytest.mark.parametrize(("factor", "wrong"), [(1.02, 1), (1.0005, 0)])
def test_a_difference_where_none_is_stays_wrong(factor, wrong):
    row = {
        "difference_pct": 0,
        "n": 5,
        "truth": 1.0,
        "ratio": factor,
        "ratio_lo": factor / 1.0002,
        "ratio_hi": factor * 1.0002,
    }
    saved = pd.DataFrame([row | {"held": False, "wrong": True, "verdict": "higher", "load_before": 1.0}])
    assert hci.calibrated(saved)["wrong"].item() == wrong
