"""What compare and summarize do with good tables, thin tables and bad tables."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from hcilib import compare, summarize

COLUMNS = [
    "metric", "baseline", "value", "value_baseline", "ratio", "ratio_lo", "ratio_hi", "p", "p_adjusted",
    "n", "n_baseline", "verdict", "runs_to_decide", "margin", "paired", "differs_in", "warnings",
]  # fmt: skip


def table(systems, pattern="4k-randwrite", iodepth=8, **columns):
    """A results table: {system: runs} in one cell, with the identity and factor columns of a campaign."""
    rows = [
        {"source": "lab", "system": s, "run_id": "c1", "block": i, "rep": i, "pattern": pattern, "iodepth": iodepth}
        | {
            "bs_bytes": 4096,
            "numjobs": 3,
            "vms": 4,
            "span_bytes": 2**30,
            "rate_bytes": 0,
            "iops": float(v),
            "valid": True,
        }
        | {"warnings": ""}
        | columns
        for s, values in systems.items()
        for i, v in enumerate(values)
    ]
    return pd.DataFrame(rows)


def one(results, baseline="rdma", **options):
    found = compare(results, baseline, **options)
    assert len(found) == 1
    return found.iloc[0]


RDMA, TCP = [384e3, 381e3, 386e3], [271e3, 274e3, 269e3]


def test_columns_are_the_contract():
    found = compare(table({"rdma": RDMA, "tcp": TCP}), "rdma")
    assert list(found.columns) == ["system", "pattern", "iodepth", *COLUMNS]


def test_one_run_each_is_a_point():
    row = one(table({"rdma": [384e3], "tcp": [271e3]}))
    assert row["verdict"] == "untested"
    assert row["ratio"] == pytest.approx(271 / 384)
    assert row[["ratio_lo", "ratio_hi", "p", "p_adjusted"]].isna().all()
    assert row["warnings"] == "single-run"


def test_one_run_against_three_is_a_point_too():
    row = one(table({"rdma": RDMA, "tcp": [271e3]}))
    assert row["verdict"] == "untested"


def test_two_runs_have_an_interval_and_a_warning():
    row = one(table({"rdma": RDMA[:2], "tcp": TCP[:2]}))
    assert row["ratio_lo"] < row["ratio"] < row["ratio_hi"]
    assert row["warnings"] == "two-runs", "of both systems, once"


def test_a_difference_within_the_margin_is_still_one():
    same = one(table({"rdma": [100, 101, 99.5], "tcp": [100.2, 100.8, 99.9]}))
    assert same["verdict"] == "same"
    both = one(table({"rdma": [100, 100.1, 99.9, 100], "tcp": [102, 102.1, 101.9, 102]}))
    assert both["verdict"] == "higher"
    narrow = one(table({"rdma": [100, 101, 99.5], "tcp": [100.2, 100.8, 99.9]}), margin=0.005)
    assert narrow["verdict"] == "undecided"


def test_inconclusive():
    row = one(table({"rdma": [100, 120, 95], "tcp": [110, 92, 116]}))
    assert row["verdict"] == "undecided"


def test_the_adjusted_p_decides():
    cells = [table({"rdma": RDMA, "tcp": RDMA[::-1]}, iodepth=q) for q in range(1, 20)]
    cells.append(table({"rdma": [893e3, 899e3, 884e3], "tcp": [858e3, 871e3, 849e3]}, iodepth=32))
    results = pd.concat(cells, ignore_index=True)
    plain, holm = (compare(results, "rdma", adjust=a).set_index("iodepth").loc[32] for a in (None, "holm"))
    assert plain["verdict"] == "lower"
    assert (holm["verdict"], holm["p_adjusted"]) == ("undecided", pytest.approx(20 * plain["p_adjusted"]))


def test_one_run_a_hundred_times_off():
    row = one(table({"rdma": RDMA, "tcp": [271e3, 274e3, 27e6]}))
    assert row["ratio"] == pytest.approx(stats.gmean([271e3, 274e3, 27e6]) / stats.gmean(RDMA)), (
        "one mean, however noisy"
    )
    assert row["ratio_lo"] < row["ratio"] < row["ratio_hi"]
    assert row["verdict"] == "undecided"
    assert row["warnings"] == "unstable"


@pytest.mark.parametrize("cv", [0.02, 0.08])
def test_what_is_called_unstable_does_not_grow_with_the_number_of_runs(cv):
    rng = np.random.default_rng(1)

    def flagged(n):
        cells = pd.DataFrame({"system": "a", "pattern": np.repeat(np.arange(4000), n), "iodepth": 1})
        return summarize(cells.assign(iops=np.exp(cv * rng.normal(size=len(cells)))))["unstable"].mean()

    three, ten = flagged(3), flagged(10)
    assert ten <= three + 0.02  # a range of 1.3 flagged .10 at n = 3 and .61 at n = 10, of cells that spread by 8 %
    assert ten < 0.15


def test_invalid_and_unreadable_runs_are_counted_not_used():
    good = table({"rdma": RDMA, "tcp": TCP})
    bad = table({"tcp": [1.0, np.nan, np.inf, -5.0]}).assign(run_id="c2", valid=[False, True, True, True])
    row, clean = one(pd.concat([good, bad], ignore_index=True)), one(good)
    assert (
        row[["ratio", "ratio_lo", "p_adjusted", "n"]].tolist()
        == clean[["ratio", "ratio_lo", "p_adjusted", "n"]].tolist()
    )
    assert row["warnings"].split() == ["invalid", "unusable"]


def test_rows_without_a_word_on_validity_count_as_valid():
    results = pd.concat([table({"rdma": RDMA}), table({"tcp": TCP}).drop(columns="valid")], ignore_index=True)
    assert one(results)["n"] == 3


def test_warnings_of_the_runs_are_carried():
    results = table({"rdma": RDMA, "tcp": TCP})
    results.loc[results["system"] == "tcp", "warnings"] = "not-steady"
    assert one(results)["warnings"] == "not-steady"


def test_a_cell_that_one_system_lacks():
    results = pd.concat(
        [table({"rdma": RDMA, "tcp": TCP}), table({"rdma": RDMA}, iodepth=16), table({"tcp": TCP}, iodepth=32)]
    )
    found = compare(results, "rdma").set_index("iodepth")
    assert found["verdict"].to_dict() == {8: "lower", 16: "missing", 32: "missing"}
    assert found.loc[16, ["n", "n_baseline"]].tolist() == [0, 3]
    assert found.loc[[16, 32], ["ratio", "ratio_lo", "p_adjusted"]].isna().all(axis=None)
    assert found["warnings"].to_dict() == {8: "", 16: "no-run", 32: "no-run"}


def test_only_invalid_runs_is_missing_not_forgotten():
    row = one(table({"rdma": RDMA, "tcp": TCP}).assign(valid=[True] * 3 + [False] * 3))
    assert (row["verdict"], row["n"]) == ("missing", 0)
    assert row["warnings"].split() == ["invalid"]


def test_missing_baseline_and_empty_tables():
    results = table({"rdma": RDMA, "tcp": TCP})
    assert compare(results[results["system"] == "rdma"], "rdma").empty
    assert list(compare(results.iloc[:0], "rdma").columns) == list(compare(results, "rdma").columns)
    assert summarize(results.iloc[:0]).empty


def test_zero_is_neither_dropped_nor_divided_by():
    row = one(table({"rdma": RDMA, "tcp": [0, 0, 0]}))
    assert np.isnan(row["ratio"])
    assert row["verdict"] == "undecided"
    assert "zero" in row["warnings"].split()
    stalled = one(table({"rdma": RDMA, "tcp": [271e3, 274e3, 0]}))
    assert "unstable" in stalled["warnings"].split()
    assert np.isnan(stalled["ratio"])
    assert "zero" in stalled["warnings"].split()


def test_what_describes_a_system_is_a_warning():
    results = pd.concat([table({"rdma": RDMA}), table({"tcp": TCP}, span_bytes=2**31, vms=2, source="other")])
    row = one(results)
    assert row["differs_in"] == "source vms span_bytes"
    assert row["warnings"] == "unlike"


def test_a_run_given_twice_is_refused():
    results = table({"rdma": RDMA, "tcp": TCP})
    anonymous = results.drop(columns=["run_id", "block", "rep"]).assign(iops=RDMA[0])
    assert one(anonymous)["n"] == 3  # rows that do not say which run they are may be alike


def test_an_attempt_that_failed_is_no_duplicate_of_its_retry():
    results = table({"rdma": RDMA, "tcp": TCP})
    failed = results.iloc[:1].assign(valid=False)
    assert one(pd.concat([results, failed]))["n_baseline"] == 3


def test_summarize_geometric_mean_and_interval():
    row = summarize(table({"tcp": TCP})).iloc[0]
    logs = np.log(TCP)
    half = stats.t.ppf(0.975, 2) * logs.std(ddof=1) / np.sqrt(3)
    expected = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half])
    assert row[["iops", "iops_lo", "iops_hi"]].tolist() == pytest.approx(expected, rel=1e-12)
    assert row["cv_pct"] == pytest.approx(100 * np.std(TCP, ddof=1) / np.mean(TCP))
    assert (row["n"], row["confidence"], row["unstable"], row["warnings"]) == (3, 0.95, False, "")


def test_summarize_thin_cells():
    point = summarize(table({"tcp": [271e3]})).iloc[0]
    assert point["iops"] == pytest.approx(271e3)
    assert point[["iops_lo", "iops_hi", "cv_pct"]].isna().all()
    unstable = summarize(table({"tcp": [100, 100, 140]})).iloc[0]
    assert unstable["iops"] == pytest.approx(stats.gmean([100, 100, 140]))
    assert (unstable["unstable"], unstable["warnings"]) == (True, "unstable")
    empty = summarize(table({"tcp": [np.nan]})).iloc[0]
    assert (empty["n"], np.isnan(empty["iops"])) == (0, True)


def test_order_of_rows_and_index_do_not_matter():
    results = pd.concat([table({"rdma": RDMA, "tcp": TCP, "ceph": TCP}, iodepth=q) for q in (1, 16, 4)])
    shuffled = results.sample(frac=1, random_state=0)
    first, second = compare(results, "rdma"), compare(shuffled, "rdma")
    numbers = ["value", "value_baseline", "ratio", "ratio_lo", "ratio_hi", "p", "p_adjusted"]
    pd.testing.assert_frame_equal(first.drop(columns=numbers), second.drop(columns=numbers), check_exact=False)
    assert first[numbers].to_numpy() == pytest.approx(second[numbers].to_numpy(), rel=1e-9)


def test_cells_come_in_the_fields_order_and_other_names_are_not_lost():
    names = ["1m-read", "4k-randwrite", "64k-randread", "4k-randread", "own mix"]
    results = pd.concat([table({"rdma": RDMA, "tcp": TCP}, pattern=p) for p in names])
    assert compare(results, "rdma")["pattern"].tolist() == [
        "4k-randread",
        "4k-randwrite",
        "64k-randread",
        "1m-read",
        "own mix",
    ]
    numbered = pd.concat([table({"rdma": RDMA, "tcp": TCP}, pattern=p) for p in (10, 2)])
    assert compare(numbered, "rdma")["pattern"].tolist() == [2, 10]
    ordered = results.assign(pattern=pd.Categorical(results["pattern"], names, ordered=True))
    assert compare(ordered, "rdma")["pattern"].tolist() == names


def test_degenerate_tables_raise_no_warning_of_numpy():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cells = [[], [1.0], [1, 1], [0, 0], [0, 5], [1, 1, 100], [np.nan] * 3]
        results = pd.concat(
            [table({"a": x, "b": y}, iodepth=1 + 10 * i + j) for i, x in enumerate(cells) for j, y in enumerate(cells)]
        )
        found = compare(results, "a")
        assert set(found["verdict"]) <= {"higher", "lower", "same", "undecided", "untested", "missing"}
        assert found["warnings"].map(bool).all()
        summarize(results)


def test_cells_are_tested_together_not_one_after_another(calls):
    def work(patterns: int) -> int:
        grid = pd.MultiIndex.from_product(
            [["a", "b"], range(patterns), range(10), range(10)], names=["system", "pattern", "iodepth", "rep"]
        )
        noise = np.random.default_rng(0).normal(size=len(grid))
        results = grid.to_frame(index=False).assign(iops=np.exp(0.02 * noise))
        found, number = calls(lambda: compare(results, "a"), within="/scipy/")
        assert len(found) == 10 * patterns
        return number

    work(1)  # so that nothing is imported while it is counted
    assert 0 < work(50) < 2 * work(5)


def test_a_percentage_ends_inside_0_to_100():
    near = table({"tcp": [99.0, 97.0, 88.0]}).rename(columns={"iops": "node_cpu_pct"})
    row = summarize(near, "node_cpu_pct").iloc[0]
    assert row["node_cpu_pct_lo"] < row["node_cpu_pct"] < row["node_cpu_pct_hi"] < 100
    assert row["node_cpu_pct_lo"] < 90
    full = summarize(
        table({"tcp": [100.0, 100.0, 99.9]}).rename(columns={"iops": "node_cpu_pct"}), "node_cpu_pct"
    ).iloc[0]
    assert full["node_cpu_pct_hi"] <= 100
    small = table({"tcp": [1.0, 1.1, 0.9]}).rename(columns={"iops": "node_cpu_pct"})
    on_logs = summarize(small.rename(columns={"node_cpu_pct": "iops"})).iloc[0]
    assert summarize(small, "node_cpu_pct").iloc[0][["node_cpu_pct_lo", "node_cpu_pct_hi"]].tolist() == pytest.approx(
        on_logs[["iops_lo", "iops_hi"]].tolist(), rel=0.02
    )


def test_processors_that_were_busy_all_the_time_lie_inside_their_interval():
    busy = pd.DataFrame(
        {"system": "A", "pattern": "4k-read", "iodepth": 1, "block": [1, 2, 3], "node_cpu_pct": [100.0] * 3}
    )
    row = summarize(busy, "node_cpu_pct").iloc[0]
    assert row["node_cpu_pct_lo"] <= row["node_cpu_pct"] <= row["node_cpu_pct_hi"]
    assert row["node_cpu_pct_hi"] == pytest.approx(100, rel=1e-12)
