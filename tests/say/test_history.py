"""What `hci check` prints: each verdict has a sentence of its own, and moving an input moves its number."""

import pandas as pd
import pytest

import hcilib as hci
from hcilib.say.lines import check_lines, check_sentences
from tests.style import faults

FOUND = hci.check(hci.history("data/samples/history.csv"))
CODES = {"too-few": 2, "too-noisy": 2, "missing": 2, "suspect": 0, "no change": 0, "regression": 1, "accepted": 0}
MOVES = [
    ("regression", {"ratio": 0.77}, ["23 % fewer"]),
    ("regression", {"ratio_lo": 0.8, "ratio_hi": 0.9}, ["10 to 20 %"]),
    ("regression", {"campaign": "c07"}, ["c07"]),
    ("regression", {"candidates": "kernel from 6.1 to 6.12"}, ["6.12"]),
    ("regression", {"metric": "lat_ns", "ratio": 1.5}, ["50 % higher"]),
    ("accepted", {"ratio": 0.77}, ["23 % fewer"]),
    ("too-few", {"campaigns": 4}, ["4 campaigns"]),
    ("too-noisy", {"needed": 12, "cv_pct": 23.0}, ["12 campaigns", "23 %"]),
    ("too-noisy", {"needed": pd.NA}, ["400"]),
    ("no change", {"visible_pct": 3.3}, ["3.3 %"]),
    ("no change", {"campaigns": 44}, ["44 campaigns"]),
    ("missing", {"iodepth": 256}, ["256"]),
    ("suspect", {"pattern": "64k-read"}, ["64k"]),
]


def row(verdict: str, **changed) -> dict:
    """Return a row of `check` with this verdict."""
    return {**FOUND.iloc[1].to_dict(), "verdict": verdict, "needed": 7, **changed}


def said(verdict: str, **changed) -> str:
    """Return the sentence of one row."""
    [sentence] = check_sentences(pd.DataFrame([row(verdict, **changed)]), 0.05)
    return sentence


@pytest.mark.parametrize(("verdict", "changed", "numbers"), MOVES)
def test_moving_an_input_moves_its_number(verdict, changed, numbers):
    before, after = said(verdict), said(verdict, **changed)
    assert [number for number in numbers if number in after] == numbers
    assert [number for number in numbers if number in before] == []


def test_each_verdict_has_a_sentence_of_its_own():
    each = {verdict: said(verdict, candidates="") for verdict in CODES}
    assert len(set(each.values())) == len(CODES)
    assert {sentence[-1] for sentence in each.values()} == {"."}
    assert [fault for sentence in each.values() for fault in faults(sentence)] == []
    assert each["accepted"].startswith(each["regression"])
    assert "9 %" in check_sentences(pd.DataFrame([row("too-noisy", cv_pct=3.3)]), 0.09)[0]


def test_losses_come_first_and_tests_with_too_few_campaigns_are_one_line():
    rows = [row(verdict, code=code) for verdict, code in CODES.items()]
    small = row("regression", ratio=0.97, code=0)
    found = pd.DataFrame([small, *rows, row("too-few", campaigns=4, code=2)])
    *lines, few = check_lines(found, 0.05)
    order = ["too-noisy", "missing", "suspect", "no change", "accepted"]
    losses = [said("regression"), said("regression", ratio=0.97)]
    assert lines == [*losses, *(said(verdict) for verdict in order)]
    assert "2 tests" in few
    assert "30 campaigns" in few
