"""Choosing a load: surfaces whose knee is known, searched from coarse to fine; and what ends a sweep over VMs."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib import next_loads, stops
from hcilib.model.patterns import Pattern
from hcilib.model.workload import Cell

JOBS, DEPTHS = (1, 2, 4, 8), (1, 2, 4, 8, 16, 32, 64, 128)


def surface(loads, rate=10_000.0, delay_s=0.002, slower=0.0) -> pd.DataFrame:
    """A drive that answers after `delay_s` and no more than `rate` times a second; each job more costs `slower` of the
    rate."""
    rows = []
    for jobs, depth in loads:
        most = rate * (1 - slower * (jobs - 1))
        iops = min(jobs * depth / delay_s, most)
        cell = Cell(Pattern.parse("4k-randread"), jobs, depth, 1).factors()
        rows.append(
            {**cell, "system": "known", "rep": 1, "iops": iops, "lat_ns": 1e9 * jobs * depth / iops, "valid": True}
        )
    return pd.DataFrame(rows)


def search(within_ns=None, **drive) -> pd.DataFrame:
    """Look, decide, look again, as a campaign does."""
    measured: list = []
    found = pd.DataFrame()
    while proposed := next_loads(found, JOBS, DEPTHS):
        due = [(load["numjobs"], depth) for load in proposed for depth in load["iodepth"]]
        assert not set(due) & set(measured)
        measured += due
        found = hci.loads(surface(measured, **drive), within_ns)
    return found


def chosen(found: pd.DataFrame) -> tuple[int, int]:
    [row] = found[found["chosen"]].itertuples()
    return int(row.numjobs), int(row.iodepth)


def test_the_search_ends_at_the_knee_and_looks_at_less_than_the_grid():
    found = search()  # 10,000 IOPS at 2 ms: 20 outstanding; 32 is the first of the grid that gives 95 %
    assert np.prod(chosen(found)) == 32
    assert len(found) < len(JOBS) * len(DEPTHS)


def test_fewer_threads_where_threads_cost():
    assert chosen(search(slower=0.1)) == (1, 32)


def test_a_latency_bound_moves_the_choice_and_both_hold():
    found = search(within_ns=2.1e6)  # 16 outstanding wait for nobody: 8,000 IOPS; 32 take 3.2 ms
    assert np.prod(chosen(found)) == 16
    best = found[found["chosen"]].iloc[0]
    assert best["lat_ns"] <= 2.1e6
    assert best["pct_of_best"] == pytest.approx(100)


def test_no_load_within_the_latency_is_chosen_and_the_search_ends():
    found = search(within_ns=1e6)
    assert not found["chosen"].any()
    assert found["pct_of_best"].isna().all()
    assert (1, 1) in set(zip(found["numjobs"], found["iodepth"], strict=True))


def fleet(iops, cpu=None) -> pd.DataFrame:
    vms = np.arange(1, len(iops) + 1)
    return pd.DataFrame({"system": "known", "pattern": "4k-randread", "vms": vms, "iops": iops,
                         "node_cpu_pct": np.nan if cpu is None else cpu, "valid": True})  # fmt: skip


def test_a_live_sweep_is_ended_by_a_rule_and_by_nothing_else():
    grows, bends = fleet([100, 200, 300]), fleet([100, 200, 300, 304])
    assert stops(grows, gain_pct=5) == ""
    assert stops(bends, gain_pct=5).startswith("gain below 5 % of a VM at 3 VMs")
    assert stops(bends) == ""
    busy = fleet([100, 200, 300], [20, 60, 85])
    assert stops(busy, cpu_pct=80) == "node CPU up to 80 % at 2 VMs: 85 % at 3 VMs"
