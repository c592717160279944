"""Sentences of fleets: the numbers are the rows', of every shape of a curve and every bottleneck."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from hcilib.analyse.curves.scaling import MEASURED
from hcilib.say.curves.scaling import APART, TOO_LOW
from hcilib.say.words import number
from tests.style import faults


def fleet(iops, vms=None, runs=1, spread=0.0, **columns) -> pd.DataFrame:
    draw = np.random.default_rng(4)
    vms = range(1, len(iops) + 1) if vms is None else vms
    rows = [
        {"vms": vm, "rep": rep, "iops": value * np.exp(spread * draw.standard_normal())}
        for vm, value in zip(vms, iops, strict=True)
        for rep in range(runs)
    ]
    return pd.DataFrame(rows).assign(**{"system": "a", "pattern": "4k-randread"} | columns)


KNEE = [100 * min(n, 6) + 10 * max(n - 6, 0) for n in range(1, 13)]
CURVES = {
    "two-segment": fleet(KNEE),
    "two-segment, repeated": fleet(KNEE, runs=4, spread=0.01),
    "line": fleet([10.0 * n for n in range(1, 11)]),
    "smooth": fleet([1e4 * n / (1 + 0.1 * (n - 1)) for n in range(1, 13)], runs=3, spread=0.001),
    "": fleet([100, 190]),
    ", one fleet": fleet([100]),
}


@pytest.mark.parametrize("shape", CURVES)
def test_each_shape_of_a_curve_is_said_with_its_numbers(shape):
    row = hci.saturation(CURVES[shape]).iloc[0]
    assert row["model"] == shape.partition(",")[0]
    text = hci.saturation_sentences(row.to_frame().T, {"a": "Array A"}).item()
    assert faults(text) == []
    assert text.startswith(f"Array A reaches {row['peak']:,.0f} IOPS with {row['peak_vms']:g} VM")
    assert ("single runs" in text) == (row["n"] == 1)
    if row["model"] == "two-segment":
        assert f"{row['slope_before']:,.0f} IOPS up to {row['knee']:g} VMs" in text
        assert f"and {row['slope_after']:,.0f} after that." in text
        assert (f" {row['knee_lo']:g} to {row['knee_hi']:g})" in text) == (row["n"] > 1)
    elif row["model"] == "line":
        assert f"{row['slope_before']:,.0f} IOPS" in text
    elif not row["model"]:
        assert f"only {row['points']} " in text


def test_a_curve_that_falls_after_its_knee_says_so():
    row = hci.saturation(fleet([100 * min(n, 6) - 20 * max(n - 6, 0) for n in range(1, 13)]))
    assert "and minus 20 after that." in hci.saturation_sentences(row).item()


def test_without_values_nothing_is_claimed():
    empty = hci.saturation(fleet([np.nan] * 6))
    text = hci.saturation_sentences(empty).item()
    assert text == "a has no value at any VM count in 4k random read."
    assert hci.saturation_sentences(empty.head(0)).empty
    answer = hci.scaling_answer(empty.head(0), pd.DataFrame(), "4k-randread")
    assert faults(answer) == []


SHARES = st.one_of(st.none(), st.floats(0.5, 150))


@given(SHARES, SHARES, SHARES, st.sampled_from([None, "close to 100 %", "below 10 %", "high %"]))
def test_a_bottleneck_is_said_as_its_row_has_it(drives, network, cpu, stated):
    row = {"iops": 10_000.0, "bs_bytes": 4096, "bw_bytes": 4096e4, "vms": 20, "node_cpu_pct": cpu}
    row["ceiling_iops"] = 1e6 / drives if drives else np.nan
    row["net_bytes_per_s"] = 4096e4
    links = pd.DataFrame({"source": ["n1"], "target": ["n2"], "bytes_per_s": [4096e6 / network if network else np.nan]})
    bound = hci.bottleneck(
        pd.DataFrame([row]).astype({"node_cpu_pct": float}), links, stated_cpu={20: stated} if stated else {}
    )
    [found] = bound.to_dict("records")
    text = hci.binding_notes(bound).item()
    assert faults(text) == []
    known = {"drives": drives, "network": network, "node CPU": cpu}
    for name, pct in known.items():
        if pct and name != found["binds"]:
            assert re.search(rf"(?i:{name})(?: is| are)? at (?:the limit as well \()?{number(pct)} %", text)
    said_cpu = stated and cpu is None
    unknown = [n for n, pct in known.items() if pct is None and not (n == "node CPU" and said_cpu)]
    assert ("not reported." in text) == (0 < len(unknown) < 3)
    if pd.isna(found["bottleneck"]):
        assert text.startswith("The bottleneck is unknown.")
    elif found["bottleneck"]:
        assert f"{found['binds']} {'are' if found['binds'] == 'drives' else 'is'} the bottleneck" in text.replace(
            "Node", "node"
        )
        share = found["pct_of_binding"]
        assert (f"its load as {stated}" if pd.isna(share) else f"{number(share)} %") in text
    else:
        assert text.startswith("No bottleneck was found")


@pytest.mark.parametrize(
    ("pct", "vms", "reason"), [(99.0, 6, ""), (102.0, 6, APART), (102.0, 1, TOO_LOW), (140.0, 6, TOO_LOW)]
)
def test_more_than_the_limit_has_a_reason(pct, vms, reason):
    row = {"iops": 1e4, "ceiling_iops": 1e6 / pct, "bs_bytes": 4096, "vms": vms, "node_cpu_pct": 40.0}
    text = hci.binding_notes(hci.bottleneck(pd.DataFrame([row]))).item()
    assert [one for one in (APART, TOO_LOW) if one in text] == [reason] * bool(reason)
    assert faults(text) == []


def test_an_answer_is_about_one_curve():
    """An article's totals and its added gains are two curves: peak and bottleneck are of the same."""
    results = hci.read_results("data/published/scaling.csv").query("pattern == '4k-randread' and iodepth == 8")
    told = hci.fleet_curves(results)
    knees = hci.saturation(told.query("vms > 0"), by=["system", "pattern", "curve"])
    rates = hci.datasheet_rates({"read_iops": 460000, "write_iops": 175000})
    bound = hci.bottleneck(hci.best_share(told, rates, 8, hci.Mirror(2)), stated_cpu={20: "close to 100 %"})
    answer = hci.scaling_answer(knees, bound, "4k-randread")
    assert faults(answer) == []
    best = bound[bound["curve"] != "printed"].iloc[0]
    assert f"{best['iops']:,.0f} IOPS" in answer
    assert f"drives are at {number(best['pct_of_ceiling'])} %" in answer
    assert set(bound["curve"]) > {"printed"}
    assert MEASURED not in set(bound["curve"])
