"""Checks of a plan, its system and its testbed that need no host: settings that are legal but probably unintended."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from hcilib.model.plan import Plan, is_never_asked
from hcilib.model.schemes import parse_scheme
from hcilib.model.system import System
from hcilib.model.testbed import Testbed

STEADY_S = 300.0
"""A shorter run that writes without a warm-up measures the drive's cache and its first minutes."""


class Warned(NamedTuple):
    """A row of `plan_warnings`."""

    about: str
    warning: str
    have: float
    need: float
    names: tuple[str, ...] = ()


def plan_warnings(plan: Plan, system: System | None = None, testbed: Testbed | None = None) -> pd.DataFrame:
    """Return what is legal but probably unintended in a plan. No host is asked.

    Parameters
    ----------
    plan : the campaign
    system : its scheme is compared with its nodes and drives, its `cache_bytes` with the working set
    testbed : its VMs and disks are compared with the plan's jobs and span

    Returns
    -------
    DataFrame
        One row a warning: about (name of the system or testbed, or ``plan``), warning (the code),
        have and need (two values of what the code names), names. The codes:

        - ``scheme-nodes``, ``scheme-drives``: nodes, or drives a node, of the system; of its scheme
        - ``health-not-asked``: (no values) the system has copies and its file no `health`
        - ``idle-vms``: VMs of the plan; of the testbed; names of those without a job
        - ``idle-disks``: numjobs; numjobs that uses all disks; serials of those without a job
        - ``small-disks``: bytes of the smallest disk; span_bytes; serials of disks below the span
        - ``cached``: span_bytes; span_bytes at which the working set is as large as the caches
        - ``short-runs``: seconds of the shortest run; its ramp_s; patterns
        - ``cold-writes``: seconds of the shortest run; `STEADY_S`; patterns without a warm-up

    Examples
    --------
    >>> plan = hci.sweep(["4k-randread"], vms=2, span_bytes="200 GiB")
    >>> narrow = hci.System(name="a", label="a", scheme="Raid6(9)", nodes=2, drives_per_node=8)
    >>> hci.plan_warnings(plan, narrow)[["warning", "have", "need"]]
             warning  have  need
    0  scheme-drives     8     9
    """
    rows = [*(_scheme(system) if system else ()), *(_disks(plan, testbed) if testbed and testbed.vms else ())]
    rows += _unasked(system) if system and testbed and testbed.vms and not testbed.lab_root else ()
    rows += [*(_cached(plan, system, testbed) if system else ()), *_short(plan, bool(testbed and testbed.lab_root))]
    return pd.DataFrame(rows, columns=Warned._fields)


def _scheme(system: System) -> Iterator[Warned]:
    if not system.scheme:
        return
    servers, drives = parse_scheme(system.scheme).width
    if system.nodes and servers > system.nodes:
        yield Warned(system.name, "scheme-nodes", system.nodes, servers, (system.scheme,))
    if system.drives_per_node and drives > system.drives_per_node:
        yield Warned(system.name, "scheme-drives", system.drives_per_node, drives, (system.scheme,))


def _unasked(system: System) -> Iterator[Warned]:
    """A system that can be degraded, and is not asked whether it is."""
    if is_never_asked(vars(system)):
        yield Warned(system.name, "health-not-asked", math.nan, math.nan)


def _disks(plan: Plan, testbed: Testbed) -> Iterator[Warned]:
    used = {(vm, disk.serial) for vm, disk in testbed.targets(min(plan.vms, len(testbed.vms)), plan.numjobs)}
    at_work = {vm for vm, _ in used}
    if idle := tuple(vm.name for vm in testbed.vms if vm.name not in at_work):
        yield Warned(testbed.name, "idle-vms", plan.vms, len(testbed.vms), idle)
    disks = [(vm.name, disk) for vm in testbed.vms if vm.name in at_work for disk in vm.disks]
    if rest := tuple(disk.serial for vm, disk in disks if (vm, disk.serial) not in used):
        most = max(len(vm.disks) for vm in testbed.vms)
        yield Warned(testbed.name, "idle-disks", plan.numjobs, most, rest)
    small = [disk for vm, disk in disks if (vm, disk.serial) in used and disk.size_bytes < plan.span_bytes]
    if small:
        least = min(disk.size_bytes for disk in small)
        yield Warned(testbed.name, "small-disks", least, plan.span_bytes, tuple(disk.serial for disk in small))


def _cached(plan: Plan, system: System, testbed: Testbed | None) -> Iterator[Warned]:
    if not system.cache_bytes:
        return
    nodes = system.nodes or (len(testbed.nodes) if testbed else None)
    used = plan.vms * plan.numjobs * plan.span_bytes
    if testbed and testbed.vms:
        used = testbed.used_bytes(min(plan.vms, len(testbed.vms)), plan.numjobs, plan.span_bytes)
    caches = max(1, nodes or 0) * system.cache_bytes
    if used <= caches:
        enough = math.ceil(caches / 2**30 / plan.vms / plan.numjobs) * 2**30
        yield Warned(system.name, "cached", plan.span_bytes, enough)


def _short(plan: Plan, dialled: bool) -> Iterator[Warned]:
    measured = [step for step in plan.steps if step.kind == "measure"]
    if ramped := [step for step in measured if 0 < step.runtime_s < step.ramp_s]:
        names = tuple(sorted({step.cell.pattern.name for step in ramped}))
        yield Warned("plan", "short-runs", min(step.runtime_s for step in ramped), measured[0].ramp_s, names)
    warmed = {step.cell.pattern.bs_bytes for step in plan.steps if step.kind == "warmup"}
    brief = ((step, step.cell.pattern) for step in measured if step.duration_s < STEADY_S)
    cold = {p.name: step.runtime_s for step, p in brief if p.writes and p.bs_bytes not in warmed}
    if cold and not dialled:
        yield Warned("plan", "cold-writes", min(cold.values()), STEADY_S, tuple(cold))
