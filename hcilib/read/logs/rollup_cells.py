"""Cells of a rollup as one array: rows of key, n, bytes and sum (int64), sorted by key. Their sum is exact, in any order."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hcilib.read.logs.log_blocks import FioLogError
from hcilib.read.logs.rollup_script import SUM_LIMIT

_TOO_MUCH = "the latencies or bytes of one second add up to more than 64 bits hold: these are no logs of a run"
ROWS_LIMIT = 1 << 25  # a day of two directions; more comes of times that are none
PIECE = 1 << 13  # cells that are added at a time
MAPPED = 1 << 15  # cells, 1 MB: from so many on they get memory of their own
NOTHING = np.empty((0, 4), np.int64)


class SumError(FioLogError):
    """Rollups that cannot be added up. Whoever knows whose they are says so (see rollup.said_of)."""


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
    """Cells to be filled: column after column, as the table wants them, in memory that the system gets back when they are gone.

    Of freed arrays of this size glibc may keep tens of MB for later ones, and none come. Small ones are ordinary arrays: a process
    may map 65,530 pieces of memory, and a fleet has thousands of logs.
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
