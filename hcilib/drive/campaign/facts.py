"""What the hosts are: gathered once a campaign into facts/<host>.json, so that a result can be explained a year
later."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from hcilib.drive.campaign.rundir import RunDir
from hcilib.drive.hosts.commands import execute_all, tasks
from hcilib.drive.hosts.hosts import Fleet
from hcilib.system import System
from hcilib.testbed import Testbed

LIMIT_S = 60
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
    for name, outcome in fleet.run(
        script, [name for name in fleet.names if name not in fleet.windows], limit_s=30
    ).items():
        parts = (outcome.value or "").split(separator)
        facts = (
            dict(zip(HOST_FACTS, (p.strip() for p in parts), strict=False)) if outcome.ok else {"error": outcome.error}
        )
        rundir.facts(name, {**facts, "fingerprint": prints.get(name, {})})
    if "controller" in prints:
        rundir.facts("controller", {"fingerprint": prints["controller"]})


def _fingerprints(fleet: Fleet, testbed: Testbed, systems: Sequence[System]) -> dict[str, dict[str, str]]:
    """Host -> command -> its output, or why there is none: a fingerprint that fails is recorded, not hidden."""
    taken: dict[str, dict[str, str]] = {}
    commands = [command for system in systems for command in system.fingerprint]
    every = [task for command in commands for task in tasks(command, testbed, testbed.vms)]
    for task, outcome in execute_all(fleet, every, LIMIT_S).items():
        taken.setdefault(task.host, {})[task.run] = outcome.value if outcome.ok else f"failed: {outcome.error}"
    return taken
