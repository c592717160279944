"""Where does a notebook run? In a fork of a process that has imported what notebooks import; if it measures, alone.

A kernel that starts cold spends two seconds of CPU on imports.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Lock
from typing import Any

from jupyter_client.manager import AsyncKernelManager

KERNELS: dict[int, bool] = {}
"""The kernels of this process by their process ids, and whether their notebook measures."""
LAUNCHER, BACKEND = "ipykernel_launcher", "module://matplotlib_inline.backend_inline"
PRELOADED = (
    "ipykernel.kernelapp",
    "scipy.stats",
    "hcilib.show.site.numbers",
    "hcilib.show.plots",
    "hcilib.say.answers",
    "hcilib.read.run.run",
    "hcilib.read.foreign.results",
    "hcilib.analyse.compare",
    "hcilib.analyse.ceilings",
)


class Kernel(AsyncKernelManager):
    """Is known by its process while it runs. Within `forking` it is a fork."""

    measures = False

    async def _async_launch_kernel(self, kernel_cmd: list[str], **given: Any) -> None:
        local: Any = self.provisioner
        if self.measures or not _Forks.current:
            await super()._async_launch_kernel(kernel_cmd, **given)
        else:
            arguments = kernel_cmd[kernel_cmd.index(LAUNCHER) + 1 :]
            local.process = _Fork(_Forks.current.start(arguments, given["env"], given["cwd"]))
            local.pid = local.pgid = local.process.pid
        KERNELS[local.pid] = self.measures

    async def _async_cleanup_resources(self, restart: bool = False) -> None:
        KERNELS.pop(getattr(self.provisioner, "pid", 0), None)
        await super()._async_cleanup_resources(restart)


class MeasuringKernel(Kernel):
    """Of a notebook that measures.

    Ctrl-C is said to its cell, as in JupyterLab. A kernel that is asked to shut down instead ends its children
    first: the hosts of an embedded testbed, or the connections to real ones, before the campaign has put back what
    it changed there.
    """

    measures = True


@contextmanager
def forking() -> Iterator[None]:
    """Fork the kernels of replays while the block runs. Not longer, as the library may change afterwards."""
    _Forks.current = forks = _Forks()
    try:
        yield
    finally:
        _Forks.current = None
        if forks.process:
            forks.process.communicate()


class _Forks:
    """The process that forks kernels, started with the first. Its end is the end of its kernels."""

    current: _Forks | None = None

    def __init__(self) -> None:
        self.process: Any = None
        self.lock = Lock()

    def start(self, *kernel: Any) -> int:
        """Fork a kernel and return its process id."""
        with self.lock:
            self.process = self.process or subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={"MPLBACKEND": BACKEND, **os.environ},
                start_new_session=True,  # Ctrl-C is for the report, which then ends its kernels
            )
            print(json.dumps(kernel), file=self.process.stdin, flush=True)
            return int(self.process.stdout.readline())


class _Fork:
    """What jupyter_client uses of subprocess.Popen, for a process that is no child of this one."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Return None while the process runs."""
        return None if self.send_signal(0) else 0

    wait = poll

    def send_signal(self, number: int) -> bool:
        """Send a signal, and return whether the process runs."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False


def _serve() -> None:
    """Fork a kernel for each line of standard input, until it ends. ipykernel ends within a second of its parent."""
    for name in PRELOADED:
        import_module(name)
    with suppress(ValueError):  # which who needs them is told
        import_module("hcilib.model.system").load_systems()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no kernel stays as a zombie
    for line in sys.stdin:
        if pid := os.fork():
            print(pid, flush=True)
        else:
            return _run(*json.loads(line))


def _run(arguments: list[str], environment: dict[str, str], cwd: str) -> None:
    """Do what ``python -m ipykernel_launcher`` does."""
    import numpy as np
    from ipykernel.kernelapp import IPKernelApp

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    np.random.seed()  # Python's own generator is seeded anew after a fork, numpy's is not
    IPKernelApp.launch_instance(argv=arguments, parent_handle=os.getppid())


if __name__ == "__main__":
    _serve()
