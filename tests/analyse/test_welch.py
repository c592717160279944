"""Welch on logs, TOST and moderated variances against METHODS section 5, scipy, and simulation."""

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from hcilib import compare
from hcilib.analyse.compare.cells import UNSTABLE
from hcilib.analyse.compare.contrast import FLOOR, contrast, fit_fdist, interval, judge, tost

A, B = (893e3, 899e3, 884e3), (858e3, 871e3, 849e3)
S2 = [1.2e-4, 3.4e-4, 5e-5, 2.1e-3, 1.8e-4, 9e-5, 7e-4, 2.5e-4, 3e-5, 1.1e-3, 4.2e-4, 1.5e-4, 7e-5, 5e-4, 9e-4, 2e-5]
S2 += [1.6e-3, 3.1e-4, 1.1e-4, 6e-4]
THREE_AND_FIVE = [3, pytest.param(5, marks=pytest.mark.deep)]
"""Runs of a cell; fewer are harder."""


def runs(**systems):
    """One row per run; every keyword is a system, its value a list of runs, or {cell: list of runs}."""
    rows = []
    for system, cells in systems.items():
        for cell, values in (cells if isinstance(cells, dict) else {0: cells}).items():
            rows += [{"system": system, "cell": cell, "iops": v} for v in values]
    return pd.DataFrame(rows)


def equivalence_p(row):
    """Return the p of equivalence at a margin of 5 %, by two one-sided tests, from the row's interval."""
    se = np.log(row["ratio_hi"] / row["ratio"]) / stats.t.ppf(0.975, row["df"])
    return tost(np.log(row["ratio"]), se, row["df"], 0.05)


def test_reference_values_of_methods():
    row = compare(runs(a=A, b=B), "a", by="cell", adjust=None).iloc[0]
    expected = {
        "ratio": 0.9633480866706776,
        "ratio_lo": 0.9383678364088041,
        "ratio_hi": 0.9889933351122991,
        "df": 3.4611116963388073,
        "p_adjusted": 0.01848045628615045,
        "tost_lo": 0.944431957413381,
        "tost_hi": 0.9826430891154707,
    }
    assert row[list(expected)].to_dict() == pytest.approx(expected, rel=1e-9)
    assert not row["equivalent"]
    assert equivalence_p(row) == pytest.approx(0.13854904009682525, rel=1e-9)
    assert row["verdict"] == "lower"


def test_agrees_with_scipy_on_random_cells():
    rng = np.random.default_rng(3)
    cells = {s: {c: 1e4 * np.exp(0.04 * rng.normal(size=rng.integers(2, 8))) for c in range(40)} for s in "ab"}
    for c, cell in runs(**cells).groupby("cell"):  # one cell alone has no campaign to lean on
        row = compare(cell, "a", by="cell").iloc[0]
        t = stats.ttest_ind(np.log(cells["b"][c]), np.log(cells["a"][c]), equal_var=False)
        ci = np.exp(t.confidence_interval(0.95))
        assert [row["p_adjusted"], row["df"], row["ratio_lo"], row["ratio_hi"]] == pytest.approx(
            [t.pvalue, t.df, *ci], rel=1e-9
        )


def test_fit_fdist_reference():
    assert fit_fdist(S2, 2) == pytest.approx((40.17702245794559, 4.2229267940230183e-4), rel=1e-5)


def test_fit_fdist_without_excess_spread_has_infinite_prior():
    d0, s02 = fit_fdist([1e-4, 1.1e-4, 0.9e-4, 1.05e-4], 4)
    assert d0 == np.inf
    assert s02 == pytest.approx(1.0125e-4)


def test_fit_fdist_recovers_a_known_prior():
    rng = np.random.default_rng(5)
    d0, s02, f = 8, 3e-4, 4
    s2 = d0 * s02 / rng.chisquare(d0, 20000) * rng.chisquare(f, 20000) / f
    assert fit_fdist(s2, f) == pytest.approx((d0, s02), rel=0.1)


def test_a_few_cells_are_unlike_only_where_their_variances_show_it():
    few = np.array([0.01, 0.04, 0.06])
    assert np.isfinite(fit_fdist(few, 4)[0])
    assert fit_fdist(few, 4, 0.95) == (np.inf, pytest.approx(few.mean()))
    unlike = np.array([1e-6, 0.04, 0.06, 2e-6, 1e-4, 1e-3, 1e-5])
    limit = stats.chi2.ppf(0.95, len(unlike) - 1) / (len(unlike) - 1)
    log_spread = np.log(unlike).var(ddof=1)
    assert 2 * fit_fdist(unlike, 4)[0] < 2 * fit_fdist(unlike, 4, 0.95)[0] < np.inf
    found = special.polygamma(1, fit_fdist(unlike, 4, 0.95)[0] / 2)
    assert found == pytest.approx(log_spread / limit - special.polygamma(1, 2))


def test_a_variance_never_counts_for_less_than_the_campaign_makes_likely():
    rng = np.random.default_rng(7)
    sd = np.exp(rng.normal(np.log(0.01), 1.0, 30))  # spread enough for a finite prior
    table = runs(**{s: {c: np.exp(sd[c] * rng.normal(size=3)) for c in range(30)} for s in "ab"})
    own = np.log(table["iops"]).groupby([table["system"], table["cell"]]).var().unstack("system")
    prior = {s: fit_fdist(own[s], 2, 0.95) for s in "ab"}  # of each system's own cells
    assert np.isfinite([d0 for d0, _ in prior.values()]).all()
    v = own.apply(lambda c: np.maximum(c, (prior[c.name][0] * prior[c.name][1] + 2 * c) / (prior[c.name][0] + 2))) / 3
    df = own.sum(axis=1) ** 2 / (own**2 / 2).sum(axis=1)  # the prior adds to the variance, never to the freedom
    assert (v > own / 3).any(axis=None)
    found = compare(table, "a", by="cell").set_index("cell")
    half = stats.t.ppf(0.975, df) * np.sqrt(v.sum(axis=1))
    assert found["df"].to_numpy() == pytest.approx(df.to_numpy())
    assert np.log(found["ratio_hi"] / found["ratio"]).to_numpy() == pytest.approx(half.to_numpy())


@pytest.mark.parametrize(("cells", "n"), [(4, 3), (28, 3), pytest.param(28, 5, marks=pytest.mark.deep)])
def test_a_guarded_interval_is_never_narrower_than_welchs(cells, n):
    """A prior may make an answer less sure, never surer (FOUND T3)."""
    rng = np.random.default_rng(cells)
    for _ in range(20):
        sd = np.exp(rng.normal(np.log(0.03), 1.0, cells))
        table = runs(**{s: {c: np.exp(sd[c] * rng.normal(size=n)) for c in range(cells)} for s in "ab"})
        guarded = compare(table, "a", by="cell", adjust=None).sort_values("cell")
        a, b = np.log(table["iops"].to_numpy()).reshape(2, cells, n)
        welch = stats.ttest_ind(b, a, axis=-1, equal_var=False)
        lo, hi = np.exp(welch.confidence_interval(0.95))
        assert (guarded["p_adjusted"] >= welch.pvalue - 1e-12).all()
        assert (guarded["ratio_lo"] <= lo * (1 + 1e-12)).all()
        assert (guarded["ratio_hi"] >= hi * (1 - 1e-12)).all()


def test_equivalence_in_a_grid_is_corrected_like_differences():
    rng = np.random.default_rng(5)
    apart = {"a": 0, "b": 0.002}  # from cell to cell a little further
    table = runs(**{s: {c: np.exp(by * c + 0.01 * rng.normal(size=4)) for c in range(28)} for s, by in apart.items()})
    grid, alone = (compare(table, "a", by="cell", adjust=adjust) for adjust in ("bh", None))
    p = equivalence_p(grid)
    assert grid["equivalent"].tolist() == (stats.false_discovery_control(p) <= 0.05).tolist()
    assert alone["equivalent"].tolist() == (p <= 0.05).tolist()
    assert alone["equivalent"].sum() > grid["equivalent"].sum() > 0


def campaigns(cells, n, sd_a, sd_b, grids=250, **given):
    """`grids` campaigns of equal cells of two systems, each as `contrast` takes it and with what it makes of it."""
    rng = np.random.default_rng(cells + n)
    both = np.arange(cells)
    for _ in range(grids):
        logs = np.array([sd_a, sd_b])[:, None, None] * rng.normal(size=(2, cells, n))
        described = pd.DataFrame({
            "system": np.repeat(["a", "b"], cells), "n": n, "log_mean": logs.mean(axis=-1).ravel(),
            "log_var": logs.var(axis=-1, ddof=1).ravel(), "flat": False,
        })  # fmt: skip
        described["unstable"] = described["log_var"] > UNSTABLE**2
        yield contrast(described, both + cells, both, **given)


@pytest.mark.parametrize("n", THREE_AND_FIVE)
def test_a_cell_that_looks_calm_in_a_noisy_campaign_is_trusted_no_more_than_the_campaign(n):
    found = pd.concat(campaigns(12, n, 0.2, 0.2, 800))
    lo, hi = interval(found["log_ratio"], found["se"], found["df"], 0.95)
    covers = (lo <= 1) & (hi >= 1)
    assert covers.mean() >= 0.94
    assert (~found["unstable"]).sum() > 50
    assert covers[~found["unstable"]].mean() >= 0.9  # Welch's own: .73 and .68


@pytest.mark.parametrize("n", THREE_AND_FIVE)
def test_a_grid_of_equal_cells_finds_nothing_though_one_system_is_ten_times_as_noisy(n):
    judged = [judge(pair, margin=0.05, adjust="bh") for pair in campaigns(28, n, 0.02, 0.2)]
    assert (
        np.mean([found["verdict"].isin(["higher", "lower"]).any() for found in judged]) <= 0.05
    )  # Welch's own: .14 and .09


@pytest.mark.parametrize(("n", "sd_b"), [(3, 0.02), (3, 0.06), (5, 0.02)])
def test_welch_coverage_over_2000_draws(n, sd_b):
    [found] = campaigns(2000, n, 0.02, sd_b, grids=1, guard=False)
    lo, hi = interval(found["log_ratio"], found["se"], found["df"])
    covered = ((lo <= 1) & (hi >= 1)).mean()
    assert 0.93 <= covered <= 0.98


def test_zero_variance_is_floored_and_said():
    row = compare(runs(a=[100.0] * 3, b=[101.0] * 3), "a", by="cell").iloc[0]
    half = stats.t.ppf(0.975, 4) * FLOOR * np.sqrt(2 / 3)
    assert [row["ratio"], row["ratio_lo"]] == pytest.approx([1.01, 1.01 * np.exp(-half)])
    assert 0 < row["p_adjusted"] < 1
    assert "zero-variance" in row["warnings"].split()


def test_identical_systems_without_variance_are_equivalent_not_different():
    row = compare(runs(a=[100.0] * 3, b=[100.0] * 3), "a", by="cell").iloc[0]
    assert (row["verdict"], row["ratio"], row["p_adjusted"]) == ("same", 1.0, 1.0)
