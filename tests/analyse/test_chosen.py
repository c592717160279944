"""Each mistake of 04_compare's parameters cell is one sentence that names what there is."""

import re

import pandas as pd
import pytest

import hcilib as hci
from hcilib.analyse.compare.chosen import chosen, pooled
from hcilib.model.caveats import caveats


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
    loads = pd.concat([RESULTS.assign(numjobs=1, demand=None), RESULTS.assign(numjobs=4, demand="0.5")])
    assert set(chosen(loads, "a", "b", where={"numjobs": 4})["demand"]) == {"0.5"}
    assert set(chosen(loads, "a", "b", where={"numjobs": "1"})["numjobs"]) == {1}, "as YAML or a notebook may give it"
    assert set(chosen(loads, "a", "b", where={"demand": 0.5})["numjobs"]) == {4}
    with pytest.raises(ValueError, match=r"where: numjobs: no row has 3; there are: 1, 4"):
        chosen(loads, "a", "b", where={"numjobs": 3})
    with pytest.raises(ValueError, match=r"where: 'threads' is no column of results"):
        chosen(loads, "a", "b", where={"threads": 3})


def test_without_a_wish_every_row_is_kept():
    assert chosen(RESULTS, "a", "b").equals(RESULTS)
    assert set(chosen(RESULTS, "a", "b", ["1m-write"])["system"]) == {"a", "b"}
    assert len(chosen(RESULTS, "a", "b", article="lab")) == len(RESULTS)
    assert chosen(RESULTS.iloc[:0].pipe(lambda r: pd.concat([r, RESULTS])), "a", "c").attrs == RESULTS.attrs


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"baseline": "aa"}, "baseline is 'aa', which is not among the systems of these results: a, b, c"),
        ({"challenger": "bb"}, "challenger is 'bb', which is not among the systems of these results: a, b, c"),
        ({"challenger": "a"}, "baseline and challenger are both 'a'; the challenger is one of: b, c"),
        ({"challenger": "c", "patterns": ["1m-write"]}, ("challenger is 'c', which is not among the systems of these "
                                                        "results: a, b")),
        ({"patterns": ["4k-randread", "4k-randred"]}, ("patterns names '4k-randred', which nobody measured; there "
                                                      "are: 4k-randread, 1m-write.")),
        ({"patterns": []}, "patterns is empty; there are: 4k-randread, 1m-write."),
        ({"article": "some-article"}, ("article is 'some-article', but the sources hold results of lab only; for run "
                                      "directories it is None")),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_that_names_what_there_is(wish, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        chosen(RESULTS, **{"baseline": "a", "challenger": "b"} | wish)


def test_one_system_alone_and_no_result():
    with pytest.raises(ValueError, match="one system alone, a: a comparison takes two"):
        chosen(runs("a"), "a", "a")
    with pytest.raises(ValueError, match="nothing to compare"):
        chosen(RESULTS.iloc[:0], "a", "b")


def test_campaigns_are_counted_and_pooling_them_is_said():
    found = pooled(pd.concat([runs("a"), runs("a", "c2"), runs("b", "c1"), runs("b", "c9", valid=False)]))
    assert found[["system", "runs", "invalid", "campaigns"]].to_numpy().tolist() == [["a", 12, 0, 2], ["b", 6, 6, 1]]
    assert found["warnings"].map(lambda said: caveats(said).words).tolist() == [
        "a: runs of 2 campaigns pooled (c1, c2): 12_regression tests whether they differ",
        "",
    ]
    assert pooled(runs("a").drop(columns="run_id"))["campaigns"].tolist() == [0]


def test_a_cell_of_several_campaigns_says_so_and_both_n_stand():
    results = pd.concat([runs("a"), runs("a", "c2"), runs("b")])
    row = hci.compare(results, "a").iloc[0]
    assert (row["n"], row["n_baseline"]) == (3, 6)
    assert caveats(row["warnings"]).words == "a: runs of 2 campaigns pooled"
    assert "pooled" not in hci.compare(RESULTS, "a")["warnings"].astype(str).str.cat()
    lone = hci.summarize(results, by=["system", "pattern", "iodepth", "run_id"])
    assert not lone["warnings"].any()
