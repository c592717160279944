"""The embedded testbed on loopback: real sshd, real fio servers and a real replicated network block device.

Every host has its own 127.b.c.d address. A VM's disk is an NBD export of its node's front (qemu-storage-daemon's
quorum), which reads the replica on the next node and writes every replica before it acknowledges; nbdkit serves the
replicas. `lab-single` and `lab-mirror` differ in the number of replicas behind the same front and in nothing else.
"""

from __future__ import annotations

import contextlib
import getpass
import shutil
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from hcilib.drive.beds import lab_hosts as hosts
from hcilib.drive.beds.lab_places import make_folder, reserve, wait_refused
from hcilib.testbed import Disk, Fio, Lab, Node, Testbed, Vm

COPIES = {"lab-single": 1, "lab-mirror": 2}
SSH_PORT, FIO_PORT, NBD_PORT = 2222, 8765, 10809
LabError = hosts.LabError


@contextlib.contextmanager
def lab(
    nodes: int = 2,
    vms: int = 4,
    *,
    system: str = "lab-mirror",
    disks: int = 1,
    disk_bytes: int = 64 * 2**20,
    delay_s: float = 0.0,
    root: str | Path | None = None,
    base: str | None = None,
) -> Iterator[Testbed]:
    """A running embedded testbed, stopped whatever happens to the caller, `kill -9` included.

    Parameters
    ----------
    system : ``lab-single`` (one replica, on the next node) or ``lab-mirror`` (a second one on the VM's own node)
    delay_s : how long every replica waits before it answers, in whole milliseconds: disks of a known latency, whose IOPS are
        iodepth / delay_s and never more
    root : folder under which the lab's own folder is made and removed again; default: out/ of the repository
    base : first three numbers of the loopback addresses, e.g. ``127.0.44``; default: the first free ones

    Yields
    ------
    Testbed : with `serves` set to `system`

    Raises
    ------
    LabError : a missing or too old program, an address in use, too little space, or a host that does not come up
    """
    if system not in COPIES:
        raise LabError(f"unknown lab system {system!r}: expected one of {', '.join(COPIES)}")
    disk_bytes = _require_size(nodes, vms, disks, disk_bytes)
    programs = hosts.find_programs()
    folder = make_folder(root, COPIES[system] * vms * disks * disk_bytes, "the lab's replicas")
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        base = stack.enter_context(reserve(base, lambda block: _addresses(block, nodes, vms), seed=str(folder)))
        testbed = _layout(folder, base, nodes, vms, disks, disk_bytes, system)
        keeper = stack.enter_context(hosts.Keeper(folder))
        _start(keeper, programs, testbed, folder, COPIES[system], delay_s)
        stack.callback(wait_refused, _addresses(base, nodes, vms))
        stack.callback(keeper.stop)  # before waiting for the ports
        yield testbed


def _require_size(nodes, vms, disks, disk_bytes) -> int:
    """The disk size in bytes; LabError where a size is outside what the lab's addresses and its mirror allow."""
    try:
        return Lab(nodes=nodes, vms=vms, disks=disks, disk_bytes=disk_bytes).disk_bytes
    except ValidationError as error:
        wrong = error.errors()[0]
        raise LabError(f"lab({wrong['loc'][0]}={wrong['input']!r}): {wrong['msg']}") from None


def _addresses(base: str, nodes: int, vms: int) -> list[tuple[str, int]]:
    node, vm = ([f"{base}.{first + i}" for i in range(n)] for first, n in ((1, nodes), (101, vms)))
    return [(a, SSH_PORT) for a in (*node, *vm)] + [(a, FIO_PORT) for a in vm] + [(a, NBD_PORT) for a in node]


def _layout(folder: Path, base, nodes, vms, disks, disk_bytes, system) -> Testbed:
    user = getpass.getuser()
    bed_nodes = [Node(name=f"node{i + 1}", address=f"{base}.{1 + i}", port=SSH_PORT, user=user) for i in range(nodes)]
    bed_vms = []
    for j in range(vms):
        home = j % nodes
        owned = []
        for d in range(disks):
            name = f"vm{j + 1}-d{d}"
            copies = [folder / f"node{(home + 1 + c) % nodes + 1}" / f"{name}.img" for c in range(COPIES[system])]
            # A relative socket: fio runs in the lab's folder, and a socket's full path may not exceed 107 bytes.
            owned.append(Disk(serial=f"lab-{name}", size_bytes=disk_bytes, backing=tuple(map(str, copies)),
                              uri=f"nbd+unix:///{name}?socket=node{home + 1}.sock"))  # fmt: skip
        bed_vms.append(Vm(name=f"vm{j + 1}", address=f"{base}.{101 + j}", port=SSH_PORT, user=user,
                          node=f"node{home + 1}", disks=tuple(owned)))  # fmt: skip
    return Testbed(name="lab", nodes=tuple(bed_nodes), vms=tuple(bed_vms), fio=Fio(ioengine="nbd", direct=0),
                   known_hosts=str(folder / "known_hosts"), key=str(folder / "client_key"), lab_root=str(folder),
                   serves=system)  # fmt: skip


def _start(
    keeper: hosts.Keeper, programs: dict[str, str], testbed: Testbed, folder: Path, copies: int, delay_s: float
) -> None:
    """Start by readiness: replicas and hosts first, then the fronts, which connect to the replicas at once."""
    hosts.write_keys(testbed, folder)
    waiting = []
    for node in testbed.nodes:
        waiting.append(hosts.start_sshd(keeper, programs, node, folder))
        waiting.append(_start_replicas(keeper, programs, node, testbed, folder, delay_s))
    for vm in testbed.vms:
        waiting.append(hosts.start_sshd(keeper, programs, vm, folder))
        waiting.append(hosts.start_fio(keeper, programs, vm, testbed, folder))
    keeper.wait_ready(waiting)
    keeper.wait_ready([_start_front(keeper, programs, node, testbed, folder, copies) for node in testbed.nodes])


def _start_replicas(keeper, programs, node, testbed, folder, delay_s) -> hosts.Waiting:
    home = folder / node.name
    home.mkdir()
    for disk in (d for vm in testbed.vms for d in vm.disks):
        for image in (Path(p) for p in disk.backing):
            if image.parent == home:
                with open(image, "wb") as file:
                    file.truncate(disk.size_bytes)
    # Without structured replies: with them qemu's export asks every replica for the block's status before each read, and the
    # second copy would cost reads a quarter of their IOPS for nothing.
    delay = f"{round(1000 * delay_s)}ms"  # a request that waits holds a thread
    delayed = (["--filter=delay", "--threads=64"], [f"rdelay={delay}", f"wdelay={delay}"]) if delay_s else ([], [])
    argv = [programs["nbdkit"], "--foreground", "--no-sr", "--ipaddr", node.address, "--port", str(NBD_PORT), *delayed[0],
            "file", f"dir={home}", *delayed[1]]  # fmt: skip
    pid = keeper.spawn(argv, f"nbdkit.{node.name}")
    return hosts.Waiting(f"replicas of {node.name}", pid, lambda: hosts.answers(node.address, NBD_PORT))


def _start_front(keeper, programs, node, testbed, folder, copies) -> hosts.Waiting:
    """One qemu-storage-daemon a node. nbdkit and not a second qemu serves the replicas: qemu 7.2's NBD server leaves
    Nagle's algorithm on, and at iodepth 8 every request then waits 40 ms for a delayed acknowledgement."""
    address = {n.name: n.address for n in testbed.nodes}
    blockdevs, exports = [], []
    for disk in (d for vm in testbed.vms if vm.node == node.name for d in vm.disks):
        name = disk.serial.removeprefix("lab-")
        for c, image in enumerate(map(Path, disk.backing)):
            blockdevs += ["--blockdev", f"driver=nbd,node-name={name}.{c},server.type=inet,server.host={address[image.parent.name]},"
                          f"server.port={NBD_PORT},export={image.name}"]  # fmt: skip
        children = ",".join(f"children.{c}={name}.{c}" for c in range(copies))
        blockdevs += ["--blockdev", f"driver=quorum,node-name={name},vote-threshold=1,read-pattern=fifo,{children}"]
        exports += ["--export", f"type=nbd,id={name}-x,node-name={name},name={name},writable=on"]
    server = ["--nbd-server", f"addr.type=unix,addr.path={node.name}.sock,max-connections=0"]
    pid = keeper.spawn([programs["qemu-storage-daemon"], *blockdevs, *server, *exports], f"front.{node.name}")
    sock = folder / f"{node.name}.sock"
    return hosts.Waiting(f"front of {node.name}", pid, lambda: hosts.answers_unix(sock))
