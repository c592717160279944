"""fio's JSON output as tables: the `hosts` of one file or of many, and the latency `bins` of one.

Reports of many files are one Arrow table first. Such tables are what processes hand to each other and what the cache
keeps; a DataFrame is made of them once, at the end.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from hcilib.model.compressed import TooLargeError, pieces, read_bytes
from hcilib.model.metrics import OF_FLUSHES
from hcilib.read.fio.fio_document import FioOutputError, raw_of
from hcilib.read.fio.fio_fast import SUMS, Direction, FioFile, Options, Unusual
from hcilib.read.fio.fio_large import read_pieces
from hcilib.read.fio.fio_reports import (
    BIN_KEYS,
    JOB,
    LATENCIES,
    MEASURES,
    bins_of,
    by_key,
    parse,
    parse_bins,
    reached,
    short,
)

__all__ = ["HOST_KEYS", "FioOutputError", "read_fio", "read_fio_bins"]

HOST_KEYS = ("hostname", "port", "job", "groupid", "clone", "ddir")
STATISTICS = ("min", "max", "mean", "stddev", "N")
OPTIONS = ("rw", "bs", "iodepth", "numjobs", "rwmixread", "ioengine", "size", "filename")
OF_LATENCIES = tuple(f"{name}_{s}" for name in LATENCIES for s in STATISTICS)
_OF_ENTRY, _OF_ROW = ("clone", "port", "groupid", "error", *JOB), (*MEASURES, *OF_LATENCIES)
_entry = attrgetter(*_OF_ENTRY[1:])
_row = attrgetter(*MEASURES, *(f"{name}.{s}" for name in LATENCIES for s in STATISTICS))

_PACK_ENTRY, _PACK_ROW = struct.Struct(f"{len(_OF_ENTRY)}d").pack, struct.Struct(f"{len(_OF_ROW)}d").pack

Layout = tuple[tuple[str, ...], ...]
"""The names of the percentiles of slat, clat and lat in one row."""
WITH_DECIMALS = {"iops", "usr_cpu", "sys_cpu", *(f"{name}_{s}" for name in LATENCIES for s in ("mean", "stddev"))}
"""Every other number is a count."""


def read_fio(path: str | Path) -> pd.DataFrame:
    """The `hosts` table of one fio JSON file of any version, plain, .zst or .gz.

    Text around the JSON, several documents (the last counts), interim snapshots and fio's "All clients" sums are
    dealt with; 2.x output is converted. What fio did not measure is NaN.

    Returns
    -------
    DataFrame
        One row per hostname, port, job, groupid, clone (0, 1, ... where a key repeats), ddir (read, write, trim;
        mixed where fio unified them). A report without any I/O gives one row with its planned direction.
        Then error; io_bytes, bw_bytes, iops, runtime (ms), total_ios, short_ios, drop_ios; for slat, clat and lat
        `<lat>_ns_min`, `_max`, `_mean`, `_stddev`, `_N` and fio's own percentiles `<lat>_ns_p99.9`; usr_cpu, sys_cpu,
        ctx, majf, minf, job_start, job_runtime, total_err of the whole report; job options over global ones as
        text, `opt_<name>`. A local run has hostname "localhost" and port 0.
        Counts are int64 where every row has one, all other numbers float64.
        `.attrs`: noise (text around the JSON), fio_version, disk_util (list of dicts), warnings (codes:
        ``interim`` where fio was killed after a report of --status-interval, or may have been).

    Raises
    ------
    FioOutputError
        The file holds no complete fio document.

    Examples
    --------
    >>> hci.read_fio("tests/data/fio/healthy.json")["hostname"].nunique()
    4
    """
    packer = Packer()
    file = _add_file(packer, path)._replace(entries=[])  # of a large document they are as large as the table
    table = packer.packed().to_pandas(use_threads=False)  # of one file threads take longer
    said = {"noise": file.noise, "fio_version": file.version, "disk_util": file.disk_util, "warnings": file.caveats}
    table.attrs |= said
    return table


def read_fio_bins(path: str | Path) -> pd.DataFrame:
    """Latency histograms of one fio json+ file.

    Returns
    -------
    DataFrame
        hostname, port, job, groupid, ddir, lat_ns (midpoint of the bucket), count; clones of a job are added up.
        Ordered by lat_ns within a key. Empty where the file has no bins (plain json).
        `.attrs["latency"]`: "lat" where every direction with I/O has total-latency bins, else "clat", None without.

    Raises
    ------
    FioOutputError
        As `read_fio`; or bins that are not pairs of numbers; or total latency in one job and completion latency in
        another, which are not one distribution; or a file of more than 256 MiB, whose buckets are no table for a
        memory: `read_results` adds them up.
    """
    file = parse(raw_of(path), path)
    keys, bins = by_key(file, bins_of(file, path))
    if not len(bins.lat_ns):
        return _empty(bins.kind)
    table = pd.DataFrame(keys, columns=BIN_KEYS).take(np.repeat(np.arange(len(keys)), bins.lengths))
    table = table.reset_index(drop=True).assign(lat_ns=bins.lat_ns, count=bins.count)
    table.attrs["latency"] = bins.kind
    return table


def _empty(kind: str | None) -> pd.DataFrame:
    text = ("hostname", "job", "ddir")
    columns = [*BIN_KEYS, "lat_ns", "count"]
    table = pd.DataFrame({c: pd.Series(dtype="str" if c in text else "int64") for c in columns})
    table.attrs["latency"] = kind
    return table


class Packer:
    """Takes one file after the other; `packed()` is the table of all."""

    def __init__(self) -> None:
        self._entries, self._rows = bytearray(), bytearray()
        self._hosts: list[str] = []
        self._jobs: list[str] = []
        self._options: list[Options] = []
        self._of_entry: list[int] = []
        self._ddirs: list[str] = []
        self._percentiles: dict[Layout, tuple[list[int], bytearray]] = {}

    def add(self, file: FioFile) -> None:
        """Unusual, and nothing added, where percentiles have names that the tolerant path would change."""
        entries = file.entries
        directions = [direction for entry in entries for _, direction in entry.directions]
        self._add_percentiles(directions)
        self._rows += b"".join([_PACK_ROW(*_row(direction)) for direction in directions])
        self._entries += b"".join([_PACK_ENTRY(entry.clone, *_entry(entry.report)) for entry in entries])
        self._hosts += [entry.report.hostname for entry in entries]
        self._jobs += [entry.report.jobname for entry in entries]
        self._options += [entry.options for entry in entries]
        self._of_entry += [len(entry.directions) for entry in entries]
        self._ddirs += [ddir for entry in entries for ddir, _ in entry.directions]

    def _add_percentiles(self, directions: list[Direction]) -> None:
        """Neighbours mostly have percentiles of the same names: they are packed together. All are, before any is
        added."""
        alike = [(layout, list(neighbours)) for layout, neighbours in groupby(directions, _layout)]
        packed = [_packed_percentiles(layout, neighbours) for layout, neighbours in alike]
        first = len(self._ddirs)
        for (layout, neighbours), values in zip(alike, packed, strict=True):
            of_layout = self._percentiles.setdefault(layout, ([], bytearray()))
            of_layout[0].extend(range(first, first + len(neighbours)))
            of_layout[1].extend(values)
            first += len(neighbours)

    def packed(self) -> pa.Table:
        """The `hosts` table in reading order: missing is null, counts are int64."""
        entry_of = np.repeat(np.arange(len(self._of_entry)), self._of_entry)
        entries, rows = _block(self._entries, len(_OF_ENTRY)).take(entry_of, axis=1), _block(self._rows, len(_OF_ROW))
        numbers = dict(zip((*_OF_ENTRY, *_OF_ROW), (*entries, *rows), strict=True)) | self._percentile_columns()
        _blank_what_was_not_measured(numbers)
        of_row = pa.array(entry_of)
        columns = {"hostname": _texts(self._hosts).take(of_row), "job": _texts(self._jobs).take(of_row)}
        columns |= {"ddir": _texts(self._ddirs), **_columns_of_options(self._options, entry_of)}
        columns |= _counted(numbers)
        return pa.table({name: columns[name] for name in reading_order(columns)})

    def _percentile_columns(self) -> dict[str, np.ndarray]:
        columns: dict[str, np.ndarray] = {}
        for layout, (rows, values) in self._percentiles.items():
            names, where = percentile_columns(layout), np.array(rows)
            for name, column in zip(names, _block(values, len(names)), strict=True):
                columns.setdefault(name, np.full(len(self._ddirs), np.nan))[where] = column
        return columns


def _add_file(packer: Packer, path: str | Path) -> FioFile:
    """Add a file, whatever its size; its reports."""
    try:
        raw = read_bytes(path)
    except TooLargeError:
        file = read_pieces(pieces(path), path, bins=False)
        try:
            packer.add(file)
        except (Unusual, ValueError, OverflowError) as error:
            raise FioOutputError(f"{path}: a number of the fio document cannot be used: {error}") from None
        return file
    except ValueError as error:
        raise FioOutputError(str(error)) from None
    return add_bytes(packer, raw, path)


def add_bytes(packer: Packer, raw: bytes, path: str | Path) -> FioFile:
    """Add one file, given its bytes, by the path it needs; its reports. FioOutputError if it holds no result."""
    file = parse(raw, path)
    try:
        try:
            packer.add(file)
        except Unusual:
            file = parse(raw, path, fast=False)
            packer.add(file)
    except FioOutputError:
        raise
    except (ValueError, OverflowError) as error:
        raise FioOutputError(f"{path}: a number of the fio document cannot be used: {error}") from None
    return file


def _layout(direction: Direction) -> Layout:
    slat, clat, lat = direction.slat_ns, direction.clat_ns, direction.lat_ns
    return (
        tuple(slat.percentile) if slat.N else (),
        tuple(clat.percentile) if clat.N else (),
        tuple(lat.percentile) if lat.N else (),
    )


def _packed_percentiles(layout: Layout, directions: list[Direction]) -> bytes:
    """The values of slat, clat and lat of each direction, in the layout's order; Unusual as of `percentile_columns`."""
    pack = struct.Struct(f"{len(percentile_columns(layout))}d").pack
    used = [attrgetter(f"{name}.percentile") for name, names in zip(LATENCIES, layout, strict=True) if names]
    values = [[percentile.values() for percentile in map(given, directions)] for given in used]
    return b"".join([pack(*chain(*row)) for row in zip(*values, strict=True)])


@lru_cache(maxsize=1024)
def percentile_columns(layout: Layout) -> tuple[str, ...]:
    """99.900000 of clat -> clat_ns_p99.9. Unusual where a name is no number above 0, or two are one number."""
    named = [(name, q) for name, percentiles in zip(LATENCIES, layout, strict=True) for q in percentiles]
    columns = tuple(f"{name}_p{short(q)}" for name, q in named)
    if len(set(columns)) < len(columns) or not all(_is_share(q) for _, q in named):
        raise Unusual(f"percentiles {layout}")
    return columns


def _is_share(percentile: str) -> bool:
    try:
        return float(percentile) > 0
    except ValueError:
        return False


def _block(packed: bytearray, width: int) -> np.ndarray:
    """width x rows."""
    if not width:
        return np.empty((0, 0))
    return np.ascontiguousarray(np.frombuffer(packed).reshape(-1, width).T)


def _blank_what_was_not_measured(numbers: dict[str, np.ndarray]) -> None:
    """fio prints zeros where it measured nothing (gtod_reduce, slat of a synchronous engine): N is 0."""
    for name in LATENCIES:
        nothing = numbers[f"{name}_N"] == 0
        if nothing.any():
            for statistic in STATISTICS[:-1]:
                numbers[f"{name}_{statistic}"][nothing] = np.nan


def _texts(texts: Sequence[str | None]) -> pa.Array:
    return pa.array(texts, pa.string())


def _columns_of_options(options: list[Options], entry_of: np.ndarray) -> dict[str, pa.Array]:
    """Each distinct set of options is looked at once: all hosts of a step often share one. `entry_of`: whose options
    each row has."""
    distinct = {id(given): given for given in options}
    position = {key: n for n, key in enumerate(distinct)}
    of = pa.array(np.array([position[id(given)] for given in options], np.int64)[entry_of])
    names = dict.fromkeys(name for keys in dict.fromkeys(map(tuple, distinct.values())) for name in keys)
    columns = {name: _texts([own.get(name) for own in distinct.values()]) for name in (*OPTIONS, *names)}
    return {f"opt_{name}": column.take(of) for name, column in columns.items()}


def reading_order(names: Iterable[str]) -> list[str]:
    """Columns of the `hosts` table as they are read: what stands before fio's (or alone), keys, measures, percentiles,
    options."""
    names = list(names)
    percentiles = sorted((n for n in names if "_ns_p" in n and not n.startswith("opt_")), key=_percentile_order)
    options = [n for n in names if n.startswith("opt_")]
    of_fio = dict.fromkeys((*HOST_KEYS, "error", *MEASURES, *OF_LATENCIES, *percentiles, *JOB, *options))
    given = set(names)
    return [n for n in names if n not in of_fio] + [n for n in of_fio if n in given]


def _percentile_order(column: str) -> tuple[int, float]:
    name, _, q = column.rpartition("_p")
    return LATENCIES.index(name), float(q)


def _counted(numbers: dict[str, np.ndarray]) -> dict[str, pa.Array]:
    """NaN becomes null, numbers become integers where these say the same: they are whole and float64 has not rounded
    them. All columns are looked at together: of a single file most of the time would go to starting numpy sixty
    times."""
    block = np.array(list(numbers.values()))
    missing = np.isnan(block)
    whole = np.all(missing | (np.abs(block) <= 2**53) & (np.trunc(block) == block), axis=1)
    counts = np.where(missing | ~whole[:, None], 0, block).astype(np.int64)
    made = zip(numbers, block, counts, whole, missing, strict=True)
    return {
        name: pa.array(count if is_whole and name not in WITH_DECIMALS else own, mask=absent)
        for name, own, count, is_whole, absent in made
    }


# Sections of fio's output that matter to few runs: the latency of flushes (`sync`), and how full the queue was
# (`iodepth_level`). They are read beside the reports (hcilib.read.fio.fio_reports), by whoever needs them.


OVERLAP = 1.02
"""Of the time that a job had: if its I/Os took more than this, some of them were timed twice."""


def sync_latency(
    document: bytes | Iterable[dict], iodepth: int, of: Callable[[str, str], bool] | None = None
) -> dict[str, float]:
    """`OF_FLUSHES` (fdatasync=1) of all jobs of one output together, or of those for whose host and name `of` holds:
    mean, and the bucket that 99 % of them reach. NaN where none was timed, and the percentile where a job that flushed
    has no histogram (fio 3.x in plain json).

    The flush is not part of a write's own latency in fio: an acknowledged write costs both. With libaio, fio 3.33 times
    a flush from the moment when the write before it was submitted (METHODS, Flushes). The mean write is subtracted
    then, and there is no percentile. At deeper queues it is not known which write that was: NaN.
    """
    of_jobs = [job for job in _jobs(document, of) if ((job.get("sync") or {}).get("lat_ns") or {}).get("N", 0) > 0]
    if not of_jobs:
        return dict.fromkeys(OF_FLUSHES, np.nan)
    timed = [job["sync"]["lat_ns"] for job in of_jobs]
    overlap = [_timed_twice(job, iodepth) for job in of_jobs]
    means = [lat["mean"] - twice for lat, twice in zip(timed, overlap, strict=True)]
    mean = float(np.average(means, weights=[lat["N"] for lat in timed]))
    bins = [parse_bins(json.dumps(lat["bins"]).encode()) for lat in timed if lat.get("bins")]
    p99 = np.nan
    if len(bins) == len(timed) and not any(overlap):
        lat_ns, count = map(np.concatenate, zip(*bins, strict=True))
        [p99] = reached(lat_ns, count, [99.0])
    return dict(zip(OF_FLUSHES, (mean, p99), strict=True))


def _timed_twice(job: dict, iodepth: int) -> float:
    """The mean time (ns) of the write that a flush's time includes: 0 where it includes none, NaN where not known."""
    flushes = job["sync"]["lat_ns"]
    ios = [job[ddir] for ddir in ("read", "write") if ddir in job]
    spent_ns = flushes["N"] * flushes["mean"] + sum(io["total_ios"] * io["lat_ns"]["mean"] for io in ios)
    room_ns = iodepth * max(io["runtime"] for io in ios) * 1e6
    if not spent_ns > room_ns * (OVERLAP + 1 / flushes["N"]):  # nor where the depth is not known
        return 0.0
    return job["write"]["clat_ns"]["mean"] if iodepth == 1 else np.nan


def full_depth_pct(
    document: bytes | Iterable[dict], iodepth: int, of: Callable[[str, str], bool] | None = None
) -> float:
    """The percentage of I/Os that were submitted to a full queue of `iodepth`, over all jobs, or those for whose host
    and name `of` holds; NaN where fio does not say.

    fio counts by powers of two up to ">=64": of a deeper queue that is an upper bound, which is 0 where no more I/Os
    can have been in flight than arrived within the longest latency (four standard deviations of a Poisson process above
    its mean).
    """
    total = full = 0.0
    for job in _jobs(document, of):
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


def _jobs(document: bytes | Iterable[dict], of: Callable[[str, str], bool] | None) -> Iterable[dict]:
    """What fio wrote of each job, but its sums over clients; text of servers may stand before it (TRAPS section 1)."""
    jobs = _all_jobs(document) if isinstance(document, bytes) else document
    return (job for job in jobs if of is None or of(job.get("hostname", ""), job["jobname"]))


def _all_jobs(document: bytes) -> list[dict]:
    text = document.decode(errors="replace")
    begin = re.search(r"(?m)^\{", text)
    found = json.JSONDecoder().raw_decode(text, begin.start())[0] if begin else {}
    return [job for job in found.get("client_stats") or found.get("jobs", ()) if job.get("jobname") != SUMS]
