"""Inside a run: its mean with an interval, and when it may stop."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from simulate import reference_series, seconds

from hcilib.analyse.series import confidence_sequence, enough_runs, mean_interval, mser5, stop_when

S = reference_series()


def table(y, hosts=2, ddirs=("read", "write"), run="r1"):
    """A series table whose fleet sum is y, split unevenly over hosts and directions."""
    shares = np.arange(1, hosts * len(ddirs) + 1, dtype=float)
    shares /= shares.sum()
    parts = [(h, d) for h in range(hosts) for d in ddirs]
    return pd.concat(
        [
            pd.DataFrame({"run": run, "host": f"vm{h}", "ddir": d, "t_s": np.arange(len(y)), "iops": y * share,
                          "lat_ns": 1e5 * (h + 1)})
            for (h, d), share in zip(parts, shares, strict=True)
        ],
        ignore_index=True,
    )  # fmt: skip


def only(series, metric="iops"):
    if not isinstance(series, pd.DataFrame):
        series = pd.DataFrame({"t_s": np.arange(len(series)), metric: series})
    [(_, row)] = mean_interval(series, metric).iterrows()
    return row


# ---- reference values of METHODS section 5


def test_reference_values():
    assert S[:3] == pytest.approx([101197.81963837979, 100039.16921156786, 100847.91043958554], rel=1e-12)
    row = only(table(S))
    assert row["tau"] == pytest.approx(7.681756156437814, rel=1e-9)
    assert (row["mean_hi"] - row["mean_lo"]) / 2 / row["mean"] == pytest.approx(0.005353368794700931, rel=1e-9)
    assert row[["mean", "seconds", "warnings"]].tolist() == [pytest.approx(S.mean(), rel=1e-12), 600, ""]
    assert mser5(S * (1 + 0.5 * np.exp(-np.arange(600) / 60))) == 175
    widths = confidence_sequence([60, 300, 1800])
    assert widths == pytest.approx([0.4342760380156085, 0.17523787276405017, 0.07484365080347892], rel=1e-9)
    assert confidence_sequence(300, s=7.0) == pytest.approx(7 * 0.17523787276405017, rel=1e-9)


# ---- the interval of a run


@pytest.mark.parametrize(
    ("y", "mean", "tau", "warnings"),
    [
        ([], np.nan, np.nan, "too-short no-run"),
        ([1.0, 2.0, 3.0], 2, np.nan, "too-short"),
        (np.tile([1.0, 2.0], 12), 1.5, 1 / np.log10(24), "too-short"),  # antithetic, yet 24 samples
        (seconds(np.random.default_rng(3), (120,), tau=20), None, None, "too-short"),
        (np.zeros(100), 0, 1, "no-variation silent"),
        (np.full(300, 262144.0), 262144, 1, "no-variation"),
        (S * 1e-9 + 1, None, 7.681756, ""),
    ],
)
def test_a_run_of_which_little_is_known(y, mean, tau, warnings):
    row = only(y)
    assert row["warnings"] == warnings
    assert mean is None or row["mean"] == pytest.approx(mean, nan_ok=True)
    assert tau is None or row["tau"] == pytest.approx(tau, nan_ok=True, rel=1e-6)
    assert row[["mean_lo", "mean_hi", "se"]].isna().tolist() == ["too-short" in warnings] * 3
    if "no-variation" in warnings:
        assert row["mean_lo"] == row["mean_hi"] == mean


# ---- summing the fleet

LOST = {
    "nothing, in any order": (lambda t: t.sample(frac=1, random_state=1), S, ""),
    "a host that died": (lambda t: t[~(t["host"].eq("vm1") & t["t_s"].ge(200))], S[:200], "cut"),
    "a host's first and last second": (lambda t: t[~(t["host"].eq("vm1") & t["t_s"].isin([0, 599]))], S[1:599], ""),
    "seconds": (
        lambda t: t[~(t["host"].eq("vm1") & t["t_s"].isin([10, 11]) | t["t_s"].eq(50))],
        np.delete(S, [10, 11, 50]),
        "cut",
    ),
    "I/O for ten seconds": (
        lambda t: t.assign(iops=t["iops"].where(~t["t_s"].between(100, 109), 0)),
        np.where((np.arange(600) >= 100) & (np.arange(600) < 110), 0, S),
        "silent",
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_the_fleet_is_the_sum_of_hosts_and_directions_where_all_have_a_second(name):
    lose, y, warnings = LOST[name]
    row = only(lose(table(S, hosts=3)))
    assert row[["run", "seconds", "warnings"]].tolist() == ["r1", len(y), warnings]
    assert row["mean"] == pytest.approx(y.mean())


def test_runs_are_kept_apart():
    both = pd.concat([table(S, run="a"), table(2 * S[:300], run="b")])
    assert mean_interval(both)["mean"].tolist() == pytest.approx([S.mean(), 2 * S[:300].mean()])
    assert mean_interval(both.iloc[:0]).empty


def test_latency_is_weighted_by_iops():
    rows = table(np.full(100, 10.0), ddirs=("read",))  # vm0 a third of the I/O at 0.1 ms, vm1 two thirds at 0.2 ms
    assert only(rows, "lat_ns")["mean"] == pytest.approx(1e5 / 3 + 2e5 * 2 / 3)


# ---- the unsettled beginning


def test_mser5_cuts_nothing_from_a_level():
    assert mser5(np.full(100, 0.1)) == 0
    assert mser5(np.ones(9)) == 0
    assert mser5(S) <= 50


# ---- stopping


@pytest.mark.parametrize(("tau", "target"), [(1, 0.01), (5, 0.02), (10, 0.02), (10, 0.04)])
def test_the_interval_at_the_stop_covers_although_it_is_looked_at_every_30_s(tau, target):
    covered, stopped = [], []
    for y in seconds(np.random.default_rng(100 + tau), (300, 600), tau=tau):
        looks = ((seen, stop_when(y[:seen], target, most=600)) for seen in range(60, 601, 30))
        seen, last = next(look for look in looks if look[1])
        assert last.reached == (last.half_width <= target)
        mean = y[:seen].mean()
        covered.append(abs(mean - 1e5) <= last.half_width * mean)
        stopped.append(seen)
    assert np.mean(covered) >= 0.94
    assert np.mean(stopped) < 600


@pytest.mark.parametrize(
    ("y", "asked", "stop", "reached"),
    [
        (np.full(59, 100.0), {}, False, False),
        (np.full(60, 100.0), {}, True, True),
        (np.r_[np.full(60, 100.0), np.nan], {}, True, True),
        (np.zeros(200), {}, False, False),
        ([], {}, False, False),
        (seconds(np.random.default_rng(10), (300,), cv=0.5, tau=10), {"target": 0.01}, True, False),
        (1e5 + np.repeat([-1.0, 1.0], 30), {}, False, False),  # two independent samples
    ],
)
def test_a_run_goes_on_until_its_mean_is_known_or_its_time_is_over(y, asked, stop, reached):
    found = stop_when(y, **asked)
    assert (bool(found), found.reached) == (stop, reached)


VALUES = np.array([100.0, 101, 99, 100, 100.5])
UNLIKE = VALUES * [1, 1.2, 1, 1, 1]


@pytest.mark.parametrize(
    ("values", "target", "stop", "reached"),
    [
        (VALUES, 0.02, True, True),
        (VALUES[:4], 0.02, False, False),
        (UNLIKE, 0.02, False, False),
        (np.tile(UNLIKE, 2), 0.001, True, False),
        (VALUES * [1, 0, 1, 1, 1], 0.02, False, False),
    ],
)
def test_a_cell_gets_runs_until_its_mean_is_known(values, target, stop, reached):
    found = enough_runs(values, target)
    assert (bool(found), found.reached) == (stop, reached)
    if min(values) > 0:
        logs = np.log(values)
        half = np.expm1(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5)
        assert found.half_width == pytest.approx(half)
