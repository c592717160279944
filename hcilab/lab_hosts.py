"""The processes of the lab: one sshd a host, kept by a supervisor that outlives nobody."""

from __future__ import annotations

import contextlib
import functools
import getpass
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from hcilab import supervisor
from hcilab.sockets import answers, connect_unix
from hcilab.supervisor import sweep
from hcilib.model.places import ROOT

M = TypeVar("M", bound=BaseModel)
PACKAGES = {"sshd": "openssh-server", "fio": "fio", "qemu-storage-daemon": "qemu-system-common", "nbdkit": "nbdkit"}
VERSIONS = {"fio": ("--version", r"fio-(\d+)\.(\d+)", (3, 16)), "sshd": ("-?", r"OpenSSH_(\d+)\.(\d+)", (8, 0))}
"""Program -> how it is asked for its version, how that reads, and the least that will do."""
SSH_PORT = 2222


class LabError(RuntimeError):
    """The embedded testbed cannot start or stop; the message names the host or program and what to do."""


def checked(model: type[M], of: str, **given: Any) -> M:
    """The bed of these sizes; LabError where one is outside what its addresses, drives and copies allow."""
    try:
        return model(**given)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise LabError(f"{of}({wrong['loc'][0]}={wrong['input']!r}): {wrong['msg']}") from None


@dataclass(frozen=True)
class Waiting:
    """A process that is on its way, and how to see that it has arrived. Its log is logs/<name>.log."""

    what: str
    name: str
    pid: int
    ready: Callable[[], bool]


def answers_unix(path: Path) -> bool:
    """Whether something accepts on the socket."""
    with contextlib.suppress(OSError):
        connect_unix(path).close()
        return True
    return False


class Keeper(contextlib.AbstractContextManager["Keeper"]):
    """The caller's end of the supervisor: spawn processes, learn which died, stop all."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._at_exit: dict[str, str] = {}
        (folder / "logs").mkdir()
        self._owned = os.fdopen(supervisor.own(folder), "rb")  # closed twice, a bare number would be another's by then
        argv, pipe = [sys.executable, "-S", "-E", supervisor.__file__, str(folder)], subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        assert self._process.stdin is not None  # both are pipes
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self.at_exit(rmtree=str(folder))

    def __exit__(self, *_) -> None:
        self.stop()

    def _ask(self, request: dict) -> dict:
        try:
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
            answer = json.loads(self._answers.readline())  # an empty line, which is no JSON, is the end
        except (OSError, ValueError):
            gone = "the lab's supervisor is gone, and with it every process of the lab; start the lab again"
            raise LabError(gone) from None
        if "error" in answer:
            raise LabError(answer["error"])
        return answer

    def at_exit(self, **actions: str) -> None:
        """What to remove at the end: ``rmtree`` a folder, ``rmdir`` one that a lab made and another may still use."""
        self._at_exit |= actions
        self._ask({"at_exit": actions})

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def tail(self, name: str) -> str:
        """The end of a log, in one line."""
        lines = self.log(name).read_text(errors="replace")[-800:].split("\n")
        return " / ".join(line.strip() for line in lines if line.strip())

    def spawn(
        self, what: str, argv: Sequence[str], name: str, ready: Callable[[], bool], env: dict[str, str] | None = None
    ) -> Waiting:
        """Start `argv` in the lab's folder; its output goes to logs/<name>.log."""
        request = {"spawn": list(argv), "cwd": str(self.folder), "log": str(self.log(name)), "env": env or {}}
        return Waiting(what, name, self._ask(request)["pid"], ready)

    def wait_ready(self, waiting: Sequence[Waiting], patience_s: float = 15.0) -> None:
        """Until every process answers; LabError with the end of its log if one exits or does not come up in time."""
        left, began = list(waiting), time.monotonic()
        while left:
            left = [w for w in left if not w.ready()]
            exited = self._ask({"poll": True})["exited"]
            dead = [w for w in left if str(w.pid) in exited]
            waited_s = time.monotonic() - began
            late = left if waited_s > patience_s else []
            for w in dead or late:
                how = f"exited with {exited[str(w.pid)]}" if dead else f"does not answer after {patience_s:.0f} s"
                raise LabError(f"{w.what} {how}; the end of its log: {self.tail(w.name) or '(empty)'}")
            if left:  # a guest that boots for half a minute is not asked a hundred times a second
                time.sleep(min(max(0.01, waited_s / 20), 0.2))

    def stop(self) -> None:
        """End every process of the lab and wait for it; also what their sessions left behind."""
        with contextlib.suppress(OSError):
            self._requests.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()
        self._answers.close()
        supervisor.clean(self._at_exit)  # again, in case the supervisor itself was killed
        self._owned.close()


def find_programs(needed: Mapping[str, str] = PACKAGES, engine: str = "nbd") -> dict[str, str]:
    """Absolute path of every program a lab needs; LabError names what is missing or too old and how to get it.

    `needed`: program -> Debian package (default: those of the lab); `engine`: the fio engine that its disks need.
    """
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    found = {name: where for name in needed if (where := shutil.which(name, path=path))}
    missing = [name for name in needed if name not in found]
    if missing:
        packages = " ".join(dict.fromkeys(needed[name] for name in missing))
        install = f"apt-get install -y --no-install-recommends {packages}"
        raise LabError(f"not found: {', '.join(missing)}; install with: {install}")
    programs = {name: os.path.abspath(where) for name, where in found.items()}
    for name, (_, _, least) in VERSIONS.items():
        if (version := _version(name, programs[name])) < least:
            shown, wanted = ".".join(map(str, version)) or "of unknown version", ".".join(map(str, least))
            raise LabError(f"{name} is {shown}; the lab needs {wanted} or newer (package {PACKAGES[name]})")
    if engine not in subprocess.run([programs["fio"], "--enghelp"], capture_output=True, text=True).stdout.split():
        raise LabError(f"{programs['fio']} is without the {engine} engine: use the distribution's fio")
    return programs


def _version(name: str, program: str) -> tuple[int, ...]:
    """Of one of VERSIONS; empty where it does not say."""
    how, pattern, _ = VERSIONS[name]
    done = subprocess.run([program, how], capture_output=True, text=True)
    match = re.search(pattern, done.stdout + done.stderr)
    return tuple(map(int, match.groups())) if match else ()


def write_keys(testbed, folder: Path) -> None:
    """One ed25519 key for the client, one a host, and the known_hosts file that holds the hosts' to it."""
    client = _write_key(folder / "client_key")
    (folder / "authorized_keys").write_text(client + "\n")
    every = {h.name: h for h in (*testbed.nodes, *testbed.vms)}.values()  # a node may be a load generator too
    lines = [f"[{h.address}]:{h.port} {_write_key(folder / f'{h.name}.hostkey')}" for h in every]
    (folder / "known_hosts").write_text("\n".join(lines) + "\n")


def _write_key(path: Path) -> str:
    from cryptography.hazmat.primitives import serialization as ser
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.OpenSSH, ser.NoEncryption())
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private)
    return key.public_key().public_bytes(ser.Encoding.OpenSSH, ser.PublicFormat.OpenSSH).decode()


SSHD = """\
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
MaxStartups 500:30:1000
MaxSessions 500
Subsystem sftp internal-sftp
"""
"""Of every sshd of a bed."""
_SSHD = """\
ListenAddress {address}:{port}
HostKey "{folder}/{name}.hostkey"
AuthorizedKeysFile "{expanded}/authorized_keys"
PidFile none
AllowUsers {user}
LoginGraceTime 20
PrintMotd no
PrintLastLog no
SetEnv {environment}
"""


def start_sshd(keeper: Keeper, programs, host, folder: Path, env: Mapping[str, str] | None = None) -> Waiting:
    """A real sshd on the host's own address, as the current user. Ready when it sends its banner.

    Every session there has HCILAB_HOST, the host's name, and `env` in its environment. Its home is the lab's folder:
    what the user's own shell does at its start (half a second a command, with some tools) is no part of a host that is
    simulated.
    """
    if os.getuid() == 0:
        _privilege_separation_folder(keeper)
    config = folder / f"{host.name}.sshd"
    expanded = str(folder).replace("%", "%%")  # sshd expands %h and its kin in this one path
    variables = {"HCILAB_HOST": host.name, "HOME": str(folder), **(env or {})}
    environment = " ".join(f'"{name}={value}"' for name, value in variables.items())  # sshd reads one SetEnv alone
    text = _SSHD.format(address=host.address, port=host.port, name=host.name, folder=folder, expanded=expanded,
                        user=getpass.getuser(), environment=environment)  # fmt: skip
    config.write_text(SSHD + text + _penalties(programs["sshd"]))
    what, argv = f"sshd of {host.name} ({host.address}:{host.port})", [programs["sshd"], "-D", "-e", "-f", str(config)]
    return keeper.spawn(what, argv, f"sshd.{host.name}", lambda: answers(host.address, host.port, b"SSH-"))


@functools.cache
def _penalties(sshd: str) -> str:
    """OpenSSH 9.8 and later would lock every host out after one bad login from 127.0.0.1."""
    return "PerSourcePenalties no\n" if _version("sshd", sshd) >= (9, 8) else ""


def _privilege_separation_folder(keeper: Keeper, path: str = "/run/sshd") -> None:
    """sshd run by root insists on this folder, compiled in; a container without systemd lacks it. Removed at the
    end."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o755)
        (Path(path) / supervisor.MARKER).touch()
    if (Path(path) / supervisor.MARKER).exists():
        keeper.at_exit(rmdir=path)


# Where an embedded testbed lies on this machine: a folder and loopback addresses of its own, and whether they are
# free again.

Endpoint = tuple[str, int]
PREFIX = "bed-"


@contextlib.contextmanager
def ground(
    root: str | Path | None, needed: int, what: str, base: str | None, listening: Sequence[tuple[int, int]]
) -> Iterator[tuple[Path, str, Keeper]]:
    """A new folder under `root` (default: out/ of the repository), a block of addresses (see `reserve`) and a keeper of
    processes. At the end nothing runs, nothing answers there, and the folder is gone.

    `listening`: host's number within the block and port of everything that will listen. LabError where `what` would
    find too little space there."""
    home = ROOT if (ROOT / "pyproject.toml").exists() else Path.cwd()  # no checkout
    parent = Path(root) if root else home / "out"
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent, PREFIX)  # the replicas and the key of labs that nobody lived to remove
    free = shutil.disk_usage(parent).free
    if free < needed + 64 * 2**20:
        raise LabError(f"{parent}: {free >> 20} MiB free, {what} need {needed >> 20} MiB and 64 MiB to spare")
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()
    with contextlib.ExitStack() as stack:
        stack.callback(supervisor.remove, folder)
        block, endpoints = stack.enter_context(reserve(base, listening, seed=str(folder)))
        stack.callback(wait_refused, endpoints)
        yield folder, block, stack.enter_context(Keeper(folder))


def sshd_of(nodes: int, vms: int = 0) -> list[tuple[int, int]]:
    """Where the sshd of a bed's hosts listen: nodes from .1 of its block of addresses, VMs from .101."""
    return [(number, SSH_PORT) for number in (*range(1, 1 + nodes), *range(101, 101 + vms))]


def reached(block: str, kind: str, number: int) -> dict[str, Any]:
    """Of a host of a bed, a ``node`` or a ``vm`` counted from 1: its name, and how it is reached."""
    address = f"{block}.{number if kind == 'node' else 100 + number}"
    return {"name": f"{kind}{number}", "address": address, "port": SSH_PORT, "user": getpass.getuser()}


def available_memory(file: Path = Path("/proc/meminfo")) -> int:
    """Bytes that programs can have without swapping."""
    [kib] = re.findall(r"^MemAvailable: *(\d+) kB", file.read_text(), re.M)
    return int(kib) * 1024


def require_memory(needed: int, who: str, remedy: str = "") -> None:
    """LabError where programs cannot have so many bytes without swapping."""
    if (free := available_memory()) < needed:
        raise LabError(f"{free >> 20} MiB of memory available, {who} need {needed >> 20} MiB{remedy}")


def wait_refused(endpoints: Sequence[Endpoint]) -> None:
    """Until nothing answers at any of them; LabError names what still does after five seconds."""
    left, deadline = list(endpoints), time.monotonic() + 5.0
    while left and time.monotonic() < deadline:
        left = [(a, p) for a, p in left if answers(a, p)]
    if left:
        raise LabError("still listening after the lab was stopped: " + ", ".join(f"{a}:{p}" for a, p in left))


# A block of loopback addresses that nobody else on this machine uses.

TRIES, FIRST = 64, 64
"""Blocks are 127.<FIRST>.x and the 127 after it."""


@contextlib.contextmanager
def reserve(base: str | None, listening: Sequence[tuple[int, int]], seed: str) -> Iterator[tuple[str, list[Endpoint]]]:
    """Yield the first three numbers of a free block, held by a bound (never listening) socket while the block runs, and
    the address and port of everything that will listen.

    Parameters
    ----------
    base : the block to take, e.g. ``127.0.44``; None: the first free one, beginning at a place given by `seed`
    listening : of everything that will listen, the address's last number and the port

    Raises
    ------
    LabError : names the address that is taken
    """
    start = zlib.crc32(seed.encode())
    blocks = [base] if base else [f"127.{FIRST + (start + i) % 128}.{(start >> 8) % 256}" for i in range(TRIES)]
    busy = ""
    for block in blocks:
        wanted = [(f"{block}.{number}", port) for number, port in listening]
        with socket.socket() as lock:
            try:
                lock.bind((f"{block}.254", wanted[0][1]))
            except OSError as error:
                busy = f"{block}.254:{wanted[0][1]} {(error.strerror or str(error)).lower()} (another lab?)"
                continue
            taken = [f"{address}:{port}" for address, port in wanted if answers(address, port)]
            if not taken:
                yield block, wanted
                return
            busy = f"{taken[0]} already answers"
    raise LabError(f"address in use: {busy}; stop what listens there or pass another base=")
