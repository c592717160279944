"""What do the parts of one run come to? One way for own runs and for files of other tools."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import fsum, isfinite, nan, sqrt
from typing import Any, NamedTuple

import numpy as np

from hcilib.model.caveats import BEYOND, PERCENTILES, THIN_TAIL, join_codes
from hcilib.model.fio_buckets import TAIL
from hcilib.model.metrics import OF_MEANS, OF_RATES, QUANTILES
from hcilib.read.fio.fio import RATE, disagreement
from hcilib.read.fio.table import reached
from hcilib.read.foreign.settings import (
    FACTORS,
    ONE_IN_FLIGHT,
    ForeignError,
    pattern_of,
    together,
)

FLEET = (*OF_RATES, *OF_MEANS, "max_lat_ns", "runtime_s")
NUMBERS = ("iops", "bw_bytes", "lat_ns_mean", "runtime", "lat_ns_max")
"""Of one job and direction, as fio's JSON has them: I/Os and bytes a second, ns, ms, ns."""
IN_FLIGHT = 0.1
"""I/Os of a job in flight on average, from which it is said that fio holds arrivals back."""
PAGE_CACHED = ONE_IN_FLIGHT | {"libaio", "io_uring", "posixaio", "windowsaio", "solarisaio"}
SHORT_S = 10
"""Runs that are shorter show caches and a drive's first seconds."""
MEMORY_BYTES = 16 * 2**30
"""What is smaller fits into the memory of almost every server."""
DELIVERED = 0.99
"""Share of its request rate that a run has to deliver, at least."""
ENDED = 0.95
"""Share of its stated runtime that a valid run took, at least."""
UNTOLD_DEPTH = 1024
"""I/Os in flight at the end, of which fio counts the bytes alone, where the depth is not stated."""
_NEEDED = [(TAIL - 1e-6) / (1 - percent / 100) for percent in QUANTILES.values()]
OF_ANOTHER_TEST = "its numbers are not of the test that it states: {}. Correct its name, or repeat the run"


class Row(NamedTuple):
    """One direction of one job: ``read`` or ``write``, `NUMBERS`, and its I/Os where they are counted."""

    ddir: str
    numbers: tuple[float, ...]
    ios: float = nan


@dataclass(slots=True)
class Part:
    """One run, or one host's share of it, as one file has it.

    Parameters
    ----------
    job : which run of the file, where it holds several
    factors : what the file says of the cell (hcilib.read.foreign.settings.asked); `asked` is what it was read from, as
        text
    rows : every job and direction
    bins : lat_ns and count of all of its histograms; None where there is none
    own_percentiles : column -> ns, where the file prints those of its only distribution
    hosts : the load generators in it
    jobs : how many were seen, over all hosts; one report may hide more of them, so what a name says goes before it
    outstanding : I/Os in flight, where it is known better than as numjobs x iodepth
    offered, full_depth_pct : IOPS that all of its jobs were to do, whether or not the storage keeps up, and the share
        of I/Os that found the queue full; NaN in a closed loop
    flushes : sync_lat_ns and sync_p99_ns of jobs that flush after each write
    failed : it ended with an error, and may not count
    inexact : percentiles taken from it are not of every I/O's total latency, or it has none
    label : what the tool was told to call the run: its system, where nobody says another
    unlike : what its numbers contradict, as its reader found; `contradicted`: what is said of such a part
    """

    job: str = ""
    factors: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    bins: tuple[np.ndarray, np.ndarray] | None = None
    own_percentiles: dict[str, float] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    jobs: int = 1
    outstanding: float = nan
    offered: float = nan
    full_depth_pct: float = nan
    flushes: dict[str, float] = field(default_factory=dict)
    failed: bool = False
    caveats: tuple[str, ...] = ()
    inexact: bool = False
    label: str = ""
    unlike: tuple[str, ...] = ()
    contradicted: str = OF_ANOTHER_TEST


def measured(parts: Sequence[Part], load: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return what the parts of one run measured, summed as a fleet's, and the codes of what to know of it.

    Parameters
    ----------
    parts : of all hosts and jobs that ran at once
    load : vms and numjobs
    """
    row: dict[str, Any] = dict(fleet(row for part in parts for row in part.rows))
    codes = []
    offered = sum(part.offered for part in parts)
    if isfinite(offered):
        delivered = 100 * row["iops"] / offered
        kept_up = open_loop(delivered, row["iops"] * row["runtime_s"])
        row |= {"offered_iops": offered, "delivered_pct": delivered, "open_loop": kept_up}
        row["full_depth_pct"] = max(part.full_depth_pct for part in parts)
        codes += [unmet(kept_up), held_back(row, load["vms"] * load["numjobs"], kept_up)]
    row |= _flushes(parts)
    quantiles, inexact = _percentiles(parts)
    if inexact:
        codes.append(PERCENTILES)
    if all(part.bins is not None for part in parts):
        ios = sum(part.bins[1].sum() for part in parts if part.bins)
        codes += [thin_tail(ios), beyond(quantiles.values(), ios)]
    return row | quantiles, codes


# ---- The row of one run of a file


def row_of(parts: Sequence[tuple[Part, str]], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `results` columns of one run.

    Parameters
    ----------
    parts : each with the host that its file is of, unless it names its own
    named : what names and folders say. Files go before it, and a contradiction is a code

    Raises
    ------
    ForeignError : the parts do different things, or their numbers are not of what is said of them
    """
    own = [part for part, _ in parts]
    hosts = {host for part, given in parts for host in (part.hosts or (given,))}
    vms = int(named.get("vms", len(hosts)))
    found = together([part.factors for part in own])
    load = {**named, **{name: value for name, value in found.items() if value == value}}
    if "block_sizes" in load:  # whatever a name says
        load["bs_bytes"] = nan
    for part in own:
        known = {name: value for name, value in part.factors.items() if value == value}
        _refuse_contradictions(part, {**named, **known})
    cell = _cell(own, load, named, vms)
    numbers, codes = measured(own, cell)
    row = cell | numbers
    if isfinite(row.get("offered_iops", nan)):
        row["rate_iops"] = f"{row['offered_iops']:.0f}iops"
    codes += [code for part in own for code in part.caveats]
    codes += ["names" for name in FACTORS if name in named and name in found and load[name] != named[name]]
    codes += ["iodepth"] if "iodepth" in found and found["iodepth"] != found["iodepth"] else []
    codes += ["mix"] if is_of_another_mix(row, row.get("rwmixread", nan)) else []
    size_bytes = row.get("size_bytes", nan) * max(cell["numjobs"], 1) * vms
    codes.append(short_cuts(row, size_bytes, row["runtime_s"]))
    row["valid"] = not (_is_cut_short(row, found, size_bytes) or any(part.failed for part in own))
    row["warnings"] = join_codes(*codes, "" if row["valid"] else "invalid")
    return row


def _is_cut_short(row: Mapping[str, Any], found: Mapping[str, Any], size_bytes: float) -> bool:
    """Return whether a run ended before its runtime.

    One that is not time_based may, once it has done its size. Where that is not stated, or another
    option limits the run, an error or a signal alone shows that it was cut short.
    """
    is_early = row["runtime_s"] < ENDED * found.get("set_runtime_s", nan)
    done_bytes = row["bw_bytes"] * row["runtime_s"]
    is_limited = any(option in found.get("other_options", "") for option in _LIMITS)
    is_undone = done_bytes < ENDED * size_bytes and not is_limited
    return is_early and (found.get("time_based", False) or is_undone)


_LIMITS = ("io_size=", "number_ios=")
"""Options by which a run ends before its size is done."""
_OF_JOBS = ("time_based", "in_flight", "offered")
"""What is known of a load and no column."""


def _cell(parts: Sequence[Part], load: Mapping[str, Any], named: Mapping[str, Any], vms: int) -> dict[str, Any]:
    """Return the columns that say what was asked for."""
    if "rw" not in load:
        raise ForeignError("neither the file nor its name says rw: give names with {rw} and {bs}, or with {pattern}")
    if "trim" in load["rw"]:
        raise ForeignError(f"rw {load['rw']}: trims are neither reads nor writes, so no cell here is like it")
    cell = {name: value for name, value in load.items() if name not in _OF_JOBS}
    # a read has nothing to make stable
    cell["sync"] = 0 if load.get("rwmixread") == 100 else load.get("sync", nan)
    jobs, depth = _jobs_of_a_vm(parts, named, vms), load.get("iodepth", nan)
    cell |= {"pattern": pattern_of(cell), "numjobs": jobs, "iodepth": depth, "vms": vms}
    cell["rate_bytes"] = load.get("rate_bytes", 0) * jobs
    known = sum(part.outstanding for part in parts)
    waits = any(part.factors.get("in_flight") for part in parts)
    cell["outstanding"] = known if isfinite(known) else vms * jobs * (1 if waits else depth)
    return cell


def _jobs_of_a_vm(parts: Sequence[Part], named: Mapping[str, Any], vms: int) -> float:
    """Return the jobs by the files' options, else by the name, else as many as were seen."""
    if all("numjobs" in part.factors for part in parts):
        jobs = sum(part.factors["numjobs"] for part in parts)
    elif "numjobs" in named:
        jobs = named["numjobs"] * max(vms, len(parts))
    else:
        jobs = sum(part.jobs for part in parts)
    return jobs / vms if jobs % vms else jobs // vms  # not whole where they were spread unevenly


def _refuse_contradictions(part: Part, load: Mapping[str, Any]) -> None:
    """Raise ForeignError where numbers are not of their load; a failed part counts as nothing."""
    if part.failed:
        return
    unlike, damage = list(part.unlike), []
    rw, bs = load.get("rw", ""), nan if "block_sizes" in load else load.get("bs_bytes", nan)
    flying = part.outstanding if isfinite(part.outstanding) else part.jobs * load.get("iodepth", nan)
    for ddir, (iops, bw_bytes, lat_ns, runtime_ms, longest_ns), counted in part.rows:
        runtime_s = runtime_ms / 1000
        ios = iops * runtime_s
        slack = RATE * ios + (flying if flying == flying else UNTOLD_DEPTH)
        if iops.is_integer():  # printed without decimals, and maybe bandwidth in whole KiB/s
            slack += runtime_s * (1 + 1024 / bs)
        if rw.endswith(("read", "write")) and not rw.endswith(ddir):
            unlike.append(f"{ios:,.0f} {ddir}s were counted, and rw is {rw}")
        elif abs(bw_bytes * runtime_s / bs - ios) > slack:
            size = f"{bw_bytes / max(iops, 1e-9):,.0f}"
            unlike.append(f"a {ddir} has {size} bytes on average, and bs is {bs:,.0f}")
        longest_s = max(lat_ns, longest_ns if longest_ns == longest_ns else 0) / 1e9
        if wrong := disagreement(iops, counted, runtime_s, longest_s, load.get("ramp_time_s", 0)):
            damage.append(f"{ddir}: {wrong}")
    if unlike:
        raise ForeignError(part.contradicted.format("; ".join(dict.fromkeys(unlike))))
    if damage:
        raise ForeignError(f"{'; '.join(damage)}. Copy the file again, or repeat the run")


def is_of_another_mix(row: Mapping[str, float], rwmixread: float) -> bool:
    """Return whether the share of reads is off by more than 1 % and four standard errors."""
    ios = row["iops"] * row["runtime_s"]
    return ios > 0 and abs(100 * row["read_iops"] / row["iops"] - rwmixread) > 1 + 200 / sqrt(ios)


# ---- Rates and latencies


def numbers_of(direction: Any) -> tuple[float, ...]:
    """Return `NUMBERS` of one direction of fio's."""
    lat = direction.lat_ns
    return direction.iops, direction.bw_bytes, lat.mean, direction.runtime, lat.max


def fleet(rows: Iterable[Row]) -> dict[str, float]:
    """Return `FLEET` of every host's rows: rates add up, latencies are weighted by IOPS.

    Trims, and reads and writes that fio gives as one, are left out. METHODS section 3.
    """
    busy = [row for row in rows if row.ddir in ("read", "write")]
    ways = [busy, *([row for row in busy if row.ddir == ddir] for ddir in ("read", "write"))]
    rates = [_sum(row.numbers[0] for row in own) for own in ways]
    lat_ns, *of_each = map(_weighted, ways)
    known = [one for one in of_each if one == one]
    means = lat_ns, sum(known) / len(known) if known else nan, *of_each
    ran = [row.numbers[3] for row in busy if row.numbers[3] == row.numbers[3]]
    longest = [row.numbers[4] for row in busy if row.numbers[4] != 0]  # how fio prints none
    # the longest of those that say so need not be the fleet's
    most = max(longest) if longest and all(one == one for one in longest) else nan
    ends = most, max(ran) / 1000 if ran else nan
    values = *rates, _sum(row.numbers[1] for row in busy), *means, *ends
    return dict(zip(FLEET, values, strict=True))


def _sum(values: Iterable[float]) -> float:
    return fsum(value for value in values if value == value)


def _weighted(rows: Sequence[Row]) -> float:
    """Return a mean latency; NaN where a host did I/O without saying how long it took."""
    pairs = [(row.numbers[0], row.numbers[2]) for row in rows if row.numbers[0] > 0]
    total = fsum(iops for iops, _ in pairs)
    return fsum(iops * lat_ns for iops, lat_ns in pairs) / total if total else nan


# ---- Percentiles


def percentiles(lat_ns: np.ndarray, count: np.ndarray) -> dict[str, float]:
    """Return `QUANTILES` of all I/Os together; NaN where too few of them lie beyond."""
    known = carried(count.sum())
    found = zip(QUANTILES, reached(lat_ns, count, QUANTILES.values()), strict=True)
    return {name: value if n < known else nan for n, (name, value) in enumerate(found)}


def carried(ios: float) -> int:
    """Return how many of QUANTILES, from the median on, a run of so many I/Os can carry.

    One with fewer than ten I/Os beyond it is the story of those few.
    """
    return bisect_right(_NEEDED, ios)


def thin_tail(ios: float) -> str:
    """Return the code of a run whose I/Os are too few for some percentile; nothing where it carries all."""
    return THIN_TAIL if ios > 0 and carried(ios) < len(QUANTILES) else ""


def beyond(quantiles: Iterable[float], ios: float) -> str:
    """Return the code of a run with QUANTILES in fio's last bucket, which it has the I/Os for."""
    return BEYOND if any(ns != ns for ns in islice(quantiles, carried(ios))) else ""


def _percentiles(parts: Sequence[Part]) -> tuple[dict[str, float], bool]:
    """Return those of all histograms together, and whether they are inexact or missing.

    Percentiles of several parts cannot be merged.
    """
    if len(parts) == 1 and parts[0].bins is None:
        return parts[0].own_percentiles or dict.fromkeys(QUANTILES, nan), parts[0].inexact
    bins = [part.bins for part in parts if part.bins is not None]
    if len(bins) < len(parts):
        return dict.fromkeys(QUANTILES, nan), True
    lat_ns, count = (np.concatenate(arrays) for arrays in zip(*bins, strict=True))
    return percentiles(lat_ns, count), any(part.inexact for part in parts)


def _flushes(parts: Sequence[Part]) -> dict[str, float]:
    """Return a mean weighted by writes, as a flush follows each; the p99 of one file alone."""
    if len(parts) == 1:
        return parts[0].flushes
    if not all(part.flushes for part in parts):
        return {}
    writes = [sum(row.numbers[0] for row in part.rows if row.ddir == "write") for part in parts]
    means = [part.flushes["sync_lat_ns"] for part in parts]
    return {"sync_lat_ns": float(np.average(means, weights=writes))}


# ---- Demand


def open_loop(delivered_pct: float, ios: float) -> bool | None:
    """Return whether a run kept up with its request rate.

    99 % was delivered, less three standard errors of a Poisson process (METHODS section 6). None
    where its I/Os are too few to show that 1 % is missing. A full queue is no sign of the
    opposite: at iodepth 1 fio's is full with every I/O.
    """
    error = 3 / sqrt(max(ios, 1))
    if not delivered_pct >= 100 * (DELIVERED - error):
        return False
    return True if error <= 1 - DELIVERED else None


def unmet(kept_up: bool | None) -> str:
    """Return the code of a request rate that was not kept up with, or of which this is not known."""
    return "" if kept_up else "too-few" if kept_up is None else "saturated"


def held_back(row: Mapping[str, float], jobs: float, kept_up: bool | None) -> str:
    """Return the code of a run at a demand whose jobs nearly always had I/Os in flight.

    Before fio sleeps until the next arrival it waits for those. What was due meanwhile is issued
    late and charged from then (METHODS section 6). More jobs help only storage that keeps up, or
    more VMs. A deeper queue does not, as fio waits for all that is in flight.
    """
    in_flight = row["iops"] * row["lat_ns"] / 1e9 / jobs
    return "held-back" if in_flight > IN_FLIGHT and kept_up is not False else ""


def short_cuts(fio: Mapping[str, Any], working_set_bytes: float, runtime_s: float) -> str:
    """Return what may have answered in place of the storage: the page cache, memory, the first seconds.

    Parameters
    ----------
    fio : ioengine and direct, where they are stated
    working_set_bytes : of all jobs together
    """
    return join_codes(
        "direct" if fio.get("direct") in (0, False) and fio.get("ioengine", "psync") in PAGE_CACHED else "",
        "short" if runtime_s < SHORT_S else "",
        "small-file" if working_set_bytes < MEMORY_BYTES else "",
    )
