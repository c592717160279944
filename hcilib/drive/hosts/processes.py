"""The fio processes of a VM: which take orders from anybody, and which work for a controller that is gone."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
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
ORPHANS = """mark='(^| |/)fio[^ ]* .*/[h]ci-{target}[^ ]*/(job[.]fio|server)( |$)'
ours() {{
  for p in $(pgrep -f "$mark"); do
    stat -L -c %t:%T /proc/$p/fd/* 2>/dev/null | grep -qxE '{disks}' && echo $p
  done
}}
for n in $(seq 99); do
  own=$(ours); [ "$own" ] || exit 0
  [ $n -lt {patience} ] || {{ echo $own; kill -KILL $own; }}
  sleep 0.1
done
"""


def end_orphans(
    fleet: Fleet, testbed: Testbed, vms: Sequence[Vm], disks: Mapping[str, Collection[str]], patience_s: float = 3.0
) -> dict[str, list[int]]:
    """VM -> processes killed: what a controller that died left running, which would share the disks with the next step.

    Ours end by themselves a moment after their connection did, so busy VMs are given that; what has one of the VM's
    `disks` open even then is killed, since their lease is ours (numbers in hexadecimal; a lab's fio is known by its
    folder). Nobody else's fio is touched, nor one of a campaign on other disks of the VM.
    """
    marks = {"target": "", "patience": round(10 * patience_s)}
    asked = {vm.name: {**marks, "disks": "|".join(disks.get(vm.name, ["none"]))} for vm in vms}
    if testbed.lab_root:
        asked = {vm.name: {**marks, "target": f"{vm.target}[.]", "disks": ".*"} for vm in vms}
    told = fleet.run({name: ORPHANS.format(**given) for name, given in asked.items()}, limit_s=20)
    return {name: [int(pid) for pid in o.value.split()] for name, o in told.items() if o.ok and o.value.split()}
