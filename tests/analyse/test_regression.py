"""One campaign against earlier ones, the noise of a campaign, and how wide the next comparison will be."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from simulate import history_of, runs, seconds

import hcilib as hci
from hcilib import chance_to_see, noise, precision, regression
from hcilib.analyse.stats import chance
from hcilib.model.caveats import has_code

EARLIER = np.log([[1.0, 1.03, 0.98, 1.01]])


def after(new: float, earlier=EARLIER, **columns):
    """A history whose last campaign has this ratio to 1."""
    return history_of(np.hstack([earlier, np.full((len(earlier), 1), np.log(new))]), **columns)


def only(table):
    [(_, row)] = table.iterrows()
    return row


# ---- regression


def test_the_range_by_hand():
    row = only(regression(after(0.9), "c05", adjust=None))
    d = np.log(0.9) - EARLIER.mean()
    scale = EARLIER.std(ddof=1) * np.sqrt(1 + 1 / 4)
    half = stats.t.ppf(0.975, 3) * scale
    assert row[["ratio", "ratio_lo", "ratio_hi"]].tolist() == pytest.approx(np.exp([d, d - half, d + half]), rel=1e-9)
    assert row["p_adjusted"] == pytest.approx(2 * stats.t.sf(abs(d) / scale, 3), rel=1e-9)
    assert row["value_baseline"] == pytest.approx(1000 * np.exp(EARLIER.mean()))
    assert (row["k"], row["n"], row["verdict"]) == (4, 3, "regression")
    for size, verdict in ((0.999, "no change seen"), (1.001, "regression")):
        end = np.exp(EARLIER.mean() - size * half)
        assert only(regression(after(end), "c05", adjust=None))["verdict"] == verdict


FLAT = np.zeros((1, 3))
UNLIKE = np.log([[1.0, 1.10, 0.92]])


@pytest.mark.parametrize(
    ("history", "asked", "verdict", "k", "warnings"),
    [
        (after(1.2), {}, "improvement", 4, ""),
        (after(1.2, metric="lat_ns"), {"metric": "lat_ns"}, "regression", 4, ""),
        (after(1.2, metric="runtime_s"), {"metric": "runtime_s"}, "changed", 4, ""),
        (after(0.95, UNLIKE), {}, "no change seen", 3, ""),  # runs repeat within 0.2 %, campaigns only within 9 %
        (after(0.9), {"baselines": ["c01", "c02"]}, "no change seen", 2, ""),
        (after(0.93), {"baselines": "c01"}, "regression", 1, "one-campaign"),
        (after(0.93), {"baselines": "c01", "margin": 0.1}, "no change seen", 1, "one-campaign"),
        (after(1.0001, FLAT), {}, "no change seen", 3, "zero-variance"),
        (after(1.01, FLAT), {}, "improvement", 3, "zero-variance"),
        (after(0.9).assign(valid=lambda t: t["campaign"] != "c05"), {}, "missing", 4, "no-run"),
        (after(0.9).assign(valid=lambda t: t["campaign"] == "c05"), {}, "missing", 0, "no-run"),
        (after(0.8).assign(setup=["x", *"yyyy"]), {}, "regression", 3, ""),
    ],
)
def test_what_a_new_campaign_is_called(history, asked, verdict, k, warnings):
    new = history["campaign"].iloc[-1]
    row = only(regression(history, new, **asked))
    assert (row["verdict"], row["k"], row["warnings"]) == (verdict, k, warnings)
    assert np.isnan(row["ratio_lo"]) == (k < 2 or verdict == "missing")


def test_a_test_that_the_new_campaign_lacks_is_missing():
    history = after(0.9, np.repeat(EARLIER, 2, axis=0)).iloc[:-1]
    assert regression(history, "c05")["verdict"].tolist() == ["regression", "missing"]


def test_cells_are_corrected_together():
    grid = np.repeat(EARLIER, 4, axis=0)
    history = history_of(np.hstack([grid, np.log([[1.0], [1.0], [1.0], [0.8]])]))
    one, four = (regression(history, "c05", adjust=adjust).iloc[3] for adjust in (None, "bh"))
    assert four["verdict"] == "regression"
    assert four["p_adjusted"] == pytest.approx(4 * one["p_adjusted"])


# ---- the chance to see a loss

KNOWN = 10**9
"""From so many campaigns a spread is known."""


@pytest.mark.parametrize(("loss_pct", "k"), [(1, 2), (4, 2), (1, 3), (0.5, 12), (20, 12)])
def test_the_chance_to_see_a_loss_is_how_often_a_regression_shows_it(loss_pct, k):
    logs = np.log1p(0.00236) * np.random.default_rng(1).standard_normal((4000, k + 1))
    logs[:, k] += np.log1p(-loss_pct / 100)
    found = regression(history_of(logs), f"c{k + 1:02}", adjust=None)["verdict"]
    chance = chance_to_see(0.236, KNOWN, [loss_pct], [k])["chance_pct"].item()
    assert chance == pytest.approx(100 * (found != "no change seen").mean(), abs=2.5)


@pytest.mark.parametrize(
    ("cv_pct", "cv_n", "loss_pct", "k", "chance"),
    [
        (0.236, KNOWN, 3.61, 2, 68),
        (0.236, KNOWN, 1e-6, 3, 5),  # the test's own 5 %
        (0.236, 2, 3.61, 2, 6.5),
        (0.0, 2, 1, 12, 100),  # at the floor of 0.1 %
        (1000.0, 5, 90, 2, 5),
        (5.0, 1, 90, 5, np.nan),  # one campaign has no spread
        (5.0, 9, 90, 1, np.nan),  # and is no range
    ],
)
def test_chances_at_the_ends(cv_pct, cv_n, loss_pct, k, chance):
    row = only(chance_to_see(cv_pct, cv_n, [loss_pct], [k]))
    assert row["chance_pct"] == pytest.approx(chance, abs=0.5, nan_ok=True)
    assert row[["loss_pct", "k"]].tolist() == [loss_pct, k]


# ---- the noise of a campaign


def campaign(levels, runtime_s=300.0, run_id="c1"):
    """Results rows of shape (cells, runs): cells alternate between reading and writing."""
    cells, n = np.shape(levels)
    cell, rep = np.divmod(np.arange(cells * n), n)
    return pd.DataFrame({
        "system": "a", "run_id": run_id, "block": rep + 1, "rep": rep + 1,
        "pattern": np.array(["4k-randread", "4k-randwrite"])[cell % 2], "iodepth": cell // 2 + 1,
        "rwmixread": 100 * (1 - cell % 2), "iops": 1e5 * np.ravel(levels), "runtime_s": runtime_s, "valid": True,
    })  # fmt: skip


def declared(cells=4, between=1.0, second=6.7, tau_s=5.0):
    """The noise of published means: nothing measured, everything declared."""
    return noise(campaign(np.ones((cells, 1))), None, second_cv_pct=second, between_cv_pct=between, tau_s=tau_s)


@pytest.mark.parametrize("log_s", [1.0, 0.5])
def test_noise_is_taken_apart_into_runs_and_seconds(log_s):
    """From logs of a second or half a second; the pooled parts are those that `precision` plans with."""
    rng = np.random.default_rng(1)
    y = runs(rng, (40, 5), sd=0.02)[..., None] * seconds(rng, (40, 5, 300), mean=1e5, cv=0.05, tau=5)
    results = campaign(y.mean(-1) / 1e5, runtime_s=300 * log_s)
    series = results.loc[np.repeat(results.index, 300), ["run_id", "block", "rep", "pattern", "iodepth"]].assign(
        host="vm1", ddir="read", t_s=log_s * np.tile(np.arange(300), 200), iops=y.ravel()
    )
    table = noise(results, series)
    parts = (table[["between_cv_pct", "second_cv_pct", "within_cv_pct", "cv_pct"]] ** 2).mean() ** 0.5
    within = 5 * np.sqrt(5 / 300)
    expected = [2.0, 5 * np.sqrt(5 * log_s), within, np.hypot(2.0, within)]
    assert parts.tolist() == pytest.approx(expected, rel=0.15)
    assert table["tau_s"].mean() == pytest.approx(5 * log_s, rel=0.15)
    assert (table[["runs_basis", "seconds_basis"]] == "measured").all(axis=None)
    plan = only(precision(table, {"long": {"runs": 3, "read_s": 1e9, "write_s": 1e9}}))
    assert plan["cv_pct"] == pytest.approx(2.0, rel=0.15)
    gap = (series.index == 7) & series["t_s"].between(10, 20)  # of the first cell that writes
    assert has_code(noise(results, series[~gap]), "cut").nonzero()[0].tolist() == [20]
    gap = (series.index == 7) & series["t_s"].between(10, 20)  # of the first cell that writes
    assert has_code(noise(results, series[~gap]), "cut").nonzero()[0].tolist() == [20]


def test_spread_and_its_interval_by_hand():
    levels = np.array([[1.0, 1.1, 0.95], [2.0, 2.02, 1.99]])
    table = noise(campaign(levels), second_cv_pct=3.0, tau_s=1.0)
    sd = np.log(levels).std(axis=1, ddof=1)
    assert table["cv_pct"].tolist() == pytest.approx(100 * sd)
    assert table["cv_pct_lo"].tolist() == pytest.approx(100 * sd * np.sqrt(2 / stats.chi2.ppf(0.975, 2)))
    assert table["cv_pct_hi"].tolist() == pytest.approx(100 * sd * np.sqrt(2 / stats.chi2.ppf(0.025, 2)))
    assert table["between_cv_pct"].tolist() == pytest.approx(np.sqrt(np.maximum((100 * sd) ** 2 - 3.0**2 / 300, 0)))


@pytest.mark.parametrize(
    ("levels", "given", "missing", "bases"),
    [
        ([[1.0, 1.1, 0.9]], {}, "within_cv_pct second_cv_pct between_cv_pct tau_s", ["measured", "unknown"]),
        ([[1.0]], {"second_cv_pct": 3}, "cv_pct cv_pct_lo cv_pct_hi between_cv_pct tau_s", ["unknown", "declared"]),
        ([[1.0, 1.1, 0.9]], {"second_cv_pct": 3, "between_cv_pct": 50, "tau_s": 2}, "", ["measured", "declared"]),
    ],
)
def test_what_nobody_measured_or_declared_is_missing(levels, given, missing, bases):
    row = only(noise(campaign(levels), **given))
    assert row[missing.split()].isna().all()
    assert row[["runs_basis", "seconds_basis"]].tolist() == bases
    assert ("single-run-spread" in row["warnings"].split()) == (len(levels[0]) == 1)
    if bases == ["measured", "declared"]:
        assert row["between_cv_pct"] < 15  # a declared spread never replaces a measured one


def test_invalid_runs_and_other_campaigns_are_no_noise():
    results = campaign([[1.0, 1.01, 0.2], [1, 2, 3]]).assign(valid=[True, True, *[False] * 4])
    both = noise(pd.concat([results, campaign([[2.0, 2.02]], run_id="c2")]))
    assert both["n"].tolist() == [2, 0, 2]
    assert both["cv_pct"].max() < 1
    assert noise(results.iloc[:0]).empty


# ---- plans

FIXED = {"runs": 3, "read_s": 600, "write_s": 1800, "order": "back-to-back"}
ADAPTIVE = {"runs": 5, "most_runs": 10, "read_s": 300, "write_s": 300, "first_s": 60}


@pytest.mark.parametrize(("n", "cells"), [(2, 1), (3, 12)])
def test_half_width_is_what_compared_campaigns_have(n, cells):
    draw, found = np.random.default_rng(n), []
    places = pd.MultiIndex.from_product([["a", "b"], range(cells), range(n)], names=["system", "iodepth", "rep"])
    for _ in range(40 if cells > 1 else 120):
        runs = places.to_frame(index=False).assign(iops=np.exp(0.01 * draw.standard_normal(2 * cells * n)))
        table = hci.compare(runs, "a", by="iodepth")
        found.append(np.log(table["ratio_hi"] / table["ratio_lo"]).mean() / 2)
    row = only(precision(declared(cells, between=1.0, second=0.0), {"fixed": FIXED}, runs=[n]))
    assert np.log1p(row["half_width_pct"] / 100) == pytest.approx(np.mean(found), rel=0.1)
    assert chance([row["difference_pct"] / 100], 0.01, n, cells) == pytest.approx([0.9], abs=0.03)


def test_the_articles_protocol_by_hand():
    row = only(precision(declared(4, between=1.0, second=6.0), {"fixed": FIXED}))
    assert row["hours"] == pytest.approx(2 * 3 * (2 * 600 + 2 * 1800) / 3600)
    assert row["cv_pct"] == pytest.approx(100 * np.sqrt(0.01**2 + (0.06**2 / 600 + 0.06**2 / 1800) / 2))
    assert row[["protocol", "order", "cells", "runs"]].tolist() == ["fixed", "back-to-back", 4, 3]
    assert precision(declared(2), {}).empty


AT_60 = 2 / 0.4342760380156085  # METHODS section 5: the half-width at t = 60 for s = 1
AT_300 = 2 / 0.17523787276405017


@pytest.mark.parametrize(
    ("second", "tau_s", "write_s"),
    [
        (AT_60 * 0.999, 1, 60),
        (AT_60 * 1.001, 1, 90),
        (AT_300 * 0.999, 1, 300),
        (100, 1, 300),
        (AT_60 * 0.999, 5, 150),  # 30 independent seconds at tau 5
    ],
)
def test_an_adaptive_run_ends_at_the_look_its_noise_allows(second, tau_s, write_s):
    row = only(precision(declared(second=second, tau_s=tau_s), {"p": ADAPTIVE | {"first_s": 60}}))
    assert row["write_s"] == write_s


@pytest.mark.parametrize("sd_pct", [0.5, 2.0, 2.5, 3.0, 20.0])
def test_an_adaptive_cell_gets_the_runs_whose_interval_is_within_the_target(sd_pct):
    n = only(precision(declared(between=sd_pct, second=0.0), {"p": ADAPTIVE}))["runs"]
    half = [np.expm1(stats.t.ppf(0.975, m - 1) * sd_pct / 100 / np.sqrt(m)) for m in range(5, 11)]
    assert n == next((m for m, width in zip(range(5, 11), half, strict=True) if width <= 0.02), 10)
