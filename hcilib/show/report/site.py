"""Executed notebooks as a site that needs no network: an index that tells the story, a page a scenario, style and
script inside."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from nbconvert.filters import Highlight2HTML, markdown2html, strip_ansi
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter

from hcilib.metrics import pattern_order
from hcilib.places import ROOT
from hcilib.show.figures.style import pattern_label
from hcilib.show.report.downloads import write_downloads
from hcilib.show.report.inked import dark_inks, inked
from hcilib.show.report.studies import Study, reading_order, role_of, studies
from hcilib.system import known_labels

TEMPLATES = Path(__file__).parent / "templates"
# No widgets: what they show is in the outputs' other forms, and nothing is fetched from a network.
SHOWN = ["text/html", "image/svg+xml", "image/png", "text/markdown", "text/plain"]
DRAWN = ("figure", "picture")
FEW = 12
"""Rows of a table that is open where no figure shows the same; longer ones are one click away."""


@dataclass
class Part:
    """One thing shown: a table, a figure, text, or the error of a cell."""

    kind: str
    body: str
    alt: str = ""
    files: list[str] = field(default_factory=list)
    rows: int = 0
    caption: str = ""

    @property
    def open(self) -> bool:
        return self.kind != "table" or 0 < self.rows <= FEW


@dataclass
class Section:
    """A heading, the sentence under it, what it says of the method, what is shown and the code behind it."""

    title: str
    said: str = ""
    more: str = ""
    parts: list[Part] = field(default_factory=list)
    code: list[str] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        return re.sub(r"\W+", "-", self.title.lower()).strip("-") or "section"

    @property
    def drawn(self) -> bool:
        return any(part.kind in DRAWN for part in self.parts)


def write_page(notebook: NotebookNode, result: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The page of one executed notebook, and beside it the files of its tables and figures.

    Returns
    -------
    dict : page and thumbnail (its first picture) relative to the site ("" without a picture), alt of the thumbnail,
        files
    """
    files = write_downloads(notebook, folder)
    found = list(sections(notebook, result))
    hero = next((part for section in found for part in section.parts if part.kind in DRAWN), None)
    for section in found:
        section.parts = [part for part in section.parts if part is not hero]
    shown = [s for s in found if s.parts or s.said or s.code]
    body = "".join(part.body for s in shown for part in s.parts) + (hero.body if hero else "")
    page = folder / f"{result['name']}.html"
    text = rendered(
        "scenario", page=result, sections=shown, hero=hero, css=style(), inks=dark_inks(body), script=script(), up="../"
    )
    page.write_text(text, "utf-8")
    picture = next((name for name in hero.files if name.endswith(".png")), "") if hero else ""
    thumbnail = f"{folder.name}/{picture}" if picture else ""
    alt = hero.alt if hero and picture else ""
    return {"page": f"{folder.name}/{page.name}", "thumbnail": thumbnail, "alt": alt, "files": files}


def sections(notebook: NotebookNode, result: Mapping[str, Any]) -> Iterator[Section]:
    """A notebook by its headings; the answer and the facts, which stand at the top of the page, are left out below."""
    highlight, numbers = Highlight2HTML(), {"Table": count(1), "Figure": count(1)}
    section, before = Section("What this page is about"), result["question"]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            title = re.match(r"##? +(.+)\n*", cell.source)
            text = cell.source[title.end() :] if title else cell.source
            if title and title[0].startswith("# "):
                section = Section("What this page is about", more=markdown2html(text))
                before = plain(text) or before
                continue
            if title or not section.parts:
                yield section
                first, rest = first_sentence(text)
                section = Section(
                    title[1].strip() if title else plain(first)[:60],
                    markdown2html(first),
                    markdown2html(rest) if rest else "",
                )
            else:
                section.parts.append(Part("text", markdown2html(text)))
            before = plain(text) or before
        elif cell.cell_type == "code":
            section.code.append(highlight(cell.source))
            tags = cell.metadata.get("tags", [])
            if not ({"answer", "facts"} & set(tags) and result["answer"]):
                alt = cell.metadata.get("alt") or before
                section.parts += [part for output in cell.get("outputs", []) for part in _parts(output, alt, numbers)]
    yield section


def first_sentence(text: str) -> tuple[str, str]:
    """What is read at once, and what is said beside it."""
    text = text.strip()
    end = re.search(r"(?<=[^.\d][a-z0-9)%`*])[.?](?=\s+[A-Z`*])", text)
    return (text[: end.end()], text[end.end() :].strip()) if end and "\n" not in text[: end.end()] else (text, "")


def _parts(output: NotebookNode, alt: str, numbers: dict) -> Iterator[Part]:
    if output.output_type == "stream":
        yield Part("stream", strip_ansi(output.text))
        return
    if output.output_type == "error":
        yield Part("error", strip_ansi("\n".join(output.traceback)))
        return
    data, files = output.get("data", {}), output.get("metadata", {}).get("files", [])
    kind = next((kind for kind in SHOWN if kind in data), None)
    if kind == "text/html":
        rows = data[kind].count("<tr") - 1
        if "data-empty" in data[kind]:
            yield Part("nothing", f"Checked, nothing found: {alt[:1].lower() + alt[1:].rstrip('.')}.")
        else:
            caption = re.search(r"<caption[^>]*>(.*?)</caption>", data[kind], re.S)
            yield Part(
                "table",
                data[kind],
                f"Table {next(numbers['Table'])}: {alt}",
                files,
                rows,
                caption[1] if caption else "",
            )
    elif kind == "image/svg+xml":
        yield Part(
            "figure", inked(data[kind]), f"Figure {next(numbers['Figure'])}: {finding(data[kind]) or alt}", files
        )
    elif kind == "image/png":
        said = f"Figure {next(numbers['Figure'])}: {alt}"
        source = f"data:image/png;base64,{data[kind].strip()}"
        yield Part("picture", f'<img src="{source}" alt="{escape(said)}">', said, files)
    elif kind == "text/markdown":
        yield Part("text", markdown2html(data[kind]))
    elif kind:
        yield Part("stream", strip_ansi(data[kind]))


def finding(svg: str) -> str:
    """What a figure says of itself (hcilib.show.figures.style.say), for those who do not see it."""
    said = re.search(r"<desc>(.*?)</desc>", svg, re.S)
    return said[1].strip() if said else ""


def write_index(results: list[dict[str, Any]], out: Path, revision: str, root: Path = ROOT) -> Path:
    """One block a study: its matrix, three facts and its pages in reading order; the method and self-tests apart."""
    failed = sum(not r["ok"] for r in results)
    blocks = blocks_of(results, out, root)
    told = [b for b in blocks if b["study"].key != "method"]
    apart = [b for b in blocks if b["study"].key == "method"]
    _write_map(blocks, out)
    return _write(out, "index.html", results=results, failed=failed, revision=revision, told=told, apart=apart)


def blocks_of(results: list[dict[str, Any]], out: Path, root: Path = ROOT) -> list[dict[str, Any]]:
    """The studies that have pages, in order, each with what the index says of it."""
    known = studies(root)
    found = (_block(study, [r for r in results if _key(r, known) == key], out) for key, study in known.items())
    return [block for block in found if block]


def _key(result: Mapping[str, Any], known: Mapping[str, Study]) -> str:
    return result["study"] if result.get("study") in known else "method"


def _block(study: Study, results: list[dict[str, Any]], out: Path) -> dict[str, Any] | None:
    if not results:
        return None
    pages = sorted(results, key=lambda r: reading_order(r["name"]))
    roles = [role_of(r["name"]) for r in pages]
    told = [
        {
            **result,
            "role": f"{role}, {result['name'].partition('.')[2]}" if roles.count(role) > 1 else role,
            "what": (result.get("title") or result["question"]).removeprefix(f"{study.short}: "),
        }
        for result, role in zip(pages, roles, strict=True)
    ]
    return {
        "study": study, "pages": told, "facts": list(_facts(pages)), "matrix": _matrix(pages, out),
        "headline": next((r["answer"] for r in pages if r["ok"] and r["answer"]), ""),
        "picture": next((r for r in pages if r.get("thumbnail")), None),
    }  # fmt: skip


def _facts(pages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What it costs in capacity and in CPU, and how many claims are wrong, as far as a study's pages say it."""
    for notebook, which in (("09", 0), ("04", -1), ("10", 0)):
        page = next((r for r in pages if r["name"].startswith(notebook) and r.get("facts")), None)
        if page is not None:
            yield page["facts"][which]


def _matrix(pages: Sequence[Mapping[str, Any]], out: Path) -> dict[str, Any] | None:
    """The winners of a study's comparison as rows of systems and columns of patterns, with what each leaves of its raw
    capacity."""
    page = next((r for r in pages if r["ok"] and "winners.csv" in r.get("files", [])), None)
    if page is None:
        return None
    rows = _table(out / page["name"] / "winners.csv")
    patterns, labels = pattern_order(row["pattern"] for row in rows), known_labels()
    sizes = next((p for p in pages if "capacity.csv" in p.get("files", [])), None)
    usable = {r["system"]: r["efficiency"] for r in _table(out / sizes["name"] / "capacity.csv")} if sizes else {}
    cells = {(row["system"], row["pattern"]): row for row in rows}
    systems = list(dict.fromkeys(row["system"] for row in rows))
    best = {
        name: sum(float(cells[name, p]["pct_of_best"] or 0) for p in patterns if (name, p) in cells) for name in systems
    }
    cpu = {
        name: row["iops_per_cpu_pct"]
        for name in systems
        if (row := cells.get((name, patterns[0]))) and row.get("iops_per_cpu_pct")
    }
    most = max((float(v) for v in cpu.values()), default=1.0)
    return {
        "patterns": [(p, pattern_label(p)) for p in patterns],
        "page": page["page"],
        "rows": [
            {
                "system": labels.get(name, name),
                "cells": [_cell(cells.get((name, p))) for p in patterns],
                "usable": f"{100 * float(usable[name]):.0f} %" if usable.get(name) else "",
                "cpu": f"{float(cpu[name]):,.0f}" if name in cpu else "",
                "bar": 100 * float(cpu[name]) / most if name in cpu else 0,
            }
            for name in sorted(systems, key=lambda name: -best[name])
        ],
    }


STATES = {
    "leads": ("●", "leads, shown by a test"),
    "tied": ("◐", "first, tied"),
    "untested": ("○", "first by one number each"),
    "behind": ("", "behind"),
    "missing": ("", "missing"),
}


def _cell(row: Mapping[str, str] | None) -> dict[str, Any]:
    if row is None or not row["pct_of_best"]:
        return {"mark": "", "said": "not measured", "pct": None, "state": "missing"}
    mark, said = STATES[row["state"]]
    percent, load = float(row["pct_of_best"]), f"{float(row['iodepth']):g}"
    center = f"{float(row['center']):,.0f} IOPS at iodepth {load}"
    return {"mark": mark, "said": f"{said}; {center}", "pct": f"{percent:.0f}", "state": row["state"]}


def _table(file: Path) -> list[dict[str, str]]:
    if not file.is_file():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _write_map(blocks: Sequence[Mapping[str, Any]], out: Path) -> None:
    """What leads from page to page, in one file that every page loads: a page need not be written anew when another
    comes."""
    stories = [
        {
            "short": b["study"].short,
            "key": b["study"].key,
            "pages": [
                {"name": p["name"], "role": p["role"], "page": p["page"], "systems": p.get("systems", [])}
                for p in b["pages"]
                if p["page"]
            ],
        }
        for b in blocks
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / "site.js").write_text(f"window.SITE={json.dumps(stories, ensure_ascii=False)};\n", "utf-8")


def write_method(out: Path, revision: str) -> Path:
    """The page every other links to: what a run, an interval, a verdict and a ceiling mean."""
    body = markdown2html((TEMPLATES / "method.md").read_text("utf-8"))
    return _write(out, "method.html", body=body, revision=revision)


def _write(out: Path, page: str, **content: Any) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    (out / page).write_text(
        rendered(page.removesuffix(".html"), css=style(), script=script(), up="", **content), "utf-8"
    )
    return out / page


def rendered(template: str, **content: Any) -> str:
    return (
        Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True)
        .get_template(f"{template}.html.j2")
        .render(**content)
    )


def plain(markdown: str) -> str:
    """A paragraph of markdown as one line of text, without headings and marks."""
    lines = [line for line in markdown.splitlines() if not line.startswith("#")] or [markdown.lstrip("# ")]
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(lines))
    return " ".join(re.sub(r"[*`_]{1,3}(?=\S)|(?<=\S)[*`]{1,3}", "", text).split())[:300]


def style() -> str:
    """The site's style with highlighting for a light and a dark screen."""
    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="monokai").get_style_defs(":root[data-theme=dark] .highlight")
    css = (TEMPLATES / "style.css").read_text("utf-8")
    return f"{light}\n{dark}\n{css}"


def script() -> str:
    return (TEMPLATES / "script.js").read_text("utf-8")
