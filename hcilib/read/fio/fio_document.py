"""From fio's output file to one typed document: text around the JSON, several documents, every version's shape.

The tolerant path: what hcilib.read.fio.fio_fast does not take as clean output comes here. A scan with the standard
library finds the document in the text around it; every field may be missing or of another version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from hcilib.model.compressed import read_bytes
from hcilib.read.fio.fio_fast import LOCAL_HOST, LOCAL_PORT, SUMS, Port, key_of

Number = int | float | None
_DOCUMENT = re.compile(r'(?:^|(?<=\r))\{(?=\s*")|\{(?=\s*"fio version")', re.MULTILINE)
_RESULTS = re.compile(r'"(?:jobs|client_stats)"')
_FIO_SAYS = re.compile(r"(?:<[\w.:-]+> )?fio: ")
_FIO = re.compile(r'\{\s*"fio version"')
_NOT_A_NUMBER = re.compile(r"(?<=[:,\[])(\s*)-?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)


class FioOutputError(ValueError):
    """A file that holds no complete fio result; the sentence names the file and, where there is one, the place."""


class WrongField(ValueError):
    """A field that is no number where one is due."""


class Latency(msgspec.Struct, gc=False):
    """One of slat, clat, lat of one direction."""

    min: Number = None
    max: Number = None
    mean: Number = None
    stddev: Number = None
    N: Number = None
    percentile: dict[str, Number] = {}
    bins: msgspec.Raw = msgspec.Raw(b"")

    @property
    def missing(self) -> bool:
        """fio prints zeros where it measured nothing (gtod_reduce, slat of a synchronous engine)."""
        return self.N == 0 if self.N is not None else not (self.max or self.mean)


class Direction(msgspec.Struct):
    """`read`, `write`, `trim` or `mixed` of one report; 2.x has `clat` in microseconds, 3.x `clat_ns`."""

    io_bytes: Number = None
    io_kbytes: Number = None
    bw: Number = None
    bw_bytes: Number = None
    iops: Number = None
    runtime: Number = None
    total_ios: Number = None
    short_ios: Number = None
    drop_ios: Number = None
    slat_ns: Latency | None = None
    clat_ns: Latency | None = None
    lat_ns: Latency | None = None
    slat: Latency | None = None
    clat: Latency | None = None
    lat: Latency | None = None

    @property
    def legacy(self) -> bool:
        """fio 2.x: latencies in microseconds, io_bytes in KiB. Told by the keys: builds lie about versions."""
        return self.io_kbytes is None and self.bw_bytes is None and not (self.clat_ns or self.lat_ns or self.slat_ns)

    @property
    def any_io(self) -> bool:
        return any(value for value in (self.io_bytes, self.total_ios, self.iops, self.bw))


class Report(msgspec.Struct, rename={"options": "job options"}):
    """One entry of `jobs` or `client_stats`: a job, or a group of jobs, on one host."""

    jobname: str = ""
    groupid: Number = None
    error: Number = None
    options: msgspec.Raw = msgspec.Raw(b"{}")
    read: Direction | None = None
    write: Direction | None = None
    trim: Direction | None = None
    mixed: Direction | None = None
    usr_cpu: Number = None
    sys_cpu: Number = None
    ctx: Number = None
    majf: Number = None
    minf: Number = None
    job_start: Number = None
    job_runtime: Number = None
    total_err: Number = None
    hostname: str = LOCAL_HOST
    port: Port = LOCAL_PORT

    key = property(key_of)

    def directions(self) -> dict[str, Direction]:
        """The directions with I/O. `mixed` only where fio wrote nothing else: with `both` it repeats the others."""
        own = {d: getattr(self, d) for d in ("read", "write", "trim") if getattr(self, d)}
        given = own or ({"mixed": self.mixed} if self.mixed else {})
        return {name: direction for name, direction in given.items() if direction.any_io}


class Document(msgspec.Struct, rename={"version": "fio version", "global_options": "global options"}):
    """One JSON document of fio."""

    version: str = ""
    global_options: msgspec.Raw = msgspec.Raw(b"{}")
    jobs: list[Report] | None = None
    client_stats: list[Report] | None = None
    disk_util: list[dict[str, Any]] = []

    def reports(self) -> Iterator[Report]:
        """Every report but fio's own sums over clients, which are wrong when a host is missing (TRAPS section 2)."""
        yield from self.jobs or ()
        yield from (r for r in self.client_stats or () if r.jobname != SUMS)


_RATES = ("io_bytes", "io_kbytes", "bw", "bw_bytes", "runtime", "total_ios")
_OF_LATENCY = ("min", "max", "mean", "N")
_AMOUNTS = (*_RATES, "iops", "short_ios", "drop_ios")
_OF_JOB = ("usr_cpu", "sys_cpu", "ctx", "majf", "minf", "job_start", "job_runtime", "total_err")
_LATENCIES = ("slat_ns", "clat_ns", "lat_ns", "slat", "clat", "lat")


def raw_of(path: str | Path) -> bytes:
    """The bytes of a file, plain, .zst or .gz; FioOutputError where these cannot be had."""
    try:
        return read_bytes(path)
    except ValueError as error:
        raise FioOutputError(str(error)) from None


def load(raw: bytes, path: str | Path) -> tuple[Document, str, int]:
    """The last document of a file's bytes, the text around the documents, and how many there are.

    Raises
    ------
    FioOutputError
        No fio document, a document that is cut off, or a field that is not of its type.
    """
    try:
        document = _decode(raw)
        has_reports = document.jobs is not None or document.client_stats is not None
        if has_reports and (document.version or any(report.jobname for report in document.reports())):
            _check(_text(raw))
            return document, "", 1
    except WrongField as error:
        raise FioOutputError(f"{path}: the fio document has a wrong field: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # text around it, several documents, nan: the scan below finds out which
    return _from_text(_text(raw), path)


def _from_text(text: str, path: str | Path) -> tuple[Document, str, int]:
    documents, broken = _scan(text, path)
    if broken is not None and _NOT_A_NUMBER.search(text):
        text = _NOT_A_NUMBER.sub(r"\1NaN", text)  # C's printf of 0/0, as Python reads it
        documents, broken = _scan(text, path)
    if broken is not None:
        raise FioOutputError(_cut_off(path, text, broken, len(documents)))
    if not documents:
        raise FioOutputError(_no_document(path, text))
    start, end = documents[-1]
    try:
        return _decoded(text[start:end]), _outside(text, documents), len(documents)
    except (msgspec.DecodeError, WrongField) as error:
        line = text.count("\n", 0, start) + 1
        raise FioOutputError(f"{path}: the fio document at line {line} has a wrong field: {error}") from None


def _scan(text: str, path: str | Path) -> tuple[list[tuple[int, int]], json.JSONDecodeError | None]:
    """Spans of the complete fio documents, and the error of a last one that does not decode."""
    # only where documents end is asked; Python makes no integer of more than 4,300 digits
    decoder, spans, broken = json.JSONDecoder(strict=False, parse_int=float), [], None
    position = 0 if _RESULTS.search(text) or _FIO.search(text) else len(text)  # long garbage is not worth a try a line
    while candidate := _DOCUMENT.search(text, position):
        start = candidate.start()
        try:
            value, position = decoder.raw_decode(text, start)
        except (json.JSONDecodeError, RecursionError) as error:
            position = start + 1
            if _FIO.match(text, start) and isinstance(error, json.JSONDecodeError):
                broken = error
            continue
        if isinstance(value, dict) and _is_result(value):
            spans.append((start, position))
            broken = None
    return spans, broken


def _is_result(value: dict[str, Any]) -> bool:
    """An object with a list of jobs may be of any program; fio's has a version, or at least reports of named jobs."""
    reports = value.get("client_stats", value.get("jobs", ""))
    if "fio version" in value:
        return reports != ""
    return isinstance(reports, list) and any(isinstance(one, dict) and "jobname" in one for one in reports)


_decode = msgspec.json.Decoder(Document).decode


def _decoded(text: str) -> Document:
    """Also of what msgspec does not take: control characters inside strings are escaped, and what is no number becomes
    null where none is due.

    Raises
    ------
    msgspec.DecodeError, WrongField
    """
    _check(text)
    try:
        return _decode(text.encode())
    except msgspec.DecodeError as error:
        try:
            finite = lambda number: value if isfinite(value := float(number)) else None  # noqa: E731
            plain = json.loads(text, strict=False, parse_constant=lambda _: None, parse_float=finite)
            return _decode(json.dumps(plain).encode())
        except (msgspec.DecodeError, RecursionError):
            raise
        except ValueError:  # Python makes no integer of more than 4,300 digits
            raise error from None


def _check(text: str) -> None:
    """WrongField where a field that is read is no number where one is due."""
    try:
        document = json.loads(text, strict=False, parse_int=float)
    except (ValueError, RecursionError):
        return  # no JSON: said where it is decoded
    for group in ("jobs", "client_stats"):
        reports = document.get(group)
        for n, report in enumerate(reports if isinstance(reports, list) else ()):
            if isinstance(report, dict):
                _check_report(f"$.{group}[{n}]", report)


def _check_report(where: str, report: dict[str, Any]) -> None:
    who = f"job {report.get('jobname')!r}" + (f" on {host}" if (host := report.get("hostname")) else "")
    _check_amounts(who, where, {name: report.get(name) for name in _OF_JOB})
    for ddir in ("read", "write", "trim", "mixed"):
        if isinstance(direction := report.get(ddir), dict):
            due = _due(direction)
            amounts = {name: direction.get(name) for name in _AMOUNTS}
            amounts |= {f"{kind}.stddev": latency.get("stddev") for kind, latency in _latencies(direction).items()}
            _check_amounts(who, f"{where}.{ddir}", amounts | due)
            _check_numbers(who, f"{where}.{ddir}", direction, due)


def _due(direction: dict[str, Any]) -> dict[str, Any]:
    """What is a number in a direction with I/O: rates, and what was measured of each latency."""
    due = {name: direction[name] for name in _RATES if name in direction} | {"iops": direction.get("iops")}
    for kind, latency in _latencies(direction).items():
        percentiles = latency.get("percentile")
        due |= {f"{kind}.{name}": latency[name] for name in _OF_LATENCY if name in latency}
        due |= {f"{kind}.{q}": ns for q, ns in (percentiles if isinstance(percentiles, dict) else {}).items()}
    return due


def _latencies(direction: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Latencies that were measured."""
    own = {kind: direction.get(kind) for kind in _LATENCIES}
    return {kind: found for kind, found in own.items() if isinstance(found, dict) and found.get("N") != 0}


def _check_amounts(who: str, where: str, amounts: dict[str, Any]) -> None:
    """What fio counts or times is never below 0, with I/O or without."""
    for name, value in amounts.items():
        if isinstance(value, (int, float)) and isfinite(value) and value < 0:
            raise WrongField(f"{who}: {where}.{name} is {value:g}, below 0. Copy the file again, or repeat the run")


def _check_numbers(who: str, where: str, direction: dict[str, Any], due: dict[str, Any]) -> None:
    """fio prints nan in a direction without I/O, and in deviations; elsewhere it stands for a number that is lost."""
    counts = [direction[name] for name in ("io_bytes", "io_kbytes", "total_ios") if name in direction]
    if not counts or not any(counts):
        return
    for name, value in due.items():
        if value is None or (isinstance(value, float) and not isfinite(value)):
            raise WrongField(f"{who}: {where}.{name} is {value}, expected a number. Repeat the run")


def _text(raw: bytes) -> str:
    """Text of the file; PowerShell's `>` writes UTF-16 with a byte order mark."""
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return raw.decode(encoding, errors="replace")


def _outside(text: str, spans: list[tuple[int, int]]) -> str:
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    pieces = (text[a:b].strip() for a, b in zip(edges[::2], edges[1::2], strict=True))
    return "\n".join(piece for piece in pieces if piece)


def _cut_off(path, text: str, error: json.JSONDecodeError, complete: int) -> str:
    ending = "the file ends" if error.pos >= len(text.rstrip()) else f"{error.msg}, column {error.colno}"
    earlier = f" {complete} complete interim document(s) stand before it, but no final one." if complete else ""
    return f"{path}: the fio document is broken off at line {error.lineno} ({ending}).{earlier} Repeat the run."


def _no_document(path, text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if not first:
        return (
            f"{path}: no fio JSON document, it is empty: fio was ended before it wrote, or the disk was full. "
            "Repeat the run."
        )
    said = f"{path}: no fio JSON document in this file"
    if first.startswith(("{", "[")):
        return f"{said}. It holds no `jobs` or `client_stats` with reports of fio's. Is it another program's?"
    own = f"; it begins with {first[:120]!r}" if _FIO_SAYS.match(first) else ""  # of no other file any text is shown
    return f"{said}{own}. Run fio with --output-format=json+."


_START = re.compile(r"^\{$", re.MULTILINE)


def merge_hosts(outputs: Mapping[tuple[str, int], Path]) -> str:
    """One document in the shape of `fio --client`: text of the hosts first, then their jobs under ``client_stats``.

    Parameters
    ----------
    outputs
        (hostname, port) -> what a local fio wrote there, with ``--output-format=json+``. A host that left no complete
        document has no entries; what it wrote instead stands in the text, behind its name.

    Returns
    -------
    str
        ``hosts`` keeps of every host what the common document has only once: its release and its time.
    """
    head: dict[str, Any] = {}
    noise: list[str] = []
    jobs, disks, hosts = [], [], []
    for (hostname, port), path in outputs.items():
        place = {"hostname": hostname, "port": port}
        document, text = split(path)
        noise += [f"<{hostname}> {line}" for line in text.splitlines() if line.strip()]
        head = head or {key: document[key] for key in ("fio version", "timestamp", "time") if key in document}
        jobs += [job | place for job in document.pop("jobs", [])]
        disks += [disk | place for disk in document.pop("disk_util", [])]
        hosts += [place | document] if document else []
    merged = {**head, "global options": {}, "client_stats": jobs, "disk_util": disks, "hosts": hosts}
    return "\n".join([*noise, json.dumps(merged, indent=2), ""])


def split(path: Path) -> tuple[dict, str]:
    """The last complete document of a local fio's output, ``{}`` where there is none, and the text around it.

    Raises
    ------
    FioOutputError
        The document is not that of a local run (it has no ``jobs``), or it is no file or one of more than 256 MiB.
    """
    text = raw_of(path).decode("utf-8", errors="replace")
    for start in reversed([match.start() for match in _START.finditer(text)]):
        try:
            document, end = json.JSONDecoder(strict=False).raw_decode(text, start)
        except (ValueError, RecursionError):
            continue  # cut off by a signal: an earlier one may be whole
        if "jobs" not in document:
            raise FioOutputError(
                f"{path}: a document without `jobs`: expected the output of a local fio, not of a client"
            )
        return document, text[:start] + text[end:]
    return {}, text
