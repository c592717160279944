"""fio's logs counted, a part of each at a time, in threads: what `rollup` makes its table of."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Protocol

import numpy as np
import pandas as pd

from hcilib.read.fio.fio_document import LOCAL_HOST
from hcilib.read.logs.log_blocks import WHOLE, FioLogError, Slice, line_blocks, slices
from hcilib.read.logs.rollup_cells import NOTHING, SumError, add_cells
from hcilib.read.logs.rollup_pushed import pushed_host, read_pushed
from hcilib.read.logs.rollup_script import HEAD, NAME, LineError, Shape, describe, shape_of
from hcilib.read.logs.rollup_table import frame, groups_of

SMALL_BYTES = 32 << 20  # read before numba is imported
PART_BYTES = 8 << 20  # of a log, read at a time

Part = tuple[tuple[str, str, str], int, Path, Slice]
"""Group, number, file and slice."""


class Counter(Protocol):
    """What rollup_kernel and rollup_plain each have one of."""

    def feed(self, block: memoryview, shape: Shape) -> None: ...

    def cells(self) -> np.ndarray: ...


@dataclass
class Counted:
    """What was counted: (host, job, log) -> parts to be added up; picklable."""

    parts: dict[tuple[str, str, str], list[np.ndarray]] = field(default_factory=dict)
    every_ms: int = 0
    torn: list[str] = field(default_factory=list)

    def add_cells(self, group: tuple[str, str, str], cells: np.ndarray) -> None:
        self.parts.setdefault(group, []).append(cells)

    def add(self, other: Counted) -> None:
        """All of another, which gives its cells away: they may be large, and are not to be held twice."""
        while other.parts:
            group, parts = other.parts.popitem()
            self.parts.setdefault(group, []).extend(parts)
        self.every_ms = max(self.every_ms, other.every_ms)
        self.torn += other.torn

    def add_documents(self, paths: Sequence[Path]) -> set[str]:
        """What VMs rolled up; returns the names of the raw logs, which must not be counted again should they be there too."""
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

    def _summed(self, group: tuple[str, str, str]) -> np.ndarray:
        with said_of(group):
            return add_cells(self.parts.pop(group))


@contextlib.contextmanager
def said_of(group: tuple[str, str, str]) -> Iterator[None]:
    """A sum that cannot be made, early in a thread or at the end, names the logs that do not fit together."""
    try:
        yield
    except SumError as error:
        raise FioLogError(f"{group[2]} logs of {group[1]} on {group[0]}: {error}") from None


def count_logs(paths: Sequence[Path], kernel: str | None = None, workers: int | None = None) -> Counted:
    """Count every line of the logs; threads take parts of files from one queue, for the compiled loop needs no lock of Python's.

    All logs of a group are read abreast, the first parts of all before the second ones: fio logs in order of time, so that a
    counter holds the seconds of one part, however long the logs are.
    """
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
    """Group, number, file and slice, in the order of reading. Logs of a group have equally many parts, of about the same seconds."""
    longest: dict[tuple[str, str, str], int] = {}
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
    """What the threads counted, added up as they come to the end of a part: of the same seconds it is held only once."""

    cells: dict[tuple[tuple[str, str, str], int], np.ndarray] = field(default_factory=dict)
    turn: Lock = field(default_factory=Lock)

    def take(self, group: tuple[str, str, str], n: int, counter: Counter) -> None:
        with self.turn, said_of(group):  # in turn, for while a counter is emptied its cells are held twice
            known = self.cells.pop((group, n), NOTHING)
            self.cells[group, n] = add_cells([known, counter.cells()])

    def by_group(self) -> dict[tuple[str, str, str], list[np.ndarray]]:
        groups: dict[tuple[str, str, str], list[np.ndarray]] = {}
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
    from hcilib.read.logs.rollup_plain import Counter as Plain

    return Plain


def group_of(path: Path) -> tuple[str, str, str]:
    """Host, job and log, by the name; FioLogError where no log has such a name."""
    name = NAME.fullmatch(path.name)
    if not name:
        raise FioLogError(f"{path}: not named like a fio log (PREFIX_iops|bw|lat|clat|slat|clat_hist[.N].log[.HOST])")
    return name["host"] or LOCAL_HOST, name["job"], name["log"]


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
