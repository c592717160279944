"""Who is first: the systems, counts and values are those of the table, and a lead is called what it is."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from hcilib import crossover_sentences, latency_answer, leads_proof, leads_sizes, unknown_facts, winners_facts
from tests.style import faults, length, sentences

NO_COST = pd.DataFrame(columns=["ratio", "pattern", "system", "n"])
LABELS = {"a": "Array A", "b": "Array B"}


def results(runs: dict[str, list[float]], pattern: str = "4k-randread", iodepth: int = 8) -> pd.DataFrame:
    rows = [
        {"system": name, "pattern": pattern, "iodepth": iodepth, "vms": 4, "block": i, "rep": 0, "iops": value,
         "iops_per_cpu_pct": value / 50, "lat_ns": 1e9 / value}
        for name, values in runs.items() for i, value in enumerate(values)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def plain(texts: list[str]) -> list[str]:
    assert [fault for text in texts for fault in faults(text)] == []
    assert not [word for text in texts for word in ("nan", "None") if word in text]
    return texts


@given(st.integers(1000, 900_000), st.floats(0.3, 3.0), st.integers(1, 5), st.integers(0, 10_000))
def test_who_is_first_is_said_as_it_is_known(level, ratio, runs, seed):
    noise = np.random.default_rng(seed).lognormal(0, 0.01, (2, runs))
    table = hci.best_points(results({"a": list(level * noise[0]), "b": list(level * ratio * noise[1])}))
    first = table.loc[table["pct_of_best"].idxmax()]
    facts = plain(winners_facts(table, LABELS))
    assert facts[0].startswith(f"Array {first['system'].upper()} has the most IOPS")
    assert (", proven in " in facts[0]) == (first["state"] == "leads")
    assert ("untested" in facts[0]) == (first["state"] == "untested")
    assert leads_proof(table).startswith("Proven" if first["state"] == "leads" else "Not proven")
    assert (first["state"] == "untested") == (runs == 1)
    cpu = table.sort_values("iops_per_cpu_pct", ascending=False)["iops_per_cpu_pct"]
    assert re.findall(r"delivers ([\d,]+)", facts[1]) == [f"{value:,.0f}" for value in cpu]


def test_the_lowest_latency_is_first_and_called_so():
    drawn = results({"a": [1000, 1010], "b": [2000, 2020]}).assign(p99_ns=[2e6, 2.01e6, 1e6, 1.01e6])
    facts = plain(winners_facts(hci.best_points(drawn, "p99_ns"), LABELS, "p99_ns"))
    assert facts[0].startswith("Array B has the lowest p99 latency")
    assert winners_facts(hci.best_points(drawn).assign(pct_of_best=np.nan)) == []


def test_every_leader_is_counted_over_all_patterns():
    runs = {"4k-randread": (3, 1), "4k-randwrite": (3, 1), "1m-read": (1, 3), "1m-write": (2.0, 2.001)}
    factors = (0.999, 1.0, 1.001)
    drawn = pd.concat(
        results({name: [100 * level * f for f in factors] for name, level in zip("ab", own, strict=True)}, pattern)
        for pattern, own in runs.items()
    )
    table = hci.best_points(drawn)
    facts = plain(winners_facts(table))
    best = table[np.isclose(table["pct_of_best"], 100, atol=1e-9)]
    proven = best["state"].eq("leads").sum()
    assert best["state"].isin(["leads", "tied"]).all()
    counts = best.loc[best["state"].eq("leads"), "system"].value_counts()
    found = re.findall(r"(?:in |\. )(\d+)", facts[0])
    assert found == [*map(str, dict.fromkeys(counts)), *[str(proven)] * int(proven < counts.sum())]
    assert re.findall(r"\d+", plain([leads_proof(table)])[0]) == [*map(str, (proven, len(best)))]


def single_runs(patterns: dict[str, dict[str, float]]) -> pd.DataFrame:
    return hci.best_points(pd.concat(results({k: [v] for k, v in own.items()}, name) for name, own in patterns.items()))


def test_how_far_the_first_is_ahead_is_said_of_the_patterns_that_have_a_first():
    table = single_runs({
        "4k-randread": {"a": 300, "b": 200, "c": 100}, "4k-randwrite": {"a": 110, "b": 100, "c": 50},
        "1m-read": {"a": 100, "b": 120, "c": 40}, "1m-write": {"a": 10, "b": 30, "c": 90},
        "64k-randread": {"a": 99, "b": 100, "c": 50},
    })  # fmt: skip
    [first], said = plain(winners_facts(table, LABELS))[:1], plain([leads_sizes(table, LABELS)])[0]
    counts = {"Array A": 2, "Array B": 1, "c": 1}
    assert re.findall(r"(Array [AB]|c) (?:has|is|in) .*?(\d) ", first.replace("is first in", "is"))[0][0] == "Array A"
    assert [int(n) for n in re.findall(r"in (\d)\b", said)] == list(counts.values())
    assert sum(counts.values()) + 1 == table["pattern"].nunique(), "one pattern has no first"
    assert re.search(r"Array A has (\d+) to (\d+) % more", said).groups() == ("10", "50")
    assert re.search(r"In 4k random read it has (\d+) IOPS, Array B (\d+)", said).groups() == ("300", "200")
    assert re.search(r"Array B has (\d+) % more", said)[1] == "20"
    assert re.search(r"c ([\d.]+) times", said)[1] == "3"
    assert len(sentences(said)) == 3
    assert length(said) <= 45


def test_of_single_runs_that_are_all_close_the_first_is_named_with_its_lead():
    said = leads_sizes(single_runs({"4k-randread": {"a": 101, "b": 100}}), LABELS)
    assert re.search(r"Array A has (\S+) % more IOPS", said)[1] == "1"


def test_a_tie_has_its_size_and_of_whom_the_first_is_shown_to_be_ahead():
    noise = (0.99, 1.0, 1.01)
    table = hci.best_points(
        results({name: [level * f for f in noise] for name, level in zip("abc", (1001, 1000, 100), strict=True)})
    )
    [said] = plain([leads_sizes(table)])
    assert re.findall(r"has (\S+) % more IOPS than the second-best \(not significant\)", said) == ["0.1"]
    assert re.findall(r"and (\S+) times the IOPS of c \(significant\)", said) == ["10"]


def test_of_many_systems_the_cpu_has_the_first_and_the_last():
    drawn = results({name: [100.0 * (i + 1)] for i, name in enumerate("abcdef")})
    assert re.findall(r"(\w),? delivers ([\d,]+)", plain(winners_facts(hci.best_points(drawn)))[1]) == [
        ("f", "12"), ("a", "2")
    ]  # fmt: skip


def test_cpu_of_a_best_point_is_what_summarize_gives_there():
    runs = results({"a": [1000, 3000], "b": [500.0, 510]}).assign(iops_per_cpu_pct=[10.0, 40, 7, 8])
    own = hci.summarize(runs, "iops_per_cpu_pct").set_index("system")["iops_per_cpu_pct"]
    table = hci.best_points(runs).set_index("system")["iops_per_cpu_pct"]
    for shown in (table, own):
        assert shown.to_dict() == pytest.approx({"a": 20, "b": 56**0.5})


def test_open_questions_are_facts_and_none_is_left_where_all_is_known():
    printed = results({"a": [100.0], "b": [200.0]}).assign(node_cpu_pct=50.0)
    known = results({"a": [100.0, 101], "b": [200.0, 202]}).assign(node_cpu_pct=50.0, p99_ns=1e6)
    assert plain(unknown_facts(hci.best_points(printed), printed))[0] == "No source reports p99 latency."
    assert len(unknown_facts(hci.best_points(printed), printed)) == 2
    assert unknown_facts(hci.best_points(known), known) == []
    half = known.assign(node_cpu_pct=lambda t: t["node_cpu_pct"].where(t["system"] == "a"))
    assert unknown_facts(hci.best_points(half), half, labels={"b": "B"}) == ["No node CPU is reported for B."]
    neither = printed.drop(columns="node_cpu_pct")
    assert unknown_facts(hci.best_points(neither), neither)[0] == "No source reports p99 latency or node CPU."


def one_io(patterns: dict[str, tuple[float, ...]], runs: int = 3) -> pd.DataFrame:
    """Latencies in ms of systems a, b and c at one outstanding I/O."""
    rows = [
        {"system": name, "pattern": pattern, "lat_ns": 1e6 * (ms + rep / 1e3), "rep": rep, "block": rep}
        for pattern, own in patterns.items() for rep in range(runs)
        for name, ms in zip("abc", own, strict=False)
    ]  # fmt: skip
    return pd.DataFrame(rows).assign(iodepth=1, numjobs=1, vms=1, run_id="r", iops=lambda t: 1e9 / t["lat_ns"])


def test_every_leader_of_one_io_is_named_with_its_patterns():
    one = one_io({"4k-randread": (1, 2, 3), "4k-randwrite": (5, 2, 3), "4k-randwrite-sync": (4, 6, 6)})
    first, other = plain(latency_answer(one, NO_COST, LABELS).splitlines())
    assert first.startswith("At iodepth 1, Array A has the lowest latency in 2 of 3 patterns.")
    assert re.findall(r"([\d.]+) ms", first) == ["1.001", "4.001"]
    assert (re.findall(r"([\d.]+) ms", other), "Array B" in other) == (["2.001"], True)


def test_a_single_run_of_one_pattern_is_said_there():
    mixed = pd.concat([one_io({"4k-randwrite": (2, 3, 4)}), one_io({"4k-randread": (1, 2, 3)}, runs=1)])
    first, other = plain(latency_answer(mixed, NO_COST).splitlines())
    assert "single run" not in first
    assert "single runs" in other
    single = latency_answer(one_io({"4k-randread": (2, 1)}, runs=1), NO_COST, LABELS)
    [said] = plain([single])
    assert said == "At iodepth 1, 4k random read has the lowest mean latency on Array B, 1.000 ms (single runs)."


@pytest.mark.parametrize(("runs", "word"), [(3, "not significantly different"), (1, "within 5 %")])
def test_a_tie_names_all_of_it_and_leads_nothing(runs, word):
    lines = plain(latency_answer(one_io({"4k-randread": (1, 1.0001)}, runs), NO_COST, LABELS).splitlines())
    assert lines[0].startswith(f"At iodepth 1, the fastest systems are {word}")
    assert ("single runs" in lines[0]) == (runs == 1)
    assert {"Array A", "Array B"} == set(re.findall("Array [AB]", lines[1]))


def test_one_system_has_its_latencies_and_systems_apart_have_theirs():
    alone = one_io({"4k-randread": (1,), "4k-randwrite": (2,)})
    [said] = plain(latency_answer(alone, NO_COST, LABELS).splitlines())
    assert re.findall(r"([\d.]+) ms", said) == ["1.001", "2.001"]
    apart = pd.concat([one_io({"4k-randread": (1,)}, 1), one_io({"4k-randwrite": (2,)}, 1).assign(system="b")])
    [said] = plain(latency_answer(apart, NO_COST, LABELS).splitlines())
    assert "fastest" not in said
    assert re.findall("Array [AB]", said) == ["Array A", "Array B"]


def test_stable_writes_have_their_least_and_most_and_the_system_of_the_most():
    patterns = {"4k-randwrite": (1, 2), "4k-randwrite-sync": (1.5, 5), "4k-randwrite-fdatasync": (1.05, 1.95)}
    one = one_io(patterns)
    cost = hci.pattern_cost(one, ["4k-randwrite-sync", "4k-randwrite-fdatasync"], "4k-randwrite")
    said = plain(latency_answer(one, cost, LABELS).splitlines())[0]
    assert re.findall(r"takes ([\d.]+) to ([\d.]+) times", said) == [("0.98", "1.05"), ("1.5", "2.5")]
    assert re.findall(r"largest on (Array [AB])", said) == ["Array A", "Array B"]
    assert "single runs" not in said
    once = one_io(patterns, runs=1)
    cost = hci.pattern_cost(once, "4k-randwrite-sync", "4k-randwrite")
    assert "single runs" in latency_answer(once, cost, LABELS).splitlines()[-1]


def test_stable_writes_come_first_only_beside_plain_ones():
    one = one_io({"4k-randwrite": (1, 2), "4k-randwrite-sync": (1.5, 5), "4k-randread": (1, 2)})
    writes = one[one["pattern"] != "4k-randread"]
    for rows, place in ((one, -1), (writes, 0)):
        lines = latency_answer(rows, hci.pattern_cost(rows, "4k-randwrite-sync", "4k-randwrite")).splitlines()
        assert [re.search(r"[\d.]+ to [\d.]+ times", line) is not None for line in lines].index(True) == place % len(
            lines
        )


def curves(a, b, noise=(0.0,), pattern="4k-randread"):
    rows = [
        {"system": name, "pattern": pattern, "iodepth": 2**i, "rep": rep, "run_id": "c", "iops": value * (1 + off)}
        for name, values in (("a", a), ("b", b)) for i, value in enumerate(values) for rep, off in enumerate(noise)
    ]  # fmt: skip
    return pd.DataFrame(rows)


TIGHT, WIDE = (-0.0005, 0.0, 0.0005), (-0.2, 0.0, 0.2)


@pytest.mark.parametrize(
    ("a", "b", "noise", "verdict", "begin"),
    [
        ([100, 200], [80, 260], TIGHT, "crossover", "Array B overtakes Array A in IOPS in 4k random read at iodepth 1"),
        (
            [100, 200],
            [80, 260],
            (0.0,),
            "untested",
            "Array B overtakes Array A in IOPS in 4k random read between iodepth",
        ),
        ([100, 200], [110, 190], WIDE, "undecided", "Array A and Array B may change places in IOPS"),
        ([100, 200], [90, 180], TIGHT, "none", "Array B has fewer IOPS than Array A in 4k random read at every"),
        ([100, 200], [120, 260], WIDE, "none", "Array B has more IOPS than Array A in 4k random read at every"),
        ([100, 200], [100, 200], TIGHT, "none", "Array B has the same IOPS as Array A"),
    ],
)
def test_a_crossing_is_said_as_sure_as_it_is(a, b, noise, verdict, begin):
    crossings = hci.crossover(curves(a, b, noise), "a", "b")
    assert crossings["verdict"].tolist() == [verdict]
    [said] = plain(crossover_sentences(crossings, LABELS))
    assert said.startswith(begin)
    assert ("single runs" in said) == (len(noise) == 1)
    assert ("not significant" in said or "Not every" in said) == (noise == WIDE)


def test_a_crossing_of_latencies_is_overtaken_by_the_lower_and_a_missing_curve_is_named():
    latency = curves([100, 200], [80, 260]).rename(columns={"iops": "lat_ns"})
    said = crossover_sentences(hci.crossover(latency, "a", "b", "lat_ns"), LABELS)
    assert said[0].startswith("Array A overtakes Array B in mean latency")
    missing = plain(crossover_sentences(hci.crossover(latency, "a", "ceph", "lat_ns"), LABELS))
    assert missing[0].startswith("Array A and ceph were not both measured")
