"""Read and write the files of a save: JSON, compressed, the same bytes for the same content."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

SUFFIX = ".json.gz"


def write(path: Path, document: Any) -> None:
    """Write a document; floats keep every digit, NaN stays NaN."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), compresslevel=3, mtime=0))


def read(path: Path) -> Any:
    """Return a document that `write` wrote."""
    return json.loads(gzip.decompress(path.read_bytes()))
