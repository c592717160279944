"""Executed notebooks as pages that need no network: figures and style inside, code folded away, provenance at the end."""

from __future__ import annotations

import re
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from nbconvert import HTMLExporter
from nbconvert.filters import markdown2html
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter
from traitlets.config import Config

from hcilib.show.report.downloads import write_downloads

TEMPLATES = Path(__file__).parent / "templates"
# No widgets, no script: what they show is in the outputs' other forms, and nothing is fetched from a network.
SHOWN = ["text/html", "image/svg+xml", "image/png", "text/markdown", "text/plain"]


def write_page(notebook: NotebookNode, result: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The page of one executed notebook, and beside it the files of its tables and figures.

    Returns
    -------
    dict : page and thumbnail (its first picture) relative to the site ("" without a picture), alt of the thumbnail, files
    """
    notebook = deepcopy(notebook)  # the executed notebook keeps its own outputs
    files = write_downloads(notebook, folder)
    describe_outputs(notebook, result["question"])
    for cell in notebook.cells:
        if result["answer"] and "answer" in cell.metadata.get("tags", []):
            cell.outputs = []  # the sentence stands at the top of the page
    config = Config({"NbConvertBase": {"display_data_priority": SHOWN}})
    exporter = HTMLExporter(config=config, template_name="scenario", extra_template_basedirs=[str(TEMPLATES)])
    body, _ = exporter.from_notebook_node(notebook, {"page": {**result, "css": style()}})
    page = folder / f"{result['name']}.html"
    page.write_text(body, "utf-8")
    picture, alt = _first_picture(notebook)
    thumbnail = f"{folder.name}/{picture}" if picture else ""
    return {"page": f"{folder.name}/{page.name}", "thumbnail": thumbnail, "alt": alt, "files": files}


def write_index(results: list[dict[str, Any]], out: Path, revision: str) -> Path:
    """One card per scenario: question, answer, picture; failed ones with their error."""
    failed = sum(not r["ok"] for r in results)
    return _write(out, "index.html", results=results, failed=failed, revision=revision)


def write_method(out: Path, revision: str) -> Path:
    """The page every other links to: what a run, an interval, a verdict and a ceiling mean."""
    body = markdown2html((TEMPLATES / "method.md").read_text("utf-8"))
    return _write(out, "method.html", body=body, revision=revision)


def _write(out: Path, page: str, **content: Any) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    template = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True).get_template(f"{page}.j2")
    (out / page).write_text(template.render(css=style(), **content), "utf-8")
    return out / page


def describe_outputs(notebook: NotebookNode, title: str) -> None:
    """What each output shows, for those who do not see it: the cell's own ``alt``, else the sentence before, else `title`.

    Numbered, so that two views below one sentence are told apart.
    """
    before, numbers = title, {"Table": count(1), "Figure": count(1)}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            before = plain(cell.source) or before
        for output in cell.get("outputs", []):
            if "data" in output:
                output["data"] = {kind: value for kind, value in output["data"].items() if kind in SHOWN}
                kind = "Table" if "text/html" in output["data"] else "Figure"
                output.setdefault("metadata", {})["alt"] = (
                    f"{kind} {next(numbers[kind])}: {cell.metadata.get('alt') or before}"
                )


def plain(markdown: str) -> str:
    """A paragraph of markdown as one line of text, without headings and marks."""
    lines = [line for line in markdown.splitlines() if not line.startswith("#")] or [markdown.lstrip("# ")]
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(lines))
    return " ".join(re.sub(r"[*`_]{1,3}(?=\S)|(?<=\S)[*`]{1,3}", "", text).split())[:300]


def style() -> str:
    """The site's style with highlighting for a light and a dark screen."""
    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="monokai").get_style_defs(".highlight")
    css = (TEMPLATES / "style.css").read_text("utf-8")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{css}"


def _first_picture(notebook: NotebookNode) -> tuple[str, str]:
    """File and alternative text of the first figure that is a PNG."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            for name in output.get("metadata", {}).get("files", []):
                if name.endswith(".png"):
                    return name, output["metadata"]["alt"]
    return "", ""
