"""CPU, network and drives of Linux nodes while a step runs, read by SFTP on the open connection: no process is started
there. Windows nodes record their own (hcilib.read.nodes.perfmon)."""

from __future__ import annotations

import contextlib
import csv
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from hcilib.drive.hosts.hosts import ANSWER_S, Fleet, Outcome, explain
from hcilib.drive.hosts.layers import BOOT, LayerLog, note_chains, sample_vms
from hcilib.drive.hosts.layers import sample_once as sample_once_more
from hcilib.model.places import CHAINS, DRIVES, LAYERS
from hcilib.read.nodes import counters as read

FILES = ("/proc/stat", "/proc/net/dev", "/proc/diskstats")
INFINIBAND = "/sys/class/infiniband"
BLOCKS, MOUNTS = "/sys/class/block", "/proc/mounts"
Sample = tuple[float, str, str, str]
"""Epoch second, and the texts of FILES."""


@contextlib.contextmanager
def sampled(
    fleet: Fleet,
    nodes: Sequence[str],
    path: Path,
    every_s: float = 1.0,
    tested: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[list[str]]:
    """Sample the nodes until the block ends; one row an interval and network card in `path` (columns of
    read.nodes.counters), and beside it, in drives.csv, one an interval and drive of a Linux node (DRIVE_COLUMNS).
    With `tested`, VM -> devices that fio uses, every block layer of nodes and VMs too, in layers.csv and layers.json.

    Yields a list that is complete after the block: a sentence for every node whose counters are missing. A node that
    stops answering leaves a gap, never a zero; the step's own acceptance decides what that means. What stops the
    sampling itself, a full disk say, is raised at the end of the block.
    """
    remarks: list[str] = []
    stop = threading.Event()
    linux = [node for node in nodes if node not in fleet.windows]
    with (  # by lines: what was sampled is in the file, whatever ends this process
        open(path, "w", newline="", buffering=1) as file,
        open(path.with_name(DRIVES), "w", newline="", buffering=1) as beside,
        _log_of_layers(fleet, tested, path) as log,
        ThreadPoolExecutor(2, thread_name_prefix="counters") as pool,
    ):
        writer, of_drives = csv.DictWriter(file, read.COLUMNS), csv.DictWriter(beside, read.DRIVE_COLUMNS)
        writer.writeheader()
        of_drives.writeheader()
        loop = pool.submit(_loop, fleet, linux, (writer, of_drives, log), every_s, stop)
        vms = [vm for vm in tested or () if vm not in nodes and vm not in fleet.windows]
        of_vms = pool.submit(sample_vms, fleet, vms, log, every_s, stop) if log else None
        try:
            yield remarks
        finally:
            stop.set()
        remarks += loop.result()
        if log and of_vms:
            sample_once_more(fleet, [*linux, *vms], log)  # what fio did to its end lies between two samples
            note_chains(fleet, tested or {}, log.close(), of_vms.result(), path.with_name(CHAINS))


@contextlib.contextmanager
def _log_of_layers(fleet: Fleet, tested: Mapping | None, path: Path) -> Iterator[LayerLog | None]:
    if tested is None:
        yield None
        return
    with open(path.with_name(LAYERS), "w", newline="", buffering=1) as file:
        yield LayerLog(fleet, file)


def _loop(fleet: Fleet, nodes: Sequence[str], tables: tuple, every_s: float, stop: threading.Event) -> list[str]:
    """Sample into `tables` (counters, drives, block layers or None) until told to stop; a remark for each node that
    did not always answer, or whose drives could not be told."""
    writer, of_drives, log = tables
    last: dict[str, Sample] = {}
    silent: dict[str, list[str]] = {}
    built: dict[str, dict[str, str] | None] = {}
    kernels: dict[bytes, str] = {}
    ports: dict[str, list[str]] = {}
    waiting: list[tuple[str, tuple[float, str], tuple[float, str]]] = []
    asked: dict[str, Future] = {}
    remarks: list[str] = []
    # Which drives a node has takes many questions: on a busy one longer than a sample, which must not wait for it.
    with ThreadPoolExecutor(max(1, len(nodes)), thread_name_prefix="drives") as asking:
        is_over = False
        while not is_over:
            started = time.monotonic()
            for node, outcome in _sample(fleet, nodes, ports).items():
                if not outcome.ok:
                    silent.setdefault(node, []).append(outcome.error)
                    continue
                if log:
                    log.add(node, outcome.value[0], outcome.value[3])
                if node in last:
                    (t0, stat0, net0, disks0), (t1, stat1, net1, disks1) = last[node], outcome.value
                    writer.writerows(read.rates(node, (t0, stat0, net0), (t1, stat1, net1)))
                    waiting.append((node, (t0, disks0), (t1, disks1)))
                else:
                    asked[node] = asking.submit(_asked_of, fleet, node)
                last[node] = outcome.value
            is_over = stop.wait(max(0.0, every_s - (time.monotonic() - started)))
            if is_over:
                wait(asked.values(), timeout=ANSWER_S)
            if is_over or all(answer.done() for answer in asked.values()):
                remarks += _tell_drives(asked, built, kernels)
                for node, before, after in waiting:
                    of_drives.writerows(read.moved(node, built[node], before, after))
                waiting = []
    missing = [f"{n}: {len(why)} samples of its counters are missing: {why[-1]}" for n, why in silent.items()]
    return missing + remarks


def sample_once(fleet: Fleet, nodes: Sequence[str]) -> dict[str, Outcome]:
    """Linux node -> one sample, as a step takes them; not ok where it cannot be read."""
    return _sample(fleet, nodes, {})


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
    asked: Mapping[str, Future], built: dict[str, dict[str, str] | None], kernels: dict[bytes, str]
) -> list[str]:
    """Put down the drives of the nodes that were asked, and what each carries; of a node of which it cannot be told:
    None, and why."""
    remarks = []
    for node, answer in asked.items():
        if node not in built:
            try:
                built[node] = _once_a_kernel(node, kernels, *answer.result(timeout=0))
            except Exception as error:  # whatever kept one node from telling: the others' drives are known
                why = explain(error) if answer.done() else f"no answer within {ANSWER_S:g} s"
                built[node] = None
                remarks.append(f"{node}: what its drives did is not known: {why}")
    return remarks


def _asked_of(fleet: Fleet, node: str) -> tuple[bytes, dict[str, str]]:
    return fleet.read_now(node, BOOT), blocks_of(fleet, node).drives


def _once_a_kernel(node: str, kernels: dict[bytes, str], boot: bytes, found: dict[str, str]) -> dict[str, str]:
    return found if not boot or kernels.setdefault(boot, node) == node else {}


def blocks_of(fleet: Fleet, node: str) -> read.Blocks:
    """The block devices of a Linux node and what is built of them, by SFTP; raises what paramiko raises."""
    links = fleet.links_now(node, BLOCKS)
    holders = {name: list(fleet.sizes_now(node, f"{BLOCKS}/{name}/holders")) for name in links}
    mapped = {name for above in holders.values() for name in above if name.startswith("dm-")}
    named = {name: fleet.read_now(node, f"{BLOCKS}/{name}/dm/name").decode().strip() for name in mapped}
    spaces = [name for name, link in links.items() if re.fullmatch(r"nvme\d+n\d+", name) and "/nvme" in link]
    transports = {name: _transport_of(fleet, node, name) for name in spaces}
    return read.Blocks(links, holders, named, transports, fleet.read_now(node, MOUNTS).decode())


def _transport_of(fleet: Fleet, node: str, space: str) -> str:
    """How an NVMe namespace is reached: of one with several paths the first controller tells."""
    device = f"{BLOCKS}/{space}/device"
    inside = fleet.sizes_now(node, device)
    controller = next((name for name in sorted(inside) if re.fullmatch(r"nvme\d+", name)), None)
    where = device if "transport" in inside or controller is None else f"{device}/{controller}"
    return fleet.read_now(node, f"{where}/transport").decode().strip()
