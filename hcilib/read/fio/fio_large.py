"""Documents of fio that are too large to be read at once: their reports are cut out of the stream a few at a time.

What is read of a report is what is read of it in a small document, by the same functions. Kept of each are its numbers.
The buckets of its histograms are added up by group and direction, as the runs of a file are made of whole groups. Which
reports are final is asked of the whole document. Where that takes more than numbers (interim reports among those of
clients), the document is refused, and never read in another way than a small one would be.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hcilib.model.compressed import pieces
from hcilib.read.fio import fio_document, fio_fast
from hcilib.read.fio.fio_document import FioOutputError
from hcilib.read.fio.fio_fast import SUMS, Busy, Document, Entry, FioFile, Options, Report, Unusual
from hcilib.read.fio.fio_reports import (
    Bins,
    common_kind,
    kinds_of,
    merged,
    options_of,
    parse_runs,
    refuse_rounds,
    report_of,
    unfinished,
)
from hcilib.read.fio.fio_stream import LISTS, BrokenStream, Kind, events

MOST_REPORTS = 2**19
"""A report of fio's has 4 KB and more, so that these are 2 GB at least."""
MOST_KEPT, MOST_BUCKETS = 2**29, 2**24
"""Bytes of memory for names and options, and buckets of all groups, of one document."""
_NOTHING = msgspec.Raw(b"")


def read_pieces(stream: Iterator[bytes], path: str | Path, *, bins: bool = True) -> FioFile:
    """The reports of a document that comes in pieces. Their latencies have no `bins`: `FioFile.bins` are those of the
    groups, where they are asked for.

    Raises
    ------
    FioOutputError : as `parse`; a report, a name or the document is larger than any of fio's; or interim reports among
        final ones. The sentence names the file, and the field or the report with its host.
    """
    reading = _Reading(path, bins)
    try:
        for event in events(stream, reading.together):
            reading.take(event.kind, event.name, event.content)
        return reading.file()
    except FioOutputError:
        raise
    except (ValueError, OverflowError, RecursionError) as error:
        said = str(error).removeprefix(f"{path}: ")
        said = said if len(said) < 400 else f"{said[:400]}..."
        raise FioOutputError(f"{path}: {said.rstrip('. ')}.{reading.place()}") from None


def jobs_of(path: str | Path) -> Iterator[dict[str, Any]]:
    """What fio wrote of each job of a large document, one at a time, without its sums over clients."""
    for event in events(pieces(path)):
        if event.kind is Kind.REPORT and (job := json.loads(event.content, strict=False)).get("jobname") != SUMS:
            yield job


class Percentiles(Mapping[str, float]):
    """As a dict of them, in a tenth of its memory: a large document has half a million."""

    __slots__ = ("_names", "_values")

    def __init__(self, names: tuple[str, ...], values: array):
        self._names, self._values = names, values

    def __getitem__(self, name: str) -> float:
        try:
            return self._values[self._names.index(name)]
        except ValueError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def values(self) -> array:  # type: ignore[override]
        return self._values


class _Reading:
    """What has come of a document so far."""

    def __init__(self, path: str | Path, bins: bool):
        self._path, self._bins, self._documents = path, bins, 0
        self._text: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self._fields: dict[str, Any] = {}
        self._head = Document("")
        self._reports: list[Report] = []
        self._directions: list[Busy] = []
        self._options: list[Options] = []
        self._known: dict[int, Any] = {}
        self._bytes = self._number = 0
        self._unclean: set[tuple] = set()
        self._sums = self._open = False
        self._kinds: set[tuple[str, ...]] = set()
        self._groups: dict[tuple, tuple[np.ndarray, np.ndarray]] = {}
        self._pending: defaultdict[tuple, list[bytes | msgspec.Raw]] = defaultdict(list)

    # --- one part of the stream after the other

    def take(self, kind: Kind, name: str, content: Any) -> None:
        if kind is Kind.TEXT:
            self._text.append(content.decode("utf-8-sig", "replace").strip())
        elif kind is Kind.OPEN:
            self._begin()
            self._open = True
        elif kind is Kind.FIELD:
            self._field(name, content)
        elif kind is Kind.LIST:
            if self._fields.keys() & LISTS:
                raise BrokenStream(f"it has two lists of reports, {name} is the second. Copy the file again. ")
            self._fields[name] = True
        elif kind is Kind.REPORTS:
            self._add(name, content)
        elif kind is Kind.REPORT:
            alone = self.together(b"[" + content + b"]")
            self._add(name, self._tolerant(name, content) if alone is None else alone)
        else:
            if not self._fields.keys() & LISTS:
                raise BrokenStream("it holds a JSON document that is no result of fio's; take that out of the file. ")
            self._documents, self._open = self._documents + 1, False

    def _field(self, name: str, raw: bytes) -> None:
        if name in self._fields:
            raise BrokenStream(f"{name} is there twice in one object. Copy the file again, or repeat the run. ")
        self._fields[name] = True
        if name == "fio version":
            self._head.version = msgspec.json.decode(raw, type=str)
        elif name == "disk_util":
            self._head.disk_util = msgspec.json.decode(raw, type=list[dict[str, Any]])
        elif name == "global options":
            if self._number and raw.strip(b"{}[] \t\r\n"):
                raise BrokenStream("its global options stand behind the reports that they are of: write them first. ")
            self._head.global_options = msgspec.Raw(raw)
        elif name in LISTS and raw.strip() != b"null":
            raise BrokenStream(f"{name} is {raw[:40].decode(errors='replace')}, expected a list of reports. ")

    def together(self, raw: bytes) -> list[tuple[Report, Busy]] | None:
        """Reports as clean output has them; None where these are not, or are cut in the wrong place."""
        try:
            reports = fio_fast.decode_reports(raw)
            directions = fio_fast.busy([report for report in reports if report.jobname != SUMS])
        except Unusual:
            return None
        if not all(directions):
            return None
        of = iter(directions)
        return [(report, [] if report.jobname == SUMS else next(of)) for report in reports]

    def _tolerant(self, name: str, raw: bytes) -> list[tuple[Report, Busy]]:
        """One report that is not as clean output has it: alone in a document with the same head."""
        head = f'{{"fio version": {json.dumps(self._head.version)}, "global options": '.encode()
        document = b"".join([head, bytes(self._head.global_options), f', "{name}": ['.encode(), raw, b"]}"])
        try:
            loaded, _, _ = fio_document.load(document, self._path)
            reports = list(loaded.reports())
            options = options_of(loaded, reports)
        except ValueError as error:
            said = str(error).replace(f"{name}[0]", f"{name}[{self._number}]")
            raise ValueError(said) from None
        self._unclean |= {report.key for report in reports}
        return [report_of(report, own) for report, own in zip(reports, options, strict=True)] or [(Report(SUMS, 0), [])]

    def _add(self, name: str, given: list[tuple[Report, Busy]]) -> None:
        self._number += len(given)
        hosts = [(report, directions) for report, directions in given if report.jobname != SUMS]
        if hosts and (self._sums or any(report.jobname == SUMS for report, _ in given[: len(hosts)])):
            raise BrokenStream(f"reports stand behind those of {SUMS!r}. {_INTERIM}")
        self._sums = self._sums or len(hosts) < len(given)
        if len(self._reports) + len(hosts) > MOST_REPORTS:
            raise BrokenStream(f"more than {MOST_REPORTS:,} reports, as no output of fio has. ")
        reports = [report for report, _ in hosts]
        self._head.client_stats = reports if name == "client_stats" else None
        options = options_of(self._head, reports)
        for (report, directions), own in zip(hosts, options, strict=True):
            self._keep(report, directions, own)
        self._merge()

    def _keep(self, report: Report, directions: Busy, options: Options) -> None:
        """Without the text it was read from."""
        for ddir, direction in directions:
            kinds = kinds_of(direction) if self._bins else {}
            for kind, bins in kinds.items():
                self._pending[report.groupid, ddir, kind].append(bins)
            self._kinds |= {tuple(kinds)} if kinds else set()
            for latency in (direction.slat_ns, direction.clat_ns, direction.lat_ns):
                latency.bins = _NOTHING
                if latency.percentile:
                    names = self._same(tuple(latency.percentile))
                    latency.percentile = Percentiles(names, array("d", latency.percentile.values()))  # type: ignore[assignment]
        report.options = report.trim = _NOTHING
        report.read = report.write = None
        self._bytes += len(report.hostname) + len(report.jobname)
        self._reports.append(report)
        self._directions.append(directions)
        self._options.append(self._same(options))

    def _same(self, value: Any) -> Any:
        """The first that is equal to it: most jobs have their options in common."""
        content = tuple(value.items()) if isinstance(value, dict) else value
        known = self._known.setdefault(hash(content), value)
        if known is value:
            self._bytes += sum(len(text) for pair in content for text in pair) + 100 * len(content)
            if self._bytes > MOST_KEPT:
                raise BrokenStream("its names and options fill more memory than those of any output of fio. ")
        return known if known == value else value

    def _merge(self) -> None:
        for key, raws in self._pending.items():
            try:
                lat_ns, count, _ = parse_runs(raws)
            except ValueError as error:
                raise ValueError(f"latency bins that cannot be read: {error}. ") from None
            before = self._groups.get(key, (lat_ns[:0], count[:0]))
            self._groups[key] = merged(*map(np.concatenate, zip(before, (lat_ns, count), strict=True)))
        self._pending.clear()
        if sum(len(lat_ns) for lat_ns, _ in self._groups.values()) > MOST_BUCKETS:
            raise BrokenStream(f"more than {MOST_BUCKETS:,} buckets in {len(self._groups):,} groups. ")

    # --- the whole

    def file(self) -> FioFile:
        """The last document, whose reports are all final."""
        if not self._documents:
            raise FioOutputError(f"{self._path}: no fio JSON document in it. Run fio with --output-format=json+.")
        if not self._reports:
            raise FioOutputError(f"{self._path}: the fio document holds no report of any host's job. Repeat the run.")
        of_clients = "client_stats" in self._fields
        try:
            clones = fio_fast.clones_of(self._reports, self._directions)
            if of_clients and any(clones):
                refuse_rounds(self._reports, self._options)
        except Unusual as error:
            raise BrokenStream(f"{error}. {_INTERIM}") from None
        seen = Counter(fio_fast.key_of(report) for report in self._reports)
        if any(seen[key] > 1 for key in self._unclean):
            raise BrokenStream(f"several reports of one job, one of them without I/O. {_INTERIM}")
        entries = list(map(Entry, self._reports, clones, self._directions, self._options))
        clean = self._documents == 1 and not self._unclean
        said = "" if clean and of_clients else unfinished(entries, self._documents)
        noise = "\n".join(filter(None, self._text))
        bins = self._of_groups(entries) if self._bins else None
        return FioFile(entries, noise, self._head.version, self._head.disk_util, clean, said, bins)

    def _of_groups(self, entries: list[Entry]) -> Bins:
        """A row each direction of a report: the first of a group and direction has the buckets of all."""
        kind = common_kind(self._kinds, self._path)
        none = np.empty(0, np.int64), np.empty(0, np.int64)
        rows = [
            self._groups.pop((entry.report.groupid, ddir, kind), none)
            for entry in entries
            for ddir, _ in entry.directions
        ]
        lat_ns, count = map(np.concatenate, zip(*rows, strict=True))
        return Bins(kind, lat_ns, count, np.array([len(own) for own, _ in rows]))

    def place(self) -> str:
        """Where in a document it was, for a sentence about what is wrong there."""
        if not self._open or not self._number:
            return ""
        before = f"{self._documents} complete interim document(s) stand before it. " if self._documents else ""
        if not self._reports:
            return f" {before}".rstrip()
        job, host = self._reports[-1].jobname, self._reports[-1].hostname
        return f" {before}The last complete report before it is number {self._number}, job {job!r} on {host}."


_INTERIM = (
    "Such a document may hold interim reports (--status-interval), which are told from final ones up to 256 MiB only. "
    "Run fio without --status-interval"
)
