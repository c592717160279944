"""The fio processes of a VM: which wait, which work, and which work for a controller that is gone."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hcilib.drive.guard.devices import sections
from hcilib.drive.hosts.hosts import Fleet
from hcilib.testbed import Testbed, Vm

DEFAULT_PORT = 8765
SCRIPT = r"""
echo '==== processes'
for p in /proc/[0-9]*; do
  c=; read -r c 2>/dev/null <"$p/comm"
  case $c in fio*) ;; *) continue;; esac
  s=; read -r s 2>/dev/null <"$p/stat" || continue
  s=${s##*) }; set -- $s; [ "$1" = Z ] && continue
  printf '%s\t%s\t%s\t%s\t' "${p#/proc/}" "$2" "$4" "$(readlink "$p/cwd")"; tr '\0' ' ' 2>/dev/null <"$p/cmdline"; echo
done
"""


@dataclass(frozen=True)
class Process:
    """One fio process of a host."""

    pid: int
    parent: int
    session: int
    command: str

    @property
    def serves(self) -> bool:
        return "--server" in self.command

    @property
    def runs_for_us(self) -> bool:
        """Started by hcilib.drive.launch.per_host, which ends it as soon as it sees that its controller is gone."""
        return re.search(r"/hci-\S+/job\.fio", self.command) is not None

    @property
    def port(self) -> int | None:
        """The TCP port that a server listens on; None for one on a Unix socket, and for what is no server."""
        given = re.search(r"--server(?:=(\S+))?", self.command)
        if not given or (given[1] or "").startswith("sock:"):
            return None
        port = (given[1] or "").rpartition(",")[2]
        return int(port) if port.isdigit() else DEFAULT_PORT


def parse(text: str, vm: Vm, testbed: Testbed) -> dict[int, Process]:
    """Process id -> process, of every fio on the VM; in a lab, whose hosts share one kernel, of this VM's own."""
    found = {}
    for line in text.splitlines():
        pid, parent, session, folder, command = line.split("\t", 4)
        if not testbed.lab_root or (Path(folder).is_relative_to(testbed.lab_root) and vm.target in command):
            found[int(pid)] = Process(int(pid), int(parent), int(session), command.strip())
    return found


def jobs(processes: Mapping[int, Process]) -> list[Process]:
    """The jobs of running servers. A server forks for a connection and again for its run; only a job has a session of its own."""
    return [p for p in processes.values() if p.serves and p.parent in processes and p.session == p.pid]


def orphans(processes: Mapping[int, Process]) -> list[Process]:
    """Jobs, and the runs they belong to, whose connection's process is gone: nobody will ever fetch what they measure."""
    lost = [p for p in jobs(processes) if processes[p.parent].parent not in processes]
    return [*lost, *dict.fromkeys(processes[p.parent] for p in lost)]


def end_orphans(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm], patience_s: float = 3.0) -> dict[str, list[int]]:
    """VM -> processes killed: what a controller that died left running, which would share the disks with the next step.

    Only jobs of the testbed's own servers, and only once their connection is gone; one that still has a controller is left
    alone. A connection takes a moment to notice that its client died, so busy VMs are asked again until patience ends; so
    does a VM on which fio was started without a server.
    """
    killed: dict[str, list[int]] = {}
    deadline, busy = time.monotonic() + patience_s, list(vms)
    while busy:
        asked = fleet.run(SCRIPT, [vm.name for vm in busy], limit_s=10)
        found = {vm.name: _own(asked[vm.name].value, vm, testbed) for vm in busy if asked[vm.name].ok}
        lost = {name: [p.pid for p in orphans(processes)] for name, processes in found.items() if orphans(processes)}
        if lost:
            fleet.run({name: f"kill -KILL {' '.join(map(str, pids))}" for name, pids in lost.items()}, limit_s=10)
            killed |= {name: killed.get(name, []) + pids for name, pids in lost.items()}
        busy = [vm for vm in busy if vm.name in found and _busy(found[vm.name]) and time.monotonic() < deadline]
        time.sleep(0.1 * bool(busy))
    return killed


def serving(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm]) -> set[str]:
    """Names of the VMs on which a fio server of the testbed's port is seen."""
    asked = fleet.run(SCRIPT, [vm.name for vm in vms], limit_s=10)
    return {vm.name for vm in vms if asked[vm.name].ok
            and any(p.serves for p in _own(asked[vm.name].value, vm, testbed).values())}  # fmt: skip


def _busy(processes: Mapping[int, Process]) -> bool:
    return bool(jobs(processes)) or any(p.runs_for_us for p in processes.values())


def _own(text: str, vm: Vm, testbed: Testbed) -> dict[int, Process]:
    every = parse(sections(text)["processes"], vm, testbed)
    return {pid: p for pid, p in every.items() if p.port == testbed.fio.port or p.runs_for_us}
