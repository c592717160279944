"""Figures of three cells read back from what is drawn, and residuals of plausibility checks."""

import json

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import seaborn as sns
from matplotlib.collections import PathCollection, PolyCollection

import hcilib as hci

RAID5, DRBD = "data/samples/box/box-raid5-latency", "data/samples/box/box-drbd-latency"
STAMPED, LAB = "data/samples/box/stamped-drbd", "data/samples/lab-single"
NAMES = ("p50_ns", "p99_ns")


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def one():
    return hci.select(hci.read_results([RAID5, DRBD]), where={"vms": 1, "numjobs": 1, "iodepth": 1})


@pytest.fixture(scope="module")
def bins():
    return hci.read_bins([RAID5, DRBD])


def test_shares_hold_every_io_and_are_a_whole_in_each_group(one, bins):
    shares = hci.latency_shares(bins, one)
    done = (one["iops"] * one["runtime_s"]).sum()
    assert shares["count"].sum() == pytest.approx(done, rel=0.001)
    assert shares.groupby(["system", "pattern"])["pct_of_ios"].sum().to_numpy() == pytest.approx(100)
    assert (shares["lat_hi_ns"] / shares["lat_lo_ns"]).to_numpy() == pytest.approx(10 ** (1 / 24))
    half = hci.latency_shares(bins, one[one["block"] == 1])
    assert 0 < half["count"].sum() < shares["count"].sum()
    with pytest.raises(ValueError, match="iodepth"):  # loads are never pooled
        hci.latency_shares(hci.read_bins(LAB), hci.read_results(LAB))


def is_of(table: pd.DataFrame, system: str, pattern: str) -> pd.Series:
    return (table["system"] == system) & (table["pattern"] == pattern)


def drawn_by(notebook: str, drawing: str, before: int = 1, **names) -> sns.FacetGrid:
    """Run the cell of a notebook that draws, and those before it, with frames of one's own."""
    cells = json.loads((hci.ROOT / f"notebooks/{notebook}.ipynb").read_text("utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    [at] = [n for n, source in enumerate(sources) if drawing in source]
    imports = [line for source in sources for line in source.splitlines() if line.startswith(("import ", "from "))]
    own = {**names, "print": lambda *_: None}
    exec("\n".join([*imports, *sources[at - before : at + 1]]), own)
    return own["g"]


def test_a_distribution_has_the_shares_and_marks_are_the_percentiles(one, bins):
    g = drawn_by("05_latency", "sns.histplot", one=one, sources=[RAID5, DRBD], tail="p99_ns")
    shares = hci.latency_shares(bins, one.query("sync != 2"))
    tables = {name: hci.summarize(one.dropna(subset=[name]), name) for name in NAMES}
    assert set(g.axes_dict) == set(shares[["pattern", "system"]].itertuples(index=False, name=None))
    for (pattern, system), ax in g.axes_dict.items():
        own = shares[is_of(shares, system, pattern)]
        [steps] = [c for c in ax.collections if isinstance(c, PolyCollection)]
        corners = steps.get_paths()[0].vertices
        heights = {round(x, 9): corners[np.isclose(corners[:, 0], x), 1] for x in own["lat_lo_ns"] / 1e6}
        for low, share in zip(own["lat_lo_ns"] / 1e6, own["pct_of_ios"], strict=True):
            assert np.isclose(heights[round(low, 9)], share).any()
        known = [v / 1e6 for name, table in tables.items() for v in table.loc[is_of(table, system, pattern), name]]
        marks = [c for c in ax.collections if isinstance(c, PathCollection)]
        dots = [x for each in marks for x in each.get_offsets()[:, 0]]
        assert sorted(dots) == pytest.approx(sorted(known))


def test_a_lane_has_the_phases_of_its_run():
    source = [STAMPED]
    series, events, hosts = (read(source) for read in (hci.read_series, hci.read_events, hci.read_hosts))
    costs = hci.failures(series, events, hosts, silences=hci.read_io_gaps(source))
    g = drawn_by("13_failure", "hci.bars", costs=costs)
    lanes = hci.phases(costs)
    for (failure, _), ax in g.axes_dict.items():
        names = [tick.get_text() for tick in ax.get_yticklabels()]
        own = lanes[lanes["failure"] == failure]
        rows = ("round " + own["block"].astype(str) + ", " + own["place"]).str.removesuffix(", ").map(names.index)
        expected = sorted(zip(rows, own["from_s"], own["duration_s"], strict=True))
        bars = [(round(b.get_y() + b.get_height() / 2), b.get_x(), b.get_width()) for b in ax.patches]
        assert np.array(sorted(bars)) == pytest.approx(np.array(expected))
        outages = own.loc[own["phase"] == "outage", "duration_s"].map("{:.2g} s".format)
        assert sorted(t.get_text() for t in ax.texts if t.get_text().endswith(" s")) == sorted(outages)


def test_a_step_of_a_plan_begins_where_the_last_ended_and_an_unknown_one_has_no_width():
    kinds, durations_s = ["prefill", "canary", "measure"], [np.nan, 3600.0, 7200.0]
    steps = pd.DataFrame(
        {"kind": kinds, "pattern": ["1m-write", "4k-randread", "4k-randread"], "duration_s": durations_s}
    )
    g = drawn_by("01_plan", "hci.bars", before=0, steps=steps)
    assert [(bar.get_x(), bar.get_width()) for bar in g.ax.patches] == [(0, 0), (0, 1), (1, 2)]
    assert "hours" in g.ax.get_xlabel()


@pytest.mark.parametrize(
    ("ratio", "least", "most", "ok", "residual", "verdict"),
    [
        (1.0025, 0.999, 1.001, False, 2.5, "outside"),
        (1.06, 0.9, 1.1, True, 0.6, "inside"),
        (0.95, 0.9, 1.1, True, -0.5, "inside"),
        (1.002, 0.999, 1.001, True, 2.0, "rounding"),
        (0.5, 0.0, 1.0, True, 0.5, "inside"),
        (1.5, 0.0, 1.0, False, 1.5, "outside"),
        (1.05, 0.0, 1.05, True, 1.0, "inside"),
    ],
)
def test_a_residual_is_in_the_row_s_own_tolerance(ratio, least, most, ok, residual, verdict):
    row = pd.DataFrame({"ratio": [ratio], "least": [least], "most": [most], "ok": pd.array([ok], "boolean")})
    [judged] = hci.residuals(row).to_dict("records")
    assert judged["residual"] == pytest.approx(residual)
    assert judged["verdict"] == verdict


def test_what_is_inside_its_tolerance_is_never_outside_in_the_audit_of_an_article():
    results = hci.read_results("data/published", "starwind-s2d-rdma-hyperv")
    judged = hci.residuals(hci.audit(results))
    assert len(judged) > 200
    assert (judged["residual"].abs() <= 1 + 1e-6).eq(judged["verdict"] == "inside").where(judged["ok"], True).all()
    assert (judged.loc[~judged["ok"].astype(bool), "residual"].abs() > 1).all()
