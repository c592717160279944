"""The site's front: an index of studies, a page for each study, and the method."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from nbconvert.filters import markdown2html

from hcilib.model.caveats import glossary, warnings_of
from hcilib.model.places import ROOT
from hcilib.model.system import System, TestbedError, load_systems
from hcilib.say.lines import setting_value
from hcilib.say.words import scheme_words
from hcilib.show.report.page import TEMPLATES, Section, dark_inks, rendered, unescaped
from hcilib.show.report.strips import strip
from hcilib.show.report.studies import CHAPTER, STRIP, Result, Story, case, label_of, rows_of, stories


def write_index(results: Sequence[Result], out: Path, revision: str, root: Path = ROOT) -> Path:
    """Write the index, a page for each study, the table of figures and the map; return the index."""
    out.mkdir(parents=True, exist_ok=True)
    told, systems = stories(results, root), known_systems()
    for story in told:
        story.strip = strip_of(story, out)
        story.runs, story.caveats = _conditions(story, out)
        _write_study(story, out, revision, systems, several=len(told) > 1)
    _write_map(told, out)
    _write_figures(told, out, revision)
    inks = dark_inks(" ".join(_inks(story) for story in told))
    content: dict[str, Any] = {"results": results, "stories": told}
    return _write(out, "index.html", **content, revision=revision, inks=inks)


def strip_of(story: Story, out: Path) -> dict[str, Any] | None:
    """Return the strip of a study's first comparison, whose answers are beside it, if it is of IOPS."""
    page = next((page for page in story.pages if page["ok"] and STRIP in page.get("files", [])), None)
    winners = _download(out / page["name"] / STRIP) if page else []
    return strip(winners) if winners and "iops" in winners[0] else None


def _conditions(story: Story, out: Path) -> tuple[str, list[str]]:
    """Return a study's least runtime and working set and its drives' set speed, and the caveats that each row has."""
    compared = [page for page in story.pages if "pooled.csv" in page.get("files", [])]
    if not compared:
        return "", []
    pages = [out / page["name"] for page in compared]
    systems = [row for page in pages for row in _download(page / "pooled.csv")]
    least = {name: min((float(row[name]) for row in systems if row[name]), default=None) for name in CONDITIONS}
    runtime, span = least["runtime_s"], least["span_bytes"]
    runs = "runtime not stated" if runtime is None else f"runs of at least {runtime:.3g} s"
    size = "working set not stated" if span is None else f"working set of at least {setting_value('size_bytes', span)}"
    rows = warnings_of(pd.DataFrame([row for page in pages for row in _download(page / "iops.csv")]))
    every = set.intersection(*(set(codes.split()) for codes in rows)) if len(rows) else set()
    meanings = glossary(pd.DataFrame({"warnings": sorted(every)}))
    set_to = "drives set to {read_iops:g} read and {write_iops:g} write IOPS"
    drives = dict.fromkeys(set_to.format(**page["drive"]) for page in compared if isinstance(page.get("drive"), dict))
    return ", ".join([runs, size, *drives]), [f"{row.code}: {row.meaning}" for row in meanings.itertuples()]


CONDITIONS = ("runtime_s", "span_bytes")


def _download(file: Path) -> list[dict[str, str]]:
    """Return the rows of a page's table, as they were before they were written for spreadsheets."""
    return [{unescaped(key): unescaped(value) for key, value in row.items()} for row in rows_of(file)]


def _inks(story: Story) -> str:
    systems = story.strip["systems"] if story.strip else []
    return " ".join(f"var(--i{system['colour']}," for system in systems)


def _write_study(story: Story, out: Path, revision: str, known: Mapping[str, System], several: bool) -> None:
    chapters = [
        {
            "question": question,
            "pages": [{**page, "label": label_of(page, story.pages), "case": case(page["name"])} for page in pages],
            "shown": _chapter(pages[0], out),
        }
        for question, pages in story.chapters
    ]
    inks = dark_inks(_inks(story) + "".join(str(chapter["shown"]) for chapter in chapters))
    systems = [name for page in story.pages for name in page.get("systems", [])]
    systems += [system["name"] for system in story.strip["systems"]] if story.strip else []
    content: dict[str, Any] = {"story": story, "chapters": chapters, "topology": topology(systems, known)}
    content["several"] = several
    _write(out, story.path, "study", **content, revision=revision, inks=inks)


def _chapter(page: Result, out: Path) -> str:
    """Return the main figure and the first short table of a page, as HTML."""
    file = out / page["name"] / CHAPTER
    return file.read_text("utf-8") if page["ok"] and file.is_file() else ""


def _write_map(told: Sequence[Story], out: Path) -> None:
    """Write the links from page to page into one file that every page of evidence loads.

    So a page need not be written again when another comes.
    """
    site = []
    for story in told:
        pages = [
            {"name": page["name"], "role": label_of(page, story.pages), "page": page["page"]}
            | {"systems": page.get("systems", [])}
            for page in story.pages
            if page["page"]
        ]
        site.append({"short": story.study.short, "path": story.path, "pages": pages})
    (out / "site.js").write_text(f"window.SITE={json.dumps(site, ensure_ascii=False)};\n", "utf-8")


def _write_figures(told: Sequence[Story], out: Path, revision: str) -> None:
    """Write where each figure and table of the articles is, for those that have pages here."""
    pages = {page["name"]: page["page"] for story in told for page in story.pages if page["page"]}
    drawn = [(story, [_figure(row, pages) for row in story.figures]) for story in told if story.figures]
    if drawn:
        _write(out, "figures.html", told=drawn, revision=revision)


def _figure(row: Mapping[str, str], pages: Mapping[str, str]) -> dict[str, str | None]:
    scenario, why = row["scenario"].strip("`"), row["why"].replace("`", "")
    anchor = Section(row["heading"]).anchor
    return {**row, "scenario": scenario, "page": pages.get(scenario), "anchor": anchor, "why": why}


def write_method(out: Path, revision: str) -> Path:
    """Write the page that explains runs, intervals, verdicts and ceilings; every other page links to it."""
    body = markdown2html((TEMPLATES / "method.md").read_text("utf-8"))
    out.mkdir(parents=True, exist_ok=True)
    return _write(out, "method.html", body=body, revision=revision)


def _write(out: Path, page: str, template: str = "", **content: Any) -> Path:
    (out / page).write_text(rendered(template or page.removesuffix(".html"), **content), "utf-8")
    return out / page


# ---- The hardware of a study as a drawing: nodes, drives, VMs and links, and how each system keeps its data


def known_systems() -> dict[str, System]:
    """Return the systems of params/systems; none where a file there is broken, as its scenario says so."""
    try:
        return load_systems()
    except TestbedError:
        return {}


def topology(names: Iterable[str], known: Mapping[str, System]) -> list[dict[str, Any]]:
    """Return the hardware of some systems, those on equal hardware together.

    Parameters
    ----------
    names : of systems as results call them
    known : name -> system, as its file tells it

    Returns
    -------
    dicts : nodes, drives (of a node), drive (model and size), vms (None where not told), systems (label, scheme and
    transport in words); a system whose file does not tell its nodes is left out
    """
    found: dict[tuple, dict[str, Any]] = {}
    for system in (known[name] for name in dict.fromkeys(names) if name in known):
        if not system.nodes:
            continue
        model = system.drive.model if system.drive else ""
        key = (system.nodes, system.drives_per_node, model)
        group = found.setdefault(key, _hardware(system, model))
        group["systems"].append(_system(system))
    return list(found.values())


def _hardware(system: System, model: str) -> dict[str, Any]:
    held = system.drive.bytes if system.drive else None
    told = re.search(r"\d ?[GTM]i?B", model)
    size = "" if told or not held else f", {held / 1e12:.3g} TB"
    return {
        "nodes": system.nodes,
        "drives": system.drives_per_node or 0,
        "drive": f"{model}{size}" if model else "",
        "vms": system.vms.count if system.vms else None,
        "systems": [],
    }


def _system(system: System) -> dict[str, str]:
    """Return a system's label, and in words how it keeps its data and over which transport."""
    layout = scheme_words(system.scheme) if system.scheme else "layout not stated"
    return {
        "label": system.short or system.label,
        "layout": ", ".join(filter(None, (layout, system.transport))),
    }
