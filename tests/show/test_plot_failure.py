"""The figure of a failure says what its table says: read back from its artists."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from hcilib import plot_failure
from hcilib.say.codes import event_words

NAN = np.nan
KEYS = {"system": "box-drbd", "run_id": "r", "pattern": "4k-randwrite", "iodepth": 8}
RUN = KEYS | {
    "events": "cut-link@10 heal-link@20", "failure": "cut-link", "fail_s": 10.3, "heal": "heal-link", "heal_s": 20.3,
    "healthy_iops": 1000.0, "gap_s": 2.0, "gap_from_s": 10.0, "degraded_iops": 4000.0, "degraded_from_s": 12.0,
    "tolerance": 0.2, "back_s": 8.0, "ratio": 4.0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def row(block, **changes) -> dict:
    return {**RUN, "block": block, "rep": block, **changes}


def laid(costs: pd.DataFrame) -> pd.DataFrame:
    """As `aligned` gives it, 40 seconds a run."""
    runs = costs[[*KEYS, "events", "block", "rep"]].merge(pd.DataFrame({"t_s": np.arange(40.0)}), how="cross")
    runs["since_s"] = runs["t_s"] - 10
    return runs.assign(iops=(1000.0 + runs["block"]).where(~runs["since_s"].between(0, 1), 0.0))


def gid(ax, name: str) -> list:
    return ax.findobj(lambda artist: artist.get_gid() == name)


def spans(ax, name: str) -> list[tuple[float, float]]:
    """Return begin and length of the spans of a name that have a length."""
    found = [(span.get_x(), span.get_width()) for span in gid(ax, name)]
    return [span for span in found if span[1] > 0]


def test_runs_events_outage_recovery_and_levels_stand_where_the_table_says():
    costs = pd.DataFrame([row(1), row(2), row(3)])
    [ax] = plot_failure(laid(costs), costs)
    lines = gid(ax, "run")
    assert [line.get_ydata()[0] for line in lines] == [1001, 1002, 1003]
    assert lines[0].get_xdata()[0] == -10
    assert [mark.get_xdata()[0] for mark in gid(ax, "event")] == [0, 10]
    assert spans(ax, "outage") == [(0, 2)] * 3
    assert np.array(spans(ax, "recovery")) == pytest.approx(np.array([(10, 8)] * 3))
    for name, level, ends in (("healthy", 1000, (-10, 0)), ("degraded", 4000, (1.7, 10))):
        (x0, y0), (x1, y1) = gid(ax, name)[0].get_segments()[0]
        assert (y0, y1) == pytest.approx((level, level))
        assert (x0, x1) == pytest.approx(ends)
    assert event_words("heal-link") in [text.get_text() for text in ax.figure.findobj(plt.Text)]


def test_what_did_not_happen_is_not_drawn():
    nothing = {"gap_s": 0.0, "gap_from_s": NAN, "heal": "", "heal_s": NAN, "back_s": NAN}
    costs = pd.DataFrame([row(1, **nothing, degraded_iops=NAN, degraded_from_s=NAN)])
    [ax] = plot_failure(laid(costs).assign(iops=1000.0), costs)
    assert not spans(ax, "outage") + spans(ax, "recovery")
    assert not [line for bar in gid(ax, "degraded") for line in bar.get_segments() if len(line)]
    assert len(gid(ax, "event")) == 1


def test_each_failure_has_its_panel_with_its_own_runs():
    other = {"failure": "kill-node2", "heal": "revive-node2", "events": "kill-node2@10 revive-node2@20"}
    costs = pd.DataFrame([row(1), row(2), row(1, **other)])
    axes = plot_failure(laid(costs), costs)
    assert [len(gid(ax, "run")) for ax in axes] == [2, 1]
    titles = [ax.get_title(loc="left") for ax in axes]
    for title, failure in zip(titles, ("cut-link", "kill-node2"), strict=True):
        assert all(word in title for word in ("box DRBD", "4k random write", "8", event_words(failure)))


def test_unlike_runs_are_no_panel_and_unlike_lines_no_zigzag():
    costs = pd.DataFrame([row(1, vms=2), row(1, vms=4)])
    with pytest.raises(ValueError, match="vms"):
        plot_failure(laid(costs), costs)
    with pytest.raises(ValueError, match="no row"):
        plot_failure(laid(costs), costs.iloc[:0])
    with pytest.raises(ValueError, match="heal"):
        plot_failure(laid(costs), pd.DataFrame([row(1), row(2, heal="", heal_s=NAN)]))
    two = pd.DataFrame([row(1, source="here"), row(1, source="there")])
    series = pd.concat([laid(two.iloc[[i]]).assign(source=name) for i, name in enumerate(two["source"])])
    [ax] = plot_failure(series, two)
    assert [len(line.get_xdata()) for line in gid(ax, "run")] == [40, 40]


def test_a_run_that_never_came_back_is_amber_to_the_end():
    costs = pd.DataFrame([row(1), row(2, back_s=NAN, gap_s=1.5, gap_from_s=11.1)])
    [ax] = plot_failure(laid(costs), costs)
    ends = [begin + length for begin, length in spans(ax, "recovery")]
    assert ends == pytest.approx([18, 30]), "to the end of the run"
    assert np.array(spans(ax, "outage")) == pytest.approx(np.array([(0, 2), (1.1, 1.5)]))


def test_the_worst_run_is_the_one_that_stood_still_longest_and_is_drawn_thick():
    costs = pd.DataFrame([row(1), row(2, gap_s=3.0), row(3)])
    [ax] = plot_failure(laid(costs), costs)
    assert [line.get_linewidth() for line in gid(ax, "run")] == [1.0, 2.0, 1.0]
    never = pd.DataFrame([row(1, gap_s=9.0), row(2, gap_s=1.0, back_s=NAN)])
    [ax] = plot_failure(laid(never), never)
    assert [line.get_linewidth() for line in gid(ax, "run")] == [1.0, 2.0], "no recovery is worse"
