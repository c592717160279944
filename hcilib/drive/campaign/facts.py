"""What the hosts are: gathered once a campaign into facts/<host>.json, so that a result can be explained a year
later; and how full the systems' pools are, at its start and end."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence

from hcilib.drive.campaign.rundir import RunDir
from hcilib.drive.campaign.subjects import Subject, percentages, says
from hcilib.drive.hosts.commands import Task, execute_all, tasks
from hcilib.drive.hosts.hosts import ANSWER_S, Fleet, Outcome
from hcilib.model.places import POOL_FILL
from hcilib.model.system import Percentage, System
from hcilib.model.testbed import Testbed

HOST_FACTS = {
    "kernel": "uname -sr",
    "cpu_model": "sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1",
    "cpus": "nproc",
    "memory": "sed -n 's/^MemTotal: *//p' /proc/meminfo",
    "governor": "cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor 2>/dev/null || echo none",
    "fio": "fio --version 2>/dev/null || echo none",  # the testbed's own
    "disks": "lsblk -dbno NAME,SERIAL,SIZE,MODEL 2>/dev/null || true",
    "nics": "ls /sys/class/net",
    "rdma": "ls /sys/class/infiniband 2>/dev/null || echo none",  # whose bytes the nics do not count
}


def gather(fleet: Fleet, testbed: Testbed, systems: Sequence[System], rundir: RunDir) -> None:
    """Facts of every host, and the fingerprint of every system where its file says to take it."""
    separator = "==== next ===="
    commands = HOST_FACTS | {"fio": f"{shlex.quote(testbed.fio.binary)} --version 2>/dev/null || echo none"}
    script = f"; echo '{separator}'; ".join(commands.values())
    prints = _fingerprints(fleet, testbed, systems)
    for name in fleet.windows:  # they have no shell
        rundir.facts(name, {"fingerprint": prints.get(name, {})})
    linux = [name for name in fleet.names if name not in fleet.windows]
    for name, outcome in fleet.run(script, linux, limit_s=30).items():
        parts = map(str.strip, (outcome.value or "").split(separator))
        facts = dict(zip(HOST_FACTS, parts, strict=False)) if outcome.ok else {"error": outcome.error}
        rundir.facts(name, {**facts, "fingerprint": prints.get(name, {})})
    if "controller" in prints:
        rundir.facts("controller", {"fingerprint": prints["controller"]})


def _fingerprints(fleet: Fleet, testbed: Testbed, systems: Sequence[System]) -> dict[str, dict[str, str]]:
    """Host -> command -> its output, or why there is none: a fingerprint that fails is recorded, not hidden."""
    taken: dict[str, dict[str, str]] = {}
    commands = [command for system in systems for command in system.fingerprint]
    every = [task for command in commands for task in tasks(command, testbed, testbed.vms)]
    for task, outcome in execute_all(fleet, every, ANSWER_S).items():
        taken.setdefault(task.host, {})[task.run] = outcome.value if outcome.ok else f"failed: {outcome.error}"
    return taken


@contextlib.contextmanager
def pool_fill_noted(fleet: Fleet, subjects: Iterable[Subject], rundir: RunDir) -> Iterator[None]:
    """Note how full the pools are before the first run of a session, whose disks are filled, and after its last,
    however it ends."""
    note_pool_fill(fleet, subjects, rundir, "start")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # a full disk must not hide the reason
            note_pool_fill(fleet, subjects, rundir, "end")


def note_pool_fill(fleet: Fleet, subjects: Iterable[Subject], rundir: RunDir, when: str) -> None:
    """Add to facts/pools/fill.json how full each system's pool is, by the command of its file (`pool_fill`): of what it
    prints on a host the fullest, the line that says so, and all of it. Of a system without the command, nothing.

    What does not answer, or tells no percentage, is noted with its reason, and stops nothing.
    """
    telling = [(one, how) for one in subjects if (how := one.system.pool_fill)]
    asked = {one.system.name: (how, tasks(how, one.testbed, one.testbed.vms)) for one, how in telling}
    told = execute_all(fleet, [task for _, todo in asked.values() for task in todo], ANSWER_S)
    systems = {name: [_fullest(how, t, told[t]) for t in todo] for name, (how, todo) in asked.items()}
    if systems:
        rundir.read_once_more(POOL_FILL, {"when": when, "t": round(time.time(), 3), "systems": systems})


def _fullest(how: Percentage, task: Task, outcome: Outcome) -> dict[str, str | float]:
    noted: dict[str, str | float] = {"host": task.host, "run": task.run}
    if not outcome.ok:
        return noted | {"error": outcome.error}
    found = percentages(how, outcome.value)
    if not found or any(number != number for number, _ in found):
        return noted | {"error": says(task, outcome), "said": outcome.value}
    number, line = max(found)
    return noted | {"pct": number, "line": line, "said": outcome.value}
