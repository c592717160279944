"""Sentences about data loss count runs, bound what was not seen, and say where nothing was tested."""

import re

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from hcilib.analyse.runs.integrity import none_found
from hcilib.say.runs.integrity import loss_words
from tests.style import faults

COUNTS = st.integers(0, 40)


@given(COUNTS, COUNTS, COUNTS, st.booleans())
def test_loss_is_said_of_as_many_runs_as_lost_writes(lost, kept, unchecked, bound):
    text = loss_words(lost, kept, unchecked, bound)
    assert faults(text) == []
    assert ("were lost" in text) == (lost > 0)
    assert ("not tested" in text) == (lost + kept + unchecked == 0)
    assert ("could not be checked" in text) == (unchecked > 0)
    if lost:
        assert f"{lost} of {lost + kept} run" in text
    elif kept and bound:
        assert f"{100 * none_found(kept):.0f} % of such runs" in text


def verdicts(*runs: str) -> pd.DataFrame:
    rows = [
        {"run_id": f"r{n}", "vm": "vm1", "serial": "A", "replica": "system", "acknowledged": 5, "verdict": verdict,
         "checked": 0 if verdict.startswith("not") else 2}
        for n, verdict in enumerate(runs)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_runs_and_not_blocks_are_counted_over_events():
    text = hci.integrity_sentence(verdicts(*["kept"] * 20))
    assert "found in 20 runs" in text
    assert "14 %" in text
    mixed = hci.integrity_sentence(verdicts("lost", "kept", "not checkable: no block could be read"))
    assert "1 of 2 runs" in mixed
    assert "1 more" in mixed
    assert "4 of 10 acknowledged writes" in mixed
    dark = hci.integrity_sentence(verdicts("not checkable: no block could be read"))
    assert not re.search("can be checked", dark)
    assert faults(mixed) == faults(dark) == faults(text) == []


def test_writes_that_later_ones_overwrote_are_not_said_to_be_kept():
    """The sample has 10,275 acknowledged writes, but 21 runs of 32 blocks are all that was read back."""
    table = pd.read_csv(hci.ROOT / "data/samples/integrity.csv")
    replicated = table[table["protocol"].isin(["C"]) & table["drive_cache"].eq("volatile")]
    failures = replicated[replicated["replica"].isin(["system", "node1", "node2"])]
    ceph = table[table["system"].str.contains("ceph") & table["replica"].eq("system")]
    assert "672 of 10,275 acknowledged writes" in hci.integrity_sentence(pd.concat([failures, ceph]))
    methods = " ".join((hci.ROOT / "docs/METHODS.md").read_text().split())
    assert "672 of 10,275 acknowledged writes could be checked" in methods
