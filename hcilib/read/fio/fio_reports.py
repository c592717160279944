"""The reports of one file of fio in one shape, by whichever of the two paths it had to be read."""

from __future__ import annotations

from collections import Counter
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

from hcilib.read.compressed import read_bytes
from hcilib.read.fio import fio_document, fio_fast
from hcilib.read.fio.fio_document import FioOutputError, Number
from hcilib.read.fio.fio_fast import Direction, Latency, Report, Unusual
from hcilib.read.fio.fio_options import Options, options_of
from hcilib.read.fio.fio_snapshots import final_reports

__all__ = ["Entry", "FioFile", "FioOutputError", "parse", "read_reports"]

_PLANNED = {"w": "write", "t": "trim"}
_LATENCIES = ("slat_ns", "clat_ns", "lat_ns")
_JOB = ("error", "usr_cpu", "sys_cpu", "ctx", "majf", "minf", "job_start", "job_runtime", "total_err")
_MEASURES = ("io_bytes", "bw_bytes", "bw", "iops", "runtime", "total_ios", "short_ios", "drop_ios")


class Entry(NamedTuple):
    """A final report, which clone of its key it is, its directions (with I/O, or the planned one) and its options."""

    report: Report
    clone: int
    directions: list[tuple[str, Direction]]
    options: Options


class FioFile(NamedTuple):
    """One file; `clean`: it took the fast path."""

    entries: list[Entry]
    noise: str
    version: str
    disk_util: list[dict[str, Any]]
    clean: bool


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
    document, noise = fio_document.load(raw, path)
    try:
        return FioFile(_entries(document), noise, document.version, document.disk_util, False)
    except (ValueError, OverflowError, RecursionError) as error:
        said = str(error) if len(str(error)) < 300 else f"{str(error)[:300]}..."  # which quotes the field, however long
        raise FioOutputError(f"{path}: a field of the fio document cannot be used: {said}") from None


def _clean(raw: bytes) -> FioFile:
    document, noise = fio_fast.decode(raw)
    try:
        reports, clones, directions = fio_fast.reports_of(document)
        options = options_of(document, reports)
    except (ValueError, RecursionError) as error:
        raise Unusual(str(error)) from None
    entries = list(map(Entry, reports, clones, directions, options))
    return FioFile(entries, noise, document.version, document.disk_util, True)


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
    percentiles = {short(q): scale * _number(value) for q, value in found.percentile.items() if float(q) > 0}
    return Latency(low, high, mean, stddev, _number(found.N), percentiles, found.bins)


def short(percentile: str) -> str:
    """99.900000 -> 99.9."""
    return percentile.rstrip("0").rstrip(".") if "." in percentile else percentile


def _number(value: Number) -> float:
    return nan if value is None else float(value)
