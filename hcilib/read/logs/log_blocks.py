"""A log as blocks of whole lines: plain, zstd or gzip, of any size, in bounded memory."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import zstandard

from hcilib.read.logs.rollup_script import LINE_LIMIT

BLOCK = 1 << 20
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_PIECE = 1 << 10  # of a compressed stream: 4 bytes of zstd may become 128 KiB, so never more than 32 MiB at once

ReadInto = Callable[[memoryview], int]


class FioLogError(ValueError):
    """A log that cannot be read or used; the sentence names the file and the line or the option to change."""


class Slice(NamedTuple):
    """A part of a log in whole lines: from one byte of the file to another. `end` None: to where the file ends."""

    start: int = 0
    end: int | None = None


WHOLE = Slice()


def slices(path: Path, number: int) -> list[Slice]:
    """A plain log in up to so many parts alike, cut behind lines; one that is packed, or cannot be read, as a whole."""
    try:
        with path.open("rb") as file:
            if file.read(4).startswith((_ZSTD, _GZIP)):
                return [WHOLE]
            length, cuts = file.seek(0, os.SEEK_END), {0}
            for n in range(1, number):
                file.seek(max(length * n // number - 1, 0))
                if not file.readline(LINE_LIMIT).endswith(b"\n"):
                    break  # no line is that long: it is to be said of the line as a whole
                cuts.add(file.tell())
    except OSError:
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
        with (Path(path) if isinstance(path, str) else path).open("rb") as file:
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
                    raise FioLogError(f"{path}: the line that begins at byte {done} is longer than {LINE_LIMIT} bytes: this is no "
                                      "log of fio's, or its end was overwritten")  # fmt: skip
    except (EOFError, zlib.error, zstandard.ZstdError) as error:
        raise FioLogError(
            f"{path}: the compressed stream is damaged or cut off ({error}); copy the file again"
        ) from None
    except OSError as error:
        raise FioLogError(f"{path}: {error.strerror or error}") from None
    if kept and torn is not None:
        torn.append(str(path))


def _reader(file: BufferedReader, part: Slice) -> ReadInto:
    """What fills a view with the next uncompressed bytes. The magic number decides, not the name: names lie after a copy."""
    start = file.read(4)
    file.seek(0)
    if start.startswith(_ZSTD):
        return _from_pieces(_unzstd(file))
    if start.startswith(_GZIP):
        return _from_pieces(_gunzip(file))
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


def _unzstd(file: BinaryIO) -> Iterator[bytes]:
    """All frames. `decompressobj` tells a cut stream from a complete one; `stream_reader` does not."""
    frame = None
    while piece := file.read(_PIECE):
        while piece:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            if out := frame.decompress(piece):
                yield out
            piece = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame:
        raise EOFError("end of the last frame is missing")


def _gunzip(file: BinaryIO) -> Iterator[bytes]:
    """All members, a bounded piece at a time."""
    member = None
    while piece := file.read(_PIECE):
        while piece:
            member = member or zlib.decompressobj(wbits=31)
            if out := member.decompress(piece, BLOCK):
                yield out
            piece = member.unused_data if member.eof else member.unconsumed_tail
            member = None if member.eof else member
    if member:
        raise EOFError("end of the last member is missing")
