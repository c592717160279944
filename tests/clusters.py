"""A real dask scheduler with two worker processes on loopback, for tests and benches."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
WORKERS, PATIENCE_S = 2, 60
WORKER = ("--no-nanny", "--nthreads", "1", "--memory-limit", "0", "--no-dashboard", "--host", "127.0.0.1")


@contextmanager
def cluster(folder: Path, workers: int = WORKERS) -> Iterator[SimpleNamespace]:
    """address, and the processes `scheduler` and `workers`; every one is ended by its own id."""
    file, started = folder / "scheduler.json", []

    def start(module: str, *arguments: str) -> subprocess.Popen:
        argv = [sys.executable, "-m", f"distributed.cli.{module}", *arguments]
        with (folder / "cluster.log").open("ab") as log:
            started.append(
                subprocess.Popen(argv, cwd=folder, env=ENVIRONMENT, stdout=log, stderr=log)
            )  # not where the caller is
        return started[-1]

    try:
        scheduler = start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                          "--scheduler-file", str(file))  # fmt: skip
        address = _address(file)
        processes = [start("dask_worker", address, *WORKER, "--local-directory", str(folder)) for _ in range(workers)]
        _wait_for(address, workers)
        yield SimpleNamespace(address=address, scheduler=scheduler, workers=processes)
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def _address(file: Path) -> str:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            return json.loads(file.read_text())["address"]
        except (FileNotFoundError, ValueError):
            time.sleep(0.05)
    raise TimeoutError(f"no scheduler within {PATIENCE_S} s: {file.with_name('cluster.log').read_text()[-500:]}")


def _wait_for(address: str, workers: int) -> None:
    from distributed import Client

    with Client(address, timeout=PATIENCE_S, set_as_default=False) as client:
        if workers:
            client.wait_for_workers(workers, timeout=PATIENCE_S)
