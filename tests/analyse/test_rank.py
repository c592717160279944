import numpy as np
import pandas as pd

from hcilib import rank

NOISE = np.array([-0.01, 0.0, 0.01])


def cell(iodepth=8, **systems):
    return pd.concat(
        pd.DataFrame({"system": s, "pattern": "4k-randread", "iodepth": iodepth, "iops": np.atleast_1d(v)})
        for s, v in systems.items()
    )


def ranks(results, **options):
    found = rank(results, **options)
    return dict(zip(found["system"], found["rank"], strict=True))


def test_systems_told_apart_are_ordered():
    results = cell(ceph=100 * (1 + NOISE), rdma=300 * (1 + NOISE), tcp=200 * (1 + NOISE))
    assert ranks(results) == {"rdma": 1, "tcp": 2, "ceph": 3}
    assert list(rank(results)["system"]) == ["rdma", "tcp", "ceph"]
    assert ranks(results.rename(columns={"iops": "lat_ns"}), metric="lat_ns") == {"ceph": 1, "tcp": 2, "rdma": 3}


def test_ties_share_a_rank_and_the_next_counts_who_is_better():
    results = cell(a=100 * (1 + NOISE), b=100.5 * (1 + NOISE), c=50 * (1 + NOISE))
    found = rank(results).set_index("system")
    assert found["rank"].to_dict() == {"b": 1, "a": 1, "c": 3}
    assert found["tied_with"].to_dict() == {"a": "b", "b": "a", "c": ""}


def test_single_runs_tie_within_the_margin():
    results = cell(a=100.0, b=104.0, c=50.0)
    found = rank(results).set_index("system")
    assert found["rank"].to_dict() == {"b": 1, "a": 1, "c": 3}
    assert set(found["verdict"]) == {"untested"}
    assert found[["iops_lo", "iops_hi"]].isna().all(axis=None)
    assert ranks(results, margin=0.02) == {"b": 1, "a": 2, "c": 3}


def test_a_system_without_a_valid_run_has_no_rank():
    results = cell(a=100.0, b=[np.nan, np.nan], c=[0.0, 0.0])
    found = rank(results).set_index("system")
    assert found.loc["a", "rank"] == 1
    assert found.loc[["b", "c"], "rank"].isna().all()
    assert list(found["verdict"][["b", "c"]]) == ["missing", "missing"]


def test_cells_are_ranked_apart_and_unlike_systems_are_named():
    results = pd.concat([cell(8, a=100.0, b=50.0), cell(16, a=50.0, b=100.0)])
    assert rank(results)[["iodepth", "system", "rank"]].to_numpy().tolist() == [
        [8, "a", 1],
        [8, "b", 2],
        [16, "b", 1],
        [16, "a", 2],
    ]
    results["span_bytes"] = np.where(results["system"] == "a", 1, 2)
    assert rank(results)["warnings"].str.contains("unlike").all()


def best(results, **options):
    found = rank(results, **options)
    return found.loc[found["best"], ["iodepth", "system"]].to_numpy().tolist()


def test_best_is_who_is_shown_to_be_better_than_every_other_system():
    three = {"ceph": 100 * (1 + NOISE), "rdma": 300 * (1 + NOISE), "tcp": 200 * (1 + NOISE)}
    assert best(cell(**three)) == [[8, "rdma"]]
    assert best(cell(**three | {"tcp": 300.5 * (1 + NOISE)})) == []
    assert best(cell(**three | {"tcp": 200.0})) == [], "against a single run nothing is shown"
    assert best(cell(a=100.0, b=50.0)) == []
    assert best(cell(**three).rename(columns={"iops": "lat_ns"}), metric="lat_ns") == [[8, "ceph"]]


def test_nobody_is_best_without_an_opponent_or_where_a_compared_system_is_missing():
    apart = pd.concat([cell(8, a=100 * (1 + NOISE)), cell(16, b=50 * (1 + NOISE))])
    found = rank(apart)
    assert not found["best"].any()
    assert set(found["verdict"]) == {"alone"}
    a, b, c = 100 * (1 + NOISE), 50 * (1 + NOISE), 20 * (1 + NOISE)
    partly = pd.concat([cell(8, a=a, b=b, c=c), cell(16, a=a, b=b), cell(32, a=a, b=b, c=[np.nan, np.nan])])
    assert best(partly) == [[8, "a"]]
    said = rank(partly).query("iodepth > 8 and system != 'c'")["warnings"]
    assert said.str.contains("missing").all()


def test_one_system_and_none():
    assert ranks(cell(a=100.0)) == {"a": 1}
    assert rank(cell(a=100.0).iloc[:0]).empty


def test_one_test_without_a_name_has_its_first_at_the_top():
    found = rank(cell(b=100 * (1 + NOISE), a=50 * (1 + NOISE)).drop(columns="iodepth"), by=[])
    assert found["system"].tolist() == ["b", "a"]
