"""What a campaign costs beside bare fio: seconds a step beyond a shell loop around `fio --client`, at ten servers of
one lab.

    .venv/bin/python bench/overhead.py            about four minutes; let the machine do nothing else
    .venv/bin/python bench/overhead.py --save     also writes data/samples/bench_overhead.csv

The ways take turns, round by round, on the same lab and with the same job files. A step of the loop is one turn of it;
a step of a campaign is the time between two of its entries in the journal: job files, the guard's second look,
counters, acceptance, packing and the journal are in it. What a campaign does once (preflight, facts) is `once_s`.

A campaign has two launchers: `client-server` is fio's client, and a server a VM for the length of a step, whose bytes
go through SSH; `per-host` is fio on each VM. The loop has servers that run already, on unix sockets, and nothing in
between.

The guard's last look (hcilib.drive.guard.last_look) is not in them, as a lab has no block devices: where loop devices
can be made (root) it is measured by itself, as the seconds that its shell takes on a host before a step, and after one
that writes.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from hcilab.lab import lab
from hcilib.drive.campaign.campaign import run
from hcilib.drive.guard import last_look
from hcilib.drive.guard.devices import CONTENT, END, INVENTORY, Device, parse
from hcilib.drive.hosts.hosts import Outcome
from hcilib.drive.launch.job import job_text
from hcilib.model.plan import Plan
from hcilib.model.sweeps import sweep
from hcilib.model.system import System
from hcilib.model.testbed import Disk, Testbed, Vm

SERVERS, STEPS, ROUNDS, RUNTIME_S, TARGET_S = 10, 5, 3, 2.0, 0.3
LOOKS, LOOK_TARGET_S = 30, 0.05
SAVED = Path(__file__).resolve().parents[1] / "data" / "samples" / "bench_overhead.csv"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--save", action="store_true")
    table = measured()
    print(table.to_string(index=False, float_format="{:.3f}".format))
    if asked.parse_args().save:
        table.to_csv(SAVED, index=False, float_format="%.4f")


def measured() -> pd.DataFrame:
    """way, steps, beyond_s (median seconds a step beyond its runtime), lo and hi (quartiles), more_s (than bare fio),
    ratio, once_s."""
    plan = sweep(["4k-randread"], repeats=STEPS, iodepth=1, vms=SERVERS, read_runtime_s=RUNTIME_S, span_bytes=2**20,
                 prefill=False, canary=False)  # fmt: skip
    ways = {"fio --client in a shell loop": bare, "campaign, client-server": campaign("client-server"),
            "campaign, per-host": campaign("per-host")}  # fmt: skip
    seconds, once = {way: [] for way in ways}, {way: [] for way in ways}
    with (
        tempfile.TemporaryDirectory(prefix="overhead-") as folder,
        lab(2, SERVERS, disk_bytes=2**21, root=folder) as bed,
    ):
        for turn in range(ROUNDS):
            for way, measure in ways.items():
                steps, first = measure(bed, plan, Path(folder) / f"{turn}-{len(way)}")
                seconds[way] += steps
                once[way].append(first)
    rows = [_row(way, seconds[way], once[way], seconds["fio --client in a shell loop"]) for way in ways]
    return pd.DataFrame(rows + (looks() if os.getuid() == 0 and Path("/dev/loop-control").exists() else []))


def looks() -> list[dict]:
    """A row for the look before a step and one for the note after it, of a host with one disk, in the shell that does
    them."""
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        image = Path(folder) / "disk.img"
        image.write_bytes(os.urandom(64 * 2**20))
        name = subprocess.run(
            ["losetup", "--find", "--show", image], check=True, capture_output=True, text=True
        ).stdout.strip()
        try:
            known = subprocess.run(
                ["sh", "-c", INVENTORY + CONTENT + END], capture_output=True, text=True, check=True
            ).stdout
            device = parse(known).devices[name.removeprefix("/dev/")]
            return [_look(what, script) for what, script in _scripts(device).items()]
        finally:
            subprocess.run(["losetup", "--detach", name], check=True)


def _scripts(device: Device) -> dict[str, str]:
    vm = Vm(name="vm1", node="n1", disks=(Disk(serial="D", size_bytes=device.size_bytes),))

    class Here:
        def run(self, scripts, limit_s):
            done = subprocess.run(["sh", "-c", scripts["vm1"]], capture_output=True, text=True, timeout=limit_s)
            return {"vm1": Outcome("vm1", True, done.stdout)}

    look = last_look.LastLook(Here(), {"vm1": {"D": device}})  # type: ignore[arg-type]
    look.begin()
    return {
        "look before a step": look.before([vm], 1)[1]["vm1"],
        "note after a writing step": last_look.note(look.guarded["vm1"], {"D": 1}),
    }


def _look(what: str, script: str) -> dict:
    taken = []
    for _ in range(LOOKS):
        started = time.perf_counter()
        subprocess.run(["sh", "-c", script], check=True, capture_output=True)
        taken.append(time.perf_counter() - started)
    lo, mid, hi = np.percentile(taken, [25, 50, 75])
    return {
        "way": f"guard, {what}",
        "steps": LOOKS,
        "beyond_s": mid,
        "lo": lo,
        "hi": hi,
        "more_s": mid,
        "ratio": np.nan,
        "target_s": LOOK_TARGET_S,
        "once_s": 0.0,
    }


def _row(way: str, steps: list[float], once: list[float], bare_steps: list[float]) -> dict:
    lo, mid, hi = np.percentile(np.array(steps) - RUNTIME_S, [25, 50, 75])
    base = np.median(bare_steps) - RUNTIME_S
    return {
        "way": way,
        "steps": len(steps),
        "beyond_s": mid,
        "lo": lo,
        "hi": hi,
        "more_s": mid - base,
        "ratio": mid / base,
        "target_s": TARGET_S,
        "once_s": float(np.median(once)),
    }


def bare(bed: Testbed, plan: Plan, folder: Path) -> tuple[list[float], float]:
    """Seconds of every turn of the loop."""
    folder.mkdir(mode=0o700)
    argv, servers = ["fio"], []
    for number, vm in enumerate(bed.fleet(SERVERS)):
        found = job_text(plan.steps[0], vm, bed, plan.span_bytes).replace("?socket=", f"?socket={bed.lab_root}/")
        (folder / f"{vm.name}.fio").write_text(found)
        servers.append(subprocess.Popen(["fio", f"--server=sock:{vm.target}"], cwd=folder, stdout=subprocess.DEVNULL))
        argv += [f"--client=sock:{vm.target}", *(["--output-format=json+"] if number == 0 else []), f"{vm.name}.fio"]
    try:
        while not all((folder / vm.target).exists() for vm in bed.fleet(SERVERS)):
            time.sleep(0.05)
        loop = f"for i in $(seq {STEPS}); do {shlex.join(argv)} >$i.json; date +%s.%N; done"
        started = time.time()
        done = subprocess.run(["bash", "-c", loop], cwd=folder, capture_output=True, text=True, check=True)
    finally:
        for server in servers:
            server.kill()
            server.wait()
    return list(np.diff([started, *map(float, done.stdout.split())])), 0.0


def campaign(launcher: str):
    """By one of the testbed's launchers."""

    def measure(bed: Testbed, plan: Plan, folder: Path) -> tuple[list[float], float]:
        mine = bed.model_copy(update={"fio": bed.fio.model_copy(update={"launcher": launcher})})
        started = time.time()
        results = run(plan, mine, System(name="lab-mirror", label="lab"), folder, progress=False)
        if len(results) != STEPS:
            raise SystemExit(
                f"{launcher}: {len(results)} of {STEPS} steps were accepted; the machine is too busy to measure"
            )
        events = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
        ends = [event["t"] for event in events if event["event"] == "done"]
        steps = list(np.diff(ends))
        return steps, ends[0] - started - float(np.median(steps))

    return measure


if __name__ == "__main__":
    main()
