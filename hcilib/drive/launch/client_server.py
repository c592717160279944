"""The client/server launcher: fio's own client here, one fio server a VM, and no socket in between that anybody else
could open.

A fio server knows no authentication and runs whatever it is sent (docs/TRAPS.md), so none listens on a network, not
even on loopback. Each listens on a unix socket in the private folder of its VM's session, and is bridged through that
session, by python3 there, to a unix socket in a private folder here. A socket is called by its VM's address: by that
name fio's client knows the VM in its result and in the names of its logs, as the per-host launcher does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hcilib.drive.hosts.hosts import CONNECT_S, Clock
from hcilib.drive.hosts.lease import by_python
from hcilib.drive.launch.job import FioError, Launch, Launched
from hcilib.drive.launch.session import Session, sessions
from hcilib.drive.launch.watch import Watched, watched

if TYPE_CHECKING:
    import paramiko

PORT = 8765
"""What fio's client says of a server on a unix socket, whatever port a testbed names."""
BEYOND_S = 15.0
"""Of a server's own timeout beyond the client's deadline: first, it would end the healthy servers, which would be
blamed, and wake a frozen one (timeout sends SIGCONT) before anybody saw that it was."""
CHUNK, POLL_S, MARK = 65536, 0.02, b"hci bridge\n"
HURT_S = 1.0

BRIDGE = r"""
import os, socket, sys, threading, time
far, end = socket.socket(socket.AF_UNIX), time.monotonic() + 5
os.chdir(sys.argv[1])
while True:
    try:
        far.connect("server")
        break
    except OSError:
        if time.monotonic() > end:
            sys.exit("it was started and does not answer")
        time.sleep(0.02)
os.write(1, b"hci bridge\n")
def copy(get, put):
    try:
        for data in iter(get, b""):
            while data:
                data = data[put(data):]
    finally:
        os._exit(0)
threading.Thread(target=copy, args=(lambda: far.recv(65536), lambda data: os.write(1, data))).start()
copy(lambda: os.read(0, 65536), far.send)
"""
"""Passes bytes between a channel and the server's socket. A greeting of the login shell may stand before its mark."""


def launch(of: Launch) -> tuple[Launched, dict[str, Clock], dict[str, float]]:
    """Run the jobs; also returns each VM's clock. When each began stands in the result of fio 3.36 and later."""
    argv, limit_s = ["--server=sock:../BASE/server"], of.limit_s + BEYOND_S
    with contextlib.ExitStack() as own:
        opened, folder = own.enter_context(sessions(of, argv, limit_s, {})), own.enter_context(_folder(of))
        with _bridged(folder, opened, _start(of, opened)), watched(of, opened, "client-server") as seen:
            started, (returncode, timed_out) = time.time(), _client(of, folder, seen)
            ended_s, faults = time.time(), seen.faults
            if timed_out and not faults:
                faults = (f"stopped from outside after {of.limit_s:g} s", *seen.standing_for())
            elif returncode and not faults:  # whose server ended, and how?
                asked = of.fleet.each(opened, lambda name: _hurt(opened[name]), limit_s=CONNECT_S)
                faults = tuple(f"{name}: {o.value or o.error}" for name, o in asked.items() if o.value or o.error)
    places = {vm.name: (vm.target, PORT) for vm in of.vms}
    done = Launched(returncode, started, ended_s, timed_out, places=places, faults=faults)
    return done, {name: s.clock for name, s in opened.items()}, {}


def _hurt(session: Session) -> str:
    """Say what became of a VM's server; nothing of one that was ended because another was lost."""
    if session.keeper.lost:
        return "its SSH connection was lost while fio ran"
    with contextlib.suppress(OSError):
        session.look(HURT_S)
    return session.hurt


def _start(of: Launch, opened: Mapping[str, Session]) -> dict[str, paramiko.Channel]:
    """Start a server on every VM; VM -> a channel that leads to it. FioError names those where there is none."""

    def start(name: str) -> paramiko.Channel:
        session = opened[name]
        session.ask("start")
        session.ask("go")  # a server's jobs wait for nobody
        argv = ["-SE", "-c", BRIDGE, session.folder]
        channel = of.fleet.session(name, by_python(of.testbed.python, argv))
        channel.settimeout(CONNECT_S)
        passed = b""
        while not passed.endswith(MARK):
            if not (one := channel.recv(1)):
                session.look(HURT_S)
                said = of.fleet.read_now(name, f"{session.folder}/logs/fio.stderr").decode(errors="replace").split()
                raise OSError(session.hurt or " ".join(said) or channel.recv_stderr(400).decode(errors="replace"))
            passed += one
        channel.settimeout(None)
        return channel

    asked = of.fleet.each(opened, start, limit_s=2 * CONNECT_S)
    if wrong := [f"{name}: {o.error}" for name, o in asked.items() if not o.ok]:
        raise FioError("no fio server on " + "; ".join(wrong))
    return {name: o.value for name, o in asked.items()}


@contextlib.contextmanager
def _folder(of: Launch) -> Iterator[Path]:
    """Make a folder of mode 0700 in which fio's client works: the job files, and room for a socket a VM."""
    with tempfile.TemporaryDirectory(prefix="client.", dir=of.work, ignore_cleanup_errors=True) as made:
        folder = Path(made)
        (folder / "logs").symlink_to((of.work / "logs").absolute())
        for name, text in of.jobs.items():
            (folder / f"{name}.fio").write_text(text)
        yield folder


@contextlib.contextmanager
def _bridged(folder: Path, opened: Mapping[str, Session], bridges: Mapping[str, paramiko.Channel]) -> Iterator[None]:
    """Listen for fio's client, one connection a VM, and pass its bytes through that VM's bridge."""
    with contextlib.ExitStack() as stack:
        there = os.open(folder, os.O_RDONLY)
        stack.callback(os.close, there)
        for name, session in opened.items():
            stack.callback(bridges[name].close)
            near = stack.enter_context(socket.socket(socket.AF_UNIX))
            near.bind(f"/proc/self/fd/{there}/{session.vm.target}")  # a path may be too long for a socket's address
            near.listen(1)
            threading.Thread(target=_pass, args=(near, bridges[name]), daemon=True, name="bridge").start()
            stack.callback(_end, near)  # closed alone, a socket is held as long as somebody waits in accept
        yield


def _pass(listener: socket.socket, channel: paramiko.Channel) -> None:
    with contextlib.suppress(OSError):
        near, _ = listener.accept()
        threading.Thread(target=_copy, args=(near, channel), daemon=True).start()
        _copy(channel, near)


def _copy(source, sink) -> None:
    """Copy bytes one way until either end closes, then close both: a server that is gone must be seen at once."""
    with contextlib.suppress(OSError, EOFError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    _end(source)
    _end(sink)


def _end(side) -> None:
    with contextlib.suppress(Exception):
        side.shutdown(socket.SHUT_RDWR)  # close alone sends nothing while another thread still reads
        side.close()


def _client(of: Launch, folder: Path, seen: Watched) -> tuple[int, bool]:
    """Run fio's client: its code, and whether it was ended from outside, for a deadline or a disk that answers nothing.

    Never --eta=never (the client then hangs on a frozen server) and never --output (errors would land in that file).
    """
    argv = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    argv += [of.testbed.fio.binary]
    for number, vm in enumerate(of.vms):
        argv += [f"--client=sock:{vm.target}"]
        argv += ["--output-format=json+"] if not number else []  # before it, the format does not reach the servers
        argv += [f"{vm.name}.fio"]
    deadline_s = time.time() + of.limit_s
    with open(of.work / "fio.json", "wb") as out, open(of.work / "fio.stderr", "wb") as err:
        process = subprocess.Popen(
            argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            if of.begun:
                of.begun.set()
            while process.poll() is None and not seen.faults and time.time() < deadline_s:
                time.sleep(POLL_S)
            timed_out = process.poll() is None
        finally:  # Ctrl-C too: no client may outlive the step
            process.terminate()
            try:
                returncode = process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                returncode = process.wait()
    return returncode, timed_out
