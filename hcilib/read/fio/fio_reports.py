"""The reports of one file of fio that count, in one shape, by whichever of the two paths it had to be read; and their
latency histograms, the `bins` of json+ as arrays.

What fio's JSON does not say in so many words is decided here: which reports are final, and with which options a job
ran. No Python object is made per bucket.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence
from functools import lru_cache
from itertools import combinations, pairwise
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from hcilib.model.fio_buckets import BUCKETS, MIDPOINTS, buckets_of, ios_to_reach
from hcilib.read.fio import fio_document, fio_fast
from hcilib.read.fio.fio_document import FioOutputError, Number
from hcilib.read.fio.fio_fast import GROWTH, Busy, Direction, Entry, FioFile, Latency, Options, Report, Unusual

_PLANNED = {"w": "write", "t": "trim"}
MEASURES = ("io_bytes", "bw_bytes", "iops", "runtime", "total_ios", "short_ios", "drop_ios")
LATENCIES = ("slat_ns", "clat_ns", "lat_ns")
JOB = ("usr_cpu", "sys_cpu", "ctx", "majf", "minf", "job_start", "job_runtime", "total_err")
_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(us|ms|s|m|h|d|)")
_MS = {"us": 1e-3, "ms": 1.0, "": 1e3, "s": 1e3, "m": 6e4, "h": 3.6e6, "d": 8.64e7}
ENDED = 0.95
"""Share of the requested runtime from which on a report may be the last."""
PerClient = list[tuple[str, int | None, Options]]
_DECODE = msgspec.json.Decoder(Options).decode


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
    reported, only_sums = any(document.reports()), document.client_stats or document.jobs
    if not reported and only_sums:
        raise FioOutputError(
            f"{path}: only fio's sum over hosts ({fio_fast.SUMS!r}) is in this file and none of the hosts' own "
            "reports; which hosts it sums is not known. Take fio's whole output."
        )
    if not reported and not noise:
        none = "holds no report of any job, and nothing beside it says why. Repeat the run."
        raise FioOutputError(f"{path}: the fio document {none}")
    return FioFile(entries, noise, document.version, document.disk_util, False, unfinished(entries, documents))


def unfinished(entries: list[Entry], documents: int) -> str:
    """Of several documents (`--status-interval`) the last is the result, unless fio was killed before it wrote that
    one.

    So it may be with one document, where a job was to run for its time and did not.
    """
    timed = [entry for entry in entries if documents > 1 or entry.options.get("time_based", "0") != "0"]
    if not timed:
        return ""
    wanted_ms = max(milliseconds(entry.options.get("runtime", "")) for entry in timed)
    ran_ms = max((d.runtime for entry in timed for _, d in entry.directions if d.runtime == d.runtime), default=0)
    is_last = documents > 1 and not wanted_ms
    return "interim" if ran_ms < ENDED * wanted_ms or is_last else ""


def milliseconds(duration: str) -> float:
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
        refuse_rounds(reports, options)
    entries = list(map(Entry, reports, clones, directions, options))
    said = "" if document.client_stats is not None else unfinished(entries, 1)  # a client waits for its servers
    return FioFile(entries, noise, document.version, document.disk_util, True, said)


def refuse_rounds(reports: list[Report], options: list[Options]) -> None:
    """Unusual where a job has more or fewer reports than its options ask for."""
    seen = Counter(map(fio_fast.key_of, reports))
    for report, given in zip(reports, options, strict=True):
        if seen[fio_fast.key_of(report)] != _owed(given):
            raise Unusual("more or fewer reports of a job than its options ask for")


def _entries(document: fio_document.Document) -> list[Entry]:
    entries = []
    seen: Counter[tuple] = Counter()
    reports = final_reports(document)
    for report, options in zip(reports, options_of(document, reports), strict=True):
        typed, directions = report_of(report, options)
        entries.append(Entry(typed, seen[report.key], directions, options))
        seen[report.key] += 1
    return entries


def report_of(report: fio_document.Report, options: Options) -> tuple[Report, Busy]:
    """A report of any version as one of clean output, and its directions."""
    directions = report.directions() or _planned(report, options)
    numbers: dict[str, Any] = {name: _number(getattr(report, name)) for name in ("error", "groupid", *JOB)}
    typed = Report(
        jobname=report.jobname, options=report.options, hostname=report.hostname, port=report.port, **numbers
    )
    return typed, [(ddir, _direction(direction)) for ddir, direction in directions.items()]


def _planned(report: fio_document.Report, options: Options) -> dict[str, fio_document.Direction]:
    """The one row of a report without I/O: what it was to do (fio's default is read)."""
    if report.mixed and not report.read:
        return {"mixed": report.mixed}
    ddir = _PLANNED.get(options.get("rw", "read").removeprefix("rand")[:1], "read")
    return {ddir: getattr(report, ddir) or fio_document.Direction()}


def _direction(given: fio_document.Direction) -> Direction:
    """In bytes and ns, whatever the release wrote."""
    fields: dict[str, Any] = {name: _number(getattr(given, name)) for name in ("bw", *MEASURES)}
    if given.bw_bytes is None:
        fields["bw_bytes"] = 1024 * fields["bw"]  # before 3.2 only in KiB/s
    if given.legacy:
        fields["io_bytes"] *= 1024
    return Direction(**fields | {name: _latency(given, name) for name in LATENCIES})


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
                f"{key[0]}, job {key[2]!r}: {len(reports)} reports, some of them interim ones (--status-interval), and "
                "which are final cannot be told. Run fio without --status-interval"
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
            return _DECODE(raw)
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
    return {name: str(value) for name, value in options.items()}


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


# Latency histograms: one a key, and their sum.

BIN_KEYS = ["hostname", "port", "job", "groupid", "ddir"]
_NONE = b""
_MARKS = bytes.maketrans(b'{}":,\r\n\t', b"        ")
_LEGACY = b"FIO_IO_U_PLAT"
_BETWEEN = b" -1 "
Runs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Bucket midpoints (ns) and counts of many histograms, one behind the other, and how many of them each one has."""


class Bins(NamedTuple):
    """The histograms of one file: for each row of its `hosts` table `lengths` pairs, one row behind the other.

    `kind`: "lat" where every direction with I/O has total-latency bins, else "clat", None without.
    """

    kind: str | None
    lat_ns: np.ndarray
    count: np.ndarray  # type: ignore[assignment]  # it hides tuple.count, which nobody calls on a histogram
    lengths: np.ndarray

    def of_rows(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The latencies and counts of each row, empty where it has none."""
        ends = np.cumsum(self.lengths)
        spans = [slice(end - length, end) for end, length in zip(ends, self.lengths, strict=True)]
        return [(self.lat_ns[span], self.count[span]) for span in spans]


def bins_of(file: FioFile, path: str | Path) -> Bins:
    """The histograms of a file's reports; FioOutputError as of `read_fio_bins`."""
    if file.bins is not None:
        return file.bins
    rows = [kinds_of(direction) for entry in file.entries for _, direction in entry.directions]
    kind = common_kind([kinds for kinds in rows if kinds], path)
    raws = [kinds.get(kind, _NONE) for kinds in rows]
    try:
        return Bins(kind, *parse_runs(raws))
    except (ValueError, OverflowError) as error:
        raise FioOutputError(f"{path}: latency bins that cannot be read: {error}") from None


def kinds_of(direction: Direction) -> dict:
    """The bins of a direction with I/O; those of total latency are preferred."""
    if not direction.any_io:
        return {}
    lat, clat = direction.lat_ns.bins, direction.clat_ns.bins
    return {kind: bins for kind, bins in (("lat", lat), ("clat", clat)) if len(bins)}


def common_kind(found: Collection[Container], path: str | Path) -> str | None:
    for kind in ("lat", "clat"):
        if found and all(kind in kinds for kinds in found):
            return kind
    if found:
        raise FioOutputError(
            f"{path}: some jobs have bins of lat and others of clat only; give all jobs the same lat_percentiles"
        )
    return None


def by_key(file: FioFile, bins: Bins) -> tuple[list[tuple], Bins]:
    """The keys that have bins, in the file's order, and one histogram each: clones and repeated buckets are summed."""
    rows: dict[tuple, list[int]] = {}
    places = [(report, ddir) for report, _, directions, _ in file.entries for ddir, _ in directions]
    for row in np.flatnonzero(bins.lengths):
        report, ddir = places[row]
        key = report.hostname, report.port, report.jobname, _whole(report.groupid), ddir
        rows.setdefault(key, []).append(int(row))
    if len(rows) == np.count_nonzero(bins.lengths) and _rises(bins):
        return list(rows), bins._replace(lengths=bins.lengths[bins.lengths > 0])
    each = bins.of_rows()
    sums = [merged(*map(np.concatenate, zip(*(each[row] for row in own), strict=True))) for own in rows.values()]
    lat_ns, count = (np.concatenate(column) for column in zip(*sums, strict=True))
    return list(rows), Bins(bins.kind, lat_ns, count, np.array([len(lat) for lat, _ in sums]))


def _rises(bins: Bins) -> bool:
    """Whether the buckets of every row rise, as fio writes them."""
    falls = np.flatnonzero(np.diff(bins.lat_ns) <= 0) + 1
    return bool(np.isin(falls, np.cumsum(bins.lengths)).all())


def _whole(number: float) -> int | float:
    return int(number) if number.is_integer() else number


def parse_bins(raw: bytes | msgspec.Raw) -> tuple[np.ndarray, np.ndarray]:
    """Bucket midpoints (ns) and counts of one `bins` object, in the order of the file."""
    return parse_runs([raw])[:2]


def parse_runs(raws: Sequence[bytes | msgspec.Raw]) -> Runs:
    """All pairs of many `bins` objects (empty bytes: none), in the order of the file.

    Punctuation is turned into blanks, and numpy reads the numbers.

    Raises
    ------
    ValueError
        An object that does not hold pairs of numbers.
    """
    text, histograms = _BETWEEN.join(raws), len(raws)
    if _LEGACY in text:
        raise ValueError("fio 2 wrote them by index. Run fio 3")
    pairs = text.count(b":")
    if not pairs:  # of blanks alone numpy reads one number
        return np.empty(0, np.int64), np.empty(0, np.int64), np.zeros(histograms, np.int64)
    numbers = np.fromstring(text.translate(_MARKS), dtype=np.int64, sep=" ")
    between = np.flatnonzero(numbers < 0)
    lengths = np.diff(between, prepend=-1, append=len(numbers)) - 1
    numbers = np.delete(numbers, between)
    if (
        len(between) != histograms - 1 or len(numbers) != 2 * pairs or (lengths % 2).any()
    ):  # numpy stops at the first other
        raise ValueError(f"{text[:60]!r} ... are not pairs of latency and count")
    return numbers[::2], numbers[1::2], lengths // 2


_MIDPOINTS = np.array(MIDPOINTS)


def merged(lat_ns: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One histogram of many: every latency once, in order, and the sum of its counts."""
    index = buckets_of(lat_ns)
    of_fio = bool((index >= 0).all()) and np.array_equal(_MIDPOINTS[index], lat_ns)
    if not of_fio or count.sum(dtype=float) >= 2**53:  # more than float64 counts exactly
        known, place = np.unique(lat_ns, return_inverse=True)
        sums = np.zeros(len(known), np.int64)
        np.add.at(sums, place, count)
        return known, sums
    present = np.bincount(index, minlength=BUCKETS) > 0
    sums = np.bincount(index, weights=count, minlength=BUCKETS)
    return _MIDPOINTS[present], sums[present].astype(np.int64)


def reached(lat_ns: np.ndarray, count: np.ndarray, percents: Iterable[float]) -> list[float]:
    """Of many histograms together the first latency at which each share of the I/Os is reached (METHODS section 3); NaN
    where there is no I/O. As hcilib.analyse.runs.latency, whose `percentiles` of the same bins are the same numbers."""
    known, counts = merged(lat_ns, count)
    sums = counts.cumsum()
    if not len(sums) or not sums[-1]:
        return [np.nan for _ in percents]
    return [float(known[np.searchsorted(sums, ios_to_reach(percent, sums[-1]))]) for percent in percents]
