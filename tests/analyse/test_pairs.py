"""Two systems in one campaign are compared pair by pair, because they were measured so; others are not."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from hcilib import compare


def campaign(n=5, ratio=0.9, drift=0.1, noise=0.02, systems="ab", cells=1, seed=0, run_id="c1"):
    """Each block visits each cell once per system, adjacent: what drifts is shared by the pair."""
    rng = np.random.default_rng(seed)
    rows = []
    for block in range(n):
        for cell in range(cells):
            shift = drift * rng.normal()
            for system in systems:
                level = np.log(ratio) * (system == "b") + shift + noise * rng.normal()
                rows.append((system, "4k-randread", cell + 1, run_id, block, cell, 1e4 * np.exp(level)))
    return pd.DataFrame(rows, columns=["system", "pattern", "iodepth", "run_id", "block", "pair", "iops"])


def test_pairs_are_students_t_of_the_log_ratios():
    results = campaign()
    row = compare(results, "a").iloc[0]
    logs = np.log(results.pivot(index="block", columns="system", values="iops"))
    found = stats.ttest_rel(logs["b"], logs["a"])
    ci = np.exp(found.confidence_interval(0.95))
    assert [row["ratio"], row["ratio_lo"], row["ratio_hi"], row["p_adjusted"]] == pytest.approx(
        [np.exp((logs["b"] - logs["a"]).mean()), *ci, found.pvalue], rel=1e-9
    )
    assert (row["paired"], row["n"]) == (True, 5)


def test_the_design_decides_and_is_named():
    results = campaign()
    apart = compare(results.assign(pair=np.nan), "a").iloc[0]
    assert not apart["paired"]
    assert (compare(results.drop(columns="pair"), "a")["p_adjusted"] == apart["p_adjusted"]).all()
    half = pd.concat([results, campaign(run_id="c2").assign(pair=np.nan)])
    assert not compare(half, "a")["paired"].any(), "runs of both designs: no pairs for all of them"


def test_under_a_drift_pairs_find_what_welch_does_not():
    campaigns = (campaign(seed=s) for s in range(40))
    found = [(compare(r, "a"), compare(r.drop(columns="pair"), "a")) for r in campaigns]
    paired, welch = ([table["verdict"].iloc[0] == "lower" for table in side] for side in zip(*found, strict=True))
    assert np.mean(paired) >= 0.95
    assert np.mean(welch) <= 0.5


def test_a_run_without_its_partner_is_left_out_aloud():
    results = campaign()
    row = compare(results.drop(results.index[(results["system"] == "b") & (results["block"] == 2)]), "a").iloc[0]
    assert (row["n"], row["n_baseline"], row["paired"]) == (4, 4, True)
    assert "unpaired" in row["warnings"].split()


def test_a_verdict_does_not_depend_on_the_baseline():
    results = campaign(systems="abc", cells=6, drift=0, noise=0.05, seed=3)
    for table in (results, results.drop(columns="pair")):
        one, other = (compare(table, base).set_index(["system", "iodepth"]) for base in "ab")
        there, back = one.loc["b"], other.loc["a"]
        assert there["p_adjusted"].to_numpy() == pytest.approx(back["p_adjusted"].to_numpy())
        assert there["ratio"].to_numpy() == pytest.approx(1 / back["ratio"].to_numpy())
        assert (
            there["verdict"].map({"lower": "higher", "higher": "lower"}).fillna(there["verdict"]).tolist()
            == back["verdict"].tolist()
        )
    alone = compare(results[results["system"] != "c"], "a")
    assert len(alone) == 6
    assert (one.loc["b", "p_adjusted"].to_numpy() != alone["p_adjusted"].to_numpy()).any(), (
        "the third system's tests count"
    )


def test_as_many_runs_as_were_said_do_decide():
    """The runs that an undecided campaign asks for, made: they decide about nine times in ten, if the ratio is as
    seen."""
    rng, ratio, sd = np.random.default_rng(0), 0.9, 0.05

    def cell(n, *logs):
        return pd.concat(
            pd.DataFrame({"system": s, "pattern": "p", "iodepth": 1, "iops": np.exp(x)})
            for s, x in zip("ab", logs, strict=True)
        )

    shape = np.array([-1.0, 0, 1.0])
    needed = compare(cell(3, sd * shape, np.log(ratio) + sd * shape), "a")["runs_to_decide"].iloc[0]
    assert 4 <= needed <= 60
    n = int(needed)
    again = [compare(cell(n, sd * rng.normal(size=n), np.log(ratio) + sd * rng.normal(size=n)), "a") for _ in range(80)]
    assert np.mean([table["verdict"].iloc[0] in ("lower", "same") for table in again]) >= 0.8


def test_two_ios_of_four_thousand_are_no_difference_however_surely_they_repeat():
    """Three pairs of runs of two equal drives, measured in the lab; and the same where one is a percent slower."""
    sides = {"a": (1021.191722, 1021.579129, 1021.324339), "b": (1021.690357, 1022.067059, 1021.823155)}
    results = campaign(n=3).assign(iops=[iops for pair in zip(*sides.values(), strict=True) for iops in pair])
    row = compare(results, "a").iloc[0]
    assert row["p_adjusted"] < 1e-4
    assert [row["ratio"], row["ratio_lo"]] == pytest.approx([1.00048477, 1.00046939], abs=1e-8), "as measured"
    assert row["verdict"] == "same"
    assert compare(results, "a", margin=0.0002)["verdict"].iloc[0] == "higher", "to whom that matters"
    slower = results.assign(iops=results["iops"] * np.where(results["system"] == "b", 0.99, 1))
    assert compare(slower, "a")["verdict"].iloc[0] == "lower"
