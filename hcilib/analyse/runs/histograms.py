"""fio's latency histograms: which bucket a latency falls into, what a bucket stands for, and their exact sum.

Counts are added over hosts, runs or seconds; what is asked of a latency is asked of the sum (METHODS section 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from hcilib.fio_buckets import BUCKETS, MIDPOINTS, buckets_of

LARGE = 20_000
"""Rows from which summing by codes pays."""
_MIDDLES = np.array(MIDPOINTS)


def bucket_of(lat_ns: ArrayLike) -> np.ndarray:
    """Index of fio's histogram bucket of each latency, any shape."""
    lat = np.asarray(lat_ns)
    if (lat < 0).any() or np.isnan(lat.astype(float)).any():
        raise ValueError("bucket_of: a latency is negative or missing; expected nanoseconds")
    return buckets_of(np.minimum(lat, 2**35).astype(np.int64))


def midpoint(bucket: ArrayLike) -> np.ndarray:
    """Middle of fio's bucket in ns, as its JSON prints it, any shape."""
    index = np.asarray(bucket, dtype=np.int64)
    if ((index < 0) | (index >= BUCKETS)).any():
        raise ValueError(f"midpoint: a bucket lies outside 0 to {BUCKETS - 1}")
    return _MIDDLES[index]


def merge_bins(bins: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Sum histograms over everything not in `by`: associative, commutative, no I/O gained or lost.

    `bins` says latencies as lat_ns, the middles of fio's buckets, or as bucket, their number.

    Returns
    -------
    `by`, lat_ns, count (int64), sorted; one row per bucket that holds an I/O.
    """
    merged = merged_by(bins, list(by))
    every = np.arange(len(merged.count))
    return pd.DataFrame({key: merged.of(key, every) for key in [*by, "lat_ns"]} | {"count": merged.count})


@dataclass(frozen=True)
class Merged:
    """Histograms added up, sorted by group and latency; of millions of cells few are ever looked at.

    `count` : I/Os of every cell. `starts` : the cell at which each group begins. `of(column, cells)` : its values
        there.
    """

    count: np.ndarray
    starts: np.ndarray
    of: Callable[[str, np.ndarray], ArrayLike]


def merged_by(bins: pd.DataFrame, by: list[str]) -> Merged:
    """What `merge_bins` makes of them; ValueError for a missing column or a count or latency that is none."""
    _check(bins, by)
    keys, some = [*by, "lat_ns"], bins["count"].to_numpy() > 0
    if (full := np.count_nonzero(some)) > LARGE:
        held = slice(None) if full == len(some) else np.flatnonzero(some)
        codes = {key: _coded(bins[key], held) for key in by} | {"lat_ns": _coded_latency(bins, held)}
        count = bins["count"].to_numpy(np.int64)[held]
        if math.prod(levels for _, levels, _ in codes.values()) < 20 * len(count):
            return _by_code(count, codes)
    table = bins if "lat_ns" in bins else bins.assign(lat_ns=_MIDDLES.take(bins["bucket"], mode="clip"))
    merged = table[some].groupby(keys, dropna=False, observed=True)["count"].sum().astype("int64").reset_index()
    starts = np.flatnonzero(~merged.duplicated(by)) if by else np.arange(min(len(merged), 1))
    return Merged(merged["count"].to_numpy(), starts, lambda column, cells: merged[column].iloc[cells].array)


class _Coded(NamedTuple):
    """A column as numbers from 0 in the order of its values; how many there may be; and the values of some of them."""

    codes: np.ndarray
    levels: int
    values: Callable[[np.ndarray], ArrayLike]


def _coded(column: pd.Series, held: slice | np.ndarray) -> _Coded:
    """Of some rows. Cheap where the values are categories, or whole numbers that lie close together; else they are
    sorted."""
    if isinstance(column.dtype, pd.CategoricalDtype) and not column.hasnans:
        return _Coded(
            column.cat.codes.to_numpy()[held],
            len(column.cat.categories),
            lambda codes: pd.Categorical.from_codes(codes, dtype=column.dtype),
        )
    if _is_whole(column):
        values = column.to_numpy()[held]
        low, high = int(values.min()), int(values.max())
        if high - low < len(values):
            from_0 = values - low if low else values  # millions of rows are not copied for nothing
            return _Coded(from_0, high - low + 1, lambda codes: (codes + low).astype(values.dtype))
    codes, uniques = pd.factorize(column.iloc[held], sort=True, use_na_sentinel=False)
    return _Coded(codes, len(uniques), uniques.take)


def _coded_latency(bins: pd.DataFrame, held: slice | np.ndarray) -> _Coded:
    """A rollup says the bucket itself: believed where it stands alone, or is the one of the latency."""
    if "bucket" in bins and _is_whole(bins["bucket"]):
        bucket, lat_ns = (
            bins["bucket"].to_numpy()[held],
            None if "lat_ns" not in bins else bins["lat_ns"].to_numpy()[held],
        )
        if bucket.min() >= 0 and bucket.max() < BUCKETS:
            middle = _MIDDLES if lat_ns is None else _MIDDLES.astype(lat_ns.dtype)
            if lat_ns is None or np.array_equal(middle[bucket], lat_ns):
                return _Coded(bucket, 1 << 11, middle.take)  # a power of two: divided by in no time
    return _coded(bins["lat_ns"], held)


def _within(column: pd.Series, low: int, high: int) -> bool:
    return bool(len(column)) and column.min() >= low and column.max() <= high


def _is_whole(column: pd.Series) -> bool:
    return isinstance(column.dtype, np.dtype) and column.dtype.kind in "iu"


def _by_code(count: np.ndarray, columns: dict[str, _Coded]) -> Merged:
    """What groupby gives, sooner: every combination of levels has a cell. Counts add up exactly below 2^53."""
    combinations = math.prod(levels for _, levels, _ in columns.values())
    (first, *_), *others = columns.values()
    cell: np.ndarray = first.astype(np.int32 if combinations < 1 << 31 else np.int64)
    for codes, levels, _ in others:
        cell *= levels
        cell += codes
    if (cell[1:] > cell[:-1]).all():  # a rollup by second and direction: sorted, and nothing to add up
        cells, summed = cell, count
    else:
        every = np.bincount(cell, count)
        cells = np.flatnonzero(every > 0)
        summed = every[cells].astype(np.int64)

    def of(column: str, at: np.ndarray) -> ArrayLike:
        rest = cells[at]
        for name, (_, levels, values) in reversed(columns.items()):
            rest, code = np.divmod(rest, levels)
            if name == column:
                return values(code)
        raise KeyError(column)

    levels = columns["lat_ns"].levels
    group = cells >> (levels.bit_length() - 1) if levels.bit_count() == 1 else cells // levels
    begins = np.ones(len(group), bool)
    np.not_equal(group[1:], group[:-1], out=begins[1:])
    starts = np.flatnonzero(begins)
    return Merged(summed, starts, of)


def _check(bins: pd.DataFrame, by: list[str]) -> None:
    latency = "bucket" if "bucket" in bins and "lat_ns" not in bins else "lat_ns"
    if missing := [c for c in [*by, latency, "count"] if c not in bins]:
        raise ValueError(f"bins have no column {', '.join(missing)}; they have {', '.join(map(str, bins))}")
    if latency == "bucket" and not _is_whole(bins["bucket"]):
        raise ValueError("bins: bucket holds no whole numbers, expected those of fio's buckets, or lat_ns beside it")
    if "averaged" in bins and bins["averaged"].any() and (bins["averaged"] & (bins["count"] > 0)).any():
        raise ValueError(
            "these rows come of log_avg_msec: percentiles of averages are not percentiles; log single I/Os or "
            "histograms "
            "(log_hist_msec), or take the bins of json+"
        )
    if (
        latency == "bucket"
        and _is_whole(bins["count"])
        and _within(bins["bucket"], 0, BUCKETS - 1)
        and bins["count"].min() >= 0
    ):
        return  # as every rollup without stalls; what follows looks for the row
    unknown = bins[latency].isna() if latency == "lat_ns" else ~bins[latency].between(0, BUCKETS - 1)
    bad = (unknown & (bins["count"] != 0)) | bins["count"].isna() | (bins["count"] < 0)
    if bad.any():
        raise ValueError(f"bins: row {bins.index[bad][0]} has a missing latency or a missing or negative count")
