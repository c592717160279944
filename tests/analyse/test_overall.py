"""The mean over all tests, and over each kind of I/O: rounds are the units."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from simulate import cell

from hcilib import compare, overall

NOISE = np.array([-0.01, 0.0, 0.01])


def grid(ratios, noise=NOISE, pattern="4k-randread"):
    """Systems a and b at depths 1, 2, 4 ...; b is `ratios` times a."""
    one = 100 * (1 + noise)
    return pd.concat(cell(2**i, pattern, a=one, b=ratio * one) for i, ratio in enumerate(ratios))


def means(*tables, **options):
    return overall(pd.concat(tables), "a", **options).set_index("part")


def test_the_mean_shows_its_parts():
    found = means(grid([2, 0.5, 4]), grid([3], pattern="1m-write"), grid([1.5], pattern="8k-randrw70"))
    assert found["ratio"].to_dict() == pytest.approx(
        {"all": (2 * 0.5 * 4 * 3 * 1.5) ** (1 / 5), "reads": 4 ** (1 / 3), "mixed": 1.5, "writes": 3}
    )
    assert list(found.index) == ["all", "reads", "mixed", "writes"]
    row = found.loc["all"]
    assert (row["n"], row["lowest"], row["highest"]) == (5, pytest.approx(0.5), pytest.approx(4))
    assert row["ratio_lo"] < row["ratio"] < row["ratio_hi"]
    assert list(means(grid([2, 3])).index) == ["all"], "one kind is all there is"


def test_the_mean_of_one_test_has_its_interval():
    names = ["ratio", "ratio_lo", "ratio_hi"]
    cell = compare(grid([1.2]), "a").iloc[0]
    assert means(grid([1.2])).loc["all", names].tolist() == pytest.approx(cell[names].tolist(), rel=1e-9)


def campaigns(cells, day_sd, n):
    """Equal systems, each with days of its own that shift all of its cells."""
    rng = np.random.default_rng(0)
    index = pd.MultiIndex.from_product([["a", "b"], range(cells), range(n)], names=["system", "iodepth", "rep"])
    results = index.to_frame(index=False)
    for _ in range(150):
        day = rng.normal(size=(2, n))[(results["system"] == "b").astype(int), results["rep"]]
        yield results.assign(iops=np.exp(day_sd * day + 0.01 * rng.normal(size=len(results))))


@pytest.mark.parametrize(("cells", "day_sd"), [(4, 0), (28, 0.02)])
def test_a_day_that_slows_every_cell_is_one_day_and_not_28(cells, day_sd):
    found = pd.concat(overall(one, "a", by="iodepth") for one in campaigns(cells, day_sd, 3))
    assert ((found["ratio_lo"] <= 1) & (found["ratio_hi"] >= 1)).mean() >= 0.9  # cells taken as independent: .39
    half = np.log(found["ratio_hi"] / found["ratio_lo"]).median() / 2
    wanted = stats.t.ppf(0.975, 4) * np.sqrt(2 * (day_sd**2 + 0.01**2 / cells) / 3)
    assert half < 1.6 * wanted, "no wider than it takes"


def test_what_is_left_out_is_said():
    results = grid([2, 3, 4])
    results = results[~((results["system"] == "b") & (results["iodepth"] == 4))]
    row = means(results).loc["all"]
    assert row["ratio"] == pytest.approx(np.sqrt(6))
    assert "no-ratio" in row["warnings"].split()
    points = means(grid([2, 3], np.zeros(1))).loc["all"]
    assert np.isnan(points["ratio_lo"])
    assert "single-runs" in points["warnings"].split()
    assert overall(grid([2]).iloc[:0], "a").empty


@pytest.mark.parametrize(
    ("ratios", "noise", "verdict", "mixed"),
    [
        ([0.5, 0.6], NOISE, "lower", False),
        ([1.5, 1.6], NOISE, "higher", False),
        ([1.0, 1.001], NOISE, "same", False),
        ([0.1, 0.1], np.array([-0.2, 0, 0.2]), "lower", False),  # a noisy test has no veto
        ([0.5, 2.0], NOISE, "same", True),
        ([0.86] * 4, 10 * NOISE, "undecided", False),
        ([0.5, 0.6], np.zeros(1), "untested", False),
    ],
)
def test_the_mean_has_a_verdict_and_says_what_it_hides(ratios, noise, verdict, mixed):
    row = means(grid(ratios, noise)).loc["all"]
    assert (row["verdict"], row["mixed"]) == (verdict, mixed)
    assert ("mixed" in row["warnings"].split()) == mixed


def test_all_and_kinds_are_one_family():
    tables = [grid([0.97] * 3, pattern=pattern) for pattern in ("4k-randread", "4k-randwrite")]
    both, reads = means(*tables), means(tables[0])
    assert both.loc["reads", "p_adjusted"] >= reads.loc["all", "p_adjusted"]
    apart = means(tables[0], grid([0.8] * 3, pattern="4k-randwrite"))
    assert apart.loc["reads", "p_adjusted"] > apart.loc["writes", "p_adjusted"], "each row is a test of its own"
