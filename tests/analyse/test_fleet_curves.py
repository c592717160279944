"""The two ways an article tells its scaling curve, and the sentences made of the knee."""

import numpy as np
import pandas as pd
import pytest

from hcilib.analyse.curves.scaling import curve_from_gains, fleet_curves, saturation, saturation_sentences


def told(vms: int = 20) -> pd.DataFrame:
    """120 per VM to the 9th, 46 after; one printed total at the end that is larger than the sum."""
    gains = pd.DataFrame({"first": [1, 10], "last": [9, vms], "gain": [120.0, 46.0]})
    curve = curve_from_gains(gains).rename(columns={"iops": "iops_from_gains"})
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


def test_a_table_without_iops_is_refused():
    with pytest.raises(ValueError, match="no column 'iops'"):
        fleet_curves(pd.DataFrame({"vms": [1]}))


def test_sentence_of_a_knee_states_gains_knee_peak_and_plateau():
    saturated = saturation(fleet_curves(told()), by=("system", "pattern", "curve"))
    sentences = dict(zip(saturated["curve"], saturation_sentences(saturated, {"a": "System A"}), strict=True))
    assert sentences["gains added up"] == (
        "System A, 4k random read, gains added up: 120 IOPS per added VM up to 9 VMs, 46 after; 1,586 IOPS at 20 VMs, "
        "and 95 % of that from 19 VMs on."
    )
    assert sentences["printed"] == (
        "System A, 4k random read, printed: 1,700 IOPS at 20 VMs, and 95 % of that from 20 VMs on; "
        "too few VM counts for a knee (1, it takes 5)."
    )


def test_sentence_names_the_interval_where_runs_were_repeated():
    rng = np.random.default_rng(1)
    curve = told().drop(columns="iops").rename(columns={"iops_from_gains": "iops"})
    runs = pd.concat([curve.assign(rep=r, iops=curve["iops"] * np.exp(rng.normal(0, 0.01, 20))) for r in range(5)])
    row = saturation(runs)
    [sentence] = saturation_sentences(row)
    assert f"(95 % interval {row['knee_lo'][0]:g} to {row['knee_hi'][0]:g})" in sentence


def test_sentences_of_a_line_a_usl_and_nothing():
    vms = np.arange(1, 11)
    line = pd.DataFrame({"system": "a", "pattern": "p", "vms": vms, "iops": 10.0 * vms})
    assert "no knee, 10 IOPS per added VM throughout; 100 IOPS at 10 VMs" in saturation_sentences(saturation(line))[0]
    n = np.array([1, 18, 36, 72, 108, 144, 216.0])
    usl = line.head(7).assign(vms=n, iops=90 * n / (1 + 0.03 * (n - 1) + 1e-4 * n * (n - 1)))
    assert "fits best and peaks at 98.5 VMs" in saturation_sentences(saturation(usl))[0]
    noisy = pd.concat([line.head(2), line.head(2).assign(iops=[1e3, 1e4])])
    assert "IOPS at 2 VMs; too few" in saturation_sentences(saturation(noisy))[0]  # no plateau: nothing said of it
    empty = saturation(line.assign(iops=np.nan))
    assert list(saturation_sentences(empty)) == ["a, p: no value at any VM count."]
    assert saturation_sentences(empty.head(0)).empty
