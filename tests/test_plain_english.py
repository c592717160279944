"""Rules of plain English find what they should, and every sentence that the library makes keeps them."""

import json
import re
from pathlib import Path

import pytest

from tests.style import MEDIAN, faults, usual_length

ROOT = Path(__file__).resolve().parents[1]


def texts_of(notebook: Path) -> list[str]:
    """Return every text that a notebook's cells print: answers and facts."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return ["".join(output["text"]) for output in outputs if output["output_type"] == "stream"]


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_printed_texts_of_a_notebook_keep_the_rules(notebook):
    assert [fault for text in texts_of(notebook) for fault in faults(text)] == []


def test_sentences_of_all_notebooks_are_short():
    texts = [text for path in (ROOT / "notebooks").glob("*.ipynb") for text in texts_of(path)]
    assert usual_length(texts) <= MEDIAN


GUIDES = (
    "README",
    "NEUTRALITY",
    "SECURITY",
    "CODE_OF_CONDUCT",
    "docs/GUIDE",
    "docs/EXTEND",
)


def passages(text: str) -> list[str]:
    """Return the paragraphs, list items and table cells of a page in Markdown, without code, marks and addresses."""
    blocks = [b for b in re.sub(r"(?s)```.*?```", "", text).split("\n\n") if not b.startswith("    ")]
    items = [item for block in blocks for item in re.split(r"\n(?=[-|]|\d\. )", block)]
    cells = [cell for item in items for cell in (item.strip("|").split("|") if item.startswith("|") else [item])]
    return [re.sub(r"\s+", " ", re.sub(r"^(?:[-#>]+|\d\.) *|\]\([^)]*\)|!?\[|\*", "", cell)) for cell in cells]


@pytest.mark.parametrize("page", GUIDES)
def test_pages_for_users_keep_the_rules(page):
    texts = passages((ROOT / f"{page}.md").read_text("utf-8"))
    assert [fault for text in texts for fault in faults(text)] == []
    assert usual_length(texts) <= MEDIAN
