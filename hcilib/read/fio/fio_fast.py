"""Clean output of fio 3.2 and later, decoded in one go into typed structs: the common case, at the parser's speed.

Everything is a required float here, so whatever is not as such a fio writes it (another version, a patched build, nan,
several documents, text behind the document) does not decode and is `Unusual`: hcilib.read.fio.fio_document reads it
then.

Every report has read, write and trim, most of them without I/O and then of the same text in every report of a document.
A direction that is likely without stays text, and is decoded where that text is a new one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import nan
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

LOCAL_HOST, LOCAL_PORT = "localhost", 0
"""What stands for hostname and port where fio ran the job itself (`jobs`, not `client_stats`): no server, no port."""
SUMS = "All clients"
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
"""What fio counts or times is never below 0: damage, or somebody's edit, where it is."""
GROWTH = 1.05
"""An interim report ran for less than its successor by this factor (hcilib.read.fio.fio_reports)."""
_RW = b'"rw" : "'
_IDLE: dict[str, Raw] = {}
"""Direction -> the last text of it that said that nothing was done."""


class Unusual(Exception):
    """Not clean output: to be read by the tolerant path."""


class Latency(msgspec.Struct, gc=False):
    """slat, clat or lat of one direction, in ns."""

    min: Amount
    max: Amount
    mean: Amount
    stddev: Amount
    N: Amount
    percentile: dict[str, Amount] = {}
    bins: Raw = Raw(b"")


class Direction(msgspec.Struct, gc=False):
    """`read`, `write`, `trim` or `mixed` of one report."""

    io_bytes: Amount
    bw_bytes: Amount
    bw: Amount
    iops: Amount
    runtime: Amount
    total_ios: Amount
    short_ios: Amount
    drop_ios: Amount
    slat_ns: Latency
    clat_ns: Latency
    lat_ns: Latency

    @property
    def any_io(self) -> bool:
        return bool(self.io_bytes or self.total_ios or self.iops or self.bw)


Typed = Direction | None
R = TypeVar("R", Direction | None, Raw)
"""As what `read` is decoded, W: as what `write` is."""
W = TypeVar("W", Direction | None, Raw)


class Report(msgspec.Struct, Generic[R, W], gc=False, rename={"options": "job options"}):
    """One entry of `jobs` or `client_stats`: a job, or a group of jobs, on one host."""

    jobname: str
    groupid: float
    options: Raw = Raw(b"{}")
    read: R = None  # type: ignore[assignment]  # a key that is not there
    write: W = None  # type: ignore[assignment]
    trim: Raw = Raw(b"null")
    mixed: UnsetType = UNSET
    error: float = nan
    usr_cpu: Amount = nan
    sys_cpu: Amount = nan
    ctx: Amount = nan
    majf: Amount = nan
    minf: Amount = nan
    job_start: Amount = nan
    job_runtime: Amount = nan
    total_err: Amount = nan
    hostname: str = LOCAL_HOST
    port: Port = LOCAL_PORT


class Document(msgspec.Struct, Generic[R, W], rename={"version": "fio version", "global_options": "global options"}):
    """One JSON document of fio."""

    version: str
    global_options: Raw = Raw(b"{}")
    jobs: list[Report[R, W]] | None = None
    client_stats: list[Report[R, W]] | None = None
    disk_util: list[dict[str, Any]] = []


Options = dict[str, str]
Busy = list[tuple[str, Direction]]


class Entry(NamedTuple):
    """A final report, which clone of its key it is, its directions (with I/O, or the planned one) and its options."""

    report: Report
    clone: int
    directions: Busy
    options: Options


class FioFile(NamedTuple):
    """One file; `clean`: it took the fast path; `caveats`: what its reader has to know; `bins`: the histograms of its
    groups (`Bins` of hcilib.read.fio.fio_reports), where the latencies of a large document have none."""

    entries: list[Entry]
    noise: str
    version: str
    disk_util: list[dict[str, Any]]
    clean: bool
    caveats: str = ""
    bins: Any = None


Decode = Callable[[bytes | memoryview], Any]
decode_typed: Decode = msgspec.json.Decoder(Document[Typed, Typed]).decode
_DECODE_FOR: dict[bytes, Decode] = {
    b"read": msgspec.json.Decoder(Document[Typed, Raw]).decode,
    b"write": msgspec.json.Decoder(Document[Raw, Typed]).decode,
}
_DECODE_REPORTS: Decode = msgspec.json.Decoder(list[Report[Typed, Typed]]).decode
_DECODE_REPORTS_FOR: dict[bytes, Decode] = {
    b"read": msgspec.json.Decoder(list[Report[Typed, Raw]]).decode,
    b"write": msgspec.json.Decoder(list[Report[Raw, Typed]]).decode,
}
_DECODE_DIRECTION = msgspec.json.Decoder(Typed).decode


def decode(raw: bytes) -> tuple[Document, str]:
    """The document of clean output and the text before it (what fio's client says of the hosts).

    Raises
    ------
    Unusual
    """
    start = 0 if raw.startswith(b"{") else raw.find(b"\n{\n") + 1
    if not start and not raw.startswith(b"{"):
        raise Unusual("no document starts on a line of its own")
    before = raw[:start]
    if b'"fio version"' in before or before.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise Unusual("another document or a byte order mark before it")
    try:
        document = _decoder(raw, _DECODE_FOR, decode_typed)(memoryview(raw)[start:] if start else raw)
        noise = before.decode("utf-8", "replace").strip()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unusual(str(error)) from None
    if document.jobs is None and document.client_stats is None:
        raise Unusual("no reports")
    return document, noise


def decode_reports(raw: bytes) -> list[Report]:
    """A list of reports of clean output; Unusual as of `decode`."""
    try:
        return _decoder(raw, _DECODE_REPORTS_FOR, _DECODE_REPORTS)(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unusual(str(error)) from None


def _decoder(raw: bytes, by_rw: dict[bytes, Decode], of_any: Decode) -> Decode:
    """By `rw` of the first job: a guess at what the others do, which costs time where it is wrong, nothing else."""
    start = raw.find(_RW) + len(_RW)
    return by_rw.get(raw[start : raw.find(b'"', start)].removeprefix(b"rand"), of_any)


def reports_of(document: Document) -> tuple[list[Report], list[int], list[Busy]]:
    """Every final report; of each, which clone of its key it is, and its directions with I/O.

    Raises
    ------
    Unusual
        Reports of one key that may be snapshots of each other, a report without any I/O or none at all, or a direction
        as no fio writes it.
    """
    clients = document.client_stats or []
    if any(report.jobname == SUMS for report in clients[:-1]):
        raise Unusual("reports behind the sums of all clients")
    reports = [*(document.jobs or ()), *(report for report in clients if report.jobname != SUMS)]
    if not reports:
        raise Unusual("no report of a host")
    directions = busy(reports)
    if not all(directions):
        raise Unusual("a report without I/O")
    return reports, clones_of(reports, directions), directions


def busy(reports: list[Report]) -> list[Busy]:
    """The directions with I/O of each report; an idle one's text is that of a report, or of a file, before."""
    of_all = []
    for report in reports:
        found = []
        for ddir, given in (("read", report.read), ("write", report.write), ("trim", report.trim)):
            if not isinstance(given, Raw):
                direction = given
            elif given == _IDLE.get(ddir):
                continue
            else:
                direction = _decoded(given)
            if direction is not None and direction.any_io:
                found.append((ddir, direction))
            elif isinstance(given, Raw):
                _IDLE[ddir] = given.copy()  # a copy: the text of the whole file would stay with it
        of_all.append(found)
    return of_all


def _decoded(direction: Raw) -> Direction | None:
    try:
        return _DECODE_DIRECTION(direction)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unusual(str(error)) from None


def key_of(report: Report) -> tuple:
    """What the clones of a job have in common."""
    return report.hostname, report.port, report.jobname, report.groupid


def clones_of(reports: list[Report], directions: list[Busy]) -> list[int]:
    """Which of the reports of its key each one is; Unusual where they may be snapshots of each other."""
    keys = list(map(key_of, reports))
    if len(set(keys)) == len(keys):
        return [0] * len(keys)
    clones = []
    seen: defaultdict[tuple, list[float]] = defaultdict(list)
    for key, own in zip(keys, directions, strict=True):
        clones.append(len(seen[key]))
        seen[key].append(max(direction.runtime for _, direction in own))
    if any(len(ran) > 1 and max(ran) >= GROWTH * min(ran) for ran in seen.values()):
        raise Unusual("reports of one job that ran for different times")
    return clones
