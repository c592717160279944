"""fio's JSON output as the `hosts` table."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import nan
from pathlib import Path

import pandas as pd

from hcilib.read.fio_bins import read_fio_bins
from hcilib.read.fio_document import Direction, Document, FioOutputError, Latency, Number, Report, load
from hcilib.read.fio_snapshots import final_reports

__all__ = ["HOST_KEYS", "FioOutputError", "read_fio", "read_fio_bins"]

HOST_KEYS = ["hostname", "port", "job", "groupid", "clone", "ddir"]
_MEASURES = ["io_bytes", "bw_bytes", "iops", "runtime", "total_ios", "short_ios", "drop_ios"]
_LATENCIES = ["slat_ns", "clat_ns", "lat_ns"]
_STATISTICS = ["min", "max", "mean", "stddev", "N"]
_JOB = ["usr_cpu", "sys_cpu", "ctx", "majf", "minf", "job_start", "job_runtime", "total_err"]
_OPTIONS = ["rw", "bs", "iodepth", "numjobs", "rwmixread", "ioengine", "size", "filename"]
_PLANNED = {"w": "write", "t": "trim"}


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
        `.attrs`: noise (text around the JSON), fio_version, disk_util (list of dicts).

    Raises
    ------
    FioOutputError
        The file holds no complete fio document.
    """
    document, noise = load(path)
    table = _frame(_rows(document))
    table.attrs |= {"noise": noise, "fio_version": document.version, "disk_util": document.disk_util}
    return table


def _rows(document: Document) -> list[dict]:
    seen: Counter = Counter()
    rows = []
    for report in final_reports(document):
        options = document.options_of(report)
        shared = _report_columns(report) | {f"opt_{name}": str(value) for name, value in options.items()}
        key = dict(zip(HOST_KEYS, (*report.key, seen[report.key]), strict=False))
        for ddir, direction in (report.directions() or _planned(report, options)).items():
            rows.append(key | {"ddir": ddir} | _direction_columns(direction) | shared)
        seen[report.key] += 1
    return rows


def _planned(report: Report, options: dict[str, str]) -> dict[str, Direction]:
    """The one row of a report without I/O: what it was to do (fio's default is read)."""
    if report.mixed and not report.read:
        return {"mixed": report.mixed}
    ddir = _PLANNED.get(str(options.get("rw", "read")).removeprefix("rand")[:1], "read")
    return {ddir: getattr(report, ddir) or Direction()}


def _report_columns(report: Report) -> dict[str, Number]:
    return {name: _number(getattr(report, name)) for name in ("error", *_JOB)}


def _direction_columns(direction: Direction) -> dict[str, Number]:
    columns = {name: _number(getattr(direction, name)) for name in _MEASURES}
    if direction.bw_bytes is None:
        columns["bw_bytes"] = 1024 * _number(direction.bw)  # before 3.2 only in KiB/s
    if direction.legacy:
        columns["io_bytes"] *= 1024
    for name in _LATENCIES:
        if latency := getattr(direction, name):
            columns |= _latency_columns(name, latency, 1)
        elif latency := getattr(direction, name.removesuffix("_ns")):
            columns |= _latency_columns(name, latency, 1000)
    return columns


def _latency_columns(name: str, latency: Latency, scale: int) -> dict[str, Number]:
    """Statistics and percentiles in ns. 2.x pads its list of percentiles with 0.00, which is none."""
    columns = {f"{name}_N": _number(latency.N)}
    if latency.missing:
        return columns
    columns |= {f"{name}_{s}": scale * _number(getattr(latency, s)) for s in _STATISTICS[:-1]}
    return columns | {
        column: scale * _number(value)
        for q, value in latency.percentile.items()
        if (column := _percentile_column(name, q))
    }


@lru_cache(maxsize=1024)
def _percentile_column(name: str, percentile: str) -> str | None:
    """clat_ns, 99.900000 -> clat_ns_p99.9."""
    short = percentile.rstrip("0").rstrip(".") if "." in percentile else percentile
    return f"{name}_p{short}" if float(percentile) > 0 else None


def _number(value: Number) -> int | float:
    return nan if value is None else value


def _frame(rows: list[dict]) -> pd.DataFrame:
    """Columns in reading order, the fixed ones always there."""
    table = pd.DataFrame(rows)
    latencies = [f"{name}_{s}" for name in _LATENCIES for s in _STATISTICS]
    percentiles = sorted((c for c in table if "_ns_p" in str(c)), key=_percentile_order)
    options = [f"opt_{name}" for name in _OPTIONS]
    fixed = [*HOST_KEYS, "error", *_MEASURES, *latencies, *percentiles, *_JOB, *options]
    table = table.reindex(columns=[*fixed, *(c for c in table if c not in fixed)])
    numbers = [c for c in fixed if c not in ("hostname", "job", "ddir", *options)]
    return table.astype({c: "float64" for c in numbers if table[c].dtype == object})


def _percentile_order(column: str) -> tuple[int, float]:
    name, _, q = column.rpartition("_p")
    return _LATENCIES.index(name), float(q)
