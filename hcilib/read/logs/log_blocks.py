"""A log file: what its name says, and its text as blocks of whole lines, plain or packed, of any size, in bounded
memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from hcilib.read.compressed import DAMAGE, NotAFileError, damaged, is_packed, opened, unpacking
from hcilib.read.fio.fio_fast import LOCAL_HOST
from hcilib.read.logs.rollup_script import HEAD, LINE_LIMIT, NAME, LineError, Shape, describe, shape_of

BLOCK = 1 << 20

ReadInto = Callable[[memoryview], int]


class FioLogError(ValueError):
    """A log that cannot be read or used; the sentence names the file and the line or the option to change."""


class Slice(NamedTuple):
    """A part of a log in whole lines: from one byte of the file to another. `end` None: to where the file ends."""

    start: int = 0
    end: int | None = None


WHOLE = Slice()


Group = tuple[str, str, str]
"""Host, job and kind of log: what is counted together."""


def group_of(path: Path) -> Group:
    """Host, job and log, by the name; FioLogError where no log has such a name."""
    name = NAME.fullmatch(path.name)
    if not name:
        raise FioLogError(f"{path}: not named like a fio log (PREFIX_iops|bw|lat|clat|slat|clat_hist[.N].log[.HOST])")
    return name["host"] or LOCAL_HOST, name["job"], name["log"]


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
                        f"{path}: the line that begins at byte {done} is longer than {LINE_LIMIT} "
                        "bytes: this is no "
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
