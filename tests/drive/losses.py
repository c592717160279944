"""What is done to real replicated systems under stamped writes: failures that lose nothing where the system keeps what
it acknowledges, and power failures with and without what makes it lose."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from probes import until
from stamps import read_back, stamped_writes

import hcilib as hci
from hcilab.actions import of_box, replicas_of_box
from hcilab.cluster import Cluster, running
from hcilib.drive.beds import Actions
from hcilib.drive.guard import guard
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.testbed import Testbed

DRIVE_BYTES, SPAN = 32 * 2**20, 128 * 2**10
PATIENCE_S, CUT_S = 120.0, 0.4  # the other node is given up after 1.5 s


@dataclass(frozen=True)
class Loss:
    """One power failure of node2, whose drives have volatile caches. `read`: which copies are read back, of whose
    blocks."""

    system: str
    read: str
    protocol: str = "C"
    drive_cache: str = "volatile"
    event: str = "kill-node2"
    loses: bool = False


CONTROLS = (
    Loss("box-drbd", "node1's copy of node2's volume", "A", event="cut-link, kill-node2", loses=True),
    Loss("box-drbd", "node1's copy of node2's volume", "C", event="cut-link, kill-node2"),
    Loss("box-raid5", "node2's volume", drive_cache="unsafe", loses=True),
    Loss("box-raid5", "node2's volume"),
    Loss("box-drbd", "node2's copy of node1's volume", drive_cache="unsafe", loses=True),
    Loss("box-drbd", "node2's copy of node1's volume"),
)
"""What must be seen to lose, each beside the same without its cause: an asynchronous replica, flushes that a node
ignores, and a replica whose flushes are ignored and which is taken for up to date afterwards."""


EVENTS = {
    "cut-link": "heal-link",
    "kill-node2": "revive-node2",
    "fail-drive": "replace-drive",
    "kill-osd1": "start-osd1",
}
"""What is done, and what heals it."""


def survived(event: str, bed: Testbed, actions: Actions, run_dir: Path) -> pd.DataFrame:
    """The verdicts of one failure of a running system, its first VM writing before, during and after it."""
    [(vm, disk)] = bed.targets(1, 1)
    with Fleet(bed) as fleet:
        device = disk.uri or guard.disks_to_lease(fleet, bed, 1, 1, [vm])[vm][disk.serial].path
        with stamped_writes(fleet, bed, run_dir, consent=bed.consent, span_bytes=SPAN, limit_s=400):
            _until_written(run_dir, [(vm, disk.serial)], 1)
            actions.do[event](fleet)
            _until_written(run_dir, [(vm, disk.serial)], 2)
            actions.do[EVENTS[event]](fleet)
            until_whole(actions, fleet)
            _until_written(run_dir, [(vm, disk.serial)], 3)
        read_back(fleet, bed, run_dir, {(vm, disk.serial): (vm, device)}, span_bytes=SPAN)
        for name, its in actions.replicas.items():
            read_back(fleet, bed, run_dir, {(vm, disk.serial): its[vm, disk.serial]}, span_bytes=SPAN, replica=name)
    return hci.integrity(run_dir)


def suffered(loss: Loss, folder: Path) -> pd.DataFrame:
    """The verdicts of one power failure."""
    with running(loss.system, drives=3, drive_bytes=DRIVE_BYTES, drive_cache=loss.drive_cache, protocol=loss.protocol,
                 root=folder) as box:  # fmt: skip
        run_dir, owners = folder / "run", [(vm.name, disk.serial) for vm in box.testbed.vms for disk in vm.disks]
        with Fleet(box.testbed) as fleet:
            with stamped_writes(
                fleet, box.testbed, run_dir, consent=box.testbed.consent, span_bytes=SPAN, limit_s=120, vms=2
            ):
                _until_written(run_dir, owners, 2)
                if "cut-link" in loss.event:
                    box.cut_link()
                    time.sleep(CUT_S)
                box.kill("node2")
            if loss.event == "kill-node2":
                box.revive("node2")
                until_whole(of_box(box), fleet)
            read_back(fleet, box.testbed, run_dir, _places(loss, box, owners), span_bytes=SPAN, replica=loss.read)
        return hci.integrity(run_dir)


def _places(loss: Loss, box: Cluster, owners: list[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, str]]:
    """Where the copy that the case names is read."""
    if loss.system == "box-raid5":
        return {owners[1]: ("node2", "/dev/md0")}
    reader, of = ("node1", owners[1]) if loss.read.startswith("node1") else ("node2", owners[0])
    return {of: replicas_of_box(box)[reader][of]}


def _until_written(run_dir: Path, owners: list[tuple[str, str]], more: int) -> None:
    """So many writes for each block of every disk."""
    file, least = run_dir / "integrity" / "writes.csv", more * SPAN // 4096

    def written() -> bool:
        lines = file.read_text().splitlines()
        return all(sum(f",{vm},{serial}," in line for line in lines) > least for vm, serial in owners)

    assert until(written, PATIENCE_S, 0.1), f"{file}: too few writes in {PATIENCE_S:g} s"


def until_whole(actions: Actions, fleet: Fleet) -> None:
    """md rebuilds at 1 MB/s beside other I/O unless it is told to hurry."""
    fleet.run("f=/proc/sys/dev/raid/speed_limit_min; [ ! -e $f ] || echo 200000 >$f")
    assert until(lambda: not actions.missing(fleet), PATIENCE_S, 0.5), actions.missing(fleet)
