"""What is odd about a plan, a system or a testbed before any host is asked: allowed, and hardly meant."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from hcilib.analyse.physics.capacity import parse_scheme
from hcilib.plan import Plan
from hcilib.system import System
from hcilib.testbed import Testbed

STEADY_S = 300.0
"""A run that writes without any warm-up before it, and ends sooner than this, measures a drive's cache and its first
minutes."""
GIB = 2**30


def plan_warnings(plan: Plan, system: System | None = None, testbed: Testbed | None = None) -> pd.DataFrame:
    """What a plan would do that is allowed and hardly meant; no host is asked.

    Parameters
    ----------
    system : its scheme is held against its nodes and drives, its `cache_bytes` against the working set
    testbed : its disks are held against the plan's jobs and span

    Returns
    -------
    DataFrame : about, warning, detail; one row a warning, none where nothing is odd. `warning` is one of scheme
        (does not fit the
        nodes or drives), unused (disks or VMs without a job), span (above a disk's size), cached (the working set
        fits the caches), short (a run shorter than its ramp, or writing runs without a warm-up)

    Examples
    --------
    >>> plan = hci.sweep(["4k-randread"], vms=2, span_bytes="200 GiB")
    >>> narrow = hci.System(name="a", label="a", scheme="Raid6(9)", nodes=2, drives_per_node=8)
    >>> hci.plan_warnings(plan, narrow)["detail"][0]
    'Raid6(9) takes 9 drives of a server, its file says 8 drives_per_node'
    """
    rows = [*(_scheme(system) if system else ()), *(_disks(plan, testbed) if testbed and testbed.vms else ())]
    rows += [*(_cached(plan, system, testbed) if system else ()), *_short(plan, bool(testbed and testbed.lab_root))]
    return pd.DataFrame(rows, columns=["about", "warning", "detail"])


def _scheme(system: System) -> Iterator[tuple[str, str, str]]:
    if not system.scheme:
        return
    servers, drives = parse_scheme(system.scheme).width
    if system.nodes and servers > system.nodes:
        yield (
            system.name,
            "scheme",
            f"{system.scheme} lies across {servers} servers, its file says {system.nodes} nodes",
        )
    if system.drives_per_node and drives > system.drives_per_node:
        yield (
            system.name,
            "scheme",
            f"{system.scheme} takes {drives} drives of a server, its file says {system.drives_per_node} "
            f"drives_per_node",
        )


def _disks(plan: Plan, testbed: Testbed) -> Iterator[tuple[str, str, str]]:
    used = {(vm, disk.serial) for vm, disk in testbed.targets(min(plan.vms, len(testbed.vms)), plan.numjobs)}
    idle = [vm.name for vm in testbed.vms if not any((vm.name, d.serial) in used for d in vm.disks)]
    if idle:
        yield (
            testbed.name,
            "unused",
            f"{len(idle)} of {len(testbed.vms)} VMs have nothing to do with vms={plan.vms}: {', '.join(idle)}",
        )
    partly = {
        vm.name: [d.serial for d in vm.disks if (vm.name, d.serial) not in used]
        for vm in testbed.vms
        if vm.name not in idle
    }
    if rest := [serial for serials in partly.values() for serial in serials]:
        total = sum(len(vm.disks) for vm in testbed.vms if vm.name not in idle)
        yield (
            testbed.name,
            "unused",
            (
                f"{len(rest)} of {total} disks of the VMs at work have no job with numjobs={plan.numjobs}: "
                f"{', '.join(rest[:4])}"
                + (", ..." if len(rest) > 4 else "")
                + f"; numjobs={max(len(vm.disks) for vm in testbed.vms)} uses all"
            ),
        )
    small = [
        d for vm in testbed.vms for d in vm.disks if (vm.name, d.serial) in used and d.size_bytes < plan.span_bytes
    ]
    if small:
        least = min(d.size_bytes for d in small)
        yield (
            testbed.name,
            "span",
            (
                f"span_bytes is {plan.span_bytes / GIB:.4g} GiB, {len(small)} disk(s) are smaller (from "
                f"{least / GIB:.4g} GiB): "
                "those are used whole, so disks differ in what is used of them"
            ),
        )


def _cached(plan: Plan, system: System, testbed: Testbed | None) -> Iterator[tuple[str, str, str]]:
    if not system.cache_bytes:
        return
    nodes = system.nodes or (len(testbed.nodes) if testbed else 0)
    used = (
        testbed.used_bytes(min(plan.vms, len(testbed.vms)), plan.numjobs, plan.span_bytes)
        if testbed and testbed.vms
        else plan.vms * plan.numjobs * plan.span_bytes
    )
    caches = max(1, nodes) * system.cache_bytes
    if used <= caches:
        yield (
            system.name,
            "cached",
            (
                f"the working set of {used / GIB:.4g} GiB fits the caches of {caches / GIB:.4g} GiB "
                f"({nodes or 1} x cache_bytes): "
                f"what is measured is memory; span_bytes above "
                f"{math.ceil(caches / GIB / plan.vms / plan.numjobs)} GiB does not"
            ),
        )


def _short(plan: Plan, dialled: bool) -> Iterator[tuple[str, str, str]]:
    measured = [step for step in plan.steps if step.kind == "measure"]
    if ramped := sorted({step.cell.pattern.name for step in measured if 0 < step.runtime_s < step.ramp_s}):
        yield (
            "plan",
            "short",
            f"runs of {', '.join(ramped)} are shorter than their own ramp_s of {measured[0].ramp_s:g} s",
        )
    warmed = {step.cell.pattern.bs_bytes for step in plan.steps if step.kind == "warmup"}
    cold = {
        step.cell.pattern.name: step.runtime_s
        for step in measured
        if step.cell.pattern.writes and step.cell.pattern.bs_bytes not in warmed and step.duration_s < STEADY_S
    }
    if cold and not dialled:
        yield (
            "plan",
            "short",
            (
                f"{', '.join(cold)}: runs of {min(cold.values()):g} s and no warm-up before them: flash writes "
                f"at its first speed for minutes "
                "to hours; give warmup_s, or warmup: volume"
            ),
        )
