"""Pareto panels, the audit's ends, and counts in tables."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib.show.figures.bars import plot_pareto_panels
from hcilib.show.figures.rows import plot_audit, plot_baseline
from hcilib.show.tables.tables import table

NAN = np.nan


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def gid(ax, name):
    return [artist for artist in [*ax.get_lines(), *ax.collections] if artist.get_gid() == name]


def captions(ax):
    return ax.figure._supxlabel.get_text().replace("\n", " ")


def test_a_panel_per_pattern_each_with_its_own_front():
    frame = pd.DataFrame({
        "pattern": ["4k-randwrite", "4k-randwrite", "4k-randread", "4k-randread"], "system": list("abab"),
        "usable_tib": [8.0, 10, 8, 10], "iops": [1e5, 2e5, 9e5, 5e5], "front": [False, True, True, True],
    })  # fmt: skip
    first, second = plot_pareto_panels(frame, source="an article")
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == ("4k random read", "4k random write")
    assert list(gid(first, "front")[0].get_ydata()) == [9e5, 9e5, 5e5, 0]
    assert list(gid(second, "front")[0].get_xdata()) == [0, 10, 10]
    assert "Source: an article." in captions(first)


def test_intervals_are_the_tables_and_missing_is_named():
    frame = pd.DataFrame(
        {
            "pattern": "4k-randread",
            "system": ["a", "b"],
            "usable_tib": [8.0, NAN],
            "iops": [10.0, 20.0],
            "iops_lo": [9.0, NAN],
            "iops_hi": [12.0, NAN],
            "n": 3,
            "confidence": 0.95,
        }
    )
    [ax] = plot_pareto_panels(frame)
    assert [list(map(float, path.vertices[:, 1])) for path in gid(ax, "interval")[0].get_paths()] == [[9, 12]]
    assert "Missing: b." in captions(ax)


def test_panels_of_an_empty_table_say_so():
    [ax] = plot_pareto_panels(pd.DataFrame({"pattern": [], "system": [], "usable_tib": [], "iops": []}))
    assert [text.get_text() for text in ax.texts] == ["nothing was measured"]


def test_audit_draws_what_is_far_off_at_the_end_and_counts_it():
    frame = pd.DataFrame({"check": "ceiling", "ratio": [0.0003, 0.5, 40.0], "ok": [True, True, False]})
    ax = plot_audit(frame)
    points = {line.get_marker(): list(line.get_xdata()) for line in ax.get_lines() if line.get_marker() in "oX"}
    assert points == {"o": [0.1, 0.5], "X": [10]}
    assert "2 beyond 0.1 or 10, drawn at the end." in captions(ax)


def test_an_empty_audit_says_so():
    ax = plot_audit(pd.DataFrame({"check": [], "ratio": [], "ok": []}))
    assert [text.get_text() for text in ax.texts] == ["Nothing here to check."]
    rows = pd.DataFrame({"row": [0, 1], "pattern": "4k-randread"})
    ax = plot_audit(hci.audit(rows.assign(iops=[1.0, 2.0], system="a", iodepth=1, numjobs=1, vms=1, bs_bytes=4096)))
    assert next(text.get_text() for text in ax.texts).startswith("Nothing can be held against physics: no row prints ")
    made = hci.published_claims().head(0)
    judged = hci.check_claims(hci.published().head(3), made)
    ax = plot_audit(hci.claim_checks(judged, made))
    assert [text.get_text() for text in ax.texts] == ["Nothing here to check."]


def test_baseline_without_a_datasheet_has_no_datasheet_in_its_legend():
    frame = pd.DataFrame({"pattern": ["4k-randread"], "measured": [9e5], "datasheet": [NAN], "n": [1]})
    ax = plot_baseline(frame)
    assert [text.get_text() for text in ax.figure.legends[0].get_texts()] == ["measured"]
    assert [text.get_text() for text in ax.texts] == ["900,000"]
    assert "No figure of the vendor is known." in captions(ax)
    two = pd.concat([frame, frame.assign(pattern="4k-randwrite", datasheet=1e6)])
    assert "900,000, datasheet: missing" in [text.get_text() for text in plot_baseline(two).texts]


def test_counts_have_no_decimals_and_measures_keep_their_digits():
    shown = table(pd.DataFrame({"holds": [6], "ratio": [1.5], "bs_bytes": [65536]})).cells
    assert shown["Holds"].tolist() == ["6"]
    assert shown["Block size (KiB)"].tolist() == ["64"]


def test_latencies_that_nobody_kept_are_said_to_be_missing():
    """As of a tool that keeps only percentiles of its parts: a log axis of nothing cannot be drawn."""
    results = hci.read_results("tests/data/foreign/cbt", system="ceph")
    [ax] = hci.plot_panels(hci.summarize(results, "p99_ns"))
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.texts] == ["p99 latency: no value given."]


def test_the_bare_drive_has_the_intervals_that_its_caption_promises():
    frame = pd.DataFrame({"pattern": ["4k-randread", "4k-randwrite"], "measured": [9e5, 3e5], "datasheet": [1e6, NAN],
                          "measured_lo": [8e5, NAN], "measured_hi": [95e4, NAN], "n": [3, 1],
                          "confidence": 0.95})  # fmt: skip
    ax = plot_baseline(frame)
    [bars] = gid(ax, "interval")
    assert sorted(bars.get_segments()[0][:, 0]) == [8e5, 95e4]
    assert "3 runs each, 95 % intervals. No bar: n = 1" in captions(ax)
    alone = plot_baseline(frame.assign(measured_lo=NAN, measured_hi=NAN, n=3))
    assert "3 runs each." in captions(alone)
    assert "interval" not in captions(alone)


def test_a_box_of_a_few_gib_has_an_axis_in_gib_and_an_interval_stays_inside():
    frame = pd.DataFrame({"system": ["a", "b"], "usable_tib": [1 / 1024, 2 / 1024], "iops": [900.0, 500.0],
                          "iops_lo": [400.0, NAN], "iops_hi": [2000.0, NAN], "n": [3, 1],
                          "pattern": "4k-randread"})  # fmt: skip
    [ax] = plot_pareto_panels(frame)
    assert ax.xaxis.get_label_text() == "Usable capacity (GiB)"
    assert ax.get_ylim()[1] > 2000
    faces = {line.get_xdata()[0]: line.get_markerfacecolor() for line in ax.get_lines() if len(line.get_xdata()) == 1}
    assert faces[2] == "white"
    assert faces[1] != "white"
