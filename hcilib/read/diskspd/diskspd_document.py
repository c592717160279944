"""What a DiskSPD result says, whichever of its two formats it was written in: plain records, one a timespan.

Layout after microsoft/diskspd (ResultParser, XmlResultParser, Profile), releases 2.0.17 to 2.2. No Windows machine was
at hand: nothing here was checked against a run of our own. Two text results that microsoft/VirtualClient publishes, one
of 2.0 and one of 2.2, were read as they are; of real XML and of a real VMFleet run no file was found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, islice, repeat
from math import isfinite, nan

_FLOAT = re.compile(r"[-+]?\d{1,300}(\.\d{1,300})?([eE][-+]?\d{1,4})?")
_NOT_A_NUMBER = re.compile(r"[-+]?(n/?a|nan|inf(inity)?|1\.#(ind|qnan|inf))(\(\w+\))?0*", re.IGNORECASE)
_PERCENT = re.compile(r"\d{1,3}(\.\d{1,12})?")
_LARGEST = 2**63 - 1


class DiskspdOutputError(ValueError):
    """A file that holds no complete DiskSPD result; the sentence names the file and, where there is one, the place."""


@dataclass
class Target:
    """What a timespan was to do to one path; NaN where the file does not say."""

    path: str = ""
    write_pct: float = nan
    block_bytes: float = nan
    random_pct: float = nan
    depth: float = nan
    threads: float = nan
    direct: bool | None = None
    sync: bool | None = None
    rate_iops: float = nan
    rate_bytes_per_s: float = nan


@dataclass
class Counts:
    """One direction of one thread on one target; `iops` only where the file prints it, latencies in ms."""

    io_bytes: int = 0
    ios: int = 0
    iops: float = nan
    mean_ms: float = nan
    stddev_ms: float = nan


@dataclass
class Row:
    """One thread on one target."""

    thread: int
    path: str
    size: str
    read: Counts
    write: Counts


@dataclass
class Chart:
    """A latency distribution: percent as text -> ms, of one path, or of all targets together (path None)."""

    path: str | None
    read: dict[str, float]
    write: dict[str, float]


@dataclass
class Timespan:
    """One timespan: what was planned, and what came of it (`seconds` NaN where nothing did)."""

    version: str = ""
    duration_s: float = nan
    warmup_s: float = nan
    pooled: bool = False  # -O: the threads of a pool share a queue over all targets, by weight
    targets: list[Target] = field(default_factory=list)
    seconds: float = nan
    thread_count: float = nan
    rows: list[Row] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    damage: str = ""

    @property
    def ended(self) -> bool:
        """False where DiskSPD was interrupted before it began to measure, or its results were cut away."""
        return isfinite(self.seconds)

    def settled(self) -> list[tuple[Row, Target]]:
        """Every row with its target's settings."""
        return list(zip(self.rows, self._targets_of_rows(), strict=True))

    def _targets_of_rows(self) -> Iterator[Target]:
        """By path; one given twice (a reading and a writing stream on one disk) is told apart by the order, as
        threads come target by target."""
        per_path: dict[str, list[Target]] = {}
        for target in self.targets:
            per_path.setdefault(target.path, []).append(target)
        rows = Counter(row.path for row in self.rows)
        for path, same in per_path.items():
            if len(same) > 1:
                own = (repeat(t, int(min(t.threads, rows[path])) if t.threads >= 1 else 1) for t in same)
                per_path[path] = list(islice(chain.from_iterable(own), max(rows[path], 1)))
        only = self.targets[0] if len(self.targets) == 1 else Target()
        seen: Counter = Counter()
        for row in self.rows:
            same = per_path.get(row.path) or [only]
            yield same[seen[row.path] % len(same)]
            seen[row.path] += 1


def describe_damage(span: Timespan) -> str:
    """Why the rows of a timespan cannot be all of it; empty where they can."""
    threads = len({row.thread for row in span.rows})
    if span.ended and isfinite(span.thread_count) and threads != span.thread_count:
        return f"it names {span.thread_count:.0f} threads and holds rows of {threads}"
    return ""


def number(text: str, where: str) -> float:
    """A printed number; NaN for N/A and for what C prints instead of 0/0."""
    text = text.strip().removesuffix("%")
    if _FLOAT.fullmatch(text):
        value = float(text)
        return value if isfinite(value) else nan
    if _NOT_A_NUMBER.fullmatch(text):
        return nan
    raise DiskspdOutputError(f"{where}: {text[:60]!r} stands where a number is expected; copy the file again.")


def count(text: str, where: str) -> int:
    """A printed whole number that is never missing: bytes, I/Os, threads."""
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _LARGEST):
        raise DiskspdOutputError(f"{where}: {text[:60]!r} stands where a count is expected; copy the file again.")
    return int(text)


def percent(text: str, where: str) -> str:
    """A percentile's number as text without idle zeros, 0 to 100."""
    text = text.strip()
    if not _PERCENT.fullmatch(text) or Fraction(text) > 100:
        raise DiskspdOutputError(f"{where}: {text[:60]!r} stands where a percentile from 0 to 100 is expected.")
    return text.rstrip("0").rstrip(".") if "." in text else str(int(text))
