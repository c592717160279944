"""What does one file hold? The parts of runs in a file of fio, DiskSPD or elbencho.

The content decides which tool wrote a file. A timespan of DiskSPD is a part, and so is a phase of
elbencho's csv that reads or writes, with the rates and latencies of the whole phase ("last done").
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import isfinite, nan
from typing import NamedTuple

import numpy as np

from hcilib.model.caveats import BEYOND
from hcilib.model.metrics import QUANTILES
from hcilib.read.diskspd import Timespan, buckets_of, load, outstanding_of, rows_of, version_of
from hcilib.read.fio.fio import (
    LOCAL_HOST,
    RATE,
    Content,
    Direction,
    Entry,
    FioFile,
    FioOutputError,
    parse,
)
from hcilib.read.fio.table import full_depth_pct, histogram, sync_latency
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
    DEFAULTS,
    FDATASYNC,
    LOCAL_DEFAULTS,
    OFF,
    UNLIKE,
    Factors,
    ForeignError,
    Options,
    asked,
    pattern_of,
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
_REFUSED = {
    re.compile(rb"^[345];fio-[^;\n]*;", re.MULTILINE): (
        "terse output states no options and no number of jobs. Run fio with --output-format=json+."
    ),
    re.compile(rb"\{'fio version': "): "a Python dict, not JSON. Write it with json.dump.",
}
"""Forms of fio's results that are not read, and why."""
_HEAD = re.compile(rb": \(g=0\): rw=")
_BEGINS = re.compile(rb"\s*(?:\{|<\S+> |fio[-:]|note:|[^\n]{1,200}: \(g=\d+\): rw=)")
"""How fio's output begins: what does not, and cannot be read, merely speaks of fio."""
_SUMMARY = re.compile(rb"(?:Dbench|FIO Benchmark) Summary", re.IGNORECASE)
_NOTE = re.compile(r"^(?:<\S+> )?(?:note|fio|warning|WARNING)(?:: | ).", re.MULTILINE)
"""What fio itself warns of in front of its results."""
_INTERRUPTED = "fio: terminating on signal"
Parts = tuple[list[Part], str]
"""The runs of a file, and the tool's version."""


def _shown(options: Options) -> dict[str, str]:
    return {name: options[name] for name in _SHOWN if name in options}


# ---- fio


def is_fio(raw: Content) -> bool:
    """Return whether these are fio's JSON or text, or a form of it that is refused by name."""
    forms = (_HEAD, *_REFUSED)
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
        for form, why in _REFUSED.items():
            if form.search(raw):
                raise FioOutputError(f"{path}: {why}")
    files = read_text(raw[:].decode("utf-8-sig", "replace"), path)
    parts = [part for file in files for part in _parts_of(file, is_stated=False)]
    seen = Counter(part.job for part in parts)
    for n, part in enumerate(parts, 1):  # one after the other: runs of their own, of one name too
        if seen[part.job] > 1:
            part.job = f"{part.job}, number {n}"
    return parts, files[0].version


def _parts_of(file: FioFile, is_stated: bool) -> list[Part]:
    """Return the runs of a file.

    Parameters
    ----------
    is_stated : what is not among the options has fio's default
    """
    if not file.entries:
        raise FioOutputError(f"{file.path}: the fio document reports no job")
    parts: list[Part] = []
    for group in _groups(file.entries, file.path):
        found = [_part(file, own, is_stated) for own in _by_workload(group)]
        for part in found:
            if beside := [pattern_of(other.factors) for other in found if other is not part]:
                part.factors["beside"] = ", ".join(beside)
        parts += found
    if len(parts) == 1:
        parts[0].job = ""
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
        spans = pairwise(sorted(zip(starts, ran, strict=True)))
        apart = all(later - start > APART * ms for (start, ms), (later, _) in spans)
        return groups if apart else [list(entries)]
    said = f"{path}: {len(groups)} groups of jobs"
    if not any(group[0].options for group in groups):
        said += " without options: which did what is unknown"
        raise FioOutputError(f"{said}; keep one group a file, and give rw and bs by names")
    if len({str(asked(group[0].options).factors) for group in groups}) < len(groups):
        raise FioOutputError(
            f"{said} of one workload: whether they ran at once (new_group) or one after the other "
            "(stonewall), fio does not say; keep one group a file"
        )
    return groups


def _by_workload(group: list[Entry]) -> list[list[Entry]]:
    """Return entries that ran at once by what they did: each is a test beside the others."""
    if len(group) == 1:
        return [group]
    tests: dict[str, list[Entry]] = defaultdict(list)
    for entry in group:
        factors = asked(entry.options).factors
        tests[str([factors.get(name) for name in UNLIKE])].append(entry)
    return list(tests.values())


def _part(file: FioFile, own: list[Entry], is_stated: bool) -> Part:
    """Return what jobs of one workload did that ran at once."""
    options = own[0].options
    defaults = [_defaults(entry, is_stated) for entry in own]
    told = [asked(entry.options, more) for entry, more in zip(own, defaults, strict=True)]
    factors = together([one.factors for one in told])
    reads_pct = factors.get("rwmixread", nan)
    is_verified = options.get("verify", "0") not in OFF
    # what is read to verify it is no load
    kept = ("write",) if is_verified and reads_pct == 0 else ("read", "write", "mixed")
    unified = {100: "read", 0: "write"}.get(reads_pct, "mixed")
    both = [
        (unified if ddir == "mixed" else ddir, direction)
        for entry in own
        for ddir, direction in entry.directions.items()
        if ddir in kept
    ]
    if any(ddir == "mixed" for ddir, _ in both):
        said = "unified_rw_reporting: reads and writes are one number in it"
        raise FioOutputError(f"{said}, and cannot be told apart")
    reports = [entry.report for entry in own]
    remote = {f"{one.hostname}:{one.port}" for one in reports if one.hostname != LOCAL_HOST}
    codes = [code for one in told for code in one.codes]
    codes += ["fio"] * bool(_NOTE.search(file.noise)) + [file.caveats]
    part = Part(
        job=own[0].report.jobname,
        factors=factors,
        asked=_shown(options),
        rows=[Row(ddir, numbers_of(one), one.total_ios) for ddir, one in both],
        hosts=tuple(sorted(remote)),
        failed=_INTERRUPTED in file.noise or any(map(_has_failed, own)),
        caveats=tuple(dict.fromkeys(codes)),
        contradicted=GROUPED if defaults[0] else OF_ANOTHER_TEST,
    )
    _set_percentiles(part, [direction for _, direction in both], file.path)
    _set_load(part, own, [one.factors for one in told], bool(defaults[0]))
    depth = factors.get("iodepth", nan)
    if is_stated and isfinite(part.offered) and isfinite(depth):
        part.full_depth_pct = full_depth_pct(own, depth)
    if is_stated and factors.get("sync") == FDATASYNC:
        part.flushes = sync_latency(own, depth, file.path)
    return part


def _defaults(entry: Entry, is_stated: bool) -> Options:
    """Return fio's defaults where a job's options are known. A client's may be hidden."""
    if not entry.options or not (is_stated or "rw" in entry.options):
        return {}
    is_local = is_stated and entry.report.hostname == LOCAL_HOST
    return LOCAL_DEFAULTS if is_local else DEFAULTS


def _has_failed(entry: Entry) -> bool:
    """Return whether fio reports an error, failed I/Os after which it went on, or no I/O."""
    is_idle = not any(direction.any_io for direction in entry.directions.values())
    return is_idle or entry.report.error > 0 or entry.report.total_err > 0


def _set_load(part: Part, own: Sequence[Entry], told: Sequence[Factors], is_told: bool) -> None:
    """Set how many jobs ran, their I/Os in flight and what they were to do.

    Without numjobs each report is a job: group_reporting, which fio prints only where it was given
    a value, may hide some. How long the jobs ran tells how many they were.
    """
    factors = part.factors
    is_counted = all("numjobs" in one for one in told)
    loads = {}
    for entry, one in zip(own, told, strict=True):
        key = entry.report.key(), None if "numjobs" in one else entry.clone
        depth = one.get("in_flight", one.get("iodepth", 1))
        loads[key] = one.get("numjobs", 1), one.get("numjobs", 1) * depth
    part.jobs, flying = map(sum, zip(*loads.values(), strict=True))
    part.offered = part.jobs * factors.pop("offered", nan)
    if isfinite(part.offered):
        del factors["rate_iops"]
    if is_counted:
        factors["numjobs"] = part.jobs
    if not is_told:
        return
    if is_counted or not isfinite(factors.get("iodepth", nan)):
        part.outstanding = flying
    runtimes = [[one.runtime for one in entry.directions.values()] for entry in own]
    # what was written is read again behind it
    is_verified = own[0].options.get("verify", "0") not in OFF
    longest_ms = [(sum if is_verified else max)(each_ms) or nan for each_ms in runtimes]
    ran = sum(e.report.job_runtime / ms for e, ms in zip(own, longest_ms, strict=True))
    margin = MORE_MS / max(longest_ms)
    if ran > (1 + MORE) * part.jobs + margin:
        if not _is_of_like_jobs(part, flying, ran, max(longest_ms)):
            part.unlike = (f"{ran:.3g} jobs ran, and numjobs is {part.jobs}",)
            return
        share = round(ran) / part.jobs
        part.jobs = factors["numjobs"] = round(ran)
        part.outstanding, part.offered = flying * share, part.offered * share
        part.caveats += ("sections",)
    elif ran < (1 - EVEN) * part.jobs - margin:
        part.outstanding = flying * ran / part.jobs
        part.caveats += ("ended-early",)


def _is_of_like_jobs(part: Part, flying: float, ran: float, runtime_ms: float) -> bool:
    """Return whether the numbers show that the jobs that ran are sections like those stated.

    Parameters
    ----------
    flying : I/Os in flight of the jobs that are stated
    ran : jobs, as the sum of their times by that of the longest, which is `runtime_ms`
    """
    sections = round(ran) / part.jobs
    done = fleet(part.rows)
    held = done["iops"] / part.offered
    if not isfinite(held):
        held = done["bw_bytes"] / (part.jobs * (part.factors.get("rate_bytes") or nan))
    if isfinite(held):
        first = 1000 * round(ran) / (done["iops"] * runtime_ms)  # nothing holds back an I/O each
        is_alike = FULL <= held / sections <= 1 + 2 * RATE + first
    else:
        waits = part.factors.get("direct") == 0 and flying == part.jobs  # no latency of an I/O
        full = done["iops"] * done["lat_ns"] / 1e9 / (sections * flying)
        is_alike = (0 if waits else FULL) <= full <= OVERFULL
    is_even = abs(ran - round(ran)) <= min(EVEN * ran, 0.25)
    return is_even and is_alike and not is_of_another_mix(done, part.factors.get("rwmixread", nan))


def _set_percentiles(part: Part, directions: Sequence[Direction], path: str) -> None:
    """Set histograms, or the percentiles that fio printed of its only job and direction.

    Where submission is most of the latency, those of completion are none of it.
    """
    bins = histogram(directions, path)
    part.inexact = bins.kind != "lat"
    found: dict[str, float] = {}
    if not bins.kind and len(directions) == 1:
        [one] = directions
        printed = one.lat_ns.percentile or one.clat_ns.percentile
        found = {name: printed[q] for name, q in QUANTILES.items() if q in printed}
        is_whole = bool(found and one.lat_ns.percentile) and not thin_tail(one.total_ios)
        part.inexact = not is_whole
    if any(d.slat_ns.mean > SUBMITTED * d.lat_ns.mean for d in directions):
        part.caveats += ("submission",)
        if part.inexact:
            return
    if bins.kind:
        part.bins = bins.lat_ns, bins.count
    if found:
        known = list(QUANTILES)[: carried(directions[0].total_ios)]
        part.own_percentiles = {name: found.get(name, nan) for name in known}
        part.caveats += (BEYOND,) * any(ns != ns for ns in found.values())


# ---- DiskSPD

_XML = re.compile(rb"^\W*(?:<\?xml[^>]*>\s*)?<Results>\s*<", re.MULTILINE)
_TEXT = re.compile(rb"Command Line:.*(?:Input parameters:|Results for timespan \d)", re.DOTALL)


def is_diskspd(raw: Content) -> bool:
    """Return whether it has its XML's root, or the headings of its text; VMFleet's are UTF-16."""
    head = raw[:8192].replace(b"\0", b"")
    return any(form.search(head) for form in (_XML, _TEXT))


def diskspd_parts(raw: Content, path: str) -> Parts:
    """Return the runs of DiskSPD's output; errors as of `load`."""
    spans = load(raw[:], path)
    numbered = [(f"timespan {n}", span, list(rows_of(span))) for n, span in enumerate(spans, 1)]
    known = [one for one in numbered if one[2]]
    parts = [_span(span, rows, job * (len(known) > 1)) for job, span, rows in known]
    return parts, version_of(spans)


def _span(span: Timespan, rows: Sequence[Factors], job: str) -> Part:
    jobs = len({(row["job"], row["clone"]) for row in rows})
    outstanding = outstanding_of(span)
    depth = outstanding / jobs
    factors = together([asked(row["options"]).factors for row in rows])
    factors |= {"numjobs": jobs, "iodepth": int(depth) if depth.is_integer() else depth}
    buckets = np.array(list(buckets_of(span)))
    return Part(
        job=job,
        factors={name: value for name, value in factors.items() if value == value},
        asked=_shown(rows[0]["options"]),
        rows=[
            Row(
                row["ddir"],
                tuple(float(row.get(name, nan)) for name in NUMBERS),
                row.get("total_ios", nan),
            )
            for row in rows
        ],
        bins=(buckets[:, 0], buckets[:, 1]) if len(buckets) else None,
        jobs=jobs,
        outstanding=outstanding,
        failed=any(row["error"] for row in rows),
        inexact=True,
    )


# ---- elbencho

_FIRST = b"ISO date,label,path type,"
_MIB = 2**20
_STATED = {"bs": "block size", "iodepth": "IO depth", "direct": "direct IO", "size": "file size"}
"""fio's name of what a column states."""


def is_elbencho(raw: Content) -> bool:
    return raw[: len(_FIRST) + 3].removeprefix(b"\xef\xbb\xbf").startswith(_FIRST)


def elbencho_parts(raw: Content, path: str) -> Parts:
    """Return the runs of elbencho's csv.

    Raises
    ------
    ForeignError : a line with another number of fields, or no phase that reads or writes
    """
    lines = csv.reader(io.StringIO(raw[:].decode("utf-8-sig", "replace")))
    head, *_ = numbered = {tuple(line): lines.line_num for line in lines}
    phases = []  # elbencho appends: a line again is no repeat
    for line, number in numbered.items():
        if len(line) != len(head):
            said = f"{path}: line {number} has {len(line)} of {len(head)} fields"
            raise ForeignError(f"{said}: was it cut off?")
        if line[0] != head[0]:
            phases.append(dict(zip(head, line, strict=True)))
    jobs = [f"phase {n}" * (len(phases) > 1) for n in range(1, len(phases) + 1)]
    found = [part for phase, job in zip(phases, jobs, strict=True) if (part := _phase(phase, job))]
    if not found:
        raise ForeignError(f"{path}: no phase of it reads or writes")
    return found, phases[0].get("version", "")


def _phase(phase: Options, job: str) -> Part | None:
    """Return the run of a phase; none of one that handles entries alone."""
    kind = re.fullmatch(r"(read|write|rw)(?:mix(\d+))?", phase.get("operation", "").lower())
    if not kind or _number(phase, "IOPS [last]") != _number(phase, "IOPS [last]"):
        return None
    options = {own: phase[name].lower() for own, name in _STATED.items() if phase.get(name)}
    is_random = phase.get("random", "").lower() in ("1", "true")
    hosts, threads = (int(_number(phase, name) or 1) for name in ("hosts", "threads"))
    options |= {"rw": "rand" * is_random + kind[1], "numjobs": f"{threads}"}
    options |= {"rwmixread": kind[2]} if kind[2] else {}
    own = asked(options).factors
    factors = {"direct": 0} | {name: value for name, value in own.items() if value != ""}
    bs = factors.get("bs_bytes", nan)
    reads = _numbers(phase, "rwmix read ", bs)
    rows = [Row("read" if factors["rwmixread"] == 100 else "write", _numbers(phase, "", bs))]
    rows += [Row("read", reads)] if kind[2] and reads[0] == reads[0] else []
    jobs = hosts * threads
    return Part(
        job=job,
        factors=factors | {"numjobs": jobs},
        asked=_shown(options),
        rows=rows,
        hosts=tuple(f"host {n}" for n in range(1, hosts + 1)),
        jobs=jobs,
        outstanding=jobs * factors["iodepth"],
        inexact=True,
        label=phase.get("label", ""),
    )


def _numbers(phase: Options, of: str, bs: float) -> tuple[float, ...]:
    """Return `NUMBERS` of one direction; bandwidth by the size of I/Os where it is not printed."""
    iops = _number(phase, f"{of}IOPS [last]")
    printed, counted = _MIB * _number(phase, f"{of}MiB/s [last]"), iops * bs
    bw_bytes = counted if abs(counted - printed) <= _MIB else printed  # whole MiB are printed
    lat_ns = 1000 * _number(phase, f"{of}IO lat us [avg]")
    return iops, bw_bytes, lat_ns, _number(phase, "time ms [last]"), nan


def _number(phase: Options, name: str) -> float:
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
    begins = _BEGINS.match(raw) or any(form.search(raw) for form in _REFUSED)
    return bool(begins) or not is_fio(raw)


def is_summary(raw: Content) -> bool:
    """Return whether it is what dbench and kbench print in place of fio's results."""
    return _SUMMARY.search(raw[:4096]) is not None
