"""Keeps the lab's processes and ends them all when whoever started them is gone, however it went.

Run as a script with the lab's folder and a pipe as standard input: the end of that pipe is the only signal that
survives `kill -9` of a notebook kernel. Being a subreaper (Linux), it also inherits, and so finds, what an SSH session
or a fio server left behind. Standard library alone, so that it starts in milliseconds.

Requests and answers are JSON lines: ``{"spawn": [argv], "cwd": dir, "log": file, "env": {}}`` -> ``{"pid": n}``;
``{"poll": true}`` -> ``{"exited": {pid: returncode}}``; ``{"at_exit": {"rmtree": dir, "rmdir": dir}}`` -> ``{}``.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time

JUST_MADE_S, PATIENCE_S = 5.0, 3.0
_PDEATHSIG, _SUBREAPER = 1, 36  # linux/prctl.h
LOCK = "owned"  # in a lab's folder, locked by its supervisor and by who started it
MARKER = ".hcilab"  # in a folder that a lab made: whichever lab ends last removes it


def _prctl(option, value):
    """Best effort: on a kernel without prctl the pipe alone has to do."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main(folder):
    _prctl(_SUBREAPER, 1)
    owned = own(folder)  # as long as it lives
    for name in ("SIGINT", "SIGHUP"):  # a Ctrl-C in the terminal is the parent's to handle
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    children, at_exit = {}, {}
    signal.signal(signal.SIGCHLD, lambda *_: reap(children))
    try:
        for line in sys.stdin:
            print(json.dumps(_answer(json.loads(line), children, at_exit)), flush=True)
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        end_all(children)
        clean(at_exit)
        os.close(owned)


def own(folder):
    """A descriptor that says for as long as it is open that the folder has an owner; see `sweep`."""
    owned = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(owned, fcntl.LOCK_SH)
    return owned


def sweep(parent, prefix):
    """Remove the folders of labs whose supervisor and holder were both killed: nobody else is left to do it."""
    for entry in os.scandir(parent):
        if not entry.name.startswith(prefix) or not entry.is_dir(follow_symlinks=False):
            continue
        if time.time() - entry.stat().st_mtime < JUST_MADE_S:  # its owner may not have come to lock it
            continue
        with contextlib.suppress(OSError):  # no lock yet, not ours, or its owner lives
            lock = os.open(os.path.join(entry.path, LOCK), os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(entry.path)
            finally:
                os.close(lock)


def remove(folder):
    """The folder and all in it; what is mounted there is unmounted first, the innermost before what it lies on."""
    with contextlib.suppress(OSError):
        with open("/proc/self/mounts") as mounts:
            places = [line.split()[1].replace("\\040", " ") for line in mounts]
        inside = os.path.join(os.path.realpath(folder), "")
        for place in sorted((place for place in places if place.startswith(inside)), key=len, reverse=True):
            subprocess.run(["umount", "-l", place], stdin=subprocess.DEVNULL, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def reap(children):
    """What an SSH session left behind ends as our child, and nobody else waits for it. Those we started are Popen's to
    reap."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in children:
                if children[ended.si_pid].poll() is None:  # the signal came amid its poll, which reaps it next
                    return
            elif None in children:  # one is being started, maybe this: looked at again as soon as it is known
                return
            else:
                os.waitpid(ended.si_pid, os.WNOHANG)


def _answer(request, children, at_exit):
    if "spawn" in request:
        children[None] = None
        try:
            child = _spawn(request)
        except OSError as error:
            return {"error": f"{request['spawn'][0]}: {error.strerror}"}
        else:
            children[child.pid] = child
        finally:
            del children[None]
            reap(children)
        return {"pid": child.pid}
    if "at_exit" in request:
        at_exit.update(request["at_exit"])
        return {}
    exited = {pid: c.returncode for pid, c in children.items() if c.poll() is not None}
    reap(children)
    return {"exited": exited}


def _spawn(request):
    with open(request["log"], "ab") as log:
        return subprocess.Popen(
            request["spawn"],
            cwd=request["cwd"],
            env={**os.environ, **request.get("env", {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: _prctl(_PDEATHSIG, signal.SIGTERM),
        )


def end_all(children):
    """TERM to every child and every descendant, then KILL to what is left."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            alive = _alive(children)
            if not alive:
                return
            for pid in alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, sig)
            time.sleep(0.02)


def _alive(children):
    running = {pid for pid, child in children.items() if child.poll() is None} | descendants(os.getpid())
    for pid in list(running):  # adopted orphans are ours to reap
        if pid not in children:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    running.discard(pid)
    return running


def descendants(root):
    """Process ids below `root`, by /proc; empty where there is none."""
    parents = {pid: parent for pid, _, state, parent in _processes() if state != "Z" or parent == root}
    found, frontier = set(), {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier} - found
        found |= frontier
    return found


def clean(at_exit):
    if at_exit.get("rmtree"):
        remove(at_exit["rmtree"])
    if at_exit.get("rmdir") and not _runs("sshd"):  # another lab may be using it
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(at_exit["rmdir"], MARKER))
            os.rmdir(at_exit["rmdir"])


def _runs(name):
    return any(name == its for _, its, _, _ in _processes())


def _processes():
    """(id, name, state, parent) of every process, by /proc; none where there is no such folder."""
    with contextlib.suppress(FileNotFoundError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat") as stat:
                head, tail = stat.read().rsplit(")", 1)
                state, parent = tail.split()[:2]
                yield int(pid), head.partition("(")[2], state, int(parent)


if __name__ == "__main__":
    main(sys.argv[1])
