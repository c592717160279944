"""What is odd about a plan, a system or a testbed before any host is asked: allowed, and hardly meant."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from hcilib.model.plan import Plan
from hcilib.model.schemes import parse_scheme
from hcilib.model.system import System
from hcilib.model.testbed import Testbed

STEADY_S = 300.0
"""A run that writes without any warm-up before it, and ends sooner than this, measures a drive's cache and its first
minutes."""
GIB = 2**30
Row = tuple[str, str, str]
"""What it is about, which warning, and what is said."""


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


def _scheme(system: System) -> Iterator[Row]:
    if not system.scheme:
        return
    (servers, drives), told = parse_scheme(system.scheme).width, system.scheme
    if system.nodes and servers > system.nodes:
        yield system.name, "scheme", f"{told} lies across {servers} servers, its file says {system.nodes} nodes"
    if system.drives_per_node and drives > system.drives_per_node:
        said = f"{told} takes {drives} drives of a server, its file says {system.drives_per_node} drives_per_node"
        yield system.name, "scheme", said


def _disks(plan: Plan, testbed: Testbed) -> Iterator[Row]:
    used = {(vm, disk.serial) for vm, disk in testbed.targets(min(plan.vms, len(testbed.vms)), plan.numjobs)}
    at_work = {vm for vm, _ in used}
    busy = [vm for vm in testbed.vms if vm.name in at_work]
    if idle := [vm.name for vm in testbed.vms if vm.name not in at_work]:
        said = f"{len(idle)} of {len(testbed.vms)} VMs have nothing to do with vms={plan.vms}: {', '.join(idle)}"
        yield testbed.name, "unused", said
    if rest := [d.serial for vm in busy for d in vm.disks if (vm.name, d.serial) not in used]:
        shown = ", ".join(rest[:4]) + (", ..." if len(rest) > 4 else "")
        there, most = sum(len(vm.disks) for vm in busy), max(len(vm.disks) for vm in testbed.vms)
        said = f"{len(rest)} of {there} disks of the VMs at work have no job with numjobs={plan.numjobs}: {shown}"
        yield testbed.name, "unused", f"{said}; numjobs={most} uses all"
    sizes = [d.size_bytes for vm in busy for d in vm.disks if (vm.name, d.serial) in used]
    if small := [size for size in sizes if size < plan.span_bytes]:
        smaller = f"{len(small)} disk(s) are smaller (from {min(small) / GIB:.4g} GiB)"
        whole = "those are used whole, so disks differ in what is used of them"
        yield testbed.name, "span", f"span_bytes is {plan.span_bytes / GIB:.4g} GiB, {smaller}: {whole}"


def _cached(plan: Plan, system: System, testbed: Testbed | None) -> Iterator[Row]:
    if not system.cache_bytes:
        return
    nodes = system.nodes or (len(testbed.nodes) if testbed else None)
    used = plan.vms * plan.numjobs * plan.span_bytes
    if testbed and testbed.vms:
        used = testbed.used_bytes(min(plan.vms, len(testbed.vms)), plan.numjobs, plan.span_bytes)
    caches = max(1, nodes or 0) * system.cache_bytes
    if used <= caches:
        enough = math.ceil(caches / GIB / plan.vms / plan.numjobs)
        said = (
            f"the working set of {used / GIB:.4g} GiB fits the caches of {caches / GIB:.4g} GiB ({nodes or 1} x "
            f"cache_bytes): what is measured is memory; span_bytes above {enough} GiB does not"
        )
        yield system.name, "cached", said


def _short(plan: Plan, dialled: bool) -> Iterator[Row]:
    measured = [step for step in plan.steps if step.kind == "measure"]
    if ramped := sorted({step.cell.pattern.name for step in measured if 0 < step.runtime_s < step.ramp_s}):
        said = f"runs of {', '.join(ramped)} are shorter than their own ramp_s of {measured[0].ramp_s:g} s"
        yield "plan", "short", said
    warmed = {step.cell.pattern.bs_bytes for step in plan.steps if step.kind == "warmup"}
    brief = ((step, step.cell.pattern) for step in measured if step.duration_s < STEADY_S)
    cold = {p.name: step.runtime_s for step, p in brief if p.writes and p.bs_bytes not in warmed}
    if cold and not dialled:
        said = f"{', '.join(cold)}: runs of {min(cold.values()):g} s and no warm-up before them"
        fresh = "flash writes at its first speed for minutes to hours; give warmup_s, or warmup: volume"
        yield "plan", "short", f"{said}: {fresh}"
