"""Several tenants at once: groups of VMs that each do something of their own, and ready profiles of what they do. No
I/O."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from hcilib.workload import Cell, Load, Pattern, PlanError


@dataclass(frozen=True)
class Profile:
    """What a kind of tenant does on each of its VMs: pattern -> its load; and who says so."""

    patterns: Mapping[str, Mapping[str, Any]]
    source: str


PROFILES = {
    "oltp": Profile(
        {"8k-randrw70-zoned95on5": {"iodepth": 32}, "32k-write-sync": {"iodepth": 1}},
        "VMFleet 2, profile SQL (microsoft/diskspd, Frameworks/VMFleet/Profile.psm1): pages of 8 KiB, 30 % of them "
        "written, 95 % of "
        "I/O on 5 % of the file, 32 outstanding; a log of 32 KiB written in sequence, one at a time, each made stable",
    ),
    "vdi": Profile(
        {"8k-randread-zoned95on5": {"iodepth": 8}, "32k-write": {"iodepth": 8}},
        "VMFleet 2, profile VDI (the same file): reads of 8 KiB, 80 % of them random, 95 % of I/O on 5 % of the "
        "file; writes of 32 KiB, "
        "80 % of them in sequence. Here the reads are all random, the writes all in sequence",
    ),
    "backup": Profile(
        {"1m-read": {"iodepth": 4}},
        "Veeam KB 2014: blocks of 1 MB (storage optimization Local) are read from production in sequence; a few at "
        "a time",
    ),
}
"""Ready tenants, by the name that a sweep gives as ``profile``."""
_FIELDS = ("profile", "patterns", "iodepth", "numjobs", "vms", "offered", "limit")
_OF_PATTERN = ("iodepth", "numjobs", "offered")


def tenant_cells(tenants: Mapping[str, Mapping[str, Any] | str], offered_iodepth: int = 256) -> list[Cell]:
    """Each tenant alone, all of them together, and together once more with the limits that any of them has.

    Parameters
    ----------
    tenants : name -> a profile's name, or a mapping with `profile` or `patterns` (names, or name -> iodepth, numjobs,
        offered), `vms` (how many, or their names), `iodepth`, `numjobs`, `offered` (``"500iops"``, of all its VMs)
        and `limit` (``"64m"`` or ``"500iops"``, of each VM, in the third cell alone)

    Raises
    ------
    PlanError : fewer than two tenants; a field, profile or pattern that is not known; VMs that two tenants share, by
    name
    """
    if not isinstance(tenants, Mapping) or len(tenants) < 2:
        raise PlanError(
            f"tenants is {tenants!r}: expected at least two, e.g. "
            f"{{database: {{profile: oltp}}, backup: {{profile: backup}}}}"
        )
    loads, limited = {}, {}
    for name, given in tenants.items():
        fields = {"profile": given} if isinstance(given, str) else given
        if "-rate" in str(name) or not isinstance(fields, Mapping):
            raise PlanError(
                f"tenant {name!r} is {given!r}: expected a profile's name or a mapping of {', '.join(_FIELDS)}"
            )
        loads[name] = _loads(name, fields, offered_iodepth)
        limited[name] = _limited(name, loads[name], fields["limit"]) if fields.get("limit") else loads[name]
    _refuse_shared(loads)
    together = [_cell(loads.values())]
    if limited != loads:
        together.append(_cell(limited.values()))
    return [*(_cell([own]) for own in loads.values()), *together]


def _loads(name: str, fields: Mapping[str, Any], offered_iodepth: int) -> tuple[Load, ...]:
    """What one tenant does: a load for each of its patterns, all on the same VMs."""
    if unknown := [field for field in fields if field not in _FIELDS]:
        near = difflib.get_close_matches(unknown[0], _FIELDS, 1)
        raise PlanError(
            f"tenant {name!r} has no {unknown[0]!r}"
            + (f": did you mean {near[0]}?" if near else f"; it has {', '.join(_FIELDS)}")
        )
    count, on = _vms(name, fields.get("vms", 1))
    patterns = _patterns(name, fields)
    of_one = ("offered", "limit", *(("iodepth", "numjobs") if fields.get("profile") else ()))
    for field in (field for field in of_one if fields.get(field) and len(patterns) > 1):
        raise PlanError(
            f"tenant {name!r}: {field} {fields[field]!r} is given for {len(patterns)} patterns, {', '.join(patterns)}: "
            "name the patterns yourself, and say it of one of them, or make two tenants of it"
        )
    found = []
    for pattern, own in patterns.items():
        whole = {key: fields[key] for key in _OF_PATTERN if fields.get(key)}
        own = dict(own or {}) | whole if fields.get("profile") else whole | dict(own or {})
        if wrong := [key for key in own if key not in _OF_PATTERN]:
            raise PlanError(
                f"tenant {name!r}, pattern {pattern!r}: unknown field {wrong[0]!r}; expected {', '.join(_OF_PATTERN)}"
            )
        demand = _demand(name, own.get("offered", ""))
        depth = own.get("iodepth", offered_iodepth if demand else 32)
        jobs = own.get("numjobs", 1)
        for what, value in (("iodepth", depth), ("numjobs", jobs)):
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise PlanError(
                    f"tenant {name!r}, pattern {pattern!r}: {what} is {value!r}: expected a whole number of at least 1"
                )
        cell = Cell(Pattern.parse(pattern), int(jobs), int(depth), count, demand=demand)
        if demand and cell.pattern.capped:
            raise PlanError(
                f"tenant {name!r}: pattern {pattern!r} has a cap of its own: offer a demand or cap the rate, not both"
            )
        found.append(Load(name, cell, on))
    return tuple(found)


def _patterns(name: str, fields: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    if bool(fields.get("profile")) == bool(fields.get("patterns")):
        raise PlanError(f"tenant {name!r}: expected one of profile ({', '.join(PROFILES)}) and patterns")
    if profile := fields.get("profile"):
        if profile not in PROFILES:
            near = difflib.get_close_matches(str(profile), PROFILES, 1)
            meant = f": did you mean {near[0]}?" if near else f"; there are {', '.join(PROFILES)}"
            raise PlanError(f"tenant {name!r}: there is no profile {profile!r}{meant}")
        return PROFILES[profile].patterns
    given = fields["patterns"]
    if isinstance(given, str):
        return {given: {}}
    return given if isinstance(given, Mapping) else {pattern: {} for pattern in given}


def _vms(name: str, given: Any) -> tuple[int, tuple[str, ...]]:
    """How many VMs, and which where that is said."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 1:
        return int(given), ()
    if (
        isinstance(given, Sequence)
        and not isinstance(given, str)
        and given
        and all(isinstance(vm, str) for vm in given)
    ):
        if twice := [vm for vm in given if list(given).count(vm) > 1]:
            raise PlanError(f"tenant {name!r} names VM {twice[0]} twice")
        return len(given), tuple(given)
    raise PlanError(
        f"tenant {name!r}: vms is {given!r}: expected how many, or a list of the names of the testbed's VMs"
    )


def _demand(name: str, given: Any) -> str:
    if given in ("", None):
        return ""
    if isinstance(given, Real) or not str(given).endswith("iops"):
        raise PlanError(f"tenant {name!r}: offered {given!r}: expected I/Os a second of all its VMs, such as 500iops")
    return str(given)


def _limited(name: str, loads: tuple[Load, ...], limit: Any) -> tuple[Load, ...]:
    [load] = loads
    pattern = load.cell.pattern
    if load.cell.demand or pattern.capped:
        raise PlanError(
            f"tenant {name!r}: limit {limit!r}, but its load is offered or capped already: a limit is for what is not"
        )
    cell = Cell(Pattern.parse(f"{pattern.name}-rate{limit}"), load.cell.numjobs, load.cell.iodepth, load.cell.vms)
    return (Load(name, cell, load.vms, limit=f"rate{limit}"),)


def _refuse_shared(loads: Mapping[str, tuple[Load, ...]]) -> None:
    of: dict[str, str] = {}
    for name, own in loads.items():
        for vm in own[0].vms:
            if vm in of:
                raise PlanError(
                    f"tenants {of[vm]!r} and {name!r} share VM {vm}: give each VMs, and with them disks, of its own"
                )
            of[vm] = name


def _cell(together: Iterable[tuple[Load, ...]]) -> Cell:
    """All at once as one cell: the patterns of every tenant; what stands for them is one that writes, where one
    does."""
    loads = tuple(load for own in together for load in own)
    face = next((load.cell for load in loads if load.cell.pattern.writes), loads[0].cell)
    jobs = {
        name: sum(load.cell.numjobs for load in loads if load.tenant == name)
        for name in (load.tenant for load in loads)
    }
    vms = {load.tenant: load.cell.vms for load in loads}
    return Cell(
        face.pattern, max(jobs.values()), max(load.cell.iodepth for load in loads), sum(vms.values()), tenants=loads
    )
