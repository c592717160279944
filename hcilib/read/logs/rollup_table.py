"""What was counted of logs: cells that add up exactly, what VMs sent of theirs, and the table that analysis reads; and
the counting itself by pyarrow and numpy, where no compiler is installed (rollup_kernel does the same, faster).

Cells are rows of key, n, bytes and sum (int64), sorted by key; what a key says is read and written by the functions of
rollup_script alone. Their sum is exact, in any order. The table is made in the memory of the cells, for it may be
large.
"""

from __future__ import annotations

import inspect
import mmap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from hcilib import fio_buckets
from hcilib.compressed import read_bytes
from hcilib.fio_buckets import BUCKETS, MIDPOINTS, buckets_of
from hcilib.read.logs import rollup_script
from hcilib.read.logs.rollup_script import (
    BS_LIMIT,
    EPOCH_MS,
    FORMAT,
    NO_BUCKET,
    RATES,
    SUM_LIMIT,
    TIME_LIMIT,
    VALUE_LIMIT,
    Shape,
    averaged_in,
    bucket_in,
    count,
    ddir_in,
    key_of,
    new_table,
    second_in,
    when_in,
    when_of,
)

_TOO_MUCH = "the latencies or bytes of one second add up to more than 64 bits hold: these are no logs of a run"
ROWS_LIMIT = 1 << 25  # a day of two directions; more comes of times that are none
PIECE = 1 << 13  # cells that are added at a time
MAPPED = 1 << 15  # cells, 1 MB: from so many on they get memory of their own
NOTHING = np.empty((0, 4), np.int64)
Group = tuple[str, str, str]
"""Host, job and kind of log: what is counted together."""
Cells = dict[Group, np.ndarray]
"""(host, job, log) -> rows of key, n, bytes, sum."""
DIRECTIONS = ("read", "write", "trim")
LONGEST_S = 31 * 86400  # of one run; stalls between two times are rows, and clocks that jump must not make a million
LONGEST_MS = 1250  # between two samples, jitter and all; of rarer ones nothing tells that a second is missing
APART_S = 60  # between the hosts' times: beyond, their clocks have nothing in common
KIB = 1024  # fio logs bw in KiB/s
_LATENCY = np.append(np.array(MIDPOINTS, float), np.nan)
_PUSHED = "rollup.", ".json.gz"


# --- cells


class FioLogError(ValueError):
    """A log that cannot be read or used; the sentence names the file and the line or the option to change."""


class SumError(FioLogError):
    """Rollups that cannot be added up. Whoever knows whose they are says so (see rollup.said_of)."""


class HostError(FioLogError):
    """What is wrong with the logs of a host taken together, and the host: whoever knows the files names them."""

    def __str__(self) -> str:
        what, host = self.args
        return f"{host}: {what}"


def add_cells(parts: Iterable[np.ndarray]) -> np.ndarray:
    """The sum of rollups: cells of one key become one. Associative and commutative; nothing is lost.

    Raises SumError where a sum would not fit 64 bits, or where there are more than `ROWS_LIMIT` cells.
    """
    parts = [part if _is_sorted(part) else _added([part]) for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else NOTHING
    borders = np.unique(np.concatenate([part[PIECE::PIECE, 0] for part in parts]))
    cuts = [np.append(np.searchsorted(part[:, 0], borders), len(part)) for part in parts]
    begins, summed, filled = (0,) * len(parts), room(sum(map(len, parts))), 0
    for ends in zip(*cuts, strict=True):  # the logs' answer should not need much more memory than itself
        piece = _added([part[begin:end] for part, begin, end in zip(parts, begins, ends, strict=True)])
        parts = [part if end < len(part) else NOTHING for part, end in zip(parts, ends, strict=True)]
        summed[filled : filled + len(piece)] = piece
        begins, filled = ends, filled + len(piece)
        if filled > ROWS_LIMIT:
            raise SumError("the times in these logs are not those of a run: too many seconds and latencies to count")
    return summed[:filled] if filled > 0.9 * len(summed) else summed[:filled].copy(order="F")


def room(rows: int) -> np.ndarray:
    """Cells to be filled: column after column, as the table wants them, in memory that the system gets back when they
    are gone.

    Of freed arrays of this size glibc may keep tens of MB for later ones, and none come. Small ones are ordinary
    arrays: a process may map 65,530 pieces of memory, and a fleet has thousands of logs.
    """
    if rows < MAPPED:
        return np.empty((4, rows), np.int64).T
    try:
        memory = mmap.mmap(-1, 32 * rows)
    except OSError as error:
        raise MemoryError(f"{rows} cells: {error.strerror or error}") from None
    return np.frombuffer(memory, np.int64, 4 * rows).reshape(4, rows).T


def _added(parts: Sequence[np.ndarray]) -> np.ndarray:
    cells = np.concatenate(parts)
    if len(cells) == max(map(len, parts)) and _is_sorted(cells):
        return cells  # of one part, and so added up
    cells = cells[np.argsort(cells[:, 0], kind="stable")]
    starts = np.flatnonzero(np.diff(cells[:, 0], prepend=-1))
    if not len(starts):
        return NOTHING
    if np.add.reduceat(cells[:, 1:].astype(float), starts, axis=0).max() >= SUM_LIMIT:
        raise SumError(_TOO_MUCH)
    return np.column_stack([cells[starts, 0], np.add.reduceat(cells[:, 1:], starts, axis=0)])


def _is_sorted(part: np.ndarray) -> bool:
    return bool((np.diff(part[:, 0]) > 0).all())


def from_table(table: Mapping[int, Sequence[int]]) -> np.ndarray:
    """Cells of what `rollup_script` counted: key -> [n, bytes, sum]."""
    if any(max(cell) >= SUM_LIMIT for cell in table.values()):
        raise SumError(_TOO_MUCH)
    return np.array(sorted([key, *cell] for key, cell in table.items()), np.int64).reshape(-1, 4)


# --- what a VM sends: `rollup.HOST.json.gz`, made there by rollup_script
# ------------------------------------------------


def script_for_vms() -> bytes:
    """The one file that VMs run: fio's buckets and rollup_script, which says how it is called."""
    buckets, script = inspect.getsource(fio_buckets), inspect.getsource(rollup_script)
    lines = [line for line in script.splitlines() if not line.startswith("from hcilib.fio_buckets import")]
    return "\n".join([buckets, *lines, ""]).encode()


class Table(msgspec.Struct):
    """Cells of one job's logs of one kind: rows of key, n, bytes and sum."""

    job: str
    log: str
    every_ms: int
    cells: list[tuple[int, int, int, int]]

    def array(self, path: Path) -> np.ndarray:
        """FioLogError if they are not what logs add up to."""
        try:
            cells = np.array(self.cells, np.int64).reshape(-1, 4)
        except OverflowError:
            cells = np.full((1, 4), -1)
        bucket, ddir = bucket_in(cells[:, 0]), ddir_in(cells[:, 0])
        sound = (cells >= 0).all() and (cells[:, 1] >= 1).all() and (cells[:, 1:] < SUM_LIMIT).all()
        if not (sound and (bucket <= BUCKETS).all() and (ddir <= 2).all()):
            raise FioLogError(f"{path}: holds numbers that no log adds up to; was it made by hcilib?")
        return cells


class Document(msgspec.Struct):
    """`logs`: the files that were rolled up there; `torn`: those of them whose last line had no end."""

    format: int
    logs: list[str]
    torn: list[str]
    tables: list[Table]


def pushed_name(host: str) -> str:
    return f"{_PUSHED[0]}{host}{_PUSHED[1]}"


def pushed_host(path: Path) -> str:
    """The host whose rollup a file is; empty if it is none."""
    name = path.name
    whole = name.startswith(_PUSHED[0]) and name.endswith(_PUSHED[1])
    return name[len(_PUSHED[0]) : -len(_PUSHED[1])] if whole else ""


def read_pushed(path: Path) -> Document:
    """The document; FioLogError if it is damaged or of another version."""
    try:
        document = msgspec.json.decode(read_bytes(path), type=Document)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise FioLogError(f"{path}: not a rollup made on a VM, or cut off ({error}); copy the file again") from None
    if document.format != FORMAT:
        raise FioLogError(f"{path}: rollup of format {document.format}, this hcilib reads {FORMAT}")
    return document


# --- the table


def frame(groups: Cells, every_ms: int, torn: list[str]) -> pd.DataFrame:
    """The table of `read_rollup`, in the memory of the cells: they are taken out of `groups`, and are no cells any
    more."""
    origins, epoch_s = _origins(groups)
    if every_ms <= LONGEST_MS:
        ends = _ends(groups, origins)
        for group in list(groups):
            groups[group] = _with_stalls(groups.pop(group), ends[group[1:]] + origins[group[0]])
    keys, sizes = list(groups), np.array([len(cells) for cells in groups.values()], int)
    key, count, size, total = _taken(groups, sizes.sum()).T
    for (host, _, log), rows, end in zip(keys, sizes, sizes.cumsum(), strict=True):
        if log == "bw":
            _in_bytes(total[end - rows : end], host)
    columns = {name: _category([group[i] for group in keys], sizes) for i, name in enumerate(("host", "job", "log"))}
    low = key.astype(np.int16)  # a rollup may be large: nothing of it is held twice, not even for a moment
    columns["averaged"] = averaged_in(low).astype(bool)
    columns["ddir"] = pd.Categorical.from_codes(ddir_in(low).astype(np.int8), DIRECTIONS)
    bucket = bucket_in(low)
    second = _seconds_in_place(key)
    t_s = np.repeat(np.array([origins[host] for host, _, _ in keys], np.int64), sizes)
    columns |= {
        "second": second, "t_s": np.subtract(second, t_s, out=t_s),
        "bucket": np.where(bucket == NO_BUCKET, np.int16(-1), bucket), "lat_ns": _LATENCY[bucket],
        "count": count, "bytes": size, "sum": total, "stalled": count == 0,
    }  # fmt: skip
    table = pd.DataFrame(columns, copy=False)
    table.attrs |= {"epoch_s": epoch_s, "torn": torn, "every_ms": every_ms}
    return table


def _seconds_in_place(key: np.ndarray) -> np.ndarray:
    """`second_in` of keys that are not needed any more, in their own memory."""
    for begin in range(0, len(key), PIECE):
        key[begin : begin + PIECE] = second_in(key[begin : begin + PIECE])
    return key


def _taken(groups: Cells, rows: int) -> np.ndarray:
    """The cells of all groups, one after the other; those of a single one as they are, if they may be written to."""
    if len(groups) == 1 and next(iter(groups.values())).flags.writeable:
        return groups.popitem()[1]
    together, filled = room(rows), 0
    for group in list(groups):
        cells = groups.pop(group)
        together[filled : filled + len(cells)] = cells
        filled += len(cells)
    return together


def _in_bytes(rates: np.ndarray, host: str) -> None:
    if rates.max() >= 1 << 52:
        raise HostError("the rates of bw logs add up to more than 64 bits hold: these are no logs of a run", host)
    rates *= KIB


def _category(names: list[str], sizes: np.ndarray) -> pd.Categorical:
    known = sorted(set(names))
    return pd.Categorical.from_codes(np.repeat(np.array([known.index(n) for n in names], np.int16), sizes), known)


def groups_of(table: pd.DataFrame) -> Cells:
    """The cells that a table was made of; its stalls are found anew when they are added to others'."""
    held = table[table["count"] > 0]
    groups = {}
    for group, rows in held.groupby(["host", "job", "log"], observed=True, sort=True):
        bucket = rows["bucket"].to_numpy(np.int64)
        ddir = rows["ddir"].map({name: code for code, name in enumerate(DIRECTIONS)}).to_numpy(np.int64)
        when = when_of(rows["second"].to_numpy(np.int64), ddir, rows["averaged"].to_numpy(np.int64))
        total = rows["sum"].to_numpy(np.int64) // (KIB if group[2] == "bw" else 1)
        key = key_of(when, np.where(bucket < 0, NO_BUCKET, bucket))
        groups[group] = np.column_stack([key, rows["count"].to_numpy(), rows["bytes"].to_numpy(), total])
    return groups


def _spans(groups: Cells, part: int | slice) -> dict:
    """First and last second of what is alike in a part of the group's name."""
    spans: dict = {}
    for group, cells in groups.items():
        first, last = int(second_in(cells[0, 0])), int(second_in(cells[-1, 0]))
        known = spans.get(group[part], (first, last))
        spans[group[part]] = min(first, known[0]), max(last, known[1])
    return spans


def _origins(groups: Cells) -> tuple[dict[str, int], int | None]:
    """Host -> the second that is its t_s 0, and which one that is for all (None if each has its own).

    Epochs are compared as they are while they overlap; other times count from each host's own start.
    """
    spans = _spans(groups, 0)
    for host, (first, last) in spans.items():
        if first < EPOCH_MS // 1000 <= last:
            raise HostError("some logs count from 1970 and some from the job's start; use one log_unix_epoch", host)
        if last - first > LONGEST_S:
            raise HostError(f"logs span {last - first} s: two runs, or a clock that jumped; read each alone", host)
    relative = {host for host, (first, _) in spans.items() if first < EPOCH_MS // 1000}
    if not relative and spans and not _apart(sorted(spans.values())):
        origin = min(first for first, _ in spans.values())
        return dict.fromkeys(spans, origin), origin
    return {host: 0 if host in relative else first for host, (first, _) in spans.items()}, None


def _apart(spans: list[tuple[int, int]]) -> bool:
    """Whether two of the spans have a gap between them that no start skew explains."""
    reached = spans[0][1]
    for first, last in spans:
        if first > reached + APART_S:
            return True
        reached = max(reached, last)
    return False


def _ends(groups: Cells, origins: dict[str, int]) -> dict[tuple[str, str], int]:
    """The last second, since the start of the run, in which a job on any host logged something of a kind: (job, log) ->
    t_s."""
    ends: dict[tuple[str, str], int] = {}
    for (host, job, log), cells in groups.items():
        last = int(second_in(cells[-1, 0])) - origins[host]
        ends[job, log] = max(last, ends.get((job, log), last))
    return ends


def _with_stalls(cells: np.ndarray, end: int) -> np.ndarray:
    """A cell of nothing for each second after the first and before `end`, and direction, in which nothing was
    logged."""
    second, ddir = second_in(cells[:, 0]), ddir_in(cells[:, 0])
    begin = int(second[0])
    missing = []
    for code in np.unique(ddir):
        silent = np.ones(max(end - begin, 0), bool)
        silent[second[(ddir == code) & (second < end)] - begin] = False
        missing.append(key_of(when_of(begin + np.flatnonzero(silent), int(code), 0), NO_BUCKET))
    keys = np.concatenate(missing)
    if not len(keys):
        return cells
    keys.sort()
    stalls = np.column_stack([keys, np.zeros((len(keys), 3), np.int64)])
    return np.insert(cells, np.searchsorted(cells[:, 0], keys), stalls, axis=0)


# --- counted by pyarrow's CSV reader and numpy


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
    return _counted(when_of(t // 1000, ddir, averaged), bucket, bs, value)


def _counted(when: np.ndarray, bucket: np.ndarray, bs: np.ndarray, value: np.ndarray) -> np.ndarray:
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
