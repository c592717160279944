"""Count fio's logs by second, direction and latency bucket, exactly.

pyarrow parses the lines and groups them, a block at a time. Percentiles are taken of the sums
(`hcilib.analyse.latency.percentiles`) and are never averaged.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from hcilib.model.compressed import pieces
from hcilib.model.fio_buckets import BUCKETS, MIDPOINTS, buckets_of
from hcilib.model.places import Paths, at_home, several
from hcilib.read.fio.fio import LOCAL_HOST

DIRECTIONS = ("read", "write", "trim")
RATES = ("iops", "bw")
KIB = 1024
"""Bytes in fio's unit of bw logs."""
EPOCH_MS = 10**11
"""Later than 1973 as a date, longer than three years as a duration."""
LONGEST_S = 31 * 86400
"""Of one run. A clock that jumps must not make a million rows."""
STALLS_UP_TO_MS = 1250
"""Between two samples. Of rarer ones nothing shows that a second is missing."""
APART_S = 60
"""Between the times of two hosts. Beyond it their clocks have nothing in common."""
NAME = re.compile(
    r"(?P<job>.+)_(?P<kind>iops|bw|lat|clat_hist|clat|slat)(?:\.(?P<number>\d+))?\.log"
    r"(?:\.(?P<host>.+?))??(?:\.zst|\.gz)?",
    re.DOTALL,
)
_BLOCK, _HEAD = 1 << 22, 1 << 16
_SAMPLE_FIELDS = 8
"""At most of a line about one I/O or an average; a histogram has more."""
_LIMITS = {"t_ms": 1 << 50, "value": 1 << 45, "ddir": len(DIRECTIONS), "bs": 1 << 32}
_SUM_LIMIT = 1 << 62
_NO_BUCKET = BUCKETS
_CELL = ["group", "key", "n", "bytes", "sum"]
_SPLIT = ["averaged", "ddir", "second", "t_s", "bucket", "lat_ns"]
_COLUMNS = ["host", "job", "log", *_SPLIT, "count", "bytes", "sum", "stalled"]
_LATENCY_NS = np.append(np.array(MIDPOINTS, float), np.nan)


class FioLogError(ValueError):
    """Say which log cannot be read: the file, and the line or the option to change."""


class Log(NamedTuple):
    """A log and what its name says."""

    path: Path
    host: str
    job: str
    kind: str
    number: int


class Layout(NamedTuple):
    """What the first lines of a log show: its fields, and its interval (0: single I/Os)."""

    fields: list[str]
    every_ms: int
    averaged: bool


def rollup_of_logs(path: Paths, log: str | Iterable[str] | None = None) -> pd.DataFrame:
    """Return what `hcilib.read.run.run.read_rollup` returns, of logs and folders of logs."""
    kinds = {log} if isinstance(log, str) else None if log is None else set(log)
    places = [at_home(one) for one in several(path)]
    inside = [sorted(place.iterdir()) if place.is_dir() else [] for place in places]
    logs = [log_of(place) for place in places if not place.is_dir()]
    logs += [log_of(file) for files in inside for file in files if NAME.fullmatch(file.name)]
    if not logs:
        raise FioLogError(f"{', '.join(map(str, places))}: no fio logs (PREFIX_clat.1.log)")
    return count([one for one in dict.fromkeys(logs) if kinds is None or one.kind in kinds])


def log_of(path: Path) -> Log:
    """Return a log by its name; FioLogError where fio gives no log such a name."""
    if not (name := NAME.fullmatch(path.name)):
        expected = "PREFIX_iops|bw|lat|clat|slat|clat_hist[.N].log[.HOST]"
        raise FioLogError(f"{path}: not named like a fio log ({expected})")
    host = name["host"] or LOCAL_HOST
    return Log(path, host, name["job"], name["kind"], int(name["number"] or 1))


# --- a log as tables


def parsed(log: Log, torn: list[str] | None = None) -> Iterator[tuple[Layout, pa.Table]]:
    """Yield a log's layout and its numbers, a block of whole lines at a time.

    `torn` gains the path of a log whose last line has no end: that line is not read.
    """
    layout, done = None, 0
    for block in _blocks(log.path, [] if torn is None else torn):
        layout = layout or _layout(block[:_HEAD], log)
        table = _table(block, layout, log.path, done)
        done += table.num_rows
        yield layout, table


def layout_of(log: Log) -> Layout | None:
    """Return what the first lines of a log show; None of an empty one."""
    return next((_layout(block[:_HEAD], log) for block in _blocks(log.path, [])), None)


def _blocks(path: Path, torn: list[str]) -> Iterator[bytes]:
    rest = b""
    try:
        for piece in pieces(path, _BLOCK):
            end = piece.rfind(b"\n") + 1
            if (whole := rest + piece[:end]) and end:
                yield whole
            rest = piece[end:] if end else whole
            if len(rest) > _HEAD:
                raise FioLogError(f"{path}: a line of more than {_HEAD} bytes: no log of fio's")
    except OSError as error:
        raise FioLogError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise FioLogError(str(error)) from None
    torn += [str(path)] * bool(rest)


def _layout(head: bytes, log: Log) -> Layout:
    """With log_window_value=both mean and maximum stand where else the value stands. A maximum
    is no direction where it is above 2. Where none is, nothing tells it from one."""
    rows = [line.split(b",") for line in head[: head.rfind(b"\n")].split(b"\n") if line.strip()]
    width, hist = len(rows[0]) if rows else 0, log.kind == "clat_hist"
    pairs = {(row[1].strip(), row[2].strip()) for row in rows if len(row) == width > 5}
    both = not {third for _, third in pairs} <= {b"0", b"1", b"2"}
    names = ["t_ms", *([] if hist else ["value", "max"] if both else ["value"]), "ddir", "bs"]
    behind = width - len(names)
    if not (behind in [BUCKETS >> k for k in range(7)] if hist else -1 <= behind <= 3):
        raise FioLogError(f"{log.path}: line 1 has {width} fields, as no log of fio 3 has")
    averaged = not hist and (behind < 0 or not rows[0][len(names) - 1].strip(b" 0"))
    if averaged and pairs and not both and all(value <= third for value, third in pairs):
        raise FioLogError(f"{log.path}: is its third field a maximum? Log without log_window_value")
    times = defaultdict(list)
    for row in rows:
        if len(row) == width and row[0].isdigit() and len(row[0]) < 18:
            times[row[names.index("ddir")].strip()].append(int(row[0]))
    distances = [int(d) for own in times.values() for d in np.diff(own) if 0 < d < 3_600_000]
    every_ms = (median_low(distances) if distances else 1000) if hist or averaged else 0
    return Layout([*names, *map(str, range(behind))][:width], every_ms, averaged)


def _table(block: bytes, layout: Layout, path: Path, done: int) -> pa.Table:
    names = layout.fields
    used = [name for name in names if name in _LIMITS or len(names) > _SAMPLE_FIELDS]
    try:
        table = csv.read_csv(
            pa.py_buffer(block),
            csv.ReadOptions(column_names=names, block_size=len(block) + 1, use_threads=False),
            csv.ParseOptions(quote_char=False),
            csv.ConvertOptions(
                column_types=dict.fromkeys(used, pa.int64()),
                include_columns=used,
                null_values=[],
            ),
        )
    except pa.ArrowInvalid as error:
        reason = re.sub(r"Row #(\d+)", lambda row: f"line {done + int(row[1])}", str(error))[:200]
        raise FioLogError(f"{path}: {reason}; is the log cut short by a full disk?") from None
    for name in used[: len(_LIMITS)]:
        values = table[name].to_numpy()
        wrong = (values < 0) | (values >= _LIMITS.get(name, _SUM_LIMIT))
        if wrong.any():
            line = done + int(wrong.argmax()) + 1
            raise FioLogError(f"{path}: line {line}: {name} is {values[wrong][0]}, as in no log")
    return table


# --- counting


def count(logs: Sequence[Log]) -> pd.DataFrame:
    """Return the table of `read_rollup` of these logs."""
    groups = sorted({(log.host, log.job, log.kind) for log in logs})
    intervals_ms, torn = [0], list[str]()

    def cells_of(log: Log) -> list[pa.Table]:
        group, cells = groups.index((log.host, log.job, log.kind)), list[pa.Table]()
        for layout, table in parsed(log, torn):
            if log.kind == "clat_hist" and log.host != LOCAL_HOST and not cells:
                _require_counted_once(table, log.path)
            intervals_ms.append(layout.every_ms)
            cells.append(_summed(_cells(table, log.kind, layout.every_ms // 2, group), log.path))
        return cells

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        cells = [cell for own in pool.map(cells_of, logs) for cell in own]
    if not cells:
        cells = [pa.table({name: pa.array([], pa.int64()) for name in _CELL})]
    added = _summed(pa.concat_tables(cells), logs[0].path if logs else Path())
    return _frame(added.to_pandas(), groups, max(intervals_ms), sorted(torn))


def _cells(table: pa.Table, kind: str, half_ms: int, group: int) -> pa.Table:
    """Return group, key, n, bytes and sum. The key packs second, direction, averaged and bucket.

    fio stamps an average or a histogram with the end of its interval. Half of it earlier is the
    second in which its I/O was done.
    """
    t, ddir = np.maximum(table["t_ms"].to_numpy() - half_ms, 0), table["ddir"].to_numpy()
    size = table["bs"].to_numpy() if "bs" in table.column_names else np.zeros_like(t)
    if kind == "clat_hist":
        counts = np.column_stack([column.to_numpy() for column in table.columns[3:]])
        row, place = np.nonzero(counts)
        stride = BUCKETS // counts.shape[1]
        bucket, n = place * stride + stride // 2, counts[row, place]
        t, ddir, size = t[row], ddir[row], size[row] * n
        averaged, value = np.zeros_like(n), n * np.array(MIDPOINTS)[bucket]
    else:
        value, n = table["value"].to_numpy(), np.ones_like(t)
        averaged = (size == 0).astype(np.int64)
        bucket = np.full_like(t, _NO_BUCKET) if kind in RATES else buckets_of(value)
    key = ((t // 1000 << 3 | ddir << 1 | averaged) << 11) | bucket
    return pa.table([np.full_like(key, group), key, n, size, value], _CELL)


def _summed(cells: pa.Table, path: Path) -> pa.Table:
    """Add up the cells of one group and key."""
    for name in _CELL[2:]:
        if (pc.sum(cells[name].cast(pa.float64())).as_py() or 0) >= _SUM_LIMIT:
            raise FioLogError(f"{path}: {name} adds up to more than 64 bits hold: no log of a run")
    by = cells.group_by(_CELL[:2], use_threads=False)
    return by.aggregate([(name, "sum") for name in _CELL[2:]]).rename_columns(_CELL)


def _require_counted_once(table: pa.Table, path: Path) -> None:
    """Refuse histograms as fio's server (3.33) sends them to its client.

    Each is the difference to the one before, which has just been made a difference itself:
    v[k] = true[k] + v[k - 2], so that I/Os are counted again in every second line.
    """
    rows = np.column_stack([column.to_numpy() for column in table[:40].columns])
    for ddir in np.unique(rows[:, 1]):
        counts = rows[rows[:, 1] == ddir, 3:]
        more = counts[2:] - counts[:-2]
        if len(more) > 3 and (more >= 0).all() and more.any(axis=1).all():
            raise FioLogError(
                f"{path}: histograms of fio's client and server count I/Os again and again; "
                "log histograms where fio runs (launcher: per-host)"
            )


# --- the table


def _frame(
    cells: pd.DataFrame,
    groups: Sequence[tuple[str, str, str]],
    every_ms: int,
    torn: list[str],
) -> pd.DataFrame:
    filled, codes = np.unique(cells["group"], return_inverse=True)
    for place, name in enumerate(("host", "job", "log")):
        cells[name] = pd.Categorical([groups[group][place] for group in filled])[codes]
    cells["second"] = cells["key"] // (1 << 14)
    cells["ddir"] = cells["key"] // (1 << 12) % 4
    origin, epoch_s = _origin(cells)
    cells["t_s"] = cells["second"] - origin
    if every_ms <= STALLS_UP_TO_MS:
        cells = pd.concat([cells, *_stalls(cells)])
    cells = cells.sort_values(["group", "key"], kind="stable", ignore_index=True)
    bucket = cells["key"] % (1 << 11)
    cells = cells.assign(
        averaged=cells["key"] // (1 << 11) % 2 == 1,
        ddir=pd.Categorical.from_codes(cells["ddir"], DIRECTIONS),
        bucket=bucket.where(bucket != _NO_BUCKET, -1).astype(np.int16),
        lat_ns=_LATENCY_NS[bucket],
        sum=cells["sum"] * np.where(cells["log"] == "bw", KIB, 1),
        stalled=cells["n"] == 0,
    )
    table = cells.rename(columns={"n": "count"})[_COLUMNS]
    table.attrs = {"epoch_s": epoch_s, "torn": torn, "every_ms": every_ms}
    return table


def _origin(cells: pd.DataFrame) -> tuple[pd.Series, int | None]:
    """Return the second that is t_s 0 of each row, and which it is for all: None if each host has
    its own.

    Dates are compared as they are while they overlap. Other times count from each host's start.
    """
    by = cells.groupby("host", observed=True)["second"]
    spans = by.agg(["min", "max"]).sort_values("min")
    for host, first, last in spans.itertuples():
        require_one_clock(first, last, host)
    dated = spans["min"] >= EPOCH_MS // 1000
    apart = spans["min"].shift(-1) > spans["max"].cummax() + APART_S
    if len(spans) and dated.all() and not apart.any():
        return cells["second"] * 0 + spans["min"].min(), int(spans["min"].min())
    return by.transform("min") * (cells["second"] >= EPOCH_MS // 1000), None


def _stalls(cells: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield rows of no I/O for each second before the end of a run in which a direction logged
    nothing."""
    ends = cells.groupby(["job", "log"], observed=True)["t_s"].max()
    for _, own in cells.groupby("group"):
        start = own.iloc[0]
        seconds = np.arange(own["t_s"].min(), ends[start["job"], start["log"]])
        for ddir, logged in own.groupby("ddir"):
            t_s = np.setdiff1d(seconds, logged["t_s"])
            second = t_s + start["second"] - start["t_s"]
            key = (second << 3 | ddir << 1) << 11 | _NO_BUCKET
            stalls = own.iloc[[0] * len(key)].assign(n=0, bytes=0, sum=0)
            yield stalls.assign(key=key, ddir=ddir, second=second, t_s=t_s)


def require_one_clock(first_s: float, last_s: float, place: object) -> None:
    """Refuse times that are not those of one run."""
    if first_s < EPOCH_MS // 1000 <= last_s:
        why = "some logs count from 1970 and some from the job's start; use one log_unix_epoch"
        raise FioLogError(f"{place}: {why}")
    if last_s - first_s > LONGEST_S:
        why = "two runs, or a clock that jumped; read each alone"
        raise FioLogError(f"{place}: logs span {last_s - first_s:.0f} s: {why}")
