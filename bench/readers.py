"""fio's files to tables: hcilib beside json and pandas, on files of one job and on a log of single I/Os.

    .venv/bin/python bench/readers.py           some minutes; let the machine do nothing else
    .venv/bin/python bench/readers.py --save    also writes data/samples/bench_readers.csv

First the gate: both ways give the same numbers, or nothing is timed. Then fresh processes on one core, in turn;
medians of `ROUNDS`; imports are not counted. `ratio` is how many times longer a way takes than hcilib.
bench_ingest.csv and bench_logs.csv beside it are of earlier scripts, with fio-plot, msgspec, polars and duckdb.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from parts.processes import peak_mb

from hcilib import ROOT, log_series, read_results

FILES, LINES, ROUNDS = 2_000, 2_000_000, 3
SAVED = ROOT / "data" / "samples" / "bench_readers.csv"
FIO = ["fio", "--name=job", "--ioengine=null", "--rw=randread", "--bs=4k", "--iodepth=8", "--output-format=json+"]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--save", action="store_true")
    asked.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.one:
        task, way, folder = given.one
        print(json.dumps(timed(WAYS[task][way], Path(folder))))
        return
    with tempfile.TemporaryDirectory(prefix="readers-") as scratch:
        table = pd.DataFrame([row for task in WAYS for row in compared(task, Path(scratch) / task)])
    print(table.to_string(index=False, float_format="{:.4g}".format))
    if given.save:
        table.to_csv(SAVED, index=False, float_format="%.4g")


def write_files(folder: Path) -> None:
    """Write fio's output of one job many times, each file with another number in it."""
    said = subprocess.run([*FIO, "--size=100m"], cwd=folder, check=True, capture_output=True, text=True).stdout
    for n in range(FILES):
        text = said.replace('"time" :', f'"number" : {n},\n  "time" :', 1)
        (folder / f"system{n % 2}_r{n}.json").write_text(text)


def write_log(folder: Path) -> None:
    """Write a log that has a line for each I/O."""
    asked = [f"--size={4096 * LINES}", f"--rate_iops={LINES // 20}", "--write_lat_log=job", "--log_avg_msec=0"]
    subprocess.run([*FIO, *asked], cwd=folder, check=True, capture_output=True)


def results(folder: Path) -> list[float]:
    table = read_results(folder, names="{system}_r{rep}.json")
    return table[["iops", "bw_bytes", "lat_ns", "runtime_s"]].sum().tolist()


def plain_results(folder: Path) -> list[float]:
    rows = []
    for file in folder.iterdir():
        with file.open() as opened:
            read = json.load(opened)["jobs"][0]["read"]
        rows.append((read["iops"], read["bw_bytes"], read["lat_ns"]["mean"], read["runtime"] / 1000))
    return pd.DataFrame(rows).sum().tolist()


def series(folder: Path) -> list[float]:
    return [float(log_series(folder)["iops"].sum())]


def plain_log(folder: Path) -> list[float]:
    [file] = folder.glob("*_lat*.log")
    lines = pd.read_csv(file, header=None, usecols=[0, 1], names=["ms", "value"])
    counts = lines.groupby(lines["ms"] // 1000)["value"].count()
    return [float(counts.iloc[:-1].sum())]  # the last second is not whole


WRITE = {"files of one job": write_files, "log of every request": write_log}
WAYS: dict[str, dict[str, Callable[[Path], list[float]]]] = {
    "files of one job": {"hcilib": results, "json": plain_results},
    "log of every request": {"hcilib": series, "pandas": plain_log},
}


def compared(task: str, folder: Path) -> list[dict]:
    """Return a row a way: medians, and how many times hcilib's."""
    folder.mkdir()
    WRITE[task](folder)
    numbers = {way: read(folder) for way, read in WAYS[task].items()}
    own, other = numbers.values()
    if any(abs(one / two - 1) > 1e-4 for one, two in zip(own, other, strict=True)):
        raise SystemExit(f"{task}: {numbers}; nothing is timed")
    rounds = [{way: in_fresh_process(task, way, folder) for way in WAYS[task]} for _ in range(ROUNDS)]
    rows = [
        {"task": task, "way": way}
        | {name: statistics.median(one[way][name] for one in rounds) for name in ("seconds", "cpu_s", "memory_mb")}
        for way in WAYS[task]
    ]
    return [row | {"ratio": row["seconds"] / rows[0]["seconds"]} for row in rows]


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
