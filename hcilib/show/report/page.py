"""Write the page of an executed notebook: answer, sections, figures for light and dark screens, and its files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from colorsys import hls_to_rgb, rgb_to_hls
from dataclasses import dataclass, field
from functools import cache
from html import escape, unescape
from itertools import chain, count
from pathlib import Path
from typing import Any
from zlib import crc32

from jinja2 import Environment, FileSystemLoader
from matplotlib.colors import to_hex, to_rgb
from nbconvert.filters import Highlight2HTML, markdown2html, strip_ansi
from nbconvert.preprocessors import CoalesceStreamsPreprocessor
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter
from seaborn.utils import relative_luminance

from hcilib.show.report.studies import CHAPTER

TEMPLATES = Path(__file__).parent / "templates"
# No widgets: what they show is in the outputs' other forms, and nothing is fetched from a network.
SHOWN = ["text/html", "image/svg+xml", "image/png", "text/markdown", "text/plain"]
CHAPTER_TAG = "chapter"
"""Tag of cells whose figures the page of the study shows; without one it shows the first figure."""
NARROW = "<!-- narrow -->"
"""Between a figure and the same for a phone (hcilib.show.report.export)."""
DRAWN = ("figure", "picture")
DRAWS = re.compile(r"\bsns\.\w+\(|\bhci\.(plot_|text\()")
"""A cell that draws; what it prints in place of a figure or table says why there is none."""
NOTHING_DRAWN = re.compile(r'id="nothing">.*?<text[^>]*>(.*?)</text>', re.S)
EMPTY = "This table has no rows."
"""Shown in place of a table whose one row says "none" (``hci.text`` of no rows)."""
SHORT = 12
"""Rows of a table that a study's page shows."""
SLIM_PT = 370
"""A little more than a phone's width; text of figures stays readable at that size."""
WIDGET = "application/vnd.jupyter.widget-view+json"


@dataclass
class Part:
    """A table, a figure, text, or the error of a cell; `of_study`: whether the study's page shows it."""

    kind: str
    body: str
    alt: str = ""
    rows: int = 0
    heads: str = ""
    narrow: str = ""
    of_study: bool = False

    @property
    def slim(self) -> bool:
        """Whether a phone shows the figure unchanged: it has one panel's width, and no second drawing."""
        return not self.narrow and 0 < width_pt(self.body) <= SLIM_PT


@dataclass
class Section:
    """A heading, its first sentence, remarks on the method, tables and figures, and their code."""

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

    @property
    def empty(self) -> bool:
        """Whether all that it shows is that there is no data."""
        return bool(self.parts) and all(part.kind == "nothing" for part in self.parts)

    @property
    def reason(self) -> str:
        """Why it is empty, as the rest of a sentence after a colon."""
        body = "its table has no rows" if self.parts[0].body == EMPTY else self.parts[0].body.rstrip(".")
        return body if body[:2].isupper() else f"{body[:1].lower()}{body[1:]}"

    def add(self, part: Part) -> None:
        """Add a part; only the first of neighbouring empty figures and tables."""
        if part.kind != "nothing" or not self.parts or self.parts[-1].kind != "nothing":
            self.parts.append(part)


def write_page(notebook: NotebookNode, result: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The page of one executed notebook, and beside it the numbers of its tables.

    Returns
    -------
    dict : page (relative to the site), files
    """
    files, main = write_numbers(notebook, folder)
    found = list(sections(notebook, result))
    hero = next((part for section in found for part in section.parts if part.kind in DRAWN), None)
    absent = [section for section in found if section.empty]
    for section in found:
        section.parts = [part for part in section.parts if part is not hero]
    shown = [s for s in found if s not in absent and (s.parts or s.said or s.code)]
    body = "".join(part.body for s in shown for part in s.parts) + (hero.body if hero else "")
    page = folder / f"{result['name']}.html"
    parts = {"sections": shown, "absent": absent, "hero": hero, "main": main}
    page.write_text(rendered("scenario", page=result, inks=dark_inks(body), **parts), "utf-8")
    drawn = [*([hero] if hero else []), *(part for s in shown for part in s.parts if part.kind in DRAWN)]
    _write_chapter(folder, *([part for part in drawn if part.of_study] or drawn[:1]), _short_table(shown))
    return {"page": f"{folder.name}/{page.name}", "files": files}


def _write_chapter(folder: Path, *shown: Part | None) -> None:
    """Write figures and a table for the page of the study."""
    (folder / CHAPTER).write_text(rendered("chapter", parts_shown=[part for part in shown if part]), "utf-8")


def _short_table(shown: Sequence[Section]) -> Part | None:
    """Return the first table of at most twelve rows."""
    tables = (part for section in shown for part in section.parts if part.kind == "table")
    return next((table for table in tables if 0 < table.rows <= SHORT), None)


def sections(notebook: NotebookNode, result: Mapping[str, Any]) -> Iterator[Section]:
    """Yield the sections of a notebook by its headings, without the answer at the top of the page."""
    highlight, numbers = Highlight2HTML(), {"Table": count(1), "Figure": count(1)}
    section, before = Section("About this page"), result["question"]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            title = re.match(r"##? +(.+)\n*", cell.source)
            text = cell.source[title.end() :] if title else cell.source
            if title and title[0].startswith("# "):
                section = Section("About this page", more=markdown2html(text))
                before = plain(text) or before
                continue
            if title or not section.parts:
                yield section
                first, rest = first_sentence(text)
                name = title[1].strip() if title else plain(first)[:60]
                told = beyond(name, first)
                section = Section(name, markdown2html(told) if told else "", markdown2html(rest) if rest else "")
            else:
                section.parts.append(Part("text", markdown2html(text)))
            before = plain(text) or before
        elif cell.cell_type == "code":
            section.code.append(highlight(cell.source))
            tags = cell.metadata.get("tags", [])
            if not ("answer" in tags and result["answer"]):
                alt = cell.metadata.get("alt") or before
                parts = [part for output in cell.get("outputs", []) for part in _parts(output, alt, numbers)]
                undrawn = DRAWS.search(cell.source) and not any(part.kind in (*DRAWN, "table") for part in parts)
                for part in parts:
                    if undrawn and part.kind == "stream":
                        part = Part("nothing", part.body.strip())
                    part.of_study = CHAPTER_TAG in tags
                    section.add(part)
    yield section


def beyond(heading: str, sentence: str) -> str:
    """Return a sentence without the words of the heading above it, empty where nothing is left."""
    name, said = heading.rstrip(".?"), sentence.strip()
    if plain(said).rstrip(".?") == plain(name):
        return ""
    same = re.match(rf"{re.escape(name)}[,:] +", said, re.I)
    if not same:
        return said
    rest = said[same.end() :]
    return rest[:1].upper() + rest[1:] if len(rest.split()) > 1 else ""


def first_sentence(text: str) -> tuple[str, str]:
    """Split a text into its first sentence and the rest."""
    text = text.strip()
    end = re.search(r"(?<=[^.\d][a-z0-9)%`*])[.?](?=\s+[A-Z`*])", text)
    return (text[: end.end()], text[end.end() :].strip()) if end and "\n" not in text[: end.end()] else (text, "")


def _parts(output: NotebookNode, alt: str, numbers: dict) -> Iterator[Part]:
    if output.output_type in ("stream", "error"):
        said = output.text if output.output_type == "stream" else "\n".join(output.traceback)
        yield Part(output.output_type, strip_ansi(said))
        return
    data = output.get("data", {})
    kind = next((kind for kind in SHOWN if kind in data), None)
    if kind == "text/html":
        html = data[kind]
        cells = re.findall(r"<td>(.*?)</td>", html, re.S)
        if cells[:1] == ["none"] and not any(cells[1:]):
            yield Part("nothing", EMPTY)
        else:
            heads = ", ".join(unescape(head) for head in re.findall(r"<th>(.+?)</th>", html.partition("<tbody>")[0]))
            rows = html.partition("<tbody>")[2].count("<tr>")
            html = re.sub(r"<td>(?=[^\d<–∞-])", '<td class="words">', html)
            yield Part("table", html, f"Table {next(numbers['Table'])}: {alt}", rows, heads)
    elif kind == "image/svg+xml" and (empty := NOTHING_DRAWN.search(data[kind])):
        yield Part("nothing", unescape(empty[1].strip()))
    elif kind == "image/svg+xml":
        wide, _, narrow = data[kind].partition(NARROW)
        said = f"Figure {next(numbers['Figure'])}: {finding(wide) or alt}"
        narrow = re.sub(r' data-tips="[^"]*"|<desc>.*?</desc>', "", narrow, flags=re.S)  # those of the wide one serve
        yield Part("figure", inked(wide), said, narrow=inked(narrow) if narrow else "")
    elif kind == "image/png":
        said = f"Figure {next(numbers['Figure'])}: {alt}"
        source = f"data:image/png;base64,{data[kind].strip()}"
        yield Part("picture", f'<img src="{source}" alt="{escape(said)}">', said)
    elif kind == "text/markdown":
        yield Part("text", markdown2html(data[kind]))
    elif kind:
        yield Part("stream", strip_ansi(data[kind]))


def finding(svg: str) -> str:
    """Return the alternative text that a figure carries (hcilib.show.figures.style.say)."""
    said = re.search(r"<desc>(.*?)</desc>", svg, re.S)
    return unescape(said[1]).strip() if said else ""


def width_pt(svg: str) -> float:
    """Return the width of a figure with everything beside its axes."""
    found = re.search(r'<svg\b[^>]*\bwidth="([\d.]+)pt"', svg)
    return float(found[1]) if found else 0.0


def rendered(template: str, **content: Any) -> str:
    """The page with the site's script, and its style with highlighting for a light and a dark screen."""
    css, script = ((TEMPLATES / name).read_text("utf-8") for name in ("style.css", "script.js"))
    css = f"{_highlighting()}\n{css}" if template == "scenario" else css  # no other page shows code
    return _templates().get_template(f"{template}.html.j2").render(css=css, script=script, **content)


@cache
def _templates() -> Environment:
    """Return the templates, compiled once for all pages."""
    return Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True)


@cache
def _highlighting() -> str:
    light = HtmlFormatter(style="xcode").get_style_defs(".highlight")
    dark = HtmlFormatter(style="monokai").get_style_defs(":root[data-theme=dark] .highlight")
    return f"{light}\n{dark}"


def plain(markdown: str) -> str:
    """A paragraph of markdown as one line of text, without headings and marks."""
    lines = [line for line in markdown.splitlines() if not line.startswith("#")] or [markdown.lstrip("# ")]
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(lines))
    text = re.sub(r"[*`]{1,3}(?=\S)|(?<!\w)_{1,3}(?=\S)|(?<=\S)[*`]{1,3}|(?<=\w)_{1,3}(?!\w)", "", text)
    return " ".join(text.split())[:300]


def without_bars(notebook: NotebookNode) -> None:
    """Take out the progress bars, which only a running kernel moves: saved, a widget is the bar as it stood when it
    began.

    Where there are no widgets a bar is a line written over and over: its last state stays. A kernel sends what was
    written since it last sent something, so one bar may be several outputs: neighbours of one stream become one.
    """
    for cell in (cell for cell in notebook.cells if "outputs" in cell):
        cell.outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]
    CoalesceStreamsPreprocessor().preprocess(notebook, {})
    for output in (o for cell in notebook.cells for o in cell.get("outputs", []) if o.output_type == "stream"):
        output.text = re.sub(r"[^\n]*\r(?!\n)", "", output.text)


# ---- Files beside the page: the numbers of each table

CSV = "text/csv"
"""Form in which hcilib.show.report.export gives a table's numbers, and `NAME` in its metadata what it is called."""
NAME = "name"
MAIN_TAG = "main"
"""Tag of the cell whose table is the page's download."""
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff0b\uff0d\uff1d\uff20]")
_NUMBER = re.compile(r"[+-](?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-](?:inf|nan)")


def escaped(cell: Any) -> Any:
    """The cell of a CSV file, behind an apostrophe if it is text that a spreadsheet would run, and no number. A
    carriage return, which ends a row even without quotes around it, becomes a line feed, which pandas quotes."""
    if not isinstance(cell, str):
        return cell
    cell = cell.replace("\r", "\n")
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell


def unescaped(cell: str) -> str:
    """The text that `escaped` was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def write_numbers(notebook: NotebookNode, folder: Path) -> tuple[list[str], str]:
    """Move the numbers of an executed notebook's tables into CSV files named after their frames.

    Returns
    -------
    list, str : names of all files, each once, and that of the cell tagged ``main``, else ""
    """
    for stale in folder.glob("*.csv"):
        stale.unlink()
    written: dict[str, str] = {}
    main = ""
    for cell in notebook.cells:
        numbers = [output for output in cell.get("outputs", []) if CSV in output.get("data", {})]
        for output in numbers:
            name = _free_name(output["metadata"][NAME], output["data"][CSV], written)
            written[name] = output["data"][CSV]
            main = main or name * (MAIN_TAG in cell.metadata.get("tags", []))
        if numbers:
            cell.outputs = [output for output in cell.outputs if output not in numbers]
    for name, content in written.items():
        (folder / name).write_text(content, "utf-8")
    return list(written), main


def _free_name(name: str, content: str, written: Mapping[str, str]) -> str:
    """Return the first free name of a file, or the one that already holds exactly this."""
    files = (f"{stem}.csv" for stem in chain([name], (f"{name}-{number}" for number in count(2))))
    return next(file for file in files if written.get(file, content) == content)


def without_narrow(notebook: NotebookNode) -> NotebookNode:
    """The same notebook with one form of each figure."""
    for output in (o for cell in notebook.cells for o in cell.get("outputs", []) if "data" in o):
        if svg := output["data"].get("image/svg+xml"):
            output["data"]["image/svg+xml"] = svg.partition(NARROW)[0]
    return notebook


# ---- A figure's colours as variables of the page, read on a light and on a dark screen alike

PAPER = "#17191c"
"""The dark page (templates/style.css)."""
NEUTRAL = 0.06
"""Below this difference between its channels a colour is a grey: on a dark page its lightness is turned round."""
LEAST_CONTRAST = 4.6
"""Contrast of lines and of the names beside them with the page: 4.5 : 1 is asked for of text (WCAG 1.4.3)."""


def inked(svg: str) -> str:
    """The ``<svg>`` element alone and small, every colour as a variable that falls back to itself."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r"(fill|stroke|stop-color): ?(#[0-9a-f]{6})", lambda m: f"{m[1]}: var(--i{m[2][1:]}, {m[2]})", svg)
    svg = re.sub(r'(fill|stroke)="#([0-9a-f]{6})"', r'\1="var(--i\2, #\2)"', svg)  # what lies under a hatch
    return compact(svg)


def compact(svg: str) -> str:
    """Return a figure that looks the same in a quarter of its bytes, so that a page with several loads fast.

    Places are written to a tenth of a point. A style that several marks have is a class, named after its content,
    so that figures of one page share it. Groups go, but those of marks with tooltips and those that clip, of which
    neighbours become one.
    """
    svg = re.sub(r">\s+<", "><", svg)
    svg = re.sub(r'<defs><style type="text/css">\*.*?</style></defs>', "", svg)  # templates/style.css has it
    svg = svg.replace('<g id="caption"', '<g class="caption"')
    svg = re.sub(r'<g id="(?!mark-)[^"]*"', "<g", svg)
    svg = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", svg.replace("xlink:href", "href"))
    svg = re.sub(r'( (?:d|x|y)=")([^"]*)', lambda place: place[1] + _short(place[2]), svg)
    svg = _without_groups(svg)
    styles = Counter(re.findall(r' style="([^"]*)"', svg))
    names = {style: f"s{crc32(style.encode()):x}" for style, times in styles.items() if times > 2}
    svg = re.sub(r' style="([^"]*)"', lambda own: f' class="{names[own[1]]}"' if own[1] in names else own[0], svg)
    rules = "".join(f".{name}{{{style}}}" for style, name in names.items())
    return re.sub(r"(<svg\b[^>]*>)", rf"\1<style>{rules}</style>", svg, count=1) if rules else svg


def _short(place: str) -> str:
    """Return places in a figure with one decimal at most, and spaces between numbers alone."""
    return re.sub(r" ?([A-Za-z]) ?", r"\1", re.sub(r"(\.[1-9])\d+|\.0\d*", r"\1", " ".join(place.split())))


def _without_groups(svg: str) -> str:
    """Return a figure without groups that say nothing; neighbours with one clip share their group."""
    told: list[bool] = []
    parts: list[str] = []
    for part in re.split(r"(<g\b[^>]*>|</g>)", svg):
        if part == "</g>":
            part = part if told.pop() else ""
        elif part.startswith("<g") and not part.endswith("/>"):
            told.append(part != "<g>")
        parts.append("" if part in ("<g>", "<g/>") else part)
    svg, clips = "".join(parts), r'(<g clip-path="[^"]*">)((?:(?!</?g\b).)*)</g>\1'
    while (fewer := re.sub(clips, r"\1\2", svg, flags=re.S)) != svg:
        svg = fewer
    return svg


def dark_inks(body: str) -> str:
    """CSS that gives every colour of a page's figures its like on a dark page."""
    colours = sorted(set(re.findall(r"var\(--i([0-9a-f]{6}),", body)))
    return ";".join(f"--i{colour}:{on_dark('#' + colour)}" for colour in colours)


@cache
def on_dark(colour: str) -> str:
    """The colour as it is drawn on a dark page: greys turned round, the rest lightened until it stands out.

    A dark colour becomes lighter than one that stands out as it is, so that the two stay apart.
    """
    red, green, blue = channels = to_rgb(colour)
    if max(red, green, blue) - min(red, green, blue) < NEUTRAL:
        grey = (red + green + blue) / 3
        low = sum(to_rgb(PAPER)) / 3
        turned = low + (0.93 - low) * (1 - grey)
        return to_hex((turned, turned, turned)) if grey < 0.999 else PAPER
    share, least = 0.0, LEAST_CONTRAST + 1.3 * max(0.0, LEAST_CONTRAST - contrast(colour, PAPER))
    while contrast(lightened := _lighter(channels, share), PAPER) < least and share < 1:
        share += 0.02
    return lightened


def _lighter(channels: tuple[float, float, float], share: float) -> str:
    hue, lightness, saturation = rgb_to_hls(*channels)
    return to_hex(hls_to_rgb(hue, lightness + (1 - lightness) * share, saturation))


def contrast(a: str, b: str) -> float:
    """WCAG 2's contrast ratio of two colours."""
    one, other = sorted((relative_luminance(a), relative_luminance(b)))
    return (other + 0.05) / (one + 0.05)
