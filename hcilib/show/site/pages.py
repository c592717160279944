"""How does a page look? The index, a page a study, and a page of evidence for each executed notebook."""

from __future__ import annotations

import copy
import re
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import yaml
from jinja2 import Environment, FileSystemLoader
from nbconvert import HTMLExporter
from nbconvert.filters import strip_ansi
from nbformat import NotebookNode

from hcilib.show.site.execute import PNG, Result, replace
from hcilib.show.site.studies import Page, stories

TEMPLATES = Path(__file__).with_name("templates")


def write_evidence(notebook: NotebookNode, result: Result, folder: Path) -> None:
    """Write the page of one executed notebook: its question, its answer, and the notebook itself."""
    made = yaml.safe_dump(result["made"], sort_keys=False, allow_unicode=True, width=100)
    body = _exporter().from_notebook_node(_without_answer(notebook))[0]
    region = '<div tabindex="0" role="region" aria-label="Table" class="output_html'
    body = _classed(body.replace('<div class="output_html', region))
    _write(folder / f"{result['name']}.html", "evidence", page=result, body=body, made=made)


def write_pages(results: list[Result], out: Path, root: Path) -> Path:
    """Write the page of every study and the index, and return the index."""
    told = stories(results, out, root)
    for story in told:
        _write(out / story.path, "study", story=story, table=_table, figure_of=main_figure)
    _write(out / "index.html", "index", stories=told, results=results, figure_of=main_figure)
    return out / "index.html"


def main_figure(out: Path, page: Page) -> tuple[str, int] | None:
    """Return the first figure of an executed notebook, as base64, and its width; None without one."""
    if not page["ok"]:
        return None
    notebook = nbformat.read(out / page["name"] / f"{page['name']}.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    drawn = (output for output in outputs if PNG in output.get("data", {}))
    return next(((o.data[PNG], o.metadata.get(PNG, {}).get("width", 700)) for o in drawn), None)


def _without_answer(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook without what the page's head says, and with its headings as the figures' alternative text."""
    shown, heading = copy.deepcopy(notebook), ""
    first = next((cell for cell in shown.cells if cell.cell_type == "markdown"), None)
    if first:
        first.source = re.sub(r"\A# .*\n*", "", first.source)
    for cell in shown.cells:
        if cell.cell_type == "markdown":
            heading = next(iter(re.findall(r"^#+ (.+)", cell.source, re.M)), heading)
        for output in cell.get("outputs", []):
            output.setdefault("metadata", {})["alt"] = heading or "Figure"
            if output.output_type == "error":
                output.traceback = [strip_ansi("\n".join(output.traceback))]
        if "answer" in cell.metadata.get("tags", []):
            cell.outputs = [output for output in cell.outputs if output.output_type != "stream"]
    return shown


def _table(frame: Any) -> str:
    """Return a frame as HTML, without what nobody told."""
    known = frame.dropna(axis=1, how="all")
    return _classed(known.to_html(index=False, border=0, na_rep="–", float_format="{:.3g}".format))


def _classed(page: str) -> str:
    """Return a page whose cells of tables have a class: numbers are at the right, and short text is one line."""
    page = re.sub(r"<(t[dh]\b[^>]*)>(?=[^<]{1,30}</t)", r'<\1 class="brief">', page)
    return re.sub(r'"brief">(?=(?:&lt; ?)?-?\d[\d,.]*( [^<]*)?</t)', '"brief number">', page)


def _write(path: Path, template: str, **content: Any) -> None:
    css = (TEMPLATES / "style.css").read_text("utf-8")
    page = _templates().get_template(f"{template}.html.j2").render(css=css, **content)
    if not path.is_file() or path.read_text("utf-8") != page:
        replace(path, page)


@cache
def _templates() -> Environment:
    return Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)


@cache
def _exporter() -> HTMLExporter:
    bare = {f"exclude_{part}": True for part in ("input_prompt", "output_prompt", "anchor_links")}
    return HTMLExporter(template_name="basic", **bare)
