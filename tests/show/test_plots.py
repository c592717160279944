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


OF_FINISH, OF_GRID = {"source", "band"}, {"col", "col_wrap", "sharey"}
"""Who is given an argument of `drawn`; all others are those of `hci.marks`."""


def drawn(table: pd.DataFrame, x: str, y: str, limits: dict | None = None, **how) -> sns.FacetGrid:
    """Draw rows as marks in a panel, or in one for each name of `col`."""
    own, grid = ({name: how.pop(name) for name in how.keys() & names} for names in (OF_FINISH, OF_GRID))
    g = sns.FacetGrid(table, **grid, **(hci.by("system", table) if "system" in table else {}))
    g.map_dataframe(hci.marks, x=x, y=y, **how).set(**limits or {})
    hci.finish(g, x, y, **own)
    g.figure.canvas.draw()
    return g


def lines_of(table: pd.DataFrame, value: str) -> sns.FacetGrid:
    """Draw a value over iodepth, a panel a pattern."""
    return drawn(table, "iodepth", value, {"xscale": "log", "ylim": (0, None)}, col="pattern", col_wrap=4, sharey=False)


@pytest.mark.parametrize(("results", "value"), [(PUBLISHED, "bw_bytes"), (BOX, "lat_ns")], ids=["published", "box"])
def test_marks_and_intervals_are_the_rows_in_the_shown_unit(results, value):
    scale = hci.METRICS[value].scale
    table = hci.summarize(results, value)
    g = lines_of(table, value)
    for pattern, rows in table.groupby("pattern"):
        ax = g.axes_dict[pattern]
        shown = dots(ax)
        inks = rows["system"].map(hci.by("system", rows)["palette"]).str.lower()
        assert sorted(shown["colour"]) == sorted(inks)
        for ink, own in shown.groupby("colour"):
            assert sorted(own["y"]) == pytest.approx(sorted(rows[value][inks == ink] / scale))
        assert shown["open"].sum() == rows[f"{value}_lo"].isna().sum()
        known = rows.dropna(subset=[f"{value}_lo"])
        assert len(spans(ax)) == len(known)
        if len(known):
            assert sorted(spans(ax)[:, 0, 1]) == pytest.approx(sorted(known[f"{value}_lo"] / scale))
            assert sorted(spans(ax)[:, 1, 1]) == pytest.approx(sorted(known[f"{value}_hi"] / scale))
        loads = np.log2(rows["iodepth"].unique())
        near = np.abs(np.log2(shown["x"].to_numpy())[:, None] - loads).min(axis=1)
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
        shown = dict(zip(dots(ax)["y"].round().astype(int), dots(ax)["x"], strict=True))
        expected = {names.index(test): ratio for test, ratio in zip(rows["test"], rows["ratio"], strict=True)}
        assert shown == pytest.approx(expected)
        texts = {round(t.get_position()[1]): (t.get_text(), t.get_fontweight()) for t in ax.texts}
        for row in rows.itertuples():
            heavy = "bold" if row.differs else "normal"
            assert texts[names.index(row.test)] == (f"{row.ratio:.3f}×", heavy)
    assert g.axes.flat[0].get_xlabel() == "IOPS relative to box RAID 5"


def test_marks_are_moved_apart_only_where_they_collide():
    table = pd.DataFrame({"system": ["a", "b"] * 2, "row": ["near", "near", "far", "far"],
                          "ratio": [1.0, 1.01, 0.5, 2.0], "ratio_lo": np.nan, "ratio_hi": np.nan})  # fmt: skip
    rows = dots(drawn(table, "ratio", "row").ax).set_index("x")["y"]
    assert rows[0.5] == rows[2.0] == 1
    assert rows[1.0] < 0 < rows[1.01]


def test_latency_over_iops_stays_at_its_iops():
    curve = hci.latency_over_iops(BOX).query("pattern == '4k-randread'")
    shown = dots(drawn(curve, "iops", "latency_ns", {"yscale": "log"}, joined="open_loop").ax)
    expected = curve[["iops", "latency_ns"]].div([1, 1e6]).sort_values(["iops", "latency_ns"])
    assert shown[["x", "y"]].sort_values(["x", "y"]).to_numpy() == pytest.approx(expected.to_numpy())


def test_an_arrow_is_where_an_interval_is_cut():
    table = pd.DataFrame({"row": ["a", "b"], "ratio": [0.9, 0.9], "ratio_lo": 0.8, "ratio_hi": [1.0, 9.0]})
    ax = drawn(table, "ratio", "row", {"xlim": (0.5, 1.5)}).ax
    assert [marks.get_offsets().tolist() for marks in ax.collections if marks.get_gid() == "arrow"] == [[[1, 1]]]


def test_bars_are_as_long_as_the_rows_and_stacked_from_left():
    table = pd.DataFrame({"row": ["a", "a", "b"], "part": ["x", "y", "x"],
                          "ms": [1.0, 2.0, 4.0], "start": [0.0, 1.0, 0.0]})  # fmt: skip
    g = sns.FacetGrid(table, **hci.by("part", table)).map_dataframe(hci.bars, x="ms", y="row", left="start")
    hci.finish(g, "ms", "row")
    shown = sorted((bar.get_x(), bar.get_width(), round(bar.get_y() + bar.get_height() / 2)) for bar in g.ax.patches)
    assert shown == [(0, 1, 0), (0, 4, 1), (1, 2, 0)]


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


def test_a_name_with_a_dollar_or_an_underscore_is_text_and_open_marks_are_open_in_the_legend():
    table = hci.summarize(PUBLISHED.query("pattern == '4k-randread'"), "iops")
    names = {"ceph-pve": "_x", "drbd-tcp-pve": "$a$ b", "starwind-rdma-pve": "$x_1", "starwind-tcp-pve": "c_d"}
    table = table.assign(system=table["system"].map(names))
    [legend] = drawn(table, "iodepth", "iops", col="pattern", joined=False).figure.legends
    assert {text.get_text().strip().replace("\\$", "$") for text in legend.get_texts()} == set(names.values())
    assert {to_hex(handle.get_facecolor()[0]) for handle in legend.legend_handles} == {"#ffffff"}


def test_panels_fill_their_rows_in_the_order_of_patterns_without_one_that_a_filter_left_out():
    table = hci.summarize(PUBLISHED, "iops").query("pattern != '64k-randread'")
    g = lines_of(table, "iops")
    assert not g.axes_dict["64k-randread"].figure
    boxes = {name: ax.get_position() for name, ax in g.axes_dict.items() if ax.figure}
    order = sorted(boxes, key=lambda name: (-round(boxes[name].y1, 2), boxes[name].x0))
    assert order == [pattern for pattern, rows in table.groupby("pattern") if len(rows)]
    rows = [round(boxes[name].y1, 2) for name in order]
    assert [rows.count(row) for row in sorted(set(rows), reverse=True)] == [3, 3]
    assert len({round(box.width, 2) for box in boxes.values()}) == 1
    best = hci.best_points(PUBLISHED).query("pattern != '64k-randread'")
    assert len(drawn(best, "pct_of_best", "pattern").ax.get_yticks()) == 6


def test_names_at_lines_are_apart_and_in_the_order_of_the_lines_ends():
    table = hci.summarize(PUBLISHED.query("pattern == '4k-randwrite'"), "iops")
    g = drawn(table, "iodepth", "iops")
    texts = sorted(g.ax.texts, key=lambda text: text.get_window_extent().y0)
    ends = table.groupby("system")["iops"].last().sort_values()
    assert [text.get_text() for text in texts] == [hci.short_labels()[name] for name in ends.index]
    boxes = [text.get_window_extent() for text in texts]
    assert all(low.y1 <= high.y0 + 1 for low, high in pairwise(boxes))


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
    caption = " ".join(drawn(table, "iodepth", "iops", source=["here"]).figure.get_supxlabel().split())
    assert says in caption
    assert never not in caption
    assert caption.endswith("Source: here.")


def test_a_gauge_that_begins_at_zero_has_room_above_its_highest_mark():
    table = pd.DataFrame({"iodepth": [1, 2], "iops": [2400.0, 2401.0], "iops_lo": np.nan, "iops_hi": np.nan})
    assert drawn(table, "iodepth", "iops", {"ylim": (0, None)}).ax.get_ylim()[1] > 1.05 * 2401


def test_ratios_near_equal_leave_the_whole_band_in_sight():
    table = pd.DataFrame({"system": ["a", "b"], "ratio": [0.99, 1.01],
                          "ratio_lo": [0.985, 1.005], "ratio_hi": [0.995, 1.015]})  # fmt: skip
    low, high = drawn(table, "ratio", "system", band=0.05).ax.get_xlim()
    assert low < 1 / 1.05 < 1.05 < high


def test_panels_have_a_mark_at_its_own_row_and_rows_whose_index_repeats_are_drawn_each():
    best = hci.best_points(PUBLISHED).query("system != 'ceph-pve' or pattern > '64k-randread'")
    best = pd.concat([best[best["system"] == name].reset_index(drop=True) for name in best["system"].unique()])
    g = drawn(best, "pct_of_best", "pattern", col="system")
    rows = list(best["pattern"].cat.categories)
    for system, own in best.groupby("system"):
        shown = dots(g.axes_dict[system]).sort_values("y")
        assert shown["y"].round().tolist() == [rows.index(pattern) for pattern in own["pattern"].sort_values()]
        assert shown["x"].to_numpy() == pytest.approx(own.sort_values("pattern")["pct_of_best"].to_numpy())
