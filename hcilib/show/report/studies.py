"""Which pages tell one story: those of an article, of a box, of the lab, of your own; then the method. In reading
order."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hcilib.places import ROOT
from hcilib.show.report.scenarios import Scenario, parameters_of
from hcilib.system import known_labels

SHORT = {
    "proxmox-2node-hci": "Proxmox", "starwind-s2d-rdma-hyperv": "Hyper-V", "s2d-csv-io-datapath": "CSV",
    "starwind-vsan-4node-scaling": "Scaling", "s2d-2way-vs-nested": "Deduplication",
}  # fmt: skip
"""What the titles of an article's pages begin with."""

FIRST = ("proxmox-2node-hci", "starwind-s2d-rdma-hyperv")
ROLES = {
    "04": "comparison", "05": "one I/O", "03": "each system", "14": "demand", "06": "scaling", "08": "resiliency",
    "07": "data path", "09": "capacity", "13": "failure", "15": "neighbours", "02": "bare drive", "01": "plan",
    "10": "audit", "12": "change", "11": "method", "00": "files",
}  # fmt: skip
"""Notebook -> what its page is in a story, in reading order: the finding first, then what it costs, then the doubts."""


_FIGURE = ("article", "figure", "what", "scenario", "heading", "why")


@dataclass(frozen=True)
class Study:
    """One story: who measured what, and where it was published."""

    key: str
    short: str
    title: str
    line: str
    compares: str


def studies(root: Path = ROOT) -> dict[str, Study]:
    """Key -> study, in the order of the index: the articles, what was measured here, yours, the method."""
    published = {row["source"]: row for row in _rows(root / "data" / "published" / "sources.csv")}
    order = [*(key for key in FIRST if key in published), *(key for key in published if key not in FIRST)]
    found = {key: _article(key, published[key]) for key in order}
    for row in _rows(root / "data" / "samples" / "studies.csv"):
        line = "; ".join(text for text in (row["site"], row["date"], row["measured"]) if text)
        found[row["key"]] = Study(row["key"], row["short"], row["title"], line, row["compares"])
    for key in ("yours", "method"):
        found.setdefault(key, Study(key, key.capitalize(), key.capitalize(), "", ""))
    return found


def figures(root: Path = ROOT) -> dict[str, list[dict[str, str]]]:
    """Study -> what its article prints, draws or states, and the scenario and heading that show it: the rows of
    docs/ARTICLES.md, which knows articles by the numbers in sources.csv."""
    document = root / "docs" / "ARTICLES.md"
    lines = document.read_text("utf-8").splitlines() if document.is_file() else []
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    found = [dict(zip(_FIGURE, row, strict=True)) for row in cells if len(row) == len(_FIGURE)]
    known = _rows(root / "data" / "published" / "sources.csv")
    return {
        row["source"]: [own for own in found if own["article"][:3] == row["article"][:3]]
        for row in known
        if any(own["article"][:3] == row["article"][:3] for own in found)
    }


def study_of(scenario: Scenario, root: Path = ROOT) -> str:
    """The key of the study that a scenario belongs to: by its article, its tables, its run directories, its system."""
    values = {name: p.default for name, p in parameters_of(scenario.notebook).items()} | scenario.params
    known, texts = studies(root), list(_strings(scenario.params)) + list(_strings(list(values.values())))
    case = scenario.name.partition(".")[2]
    if scenario.name[:2] in ("11", "12"):
        return "method"
    if not scenario.params_path.resolve().is_relative_to(root.resolve() / "params"):
        return "yours"
    if values.get("article") in known:
        return str(values["article"])
    if case.startswith("box"):
        return "box-ceph" if "ceph" in case or "osd" in case else "box"
    if case.startswith("lab"):
        return "lab"
    for text in texts:
        if text.endswith(".csv") and (root / text).is_file():
            source = next((row.get("source", "") for row in _rows(root / text)), "")
            if source in known:
                return source
    systems = {row.get("system"): row.get("source", "") for row in _rows(root / "data" / "published" / "results.csv")}
    return next((systems[name] for text in texts if systems.get(name := Path(text).stem) in known), "method")


def role_of(scenario: str) -> str:
    """What a page is in its story, such as ``capacity``; of a sweep, whose."""
    number, case = scenario[:2], scenario.partition(".")[2]
    role = ROLES.get(number, scenario.partition(".")[0])
    return known_labels().get(case, case) if role == "each system" else role


def reading_order(name: str) -> tuple[int, str]:
    numbers = list(ROLES)
    return (numbers.index(name[:2]) if name[:2] in numbers else len(numbers), name)


def systems_of(params: Mapping[str, Any]) -> list[str]:
    """The systems that a scenario's parameters name."""
    named = [Path(text).stem for text in _strings(list(params.values())) if "params/systems/" in text]
    return list(dict.fromkeys([*named, *(str(params[k]) for k in ("baseline", "challenger") if params.get(k))]))


def _article(key: str, row: Mapping[str, str]) -> Study:
    what = row["under_test"].partition(":")[0]
    title = row["title"] or what[:1].upper() + what[1:]
    line = ", ".join(text for text in (row["author"], row["site"], row["date"]) if text) or "author and date not stated"
    return Study(key, SHORT.get(key, key), title, f"{line}; one printed mean a test: no interval", row["under_test"])


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _strings(part)


@cache
def _rows(file: Path) -> list[dict[str, str]]:
    if not file.is_file():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def clause(answer: str, longest: int = 130) -> str:
    """The first statement of an answer, as a title: up to where it qualifies itself."""
    first = re.split(r"(?<=[a-z0-9)%])\. |; | \((?=[a-z0-9])|: (?=ratio )", answer.strip(), maxsplit=1)[0].rstrip(".")
    if len(first) <= longest:
        return first
    return first[:longest].rsplit(", ", 1)[0] if ", " in first[:longest] else first[:longest].rsplit(" ", 1)[0] + " …"
