"""Fifty thousand damaged files: every one ends in a table or in the reader's own error with the file's name, soon and
in little memory.

    .venv/bin/python bench/fuzz.py                 two to five minutes on two cores
    .venv/bin/python bench/fuzz.py --save          also writes data/samples/bench_fuzz.csv
    .venv/bin/python bench/fuzz.py --cases 3000 --seed 7
    .venv/bin/python bench/fuzz.py --atheris       also guided by coverage, where atheris is installed (pip install
    atheris)

Captures of fio, its logs and DiskSPD are cut, spliced, repeated, filled with zeros and given numbers no tool prints
(tests/read/mutations.py); each case goes through every reader of its kind. A process that does them may use 2 GiB. A
defect is printed with its seed and steps, and ends the bench with an error.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
from parts.processes import peak_mb

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
counting_branches = contextlib.nullcontext()
if "--guided" in sys.argv:  # code counts its branches only if it is imported like this
    import atheris

    counting_branches = atheris.instrument_imports(include=["hcilib.read"])
with counting_branches:
    from tests.read.mutations import FAMILIES, STEPS, mutated, outcome

SAVED = ROOT / "data" / "samples" / "bench_fuzz.csv"
CASES, BATCH, MEMORY = 50_000, 250, 2 * 2**30
LARGEST_CAPTURE = 70_000
ATHERIS_RUNS = 2_000


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--cases", type=int, default=CASES)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--atheris", action="store_true")
    asked.add_argument("--save", action="store_true")
    asked.add_argument("--guided", nargs=2, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.guided:
        guided(*given.guided)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the pool ends its processes
    table, defects = measured(given.cases, given.seed, given.atheris)
    print(table.to_string(index=False, float_format="{:.3f}".format))
    for defect in defects:
        print(defect, file=sys.stderr)
    if given.save:
        table.to_csv(SAVED, index=False, float_format="%.4f")
    sys.exit(bool(defects))


def measured(cases: int, seed: int, with_atheris: bool) -> tuple[pd.DataFrame, list[str]]:
    """kind, by, cases, tables, errors, defects, slowest_s, peak_mb, cases_per_s; and what the defects were."""
    share = cases // len(FAMILIES)
    started, done = time.monotonic(), []
    work = [(kind, seed + at, min(BATCH, share - at)) for kind in FAMILIES for at in range(0, share, BATCH)]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), _limits) as pool:
        done += pool.map(batch, *zip(*work, strict=True))
    done = pd.DataFrame(done)
    rate = len(FAMILIES) * share / (time.monotonic() - started)
    sums = done.groupby("kind", sort=False).agg(
        {"cases": "sum", "tables": "sum", "errors": "sum", "slowest_s": "max", "peak_mb": "max"}
    )
    found = done.groupby("kind", sort=False)["found"].sum()
    table = sums.assign(by="mutation", defects=found.map(len), cases_per_s=rate).reset_index()
    rows = [atheris_row(kind) for kind in FAMILIES] if with_atheris else []
    table = pd.concat([table, pd.DataFrame(rows)], ignore_index=True)
    columns = ["kind", "by", "cases", "tables", "errors", "defects", "slowest_s", "peak_mb", "cases_per_s"]
    table = table.astype(dict.fromkeys(columns[2:6], "Int64"))  # libFuzzer does not say how many were tables
    return table[columns], [line for lines in found for line in lines]


def batch(kind: str, seed: int, cases: int) -> dict:
    """So many cases of one kind, from one seed."""
    family, chance = FAMILIES[kind], random.Random(f"{kind}{seed}")
    captures = [p for p in family.captures if p.stat().st_size < LARGEST_CAPTURE]
    contents = {p: p.read_bytes() for p in captures}
    tables, slowest, found = 0, 0.0, []
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for _ in range(cases):
            capture, other = chance.choice(captures), chance.choice(captures)
            steps = [
                (chance.choice(ORDER), chance.random(), chance.random(), chance.randrange(256))
                for _ in range(chance.randint(1, 4))
            ]
            path = Path(folder) / capture.name
            path.write_bytes(mutated(contents[capture], steps, contents[other]))
            try:
                said, seconds = outcome(family, path)
                tables, slowest = tables + (said == "table"), max(slowest, seconds)
            except BaseException as defect:  # whatever is not the reader's own error, MemoryError too
                found.append(
                    f"{kind}, seed {seed}: {capture.name} with {steps} and {other.name}: {type(defect).__name__}: "
                    f"{defect}"
                )
    peak = peak_mb()
    return {"kind": kind, "cases": cases, "tables": tables, "errors": cases - tables - len(found), "slowest_s": slowest,
            "peak_mb": peak, "found": found}  # fmt: skip


ORDER = sorted(STEPS)


def _limits() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def atheris_row(kind: str) -> dict:
    """One kind in a process that libFuzzer guides by the branches of hcilib.read it reaches."""
    if importlib.util.find_spec("atheris") is None:
        return {"kind": kind, "by": "atheris is not installed", "cases": 0}
    with tempfile.TemporaryDirectory(prefix="guided-") as folder:
        started = time.monotonic()
        done = subprocess.run([sys.executable, __file__, "--guided", kind, folder], capture_output=True, text=True)
        seconds = time.monotonic() - started
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
    return {
        "kind": kind,
        "by": "atheris",
        "cases": ATHERIS_RUNS,
        "defects": int(done.returncode != 0),
        "cases_per_s": ATHERIS_RUNS / seconds,
    }


def guided(kind: str, folder: str) -> None:
    family, corpus = FAMILIES[kind], Path(folder) / "corpus"
    corpus.mkdir()
    captures = [p for p in family.captures if p.stat().st_size < LARGEST_CAPTURE // 4] or family.captures[:1]
    for number, capture in enumerate(captures):
        (corpus / str(number)).write_bytes(capture.read_bytes())
    path = Path(folder) / captures[0].name

    def case(raw: bytes) -> None:
        path.write_bytes(raw)
        outcome(family, path)

    atheris.Setup(
        [sys.argv[0], f"-runs={ATHERIS_RUNS}", "-max_len=20000", "-seed=1", "-rss_limit_mb=2048", str(corpus)], case
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
