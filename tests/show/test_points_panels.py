"""Pareto panels, the audit's ends, and counts in tables."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from hcilib import text


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_counts_have_no_decimals_and_measures_keep_their_digits():
    shown = text(pd.DataFrame({"holds": [6], "ratio": [1.5], "bs_bytes": [65536]})).cells
    assert shown["Holds"].tolist() == ["6"]
    assert shown["Block size (KiB)"].tolist() == ["64"]
