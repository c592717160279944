"""Files as bytes, whether they are stored plain, as zstd or as gzip; bounded, as a few KB unpack to gigabytes."""

from __future__ import annotations

import gzip
import io
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

from hcilib.model.places import at_home

LARGEST = 2**28
"""Bytes, unpacked, that are read at once: ten thousand jobs' json+. A larger document of fio's is mapped
(hcilib.read.fio.fio). Any other larger file is something else, or was packed to fill memory."""
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError)
"""What `unpacking` raises of a stream that is damaged or cut off."""
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_PIECE = 2**10
"""Of a packed stream at a time: 4 bytes of zstd may become 128 KiB, so never more than 32 MiB at once."""
_UNPACKED_PIECE = 2**20
_READ_PIECE, _STREAM_PIECE = 2**16, 2**22


class NotAFileError(ValueError):
    """A path that leads to a folder, a pipe or a device; the sentence names it."""


class TooLargeError(ValueError):
    """A file of more than `LARGEST` bytes, which `pieces` reads; the sentence names it."""


def opened(path: str | Path) -> io.BufferedReader:
    """An ordinary file, opened to be read.

    Raises
    ------
    NotAFileError
        It is a folder, a pipe or a device, or a link to one.
    OSError
        It is not there, or not for us to read.
    """
    if not isinstance(path, (str, Path)):
        said = f"{type(path).__name__} {str(path)[:80]}"
        raise NotAFileError(f"one file is read here, not a {said}; read_results and read_rollup take several")
    place = at_home(path)
    mode = place.stat().st_mode  # once: a file may come into being between two questions
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise NotAFileError(
            f"{path}: {kind}, where one file is read; read_results takes folders of results, read_rollup of logs"
        )
    return place.open("rb")


def read_bytes(path: str | Path) -> bytes:
    """The content of a file, unpacked. The magic number decides, not the name: names lie after a copy.

    Raises
    ------
    ValueError
        It is no file, its compressed stream is damaged or cut off, or there are more than `LARGEST` bytes
        (`TooLargeError`); the sentence names the file.
    """
    with opened(path) as file:
        return unpacked(read_bounded(file), path)


def pieces(path: str | Path) -> Iterator[bytes]:
    """The content of a file, unpacked, in pieces of at most 32 MiB; errors as of `read_bytes`, but for size."""
    with opened(path) as file:
        start = file.read(4)
        file.seek(0)
        if not is_packed(start):
            yield from iter(lambda: file.read(_STREAM_PIECE), b"")
            return
        try:
            yield from unpacking(file)
        except DAMAGE as error:
            raise ValueError(damaged(path, error)) from None


def read_bounded(file: BinaryIO) -> bytes:
    """What is in an open file; of one that is too large as much as `unpacked` needs to refuse it. By growing pieces:
    room for the largest file, asked for at once, costs a small one more than its reading."""
    parts: list[bytes] = []
    left, size = LARGEST + 1, _READ_PIECE
    while left and (piece := file.read(min(left, size))):
        parts.append(piece)
        left, size = left - len(piece), 8 * size
    return b"".join(parts)


def unpacked(raw: bytes, path: str | Path) -> bytes:
    """As `read_bytes`, of bytes that were read already; `path` is for the sentence."""
    if len(raw) > LARGEST:
        raise TooLargeError(_too_large(path, "it"))
    if not is_packed(raw):
        return raw
    parts, left = [], LARGEST
    try:
        for piece in unpacking(io.BytesIO(raw)):
            parts.append(piece)
            left -= len(piece)
            if left < 0:
                raise TooLargeError(_too_large(path, "unpacked it"))
    except DAMAGE as error:
        raise ValueError(damaged(path, error)) from None
    return b"".join(parts)


def damaged(path: str | Path, error: Exception) -> str:
    """The sentence about a file whose unpacking ended with one of `DAMAGE`."""
    return f"{path}: the compressed stream is damaged or cut off ({error}); copy the file again"


def _too_large(path: str | Path, what: str) -> str:
    return f"{path}: {what} is more than the {LARGEST:,} bytes that are read at once; is this a result file?"


def is_packed(start: bytes) -> bool:
    """By the first bytes."""
    return start.startswith((_ZSTD, _GZIP))


def unpacking(file: BinaryIO) -> Iterator[bytes]:
    """The content of a packed file in pieces of at most 32 MiB; one of `DAMAGE` where it is not whole."""
    start = file.read(4)
    file.seek(0)
    return _unzstd(file) if start.startswith(_ZSTD) else _gunzip(file)


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
    """All members, and the zeros that tapes pad them with."""
    with gzip.GzipFile(fileobj=file) as content:
        while piece := content.read(_UNPACKED_PIECE):
            yield piece
