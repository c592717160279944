"""Sentences about capacity have the shares of their rows, and more IOPS only where the front has them."""

import re

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from tests.style import faults, sentences

SCHEMES = ("Mirror(1)", "Mirror(2)", "Mirror(3)", "Raid5(5)", "ErasureCode(4, 2)", "Mirror(2) * Raid5(5)",
           "nested_parity(5, 0.2)", "nested_parity(5, 0.2).reserve(2, 5)")  # fmt: skip


def shares_of(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"(\d+)(?: %| to \d+ %)", text)]


@given(st.lists(st.sampled_from(SCHEMES), min_size=1, max_size=6), st.integers(0, 6))
def test_every_combination_of_schemes_reads_well_and_has_their_shares(formulas, measured):
    schemes = {f"System {number}": formula for number, formula in enumerate(formulas)}
    table = hci.capacity_table(schemes, 32e12)
    names = [*schemes][:measured]
    answer, facts = hci.capacity_sentence(table, names), hci.capacity_facts(table, names)
    assert [fault for text in (answer, *facts) for fault in faults(text)] == []
    own = table[table["system"].isin(names)] if names else table
    ends = {round(100 * own["efficiency"].max()), round(100 * own["efficiency"].min())}
    assert {max(shares_of(answer)), min(shares_of(answer))} == ends
    assert len(sentences(answer)[0]) <= 120
    assert ("reserve" in answer) == own["scheme"].str.contains("reserve").any()


def test_each_measured_system_is_named_with_its_scheme_and_its_share_without_a_reserve():
    schemes = {"a": "Mirror(2) * Raid5(5)", "b": "nested_parity(5, 0.2).reserve(2, 5)", "two": "Mirror(2)"}
    agrees = pd.array([True, pd.NA, False], dtype="boolean")
    table = hci.capacity_table(schemes, 32e12).assign(agrees=agrees)
    facts = hci.capacity_facts(table, ["a", "b"], {"a": "A"})
    assert facts[0].startswith("A leaves 40 %")
    assert "RAID 5 of 5 drives" in facts[0]
    assert shares_of(facts[1])[0] == 29
    assert shares_of(facts[2]) == [36], "without the reserve"
    assert "(two)" in facts[3] or facts[3].startswith("two would leave 50 %")
    assert re.search("^1 of 2 ", facts[4])
