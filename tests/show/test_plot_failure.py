"""The figure of a failure says what its table says: read back from its artists."""

import re

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from hcilib import plot_failure
from hcilib.say.codes import event_words
from tests.style import faults

NAN = np.nan
KEYS = {
    "system": "box-drbd",
    "run_id": "r",
    "pattern": "4k-randwrite",
    "iodepth": 8,
    "events": "cut-link@10 heal-link@20",
}


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def row(block, **changes) -> dict:
    return {
        **KEYS,
        "block": block,
        "rep": block,
        "failure": "cut-link",
        "fail_s": 10.3,
        "heal": "heal-link",
        "heal_s": 20.3,
        "healthy_iops": 1000.0,
        "gap_s": 2.0,
        "gap_from_s": 10.0,
        "degraded_iops": 4000.0,
        "degraded_from_s": 12.0,
        "heal_gap_s": 0.0,
        "back_s": 8.0,
        "ratio": 4.0,
        **changes,
    }


def laid(costs: pd.DataFrame) -> pd.DataFrame:
    """As `aligned` gives it, 40 seconds a run."""
    frames = []
    for _, run in costs.iterrows():
        since = np.arange(40) - 10.0
        frames.append(
            pd.DataFrame(
                {
                    **{k: run[k] for k in (*KEYS, "block", "rep")},
                    "t_s": since + 10,
                    "since_s": since,
                    "iops": np.where((since >= 0) & (since < 2), 0.0, 1000.0 + run["block"]),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def gid(ax, name: str) -> list:
    return ax.findobj(lambda artist: artist.get_gid() == name)


def texts(ax) -> str:
    return " ".join(t.get_text() for t in ax.figure.findobj(plt.Text))


def test_every_run_is_a_line_over_the_seconds_since_the_failure():
    costs = pd.DataFrame([row(1), row(2), row(3)])
    [ax] = plot_failure(laid(costs), costs)
    lines = gid(ax, "run")
    assert [line.get_ydata()[0] for line in lines] == [1001, 1002, 1003]
    assert lines[0].get_xdata()[0] == -10
    assert "(3 each)" in texts(ax).replace("\n", " ")


def test_events_gap_return_and_levels_stand_where_the_table_says():
    costs = pd.DataFrame([row(1)])
    [ax] = plot_failure(laid(costs), costs)
    assert [mark.get_xdata()[0] for mark in gid(ax, "event")] == [0, 10]
    gaps, [back] = gid(ax, "gap"), gid(ax, "return")
    assert [(gap.get_x(), gap.get_width()) for gap in gaps] == [(0, 1), (1, 1)]
    assert (back.get_x(), back.get_width()) == pytest.approx((10, 8))
    for name, level, ends in (("healthy", 1000, (-10, 0)), ("degraded", 4000, (1.7, 10))):
        [bar] = gid(ax, name)
        (x0, y0), (x1, y1) = bar.get_segments()[0]
        assert (y0, y1) == (level, level)
        assert (x0, x1) == pytest.approx(ends)
    assert "degraded 4k" in texts(ax)
    assert event_words("heal-link") in texts(ax)


def test_what_did_not_happen_is_not_drawn():
    costs = pd.DataFrame(
        [row(1, gap_s=0.0, gap_from_s=NAN, heal="", heal_s=NAN, back_s=NAN, degraded_iops=NAN, degraded_from_s=NAN)]
    )
    [ax] = plot_failure(laid(costs).assign(iops=1000.0), costs)
    assert not gid(ax, "gap") + gid(ax, "return") + gid(ax, "degraded")
    assert len(gid(ax, "event")) == 1
    assert "Red:" not in texts(ax)
    assert "Amber:" not in texts(ax)


def test_each_failure_has_its_panel_with_its_own_runs():
    other = {"failure": "kill-node2", "heal": "revive-node2", "events": "kill-node2@10 revive-node2@20"}
    costs = pd.DataFrame([row(1), row(2), row(1, **other)])
    axes = plot_failure(laid(costs), costs)
    assert [len(gid(ax, "run")) for ax in axes] == [2, 1]
    assert [ax.get_title(loc="left") for ax in axes] == [
        "box DRBD, 4k random write at iodepth 8: cutting the link",
        "box DRBD, 4k random write at iodepth 8: cutting the power of node 2",
    ]


def test_unlike_runs_are_no_panel_and_unlike_lines_no_zigzag():
    costs = pd.DataFrame([row(1, vms=2), row(1, vms=4)])
    with pytest.raises(ValueError, match="a panel vary in vms: 2, 4"):
        plot_failure(laid(costs), costs)
    with pytest.raises(ValueError, match="a panel vary in heal: heal-link, none"):
        plot_failure(laid(costs), pd.DataFrame([row(1), row(2, heal="", heal_s=NAN)]))
    two = pd.DataFrame([row(1, source="here"), row(1, source="there")])
    series = pd.concat([laid(two.iloc[[i]]).assign(source=name) for i, name in enumerate(two["source"])])
    [ax] = plot_failure(series, two)
    assert [len(line.get_xdata()) for line in gid(ax, "run")] == [40, 40]


def test_an_empty_table_is_refused():
    with pytest.raises(ValueError, match="no row, so there is no failure to draw"):
        plot_failure(laid(pd.DataFrame([row(1)])), pd.DataFrame([row(1)]).iloc[:0])


def test_a_run_that_never_came_back_is_amber_to_the_end_and_a_short_silence_has_its_place():
    costs = pd.DataFrame([row(1), row(2, back_s=NAN, gap_s=1.5, gap_from_s=11.1)]).assign(resolution_s=0.5)
    [ax] = plot_failure(laid(costs), costs)
    [never] = gid(ax, "not-back")
    assert never.get_extents().x1 == pytest.approx(ax.transData.transform((30, 0))[0]), "to the end of the run"
    assert len(gid(ax, "return")) == 1
    assert len(gid(ax, "silence")) == 2
    said = texts(ax).replace("\n", " ")
    assert "sampled every 0.5 s" in said
    assert "did not recover" in said
    assert faults(ax.figure.hci_said) == []


def test_the_worst_run_says_its_longest_outage_and_the_sum_of_all():
    """An outage is never a sum: 1.95 s once is worse than 1.5 s and 1.4 s."""
    costs = pd.DataFrame(
        [row(1, gap_s=1.5, gaps=2, gap_sum_s=2.9, heal_gap_s=1.4), row(2, gap_s=1.95, gaps=1, gap_sum_s=1.95)]
    ).assign(resolution_s=0.1)
    [ax] = plot_failure(laid(costs), costs)
    [said] = (t.get_text() for t in gid(ax, "worst"))
    assert re.findall(r"[\d.]+", said) == ["2", "1.95", "8"], "block, outage, recovery"
    [ax] = plot_failure(laid(costs.iloc[:1]), costs.iloc[:1])
    [said] = (t.get_text() for t in gid(ax, "worst"))
    assert re.findall(r"[\d.]+", said) == ["1.5", "2", "2.9", "8"], "outage, all of them, recovery"


def test_an_outage_that_was_not_seen_is_less_than_the_logs_resolve():
    costs = pd.DataFrame([row(1, gap_s=NAN, gap_from_s=NAN, gaps=0, gap_sum_s=NAN, resolution_s=0.5)])
    [ax] = plot_failure(laid(costs).assign(iops=1000.0), costs)
    [said] = (t.get_text() for t in gid(ax, "worst"))
    assert "outage below 1 s" in said
    assert not gid(ax, "silence")
    assert "Red:" not in texts(ax)


def test_the_worst_run_is_the_one_that_stood_still_longest_and_is_drawn_dark():
    costs = pd.DataFrame([row(1), row(2, gap_s=3.0), row(3)])
    [ax] = plot_failure(laid(costs), costs)
    assert [line.get_linewidth() for line in gid(ax, "run")] == [1.0, 2.0, 1.0]
    assert [re.findall(r"[\d.]+", t.get_text()) for t in gid(ax, "worst")] == [["2", "3", "8"]]
    levels = [text for text in ax.texts if text.get_text().startswith(("healthy", "degraded"))]
    assert levels
    assert not any(text.get_bbox_patch() for text in levels), "a box would hide the run under it"
    ax.figure.canvas.draw()
    [said] = gid(ax, "worst")
    assert said.get_window_extent().y0 > ax.get_window_extent().y1, "above the curves"
    assert said.get_window_extent().y1 < ax._left_title.get_window_extent().y0, "and below the title"
