"""Where an embedded testbed lies on this machine: a folder and loopback addresses of its own, and whether they are free
again."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hcilib.drive.beds.lab_hosts import LabError
from hcilib.drive.beds.loopback import AddressInUse, hold
from hcilib.drive.beds.supervisor import sweep
from hcilib.drive.hosts.hosts import answers

Endpoint = tuple[str, int]
PREFIX = "bed-"


def make_folder(root: str | Path | None, need_bytes: int, what: str) -> Path:
    """A new folder under `root` (default: out/ of the repository); LabError where `what` would find too little space
    there."""
    parent = Path(root) if root else repository_root() / "out"
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent, PREFIX)  # the replicas and the key of labs that nobody lived to remove
    free = shutil.disk_usage(parent).free
    if free < need_bytes + 64 * 2**20:
        raise LabError(f"{parent}: {free >> 20} MiB free, {what} need {need_bytes >> 20} MiB and 64 MiB to spare")
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()


def repository_root() -> Path:
    """The folder that holds hcilib, when it is a checkout; else the working directory."""
    home = Path(__file__).resolve().parents[3]
    return home if (home / "pyproject.toml").exists() else Path.cwd()


@contextlib.contextmanager
def reserve(base: str | None, endpoints: Callable[[str], Sequence[Endpoint]], seed: str) -> Iterator[str]:
    """Hold a block of addresses; yields its first three numbers, ``127.b.c``. LabError where it is not free.

    `endpoints` : block -> the addresses and ports that will be used
    """
    wanted = [(int(address.rpartition(".")[2]), port) for address, port in endpoints("127.0.0")]
    with contextlib.ExitStack() as stack:
        try:
            block = stack.enter_context(hold(wanted, base, seed))
        except AddressInUse as error:
            raise LabError(str(error)) from None
        yield block


def wait_refused(endpoints: Sequence[Endpoint], patience_s: float = 5.0) -> None:
    """Until nothing answers at any of them; LabError names what still does when patience ends."""
    left, deadline = list(endpoints), time.monotonic() + patience_s
    while left and time.monotonic() < deadline:
        left = [(a, p) for a, p in left if answers(a, p)]
    if left:
        raise LabError("still listening after the lab was stopped: " + ", ".join(f"{a}:{p}" for a, p in left))
