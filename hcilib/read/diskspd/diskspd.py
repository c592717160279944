"""DiskSPD's results, XML or text, as the `hosts` table that fio's results make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil, isfinite, nan
from pathlib import Path

import pandas as pd

from hcilib.model.compressed import read_bytes
from hcilib.model.fio_buckets import MIDPOINTS, bucket_of
from hcilib.read.diskspd.diskspd_document import Counts, DiskspdOutputError, Target, Timespan
from hcilib.read.diskspd.diskspd_formats import parse_text, parse_xml
from hcilib.read.fio.fio_fast import LOCAL_HOST, LOCAL_PORT
from hcilib.read.fio.fio_json import HOST_KEYS, OF_LATENCIES, OPTIONS, reading_order
from hcilib.read.fio.fio_reports import BIN_KEYS, JOB, MEASURES

__all__ = ["DiskspdOutputError", "read_diskspd", "read_diskspd_bins"]

_ALL_TARGETS = "all targets"
_NS_PER_MS = 1_000_000
_INTERRUPTED, _NOT_WHOLE = 4, 74
"""Linux's EINTR and EBADMSG: the numbers fio would use, on whatever machine the file is read."""


def read_diskspd(path: str | Path) -> pd.DataFrame:
    """The `hosts` table of one DiskSPD result, XML or text, 2.0.17 to 2.2, plain, .zst or .gz, UTF-8, UTF-16 or ANSI.

    Returns
    -------
    DataFrame
        The columns of `read_fio`, one row per computer, timespan (groupid 0, 1, ... over the file), target (job, its
        path), thread (clone 0, 1, ... of a target; `thread` is DiskSPD's number) and direction with I/O. A thread
        without any I/O gives one row with its planned direction; so does a timespan that was interrupted before it
        measured, with NaN.
        lat is from submission to completion; slat and clat are NaN, and so is what was not measured (no -L).
        Percentiles, min and max of lat are filled in only where the printed distribution is this one row's; those of
        several threads together are in `read_diskspd_bins`.
        opt_*: rwmixread is 100 - `-w`; iodepth is the I/Os this thread keeps outstanding on this target (`-o`; of `-O`
        its share by weight), so that the sum over threads and targets is all; bs in bytes; numjobs the threads on the
        target. error: 0; 4 (EINTR) not measured; 74 (EBADMSG) the rows cannot be the whole timespan (noise says why).
        iops is as printed where that has more digits than I/Os over the printed time; XML prints none.
        `.attrs`: noise, diskspd_version, outstanding and cpu_pct (groupid -> I/Os outstanding, CPU of the machine).

    Raises
    ------
    DiskspdOutputError
        No complete DiskSPD result, or a field that is not of its type; the sentence names file and place.
    """
    spans, noise = _read(path)
    table = _frame([row for groupid, span in enumerate(spans) for row in rows_of(span, groupid)])
    damage = [f"timespan {i + 1}: {span.damage}" for i, span in enumerate(spans) if span.damage]
    table.attrs |= {
        "noise": "\n".join(filter(None, [noise, *damage])),
        "diskspd_version": version_of(spans),
        "outstanding": {i: outstanding_of(span) for i, span in enumerate(spans)},
        "cpu_pct": {i: span.cpu_pct for i, span in enumerate(spans)},
    }
    return table


def read_diskspd_bins(path: str | Path) -> pd.DataFrame:
    """Latency histograms of one DiskSPD result in fio's buckets, rebuilt from the percentiles it prints.

    Between two printed percentiles all I/Os are put at the upper one, which is where DiskSPD's own lookup (the smallest
    latency that reaches the share) would find them at worst. A printed percentile is found again within a bucket's
    width, 1/128; one in between is an upper bound.

    Returns
    -------
    DataFrame
        hostname, port, job, groupid, ddir, lat_ns (midpoint of fio's bucket), count; as `read_fio_bins`. job is the
        target's path where the file gives its distribution, else "all targets". Empty without -L.
        `.attrs["latency"]`: "lat", None where there is none.

    Raises
    ------
    DiskspdOutputError
        As `read_diskspd`.
    """
    spans, _ = _read(path)
    pieces = [
        (span.hostname or LOCAL_HOST, LOCAL_PORT, job, groupid, ddir, *bucket)
        for groupid, span in enumerate(spans)
        for job, ddir, *bucket in buckets_of(span)
    ]
    columns = [*BIN_KEYS, "lat_ns", "count"]
    table = pd.DataFrame(pieces, columns=columns)
    table = table.astype({c: "str" if c in ("hostname", "job", "ddir") else "int64" for c in columns})
    table.attrs["latency"] = "lat" if pieces else None
    return table


def _read(path: str | Path) -> tuple[list[Timespan], str]:
    try:
        raw = read_bytes(path)
    except ValueError as error:
        raise DiskspdOutputError(str(error)) from None
    return load(raw, path)


def load(raw: bytes, path: str | Path) -> tuple[list[Timespan], str]:
    """The timespans of a file's bytes, and what in it is not DiskSPD's report; DiskspdOutputError as `read_diskspd`."""
    text = _text(raw)
    spans, noise = (parse_xml if "<Results" in text else parse_text)(text, str(path))
    if not any(span.rows or span.targets for span in spans):
        raise DiskspdOutputError(f"{path}: the results hold no thread and no target; give DiskSPD's whole output.")
    return spans, noise


def _text(raw: bytes) -> str:
    """PowerShell's `>` writes UTF-16; DiskSPD itself writes paths in the ANSI code page, which is rarely UTF-8."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", "replace")
    if b"\0" in raw[:200]:
        return raw.decode("utf-16-be" if raw[:1] == b"\0" else "utf-16-le", "replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def version_of(spans: Sequence[Timespan]) -> str:
    return next((span.version for span in spans if span.version), "")


def rows_of(span: Timespan, groupid: int = 0) -> Iterator[dict]:
    """The rows of `read_diskspd`; what was not measured is not among their keys."""
    key = {"hostname": span.hostname or LOCAL_HOST, "port": LOCAL_PORT, "groupid": groupid}
    damaged = _NOT_WHOLE if span.damage else 0
    if not span.rows:
        for target in span.targets:
            ddir = "write" if target.write_pct == 100 else "read"
            unmeasured = {"job": target.path, "clone": 0, "ddir": ddir, "error": damaged or _INTERRUPTED}
            yield key | unmeasured | _options(target, span, target.depth, span.pool_threads or target.threads)
        return
    clones: Counter[str] = Counter()
    own = _own_percentiles(span)
    threads = Counter(path for path, _ in {(row.path, row.thread) for row in span.rows})
    for row, target, depth in span.settled():
        shared = key | {"job": row.path, "clone": clones[row.path], "thread": row.thread, "error": damaged}
        shared |= _options(target, span, depth, threads[row.path]) | {"opt_size": row.size or nan}
        clones[row.path] += 1
        busy = {ddir: getattr(row, ddir) for ddir in ("read", "write") if getattr(row, ddir).ios}
        planned = "write" if target.write_pct == 100 else "read"
        for ddir, counts in (busy or {planned: Counts()}).items():
            yield shared | {"ddir": ddir} | _measures(counts, span.seconds) | own.get((row.path, ddir), {})


def _measures(counts: Counts, seconds: float) -> dict[str, float]:
    """Rates over the printed time, unless the printed rate has more digits than that time."""
    printed = isfinite(counts.iops) and counts.iops > seconds
    rate = (counts.iops / counts.ios if printed else 1 / seconds if seconds else nan) if counts.ios else 0
    measured = {"io_bytes": counts.io_bytes, "bw_bytes": counts.io_bytes * rate, "iops": counts.ios * rate}
    measured |= {"runtime": 1000 * seconds, "total_ios": counts.ios}
    if isfinite(counts.mean_ms):
        measured |= {"lat_ns_mean": _NS_PER_MS * counts.mean_ms, "lat_ns_stddev": _NS_PER_MS * counts.stddev_ms}
        measured["lat_ns_N"] = counts.ios
    return measured


def _own_percentiles(span: Timespan) -> dict[tuple[str, str], dict[str, float]]:
    """(path, ddir) -> lat_ns_p99.9 and its like, where one thread alone made the distribution."""
    busy = {d: Counter(row.path for row in span.rows if getattr(row, d).ios) for d in ("read", "write")}
    names = {"0": "min", "100": "max"}
    own = {}
    for job, ddir, _, values in _distributions(span):
        rows = busy[ddir] if job == _ALL_TARGETS else {job: busy[ddir][job]}
        if sum(rows.values()) == 1:
            path = next(path for path, n in rows.items() if n)
            own[path, ddir] = {f"lat_ns_{names.get(p, f'p{p}')}": _NS_PER_MS * ms for p, ms in values.items()}
    return own


def _distributions(span: Timespan) -> Iterator[tuple[str, str, int, dict[str, float]]]:
    """job, ddir, I/Os and percent -> ms of every distribution; that of all targets only where theirs are missing."""
    per_path = [chart for chart in span.charts if chart.path is not None]
    paths = {row.path for row in span.rows}
    ios: Counter = Counter()
    for row in span.rows:
        for job in (row.path, _ALL_TARGETS):
            ios[job, "read"] += row.read.ios
            ios[job, "write"] += row.write.ios
    for chart in per_path or span.charts:
        job = chart.path or (next(iter(paths)) if len(paths) == 1 else _ALL_TARGETS)
        for ddir in ("read", "write"):
            values = {p: ms for p, ms in getattr(chart, ddir).items() if isfinite(ms)}
            if ios[job, ddir] and values:
                yield job, ddir, ios[job, ddir], values


def buckets_of(span: Timespan) -> Iterator[tuple[str, str, int, int]]:
    """job, ddir, lat_ns, count: the I/Os up to each percentile that the one below it does not hold; the min holds
    one."""
    for job, ddir, ios, values in _distributions(span):
        counts: Counter = Counter()
        held = 0
        for p in sorted(values, key=Fraction):
            upto = max(held, min(ios, ceil(Fraction(p) * ios / 100)) or 1)
            counts[_bucket(values[p])] += upto - held
            held = upto
        yield from ((job, ddir, lat_ns, n) for lat_ns, n in sorted(counts.items()) if n)


def _bucket(milliseconds: float) -> int:
    """Midpoint of the bucket fio would count this latency in."""
    return MIDPOINTS[bucket_of(max(0, round(min(milliseconds, 1e9) * _NS_PER_MS)))]


def outstanding_of(span: Timespan) -> float:
    """I/Os kept in flight by all threads together: what Little's law wants. NaN where rows are missing."""
    if not span.ended or span.damage:
        return nan
    if span.pool_depth:
        return span.pool_depth * len({row.thread for row in span.rows})
    return float(sum(depth for _, _, depth in span.settled()))


def _options(target: Target, span: Timespan, depth: float, threads: float) -> dict[str, str]:
    """DiskSPD's settings under fio's names, as text; what the file does not say is left out."""
    reading = 100 - target.write_pct
    mixed = {0.0: "write", 100.0: "read"}.get(reading, "rw") if isfinite(reading) else ""
    numbers = {
        "bs": target.block_bytes,
        "iodepth": depth,
        "numjobs": threads,
        "rwmixread": reading,
        "runtime": span.duration_s,
        "ramp_time": span.warmup_s,
        "rate_iops": target.rate_iops,
        "rate": target.rate_bytes_per_s,
        "percentage_random": target.random_pct if 0 < target.random_pct < 100 else nan,
    }
    options = {name: f"{value:.15g}" for name, value in numbers.items() if isfinite(value)}
    options |= {name: str(int(on)) for name, on in (("direct", target.direct), ("sync", target.sync)) if on is not None}
    options |= {"rw": ("rand" if target.random_pct > 0 else "") + mixed} if mixed else {}
    options |= {"filename": target.path} if target.path else {}
    return {f"opt_{name}": value for name, value in options.items()}


def _frame(rows: list[dict]) -> pd.DataFrame:
    """Columns in `read_fio`'s order, the fixed ones always there, and DiskSPD's `thread` behind them."""
    table = pd.DataFrame(rows)
    options = [f"opt_{name}" for name in OPTIONS]
    texts = {"hostname", "job", "ddir", *options}
    fixed = (*HOST_KEYS, "error", *MEASURES, *OF_LATENCIES, *JOB, *options)
    known = [name for name in dict.fromkeys((*fixed, *table)) if name != "thread"]
    table = table.reindex(columns=[*reading_order(known), "thread"])
    numbers = [name for name in (*fixed, "thread") if name not in texts and table[name].dtype == object]
    return table.astype(dict.fromkeys(numbers, "float64"))
