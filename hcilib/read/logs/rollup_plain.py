"""fio's logs counted by pyarrow's CSV reader and numpy: what rollup_kernel does, where numba is not installed."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
from pyarrow import csv

from hcilib.fio_buckets import BUCKETS, MIDPOINTS, buckets_of
from hcilib.read.logs.rollup_script import (
    BS_LIMIT,
    NO_BUCKET,
    RATES,
    TIME_LIMIT,
    VALUE_LIMIT,
    Shape,
    bucket_in,
    count,
    key_of,
    new_table,
    when_in,
    when_of,
)
from hcilib.read.logs.rollup_table import add_cells, from_table

COLUMNS = ("t_ms", "value", "ddir", "bs", "offset", "prio", "issued")
_ROWS = 1 << 20  # cells put aside before they are added up
_MIDPOINTS = np.array(MIDPOINTS)
_LOW = 24  # bits; so halved, what is summed in floats stays an exact integer


class Counter:
    """The cells of logs of one kind. `feed` it blocks of whole lines, then take `cells`."""

    def __init__(self) -> None:
        self._aside: list[np.ndarray] = []
        self._odd = new_table()

    def feed(self, block: memoryview, shape: Shape) -> None:
        """Count whole lines; LineError with the offset of the first that is no sample."""
        raw = bytes(block)
        part = _histograms(raw, shape) if shape.log == "clat_hist" else _samples(raw, shape)
        if part is None:
            count(raw, shape, self._odd)
            return
        self._aside.append(part)
        if sum(map(len, self._aside)) > _ROWS:
            self._aside = [add_cells(self._aside)]

    def cells(self) -> np.ndarray:
        """Everything counted, and the counter is empty again."""
        cells = add_cells([*self._aside, from_table(self._odd)])
        self._aside, self._odd = [], new_table()
        return cells


def columns(raw: bytes, width: int) -> pa.Table | None:
    """Whole lines, the numbers as int64 (the offset unsigned) and the words behind them; None unless printed as fio
    prints them.

    pyarrow reads more than fio writes (0x1f, +5, quotes): what could be such a thing is looked for first.
    """
    if raw.translate(None, b"0123456789, \n" if width < 6 else b"0123456789, \nabcdefABCDEFx") or b"  " in raw:
        return None
    if not raw or raw[:1] == b"\n" or b"\n\n" in raw:
        return None
    names = COLUMNS[:width]
    types = {name: pa.int64() for name in names[:4]} | {"offset": pa.uint64()} | dict.fromkeys(names[5:], pa.string())
    convert = csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False)
    try:
        table = csv.read_csv(
            pa.py_buffer(raw),
            read_options=csv.ReadOptions(column_names=names, use_threads=False, block_size=len(raw) + 1),
            parse_options=csv.ParseOptions(quote_char=False),
            convert_options=convert,
        )
    except pa.ArrowInvalid:
        return None
    if not _are_words([table[name] for name in names[5:]], raw):
        return None
    return table


def _are_words(words: list[pa.ChunkedArray], raw: bytes) -> bool:
    """Whether what follows the offset are words of up to 18 letters and digits, and nothing before it is
    hexadecimal."""
    hexadecimal = 0
    for column in words:
        seen = [word.strip(" ") for word in column.unique().to_pylist()]
        marks = {word.count("x") for word in seen}
        if len(marks) > 1 or not all(1 <= len(word) <= 18 and " " not in word for word in seen):
            return False
        hexadecimal += marks.pop() * len(column)
    return raw.count(b"x") == hexadecimal


def _samples(raw: bytes, shape: Shape) -> np.ndarray | None:
    read = columns(raw, shape.width)
    if read is None:
        return None
    t, value, ddir, *rest = (read[name].to_numpy() for name in COLUMNS[: min(shape.width, 4)])
    bs = rest[0] if rest else np.zeros_like(t)
    if max(t.max() >= TIME_LIMIT, value.max() >= VALUE_LIMIT, ddir.max() > 2, bs.max() >= BS_LIMIT):
        return None
    averaged = bs == 0
    t = np.where(averaged, np.maximum(t - shape.half_ms, 0), t)
    bucket = np.full(len(t), NO_BUCKET) if shape.log in RATES else buckets_of(value)
    return _added(when_of(t // 1000, ddir, averaged), bucket, bs, value)


def _added(when: np.ndarray, bucket: np.ndarray, bs: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Cells of samples; `when` is second, direction and average, of which a block of a log holds few."""
    seen, place = np.unique(when, return_inverse=True)
    if len(seen) > 1 << 8:  # no log of a run: by sorting, so that memory stays in bounds
        return add_cells([np.column_stack([key_of(when, bucket), np.ones_like(bs), bs, value])])
    cell = key_of(place, bucket)  # numbered by the few that were seen, so that they can be counted in an array
    n = np.bincount(cell)
    held = np.flatnonzero(n)
    key = key_of(seen[when_in(held)], bucket_in(held))
    return np.column_stack([key, n[held], _summed(cell, bs)[held], _summed(cell, value)[held]])


def _summed(cell: np.ndarray, amount: np.ndarray) -> np.ndarray:
    low = np.bincount(cell, amount & ((1 << _LOW) - 1)).astype(np.int64)
    return low + (np.bincount(cell, amount >> _LOW).astype(np.int64) << _LOW)


def _histograms(raw: bytes, shape: Shape) -> np.ndarray | None:
    lines = raw.count(b"\n")
    tidy = (
        not raw.translate(None, b"0123456789, \n") and b"  " not in raw and raw.count(b",") == lines * (shape.width - 1)
    )
    if not tidy or b",\n" in raw or b", \n" in raw or b"\n," in raw or b",," in raw or b", ," in raw:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy warns or raises, by version, where it stops early
        try:
            numbers = np.fromstring(raw.replace(b"\n", b","), np.int64, sep=",")
        except ValueError:
            return None
    if len(numbers) != lines * shape.width or len(set(np.diff(_line_commas(raw)))) > 1:
        return None
    rows = numbers.reshape(lines, shape.width)
    t, ddir, bs, counts = rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3:]
    if max(t.max() >= TIME_LIMIT, ddir.max() > 2, bs.max() >= BS_LIMIT, counts.max() >= 10**8) or rows.min() < 0:
        return None
    row, place = np.nonzero(counts)
    n, stride = counts[row, place], BUCKETS // (shape.width - 3)
    bucket = place * stride + stride // 2
    when = when_of(np.maximum(t - shape.half_ms, 0)[row] // 1000, ddir[row], 0)
    return add_cells([np.column_stack([key_of(when, bucket), n, n * bs[row], n * _MIDPOINTS[bucket]])])


def _line_commas(raw: bytes) -> np.ndarray:
    """How many commas stand before each line's end."""
    marks = np.frombuffer(raw, np.uint8)
    commas, ends = np.flatnonzero(marks == ord(",")), np.flatnonzero(marks == ord("\n"))
    return np.concatenate([[0], np.searchsorted(commas, ends)])
