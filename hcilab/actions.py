"""What can be done to a bed while it is measured, and what keeps it from being whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from hcilab import ceph
from hcilab.ceph_cluster import Monitor, is_whole, state
from hcilab.cluster import Cluster
from hcilib.drive.beds import Actions
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.testbed import Testbed

CHECK_S = 20.0
OF_BOX = {
    "box-drbd": ("cut-link", "kill-node2", "fail-drive"), "box-nvme-tcp": ("cut-link", "fail-drive"),
    "box-nvme-remote": ("cut-link", "fail-drive"), "box-raid5": ("fail-drive",), "box-drive": (),
    "box-mirror3": (), "box-mirror3-remote": (),
}  # fmt: skip
_WHOLE_DRBD = re.compile(r"cs:Connected ro:\S+ ds:UpToDate/UpToDate")


def of_box(box: Cluster) -> Actions:
    """Of a cluster in a box, as far as its system can take it and come back: cut-link and heal-link, kill-node2 and
    revive-node2, fail-drive and replace-drive (of node1)."""
    pairs: dict[str, tuple[str, Callable[[], object], Callable[[], object]]] = {
        "cut-link": ("heal-link", box.cut_link, box.heal_link),
        "kill-node2": ("revive-node2", partial(box.kill, "node2"), partial(box.revive, "node2")),
        "fail-drive": ("replace-drive", partial(box.fail_drive, "node1"), partial(box.replace_drive, "node1")),
    }
    pairs = {name: pair for name, pair in pairs.items() if name in OF_BOX[box.system]}
    do = {name: partial(_without_fleet, action) for name, (_, action, _) in pairs.items()}
    back = {name: partial(_without_fleet, action) for name, _, action in pairs.values()}
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


def _without_fleet(action: Callable[[], object], _: Fleet) -> object:
    return action()


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


def of_ceph(testbed: Testbed) -> Actions:
    """Of a Ceph cluster: kill-osdN and start-osdN."""
    config, osds = ceph.config_of(testbed), range(len(testbed.nodes))
    kill = {f"kill-osd{i}": partial(ceph.kill_osd, testbed=testbed, osd=i) for i in osds}
    start = {f"start-osd{i}": partial(ceph.start_osd, testbed=testbed, osd=i) for i in osds}
    return Actions(kill | start, dict(zip(kill, start, strict=True)), lambda fleet: _missing_of_ceph(config))


def _missing_of_ceph(config) -> str:
    with Monitor(config) as monitor:
        now = state(monitor)
    if is_whole(now):
        return ""
    return f"{now['osds_up']} of {now['osds']} OSDs up, {now['groups_clean']} of {now['groups']} placement groups clean"
