"""The record of a fleet: one line an event, on disk before what it tells of is done, written by one process at a time.

A controller that dies leaves no VM that nobody knows of, and at most one line that is torn, the last.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import socket
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from hcilib.drive.clones.hypervisors import Clone, ClonesError
from hcilib.model.testbed import Node


class Event(BaseModel):
    """One line. `fleet`: a fleet begins, with how its nodes are reached. `making`: a VM is about to be made.
    `ready`: it was handed over, at `address`. `left`: these `volumes` are there of it. `removed`: nothing is.
    `key` alone: a line of the user's known_hosts, as older versions wrote them."""

    model_config = ConfigDict(extra="forbid")

    fleet: str | None = None
    platform: str = ""
    known_hosts: str = ""
    key: str | None = None
    user: str | None = None
    nodes: tuple[Node, ...] = ()
    making: Clone | None = None
    ready: str | None = None
    address: str = ""
    left: str | None = None
    volumes: tuple[tuple[str, str], ...] = ()
    removed: str | None = None

    @model_validator(mode="after")
    def _tells_something(self) -> Event:
        if not any((self.fleet, self.making, self.ready, self.left, self.removed, self.key)):
            raise ValueError("no event of a fleet")
        if self.fleet and not (self.nodes and self.platform and self.known_hosts):
            raise ValueError("a fleet without nodes, platform or known_hosts")
        return self


class Record(AbstractContextManager["Record"]):
    """<folder>/<name>.jsonl, this process's alone while the block runs.

    `events` are its lines, `torn` says that the last one was cut off as it was written. `known_hosts`: the file of the
    fleet's host keys, beside it.
    """

    def __init__(self, folder: Path, name: str):
        self.name, self.path = name, folder / f"{name}.jsonl"
        self.known_hosts = folder / f"{name}.known_hosts"
        self.events: list[Event] = []
        self.torn = ""
        self._end, self._glue = 0, b""
        self._lock_path = folder / f"{name}.lock"
        self._lock: BinaryIO | None = None

    def __enter__(self) -> Record:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._take()
        try:
            self._read()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        if self._lock:
            if not self.path.exists() and self._is_ours():
                self._lock_path.unlink()
            self._lock.close()

    def _take(self) -> None:
        while True:
            self._lock = self._lock_path.open("a+b")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._lock.seek(0)
                who = self._lock.read(500).decode(errors="replace")
                self._lock.close()
                self._lock = None
                holder = f" ({who})" if who.isprintable() and who else ""
                raise ClonesError(
                    f"fleet {self.name}: another `hci fleet` is at work on it{holder}, which holds "
                    f"{self._lock_path}. Wait for it, or end it there."
                ) from None
            if self._is_ours():
                break
            self._lock.close()  # its last holder has removed it meanwhile
        self._lock.truncate(0)
        self._lock.write(f"process {os.getpid()} of {getpass.getuser()}@{socket.gethostname()}".encode())
        self._lock.flush()

    def _is_ours(self) -> bool:
        """Whether the file that is locked is still the one that others would lock."""
        with suppress(FileNotFoundError):
            return self._lock is not None and os.path.samestat(os.fstat(self._lock.fileno()), self._lock_path.stat())
        return False

    def _read(self) -> None:
        data = self.path.read_bytes() if self.path.exists() else b""
        *lines, last = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    self.events.append(Event.model_validate_json(line))
                except ValidationError as error:
                    why = error.errors()[0]["msg"]
                    todo = "Its VMs carry the mark `hcilib fleet` in their description. Put the line right"
                    raise ClonesError(
                        f"{self.path} line {number}: it is damaged ({why}). {todo}, or remove them by hand."
                    ) from None
        self._end, self._glue = len(data) - len(last), b""
        if last.strip():
            try:
                self.events.append(Event.model_validate_json(last))
                self._end, self._glue = len(data), b"\n"  # whole, but for its end
            except ValidationError:
                self.torn = (
                    f"{self.path} line {len(lines) + 1}: it was cut off as it was written, and is left out. What it "
                    "was to tell of had not begun."
                )

    def append(self, **event: Any) -> None:
        """Put one event down, on disk when this returns; a line that a crash has torn goes."""
        if not self._is_ours():
            raise ClonesError(
                f"fleet {self.name}: its lock {self._lock_path} was removed while it was held, so that another "
                "`hci fleet` may be at work. Nothing more is done. See that none runs, then try again."
            )
        line = self._glue + json.dumps(event).encode() + b"\n"
        known = Event.model_validate_json(line)
        is_new = not self.path.exists()
        with open(self.path, "ab") as out:
            out.truncate(self._end)
            out.write(line)
            out.flush()
            os.fsync(out.fileno())
        if is_new:
            _sync_folder(self.path.parent)
        self.events.append(known)
        self._end, self._glue = self._end + len(line), b""

    def remove(self) -> None:
        """The fleet is gone, and its files with it."""
        self.known_hosts.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    @property
    def head(self) -> Event | None:
        return next((event for event in reversed(self.events) if event.fleet), None)

    @property
    def standing(self) -> list[Clone]:
        """What was begun and not removed, each with the volumes that are left of it."""
        found: dict[str, Clone] = {}
        for event in self.events:
            if event.making:
                found[event.making.name] = event.making
            if event.left in found:
                found[event.left] = replace(found[event.left], volumes=event.volumes)
            found.pop(event.removed or "", None)
        return list(found.values())

    @property
    def addresses(self) -> dict[str, str]:
        """VM -> its address, of those that were handed over."""
        found: dict[str, str] = {}
        for event in self.events:
            if event.making:
                found.pop(event.making.name, None)
            if event.ready:
                found[event.ready] = event.address
        return found

    @property
    def learnt(self) -> list[str]:
        """Lines that older versions put into the user's known_hosts."""
        return [event.key for event in self.events if event.key and not event.fleet]


def _sync_folder(folder: Path) -> None:
    """So that the file itself outlasts a crash, not only its content."""
    held = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
