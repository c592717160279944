"""fio servers on the VMs' own loopback, each reached through its VM's SSH connection.

A fio server has no authentication and runs whatever it is sent (TRAPS 14), so none listens on a network. On the controller
every VM has a listener on a loopback address of its own, by which fio's client and its log files tell the VMs apart.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import zlib
from collections.abc import Iterator, Sequence

import paramiko

from hcilib.drive import fio
from hcilib.drive.hosts import Fleet
from hcilib.testbed import Testbed, Vm

BLOCKS = 32  # tries for a block of loopback addresses that nobody uses
CHUNK = 65536


@contextlib.contextmanager
def servers(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm], limit_s: float) -> Iterator[dict[str, tuple[str, int]]]:
    """Start a server on every VM and listen for it here while the block runs; yields VM -> (address, port) on the controller.

    The servers are killed at the end of the block, by `timeout` on the VM at the latest.
    """
    there = {vm.name: _there(testbed, vm) for vm in vms}
    try:
        _start(fleet, testbed, vms, limit_s)
        with _listeners(fleet, testbed, there) as here:
            yield here
    finally:
        _kill(fleet, testbed, vms)


def end_stuck(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm]) -> list[str]:
    """As hcilib.drive.fio.end_stuck, of these servers."""
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
    fio.start_servers(fleet, testbed, bound, limit_s, lambda up, left: _wait(fleet, testbed, up, left))


def _kill(fleet: Fleet, testbed: Testbed, vms: Sequence[Vm]) -> None:
    fio.kill_servers(fleet, testbed, [_as_bound(vm, testbed) for vm in vms])


def _wait(fleet: Fleet, testbed: Testbed, up: bool, vms: Sequence[Vm]) -> list[Vm]:
    """The VMs whose servers do not (or still) answer, asked through SSH, when patience ends."""
    deadline, left = time.monotonic() + fio.PATIENCE_S, list(vms)
    while left:
        asked = fleet.each([vm.name for vm in left], lambda name: _answers(fleet, name, testbed, vms), limit_s=10)
        left = [vm for vm in left if asked[vm.name].value is not up]
        if time.monotonic() >= deadline:
            break
        time.sleep(0.02)
    return left


def _answers(fleet: Fleet, name: str, testbed: Testbed, vms: Sequence[Vm]) -> bool:
    address = next(vm.target for vm in vms if vm.name == name)
    try:
        fleet.tunnel(name, address, testbed.fio.port).close()
    except paramiko.ChannelException:
        return False
    return True


@contextlib.contextmanager
def _listeners(
    fleet: Fleet, testbed: Testbed, there: dict[str, tuple[str, int]]
) -> Iterator[dict[str, tuple[str, int]]]:
    with contextlib.ExitStack() as stack:
        bound = _bind(testbed, list(there), stack)
        for name, listener in bound.items():
            threading.Thread(
                target=_accept, args=(fleet, name, listener, there[name]), daemon=True, name=f"tunnel {name}"
            ).start()
        try:
            yield {name: listener.getsockname() for name, listener in bound.items()}
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
        f"no loopback address on the controller could be listened on at port {testbed.fio.port}: {reason}"
    )


def _accept(fleet: Fleet, name: str, listener: socket.socket, there: tuple[str, int]) -> None:
    """Until the listener is closed: one connection of fio's client is one connection of the VM to its own server."""
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        try:
            far = fleet.tunnel(name, *there)
        except Exception:  # the client sees a closed connection and says so; acceptance names the VM
            near.close()
            continue
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source, sink) -> None:
    """Bytes one way until either end closes; then both are closed, as a server that is gone must be seen at once."""
    with contextlib.suppress(OSError, EOFError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(Exception):
            end.shutdown(socket.SHUT_RDWR)  # close alone sends nothing while the other thread still reads
        with contextlib.suppress(Exception):
            end.close()
