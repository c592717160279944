"""The storage system under test: its resiliency scheme, what it is asked and how it is changed. Validated YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from hcilib.model import yaml_models as form
from hcilib.model.metrics import meant
from hcilib.model.places import SYSTEMS, at_home, while_unchanged
from hcilib.model.schemes import parse_scheme
from hcilib.model.yaml_models import Model, TestbedError, digest, load

When = Literal["plan", "start", "before", "after", "end"]
GROUPS = ("node", "nodes", "vm", "vms", "controller")
"""Where a command can run on every testbed."""
TIMES: dict[str, tuple[str, ...]] = {
    "health": ("before", "after"),
    "whole": ("before", "after"),
    "placement": ("before",),
    "redirected": ("before",),
    "osd-counters": ("before", "after"),
    "savings": ("after",),
    "pool-fill": ("start", "end"),
}
"""Name of a check that measuring uses -> when it is asked. Of any other the answer is shown or kept."""
OTHER_TIMES = ("plan", "start")
PERCENTAGES, COUNTERS = ("savings", "pool-fill"), "osd-counters"
OWNER, UNDO = "owner", "undo-"

_listed = lambda given: (given,) if isinstance(given, str) else given  # noqa: E731


class Command(Model):
    """A command and where it runs: `on` has groups of hosts (`GROUPS`), names of hosts, or both.

    In every command ``{vm}`` stands for the VM, ``{node}`` for its node and ``{other}`` for the node after that one.
    Such a command is run once a VM: `on: nodes` on the VM's own node, `on: vms` on the VM, `on: node` on the first
    node.
    """

    on: Annotated[tuple[form.Name, ...], BeforeValidator(_listed), Field(min_length=1)] = ("nodes",)
    run: form.Shell


class Check(Command):
    """A question that changes nothing.

    `expect`: a regular expression that is found in what `run` prints where it is so, and nowhere else. Of a percentage
    its first group is the number. Without it the answer is good where `run` succeeds. `when`: as in `TIMES`; of any
    other name `plan` shows the answer beside what is expected, and `start` keeps it in the facts. By default what
    expects something is asked with the plan.
    """

    expect: form.Regex | None = None
    when: Annotated[tuple[When, ...], BeforeValidator(_listed)] = ()


class Change(Model):
    """What can be done to the system: a setting, a placement of its VMs or a failure.

    `check` finds on every host what it expects once `do` has run; `undo` takes it back. A setting that campaigns
    compare has both. `owner` and `non-owner` move VMs, as checks.placement sees it. The events of a plan name any
    change, and `undo-` before its name takes it back.
    """

    do: Command
    check: Check | None = None
    undo: Command | None = None


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
    testbed. `prepare`: commands that tune its hosts. `checks`: what it is asked, by name. `health` tells that it is
    not degraded, `whole` that a failure is over, `placement` that a VM runs on the node that owns its data,
    `redirected` that its I/O goes through another node. `savings` and `pool-fill` are percentages, and `osd-counters`
    is Ceph's `perf dump`. `changes`: what can be done to it, by name. `setting`: the change it is measured with.
    `look`: how figures draw it, no part of its identity.
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
    disks: tuple[form.SerialPattern, ...] = ()
    prepare: tuple[Command, ...] = ()
    checks: dict[form.ActionName, Check] = Field(default_factory=dict)
    changes: dict[form.ActionName, Change] = Field(default_factory=dict)
    setting: form.ActionName | None = None
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

    @model_validator(mode="after")
    def _asks_what_is_used(self):
        for name, check in self.checks.items():
            times, groups = TIMES.get(name, OTHER_TIMES), re.compile(check.expect or "").groups
            if not set(check.when) <= set(times):
                raise ValueError(f"field checks.{name}.when: expected {' or '.join(times)}")
            if name in TIMES and not (groups if name in PERCENTAGES else check.expect or name == COUNTERS):
                good = "missing. Add what is found in a good answer, of a percentage in brackets: ([0-9.]+) %"
                raise ValueError(f"field checks.{name}.expect: {good}")
        return self

    def asked(self, when: When) -> dict[str, Check]:
        """Return the checks of one time, by name."""
        default = lambda name: ("plan",) if self.checks[name].expect else ("start",)  # noqa: E731
        return {n: c for n, c in self.checks.items() if when in (c.when or TIMES.get(n) or default(n))}

    @property
    def settings(self) -> dict[str, Check]:
        """Return the checks of the changes that a campaign can compare with the system as it is."""
        return {name: change.check for name, change in self.changes.items() if change.check and change.undo}

    @property
    def actions(self) -> dict[str, Command]:
        """Return what the events of a plan may name, and the command of each."""
        undone = {f"{UNDO}{name}": change.undo for name, change in self.changes.items() if change.undo}
        return {name: change.do for name, change in self.changes.items()} | undone

    @property
    def digest(self) -> str:
        """Identity by content, without what is only declared, or asked with the plan: a campaign goes on when a price
        changes."""
        kept_out = dict.fromkeys((*DECLARED, "look"), True)
        return digest(self.model_dump(exclude={**kept_out, "checks": set(self.asked("plan"))}))

    def to_dict(self) -> dict:
        """Return what plan.json holds of it."""
        return self.model_dump(mode="json", exclude={*DECLARED, "look"})

    @property
    def variant(self) -> str:
        """What it is called in results: its name, with the setting it is measured with in brackets."""
        return f"{self.name} [{self.setting}]" if self.setting else self.name

    def with_setting(self, name: str | None) -> System:
        """The same system measured with one of its settings; None: as it is. ValueError where its file has no such
        setting."""
        if name is not None and name not in self.settings:
            none = "none of the changes in its file has a check and an undo"
            known = f"it has {', '.join(self.settings)}" if self.settings else none
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
    """Return one checksum for the systems of a campaign, whatever their order. Of one system it is its own digest."""
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
    """Read and check a system's file.

    Parameters
    ----------
    path : of the YAML file

    Returns
    -------
    System

    Raises
    ------
    TestbedError : names the file and the field; also for a scheme that is none

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


_load_system = while_unchanged(load_system)  # a notebook asks for all of them several times


def load_systems(folder: str | Path = SYSTEMS) -> dict[str, System]:
    """Read and check every system's file of a folder.

    Parameters
    ----------
    folder : of YAML files

    Returns
    -------
    dict : name -> system

    Raises
    ------
    TestbedError : as `load_system`, and where two have one name

    Examples
    --------
    >>> hci.load_systems()["drbd-tcp-pve"].nodes
    2
    """
    systems: dict[str, System] = {}
    files: dict[str, Path] = {}
    for file in sorted(at_home(folder).glob("*.yaml")):
        system = _load_system(file) if file.is_file() else load_system(file)
        if system.name in systems:
            raise TestbedError(f"{file}: field name: {system.name!r} is that of {files[system.name]} already")
        systems[system.name], files[system.name] = system, file
    return systems


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
