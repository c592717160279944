"""Which host keys are vouched for? known_hosts as OpenSSH reads it: plain, hashed and wildcard names, revoked keys.

What cannot be honoured is named by its line. paramiko's own reader takes a marker (@revoked, @cert-authority) for a
host's name, and one line of another form for the end of everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, HostKeys

UNKNOWN = "host key unknown: add it to known_hosts after checking its fingerprint on the host"


class HostKeyError(paramiko.SSHException):
    """A host's key is not one that known_hosts vouches for; the message says why, and which line of the file
    decides."""


@dataclass(frozen=True)
class _Line:
    number: int
    marker: str
    names: tuple[str, ...]
    key: paramiko.PKey | None

    def speaks_of(self, name: str) -> bool:
        """Whether the name is among the line's: hashed, plain, with ``*`` and ``?``; one behind ``!`` is none whatever
        else fits."""
        fitting = [pattern for pattern in self.names if _fits(pattern.removeprefix("!"), name)]
        return bool(fitting) and not any(pattern.startswith("!") for pattern in fitting)


def _fits(pattern: str, name: str) -> bool:
    if pattern.startswith("|1|"):
        return HostKeys.hash_host(name, pattern) == pattern
    return fnmatchcase(name.lower(), pattern.lower().replace("[", "[[]"))  # a bracket begins a port, no choice


class KnownHosts(paramiko.MissingHostKeyPolicy):
    """The keys of a file by host, and what is said to a host that has none there: nobody is learnt, nobody is let
    through."""

    def __init__(self, path: Path):
        self.path = path
        self._lines: list[_Line] = []
        self._unread: list[str] = []
        text = path.read_text(errors="replace") if path.exists() else ""
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                self._read(number, line.strip())

    def _read(self, number: int, line: str) -> None:
        marker, _, rest = line.partition(" ") if line.startswith("@") else ("", "", line)
        fields = rest.split()
        try:
            entry = HostKeyEntry.from_line(" ".join(fields[:3]), number)
            if marker not in ("", "@revoked", "@cert-authority"):
                raise ValueError(f"marker {marker[:40]!r} is not known")
            if entry is None:
                raise ValueError("expected names, the kind of a key that paramiko knows, and the key")
            self._lines.append(_Line(number, marker, tuple(fields[0].split(",")), entry.key))
        except Exception as error:  # of one line: its own trouble must not hide the others
            why = " ".join(str(error).split())[:80] or type(error).__name__
            self._unread.append(f"line {number} cannot be read ({why})")
            if marker == "@revoked":  # what it revokes is not known: whoever it speaks of has no key here
                self._lines.append(_Line(number, marker, tuple(fields[0].split(",")) if fields else ("*",), None))

    def keys(self, name: str) -> dict[str, paramiko.PKey]:
        """Kind -> key of a host, by its name as known_hosts writes it (``[host]:2222``), without revoked ones."""
        found: dict[str, paramiko.PKey] = {}
        for line in self._lines:
            if not line.marker and line.key and line.speaks_of(name) and not self._revoking(name, line.key):
                found.setdefault(line.key.get_name(), line.key)
        return found

    def _revoking(self, name: str, key: paramiko.PKey) -> _Line | None:
        revoked = (line for line in self._lines if line.marker == "@revoked" and line.key in (None, key))
        return next((line for line in revoked if line.speaks_of(name)), None)

    def missing_host_key(self, client, hostname: str, key: paramiko.PKey) -> None:
        """What paramiko asks where `keys` gave nothing for a host."""
        if line := self._revoking(hostname, key):
            unread = "" if line.key else ", though the key there cannot be read"
            raise HostKeyError(
                f"host key revoked: {self.path} line {line.number} says so{unread}; find out why before you trust "
                "this host"
            )
        vouching = [line for line in self._lines if line.marker == "@cert-authority" and line.speaks_of(hostname)]
        what = "names a certificate authority, whose signatures are not checked here"
        said = [*(f"line {line.number} {what}" for line in vouching[:1]), *self._unread[:3]]
        raise HostKeyError(UNKNOWN + (f" ({self.path}: {'; '.join(said)})" if said else ""))
