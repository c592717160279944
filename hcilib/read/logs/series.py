"""Read fio's logs as rates per second, and as gaps without I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from hcilib.read.logs.rollup import (
    DIRECTIONS,
    EPOCH_MS,
    KIB,
    NAME,
    RATES,
    FioLogError,
    Log,
    count,
    layout_of,
    log_of,
    parsed,
    require_one_clock,
)

USUAL_MS = (10, 20, 25, 40, 50, 100, 125, 200, 250, 500, *range(1000, 60_001, 1000))
"""Intervals that log_avg_msec usually has."""
LATENCIES = ("lat", "clat")
_JOB = ["host", "job", "writer"]
_COLUMNS = ["host", "job", "ddir", "t_s", "iops", "bw_bytes", "lat_ns", "stalled"]
T = TypeVar("T")


class Series(NamedTuple):
    """A table, the second since 1970 of its t_s 0 (None: unknown), and why logs are not in it."""

    table: pd.DataFrame
    epoch_s: float | None
    left_out: list[str]


def series(files: Sequence[Path], every_ms: float | None = None) -> Series:
    """Return the logs of one run per host and second.

    Jobs of a host are added up on aligned seconds, latency weighted by I/Os. A second of the run
    without a sample is one without I/O: fio leaves it out. The last interval, which is not whole
    and which fio does not log, is left out. Where an interval is longer than a second, a row has
    the fewest seconds that hold one. Logs of single I/Os are counted. If one log of a kind cannot
    be read, that kind is left out.

    Parameters
    ----------
    every_ms : log_avg_msec; by default the usual distance of samples

    Returns
    -------
    Series
        Its table: host, job (the logs' prefix), ddir, t_s (seconds since the run began: across
        hosts with log_unix_epoch, else since each job's own start), iops, bw_bytes (bytes/s),
        lat_ns, stalled (no I/O). NaN where there is no log of that kind.

    Raises
    ------
    FioLogError : some logs are averages and some not, or their times are no run's
    """
    logs = [log_of(file) for file in sorted(files) if NAME.fullmatch(file.name)]
    order = (*RATES, *LATENCIES, "slat")
    named = {kind: [log for log in logs if log.kind == kind] for kind in order}
    left_out: list[str] = []
    layouts = _each(named, lambda logs: list(filter(None, map(layout_of, logs))), left_out)
    kinds = {kind: named[kind] for kind, found in layouts.items() if found}
    averaged = {one.averaged for found in layouts.values() for one in found}
    if len(averaged) > 1:
        why = "some logs hold single I/Os and some averages; use one log_avg_msec"
        raise FioLogError(f"{logs[0].path.parent}: {why}")
    if left_out and not kinds:
        raise FioLogError(left_out[0])
    table, epoch_s = pd.DataFrame(columns=_COLUMNS), None
    if averaged:
        read = _of_averages if True in averaged else _of_single_ios
        table, epoch_s = read(kinds, left_out, every_ms)
    return Series(table[_COLUMNS], epoch_s, left_out)


def _each(
    kinds: dict[str, list[Log]],
    read: Callable[[list[Log]], T],
    left_out: list[str],
) -> dict[str, T]:
    """Read the logs of each kind; none of a kind of which one cannot be read."""
    results = {}
    for kind, logs in kinds.items():
        try:
            results[kind] = read(logs)
        except FioLogError as error:
            left_out.append(str(error))
    return results


# --- averages


def _samples(logs: Sequence[Log]) -> pd.DataFrame:
    """Return host, job, writer, kind, ddir, t_ms and value.

    Jobs that share a file (per_job_logs=0) write one after the other: time starts again with each.
    """
    parts = [pd.DataFrame({"t_ms": [], "ddir": []})]
    for log in logs:
        tables = [table.select(["t_ms", "value", "ddir"]) for _, table in parsed(log)]
        if tables:
            own = pa.concat_tables(tables).to_pandas()
            writer = log.number + (own["t_ms"].diff() < 0).cumsum() / 1e6
            parts.append(own.assign(host=log.host, job=log.job, kind=log.kind, writer=writer))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def _distances(samples: pd.DataFrame) -> pd.Series:
    return samples.groupby([*_JOB, "kind", "ddir"])["t_ms"].diff()


def _interval_ms(samples: pd.DataFrame, place: Path) -> int:
    """Return the interval of averages: short distances show it, long ones are stalls."""
    distances = _distances(samples).dropna()
    if distances.empty:
        distances = samples["t_ms"].where(samples["t_ms"] < EPOCH_MS, 1000)
    distance = distances.quantile(0.1)
    if distance <= 0:
        why = "has several averages of one time; log each job apart (per_job_logs=1)"
        raise FioLogError(f"{place}: {why}")
    usual = min(USUAL_MS, key=lambda one: abs(np.log(distance / one)))
    near = abs(distance / usual - 1) <= (0.15 if usual <= 1000 else 0.02)
    interval = usual if near else round(distance)
    steady = (distances - interval).abs() <= max(0.15 * interval, 3)
    if not (steady.mean() > 0.5 and interval <= USUAL_MS[-1]):
        why = f"{distance:g} ms apart are too few samples; log with log_avg_msec=1000"
        raise FioLogError(f"{place}: {why}")
    return interval


def _of_averages(
    kinds: dict[str, list[Log]], left_out: list[str], every_ms: float | None
) -> tuple[pd.DataFrame, float | None]:
    read = _each(kinds, _samples, left_out)
    if not read:
        raise FioLogError(left_out[0])
    samples = pd.concat(read.values(), ignore_index=True)
    place = kinds[next(iter(kinds))][0].path.parent
    require_one_clock(samples["t_ms"].min() / 1000, samples["t_ms"].max() / 1000, place)
    interval = int(every_ms or _interval_ms(samples, place))
    placed, epoch_s = _placed(samples, interval)
    rates = [kind for kind in read if kind in RATES] or list(read)
    return _hosts(_steps(_jobs(placed, rates, interval), placed), interval), epoch_s


def _placed(samples: pd.DataFrame, interval: int) -> tuple[pd.DataFrame, float | None]:
    """Give each sample its step within its job, the second in which its job began, and the
    seconds that it stands for.

    Steps are counted from the job's own first sample, which takes fio's jitter out. fio divides a
    rate by the time since it last looked. It looks on in rhythm while a device stalls, so the
    sample after a gap stands for one interval.
    """
    epoch = samples["t_ms"].iloc[0] > EPOCH_MS
    first = samples.groupby(_JOB)["t_ms"].transform("min") if epoch else interval
    origin = samples["t_ms"].min() if epoch else interval
    step = ((samples["t_ms"] - first) / interval).round().astype("int64")
    begin = pd.Series(np.round((first - origin) / 1000), samples.index).astype("int64")
    distance = _distances(samples).fillna(interval if epoch else samples["t_ms"]) / interval
    window_ms = interval * distance.where(distance < 1.5, 1.0)
    placed = samples.assign(step=step, begin_s=begin, window_ms=window_ms)
    return placed, float(origin - interval) / 1000 if epoch else None


def _jobs(placed: pd.DataFrame, rates: Sequence[str], interval: int) -> pd.DataFrame:
    """Return what each job should have logged in each direction: steps from 0 to `last`, of which
    those from begin_ms to end_ms count."""
    by = placed[placed["kind"].isin(rates)].groupby([*_JOB, "ddir"], as_index=False)
    jobs = by.agg(begin_s=("begin_s", "first"), first=("step", "min"), own=("step", "max"))
    by_ddir, first, last = jobs.groupby("ddir"), jobs["first"].min(), jobs["own"].max()
    # A direction that starts or ends one step beside the others was logged at other moments.
    begin, end = by_ddir["first"].transform("min"), by_ddir["own"].transform("max")
    begin = begin.where(begin == first + 1, 0)
    jobs["step"] = end.where(end == last - 1, last)
    # A log may end a moment before its last step. It does where its latencies go on.
    latencies = placed[~placed["kind"].isin(RATES)].drop_duplicates([*_JOB, "ddir", "step"])
    ended = jobs[jobs["own"] < jobs["step"]]
    ended = ended if latencies.empty else ended.merge(latencies[[*_JOB, "ddir", "step"]])
    return jobs.assign(
        last=last,
        begin_ms=begin * interval,
        end_ms=(jobs["step"] + 1 - jobs["ddir"].isin(ended["ddir"])) * interval,
        end_s=(jobs["begin_s"] + jobs["own"] * interval // 1000).max(),
    ).drop(columns="step")


def _steps(jobs: pd.DataFrame, placed: pd.DataFrame) -> pd.DataFrame:
    """Return I/Os, bytes and mean latency of each step."""
    keys = [*_JOB, "ddir", "step"]
    amounts = placed["value"] * placed["window_ms"] / 1000
    amounts = amounts.where(placed["kind"].isin(RATES), placed["value"])
    by = placed.assign(amount=amounts).groupby([*keys, "kind"])["amount"]
    sums, means = by.sum().unstack(), by.mean().unstack()
    latency = next((kind for kind in LATENCIES if kind in means), "")
    found = {"iops": sums.get("iops"), "bw_bytes": sums.get("bw"), "lat_ns": means.get(latency)}
    grid = jobs.merge(pd.DataFrame({"step": np.arange(jobs["last"].max() + 1)}), how="cross")
    table = pd.DataFrame(found, sums.index).astype(float)
    steps = grid.merge(table, how="left", left_on=keys, right_index=True)
    rates = [name for name in ("iops", "bw_bytes") if steps[name].notna().any()]
    return steps.fillna(dict.fromkeys(rates, 0.0))


def _hosts(steps: pd.DataFrame, interval: int) -> pd.DataFrame:
    """Add up the jobs of a host in each row. A step across two rows is shared out by time."""
    row_s = -(-interval // 1000)
    row_ms, at_ms = 1000 * row_s, steps["step"] * interval
    over = (at_ms % row_ms + interval - row_ms).clip(lower=0) / interval
    row = at_ms // row_ms
    crossing = steps.assign(row=row + 1, share=over)[over > 0]
    parts = pd.concat([steps.assign(row=row, share=1 - over), crossing])
    parts["t_s"] = parts["begin_s"] + parts["row"] * row_s
    parts = parts[
        (parts["row"] * row_ms >= parts["begin_ms"])
        & ((parts["row"] + 1) * row_ms <= parts["end_ms"])
        & (parts["t_s"] <= parts["end_s"])
    ].copy()
    alone = parts.groupby(["host", "job"])["writer"].transform("nunique") == 1
    weight = parts["iops"].where(parts["iops"].notna() | ~alone, 1.0) * parts["share"]
    weight = weight.where(parts["lat_ns"].notna())
    parts["iops"] *= parts["share"] / row_s
    parts["bw_bytes"] *= parts["share"] / row_s * KIB
    parts = parts.assign(weight=weight, weighted=weight * parts["lat_ns"])
    by = parts.groupby(["host", "job", "ddir", "t_s"])
    table = by[["iops", "bw_bytes", "lat_ns", "weight", "weighted"]].sum(min_count=1)
    seen = [name for name in ("iops", "bw_bytes") if table[name].notna().any()] or ["lat_ns"]
    table["stalled"] = ~(table[seen] > 0).any(axis=1)
    table["lat_ns"] = table["weighted"] / table["weight"].where(table["weight"] > 0)
    table = table.reset_index()
    return table.assign(ddir=np.array(DIRECTIONS)[table["ddir"]])


# --- single I/Os


def _of_single_ios(kinds: dict[str, list[Log]], *_: object) -> tuple[pd.DataFrame, float | None]:
    """Count I/Os, of each job in one log. The last second, and with dates the first, is not whole
    and is left out."""
    worst_first = ("slat", "bw", "iops", *LATENCIES[::-1])
    ranked = [log for kind in worst_first for log in kinds.get(kind, [])]
    best = {(log.host, log.job): log.kind for log in ranked}
    rollup = count([log for log in ranked if best[log.host, log.job] == log.kind])
    epoch_s = rollup.attrs["epoch_s"]
    rollup = rollup[rollup["t_s"].between(int(epoch_s is not None), rollup["t_s"].max() - 1)]
    by = rollup.groupby(["host", "job", "log", "ddir", "t_s"], observed=True)
    table = by[["count", "bytes", "sum"]].sum().reset_index()
    timed = table["count"].where(table["log"].isin(LATENCIES) & (table["count"] > 0))
    types = dict.fromkeys(_COLUMNS[:3], "str") | {"count": float, "bytes": float}
    table = table.astype(types)
    table = table.rename(columns={"count": "iops", "bytes": "bw_bytes"})
    return table.assign(lat_ns=table["sum"] / timed, stalled=table["iops"] == 0), epoch_s


# --- gaps


def io_gaps(files: Sequence[Path], every_ms: float | None = None) -> pd.DataFrame:
    """Return when no writer did I/O, from one completion to the next.

    Averages leave out intervals without a completion. So between two samples further apart than
    an interval nothing completed, from the first to the beginning of the second's interval. The
    true gap is up to two intervals longer. Of single I/Os it is exact.

    Returns
    -------
    DataFrame
        from_s, to_s (as t_s of `series`), resolution_s (of the logs; NaN: no log). One row of
        length 0 where there is no gap.
    """
    logs = [log_of(file) for file in sorted(files) if NAME.fullmatch(file.name)]
    read = (_samples([log for log in logs if log.kind == kind]) for kind in (*RATES, "clat", "lat"))
    samples = next((own for own in read if len(own)), pd.DataFrame())
    if samples.empty:
        return pd.DataFrame({"from_s": [0.0], "to_s": [0.0], "resolution_s": [np.nan]})
    layout = next(filter(None, map(layout_of, logs)))
    every = (every_ms or _interval_ms(samples, logs[0].path.parent)) if layout.averaged else 0.0
    last = samples["t_ms"].max()
    samples = samples[(samples["kind"] != "iops") | (samples["value"] != 0)]
    origin = samples["t_ms"].min() - every if last > EPOCH_MS else 0.0
    # Directions of a writer share its clock. One whose log ends early has been silent since.
    jobs = samples[_JOB].drop_duplicates()
    times = pd.concat([samples[[*_JOB, "t_ms"]], jobs.assign(t_ms=last)]).drop_duplicates()
    times = times.sort_values([*_JOB, "t_ms"])
    times["t_ms"] -= origin
    begin, end = times.groupby(_JOB)["t_ms"].shift(), times["t_ms"] - every
    long = times["t_ms"] - begin >= max(1.5 * every, 1.0)
    edges = pd.concat([pd.Series(1, begin[long]), pd.Series(-1, end[long])])
    writers = edges.groupby(level=0).sum().cumsum()
    shared = writers == len(jobs)
    spans = {"from_s": writers.index[shared], "to_s": writers.index[shared.shift(fill_value=False)]}
    gaps = pd.DataFrame(spans if shared.any() else {"from_s": [0.0], "to_s": [0.0]}) / 1000
    return gaps.assign(resolution_s=max(every, 1.0) / 1000)
