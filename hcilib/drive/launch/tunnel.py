"""fio servers on the VMs' own loopback, each reached through its VM's SSH connection.

A fio server has no authentication and runs whatever it is sent (TRAPS section 2), so none listens on a network. On the controller
every VM has a listener on a loopback address of its own, by which fio's client and its log files tell the VMs apart.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import paramiko

from hcilib.drive.hosts import processes
from hcilib.drive.hosts.hosts import Fleet, Outcome, explain
from hcilib.drive.launch import fio
from hcilib.testbed import Testbed, Vm

BLOCKS = 32  # tries for a block of loopback addresses that nobody uses
CHUNK = 65536
PROHIBITED = 1  # sshd's reason for not opening a channel, in RFC 4254


@dataclass(frozen=True)
class Reached:
    """The servers of a step. `places`: VM -> (address, port) on the controller; `lost`: VM -> what became of the way to its
    server, filled in while fio runs: the client may say nothing, or die of SIGPIPE without a word."""

    places: Mapping[str, tuple[str, int]]
    lost: dict[str, str] = field(default_factory=dict)

    @property
    def faults(self) -> tuple[str, ...]:
        """A sentence for every VM that was lost on the way."""
        return tuple(f"{name}: {why}" for name, why in dict(self.lost).items())  # a copy: it may grow meanwhile


@contextlib.contextmanager
def servers(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm], limit_s: float) -> Iterator[Reached]:
    """Start a server on every VM and listen for it here while the block runs.

    The servers are killed at the end of the block, by `timeout` on the VM at the latest.
    """
    there = {vm.name: _there(testbed, vm) for vm in vms}
    try:
        _start(fleet, testbed, vms, limit_s)
        with _listeners(fleet, testbed, there) as reached:
            yield reached
    finally:
        _kill(fleet, testbed, vms)


def end_stuck(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm]) -> list[str]:
    """As hcilib.drive.launch.fio.end_stuck, of these servers."""
    bound = [_as_bound(vm, testbed) for vm in vms]
    return fio.end_stuck(fleet, testbed, bound, lambda up, left: _wait(fleet, testbed, up, left))


def _there(testbed: Testbed, vm: Vm) -> tuple[str, int]:
    """Where the VM's server listens, on its own loopback. Its place in the testbed is in the address, so that VMs that share a
    kernel do not share a port: fio sets SO_REUSEPORT, and a second server there would silently take half the connections."""
    return f"127.250.{testbed.vms.index(vm) // 250}.{testbed.vms.index(vm) % 250 + 1}", testbed.fio.port


def _as_bound(vm: Vm, testbed: Testbed) -> Vm:
    return vm.model_copy(update={"address": _there(testbed, vm)[0]})


def _start(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm], limit_s: float) -> None:
    bound = [_as_bound(vm, testbed) for vm in vms]
    fio.kill_servers(fleet, testbed, bound)  # one that a dead controller left would take some of the connections
    _require_free(fleet, testbed, vms)
    fio.start_servers(fleet, testbed, bound, limit_s, lambda up, left: _wait(fleet, testbed, up, left))


def _kill(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm]) -> None:
    fio.kill_servers(fleet, testbed, [_as_bound(vm, testbed) for vm in vms])


def _require_free(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm]) -> None:
    """FioError where no server can be reached, or something else has its port: the client would wait for that until the deadline.

    As in preflight, a fio server that is not ours is let be, e.g. one on all addresses: ours listens beside it.
    """
    bound = {vm.name: _as_bound(vm, testbed) for vm in vms}
    asked = _ask(fleet, testbed, list(bound.values()))
    wrong = {name: o.error for name, o in asked.items() if not o.ok}
    held = [vm for vm in vms if asked[vm.name].value]
    strange = {vm.name for vm in held} - processes.serving(fleet, testbed, held)
    asked = _ask(fleet, testbed, [bound[name] for name in strange])  # again: one of ours may have been about to die
    wrong |= {name: "something else listens there: free the port or set the testbed's fio.port"
              for name, o in asked.items() if o.value}  # fmt: skip
    if wrong:
        raise fio.FioError("no fio server on " + "; ".join(
            f"{name} ({bound[name].target}:{testbed.fio.port}): {why}" for name, why in wrong.items()))  # fmt: skip


def _wait(fleet: Fleet, testbed: Testbed, up: bool, vms: Sequence[Vm]) -> list[Vm]:
    """The VMs whose servers do not (or still) answer, asked through SSH, when patience ends."""
    deadline, left = time.monotonic() + fio.PATIENCE_S, list(vms)
    while left:
        asked = _ask(fleet, testbed, left)
        left = [vm for vm in left if asked[vm.name].value is not up]
        if time.monotonic() >= deadline:
            break
        time.sleep(0.02)
    return left


def _ask(fleet: Fleet, testbed: Testbed, bound: Sequence[Vm]) -> dict[str, Outcome]:
    """Whether something answers where each server listens, or is to listen."""
    addresses = {vm.name: vm.target for vm in bound}
    return fleet.each(addresses, lambda name: _answers(fleet, name, addresses[name], testbed.fio.port), limit_s=10)


def _answers(fleet: Fleet, name: str, address: str, port: int) -> bool:
    try:
        fleet.tunnel(name, address, port).close()
    except paramiko.ChannelException as error:
        if error.code == PROHIBITED:
            raise fio.FioError("its sshd forbids the way there: set AllowTcpForwarding local in its sshd_config, or the "
                               "testbed's fio.launcher to per-host") from error  # fmt: skip
        return False
    return True


@contextlib.contextmanager
def _listeners(fleet: Fleet, testbed: Testbed, there: dict[str, tuple[str, int]]) -> Iterator[Reached]:
    with contextlib.ExitStack() as stack:
        bound = _bind(testbed, list(there), stack)
        reached = Reached({name: listener.getsockname() for name, listener in bound.items()})
        for name, listener in bound.items():
            given = (fleet, name, listener, there[name], reached.lost)
            threading.Thread(target=_accept, args=given, daemon=True, name=f"tunnel {name}").start()
        try:
            yield reached
        finally:
            for listener in bound.values():  # closed alone, a socket stays bound as long as somebody waits in accept
                listener.shutdown(socket.SHUT_RDWR)


def _bind(testbed: Testbed, names: Sequence[str], stack: contextlib.ExitStack) -> dict[str, socket.socket]:
    """A listener a VM in the first free block; the same block from step to step, so that a VM keeps its address in the tables."""
    first = zlib.crc32(testbed.digest.encode())
    order = {vm.name: i for i, vm in enumerate(testbed.vms)}
    for block in range(first, first + BLOCKS):
        trial = contextlib.ExitStack()
        try:
            found = {}
            for name in names:
                listener = found[name] = trial.enter_context(socket.socket())
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(
                    (f"127.{200 + block % 50}.{order[name] // 250}.{order[name] % 250 + 1}", testbed.fio.port)
                )
                listener.listen(8)
        except OSError as error:
            trial.close()
            reason = error
            continue
        stack.push(trial)
        return found
    raise fio.FioError(
        f"no loopback address on the controller could be listened on at port {testbed.fio.port}: {reason}; "
        "free the port or set the testbed's fio.port"
    )


def _accept(fleet: Fleet, name: str, listener: socket.socket, there: tuple[str, int], lost: dict[str, str]) -> None:
    """Until the listener is closed: one connection of fio's client is one connection of the VM to its own server."""
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        try:
            far = fleet.tunnel(name, *there)
        except Exception as error:
            lost[name] = f"its fio server could not be reached through SSH: {explain(error)}"
            near.close()
            continue
        for source, sink, ended in ((near, far, None), (far, near, lambda far=far: _note_loss(far, name, lost))):
            threading.Thread(target=_pump, args=(source, sink, ended), daemon=True).start()


def _note_loss(far: paramiko.Channel, name: str, lost: dict[str, str]) -> None:
    """A server that ends its connection has sshd say so; a connection that breaks says nothing."""
    if not far.eof_received:
        lost[name] = "its SSH connection was lost while fio ran"


def _pump(source, sink, ended: Callable[[], None] | None) -> None:
    """Bytes one way until either end closes; then both are closed, as a server that is gone must be seen at once.

    `ended`: called when it was the source that closed.
    """
    with contextlib.suppress(OSError, EOFError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
        if ended:
            ended()
    for end in (source, sink):
        with contextlib.suppress(Exception):
            end.shutdown(socket.SHUT_RDWR)  # close alone sends nothing while the other thread still reads
        with contextlib.suppress(Exception):
            end.close()
