"""What must hold for any runs: symmetry, units, order, and p values that mean what they say."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcilib import compare, peak, rank, summarize
from hcilib.analyse.stats import adjusted
from tests.needs import examples

few = settings(max_examples=examples(40))
value = st.floats(1.0, 1e7, allow_nan=False)
runs = st.lists(value, min_size=1, max_size=6)
p_values = st.lists(st.floats(0, 1) | st.just(np.nan), max_size=30)


def table(a, b, iodepth=1):
    return pd.DataFrame(
        {"system": ["a"] * len(a) + ["b"] * len(b), "pattern": "p", "iodepth": iodepth, "iops": [*a, *b]}
    )


@few
@given(runs, runs)
def test_swapping_the_baseline_inverts_the_ratio(a, b):
    there, back = (compare(table(a, b), base).iloc[0] for base in "ab")
    assert there["ratio"] * back["ratio"] == pytest.approx(1, rel=1e-9)
    assert there["ratio_lo"] == pytest.approx(1 / back["ratio_hi"], rel=1e-9, abs=1e-300, nan_ok=True)
    assert there["p_adjusted"] == pytest.approx(back["p_adjusted"], rel=1e-9, nan_ok=True)
    mirrored = {"higher": "lower", "lower": "higher"}
    assert back["verdict"] == mirrored.get(there["verdict"], there["verdict"])


@few
@given(runs, runs, st.integers(-30, 30))
def test_units_do_not_matter(a, b, power):
    scale = 2.0**power  # a power of two, so that the values themselves scale without rounding
    columns = ["ratio", "ratio_lo", "ratio_hi", "p_adjusted"]
    plain, scaled = (compare(table(np.multiply(a, s), np.multiply(b, s)), "a").iloc[0] for s in (1, scale))
    assert plain[columns].tolist() == pytest.approx(scaled[columns].tolist(), rel=1e-6, nan_ok=True)
    assert plain["verdict"] == scaled["verdict"]


@few
@given(runs, runs, st.randoms())
def test_order_of_runs_does_not_matter(a, b, random):
    rows = list(range(len(a) + len(b)))
    random.shuffle(rows)
    first, second = (compare(t, "a").iloc[0] for t in (table(a, b), table(a, b).iloc[rows]))
    numbers = ["ratio", "ratio_lo", "ratio_hi", "p_adjusted"]
    assert first[numbers].tolist() == pytest.approx(second[numbers].tolist(), rel=1e-6, nan_ok=True)


@few
@given(runs, runs)
def test_interval_p_and_verdict_agree(a, b):
    row = compare(table(a, b), "a", adjust=None).iloc[0]
    if min(len(a), len(b)) == 1:
        assert row["verdict"] == "untested"
        return
    assert row["ratio_lo"] <= row["ratio"] <= row["ratio_hi"]
    if abs(row["p_adjusted"] - 0.05) > 1e-9:
        assert (row["p_adjusted"] < 0.05) == (row["ratio_lo"] > 1 or row["ratio_hi"] < 1)
        assert (row["p_adjusted"] < 0.05) == (row["verdict"] in ("higher", "lower"))
    if row["verdict"] == "same":
        assert 1 / 1.05 < row["ratio"] < 1.05


@few
@given(runs)
def test_a_system_is_never_shown_to_differ_from_itself(a):
    row = compare(table(a, a), "a").iloc[0]
    assert row["ratio"] == pytest.approx(1)
    assert row["verdict"] in ("same", "undecided", "untested")


@few
@given(runs)
def test_center_lies_within_the_runs_and_its_interval(a):
    row = summarize(table(a, [])).iloc[0]
    assert min(a) * (1 - 1e-9) <= row["iops"] <= max(a) * (1 + 1e-9)
    assert np.isnan(row["iops_lo"]) if len(a) == 1 else row["iops_lo"] <= row["iops"] <= row["iops_hi"]
    assert row["unstable"] == (max(a) > 1.3 * min(a))


@few
@given(st.lists(runs, min_size=1, max_size=5))
def test_the_observed_best_is_always_tied_and_measured(points):
    curve = pd.concat([table(runs, [], iodepth=2**i) for i, runs in enumerate(points)])
    row = peak(curve).iloc[0]
    ties = [int(depth) for depth in row["tied"].split(", ")]
    assert row["best"] in ties
    assert row["smallest_tied"] == min(ties)
    assert row["iops"] == pytest.approx(summarize(curve)["iops"].max())


@few
@given(runs, runs, runs)
def test_ranks_follow_the_shown_differences(a, b, c):
    found = rank(pd.concat([table(a, b), table(c, []).assign(system="c")])).set_index("system")
    assert found["rank"].min() == 1
    assert found["rank"].max() <= 3
    for system, row in found.iterrows():
        for other in filter(None, row["tied_with"].split(", ")):
            assert system in found.loc[other, "tied_with"]


@given(p_values)
def test_adjusted_p_is_monotone_never_smaller_and_bh_below_holm(p):
    p = pd.Series(p, dtype=float)
    known = p.notna()
    bh, holm = (adjusted(p, range(len(p)), adjust) for adjust in ("bh", "holm"))
    for found in (holm, bh):
        assert found[~known].isna().all()
        assert found[known].between(p[known], 1).all()
        assert found[known][p[known].sort_values(kind="stable").index].diff().dropna().ge(-1e-15).all()
    assert (bh[known] <= holm[known] + 1e-15).all()
