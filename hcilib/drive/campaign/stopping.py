"""Stop a campaign from any terminal: its controller looks for a file in the run directory, and ends as by Ctrl-C."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from hcilib.model.places import LOCK, PLAN, STOP, at_home
from hcilib.read.run.journal import locked, progress
from hcilib.read.run.step import plan_of

SIGNAL = signal.SIGUSR1
"""What wakes the controller's own main thread: a background job and a notebook's kernel ignore SIGINT, or some of the
time."""
LOOK_S, HEARD_S, ENDED_S = 0.5, 10.0, 60.0
"""How often a controller looks for the file, how long it may take to hear, and to put back what it changed."""
NOTHING, ELSEWHERE = 3, 4


class StopError(RuntimeError):
    """A campaign that was not stopped; `code` is the exit status of ``hci stop``: 1 it cannot be stopped, 3 nothing
    runs there, 4 it runs on another machine."""

    def __init__(self, said: str, code: int = 1):
        super().__init__(said)
        self.code = code


# In the controller


@contextlib.contextmanager
def stoppable(run_dir: Path) -> Iterator[None]:
    """While the block runs, the file in the run directory is Ctrl-C to this thread; written again, once more. So is
    the end of a notebook's parent, of which its kernel hears nothing else."""
    over, own = threading.Event(), threading.current_thread()
    is_main = own is threading.main_thread()
    before = signal.signal(SIGNAL, _interrupt) if is_main else None
    parent = os.getppid() if _poller() else None

    def look() -> None:
        nonlocal parent
        while not over.wait(LOOK_S):
            number = SIGNAL
            try:
                (run_dir / STOP).unlink()  # by which whoever wrote it knows that it was heard
            except OSError:
                if parent in (None, os.getppid()):
                    continue
                parent, number = None, signal.SIGTERM
            if is_main:
                signal.pthread_kill(own.ident or 0, number)
            else:  # no signal reaches it
                raised = ctypes.py_object(KeyboardInterrupt)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(own.ident or 0), raised)

    (run_dir / STOP).unlink(missing_ok=True)  # meant for a controller that has ended since
    looking = threading.Thread(target=look, daemon=True, name="hci stop")
    looking.start()
    try:
        with _outliving_parent():
            yield
    finally:
        over.set()
        looking.join()
        if is_main:
            signal.signal(SIGNAL, before if before is not None else signal.SIG_DFL)


class _AnyParent(int):
    """A process id that equals every other."""

    def __ne__(self, other: object) -> bool:
        return False


@contextlib.contextmanager
def _outliving_parent() -> Iterator[None]:
    """Keep a notebook's kernel alive while it puts back what it changed: ipykernel ends it within a second of its
    parent, as when papermill's terminal is closed."""
    poller = _poller()
    if poller is None:
        yield
        return
    before, poller.parent_pid = poller.parent_pid, _AnyParent(1)
    try:
        yield
    finally:
        poller.parent_pid = before


def _poller() -> Any:
    """Return what ends this kernel when its parent is gone; None where this is no kernel of ipykernel 7."""
    loaded = sys.modules.get("ipykernel.kernelapp")
    poller = loaded and loaded.IPKernelApp.initialized() and loaded.IPKernelApp.instance().poller
    return poller if hasattr(poller, "parent_pid") else None


def _interrupt(*_) -> None:
    raise KeyboardInterrupt("hci stop")


@contextlib.contextmanager
def signed(lock: TextIO) -> Iterator[None]:
    """While the block runs, the lock of a run directory says which process holds it. Afterwards it is empty again: who
    looks whether the directory has changed is told of no change."""
    lock.truncate(0)
    lock.write(json.dumps({"pid": os.getpid(), "began": _began(os.getpid()), "host": socket.gethostname()}))
    lock.flush()
    try:
        yield
    finally:
        lock.truncate(0)


def _began(pid: int) -> str:
    """When a process began, as the kernel counts: another one of the same number began later. Empty where unknown."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


# In the other terminal


def stop(run_dir: str | Path, limit_s: float = ENDED_S) -> str:
    """Stop the campaign of a run directory, or of a search's rounds in it, as Ctrl-C does: what runs is ended, what was
    changed is put back, and finished steps are kept.

    Parameters
    ----------
    limit_s : how long it is waited for what is put back

    Returns
    -------
    str : what was stopped and what is kept

    Raises
    ------
    StopError : nothing runs there, it runs on another machine, or it cannot be stopped
    RunReadError : no run directory

    Examples
    --------
    >>> from hcilib.drive.campaign.stopping import stop
    >>> stop("data/samples/lab-single")
    Traceback (most recent call last):
    hcilib.drive.campaign.stopping.StopError: data/samples/lab-single: no campaign runs there. Nothing was stopped.
    """
    asked = at_home(run_dir)
    places = [asked, *sorted(asked.glob("round-*"))]
    place = next((place for place in places if locked(place / LOCK)), None)
    if place is None:
        if not any((place / PLAN).exists() for place in places):
            plan_of(asked)
        raise StopError(f"{run_dir}: no campaign runs there. Nothing was stopped.", NOTHING)
    who = _holder(place)
    host, pid = str(who.get("host") or ""), int(who.get("pid") or 0)
    if host and host != socket.gethostname():
        raise StopError(f"{place}: its campaign runs on {host}, process {pid}. Run hci stop there.", ELSEWHERE)
    if not _ended(place, min(HEARD_S, limit_s), heard=True) and pid and _began(pid) == who.get("began"):
        with contextlib.suppress(OSError):  # another account's
            os.kill(pid, signal.SIGINT)
    if not _ended(place, limit_s):
        whose = f"process {pid}" if pid else "its controller, which does not say which process it is,"
        hard = f"kill -9 {pid or 'PID'} ends it and its fio, and the next run puts back what it had set"
        hangs = "does not end. It hangs, or still puts something back"
        raise StopError(f"{place}: {whose} {hangs}. Run hci stop once more, or {hard}.")
    now = progress(place) if (place / PLAN).exists() else {"done": 0, "steps": 0}
    return f"{place}: stopped, {now['done']} of {now['steps']} steps are kept. Run the same again and it goes on."


def _holder(place: Path) -> dict:
    with contextlib.suppress(OSError, ValueError):
        who = json.loads((place / LOCK).read_text())
        return who if isinstance(who, dict) else {}
    return {}


def _ended(place: Path, limit_s: float, heard: bool = False) -> bool:
    """Whether the controller has let go of the run directory within the limit; `heard`: or has taken the file that is
    written for it now."""
    file, until = place / STOP, time.monotonic() + limit_s
    if heard:
        try:
            file.touch()
        except OSError as error:
            raise StopError(f"{file}: {(error.strerror or str(error)).lower()}. Use an account that may write "
                            "there.") from None  # fmt: skip
    while locked(place / LOCK):
        if heard and not file.exists():
            return True
        if time.monotonic() > until:
            break
        time.sleep(0.1)
    file.unlink(missing_ok=True)
    return not locked(place / LOCK)
