"""Executed notebooks as pages that need no network: figures and style inside, code folded away, provenance at the end."""

from __future__ import annotations

import re
from base64 import b64decode
from copy import deepcopy
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter
from traitlets.config import Config

TEMPLATES = Path(__file__).parent / "templates"
# No widgets, no script: what they show is in the outputs' other forms, and nothing is fetched from a network.
SHOWN = ["text/html", "image/svg+xml", "image/png", "text/markdown", "text/plain"]


def write_page(notebook: NotebookNode, result: dict[str, Any], folder: Path) -> dict[str, str]:
    """The page of one executed notebook and its first picture as thumbnail.

    Returns
    -------
    dict : page and thumbnail relative to the site ("" without a picture), alt of the thumbnail
    """
    notebook = deepcopy(notebook)  # the executed notebook keeps its own outputs
    describe_pictures(notebook, result["question"])
    for cell in notebook.cells:
        if result["answer"] and "answer" in cell.metadata.get("tags", []):
            cell.outputs = []  # the sentence stands at the top of the page
    config = Config({"NbConvertBase": {"display_data_priority": SHOWN}})
    exporter = HTMLExporter(config=config, template_name="scenario", extra_template_basedirs=[str(TEMPLATES)])
    body, _ = exporter.from_notebook_node(notebook, {"page": {**result, "css": style()}})
    page = folder / f"{result['name']}.html"
    page.write_text(body, "utf-8")
    picture, alt = _first_picture(notebook)
    thumbnail = folder / f"{result['name']}.png"
    if picture:
        thumbnail.write_bytes(picture)
    else:
        thumbnail.unlink(missing_ok=True)
    relative = f"{folder.name}/{thumbnail.name}" if picture else ""
    return {"page": f"{folder.name}/{page.name}", "thumbnail": relative, "alt": alt}


def write_index(results: list[dict[str, Any]], out: Path, revision: str) -> Path:
    """One card per scenario: question, answer, picture; failed ones with their error."""
    out.mkdir(parents=True, exist_ok=True)
    template = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True).get_template("index.html.j2")
    failed = sum(not r["ok"] for r in results)
    index = out / "index.html"
    index.write_text(template.render(results=results, failed=failed, revision=revision, css=style()), "utf-8")
    return index


def describe_pictures(notebook: NotebookNode, title: str) -> None:
    """Alternative texts: the cell's own ``alt``, else the sentence that stands before the figure, else the question."""
    before = title
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            before = plain(cell.source) or before
        for output in cell.get("outputs", []):
            if "data" in output:
                output["data"] = {kind: value for kind, value in output["data"].items() if kind in SHOWN}
                output.setdefault("metadata", {})["alt"] = cell.metadata.get("alt") or f"Figure: {before}"


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


def _first_picture(notebook: NotebookNode) -> tuple[bytes, str]:
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                return b64decode(output["data"]["image/png"]), output["metadata"]["alt"]
    return b"", ""
