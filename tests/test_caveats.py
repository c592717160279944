"""A warning is a value: it has a code, travels with its row, and becomes text at the end."""

import pickle

import pandas as pd
import pytest

import hcilib as hci
from hcilib.model.caveats import NONE, Caveat, Caveats, caveats, column, warnings_of
from hcilib.show.report.export import as_csv, as_parquet

FEW, LATE = Caveat("two-runs", "n = 2"), Caveat("not-steady", "not steady", detail=": 4k-randwrite; after 6 h")


def test_each_is_said_once_in_the_order_found():
    said = Caveats([FEW, LATE, FEW])
    said += [LATE, Caveat("zero", "no I/O")]
    assert said.words == "n = 2; not steady: 4k-randwrite; after 6 h; no I/O"
    assert said == "two-runs: n = 2 | not-steady: not steady ·: 4k-randwrite; after 6 h | zero: no I/O"
    assert (said.codes, LATE.brief) == ({"two-runs", "not-steady", "zero"}, "not steady")
    assert str(next(iter(said.of("a").of("b")))) == "b: a: n = 2"


def test_they_neither_change_nor_lose_their_kind():
    with pytest.raises(AttributeError):
        FEW.code = "other"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(Caveats([FEW]))) == Caveats([FEW])
    assert isinstance(pickle.loads(pickle.dumps(Caveats([FEW]))), Caveats)


@pytest.mark.parametrize("rows", [[], [NONE, NONE], [Caveats([FEW]), Caveats([LATE])], [NONE, Caveats([FEW, LATE])]])
def test_a_column_has_a_row_each_whatever_their_lengths(rows):
    assert column(rows).tolist() == rows


def test_a_table_that_was_written_down_has_the_same_codes_and_words():
    assert [caveats(v).codes for v in ("", float("nan"), None, pd.NA)] == [frozenset()] * 4
    assert caveats("n = 2; not steady").found == (Caveat("text", "n = 2; not steady"),)
    assert caveats(str(Caveats([FEW, LATE]))).found == (FEW, LATE), "as after a trip through a file"
    assert warnings_of(pd.DataFrame({"iops": [1.0, 2.0]})).tolist() == [NONE, NONE]


def test_downloads_hold_the_text(tmp_path):
    frame = pd.DataFrame({"n": [2, 3], "warnings": column([Caveats([FEW, LATE]), NONE])})
    text = "two-runs: n = 2 | not-steady: not steady ·: 4k-randwrite; after 6 h"
    assert as_csv(frame) == f"n,warnings\n2,{text}\n3,\n"
    assert as_parquet(frame)
    assert frame.to_csv(index=False) == as_csv(frame)


def test_every_row_of_the_analyses_carries_values():
    results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    found = hci.compare(results, "starwind-rdma-pve")
    for table in (
        results,
        found,
        hci.summarize(results),
        hci.geometric_mean(found),
        hci.rank(results),
        hci.peak(results),
    ):
        assert all(isinstance(row, str) for row in table["warnings"])
    assert hci.summarize(results)["warnings"].map(lambda said: "single-run" in caveats(said).codes).all()
