"""What speaks against a plan before any host is asked. objections.csv lists every code.

A fatal objection stops a campaign. The others are legal and probably unintended.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcilib.model.patterns import PlanError
from hcilib.model.plan import Plan, is_never_asked
from hcilib.model.schemes import Tiers, parse_scheme
from hcilib.model.system import GROUPS, Command, System
from hcilib.model.testbed import Disk, Testbed, identity
from hcilib.model.workload import SPREAD

if TYPE_CHECKING:  # planning loads no pandas
    import pandas as pd

STEADY_S = 300.0
"""A shorter run that writes without a warm-up measures the drive's cache and its first minutes."""
TIER_FULL = 0.85
"""Of a mirror tier: ReFS moves data out of it from this share on."""
ONE_AT_A_TIME = ("psync", "sync", "pvsync2")
COLUMNS = ("code", "about", "detail", "fatal")
GIB = 2**30
Found = tuple[str, str, str]
"""Code, about and detail."""
Actions = Mapping[str, Collection[str]]


def objections(
    plan: Plan,
    testbed: Testbed | None = None,
    systems: System | Sequence[System] = (),
    actions: Actions | None = None,
) -> pd.DataFrame:
    """List what speaks against a plan. No host is asked.

    Parameters
    ----------
    testbed : its VMs and disks are compared with the plan's jobs and span
    systems : their files are compared with the plan and the testbed
    actions : name of a system in results -> the events that can be done to it. By default those of
        its file; what an embedded testbed can do, it alone knows

    Returns
    -------
    DataFrame
        One row an objection: code, about (name of the system or testbed, or ``plan``), detail (the
        finding and the remedy), fatal (a campaign is refused). hcilib/model/objections.csv lists
        the codes.

    Examples
    --------
    >>> plan = hci.sweep(["4k-randread"], vms=2, span_bytes="200 GiB")
    >>> from hcilib.model.system import System
    >>> narrow = System(name="a", label="a", scheme="Raid6(9)", nodes=2, drives_per_node=8)
    >>> hci.objections(plan, systems=narrow)[["code", "about", "fatal"]]
                code about  fatal
    0  scheme-drives     a  False
    """
    import pandas as pd

    return pd.DataFrame(_rows(plan, testbed, systems, actions), columns=COLUMNS)


def require(plan: Plan, *of: Any) -> None:
    """Raise PlanError, which lists every fatal objection; asked as `objections`."""
    if fatal := [detail for _, _, detail, is_fatal in _rows(plan, *of) if is_fatal]:
        raise PlanError(" ".join(fatal))


@cache
def _fatal() -> frozenset[str]:
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        return frozenset(row["code"] for row in csv.DictReader(file) if row["fatal"])


def _rows(
    plan: Plan,
    testbed: Testbed | None = None,
    systems: System | Sequence[System] = (),
    actions: Actions | None = None,
) -> list[tuple[str, str, str, bool]]:
    bed = testbed if testbed and testbed.vms else None
    found = [*_of_plan(plan, bool(bed and bed.lab_root))]
    every: Sequence[System | None] = [systems] if isinstance(systems, System) else systems
    for system in every or [None]:
        own = bed.of_system(system.name) if bed and system else bed
        disks = own.targets(min(plan.vms, len(own.vms)), plan.numjobs) if own else []
        found += _of_testbed(plan, own, disks) if own else ()
        found += _of_system(plan, system, own, [disk for _, disk in disks]) if system else ()
        found += _on_testbed(plan, system, own, actions) if system and own else ()
    unique = dict.fromkeys(found)  # two settings of a system have the same
    return [(code, about, detail, code in _fatal()) for code, about, detail in unique]


def _of_plan(plan: Plan, is_lab: bool) -> Iterator[Found]:
    patterns = {part.pattern for step in plan.steps for part in step.cell.parts}
    writing = _few(pattern.name for pattern in patterns if pattern.writes)
    because = {
        "a prefill writes; set prefill: false, and refill: false": "prefill" in {step.kind for step in plan.steps},
        f"{writing} writes; leave it out, or leave out readonly": writing,
        "events may write; leave them out": any(step.cell.events for step in plan.steps),
    }
    for why in (why for why, holds in because.items() if holds and plan.readonly):
        yield "readonly-writes", "plan", f"readonly: {why}."
    measured = [step for step in plan.steps if step.kind == "measure"]
    ramped = [step for step in measured if 0 < step.runtime_s < step.ramp_s]
    if ramped:
        short = min(ramped, key=lambda step: step.runtime_s)
        runs = f"Runs of {_few(step.cell.pattern.name for step in ramped)} take {short.runtime_s:g} s"
        yield "short-runs", "plan", f"{runs}, less than their ramp_s of {short.ramp_s:g} s. Set longer runs."
    warm = {step.cell.pattern.bs_bytes for step in plan.steps if step.kind == "warmup"}
    brief = [(step.cell.pattern, step.runtime_s) for step in measured if step.duration_s < STEADY_S]
    cold = {p.name: lasts for p, lasts in brief if p.writes and p.bs_bytes not in warm}
    if cold and not is_lab:
        runs = f"Runs of {_few(cold)} take only {min(cold.values()):g} s and have no warm-up"
        faster = "New flash writes faster at first"
        yield "cold-writes", "plan", f"{runs}. {faster}. Set warmup_s, or longer runs."


def _few(names: Iterable[str]) -> str:
    every = sorted(set(names))
    return ", ".join(every if len(every) <= 4 else [*every[:3], f"{len(every) - 3} more"])


def _of_testbed(plan: Plan, bed: Testbed, disks: Sequence[tuple[str, Disk]]) -> Iterator[Found]:
    where, fio = f"testbed {bed.name}", bed.fio
    if plan.adaptive and fio.launcher != "per-host":
        rates = f"needs the rates while a run lasts, which fio.launcher {fio.launcher!r} does not show"
        todo = "set fio.launcher: per-host, or choose policy 'short'"
        yield "adaptive-launcher", bed.name, f"{where}: policy 'adaptive' {rates}; {todo}."
    if plan.offered and fio.ioengine in ONE_AT_A_TIME:
        waits = f"fio.ioengine {fio.ioengine!r} does one I/O at a time, so a demand would wait behind it"
        yield "demand-engine", bed.name, f"{where}: {waits}; choose libaio or io_uring."
    media: dict[str, str] = {}
    names = {f"{vm.name}'s disk {disk.serial}": disk for vm in bed.vms for disk in vm.disks}
    for name, disk in names.items():
        if (other := media.setdefault(identity(re.sub("^(wwn|nvme|scsi)-", "", disk.serial)), name)) != name:
            todo = "what one writes the other reads; give each VM disks of its own"
            yield "shared-disk", bed.name, f"{where}: {other} and {name} are one; {todo}."
    needed = plan.span_bytes + plan.integrity.span_bytes if plan.integrity else 0
    for what, disk in ((f"integrity: {vm}'s disk {disk.serial}", disk) for vm, disk in disks):
        if needed and (disk.uri or "").startswith("nbd"):
            why = "is an NBD export of the lab, to which no stamped block can be written"
            todo = "use the box, the embedded Ceph or a testbed of your own"
            yield "stamped-export", bed.name, f"{what} {why}: {todo}."
        elif disk.size_bytes < needed:
            room = f"has {disk.size_bytes} bytes; fio's span and the stamped blocks behind it need {needed}"
            yield "stamped-space", bed.name, f"{what} {room}: make span_bytes smaller."
    working = {vm for vm, _ in disks}
    if idle := [vm.name for vm in bed.vms if vm.name not in working]:
        every = len(bed.vms)
        vms = f"{len(idle)} of {every} VMs of {bed.name} have no job ({_few(idle)})"
        yield "idle-vms", bed.name, f"{vms}. Set vms to {every} to use all of them."
    used = {disk.serial: disk.size_bytes for _, disk in disks}
    if rest := {d.serial for vm in bed.vms if vm.name in working for d in vm.disks}.difference(used):
        most = max(len(vm.disks) for vm in bed.vms)
        have = f"{len(rest)} disks of {bed.name} have no job ({_few(rest)})"
        yield "idle-disks", bed.name, f"{have}. Set numjobs to {most} to use all of them."
    if small := {serial: size for serial, size in used.items() if size < plan.span_bytes}:
        span = f"span_bytes of {plan.span_bytes / GIB:.4g} GiB is above {len(small)} disks of"
        least = f"{bed.name} ({_few(small)}). The smallest has {min(small.values()) / GIB:.4g} GiB"
        yield "small-disks", bed.name, f"{span} {least}. Lower it to test as much of each disk."


def _of_system(plan: Plan, system: System, bed: Testbed | None, disks: Sequence[Disk]) -> Iterator[Found]:
    name = system.name
    scheme = parse_scheme(system.scheme) if system.scheme else None
    nodes, drives = scheme.width if scheme else (0, 0)
    declares = f"but the file of system {name} declares"
    if nodes > (system.nodes or math.inf):
        yield "scheme-nodes", name, f"{scheme} needs {nodes} nodes, {declares} {system.nodes}."
    if drives > (have := system.drives_per_node or math.inf):
        yield "scheme-drives", name, f"{scheme} needs {drives} drives in each node, {declares} {have}."
    jobs = plan.vms * plan.numjobs
    used = sum(min(plan.span_bytes, disk.size_bytes) for disk in disks) or jobs * plan.span_bytes
    caches = (system.nodes or (len(bed.nodes) if bed else 1)) * (system.cache_bytes or 0)
    if used <= caches:
        hold = f"The caches of {name} hold the whole working set, so memory would be measured"
        span = f"above {math.ceil(caches / GIB / jobs)} GiB. It is {plan.span_bytes / GIB:.4g} GiB"
        yield "cached", name, f"{hold}. Set span_bytes {span}."
    tier = math.inf
    if disks and isinstance(scheme, Tiers):
        tier = scheme.parts[0][0] * scheme.efficiency * system.raw_bytes
    if used >= TIER_FULL * tier:
        fill = f"{used / 1e12:.2f} TB on {len(disks)} disks fill {100 * used / tier:.0f} %"
        first = f"the first tier ({tier / 1e12:.2f} TB at most)"
        moves = f"which moves data on from {100 * TIER_FULL:.0f} %, so both tiers are measured"
        todo = "To measure the first alone, use fewer or smaller disks, or a smaller span_bytes"
        yield "first-tier-full", name, f"{name}: the plan's {fill} of {first}, {moves}. {todo}."


def _on_testbed(plan: Plan, system: System, bed: Testbed, actions: Actions | None) -> Iterator[Found]:
    name = system.name
    if not bed.lab_root and is_never_asked(vars(system)):
        why = f"Runs of {name} would count even if it is degraded"
        yield "health-not-asked", name, f"{why}. Add a check health to its file."
    hosts = list(dict.fromkeys(host.name for host in (*bed.nodes, *bed.vms)))
    commands: dict[str, Command] = {f"checks.{check}": how for check, how in system.checks.items()}
    commands |= {f"changes.{change}": how for change, how in system.actions.items()}
    for what, command in commands.items():
        for host in set(command.on).difference(GROUPS, hosts):
            wrong = f"{what}.on names {host!r}, which is no host of testbed {bed.name}"
            todo = f"Name one of {', '.join(hosts)}, or say nodes"
            yield "command-host", name, f"system {name}: {wrong}. {todo}."
    placed = {step.cell.placement for step in plan.steps} - {SPREAD}
    if placed and "placement" not in system.checks:
        lacks = f"the plan has placement {_few(placed)}; system {name} has no check placement"
        whose = "that says whether a VM runs on the node that owns its data"
        yield "placement-unknown", name, f"{lacks}, {whose}."
    if placed and len(bed.nodes) < 2:
        needs = f"placement needs at least two nodes, it has {len(bed.nodes)}"
        yield "placement-nodes", bed.name, f"testbed {bed.name}: {needs}."
    if actions is None and bed.bed:
        return  # what a bed can do, it alone knows
    known = system.actions if actions is None else actions.get(system.variant, ())
    events = {event for step in plan.steps for _, event in step.cell.events}
    for event in sorted(events.difference(known)):
        nobody = f"which neither testbed {bed.name} nor the file of system {name} can do"
        those = f"known are {', '.join(sorted(known)) or 'none'}"
        yield "event-unknown", name, f"the plan has the event {event!r}, {nobody}; {those}."
