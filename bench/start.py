"""What beginning costs: `import hcilib`, `hci --help`, and one notebook that replays committed data.

    .venv/bin/python bench/start.py            half a minute; let the machine do nothing else
    .venv/bin/python bench/start.py --save     also writes data/samples/bench_start.csv

Each program runs RUNS times in turn with what it is compared with. CPU seconds are user and system time of the process
and its children. `import hcilib` and `hci --help` are compared with a bare Python, a notebook with a notebook that only
imports pandas and seaborn, both by papermill.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
SAVED = ROOT / "data" / "samples" / "bench_start.csv"
RUNS, NOTEBOOK_RUNS = 15, 3
LIMITS_S = {"import hcilib": 0.020, "hci --help": 0.3}
"""Of `import hcilib` the seconds beyond a bare Python, of `hci --help` all CPU seconds."""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--notebook", default="04_compare")
    asked.add_argument("--save", action="store_true")
    given = asked.parse_args()
    table = pd.concat([commands(), notebook(given.notebook)], ignore_index=True)
    print(table.to_string(index=False, float_format="{:.4f}".format))
    if given.save:
        table.to_csv(SAVED, index=False, float_format="%.4f")


def commands() -> pd.DataFrame:
    """what, runs, wall_s and cpu_s (median, worst), beyond_s (CPU of the base taken off), limit_s and holds."""
    hci = [sys.executable, "-c", "import sys; from hcilib.cli import main; sys.exit(main(['--help']))"]
    programs = {
        "python": [sys.executable, "-c", "pass"],
        "import hcilib": [sys.executable, "-c", "import hcilib"],
        "hci --help": hci,
    }
    rows = in_turn(programs, RUNS)
    base = rows["python"]
    table = pd.DataFrame([summary(name, runs, base) for name, runs in rows.items()])
    beyond = table["beyond_s"].where(table["what"] == "import hcilib", table["cpu_s"])
    table["limit_s"] = table["what"].map(LIMITS_S)
    table["holds"] = (beyond <= table["limit_s"]).where(table["limit_s"].notna())
    return table


def notebook(name: str) -> pd.DataFrame:
    """The same columns: the notebook by papermill, and imports alone."""
    with tempfile.TemporaryDirectory(prefix="start-") as folder:
        whole, bare = ROOT / "notebooks" / f"{name}.ipynb", Path(folder) / "imports.ipynb"
        document = json.loads(whole.read_text("utf-8"))
        first = next(cell for cell in document["cells"] if cell["cell_type"] == "code")
        imports = "import matplotlib.pyplot as plt\nimport pandas as pd\nimport seaborn as sns"
        document["cells"] = [first | {"source": [imports], "outputs": []}]
        bare.write_text(json.dumps(document), encoding="utf-8")
        out = str(Path(folder) / "out.ipynb")
        papermill = [sys.executable, "-m", "papermill", "--no-progress-bar", "--log-level", "ERROR"]
        programs = {
            "imports alone": [*papermill, "--cwd", str(ROOT / "notebooks"), str(bare), out],
            name: [*papermill, "--cwd", str(ROOT / "notebooks"), str(whole), out],
        }
        rows = in_turn(programs, NOTEBOOK_RUNS)
    base = rows["imports alone"]
    return pd.DataFrame([summary(what, runs, base) for what, runs in rows.items()])


def in_turn(programs: dict[str, list[str]], runs: int) -> dict[str, list[tuple[float, float]]]:
    """Wall and CPU seconds of each run of each program, in turn."""
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for _ in range(runs):
        for name, command in programs.items():
            rows[name].append(timed(command))
    return rows


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a program with its children."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, cpu


def summary(what: str, runs: list[tuple[float, float]], base: list[tuple[float, float]]) -> dict[str, object]:
    wall, cpu = ([run[column] for run in runs] for column in (0, 1))
    base_s = statistics.median(run[1] for run in base)
    middle = statistics.median(cpu)
    return {
        "what": what,
        "runs": len(runs),
        "wall_s": statistics.median(wall),
        "wall_worst_s": max(wall),
        "cpu_s": middle,
        "cpu_worst_s": max(cpu),
        "beyond_s": middle - base_s,
        "ratio": middle / base_s,
    }


if __name__ == "__main__":
    main()
