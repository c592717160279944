"""Stamped blocks on the disks of VMs: every acknowledgement kept on this machine, every block read back afterwards.

The writer is one file of the standard library (hcilib.drive.launch.integrity_script), sent by SFTP and run by the VM's
own python3. It writes to devices that the guard let pass, for this run alone, and ends by itself when this machine is
gone. In a campaign (`hcilib.model.sweeps.sweep`: ``integrity``) it writes beside fio, behind the part of the disk that
fio uses, while something is done to the system.
"""

from __future__ import annotations

import contextlib
import csv
import json
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from hcilib.drive.guard.last_look import LastLook
from hcilib.drive.hosts.hosts import MOST_BYTES, Fleet, explain, need
from hcilib.drive.launch import integrity_script
from hcilib.model.places import BLOCKS, INTEGRITY, WRITERS, WRITES
from hcilib.model.plan import Plan, Step
from hcilib.model.testbed import Testbed, Vm

PYTHON, SCRIPT = "python3", "integrity_script.py"
BLOCK_BYTES = 4096
STARTING_S, SLOWEST_READ = 30.0, 1e6  # bytes/s; only time limits depend on it
LINE_BYTES = 100
"""At most, of what is read back of one block."""
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

    def words(self, what: str, vm: str, serial: str, device: str) -> list[object]:
        """What the script is told of one disk."""
        blocks = self.span_bytes // self.block_bytes
        return [what, device, self.offsets.get(serial, 0), blocks, self.block_bytes, self.run, vm]


def require_python(fleet: Fleet, names: Sequence[str] | Mapping[str, object]) -> None:
    """IntegrityError where no python3 runs the writer."""
    look = f"command -v {PYTHON} >/dev/null || {{ echo no {PYTHON} >&2; exit 9; }}"
    asked = fleet.run(look, names, limit_s=STARTING_S)
    if lacking := [name for name, outcome in asked.items() if not outcome.ok and "exited with 9" in outcome.error]:
        raise IntegrityError(
            f"{', '.join(lacking)}: no {PYTHON} there, which writes and reads stamped blocks: install it, or measure "
            "integrity from another VM"
        )


@dataclass
class Beside:
    """Stamped blocks beside one step's fio. Used while it runs, then to read back once the system is whole. Not a
    table: open connections to hosts and what they may open."""

    fleet: Fleet
    look: LastLook
    testbed: Testbed
    vms: Sequence[Vm]
    numjobs: int
    blocks: Stamped

    @classmethod
    def of(
        cls, step: Step, plan: Plan, testbed: Testbed, fleet: Fleet, look: LastLook, work: Path, mark: str
    ) -> Beside | None:
        """None for a step to which nothing is done. `mark` tells the attempt from every other one of every campaign."""
        if not plan.integrity or not step.cell.events:
            return None
        vms = testbed.fleet(step.cell.vms)
        offsets = {d.serial: plan.span_bytes for vm in vms for d in vm.disks}
        blocks = Stamped(work / INTEGRITY, step.id, f"{mark}/{step.id}", plan.integrity.span_bytes, offsets=offsets)
        return cls(fleet, look, testbed, vms, step.cell.numjobs, blocks)

    @contextlib.contextmanager
    def written(self, begun: threading.Event, limit_s: float) -> Iterator[None]:
        """From fio's begin to the end of the block: before, another writer would be what the guard refuses."""
        devices, preludes = self._devices()
        with writers(self.fleet, self.blocks, devices, limit_s, preludes, begun):
            yield

    def read_back(self, replicas: Mapping[str, Disks], record: Mapping) -> None:
        """Every block, from the system and from each replica; beside the writers' ends, when the first event was
        done."""
        devices, preludes = self._devices()
        read_back(self.fleet, self.blocks, {of: (of[0], device) for of, device in devices.items()}, "system", preludes)
        for name, its in replicas.items():
            read_back(self.fleet, self.blocks, {of: place for of, place in its.items() if of in devices}, name)
        file = self.blocks.folder / WRITERS
        done = [event["began_s"] for event in record.get("events", ()) if event["began_s"]]
        file.write_text(json.dumps(json.loads(file.read_text()) | {"event_s": min(done, default=None)}, indent=1))

    def _devices(self) -> tuple[dict[tuple[str, str], str], dict[str, str]]:
        paths, preludes = self.look.before(self.vms, self.numjobs, beside=True)
        every = [(vm.name, disk) for vm in self.vms for disk in vm.disks[: self.numjobs]]
        return {(vm, disk.serial): disk.uri or paths[disk.serial] for vm, disk in every}, preludes


# Writing and reading


@contextlib.contextmanager
def writers(
    fleet: Fleet,
    of: Stamped,
    devices: Mapping[tuple[str, str], str],
    limit_s: float,
    preludes: Mapping[str, str] | None = None,
    begun: threading.Event | None = None,
) -> Iterator[None]:
    """One writer a disk, from `begun` on (at once without it), until the block ends or `limit_s` are over."""
    folders = _send(fleet, dict.fromkeys(vm for vm, _ in devices))
    of.folder.mkdir(parents=True, exist_ok=True)
    stop, lock, ready = threading.Event(), threading.Lock(), threading.Semaphore(0)

    def go() -> bool:
        ready.release()
        while begun and not begun.wait(WAIT_S):
            if stop.is_set():
                return False
        return True

    with open(of.folder / WRITES, "w", newline="") as file, ThreadPoolExecutor(len(devices)) as pool:
        writer = csv.writer(file)
        writer.writerow(OF_WRITES)

        def one(vm: str, serial: str, device: str) -> dict:
            acknowledged, error = 0, ""
            words = [*of.words("write", vm, serial, device), limit_s, f"{of.run}/{serial}"]
            command = _command(folders[vm], words, preludes, vm)
            try:
                for block, sequence, t_s in _told(fleet, vm, command, limit_s, go, stop):
                    with lock:
                        writer.writerow((of.run_id, vm, serial, block, sequence, t_s))
                        file.flush()
                    acknowledged += 1
            except Exception as problem:  # its VM may be what was killed; what it acknowledged stands
                error = explain(problem)
                ready.release()
            return {"vm": vm, "serial": serial, "acknowledged": acknowledged, "ended_s": time.time(), "error": error}

        running = [pool.submit(one, vm, serial, device) for (vm, serial), device in devices.items()]
        try:
            for _ in devices:  # a writer that is still starting would be late for what is done first
                ready.acquire(timeout=STARTING_S)
            yield
        finally:
            stop.set()
            ends = [future.result() for future in running]
            said = {"run_id": of.run_id, "block_bytes": of.block_bytes, "writers": ends}
            (of.folder / WRITERS).write_text(json.dumps(said, indent=1))
            _remove(fleet, folders)


def read_back(
    fleet: Fleet, of: Stamped, devices: Disks, replica: str, preludes: Mapping[str, str] | None = None
) -> None:
    folders = _send(fleet, dict.fromkeys(host for host, _ in devices.values()), may_fail=True)
    of.folder.mkdir(parents=True, exist_ok=True)
    is_new = not (of.folder / BLOCKS).exists()
    with open(of.folder / BLOCKS, "a", newline="") as opened:
        writer = csv.writer(opened)
        if is_new:
            writer.writerow(OF_BLOCKS)
        for (vm, serial), (host, device) in devices.items():
            rows: dict[int, list] = {}
            if host in folders:
                command = _command(folders[host], of.words("read", vm, serial, device), preludes, host)
                limit_s, most = STARTING_S + of.span_bytes / SLOWEST_READ, LINE_BYTES * of.span_bytes // of.block_bytes
                outcome = fleet.run({host: command}, limit_s=limit_s, most_bytes=MOST_BYTES + most)[host]
                said = map(json.loads, (outcome.value or "").splitlines())  # of a command that failed there is none
                rows = {block: its for block, *its in said}
            for block in range(of.span_bytes // of.block_bytes):
                writer.writerow((of.run_id, vm, serial, replica, block, *rows.get(block, (None, None, None))))
    _remove(fleet, folders)


def _command(folder: str, words: Sequence[object], preludes: Mapping[str, str] | None, host: str) -> str:
    """The script in a shell that has opened and judged the devices first, where there is a prelude."""
    script = shlex.join(map(str, [PYTHON, f"{folder}/{SCRIPT}", *words]))
    prelude = (preludes or {}).get(host)
    return f"exec sh -c {shlex.quote(prelude + chr(10) + 'exec ' + script)}" if prelude else script


def _send(fleet: Fleet, names: Mapping[str, None], may_fail: bool = False) -> dict[str, str]:
    """Host -> a folder of its own there that holds the script; where that `may_fail`, of those that could be
    reached."""
    made = fleet.run("mktemp -d", names, limit_s=STARTING_S)
    reached = {name: outcome for name, outcome in made.items() if outcome.ok} if may_fail else made
    folders = {name: said.strip() for name, said in need("a folder for stamped blocks", reached).items()}
    source = Path(integrity_script.__file__).read_bytes()
    sent = fleet.each(folders, lambda name: fleet.put_now(name, f"{folders[name]}/{SCRIPT}", source), STARTING_S)
    need("sending the writer", sent)
    return folders


def _remove(fleet: Fleet, folders: Mapping[str, str]) -> None:
    """Of a host that is gone its folder stays; it is in its /tmp."""
    fleet.run({name: f"rm -rf {shlex.quote(folder)}" for name, folder in folders.items()}, limit_s=STARTING_S)


def _told(
    fleet: Fleet, vm: str, command: str, limit_s: float, go: Callable[[], bool], stop: threading.Event
) -> Iterator[tuple[int, int, float]]:
    """Each acknowledgement of a writer, which begins when `go` says so; it is answered once the caller has kept it. A
    writer that the system lets wait is left waiting when `stop` is set: what it waits for was promised to nobody."""
    heard, deadline = b"", time.monotonic() + STARTING_S + limit_s
    with contextlib.closing(fleet.session(vm, command)) as channel:
        channel.settimeout(WAIT_S)
        while time.monotonic() < deadline:
            try:
                piece = channel.recv(4096)
            except TimeoutError:
                if stop.is_set():
                    return
                continue
            *lines, heard = (heard + piece).split(b"\n")
            for line in lines:
                if line == b"ready":
                    if not go():
                        return
                else:
                    block, sequence, t_s = line.split()
                    yield int(block), int(sequence), float(t_s)
                if stop.is_set():
                    return
                channel.sendall(b"\n")
            if not piece:
                break
        said, code = channel.makefile_stderr("r").read().strip(), channel.recv_exit_status()
        if code == -1:
            raise IntegrityError(f"{vm}: the connection to the writer was lost: its VM or its sshd is gone")
        if code:
            raise IntegrityError(f"{vm}: the writer exited with {code}: {said[-400:]}")
