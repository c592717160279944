"""What it is measured on: nodes, VMs, disks by serial, and the storage system under test. Validated YAML, no I/O beyond reading it."""

from __future__ import annotations

import hashlib
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
          "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip


_SIZE = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_UNITS)})")


class _Yaml12(yaml.SafeLoader):
    """YAML with the booleans of version 1.2: in 1.1 the field name `on` and a host called `no` are truth values.

    A key given twice is refused: PyYAML keeps the last, and half a testbed vanishes without a word.
    """

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        for key, _ in reversed(node.value):
            if keys.count(key.value) > 1:
                raise TestbedError(f"line {key.start_mark.line + 1}: field {key.value} is given twice")
        return super().construct_mapping(node, deep)


_Yaml12.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Yaml12.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


LAB_CAVEAT = (
    "All hosts of the lab share one kernel: node CPU is the whole machine's, network traffic is loopback's, and the "
    "replicas sit in one page cache. The lab shows the method; it says nothing about any product."
)


CEPH_CAVEAT = (
    "All hosts of this Ceph cluster share one kernel and one disk: node CPU is the whole machine's and network traffic is "
    "loopback's. Its failures and its capacity are Ceph's own; its speed is this machine's and says nothing about a rack."
)


BOX_CAVEAT = (
    "The nodes of the box are emulated guests on one machine, their drives are files on its disk and their link is a socket. "
    "The storage stacks are real, their speed is this machine's; it says nothing about any product or rack."
)


class TestbedError(ValueError):
    """A testbed or system file that cannot be used; the message names the file, the field and what was expected."""

    __test__ = False  # not a test class, whatever its name


def parse_bytes(value: int | str) -> int:
    """Bytes from an integer or from text with a unit, ``"100 GiB"``. TB and TiB are never mixed: the unit is required."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(str(value).replace("_", "").strip())
    if not match:
        raise ValueError(f"{value!r} is not a size; expected bytes or a number with one of {', '.join(_UNITS)}")
    return int(Fraction(match[1]) * _UNITS[match[2]])


Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Host(_Model):
    """How a host is reached. Empty fields come from ~/.ssh/config; secrets stay in the agent or that file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    address: str = ""
    port: int | None = None
    user: str | None = None
    jump: str | None = None

    @property
    def target(self) -> str:
        return self.address or self.name


class Node(Host):
    """A hypervisor: it carries VMs and its CPU and network are counted."""

    os: Literal["linux", "windows"] = "linux"


class Disk(_Model):
    """A virtual disk of a VM. `uri` is how fio reaches it where it is no block device (nbd://...)."""

    serial: str = Field(pattern=r"^[^\s/]+$")  # it becomes part of a path and of a job file
    size_bytes: Bytes
    uri: str | None = Field(None, pattern=r"^\S+$")
    endurance_bytes: Bytes | None = (
        None  # what its maker allows to be written in its life; a plan's share of it is shown
    )
    backing: tuple[str, ...] = ()  # the lab's replica images: the only files its guard lets be written


class Vm(Host):
    """A load generator: fio runs on it, and it owns disks. A node may be one itself (of the same name, its own `node`): the
    baseline of its bare drives."""

    node: str
    disks: tuple[Disk, ...]
    os: Literal["linux", "windows"] = "linux"


class Fio(_Model):
    """fio's engine on the VMs, and how it is started there.

    `launcher`: ``client-server`` (one fio client on the controller, a server on every VM, one release everywhere) or
    ``per-host`` (fio on each VM over SSH behind a start barrier: large fleets, mixed releases, and policy ``adaptive``).
    `log_hist_msec`: also log histograms of latency, one each so many ms (0: none), for percentiles over time (`read_rollup`).
    `rollup_above_bytes`: with ``per-host`` a VM whose logs are larger rolls them up itself (hcilib.drive.rollups).
    """

    ioengine: str = "libaio"
    direct: int = 1
    port: int = 8765
    binary: str = "fio"
    launcher: Literal["client-server", "per-host"] = "client-server"
    log_hist_msec: int = Field(0, ge=0, le=60_000)
    rollup_above_bytes: Bytes = 4 * 2**20


class Lab(_Model):
    """An embedded testbed to be started on loopback (see hcilib.drive.lab)."""

    nodes: int = Field(2, ge=2, le=16)
    vms: int = Field(4, ge=1, le=64)
    disks: int = Field(1, ge=1, le=8)
    disk_bytes: Bytes = 64 * 2**20


class Ceph(_Model):
    """A Ceph cluster and its load generators to be started on loopback (see hcilib.drive.ceph); the system says how many nodes.

    `osd_bytes`: what an OSD's sparse file may grow to.
    """

    vms: int = Field(2, ge=1, le=16)
    disks: int = Field(1, ge=1, le=8)
    disk_bytes: Bytes = 64 * 2**20
    osd_bytes: Bytes = 4 * 2**30


class Box(_Model):
    """A cluster of virtual nodes to be started on this machine (see hcilib.drive.cluster); the system says how many nodes.

    `drives`, `drive_bytes`, `memory_bytes`: of every node. `throttle_iops`: what each drive lets through, reads and writes together.
    """

    nodes: int | None = Field(None, ge=1, le=2)
    drives: int = Field(5, ge=1, le=8)
    drive_bytes: Bytes = 256 * 2**20
    memory_bytes: Bytes = 2**30
    throttle_iops: int | None = Field(None, ge=1)


class Testbed(_Model):
    """Nodes, VMs and disks. `consent` is the token a campaign must repeat before these disks may be overwritten."""

    __test__ = False

    name: str
    nodes: tuple[Node, ...] = ()
    vms: tuple[Vm, ...] = ()
    fio: Fio = Fio()
    known_hosts: str = "~/.ssh/known_hosts"
    key: str | None = None
    consent: str | None = None
    lab: Lab | None = None
    ceph: Ceph | None = None
    box: Box | None = None
    lab_root: str | None = None  # set by a running lab, never in a file
    serves: str | None = None  # the one system a running lab serves
    stand_in: str = ""  # set by a running box: what every reader of its numbers must know

    @model_validator(mode="after")
    def _consistent(self):
        if section := self.embedded:
            if self.nodes or self.vms:
                raise ValueError(
                    f"{section}: an embedded testbed makes its own nodes and VMs; remove nodes and vms, or {section}"
                )
            return self
        if not self.nodes or not self.vms:
            raise ValueError("nodes, vms: at least one of each is needed (or lab: {} for the embedded testbed)")
        own = {vm.name: vm for vm in self.vms if vm.name == vm.node}
        _unique("host name", [h.name for h in (*self.nodes, *self.vms) if h not in own.values()])
        for node in (node for node in self.nodes if node.name in own):
            reached = [(h.target, h.port, h.user, h.jump) for h in (node, own[node.name])]
            if reached[0] != reached[1]:
                raise ValueError(
                    f"vms: {node.name} is the node itself: give it the same address, port, user and jump in both places"
                )
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

    def targets(self, vms: int, numjobs: int) -> list[tuple[str, Disk]]:
        """(vm name, disk) of every disk that `numjobs` jobs on the first `vms` VMs use, one job a disk in turn."""
        return [(vm.name, disk) for vm in self.fleet(vms) for disk in vm.disks[:numjobs]]

    def used_bytes(self, vms: int, numjobs: int, span_bytes: int) -> int:
        """What a plan with this span uses of the disks that `targets` names: a smaller disk is used whole."""
        return sum(min(span_bytes, disk.size_bytes) for _, disk in self.targets(vms, numjobs))

    def fleet(self, vms: int) -> tuple[Vm, ...]:
        """The first `vms` VMs, spread over the nodes in turn."""
        if vms > len(self.vms):
            raise TestbedError(f"testbed {self.name}: the plan needs {vms} VMs, it has {len(self.vms)}")
        queues = {node.name: [vm for vm in self.vms if vm.node == node.name] for node in self.nodes}
        spread = []
        while any(queues.values()):
            spread += [queue.pop(0) for queue in queues.values() if queue]
        return tuple(spread[:vms])

    def __repr__(self) -> str:
        if not self.vms:
            return f"Testbed({self.name!r}: the embedded {self.embedded}, not running)"
        disks = [disk for vm in self.vms for disk in vm.disks]
        size = sum(disk.size_bytes for disk in disks) / 2**30
        consent = "overwritten with its consent token alone" if self.consent else "without a consent token"
        return (
            f"Testbed({self.name!r}: {len(self.nodes)} nodes, {len(self.vms)} VMs, {len(disks)} disks, {size:,.4g} GiB; "
            f"fio with {self.fio.ioengine}, {self.fio.launcher}; {consent})"
        )

    __str__ = __repr__

    @property
    def caveat(self) -> str:
        """What every reader of its numbers must know; empty for a real testbed."""
        return (CEPH_CAVEAT if self.fio.ioengine == "rbd" else LAB_CAVEAT) if self.lab_root else self.stand_in

    @property
    def digest(self) -> str:
        """Identity by content: names, placement, serials and sizes. Addresses may change (DHCP, a lab's free ports)."""
        names = [(n.name, n.os) for n in self.nodes]
        vms = [(v.name, v.node, [(d.serial, d.size_bytes) for d in v.disks]) for v in self.vms]
        defaults = {"launcher": "client-server", "log_hist_msec": 0}  # a testbed without them keeps its identity
        same = {name for name, value in defaults.items() if getattr(self.fio, name) == value}
        fio = self.fio.model_dump(exclude={"rollup_above_bytes"} | same)
        return _digest([self.name, names, vms, fio])


class Command(_Model):
    """A command and where it runs."""

    on: Literal["node", "nodes", "vm", "vms", "controller"] = "node"
    run: str


class Check(Command):
    """`expect`: a regular expression that is found in what `run` prints for a VM on its owner, and for no other."""

    expect: str

    @field_validator("expect")
    @classmethod
    def _is_a_pattern(cls, expect: str) -> str:
        try:
            re.compile(expect)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return expect


class Placement(_Model):
    """How a VM is seen, and made, to run on the node that owns its data, or on another.

    In every command ``{vm}`` stands for the VM, ``{node}`` for its node and ``{other}`` for the node after that one; such a
    command is run once a VM: `on: nodes` on the VM's own node, `on: vms` on the VM, `on: node` on the first node.
    """

    check: Check
    owner: Command | None = None
    non_owner: Command | None = None
    restore: Command | None = None


class Action(Command):
    """A failure that can be brought about, or taken back. `undo` names the action that takes this one back."""

    undo: str | None = None


class Failures(_Model):
    """What can be done to the system while it is measured (a plan's events), and how it is seen to be whole again.

    `whole.expect` must be found in what `whole.run` prints on every host it runs on.
    """

    actions: dict[str, Action]
    whole: Check

    @model_validator(mode="after")
    def _undone_by_a_known_one(self):
        for name, action in self.actions.items():
            if action.undo and action.undo not in self.actions:
                raise ValueError(f"actions.{name}.undo: {action.undo!r} is not among actions {sorted(self.actions)}")
        return self


class DriveModel(_Model):
    model: str
    bytes: Bytes | None = None


class VmSet(_Model):
    """The VMs an article describes: provenance, not a testbed."""

    count: int | None = None
    disks: int | None = None
    disk_bytes: Bytes | None = None
    placement: str | None = None


class System(_Model):
    """A storage product in one configuration. `scheme` is text that hcilib.analyse.capacity.parse_scheme reads."""

    name: str
    label: str
    short: str | None = None
    source: str | None = None
    scheme: str | None = None
    nodes: int | None = None
    drives_per_node: int | None = None
    drive: DriveModel | None = None
    transport: str | None = None
    working_set_bytes: Bytes | None = None
    vms: VmSet | None = None
    versions: dict[str, str] = {}
    tuning: tuple[str, ...] = ()
    fingerprint: tuple[Command, ...] = ()
    prepare: tuple[Command, ...] = ()
    placement: Placement | None = None
    failures: Failures | None = None
    notes: str | None = None

    @property
    def digest(self) -> str:
        return _digest(
            self.model_dump(exclude={name for name in ("placement", "failures") if getattr(self, name) is None})
        )

    def __repr__(self) -> str:
        drives = (
            f"{self.nodes} nodes with {self.drives_per_node} drives each"
            if self.nodes and self.drives_per_node
            else None
        )
        facts = (self.label, self.scheme, drives, self.transport)
        return f"System({self.name!r}: {'; '.join(fact for fact in facts if fact)})"

    __str__ = __repr__

    @property
    def raw_bytes(self) -> float:
        """Bytes of all drives of all nodes; NaN where the file does not say enough."""
        if not (self.nodes and self.drives_per_node and self.drive and self.drive.bytes):
            return float("nan")
        return float(self.nodes * self.drives_per_node * self.drive.bytes)


def load_testbed(path: str | Path) -> Testbed:
    """A validated testbed from YAML.

    Raises
    ------
    TestbedError : names the file, the field and what was expected

    Examples
    --------
    >>> hci.load_testbed("params/testbeds/lab.yaml")
    Testbed('lab': the embedded lab, not running)
    """
    return _load(path, Testbed)


def load_system(path: str | Path) -> System:
    """A validated system from YAML; raises like :func:`load_testbed`.

    Examples
    --------
    >>> hci.load_system("params/systems/ceph-pve.yaml")
    System('ceph-pve': Ceph, replica 2, 2 OSDs per NVMe drive (Proxmox); Mirror(2); 2 nodes with 5 drives each)
    """
    return _load(path, System)


def load_systems(folder: str | Path) -> dict[str, System]:
    """Name -> system of every YAML file of a folder; raises like :func:`load_testbed`."""
    systems = [load_system(file) for file in sorted(Path(folder).glob("*.yaml"))]
    return {system.name: system for system in systems}


def short_labels(folder: str | Path) -> dict[str, str]:
    """System name -> the short label by which figures and tables call it, for every system file of a folder.

    Examples
    --------
    >>> hci.short_labels("params/systems")["drbd-tcp-pve"]
    'Linstor/DRBD TCP'
    """
    return {name: system.short or system.label for name, system in load_systems(folder).items()}


_LIVE = {
    "lab_root",
    "serves",
    "stand_in",
}  # a file that claimed to be a running lab would open the guard's door to any path


def _load(path, model):
    try:
        data = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Yaml12)
    except FileNotFoundError:
        raise TestbedError(f"{path}: no such file; a {model.__name__.lower()} is a YAML file under params/") from None
    except OSError as error:
        raise TestbedError(f"{path}: {error.strerror}") from None
    except TestbedError as error:
        raise TestbedError(f"{path}: {error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TestbedError(f"{path}: not YAML in UTF-8: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise TestbedError(f"{path}: expected fields of a {model.__name__.lower()}, found {type(data).__name__}")
    if live := sorted(_LIVE & data.keys()):
        raise TestbedError(f"{path}: field {live[0]}: set by a running lab, never in a file; remove it")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise TestbedError(f"{path}: " + "; ".join(_explain(e, model) for e in error.errors())) from None


def _explain(error, model) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        known = model.model_fields if len(error["loc"]) == 1 else ()
        return f"field {where}: unknown" + (f"; known fields are {', '.join(known)}" if known else "")
    given = "" if error["type"] == "missing" else f" (given: {error['input']!r})"
    return f"field {where}: {error['msg']}{given}" if where else f"{error['msg'].removeprefix('Value error, ')}"


def _unique(what: str, values: list[str]) -> None:
    twice = sorted({v for v in values if values.count(v) > 1})
    if twice:
        raise ValueError(f"{what} {', '.join(twice)} appears more than once")


def _digest(data) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()[:16]
