"""Latency ridges read back from what is drawn, and residuals of plausibility checks."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
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
