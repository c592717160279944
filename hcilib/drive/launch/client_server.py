"""The client/server launcher: fio's own client here, one fio server a VM, and no socket in between that anybody else
could open.

A fio server knows no authentication and runs whatever it is sent (docs/TRAPS.md), so none listens on a network, not
even on loopback, which every account of a machine can reach. Each listens on a unix socket in the private folder of its
VM's session, and is bridged through that session to a unix socket in a private folder here. A socket is called by its
VM's address: by that name fio's client knows the VM in its result and in the names of its logs, as the per-host
launcher does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from hcilib.drive.hosts.hosts import CONNECT_S, Clock
from hcilib.drive.launch.job import FioError, Launch, Launched, verify
from hcilib.drive.launch.session import DEPTH, STUCK, Session, Watched, sessions, watched, workers

PORT = 8765
"""What fio's client says of a server on a unix socket, whatever port a testbed names."""
BEYOND_S = 15.0
"""Of a server's own timeout beyond the client's deadline: first, it would end the healthy servers, which would be
blamed, and wake a frozen one (timeout sends SIGCONT) before anybody saw that it was."""
CHUNK, POLL_S, MARK = 65536, 0.02, b"hci bridge\n"

# The bridge is what is there; a greeting of the login shell may stand before its mark. nc has to end with its input
# (-N).
SCRIPT = r"""
timeout -k 5 "$seconds" "$fio" --server="sock:../$mark" >said 2>&1 </dev/null 3<&- & job=$!
exec 4<&3 3>&2
n=0
until [ -S "${mark##*/}" ]; do
  kill -0 $job 2>/dev/null && [ $n -lt 250 ] || hci_refuse "it was started and does not answer"
  n=$((n+1)); sleep 0.02
done
if command -v socat >/dev/null 2>&1; then bridge=socat
elif python3 -c '' >/dev/null 2>&1; then bridge=python3
elif nc -h 2>&1 | grep -q -e '-[a-zA-Z]*N[a-zA-Z]*' && nc -h 2>&1 | grep -q -e '-[a-zA-Z]*U'; then bridge=nc
else echo >said; hci_refuse "nothing there can bridge a unix socket: install socat or python3, or set fio.launcher: per-host"; fi
echo "hci ready $bridge" >&2
echo 'hci bridge'
case $bridge in
  socat) socat - "UNIX-CONNECT:${mark##*/}" <&4;;
  python3) python3 -SE -c '
import os, socket, threading
far = socket.socket(socket.AF_UNIX)
far.connect("'"${mark##*/}"'")
def copy(get, put):
    try:
        for data in iter(get, b""):
            while data:
                data = data[put(data):]
    finally:
        os._exit(0)
threading.Thread(target=copy, args=(lambda: far.recv(65536), lambda data: os.write(1, data))).start()
copy(lambda: os.read(0, 65536), far.send)' <&4;;
  nc) nc -N -U "${mark##*/}" <&4;;
esac 2>/dev/null
sleep 0.1
[ -e "/proc/$job/exe" ] || { wait $job; echo "hci ended $?" >&2; }
"""  # noqa: E501


def launch(of: Launch) -> tuple[Launched, dict[str, Clock], dict[str, float]]:
    """Run the jobs; also returns each VM's clock. (When each began stands in the logs, or in the result of fio 3.36 and
    later.)"""
    with sessions(of, SCRIPT, "server", of.limit_s + BEYOND_S) as opened, _sockets(of) as folder:
        _start(of, opened)
        with _bridges(folder, opened) as lost, watched(of, opened, "client-server") as seen:
            done = _client(of, folder, opened, seen)
            if done.returncode:  # whose server ended, and how?
                of.fleet.each(opened, lambda name: opened[name].look(), limit_s=CONNECT_S)
            # before the sessions are closed from here, which to a bridge still open is a loss too
            broken = dict(lost) | {name: s.hurt for name, s in opened.items() if s.hurt}
    named = tuple(f"{name}: {why}" for name, why in broken.items()) if not seen.faults else seen.faults
    done = replace(done, places={vm.name: (vm.target, PORT) for vm in of.vms}, faults=(*named, *done.faults))
    return done, {name: s.clock for name, s in opened.items()}, {}


def _start(of: Launch, opened: Mapping[str, Session]) -> None:
    """A server on every VM, ready to be spoken to; FioError names those where there is none."""

    def start(name: str) -> None:
        session = opened[name]
        session.say("go")
        session.answer("ready")
        session.channel.settimeout(CONNECT_S)
        passed = b""
        while not passed.endswith(MARK):
            if not (one := session.channel.recv(1)):
                raise OSError("the connection was lost as its server began")
            passed += one
        session.channel.settimeout(None)

    asked = of.fleet.each(opened, start, limit_s=2 * CONNECT_S)
    if wrong := [f"{name}: {o.error}" for name, o in asked.items() if not o.ok]:
        raise FioError("no fio server on " + "; ".join(wrong))


@contextlib.contextmanager
def _sockets(of: Launch) -> Iterator[Path]:
    """A folder of mode 0700 in which fio's client works: the job files, as they will be sent, and room for a socket a
    VM."""
    folder = Path(tempfile.mkdtemp(prefix="client.", dir=of.work))
    try:
        (folder / "logs").symlink_to((of.work / "logs").absolute())
        for vm in of.vms:
            file = folder / f"{vm.name}.fio"
            file.write_text(of.jobs[vm.name])
            verify(file.read_text(), of.step, vm, of.testbed, of.span_bytes, of.paths, of.content)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _bridges(folder: Path, opened: Mapping[str, Session]) -> Iterator[dict[str, str]]:
    """Listen for fio's client, one connection a VM, and pass its bytes through that VM's session. Yields VM -> what
    became of its way, filled in while fio runs: the client may say nothing of it, or die of SIGPIPE without a word."""
    lost: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        there = os.open(folder, os.O_RDONLY)
        stack.callback(os.close, there)
        for session in opened.values():
            near = stack.enter_context(socket.socket(socket.AF_UNIX))
            near.bind(f"/proc/self/fd/{there}/{session.vm.target}")  # a path may be too long for a socket's address
            near.listen(1)
            name = f"bridge {session.vm.name}"
            threading.Thread(target=_accept, args=(near, session, lost), daemon=True, name=name).start()
            stack.callback(_shut, near)  # closed alone, a socket is held as long as somebody waits in accept
        yield lost


def _accept(listener: socket.socket, session: Session, lost: dict[str, str]) -> None:
    with contextlib.suppress(OSError):
        near, _ = listener.accept()
        for source, sink in ((near, session.channel), (session.channel, near)):
            threading.Thread(target=_pump, args=(source, sink, session, lost), daemon=True).start()


def _pump(source, sink, session: Session, lost: dict[str, str]) -> None:
    """Bytes one way until either end closes; then both are closed, as a server that is gone must be seen at once. A
    server that ends its connection has sshd say so; a connection that breaks says nothing, and is noted before fio's
    client can see it and be gone."""
    closed = source
    with contextlib.suppress(OSError, EOFError):
        while data := source.recv(CHUNK):
            closed = sink
            sink.sendall(data)
            closed = source
    if closed is session.channel and not session.channel.eof_received:
        lost[session.vm.name] = "its SSH connection was lost while fio ran"
    for end in (source, sink):
        _shut(end)  # close alone sends nothing while the other thread still reads
        with contextlib.suppress(Exception):
            end.close()


def _shut(end) -> None:
    with contextlib.suppress(Exception):
        end.shutdown(socket.SHUT_RDWR)


def _client(of: Launch, folder: Path, opened: Mapping[str, Session], seen: Watched) -> Launched:
    """Run fio's client; `faults` are the VMs that it was ended from outside for.

    Never --eta=never (the client then hangs on a frozen server) and never --output (errors would land in that file).
    """
    argv = [of.testbed.fio.binary]
    with_parent = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    for vm in of.vms:
        argv += [f"--client=sock:{vm.target}"]
        argv += ["--output-format=json+"] * (len(argv) == 2)  # after the first client, or it does not reach the servers
        argv += [f"{vm.name}.fio"]
    started, faults = time.time(), tuple[str, ...]()
    with open(of.work / "fio.json", "wb") as out, open(of.work / "fio.stderr", "wb") as err:
        process = subprocess.Popen(
            [*with_parent, *argv], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            if of.begun:
                of.begun.set()
            while process.poll() is None and not seen.faults and time.time() < started + of.limit_s:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=POLL_S)
            timed_out = process.poll() is None
            if timed_out and not seen.faults:
                faults = (f"stopped from outside after {of.limit_s:g} s", *_behind(of, opened))
        finally:  # Ctrl-C too: no client may outlive the step
            returncode = _end(process)
    return Launched(returncode, started, time.time(), timed_out, faults=faults)


def _behind(of: Launch, opened: Mapping[str, Session]) -> list[str]:
    """After a deadline: the VMs it was due to, a sentence each. The healthy ones have long finished their jobs by then;
    where none has, it was due to nobody."""
    asked = workers(of.fleet, opened, DEPTH["client-server"])
    busy = {name: own for name, own in asked.items() if own}
    said = []
    for name, own in busy.items() if len(busy) < len(asked) else ():
        if isinstance(own, str):
            said.append(f"{name} does not answer: {own}")
        else:
            states = sorted({STUCK.get(worker.state, "is still at work") for worker in own})
            said.append(f"{name}: its fio {' and '.join(states)}; it was killed")
    return said


def _end(process: subprocess.Popen) -> int:
    for sig in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sig)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
    return process.wait()
