"""Cells of logs: added up exactly, in any order; of saved tables, and of what VMs made of their logs.

Cells are rows of key, n, bytes and sum (int64), sorted by key; what a key says is read and written by the functions of
rollup_script alone.
"""

from __future__ import annotations

import inspect
import mmap
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from hcilib.model import fio_buckets
from hcilib.model.compressed import read_bytes
from hcilib.model.fio_buckets import BUCKETS
from hcilib.read.logs import rollup_script
from hcilib.read.logs.rollup_script import FORMAT, NO_BUCKET, SUM_LIMIT, bucket_in, ddir_in, key_of, when_of

TOO_MUCH = "the latencies or bytes of one second add up to more than 64 bits hold: these are no logs of a run"
ROWS_LIMIT = 1 << 25  # a day of two directions; more comes of times that are none
PIECE = 1 << 13  # cells that are added at a time
MAPPED = 1 << 15  # cells, 1 MB: from so many on they get memory of their own
ASIDE = 8  # parts that are kept apart before they are added up
NOTHING = np.empty((0, 4), np.int64)
Group = tuple[str, str, str]
"""Host, job and kind of log: what is counted together."""
Cells = dict[Group, np.ndarray]
"""(host, job, log) -> rows of key, n, bytes, sum."""
DIRECTIONS = ("read", "write", "trim")
KIB = 1024  # fio logs bw in KiB/s


class FioLogError(ValueError):
    """A log that cannot be read or used; the sentence names the file and the line or the option to change."""


class HostError(FioLogError):
    """What is wrong with the logs of a host taken together, and the host: whoever knows the files names them."""

    def __str__(self) -> str:
        what, host = self.args
        return f"{host}: {what}"


class SumError(FioLogError):
    """Cells that cannot be added up."""

    def of(self, group: Group) -> HostError:
        """The same, once it is known whose they are."""
        return HostError(f"{group[2]} logs of {group[1]}: {self}", group[0])


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


def put_aside(parts: list[np.ndarray], cells: np.ndarray) -> None:
    """One part more; many are added up meanwhile, for parts of the same seconds are held only once then."""
    parts.append(cells)
    if len(parts) > ASIDE:
        parts[:] = [add_cells(parts)]


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
        raise SumError(TOO_MUCH)
    return np.column_stack([cells[starts, 0], np.add.reduceat(cells[:, 1:], starts, axis=0)])


def _is_sorted(part: np.ndarray) -> bool:
    return bool((np.diff(part[:, 0]) > 0).all())


def groups_of(table: pd.DataFrame) -> Cells:
    """The cells that a table was made of; its stalls are found anew when they are added to others'."""
    held = table[table["count"] > 0]
    groups = {}
    for group, rows in held.groupby(["host", "job", "log"], sort=True):
        bucket = rows["bucket"].to_numpy(np.int64)
        ddir = rows["ddir"].map({name: code for code, name in enumerate(DIRECTIONS)}).to_numpy(np.int64)
        when = when_of(rows["second"].to_numpy(np.int64), ddir, rows["averaged"].to_numpy(np.int64))
        total = rows["sum"].to_numpy(np.int64) // (KIB if group[2] == "bw" else 1)
        key = key_of(when, np.where(bucket < 0, NO_BUCKET, bucket))
        groups[group] = np.column_stack([key, rows["count"].to_numpy(), rows["bytes"].to_numpy(), total])
    return groups


# --- what a VM sends: `rollup.HOST.json.gz`, made there by rollup_script


def script_for_vms() -> bytes:
    """The one file that VMs run: fio's buckets and rollup_script, which says how it is called."""
    buckets, script = inspect.getsource(fio_buckets), inspect.getsource(rollup_script)
    lines = [line for line in script.splitlines() if not line.startswith("from hcilib.model.fio_buckets import")]
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


def read_pushed(path: Path) -> Document:
    """The document; FioLogError if it is damaged or of another version."""
    try:
        document = msgspec.json.decode(read_bytes(path), type=Document)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise FioLogError(f"{path}: not a rollup made on a VM, or cut off ({error}); copy the file again") from None
    if document.format != FORMAT:
        raise FioLogError(f"{path}: rollup of format {document.format}, this hcilib reads {FORMAT}")
    return document
