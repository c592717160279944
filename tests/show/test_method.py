"""The figures of 11_method and 12_regression, read back from their artists."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from hcilib.show.figures.bars import plot_precision
from hcilib.show.figures.rows import VERDICTS, WIDEST, plot_coverage, plot_regression

NAN = np.nan


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def gid(ax, name):
    return ax.findobj(lambda artist: artist.get_gid() == name)


def texts(ax):
    return " ".join(" ".join(t.get_text() for t in ax.figure.findobj(plt.Text)).split())


PLANNED = pd.DataFrame({
    "protocol": ["fixed", "fixed", "adaptive", "adaptive"], "runs": [5, 3, 5, 10], "hours": [20.0, 12.0, 2.0, 4.0],
    "half_width_pct": [1.6, 2.6, 1.8, 1.1], "cells": 6,
})  # fmt: skip


def test_precision_draws_a_line_a_protocol_over_hours_and_the_target():
    ax = plot_precision(PLANNED, PLANNED[PLANNED["runs"] == 3], target=0.02)
    lines = [(list(line.get_xdata()), list(line.get_ydata())) for line in gid(ax, "plan")]
    assert lines == [([12, 20], [2.6, 1.6]), ([2, 4], [1.8, 1.1])]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    [own] = gid(ax, "own")
    assert (list(own.get_xdata()), list(own.get_ydata())) == ([12], [2.6])
    assert list(gid(ax, "target")[0].get_ydata()) == [2, 2]
    assert ax.get_ylim()[0] < 1.1 < 2.6 < ax.get_ylim()[1]
    assert "±2 %" in texts(ax)
    assert "3 runs" in texts(ax)
    assert "6 cells on each of two systems" in texts(ax)


def test_precision_without_a_target_or_own_points():
    ax = plot_precision(PLANNED)
    assert not gid(ax, "target") + gid(ax, "own")
    assert "Dashed" not in texts(ax)


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


def found(**columns):
    base = pd.DataFrame({
        "pattern": ["4k-randwrite", "4k-randread", "4k-randread"], "iodepth": [1, 8, 1], "ratio": [0.8, 1.02, NAN],
        "ratio_lo": [0.76, 0.97, NAN], "ratio_hi": [0.84, 1.07, NAN], "k": [4, 4, 0], "n": [3, 3, 0],
        "verdict": ["regression", "no change seen", "missing"], "confidence": 0.95,
    })  # fmt: skip
    return base.assign(**columns)


def test_regression_sorts_as_the_field_does_and_colours_by_verdict():
    ax = plot_regression(found())
    names = [t.get_text() for t in ax.get_yticklabels()]
    assert names == ["4k random read, iodepth 1", "4k random read, iodepth 8", "4k random write, iodepth 1"]
    points = {p.get_ydata()[0]: (p.get_xdata()[0], to_hex(p.get_color())) for p in gid(ax, "new")}
    assert points == {1: (1.02, VERDICTS["no change seen"].lower()), 2: (0.8, VERDICTS["regression"].lower())}
    assert [t.get_position()[1] for t in gid(ax, "missing")] == [0]
    assert "95 % from 4 earlier ones" in texts(ax)


def test_the_expected_range_lies_around_one():
    [_, band] = gid(plot_regression(found()), "expected")
    x = band.get_paths()[0].vertices[:, 0]
    assert [x.min(), x.max()] == pytest.approx([0.76 / 0.8, 0.84 / 0.8])


def test_one_earlier_campaign_has_the_margin_hatched_and_no_range():
    ax = plot_regression(found(k=1, ratio_lo=NAN, ratio_hi=NAN), margin=0.1)
    assert not gid(ax, "expected")
    x = gid(ax, "margin")[0].get_paths()[0].vertices[:, 0]
    assert [x.min(), x.max()] == pytest.approx([1 / 1.1, 1.1])
    assert "One" not in texts(ax)
    assert "judged by ±10 %" in texts(ax)


def test_a_range_beyond_the_picture_ends_in_an_arrow_and_is_said():
    ax = plot_regression(found(ratio_lo=[0.01, 0.97, NAN], ratio_hi=[60.0, 1.07, NAN]))
    [arrow] = gid(ax, "beyond")
    assert list(arrow.get_xdata()) == [1 / WIDEST, WIDEST]
    assert "goes on beyond 4" in texts(ax)


def test_every_campaign_is_an_open_point_on_its_row():
    history = pd.DataFrame({
        "pattern": "4k-randread", "iodepth": [8, 8, 8], "run_id": ["c1", "c2", "c3"], "ratio": [0.99, 1.01, 1.02],
    })  # fmt: skip
    ax = plot_regression(found(), history)
    [line] = [line for line in ax.get_lines() if len(line.get_xdata()) == 3]
    assert list(line.get_xdata()) == [0.99, 1.01, 1.02]
    assert set(line.get_ydata()) == {1}
    assert "each campaign" in texts(ax)


def test_nothing_to_draw_is_an_error():
    with pytest.raises(ValueError, match="no row to draw"):
        plot_regression(found().iloc[:0])
