"""DiskSPD's results, XML (-Rxml) or text (-Rtext, the default), 2.0.17 to 2.2, in fio's words.

Text is brought into the elements that XML has, so that one reader takes both: each thread and target is a
row. Layout after microsoft/diskspd (ResultParser, XmlResultParser, Profile). No Windows machine was at
hand. Two text results that microsoft/VirtualClient publishes, of 2.0 and of 2.2, were read. No real XML
and no result of a real VMFleet run was found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise, zip_longest
from math import ceil, isfinite, nan
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import XML, Element, SubElement

from hcilib.model.fio_buckets import MIDPOINTS, bucket_of

DDIRS = {"read": "Read", "write": "Write"}
_NUMBER = re.compile(r"(?i)([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*(?:([KMGT]?)(?:i?B)?|%|s)")
_NOT_A_NUMBER = re.compile(r"(?i)[-+]?(n/?a|nan|inf(inity)?|1\.#(ind|qnan|inf))(\(\w+\))?0*|")
"""N/A, what C prints instead of 0/0, and nothing."""
_NS_PER_MS = 1_000_000
_UNMEASURED = XML("<TimeSpan><Error/></TimeSpan>")
Options = dict[str, str]
Chart = dict[str, dict[float, float]]
"""A latency distribution: direction -> percent -> ms."""


class Counts(NamedTuple):
    """One direction of one thread on one target; `iops` only where the file prints it."""

    io_bytes: float = 0
    ios: float = 0
    iops: float = nan
    mean_ms: float = nan


class Row(NamedTuple):
    """One thread on one target: its directions with I/O, and what it was to do."""

    thread: float
    path: str
    busy: dict[str, Counts]
    options: Options


class Timespan(NamedTuple):
    """What was measured in one timespan; without seconds nothing, of each target.

    `charts`: of each path; that of all is called "".
    `is_whole`: nothing shows that rows are missing or were edited.
    """

    version: str
    rows: list[Row]
    seconds: float = nan
    charts: Mapping[str, Chart] = {}
    is_whole: bool = False


def load(raw: bytes, path: str) -> list[Timespan]:
    """Return the timespans in a file's bytes.

    Raises
    ------
    DiskspdOutputError : no complete DiskSPD result, a field that is not of its type, two targets on
        one path, or a queue that all targets share (-O). The sentence names file and place
    """
    spans = []
    for output in outputs_of(text_of(raw), path):
        try:
            for both in zip_longest(output.plans, output.results, fillvalue=_UNMEASURED):
                spans.append(_timespan(*both, output.version))
        except DiskspdOutputError as error:
            raise DiskspdOutputError(f"{output.place}: {error}") from None
    if not any(span.rows for span in spans):
        why = "the results hold no thread and no target. Give DiskSPD's whole output"
        raise DiskspdOutputError(f"{path}: {why}, -Rxml or -Rtext.")
    return spans


def text_of(raw: bytes) -> str:
    """Decode what PowerShell's `>` writes (UTF-16), and paths in the ANSI code page."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", "replace")
    if b"\0" in raw[:200]:
        return raw.decode("utf-16-be" if raw[:1] == b"\0" else "utf-16-le", "replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def version_of(spans: Sequence[Timespan]) -> str:
    return spans[0].version


# --- fields


def _number(parent: Element, tag: str) -> float:
    """Return a number, size or share; NaN where there is none."""
    node = parent.find(tag)
    text = "" if node is None else (node.text or "").strip()
    if number := _NUMBER.fullmatch(text):
        value = float(number[1]) * 1024 ** " KMGT".index((number[2] or " ").upper())
        return value if isfinite(value) else nan
    if node is None or _NOT_A_NUMBER.fullmatch(text):
        return nan
    said = f"{_place(node)}: {text[:60]!r}, expected a number"
    raise DiskspdOutputError(f"{said}; copy the file again.")


def _count(parent: Element, tag: str) -> float:
    """Return a number that is never missing."""
    value = _number(parent, tag)
    if not value >= 0:
        raise DiskspdOutputError(f"{_place(parent)} has no <{tag}>; copy the file again.")
    return value


def _place(node: Element) -> str:
    return f"line {node.get('line')}" if node.get("line") else f"<{node.tag}>"


def _flag(target: Element, *tags: str) -> float:
    """Return 1 where one is set, 0 where none is, and NaN where text does not say."""
    texts = [target.findtext(tag, "false").strip().lower() for tag in tags]
    return 1 if "true" in texts else nan if "" in texts else 0


def _options(target: Element, plan: Element) -> Options:
    """Return what a target was to do, under fio's names; what is not stated is left out."""
    reads_pct = 100 - _number(target, "WriteRatio")
    # <Random> is the alignment; below 100 % there is a ratio as well (2.1 on)
    ratio, alignment = _number(target, "RandomRatio"), _number(target, "Random")
    random_pct = ratio if isfinite(ratio) else 100 * (alignment > 0)
    numbers = {
        "bs": _number(target, "BlockSize"),
        "iodepth": _number(target, "RequestCount"),
        "numjobs": _number(target, "ThreadsPerFile"),
        "rwmixread": reads_pct,
        "runtime": _number(plan, ".//Duration"),
        "ramp_time": _number(plan, ".//Warmup"),
        "rate_iops": _number(target, "ThroughputIOPS") or nan,
        "rate": 1000 * _number(target, "Throughput") or nan,  # bytes per ms, 0: none
        "percentage_random": random_pct if 0 < random_pct < 100 else nan,
        "direct": _flag(target, "DisableOSCache", "DisableAllCache"),
        "sync": _flag(target, "WriteThrough", "DisableAllCache"),
    }
    options = _texts(numbers) | {"filename": _path(target)}
    if isfinite(reads_pct):
        mix = "read" if reads_pct == 100 else "rw" if reads_pct else "write"
        options["rw"] = ("rand" if random_pct > 0 else "") + mix
    return options


def _texts(numbers: dict[str, float]) -> Options:
    return {name: f"{value:.15g}" for name, value in numbers.items() if isfinite(value)}


def _path(node: Element) -> str:
    return node.findtext("Path", "").strip()


# --- timespans


def _timespan(plan: Element, result: Element, version: str) -> Timespan:
    planned = [(_path(target), _options(target, plan)) for target in plan.iter("Target")]
    options = dict(planned)
    if len(options) < len(planned):
        raise DiskspdOutputError("two targets on one path, which are no one test. Run each alone.")
    queues = [_number(plan, ".//Pool"), *(_number(of, "RequestCount") for of in (plan, result))]
    if any(queue > 0 for queue in queues):
        raise DiskspdOutputError("its threads share a queue (-O), which is not read. Give -o.")
    unmeasured = Timespan(version, [Row(0, path, {}, own) for path, own in planned])
    if result.find("Error") is not None:
        return unmeasured
    rows = _rows(result, options)
    charts = {_path(latency): _chart(latency) for latency in result.iterfind("Latency")}
    seconds, is_whole = _count(result, "TestTimeSeconds"), _is_whole(result, rows, charts)
    return Timespan(version, rows, seconds, charts, is_whole) if rows else unmeasured


def _rows(result: Element, planned: dict[str, Options]) -> list[Row]:
    """Return each thread and target with its settings; one target alone may stand for all."""
    [only] = planned.values() if len(planned) == 1 else [{}]
    rows = []
    for thread in result.iterfind("Thread"):
        for target in thread.iterfind("Target"):
            counts = {
                ddir: Counts(
                    _count(target, f"{name}Bytes"),
                    _count(target, f"{name}Count"),
                    _number(target, f"{name}PerSecond"),
                    _number(target, f"Average{name}LatencyMilliseconds"),
                )
                for ddir, name in DDIRS.items()
            }
            busy = {ddir: done for ddir, done in counts.items() if done.ios}
            path, size = _path(target), _texts({"size": _number(target, "FileSize") or nan})
            options = planned.get(path, only) | size
            rows.append(Row(_count(thread, ".//Id"), path, busy, options))
    threads = Counter(path for path, _ in {(row.path, row.thread) for row in rows})
    for row in rows:
        row.options["numjobs"] = str(threads[row.path])
    return rows


def _chart(latency: Element) -> Chart:
    buckets = {_count(bucket, "Percentile"): bucket for bucket in latency.iterfind("Bucket")}
    if max(buckets, default=nan) != 100:
        said = f"{_place(latency)}: it does not end at 100 %"
        raise DiskspdOutputError(f"{said}; copy the file again.")
    return {
        ddir: {
            percent: milliseconds
            for percent, bucket in buckets.items()
            if isfinite(milliseconds := _number(bucket, f"{name}Milliseconds"))
        }
        for ddir, name in DDIRS.items()
    }


def _is_whole(result: Element, rows: Sequence[Row], charts: Mapping[str, Chart]) -> bool:
    """Return whether sums, the number of threads and latencies show that no row is missing."""
    targets = result.findall("Thread/Target")
    sums = [
        _count(total, tag) == sum(_count(target, tag) for target in targets)
        for total in result.iterfind("Total")
        for tag in COUNTS
    ]
    sums += [
        _count(target, both) == _count(target, read) + _count(target, write)
        for target in targets
        for both, read, write in zip(COUNTS[:2], COUNTS[2:4], COUNTS[4:], strict=True)
    ]
    threads, stated = len({row.thread for row in rows}), _number(result, "ThreadCount")
    means_ms = [done.mean_ms for row in rows for done in row.busy.values()]
    is_timed_whole = "" in charts or not any(map(isfinite, means_ms))
    return all(sums) and (stated == threads or stated != stated) and is_timed_whole


# --- what it comes to


def rows_of(span: Timespan) -> Iterator[dict]:
    """Yield each target (job), thread (clone) and direction with I/O, as fio's JSON has them.

    A thread without any I/O is a row with its planned direction. So is a target of a timespan that
    was interrupted before it measured. `error`: the rows cannot be the whole timespan. `iodepth` of
    its options is what this thread keeps outstanding on this target, `numjobs` the threads on it.
    """
    alone = [found for found in _distributions(span) if len(found[0]) == 1]
    longest_ms = {(id(row), ddir): values.get(100, nan) for [row], ddir, values in alone}
    for clone, row in enumerate(span.rows):
        planned = "write" if row.options.get("rwmixread") == "0" else "read"
        for ddir, done in (row.busy or {planned: Counts()}).items():
            # rates over the printed time, unless the printed rate has more digits
            is_finer = done.iops > span.seconds
            rate = done.iops / done.ios if is_finer else 1 / (span.seconds or nan)
            yield {
                "job": row.path,
                "clone": clone,
                "ddir": ddir,
                "error": not span.is_whole,
                "options": row.options,
                "bw_bytes": done.io_bytes * rate,
                "iops": done.ios * rate,
                "runtime": 1000 * span.seconds,
                "total_ios": done.ios,
                "lat_ns_mean": _NS_PER_MS * done.mean_ms,
                "lat_ns_max": _NS_PER_MS * longest_ms.get((id(row), ddir), nan),
            }


def _distributions(span: Timespan) -> Iterator[tuple[list[Row], str, dict[float, float]]]:
    """Yield the rows, direction and percentiles of each; that of all where paths have none."""
    of_paths = {path: chart for path, chart in span.charts.items() if path}
    for path, chart in (of_paths or span.charts).items():
        for ddir, values in chart.items():
            rows = [row for row in span.rows if ddir in row.busy and path in ("", row.path)]
            if rows and values:
                yield rows, ddir, values


def buckets_of(span: Timespan) -> Iterator[tuple[int, int]]:
    """Yield lat_ns and count of every distribution, in fio's buckets; nothing without -L.

    Between two printed percentiles all I/Os are put at the upper one, which is where DiskSPD's own
    lookup (the smallest latency that reaches the share) would find them at worst; the min holds
    one. So a printed percentile is found again within a bucket's width, 1/128, and one in between
    is an upper bound.
    """
    for rows, ddir, values in _distributions(span):
        ios = int(sum(row.busy[ddir].ios for row in rows))
        counts: Counter = Counter()
        held = 0
        for percent in sorted(values):
            upto = max(held, min(ios, ceil(Fraction(str(percent)) * ios / 100)) or 1)
            # the midpoint of the bucket in which fio would count this latency
            lat_ns = max(0, round(min(values[percent], 1e9) * _NS_PER_MS))
            counts[MIDPOINTS[bucket_of(lat_ns)]] += upto - held
            held = upto
        yield from ((lat_ns, n) for lat_ns, n in sorted(counts.items()) if n)


def outstanding_of(span: Timespan) -> float:
    """Return the I/Os in flight of all threads, for Little's law; NaN where rows are missing."""
    depths = [float(row.options.get("iodepth", nan)) for row in span.rows]
    return sum(depths) if span.is_whole else nan


# --- text and XML as plans and results

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
