"""What Linux nodes and VMs did while a step ran: CPU, network, drives and block layers, by one loop.

The counts are read by SFTP on the open connection: no process is started for a sample. What is built on what is asked
once, by one command a host. Windows nodes record their own (hcilib.read.nodes.perfmon).
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hcilib.drive.guard.devices import BLOCKS, END
from hcilib.drive.hosts.hosts import Fleet, Outcome, explain, fields, sections
from hcilib.model.places import CHAINS, DRIVES, LAYERS
from hcilib.read.nodes import counters as read
from hcilib.read.nodes import layers as read_layers

BOOT, DISKSTATS = "/proc/sys/kernel/random/boot_id", "/proc/diskstats"
OF_NODES = ("/proc/stat", "/proc/net/dev", DISKSTATS)
INFINIBAND = "/sys/class/infiniband"
LIMIT_S, CHAIN_S = 10.0, 30.0
CHAIN = f"""
LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/sbin:/sbin; export PATH
echo '==== links'; ls -l /sys/class/block
echo '==== mounts'; cat /proc/mounts
{BLOCKS}{END}"""


class Sample(NamedTuple):
    """One reading of a host: epoch second by the controller's clock, and texts; of a VM the drives' alone."""

    t_s: float
    stat: str
    net: str
    disks: str


@contextlib.contextmanager
def sampled(
    fleet: Fleet,
    nodes: Sequence[str],
    path: Path,
    every_s: float = 1.0,
    tested: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[list[str]]:
    """Sample the hosts until the block ends, into `path` and files beside it.

    `path` has a row an interval and network card of a node (columns of read.nodes.counters), drives.csv one an interval
    and drive. With `tested`, VM -> devices that fio uses, layers.csv and layers.json tell of every block layer of nodes
    and VMs too.

    Yields a list that is complete after the block: a sentence for every node whose counters are missing. A node that
    stops answering leaves a gap, never a zero; the step's own acceptance decides what that means. What stops the
    sampling itself, a full disk say, is raised at the end of the block.
    """
    remarks: list[str] = []
    stop = threading.Event()
    linux = [node for node in nodes if node not in fleet.windows]
    vms = [vm for vm in tested or () if vm not in nodes and vm not in fleet.windows]
    with contextlib.ExitStack() as files, ThreadPoolExecutor(2, thread_name_prefix="sample") as pool:

        def table(name: str) -> Any:  # by lines: what was sampled is in the file, whatever ends this process
            file = path.with_name(name)
            return csv.writer(files.enter_context(open(file, "w", newline="", buffering=1)))

        log = LayerLog(table(LAYERS)) if tested is not None else None
        loop = _Loop(fleet, linux, vms, table(path.name), table(DRIVES), log)
        chains = pool.submit(_asked, fleet, [*linux, *vms])
        done = pool.submit(loop.run, chains, every_s, stop)
        try:
            yield remarks
        finally:
            stop.set()
        done.result()
        remarks += loop.remarks(linux, "counters")
        if log:
            of_fio = {vm: list(names) for vm, names in (tested or {}).items()}
            answers, moved = chains.result(), log.close()
            hosts = {host: _chain(answers[host], of_fio.get(host, ()), moved[host]) for host in moved}
            content = {"tested": of_fio, "hosts": hosts, "remarks": loop.remarks(vms, "block layers")}
            path.with_name(CHAINS).write_text(json.dumps(content, indent=1))
        remarks += loop.unknown


def sample_once(fleet: Fleet, nodes: Sequence[str]) -> dict[str, Outcome]:
    """Linux node -> one sample, as a step takes them; not ok where it cannot be read."""
    return _Loop(fleet, nodes).read()


def _asked(fleet: Fleet, hosts: Sequence[str]) -> dict[str, Outcome]:
    """Host -> what is built on what there. The step is measured: its layers are not worth losing it."""
    try:
        return fleet.run(CHAIN, hosts, limit_s=CHAIN_S)
    except Exception as error:
        return {host: Outcome(host, False, error=explain(error)) for host in hosts}


@dataclass
class _Loop:
    """The one loop over all hosts of a step. Of hosts on one kernel the first tells of its drives and layers."""

    fleet: Fleet
    nodes: Sequence[str]
    vms: Sequence[str] = ()
    counters: Any = None
    drives: Any = None
    log: LayerLog | None = None
    unknown: list[str] = field(default_factory=list)
    _ports: dict[str, list[str]] = field(default_factory=dict)
    _kernels: dict[bytes, str] = field(default_factory=dict)
    _boots: dict[str, bytes] = field(default_factory=dict)
    _last: dict[str, Sample] = field(default_factory=dict)
    _silent: dict[str, list[str]] = field(default_factory=dict)
    _waiting: list[tuple[str, Sample, Sample]] = field(default_factory=list)
    _built: dict[str, Mapping[str, str] | None] = field(default_factory=dict)

    def run(self, chains, every_s: float, stop: threading.Event) -> None:
        """Sample until told to stop, and once more: what fio did to its end lies between two samples."""
        self.counters.writerow(read.COLUMNS)
        self.drives.writerow(read.DRIVE_COLUMNS)
        is_last = False
        while not is_last:
            is_last, started = stop.is_set(), time.monotonic()
            for host, outcome in self.read().items():
                if outcome.ok:
                    self._take(host, outcome.value)
                else:
                    self._silent.setdefault(host, []).append(outcome.error)
            if is_last or chains.done():
                self._write_drives(chains.result())
            if not is_last:
                stop.wait(max(0.0, every_s - (time.monotonic() - started)))

    def read(self) -> dict[str, Outcome]:
        """Host -> its sample now."""
        return self.fleet.each([*self.nodes, *self.vms], self._read, limit_s=LIMIT_S)

    def remarks(self, hosts: Sequence[str], what: str) -> list[str]:
        """Return a sentence for each of these hosts that did not always answer."""
        silent = {host: self._silent[host] for host in hosts if host in self._silent}
        return [f"{host}: {len(why)} samples of its {what} are missing: {why[-1]}" for host, why in silent.items()]

    def _read(self, host: str) -> Sample:
        if host not in self._boots:
            self._boots[host] = self.fleet.read_now(host, BOOT)
        if host in self.vms:
            return Sample(time.time(), "", "", self.fleet.read_now(host, DISKSTATS).decode())
        if host not in self._ports:
            self._ports[host] = rdma_ports(self.fleet, host)
        stat, net, disks = (self.fleet.read_now(host, path).decode() for path in OF_NODES)
        return Sample(time.time(), stat, net + "".join(_rdma(self.fleet, host, p) for p in self._ports[host]), disks)

    def _is_first(self, host: str) -> bool:
        return self._kernels.setdefault(self._boots[host], host) == host

    def _take(self, host: str, sample: Sample) -> None:
        before, self._last[host] = self._last.get(host), sample
        if self._is_first(host) and self.log:
            self.log.add(host, sample.t_s, sample.disks)
        if before and host in self.nodes:
            rows = read.rates(host, before[:3], sample[:3])
            self.counters.writerows([row[name] for name in read.COLUMNS] for row in rows)
            self._waiting.append((host, before, sample))

    def _write_drives(self, chains: Mapping[str, Outcome]) -> None:
        """Put down what the drives did that were sampled until now; of a node whose drives are not known only that."""
        for node in {node for node, _, _ in self._waiting} - self._built.keys():
            try:
                self._built[node] = drives_of(_parts(chains[node])) if self._is_first(node) else {}
            except ValueError as error:
                self._built[node] = None
                self.unknown.append(f"{node}: what its drives did is not known: {error}")
        for node, (t0, *_, disks0), (t1, *_, disks1) in self._waiting:
            rows = read.moved(node, self._built[node], (t0, disks0), (t1, disks1))
            self.drives.writerows([row[name] for name in read.DRIVE_COLUMNS] for row in rows)
        self._waiting = []


def rdma_ports(fleet: Fleet, node: str) -> list[str]:
    """List the RDMA ports of a Linux node whose bytes can be read, such as ``mlx5_0/ports/1``."""
    found = []
    with contextlib.suppress(OSError):
        for device in sorted(fleet.sizes_now(node, INFINIBAND)):
            for port in sorted(fleet.sizes_now(node, f"{INFINIBAND}/{device}/ports")):
                with contextlib.suppress(OSError, ValueError):
                    _rdma(fleet, node, f"{device}/ports/{port}")
                    found.append(f"{device}/ports/{port}")
    return found


def _rdma(fleet: Fleet, node: str, port: str) -> str:
    """Return a port's bytes as a line of /proc/net/dev, which does not count them. The kernel counts words of four
    bytes."""
    folder = f"{INFINIBAND}/{port}/counters"
    words = [int(fleet.read_now(node, f"{folder}/port_{way}_data")) for way in ("rcv", "xmit")]
    received, sent = (4 * count for count in words)
    return f"{port.replace('/ports/', '/')} (RDMA): {received} 0 0 0 0 0 0 0 {sent} 0 0 0 0 0 0 0\n"


class LayerLog:
    """Rows of layers.csv. A row stands for all samples until the device's next one; a device that counted nothing has
    none."""

    def __init__(self, rows: Any):
        self._rows = rows
        self._rows.writerow(read_layers.LAYER_COLUMNS)
        self._last: dict[tuple[str, str], tuple[float, read_layers.Counts]] = {}
        self._written: dict[tuple[str, str], float] = {}

    def add(self, host: str, t_s: float, diskstats: str) -> None:
        """Take one sample; `t_s` is the epoch second by the controller's clock."""
        for device, counts in read_layers.parse_layers(diskstats).items():
            place = (host, device)
            before = self._last.setdefault(place, (t_s, counts))
            if before[1] != counts:
                if place not in self._written:
                    self._write(place, *before)
                self._write(place, t_s, counts)
            if place in self._written:
                self._last[place] = (t_s, counts)

    def close(self) -> dict[str, list[str]]:
        """Write the last sample of every device that counted something; host -> these devices."""
        moved: dict[str, list[str]] = {}
        for place, written_s in list(self._written.items()):
            moved.setdefault(place[0], []).append(place[1])
            if self._last[place][0] > written_s:
                self._write(place, *self._last[place])
        return moved

    def _write(self, place: tuple[str, str], t_s: float, counts: read_layers.Counts) -> None:
        self._rows.writerow([place[0], t_s, place[1], *counts])
        self._written[place] = t_s


def _parts(answer: Outcome) -> dict[str, str]:
    """Return the parts of a host's whole answer to `CHAIN`; ValueError says why there is none."""
    if not answer.ok:
        raise ValueError(answer.error.rpartition("` ")[2])
    parts = sections(answer.value)
    if "end" not in parts:
        raise ValueError("its answer ends early")
    return parts


def drives_of(parts: Mapping[str, str]) -> dict[str, str]:
    """Drive of a host -> what it carries, from what `CHAIN` printed there."""
    links = dict(re.findall(r"(\S+) -> (\S+)$", parts["links"], re.MULTILINE))
    rows = {row["name"]: row for row in map(fields, parts["sysfs"].splitlines())}
    holders: dict[str, list[str]] = {}
    for name, row in rows.items():
        for below in row["slaves"].split():
            holders.setdefault(below, []).append(name)
    mapped = {name: row["dm/name"] for name, row in rows.items() if row["dm/name"]}
    spaces = [n for n, link in links.items() if re.fullmatch(r"nvme\d+n\d+", n) and "/nvme" in link]
    transports = {name: rows[name]["transport"] for name in spaces}
    if unread := [name for name, transport in transports.items() if not transport]:
        raise ValueError(f"how {unread[0]} is reached cannot be read")
    return read.Blocks(links, holders, mapped, transports, parts["mounts"]).drives


def _chain(answer: Outcome, tested: Sequence[str], moved: Sequence[str]) -> dict:
    try:
        return read_layers.kept(read_layers.parse_chain(_parts(answer)), tested, moved)
    except (ValueError, KeyError) as error:
        return {"error": str(error) or repr(error)}
