"""Each row of a comparison and each claim over all loads, as a sentence with the row's own numbers."""

import re

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib import compare, comparison_sentences, published
from tests.one_number.claims import agree
from tests.style import faults, sentences

SIDES = {"more": 1, "higher": 1, "fewer": -1, "lower": -1}


def table(b, a, metric="iops", **columns):
    """Runs of two systems in one cell."""
    rows = [(name, i, value) for name, values in (("b", b), ("a", a)) for i, value in enumerate(values)]
    runs = pd.DataFrame(rows, columns=["system", "rep", metric]).astype({metric: float})
    return runs.assign(pattern="4k-randwrite", iodepth=8, **columns)


def row_and_sentence(results, **options):
    found = compare(results, "a", **options)
    [said] = comparison_sentences(found, {"a": "Alpha", "b": "Beta"})
    assert faults(said) == []
    return found.iloc[0], said


def is_size_of(ratio: float, said: str) -> bool:
    """Whether the first amount of a sentence is this ratio."""
    size, word = re.search(r"([\d.,]+) (?:%|times) (more|higher|fewer|lower|the|as)", said).groups()
    if word in ("the", "as"):
        return agree(size, ratio) or float(size) == pytest.approx(ratio, rel=0.06)
    return agree(size, 100 * SIDES[word] * (ratio - 1))


@pytest.mark.parametrize("factor", [0.002, 0.3, 0.71, 1.07, 1.9, 2.4, 12, 150])
@pytest.mark.parametrize("metric", ["iops", "lat_ns", "bw_bytes"])
def test_a_difference_has_its_ratio_its_interval_and_its_base(factor, metric):
    noise = np.array([0.99, 1.0, 1.01])
    row, said = row_and_sentence(table(1e5 * factor * noise, 1e5 * noise, metric), metric=metric)
    assert row["verdict"] == ("higher" if factor > 1 else "lower")
    assert said.startswith("Beta ")
    assert re.search(r"(than|of) Alpha in 4k random write at iodepth 8(\.| \().*3 runs each\)\.$", said)
    assert is_size_of(row["ratio"], said)


def test_more_latency_is_not_called_more_of_it():
    assert "higher mean latency" in row_and_sentence(table([3, 3.01], [2, 2.01], "lat_ns"), metric="lat_ns")[1]
    assert "fewer IOPS" in row_and_sentence(table([2, 2.01], [3, 3.01]))[1]


def test_a_single_run_is_never_proven():
    row, said = row_and_sentence(table([271e3], [384e3]))
    assert (row["verdict"], "not tested" in said, is_size_of(row["ratio"], said)) == ("untested", True, True)
    row, said = row_and_sentence(table([271e3], [384e3, 385e3, 383e3]))
    assert (row["verdict"], "not tested" in said, "1 run or more" in said) == ("untested", True, True)
    assert "the same IOPS as Alpha" in row_and_sentence(table([271e3], [271e3]))[1]


def test_sameness_and_a_difference_within_the_margin():
    row, said = row_and_sentence(table([100.2, 100.8, 99.9], [100, 101, 99.5]))
    assert (row["verdict"], "the same IOPS as Alpha within 5 %" in said) == ("same", True)
    assert is_size_of(row["tost_lo"], sentences(said)[1])
    row, said = row_and_sentence(table([102, 102.1, 101.9, 102], [100, 100.1, 99.9, 100]))
    assert (row["verdict"], row["equivalent"]) == ("higher", True)
    assert sentences(said)[-1] == "This is within the margin of 5 %."


def test_an_undecided_row_has_its_interval_and_says_no_side():
    row, said = row_and_sentence(table([110, 92, 116], [100, 120, 95]))
    assert row["verdict"] == "undecided"
    assert "not differ significantly" in said
    assert is_size_of(row["ratio_lo"], sentences(said)[1])
    assert row_and_sentence(table([110, 92], [100, 120, 95]))[1].endswith("2 runs or more).")


def test_a_row_that_the_correction_undoes_says_so():
    cells = [table([384e3, 386e3, 381e3], [384e3, 381e3, 386e3]).assign(iodepth=q) for q in range(1, 20)]
    cells.append(table([858e3, 871e3, 849e3], [893e3, 899e3, 884e3]).assign(iodepth=32))
    found = compare(pd.concat(cells), "a", adjust="holm").set_index("iodepth", drop=False)
    said = dict(zip(found.index, comparison_sentences(found), strict=True))[32]
    assert found.loc[32, "verdict"] == "undecided"
    assert agree(re.search(r"p = ([\d.]+)", said)[1], found.loc[32, "p_adjusted"])
    assert faults(said) == []


def test_a_missing_side_and_a_run_without_io():
    both = pd.concat([table([1, 2], [1, 2]), table([], [1.0, 2]).assign(iodepth=16)])
    absent = comparison_sentences(compare(both, "a"))[1]
    assert absent == "b has no valid run with IOPS in 4k random write at iodepth 16, where a has 2 runs."
    other = pd.concat([table([1, 2], [1, 2]), table([3.0], []).assign(iodepth=16)])
    assert comparison_sentences(compare(other, "a"))[1].startswith("a has no valid run")
    invalid = table([1, 2], [1, 2], valid=False)
    assert row_and_sentence(invalid)[1].startswith("Neither Beta nor Alpha has a valid run")
    assert "have no ratio" in row_and_sentence(table([0], [384e3]))[1]


def test_nothing_is_100_percent_less():
    cells = [table(np.array([1, 1.001, 1]) * 10.0**-e, [1e6, 1.001e6, 1e6]).assign(iodepth=e) for e in range(1, 9)]
    for said in comparison_sentences(compare(pd.concat(cells), "a")):
        assert max(float(size) for size in re.findall(r"([\d.]+) %", said)) < 100
        assert faults(said) == []


@pytest.mark.parametrize("article", ["proxmox-2node-hci", "starwind-s2d-rdma-hyperv"])
def test_every_row_of_an_article_is_plain(article):
    results = published().query("source == @article and vms > 1")
    baseline = results["system"].iloc[-1]
    found = compare(results, baseline)
    said = comparison_sentences(found, hci.short_labels())
    assert [fault for text in said for fault in faults(text)] == []
    points = (found["verdict"] == "untested").to_numpy()
    assert all(
        is_size_of(ratio, text)
        for ratio, text in zip(found["ratio"][points], np.array(said)[points], strict=True)
        if ratio != 1
    )
