"""Warnings of a plan name their values."""

import pandas as pd
import pytest

import hcilib as hci
from tests.style import faults

WARNED = ["about", "warning", "have", "need", "names"]
ROWS = [
    ("a", "scheme-nodes", 2, 3, ("Mirror(3)",)),
    ("a", "scheme-drives", 8, 9, ("Raid6(9)",)),
    ("rack", "idle-vms", 2, 3, ("vm2",)),
    ("rack", "idle-disks", 1, 2, tuple(f"S{n}" for n in range(9))),
    ("rack", "small-disks", 10 * 2**30, 100 * 2**30, ("S0",)),
    ("a", "cached", 8 * 2**30, 12 * 2**30, ()),
    ("plan", "short-runs", 60.0, 90.0, ("4k-randread",)),
    ("plan", "cold-writes", 60.0, 300.0, ("4k-randwrite", "64k-randwrite")),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_a_warning_names_its_values(row):
    [text] = hci.plan_warning_sentences(pd.DataFrame([row], columns=WARNED))
    assert faults(text) == []
    have, need = (value / 2**30 if value >= 2**30 else value for value in row[2:4])
    assert f"{need:g}" in text or row[1] == "cold-writes"
    assert f"{have:g}" in text or row[1] in ("idle-vms", "idle-disks")


@pytest.mark.parametrize(("disks", "named", "more"), [(4, 4, 0), (5, 3, 2), (9, 3, 6)])
def test_a_warning_names_four_disks_or_three_and_how_many_more(disks, named, more):
    row = ("rack", "idle-disks", 1, 2, tuple(f"S{n}" for n in range(disks)))
    [text] = hci.plan_warning_sentences(pd.DataFrame([row], columns=WARNED))
    assert [name for name in row[-1] if name in text] == list(row[-1][:named])
    assert (f"{more} more" in text) == bool(more)
