"""One VM's end of a launch: a shell script that holds one private folder and one fio, and dies with the connection.

The script is talked to over the open channel, a word a line, and answers on its standard error; the end of the channel
is its last word: whatever becomes of the controller or the connection, fio is ended and the folder removed.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcilib.drive.hosts.hosts import CONNECT_S, Clock, clock, explain, need
from hcilib.drive.launch.job import FioError, Launch
from hcilib.model.testbed import Testbed, Vm

if TYPE_CHECKING:
    import paramiko

PLACE = "/tmp"
"""Where a run makes its folder on a VM that is no lab's."""
CLOCK_READS = 3
ENDING_S = 10.0  # beyond the deadline: fio's own time to write its result, and timeout's to kill it
KILLED = {6, 7, 9, 11}
"""Signals that fio does not end by in good order: abort, bus error, kill, segmentation."""
FETCHING_S = 1800.0  # the session's own end, should its controller neither come back nor hang up: logs may be large

# Arguments: parent folder, name, seconds, fio, what names its processes within the folder, folder of the sockets that
# the jobs name (a lab's) or "",
# the prelude, milliseconds between two counts or "".
# Descriptor 3 is the channel's input, once fio may start, since a background command has none; before, it is the
# channel's
# standard error, while the prelude's own is kept. fio's workers leave its process group (setsid): they are found by the
# folder; one may be forked while the others are looked for, and what a job ran before its first I/O may leave a file
# while the folder is removed: both are done until nothing is left, or some seconds where storage holds one.
# What has to outlast the prelude, whose names are its own, begins with hci_ or is set after it.
HEAD = r"""
umask 077
hci_folder=$(mktemp -d "$1/hci-$2.XXXXXX") && cd "$hci_folder" && mkdir logs || exit 1
head -c 65536 /dev/zero 2>/dev/null >room || { echo "$1 is full" >&2; rm -rf "$hci_folder"; exit 1; }
hci_ready=
hci_refuse() { why=$(tail -n 1 said); echo "hci refused ${why:-$1}" >&3; hci_ready=1; exit 1; }
hci_end() {
  [ "$hci_ready" ] || { why=$(tail -n 1 said); echo "hci refused ${why:-its prelude ended it}" >&3; }
  hci_tries=0
  hci_again() { hci_tries=$((hci_tries+1)); [ $hci_tries -le 100 ] && sleep 0.02; }
  while pkill -KILL -f "${hci_folder##*/}/$5" && hci_again; do :; done
  [ ! -p "$hci_folder/gate" ] || exec 9<>"$hci_folder/gate"  # what waits there goes on, and ends with its fio
  cd /
  until rm -rf "$hci_folder" 2>/dev/null || ! hci_again; do :; done
}
exec 3>&2 2>said
trap hci_end EXIT
trap 'exit 1' HUP INT TERM PIPE
[ -z "$6" ] || ln -s "$6"/*.sock .
eval "$7" || hci_refuse "its prelude failed"
hci_ready=1 d=$hci_folder seconds=$3 fio=$4 mark="${hci_folder##*/}/$5" every=$8
exec 2>&3 3<&0
echo "hci folder $d" >&2
while read -r word <&3; do
  case $word in clock) echo "hci clock $(date +%s.%N)" >&2;; go) break;; esac
done
[ "$word" = go ] || exit 1
"""


@dataclass
class Session:
    """One VM's script, waiting or at work. Not a table: an open channel and what has been read from it."""

    vm: Vm
    channel: paramiko.Channel
    mark: str = ""
    folder: str = ""
    clock: Clock = (0.0, 0.0)
    heard: bytes = b""
    returncode: int | None = None
    hurt: str = ""
    ended_s: float = float("nan")

    def say(self, word: str) -> None:
        self.channel.sendall(word.encode() + b"\n")

    def answer(self, word: str) -> str:
        """What follows `hci <word>`, waited for. Other lines are the login shell's own; they matter if nothing follows
        them."""
        self.channel.settimeout(CONNECT_S)
        while not (found := re.search(rf"^hci {word} (.*)\n".encode(), self.heard, re.MULTILINE)):
            if refused := re.search(rb"^hci refused (.*)\n", self.heard, re.MULTILINE):
                raise OSError(refused[1].decode(errors="replace"))
            if not (more := self.channel.recv_stderr(4096)):
                said = " ".join(self.heard.decode(errors="replace").split())
                raise OSError(said or "the connection was lost, or a signal ended what ran there")
            self.heard += more
        self.heard = self.heard[found.end() :]
        return found[1].decode(errors="replace")

    def late(self, deadline_s: float) -> bool:
        """Whether its deadline ended fio; timeout says 137 for a fio that somebody else killed as well."""
        return self.returncode in (None, 124) or (self.returncode == 137 and self.ended_s >= deadline_s)

    def look(self) -> None:
        """Whether fio has ended there; OSError if it never can be known."""
        channel = self.channel
        told = self.heard or channel.recv_stderr_ready() or channel.eof_received or channel.closed
        if self.returncode is None and told:
            code, _, full = self.answer("ended").partition(" ")
            self.returncode, self.ended_s = int(code), time.time()
            by = self.returncode - 128
            self.hurt = f"{full} is full" if full else f"fio was killed (signal {by})" if by in KILLED else ""


@contextlib.contextmanager
def sessions(of: Launch, script: str, process: str, limit_s: float, count_ms: str = "") -> Iterator[dict[str, Session]]:
    """VM -> its script, its prelude done, ready for its release; its fio is ended and its folder removed when the block
    ends.

    Parameters
    ----------
    script : what follows `HEAD`, once ``go`` was said
    limit_s : after which fio is ended there, should nobody here do it
    process : what stands behind the private folder's name in the command line of every process of this fio
    """
    by_name = {vm.name: vm for vm in of.vms}
    if of.readonly:
        script = script.replace('"$fio"', '"$fio" --readonly')
    opened: dict[str, Session] = {}
    over = threading.Event()

    def prepare(name: str) -> Session:
        argv = command(by_name[name], of.testbed, limit_s, script, process, of.preludes.get(name, ""), count_ms)
        session = opened[name] = Session(by_name[name], of.fleet.session(name, shlex.join(argv)))
        if over.is_set():  # Ctrl-C, or the others' deadline, came while it was opened
            session.channel.close()
        session.folder = session.answer("folder")
        session.mark = f"{session.folder.rpartition('/')[2]}/{process}"
        of.fleet.put_now(name, f"{session.folder}/job.fio", of.jobs[name].encode())
        session.clock = min((_ask_clock(session) for _ in range(CLOCK_READS)), key=lambda c: c[1])
        return session

    try:
        prepared = need("preparing fio", of.fleet.each(by_name, prepare, limit_s=4 * CONNECT_S))
        of.judged()
        yield prepared
    finally:
        over.set()
        for session in tuple(opened.values()):  # who was not waited for may still be adding to them
            with contextlib.suppress(Exception):
                session.channel.close()


def command(
    vm: Vm, testbed: Testbed, limit_s: float, script: str, process: str, prelude: str = "", count_ms: str = ""
) -> list[str]:
    """What is run on the VM, under a timeout of its own, should even the script hang: the deadline, and time to fetch
    what fio left."""
    root, limit = testbed.lab_root or "", f"{limit_s:g}"
    given = [root or PLACE, vm.target, limit, testbed.fio.binary, process, root, prelude, count_ms]
    return ["timeout", "-k", "5", f"{limit_s + FETCHING_S:g}", "sh", "-c", HEAD + script, "hci", *given]


def _ask_clock(session: Session) -> Clock:
    asked = time.time()
    session.say("clock")
    return clock(session.answer("clock"), asked, time.time())


@contextlib.contextmanager
def naming(session: Session) -> Iterator[None]:
    """An error in the block becomes a FioError that names the VM."""
    try:
        yield
    except Exception as error:
        raise FioError(f"{session.vm.name}: while fio ran: {explain(error)}") from error
