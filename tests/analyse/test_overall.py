import numpy as np
import pandas as pd
import pytest
from scipy import stats

from hcilib.analyse.compare.compare import compare
from hcilib.analyse.compare.overall import everywhere, geometric_mean
from hcilib.model.caveats import caveats

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
    row = geometric_mean(compare(results, "a")).iloc[0]
    assert row["ratio"] == pytest.approx((2 * 0.5 * 4 * 3) ** (1 / 4))
    assert row[["4k-randread", "1m-read"]].tolist() == pytest.approx([4 ** (1 / 3), 3])
    assert (row["n"], row["lowest"], row["highest"]) == (4, pytest.approx(0.5), pytest.approx(4))
    assert row["ratio_lo"] < row["ratio"] < row["ratio_hi"]


def test_geometric_mean_of_one_cell_has_that_cells_interval():
    comparison = compare(grid([1.2]), "a")
    mean, cell = geometric_mean(comparison).iloc[0], comparison.iloc[0]
    assert mean[["ratio", "ratio_lo", "ratio_hi"]].tolist() == pytest.approx(
        cell[["ratio", "ratio_lo", "ratio_hi"]].tolist(), rel=1e-9
    )


def test_geometric_mean_interval_covers():
    rng = np.random.default_rng(6)
    index = pd.MultiIndex.from_product(
        [["a", "b"], range(500), range(4), range(3)], names=["system", "pattern", "iodepth", "rep"]
    )
    results = index.to_frame(index=False).assign(iops=np.exp(0.03 * rng.normal(size=len(index))))
    means = geometric_mean(compare(results, "a", method="own"), by=("system", "pattern"))
    assert 0.93 <= ((means["ratio_lo"] <= 1) & (means["ratio_hi"] >= 1)).mean() <= 0.99


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
    means = geometric_mean(compare(results, "a", method="own"), by=["system", "pattern"])
    assert ((means["ratio_lo"] <= 1) & (means["ratio_hi"] >= 1)).mean() >= 0.9  # cells taken as independent: .39


def test_means_of_complete_blocks_are_student_over_the_blocks():
    rng = np.random.default_rng(4)
    index = pd.MultiIndex.from_product([["a", "b"], range(6), range(5)], names=["system", "iodepth", "block"])
    results = index.to_frame(index=False).assign(run_id="c1", pair=1)
    own = 0.1 * rng.normal(size=(2, 5))[(results["system"] == "b").astype(int), results["block"]]
    results["iops"] = np.exp(own + 0.01 * rng.normal(size=len(results)))
    blocks = np.log(results["iops"]).groupby([results["system"], results["block"]]).mean().unstack("system")
    for pairs in (False, True):
        mean = geometric_mean(compare(results, "a", by="iodepth", method="own", pairs=pairs)).iloc[0]
        test = stats.ttest_rel if pairs else stats.ttest_ind
        found = test(blocks["b"], blocks["a"], **({} if pairs else {"equal_var": False})).confidence_interval(0.95)
        assert [mean["ratio_lo"], mean["ratio_hi"]] == pytest.approx(np.exp([found.low, found.high]), rel=1e-9)


def test_geometric_mean_says_what_it_leaves_out():
    results = grid([2, 3, 4])
    results = results[~((results["system"] == "b") & (results["iodepth"] == 4))]
    row = geometric_mean(compare(results, "a")).iloc[0]
    assert row["ratio"] == pytest.approx(np.sqrt(6))
    assert "no-ratio" in caveats(row["warnings"]).codes
    points = geometric_mean(compare(grid([2, 3], np.zeros(1)), "a")).iloc[0]
    assert np.isnan(points["ratio_lo"])
    assert "single-runs" in caveats(points["warnings"]).codes


def test_geometric_mean_by_pattern_and_of_nothing():
    comparison = compare(pd.concat([grid([2, 0.5]), grid([3], pattern="1m-read")]), "a")
    found = geometric_mean(comparison, by=["system", "pattern"]).set_index("pattern")
    assert found["ratio"].to_dict() == pytest.approx({"1m-read": 3, "4k-randread": 1})
    assert geometric_mean(comparison.iloc[:0]).empty


def test_at_every_iodepth_needs_every_iodepth():
    comparison = compare(grid([1.2, 1.5, 1.1]), "a", adjust="iut")
    row = everywhere(comparison).iloc[0]
    assert row["verdict"] == "higher"
    assert row["p"] == pytest.approx(comparison["p"].max())
    assert row[["baseline", "metric", "over", "by"]].tolist() == ["a", "iops", "iodepth", "pattern"]
    weak = everywhere(compare(grid([1.2, 1.5, 1.005]), "a", adjust="iut")).iloc[0]
    assert weak["verdict"] == "inconclusive"
    mixed = everywhere(compare(grid([1.2, 0.8]), "a", adjust="iut")).iloc[0]
    assert (mixed["verdict"], mixed["p"]) == ("inconclusive", 1.0)
    assert mixed["changes"]


@pytest.mark.parametrize(
    ("ratios", "noise", "changes"),
    [
        ([1.2, 0.8], NOISE, True),
        ([1.2, 0.999], NOISE, False),
        ([1.2, 0.93], 6 * NOISE, False),
        ([1.2, 1.0], 0 * NOISE, False),
        ([1.2, 0.8], np.zeros(1), True),
        ([1.2, 1.0], np.zeros(1), False),
        ([1.2, 0.96], np.zeros(1), False),
        ([1.0], NOISE, False),
    ],
)
def test_places_change_only_where_one_is_really_below_and_one_really_above(ratios, noise, changes):
    assert everywhere(compare(grid(ratios, noise), "a", adjust="iut"))["changes"].tolist() == [changes]


def test_a_cell_that_does_not_survive_the_correction_changes_no_places():
    # 40 cells without a difference beside one that has one: some interval excludes 1 by chance.
    rng = np.random.default_rng(0)
    index = pd.MultiIndex.from_product([["a", "b"], range(41), range(3)], names=["system", "iodepth", "rep"])
    results = index.to_frame(index=False).assign(pattern="4k-randread", iops=np.exp(0.02 * rng.normal(size=len(index))))
    results.loc[(results["system"] == "b") & (results["iodepth"] == 40), "iops"] *= 2
    comparison = compare(results, "a", adjust="bh")
    assert (comparison["ratio_hi"] < 1).any()
    assert not (comparison["verdict"] == "lower").any()
    assert not everywhere(comparison)["changes"].any()


def test_the_claim_is_never_adjusted():
    # The declared claim falls with its weakest cell, whatever the exploratory table was corrected by.
    ratios = [1.2, 1.5, 1.1]
    by_adjust = [everywhere(compare(grid(ratios), "a", adjust=a))["p"].iloc[0] for a in ("iut", "holm", "bh", None)]
    assert by_adjust == pytest.approx([by_adjust[0]] * 4)


def test_at_every_iodepth_with_points_and_gaps():
    points = everywhere(compare(grid([1.2, 1.5], np.zeros(1)), "a")).iloc[0]
    assert (points["verdict"], np.isnan(points["p"])) == ("point", True)
    assert points[["lowest", "highest"]].tolist() == pytest.approx([1.2, 1.5])
    results = grid([1.2, 1.5])
    gap = everywhere(compare(results[(results["system"] == "a") | (results["iodepth"] == 1)], "a")).iloc[0]
    assert gap["verdict"] == "missing"


def test_at_every_iodepth_with_one_depth_or_a_stalled_one():
    one = everywhere(compare(grid([1.2], np.zeros(1)), "a")).iloc[0]
    assert one[["n", "lowest"]].tolist() == pytest.approx([1, 1.2])
    stalled = grid([1.2, 1.5])
    stalled.loc[(stalled["system"] == "b") & (stalled["iodepth"] == 2), "iops"] = 0
    assert everywhere(compare(stalled, "a")).iloc[0]["verdict"] == "missing"


def test_at_every_what():
    with pytest.raises(ValueError, match="no factor 'vms'"):
        everywhere(compare(grid([1.2]), "a"), over="vms")


def means(*tables, **options):
    return geometric_mean(compare(pd.concat(tables), "a", **options)).iloc[0]


def test_the_mean_has_a_verdict_only_where_it_hides_nothing():
    assert means(grid([0.5, 0.6]))["verdict"] == "lower"
    assert means(grid([1.5, 1.6]))["verdict"] == "higher"
    assert means(grid([1.0, 1.001]))["verdict"] == "equivalent"
    unstable = means(grid([0.1, 0.1], np.array([-0.2, 0, 0.2])))
    assert (unstable["verdict"], str(unstable["warnings"])) == ("lower", ""), "a noisy cell has no veto"
    both = means(grid([0.5, 2.0]))
    assert (both["verdict"], caveats(both["warnings"]).words) == (
        "no verdict",
        "no verdict on the mean, as 1 of 2 tests are higher and 1 lower",
    )
    assert means(grid([0.86] * 4, 10 * NOISE))["verdict"] == "inconclusive"
    assert means(grid([0.5, 0.6], np.zeros(1)))["verdict"] == "point"


def test_asking_many_patterns_is_asking_many_questions():
    # One claim alone holds at 5 %; beside nineteen others it does not survive Holm's correction.
    weak = grid([1.03, 1.04])
    others = [grid([1.0, 1.0], pattern=f"{k}k-randread") for k in range(8, 27)]
    alone = everywhere(compare(weak, "a")).iloc[0]
    assert (alone["verdict"], alone["p_adjusted"]) == ("higher", alone["p"])
    among = everywhere(compare(pd.concat([weak, *others]), "a")).set_index("pattern").loc["4k-randread"]
    assert among["p"] == pytest.approx(alone["p"])
    assert among["p_adjusted"] == pytest.approx(min(20 * alone["p"], 1))
    assert among["verdict"] == "inconclusive"
