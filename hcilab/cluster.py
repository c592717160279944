"""The cluster in a box: virtual nodes with real kernels, real drives by serial, and a real replicated device between
them.

Unlike the lab's hosts these share nothing but the machine they run on, so they are reached, checked and guarded exactly
like a real cluster: verified host keys, preflight, consent, devices known by serial, an array's UUID or a DRBD
resource. A node is its own load generator, as on a hyperconverged node whose VM reads its local copy.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hcilab import cluster_guest as guests
from hcilab import cluster_storage as storage
from hcilab import lab_hosts as hosts
from hcilab.cluster_image import cache_folder, image
from hcilib.drive.hosts.hosts import Clock, Fleet, FleetError, clocks, need
from hcilib.model.testbed import Box, Disk, Fio, Node, Testbed, Vm

SYSTEMS = {"box-drbd": 2, "box-nvme-tcp": 2, "box-nvme-remote": 2, "box-raid5": 2, "box-drive": 1,
           "box-mirror3": 4, "box-mirror3-remote": 4}  # fmt: skip
"""System -> how many nodes it has unless told otherwise."""
ALONE = ("box-raid5", "box-drive")
"""Nothing between the nodes: any number of them."""
ONE_DRIVE = ("box-drive", "box-mirror3", "box-mirror3-remote")
CONSENT = "overwrite-box"
LINK_CARD, REPLICATION, CLOCK_READINGS = "repl", "10.9.0.{}", 4
SHIFT = "python3 -S -c 'import time; time.clock_settime(time.CLOCK_REALTIME, time.time() + {seconds:.6f})'"
"""At once: what `date` printed is old by the time that another `date` was started, a second on a busy machine."""
BOX_CAVEAT = (
    "The nodes of the box are emulated guests on one machine, their drives are files on its disk and their link is a "
    "socket. The storage stacks are real, but their speed is this machine's and says nothing about a product."
)
LabError = hosts.LabError


@contextlib.contextmanager
def cluster(
    nodes: int | None = None,
    *,
    system: str = "box-drbd",
    drives: int = 5,
    drive_bytes: int = 256 * 2**20,
    memory_bytes: int = 2**30,
    throttle_iops: int | None = None,
    drive_cache: str = "kept",
    protocol: str = "C",
    consent: str | None = CONSENT,
    root: str | Path | None = None,
    base: str | None = None,
    cache: str | Path | None = None,
) -> Iterator[Testbed]:
    """A running cluster of virtual nodes that serves `system`, stopped whatever happens to the caller, `kill -9`
    included.

    Parameters
    ----------
    nodes : default 2, of ``box-drive`` 1, of mirrors of three copies 4; ``box-raid5`` on two nodes is one array on
        each, nothing replicated
    system : ``box-drbd``, ``box-nvme-tcp``, ``box-nvme-remote`` (the other node's array alone), ``box-raid5``,
        ``box-drive``, ``box-mirror3`` (copies on the node that uses it and the two after it) or
        ``box-mirror3-remote`` (on the three others)
    drives, drive_bytes : of every node; ``box-drive`` and mirrors of three copies have one
    throttle_iops : I/Os a second that each drive lets through, reads and writes together; None: no limit
    drive_cache, protocol : what a power failure takes from a drive, and DRBD's protocol, as in
        `hcilib.model.testbed.Box`
    consent : the testbed's consent token, which a campaign has to repeat as for any real testbed
    root : folder under which the box's own folder is made and removed again; default: out/ of the repository
    base : first three numbers of the loopback addresses; default: the first free ones
    cache : where kernel and image are kept; default: hcilib/box in the user's cache folder

    Yields
    ------
    Testbed : its nodes, each of them a VM with one disk too

    Raises
    ------
    LabError : a missing program or package, an address in use, too little memory or disk, a guest that does not boot
        (with the end of its console) or storage that cannot be set up
    """
    given = {"drives": drives, "drive_bytes": drive_bytes, "memory_bytes": memory_bytes, "throttle_iops": throttle_iops,
             "drive_cache": drive_cache, "protocol": protocol}  # fmt: skip
    with running(system, nodes, consent=consent, root=root, base=base, cache=cache, **given) as box:
        yield box.testbed


@contextlib.contextmanager
def running(
    system: str,
    nodes: int | None = None,
    *,
    consent: str | None = CONSENT,
    root: str | Path | None = None,
    base: str | None = None,
    cache: str | Path | None = None,
    **given,
) -> Iterator[Cluster]:
    """As :func:`cluster`, with the handle by which faults are done to it."""
    nodes, size = _require(system, nodes, given)
    hosts.require_memory(nodes * size.memory_bytes, f"{nodes} guest(s)", ": end something, or start fewer nodes")
    qemu, boot = guests.find_qemu(), image(cache)
    needed = nodes * size.drives * size.drive_bytes
    with hosts.ground(root, needed, "the box's drives", base, hosts.sshd_of(nodes)) as (folder, block, keeper):
        testbed = _layout(folder, block, nodes, size, system, consent)
        accel = guests.accelerator(qemu, boot[0], cache_folder(cache))
        box = Cluster(system, testbed, folder, size, keeper, (qemu, accel, boot))
        box._start()
        yield box


@dataclass
class Cluster:
    """A running box and what can be done to it. `testbed` is what campaigns are given."""

    system: str
    testbed: Testbed
    folder: Path
    size: Box
    keeper: hosts.Keeper
    boot: tuple[str, str, tuple[Path, Path]]
    pids: dict[str, list[int]] = field(default_factory=dict)  # of a node's qemu, and of its drives' caches

    def cut_link(self, up: bool = False) -> None:
        """Pull the cable of the replication link out, on node1; both nodes go on without each other."""
        guests.execute(self._guests()["node1"].monitor(self.folder), "set_link", name=LINK_CARD, up=up)

    def heal_link(self) -> None:
        """Plug it in again; what replicates notices by itself."""
        self.cut_link(up=True)

    def kill(self, node: str) -> None:
        """`kill -9` of a node's qemu: a power failure. Its drives keep what had reached them, volatile caches
        nothing."""
        for pid in self.pids[node]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def revive(self, node: str) -> None:
        """Boot a killed node from the same drives and let it join again. Not node1, to whose socket the others are
        connected."""
        if node == "node1":
            raise LabError("node1 holds the link's socket and cannot be revived: kill and revive node2")
        guest = self._guests()[node]
        self._boot([guest])
        with Fleet(self.testbed) as fleet:
            self._set_clocks(fleet, [guest.node])
            storage.rejoin(fleet, self.system, {node: guest.drives}, self.size.protocol)

    def settle(self) -> None:
        """Have every drive's volatile cache written out, also where the nodes' flushes are ignored: all that is there
        survives."""
        for guest in self._guests().values() if self.size.drive_cache != "kept" else ():
            for index in range(len(guest.drives)):
                guests.flush(guest.socket(self.folder, index))

    def fail_drive(self, node: str, index: int = 0) -> None:
        """Mark a drive of the node's RAID 5 as failed; the array goes on without it."""
        self._make_drive("failed drive", node, index)

    def replace_drive(self, node: str, index: int = 0) -> None:
        """Give the array that drive back as a new one: it is rebuilt."""
        self._make_drive("replaced drive", node, index)

    def _make_drive(self, what: str, node: str, index: int) -> None:
        with Fleet(self.testbed) as fleet:
            storage.make_drive(fleet, what, node, self._guests()[node].drives[index])

    def throttle(self, iops: int) -> None:
        """Let every drive pass so many I/Os a second, reads and writes together; 0: without limit.

        qemu lets a tenth of a second's I/Os pass at once after a pause (its bucket): leave them out by a ramp.
        """
        limit = {"iops": iops} | dict.fromkeys(("bps", "bps_rd", "bps_wr", "iops_rd", "iops_wr"), 0)
        for guest in self._guests().values():
            for index in range(len(guest.drives)):
                guests.execute(guest.monitor(self.folder), "block_set_io_throttle", device=f"d{index}", **limit)

    def _start(self) -> None:
        """Boot all nodes, then set their storage up; `testbed` is complete only then, when the devices' sizes are
        known."""
        hosts.write_keys(self.testbed, self.folder)
        named = (f"{REPLICATION.format(number)} {n.name}\n" for number, n in enumerate(self.testbed.nodes, 1))
        (self.folder / "hosts").write_text("".join(named))  # by which the nodes know each other
        for guest in self._guests().values():
            for index in range(len(guest.drives)):
                with open(guest.image(self.folder, index), "wb") as file:  # sparse, empty
                    file.truncate(self.size.drive_bytes)
        self._boot(self._guests().values())
        try:
            with Fleet(self.testbed) as fleet:
                need("login to the box", fleet.connect())
                self._set_clocks(fleet, self.testbed.nodes)
                drives = {name: guest.drives for name, guest in self._guests().items()}
                disks = storage.set_up(fleet, self.system, drives, self.size.protocol)
        except FleetError as error:
            consoles = "; ".join(f"{node.name}: {self.keeper.tail(node.name)}" for node in self.testbed.nodes)
            raise LabError(f"{error}; consoles: {consoles}") from None
        vms = tuple(vm.model_copy(update={"disks": (disks[vm.name],)}) for vm in self.testbed.vms)
        self.testbed = self.testbed.model_copy(update={"vms": vms})
        self.settle()
        if self.size.throttle_iops:
            self.throttle(self.size.throttle_iops)

    def _boot(self, started: Collection[guests.Guest]) -> None:
        qemu, accel, boot = self.boot
        waiting = []
        for guest in started:
            cached = guests.start_caches(self.keeper, guest, self.folder)
            waiting.append(guests.start(self.keeper, qemu, accel, boot, guest, self.folder))
            self.pids[guest.node.name] = [waiting[-1].pid, *(one.pid for one in cached)]
            if guest.number == 1:  # the others connect to its sockets, and give up where there are none
                links = [self.folder / guests.link(number) for number in range(2, guest.peers + 1)]
                there = lambda: all(link.exists() for link in links)  # noqa: B023, E731  asked at once
                self.keeper.wait_ready([replace(waiting[-1], ready=there)])
        try:
            self.keeper.wait_ready(waiting, guests.BOOT_S)
        except LabError as error:
            said = [guests.last_words(self.keeper.log(guest.node.name)) for guest in started]
            raise LabError("; ".join(filter(None, [str(error), *said]))) from None

    def _set_clocks(self, fleet: Fleet, nodes: Sequence[Node]) -> None:
        """A guest's clock starts at a whole second of the machine's; preflight allows half of one.

        Each is moved by what the quickest of a few readings says, on the guest itself: a busy machine may answer
        seconds later.
        """
        best: dict[str, Clock] = {}
        for _ in range(CLOCK_READINGS):
            for name, reading in clocks(fleet, nodes).items():
                best[name] = min(best.get(name, reading), reading, key=lambda r: r[1])
        moves = {name: SHIFT.format(seconds=-ahead_s) for name, (ahead_s, _) in best.items()}
        need("setting the clocks of the box", fleet.run(moves))

    def _guests(self) -> dict[str, guests.Guest]:
        nodes, size = self.testbed.nodes, self.size
        alike = (size.memory_bytes, len(nodes), size.drive_cache)
        return {node.name: guests.Guest(node, n, _serials(n, size.drives), *alike) for n, node in enumerate(nodes, 1)}


def _require(system: str, nodes: int | None, size: dict) -> tuple[int, Box]:
    """Node count and sizes; LabError where this box cannot be built, or not on this machine."""
    if system not in SYSTEMS:
        raise LabError(f"unknown box system {system!r}: expected one of {', '.join(SYSTEMS)}")
    box = hosts.checked(Box, "cluster", nodes=nodes, **size | ({"drives": 1} if system in ONE_DRIVE else {}))
    nodes = nodes or SYSTEMS[system]
    if system not in ALONE and nodes != SYSTEMS[system]:
        raise LabError(f"{system} stands on {SYSTEMS[system]} nodes; nodes={nodes} was given")
    if system not in ONE_DRIVE and box.drives < 3:
        raise LabError(f"{system} stands on RAID 5, which needs three drives; drives={box.drives} was given")
    return nodes, box


def _serials(number: int, drives: int) -> tuple[str, ...]:
    return tuple(f"BOX-N{number}D{index + 1}" for index in range(drives))


def _layout(folder: Path, base: str, nodes: int, size: Box, system: str, consent: str | None) -> Testbed:
    """The testbed before its storage stands: every node owns its first drive, bare."""
    bed, vms = [], []
    for number in range(1, nodes + 1):
        reach = hosts.reached(base, "node", number) | {"user": "root"}
        bare = Disk(serial=_serials(number, 1)[0], size_bytes=size.drive_bytes)
        bed.append(Node(**reach, storage=REPLICATION.format(number) if nodes > 1 else ""))
        vms.append(Vm(**reach, node=f"node{number}", disks=(bare,)))
    return Testbed(name="box", nodes=tuple(bed), vms=tuple(vms), fio=Fio(), known_hosts=str(folder / "known_hosts"),
                   key=str(folder / "client_key"), consent=consent, serves=system, stand_in=BOX_CAVEAT)  # fmt: skip
