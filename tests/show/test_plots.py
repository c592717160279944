"""Figures in cells: what is drawn equals the rows, what is refused, and how names are written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex

import hcilib as hci

PUBLISHED = hci.published().query("source == 'proxmox-2node-hci' and vms > 1")
BOX = hci.read_results([str(hci.ROOT / f"data/samples/box/box-{name}") for name in ("raid5", "drbd", "nvme-tcp")])


@pytest.fixture(autouse=True)
def figures() -> Iterator[None]:
    """Draw without a window, and leave no figure."""
    mpl.use("Agg")
    yield
    plt.close("all")


def dots(ax: Axes) -> pd.DataFrame:
    """Return the marks of a panel: place, value, colour, and whether each is open."""
    rows = [
        (*spot, to_hex(marks.get_edgecolor()[0]), to_hex(face) == "#ffffff")
        for marks in ax.collections
        if isinstance(marks, PathCollection) and not marks.get_gid()
        for spot, face in zip(np.asarray(marks.get_offsets()), marks.get_facecolor(), strict=True)
    ]
    return pd.DataFrame(rows, columns=["x", "y", "colour", "open"])


def spans(ax: Axes) -> np.ndarray:
    """Return the ends of each interval, as x, y."""
    ends = [c for c in ax.collections if isinstance(c, LineCollection) and c.get_gid() == "interval"]
    return np.array([segment for each in ends for segment in each.get_segments()])


def lines_of(table: pd.DataFrame, value: str, **changes) -> sns.FacetGrid:
    """Draw a value over iodepth, a panel a pattern."""
    g = sns.FacetGrid(table, col="pattern", col_wrap=4, sharex=False, sharey=False, **hci.by("system", table))
    g.map_dataframe(hci.marks, x="iodepth", y=value, **changes).set(xscale="log", ylim=(0, None))
    hci.finish(g, "iodepth", value)
    return g


@pytest.mark.parametrize(("value", "scale"), [("iops", 1), ("lat_ns", 1e6), ("bw_bytes", 2**20)])
@pytest.mark.parametrize("results", [PUBLISHED, BOX], ids=["published", "box"])
def test_marks_and_intervals_are_the_rows_in_the_shown_unit(results, value, scale):
    scale = hci.METRICS[value].scale
    table = hci.summarize(results, value)
    g = lines_of(table, value)
    for pattern, rows in table.groupby("pattern"):
        ax = g.axes_dict[pattern]
        drawn = dots(ax)
        inks = rows["system"].map(hci.by("system", rows)["palette"]).str.lower()
        assert sorted(drawn["colour"]) == sorted(inks)
        for ink, own in drawn.groupby("colour"):
            assert sorted(own["y"]) == pytest.approx(sorted(rows[value][inks == ink] / scale))
        assert drawn["open"].sum() == rows[f"{value}_lo"].isna().sum()
        known = rows.dropna(subset=[f"{value}_lo"])
        assert len(spans(ax)) == len(known)
        if len(known):
            assert sorted(spans(ax)[:, 0, 1]) == pytest.approx(sorted(known[f"{value}_lo"] / scale))
            assert sorted(spans(ax)[:, 1, 1]) == pytest.approx(sorted(known[f"{value}_hi"] / scale))
        loads = np.log2(rows["iodepth"].unique())
        near = np.abs(np.log2(drawn["x"].to_numpy())[:, None] - loads).min(axis=1)
        assert near.max() < 0.45  # moved apart, but still nearest to its own load


def test_rows_of_a_forest_are_at_their_names_with_their_ratios_at_the_right():
    table = hci.compare(BOX, "box-raid5")
    table["test"] = table["pattern"].astype(str) + ", " + table["iodepth"].astype(str)
    table["differs"] = table["verdict"].isin(["higher", "lower"])
    g = sns.FacetGrid(table, col="system", **hci.by("system", table)).set(xscale="log")
    g.map_dataframe(hci.marks, x="ratio", y="test").map_dataframe(hci.at_right, y="test", text="ratio", bold="differs")
    hci.finish(g, "ratio", "test", band=0.05)
    names = list(table["test"].unique())
    for system, rows in table.groupby("system"):
        ax = g.axes_dict[system]
        drawn = dict(zip(dots(ax)["y"].round().astype(int), dots(ax)["x"], strict=True))
        expected = {names.index(test): ratio for test, ratio in zip(rows["test"], rows["ratio"], strict=True)}
        assert drawn == pytest.approx(expected)
        texts = {round(t.get_position()[1]): (t.get_text(), t.get_fontweight()) for t in ax.texts}
        for row in rows.itertuples():
            heavy = "bold" if row.differs else "normal"
            assert texts[names.index(row.test)] == (f"{row.ratio:.3f}×", heavy)
    assert g.axes.flat[0].get_xlabel() == "IOPS relative to box RAID 5"


def test_marks_are_moved_apart_only_where_they_collide():
    table = pd.DataFrame({"system": ["a", "b"] * 2, "row": ["near", "near", "far", "far"],
                          "ratio": [1.0, 1.01, 0.5, 2.0], "ratio_lo": np.nan, "ratio_hi": np.nan})  # fmt: skip
    g = sns.FacetGrid(table, **hci.by("system", table)).map_dataframe(hci.marks, x="ratio", y="row")
    hci.finish(g, "ratio", "row")
    drawn = dots(g.ax).set_index("x")["y"]
    assert drawn[0.5] == drawn[2.0] == 1
    assert drawn[1.0] < 0 < drawn[1.01]


def test_latency_over_iops_stays_at_its_iops():
    curve = hci.latency_over_iops(BOX)
    g = sns.FacetGrid(curve, col="pattern", sharex=False, sharey=False, **hci.by("system", curve))
    g.map_dataframe(hci.marks, x="iops", y="latency_ns", joined="open_loop").set(yscale="log")
    hci.finish(g, "iops", "latency_ns")
    for pattern, rows in curve.groupby("pattern"):
        drawn = dots(g.axes_dict[pattern])
        expected = rows[["iops", "latency_ns"]].div([1, 1e6]).sort_values(["iops", "latency_ns"])
        assert drawn[["x", "y"]].sort_values(["x", "y"]).to_numpy() == pytest.approx(expected.to_numpy())


def test_an_arrow_is_where_an_interval_is_cut():
    table = pd.DataFrame({"row": ["a", "b"], "ratio": [0.9, 0.9], "ratio_lo": 0.8, "ratio_hi": [1.0, 9.0]})
    g = sns.FacetGrid(table).map_dataframe(hci.marks, x="ratio", y="row").set(xlim=(0.5, 1.5))
    hci.finish(g, "ratio", "row")
    arrows = [marks.get_offsets().tolist() for marks in g.ax.collections if marks.get_gid() == "arrow"]
    assert arrows == [[[1, 1]]]


def test_bars_are_as_long_as_the_rows_and_stacked_from_left():
    table = pd.DataFrame({"row": ["a", "a", "b"], "part": ["x", "y", "x"],
                          "ms": [1.0, 2.0, 4.0], "start": [0.0, 1.0, 0.0]})  # fmt: skip
    g = sns.FacetGrid(table, **hci.by("part", table)).map_dataframe(hci.bars, x="ms", y="row", left="start")
    hci.finish(g, "ms", "row")
    drawn = sorted((bar.get_x(), bar.get_width(), round(bar.get_y() + bar.get_height() / 2)) for bar in g.ax.patches)
    assert drawn == [(0, 1, 0), (0, 4, 1), (1, 2, 0)]


def test_a_line_is_interrupted_at_a_load_without_a_value():
    iops = hci.summarize(PUBLISHED.query("pattern == '4k-randread'"), "iops")
    gone = iops.query("system != 'ceph-pve' or iodepth != 16")
    ax = lines_of(gone, "iops").axes_dict["4k-randread"]
    colour = to_hex(hci.by("system", gone)["palette"]["ceph-pve"])
    [path] = [line for line in ax.get_lines() if line.get_marker() == "None" and to_hex(line.get_color()) == colour]
    assert path.get_xdata()[np.isnan(path.get_ydata())].tolist() == [16]


REFUSED = {
    "two rows for one mark": (lambda t: t, {"x": "iodepth", "y": "iops"}, "pattern"),
    "a mean by hand": (
        lambda t: t.groupby(["system", "iodepth"], as_index=False)["iops"].mean(),
        {"x": "iodepth", "y": "iops"},
        "summarize",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_marks_refuses_what_is_no_row(case):
    change, columns, says = REFUSED[case]
    table = change(hci.summarize(PUBLISHED, "iops"))
    with pytest.raises(ValueError, match=says):
        sns.FacetGrid(table, hue="system").map_dataframe(hci.marks, **columns)


@pytest.mark.parametrize("draw", [sns.lineplot, sns.barplot])
def test_finish_refuses_means_that_seaborn_drew(draw):
    table = hci.summarize(PUBLISHED, "iops")
    g = sns.FacetGrid(table).map_dataframe(draw, x="iodepth", y="iops", errorbar=None)
    with pytest.raises(ValueError, match="mean of several rows"):
        hci.finish(g, "iodepth", "iops")


def test_a_name_with_a_dollar_or_an_underscore_is_text():
    table = hci.summarize(PUBLISHED.query("pattern == '4k-randread'"), "iops")
    names = {"ceph-pve": "_x", "drbd-tcp-pve": "$a$ b", "starwind-rdma-pve": "$x_1", "starwind-tcp-pve": "c_d"}
    table = table.assign(system=table["system"].map(names))
    g = sns.FacetGrid(table, col="pattern", **hci.by("system", table))
    g.map_dataframe(hci.marks, x="iodepth", y="iops", joined=False)
    hci.finish(g, "iodepth", "iops")
    g.figure.canvas.draw()
    [legend] = g.figure.legends
    assert {text.get_text().strip().replace("\\$", "$") for text in legend.get_texts()} == set(names.values())


def test_open_marks_are_open_in_the_legend():
    best = hci.best_points(PUBLISHED)
    g = sns.FacetGrid(best, **hci.by("system", best)).map_dataframe(hci.marks, x="pct_of_best", y="pattern")
    hci.finish(g, "pct_of_best", "pattern")
    [legend] = g.figure.legends
    assert {to_hex(handle.get_facecolor()[0]) for handle in legend.legend_handles} == {"#ffffff"}


def test_a_pattern_that_a_filter_left_out_has_no_panel_and_no_row():
    table = hci.summarize(PUBLISHED, "iops").query("pattern != '64k-randread'")
    g = lines_of(table, "iops")
    assert [bool(g.axes_dict[name].figure) for name in ("4k-randread", "64k-randread")] == [True, False]
    assert len(g.figure.axes) == table["pattern"].nunique() == 6
    best = hci.best_points(PUBLISHED).query("pattern != '64k-randread'")
    g = sns.FacetGrid(best, **hci.by("system", best)).map_dataframe(hci.marks, x="pct_of_best", y="pattern")
    hci.finish(g, "pct_of_best", "pattern")
    assert len(g.ax.get_yticks()) == 6


def test_panels_fill_their_row_in_the_order_of_patterns():
    g = lines_of(hci.summarize(PUBLISHED, "iops"), "iops")
    g.figure.canvas.draw()
    boxes = {name: ax.get_position() for name, ax in g.axes_dict.items()}
    order = sorted(boxes, key=lambda name: (-round(boxes[name].y1, 2), boxes[name].x0))
    assert order == [pattern for pattern, _ in PUBLISHED.groupby("pattern")]
    rows = [round(boxes[name].y1, 2) for name in order]
    assert [rows.count(row) for row in sorted(set(rows), reverse=True)] == [4, 3]
    assert len({round(box.width, 2) for box in boxes.values()}) == 1


def test_names_at_lines_are_apart_and_in_the_order_of_the_lines_ends():
    table = hci.summarize(PUBLISHED.query("pattern == '4k-randwrite'"), "iops")
    g = sns.FacetGrid(table, **hci.by("system", table)).map_dataframe(hci.marks, x="iodepth", y="iops")
    hci.finish(g, "iodepth", "iops")
    g.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in g.ax.texts]
    ends = [table[table["system"] == name]["iops"].iloc[-1] for name in hci.by("system", table)["hue_order"]]
    assert len(boxes) == len(ends) == 4
    boxes.sort(key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 + 1 for low, high in pairwise(boxes))
    labels = hci.short_labels()
    by_end = [labels[name] for _, name in sorted(zip(ends, hci.by("system", table)["hue_order"], strict=True))]
    assert [text.get_text() for text in sorted(g.ax.texts, key=lambda t: t.get_window_extent().y0)] == by_end


CAPTIONS = {
    "intervals": (
        {"iops_lo": 1.0, "iops_hi": 3.0, "n": 3},
        "3 runs each, with 95 % intervals",
        "Open",
    ),
    "none": ({"iops_lo": np.nan, "iops_hi": np.nan, "n": 1}, "Open marks have no interval", "with"),
    "unknown n": ({"iops_lo": 1.0, "iops_hi": 3.0}, "Bars: 95 % intervals", "runs"),
}


@pytest.mark.parametrize("case", CAPTIONS)
def test_a_caption_says_what_an_interval_and_an_open_mark_are(case):
    columns, says, never = CAPTIONS[case]
    table = pd.DataFrame({"iodepth": [1, 2], "iops": 2.0, **columns})
    g = sns.FacetGrid(table).map_dataframe(hci.marks, x="iodepth", y="iops")
    hci.finish(g, "iodepth", "iops", source=["here"])
    caption = " ".join(g.figure.get_supxlabel().split())
    assert says in caption
    assert never not in caption
    assert caption.endswith("Source: here.")


def test_a_gauge_that_begins_at_zero_has_room_above_its_highest_mark():
    table = pd.DataFrame({"iodepth": [1, 2], "iops": [2400.0, 2401.0], "iops_lo": np.nan, "iops_hi": np.nan})
    g = sns.FacetGrid(table).map_dataframe(hci.marks, x="iodepth", y="iops").set(ylim=(0, None))
    hci.finish(g, "iodepth", "iops")
    assert g.ax.get_ylim()[1] > 1.05 * 2401


def test_ratios_near_equal_leave_the_whole_band_in_sight():
    table = hci.compare(BOX, "box-raid5").head(2)
    table = table.assign(ratio=[0.99, 1.01], ratio_lo=[0.985, 1.005], ratio_hi=[0.995, 1.015], system=["a", "b"])
    g = sns.FacetGrid(table, **hci.by("system", table)).map_dataframe(hci.marks, x="ratio", y="system")
    hci.finish(g, "ratio", "system", band=0.05)
    low, high = g.ax.get_xlim()
    assert low < 1 / 1.05 < 1.05 < high


def test_panels_that_share_their_rows_have_a_mark_at_its_own_row():
    best = hci.best_points(PUBLISHED).query("system != 'ceph-pve' or pattern > '64k-randread'")
    g = sns.FacetGrid(best, col="system", **hci.by("system", best))
    g.map_dataframe(hci.marks, x="pct_of_best", y="pattern")
    hci.finish(g, "pct_of_best", "pattern")
    rows = list(best["pattern"].cat.categories)
    for system, own in best.groupby("system"):
        drawn = dots(g.axes_dict[system]).sort_values("y")
        assert drawn["y"].round().tolist() == [rows.index(pattern) for pattern in own["pattern"].sort_values()]
        assert drawn["x"].to_numpy() == pytest.approx(own.sort_values("pattern")["pct_of_best"].to_numpy())


def test_rows_whose_index_repeats_are_drawn_each():
    """As after concat."""
    table = hci.summarize(PUBLISHED.query("pattern == '1m-read'"), "iops")
    doubled = pd.concat([table, table.assign(pattern="own")])
    g = lines_of(doubled, "iops")
    for ax in g.axes_dict.values():
        assert sorted(dots(ax)["y"]) == pytest.approx(sorted(table["iops"]))
