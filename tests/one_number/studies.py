"""Index and study pages have the numbers of their evidence: strip, sentences, tables and figures.

A study page quotes: each answer is a sentence of a page of evidence, each table and figure is one
of that page, and the strip has the values of the page's table. So a number that is right there is
right here, and `disagreements` lists every quotation that is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Tag
from hcilib.show.report.studies import ABSENT
from tests.one_number.claims import NUMBER, agree
from tests.one_number.pages import Page, read_built, read_table

MARK = re.compile(
    rf"(.+?): ({NUMBER}) % of the best, ({NUMBER}) IOPS(?: at queue depth ({NUMBER}))?,"
)
NOT_MEASURED = "Not measured"
OWN = re.compile("^Without another copy|^No failure of")
"""Sentences of a study alone, whose digits are those of names."""


def disagreements(site: Path) -> list[str]:
    """Return every number of index and study pages that their evidence does not have."""
    results = [json.loads(file.read_text("utf-8")) for file in sorted(site.glob("*/*.json"))]
    htmls = {r["name"]: (site / r["page"]).read_text("utf-8") for r in results}
    evidence = {name: read_built(name, html) for name, html in htmls.items()}
    drawn = {words for html in htmls.values() for words in drawings(html)}
    index = parsed(site / "index.html")
    found: list[str] = []
    for file in sorted(site.glob("study.*.html")):
        key, page = file.name.split(".")[1], parsed(file)
        own = {r["name"]: evidence[r["name"]] for r in results if r["study"] == key}
        undrawn = [words for words in drawings(file.read_text("utf-8")) if words not in drawn]
        found += [f"{key}: no page of evidence draws {words[:80]!r}" for words in undrawn]
        block = index.find(attrs={"aria-labelledby": f"study-{key}"})
        found += [
            f"{key}: the index and the study page differ in {what!r}"
            for what in unlike(block, page)
        ]
        found += [
            f"{key}: {what}"
            for what in (*unquoted(page, own), *unlisted(page, own), *off_strip(page, own))
        ]
    return found


def drawings(html: str) -> list[str]:
    """Return the words and numbers of every figure."""
    figures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    return [" ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", svg).split()) for svg in figures]


def parsed(file: Path) -> BeautifulSoup:
    return BeautifulSoup(file.read_text("utf-8"), "html.parser")


def marks_of(strip: Tag | None) -> list[str]:
    """Return the words of every mark of a strip, and the first of each row."""
    rows = strip.select(".row") if strip else []
    return [
        text
        for row in rows
        for text in (*_titles(row), row.select_one(".best").get_text(" ", strip=True))
    ]


def _titles(row: Tag) -> list[str]:
    return [str(mark["title"]) for mark in row.select("[title]")]


def unlike(block: Tag, page: Tag) -> Iterator[str]:
    """Yield what the index says of a study otherwise than the study's own page."""
    for select in (".answers dd", ".answers", "h1, h2[id^=study-]"):
        here, there = (
            [e.get_text(" ", strip=True) for e in part.select(select)][:5] for part in (block, page)
        )
        yield from (text for text in here if text not in there and select != "h1, h2[id^=study-]")
    ours, theirs = marks_of(block.select_one(".strip")), marks_of(page.select_one(".strip"))
    yield from (text for text in ours if text not in theirs)


def unquoted(page: Tag, evidence: Mapping[str, Page]) -> Iterator[str]:
    """Yield every sentence with a number that no page of evidence says."""
    said = " ".join(" ".join(own.said.split()) for own in evidence.values())
    known = {*ABSENT.values()}
    for text in (
        " ".join(e.get_text(" ").split()) for e in page.select(".answers dd, p.answer, .more")
    ):
        for sentence in re.split(r"(?<=[.?!])\s+", text):
            own = OWN.search(sentence) or sentence in known
            if re.search(NUMBER, sentence) and sentence not in said and not own:
                yield f"no page of evidence says {sentence!r}"


def unlisted(page: Tag, evidence: Mapping[str, Page]) -> Iterator[str]:
    """Yield every table of a chapter that is none of its evidence, cell by cell."""
    tables = [table for own in evidence.values() for table in own.tables]
    for found in page.select("table.hci"):
        shown = read_table(found)
        alike = (t for t in tables if list(t) == list(shown) and len(t) == len(shown))
        if not any((t.to_numpy()[:, :-1] == shown.to_numpy()[:, :-1]).all() for t in alike):
            yield f"no page of evidence has the table {list(shown)[:4]} ..."


def off_strip(page: Tag, evidence: Mapping[str, Page]) -> Iterator[str]:
    """Yield every mark of the strip that the table of the comparison does not list."""
    strip = page.select_one(".strip")
    if strip is None:
        return
    compared = next(own for name, own in evidence.items() if name.startswith("04_compare"))
    table = compared.table("Pattern", "System", "IOPS", "Share of the best (%)", "State")
    if table.empty:
        yield "its comparison lists no shares of the best"
    for text in (title for row in strip.select(".row") for title in _titles(row)):
        yield from _unmarked(text, table.to_dict("records"))


def _unmarked(text: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    said = MARK.match(text)
    if said is None:
        yield f"the mark {text!r} has no values"
        return
    own = [row for row in rows if row["System"] == said[1]]
    if not any(
        agree(said[2], row["Share of the best (%)"]) and agree(said[3], row["IOPS"]) for row in own
    ):
        yield f"the table does not list {text!r}"
