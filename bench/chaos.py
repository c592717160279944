"""Faults done to real parts of a lab, and the controller killed at thirty seeded moments: what becomes of a campaign.

    .venv/bin/python bench/chaos.py                 about twenty minutes; writes data/samples/chaos.csv
    .venv/bin/python bench/chaos.py --only frozen   the events whose name has that in it; writes nothing

A row is ok when the right host was named and no other, no row of the results came of an attempt in which a VM was
missing, and no fio works anywhere when all is over. For a killed controller: when the same call finished the campaign
with every step once, and what was finished before kept its bytes. Exit code 1 if any row is not ok. What somebody does
to disks, run directories and job files is tested in test_last_look, test_seals, test_lease and test_job.

Of the deaths seven in ten fall into a run that is being measured: fio is seen at work on a drawn one, and then a drawn
share of its runtime passes. The others come at a drawn share of the whole campaign, most of which is preparation and
what stands between runs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "drive")]

from injections import FAULTS, MIRROR, suffer, working  # noqa: E402
from probes import until  # noqa: E402

from hcilab.lab import lab  # noqa: E402
from hcilib.drive.campaign.campaign import run  # noqa: E402
from hcilib.model.plan import Plan, Step  # noqa: E402
from hcilib.model.sweeps import sweep  # noqa: E402
from hcilib.model.testbed import Testbed  # noqa: E402
from hcilib.read.run.results import read_results  # noqa: E402

SAVED = ROOT / "data" / "samples" / "chaos.csv"
KILLS, INSIDE, SEED = 30, 0.7, 4
Moment = Callable[[subprocess.Popen], None]
"""Waits, with the controller running, until it is to be killed."""

CONTROLLER = """
import json, sys
from hcilib.drive.campaign.campaign import run
from hcilib.model.plan import Plan
from hcilib.model.system import System
from hcilib.model.testbed import Testbed
bed, plan, system, run_dir = sys.argv[1:]
run(Plan.from_dict(json.loads(plan)), Testbed.model_validate_json(bed), System.model_validate_json(system), run_dir, progress=False)
"""  # noqa: E501


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--only", default="")
    only = asked.parse_args().only
    rows = []
    for row in events(only):
        rows.append(row)
        print(f"{'ok  ' if row['ok'] else 'FAIL'} {row['event']}: {row['message']}", flush=True)
    table = pd.DataFrame(rows)
    if not only:
        table.to_csv(SAVED, index=False)
    print(f"{int(table['ok'].sum())} of {len(table)} ok" + ("" if only else f"; {SAVED.relative_to(ROOT)}"))
    return int(not table["ok"].all())


def events(only: str) -> Iterator[dict]:
    """A row an event, in order."""
    for fault in FAULTS:
        if only in fault.event:
            yield in_folder(lambda folder, fault=fault: suffer(fault, folder))
    if only in "controller killed":
        yield from kills()


def in_folder(act) -> dict:
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        return act(Path(folder))


def kills() -> Iterator[dict]:
    """kill -9 of the controller at seeded moments of a campaign, half of them by each launcher, then the same call
    again."""
    plan = sweep(["4k-randrw50"], repeats=3, iodepth=2, vms=2, read_runtime_s=0.5, write_runtime_s=0.5,
                 span_bytes=2**20, canary=False)  # fmt: skip
    moments = random.Random(SEED)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, lab(2, 2, disk_bytes=4 * 2**20, root=folder) as bed:
        for launcher in ("client-server", "per-host"):
            mine = bed.model_copy(update={"fio": bed.fio.model_copy(update={"launcher": launcher})})
            whole = Path(folder) / f"{launcher}-whole"
            lasted_s = until_end(mine, plan, whole)
            runs = [step for step in plan.steps if step.kind == "measure"]
            for number in range(KILLS // 2):
                run_dir, share = Path(folder) / f"{launcher}-{number}", moments.random()
                if number < INSIDE * KILLS / 2:
                    step = moments.choice(runs)
                    when, moment = f"{share:.2f} of run {step.rep}", inside(mine, run_dir, step, share)
                else:
                    when, moment = f"{share:.2f} of a campaign", lambda _, s=share * lasted_s: time.sleep(s)
                yield killed(mine, plan, run_dir, moment, whole, f"controller killed at {when}, {launcher}")


def inside(bed: Testbed, run_dir: Path, step: Step, share: float) -> Moment:
    """Waits until fio has been at work on a step for a share of its runtime."""

    def wait(process: subprocess.Popen) -> None:
        at_work = lambda: (run_dir / "work" / step.id).exists() and working(bed, patience_s=0)  # noqa: E731
        until(lambda: at_work() or process.poll() is not None, 600)
        time.sleep(share * step.runtime_s)

    return wait


def until_end(bed: Testbed, plan: Plan, run_dir: Path) -> float:
    """The uninterrupted campaign; how long it lasted, with Python's own start."""
    started = time.monotonic()
    if controller(bed, plan, run_dir).wait():
        raise SystemExit("the uninterrupted campaign failed: there is nothing to hold the others against")
    return time.monotonic() - started


def controller(bed: Testbed, plan: Plan, run_dir: Path) -> subprocess.Popen:
    given = [bed.model_dump_json(), json.dumps(plan.to_dict()), MIRROR.model_dump_json(), str(run_dir)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, *given], env={**os.environ, "PYTHONPATH": str(ROOT)}, **silent
    )


def killed(bed: Testbed, plan: Plan, run_dir: Path, moment: Moment, whole: Path, event: str) -> dict:
    """One death, as soon as `moment` returns, and what the next call makes of it beside the uninterrupted campaign in
    `whole`."""
    process = controller(bed, plan, run_dir)
    moment(process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = contents(run_dir)
    left = working(bed, patience_s=8)
    results = run(plan, bed, MIRROR, run_dir, progress=False)
    return judged(event, run_dir, whole, before, results, left)


def judged(event: str, run_dir: Path, whole: Path, before: dict, results: pd.DataFrame, left: list[str]) -> dict:
    steps = sorted(path.name for path in (run_dir / "steps").iterdir())
    times = pd.Series([e["step"] for e in journal(run_dir) if e["event"] == "done"], dtype=object).value_counts()
    once = steps == sorted(path.name for path in (whole / "steps").iterdir()) and times.max() == 1
    kept = {name: digest for name, digest in contents(run_dir).items() if name in before} == before
    partial = len(results) - len(read_results(whole))
    same = results.equals(read_results(run_dir)) and not results.duplicated(["pattern", "block", "rep"]).any()
    attempts = len(list((run_dir / "failed").iterdir()))
    message = (
        f"{len(before_steps(before))} of {len(steps)} steps were finished and kept; {attempts} running "
        "attempt(s) kept as failed"
    )
    return {
        "event": event,
        "host_named": "controller",
        "message": message,
        "partial_rows": partial,
        "processes_left": len(left),
        "ok": bool(once and kept and same and partial == 0 and not left and attempts <= 1),
    }


def contents(run_dir: Path) -> dict[str, str]:
    """Path -> digest of every file of every finished step."""
    files = (f for f in run_dir.glob("steps/**/*") if f.is_file())
    return {str(f.relative_to(run_dir)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def before_steps(before: dict) -> set[str]:
    return {Path(name).parts[1] for name in before}


def journal(run_dir: Path) -> list[dict]:
    events = []
    for line in (run_dir / "journal.jsonl").read_text().splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue  # torn by the kill
    return events


if __name__ == "__main__":
    sys.exit(main())
