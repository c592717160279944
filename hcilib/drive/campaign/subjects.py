"""What is measured: each system on the disks that are its own, its VMs where the plan wants them, and the setting it is
measured with; all of it brought about by the system's own commands, and put back.

A setting is switched like a placement, right before the step that wants it; what an earlier step left standing is
undone first, whosever it is: a setting of one system may not be felt by the other. The journal holds every one before
it is applied and once it is undone, so that a controller that was killed leaves no setting that the next one does not
know of.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hcilib.drive.beds import Actions
from hcilib.drive.campaign.events import actions_of
from hcilib.drive.campaign.rundir import RunDir
from hcilib.drive.hosts.commands import Task, execute_all, fill, tasks
from hcilib.drive.hosts.hosts import ANSWER_S, Fleet, Outcome
from hcilib.drive.launch.job import FioError
from hcilib.model.plan import Plan, Step
from hcilib.model.system import Command, Percentage, Placement, System
from hcilib.model.testbed import Testbed, Vm
from hcilib.model.workload import SPREAD
from hcilib.read.nodes.layers import parse_osds
from hcilib.read.run.journal import events_of


class SettingError(FioError):
    """A setting that could not be applied, is not seen after it was, or could not be undone; the message names it and
    the host."""


@dataclass(frozen=True)
class Subject:
    """A system as it is measured: on its own disks, with what can be done to it."""

    system: System
    testbed: Testbed
    actions: Actions


def subjects(systems: Sequence[System], testbed: Testbed, actions: Actions | None) -> dict[str, Subject]:
    """What results call a system -> the system on its disks; also the products themselves, on which prefill and warm-up
    are done.

    `testbed` as `divided` gives it. TestbedError where one of the systems has no disk there.
    """
    found = {}
    for system in (*(system.with_setting(None) for system in systems), *systems):
        own = testbed.of_system(system.name)
        found[system.variant] = Subject(system, own, actions or actions_of(own, system))
    return found


def divided(testbed: Testbed, systems: Sequence[System]) -> Testbed:
    """The testbed with every disk marked as the system's whose it is; of one system, with its disks alone.

    Raises TestbedError where two systems share a disk.
    """
    patterns = {system.name: system.disks for system in systems}
    marked = testbed.divided(patterns)
    return marked.of_system(next(iter(patterns))) if len(patterns) == 1 else marked


def interleaved(plan: Plan, systems: Sequence[System]) -> Plan:
    """The plan for these systems: as it is for one, for several each cell once per system; PlanError where it is for
    others."""
    on = {system.variant: system.name for system in systems}
    if len(systems) == 1 and not plan.systems:
        return plan
    return plan if plan.systems == on else plan.interleaved(on)


class Settings:
    """The setting that stands now, of at most one system; what stood when the last controller was killed is known from
    the journal."""

    def __init__(self, every: Mapping[str, Subject], rundir: RunDir):
        self._rundir = rundir
        told = [event for event in events_of(rundir.path) if event.get("event") == "setting"]
        self._standing = every.get(told[-1]["system"]) if told and told[-1]["standing"] else None

    @property
    def standing(self) -> str:
        """What is applied now; empty where nothing is."""
        return self._standing.system.variant if self._standing else ""

    def ensure(self, fleet: Fleet, subject: Subject) -> None:
        """See that the subject's setting is applied and no other is.

        Raises
        ------
        SettingError : it cannot be applied, or its check does not find it (it is undone again), or the one before
            cannot be undone
        """
        if self._standing and self._standing.system.variant == subject.system.variant:
            return
        self.undo(fleet)
        name = subject.system.setting
        if not name:
            return
        self._rundir.log("setting", system=subject.system.variant, standing=True)
        self._standing = subject
        how = subject.system.settings[name]
        try:
            _execute(fleet, subject, how.apply, f"setting {name} could not be applied")
            for host, said in _execute(fleet, subject, how.check, f"setting {name} cannot be seen").items():
                if not re.search(how.check.expect, said, re.MULTILINE):
                    raise SettingError(
                        f"setting {name} is not seen on {host} after it was applied: `{how.check.run}` says "
                        f"{said.strip()[:200]!r}, expected {how.check.expect!r}; it was undone"
                    )
        except SettingError as error:
            try:
                self.undo(fleet)
            except SettingError as standing:
                raise SettingError(f"{error}; {standing}") from None
            raise

    def undo(self, fleet: Fleet) -> None:
        """Put back what stands; SettingError where that fails, and then it is tried again before the next step."""
        if not self._standing:
            return
        system = self._standing.system
        _execute(fleet, self._standing, system.settings[system.setting or ""].undo,
                 f"setting {system.setting} of {system.name} could not be undone, it stands")  # fmt: skip
        self._rundir.log("setting", system=system.variant, standing=False)
        self._standing = None


def _execute(fleet: Fleet, subject: Subject, command: Command, failing: str) -> dict[str, str]:
    """Host -> what the command printed there; SettingError that names every host on which it failed."""
    done = execute_all(fleet, tasks(command, subject.testbed, subject.testbed.vms))
    if failed := [f"{task.host}: {outcome.error}" for task, outcome in done.items() if not outcome.ok]:
        raise SettingError(f"{failing}: {'; '.join(failed)}")
    return {task.host: outcome.value or "" for task, outcome in done.items()}


def saved_pct(fleet: Fleet, subject: Subject) -> tuple[float, list[str]]:
    """What the system's store says that it saves, as the mean of its hosts, and a remark for each that does not say."""
    how = subject.system.savings
    if how is None:
        return float("nan"), []
    told, remarks = [], []
    for task, outcome in execute_all(fleet, tasks(how, subject.testbed, subject.testbed.vms)).items():
        found = percentages(how, outcome.value) if outcome.ok else []
        told.append(found[0][0] if found else float("nan"))
        if not told[-1] < 100:
            remarks.append(f"{task.host}: what is saved is not known: {outcome.error or says(task, outcome)}")
    return (float("nan") if remarks or not told else sum(told) / len(told)), remarks


@contextlib.contextmanager
def osds_noted(fleet: Fleet, subject: Subject, file: Path) -> Iterator[None]:
    """Keep what the OSDs count of their work, before and after what is done inside; of a system whose file does not say
    how they are asked, nothing. What does not answer is noted, and stops nothing."""
    if subject.system.osd_counters is None:
        yield
        return
    before = _osds(fleet, subject, subject.system.osd_counters)
    yield
    file.write_text(json.dumps({"before": before, "after": _osds(fleet, subject, subject.system.osd_counters)}))


def _osds(fleet: Fleet, subject: Subject, how: Command) -> dict:
    """The OSDs' counters, each as [count, seconds], and a remark of each host that did not answer."""
    found: dict[str, dict] = {}
    remarks: list[str] = []
    for task, outcome in execute_all(fleet, tasks(how, subject.testbed, subject.testbed.vms), ANSWER_S).items():
        osds = parse_osds(outcome.value or "") if outcome.ok else {}
        remarks += [] if osds else [f"{task.host}: {outcome.error or 'no counters of an OSD in what it printed'}"]
        found |= osds
    return {"osds": found, "remarks": remarks}


def percentages(how: Percentage, text: str) -> list[tuple[float, str]]:
    """Every percentage that `how.expect` finds, NaN for what is none, and its line."""
    found = []
    for match in re.finditer(how.expect, text, re.MULTILINE):
        start, end = text.rfind("\n", 0, match.start(1)) + 1, text.find("\n", match.end(1))
        try:
            number = float((match[1] or "").replace(",", "."))  # 68,4 of a German Windows
        except ValueError:
            number = float("nan")
        line = text[start : end if end >= 0 else None].strip()
        found.append((number if 0 <= number <= 100 else float("nan"), line))
    return found


def says(task: Task, outcome: Outcome) -> str:
    """What a command printed where a percentage was expected."""
    return f"`{task.run}` says {outcome.value.strip()[:200]!r}"


# Owner or non-owner: checked before a run, and put back at the end.

PATIENCE_S, AGAIN_S = 300.0, 2.0


class PlacementError(FioError):
    """A step whose placement is not, and could not be made, what the plan says; the message names the VMs."""


def _field(system: System, asked: str) -> Placement:
    if not system.placement:
        raise PlacementError(f"the plan has placement {asked}; system {system.name} has no field placement, whose "
                             "check says whether a VM runs on the node that owns its data")  # fmt: skip
    return system.placement


def placed(plan: Plan) -> list[str]:
    """The placements that a plan asks for."""
    return sorted({step.cell.placement for step in plan.steps} - {SPREAD})


def ensure_placement(fleet: Fleet, testbed: Testbed, system: System, step: Step) -> None:
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
        deadline = time.monotonic() + PATIENCE_S
        while (wrong := _astray(fleet, testbed, how, vms, wanted)) and time.monotonic() < deadline:
            time.sleep(AGAIN_S)  # a live migration returns before it is over
    if wrong:
        none = f"the system's file has no command placement.{wanted.replace('-', '_')}"
        undone = f"`{move.run}` did not change that" if move else none
        raise PlacementError(f"placement {wanted}: {'; '.join(f'{vm}: {why}' for vm, why in wrong.items())}; {undone}")


def restore_placement(fleet: Fleet, testbed: Testbed, system: System, plan: Plan) -> str:
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


def _astray(fleet: Fleet, testbed: Testbed, how: Placement, vms: Sequence[Vm], wanted: str) -> dict[str, str]:
    """VM -> what its check said, of those that are not placed as wanted."""
    astray = {}
    for vm, (run, said) in _told(fleet, testbed, how, vms).items():
        owner = re.search(fill(how.check.expect, vm, testbed, re.escape), said, re.MULTILINE) is not None
        if owner is not (wanted == "owner"):
            where = "its owner" if owner else "another node than its owner"
            astray[vm.name] = f"on {where} (`{run}` says {said.strip()[:200]!r})"
    return astray


def _told(fleet: Fleet, testbed: Testbed, how: Placement, vms: Sequence[Vm]) -> dict[Vm, tuple[str, str]]:
    """VM -> its check and what that said. A check that fails is no answer, whatever is wanted: PlacementError."""
    asked = {task.vm or task.host: task for task in tasks(how.check, testbed, vms)}
    answers, told = execute_all(fleet, list(asked.values()), ANSWER_S), {}
    for vm in vms:
        # a command for each VM, for each host (then the VM's own node answers for it), or one that speaks of all
        task = asked.get(vm.name) or asked.get(vm.node) or next(iter(asked.values()))
        said = answers[task]
        if not said.ok or not (said.value or "").strip():
            why = said.error or f"`{task.run}` on {task.host} says nothing"
            raise PlacementError(f"{vm.name}: placement cannot be seen: {why}")
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
    done = execute_all(fleet, tasks(command, testbed, vms))
    if failed := [f"{task.host}: {o.error}" for task, o in done.items() if not o.ok]:
        raise PlacementError(f"placement could not be changed: {'; '.join(failed)}")
