"""Lost, torn, foreign: the judgement alone, on blocks whose fate is known."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib import integrity_verdicts
from hcilib.analyse.integrity import block_states, none_found

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
        (3, (4, 4, 0), "in flight"),
        (3, (3, 4, 0), "in flight"),
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
    assert list(block_states(acknowledged(last), read(found))["state"]) == [state]


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


def test_none_found_of_n_may_still_be_three_in_n():
    assert none_found(100) == pytest.approx(3 / 100, rel=0.02)
    assert none_found(1) == pytest.approx(0.95)
    table = integrity_verdicts(acknowledged(*[1] * 50), read(*[(1, 1, 0)] * 50))
    assert table["at_most_pct"].item() == pytest.approx(100 * (1 - 0.05 ** (1 / 50)))


def test_the_bound_covers_what_it_says():
    """Of systems that lose exactly the bound's share, one in twenty shows none in n."""
    n, trials = 40, 20_000
    rng = np.random.default_rng(7)
    none = (rng.random((trials, n)) > none_found(n)).all(axis=1).mean()
    assert none == pytest.approx(0.05, abs=0.005)


@pytest.mark.parametrize("state", [(1, 1, 0), (1, 2, 0), (2, 2, 1)])
def test_one_block_in_a_thousand_is_enough(state):
    table = integrity_verdicts(acknowledged(*[2] * 1000), read(*[(2, 2, 0)] * 999, state))
    assert table["verdict"].item() == "lost"


def test_what_cannot_be_known_is_never_fine():
    unreadable = integrity_verdicts(acknowledged(1, 1), read((1, 1, 0), (NAN, NAN, NAN)))["verdict"].item()
    assert unreadable == "not checkable: 1 of 2 blocks could not be read"
    nothing = integrity_verdicts(acknowledged(0, 0), read((0, 0, 0), (0, 0, 0)))
    assert nothing["verdict"].item() == "not checkable: no write was acknowledged"
    gone = integrity_verdicts(acknowledged(1), read((NAN, NAN, NAN)))["verdict"].item()
    assert gone == "not checkable: no block could be read"
    both = integrity_verdicts(acknowledged(1, 1), read((0, 0, 0), (NAN, NAN, NAN)))["verdict"].item()
    assert both == "lost", "a loss that was seen is not hidden by a block that was not"


def test_what_was_on_the_disk_before_accuses_nobody():
    table = integrity_verdicts(acknowledged(1, 0), read((1, 1, 0), (NAN, NAN, 8)))
    assert table[["checked", "foreign", "verdict"]].iloc[0].tolist() == [1, 0, "kept"]


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
