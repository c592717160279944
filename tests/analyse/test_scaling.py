import numpy as np
import pandas as pd
import pytest
from simulate import runs

from hcilib import saturation

NINE = pd.DataFrame({"vms": range(1, 21), "iops": np.cumsum([120.0] * 9 + [46.0] * 11)})
"""120 a VM up to 9 VMs, then 46."""


def measured(truth, vms, repeats=5, sd=0.02, seed=0, **columns):
    """A results table of lognormal runs around truth(vms)."""
    vms = np.repeat(np.asarray(vms), repeats)
    level = runs(np.random.default_rng(seed), vms.shape, sd=sd)
    return pd.DataFrame({
        "system": "a", "pattern": "4k-randread", "bs_bytes": 4096, "vms": vms, "rep": np.arange(vms.size) % repeats,
        "iops": truth(vms) * level, **columns,
    })  # fmt: skip


def bend(vms):
    return np.where(vms < 9, 120 * vms, 1080 + 46 * (vms - 9)).astype(float)


def test_knee_reference():
    row = saturation(NINE, by=[]).iloc[0]
    assert row.knee == 9.0
    assert row.slope_before == pytest.approx(120, rel=1e-9)
    assert row.slope_after == pytest.approx(46, rel=1e-9)
    assert row.peak == pytest.approx(1586)
    assert row.peak_vms == 20
    assert row.smallest_vms == 19  # 1540 of 1586 is 97 %, 1494 is 94 %
    assert row.model == "two-segment"
    assert np.isnan([row.knee_lo, row.knee_hi]).all()
    assert "single-runs" in row.warnings.split()


def test_knee_between_counts_and_on_other_scales():
    vms = np.array([1, 2, 4, 8, 12, 16, 20])
    table = pd.DataFrame({"vms": vms, "iops": np.where(vms < 6.25, 7e4 * vms, 7e4 * 6.25 + 1e3 * (vms - 6.25))})
    row = saturation(table, by=[]).iloc[0]
    assert row.knee == 6.25
    assert row.slope_after == pytest.approx(1e3, rel=1e-6)
    scaled = saturation(table.assign(iops=table["iops"] * 1e-3), by=[]).iloc[0]
    assert scaled.knee == row.knee
    assert scaled.slope_before == pytest.approx(row.slope_before * 1e-3)


def test_errors_are_relative():
    """One point 10 % off weighs the same at 2 VMs as at 20: the least squares of the definition, by brute force."""
    vms = np.arange(1.0, 21)
    y = bend(vms) * np.where(vms == 20, 1.1, 1.0) * (1 + 0.01 * np.sin(vms))
    row = saturation(pd.DataFrame({"vms": vms, "iops": y}), by=[]).iloc[0]
    found = {}
    for knot in np.arange(2, 19.01, 0.25):
        design = np.column_stack([np.ones(20), vms, np.maximum(vms - knot, 0)]) / y[:, None]
        found[knot] = np.linalg.lstsq(design, np.ones(20))[1][0]
    assert row.knee == min(found, key=found.get)


def test_interval_covers(monkeypatch):
    monkeypatch.setattr("hcilib.analyse.scaling.DRAWS", 300)
    rows = pd.concat([saturation(measured(bend, [1, 2, 4, 6, 8, 10, 12, 16, 20], 3, 0.03, seed)) for seed in range(80)])
    assert ((rows["knee_lo"] <= 9) & (rows["knee_hi"] >= 9)).mean() >= 0.89
    assert 3 < (rows["knee_hi"] - rows["knee_lo"]).mean() / rows["knee"].std() < 6  # 4 if all were normal


def test_a_straight_line_has_no_knee():
    found = [
        saturation(measured(lambda n: 100 + 60.0 * n, [1, 2, 4, 8, 12, 16, 20], 3, 0.03, seed)).iloc[0]
        for seed in range(20)
    ]
    lines = [row for row in found if row.model == "line"]
    assert len(lines) >= 16
    for row in lines:
        assert np.isnan([row.knee, row.knee_lo, row.knee_hi]).all()
        assert row.slope_before == row.slope_after == pytest.approx(60, rel=0.05)
        assert "no-knee" in row.warnings.split()


def test_steepening_is_no_saturation():
    row = saturation(measured(lambda n: np.where(n < 10, 50.0 * n, 500 + 100 * (n - 10)), range(1, 21))).iloc[0]
    assert row.slope_after > row.slope_before
    assert "steepens" in row.warnings.split()


def test_smallest_fleet_needs_its_lower_bound_near_the_peak():
    def plateau(n):
        return np.minimum(n, 8) * 100.0 * np.where(n == 6, 8 * 0.955 / 6, 1)  # 6 VMs: 95.5 % of the peak

    exact = saturation(measured(plateau, [1, 2, 4, 6, 8, 12, 16], sd=1e-6)).iloc[0]
    assert exact.smallest_vms == 6
    noisy = saturation(measured(plateau, [1, 2, 4, 6, 8, 12, 16], repeats=3, sd=0.02)).iloc[0]
    assert noisy.smallest_vms >= 8
    hopeless = saturation(measured(plateau, [1, 2, 4, 6, 8, 12, 16], repeats=2, sd=0.5)).iloc[0]
    assert np.isnan(hopeless.smallest_vms)
    assert "no-bound" in str(hopeless.warnings)


def test_few_counts_still_give_a_row():
    row = saturation(measured(bend, [1, 2, 3, 4], repeats=3)).iloc[0]
    assert np.isnan(row.knee)
    assert row.model == ""
    assert "few-points" in row.warnings.split()
    assert row.smallest_vms == 4
    assert saturation(measured(bend, []), by=["system"]).empty


def test_runs_that_do_not_count():
    table = measured(bend, range(1, 21)).assign(valid=True)
    clean = saturation(table).iloc[0]
    spoilt = pd.concat([
        table, table.iloc[:3].assign(iops=[np.nan, 0, -5]), table.iloc[:2].assign(iops=1e9, valid=False),
    ], ignore_index=True)  # fmt: skip
    row = saturation(spoilt).iloc[0]
    assert row.drop("warnings").equals(clean.drop("warnings"))
    assert "invalid" in row.warnings.split()
    nothing = saturation(table.assign(iops=np.nan)).iloc[0]
    assert nothing.n == 0
    assert np.isnan(nothing.peak)


def test_a_smooth_curve_has_no_knee():
    """Forty hyperbolas, measured with 1 % noise: each bends, none has a corner."""
    rng = np.random.default_rng(8)
    vms = np.repeat(np.arange(1, 13), 3)
    for _ in range(40):
        iops = 1000 * vms / (1 + rng.uniform(0.05, 0.3) * (vms - 1)) * np.exp(0.01 * rng.standard_normal(len(vms)))
        row = saturation(pd.DataFrame({"vms": vms, "iops": iops}), by=[]).iloc[0]
        assert row["model"] == "smooth"
        assert np.isnan(row["knee"])
