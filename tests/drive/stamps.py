"""Stamped blocks without a campaign: on the first disk of some VMs, from its begin."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from hcilib import Testbed
from hcilib.drive.campaign import integrity
from hcilib.drive.guard import guard
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.places import INTEGRITY


@contextlib.contextmanager
def stamped_writes(
    fleet: Fleet, testbed: Testbed, run_dir: Path, *, consent: str | None, span_bytes: int, limit_s: float, vms: int = 1
) -> Iterator[None]:
    """Writers on the first disk of each of the first `vms` VMs, while the block runs and until `limit_s` at most. A
    writer whose VM dies is an end like others: what it acknowledged is known."""
    guard.require(testbed, vms, 1, consent)
    guarded = guard.identify(fleet, testbed, vms, 1, consent)
    targets = testbed.targets(vms, 1)
    integrity.require_python(fleet, dict.fromkeys(vm for vm, _ in targets))
    paths = guard.unchanged(fleet, guarded, guarded)
    devices = {(vm, disk.serial): disk.uri or paths[disk.serial] for vm, disk in targets}
    with integrity.writers(fleet, _alone(run_dir, span_bytes), devices, limit_s):
        yield


def read_back(
    fleet: Fleet, run_dir: Path, devices: integrity.Disks, *, span_bytes: int, replica: str = "system"
) -> None:
    """Every block as it is now. A host that cannot be read gives blocks that are unreadable, not none."""
    integrity.read_back(fleet, _alone(run_dir, span_bytes), devices, replica)


def _alone(run_dir: Path, span_bytes: int) -> integrity.Stamped:
    name = run_dir.resolve().name
    return integrity.Stamped(run_dir / INTEGRITY, name, name, span_bytes)
