"""Whether more load gives fewer IOPS: counts by verdict, and nothing claimed of one load."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from tests.style import faults

DEPTHS = (1, 4, 8, 32, 128)


def curve(levels, runs=3, spread=0.01, seed=0, **columns) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    rows = [
        {"iodepth": depth, "block": block, "rep": 0, "iops": level * np.exp(spread * draw.standard_normal())}
        for depth, level in zip(DEPTHS, levels, strict=False)
        for block in range(runs)
    ]
    return pd.DataFrame(rows).assign(**{"system": "a", "pattern": "4k-randread", "run_id": "r", "vms": 4} | columns)


def test_drops_of_a_test_and_of_single_runs_are_counted_apart():
    three = pd.concat([curve([100, 50]), curve([0, 0, 20.0], runs=1).query("iodepth == 8")])
    text = hci.regimes_sentence(hci.load_losses(three), three)
    assert text.count("In 1 case, a higher iodepth gives over 10 % fewer IOPS") == 2
    assert faults(text) == []
    single = curve([100, 40], runs=1)
    halves = hci.regimes_sentence(hci.load_losses(single, 0.5), single, 0.5)
    assert "a higher iodepth gives over 50 % fewer IOPS" in halves


@pytest.mark.parametrize("without", [{"iops": np.nan}, {"valid": False}])
def test_a_load_without_valid_iops_is_no_second_load(without):
    one = curve([100.0], runs=1).assign(valid=True)
    alone = hci.regimes_sentence(hci.load_losses(one), one)
    both = pd.concat([one, one.assign(**{"iodepth": 16} | without)])
    assert hci.regimes_sentence(hci.load_losses(both), both) == alone
    measured = pd.concat([one, one.assign(iodepth=16, iops=150.0)])
    assert hci.regimes_sentence(hci.load_losses(measured), measured) != alone
