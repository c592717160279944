"""A page's title is its answer's first sentence, and committed answers claim no more than their rows."""

import re
from pathlib import Path

import nbformat
import pytest

from hcilib.show.site.scenarios import LONGEST, title_of

ROOT = Path(__file__).resolve().parents[2]
NEVER = ("over 27 cells", "0 points where", "on the front of", "significantly", "nan", "None")


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


def test_committed_answers_have_a_title_and_no_word_that_claims_too_much():
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
