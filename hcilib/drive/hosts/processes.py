"""The fio processes of a VM: which take orders from anybody, and which work for a controller that is gone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.testbed import Testbed, Vm

DEFAULT_PORT = 8765
FIO_PROCESSES = r"""
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
    def listens(self) -> str:
        """Where a server that is not ours takes orders from anybody: its argument; "" for what is none, or on a unix
        socket."""
        given = re.search(r"--server(?:=(\S+))?", self.command)
        where = (given[1] or f"all addresses, port {DEFAULT_PORT}") if given else ""
        return "" if where.startswith("sock:") else where


def parse_processes(text: str, vm: Vm, testbed: Testbed) -> dict[int, Process]:
    """Process id -> process, of every fio on the VM; in a lab, whose hosts share one kernel, of this VM's own."""
    found = {}
    for line in text.splitlines():
        pid, parent, session, folder, command = line.split("\t", 4)
        if not testbed.lab_root or (Path(folder).is_relative_to(testbed.lab_root) and f"/hci-{vm.target}." in command):
            found[int(pid)] = Process(int(pid), int(parent), int(session), command.strip())
    return found


def jobs_of_servers(processes: Mapping[int, Process]) -> list[Process]:
    """Jobs of running servers. A server forks for a connection and again for its run; only a job has a session of its
    own."""
    return [p for p in processes.values() if p.serves and p.parent in processes and p.session == p.pid]


# A launcher's fio works in a folder that is called by its VM; the shell's own line has the mark in brackets.
ORPHANS = """mark='(^| |/)fio[^ ]* .*/[h]ci-{vm}[^ ]*/(job[.]fio|server)( |$)'
for again in $(seq {times}); do pgrep -f "$mark" >/dev/null || exit 0; sleep 0.1; done
pgrep -f "$mark"; pkill -KILL -f "$mark"; true
"""


def end_orphans(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm], patience_s: float = 3.0) -> dict[str, list[int]]:
    """VM -> processes killed: what a controller that died left running, which would share the disks with the next step.

    Ours end by themselves a moment after their connection did, so busy VMs are given that; what is there even then is
    killed: one controller at a time has a testbed. Nobody else's fio is touched.
    """
    own = {vm.name: f"{vm.target}[.]" if testbed.lab_root else "" for vm in vms}
    asked = {name: ORPHANS.format(vm=mark, times=round(10 * patience_s)) for name, mark in own.items()}
    told = fleet.run(asked, limit_s=10 + patience_s)
    return {name: [int(pid) for pid in o.value.split()] for name, o in told.items() if o.ok and o.value.split()}
