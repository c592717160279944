"""Owner or non-owner: checked before a run, brought about by the system's own commands, put back at the end."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from hcilib.drive.hosts.commands import execute_all, fill, tasks
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.launch.job import FioError
from hcilib.plan import Plan, Step
from hcilib.system import Command, Placement, System
from hcilib.testbed import Testbed, Vm
from hcilib.workload import SPREAD

CHECK_S, PATIENCE_S, AGAIN_S = 60.0, 300.0, 2.0


class PlacementError(FioError):
    """A step whose placement is not, and could not be made, what the plan says; the message names the VMs."""


def require(plan: Plan, testbed: Testbed, system: System) -> None:
    """PlacementError, before any host is touched, where the plan asks for what the system's file does not say how to
    see."""
    asked = placed(plan)
    if not asked:
        return
    _field(system, ", ".join(asked))
    if len(testbed.nodes) < 2:
        raise PlacementError(f"testbed {testbed.name}: placement needs at least two nodes, it has {len(testbed.nodes)}")


def _field(system: System, asked: str) -> Placement:
    if not system.placement:
        raise PlacementError(f"the plan has placement {asked}; system {system.name} has no field placement, whose "
                             "check says whether a VM runs on the node that owns its data")  # fmt: skip
    return system.placement


def placed(plan: Plan) -> list[str]:
    """The placements that a plan asks for."""
    return sorted({step.cell.placement for step in plan.steps} - {SPREAD})


def ensure(fleet: Fleet, testbed: Testbed, system: System, step: Step) -> None:
    """See that every VM of the step is placed as the step says; move those that are not, where the system has the
    command.

    Raises
    ------
    PlacementError : they are not, and there is no command, or it did not help within PATIENCE_S
    """
    wanted = step.cell.placement
    if wanted == SPREAD:
        return
    vms, how = testbed.fleet(step.cell.vms), _field(system, wanted)
    wrong = _astray(fleet, testbed, how, vms, wanted)
    move: Command | None = getattr(how, wanted.replace("-", "_"))
    if wrong and move:
        _run(fleet, testbed, move, [vm for vm in vms if vm.name in wrong])
        wrong = _settled(fleet, testbed, how, vms, wanted)
    if wrong:
        undone = (
            f"`{move.run}` did not change that"
            if move
            else f"the system's file has no command placement.{wanted.replace('-', '_')}"
        )
        raise PlacementError(f"placement {wanted}: {'; '.join(f'{vm}: {why}' for vm, why in wrong.items())}; {undone}")


def restore(fleet: Fleet, testbed: Testbed, system: System, plan: Plan) -> str:
    """Put the VMs back as the system's own command does; why not, or empty where it was done or there is nothing to
    do."""
    how = system.placement
    if not placed(plan) or not how or not how.restore:
        return ""
    try:
        _run(fleet, testbed, how.restore, testbed.fleet(plan.vms))
    except PlacementError as error:
        return str(error)
    return ""


def _settled(fleet: Fleet, testbed: Testbed, how: Placement, vms: Sequence[Vm], wanted: str) -> dict[str, str]:
    """What is still astray when all is well or patience ends: a live migration returns before it is over."""
    deadline = time.monotonic() + PATIENCE_S
    while (wrong := _astray(fleet, testbed, how, vms, wanted)) and time.monotonic() < deadline:
        time.sleep(AGAIN_S)
    return wrong


def _astray(fleet: Fleet, testbed: Testbed, how: Placement, vms: Sequence[Vm], wanted: str) -> dict[str, str]:
    """VM -> what its check said, of those that are not placed as wanted."""
    astray = {}
    for vm, (run, said) in _told(fleet, testbed, how, vms).items():
        owner = re.search(fill(how.check.expect, vm, testbed, re.escape), said, re.MULTILINE) is not None
        if owner is not (wanted == "owner"):
            astray[vm.name] = (
                f"on {'its owner' if owner else 'another node than its owner'} (`{run}` says {said.strip()[:200]!r})"
            )
    return astray


def _told(fleet: Fleet, testbed: Testbed, how: Placement, vms: Sequence[Vm]) -> dict[Vm, tuple[str, str]]:
    """VM -> its check and what that said. A check that fails is no answer, whatever is wanted: PlacementError."""
    asked = {task.vm or task.host: task for task in tasks(how.check, testbed, vms)}
    answers, told = execute_all(fleet, list(asked.values()), CHECK_S), {}
    for vm in vms:
        # a command for each VM, for each host (then the VM's own node answers for it), or one that speaks of all
        task = asked.get(vm.name) or asked.get(vm.node) or next(iter(asked.values()))
        said = answers[task]
        if not said.ok or not (said.value or "").strip():
            raise PlacementError(
                f"{vm.name}: placement cannot be seen: {said.error or f'`{task.run}` on {task.host} says nothing'}"
            )
        told[vm] = (task.run, said.value)
    return told


def redirected(fleet: Fleet, testbed: Testbed, system: System, step: Step) -> list[str]:
    """A sentence for each VM whose I/O goes through another node's file system, by what its placement's check says."""
    if step.cell.placement == SPREAD or not system.redirected:
        return []
    told = _told(fleet, testbed, _field(system, step.cell.placement), testbed.fleet(step.cell.vms))
    return [
        f"{vm.name}: its volume is redirected ({found[0]}): from any node but its owner, I/O crosses the network"
        for vm, (_, said) in told.items()
        if (found := re.search(system.redirected, said))
    ]


def _run(fleet: Fleet, testbed: Testbed, command: Command, vms: Sequence[Vm]) -> None:
    failed = [o.error for o in execute_all(fleet, tasks(command, testbed, vms)).values() if not o.ok]
    if failed:
        raise PlacementError(f"placement could not be changed: {'; '.join(failed)}")
