"""Tenants of a sweep: groups of VMs that each do something of their own, at once. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainValidator, model_validator

from hcilib.model.patterns import Pattern, PlanError
from hcilib.model.workload import Cell, Load
from hcilib.model.yaml_models import Form, Model, Whole, named

PROFILES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # VMFleet 2, profile SQL (microsoft/diskspd, Frameworks/VMFleet/Profile.psm1): pages of 8 KiB, 30 % of them written,
    # 95 % of I/O on 5 % of the file, 32 outstanding; a log of 32 KiB written in sequence, one at a time, each made
    # stable
    "oltp": {"8k-randrw70-zoned95on5": {"iodepth": 32}, "32k-write-sync": {"iodepth": 1}},
    # VMFleet 2, profile VDI (the same file): reads of 8 KiB, 80 % of them random, 95 % of I/O on 5 % of the file;
    # writes of 32 KiB, 80 % of them in sequence. Here the reads are all random, the writes all in sequence
    "vdi": {"8k-randread-zoned95on5": {"iodepth": 8}, "32k-write": {"iodepth": 8}},
    # Veeam KB 2014: blocks of 1 MB (storage optimization Local) are read from production in sequence; a few at a time
    "backup": {"1m-read": {"iodepth": 4}},
}
"""Ready tenants, by the name that a sweep gives as ``profile``: what each does on each of its VMs, pattern -> its
load."""


Cap = Annotated[str, Form("MiB/s or I/Os a second of a VM, such as 64m or 500iops", r"[1-9]\d{0,8}(m|iops)")]


class OfPattern(Model):
    """The load of one pattern, where it is not the one of all."""

    iodepth: Whole | None = None
    numjobs: Whole | None = None
    offered: Annotated[str, Form("I/Os a second of all its VMs, such as 500iops", r"[1-9]\d{0,11}iops")] | None = None


def _vms(given: Any) -> tuple[int, tuple[str, ...]]:
    """Return how many VMs, and which where that is said."""
    if isinstance(given, list | tuple) and given and all(isinstance(vm, str) for vm in given):
        if twice := [vm for vm in given if list(given).count(vm) > 1]:
            raise ValueError(f"VM {twice[0]} is named twice")
        return len(given), tuple(given)
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ValueError("expected how many, or a list of the names of VMs")
    return given, ()


class Tenant(OfPattern):
    """One group of VMs. `limit`: a cap of each VM that it has in one further cell."""

    profile: Literal["oltp", "vdi", "backup"] | None = None
    patterns: Annotated[tuple[tuple[str, OfPattern], ...], BeforeValidator(named)] = ()
    vms: Annotated[tuple[int, tuple[str, ...]], PlainValidator(_vms)] = (1, ())
    limit: Cap | None = None

    @model_validator(mode="after")
    def _does_one_thing(self) -> Tenant:
        if bool(self.profile) == bool(self.patterns):
            raise ValueError(f"expected one of profile ({', '.join(PROFILES)}) and patterns")
        of_one = ("offered", "limit", *(("iodepth", "numjobs") if self.profile else ()))
        for field in (field for field in of_one if getattr(self, field) and len(self.does) > 1):
            todo = "name the patterns yourself, and say it of one of them, or make two tenants of it"
            raise ValueError(f"{field} is given for {len(self.does)} patterns: {todo}")
        return self

    @property
    def does(self) -> dict[str, dict[str, Any]]:
        """Return pattern -> what is said of its load: in a profile the tenant's own words count more, else the
        pattern's."""
        of_all = {field: getattr(self, field) for field in OfPattern.model_fields if getattr(self, field)}
        if self.profile:
            return {pattern: {**own, **of_all} for pattern, own in PROFILES[self.profile].items()}
        return {pattern: of_all | own.model_dump(exclude_none=True) for pattern, own in self.patterns}

    def loads(self, name: str, offered_iodepth: int) -> tuple[Load, ...]:
        """Return a load for each pattern, all on the same VMs."""
        count, names = self.vms
        found = []
        for pattern, own in self.does.items():
            demand = own.pop("offered", "")
            whole = {"iodepth": offered_iodepth if demand else 32, "numjobs": 1} | own
            cell = Cell(Pattern.parse(pattern), **whole, vms=count, demand=demand)
            if demand and cell.pattern.capped:
                raise PlanError(f"tenant {name!r}: {pattern!r} has a cap: offer a demand or cap the rate, not both")
            found.append(Load(name, cell, names, ""))
        return tuple(found)

    def limited(self, loads: tuple[Load, ...]) -> tuple[Load, ...]:
        """Return the loads with the limit, where there is one."""
        if not self.limit:
            return loads
        [load] = loads
        cell = load.cell
        if cell.demand or cell.pattern.capped:
            what = f"limit {self.limit!r}, but its load is offered or capped already: leave it out"
            raise PlanError(f"tenant {load.tenant!r}: {what}")
        capped = Pattern.parse(f"{cell.pattern.name}-rate{self.limit}")
        own = Cell(capped, cell.numjobs, cell.iodepth, cell.vms)
        return (Load(load.tenant, own, load.vms, f"rate{self.limit}"),)


def tenant_cells(tenants: Mapping[str, Tenant], offered_iodepth: int) -> list[Cell]:
    """Return each tenant alone, all together, and together with the limits that any of them has.

    Raises
    ------
    PlanError : fewer than two tenants; VMs that two tenants share, by name
    """
    if len(tenants) < 2:
        raise PlanError(f"tenants: expected at least two, not {len(tenants)}, e.g. {{database: oltp, backup: backup}}")
    loads = {name: one.loads(name, offered_iodepth) for name, one in tenants.items()}
    of: dict[str, str] = {}
    for name, vm in ((name, vm) for name, own in loads.items() for vm in own[0].vms):
        if (other := of.setdefault(vm, name)) != name:
            raise PlanError(f"tenants {other!r} and {name!r} share VM {vm}: give each VMs and disks of its own")
    limited = [tenants[name].limited(own) for name, own in loads.items()]
    together = [_cell(loads.values()), _cell(limited)]
    return [*(_cell([own]) for own in loads.values()), *dict.fromkeys(together)]


def _cell(together: Iterable[tuple[Load, ...]]) -> Cell:
    """Return all at once as one cell: what stands for their patterns is one that writes, if any does."""
    loads = tuple(load for own in together for load in own)
    face = next((load.cell for load in loads if load.cell.pattern.writes), loads[0].cell)
    jobs: Counter[str] = Counter()
    for load in loads:
        jobs[load.tenant] += load.cell.numjobs
    vms = sum({load.tenant: load.cell.vms for load in loads}.values())
    return Cell(face.pattern, max(jobs.values()), max(load.cell.iodepth for load in loads), vms, tenants=loads)
