"""A system's own commands: where each runs, for which VM, and what came of it."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from hcilib.drive.hosts.hosts import Fleet, Outcome
from hcilib.model.system import ANY_TESTBEDS, Command, Health, System
from hcilib.model.testbed import Testbed, Vm

CONTROLLER, LIMIT_S = "controller", 600.0
_PLACES = ("{vm}", "{node}", "{other}")


@dataclass(frozen=True)
class Task:
    """One command on one host; `vm` is the VM it is about, empty when it is about none."""

    host: str
    run: str
    vm: str = ""


def prepare(testbed: Testbed, system: System, execute: bool = False) -> pd.DataFrame:
    """The tuning that a system's file prescribes (its field `prepare`): shown, and run only on request.

    The commands run in the file's order, each on all its hosts at once; after one that fails nothing more is run.

    Returns
    -------
    DataFrame : host, command, executed, ok, output; one row a command and host. `ok` is None where it was not executed;
        `output` is what it printed, or why it failed
    """
    steps = [tasks(command, testbed, testbed.vms) for command in system.prepare]
    if not execute:
        return _table([(task, None) for step in steps for task in step])
    done: list[tuple[Task, Outcome | None]] = []
    with Fleet(testbed) as fleet:
        for step in steps:
            failed = any(outcome and not outcome.ok for _, outcome in done)
            done += [(task, None) for task in step] if failed else list(execute_all(fleet, step).items())
    return _table(done)


def stated_settings(testbed: Testbed | None, system: System) -> pd.DataFrame:
    """Ask the hosts for the settings that a system's file states (its field `stated`). Nothing is changed.

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
    columns = ["setting", "host", "command", "expected", "answer", "ok"]
    if testbed is None or not system.stated:
        listed = [(name, how.on, how.run, how.expect, "", None) for name, how in system.stated.items()]
        return pd.DataFrame(listed, columns=columns)
    rows = []
    with Fleet(testbed) as fleet:
        for name, how in system.stated.items():
            for task, outcome in execute_all(fleet, tasks(how, testbed, testbed.vms)).items():
                answer = (outcome.value or outcome.error or "").strip()
                seen = outcome.ok and re.search(how.expect, outcome.value or "", re.MULTILINE) is not None
                rows.append((name, task.host, task.run, how.expect, answer, seen))
    return pd.DataFrame(rows, columns=columns)


def _table(done: Sequence[tuple[Task, Outcome | None]]) -> pd.DataFrame:
    came = [(True, o.ok, (o.value or o.error).strip()) if o else (False, None, "") for _, o in done]
    rows = [(task.host, task.run, *its) for (task, _), its in zip(done, came, strict=True)]
    return pd.DataFrame(rows, columns=["host", "command", "executed", "ok", "output"])


def tasks(command: Command | Health, testbed: Testbed, vms: Sequence[Vm]) -> list[Task]:
    """Where a command runs; one that speaks of a VM or its node runs once for each of `vms` (see
    hcilib.model.system.Placement)."""
    if not any(place in command.run for place in _PLACES):
        return [Task(host, command.run) for host in _hosts(command, testbed, vms)]
    hosts = {"nodes": lambda vm: vm.node, "vms": lambda vm: vm.name}
    on = command.on if isinstance(command.on, str) else command.on[0]
    where = hosts.get(on, lambda _: _hosts(command, testbed, vms)[0])
    return [Task(where(vm), fill(command.run, vm, testbed, shlex.quote), vm.name) for vm in vms]


def fill(text: str, vm: Vm, testbed: Testbed, quoted: Callable[[str], str]) -> str:
    """The text with {vm}, {node} and {other} replaced by names as `quoted` (for a shell, for a regular expression)
    writes them.

    Other braces stay as they are: the text is its author's own, and nothing but a host's name gets into it.
    """
    names = [node.name for node in testbed.nodes]
    other = names[(names.index(vm.node) + 1) % len(names)]
    for place, name in zip(_PLACES, (vm.name, vm.node, other), strict=True):
        text = text.replace(place, quoted(name))
    return text


def _hosts(command: Command | Health, testbed: Testbed, vms: Sequence[Vm]) -> list[str]:
    if not isinstance(command.on, str):
        return [host for on in command.on for host in _hosts_at(on, testbed, vms)]
    return _hosts_at(command.on, testbed, vms)


def _hosts_at(on: str, testbed: Testbed, vms: Sequence[Vm]) -> list[str]:
    if on == CONTROLLER or on not in ANY_TESTBEDS:
        return [on]
    every = testbed.nodes if on.startswith("node") else vms
    return [host.name for host in (every if on.endswith("s") else every[:1])]


def execute_all(fleet: Fleet, todo: Sequence[Task], limit_s: float = LIMIT_S) -> dict[Task, Outcome]:
    """Task -> what came of it; one at a time on a host, all hosts at once."""
    outcomes: dict[Task, Outcome] = {}
    left = list(dict.fromkeys(todo))
    while left:
        now = list({task.host: task for task in reversed(left)}.values())  # the first of every host
        left = [task for task in left if task not in now]
        remote = fleet.run({task.host: task.run for task in now if task.host != CONTROLLER}, limit_s=limit_s)
        outcomes |= {task: remote[task.host] if task.host != CONTROLLER else _here(task.run, limit_s) for task in now}
    return {task: outcomes[task] for task in dict.fromkeys(todo)}


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
