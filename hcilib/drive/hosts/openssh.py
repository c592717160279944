"""How does OpenSSH reach a host, and which of its keys are vouched for? `ssh -G` and `ssh-keygen -F` are asked.

So Include, Match and ProxyJump, hashed and wildcard names and revoked keys mean what they mean to `ssh`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import paramiko
from fabric.connection import derive_shorthand
from paramiko.hostkeys import HostKeyEntry

UNKNOWN = "host key unknown: add it to known_hosts after checking its fingerprint on the host"
_FOUND = re.compile(r"^# Host .* found: line (\d+) ?(\w*)$\n^(?:@\S+[ \t]+)?(.*)$", re.MULTILINE)
"""What ssh-keygen prints of each line that speaks of a host: its number, REVOKED or CA, the line."""


REACHED_BY = ("hostname", "user", "port", "identityfile", "proxyjump", "proxycommand", "hostkeyalias")
"""What Fabric takes of a host's configuration."""
USUAL_KEY = re.compile(r"identityfile ~/\.ssh/id_(rsa|dsa|ecdsa|ecdsa_sk|ed25519|ed25519_sk|xmss)")
"""A key that nobody configured: paramiko looks for these by itself, and each try counts at the host."""


class SshConfigError(ValueError):
    """What `ssh` refuses in its configuration, in its own words, which name the file."""


def _asked(*words: str) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    except FileNotFoundError as error:
        raise SshConfigError(f"{words[0]} is not installed on this machine. Install openssh-client.") from error


def configuration(names: Iterable[str]) -> paramiko.SSHConfig:
    """Return what `ssh` goes by for these hosts, and for the jump hosts on their way.

    Raises
    ------
    SshConfigError : a configuration that `ssh` does not use
    """
    known: dict[str, list[str]] = {}
    waiting = list(names)
    while waiting:
        name = derive_shorthand(waiting.pop())["host"]
        if name in known:
            continue
        answer = _asked("ssh", "-G", "--", name)
        if answer.returncode:
            raise SshConfigError(f"ssh does not use its configuration for {name}: {answer.stderr.strip()}")
        lines = [line for line in answer.stdout.splitlines() if line.partition(" ")[0] in REACHED_BY]
        known[name] = [line for line in lines if not USUAL_KEY.fullmatch(line)]
        jumps = [line.partition(" ")[2] for line in lines if line.startswith("proxyjump ")]
        waiting += [jump for line in jumps for jump in line.split(",") if jump != "none"]
    return paramiko.SSHConfig.from_text("\n".join(line for name in known for line in (f"Host {name}", *known[name])))


class HostKeyError(paramiko.SSHException):
    """A host's key is not one that known_hosts vouches for; the message says why, and which line of the file
    decides."""


@dataclass(frozen=True)
class _Line:
    number: int
    marker: str
    key: paramiko.PKey | None


def _key(line: str, number: int) -> paramiko.PKey | None:
    try:
        entry = HostKeyEntry.from_line(" ".join(line.split()[:3]), number)
    except Exception:  # paramiko raises what each kind of key raises
        return None
    return entry.key if entry else None


class KnownHosts(paramiko.MissingHostKeyPolicy):
    """The keys of a file by host, and what is said to a host that has none there: nobody is learnt, nobody is let
    through."""

    def __init__(self, path: Path):
        self.path = path

    def _lines(self, name: str) -> list[_Line]:
        parts = _FOUND.findall(_asked("ssh-keygen", "-F", name, "-f", str(self.path)).stdout)
        return [_Line(int(number), marker, _key(line, int(number))) for number, marker, line in parts]

    def keys(self, name: str) -> dict[str, paramiko.PKey]:
        """Kind -> key of a host, by its name as known_hosts writes it (``[host]:2222``), without revoked ones."""
        lines = self._lines(name)
        found: dict[str, paramiko.PKey] = {}
        for line in lines:
            if not line.marker and line.key and not _revoking(lines, line.key):
                found.setdefault(line.key.get_name(), line.key)
        return found

    def missing_host_key(self, client, hostname: str, key: paramiko.PKey) -> None:
        """What paramiko asks where `keys` gave nothing for a host."""
        lines = self._lines(hostname)
        if line := _revoking(lines, key):
            unread = "" if line.key else ", though the key there cannot be read"
            raise HostKeyError(
                f"host key revoked: {self.path} line {line.number} says so{unread}; find out why before you trust "
                "this host"
            )
        what = "names a certificate authority, whose signatures are not checked here"
        said = [f"line {line.number} {what}" for line in lines if line.marker == "CA"]
        said += [f"line {line.number} has a key that cannot be read" for line in lines if not line.key]
        raise HostKeyError(UNKNOWN + (f" ({self.path}: {'; '.join(said[:3])})" if said else ""))


def _revoking(lines: list[_Line], key: paramiko.PKey) -> _Line | None:
    """Return the line that revokes a key. One whose own key cannot be read revokes every key of its hosts."""
    return next((line for line in lines if line.marker == "REVOKED" and line.key in (None, key)), None)
