"""A fleet over Fabric: time limits on both ends, clocks, one mapping host -> outcome."""

from __future__ import annotations

import logging
import re
import shlex
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fabric.runners
import paramiko
from fabric import Config, Connection
from invoke.exceptions import CommandTimedOut

from hcilib.drive.hosts.openssh import UNKNOWN, HostKeyError, KnownHosts, configuration
from hcilib.model.testbed import Host, Node, Testbed, Vm

CONNECT_S, POOL = 10, 32
ANSWER_S = 180
"""How long a host may take over what is asked of it before or beside a run: its disks, checks, facts. A rack answers
in seconds; an emulated node beside busy processes takes a minute, and is not to be called dead for it."""
ATTEMPTS = 3
MOST_BYTES = 32 * 2**20
"""What a host may answer to one command: 1,000 guests of libvirt take a quarter of it."""
ANSWER = "==== hci"
"""Printed before an answer: a login shell may greet, without an end of line."""
logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it prints tracebacks for what an Outcome says in one line

# Fabric joins output per 1000 bytes, which is quadratic (10 MB took 6 s, now 0.1 s).
fabric.runners.Remote.read_chunk_size = 32768
LOOK_S = 0.05
"""How often a command that is waited for is asked whether what reads its output has failed."""


@dataclass(frozen=True)
class Outcome:
    """What one host answered. `error` is one sentence when it did not; `value` is what was asked for."""

    host: str
    ok: bool
    value: Any = None
    error: str = ""
    seconds: float = 0.0
    started_s: float = 0.0  # epoch, by the controller's clock


class FleetError(RuntimeError):
    """Some hosts failed. `outcomes` holds every host's answer, the good ones too."""

    def __init__(self, what: str, outcomes: Mapping[str, Outcome]):
        self.outcomes = dict(outcomes)
        bad = [f"{o.host}: {o.error}" for o in outcomes.values() if not o.ok]
        super().__init__(f"{what} failed on {len(bad)} of {len(outcomes)} hosts: " + "; ".join(bad))


class _Bounded(fabric.runners.Remote):
    """A command whose connection is closed as soon as it has printed more than MOST_BYTES."""

    def __init__(self, connection: Connection):
        super().__init__(connection, inline_env=connection.inline_ssh_env)
        self._left = MOST_BYTES

    def wait(self) -> None:
        """Be woken by the channel when the command has ended. Invoke asks again and again, of every host at once."""
        while not (self.process_is_finished or self.has_dead_threads):
            self.channel.status_event.wait(LOOK_S)

    @property
    def too_long(self) -> bool:
        return self._left < 0

    def read_proc_stdout(self, num_bytes: int) -> bytes:
        return self._within(super().read_proc_stdout(num_bytes))

    def read_proc_stderr(self, num_bytes: int) -> bytes:
        return self._within(super().read_proc_stderr(num_bytes))

    def _within(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self.too_long:
            self.channel.close()
        return b"" if self.too_long else data


class Fleet(AbstractContextManager["Fleet"]):
    """Open connections to the hosts of a testbed, by name. Close it, or use it as a context manager."""

    def __init__(self, testbed: Testbed):
        every: tuple[Node | Vm, ...] = (*testbed.nodes, *testbed.vms)
        hosts = {h.name: h for h in every}.values()  # a node may be a load generator too
        self.names = tuple(h.name for h in hosts)
        self.windows = testbed.windows
        asked = [] if testbed.lab_root else [name for h in hosts for name in (h.target, h.jump) if name]
        config = Config(ssh_config=configuration(asked))
        known = KnownHosts(Path(testbed.known_hosts).expanduser())  # once: for each of a hundred hosts it took a second
        key = _key(testbed)
        self._connections = {h.name: _connection(h, config, known, key) for h in hosts}
        self._sftp: dict[str, paramiko.SFTPClient] = {}
        self.logins: Counter[str] = Counter()  # host -> how often it was connected to
        self._locks = {name: threading.Lock() for name in self.names}
        self._pool = ThreadPoolExecutor(min(POOL, max(1, len(hosts))), thread_name_prefix="fleet")

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            for hop in _hops(connection):
                with suppress(Exception):
                    hop.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def connect(self, hosts: Iterable[str] | None = None) -> dict[str, Outcome]:
        """Open these connections (all) at once; a host that refuses is an outcome, not an exception."""
        asked = self.names if hosts is None else hosts
        return self.each(asked, lambda name: self._open(name).is_connected, limit_s=3 * CONNECT_S)

    def silent(self, hosts: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Ask these hosts for a sign of life; (host -> why it cannot be reached, host -> why it
        turns us away). A connection that answers no more, e.g. one that a firewall forgot, is closed
        and opened anew. Not for use while a step runs: a host at work may be slow to answer."""
        refusing: dict[str, str] = {}

        def ask(name: str) -> str:
            connection = self._connections[name]
            for is_old in (True, False) if connection.is_connected else (False,):
                try:
                    session = self._open(name, attempts=1).transport.open_session
                    with suppress(paramiko.ChannelException):  # a refusal is an answer too
                        session(timeout=CONNECT_S).close()
                    break
                except Exception as error:
                    for hop in _hops(connection):
                        with suppress(Exception):
                            hop.close()
                    if is_old:
                        continue
                    if refuses(error):
                        refusing[name] = explain(error)
                    return explain(error)
            return ""

        asked = self.each(hosts, ask, limit_s=6 * CONNECT_S)
        away = {name: o.value or o.error for name, o in asked.items() if o.value or not o.ok}
        return {name: why for name, why in away.items() if name not in refusing}, refusing

    def run(
        self, command: str | Mapping[str, str], hosts: Iterable[str] | None = None, limit_s: float = 30
    ) -> dict[str, Outcome]:
        """Run a command (or one a host) under `timeout` on the far side; `value` is its standard output.

        A non-zero exit is an outcome with ok False whose error carries the exit code and the end of standard error; so
        is an answer of more than MOST_BYTES.
        """
        asked, most_s = self.names if hosts is None else hosts, limit_s + 4 * CONNECT_S
        commands = command if isinstance(command, Mapping) else dict.fromkeys(asked, command)
        return self.each(commands, lambda name: self._command(name, commands[name], limit_s), limit_s=most_s)

    def each(self, hosts: Iterable[str], ask: Callable[[str], Any], limit_s: float) -> dict[str, Outcome]:
        """Ask every host in parallel within one deadline."""
        asked = {name: self._pool.submit(_timed, name, ask) for name in hosts}
        deadline, outcomes = time.monotonic() + limit_s, {}
        for name, future in asked.items():
            try:
                outcomes[name] = future.result(timeout=max(0.0, deadline - time.monotonic()))
            except FutureTimeout:
                future.cancel()  # what nobody waits for must not be done later
                outcomes[name] = Outcome(name, False, error=f"no answer within {limit_s:g} s", seconds=limit_s)
        return outcomes

    def _open(self, name: str, attempts: int = ATTEMPTS) -> Connection:
        connection = self._connections[name]
        with self._locks[name]:
            if not connection.is_connected:
                self._sftp.pop(name, None)
                _open_patiently(connection, attempts)
                connection.transport.set_keepalive(15)
                self.logins[name] += 1
        return connection

    def _command(self, name: str, command: str, limit_s: float) -> str:
        # Windows has no `timeout` that ends a command: there only this end's limit holds
        bounded = f"echo '{ANSWER}'; timeout -k 5 {limit_s:g} sh -c {shlex.quote(command)}"
        wrapped = command if name in self.windows else bounded
        started = time.monotonic()
        runner = _Bounded(self._open(name))
        done = runner.run(wrapped, hide=True, warn=True, in_stream=False, timeout=limit_s + 10)
        if runner.too_long:
            what = f"printed more than {MOST_BYTES:,} bytes, the limit of an answer"
            raise OSError(f"`{command}` {what}. Run it on the host to see why.")
        said = done.stdout.split(f"{ANSWER}\n", 1)[-1]
        killed = done.exited == 137 and time.monotonic() - started >= limit_s  # TERM was not enough
        if done.exited == 124 or killed:
            raise OSError(f"`{command}` was stopped after {limit_s:g} s")
        if done.exited == -1:  # paramiko does not tell these two apart
            raise OSError(f"`{command}` did not end by itself: the connection was lost, or a signal ended it")
        if not done.ok:
            tail = (done.stderr or said).strip()[-400:]
            raise OSError(f"`{command}` exited with {done.exited}: {tail}")
        return said

    def read_now(self, name: str, path: str) -> bytes:
        """One host's file, by SFTP on the open connection, without a process there; raises what paramiko raises."""
        with self._files(name) as sftp, sftp.open(path) as file:
            return file.read()

    def put_now(self, name: str, path: str, data: bytes) -> None:
        """Write one host's file, by SFTP, readable by its owner alone; raises what paramiko raises."""
        try:
            with self._files(name) as sftp, sftp.open(path, "w") as file:
                file.chmod(0o600)
                file.write(data)
        except OSError as error:
            if str(error) != "Failure":
                raise
            # All that SFTP has for what it knows no code for, and of these it is nearly always this one.
            raise OSError(f"{path} cannot be written: is its file system full? (`df {Path(path).parent}`)") from error

    def sizes_now(self, name: str, folder: str) -> dict[str, int]:
        """File -> bytes of one host's folder, by SFTP; raises what paramiko raises."""
        with self._files(name) as sftp:
            return {file.filename: file.st_size or 0 for file in sftp.listdir_attr(folder)}

    def get_now(self, name: str, path: str, to: Path) -> None:
        """One host's file of any size into a file here, by SFTP; raises what paramiko raises."""
        with self._files(name) as sftp:
            sftp.get(path, str(to))

    def remove_now(self, name: str, path: str) -> None:
        """Remove one host's file, by SFTP; raises what paramiko raises."""
        with self._files(name) as sftp:
            sftp.remove(path)

    def host_keys(self) -> list[str]:
        """Lines of a known_hosts by which these hosts, and the jump hosts on the way, are verified."""
        hops = {_called(hop): hop for c in self._connections.values() for hop in _hops(c)}
        keys = ((name, kind, key) for name, hop in hops.items() for kind, key in _keys(hop).items())
        return sorted({f"{name} {kind} {key.get_base64()}" for name, kind, key in keys})

    def session(self, name: str, command: str) -> paramiko.Channel:
        """A command left running, its standard input, output and error open: it can be talked to, and sees when we are
        gone."""
        channel = self._open(name).transport.open_session(timeout=CONNECT_S)
        channel.exec_command(command)
        return channel

    def sessions(self, name: str, most: int) -> int:
        """Return how many channels, up to `most`, the host's sshd opens at once on this connection."""
        transport = self._open(name).transport
        opened: list[paramiko.Channel] = []
        with suppress(paramiko.ChannelException):
            while len(opened) < most:
                opened.append(transport.open_session(timeout=CONNECT_S))
        for channel in opened:
            channel.close()
        return len(opened)

    @contextmanager
    def _files(self, name: str) -> Iterator[paramiko.SFTPClient]:
        connection = self._open(name)
        with self._locks[name]:
            before = self._sftp.get(name)
            if before is None or before.get_channel().closed:  # its server may end before the connection
                self._sftp[name] = connection.client.open_sftp()
                self._sftp[name].get_channel().settimeout(CONNECT_S)
            yield self._sftp[name]


def need(what: str, outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """Host -> value; FleetError if any host failed."""
    if not all(o.ok for o in outcomes.values()):
        raise FleetError(what, outcomes)
    return {name: o.value for name, o in outcomes.items()}


def sections(text: str) -> dict[str, str]:
    """Part -> its text, of output whose parts begin with a line ``==== <part>``."""
    pieces = re.split(r"(?m)^==== (\w+)\n?", text)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def fields(line: str) -> dict[str, str]:
    """Name -> value, of a line of ``name=value`` with tabs between."""
    return dict(part.split("=", 1) for part in line.split("\t") if "=" in part)


def _timed(name: str, ask: Callable[[str], Any]) -> Outcome:
    start, started_s = time.monotonic(), time.time()
    try:
        value, error = ask(name), ""
    except Exception as problem:  # one host's trouble must not hide the others' answers
        value, error = None, explain(problem)
    return Outcome(name, not error, value, error, time.monotonic() - start, started_s)


def _key(testbed: Testbed) -> dict[str, Any]:
    """How to prove who we are: with the testbed's own key alone, else as ~/.ssh/config and the agent have it."""
    if not testbed.key:
        return {}
    alone = {"look_for_keys": False, "allow_agent": False}
    with suppress(Exception):  # what is wrong with it is said when it is used, and of which host
        return alone | {"pkey": paramiko.PKey.from_path(testbed.key)}
    return alone | {"key_filename": testbed.key}


def _connection(host: Host, config: Config, known: KnownHosts, key: dict[str, Any]) -> Connection:
    kwargs = {"transport_factory": _transport, "banner_timeout": CONNECT_S, "auth_timeout": CONNECT_S, **key}
    gateway = Connection(host.jump, config=config, connect_timeout=CONNECT_S) if host.jump else None
    connection = Connection(host.target, user=host.user, port=host.port, config=config, gateway=gateway,
                            connect_timeout=CONNECT_S, connect_kwargs=kwargs)  # fmt: skip
    for hop in _hops(connection):
        hop.connect_timeout = CONNECT_S
        hop.client.set_missing_host_key_policy(known)  # Fabric's own accepts any key, silently
        for kind, its in known.keys(_called(hop)).items():
            hop.client.get_host_keys().add(_address(hop), kind, its)
    return connection


def _address(hop: Connection) -> str:
    """A host as paramiko looks it up, and known_hosts writes it."""
    return hop.host if hop.port == 22 else f"[{hop.host}]:{hop.port}"


def _called(hop: Connection) -> str:
    return hop.ssh_config.get("hostkeyalias") or _address(hop)


def _keys(hop: Connection) -> Mapping[str, paramiko.PKey]:
    return hop.client.get_host_keys().lookup(_address(hop)) or {}


def _hops(connection: Connection) -> Iterator[Connection]:
    """The connection and every jump host on its way, a ProxyJump of ~/.ssh/config too, which Fabric follows by itself.
    (A ProxyCommand is a text: what it runs checks keys of its own.)"""
    hop: Any = connection
    while isinstance(hop, Connection):
        yield hop
        hop = hop.gateway


def _transport(sock, **kwargs) -> paramiko.Transport:
    """Without Nagle's algorithm, which paramiko leaves on (48 ms a command instead of 4 ms), and with AES-GCM first: of
    the other ciphers it compares each packet's MAC byte by byte in Python."""
    with suppress(OSError, AttributeError):  # a gateway's channel has no such option
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    transport = paramiko.Transport(sock, **kwargs)
    transport.channel_timeout = CONNECT_S  # paramiko's own is an hour, of which a frozen host costs the pool a thread
    options = transport.get_security_options()
    options.ciphers = sorted(options.ciphers, key=lambda name: "gcm" not in name)
    return transport


def _open_patiently(connection: Connection, attempts: int) -> None:
    """Only a missing banner is tried again: that is sshd's MaxStartups turning away a crowd, not a dead host."""
    for attempt in range(1, attempts + 1):
        try:
            connection.open()
            return
        except paramiko.SSHException as error:
            if "banner" not in str(error) or attempt == attempts:
                raise
            time.sleep(0.2 * attempt)


# What paramiko says when a key was refused: it tries the file as every kind of key in turn and reports the last
# attempt.
_KEY_OF_ANOTHER_KIND = re.compile("encountered .* key, expected|^Invalid key$")


def refuses(error: BaseException) -> bool:
    """Whether a host turned us away, or we have nothing to show it. Waiting helps only where it
    could not be reached, or was lost while we logged in."""
    text = str(error)
    if isinstance(error, paramiko.AuthenticationException):
        return not re.search("transport shut down|authentication timeout", text, re.IGNORECASE)
    lasting = (paramiko.BadHostKeyException, HostKeyError, paramiko.ssh_exception.IncompatiblePeer)
    nothing = text.startswith("No authentication methods") or _KEY_OF_ANOTHER_KIND.search(text)
    if isinstance(error, lasting) or nothing or getattr(error, "filename", None):
        return True
    return not isinstance(error, (OSError, EOFError, paramiko.SSHException))


def explain(error: BaseException) -> str:
    """One line for what paramiko, Fabric and the sockets raise."""
    text = str(error)
    if isinstance(error, paramiko.BadHostKeyException):
        return "host key does not match known_hosts: the host was re-imaged, or it is not the host you mean"
    if "not found in known_hosts" in text:
        return UNKNOWN
    if isinstance(error, paramiko.ChannelException):
        return f"its sshd opened no channel: {error.text.lower()}"
    if isinstance(error, CommandTimedOut):
        return f"no answer from a running command within {error.timeout} s"
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        reasons = {str(e.strerror or e).lower() for e in error.errors.values()}
        return f"{', '.join(sorted(reasons))}: is the host up, and sshd running there?"
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_S} s"
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved: check the spelling, or give its HostName in ~/.ssh/config"
    if isinstance(error, paramiko.AuthenticationException) and not refuses(error):
        return "the connection was lost while we logged in"
    if isinstance(error, paramiko.AuthenticationException) or _KEY_OF_ANOTHER_KIND.search(text):
        return "authentication failed: check the user and the key in the agent or ~/.ssh/config"
    if text == "No existing session":  # paramiko goes on to the login when the time for the exchange of keys is over
        return f"no login within {CONNECT_S:g} s: the host answers, but has not exchanged keys by then. Is it busy?"
    return text or type(error).__name__


# How far is a host's clock ahead of the controller's?

Clock = tuple[float, float]
"""Seconds that a host's clock is ahead of the controller's, and how far that may be off."""


def clocks(fleet: Fleet, vms: Sequence[Host]) -> dict[str, Clock]:
    """VM -> its clock, of those that answered."""
    found = {}
    for name, o in fleet.run("date +%s.%N", [vm.name for vm in vms], limit_s=10).items():
        if o.ok and re.fullmatch(r"\d+(\.\w*)?\n", o.value, re.ASCII):
            found[name] = clock(o.value, o.started_s, o.started_s + o.seconds)
    return found


def clock(reading: str, asked_s: float, answered_s: float) -> Clock:
    """A clock by one reading, taken between the question and the answer. busybox prints no fraction: half a second is
    missing."""
    whole, _, part = reading.strip().partition(".")
    there, coarse = (float(f"{whole}.{part}"), 0.0) if part.isdigit() else (float(whole) + 0.5, 0.5)
    return there - (asked_s + answered_s) / 2, (answered_s - asked_s) / 2 + coarse
