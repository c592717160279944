"""Files as bytes, whether they are stored plain, as zstd or as gzip; bounded, as a few KB unpack to gigabytes."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from hcilib.model.places import at_home

LARGEST = 2**28
"""Bytes, unpacked, that are read at once: ten thousand jobs' json+. A larger document of fio's is mapped
(hcilib.read.fio.fio). Any other larger file is something else, or was packed to fill memory."""
PIECE = 2**20
MOST_TIMES = 100
"""By which a file may grow as it is unpacked. 3,000 jobs that differ by 2 % grow by 40. What grows by 1,000 is made to
fill memory: a value of JSON takes more there than in its text."""
_PACKED = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip"}
"""How a packed file begins -> what pyarrow calls its form."""


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
    return open(place, "rb", opener=_at_once)


def _at_once(path: str, flags: int) -> int:
    """Open a file without waiting for what it may say later, as some of /proc would be waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # Windows has no such flag, and no such file


def read_bytes(path: str | Path) -> bytes:
    """The content of a file, unpacked.

    Raises
    ------
    ValueError
        It is no file, its compressed stream is damaged or cut off, or there are more than `LARGEST` bytes
        (`TooLargeError`); the sentence names the file.
    """
    parts, read = [], 0
    for piece in pieces(path):
        parts.append(piece)
        read += len(piece)
        if read > MOST_TIMES * max(PIECE, at_home(path).stat().st_size):
            raise ValueError(f"{path}: unpacks to more than {MOST_TIMES} times its size, as no result does")
        if read > LARGEST:
            raise TooLargeError(
                f"{path}: more than the {LARGEST:,} bytes that are read at once; is this a result file?"
            )
    return b"".join(parts)


def pieces(path: str | Path, size: int = PIECE) -> Iterator[bytes]:
    """The content of a file, unpacked, in pieces of at most `size` bytes; errors as of `read_bytes`, but for size.

    The magic number decides, not the name: names lie after a copy.
    """
    with opened(path) as file:
        start = file.read(4) or b""
        file.seek(0)
        packed = next((form for magic, form in _PACKED.items() if start.startswith(magic)), None)
        stream = pa.input_stream(file, packed) if packed else file
        try:
            while piece := stream.read(size):
                yield piece
        except OSError as error:
            if not packed:
                raise
            raise ValueError(
                f"{path}: the compressed stream is damaged or cut off ({error}); copy the file again"
            ) from None
