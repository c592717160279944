"""What fio prints when nobody asks for JSON: its normal text, from fio 3 on, as reports and as every number printed.

A printed number is kept with the unit of its last digit. A rate is better
known than it is printed: fio prints how many I/Os it did and for how many milliseconds, and divides one by the other.
The text does not state direct, size, the requested runtime or the mix. Those are missing, never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from math import isfinite, nan
from typing import NamedTuple

from hcilib.read.fio.fio_document import FioOutputError
from hcilib.read.fio.fio_fast import LOCAL_HOST, LOCAL_PORT, SUMS, Direction, Entry, FioFile, Latency, Options, Report

_REPORT = re.compile(
    r"(?P<job>.*): \(groupid=(?P<group>\d+), jobs=(?P<jobs>\d+)\): "
    r"err=\s*(?P<err>-?\d+).*?: pid=(?P<pid>\d+)"
)
_HEAD = re.compile(
    r"(?:<(?P<host>[^<>\s]+)> )?(?P<job>.*): \(g=(?P<group>\d+)\): rw=(?P<rw>\w+), bs=(?P<bs>.*?), "
    r"ioengine=(?P<engine>[^,\s]+), iodepth=(?P<depth>\d+)"
)
_VERSION = re.compile(r"(?:^|fio=)(fio-\d[\w.-]*)", re.MULTILINE)
_NUMBER = r"(-?\d+(?:\.\d+)?)"
_SIZE = rf"{_NUMBER}\s*([kKMGTPE]?i?B)"
_RATE = re.compile(
    rf"\s*(read|write|trim|mixed)\s*: IOPS={_NUMBER}([kMGTPE]?), BW={_SIZE}/s \({_SIZE}/s\)\s?\({_SIZE}/(\d+)\s*msec\)"
)
_ANY_RATE = re.compile(r"\s*(?:read|write|trim|mixed)\s*:.*(?:IOPS|iops)=")
_LINE = re.compile(r"\s*([a-zA-Z/_][\w /]*?)\s*(?:\(\s*([\w /%]+?)\s*\))?\s*:\s*(.*)")
_PERCENTILES = re.compile(r"\s*(\w+)(?: prio [^ ]+)?(?: \([\d.]+% of IOs\))? percentiles \((\w+)\)\s*:")
_PERCENTILE = re.compile(rf"(\d+\.\d+)th=\[\s*(?:>=|>|<)?\s*{_NUMBER}([kKM]?)\]")
_PAIR = re.compile(rf"(>=\d+|\w+)\s*=\s*{_NUMBER}([kKMGTPE]?)")
_ISSUED = re.compile(r"total=([\d,]+),? short=([\d,]+),? dropped=([\d,]+)")
_STATUS = re.compile(r"(?:^|\r)Jobs: \d+ \(f=.*?(?=\r|\n|$)", re.MULTILINE)
_NS = {"nsec": 1.0, "usec": 1e3, "msec": 1e6, "sec": 1e9}
_POWERS = "kMGTPE"
FAR = 50
"""So many process ids beyond the number of jobs lie between groups only where they do not start together."""
_DDIRS = ("read", "write", "trim")
GROUPED = (
    "several job sections in one entry: group_reporting merged them ({}). Run fio with group_reporting=0, or keep one "
    "section a file"
)
_ENDS = ("Run status group", "Disk stats")
_OF_JOB = ("cpu", "IO depths", "submit", "complete", "latency")
_STATS = ("slat", "clat", "lat", "bw", "iops")


class Printed(NamedTuple):
    """A printed number in its base unit (ns, bytes, bytes/s, %, else a count), and one unit of its last digit."""

    value: float
    unit: float


def printed(text: str, scale: float = 1.0) -> Printed:
    value = float(text)
    if value < 0:
        raise ValueError(f"{text} is below 0, which fio neither counts nor times. Copy the file again")
    return Printed(value * scale, 10.0 ** -len(text.partition(".")[2]) * scale)


def _thousands(suffix: str) -> float:
    return 1000.0 ** (1 + _POWERS.lower().index(suffix.lower())) if suffix else 1.0


def _bytes(unit: str) -> float:
    prefix = unit.rstrip("B").rstrip("i")
    if not prefix:
        return 1.0
    base = 1024.0 if "i" in unit else 1000.0
    return base ** (1 + _POWERS.lower().index(prefix.lower()))


@dataclass
class TextReport:
    """One block of the text: a job, or the jobs of a group together.

    Parameters
    ----------
    numbers : ``read.iops``, ``read.clat.99.00th``, ``cpu.usr``, ... -> what is printed
    """

    job: str
    group: int
    jobs: int
    error: int
    pid: int
    host: str = LOCAL_HOST
    numbers: dict[str, Printed] = field(default_factory=dict)
    directions: list[str] = field(default_factory=list)
    options: Options = field(default_factory=dict)

    def value(self, name: str) -> float:
        """Return a number of the block, NaN where it is not printed."""
        found = self.numbers.get(name)
        return found.value if found else nan


class Head(NamedTuple):
    """What the first lines say of one job section; `clones`: it has several jobs."""

    job: str
    group: int
    options: Options
    clones: bool = False


@dataclass
class TextRun:
    """What one start of fio printed: its reports, its version, and what it said in front of them."""

    version: str
    reports: list[TextReport]
    noise: str
    heads: list[Head] = field(default_factory=list)


def is_text(raw: bytes) -> bool:
    """Whether these bytes hold a report of fio's normal output."""
    return re.search(rb"\(groupid=\d+, jobs=\d+\): err=", raw) is not None


def read_text(text: str, path: str) -> list[TextRun]:
    """Return every start of fio in a text, in its order.

    Raises
    ------
    FioOutputError : a line of a report that cannot be read, named by its number; or no report at all
    """
    runs: list[TextRun] = []
    report: TextReport | None = None
    ended, where = True, ""
    noise: list[str] = []
    for number, line in enumerate(_STATUS.sub("", text).replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        if head := _HEAD.match(line):
            if ended and (not runs or runs[-1].reports):
                runs.append(TextRun("", [], ""))
                noise = []
            ended = False
            runs[-1].heads.append(Head(head["job"].strip(), int(head["group"]), _options(head)))
            report = None
        elif line.rpartition("> ")[2].strip() == "..." and not ended:
            runs[-1].heads[-1] = runs[-1].heads[-1]._replace(clones=True)
        elif start := _REPORT.match(line):
            if not runs:
                runs.append(TextRun("", [], ""))
            report = TextReport(
                start["job"].strip(), int(start["group"]), int(start["jobs"]), int(start["err"]), int(start["pid"])
            )
            runs[-1].reports.append(report)
            runs[-1].noise = runs[-1].noise or "\n".join(noise)
            ended, where = True, ""
        elif line.startswith(_ENDS):
            report = None
        elif report is not None:
            try:
                where = _take(report, line, where)
            except ValueError as error:
                where = f"line {number} of fio's text, job {report.job!r}"
                raise FioOutputError(f"{path}: {where}, cannot be read ({error})") from None
        else:
            noise.append(line)
            if (version := _VERSION.search(line)) and runs:
                runs[-1].version = version[1]
    runs = [run for run in runs if any(report.numbers for report in run.reports)]
    if not runs:
        raise FioOutputError(f"{path}: fio's text holds no report of a job. Repeat the run")
    first = _VERSION.search(text)
    for run in runs:
        run.version = run.version or (first[1] if first else "")
        run.reports = [one for report in _last(run.reports) for one in _by_section(report, run, path)]
    return runs


def _by_section(report: TextReport, run: TextRun, path: str) -> list[TextReport]:
    """A report with the options of its section. Of a group's report (group_reporting) that holds a section of readers
    and one of writers, each direction under its own.

    Raises
    ------
    FioOutputError : sections that are not alike, and cannot be told apart by their directions
    """
    names = {one.job for one in run.reports if one.group == report.group}
    heads = [h for h in run.heads if h.group == report.group and (h.job == report.job or h.job not in names)]
    own = list({(head.job, str(head.options)): head for head in heads}.values())  # every host prints them
    told = {" ".join(f"{name}={value}" for name, value in head.options.items()) for head in own}
    if len(told) < 2:
        report.options = dict(own[0].options) if own else {}
        if len(own) == 1 and report.options["rw"].endswith("write"):  # what it reads is its verification
            report.directions = [ddir for ddir in report.directions if ddir != "read"] or report.directions
        return [report]
    sides = {head.options["rw"].removeprefix("rand"): head for head in own}
    clones = [head for head in own if head.clones]
    counted = len(clones) < 2 and (report.jobs > 2) == bool(clones)
    if len(own) > 2 or sides.keys() != {"read", "write"} or not counted:
        raise FioOutputError(f"{path}: {GROUPED.format(' and '.join(sorted(told)))}")
    return [
        replace(
            report,
            job=head.job,
            jobs=report.jobs - 1 if head.clones else 1,
            directions=[ddir for ddir in report.directions if ddir == side],
            options=dict(head.options),
        )
        for side, head in sides.items()
    ]


def _options(head: re.Match[str]) -> Options:
    """What the first lines say of a job, under fio's names."""
    options = {"rw": head["rw"], "ioengine": head["engine"], "iodepth": head["depth"]}
    sizes = re.findall(r"\d+(?:\.\d+)?[kKMGT]?i?B?", re.sub(r"\([RWT]\)", "", head["bs"]))
    found = [printed(*_split(size)).value for size in sizes]
    mixed = head["rw"] in ("rw", "randrw", "readwrite")
    side = found[:4] if mixed else found[2:4] if "write" in head["rw"] and len(found) >= 4 else found[:2]
    if len(set(side)) == 1:
        options["bs"] = f"{side[0]:.0f}"
    elif side:
        options["bsrange"] = head["bs"]
    return options


def _split(size: str) -> tuple[str, float]:
    number = re.match(r"[\d.]+", size)
    assert number
    unit = size[number.end() :]
    return number[0], _bytes(unit if unit.endswith("B") or not unit else f"{unit}B")


def _last(reports: list[TextReport]) -> list[TextReport]:
    """Of interim reports (`--status-interval`) the last, and no sum of clients where there are their own."""
    by_key = {(report.job, report.group, report.pid, report.host): report for report in reports}
    of_jobs = [report for report in by_key.values() if report.job != SUMS]
    return of_jobs or list(by_key.values())


# --- the lines of a report --------------------------------------------------------------------------------------------


def _take(report: TextReport, line: str, where: str) -> str:
    """Add a line's numbers; return whose the next lines are: a direction, percentiles of one, or the job."""
    ddir = where.partition(" ")[0]
    rates = _RATE.match(line)
    if rates and rates[1] in report.directions:
        raise ValueError(f"a second rate of {rates[1]} in one report: was a part of the text left out?")
    if rates:
        return _rate_of(report, rates)
    if _ANY_RATE.match(line):
        raise ValueError("a rate as fio 2 prints it, or in a form that is not known here; run fio 3")
    if found := _PERCENTILES.match(line):
        return f"{ddir} {found[1]} {found[2]}"
    if line.lstrip().startswith("|") and where.count(" ") == 2:
        _, kind, unit = where.split(" ")
        for name, text, suffix in _PERCENTILE.findall(line):
            report.numbers[f"{ddir}.{kind}.{name}th"] = printed(text, _NS[unit] * _thousands(suffix))
        return where
    found = _LINE.match(line)
    if not found:
        return ddir or where
    name, unit, rest = found.groups()
    if name in _STATS and "avg=" in rest and ddir:
        scale = _NS.get(unit or "", 1.0) if name not in ("bw", "iops") else 1.0
        key = f"{ddir}.{name}"
        for each, text, suffix in _PAIR.findall(rest):
            own = scale * _thousands(suffix) if each not in ("per", "samples") else 1.0
            report.numbers[f"{key}.{each}"] = printed(text, own)
        if name == "bw":
            _scale_bw(report, key, unit or "")
    elif name in ("sync", "fsync/fdatasync/sync_file_range") and "avg=" in rest:
        for each, text, suffix in _PAIR.findall(rest):
            report.numbers[f"sync.sync.{each}"] = printed(text, _NS.get(unit or "", 1.0) * _thousands(suffix))
        return "sync"
    elif name in _OF_JOB or name.startswith("issued"):
        _of_job(report, name, rest)
        return ""
    elif name == "lat" and unit:
        for each, text, _ in _PAIR.findall(rest):
            report.numbers[f"lat_pct.{unit}.{each}"] = printed(text)
    elif name.startswith("fsync"):
        return "sync"
    return ddir


def _rate_of(report: TextReport, rate: re.Match[str]) -> str:
    ddir, iops, suffix, bw, unit, bw_10, unit_10, io, io_unit, runtime = rate.groups()
    report.directions.append(ddir)
    report.numbers |= {
        f"{ddir}.iops": printed(iops, _thousands(suffix)),
        f"{ddir}.bw_bytes": printed(bw, _bytes(unit)),
        f"{ddir}.bw_bytes_10": printed(bw_10, _bytes(unit_10)),
        f"{ddir}.io_bytes": printed(io, _bytes(io_unit)),
        f"{ddir}.runtime": printed(runtime),
    }
    return ddir


def _scale_bw(report: TextReport, key: str, unit: str) -> None:
    scale = _bytes(unit.replace(" ", "").removesuffix("/s"))
    for name in ("min", "max", "avg", "stdev"):
        if found := report.numbers.get(f"{key}.{name}"):
            report.numbers[f"{key}.{name}"] = Printed(*(scale * value for value in found))


def _of_job(report: TextReport, name: str, rest: str) -> None:
    if not name.startswith("issued"):
        report.numbers |= {
            f"{name}.{each}": printed(text, _thousands(suffix)) for each, text, suffix in _PAIR.findall(rest)
        }
        return
    found = _ISSUED.search(rest)
    for kind, texts in zip(("total", "short", "dropped"), found.groups() if found else (), strict=False):
        for ddir, text in zip((*_DDIRS, "sync"), texts.strip(",").split(","), strict=False):
            report.numbers[f"issued.{kind}.{ddir}"] = printed(text)


# --- as the reports of a file -----------------------------------------------------------------------------------------


def fio_file(run: TextRun) -> FioFile:
    """Return one start of fio as what its JSON gives: rates by the counted I/Os, latencies in ns as printed."""
    jobs: dict[tuple[str, int], int] = {}
    for report in run.reports:
        jobs[report.job, report.group] = jobs.get((report.job, report.group), 0) + report.jobs
    entries = []
    starts = _starts_ms(run)
    for clone, report in enumerate(run.reports):
        same = [one for one in run.reports if (one.job, one.group) == (report.job, report.group)]
        options = _with_mix(report, same) if report.options else {}
        options |= {"numjobs": str(jobs[report.job, report.group])} if options else {}
        head = Report(report.job, float(report.group), hostname=report.host, port=LOCAL_PORT, error=float(report.error))
        head.job_start = starts.get(report.group, nan)
        directions = [(ddir, _direction(report, ddir)) for ddir in report.directions]
        entries.append(Entry(head, clone, directions or [_idle(options)], options))
    return FioFile(entries, run.noise, run.version, [], False)


def _starts_ms(run: TextRun) -> dict[int, float]:
    """When each group began, as far as process ids tell: one that waited for another (stonewall) has an id that is
    further on than jobs that start together can have. Empty where the ids are close, which proves nothing."""
    first: dict[int, int] = {}
    ran_ms: dict[int, float] = {}
    for report in run.reports:
        first[report.group] = min(report.pid, first.get(report.group, report.pid))
        runtime = max((report.value(f"{ddir}.runtime") for ddir in report.directions), default=0.0)
        ran_ms[report.group] = max(runtime, ran_ms.get(report.group, 0.0))
    pids, jobs = list(first.values()), sum(report.jobs for report in run.reports)
    gaps = [after - before for before, after in pairwise(pids)]
    if gaps and all(gap > jobs + FAR for gap in gaps):
        ends = list(accumulate(ran_ms.values()))
        return dict(zip(first, [0.0, *ends[:-1]], strict=True))
    return {}


def _with_mix(report: TextReport, same: list[TextReport]) -> Options:
    """The share of reads in a mix is that of the I/Os of all its jobs, in whole percent: fio does not print what was
    asked."""
    options = dict(report.options)
    reads, writes = (sum(one.value(f"issued.total.{ddir}") for one in same) for ddir in ("read", "write"))
    if options["rw"] in ("rw", "randrw", "readwrite") and reads + writes > 0 and "mixed" not in report.directions:
        share = 100 * reads / (reads + writes)
        five = 5 * round(share / 5)
        options["rwmixread"] = str(five if abs(share - five) < 1 else round(share))
    return options


def _idle(options: Options) -> tuple[str, Direction]:
    none = Latency(nan, nan, nan, nan, 0)
    ddir = "write" if "write" in options.get("rw", "") else "read"
    return ddir, Direction(0, 0, 0, 0, 0, 0, 0, 0, none, none, none)


def rate(report: TextReport, ddir: str) -> Printed:
    """Return IOPS by the finest number: I/Os by milliseconds, bytes by block size, or as printed.

    fio cuts the rest of a rate off, so that the finer one may be above the printed one by a whole unit.
    """
    shown, ran_ms = report.numbers[f"{ddir}.iops"], report.value(f"{ddir}.runtime")
    counted = 1000 * report.value(f"issued.total.{ddir}") / ran_ms if ran_ms > 0 else nan
    if abs(counted - shown.value) <= shown.unit:
        return Printed(counted, 0.0)
    size = float(report.options.get("bs", nan))
    by_bytes = Printed(*(value / size for value in report.numbers[f"{ddir}.bw_bytes"]))
    finer = by_bytes.unit < shown.unit and abs(by_bytes.value - shown.value) <= shown.unit
    return by_bytes if finer else shown


def _direction(report: TextReport, ddir: str) -> Direction:
    iops = rate(report, ddir).value
    shown = report.numbers[f"{ddir}.bw_bytes"]
    bw, bs = shown.value, report.options.get("bs", "")
    if bs and abs(iops * float(bs) - bw) <= shown.unit:
        bw = iops * float(bs)
    ios = report.value(f"issued.total.{ddir}")
    runtime = report.value(f"{ddir}.runtime")
    ios = ios if isfinite(ios) else round(iops * runtime / 1000)
    lats = (_latency(report, f"{ddir}.{kind}", ios) for kind in ("slat", "clat", "lat"))
    short, dropped = (report.value(f"issued.{kind}.{ddir}") for kind in ("short", "dropped"))
    return Direction(report.value(f"{ddir}.io_bytes"), bw, bw / 1024, iops, runtime, ios, short, dropped, *lats)


def _latency(report: TextReport, key: str, ios: float) -> Latency:
    low, high, mean, stddev = (report.value(f"{key}.{name}") for name in ("min", "max", "avg", "stdev"))
    prefix = f"{key}."
    percentiles = {
        name.removeprefix(prefix).removesuffix("th"): number.value
        for name, number in report.numbers.items()
        if name.startswith(prefix) and name.endswith("th")
    }
    return Latency(low, high, mean, stddev, ios if isfinite(mean) else 0, percentiles)


def rounded(run: TextRun) -> tuple[str, ...]:
    """Whether a rate is known no better than printed, where rounding moves it by more than 0.1 %."""
    rates = [rate(report, ddir) for report in run.reports for ddir in report.directions]
    return ("printed-digits",) if any(found.unit > 1e-3 * found.value for found in rates) else ()
