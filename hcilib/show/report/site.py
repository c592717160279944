"""The site's front: an index that tells the story, what leads from page to page, and the method."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbconvert.filters import markdown2html

from hcilib.model.metrics import METRICS, metric_of, pattern_order, scheme_words
from hcilib.model.places import ROOT
from hcilib.model.system import known_labels
from hcilib.show.figures.style import pattern_label
from hcilib.show.report.page import TEMPLATES, Section, rendered, unescaped
from hcilib.show.report.scenarios import Study, case_of, figures, reading_order, role_of, rows_of, studies


def write_index(results: list[dict[str, Any]], out: Path, revision: str, root: Path = ROOT) -> Path:
    """One block a study: its matrix, three facts and its pages in reading order; the method and self-tests apart."""
    blocks = blocks_of(results, out, root)
    _write_map(blocks, out)
    _write_figures(blocks, out, revision, root)
    return _write(out, "index.html", results=results, revision=revision, blocks=blocks)


def blocks_of(results: list[dict[str, Any]], out: Path, root: Path = ROOT) -> list[dict[str, Any]]:
    """The studies that have pages, in order, each with what the index says of it."""
    known, told = studies(root), defaultdict(list)
    for result in results:
        told[result["study"] if result.get("study") in known else "method"].append(result)
    return [_block(study, told[key], out) for key, study in known.items() if key in told]


def _block(study: Study, results: list[dict[str, Any]], out: Path) -> dict[str, Any]:
    pages = sorted(results, key=lambda r: reading_order(r["name"]))
    roles = [role_of(r["name"]) for r in pages]
    told = []
    for result, role in zip(pages, roles, strict=True):
        case = case_of(result["name"], study) if roles.count(role) > 1 else ""
        what = (result.get("title") or result["question"]).removeprefix(f"{study.short}: ")
        told.append({**result, "role": ", ".join(filter(None, (role, case))), "what": what})
    told_as_one = study.key != "method"  # self-tests have no finding in common
    return {
        "study": study, "pages": told, "facts": list(_facts(pages)), "matrix": _matrix(pages, out),
        "headline": next((r["answer"] for r in pages if r["ok"] and r["answer"]), "") if told_as_one else "",
        "picture": next((r for r in pages if r.get("thumbnail")), None),
    }  # fmt: skip


def _facts(pages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What it costs in CPU and in capacity, what is not known, and how many claims are wrong, as far as a study's pages
    say it; who is first stands in the matrix above."""
    told = {r["name"][:2]: r["facts"] for r in reversed(pages) if r.get("facts")}
    yield from told.get("04", ["", *told.get("09", [])[:1]])[1:]
    yield from told.get("10", [])[:1]


def _matrix(pages: Sequence[Mapping[str, Any]], out: Path) -> dict[str, Any] | None:
    """The winners of a study's comparison as rows of systems and columns of patterns, with what each leaves of its raw
    capacity."""
    page = next((r for r in pages if r["ok"] and "winners.csv" in r.get("files", [])), None)
    if page is None:
        return None
    rows = _download(out / page["name"] / "winners.csv")
    patterns, labels = pattern_order(row["pattern"] for row in rows), known_labels()
    sizes = {row["system"]: row for row in _download(out / page["name"] / "capacity.csv")}
    cells = {(row["system"], row["pattern"]): row for row in rows}
    systems = list(dict.fromkeys(row["system"] for row in rows))
    first = {name: cells.get((name, patterns[0])) or {} for name in systems}
    cpu = {name: float(row["iops_per_cpu_pct"]) for name, row in first.items() if row.get("iops_per_cpu_pct")}
    best: defaultdict[str, float] = defaultdict(float)
    for row in cells.values():
        best[row["system"]] += float(row["pct_of_best"] or 0)
    marks = {cell["mark"]: cell["words"] for cell in map(_cell, cells.values()) if cell["mark"]}
    return {
        "patterns": [(p, pattern_label(p)) for p in patterns],
        "page": page["page"],
        "legend": {mark: marks[mark] for mark, _ in STATES.values() if mark in marks},
        "rows": [
            {
                "system": labels.get(name, name),
                "cells": [_cell(cells.get((name, p))) for p in patterns],
                "usable": _usable(sizes.get(name, {})),
                "cpu": f"{cpu[name]:,.0f}" if name in cpu else "",
                "bar": 100 * cpu[name] / max(cpu.values()) if name in cpu else 0,
            }
            for name in sorted(systems, key=lambda name: -best[name])
        ],
    }


def _download(file: Path) -> list[dict[str, str]]:
    """The rows of a page's table, as they were before they were written for spreadsheets."""
    return [{unescaped(key): unescaped(value) for key, value in row.items()} for row in rows_of(file)]


STATES = {
    "leads": ("●", "leads, shown by a test"),
    "tied": ("◐", "first, or not told apart from the first by a test"),
    "untested": ("○", "first by one number each, untested"),
    "near": ("≈", "within {margin} of the first, by one number each: who is first is open"),
    "behind": ("", "behind"),
    "missing": ("", "not measured"),
}
"""Of a cell: its mark, and what that says."""


def _cell(row: Mapping[str, str] | None) -> dict[str, Any]:
    if row is None or not row["pct_of_best"]:
        return {"mark": "", "said": "not measured", "pct": None, "state": "missing"}
    percent, load = float(row["pct_of_best"]), f"{float(row['iodepth']):g}"
    state = "near" if row["state"] == "untested" and percent < 100 else row["state"]
    mark, words = STATES[state]
    said = words.format(margin=f"{100 * float(row['margin']):g} %")
    what = metric_of(next(name for name in row if name in METRICS and name != "iops_per_cpu_pct"))
    best = f"{what.show(float(row[what.name]))} {what.unit or what.label} at iodepth {load}"
    return {"mark": mark, "words": said, "said": f"{said}; {best}", "pct": f"{percent:.0f}", "state": state}


def _usable(size: Mapping[str, str]) -> tuple[str, str]:
    """The share of the raw capacity, and by which scheme."""
    if not size.get("efficiency"):
        return "not known", "no file says how it keeps its data"
    return f"{100 * float(size['efficiency']):.0f} %", scheme_words(size["scheme"])


def _write_map(blocks: Sequence[Mapping[str, Any]], out: Path) -> None:
    """What leads from page to page, in one file that every page loads: a page need not be written anew when another
    comes."""
    stories = []
    for study, pages in ((block["study"], block["pages"]) for block in blocks):
        shown = [{key: p.get(key, []) for key in ("name", "role", "page", "systems")} for p in pages if p["page"]]
        stories.append({"short": study.short, "key": study.key, "pages": shown})
    out.mkdir(parents=True, exist_ok=True)
    (out / "site.js").write_text(f"window.SITE={json.dumps(stories, ensure_ascii=False)};\n", "utf-8")


def _write_figures(blocks: Sequence[dict[str, Any]], out: Path, revision: str, root: Path) -> None:
    """Where each figure and table of the articles is: a page for those that have pages here, to which their blocks
    lead."""
    drawn = figures(root)
    told = [block for block in blocks if block["study"].key in drawn]
    pages = {page["name"]: page["page"] for block in blocks for page in block["pages"] if page["page"]}
    for block in told:
        block["figures"] = [_figure(row, pages) for row in drawn[block["study"].key]]
    if told:
        _write(out, "figures.html", told=told, revision=revision)


def _figure(row: Mapping[str, str], pages: Mapping[str, str]) -> dict[str, str | None]:
    scenario, why = row["scenario"].strip("`"), row["why"].replace("`", "")
    anchor = Section(row["heading"]).anchor
    return {**row, "scenario": scenario, "page": pages.get(scenario), "anchor": anchor, "why": why}


def write_method(out: Path, revision: str) -> Path:
    """The page every other links to: what a run, an interval, a verdict and a ceiling mean."""
    body = markdown2html((TEMPLATES / "method.md").read_text("utf-8"))
    return _write(out, "method.html", body=body, revision=revision)


def _write(out: Path, page: str, **content: Any) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    (out / page).write_text(rendered(page.removesuffix(".html"), **content), "utf-8")
    return out / page
