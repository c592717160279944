"""Stamped blocks without a campaign: on the first disk of some VMs, from its begin."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

from hcilib.drive.campaign import integrity
from hcilib.drive.guard import guard
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.hosts.lease import Lease
from hcilib.model.places import INTEGRITY
from hcilib.model.testbed import Testbed


@contextlib.contextmanager
def stamped_writes(
    fleet: Fleet, testbed: Testbed, run_dir: Path, *, consent: str | None, span_bytes: int, limit_s: float, vms: int = 1
) -> Iterator[Lease]:
    """Writers on the first disk of each of the first `vms` VMs, while the block runs and until `limit_s` at most. A
    writer whose VM dies is an end like others: what it acknowledged is known."""
    guard.require(testbed, vms, 1, consent)
    targets = testbed.targets(vms, 1)
    disks = functools.partial(guard.disks_to_lease, fleet, testbed, vms, 1)
    with Lease(fleet, testbed, testbed.vms[:vms], run_dir, disks=disks) as lease:
        guard.identify(fleet, testbed, vms, 1, lease, consent)
        for vm, disk in targets:
            if disk.uri:
                lease.take(vm, disk.serial, disk.uri, "rbd")
        written = [(vm, disk.serial) for vm, disk in targets]
        with integrity.writers(lease, _alone(run_dir, span_bytes), written, limit_s):
            yield lease


def read_back(
    fleet: Fleet, testbed: Testbed, run_dir: Path, devices: integrity.Disks, *, span_bytes: int, replica: str = "system"
) -> None:
    """Every block as it is now. A host that cannot be read gives blocks that are unreadable, not none."""
    with Lease(fleet, testbed, testbed.vms, run_dir) as lease:
        integrity.read_back(lease, _alone(run_dir, span_bytes), devices, replica)


def _alone(run_dir: Path, span_bytes: int) -> integrity.Stamped:
    name = run_dir.resolve().name
    return integrity.Stamped(run_dir / INTEGRITY, name, name, span_bytes)
