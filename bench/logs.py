"""fio's logs of single I/Os to a rollup: hcilib beside pandas, polars, duckdb and pyarrow, fio-plot and fio's own fiologparser.py.

    .venv/bin/python bench/logs.py               about seven minutes and 3 GB of temporary disk; let the machine do nothing else
    .venv/bin/python bench/logs.py --quick       under a minute, one round over 5 M lines, without fio-plot and fiologparser.py
    .venv/bin/python bench/logs.py --save        also writes data/samples/bench_logs.csv

A real run of fio (60 jobs, 20 s, every I/O logged) is read as it is and tiled in time to 100 M lines. First the gate, on the real
logs: every way's I/Os, bytes and latencies of each second, direction and bucket must be those of plain Python, and hcilib's
percentiles within 1/128 of the exact ones; with one difference nothing is timed. In the tiled logs all must agree again. Then fresh
processes, the ways in turn; medians; imports, and numba's loading of what it compiled before, are not counted. `ratio` is how
many times longer a way takes than hcilib. `memory_mb` is a process's peak. polars and fio-plot are run by `uv run --with`.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAVED = ROOT / "data" / "samples" / "bench_logs.csv"
COLUMNS = ("task", "way", "lines", "mb", "seconds", "lines_per_s", "cpu_s", "ratio", "cpu_ratio", "memory_mb", "note")
JOBS, RUNTIME_S, LINES, ROUNDS = 60, 20, 100_000_000, 3
QUICK_RUNTIME_S, QUICK_LINES, QUICK_ROUNDS = 4, 5_000_000, 1
LIMIT_BYTES, QUERIES, BUDGET_S = 512 * 2**20, 5, 180
"""Of memory; queries; seconds from the start after which no further round begins."""
QUANTILES = (50.0, 99.0, 99.9)
STARTED_S = time.monotonic()
PARSER = Path("/usr/share/doc/fio/fiologparser.py.gz")
"""fio's own reader, as Debian ships it."""
WITH = {"polars": "polars==2.1.0", "fio-plot 1.1.21": "fio-plot==1.1.21"}
JOB = """[randrw-iodepth-1-numjobs-60]
ioengine=psync
filename=disk
size=16m
rw=randrw
rwmixread=70
bs=4k
time_based=1
runtime={runtime_s}
numjobs={jobs}
thread=1
rate_iops=1100,480
rate_process=poisson
write_lat_log=randrw-iodepth-1-numjobs-60
"""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--quick", action="store_true")
    asked.add_argument("--save", action="store_true")
    asked.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.one:
        print(json.dumps(ONE[given.one[0]](Path(given.one[1]))))
        return
    import pandas as pd

    table = pd.DataFrame(measured(given.quick), columns=list(COLUMNS))
    print(table.to_string(index=False, na_rep="", float_format="{:.4g}".format))
    if given.save:
        table.to_csv(SAVED, index=False, float_format="%.4g")


def measured(quick: bool) -> list[dict]:
    runtime_s, lines, rounds = (QUICK_RUNTIME_S, QUICK_LINES, QUICK_ROUNDS) if quick else (RUNTIME_S, LINES, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="logs-") as scratch:
        real, tiled = Path(scratch) / "real", Path(scratch) / "tiled"
        size = log_run(real, runtime_s)
        gate(real)
        rows = [] if quick else compared("real logs", REAL, real, size, rounds)
        rows += compared("tiled logs", TILED, tiled, tile(real, tiled, lines, runtime_s), rounds)
        return [*rows, limited(tiled, rows[-len(TILED)]), repeated(tiled)]


# --- the logs ----------------------------------------------------------------------------------------------------------


def log_run(folder: Path, runtime_s: int) -> tuple[int, float]:
    """A real run; only its clat logs are kept. Returns lines and MB."""
    folder.mkdir()
    (folder / "job.fio").write_text(JOB.format(runtime_s=runtime_s, jobs=JOBS))
    subprocess.run(["fio", "job.fio", "--output=fio.txt"], cwd=folder, check=True, timeout=120)
    for file in folder.iterdir():
        if "_clat." not in file.name:
            file.unlink()
    return _size(folder)


def _size(folder: Path) -> tuple[int, float]:
    files = list(folder.glob("*.log"))
    return sum(f.read_bytes().count(b"\n") for f in files), sum(f.stat().st_size for f in files) / 1e6


def tile(real: Path, folder: Path, lines: int, runtime_s: int) -> tuple[int, float]:
    """The same logs again and again, each time later by the runtime, until there are so many lines."""
    import pyarrow as pa
    import pyarrow.compute as pc

    folder.mkdir()
    times = -(-lines // _size(real)[0])
    for log in real.glob("*.log"):
        rows = [line.partition(b",") for line in log.read_bytes().splitlines(keepends=True)]
        t_ms, rest = pa.array([int(t) for t, _, _ in rows]), pa.array([b"," + tail for _, _, tail in rows], pa.binary())
        with open(folder / log.name, "wb") as out:
            for n in range(times):
                later = pc.cast(pc.cast(pc.add(t_ms, 1000 * runtime_s * n), pa.string()), pa.binary())
                out.write(pc.binary_join_element_wise(later, rest, b"").buffers()[2])
    return _size(folder)


# --- the gate ----------------------------------------------------------------------------------------------------------


def gate(real: Path) -> None:
    """Every way against plain Python, and hcilib's percentiles against the exact ones."""
    import numpy as np

    from hcilib.analyse.latency import percentiles
    from hcilib.read.rollup import read_rollup

    expected = digest(plain_rows(real))
    ways = {*TILED, "hcilib, pyarrow"}
    wrong = [way for way in ways if (got := in_fresh_process(way, real))["digest"] != expected]
    if wrong:
        raise SystemExit(f"gate: {', '.join(wrong)} differ from plain Python; nothing is timed")
    rollup = read_rollup(real)
    latencies = np.concatenate([np.loadtxt(f, np.int64, delimiter=",", usecols=(0, 1, 2)) for f in real.glob("*.log")])
    got = percentiles(rollup, by=["t_s", "ddir"], q=QUANTILES)
    worst = 0.0
    for row in got.itertuples():
        own = latencies[
            (latencies[:, 0] // 1000 == row.t_s) & (latencies[:, 2] == ("read", "write").index(row.ddir)), 1
        ]
        for name, q in zip(("p50_ns", "p99_ns", "p999_ns"), QUANTILES, strict=True):
            exact = np.quantile(own, q / 100, method="inverted_cdf")
            worst = max(worst, abs(getattr(row, name) / exact - 1))
    if worst > 1 / 128:
        raise SystemExit(f"gate: a percentile is off by {worst:.2%}, more than 1/128; nothing is timed")
    print(
        f"gate: {len(ways)} ways agree with plain Python in every cell; percentiles within {worst:.2%}", file=sys.stderr
    )


def plain_rows(folder: Path) -> list[tuple]:
    """second, direction, bucket, I/Os, bytes, sum by the plainest code there is."""
    cells: dict[tuple, list[int]] = {}
    for log in folder.glob("*.log"):
        for line in log.read_text().splitlines():
            t, value, ddir, bs, _ = map(int, line.split(","))
            shift = max(value.bit_length() - 7, 0)
            bucket = value if not shift else shift * 64 + (value >> shift)
            cell = cells.setdefault((t // 1000, ddir, bucket), [0, 0, 0])
            cell[0], cell[1], cell[2] = cell[0] + 1, cell[1] + bs, cell[2] + value
    return sorted((*key, *cell) for key, cell in cells.items())


def digest(rows) -> str:
    """Of rows of six whole numbers, sorted."""
    import numpy as np

    return hashlib.sha256(np.ascontiguousarray(rows, dtype=np.int64).tobytes()).hexdigest()


# --- the ways, each in its own process ---------------------------------------------------------------------------------


def timed(work: Callable, rows: Callable | None = None) -> dict:
    started, cpu = time.perf_counter(), time.process_time()
    result = work()
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "cpu_s": cpu_s, "memory_mb": memory_mb} | (
        {"digest": digest(rows(result))} if rows else {}
    )


def hcilib(kernel: str):
    def measure(folder: Path) -> dict:
        from hcilib.read.rollup import read_rollup

        warm(kernel)
        return timed(lambda: read_rollup(folder, kernel=kernel), rollup_rows)

    return measure


def warm(kernel: str) -> None:
    """What is imported, and what numba compiled before, is loaded."""
    from hcilib.read.rollup import read_rollup

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "P_clat.1.log").write_text("1, 2, 0, 4096, 0\n")
        read_rollup(folder, kernel=kernel).to_parquet(Path(folder) / "r.parquet")
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
        GROUP BY ALL ORDER BY ALL"""
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
    """`fiologparser.py -a`, as a process; it reads four fields a line, so it is given the logs without their offsets."""
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


def query(folder: Path) -> dict:
    """From the saved rollup: percentiles of each direction, and of each second of it."""
    from hcilib.analyse.latency import percentiles
    from hcilib.read.rollup import read_rollup

    warm("pyarrow")
    saved = folder.parent / "rollup.parquet"

    def work():
        rollup = read_rollup(saved)
        return percentiles(rollup, by=["ddir"], q=QUANTILES), percentiles(rollup, by=["t_s", "ddir"], q=QUANTILES)

    return timed(work)


def save(folder: Path) -> dict:
    from hcilib.read.rollup import read_rollup

    warm("numba")
    return timed(lambda: read_rollup(folder, kernel="numba").to_parquet(folder.parent / "rollup.parquet"))


# --- turns -------------------------------------------------------------------------------------------------------------


def in_fresh_process(way: str, folder: Path, before: list[str] = ()) -> dict:
    own = [sys.executable]
    if way in WITH:
        own = ["uv", "run", "--quiet", "--no-project", "--with", WITH[way], "--with", "numpy", "python"]
    argv = [*before, *own, str(Path(__file__).resolve()), "--one", way, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} if own == [sys.executable] else dict(os.environ)
    done = subprocess.run(argv, capture_output=True, text=True, env=environment)
    if done.returncode:
        return {"note": (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1][:160], "digest": ""}
    return json.loads(done.stdout.splitlines()[-1])


def compared(task: str, ways: tuple[str, ...], folder: Path, size: tuple[int, float], rounds: int) -> list[dict]:
    outcomes: dict[str, list[dict]] = {way: [] for way in ways}
    for turn in range(rounds):
        if turn and time.monotonic() - STARTED_S > BUDGET_S:
            break
        for way in ways:
            if not (outcomes[way] and "note" in outcomes[way][-1]):
                outcomes[way].append(in_fresh_process(way, folder))
                print(f"{task}, round {turn + 1}: {way} {outcomes[way][-1].get('seconds', 'failed')}", file=sys.stderr)
    digests = {o["digest"] for own in outcomes.values() for o in own if o.get("digest")}
    if len(digests) > 1:
        raise SystemExit(f"{task}: the ways do not agree; no figure is printed")
    base = {key: statistics.median(o[key] for o in outcomes[ways[0]]) for key in ("seconds", "cpu_s")}
    return [_row(task, way, outcomes[way], size, base) for way in ways]


def _row(task: str, way: str, outcomes: list[dict], size: tuple[int, float], base: dict[str, float]) -> dict:
    row = {"task": task, "way": way, "lines": size[0], "mb": size[1]}
    if "note" in outcomes[-1]:
        return row | {"note": outcomes[-1]["note"]}
    middle = {key: statistics.median(o[key] for o in outcomes) for key in ("seconds", "cpu_s")}
    return row | middle | {
        "lines_per_s": size[0] / middle["seconds"], "ratio": middle["seconds"] / base["seconds"],
        "cpu_ratio": middle["cpu_s"] / base["cpu_s"], "memory_mb": max(o["memory_mb"] for o in outcomes),
        "note": f"median of {len(outcomes)}",
    }  # fmt: skip


def limited(folder: Path, base: dict) -> dict:
    """hcilib once more, in a control group whose memory, page cache and all, is limited."""
    row = {"task": "tiled logs in 512 MB", "way": "hcilib", "lines": base["lines"], "mb": base["mb"]}
    with control_group(LIMIT_BYTES) as group:
        if group is None:
            return row | {"note": "no control group can be made here: needs root and a memory controller"}
        enter = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"]
        outcome = in_fresh_process("hcilib", folder, enter)
    if "note" in outcome:
        return row | outcome
    return row | {key: outcome[key] for key in ("seconds", "cpu_s", "memory_mb")} | {
        "lines_per_s": base["lines"] / outcome["seconds"], "ratio": outcome["seconds"] / base["seconds"]}  # fmt: skip


@contextlib.contextmanager
def control_group(limit_bytes: int) -> Iterator[Path | None]:
    """A control group below this process's own, of version 1 or 2; None where none can be made."""
    mine = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    one = Path("/sys/fs/cgroup/memory" + mine["memory"]) if "memory" in mine else None
    parent = one or Path("/sys/fs/cgroup" + mine.get("", "/"))
    group = parent / f"hci-logs-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if one else "memory.max")).write_text(str(limit_bytes))
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        yield None
        return
    try:
        yield group
    finally:
        group.rmdir()


def repeated(folder: Path) -> dict:
    """The query a second time: its rollup was saved, the logs are not touched."""
    made = in_fresh_process("save", folder)
    if "note" in made:
        return {"task": "query from the saved rollup", "way": "hcilib", "note": made["note"]}
    outcomes = [in_fresh_process("query", folder) for _ in range(QUERIES)]
    row = {key: statistics.median(o[key] for o in outcomes) for key in ("seconds", "cpu_s", "memory_mb")}
    kept = (folder.parent / "rollup.parquet").stat().st_size / 1e6
    return {"task": "query from the saved rollup", "way": "hcilib", "mb": kept, **row,
            "note": "percentiles of each direction and of each second of it; mb are the rollup's"}  # fmt: skip


REAL = ("hcilib", "hcilib, pyarrow", "fio-plot 1.1.21", "fiologparser.py -a")
TILED = ("hcilib", "pandas", "polars", "duckdb", "pyarrow")
ONE = {
    "hcilib": hcilib("numba"), "hcilib, pyarrow": hcilib("pyarrow"), "pandas": with_pandas, "polars": with_polars,
    "duckdb": with_duckdb, "pyarrow": with_pyarrow, "fio-plot 1.1.21": with_fio_plot, "fiologparser.py -a": with_fiologparser,
    "query": query, "save": save,
}  # fmt: skip

if __name__ == "__main__":
    main()
