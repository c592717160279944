"""fio's logs as a rollup, wherever they lie: in a folder, or in the steps of run directories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from hcilib.engine import located
from hcilib.read.logs.rollup import rollup_of_logs
from hcilib.read.run.run import _each, _named
from hcilib.read.run.steps import keys_of

if TYPE_CHECKING:
    from hcilib.engine import Engine


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
    path : a folder with logs, a log (plain, .zst, .gz), a saved rollup (.parquet), or several of them in any order; or
        a run directory, whose steps' columns then stand in front as in `read_series`
    log : only logs of these kinds: iops, bw, lat, clat, slat, clat_hist
    engine : where logs are read (hcilib.engine.mapped), by default in threads of this process
    kernel : "numba" (compiled; the extra `hcilib[fast]`) or "pyarrow"; by default what is there. They give the same
        table
    workers : threads; by default one a processor
    columns : only these of the table; of a saved rollup the others are not even read: for `percentiles` the columns of
        its `by`, and bucket, count, averaged

    Returns
    -------
    DataFrame
        host, job (the logs' prefix), log (its kind), averaged (bool), ddir, second (as logged: since the job's start,
        or since 1970), t_s (since the start of the run), bucket (of fio's 1856; -1 in a log of rates), lat_ns (its
        middle, as in `read_bins`), count (I/Os), bytes, sum (of the values: ns, bytes/s of `bw`, IOPS of `iops`),
        stalled. One row per second, direction and bucket, and one with count 0 and `stalled` per second in which a job
        of the run logged nothing in a direction (its last, incomplete second aside). `add_rollups` adds such tables.
        `averaged` rows come of log_avg_msec: count counts samples, and `percentiles` refuses them, for percentiles of
        averages are not percentiles. The bytes of clat_hist are those of the one block size it names; its sum is of
        middles, within 1/128. fio does not log the histogram of the last interval: totals come from JSON.
        `.attrs`: epoch_s (of t_s 0; None where hosts are aligned by their own starts: no log_unix_epoch, or clocks that
        have nothing in common), torn (files whose last line has no end: it is not counted), every_ms. Of a run
        directory: epoch_s where its steps share it, else None; torn of all; the largest every_ms.

    Raises
    ------
    FioLogError
        A line is not one of fio's (file and line are named), a file is no log or is cut off, or there is none.
    """
    read = partial(rollup_of_logs, log=log, engine=engine, kernel=kernel, workers=workers)
    paths = [path] if isinstance(path, (str, Path)) else path
    if any((located(p) / "plan.json").exists() for p in paths):
        return _of_steps(path, read, columns)
    return read(path, columns=columns)


def _of_steps(
    path: str | Path | Sequence[str | Path], read: Callable[..., pd.DataFrame], columns: Sequence[str] | None
) -> pd.DataFrame:
    """The rollups of every step of run directories, with the VMs' names; those, and the steps' columns, are always
    there."""
    said: list[dict] = []

    def of(step: dict) -> pd.DataFrame:
        logs = step["folder"] / "logs"
        if not any(logs.glob("*")):
            return pd.DataFrame()
        in_front = {"run_id", "vm", "events", *keys_of(step)}  # no step without events has that one
        own = None if columns is None else [c for c in columns if c not in in_front]
        table = read(logs, columns=own if own is None else list(dict.fromkeys(["host", *own])))
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
