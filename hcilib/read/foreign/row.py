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
from hcilib.model.metrics import QUANTILES
from hcilib.read.fio.fio import RATE, disagreement
from hcilib.read.fio.table import reached
from hcilib.read.foreign.settings import (
    FACTORS,
    ONE_IN_FLIGHT,
    Factors,
    ForeignError,
    pattern_of,
    together,
)

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
_OF_JOBS = ("time_based", "in_flight", "offered")
"""What is known of a load and no column."""
OF_ANOTHER_TEST = "its numbers are not of the test that it states: {}. Mend its name, or repeat it"


class Row(NamedTuple):
    """One direction of one job: ``read`` or ``write``, `NUMBERS`, and its I/Os if counted."""

    ddir: str
    numbers: tuple[float, ...]
    ios: float = nan


@dataclass(slots=True)
class Part:
    """One run, or one host's share of it, as one file has it.

    Parameters
    ----------
    job : which run of the file, where it holds several
    factors : what the file says of the cell (hcilib.read.foreign.settings.asked)
    asked : what it was read from, as text
    rows : every job and direction
    bins : lat_ns and count of all of its histograms; None where there is none
    own_percentiles : column -> ns, where the file prints those of its only distribution
    hosts : the load generators in it
    jobs : how many were seen, over all hosts; one report may hide more of them, so what a name says
        goes before it, unless factors has numjobs
    outstanding : I/Os in flight, where it is known better than as numjobs x iodepth
    offered, full_depth_pct : IOPS that all of its jobs were to do, whether or not the storage keeps
        up, and the share of I/Os that found the queue full; NaN in a closed loop
    flushes : sync_lat_ns and sync_p99_ns of jobs that flush after each write
    failed : it ended with an error, and may not count
    inexact : percentiles taken from it are not of every I/O's total latency, or it has none
    label : what the tool was told to call the run: its system, where nobody says another
    unlike : what its numbers contradict, as its reader found
    contradicted : what is said of a part whose numbers contradict what it says
    """

    job: str = ""
    factors: Factors = field(default_factory=dict)
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


def measured(parts: Sequence[Part], load: Factors) -> tuple[Factors, list[str]]:
    """Return what the parts of one run measured, as a fleet's sum, and the codes of it.

    Parameters
    ----------
    parts : of all hosts and jobs that ran at once
    load : vms and numjobs
    """
    row: Factors = dict(fleet(row for part in parts for row in part.rows))
    codes = []
    offered = sum(part.offered for part in parts)
    if isfinite(offered):
        delivered = 100 * row["iops"] / offered
        kept_up = open_loop(delivered, row["iops"] * row["runtime_s"])
        row |= {"offered_iops": offered, "delivered_pct": delivered, "open_loop": kept_up}
        row["full_depth_pct"] = max(part.full_depth_pct for part in parts)
        codes.append({False: "saturated", None: "too-few"}.get(kept_up, ""))
        codes.append(held_back(row, load["vms"] * load["numjobs"], kept_up))
    quantiles = dict.fromkeys(QUANTILES, nan)
    bins = [part.bins for part in parts if part.bins is not None]
    if len(bins) < len(parts) > 1 or any(part.inexact for part in parts):
        codes.append(PERCENTILES)
    if len(bins) == len(parts):
        lat_ns, count = map(np.concatenate, zip(*bins, strict=True))
        ios = count.sum()
        quantiles = percentiles(lat_ns, count)
        is_beyond = any(ns != ns for ns in islice(quantiles.values(), carried(ios)))
        codes += [thin_tail(ios), BEYOND if is_beyond else ""]
    if len(parts) == 1:
        quantiles |= parts[0].own_percentiles
        row |= parts[0].flushes
    elif all(part.flushes for part in parts):  # one follows each write; their p99 cannot be merged
        writes = [fleet(part.rows)["write_iops"] for part in parts]
        means = [part.flushes["sync_lat_ns"] for part in parts]
        row["sync_lat_ns"] = float(np.average(means, weights=writes))
    return row | quantiles, codes


# ---- The row of one run of a file


def row_of(parts: Sequence[tuple[Part, str]], named: Factors) -> Factors:
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
    several = {"bs_bytes": nan} if "block_sizes" in found else {}  # whatever a name says
    for part in own:
        _refuse_contradictions(part, {**named, **_known(part.factors), **several})
    load = {**named, **_known(found), **several}
    cell = _cell(own, load, named, vms)
    numbers, codes = measured(own, cell)
    row = cell | numbers
    if "offered_iops" in row:
        row["rate_iops"] = f"{row['offered_iops']:.0f}iops"
    codes += [code for part in own for code in part.caveats]
    both = [name for name in FACTORS if name in named and name in found]
    if any(load[name] != named[name] for name in both):
        codes.append("names")
    if found.get("iodepth", 1) != found.get("iodepth", 1):
        codes.append("iodepth")
    if is_of_another_mix(row, row.get("rwmixread", nan)):
        codes.append("mix")
    size_bytes = row.get("size_bytes", nan) * max(cell["numjobs"], 1) * vms
    codes.append(short_cuts(row, size_bytes, row["runtime_s"]))
    share_bytes = size_bytes / len(own)  # a host that ended early is not made good by the others
    row["valid"] = not any(part.failed or _is_cut_short(part, found, share_bytes) for part in own)
    row["warnings"] = join_codes(*codes, "" if row["valid"] else "invalid")
    return row


def _is_cut_short(part: Part, found: Factors, size_bytes: float) -> bool:
    """Return whether a job ended before its runtime.

    One that is not time_based may, once it has done its size. Where that is not stated, or another
    option limits the run, an error or a signal alone shows that it was cut short.
    """
    jobs = [row.numbers for row in part.rows if row.ddir in ("read", "write") and row.numbers[0] > 0]
    is_early = any(runtime_ms / 1000 < ENDED * found.get("set_runtime_s", nan) for *_, runtime_ms, _ in jobs)
    done_bytes = fsum(bw_bytes * runtime_ms / 1000 for _, bw_bytes, _, runtime_ms, _ in jobs)
    is_limited = any(option in found.get("other_options", "") for option in _LIMITS)
    is_undone = done_bytes < ENDED * size_bytes and not is_limited
    return is_early and (found.get("time_based", False) or is_undone)


_LIMITS = ("io_size=", "number_ios=")
"""Options by which a run ends before its size is done."""


def _known(factors: Factors) -> Factors:
    return {name: value for name, value in factors.items() if value == value}


def _cell(parts: Sequence[Part], load: Factors, named: Factors, vms: int) -> Factors:
    """Return the columns that say what was asked for.

    Its jobs are those of the files' options, else of the name, else as many as were seen.
    """
    if "rw" not in load:
        said = "neither the file nor its name says rw"
        raise ForeignError(f"{said}: give names with {{rw}} and {{bs}}, or with {{pattern}}")
    if "trim" in load["rw"]:
        said = "trims are neither reads nor writes"
        raise ForeignError(f"rw {load['rw']}: {said}, so no cell here is like it")
    cell = {name: value for name, value in load.items() if name not in _OF_JOBS}
    if load.get("rwmixread") == 100:  # a read has nothing to make stable
        cell["sync"] = 0
    jobs = sum(part.jobs for part in parts)
    if "numjobs" in named and not all("numjobs" in part.factors for part in parts):
        jobs = named["numjobs"] * max(vms, len(parts))
    jobs_of_vm = jobs / vms if jobs % vms else jobs // vms  # not whole where spread unevenly
    depth = load.get("iodepth", nan)
    cell |= {"pattern": pattern_of(cell), "numjobs": jobs_of_vm, "iodepth": depth, "vms": vms}
    cell["rate_bytes"] = load.get("rate_bytes", 0) * jobs_of_vm
    known = sum(part.outstanding for part in parts)
    waits = any("in_flight" in part.factors for part in parts)
    cell["outstanding"] = known if isfinite(known) else vms * jobs_of_vm * (1 if waits else depth)
    return cell


def _refuse_contradictions(part: Part, load: Factors) -> None:
    """Raise ForeignError where numbers are not of their load; a failed part counts as nothing."""
    if part.failed:
        return
    unlike, damage = list(part.unlike), []
    rw, bs = load.get("rw", ""), load.get("bs_bytes", nan)
    flying = part.outstanding
    if not isfinite(flying):
        flying = part.jobs * load.get("iodepth", nan)
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
        ramp_s = load.get("ramp_time_s", 0)
        if wrong := disagreement(iops, counted, runtime_s, longest_s, ramp_s):
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
    """Return rates, mean and longest latencies and the runtime of every host's rows together.

    Rates add up, latencies are weighted by IOPS. Trims, and reads and writes that fio gives as one,
    are left out. METHODS section 3.
    """
    busy = [row for row in rows if row.ddir in ("read", "write")]
    found: Factors = {}
    for side, name in (("", ""), ("read", "read_"), ("write", "write_")):
        own = [row.numbers for row in busy if row.ddir.startswith(side)]
        found[f"{name}iops"] = _sum(iops for iops, *_ in own)
        timed = [(iops, lat_ns) for iops, _, lat_ns, *_ in own if iops > 0]
        spent_ns = fsum(iops * lat_ns for iops, lat_ns in timed)  # a host may not say how long
        found[f"{name}lat_ns"] = spent_ns / fsum(iops for iops, _ in timed) if timed else nan
    means = [found[name] for name in ("read_lat_ns", "write_lat_ns")]
    known = [mean for mean in means if mean == mean]
    found["lat_unweighted_ns"] = sum(known) / len(known) if known else nan
    found["bw_bytes"] = _sum(row.numbers[1] for row in busy)
    runtimes = [row.numbers[3] for row in busy if row.numbers[3] == row.numbers[3]]
    found["runtime_s"] = max(runtimes, default=nan) / 1000
    longest = [row.numbers[4] for row in busy if row.numbers[4] != 0]  # how fio prints none
    # the longest of those that say so need not be the fleet's
    found["max_lat_ns"] = max(longest, default=nan) if isfinite(sum(longest)) else nan
    return found


def _sum(values: Iterable[float]) -> float:
    return fsum(value for value in values if value == value)


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
    """Return the code of a run whose I/Os are too few for some percentile, else nothing."""
    return THIN_TAIL if ios > 0 and carried(ios) < len(QUANTILES) else ""


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


def held_back(row: Mapping[str, float], jobs: float, kept_up: bool | None) -> str:
    """Return the code of a run at a demand whose jobs nearly always had I/Os in flight.

    Before fio sleeps until the next arrival it waits for those. What was due meanwhile is issued
    late and charged from then (METHODS section 6). More jobs help only storage that keeps up, or
    more VMs. A deeper queue does not, as fio waits for all that is in flight.
    """
    in_flight = row["iops"] * row["lat_ns"] / 1e9 / jobs
    return "held-back" if in_flight > IN_FLIGHT and kept_up is not False else ""


def short_cuts(fio: Factors, working_set_bytes: float, runtime_s: float) -> str:
    """Return what may have answered for the storage: the page cache, memory, the first seconds.

    Parameters
    ----------
    fio : ioengine and direct, where they are stated
    working_set_bytes : of all jobs together
    """
    is_cached = fio.get("ioengine", "psync") in PAGE_CACHED and fio.get("direct") in (0, False)
    return join_codes(
        "direct" if is_cached else "",
        "short" if runtime_s < SHORT_S else "",
        "small-file" if working_set_bytes < MEMORY_BYTES else "",
    )
