"""Sections of fio's output that matter to few runs: the latency of flushes (`sync`), and how full the queue was
(`iodepth_level`). They are read beside the reports (hcilib.read.fio.fio_reports), by whoever needs them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

import numpy as np

from hcilib.read.fio.fio_bins import parse_bins, reached
from hcilib.read.fio.fio_fast import SUMS

MEASURES = ("sync_lat_ns", "sync_p99_ns")


def sync_latency(document: bytes) -> dict[str, float]:
    """MEASURES of the flushes (fdatasync=1) of all jobs of one output together: mean, and the bucket that 99 % of them
    reach. NaN where none was timed, and the percentile where a job that flushed has no histogram (fio 3.x in plain
    json).

    The flush is not part of a write's own latency in fio: an acknowledged write costs both.
    """
    of_jobs = [(job.get("sync") or {}).get("lat_ns") or {} for job in _jobs(document)]
    timed = [lat for lat in of_jobs if lat.get("N", 0) > 0]
    if not timed:
        return dict.fromkeys(MEASURES, np.nan)
    mean = float(np.average([lat["mean"] for lat in timed], weights=[lat["N"] for lat in timed]))
    bins = [parse_bins(json.dumps(lat["bins"]).encode()) for lat in timed if lat.get("bins")]
    p99 = np.nan
    if len(bins) == len(timed):
        lat_ns, count = map(np.concatenate, zip(*bins, strict=True))
        [p99] = reached(lat_ns, count, [99.0])
    return dict(zip(MEASURES, (mean, p99), strict=True))


def full_depth_pct(document: bytes, iodepth: int, of: Callable[[str, str], bool] | None = None) -> float:
    """The percentage of I/Os that were submitted to a full queue of `iodepth`, over all jobs, or those for whose host
    and name `of` holds; NaN where fio does not say.

    fio counts by powers of two up to ">=64": of a deeper queue that is an upper bound, which is 0 where no more I/Os
    can have been in flight than arrived within the longest latency (four standard deviations of a Poisson process above
    its mean).
    """
    total = full = 0.0
    for job in (job for job in _jobs(document) if of is None or of(job.get("hostname", ""), job["jobname"])):
        both = [job[ddir] for ddir in ("read", "write") if ddir in job] or [job["mixed"]]
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


def _jobs(document: bytes) -> list[dict]:
    """What fio wrote of each job, but its sums over clients; text of servers may stand before it (TRAPS section 1)."""
    text = document.decode(errors="replace")
    begin = re.search(r"(?m)^\{", text)
    found = json.JSONDecoder().raw_decode(text, begin.start())[0] if begin else {}
    return [job for job in found.get("client_stats") or found.get("jobs", ()) if job.get("jobname") != SUMS]
