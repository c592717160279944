import numpy as np
import pandas as pd
import pytest
from scipy import stats

from hcilib import compare, overall

NOISE = np.array([-0.01, 0.0, 0.01])


def grid(ratios, noise=NOISE, pattern="4k-randread"):
    """Systems a and b at depths 1, 2, 4 ...; b is `ratios` times a."""
    return pd.concat(
        pd.DataFrame({"system": s, "pattern": pattern, "iodepth": 2**i, "iops": level * (1 + noise)})
        for i, r in enumerate(ratios)
        for s, level in (("a", 100.0), ("b", 100.0 * r))
    )


def test_geometric_mean_shows_its_parts():
    results = pd.concat([grid([2, 0.5, 4]), grid([3], pattern="1m-read")])
    row = overall(compare(results, "a")).iloc[0]
    assert row["ratio"] == pytest.approx((2 * 0.5 * 4 * 3) ** (1 / 4))
    assert row[["4k-randread", "1m-read"]].tolist() == pytest.approx([4 ** (1 / 3), 3])
    assert (row["n"], row["lowest"], row["highest"]) == (4, pytest.approx(0.5), pytest.approx(4))
    assert row["ratio_lo"] < row["ratio"] < row["ratio_hi"]


def test_geometric_mean_of_one_cell_has_that_cells_interval():
    comparison = compare(grid([1.2]), "a")
    mean, cell = overall(comparison).iloc[0], comparison.iloc[0]
    assert mean[["ratio", "ratio_lo", "ratio_hi"]].tolist() == pytest.approx(
        cell[["ratio", "ratio_lo", "ratio_hi"]].tolist(), rel=1e-9
    )


def test_geometric_mean_interval_covers():
    rng = np.random.default_rng(6)
    index = pd.MultiIndex.from_product(
        [["a", "b"], range(500), range(4), range(3)], names=["system", "pattern", "iodepth", "rep"]
    )
    results = index.to_frame(index=False).assign(iops=np.exp(0.03 * rng.normal(size=len(index))))
    means = overall(compare(results, "a"), by=("system", "pattern"))
    assert ((means["ratio_lo"] <= 1) & (means["ratio_hi"] >= 1)).mean() >= 0.95
    half = np.log(means["ratio_hi"] / means["ratio_lo"]) / 2
    assert half.median() < 4 * 0.03 * np.sqrt(2 / 12), "12 runs of each system, and no wider than that takes"


@pytest.mark.parametrize("n", [3, 5])
def test_a_day_that_slows_every_cell_is_one_day_and_not_28(n):
    rng = np.random.default_rng(n)
    index = pd.MultiIndex.from_product(
        [["a", "b"], range(150), range(28), range(n)], names=["system", "pattern", "iodepth", "rep"]
    )
    results = index.to_frame(index=False)
    day = rng.normal(size=(2, 150, n))  # each system and campaign its own days
    shared = day[(results["system"] == "b").astype(int), results["pattern"], results["rep"]]
    results = results.assign(iops=np.exp(0.02 * shared + 0.01 * rng.normal(size=len(results))))
    means = overall(compare(results, "a"), by=["system", "pattern"])
    assert ((means["ratio_lo"] <= 1) & (means["ratio_hi"] >= 1)).mean() >= 0.9  # cells taken as independent: .39


def test_means_of_complete_blocks_are_student_over_the_blocks():
    rng = np.random.default_rng(4)
    index = pd.MultiIndex.from_product([["a", "b"], range(6), range(5)], names=["system", "iodepth", "block"])
    results = index.to_frame(index=False).assign(run_id="c1", pair=1)
    own = 0.1 * rng.normal(size=(2, 5))[(results["system"] == "b").astype(int), results["block"]]
    results["iops"] = np.exp(own + 0.01 * rng.normal(size=len(results)))
    blocks = np.log(results["iops"]).groupby([results["system"], results["block"]]).mean().unstack("system")
    for pairs in (False, True):
        mean = overall(compare(results, "a", by="iodepth", pairs=pairs)).iloc[0]
        test = stats.ttest_rel if pairs else stats.ttest_ind
        found = test(blocks["b"], blocks["a"], **({} if pairs else {"equal_var": False})).confidence_interval(0.95)
        assert [mean["ratio_lo"], mean["ratio_hi"]] == pytest.approx(np.exp([found.low, found.high]), rel=1e-9)


def test_geometric_mean_says_what_it_leaves_out():
    results = grid([2, 3, 4])
    results = results[~((results["system"] == "b") & (results["iodepth"] == 4))]
    row = overall(compare(results, "a")).iloc[0]
    assert row["ratio"] == pytest.approx(np.sqrt(6))
    assert "no-ratio" in row["warnings"].split()
    points = overall(compare(grid([2, 3], np.zeros(1)), "a")).iloc[0]
    assert np.isnan(points["ratio_lo"])
    assert "single-runs" in points["warnings"].split()


def test_geometric_mean_by_pattern_and_of_nothing():
    comparison = compare(pd.concat([grid([2, 0.5]), grid([3], pattern="1m-read")]), "a")
    found = overall(comparison, by=["system", "pattern"]).set_index("pattern")
    assert found["ratio"].to_dict() == pytest.approx({"1m-read": 3, "4k-randread": 1})
    assert overall(comparison.iloc[:0]).empty


def means(*tables, **options):
    return overall(compare(pd.concat(tables), "a", **options)).iloc[0]


def test_the_mean_has_a_verdict_only_where_it_hides_nothing():
    assert means(grid([0.5, 0.6]))["verdict"] == "lower"
    assert means(grid([1.5, 1.6]))["verdict"] == "higher"
    assert means(grid([1.0, 1.001]))["verdict"] == "same"
    unstable = means(grid([0.1, 0.1], np.array([-0.2, 0, 0.2])))
    assert (unstable["verdict"], str(unstable["warnings"])) == ("lower", ""), "a noisy cell has no veto"
    both = means(grid([0.5, 2.0]))
    assert (both["verdict"], both["warnings"]) == ("no verdict", "mixed")
    assert means(grid([0.86] * 4, 10 * NOISE))["verdict"] == "undecided"
    assert means(grid([0.5, 0.6], np.zeros(1)))["verdict"] == "untested"
