"""Storage that crawls or hangs under a campaign of ours, each with what must come of it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from probes import fios, processes, until

from hcilab.lab import lab
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.launch import job, watch
from hcilib.drive.launch.job import Launch
from hcilib.drive.launch.launch import launch
from hcilib.model.patterns import Pattern
from hcilib.model.plan import Step
from hcilib.model.testbed import Testbed
from hcilib.model.workload import Cell

DISK = 16 * 2**20
LAUNCHERS = ("client-server", "per-host")


def by(bed: Testbed, launcher: str, **options) -> Testbed:
    return bed.model_copy(update={"fio": bed.fio.model_copy(update={"launcher": launcher, **options})})


def replicas_of(bed: Testbed, vm: str) -> int:
    """The process that serves the only copy of a VM's disks: that of the node on which it lies."""
    [disk, *_] = next(v.disks for v in bed.vms if v.name == vm)
    [image] = map(Path, disk.backing)
    [pid] = [p for p, c in processes(bed.lab_root).items() if "nbdkit" in c.split()[0] and f"dir={image.parent}" in c]
    return pid


def written(bed: Testbed, vm: str) -> int:
    """Bytes that lie on a VM's disks."""
    return sum(os.stat(image).st_blocks * 512 for v in bed.vms if v.name == vm for d in v.disks for image in d.backing)


def at_work(bed: Testbed, vm: str) -> bool:
    """Whether every worker of the VM's fio is there."""
    target = next(v.target for v in bed.vms if v.name == vm)
    return len(fios(f"/hci-{target}.")) > watch.DEPTH[bed.fio.launcher]


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


STEPS = {
    "a step": Step("measure", Cell(Pattern.parse("4k-randwrite"), 2, 4, 2), 1, 1, 300.0),
    "a prefill": Step("prefill", Cell(Pattern.parse("64k-write"), 2, 4, 2), 0, 0, 0.0),
}


def hung(launcher: str, kind: str, folder: Path) -> tuple[tuple[str, ...], float, list[str]]:
    """vm2's disks stop answering while vm1's are read or filled: what the launch said, how long it took to, what is
    left of fio."""
    drives = {"read_bytes_per_s": 2**20, "write_bytes_per_s": 2**20}
    (work := folder / "work").mkdir(parents=True)
    with lab(2, 2, system="lab-single", disks=2, disk_bytes=DISK, dial=drives, root=folder / "lab") as running:
        bed, since = by(running, launcher), []

        def hang() -> None:
            until(lambda: at_work(bed, "vm2") and written(bed, "vm2") > 2**20, 60)
            with stopped(replicas_of(bed, "vm2")):
                since.append(time.monotonic())
                over.wait(150)

        over = threading.Event()
        hanging = threading.Thread(target=hang, daemon=True)
        hanging.start()
        step = STEPS[kind]
        try:
            with Fleet(bed) as fleet:
                done = launch(Launch(step, bed.vms, bed, fleet, work, DISK, job.deadline_s(step, bed.vms, DISK)))
            told_s = time.monotonic() - since[0]
        finally:
            over.set()
            hanging.join()
        mark = f"/hci-{bed.vms[1].target}."
        until(lambda: not fios(mark), 10)
        left = fios(mark)
    return done.faults, told_s, left


CONTROL = """
import sys
from pathlib import Path
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.launch.job import Launch
from hcilib.drive.launch.launch import launch
from hcilib.model.plan import Step
from hcilib.model.testbed import Testbed
from hcilib.model.patterns import Pattern
from hcilib.model.workload import Cell
bed = Testbed.model_validate_json(sys.argv[1])
step = Step("measure", Cell(Pattern.parse("4k-randrw70"), 2, 4, 2), 1, 1, 120)
with Fleet(bed) as fleet:
    launch(Launch(step, bed.fleet(2), bed, fleet, Path(sys.argv[2]), 8 * 2**20, 150))
"""
