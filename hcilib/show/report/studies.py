"""Which scenarios tell one story, in which order a story is read, and which answers the index has."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hcilib.model.places import ROOT, shipped
from hcilib.model.study import Study, load_studies
from hcilib.model.system import known_labels
from hcilib.say.words import listed
from hcilib.show.report.scenarios import Scenario

Result = Mapping[str, Any]

CHAPTERS = {
    "04": "Who is faster?",
    "00": "Who is faster in these files?",
    "05": "How long does one I/O take?",
    "17": "Where does the time of one I/O go?",
    "14": "How much load within a latency limit?",
    "09": "What does it cost?",
    "13": "What happens when something fails?",
    "15": "Who is slowed down by neighbours?",
    "03": "Which load is best?",
    "06": "How does it grow with VMs?",
    "08": "What do resiliency and deduplication cost?",
    "07": "What crosses the network?",
    "02": "What do the bare drives do?",
    "10": "Do the numbers hold?",
    "16": "Has anything changed, and since when?",
    "01": "What is the plan, and how many runs does it need?",
}
"""Notebook -> the question of its chapter, in reading order."""
ANSWERED = ("04", "14", "09", "13")
"""Notebooks whose answers the index has."""
YOURS = Study(short="Yours", title="Your scenarios", under_test="the systems of your params files", scenarios=())
HARDWARE = {"real": "Real hardware", "emulated": "Emulated hardware", "simulated": "Simulation",
            "unstated": "Hardware not stated"}  # fmt: skip


@dataclass
class Story:
    """A study with the pages that a report has of it."""

    key: str
    study: Study
    pages: list[Result]
    strip: dict[str, Any] | None = None
    runs: str = ""
    """How long the runs of its comparison lasted at least, and over how much data; empty without one."""
    caveats: Sequence[str] = ()
    """What holds of every row of its comparison."""
    figures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"study.{self.key}.html"

    @property
    def title(self) -> str:
        """The finding of its first page; the study's own title where that is missing or cut before its proof."""
        first = next((page["title"] for page in self.front if page.get("title")), "")
        return self.study.title if not first or first.endswith("…") else first

    @property
    def provenance(self) -> str:
        """Who measured, when, on what, and how often."""
        by = f"measured by {self.study.measured_by}" if self.study.measured_by else ""
        who = ", ".join(filter(None, (by, self.study.date)))
        what = ", ".join(filter(None, (HARDWARE[self.study.hardware], self.study.repeats)))
        return " ".join(
            f"{text[:1].upper()}{text[1:]}." for text in (self.study.under_test, who, what, self.runs) if text
        )

    @property
    def chapters(self) -> list[tuple[str, list[Result]]]:
        """The question of each chapter, and the pages that answer it."""
        found: defaultdict[str, list[Result]] = defaultdict(list)
        for page in self.pages:
            if page not in self.plans:
                found[chapter(page["name"])].append(page)
        return list(found.items())

    @property
    def plans(self) -> list[Result]:
        """Pages that are linked at the end, as they decide nothing."""
        return [page for page in self.pages if page["name"].startswith(PLAN) and page["ok"]]

    @property
    def unknown(self) -> str:
        """Which questions about compared systems have no page."""
        there = {page["name"][:2] for page in self.pages}
        absent = [words for number, words in UNMEASURED.items() if number not in there]
        return f"Not measured: {listed(absent)}." if self.strip and absent else ""

    @property
    def front(self) -> list[Result]:
        """Its pages in reading order; without one that the index names, those first that its file names first."""
        if any(page["name"][:2] in ANSWERED for page in self.pages):
            return self.pages
        return sorted(self.pages, key=lambda page: [*self.study.scenarios, page["name"]].index(page["name"]))

    @property
    def answers(self) -> list[tuple[str, str]]:
        """The questions that the index has of a study, each with the answer of its first page."""
        pages = {page["name"][:2]: page for page in reversed(self.front) if page["ok"] and page["answer"]}
        numbers = [number for number in ANSWERED if number in pages] or [page["name"][:2] for page in self.front[:1]]
        return [(chapter(number), pages[number]["answer"]) for number in numbers if number in pages]

    @property
    def contradictions(self) -> list[str]:
        """The finding on an article's claims: how many of them differ from its own tables."""
        audits = (page["finding"] for page in self.pages if page["name"].startswith("10_audit") and self.study.article)
        return [finding for finding in audits if finding]


PLAN = "01_"
"""How the names of plans begin."""
UNMEASURED = {
    "05": "the latency of one I/O",
    "14": "the load within a latency limit",
    "13": "failures",
    "15": "the effect of neighbours",
}
"""Notebook -> what is not known where a study has no page of it."""
STRIP = "winners.csv"
"""File of a comparison from which its strip is drawn; its page's main figure shows the same."""
CHAPTER = "chapter.html"
"""File beside a page of evidence: its main figure and first short table, for the page of its study."""
FIGURE = ("article", "figure", "what", "scenario", "heading", "why")
"""Columns of the table of an article's figures: `figure` is its heading and the number of its passage."""
SHOWN = ("picture", "table", "source")
"""Kinds of passages that are figures or tables, or the only source of a number."""


def chapter(name: str) -> str:
    """Return the question of a scenario's chapter."""
    return CHAPTERS.get(name[:2], "More")


def reading_order(name: str, study: Study = YOURS) -> tuple[int, int, str]:
    """Return the place of a scenario: by its chapter, then as its study names them, then by name."""
    numbers, named = list(CHAPTERS), list(study.scenarios)
    place = numbers.index(name[:2]) if name[:2] in numbers else len(numbers)
    return place, named.index(name) if name in named else len(named), name


def find_studies(root: Path = ROOT) -> dict[str, Study]:
    """Return key -> study in the order of the index: yours, real hardware, then the rest.

    Of one kind the study with more scenarios comes first.
    """
    known = load_studies(shipped("params/studies", root))
    rank = list(HARDWARE)
    order = sorted(known, key=lambda key: (rank.index(known[key].hardware), -len(known[key].scenarios), key))
    return {"yours": YOURS} | {key: known[key] for key in order}


def study_of(scenario: Scenario, root: Path = ROOT) -> str:
    """Return the key of the study that names a scenario of the repository's params; of any other, yours."""
    if not scenario.params_path.resolve().is_relative_to(shipped("params", root).resolve()):
        return "yours"
    studies = find_studies(root)
    return next((key for key, study in studies.items() if scenario.name in study.scenarios), "yours")


def stories(results: Sequence[Result], root: Path = ROOT) -> list[Story]:
    """Return the studies that have pages, each with its pages in reading order."""
    pages: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        pages[result.get("study", "yours")].append(result)
    drawn, told = figures(root), []
    for key, study in ((key, study) for key, study in find_studies(root).items() if key in pages):
        own = {page["name"]: page for page in pages[key]}
        ordered = [own[name] for name in sorted(own, key=partial(reading_order, study=study))]
        told.append(Story(key, study, ordered, figures=drawn.get(study.article or "", [])))
    return told


def label_of(page: Result, pages: Sequence[Result]) -> str:
    """Return what a page is called in a list: its question, and its case where several answer one question."""
    name = page["name"]
    alike = [other for other in pages if other["name"][:2] == name[:2]]
    question = chapter(name).rstrip("?")
    return f"{question}: {case(name)}" if len(alike) > 1 else question


def case(name: str) -> str:
    """Return the case of a scenario's name in words, a system by its label."""
    text, labels = name.partition(".")[2], known_labels()
    system = max((s for s in labels if f"{text}-".startswith(f"{s}-")), key=len, default="")
    return f"{labels.get(system, '')}{text.removeprefix(system).replace('-', ' ')}"


# ---- Where an article's figures are


def figures(root: Path = ROOT) -> dict[str, list[dict[str, str]]]:
    """Return article -> its figures and tables, with the scenario and heading that show each.

    Source: data/published/passages.csv.
    """
    sources, passages = (shipped(f"data/published/{name}.csv", root) for name in ("sources", "passages"))
    numbers = {row["source"]: row["article"][:3] for row in rows_of(sources)}
    found: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows_of(passages):
        pages = re.findall(r"p:([^#;]+)#([^;]+)", row["where"])
        if row["no_claim"] in SHOWN or row["statement"].startswith("Figure "):
            scenario, heading = pages[0] if pages else ("", "")
            place = f"{row['heading'].rstrip(':')}, {row['first']}"
            cells = (numbers[row["source"]], place, row["statement"], scenario, heading, row["reason"])
            found[row["source"]].append(dict(zip(FIGURE, cells, strict=True)))
    return dict(found)


def rows_of(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file; none where there is no such file."""
    if not file.is_file():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
