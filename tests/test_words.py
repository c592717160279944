"""docs/WORDS.md: sentences of drawn tables claim no more than their rows."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hcilib as hci
from hcilib.model.metrics import CHECKS, PLACES
from hcilib.show.report.scenarios import LONGEST, title_of

ROOT = Path(__file__).resolve().parents[1]
WORDS = (ROOT / "docs/WORDS.md").read_text("utf-8")
NEVER = ("over 27 cells", "0 points where", "on the front of", "significantly", "nan", "None")


def results(runs: dict[str, list[float]], pattern: str = "4k-randread") -> pd.DataFrame:
    rows = [
        {
            "system": name,
            "pattern": pattern,
            "iodepth": 8,
            "vms": 4,
            "block": i,
            "rep": 0,
            "iops": value,
            "iops_per_cpu_pct": value / 50,
        }
        for name, values in runs.items()
        for i, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


def test_the_page_has_every_verdict():
    rows = re.findall(r"^\| ([a-z, ]+) \|", WORDS, re.M)
    verdicts = {verdict for row in rows for verdict in row.split(", ")}
    tested = {"higher", "lower", "equivalent", "inconclusive", "point", "missing"}
    campaigns = {"regression", "improvement", "changed", "no change seen"}
    assert verdicts >= {*tested, *campaigns, "leads", "tied", "untested"}


@settings(max_examples=25, deadline=None)
@given(st.integers(1000, 900_000), st.floats(0.3, 3.0), st.integers(1, 5), st.integers(0, 10_000))
def test_who_is_first_is_said_as_it_is_known(level, ratio, runs, seed):
    noise = np.random.default_rng(seed).lognormal(0, 0.01, (2, runs))
    drawn = results({"a": list(level * noise[0]), "b": list(level * ratio * noise[1])})
    table = hci.winners(drawn)
    first = table.loc[table["pct_of_best"].idxmax()]
    said = hci.winners_facts(table, {"a": "Array A", "b": "Array B"})
    assert said[0].startswith(f"Highest IOPS: Array {first['system'].upper()} in 1 of 1 patterns (")
    if runs == 1:
        assert first["state"] == "untested"
        assert "none of it tested: one number each" in said[0]
    else:
        assert first["state"] in ("leads", "tied")
        assert ("1 of 1 shown by a test" in said[0]) == (first["state"] == "leads")
    assert not [word for word in NEVER if word in " ".join(said)]


def test_the_lowest_latency_is_first_and_called_so():
    drawn = results({"a": [1000, 1010], "b": [2000, 2020]}).assign(p99_ns=[2e6, 2.01e6, 1e6, 1.01e6])
    said = hci.winners_facts(hci.winners(drawn, "p99_ns"), {"a": "Array A", "b": "Array B"}, "p99_ns")
    assert said[0].startswith("Lowest p99 latency: Array B in 1 of 1 patterns (")


def test_what_a_comparison_leaves_open_is_said_and_nothing_where_all_is_known():
    printed = results({"a": [100.0], "b": [200.0]}).assign(node_cpu_pct=50.0)
    known = results({"a": [100.0, 101], "b": [200.0, 202]}).assign(node_cpu_pct=50.0, p99_ns=1e6)
    assert hci.unknown_facts(hci.winners(printed), printed) == [
        "Not known: the tail (p99 latency), which no source gives; what a second campaign would give, as each is one "
        "number."
    ]
    assert hci.unknown_facts(hci.winners(known), known) == []
    half = known.assign(node_cpu_pct=lambda t: t["node_cpu_pct"].where(t["system"] == "a"))
    assert hci.unknown_facts(hci.winners(half), half, labels={"b": "B"}) == ["Not known: the nodes' CPU of B."]


def test_tables_call_checks_and_placements_by_the_words_of_the_page():
    audit = pd.DataFrame({"system": "a", "pattern": "4k-read", "check": list(CHECKS), "measured": 1.0, "expected": 1.0,
                          "ratio": 1.0, "ok": True})  # fmt: skip
    traffic = pd.DataFrame({"placement": list(PLACES), "ddir": "read", "observed": 1.0, "expected": 1.0, "ratio": 1.0,
                            "ok": True})  # fmt: skip
    for frame, words in ((audit, CHECKS), (traffic, PLACES)):
        said = repr(hci.table(frame))
        for name, word in words.items():
            assert word in said
            assert f"| `{name}` | {word} |" in WORDS
            assert not re.search(rf"(^|  ){name}  ", said)
    assert "Direction" in repr(hci.table(traffic))
    assert "ddir" not in repr(hci.table(traffic))


def test_a_tie_names_both_and_a_single_number_says_so():
    tied = hci.latency_answer(
        results({"a": [100.0, 101, 99], "b": [100.0, 99, 101]}).assign(lat_ns=lambda t: 1e9 / t["iops"]),
        pd.DataFrame({"system": [], "pattern": [], "ratio": []}), {"a": "A", "b": "B"},
    )  # fmt: skip
    assert re.search(r"of 2 systems: (A and B|B and A) are tied for first in 4k random read \(.* at best\)", tied)
    single = hci.latency_answer(
        results({"a": [100.0], "b": [200.0]}).assign(lat_ns=lambda t: 1e9 / t["iops"]),
        pd.DataFrame({"system": [], "pattern": [], "ratio": []}), {"a": "A", "b": "B"},
    )  # fmt: skip
    assert "B is first in 4k random read (5.000 ms); each is one number, so none is proven" in single


def test_every_system_that_is_first_is_named_once_with_all_its_patterns():
    rows = [
        {**row, "pattern": pattern, "rep": rep, "block": rep}
        for pattern, ms in {"4k-randread": (1, 2, 3), "4k-randwrite": (5, 2, 3), "4k-randwrite-sync": (4, 6, 6)}.items()
        for rep in (1, 2, 3)
        for row in ({"system": name, "lat_ns": 1e6 * (own + rep / 1e3)} for name, own in zip("abc", ms, strict=True))
    ]
    one = pd.DataFrame(rows).assign(iodepth=1, numjobs=1, vms=1, run_id="r", iops=lambda t: 1e9 / t["lat_ns"])
    said = hci.latency_answer(one, pd.DataFrame(columns=["ratio", "pattern"]), {"a": "A", "b": "B"})
    assert said == (
        "With one outstanding I/O, of 3 systems: A is first in 4k random read (1.002 ms) and synchronous "
        "4k random write (4.002 ms); B is first in 4k random write (2.002 ms)."
    )
    mixed = pd.concat([one[one["pattern"].ne("4k-randread")], one[one["pattern"].eq("4k-randread") & one["rep"].eq(1)]])
    said = hci.latency_answer(mixed, pd.DataFrame(columns=["ratio", "pattern"]))
    assert "a is first in 4k random read (1.001 ms, one number each: untested) and" in said


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("A has 31 % more IOPS than B. Each test was run once.", "A has 31 % more IOPS than B"),
        ("27 tests take 1.6 hours.\nA warning.", "27 tests take 1.6 hours"),
        ("One sentence alone.", "One sentence alone"),
        ("", ""),
    ],
)
def test_a_title_is_the_first_sentence(answer, title):
    assert title_of(answer) == title


def test_a_longer_sentence_is_cut_at_a_word():
    title = title_of("word " * 40)
    assert title.endswith("word …")
    assert len(title) <= LONGEST + 2


def test_committed_answers_keep_to_it():
    import nbformat

    wrong = []
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(notebook, 4).cells:
            tags = {"answer", "facts"} & set(cell.metadata.get("tags", []))
            if tags:
                text = "".join(o.get("text", "") for o in cell.outputs)
                never = [word for word in NEVER if re.search(rf"\b{re.escape(word)}\b", text)]
                cut = "answer" in tags and title_of(text).endswith("…")
                if never or cut or not text.strip():
                    wrong.append((notebook.stem, never, text))
    assert not wrong
