"""One file of fio, DiskSPD or elbencho, as the parts of runs that it holds.

Of DiskSPD, XML or text, a part a timespan; of elbencho's csv, one a phase that reads or writes, with the rates
and latencies of the whole phase ("last done").
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from hcilib.model.caveats import BEYOND
from hcilib.model.metrics import QUANTILES
from hcilib.read.diskspd.diskspd import buckets_of, load, outstanding_of, rows_of, version_of
from hcilib.read.diskspd.diskspd_document import DiskspdOutputError, Timespan
from hcilib.read.fio.fio import (
    LOCAL_HOST,
    LOCAL_PORT,
    Content,
    Direction,
    Entry,
    FioFile,
    FioOutputError,
    Options,
    parse,
)
from hcilib.read.fio.table import NO_BINS, full_depth_pct, histogram, sync_latency
from hcilib.read.fio.text import GROUPED, is_text, read_text
from hcilib.read.foreign.counted import EVEN, MORE_MS, Row, jobs_by_time
from hcilib.read.foreign.parts import (
    FDATASYNC,
    UNLIKE,
    ForeignError,
    asked,
    pattern_of,
    rw_of,
)
from hcilib.read.foreign.row import NUMBERS, OF_ANOTHER_TEST, Part, carried, numbers_of, thin_tail
from hcilib.read.foreign.settings import DEFAULTS, OFF, settings_of, together

_SHOWN = ("rw", "bs", "iodepth", "numjobs", "rwmixread", "rate_iops", "runtime")
SUBMITTED = 0.5
"""Share of the mean latency in submission from which on percentiles of completion say nothing of it."""
_APART = 0.9
"""Groups overlap where one begins before this share of the other's runtime has passed."""


def is_fio(raw: Content) -> bool:
    """Its JSON; what it prints when nobody asks for JSON; or its terse lines, which are refused."""
    begins = raw.find(b'"fio version"') >= 0 or raw.find(b": (g=0): rw=") >= 0
    return begins or is_text(raw[:]) or bool(_TERSE.search(raw))


def fio_parts(raw: Content, path: str) -> tuple[list[Part], str]:
    """Its runs, and fio's version.

    Raises
    ------
    FioOutputError : as `read_fio` and `read_text`; and jobs of which nobody can say whether they ran at once
    """
    if raw.find(b'"fio version"') >= 0:
        file = parse(raw, path)
        return _parts_of(file), file.version
    text = raw[:].decode("utf-8-sig", "replace")
    if not is_text(raw[:]) and _TERSE.search(raw):
        raise FioOutputError(
            f"{path}: terse output states neither the options nor the number of jobs. Run fio with "
            "--output-format=json+"
        )
    files = read_text(text, path)
    parts = [part for file in files for part in _parts_of(file, stated=False)]
    seen = Counter(part.job for part in parts)
    for n, part in enumerate(parts, 1):  # what ran one after the other are runs of their own, also under one name
        part.job = f"{part.job}, number {n}" if len(parts) > 1 and seen[part.job] > 1 else part.job
    return parts, files[0].version


_TERSE = re.compile(rb"^[345];fio-[^;\n]*;", re.MULTILINE)


def _parts_of(file: FioFile, *, stated: bool = True) -> list[Part]:
    """The runs of a file; `stated`: what is not among its options is fio's default."""
    if not file.entries:
        raise FioOutputError(f"{file.path}: the fio document reports no job")
    together = _groups(file.entries, file.path)
    groups = [own for group in together for own in _by_workload(file.entries, group)]
    notes = ("fio",) * bool(_NOTE.search(file.noise)) + (file.caveats,) * bool(file.caveats)
    is_interrupted = _INTERRUPTED.search(file.noise) is not None
    parts = [_part(file, own, len(groups) > 1, stated) for own in groups]
    for part, own in zip(parts, groups, strict=True):
        part.caveats += notes
        part.failed |= is_interrupted
        beside = [
            pattern_of(other.factors)
            for other, its in zip(parts, groups, strict=True)
            if its is not own and any(its[0] in group and own[0] in group for group in together)
        ]
        if beside:
            part.factors = {**part.factors, "beside": ", ".join(beside)}
        if not stated:
            continue
        mine = [file.entries[n] for n in own]
        if isfinite(part.offered) and isfinite(depth := part.factors["iodepth"]):
            part.full_depth_pct = full_depth_pct(mine, depth)
        if part.factors.get("sync") == FDATASYNC:
            part.flushes = sync_latency(mine, part.factors["iodepth"], file.path)
    return parts


_NOTE = re.compile(r"^(?:<\S+> )?((?:note|fio|warning|WARNING)(?:: | ).{1,160})", re.MULTILINE)
"""What fio itself warns of in front of its results."""


_INTERRUPTED = re.compile(r"fio: terminating on signal")


def _groups(entries: Sequence[Entry], path: str) -> list[list[int]]:
    """The entries of each run of the file. fio numbers groups anew after a `stonewall`, which it does not print, and
    for a `new_group`."""
    if len(entries) == 1:
        return [[0]]
    by_group = defaultdict(list)
    for n, entry in enumerate(entries):
        by_group[entry.report.groupid].append(n)
    groups = list(by_group.values())
    if len(groups) == 1:
        return groups
    starts = [min(entries[n].report.job_start for n in group) for group in groups]
    if all(map(isfinite, starts)):
        ran = [max(d.runtime for n in group for d in entries[n].directions.values()) for group in groups]
        order = sorted(range(len(groups)), key=starts.__getitem__)
        apart = all(starts[b] - starts[a] > _APART * ran[a] for a, b in pairwise(order))
        return groups if apart else [[n for group in groups for n in group]]
    if not any(entries[group[0]].options for group in groups):
        raise FioOutputError(
            f"{path}: {len(groups)} groups of jobs without their options: which of them "
            "did what is not in the file; keep one group a file, and give rw and bs by names"
        )
    cells = [tuple(sorted(asked(entries[group[0]].options)[0].items(), key=str)) for group in groups]
    if len(set(cells)) < len(cells):
        raise FioOutputError(
            f"{path}: {len(groups)} groups of jobs of one workload: whether they ran at once (new_group) or one after "
            "the other (stonewall), fio does not say; keep one group a file"
        )
    return groups


def _by_workload(entries: Sequence[Entry], group: list[int]) -> list[list[int]]:
    """Entries that ran at once, apart where they did different things: each is a test beside the others."""
    if len(group) == 1:
        return [group]
    tests = defaultdict(list)
    for n in group:
        factors = asked(entries[n].options)[0]
        tests[tuple(str(factors.get(name)) for name in UNLIKE)].append(n)
    return list(tests.values())


def _part(file: FioFile, own: list[int], several: bool, stated: bool) -> Part:
    mine = [file.entries[n] for n in own]
    load = _load_of_one(mine[0], stated) if len(mine) == 1 else _load(mine, stated)
    verified = mine[0].options.get("verify", "0") not in OFF
    kept = ("write",) if verified and load.factors.get("rwmixread") == 0 else ("read", "write")
    named = [(load.alone if n == "mixed" else n, d) for e in mine for n, d in e.directions.items()]
    rows = [(ddir, direction) for ddir, direction in named if ddir in kept]
    if not rows and any(ddir == "mixed" for ddir, _ in named):
        raise FioOutputError("unified_rw_reporting: reads and writes are one number in it, and cannot be told apart")
    bins = histogram([direction for _, direction in rows], file.path)
    own_percentiles, inexact, codes = _own([] if bins.kind else [d for _, d in rows])
    inexact = bins.kind == "clat" if bins.kind else inexact
    if inexact and any(d.slat_ns.mean > SUBMITTED * d.lat_ns.mean for _, d in rows):
        own_percentiles, bins, codes = {}, NO_BINS, ()
    remote = {(e.report.hostname, e.report.port) for e in mine} - {(LOCAL_HOST, LOCAL_PORT)}
    counted = [Row(ddir, numbers_of(direction), direction.total_ios) for ddir, direction in rows]
    stated_here = bool(mine[0].options) and (stated or "rw" in mine[0].options)
    runtimes = [[direction.runtime for direction in entry.directions.values()] for entry in mine]
    longest_ms = [sum(of_job) if verified else max(of_job) for of_job in runtimes]
    ran = sum(entry.report.job_runtime / (ms or nan) for entry, ms in zip(mine, longest_ms, strict=True))
    load, unlike = _by_time(load, counted, ran, max(longest_ms) or nan) if stated_here else (load, ())
    return Part(
        job=mine[0].report.jobname if several else "",
        factors=load.factors,
        asked=load.asked,
        rows=counted,
        bins=(bins.lat_ns, bins.count) if bins.kind else None,
        own_percentiles=own_percentiles,
        hosts=tuple(f"{host}:{port}" for host, port in sorted(remote)),
        jobs=load.jobs,
        outstanding=load.outstanding,
        offered=load.offered,
        failed=_has_failed(mine),
        caveats=(*load.caveats, *codes),
        inexact=inexact,
        unlike=unlike,
        contradicted=GROUPED if stated_here else OF_ANOTHER_TEST,
    )


def _by_time(load: _Load, rows: Sequence[Row], ran: float, runtime_ms: float) -> tuple[_Load, tuple[str, ...]]:
    """The load of as many jobs as `ran` on average; and what says that they were no one load."""
    stated = load.factors | {"outstanding": load.flying, "offered": load.offered}
    jobs = jobs_by_time(stated, rows, load.jobs, ran, runtime_ms)
    if jobs != jobs:
        return load, (f"{ran:.3g} jobs ran, and numjobs is {load.jobs}",)
    if jobs > load.jobs:
        load = load._replace(
            factors={**load.factors, "numjobs": int(jobs)},
            jobs=int(jobs),
            outstanding=load.flying * jobs / load.jobs,
            offered=load.offered * jobs / load.jobs,
            caveats=(*load.caveats, "sections"),
        )
    elif ran < (1 - EVEN) * jobs - MORE_MS / runtime_ms:
        load = load._replace(
            outstanding=load.flying * ran / jobs,
            caveats=(*load.caveats, "ended-early"),
        )
    return load, ()


class _Load(NamedTuple):
    """What jobs that ran at once were asked for; `alone`: the direction of numbers that fio gives for both together."""

    alone: str
    factors: dict[str, Any]
    asked: dict[str, str]
    jobs: int
    outstanding: float
    flying: float
    offered: float
    caveats: tuple[str, ...]


_LOADS: dict[tuple, _Load] = {}
"""Of single jobs by their options: a folder has thousands of files of the same."""
_MOST_LOADS = 4096


def _load_of_one(entry: Entry, stated: bool) -> _Load:
    key = tuple(entry.options.items()), entry.report.hostname == LOCAL_HOST, stated
    if not (load := _LOADS.get(key)):
        if len(_LOADS) >= _MOST_LOADS:
            _LOADS.clear()
        load = _LOADS[key] = _load([entry], stated)
    return load


def _load(mine: list[Entry], stated: bool) -> _Load:
    options = [_with_defaults(entry) if stated else entry.options for entry in mine]
    told = [asked(given) for given in options]
    for name in UNLIKE:
        values = {f.get(name) for f, _ in told}
        if len(values) > 1:
            shown = " and ".join(sorted(map(str, values)))
            raise FioOutputError(f"jobs of {name} {shown} ran at once: together they are no one cell")
    factors = {name: value for name, value in told[0][0].items() if name != "numjobs"}
    jobs, numbered, flying = _jobs(mine, [f for f, _ in told])
    offered = jobs * factors.pop("offered", nan)
    if isfinite(offered) and len({f.get("offered") for f, _ in told}) == 1:
        del factors["rate_iops"]
    else:
        offered = nan
    factors |= {"numjobs": jobs} if numbered else {}
    is_told = stated or "rw" in mine[0].options  # text without its first lines states numjobs alone
    if is_told and mine[0].options:  # what is not among them is fio's default
        factors = {"rw": "read", "rwmixread": 100, "bs_bytes": 4096, "iodepth": 1} | factors
    factors |= together([settings_of(given) for given in options])
    if "ioengine" in options[0] and "ioengine" not in mine[0].options and (depth := factors["iodepth"]) > 1:
        factors |= {"iodepth": 1, "iodepth_options": f"iodepth={depth} {factors['iodepth_options']}".strip()}
    even = len({f.get("iodepth", 1) for f, _ in told}) == 1
    if not even:
        factors["iodepth"] = nan
    return _Load(
        alone={100: "read", 0: "write"}.get(told[0][0].get("rwmixread", nan), "mixed"),
        factors=factors,
        asked={name: mine[0].options[name] for name in _SHOWN if name in mine[0].options},
        jobs=jobs,
        outstanding=flying if is_told and (numbered or not even) else nan,
        flying=flying,
        offered=offered,
        caveats=tuple(dict.fromkeys(one for _, caveats in told for one in caveats)),
    )


def _with_defaults(entry: Entry) -> Options:
    """A job's options with fio's defaults of engine and page cache; of a client none, which may hide global options."""
    own, local = entry.options, entry.report.hostname == LOCAL_HOST
    return {**DEFAULTS, **own} if own and local and "buffered" not in own else own


def _jobs(entries: Sequence[Entry], told: Sequence[dict]) -> tuple[int, bool, float]:
    """How many jobs ran, whether numjobs says so, and their I/Os in flight.

    Without numjobs each report is a job: group_reporting, which fio prints only where it was given a value, may hide
    some.
    """
    seen: dict[tuple, tuple[int, float]] = {}
    stated = all(["numjobs" in factors for factors in told])
    for entry, factors in zip(entries, told, strict=True):
        report = entry.report
        key = (report.hostname, report.port, report.jobname, report.groupid)
        depth = factors.get("in_flight", factors.get("iodepth", 1))
        if "numjobs" in factors:
            seen[key] = factors["numjobs"], factors["numjobs"] * depth
        else:
            jobs, flying = seen.get(key, (0, 0))
            seen[key] = jobs + 1, flying + depth
    return sum(jobs for jobs, _ in seen.values()), stated, sum(flying for _, flying in seen.values())


def _own(directions: Sequence[Direction]) -> tuple[dict[str, float], bool, tuple[str, ...]]:
    """Return fio's own percentiles, which are those of one job and direction, where there is one.

    And whether some are missing or of completion latency, and the code of those that fio has not.
    """
    if len(directions) != 1:
        return {}, True, ()
    [direction] = directions
    lat = direction.lat_ns.percentile
    printed = lat or direction.clat_ns.percentile
    found = {name: printed[q] for name, q in QUANTILES.items() if q in printed}
    if not found:
        return {}, True, ()
    codes = (BEYOND,) if any(ns != ns for ns in found.values()) else ()
    known = carried(direction.total_ios)
    found = {name: found.get(name, nan) if n < known else nan for n, name in enumerate(QUANTILES)}
    return found, bool(thin_tail(direction.total_ios)) or not lat, codes


def _has_failed(entries: Sequence[Entry]) -> bool:
    """Whether fio reports an error of some job, or failed I/Os after which it went on, or no I/O."""
    reports = [entry.report for entry in entries]
    failed = any(report.error > 0 or report.total_err > 0 for report in reports)
    return failed or not all(any(direction.any_io for direction in entry.directions.values()) for entry in entries)


_SHOWN_OF_DISKSPD = ("rw", "bs", "iodepth", "numjobs", "rwmixread", "runtime")
_XML = re.compile(rb"<Results[\s>]")
_TEXT_OF_DISKSPD = re.compile(rb"Command Line:.*(?:Input parameters:|Results for timespan \d)", re.DOTALL)
_UTF_16 = ("utf-16-le", "utf-16-be")


def is_diskspd(raw: Content) -> bool:
    """By its XML's root, or by the headings with which its text begins; VMFleet's files are UTF-16."""
    head = raw[:8192]
    texts = [head] if b"\0" not in head else [head.decode(name, "ignore").encode() for name in _UTF_16]
    return any(_XML.search(text) or _TEXT_OF_DISKSPD.search(text) for text in texts)


def diskspd_parts(raw: Content, path: str) -> tuple[list[Part], str]:
    """Its runs, and DiskSPD's version.

    Raises
    ------
    DiskspdOutputError : as `load`; and targets that were asked for different things in one timespan
    """
    spans = load(raw[:], path)
    told = [(number, span, list(rows_of(span))) for number, span in enumerate(spans, 1)]
    told = [(number, span, rows) for number, span, rows in told if rows]
    return [_span(span, rows, f"timespan {n}" if len(told) > 1 else "") for n, span, rows in told], version_of(spans)


def _span(span: Timespan, rows: list[dict[str, Any]], job: str) -> Part:
    options = [row["options"] for row in rows]
    told = [asked(given)[0] for given in options]
    for name in ("rw", "bs_bytes", "rwmixread"):
        values = {factors.get(name) for factors in told}
        if len(values) > 1:
            shown = " and ".join(sorted(map(str, values)))
            raise DiskspdOutputError(f"targets of {name} {shown} in one timespan: together they are no one cell")
    factors = {name: value for name, value in told[0].items() if name not in ("numjobs", "iodepth", "time_based")}
    jobs = len({(row["job"], row["clone"]) for row in rows})
    outstanding = outstanding_of(span)
    depth = outstanding / jobs
    factors |= {"numjobs": jobs, "iodepth": int(depth) if depth.is_integer() else depth}
    factors |= together([settings_of(given) for given in options])
    buckets = np.array(list(buckets_of(span)))
    latency = len(buckets) > 0
    return Part(
        job=job,
        factors={name: value for name, value in factors.items() if value == value},
        asked={name: options[0][name] for name in _SHOWN_OF_DISKSPD if name in options[0]},
        rows=[
            Row(row["ddir"], tuple(float(row.get(name, nan)) for name in NUMBERS), row.get("total_ios", nan))
            for row in rows
        ],
        bins=(buckets[:, 0], buckets[:, 1]) if latency else None,
        hosts=(),
        outstanding=outstanding,
        failed=any(row["error"] for row in rows),
        inexact=True,
    )


_PHASE = re.compile(r"(READ|WRITE)|RWMIX(\d+)")
_TRUE = ("1", "true")
_HEAD = b"ISO date,label,path type,"

Phase = dict[str, str]
"""One phase, by the names of the csv."""


def is_elbencho(raw: Content) -> bool:
    return raw[: len(_HEAD) + 3].removeprefix(b"\xef\xbb\xbf").startswith(_HEAD)


def elbencho_parts(raw: Content, path: str) -> tuple[list[Part], str]:
    """Its runs, and elbencho's version.

    Raises
    ------
    ForeignError : a line that has another number of fields than the heading, or no phase that reads or writes
    """
    phases = list(_of_csv(raw[:].decode("utf-8-sig", "replace"), path))
    jobs = [(phase, f"phase {number}" if len(phases) > 1 else "") for number, phase in enumerate(phases, 1)]
    found = [part for phase, job in jobs if (part := _phase(phase, job))]
    if not found:
        raise ForeignError(f"{path}: no phase of it reads or writes")
    return found, phases[0].get("version", "")


def _of_csv(text: str, path: str) -> Iterator[Phase]:
    lines = csv.reader(io.StringIO(text))
    head, seen = next(lines), set[str]()
    for line in lines:
        if (line and line[0] == head[0]) or str(line) in seen:  # elbencho appends; a line again is no repeat
            continue
        seen.add(str(line))
        if len(line) != len(head):
            raise ForeignError(f"{path}: line {lines.line_num} has {len(line)} of {len(head)} fields: was it cut off?")
        yield dict(zip(head, line, strict=True))


def _phase(phase: Phase, job: str) -> Part | None:
    """The run of a phase; none of one that handles entries alone."""
    kind = _PHASE.fullmatch(phase.get("operation", ""))
    iops = _float(phase, "IOPS [last]")
    if not kind or iops != iops:
        return None
    reads = {"READ": 100.0, "WRITE": 0.0}.get(kind[1] or "", float(kind[2] or 0))
    runtime_ms = _float(phase, "time ms [last]")
    bs = _float(phase, "block size")
    bw = _bytes_per_s(phase, "MiB/s [last]", iops, bs)
    lat_ns = 1000 * _float(phase, "IO lat us [avg]")
    rows = [Row("read" if reads == 100 else "write", (iops, bw, lat_ns, runtime_ms, nan))]
    mixed = _float(phase, "rwmix read IOPS [last]")
    if kind[2] and mixed == mixed:
        bw = _bytes_per_s(phase, "rwmix read MiB/s [last]", mixed, bs)
        lat_ns = 1000 * _float(phase, "rwmix read IO lat us [avg]")
        rows.append(Row("read", (mixed, bw, lat_ns, runtime_ms, nan)))
    rw = rw_of(reads, phase.get("random", "").lower() in _TRUE)
    depth = _float(phase, "IO depth")
    hosts, threads = (int(_float(phase, name) or 1) for name in ("hosts", "threads"))
    factors: dict[str, Any] = {"rw": rw, "rwmixread": int(reads), "iodepth": int(depth)}
    factors |= {"numjobs": hosts * threads, "sync": 0} | ({"bs_bytes": int(bs)} if bs == bs else {})
    asked = {"rw": rw, "bs": f"{bs:g}", "iodepth": f"{depth:g}", "numjobs": f"{threads}"}
    factors["direct"] = int(phase.get("direct IO", "").lower() in _TRUE)
    if isfinite(size := _float(phase, "file size")):
        factors["size_bytes"] = size
    return Part(
        job=job,
        factors=factors,
        asked=asked | ({"rwmixread": f"{reads:g}"} if rw.endswith("rw") else {}),
        rows=rows,
        hosts=tuple(f"host {n}" for n in range(1, hosts + 1)),
        outstanding=hosts * threads * depth,
        inexact=True,
        label=phase.get("label", ""),
    )


def _float(phase: Phase, name: str) -> float:
    try:
        return float(phase.get(name, ""))
    except ValueError:
        return nan


def _bytes_per_s(phase: Phase, mib: str, iops: float, bs: float) -> float:
    """Whole MiB are printed, of which I/Os of a known size are the finer count where the two agree."""
    printed, counted = _float(phase, mib) * 2**20, iops * bs
    return counted if abs(counted - printed) <= 2**20 else printed
