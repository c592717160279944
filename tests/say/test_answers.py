"""Answers of notebooks: how long they are, and that each number is the one of its input."""

import json
import re
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import hcilib as hci
from hcilib.say.answers import TEMPLATES

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"(?<![\w.,/])\d+(?:,\d{3})*(?:\.\d+)?(?![\w/])")
MOST_WORDS, MOST_SENTENCES = 45, 2
MOVES = (1.002, 0.998, 1.02, 0.98, 1.2, 0.8)
"""Factors by which an input moves, the smallest first."""
Tables = dict[str, Any]


def codes_of(notebook: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the code and the tags of each cell, up to the answer."""
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        tags = cell["metadata"].get("tags", [])
        if cell["cell_type"] == "code":
            yield "".join(cell["source"]), tags
        if "answer" in tags:
            return


def inputs_of(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Tables]:
    """Return the template of a notebook, and the tables that its cell passes."""
    passed = []
    monkeypatch.setattr(hci, "answer", lambda name, **tables: passed.append((name, tables)))
    monkeypatch.chdir(ROOT)
    cells: dict[str, Any] = {}
    for code, _ in codes_of(notebook):
        exec(code, cells)
    monkeypatch.undo()
    [(name, tables)] = passed
    frames = {key: own for key, own in tables.items() if isinstance(own, pd.Series)}
    return name, tables | {key: own.reset_index() for key, own in frames.items()}


ANSWERED = [
    path
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
    if any("hci.answer(" in code for code, _ in codes_of(path))
]


def moved(tables: Tables) -> Iterator[tuple[str, list[Tables]]]:
    """Yield each numeric input, and the tables in which it alone has moved."""
    for key, table in tables.items():
        if isinstance(table, pd.DataFrame):
            for column in table.select_dtypes("number"):
                for place, value in enumerate(table[column]):
                    yield (
                        f"{key}.{column}[{place}]",
                        [tables | {key: replaced(table, place, column, new)} for new in near(value)],
                    )
        elif isinstance(table, Real) and not isinstance(table, bool):
            yield key, [tables | {key: new} for new in near(table)]


def near(value: float) -> list[float]:
    if pd.isna(value):
        return []
    whole = [] if value % 1 else [value + 1, value + 2]
    return [*whole, *(value * move for move in MOVES)]


def replaced(table: pd.DataFrame, place: int, column: str, value: float) -> pd.DataFrame:
    """Return a table with one other value."""
    values = table[column].astype(object).tolist()
    values[place] = value
    return table.assign(**{column: pd.Series(values, table.index, dtype=object)})


def words_of(text: str) -> str:
    """Return a text without its numbers, and without the plural that one of them may ask for."""
    return re.sub(r"s\b", "", NUMBER.sub("#", text))


@pytest.mark.parametrize("notebook", ANSWERED, ids=lambda path: path.stem)
def test_an_input_moves_its_number_and_nothing_else(notebook, monkeypatch):
    name, tables = inputs_of(notebook, monkeypatch)
    text = hci.answer(name, **tables)
    assert len([word for word in text.split() if re.search(r"\w", word)]) <= MOST_WORDS
    assert len(re.findall(r"\.(?:\s|$)", text)) <= MOST_SENTENCES
    numbers = NUMBER.findall(text)
    sources: dict[int, list[str]] = {}
    for source, variants in moved(tables):
        others = (hci.answer(name, **variant) for variant in variants)
        alike = (other for other in others if words_of(other) == words_of(text))
        changed = next((other for other in alike if other != text), text)
        after = NUMBER.findall(changed)
        places = [place for place, pair in enumerate(zip(numbers, after, strict=True)) if pair[0] != pair[1]]
        assert len(places) <= 1, f"{source} moves {places}: {changed}"
        for place in places:
            sources.setdefault(place, []).append(source)
    written = [(TEMPLATES / f"{name}.j2").read_text("utf-8"), "95 % interval", *hci.short_labels().values()]
    fixed = " ".join(written)
    unexplained = [n for place, n in enumerate(numbers) if place not in sources and n not in fixed]
    assert unexplained == []
    assert all(len(own) == 1 for own in sources.values()), sources
    assert sources


def test_every_template_has_a_notebook():
    used = {n for path in ANSWERED for code, _ in codes_of(path) for n in re.findall(r'hci\.answer\("(\w+)"', code)}
    assert used == {path.stem for path in TEMPLATES.glob("*.j2")}
