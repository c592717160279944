"""What was asked for, from a tool's options: the factors of a cell, as far as somebody wrote them down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from math import isfinite, nan
from typing import Any

from hcilib.caveats import Caveat
from hcilib.plan import Pattern, PlanError

RELEVANT = (
    "rw",
    "readwrite",
    "bs",
    "blocksize",
    "iodepth",
    "numjobs",
    "rwmixread",
    "rwmixwrite",
    "percentage_random",
    "sync",
    "rate",
    "rate_iops",
    "ioengine",
    "direct",
    "fsync",
    "fdatasync",
    "runtime",
    "timeout",
    "time_based",
    "group_reporting",
    "stonewall",
)
"""The options of fio that are looked at."""
_SIZE = re.compile(r"(\d+)(?:([kKmMgGtT])(i[bB])?[iI]?[bB]?|[bB]?)")
_POWER = {"k": 1, "m": 2, "g": 3, "t": 4}
_ONE_IN_FLIGHT = {"sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"}
_PAGE_CACHED = {"libaio", "io_uring", "posixaio", "windowsaio", "solarisaio", *_ONE_IN_FLIGHT}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)?")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}
FACTORS = ("rw", "bs_bytes", "iodepth", "numjobs", "rwmixread", "sync", "rate_bytes")
"""What of a cell a file may say of itself."""


def bytes_of(text: str) -> float:
    """A size as fio takes it: k, kb and ki are 1024, but kib is 1000 (seen with 3.33); NaN where it is none, such as
    ``4k,64k``."""
    match = _SIZE.fullmatch(text.strip().rstrip(","))
    if not match:
        return nan
    number, unit, decimal = match.groups()
    return int(number) * (1000 if decimal else 1024) ** _POWER[unit.lower()] if unit else int(number)


def seconds_of(text: str) -> float:
    match = _TIME.fullmatch(text.strip())
    return float(match[1]) * _SECONDS[match[2]] if match else nan


def asked(options: Mapping[str, str]) -> tuple[dict[str, Any], tuple[Caveat, ...]]:
    """Factors and caveats of a job's options under fio's names; what they do not say is not among the factors.

    Besides `FACTORS`: runtime_s, time_based, in_flight (1 for an engine that waits for each I/O) and, where they
    matter, the factors percentage_random, rate_iops, fsync that no plan of ours has.
    """
    return _asked(tuple(map(options.get, RELEVANT)))


@lru_cache(maxsize=4096)
def _asked(values: tuple[str | None, ...]) -> tuple[dict[str, Any], tuple[Caveat, ...]]:
    told = {name: value for name, value in zip(RELEVANT, values, strict=True) if value is not None}
    found: dict[str, Any] = {}
    if rw := told.get("rw", told.get("readwrite")):
        found |= _direction(rw.partition(":")[0], told)
    if bs := told.get("bs", told.get("blocksize")):
        found["bs_bytes"] = bytes_of(bs)
    for name in ("iodepth", "numjobs"):
        if told.get(name, "").isdigit():
            found[name] = int(told[name])
    found["sync"] = int(told.get("sync", "0") not in ("0", "none", "false"))
    if "rate" in told:
        found["rate_bytes"] = bytes_of(told["rate"].partition(",")[0])
    if runtime := told.get("runtime", told.get("timeout")):
        found["runtime_s"] = seconds_of(runtime)
    found["time_based"] = told.get("time_based", "0") not in ("0", "false")
    found |= {
        name: told[name] for name in ("rate_iops", "fsync", "fdatasync") if told.get(name, "0") not in ("0", "0,0")
    }
    said = []
    engine = told.get("ioengine", "")
    if engine in _ONE_IN_FLIGHT:
        found["in_flight"] = 1
        if found.get("iodepth", 1) > 1:
            said.append(Caveat("iodepth", f"ioengine {engine} keeps one I/O in flight, whatever iodepth says"))
    if engine in _PAGE_CACHED and told.get("direct", "0") in ("0", "false"):
        said.append(Caveat("direct", "direct=0: the page cache of the host was measured too"))
    return found, tuple(said)


def _direction(rw: str, told: Mapping[str, str]) -> dict[str, Any]:
    """rw and rwmixread as a plan writes them: a mix of one direction alone is that direction."""
    rw = {"readwrite": "rw", "randreadwrite": "randrw"}.get(rw, rw)
    if rw not in ("rw", "randrw"):
        reads = {"read": 100, "randread": 100, "write": 0, "randwrite": 0}.get(rw)
        return {"rw": rw} | ({} if reads is None else {"rwmixread": reads})
    given = float(told.get("rwmixread") or 100 - float(told.get("rwmixwrite") or 50))
    random = float(told.get("percentage_random", "100" if rw == "randrw" else "0").partition(",")[0])
    kind = {100.0: "read", 0.0: "write"}.get(given, "rw")
    mix = int(given) if given.is_integer() else given
    found: dict[str, Any] = {"rw": ("rand" if random > 0 else "") + kind, "rwmixread": mix}
    return found | ({"percentage_random": random} if 0 < random < 100 else {})


def pattern_of(factors: Mapping[str, Any]) -> str:
    """The pattern's name; one that no plan could have is named after what is known, and its rate in bytes is left
    out."""
    bs, mix, sync, rate = (factors.get(name, nan) for name in ("bs_bytes", "rwmixread", "sync", "rate_bytes"))
    return _name(factors["rw"], bs, mix, int(sync == 1), rate if rate == rate else 0)


@lru_cache(maxsize=4096)
def _name(rw: str, bs: float, mix: float, sync: int, rate: float) -> str:
    try:
        return Pattern(rw, int(bs), int(mix), sync, int(rate)).name
    except (PlanError, ValueError):
        size = "?" if not isfinite(bs) else f"{bs / 1024:g}k" if bs % 1024 == 0 else f"{bs:g}b"
        return f"{size}-{rw}{f'{mix:g}' if rw.endswith('rw') and isfinite(mix) else ''}{'-sync' * sync}"
