"""The ways to the same table of logs that bench/logs.py compares: each of them read by one library, in a process of its
own."""

from __future__ import annotations

import gzip
import hashlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from parts.fio_logs import JOBS
from parts.processes import peak_mb

PARSER = Path("/usr/share/doc/fio/fiologparser.py.gz")
"""fio's own reader, as Debian ships it."""
QUANTILES = (50.0, 99.0, 99.9)


def timed(work: Callable, rows: Callable | None = None) -> dict:
    started, cpu = time.perf_counter(), time.process_time()
    result = work()
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return {"seconds": seconds, "cpu_s": cpu_s, "memory_mb": peak_mb()} | (
        {"digest": digest(rows(result))} if rows else {}
    )


def hcilib(kernel: str):
    def measure(folder: Path) -> dict:
        from hcilib.read.run.run import read_rollup

        warm(kernel)
        return timed(lambda: read_rollup(folder, kernel=kernel), rollup_rows)

    return measure


def warm(kernel: str, saved: bool = False) -> None:
    """What is imported, and what numba compiled before, is loaded; with `saved` also what reads a rollup back."""
    from hcilib.read.run.run import read_rollup

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "P_clat.1.log").write_text("1, 2, 0, 4096, 0\n")
        rollup = read_rollup(folder, kernel=kernel)
        if saved:
            rollup.to_parquet(Path(folder) / "r.parquet")
            read_rollup(Path(folder) / "r.parquet")


def rollup_rows(table):
    import numpy as np

    held = table[table["count"] > 0]
    columns = [held["second"], held["ddir"].cat.codes, held["bucket"], held["count"], held["bytes"], held["sum"]]
    return np.column_stack([np.asarray(c, np.int64) for c in columns])


def buckets(value):
    import numpy as np

    index = (value.astype(np.float64).view(np.int64) >> 46) - 1028 * 64
    return np.where(value < 64, value, index)


class Dense:
    """What pandas and pyarrow fill: I/Os, bytes and sum of every second, direction and bucket, by np.bincount."""

    def __init__(self) -> None:
        import numpy as np

        self.cells = np.zeros((3, 0), np.int64)

    def add(self, t, value, ddir, bs) -> None:
        import numpy as np

        cell = (t // 1000 * 3 + ddir) * 1856 + buckets(value)
        own = [np.bincount(cell), np.bincount(cell, bs).astype(np.int64), np.bincount(cell, value).astype(np.int64)]
        if len(own[0]) > self.cells.shape[1]:
            grown = np.zeros((3, len(own[0])), np.int64)
            grown[:, : self.cells.shape[1]] = self.cells
            self.cells = grown
        self.cells[:, : len(own[0])] += own

    def rows(self):
        import numpy as np

        cell = np.flatnonzero(self.cells[0])
        return np.column_stack([cell // 1856 // 3, cell // 1856 % 3, cell % 1856, self.cells[:, cell].T])


def with_pandas(folder: Path) -> dict:
    import pandas as pd

    names = ["t", "value", "ddir", "bs"]

    def work() -> Dense:
        dense = Dense()
        for log in sorted(folder.glob("*.log")):
            table = pd.read_csv(
                log, header=None, names=[*names, "o"], usecols=names, skipinitialspace=True, dtype="int64"
            )
            dense.add(*(table[name].to_numpy() for name in names))
        return dense

    return timed(work, Dense.rows)


def with_pyarrow(folder: Path) -> dict:
    import pyarrow as pa
    from pyarrow import csv

    names = ["t", "value", "ddir", "bs"]
    read = csv.ReadOptions(column_names=[*names, "o"], block_size=1 << 23)
    convert = csv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.int64()))

    def work() -> Dense:
        dense = Dense()
        for log in sorted(folder.glob("*.log")):
            for batch in csv.open_csv(log, read_options=read, convert_options=convert):
                dense.add(*(batch[name].to_numpy() for name in names))
        return dense

    return timed(work, Dense.rows)


def with_duckdb(folder: Path) -> dict:
    import duckdb

    query = f"""
        SELECT t // 1000 AS second, ddir, CASE WHEN value < 128 THEN value ELSE
            (CAST(floor(log2(value)) AS BIGINT) - 6) * 64 + (value >> (CAST(floor(log2(value)) AS BIGINT) - 6)) END AS bucket,
            count(*) AS n, CAST(sum(bs) AS BIGINT) AS bytes, CAST(sum(value) AS BIGINT) AS total
        FROM read_csv('{folder}/*.log', header = false, auto_detect = false, delim = ', ',
            columns = {{'t': 'BIGINT', 'value': 'BIGINT', 'ddir': 'BIGINT', 'bs': 'BIGINT', 'o': 'BIGINT'}})
        GROUP BY ALL ORDER BY ALL"""  # noqa: E501
    duckdb.sql("SELECT 1").fetchall()

    def rows(table: dict):
        import numpy as np

        return np.column_stack([table[name] for name in ("second", "ddir", "bucket", "n", "bytes", "total")])

    return timed(lambda: duckdb.sql(query).fetchnumpy(), rows)


def with_polars(folder: Path) -> dict:
    import polars as pl

    names = ["t", "value", "ddir", "bs"]

    def work():
        logs = pl.scan_csv(
            folder / "*.log",
            has_header=False,
            new_columns=[*names, "o"],
            schema_overrides=dict.fromkeys([*names, "o"], pl.String),
        )
        numbers = logs.select(pl.col(name).str.strip_chars_start(" ").cast(pl.Int64) for name in names)
        shift = (57 - pl.col("value").bitwise_leading_zeros().cast(pl.Int64)).clip(0)
        bucket = (
            pl.when(shift > 0)
            .then(shift * 64 + pl.col("value") // pl.lit(2, pl.Int64).pow(shift))
            .otherwise(pl.col("value"))
        )
        keys = [(pl.col("t") // 1000).alias("second"), pl.col("ddir"), bucket.alias("bucket")]
        values = [pl.len().cast(pl.Int64).alias("n"), pl.col("bs").sum(), pl.col("value").sum()]
        return numbers.group_by(keys).agg(values).collect(engine="streaming").sort("second", "ddir", "bucket")

    return timed(work, lambda table: table.select(pl.all().cast(pl.Int64)).to_numpy())


def with_fio_plot(folder: Path) -> dict:
    from fio_plot.fiolib.getdata import get_log_data

    settings = {"input_directory": [str(folder)], "rw": "randrw", "iodepth": [1], "numjobs": [JOBS], "type": ["clat"],
                "xlabel_segment_size": 1000, "xlabel_parent": 1, "xlabel_depth": 0}  # fmt: skip
    return timed(lambda: get_log_data(settings))


def with_fiologparser(folder: Path) -> dict:
    """`fiologparser.py -a`, as a process; it reads four fields a line, so it is given the logs without their
    offsets."""
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch) / "fiologparser.py"
        script.write_bytes(gzip.decompress(PARSER.read_bytes()))
        for log in folder.glob("*.log"):
            short = (line.rpartition(", ")[0] + "\n" for line in log.read_text().splitlines())
            (Path(scratch) / log.name).write_text("".join(short))
        argv = [sys.executable, script, "-a", *sorted(Path(scratch).glob("*.log"))]
        outcome = timed(lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return outcome | {"cpu_s": used.ru_utime + used.ru_stime, "memory_mb": used.ru_maxrss / 1024}


def query(times: int, held: bool = False):
    """Percentiles of each direction, and of each second of it, from the saved rollup, or from one that is `held` in
    memory; how long the last of so many times took."""

    def measure(folder: Path) -> dict:
        from hcilib.analyse.runs.latency import percentiles
        from hcilib.read.run.run import read_rollup

        warm("python", saved=True)

        def read():
            return read_rollup(folder.parent / "rollup.parquet", columns=["t_s", "ddir", "bucket", "count", "averaged"])

        known = read() if held else None

        def work():
            rollup = read() if known is None else known
            return percentiles(rollup, by=["ddir"], q=QUANTILES), percentiles(rollup, by=["t_s", "ddir"], q=QUANTILES)

        return [timed(work) for _ in range(times)][-1]

    return measure


def save(folder: Path) -> dict:
    from hcilib.read.run.run import read_rollup

    warm("numba")
    return timed(lambda: read_rollup(folder, kernel="numba").to_parquet(folder.parent / "rollup.parquet"))


def digest(rows) -> str:
    """Of rows of six whole numbers, sorted."""
    import numpy as np

    return hashlib.sha256(np.ascontiguousarray(rows, dtype=np.int64).tobytes()).hexdigest()


WAYS = {
    "hcilib": hcilib("numba"),
    "hcilib, python": hcilib("python"),
    "pandas": with_pandas,
    "polars": with_polars,
    "duckdb": with_duckdb,
    "pyarrow": with_pyarrow,
    "fio-plot 1.1.21": with_fio_plot,
    ("fiologparser.py -a"): with_fiologparser,
    "query": query(1),
    "query again": query(3),
    "query held": query(3, held=True),
    "save": save,
}
