"""One file of fio's JSON, of any size and version from 3.0 on, as typed reports: the final ones.

msgspec decodes a document where it lies. A direction stays text until it is known not to be idle,
and histograms stay text until someone asks for them. A large plain file is mapped, a large packed
one is unpacked to a temporary file first. Text around the JSON, several documents, nan and interim
reports are dealt with in one slower way.
"""

from __future__ import annotations

import json
import mmap
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from math import isfinite, nan
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Raw

from hcilib.model.compressed import LARGEST, TooLargeError, opened, pieces, read_bytes
from hcilib.model.fio_buckets import MIDPOINTS

LOCAL_HOST, LOCAL_PORT = "localhost", 0
"""What stands for hostname and port where fio ran the job itself (`jobs`, not `client_stats`)."""
SUMS = "All clients"
DDIRS = ("read", "write", "trim")
LATENCIES = ("slat_ns", "clat_ns", "lat_ns")
GROWTH = 1.05
"""A later report of a job ran longer by this factor, where nothing else shows interim ones."""
ENDED = 0.95
"""Share of the requested runtime from which on a report may be the last."""
REMEDY = "Run fio with --output-format=json+; if it is another program's file, remove it."
MOST_BYTES = 2**33
BEYOND_NS = MIDPOINTS[-1]
"""What stands for everything in fio's last bucket."""
LAST_NS = MIDPOINTS[-2]
"""No I/O below is in the last bucket."""
RATE = 0.01
"""Share by which bytes, I/Os, rates and runtimes of one row may be off each other."""
LONGER, LONGER_S = 1.1, 1.0
"""No I/O takes longer than its run (with its ramp), by this factor and so many seconds."""
Amount = Annotated[float, msgspec.Meta(ge=0)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Options = dict[str, str]
Content = bytes | mmap.mmap
_NONE = Raw(b"")
_DOCUMENT = re.compile(r'(?:^|(?<=\r))\{(?=\s*")|\{(?=\s*"fio version")', re.MULTILINE)
_RESULTS = re.compile(r'"(?:jobs|client_stats|fio version)"')
_NO_NUMBER = re.compile(r'"[^"\\]*"\s*:\s*(?:-?(?:nan|inf(?:inity)?)|null)\b', re.IGNORECASE)
_STAMP = re.compile(
    r"^(?:\[pod/\S+\] |[\w.-]+ +\| |\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-][\d:]+)? "
    r"|[A-Z][a-z]{2} +\d+ [\d:]{8} (?:\S+ \S+\[\d+\]: )?)+",
    re.MULTILINE,
)
_COLOUR = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
"""What a container's log puts before each line."""
_FIO_SAYS = re.compile(r"(?:<[\w.:-]+> )?fio: .{0,120}")
_CONTROL = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x1f]")
_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(us|ms|s|m|h|d|)")
_MS = {"us": 1e-3, "ms": 1.0, "": 1e3, "s": 1e3, "m": 6e4, "h": 3.6e6, "d": 8.64e7}
_PLANNED = {"w": "write", "t": "trim"}


class FioOutputError(ValueError):
    """A file without a complete fio result; the sentence names file and field."""


class Latency(msgspec.Struct, gc=False, frozen=True):
    """slat, clat or lat of one direction, in ns."""

    min: Amount = nan
    max: Amount = nan
    mean: Amount = nan
    stddev: Amount = nan
    N: Amount = nan
    percentile: dict[float, Amount] = {}
    bins: Raw = _NONE


NOT_MEASURED = Latency()


class Direction(msgspec.Struct, gc=False):
    """`read`, `write`, `trim` or `mixed` of one report."""

    io_bytes: Amount = nan
    bw_bytes: Amount = nan
    bw: Amount = nan
    iops: Amount = nan
    runtime: Amount = nan
    total_ios: Amount = nan
    short_ios: Amount = nan
    drop_ios: Amount = nan
    slat_ns: Latency = NOT_MEASURED
    clat_ns: Latency = NOT_MEASURED
    lat_ns: Latency = NOT_MEASURED

    @property
    def any_io(self) -> bool:
        return self.io_bytes > 0 or self.total_ios > 0 or self.iops > 0


class Report(msgspec.Struct, gc=False, rename={"options": "job options"}):
    """One entry of `jobs` or `client_stats`: a job, or a group of jobs, on one host."""

    jobname: str
    groupid: int = 0
    error: float = nan
    options: Raw = Raw(b"{}")
    read: Raw = _NONE
    write: Raw = _NONE
    trim: Raw = _NONE
    mixed: Raw = _NONE
    sync: Raw = Raw(b"{}")
    iodepth_level: Raw = Raw(b"{}")
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

    def key(self) -> tuple:
        """What the clones of a job have in common."""
        return self.hostname, self.port, self.jobname, self.groupid


class Document(msgspec.Struct, rename={"version": "fio version", "options": "global options"}):
    """One JSON document of fio."""

    version: str = ""
    options: Raw = Raw(b"{}")
    jobs: list[Report] | None = None
    client_stats: list[Report] | None = None
    disk_util: Raw = Raw(b"[]")

    def reports(self) -> list[Report]:
        return [*(self.jobs or ()), *(self.client_stats or ())]

    def is_fio(self) -> bool:
        """A list of jobs may be of any program; fio's has a version, or reports of named jobs."""
        is_result = self.jobs is not None or self.client_stats is not None
        return is_result and bool(self.version or any(r.jobname for r in self.reports()))


class Entry(NamedTuple):
    """A final report, its number among its key's, its busy (or planned) directions and options."""

    report: Report
    clone: int
    directions: dict[str, Direction]
    options: Options


class FioFile(NamedTuple):
    """What one file holds; `caveats` are codes (hcilib.model.caveats)."""

    entries: list[Entry]
    noise: str
    version: str
    path: str
    disk_util: Raw = Raw(b"[]")
    caveats: str = ""


_IDLE: dict[str, Raw] = {}
"""Direction -> the last text of it that said that nothing was done."""
_growing = attrgetter("runtime", "io_bytes", "total_ios", "clat_ns.N", "clat_ns.max", "lat_ns.max")
_decode = msgspec.json.Decoder(Document).decode
_decode_direction = msgspec.json.Decoder(Direction | None).decode


def read(path: str | Path) -> FioFile:
    """Read the final reports of a file, plain, .zst or .gz.

    Raises
    ------
    FioOutputError : no complete document; a field that is wrong or missing; reports of which it
        is not known which are final
    """
    return parse(content(path), path)


def content(path: str | Path) -> Content:
    """Return the bytes of a file, unpacked, UTF-16 as UTF-8; of fio's JSON that is too large for that, mapped."""
    try:
        try:
            raw = read_bytes(path)
            is_utf16 = raw[:2] in (b"\xff\xfe", b"\xfe\xff")  # PowerShell's `>`
            return raw.decode("utf-16", "replace").encode() if is_utf16 else raw
        except TooLargeError:
            return _mapped(path)
    except ValueError as error:
        raise FioOutputError(str(error)) from None


def _mapped(path: str | Path) -> mmap.mmap:
    stream = pieces(path)
    head = next(stream, b"")
    if b'"fio version"' not in head[: 2**16]:
        raise ValueError(f"{path}: more than {LARGEST:,} bytes, and no JSON of fio's")
    with opened(path) as file, tempfile.TemporaryFile() as unpacked:
        if file.read(4) == head[:4]:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for piece in chain([head], stream):
            unpacked.write(piece)
            if unpacked.tell() > MOST_BYTES:
                raise ValueError(f"{path}: more than {MOST_BYTES:,} bytes, unpacked")
        unpacked.flush()
        return mmap.mmap(unpacked.fileno(), 0, access=mmap.ACCESS_READ)


def parse(raw: Content, path: str | Path) -> FioFile:
    """Return the final reports in a file's content; errors as of `read`."""
    document, busy, noise, documents = _document(raw, path)
    reports = document.reports()
    try:
        options = options_of(document, reports)
    except (ValueError, TypeError, RecursionError) as error:
        raise FioOutputError(f"{path}: options that cannot be read: {str(error)[:300]}") from None
    found = list(zip(reports, busy, options, strict=True))
    if document.client_stats is not None:
        found = _final(found, path)
    if not found and (reports or not noise):
        why = f"fio's sums over hosts ({SUMS!r}) alone" if reports else "no report of any job"
        raise FioOutputError(f"{path}: {why}. Take fio's whole output, or repeat the run.")
    entries = []
    seen: Counter[tuple] = Counter()
    for report, directions, own in found:
        for ddir, direction in directions.items():
            if wrong := _fault(direction, own.get("ramp_time", "")):
                raise FioOutputError(f"{path}: {_place(report, ddir)}.{wrong}. Repeat the run.")
        entries.append(Entry(report, seen[report.key()], directions or _planned(report, own), own))
        seen[report.key()] += 1
    is_waited_for = document.client_stats is not None and documents == 1
    caveats = "" if is_waited_for else _unfinished(entries, documents)
    return FioFile(entries, noise, document.version, str(path), document.disk_util, caveats)


# --- the document in its file ---------------------------------------------------------------------


Busy = list[dict[str, Direction]]
"""The directions with I/O of each report."""


def _document(raw: Content, path: str | Path) -> tuple[Document, Busy, str, int]:
    """Return the last document, the text around the documents, and how many there are."""
    why = "no document of fio's"
    start = raw.rfind(b"{", 0, max(raw.find(b'"fio version"'), 0))
    if start >= 0:
        try:
            document = _decode(memoryview(raw)[start:])
            if document.is_fio():
                before = raw[:start].decode("utf-8-sig", "replace").strip()
                return document, _busy(document), before, 1
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = str(error)[:300]
    if len(raw) > LARGEST:
        raise FioOutputError(f"{path}: {why}. Of so large a file one whole document is read.")
    return _search(raw[:].decode("utf-8-sig", "replace"), path)


def _search(text: str, path: str | Path) -> tuple[Document, Busy, str, int]:
    """As `_document`, by whatever JSON the text holds, with nan and control characters in it."""
    text = _CONTROL.sub(" ", _NO_NUMBER.sub('"0" : 0', unstamped(text)))  # nan is printf of 0/0
    last, ends, broken = None, [0], None
    for start, end, value in objects(text):
        if isinstance(value, Exception):
            broken = value if '"fio version"' in text[start : start + 60] else broken
            continue
        try:
            document = _decode(text[start:end].encode())
            found = document, _busy(document)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            if not isinstance(value.get("jobs", value.get("client_stats")), list):
                continue
            line = text.count("\n", 0, start) + 1
            said = f"{path}: document at line {line}: {str(error)[:300]}"
            raise FioOutputError(f"{said}. Copy the file again, or repeat the run.") from None
        if document.is_fio():
            last, broken, ends = found, None, [*ends, start, end]
    if broken:
        line = text.count("\n", 0, getattr(broken, "pos", 0)) + 1
        said = f"{path}: the fio document is broken off at line {line}. Repeat the run."
        raise FioOutputError(f"{said} Only interim documents are whole." if last else said)
    if not last:
        note = _FIO_SAYS.match(text)
        instead = "" if text.strip() else ", it is empty"
        instead = f"; it begins with {note[0]!r}" if note else instead
        raise FioOutputError(f"{path}: no fio JSON document in this file{instead}. {REMEDY}")
    around = (text[a:b].strip() for a, b in zip(ends[::2], [*ends[1::2], len(text)], strict=True))
    return *last, "\n".join(filter(None, around)), len(ends) // 2


def unstamped(text: str) -> str:
    """Return text without colours, and without the times and names that log collectors put before lines."""
    return _STAMP.sub("", _COLOUR.sub("", text))


def objects(text: str) -> Iterator[tuple[int, int, Any]]:
    """Yield where each JSON object begins and ends, and its value or what is wrong with it."""
    decoder = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
    position = 0 if _RESULTS.search(text) else len(text)  # long garbage is not worth a try a line
    while found := _DOCUMENT.search(text, position):
        start = found.start()
        try:
            value, position = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            value, position = error, start + 1
        yield start, position, value


# --- directions -----------------------------------------------------------------------------------


def _busy(document: Document) -> Busy:
    """Return of each report its directions with I/O.

    `mixed` counts where fio wrote nothing else: with `both` it repeats the others. Idle directions
    have one text in most files, which is decoded once.

    Raises
    ------
    msgspec.DecodeError : a field that is not of its type; the sentence names job, host and field
    """
    found = []
    for report in document.reports():
        busy = {}
        texts = [("read", report.read), ("write", report.write), ("trim", report.trim)]
        if len(report.mixed) and not any(len(text) for _, text in texts):
            texts = [("mixed", report.mixed)]
        for ddir, text in texts:
            if text == _IDLE.get(ddir) or not len(text):
                continue
            try:
                direction = _direction(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise msgspec.DecodeError(f"{_place(report, ddir)}: {error}") from None
            if direction.any_io:
                busy[ddir] = direction
            else:
                _IDLE[ddir] = text.copy()  # else the whole file would stay with it
        found.append(busy)
    return found


def _direction(text: Raw) -> Direction:
    """Decode one, with what was measured of its latencies."""
    direction = (_decode_direction(text) if len(text) else None) or Direction()
    if direction.bw_bytes != direction.bw_bytes:  # before 3.2 there is KiB/s alone
        if direction.lat_ns is direction.clat_ns is NOT_MEASURED and direction.iops > 0:
            raise msgspec.DecodeError("no latency in ns, as of fio 2. Run fio 3")
        direction.bw_bytes = 1024 * direction.bw
    for kind in LATENCIES:
        latency = getattr(direction, kind)
        if not 0 < latency.max < LAST_NS:
            setattr(direction, kind, measured(latency))
    return direction


def _place(report: Report, ddir: str) -> str:
    return f"job {report.jobname!r} on {report.hostname}: {ddir}"


def measured(latency: Latency) -> Latency:
    """Return what is known of a latency.

    fio prints zeros where it measured nothing (gtod_reduce, slat of a synchronous engine). Its last
    bucket has no upper end, so that percentiles in it are missing.
    """
    if latency.N == 0 or (latency.N != latency.N and latency.max == latency.mean == 0):
        return Latency(N=latency.N)
    if not latency.max >= LAST_NS:
        return latency
    shares = {q: ns if ns < BEYOND_NS else nan for q, ns in latency.percentile.items()}
    return msgspec.structs.replace(latency, percentile=shares)


def _planned(report: Report, options: Options) -> dict[str, Direction]:
    """Return the one row of a report without I/O: what it was to do (fio's default is read)."""
    ddir = _PLANNED.get(options.get("rw", "read").removeprefix("rand")[:1], "read")
    if len(report.mixed) and not len(report.read):
        ddir = "mixed"
    return {ddir: _direction(getattr(report, ddir))}


def _fault(direction: Direction, ramp_time: str) -> str:
    """Return which number of a busy direction is missing or contradicts the others, or nothing."""
    due = direction.io_bytes + direction.bw_bytes + direction.iops + direction.runtime
    longest_ns = 0.0
    for latency in (direction.slat_ns, direction.clat_ns, direction.lat_ns):
        if latency.N > 0:  # fio 2 has neither N nor total_ios
            due += direction.total_ios + latency.min + latency.max + latency.mean
        if latency.max > longest_ns:
            longest_ns = latency.max
    if not isfinite(due):  # so is one of them
        return f"{_missing(direction)} is missing, expected a number"
    if not direction.iops and not direction.runtime:
        return ""  # of a job that was killed fio counts I/Os and no time
    times = direction.runtime / 1000, longest_ns / 1e9, milliseconds(ramp_time) / 1000
    return disagreement(direction.iops, direction.total_ios, *times)


def _missing(direction: Direction) -> str:
    names = ["io_bytes", "bw_bytes", "iops", "runtime", "total_ios"]
    timed = [kind for kind in LATENCIES if getattr(direction, kind).N > 0]
    names += [f"{kind}.{name}" for kind in timed for name in ("min", "max", "mean")]
    return next(name for name in names if not isfinite(attrgetter(name)(direction)))


def disagreement(iops: float, ios: float, runtime_s: float, longest_s: float, ramp_s=0.0) -> str:
    """Return how the numbers of one direction contradict each other, whichever tool wrote them.

    Parameters
    ----------
    iops, ios : the rate, and how many I/Os were counted
    runtime_s, longest_s, ramp_s : the measured time, the longest latency, and the time before it

    Returns
    -------
    str : empty where rate x time is the count, and no I/O took longer than the run; NaN is unknown
    """
    if abs(ios - iops * runtime_s) > RATE * ios + runtime_s + 1:
        return f"iops is {iops:,.4g}, and {ios:,.0f} I/Os were counted in {runtime_s:g} s"
    if longest_s > LONGER * (runtime_s + ramp_s) + LONGER_S:
        return f"runtime is {runtime_s:g} s, and an I/O took {longest_s:,.4g} s"
    return ""


# --- which reports are final ----------------------------------------------------------------------

Found = tuple[Report, dict[str, Direction], Options]


def _final(found: list[Found], path: str | Path) -> list[Found]:
    """Return a client's reports without fio's sums and without interim reports.

    A client with --status-interval lists interim reports with the final ones, and nothing says so.
    Only they can be a chain in which every counter grows and every extreme moves outwards. fio
    writes its sums once as many reports came as it expects: what follows is of a later round.
    """
    names = [report.jobname for report, *_ in found]
    is_late = SUMS in names[:-1]
    growth = 1.0 if is_late or SUMS not in names else GROWTH
    groups: defaultdict[tuple, list[Found]] = defaultdict(list)
    for one in found:
        groups[one[0].key()].append(one)
    dropped: set[int] = set()
    for (host, _, job, _), own in groups.items():
        owed = 0 if job == SUMS else _owed(own[0][2]) if len(own) > 1 else 1
        if len(own) <= owed:
            continue
        is_chain = len(own) % max(owed, 1) == 0 and all(map(_continues, own, own[owed:]))
        if is_late and owed and not is_chain:
            raise FioOutputError(
                f"{path}: job {job!r} on {host}: it is not known which of {len(own)} reports are "
                "final. Run fio without --status-interval."
            )
        first, last = (max(map(_runtime, each), default=0) for each in (own[:owed], own[-owed:]))
        if not owed or (is_chain and last > first and last >= growth * first):
            dropped |= {id(report) for report, *_ in own[: len(own) - owed]}
    return [one for one in found if id(one[0]) not in dropped]


def _owed(options: Options) -> int:
    """Return how many reports a job owes: one of its group, or one a clone."""
    numjobs = options.get("numjobs", "1")
    if options.get("group_reporting", "0") != "0" or not numjobs.isdecimal():
        return 1
    return max(int(numjobs[:9]), 1)


def _runtime(found: Found) -> float:
    return max((d.runtime for d in found[1].values() if d.runtime == d.runtime), default=0.0)


def _continues(earlier: Found, later: Found) -> bool:
    """Whether one report can be the other's past: counters grow, extremes move outwards."""
    pairs = [(earlier[0].ctx, later[0].ctx)]
    for ddir, old in earlier[1].items():
        new = later[1].get(ddir, Direction(runtime=0))
        pairs += zip(_growing(old), _growing(new), strict=True)
        counts = _counts(new)
        pairs += [(n, counts.get(at, 0)) for at, n in _counts(old).items()]
    return not any(old > new for old, new in pairs)


def _counts(direction: Direction) -> dict[str, int]:
    return json.loads(bytes(direction.lat_ns.bins) or bytes(direction.clat_ns.bins) or b"{}")


def _unfinished(entries: list[Entry], documents: int) -> str:
    """Return the code of a fio that was killed before its last document, or may have been."""
    timed = [e for e in entries if documents > 1 or e.options.get("time_based", "0") != "0"]
    wanted_ms = max((milliseconds(e.options.get("runtime", "")) for e in timed), default=0)
    ran_ms = max((d.runtime for e in timed for d in e.directions.values()), default=0)
    is_last = bool(timed) and documents > 1 and not wanted_ms
    return "interim" if is_last or ran_ms < ENDED * wanted_ms else ""


@lru_cache(maxsize=1024)
def milliseconds(duration: str) -> float:
    """Return a time as fio writes it, seconds or with a unit; 0 for anything else."""
    found = _DURATION.fullmatch(duration.strip().lower())
    return float(found[1]) * _MS[found[2]] if found else 0


# --- with which options a job ran -----------------------------------------------------------------


def options_of(document: Document, reports: Iterable[Report]) -> list[Options]:
    """Return of each report the job's options over global ones, as text.

    Global options of several clients that differ are left out: whose they are is unknown.
    """
    shared = _shared(bytes(document.options), document.client_stats is not None)
    own = [_own(bytes(report.options)) for report in reports]
    if isinstance(shared, dict):
        return [shared | one for one in own] if shared else own
    of_client = {(one.pop("hostname", ""), one.pop("port", "")): one for one in map(dict, shared)}
    places = [(report.hostname, str(report.port)) for report in reports]
    return [of_client.get(place, {}) | one for place, one in zip(places, own, strict=True)]


@lru_cache(maxsize=4096)
def _own(raw: bytes) -> Options:
    """Return options of one job: the last of a repeated one counts, but file names add up."""
    return dict(json.loads(raw, object_pairs_hook=_last, strict=False) or {})


@lru_cache(maxsize=256)
def _shared(raw: bytes, of_clients: bool) -> Options | list[Options]:
    """Return one table, or from 3.39 on one a client; before, all clients' are in one object."""
    hook = _agreed if of_clients and not raw.lstrip().startswith(b"[") else _last
    return json.loads(raw, object_pairs_hook=hook, strict=False) or {}


def _last(pairs: list[tuple[str, Any]]) -> Options:
    files = dict.fromkeys(str(value) for name, value in pairs if name == "filename")
    own = {name: str(value) for name, value in pairs}
    return own | ({"filename": ":".join(files)} if files else {})


def _agreed(pairs: list[tuple[str, Any]]) -> Options:
    last = _last(pairs)
    unlike = {name for name, value in pairs if str(value) != last[name]}
    return {name: value for name, value in last.items() if name not in unlike}
