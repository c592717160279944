"""fio's JSON output as the `hosts` table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from hcilib.read.compressed import read_bytes
from hcilib.read.fio.fio_bins import read_fio_bins
from hcilib.read.fio.fio_document import FioOutputError
from hcilib.read.fio.fio_pack import HOST_KEYS, LATENCIES, Packed, Packer, Texts, add_bytes

__all__ = ["HOST_KEYS", "FioOutputError", "frame", "read_fio", "read_fio_bins"]

WITH_DECIMALS = {"iops", "usr_cpu", "sys_cpu", *(f"{name}_{s}" for name in LATENCIES for s in ("mean", "stddev"))}
"""Every other number is a count."""


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
        Counts are int64 where every row has one, all other numbers float64.
        `.attrs`: noise (text around the JSON), fio_version, disk_util (list of dicts).

    Raises
    ------
    FioOutputError
        The file holds no complete fio document.

    Examples
    --------
    >>> hci.read_fio("tests/data/fio/healthy.json")["hostname"].nunique()
    4
    """
    try:
        raw = read_bytes(path)
    except ValueError as error:
        raise FioOutputError(str(error)) from None
    packer = Packer()
    file = add_bytes(packer, raw, path)
    table = frame(packer.packed())
    table.attrs |= {"noise": file.noise, "fio_version": file.version, "disk_util": file.disk_util}
    return table


def frame(packed: Packed, *, categories: bool = False) -> pd.DataFrame:
    """The columns of a packed table as a DataFrame; texts as categories where there are many rows of few texts."""
    texts = {name: c for name, c in packed.columns.items() if isinstance(c, Texts)}
    made = (_categories if categories else _texts)(texts) | _counted(packed)
    return pd.DataFrame({name: made[name] for name in packed.columns}, copy=False)


def _counted(packed: Packed) -> dict[str, np.ndarray]:
    """The numbers, as integers where these say the same: every value is there and whole, and float64 has not rounded it."""
    numbers = {name: column for name, column in packed.columns.items() if not isinstance(column, Texts)}
    is_count = {name: name not in WITH_DECIMALS and is_whole(column) for name, column in numbers.items()}
    return {name: column.astype(np.int64) if is_count[name] else column.copy() for name, column in numbers.items()}


def is_whole(numbers: np.ndarray) -> bool:
    """Whether integers say the same: no number is missing, has decimals or is so large that float64 has rounded it."""
    return bool(((np.abs(numbers) <= 2**53) & (np.trunc(numbers) == numbers)).all())


def _texts(columns: dict[str, Texts]) -> dict[str, pd.api.extensions.ExtensionArray]:
    """All columns' texts become one array of pandas, of which each column takes its own."""
    every = pd.Series([text for column in columns.values() for text in column.texts], dtype="str").array
    taken, first = {}, 0
    for name, column in columns.items():
        codes = np.where(column.codes < 0, -1, column.codes + first)
        taken[name] = every.take(codes, allow_fill=True)
        first += len(column.texts)
    return taken


def _categories(columns: dict[str, Texts]) -> dict[str, pd.Categorical]:
    return {n: pd.Categorical.from_codes(c.codes, pd.Index(c.texts, dtype="str")) for n, c in columns.items()}
