"""Latency histograms of fio's json+ output as a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from hcilib.read.fio_document import FioOutputError, Report, load
from hcilib.read.fio_histogram import parse_bins
from hcilib.read.fio_snapshots import final_reports

BIN_KEYS = ["hostname", "port", "job", "groupid", "ddir"]


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
    document, _ = load(path)
    found = [(report, *one) for report in final_reports(document) for one in _bins_of(report)]
    kind = _common_kind([kinds for _, _, kinds in found], path)
    try:
        pieces = [(report, ddir, *parse_bins(kinds[kind])) for report, ddir, kinds in found if kind]
    except ValueError as error:
        raise FioOutputError(f"{path}: latency bins that cannot be read: {error}") from None
    table = _merged(pieces)
    table.attrs["latency"] = kind
    return table


def _bins_of(report: Report):
    """(ddir, {"lat": bins, "clat": bins}) of every direction that has bins; the 2.x ones in microseconds too."""
    for ddir, direction in report.directions().items():
        given = {
            "lat": direction.lat_ns or direction.lat,
            "clat": direction.clat_ns or direction.clat,
        }
        kinds = {kind: bytes(latency.bins) for kind, latency in given.items() if latency and len(latency.bins)}
        if kinds:
            yield ddir, kinds


def _common_kind(found: list[dict[str, bytes]], path: str | Path) -> str | None:
    for kind in ("lat", "clat"):
        if found and all(kind in kinds for kinds in found):
            return kind
    if found:
        raise FioOutputError(
            f"{path}: some jobs have bins of lat and others of clat only; give all jobs the same lat_percentiles"
        )
    return None


def _merged(pieces: list[tuple[Report, str, np.ndarray, np.ndarray]]) -> pd.DataFrame:
    """One row per key and bucket; counts of clones and repeated buckets are summed."""
    columns = [*BIN_KEYS, "lat_ns", "count"]
    if not pieces:
        return pd.DataFrame(
            {c: pd.Series(dtype="str" if c in ("hostname", "job", "ddir") else "int64") for c in columns}
        )
    keys = pd.DataFrame([(*report.key, ddir) for report, ddir, _, _ in pieces], columns=BIN_KEYS)
    number, uniques = pd.factorize(pd.MultiIndex.from_frame(keys))
    stacked = pd.DataFrame({
        "key": np.repeat(number, [len(lat) for _, _, lat, _ in pieces]),
        "lat_ns": np.concatenate([lat for _, _, lat, _ in pieces]),
        "count": np.concatenate([count for _, _, _, count in pieces]),
    })  # fmt: skip
    merged = stacked.groupby(["key", "lat_ns"], as_index=False)["count"].sum()
    named = uniques.to_frame(index=False).set_axis(BIN_KEYS, axis=1).take(merged["key"]).reset_index(drop=True)
    return pd.concat([named, merged[["lat_ns", "count"]]], axis=1)
