"""The storage system under test: its resiliency scheme, what fingerprints it, how it is placed and made to fail.
Validated YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from hcilib.model import yaml_models as form
from hcilib.model.metrics import meant
from hcilib.model.places import SYSTEMS, at_home
from hcilib.model.schemes import parse_scheme
from hcilib.model.yaml_models import Model, TestbedError, digest, load

Place = Literal["node", "nodes", "vm", "vms", "controller"]
ANY_TESTBEDS: tuple[str, ...] = get_args(Place)
"""Where a command can run on every testbed."""


class Command(Model):
    """A command and where it runs."""

    on: Place = "node"
    run: form.Shell


class Check(Command):
    """`expect`: a regular expression that is found in what `run` prints where it is so, and nowhere else."""

    expect: form.Regex


class Placement(Model):
    """How a VM is seen, and made, to run on the node that owns its data, or on another.

    In every command ``{vm}`` stands for the VM, ``{node}`` for its node and ``{other}`` for the node after that one;
    such a command is run once a VM: `on: nodes` on the VM's own node, `on: vms` on the VM, `on: node` on the first
    node.
    """

    check: Check
    owner: Command | None = None
    non_owner: Command | None = None
    restore: Command | None = None


class Action(Command):
    """A failure that can be brought about, or taken back. `undo` names the action that takes this one back."""

    undo: form.ActionName | None = None


class Failures(Model):
    """What can be done to the system while it is measured (a plan's events), and how it is seen to be whole again.

    `whole.expect` must be found in what `whole.run` prints on every host it runs on.
    """

    actions: dict[form.ActionName, Action]
    whole: Check

    @model_validator(mode="after")
    def _undone_by_a_known_one(self):
        for name, action in self.actions.items():
            if action.undo and action.undo not in self.actions:
                raise ValueError(f"actions.{name}.undo: {action.undo!r} is not among actions {sorted(self.actions)}")
        return self


class Setting(Model):
    """A setting of the system that a campaign can compare with the system as it is: applied, seen to be applied,
    undone.

    The commands run once on each of their hosts (or for each VM, as in `Placement`). `check.expect` must be found in
    what `check.run` prints on every host it runs on, once `apply` has run.
    """

    apply: Command
    check: Check
    undo: Command


class Percentage(Check):
    """How a store says what it saves, or how full it is: the first group of `expect` is the percentage, on each
    host."""

    @model_validator(mode="after")
    def _has_a_group(self):
        if re.compile(self.expect).groups < 1:
            raise ValueError("expect: no group: put the percentage in brackets, as in ([0-9.]+) %")
        return self


_listed = lambda given: (given,) if isinstance(given, str) else given  # noqa: E731


class Health(Model):
    """How a system is asked whether it is healthy: `expect` is found in what `run` prints on every host it runs on.

    `on` : places as in `Command`, and names of hosts; one or a list. `run` only reads: it is run before and after each
    run of fio.
    """

    on: Annotated[tuple[form.Name, ...], BeforeValidator(_listed), Field(min_length=1)] = ("nodes",)
    run: form.Shell
    expect: form.Regex


class DriveModel(Model):
    model: form.Line
    bytes: form.Bytes | None = None


DECLARED = ("price", "currency", "years", "rack_units", "watts")
"""Fields of a system that are declared and never measured: they are no part of its identity."""


class Look(Model):
    """How figures draw a system: a colour as #RRGGBB, a mark of matplotlib, and a line."""

    colour: form.Colour
    mark: Literal["o", "s", "D", "^", "v", "P", "X", "<", ">", "h"]
    line: Literal["solid", "dashed", "dotted", "dashdot"] = "solid"


class VmSet(Model):
    """The VMs an article describes: provenance, not a testbed."""

    count: int | None = None
    disks: int | None = None
    disk_bytes: form.Bytes | None = None
    placement: form.Line | None = None


class System(Model):
    """A storage product in one configuration. `scheme` is text that hcilib.model.schemes.parse_scheme reads.

    `cache_bytes`: what a node keeps of its data in memory (ARC, BlueStore's cache) or on a cache drive.
    `disks`: serials of the testbed that are this system's, as patterns (``lab-a-*``), where several systems share a
    testbed. `savings`: what its store saves by deduplication, read after every run. `pool_fill`: how full its pool is,
    read before the first run and after the last; of several that `expect` finds the fullest. `settings`: what a
    campaign may compare with the system as it is (`with_setting`); `setting`: the one it is measured with.
    `osd_counters`: how Ceph's OSDs are asked for their counters (`perf dump`), before and after each run; never during
    it. `stated`: settings that the system was made with, as `hci.stated_settings` asks for them and never changes them.
    `health`: how it is asked whether it is healthy; a run that was degraded without a planned event does not count.
    `redirected`: a regular expression that is found in what placement.check says of a VM whose I/O goes through another
    node's file system. `look`: how figures draw it, no part of its identity.
    """

    name: form.Name
    label: form.Line
    short: form.Line | None = None
    source: form.Line | None = None
    scheme: form.Line | None = None
    nodes: int | None = None
    drives_per_node: int | None = None
    drive: DriveModel | None = None
    transport: form.Line | None = None
    working_set_bytes: form.Bytes | None = None
    cache_bytes: form.Bytes | None = None
    vms: VmSet | None = None
    versions: dict[form.Line, form.Line] = Field(default_factory=dict)
    tuning: tuple[form.Prose, ...] = ()
    fingerprint: tuple[Command, ...] = ()
    prepare: tuple[Command, ...] = ()
    placement: Placement | None = None
    failures: Failures | None = None
    disks: tuple[form.SerialPattern, ...] = ()
    settings: dict[form.ActionName, Setting] = Field(default_factory=dict)
    setting: form.ActionName | None = None
    stated: dict[form.ActionName, Check] = Field(default_factory=dict)
    savings: Percentage | None = None
    pool_fill: Percentage | None = None
    redirected: form.Regex | None = None
    health: Health | None = None
    osd_counters: Command | None = None
    price: form.Amount | None = None
    currency: form.Currency | None = None
    years: form.Amount | None = None
    rack_units: form.Amount | None = None
    watts: form.Amount | None = None
    look: Look | None = None
    notes: form.Prose | None = None

    @model_validator(mode="after")
    def _price_has_a_currency(self):
        if self.price and not self.currency:
            raise ValueError("field currency: missing beside price. Add it, such as currency: EUR")
        return self

    @property
    def digest(self) -> str:
        """Identity by content; of a field that came with a later version only where it says something.

        What is only declared or asked for is left out: a campaign goes on when a price changes.
        """
        later = ["placement", "failures", "disks", "settings", "setting", "cache_bytes"]
        later += ["savings", "pool_fill", "redirected", "health"]
        unset = (name for name in later if not getattr(self, name))
        return digest(self.model_dump(exclude={*DECLARED, "look", "stated", "osd_counters", *unset}))

    def to_dict(self) -> dict:
        """Return what plan.json holds of it."""
        unset = (name for name in ("health", "stated", "osd_counters") if not getattr(self, name))
        return self.model_dump(mode="json", exclude={*DECLARED, "look", *unset})

    @property
    def variant(self) -> str:
        """What it is called in results: its name, with the setting it is measured with in brackets."""
        return f"{self.name} [{self.setting}]" if self.setting else self.name

    def with_setting(self, name: str | None) -> System:
        """The same system measured with one of its settings; None: as it is. ValueError where its file has no such
        setting."""
        if name is not None and name not in self.settings:
            known = f"it has {', '.join(self.settings)}" if self.settings else "its file has no field settings"
            raise ValueError(f"system {self.name} has no setting {name!r}: {known}")
        return self.model_copy(update={"setting": name})

    def __repr__(self) -> str:
        drives = f"{self.nodes} nodes with {self.drives_per_node} drives each"
        facts = (self.label, self.scheme, drives if self.nodes and self.drives_per_node else None, self.transport)
        return f"System({self.name!r}: {'; '.join(fact for fact in facts if fact)})"

    __str__ = __repr__

    @property
    def raw_bytes(self) -> float:
        """Bytes of all drives of all nodes; NaN where the file does not say enough."""
        if not (self.nodes and self.drives_per_node and self.drive and self.drive.bytes):
            return float("nan")
        return float(self.nodes * self.drives_per_node * self.drive.bytes)


def digest_of(systems: Iterable[System]) -> str:
    """Return the identity of the systems of a campaign: of one its own, of several that of all, in no order."""
    digests = [system.digest for system in sorted(systems, key=lambda system: system.variant)]
    return digests[0] if len(digests) == 1 else digest(digests)


def under_test(systems: System | Sequence[System], settings: Sequence[str | None] | None = None) -> tuple[System, ...]:
    """Every system as it is to be measured, with each of `settings` where these are given; ValueError where two are
    one."""
    given = (systems,) if isinstance(systems, System) else tuple(systems)
    every = given if settings is None else tuple(s.with_setting(name) for s in given for name in settings)
    if not every:
        raise ValueError("no system was named: give one, or several that coexist on the testbed")
    names = [system.variant for system in every]
    for twice in (name for name in names if names.count(name) > 1):
        raise ValueError(f"system {twice} is given twice: what is compared needs names of its own")
    return every


def load_system(path: str | Path) -> System:
    """A validated system from YAML; raises like :func:`load_testbed`, and for a scheme that is none.

    Examples
    --------
    >>> hci.load_system("params/systems/ceph-pve.yaml")
    System('ceph-pve': Ceph, replica 2, 2 OSDs per NVMe drive (Proxmox); Mirror(2); 2 nodes with 5 drives each)
    """
    system = load(path, System)
    if system.setting is not None:
        raise TestbedError(f"{path}: field setting: a campaign chooses one of settings; remove it")
    if system.scheme is not None:  # not when it is judged: a campaign of hours may lie between
        try:
            parse_scheme(system.scheme)
        except ValueError as error:
            raise TestbedError(f"{path}: field scheme: {error}") from None
    return system


def load_systems(folder: str | Path = SYSTEMS) -> dict[str, System]:
    """Name -> system of every YAML file of a folder; raises like :func:`load_testbed`, and where two have one name."""
    systems: dict[str, System] = {}
    files: dict[str, Path] = {}
    for file in sorted(at_home(folder).glob("*.yaml")):
        state = file.stat() if file.is_file() else None
        system = _load_system(file, state.st_mtime_ns, state.st_size) if state else load_system(file)
        if system.name in systems:
            raise TestbedError(f"{file}: field name: {system.name!r} is that of {files[system.name]} already")
        systems[system.name], files[system.name] = system, file
    return systems


@lru_cache(maxsize=256)
def _load_system(path: Path, mtime_ns: int, size: int) -> System:
    """Load a system once while its file has not changed: a notebook asks for all of them several times."""
    return load_system(path)


def systems_of(names: Iterable[str], files: Sequence[str | Path] = ()) -> dict[str, System]:
    """Name -> system of those that results name, and of those whose files are named; files go before params/systems.

    Raises
    ------
    TestbedError : a name that no file has, and as :func:`load_testbed`

    Examples
    --------
    >>> list(hci.systems_of(["ceph-pve"], ["params/systems/box-drbd.yaml"]))
    ['box-drbd', 'ceph-pve']
    """
    own = {system.name: system for system in map(load_system, files)}
    known = load_systems() | own
    wanted = dict.fromkeys([*own, *names])
    for name in (name for name in wanted if name.partition(" [")[0] not in known):
        todo = f"{meant(name, known)}name it in systems"
        raise TestbedError(f"system {name!r}: no file in {SYSTEMS.name}/ has this name; {todo}")
    return {name: known[name.partition(" [")[0]] for name in wanted}


def short_labels(folder: str | Path = SYSTEMS) -> dict[str, str]:
    """System name -> the short label by which figures and tables call it, for every system file of a folder.

    By default of params/systems, which tables and figures know by themselves.

    Examples
    --------
    >>> hci.short_labels("params/systems")["drbd-tcp-pve"]
    'Linstor/DRBD TCP'
    """
    return {name: system.short or system.label for name, system in load_systems(folder).items()}


@lru_cache(maxsize=1)
def known_systems() -> Mapping[str, System]:
    """Return the systems of params/systems, read once; none where a file there is broken, which who loads it says."""
    try:
        return MappingProxyType(load_systems())
    except TestbedError:
        return MappingProxyType({})


@lru_cache(maxsize=1)
def known_labels() -> Mapping[str, str]:
    """Return the short labels of the known systems."""
    return MappingProxyType({name: system.short or system.label for name, system in known_systems().items()})
