"""Captured files, damaged the way disks, copies and people damage them.

A reader may give a table, or raise its own error with the file's name in it. Anything else is a
defect. Used by tests/read/test_hostile.py, and by bench/fuzz.py with many more cases.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from hcilib import read_fio, read_results
from hcilib.model.archives import unpacked
from hcilib.read.fio.fio import FioOutputError
from hcilib.read.fio.table import read_fio_bins
from hcilib.read.foreign.results import log_series
from hcilib.read.foreign.settings import ForeignError
from hcilib.read.logs.rollup import FioLogError
from hcilib.read.run.run import read_rollup

DATA = Path(__file__).parents[1] / "data"
FIO = unpacked(DATA / "fio")
LONGEST_S = 10.0
"""No case may take longer; a hundred times what the slowest takes on a quiet machine."""
LONGEST_MESSAGE = 2000


@dataclass(frozen=True)
class Family:
    """Readers of one kind of file, the error they may raise, and captures to start from."""

    readers: tuple[Callable[[Path], pd.DataFrame], ...]
    error: type[Exception]
    captures: tuple[Path, ...]


FAMILIES = {
    "fio": Family((read_fio, read_fio_bins), FioOutputError, tuple(sorted(FIO.glob("*.json")))),
    "fio_log": Family(
        (read_rollup, log_series),
        FioLogError,
        tuple(sorted((FIO / "logs").glob("*/*.log*"))),
    ),
    "diskspd": Family(
        (read_results,),
        ForeignError,
        tuple(sorted([*(DATA / "diskspd").glob("*.xml"), *(DATA / "diskspd").glob("*.txt")])),
    ),
}
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
NUMBERS = (
    b"-1",
    b"0",
    b"1e400",
    b"-1e-400",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1" * 400,
    b"nan",
    b"-nan(ind)",
    b"inf",
    b"null",
    b"true",
    b'"12"',
    b"1,5",
    b"1_000",
    b"[]",
    b"{}",
    b"0x10",
    b"3.14",
    b"\xef\xbc\x91",
    b"",
)
PIECES = (
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n\n",
    b"{",
    b"}" * 3,
    b"[" * 2000,
    b'{"a":' * 1500,
    b'"',
    b"\\",
    b"\\ud800",
    b",,",
    b"<a>" * 100,
    b"</Results>",
    (b"<!DOCTYPE a [<!ENTITY b 'c'>]>"),
    b"&b;",
    b"<![CDATA[",
    b"|" * 50,
    b"\x1b[2K",
    b"9" * 5000,
    b" " * 5000,
    b'{"fio version" : "fio-3.33", "jobs" : []}',
    b"fio: terminating on signal 2\n",
    b"total:",
    b"%-ile |",
)


STEPS = (
    "cut", "behead", "drop", "repeat", "flip", "zeros", "insert", "splice", "number", "line",
)  # fmt: skip


def mutated(
    raw: bytes, steps: Sequence[tuple[str, float, float, int]], other: bytes = b""
) -> bytes:
    """The bytes after each step (what, where, how much: shares of the file, which: picks among
    variants). Small damage is more often than large."""
    for what, where, share, which in steps:
        start = int(where * len(raw))
        end = min(len(raw), start + 1 + int(share**3 * len(raw)))
        raw = _damaged(what, raw[:start], raw[start:end], raw[end:], which, other[start:end])
    return raw[: 2**20]


def _damaged(
    what: str, before: bytes, piece: bytes, after: bytes, which: int, other: bytes
) -> bytes:
    match what:
        case "cut":
            return before
        case "behead":
            return piece + after
        case "drop":
            return before + after
        case "repeat":
            return before + piece * (2 + which % 3) + after
        case "flip":
            return before + bytes([which % 256]) + piece[1:] + after
        case "zeros":
            return before + bytes(len(piece)) + after
        case "insert":
            return before + PIECES[which % len(PIECES)] + piece + after
        case "splice":
            return before + other + piece + after
        case "number":
            number = NUMBERS[which % len(NUMBERS)]
            return before + _NUMBER.sub(lambda _: number, piece + after, count=1)
    lines = (before + piece + after).splitlines(keepends=True) or [b""]
    line = lines.pop(n := min(len(before.splitlines()), len(lines) - 1))
    if which % 2:  # elsewhere, or out, or three times
        return b"".join([*lines, line])
    return b"".join([*lines[:n], *[line] * (which % 3), *lines[n:]])


def _names(said: str, path: Path) -> bool:
    """The file; or, once what several logs hold has been added up, the host whose logs do not fit
    together."""
    host = path.name.rpartition(".log.")[2]
    return str(path) in said or (host != path.name and host in said)


def outcome(family: Family, path: Path) -> tuple[str, float]:
    """("table" or the error's message, seconds of the slowest reader); raises AssertionError on
    anything else."""
    slowest, said = 0.0, "table"
    for reader in family.readers:
        started = time.perf_counter()
        try:
            table = reader(path)
            assert isinstance(table, pd.DataFrame), f"{reader.__name__} gave {type(table).__name__}"
        except family.error as error:
            said = str(error)
            assert _names(said, path), (
                f"{reader.__name__}: an error that does not name the file: {said[:300]}"
            )
            assert len(said) < LONGEST_MESSAGE, (
                f"{reader.__name__}: a message of {len(said)} characters"
            )
        slowest = max(slowest, time.perf_counter() - started)
    assert slowest < LONGEST_S, f"{slowest:.1f} s for one case"
    return said, slowest
