"""Sentences about a plan: plain English, with the numbers of their tables."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from hcilib.say.words import number
from tests.style import faults

CHECKS = ["host", "check", "ok", "detail"]
WARNED = ["about", "warning", "have", "need", "names"]


def cost(hours: float, written: float) -> pd.DataFrame:
    return pd.DataFrame({"kind": ["prefill", "measure"], "hours": [hours, 0.0], "bytes_written": [written, 0.0]})


@given(st.floats(1e-4, 500), st.floats(0, 1e15), st.integers(1, 400), st.integers(1, 64))
def test_an_answer_has_the_tests_the_time_and_the_bytes(hours, written, tests, vms):
    text = hci.plan_answer(cost(hours, written), tests, vms)
    assert faults(text) == []
    assert text.startswith(f"{tests} test{'s' * (tests > 1)} ")
    assert f" on {vms} VM" in text
    scales = {"hours": 1, "minutes": 60, "seconds": 3600}
    unit, scale = next((name, scale) for name, scale in scales.items() if f" {name} on" in text)
    assert f" {number(hours * scale)} {unit} on" in text


def test_unknown_time_or_bytes_are_never_a_number():
    text = hci.plan_answer(cost(1.0, float("nan")), 3, 2)
    assert "GiB" not in text
    assert "TiB" not in text
    assert faults(text) == []


@pytest.mark.parametrize("failed", range(7))
@pytest.mark.parametrize("passed", [0, 1, 40])
def test_a_plan_is_ready_where_every_check_passed(failed, passed):
    rows = [(f"vm{n}", "reachable", n < passed, "no answer within 10 s") for n in range(passed + failed)]
    if not rows:
        return
    text = hci.plan_answer(cost(1, 1e9), 1, 3, pd.DataFrame(rows, columns=CHECKS))
    assert text.startswith("Not ready: " if failed else "Ready: ")
    assert (f"{failed} of {len(rows)} check" in text) == bool(failed)
    assert faults(text) == []


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
    assert hci.plan_answer(cost(1, 1e9), 1, 3, warnings=pd.DataFrame([row], columns=WARNED)).endswith(f"\n{text}")
