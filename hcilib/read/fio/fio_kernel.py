"""The scan of fio's `bins` compiled by numba (the extra `fast`): four times numpy's speed, a second to load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

njit: Any
try:
    from numba import njit
except ImportError:
    njit = None

_LONGEST = 18
"""Digits that an int64 surely holds."""
_SMALLEST = len('"1":1,')


def scan(raws: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """As hcilib.read.fio.fio_reports.parse_runs; None without numba, and where one object is not as fio writes it."""
    if njit is None:
        return None
    text = np.frombuffer(b"".join(raws), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, raws), np.int64, len(raws)))
    lat_ns, count = np.empty((2, len(text) // _SMALLEST + 1), np.int64)
    lengths = np.empty(len(raws), np.int64)
    pairs = _scan(text, ends, lat_ns, count, lengths)
    return None if pairs < 0 else (lat_ns[:pairs].copy(), count[:pairs].copy(), lengths)


def _pairs(text, ends, lat_ns, count, lengths):
    """Pairs found in all objects, -1 at the first byte that is not of `{"<digits>": <digits>, ...}`."""
    at = found = 0
    for n in range(ends.size):
        before, end = found, ends[n]
        opened = at < end
        if opened and text[at] != 123:  # {
            return -1
        while opened:
            at = _blank(text, at + 1, end)  # behind { or ,
            if found == before and at < end and text[at] == 125:
                break
            at += 1
            digits = _digits(text, at, end)
            if digits == 0 or text[at - 1] != 34 or text[at + digits] != 34:  # "
                return -1
            lat_ns[found] = _value(text, at, digits)
            at = _blank(text, at + digits + 1, end)
            if at >= end or text[at] != 58:  # :
                return -1
            at = _blank(text, at + 1, end)
            digits = _digits(text, at, end)
            if digits == 0:
                return -1
            count[found] = _value(text, at, digits)
            found += 1
            at = _blank(text, at + digits, end)
            if at >= end or (text[at] != 44 and text[at] != 125):  # , }
                return -1
            opened = text[at] == 44
        at = _blank(text, at + 1, end) if at < end else at
        if at != end:
            return -1
        lengths[n] = found - before
    return found


def _skip(text, at, end):
    while at < end and (text[at] == 32 or text[at] == 10 or text[at] == 13 or text[at] == 9):
        at += 1
    return at


def _count_digits(text, at, end):
    """How many digits stand here; 0 where there are none, more than an int64 holds, or nothing behind them."""
    start = at
    while at < end and text[at] - 48 < 10 and text[at] >= 48:
        at += 1
    return at - start if at - start <= _LONGEST and at < end else 0


def _decimal(text, at, digits):
    value = 0
    for n in range(at, at + digits):
        value = 10 * value + (text[n] - 48)
    return value


if njit is not None:
    _blank, _digits, _value = njit(cache=True)(_skip), njit(cache=True)(_count_digits), njit(cache=True)(_decimal)
    _scan = njit(cache=True)(_pairs)
