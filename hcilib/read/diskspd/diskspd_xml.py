"""DiskSPD's XML results (-Rxml) as timespans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from math import nan
from xml.parsers import expat

from hcilib.read.diskspd.diskspd_document import (
    Chart,
    Counts,
    DiskspdOutputError,
    Row,
    Target,
    Timespan,
    count,
    describe_damage,
    number,
    percent,
)

_OPEN, _CLOSE = "<Results", "</Results>"
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});)")
_DECLARATION = re.compile(r"<\?xml[^>]{0,200}\?>")
_DEEPEST = 40


def parse_xml(text: str, path: str) -> tuple[list[Timespan], str]:
    """Timespans of every `<Results>` document in the text, and the text around them.

    Raises
    ------
    DiskspdOutputError
        A document that is not XML, is cut off, or holds a field that is not of its type.
    """
    spans: list[Timespan] = []
    outside, end = [], 0
    while (start := text.find(_OPEN, end)) >= 0:
        outside.append(text[end:start])
        close = text.find(_CLOSE, start)
        end = close + len(_CLOSE) if close >= 0 else len(text)
        root = _tree(text[start:end], path, text.count("\n", 0, start))
        spans += _timespans(root)
    outside.append(text[end:])
    pieces = (_DECLARATION.sub("", piece).strip() for piece in outside)
    return spans, "\n".join(piece for piece in pieces if piece)


class _Node:
    """One element with the place it stands at: xml.etree forgets the line, an error has to name it."""

    __slots__ = ("attributes", "children", "tag", "text", "where")

    def __init__(self, tag: str, attributes: dict[str, str], where: str):
        self.tag, self.attributes, self.where = tag, attributes, where
        self.text = ""
        self.children: list[_Node] = []

    def all(self, *tags: str) -> Iterator[_Node]:
        """The children on a path of tags."""
        for child in self.children:
            if child.tag == tags[0]:
                yield from child.all(*tags[1:]) if tags[1:] else (child,)

    def get(self, *tags: str) -> _Node | None:
        return next(self.all(*tags), None)

    def string(self, *tags: str) -> str:
        found = self.get(*tags)
        return found.text.strip() if found else ""

    def number(self, *tags: str) -> float:
        found = self.get(*tags)
        return number(found.text, found.where) if found else nan

    def count(self, *tags: str) -> int:
        found = self.get(*tags)
        if found is None:
            raise DiskspdOutputError(f"{self.where}: <{self.tag}> lacks <{tags[-1]}>; copy the file again.")
        return count(found.text, found.where)

    def flag(self, tag: str) -> bool:
        return self.string(tag).lower() == "true"


def _tree(xml: str, path: str, lines_before: int) -> _Node:
    parser = expat.ParserCreate(encoding="utf-8")
    stack = [_Node("", {}, path)]

    def start(tag: str, attributes: dict[str, str]) -> None:
        node = _Node(tag, attributes, f"{path}: line {lines_before + parser.CurrentLineNumber}, <{tag}>")
        if len(stack) > _DEEPEST:
            raise DiskspdOutputError(f"{node.where}: nested deeper than any DiskSPD result; this is another XML file.")
        stack[-1].children.append(node)
        stack.append(node)

    def data(text: str) -> None:
        stack[-1].text += text

    def doctype(*_) -> None:
        raise DiskspdOutputError(f"{path}: a document type declaration, which DiskSPD never writes; refused.")

    parser.StartElementHandler, parser.EndElementHandler = start, lambda _: stack.pop()
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler, parser.buffer_text = data, doctype, True
    try:
        # DiskSPD writes paths as they are: R&D stands unescaped
        parser.Parse(_BARE_AMPERSAND.sub("&amp;", xml).encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        place = f"line {lines_before + error.lineno}, column {error.offset + 1}"
        reason = expat.ErrorString(error.code)
        raise DiskspdOutputError(f"{path}: the XML is broken off or damaged at {place} ({reason}).") from None
    return stack[0].children[0]


def _timespans(root: _Node) -> Iterator[Timespan]:
    """Planned and measured timespans in step; one that was planned and has no results stays unmeasured."""
    planned, measured = root.all("Profile", "TimeSpans", "TimeSpan"), root.all("TimeSpan")
    for plan, result in zip_longest(planned, measured):
        span = _planned(plan) if plan else Timespan()
        span.hostname = root.string("System", "ComputerName")
        span.version = root.string("System", "Tool", "Version")
        if result and not result.get("Error"):
            _measured(result, span)
        yield span


def _planned(plan: _Node) -> Timespan:
    pooled = plan.number("ThreadCount") > 0
    return Timespan(
        duration_s=plan.number("Duration"),
        warmup_s=plan.number("Warmup"),
        pool_threads=plan.count("ThreadCount") if pooled else 0,
        pool_depth=plan.count("RequestCount") if pooled and plan.number("RequestCount") > 0 else 0,
        targets=[_target(node) for node in plan.all("Targets", "Target")],
    )


def _target(node: _Node) -> Target:
    rate = node.get("Throughput")
    in_iops = rate is not None and rate.attributes.get("unit") == "IOPS"
    return Target(
        path=node.string("Path"),
        write_pct=node.number("WriteRatio"),
        block_bytes=node.number("BlockSize"),
        random_pct=_random_pct(node),
        depth=node.number("RequestCount"),
        threads=node.number("ThreadsPerFile"),
        direct=node.flag("DisableOSCache") or node.flag("DisableAllCache"),
        sync=node.flag("WriteThrough") or node.flag("DisableAllCache"),
        rate_iops=(node.number("Throughput") or nan) if in_iops else nan,
        rate_bytes_per_s=nan if in_iops else 1000 * (node.number("Throughput") or nan),  # bytes per ms, 0: none
        weight=node.number("Weight") if node.get("Weight") else 1,
        weight_of_thread={n.count("Thread"): n.number("Weight") for n in _weighted(node)},
    )


def _weighted(node: _Node) -> Iterator[_Node]:
    return (n for n in node.all("ThreadTargets", "ThreadTarget") if n.number("Weight") > 0)


def _random_pct(node: _Node) -> float:
    """`<Random>` is the alignment and stands only where I/O is random; below 100 % there is a ratio (2.1 on)."""
    if node.get("RandomRatio"):
        return node.number("RandomRatio")
    return 100 if node.number("Random") > 0 else 0


def _measured(result: _Node, span: Timespan) -> None:
    span.seconds = number(result.string("TestTimeSeconds"), f"{result.where}, its <TestTimeSeconds>")
    span.thread_count = result.number("ThreadCount")
    span.cpu_pct = result.number("CpuUtilization", "Average", "UsagePercent")
    span.rows = [
        _row(target, position, thread)
        for position, thread in enumerate(result.all("Thread"))
        for target in thread.all("Target")
    ]
    span.charts = [_chart(latency) for latency in result.all("Latency")]
    span.damage = describe_damage(span) or _unequal(result)


def _row(target: _Node, position: int, thread: _Node) -> Row:
    number_of_thread = thread.count("Id") if thread.get("Id") else position
    read, write = (_counts(target, name) for name in ("Read", "Write"))
    return Row(number_of_thread, target.string("Path"), target.string("FileSize"), read, write)


def _counts(target: _Node, name: str) -> Counts:
    mean, stddev = target.number(f"Average{name}LatencyMilliseconds"), target.number(f"{name}LatencyStdev")
    return Counts(target.count(f"{name}Bytes"), target.count(f"{name}Count"), nan, mean, stddev)


def _unequal(result: _Node) -> str:
    """The sums that DiskSPD writes beside the two directions have to be their sums."""
    for target in result.all("Thread", "Target"):
        for whole, parts in (("BytesCount", ("ReadBytes", "WriteBytes")), ("IOCount", ("ReadCount", "WriteCount"))):
            if target.get(whole) and target.count(whole) != sum(target.count(part) for part in parts):
                return f"{whole} is not the sum of {parts[0]} and {parts[1]} ({target.where})"
    return ""


def _chart(latency: _Node) -> Chart:
    """Percentiles over all threads and targets; DiskSPD writes no other in XML."""
    chart = Chart(None, {}, {})
    for bucket in latency.all("Bucket"):
        label = percent(bucket.string("Percentile"), bucket.where)
        for values, tag in ((chart.read, "ReadMilliseconds"), (chart.write, "WriteMilliseconds")):
            if bucket.get(tag):
                values[label] = bucket.number(tag)
    return chart
