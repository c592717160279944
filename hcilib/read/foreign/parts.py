"""What does one file hold? The parts of runs in a file of fio, DiskSPD or elbencho.

The content decides which tool wrote a file. A timespan of DiskSPD is a part, and so is a phase of
elbencho's csv that reads or writes, with the rates and latencies of the whole phase ("last done").
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from hcilib.model.caveats import BEYOND
from hcilib.model.metrics import QUANTILES
from hcilib.read.diskspd.diskspd import Timespan, buckets_of, load, outstanding_of, rows_of, version_of
from hcilib.read.fio.fio import (
    LOCAL_HOST,
    LOCAL_PORT,
    RATE,
    Content,
    Direction,
    Entry,
    FioFile,
    FioOutputError,
    parse,
)
from hcilib.read.fio.table import NO_BINS, full_depth_pct, histogram, sync_latency
from hcilib.read.fio.text import GROUPED, is_text, read_text
from hcilib.read.foreign.row import (
    NUMBERS,
    OF_ANOTHER_TEST,
    Part,
    Row,
    carried,
    fleet,
    is_of_another_mix,
    numbers_of,
    thin_tail,
)
from hcilib.read.foreign.settings import (
    FDATASYNC,
    OFF,
    UNLIKE,
    Asked,
    ForeignError,
    asked,
    pattern_of,
    rw_of,
    together,
)

SUBMITTED = 0.5
"""Share of the mean latency in submission from which on percentiles of completion say nothing."""
APART = 0.9
"""Groups overlap where one begins before this share of the other's runtime has passed."""
MORE, MORE_MS = 0.1, 50.0
"""Jobs that ended together ran this much longer than jobs x runtime at most: 33 ms was seen."""
EVEN = 0.05
FULL, OVERFULL = 0.9, 1.05
"""A full queue, as a share of outstanding by Little's law."""
_SHOWN = ("rw", "bs", "iodepth", "numjobs", "rwmixread", "rate_iops", "runtime")
_JSON = b'"fio version"'
_BEGINS = re.compile(rb"\s*(?:\{|<\S+> |fio[-:]|note:|[^\n]{1,200}: \(g=\d+\): rw=)")
"""How fio's output begins: what does not, and cannot be read, merely speaks of fio."""
_HEAD = re.compile(rb": \(g=0\): rw=")
_TERSE = re.compile(rb"^[345];fio-[^;\n]*;", re.MULTILINE)
_DICT = re.compile(rb"\{'fio version': ")
_SUMMARY = re.compile(rb"(?:Dbench|FIO Benchmark) Summary", re.IGNORECASE)
_NOTE = re.compile(r"^(?:<\S+> )?(?:note|fio|warning|WARNING)(?:: | ).", re.MULTILINE)
"""What fio itself warns of in front of its results."""
_INTERRUPTED = re.compile(r"fio: terminating on signal")
Parts = tuple[list[Part], str]
"""The runs of a file, and the tool's version."""


# ---- fio


def is_fio(raw: Content) -> bool:
    """Return whether these are fio's JSON or text, or a form of it that is refused by name."""
    forms = (_HEAD, _TERSE, _DICT)
    return raw.find(_JSON) >= 0 or is_text(raw[:]) or any(form.search(raw) for form in forms)


def fio_parts(raw: Content, path: str) -> Parts:
    """Return the runs of one output of fio.

    Raises
    ------
    FioOutputError : as `parse` and `read_text`
    ForeignError : jobs of which nobody can say whether they ran at once
    """
    if raw.find(_JSON) >= 0:
        file = parse(raw, path)
        return _parts_of(file, is_stated=True), file.version
    if not is_text(raw[:]):
        _refuse_form(raw, path)
    files = read_text(raw[:].decode("utf-8-sig", "replace"), path)
    parts = [part for file in files for part in _parts_of(file, is_stated=False)]
    seen = Counter(part.job for part in parts)
    for n, part in enumerate(parts, 1):  # one after the other: runs of their own, of one name too
        if len(parts) > 1 and seen[part.job] > 1:
            part.job = f"{part.job}, number {n}"
    return parts, files[0].version


def _refuse_form(raw: Content, path: str) -> None:
    remedy = "Run fio with --output-format=json+."
    if _TERSE.search(raw):
        why = "terse output states neither the options nor the number of jobs"
        raise FioOutputError(f"{path}: {why}. {remedy}")
    if _DICT.search(raw):
        raise FioOutputError(f"{path}: a Python dict, not JSON. Write it with json.dump.")


def _parts_of(file: FioFile, is_stated: bool) -> list[Part]:
    """Return the runs of a file.

    Parameters
    ----------
    is_stated : what is not among the options has fio's default
    """
    if not file.entries:
        raise FioOutputError(f"{file.path}: the fio document reports no job")
    together_ran = _groups(file.entries, file.path)
    tests = [(group, own) for group in together_ran for own in _by_workload(group)]
    codes = ("fio",) * bool(_NOTE.search(file.noise)) + (file.caveats,) * bool(file.caveats)
    is_interrupted = _INTERRUPTED.search(file.noise) is not None
    parts = [_part(file.path, own, len(tests) > 1, is_stated) for _, own in tests]
    patterns = [pattern_of(part.factors) if len(tests) > 1 else "" for part in parts]
    for n, (part, (group, own)) in enumerate(zip(parts, tests, strict=True)):
        part.caveats += codes
        part.failed |= is_interrupted
        others = (
            pattern
            for other, (pattern, (its, _)) in enumerate(zip(patterns, tests, strict=True))
            if its is group and other != n
        )
        if beside := ", ".join(others):
            part.factors = {**part.factors, "beside": beside}
        if not is_stated:
            continue
        depth = part.factors.get("iodepth", nan)
        if isfinite(part.offered) and isfinite(depth):
            part.full_depth_pct = full_depth_pct(own, depth)
        if part.factors.get("sync") == FDATASYNC:
            part.flushes = sync_latency(own, depth, file.path)
    return parts


def _groups(entries: Sequence[Entry], path: str) -> list[list[Entry]]:
    """Return the entries that ran at once.

    fio numbers groups anew after a `stonewall`, which it does not print, and for a `new_group`.
    """
    by_group: dict[float, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_group[entry.report.groupid].append(entry)
    groups = list(by_group.values())
    if len(groups) == 1:
        return groups
    starts = [min(entry.report.job_start for entry in group) for group in groups]
    if all(map(isfinite, starts)):
        ran = [max(d.runtime for e in group for d in e.directions.values()) for group in groups]
        order = sorted(range(len(groups)), key=starts.__getitem__)
        apart = all(starts[b] - starts[a] > APART * ran[a] for a, b in pairwise(order))
        return groups if apart else [list(entries)]
    if not any(group[0].options for group in groups):
        said = f"{path}: {len(groups)} groups of jobs without options: which did what is unknown"
        raise FioOutputError(f"{said}; keep one group a file, and give rw and bs by names")
    cells = {tuple(sorted(asked(group[0].options).factors.items(), key=str)) for group in groups}
    if len(cells) < len(groups):
        raise FioOutputError(
            f"{path}: {len(groups)} groups of jobs of one workload: whether they ran at once "
            "(new_group) or one after the other (stonewall), fio does not say; keep one group a file"
        )
    return groups


def _by_workload(group: list[Entry]) -> list[list[Entry]]:
    """Return entries that ran at once by what they did: each is a test beside the others."""
    if len(group) == 1:
        return [group]
    tests: dict[tuple, list[Entry]] = defaultdict(list)
    for entry in group:
        factors = asked(entry.options).factors
        tests[tuple(str(factors.get(name)) for name in UNLIKE)].append(entry)
    return list(tests.values())


def _part(path: str, own: list[Entry], is_one_of_several: bool, is_stated: bool) -> Part:
    """Return what jobs of one workload did that ran at once."""
    is_told = bool(own[0].options) and (is_stated or "rw" in own[0].options)
    told = [_asked(entry, is_stated) for entry in own]
    factors = together([one.factors for one in told])
    in_mixed = {100: "read", 0: "write"}.get(factors.get("rwmixread", nan), "mixed")
    is_verified = own[0].options.get("verify", "0") not in OFF
    # what is read to verify it is no load
    kept = ("write",) if is_verified and factors.get("rwmixread") == 0 else ("read", "write")
    named = [
        (in_mixed if ddir == "mixed" else ddir, direction)
        for entry in own
        for ddir, direction in entry.directions.items()
    ]
    rows = [(ddir, direction) for ddir, direction in named if ddir in kept]
    if not rows and any(ddir == "mixed" for ddir, _ in named):
        said = "unified_rw_reporting: reads and writes are one number in it"
        raise FioOutputError(f"{said}, and cannot be told apart")
    remote = {(e.report.hostname, e.report.port) for e in own} - {(LOCAL_HOST, LOCAL_PORT)}
    part = Part(
        job=own[0].report.jobname if is_one_of_several else "",
        factors=factors,
        asked={name: own[0].options[name] for name in _SHOWN if name in own[0].options},
        rows=[Row(ddir, numbers_of(one), one.total_ios) for ddir, one in rows],
        hosts=tuple(f"{host}:{port}" for host, port in sorted(remote)),
        failed=_has_failed(own),
        caveats=tuple(dict.fromkeys(code for one in told for code in one.codes)),
        contradicted=GROUPED if is_told else OF_ANOTHER_TEST,
    )
    _set_percentiles(part, [direction for _, direction in rows], path)
    _set_load(part, own, told, is_told, is_verified)
    return part


def _asked(entry: Entry, is_stated: bool) -> Asked:
    """Return a job's options with fio's defaults; of a client global options may be hidden."""
    options = entry.options
    is_local = is_stated and entry.report.hostname == LOCAL_HOST
    is_told = bool(options) and (is_stated or "rw" in options)
    return asked(options, is_told + (is_told and is_local))


def _set_load(part: Part, own: Sequence[Entry], told: Sequence[Asked], is_told: bool, is_verified: bool) -> None:
    """Set how many jobs ran, their I/Os in flight and what they were to do.

    Without numjobs each report is a job: group_reporting, which fio prints only where it was given
    a value, may hide some. How long the jobs ran tells how many they were.
    """
    factors = part.factors
    is_counted = all(["numjobs" in one.factors for one in told])
    jobs, flying, seen = 0, 0, set()
    for entry, one in zip(own, told, strict=True):
        key = entry.report.key()
        more = one.factors.get("numjobs", 1)
        if "numjobs" in one.factors and key in seen:
            continue  # one of the jobs that were counted
        seen.add(key)
        jobs += more
        flying += more * one.factors.get("in_flight", one.factors.get("iodepth", 1))
    offered = {one.factors.get("offered") for one in told}
    each = factors.pop("offered", nan) if len(offered) == 1 else nan
    if isfinite(each):
        del factors["rate_iops"]
    part.jobs, part.offered = jobs, jobs * each
    part.outstanding = nan
    if is_told and (is_counted or factors.get("iodepth", nan) != factors.get("iodepth", nan)):
        part.outstanding = flying
    if is_counted:
        factors["numjobs"] = jobs
    if not is_told:
        return
    runtimes = [[one.runtime for one in entry.directions.values()] for entry in own]
    longest_ms = [sum(each_ms) if is_verified else max(each_ms) for each_ms in runtimes]
    pairs = zip(own, longest_ms, strict=True)
    ran, runtime_ms = sum(e.report.job_runtime / (ms or nan) for e, ms in pairs), max(longest_ms)
    alike = _jobs_by_time(part, flying, ran, runtime_ms or nan)
    if alike != alike:
        part.unlike = (f"{ran:.3g} jobs ran, and numjobs is {jobs}",)
    elif alike > jobs:
        share = alike / jobs
        part.jobs = factors["numjobs"] = int(alike)
        part.outstanding, part.offered = flying * share, part.offered * share
        part.caveats += ("sections",)
    elif ran < (1 - EVEN) * jobs - MORE_MS / (runtime_ms or nan):
        part.outstanding = flying * ran / jobs
        part.caveats += ("ended-early",)


def _jobs_by_time(part: Part, flying: float, ran: float, runtime_ms: float) -> float:
    """Return how many jobs a part holds, by the time that they ran.

    Parameters
    ----------
    flying : I/Os in flight of the jobs that are stated
    ran : jobs, as the sum of their times by that of the longest, which is `runtime_ms`

    Returns
    -------
    The stated jobs where the time does not contradict it. NaN where there are more that the
    numbers do not show to be alike.
    """
    jobs = part.jobs
    if not ran > (1 + MORE) * jobs + MORE_MS / runtime_ms:
        return jobs
    sections = round(ran) / jobs
    done = fleet(part.rows)
    iops = done["iops"]
    rate_iops, rate_bytes = part.offered, part.factors.get("rate_bytes") or nan
    full = sections * flying
    in_flight = sum(row.numbers[0] * row.numbers[2] for row in part.rows) / 1e9
    if isfinite(rate_iops) or isfinite(rate_bytes):
        rated = (iops / rate_iops, done["bw_bytes"] / (jobs * rate_bytes))
        held = rated[0 if isfinite(rate_iops) else 1] / sections
        first = 1000 * sections * jobs / (iops * runtime_ms)  # what nothing holds back: an I/O each
        is_alike = FULL <= held <= 1 + 2 * RATE + first
    else:
        waits = part.factors.get("direct") == 0 and flying == jobs  # no latency of an I/O
        is_alike = in_flight <= OVERFULL * full and (waits or in_flight >= FULL * full)
    is_even = abs(ran - round(ran)) <= min(EVEN * ran, 0.25)
    of_another = is_of_another_mix(done, part.factors.get("rwmixread", nan))
    return round(ran) if is_even and is_alike and not of_another else nan


def _set_percentiles(part: Part, directions: Sequence[Direction], path: str) -> None:
    """Set histograms, or the percentiles that fio printed of its only job and direction.

    Where submission is most of the latency, those of completion are none of it.
    """
    bins = histogram(directions, path)
    codes: tuple[str, ...] = ()
    part.inexact = bins.kind == "clat"
    if not bins.kind:
        part.inexact = True
        if len(directions) == 1:
            codes = _set_own_percentiles(part, directions[0])
    if part.inexact and any(d.slat_ns.mean > SUBMITTED * d.lat_ns.mean for d in directions):
        part.own_percentiles, bins, codes = {}, NO_BINS, ()
    part.bins = (bins.lat_ns, bins.count) if bins.kind else None
    part.caveats += codes


def _set_own_percentiles(part: Part, direction: Direction) -> tuple[str, ...]:
    of_all = direction.lat_ns.percentile
    printed = of_all or direction.clat_ns.percentile
    found = {name: printed[q] for name, q in QUANTILES.items() if q in printed}
    if not found:
        return ()
    known = carried(direction.total_ios)
    part.own_percentiles = {name: found.get(name, nan) if n < known else nan for n, name in enumerate(QUANTILES)}
    part.inexact = bool(thin_tail(direction.total_ios)) or not of_all
    return (BEYOND,) if any(ns != ns for ns in found.values()) else ()


def _has_failed(entries: Sequence[Entry]) -> bool:
    """Return whether fio reports an error, failed I/Os after which it went on, or no I/O."""
    reports = [entry.report for entry in entries]
    is_idle = not all(any(d.any_io for d in entry.directions.values()) for entry in entries)
    return is_idle or any(report.error > 0 or report.total_err > 0 for report in reports)


# ---- DiskSPD

_XML = re.compile(rb"^\W*(?:<\?xml[^>]*>\s*)?<Results>\s*<", re.MULTILINE)
_TEXT = re.compile(rb"Command Line:.*(?:Input parameters:|Results for timespan \d)", re.DOTALL)
_UTF_16 = ("utf-16-le", "utf-16-be")


def is_diskspd(raw: Content) -> bool:
    """Return whether it has its XML's root, or the headings of its text; VMFleet's are UTF-16."""
    head = raw[:8192]
    wide = [head.decode(name, "ignore").encode() for name in _UTF_16] if b"\0" in head else [head]
    return any(_XML.search(text) or _TEXT.search(text) for text in wide)


def diskspd_parts(raw: Content, path: str) -> Parts:
    """Return the runs of DiskSPD's output; errors as of `load`."""
    spans = load(raw[:], path)
    numbered = [(number, span, list(rows_of(span))) for number, span in enumerate(spans, 1)]
    known = [one for one in numbered if one[2]]
    parts = [_span(span, rows, f"timespan {n}" * (len(known) > 1)) for n, span, rows in known]
    return parts, version_of(spans)


def _span(span: Timespan, rows: Sequence[Mapping[str, Any]], job: str) -> Part:
    factors = together([asked(row["options"]).factors for row in rows])
    jobs = len({(row["job"], row["clone"]) for row in rows})
    outstanding = outstanding_of(span)
    depth = outstanding / jobs
    apart = ("time_based", "offered")
    factors |= {"numjobs": jobs, "iodepth": int(depth) if depth.is_integer() else depth}
    known = {n: value for n, value in factors.items() if value == value and n not in apart}
    buckets = np.array(list(buckets_of(span)))
    return Part(
        job=job,
        factors=known,
        asked={name: rows[0]["options"][name] for name in _SHOWN if name in rows[0]["options"]},
        rows=[
            Row(
                row["ddir"],
                tuple(float(row.get(name, nan)) for name in NUMBERS),
                row.get("total_ios", nan),
            )
            for row in rows
        ],
        bins=(buckets[:, 0], buckets[:, 1]) if len(buckets) else None,
        outstanding=outstanding,
        failed=any(row["error"] for row in rows),
        inexact=True,
    )


# ---- elbencho

_PHASE = re.compile(r"(READ|WRITE)|RWMIX(\d+)")
_FIRST = b"ISO date,label,path type,"
_MIB = 2**20
_STATED = {
    "bs": "block size", "iodepth": "IO depth", "direct": "direct IO", "size": "file size",
}  # fmt: skip
"""fio's name of what a column states."""
Phase = dict[str, str]
"""One phase, by the names of the csv."""


def is_elbencho(raw: Content) -> bool:
    return raw[: len(_FIRST) + 3].removeprefix(b"\xef\xbb\xbf").startswith(_FIRST)


def elbencho_parts(raw: Content, path: str) -> Parts:
    """Return the runs of elbencho's csv.

    Raises
    ------
    ForeignError : a line with another number of fields, or no phase that reads or writes
    """
    phases = list(_phases(raw[:].decode("utf-8-sig", "replace"), path))
    jobs = [(phase, f"phase {n}" * (len(phases) > 1)) for n, phase in enumerate(phases, 1)]
    found = [part for phase, job in jobs if (part := _phase(phase, job))]
    if not found:
        raise ForeignError(f"{path}: no phase of it reads or writes")
    return found, phases[0].get("version", "")


def _phases(text: str, path: str) -> Iterator[Phase]:
    lines = csv.reader(io.StringIO(text))
    head, seen = next(lines), set[str]()
    for line in lines:  # elbencho appends: a line again is no repeat
        if (line and line[0] == head[0]) or str(line) in seen:
            continue
        seen.add(str(line))
        if len(line) != len(head):
            said = f"{path}: line {lines.line_num} has {len(line)} of {len(head)} fields"
            raise ForeignError(f"{said}: was it cut off?")
        yield dict(zip(head, line, strict=True))


def _phase(phase: Phase, job: str) -> Part | None:
    """Return the run of a phase; none of one that handles entries alone."""
    kind = _PHASE.fullmatch(phase.get("operation", ""))
    if not kind or _number(phase, "IOPS [last]") != _number(phase, "IOPS [last]"):
        return None
    reads_pct = {"READ": 100.0, "WRITE": 0.0}.get(kind[1] or "", float(kind[2] or 0))
    bs = _number(phase, "block size")
    rows = [Row("read" if reads_pct == 100 else "write", _numbers(phase, "", bs))]
    reads = _numbers(phase, "rwmix read ", bs)
    if kind[2] and reads[0] == reads[0]:
        rows.append(Row("read", reads))
    is_random = phase.get("random", "").lower() in ("1", "true")
    hosts, threads = (int(_number(phase, name) or 1) for name in ("hosts", "threads"))
    options = {own: phase[name].lower() for own, name in _STATED.items() if phase.get(name)}
    options |= {"rw": rw_of(reads_pct, is_random), "numjobs": f"{threads}"}
    if options["rw"].endswith("rw"):
        options["rwmixread"] = f"{reads_pct:g}"
    factors = {name: value for name, value in asked(options).factors.items() if value != ""}
    factors["numjobs"] = hosts * threads
    factors.setdefault("direct", 0)
    return Part(
        job=job,
        factors={name: value for name, value in factors.items() if name != "time_based"},
        asked={name: options[name] for name in _SHOWN if name in options},
        rows=rows,
        hosts=tuple(f"host {n}" for n in range(1, hosts + 1)),
        outstanding=hosts * threads * factors["iodepth"],
        inexact=True,
        label=phase.get("label", ""),
    )


def _numbers(phase: Phase, of: str, bs: float) -> tuple[float, ...]:
    """Return `NUMBERS` of one direction; bandwidth by the size of I/Os where it is not printed."""
    iops = _number(phase, f"{of}IOPS [last]")
    printed, counted = _MIB * _number(phase, f"{of}MiB/s [last]"), iops * bs
    bw_bytes = counted if abs(counted - printed) <= _MIB else printed  # whole MiB are printed
    lat_ns = 1000 * _number(phase, f"{of}IO lat us [avg]")
    return iops, bw_bytes, lat_ns, _number(phase, "time ms [last]"), nan


def _number(phase: Phase, name: str) -> float:
    try:
        return float(phase.get(name, ""))
    except ValueError:
        return nan


# ---- Which tool wrote it


class Tool(NamedTuple):
    """How the bytes of a tool's result are told, and what reads them."""

    name: str
    is_its: Callable[[Content], bool]
    parts_of: Callable[[Content, str], Parts]


TOOLS = (
    Tool("fio", is_fio, fio_parts),
    Tool("diskspd", is_diskspd, diskspd_parts),
    Tool("elbencho", is_elbencho, elbencho_parts),
)


def may_be(raw: Content) -> bool:
    """Return whether content that cannot be read is a damaged result: it begins as one does."""
    begins = _BEGINS.match(raw) or _TERSE.search(raw) or _DICT.search(raw)
    return begins is not None or not is_fio(raw)


def is_summary(raw: Content) -> bool:
    """Return whether it is what dbench and kbench print in place of fio's results."""
    return _SUMMARY.search(raw[:4096]) is not None
