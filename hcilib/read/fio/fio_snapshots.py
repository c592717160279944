"""Which reports of a fio document are final.

With `--status-interval` in client mode fio 3.33 appends cumulative interim reports of every host to the same list.
Nothing in the file says so, and a job's clones or a host that was listed twice repeat the same keys as well. Only
interim reports can be a chain in which every counter grows and every extreme only moves outwards.
"""

from __future__ import annotations

from itertools import pairwise

from hcilib.read.fio.fio_document import Direction, Document, Report
from hcilib.read.fio.fio_fast import GROWTH
from hcilib.read.fio.fio_histogram import parse_bins
from hcilib.read.fio.fio_options import options_of


def final_reports(document: Document) -> list[Report]:
    """The reports of a document without "All clients" and without interim snapshots, in the file's order."""
    groups: dict[tuple, list[Report]] = {}
    for report in document.reports():
        groups.setdefault(report.key, []).append(report)
    final = [r for reports in groups.values() for r in _final(reports, _clones(document, reports[0]))]
    kept = set(map(id, final))
    return [report for report in document.reports() if id(report) in kept]


def _clones(document: Document, report: Report) -> int:
    [options] = options_of(document, [report])
    numjobs = str(options.get("numjobs", "1"))
    return max(int(numjobs), 1) if numjobs.isdecimal() and len(numjobs) < 10 else 1


def _final(reports: list[Report], clones: int) -> list[Report]:
    """The last snapshot: as many reports as there are clones (each reporting alone) or one (group_reporting)."""
    for size in sorted({clones, 1}, reverse=True):
        fits = len(reports) > size and len(reports) % size == 0
        if fits and all(_is_chain(reports[offset::size]) for offset in range(size)):
            return reports[-size:]
    return reports


def _is_chain(reports: list[Report]) -> bool:
    runtimes = [max((d.runtime or 0 for d in r.directions().values()), default=0) for r in reports]
    if runtimes[-1] < GROWTH * runtimes[0] or runtimes[-1] == 0:
        return False
    return all(_continues(a, b) for a, b in pairwise(reports))


def _continues(earlier: Report, later: Report) -> bool:
    """Whether one report can be the other's past."""
    before, after = earlier.directions(), later.directions()
    counters = all(_grows(earlier, later, name) for name in ("ctx", "majf", "minf"))
    return counters and all(d in after and _direction_continues(before[d], after[d]) for d in before)


def _direction_continues(earlier: Direction, later: Direction) -> bool:
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


def _histogram_continues(earlier: Direction, later: Direction) -> bool:
    """The decisive test where there are bins: no bucket ever shrinks."""
    for name in ("clat_ns", "lat_ns"):
        a, b = getattr(earlier, name), getattr(later, name)
        if a and b and len(a.bins) and len(b.bins):
            counts = dict(zip(*(column.tolist() for column in parse_bins(b.bins)), strict=True))
            if any(n > counts.get(bucket, 0) for bucket, n in zip(*parse_bins(a.bins), strict=True)):
                return False
    return True
