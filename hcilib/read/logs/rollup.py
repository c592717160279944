"""fio's logs as a rollup: I/Os, bytes and latency per second, direction and histogram bucket. What is added up stays exact.

Whatever is asked of latency over time is asked of this table: percentiles come last (`hcilib.percentiles`), and are never averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from hcilib.engine import located, mapped
from hcilib.read.logs.log_blocks import FioLogError
from hcilib.read.logs.rollup_count import Counted, count_logs, group_of
from hcilib.read.logs.rollup_pushed import pushed_host
from hcilib.read.logs.rollup_script import NAME

if TYPE_CHECKING:
    from hcilib.engine import Engine

FILES = 8  # a process of an engine counts at a time
SAVED = ".parquet"


def read_rollup(
    path: str | Path | Sequence[str | Path],
    log: str | Sequence[str] | None = None,
    engine: Engine = None,
    kernel: str | None = None,
    workers: int | None = None,
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """fio's logs, local or of a fleet, per second, direction and latency bucket.

    Parameters
    ----------
    path : a folder with logs, a log (plain, .zst, .gz), a saved rollup (.parquet), or several of them in any order; or a run
        directory, whose steps' columns then stand in front as in `read_series`
    log : only logs of these kinds: iops, bw, lat, clat, slat, clat_hist
    engine : where logs are read (hcilib.engine.mapped), by default in threads of this process
    kernel : "numba" (compiled; the extra `hcilib[fast]`) or "pyarrow"; by default what is there. They give the same table
    workers : threads; by default one a processor
    columns : only these of the table; of a saved rollup the others are not even read: for `percentiles` the columns of its `by`,
        and bucket, count, averaged

    Returns
    -------
    DataFrame
        host, job (the logs' prefix), log (its kind), averaged (bool), ddir, second (as logged: since the job's start, or
        since 1970), t_s (since the start of the run), bucket (of fio's 1856; -1 in a log of rates), lat_ns (its middle, as
        in `read_bins`), count (I/Os), bytes, sum (of the values: ns, bytes/s of `bw`, IOPS of `iops`), stalled.
        One row per second, direction and bucket, and one with count 0 and `stalled` per second in which a job of the run
        logged nothing in a direction (its last, incomplete second aside). `add_rollups` adds such tables.
        `averaged` rows come of log_avg_msec: count counts samples, and `percentiles` refuses them, for percentiles of
        averages are not percentiles. The bytes of clat_hist are those of the one block size it names; its sum is of
        middles, within 1/128. fio does not log the histogram of the last interval: totals come from JSON.
        `.attrs`: epoch_s (of t_s 0; None where hosts are aligned by their own starts: no log_unix_epoch, or clocks that
        have nothing in common), torn (files whose last line has no end: it is not counted), every_ms. Of a run directory:
        epoch_s where its steps share it, else None; torn of all; the largest every_ms.

    Raises
    ------
    FioLogError
        A line is not one of fio's (file and line are named), a file is no log or is cut off, or there is none.
    """
    wanted = None if log is None else {log} if isinstance(log, str) else set(log)
    paths = [located(p) for p in ([path] if isinstance(path, (str, Path)) else path)]
    if any((p / "plan.json").exists() for p in paths):
        return _of_steps(path, wanted, partial(read_rollup, engine=engine, kernel=kernel, workers=workers), columns)
    if [p.suffix for p in paths] == [SAVED]:  # nothing is to be added or aligned
        return _chosen(_saved(paths[0], None if wanted else columns), wanted, columns)
    saved = [_saved(p) for p in paths if p.suffix == SAVED]
    logs, documents = _found(p for p in paths if p.suffix != SAVED)
    if not (saved or logs or documents):
        raise FioLogError(f"{', '.join(map(str, paths))}: no fio logs (PREFIX_clat.1.log and the like) there")
    counted = Counted()
    try:
        rolled = counted.add_documents(documents)
        of_logs = [p for p in logs if p.name not in rolled and _is_wanted(p, wanted)]
        for part in _counted(of_logs, engine, kernel, workers):
            counted.add(part)
        for table in saved:
            counted.add_table(table)
        return _chosen(counted.table(wanted), None, columns)
    except MemoryError:
        raise FioLogError(
            f"{', '.join(map(str, paths))}: the seconds and latencies of these logs do not fit in memory; do their times make sense? "
            "If so, read fewer logs at once"
        ) from None


def _chosen(table: pd.DataFrame, wanted: set[str] | None, columns: Sequence[str] | None) -> pd.DataFrame:
    if wanted is not None:
        table = table[table["log"].isin(wanted)].reset_index(drop=True)
    return table if columns is None else table[list(columns)]


def _of_steps(
    path, wanted: set[str] | None, read: Callable[..., pd.DataFrame], columns: Sequence[str] | None
) -> pd.DataFrame:
    """The rollups of every step of run directories, with the VMs' names; those, and the steps' columns, are always there."""
    from hcilib.read.run.run import _each, _named
    from hcilib.read.run.steps import keys_of

    said: list[dict] = []

    def of(step: dict) -> pd.DataFrame:
        logs = step["folder"] / "logs"
        if not any(logs.glob("*")):
            return pd.DataFrame()
        in_front = {"run_id", "vm", "events", *keys_of(step)}  # no step without events has that one
        own = None if columns is None else [c for c in columns if c not in in_front]
        table = read(logs, wanted, columns=own if own is None else list(dict.fromkeys(["host", *own])))
        said.append(table.attrs)
        table = _named(step, table)  # by their addresses
        return table if own is None else table[["vm", *own]]

    together = _each(path, of)
    starts = {one["epoch_s"] for one in said}
    together.attrs = {
        "epoch_s": starts.pop() if len(starts) == 1 else None,
        "torn": sorted(file for one in said for file in one["torn"]),
        "every_ms": max((one["every_ms"] for one in said), default=0),
    }
    return together


def add_rollups(rollups: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """One rollup of several: rows of one host, job, log, second, direction and bucket are added, then aligned anew."""
    counted = Counted()
    for table in rollups:
        counted.add_table(table)
    return counted.table()


def _is_wanted(path: Path, wanted: set[str] | None) -> bool:
    return wanted is None or group_of(path)[2] in wanted


def _found(paths: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """The logs, and the documents that VMs made of theirs, of files and folders; a file that is neither is refused."""
    files = []
    for path in paths:
        if path.is_dir():
            files += [p for p in sorted(path.iterdir()) if NAME.fullmatch(p.name) or pushed_host(p)]
        elif pushed_host(path) or group_of(path):  # which refuses any other name
            files.append(path)
    files = list(dict.fromkeys(files))
    return [p for p in files if not pushed_host(p)], [p for p in files if pushed_host(p)]


def _saved(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    try:
        return pd.read_parquet(path, columns=None if columns is None else list(columns))
    except (OSError, ValueError) as error:
        raise FioLogError(f"{path}: not a saved rollup: {error}") from None


def _counted(paths: Sequence[Path], engine: Engine, kernel: str | None, workers: int | None) -> Iterator[Counted]:
    """The logs counted: here by threads, or by the processes of an engine, a few files each."""
    if engine is None:
        yield count_logs(paths, kernel, workers)
        return
    paths = sorted((path.absolute() for path in paths), key=group_of)  # a cluster's workers stand elsewhere
    chunks = [paths[i : i + FILES] for i in range(0, len(paths), FILES)]
    yield from mapped(partial(count_logs, kernel=kernel, workers=1), chunks, engine)
