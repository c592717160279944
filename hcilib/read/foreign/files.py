"""One file of fio, DiskSPD or elbencho, as the parts of runs that it holds.

Of DiskSPD, XML or text, a part a timespan; of elbencho, csv or JSON, one a phase that reads or writes, with the rates
and latencies of the whole phase ("last done").
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from math import isfinite, nan
from typing import Any

import numpy as np
import pandas as pd

from hcilib.caveats import PERCENTILES, Caveat
from hcilib.read.diskspd.diskspd import DiskspdOutputError, read_diskspd, read_diskspd_bins
from hcilib.read.fio.fio_document import LOCAL_HOST
from hcilib.read.fio.fio_fast import Direction
from hcilib.read.fio.fio_json import full_depth_pct, sync_latency
from hcilib.read.fio.fio_reports import Entry, FioFile, FioOutputError, bins_of, parse
from hcilib.read.foreign.parts import FDATASYNC, NUMBERS, UNLIKE, ForeignError, Part, Row, asked
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


def fio_parts(raw: bytes, path: str) -> tuple[list[Part], str]:
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
    return bins.kind, bins.of_rows() if bins.kind else []


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


_SHOWN_OF_DISKSPD = ("rw", "bs", "iodepth", "numjobs", "rwmixread", "runtime")
_MARKS = (b"<Results", b"Command Line:", b"Input parameters:")
_ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be")
_REBUILT = Caveat(
    PERCENTILES, "percentiles are rebuilt from those that DiskSPD prints: in between they are upper bounds"
)


def is_diskspd(raw: bytes) -> bool:
    """By its XML's root, or by the two headings with which its text begins; VMFleet's files are UTF-16."""
    head = raw[:8192]
    xml, *text = ([mark.decode().encode(encoding) for encoding in _ENCODINGS] for mark in _MARKS)
    return any(mark in head for mark in xml) or all(any(mark in head for mark in each) for each in text)


def diskspd_parts(path: str) -> tuple[list[Part], str]:
    """Its runs, and DiskSPD's version.

    Raises
    ------
    DiskspdOutputError : as `read_diskspd`; and targets that were asked for different things in one timespan
    """
    table = read_diskspd(path)
    bins = read_diskspd_bins(path)
    spans = list(table.groupby("groupid", sort=True))
    parts = [
        _span(span, bins[bins["groupid"] == number], table.attrs, int(number), len(spans)) for number, span in spans
    ]
    return parts, table.attrs["diskspd_version"]


def _span(rows: pd.DataFrame, bins: pd.DataFrame, attrs: dict[str, Any], number: int, spans: int) -> Part:
    options = [_options(row) for row in rows.to_dict("records")]
    told = [asked(given) for given in options]
    for name in ("rw", "bs_bytes", "rwmixread"):
        values = {f.get(name) for f, _ in told}
        if len(values) > 1:
            shown = " and ".join(sorted(map(str, values)))
            raise DiskspdOutputError(f"targets of {name} {shown} in one timespan: together they are no one cell")
    factors = {name: value for name, value in told[0][0].items() if name not in ("numjobs", "iodepth", "time_based")}
    threads = rows[["job", "clone"]].drop_duplicates()
    factors["numjobs"] = len(threads)
    outstanding = attrs["outstanding"].get(number, nan)
    depth = outstanding / len(threads)
    factors["iodepth"] = int(depth) if float(depth).is_integer() else depth
    measured = rows[list(NUMBERS)].astype(float).to_numpy()
    errors = {4: "interrupted before it measured", 74: "its rows cannot be the whole timespan"}
    failed = sorted({int(error) for error in rows["error"] if error})
    latency = len(bins) > 0
    return Part(
        job=f"timespan {number + 1}" if spans > 1 else "",
        factors={name: value for name, value in factors.items() if value == value},
        asked={name: options[0][name] for name in _SHOWN_OF_DISKSPD if name in options[0]},
        rows=[Row(ddir, tuple(values)) for ddir, values in zip(rows["ddir"], measured, strict=True)],
        bins=(bins["lat_ns"].to_numpy(), bins["count"].to_numpy()) if latency else None,
        hosts=(),
        outstanding=outstanding if isfinite(outstanding) else nan,
        errors=tuple(errors.get(code, f"error {code}") for code in failed),
        caveats=(_REBUILT,) if latency else (),
        percentiles="" if latency else "DiskSPD measured no latency (-L): no percentiles, no mean latency",
    )


def _options(row: dict[str, Any]) -> dict[str, str]:
    return {
        name.removeprefix("opt_"): value
        for name, value in row.items()
        if name.startswith("opt_") and isinstance(value, str)
    }


_PHASE = re.compile(r"(READ|WRITE)|RWMIX(\d+)")
_COARSE = "elbencho's histogram has buckets 19 % wide: no percentiles are taken from it"
_TRUE = ("1", "true")
_HEAD = b"ISO date,label,path type,"

Field = Callable[[str, str], str]
"""Text of one field, by its names in csv and in JSON (where | stands for a slash of a key); empty where it has none."""


def is_elbencho(raw: bytes) -> bool:
    return raw.removeprefix(b"\xef\xbb\xbf").startswith(_HEAD) or (b'"phase_type"' in raw and b'"last_done"' in raw)


def elbencho_parts(raw: bytes, path: str) -> tuple[list[tuple[Part, str]], str]:
    """Its runs, each with the user's label, and elbencho's version.

    Raises
    ------
    ForeignError : a line that has another number of fields than the heading, JSON that is cut off, or no phase that
        reads or writes
    """
    text = raw.decode("utf-8-sig", "replace")
    phases = list(_of_csv(text, path) if text.startswith(_HEAD.decode()) else _of_json(text, path))
    found = [
        (part, label) for number, field in enumerate(phases, 1) for part, label in _phase(field, number, len(phases))
    ]
    if not found:
        raise ForeignError(f"{path}: no phase of it reads or writes")
    return found, phases[0]("version", "config/version")


def _of_csv(text: str, path: str) -> Iterator[Field]:
    lines = csv.reader(io.StringIO(text))
    head = next(lines)
    for line in lines:
        if line and line[0] == head[0]:
            continue
        if len(line) != len(head):
            raise ForeignError(f"{path}: line {lines.line_num} has {len(line)} of {len(head)} fields: was it cut off?")
        yield partial(_cell, dict(zip(head, line, strict=True)))


def _of_json(text: str, path: str) -> Iterator[Field]:
    """Documents follow one another without anything in between; every value is text."""
    decoder, at = json.JSONDecoder(), 0
    while (at := len(text) - len(text[at:].lstrip())) < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
        except ValueError as error:
            raise ForeignError(f"{path}: the JSON is broken off: {error}") from None
        yield partial(_leaf, document)


def _cell(row: dict[str, str], name: str, _: str) -> str:
    return row.get(name, "")


def _leaf(tree: Any, _: str, place: str) -> str:
    for name in place.split("/"):
        tree = tree.get(name.replace("|", "/"), "") if isinstance(tree, dict) else ""
    return tree if isinstance(tree, str) else ""


def _phase(field: Field, number: int, phases: int) -> Iterator[tuple[Part, str]]:
    """The run of a phase; nothing of one that handles entries alone."""
    phase = _PHASE.fullmatch(field("operation", "phase_type"))
    iops = _float(field("IOPS [last]", "last_done/iops"))
    if not phase or iops != iops:
        return
    reads = {"READ": 100.0, "WRITE": 0.0}.get(phase[1] or "", float(phase[2] or 0))
    seconds = _float(field("time ms [last]", "last_done/elapsed_time_ms")) / 1000
    bs = _float(field("block size", "config/block_size"))
    main = (
        iops,
        _bytes_per_s(field, "MiB/s [last]", "last_done/bytes|s"),
        _latency(field, "IO lat us [avg]", "last_done/latency/IO/avg_us"),
    )
    rows = [("read" if reads == 100 else "write", *main)]
    mixed = _float(field("rwmix read IOPS [last]", "last_done/rwmix_read/iops"))
    if phase[2] and mixed == mixed:
        bw = _bytes_per_s(field, "rwmix read MiB/s [last]", "last_done/rwmix_read/bytes|s")
        lat = _latency(field, "rwmix read IO lat us [avg]", "last_done/latency/IO/rwmix_read/avg_us")
        rows.append(("read", mixed, bw, lat))
    random = field("random", "config/random_offsets").lower() in _TRUE
    kind = "rw" if phase[2] and 0 < reads < 100 else "read" if reads == 100 else "write"
    depth = _float(field("IO depth", "config/io_depth"))
    hosts, threads = (int(_float(field(name, f"config/{name}")) or 1) for name in ("hosts", "threads"))
    factors: dict[str, Any] = {"rw": ("rand" if random else "") + kind, "rwmixread": int(reads), "iodepth": int(depth)}
    factors |= {"numjobs": hosts * threads, "sync": 0} | ({"bs_bytes": int(bs)} if bs == bs else {})
    cached = field("direct IO", "config/direct_io").lower() not in _TRUE
    asked = {
        "rw": factors["rw"],
        "bs": f"{bs:g}",
        "iodepth": f"{depth:g}",
        "numjobs": f"{threads}",
        "rwmixread": f"{reads:g}",
    }
    part = Part(
        job=f"phase {number}" if phases > 1 else "",
        factors=factors,
        asked=asked if kind == "rw" else {name: text for name, text in asked.items() if name != "rwmixread"},
        rows=[Row(ddir, (rate, bw, lat, 1000 * seconds, nan)) for ddir, rate, bw, lat in rows],
        hosts=tuple(f"host {n}" for n in range(1, hosts + 1)),
        outstanding=hosts * threads * depth,
        caveats=(Caveat("direct", "without --direct: the page cache of the host was measured too"),) * cached,
        percentiles=_COARSE,
        identity=" ".join(
            (field("ISO date", "iso_start_date"), field("operation", "phase_type"), field("label", "label"))
        ),
    )
    yield part, field("label", "label")


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


def _bytes_per_s(field: Field, mib: str, exact: str) -> float:
    """csv has whole MiB a second, JSON bytes."""
    return _float(field(mib, "")) * 2**20 if field(mib, "") else _float(field("", exact))


def _latency(field: Field, name: str, place: str) -> float:
    return 1000 * _float(field(name, place))
