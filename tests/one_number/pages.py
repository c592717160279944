"""Read what a page says and lists: its sentences, tables and parameters.

A page is a notebook with one set of parameters. It is read from a committed notebook, or from a
page of a built report.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from bs4 import BeautifulSoup, Tag
from hcilib.show.tables.tables import unfolded

ROOT = Path(__file__).resolve().parents[2]
SENTENCES = ("answer", "facts")
"""Tags of the cells that print sentences."""
NOTES = "notes"
_MARKS = re.compile(r" \((\d+(?:, \d+)*)\)$")


@dataclass
class Page:
    """One page: `said` are its generated sentences, `tables` hold every cell as printed.

    `cells` are the texts of all cells and headings.
    """

    name: str
    said: str
    tables: list[pd.DataFrame]
    params: dict[str, Any]
    cells: frozenset[str] = frozenset()

    @property
    def notebook(self) -> str:
        return self.name.partition(".")[0]

    def table(self, *columns: str) -> pd.DataFrame:
        """Return the first table that has all of these columns, an empty one if none has."""
        for table in self.tables:
            if set(columns) <= set(table):
                return table
        return pd.DataFrame(columns=[*columns, NOTES], dtype=str)

    def wide(self, caption: str) -> pd.DataFrame:
        """Return the first table whose caption begins so: a column a system, a row a load."""
        named = (table for table in self.tables if table.attrs["caption"].startswith(caption))
        return next(named, pd.DataFrame(dtype=str))


def read_committed(notebook: Path) -> Page:
    """Return the page of a committed notebook: its outputs, without figures."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    cells = [cell for cell in cells if cell["cell_type"] == "code"]
    htmls, said = [], []
    for cell in cells:
        tags = cell["metadata"].get("tags", [])
        for output in cell["outputs"]:
            htmls.append("".join(output.get("data", {}).get("text/html", "")))
            if set(tags) & set(SENTENCES):
                said.append("".join(output.get("text", "")))
    return new_page(notebook.stem, said, htmls, defaults(notebook))


def read_built(name: str, html: str) -> Page:
    """Return the page that a report shows in a browser."""
    soup = BeautifulSoup(html, "html.parser")
    parts = soup.select("section.answer p, section.answer li, section.facts li")
    said = [part.get_text() + "\n" for part in parts]
    return new_page(name, said, [html], parameters(name))


def new_page(name: str, said: list[str], htmls: list[str], params: dict) -> Page:
    """Return a page; sentences that stand in a table are sentences of it."""
    tables = tables_of(htmls)
    listed = [
        text + "\n"
        for table in tables
        if list(table) == ["Sentence", NOTES]
        for text in table["Sentence"]
    ]
    cells = frozenset(text for t in tables for text in (*t.columns, *t.to_numpy().ravel()))
    return Page(name, "".join([*said, *listed]), tables, params, cells)


def tables_of(htmls: list[str]) -> list[pd.DataFrame]:
    """Return every table of some HTML as printed, without the numbers of its footnotes."""
    soups = (BeautifulSoup(unfolded(html), "html.parser") for html in htmls if html)
    return [read_table(found) for soup in soups for found in soup.find_all("table")]


def read_table(found: Tag) -> pd.DataFrame:
    """Return a table of texts; its column `NOTES` has the texts of each row's footnotes."""
    numbered = dict(footnotes(found))
    head, *body = [
        [cell.get_text(" ", strip=True) for cell in row(["th", "td"])] for row in found("tr")
    ]
    rows = []
    for cells in (cells for cells in body if len(cells) == len(head)):
        marks = [mark for cell in cells for own in _MARKS.findall(cell) for mark in own.split(", ")]
        said = "; ".join(numbered[mark] for mark in dict.fromkeys(marks) if mark in numbered)
        rows.append([*(_MARKS.sub("", cell).rstrip("*") for cell in cells), said])
    table = pd.DataFrame(rows, columns=[*head, NOTES], dtype=str)
    table.attrs["caption"] = found.caption.get_text() if found.caption else ""
    return table


def footnotes(table: Tag) -> Iterator[tuple[str, str]]:
    """Return number and text of each footnote between a table and the next one."""
    for tag in table.find_all_next(["table", "p"]):
        if tag.name == "table":
            return
        if "footnotes" in tag.get("class", ()):
            yield from re.findall(r"^\((\d+)\) (.+)$", tag.get_text("\n"), re.MULTILINE)


def parameters(name: str) -> dict[str, Any]:
    """Return the parameters of a scenario: the notebook's defaults, then its params file."""
    stem = name.partition(".")[0]
    given = ROOT / "params" / f"{name}.yaml"
    own = yaml.safe_load(given.read_text("utf-8")) if given.exists() else {}
    return defaults(ROOT / "notebooks" / f"{stem}.ipynb") | (own or {})


def defaults(notebook: Path) -> dict[str, Any]:
    """Return the values that a notebook's parameters cell sets."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    [cell] = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
    assigned = [
        node for node in ast.parse("".join(cell["source"])).body if getattr(node, "value", 0)
    ]
    return {node.target.id: ast.literal_eval(node.value) for node in assigned}
