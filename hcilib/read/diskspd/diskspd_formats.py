"""DiskSPD's text results (-Rtext, the default) and its XML (-Rxml) as timespans: plain records, whichever the format.

Layout after microsoft/diskspd (ResultParser, XmlResultParser, Profile), releases 2.0.17 to 2.2. No Windows machine was
at hand: nothing here was checked against a run of our own. Two text results that microsoft/VirtualClient publishes, one
of 2.0 and one of 2.2, were read as they are; of real XML and of a real VMFleet run no file was found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import dropwhile, takewhile, zip_longest
from math import isfinite, nan
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

_FLOAT = re.compile(r"[-+]?\d{1,300}(\.\d{1,300})?([eE][-+]?\d{1,4})?")
_NOT_A_NUMBER = re.compile(r"[-+]?(n/?a|nan|inf(inity)?|1\.#(ind|qnan|inf))(\(\w+\))?0*", re.IGNORECASE)
_PERCENT = re.compile(r"\d{1,3}(\.\d{1,12})?")
_LARGEST = 2**63 - 1


class DiskspdOutputError(ValueError):
    """A file that holds no complete DiskSPD result; the sentence names the file and, where there is one, the place."""


@dataclass
class Target:
    """What a timespan was to do to one path; NaN where the file does not say."""

    path: str = ""
    write_pct: float = nan
    block_bytes: float = nan
    random_pct: float = nan
    depth: float = nan
    threads: float = nan
    direct: bool | None = None
    sync: bool | None = None
    rate_iops: float = nan
    rate_bytes_per_s: float = nan


@dataclass
class Counts:
    """One direction of one thread on one target; `iops` only where the file prints it, latencies in ms."""

    io_bytes: int = 0
    ios: int = 0
    iops: float = nan
    mean_ms: float = nan


@dataclass
class Row:
    """One thread on one target."""

    thread: int
    path: str
    size: str
    read: Counts
    write: Counts


@dataclass
class Chart:
    """A latency distribution: percent as text -> ms, of one path, or of all targets together (path None)."""

    path: str | None
    read: dict[str, float]
    write: dict[str, float]


@dataclass
class Timespan:
    """One timespan: what was planned, and what came of it (`seconds` NaN where nothing did)."""

    version: str = ""
    duration_s: float = nan
    warmup_s: float = nan
    pooled: bool = False  # -O: the threads of a pool share a queue over all targets, by weight
    targets: list[Target] = field(default_factory=list)
    seconds: float = nan
    thread_count: float = nan
    rows: list[Row] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    damage: str = ""

    @property
    def ended(self) -> bool:
        """False where DiskSPD was interrupted before it began to measure, or its results were cut away."""
        return isfinite(self.seconds)

    def settled(self) -> list[tuple[Row, Target]]:
        """Every row with its target's settings; one target alone may stand for all."""
        own = {target.path: target for target in self.targets}
        only = self.targets[0] if len(self.targets) == 1 else Target()
        return [(row, own.get(row.path, only)) for row in self.rows]


def describe_damage(span: Timespan) -> str:
    """Why the rows of a timespan cannot be all of it; empty where they can."""
    threads = len({row.thread for row in span.rows})
    if span.ended and isfinite(span.thread_count) and threads != span.thread_count:
        return f"it names {span.thread_count:.0f} threads and holds rows of {threads}"
    return ""


def number(text: str, where: str) -> float:
    """A printed number; NaN for N/A and for what C prints instead of 0/0."""
    text = text.strip().removesuffix("%")
    if _FLOAT.fullmatch(text):
        value = float(text)
        return value if isfinite(value) else nan
    if _NOT_A_NUMBER.fullmatch(text):
        return nan
    raise DiskspdOutputError(f"{where}: {text[:60]!r} stands where a number is expected; copy the file again.")


def count(text: str, where: str) -> int:
    """A printed whole number that is never missing: bytes, I/Os, threads."""
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _LARGEST):
        raise DiskspdOutputError(f"{where}: {text[:60]!r} stands where a count is expected; copy the file again.")
    return int(text)


def percent(text: str, where: str) -> str:
    """A percentile's number as text without idle zeros, 0 to 100."""
    text = text.strip()
    if not _PERCENT.fullmatch(text) or Fraction(text) > 100:
        raise DiskspdOutputError(f"{where}: {text[:60]!r} stands where a percentile from 0 to 100 is expected.")
    return text.rstrip("0").rstrip(".") if "." in text else str(int(text))


_SECTIONS = ("Total IO", "Read IO", "Write IO")
_FIRST_LINES = ("Command Line:", "Input parameters:")
_RESULTS = re.compile(r"Results for timespan \d+:")
_REMARK = re.compile(r"(warning|error)\b", re.IGNORECASE)
_CHART_ROW = re.compile(r"(min|max|\d{1,2}th|\d-nines)\s*\|([^|]*)\|([^|]*)\|")
_FILE = re.compile(r"(.*) \(([^()]*)\)")
_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d{1,20}(?:\.\d\d)?)\s*(\w*)")

_LETTERED = re.compile(r"(?:^|\s)[-/]([A-Za-z])([^\s\"]*)")
_BLOCK, _DEPTH, _DURATION_S, _WARMUP_S = 64 * 2**10, 2, 10, 5
"""DiskSPD's defaults; its others are 1 thread a target, reads, sequential."""

Lines = list[tuple[str, str]]
"""Stripped lines, each with the place it stands at (file and line) for errors."""
Cells = dict[str, tuple[str, str]]
"""One row of a table by its columns' names, each cell with its place."""


def parse_text(text: str, path: str) -> list[Timespan]:
    """Timespans of every text result in the file.

    Raises
    ------
    DiskspdOutputError
        No results, results that are cut off, or a field that is not of its type.
    """
    lines = [
        (line.strip(), f"{path}: line {i}") for i, line in enumerate(re.split(r"\r\n|\n|\r", text.lstrip("\ufeff")), 1)
    ]
    spans = [span for report in _reports(lines) for span in _timespans(report)]
    if not any(span.ended or span.targets for span in spans):
        raise DiskspdOutputError(_no_result(lines, path))
    return spans


def _reports(lines: Lines) -> list[Lines]:
    """The reports in a file (`>>` appends)."""
    texts = [line for line, _ in lines]
    opening = next((o for o in _FIRST_LINES if any(t.startswith(o) for t in texts)), None)
    starts = [i for i, t in enumerate(texts) if opening and t.startswith(opening)]
    starts = starts or [i for i, t in enumerate(texts) if _RESULTS.match(t)][:1]
    return [lines[a:b] for a, b in zip(starts, [*starts[1:], len(lines)], strict=True)]


def _no_result(lines: Lines, path: str) -> str:
    given = [text for text, _ in lines if text and text != "There has been an error"]
    remarks = given and all(map(_REMARK.match, given))  # DiskSPD's alone: of another file no text is shown
    found = f"; it says {given[0][:120]!r}" if remarks else "" if given else "; it is empty"
    return f"{path}: no DiskSPD results in this file{found}. Give DiskSPD's whole output, -Rxml or -Rtext."


def _timespans(report: Lines) -> list[Timespan]:
    starts = [i for i, (line, _) in enumerate(report) if _RESULTS.match(line)]
    head = report[: starts[0]] if starts else report
    # without input parameters (2.2 prints them only where asked) the command line says what was planned
    commands = [line.removeprefix(_FIRST_LINES[0]) for line, _ in head if line.startswith(_FIRST_LINES[0])]
    spans = _planned(head) or list(filter(None, map(_from_command_line, commands[:1])))
    spans += [Timespan() for _ in starts[len(spans) :]]
    for span, a, b in zip(spans, starts, [*starts[1:], len(report)], strict=False):
        # after the last of several timespans DiskSPD prints their sums, which no timespan owns
        _measured(list(takewhile(lambda line: line[0] != "Totals:", report[a:b])), span)
    return spans


def _planned(head: Lines) -> list[Timespan]:
    spans: list[Timespan] = []
    for line, where in head:
        if re.match(r"timespan:\s*\d+$", line):
            spans.append(Timespan())
        elif spans and line.startswith("path:"):
            path = line.partition(":")[2].strip().removeprefix("template target").strip()
            spans[-1].targets.append(Target(path=path.removeprefix("'").removesuffix("'"), random_pct=0))
        elif spans and spans[-1].targets:
            _set(spans[-1].targets[-1], _OF_TARGET, line, where)
        elif spans:
            _set(spans[-1], _OF_TIMESPAN, line, where)
    return spans


def _set(planned: Timespan | Target, settings: Settings, line: str, where: str) -> None:
    for written, name, meant in settings:
        if match := re.fullmatch(written, line):
            setattr(planned, name, meant(match[1] or "", where) if callable(meant) else meant)
            return


def _size(text: str, where: str) -> float:
    """4096 (to 2.0.21), 4KiB (from 2.1): bytes."""
    match = _SIZE.fullmatch(text.strip())
    if not match or match[2] not in _UNITS:
        raise DiskspdOutputError(
            f"{where}: {text.strip()[:60]!r} stands where a size such as 4096 or 4KiB is expected."
        )
    return round(float(match[1]) * _UNITS[match[2]])


Settings = tuple[tuple[str, str, Callable[[str, str], float] | float], ...]
"""How a line is written, the field that it is, and its value, or how that is read of what stands in brackets here."""
_OF_TIMESPAN: Settings = (
    (r"duration(?::(.*?)s?)?", "duration_s", number),
    (r"warm up time(?::(.*?)s?)?", "warmup_s", number),
    (r"number of outstanding I/O operations.*", "pooled", True),
)
_OF_TARGET: Settings = (
    (r"performing read test", "write_pct", 0),
    (r"performing write test", "write_pct", 100),
    (r"performing mix test(?:.*/)?(.*?)\)*", "write_pct", number),
    (r"block size(?::(.*))?", "block_bytes", _size),
    (r"using random I/O.*", "random_pct", 100),
    (r"using mixed random/sequential[^(]*\(?([^%]*).*", "random_pct", number),
    (r"number of outstanding I/O operations[^:]*:?(.*)", "depth", number),
    (r"threads per file(?::(.*))?", "threads", number),
    (r".*cache.*writethrough on", "sync", True),
    (r".*cache.*writethrough off", "sync", False),
    (r"software cache disabled", "direct", True),
    (r"using software cache|local software cache.*", "direct", False),
    (r"throughput rate-limited to *(\S*) IOPS", "rate_iops", number),
    (r"throughput rate-limited to *(\S*).*", "rate_bytes_per_s", lambda text, where: 1000 * number(text, where)),
)


def _measured(block: Lines, span: Timespan) -> None:
    """Fill in what one timespan's results say; nothing where it was interrupted before it measured."""
    facts = {name: (value, where) for line, where in block for name, _, value in [line.partition(":")] if value}
    if any(line.startswith("The test was interrupted before") for line, _ in block):
        return
    tables = {name: _table(block, name) for name in _SECTIONS}
    if "actual test time" not in facts:
        raise DiskspdOutputError(f"{block[0][1]}: this timespan has no 'actual test time' line; copy the file again.")
    value, where = facts["actual test time"]
    span.seconds = number(value.strip().removesuffix("s"), where)
    span.thread_count = count(*facts["thread count"]) if "thread count" in facts else nan
    span.rows = _rows(tables["Read IO"][0], tables["Write IO"][0])
    span.pooled = span.pooled or "request count" in facts
    span.charts = _charts(block)
    span.damage = next((note for _, note in tables.values() if note), "") or describe_damage(span)
    measured = "AvgLat" in (tables["Total IO"][0] or [{}])[0]
    if not span.damage and measured and all(chart.path is not None for chart in span.charts):
        span.damage = f"latency was measured and its distribution is missing after {block[-1][1]}"


def _table(block: Lines, name: str) -> tuple[list[Cells], str]:
    """One section's rows by column name, each cell with its place, and what its total line holds against them."""
    lines = dropwhile(lambda line: line[0] != name, block)
    next(lines, None)
    header = next((line for line, _ in lines if line), "")
    if "I/Os" not in header:
        raise DiskspdOutputError(f"{block[-1][1]}: the results end before their section {name!r}; copy the file again.")
    columns = [column.strip() for column in header.split("|")]
    rows: list[Cells] = []
    for line, where in lines:
        if line.startswith("total:"):
            total = dict(zip(columns[1:], line.removeprefix("total:").split("|"), strict=False))
            return rows, _against(total, rows, where)
        if "|" in line:
            cells = line.split("|", len(columns) - 1)
            if len(cells) != len(columns):
                raise DiskspdOutputError(f"{where}: {len(cells)} columns where the header has {len(columns)}.")
            rows.append({column: (cell, where) for column, cell in zip(columns, cells, strict=True)})
    raise DiskspdOutputError(f"{block[-1][1]}: section {name!r} ends without its total line; copy the file again.")


def _against(total: dict[str, str], rows: list[Cells], where: str) -> str:
    """Rows that do not add up to the line below them were cut out or edited."""
    for column in ("bytes", "I/Os"):
        printed, summed = count(total.get(column, ""), where), sum(_count(row, column) for row in rows)
        if printed != summed:
            return f"its rows add up to {summed} {column} and its total line says {printed} ({where})"
    return ""


def _count(row: Cells, column: str) -> int:
    if column not in row:
        where = next(iter(row.values()))[1]
        raise DiskspdOutputError(f"{where}: the table has no column {column!r}; it has {', '.join(row)}.")
    return count(*row[column])


def _number(row: Cells, column: str) -> float:
    return number(*row[column]) if column in row else nan


def _rows(reads: list[Cells], writes: list[Cells]) -> list[Row]:
    """Both sections list every thread on every target in one order."""
    if len(reads) != len(writes):
        where = next(iter((reads or writes)[-1].values()))[1]
        raise DiskspdOutputError(
            f"{where}: {len(reads)} rows of reads and {len(writes)} of writes; copy the file again."
        )
    rows = []
    for read, write in zip(reads, writes, strict=True):
        cell = read["file"][0].strip() if "file" in read else ""
        path, size = (m[1], m[2]) if (m := _FILE.fullmatch(cell)) else (cell, "")
        rows.append(Row(_count(read, "thread"), path, size, _direction(read), _direction(write)))
    return rows


def _direction(row: Cells) -> Counts:
    """AvgLat is 0.000 where there was no I/O to have a latency."""
    ios = _count(row, "I/Os")
    mean_ms = _number(row, "AvgLat") if ios else nan
    return Counts(_count(row, "bytes"), ios, _number(row, "I/O per s"), mean_ms)


def _charts(block: Lines) -> list[Chart]:
    """Latency distributions: one a target where there are several, and one of all ('total:' to 2.1, later in words)."""
    charts: list[Chart] = []
    title = ""
    for line, where in block:
        row = _CHART_ROW.match(line)
        if line.startswith("%-ile"):
            charts.append(Chart(None if title.lower().startswith("total") else title, {}, {}))
        elif row and charts:
            label = _percentile(row[1])
            for values, cell in ((charts[-1].read, row[2]), (charts[-1].write, row[3])):
                values[label] = number(cell, where)
        elif line:
            title = line
    if any("100" not in chart.read for chart in charts):
        raise DiskspdOutputError(f"{block[-1][1]}: the results end inside a latency distribution; copy the file again.")
    return charts


def _percentile(name: str) -> str:
    """min, 25th, 3-nines, max -> 0, 25, 99.9, 100."""
    if name.endswith("-nines"):
        nines = int(name[0])
        return str(100 - 10 ** (2 - nines)) if nines < 3 else f"99.{'9' * (nines - 2)}"
    return {"min": "0", "max": "100"}.get(name) or name.removesuffix("th").lstrip("0") or "0"


# --- what the command line asked for: all that is said of the settings where no input parameters are printed
# -------------
# Options and defaults after microsoft/diskspd's wiki, Command line and parameters.


def _from_command_line(command: str) -> Timespan | None:
    """The timespan that a command line plans, with one target that stands for all; None where a profile (-X) does."""
    options: dict[str, list[str]] = {}
    for letter, value in _LETTERED.findall(command):
        options.setdefault(letter, []).append(value)
    if not options or "X" in options:
        return None
    caches = "".join(options.get("S", ()))
    target = Target(
        write_pct=_last(options, "w", 0),
        block_bytes=_last(options, "b", _BLOCK, "[KMGT]?"),
        # -r and -r4K: all random; -rs40: 40 % of it (2.1 on)
        random_pct=min(_last(options, "r", 100 if "r" in options else 0, before="s"), 100),
        depth=_last(options, "o", _DEPTH),
        threads=nan if "F" in options else _last(options, "t", 1),
        direct="S" in options and (not caches or bool(set("hu") & set(caches))),
        sync=bool(set("hw") & set(caches)),
    )
    duration_s, warmup_s = _last(options, "d", _DURATION_S), _last(options, "W", _WARMUP_S)
    return Timespan("", duration_s, warmup_s, {"F", "O"} <= options.keys(), [target])


def _last(options: dict[str, list[str]], letter: str, default: int, units: str = "", before: str = "") -> int:
    """The last one given counts; sizes may have a unit, shares a letter before them."""
    written = re.compile(rf"{before}(\d{{1,15}})({units})", re.IGNORECASE)
    given = [match for value in options.get(letter, ()) if (match := written.fullmatch(value))]
    if not given:
        return default
    number_of, unit = given[-1].groups()
    return int(number_of) * _UNITS[f"{unit.upper()}iB" if unit else ""]


# --- XML

_OPEN, _CLOSE = "<Results", "</Results>"
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});)")


def parse_xml(text: str, path: str) -> list[Timespan]:
    """Return the timespans of every `<Results>` document in the text.

    Raises
    ------
    DiskspdOutputError
        A document is not XML, is cut off, or holds a field that is not of its type.
    """
    spans: list[Timespan] = []
    end = 0
    while (start := text.find(_OPEN, end)) >= 0:
        close = text.find(_CLOSE, start)
        end = close + len(_CLOSE) if close >= 0 else len(text)
        # DiskSPD writes paths as they are: R&D stands unescaped
        xml = _BARE_AMPERSAND.sub("&amp;", text[start:end])
        try:
            if "<!" in xml:
                raise DiskspdOutputError("a declaration or comment, which DiskSPD never writes")
            spans += _xml_timespans(ElementTree.fromstring(xml))
        except (ElementTree.ParseError, DiskspdOutputError, RecursionError) as error:
            place = f"{path}: the document at line {text.count(chr(10), 0, start) + 1}"
            raise DiskspdOutputError(f"{place} is broken off or damaged: {error}") from None
    return spans


def _string(node: Element, path: str) -> str:
    return node.findtext(path, "").strip()


def _number_at(node: Element, path: str, default: float = nan) -> float:
    found = node.find(path)
    return default if found is None else number(found.text or "", f"<{found.tag}>")


def _count_at(node: Element, tag: str) -> int:
    found = node.find(tag)
    if found is None:
        raise DiskspdOutputError(f"<{node.tag}> lacks <{tag}>; copy the file again.")
    return count(found.text or "", f"<{tag}>")


def _xml_timespans(root: Element) -> Iterator[Timespan]:
    """Planned and measured timespans in step; one that was planned and has no results stays unmeasured."""
    planned, measured = root.iterfind("Profile/TimeSpans/TimeSpan"), root.iterfind("TimeSpan")
    for plan, result in zip_longest(planned, measured):
        span = Timespan() if plan is None else _xml_planned(plan)
        span.version = _string(root, "System/Tool/Version")
        if result is not None and result.find("Error") is None:
            _xml_measured(result, span)
        yield span


def _xml_planned(plan: Element) -> Timespan:
    return Timespan(
        duration_s=_number_at(plan, "Duration"),
        warmup_s=_number_at(plan, "Warmup"),
        pooled=_number_at(plan, "RequestCount") > 0,
        targets=[_target(node) for node in plan.iterfind("Targets/Target")],
    )


def _target(node: Element) -> Target:
    in_iops, rate = node.find("Throughput[@unit='IOPS']") is not None, _number_at(node, "Throughput") or nan
    flags = {
        tag for tag in ("DisableOSCache", "DisableAllCache", "WriteThrough") if _string(node, tag).lower() == "true"
    }
    return Target(
        path=_string(node, "Path"),
        write_pct=_number_at(node, "WriteRatio"),
        block_bytes=_number_at(node, "BlockSize"),
        # <Random> is the alignment and stands only where I/O is random; below 100 % there is a ratio (2.1 on)
        random_pct=_number_at(node, "RandomRatio", 100 if _number_at(node, "Random") > 0 else 0),
        depth=_number_at(node, "RequestCount"),
        threads=_number_at(node, "ThreadsPerFile"),
        direct=bool(flags & {"DisableOSCache", "DisableAllCache"}),
        sync=bool(flags & {"WriteThrough", "DisableAllCache"}),
        rate_iops=rate if in_iops else nan,
        rate_bytes_per_s=nan if in_iops else 1000 * rate,  # bytes per ms, 0: none
    )


def _xml_measured(result: Element, span: Timespan) -> None:
    span.seconds = number(_string(result, "TestTimeSeconds"), "<TestTimeSeconds>")
    span.thread_count = _number_at(result, "ThreadCount")
    for position, thread in enumerate(result.iterfind("Thread")):
        own = position if thread.find("Id") is None else _count_at(thread, "Id")
        for target in thread.iterfind("Target"):
            read, write = (_counts(target, name) for name in ("Read", "Write"))
            span.rows.append(Row(own, _string(target, "Path"), _string(target, "FileSize"), read, write))
    span.charts = [_chart(latency) for latency in result.iterfind("Latency")]
    span.damage = describe_damage(span) or _unequal(result)


def _counts(target: Element, name: str) -> Counts:
    mean_ms = _number_at(target, f"Average{name}LatencyMilliseconds")
    return Counts(_count_at(target, f"{name}Bytes"), _count_at(target, f"{name}Count"), nan, mean_ms)


def _unequal(result: Element) -> str:
    """The sums that DiskSPD writes beside the two directions have to be their sums."""
    for target in result.iterfind("Thread/Target"):
        for whole, parts in (("BytesCount", ("ReadBytes", "WriteBytes")), ("IOCount", ("ReadCount", "WriteCount"))):
            if target.find(whole) is not None and _count_at(target, whole) != sum(_count_at(target, p) for p in parts):
                return f"{whole} is not the sum of {parts[0]} and {parts[1]}"
    return ""


def _chart(latency: Element) -> Chart:
    """Percentiles over all threads and targets; DiskSPD writes no other in XML."""
    chart = Chart(None, {}, {})
    for bucket in latency.iterfind("Bucket"):
        label = percent(_string(bucket, "Percentile"), "<Percentile>")
        for values, tag in ((chart.read, "ReadMilliseconds"), (chart.write, "WriteMilliseconds")):
            if bucket.find(tag) is not None:
                values[label] = _number_at(bucket, tag)
    return chart
