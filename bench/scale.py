"""How the cost of reading grows with files and workers, and where a pool or a cluster starts to pay.

    .venv/bin/python bench/scale.py               about four minutes; let the machine do nothing else
    .venv/bin/python bench/scale.py --save        also writes data/samples/bench_scale.csv
    .venv/bin/python bench/scale.py --files 100 1000

A run directory of that many steps is made of the committed lab campaigns: four VMs, json+, 120 to 180 KB of JSON a
file. Every measurement is a fresh process that calls `read_results` on a directory without a cache, and writes that
cache. The ways are this process alone, loky's processes, and a real dask scheduler with workers on loopback; `cached`
reads again what was kept. First the tables of all ways are compared, to the bit; nothing is timed where they differ.
`work_s` is the call, `whole_s` the process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
from parts.processes import peak_mb

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
SAVED = ROOT / "data" / "samples" / "bench_scale.csv"
FILES, WORKERS = (100, 1000, 5000, 20_000), 2
SAMPLES = ("lab-mirror", "lab-single")
WAYS = {"one process": 1, "loky": WORKERS, "dask": WORKERS, "cached": 1}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--files", type=int, nargs="+", default=FILES)
    asked.add_argument("--save", action="store_true")
    asked.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.one:
        print(json.dumps(one(*given.one)))
        return
    table = measured(given.files)
    print(table.to_string(index=False, float_format="{:.2f}".format))
    print(pays(table))
    if given.save:
        table.to_csv(SAVED, index=False, float_format="%.4f")


def measured(files: list[int]) -> pd.DataFrame:
    """files, json_mb, way, workers, work_s and whole_s (medians), files_per_s, peak_mb (this process), ratio (one
    process's work_s over it)."""
    from hcilib.read.run import cache
    from tests.clusters import cluster

    rows = []
    with tempfile.TemporaryDirectory(prefix="scale-") as folder, cluster(Path(folder), WORKERS) as dask:
        for count in files:
            run_dir = Path(folder) / f"run{count}"
            json_mb = make_run(run_dir, count) / 1e6
            seen: dict[str, list[dict]] = {way: [] for way in WAYS}
            for _ in range(1 if count > 2000 else 3):
                for way, times in seen.items():
                    if way != "cached":
                        shutil.rmtree(cache._place(run_dir), ignore_errors=True)
                    times.append(fresh(way, run_dir, dask.address))
            _refuse_differences(seen, run_dir)
            rows += [_row(count, json_mb, way, times, seen["one process"]) for way, times in seen.items()]
            shutil.rmtree(run_dir)
    return pd.DataFrame(rows)


def _row(count: int, json_mb: float, way: str, times: list[dict], alone: list[dict]) -> dict:
    middle = {key: statistics.median(t[key] for t in times) for key in ("work_s", "whole_s", "peak_mb")}
    ratio = statistics.median(t["work_s"] for t in alone) / middle["work_s"]
    return {
        "files": count,
        "json_mb": json_mb,
        "way": way,
        "workers": WAYS[way],
        **middle,
        "files_per_s": count / middle["work_s"],
        "ratio": ratio,
    }


def _refuse_differences(seen: dict[str, list[dict]], run_dir: Path) -> None:
    digests = {way: {t["digest"] for t in times} for way, times in seen.items()}
    if len(set.union(*digests.values())) != 1:
        raise SystemExit(f"{run_dir.name}: the ways give different tables, so nothing counts: {digests}")


def pays(table: pd.DataFrame) -> str:
    """The smallest of the measured sizes from which on a way is faster than one process."""
    said = []
    for way in ("loky", "dask"):
        slower = table[(table["way"] == way) & (table["ratio"] <= 1)]
        faster = table[
            (table["way"] == way) & (table["files"] > slower["files"].max() if len(slower) else table["way"] == way)
        ]
        said.append(
            f"{way} from {faster['json_mb'].min():.0f} MB on" if len(faster) else f"{way} at none of these sizes"
        )
    return f"Faster than one process: {', '.join(said)}."


def fresh(way: str, run_dir: Path, address: str) -> dict:
    started = time.monotonic()
    argv = [sys.executable, __file__, "--one", way, str(run_dir), address]
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    return {"whole_s": time.monotonic() - started, **json.loads(done.stdout)}


def one(way: str, run_dir: str, address: str) -> dict:
    from hcilib.model import engine
    from hcilib.read.run.results import read_results

    engine.POOL_BYTES = 0 if way == "loky" else float("inf")
    started = time.monotonic()
    table = read_results(run_dir, engine=address if way == "dask" else None)
    seconds = time.monotonic() - started
    digest = int(pd.util.hash_pandas_object(table, index=True).sum())
    return {
        "work_s": seconds,
        "peak_mb": peak_mb(),
        "digest": f"{digest:x} {table.shape}",
    }


def make_run(run_dir: Path, count: int) -> int:
    """A run directory of that many steps; their raw files are links to the committed ones. Bytes of JSON in it."""
    from hcilib.model.compressed import read_bytes
    from hcilib.model.places import at_home

    found = [
        step for name in SAMPLES for step in sorted((at_home(ROOT / "data" / "samples" / name) / "steps").iterdir())
    ]
    steps = [
        (step, json.loads((step / "step.json").read_text()), len(read_bytes(step / "fio.json.zst"))) for step in found
    ]
    sources = run_dir / "sources"
    for number, (step, _, _) in enumerate(steps):
        shutil.copytree(step, sources / str(number))
    shutil.copy(ROOT / "data" / "samples" / SAMPLES[0] / "plan.json", run_dir)
    size = 0
    for number in range(count):
        _, record, step_bytes = steps[number % len(steps)]
        folder = run_dir / "steps" / f"s{number:06}"
        folder.mkdir(parents=True)
        for file in ("fio.json.zst", "counters.csv"):
            os.link(sources / str(number % len(steps)) / file, folder / file)
        shift = {key: record[key] + 100 * number for key in ("started_s", "ended_s")}
        (folder / "step.json").write_text(json.dumps(record | shift | {"id": folder.name}))
        size += step_bytes
    return size


if __name__ == "__main__":
    main()
