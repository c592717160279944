import shutil

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import hcilib as hci
from hcilib.analyse.campaigns.regression import (
    block_drift,
    campaign_noise,
    campaign_ratios,
    chance_to_see,
    regression,
    visible_change,
)
from hcilib.model.caveats import caveats
from hcilib.model.places import shipped


def campaigns(logs, system="a"):
    """Results of log levels, shape (campaigns, cells, runs); the runs of a cell stand in blocks 1, 2, ..."""
    k, cells, n = logs.shape
    index = pd.MultiIndex.from_product([range(k), range(cells), range(1, n + 1)], names=["c", "iodepth", "block"])
    table = index.to_frame(index=False)
    return table.assign(
        run_id="c" + table.pop("c").astype(str),
        rep=table["block"],
        system=system,
        pattern="4k-randread",
        iops=1e5 * np.exp(logs.ravel()),
    )


def test_ratios_are_to_the_geometric_mean_of_the_earlier_campaigns():
    results = campaigns(np.log([[[100.0, 100.0]], [[121.0, 121.0]], [[99.0, 99.0]]]))
    found = regression(results, "c2")
    ratios = campaign_ratios(results, found).set_index("run_id")["ratio"]
    assert ratios.to_dict() == pytest.approx({"c0": 1 / 1.1, "c1": 1.1, "c2": 0.9})
    assert ratios["c2"] == pytest.approx(found["ratio"].iloc[0])


def test_campaign_noise_by_hand():
    logs = np.random.default_rng(0).normal(size=(4, 3, 5)) * 0.01
    row = campaign_noise(campaigns(logs)).iloc[0]
    means = logs.mean(axis=2)
    assert row["cv_pct"] == pytest.approx(100 * np.sqrt(means.var(axis=0, ddof=1).mean()))
    assert row["from_runs_pct"] == pytest.approx(100 * np.sqrt(logs.var(axis=2, ddof=1).mean() / 5))
    assert row["cv_pct_lo"] == pytest.approx(row["cv_pct"] * np.sqrt(3 / stats.chi2.ppf(0.975, 3)))
    assert (row["campaigns"], row["cells"], row["n"]) == (4, 3, 60)


def test_campaigns_that_wander_are_told_from_runs_that_scatter():
    rng = np.random.default_rng(1)
    runs = 0.01 * rng.normal(size=(6, 20, 3))
    calm = campaign_noise(campaigns(runs)).iloc[0]
    assert calm["cv_pct"] == pytest.approx(calm["from_runs_pct"], rel=0.2)
    wander = campaign_noise(campaigns(runs + 0.03 * rng.normal(size=(6, 20, 1)))).iloc[0]
    assert wander["cv_pct"] == pytest.approx(100 * np.hypot(0.03, 0.01 / 3**0.5), rel=0.15)
    assert wander["warnings"] == ""


def test_one_campaign_has_no_spread():
    assert campaign_noise(campaigns(np.zeros((1, 2, 3)))).empty


def test_visible_change_is_where_the_verdict_turns():
    logs = np.repeat([[[0.0]], [[0.02]], [[-0.01]], [[0.015]]], 2, axis=2)
    s = logs[:, 0, 0].std(ddof=1)
    row = visible_change(100 * s, [4]).iloc[0]
    half = stats.t.ppf(0.975, 3) * s * np.sqrt(1.25)
    assert [row["higher_pct"], row["lower_pct"]] == pytest.approx([100 * np.expm1(half), 100 * (1 - np.exp(-half))])
    for size, verdict in ((0.999, "no change seen"), (1.001, "regression")):
        new = np.full((1, 1, 2), logs[:, 0, 0].mean() - size * half)
        results = campaigns(np.concatenate([logs, new]))
        assert regression(results, "c4", adjust=None)["verdict"].iloc[0] == verdict


def test_more_campaigns_see_smaller_changes_and_one_sees_none():
    table = visible_change(3.0)
    assert (np.diff(table["lower_pct"]) < 0).all()
    assert (table["lower_pct"] < 100).all()
    with pytest.raises(ValueError, match="at least 2"):
        visible_change(3.0, [1, 2])


def anova_f(y):
    """F of the columns of a cells x blocks table, from residual sums of squares of two linear models."""
    cells, blocks = y.shape
    cell, block = np.repeat(np.arange(cells), blocks), np.tile(np.arange(blocks), cells)
    small = np.eye(cells)[cell]
    full = np.hstack([small, np.eye(blocks)[block][:, 1:]])
    rss = [((y.ravel() - x @ np.linalg.lstsq(x, y.ravel(), rcond=None)[0]) ** 2).sum() for x in (small, full)]
    df = (blocks - 1) * (cells - 1)
    return (rss[0] - rss[1]) / (blocks - 1) / (rss[1] / df), df


def test_block_drift_is_the_two_way_analysis_of_variance():
    logs = np.random.default_rng(3).normal(size=(1, 4, 5))
    row = block_drift(campaigns(logs)).iloc[0]
    f, df = anova_f(logs[0])
    assert row["f"] == pytest.approx(f)
    assert row["p"] == pytest.approx(stats.f.sf(f, 4, df))
    assert (row["blocks"], row["cells"], row["n"]) == (5, 4, 20)


def test_block_drift_finds_the_drift_and_nothing_else():
    rng = np.random.default_rng(4)
    own = 0.01 * rng.normal(size=(150, 6, 5))
    p = block_drift(campaigns(own))["p"]
    assert stats.kstest(p, "uniform").pvalue > 0.01
    drifting = block_drift(campaigns(own + 0.02 * rng.normal(size=(150, 1, 5))))
    assert np.sqrt((drifting["block_cv_pct"] ** 2).mean()) == pytest.approx(2.0, rel=0.1)
    assert np.sqrt((drifting["rest_cv_pct"] ** 2).mean()) == pytest.approx(1.0, rel=0.1)


def test_block_drift_needs_two_blocks_and_leaves_out_torn_cells():
    results = campaigns(0.01 * np.random.default_rng(5).normal(size=(1, 4, 3)))
    torn = block_drift(results.drop(index=0)).iloc[0]
    assert (torn["cells"], torn["n"]) == (3, 9)
    assert "left out: 1 test" in str(torn["warnings"])
    one = block_drift(results[results["block"] == 1]).iloc[0]
    assert np.isnan(one["f"])
    assert "few-points" in caveats(one["warnings"]).codes
    nameless = block_drift(results.assign(block=np.nan)).iloc[0]
    assert np.isnan(nameless["block_cv_pct"])


def test_unlike_runs_are_not_one_cell_of_the_drift():
    results = campaigns(0.01 * np.random.default_rng(5).normal(size=(1, 4, 3)))
    both = pd.concat([results.assign(vms=2), results.assign(vms=4, iops=2 * results["iops"])])
    with pytest.raises(ValueError, match="results vary in vms: 2, 4; add it to by= or filter"):
        block_drift(both)
    assert block_drift(both, by=["pattern", "iodepth", "vms"])["cells"].item() == 8
    pd.testing.assert_frame_equal(block_drift(both.assign(valid=both["vms"] == 2)), block_drift(results))


def test_a_range_that_leaves_1_but_not_after_correction_says_why():
    logs = 0.01 * np.random.default_rng(6).normal(size=(6, 100, 2))
    table = regression(campaigns(logs), "c5")
    beyond = table[((table["ratio_lo"] > 1) | (table["ratio_hi"] < 1)) & (table["verdict"] == "no change seen")]
    assert len(beyond)
    assert (beyond["p"] < 0.05).all()
    assert (beyond["p_adjusted"] >= 0.05).all()


def test_noisy_runs_are_said_and_veto_nothing():
    logs = 0.001 * np.random.default_rng(7).normal(size=(4, 1, 3)) + np.array([[[0]], [[0.01]], [[-0.01]], [[-1.0]]])
    logs[3, 0] += [0.0, 0.2, 0.4]
    row = regression(campaigns(logs), "c3").iloc[0]
    assert (row["verdict"], row["ratio_hi"] < 1) == ("regression", True)
    assert row["k"] == 3
    assert "unstable" in caveats(row["warnings"]).codes


@pytest.mark.parametrize(("loss_pct", "k"), [(1, 2), (4, 2), (1, 3), (0.5, 12), (20, 12)])
def test_the_chance_to_see_a_loss_is_how_often_a_regression_shows_it(loss_pct, k):
    """4 % "could not be seen" with two campaigns that lie 0.24 % apart: it is, in 7 of 10 cases."""
    sd, trials = np.log1p(0.00236), 4000
    rng = np.random.default_rng(1)
    logs = sd * rng.standard_normal((trials, k + 1))
    logs[:, -1] += np.log1p(-loss_pct / 100)
    d = logs[:, -1] - logs[:, :-1].mean(axis=1)
    scale = logs[:, :-1].std(axis=1, ddof=1) * np.sqrt(1 + 1 / k)
    shown = 100 * (np.abs(d) > stats.t.ppf(0.975, k - 1) * scale).mean()
    chance = chance_to_see(0.236, [loss_pct], [k])["chance_pct"].item()
    assert chance == pytest.approx(shown, abs=2.5)


def test_the_chances_that_were_called_none():
    table = chance_to_see(0.236, [1, 3.61, 12], [2]).set_index("loss_pct")["chance_pct"]
    assert table.tolist() == pytest.approx([21.5, 68, 99.8], abs=0.5)
    beyond = np.ceil(visible_change(0.236, [2])["lower_pct"].item())
    assert beyond in set(chance_to_see(0.236, campaigns=[2])["loss_pct"]), "the size that the headline names"
    assert chance_to_see(0.236, [1e-6], [3])["chance_pct"].item() == pytest.approx(5, abs=0.1), "the test's own 5 %"
    assert chance_to_see(0.0, [1], [12])["chance_pct"].item() == pytest.approx(100), "at the floor of 0.1 %"
    assert chance_to_see(1000.0, [1, 90], [2, 3])["chance_pct"].between(4, 12).all()


SAMPLES = [f"data/samples/lab-single{n}" for n in ("", "-2", "-3")]


def test_campaigns_are_dated_by_their_journals(tmp_path):
    times = hci.campaign_times(SAMPLES).set_index("run_id")
    assert times.loc["lab-single-3", "began"] == "2026-11-23 14:12:03 UTC"
    assert (times["began"] < times["ended"]).all()
    copy = tmp_path / "lab-single"
    shutil.copytree(shipped(SAMPLES[0]), copy)
    (copy / "journal.jsonl").unlink()
    assert hci.campaign_times(copy)["began"].isna().all()


def test_the_headline_gives_the_change_and_the_chance_to_see_a_loss():
    results = hci.read_results(SAMPLES)
    found = regression(results, "lab-single-3")
    noise = campaign_noise(results[results["run_id"] != "lab-single-3"])
    said = hci.regression_headline(found, noise, "lab-single-3", 0.05)
    worse = found[found["verdict"] == "regression"]
    assert f"{100 * (1 - worse['ratio'].mean()):.0f} % fewer IOPS" in said
    assert f"in {len(worse)} of {len(found)} tests" in said
    chances = chance_to_see(noise["cv_pct"].item(), [5], [2])["chance_pct"].item()
    assert f"a loss of 5 % would be found in {chances:.0f} % of cases" in said
