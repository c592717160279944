"""Outages of a lab's hosts, disks, memory, room and health, each begun and healed by the caller: used by
test_outages.py and bench/outages.py.

Every one is of vm2 of two, or of the node that serves its disks.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from injections import CALM_S, HURT, MIRROR, everybody, hurt, send, sshd, sshd_argv, started, tree
from probes import processes, until

from hcilab.supervisor import descendants
from hcilib.model.system import Check, System
from hcilib.model.testbed import Testbed


@dataclass(frozen=True)
class Cut:
    """A testbed, and how an outage of `host` begins and is healed."""

    bed: Testbed
    host: str
    begin: Callable[[], None]
    heal: Callable[[], None]
    system: System = MIRROR


@contextlib.contextmanager
def sshd_away(bed: Testbed) -> Iterator[Cut]:
    """Its sshd and all its sessions are killed, and started again."""
    argv = sshd_argv(bed)
    with contextlib.ExitStack() as again:
        start = lambda: again.enter_context(started(argv, bed))  # noqa: E731
        yield Cut(bed, HURT, lambda: send(sshd(bed), signal.SIGKILL), start)


class Link:
    """A way to a host through this process: cut, nothing comes through and no end sees the other's.

    `forget` drops what was connected before for good, as a firewall does that was restarted.
    """

    def __init__(self, address: str, port: int):
        self.to, self.whole, self._sockets = (address, port), threading.Event(), []
        self.forgotten: set[socket.socket] = set()
        self.whole.set()
        self._listener = socket.create_server((address, 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.whole.wait()
                with contextlib.suppress(OSError):
                    far = socket.create_connection(self.to)
                    self._sockets += [near, far]
                    for one, other in ((near, far), (far, near)):
                        threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        data = b"x"
        with contextlib.suppress(OSError):
            while data:
                data = one.recv(65536)
                self.whole.wait()
                if one in self.forgotten:
                    return
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def forget(self) -> None:
        self.forgotten |= set(self._sockets)
        self.whole.set()

    def close(self) -> None:
        for end in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self.whole.set()


@contextlib.contextmanager
def link_cut(bed: Testbed, host: str = HURT, forget: bool = False) -> Iterator[Cut]:
    """Nothing comes through to the host; with `forget`, no connection from before ever does."""
    own = next(h for h in (*bed.nodes, *bed.vms) if h.name == host)
    link, known = Link(own.address, own.port), Path(bed.lab_root) / "known_hosts.link"
    lines = Path(bed.known_hosts).read_text()
    there, here = f"[{own.address}]:{own.port} ", f"[{own.address}]:{link.port} "
    known.write_text(lines + "".join(here + key + "\n" for key in re.findall(f"(?m)^{re.escape(there)}(.*)$", lines)))

    def through(hosts):
        return tuple(h.model_copy(update={"port": link.port}) if h is own else h for h in hosts)

    changed = {"nodes": through(bed.nodes), "vms": through(bed.vms), "known_hosts": str(known)}
    with contextlib.closing(link):
        yield Cut(bed.model_copy(update=changed), host, link.whole.clear, link.forget if forget else link.whole.set)


@contextlib.contextmanager
def vm_frozen(bed: Testbed) -> Iterator[Cut]:
    """Every process of the VM stands still: its sshd, its sessions, its fio."""
    with _frozen(bed, HURT, lambda: {*sshd(bed), *_sessions(bed, HURT)}) as cut:
        yield cut


@contextlib.contextmanager
def node_frozen(bed: Testbed) -> Iterator[Cut]:
    """Every process of the node of vm2 stands still: its sshd, its replicas, the front of its VMs' disks."""
    node = hurt(bed).node
    parts = (f"{node}.sshd", f"HCILAB_HOST={node}", f"{node}.sock", f"/{node} ", f"dir={bed.lab_root}/{node}")

    def own() -> set[int]:
        ours = processes(bed.lab_root)
        found = {pid for pid, command in ours.items() if any(part in f"{command} " for part in parts)}
        return {*found, *_sessions(bed, node), *(child for pid in found for child in descendants(pid))}

    with _frozen(bed, node, own) as cut:
        yield cut


def _sessions(bed: Testbed, host: str) -> set[int]:
    """What runs on a host of this lab. Another lab on this machine has a host of the same name."""
    return processes(f"HCILAB_HOST={host}").keys() & processes(bed.lab_root).keys()


@contextlib.contextmanager
def _frozen(bed: Testbed, host: str, own: Callable[[], set[int]]) -> Iterator[Cut]:
    stopped: set[int] = set()

    def stop() -> None:
        stopped.update(own())
        send(stopped, signal.SIGSTOP)

    try:
        yield Cut(bed, host, stop, lambda: send(stopped, signal.SIGCONT))
    finally:
        send(stopped, signal.SIGCONT)


@contextlib.contextmanager
def disk_away(bed: Testbed) -> Iterator[Cut]:
    """What serves the VM's disks on its node is killed, and started again as it was."""
    mark = f"{hurt(bed).node}.sock"
    [(pid, _)] = [one for one in processes(bed.lab_root).items() if "qemu-storage-daemon" in one[1] and mark in one[1]]
    argv, environ = ([part.decode() for part in Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0") if part]
                     for file in ("cmdline", "environ"))  # fmt: skip
    how = {"cwd": os.readlink(f"/proc/{pid}/cwd"), "env": dict(one.split("=", 1) for one in environ)}
    started: list[subprocess.Popen] = []
    socket_file, said = Path(bed.lab_root) / mark, Path(bed.lab_root) / f"{mark}.again"

    def heal() -> None:
        socket_file.unlink(missing_ok=True)
        with said.open("w") as stderr:
            started.append(subprocess.Popen(argv, **how, stdout=subprocess.DEVNULL, stderr=stderr))
        assert until(socket_file.exists, 20), f"the disks are not served again: {said.read_text()}"

    def begin() -> None:
        """Once its replies are there: nbdkit 1.32 fails an assertion where a client goes amid them."""
        send([pid], signal.SIGSTOP)
        time.sleep(50 * CALM_S)
        send([pid], signal.SIGKILL)

    try:
        yield Cut(bed, HURT, begin, heal)
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextlib.contextmanager
def starved(bed: Testbed, what: int, most: int) -> Iterator[Cut]:
    """The VM has no memory, or no room for a file: so says its kernel to all that starts there, and fio is killed."""
    before = resource.getrlimit(what)

    def limit(to: int) -> None:
        for pid in {*sshd(bed), *_sessions(bed, HURT)}:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, what, (to, before[1]))

    def begin() -> None:
        limit(most)
        send(everybody(tree(bed, hurt(bed))), signal.SIGKILL)

    try:
        yield Cut(bed, HURT, begin, lambda: limit(before[0]))
    finally:
        limit(before[0])


@contextlib.contextmanager
def degraded(bed: Testbed) -> Iterator[Cut]:
    """The replicas on the VM's node stand still, and the system says so when it is asked."""
    node = hurt(bed).node
    run = f'ps -wweo stat=,args= | grep -v ^T | grep -c "[n]bdkit.*dir={bed.lab_root}/$HCILAB_HOST" || true'
    asked = MIRROR.model_copy(update={"checks": {"health": Check(run=run, expect="^1$")}})
    own = lambda: {pid for pid, said in processes(f"dir={bed.lab_root}/{node}").items() if "nbdkit" in said}  # noqa: E731
    with _frozen(bed, MIRROR.name, own) as cut:
        yield replace(cut, system=asked)


CUTS = {
    "sshd": sshd_away,
    "link": link_cut,
    "vm": vm_frozen,
    "node": node_frozen,
    "disk": disk_away,
    "memory": partial(starved, what=resource.RLIMIT_AS, most=64 * 2**20),
    "tmp": partial(starved, what=resource.RLIMIT_FSIZE, most=0),
    "health": degraded,
}
