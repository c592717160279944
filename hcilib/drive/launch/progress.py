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

from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.launch.job import Launch
from hcilib.drive.launch.session import Session

EVERY_S, STALLED_S = 10.0, 40.0
"""How often is asked, and after how long without a count a disk is said to answer nothing: named within 60 s of its
last answer."""
DEPTH = {"per-host": 2, "client-server": 4}
"""A worker's place below `timeout`: fio, worker; listener, connection, backend, worker."""
STUCK = {"D": "waits for storage", "T": "is frozen", "t": "is held by a debugger"}  # process states of ps(1)

# pid, parent, state, and a count of switches and ticks, of every process of this fio; the shell's own line has the mark
# in brackets
SCRIPT = r"""
for p in $(pgrep -f '%s'); do
  c=0; read -r s <"/proc/$p/stat" || continue
  while read -r k v; do case $k in *ctxt_switches:) c=$((c+v));; esac; done <"/proc/$p/status"
  s=${s##*) }; set -- $s; echo "$p $2 $1 $((c+${12}+${13}))"
done 2>/dev/null
"""


@dataclass(frozen=True)
class Worker:
    """A process of fio that does one job's I/O: its kernel's state letter, and a count that grows with whatever it
    does."""

    pid: int
    state: str
    count: int


@dataclass
class Watched:
    """What was seen of every VM's workers. `faults`: a sentence for each disk that answers nothing, empty as long as
    all do."""

    faults: tuple[str, ...] = ()
    _seen: dict[str, dict[int, tuple[int, float]]] = field(default_factory=dict)
    _order: dict[str, list[int]] = field(default_factory=dict)
    _silent: dict[str, float] = field(default_factory=dict)

    def note(self, of: Launch, asked: Mapping[str, Sequence[Worker] | str], now_s: float) -> None:
        """Take what was just asked; a VM that could not be asked is a text."""
        found: list[str] = []
        for vm in of.vms:
            own = asked.get(vm.name, "it was not asked")
            if isinstance(own, str):
                since = self._silent.setdefault(vm.name, now_s)
                if now_s - since >= STALLED_S:
                    found.append(f"{vm.name} does not answer: {own}")
                continue
            self._silent.pop(vm.name, None)
            before, seen = self._seen.get(vm.name, {}), {}
            if len(own) == len(of.step.jobs_of(vm)):
                self._order.setdefault(vm.name, [w.pid for w in own])
            for worker in own:
                count, since = before.get(worker.pid, (-1, now_s))
                seen[worker.pid] = (worker.count, since if worker.count == count else now_s)
                if (stood_s := now_s - seen[worker.pid][1]) >= STALLED_S:
                    found.append(self._said(vm, worker, stood_s))
            self._seen[vm.name] = seen
        self.faults = tuple(dict.fromkeys(found))

    def _said(self, vm, worker: Worker, stood_s: float) -> str:
        order = self._order.get(vm.name, [])
        disk = (
            f"disk {vm.disks[order.index(worker.pid) % len(vm.disks)].serial}"
            if worker.pid in order
            else "one of its disks"
        )
        how = f" (its fio {STUCK[worker.state]})" if worker.state in STUCK else ""
        return (
            f"{vm.name}: {disk} has answered nothing for {stood_s:.0f} s{how}: the run was ended; look at that "
            "disk's path"
        )


@contextlib.contextmanager
def watched(of: Launch, opened: Sequence[Session], launcher: str) -> Iterator[Watched]:
    """Ask while the block runs, in a thread of its own; the first time after `EVERY_S`, so that a short step costs
    nothing.

    A step with events is left alone: that its disks fall silent is what it measures, and its deadline ends it.
    """
    found, stop = Watched(), threading.Event()

    def ask() -> None:
        while not stop.wait(EVERY_S):
            found.note(of, workers(of.fleet, opened, DEPTH[launcher]), time.monotonic())

    thread = threading.Thread(target=ask, daemon=True, name="progress")
    if not of.step.cell.events:
        thread.start()
    try:
        yield found
    finally:
        stop.set()


def workers(fleet: Fleet, opened: Sequence[Session], depth: int) -> dict[str, list[Worker] | str]:
    """VM -> the workers of its fio, in the order of their jobs; one sentence where it cannot be asked."""
    commands = {s.vm.name: SCRIPT % f"[{s.mark[0]}]{s.mark[1:]}" for s in opened}
    asked = fleet.run(commands, limit_s=10)
    return {name: _parse(o.value, depth) if o.ok else o.error.rpartition("` ")[2] for name, o in asked.items()}


def _parse(text: str, depth: int) -> list[Worker]:
    rows = [line.split() for line in text.splitlines()]
    parents = {int(pid): int(parent) for pid, parent, *_ in rows}

    def below(pid: int) -> int:
        return 1 + below(parents[pid]) if parents[pid] in parents else 0

    return [Worker(int(p), state, int(count)) for p, _, state, count in sorted(rows, key=lambda r: int(r[0]))
            if below(int(p)) == depth]  # fmt: skip
