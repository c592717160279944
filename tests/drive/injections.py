"""Faults done to real parts of a lab, each with what has to come of it: used by the tests and by bench/chaos.py.

Every fault is done to vm2 of two. Whoever is told of it has to be told of vm2 and not of vm1; no row may come of an
attempt in which a VM is missing; and when all is over no fio works anywhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from intrusions import by
from plain import run, short_plan
from probes import fios, processes, until

from hcilab.lab import lab
from hcilab.lab_hosts import _write_key
from hcilab.sockets import answers
from hcilab.supervisor import descendants
from hcilib import read_hosts
from hcilib.drive.launch import job, watch
from hcilib.model.system import System
from hcilib.model.testbed import Testbed

MIRROR = System(name="lab-mirror", label="lab-mirror")
CALM_S = 0.004  # each I/O of a lab waits for it: drives as fast as the machine would leave nothing of it
HURT, SPARED = "vm2", "vm1"
SPAN, RUNTIME_S, GRACE_S = 2**20, 1.0, 6.0  # fio itself starts late beside busy processes


@dataclass(frozen=True)
class Fault:
    """`inject` does it, in a block that lasts as long as the campaign. `expect`: refused before any step, retried with
    success, missing in the end, or paused as the host stays away."""

    event: str
    expect: str
    inject: Callable[[Testbed], contextlib.AbstractContextManager]
    launcher: str = "client-server"
    testbed: dict = field(default_factory=dict)


def suffer(fault: Fault, folder: Path) -> dict:
    """One campaign of one step with the fault in it: event, host_named, message, partial_rows, processes_left, ok."""
    job.GRACE_S, kept = GRACE_S, job.GRACE_S
    try:
        with lab(2, 2, disk_bytes=4 * 2**20, delay_s=CALM_S, root=folder / "lab") as running:
            bed = by(running, fault.launcher, **fault.testbed)
            results, said = _campaign(fault, bed, folder / "run")
            left = working(bed, patience_s=8)
    finally:
        job.GRACE_S = kept
    return _judge(fault, results, said, left, folder / "run")


def _campaign(fault: Fault, bed: Testbed, run_dir: Path):
    """The results, None where the campaign was refused, and everything that was said of what went wrong."""
    plan = short_plan(["4k-randrw50"], iodepth=2, vms=2, read_runtime_s=RUNTIME_S, write_runtime_s=RUNTIME_S,
                      span_bytes=SPAN, outage_limit_s=2)  # fmt: skip
    with fault.inject(bed):
        try:
            results, refused = run(plan, bed, MIRROR, run_dir), []
        except Exception as error:
            results, refused = None, [str(error)]
    attempts = [json.loads(file.read_text())["problems"] for file in sorted(run_dir.glob("failed/*/step.json"))]
    return results, [*refused, *(sentence for attempt in attempts for sentence in attempt)]


def _judge(fault: Fault, results, said: list[str], left: list[str], run_dir: Path) -> dict:
    text = _told(said)
    named = f"{HURT}:" in text or f"{HURT} (" in text
    spared = not re.search(rf"{SPARED}( \(|:)", text)
    rows = 0 if results is None else len(results)
    hosts = read_hosts(run_dir) if rows else None
    whole = 0 if hosts is None else sum(set(own["vm"]) == {HURT, SPARED} for _, own in hosts.groupby(["block", "rep"]))
    attempts = len(list(run_dir.glob("failed/*")))
    came = {
        "refused": results is None and not attempts,
        "paused": results is None and attempts == 1,
        "retried": rows == 1,
        "missing": results is not None and rows == 0,
    }[fault.expect]
    return {
        "event": fault.event,
        "host_named": HURT if named and spared else "",
        "message": _plain(text, run_dir.parent),
        "partial_rows": rows - whole,
        "processes_left": len(left),
        "ok": named and spared and came and rows == whole and not left,
    }


def _told(said: list[str]) -> str:
    """Every sentence once, those that name the host first."""
    return " | ".join(sorted(dict.fromkeys(said), key=lambda sentence: HURT not in sentence))


def _plain(text: str, folder: Path, length: int = 240) -> str:
    """Without addresses, process ids and folders, which differ from run to run."""
    text = text.replace(str(folder), "<folder>")
    text = re.sub(r"127\.\d+\.\d+\.\d+(:\d+)?", "<address>", text)
    text = re.sub(r"(/[\w.%' -]+)+/(bed|hci)-[\w.-]+", "<lab>", text)
    return re.sub(r"\bpid=\d+|process \d+", "process <n>", text)[:length]


def working(bed: Testbed, patience_s: float) -> list[str]:
    """Command lines of fio in the lab, when patience ends: between steps there is none."""
    until(lambda: not fios(bed.lab_root), patience_s)
    return fios(bed.lab_root)


# Parts of a lab


def tree(bed: Testbed, vm) -> list[set[int]]:
    """fio's processes of a VM by generation: listener, connection, backend, worker; by the other launcher fio,
    worker."""
    parents = {}
    for pid, command in processes(f"/hci-{vm.target}.").items():
        if Path(command.split()[0]).name == "fio":
            with contextlib.suppress(OSError):
                parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    generations = [{pid for pid, parent in parents.items() if parent not in parents}]
    while generations[-1]:
        generations.append({pid for pid, parent in parents.items() if parent in generations[-1]})
    return generations[:-1]


def hurt(bed: Testbed):
    return next(vm for vm in bed.vms if vm.name == HURT)


def at_work(bed: Testbed) -> list[set[int]]:
    """The hurt VM's fio by generation, a moment after its job began."""
    depth = watch.DEPTH[bed.fio.launcher]
    found = until(lambda: len(now := tree(bed, hurt(bed))) > depth and now, 30)
    time.sleep(0.2)
    return found or [set()]


def send(pids, sig) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sig)


def sshd(bed: Testbed, listener: bool = True, host: str = HURT) -> list[int]:
    """A host's sshd: its sessions, and the listener where asked. What runs in a session is left to notice."""
    [parent] = [p for p, c in processes(bed.lab_root).items() if f"/{host}.sshd" in c and "sshd -D" in c]
    sessions = [pid for pid in descendants(parent) if _program(pid).startswith("sshd")]
    return [*sessions, *([parent] if listener else [])]


def _program(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@contextlib.contextmanager
def _meanwhile(action: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    yield
    thread.join(timeout=40)


def once_at_work(sig: int, pick: Callable[[list[set[int]]], set[int]]):
    """A signal to some of the hurt VM's fio, once a job is at work there."""
    return lambda bed: _meanwhile(lambda: send(pick(at_work(bed)), sig))


def everybody(generations: list[set[int]]) -> set[int]:
    return set().union(*generations)


def killed_sshd(listener: bool):
    return lambda bed: _meanwhile(lambda: (at_work(bed), send(sshd(bed, listener), signal.SIGKILL)))


@contextlib.contextmanager
def other_host_key(bed: Testbed) -> Iterator[None]:
    """known_hosts has another key for the VM, as after it was re-imaged."""
    file, mark = Path(bed.known_hosts), f"[{hurt(bed).address}]:{hurt(bed).port} "
    other = _write_key(Path(bed.lab_root) / "another.hostkey")
    file.write_text(
        "".join(mark + other + "\n" if line.startswith(mark) else line for line in file.read_text().splitlines(True))
    )
    yield


def shimmed(**programs: str):
    """The hurt VM finds other programs first in its PATH: its sshd is started anew with one of its own."""

    @contextlib.contextmanager
    def inject(bed: Testbed) -> Iterator[None]:
        config = Path(bed.lab_root) / f"{HURT}.sshd"
        shims = config.with_name("shims")
        shims.mkdir()
        for name, text in programs.items():
            (shims / name).write_text(f"#!/bin/sh\n{text}\n")
            (shims / name).chmod(0o755)
        path = f'"PATH={shims}:{os.environ["PATH"]}"'
        changed, places = re.subn("(?m)^SetEnv .*$", rf"\g<0> {path}", config.read_text())
        assert places == 1, "the lab's sshd has no SetEnv to add to"
        config.write_text(changed)
        argv = sshd_argv(bed)
        send(sshd(bed), signal.SIGKILL)
        until(lambda: not answers(hurt(bed).address, hurt(bed).port), 5)
        with started(argv, bed):
            yield

    return inject


def sshd_argv(bed: Testbed) -> list[str]:
    """How the hurt VM's sshd was started."""
    [listener] = [pid for pid in sshd(bed) if "sshd -D" in processes(bed.lab_root).get(pid, "")]
    said = Path(f"/proc/{listener}/cmdline").read_bytes().decode().strip("\0").split("\0")[0].split()
    return [said[1] if said[0].endswith(":") else said[0], "-D", "-e", "-f", f"{bed.lab_root}/{HURT}.sshd"]


@contextlib.contextmanager
def started(argv: list[str], bed: Testbed) -> Iterator[None]:
    """Its sshd again, as long as the block runs."""
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        assert until(lambda: answers(hurt(bed).address, hurt(bed).port, b"SSH-"), 20), "sshd did not come back"
        yield
    finally:
        send([*descendants(process.pid), process.pid], signal.SIGKILL)
        process.wait()


FAULTS = (
    Fault("fio server killed mid-run", "retried", once_at_work(signal.SIGKILL, everybody)),
    Fault("backend killed mid-run", "retried", once_at_work(signal.SIGKILL, lambda g: g[2])),
    Fault("worker killed mid-run", "retried", once_at_work(signal.SIGKILL, lambda g: g[3])),
    Fault("fio server frozen mid-run", "retried", once_at_work(signal.SIGSTOP, everybody)),
    Fault("another fio release", "refused", shimmed(fio="echo fio-3.99"), testbed={"binary": "fio"}),
    Fault("clock an hour off", "refused", shimmed(date='/bin/date -d "+1 hour" "$@"')),
    Fault("host key changed", "refused", other_host_key),
    Fault("per-host: fio killed mid-run", "retried", once_at_work(signal.SIGKILL, everybody), "per-host"),
    Fault("per-host: fio frozen mid-run", "retried", once_at_work(signal.SIGSTOP, everybody), "per-host"),
    Fault("per-host: connection dropped mid-run", "retried", killed_sshd(listener=False), "per-host"),
    Fault("per-host: sshd killed mid-run", "paused", killed_sshd(listener=True), "per-host"),
)
