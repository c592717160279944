"""The `bins` object of one latency in json+ output as two arrays."""

from __future__ import annotations

import json

import msgspec
import numpy as np

_MARKS = bytes.maketrans(b'{}":,\r\n\t', b"        ")
_LEGACY = b"FIO_IO_U_PLAT"


def parse_bins(raw: bytes | msgspec.Raw) -> tuple[np.ndarray, np.ndarray]:
    """Bucket midpoints (ns) and counts of one `bins` object, in the order of the file.

    No Python object is made per bin: punctuation becomes blanks and numpy reads the numbers.
    """
    raw = bytes(raw)
    if _LEGACY in raw:
        return _parse_legacy_bins(raw)
    if not raw.count(b":"):  # of blanks alone numpy reads one number
        return np.empty(0, np.int64), np.empty(0, np.int64)
    numbers = np.fromstring(raw.translate(_MARKS), dtype=np.int64, sep=" ")
    if len(numbers) != 2 * raw.count(b":"):  # numpy before 2.4 only warns when it stops early
        raise ValueError(f"{raw[:60]!r} are not pairs of latency and count")
    return numbers[::2], numbers[1::2]


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
