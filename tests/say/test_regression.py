"""Sentences about a new campaign: plain English, with the numbers of their tables."""

import itertools
import re

import pandas as pd
import pytest

import hcilib as hci
from tests.style import faults


def campaigns(new: dict[int, float], earlier: int, wander: float) -> pd.DataFrame:
    """Return runs of campaigns c0, c1, ... and of `new`, whose level at each iodepth is given."""
    levels = {f"c{n}": dict.fromkeys(new, 1e5 * (1 + wander * (n % 3 - 1))) for n in range(earlier)}
    levels["new"] = {depth: 1e5 * level for depth, level in new.items()}
    runs = [(name, depth, rep) for name, own in levels.items() for depth in own for rep in range(3)]
    iops = [levels[name][depth] * (1 + rep / 500) for name, depth, rep in runs]
    return pd.DataFrame(runs, columns=["run_id", "iodepth", "rep"]).assign(
        system="a", pattern="4k-randwrite", iops=iops
    )


CASES = [
    pytest.param(*case, marks=[pytest.mark.deep] * (case[3] != "iops" and case[:2] != (2, 0.004)))
    for case in itertools.product([1, 2, 5], [0.004, 0.2], [0.5, 0.9, 1.0, 1.1, 3.0], ["iops", "lat_ns", "runtime_s"])
]


@pytest.mark.parametrize(("earlier", "wander", "level", "metric"), CASES)
def test_an_answer_says_no_more_than_its_rows(earlier, wander, level, metric):
    results = campaigns({8: level, 16: 1.0, 32: level}, earlier, wander).rename(columns={"iops": metric})
    found = hci.regression(results, "new", metric=metric)
    text = hci.regression_headline(found, "new", 0.05)
    sentences = hci.regression_sentences(found)
    assert faults(text) == []
    assert [faults(sentence) for sentence in sentences] == [[]] * 3
    assert all(sentence.startswith(("new has ", "No change was seen")) for sentence in sentences)
    changed = found["verdict"].isin(["regression", "improvement", "changed"])
    title = text.partition(". ")[0]
    assert len(title) <= 90
    assert title.startswith("new has ") == changed.any()
    if changed.any():
        first, *others = re.findall(r" in (\d) of 3 tests|It has .*? in (\d)\.", text)
        assert int(first[0]) + sum(int(other[1]) for other in others) == changed.sum()
        assert ("untested" in title) == (earlier == 1)
    assert ("no significance test" in text) == (earlier == 1)


def test_a_cell_without_a_run_is_no_change_and_no_zero():
    results = campaigns({8: 0.9, 16: 1.0}, 4, 0.004)
    results["valid"] = ~(results["run_id"].eq("new") & results["iodepth"].eq(16))
    found = hci.regression(results, "new")
    text = hci.regression_headline(found, "new", 0.05)
    assert found["verdict"].tolist() == ["regression", "missing"]
    assert "in 1 of 2 tests" in text
    assert "1 cannot be compared" in text
    assert "%" not in hci.regression_sentences(found)[1]
    none = hci.regression(results.assign(valid=results["run_id"] != "new"), "new")
    assert "cannot be compared" in hci.regression_headline(none, "new", 0.05).partition(". ")[0]
