"""Files as bytes, whether they are stored plain, as zstd or as gzip."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import zstandard

from hcilib.engine import located

_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
LARGEST = 2**28
"""Bytes, unpacked: ten thousand jobs' json+. A larger file is something else, or was packed to fill memory."""
_PIECE = 2**10
"""Of a zstd stream at a time: 4 bytes of it may become 128 KiB."""


def read_bytes(path: str | Path) -> bytes:
    """The content of a file, decompressed. The magic number decides, not the name: names lie after a copy.

    Raises
    ------
    ValueError
        The compressed stream is damaged or cut off, or there are more than `LARGEST` bytes; the sentence names the file.
    """
    file = located(path)
    if (size := file.stat().st_size) > LARGEST:
        raise ValueError(_too_large(path, f"{size:,} bytes"))
    return unpacked(file.read_bytes(), path)


def unpacked(raw: bytes, path: str | Path) -> bytes:
    """As `read_bytes`, of bytes that were read already; `path` is for the sentence."""
    if len(raw) > LARGEST:
        raise ValueError(_too_large(path, "it"))
    try:
        if raw.startswith(_ZSTD):
            return _unzstd(raw)
        return _ungzip(raw) if raw.startswith(_GZIP) else raw
    except OverflowError:
        raise ValueError(_too_large(path, "unpacked it")) from None
    except (EOFError, OSError, zlib.error, zstandard.ZstdError) as error:
        raise ValueError(
            f"{path}: the compressed stream is damaged or cut off ({error}); copy the file again"
        ) from None


def _too_large(path: str | Path, what: str) -> str:
    return f"{path}: {what} is more than the {LARGEST:,} bytes that are read at once; is this a result file?"


def _unzstd(raw: bytes) -> bytes:
    """All frames of a zstd file. `decompressobj` tells a cut stream from a complete one; `stream_reader` does not."""
    parts, left, at = [], LARGEST, 0
    while at < len(raw):
        frame = zstandard.ZstdDecompressor().decompressobj()
        while at < len(raw) and not frame.eof:
            piece = raw[at : at + _PIECE]
            parts.append(frame.decompress(piece))
            at, left = at + len(piece), left - len(parts[-1])
            if left < 0:
                raise OverflowError
        if not frame.eof:
            raise EOFError("end of the last frame is missing")
        at -= len(frame.unused_data)
    return b"".join(parts)


def _ungzip(raw: bytes) -> bytes:
    """All members of a gzip file."""
    content = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OverflowError
    return content
