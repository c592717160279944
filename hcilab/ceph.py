"""A real Ceph cluster on loopback, with load generators that write to its images: fio's rbd engine, no root, no kernel
module.

Every host has its own 127.b.c.d address and its own sshd, as in the lab (hcilab.lab). The nodes carry the
cluster: an OSD each, the first one the monitor and the manager too. A VM is an sshd whose disks are images of its own
in the cluster. Failures, recovery and capacity are Ceph's own; one kernel and one disk carry them all, so its speed is
this machine's.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

from hcilab import ceph_cluster as cluster
from hcilab import lab_hosts as hosts
from hcilab.ceph_daemons import MON_PORT
from hcilab.lab_hosts import LabError
from hcilib.drive.hosts.hosts import Fleet, need
from hcilib.model.testbed import Ceph, Disk, Fio, Node, Testbed, Vm

PACKAGES = {
    "sshd": "openssh-server", "fio": "fio", "ceph-mon": "ceph-mon", "ceph-mgr": "ceph-mgr", "ceph-osd": "ceph-osd",
    "ceph": "ceph-common", "rbd": "ceph-common",
}  # fmt: skip
OWN_BYTES = 512 * 2**20  # of an OSD's file, what BlueStore itself takes, as seen on small ones
RESIDENT_BYTES = {"mon": 128 * 2**20, "mgr": 384 * 2**20, "osd": 448 * 2**20, "vm": 64 * 2**20}  # as seen, rounded up
_ODD = re.compile(r"[^\w./+@%~-]")  # Ceph splits lists of files at the others, or expands them


@contextlib.contextmanager
def ceph(
    vms: int = 2,
    *,
    system: str = "box-ceph",
    disks: int = 1,
    disk_bytes: int = 64 * 2**20,
    osd_bytes: int = 4 * 2**30,
    cache: bool = False,
    root: str | Path | None = None,
    base: str | None = None,
) -> Iterator[Testbed]:
    """A running Ceph cluster with its load generators, stopped whatever happens to the caller, `kill -9` included.

    Parameters
    ----------
    system : ``box-ceph`` (two nodes, pool size 2), ``box-ceph-ec`` (three nodes, erasure code 2+1) or the reference
        ``box-osd`` (one node, no second copy)
    osd_bytes : what an OSD's sparse file may grow to
    cache : librbd's write-back cache, on by Ceph's default and off here: with it a write is done when the client has it
    root : folder under which the cluster's own folder is made and removed again; default: out/ of the repository
    base : first three numbers of the loopback addresses, e.g. ``127.0.44``; default: the first free ones

    Yields
    ------
    Testbed : with `serves` set to `system`

    Raises
    ------
    LabError : a missing program, an address in use, too little space or memory, or a daemon that does not come up
    """
    if system not in cluster.POOLS:
        raise LabError(f"unknown Ceph system {system!r}: expected one of {', '.join(cluster.POOLS)}")
    pool = cluster.POOLS[system]
    size = hosts.checked(Ceph, "ceph", vms=vms, disks=disks, disk_bytes=disk_bytes, osd_bytes=osd_bytes)
    programs = hosts.find_programs(PACKAGES, engine="rbd")
    needed, listening = _require_room(pool, size), [*hosts.sshd_of(pool.nodes, vms), (1, MON_PORT)]
    with hosts.ground(root, needed, "the cluster's OSDs", base, listening) as (folder, block, keeper):
        if odd := _ODD.search(str(folder)):
            raise LabError(f"{folder}: Ceph cannot be told of a path with {odd[0]!r} in it; pass another root=")
        testbed = _layout(folder, block, pool, size, system)
        try:
            _start(keeper, programs, testbed, folder, pool, size, cache)
            yield testbed
        finally:
            _kill_daemons(folder)  # nothing of it is kept, so nobody waits for a clean end


def config_of(testbed: Testbed) -> Path:
    """The configuration file of a running cluster, by which ``ceph -c`` and `hcilab.ceph_cluster.Monitor`
    reach it."""
    names = {disk.uri.split("/")[2] for vm in testbed.vms for disk in vm.disks if disk.uri}
    if not testbed.lab_root or testbed.fio.ioengine != "rbd" or len(names) != 1:
        raise LabError(f"testbed {testbed.name} is no running Ceph cluster of hcilib's")
    return Path(testbed.lab_root) / f"{names.pop()}.conf"


def _require_room(pool: cluster.Pool, size: Ceph) -> int:
    """What all OSDs' files grow to when every image is full: at most every byte on every node. LabError where the
    images do not fit the OSDs (Ceph stops writing at 95 %), or the daemons this machine's memory."""
    each = size.vms * size.disks * size.disk_bytes + OWN_BYTES
    if each > 0.85 * size.osd_bytes:  # beyond that it is HEALTH_WARN
        raise LabError(
            f"ceph(osd_bytes={size.osd_bytes}): {size.vms * size.disks} images of {size.disk_bytes >> 20} MiB need "
            f"an OSD of at least {round(each / 0.85) >> 20} MiB; make osd_bytes larger or disk_bytes smaller"
        )
    counts = {"mon": 1, "mgr": 1, "osd": pool.nodes, "vm": size.vms}
    needed = sum(RESIDENT_BYTES[kind] * count for kind, count in counts.items())
    hosts.require_memory(needed, f"the cluster's {pool.nodes} OSDs, monitor and manager")
    return pool.nodes * each


def _layout(folder: Path, block: str, pool: cluster.Pool, size: Ceph, system: str) -> Testbed:
    """A name of its own for the cluster: whatever configuration else this machine holds, no program finds that by this
    name."""
    name = f"hci-{uuid.uuid4().hex[:8]}"
    nodes = tuple(Node(**hosts.reached(block, "node", 1 + i)) for i in range(pool.nodes))
    stores = tuple(str(folder / f"osd.{i}" / "block") for i in range(pool.nodes))
    vms = []
    for j in range(size.vms):
        images = [f"vm{j + 1}-d{d}" for d in range(size.disks)]
        disks = tuple(Disk(serial=f"ceph-{image}", size_bytes=size.disk_bytes, backing=stores,
                           uri=f"rbd://{name}/{cluster.image_pool(pool)}/{image}") for image in images)  # fmt: skip
        vms.append(Vm(**hosts.reached(block, "vm", 1 + j), node=nodes[j % pool.nodes].name, disks=disks))
    return Testbed(name="box-ceph", nodes=nodes, vms=tuple(vms), fio=Fio(ioengine="rbd", direct=0),
                   known_hosts=str(folder / "known_hosts"), key=str(folder / "client_key"), lab_root=str(folder),
                   lease_folder=str(folder), serves=system)  # fmt: skip


def _start(keeper, programs, testbed: Testbed, folder: Path, pool: cluster.Pool, size: Ceph, cache: bool) -> None:
    """The cluster first: hosts that answer while the machine is busy starting daemons would only wait for it."""
    config = config_of(testbed)
    cluster.write_config(config, [node.address for node in testbed.nodes], size.osd_bytes, cache)
    images = {disk.serial.removeprefix("ceph-"): disk.size_bytes for vm in testbed.vms for disk in vm.disks}
    cluster.start(keeper, programs, config, pool, images)
    hosts.write_keys(testbed, folder)
    env = cluster.environment(config)
    waiting = [hosts.start_sshd(keeper, programs, host, folder, env) for host in (*testbed.nodes, *testbed.vms)]
    keeper.wait_ready(waiting)


def _kill_daemons(folder: Path) -> None:
    """Those that still run under this folder; a process id that was given to somebody else since is left alone."""
    for file in folder.glob("*.pid"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(file.read_text())
            if os.readlink(f"/proc/{pid}/cwd") == str(folder):
                os.kill(pid, signal.SIGKILL)


# What befalls an OSD of a running cluster: killed and started again as a host's operator would.


def kill_osd(fleet: Fleet, testbed: Testbed, osd: int) -> None:
    """SIGKILL to the OSD, on its node; returns when the process is gone. FleetError where it does not run."""
    name, host = _placed(testbed, osd)
    gone = "while grep -qs '^State:.[^Z]' /proc/$p/status; do sleep 0.01; done"  # who started it may not have reaped it
    need(f"killing {name}", fleet.run({host: f"p=$(cat {_file(testbed, name + '.pid')}) && kill -KILL $p && {gone}"}))


def start_osd(fleet: Fleet, testbed: Testbed, osd: int) -> None:
    """Start a killed OSD again, on its node; returns at once. It ends with the cluster, like one that was never
    killed."""
    name, host = _placed(testbed, osd)
    folder, log = shlex.quote(str(config_of(testbed).parent)), _file(testbed, f"logs/{name}.log")
    argv = shlex.join(cluster.argv(hosts.find_programs(PACKAGES, engine="rbd"), name))
    need(f"starting {name}", fleet.run({host: f"cd {folder} && {{ setsid {argv} </dev/null >>{log} 2>&1 & }}"}))


def _placed(testbed: Testbed, osd: int) -> tuple[str, str]:
    """(daemon, node) of an OSD: each node has one, of the node's own number less one."""
    config_of(testbed)
    if not 0 <= osd < len(testbed.nodes):
        raise LabError(f"osd {osd}: testbed {testbed.name} has OSDs 0 to {len(testbed.nodes) - 1}")
    return f"osd.{osd}", testbed.nodes[osd].name


def _file(testbed: Testbed, name: str) -> str:
    return shlex.quote(f"{testbed.lab_root}/{name}")
