"""fio's logs in folders of other tools' files, as one series a run."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from hcilib.model.places import Sources
from hcilib.read.foreign.look import gathered, is_ours, place_of, sources_of
from hcilib.read.logs.fio_log import name_of, series_from_logs
from hcilib.read.logs.rollup_cells import FioLogError


def log_series(path: Sources) -> pd.DataFrame:
    """Return fio's logs in the folders of a `path`, beside results or without any, per run and second.

    Logs of one folder and one prefix (``write_iops_log=PREFIX``) are one run. Of a glob or a list of files the logs in
    their folders count.

    Parameters
    ----------
    path : as in `read_results`

    Returns
    -------
    DataFrame : run (folder and prefix of the logs), host, job, ddir, t_s (s since the run's start), iops, bw_bytes
        (bytes/s), lat_ns, stalled (no I/O in that second). NaN where there is no log of that kind. No row without logs.
        `hcilib.mean_interval` gives its mean. ``.attrs["left_out"]``: pairs of a run and why its logs cannot be read.

    Raises
    ------
    ForeignError : there is no such file or folder

    Examples
    --------
    >>> series = hci.log_series("tests/data/foreign/bench-fio")
    >>> series["run"].unique()[0], len(series)
    ('elm-1/disk.img/4k/randread-iodepth-1-numjobs-2', 4)
    """
    parts, left_out = [], []
    for source in gathered(sources_of(path, None, None)):
        if not isinstance(source.path, list) and is_ours(source.path):
            continue
        place = place_of(source)
        for (folder, prefix), logs in _runs(place.files).items():
            run = Path(os.path.relpath(folder, place.root), prefix).as_posix()
            try:
                parts.append(series_from_logs(logs).assign(run=run))
            except FioLogError as error:
                left_out.append((run, str(error)))
    filled = [part for part in parts if len(part)]
    series = pd.concat(filled, ignore_index=True) if filled else series_from_logs([]).assign(run="")
    series.attrs = {"left_out": left_out}
    return series[["run", *series.columns.drop("run")]]


def _runs(files: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[Path]]:
    """Folder and prefix -> its logs."""
    runs = defaultdict(list)
    for folder in sorted({os.path.dirname(path) for path, _ in files}):
        for name in sorted(os.listdir(folder)):
            if found := name_of(name):
                runs[folder, found["job"]].append(Path(folder, name).resolve())
    return runs
