"""What is left of a lab, asked from outside: from /proc, never from the code under test."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
LISTEN = "0A"  # state of a listening socket in /proc/net/tcp


def base_of(testbed) -> str:
    return testbed.nodes[0].address.rsplit(".", 1)[0]


def listening(base: str) -> list[str]:
    """Address:port of every TCP listener on the addresses of one lab."""
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        number, port = local.split(":")
        address = ".".join(str(byte) for byte in bytes.fromhex(number)[::-1])
        if state == LISTEN and address.startswith(base + "."):
            found.append(f"{address}:{int(port, 16)}")
    return found


def processes(mark: str) -> dict[int, str]:
    """Process id -> command line of every process of this account, not a zombie, that has `mark` in its command line,
    folder or environment. (A test beside may be a stranger's, who tries every socket of the machine.)"""
    found, account = {}, os.geteuid()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        proc = f"/proc/{pid}"
        with contextlib.suppress(OSError):
            if int(pid) == os.getpid() or os.stat(proc).st_uid != account:
                continue
            command = _read(f"{proc}/cmdline").replace("\0", " ")
            if command and (mark in command or mark in os.readlink(f"{proc}/cwd") or mark in _read(f"{proc}/environ")):
                found[int(pid)] = command  # none: a zombie, the kernel's own, or just ending
    return found


def _read(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        return file.read().decode(errors="replace")


def fios(mark: str) -> list[str]:
    """Command lines of every fio that has the mark."""
    return [command for command in processes(mark).values() if Path(command.split()[0]).name == "fio"]


def replicas(bed, node: str = "") -> list[int]:
    """Process ids of the servers that hold the replicas, of all nodes or of one."""
    mark = f"dir={bed.lab_root}/{node}"
    return sorted(pid for pid, command in processes(bed.lab_root).items() if "nbdkit" in command and mark in command)


def until(condition, patience_s: float = 12.0, every_s: float = 0.05):
    """The condition's value as soon as it is true; its last value, which is not, when patience ends."""
    deadline = time.monotonic() + patience_s
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(every_s)
    return value


def assert_gone(testbed, patience_s: float = 12.0) -> None:
    """No process, no listening port, no folder of that lab is left."""
    folder, base = testbed.lab_root, base_of(testbed)
    until(lambda: not (processes(folder) or listening(base) or os.path.exists(folder)), patience_s)
    assert processes(folder) == {}
    assert listening(base) == []
    assert not os.path.exists(folder)


def python(code: str, *args: str, **options) -> subprocess.Popen:
    """A Python process that runs `code` against this checkout, its output captured as text."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        env=environment,
        text=True,
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=options.pop("stderr", subprocess.PIPE),
        **options,
    )


def mkfs(device: Path | str) -> None:
    """Make a file system."""
    patiently(["mkfs.ext4", "-qF", str(device)])


def patiently(argv: list) -> None:
    """Run what needs a device for itself; a look of another test at this machine's devices may have it for a moment."""
    if not until(lambda: subprocess.run(argv, stderr=subprocess.DEVNULL).returncode == 0, 5):
        subprocess.run(argv, check=True)
