"""Each mistake of 04_compare's parameters cell is one sentence that names what there is."""

import numpy as np
import pandas as pd

import hcilib as hci
from hcilib import select
from hcilib.analyse.rows import valid_rows


def runs(system, campaign="c1", source="lab", patterns=("4k-randread", "1m-write"), n=3, valid=True):
    return pd.DataFrame(
        [
            {"source": source, "system": system, "run_id": campaign, "block": i, "pattern": p, "iodepth": 1,
             "iops": 100.0 + i, "valid": valid}
            for p in patterns
            for i in range(n)
        ]
    )  # fmt: skip


RESULTS = pd.concat([runs("a"), runs("b"), runs("c", patterns=["4k-randread"])], ignore_index=True)


def test_one_of_several_loads_is_kept_by_its_value():
    loads = pd.concat([RESULTS.assign(numjobs=1, rate_iops=None), RESULTS.assign(numjobs=4, rate_iops="0.5")])
    assert set(select(loads, "a", "b", where={"numjobs": 4})["rate_iops"]) == {"0.5"}
    assert set(select(loads, "a", "b", where={"numjobs": "1"})["numjobs"]) == {1}, "as YAML or a notebook may give it"
    assert set(select(loads, "a", "b", where={"rate_iops": 0.5})["numjobs"]) == {4}


def test_without_a_wish_every_row_is_kept():
    assert select(RESULTS, "a", "b").equals(RESULTS)
    assert set(select(RESULTS, "a", "b", ["1m-write"])["system"]) == {"a", "b"}
    assert len(select(RESULTS, "a", "b", article="lab")) == len(RESULTS)
    assert select(RESULTS.iloc[:0].pipe(lambda r: pd.concat([r, RESULTS])), "a", "c").attrs == RESULTS.attrs


def test_a_cell_of_several_campaigns_says_so_and_both_n_stand():
    results = pd.concat([runs("a"), runs("a", "c2"), runs("b")])
    row = hci.compare(results, "a").iloc[0]
    assert (row["n"], row["n_baseline"]) == (3, 6)
    assert row["warnings"] == "pooled"
    assert "pooled" not in hci.compare(RESULTS, "a")["warnings"].astype(str).str.cat()
    lone = hci.summarize(results, by=["system", "pattern", "iodepth", "run_id"])
    assert not lone["warnings"].any()


def test_only_a_row_that_says_so_is_invalid():
    words = [True, False, np.nan, None, "True", "False", "false", np.False_]
    assert valid_rows(pd.DataFrame({"valid": words})).tolist() == [True, False, True, True, True, False, False, False]
    assert valid_rows(pd.DataFrame({"iops": [1, 2]})).tolist() == [True, True]
