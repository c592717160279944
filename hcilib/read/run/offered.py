"""How a demand was met: whether the load was an open loop, from what fio says of its queue (METHODS section 6)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import numpy as np

DELIVERED, FULL_PCT = 0.99, 0.1
"""An open loop delivers this share of what was asked, and at most this percentage of its I/Os found the queue full."""


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


def open_loop(delivered_pct: np.ndarray, full_pct: np.ndarray, ios: np.ndarray) -> np.ndarray:
    """Which runs kept up with their demand: 99 % of it, less three standard errors of a Poisson process, through a
    queue that did not bind."""
    least = 100 * (DELIVERED - 3 / np.sqrt(np.maximum(ios, 1)))
    return (delivered_pct >= least) & (full_pct <= FULL_PCT)
