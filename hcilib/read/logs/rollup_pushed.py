"""What rollup_script left on a VM, brought here: `rollup.HOST.json.gz`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from hcilib.read.compressed import read_bytes
from hcilib.read.logs.log_blocks import FioLogError
from hcilib.read.logs.rollup_script import BUCKETS, FORMAT, SUM_LIMIT

_NAME = "rollup.", ".json.gz"


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
        bucket, ddir = cells[:, 0] & 2047, cells[:, 0] >> 12 & 3
        if (cells < 0).any() or (cells[:, 1] < 1).any() or (cells[:, 1:] >= SUM_LIMIT).any() or (bucket > BUCKETS).any() or (ddir > 2).any():  # fmt: skip
            raise FioLogError(f"{path}: holds numbers that no log adds up to; was it made by hcilib?")
        return cells


class Document(msgspec.Struct):
    """`logs`: the files that were rolled up there; `torn`: those of them whose last line had no end."""

    format: int
    logs: list[str]
    torn: list[str]
    tables: list[Table]


def pushed_name(host: str) -> str:
    return f"{_NAME[0]}{host}{_NAME[1]}"


def pushed_host(path: Path) -> str:
    """The host whose rollup a file is; empty if it is none."""
    name = path.name
    whole = name.startswith(_NAME[0]) and name.endswith(_NAME[1])
    return name[len(_NAME[0]) : -len(_NAME[1])] if whole else ""


def read_pushed(path: Path) -> Document:
    """The document; FioLogError if it is damaged or of another version."""
    try:
        document = msgspec.json.decode(read_bytes(path), type=Document)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise FioLogError(f"{path}: not a rollup made on a VM, or cut off ({error}); copy the file again") from None
    if document.format != FORMAT:
        raise FioLogError(f"{path}: rollup of format {document.format}, this hcilib reads {FORMAT}")
    return document
