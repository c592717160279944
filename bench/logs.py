"""A log of single I/Os per second, direction and latency bucket: hcilib beside duckdb.

    .venv/bin/python bench/logs.py           20 million lines, half a GB in a temporary folder
    .venv/bin/python bench/logs.py 100       100 million lines

First the gate: both count the same I/Os, bytes and nanoseconds, or nothing is timed. Then fresh
processes in turn. `ratio` is hcilib's CPU seconds over duckdb's. At most 1.5 is allowed.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from parts.processes import peak_mb

from hcilib import read_rollup

MILLIONS, FILES, ROUNDS, MOST = 20, 8, 3, 1.5
FIO = ["fio", "--name=job", "--ioengine=null", "--rw=randrw", "--bs=4k", "--iodepth=8"]
QUERY = """
select sum(n), sum(bytes), sum(ns) from (
  select t // 1000 as second, ddir, least(case when ns < 64 then ns else
    64 * (floor(log2(ns))::int - 6) + (ns >> (floor(log2(ns))::int - 6)) end, 1855) as bucket,
    count(*) as n, sum(bs) as bytes, sum(ns) as ns
  from read_csv('{folder}/*_lat.*.log', header = false, delim = ', ', columns =
    {{'t': 'bigint', 'ns': 'bigint', 'ddir': 'tinyint', 'bs': 'bigint', 'prio': 'varchar'}})
  group by all)
"""


def write(folder: Path, lines: int) -> None:
    """Write one real log, and copies of it until there are so many lines."""
    size = f"--size={4096 * (lines // FILES)}"
    argv = [*FIO, size, "--write_lat_log=job", "--log_offset=0"]
    subprocess.run(argv, cwd=folder, check=True, capture_output=True)
    for other in [*folder.glob("*_clat*"), *folder.glob("*_slat*")]:
        other.unlink()
    [log] = folder.glob("*_lat.1.log")
    raw = log.read_bytes()
    for number in range(2, FILES + 1):
        (folder / f"job_lat.{number}.log").write_bytes(raw)


def of_hcilib(folder: Path) -> list[int]:
    table = read_rollup(folder, "lat")
    return [int(table[name].sum()) for name in ("count", "bytes", "sum")]


def of_duckdb(folder: Path) -> list[int]:
    import duckdb

    return [int(total) for total in duckdb.sql(QUERY.format(folder=folder)).fetchall()[0]]


WAYS = {"hcilib": of_hcilib, "duckdb": of_duckdb}


def timed(way: str, folder: Path) -> dict:
    """Return sums, seconds, CPU seconds and the largest memory of a fresh process."""
    argv = [sys.executable, __file__, "--one", way, str(folder)]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        began, cpu = time.perf_counter(), time.process_time()
        sums = WAYS[sys.argv[2]](Path(sys.argv[3]))
        spent = {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}
        print(json.dumps({"sums": sums, "memory_mb": peak_mb(), **spent}))
        return
    lines = int(sys.argv[1] if sys.argv[1:] else MILLIONS) * 10**6
    with tempfile.TemporaryDirectory(prefix="logs-") as scratch:
        write(Path(scratch), lines)
        rounds = [{way: timed(way, Path(scratch)) for way in WAYS} for _ in range(ROUNDS)]
    if len({str(one["sums"]) for done in rounds for one in done.values()}) > 1:
        sys.exit(f"the ways count differently: {rounds[0]}")
    for way in WAYS:
        measured = ("cpu_s", "seconds", "memory_mb")
        medians = {n: statistics.median(done[way][n] for done in rounds) for n in measured}
        print(way, *(f"{n} {value:.4g}" for n, value in medians.items()))
    ratio = statistics.median(done["hcilib"]["cpu_s"] / done["duckdb"]["cpu_s"] for done in rounds)
    print(f"ratio {ratio:.2f} of {MOST}")
    sys.exit(ratio > MOST)


if __name__ == "__main__":
    main()
