"""Stand-in hardware: testbeds that this machine can be, such as the embedded lab.

A package registers a bed as an entry point of the group `hcilib.beds`, under the name of the section by which a testbed
file asks for it (`lab`, `ceph`, `box`). hcilib drives what a bed starts as it drives any other testbed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.plan import Plan
from hcilib.model.testbed import Disk, Testbed
from hcilib.model.yaml_models import TestbedError

GROUP = "hcilib.beds"


@dataclass(frozen=True)
class Actions:
    """What can be done to one system. `missing`: what keeps it from being whole, in words, empty when nothing does.

    `undo` : action -> the one that takes it back. An action that is left standing when a step ends is taken back then.
    `replicas` : name of a copy -> where each disk's is read, beside the system itself
        (hcilib.drive.campaign.integrity.Disks).
    """

    do: Mapping[str, Callable[[Fleet], object]]
    undo: Mapping[str, str]
    missing: Callable[[Fleet], str]
    replicas: Mapping[str, Mapping[tuple[str, str], tuple[str, str]]] = field(default_factory=dict)


Row = tuple[str, str, bool, str, str]
"""Of preflight: host, check, whether it is well, what is there, and what would be well."""
Started = contextlib.AbstractContextManager[tuple[Testbed, Actions | None]]


@dataclass(frozen=True)
class Bed:
    """What hcilib asks of a bed.

    Parameters
    ----------
    judge : lists every reason against writing a disk of a running testbed; no host is asked
    open : starts what the testbed file's section asks for and stops it at the end of the block. It
        yields the running testbed, and its actions where only the process that started it can do
        them
    actions : what can be done to a testbed of this bed that runs already; None: what the system's
        file names
    fill : lifts the set speed of the drives for the block, so that disks are filled at the
        machine's speed
    ready : further rows of preflight on these (VM, disk); `run_dir` is that of the campaign
    """

    judge: Callable[[Testbed, Disk], list[str]]
    open: Callable[[Testbed, Sequence[str]], Started]
    actions: Callable[[Testbed], Actions | None] = lambda testbed: None
    fill: Callable[[Testbed], contextlib.AbstractContextManager[None]] = lambda testbed: contextlib.nullcontext()
    ready: Callable[[Fleet, Testbed, Plan, Sequence[tuple[str, Disk]], str | Path | None], list[Row]] = lambda *_: []


def bed(name: str) -> Bed:
    """Return the stand-in hardware (such as `lab` or `box`) that a package registers under this name.

    Raises
    ------
    TestbedError : no installed package registers it
    """
    registered = {point.name: point for point in entry_points(group=GROUP)}
    if name not in registered:
        known = ", ".join(sorted(registered)) or "none"
        raise TestbedError(f"bed {name!r} is not installed. Installed beds: {known}. Run make setup.")
    return registered[name].load()


def filling(testbed: Testbed) -> contextlib.AbstractContextManager[None]:
    """Lift the set speed of a bed's drives for the block; of any other testbed change nothing."""
    return bed(testbed.bed).fill(testbed) if testbed.bed else contextlib.nullcontext()


def judge(testbed: Testbed, disk: Disk) -> list[str]:
    """List every reason against writing a disk of a running bed. No host is asked."""
    return bed(str(testbed.bed)).judge(testbed, disk)


def ready(
    fleet: Fleet, testbed: Testbed, plan: Plan, disks: Sequence[tuple[str, Disk]], run_dir: str | Path | None
) -> list[Row]:
    """List the rows that a bed adds to preflight; of any other testbed none."""
    return bed(testbed.bed).ready(fleet, testbed, plan, disks, run_dir) if testbed.bed else []
