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


KNOWN = 10**9
"""From so many campaigns a spread is known."""


@pytest.mark.parametrize(("loss_pct", "k"), [(1, 2), (4, 2), (1, 3), (0.5, 12), (20, 12)])
def test_the_chance_to_see_a_loss_is_how_often_a_regression_shows_it(loss_pct, k):
    sd, trials = np.log1p(0.00236), 4000
    rng = np.random.default_rng(1)
    logs = sd * rng.standard_normal((trials, k + 1))
    logs[:, -1] += np.log1p(-loss_pct / 100)
    d = logs[:, -1] - logs[:, :-1].mean(axis=1)
    scale = logs[:, :-1].std(axis=1, ddof=1) * np.sqrt(1 + 1 / k)
    shown = 100 * (np.abs(d) > stats.t.ppf(0.975, k - 1) * scale).mean()
    chance = chance_to_see(0.236, KNOWN, [loss_pct], [k])["chance_pct"].item()
    assert chance == pytest.approx(shown, abs=2.5)


@pytest.mark.parametrize("cv_n", [2, 5, 18])
def test_a_chance_from_few_campaigns_is_promised_in_19_of_20_cases(cv_n):
    """84 % were promised of a spread that two campaigns showed; it is larger in half of all cases."""
    spreads = 2.0 * np.random.default_rng(cv_n).standard_normal((300, cv_n)).std(axis=1, ddof=1)
    promised = [chance_to_see(cv_pct, cv_n, [10], [5])["chance_pct"].item() for cv_pct in spreads]
    true = chance_to_see(2.0, KNOWN, [10], [5])["chance_pct"].item()
    assert 0.91 < np.mean(np.array(promised) <= true) < 0.99


@pytest.mark.parametrize(
    ("cv_pct", "cv_n", "loss_pct", "k", "chance"),
    [
        (0.236, KNOWN, 3.61, 2, 68),
        (0.236, KNOWN, 1e-6, 3, 5),  # the test's own 5 %
        (0.236, 2, 3.61, 2, 6.5),
        (0.0, 2, 1, 12, 100),  # at the floor of 0.1 %
        (1000.0, 5, 90, 2, 5),
        (5.0, 1, 90, 5, np.nan),  # one campaign has no spread
    ],
)
def test_chances_at_the_ends(cv_pct, cv_n, loss_pct, k, chance):
    table = chance_to_see(cv_pct, cv_n, [loss_pct], [k])
    assert table["chance_pct"].item() == pytest.approx(chance, abs=0.5, nan_ok=True)
    assert table["cv_n"].item() == cv_n


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
