"""DiskSPD's text (-Rtext, the default) and XML (-Rxml) as plans and results.

Text is brought into the elements that XML has, so that one reader takes both. Layout after
microsoft/diskspd (ResultParser, XmlResultParser, Profile), releases 2.0.17 to 2.2. No Windows
machine was at hand. Two text results that microsoft/VirtualClient publishes, of 2.0 and of 2.2,
were read. No real XML and no result of a real VMFleet run was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

COUNTS = ("BytesCount", "IOCount", "ReadBytes", "ReadCount", "WriteBytes", "WriteCount")
"""Of a thread and target, and of all of them where text has totals."""
_OPEN = "<Results"
_DOCUMENT = re.compile(f"{_OPEN}.*?(?:</Results>|\\Z)", re.DOTALL)
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});)")
_COMMAND = re.compile("Command Line:")
_SUMS = "Totals:"
"""After the last of several timespans; they are of no timespan."""
_RESULTS = re.compile(rf"Results for timespan \d+:|{_SUMS}$")
_PLAN = re.compile(r"timespan:\s*\d+")
_TARGET = re.compile(r"path:\s*(?:template target\s*)?'?(.*?)'?")
_STATED = (
    (r"duration:(.*)|-d(\d+)", "Duration", r"\1\2"),
    (r"warm up time:(.*)|-W(\d+)", "Warmup", r"\1\2"),
    (r"performing read test", "WriteRatio", "0"),
    (r"performing write test", "WriteRatio", "100"),
    (r"performing mix test.*/(.*?)\)*|-w(\d+)", "WriteRatio", r"\1\2"),
    (r"block size:(.*)|-b(\d+[KMGTkmgt]?)", "BlockSize", r"\1\2"),
    (r"using random I/O.*|-r(?:\d.*)?", "RandomRatio", "100"),
    (r"using mixed random/sequential[^(]*\(?([^%]*).*|-rs(\d+)", "RandomRatio", r"\1\2"),
    (r"number of outstanding I/O operations[^:]*:?(.*)|-o(\d+)", "RequestCount", r"\1\2"),
    (r"-O\d.*", "Pool", "1"),
    (r"threads per file:(.*)|-t(\d+)", "ThreadsPerFile", r"\1\2"),
    (r".*cache.*writethrough on|-S\w*[hw]\w*", "WriteThrough", "true"),
    (r".*cache.*writethrough off", "WriteThrough", "false"),
    (r"software cache disabled|-S(?:\w*[hu]\w*)?", "DisableOSCache", "true"),
    (r"using software cache|local software cache.*", "DisableOSCache", "false"),
    (r"throughput rate-limited to *(\S*) IOPS", "ThroughputIOPS", r"\1"),
    (r"throughput rate-limited to *(\S*) B.*", "Throughput", r"\1"),
    (r"actual test time:(.*)", "TestTimeSeconds", r"\1"),
    (r"thread count:(.*)", "ThreadCount", r"\1"),
    (r"request count:(.*)", "RequestCount", r"\1"),
    (r"The test was interrupted before.*", "Error", ""),
)
"""How a line or an option of the command line is written, its element, and the text of that."""
_UNKNOWN = {"RandomRatio": "0", "DisableOSCache": "", "WriteThrough": ""}
_DEFAULTS = {
    "Duration": "10",
    "Warmup": "5",
    "WriteRatio": "0",
    "BlockSize": "64K",
    "RandomRatio": "0",
    "RequestCount": "2",
    "ThreadsPerFile": "1",
}
"""Of the command line (microsoft/diskspd's wiki, Command line and parameters)."""
_SECTION = re.compile(r"(Total|Read|Write) IO")
_COLUMNS = {
    "bytes": "{}Bytes",
    "I/Os": "{}Count",
    "I/O per s": "{}PerSecond",
    "AvgLat": "Average{}LatencyMilliseconds",
    "thread": "Id",
}
"""Column -> the element of a direction."""
_OF_BOTH = {"TotalBytes": "BytesCount", "TotalCount": "IOCount"}
_FILE_SIZE = re.compile(r" \(([^()]*)\)$")
_PERCENTILE = re.compile(r"(min|max|\d{1,2}th|[3-9]-nines)\s*\|([^|]*)\|([^|]*)\|.*")
Lines = list[tuple[str, int]]
"""Stripped lines with their numbers."""


class DiskspdOutputError(ValueError):
    """A file without a complete DiskSPD result; the sentence names the file and the place."""


class Output(NamedTuple):
    """One output of DiskSPD: where it begins, and its timespans as planned and as measured."""

    place: str
    version: str
    plans: list[Element]
    results: list[Element]


def outputs_of(text: str, path: str) -> Iterator[Output]:
    """Yield each output of DiskSPD in a text; `>>` appends.

    Raises
    ------
    DiskspdOutputError : an output is no XML, or is cut off
    """
    return (_of_xml if _OPEN in text else _of_text)(text, path)


def _of_xml(text: str, path: str) -> Iterator[Output]:
    for found in _DOCUMENT.finditer(text):
        place = f"{path}: document at line {text.count(chr(10), 0, found.start()) + 1}"
        try:
            # DiskSPD writes paths as they are: R&D is not escaped
            root = ElementTree.fromstring(_BARE_AMPERSAND.sub("&amp;", found[0]))
        except ElementTree.ParseError as error:
            raise DiskspdOutputError(f"{place} is broken off or damaged: {error}") from None
        for rate in root.iterfind(".//Throughput[@unit='IOPS']"):
            rate.tag = "ThroughputIOPS"
        plans = root.findall("Profile/TimeSpans/TimeSpan")
        version = root.findtext("System/Tool/Version", "").strip()
        yield Output(place, version, plans, root.findall("TimeSpan"))


def _of_text(text: str, path: str) -> Iterator[Output]:
    lines = [(line.strip(), n) for n, line in enumerate(re.split(r"\r\n|\n|\r", text), 1)]
    for report in _cut(lines, _COMMAND)[1:]:
        head, *blocks = _cut(report, _RESULTS)
        own = [block for block in blocks if block[0][0] != _SUMS]
        yield Output(path, "", _plans(head), list(map(_result, own)))


def _cut(lines: Lines, first: re.Pattern[str]) -> list[Lines]:
    """Cut lines before each first one; what is before all of them comes first."""
    starts = [n for n, (line, _) in enumerate(lines) if first.match(line)]
    return [lines[a:b] for a, b in pairwise([0, *starts, len(lines)])]


def _add(parent: Element, tag: str, text: str, line: int) -> None:
    """Set an element's child. Of two statements the last one counts."""
    child = parent.find(tag)
    child = SubElement(parent, tag) if child is None else child
    child.text = text
    child.set("line", str(line))


def _state(parent: Element, text: str, line: int) -> None:
    for pattern, tag, value in _STATED:
        if match := re.fullmatch(pattern, text):
            _add(parent, tag, match.expand(value), line)


def _target(plan: Element, stated: dict[str, str], line: int) -> Element:
    target = SubElement(plan, "Target")
    for tag, text in stated.items():
        _add(target, tag, text, line)
    return target


def _plans(head: Lines) -> list[Element]:
    """Return the input parameters. 2.2 prints them only where asked: then the command line."""
    plans: list[Element] = []
    current = Element("TimeSpan")
    for text, line in head:
        if _PLAN.fullmatch(text):
            plans.append(current := Element("TimeSpan"))
        elif plans and (path := _TARGET.fullmatch(text)):
            current = _target(plans[-1], _UNKNOWN | {"Path": path[1]}, line)
        else:
            _state(current, text, line)
    command, line = head[0]
    if not plans and not re.search(r"\s[-/]X", command):
        plans.append(Element("TimeSpan"))
        target = _target(plans[0], _DEFAULTS, line)
        for word in re.sub(r"\s/", " -", command).split():
            _state(target, word, line)
    return plans


def _result(block: Lines) -> Element:
    """Return what one timespan's results say; without its totals they were cut off."""
    result = Element("TimeSpan")
    total = SubElement(result, "Total", line=str(block[-1][1]))
    rows: list[Element] = []
    columns: list[str] = []
    section = title = ""
    n = 0
    for text, line in block:
        _state(result, text, line)
        if found := _SECTION.fullmatch(text):
            section, columns, n = found[1], [], 0
        elif section and not columns and "I/Os" in text:
            columns = [column.strip() for column in text.split("|")]
        elif columns and text.startswith("total:"):
            cells = [section, *text.removeprefix("total:").split("|")]
            _add_cells(total, section, dict(zip(columns, cells, strict=False)), line)
            columns = []
        elif columns and "|" in text:
            if section == "Total" or n == len(rows):
                thread = SubElement(result, "Thread")
                rows.append(SubElement(thread, "Target", line=str(line)))
            cells = text.split("|", len(columns) - 1)
            _add_cells(rows[n], section, dict(zip(columns, cells, strict=False)), line)
            n += 1
        elif text.startswith("%-ile"):
            latency = SubElement(result, "Latency", line=str(line))
            if not title.lower().startswith("total"):  # "total:" to 2.1, later in words
                _add(latency, "Path", title, line)
        elif (row := _PERCENTILE.fullmatch(text)) and (charts := result.findall("Latency")):
            bucket = SubElement(charts[-1], "Bucket")
            _add(bucket, "Percentile", _percent(row[1]), line)
            _add(bucket, "ReadMilliseconds", row[2], line)
            _add(bucket, "WriteMilliseconds", row[3], line)
        title = text or title
    return result


def _add_cells(parent: Element, section: str, cells: Mapping[str, str], line: int) -> None:
    for column, cell in cells.items():
        if tag := _COLUMNS.get(column, "").format(section):
            _add(parent, _OF_BOTH.get(tag, tag), cell, line)
        elif column == "file":
            path, *size = _FILE_SIZE.split(cell.strip())
            _add(parent, "Path", path, line)
            _add(parent, "FileSize", "".join(size), line)


def _percent(name: str) -> str:
    """Return the number in min, 25th, 3-nines or max: 0, 25, 99.9 or 100."""
    if name.endswith("-nines"):
        return f"99.{'9' * (int(name[0]) - 2)}"
    return {"min": "0", "max": "100"}.get(name, name.removesuffix("th"))
