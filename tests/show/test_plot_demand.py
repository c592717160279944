"""The picture of latency over delivered IOPS, read back from its artists."""

import matplotlib
import pandas as pd
import pytest

import hcilib as hci

matplotlib.use("agg")


def curve(**columns):
    rows = [
        ("A", "p50_ns", 300, 1e6, True),
        ("A", "p50_ns", 600, 2e6, True),
        ("A", "p50_ns", 700, 9e6, False),
        ("A", "p99_ns", 300, 3e6, True),
        ("A", "p99_ns", 600, 6e6, True),
        ("A", "p99_ns", 700, 30e6, False),
    ]
    table = pd.DataFrame(rows, columns=["system", "metric", "iops", "latency_ns", "open_loop"])
    ends = {"latency_ns_lo": table["latency_ns"] * 0.9, "latency_ns_hi": table["latency_ns"] * 1.1}
    return table.assign(**({"pattern": "4k-randread", **ends, "n": 5, "confidence": 0.95} | columns))


def test_what_was_not_met_is_hollow_and_not_joined():
    [ax] = hci.plot_demand(curve(), limits={"p99_ns": 5e6})
    hollow = [line for line in ax.lines if line.get_gid() == "saturated"]
    assert sorted((line.get_xdata().tolist(), line.get_ydata().tolist()) for line in hollow) == [
        ([700], [9]),
        ([700], [30]),
    ]
    joined = [line for line in ax.lines if line.get_linestyle() in ("-", "--") and line.get_gid() is None]
    assert [line.get_xdata().tolist() for line in joined] == [[300, 600], [300, 600]]
    assert [line.get_ydata()[0] for line in ax.lines if line.get_gid() == "limit"] == [5]
    assert ax.get_yscale() == "log"
    assert "Hollow: the demand was not met" in ax.figure._supxlabel.get_text()
    [met] = hci.plot_demand(curve(open_loop=True))
    assert "Hollow" not in met.figure._supxlabel.get_text()


def test_nothing_to_draw_is_said():
    with pytest.raises(ValueError, match="no demand was offered"):
        hci.plot_demand(curve().iloc[:0])


def test_neighbours_stand_beside_a_line_for_alone_a_panel_a_metric():
    rows = [{"system": "A", "tenant": tenant, "beside": beside, "pattern": "4k-randread", "block": block,
             "iops": kept + block, "p99_ns": 1e9 / kept}
            for tenant, other in (("a", "b"), ("b", "a")) for block in (1, 2, 3)
            for beside, kept in ((None, 1000), (other, 500), (f"{other}-rate5m", 900))]  # fmt: skip
    axes = hci.plot_neighbours(hci.neighbours(pd.DataFrame(rows)))
    assert [ax.get_xlabel() for ax in axes] == ["IOPS relative to alone", "p99 latency relative to alone"]
    drawn = {x for line in axes[0].lines for x in line.get_xdata() if len(line.get_xdata()) == 2}
    assert any(abs(x - 0.5) < 0.01 for x in drawn)
    with pytest.raises(ValueError, match="no tenant was measured beside another"):
        hci.plot_neighbours(hci.neighbours(pd.DataFrame(rows)).iloc[:0])


def test_of_a_closed_loop_one_run_is_hollow_as_everywhere():
    closed = curve(iodepth=1.0, open_loop=True).assign(
        latency_ns_lo=lambda t: t["latency_ns_lo"].where(t["iops"] < 600), n=[5, 1, 1] * 2
    )
    [ax] = hci.plot_demand(closed)
    faces = {tuple(line.get_xdata()): line.get_markerfacecolor() for line in ax.lines if line.get_linestyle() == "None"}
    assert faces[600, 700] == "white"
    assert faces[300,] != "white"
    assert "Hollow: n = 1" in ax.figure._supxlabel.get_text()
