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


def require_short(name: str, text: str) -> None:
    """Raise a ValueError that names the template of an answer that is too long."""
    words = [word for word in text.split() if re.search(r"\w", word)]
    sentences = re.findall(r"\.(?:\s|$)", text)
    if len(words) > MOST_WORDS or len(sentences) > MOST_SENTENCES:
        raise ValueError(f"answers/{name}.j2: {len(words)} words in {len(sentences)} sentences")


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
    require_short(name, text)
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


@pytest.mark.parametrize("text", ["word " * 46 + ".", "One. Two. Three."])
def test_a_long_answer_is_refused_by_its_template(text):
    with pytest.raises(ValueError, match=r"answers/compare\.j2: "):
        require_short("compare", text)


def compared(ratio: float, noise: float = 0.001, runs: int = 2) -> Tables:
    """Return the inputs of 04 for two systems in two kinds of I/O, with a known ratio of b to a."""
    draws = [1, 1 + noise]
    rows = [
        {"system": system, "pattern": pattern, "iodepth": 8, "block": rep, "rep": rep, "iops": level * draws[rep]}
        for pattern, factor in (("4k-randread", ratio), ("4k-randwrite", ratio))
        for system, level in (("a", 1000.0), ("b", 1000.0 * factor))
        for rep in range(runs)
    ]
    tests, means = hci.compare(pd.DataFrame(rows), "a"), hci.overall(pd.DataFrame(rows), "a")
    kinds = means[means["part"] != "all"]
    verdicts = tests.value_counts("verdict")
    told = {"baseline": "a", "metric": "iops", "unlike": []}
    return {**told, "mean": means[means["part"] == "all"], "kinds": kinds, "verdicts": verdicts}


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.5, "b has 50 % fewer IOPS"), (1.3, "b has 30 % more IOPS"), (3.0, "b has 3 times the IOPS")],
)
def test_the_overall_mean_comes_first_with_its_size(ratio, text):
    said = hci.answer("compare", **compared(ratio))
    assert said.startswith("Against a, ")
    assert text in said.splitlines()[0]
    assert "95 % interval" in said.splitlines()[0]


def test_each_kind_of_io_has_the_size_of_its_mean():
    kinds = pd.DataFrame({"part": ["reads", "writes"], "ratio": [0.5, 1.25], "verdict": ["lower", "higher"]})
    kinds = kinds.assign(ratio_lo=[0.4, 1.1], ratio_hi=[0.6, 1.4])
    for said in (compared(0.5) | {"kinds": kinds}, compared(0.5) | {"kinds": kinds.assign(ratio_lo=float("nan"))}):
        assert NUMBER.findall(hci.answer("compare", **said).splitlines()[1])[:2] == ["50", "25"]


def test_single_runs_are_called_untested():
    assert "(untested)" in hci.answer("compare", **compared(0.5, runs=1))


def test_a_proven_mean_of_undecided_tests_is_the_answer():
    """FOUND T2: every test has 5 % more and none is decided, the mean is."""
    tests = [
        {"system": s, "pattern": p, "iodepth": 8, "block": r, "rep": r,
         "iops": 1000 * (1.05 if s == "b" else 1) * (1 + 0.02 * ((r * 7 + i * 3 + (s == "b") * 5) % 5 - 2))}
        for i, p in enumerate([f"{n}k-randread" for n in (4, 8, 16, 32, 64, 128)])
        for s in ("a", "b") for r in range(4)
    ]  # fmt: skip
    found = hci.compare(pd.DataFrame(tests), "a", adjust="holm")
    mean = hci.overall(pd.DataFrame(tests), "a")
    assert mean["verdict"].tolist() == ["higher"]
    assert "undecided" in set(found["verdict"])
    told = {"baseline": "a", "metric": "iops", "verdicts": found.value_counts("verdict"), "unlike": []}
    said = hci.answer("compare", mean=mean, kinds=[], **told)
    assert re.search(r"b has [\d.]+ % more IOPS \(95 % interval", said.splitlines()[0])
    assert re.search(r"\d undecided", said.splitlines()[1])


def test_losses_along_iodepth_are_told_from_two_iodepths_on():
    top = [{"system": "a", "iops": 1000.0, "pattern": "4k-read", "best": 8, "verdict": "peak"}]
    said = [hci.answer("sweep", top=top, losses=[], loads=loads).splitlines()[1] for loads in (1, 2, 3)]
    assert said[0] != said[1] == said[2]


def test_a_declared_price_is_said_as_it_was_declared():
    ends = [{"system": "a", "efficiency": 0.5}]
    priced = [{"system": "a", "price": 42000.0, "yearly_price": 14000.0, "years": 3.0, "currency": "EUR"}]
    assert NUMBER.findall(hci.answer("capacity", ends=ends, priced=priced))[1:] == ["42,000"]
