"""Effects recomputed by hand, and the resiliency article's table with its holes."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from hcilib.analyse.curves.factorial import effects, grid

FACTORS = ["resiliency", "dedup", "write_pct"]
NAN = np.nan
ARTICLE = pd.DataFrame(
    [
        ("two-way", "no", 0, 140e3, 82), ("two-way", "no", 30, 97e3, 87),
        ("two-way", "yes", 0, NAN, 97), ("two-way", "yes", 30, NAN, NAN),
        ("nested", "no", 0, 123e3, 82), ("nested", "no", 30, NAN, 95),
        ("nested", "yes", 0, NAN, 97), ("nested", "yes", 30, NAN, NAN),
    ],
    columns=[*FACTORS, "iops", "node_cpu_pct"],
)  # fmt: skip


def by_effect(table):
    return table.set_index("effect")


def full(model, repeats=1, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    cells = itertools.product("ab", "xy", (0, 30))
    return pd.DataFrame(
        [
            (a, d, w, model(a == "b", d == "y", w == 30) * np.exp(noise * rng.standard_normal()))
            for a, d, w in cells
            for _ in range(repeats)
        ],
        columns=[*FACTORS, "iops"],
    )


def test_a_multiplicative_model_is_recovered_exactly():
    table = by_effect(
        effects(full(lambda a, d, w: 1000 * 0.9**a * 0.5**d * 0.7**w * 0.8 ** (d and w)), "iops", FACTORS)
    )
    assert len(table) == 7
    # a main effect averages over both contexts of the interacting factor
    assert table.loc["resiliency", "ratio"] == pytest.approx(0.9)
    assert table.loc["dedup", "ratio"] == pytest.approx(0.5 * 0.8**0.5)
    assert table.loc["write_pct", "ratio"] == pytest.approx(0.7 * 0.8**0.5)
    assert table.loc["dedup x write_pct", "ratio"] == pytest.approx(0.8)
    assert table.loc["resiliency x dedup", "ratio"] == pytest.approx(1)
    assert table.loc["resiliency x dedup x write_pct", "ratio"] == pytest.approx(1)
    assert (table["contexts"] == table["possible"]).all()
    assert (table["missing"] == "").all()
    assert table[["ratio_lo", "ratio_hi"]].isna().all(axis=None)


def test_the_articles_holes_are_named_and_nothing_is_imputed():
    table = by_effect(effects(ARTICLE, "iops", FACTORS))
    assert table.loc["resiliency", "ratio"] == pytest.approx(123 / 140)
    assert table.loc["resiliency", "used"] == "dedup=no, write_pct=0"
    assert table.loc["write_pct", "ratio"] == pytest.approx(97 / 140)
    assert "contexts: the effect was measured at 1 of 4" in str(table.loc["write_pct", "warnings"])
    unknown = table.drop(index=["resiliency", "write_pct"])
    assert unknown["ratio"].isna().all()
    assert (unknown["contexts"] == 0).all()
    assert unknown["warnings"].str.startswith("not-estimable: ").all()
    assert table.loc["resiliency x write_pct", "missing"].count("resiliency=nested, dedup=no, write_pct=30") == 1
    assert table.loc["dedup", "missing"].count("dedup=yes") == 4


def test_a_row_left_out_is_as_missing_as_a_nan():
    some = ARTICLE[ARTICLE["iops"].notna() | (ARTICLE["dedup"] == "yes")]
    pd.testing.assert_frame_equal(effects(some, "iops", FACTORS), effects(ARTICLE, "iops", FACTORS))


def test_two_levels_of_one_factor_are_students_t():
    a, b = [100.0, 110.0, 105.0], [80.0, 85.0, 90.0]
    table = pd.DataFrame({"f": ["a"] * 3 + ["b"] * 3, "iops": a + b})
    row = effects(table, "iops", ["f"]).iloc[0]
    ci = stats.ttest_ind(np.log(b), np.log(a)).confidence_interval(0.95)
    assert (row["ratio_lo"], row["ratio_hi"]) == pytest.approx((np.exp(ci.low), np.exp(ci.high)), rel=1e-9)
    assert row["n"] == 6
    assert row["warnings"] == ""


def test_the_interval_of_a_full_design_by_hand():
    """Eight cells of three runs: the contrast weighs each cell by 1/4, 16 degrees of freedom."""
    table = full(lambda a, d, w: 1000 * 0.9**a, 3, 0.05, seed=1)
    y = np.log(table["iops"]).to_numpy().reshape(8, 3)
    se = np.sqrt(y.var(axis=1, ddof=1).mean() * 8 * (1 / 4) ** 2 / 3)
    row = by_effect(effects(table, "iops", FACTORS)).loc["resiliency"]
    difference = y[4:].mean() - y[:4].mean()
    expected = np.exp(difference + stats.t.ppf([0.025, 0.975], 16) * se)
    assert (row["ratio_lo"], row["ratio_hi"]) == pytest.approx(tuple(expected), rel=1e-9)


def test_intervals_cover():
    inside = 0
    for seed in range(100):
        row = by_effect(effects(full(lambda a, d, w: 1000 * 0.9**a, 3, 0.05, seed), "iops", FACTORS)).loc["resiliency"]
        inside += row["ratio_lo"] <= 0.9 <= row["ratio_hi"]
    assert 88 <= inside <= 100


def test_more_than_two_levels_are_each_against_the_first():
    table = pd.DataFrame({"qd": [1, 2, 4], "iops": [10.0, 20.0, 30.0]})
    out = effects(table, "iops", ["qd"])
    assert list(out["level"]) == ["2", "4"]
    assert list(out["ratio"]) == pytest.approx([2, 3])
    assert set(out["baseline"]) == {"1"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t.assign(iops=t["iops"].where(t.index != 1, 0)), "row 1"),
        (lambda t: t.assign(dedup=t["dedup"].where(t.index != 2)), "row 2"),
        (lambda t: t.drop(columns="dedup"), "'dedup'"),
        (lambda t: t[t["dedup"] == "no"], "'dedup' has"),
    ],
)
def test_bad_tables_are_refused(change, named):
    with pytest.raises(ValueError, match=named):
        effects(change(ARTICLE), "iops", FACTORS)


def test_the_grid_shows_what_is_missing_and_what_is_cpu_bound():
    table = grid(ARTICLE.sample(frac=1, random_state=3), "iops", FACTORS).set_index(FACTORS)
    assert len(table) == 8
    assert table.loc[("two-way", "no", 0), "iops"] == pytest.approx(140e3)
    assert table["missing"].sum() == 5
    assert table.loc[table["missing"], "iops"].isna().all()
    assert table.loc[("nested", "no", 30), "cpu_bound"]
    assert not table.loc[("two-way", "no", 30), "cpu_bound"]
    assert table.loc[("two-way", "yes", 30), "cpu_bound"] is pd.NA


def test_unlike_runs_are_not_one_cell():
    table = pd.DataFrame([("a", d, 1000.0 * d) for d in (1, 8, 32)] + [("b", d, 900.0 * d) for d in (1, 8, 32)],
                         columns=["system", "iodepth", "iops"])  # fmt: skip
    for refused in (effects, grid):
        with pytest.raises(ValueError, match="results vary in iodepth: 1, 8, 32; add it to the factors or filter"):
            refused(table, "iops", ["system"])
    assert effects(table, "iops", ["system", "iodepth"])["n"].max() == 6
    # what is not used is not pooled: a missing response, an invalid run
    assert effects(table.assign(iops=table["iops"].where(table["iodepth"] == 8)), "iops", ["system"])["n"].item() == 2
    assert effects(table.assign(valid=table["iodepth"] == 8), "iops", ["system"])["n"].item() == 2


@pytest.mark.parametrize("no", [False, "False"])
def test_an_invalid_run_is_a_missing_one(no):
    table = full(lambda a, d, w: 1000 * 0.9**a).assign(node_cpu_pct=50.0, valid=True)
    bad = table.iloc[[0, 5]].assign(iops=[0.0, 9e9], node_cpu_pct=100.0, valid=no)
    both = pd.concat([bad, table], ignore_index=True)
    pd.testing.assert_frame_equal(effects(both, "iops", FACTORS), effects(table, "iops", FACTORS))
    cells = grid(both, "iops", FACTORS)
    assert (cells["node_cpu_pct"] == 50).all()
    gone = grid(table.assign(valid=[no] + [True] * 7), "iops", FACTORS)
    assert gone["missing"].tolist() == [True] + [False] * 7


def test_the_grid_of_one_factor_without_cpu():
    table = grid(pd.DataFrame({"f": ["a", "a", "b"], "iops": [1.0, 4.0, NAN]}), "iops", ["f"])
    assert list(table["n"]) == [2, 0]
    assert table["iops"].iloc[0] == pytest.approx(2)
    assert table["cpu_bound"].isna().all()
