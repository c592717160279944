"""The guard's judgement of block devices of real hosts: which device a serial is, and whether it may be overwritten.

No exception is made for a disk that this campaign has filled before: its random bytes are judged like any others when
the campaign starts and when it resumes. None of 1180 random fills looked like a signature to blkid 2.38; should one do
so, the refusal names it and says how to clear it. A step in between asks for identity and use, which random bytes
cannot imitate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hcilib.drive.guard.devices import CONTENT, END, INVENTORY, Device, DevicesError, Inventory, find, parse
from hcilib.drive.guard.guard import GuardError, Refusal, refusals
from hcilib.drive.hosts.hosts import Fleet, Outcome
from hcilib.testbed import Disk, Testbed

Guarded = dict[str, dict[str, Device]]
"""VM -> serial -> the one device that carries it."""

LIMIT_S = 60
_BOOT = ("/", "/boot", "/boot/efi", "/efi", "/usr")


def identify(fleet: Fleet, testbed: Testbed, vms: int, numjobs: int, consent: str | None = None) -> Guarded:
    """Every device that a plan may write, resolved and judged on its own host; {} for a lab, whose disks are its own
    exports.

    Raises
    ------
    GuardError : with every refusal, of every host; nothing was written
    """
    refused = refusals(testbed, vms, numjobs, consent)
    found: Guarded = {}
    if not testbed.lab_root:
        inventories = inventory(fleet, {name for name, _ in testbed.targets(vms, numjobs)} - testbed.windows)
        found, more = judge(testbed, vms, numjobs, inventories)
        refused += more
    if refused:
        raise GuardError(refused)
    return found


def unchanged(fleet: Fleet, guarded: Guarded, vms: Iterable[str]) -> dict[str, str]:
    """Serial -> path for fio, once every device of these VMs has proved to be the one that was judged; GuardError if
    one has not."""
    vms = list(vms)
    if refused := recheck(fleet, guarded, vms):
        raise GuardError(refused)
    return {serial: device.path for vm in vms for serial, device in guarded.get(vm, {}).items()}


def recheck(fleet: Fleet, before: Guarded, vms: Iterable[str]) -> list[Refusal]:
    """Whether the devices are still the ones that were judged, and still unused; one short command a VM, asked before
    every step."""
    before = {vm: before[vm] for vm in vms if vm in before}
    inventories = inventory(fleet, before, content=False) if before else {}
    after: Guarded = {}
    refused = []
    for vm, devices in before.items():
        known = inventories[vm]
        if isinstance(known, str):
            refused += [Refusal(vm, serial, f"its host could not be asked again: {known}") for serial in devices]
            after[vm] = devices
            continue
        after[vm] = {serial: found[0] for serial in devices if len(found := find(known, serial)) == 1}
        refused += [Refusal(vm, serial, reason) for serial, device in after[vm].items() for reason in _in_use(device)]
    return same(before, after) + refused


def same(before: Guarded, after: Guarded) -> list[Refusal]:
    """A refusal for every device that is not, by number, size, serial and the kernel's disk sequence, the one it
    was."""
    refused = []
    for vm, serial, was in ((vm, serial, was) for vm, devices in before.items() for serial, was in devices.items()):
        now = after.get(vm, {}).get(serial)
        if now is None:
            refused.append(
                Refusal(
                    vm, serial, f"{was.path} ({was.name}) vanished, or is no longer the only one: it was checked before"
                )
            )
        elif changed := _changes(was, now):
            refused.append(
                Refusal(
                    vm, serial, f"{was.path} came back as another device since it was checked: {', '.join(changed)}"
                )
            )
    return refused


def _changes(was: Device, now: Device) -> list[str]:
    pairs = [
        ("number", was.number, now.number),
        ("bytes", was.size_bytes, now.size_bytes),
        ("path", was.path, now.path),
        ("identifiers", sorted(was.identifiers), sorted(now.identifiers)),
        ("disk sequence", was.sequence, now.sequence),
    ]
    return [f"{what} {old} is now {new}" for what, old, new in pairs if old != new]


def inventory(fleet: Fleet, vms: Iterable[str], content: bool = True) -> dict[str, Inventory | str]:
    """VM -> its devices, or one sentence on why they are not known."""
    return {
        vm: read_inventory(o) for vm, o in fleet.run(INVENTORY + CONTENT * content + END, vms, limit_s=LIMIT_S).items()
    }


def read_inventory(outcome: Outcome) -> Inventory | str:
    """The inventory in one host's answer; the script itself, which a failure would quote, is left out of the
    sentence."""
    if not outcome.ok:
        head, _, tail = outcome.error.rpartition("` ")
        return f"its devices could not be listed: {tail if head else outcome.error}"
    try:
        return parse(outcome.value)
    except DevicesError as error:
        return f"its devices could not be listed: {error}"


def judge(
    testbed: Testbed, vms: int, numjobs: int, inventories: Mapping[str, Inventory | str]
) -> tuple[Guarded, list[Refusal]]:
    """Every target that was found exactly once, allowed or not, and every reason against writing one. Asks nobody."""
    found: Guarded = {}
    refused = []
    for vm, disk in testbed.targets(vms, numjobs):
        known = inventories.get(vm, "its host was not asked")
        devices = [] if isinstance(known, str) else find(known, disk.serial)
        if len(devices) == 1:
            found.setdefault(vm, {})[disk.serial] = devices[0]
        refused += [Refusal(vm, disk.serial, reason) for reason in _objections(disk, devices, known)]
    return found, refused + _shared(found, inventories)


def _objections(disk: Disk, devices: list[Device], known: Inventory | str) -> list[str]:
    if isinstance(known, str):
        return [known]
    if disk.serial in known.astray:
        return [
            (
                f"/dev/disk/by-id/{disk.serial} leads to {known.astray[disk.serial]}, which is no block device: fio "
                "would fill a file"
            )
        ]
    if not devices:
        return [f"no device of this host has this serial, WWN or by-id link; it has {_catalogue(known)}"]
    if len(devices) > 1:
        return [
            (
                f"{len(devices)} devices have this serial, WWN or by-id link: {', '.join(d.name for d in devices)}; "
                "give each disk its own"
            )
        ]
    [device] = devices
    reasons = _in_use(device) + _content(device)
    if device.size_bytes != disk.size_bytes:
        reasons.insert(0, f"{device.name} has {device.size_bytes} bytes where the testbed says {disk.size_bytes}")
    return reasons


def _in_use(device: Device) -> list[str]:
    """What someone has made of the device; asked again before every step."""
    name = device.name
    boot = [_at(m, device) for m in device.mounts if m[0] in _BOOT]
    reasons = [f"{name} is the boot disk: it carries {', '.join(boot)}"] if boot else []
    reasons += [f"{name} is in use as swap{_through(m, device)}" for m in device.mounts if m[0] == "[SWAP]"]
    reasons += [f"{name} is mounted on {_at(m, device)}" for m in device.mounts if m[0] not in (*_BOOT, "[SWAP]")]
    reasons += [f"{name} is a partition, not a whole disk"] if device.partition else []
    reasons += [f"{name} has partition(s) {', '.join(device.partitions)}"] if device.partitions else []
    reasons += (
        [f"{name} is held by {', '.join(device.holders)} (LVM, md, multipath, bcache or the like)"]
        if device.holders
        else []
    )
    if device.slaves and not device.stack:  # an array or a DRBD device has an identity of its own, a mapping has none
        reasons.append(f"{name} is built on {', '.join(device.slaves)}: name the disk itself")
    if device.role not in ("", "Primary"):
        reasons.append(
            f"{name} is {device.role} here: another node may be writing this DRBD resource; name it where it is Primary"
        )
    reasons += [f"{name} is exported to other hosts ({entry})" for entry in device.exports]
    return reasons + ([f"{name} is read-only"] if device.read_only else [])


def _content(device: Device) -> list[str]:
    """What is written on the device, and who is writing there."""
    reasons = [f"{device.name} is open for writing by {writer}" for writer in device.writers]
    if device.claimed and not _in_use(device):
        reasons.append(
            f"{device.name} is held by the kernel: mounted where this user cannot see it, or opened exclusively"
        )
    if device.signatures:
        idle = not (reasons or _in_use(device))  # a command that destroys is never suggested for what someone uses
        hint = f"; if nothing on it is needed, clear it on the host with `wipefs --all {device.path}`" if idle else ""
        reasons.append(f"{device.name} carries {', '.join(device.signatures)}{hint}")
    if device.unjudged != "":
        reasons.append(f"{device.name}: {device.unjudged or 'its content was not looked at'}")
    return reasons


def _at(mount: tuple[str, str], device: Device) -> str:
    return mount[0] + _through(mount, device)


def _through(mount: tuple[str, str], device: Device) -> str:
    return "" if mount[1] == device.name else f" (through {mount[1]})"


def _catalogue(known: Inventory, most: int = 8) -> str:
    disks = [d for d in known.devices.values() if d.size_bytes and not d.partition and (d.stack or not d.slaves)]
    shown = [
        f"{d.name} ({', '.join(sorted(d.identifiers)) or 'no serial'}, {d.size_bytes} bytes)" for d in disks[:most]
    ]
    return (
        ", ".join(shown) + (f" and {len(disks) - most} more" if len(disks) > most else "")
        if disks
        else "no disk at all"
    )


def _shared(found: Guarded, inventories: Mapping[str, Inventory | str]) -> list[Refusal]:
    """A disk that another VM of the plan sees too: two campaigns' jobs, or a cluster file system, would meet on it."""
    seen: dict[str, list[str]] = {}
    for vm, known in inventories.items():
        for device in () if isinstance(known, str) else known.devices.values():
            closed = device.partition or device.role == "Secondary"  # DRBD lets nobody open it
            for identifier in () if closed else device.identifiers:
                seen.setdefault(identifier, []).append(f"{vm} ({device.name})")
    refused = []
    for vm, serial, device in ((vm, serial, d) for vm, devices in found.items() for serial, d in devices.items()):
        others = sorted(
            {place for i in device.identifiers for place in seen.get(i, ()) if not place.startswith(f"{vm} (")}
        )
        if others:
            refused.append(
                Refusal(
                    vm,
                    serial,
                    f"{device.name} has the serial or WWN of {', '.join(others)}: a "
                    "shared disk, or one "
                    "number given twice",
                )
            )
    return refused
