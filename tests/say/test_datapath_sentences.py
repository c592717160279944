"""Sentences of the data path: counters, what a scheme sends, and the codes of deviations."""

import pandas as pd
import pytest

import hcilib as hci
from hcilib.say.physics.datapath import DRIVES, TRAFFIC
from tests.style import faults

SCHEMES = ("Mirror(2)", "Mirror(2) * Raid5(5)", "Raid5(5)", "ErasureCode(2, 1)", "nested_parity(5, 0.2).reserve(2, 5)")


def expected_of(scheme: str) -> pd.DataFrame:
    nodes = 3 if scheme.startswith("Erasure") else 2
    return hci.expected_traffic(hci.parse_scheme(scheme), nodes=nodes)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("wrong", [0, 1, 4])
@pytest.mark.parametrize("inferred", [0, 1, 2])
def test_counters_are_counted_as_they_were_judged(scheme, wrong, inferred):
    expected = expected_of(scheme)
    observed = expected.assign(source="lab", observed=expected["expected"])
    observed.loc[: wrong - 1, "observed"] += 1
    kept = [[row.placement, row.ddir] for row in observed.tail(inferred).itertuples()]
    checked = hci.check_traffic(observed, expected, inferred_from={"lab": kept})
    cost = hci.placement_cost(expected)
    answer = hci.traffic_answer(checked, cost, scheme, 0.1)
    assert faults(answer) == []
    judged = checked["ok"].dropna()
    few = f"{judged.sum()} of {len(judged)} network"
    assert (few in answer) == (not judged.all())
    assert "(within 10 %)." in answer
    assert (f"{inferred} further counter" in answer) == (inferred > 0)
    write, read = (cost.set_index("ddir").loc[ddir] for ddir in ("write", "read"))
    assert f" {write['owner']:g} network byte" in answer
    assert f" {write['non_owner']:g} if not. " in answer
    ends = f"{read['owner']:g} if the VM runs on the owner node, {read['non_owner']:g} if not."
    assert answer.endswith(ends)
    assert "of the drives" not in answer


@pytest.mark.parametrize("scheme", SCHEMES)
def test_without_counters_nothing_is_said_to_fit(scheme):
    expected = expected_of(scheme)
    checked = hci.check_traffic(expected.drop(columns="expected").assign(observed=None), expected)
    answer = hci.traffic_answer(checked, hci.placement_cost(expected), scheme, 0.1)
    assert faults(answer) == []
    assert "match" not in answer
    assert "is untested." in answer


def test_counts_of_the_drives_are_those_that_were_judged():
    expected = expected_of("Mirror(2)")
    checked = hci.check_traffic(expected.assign(observed=expected["expected"]), expected)
    ok = pd.DataFrame({"ok": pd.array([True, False, True, None], dtype="boolean")})
    cost = hci.placement_cost(expected)
    answer = hci.traffic_answer(checked, cost, "Mirror(2)", 0.1, ok)
    assert "2 of 3 counters of the drives" in answer
    assert "of the drives" not in hci.traffic_answer(checked, cost, "Mirror(2)", 0.1, ok.head(0))


@pytest.mark.parametrize("code", TRAFFIC)
def test_a_counter_that_was_not_judged_says_why(code):
    assert faults(hci.traffic_notes(pd.DataFrame({"code": [code]})).item()) == []
    assert hci.traffic_notes(pd.DataFrame({"code": ["", code]})).iloc[0] == ""


@pytest.mark.parametrize("code", DRIVES)
def test_a_count_that_was_not_judged_says_why(code):
    said = hci.amplification_notes(pd.DataFrame({"code": ["", code]}))
    assert said.iloc[0] == ""
    assert said.iloc[1]
    assert faults(said.iloc[1]) == []
