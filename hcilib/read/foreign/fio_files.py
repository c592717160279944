"""One file of fio, of any version, as the parts of runs that it holds."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import isfinite, nan

import numpy as np

from hcilib.read.fio.fio_bins import bins_of
from hcilib.read.fio.fio_document import LOCAL_HOST
from hcilib.read.fio.fio_fast import Direction
from hcilib.read.fio.fio_json import full_depth_pct, sync_latency
from hcilib.read.fio.fio_reports import Entry, FioFile, FioOutputError, parse
from hcilib.read.foreign.parts import FDATASYNC, UNLIKE, Part, Row, asked
from hcilib.read.run.step_tables import QUANTILES, carried, thin_tail

_SHOWN = ("rw", "bs", "iodepth", "numjobs", "rwmixread", "rate_iops", "runtime")
_OF_CLAT = "percentiles are of completion latency: the file has none of total latency (lat_percentiles=1)"
_APART = 0.9
"""Groups overlap where one begins before this share of the other's runtime has passed."""


def is_fio(raw: bytes) -> bool:
    return b'"fio version"' in raw


def is_fio_text(raw: bytes) -> bool:
    """What fio prints when nobody asks for JSON, or its terse lines."""
    return b": (g=0): rw=" in raw or re.match(rb"\d;fio-\d", raw) is not None


def parts_of(raw: bytes, path: str) -> tuple[list[Part], str]:
    """Its runs, and fio's version.

    Raises
    ------
    FioOutputError : as `read_fio`; and jobs of which nobody can say whether they ran at once
    """
    file = parse(raw, path)
    if not file.entries:
        raise FioOutputError(f"{path}: the fio document reports no job")
    rows = [(n, ddir, direction) for n, entry in enumerate(file.entries) for ddir, direction in entry.directions]
    bins = _bins(file, path) if b'"bins"' in raw else (None, [])
    groups = _groups(file.entries, path)
    parts = [_part(file.entries, own, rows, bins, len(groups) > 1) for own in groups]
    for part, own in zip(parts, groups, strict=True):
        if isfinite(part.offered) and isfinite(depth := part.factors["iodepth"]):
            part.full_depth_pct = full_depth_pct(raw, depth, _of(file.entries, own))
        if part.factors.get("sync") == FDATASYNC:
            part.flushes = sync_latency(raw, _of(file.entries, own))
    return parts, file.version


def _of(entries: Sequence[Entry], own: Sequence[int]) -> Callable[[str, str], bool]:
    """Whether a job, by its host and name, is one of these."""
    mine = {(entries[n].report.hostname, entries[n].report.jobname) for n in own}
    return lambda host, job: (host or LOCAL_HOST, job) in mine


def _bins(file: FioFile, path: str) -> tuple[str | None, list[tuple[np.ndarray, np.ndarray]]]:
    """The histogram of every row, empty where it has none."""
    bins = bins_of(file, path)
    if bins.kind is None:
        return None, []
    ends = np.cumsum(bins.lengths)
    spans = [slice(end - length, end) for end, length in zip(ends, bins.lengths, strict=True)]
    return bins.kind, [(bins.lat_ns[span], bins.count[span]) for span in spans]


def _groups(entries: Sequence[Entry], path: str) -> list[list[int]]:
    """The entries of each run of the file. fio numbers groups anew after a `stonewall`, which it does not print, and
    for a `new_group`."""
    if len(entries) == 1:
        return [[0]]
    by_group = defaultdict(list)
    for n, entry in enumerate(entries):
        by_group[entry.report.groupid].append(n)
    groups = list(by_group.values())
    if len(groups) == 1:
        return groups
    starts = [min(entries[n].report.job_start for n in group) for group in groups]
    if all(map(isfinite, starts)):
        ran = [max(d.runtime for n in group for _, d in entries[n].directions) for group in groups]
        order = sorted(range(len(groups)), key=starts.__getitem__)
        apart = all(starts[b] - starts[a] > _APART * ran[a] for a, b in pairwise(order))
        return groups if apart else [[n for group in groups for n in group]]
    cells = [tuple(sorted(asked(entries[group[0]].options)[0].items(), key=str)) for group in groups]
    if len(set(cells)) < len(cells):
        raise FioOutputError(
            f"{path}: {len(groups)} groups of jobs of one workload: whether they ran at once (new_group) or one after "
            "the other (stonewall), fio does not say; keep one group a file"
        )
    return groups


def _part(entries: Sequence[Entry], own: list[int], rows: Sequence, bins, several: bool) -> Part:
    wanted = set(own)
    mine = [entries[n] for n in own]
    told = [asked(entry.options) for entry in mine]
    alone = {100: "read", 0: "write"}.get(told[0][0].get("rwmixread", nan), "mixed")
    ddirs = {place: alone if ddir == "mixed" else ddir for place, (n, ddir, _) in enumerate(rows) if n in wanted}
    places = [place for place, ddir in ddirs.items() if ddir in ("read", "write")]
    if not places and "mixed" in ddirs.values():
        raise FioOutputError("unified_rw_reporting: reads and writes are one number in it, and cannot be told apart")
    factors, said = dict(told[0][0]), told[0][1]
    if len(told) > 1:
        unlike = [name for name in UNLIKE if len({f.get(name) for f, _ in told}) > 1]
        if unlike:
            shown = " and ".join(sorted({str(f.get(unlike[0])) for f, _ in told}))
            raise FioOutputError(f"jobs of {unlike[0]} {shown} ran at once: together they are no one cell")
        said = tuple(dict.fromkeys(caveat for _, caveats in told for caveat in caveats))
    jobs, stated, flying = _jobs(mine, [f for f, _ in told])
    factors.pop("numjobs", None)
    offered = jobs * factors.pop("offered", nan)
    if isfinite(offered) and len({f.get("offered") for f, _ in told}) == 1:
        del factors["rate_iops"]
    else:
        offered = nan
    factors |= {"numjobs": jobs} if stated else {}
    if mine[0].options:  # what is not among them is fio's default
        factors = {"rw": "read", "rwmixread": 100, "bs_bytes": 4096, "iodepth": 1} | factors
    even = len(told) == 1 or len({f.get("iodepth", 1) for f, _ in told}) == 1
    if not even:
        factors["iodepth"] = nan
    kind, of_row = bins
    own_percentiles: dict[str, float] = {}
    why = ""
    if kind is None:
        own_percentiles, why = _own(places, rows)
    elif kind == "clat":
        why = _OF_CLAT
    given = [of_row[place] for place in places] if kind else []
    remote = {(e.report.hostname, e.report.port) for e in mine if e.report.hostname != LOCAL_HOST or e.report.port}
    return Part(
        job=mine[0].report.jobname if several else "",
        factors=factors,
        asked={name: mine[0].options[name] for name in _SHOWN if name in mine[0].options},
        rows=[Row(ddirs[place], _numbers(rows[place][2])) for place in places],
        bins=tuple(np.concatenate(arrays) for arrays in zip(*given, strict=True)) if given else None,  # type: ignore[arg-type]
        own_percentiles=own_percentiles,
        hosts=tuple(f"{host}:{port}" for host, port in sorted(remote)),
        jobs=jobs,
        outstanding=flying if stated or not even else nan,
        offered=offered,
        errors=tuple(_errors(mine)),
        caveats=said,
        percentiles=why,
    )


def _numbers(direction: Direction) -> tuple[float, ...]:
    """fio prints zeros where it measured no latency."""
    lat = direction.lat_ns
    mean, most = (nan, nan) if lat.N == 0 else (lat.mean, lat.max)
    return direction.iops, direction.bw_bytes, mean, direction.runtime, most


def _jobs(entries: Sequence[Entry], told: Sequence[dict]) -> tuple[int, bool, float]:
    """How many jobs ran, whether numjobs says so, and their I/Os in flight.

    Without numjobs each report is a job: group_reporting, which fio prints only where it was given a value, may hide
    some.
    """
    seen: dict[tuple, tuple[int, float]] = {}
    stated = all(["numjobs" in factors for factors in told])
    if len(entries) == 1:
        jobs = told[0].get("numjobs", 1)
        return jobs, stated, jobs * told[0].get("in_flight", told[0].get("iodepth", 1))
    for entry, factors in zip(entries, told, strict=True):
        report = entry.report
        key = (report.hostname, report.port, report.jobname, report.groupid)
        depth = factors.get("in_flight", factors.get("iodepth", 1))
        if "numjobs" in factors:
            seen[key] = factors["numjobs"], factors["numjobs"] * depth
        else:
            jobs, flying = seen.get(key, (0, 0))
            seen[key] = jobs + 1, flying + depth
    return sum(jobs for jobs, _ in seen.values()), stated, sum(flying for _, flying in seen.values())


def _own(places: Sequence[int], rows: Sequence) -> tuple[dict[str, float], str]:
    """fio's own percentiles, which are those of one job and direction, where there is only one; else why there are
    none."""
    if len(places) != 1:
        return (
            {},
            f"percentiles of {len(places)} jobs or directions without histograms cannot be merged: json+ keeps them",
        )
    direction = rows[places[0]][2]
    lat = direction.lat_ns.percentile
    printed = lat or direction.clat_ns.percentile
    found = {name: printed[q] for name, q in _printed_as(tuple(printed)).items()}
    if not found:
        return {}, "the file holds no percentiles"
    few, known = thin_tail(direction.total_ios), carried(direction.total_ios)
    found = {name: found.get(name, nan) if n < known else nan for n, name in enumerate(QUANTILES)}
    return found, "; ".join(filter(None, [str(few), "" if lat else _OF_CLAT]))


@lru_cache(maxsize=256)
def _printed_as(names: tuple[str, ...]) -> dict[str, str]:
    """Column -> how this file writes its percentile."""
    numbers = {float(name): name for name in names}
    return {column: numbers[q] for column, q in QUANTILES.items() if q in numbers}


def _errors(entries: Sequence[Entry]) -> list[str]:
    said = []
    for entry in entries:
        report = entry.report
        if report.error > 0:
            problem = f"fio reports error {int(report.error)}"
        elif report.total_err > 0:
            problem = f"{int(report.total_err)} I/Os failed and fio went on"
        elif not any([direction.any_io for _, direction in entry.directions]):
            problem = "no I/O was done"
        else:
            continue
        place = f" on {report.hostname}" if report.hostname != LOCAL_HOST else ""
        said.append(f"job {report.jobname}{place}: {problem}")
    return said
