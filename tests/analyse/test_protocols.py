"""The promise of the adaptive protocol, held by simulation; and what no order may change."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from simulate import runs, seconds, slow_drift, starts

from hcilib import mean_interval
from hcilib.analyse.series import confidence_sequence, effective_samples, enough_runs, fleet, long_run_sd

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


def welch(a, b):
    """Log ratio and half-width of its 95 % interval over the last axis; NaN is no run."""
    (na, va), (nb, vb) = ((n := (~np.isnan(x)).sum(-1), np.nanvar(x, axis=-1, ddof=1) / n) for x in (a, b))
    df = (va + vb) ** 2 / (va**2 / (na - 1) + vb**2 / (nb - 1))
    return np.nanmean(b, axis=-1) - np.nanmean(a, axis=-1), stats.t.ppf(0.975, df) * np.sqrt(va + vb)


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
