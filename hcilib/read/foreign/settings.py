"""What do the options of a test say of its cell and of its settings? One table for every tool.

Options have fio's names and are text; readers of other tools bring theirs into this form. What an
option does not state is missing, so that it differs from nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from math import nan
from typing import Any, NamedTuple

from hcilib.model.metrics import SETTINGS
from hcilib.model.patterns import LONG_RW, MIXED, READ_PCT, SYNC, Pattern, PlanError
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
LOCAL_DEFAULTS = DEFAULTS | {"ioengine": "psync", "buffered": "1"}
"""fio's, of a job that states options; on Linux, of one whose options are all known."""
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
_POWER: dict[str | None, int] = {None: 0, "k": 1, "m": 2, "g": 3, "t": 4}
Options = Mapping[str, str]
Factors = dict[str, Any]
"""Columns of a cell and of its settings, and what they hold."""


class ForeignError(RunReadError):
    """Files that cannot be read as results; the sentence names them and the remedy."""


def bytes_of(text: str) -> float:
    """Return a size as fio takes it; NaN where it is none, such as ``4k,64k``.

    k, kb and ki are 1024, but kib is 1000 (seen with 3.33).
    """
    match = _SIZE.fullmatch(text.strip().rstrip(",").lower())
    if not match:
        return nan
    number, unit, decimal = match.groups()
    return int(number) * (1000 if decimal else 1024) ** _POWER[unit]


def _count(text: str) -> float:
    return int(text) if text.isdecimal() and len(text) < 10 else nan


def _text(text: str) -> Any:
    return nan if text in ("0", "0,0", "random") else text


def _flag(text: str) -> int:
    return int(text not in OFF)


def _seconds(text: str) -> float:
    return milliseconds(text) / 1000


_PARSERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "bs": ("bs_bytes", bytes_of),
    "bsrange": ("block_sizes", str),
    "bssplit": ("block_sizes", str),
    "iodepth": ("iodepth", _count),
    "numjobs": ("numjobs", _count),
    "random_distribution": ("random_distribution", _text),
    "sync": ("sync", _flag),
    "fsync": ("fsync", _text),
    "fdatasync": ("fdatasync", _text),
    "rate": ("rate_bytes", lambda text: bytes_of(text.partition(",")[0])),
    "rate_iops": ("rate_iops", _text),
    "ioengine": ("ioengine", str),
    "buffered": ("direct", lambda text: 1 - _flag(text)),
    "direct": ("direct", _flag),
    "runtime": ("set_runtime_s", _seconds),
    "ramp_time": ("ramp_time_s", _seconds),
    "time_based": ("time_based", _flag),
    "size": ("size_bytes", bytes_of),
}
"""Option -> column, and how its text is read. Of two options for one the later counts."""


class Asked(NamedTuple):
    """What a job was asked for: factors and settings by their columns, and the codes of some.

    Besides `FACTORS` and the columns of settings: time_based, in_flight (1 for an engine that waits
    for each I/O), offered (IOPS of each job, where rate_iops says a demand) and, where they matter,
    block_sizes (there is no one size), random_distribution, percentage_random, rate_iops, fsync.
    """

    factors: Factors
    codes: tuple[str, ...]


def asked(options: Options, defaults: Options | None = None) -> Asked:
    """Return what a job's options say.

    defaults : what those are that it does not state, where that is known
    """
    return _asked(tuple(options.items()), tuple((defaults or {}).items()))


@lru_cache(maxsize=4096)
def _asked(stated: tuple[tuple[str, str], ...], defaults: tuple[tuple[str, str], ...]) -> Asked:
    own = {_SAME[name]: text for name, text in stated if name in _SAME} | dict(stated)
    options = dict(defaults) | own
    found: Factors = {"sync": 0} | _direction(options)
    for option, (column, parse) in _PARSERS.items():
        if option in options and (value := parse(options[option])) == value:
            found[column] = value
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
        on = [f"{name}={options[name]}" for name in names if _flag(options.get(name, "0"))]
        found[setting] = " ".join(on)
    if "size" in options and "size_bytes" not in found:  # a share of the device
        found["other_options"] = f"size={options['size']} {found['other_options']}".strip()
    paced = [name for name in ("thinktime", "latency_target") if options.get(name, "0") != "0"]
    codes = [name.replace("_", "-") for name in paced]
    if found.get("ioengine") in ONE_IN_FLIGHT:
        found["in_flight"] = 1
        if (depth := found.get("iodepth", 1)) > 1:
            codes.insert(0, "iodepth")
            if "ioengine" not in own:  # fio says that it caps the depth
                found["iodepth"] = 1
                found["iodepth_options"] = f"iodepth={depth} {found['iodepth_options']}".strip()
    return Asked(found, tuple(codes))


def _direction(options: Options) -> Factors:
    """Return rw and rwmixread as a plan has them: a mix of one direction is that direction."""
    rw = options.get("rw", "").partition(":")[0]
    rw = LONG_RW.get(rw, rw)
    if rw not in MIXED:
        return {"rw": rw, "rwmixread": READ_PCT.get(rw, nan)} if rw else {}
    reads_pct = _percent(options, "rwmixread", 100 - _percent(options, "rwmixwrite", 50))
    random_pct = _percent(options, "percentage_random", 100.0 if rw == "randrw" else 0.0)
    side = {100.0: "read", 0.0: "write"}.get(reads_pct, "rw")
    found: Factors = {"rw": f"rand{side}" if random_pct > 0 else side}
    found["rwmixread"] = int(reads_pct) if reads_pct.is_integer() else reads_pct
    return found | ({"percentage_random": random_pct} if 0 < random_pct < 100 else {})


def _percent(options: Options, name: str, default: float) -> float:
    """Return one share, of reads where there are several; math.nan, which equals itself in sets."""
    text = options.get(name, "").partition(",")[0] or default
    try:
        share = float(text)
    except ValueError:
        raise ForeignError(f"option {name} is {text!r:.20}, expected a number") from None
    return share if share == share else nan


def _offered(rates: str, reads_pct: float) -> float:
    """Return the IOPS of one job by fio's rate_iops, one number or one a direction.

    NaN where it is no demand: of a mix whose directions are held at other shares than its own,
    nobody can say how much is asked.
    """
    each = [float(rate) if rate.isdecimal() else nan for rate in rates.split(",")]
    read, write = (2 * each[:2])[:2]
    if reads_pct in (0, 100):
        return (read if reads_pct else write) or nan
    total = read + write or nan
    return total if abs(read / total - reads_pct / 100) <= RATE_SHARES else nan


def together(of_jobs: Sequence[Factors]) -> Factors:
    """Return what jobs that ran at once were asked for; of an uneven load no one number.

    Raises
    ------
    ForeignError : they did different things, so that they are no one cell
    """
    found: Factors = dict(of_jobs[0])
    if len(of_jobs) == 1:  # thousands of files have one job each
        return found
    for name in dict.fromkeys(chain(*of_jobs)):
        values = {one.get(name, nan) for one in of_jobs}
        known = sorted((value for value in values if value == value), key=str)
        if len(values) == 1:
            continue
        if name in UNLIKE:
            shown = " and ".join(sorted(map(str, values)))
            raise ForeignError(f"jobs of {name} {shown} ran at once: together they are no one cell")
        if name in SETTINGS:
            found[name] = ", ".join(known) if isinstance(known[0], str) else max(known)
        elif name in ("rate_bytes", "rate_iops"):
            found[name] = max(values, key=str)
        elif name == "numjobs" and nan not in values:
            found[name] = max(values)
        elif name == "iodepth":
            found[name] = nan
        else:
            found.pop(name, None)
    return found


def pattern_of(factors: Factors) -> str:
    """Return the pattern's name; one that no plan could have is named after what is known.

    A rate in bytes is left out then.
    """
    bs, mix, rate = (factors.get(name, nan) for name in ("bs_bytes", "rwmixread", "rate_bytes"))
    hot = factors.get("random_distribution", "")
    name = _name(factors.get("rw", "?"), bs, mix, factors["sync"], rate if rate > 0 else 0, hot)
    for flush in ("fsync", "fdatasync"):
        if flush in factors and mix < 100:
            name += f"-{flush}" + factors[flush].removesuffix("1" * (factors[flush] == "1"))
    return name


@lru_cache(maxsize=4096)
def _name(rw: str, bs: float, mix: float, sync: int, rate: float, hot: str) -> str:
    try:
        return Pattern(rw, int(bs), int(mix), sync, int(rate), 0, hot).name
    except (PlanError, ValueError):
        size = f"{bs / 1024:g}k" if bs % 1024 == 0 else f"{bs:g}b" if bs > 0 else "?"
        share = f"{mix:g}" if rw.endswith("rw") and mix >= 0 else ""
        return f"{size}-{rw}{share}{SYNC[sync]}"
