"""Stamped blocks on the disks of VMs: every acknowledgement kept on this machine, every block read back afterwards.

The process that holds a VM's disks (hcilib.drive.keeper) writes them, to what the guard let pass, and ends by itself
when this machine is gone. In a campaign (`hcilib.model.sweeps.sweep`: ``integrity``) it writes beside fio, behind the
part of the disk that fio uses, while something is done to the system.
"""

from __future__ import annotations

import contextlib
import csv
import json
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hcilib.drive.guard.last_look import LastLook
from hcilib.drive.hosts.hosts import explain
from hcilib.drive.hosts.lease import Lease
from hcilib.model.places import BLOCKS, INTEGRITY, WRITERS, WRITES
from hcilib.model.plan import Plan, Step
from hcilib.model.testbed import Testbed, Vm

BLOCK_BYTES = 4096
STARTING_S, SLOWEST_READ = 30.0, 1e6  # bytes/s; only time limits depend on it
WAIT_S = 0.1
OF_WRITES = ("run_id", "vm", "serial", "block", "sequence", "t_s")
OF_BLOCKS = ("run_id", "vm", "serial", "replica", "block", "low", "high", "foreign")
Disks = Mapping[tuple[str, str], tuple[str, str]]
"""(VM, serial) whose blocks they are -> (host, device) where they are read: the VM itself, or where a replica can be
reached."""


class IntegrityError(RuntimeError):
    """Stamped blocks cannot be written or read there; the message names the host and what is missing."""


@dataclass(frozen=True)
class Stamped:
    """The stamped blocks of one run. `run` stands in every stamp; `offsets`: serial -> the byte at which they begin, 0
    unless given."""

    folder: Path
    run_id: str
    run: str
    span_bytes: int
    block_bytes: int = BLOCK_BYTES
    offsets: Mapping[str, int] = field(default_factory=dict)

    def given(self, vm: str, serial: str) -> dict[str, Any]:
        """What is said of one disk's blocks."""
        blocks = self.span_bytes // self.block_bytes
        where = {"offset": self.offsets.get(serial, 0), "blocks": blocks, "nbytes": self.block_bytes}
        return where | {"run": self.run, "vm": vm}


@dataclass
class Beside:
    """Stamped blocks beside one step's fio. Used while it runs, then to read back once the system is whole. Not a
    table: open connections to hosts and what they may open."""

    lease: Lease
    look: LastLook
    testbed: Testbed
    vms: Sequence[Vm]
    numjobs: int
    blocks: Stamped

    @classmethod
    def of(
        cls, step: Step, plan: Plan, testbed: Testbed, lease: Lease, look: LastLook, work: Path, mark: str
    ) -> Beside | None:
        """None for a step to which nothing is done. `mark` tells the attempt from every other one of every campaign."""
        if not plan.integrity or not step.cell.events:
            return None
        vms = testbed.fleet(step.cell.vms)
        offsets = {d.serial: plan.span_bytes for vm in vms for d in vm.disks}
        blocks = Stamped(work / INTEGRITY, step.id, f"{mark}/{step.id}", plan.integrity.span_bytes, offsets=offsets)
        return cls(lease, look, testbed, vms, step.cell.numjobs, blocks)

    @contextlib.contextmanager
    def written(self, begun: threading.Event, limit_s: float) -> Iterator[None]:
        """From fio's begin to the end of the block: before, another writer would be what the guard refuses."""
        with writers(self.lease, self.blocks, self._disks(), limit_s, begun):
            yield

    def read_back(self, replicas: Mapping[str, Disks], record: Mapping) -> None:
        """Every block, from the system and from each replica; beside the writers' ends, when the first event was
        done."""
        disks = self._disks()
        read_back(self.lease, self.blocks, {of: (of[0], "") for of in disks}, "system")
        for name, its in replicas.items():
            read_back(self.lease, self.blocks, {of: place for of, place in its.items() if of in disks}, name)
        file = self.blocks.folder / WRITERS
        done = [event["began_s"] for event in record.get("events", ()) if event["began_s"]]
        file.write_text(json.dumps(json.loads(file.read_text()) | {"event_s": min(done, default=None)}, indent=1))

    def _disks(self) -> list[tuple[str, str]]:
        """Every disk of the step, held or, of an image of Ceph, reached by its VM."""
        self.look.before(self.vms, self.numjobs, beside=True)
        every = [(vm.name, disk) for vm in self.vms for disk in vm.disks[: self.numjobs]]
        for vm, disk in every:
            if disk.uri and disk.serial not in self.lease.paths[vm]:
                self.lease.take(vm, disk.serial, disk.uri, "rbd")
        return [(vm, disk.serial) for vm, disk in every]


# Writing and reading


@contextlib.contextmanager
def writers(
    lease: Lease,
    of: Stamped,
    disks: Sequence[tuple[str, str]],
    limit_s: float,
    begun: threading.Event | None = None,
) -> Iterator[None]:
    """One writer a disk, from `begun` on (at once without it), until the block ends or `limit_s` are over."""
    of.folder.mkdir(parents=True, exist_ok=True)
    stop, lock = threading.Event(), threading.Lock()
    with open(of.folder / WRITES, "w", newline="") as file, ThreadPoolExecutor(len(disks)) as pool:
        writer = csv.writer(file)
        writer.writerow(OF_WRITES)

        def one(vm: str, serial: str) -> dict:
            acknowledged, error = 0, ""
            try:
                while begun and not begun.wait(WAIT_S):
                    if stop.is_set():
                        break
                for block, sequence, t_s in _told(lease, of, vm, serial, limit_s, stop):
                    with lock:
                        writer.writerow((of.run_id, vm, serial, block, sequence, t_s))
                        file.flush()
                    acknowledged += 1
            except Exception as problem:  # its VM may be what was killed; what it acknowledged stands
                error = explain(problem)
            return {"vm": vm, "serial": serial, "acknowledged": acknowledged, "ended_s": time.time(), "error": error}

        running = [pool.submit(one, vm, serial) for vm, serial in disks]
        try:
            yield
        finally:
            stop.set()
            ends = [future.result() for future in running]
            said = {"run_id": of.run_id, "block_bytes": of.block_bytes, "writers": ends}
            (of.folder / WRITERS).write_text(json.dumps(said, indent=1))


def _told(
    lease: Lease, of: Stamped, vm: str, serial: str, limit_s: float, stop: threading.Event
) -> Iterator[tuple[int, int, float]]:
    """Each acknowledgement of a writer; it is answered once the caller has kept it. A writer that the system lets wait
    is left waiting when `stop` is set: what it waits for was promised to nobody."""
    keeper, deadline = lease.keeper(vm), time.monotonic() + STARTING_S + limit_s
    told = keeper.fresh(serial)
    lost = IntegrityError(f"{vm}: the connection to the writer was lost: its VM or its sshd is gone")
    number = keeper.send("write_stamped", disks={serial: of.given(vm, serial) | {"seconds": limit_s, "seed": of.run}})
    while time.monotonic() < deadline and not stop.is_set():
        with contextlib.suppress(queue.Empty, OSError):  # a connection that is lost says so itself
            if (said := told.get(timeout=WAIT_S)) is None:
                raise lost
            yield said["block"], said["sequence"], said["t_s"]
            keeper.send("heard", disk=serial)
            continue
        is_done = keeper.has(number)  # a lost connection ends every wait, this one too
        if keeper.lost and told.empty():
            raise lost
        if is_done and not keeper.lost:
            keeper.answer(number, WAIT_S)
            return
    if keeper.lost:  # at the same moment as the block's end
        raise lost


def read_back(lease: Lease, of: Stamped, disks: Disks, replica: str) -> None:
    """Read every block, each disk where it is named; the VM's own where no device is."""
    of.folder.mkdir(parents=True, exist_ok=True)
    is_new = not (of.folder / BLOCKS).exists()
    limit_s = STARTING_S + of.span_bytes / SLOWEST_READ
    with open(of.folder / BLOCKS, "a", newline="") as opened:
        writer = csv.writer(opened)
        if is_new:
            writer.writerow(OF_BLOCKS)
        for (vm, serial), (host, device) in disks.items():
            rows: list = []
            with contextlib.suppress(OSError):  # what cannot be read is missing
                key = f"{replica} of {serial}" if device else serial
                if device:
                    lease.take(host, key, device, "replica")
                found = lease.ask("read_stamped", {host: {key: of.given(vm, serial)}}, limit_s)[host, key]
                rows = [] if isinstance(found, OSError) else found
                if device:
                    lease.ask("release", {host: {key: {}}}, limit_s)
            for block in range(of.span_bytes // of.block_bytes):
                writer.writerow((of.run_id, vm, serial, replica, block, *(rows[block] if rows else (None, None, None))))
