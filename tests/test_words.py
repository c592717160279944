"""docs/WORDS.md: sentences of drawn tables claim no more than their rows."""

import re
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib.say.words import CHECKS, PLACES
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
    tested = {"higher", "lower", "same", "undecided", "untested", "missing"}
    campaigns = {"regression", "improvement", "changed", "no change seen"}
    assert verdicts >= {*tested, *campaigns, "leads", "tied", "untested"}


def test_tables_call_checks_and_placements_by_the_words_of_the_page():
    audit = pd.DataFrame({"system": "a", "pattern": "4k-read", "check": list(CHECKS), "measured": 1.0, "expected": 1.0,
                          "ratio": 1.0, "ok": True})  # fmt: skip
    traffic = pd.DataFrame({"placement": list(PLACES), "ddir": "read", "observed": 1.0, "expected": 1.0, "ratio": 1.0,
                            "ok": True})  # fmt: skip
    for frame, words in ((audit, CHECKS), (traffic, PLACES)):
        said = repr(hci.text(frame))
        for name, word in words.items():
            assert word in said
            assert f"| `{name}` | {word} |" in WORDS
            assert not re.search(rf"(^|  ){name}  ", said)
    assert "Direction" in repr(hci.text(traffic))
    assert "ddir" not in repr(hci.text(traffic))


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
            if "answer" in cell.metadata.get("tags", []):
                text = "".join(o.get("text", "") for o in cell.outputs)
                never = [word for word in NEVER if re.search(rf"\b{re.escape(word)}\b", text)]
                cut = title_of(text).endswith("…")
                if never or cut or not text.strip():
                    wrong.append((notebook.stem, never, text))
    assert not wrong
