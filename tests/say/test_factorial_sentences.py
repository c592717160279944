"""Sentences of a factorial table: each effect with its interval, and no more than its row."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from hcilib.say.words import change, interval
from tests.style import faults

FACTORS = ["resiliency", "dedup", "write_pct"]


def table(ratios=(0.5, 0.8, 0.7), runs=1, spread=0.0, seed=0, cpu=50.0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    rows = [
        {
            "resiliency": ("mirror", "parity")[a],
            "dedup": ("no", "yes")[b],
            "write_pct": (0, 30)[c],
            "iops": 1e5 * ratios[0] ** a * ratios[1] ** b * ratios[2] ** c * np.exp(spread * draw.standard_normal()),
        }
        for a in (0, 1)
        for b in (0, 1)
        for c in (0, 1)
        for _ in range(runs)
    ]
    return pd.DataFrame(rows).assign(node_cpu_pct=cpu)


RATIO = st.floats(0.05, 8)


@given(st.tuples(RATIO, RATIO, RATIO), st.integers(1, 3), st.sampled_from([0.001, 0.3]), st.integers(0, 99))
def test_an_effect_is_said_as_its_row_has_it(ratios, runs, spread, seed):
    found = table(ratios, runs, spread, seed)
    effects, cells = hci.effects(found, "iops", FACTORS), hci.grid(found, "iops", FACTORS)
    lines = hci.factorial_answer(effects, cells).splitlines()
    assert len(lines) == 4
    main = effects[~effects["effect"].str.contains(" x ")].to_dict("records")
    for line, row in zip(lines, main, strict=False):
        assert faults(line) == []
        ends = (row["ratio_lo"], row["ratio_hi"])
        open_ = ends[0] <= 1 <= ends[1]
        assert ("not significant" in line) == open_
        assert ("In single runs" in line) == (runs == 1)
        if not open_:
            assert f" {change(row['ratio'], *ends)} IOPS" in line
            assert line.endswith(f"{interval(row['ratio'], *ends)}.")
    assert lines[-1].startswith("All 8 combinations of ")


@pytest.mark.parametrize("gone", [1, 3, 6])
def test_missing_combinations_are_counted_and_what_they_hide_is_unknown(gone):
    found = table(cpu=99.0)
    found.loc[found.index[-gone:], "iops"] = np.nan
    effects, cells = hci.effects(found, "iops", FACTORS), hci.grid(found, "iops", FACTORS)
    answer = hci.factorial_answer(effects, cells)
    assert faults(answer) == []
    assert f"{gone} of 8 combinations of " in answer
    assert "In 8 of the 8, node CPU is at its limit" in answer
    main = effects[~effects["effect"].str.contains(" x ")]
    assert ("is unknown" in answer) == main["ratio"].isna().any()
    for row in main.dropna(subset=["ratio"]).to_dict("records"):
        if row["contexts"] < row["possible"]:
            assert f"{row['contexts']} of {row['possible']} possible" in answer
