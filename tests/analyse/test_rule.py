"""The rule of a comparison: Welch for one test, and what many tests of a campaign tell of each other."""

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, special, stats

import hcilib as hci
from hcilib import compare
from hcilib.analyse.stats import FLOOR, adjusted, borrowed, chance, prior, smallest_difference

A, B = (893e3, 899e3, 884e3), (858e3, 871e3, 849e3)
S2 = [1.2e-4, 3.4e-4, 5e-5, 2.1e-3, 1.8e-4, 9e-5, 7e-4, 2.5e-4, 3e-5, 1.1e-3, 4.2e-4, 1.5e-4, 7e-5, 5e-4, 9e-4, 2e-5]
S2 += [1.6e-3, 3.1e-4, 1.1e-4, 6e-4]
P = [0.0004, 0.003, 0.011, 0.012, 0.02, 0.04, 0.051, 0.3, 0.5, 0.9]
SCENARIOS = {  # how the logs of one system's runs spread: cells x runs, from the rounds' common part and noise
    "like": lambda rng, cells, n: 0.02 * rng.normal(size=(cells, n)),
    "unlike": lambda rng, cells, n: 0.02 * np.exp(0.7 * rng.normal(size=(cells, 1))) * rng.normal(size=(cells, n)),
    "rounds": lambda rng, cells, n: 0.02 * rng.normal(size=(cells, n)) + 0.02 * rng.normal(size=n),
}


def runs(a, b, pair=False):
    """Results of two systems from logs of shape cells x runs."""
    rows = [
        {"system": name, "iodepth": cell, "rep": rep, "run_id": "c" if pair else name, "iops": 1e5 * np.exp(value)}
        | ({"pair": rep, "block": rep} if pair else {})
        for name, logs in (("a", a), ("b", b))
        for (cell, rep), value in np.ndenumerate(logs)
    ]
    return pd.DataFrame(rows)


def compared(a, b, pair=False, **options):
    return compare(runs(a, b, pair), "a", by="iodepth", **options)


def test_one_test_is_welchs():
    row = compared(np.log([A]), np.log([B]), adjust=None).iloc[0]
    expected = {
        "ratio": 0.9633480866706776,
        "ratio_lo": 0.9383678364088041,
        "ratio_hi": 0.9889933351122991,
        "p_adjusted": 0.01848045628615045,
    }
    assert row[list(expected)].to_dict() == pytest.approx(expected, rel=1e-9)
    assert row["verdict"] == "lower"
    whole = compare(runs(np.log([A]), np.log([B])), "a", by=(), adjust=None)
    assert whole[list(expected)].iloc[0].to_dict() == pytest.approx(expected, rel=1e-9), "all runs are one test"
    rng = np.random.default_rng(3)
    for n, m in rng.integers(2, 8, (20, 2)):
        a, b = 0.04 * rng.normal(size=(1, n)), 0.04 * rng.normal(size=(1, m))
        row, known = compared(a, b).iloc[0], stats.ttest_ind(b[0], a[0], equal_var=False)
        found = row[["p", "ratio_lo", "ratio_hi"]].tolist()
        assert found == pytest.approx([known.pvalue, *np.exp(known.confidence_interval(0.95))], rel=1e-9)


def prior_by_hand(v, f, known=1.0):
    """Smyth 2004, section 6.2: the spread of log v beyond what chance gives is the trigamma of d0 / 2."""
    e = np.log(v) - special.digamma(f / 2) + np.log(f / 2)
    excess = known * e.var(ddof=1) - special.polygamma(1, f / 2)
    half = optimize.brentq(lambda d: special.polygamma(1, d) - excess, 1e-3, 1e6)
    return 2 * half, np.exp(e.mean() + special.digamma(half) - np.log(half))


def test_the_rule_and_the_mean_over_tests_by_hand():
    """docs/METHODS 16 and 7, on six unlike tests of four rounds that share a third of their variance."""
    draw, m, n = np.random.default_rng(21), 6, 4
    spread = np.array([0.004, 0.01, 0.02, 0.03, 0.05, 0.09])[:, None]
    a, b = (spread * (draw.standard_normal((m, n)) + 0.7 * draw.standard_normal(n)) for _ in range(2))
    own, f = np.array([x.var(axis=1, ddof=1) / n for x in (a, b)]), 2 * (n - 1)
    v, welch = own.sum(axis=0), own.sum(axis=0) ** 2 / (own**2 / (n - 1)).sum(axis=0)
    d0 = prior_by_hand(v, f)[0]
    sure, v0 = prior_by_hand(v, f, (m - 1) / stats.chi2.ppf(0.9, m - 1))
    var = np.maximum(v, (sure * v0 + f * v) / (sure + f))
    moves = np.array([(x - x.mean(axis=1)[:, None]) / x.std(axis=1, ddof=1)[:, None] for x in (a, b)])
    moves /= np.sqrt(var / v)[:, None]
    free, left = 2 * (n - 1), 2 * (m - 1) * (n - 1)
    between = (moves.sum(axis=1) ** 2 / m).sum()
    ratio = between / free / (((moves**2).sum() - between) / left)
    c, c_hi = (np.clip((r - 1) / (r + m - 1), 0, 1) for r in (ratio, ratio / stats.f.ppf(0.1, free, left)))
    df = welch * (1 + np.minimum(d0, f * (m / (1 + (m - 1) * c**2) - 1)) / f)
    d, half = (b - a).mean(axis=1), stats.t.ppf(0.975, df) * np.sqrt(var)
    found = compared(a, b, adjust=None)
    assert np.log(found["ratio_lo"]).to_numpy() == pytest.approx(d - half, rel=1e-6)
    assert np.log(found["ratio_hi"]).to_numpy() == pytest.approx(d + half, rel=1e-6)
    rounds = np.array([x.mean(axis=0).var(ddof=1) / n for x in (a, b)])
    q = m * c_hi / (1 + (m - 1) * c_hi)
    of_rounds = rounds.sum() ** 2 / (rounds**2 / (n - 1)).sum()
    rest = (var**2 / df).sum() / var.sum() ** 2
    half = stats.t.ppf(0.975, 1 / (q**2 / of_rounds + (1 - q) ** 2 * rest)) * np.sqrt(
        max(rounds.sum(), var.sum() / m**2)
    )
    row = hci.overall(runs(a, b), "a", by="iodepth").iloc[0]
    assert np.log(row[["ratio_lo", "ratio_hi"]].tolist()) == pytest.approx([d.mean() - half, d.mean() + half], rel=1e-6)


def test_the_prior_is_limmas():
    assert prior(pd.Series(S2), 2) == pytest.approx((40.17702245794559, 4.2229267940230183e-4), rel=1e-5)
    d0, s02 = prior(pd.Series([1e-4, 1.1e-4, 0.9e-4, 1.05e-4]), 4)
    assert (d0, s02) == (np.inf, pytest.approx(1.0125e-4)), "they differ by no more than chance"
    rng = np.random.default_rng(5)
    drawn = 8 * 3e-4 / rng.chisquare(8, 20000) * rng.chisquare(4, 20000) / 4
    assert prior(pd.Series(drawn), 4) == pytest.approx((8, 3e-4), rel=0.1)
    unlike = pd.Series([1e-6, 0.04, 0.06, 2e-6, 1e-4, 1e-3, 1e-5])
    assert prior(unlike, 4)[0] < prior(unlike, 4, 0.9)[0] < np.inf, "unlike only as far as it is sure"


def test_a_noisy_test_keeps_its_variance_and_rounds_teach_nothing():
    tests = pd.DataFrame({"v": np.random.default_rng(6).chisquare(4, 9), "f": 4.0, "df": 3.0})
    found = borrowed(tests, 0.3)
    assert (found["se"] ** 2 >= tests["v"] * (1 - 1e-12)).all()
    assert found["df"].between(3, 27).all()
    assert (borrowed(tests, 1.0)["df"] == 3).all()


@pytest.mark.parametrize("pair", [False, pytest.param(True, marks=pytest.mark.deep)])
@pytest.mark.parametrize(("scenario", "finds"), [("like", 0.4), ("unlike", 0.1), ("rounds", 0.12)])
def test_equal_systems_are_seldom_told_apart_and_five_percent_is_found(scenario, finds, pair):
    """Twelve tests, three runs, cv 2 %: the power table of docs/METHODS, with fewer campaigns."""
    rng, draw = np.random.default_rng(8), SCENARIOS[scenario]
    false, found, covers = [], [], []
    half = np.arange(12) % 2 == 0
    for _ in range(80):
        a, b = draw(rng, 12, 3), draw(rng, 12, 3)
        equal = compared(a, b, pair)
        false.append(equal["verdict"].isin(["higher", "lower"]).any())
        covers.append((equal["ratio_lo"].le(1) & equal["ratio_hi"].ge(1)).mean())
        faster = compared(a, b + np.log(1.05) * half[:, None], pair)
        found.append(faster["verdict"].eq("higher")[half].mean())
    assert np.mean(false) <= 0.125  # of 80 campaigns, three standard errors above .05
    assert np.mean(covers) >= 0.93
    assert np.mean(found) >= finds * (0.7 if pair else 1)


def test_a_grid_finds_nothing_though_one_system_is_ten_times_as_noisy():
    rng = np.random.default_rng(28)
    grids = [compared(0.02 * rng.normal(size=(28, 3)), 0.2 * rng.normal(size=(28, 3))) for _ in range(80)]
    assert np.mean([grid["verdict"].isin(["higher", "lower"]).any() for grid in grids]) <= 0.125  # Welch's own: .14


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("cells", [6, 12, 28])
def test_the_chance_of_a_find_is_what_simulated_campaigns_find(n, cells):
    """Against `compare` in 200 campaigns (bench/truth.py), which is not told that no round moves its tests."""
    table = pd.read_csv(hci.ROOT / "data/samples/truth/rule.csv").query("scenario == 'like'")
    found = table.set_index(["cells", "n"]).loc[(cells, n), "found_pct"] / 100
    assert chance([0.05], 0.02, n, cells) == pytest.approx([found], abs=0.07)


def test_the_smallest_difference_is_found_nine_times_in_ten():
    """The planning table of docs/METHODS 16, of 4,000 campaigns each."""
    known = {0.01: (5.9, 3.6, 2.5, 2.0), 0.02: (12, 7.3, 5.1, 4.1), 0.05: (33, 19, 13, 10.5), 0.1: (78, 42, 28, 22)}
    for cv, row in known.items():
        found = [100 * smallest_difference(cv, n, 12) for n in (2, 3, 5, 8)]
        assert found == pytest.approx(row, rel=0.06)
    shown = smallest_difference(0.02, 3, 12)
    assert chance([shown], 0.02, 3, 12) == pytest.approx([0.9], abs=0.02)
    one = stats.nct.sf(stats.t.ppf(0.975, 4), 4, np.log(1.1) / (0.02 * np.sqrt(2 / 3)))
    assert chance([0.1], 0.02, 3, 1) == pytest.approx([one], abs=0.05), "one test is Welch's"
    assert np.isnan(smallest_difference(0.5, 2, 12)), "above 100 %"


@pytest.mark.parametrize(("cv", "n", "cells"), [(0.02, 1, 12), (0, 3, 12), (0.02, 3, 0), (float("nan"), 3, 12)])
def test_no_chance_without_runs_tests_and_a_spread(cv, n, cells):
    with pytest.raises(ValueError, match="expected 2 runs or more"):
        chance([0.05], cv, n, cells)


def test_identical_runs_are_floored():
    row = compared(np.log([[100.0] * 3]), np.log([[101.0] * 3])).iloc[0]
    half = stats.t.ppf(0.975, 4) * FLOOR * np.sqrt(2 / 3)
    assert [row["ratio"], row["ratio_lo"]] == pytest.approx([1.01, 1.01 * np.exp(-half)])
    assert "zero-variance" in row["warnings"].split()
    same = compared(np.zeros((1, 3)), np.zeros((1, 3))).iloc[0]
    assert (same["verdict"], same["ratio"], same["p_adjusted"]) == ("same", 1.0, 1.0)


def test_many_tests_are_corrected():
    order = np.random.default_rng(0).permutation(len(P))
    p = pd.Series(np.insert(np.array(P)[order], 4, np.nan))
    back = np.argsort(order)
    for adjust, wanted in {
        "holm": [0.004, 0.027, 0.088, 0.088, 0.12, 0.2, 0.204, 0.9, 1, 1],
        "bh": [0.004, 0.015, 0.03, 0.03, 0.04, 0.04 * 10 / 6, 0.051 * 10 / 7, 0.375, 5 / 9, 0.9],
        None: P,
    }.items():
        found = adjusted(p, range(len(p)), adjust).to_numpy()
        assert np.isnan(found[4]), "no test"
        assert np.delete(found, 4)[back] == pytest.approx(wanted, rel=1e-9)
    assert adjusted(pd.Series([np.nan]), [0], "bh").isna().all()


def test_equivalence_in_a_grid_is_corrected_like_differences():
    rng = np.random.default_rng(5)
    apart = np.arange(28)[:, None]  # from test to test a little further
    a, b = (0.02 * rng.normal(size=(28, 4)) + by * apart for by in (0, 0.002))
    grid, alone = (compared(a, b, adjust=adjust)["verdict"].eq("same").sum() for adjust in ("bh", None))
    assert alone > grid > 0
