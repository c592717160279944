"""Savings to ratio to effective capacity, against numbers worked out by hand and against the scheme algebra."""

import numpy as np
import pandas as pd
import pytest

from hcilib.analyse.physics.capacity import effective_capacity
from hcilib.model.schemes import parse_scheme

NESTED = ["nested_parity(6, 0.1)", "nested_parity(6, 0.2)"]


def test_ratio_and_effective_capacity_by_hand():
    table = effective_capacity({"mirror": ["Mirror(2)"]}, {"mirror": 70.0}, 2.4e12)
    row = table.iloc[0]
    assert row["dedup_ratio"] == pytest.approx(10 / 3, rel=1e-12)
    assert row["efficiency_pct"] == 50
    assert row["effective_pct"] == pytest.approx(500 / 3, rel=1e-12)
    assert row["usable_tib"] == pytest.approx(1.2e12 / 2**40, rel=1e-12)
    assert row["effective_tib"] == pytest.approx(4e12 / 2**40, rel=1e-12)


def test_every_formula_has_a_row_and_agrees_with_the_scheme_algebra():
    table = effective_capacity({"nested": NESTED}, pd.Series({"nested": 75.0}), 1e12)
    assert list(table["scheme"]) == NESTED
    expected = [100 * parse_scheme(f"{text}.dedup(0.75)").efficiency for text in NESTED]
    assert table["effective_pct"].to_numpy() == pytest.approx(expected, rel=1e-12)
    assert table["dedup_ratio"].to_list() == [4, 4]


@pytest.mark.parametrize("savings", [{}, {"mirror": np.nan}])
def test_unknown_savings_stay_unknown(savings):
    row = effective_capacity({"mirror": ["Mirror(2)"]}, savings, 1e12).iloc[0]
    assert row[["savings_pct", "dedup_ratio", "effective_pct", "effective_tib"]].isna().all()
    assert row["efficiency_pct"] == 50


def test_no_savings_change_nothing():
    row = effective_capacity({"mirror": ["Mirror(2)"]}, {"mirror": 0}, 1e12).iloc[0]
    assert row["effective_tib"] == row["usable_tib"]


@pytest.mark.parametrize("value", [100, -1, 130])
def test_impossible_savings_are_refused_by_name(value):
    with pytest.raises(ValueError, match=f"savings_pct of 'mirror' is {value}: expected a percentage"):
        effective_capacity({"mirror": ["Mirror(2)"]}, {"mirror": value}, 1e12)


def test_a_wrong_formula_is_refused():
    with pytest.raises(ValueError, match="'Miror\\(2\\)' is not understood"):
        effective_capacity({"mirror": ["Miror(2)"]}, {}, 1e12)
