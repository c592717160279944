"""Who is first: ranks and ties by the tests of `compare`, and who is shown to be better than every other."""

import numpy as np
import pandas as pd
import pytest
from simulate import cell

from hcilib import rank

A, B, C = (level * np.array([0.99, 1.0, 1.01]) for level in (300.0, 200.0, 100.0))
NONE = [np.nan, np.nan]


RANKED = [
    # systems, options, ranks in order, who are tied, who is best
    ({"c": C, "a": A, "b": B}, {}, {"a": 1, "b": 2, "c": 3}, set(), ["a"]),
    ({"c": C, "a": A, "b": B}, {"metric": "lat_ns"}, {"c": 1, "b": 2, "a": 3}, set(), ["c"]),
    ({"c": C, "a": A, "b": 1.001 * A}, {}, {"b": 1, "a": 1, "c": 3}, {"a", "b"}, []),
    ({"c": C, "a": A, "b": 200.0}, {}, {"a": 1, "b": 2, "c": 3}, set(), []),  # against a single run nothing is shown
    # single runs tie within the margin
    ({"a": 100.0, "b": 104.0, "c": 50.0}, {}, {"b": 1, "a": 1, "c": 3}, {"a", "b"}, []),
    ({"a": 100.0, "b": 104.0, "c": 50.0}, {"margin": 0.02}, {"b": 1, "a": 2, "c": 3}, set(), []),
    ({"a": 100.0, "b": NONE, "c": [0.0, 0.0]}, {}, {"a": 1, "b": np.nan, "c": np.nan}, set(), []),
    ({"a": 100.0}, {}, {"a": 1}, set(), []),
]


@pytest.mark.parametrize(("systems", "options", "ranks", "tied", "best"), RANKED)
def test_ranks_count_who_is_shown_to_be_better(systems, options, ranks, tied, best):
    found = rank(cell(**systems, metric=options.get("metric", "iops")), **options).set_index("system")
    assert found["rank"].astype(float).to_dict() == pytest.approx(ranks, nan_ok=True)
    assert [*found.index] == [*ranks]
    assert {name for name, other in found["tied_with"].items() if other} == tied
    assert found.index[found["best"]].tolist() == best
    assert (found["verdict"] == "missing").tolist() == found["rank"].isna().tolist()


def test_cells_are_ranked_apart_and_unlike_systems_are_named():
    results = pd.concat([cell(8, a=100.0, b=50.0), cell(16, a=50.0, b=100.0)])
    found = rank(results)
    assert found[["iodepth", "system", "rank"]].to_numpy().tolist() == [
        [8, "a", 1],
        [8, "b", 2],
        [16, "b", 1],
        [16, "a", 2],
    ]
    assert set(found["verdict"]) == {"untested"}
    assert found[["iops_lo", "iops_hi"]].isna().all(axis=None)
    results["span_bytes"] = np.where(results["system"] == "a", 1, 2)
    assert rank(results)["warnings"].str.contains("unlike").all()


def test_nobody_is_best_without_an_opponent_or_where_a_compared_system_is_missing():
    apart = rank(pd.concat([cell(8, a=A), cell(16, b=B)]))
    assert not apart["best"].any()
    assert set(apart["verdict"]) == {"alone"}
    found = rank(pd.concat([cell(8, a=A, b=B, c=C), cell(16, a=A, b=B), cell(32, a=A, b=B, c=NONE)]))
    assert found.loc[found["best"], ["iodepth", "system"]].to_numpy().tolist() == [[8, "a"]]
    assert found.query("iodepth > 8 and system != 'c'")["warnings"].str.contains("missing").all()


def test_one_test_without_a_name_has_its_first_at_the_top():
    assert rank(cell(b=A, a=B).drop(columns="iodepth"), by=[])["system"].tolist() == ["b", "a"]
