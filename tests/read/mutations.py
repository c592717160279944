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

import hcilib
from hcilib import FioOutputError, read_fio, read_results, read_rollup
from hcilib.model.archives import unpacked
from hcilib.read.fio.table import read_fio_bins
from hcilib.read.foreign.settings import ForeignError
from hcilib.read.logs.rollup import FioLogError

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
        (read_rollup, hcilib.log_series),
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


def mutated(
    raw: bytes, steps: Sequence[tuple[str, float, float, int]], other: bytes = b""
) -> bytes:
    """The bytes after each step (what, where, how much: shares of the file, which: picks among
    variants)."""
    for what, where, share, which in steps:
        start = int(where * len(raw))
        end = min(
            len(raw), start + 1 + int(share**3 * len(raw))
        )  # small damage more often than large
        raw = STEPS[what](raw, start, end, which, other)
    return raw[: 2**20]


def _number(raw: bytes, start: int, end: int, which: int, other: bytes) -> bytes:
    found = _NUMBER.search(raw, start)
    return (
        raw[: found.start()] + NUMBERS[which % len(NUMBERS)] + raw[found.end() :] if found else raw
    )


def _line(raw: bytes, start: int, end: int, which: int, other: bytes) -> bytes:
    """One line out, twice or elsewhere."""
    lines = raw.splitlines(keepends=True) or [raw]
    n = start * len(lines) // (len(raw) + 1)
    one = lines.pop(n)
    return b"".join(
        [
            *lines[:n],
            *([one] * (which % 3) if which % 2 == 0 else []),
            *lines[n:],
            *([one] if which % 2 else []),
        ]
    )


STEPS: dict[str, Callable[[bytes, int, int, int, bytes], bytes]] = {
    "cut": lambda raw, start, end, which, other: raw[:start],
    "behead": lambda raw, start, end, which, other: raw[start:],
    "drop": lambda raw, start, end, which, other: raw[:start] + raw[end:],
    "repeat": lambda raw, start, end, which, other: (
        raw[:end] + raw[start:end] * (1 + which % 3) + raw[end:]
    ),
    "flip": lambda raw, start, end, which, other: (
        raw[:start] + bytes([which % 256]) + raw[start + 1 :]
    ),
    "zeros": lambda raw, start, end, which, other: raw[:start] + b"\0" * (end - start) + raw[end:],
    "insert": lambda raw, start, end, which, other: (
        raw[:start] + PIECES[which % len(PIECES)] + raw[start:]
    ),
    "splice": lambda raw, start, end, which, other: raw[:start] + other[start:end] + raw[start:],
    "number": _number,
    "line": _line,
}


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
