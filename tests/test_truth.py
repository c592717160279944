"""The committed tables of bench/truth.py, which docs/METHODS.md prints, and that it still makes them."""

import sys
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci

sys.path.append(str(hci.ROOT / "bench"))

import calibrate
import truth

SAVED = Path(hci.ROOT) / "data" / "samples" / "truth"


def test_equal_systems_are_seldom_told_apart_and_five_percent_is_found():
    """Within the error of so many campaigns of what docs/METHODS 16 states."""
    table = pd.read_csv(SAVED / "rule.csv")
    assert set(table["scenario"]) == set(truth.SCENARIOS)
    error = 3 * (0.06 * 0.94 / table["campaigns"]) ** 0.5
    assert (table["any"] <= 0.06 + error).all()
    assert table["coverage"].between(0.945, 0.995).all()
    assert (table["calm_coverage"] >= 0.9).all()
    found = table.set_index(["scenario", "n"]).loc["like", "found_pct"]
    assert found[3].between(44, 62).all()
    assert found[5].between(82, 95).all()


def test_a_table_is_made_again_to_the_digit():
    """Of few trials; those of the tables that are printed take minutes."""
    made = truth.rule(1).reset_index(drop=True)
    pd.testing.assert_frame_equal(made, pd.read_csv(SAVED / "few" / "rule.csv"), check_dtype=False)


@pytest.mark.deep
def test_the_tables_are_those_that_are_saved():
    for name, make in truth.TABLES.items():
        pd.testing.assert_frame_equal(make(200), pd.read_csv(SAVED / f"{name}.csv"), check_dtype=False)


def test_saved_campaigns_are_judged_by_the_rule_of_today():
    """Two were called different by 0.05 and 0.08 % before 0.1 % was the least difference."""
    saved = pd.read_csv(calibrate.SAVED)
    assert saved["wrong"].sum() == 2
    found = calibrate.calibrated(saved).set_index("difference_pct")
    assert found["wrong"].sum() == 0
    assert found.loc[0, ["different", "same", "undecided"]].tolist() == [0, 19, 1]
    told = saved[saved["difference_pct"] > 0]
    kept = [(told["verdict"] == name).sum() for name in ("same", "undecided")]
    assert [found.loc[2:, name].sum() for name in ("same", "undecided")] == kept
