"""fio's job files, and one launch of fio on the whole fleet under a deadline outside fio."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hcilib.drive.beds.lab_hosts import answers
from hcilib.drive.hosts.hosts import Fleet, Outcome
from hcilib.drive.launch.job import FioError, job_caps, job_text  # noqa: F401
from hcilib.plan import Step
from hcilib.testbed import Testbed, Vm

GRACE_S, PATIENCE_S = 30.0, 5.0
BEYOND_S = 15.0  # of a server's own timeout beyond the client's deadline: to start the client, and to end it
SLOWEST_FILL = 20e6  # bytes/s a VM's disk is assumed to take when it is filled; only the deadline depends on it
STUCK = {"D": "waits for storage", "T": "is frozen", "t": "is held by a debugger"}  # process states of ps(1)


@dataclass(frozen=True)
class Launched:
    """What one launch left: return code, epoch seconds of start and end, and how it ended.

    `places`: VM -> (hostname, port) by which fio's output knows it. `faults`: what the launcher itself saw go wrong, by VM.
    `start_skew_s`, `common_window_s`: see hcilib.drive.launch.starts; None where `starts_from` says why it is not known.
    `remarks`: what went another way than planned and changes no number.
    """

    returncode: int
    started_s: float
    ended_s: float
    timed_out: bool
    stopped_early: bool = False
    launcher: str = "client-server"
    places: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    start_skew_s: float | None = None
    common_window_s: float | None = None
    starts_from: str = ""
    remarks: tuple[str, ...] = ()


@contextlib.contextmanager
def servers(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm], limit_s: float) -> Iterator[list[str]]:
    """A fio server on every VM while the block runs; yields the names of those that had none.

    Where none answers one is started over SSH, and killed at the end of the block (by `timeout` at the latest): one that
    stayed on would be ended by its `timeout` in the middle of a later step.
    """
    silent = [vm for vm in vms if not answers(vm.target, testbed.fio.port)]
    try:
        start_servers(fleet, testbed, silent, limit_s, lambda up, vms: _wait_until(up, vms, testbed))
        yield [vm.name for vm in silent]
    finally:
        kill_servers(fleet, testbed, silent)
        _wait_until(False, silent, testbed)


def start_servers(
    fleet: Fleet, testbed: Testbed, vms: Sequence[Vm], limit_s: float, wait: Callable[[bool, Sequence[Vm]], list[Vm]]
) -> None:
    """Start a server at every VM's target; FioError names those that do not answer. `wait` returns them when patience ends.

    Its own `timeout` is for a controller that is gone. Before the client's deadline it would end the healthy servers, which would
    be blamed, and wake a frozen one (timeout sends SIGCONT) before anybody saw that it was.
    """
    folder, binary = shlex.quote(testbed.lab_root or "/"), shlex.quote(testbed.fio.binary)
    # Braces: where sh is bash, `a && b &` leaves a shell that keeps the session's output open until b ends.
    started = fleet.run({
        vm.name: f"cd {folder} && {{ setsid timeout -k 5 {limit_s + BEYOND_S:.0f} {binary} "
        f"--server={shlex.quote(f'ip:{vm.target},{testbed.fio.port}')} </dev/null >/dev/null 2>&1 & }}"
        for vm in vms
    }, limit_s=20)  # fmt: skip
    late = wait(True, [vm for vm in vms if started[vm.name].ok])
    dead = [f"{vm.name} ({vm.target}:{testbed.fio.port}): {_why(started[vm.name])}" for vm in vms
            if vm in late or not started[vm.name].ok]  # fmt: skip
    if dead:
        raise FioError("no fio server on " + "; ".join(dead))


def kill_servers(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm]) -> None:
    """All processes of a server at once: a connection that outlives its listener keeps the port for a second (TRAPS section 2)."""
    fleet.run({vm.name: f"pkill -KILL -f -e {_server_pattern(vm, testbed)}" for vm in vms}, limit_s=10)


def _wait_until(up: bool, vms: Sequence[Vm], testbed: Testbed) -> list[Vm]:
    """The VMs whose servers do not (or still) answer when patience ends."""
    deadline = time.monotonic() + PATIENCE_S
    while (left := [vm for vm in vms if answers(vm.target, testbed.fio.port) != up]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _server_pattern(vm: Vm, testbed: Testbed) -> str:
    """What finds a VM's server among its processes; [-] keeps it from matching the shell that carries it."""
    return shlex.quote(f"[-]-server=ip:{re.escape(vm.target)},{testbed.fio.port}")


def _why(outcome: Outcome) -> str:
    return outcome.error or "it was started and does not answer"


def end_stuck(
    fleet: Fleet, testbed: Testbed, vms: Sequence[Vm], wait: Callable[[bool, Sequence[Vm]], object] | None = None
) -> list[str]:
    """After a deadline: the VMs it was due to, a sentence each; a fio that is frozen or waits for storage is killed there.

    The healthy ones have long finished their job by then. The next attempt starts a server anew: a frozen one still
    accepts connections, and would cost that attempt its deadline too. `wait`: as in `start_servers`.
    """
    asked = fleet.run(
        {vm.name: f"ps -eo stat=,args= | grep -e {_server_pattern(vm, testbed)} || true" for vm in vms}, limit_s=10
    )
    seen = {
        name: {STUCK[line[0]] for line in (o.value or "").splitlines() if line[0] in STUCK} for name, o in asked.items()
    }
    kill_servers(fleet, testbed, stuck := [vm for vm in vms if seen[vm.name]])
    wait = wait or (lambda up, left: _wait_until(up, left, testbed))
    wait(False, stuck)
    silent = [f"{o.host} does not answer: {o.error}" for o in asked.values() if not o.ok]
    return silent + [
        f"{name}: its fio {' and '.join(sorted(states))}; it was killed" for name, states in seen.items() if states
    ]


def deadline_s(step: Step, vms: Sequence[Vm], span_bytes: int) -> float:
    """How long a launch may take from outside: fio's client waits for ever on a server that froze."""
    return step.duration_s + _fill_bytes(step, vms, span_bytes) / SLOWEST_FILL + GRACE_S


def _fill_bytes(step: Step, vms: Sequence[Vm], span_bytes: int) -> int:
    """What the busiest VM writes in a step that ends when its disks are full; 0 for one that ends by time."""
    if step.runtime_s:
        return 0
    return max(
        sum(min(span_bytes, vm.disks[j % len(vm.disks)].size_bytes) for j in range(step.jobs_on(len(vm.disks))))
        for vm in vms
    )


def run_client(
    work: Path,
    places: Mapping[str, tuple[str, int]],
    jobs: Mapping[str, str],
    testbed: Testbed,
    limit_s: float,
    begun: threading.Event | None = None,
) -> Launched:
    """Run fio's client against every VM's server, which answers at its place; fio.json, fio.stderr and logs/ appear in `work`.

    Never --eta=never (the client then hangs on a frozen server) and never --output (errors would land in that file).
    """
    argv = [testbed.fio.binary]
    with_parent = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    for name, (address, port) in places.items():
        (work / f"{name}.fio").write_text(jobs[name])
        argv += [f"--client=ip:{address},{port}" if port != 8765 else f"--client={address}"]
        argv += ["--output-format=json+"] * (len(argv) == 2)  # after the first client, or it does not reach the servers
        argv += [f"{name}.fio"]
    try:
        done = _run_until([*with_parent, *argv], work, limit_s, begun)
    finally:
        for name in places:
            (work / f"{name}.fio").unlink(missing_ok=True)
    return done


def _run_until(argv: list[str], work: Path, limit_s: float, begun: threading.Event | None = None) -> Launched:
    started = time.time()
    with open(work / "fio.json", "wb") as out, open(work / "fio.stderr", "wb") as err:
        process = subprocess.Popen(
            argv, cwd=work, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        if begun:
            begun.set()
        try:
            returncode, timed_out = process.wait(timeout=limit_s), False
        except subprocess.TimeoutExpired:
            returncode, timed_out = _end(process), True
        except BaseException:  # Ctrl-C: no client may outlive the step
            _end(process)
            raise
    return Launched(returncode, started, time.time(), timed_out)


def _end(process: subprocess.Popen) -> int:
    for sig, patience_s in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sig)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=patience_s)
    return process.wait()


def planned_s(step: Step, vms: Sequence[Vm], span_bytes: int) -> float:
    """About how long a step takes, for the progress bar: its runtime and fio's own second and a half."""
    return 1.5 + step.duration_s + _fill_bytes(step, vms, span_bytes) / (10 * SLOWEST_FILL)
