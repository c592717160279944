"""Numbers of sentences: what they may be, and whether a page has them elsewhere.

A `Claim` is a fragment of a sentence around a number, for which ``#`` stands, and what the page has
elsewhere. An expected value is

- a table's cell as it is printed (``"1.46"``), which holds to the rounding of both;
- a number or a `Span`, computed from cells by `through`, `least`, `most` and `total`;
- a list of these, where the page has the quantity several times: all must agree;
- `QUOTED`, where the whole fragment is found word for word in one of the page's tables;
- ``Free("reason")``, where the number is in the sentence alone.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd
from hcilib.say.words import pattern_words, scheme_words
from tests.one_number.pages import Page

NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
ALONE = re.compile(rf"(?<![\w.,/+:-]){NUMBER}(?![\w+]|[/:.-]\w| % (?:interval|confidence))")
"""A number by itself: not of 4k, 70/30, p99, kill-node2, 4+2, a date or a level of confidence."""
TOUCH = 1e-9
"""Spans that share no more than an end do not agree."""


class Span(NamedTuple):
    """The values that a printed number may stand for."""

    lo: float
    hi: float


class Free(NamedTuple):
    """A number that only the sentence has."""

    reason: str


UNKNOWN = Span(math.nan, math.nan)
QUOTED = Free("the same words are in a table")


class Claim:
    """Numbers of a sentence, and where else on the page they are.

    `part` is where in the page's sentences to look, all of them by default.
    """

    def __init__(self, fragment: str, *expected: Any, part: tuple[int, int] | None = None):
        self.pattern = re.compile(fragment.replace("#", f"({NUMBER})"))
        self.expected, self.part = expected, part or (0, 10**9)


def judge(page: Page, claims: Iterable[Claim]) -> list[str]:
    """Return every number of `page.said` that a claim contradicts or that no claim is about."""
    found, seen = [], []
    for claim in claims:
        lo, hi = claim.part
        for match in claim.pattern.finditer(page.said, lo, min(hi, len(page.said))):
            for group, expected in enumerate(claim.expected, start=1):
                if match[group] is None:
                    continue
                seen.append(match.span(group))
                if not holds(match, group, expected, page):
                    found.append(f"{match[0]!r}: {match[group]} is {shown(expected)} on the page")
    for number in numbers_said(page):
        if not any(lo <= number.start() and number.end() <= hi for lo, hi in seen):
            around = page.said[max(0, number.start() - 40) : number.end() + 20]
            found.append(f"{around!r}: nothing on the page explains {number[0]}")
    return found


def listed_sentences(page: Page) -> list[str]:
    """Return every number of a sentence in a table that the other cells of its row do not have.

    A row's ratio may be said as per cent: 0.9 as 10 % fewer.
    """
    found = []
    for table in (t for t in page.tables if "Sentence" in t and len(t.columns) > 2):
        for row in table.to_dict("records"):
            said = row.pop("Sentence")
            if said.isdigit():  # the place of a sentence in an article
                continue
            cells = [part for text in row.values() for part in (text, *ends(text))]
            known = [value for cell in cells if span(cell) for value in (cell, off_pct(cell))]
            for number in numbers_said(replace(page, said=said, cells=page.cells - {said})):
                if not any(agree(number[0], value) for value in known):
                    found.append(f"{said!r}: nothing in its row explains {number[0]}")
    return found


def numbers_said(page: Page) -> list[re.Match]:
    """Return the numbers of the page's sentences, without digits of names."""
    names = [match.span() for match in _names(page)]
    found = ALONE.finditer(page.said)
    return [n for n in found if not any(lo <= n.start() and n.end() <= hi for lo, hi in names)]


def holds(match: re.Match, group: int, expected: Any, page: Page) -> bool:
    """Return whether a number of a sentence is the one that the page has elsewhere."""
    if expected is QUOTED:
        return any(match[0] in cell for cell in page.cells)
    if isinstance(expected, Free):
        return True
    if isinstance(expected, list):
        return all(holds(match, group, one, page) for one in expected)
    return agree(match[group], expected)


def agree(said: Any, there: Any) -> bool:
    """Return whether two values may be one number, each known to its printed digits."""
    a, b = span(said, listed=False), span(there)
    if a is None or b is None:
        return said == there
    wide = TOUCH * max(1.0, abs(b.hi))
    if a.lo == a.hi or b.lo == b.hi:
        wide = -wide  # an exact value may lie at an end
    return a.lo + wide < b.hi and b.lo + wide < a.hi


def shown(expected: Any) -> str:
    """Return an expected value as a message names it."""
    if isinstance(expected, list):
        return " and ".join(map(shown, expected))
    if isinstance(expected, Span):
        return f"{expected.lo:.6g} to {expected.hi:.6g}"
    return "in no table" if isinstance(expected, Free) else str(expected)


def span(value: Any, listed: bool = True) -> Span | None:
    """Return what a number may be: printed digits to half of the last one, others exactly.

    A table lists 8,729 as 8,730: of a `listed` number from 1,000 on three digits may be known.
    """
    if isinstance(value, Span):
        return value
    if not isinstance(value, str):
        return Span(float(value), float(value))
    if not re.fullmatch(rf"-?{NUMBER}", value):
        return None
    digits = value.replace(",", "")
    half = 0.5 * 10.0 ** -len(digits.partition(".")[2])
    if listed and digits.isdigit() and len(digits) > 3 and set(digits[3:]) == {"0"}:
        half = 0.5 * 10.0 ** len(digits[3:])
    return Span(float(digits) - half, float(digits) + half)


def through(function: Callable[..., float], *cells: Any) -> Span | str:
    """Return what a function gives for printed cells, or the first cell that is no number."""
    spans = [span(cell) for cell in cells]
    if None in spans:
        return next(cell for cell in cells if span(cell) is None)
    values = [function(*corner) for corner in itertools.product(*spans)]
    return Span(min(values), max(values))


def numbers(cells: Any) -> list[Span]:
    """Return the spans of those cells that are numbers."""
    return [found for found in map(span, cells) if found is not None]


def least(cells: Any) -> Span:
    found = numbers(cells) or [UNKNOWN]
    return Span(min(s.lo for s in found), min(s.hi for s in found))


def most(cells: Any) -> Span:
    found = numbers(cells) or [UNKNOWN]
    return Span(max(s.lo for s in found), max(s.hi for s in found))


def total(cells: Any) -> Span:
    found = numbers(cells)
    return Span(sum(s.lo for s in found), sum(s.hi for s in found))


def mean(cells: Any) -> Span:
    found = numbers(cells)
    return Span(total(found).lo / len(found), total(found).hi / len(found))


def whole(cells: Any) -> int:
    """Return the sum of counts, which are printed in full."""
    return round(sum(middle(cell) for cell in cells if span(cell)))


def middle(cells: Any) -> float:
    """Return the value in the middle of a cell's span, NaN where it is no number."""
    found = span(cells)
    return math.nan if found is None else (found.lo + found.hi) / 2


def off_pct(ratio: Any) -> Span | str:
    """Return how many per cent a ratio is from 1."""
    found = through(lambda r: 100 * abs(r - 1), ratio)
    crosses = isinstance(found, Span) and span(ratio).lo < 1 < span(ratio).hi
    return Span(0.0, found.hi) if crosses else found


def ends(interval: str) -> list[str]:
    """Return both ends of a printed interval, two empty texts where it has none."""
    found = re.findall(rf"-?{NUMBER}|∞", interval)
    return found if len(found) == 2 else ["", ""]


def count(cells: pd.Series, *words: str) -> int:
    return int(cells.isin(words).sum())


def lines(page: Page) -> Iterator[tuple[str, tuple[int, int]]]:
    """Return each line of the page's sentences, and where it is."""
    for line in re.finditer(r".+", page.said):
        yield line[0], line.span()


def _names(page: Page) -> Iterator[re.Match]:
    """Return where the sentences have names with digits: whole cells, and schemes in words."""
    schemes = [
        page.params.get("scheme"),
        page.params.get("other"),
        *(s for t in page.tables if "Scheme" in t for s in t["Scheme"]),
    ]
    words = {scheme_words(formula) for formula in schemes if formula} | page.cells
    patterns = {pattern_words(text) for text in words if re.match(r"\d+[km]-", text)}
    for name in words | patterns:
        digits = re.search(r"[A-Za-z]{2}", name) and re.search(r"\d", name)
        if digits and name.lower() in page.said.lower():
            yield from re.finditer(rf"(?<![\w-]){re.escape(name)}(?!\w)", page.said, re.IGNORECASE)
