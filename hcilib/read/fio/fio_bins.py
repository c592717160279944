"""Latency histograms of fio's json+ output as a table."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from hcilib.read.fio.fio_fast import Direction
from hcilib.read.fio.fio_histogram import merged, parse_runs
from hcilib.read.fio.fio_reports import FioFile, FioOutputError, read_reports

BIN_KEYS = ["hostname", "port", "job", "groupid", "ddir"]
_NONE = b""


class Bins(NamedTuple):
    """The histograms of one file: for each row of its `hosts` table `lengths` pairs, one row behind the other.

    `kind`: "lat" where every direction with I/O has total-latency bins, else "clat", None without.
    """

    kind: str | None
    lat_ns: np.ndarray
    count: np.ndarray  # type: ignore[assignment]  # it hides tuple.count, which nobody calls on a histogram
    lengths: np.ndarray


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
        another, which are not one distribution.
    """
    file = read_reports(path)
    keys, bins = by_key(file, bins_of(file, path))
    if not len(bins.lat_ns):
        return _empty(bins.kind)
    table = pd.DataFrame(keys, columns=BIN_KEYS).take(np.repeat(np.arange(len(keys)), bins.lengths))
    table = table.reset_index(drop=True).assign(lat_ns=bins.lat_ns, count=bins.count)
    table.attrs["latency"] = bins.kind
    return table


def bins_of(file: FioFile, path: str | Path, *, compiled: bool = False) -> Bins:
    """The histograms of a file's reports; FioOutputError as of `read_fio_bins`. `compiled`: see `parse_runs`."""
    rows = [_given(direction) for entry in file.entries for _, direction in entry.directions]
    kind = _common_kind([kinds for kinds in rows if kinds], path)
    raws = [kinds.get(kind, _NONE) for kinds in rows]
    try:
        return Bins(kind, *parse_runs(raws, compiled=compiled))
    except ValueError as error:
        raise FioOutputError(f"{path}: latency bins that cannot be read: {error}") from None


def _given(direction: Direction) -> dict:
    """The bins of a direction with I/O; those of total latency are preferred."""
    if not direction.any_io:
        return {}
    lat, clat = direction.lat_ns.bins, direction.clat_ns.bins
    return {kind: bins for kind, bins in (("lat", lat), ("clat", clat)) if len(bins)}


def _common_kind(found: list[dict], path: str | Path) -> str | None:
    for kind in ("lat", "clat"):
        if found and all(kind in kinds for kinds in found):
            return kind
    if found:
        raise FioOutputError(
            f"{path}: some jobs have bins of lat and others of clat only; give all jobs the same lat_percentiles"
        )
    return None


def by_key(file: FioFile, bins: Bins) -> tuple[list[tuple], Bins]:
    """The keys that have bins, in the file's order, and one histogram each: clones and repeated buckets are summed."""
    rows: dict[tuple, list[int]] = {}
    places = [(report, ddir) for report, _, directions, _ in file.entries for ddir, _ in directions]
    for row in np.flatnonzero(bins.lengths):
        report, ddir = places[row]
        key = report.hostname, report.port, report.jobname, _whole(report.groupid), ddir
        rows.setdefault(key, []).append(int(row))
    if len(rows) == np.count_nonzero(bins.lengths) and _rises(bins):
        return list(rows), bins._replace(lengths=bins.lengths[bins.lengths > 0])
    ends = np.cumsum(bins.lengths)
    of_row = [slice(end - length, end) for end, length in zip(ends, bins.lengths, strict=True)]
    sums = [
        merged(*(np.concatenate([a[of_row[r]] for r in own]) for a in (bins.lat_ns, bins.count)))
        for own in rows.values()
    ]
    lat_ns, count = (np.concatenate(column) for column in zip(*sums, strict=True))
    return list(rows), Bins(bins.kind, lat_ns, count, np.array([len(lat) for lat, _ in sums]))


def _rises(bins: Bins) -> bool:
    """Whether the buckets of every row rise, as fio writes them."""
    falls = np.flatnonzero(np.diff(bins.lat_ns) <= 0) + 1
    return bool(np.isin(falls, np.cumsum(bins.lengths)).all())


def _whole(number: float) -> int | float:
    return int(number) if number.is_integer() else number


def _empty(kind: str | None) -> pd.DataFrame:
    text = ("hostname", "job", "ddir")
    columns = [*BIN_KEYS, "lat_ns", "count"]
    table = pd.DataFrame({c: pd.Series(dtype="str" if c in text else "int64") for c in columns})
    table.attrs["latency"] = kind
    return table
