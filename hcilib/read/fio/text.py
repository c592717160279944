"""fio 3's normal text, as the reports that its JSON would hold.

fio prints how many I/Os it did in how many milliseconds, which give the rate. The text states
neither direct, size, the requested runtime nor the mix. Those are missing, never guessed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from math import isfinite, nan, sqrt
from typing import NamedTuple

from hcilib.model.caveats import join_codes
from hcilib.read.fio.fio import (
    DDIRS,
    SUMS,
    Direction,
    Entry,
    FioFile,
    FioOutputError,
    Latency,
    Options,
    Report,
    disagreement,
    measured,
    unstamped,
)

_PART = re.compile(
    r"^(?:(?:<[^<>\s]+> )?(?P<job>.*): \((?:"
    r"g=(?P<g>\d+)\): rw=(?P<rw>\w+), bs=(?P<bs>.*?), "
    r"ioengine=(?P<ioengine>[^,\s]+), iodepth=(?P<iodepth>\d+)"
    r"|groupid=(?P<group>\d+), jobs=(?P<jobs>\d+)\): err=\s*(?P<error>-?\d+).*?: pid=(?P<pid>\d+).*"
    r")|Run status group|Disk stats)",
    re.MULTILINE,
)
_SIZE = r"(-?[\d.]+)\s*([kKMGTPE]?i?B?)(?:/s)?"
_RATE = re.compile(
    rf"^ *(read|write|trim|mixed) *: IOPS=(-?[\d.]+)([kMGTPE]?), BW={_SIZE} "
    r"\(.*?\) ?\(.*?/(\d+) *msec\)",
    re.MULTILINE,
)
_ANY_RATE = re.compile(r"^ *(?:read|write|trim|mixed) *:.*(?:IOPS|iops)=", re.MULTILINE)
_TIMES = re.compile(r"^ *(slat|clat|lat) \((\w+)\) *: (min=.*)", re.MULTILINE)
_SHARES = re.compile(r"^ *(slat|clat|lat) percentiles \((\w+)\) *:\n((?: *\|.*\n?)+)", re.MULTILINE)
_SHARE = re.compile(r"(\d+\.\d+)th=\[\s*[<>=]*\s*(-?[\d.]+)([kKM]?)\]")
_PAIR = re.compile(r"(\w+)=\s*(-?[\d.]+)([kKMGTPE]?)")
_ISSUED = re.compile(r"^ *issued r.*total=([\d,]+),? short=", re.MULTILINE)
_VERSION = re.compile(r"(?:^|fio=)(fio-\d[\w.-]*)", re.MULTILINE)
_STATUS = re.compile(r"(?:^|\r)Jobs: \d+ \(f=.*?(?=\r|\n|$)", re.MULTILINE)
_IS_TEXT = re.compile(rb"\(groupid=\d+, jobs=\d+\): err=")
_NS = {"nsec": 1.0, "usec": 1e3, "msec": 1e6, "sec": 1e9}
_IDLE = Direction(0, 0, 0, 0, 0)
MIXED = ("rw", "randrw", "readwrite")
MOST_OFF = 2.5
"""A mix is known where three standard errors are no more percent than this: half of a step of 5."""
GROUPED = (
    "several job sections in one entry: group_reporting merged them ({}). "
    "Run fio with group_reporting=0, or keep one section a file"
)


class _Section(NamedTuple):
    job: str
    group: str
    options: Options
    has_clones: bool


@dataclass
class _Block:
    """What is printed of a job, or of the jobs of a group together."""

    job: str
    group: str
    jobs: int
    error: float
    pid: str
    text: str = ""
    directions: dict[str, Direction] = field(default_factory=dict)
    options: Options = field(default_factory=dict)


class _Start(NamedTuple):
    """What one start of fio printed: its job sections, its reports, and the text around them."""

    sections: list[_Section]
    blocks: list[_Block]
    noise: list[str]


def is_text(raw: bytes) -> bool:
    """Whether these bytes hold a report of fio's normal output."""
    return _IS_TEXT.search(raw) is not None


def read_text(text: str, path: str) -> list[FioFile]:
    """Return every start of fio in a text, in its order.

    Raises
    ------
    FioOutputError : a report that cannot be read, named by its job; or no report at all
    """
    text = _STATUS.sub("", unstamped(text)).replace("\r\n", "\n").replace("\r", "\n")
    found = _VERSION.search(text)
    version = found[1] if found else ""
    files = []
    for start in _starts(text):
        last = {(block.job, block.group, block.pid): block for block in start.blocks}
        of_jobs = [block for block in last.values() if block.job != SUMS] or list(last.values())
        blocks = []
        for block in of_jobs:
            try:
                block.directions = _directions(block.text)
                blocks += _by_section(block, of_jobs, start.sections)
            except ValueError as error:
                raise FioOutputError(f"{path}: fio's text, job {block.job!r}: {error}") from None
        noise = "\n".join(start.noise).strip()
        is_counted = all(_ISSUED.search(block.text) for block in blocks)
        codes = join_codes("text", "" if is_counted else "printed-digits")
        if any(block.directions for block in blocks):
            files.append(FioFile(_entries(blocks), noise, version, path, caveats=codes))
    if not files:
        raise FioOutputError(f"{path}: fio's text holds no report of a job. Repeat the run")
    return files


def _starts(text: str) -> list[_Start]:
    """Cut a text into starts, and these into sections and reports."""
    starts: list[_Start] = []
    parts = list(_PART.finditer(text))
    for part, end in zip(parts, [*(part.start() for part in parts[1:]), len(text)], strict=False):
        behind = text[part.end() : end]
        if not starts or (part["rw"] and starts[-1].blocks):
            starts.append(_Start([], [], []))
        if part["rw"]:
            has_clones = behind.rpartition("> ")[2].lstrip().startswith("...")
            section = _Section(part["job"].strip(), part["g"], _options(part), has_clones)
            starts[-1].sections.append(section)
            starts[-1].noise.append(behind)
        elif part["pid"]:
            job, group, jobs, error, pid = part.group("job", "group", "jobs", "error", "pid")
            block = _Block(job.strip(), group, int(jobs), float(error), pid, behind)
            starts[-1].blocks.append(block)
    return starts


def _options(head: re.Match[str]) -> Options:
    """Return what the first lines say of a job, under fio's names."""
    options = {name: head[name] for name in ("rw", "ioengine", "iodepth")}
    sizes = re.findall(r"([\d.]+)([kKMGT]?i?B?)", re.sub(r"\([RWT]\)", "", head["bs"]))
    found = [_bytes(*size) for size in sizes]  # from and to, of reads, writes and trims
    side = found[2:4] if head["rw"].endswith("write") else found[:2]
    side = found[:4] if head["rw"] in MIXED else side
    if len(set(side)) == 1:
        return options | {"bs": f"{side[0]:.0f}"}
    return options | ({"bsrange": head["bs"]} if side else {})


def _amount(text: str, suffix: str = "", base: float = 1000.0) -> float:
    """Return a printed number such as 12.3k."""
    if text.startswith("-"):
        raise ValueError(f"{text} is below 0, which fio neither counts nor times. Copy it again")
    return float(text) * base ** (1 + "kmgtpe".index(suffix.lower()) if suffix else 0)


def _bytes(text: str, unit: str) -> float:
    prefix = unit.rstrip("B")
    return _amount(text, prefix.rstrip("i"), 1024.0 if prefix.endswith("i") else 1000.0)


# --- the numbers of a report ----------------------------------------------------------------------


def _directions(text: str) -> dict[str, Direction]:
    """Return the directions of a report; `mixed` where there is no other, as in JSON."""
    rates = list(_RATE.finditer(text))
    if len(rates) < len(_ANY_RATE.findall(text)):
        raise ValueError("a rate as fio 2 prints it, or in a form that is not known. Run fio 3")
    issued = _ISSUED.search(text)
    counts = issued[1].strip(",").split(",") if issued else []
    found: dict[str, Direction] = {}
    for rate, end in zip(rates, [*(rate.start() for rate in rates[1:]), len(text)], strict=False):
        if rate[1] in found:
            raise ValueError("a direction has two rates: was a part of the text left out?")
        ios = dict(zip(DDIRS, map(_amount, counts), strict=False)).get(rate[1], nan)
        found[rate[1]] = _direction(rate, ios, text[rate.end() : end])
    return {name: own for name, own in found.items() if name != "mixed" or len(found) == 1}


def _direction(rate: re.Match[str], ios: float, text: str) -> Direction:
    """Return one direction: its rate is its I/Os in its time, or as printed where they are not."""
    shown, runtime = _amount(rate[2], rate[3]), float(rate[6])
    iops = 1000 * ios / runtime if runtime and isfinite(ios) else shown
    ios = ios if isfinite(ios) else round(iops * runtime / 1000)
    shares = {
        kind: {float(q): _amount(ns, k) * _NS[unit] for q, ns, k in _SHARE.findall(lines)}
        for kind, unit, lines in _SHARES.findall(text)
    }
    bw_bytes = _bytes(rate[4], rate[5])
    found = Direction(bw_bytes=bw_bytes, iops=iops, runtime=runtime, total_ios=ios)
    for kind, unit, pairs in _TIMES.findall(text):
        times = {name: _amount(ns, k) * _NS[unit] for name, ns, k in _PAIR.findall(pairs)}
        own = Latency(max=times["max"], mean=times["avg"], N=ios, percentile=shares.get(kind, {}))
        setattr(found, f"{kind}_ns", measured(own))
        if wrong := disagreement(shown, ios, runtime / 1000, own.max / 1e9):
            raise ValueError(f"{rate[1]}: {wrong}. Repeat the run")
    return found


# --- whose numbers they are -----------------------------------------------------------------------


def _by_section(block: _Block, blocks: list[_Block], sections: list[_Section]) -> list[_Block]:
    """Return a report with the options of its section.

    Of a group's report (group_reporting) that holds a section of readers and one of writers, each
    direction is returned under its own.

    Raises
    ------
    ValueError : sections that are not alike, and cannot be told apart by their directions
    """
    names = {one.job for one in blocks if one.group == block.group} - {block.job}
    own = [one for one in sections if one.group == block.group and one.job not in names]
    told = {" ".join(f"{n}={v}" for n, v in one.options.items()): one for one in own}
    if len(told) < 2:
        for one in told.values():
            block.options = one.options
        if block.options.get("rw", "").endswith("write"):  # what it reads is its verification
            written = {ddir: own for ddir, own in block.directions.items() if ddir != "read"}
            block.directions = written or block.directions
        return [block]
    sides = {one.options["rw"].removeprefix("rand"): one for one in told.values()}
    several = sum(one.has_clones for one in told.values())
    is_counted = several < 2 and (block.jobs > 2) == bool(several)
    if len(told) > 2 or sides.keys() != {"read", "write"} or not is_counted:
        raise ValueError(GROUPED.format(" and ".join(sorted(told))))
    found = []
    for side, one in sides.items():
        jobs = block.jobs - 1 if one.has_clones else 1
        only = {side: block.directions[side]} if side in block.directions else {}
        found.append(replace(block, job=one.job, jobs=jobs, directions=only, options=one.options))
    return found


def _entries(blocks: list[_Block]) -> list[Entry]:
    jobs: Counter[tuple] = Counter()
    ios: defaultdict[tuple, float] = defaultdict(float)
    for block in blocks:
        jobs[block.job, block.group] += block.jobs
        for ddir, own in block.directions.items():
            ios[block.job, block.group, ddir] += own.total_ios
            size = float(block.options.get("bs", nan))
            if abs(own.iops * size - own.bw_bytes) <= 0.01 * own.bw_bytes:
                own.bw_bytes = own.iops * size  # the finer number
    entries = []
    for clone, block in enumerate(blocks):
        key = block.job, block.group
        options = block.options | {"numjobs": str(jobs[key])}
        if options.get("rw") in MIXED:
            options["rwmixread"] = f"{_mix(ios[*key, 'read'], ios[*key, 'write']):g}"
        report = Report(block.job, int(block.group), block.error)
        idle = {"write" if "write" in options.get("rw", "") else "read": _IDLE}
        entries.append(Entry(report, clone, block.directions or idle, options))
    return entries


def _mix(reads: float, writes: float) -> float:
    """Return the share of reads (%) of the I/Os of all jobs; NaN where these are too few.

    fio does not print what was asked for: mostly a multiple of 5, which is taken where the I/Os
    allow it.
    """
    ios = reads + writes or nan
    share = 100 * reads / ios
    off = 300 * sqrt(reads * writes / ios) / ios
    five = 5.0 * round(share / 5) if share == share else nan
    if not off <= MOST_OFF:
        return nan
    return five if abs(share - five) <= max(off, 1.0) else float(round(share))
