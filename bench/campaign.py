"""What certainty costs: the articles' protocol against the adaptive one, both scaled down, for real on the embedded
lab.

    .venv/bin/python bench/campaign.py            at most eight minutes; let the machine do nothing else
    .venv/bin/python bench/campaign.py --save     also writes data/samples/bench_campaign.csv
    .venv/bin/python bench/campaign.py --quick    half a minute: whether it works, not what it costs

Every time of METHODS section 2 is divided by 30. The fixed protocol is 3 runs of a cell, 20 s of reads and 60 s of
writes, back to back; the adaptive one 5 runs of 2 to 10 s in blocks, looked at every second, and more of the cells that
need them. The rate is sampled every quarter of a second, as seconds would be too few in so short a run. Both measure
the same lab, one after the other: `ratio` should be 1, and what it is instead is their disagreement.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import pandas as pd

from hcilab.lab import lab
from hcilib.analyse.compare.compare import compare, summarize
from hcilib.measure import run
from hcilib.model.plan import Plan
from hcilib.model.sweeps import sweep
from hcilib.model.system import System
from hcilib.model.testbed import Testbed

CELLS = {"4k-randread": {"iodepth": 4}, "64k-randwrite": {"iodepth": 2}}
BED = {"vms": 2, "span_bytes": 16 * 2**20, "canary": False}
SCALE, TARGET = 30, 0.05
SAVED = Path(__file__).resolve().parents[1] / "data" / "samples" / "bench_campaign.csv"


def main() -> None:
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="hci-bench-") as root:
        results = pd.concat(
            [measured(name, plan, root) for name, plan in protocols(asked.quick).items()], ignore_index=True
        )
    table = side_by_side(results)
    print(f"load average before: {asked.load:.2f} on {os.cpu_count()} cores")
    print(table.round(3).to_string(index=False))
    if asked.save:
        table.assign(load_before=round(asked.load, 2)).to_csv(SAVED, index=False, float_format="%.6g")
        print(f"written to {SAVED.relative_to(SAVED.parents[2])}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one cell, seconds a run")
    parser.add_argument("--save", action="store_true", help=f"write {SAVED.name}")
    return parser.parse_args(namespace=argparse.Namespace(load=os.getloadavg()[0]))


def protocols(quick: bool) -> dict[str, Plan]:
    """The two plans, scaled down."""
    cells = dict(list(CELLS.items())[:1]) if quick else CELLS
    s = 0.1 if quick else 1.0
    fixed = sweep(cells, 3, "back-to-back", read_runtime_s=600 * s / SCALE, write_runtime_s=1800 * s / SCALE, **BED)
    adaptive = sweep(
        cells,
        2 if quick else 5,
        policy="adaptive",
        least_s=max(1.0, 60 * s / SCALE),
        most_s=300 * s / SCALE,
        look_s=max(0.5, 30 * s / SCALE),
        sample_s=0.25,
        target=TARGET,
        most_runs=3 if quick else 10,
        **BED,
    )
    return {"fixed": fixed, "adaptive": adaptive}


def measured(name: str, plan: Plan, root: str) -> pd.DataFrame:
    """The results of one protocol on a lab of its own, with the wall time of each run, fio's start included."""
    with lab(2, 2, system="lab-mirror", disk_bytes=16 * 2**20, root=root) as bed:
        run_dir = Path(root) / name
        results = run(plan, per_host(bed), System(name="lab-mirror", label="lab-mirror"), run_dir, progress=False)
    return results.assign(system=name).merge(wall_time(run_dir), how="left", on=["pattern", "block", "rep"])


def per_host(bed: Testbed) -> Testbed:
    """By the launcher that shows the rates; for both, so that it is not what differs."""
    return bed.model_copy(update={"fio": bed.fio.model_copy(update={"launcher": "per-host"})})


def wall_time(run_dir: Path) -> pd.DataFrame:
    steps = [json.loads(file.read_text()) for file in run_dir.glob("steps/measure*/step.json")]
    return pd.DataFrame(
        [(s["cell"]["pattern"], s["block"], s["rep"], s["ended_s"] - s["started_s"]) for s in steps],
        columns=["pattern", "block", "rep", "wall_s"],
    )


def side_by_side(results: pd.DataFrame) -> pd.DataFrame:
    """A row a cell and protocol: pattern, protocol, runs, run_s (of fio, mean), hours, half_width_pct; and of the
    adaptive one beside the fixed one time_ratio, and ratio of what they measured with its lo and hi."""
    by = ["pattern", "system"]
    runs = results.drop(columns="wall_s")
    cells = summarize(runs, "iops", by).set_index(by)
    table = pd.DataFrame(
        {
            "runs": cells["n"],
            "run_s": results.groupby(by)["runtime_s"].mean(),
            "hours": results.groupby(by)["wall_s"].sum() / 3600,
            "half_width_pct": 50 * (cells["iops_hi"] - cells["iops_lo"]) / cells["iops"],
        }
    ).reset_index()
    hours = table.pivot(index="pattern", columns="system", values="hours")
    between = compare(runs, "fixed", "iops", by=["pattern"]).set_index("pattern")[["ratio", "ratio_lo", "ratio_hi"]]
    beside = between.assign(system="adaptive", time_ratio=hours["adaptive"] / hours["fixed"]).reset_index()
    table = table.merge(beside, how="left", on=by).rename(columns={"system": "protocol"})
    return table.sort_values(["pattern", "protocol"], ascending=[True, False], ignore_index=True)


if __name__ == "__main__":
    main()
