"""What a flush took: the `sync` section of fio's output (fdatasync=1), which holds the latency of every fdatasync."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import numpy as np

from hcilib.fio_buckets import ios_to_reach
from hcilib.read.fio.fio_bins import merged, parse_bins
from hcilib.read.fio.fio_fast import SUMS

MEASURES = ("sync_lat_ns", "sync_p99_ns")


def sync_latency(document: bytes) -> dict[str, float]:
    """MEASURES of all jobs of one output together: mean, and the bucket that 99 % of the flushes reach. NaN where none
    was timed, and the percentile where a job that flushed has no histogram (fio 3.x in plain json).

    The flush is not part of a write's own latency in fio: an acknowledged write costs both.
    """
    text = document.decode(errors="replace")
    begin = re.search(r"(?m)^\{", text)  # what servers said may stand before it (TRAPS section 1)
    found = json.JSONDecoder().raw_decode(text, begin.start())[0] if begin else {}
    jobs = [job for job in found.get("client_stats") or found.get("jobs", ()) if job.get("jobname") != SUMS]
    timed = [lat for job in jobs if (lat := _latency(job)) and lat.get("N", 0) > 0]
    if not timed:
        return dict.fromkeys(MEASURES, np.nan)
    counts = np.array([lat["N"] for lat in timed], dtype=float)
    mean = float(np.average([lat["mean"] for lat in timed], weights=counts))
    return dict(zip(MEASURES, (mean, _p99(timed)), strict=True))


def _latency(job: Mapping) -> Mapping:
    return (job.get("sync") or {}).get("lat_ns") or {}


def _p99(timed: list[Mapping]) -> float:
    bins = [parse_bins(json.dumps(lat["bins"]).encode()) for lat in timed if lat.get("bins")]
    if len(bins) < len(timed):
        return np.nan
    lat_ns, counts = merged(*(np.concatenate(column) for column in zip(*bins, strict=True)))
    reached = counts.cumsum()
    return float(lat_ns[np.searchsorted(reached, ios_to_reach(99.0, reached[-1]))])


def full_depth_pct(document: bytes, iodepth: int) -> float:
    """The percentage of I/Os that were submitted to a full queue of `iodepth`, over all jobs; NaN where fio does not
    say.

    fio counts by powers of two up to ">=64": of a deeper queue that is an upper bound, which is 0 where no more I/Os
    can have been in flight than arrived within the longest latency (four standard deviations of a Poisson process above
    its mean).
    """
    text = document.decode(errors="replace")
    begin = re.search(r"(?m)^\{", text)  # what servers said may stand before it (TRAPS section 1)
    found = json.JSONDecoder().raw_decode(text, begin.start())[0] if begin else {}
    total = full = 0.0
    for job in found.get("client_stats") or found.get("jobs", ()):
        if job["jobname"] == "All clients":
            continue
        both = [job["read"], job["write"]]
        ios, rate = (sum(direction[name] for direction in both) for name in ("total_ios", "iops"))
        longest_s = max(direction["lat_ns"]["max"] for direction in both) / 1e9
        arrived = rate * longest_s
        total += ios
        if iodepth <= 64 or not longest_s or arrived + 4 * np.sqrt(arrived) + 1 >= iodepth:
            full += ios * _deepest(job["iodepth_level"], iodepth)
    return full / total if total else np.nan


def _deepest(levels: Mapping[str, float], iodepth: int) -> float:
    """The percentage in the bucket that holds `iodepth`."""
    lowest = {int(name.removeprefix(">=")): share for name, share in levels.items()}
    held = [first for first in lowest if first <= iodepth]
    return lowest[max(held)] if held else np.nan
