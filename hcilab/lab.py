"""The embedded testbed on loopback: real sshd, real fio and a real replicated network block device on drives of known
speed.

Every host has its own 127.b.c.d address. A VM's disk is an NBD export of its node's front (qemu-storage-daemon's
quorum), which reads the replica on the next node and writes every replica before it acknowledges; nbdkit serves the
replicas. `lab-single` and `lab-mirror` differ in the number of replicas behind the same front and in nothing else; one
lab serves both, on disks of their own behind the same drives.

A drive is dialled: nbdkit's token bucket over everything that lies on it, by the clock, slow enough that no processor
is the bottleneck. So what a campaign must find is known before it starts (METHODS section 8).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

from pydantic import ValidationError

from hcilab import lab_hosts as hosts
from hcilib.model.places import JOURNAL
from hcilib.model.testbed import Dial, Disk, Drive, Fio, Lab, Node, Testbed, Vm

PLACES = {"lab-drive": (0,), "lab-single": (1,), "lab-mirror": (1, 2)}
"""System -> where the replicas lie, counted in nodes from the VM's own; the first is read."""
NBD_PORT = 10809
STORE, LEAST_XFS = {"mkfs.xfs": "xfsprogs"}, 320 * 2**20  # mkfs.xfs makes none below 300 MiB
BLOCK, TRIAL_S, HEADROOM = 4096, 0.4, 1.5  # of the check that this machine can serve the dialled rate
LabError = hosts.LabError


@contextlib.contextmanager
def lab(
    nodes: int = 2,
    vms: int = 4,
    *,
    system: str | Sequence[str] = "lab-mirror",
    disks: int = 1,
    disk_bytes: int = 64 * 2**20,
    dial: Dial | Mapping | None = None,
    delay_s: float = 0.0,
    store: str = "",
    root: str | Path | None = None,
    base: str | None = None,
) -> Iterator[Testbed]:
    """A running embedded testbed, stopped whatever happens to the caller, `kill -9` included.

    Parameters
    ----------
    system : ``lab-single`` (one replica, on the next node), ``lab-mirror`` (a second one on the VM's own node) or
        ``lab-drive`` (one replica on the VM's own node: its bare drive), or several of them, which are then served at
        once: each on disks of its own on every VM, all behind the same drives. A name may go on behind a hyphen:
        ``lab-single-b``
    dial : the speed of every node's one drive (hcilib.model.testbed.Dial, or its fields); None: as fast as this machine
        happens to be. By system (name -> fields): every system has a drive of its own on each node
    delay_s : of drives that are not dialled, how long every replica waits before it answers: disks of a known latency,
        whose IOPS are iodepth / delay_s and never more
    store : ``xfs``: each node's replicas lie on an XFS of their own, whose blocks files can share, and a write reaches
        it before it is acknowledged; needs root, to mount it. ``""``: in the lab's folder
    root : folder under which the lab's own folder is made and removed again; default: out/ of the repository
    base : first three numbers of the loopback addresses, e.g. ``127.0.44``; default: the first free ones

    Yields
    ------
    Testbed : with `serves` set to `system`; of several, each disk's `system` says whose it is

    Raises
    ------
    LabError : a missing or too old program, an address in use, too little space, a host that does not come up, or a
        rate that this machine cannot serve
    """
    systems = (system,) if isinstance(system, str) else tuple(system)
    places = {name: _places(name) for name in systems}
    disk_bytes = hosts.checked(Lab, "lab", nodes=nodes, vms=vms, disks=disks, disk_bytes=disk_bytes).disk_bytes
    drives = _drives(systems, dial)
    programs = hosts.find_programs(hosts.PACKAGES | (STORE if store else {}))
    if store and os.getuid():
        raise LabError(f"lab(store={store!r}): a file system is mounted by root alone: run as root, or without a store")
    needed = sum(map(len, places.values())) * vms * disks * disk_bytes
    served = product(range(1, 1 + nodes), range(NBD_PORT, NBD_PORT + max(1, len(drives))))
    listening = [*hosts.sshd_of(nodes, vms), *served]
    with hosts.ground(root, needed, "the lab's replicas", base, listening) as (folder, block, keeper):
        testbed = _layout(folder, block, nodes, vms, disks, disk_bytes, places, drives)
        shutil.copy(Path(__file__).with_name("dedup_store.py"), folder)
        for node in testbed.nodes if store else ():
            _mount(programs, folder, node, needed)
        _start(keeper, programs, testbed, delay_s, bool(store))
        if drives:
            _require_served(programs, testbed)
        yield testbed


def _mount(programs: Mapping[str, str], folder: Path, node: Node, holds_bytes: int) -> None:
    """A file system of the node's own, in a sparse file, where its replicas will lie; the lab's end unmounts it."""
    image, home = folder / f"{node.name}.xfs", folder / node.name
    home.mkdir()
    with open(image, "wb") as file:
        file.truncate(max(LEAST_XFS, 3 * holds_bytes + LEAST_XFS // 2))
    make = [programs["mkfs.xfs"], "-q", "-m", "reflink=1", str(image)]
    for argv in (make, ["mount", "-o", "loop", str(image), str(home)]):
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.strip()[-300:]
            raise LabError(f"{node.name}: {argv[0]}: {said}: its replicas have no file system")


def dial(
    testbed: Testbed,
    node: str,
    *,
    read_bytes_per_s: int,
    write_bytes_per_s: int | None = None,
    system: str | None = None,
    run_dir: str | Path | None = None,
) -> None:
    """Turn the speed of a running lab's drive, at once: a drive that ages, a neighbour, a regression.

    Parameters
    ----------
    write_bytes_per_s : as `read_bytes_per_s` where it is not given, which nbdkit's bucket asks for
    system : whose drive, where every system has one of its own
    run_dir : a campaign's, whose journal is told, so that its readers know what happened and when

    Raises
    ------
    LabError : no such node, its drive is not dialled, or a rate that a drive cannot have

    Examples
    --------
    >>> from hcilab.lab import dial, lab
    >>> from hcilib.model.testbed import Dial
    >>> four = Dial(read_bytes_per_s=2**22, write_bytes_per_s=2**22)
    >>> with lab(vms=1, disk_bytes=2**22, dial=four) as bed:  # doctest: +SKIP
    ...     dial(bed, "node1", read_bytes_per_s=2**21)
    """
    given = {"read_bytes_per_s": read_bytes_per_s, "write_bytes_per_s": write_bytes_per_s or read_bytes_per_s}
    try:
        wanted = Drive(**given, system=system)
    except ValidationError as error:
        raise LabError(f"dial({node!r}): {_said(error)}") from None
    drives = {(n.name, drive.system): drive for n in testbed.nodes for drive in n.drives}
    if (node, system) not in drives:
        known = ", ".join(f"{name} ({of})" if of else name for name, of in drives) or "none: start lab(dial=...)"
        raise LabError(f"dial({node!r}{f', system={system!r}' if system else ''}): dialled drives are those of {known}")
    _turn(testbed, node, system, wanted.read_bytes_per_s)
    if run_dir:
        of = {"node": node, "system": system} if system else {"node": node}
        with open(Path(run_dir) / JOURNAL, "a") as journal:
            journal.write(json.dumps({"t": time.time(), "event": "dial", **of, **given}) + "\n")


@contextlib.contextmanager
def opened(testbed: Testbed) -> Iterator[None]:
    """Dialled drives let everything through while the block runs: disks are filled at the machine's speed, not at the
    drive's."""
    turned = [(node.name, drive.system) for node in testbed.nodes for drive in node.drives]
    rates = {key: _rate_file(testbed, *key).read_text() for key in turned}
    try:
        for key in turned:
            _turn(testbed, *key, 0)
        yield
    finally:
        for key, rate in rates.items():
            _turn(testbed, *key, int(rate) // 8)


def _turn(testbed: Testbed, node: str, system: str | None, bytes_per_s: int) -> None:
    """nbdkit reads the file before each I/O; it must never see half a number. 0: no limit."""
    path = _rate_file(testbed, node, system)
    written = path.with_suffix(".new")
    written.write_text(f"{8 * bytes_per_s}\n")
    os.replace(written, path)


def _rate_file(testbed: Testbed, node: str, system: str | None) -> Path:
    return Path(testbed.lab_root or "") / f"{node}{f'.{system}' if system else ''}.rate"


def _places(system: str) -> tuple[int, ...]:
    for name, places in PLACES.items():
        if f"{system}-".startswith(f"{name}-"):
            return places
    raise LabError(f"unknown lab system {system!r}: expected one of {', '.join(PLACES)}")


def _drives(systems: Sequence[str], dial: Dial | Mapping | None) -> tuple[Drive, ...]:
    """What every node has: one drive for all systems, one for each, or none that is dialled."""
    try:
        if isinstance(dial, Mapping) and set(dial) & set(systems):
            return tuple(Drive(**dict(dial[name]), system=name) for name in systems)
        return (Drive(**dict(dial)),) if dial else ()
    except KeyError as error:
        raise LabError(f"lab(dial={dial!r}): {error} has no drive: give one for each of {', '.join(systems)}") from None
    except ValidationError as error:
        raise LabError(f"lab(dial={dial!r}): {_said(error)}") from None


def _said(error: ValidationError) -> str:
    wrong = error.errors()[0]
    return f"{': '.join([*map(str, wrong['loc']), ''])}{wrong['msg'].removeprefix('Value error, ')}"


def _layout(
    folder: Path, base, nodes, vms, disks, disk_bytes, places: Mapping[str, tuple[int, ...]], drives: tuple[Drive, ...]
) -> Testbed:
    bed_nodes = [Node(**hosts.reached(base, "node", 1 + i), drives=drives) for i in range(nodes)]
    several = len(places) > 1
    bed_vms = []
    for j in range(vms):
        home, owned = j % nodes, []
        for d, (system, steps) in product(range(disks), places.items()):
            name = f"{system.removeprefix('lab-')}-vm{j + 1}-d{d}" if several else f"vm{j + 1}-d{d}"
            copies = tuple(str(folder / f"node{(home + step) % nodes + 1}" / f"{name}.img") for step in steps)
            # A relative socket: fio runs in the lab's folder, and a socket's full path may not exceed 107 bytes.
            owned.append(Disk(serial=f"lab-{name}", size_bytes=disk_bytes, backing=copies,
                              uri=f"nbd+unix:///{name}?socket=node{home + 1}.sock",
                              system=system if several else None))  # fmt: skip
        bed_vms.append(Vm(**hosts.reached(base, "vm", 1 + j), node=f"node{home + 1}", disks=tuple(owned)))
    return Testbed(name="lab", nodes=tuple(bed_nodes), vms=tuple(bed_vms), fio=Fio(ioengine="nbd", direct=0),
                   known_hosts=str(folder / "known_hosts"), key=str(folder / "client_key"), lab_root=str(folder),
                   lease_folder=str(folder), serves=None if several else next(iter(places)))  # fmt: skip


def _start(keeper: hosts.Keeper, programs: dict[str, str], testbed: Testbed, delay_s: float, is_store: bool) -> None:
    """Start by readiness: replicas and hosts first, then the fronts, which connect to the replicas at once."""
    hosts.write_keys(testbed, keeper.folder)
    waiting = [hosts.start_sshd(keeper, programs, host, keeper.folder) for host in (*testbed.nodes, *testbed.vms)]
    for node in testbed.nodes:
        waiting += _start_replicas(keeper, programs, node, testbed, delay_s, is_store)
    keeper.wait_ready(waiting)
    keeper.wait_ready([_start_front(keeper, programs, node, testbed) for node in testbed.nodes])


def _start_replicas(
    keeper: hosts.Keeper, programs: Mapping[str, str], node: Node, testbed: Testbed, delay_s: float, is_store: bool
) -> list[hosts.Waiting]:
    """The images that lie on the node, and a server for each of its drives: a bucket is its server's, over all
    exports."""
    home = keeper.folder / node.name
    home.mkdir(exist_ok=True)  # it is there where a file system was mounted on it
    for disk in (d for vm in testbed.vms for d in vm.disks):
        for image in (Path(p) for p in disk.backing):
            if image.parent == home:
                with open(image, "wb") as file:
                    file.truncate(disk.size_bytes)
    waiting = []
    for number, drive in enumerate(node.drives or (None,)):
        filters, options = [], []
        if drive:  # open until the machine's own speed is known
            _turn(testbed, node.name, drive.system, 0)
            rate, told = 8 * drive.read_bytes_per_s, _rate_file(testbed, node.name, drive.system)
            filters, options = ["--filter=rate"], [f"rate-file={told}", f"rate={rate}", f"burstiness={drive.burst_s}"]
        if wait_s := drive.delay_s if drive else delay_s:  # a request that waits holds a thread
            filters += ["--filter=delay", "--threads=64"]
            options += [f"rdelay={1e3 * wait_s:.0f}ms", f"wdelay={1e3 * wait_s:.0f}ms"]  # nbdkit counts whole ms
        if is_store:  # a write is acknowledged when the file system has it, not when the page cache has
            filters += ["--filter=fua"]
            options += ["fuamode=force"]
        # Without structured replies: with them qemu's export asks every replica for the block's status before each
        # read, and
        # the second copy would cost reads a quarter of their IOPS for nothing.
        port = NBD_PORT + number
        argv = [programs["nbdkit"], "--foreground", "--no-sr", "--ipaddr", node.address, "--port", str(port)]
        log = f"nbdkit.{node.name}.{number}" if number else f"nbdkit.{node.name}"
        argv += [*filters, "file", f"dir={home}", *options]
        ready = partial(hosts.answers, node.address, port)
        waiting.append(keeper.spawn(f"replicas of {node.name}", argv, log, ready))
    return waiting


def _start_front(keeper: hosts.Keeper, programs: Mapping[str, str], node: Node, testbed: Testbed) -> hosts.Waiting:
    """One qemu-storage-daemon a node. nbdkit and not a second qemu serves the replicas: qemu 7.2's NBD server leaves
    Nagle's algorithm on, and at iodepth 8 every request then waits 40 ms for a delayed acknowledgement."""
    address = {n.name: n.address for n in testbed.nodes}
    port = {drive.system: NBD_PORT + number for number, drive in enumerate(node.drives)}
    blockdevs, exports = [], []
    for disk in (d for vm in testbed.vms if vm.node == node.name for d in vm.disks):
        name = disk.serial.removeprefix("lab-")
        for c, image in enumerate(map(Path, disk.backing)):
            where = f"server.host={address[image.parent.name]},server.port={port.get(disk.system, NBD_PORT)}"
            export = f"server.type=inet,{where},export={image.name}"
            blockdevs += ["--blockdev", f"driver=nbd,node-name={name}.{c},{export}"]
        children = ",".join(f"children.{c}={name}.{c}" for c in range(len(disk.backing)))
        blockdevs += ["--blockdev", f"driver=quorum,node-name={name},vote-threshold=1,read-pattern=fifo,{children}"]
        exports += ["--export", f"type=nbd,id={name}-x,node-name={name},name={name},writable=on"]
    server = ["--nbd-server", f"addr.type=unix,addr.path={node.name}.sock,max-connections=0"]
    argv = [programs["qemu-storage-daemon"], *blockdevs, *server, *exports]
    ready = partial(hosts.answers_unix, keeper.folder / f"{node.name}.sock")
    return keeper.spawn(f"front of {node.name}", argv, f"front.{node.name}", ready)


def _require_served(programs: Mapping[str, str], testbed: Testbed) -> None:
    """Dial the drives once it is seen that this machine serves more than they are to let through; LabError where it
    does not."""
    drives = [(node.name, drive) for node in testbed.nodes for drive in node.drives]
    asked = sum(drive.read_bytes_per_s for _, drive in drives) / BLOCK
    served = _served(programs, testbed)
    if served < HEADROOM * asked and not any(drive.delay_s for _, drive in drives):
        each = int(served / HEADROOM / len(drives)) * BLOCK
        raise LabError(
            f"dial: this machine serves {served:,.0f} IOPS of 4 KiB through the lab's open drives, the {len(drives)} "
            f"dialled ones would let {asked:,.0f} through: what is measured would be its processors. Dial "
            f"read_bytes_per_s and write_bytes_per_s to {each:,} or less, or wait until the machine is quieter"
        )
    for node, drive in drives:
        _turn(testbed, node, drive.system, drive.read_bytes_per_s)


def _served(programs: Mapping[str, str], testbed: Testbed) -> float:
    """IOPS of 4 KiB reads of all disks of the lab at once, its drives open."""
    argv, runtime = [programs["fio"], "--output-format=json"], f"--runtime={1000 * TRIAL_S:.0f}ms"
    for disk in (disk for vm in testbed.vms for disk in vm.disks):
        argv += [f"--name={disk.serial}", "--ioengine=nbd", f"--uri={disk.uri}", f"--size={disk.size_bytes}"]
        argv += ["--rw=randread", f"--bs={BLOCK}", "--iodepth=8", "--time_based=1", runtime]
    done = subprocess.run(argv, cwd=testbed.lab_root, capture_output=True, text=True, timeout=60)
    start = done.stdout.find("{")
    if done.returncode or start < 0:
        said = (done.stderr or done.stdout).strip()[-300:]
        raise LabError(f"dial: the lab's drives cannot be tried: fio says {said!r}")
    return sum(job["read"]["iops"] for job in json.loads(done.stdout[start:])["jobs"])
