"""Print what a report costs its readers, beside the budget: python -m tests.report_budget out/report

Pages, lengths in a browser, bytes, empty sections, and what axe finds. A figure over its budget is
marked. Lengths and axe need chromium, playwright and axe-playwright-python. Without these the rest
is printed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from bs4 import BeautifulSoup, Tag

from tests.style import length

WIDTH, SCREEN = 1280, 800


class Cost(NamedTuple):
    """One figure, and the most that it may be (None: no budget)."""

    what: str
    value: float
    most: float | None
    note: str = ""

    def __str__(self) -> str:
        budget = "" if self.most is None else f" (at most {self.most:,g})"
        over = "   OVER" if self.most is not None and self.value > self.most else ""
        return f"{self.what}: {self.value:,.4g}{budget}{over}{f'   {self.note}' if self.note else ''}"


def parsed(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text("utf-8"), "html.parser")


def linked(site: Path) -> list[Path]:
    """Return the index and the pages that it and the study pages link to, evidence apart."""
    front = [site / "index.html", *sorted(site.glob("study.*.html"))]
    links = {unquote(str(a["href"]).partition("#")[0]) for page in front for a in parsed(page)("a", href=True)}
    pages = {site / link for link in links if link.endswith(".html") and "/" not in link}
    return sorted({front[0], *pages})


def empty_sections(page: BeautifulSoup) -> Iterator[Tag]:
    """Yield the sections that a reader sees and that hold a heading alone, or say that there is nothing."""
    for section in page("section"):
        if {"bare", "silent"} & set(section.get("class", [])):
            continue
        rest = [part for part in section.find_all(True, recursive=False) if part.name not in ("h1", "h2", "h3")]
        shown = [part for part in rest if "code" not in part.get("class", []) and part.get_text(strip=True)]
        if all("nothing" in part.get("class", []) for part in shown):
            yield section


def costs_of_files(site: Path) -> Iterator[Cost]:
    """Yield the figures that need no browser."""
    pages, front = linked(site), [site / "index.html", *sorted(site.glob("study.*.html"))]
    evidence = [page for page in sorted(site.glob("*/*.html")) if page.stem == page.parent.name]
    yield Cost("Pages linked from index and study pages", len(pages), 24, f"and {len(evidence)} of evidence")
    biggest = max(pages, key=lambda page: page.stat().st_size)
    yield Cost("Largest of them in kB", biggest.stat().st_size / 1000, 400, biggest.name)
    biggest = max(evidence, key=lambda page: page.stat().st_size, default=biggest)
    yield Cost("Largest page of evidence in kB", biggest.stat().st_size / 1000, None, biggest.name)
    scripts = [sum(len(s.get_text()) for s in parsed(page)("script", type=None)) for page in front]
    yield Cost("Script of a page in kB", max(scripts) / 1000, 60)
    titles = [heading.get_text(strip=True) for page in front for heading in parsed(page).select("h1, section.study h2")]
    yield Cost("Letters of the longest title", max(map(len, titles)), 90, max(titles, key=len))
    answers = [" ".join(a.get_text(" ").split()) for page in front for a in parsed(page).select(".answers dd")]
    longest = max(answers, key=length, default="")
    yield Cost("Words of the longest of the five answers", length(longest), 45, longest[:60])
    found = [
        f"{page.name}#{s.get('aria-labelledby')}" for page in (*pages, *evidence) for s in empty_sections(parsed(page))
    ]
    yield Cost("Empty sections", len(found), 0, ", ".join(found[:5]))


def costs_in_a_browser(site: Path) -> Iterator[Cost]:
    """Yield lengths at 1280 px and the findings of axe."""
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise ImportError("chromium")
    with sync_playwright() as started:
        flags = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        shown = started.chromium.launch(executable_path=browser, args=flags)
        heights, findings = {}, []
        for page in linked(site):
            tab = shown.new_page(viewport={"width": WIDTH, "height": SCREEN})
            tab.goto(page.resolve().as_uri())
            heights[page.name] = tab.evaluate("document.documentElement.scrollHeight")
            broken = Axe().run(tab).response["violations"]
            findings += [f"{page.name}: {rule['id']}" for rule in broken for _ in rule["nodes"]]
            tab.close()
        shown.close()
    studies = {name: px for name, px in heights.items() if name.startswith("study.")}
    longest = max(studies, key=studies.__getitem__)
    yield Cost("Their length in px in all", sum(heights.values()), 120_000)
    yield Cost("Screens of the index", heights["index.html"] / SCREEN, 4)
    yield Cost("Screens of the longest study page", studies[longest] / SCREEN, 10, longest)
    yield Cost("Findings of axe", len(findings), 0, ", ".join(sorted(set(findings))[:5]))


def main(site: Path) -> int:
    """Print every figure; 1 where one is over its budget."""
    costs = list(costs_of_files(site))
    try:
        costs += costs_in_a_browser(site)
    except ImportError as missing:
        print(f"Lengths and axe are not measured: this machine lacks {missing.name or missing}.")
    print(*costs, sep="\n")
    return int(any(cost.most is not None and cost.value > cost.most for cost in costs))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
