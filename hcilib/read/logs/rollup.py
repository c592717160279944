"""fio's logs as a rollup: I/Os, bytes and latency per second, direction and histogram bucket. What is added up stays
exact.

Whatever is asked of latency over time is asked of this table: percentiles come last (`hcilib.percentiles`), and are
never averaged. Files are counted a part of each at a time, in threads: the compiled loop needs no lock of Python's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pandas as pd

from hcilib.compressed import DAMAGE, NotAFileError, damaged, is_packed, opened, unpacking
from hcilib.engine import located, mapped
from hcilib.read.fio.fio_fast import LOCAL_HOST
from hcilib.read.logs.rollup_script import HEAD, LINE_LIMIT, NAME, LineError, Shape, describe, shape_of
from hcilib.read.logs.rollup_table import (
    NOTHING,
    FioLogError,
    Group,
    HostError,
    SumError,
    add_cells,
    frame,
    groups_of,
    pushed_host,
    read_pushed,
)

if TYPE_CHECKING:
    from hcilib.engine import Engine

FILES = 8  # a process of an engine counts at a time
SAVED = ".parquet"
SMALL_BYTES = 32 << 20  # read before numba is imported
PART_BYTES = 8 << 20  # of a log, read at a time
LOOKED_AT, LEAST_TOLD = 40, 4  # lines of a log of histograms, and differences between them, that tell how it was made


class Slice(NamedTuple):
    """A part of a log in whole lines: from one byte of the file to another. `end` None: to where the file ends."""

    start: int = 0
    end: int | None = None


WHOLE = Slice()
Part = tuple[Group, int, Path, Slice]
"""Group, number, file and slice."""


def rollup_of_logs(
    path: str | Path | Sequence[str | Path],
    log: str | Iterable[str] | None = None,
    engine: Engine = None,
    kernel: str | None = None,
    workers: int | None = None,
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """What `hcilib.read_rollup` gives of logs, folders of logs and saved rollups; FioLogError as there."""
    wanted = None if log is None else {log} if isinstance(log, str) else set(log)
    paths = [located(p) for p in ([path] if isinstance(path, (str, Path)) else path)]
    if [p.suffix for p in paths] == [SAVED]:  # nothing is to be added or aligned
        return _chosen(_saved(paths[0], None if wanted else columns), wanted, columns)
    saved = [_saved(p) for p in paths if p.suffix == SAVED]
    logs, documents = _found(p for p in paths if p.suffix != SAVED)
    if not (saved or logs or documents):
        raise FioLogError(f"{', '.join(map(str, paths))}: no fio logs (PREFIX_clat.1.log and the like) there")
    counted = Counted()
    try:
        rolled = counted.add_documents(documents)
        of_logs = [p for p in logs if p.name not in rolled and (wanted is None or group_of(p)[2] in wanted)]
        for part in _counted(of_logs, engine, kernel, workers):
            counted.add(part)
        for table in saved:
            counted.add_table(table)
        return _chosen(counted.table(wanted), None, columns)
    except HostError as error:
        raise FioLogError(f"{_files_of(error.args[1], [*logs, *documents, *paths])}: {error.args[0]}") from None
    except MemoryError:
        raise FioLogError(
            f"{', '.join(map(str, paths))}: the seconds and latencies of these logs do not fit in memory; do their "
            "times make sense? If so, read fewer logs at once"
        ) from None


def _chosen(table: pd.DataFrame, wanted: set[str] | None, columns: Sequence[str] | None) -> pd.DataFrame:
    if wanted is not None:
        table = table[table["log"].isin(wanted)].reset_index(drop=True)
    return table if columns is None else table[list(columns)]


def add_rollups(rollups: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """One rollup of several: rows of one host, job, log, second, direction and bucket are added, then aligned anew."""
    counted = Counted()
    for table in rollups:
        counted.add_table(table)
    return counted.table()


def _files_of(host: str, paths: Iterable[Path]) -> str:
    """The files that tell of a host, the first four by name; all that were read where a saved rollup holds it."""
    paths = list(dict.fromkeys(paths))
    own = [p for p in paths if host in (pushed_host(p), NAME.fullmatch(p.name) and group_of(p)[0])] or paths
    more = f" and {len(own) - 4} more" if len(own) > 4 else ""
    return ", ".join(map(str, own[:4])) + more


def _found(paths: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """The logs, and the documents that VMs made of theirs, of files and folders; a file that is neither is refused."""
    files = []
    for path in paths:
        if path.is_dir():
            files += [p for p in sorted(path.iterdir()) if NAME.fullmatch(p.name) or pushed_host(p)]
        elif pushed_host(path) or group_of(path):  # which refuses any other name
            files.append(path)
    files = list(dict.fromkeys(files))
    return [p for p in files if not pushed_host(p)], [p for p in files if pushed_host(p)]


def _saved(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    try:
        return pd.read_parquet(path, columns=None if columns is None else list(columns))
    except (OSError, ValueError) as error:
        raise FioLogError(f"{path}: not a saved rollup: {error}") from None


def _counted(paths: Sequence[Path], engine: Engine, kernel: str | None, workers: int | None) -> Iterator[Counted]:
    """The logs counted: here by threads, or by the processes of an engine, a few files each."""
    if engine is None:
        yield count_logs(paths, kernel, workers)
        return
    paths = sorted((path.absolute() for path in paths), key=group_of)  # a cluster's workers stand elsewhere
    chunks = [paths[i : i + FILES] for i in range(0, len(paths), FILES)]
    yield from mapped(partial(count_logs, kernel=kernel, workers=1), chunks, engine)


# --- counting


class Counter(Protocol):
    """What rollup_kernel and rollup_table each have one of."""

    def feed(self, block: memoryview, shape: Shape) -> None: ...

    def cells(self) -> np.ndarray: ...


@dataclass
class Counted:
    """What was counted: (host, job, log) -> parts to be added up; picklable."""

    parts: dict[Group, list[np.ndarray]] = field(default_factory=dict)
    every_ms: int = 0
    torn: list[str] = field(default_factory=list)

    def add_cells(self, group: Group, cells: np.ndarray) -> None:
        self.parts.setdefault(group, []).append(cells)

    def add(self, other: Counted) -> None:
        """All of another, which gives its cells away: they may be large, and are not to be held twice."""
        while other.parts:
            group, parts = other.parts.popitem()
            self.parts.setdefault(group, []).extend(parts)
        self.every_ms = max(self.every_ms, other.every_ms)
        self.torn += other.torn

    def add_documents(self, paths: Sequence[Path]) -> set[str]:
        """What VMs rolled up; returns the names of the raw logs, which must not be counted again should they be there
        too."""
        rolled = set()
        for path in paths:
            host, document = pushed_host(path), read_pushed(path)
            rolled |= {f"{name}.{host}" for name in document.logs}
            self.torn += [f"{name}.{host}" for name in document.torn]
            for table in document.tables:
                self.every_ms = max(self.every_ms, table.every_ms)
                self.add_cells((host, table.job, table.log), table.array(path))
        return rolled

    def add_table(self, table: pd.DataFrame) -> None:
        self.every_ms = max(self.every_ms, table.attrs.get("every_ms", 0))
        self.torn += table.attrs.get("torn", [])
        for group, cells in groups_of(table).items():
            self.add_cells(group, cells)

    def table(self, wanted: set[str] | None = None) -> pd.DataFrame:
        """All of it added up; what was counted is given away, for it may be large."""
        groups = {group: self._summed(group) for group in sorted(self.parts) if wanted is None or group[2] in wanted}
        for group in [g for g, cells in groups.items() if not len(cells)]:
            del groups[group]
        return frame(groups, self.every_ms, sorted(self.torn))

    def _summed(self, group: Group) -> np.ndarray:
        with said_of(group):
            return add_cells(self.parts.pop(group))


@contextlib.contextmanager
def said_of(group: Group) -> Iterator[None]:
    """A sum that cannot be made, early in a thread or at the end, names the logs that do not fit together."""
    try:
        yield
    except SumError as error:
        raise HostError(f"{group[2]} logs of {group[1]}: {error}", group[0]) from None


def count_logs(paths: Sequence[Path], kernel: str | None = None, workers: int | None = None) -> Counted:
    """Count every line of the logs; threads take parts of files from one queue, for the compiled loop needs no lock of
    Python's.

    All logs of a group are read abreast, the first parts of all before the second ones: fio logs in order of time, so
    that a counter holds the seconds of one part, however long the logs are.
    """
    for path in paths:
        _require_counted_once(path)
    counted, parts = Counted(), _parts(paths)
    queue: SimpleQueue[Part] = SimpleQueue()
    for part in parts:
        queue.put(part)
    workers = min(workers or len(os.sched_getaffinity(0)), len(parts))
    new_counter = _kernel(kernel, paths)
    together = _Together()
    if workers == 1:
        counted.add(_work(queue, new_counter(), together))
    else:
        with ThreadPoolExecutor(max(workers, 1)) as pool:
            for done in [pool.submit(_work, queue, new_counter(), together) for _ in range(workers)]:
                counted.add(done.result())
    counted.parts = together.by_group()
    return counted


def _parts(paths: Sequence[Path]) -> list[Part]:
    """Group, number, file and slice, in the order of reading. Logs of a group have equally many parts, of about the
    same seconds."""
    longest: dict[Group, int] = {}
    for path in paths:
        with contextlib.suppress(OSError):  # whoever reads it says why
            longest[group_of(path)] = max(longest.get(group_of(path), 0), path.stat().st_size)
    numbers = {group: -(-size // PART_BYTES) for group, size in longest.items()}
    return sorted(
        (group_of(path), n, path, part)
        for path in paths
        for n, part in enumerate(slices(path, numbers.get(group_of(path), 1)))
    )


@dataclass
class _Together:
    """What the threads counted, added up as they come to the end of a part: of the same seconds it is held only
    once."""

    cells: dict[tuple[Group, int], np.ndarray] = field(default_factory=dict)
    turn: Lock = field(default_factory=Lock)

    def take(self, group: Group, n: int, counter: Counter) -> None:
        with self.turn, said_of(group):  # in turn, for while a counter is emptied its cells are held twice
            known = self.cells.pop((group, n), NOTHING)
            self.cells[group, n] = add_cells([known, counter.cells()])

    def by_group(self) -> dict[Group, list[np.ndarray]]:
        groups: dict[Group, list[np.ndarray]] = {}
        for group, n in sorted(self.cells):
            groups.setdefault(group, []).append(self.cells.pop((group, n)))
        return groups


def _kernel(kernel: str | None, paths: Sequence[Path]) -> Callable[[], Counter]:
    """The counter to use: compiled, unless numba is not there or would take longer to load than the logs to read."""
    if kernel not in (None, "numba", "pyarrow"):
        raise ValueError(f"kernel {kernel!r}: expected 'numba' or 'pyarrow'")
    if kernel == "numba" or (kernel is None and sum(p.stat().st_size for p in paths if p.exists()) > SMALL_BYTES):
        try:
            from hcilib.read.logs.rollup_kernel import Counter as Compiled

            return Compiled
        except ImportError:
            if kernel:
                raise
    from hcilib.read.logs.rollup_table import Counter as Plain

    return Plain


def _work(queue: SimpleQueue[Part], counter: Counter, together: _Together) -> Counted:
    """Parts of files until there are no more; the counter is emptied where other seconds or another group begin."""
    counted, before = Counted(), None
    for group, n, path, part in _taken(queue):
        if before not in (None, (group, n)):
            together.take(*before, counter)
        before = group, n
        with said_of(group):
            shape = each_block(path, group[2], counted.torn, counter.feed, part)
        counted.every_ms = max(counted.every_ms, shape.every_ms if shape else 0)
    if before:
        together.take(*before, counter)
    return counted


def _taken(queue: SimpleQueue[Part]) -> Iterator[Part]:
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return


# --- a log's text as blocks of whole lines, plain or packed, of any size, in bounded memory ---


BLOCK = 1 << 20

ReadInto = Callable[[memoryview], int]


def group_of(path: Path) -> Group:
    """Host, job and log, by the name; FioLogError where no log has such a name."""
    name = NAME.fullmatch(path.name)
    if not name:
        raise FioLogError(f"{path}: not named like a fio log (PREFIX_iops|bw|lat|clat|slat|clat_hist[.N].log[.HOST])")
    return name["host"] or LOCAL_HOST, name["job"], name["log"]


def _require_counted_once(path: Path) -> None:
    """Refuse a log of histograms as fio's server sends them to its client.

    There each histogram is the difference to the one before, which has just been made a difference itself (fio 3.33):
    what is written is v[k] = true[k] + v[k - 2], so that I/Os are counted again in every second line. No other log has
    lines that each have the I/Os of the one before last, bucket by bucket, and more.
    """
    host, _, log = group_of(path)
    if log != "clat_hist" or host == LOCAL_HOST:
        return
    try:
        lines = bytes(next(line_blocks(path), b"")).splitlines()[:LOOKED_AT]
        rows = np.array([line.split(b",") for line in lines]).astype(np.int64)
    except (OSError, ValueError):  # whoever counts it says why
        return
    of_each = (rows[rows[:, 1] == ddir, 3:] for ddir in np.unique(rows[:, 1])) if rows.ndim == 2 else ()
    grown = (counts[2:] - counts[:-2] for counts in of_each)
    if any(len(more) >= LEAST_TOLD and (more >= 0).all() and more.any(axis=1).all() for more in grown):
        raise FioLogError(
            f"{path}: its histograms count I/Os again and again, as fio's server (3.33) sends them to its client; take "
            "latency over time from logs of single I/Os, or log histograms where fio itself runs (launcher: per-host)"
        )


def slices(path: Path, number: int) -> list[Slice]:
    """A plain log in up to so many parts alike, cut behind lines; one that is packed, or cannot be read, as a whole."""
    try:
        with opened(path) as file:
            if is_packed(file.read(4)):
                return [WHOLE]
            length, cuts = file.seek(0, os.SEEK_END), {0}
            for n in range(1, number):
                file.seek(max(length * n // number - 1, 0))
                if not file.readline(LINE_LIMIT).endswith(b"\n"):
                    break  # no line is that long: it is to be said of the line as a whole
                cuts.add(file.tell())
    except (OSError, ValueError):
        return [WHOLE]  # whoever reads it says why
    return [Slice(start, end) for start, end in pairwise(sorted(cuts | {length}))] or [WHOLE]


def line_blocks(
    path: str | Path, torn: list[str] | None = None, size: int = BLOCK, part: Slice = WHOLE
) -> Iterator[memoryview]:
    """Whole lines, as views that hold until the next is asked for.

    A plain file is read up to the length it had when it was opened: one that grows ends somewhere. A last line without
    its end is not among the lines; the path of such a file is appended to `torn`.

    Raises
    ------
    FioLogError
        No such file; a line longer than `LINE_LIMIT`; a compressed stream that is damaged or cut off.
    """
    buffer = bytearray(size + LINE_LIMIT)
    view, kept, done = memoryview(buffer), 0, part.start
    try:
        with opened(path) as file:
            read = _reader(file, part)
            while count := read(view[kept : kept + size]):
                end = buffer.rfind(b"\n", kept, kept + count) + 1
                filled = kept + count
                if end:
                    yield view[:end]
                    done += end
                    view[: filled - end] = view[end:filled]
                kept = filled - end
                if kept >= LINE_LIMIT:
                    raise FioLogError(
                        f"{path}: the line that begins at byte {done} is longer than {LINE_LIMIT} bytes: this is no "
                        "log of fio's, or its end was overwritten"
                    )
    except DAMAGE as error:
        raise FioLogError(damaged(path, error)) from None
    except NotAFileError as error:
        raise FioLogError(str(error)) from None
    except OSError as error:
        raise FioLogError(f"{path}: {error.strerror or error}") from None
    if kept and torn is not None:
        torn.append(str(path))


def _reader(file: BufferedReader, part: Slice) -> ReadInto:
    """What fills a view with the next unpacked bytes."""
    start = file.read(4)
    file.seek(0)
    if is_packed(start):
        return _from_pieces(unpacking(file))
    left = (file.seek(0, os.SEEK_END) if part.end is None else part.end) - part.start
    file.seek(part.start)

    def read(view: memoryview) -> int:
        nonlocal left
        count = file.readinto(view[: min(left, len(view))])
        left -= count
        return count

    return read


def _from_pieces(pieces: Iterator[bytes]) -> ReadInto:
    rest = memoryview(b"")

    def read(view: memoryview) -> int:
        nonlocal rest
        filled = 0
        while filled < len(view):
            if not rest:
                rest = memoryview(next(pieces, b""))
                if not rest:
                    break
            count = min(len(rest), len(view) - filled)
            view[filled : filled + count] = rest[:count]
            filled, rest = filled + count, rest[count:]
        return filled

    return read


def each_block(
    path: Path, log: str, torn: list[str], use: Callable[[memoryview, Shape], None], part: Slice = WHOLE
) -> Shape | None:
    """Hand every block of whole lines to `use`; its LineError becomes a FioLogError with file and line.

    Returns the shape of the log, None if it holds no line: its first lines tell it, whichever part is read.
    """
    shape, done = None, 0
    try:
        if part.start:
            shape = _shape(next(line_blocks(path, size=HEAD), b""), log)
        done = part.start
        for block in line_blocks(path, torn, part=part):
            shape = shape or _shape(block, log)
            if shape:
                use(block, shape)
            done += len(block)
    except LineError as error:
        number = line_number(path, done + error.offset)
        raise FioLogError(describe(str(path), error.line, number, error.why)) from None
    return shape


def _shape(block: memoryview | bytes, log: str) -> Shape | None:
    head = bytes(block[:HEAD])
    return shape_of(head[: head.rfind(b"\n") + 1], log) if head.strip() else None


def line_number(path: Path, offset: int) -> int:
    """The number of the line that begins at an offset of the uncompressed text; counted only when it is to be said."""
    number, seen = 1, 0
    for block in line_blocks(path):
        number += bytes(block[: max(offset - seen, 0)]).count(b"\n")
        seen += len(block)
        if seen > offset:
            break
    return number
