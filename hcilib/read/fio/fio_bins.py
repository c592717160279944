"""Latency histograms of fio's json+ output: the `bins` objects as arrays, one histogram a key, and their sum.

No Python object is made per bucket.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from hcilib.fio_buckets import BITS, BUCKETS, MIDPOINTS, buckets_of, ios_to_reach, midpoint
from hcilib.read.fio.fio_document import FioOutputError
from hcilib.read.fio.fio_fast import Direction, FioFile

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


def bins_of(file: FioFile, path: str | Path, *, compiled: bool = False) -> Bins:
    """The histograms of a file's reports; FioOutputError as of `read_fio_bins`. `compiled`: see `parse_runs`."""
    rows = [_given(direction) for entry in file.entries for _, direction in entry.directions]
    kind = _common_kind([kinds for kinds in rows if kinds], path)
    raws = [kinds.get(kind, _NONE) for kinds in rows]
    try:
        return Bins(kind, *parse_runs(raws, compiled=compiled))
    except (ValueError, OverflowError) as error:
        raise FioOutputError(f"{path}: latency bins that cannot be read: {error}") from None


def _given(direction: Direction) -> dict:
    """The bins of a direction with I/O; those of total latency are preferred."""
    if not direction.any_io:
        return {}
    lat, clat = direction.lat_ns.bins, direction.clat_ns.bins
    return {kind: bins for kind, bins in (("lat", lat), ("clat", clat)) if len(bins)}


def _common_kind(found: list[dict], path: str | Path) -> str | None:
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
    ends = np.cumsum(bins.lengths)
    of_row = [slice(end - length, end) for end, length in zip(ends, bins.lengths, strict=True)]
    sums = [
        merged(*(np.concatenate([a[of_row[r]] for r in own]) for a in (bins.lat_ns, bins.count)))
        for own in rows.values()
    ]
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


def parse_runs(raws: Sequence[bytes | msgspec.Raw], *, compiled: bool = False) -> Runs:
    """All pairs of many `bins` objects (empty bytes: none), in the order of the file.

    The numpy way turns punctuation into blanks and lets numpy read the numbers. The numba way is taken when asked for,
    or when numba is loaded already; what is not written as fio writes it goes to numpy. Both give the same arrays.

    Raises
    ------
    ValueError
        An object that does not hold pairs of numbers.
    """
    if (compiled or "numba" in sys.modules) and any(map(len, raws)):  # a hundred MB are not loaded for nothing
        from hcilib.read.fio.fio_kernel import scan

        runs = scan(raws)
        if runs is not None:
            return runs
    text = _BETWEEN.join(raws)
    return _each_alone(raws) if _LEGACY in text else _by_numpy(text, len(raws))


def _by_numpy(text: bytes, histograms: int) -> Runs:
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


def _each_alone(raws: Sequence[bytes | msgspec.Raw]) -> Runs:
    runs = [_parse_legacy_bins(r) if _LEGACY in r else _by_numpy(r, 1)[:2] for r in map(bytes, raws)]
    lats, counts = zip(*runs, strict=True)
    return np.concatenate(lats), np.concatenate(counts), np.array([len(lat) for lat in lats], np.int64)


def _parse_legacy_bins(raw: bytes) -> tuple[np.ndarray, np.ndarray]:
    """fio 2.x: every bucket by its index, zeros too, in microseconds, with the bucket layout beside them."""
    bins = json.loads(raw)
    bits = bins.get("FIO_IO_U_PLAT_BITS", BITS)
    if not (isinstance(bits, int) and 1 <= bits <= 16):
        raise ValueError(f"FIO_IO_U_PLAT_BITS is {bits!r}, expected a whole number from 1 to 16")
    pairs = [(1000 * midpoint(int(index), bits), count) for index, count in bins.items() if index.isdigit() and count]
    lat_ns, count = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return lat_ns, count


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
