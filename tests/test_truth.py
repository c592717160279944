"""The committed tables of bench/truth.py, which docs/METHODS.md prints, and that it still makes them."""

import sys
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci

sys.path.append(str(hci.ROOT / "bench"))

import truth

SAVED = Path(hci.ROOT) / "data" / "samples" / "truth"


def test_the_true_demand_is_in_the_interval_in_every_row():
    table = pd.read_csv(SAVED / "load.csv")
    assert set(zip(table["run_s"], table["limit_at_pct"], strict=True)) == {
        (seconds, 100 * share) for seconds in truth.RUNS_S for share in truth.LIMITS
    }
    assert table["trials"].eq(200).all()
    assert table["holds"].ge(0.92).all()


def test_the_true_ratio_is_in_the_interval_and_equivalence_is_seldom_false():
    cells = pd.read_csv(SAVED / "cells.csv")
    assert {(4, 3), (4, 5), (28, 3), (28, 5)} <= set(zip(cells["cells"], cells["n"], strict=True))
    assert cells["coverage_guarded"].ge(cells["coverage_own"]).all()
    assert cells["coverage_guarded"].ge(0.95).all()
    assert cells["calm_guarded"].ge(0.88).all()
    assert pd.read_csv(SAVED / "equivalence.csv")["any"].le(0.05).all()


@pytest.mark.parametrize("name", ["cells", "equivalence"])
def test_a_table_is_made_again_to_the_digit(name):
    """Of few trials; those of the tables that are printed take minutes."""
    made = truth.TABLES[name](10).reset_index(drop=True)
    pd.testing.assert_frame_equal(made, pd.read_csv(SAVED / "few" / f"{name}.csv"), check_dtype=False)


@pytest.mark.deep
def test_the_tables_are_those_that_are_saved():
    for name, make in truth.TABLES.items():
        pd.testing.assert_frame_equal(make(200), pd.read_csv(SAVED / f"{name}.csv"), check_dtype=False)
