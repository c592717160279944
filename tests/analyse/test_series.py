import numpy as np
import pandas as pd
import pytest
from scipy import stats
from simulate import ar1, reference_series, runs, seconds, slow_drift, starts

from hcilib import mean_interval
from hcilib.analyse.series import (
    autocorrelation_time,
    batch_means,
    confidence_sequence,
    effective_samples,
    enough_runs,
    fleet,
    long_run_sd,
    mser5,
    stop_when,
)

S = reference_series()
LOOKS = range(60, 601, 30)


def table(y, hosts=2, ddirs=("read", "write"), run="r1"):
    """A series table whose fleet sum is y, split unevenly over hosts and directions."""
    shares = np.arange(1, hosts * len(ddirs) + 1, dtype=float)
    shares /= shares.sum()
    parts = [(h, d) for h in range(hosts) for d in ddirs]
    return pd.concat(
        [
            pd.DataFrame({"run": run, "host": f"vm{h}", "ddir": d, "t_s": np.arange(len(y)), "iops": y * share,
                          "bw_bytes": y * share * 4096, "lat_ns": 1e5 * (h + 1)})
            for (h, d), share in zip(parts, shares, strict=True)
        ],
        ignore_index=True,
    )  # fmt: skip


# Reference values of METHODS section 5


def test_reference_series():
    assert S[:3] == pytest.approx([101197.81963837979, 100039.16921156786, 100847.91043958554], rel=1e-12)


def test_geyer_reference():
    assert autocorrelation_time(S) == pytest.approx(7.681756156437814, rel=1e-9)
    assert effective_samples(S) == pytest.approx(78.10713953698736, rel=1e-9)


def test_batch_means_reference():
    row = mean_interval(table(S)).iloc[0]
    assert (row.mean_hi - row.mean_lo) / 2 / row["mean"] == pytest.approx(0.005353368794700931, rel=1e-9)
    assert row["mean"] == pytest.approx(S.mean(), rel=1e-12)
    assert row.verdict == "ok"
    assert row.n == 1
    assert row.seconds == 600
    assert row.warnings == ""


def test_mser5_reference():
    y = S * (1 + 0.5 * np.exp(-np.arange(600) / 60))
    cut, mean = mser5(y)
    assert cut == 175
    assert mean == pytest.approx(99850.08910310506, rel=1e-9)


def test_confidence_sequence_reference():
    widths = confidence_sequence([60, 300, 1800])
    assert widths == pytest.approx([0.4342760380156085, 0.17523787276405017, 0.07484365080347892], rel=1e-9)
    assert confidence_sequence(300, s=7.0) == pytest.approx(7 * 0.17523787276405017, rel=1e-9)


# The autocorrelation time and the batches


def brute_force_geyer(y):
    n, d = len(y), y - y.mean()
    rho = [sum(d[: n - k] * d[k:]) / sum(d * d) for k in range(n)]
    total, least = 0.0, np.inf
    for k in range(n // 2):
        pair = rho[2 * k] + rho[2 * k + 1]
        if pair <= 0:
            break
        least = min(least, pair)
        total += least
    return 2 * total - 1


@pytest.mark.parametrize("tau", [1, 5, 20])
@pytest.mark.parametrize("n", [60, 151])
def test_geyer_is_the_definition(tau, n):
    y = ar1(np.random.default_rng(n), (3, n), tau)
    assert autocorrelation_time(y) == pytest.approx([max(brute_force_geyer(row), 1 / np.log10(n)) for row in y])


@pytest.mark.parametrize("tau", [1, 5, 10])
def test_geyer_finds_the_tau_of_ar1(tau):
    found = autocorrelation_time(ar1(np.random.default_rng(1), (200, 4000), tau))
    assert np.median(found) == pytest.approx(tau, rel=0.1)


def test_tau_of_degenerate_series():
    assert autocorrelation_time(np.full(100, 0.1 + 0.2)) == 1
    assert np.isnan(autocorrelation_time([1.0, 2.0, 3.0]))
    assert np.isnan(autocorrelation_time([1.0, np.nan, 3.0, 4.0, 5.0]))
    assert 0 < autocorrelation_time(np.tile([1.0, 2.0], 100)) < 1
    assert autocorrelation_time(S * 1e-9 + 1) == pytest.approx(autocorrelation_time(S), rel=1e-6)


def test_batches_leave_the_start_out():
    y = np.r_[1e9, np.arange(20.0)]
    assert batch_means(y, 10).tolist() == [0.5 + 2 * k for k in range(10)]
    assert np.isnan(batch_means([1.0] * 9, 10)).all()


def test_long_run_sd_is_that_of_the_mean():
    y = ar1(np.random.default_rng(2), (4000, 600), 5)
    assert np.sqrt(np.mean(long_run_sd(y) ** 2)) == pytest.approx(y.mean(axis=1).std() * 600**0.5, rel=0.08)


# The interval of a run


def test_interval_needs_thirty_independent_samples():
    short = mean_interval(seconds(np.random.default_rng(3), (120,), tau=20)).iloc[0]
    assert short.verdict == "run too short"
    assert np.isnan([short.mean_lo, short.mean_hi, short.se]).all()
    assert short["mean"] > 0
    assert short.warnings == "too-short"
    assert mean_interval(np.tile([1.0, 2.0], 12)).iloc[0].verdict == "run too short"  # antithetic, yet 24 samples


def test_interval_covers():
    y = seconds(np.random.default_rng(4), (600, 600), tau=5)
    means = batch_means(y)
    half = stats.t.ppf(0.975, 9) * means.std(axis=1, ddof=1) / 10**0.5
    row = mean_interval(y[0]).iloc[0]
    assert row.mean_hi - row["mean"] == pytest.approx(half[0], rel=1e-9)
    assert 0.92 < (np.abs(y.mean(axis=1) - 1e5) < half).mean() < 0.98


@pytest.mark.parametrize("y", [[], [5.0], [1.0, 2.0, 3.0], [np.nan] * 40, np.zeros(100), np.full(100, 7.0)])
def test_degenerate_runs_give_a_row(y):
    interval, decision = mean_interval(y).iloc[0], stop_when(y)
    assert interval.warnings or len(set(y)) > 1
    assert interval.mean_lo <= interval["mean"] <= interval.mean_hi or np.isnan(interval.mean_lo)
    assert decision.reason


def test_capped_run_has_no_width_and_says_so():
    row = mean_interval(np.full(300, 262144.0)).iloc[0]
    assert row.mean_lo == row.mean_hi == 262144
    assert row.warnings == "no-variation"


def test_empty_table():
    assert mean_interval(table(S).iloc[:0]).empty
    assert list(fleet(table(S).iloc[:0])) == []


# Summing the fleet


def test_fleet_sums_hosts_and_directions_in_any_order():
    [(key, summed, _)] = fleet(table(S, hosts=3).sample(frac=1, random_state=1))
    assert key == {"run": "r1"}
    assert summed.to_numpy() == pytest.approx(S)
    assert summed.index.tolist() == list(range(600))


def test_runs_are_kept_apart():
    both = pd.concat([table(S, run="a"), table(2 * S[:300], run="b")])
    rows = mean_interval(both).set_index("run")
    assert rows.loc["b", "mean"] == pytest.approx(2 * S[:300].mean())
    assert rows["seconds"].to_dict() == {"a": 600, "b": 300}


def test_dead_host_cuts_the_run_instead_of_lowering_it():
    y = np.full(300, 1000.0) + np.random.default_rng(5).normal(0, 1, 300)
    rows = table(y)
    dead = rows[~((rows["host"] == "vm1") & (rows["t_s"] >= 200))]
    row = mean_interval(dead).iloc[0]
    assert row.seconds == 200
    assert row["mean"] == pytest.approx(y[:200].mean())
    assert row.warnings == "cut"


def test_lost_seconds_are_no_zeros():
    rows = table(S)
    holed = rows[~((rows["host"] == "vm1") & rows["t_s"].isin([10, 11])) & (rows["t_s"] != 50)]
    row = mean_interval(holed).iloc[0]
    assert row.seconds == 597
    assert row["mean"] == pytest.approx(np.delete(S, [10, 11, 50]).mean())
    assert row.warnings == "cut"
    [(_, summed, _)] = fleet(holed)
    assert np.isnan(summed[10])


def test_stalled_seconds_are_zeros_and_said():
    y = S.copy()
    y[100:110] = 0
    row = mean_interval(table(y)).iloc[0]
    assert row["mean"] == pytest.approx(y.mean())
    assert "silent" in row.warnings.split()


def test_latency_is_weighted_by_iops():
    rows = table(np.full(100, 10.0), ddirs=("read",))  # vm0 a third of the I/O at 0.1 ms, vm1 two thirds at 0.2 ms
    assert mean_interval(rows, metric="lat_ns").iloc[0]["mean"] == pytest.approx(1e5 / 3 + 2e5 * 2 / 3)


# The unsettled beginning


def test_mser5_cuts_nothing_from_a_level():
    assert mser5(np.full(100, 0.1)) == (0, pytest.approx(0.1))
    assert np.isnan(mser5([1.0] * 9)[1])
    assert mser5(S)[0] <= 50


# Stopping


@pytest.mark.parametrize("tau", [1, 5, 10])
@pytest.mark.parametrize("target", [0.01, 0.02, 0.04])
def test_stopping_rule_covers_on_ar1(tau, target):
    y = seconds(np.random.default_rng(100 + tau), (1200, 600), tau=tau)
    stopped, half, mean = first_stop(y, target)
    assert (np.abs(mean - 1e5) <= half).mean() >= 0.94
    assert (half / mean <= target)[stopped < 600].all()


def test_plain_batch_means_would_not_cover():
    """What the confidence sequence is for: looking every 30 s with ordinary intervals stops on lucky means."""
    y = seconds(np.random.default_rng(110), (1200, 600), tau=10)
    covered = np.zeros(len(y), bool)
    stopped = np.zeros(len(y), bool)
    for t in LOOKS:
        means = batch_means(y[:, :t])
        half = stats.t.ppf(0.975, 9) * means.std(axis=1, ddof=1) / 10**0.5
        now = ~stopped & ((half / means.mean(axis=1) < 0.02) | (t == 600))
        covered[now] = np.abs(y[now, :t].mean(axis=1) - 1e5) < half[now]
        stopped |= now
    assert covered.mean() < 0.90


def first_stop(y, target):
    """`stop_when` on every row at every look, vectorised: when it stops, with which half-width and mean."""
    stopped, half, mean = (np.zeros(len(y)) for _ in range(3))
    for t in (t for t in LOOKS if t <= y.shape[1]):
        open_ = stopped == 0
        seen = y[open_, :t]
        width, level = confidence_sequence(t, long_run_sd(seen)), seen.mean(axis=1)
        stop = ((effective_samples(seen) >= 30) & (width / level <= target)) | (t == y.shape[1])
        at = np.flatnonzero(open_)[stop]
        stopped[at], half[at], mean[at] = t, width[stop], level[stop]
    return stopped, half, mean


def test_stop_when_is_what_was_simulated():
    y = seconds(np.random.default_rng(9), (20, 600))
    stopped, half, mean = first_stop(y, 0.02)
    for row, at, width, level in zip(y, stopped, half, mean, strict=True):
        decisions = [stop_when(row[:t], target=0.02, most=600) for t in LOOKS]
        first = next(d for d in decisions if d.stop)
        assert first.n == at
        assert first.mean == pytest.approx(level)
        if first.reached:
            assert first.half_width == pytest.approx(width / level)


def test_stop_when_waits_and_gives_up():
    calm, rough = np.full(59, 100.0), seconds(np.random.default_rng(10), (300,), cv=0.5, tau=10)
    assert not stop_when(calm)
    assert "first look at 60" in stop_when(calm).reason
    assert stop_when(np.full(60, 100.0))
    late = stop_when(rough, target=0.01)
    assert late.stop
    assert not late.reached
    assert "time limit" in late.reason
    assert not stop_when(np.zeros(200))
    with pytest.raises(ValueError, match="target"):
        stop_when(calm, target=2)


def test_enough_runs():
    values = np.array([100.0, 101, 99, 100, 100.5])
    half = np.expm1(stats.t.ppf(0.975, 4) * np.log(values).std(ddof=1) / 5**0.5)
    assert enough_runs(values, target=0.02).half_width == pytest.approx(half)
    assert enough_runs(values, target=0.02).reached
    assert not enough_runs(values[:4], target=0.02)
    assert not enough_runs(values * [1, 1.2, 1, 1, 1], target=0.02)
    capped = enough_runs(np.tile(values * [1, 1.2, 1, 1, 1], 2), target=0.001)
    assert capped.stop
    assert not capped.reached
    assert not enough_runs([])
    with pytest.raises(ValueError, match="above zero"):
        enough_runs([1.0, np.nan])


def welch(a, b):
    """Log ratio of geometric means and the half-width of its 95 % interval, over the last axis."""
    a, b = np.log(a), np.log(b)
    va, vb = (x.var(axis=-1, ddof=1) / x.shape[-1] for x in (a, b))
    df = (va + vb) ** 2 / (va**2 / (a.shape[-1] - 1) + vb**2 / (b.shape[-1] - 1))
    return b.mean(-1) - a.mean(-1), stats.t.ppf(0.975, df) * np.sqrt(va + vb)


def test_adaptive_blocks_beat_the_articles_protocol():
    """5 blocks of 60-300 s against 3 x 600 s back to back: no larger error in at most .45 of the time, and it
    covers."""
    rng, replicates, cells = np.random.default_rng(11), 60, 4

    def measure(order, repeats, run_s):
        shape = (replicates, 2, cells, repeats)
        drift = slow_drift(rng, starts(order, run_s, cells, repeats, replicates, rng).reshape(replicates, -1))
        return runs(rng, shape, sd=0.005) * drift.reshape(shape)

    noise = {"mean": 1.0, "cv": 0.03, "tau": 5}  # at a cv of .05 a run takes 210 s and the share is .58
    fixed = measure("back-to-back", 3, 600) * seconds(rng, (replicates, 2, cells, 3, 600), **noise).mean(-1)
    duration, _, mean = first_stop(seconds(rng, (replicates * 2 * cells * 5, 300), **noise), 0.02)
    adaptive = measure("blocks", 5, duration.mean()) * mean.reshape(replicates, 2, cells, 5)

    d_fixed, half_fixed = welch(fixed[:, 0], fixed[:, 1])
    d, half = welch(adaptive[:, 0], adaptive[:, 1])
    assert np.sqrt((d**2).mean()) <= np.sqrt((d_fixed**2).mean())
    assert 5 * duration.mean() <= 0.45 * 1800
    assert (np.abs(d) <= half).mean() >= 0.93
    assert (np.abs(d_fixed) <= half_fixed).mean() < 0.80  # why the repeats are spread over blocks
