"""Sentences of a factorial table: each effect, and no more than its row."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from hcilib.say.words import change
from tests.style import faults

LEVELS = {"resiliency": ("mirror", "parity"), "dedup": ("no", "yes"), "write_pct": (0, 30)}
CELLS = pd.DataFrame({"missing": [False] * 8, "cpu_bound": [False] * 8})


def effects(ratios, contexts=4) -> pd.DataFrame:
    rows = [(name, level, base, ratio) for (name, (base, level)), ratio in zip(LEVELS.items(), ratios, strict=True)]
    table = pd.DataFrame(rows, columns=["effect", "level", "baseline", "ratio"])
    return table.assign(contexts=contexts, possible=4)


RATIO = st.floats(0.05, 8)


@given(st.tuples(RATIO, RATIO, RATIO), st.integers(1, 4))
def test_an_effect_is_said_as_its_row_has_it(ratios, contexts):
    *lines, last = hci.factorial_answer(effects(ratios, contexts), CELLS).splitlines()
    assert len(lines) == 3
    for line, ratio in zip(lines, ratios, strict=True):
        assert faults(line) == []
        assert f" {change(ratio)} IOPS" in line
        assert "untested" in line
        assert (f"{contexts} of 4 possible" in line) == (contexts < 4)
    assert last.startswith("All 8 combinations of ")


@pytest.mark.parametrize("gone", [1, 3, 6])
def test_missing_combinations_are_counted_and_what_they_hide_is_unknown(gone):
    cells = CELLS.assign(missing=[True] * gone + [False] * (8 - gone), cpu_bound=True)
    answer = hci.factorial_answer(effects((0.5, np.nan, 0.7)), cells)
    assert faults(answer) == []
    assert f"{gone} of 8 combinations of " in answer
    assert "In 8 of the 8, node CPU is at its limit" in answer
    assert "deduplication is unknown" in answer
