"""Kernels forked from a process that has imported what notebooks import, behind papermill's engine interface.

A notebook of this repository spends most of its time importing pandas, scipy, matplotlib and seaborn. The standard
library's fork server imports them once; every notebook gets a fork of its own, which has run nothing else, so that
notebooks see as little of each other as kernels started one by one (data/samples/bench_batch.csv has the times).
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import AsyncKernelManager, KernelManager
from jupyter_client.provisioning import LocalProvisioner

if TYPE_CHECKING:
    from jupyter_client.connect import KernelConnectionInfo

MEASURING: list[int] = []
"""The kernel of this process's notebook that measures, by its process id."""
_LAUNCHER, _BACKEND = "ipykernel_launcher", "module://matplotlib_inline.backend_inline"
_PRELOADED = (
    # not matplotlib_inline: its backend hooks into the IPython it is imported under, and there is none yet
    "ipykernel.kernelapp",
    "scipy.stats",
    "seaborn",
    "hcilib.show.report.export",
    "hcilib.show.plots",
    "hcilib.show.text",
    "hcilib.read.run.run",
    "hcilib.read.published",
    "hcilib.analyse.compare.compare",
    "hcilib.analyse.runs.latency",
    "hcilib.model.schemes",
    "hcilib.analyse.curves.scaling",
)


class BlockingForkedKernelManager(KernelManager):
    """Starts its kernel as a fork; nbval, which waits for each answer, uses it in ``make test``."""

    _folder: tempfile.TemporaryDirectory[str] | None = None

    async def _async_pre_start_kernel(self, **given: Any) -> tuple[list[str], dict[str, Any]]:
        if self.provisioner is None:
            self.kernel_id = self.kernel_id or "forked"
            self.provisioner = ForkedProvisioner(kernel_id=self.kernel_id, kernel_spec=self.kernel_spec, parent=self)
            # Sockets in a folder: TCP ports are looked for here and bound by the kernel, and somebody may be faster.
            usual = tempfile.gettempdir()
            short = usual if len(usual) < 60 else "/tmp"  # a socket's path may have 107 bytes
            self._folder = tempfile.TemporaryDirectory(prefix="hci-", dir=short)
            self.transport, self.ip = "ipc", f"{self._folder.name}/kernel"
        return await super()._async_pre_start_kernel(**given)

    def cleanup_connection_file(self) -> None:
        """At the kernel's end, its sockets too."""
        super().cleanup_connection_file()
        if self._folder is not None:
            self._folder.cleanup()


class ForkedKernelManager(BlockingForkedKernelManager, AsyncKernelManager):
    """The same for papermill, which hands this class to nbclient as ``kernel_manager_class``."""


class MeasuringKernelManager(AsyncKernelManager):
    """Knows its kernel's process while it runs, so that Ctrl-C is said to the cell that measures, as in JupyterLab.

    Asked to shut down instead, a kernel first ends its children: the hosts of an embedded testbed, or the connections
    to real ones, before the campaign has put back what it changed there.
    """

    async def _async_post_start_kernel(self, **given: Any) -> None:
        await super()._async_post_start_kernel(**given)
        assert isinstance(self.provisioner, LocalProvisioner)
        assert self.provisioner.pid is not None  # it was started
        MEASURING.append(self.provisioner.pid)

    async def _async_cleanup_resources(self, restart: bool = False) -> None:
        MEASURING.clear()
        await super()._async_cleanup_resources(restart)


class ForkedProvisioner(LocalProvisioner):
    """A local kernel in all but how its process comes to be."""

    process: Any  # a _Fork where the base class has a Popen, of which it uses no more than a _Fork has

    async def launch_kernel(self, cmd: list[str], **given: Any) -> KernelConnectionInfo:
        arguments = cmd[cmd.index(_LAUNCHER) + 1 :]
        self.process = _Fork(arguments, given.get("env") or os.environ, given.get("cwd") or os.getcwd())
        self.pid = self.pgid = self.process.pid
        self.cwd = given.get("cwd")
        return self.connection_info


class _Fork:
    """A forked kernel with the part of subprocess.Popen's interface that a provisioner uses."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], environment: Mapping[str, str], cwd: str):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(_PRELOADED))
        self._process = context.Process(target=_run_kernel, args=(arguments, dict(environment), cwd))
        self._process.start()
        assert self._process.pid is not None  # it was started
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


def _run_kernel(arguments: list[str], environment: dict[str, str], cwd: str) -> None:
    """What ``python -m ipykernel_launcher`` does, in a process of its own session that ends with the fork server."""
    import matplotlib
    import numpy
    from ipykernel.kernelapp import IPKernelApp

    # matplotlib asks the environment when it is imported, which was before the kernel named its backend there
    matplotlib.rcParams["backend"] = environment.get("MPLBACKEND", _BACKEND)
    numpy.random.seed()  # Python seeds its own generator anew after a fork, numpy does not
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment, JPY_PARENT_PID=str(os.getppid()))
    sys.argv = [_LAUNCHER, *arguments]
    IPKernelApp.launch_instance(argv=arguments, parent_handle=os.getppid())
