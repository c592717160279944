"""DiskSPD's results, XML or text, 2.0.17 to 2.2: what each thread did on each target, under fio's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil, isfinite, nan
from pathlib import Path
from typing import Any

from hcilib.model.fio_buckets import MIDPOINTS, bucket_of
from hcilib.read.diskspd.diskspd_formats import (
    Counts,
    DiskspdOutputError,
    Target,
    Timespan,
    parse_text,
    parse_xml,
)

_ALL_TARGETS = "all targets"
_NS_PER_MS = 1_000_000
_INTERRUPTED, _NOT_WHOLE = 4, 74
"""Linux's EINTR and EBADMSG: the numbers fio would use, on whatever machine the file is read."""


def load(raw: bytes, path: str | Path) -> list[Timespan]:
    """The timespans of a file's bytes.

    Raises
    ------
    DiskspdOutputError
        No complete DiskSPD result, a field that is not of its type, or a queue that all targets share (-O). The
        sentence names file and place.
    """
    text = text_of(raw)
    spans = (parse_xml if "<Results" in text else parse_text)(text, str(path))
    if not any(span.rows or span.targets for span in spans):
        raise DiskspdOutputError(f"{path}: the results hold no thread and no target; give DiskSPD's whole output.")
    if any(len({target.path for target in span.targets}) < len(span.targets) for span in spans):
        raise DiskspdOutputError(f"{path}: two targets on one path, which are no one test. Run each alone.")
    if any(span.pooled for span in spans):
        raise DiskspdOutputError(f"{path}: its threads share a queue (-O), which is not read. Run DiskSPD with -o.")
    return spans


def text_of(raw: bytes) -> str:
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


def rows_of(span: Timespan) -> Iterator[dict]:
    """A row for each target (job), thread (clone) and direction with I/O; what was not measured is not among its keys.

    A thread without any I/O gives one row with its planned direction; so does a timespan that was interrupted before it
    measured. `error`: 0; 4 (EINTR) not measured; 74 (EBADMSG) the rows cannot be the whole timespan. `iodepth` of its
    options is what this thread keeps outstanding on this target, `numjobs` the threads on the target.
    """
    damaged = _NOT_WHOLE if span.damage else 0
    if not span.rows:
        for target in span.targets:
            unmeasured = {"job": target.path, "clone": 0, "ddir": _planned(target), "error": damaged or _INTERRUPTED}
            yield unmeasured | {"options": _options(target, span, target.threads)}
        return
    clones: Counter[str] = Counter()
    largest = _largest(span)
    threads = Counter(path for path, _ in {(row.path, row.thread) for row in span.rows})
    for row, target in span.settled():
        options = _options(target, span, threads[row.path]) | {"size": row.size or nan}
        shared = {"job": row.path, "clone": clones[row.path], "error": damaged, "options": options}
        clones[row.path] += 1
        busy = {ddir: getattr(row, ddir) for ddir in ("read", "write") if getattr(row, ddir).ios}
        for ddir, counts in (busy or {_planned(target): Counts()}).items():
            most = {"lat_ns_max": largest[row.path, ddir]} if (row.path, ddir) in largest else {}
            yield shared | {"ddir": ddir} | _measures(counts, span.seconds) | most


def _planned(target: Target) -> str:
    return "write" if target.write_pct == 100 else "read"


def _measures(counts: Counts, seconds: float) -> dict[str, float]:
    """Rates over the printed time, unless the printed rate has more digits than that time."""
    printed = isfinite(counts.iops) and counts.iops > seconds
    rate = (counts.iops / counts.ios if printed else 1 / seconds if seconds else nan) if counts.ios else 0
    measured = {"bw_bytes": counts.io_bytes * rate, "iops": counts.ios * rate}
    measured |= {"runtime": 1000 * seconds, "total_ios": counts.ios}
    return measured | ({"lat_ns_mean": _NS_PER_MS * counts.mean_ms} if isfinite(counts.mean_ms) else {})


def _largest(span: Timespan) -> dict[tuple[str, str], float]:
    """(path, ddir) -> the longest latency in ns, where one thread alone made the distribution."""
    busy = {d: Counter(row.path for row in span.rows if getattr(row, d).ios) for d in ("read", "write")}
    found = {}
    for job, ddir, _, values in _distributions(span):
        rows = busy[ddir] if job == _ALL_TARGETS else {job: busy[ddir][job]}
        if sum(rows.values()) == 1 and "100" in values:
            path = next(path for path, n in rows.items() if n)
            found[path, ddir] = _NS_PER_MS * values["100"]
    return found


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


def buckets_of(span: Timespan) -> Iterator[tuple[int, int]]:
    """lat_ns and count of every distribution, in fio's buckets; nothing without -L.

    Between two printed percentiles all I/Os are put at the upper one, which is where DiskSPD's own lookup (the smallest
    latency that reaches the share) would find them at worst; the min holds one. So a printed percentile is found again
    within a bucket's width, 1/128, and one in between is an upper bound.
    """
    for _, _, ios, values in _distributions(span):
        counts: Counter = Counter()
        held = 0
        for p in sorted(values, key=Fraction):
            upto = max(held, min(ios, ceil(Fraction(p) * ios / 100)) or 1)
            counts[_bucket(values[p])] += upto - held
            held = upto
        yield from ((lat_ns, n) for lat_ns, n in sorted(counts.items()) if n)


def _bucket(milliseconds: float) -> int:
    """Midpoint of the bucket fio would count this latency in."""
    return MIDPOINTS[bucket_of(max(0, round(min(milliseconds, 1e9) * _NS_PER_MS)))]


def outstanding_of(span: Timespan) -> float:
    """I/Os kept in flight by all threads together: what Little's law wants. NaN where rows are missing."""
    if not span.ended or span.damage:
        return nan
    return float(sum(target.depth for _, target in span.settled()))


def _options(target: Target, span: Timespan, threads: float) -> dict[str, Any]:
    """DiskSPD's settings under fio's names, as text; what the file does not say is left out."""
    reading = 100 - target.write_pct
    mixed = {0.0: "write", 100.0: "read"}.get(reading, "rw") if isfinite(reading) else ""
    numbers = {
        "bs": target.block_bytes,
        "iodepth": target.depth,
        "numjobs": threads,
        "rwmixread": reading,
        "runtime": span.duration_s,
        "ramp_time": span.warmup_s,
        "rate_iops": target.rate_iops,
        "rate": target.rate_bytes_per_s,
        "percentage_random": target.random_pct if 0 < target.random_pct < 100 else nan,
    }
    options: dict[str, Any] = {name: f"{value:.15g}" for name, value in numbers.items() if isfinite(value)}
    options |= {name: str(int(on)) for name, on in (("direct", target.direct), ("sync", target.sync)) if on is not None}
    options |= {"rw": ("rand" if target.random_pct > 0 else "") + mixed} if mixed else {}
    return options | ({"filename": target.path} if target.path else {})
