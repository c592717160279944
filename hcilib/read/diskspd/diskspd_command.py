"""What DiskSPD's command line asked for: all that a text result says of its settings where it prints no input parameters.

Options and defaults after microsoft/diskspd's wiki, Command line and parameters.
"""

from __future__ import annotations

import re

from hcilib.read.diskspd.diskspd_document import Target, Timespan

_LETTERED = re.compile(r"(?:^|\s)[-/]([A-Za-z])([^\s\"]*)")
_NUMBER = re.compile(r"\d{1,15}")
_SIZED = re.compile(r"(\d{1,15})([KMGTb]?)", re.IGNORECASE)
_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_BLOCK, _DEPTH, _DURATION_S, _WARMUP_S = 64 * 2**10, 2, 10, 5
"""DiskSPD's defaults; its others are 1 thread a target, reads, sequential."""


def planned(command: str) -> Timespan | None:
    """The timespan that a command line plans, with one target that stands for all; None where a profile (-X) does."""
    options: dict[str, list[str]] = {}
    for letter, value in _LETTERED.findall(command):
        options.setdefault(letter, []).append(value)
    if not options or "X" in options:
        return None
    pool = _count(options, "F", 0)
    return Timespan(
        duration_s=_count(options, "d", _DURATION_S),
        warmup_s=_count(options, "W", _WARMUP_S),
        pool_threads=pool,
        pool_depth=_count(options, "O", 0) if pool else 0,
        targets=[_target(options, pool)],
    )


def _target(options: dict[str, list[str]], pool: int) -> Target:
    caches = "".join(options.get("S", ()))
    target = Target(
        write_pct=_count(options, "w", 0),
        block_bytes=_bytes(options, "b", _BLOCK),
        random_pct=_random_pct(options.get("r", [])),
        depth=_count(options, "o", _DEPTH),
        direct="S" in options and (not caches or bool(set("hu") & set(caches))),
        sync=bool(set("hw") & set(caches)),
    )
    if not pool:
        target.threads = _count(options, "t", 1)
    return target


def _random_pct(given: list[str]) -> float:
    """-r and -r4K: all random; -rs40: 40 % of it (2.1 on)."""
    shares = [value[1:] for value in given if value.startswith("s")]
    if shares and _NUMBER.fullmatch(shares[-1]):
        return min(int(shares[-1]), 100)
    return 100 if given else 0


def _count(options: dict[str, list[str]], letter: str, default: int) -> int:
    """The last one given counts."""
    numbers = [int(value) for value in options.get(letter, ()) if _NUMBER.fullmatch(value)]
    return numbers[-1] if numbers else default


def _bytes(options: dict[str, list[str]], letter: str, default: int) -> int:
    sizes = [
        match for value in options.get(letter, ()) if (match := _SIZED.fullmatch(value)) and match[2].upper() in _SIZES
    ]
    return int(sizes[-1][1]) * _SIZES[sizes[-1][2].upper()] if sizes else default
