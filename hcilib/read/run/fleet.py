"""The fleet of one step: what the rows and histograms of its hosts come to."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache

import numpy as np

from hcilib.caveats import NONE, THIN_TAIL, Caveat, Caveats
from hcilib.fio_buckets import TAIL
from hcilib.read.fio.fio_bins import reached

QUANTILES = {"p50_ns": 50.0, "p95_ns": 95.0, "p99_ns": 99.0, "p999_ns": 99.9, "p9999_ns": 99.99}
"""In percent, as fio is asked for them: its target is a little more than 999 in a thousand, 0.999 a little less."""
_NEEDED = [(TAIL - 1e-6) / (1 - percent / 100) for percent in QUANTILES.values()]
MEASURES = tuple(
    [
        "iops",
        "read_iops",
        "write_iops",
        "bw_bytes",
        "lat_ns",
        "lat_unweighted_ns",
        "read_lat_ns",
        "write_lat_ns",
        "max_lat_ns",
        "runtime_s",
    ]
)


def aggregate(ddir: np.ndarray, numbers: dict[str, np.ndarray]) -> dict[str, float]:
    """MEASURES from the rows of one step: rates add up, latencies are weighted by IOPS (METHODS section 3).

    Parameters
    ----------
    ddir : text of each row; "mixed" and "trim" rows are left out
    numbers : iops, bw_bytes, lat_ns_mean, runtime, lat_ns_max of each row

    fio's own "All clients" row is not used.
    """
    if len(ddir) == 1:
        return of_one(ddir[0], {name: float(column[0]) for name, column in numbers.items()})
    read, write = ddir == "read", ddir == "write"
    busy = read | write
    lat, iops = numbers["lat_ns_mean"], numbers["iops"]
    rates = [_sum(iops[rows]) for rows in (busy, read, write)]
    bw_bytes = _sum(numbers["bw_bytes"][busy])
    by_direction = [_weighted(lat[rows], iops[rows]) for rows in (read, write)]
    measured = [one for one in by_direction if one == one]
    unweighted = sum(measured) / len(measured) if measured else np.nan
    ran = numbers["runtime"][busy & ~np.isnan(numbers["runtime"])]
    ends = _largest(numbers["lat_ns_max"][busy]), ran.max() / 1000 if len(ran) else np.nan
    lat_ns = _weighted(lat[busy], iops[busy])
    return dict(zip(MEASURES, (*rates, bw_bytes, lat_ns, unweighted, *by_direction, *ends), strict=True))


def of_one(ddir: str, row: dict[str, float]) -> dict[str, float]:
    """`aggregate` of a single row, without arrays: files of one job come by the ten thousand."""
    busy = ddir in ("read", "write")
    iops, bw, ran = (row[name] if busy else np.nan for name in ("iops", "bw_bytes", "runtime"))
    lat = row["lat_ns_mean"] * iops / iops if iops > 0 else np.nan
    read, write = (lat if ddir == name else np.nan for name in ("read", "write"))
    rate, bw = (value if value == value else 0.0 for value in (iops, bw))
    rates = rate, rate * (ddir == "read"), rate * (ddir == "write")
    longest = row["lat_ns_max"] if lat == lat else np.nan
    return dict(zip(MEASURES, (*rates, bw, lat, lat, read, write, longest, ran / 1000), strict=True))


def _sum(values: np.ndarray) -> float:
    total = float(values.sum())
    return total if total == total else float(np.nansum(values))  # which takes five times as long for a few numbers


def _largest(values: np.ndarray) -> float:
    """NaN where a row does not say: the longest of the others need not be the fleet's. 0 is how fio prints none at
    all."""
    known = values[values != 0]
    return float(known.max()) if len(known) else np.nan


def _weighted(values: np.ndarray, weights: np.ndarray) -> float:
    """NaN where a host did I/O without saying how long it took: a mean over the others would not be the fleet's."""
    if np.isnan(values[weights > 0]).any():
        return np.nan
    total = _sum(weights)
    return _sum(values * weights) / total if total else np.nan


def percentiles(lat_ns: np.ndarray, count: np.ndarray) -> dict[str, float]:
    """Of all hosts' I/Os together; NaN where `thin_tail` says that too few of them lie beyond."""
    ios = count.sum()
    found = zip(QUANTILES.items(), reached(lat_ns, count, QUANTILES.values()), strict=True)
    return {name: np.nan if is_thin(ios, percent) else value for (name, percent), value in found}


def is_thin(ios: float, percent: float) -> bool:
    """Whether fewer than ten I/Os lie beyond a percentile: it is then the story of those few."""
    return bool(ios * (1 - percent / 100) < TAIL - 1e-6)


def carried(ios: float) -> int:
    """How many of QUANTILES, from the median on, a run of so many I/Os can carry."""
    return bisect_right(_NEEDED, ios)


def thin_tail(ios: float) -> Caveats:
    """Which percentiles a run of so many I/Os cannot carry; nothing where it carries all."""
    return _of_few(carried(ios)) if ios > 0 else NONE


@lru_cache  # files come by the ten thousand, and there are six answers
def _of_few(known: int) -> Caveats:
    few = [f"p{percent:g}" for percent in list(QUANTILES.values())[known:]]
    return Caveats([Caveat(THIN_TAIL, f"fewer than {TAIL} I/Os beyond {', '.join(few)}")]) if few else NONE
