"""Does every job still get answers from its disk? Asked of the VMs' kernels while a step runs, whoever launched it.

A worker of fio whose disk answers nothing neither runs nor is switched to: its counts stand still. That holds for every
engine, costs fio nothing, and names the disk: the workers are started in the order of their jobs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hcilib.drive.hosts.hosts import CONNECT_S
from hcilib.drive.launch.job import Launch
from hcilib.drive.launch.session import Session
from hcilib.model.testbed import Vm

EVERY_S, STALLED_S = 10.0, 40.0
"""How often is asked, and after how long without a count a disk is said to answer nothing: named within 60 s of its
last answer."""
LATE_S, OVERDUE_S = 2.0, 15.0
"""The same once the step should be over, however short it is."""
STANDS_S = 2.0
"""So long a worker has stood still, at least, that is named when the deadline ends a step."""
DEPTH = {"per-host": 1, "client-server": 3}
"""A worker's place below fio: worker; connection, backend, worker."""
CAUSES = {"D": "waits for storage", "T": "is frozen", "t": "is held by a debugger"}
"""Process states of ps(1)."""


@dataclass(frozen=True)
class Worker:
    """A process of fio that does one job's I/O: its kernel's state letter, and a count that grows with whatever it
    does. Of a VM that does not answer: process 0, and why in place of the state."""

    pid: int
    state: str
    count: int


@dataclass
class Watched:
    """What was seen of every VM's workers. `faults`: a sentence for each disk that answers nothing, empty as long as
    all do."""

    of: Launch
    due_s: float = float("inf")
    faults: tuple[str, ...] = ()
    standing: tuple[tuple[float, str], ...] = ()
    _seen: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)
    _order: dict[str, list[int]] = field(default_factory=dict)

    def note(self, asked: Mapping[str, Sequence[Worker] | str], now_s: float) -> None:
        """Take what was just asked; a VM that could not be asked is a text."""
        seen: dict[tuple[str, int], tuple[int, float]] = {}
        standing = []
        for vm in self.of.vms:
            own = asked.get(vm.name, "it was not asked")
            workers = [Worker(0, own, 0)] if isinstance(own, str) else own
            if not isinstance(own, str) and len(own) == len(self.of.step.jobs_of(vm)):
                self._order.setdefault(vm.name, [worker.pid for worker in own])
            for worker in workers:
                place = vm.name, worker.pid
                count, since_s = self._seen.get(place, (-1, now_s))
                seen[place] = worker.count, since_s if worker.count == count else now_s
                stood_s = now_s - seen[place][1]
                standing.append((stood_s, self._said(vm, worker, stood_s)))
        self._seen, self.standing = seen, tuple(standing)
        self.faults = self.standing_for(OVERDUE_S if now_s > self.due_s else STALLED_S)

    def standing_for(self, seconds: float = STANDS_S) -> tuple[str, ...]:
        """Name what has stood still for so long, as far as was asked."""
        return tuple(dict.fromkeys(said for stood_s, said in self.standing if stood_s >= seconds))

    def _said(self, vm: Vm, worker: Worker, stood_s: float) -> str:
        if not worker.pid:
            return f"{vm.name} does not answer: {worker.state}"
        order, disk = self._order.get(vm.name, []), "one of its disks"
        if worker.pid in order:
            disk = f"disk {vm.disks[order.index(worker.pid) % len(vm.disks)].serial}"
        cause = f" (its fio {CAUSES[worker.state]})" if worker.state in CAUSES else ""
        silent = f"has answered nothing for {stood_s:.0f} s{cause}"
        todo = "" if worker.state in "Tt" else "; look at that disk's path"
        return f"{vm.name}: {disk} {silent}: the run was ended{todo}"


@contextlib.contextmanager
def watched(of: Launch, opened: Mapping[str, Session], launcher: str) -> Iterator[Watched]:
    """Ask while the block runs, in a thread of its own, first after `EVERY_S` or when the step should be over.

    So a short step costs nothing.

    A step with events is left alone: that its disks fall silent is what it measures, and its deadline ends it.
    """
    stop, now_s = threading.Event(), time.monotonic()
    found = Watched(of, now_s + of.step.duration_s + LATE_S if of.step.runtime_s else float("inf"))

    def ask() -> None:
        pause_s = min(EVERY_S, found.due_s - now_s)
        while not stop.wait(pause_s):
            found.note(_workers(of, opened, DEPTH[launcher]), time.monotonic())
            left_s = found.due_s - time.monotonic()
            pause_s = min(EVERY_S, left_s) if left_s > 0 else LATE_S

    thread = threading.Thread(target=ask, daemon=True, name="progress")
    if not of.step.cell.events:
        thread.start()
    try:
        yield found
    finally:
        stop.set()


def _workers(of: Launch, opened: Mapping[str, Session], depth: int) -> dict[str, list[Worker] | str]:
    """VM -> the workers of its fio, in the order of their jobs; one sentence where it cannot be asked."""
    asked = of.fleet.each(opened, lambda name: opened[name].ask("workers"), limit_s=CONNECT_S)
    return {name: _at(o.value, depth) if o.ok else o.error for name, o in asked.items()}


def _at(rows: Sequence[Sequence], depth: int) -> list[Worker]:
    parents = {pid: parent for pid, parent, *_ in rows}

    def below(pid: int) -> int:
        return 1 + below(parents[pid]) if parents[pid] in parents else 0

    workers = (Worker(pid, state, count) for pid, _, state, count in rows)
    return sorted((worker for worker in workers if below(worker.pid) == depth), key=lambda worker: worker.pid)
