"""Twelve notebooks: hcilib's report beside the papermill CLI, one notebook after the other, with the same outputs.

    .venv/bin/python bench/batch.py               about three minutes; let the machine do nothing else
    .venv/bin/python bench/batch.py --save        also writes data/samples/bench_batch.csv
    .venv/bin/python bench/batch.py --rounds 1

Every notebook of the repository once, with a committed scenario. First every cell's outputs of the ways are compared,
and nothing is timed where they differ; pictures are compared as PNG, since an SVG holds random ids, and may differ by
a part of a pixel (SHADE): the report draws each figure a second time, for phones, and lays it out anew. The report also
writes HTML pages, an index and digests, which the CLI does not; "kernels of their own" is the report with kernels
started one by one. `import_ms` is `import hcilib` beyond a bare Python. CPU seconds are those of all processes, and
move less than the wall's where a machine is shared.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import ctypes
import io
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
from matplotlib.image import imread

ROOT = Path(__file__).resolve().parents[1]
SAVED = ROOT / "data" / "samples" / "bench_batch.csv"
TARGET, IMPORT_MS, ROUNDS, IMPORTS = 2.5, 60, 3, 15
CASES = (
    "01_plan.box", "02_baseline.hyperv", "03_sweep.samples-load", "04_compare.hyperv", "05_latency.hyperv",
    "06_scaling.scaling", "07_datapath.csv", "08_resiliency.dedup", "09_capacity.hyperv", "10_audit.hyperv",
    "11_method.hyperv", "12_regression.samples",
)  # fmt: skip
TEXT = ("text/plain", "text/html", "text/markdown")
SPOT, SHADE = 8, 0.2
"""Pictures are the same where the mean of no square of SPOT pixels differs by more than SHADE of white. An edge that
moved by a part of a pixel makes at most 0.125, another digit 0.5."""
OWN_KERNELS = "import hcilib.show.report.execute as e; e._replay = lambda scenario: {}"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--rounds", type=int, default=ROUNDS)
    asked.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), help="the first is the base")
    asked.add_argument("--save", action="store_true")
    given = asked.parse_args()
    table = measured(given.rounds, given.ways)
    print(table.to_string(index=False, float_format="{:.2f}".format))
    if given.save:
        table.to_csv(SAVED, index=False, float_format="%.4f")


def measured(rounds: int, ways: list[str]) -> pd.DataFrame:
    """way, notebooks, workers, wall_s (median) with lo and hi, cpu_s (median, of all processes), ratio and cpu_ratio
    (the first way's over it), cells compared, target, import_ms."""
    adopt_orphans()
    wall, cpu, cells = ({way: [] for way in ways} for _ in range(3))
    with tempfile.TemporaryDirectory(prefix="batch-") as folder:
        for turn in range(rounds):
            for way in ways:
                out = Path(folder) / f"{turn}-{way.replace(' ', '_')}"
                out.mkdir()
                seconds, used = timed(way, out)
                print(f"{way}: {seconds:.1f} s, {used:.1f} CPU seconds", file=sys.stderr)
                wall[way].append(seconds)
                cpu[way].append(used)
                cells[way].append(same_outputs(Path(folder) / f"0-{ways[0].replace(' ', '_')}", way, out))
    import_ms = import_cost()
    middle = {way: (statistics.median(wall[way]), statistics.median(cpu[way])) for way in ways}
    base_s, base_cpu_s = middle[ways[0]]
    return pd.DataFrame(
        [
            {
                "way": way,
                "notebooks": len(CASES),
                "workers": WAYS[way][1],
                "wall_s": wall_s,
                "lo": min(wall[way]),
                "hi": max(wall[way]),
                "cpu_s": cpu_s,
                "ratio": base_s / wall_s,
                "cpu_ratio": base_cpu_s / cpu_s,
                "cells": cells[way][0],
                "target": TARGET,
                "import_ms": import_ms,
            }
            for way, (wall_s, cpu_s) in middle.items()
        ]
    )


def timed(way: str, out: Path) -> tuple[float, float]:
    """Seconds, and CPU seconds of every process that came to be, kernels and fork servers too."""
    execute, workers = WAYS[way]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    execute(out, workers)
    seconds = time.monotonic() - started
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def adopt_orphans() -> None:
    """Linux counts a process with its parent: one whose parent has ended is this one's to wait for."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def one_by_one(out: Path, workers: int) -> None:
    for case in CASES:
        notebook = f"notebooks/{case.split('.')[0]}.ipynb"
        argv = [sys.executable, "-m", "papermill", notebook, str(out / f"{case}.ipynb"), "-f", f"params/{case}.yaml",
                "-k", "python3", "--cwd", str(ROOT), "--no-progress-bar"]  # fmt: skip
        _run(argv, out)


def site(out: Path, workers: int, before: str = "") -> None:
    script = out / "site.py"  # a file, because the report's processes import what started them
    cases = [f"params/{case}.yaml" for case in CASES]
    script.write_text(SITE.format(before=before, cases=cases, out=str(out), workers=workers))
    _run([sys.executable, str(script)], out)


def own_kernels(out: Path, workers: int) -> None:
    site(out, workers, OWN_KERNELS)


SITE = """
from hcilib.show.report.report import report
{before}
if __name__ == "__main__":
    report({cases}, {out!r}, {workers})
"""


def _run(argv: list[str], out: Path) -> None:
    # the CLI cannot pass arguments to the kernel: the same picture formats come to all ways by IPython's configuration
    environment = os.environ | {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(_profile(out.parent))}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{argv[:4]} failed: {done.stderr[-2000:]}")


def _profile(folder: Path) -> Path:
    config = folder / "ipython" / "profile_default" / "ipython_kernel_config.py"
    if not config.exists():
        config.parent.mkdir(parents=True)
        config.write_text("c.InlineBackend.figure_formats = {'svg', 'retina'}\n")
    return folder / "ipython"


def same_outputs(base: Path, way: str, out: Path) -> int:
    """Cells compared with the first way's; ends the bench where one differs."""
    cells = 0
    for case in CASES:
        wanted = _outputs(next(base.rglob(f"{case}.ipynb")))
        given = _outputs(next(out.rglob(f"{case}.ipynb")))
        differ = [i for i, (a, b) in enumerate(zip(wanted, given, strict=True)) if not same_cell(a, b)]
        if differ:
            raise SystemExit(
                f"{way}: outputs of {case} differ from the first way's in the cells {differ}: nothing was timed"
            )
        cells += len(given)
    return cells


def same_cell(wanted: list[dict], given: list[dict]) -> bool:
    """Whether two cells put out the same texts and the same pictures."""
    return len(wanted) == len(given) and all(
        {k: a[k] for k in a if k != "png"} == {k: b[k] for k in b if k != "png"} and same_picture(a["png"], b["png"])
        for a, b in zip(wanted, given, strict=True)
    )


def same_picture(wanted: str | None, given: str | None) -> bool:
    """Whether two PNG, in base64, have one size and look the same (SHADE)."""
    if not wanted or not given or wanted == given:
        return wanted == given
    a, b = (_spots(imread(io.BytesIO(base64.b64decode(text)))) for text in (wanted, given))
    return a.shape == b.shape and bool(np.abs(a - b).max() <= SHADE)


def _spots(picture: np.ndarray) -> np.ndarray:
    """Means of squares of SPOT pixels, an incomplete last row or column left out."""
    height, width = (pixels // SPOT for pixels in picture.shape[:2])
    whole = picture[: height * SPOT, : width * SPOT]
    return whole.reshape(height, SPOT, width, SPOT, -1).mean((1, 3))


def _outputs(path: Path) -> list[list]:
    """Every cell's outputs as text and PNG; papermill's own tags and the times of execution are not outputs."""
    notebook = nbformat.read(path, as_version=4)
    return [[_output(o) for o in cell.get("outputs", [])] for cell in notebook.cells if cell.cell_type == "code"]


def _output(output: dict) -> dict:
    data = output.get("data", {})
    return {"type": output["output_type"], "text": output.get("text"), "png": data.get("image/png"),
            **{k: data.get(k) for k in TEXT}}  # fmt: skip


def import_cost() -> float:
    """Milliseconds of ``import hcilib`` beyond a bare interpreter, medians of fresh processes in turn."""
    seconds: dict[str, list[float]] = {"pass": [], "import hcilib": []}
    for _ in range(IMPORTS):
        for statement, seen in seconds.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], cwd=ROOT, check=True)
            seen.append(time.perf_counter() - started)
    bare, whole = (statistics.median(seen) for seen in seconds.values())
    cost = 1000 * (whole - bare)
    print(f"import hcilib: {cost:.1f} ms beyond a bare Python's {1000 * bare:.0f} ms; goal {IMPORT_MS} ms")
    return cost


WAYS = {
    "papermill CLI": (one_by_one, 1),
    "report, kernels of their own": (own_kernels, 2),
    "report": (site, 2),
}

if __name__ == "__main__":
    main()
