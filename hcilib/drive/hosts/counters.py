"""CPU and network of the nodes while a step runs. Linux: read by SFTP on the open connection, no process is started there.

Windows: one process a node that prints its counters (drive/windows.py); what it printed is kept beside the table.
"""

from __future__ import annotations

import contextlib
import csv
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hcilib.drive.hosts.hosts import Fleet, Outcome
from hcilib.drive.hosts.windows import streamed
from hcilib.read.nodes.counters import COLUMNS, rates

FILES = ("/proc/stat", "/proc/net/dev")


@contextlib.contextmanager
def sampled(
    fleet: Fleet, nodes: Sequence[str], path: Path, every_s: float = 1.0, limit_s: float = 3600
) -> Iterator[list[str]]:
    """Sample the nodes until the block ends; one row an interval and network card in `path` (columns of read.counters).

    Yields a list that is complete after the block: a sentence for every Windows node's counters that are missing or
    doubtful. A node that stops answering leaves a gap, never a zero; the step's own acceptance decides what that means.
    What stops the sampling itself, a full disk say, is raised at the end of the block. `limit_s`: when a Windows node's
    process ends by itself, should we be gone.
    """
    remarks: list[str] = []
    stop = threading.Event()
    linux = [node for node in nodes if node not in fleet.windows]
    with open(path, "w", newline="") as file, ThreadPoolExecutor(1, thread_name_prefix="counters") as pool:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        with streamed(fleet, [n for n in nodes if n in fleet.windows], path.parent, every_s, limit_s) as streams:
            loop = pool.submit(_loop, fleet, linux, writer, every_s, stop)
            try:
                yield remarks
            finally:
                stop.set()
            remarks += loop.result()
        for stream in streams:
            counters, said = stream.tables()
            counters.to_csv(file, header=False, index=False)
            remarks += said


def _loop(fleet: Fleet, nodes: Sequence[str], writer, every_s: float, stop: threading.Event) -> list[str]:
    """Sample until told to stop; a remark for each node that did not always answer."""
    last: dict[str, tuple[float, str, str]] = {}
    silent: dict[str, list[str]] = {}
    while True:
        started = time.monotonic()
        for node, outcome in _sample(fleet, nodes).items():
            if not outcome.ok:
                silent.setdefault(node, []).append(outcome.error)
                continue
            if node in last:
                writer.writerows(rates(node, last[node], outcome.value))
            last[node] = outcome.value
        if stop.wait(max(0.0, every_s - (time.monotonic() - started))):
            return [f"{n}: {len(why)} samples of its counters are missing: {why[-1]}" for n, why in silent.items()]


def _sample(fleet: Fleet, nodes: Sequence[str]) -> dict[str, Outcome]:
    def both(node: str) -> tuple[float, str, str]:
        stat, net = (fleet.read_now(node, path).decode() for path in FILES)
        return time.time(), stat, net

    return fleet.each(nodes, both, limit_s=10)
