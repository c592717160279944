"""What do the options of a test say of its cell and of its settings? One table for every tool.

Options have fio's names and are text; readers of other tools bring theirs into this form. What an
option does not state is missing, so that it differs from nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from math import isfinite, nan
from typing import Any, NamedTuple

from hcilib.model.metrics import SETTINGS
from hcilib.model.workload import LONG_RW, MIXED, READ_PCT, SYNC, Pattern, PlanError
from hcilib.read.fio.fio import milliseconds
from hcilib.read.run.step import RunReadError

FACTORS = ("rw", "bs_bytes", "iodepth", "numjobs", "rwmixread", "sync", "rate_bytes")
"""What of a cell a file may say of itself."""
UNLIKE = (
    *("rw", "bs_bytes", "block_sizes", "rwmixread", "random_distribution", "sync"),
    "percentage_random",
)
"""Jobs that differ in one of these and run at once are no one cell."""
DEFAULTS = {"rw": "read", "bs": "4k", "iodepth": "1"}
"""fio's, of a job that states options."""
LOCAL_DEFAULTS = {"ioengine": "psync", "direct": "0"}
"""fio's on Linux, of a job whose options are all known."""
ONE_IN_FLIGHT = frozenset({"sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"})
"""Engines of fio that wait for each I/O."""
RATE_SHARES = 0.01
"""By which the shares of a mix may be off that its rate_iops are rounded from."""
FDATASYNC = SYNC.index("-fdatasync")
OFF = ("0", "false", "none")
_SAME = {
    "readwrite": "rw",
    "blocksize": "bs",
    "blocksize_range": "bsrange",
    "timeout": "runtime",
    "filesize": "size",
}
"""Other names of options."""
_TARGETS = ("filename", "directory", "uri", "pool", "rbdname", "volume", "brick", "opendir")
_TEXTS = {
    "iodepth_options": (
        "iodepth_batch", "iodepth_batch_submit", "iodepth_batch_complete",
        "iodepth_batch_complete_min", "iodepth_batch_complete_max", "iodepth_low", "io_submit_mode",
        "serialize_overlap",
    ),
    "buffer_options": (
        "buffer_compress_percentage", "buffer_compress_chunk", "dedupe_percentage", "dedupe_mode",
        "zero_buffers", "refill_buffers", "scramble_buffers", "buffer_pattern",
    ),
    "other_options": (
        "time_based", "thinktime", "thinktime_blocks", "norandommap", "random_generator", "verify",
        "nrfiles", "openfiles", "offset", "offset_increment", "io_size", "number_ios", "loops",
        "fill_device", "end_fsync", "fallocate", "hipri", "sqthread_poll", "fixedbufs",
        "registerfiles", "nonvectored", "latency_target", "rate_process", "zonemode", "nice",
        "cpus_allowed", "numa_cpu_nodes", "create_on_open", "file_service_type", "sync", "fsync",
        "fdatasync",
    ),
}  # fmt: skip
"""Settings that are text: the options in each that are on."""
_SIZE = re.compile(r"(\d{1,15})(?:([kKmMgGtT])(i[bB])?[iI]?[bB]?|[bB]?)")
_POWER = {"k": 1, "m": 2, "g": 3, "t": 4}
Options = Mapping[str, str]


class ForeignError(RunReadError):
    """Files that cannot be read as results; the sentence names them and the remedy."""


def bytes_of(text: str) -> float:
    """Return a size as fio takes it; NaN where it is none, such as ``4k,64k``.

    k, kb and ki are 1024, but kib is 1000 (seen with 3.33).
    """
    match = _SIZE.fullmatch(text.strip().rstrip(","))
    if not match:
        return nan
    number, unit, decimal = match.groups()
    return int(number) * (1000 if decimal else 1024) ** (_POWER[unit.lower()] if unit else 0)


def _is_on(text: str) -> bool:
    return text not in OFF


def _count(text: str) -> float:
    return int(text) if text.isdecimal() and len(text) < 10 else nan


def _text(text: str) -> str | float:
    return nan if text in ("0", "0,0", "random") else text


_PARSERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "bs": ("bs_bytes", bytes_of),
    "bsrange": ("block_sizes", str),
    "bssplit": ("block_sizes", str),
    "iodepth": ("iodepth", _count),
    "numjobs": ("numjobs", _count),
    "random_distribution": ("random_distribution", _text),
    "sync": ("sync", lambda text: int(_is_on(text))),
    "fsync": ("fsync", _text),
    "fdatasync": ("fdatasync", _text),
    "rate": ("rate_bytes", lambda text: bytes_of(text.partition(",")[0])),
    "rate_iops": ("rate_iops", _text),
    "ioengine": ("ioengine", str),
    "buffered": ("direct", lambda text: int(not _is_on(text))),
    "direct": ("direct", lambda text: int(_is_on(text))),
    "runtime": ("set_runtime_s", lambda text: milliseconds(text) / 1000),
    "ramp_time": ("ramp_time_s", lambda text: milliseconds(text) / 1000),
    "time_based": ("time_based", _is_on),
    "size": ("size_bytes", bytes_of),
}
"""Option -> factor or setting, and how its text is read. Of two options for one the later counts."""
_RELEVANT = frozenset(
    chain(
        _PARSERS, _SAME, _TARGETS, *_TEXTS.values(),
        ("rw", "rwmixread", "rwmixwrite", "percentage_random", "thinktime", "latency_target"),
    )
)  # fmt: skip


class Asked(NamedTuple):
    """What a job was asked for: factors and settings by their columns, and the codes of some.

    Besides `FACTORS` and the columns of settings: time_based, in_flight (1 for an engine that waits
    for each I/O), offered (IOPS of each job, where rate_iops says a demand) and, where they matter,
    block_sizes (there is no one size), random_distribution, percentage_random, rate_iops, fsync.
    """

    factors: Mapping[str, Any]
    codes: tuple[str, ...]


def asked(options: Options, defaults: int = 0) -> Asked:
    """Return what a job's options say.

    defaults : 1: what they do not say has fio's `DEFAULTS`; 2: its `LOCAL_DEFAULTS` as well
    """
    return _asked(tuple([item for item in options.items() if item[0] in _RELEVANT]), defaults)


@lru_cache(maxsize=4096)
def _asked(stated: tuple[tuple[str, str], ...], defaults: int) -> Asked:
    own = {_SAME[name]: text for name, text in stated if name in _SAME} | dict(stated)
    options = own
    if defaults:
        options = DEFAULTS | options
    is_local = defaults > 1 and "buffered" not in own
    if is_local:
        options = LOCAL_DEFAULTS | options
    parsed = [(factor, parse(options[name])) for name, (factor, parse) in _PARSERS.items() if name in options]
    found: dict[str, Any] = {"sync": 0} | {name: value for name, value in parsed if value == value}
    found |= _direction(options)
    if "," in options.get("bs", "")[:-1]:
        found.setdefault("block_sizes", options["bs"])
    if "block_sizes" in found:
        found["bs_bytes"] = nan
    if found.get("fdatasync") == "1":
        found["sync"] = FDATASYNC
        del found["fdatasync"]
    if "rate_iops" in found:
        found["offered"] = _offered(found["rate_iops"], found.get("rwmixread", 100))
    if target := " ".join(options[name] for name in _TARGETS if options.get(name)):
        found["target"] = target
    for setting, names in _TEXTS.items():
        found[setting] = _listed(names, options)
    if "size" in options and "size_bytes" not in found:  # a share of the device
        found["other_options"] = f"size={options['size']} {found['other_options']}".strip()
    codes = [
        code
        for name, code in (("thinktime", "thinktime"), ("latency_target", "latency-target"))
        if options.get(name, "0") != "0"
    ]
    if options.get("ioengine") in ONE_IN_FLIGHT:
        found["in_flight"] = 1
        if found.get("iodepth", 1) > 1:
            codes.insert(0, "iodepth")
            if "ioengine" not in own:  # fio says that it caps the depth
                more = f"iodepth={found['iodepth']} {found['iodepth_options']}"
                found |= {"iodepth": 1, "iodepth_options": more.strip()}
    return Asked(found, tuple(codes))


def _listed(names: Iterable[str], options: Options) -> str:
    """Return ``name=value`` of those that are on: one text for the same settings."""
    return " ".join(f"{name}={options[name]}" for name in names if _is_on(options.get(name, "0")))


def _direction(options: Options) -> dict[str, Any]:
    """Return rw and rwmixread as a plan has them: a mix of one direction is that direction."""
    rw = options.get("rw", "").partition(":")[0]
    rw = LONG_RW.get(rw, rw)
    if rw not in MIXED:
        return ({"rw": rw} if rw else {}) | ({"rwmixread": READ_PCT[rw]} if rw in READ_PCT else {})
    reads_pct = _number(options, "rwmixread", 100 - _number(options, "rwmixwrite", 50))
    random_pct = _number(options, "percentage_random", 100 if rw == "randrw" else 0)
    mix = reads_pct if reads_pct == reads_pct else nan  # one nan, which equals itself
    found: dict[str, Any] = {"rw": rw_of(mix, random_pct > 0)}
    found["rwmixread"] = int(mix) if mix.is_integer() else mix
    return found | ({"percentage_random": random_pct} if 0 < random_pct < 100 else {})


def _number(options: Options, name: str, default: float) -> float:
    text = options.get(name, "").partition(",")[0]
    try:
        return float(text or default)
    except ValueError:
        raise ForeignError(f"option {name} is {text[:20]!r}, expected a number") from None


def rw_of(reads_pct: float, random: bool) -> str:
    """Return fio's rw of a mix."""
    return ("rand" if random else "") + {100.0: "read", 0.0: "write"}.get(reads_pct, "rw")


def _offered(rates: str, rwmixread: float) -> float:
    """Return the IOPS of one job by fio's rate_iops, one number or one a direction.

    NaN where it is no demand: of a mix whose directions are held at other shares than its own,
    nobody can say how much is asked.
    """
    each = [float(rate) if rate.isdecimal() else nan for rate in rates.split(",")]
    both = dict(zip(("read", "write"), each * 2 if len(each) == 1 else each, strict=False))
    shares = {"read": rwmixread, "write": 100 - rwmixread}
    offered = [both.get(name, nan) for name, share in shares.items() if share > 0]
    if len(offered) == 2 and not abs(offered[0] / sum(offered) - rwmixread / 100) <= RATE_SHARES:
        return nan
    return sum(offered) or nan


def together(of_jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what jobs that ran at once were asked for; of an uneven load no one number.

    Raises
    ------
    ForeignError : they did different things, so that they are no one cell
    """
    if len(of_jobs) == 1:  # thousands of files have one job each
        return dict(of_jobs[0])
    found: dict[str, Any] = {}
    for name in dict.fromkeys(chain(*of_jobs)):
        values = {one.get(name, nan) for one in of_jobs}
        known = sorted((value for value in values if value == value), key=str)
        if len(values) == 1 or not known:
            found[name] = values.pop()
        elif name in UNLIKE:
            shown = " and ".join(sorted(map(str, values)))
            raise ForeignError(f"jobs of {name} {shown} ran at once: together they are no one cell")
        elif name in SETTINGS:
            is_text = isinstance(known[0], str)
            found[name] = ", ".join(known) if is_text and len(known) > 1 else max(known)
        elif name == "iodepth":
            found[name] = nan
        elif name == "numjobs" and nan not in values:
            found[name] = max(values)
        elif name in ("rate_bytes", "rate_iops"):
            found[name] = max(values, key=str)
    return found


def pattern_of(factors: Mapping[str, Any]) -> str:
    """Return the pattern's name; one that no plan could have is named after what is known.

    A rate in bytes is left out then.
    """
    numbers = (factors.get(name, nan) for name in ("bs_bytes", "rwmixread", "sync", "rate_bytes"))
    bs, mix, sync, rate = numbers
    hot = factors.get("random_distribution", "")
    known_sync, known_rate = (int(value) if value == value else 0 for value in (sync, rate))
    name = _name(factors["rw"], bs, mix, known_sync, known_rate, hot)
    for flush in ("fsync", "fdatasync"):
        if flush in factors and mix < 100:
            name += f"-{flush}{factors[flush]}".removesuffix("1" * (factors[flush] == "1"))
    return name


@lru_cache(maxsize=4096)
def _name(rw: str, bs: float, mix: float, sync: int, rate: float, hot: str) -> str:
    try:
        return Pattern(rw, int(bs), int(mix), sync, int(rate), 0, hot).name
    except (PlanError, ValueError):
        size = "?" if not isfinite(bs) else f"{bs / 1024:g}k" if bs % 1024 == 0 else f"{bs:g}b"
        share = f"{mix:g}" if rw.endswith("rw") and isfinite(mix) else ""
        return f"{size}-{rw}{share}{SYNC[sync]}"
