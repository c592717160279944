"""What it is measured on: nodes, VMs, disks by serial. Validated YAML, no I/O beyond reading it. The system is
hcilib.model.system's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, model_validator

from hcilib.model import yaml_models as form
from hcilib.model.yaml_models import Form, Model, TestbedError, digest, load

ENGINES = ("psync", "libaio", "io_uring", "nbd", "rbd", "posixaio", "sync", "pvsync2", "windowsaio")
"""fio's engines that a testbed may name: those that do I/O on a device, an NBD export or an RBD image, and nothing
else."""

LAB_CAVEAT = (
    "All hosts of the lab share one kernel: node CPU is the whole machine's, network traffic is loopback's, and the "
    "replicas sit in one page cache. The lab shows the method, and nothing about any product."
)


CEPH_CAVEAT = (
    "All hosts of this Ceph cluster share one kernel and one disk: node CPU is the whole machine's and network traffic "
    "is loopback's. Its failures and its capacity are Ceph's own. Its speed is this machine's and says nothing about a "
    "rack."
)


class Host(Model):
    """How a host is reached. Empty fields come from ~/.ssh/config; secrets stay in the agent or that file."""

    name: form.Name
    address: form.Address = ""
    port: int | None = Field(None, ge=1, le=65535)
    user: form.Account | None = None
    jump: form.Jump | None = None

    @property
    def target(self) -> str:
        return self.address or self.name


class Dial(Model):
    """A drive of known speed (METHODS section 8): what it lets through each way, and how long each I/O takes at least.

    The rates are a token bucket's, one for reads and one for writes, over everything that lies on the drive; nbdkit,
    which keeps them, knows one rate for both. What a drive that was idle may serve at once is ``burst_s`` of its rate:
    with little of it requests queue as at a real drive, but threads that wake late on a busy machine lose what they
    could have served.
    """

    read_bytes_per_s: form.Bytes = Field(ge=2**16)
    write_bytes_per_s: form.Bytes = Field(ge=2**16)
    delay_s: float = Field(0.0, ge=0, le=1)
    burst_s: float = Field(0.1, ge=0.001, le=1)

    @model_validator(mode="after")
    def _as_nbdkit_keeps_it(self):
        if abs(1e3 * self.delay_s - round(1e3 * self.delay_s)) > 1e-9:
            raise ValueError(f"delay_s {self.delay_s:g}: nbdkit's delay filter counts whole milliseconds, e.g. 0.002")
        if self.read_bytes_per_s != self.write_bytes_per_s:
            both = f"read_bytes_per_s {self.read_bytes_per_s} and write_bytes_per_s {self.write_bytes_per_s} differ"
            why = "nbdkit's rate filter keeps a bucket for each way, both of one rate; give the same number twice"
            raise ValueError(f"{both}: {why}")
        return self


class Drive(Dial):
    """The datasheet of a running lab's drive. `system`: the one whose it is alone, None where all systems share it.
    `limits`: ``separate`` where reads and writes each have their own, ``shared`` where both have one (`ceiling`)."""

    system: form.Name | None = None
    limits: Literal["separate", "shared"] = "separate"


class Node(Host):
    """A hypervisor: it carries VMs and its CPU and network are counted. `storage`: its address on the network that
    joins the nodes, where that is not the one by which it is reached. `utc_offset`: of a Windows node's clock, such as
    +01:00, for files of counters that name no time zone."""

    storage: form.Address = ""
    os: Literal["linux", "windows"] = "linux"
    utc_offset: form.UtcOffset | None = None
    drives: tuple[Drive, ...] = ()  # of a set speed; written by a running lab, never in a file


class Disk(Model):
    """A virtual disk of a VM. `uri` is how fio reaches it where it is no block device (nbd://...)."""

    serial: form.Serial  # it becomes part of a path
    size_bytes: form.Bytes
    uri: form.Uri | None = None
    endurance_bytes: form.Bytes | None = None  # what its maker allows to be written; a plan's share of it is shown
    backing: tuple[form.FilePath, ...] = ()  # the lab's replica images: the only files its guard lets be written
    system: form.Name | None = None  # whose it is, as in the system's file, where several share the testbed


_WWN = re.compile(
    r"(?:0x|naa\.|eui\.|nvme\.|t10\.|uuid\.)(.+)|3?([0-9a-f]{16}|[0-9a-f]{32}|[0-9a-f-]{36})", re.IGNORECASE
)


def identity(name: str) -> str:
    """Return a disk's serial, WWN or uuid as it is compared: udev and /sys write one in several ways."""
    bare = name.strip()
    wwn = _WWN.fullmatch(bare)
    return (wwn[1] or wwn[2]).lower() if wwn else bare


class Vm(Host):
    """A load generator: fio runs on it, and it owns disks. A node may be one itself (of the same name, its own `node`):
    the baseline of its bare drives."""

    node: form.Name
    disks: tuple[Disk, ...]
    os: Literal["linux", "windows"] = "linux"


_ENGINE = (
    f"one of {', '.join(ENGINES)}: engines that read and write the disks that the guard has judged; others "
    "load code (external:), make no I/O, or reach other targets"
)
Engine = Annotated[str, Form(_ENGINE, "|".join(ENGINES), known=ENGINES)]
_PROGRAM = (
    "a program called fio..., such as fio, fio-3.36 or /opt/fio-3.36/bin/fio: its name alone or a whole path, "
    "in letters, digits and . _ + - (no blank, no .., nothing that a shell reads)"
)
Program = Annotated[str, Form(_PROGRAM, r"(?:/(?:[A-Za-z0-9_+-][A-Za-z0-9._+-]*/)*)?fio[A-Za-z0-9._+-]*")]


class Fio(Model):
    """fio's engine on the VMs, and how it is started there.

    `launcher`: ``per-host`` (fio on each VM over SSH behind a start barrier: any fleet, mixed releases, policy
    ``adaptive``) or ``client-server`` (one fio client on the controller, a server on every VM's own unix socket, one
    release everywhere: the articles' way). `port` is what results call a VM by, beside its address; no fio listens on
    it. `log_hist_msec`: also log histograms of latency, one each so many ms (0: none), for percentiles over time
    (`read_rollup`).
    """

    ioengine: Engine = "libaio"
    direct: Literal[0, 1] = 1
    port: int = Field(8765, ge=1, le=65535)
    binary: Program = "fio"
    launcher: Literal["client-server", "per-host"] = "per-host"
    log_hist_msec: int = Field(0, ge=0, le=60_000)

    @model_validator(mode="after")
    def _histograms_are_whole(self):
        if self.log_hist_msec and self.launcher == "client-server":
            wrong = "fio's server sends its client histograms that count I/Os again and again"
            raise ValueError(f"log_hist_msec: {wrong}; take launcher: per-host, or leave log_hist_msec out")
        return self


class Lab(Model):
    """An embedded testbed to be started on loopback (see hcilab.lab).

    `dial`: the speed of each node's one drive; without it the drives are as fast as this machine happens to be.
    `store`: ``xfs`` puts each node's replicas on a file system that can share blocks (hcilab.dedup_store).
    """

    nodes: int = Field(2, ge=2, le=16)
    vms: int = Field(4, ge=1, le=64)
    disks: int = Field(1, ge=1, le=8)
    disk_bytes: form.Bytes = 64 * 2**20
    dial: Dial | None = None
    store: Literal["", "xfs"] = ""


class Ceph(Model):
    """A Ceph cluster and its load generators to be started on loopback (see hcilab.ceph); the system says
    how many nodes.

    `osd_bytes`: what an OSD's sparse file may grow to.
    """

    vms: int = Field(2, ge=1, le=16)
    disks: int = Field(1, ge=1, le=8)
    disk_bytes: form.Bytes = 64 * 2**20
    osd_bytes: form.Bytes = 4 * 2**30


class Box(Model):
    """A cluster of virtual nodes to be started on this machine (see hcilab.cluster); the system says how
    many nodes.

    `drives`, `drive_bytes`, `memory_bytes`: of every node. `throttle_iops`: what each drive lets through, reads and
    writes together. `drive_cache`: what a power failure takes from a drive: nothing that it acknowledged (``kept``),
    what was not flushed (``volatile``), or all since it was set up, as flushes are ignored too (``unsafe``, qemu's
    word). `protocol`: DRBD's; with A a write is acknowledged before the other node has it.
    """

    nodes: int | None = Field(None, ge=1, le=4)
    drives: int = Field(5, ge=1, le=8)
    drive_bytes: form.Bytes = 256 * 2**20
    memory_bytes: form.Bytes = 2**30
    throttle_iops: int | None = Field(None, ge=1)
    drive_cache: Literal["kept", "volatile", "unsafe"] = "kept"
    protocol: Literal["A", "C"] = "C"


class Testbed(Model):
    """Nodes, VMs and disks. `consent` is the token a campaign must repeat before these disks may be overwritten.

    `most_bytes_written`: by all campaigns on it whose run directories lie beside each other, to all
    disks together. `lease`: ``required``, or ``none`` where hosts
    cannot be leased: nobody is kept from measuring there at the same time then, and every row says so. `python`: what
    holds the disks on its hosts, where it is not called python3 (from 3.6 on).
    """

    __test__ = False

    name: form.Name
    nodes: tuple[Node, ...] = ()
    vms: tuple[Vm, ...] = ()
    fio: Fio = Fio()
    known_hosts: form.FilePath = "~/.ssh/known_hosts"
    key: form.FilePath | None = None
    consent: form.Token | None = None
    most_bytes_written: form.Bytes | None = None
    lease: Literal["required", "none"] = "required"
    python: form.FilePath = "python3"
    lab: Lab | None = None
    ceph: Ceph | None = None
    box: Box | None = None
    lab_root: form.FilePath | None = None  # set by a running lab, never in a file
    _made_at: float = PrivateAttr(0.0)  # when an embedded one's disks were made; a real one's were there before
    lease_folder: form.FilePath | None = None  # set by a running bed whose hosts share one machine, never in a file
    serves: form.Name | None = None  # the one system a running lab serves; of several, each disk says whose it is
    stand_in: form.Line = ""  # set by a running box: what every reader of its numbers must know

    @model_validator(mode="after")
    def _consistent(self):
        if section := self.embedded:
            if self.nodes or self.vms:
                raise ValueError(f"{section}: an embedded testbed makes its own; remove nodes and vms, or {section}")
            if own_way := sorted(self.fio.model_fields_set & {"ioengine", "direct", "port", "binary"}):
                todo = f"remove {' and '.join(own_way)} from fio, or {section}"
                raise ValueError(f"fio.{own_way[0]}: an embedded testbed reaches its disks in a way of its own; {todo}")
            return self
        if not self.lab_root and (named := [node.name for node in self.nodes if node.drives]):
            raise ValueError(f"nodes: {named[0]} has drives, which a running lab alone dials: remove them")
        if not self.nodes or not self.vms:
            raise ValueError("nodes, vms: at least one of each is needed (or lab: {} for the embedded testbed)")
        own = {vm.name: vm for vm in self.vms if vm.name == vm.node}
        _unique("host name", [h.name for h in (*self.nodes, *self.vms) if h not in own.values()])
        for node in (node for node in self.nodes if node.name in own):
            reached = [(h.target, h.port, h.user, h.jump) for h in (node, own[node.name])]
            if reached[0] != reached[1]:
                raise ValueError(f"vms: {node.name} is the node itself: give it the same address, port, user and jump")
        _unique("VM address", [vm.target for vm in self.vms])  # fio would run the job there twice and count it twice
        _unique("disk serial", [d.serial for vm in self.vms for d in vm.disks])
        known = {n.name for n in self.nodes}
        for vm in self.vms:
            if not vm.disks:
                raise ValueError(f"vms: {vm.name} has no disk; a VM needs at least one")
            if vm.node not in known:
                raise ValueError(f"vms: {vm.name} runs on node {vm.node!r}, which is not among nodes {sorted(known)}")
        return self

    @property
    def embedded(self) -> str | None:
        """The section that says what is to be started; None for what runs already and for a real testbed."""
        return None if self.lab_root else next((name for name in ("lab", "ceph", "box") if getattr(self, name)), None)

    @property
    def bed(self) -> str | None:
        """The bed that this running testbed belongs to; None for a real one, and for a box, which is driven like
        one."""
        if not self.lab_root:
            return None
        return "ceph" if self.fio.ioengine == "rbd" else "lab"

    def lock_of(self, host: Host) -> str:
        """The file or folder whose lock stands for a host without disks."""
        return f"{self.lease_folder}/lease-{host.target}" if self.lease_folder else "/"

    @property
    def windows(self) -> frozenset[str]:
        """Names of the hosts that run Windows: no shell command is run there, no disk of theirs judged or written."""
        hosts: tuple[Node | Vm, ...] = (*self.nodes, *self.vms)
        return frozenset(host.name for host in hosts if host.os == "windows")

    def targets(self, vms: int, numjobs: int) -> list[tuple[str, Disk]]:
        """(vm name, disk) of every disk that `numjobs` jobs on the first `vms` VMs use, one job a disk in turn."""
        return [(vm.name, disk) for vm in self.fleet(vms) for disk in vm.disks[:numjobs]]

    def used_bytes(self, vms: int, numjobs: int, span_bytes: int) -> int:
        """What a plan with this span uses of the disks that `targets` names: a smaller disk is used whole."""
        return sum(min(span_bytes, disk.size_bytes) for _, disk in self.targets(vms, numjobs))

    def divided(self, systems: Mapping[str, Sequence[str]]) -> Testbed:
        """The testbed with each disk marked as the one system's whose it is: system -> patterns of the serials that are
        its own.

        A disk is a system's if its serial matches one of the patterns (the field `disks` of the system's file); of a
        system without patterns if its own field `system` says so; and where no disk names a system, all disks are.

        Raises
        ------
        TestbedError : a disk that is two systems'
        """
        tagged = any(disk.system for vm in self.vms for disk in vm.disks)
        if len(systems) == 1 and not tagged and not any(systems.values()):
            return self

        def owned(vm: Vm, disk: Disk) -> Disk:
            owners = [name for name, patterns in systems.items() if _is_of(disk, name, patterns, tagged)]
            if len(claims := {*owners, *([disk.system] if disk.system else [])}) > 1:
                raise TestbedError(
                    f"testbed {self.name}: {vm.name}: disk {disk.serial} is {' and '.join(sorted(claims))}'s: systems "
                    "that share a disk cannot be measured beside each other; say in the field disks of each system's "
                    "file which serials are its own (patterns such as ceph-*), or in the field system of each disk of "
                    "the testbed whose it is"
                )
            return disk.model_copy(update={"system": owners[0]}) if owners else disk

        vms = [vm.model_copy(update={"disks": tuple(owned(vm, disk) for disk in vm.disks)}) for vm in self.vms]
        return self.model_copy(update={"vms": tuple(vms)})

    def of_system(self, name: str) -> Testbed:
        """The testbed as one of its systems has it: each VM with that system's disks alone, a VM without any left out.
        All of it where no disk is marked as a system's. TestbedError where none is this one's."""
        marks = {disk.system for vm in self.vms for disk in vm.disks if disk.system}
        if not marks:
            return self
        own = [vm.model_copy(update={"disks": tuple(d for d in vm.disks if d.system == name)}) for vm in self.vms]
        if not any(vm.disks for vm in own):
            others = ", ".join(sorted(marks))
            raise TestbedError(f"testbed {self.name}: no disk is system {name}'s; they are {others}'s")
        return self.model_copy(update={"vms": tuple(vm for vm in own if vm.disks)})

    def fleet(self, vms: int) -> tuple[Vm, ...]:
        """The first `vms` VMs, spread over the nodes in turn."""
        if vms > len(self.vms):
            raise TestbedError(f"testbed {self.name}: the plan needs {vms} VMs, it has {len(self.vms)}")
        of_nodes = ([vm for vm in self.vms if vm.node == node.name] for node in self.nodes)
        return tuple(filter(None, chain.from_iterable(zip_longest(*of_nodes))))[:vms]

    def __repr__(self) -> str:
        if not self.vms:
            return f"Testbed({self.name!r}: the embedded {self.embedded}, not running)"
        disks = [disk for vm in self.vms for disk in vm.disks]
        size = sum(disk.size_bytes for disk in disks) / 2**30
        consent = "overwritten with its consent token alone" if self.consent else "without a consent token"
        made = f"{len(self.nodes)} nodes, {len(self.vms)} VMs, {len(disks)} disks, {size:,.4g} GiB"
        return f"Testbed({self.name!r}: {made}; fio with {self.fio.ioengine}, {self.fio.launcher}; {consent})"

    __str__ = __repr__

    @property
    def caveat(self) -> str:
        """What every reader of its numbers must know; empty for a real testbed."""
        return (CEPH_CAVEAT if self.fio.ioengine == "rbd" else LAB_CAVEAT) if self.lab_root else self.stand_in

    @property
    def digest(self) -> str:
        """Identity by content: names, placement, serials and sizes. Addresses may change (DHCP, a lab's free ports)."""
        names = [(n.name, n.os) for n in self.nodes]
        vms = [
            (v.name, v.node, [(d.serial, d.size_bytes, *([d.system] if d.system else [])) for d in v.disks])
            for v in self.vms
        ]
        defaults = {"launcher": "client-server", "log_hist_msec": 0}  # a testbed without them keeps its identity
        same = {name for name, value in defaults.items() if getattr(self.fio, name) == value}
        fio = self.fio.model_dump(exclude=same)
        return digest([self.name, names, vms, fio, *([] if self.lease == "required" else [self.lease])])


def load_testbed(path: str | Path) -> Testbed:
    """A validated testbed from YAML.

    Raises
    ------
    TestbedError : names the file, the field and what was expected

    Examples
    --------
    >>> from hcilib.model.testbed import load_testbed
    >>> load_testbed("params/testbeds/lab.yaml")
    Testbed('lab': the embedded lab, not running)
    """
    return load(path, Testbed, live=("lab_root", "lease_folder", "serves", "stand_in"))


def _is_of(disk: Disk, system: str, patterns: Sequence[str], tagged: bool) -> bool:
    """Whose a disk is by the one system's patterns, else by its own mark; where nothing says so, everybody's."""
    if patterns:
        return any(fnmatchcase(disk.serial, pattern) for pattern in patterns)
    return disk.system == system if tagged else True


def _unique(what: str, values: list[str]) -> None:
    if twice := sorted({v for v in values if values.count(v) > 1}):
        raise ValueError(f"{what} {', '.join(twice)} appears more than once")
