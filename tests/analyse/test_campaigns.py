import numpy as np
import pandas as pd
import pytest
from scipy import stats

import hcilib as hci
from hcilib import chance_to_see, regression


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


def test_a_verdict_turns_where_its_range_ends():
    logs = np.repeat([[[0.0]], [[0.02]], [[-0.01]], [[0.015]]], 2, axis=2)
    half = stats.t.ppf(0.975, 3) * logs[:, 0, 0].std(ddof=1) * np.sqrt(1.25)
    for size, verdict in ((0.999, "no change seen"), (1.001, "regression")):
        new = np.full((1, 1, 2), logs[:, 0, 0].mean() - size * half)
        results = campaigns(np.concatenate([logs, new]))
        assert regression(results, "c4", adjust=None)["verdict"].iloc[0] == verdict


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
    assert "unstable" in row["warnings"].split()


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
    half = stats.t.ppf(0.975, 1) * 0.00236 * np.sqrt(1.5)
    beyond = np.ceil(100 * (1 - np.exp(-half)))
    assert beyond in set(chance_to_see(0.236, campaigns=[2])["loss_pct"]), "the size that the headline names"
    assert chance_to_see(0.236, [1e-6], [3])["chance_pct"].item() == pytest.approx(5, abs=0.1), "the test's own 5 %"
    assert chance_to_see(0.0, [1], [12])["chance_pct"].item() == pytest.approx(100), "at the floor of 0.1 %"
    assert chance_to_see(1000.0, [1, 90], [2, 3])["chance_pct"].between(4, 12).all()


SAMPLES = [f"data/samples/lab-single{n}" for n in ("", "-2", "-3")]


def test_a_history_gives_the_verdicts_of_its_runs():
    """The means of run directories, as `history` keeps them, are compared as their runs are."""
    runs, means = (hci.regression(read(SAMPLES), "lab-single-3") for read in (hci.read_results, hci.history))
    pd.testing.assert_frame_equal(means.drop(columns="warnings"), runs.drop(columns="warnings"))


def test_campaigns_of_another_setup_are_another_series():
    months = hci.history(SAMPLES)
    other = months.assign(setup=months["setup"].mask(months["campaign"] == "lab-single", "runtime_s=60"))
    assert set(hci.regression(months, "lab-single-3")["k"]) == {2}
    assert set(hci.regression(other, "lab-single-3")["k"]) == {1}


def test_a_change_is_judged_by_the_campaigns_before_it():
    """Drives of the lab were slowed by 12 % before the 19th of thirty campaigns."""
    months = hci.history("data/samples/history.csv")
    earlier = [f"c{number:02}" for number in range(1, 19)]
    found = hci.regression(months, "c30", earlier).set_index("iodepth")
    assert set(found.loc[8, "verdict"]) == {"regression"}
    assert found.loc[8, "ratio"].between(0.875, 0.885).all()
    assert set(found.loc[1, "verdict"]) == {"no change seen"}
