"""Reports of fio as tables: hosts of many files, latency histograms, flushes and full queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from math import nan
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from msgspec import Raw

from hcilib.model.fio_buckets import ios_to_reach
from hcilib.model.metrics import OF_FLUSHES
from hcilib.read.fio.fio import (
    BEYOND_NS,
    LATENCIES,
    Direction,
    Entry,
    FioFile,
    FioOutputError,
    Latency,
    read,
)

HOST_KEYS = ("hostname", "port", "job", "groupid", "clone", "ddir")
BIN_KEYS = ["hostname", "port", "job", "groupid", "ddir"]
MEASURES = ("io_bytes", "bw_bytes", "iops", "runtime", "total_ios", "short_ios", "drop_ios")
STATISTICS = ("min", "max", "mean", "stddev", "N")
OF_LATENCIES = tuple(f"{kind}_{s}" for kind in LATENCIES for s in STATISTICS)
JOB = ("usr_cpu", "sys_cpu", "ctx", "majf", "minf", "job_start", "job_runtime", "total_err")
OPTIONS = ("rw", "bs", "iodepth", "numjobs", "rwmixread", "ioengine", "size", "filename")
WITH_DECIMALS = {"iops", "usr_cpu", "sys_cpu"}
WITH_DECIMALS |= {name for name in OF_LATENCIES if name.endswith(("mean", "stddev"))}
"""Every other number is a count."""
OVERLAP = 1.02
"""If the I/Os of a job took more than this share of its time, some of them were timed twice."""
AT_ONCE = 512
"""Histograms that are parsed together."""
_OF_ROW = (*MEASURES, *OF_LATENCIES)
_OF_ENTRY = ("clone", "port", "groupid", "error", *JOB)
_row = attrgetter(*MEASURES, *(f"{kind}.{s}" for kind in LATENCIES for s in STATISTICS))
_entry = attrgetter("clone", *(f"report.{name}" for name in _OF_ENTRY[1:]))
_MARKS = bytes.maketrans(b'{}":,\r\n\t', b"        ")


def read_fio(path: str | Path) -> pd.DataFrame:
    """Return the `hosts` table of one fio JSON file of any version from 3.0, plain, .zst or .gz.

    Text around the JSON, several documents (the last counts), interim reports and fio's sums over
    clients are dealt with. Numbers that fio did not measure are NaN.

    Parameters
    ----------
    path : of the file

    Returns
    -------
    DataFrame
        One row per hostname, port, job, groupid, clone (0, 1, ... where a key repeats) and ddir
        (read, write, trim; mixed where fio unified them). A report without any I/O gives one row
        with its planned direction.
        Then error; io_bytes, bw_bytes, iops, runtime (ms), total_ios, short_ios, drop_ios; for
        slat, clat and lat `<lat>_ns_min`, `_max`, `_mean`, `_stddev`, `_N` and fio's own
        percentiles `<lat>_ns_p99.9`; usr_cpu, sys_cpu, ctx, majf, minf, job_start, job_runtime,
        total_err of the whole report; job options over global ones as text, `opt_<name>`.
        A local run has hostname "localhost" and port 0. A percentile in fio's last bucket, which
        has no upper end, is missing. Counts are int64 where every row has one, all other numbers
        float64.
        `.attrs`: noise (text around the JSON), fio_version, disk_util (list of dicts), warnings
        (codes: ``interim`` where fio was killed after a report of --status-interval, or may have
        been).

    Raises
    ------
    FioOutputError
        The file holds no complete fio document, or numbers that contradict each other.

    Examples
    --------
    >>> hci.read_fio("tests/data/fio/healthy.json")["hostname"].nunique()
    4
    """
    file = read(path)
    table = hosts_table([file]).to_pandas(use_threads=False)  # of one file threads take longer
    disk_util = msgspec.json.decode(file.disk_util)
    table.attrs |= {"noise": file.noise, "fio_version": file.version}
    table.attrs |= {"disk_util": disk_util, "warnings": file.caveats}
    return table


def hosts_table(files: Iterable[FioFile]) -> pa.Table:
    """Return the rows of files in reading order: missing is null, counts are int64."""
    entries = [entry for file in files for entry in file.entries]
    directions = [direction for entry in entries for direction in entry.directions.values()]
    of = np.repeat(np.arange(len(entries)), [len(entry.directions) for entry in entries])
    numbers = dict(zip(_OF_ROW, _block(map(_row, directions), len(_OF_ROW)), strict=True))
    of_entries = _block(map(_entry, entries), len(_OF_ENTRY))[:, of]
    numbers |= dict(zip(_OF_ENTRY, of_entries, strict=True)) | _percentiles(directions)
    columns = {name: _column(name, values) for name, values in numbers.items()}
    ddirs = [ddir for entry in entries for ddir in entry.directions]
    columns["ddir"] = pa.array(ddirs, pa.string())
    texts: dict[str, list[str | None]] = {"hostname": [entry.report.hostname for entry in entries]}
    texts["job"] = [entry.report.jobname for entry in entries]
    for name in dict.fromkeys(chain(OPTIONS, *(entry.options for entry in entries))):
        texts[f"opt_{name}"] = [entry.options.get(name) for entry in entries]
    columns |= {name: pa.array(own, pa.string()).take(pa.array(of)) for name, own in texts.items()}
    return pa.table({name: columns[name] for name in reading_order(columns)})


def _block(rows: Iterable[tuple[float, ...]], width: int) -> np.ndarray:
    """Return numbers as width x rows."""
    return np.fromiter(chain.from_iterable(rows), float).reshape(-1, width).T


def _percentiles(directions: Sequence[Direction]) -> dict[str, np.ndarray]:
    """Return clat_ns_p99.9, ...: rows with percentiles of the same names are taken together."""
    found: dict[str, np.ndarray] = {}
    for kind in LATENCIES:
        alike: defaultdict[tuple[float, ...], list[int]] = defaultdict(list)
        shares = list(map(attrgetter(f"{kind}.percentile"), directions))
        for n, own in enumerate(shares):
            if own:
                alike[tuple(own)].append(n)
        for names, rows in alike.items():
            values = _block((shares[n].values() for n in rows), len(names))  # type: ignore[misc]
            for name, column in zip(names, values, strict=True):
                if name > 0:  # some builds pad their list with 0.00
                    every = found.setdefault(f"{kind}_p{name:.15g}", np.full(len(shares), nan))
                    every[rows] = column
    return found


def reading_order(names: Iterable[str]) -> list[str]:
    """Return columns in the order of `read_fio`, behind those that it does not have."""
    names = list(names)
    options = [n for n in names if n.startswith("opt_")]
    shares = [n for n in names if "_ns_p" in n and n not in options]
    shares.sort(key=lambda n: (LATENCIES.index(n.partition("_p")[0]), float(n.partition("_p")[2])))
    of_fio = dict.fromkeys((*HOST_KEYS, "error", *MEASURES, *OF_LATENCIES, *shares, *JOB, *options))
    return [n for n in names if n not in of_fio] + [n for n in of_fio if n in set(names)]


def _column(name: str, values: np.ndarray) -> pa.Array:
    """Return numbers as a column: integers where all are whole and not rounded, NaN as null."""
    missing = np.isnan(values)
    is_count = missing | (np.abs(values) <= 2**53) & (np.trunc(values) == values)
    if name in WITH_DECIMALS or not is_count.all():
        return pa.array(values, mask=missing)
    return pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing)


# --- latency histograms: the `bins` of json+ ------------------------------------------------------


class Bins(NamedTuple):
    """The histograms of one file: of each row of its `hosts` `lengths` pairs, one behind the other.

    `kind`: "lat" where every direction with I/O has total-latency bins, else "clat", None without.
    """

    kind: str | None
    lat_ns: np.ndarray
    count: np.ndarray  # type: ignore[assignment]  # it hides tuple.count
    lengths: np.ndarray


def bins_of(file: FioFile) -> Bins:
    """Return the histograms of a file.

    Raises
    ------
    FioOutputError : bins that are not pairs of numbers; or total latency in one job and completion
        latency in another, which are not one distribution
    """
    directions = [direction for entry in file.entries for direction in entry.directions.values()]
    kind, raws = _raws(directions, file.path)
    return Bins(kind, *_parsed(raws, file.path))


def histogram(directions: Sequence[Direction], path: str) -> Bins:
    """Return all their histograms as one, in the memory of a few; errors as of `bins_of`."""
    kind, raws = _raws(directions, path)
    lat_ns = count = np.empty(0, np.int64)
    for at in range(0, len(raws) if kind else 0, AT_ONCE):
        more_ns, more, _ = _parsed(raws[at : at + AT_ONCE], path)
        lat_ns, count = merged(np.append(lat_ns, more_ns), np.append(count, more))
    return Bins(kind, lat_ns, count, np.array([len(lat_ns)]))


def _raws(directions: Sequence[Direction], path: str) -> tuple[str | None, list[Raw]]:
    """Return of which latency all have bins, total latency first, and these as text."""
    busy = [one for one in directions if one.any_io]
    filled = [one for one in busy if len(one.lat_ns.bins) or len(one.clat_ns.bins)]
    for kind in ("lat", "clat"):
        raws = [getattr(direction, f"{kind}_ns").bins for direction in directions]
        if filled and all(len(getattr(direction, f"{kind}_ns").bins) for direction in filled):
            return kind, raws
    if filled:
        raise FioOutputError(f"{path}: some jobs have bins of lat, others of clat. Give all the same lat_percentiles.")
    return None, [Raw(b"")] * len(directions)


def _parsed(raws: Sequence[Raw], path: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lat_ns and count of many `bins` objects, one behind the other, and how many each has.

    Punctuation is turned into blanks, and numpy reads the numbers.
    """
    pairs = np.array([bytes(raw).count(b":") for raw in raws], np.int64)
    numbers = pairs[:0]
    if pairs.any():  # of blanks alone numpy reads one number
        text = b" ".join(raws).translate(_MARKS)
        try:
            numbers = np.fromstring(text, dtype=np.int64, sep=" ")
        except ValueError:
            numbers = pairs[:0]
        if len(numbers) != 2 * pairs.sum() or (numbers < 0).any():
            raise FioOutputError(f"{path}: latency bins that are not pairs of latency and count")
    return numbers[::2], numbers[1::2], pairs


def merged(lat_ns: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return one histogram of many: every latency once, in order, and the sum of its counts."""
    known, place = np.unique(lat_ns, return_inverse=True)
    sums = np.zeros(len(known), np.int64)
    np.add.at(sums, place, count)
    return known, sums


def reached(lat_ns: np.ndarray, count: np.ndarray, percents: Iterable[float]) -> list[float]:
    """Return the first latency at which each share of the I/Os is reached (METHODS section 3).

    NaN where there is no I/O, or where it is in fio's last bucket, which has no upper end.
    """
    known, counts = merged(lat_ns, count)
    sums = counts.cumsum()
    if not len(sums) or not sums[-1]:
        return [nan for _ in percents]
    found = [float(known[np.searchsorted(sums, ios_to_reach(q, sums[-1]))]) for q in percents]
    return [one if one < BEYOND_NS else nan for one in found]


def read_fio_bins(path: str | Path) -> pd.DataFrame:
    """Return the histograms of one output of fio: a row a bucket, clones of a job added up."""
    file = read(path)
    bins = bins_of(file)
    rows = [(*entry.report.key(), ddir) for entry in file.entries for ddir in entry.directions]
    keys = pd.DataFrame(rows, columns=BIN_KEYS)
    code = np.repeat(keys.groupby(BIN_KEYS, sort=False).ngroup().to_numpy(), bins.lengths)
    sums = pd.Series(bins.count).groupby([code, bins.lat_ns]).sum()
    code, lat_ns = (sums.index.get_level_values(level).to_numpy() for level in (0, 1))
    table = keys.drop_duplicates().iloc[code].reset_index(drop=True)
    table.attrs["latency"] = bins.kind
    return table.assign(lat_ns=lat_ns, count=sums.to_numpy())


# --- what matters to few runs: flushes, and how full the queue was --------------------------------


class _Flushes(msgspec.Struct):
    lat_ns: Latency = Latency(N=0)


_decode_flushes = msgspec.json.Decoder(_Flushes | None).decode
_decode_levels = msgspec.json.Decoder(dict[str, float] | None).decode


def sync_latency(entries: Sequence[Entry], iodepth: float, path: str = "") -> dict[str, float]:
    """Return `OF_FLUSHES` (fdatasync=1) of some entries: mean and p99 in ns.

    NaN where none was timed, and the p99 where a job that flushed has no histogram. A flush is not
    part of a write's own latency in fio. With libaio, fio 3.33 times a flush from the moment when
    the write before it was submitted (METHODS, Flushes): the mean write is subtracted, and there
    is no p99. At deeper queues it is not known which write that was: NaN.
    """
    flushes = [(_decode_flushes(e.report.sync) or _Flushes()).lat_ns for e in entries]
    own = [(entry, timed) for entry, timed in zip(entries, flushes, strict=True) if timed.N > 0]
    if not own:
        return dict.fromkeys(OF_FLUSHES, nan)
    twice = [_timed_twice(entry.directions, timed, iodepth) for entry, timed in own]
    means = [timed.mean - more for (_, timed), more in zip(own, twice, strict=True)]
    mean, p99 = float(np.average(means, weights=[timed.N for _, timed in own])), nan
    if all(len(timed.bins) for _, timed in own) and not any(twice):
        [p99] = reached(*_parsed([timed.bins for _, timed in own], path)[:2], [99.0])
    return dict(zip(OF_FLUSHES, (mean, p99), strict=True))


def _timed_twice(directions: dict[str, Direction], flushes: Latency, iodepth: float) -> float:
    """Return the mean write (ns) in a flush's time: 0 where there is none, NaN where unknown."""
    ios = [own for ddir, own in directions.items() if ddir in ("read", "write")]
    spent_ns = flushes.N * flushes.mean + sum(io.total_ios * io.lat_ns.mean for io in ios)
    room_ns = iodepth * max((io.runtime for io in ios), default=nan) * 1e6
    if not spent_ns > room_ns * (OVERLAP + 1 / flushes.N):  # nor where the depth is not known
        return 0.0
    return directions["write"].clat_ns.mean if iodepth == 1 else nan


def full_depth_pct(entries: Sequence[Entry], iodepth: float) -> float:
    """Return the percentage of I/Os that some entries submitted to a full queue; NaN if unknown.

    fio counts by powers of two up to ">=64". Of a deeper queue that is an upper bound, which is 0
    where no more I/Os can have been in flight than arrived within the longest latency (four
    standard deviations of a Poisson process above its mean).
    """
    total = full = 0.0
    for entry in entries:
        both = [own for ddir, own in entry.directions.items() if ddir != "trim"]
        ios, rate = (sum(getattr(own, name) for own in both) for name in ("total_ios", "iops"))
        arrived = rate * max((own.lat_ns.max for own in both), default=nan) / 1e9
        total += ios
        if iodepth > 64 and arrived + 4 * np.sqrt(arrived) + 1 < iodepth:
            continue
        levels = _decode_levels(entry.report.iodepth_level) or {}
        lowest = {int(name.removeprefix(">=")): share for name, share in levels.items()}
        held = [first for first in lowest if first <= iodepth]
        full += ios * (lowest[max(held)] if held else nan)
    return full / total if total else nan
