"""The `bins` objects of latencies in json+ output as arrays, and their sum; no Python object is made per bin."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import msgspec
import numpy as np

_MARKS = bytes.maketrans(b'{}":,\r\n\t', b"        ")
_LEGACY = b"FIO_IO_U_PLAT"
_BETWEEN = b" -1 "
BUCKETS = 29 * 64
"""fio's histogram: 29 groups of 64 buckets (stat.h)."""

Runs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Bucket midpoints (ns) and counts of many histograms, one behind the other, and how many of them each one has."""


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
    bits = int(bins.get("FIO_IO_U_PLAT_BITS", 6))
    pairs = [(int(index), count) for index, count in bins.items() if index.isdigit() and count]
    index, count = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return 1000 * bucket_midpoint(index, bits), count


def bucket_midpoint(index: np.ndarray, bits: int = 6) -> np.ndarray:
    """Latency that stands for a bucket (`plat_idx_to_val` of fio's stat.c): 2^bits buckets per power of two."""
    per_octave = 1 << bits
    shift = np.maximum((index >> bits) - 1, 0)
    within = index & (per_octave - 1)
    upper = (per_octave << shift) + (within << shift) + ((1 << shift) >> 1)
    return np.where(index < 2 * per_octave, index, upper)


_MIDPOINTS = bucket_midpoint(np.arange(BUCKETS))


def merged(lat_ns: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One histogram of many: every latency once, in order, and the sum of its counts."""
    index = _bucket(lat_ns)
    if index is None or count.sum(dtype=float) >= 2**53:  # not fio's buckets, or more than float64 counts exactly
        known, place = np.unique(lat_ns, return_inverse=True)
        sums = np.zeros(len(known), np.int64)
        np.add.at(sums, place, count)
        return known, sums
    present = np.bincount(index, minlength=BUCKETS) > 0
    sums = np.bincount(index, weights=count, minlength=BUCKETS)
    return _MIDPOINTS[present], sums[present].astype(np.int64)


def _bucket(lat_ns: np.ndarray) -> np.ndarray | None:
    """The buckets whose midpoints these are; None where one is no midpoint. The exponent of a float64 is the octave."""
    octave = (lat_ns.astype(np.float64).view(np.int64) >> 52) - 1023
    shift = np.maximum(octave - 6, 0)
    index = np.where(lat_ns < 128, lat_ns, ((shift + 1) << 6) + ((lat_ns >> shift) & 63))
    sound = (index >= 0) & (index < BUCKETS)
    return index if sound.all() and (_MIDPOINTS[index] == lat_ns).all() else None
