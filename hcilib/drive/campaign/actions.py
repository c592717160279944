"""What can be done to a system, by name: the failures of the clusters on this machine, and the commands of a system's
file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from hcilib.drive.beds import ceph, librados
from hcilib.drive.beds.cluster import Cluster
from hcilib.drive.campaign.events import Actions
from hcilib.drive.hosts.commands import execute_all, tasks
from hcilib.drive.hosts.hosts import Fleet, need
from hcilib.system import Command, Failures, System
from hcilib.testbed import Testbed

OF_BOX = {
    "box-drbd": ("cut-link", "kill-node2", "fail-drive"), "box-nvme-tcp": ("cut-link", "fail-drive"),
    "box-nvme-remote": ("cut-link", "fail-drive"), "box-raid5": ("fail-drive",), "box-drive": (),
}  # fmt: skip
CHECK_S, COMMAND_S = 20.0, 120.0
_WHOLE_DRBD = re.compile(r"cs:Connected ro:\S+ ds:UpToDate/UpToDate")


def actions_of(testbed: Testbed, system: System) -> Actions:
    """The actions that a running testbed of this machine offers, or those that the system's file names.

    A Ceph cluster (hcilib.drive.beds.ceph): kill-osdN and start-osdN. Nothing is done, and no host asked, before an
    action is called.
    """
    if testbed.lab_root and testbed.fio.ioengine == "rbd":
        return _of_ceph(testbed)
    if system.failures:
        return _of_file(testbed, system.failures)
    return Actions({}, {}, lambda fleet: "")


def of_box(box: Cluster) -> Actions:
    """Of a cluster in a box, as far as its system can take it and come back: cut-link and heal-link, kill-node2 and
    revive-node2, fail-drive and replace-drive (of node1)."""
    pairs: dict[str, tuple[str, Callable[[], object], Callable[[], object]]] = {
        "cut-link": ("heal-link", box.cut_link, box.heal_link),
        "kill-node2": ("revive-node2", partial(box.kill, "node2"), partial(box.revive, "node2")),
        "fail-drive": ("replace-drive", partial(box.fail_drive, "node1"), partial(box.replace_drive, "node1")),
    }
    pairs = {name: pair for name, pair in pairs.items() if name in OF_BOX[box.system]}
    do = {name: _without_fleet(action) for name, (_, action, _) in pairs.items()}
    back = {name: _without_fleet(action) for name, _, action in pairs.values()}
    nodes = [node.name for node in box.testbed.nodes]
    undo = {name: pair[0] for name, pair in pairs.items()}
    return Actions(do | back, undo, lambda fleet: _missing_of_box(fleet, nodes), replicas_of_box(box))


def replicas_of_box(box: Cluster) -> dict[str, dict[tuple[str, str], tuple[str, str]]]:
    """Of DRBD both copies of every volume: below the replication, where each node's data begins at the same byte."""
    if box.system != "box-drbd":
        return {}
    disks = [(vm.name, disk.serial) for vm in box.testbed.vms for disk in vm.disks]
    copies = {of: f"/dev/mapper/vol{number}" for number, of in enumerate(disks, 1)}
    return {node.name: {of: (node.name, copy) for of, copy in copies.items()} for node in box.testbed.nodes}


def _without_fleet(action: Callable[[], object]) -> Callable[[Fleet], object]:
    return lambda fleet: action()


def _missing_of_box(fleet: Fleet, nodes: Sequence[str]) -> str:
    """By the kernels' own words: every DRBD connected and up to date on both sides, every array complete and not
    rebuilding."""
    answers = fleet.run("cat /proc/mdstat; ! [ -e /proc/drbd ] || cat /proc/drbd", nodes, limit_s=CHECK_S)
    short = {name: _missing_of_node(o.value) if o.ok else o.error for name, o in answers.items()}
    return "; ".join(f"{name}: {missing}" for name, missing in short.items() if missing)


def _missing_of_node(said: str) -> str:
    legs = [line.strip() for line in said.splitlines() if re.search(r" cs:", line) and not _WHOLE_DRBD.search(line)]
    arrays = re.findall(r"\[\d+/\d+\] \[[U_]*_[U_]*\]|(?:recovery|resync|check) *= *(?:[\d.]+%|PENDING|DELAYED)", said)
    return ", ".join([*(" ".join(leg.split()[1:4]) for leg in legs), *arrays])


def _of_ceph(testbed: Testbed) -> Actions:
    config, osds = ceph.config_of(testbed), range(len(testbed.nodes))
    kill = {f"kill-osd{i}": _of_osd(ceph.kill_osd, testbed, i) for i in osds}
    start = {f"start-osd{i}": _of_osd(ceph.start_osd, testbed, i) for i in osds}
    return Actions(kill | start, dict(zip(kill, start, strict=True)), lambda fleet: _missing_of_ceph(config))


def _of_osd(action: Callable, testbed: Testbed, osd: int) -> Callable[[Fleet], object]:
    return lambda fleet: action(fleet, testbed, osd)


def _missing_of_ceph(config) -> str:
    with librados.Monitor(config) as monitor:
        now = ceph.state(monitor)
    if ceph.is_whole(now):
        return ""
    return f"{now['osds_up']} of {now['osds']} OSDs up, {now['groups_clean']} of {now['groups']} placement groups clean"


def _of_file(testbed: Testbed, failures: Failures) -> Actions:
    do = {name: _of_command(testbed, action) for name, action in failures.actions.items()}
    undo = {name: action.undo for name, action in failures.actions.items() if action.undo}
    return Actions(do, undo, lambda fleet: _missing_of_file(fleet, testbed, failures))


def _of_command(testbed: Testbed, command: Command) -> Callable[[Fleet], object]:
    def run(fleet: Fleet) -> None:
        outcomes = execute_all(fleet, tasks(command, testbed, testbed.vms), COMMAND_S)
        need(f"`{command.run}`", {task.host: outcome for task, outcome in outcomes.items()})

    return run


def _missing_of_file(fleet: Fleet, testbed: Testbed, failures: Failures) -> str:
    """Every host on which the check runs must say what it expects."""
    answers = execute_all(fleet, tasks(failures.whole, testbed, testbed.vms), CHECK_S)
    short = [
        f"{task.host}: {' '.join((o.value or '').split())[:200] or o.error or 'nothing'}"
        for task, o in answers.items()
        if not o.ok or not re.search(failures.whole.expect, o.value, re.MULTILINE)
    ]
    return "; ".join(short)
