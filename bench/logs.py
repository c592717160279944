"""fio's logs of single I/Os to a rollup: hcilib beside pandas, polars, duckdb and pyarrow, fio-plot and fio's own
fiologparser.py.

    .venv/bin/python bench/logs.py           seven minutes, 3 GB of temporary disk; let the machine do nothing else
    .venv/bin/python bench/logs.py --quick   a minute, one round over 5 M lines, without fio-plot and fiologparser.py
    .venv/bin/python bench/logs.py --save    also writes data/samples/bench_logs.csv

A real run of fio (60 jobs on the disk of the temporary folder, not its page cache; 20 s, every I/O logged) is read as
it is and tiled in time to 100 M lines: the slower the disk, the more seconds they span, and the larger the rollup.
First the gate, on the real logs: every way's I/Os, bytes and latencies of each second, direction and bucket must be
those of plain Python, and hcilib's percentiles within 1/128 of the exact ones; with one difference nothing is timed. In
the tiled logs all must agree again. Then fresh processes, the ways in turn; medians; imports, and numba's loading of
what it compiled before, are not counted. `ratio` is how many times longer a way takes than hcilib. `memory_mb` is a
process's peak. polars and fio-plot are run by `uv run --with`.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from parts import tables
from parts.fio_logs import log_run, plain_rows, tile
from parts.log_readers import QUANTILES, WAYS, digest
from parts.processes import uv

ROOT = Path(__file__).resolve().parents[1]
SAVED = ROOT / "data" / "samples" / "bench_logs.csv"
COLUMNS = ("task", "way", "lines", "mb", "seconds", "lines_per_s", "cpu_s", "ratio", "cpu_ratio", "memory_mb", "note")
RUNTIME_S, LINES, ROUNDS = 20, 100_000_000, 3
QUICK_RUNTIME_S, QUICK_LINES, QUICK_ROUNDS = 4, 5_000_000, 1
LIMIT_BYTES, QUERIES, BUDGET_S = 512 * 2**20, 5, 180
"""Of memory; queries; seconds from the start after which no further round begins."""
STARTED_S = time.monotonic()
WITH = {"polars": "polars==2.1.0", "fio-plot 1.1.21": "fio-plot==1.1.21"}


def measured(quick: bool) -> list[dict]:
    runtime_s, lines, rounds = (QUICK_RUNTIME_S, QUICK_LINES, QUICK_ROUNDS) if quick else (RUNTIME_S, LINES, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="logs-") as scratch:
        real, tiled = Path(scratch) / "real", Path(scratch) / "tiled"
        size = log_run(real, runtime_s)
        gate(real)
        rows = [] if quick else compared("real logs", REAL, real, size, rounds)
        rows += compared("tiled logs", TILED, tiled, tile(real, tiled, lines, runtime_s), rounds)
        return [*rows, limited(tiled, rows[-len(TILED)]), *queried(tiled)]


# --- the gate


def gate(real: Path) -> None:
    """Every way against plain Python, and hcilib's percentiles against the exact ones."""
    import numpy as np

    from hcilib.analyse.runs.latency import percentiles
    from hcilib.read.run.run import read_rollup

    expected = digest(plain_rows(real))
    ways = {*TILED, "hcilib, python"}
    wrong = [way for way in ways if (got := in_fresh_process(way, real))["digest"] != expected]
    if wrong:
        raise SystemExit(f"gate: {', '.join(wrong)} differ from plain Python; nothing is timed")
    rollup = read_rollup(real)
    latencies = np.concatenate([np.loadtxt(f, np.int64, delimiter=",", usecols=(0, 1, 2)) for f in real.glob("*.log")])
    got = percentiles(rollup, by=["t_s", "ddir"], q=QUANTILES)
    worst = 0.0
    for row in got.itertuples():
        mine = (latencies[:, 0] // 1000 == row.t_s) & (latencies[:, 2] == ("read", "write").index(row.ddir))
        own = np.sort(latencies[mine, 1])
        for name, q in zip(("p50_ns", "p99_ns", "p999_ns"), QUANTILES, strict=True):
            exact = own[
                int(np.ceil(np.longdouble(q) / 100 * len(own))) - 1
            ]  # fio's own tie, where q % of them is whole
            worst = max(worst, abs(getattr(row, name) / exact - 1))
    if worst > 1 / 128:
        raise SystemExit(f"gate: a percentile is off by {worst:.2%}, more than 1/128; nothing is timed")
    print(
        f"gate: {len(ways)} ways agree with plain Python in every cell; percentiles within {worst:.2%}", file=sys.stderr
    )


# --- turns


def in_fresh_process(way: str, folder: Path, before: list[str] = ()) -> dict:
    own = [sys.executable]
    if way in WITH:
        own = [uv(), "run", "--quiet", "--no-project", "--with", WITH[way], "--with", "numpy", "python"]
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


def queried(folder: Path) -> list[dict]:
    """From the rollup, the logs are not touched: `QUERY` says which ways."""
    made = in_fresh_process("save", folder)
    if "note" in made:
        return [{"task": "query from the saved rollup", "way": "hcilib", "note": made["note"]}]
    kept = (folder.parent / "rollup.parquet").stat().st_size / 1e6
    rows = []
    for way, (task, said) in QUERY.items():
        outcomes = [in_fresh_process(way, folder) for _ in range(QUERIES)]
        row = {key: statistics.median(o[key] for o in outcomes) for key in ("seconds", "cpu_s", "memory_mb")}
        note = f"{said}: percentiles of each direction and of each second of it; mb are the saved rollup's"
        rows.append({"task": task, "way": "hcilib", "mb": kept, **row, "note": note})
    return rows


QUERY = {
    "query": ("query from the saved rollup", "the first of a process, which still imports"),
    "query again": ("query from the saved rollup", "repeated in a process"),
    "query held": ("query from the rollup in memory", "repeated in a process"),
}
REAL = ("hcilib", "hcilib, python", "fio-plot 1.1.21", "fiologparser.py -a")
TILED = ("hcilib", "pandas", "polars", "duckdb", "pyarrow")

if __name__ == "__main__":
    tables.main(__doc__, measured, WAYS, COLUMNS, SAVED)
