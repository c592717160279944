"""CPU, network and drives of the nodes while a step runs. Linux: read by SFTP on the open connection, no process is
started there.

Windows: one process a node that prints its counters (drive/windows.py); what it printed is kept beside the table.
"""

from __future__ import annotations

import contextlib
import csv
import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from hcilib.drive.hosts.hosts import Fleet, Outcome
from hcilib.drive.hosts.windows import streamed
from hcilib.read.nodes import drives
from hcilib.read.nodes.counters import COLUMNS, rates
from hcilib.run_layout import DRIVES

FILES = ("/proc/stat", "/proc/net/dev", "/proc/diskstats")
INFINIBAND = "/sys/class/infiniband"
BLOCKS, MOUNTS, BOOT = "/sys/class/block", "/proc/mounts", "/proc/sys/kernel/random/boot_id"
Sample = tuple[float, str, str, str]
"""Epoch second, and the texts of FILES."""


@contextlib.contextmanager
def sampled(
    fleet: Fleet, nodes: Sequence[str], path: Path, every_s: float = 1.0, limit_s: float = 3600
) -> Iterator[list[str]]:
    """Sample the nodes until the block ends; one row an interval and network card in `path` (columns of
    read.nodes.counters), and beside it, in drives.csv, one an interval and drive of a Linux node (read.nodes.drives).

    Yields a list that is complete after the block: a sentence for every Windows node's counters that are missing or
    doubtful. A node that stops answering leaves a gap, never a zero; the step's own acceptance decides what that means.
    What stops the sampling itself, a full disk say, is raised at the end of the block. `limit_s`: when a Windows node's
    process ends by itself, should we be gone.
    """
    remarks: list[str] = []
    stop = threading.Event()
    linux = [node for node in nodes if node not in fleet.windows]
    with (
        open(path, "w", newline="") as file,
        open(path.with_name(DRIVES), "w", newline="") as beside,
        ThreadPoolExecutor(1, thread_name_prefix="counters") as pool,
    ):
        writer, of_drives = csv.DictWriter(file, COLUMNS), csv.DictWriter(beside, drives.COLUMNS)
        writer.writeheader()
        of_drives.writeheader()
        with streamed(fleet, [n for n in nodes if n in fleet.windows], path.parent, every_s, limit_s) as streams:
            loop = pool.submit(_loop, fleet, linux, writer, of_drives, every_s, stop)
            try:
                yield remarks
            finally:
                stop.set()
            remarks += loop.result()
        for stream in streams:
            counters, said = stream.tables()
            counters.to_csv(file, header=False, index=False)
            remarks += said


def _loop(fleet: Fleet, nodes: Sequence[str], writer, of_drives, every_s: float, stop: threading.Event) -> list[str]:
    """Sample until told to stop; a remark for each node that did not always answer, or whose drives could not be
    told."""
    last: dict[str, Sample] = {}
    silent: dict[str, list[str]] = {}
    built: dict[str, dict[str, str]] = {}
    kernels: dict[bytes, str] = {}
    ports: dict[str, list[str]] = {}
    remarks: list[str] = []
    while True:
        started = time.monotonic()
        for node, outcome in _sample(fleet, nodes, ports).items():
            if not outcome.ok:
                silent.setdefault(node, []).append(outcome.error)
                continue
            if node in last:
                (t0, stat0, net0, disks0), (t1, stat1, net1, disks1) = last[node], outcome.value
                writer.writerows(rates(node, (t0, stat0, net0), (t1, stat1, net1)))
                of_drives.writerows(drives.moved(node, built.get(node, {}), (t0, disks0), (t1, disks1)))
            last[node] = outcome.value
        if unknown := [node for node in last if node not in built]:
            remarks += _tell_drives(fleet, unknown, built, kernels)
        if stop.wait(max(0.0, every_s - (time.monotonic() - started))):
            missing = [f"{n}: {len(why)} samples of its counters are missing: {why[-1]}" for n, why in silent.items()]
            return missing + remarks


def _sample(fleet: Fleet, nodes: Sequence[str], ports: dict[str, list[str]]) -> dict[str, Outcome]:
    def each(node: str) -> Sample:
        if node not in ports:
            ports[node] = rdma_ports(fleet, node)
        stat, net, disks = (fleet.read_now(node, path).decode() for path in FILES)
        return time.time(), stat, net + "".join(_rdma(fleet, node, port) for port in ports[node]), disks

    return fleet.each(nodes, each, limit_s=10)


def rdma_ports(fleet: Fleet, node: str) -> list[str]:
    """The RDMA ports of a Linux node whose bytes can be read, such as ``mlx5_0/ports/1``; none where it has none."""
    found = []
    with contextlib.suppress(OSError):
        for device in sorted(fleet.sizes_now(node, INFINIBAND)):
            for port in sorted(fleet.sizes_now(node, f"{INFINIBAND}/{device}/ports")):
                with contextlib.suppress(OSError, ValueError):
                    _rdma(fleet, node, f"{device}/ports/{port}")
                    found.append(f"{device}/ports/{port}")
    return found


def _rdma(fleet: Fleet, node: str, port: str) -> str:
    """A port's bytes as a line of /proc/net/dev, which does not count them: the card's name as Windows' rows have it.
    The kernel counts words of four bytes."""
    folder = f"{INFINIBAND}/{port}/counters"
    words = [int(fleet.read_now(node, f"{folder}/port_{way}_data")) for way in ("rcv", "xmit")]
    received, sent = (4 * count for count in words)
    return f"{port.replace('/ports/', '/')} (RDMA): {received} 0 0 0 0 0 0 0 {sent} 0 0 0 0 0 0 0\n"


def _tell_drives(
    fleet: Fleet, nodes: Sequence[str], built: dict[str, dict[str, str]], kernels: dict[bytes, str]
) -> list[str]:
    """Put down the drives of these nodes and what each carries; of a node of which it cannot be told: none, and why."""
    told = drives_of(fleet, nodes, kernels)
    built.update({node: outcome.value if outcome.ok else {} for node, outcome in told.items()})
    return [f"{n}: what its drives did is not known: {o.error}" for n, o in told.items() if not o.ok]


def drives_of(fleet: Fleet, nodes: Sequence[str], kernels: dict[bytes, str]) -> dict[str, Outcome]:
    """Linux node -> its drives and what each carries; none of a node that shares its kernel with an earlier one
    (`kernels`: boot -> node)."""

    def ask(node: str) -> tuple[bytes, dict[str, str]]:
        return fleet.read_now(node, BOOT), blocks_of(fleet, node).drives

    def own(node: str, boot: bytes, found: dict[str, str]) -> dict[str, str]:
        return found if not boot or kernels.setdefault(boot, node) == node else {}

    told = fleet.each(nodes, ask, limit_s=10)
    return {node: replace(o, value=own(node, *o.value)) if o.ok else o for node, o in told.items()}


def blocks_of(fleet: Fleet, node: str) -> drives.Blocks:
    """The block devices of a Linux node and what is built of them, by SFTP; raises what paramiko raises."""
    links = fleet.links_now(node, BLOCKS)
    holders = {name: list(fleet.sizes_now(node, f"{BLOCKS}/{name}/holders")) for name in links}
    mapped = {name for above in holders.values() for name in above if name.startswith("dm-")}
    named = {name: fleet.read_now(node, f"{BLOCKS}/{name}/dm/name").decode().strip() for name in mapped}
    spaces = [name for name, link in links.items() if re.fullmatch(r"nvme\d+n\d+", name) and "/nvme" in link]
    transports = {name: _transport_of(fleet, node, name) for name in spaces}
    return drives.Blocks(links, holders, named, transports, fleet.read_now(node, MOUNTS).decode())


def _transport_of(fleet: Fleet, node: str, space: str) -> str:
    """How an NVMe namespace is reached: of one with several paths the first controller tells."""
    device = f"{BLOCKS}/{space}/device"
    inside = fleet.sizes_now(node, device)
    controller = next((name for name in sorted(inside) if re.fullmatch(r"nvme\d+", name)), None)
    where = device if "transport" in inside or controller is None else f"{device}/{controller}"
    return fleet.read_now(node, f"{where}/transport").decode().strip()
