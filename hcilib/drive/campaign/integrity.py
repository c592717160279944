"""Stamped blocks on the disks of VMs: every acknowledgement kept on this machine, every block read back afterwards.

The writer is one file of the standard library (hcilib.drive.launch.integrity_script), sent by SFTP and run by the VM's
own python3. It writes to devices that the guard let pass, for this run alone, and ends by itself when this machine is
gone.
"""

from __future__ import annotations

import contextlib
import csv
import json
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hcilib.drive.guard import guard, guard_devices
from hcilib.drive.hosts.hosts import Fleet, explain, need
from hcilib.drive.launch import integrity_script
from hcilib.run_layout import BLOCKS, INTEGRITY, WRITERS, WRITES
from hcilib.testbed import Testbed

PYTHON, SCRIPT = "python3", "integrity_script.py"
BLOCK_BYTES = 4096
STARTING_S, SLOWEST_READ = 30.0, 1e6  # bytes/s; only time limits depend on it
OF_WRITES = ("run_id", "vm", "serial", "block", "sequence", "t_s")
OF_BLOCKS = ("run_id", "vm", "serial", "replica", "block", "low", "high", "foreign")


class IntegrityError(RuntimeError):
    """Stamped blocks cannot be written or read there; the message names the host and what is missing."""


@contextlib.contextmanager
def stamped_writes(
    fleet: Fleet,
    testbed: Testbed,
    run_dir: str | Path,
    *,
    consent: str | None,
    span_bytes: int,
    limit_s: float,
    vms: int = 1,
    disks: int = 1,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[None]:
    """Writers on the first `disks` disks of the first `vms` VMs, while the block runs and until `limit_s` at most.

    Every acknowledgement stands in integrity/writes.csv of the run directory before its block is written again; how the
    writers ended in integrity/writers.json. A writer whose VM dies is an end like others: what it acknowledged is
    known.

    Raises
    ------
    GuardError : a device may not be overwritten; nothing was written, on no host
    IntegrityError : a VM has no python3
    """
    guard.require(testbed, vms, disks, consent)
    guarded = guard_devices.identify(fleet, testbed, vms, disks, consent)
    names = list(dict.fromkeys(vm for vm, _ in testbed.targets(vms, disks)))
    folders = _send(fleet, names)
    paths = guard_devices.unchanged(fleet, guarded, names)
    folder = Path(run_dir) / INTEGRITY
    folder.mkdir(parents=True, exist_ok=True)
    stop, lock, ends = threading.Event(), threading.Lock(), []
    with open(folder / WRITES, "w", newline="") as file, ThreadPoolExecutor(vms * disks) as pool:
        writer = csv.writer(file)
        writer.writerow(OF_WRITES)

        def one(vm: str, serial: str) -> dict:
            words = [PYTHON, f"{folders[vm]}/{SCRIPT}", "write", paths[serial], span_bytes // block_bytes, block_bytes,
                     _run_id(run_dir), vm, limit_s, f"{_run_id(run_dir)}/{serial}"]  # fmt: skip
            acknowledged = 0
            try:
                for block, sequence, t_s in _told(fleet, vm, words, stop):
                    with lock:
                        writer.writerow((_run_id(run_dir), vm, serial, block, sequence, t_s))
                        file.flush()
                    acknowledged += 1
                return {"vm": vm, "serial": serial, "acknowledged": acknowledged, "error": ""}
            except Exception as error:  # its VM may be what was killed; what it acknowledged stands
                return {"vm": vm, "serial": serial, "acknowledged": acknowledged, "error": explain(error)}

        running = [pool.submit(one, vm, disk.serial) for vm, disk in testbed.targets(vms, disks)]
        try:
            yield
        finally:
            stop.set()
            ends += [future.result() for future in running]
            (folder / WRITERS).write_text(json.dumps({"block_bytes": block_bytes, "writers": ends}, indent=1))
            _remove(fleet, folders)


def read_back(
    fleet: Fleet,
    run_dir: str | Path,
    devices: Mapping[tuple[str, str], tuple[str, str]],
    *,
    span_bytes: int,
    replica: str = "system",
    block_bytes: int = BLOCK_BYTES,
) -> None:
    """Every block as it is now, added to integrity/blocks.csv; nothing is written on any host.

    Parameters
    ----------
    devices : (VM, serial) whose blocks they are -> (host, device) where they are read: the VM itself, or where a
        replica can be reached
    replica : what they are called in the verdict

    A host that cannot be read gives blocks that are unreadable, not none.
    """
    folders, count = _send(fleet, dict.fromkeys(host for host, _ in devices.values())), span_bytes // block_bytes
    commands = {
        of: shlex.join(
            map(str, [PYTHON, f"{folders[host]}/{SCRIPT}", "read", device, count, block_bytes, _run_id(run_dir), of[0]])
        )
        for of, (host, device) in devices.items()
    }
    file = Path(run_dir) / INTEGRITY / BLOCKS
    file.parent.mkdir(parents=True, exist_ok=True)
    is_new = not file.exists()
    with open(file, "a", newline="") as opened:
        writer = csv.writer(opened)
        if is_new:
            writer.writerow(OF_BLOCKS)
        for (vm, serial), command in commands.items():
            host = devices[vm, serial][0]
            outcome = fleet.run({host: command}, limit_s=STARTING_S + span_bytes / SLOWEST_READ)[host]
            lines = [json.loads(line) for line in (outcome.value or "").splitlines()] if outcome.ok else []
            rows = {row[0]: row[1:] for row in lines}
            for block in range(count):
                writer.writerow((_run_id(run_dir), vm, serial, replica, block, *rows.get(block, (None, None, None))))
    _remove(fleet, folders)


def _run_id(run_dir: str | Path) -> str:
    return Path(run_dir).resolve().name


def _send(fleet: Fleet, names: Sequence[str] | Mapping[str, None]) -> dict[str, str]:
    """Host -> a folder of its own there that holds the script; IntegrityError where no python3 runs it."""
    made = fleet.run(
        f"command -v {PYTHON} >/dev/null || {{ echo no {PYTHON} >&2; exit 9; }}; mktemp -d", names, limit_s=STARTING_S
    )
    if lacking := [name for name, outcome in made.items() if not outcome.ok and "exited with 9" in outcome.error]:
        raise IntegrityError(
            f"{', '.join(lacking)}: no {PYTHON} there, which writes and reads stamped blocks: install it, or "
            "measure integrity from "
            "another VM"
        )
    folders = {name: said.strip() for name, said in need("a folder for stamped blocks", made).items()}
    source = Path(integrity_script.__file__).read_bytes()
    need(
        "sending the writer",
        fleet.each(folders, lambda n: fleet.put_now(n, f"{folders[n]}/{SCRIPT}", source), STARTING_S),
    )
    return folders


def _remove(fleet: Fleet, folders: Mapping[str, str]) -> None:
    """Of a host that is gone its folder stays; it is in its /tmp."""
    fleet.run({name: f"rm -rf {shlex.quote(folder)}" for name, folder in folders.items()}, limit_s=STARTING_S)


def _told(fleet: Fleet, vm: str, words: Sequence[object], stop: threading.Event) -> Iterator[tuple[int, int, float]]:
    """Each acknowledgement of a writer; it is answered once the caller has kept it."""
    with contextlib.closing(fleet.session(vm, shlex.join(map(str, words)))) as channel:
        channel.settimeout(STARTING_S)
        with channel.makefile("r") as lines:
            for line in lines:
                block, sequence, t_s = line.split()
                yield int(block), int(sequence), float(t_s)
                if stop.is_set():
                    return
                channel.sendall(b"\n")
            said = channel.makefile_stderr("r").read().strip()
        if code := channel.recv_exit_status():
            raise IntegrityError(f"{vm}: the writer exited with {code}: {said[-400:]}")
