"""With which settings a job ran, besides its cell: runs that differ in one of them are no repeats of each other.

A setting that a file does not state is missing, so that it differs from nothing. fio states every option that it was
given, and what it was not given has fio's default: psync through the page cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import isfinite, nan
from typing import Any

from hcilib.model.metrics import SETTINGS
from hcilib.read.fio.fio import milliseconds

DEFAULTS = {"ioengine": "psync", "direct": "0"}
"""fio's, on Linux."""
_TARGET = ("filename", "directory", "uri", "pool", "rbdname", "volume", "brick", "opendir")
_OF_THE_QUEUE = (
    "iodepth_batch", "iodepth_batch_submit", "iodepth_batch_complete", "iodepth_batch_complete_min",
    "iodepth_batch_complete_max", "iodepth_low", "io_submit_mode", "serialize_overlap",
)  # fmt: skip
_OF_THE_DATA = (
    "buffer_compress_percentage", "buffer_compress_chunk", "dedupe_percentage", "dedupe_mode", "zero_buffers",
    "refill_buffers", "scramble_buffers", "buffer_pattern",
)  # fmt: skip
_OTHERS = (
    "thinktime", "thinktime_blocks", "norandommap", "random_generator", "verify", "nrfiles", "openfiles", "offset",
    "offset_increment", "io_size", "number_ios", "loops", "fill_device", "end_fsync", "fallocate", "hipri",
    "sqthread_poll", "fixedbufs", "registerfiles", "nonvectored", "latency_target", "rate_process", "zonemode", "nice",
    "cpus_allowed", "numa_cpu_nodes", "create_on_open", "file_service_type", "sync", "fsync", "fdatasync",
)  # fmt: skip
_ASKED = (
    "ioengine", "direct", "buffered", "runtime", "timeout", "ramp_time", "size", "filesize", "time_based",
    *_TARGET, *_OF_THE_QUEUE, *_OF_THE_DATA, *_OTHERS,
)  # fmt: skip
OFF = ("0", "false", "none")
_SIZE = re.compile(r"(\d+)(?:([kKmMgGtT])(i[bB])?[iI]?[bB]?|[bB]?)")
_POWER = {"k": 1, "m": 2, "g": 3, "t": 4}


def bytes_of(text: str) -> float:
    """A size as fio takes it: k, kb and ki are 1024, but kib is 1000 (seen with 3.33); NaN where it is none, such as
    ``4k,64k``."""
    match = _SIZE.fullmatch(text.strip().rstrip(","))
    if not match:
        return nan
    number, unit, decimal = match.groups()
    return int(number) * (1000 if decimal else 1024) ** _POWER[unit.lower()] if unit else int(number)


def settings_of(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings (`hcilib.model.metrics.SETTINGS`) that a job's options state, under fio's names."""
    return _settings(tuple([(name, options[name]) for name in _ASKED if name in options]))


@lru_cache(maxsize=4096)
def _settings(asked: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    options = dict(asked)
    settings: dict[str, Any] = {}
    if engine := options.get("ioengine"):
        settings["ioengine"] = engine
    if "direct" in options or "buffered" in options:
        buffered = options.get("buffered", "1") not in OFF
        settings["direct"] = int(options["direct"] not in OFF if "direct" in options else not buffered)
    for column, names in (("set_runtime_s", ("runtime", "timeout")), ("ramp_time_s", ("ramp_time",))):
        if text := next((options[name] for name in names if name in options), ""):
            settings[column] = milliseconds(text) / 1000
    if size := options.get("size", options.get("filesize", "")):
        settings["size_bytes"] = bytes_of(size)
    if target := " ".join(options[name] for name in _TARGET if options.get(name)):
        settings["target"] = target
    others = {"size": size} if size and not isfinite(bytes_of(size)) else {}
    settings["iodepth_options"] = _text({}, _OF_THE_QUEUE, options)
    settings["buffer_options"] = _text({}, _OF_THE_DATA, options)
    settings["other_options"] = _text(others, ("time_based", *_OTHERS), options)
    return settings


def _text(first: Mapping[str, str], names: Iterable[str], options: Mapping[str, str]) -> str:
    """``name=value`` of those that are on, with blanks between; the same text for the same settings."""
    on = {name: options[name] for name in names if options.get(name, "0") not in OFF}
    return " ".join(f"{name}={value}" for name, value in {**first, **on}.items())


def together(of_jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings of jobs that ran at once: of several targets all, of other texts likewise, else the largest
    number."""
    if len(of_jobs) == 1:  # thousands of files have one job each
        return {name: value for name, value in of_jobs[0].items() if name in SETTINGS and value == value}
    seen: dict[str, list] = {}
    for settings in of_jobs:
        for name in SETTINGS:
            if (value := settings.get(name, nan)) == value:
                seen.setdefault(name, []).append(value)
    return {name: _one(sorted(set(values))) for name, values in seen.items()}


def _one(values: list) -> Any:
    if len(values) == 1:
        return values[0]
    return ", ".join(values) if isinstance(values[0], str) else values[-1]
