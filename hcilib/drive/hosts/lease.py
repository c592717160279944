"""A host for one campaign at a time: each disk of a plan is leased while a campaign runs.

Two campaigns that share a disk, a VM or a node measure each other, and neither's numbers show it. So a campaign holds
``flock`` on each disk that it may write: a small shell on the host keeps it for as long as it hears from its
controller, and the kernel frees it when that shell ends, whatever ended it. Whoever may write the disk meets that lock,
by whatever testbed file, name, address or account he comes; no path can be taken or removed under it. systemd-udevd
leaves a locked disk alone, so links by id are not renewed meanwhile.

A host without disks of its own (a node) is leased by a lock on a file: root's in /run, where nobody else can put or
lock one, another account's in the first of /run/lock, /var/lock and /tmp that everybody may write to. A bed whose hosts
share one machine says where each of them has its own. A file can be removed: so it is looked at again after locking and
whenever the controller speaks, and a lease that another process shows on its command line counts although the lock
could be had. Nothing needs root.
"""

from __future__ import annotations

import contextlib
import functools
import getpass
import itertools
import os
import re
import secrets
import shlex
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hcilib.drive.hosts.hosts import CONNECT_S, Fleet, Outcome, need
from hcilib.model.testbed import Testbed, Vm

if TYPE_CHECKING:
    import paramiko


BEAT_S, SILENT_S = 15, 90
"""The controller says that it is there every so often; a host that hears nothing for so long (a controller without
power, whose connection nobody closed) frees itself."""
ASK_S = 30.0
FREED_S = 3.0
"""So long the end of a lease is waited for."""

# Arguments: who asks, a token by which a campaign knows its own lease, then what is leased: a disk
# as its number (hexadecimal) and a path, or `file:PATH` and PATH (empty: where the host has a place).
# A lease of the same token, which an outage left behind or which has the same machine under another
# name, is ended: its connection is lost, or its controller is gone, as nobody else has the lock of
# that run directory. Each thing is held by a shell of its own, as dash knows descriptors of one digit.
SCRIPT = r"""
LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/sbin:/sbin; umask 022
who=$1 token=$2; shift 2
group() { read -r s 2>/dev/null <"/proc/$1/stat" || return; s=${s##*) }; set -- $s; echo "$3"; }
own=$(group $$) file= inode=
for d in /run/lock /var/lock /tmp; do case $(ls -ld "$d/." 2>/dev/null) in drwxrwxrwt*) break;; esac; done
[ "$(id -u)" != 0 ] || { d=/run; umask 077; }
command -v flock >/dev/null || { echo 'hci unleased flock (util-linux) is not installed there'; exit; }
# Other leases in which this argument is: their process group, token and owner. The process must have
# that file or disk open, where that can be seen; where it cannot, it says nothing about a disk whose lock is ours.
leases() {
  for p in $(grep -lsF hci-lease /proc/[0-9]*/cmdline); do
    p=${p%/cmdline}; g=$(group "${p#/proc/}")
    [ "$g" ] && [ "$g" != "$own" ] || continue
    case $1 in
      file:*) [ ! -r "$p/fd" ] || case $(readlink "$p/fd/9") in *lease*) ;; *) continue;; esac;;
      "$token") [ -O "$p" ] || continue;;
      *)
        if [ -r "$p/fd" ]; then [ "$(stat -L -c %t:%T "$p/fd/9")" = "$1" ] || continue
        elif [ "$locked" ]; then continue
        fi;;
    esac
    tr '\0\n' '\n ' 2>/dev/null <"$p/cmdline" | g=$g want=$1 awk '
      at && NR == at + 1 {who = $0}
      at && NR == at + 2 {token = $0}
      at && $0 == ENVIRON["want"] {found = 1}
      !at && $0 == "hci-lease" {at = NR}
      END {if (found) print ENVIRON["g"], token, who}'
  done | sort -u
}
# Nobody else has it: our own lease of before may be dying, and udev looks at a disk for a moment.
mine() {
  locked=
  if flock -n 9; then
    locked=yes inode=$(stat -L -c %d:%i /proc/self/fd/9)
    case $1 in file:*) [ "$(stat -c %d:%i "$file" 2>/dev/null)" = "$inode" ] || return;; esac
  fi
  by=$(leases "$1" | grep -v "^[0-9]* $token ")
  other=$(printf '%s' "$by" | grep -v "^[0-9]* ${token%/*}/" | head -n 1)
  [ -z "$other" ] || { echo "hci held ${other#* }"; exit; }
  [ ! "$locked" ] || return 0
  # Under another name of this machine our own campaign asks, too. It has the lease if it has the lock;
  # if both only asked, each would believe that the other has it, and nobody would.
  same=$(printf '%s' "$by" | head -n 1)
  if [ "$same" ] && tr '\0' '\n' 2>/dev/null <"/proc/$(holder)/cmdline" | grep -qF "${token%/*}/"; then
    echo "hci held ${same#* }"; exit
  fi
  flock -n 9
}
holder() {
  i=$(stat -L -c %i /proc/self/fd/9)
  grep -ls "FLOCK.*:$i 0 EOF" /proc/[0-9]*/fdinfo/* | head -n 1 | cut -d / -f 3
}
nameless() {
  p=$(holder)
  by="a process that left no name (root sees it with fuser -v)"
  [ "$p" ] && read -r c <"/proc/$p/comm" && by="$c (process $p)"
  echo "hci nameless $1, that is held by $by"; exit
}
open() {
  case $1 in file:*) ;; *)
    [ -b "$2" ] && (: <"$2") 2>/dev/null || { echo "hci unleased $2 cannot be opened"; exit; }
    exec 9<"$2"
    [ "$1" = "$(stat -L -c %t:%T /proc/self/fd/9)" ] || { echo "hci unleased $2 is another disk now"; exit; }
    return;;
  esac
  [ -e "$2" ] || (set -C; : >"$2") 2>/dev/null
  [ -f "$2" ] && [ ! -L "$2" ] && (: <"$2") 2>/dev/null ||
    { echo "hci unleased $2 is no plain file that can be read: $(ls -ld "$2" 2>&1)"; exit; }
  exec 9<"$2"
}
take() {
  case $1 in file:*) file=${2:-$d/hci-lease}; set -- "$1" "$file";; esac
  open "$1" "$2"; n=0
  until mine "$1"; do
    n=$((n + 1)); [ $n -lt 25 ] || nameless "$2"
    sleep 0.2 9<&-; exec 9<&-; open "$1" "$2"
  done
}
serve() {
  echo hci leased
  while word=$(timeout SILENT sh -c 'read -r word && echo "$word"' 9<&-); do
    case $word in on*) ;; *) exit;; esac
    [ -z "$file" ] || [ "$(stat -c %d:%i "$file" 2>/dev/null)" = "$inode" ] || exit
    echo "hci $word"
  done
}
hold() { [ $# -gt 0 ] || { serve; exit; }; (take "$1" "$2"; shift 2; hold "$@"); }
for left in $(leases "$token" | cut -d ' ' -f 1); do kill -KILL "-$left"; done
hold "$@" 2>/dev/null
"""


class LeaseError(RuntimeError):
    """A host cannot be leased, or another campaign runs on it; the message names the host, and who has it since when,
    or the lock that is held without a name. Nothing was touched."""


class Lease:
    """A lease on every node and these VMs that can be reached, taken when the block begins and free when it ends.

    `renew` before anything is done on them: it requires those that could not be reached. `disks`: asked for the disks
    that a plan may write on these VMs, host -> {number in hexadecimal: path}, or a sentence where they are not known; a
    host without any is leased by a file. `campaign`: whose it is; a lease of the same is taken over, so it must be one
    that nobody else alive can have (`RunDir.holder`).

    `unleased`: host -> why it is not leased; Windows hosts are not, and nobody is where the testbed says
    ``lease: none``. `self.disks`: host -> numbers of those that are held.
    """

    def __init__(
        self,
        fleet: Fleet,
        testbed: Testbed,
        vms: Iterable[Vm],
        run_dir: str | Path,
        campaign: str = "",
        disks: Callable[[Collection[str]], Mapping[str, Mapping[str, str] | str]] = lambda hosts: {},
    ):
        hosts = {host.name: host for host in (*testbed.nodes, *vms)}
        self.hosts = tuple(hosts)
        self.unleased = {name: "a Windows host is not leased" for name in hosts if name in testbed.windows}
        if testbed.lease == "none":
            self.unleased = dict.fromkeys(hosts, "the testbed's file says lease: none")
        self._fleet, self._token, self._disks = fleet, campaign or secrets.token_hex(8), disks
        self._files = {name: testbed.lease_file(host) for name, host in hosts.items()}
        self._vms = {vm.name for vm in testbed.vms}
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        place = f"run directory {Path(run_dir).absolute()}, process {os.getpid()}"
        who = f"{getpass.getuser()}@{socket.gethostname()}, {place}, since {since}"
        script = SCRIPT.replace("SILENT", str(SILENT_S))
        self._argv = ["sh", "-c", script, "hci-lease", _seen(who)]
        self._channels: dict[str, paramiko.Channel] = {}
        self.disks: dict[str, Collection[str]] = {}
        self._words = itertools.count()
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="lease", daemon=True)

    def renew(self, required: Collection[str] | None = None) -> None:
        """Take every host that is not held: all of them at first, later those whose connection or file was lost.

        Parameters
        ----------
        required : hosts that must be had (default: all). Another that cannot be reached is taken as soon as it can be:
            a node that is down costs its counters, and nobody else reaches it either

        Raises
        ------
        LeaseError : somebody else has one, or one cannot be leased; FleetError : one that is required cannot be asked
        """
        mine = [name for name in self.hosts if name not in self.unleased]
        held = self._fleet.each([name for name in mine if self._holds(name)], self._answers, limit_s=2 * CONNECT_S)
        lost = [name for name in mine if name not in held or not held[name].value]
        disks = self._disks([name for name in lost if name in self._vms]) if lost else {}
        take = functools.partial(self._take, disks=disks)
        asked = self._fleet.each(lost, take, limit_s=3 * CONNECT_S) if lost else {}
        taken = {name: o.value for name, o in asked.items() if o.ok and o.value}
        if taken:
            raise LeaseError("; ".join(f"{name} {what}" for name, what in taken.items()))
        need("leasing the hosts", {name: o for name, o in asked.items() if required is None or name in required})

    def release(self, name: str) -> None:
        """Let go of a host whose disks changed, so that `renew` takes those that are there now."""
        if channel := self._channels.pop(name, None):
            channel.close()

    def _holds(self, name: str) -> bool:
        channel = self._channels.get(name)
        return channel is not None and not (channel.closed or channel.eof_received or channel.exit_status_ready())

    def _answers(self, name: str) -> bool:
        """Whether the shell there still has what it leased."""
        word = f"on{next(self._words)}"
        try:
            self._channels[name].sendall(f"{word}\n".encode())
            _answer(self._channels[name], word)
        except OSError:
            with contextlib.suppress(Exception):
                self._channels[name].close()
            return False
        return True

    def _take(self, name: str, disks: Mapping[str, Mapping[str, str] | str]) -> str:
        """Lease a host; why it cannot be ours, or nothing where it is now."""
        found = disks.get(name, {})
        if isinstance(found, str):
            raise OSError(found)
        file = self._files[name]
        places = [part for disk in found.items() for part in disk] or [f"file:{file}", file]
        channel = self._fleet.session(name, shlex.join([*self._argv, f"{self._token}/{name}", *places]))
        channel.settimeout(CONNECT_S)
        word, _, rest = _answer(channel).partition(" ")
        token, _, who = rest.partition(" ")
        if word == "leased":
            self._channels[name], self.disks[name] = channel, tuple(found)
            if self._ended.is_set():  # it came too late for who asked
                channel.close()
        elif word == "held" and token.startswith(f"{self._token}/"):
            self.unleased[name] = f"the same machine as {token.partition('/')[2]}, which is"
        elif word == "held":
            wait = "Wait for it, or end it there: its lease ends with it"
            return f"is in use by another campaign: {who[:500]}. {wait}"
        elif word == "nameless":
            return f"has a lock, {rest}. Wait for its end, or end it there"
        else:
            go_on = "Mend it, or write `lease: none` into the testbed's file: its rows then carry a warning"
            return f"cannot be leased: {rest}. {go_on}"
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
        """Return once the hosts are free, so that the next campaign finds them so; one that does not answer frees
        itself."""
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


def _answer(channel: paramiko.Channel, word: str = ".*") -> str:
    """What follows `hci`, waited for; a login shell may greet before, and an earlier answer may have come late."""
    heard = b""
    said = re.compile(rb"^hci (%s)\n" % word.encode(), re.MULTILINE)
    while not (found := said.search(heard)):
        if not (more := channel.recv(4096)):
            raise OSError(" ".join(heard.decode(errors="replace").split()) or "no lease: the connection was lost")
        heard += more
    return _seen(found[1].decode(errors="replace"))


def _seen(text: str) -> str:
    """One line of characters that can be seen: a folder may be called anything."""
    return "".join(c if c.isprintable() else "?" for c in text)


# Who has leased a machine? Asked of the machine itself, by its processes: a lease is a shell that holds it there.
# The holder's arguments are ..., hci-lease, who, token. An argument may hold line ends, so that these become blanks
# before each argument becomes a line. Where other accounts' processes are hidden, none is no answer.
QUESTION = r"""
cat /proc/1/cmdline >/dev/null || { echo 'its processes are hidden from this account (hidepid of /proc)' >&2; exit 1; }
for f in $(grep -ls hci-lease /proc/[0-9]*/cmdline); do
  tr '\n\000' ' \n' 2>/dev/null <"$f" | {
    while read -r word; do
      [ "$word" = hci-lease ] && read -r who && read -r token && printf 'hci leased %s\n' "$who" && break
    done
  }
done
echo 'hci asked'
"""


def ask(fleet: Fleet, vms: Iterable[str]) -> dict[str, Outcome]:
    """VM -> who has leased it, "" for nobody; not ok where it cannot be known."""
    return {vm: _holders(outcome) for vm, outcome in fleet.run(QUESTION, list(vms), limit_s=ASK_S).items()}


def _holders(outcome: Outcome) -> Outcome:
    if not outcome.ok:
        return replace(outcome, error=outcome.error.rpartition("` ")[2])
    lines = outcome.value.split("\n")  # a login shell may greet before
    if lines[-2:] != ["hci asked", ""]:
        return replace(outcome, ok=False, value=None, error="its answer ends early")
    said = re.findall(r"(?m)^hci leased (.*)$", outcome.value)
    who = sorted({_seen(name)[:500] or "somebody who left no name" for name in said})
    return replace(outcome, value="; ".join(who))
