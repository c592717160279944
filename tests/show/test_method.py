"""The figures of 11_method and 12_regression, read back from their artists."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from hcilib.show.figures.coverage import plot_coverage


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def gid(ax, name):
    return ax.findobj(lambda artist: artist.get_gid() == name)


def texts(ax):
    return " ".join(" ".join(t.get_text() for t in ax.figure.findobj(plt.Text)).split())


COVERAGE = pd.DataFrame(
    {
        "situation": ["no drift", "no drift", "drift, blocks", "drift, blocks"],
        "runs": [3, 3, 5, 5],
        "method": ["a", "b"] * 2,
        "coverage": [0.96, 0.79, 0.98, 0.87],
        "coverage_lo": [0.95, 0.77, 0.97, 0.85],
        "coverage_hi": [0.97, 0.81, 0.99, 0.89],
        "n": 300,
        "nominal": 0.95,
    }
)


def test_coverage_has_a_row_a_situation_and_the_promise_as_a_line():
    ax = plot_coverage(COVERAGE)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["no drift, 3 runs", "drift, blocks, 5 runs"]
    points = {c.get_label(): list(c.lines[0].get_xdata()) for c in ax.containers}
    assert points == {"a": [0.96, 0.98], "b": [0.79, 0.87]}
    rows = {c.get_label(): np.round(c.lines[0].get_ydata()).tolist() for c in ax.containers}
    assert rows == {"a": [0, 1], "b": [0, 1]}
    assert list(gid(ax, "nominal")[0].get_xdata()) == [0.95, 0.95]
    assert "300 simulated campaigns" in texts(ax)
