"""The raw files of a step: their content, and what they were when they were read."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hcilib.read.compressed import opened, read_bounded
from hcilib.run_layout import COUNTERS, JOB, OUTPUT, RECORD

FILES = (RECORD, OUTPUT, COUNTERS, JOB)
STAMPS = tuple(f"{file}:{what}" for file in FILES for what in ("size", "mtime_ns", "ctime_ns"))
HASHES = tuple(f"{file}:sha256" for file in FILES)
ABSENT = (-1, -1, -1)
RESTLESS_NS = 2 * 10**9


class Raw(NamedTuple):
    content: bytes | None
    stamp: tuple[int, int, int]


def read_raw(path: Path) -> Raw:
    """Content of a file and what it was when it was read; a step may have no counters, an invalid one no output.

    Raises
    ------
    NotAFileError : there is a pipe, a device or a folder in its place
    """
    try:
        with opened(path) as file:
            stamp = stamp_of(os.fstat(file.fileno())) if isinstance(path, Path) else ABSENT
            return Raw(read_bounded(file), stamp)
    except FileNotFoundError:
        return Raw(None, ABSENT)


def settled(stamps: np.ndarray, read_ns: int) -> np.ndarray:
    """Stamps to keep. A file that changed just before it was read may change once more within the clock's tick, and its
    times not show it: its change time is kept as 0, so that it is told by its hash until it has come to rest."""
    moving = stamps[..., 2] > read_ns - RESTLESS_NS
    return np.concatenate([stamps[..., :2], np.where(moving, 0, stamps[..., 2])[..., None]], axis=-1)


def stamp_of(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def hash_of(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()


def sealed(raw: Mapping[str, Raw]) -> dict[str, int | str]:
    stamps = settled(np.array([raw[file].stamp for file in FILES]), time.time_ns()).ravel().tolist()
    hashes = (hash_of(raw[file].content) for file in FILES)
    return dict(zip((*STAMPS, *HASHES), (*stamps, *hashes), strict=True))
