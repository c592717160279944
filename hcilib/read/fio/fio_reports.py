"""The reports of one file of fio that count, in one shape, by whichever of the two paths it had to be read.

What fio's JSON does not say in so many words is decided here: which reports are final, and with which options a job
ran.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations, pairwise
from math import nan
from pathlib import Path
from typing import Any

import msgspec

from hcilib.caveats import NONE, Caveat, Caveats, caveats
from hcilib.read.compressed import read_bytes
from hcilib.read.fio import fio_document, fio_fast
from hcilib.read.fio.fio_bins import parse_bins
from hcilib.read.fio.fio_document import FioOutputError, Number
from hcilib.read.fio.fio_fast import GROWTH, Direction, Entry, FioFile, Latency, Options, Report, Unusual

_PLANNED = {"w": "write", "t": "trim"}
_LATENCIES = ("slat_ns", "clat_ns", "lat_ns")
_JOB = ("error", "usr_cpu", "sys_cpu", "ctx", "majf", "minf", "job_start", "job_runtime", "total_err")
_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(us|ms|s|m|h|d|)")
_MS = {"us": 1e-3, "ms": 1.0, "": 1e3, "s": 1e3, "m": 6e4, "h": 3.6e6, "d": 8.64e7}
ENDED = 0.95
"""Share of the requested runtime from which on a report may be the last."""
MOST_NAMES = 1000
"""Of options in a job, of percentiles in a file: fio knows a few hundred of the one and writes twenty of the other."""
_MEASURES = ("io_bytes", "bw_bytes", "bw", "iops", "runtime", "total_ios", "short_ios", "drop_ios")
PerClient = list[tuple[str, int | None, Options]]
_DECODE = msgspec.json.Decoder(Options).decode


def read_reports(path: str | Path) -> FioFile:
    """The reports of a file, plain, .zst or .gz; FioOutputError if it holds no complete fio document."""
    try:
        raw = read_bytes(path)
    except ValueError as error:
        raise FioOutputError(str(error)) from None
    return parse(raw, path)


def parse(raw: bytes, path: str | Path, *, fast: bool = True) -> FioFile:
    """The reports in a file's bytes. Without `fast` the tolerant path is taken in any case."""
    try:
        if fast:
            return _clean(raw)
    except Unusual:
        pass
    document, noise, documents = fio_document.load(raw, path)
    try:
        entries = _entries(document)
    except UncertainReports as error:
        raise FioOutputError(f"{path}: {error}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        said = str(error) if len(str(error)) < 300 else f"{str(error)[:300]}..."  # which quotes the field, however long
        raise FioOutputError(f"{path}: a field of the fio document cannot be used: {said}") from None
    reported = any(document.reports())
    if not reported and (document.client_stats or document.jobs or not noise):
        raise FioOutputError(f"{path}: {_nothing_reported(document)}.")
    return FioFile(entries, noise, document.version, document.disk_util, False, _unfinished(entries, documents))


def _nothing_reported(document: fio_document.Document) -> str:
    if document.client_stats or document.jobs:
        return (
            f"only fio's sum over hosts ({fio_fast.SUMS!r}) is in this file and none of the hosts' own reports; "
            "which hosts "
            "it sums is not known. Take fio's whole output"
        )
    return "the fio document holds no report of any job, and nothing beside it says why. Repeat the run"


def _unfinished(entries: list[Entry], documents: int) -> Caveats:
    """Of several documents (`--status-interval`) the last is the result, unless fio was killed before it wrote that
    one.

    So it may be with one document, where a job was to run for its time and did not.
    """
    timed = [entry for entry in entries if documents > 1 or entry.options.get("time_based", "0") != "0"]
    if not timed:
        return NONE
    wanted_ms = max(_milliseconds(entry.options.get("runtime", "")) for entry in timed)
    ran_ms = max((d.runtime for entry in timed for _, d in entry.directions if d.runtime == d.runtime), default=0)
    if ran_ms < ENDED * wanted_ms:
        ran = f"{ran_ms / 1000:g} s of {wanted_ms / 1000:g} s"
        return caveats(Caveat("interim", f"an interim report, or of a run that was ended early: written after {ran}"))
    if documents > 1 and not wanted_ms:
        text = f"the last of {documents} reports of one run; nothing in the file says whether it had ended by then"
        return caveats(Caveat("interim", text))
    return NONE


def _milliseconds(duration: str) -> float:
    """fio's way to write a time: seconds, or with a unit; 0 for what is no time."""
    found = _DURATION.fullmatch(duration.strip().lower())
    return float(found[1]) * _MS[found[2]] if found else 0


def _clean(raw: bytes) -> FioFile:
    document, noise = fio_fast.decode(raw)
    try:
        reports, clones, directions = fio_fast.reports_of(document)
        options = options_of(document, reports)
    except (ValueError, RecursionError) as error:
        raise Unusual(str(error)) from None
    if document.client_stats is not None and any(clones):
        seen = Counter((report.hostname, report.port, report.jobname, report.groupid) for report in reports)
        for report, given in zip(reports, options, strict=True):
            if seen[report.hostname, report.port, report.jobname, report.groupid] != _owed(given):
                raise Unusual("more or fewer reports of a job than its options ask for")
    entries = list(map(Entry, reports, clones, directions, options))
    said = NONE if document.client_stats is not None else _unfinished(entries, 1)  # a client waits for its servers
    return FioFile(entries, noise, document.version, document.disk_util, True, said)


def _entries(document: fio_document.Document) -> list[Entry]:
    entries = []
    seen: Counter[tuple] = Counter()
    reports = final_reports(document)
    for report, options in zip(reports, options_of(document, reports), strict=True):
        directions = report.directions() or _planned(report, options)
        given = [(ddir, _direction(direction)) for ddir, direction in directions.items()]
        entries.append(Entry(_report(report), seen[report.key], given, options))
        seen[report.key] += 1
    return entries


def _planned(report: fio_document.Report, options: Options) -> dict[str, fio_document.Direction]:
    """The one row of a report without I/O: what it was to do (fio's default is read)."""
    if report.mixed and not report.read:
        return {"mixed": report.mixed}
    ddir = _PLANNED.get(options.get("rw", "read").removeprefix("rand")[:1], "read")
    return {ddir: getattr(report, ddir) or fio_document.Direction()}


def _report(given: fio_document.Report) -> Report:
    numbers: dict[str, Any] = {name: _number(getattr(given, name)) for name in _JOB}
    groupid = _number(given.groupid)
    return Report(jobname=given.jobname, groupid=groupid, hostname=given.hostname, port=given.port, **numbers)


def _direction(given: fio_document.Direction) -> Direction:
    """In bytes and ns, whatever the release wrote."""
    fields: dict[str, Any] = {name: _number(getattr(given, name)) for name in _MEASURES}
    if given.bw_bytes is None:
        fields["bw_bytes"] = 1024 * fields["bw"]  # before 3.2 only in KiB/s
    if given.legacy:
        fields["io_bytes"] *= 1024
    return Direction(**fields | {name: _latency(given, name) for name in _LATENCIES})


def _latency(direction: fio_document.Direction, name: str) -> Latency:
    """Statistics and percentiles in ns. 2.x pads its list of percentiles with 0.00, which is none."""
    found, scale = getattr(direction, name), 1
    if not found:
        found, scale = getattr(direction, name.removesuffix("_ns")), 1000
    if not found:
        return Latency(nan, nan, nan, nan, nan)
    if found.missing:
        return Latency(nan, nan, nan, nan, _number(found.N), {}, found.bins)
    low, high, mean, stddev = (scale * _number(value) for value in (found.min, found.max, found.mean, found.stddev))
    if len(found.percentile) > MOST_NAMES:
        raise ValueError(f"{name} with {len(found.percentile):,} percentiles, where fio writes at most twenty")
    percentiles = {short(q): scale * _number(value) for q, value in found.percentile.items() if float(q) > 0}
    return Latency(low, high, mean, stddev, _number(found.N), percentiles, found.bins)


def short(percentile: str) -> str:
    """99.900000 -> 99.9."""
    return percentile.rstrip("0").rstrip(".") if "." in percentile else percentile


def _number(value: Number) -> float:
    return nan if value is None else float(value)


# --- which reports are final ------------------------------------------------------------------------------------------
#
# With `--status-interval` in client mode fio 3.33 appends cumulative interim reports of every host to the same list.
# Nothing in the file says so, and a job's clones or a host that was listed twice repeat the same keys as well. Only
# interim reports can be a chain in which every counter grows and every extreme only moves outwards.


class UncertainReports(ValueError):
    """Interim and final reports that cannot be told apart."""


def final_reports(document: fio_document.Document) -> list[fio_document.Report]:
    """The reports of a document without "All clients" and without interim ones, in the file's order.

    fio writes "All clients" once, when as many reports came as there are hosts and jobs: what stands behind it is of a
    later round (or, where a host was refused, of the first). A file of one server has no such sum; there more reports
    of a job than it owes are the sign. With neither sign, reports that ran for much longer than others of their key are
    the later ones.

    Raises
    ------
    UncertainReports
        There are later rounds, and the reports of a job are no chain.
    """
    groups: dict[tuple, list[fio_document.Report]] = {}
    for report in document.reports():
        groups.setdefault(report.key, []).append(report)
    clients = document.client_stats or []
    sums = next((n for n, report in enumerate(clients) if report.jobname == fio_fast.SUMS), len(clients))
    first_round = Counter(report.key for report in clients[:sums])
    several = {report.key for report in clients[sums + 1 :] if report.jobname != fio_fast.SUMS}
    owed = {key: _owed(options_of(document, reports[:1])[0]) for key, reports in groups.items()}
    more = {key for key, reports in groups.items() if len(reports) != owed[key]}
    rounds = bool(several & more)  # of every host: a quick one may have sent all of its own before the sums
    one_server = bool(clients) and sums == len(clients)
    final = []
    for key, reports in groups.items():
        growth = 0 if rounds and key in more else 1 if one_server and key in more else GROWTH
        found = _last_round(reports, {owed[key], 1, first_round[key]} - {0}, growth)
        if not found and not growth and any(_continues(a, b) for a, b in combinations(reports, 2)):
            raise UncertainReports(
                f"{key[0]}, job {key[2]!r}: {len(reports)} reports, some of them interim ones (--status-interval), "
                "and which "
                "are final cannot be told. Run fio without --status-interval"
            )
        final += found or reports
    kept = set(map(id, final))
    return [report for report in document.reports() if id(report) in kept]


def _owed(options: Options) -> int:
    """How many reports a job owes: one of its group, or one a clone."""
    if options.get("group_reporting", "0") != "0":
        return 1
    numjobs = options.get("numjobs", "1")
    return max(int(numjobs), 1) if numjobs.isdecimal() and len(numjobs) < 10 else 1


def _last_round(reports: list[fio_document.Report], sizes: set[int], growth: float) -> list[fio_document.Report]:
    """The last of several rounds of so many reports each, where every place in them is a chain; empty if none fits."""
    for size in sorted(sizes, reverse=True):
        fits = len(reports) > size and len(reports) % size == 0
        if fits and all(_is_chain(reports[offset::size], growth) for offset in range(size)):
            return reports[-size:]
    return []


def _is_chain(reports: list[fio_document.Report], growth: float) -> bool:
    """Whether each can be the next one's past, and the last ran longer than the first by that factor (0: it need
    not)."""
    runtimes = [max((d.runtime or 0 for d in r.directions().values()), default=0) for r in reports]
    passed = runtimes[-1] >= growth * runtimes[0] and runtimes[-1] > 0 and reports[-1] != reports[0]
    return (passed or not growth) and all(_continues(a, b) for a, b in pairwise(reports))


def _continues(earlier: fio_document.Report, later: fio_document.Report) -> bool:
    """Whether one report can be the other's past."""
    before, after = earlier.directions(), later.directions()
    counters = all(_grows(earlier, later, name) for name in ("ctx", "majf", "minf"))
    return counters and all(d in after and _direction_continues(before[d], after[d]) for d in before)


def _direction_continues(earlier: fio_document.Direction, later: fio_document.Direction) -> bool:
    if not all(_grows(earlier, later, name) for name in ("runtime", "io_bytes", "total_ios")):
        return False
    for name in ("clat_ns", "lat_ns", "clat", "lat"):
        a, b = getattr(earlier, name), getattr(later, name)
        if a and b and not a.missing and not (_grows(a, b, "N") and _grows(a, b, "max") and _grows(b, a, "min")):
            return False
    return _histogram_continues(earlier, later)


def _grows(earlier, later, name: str) -> bool:
    a, b = getattr(earlier, name), getattr(later, name)
    return a is None or b is None or a <= b


def _histogram_continues(earlier: fio_document.Direction, later: fio_document.Direction) -> bool:
    """The decisive test where there are bins: no bucket ever shrinks."""
    for name in ("clat_ns", "lat_ns"):
        a, b = getattr(earlier, name), getattr(later, name)
        if a and b and len(a.bins) and len(b.bins):
            counts = dict(zip(*(column.tolist() for column in parse_bins(b.bins)), strict=True))
            if any(n > counts.get(bucket, 0) for bucket, n in zip(*parse_bins(a.bins), strict=True)):
                return False
    return True


# --- with which options a job ran -------------------------------------------------------------------------------------


def options_of(document, reports: Iterable) -> list[Options]:
    """Of each report the job's options over global ones, as text.

    Global options of several clients that differ are left out: whose they are is unknown.

    Parameters
    ----------
    document, reports : of fio_fast or of fio_document

    Raises
    ------
    ValueError : they are not an object of options
    """
    shared = _shared(bytes(document.global_options), document.client_stats is not None)
    if not shared:
        return [_own(bytes(report.options)) for report in reports]
    return [_shared_with(report, shared) | _own(bytes(report.options)) for report in reports]


def _shared_with(report, shared: Options | PerClient) -> Options:
    if not isinstance(shared, list):
        return shared
    mine = [o for host, port, o in shared if host == report.hostname and port in (None, report.port)]
    return mine[-1] if mine else {}


@lru_cache(maxsize=4096)
def _own(raw: bytes) -> Options:
    """Options of one job as fio took them: the last of a repeated one counts, but file names add up."""
    if raw.count(b'"filename"') < 2 and b"\\" not in raw:
        try:
            return _bounded(_DECODE(raw))
        except msgspec.DecodeError:
            pass  # a value that is no text, a control character in one
    return _as_text(json.loads(raw, object_pairs_hook=_last_wins, strict=False) or {})


@lru_cache(maxsize=256)
def _shared(raw: bytes, of_clients: bool) -> Options | PerClient:
    """One table, or from fio 3.39 one per client. Before that fio writes all clients' keys into one object."""
    given = json.loads(raw, object_pairs_hook=_agreed if of_clients else _last_wins, strict=False) or {}
    return [_placed(_as_text(one)) for one in given] if isinstance(given, list) else _as_text(given)


def _placed(options: Options) -> tuple[str, int | None, Options]:
    host, port = options.pop("hostname", ""), options.pop("port", None)
    return host, None if port is None else int(port), options


def _as_text(options: Any) -> Options:
    if not isinstance(options, dict):
        raise ValueError(f"options are {json.dumps(options)[:60]}, expected an object of names and values")
    return _bounded({name: str(value) for name, value in options.items()})


def _bounded(options: Options) -> Options:
    if len(options) > MOST_NAMES:
        raise ValueError(f"a job with {len(options):,} options, where fio knows a few hundred")
    return options


def _last_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    options = dict(pairs)
    if "filename" in options:
        options["filename"] = ":".join(dict.fromkeys(str(v) for k, v in pairs if k == "filename"))
    return options


def _agreed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, set] = {}
    for name, value in pairs:
        values.setdefault(name, set()).add(json.dumps(value))
    return {name: value for name, value in pairs if len(values[name]) == 1}
