"""The house style on an analyst's own seaborn figure; what was drawn is read back from its artists."""

import io
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import seaborn as sns
from IPython.core import pylabtools
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import print_figure
from matplotlib.colors import to_hex

import hcilib as hci
from hcilib.show.report.export import load_ipython_extension, narrow, with_tips
from hcilib.show.report.page import NARROW, inked
from tests.style import faults

NAN, ROOT = np.nan, Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _styled():
    with plt.rc_context():
        hci.theme()
        yield
    plt.close("all")


def summary(metric="iops", n=3, scale=1.0, **columns) -> pd.DataFrame:
    values = np.array([10e3, 50e3, 90e3, 20e3, 60e3, 95e3, 9e3, 40e3, 70e3, 8e3, 30e3, 60e3]) * scale
    half = 0.1 if n > 1 else NAN
    return pd.DataFrame({
        "system": ["lab-single"] * 6 + ["lab-mirror"] * 6,
        "pattern": (["4k-randwrite"] * 3 + ["4k-randread"] * 3) * 2,
        "iodepth": [1, 8, 32] * 4,
        metric: values, f"{metric}_lo": values * (1 - half), f"{metric}_hi": values * (1 + half),
        "n": n, "confidence": 0.95,
    }).assign(**columns)  # fmt: skip


def grid(table, y="iops", over="iodepth", look=None, **more):
    look = hci.by("system", table) if look is None else look
    sizes = {"height": 2.2, "aspect": 1.3, "facet_kws": {"sharex": False, "sharey": False}}
    return sns.relplot(table, x=over, y=y, col="pattern", kind="line", **{**sizes, **look, **more})


def drawn(g, table, value="iops", source="here", **more):
    g.set(xscale="log", ylim=(0, None))
    hci.intervals(g, table, value, **more)
    hci.finish(g, source=source)
    g.figure.canvas.draw()
    return g


def marks(ax) -> dict[str, list[tuple]]:
    """Name -> its marks as (x, y, whether open), by the tooltips."""
    tips = ax.figure.hci_tips
    lines = [line for line in ax.get_lines() if line.get_gid() in tips and "t" in tips[line.get_gid()]]
    found: dict[str, list[tuple]] = {}
    for line in lines:
        opened = to_hex(line.get_markerfacecolor()) == "#ffffff"
        points = [(x, y, opened) for x, y in line.get_xydata().tolist()]
        found.setdefault(tips[line.get_gid()]["s"], []).extend(points)
    return found


def bars(ax) -> list[tuple]:
    """Ends of all intervals."""
    kinds = (c for c in ax.collections if hasattr(c, "get_segments"))
    return sorted((s[0][1], s[1][1]) for c in kinds for s in c.get_segments())


def texts(figure) -> str:
    return " ".join(t.get_text() for t in figure.findobj(plt.Text))


def tick_names(axis) -> list[str]:
    return [t.get_text() for t in axis.get_ticklabels() if t.get_text()]


def test_every_mark_has_its_interval_and_its_tooltip():
    table = summary()
    g = drawn(grid(table), table)
    reads = table[table["pattern"] == "4k-randread"]
    ax = g.axes_dict["4k-randread"]
    own = reads[reads["system"] == "lab-single"]
    assert marks(ax)["lab-single"] == [(x, y, False) for x, y in zip(own["iodepth"], own["iops"], strict=True)]
    ends = sorted(zip(reads["iops_lo"], reads["iops_hi"], strict=True))
    assert np.array(bars(ax)) == pytest.approx(np.array(ends))
    told = [text for tip in g.figure.hci_tips.values() for text in tip.get("t", [])]
    assert "iodepth 8: 60,000 [54,000, 66,000]" in told
    assert len(told) == len(table)


def test_units_ticks_order_caption_and_alternative_text():
    table = summary("lat_ns", scale=100.0)
    g = drawn(grid(table, "lat_ns"), table, "lat_ns")
    reads = g.axes_dict["4k-randread"]
    assert g.figure.get_supylabel() == "Mean latency (ms)"
    assert [ax.get_title(loc="left") for ax in g.axes.flat] == ["4k random write", "4k random read"]
    assert reads.get_position().x0 < g.axes_dict["4k-randwrite"].get_position().x0  # the articles' order
    assert tick_names(reads.xaxis) == ["1", "8", "32"]
    assert {"0", "5", "10"} & set(tick_names(reads.yaxis))  # milliseconds
    assert g.figure.get_supxlabel().replace("\n", " ") == "3 runs each with 95 % intervals. Source: here."
    assert faults(g.figure.hci_said) == []
    for pattern, lowest in (("4k random write", "0.900 ms"), ("4k random read", "0.800 ms")):
        words = rf"In {pattern}, lab-mirror has the lowest .*: {lowest} \(iodepth 1\)\."
        assert re.search(words, g.figure.hci_said)
    told = [text for tip in g.figure.hci_tips.values() for text in tip.get("t", [])]
    assert "iodepth 8: 6.000 ms [5.400 ms, 6.600 ms]" in told


def test_two_to_four_lines_are_named_at_their_ends_and_more_in_a_legend():
    table = summary()
    g = drawn(grid(table), table)
    notes = [t for t in g.axes.flat[0].texts if t.get_text() in ("lab-single", "lab-mirror")]
    assert len(notes) == 2
    assert not g.figure.legends
    assert g.figure.get_figwidth() == pytest.approx(2 * 2.2 * 1.3)  # not what seaborn's legend added
    many = pd.concat([table.head(6).assign(system=f"own-{n}") for n in range(5)])
    g = drawn(grid(many), many)
    assert [t.get_text() for t in g.figure.legends[0].get_texts()] == [f"own-{n}" for n in range(5)]


@pytest.mark.parametrize("n", [1, NAN])
def test_single_runs_are_open(n):
    table = summary(n=1).assign(n=n)
    g = drawn(grid(table), table)
    assert all(opened for ax in g.axes.flat for points in marks(ax).values() for _, _, opened in points)
    assert not bars(g.axes.flat[0])
    assert ("Open" in g.figure.get_supxlabel()) == (n == 1)


@pytest.mark.parametrize("column", ["numjobs", "my_setting"])
def test_rows_that_seaborn_averaged_raise_with_the_column_and_the_remedy(column):
    table = pd.concat([summary().assign(**{column: 1}), summary(scale=2.0).assign(**{column: 4})])
    with pytest.raises(ValueError, match=rf"2 rows, which differ in {column} \(1, 4\)\. Give {column} to hue, style"):
        drawn(grid(table), table)


def test_equal_values_that_were_averaged_raise_too():
    table = pd.concat([summary().assign(numjobs=1), summary().assign(numjobs=4)])
    with pytest.raises(ValueError, match="differ in numjobs"):
        drawn(grid(table), table)


RAW = pd.concat([summary(scale=s).assign(rep=r) for r, s in enumerate((0.9, 1.0, 1.1))], ignore_index=True)
BARS = {"x": "pattern", "y": "iops"}
LINES = {"x": "iodepth", "y": "iops"}
AVERAGED = {
    "bars over loads": lambda t: sns.catplot(t, kind="bar", hue="system", **BARS),
    "bars over loads, without seaborn's bars": lambda t: sns.catplot(t, **BARS, **hci.by("system", t, kind="bar")),
    "bars that lie": lambda t: sns.catplot(t, kind="bar", x="iops", y="pattern", hue="system"),
    "points": lambda t: sns.catplot(t, **BARS, **hci.by("system", t, kind="point")),
    "lines": lambda t: sns.relplot(t, kind="line", **LINES, **hci.by("system", t)),
    "lines of runs in panels": lambda t: grid(RAW),
    "a band": lambda t: sns.relplot(t, kind="line", hue="system", **LINES),
    "two rows for one mark": lambda t: sns.relplot(t, kind="line", estimator=None, hue="system", **LINES),
    "axes: bars": lambda t: sns.barplot(t, hue="system", **BARS),
    "axes: bars with caps": lambda t: sns.barplot(t, hue="system", capsize=0.2, **BARS),
    "axes: bars that lie": lambda t: sns.barplot(t, x="iops", y="pattern"),
    "axes: points": lambda t: sns.pointplot(t, hue="system", **BARS),
    "axes: a band": lambda t: sns.lineplot(t, hue="system", **LINES),
    "axes: two rows for one mark": lambda t: sns.lineplot(t, estimator=None, hue="system", **LINES),
}


@pytest.mark.parametrize("kind", AVERAGED)
def test_what_seaborn_averaged_is_not_signed(kind):
    with pytest.raises(ValueError, match=r"hue, style, col or row.* filter") as refused:
        hci.finish(AVERAGED[kind](summary()))
    if not kind.startswith("axes") and "runs" not in kind and kind != "bars that lie" and "band" not in kind:
        assert re.search("differ in (iodepth|pattern)|seaborn", str(refused.value))


ONE = summary().query("pattern == '4k-randread'")
SINGLE = summary().query("iodepth == 8")
GOOD = {
    "bars": lambda: sns.catplot(SINGLE, kind="bar", hue="system", **BARS),
    "bars on axes": lambda: sns.barplot(SINGLE, **BARS, **hci.by("system", SINGLE, style=False)),
    "bars of some systems": lambda: sns.catplot(SINGLE, kind="bar", hue="system", hue_order=["lab-mirror"], **BARS),
    "lines": lambda: sns.relplot(ONE, kind="line", **LINES, **hci.by("system", ONE)),
    "lines without a legend": lambda: sns.relplot(ONE, kind="line", legend=False, **LINES, **hci.by("system", ONE)),
    "a missing value": lambda: grid(summary().assign(iops=summary()["iops"].where(lambda v: v > 9e3))),
    "runs, each a line": lambda: sns.relplot(
        RAW, kind="line", col="pattern", units="rep", estimator=None, hue="system", **LINES
    ),
    "dots of runs": lambda: sns.catplot(RAW, kind="strip", hue="system", **BARS),
    "violins": lambda: sns.catplot(RAW, kind="violin", hue="system", **BARS),
    "a distribution": lambda: sns.displot(RAW, x="iops", kind="ecdf", hue="system"),
}


@pytest.mark.parametrize("kind", GOOD)
def test_a_mark_that_is_a_row_is_signed(kind):
    g = GOOD[kind]()
    hci.finish(g)
    g.figure.canvas.draw()


def test_what_cannot_be_found_is_an_error_with_its_remedy():
    table = summary()
    with pytest.raises(ValueError, match=r"has no column iops_lo.*summarize"):
        hci.intervals(grid(table), table.drop(columns="iops_lo"), "iops")
    with pytest.raises(ValueError, match="no axis shows lat_ns"):
        hci.intervals(grid(table), table.assign(lat_ns=1, lat_ns_lo=1, lat_ns_hi=1), "lat_ns")
    with pytest.raises(ValueError, match=r"no row of the table\. Give intervals the table that was drawn"):
        drawn(grid(table), summary(scale=3.0))


def test_a_column_without_an_interval_has_open_marks_and_its_table_stays():
    table = summary().assign(per_io=lambda t: t["iops"] / t["iodepth"])
    columns = list(table)
    g = drawn(grid(table, y="per_io"), table, "per_io")
    assert list(table) == columns
    assert [bars(ax) for ax in g.axes.flat] == [[], []]
    assert {opened for ax in g.axes.flat for points in marks(ax).values() for *_, opened in points} == {True}
    assert "Open markers have no interval." in g.figure.get_supxlabel()


def test_a_load_without_a_value_interrupts_its_line_and_has_a_cross():
    table = summary()
    gone = table["system"].eq("lab-mirror") & table["iodepth"].eq(8)
    for part in (table.assign(iops=table["iops"].mask(gone)), table[~gone]):
        ax = drawn(grid(part), part).axes.flat[0]
        broken = next(line for line in ax.get_lines() if np.isnan(line.get_ydata().astype(float)).any())
        assert broken.get_xdata().tolist() == [1, 8, 32]
        [cross] = [line for line in ax.get_lines() if line.get_gid() == "missing"]
        assert cross.get_xdata().tolist() == [8]
        assert "Crosses mark loads without a value." in ax.figure.get_supxlabel()


def test_neighbours_stand_beside_each_other_only_where_there_are_intervals():
    table = summary()
    ax = drawn(grid(table), table, dodge=0.1).axes.flat[0]
    first = {name: points[0][0] for name, points in marks(ax).items()}
    assert first["lab-single"] < 1 < first["lab-mirror"]
    assert tick_names(ax.xaxis) == ["1", "8", "32"]
    one = summary(n=1)
    ax = drawn(grid(one), one, dodge=0.1).axes.flat[0]
    assert {points[0][0] for points in marks(ax).values()} == {1}


# What analysts change.


def test_an_own_hue_palette_and_style():
    table = summary(stack=["tcp", "rdma"] * 6)
    g = grid(table.query("stack == 'tcp'"), look=hci.by("stack", table.query("stack == 'tcp'"), palette=["#ff0000"]),
             units="system", estimator=None)  # fmt: skip
    drawn(g, table)
    assert {to_hex(line.get_color()) for line in g.axes.flat[0].get_lines() if line.get_gid()} == {"#ff0000"}
    assert hci.by("system", table, palette="deep")["palette"] == "deep"
    look = hci.by("stack", table, style="system")
    assert look["style"] == "system"
    assert look["markers"] is False
    assert set(look["dashes"]) == {"lab-single", "lab-mirror"}
    numbers = hci.by("iodepth", table)
    assert set(numbers["palette"]) == {1, 8, 32}
    depths = table.rename(columns={"iodepth": "vms"}).assign(iodepth=4)
    drawn(grid(depths, over="vms", look=hci.by("iodepth", depths, style="system")), depths)


@pytest.mark.parametrize("kind", ["point", "bar"])
def test_kinds_of_catplot_take_what_by_gives_them(kind):
    table = summary()
    g = sns.catplot(
        table, x="iops", y="iodepth", row="pattern", orient="h", sharey=False, **hci.by("system", table, kind=kind)
    )
    hci.intervals(g, table, "iops")
    hci.finish(g)
    ends = [s for c in g.axes.flat[0].collections if hasattr(c, "get_segments") for s in c.get_segments()]
    own = table.loc[table["pattern"] == "4k-randwrite", ["iops_lo", "iops_hi"]].sort_values("iops_lo")
    assert np.array(sorted((s[0][0], s[1][0]) for s in ends)) == pytest.approx(own.to_numpy())
    assert tick_names(g.axes.flat[0].yaxis) == ["iodepth 1", "iodepth 8", "iodepth 32"]
    assert len(g.figure.legends[0].get_texts()) == 2


def test_one_name_alone_and_points_of_two_measures():
    one = summary().query("system == 'lab-single' and pattern == '4k-randread'")
    look = hci.by("system", one, kind="point")
    assert look["dodge"] == 0
    hci.intervals(sns.catplot(one, x="iops", y="iodepth", orient="h", **look), one, "iops")
    both = summary(usable_tib=[1.0] * 6 + [2.0] * 6).query("iodepth == 8")
    g = sns.relplot(both, x="usable_tib", y="iops", col="pattern", **hci.by("system", both, kind="scatter"))
    hci.intervals(g, both, "iops")
    hci.finish(g, labels=True)
    assert marks(g.axes.flat[0]) == {"lab-single": [(1.0, 50e3, False)], "lab-mirror": [(2.0, 40e3, False)]}
    assert {"lab-single", "lab-mirror"} <= {t.get_text() for t in g.axes.flat[0].texts}
    assert g.axes_dict["4k-randwrite"].get_xlabel() == "Usable (TiB)"
    plt.close("all")
    small = sns.scatterplot(both.assign(usable_tib=both["usable_tib"] / 2000), x="usable_tib", y="iops")
    hci.finish(small)
    small.figure.canvas.draw()
    assert small.get_xlabel() == "Usable (GiB)"
    assert "1" in tick_names(small.xaxis)


def test_a_log_axis_of_values_and_wrapped_panels_fill_their_lines():
    patterns = ["4k-randread", "4k-randwrite", "64k-randread", "1m-read", "1m-write"]
    table = pd.concat([summary().assign(pattern=p).head(3) for p in patterns], ignore_index=True)
    g = grid(table, col_wrap=4)
    g.set(xscale="log", yscale="log")
    hci.intervals(g, table, "iops")
    hci.finish(g)
    g.figure.canvas.draw()
    ends = [round(max(ax.get_tightbbox().x1 for ax in line)) for line in (g.axes[:3], g.axes[3:])]
    assert ends[0] == pytest.approx(ends[1], rel=0.05)
    assert "20k" in tick_names(g.axes[0].yaxis)
    with narrow(g.figure) as fits:
        assert fits
        assert len({round(ax.get_subplotspec().get_position(g.figure).x0, 3) for ax in g.axes}) == 1


@pytest.mark.deep
def test_shared_axes_have_their_ticks_at_each_panel_on_a_phone():
    table = summary()
    g = grid(table, facet_kws={"sharex": True, "sharey": True})
    drawn(g, table)
    last = g.axes_dict["4k-randwrite"]
    assert not last.yaxis.get_tick_params()["labelleft"]
    with narrow(g.figure):
        assert last.yaxis.get_tick_params()["labelleft"]
        assert g.axes_dict["4k-randread"].get_subplotspec().rowspan.start == 0
    assert not last.yaxis.get_tick_params()["labelleft"]


@pytest.mark.deep
def test_a_figure_without_finish_has_a_phone_drawing_and_colours_for_a_dark_page():
    table = summary()
    g = grid(table)
    size = tuple(g.figure.get_size_inches())
    svg = with_tips(print_figure)(g.figure, "svg")
    assert NARROW in svg
    assert not re.findall(r"<text [^>]*style=\"(?![^\"]*fill:)", svg.replace("font-weight", "")), (
        "black has no variable"
    )
    assert "--i222222" in inked(svg)
    assert tuple(g.figure.get_size_inches()) == size
    assert g.figure.get_layout_engine() is None or not g.figure.get_layout_engine().adjust_compatible


def test_tables_that_were_merged_concatenated_and_read_from_csv_give_the_same_figure():
    table = summary()
    price = pd.DataFrame({"system": ["lab-single"], "price": [3.0]})
    merged = table.merge(price, how="left")
    repeated = pd.concat([table.query("iodepth < 9"), table.query("iodepth > 8")])
    twice = pd.concat([table, table])
    stored = pd.read_csv(io.StringIO(table.to_csv(index=False)))
    pictures = []
    for one in (table, merged, repeated, twice, stored):
        g = drawn(grid(one), one)
        pictures.append((g.figure.get_supylabel(), [sorted(marks(ax).items()) for ax in g.axes.flat],
                         g.figure.hci_said, g.figure.get_supxlabel()))  # fmt: skip
    assert all(picture == pictures[0] for picture in pictures)
    lacking = summary().merge(summary()[["system", "pattern", "iodepth"]].head(8).assign(rated=1), how="left")
    lacking[["iops", "iops_lo", "iops_hi"]] = lacking[["iops", "iops_lo", "iops_hi"]].where(lacking["rated"].notna())
    assert sum(map(len, marks(drawn(grid(lacking), lacking).axes_dict["4k-randwrite"]).values())) == 5


def test_labels_titles_and_orders_of_the_analyst_stay():
    table = summary()
    g = grid(table, col_order=["4k-randread", "4k-randwrite"])
    hci.intervals(g, table, "iops")
    g.set_axis_labels("My depth", "My rate").set_titles("Panel {col_name}")
    hci.finish(g, says="Nothing.", note="A note.")
    assert g.figure.get_supylabel() == "My rate"
    assert [ax.get_title(loc="left") for ax in g.axes.flat] == ["Panel 4k-randread", "Panel 4k-randwrite"]
    assert g.figure.hci_said == "Nothing."
    assert g.figure.get_supxlabel().startswith("3 runs each with 95 % intervals. A note.")


def test_ratios_have_their_line_band_and_baseline():
    table = summary().query("system == 'lab-mirror'").rename(columns=lambda name: name.replace("iops", "ratio"))
    table = table.assign(ratio=[0.8, 0.9, 1.2, 0.7, 1.0, NAN], ratio_lo=NAN, ratio_hi=NAN, n=1)
    table = table.assign(metric="iops", baseline="lab-single", verdict="undecided")
    look = hci.by("system", table, kind="point")
    g = sns.catplot(table, x="ratio", y="iodepth", row="pattern", sharey=False, orient="h", **look)
    g.set(xscale="log")
    hci.intervals(g, table, "ratio")
    hci.finish(g, band=0.05, source="here")
    last = g.axes_dict["4k-randwrite"]
    assert last.get_xlabel() == "IOPS relative to lab-single"
    assert {line.get_xdata()[0] for line in last.get_lines() if line.get_gid() == "reference"} == {1}
    assert any(patch.get_gid() == "margin" for patch in last.patches)
    assert "Grey band: differences of at most 5 %." in g.figure.get_supxlabel().replace("\n", " ")
    missing = [t for t in g.axes_dict["4k-randread"].texts if t.get_gid() == "missing"]
    assert [t.get_text() for t in missing] == ["missing"]
    assert faults(g.figure.hci_said) == []
    assert re.search("In 5 tests, .* 0.700 to 1.200 times .*single runs", g.figure.hci_said)


def test_a_figure_of_ratios_has_the_colours_of_the_figure_with_the_baseline():
    table = summary().assign(system=lambda t: t["system"].map({"lab-single": "birch", "lab-mirror": "cedar"}))
    both = hci.by("system", table)["palette"]
    assert hci.by("system", table.query("system == 'cedar'").assign(baseline="birch"))["palette"] == {
        "cedar": both["cedar"]
    }


def test_rows_of_panels_that_share_them_are_named_once_and_a_narrow_log_axis_has_ticks():
    table = summary().assign(metric=lambda t: t["pattern"].map({"4k-randread": "iops", "4k-randwrite": "p99_ns"}))
    table = table.rename(columns=lambda name: name.replace("iops", "ratio")).assign(ratio=1.0, baseline="alone")
    table = table.assign(ratio_lo=0.99, ratio_hi=1.01)
    g = sns.catplot(table, x="ratio", y="iodepth", col="metric", orient="h", **hci.by("system", table, kind="point"))
    hci.intervals(g, table, "ratio")
    hci.finish(g)
    g.figure.canvas.draw()
    first, second = g.axes.flat
    assert second.get_ylabel() == ""
    assert tick_names(first.yaxis) == ["iodepth 1", "iodepth 8", "iodepth 32"]
    assert second.get_ylim() == (2.5, -0.5)
    assert [ax.get_xlabel() for ax in g.axes.flat] == ["p99 latency relative to alone", "IOPS relative to alone"]
    one = summary("lat_ns", n=1, scale=1000).query("system == 'lab-single' and iodepth == 8")
    ax = drawn(grid(one, "lat_ns"), one, "lat_ns").axes.flat[0]
    ax.set_yscale("log")
    hci.finish(ax)
    ax.figure.canvas.draw()
    assert tick_names(ax.yaxis)


def test_a_narrow_log_axis_spans_a_factor_of_three_around_its_value():
    one = summary("lat_ns", n=1, scale=1000).head(1)
    ax = sns.scatterplot(one, x="iodepth", y="lat_ns")
    ax.set(yscale="log", ylim=(9e6, 11e6))
    hci.finish(ax)
    least, most = ax.get_ylim()
    assert most / least == pytest.approx(3)
    assert (least * most) ** 0.5 == pytest.approx(10e6, rel=0.1)


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [
        ((0.6, 1.5), [0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]),
        ((0.4, 2.5), [0.5, 0.75, 1, 1.5, 2]),
        ((0.1, 5), [0.1, 0.2, 0.5, 1, 2, 5]),
    ],
)
def test_ticks_of_ratios_are_the_nearer_the_narrower_the_axis(ends, ticks):
    table = summary().head(2).rename(columns=lambda name: name.replace("iops", "ratio"))
    table = table.assign(ratio=ends, ratio_lo=NAN, ratio_hi=NAN, n=1, baseline="other", metric="iops")
    ax = sns.lineplot(table, x="iodepth", y="ratio", **hci.by("system", table))
    ax.set(yscale="log", ylim=ends)
    hci.intervals(ax, table, "ratio")
    hci.finish(ax)
    ax.figure.set_figheight(9)
    ax.figure.canvas.draw()
    assert list(ax.yaxis.get_majorticklocs()) == pytest.approx(ticks)


def test_other_figures_of_an_analyst_are_finished_too():
    table = summary(lat_ns=range(1, 13)).astype({"system": "category"})
    heat = sns.heatmap(table.pivot_table(index="system", columns="iodepth", values="iops", observed=True))
    hci.finish(heat, source="here")
    assert not heat.xaxis.get_gridlines()[0].get_visible()
    with narrow(heat.figure) as fits:
        assert not fits
    for g in (
        sns.displot(table, x="iops", col="pattern", **hci.by("system", table, style=False)),
        sns.catplot(table, x="iops", y="pattern", **hci.by("system", table, kind="box")),
        sns.relplot(table, x="iops", y="lat_ns", hue="iodepth", size="n"),
    ):
        hci.finish(g)
        g.figure.canvas.draw()
    with pytest.raises(TypeError, match="not PairGrid"):
        hci.finish(sns.pairplot(table[["iops", "n"]]))


def test_rows_that_an_analyst_named_by_several_columns_have_each_in_words():
    table = (
        summary()
        .query("system == 'lab-single'")
        .assign(test=lambda t: t["pattern"] + ", iodepth " + t["iodepth"].astype(str))
    )
    ax = sns.pointplot(table, x="iops", y="test", linestyle="none", errorbar=None)
    hci.finish(ax)
    assert tick_names(ax.yaxis)[0] == "4k random write, iodepth 1"


def test_a_long_table_of_several_metrics_is_labelled_by_them():
    long = pd.concat([summary("value", scale=s).assign(metric=m) for m, s in (("p50_ns", 10.0), ("p99_ns", 90.0))])
    g = drawn(grid(long, "value", look=hci.by("system", long, style="metric")), long, "value")
    assert g.figure.get_supylabel() == "Latency (ms)"
    named_so = [t.get_text() for t in g.figure.legends[0].get_texts()]
    assert named_so == ["lab-single", "lab-mirror", "Median latency", "p99 latency"]
    one = long.query("metric == 'p99_ns'")
    assert drawn(grid(one, "value"), one, "value").figure.get_supylabel() == "p99 latency (ms)"


def test_axes_of_their_own_and_a_limit_that_was_set_before():
    table = summary().query("pattern == '4k-randread'")
    ax = sns.lineplot(table, x="iodepth", y="iops", **hci.by("system", table))
    ax.set(xscale="log", ylim=(0, 96e3))
    hci.intervals(ax, table, "iops")
    assert ax.get_ylim()[1] > table["iops_hi"].max()
    hci.label_lines(ax)
    assert ax.get_legend() is None
    hci.finish(ax, source=table.assign(source="a-table"))
    assert ax.get_ylabel() == "IOPS"
    assert "Source: a-table." in ax.figure.get_supxlabel()
    assert {"lab-single", "lab-mirror"} <= {t.get_text() for t in ax.texts}


def test_the_example_in_the_documents_draws_what_it_says():
    section = (ROOT / "docs/EXTEND.md").read_text("utf-8").partition("## A figure of your own")[2]
    [code] = re.findall(r"```python\n(.*?)```", section, re.S)[:1]
    told = {"hci": hci}
    exec(code, told)
    assert told["g"].figure.get_supylabel() == "Mean latency (ms)"
    assert set(re.findall(r"`hci\.(\w+)\(", section.partition("\n## ")[0])) >= {"theme", "by", "intervals", "finish"}


@pytest.mark.parametrize(("first", "frames"), [("import seaborn", "False"), ("import matplotlib", "True")])
def test_a_notebook_that_uses_seaborn_has_the_theme_from_its_import_on(first, frames):
    code = f"{first}; import hcilib, matplotlib; print(matplotlib.rcParams['legend.frameon'])"
    command = [sys.executable, "-m", "IPython", "--quick", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1] == frames


def test_the_report_has_the_theme_where_a_kernel_is_a_fork():
    with plt.rc_context({"legend.frameon": True}), mock.patch.object(pylabtools, "print_figure", print_figure):
        load_ipython_extension(InteractiveShell())
        assert not plt.rcParams["legend.frameon"]


@pytest.mark.parametrize("column", ["verdict", "place", "check"])
def test_a_value_is_named_by_its_column_and_an_analyst_s_own_value_stays(column):
    own = ["outside", "drives", "spread", "reads"]
    table = pd.DataFrame({column: own, "iops": [1.0, 2.0, 3.0, 4.0]})
    ax = sns.barplot(table, x="iops", y=column, **hci.by(column, table, style=False))
    hci.finish(ax)
    known = hci.words(column)
    assert tick_names(ax.yaxis) == [known.get(value, value) for value in own]
    assert ("drives" in known) == (column == "check")


def test_parts_of_a_latency_have_their_names_in_their_own_column():
    table = pd.DataFrame({"part": ["outside", "client"], "iops": [1.0, 2.0]})
    ax = sns.barplot(table, x="iops", y="part", **hci.by("part", table, style=False))
    hci.finish(ax)
    assert tick_names(ax.yaxis) == [hci.words("part")[part] for part in table["part"]]


def test_a_reference_is_shown_and_never_called_the_best():
    table = summary()
    g = drawn(grid(table), table, references=["lab-single", "not-measured"])
    best = g.figure.hci_said.splitlines()
    assert [line for line in best if "lab-single has" in line] == []
    assert sum("lab-mirror has" in line for line in best) == 2
    caption = g.figure.get_supxlabel().replace("\n", " ")
    assert best[-1] in caption
    assert "lab-single" in best[-1]
    assert "not-measured" not in caption
    everything = drawn(grid(table), table)
    assert sum("lab-single has" in line for line in everything.figure.hci_said.splitlines()) == 2
