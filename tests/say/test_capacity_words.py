"""Sentences about capacity have the shares of their rows, and more IOPS only where the front has them."""

import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from hcilib.analyse.physics.capacity import more_for_less
from tests.style import faults, sentences

SCHEMES = ("Mirror(1)", "Mirror(2)", "Mirror(3)", "Raid5(5)", "ErasureCode(4, 2)", "Mirror(2) * Raid5(5)",
           "nested_parity(5, 0.2)", "nested_parity(5, 0.2).reserve(2, 5)")  # fmt: skip
NONE = pd.DataFrame({"system": [], "pattern": [], "usable_tib": [], "front": []})


def shares_of(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"(\d+)(?: %| to \d+ %)", text)]


@given(st.lists(st.sampled_from(SCHEMES), min_size=1, max_size=6), st.integers(0, 6))
def test_every_combination_of_schemes_reads_well_and_has_their_shares(formulas, measured):
    schemes = {f"System {number}": formula for number, formula in enumerate(formulas)}
    table = hci.with_stated(hci.capacity_table(schemes, 32e12), {"System 0": 40})
    names = [*schemes][:measured]
    answer, facts = hci.capacity_sentence(table, NONE, names), hci.capacity_facts(table, names)
    assert [fault for text in (answer, *facts) for fault in faults(text)] == []
    own = table[table["system"].isin(names)] if names else table
    ends = {round(100 * own["efficiency"].max()), round(100 * own["efficiency"].min())}
    assert {max(shares_of(answer)), min(shares_of(answer))} == ends
    assert len(sentences(answer)[0]) <= 120
    assert ("reserve" in answer) == own["scheme"].str.contains("reserve").any()


def test_each_measured_system_is_named_with_its_scheme_and_its_share_without_a_reserve():
    schemes = {"a": "Mirror(2) * Raid5(5)", "b": "nested_parity(5, 0.2).reserve(2, 5)", "two": "Mirror(2)"}
    table = hci.with_stated(hci.capacity_table(schemes, 32e12), {"a": 40, "two": 33})
    facts = hci.capacity_facts(table, ["a", "b"], {"a": "A"})
    assert facts[0].startswith("A leaves 40 %")
    assert "RAID 5 of 5 drives" in facts[0]
    assert shares_of(facts[1])[0] == 29
    assert shares_of(facts[2]) == [36], "without the reserve"
    assert "(two)" in facts[3] or facts[3].startswith("two would leave 50 %")
    assert re.search("^1 of 2 ", facts[4])


def test_a_system_whose_scheme_no_file_has_is_named():
    table = hci.usable_shares(["ceph-pve", "mine"], hci.load_systems())
    facts = hci.capacity_facts(table, table["system"], {"ceph-pve": "Ceph"})
    assert facts[0].startswith("Ceph leaves 50 %")
    assert "scheme of mine" in facts[1]
    assert [fault for fact in facts for fault in faults(fact)] == []


@pytest.mark.parametrize(
    ("iops", "said"),
    [((3, 2, 1), "No system that leaves less space"), ((1, 2, 3), "b and c each deliver more IOPS than a, which"),
     ((1, 1.04, 2.5), "c delivers more IOPS than a, which"), ((1, 1.04, 1.001), "No system that leaves less space"),
     ((1, None, None), ""), ((None, 1, 2), "")],
)  # fmt: skip
def test_less_space_is_said_to_buy_iops_only_beyond_the_margin(iops, said):
    table = hci.with_stated(hci.capacity_table({"a": "Mirror(1)", "b": "Mirror(2)", "c": "Mirror(2)"}, 1e12), {})
    speeds = pd.DataFrame({"system": [*"abc"], "pattern": "4k-randread", "iops": iops, "usable_tib": [0.9, 0.45, 0.45]})
    front = hci.pareto(speeds, "usable_tib", "iops", by="pattern")
    answer = hci.capacity_sentence(table, front, ["a", "b", "c"])
    assert faults(answer) == []
    if iops[0] is None:
        assert "more IOPS" not in answer, "the others leave the same"
    else:
        assert said in answer
        assert ("no lead was tested" in answer) == bool(said)


@pytest.mark.parametrize(
    ("ratio", "spread", "more"), [(1.001, 0.001, False), (1.03, 0.001, False), (1.3, 0.4, False), (1.3, 0.001, True)]
)
def test_iops_within_five_percent_or_with_overlapping_intervals_are_not_more(ratio, spread, more):
    factors = (1 - spread, 1.0, 1 + spread)
    rows = [("large", 100 * f) for f in factors] + [("small", 100 * ratio * f) for f in factors]
    results = pd.DataFrame(rows, columns=["system", "iops"]).assign(pattern="4k-randread", iodepth=8, vms=2)
    results = results.assign(block=[1, 2, 3] * 2, run_id="r", numjobs=1)
    best = hci.per_usable_tib(hci.peak(results), {"large": 2e12, "small": 1e12})
    found = more_for_less(best, 0.05).set_index("system")["more"]
    assert pd.isna(found["large"])
    assert found["small"] == more
