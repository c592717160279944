"""fio's per-second logs: one file as a table, a folder of them as the `series` of the hosts."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from hcilib.read.fio.fio import LOCAL_HOST
from hcilib.read.logs.rollup import LONGEST_S, each_block, group_of, line_blocks, pushed_host, rollup_of_logs, shape_in
from hcilib.read.logs.rollup_cells import DIRECTIONS, FioLogError, read_pushed
from hcilib.read.logs.rollup_script import (
    BS_LIMIT,
    EPOCH_MS,
    NAME,
    TIME_LIMIT,
    VALUE_LIMIT,
    LineError,
    sample_of,
)

_LIMITS = {"t_ms": TIME_LIMIT, "value": VALUE_LIMIT, "ddir": 3, "bs": BS_LIMIT}
_COLUMNS = ("t_ms", "value", "ddir", "bs", "offset", "prio", "issued")
_TYPES = (*[pa.int64()] * 4, pa.uint64(), pa.string(), pa.string())


def name_of(path: str | Path) -> re.Match[str] | None:
    """Return what the name of a log of rates or latencies says; None of any other file."""
    name = NAME.fullmatch(Path(path).name)
    return name if name and name["log"] != "clat_hist" else None


def read_log(path: str | Path) -> pd.DataFrame:
    """One fio iops, bw, lat, clat or slat log, plain, .zst or .gz, local or a client's (`P_iops.1.log.HOST`).

    Returns
    -------
    DataFrame
        t_s (float: since the start of the job, or since 1970 with log_unix_epoch), ddir, value, bs, then offset and
        prio where the log has them. `value` is IOPS, bytes/s (fio writes KiB/s) or ns (fio 3), by the name of the
        file; bs is 0 in a log averaged by log_avg_msec.
        `.attrs`: kind, job (the prefix), number (of the job), host, epoch (bool); torn (True) only where the last line
        has no end: it is not counted, for a log may still be written.

    Raises
    ------
    FioLogError
        The name is not that of such a log, or a line is not one of numbers with a direction.
    """
    if not (name := name_of(path)):
        raise FioLogError(f"{path}: not named like a fio log (PREFIX_iops|bw|lat|clat|slat[.N].log[.HOST])")
    table, torn = _parse(Path(path), name["log"])
    table["ddir"] = np.array(DIRECTIONS)[table["ddir"].to_numpy()]
    epoch = bool(len(table)) and bool(table["t_ms"].iloc[0] > EPOCH_MS)
    table.insert(0, "t_s", table.pop("t_ms") / 1000)
    if name["log"] == "bw":
        table["value"] *= 1024
    table.attrs |= {
        "kind": name["log"], "job": name["job"], "number": int(name["number"] or 1),
        "host": name["host"] or LOCAL_HOST, "epoch": epoch, **({"torn": True} if torn else {}),
    }  # fmt: skip
    return table


def _parse(path: Path, kind: str) -> tuple[pd.DataFrame, bool]:
    """All samples, and whether what may be half a line was left out."""
    torn: list[str] = []
    blocks: list[pa.Table] = []
    each_block(path, kind, torn, lambda block, shape: blocks.append(_table(block, shape.width)))
    if not blocks:  # what fio leaves for a latency it does not measure, such as slat of a synchronous engine
        return pd.DataFrame({name: pd.Series(dtype="int64") for name in _COLUMNS[:4]}), bool(torn)
    return pa.concat_tables(blocks).to_pandas(), bool(torn)


def _table(block: bytes, width: int) -> pa.Table:
    table = _columns(block, width)
    good = table is not None and all(
        table[name].to_numpy().max() < limit for name, limit in _LIMITS.items() if name in table.column_names
    )
    return table if good else _line_by_line(block, width)


def _columns(block: bytes, width: int) -> pa.Table | None:
    """Whole lines, the numbers and the words of up to 18 letters and digits behind them; None unless printed as fio
    prints them.

    pyarrow reads more than fio writes (0x1f, +5, quotes): what could be such a thing is looked for first.
    """
    raw = block.replace(b", ", b",")
    if raw.translate(None, b"0123456789,\n" if width < 6 else b"0123456789,\nabcdefABCDEFx"):
        return None
    if raw[:1] == b"\n" or b"\n\n" in raw:
        return None
    types = dict(zip(_COLUMNS[:width], _TYPES, strict=False))
    try:
        table = csv.read_csv(
            pa.py_buffer(raw),
            read_options=csv.ReadOptions(column_names=list(types), use_threads=False, block_size=len(raw) + 1),
            parse_options=csv.ParseOptions(quote_char=False),
            convert_options=csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False),
        )
    except pa.ArrowInvalid:
        return None
    words = [table[name] for name in _COLUMNS[5:width]]
    if raw.count(b"x") != sum(pc.sum(pc.count_substring(column, "x")).as_py() for column in words):
        return None  # a number before them is hexadecimal
    seen = {word for column in words for word in column.unique().to_pylist()}
    return table if all(1 <= len(word) <= 18 for word in seen) else None


def _line_by_line(block: bytes, width: int) -> pa.Table:
    """What is not printed as fio prints it, if it can be read at all: carriage returns, other blanks, empty lines."""
    rows, at = [], 0
    for line in block.split(b"\n"):
        if line.strip():
            if line.count(b",") + 1 != width:
                raise LineError(line, at)
            try:
                words = [word.strip().decode() for word in line.split(b",")[5:]]
                rows.append([*sample_of(line)[: min(width, 5)], *words])
            except LineError as error:
                raise LineError(error.line, at, error.why) from None
            except UnicodeDecodeError:
                raise LineError(line, at) from None
        at += len(line) + 1
    names = _COLUMNS[:width]
    return pa.table([pa.array([row[i] for row in rows], _TYPES[i]) for i in range(width)], names)


def series_from_logs(logs: str | Path | Sequence[Path], log_avg_msec: float | None = None) -> pd.DataFrame:
    """The logs of one run, per host and second.

    Jobs of one host are summed on aligned seconds (latency weighted by I/Os). A second in which nothing was logged
    inside the run is zero I/O, not missing: fio's rate logs leave stalled seconds out. fio does not log the rate of
    the last, incomplete interval; it is left out here too. Logs of single I/Os (no log_avg_msec), and what VMs rolled
    up of them, are counted instead (hcilib.read.logs.rollup).

    Parameters
    ----------
    logs
        Their folder, or their paths where it holds those of other runs too.
    log_avg_msec
        The interval fio averaged over; inferred from the samples when not given. Must divide a second.

    Returns
    -------
    DataFrame
        host, job (the logs' prefix), ddir, t_s (whole seconds since the first sample of the run, across hosts with
        log_unix_epoch, else since each job's own start), iops, bw_bytes, lat_ns, stalled (bool: no I/O in that second).
        NaN where there is no log of that kind, and lat_ns where there was no I/O. Empty if nothing was logged (no
        folder, no logs, or a run shorter than the interval).
        `.attrs`: latency ("lat", or "clat" if only that was logged), epoch_s (of t_s 0; None without log_unix_epoch).

    Raises
    ------
    FioLogError
        Some logs of single I/Os among averaged ones, two clocks, or an interval that does not divide a second.
    """
    folder, files = _files_of(logs)
    if holds_single_ios(folder, files):
        return series_of_single_ios(files)
    samples = _samples(folder, files)
    if samples.empty:
        table = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in _SERIES.items()})
        table.attrs |= {"latency": None, "epoch_s": None}
        return table
    interval = log_avg_msec or _interval_ms(samples, folder)
    placed, epoch_s = _place(samples, interval)
    grid = _grid(placed, int(1000 // interval))
    table = _hosts(_jobs_on(grid, placed))
    table.attrs |= {"latency": _latency_kind(samples), "epoch_s": epoch_s}
    return table


def epoch_of_logs(logs: str | Path | Sequence[Path], log_avg_msec: float | None = None) -> float | None:
    """The second since 1970 of `t_s` 0 of `series_from_logs`; None without log_unix_epoch. Raises as that does."""
    folder, files = _files_of(logs)
    if holds_single_ios(folder, files):
        return series_of_single_ios(files).attrs["epoch_s"]
    samples = _samples(folder, files)
    return None if samples.empty else _place(samples, log_avg_msec or _interval_ms(samples, folder))[1]


_JOB = ["host", "job", "number"]
_INTERVALS = (50, 100, 125, 200, 250, 500, 1000)
_RATES = dict.fromkeys(["iops", "bw_bytes", "lat_ns"], "float64")
_SERIES = {**dict.fromkeys(["host", "job", "ddir"], "str"), "t_s": "int64", **_RATES, "stalled": "bool"}


def _files_of(logs: str | Path | Sequence[Path]) -> tuple[Path, list[Path]]:
    """The folder of logs, for sentences, and its files in the order of their names; none where it is not there."""
    if not isinstance(logs, (str, Path)):
        return (logs[0].parent if logs else Path()), sorted(logs)
    folder = Path(logs)
    return folder, sorted(folder.iterdir()) if folder.is_dir() else []


def _samples(folder: Path, files: Sequence[Path]) -> pd.DataFrame:
    """All samples of these logs: host, job, number, kind, ddir, t_ms, value."""
    filled = []
    for path in files:
        if name_of(path) and len(log := read_log(path)):
            told, log.attrs = log.attrs, {}
            filled.append(log.assign(**{name: told[name] for name in (*_JOB, "kind", "epoch")}))
    if not filled:
        return pd.DataFrame()
    samples = pd.concat(filled, ignore_index=True)
    if samples["epoch"].nunique() > 1:
        raise FioLogError(f"{folder}: some logs count from 1970 and some from the job's start; use one log_unix_epoch")
    if (span_s := np.ptp(samples["t_s"])) > LONGEST_S:
        raise FioLogError(f"{folder}: logs span {span_s:.0f} s: two runs, or a clock that jumped; read each alone")
    return samples.assign(t_ms=(samples["t_s"] * 1000).round()).drop(
        columns=["t_s", "bs", "offset", "prio", "issued"], errors="ignore"
    )


def _interval_ms(samples: pd.DataFrame, folder: str | Path) -> int:
    """The interval the samples were averaged over; low distances tell it, high ones are stalls."""
    distances = samples.groupby([*_JOB, "kind", "ddir"])["t_ms"].diff()
    if distances.isna().all():
        return 1000
    distance = distances.quantile(0.1)
    nearest = min(_INTERVALS, key=lambda interval: abs(np.log(distance / interval)))
    if abs(distance / nearest - 1) > 0.15:
        raise FioLogError(
            f"{folder}: samples are {distance:g} ms apart, which does not divide a second; set log_avg_msec=1000 in "
            "the job, or pass log_avg_msec= if the device was too slow to show it"
        )
    return nearest


def _place(samples: pd.DataFrame, interval: float) -> tuple[pd.DataFrame, float | None]:
    """Give every sample its step (interval) within its job, and the second of the run in which its job began.

    Rounding to the job's own first sample takes fio's jitter out; comparing clocks sample by sample would put two
    samples in one second and none in the next wherever a job's phase lies near the boundary.
    """
    if interval not in _INTERVALS:
        raise FioLogError(f"log_avg_msec={interval:g} does not divide a second; one of {_INTERVALS} does")
    epoch = bool(samples["epoch"].iloc[0])
    first = samples.groupby(_JOB)["t_ms"].transform("min") if epoch else interval
    origin = samples["t_ms"].min() if epoch else interval
    step = ((samples["t_ms"] - first) / interval).round().astype("int64")
    begin = pd.Series(np.round((first - origin) / 1000), index=samples.index).astype("int64")
    placed = samples.assign(step=step, begin_s=begin, window=_window(samples, interval, epoch))
    return placed, float(origin - interval) / 1000 if epoch else None


def _window(samples: pd.DataFrame, interval: float, epoch: bool) -> pd.Series:
    """Milliseconds a rate sample stands for: fio divides by the time since it last looked, which jitters.

    A stalled device leaves samples out, but fio looks on in rhythm: the sample after a gap stands for one interval.
    """
    since_start = interval if epoch else samples["t_ms"]
    distance = samples.groupby([*_JOB, "kind", "ddir"])["t_ms"].diff().fillna(since_start) / interval
    return interval * distance.where(distance < 1.5, 1.0)


def _rate_kinds(samples: pd.DataFrame) -> list[str]:
    """The kinds that say in which intervals there was I/O; latency logs only if there is nothing better."""
    present = set(samples["kind"])
    return [k for k in ("iops", "bw") if k in present] or sorted(present)


def _grid(placed: pd.DataFrame, per_second: int) -> pd.DataFrame:
    """Every step every job should have logged, whole seconds only: host, job, number, ddir, step, t_s."""
    rates = placed[placed["kind"].isin(_rate_kinds(placed))]
    jobs = rates.groupby(_JOB, as_index=False).agg(begin_s=("begin_s", "first"), last=("step", "max"))
    length = jobs["last"].max() + 1 - _incomplete_edge(placed, jobs)
    steps = pd.DataFrame({"step": np.arange(length - length % per_second)})
    ddirs = rates[[*_JOB, "ddir"]].drop_duplicates()
    grid = jobs.merge(ddirs, on=_JOB).merge(steps, how="cross")
    grid["t_s"] = grid["begin_s"] + grid["step"] // per_second
    end_s = (jobs["begin_s"] + jobs["last"] // per_second).max()
    return grid[grid["t_s"] <= end_s].drop(columns=["begin_s", "last"])


def _incomplete_edge(placed: pd.DataFrame, jobs: pd.DataFrame) -> int:
    """1 if the last step must go: some job ended a moment before it would have logged its rate.

    Its latency log shows that it still did I/O then; with no latency log the doubtful step goes as well.
    """
    last = jobs["last"].max()
    late = jobs[jobs["last"] < last]
    latencies = placed[placed["kind"].isin(["lat", "clat", "slat"])]
    alive = latencies[latencies["step"] == last].merge(late[_JOB], on=_JOB)
    return int(len(late) > 0 and (latencies.empty or len(alive) > 0))


def _jobs_on(grid: pd.DataFrame, placed: pd.DataFrame) -> pd.DataFrame:
    """The grid with I/Os, bytes and latency x I/Os of each job and step."""
    keys = [*_JOB, "ddir", "step"]
    amounts = placed.assign(amount=placed["value"] * placed["window"] / 1000)
    for kind, column in (("iops", "ios"), ("bw", "bytes")):
        of_kind = amounts[amounts["kind"] == kind]
        summed = of_kind.groupby(keys, as_index=False)["amount"].sum().rename(columns={"amount": column})
        grid = grid.merge(summed, on=keys, how="left")
        if len(of_kind):
            grid[column] = grid[column].fillna(0.0)
    latency = placed[placed["kind"] == _latency_kind(placed)]
    means = latency.groupby(keys, as_index=False)["value"].mean().rename(columns={"value": "lat"})
    return grid.merge(means, on=keys, how="left")


def _latency_kind(samples: pd.DataFrame) -> str | None:
    present = set(samples["kind"])
    return next((kind for kind in ("lat", "clat") if kind in present), None)


def _hosts(jobs: pd.DataFrame) -> pd.DataFrame:
    """Sum the jobs of a host over each whole second."""
    seen = [c for c in ("ios", "bytes") if jobs[c].notna().any()] or ["lat"]
    alone = jobs.groupby(["host", "job"])["number"].transform("nunique") == 1
    weight = jobs["ios"].where(jobs["ios"].notna() | ~alone, 1.0).where(jobs["lat"].notna())
    jobs = jobs.assign(
        weight=weight, weighted=weight * jobs["lat"], active=(jobs[seen] > 0).any(axis=1),
    )  # fmt: skip
    by = jobs.groupby(["host", "job", "ddir", "t_s"], as_index=False)
    table = by[["ios", "bytes", "weighted", "weight"]].sum(min_count=1).merge(by["active"].any())
    table["lat_ns"] = table["weighted"] / table["weight"].where(table["weight"] > 0)
    table["stalled"] = ~table["active"]
    named = table.rename(columns={"ios": "iops", "bytes": "bw_bytes"})
    return named[[*_SERIES]]


def silences_from_logs(folder: str | Path, log_avg_msec: float | None = None) -> pd.DataFrame:
    """When nobody did I/O: from one completion to the next, as far as the logs tell.

    An averaged log leaves out the intervals without a completion, so two samples further apart than one interval have
    silence between them: from the first to the beginning of the interval that the second stands for. What lies inside
    the two intervals beside it nobody knows: the true silence is up to two intervals longer. Of single I/Os it is
    exact.

    Returns
    -------
    DataFrame
        from_s, to_s (on the axis of `series_from_logs`), resolution_s (of the logs; NaN: no log). One row a silence
        that all writers of the folder share; one of length 0 where there is none, so that the resolution is known.
    """
    samples = _samples(*_files_of(folder))
    if samples.empty:
        return pd.DataFrame({"from_s": [0.0], "to_s": [0.0], "resolution_s": [np.nan]})
    samples = samples[samples["kind"].isin(_rate_kinds(samples)[:1])]
    last = samples["t_ms"].max()
    samples = samples[(samples["kind"] != "iops") | (samples["value"] != 0)]
    single = holds_single_ios(*_files_of(folder))
    interval = 0.0 if single else log_avg_msec or _interval_ms(samples, folder)
    # To fio's millisecond, and to its own jitter: a sample is late by some, never by half an interval.
    origin = samples["t_ms"].min() - interval if samples["epoch"].iloc[0] else 0.0
    # A writer whose log ends before that of another has been silent since.
    times = (np.append(own.to_numpy(), last) - origin for _, own in samples.groupby(_JOB)["t_ms"])
    spans = [_silent(own, interval) for own in times]
    shared = spans[0]
    for own in spans[1:]:
        shared = _both_silent(shared, own)
    shared = shared if len(shared) else np.zeros((1, 2))
    return pd.DataFrame(shared / 1000, columns=["from_s", "to_s"]).assign(resolution_s=max(interval, 1.0) / 1000)


def _silent(times: np.ndarray, interval: float) -> np.ndarray:
    """Begin and end of each silence of one writer, in ms; shape (k, 2)."""
    times = np.unique(times)  # directions of one writer share its clock
    begin, end = times[:-1], times[1:] - interval
    long = np.diff(times) >= (1.5 * interval if interval else 1.0)
    return np.column_stack([begin[long], end[long]])


def _both_silent(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two lists of spans overlap."""
    begin, end = np.maximum(a[:, None, 0], b[None, :, 0]), np.minimum(a[:, None, 1], b[None, :, 1])
    overlap = end > begin
    return np.column_stack([begin[overlap], end[overlap]])


# --- logs of single I/Os: counted per second in the rollup, not averaged by fio
# ----------------------------------------


_WITNESSES = ("lat", "clat", "iops", "bw", "slat")
"""Logs that tell of every I/O, the best first; of a job one is enough."""


def holds_single_ios(folder: Path, files: Sequence[Path]) -> bool:
    """Whether these logs of a folder, or rollups that VMs made of theirs, tell of single I/Os.

    Raises FioLogError where others are averages.
    """
    kinds = {_averaged(path) for path in filter(name_of, files)}
    rolled = (table for p in files if pushed_host(p) for table in read_pushed(p).tables)
    kinds |= {False for table in rolled if table.log != "clat_hist"}
    if kinds >= {True, False}:
        raise FioLogError(
            f"{folder}: some logs hold single I/Os and some averages; use one log_avg_msec, or keep them apart"
        )
    return False in kinds


def _averaged(path: Path) -> bool | None:
    """What the first lines say; None of an empty log, and of one that reading will refuse."""
    with contextlib.suppress(LineError, FioLogError):
        for block in line_blocks(path):
            if shape := shape_in(block, group_of(path)[2]):
                return shape.averaged
    return None


def series_of_single_ios(files: Sequence[Path]) -> pd.DataFrame:
    """As `series_from_logs`; with log_unix_epoch the first second, which is not whole, is left out too."""
    logs = [path for path in files if NAME.fullmatch(path.name) or pushed_host(path)]
    rollup = rollup_of_logs(logs, _WITNESSES)
    latency = next((log for log in ("lat", "clat") if (rollup["log"] == log).any()), None)
    first = int(rollup.attrs["epoch_s"] is not None)
    whole = rollup[rollup["t_s"].between(first, rollup["t_s"].max() - 1)]
    rank = whole["log"].map({log: place for place, log in enumerate(_WITNESSES)}).astype(np.int64)
    best = rank.groupby([whole["host"], whole["job"]]).transform("min")
    counts = _per_second(whole[rank == best])  # several logs of a job tell of the same I/Os
    latencies = _per_second(whole[whole["log"] == latency])
    table = counts.join((latencies["sum"] / latencies["count"].where(latencies["count"] > 0)).rename("lat_ns"))
    table = table.assign(
        stalled=table["count"] == 0, iops=table["count"].astype(float), bw_bytes=table["bytes"].astype(float)
    )
    table = table.reset_index().astype({"host": object, "job": object, "ddir": object})
    series = table.assign(lat_ns=table["lat_ns"].astype(float))[[*_SERIES]]
    series.attrs = {"latency": latency, "epoch_s": rollup.attrs["epoch_s"]}
    return series


def _per_second(rollup: pd.DataFrame) -> pd.DataFrame:
    return rollup.groupby(["host", "job", "ddir", "t_s"])[["count", "bytes", "sum"]].sum()
