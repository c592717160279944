"""Files as bytes, whether they are stored plain, as zstd or as gzip."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import zstandard

_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"


def read_bytes(path: str | Path) -> bytes:
    """The content of a file, decompressed. The magic number decides, not the name: names lie after a copy.

    Raises
    ------
    ValueError
        The compressed stream is damaged or cut off; the sentence names the file.
    """
    raw = Path(path).read_bytes()
    try:
        if raw.startswith(_ZSTD):
            return _unzstd(raw)
        return gzip.decompress(raw) if raw.startswith(_GZIP) else raw
    except (EOFError, OSError, zlib.error, zstandard.ZstdError) as error:
        raise ValueError(
            f"{path}: the compressed stream is damaged or cut off ({error}); copy the file again"
        ) from None


def _unzstd(raw: bytes) -> bytes:
    """All frames of a zstd file. `decompressobj` tells a cut stream from a complete one; `stream_reader` does not."""
    parts = []
    while raw:
        frame = zstandard.ZstdDecompressor().decompressobj()
        parts.append(frame.decompress(raw))
        if not frame.eof:
            raise EOFError("end of the last frame is missing")
        raw = frame.unused_data
    return b"".join(parts)
