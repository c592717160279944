"""Figures are read back from their artists, never compared as pictures."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

import hcilib as hci
from hcilib.analyse.physics.capacity import capacity_table
from hcilib.model.schemes import Mirror
from hcilib.show.figures.bars import plot_amplification, plot_capacity, plot_factorial, plot_pareto, plot_traffic
from hcilib.show.figures.curves import plot_demand, plot_panels, plot_scaling, plot_sweep
from hcilib.show.figures.rows import plot_audit, plot_baseline, plot_forest, plot_latency
from hcilib.show.figures.style import looks
from hcilib.show.figures.times import plot_plan

NAN = np.nan


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def summary(n=3, **columns) -> pd.DataFrame:
    base = pd.DataFrame({
        "system": ["lab-single"] * 3 + ["lab-mirror"] * 3,
        "pattern": "4k-randread",
        "iodepth": [1, 8, 32] * 2,
        "iops": [10e3, 50e3, 90e3, 9e3, 40e3, 70e3],
        "n": n,
        "confidence": 0.95,
    })  # fmt: skip
    half = 0.1 if n > 1 else NAN
    return base.assign(iops_lo=base["iops"] * (1 - half), iops_hi=base["iops"] * (1 + half), **columns)


def gid(ax: Axes, name: str) -> list:
    return ax.findobj(lambda artist: artist.get_gid() == name)


def texts(ax: Axes) -> str:
    return " ".join(t.get_text() for t in ax.figure.findobj(plt.Text))


def line_of(ax: Axes, label: str):
    return next(line for line in ax.get_lines() if line.get_label() == label)


def test_sweep_draws_the_table_in_shown_units_on_a_log2_axis():
    ax = plot_sweep(summary())
    line = line_of(ax, "lab-single")
    assert list(line.get_xdata()) == pytest.approx([1, 8, 32], rel=0.06)
    assert list(line.get_ydata()) == [10e3, 50e3, 90e3]
    assert ax.get_xscale() == "log"
    ax.figure.canvas.draw()
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "8", "32"]
    assert ax.get_ylabel() == "IOPS"
    assert "60k" in [t.get_text() for t in ax.get_yticklabels()]
    assert ax.get_ylim()[0] == 0


def test_sweep_latency_is_in_milliseconds():
    ax = plot_sweep(summary().assign(lat_ns=[1e6, 2e6, 4e6] * 2), metric="lat_ns")
    assert list(line_of(ax, "lab-mirror").get_ydata()) == [1, 2, 4]
    assert ax.get_ylabel() == "Mean latency (ms)"
    assert ax.get_yscale() == "log"


def test_sweep_intervals_come_from_the_table():
    ax = plot_sweep(summary())
    segments = [s for c in ax.collections for s in getattr(c, "get_segments", list)()]
    assert sorted(round(s[1][1] - s[0][1]) for s in segments) == sorted(round(0.2 * v) for v in summary()["iops"])


def test_one_run_is_hollow_and_said_so():
    ax = plot_sweep(summary(n=1))
    markers = [line for line in ax.get_lines() if line.get_marker() in "os" and len(line.get_xdata()) == 3]
    assert {to_hex(m.get_markerfacecolor()) for m in markers} == {"#ffffff"}
    assert not [s for c in ax.collections for s in getattr(c, "get_segments", list)() if len(s)]
    assert "n = 1" in texts(ax)
    assert "95 % intervals" in texts(plot_sweep(summary()))


@pytest.mark.parametrize("gone", ["nan", "absent"])
def test_a_missing_cell_breaks_the_line_and_is_marked_never_zero(gone):
    table = summary()
    table = table.assign(iops=table["iops"].where(table.index != 1)) if gone == "nan" else table.drop(index=1)
    ax = plot_sweep(table)
    y = line_of(ax, "lab-single").get_ydata()
    assert np.isnan(y[1])
    assert 0 not in list(y)
    crosses = [m for m in gid(ax, "missing") if len(m.get_xdata())]
    assert [list(m.get_xdata()) for m in crosses] == [[8]]
    assert "no value" in texts(ax)


def test_a_row_without_a_load_is_counted_not_drawn():
    ax = plot_sweep(pd.concat([summary(), summary()[:2].assign(iodepth=NAN)]))
    assert "2 rows without iodepth not drawn" in texts(ax)
    assert len(line_of(ax, "lab-single").get_xdata()) == 3


def test_few_lines_are_named_directly_many_in_a_legend():
    few = plot_sweep(summary().replace("lab-single", "drbd-tcp-pve"))
    assert few.get_legend() is None
    assert "Linstor/DRBD TCP" in texts(few)
    many = pd.concat([summary().query("system == 'lab-single'").assign(system=f"s{i}") for i in range(6)])
    legend = plot_sweep(many).get_legend()
    assert [t.get_text() for t in legend.get_texts()] == [f"s{i}" for i in range(6)]


def test_sweep_refuses_two_rows_for_a_point_and_names_a_missing_column():
    twice = pd.concat([summary(), summary().assign(pattern="4k-randwrite")])
    with pytest.raises(ValueError, match=r"two rows for system 'lab-single' at iodepth 1.*plot_panels"):
        plot_sweep(twice)
    with pytest.raises(ValueError, match="no column 'iodepth'"):
        plot_sweep(summary().drop(columns="iodepth"))
    with pytest.raises(ValueError, match="no column 'iopz'"):
        plot_sweep(summary(), metric="iopz")


def test_source_is_in_the_caption():
    assert "Source: The article." in texts(plot_forest(comparison(), source="The article"))
    assert "Source: a, b." in texts(plot_sweep(summary(source=["a"] * 3 + ["b"] * 3)))


def test_panels_one_per_pattern_in_the_articles_order():
    table = pd.concat([summary().assign(pattern=p) for p in ("1m-write", "4k-randwrite", "4k-randread")])
    axes = plot_panels(table)
    assert [ax.get_title(loc="left") for ax in axes] == ["4k random read", "4k random write", "1M write"]
    assert (
        {t.get_text() for t in axes[0].texts} == {t.get_text() for t in axes[1].texts} != set()
    )  # named at their lines
    assert axes[0].figure.hci_said.startswith("Highest IOPS: 1M write ")
    with pytest.raises(ValueError, match="no row"):
        plot_panels(table[:0])


def test_scaling_marks_the_knee_with_its_interval_and_gains():
    table = pd.DataFrame({"system": "a", "vms": [1, 9, 20], "iops": [120e3, 1.08e6, 1.586e6], "n": 1})
    knee = pd.DataFrame(
        {
            "system": ["a"],
            "knee": [9.0],
            "knee_lo": [8.5],
            "knee_hi": [9.5],
            "slope_before": [120e3],
            "slope_after": [46e3],
        }
    )
    ax = plot_scaling(table, knee)
    assert list(gid(ax, "knee")[0].get_xdata()) == [9, 9]
    assert len(gid(ax, "knee interval")) == 1
    assert "120,000 before, 46,000 after" in texts(ax)
    assert not gid(plot_scaling(table, knee.assign(knee_lo=NAN, knee_hi=NAN)), "knee interval")
    assert not gid(plot_scaling(table, knee.assign(knee=NAN)), "knee")


def comparison() -> pd.DataFrame:
    return pd.DataFrame({
        "system": "lab-mirror", "pattern": ["4k-randwrite", "4k-randread", "4k-randread"], "iodepth": [1, 8, 1],
        "ratio": [0.7, 0.96, NAN], "ratio_lo": [0.65, NAN, NAN], "ratio_hi": [0.75, NAN, NAN], "baseline": "lab-single",
        "metric": "iops", "margin": 0.1, "confidence": 0.95,
    })  # fmt: skip


def test_forest_rows_band_and_reference():
    ax = plot_forest(comparison().replace("lab-single", "drbd-tcp-pve"))
    assert [t.get_text() for t in ax.get_yticklabels()] == [
        "4k random read", "iodepth 1", "iodepth 8", "4k random write", "iodepth 1",
    ]  # fmt: skip
    assert ax.get_xscale() == "log"
    assert list(gid(ax, "reference")[0].get_xdata()) == [1, 1]
    band = gid(ax, "margin")[0]
    assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx((1 / 1.1, 1.1))
    assert ax.get_xlabel() == "IOPS relative to Linstor/DRBD TCP"


def test_forest_hollow_without_interval_and_missing_in_words():
    ax = plot_forest(comparison())
    hollow = [
        line for line in ax.get_lines() if to_hex(line.get_markerfacecolor()) == "#ffffff" and len(line.get_xdata())
    ]
    assert [list(line.get_xdata()) for line in hollow] == [[0.96]]
    assert [t.get_text() for t in gid(ax, "missing")] == ["missing"]
    assert gid(ax, "missing")[0].get_position()[1] == pytest.approx(1, abs=0.4)
    segments = [s for c in ax.collections for s in getattr(c, "get_segments", list)()]
    assert [(s[0][0], s[1][0]) for s in segments] == [pytest.approx((0.65, 0.75))]
    assert "n = 1" in texts(ax)


def test_forest_of_one_system_alone_says_so():
    ax = plot_forest(comparison()[:0])
    assert [t.get_text() for t in gid(ax, "nothing")] == ["One system alone: nothing to compare."]
    assert not ax.axison


def test_forest_refuses_a_mixed_table():
    with pytest.raises(ValueError, match="mixes baseline a, b"):
        plot_forest(comparison().assign(baseline=["a", "b", "b"]))


def test_intervals_at_one_load_stand_beside_each_other_and_single_points_at_their_load():
    [ax] = plot_panels(summary())
    at = {round(line.get_xdata()[0], 3) for line in ax.get_lines() if len(line.get_xdata()) == 3}
    assert len(at) == 2, "two systems, two places"
    assert max(at) / min(at) < 1.1
    told = [said for tip in ax.figure.hci_tips.values() for said in tip.get("t", ())]
    assert {said.partition(":")[0] for said in told} == {"1", "8", "32"}, "pointed at, they say their load"
    [ax] = plot_panels(summary(n=1))
    assert {line.get_xdata()[0] for line in ax.get_lines() if len(line.get_xdata()) == 3} == {1}


def test_one_io_is_a_dot_on_a_log_axis_the_best_first_with_its_value():
    table = pd.DataFrame({"system": ["a", "a", "b"], "pattern": ["4k-randread", "4k-randwrite", "4k-randread"],
                          "lat_ns": [148e3, 195e3, 120e3], "lat_ns_lo": NAN, "lat_ns_hi": NAN, "n": 1})  # fmt: skip
    ax = plot_latency(table)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["4k random read", "b", "a", "4k random write", "a", "b"]
    dots = {y: x for line in ax.get_lines() for x, y in zip(*map(list, line.get_data()), strict=True)}
    assert dots == pytest.approx({1: 0.12, 2: 0.148, 4: 0.195})
    assert ax.get_xscale() == "log"
    assert [t.get_text() for t in gid(ax, "missing")] == ["missing"]
    assert "0.195" in texts(ax)
    assert ax.figure.hci_said == "Best Mean latency (ms): 4k random read b with 0.120; 4k random write a with 0.195."
    with pytest.raises(ValueError, match="several rows"):
        plot_latency(pd.concat([table, table]))


def test_a_closed_loops_latency_stands_over_its_iops_in_the_order_of_iodepth():
    results = summary()[["system", "pattern", "iodepth"]].assign(
        iops=[10e3, 50e3, 49e3, 9e3, 40e3, 41e3], lat_ns=[1e5, 2e5, 8e5, 2e5, 4e5, 9e5]
    )
    [ax] = plot_demand(hci.latency_over_iops(results))
    lines = [np.array(line.get_xydata()).ravel() for line in ax.get_lines() if line.get_linestyle() != "None"]
    assert lines[0] == pytest.approx([9e3, 0.2, 40e3, 0.4, 41e3, 0.9])
    assert lines[1] == pytest.approx([10e3, 0.1, 50e3, 0.2, 49e3, 0.8]), "it turns back where more load gives less"
    assert "No demand was offered" in " ".join(texts(ax).split())
    assert "lower bound" not in texts(ax)


def test_where_demands_were_offered_the_latency_is_theirs_and_the_rest_is_compared():
    results = hci.read_results("data/samples/lab-demand")
    [ax, *_] = plot_demand(hci.latency_over_iops(results, "p99_ns"))
    assert "No demand was offered" not in " ".join(texts(ax).split())
    assert gid(ax, "saturated"), "1.05 of the maximum was not met"
    with pytest.raises(ValueError, match="vary in demand"):
        hci.summarize(results)
    assert set(hci.summarize(hci.closed_loop(results))["n"]) == {4}


def test_the_knee_has_its_ceiling_above_it():
    table = pd.DataFrame({"system": "a", "vms": [1, 9, 20], "iops": [120e3, 1.08e6, 1.586e6], "n": 1})
    ax = plot_scaling(table, ceiling=3e6)
    assert list(gid(ax, "ceiling")[0].get_ydata()) == [3e6, 3e6]
    assert ax.get_ylim()[1] > 3e6
    assert "ceiling: 3M" in texts(ax)
    assert not gid(plot_scaling(table, ceiling=NAN), "ceiling")


def test_capacity_shares_add_up_and_missing_is_no_bar():
    table = pd.DataFrame({"system": ["a", "b", "c"], "efficiency": [0.4, 0.286, NAN], "raw_bytes": 32e12,
                          "reserve_bytes": [0, 6.4e12, 0], "usable_bytes": [12.8e12, 9.152e12, NAN]})  # fmt: skip
    ax = plot_capacity(table)
    usable, reserve, rest = ([p.get_width() for p in c.patches] for c in ax.containers)
    assert usable == pytest.approx([40, 28.6])
    assert reserve == pytest.approx([0, 20])
    assert np.add(np.add(usable, reserve), rest) == pytest.approx(100)
    assert len(gid(ax, "missing")) == 1
    assert "40.0 %  (11.64 TiB)" in texts(ax)


def test_capacity_bars_are_what_is_stored_and_the_number_says_after_deduplication():
    schemes = {"plain": Mirror(2), "dedup": Mirror(2).dedup(0.4), "both": Mirror(2).dedup(0.7).reserve(2, 5)}
    table = capacity_table(schemes, 4 * 2**40)
    ax = plot_capacity(table)
    stored, reserve, rest = ([p.get_width() for p in c.patches] for c in ax.containers)
    assert stored == pytest.approx([40, 50, 50])  # the most usable first
    assert reserve == pytest.approx([20, 0, 0])
    assert rest == pytest.approx([40, 50, 50]), "two copies take half, whatever is in them"
    said = texts(ax)
    assert "50.0 %  (2.00 TiB)" in said
    assert "83.3 %  (3.33 TiB)\nafter deduplication" in said
    assert "133.3 %  (5.33 TiB)\nafter deduplication" in said
    assert said.count("after deduplication") == 2
    assert [t.get_text() for t in ax.figure.legends[0].get_texts()] == [
        "usable, before deduplication",
        "reserve",
        "copies and parity",
    ]
    assert ax.get_xlim() == (0, 100)
    assert [t.get_text() for t in gid(ax, "part")] == ["usable", "reserve", "copies", *["usable", "copies"] * 2]
    assert "deduplication" not in texts(plot_capacity(table[table["system"] == "plain"]))


def test_traffic_and_baseline_pairs():
    traffic = pd.DataFrame(
        {"placement": ["owner", "non-owner"], "ddir": "read", "expected": [0, 1], "observed": [0.02, NAN]}
    )
    ax = plot_traffic(traffic)
    assert [[p.get_width() for p in c.patches] for c in ax.containers] == [[0, 1], [0.02]]
    assert [t.get_text() for t in gid(ax, "missing")] == ["observed: missing"]
    drive = pd.DataFrame({"pattern": ["4k-randread", "1m-read"], "measured": [997e3, 6663], "datasheet": [1e6, NAN]})
    ax = plot_baseline(drive)
    assert ax.get_xscale() == "log"
    assert [gid(ax, name)[0].get_xdata()[0] for name in ("measured", "datasheet")] == [997e3, 1e6]
    assert "997,000, 100 % of the datasheet's 1,000,000" in texts(ax)
    assert [t.get_text() for t in gid(ax, "missing")] == ["6,663, datasheet: missing"]


def test_a_rejected_scheme_is_said_and_its_bars_are_red():
    traffic = pd.DataFrame({"placement": ["owner", "non-owner"], "ddir": "write", "expected": [1, 2],
                            "observed": [2, 2],
                            "ok": pd.array([False, True], dtype="boolean")})  # fmt: skip
    ax = plot_traffic(traffic, title="Mirror(2)")
    assert ax.get_title(loc="left") == "A two-way mirror: rejected: 1 of 2 do not fit"
    assert [to_hex(p.get_facecolor()) for p in ax.containers[1].patches] == ["#b3261e", "#0072b2"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["VM on the owner, write", "VM on another node, write"]
    assert plot_traffic(traffic.assign(ok=True)).get_title(loc="left") == "2 of 2 fit"


def test_what_the_drives_did_stands_beside_what_the_scheme_costs_and_what_does_not_fit_is_red():
    sources = ["data/samples/box/drives-raid5", "data/samples/box/drives-drbd"]
    schemes = {name: hci.parse_scheme(hci.load_systems()[name].scheme) for name in ("box-raid5", "box-drbd")}
    by = ["system", "pattern", "iodepth", "placement"]
    table = hci.amplification(hci.read_results(sources), hci.read_drives(sources), schemes, by)
    axes = plot_amplification(table).axes
    assert [ax.get_title(loc="left") for ax in axes] == ["Drive reads", "Drive writes", "Bytes read", "Bytes written"]
    for ax, (measure, own) in zip(axes, table.groupby("measure", sort=False), strict=True):
        expected, fits, wrong = ax.lines
        assert expected.get_color() == "#9aa0a6", measure
        assert expected.get_xdata() == pytest.approx(own["expected"], nan_ok=True)
        assert wrong.get_xdata() == pytest.approx(own.loc[own["ok"].eq(False), "seen"])
        assert len(fits.get_xdata()) + len(wrong.get_xdata()) == len(own)
    assert table["ok"].eq(False).any()


def test_factorial_missing_cells_are_hatched():
    table = pd.DataFrame({"scheme": ["mirror", "mirror", "parity"], "writes": [0, 30, 0], "iops": [1e6, 5e5, 8e5]})
    ax = plot_factorial(table, "scheme", "writes", "iops")
    assert len(gid(ax, "missing")) == 1
    assert gid(ax, "missing")[0].get_hatch()
    assert gid(ax, "missing")[0].get_xy() == pytest.approx((0.52, 0.54))
    for text in ("1,000,000", "500,000", "800,000", "missing"):
        assert text in texts(ax)


def test_factorial_values_stand_side_by_side():
    table = pd.DataFrame({"scheme": ["a", "b"], "writes": [0, 0], "iops": [1e6, 5e5], "node_cpu_pct": [80.0, 97.0]})
    left, right = plot_factorial(table, "scheme", "writes", ["iops", "node_cpu_pct"])
    assert (left.get_title(loc="left"), right.get_title(loc="left")) == ("IOPS", "Node CPU (%)")
    assert [t.get_text() for t in right.texts] == ["80.0", "97.0"]


def test_pareto_front_is_the_tables_and_missing_is_named():
    table = pd.DataFrame({"system": list("abcd"), "usable_tib": [10, 8, 6, NAN], "iops": [1e6, 9e5, 2e6, 1e6],
                          "front": pd.array([True, False, True, pd.NA], dtype="boolean")})  # fmt: skip
    ax = plot_pareto(table)
    assert list(gid(ax, "front")[0].get_xdata()) == [0, 6, 10, 10]
    assert list(gid(ax, "front")[0].get_ydata()) == [2e6, 2e6, 1e6, 0]
    assert "Missing: d." in texts(ax)
    assert ax.get_xlabel() == "Usable capacity (TiB)"
    names = {t.get_text(): t for t in ax.texts}
    assert set(names) == {"a", "b", "c"}
    assert names["a"].get_horizontalalignment() == "right", "named on the side where there is room"


def test_audit_counts_what_holds_and_what_could_not_be_checked():
    table = pd.DataFrame({"check": ["little"] * 4, "ratio": [1, 1.02, 1.7, NAN],
                          "ok": pd.array([True, True, False, pd.NA], dtype="boolean")})  # fmt: skip
    ax = plot_audit(table)
    assert "2 of 3 hold, 1 not checkable" in texts(ax)
    points = {line.get_marker(): list(line.get_xdata()) for line in ax.get_lines() if line.get_marker() in "oX"}
    assert points == {"o": [1, 1.02], "X": [1.7]}
    assert len(gid(ax, "gate")) == 1


def test_audit_names_who_breaks_a_law_and_gives_ceilings_their_own_axis():
    rows = pd.DataFrame({"system": "lab-mirror", "pattern": "4k-randread", "iodepth": [1, 8, 1, 8],
                         "check": ["little", "little", "ceiling", "ceiling"], "ratio": [1.0, 1.4, 0.001, 0.9],
                         "ok": pd.array([True, False, True, True], dtype="boolean")})  # fmt: skip
    ax = plot_audit(rows)
    laws, ceilings = ax.figure.axes
    assert [t.get_text() for t in gid(laws, "offender")] == ["× lab-mirror, 4k random read at iodepth 8: 1.4×"]
    assert [t.get_text() for t in laws.get_yticklabels()] == ["Little's law\n1 of 2 hold"]
    assert [t.get_text() for t in ceilings.get_yticklabels()] == ["Share of the ceiling\n2 of 2 hold"]


def test_plan_timeline_starts_each_step_where_the_last_ended():
    frame = pd.DataFrame(
        {
            "kind": ["prefill", "canary", "measure"],
            "pattern": ["1m-write", "4k-randread", "4k-randread"],
            "duration_s": [0.0, 3600.0, 7200.0],
        }
    )
    ax = plot_plan(frame)
    bars = [(p.get_x(), p.get_width()) for c in ax.containers for p in c.patches]
    assert (0, 1) in bars
    assert (1, 2) in bars
    assert len([m for m in gid(ax, "unknown duration") if len(m.get_xdata())]) == 1
    assert "3.0 hours of runtime" in texts(ax)
    ax = plot_plan(frame.assign(iodepth=[8, 1, 32], bytes_written=[2**34, 0, 0]))
    assert [t.get_text() for t in gid(ax, "iodepth")] == ["1", "32"]
    assert [t.get_text() for t in gid(ax, "written")] == ["16 GiB"]


def test_a_figure_can_be_saved(tmp_path):
    ax = plot_sweep(summary())
    ax.figure.savefig(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 1000


def at_one_load(systems=("birch", "cedar", "oak")) -> pd.DataFrame:
    return pd.DataFrame({
        "system": systems, "pattern": "4k-randread", "iodepth": 8, "iops": [1e3, 2e3, 3e3][: len(systems)], "n": 3,
        "iops_lo": [9e2, 1.9e3, 2.9e3][: len(systems)], "iops_hi": [1.1e3, 2.1e3, 3.1e3][: len(systems)],
        "confidence": 0.95,
    })  # fmt: skip


def marked(ax: Axes) -> list:
    """What is drawn as points."""
    return [line for line in ax.get_lines() if line.get_marker() in tuple("osD^vPX<>hp*") and len(line.get_xdata())]


def test_systems_at_one_load_stand_near_each_other_and_the_lines_to_their_names_are_no_curves():
    [ax] = plot_panels(at_one_load(), "iops")
    points = [x for line in marked(ax) for x in line.get_xdata()]
    least, most = np.log2(ax.get_xlim())
    assert len(set(points)) == 3
    assert np.ptp(np.log2(points)) < 0.3 * (most - least)
    leaders = [text.arrow_patch for text in ax.texts if text.arrow_patch is not None]
    assert len(leaders) == 3
    assert all(arrow.get_linestyle() not in ("-", "solid") for arrow in leaders)


def test_a_forest_has_the_colours_of_the_panels_beside_it():
    """Of systems nobody chose a colour for, too: two of these would take the same one, each drawn alone."""
    table = at_one_load(("birch", "cedar"))
    assert looks(["birch"])["birch"][0] == looks(["cedar"])["cedar"][0]
    ratios = pd.DataFrame({"system": ["cedar"], "baseline": "birch", "pattern": "4k-randread", "iodepth": 8,
                           "ratio": 2.0, "ratio_lo": 1.9, "ratio_hi": 2.1, "verdict": "higher",
                           "metric": "iops"})  # fmt: skip
    [mark] = marked(plot_forest(ratios))
    assert to_hex(mark.get_color()) == to_hex(looks(table["system"])["cedar"][0])


def test_a_map_of_loads_is_no_wider_than_a_page_shows():
    results = hci.published().query("system == 's2d-nmap-mirror' and vms > 1")
    axes = hci.plot_loads(hci.loads(results))
    assert axes.flat[0].figure.get_figwidth() <= 11.5
