"""Latency ridges and the way from drives to clients, read back from what is drawn."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib.show.figures.style import pattern_label

RAID5, DRBD = "data/samples/box/box-raid5-latency", "data/samples/box/box-drbd-latency"
NAMES = ("p50_ns", "p99_ns")


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def one():
    return hci.one_in_flight(hci.read_results([RAID5, DRBD]))


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


def test_loads_are_never_pooled_into_one_ridge():
    runs, bins = (read(hci.samples()["lab-single"]) for read in (hci.read_results, hci.read_bins))
    with pytest.raises(ValueError, match="iodepth"):
        hci.latency_shares(bins, runs)


def is_of(table: pd.DataFrame, system: str, pattern: str) -> pd.Series:
    return (table["system"] == system) & (table["pattern"] == pattern)


def test_a_ridge_peaks_where_most_ios_are_and_marks_are_the_percentiles(one, bins):
    shares = hci.latency_shares(bins, one)
    tables = [hci.summarize(one.dropna(subset=[name]), name) for name in NAMES]
    axes = hci.plot_ridges(shares, tables)
    patterns = list(dict.fromkeys(one["pattern"]))
    assert len(axes) == len(patterns)
    for ax, title in zip(axes, (ax.get_title(loc="left") for ax in axes), strict=True):
        [pattern] = [p for p in patterns if title == pattern_label(p)]
        ridges = [patch for patch in ax.patches if patch.get_gid() == "ridge"]
        for row, (ridge, system) in enumerate(zip(ridges, ("box-drbd", "box-raid5"), strict=True)):
            own = shares[is_of(shares, system, pattern)]
            peak = own.loc[own["pct_of_ios"].idxmax(), "lat_lo_ns"] / 1e6
            along, height = ridge.get_xy()[:, 0], row - ridge.get_xy()[:, 1]
            assert along[height.argmax()] == pytest.approx(peak)
            known = [value for table, name in zip(tables, NAMES, strict=True)
                     for value in table.loc[is_of(table, system, pattern), name] / 1e6]  # fmt: skip
            marks = [m for m in ax.get_lines() if str(m.get_gid()).startswith("mark-")]
            drawn = [mark.get_xdata()[0] for mark in marks if list(mark.get_ydata()) == [row]]
            assert sorted(drawn) == pytest.approx(sorted(known))


@pytest.fixture
def best() -> pd.DataFrame:
    """Of three copies; a network that limits, one that does not, and one that nobody measured."""
    rows = {"system": "box-mirror3", "pattern": ["a", "b", "c", "d"], "iops": [90.0, 190.0, 195.0, 210.0]}
    return pd.DataFrame(rows | {"drives_iops": 200.0, "network_iops": [100.0, 9000.0, np.nan, np.nan]})


def test_the_losses_of_a_path_add_up_to_what_the_drives_give(best):
    steps = hci.path_steps(best, pd.Series(600.0, best.index))
    lost = steps.pivot_table(index="pattern", columns="step", values="lost_iops", dropna=False)
    assert lost["scheme"].eq(400).all()
    assert lost["network"].tolist()[:2] == [100, 0]
    assert lost["network"].isna().tolist() == [False, False, True, True]
    assert lost["software"].tolist() == [10, 10, 5, -10]
    clients = steps[steps["step"] == "clients"].set_index("pattern")
    assert (600 - lost.sum(axis=1)).to_numpy() == pytest.approx(clients["iops"].to_numpy())
    assert clients["pct_of_drives"].tolist() == pytest.approx([15, 95 / 3, 32.5, 35])


def test_a_path_without_a_ceiling_has_no_row(best):
    assert hci.path_steps(best.assign(drives_iops=np.nan), pd.Series(600.0, best.index)).empty
    with pytest.raises(ValueError, match="no row"):
        hci.plot_waterfall(hci.path_steps(best, pd.Series(np.nan, best.index)))


def test_each_bar_of_a_waterfall_begins_where_the_one_above_ends(best):
    axes = hci.plot_waterfall(hci.path_steps(best, pd.Series(600.0, best.index)))
    bars = [[(b.get_x(), b.get_x() + b.get_width()) for b in ax.patches] for ax in axes]
    assert bars[0] == [(0, 600), (200, 600), (100, 200), (90, 100), (0, 90)]
    assert bars[3][3:] == [(200, 210), (0, 210)]


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
    claims = hci.published_claims(source="starwind-s2d-rdma-hyperv")
    checks = hci.claim_checks(hci.check_claims(results, claims, hci.published_facts()), claims)
    found = hci.residuals(checks)
    assert (found.loc[found["verdict"] == "outside", "residual"].abs() > 1).all()
