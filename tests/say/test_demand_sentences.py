"""Sentences of offered load: bounds stay bounds, and verdicts are those of the comparison."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib.say.words import interval
from tests.style import faults


def campaign(system="A", rate=1000.0, shares=(0.3, 0.6, 0.8, 0.95, 1.1), blocks=5, spread=0.01, seed=1, slow=None):
    """A server of `rate` whose p99 rises as 1 + 4 r / (1 - r) ms, times `slow` of each block."""
    draw = np.random.default_rng(seed)
    rows = []
    for block in range(1, blocks + 1):
        own, factor = rate * np.exp(spread * draw.standard_normal()), (slow or {}).get(block, 1.0)
        rows.append({"block": block, "iodepth": 8, "iops": own, "p99_ns": 8e6, "open_loop": None})
        for share in shares:
            wait = factor * (1 + 4 * min(share, 0.999) / (1 - min(share, 0.999)))
            rows.append({"block": block, "iodepth": 256, "rate_iops": f"{share:g}", "offered_iops": share * own,
                         "iops": min(share, 1.0) * own, "p99_ns": 1e6 * wait, "open_loop": share < 1})  # fmt: skip
    fixed = {"source": "bed", "run_id": "r", "pattern": "4k-randread", "valid": True, "warnings": ""}
    return pd.DataFrame(rows).assign(system=system, **fixed)


LOW = (0.3, 0.6)
CASES = {
    "alone": ([campaign()], 1e7, ""),
    "one run": ([campaign(blocks=1), campaign("B", blocks=1, seed=2)], 1e7, "cannot be compared"),
    "fewer": ([campaign(), campaign("B", 680, seed=2)], 1e7, "fewer ("),
    "many more": ([campaign(), campaign("B", 2900, seed=2)], 1e7, "times as many ("),
    "the same": ([campaign(spread=0.001), campaign("B", spread=0.001, seed=2)], 1e7, "the same within 5 %"),
    "undecided": ([campaign(spread=0.3), campaign("B", spread=0.3, seed=2)], 1e7, "not significant"),
    "bound decides fewer": ([campaign(shares=LOW), campaign("B", 400, seed=2)], 14e6, "% fewer."),
    "bound decides more": ([campaign(rate=400), campaign("B", shares=LOW, seed=2)], 14e6, "% more."),
    "bound is open": ([campaign(shares=LOW), campaign("B", 900, seed=2)], 14e6, "higher request rates"),
    "both bounds": ([campaign(shares=LOW), campaign("B", shares=LOW, seed=2)], 1e9, "both values are only bounds"),
    "below": ([campaign("A", 4000, blocks=4), campaign("B", shares=(0.6, 0.8), blocks=4)], 4e6, "lower request rates"),
    "disagree": ([campaign(blocks=2, shares=LOW, slow={1: 9.0, 2: 0.1})], 2e6, "disagree"),
    "other disagrees": ([campaign(blocks=2), campaign("B", blocks=2, shares=LOW, slow={1: 9.0, 2: 0.1})], 2e6,
                        "disagree"),
}  # fmt: skip


@pytest.mark.parametrize(("systems", "limit", "words"), CASES.values(), ids=CASES)
def test_each_kind_of_row_is_said_with_its_numbers(systems, limit, words):
    results = pd.concat(systems, ignore_index=True)
    answer = hci.demand_answer(results, "A", {"A": "Array A"}, p99_ns=limit)
    assert faults(answer) == []
    assert words in answer
    assert "nan" not in answer
    assert "inf" not in answer
    held = hci.load_within(results, p99_ns=limit).set_index("system")
    for name, row in held.iterrows():
        at = answer.partition(". B ")[2 * (name == "B")]
        if row["bound"]:
            end = row["iops_lo"] if row["bound"] == "at least" else row["iops_hi"]
            assert f"{'at least' if row['bound'] == 'at least' else 'fewer than'} {end:,.0f}" in at
        elif row["iops"] == row["iops"]:
            assert f"{row['iops']:,.0f}" in at
            assert row["n"] == 1 or f"interval {row['iops_lo']:,.0f} to {row['iops_hi']:,.0f}" in at
    assert answer.startswith(f"With p99 latency below {limit / 1e6:g} ms, Array A ")


def test_a_proven_difference_has_the_interval_of_the_comparison():
    results = pd.concat([campaign(), campaign("B", 680, seed=2)], ignore_index=True)
    [row] = hci.compare(hci.load_within_runs(results, p99_ns=1e7), "A", "iops", ["pattern"]).to_dict("records")
    assert row["verdict"] == "lower"
    assert f"fewer{interval(row['ratio'], row['ratio_lo'], row['ratio_hi'])}." in hci.demand_answer(
        results, "A", p99_ns=1e7
    )


def test_a_pattern_is_a_line_in_the_field_s_order():
    both = [campaign().assign(pattern=name) for name in ("4k-randwrite", "4k-randread")]
    lines = hci.demand_answer(pd.concat(both, ignore_index=True), p99_ns=1e7).splitlines()
    assert ["random read" in line for line in lines] == [True, False]
