"""The record of a fleet: on disk before what it tells of is done, whole or as it was, written by one process at a time.

A controller that dies leaves no VM that nobody knows of.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from hcilib.extras.libvirt import Clone, ClonesError
from hcilib.model.testbed import Node


class Record(BaseModel):
    """A fleet: how its nodes are reached, and every VM of it that was begun and not removed."""

    model_config = ConfigDict(extra="forbid")

    fleet: str
    known_hosts: str = ""
    key: str | None = None
    user: str | None = None
    nodes: tuple[Node, ...] = ()
    vms: dict[str, Clone] = {}
    _path: Path = PrivateAttr()
    _lock: IO = PrivateAttr()

    @property
    def path(self) -> Path:
        """Return where it lies."""
        return self._path

    @property
    def keys_path(self) -> Path:
        """Return the file of the fleet's host keys, beside it."""
        return self._path.with_suffix(".known_hosts")

    def put(self, *clones: Clone) -> None:
        """Write VMs down as they are from now on; on disk when this returns."""
        self.vms |= {clone.name: clone for clone in clones}
        self.save()

    def drop(self, name: str) -> None:
        """Forget a VM that is gone."""
        del self.vms[name]
        self.save()

    def save(self) -> None:
        """Put the record down in one rename.

        Raises
        ------
        ClonesError : its lock was removed, so that another process may be at work
        """
        lock = lock_of(self._path)
        if not is_held(self._lock, lock):
            raise ClonesError(
                f"fleet {self.fleet}: its lock {lock} was removed while it was held, so that another `hci fleet` may "
                "be at work. Nothing more is done. See that none runs, then try again."
            )
        beside = self._path.with_suffix(".new")
        with beside.open("w", encoding="utf-8") as file:
            file.write(self.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        os.fsync(folder)  # so that the file itself outlasts a crash, not only its content
        os.close(folder)

    def remove(self) -> None:
        """Remove its files: the fleet is gone."""
        for file in (self.keys_path, self._path):
            file.unlink(missing_ok=True)


@contextmanager
def opened(folder: Path, name: str) -> Iterator[Record]:
    """Read a fleet's record, an empty one where there is none; it is this process's alone while the block runs.

    Raises
    ------
    ClonesError : another process works on it, or it is damaged
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    with _locked(lock_of(path), name) as lock:
        record = _read(path, name)
        record._path, record._lock = path, lock
        yield record
        if not path.exists() and is_held(lock, lock_of(path)):
            lock_of(path).unlink()


def _read(path: Path, name: str) -> Record:
    try:
        return Record.model_validate_json(path.read_bytes()) if path.exists() else Record(fleet=name)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        todo = "Its VMs carry the mark `hcilib fleet` in their description. Put it right, or remove them by hand"
        raise ClonesError(f"{path}: it is damaged ({where}: {first['msg']}). {todo}.") from None


def lock_of(path: Path) -> Path:
    """Return the file whose lock says that a process works on a record."""
    return path.with_suffix(".lock")


@contextmanager
def _locked(path: Path, name: str) -> Iterator[IO]:
    while True:
        with path.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                who = lock.read(500)
                holder = f" ({who})" if who.isprintable() and who else ""
                raise ClonesError(
                    f"fleet {name}: another `hci fleet` is at work on it{holder}, which holds {path}. Wait for it, "
                    "or end it there."
                ) from None
            if not is_held(lock, path):
                continue  # its last holder has removed it meanwhile
            lock.truncate(0)
            lock.write(f"process {os.getpid()} of {getpass.getuser()}@{socket.gethostname()}")
            lock.flush()
            yield lock
            return


def is_held(lock: IO, path: Path) -> bool:
    """Tell whether the file that is locked is still the one that others would lock."""
    try:
        return os.path.samestat(os.fstat(lock.fileno()), path.stat())
    except FileNotFoundError:
        return False
