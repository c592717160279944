"""The fio processes of a VM, and which of them take orders from anybody."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
