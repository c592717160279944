"""fio's files and logs to tables: hcilib beside what a user would otherwise pick.

    .venv/bin/python bench/readers.py           some minutes; let the machine do nothing else
    .venv/bin/python bench/readers.py --save    also writes data/samples/bench_readers.csv

First the gate: all ways give the same numbers, or nothing is timed. Then fresh processes on one
core, in turn; medians of `ROUNDS`; imports are not counted. `ratio` is how many times longer a way
takes than hcilib, in CPU seconds, and `least` what it may be at least: below it the script fails.
msgspec decodes alone, to no table. fio-plot is read from a folder of its own (`--peer FOLDER`, made
by `pip install --target FOLDER --no-deps fio-plot==1.1.21`); it gives 16 fields of a job.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pandas as pd
from parts.processes import peak_mb

from hcilib import ROOT, read_results
from hcilib.read.fio import fio, table
from hcilib.read.run.run import read_rollup

FILES, LINES, ROUNDS = 20_000, 20_000_000, 3
LARGE_FILES, JOBS, TOGETHER = 200, 60, 20
"""Files of many jobs, and how many of them become one table, as the steps of a campaign do."""
LEAST = {
    ("files of one job", "json"): 1 / 2.5,
    ("files of many jobs", "json"): 2.2,
    ("files of many jobs", "msgspec"): 0.25,
    ("files of many jobs", "fio-plot"): 3,
    ("log of every request", "duckdb"): 1 / 1.5,
}
"""The ratios that hold."""
SAVED = ROOT / "data" / "samples" / "bench_readers.csv"
FIO = ["fio", "--name=job", "--ioengine=null", "--rw=randread", "--bs=4k", "--iodepth=8", "--output-format=json"]

QUERY = """
select sum(n), sum(bytes), sum(ns) from (
  select t // 1000 as second, ddir, least(case when ns < 64 then ns else
    64 * (floor(log2(ns))::int - 6) + (ns >> (floor(log2(ns))::int - 6)) end, 1855) as bucket,
    count(*) as n, sum(bs) as bytes, sum(ns) as ns
  from read_csv('{folder}/*_lat.*.log', header = false, delim = ', ', columns =
    {{'t': 'bigint', 'ns': 'bigint', 'ddir': 'tinyint', 'bs': 'bigint', 'prio': 'varchar'}})
  group by all)
"""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--save", action="store_true")
    asked.add_argument("--peer", help="a folder that holds fio-plot")
    asked.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.one:
        task, way, folder = given.one
        read = fio_plot if way == "fio-plot" else WAYS[task][way]
        print(json.dumps(timed(read, Path(folder))))
        return
    if given.peer:
        sys.path.append(given.peer)
        os.environ["PYTHONPATH"] = given.peer
        WAYS["files of many jobs"]["fio-plot"] = fio_plot
    with tempfile.TemporaryDirectory(prefix="readers-") as scratch:
        table = pd.DataFrame([row for task in WAYS for row in compared(task, Path(scratch) / task)])
    print(table.to_string(index=False, float_format="{:.4g}".format))
    if given.save:
        table.to_csv(SAVED, index=False, float_format="%.4g")
    sys.exit((table["ratio"] < table["least"]).any())


def write_files(folder: Path) -> None:
    """Write fio's output of one job many times, each file with another number in it."""
    said = subprocess.run([*FIO, "--size=100m"], cwd=folder, check=True, capture_output=True, text=True).stdout
    for n in range(FILES):
        text = said.replace('"time" :', f'"number" : {n},\n  "time" :', 1)
        (folder / f"system{n % 2}_r{n}.json").write_text(text)


def write_large_files(folder: Path) -> None:
    """Write fio's output of many jobs, each file with other digits in its latencies."""
    fixed = ["--ioengine=null", "--rw=randread", "--bs=4k", "--iodepth=4", "--numjobs=1", "--rate_iops=2000"]
    fixed += ["--size=1g", "--thread", "--runtime=2", "--time_based"]
    jobs = [option for n in range(JOBS) for option in (f"--name=j{n}", *fixed)]
    argv = ["fio", "--output-format=json", *jobs]
    said = subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout
    for n in range(LARGE_FILES):
        text = re.sub(r'("stddev" : \d+\.\d\d)\d{4}', rf"\g<1>{n:04}", said)
        (folder / f"run{n}.json").write_text(text)


def write_log(folder: Path) -> None:
    """Write a log that has a line for each I/O."""
    size = [f"--size={4096 * LINES}", "--write_lat_log=job", "--log_offset=0"]
    subprocess.run([*FIO, *size], cwd=folder, check=True, capture_output=True)
    for other in [*folder.glob("*_clat*"), *folder.glob("*_slat*")]:
        other.unlink()


def results(folder: Path) -> list[float]:
    table = read_results(folder, names="{system}_r{rep}.json")
    return table[["iops", "bw_bytes", "lat_ns", "runtime_s"]].sum().tolist()


def plain_results(folder: Path) -> list[float]:
    """Sixteen numbers and five options of each file, as a short script would take them."""
    rows = []
    for file in folder.iterdir():
        with file.open() as opened:
            document = json.load(opened)
        for job in document["jobs"]:
            row = {}
            for ddir in ("read", "write"):
                own = job[ddir]
                shares = own["clat_ns"].get("percentile", {})
                row |= {f"{ddir}_{name}": own[name] for name in ("iops", "bw_bytes", "total_ios", "runtime")}
                row |= {f"{ddir}_mean": own["lat_ns"]["mean"], f"{ddir}_max": own["lat_ns"]["max"]}
                row |= {f"{ddir}_p50": shares.get("50.000000"), f"{ddir}_p99": shares.get("99.000000")}
            options = document.get("global options", {}) | job["job options"]
            row |= {name: options.get(name) for name in ("rw", "bs", "iodepth", "numjobs", "ioengine")}
            rows.append(row)
    table = pd.DataFrame(rows)
    table["runtime_s"] = table["read_runtime"] / 1000
    return table[["read_iops", "read_bw_bytes", "read_mean", "runtime_s"]].sum().tolist()


def hosts(folder: Path) -> list[float]:
    files = sorted(folder.iterdir())
    parts = [
        table.hosts_table([fio.read(file) for file in files[n : n + TOGETHER]]).to_pandas()
        for n in range(0, len(files), TOGETHER)
    ]
    return pd.concat(parts)[["iops", "lat_ns_mean", "lat_ns_stddev", "clat_ns_p99"]].sum().tolist()


def plain_hosts(folder: Path) -> list[float]:
    rows = []
    for file in sorted(folder.iterdir()):
        with file.open() as opened:
            document = json.load(opened)
        for job in document["jobs"]:
            options = document.get("global options", {}) | job["job options"]
            row = {f"opt_{name}": value for name, value in options.items()}
            row |= {name: job.get(name) for name in ("jobname", "groupid", "error", *table.JOB)}
            row |= {name: job["read"][name] for name in table.MEASURES}
            for kind in table.LATENCIES:
                latency = job["read"][kind]
                row |= {f"{kind}_{name}": latency[name] for name in table.STATISTICS}
                shares = latency.get("percentile", {})
                row |= {f"{kind}_p{float(q):g}": ns for q, ns in shares.items()}
            rows.append(row)
    return pd.DataFrame(rows)[["iops", "lat_ns_mean", "lat_ns_stddev", "clat_ns_p99"]].sum().tolist()


class Job(msgspec.Struct, rename={"options": "job options"}):
    """A report with its three directions, which hcilib decodes where they did I/O."""

    jobname: str
    options: dict[str, str]
    read: fio.Direction
    write: fio.Direction
    trim: fio.Direction


class Document(msgspec.Struct):
    jobs: list[Job]


def decoded(folder: Path) -> list[float]:
    decode = msgspec.json.Decoder(Document).decode
    for file in folder.iterdir():
        decode(file.read_bytes())
    return []


def fio_plot(folder: Path) -> list[float]:
    from fio_plot.fiolib.getdata import get_json_data

    asked = {"rw": "randread", "iodepth": [4], "numjobs": [1], "compare_graph": False}
    get_json_data({"input_directory": [str(folder)], "filter": ["read"], **asked})
    return []


def rollup(folder: Path) -> list[float]:
    return read_rollup(folder, "lat")[["count", "bytes", "sum"]].sum().tolist()


def duckdb_rollup(folder: Path) -> list[float]:
    """The same table: a row a second, direction and bucket of fio's."""
    import duckdb

    return list(duckdb.sql(QUERY.format(folder=folder)).fetchall()[0])


WRITE = {
    "files of one job": write_files,
    "files of many jobs": write_large_files,
    "log of every request": write_log,
}
WAYS: dict[str, dict[str, Callable[[Path], list[float]]]] = {
    "files of one job": {"hcilib": results, "json": plain_results},
    "files of many jobs": {"hcilib": hosts, "json": plain_hosts, "msgspec": decoded},
    "log of every request": {"hcilib": rollup, "duckdb": duckdb_rollup},
}


def compared(task: str, folder: Path) -> list[dict]:
    """Return a row a way: medians, and how many times hcilib's."""
    folder.mkdir()
    WRITE[task](folder)
    numbers = {way: read(folder) for way, read in WAYS[task].items()}
    own = numbers["hcilib"]
    for other in filter(None, numbers.values()):
        if any(abs(one / two - 1) > 1e-4 for one, two in zip(own, other, strict=True)):
            raise SystemExit(f"{task}: {numbers}; nothing is timed")
    rounds = [{way: in_fresh_process(task, way, folder) for way in WAYS[task]} for _ in range(ROUNDS)]
    rows = [
        {"task": task, "way": way}
        | {name: statistics.median(one[way][name] for one in rounds) for name in ("seconds", "cpu_s", "memory_mb")}
        for way in WAYS[task]
    ]
    ratios = [row["cpu_s"] / rows[0]["cpu_s"] for row in rows]
    least = [LEAST.get((task, way)) for way in WAYS[task]]
    return [row | {"ratio": r, "least": n} for row, r, n in zip(rows, ratios, least, strict=True)]


def in_fresh_process(task: str, way: str, folder: Path) -> dict[str, float]:
    argv = [sys.executable, __file__, "--one", task, way, str(folder)]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def timed(read: Callable[[Path], list[float]], folder: Path) -> dict[str, float]:
    """Return seconds, CPU seconds and the largest memory of reading once, on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    began, cpu = time.perf_counter(), time.process_time()
    read(folder)
    return {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu, "memory_mb": peak_mb()}


if __name__ == "__main__":
    main()
