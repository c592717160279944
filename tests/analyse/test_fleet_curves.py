"""The two ways an article tells its scaling curve, and the sentences made of the knee."""

import numpy as np
import pandas as pd

from hcilib import fleet_curves


def told(vms: int = 20) -> pd.DataFrame:
    """120 per VM to the 9th, 46 after; one printed total at the end that is larger than the sum."""
    counts = np.arange(1, vms + 1)
    curve = pd.DataFrame({"vms": counts, "iops_from_gains": np.where(counts < 10, 120.0, 46.0).cumsum()})
    return curve.assign(iops=np.where(curve["vms"] == vms, 1700.0, np.nan), system="a", pattern="4k-randread")


def test_both_ways_are_kept_apart_and_nothing_is_filled_in():
    curves = fleet_curves(told())
    assert list(curves["curve"].unique()) == ["printed", "gains added up"]
    at_20 = curves[curves["vms"] == 20].set_index("curve")["iops"]
    assert at_20["printed"] == 1700
    assert at_20["gains added up"] == 9 * 120 + 11 * 46
    assert curves[curves["curve"] == "printed"]["iops"].isna().sum() == 19
    assert "iops_from_gains" not in curves
    assert curves.index.is_unique


def test_a_pattern_without_gains_is_told_once():
    silent = told().assign(pattern="1m-read", iops_from_gains=np.nan)
    curves = fleet_curves(pd.concat([told(), silent], ignore_index=True))
    assert list(curves[curves["pattern"] == "1m-read"]["curve"].unique()) == ["printed"]


def test_own_runs_are_one_curve_and_the_input_is_left_alone():
    runs = pd.DataFrame({"vms": [1, 2], "iops": [5.0, 9.0]})
    curves = fleet_curves(runs)
    assert list(curves["curve"]) == ["measured", "measured"]
    assert list(curves["iops"]) == [5, 9]
    assert "curve" not in runs
