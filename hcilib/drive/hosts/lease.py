"""Who holds a host: one process on each, which holds its disks for one campaign and is asked over one channel.

The process is `hcilib.drive.keeper`, sent as it stands. What it holds is free when its channel ends, however that comes
about: the controller's end, its machine's, the network's.
"""

from __future__ import annotations

import contextlib
import functools
import getpass
import itertools
import json
import os
import queue
import re
import secrets
import shlex
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hcilib.drive import keeper
from hcilib.drive.hosts.hosts import ANSWER_S, CONNECT_S, Clock, Fleet, Outcome, clock, need
from hcilib.model.testbed import Testbed, Vm

if TYPE_CHECKING:
    import paramiko

BEAT_S, SILENT_S = 15, 90
"""The controller says that it is there every so often; a host that hears nothing for so long (a controller without
power, whose connection nobody closed) frees itself."""
ASK_S, FREED_S = 30.0, 10.0
CLOCK_READS = 3
MISSING = "echo 'no python3 there, which holds its disks: install it' >&2; exit 1"
SOURCE = Path(keeper.__file__).read_text(encoding="utf-8")
NOBODY: Callable[[Collection[str]], Mapping[str, Mapping[str, Place] | str]] = lambda hosts: {}  # noqa: E731


class Place(NamedTuple):
    """Where a disk is on its host: its number (``8:16``), and a path that leads there."""

    number: str
    path: str


class LeaseError(RuntimeError):
    """A host cannot be leased, or another campaign runs on it; the message names the host, and who has it since when,
    or the lock that is held without a name. Nothing was touched."""


class Keeper:
    """The process on one host, as its controller talks to it; a thread hears what it says."""

    def __init__(self, host: str, channel: paramiko.Channel):
        self.host, self.channel = host, channel
        self._ids, self._sending = itertools.count(1), threading.Lock()
        self._heard: dict[Any, queue.SimpleQueue] = {}
        self._said = b""
        self.lost = False
        threading.Thread(target=self._listen, name=f"keeper of {host}", daemon=True).start()

    def heard(self, of: Any) -> queue.SimpleQueue:
        """What it says of one request (its number), or of a disk's stamped blocks (the disk); None: nothing more."""
        said = self._heard.setdefault(of, queue.SimpleQueue())
        if self.lost and said.empty():  # who asks only now would wait for an answer that never comes
            said.put(None)
        return said

    def send(self, do: str, **given: Any) -> int:
        """Ask for something; return the number of the request."""
        number = next(self._ids)
        self.heard(number)
        with self._sending:
            self.channel.sendall(json.dumps({"id": number, "do": do, **given}).encode() + b"\n")
        return number

    def fresh(self, of: Any) -> queue.SimpleQueue:
        """The same from now on."""
        self._heard[of] = queue.SimpleQueue()
        return self.heard(of)

    def has(self, number: int) -> bool:
        """Whether a request has been answered."""
        return not self.heard(number).empty()

    def ask(self, do: str, limit_s: float = CONNECT_S, **given: Any) -> Any:
        """Return what is answered; OSError of what cannot be done, or where the connection is lost."""
        return self.answer(self.send(do, **given), limit_s)

    def answer(self, number: int, limit_s: float) -> Any:
        """The same of what was asked before."""
        try:
            said = self.heard(number).get(timeout=limit_s)
        except queue.Empty:
            raise TimeoutError(f"no answer within {limit_s:g} s") from None
        if said is None:
            raise OSError(self.why_lost())
        if "answer" not in said and "word" not in said:
            raise OSError(said.get("error") or said["gone"])
        return said.get("answer", said)

    def why_lost(self) -> str:
        """Say why it says no more."""
        with contextlib.suppress(Exception):
            self.channel.settimeout(1)
            self._said += self.channel.recv_stderr(4096)
        said = " ".join(self._said.decode(errors="replace").split())
        return said[-400:] or "the connection was lost, or a signal ended what ran there"

    def clock(self) -> Clock:
        """Compare the host's clock with ours."""

        def once() -> Clock:
            asked = time.time()
            return clock(str(self.ask("here")), asked, time.time())

        return min((once() for _ in range(CLOCK_READS)), key=lambda read: read[1])

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.channel.close()

    def _listen(self) -> None:
        heard = b""
        with contextlib.suppress(Exception):
            while piece := self.channel.recv(65536):
                *lines, heard = (heard + piece).split(b"\n")
                for line in lines:
                    _, mark, answer = line.partition(b"hci {")  # a login shell may greet before, without an end of line
                    if mark:
                        said = json.loads(b"{" + answer)
                        of = said["disk"] if said.get("event") == "stamped" else said.get("id", 0)
                        self.heard(of).put(said)
                    else:
                        self._said = line
        self.lost = True
        for one in list(self._heard.values()):
            one.put(None)


class Lease:
    """A lease on every node and these VMs that can be reached, taken when the block begins and free when it ends.

    `renew` before anything is done on them: it requires those that could not be reached. `disks`: asked for the disks
    that a plan may use on these VMs, host -> {serial: `Place`}, or a sentence where they are not known; a host without
    any is leased by a lock. `campaign`: whose it is; a lease of the same is taken over, so it must be one that nobody
    else alive can have (`RunDir.holder`). `reading`: the disks are only read, and others may use them. `noting`: for
    one look: what somebody else has is noted in `refused`, as any other disk that is not held.

    `unleased`: host -> why it is not leased; Windows hosts are not, and nobody is where the testbed says
    ``lease: none``. `paths`: VM -> serial -> what fio opens. `refused`: (VM, serial) -> (word, what) of a disk that is
    not held. `ended`: host -> processes of this campaign that an earlier controller had left there.
    """

    def __init__(
        self,
        fleet: Fleet,
        testbed: Testbed,
        vms: Iterable[Vm],
        run_dir: str | Path,
        campaign: str = "",
        disks: Callable[[Collection[str]], Mapping[str, Mapping[str, Place] | str]] = NOBODY,
        reading: bool = False,
        noting: bool = False,
    ):
        vms = tuple(vms)
        hosts = {host.name: host for host in (*testbed.nodes, *vms)}
        self._vms = {vm.name for vm in vms} - testbed.windows
        self.unleased = {name: "a Windows host is not leased" for name in hosts if name in testbed.windows}
        if testbed.lease == "none":
            self.unleased |= dict.fromkeys(hosts, "the testbed's file says lease: none")
        self.hosts = tuple(name for name in hosts if name in self._vms or name not in self.unleased)
        self._fleet, self._token, self._disks = fleet, campaign or secrets.token_hex(8), disks
        self._locks = {name: testbed.lock_of(host) for name, host in hosts.items() if name not in self.unleased}
        self._mode, self._python, self._noting = "read" if reading else "write", testbed.python, noting
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        place = f"run directory {Path(run_dir).absolute()}, process {os.getpid()}"
        self._who = _seen(f"{getpass.getuser()}@{socket.gethostname()}, {place}, since {since}")
        self._keepers: dict[str, Keeper] = {}
        self._untaken: dict[str, str] = {}
        self.paths: dict[str, dict[str, str]] = {}
        self.refused: dict[tuple[str, str], tuple[str, str]] = {}
        self.ended: dict[str, list[int]] = {}
        self._over = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="lease", daemon=True)

    def renew(self, required: Collection[str] | None = None) -> None:
        """Take every host that is not held: all of them at first, later those whose connection was lost.

        Parameters
        ----------
        required : hosts that must be had (default: all). Another that cannot be reached is taken as soon as it can be:
            a node that is down costs its counters, and nobody else reaches it either

        Raises
        ------
        LeaseError : somebody else has one, or one cannot be leased; FleetError : one that is required cannot be asked
        """
        held = self._fleet.each([name for name in self.hosts if self._holds(name)], self._answers, 2 * CONNECT_S)
        lost = [name for name in self.hosts if name not in held or not held[name].value]
        disks = self._disks([name for name in lost if name in self._vms]) if lost else {}
        take = functools.partial(self._take, disks=disks)
        asked = self._fleet.each(lost, take, limit_s=3 * CONNECT_S) if lost else {}
        self._untaken |= {name: o.error for name, o in asked.items() if not o.ok}
        taken = {name: o.value for name, o in asked.items() if o.ok and o.value}
        if taken:
            raise LeaseError("; ".join(f"{name} {what}" for name, what in taken.items()))
        need("leasing the hosts", {name: o for name, o in asked.items() if required is None or name in required})

    @property
    def held(self) -> set[tuple[str, str]]:
        """(VM, serial) of every disk that is held."""
        return {(vm, serial) for vm, own in self.paths.items() for serial in own if self._holds(vm)}

    def release(self, name: str) -> None:
        """Let go of a host whose disks changed, so that `renew` takes those that are there now."""
        if held := self._keepers.pop(name, None):
            held.close()

    def keeper(self, name: str) -> Keeper:
        """The process that holds a host; OSError where there is none."""
        if not self._holds(name):
            why = "the connection was lost" if name in self._keepers else self._untaken.get(name, "it was not asked")
            raise OSError(f"nothing holds its disks: {why}")
        return self._keepers[name]

    def take(self, host: str, key: str, path: str, mode: str) -> None:
        """Open a device or an image that is neither held nor locked; OSError where it cannot be."""
        found = self.keeper(host).ask("take", given={key: [path, path, mode]})
        if found["word"] != "leased":
            raise OSError(found["what"])

    def ask(
        self, do: str, given: Mapping[str, Mapping[str, Mapping]], limit_s: float = ANSWER_S
    ) -> dict[tuple[str, str], Any]:
        """Ask disks, VM -> serial -> what is given, all at once: (VM, serial) -> its answer, or the OSError that says
        why there is none. A disk that hangs keeps nobody else waiting."""
        deadline = time.monotonic() + limit_s
        numbers: dict[str, int] = {}
        found: dict[tuple[str, str], Any] = {}
        for vm, own in given.items():
            try:
                numbers[vm] = self.keeper(vm).send(do, disks=own)
            except Exception as error:
                found |= {(vm, serial): OSError(str(error)) for serial in own}
        for vm, number in numbers.items():
            waiting = set(given[vm])
            while waiting:
                try:
                    said = self._keepers[vm].heard(number).get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    said = {"error": f"it answers nothing within {limit_s:g} s"}
                if said is None:
                    said = {"error": self._keepers[vm].why_lost()}
                for serial in [said["disk"]] if "disk" in said else list(waiting):
                    wrong = said.get("error", said.get("gone"))
                    found[vm, serial] = said["answer"] if "answer" in said else OSError(wrong)
                    waiting.discard(serial)
        return found

    def _holds(self, name: str) -> bool:
        return name in self._keepers and not self._keepers[name].lost

    def _answers(self, name: str) -> bool:
        """Whether the process there still has what it holds."""
        try:
            self._keepers[name].ask("here")
        except OSError:
            self._keepers[name].close()
            return False
        return True

    def _take(self, name: str, disks: Mapping[str, Mapping[str, Place] | str]) -> str:
        """Lease a host; why it cannot be ours, or nothing where it is now."""
        found = disks.get(name, {})
        if isinstance(found, str):
            raise OSError(found)
        places = [word for serial, place in found.items() for word in (serial, *place, self._mode)]
        if not found and name in self._locks:
            places = ["", self._locks[name], self._locks[name], "lock"]
        argv = ["-c", SOURCE, "hci-lease", self._who, f"{self._token}/{name}", str(SILENT_S), *places]
        held = Keeper(name, self._fleet.session(name, by_python(self._python, argv, MISSING)))
        first = held.answer(0, 2 * CONNECT_S)
        self._keepers[name] = held
        if self._over.is_set():  # it came too late for who asked
            held.close()
        if first["ended"]:
            self.ended[name] = first["ended"]
        self.paths[name] = {key: own["path"] for key, own in first["disks"].items() if "path" in own}
        for serial, own in first["disks"].items():
            self.refused.pop((name, serial), None)
            why = "" if own["word"] == "leased" else self._not_ours(name, serial, own["word"], own["what"])
            if why and self._noting:
                self.refused[name, serial] = "held", why
            elif why:
                held.close()
                return why
        return ""

    def _not_ours(self, name: str, serial: str, word: str, what: str) -> str:
        """Why a host is somebody else's; nothing where the guard has to say what its disk is."""
        token, _, who = what.partition(" ")
        campaign, _, other = token.rpartition("/")
        if word == "held" and campaign == self._token and other != name:
            self.unleased[name] = f"the same machine as {other}, which is"
        elif word == "held":
            wait = "Wait for it, or end it there: its lease ends with it"
            return f"is in use by another campaign: {_seen(who)[:500]}. {wait}"
        elif word == "nameless":
            return f"has a lock, {_seen(what)}. Wait for its end, or end it there"
        elif not serial:
            go_on = "Mend it, or write `lease: none` into the testbed's file: its rows then carry a warning"
            return f"cannot be leased: {_seen(what)}. {go_on}"
        else:
            self.refused[name, serial] = word, _seen(what)
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
        self._over.set()
        keepers = tuple(self._keepers.values())  # after Ctrl-C some may still be taken
        for held in keepers:
            with contextlib.suppress(Exception):
                held.channel.shutdown_write()
        deadline = time.monotonic() + FREED_S
        for held in keepers:
            held.channel.status_event.wait(max(0.0, deadline - time.monotonic()))
            held.close()

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            for held in list(self._keepers.values()):
                with contextlib.suppress(Exception):  # a lease that was lost is taken again before the next step
                    held.send("here")


def by_python(name: str, argv: Iterable[str], otherwise: str = "") -> str:
    """A command that becomes the host's Python, which has another place where it is the system's own."""
    tries = f"for p in {shlex.quote(name)} /usr/libexec/platform-python"
    command = f"{tries}; do command -v $p >/dev/null && exec $p {shlex.join(argv)}; done; {otherwise}"
    return f"exec sh -c {shlex.quote(command)}"


def _seen(text: str) -> str:
    """One line of characters that can be seen: a folder may be called anything."""
    return "".join(c if c.isprintable() else "?" for c in text)


# Who has leased a machine? Asked of the machine itself, by its processes: a lease is a process that holds it there.
# Its arguments are ..., hci-lease, who, token. An argument may hold line ends, so that these become blanks before each
# argument becomes a line. Where other accounts' processes are hidden, none is no answer.
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
    lines = outcome.value.split("\n")
    if lines[-2:] != ["hci asked", ""]:
        return replace(outcome, ok=False, value=None, error="its answer ends early")
    said = re.findall(r"(?m)^hci leased (.*)$", outcome.value)
    who = sorted({_seen(name)[:500] or "somebody who left no name" for name in said})
    return replace(outcome, value="; ".join(who))
