"""fio's logs counted by one compiled loop over the bytes (numba: the extra `hcilib[fast]`).

Why a loop over addresses, and why all of it in one file:

- A log is 28 bytes a line and 100 million lines: whatever makes an object, a slice or an array per line costs more than
  the line. So the loop takes addresses, and reads eight bytes at a time.
- Latencies of one second lie close together. A page holds 16 neighbouring buckets of one second and direction; a run
  touches few pages, they stay in cache, and the page of the line before is mostly the page of this line (`recent`).
- What is not printed exactly as fio prints it goes to the reference (rollup_script), a line at a time. So the loop may
  refuse whatever it does not expect, and must never guess.
- It needs no lock of Python's, so threads count, each a part of a log at a time.
- numba keeps what it compiled beside this file and looks at this file's time alone. What other files give is frozen
  into it: `TAKEN_OVER` names that, and a test fails until it is changed here too, which makes numba compile anew.

What the reference costs beside it stands in data/samples/bench_logs.csv.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from hcilib.model.compressed import is_packed, opened
from hcilib.model.fio_buckets import BUCKETS, MIDPOINTS, bucket_of_float
from hcilib.read.logs.rollup_cells import NOTHING, Group, SumError, add_cells, put_aside, room
from hcilib.read.logs.rollup_script import (
    BS_LIMIT,
    BUCKET_BITS,
    LINE_LIMIT,
    NO_BUCKET,
    RATES,
    SUM_LIMIT,
    TIME_LIMIT,
    VALUE_LIMIT,
    LineError,
    Shape,
    cells_of,
    key_of,
    when_of,
)

TAKEN_OVER = {
    "limits": (1 << 50, 1 << 45, 1 << 32, 1 << 62),  # of time, value, block size, sums
    "buckets": (1856, 1856),  # how many; which stands for none
    "bucket of 1e6 ns": 954,
    "key of second 5, write, averaged, bucket 7": 88071,
}
"""What this file's compiled code takes from others, as it was when it was compiled."""
PART_BYTES = 8 << 20  # of a log, read at a time
ODD_CELLS = 1 << 16  # of lines that the reference read, before they become an array
PAGES = 1 << 17  # of 16 buckets, 384 bytes each; more are put aside as cells
PAGE_BITS = 4  # of a bucket's number: where in its page; the rest says which part of the buckets the page holds
PART_BITS = BUCKET_BITS - PAGE_BITS
WITHIN, PART = (1 << PAGE_BITS) - 1, (1 << PART_BITS) - 1
_DONE, _ODD, _FULL, _TOO_MUCH = range(4)
_LITTLE = sys.byteorder == "little"
_TENS = 10 ** np.arange(8)
_COMMA, _SPACE, _NEWLINE, _ZERO = 44, 32, 10, 48


_MIDPOINTS = np.array(MIDPOINTS)
_when_of, _key_of, _bucket_of_float = njit(when_of), njit(key_of), njit(bucket_of_float)


def count_abreast(groups: Mapping[Group, Sequence[Path]], read: Callable, workers: int | None) -> dict:
    """Group -> cells of its logs; threads take parts of files from one queue.

    All logs of a group are read abreast, the first parts of all before the second ones: fio logs in order of time, so
    that a counter holds the seconds of one part, however long the logs are.

    Parameters
    ----------
    read : hands each block of a file's lines to a function, from one byte to another: ``read(path, use, start, end)``
    """
    parts, together = _parts(groups), _Together()
    queue: SimpleQueue[Part] = SimpleQueue()
    for part in parts:
        queue.put(part)
    workers = min(workers or len(os.sched_getaffinity(0)), len(parts))
    if workers == 1:
        _work(queue, read, together)
    else:
        with ThreadPoolExecutor(max(workers, 1)) as pool:
            for done in [pool.submit(_work, queue, read, together) for _ in range(workers)]:
                done.result()
    return together.by_group()


Part = tuple[Group, int, Path, int, int | None]
"""Group, number, file, and from which byte to which; None: to where the file ends."""


def _parts(groups: Mapping[Group, Sequence[Path]]) -> list[Part]:
    """In the order of reading. Logs of a group have equally many parts, of about the same seconds."""
    parts: list[Part] = []
    for group, paths in groups.items():
        longest = 0
        for path in paths:
            with contextlib.suppress(OSError):  # whoever reads it says why
                longest = max(longest, path.stat().st_size)
        number = -(-longest // PART_BYTES)
        parts += [(group, n, path, *ends) for path in paths for n, ends in enumerate(slices(path, number))]
    return sorted(parts)


def slices(path: Path, number: int) -> list[tuple[int, int | None]]:
    """A plain log in up to so many parts alike, cut behind lines; one that is packed, or cannot be read, as a whole."""
    try:
        with opened(path) as file:
            if is_packed(file.read(4)):
                return [(0, None)]
            length, cuts = file.seek(0, os.SEEK_END), {0}
            for n in range(1, number):
                file.seek(max(length * n // number - 1, 0))
                if not file.readline(LINE_LIMIT).endswith(b"\n"):
                    break  # no line is that long: it is to be said of the line as a whole
                cuts.add(file.tell())
    except (OSError, ValueError):
        return [(0, None)]  # whoever reads it says why
    return list(pairwise(sorted(cuts | {length}))) or [(0, None)]


class _Together:
    """What the threads counted, added up as they come to the end of a part: of the same seconds it is held only
    once."""

    def __init__(self) -> None:
        self._cells: dict[tuple[Group, int], np.ndarray] = {}
        self._turn = Lock()

    def take(self, group: Group, n: int, counter: Counter) -> None:
        with self._turn:  # in turn, for while a counter is emptied its cells are held twice
            known = self._cells.pop((group, n), NOTHING)
            try:
                self._cells[group, n] = add_cells([known, counter.cells()])
            except SumError as error:
                raise error.of(group) from None

    def by_group(self) -> dict[Group, list[np.ndarray]]:
        groups: dict[Group, list[np.ndarray]] = {}
        for group, n in sorted(self._cells):
            groups.setdefault(group, []).append(self._cells.pop((group, n)))
        return groups


def _work(queue: SimpleQueue[Part], read: Callable, together: _Together) -> None:
    """Parts of files until there are no more; the counter is emptied where other seconds or another group begin."""
    counter, before = Counter(), None
    for group, n, path, start, end in _taken(queue):
        if before not in (None, (group, n)):
            together.take(*before, counter)
        before = group, n
        read(path, counter.feed, start, end)
    if before:
        together.take(*before, counter)


def _taken(queue: SimpleQueue[Part]) -> Iterator[Part]:
    with contextlib.suppress(Empty):
        while True:
            yield queue.get_nowait()


class Counter:
    """The cells of logs of one kind. `feed` it blocks of whole lines, then take `cells`."""

    def __init__(self, pages: int = PAGES) -> None:
        self._capacity = pages
        self._aside: list[np.ndarray] = []
        self._odd: list[tuple[int, int, int, int]] = []
        self._clear()

    def _clear(self) -> None:
        """New tables: memory that was never touched is not held."""
        self._keys = np.empty(self._capacity, np.int64)
        self._pages = np.zeros((self._capacity, 1 << PAGE_BITS, 3), np.int64)
        self._slots = np.zeros((2 * self._capacity, 2), np.int64)  # key + 1, page
        self._recent = np.full((4 << PART_BITS, 2), -1, np.int64)
        self._used = np.zeros(1, np.int64)

    def feed(self, block: bytes, shape: Shape) -> None:
        """Count whole lines; LineError with the offset of the first that is no sample."""
        raw = np.frombuffer(block, np.uint8)
        first, at = raw.ctypes.data, 0
        while at < raw.size:
            tables = (self._keys, self._pages, self._slots, self._recent, self._used)  # others once they were put aside
            where = (first + at, first + raw.size, shape.width, shape.half_ms)
            if shape.log == "clat_hist":
                status, reached = _histograms(*where, *tables)
            else:
                status, reached = _samples(*where, shape.log in RATES, *tables)
            at = reached - first
            if status == _ODD:
                at = self._by_reference(block, at, shape)
            elif status in (_FULL, _TOO_MUCH):  # of the latter the addition says what is wrong
                self._put_aside()

    def _by_reference(self, block: bytes, at: int, shape: Shape) -> int:
        end = block.index(b"\n", at)
        try:
            self._odd += cells_of(block[at:end], shape)
        except LineError as error:
            raise LineError(error.line, at, error.why) from None
        if len(self._odd) > ODD_CELLS:
            self._put_odd_aside()
        return end + 1

    def _put_odd_aside(self) -> None:
        put_aside(self._aside, add_cells([np.array(self._odd, np.int64).reshape(-1, 4)]))
        self._odd = []

    def _put_aside(self) -> None:
        used = int(self._used[0])
        order = np.argsort(self._keys[:used])
        cells = room(int(np.count_nonzero(self._pages[:used, :, 0])))
        _copied(order, self._keys, self._pages, cells)
        put_aside(self._aside, cells)
        self._clear()

    def cells(self) -> np.ndarray:
        """Everything counted, and the counter is empty again."""
        self._put_aside()
        self._put_odd_aside()
        cells, self._aside = add_cells(self._aside), []
        return cells


@intrinsic
def _byte(context, address):
    """The byte at an address. Arrays would be reference-counted at every call of a helper, which costs more than the
    work."""

    def code(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        return builder.zext(builder.load(place), ir.IntType(64))

    return types.int64(address), code


@intrinsic
def _eight(context, address):
    """Eight bytes from an address on, the first one lowest."""

    def code(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(address), code


@intrinsic
def _zeros_below(context, word):
    """How many of the low bits are 0; 64 of 0."""

    def code(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(word), code


@njit(cache=True, nogil=True)
def _samples(at, stop, width, half_ms, rate, keys, pages, slots, recent, used):
    """Lines `t, value, ddir[, bs[, offset[, word[, word]]]]`, by address; any other is left to the reference."""
    while at < stop:
        line = at
        at, t = _field(at, stop)
        if at < 0 or _byte(at) != _COMMA:
            return _ODD, line
        at, value = _field(_next(at), stop)
        if at < 0 or _byte(at) != _COMMA:
            return _ODD, line
        at = _next(at)
        ddir = _byte(at) - _ZERO
        at += 1
        if ddir < 0 or ddir > 2:
            return _ODD, line
        bs = np.int64(0)
        if width > 3:
            if _byte(at) != _COMMA:
                return _ODD, line
            at, bs = _field(_next(at), stop)
            if at < 0:
                return _ODD, line
        for field in range(width - 4):
            at = _word(at, field)
            if at < 0:
                return _ODD, line
        if _byte(at) != _NEWLINE or t >= TIME_LIMIT or value >= VALUE_LIMIT or bs >= BS_LIMIT:
            return _ODD, line
        at += 1
        averaged = np.int64(bs == 0)
        if averaged:
            t = max(t - half_ms, 0)
        bucket = np.int64(NO_BUCKET) if rate else _bucket(value)
        key, near = _page_key(t, ddir, averaged, bucket)
        page = recent[near, 1]
        if recent[near, 0] != key:
            page = _page(key, near, keys, slots, recent, used)
            if page < 0:
                return _FULL, line
        within = bucket & WITHIN
        size, total = pages[page, within, 1] + bs, pages[page, within, 2] + value
        if size >= SUM_LIMIT or total >= SUM_LIMIT:
            pages[page, within, 2] = SUM_LIMIT
            return _TOO_MUCH, line
        pages[page, within, 0] += 1
        pages[page, within, 1] = size
        pages[page, within, 2] = total
    return _DONE, at


@njit(cache=True, nogil=True)
def _histograms(at, stop, width, half_ms, keys, pages, slots, recent, used):
    """Lines `t, ddir, bs, count, count, ...`, by address; the work is done where a count is not 0."""
    stride = BUCKETS // (width - 3)
    while at < stop:
        line, end = at, _histogram_end(at, width)
        if end < 0:
            return _ODD, line
        at, t = _field(at, stop)
        at, ddir = _field(_next(at), stop)
        at, bs = _field(_next(at), stop)
        if at < 0 or ddir > 2 or t >= TIME_LIMIT or bs >= BS_LIMIT:
            return _ODD, line
        if used[0] + (BUCKETS >> PAGE_BITS) > keys.size:  # so that no page is missing in the middle of the line
            return _FULL, line
        t = max(t - half_ms, 0)
        for place in range(width - 3):
            at = _next(at)
            if _byte(at) == _ZERO and _byte(at + 1) - _ZERO < 0:
                at += 1
                continue
            at, n = _field(at, stop)
            bucket = place * stride + stride // 2
            key, near = _page_key(t, ddir, 0, bucket)
            page = recent[near, 1] if recent[near, 0] == key else _page(key, near, keys, slots, recent, used)
            within = bucket & WITHIN
            pages[page, within, 0] += n
            pages[page, within, 1] += n * bs
            pages[page, within, 2] += n * _MIDPOINTS[bucket]
            if pages[page, within, 1] >= SUM_LIMIT or pages[page, within, 2] >= SUM_LIMIT:
                return _TOO_MUCH, line
        at = end + 1
    return _DONE, at


@njit
def _histogram_end(at, width):
    """Where a histogram's line ends; -1 if it is not printed as fio prints it, or if a count is large."""
    fields, digits = 1, 0
    while _byte(at) != _NEWLINE:
        c = _byte(at)
        if c >= _ZERO and c <= _ZERO + 9:
            digits += 1
            if digits > (8 if fields > 3 else 15):
                return -1
        elif c == _COMMA and digits > 0 and _byte(at + 1) != _NEWLINE:
            fields, digits = fields + 1, 0
            at += np.int64(_byte(at + 1) == _SPACE)
        else:
            return -1
        at += 1
    return at if fields == width and digits > 0 else -1


@njit
def _field(at, stop):
    """Where up to 15 digits end and what they say; -1 if there are none, or more."""
    if not _LITTLE or at + 16 > stop:
        return _field_by_digit(at)
    digits, bytes8 = _digits(_eight(at))
    if digits == 0:
        return np.int64(-1), np.int64(0)
    if digits < 8:
        return at + digits, _number(bytes8, digits)
    more, rest = _digits(_eight(at + 8))
    high = _number(bytes8, 8)
    if more == 0:
        return at + 8, high
    return (at + 8 + more if more < 8 else np.int64(-1)), high * _TENS[more & 7] + _number(rest, more)


@njit
def _field_by_digit(at):
    start, number = at, np.int64(0)
    c = _byte(at) - _ZERO
    while c >= 0 and c <= 9 and at < start + 16:
        number = 10 * number + c
        at += 1
        c = _byte(at) - _ZERO
    return (at if start < at < start + 16 else np.int64(-1)), number


@njit
def _digits(word):
    """How many of eight bytes are digits before one that is none, and the bytes less the character 0."""
    word ^= np.uint64(0x3030303030303030)
    other = ((word + np.uint64(0x7676767676767676)) | word) & np.uint64(0x8080808080808080)
    return np.int64(_zeros_below(other) >> np.uint64(3)), word


@njit
def _number(word, digits):
    """The first `digits` (1 to 8) bytes as a number: pairs, then fours, then all at once."""
    word <<= np.uint64(64 - 8 * digits)
    word = (word * np.uint64(10) + (word >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    word = (word * np.uint64(100) + (word >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return np.int64((word * np.uint64(10000) + (word >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@njit
def _next(at):
    """Behind a comma and the one blank that may follow it."""
    return at + 1 + np.int64(_byte(at + 1) == _SPACE)


@njit
def _word(at, field):
    """Behind a comma and the offset (field 0: digits) or one of the words that may follow it; -1 if it is not there."""
    if _byte(at) != _COMMA:
        return np.int64(-1)
    at = _next(at)
    start, c = at, _byte(at)
    while (c >= 48 and c <= 57) or (field > 0 and ((c >= 97 and c <= 122) or (c >= 65 and c <= 90) or c == 95)):
        at += 1
        c = _byte(at)
    return at if start < at <= start + 18 else np.int64(-1)


@njit
def _bucket(value):
    """fio's bucket of a latency."""
    if value < 64:
        return value
    return min(_bucket_of_float(np.float64(value).view(np.int64)), np.int64(BUCKETS - 1))


@njit
def _page_key(t, ddir, averaged, bucket):
    """Second, direction and part of the buckets; and where the page that was last used for such a one is remembered."""
    part = bucket >> PAGE_BITS
    return _when_of(t // 1000, ddir, averaged) << PART_BITS | part, part | ddir << PART_BITS


@njit(cache=True, nogil=True)
def _copied(order, keys, pages, cells):
    """Whatever was counted on the pages, in that order, as rows of key, n, bytes and sum."""
    row = 0
    for page in order:
        for within in range(1 << PAGE_BITS):
            if pages[page, within, 0]:
                when, bucket = keys[page] >> PART_BITS, (keys[page] & PART) << PAGE_BITS | within
                cells[row, 0] = _key_of(when, bucket)
                cells[row, 1] = pages[page, within, 0]
                cells[row, 2] = pages[page, within, 1]
                cells[row, 3] = pages[page, within, 2]
                row += 1


@njit
def _page(key, near, keys, slots, recent, used):
    """The page of a key, a new one if need be; -1 if there is no room for it."""
    mask = slots.shape[0] - 1
    slot = (key * 0x1E3779B97F4A7C15 >> 32) & mask
    while slots[slot, 0] != key + 1:
        if slots[slot, 0] == 0:
            if used[0] == keys.size:
                return np.int64(-1)
            slots[slot, 0], slots[slot, 1] = key + 1, used[0]
            keys[used[0]] = key
            used[0] += 1
            break
        slot = (slot + 1) & mask
    recent[near, 0], recent[near, 1] = key, slots[slot, 1]
    return slots[slot, 1]
