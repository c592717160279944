"""A system's own commands: where each runs, what the hosts answer, and whether that is what its file expects."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pandas as pd

from hcilib.drive.beds import Actions, bed
from hcilib.drive.hosts.hosts import ANSWER_S, Fleet, Outcome
from hcilib.drive.launch.job import FioError
from hcilib.model.plan import Plan
from hcilib.model.system import GROUPS, UNDO, Check, Command, System
from hcilib.model.testbed import Testbed, Vm

CONTROLLER, LIMIT_S, CHECK_S = "controller", 600.0, 20.0
VM_PLACES = ("{vm}", "{node}", "{other}")
OF_EACH_VM = ("placement", "redirected")
"""Checks of which each VM has an answer of its own, also where the command names none."""
SHOWN = 300
"""Characters of an answer that are kept."""


class CommandError(FioError):
    """A system's command that did not do what a step needs; the message names the host and what it said."""


@dataclass(frozen=True)
class Subject:
    """A system as it is measured: on its own disks, with what can be done to it."""

    system: System
    testbed: Testbed
    actions: Actions


class Task(NamedTuple):
    """One command on one host; `vm`: the VM it is about, if it is about one."""

    host: str
    run: str
    vm: Vm | None = None


@dataclass(frozen=True)
class Answer:
    """What a host said to a check, or why it did not answer. `ok`: it answered as the check expects."""

    check: str
    host: str
    vm: str
    run: str
    said: str
    answered: bool
    ok: bool


def ask(
    fleet: Fleet, testbed: Testbed, checks: Mapping[str, Check], vms: Sequence[Vm] | None = None,
    limit_s: float = ANSWER_S,
) -> list[Answer]:  # fmt: skip
    """Ask all hosts at once; one answer for each check and host, or VM where the check is about VMs."""
    users = testbed.vms if vms is None else vms
    todo = [(name, check, tasks(check, testbed, users, each=name in OF_EACH_VM)) for name, check in checks.items()]
    outcomes = _execute(fleet, [task for *_, own in todo for task in own], limit_s)
    return [_answer(name, check, task, outcomes[task], testbed) for name, check, own in todo for task in own]


def _answer(name: str, check: Check, task: Task, outcome: Outcome, testbed: Testbed) -> Answer:
    expect = check.expect or ""
    wanted = fill(expect, task.vm, testbed, re.escape) if task.vm else expect
    found = outcome.ok and re.search(wanted, outcome.value or "", re.MULTILINE) is not None
    said = (outcome.value if outcome.ok else outcome.error) or ""
    return Answer(name, task.host, task.vm.name if task.vm else "", task.run, said, outcome.ok, found)


def carry_out(fleet: Fleet, testbed: Testbed, command: Command, failing: str, vms: Sequence[Vm] | None = None) -> None:
    """Run a command on all its hosts; CommandError names every host on which it failed."""
    done = _execute(fleet, tasks(command, testbed, testbed.vms if vms is None else vms), LIMIT_S)
    if failed := [f"{task.host}: {outcome.error}" for task, outcome in done.items() if not outcome.ok]:
        raise CommandError(f"{failing}: {'; '.join(failed)}")


def shown(text: str) -> str:
    """Return an answer on one line, without what cannot be seen. Where it is long its middle is left out, as the last
    lines of arrays say what is missing."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    half = SHOWN // 2
    return line if len(line) <= SHOWN else f"{line[:half]} ... {line[-half:]}"


def percentages(check: Check, text: str) -> list[tuple[float, str]]:
    """Return every percentage that `check.expect` finds, NaN for what is none, and its line."""
    found = []
    for match in re.finditer(check.expect or "", text, re.MULTILINE):
        start, end = text.rfind("\n", 0, match.start(1)) + 1, text.find("\n", match.end(1))
        try:
            number = float((match[1] or "").replace(",", "."))  # 68,4 of a German Windows
        except ValueError:
            number = float("nan")
        line = text[start : end if end >= 0 else None].strip()
        found.append((number if 0 <= number <= 100 else float("nan"), line))
    return found


# Where a command runs


def tasks(command: Command, testbed: Testbed, vms: Sequence[Vm], each: bool = False) -> list[Task]:
    """Return where a command runs; one that is about VMs runs for each of `vms` (see hcilib.model.system.Command)."""
    hosts = [host for on in command.on for host in _hosts(on, testbed, vms)]
    if not each and not any(place in command.run for place in VM_PLACES):
        return [Task(host, command.run) for host in hosts]
    near = {"nodes": lambda vm: vm.node, "vms": lambda vm: vm.name}.get(command.on[0], lambda vm: hosts[0])
    return [Task(near(vm), fill(command.run, vm, testbed, shlex.quote), vm) for vm in vms]


def fill(text: str, vm: Vm, testbed: Testbed, quoted: Callable[[str], str]) -> str:
    """Replace {vm}, {node} and {other} by names as `quoted` writes them, for a shell or for a regular expression.

    Other braces stay as they are: the text is its author's own, and nothing but a host's name gets into it.
    """
    names = [node.name for node in testbed.nodes]
    other = names[(names.index(vm.node) + 1) % len(names)]
    for place, name in zip(VM_PLACES, (vm.name, vm.node, other), strict=True):
        text = text.replace(place, quoted(name))
    return text


def _hosts(on: str, testbed: Testbed, vms: Sequence[Vm]) -> list[str]:
    if on == CONTROLLER or on not in GROUPS:
        return [on]
    every = testbed.nodes if on.startswith("node") else vms
    return [host.name for host in (every if on.endswith("s") else every[:1])]


def _execute(fleet: Fleet, todo: Iterable[Task], limit_s: float) -> dict[Task, Outcome]:
    """Return what came of each task: one at a time on a host, all hosts at once, and the same command once."""
    outcomes: dict[tuple[str, str], Outcome] = {}
    every = list(todo)
    left = list(dict.fromkeys((task.host, task.run) for task in every))
    while left:
        now = dict(reversed(left))  # the first of every host
        left = [one for one in left if now[one[0]] != one[1]]
        told = fleet.run({host: run for host, run in now.items() if host != CONTROLLER}, limit_s=limit_s)
        if CONTROLLER in now:
            told[CONTROLLER] = _here(now[CONTROLLER], limit_s)
        outcomes |= {(host, run): told[host] for host, run in now.items()}
    return {task: outcomes[task.host, task.run] for task in every}


def _here(command: str, limit_s: float) -> Outcome:
    # by timeout, which ends what the shell has started too; ours is for one that cannot be ended
    argv, nothing = ["timeout", "-k", "5", f"{limit_s:g}", "sh", "-c", command], subprocess.DEVNULL
    try:
        done = subprocess.run(argv, stdin=nothing, capture_output=True, errors="replace", timeout=limit_s + 10)
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode in (124, 137):
        return Outcome(CONTROLLER, False, error=f"`{command}` gave no answer within {limit_s:g} s")
    said = f"`{command}` exited with {done.returncode}: {done.stderr.strip()[-400:]}" if done.returncode else ""
    return Outcome(CONTROLLER, not said, None if said else done.stdout, said)


# What is measured


def divided(testbed: Testbed, systems: Sequence[System]) -> Testbed:
    """Return the testbed with every disk marked as the system's whose it is; of one system, with its disks alone.

    Raises TestbedError where two systems share a disk.
    """
    patterns = {system.name: system.disks for system in systems}
    marked = testbed.divided(patterns)
    return marked.of_system(next(iter(patterns))) if len(patterns) == 1 else marked


def interleaved(plan: Plan, systems: Sequence[System]) -> Plan:
    """Return the plan for these systems: as it is for one, for several each cell once per system; PlanError where it is
    for others."""
    on = {system.variant: system.name for system in systems}
    if len(systems) == 1 and not plan.systems:
        return plan
    return plan if plan.systems == on else plan.interleaved(on)


def subjects(systems: Sequence[System], testbed: Testbed, actions: Actions | None) -> dict[str, Subject]:
    """Return what results call a system -> the system on its disks; also the products themselves, on which prefill and
    warm-up are done.

    `testbed` as `divided` gives it. TestbedError where one of the systems has no disk there.
    """
    found = {}
    for system in (*(system.with_setting(None) for system in systems), *systems):
        own = testbed.of_system(system.name)
        found[system.variant] = Subject(system, own, actions or actions_of(own, system))
    return found


def actions_of(testbed: Testbed, system: System) -> Actions:
    """Return the actions that a running bed of this machine offers, or the changes that the system's file names.

    Nothing is done, and no host asked, before an action is called.
    """
    if testbed.bed and (offered := bed(testbed.bed).actions(testbed)):
        return offered
    whole = {name: check for name, check in system.checks.items() if name == "whole"}

    def missing(fleet: Fleet) -> str:
        """Every host on which the check runs must say what it expects."""
        answers = ask(fleet, testbed, whole, limit_s=CHECK_S)
        return "; ".join(f"{a.host}: {' '.join(a.said.split())[:200] or 'nothing'}" for a in answers if not a.ok)

    back = {name: f"{UNDO}{name}" for name, change in system.changes.items() if change.undo}
    do = {
        name: partial(carry_out, testbed=testbed, command=command, failing=f"`{command.run}` failed")
        for name, command in system.actions.items()
    }
    return Actions(do, back, missing)


# What an analyst asks by hand


def prepare(testbed: Testbed, system: System, execute: bool = False) -> pd.DataFrame:
    """Show the tuning that a system's file prescribes (its field `prepare`), and run it only on request.

    The commands run in the file's order, each on all its hosts at once; after one that fails nothing more is run.

    Parameters
    ----------
    testbed : whose hosts are asked
    system : whose file has the commands
    execute : False: they are shown alone

    Returns
    -------
    DataFrame : host, command, executed, ok, output; one row a command and host. `ok` is None where it was not executed;
        `output` is what it printed, or why it failed

    Examples
    --------
    >>> system = hci.load_system("params/systems/drbd-tcp-pve.yaml")
    >>> with hci.open_testbed("params/testbeds/proxmox.example.yaml", system) as testbed:  # doctest: +SKIP
    ...     hci.prepare(testbed, system)
    """
    rows: list[tuple] = []
    with Fleet(testbed) if execute else nullcontext() as fleet:
        for command in system.prepare:
            todo = tasks(command, testbed, testbed.vms)
            failed = any(ok is False for *_, ok, _ in rows)
            if not fleet or failed:
                rows += [(task.host, task.run, False, None, "") for task in todo]
                continue
            for task, o in _execute(fleet, todo, LIMIT_S).items():
                rows.append((task.host, task.run, True, o.ok, (o.value or o.error).strip()))
    return pd.DataFrame(rows, columns=["host", "command", "executed", "ok", "output"])


def stated_settings(testbed: Testbed | None, system: System) -> pd.DataFrame:
    """Ask the hosts for what a system's file states of them (its checks with `when: plan`). Nothing is changed.

    Parameters
    ----------
    testbed : Testbed or None
        Whose hosts are asked. Without one the settings are listed, and nobody is asked.
    system : System
        The system whose file states them.

    Returns
    -------
    DataFrame
        setting, host (without a testbed the place), command, expected (a regular expression), answer, ok; one row for
        each setting and host. `ok` is None where nobody was asked, False where the answer does not match or none came.

    Examples
    --------
    >>> hci.stated_settings(None, hci.load_system("params/systems/ceph-pve.yaml"))["setting"].tolist()
    ['osds-per-drive', 'pool-size', 'placement-groups', 'mclock-profile']
    """
    stated = system.asked("plan")
    rows: list[tuple] = [(name, ", ".join(how.on), how.run, how.expect, "", None) for name, how in stated.items()]
    if testbed is not None and stated:
        with Fleet(testbed) as fleet:
            answers = ask(fleet, testbed, stated)
        rows = [(a.check, a.host, a.run, stated[a.check].expect, a.said.strip(), a.ok) for a in answers]
    return pd.DataFrame(rows, columns=["setting", "host", "command", "expected", "answer", "ok"])
