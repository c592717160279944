"""A host for one campaign at a time: each VM and node of a testbed is leased while a campaign runs on it, and which fio
processes work there, and for whom, is asked.

Two campaigns that share a disk, a VM or a node measure each other, and neither's numbers show it. So a campaign holds,
on every host that it uses, a lock that belongs to the machine: a small shell there keeps it for as long as it hears
from its controller, and the kernel frees it when that shell ends, whatever ended it. It does not matter by which
testbed file, name, address or account the next one comes.

The lock is ``flock`` on a file in the first of /run/lock, /var/lock and /tmp that everybody may write to; nothing needs
root. It is opened for reading alone, since a kernel with fs.protected_regular lets nobody, not even root, open another
account's file there to create it; who holds it stands in a file beside it, one for each account.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import secrets
import shlex
import socket
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hcilib.drive.hosts.hosts import CONNECT_S, Fleet, need, sections
from hcilib.model.testbed import Node, Testbed, Vm

if TYPE_CHECKING:
    import paramiko


BEAT_S, SILENT_S = 15, 90
"""The controller says that it is there every so often; a host that hears nothing for so long (a controller without
power, whose connection nobody closed) frees itself."""
FREED_S = 3.0
"""So long the end of a lease is waited for."""

# Arguments: who asks, and a token by which a campaign knows its own lease: under another name of the
# same machine, or one that an outage left behind. Such a holder is ended: its connection is lost, or
# its controller is gone, as nobody else has the lock of that run directory.
# The hosts of a lab share one kernel and one file system, and each is at a loopback address of its own: that keeps them
# apart.
SCRIPT = r"""
LC_ALL=C; export LC_ALL; umask 022
who=$1 token=$2; set -- $SSH_CONNECTION; at=
case $3 in 127.0.0.1) ;; 127.*) at=-$3;; esac
for d in /run/lock /var/lock /tmp; do case $(ls -ld "$d/." 2>/dev/null) in drwxrwxrwt*) break;; esac; done
f=$d/hci-lease$at
command -v flock >/dev/null || { echo 'hci unleased flock (util-linux) is not installed there'; exit; }
[ -e "$f" ] || (set -C; umask 0; : >"$f") 2>/dev/null
[ -f "$f" ] && [ -r "$f" ] && [ ! -L "$f" ] || { echo "hci unleased $f is no plain file that can be read"; exit; }
exec 9<"$f"
n=0 left=
while [ $n -lt 25 ]; do
  if flock -n 9; then
    h=$f.by-$(id -u); trap 'rm -f "$h"' EXIT; trap 'exit 1' HUP INT TERM PIPE
    t=$(mktemp "$f.XXXXXX") && echo "$$ $token $who" >"$t" && chmod 644 "$t" && mv -f "$t" "$h"
    echo hci leased
    while [ "$(timeout SILENT sh -c 'read -r word && echo "$word"' 9<&-)" = on ]; do :; done
    exit
  fi
  for h in "$f".by-*; do
    [ -f "$h" ] && read -r pid theirs said <"$h" && [ -d "/proc/$pid" ] || continue
    [ "$theirs" = "$token" ] || { echo "hci held $theirs $said"; exit; }
    left="$theirs $said"
    [ -O "$h" ] && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF " $token " || continue
    pkill -KILL -P "$pid"; kill -KILL "$pid"
  done
  n=$((n+1)); sleep 0.2 9<&-
done 2>/dev/null
[ -z "$left" ] || { echo "hci held $left"; exit; }
echo "hci nameless $f"
"""


class LeaseError(RuntimeError):
    """Another campaign runs on a host; the message names the host, and who has it since when, or the lock that is held
    without a name. Nothing was touched."""


class Lease:
    """A lease on every node and these VMs that can be reached, taken when the block begins and free when it ends.

    `renew` before anything is done on them: it requires those that could not be reached. `unleased`: host -> why it
    could not be leased at all; Windows hosts are not. `campaign`: whose it is; a lease of the same is taken over, so it
    must be one that nobody else alive can have (`RunDir.holder`).
    """

    def __init__(self, fleet: Fleet, testbed: Testbed, vms: Iterable[Vm], run_dir: str | Path, campaign: str = ""):
        hosts: tuple[Node | Vm, ...] = (*testbed.nodes, *vms)
        self.hosts = tuple(dict.fromkeys(host.name for host in hosts))
        self.unleased = {name: "a Windows host is not leased" for name in self.hosts if name in testbed.windows}
        self._fleet, self._token = fleet, campaign or secrets.token_hex(8)
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        place = f"run directory {Path(run_dir).absolute()}, process {os.getpid()}"
        who = f"{getpass.getuser()}@{socket.gethostname()}, {place}, since {since}"
        script = SCRIPT.replace("SILENT", str(SILENT_S))
        self._argv = ["sh", "-c", script, "hci-lease", _seen(who)]
        self._channels: dict[str, paramiko.Channel] = {}
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="lease", daemon=True)

    def renew(self, required: Collection[str] | None = None) -> None:
        """Take every host that is not held: all of them at first, later those whose connection was lost.

        Parameters
        ----------
        required : hosts that must be had (default: all). Another that cannot be reached is taken as soon as it can be:
            a node that is down costs its counters, and nobody else reaches it either

        Raises
        ------
        LeaseError : somebody else has one; FleetError : one that is required cannot be asked
        """
        lost = [name for name in self.hosts if name not in self.unleased and not self._holds(name)]
        asked = self._fleet.each(lost, self._take, limit_s=3 * CONNECT_S) if lost else {}
        taken = {name: o.value for name, o in asked.items() if o.ok and o.value}
        if taken:
            said = "; ".join(f"{name} {who}" for name, who in taken.items())
            raise LeaseError(f"{said}. Wait for it, or end it there: its lease ends with it")
        need("leasing the hosts", {name: o for name, o in asked.items() if required is None or name in required})

    def _holds(self, name: str) -> bool:
        channel = self._channels.get(name)
        return channel is not None and not (channel.closed or channel.eof_received or channel.exit_status_ready())

    def _take(self, name: str) -> str:
        """Lease a host; by whom it is held, or nothing where it is ours now."""
        channel = self._fleet.session(name, shlex.join([*self._argv, f"{self._token}/{name}"]))
        channel.settimeout(CONNECT_S)
        word, _, rest = _answer(channel).partition(" ")
        token, _, who = rest.partition(" ")
        if word == "leased":
            self._channels[name] = channel
            if self._ended.is_set():  # it came too late for who asked
                channel.close()
        elif word == "unleased":
            self.unleased[name] = rest
        elif word == "nameless":
            return f"has a lock, {rest}, that is held by a process that left no name (`fuser -v {rest}` shows it)"
        elif token.startswith(f"{self._token}/") and token != f"{self._token}/{name}":
            self.unleased[name] = f"the same machine as {token.partition('/')[2]}, which is"
        else:
            return f"is in use by another campaign: {who[:500]}"
        return ""

    def __enter__(self) -> Lease:
        try:
            self.renew(required=())  # preflight says which hosts are not ready, all of them and what else is wrong
        except BaseException:
            self.__exit__()
            raise
        self._beating.start()
        return self

    def __exit__(self, *_) -> None:
        """Return once the hosts are free, so that the next campaign finds them so; one that does not
        answer frees itself."""
        self._ended.set()
        channels = tuple(self._channels.values())  # after Ctrl-C some may still be taken
        for channel in channels:
            with contextlib.suppress(Exception):
                channel.shutdown_write()
        deadline = time.monotonic() + FREED_S
        for channel in channels:
            channel.status_event.wait(max(0.0, deadline - time.monotonic()))
            with contextlib.suppress(Exception):
                channel.close()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            for channel in list(self._channels.values()):
                with contextlib.suppress(Exception):  # a lease that was lost is taken again before the next step
                    channel.sendall(b"on\n")


def _answer(channel: paramiko.Channel) -> str:
    """What follows `hci`, waited for; a login shell may greet before."""
    heard = b""
    while not (found := re.search(rb"^hci (.*)\n", heard, re.MULTILINE)):
        if not (more := channel.recv(4096)):
            raise OSError(" ".join(heard.decode(errors="replace").split()) or "no lease: the connection was lost")
        heard += more
    return _seen(found[1].decode(errors="replace"))


def _seen(text: str) -> str:
    """One line of characters that can be seen: a folder may be called anything."""
    return "".join(c if c.isprintable() else "?" for c in text)


# The fio processes of a VM: which are ours, which take orders from anybody, and which work for a controller that is
# gone.

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
    def runs_for_us(self) -> bool:
        """Started by a launcher of this project (hcilib.drive.launch.session), which ends it as soon as its controller
        is gone."""
        return re.search(r"/hci-\S+/(job\.fio|server)\b", self.command) is not None

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


def end_orphans(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm], patience_s: float = 3.0) -> dict[str, list[int]]:
    """VM -> processes killed: what a controller that died left running, which would share the disks with the next step.

    Ours end by themselves a moment after their connection did, so busy VMs are asked again until patience ends; what is
    there even then is killed: one controller at a time has a testbed. Nobody else's fio is touched.
    """
    killed: dict[str, list[int]] = {}
    deadline, busy = time.monotonic() + patience_s, list(vms)
    while busy:
        asked = fleet.run(FIO_PROCESSES, [vm.name for vm in busy], limit_s=10)
        found = {vm.name: _ours(asked[vm.name].value, vm, testbed) for vm in busy if asked[vm.name].ok}
        busy = [vm for vm in busy if found.get(vm.name)]
        if time.monotonic() >= deadline:
            killed = {vm.name: found[vm.name] for vm in busy}
            fleet.run({name: f"kill -KILL {' '.join(map(str, pids))}" for name, pids in killed.items()}, limit_s=10)
            break
        time.sleep(0.1 * bool(busy))
    return killed


def _ours(text: str, vm: Vm, testbed: Testbed) -> list[int]:
    return [pid for pid, p in parse_processes(sections(text)["processes"], vm, testbed).items() if p.runs_for_us]
