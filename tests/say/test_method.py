"""Sentences about the cost of certainty: plain English, with the numbers of their tables."""

import pandas as pd
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
