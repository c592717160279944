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
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pandas as pd

from hcilib.engine import located, mapped
from hcilib.read.logs.log_blocks import FioLogError, Group, Slice, each_block, group_of, slices
from hcilib.read.logs.rollup_script import NAME, Shape
from hcilib.read.logs.rollup_table import (
    NOTHING,
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
        of_logs = [p for p in logs if p.name not in rolled and _is_wanted(p, wanted)]
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
            "times make sense? "
            "If so, read fewer logs at once"
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


def _is_wanted(path: Path, wanted: set[str] | None) -> bool:
    return wanted is None or group_of(path)[2] in wanted


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
    """What rollup_kernel and rollup_plain each have one of."""

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
    from hcilib.read.logs.rollup_plain import Counter as Plain

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
