"""The `series` of hosts whose logs hold single I/Os: counted per second in the rollup, not averaged by fio."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from hcilib.read.logs.log_blocks import FioLogError, line_blocks
from hcilib.read.logs.rollup import read_rollup
from hcilib.read.logs.rollup_count import group_of
from hcilib.read.logs.rollup_pushed import pushed_host, read_pushed
from hcilib.read.logs.rollup_script import HEAD, NAME, LineError, shape_of

_WITNESSES = ("lat", "clat", "iops", "bw", "slat")
"""Logs that tell of every I/O, the best first; of a job one is enough."""
SERIES = ["host", "job", "ddir", "t_s", "iops", "bw_bytes", "lat_ns", "stalled"]


def holds_single_ios(folder: Path) -> bool:
    """Whether logs in the folder, or rollups that VMs made of theirs, tell of single I/Os.

    Raises FioLogError where others are averages.
    """
    if not folder.is_dir():
        return False
    kinds = {_averaged(p) for p in folder.iterdir() if (n := NAME.fullmatch(p.name)) and n["log"] != "clat_hist"}
    rolled = [read_pushed(p) for p in folder.iterdir() if pushed_host(p)]
    kinds |= {False for document in rolled for table in document.tables if table.log != "clat_hist"}
    if kinds >= {True, False}:
        raise FioLogError(
            f"{folder}: some logs hold single I/Os and some averages; use one log_avg_msec, or keep them apart"
        )
    return False in kinds


def _averaged(path: Path) -> bool | None:
    """What the first lines say; None of an empty log, and of one that reading will refuse."""
    try:
        for block in line_blocks(path):
            if (head := bytes(block[:HEAD])).strip():
                return shape_of(head[: head.rfind(b"\n") + 1], group_of(path)[2]).averaged
    except (LineError, FioLogError):
        pass
    return None


def series_of_single_ios(folder: Path) -> pd.DataFrame:
    """As `hcilib.read.logs.fio_log.series_from_logs`; with log_unix_epoch the first second, which is not whole, is left out too."""
    rollup = read_rollup(folder, _WITNESSES)
    latency = next((log for log in ("lat", "clat") if (rollup["log"] == log).any()), None)
    first = int(rollup.attrs["epoch_s"] is not None)
    whole = rollup[rollup["t_s"].between(first, rollup["t_s"].max() - 1)]
    counts = _per_second(_of_best_log(whole))
    latencies = _per_second(whole[whole["log"] == latency])
    table = counts.join((latencies["sum"] / latencies["count"].where(latencies["count"] > 0)).rename("lat_ns"))
    table = table.assign(
        stalled=table["count"] == 0, iops=table["count"].astype(float), bw_bytes=table["bytes"].astype(float)
    )
    table = table.reset_index().astype({"host": object, "job": object, "ddir": object})
    series = table.assign(lat_ns=table["lat_ns"].astype(float))[SERIES]
    series.attrs = {"latency": latency, "epoch_s": rollup.attrs["epoch_s"]}
    return series


def _of_best_log(rollup: pd.DataFrame) -> pd.DataFrame:
    """Of each host's job the rows of one log: a folder usually holds several that tell of the same I/Os."""
    rank = rollup["log"].map({log: place for place, log in enumerate(_WITNESSES)}).astype(np.int64)
    return rollup[rank == rank.groupby([rollup["host"], rollup["job"]], observed=True).transform("min")]


def _per_second(rollup: pd.DataFrame) -> pd.DataFrame:
    return rollup.groupby(["host", "job", "ddir", "t_s"], observed=True)[["count", "bytes", "sum"]].sum()
