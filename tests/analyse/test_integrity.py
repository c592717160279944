"""Lost, torn, foreign: the judgement alone, on blocks whose fate is known."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib.analyse.integrity import integrity_verdicts

ONE = {"run_id": "r", "vm": "vm1", "serial": "A"}
NAN = float("nan")


def acknowledged(*last: int, **of) -> pd.DataFrame:
    """Block n was acknowledged up to sequence last[n]."""
    rows = [
        {**ONE, **of, "block": block, "sequence": s} for block, until in enumerate(last) for s in range(1, until + 1)
    ]
    return pd.DataFrame(rows, columns=[*ONE, "block", "sequence"])


def read(*found: tuple, replica="system", **of) -> pd.DataFrame:
    """(low, high, foreign sectors) of block 0, 1, ..."""
    return pd.DataFrame(
        [
            {**ONE, **of, "replica": replica, "block": block, "low": low, "high": high, "foreign": foreign}
            for block, (low, high, foreign) in enumerate(found)
        ]
    )


@pytest.mark.parametrize(
    ("last", "found", "state"),
    [
        (3, (3, 3, 0), "latest"),
        (3, (4, 4, 0), "in_flight"),
        (3, (3, 4, 0), "in_flight"),
        (3, (2, 2, 0), "lost"),
        (3, (0, 0, 0), "lost"),
        (3, (1, 2, 0), "lost"),
        (3, (2, 3, 0), "torn"),
        (3, (2, 4, 0), "torn"),
        (3, (3, 3, 1), "foreign"),
        (3, (NAN, NAN, 8), "foreign"),
        (3, (NAN, NAN, NAN), "unreadable"),
        (0, (NAN, NAN, 8), "never acknowledged"),
        (0, (1, 1, 0), "never acknowledged"),
    ],
)
def test_a_block_is_what_its_sectors_say(last, found, state):
    [row] = integrity_verdicts(acknowledged(last), read(found)).to_dict("records")
    states = ["latest", "in_flight", "lost", "torn", "foreign", "unreadable"]
    assert [name for name in states if row[name]] == [state] * (state != "never acknowledged")
    assert row["checked"] == (state not in ("unreadable", "never acknowledged"))


def test_each_replica_is_judged_by_what_the_system_acknowledged():
    blocks = pd.concat([read((2, 2, 0), (1, 1, 0)), read((2, 2, 0), (0, 0, 0), replica="node2")])
    table = integrity_verdicts(acknowledged(2, 1), blocks).set_index("replica")
    assert table.loc["system", ["acknowledged", "checked", "latest", "lost", "verdict"]].tolist() == [
        3,
        2,
        2,
        0,
        "kept",
    ]
    assert table.loc["node2", ["acknowledged", "checked", "latest", "lost", "verdict"]].tolist() == [3, 2, 1, 1, "lost"]
    assert np.isnan(table.loc["node2", "at_most_pct"]), "what was seen is no bound of what was not"


@pytest.mark.parametrize(("n", "pct"), [(1, 95), (50, 5.816), (100, 2.951)])
def test_none_found_of_n_may_still_be_three_in_n(n, pct):
    """Of systems that lose exactly this share, one in twenty shows none in n."""
    table = integrity_verdicts(acknowledged(*[1] * n), read(*[(1, 1, 0)] * n))
    assert table["at_most_pct"].item() == pytest.approx(pct, rel=1e-3)
    assert (1 - table["at_most_pct"].item() / 100) ** n == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("last", "found", "verdict"),
    [
        ((1, 1), [(1, 1, 0), (NAN, NAN, NAN)], "not checkable: 1 of 2 blocks could not be read"),
        ((0, 0), [(0, 0, 0), (0, 0, 0)], "not checkable: no write was acknowledged"),
        ((1,), [(NAN, NAN, NAN)], "not checkable: no block could be read"),
        ((1, 1), [(0, 0, 0), (NAN, NAN, NAN)], "lost"),
    ],
)
def test_what_cannot_be_known_is_never_fine_and_hides_no_loss(last, found, verdict):
    assert integrity_verdicts(acknowledged(*last), read(*found))["verdict"].item() == verdict


@pytest.mark.parametrize(("low", "verdict"), [(1, "not checkable: its writer died at 5 s"), (0, "lost")])
def test_a_writer_that_died_before_the_event_proves_only_a_loss(low, verdict):
    died = {("r", "vm1", "A"): "at 5 s", ("r", "vm2", "A"): "at 6 s"}
    [row] = integrity_verdicts(acknowledged(1), read((low, low, 0)), died=died).to_dict("records")
    assert row["verdict"] == verdict
    assert np.isnan(row["at_most_pct"])


def test_a_run_directory_is_read_and_its_cut_line_promises_nothing(tmp_path):
    folder = tmp_path / "r" / "integrity"
    folder.mkdir(parents=True)
    (folder / "writes.csv").write_text(
        "run_id,vm,serial,block,sequence,t_s\nr,vm1,A,0,1,5.5\nr,vm1,A,0,2,6.5\nr,vm1,A,1"
    )
    (folder / "blocks.csv").write_text(
        "run_id,vm,serial,replica,block,low,high,foreign\nr,vm1,A,system,0,2,2,0\nr,vm1,A,system,1,0,0,0\nr,vm1,A,n2,0,,,\n"
    )
    (folder / "writers.json").write_text(
        '{"writers": [{"vm": "vm1", "serial": "A", "error": "the connection was lost"}]}'
    )
    verdicts = hci.integrity(tmp_path / "r").set_index("replica")
    assert verdicts.loc["system", ["acknowledged", "checked", "verdict"]].tolist() == [2, 1, "kept"]
    assert verdicts.loc["n2", "verdict"] == "not checkable: no block could be read"
    assert "cut short" in verdicts.attrs["warnings"]
    assert "vm1 A: its writer ended early: the connection was lost" in verdicts.attrs["warnings"]
    (folder / "writes.csv").write_text("run_id,vm\nr,vm1\n")
    with pytest.raises(ValueError, match=r"integrity/writes\.csv: line 1: .*run_id,vm,serial"):
        hci.integrity(tmp_path / "r")
    with pytest.raises(ValueError, match=r"writes.csv: no stamped blocks were written there"):
        hci.integrity(tmp_path)
