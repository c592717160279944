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
