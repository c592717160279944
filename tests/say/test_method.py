"""Sentences about the cost of certainty: plain English, with the numbers of their tables."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from hcilib.say.words import number
from tests.style import faults

PERCENT = st.floats(0.05, 80)


@given(st.lists(st.tuples(st.floats(0.1, 300), PERCENT), min_size=1, max_size=4), PERCENT, st.integers(1, 200))
def test_the_cheapest_and_the_dearest_protocol_are_named(protocols, noise_pct, tests):
    planned = pd.DataFrame(protocols, columns=["hours", "half_width_pct"])
    planned = planned.assign(protocol=[f"p{n}" for n in range(len(planned))], cells=tests, cv_pct=noise_pct)
    text = hci.method_answer(planned)
    assert faults(text) == []
    for row in planned[planned["hours"].isin(planned["hours"].agg(["min", "max"]))].head(1).itertuples():
        assert f"{number(row.hours)} h, with " in text
    assert f"between runs of {number(noise_pct)} %" in text


@pytest.mark.parametrize(("wrong", "word"), [(0, "no verdict was"), (1, "1 verdict was"), (3, "3 verdicts were")])
def test_intervals_with_a_known_truth_are_counted(wrong, word):
    planned = pd.DataFrame({"hours": [7.5], "half_width_pct": 9.0, "protocol": "short", "cells": 9, "cv_pct": 9.3})
    calibration = pd.DataFrame({"n": [20, 20], "held_pct": [90.0, 100.0], "wrong": [wrong, 0]})
    text = hci.method_answer(planned, calibration)
    assert "38 of 40 intervals" in text
    assert word in text
    assert faults(text) == []


def test_shares_under_a_drift_are_those_of_each_orders_own_test():
    coverage = hci.simulate_coverage(1.0, draws=100, resamples=10)
    [text] = hci.method_facts(coverage)
    assert faults(text) == []
    own = coverage["method"].eq(coverage["order"].eq("pairs").map({True: "paired t on logs", False: "Welch t on logs"}))
    drift = coverage[own & coverage["drift_cv_pct"].gt(0)]
    runs = drift.loc[drift["coverage"].idxmin(), "runs"]
    assert f"With {runs} runs" in text
    for share in drift.loc[drift["runs"] == runs, "coverage"]:
        assert f" {100 * share:.0f} % " in text
    assert hci.method_facts(coverage[coverage["drift_cv_pct"] == 0]) == []
