"""Which disks of the VMs may be proposed for writing, and why the others may not: the guard's judgement, and stricter
than it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pandas as pd
from pydantic import ValidationError

from hcilib.drive.discover.answers import VmFacts
from hcilib.drive.guard.devices import Device, Inventory, find
from hcilib.drive.guard.guard_devices import judge
from hcilib.testbed import Disk, Node, Testbed, Vm

COLUMNS = ["vm", "device", "serial", "size_bytes", "proposed", "holds", "why"]
_WWN = re.compile("[0-9a-f]{16}|[0-9a-f]{32}")


def disk_table(vms: Mapping[str, VmFacts]) -> pd.DataFrame:
    """Every disk of every VM.

    Returns
    -------
    DataFrame : vm, device, serial ("" where it has none), size_bytes, proposed, holds, why; one row a disk. `proposed`:
        nothing is on it, nobody has it, and its serial is its own; else `why` says what speaks against it. `holds`:
        what is on it
    """
    disks = {vm: _disks(facts.inventory) for vm, facts in vms.items()}
    serials = {(vm, d.name): _serial(d, vms[vm].inventory) for vm, found in disks.items() for d in found}
    against = _judged(vms, disks, serials)
    rows = []
    for vm, found in disks.items():
        for device in found:
            serial = serials[vm, device.name]
            why = list(against.get((vm, serial), ())) if serial else [_NAMELESS]
            if not why and device.name in vms[vm].written:
                why = ["it carries bytes that no tool names: somebody's data, or what an earlier campaign wrote"]
            rows.append((vm, device.name, serial, device.size_bytes, not why, _holds(device), "; ".join(why)))
    return pd.DataFrame(rows, columns=COLUMNS)


_NAMELESS = (
    "it has no serial, WWN or by-id link, so nobody could tell it from another: give it a serial of its own "
    "(libvirt: <serial> "
    "in its <disk>; Proxmox VE: serial=... on its line of `qm set`)"
)


def _disks(known: Inventory) -> list[Device]:
    """Whole disks and what stands for one: no partition, no mapping of another disk, no loop over a file that nobody
    named."""
    whole = [d for d in known.devices.values() if d.size_bytes and not d.partition and (d.stack or not d.slaves)]
    return [
        d
        for d in whole
        if not re.match(r"(?:sr|fd|ram|zram)\d", d.name) and (not d.name.startswith("loop") or d.identifiers)
    ]


def _serial(device: Device, known: Inventory) -> str:
    """The name that a testbed may call it by: a serial before a WWN before a link, and one that is its own before one
    that is not."""
    own = sorted(device.identifiers, key=lambda name: (bool(_WWN.fullmatch(name)), len(name), name))
    fit = [name for name in (*own, *sorted(device.links)) if _fits(name)]
    alone = [name for name in fit if [found.name for found in find(known, name)] == [device.name]]
    return next(iter([*alone, *fit]), "")


def _fits(serial: str) -> bool:
    try:
        return bool(Disk(serial=serial, size_bytes=1))
    except ValidationError:
        return False


def _judged(
    vms: Mapping[str, VmFacts], disks: Mapping[str, list[Device]], serials: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """(vm, serial) -> the guard's reasons, asked as if a plan would write every disk of every VM."""
    fleet = []
    for vm, found in disks.items():
        owned = [Disk(serial=serials[vm, d.name], size_bytes=d.size_bytes) for d in found if serials[vm, d.name]]
        fleet.append(Vm.model_construct(name=vm, node="every", disks=tuple(owned)))
    asked = Testbed.model_construct(name="every", nodes=(Node(name="every"),), vms=tuple(fleet))
    most = max((len(vm.disks) for vm in fleet), default=0)
    _, refused = judge(asked, len(fleet), most, {vm: facts.inventory for vm, facts in vms.items()})
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for refusal in refused:
        reasons.setdefault((refusal.host, refusal.device), {})[refusal.reason] = None
    return {disk: tuple(said) for disk, said in reasons.items()}


def _holds(device: Device) -> str:
    """What is on it, in a few words."""
    said = [*device.signatures, *(f"mounted on {where}" if where != "[SWAP]" else "swap" for where, _ in device.mounts)]
    said += [f"partitions {', '.join(device.partitions)}"] if device.partitions else []
    said += [f"held by {', '.join(device.holders)}"] if device.holders else []
    return ", ".join(dict.fromkeys(said)) or "nothing that is known"
