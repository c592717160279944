import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from simulate import runs, seconds

from hcilib import noise, precision
from hcilib.analyse.design import Protocol, half_width_factors, planned_run_s, planned_runs, pool_noise
from hcilib.analyse.series import enough_runs

ARTICLES = {"runs": 3, "read_s": 600, "write_s": 1800, "order": "back-to-back"}
ADAPTIVE = {"runs": 5, "most_runs": 10, "read_s": 300, "write_s": 300, "first_s": 60}


def campaign(levels, runtime_s=300.0, system="a"):
    """Results rows of shape (cells, runs): cells alternate between reading and writing."""
    cells, n = np.shape(levels)
    return pd.DataFrame(
        {
            "system": system,
            "run_id": "c1",
            "block": np.tile(np.arange(1, n + 1), cells),
            "rep": np.tile(np.arange(1, n + 1), cells),
            "pattern": np.repeat([("4k-randread", "4k-randwrite")[i % 2] for i in range(cells)], n),
            "iodepth": np.repeat(np.arange(cells) // 2 + 1, n),
            "rwmixread": np.repeat([100 * (1 - i % 2) for i in range(cells)], n),
            "iops": 1e5 * np.ravel(levels),
            "runtime_s": runtime_s,
            "valid": True,
        }
    )


def declared(cells=4, between=1.0, second=6.7, tau_s=5.0):
    """The noise of published means: nothing measured, everything declared."""
    return noise(campaign(np.ones((cells, 1))), None, second_cv_pct=second, between_cv_pct=between, tau_s=tau_s)


# How wide an interval will be


def welch_half(a, b):
    va, vb = (x.var(axis=-1, ddof=1) / x.shape[-1] for x in (a, b))
    df = (va + vb) ** 2 / (va**2 / (a.shape[-1] - 1) + vb**2 / (b.shape[-1] - 1))
    return stats.t.ppf(0.975, df) * np.sqrt(va + vb)


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_half_width_is_what_simulated_campaigns_have(n):
    rng = np.random.default_rng(n)
    half = welch_half(rng.standard_normal((40_000, n)), rng.standard_normal((40_000, n)))
    expected, assured = half_width_factors(n)
    assert expected == pytest.approx(half.mean(), rel=0.02)
    assert assured == pytest.approx(np.quantile(half, 0.9), rel=0.03)


def test_half_width_of_many_runs_is_the_normal_one():
    assert half_width_factors(1000)[0] == pytest.approx(1.95996 * np.sqrt(2 / 1000), rel=2e-3)
    with pytest.raises(ValueError, match="at least 2 runs"):
        half_width_factors(1)


# The noise of a campaign


def test_noise_is_taken_apart_into_runs_and_seconds():
    rng = np.random.default_rng(1)
    level = runs(rng, (40, 5), sd=0.02)
    y = level[..., None] * seconds(rng, (40, 5, 300), mean=1e5, cv=0.05, tau=5)
    results = campaign(y.mean(-1) / 1e5)
    series = results.loc[np.repeat(results.index, 300), ["run_id", "block", "rep", "pattern", "iodepth"]].assign(
        host="vm1", ddir="read", t_s=np.tile(np.arange(300), 200), iops=y.ravel()
    )
    pooled = pool_noise(noise(results, series)).iloc[0]
    assert pooled["between_cv_pct"] == pytest.approx(2.0, rel=0.15)
    assert pooled["second_cv_pct"] == pytest.approx(5 * np.sqrt(5), rel=0.1)
    assert pooled["within_cv_pct"] == pytest.approx(5 * np.sqrt(5 / 300), rel=0.1)
    assert pooled["tau_s"] == pytest.approx(5, rel=0.15)
    assert pooled["cv_pct"] == pytest.approx(np.hypot(2.0, 5 * np.sqrt(5 / 300)), rel=0.12)
    assert (noise(results, series)[["runs_basis", "seconds_basis"]] == "measured").all(axis=None)


def test_spread_and_its_interval_by_hand():
    levels = np.array([[1.0, 1.1, 0.95], [2.0, 2.02, 1.99]])
    table = noise(campaign(levels), second_cv_pct=3.0)
    sd = np.log(levels).std(axis=1, ddof=1)
    assert table["cv_pct"].tolist() == pytest.approx(100 * sd)
    assert table["cv_pct_lo"].tolist() == pytest.approx(100 * sd * np.sqrt(2 / stats.chi2.ppf(0.975, 2)))
    assert table["cv_pct_hi"].tolist() == pytest.approx(100 * sd * np.sqrt(2 / stats.chi2.ppf(0.025, 2)))
    within2 = 3.0**2 / 300
    assert table["between_cv_pct"].tolist() == pytest.approx(np.sqrt(np.maximum((100 * sd) ** 2 - within2, 0)))
    pooled = pool_noise(table).iloc[0]
    assert pooled["cv_pct"] == pytest.approx(100 * np.sqrt((sd**2).mean()))
    assert (pooled["df"], pooled["n"], pooled["cells"]) == (4, 6, 2)
    assert pooled["cv_pct_hi"] == pytest.approx(pooled["cv_pct"] * np.sqrt(4 / stats.chi2.ppf(0.025, 4)))


def test_what_nobody_measured_or_declared_is_missing():
    table = noise(campaign([[1.0, 1.1, 0.9]]))
    assert table[["within_cv_pct", "second_cv_pct", "between_cv_pct", "tau_s"]].isna().all(axis=None)
    single = noise(campaign([[1.0]]), second_cv_pct=3)
    assert single[["cv_pct", "cv_pct_lo", "cv_pct_hi", "between_cv_pct"]].isna().all(axis=None)
    assert "single-run-spread" in single["warnings"].iloc[0].split()
    assert single[["runs_basis", "seconds_basis"]].iloc[0].tolist() == ["unknown", "declared"]


def test_a_declared_spread_never_replaces_a_measured_one():
    table = noise(campaign([[1.0, 1.1, 0.9]]), second_cv_pct=3, between_cv_pct=50)
    assert table["between_cv_pct"].iloc[0] < 15


def test_invalid_runs_are_no_noise():
    results = campaign([[1.0, 1.01, 0.2]]).assign(valid=[True, True, False])
    table = noise(results, second_cv_pct=1)
    assert table["n"].iloc[0] == 2
    assert table["cv_pct"].iloc[0] < 1


def test_campaigns_are_kept_apart():
    both = pd.concat([campaign([[1.0, 1.01]]), campaign([[2.0, 2.02]]).assign(run_id="c2")])
    assert noise(both)["n"].tolist() == [2, 2]
    assert noise(both)["cv_pct"].max() < 1


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=6), st.floats(1e-3, 1e3), st.randoms())
def test_noise_knows_neither_units_nor_order(levels, scale, random):
    results = campaign([levels])
    moved = results.assign(iops=results["iops"] * scale).iloc[random.sample(range(len(levels)), len(levels))]
    plain, other = (noise(r, second_cv_pct=1)[["cv_pct", "between_cv_pct"]].to_numpy() for r in (results, moved))
    assert other == pytest.approx(plain, rel=1e-6, abs=1e-6)


def test_no_rows_give_no_rows():
    assert noise(campaign([[1.0, 1.1]]).iloc[:0]).empty
    assert precision(declared(2), {}).empty


# Planning


def test_the_articles_protocol_by_hand():
    row = precision(declared(4, between=1.0, second=6.0), {"fixed": ARTICLES}).iloc[0]
    assert row["hours"] == pytest.approx(2 * 3 * (2 * 600 + 2 * 1800) / 3600)
    sd = np.sqrt(0.01**2 + (0.06**2 / 600 + 0.06**2 / 1800) / 2)
    assert row["cv_pct"] == pytest.approx(100 * sd)
    expected, assured = half_width_factors(3)
    assert row["half_width_pct"] == pytest.approx(100 * np.expm1(sd * expected))
    assert row["assured_pct"] == pytest.approx(100 * np.expm1(sd * assured))
    assert (row["cells"], row["runs"], row["order"]) == (4, 3, "back-to-back")


def test_more_runs_cost_more_and_know_more():
    table = precision(declared(), {"fixed": ARTICLES, "adaptive": ADAPTIVE}, runs=[2, 3, 5, 10, 20])
    for _, part in table.groupby("protocol"):
        assert (np.diff(part["hours"]) > 0).all()
        assert (np.diff(part["half_width_pct"]) < 0).all()
        assert (part["assured_pct"] > part["half_width_pct"]).all()


def test_an_adaptive_run_ends_at_the_look_its_noise_allows():
    protocol = Protocol("adaptive", **ADAPTIVE)
    at_60 = 0.02 / 0.4342760380156085  # METHODS section 5: the half-width at t = 60 for s = 1
    assert planned_run_s(protocol, True, at_60 * 0.999, 1.0, 0.02) == 60
    assert planned_run_s(protocol, True, at_60 * 1.001, 1.0, 0.02) == 90
    assert planned_run_s(protocol, True, 0.02 / 0.17523787276405017 * 0.999, 1.0, 0.02) == 300
    assert planned_run_s(protocol, True, 1.0, 1.0, 0.02) == 300
    assert planned_run_s(protocol, True, at_60 * 0.999, 5.0, 0.02) == 150  # 30 independent seconds at tau 5
    assert planned_run_s(Protocol("fixed", **ARTICLES), True, 1.0, 1.0, 0.02) == 1800


def test_an_adaptive_cell_gets_the_runs_that_enough_runs_asks_for():
    protocol, rng = Protocol("adaptive", **ADAPTIVE), np.random.default_rng(2)
    for sd in (0.005, 0.02, 0.025, 0.03, 0.2):
        n = planned_runs(protocol, sd, 0.02)
        assert 5 <= n <= 10
        z = rng.standard_normal(n)
        values = np.exp(sd * (z - z.mean()) / z.std(ddof=1))  # runs whose spread is exactly sd
        assert enough_runs(values, 0.02 * 1.0001).reached or n == 10
        if n > 5:
            z = rng.standard_normal(n - 1)
            assert not enough_runs(np.exp(sd * (z - z.mean()) / z.std(ddof=1)), 0.02).reached
    assert [planned_runs(protocol, sd, 0.02) for sd in (0.005, 0.2)] == [5, 10]
