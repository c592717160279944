"""The guard: decides what of a real host's devices may be overwritten. What it does not know to be safe it refuses.

The disks of a running bed (`lab_root`) are judged by the bed itself (hcilib.drive.beds)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hcilib.drive import beds
from hcilib.drive.guard.devices import END, INVENTORY, Device, DevicesError, Inventory, content_of, find, parse
from hcilib.drive.hosts.hosts import ANSWER_S, Fleet, Outcome
from hcilib.model.testbed import Disk, Testbed

CONSENT = "consent"
"""What stands for the device where the whole testbed is refused."""


@dataclass(frozen=True)
class Refusal:
    """A device that may not be written, and why."""

    host: str
    device: str
    reason: str

    def __str__(self) -> str:
        return f"{self.host}: {self.device}: {self.reason}"


class GuardError(RuntimeError):
    """Nothing was touched: some device may not be overwritten. `refusals` lists them all."""

    def __init__(self, refusals: list[Refusal]):
        self.refusals = refusals
        devices = len({(refused.host, refused.device) for refused in refusals if refused.device != CONSENT})
        what = f"{devices} device(s)" if devices else "any device"
        super().__init__(f"refused to overwrite {what}: " + "; ".join(map(str, refusals)))


def refusals(
    testbed: Testbed,
    listings: Mapping[str, str] | None = None,
    *,
    vms: int | None = None,
    numjobs: int | None = None,
    consent: str | None = None,
    writes: bool = True,
    before: Mapping[str, str] | None = None,
) -> list[Refusal]:
    """List every reason against writing a testbed's disks. No host is asked: the one seam of the guard.

    Parameters
    ----------
    listings : VM -> what INVENTORY, `content_of` and END (hcilib.drive.guard.devices) printed there; None: judge only
        by the testbed and this machine's files
    vms, numjobs : of the plan; all disks of all VMs if left out
    consent : the campaign's token; None: the one of the environment
    writes : False: the disks are only read
    before : listings by which these disks were judged before; then only a disk that is another one now is refused

    Returns
    -------
    list of Refusal : one for each reason; empty: all of them may be written
    """
    vms = len(testbed.vms) if vms is None else vms
    numjobs = max(len(vm.disks) for vm in testbed.vms) if numjobs is None else numjobs
    asked = (testbed, vms, numjobs)
    if before is not None:
        was, now = (judge(*asked, _read(texts), writes)[0] for texts in (before, listings or {}))
        return same(was, now)
    refused = without_hosts(*asked, consent, writes)
    return refused if listings is None else refused + judge(*asked, _read(listings), writes)[1]


def without_hosts(
    testbed: Testbed, vms: int, numjobs: int, consent: str | None = None, writes: bool = True
) -> list[Refusal]:
    """Every refusal that needs no host to be asked (DESIGN section 6): all of them for a lab, for real hosts consent
    and form.

    What a real host's devices are is judged on the host, by :func:`identify`. `consent`: the token; None: the one of
    the environment (`HCI_CONSENT`, or the file that `HCI_CONSENT_FILE` names). A plan that only reads (`writes` False)
    needs none.
    """
    targets = testbed.targets(vms, numjobs)
    if testbed.lab_root:
        return [Refusal(vm, disk.serial, reason) for vm, disk in targets for reason in beds.judge(testbed, disk)]
    forms = [(vm, disk.serial, _judge_form(disk, vm in testbed.windows)) for vm, disk in targets]
    devices = [Refusal(vm, serial, reason) for vm, serial, reasons in forms for reason in reasons]
    return (_judge_consent(testbed, consent or _consent_of_environment()) if writes else []) + devices


def require(testbed: Testbed, vms: int, numjobs: int, consent: str | None = None, writes: bool = True) -> None:
    """GuardError if any device may not be overwritten. Looks at this machine's files alone: no host is touched."""
    refused = without_hosts(testbed, min(vms, len(testbed.vms)), numjobs, consent, writes)
    if refused:
        raise GuardError(refused)


def _consent_of_environment() -> str | None:
    """Return the token that whoever started this process gave it, so that no notebook has to hold it."""
    if not (file := os.environ.get("HCI_CONSENT_FILE")):
        return os.environ.get("HCI_CONSENT")
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = f"HCI_CONSENT_FILE names {file}, which cannot be read ({error})"
        raise GuardError([Refusal("this machine", CONSENT, reason)]) from None


def _judge_consent(testbed: Testbed, consent: str | None) -> list[Refusal]:
    file = f"the file of testbed {testbed.name} (params/testbeds/)"
    scenario = "the line `consent:` of the scenario (params/)"
    if not testbed.consent:
        reason = f"the testbed's field consent is empty: give it a token in {file} and repeat it in {scenario}"
    elif not consent:
        reason = f"no consent was given: repeat the token of {file} (its field consent) in {scenario} or HCI_CONSENT"
    elif consent != testbed.consent:
        reason = "the campaign's consent is not the testbed's field consent: is this the testbed you mean?"
    else:
        return []
    return [Refusal(f"testbed {testbed.name}", CONSENT, reason)]


def _judge_form(disk: Disk, windows: bool) -> list[str]:
    if windows:
        what = "the VM runs Windows, whose disks this version cannot judge, so none is written"
        return [f"{what}: use a Linux VM as load generator"]
    written = "outside the lab only whole disks named by serial are written"
    return [f"its uri {disk.uri} is no block device of the VM; {written}"] if disk.uri else []


# Block devices of real hosts: which device a serial is, and whether it may be overwritten. No exception is made for a
# disk that this campaign has filled before: its random bytes are judged like any others when the campaign starts and
# when it resumes. None of 1180 random fills looked like a signature to blkid 2.38; should one do so, the refusal
# names it and says how to clear it. A step in between asks for identity and use, which random bytes cannot imitate.

Guarded = dict[str, dict[str, Device]]
"""VM -> serial -> the one device that carries it."""

NAMED = 8
BOOT = ("/", "/boot", "/boot/efi", "/efi", "/usr")


def identify(
    fleet: Fleet, testbed: Testbed, vms: int, numjobs: int, consent: str | None = None, writes: bool = True
) -> Guarded:
    """Every device that a plan may write, resolved and judged on its own host; {} for a lab, whose disks are its own
    exports. One that is only read (`writes` False) may be in use and hold data.

    Raises
    ------
    GuardError : with every refusal, of every host; nothing was written
    """
    refused = without_hosts(testbed, vms, numjobs, consent, writes)
    found: Guarded = {}
    if not testbed.lab_root:
        inventories = looked_at(fleet, testbed.targets(vms, numjobs), testbed.windows)
        found, more = judge(testbed, vms, numjobs, inventories, writes)
        refused += more
    if refused:
        raise GuardError(refused)
    return found


def disks_to_lease(
    fleet: Fleet, testbed: Testbed, vms: int, numjobs: int, hosts: Collection[str]
) -> dict[str, dict[str, str] | str]:
    """Find the disks that a plan may write on these hosts; judges none.

    Returns VM -> {number in hexadecimal: path}, or why its devices are not known. A disk that is not
    there, or there twice, is left to :func:`identify`, which refuses it; a lab's have no lock of their own.
    """
    if testbed.lab_root:
        return {}
    targets = [(vm, disk) for vm, disk in testbed.targets(vms, numjobs) if vm in hosts and vm not in testbed.windows]
    known = inventory(fleet, {vm for vm, _ in targets})
    leased: dict[str, dict[str, str] | str] = {vm: own if isinstance(own, str) else {} for vm, own in known.items()}
    for vm, disk in targets:
        found = [] if isinstance(own := known[vm], str) else find(own, disk.serial)
        if len(found) == 1:
            leased[vm] |= {found[0].number_hex: found[0].path}  # type: ignore[operator]
    return leased


def unchanged(fleet: Fleet, guarded: Guarded, vms: Collection[str], writes: bool = True) -> dict[str, str]:
    """Serial -> path for fio, once every device of these VMs has proved to be the one that was judged; GuardError if
    one has not."""
    if refused := recheck(fleet, guarded, vms, writes):
        raise GuardError(refused)
    return {serial: device.path for vm in vms for serial, device in guarded.get(vm, {}).items()}


def recheck(fleet: Fleet, before: Guarded, vms: Iterable[str], writes: bool = True) -> list[Refusal]:
    """Whether the devices are still the ones that were judged, and, where they are written, still unused; one short
    command a VM, asked before every step."""
    before = {vm: before[vm] for vm in vms if vm in before}
    inventories = inventory(fleet, before)
    after: Guarded = {}
    refused = []
    for vm, devices in before.items():
        known = inventories[vm]
        if isinstance(known, str):
            refused += [Refusal(vm, serial, f"its host could not be asked again: {known}") for serial in devices]
            after[vm] = devices
            continue
        after[vm] = {serial: found[0] for serial in devices if len(found := find(known, serial)) == 1}
        used = (
            [(serial, reason) for serial, device in after[vm].items() for reason in _in_use(device)] if writes else []
        )
        refused += [Refusal(vm, serial, reason) for serial, reason in used]
    return same(before, after) + refused


def same(before: Guarded, after: Guarded) -> list[Refusal]:
    """A refusal for every device that is not, by number, size, serial and the kernel's disk sequence, the one it
    was."""
    refused = []
    for vm, serial, was in ((vm, serial, was) for vm, devices in before.items() for serial, was in devices.items()):
        now = after.get(vm, {}).get(serial)
        if now is None:
            why = f"{was.path} ({was.name}) vanished, or is no longer the only one: it was checked before"
            refused.append(Refusal(vm, serial, why))
        elif changed := _changes(was, now):
            why = f"{was.path} came back as another device since it was checked: {', '.join(changed)}"
            refused.append(Refusal(vm, serial, why))
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


def inventory(fleet: Fleet, vms: Iterable[str]) -> dict[str, Inventory | str]:
    """VM -> its devices, or one sentence on why they are not known. None is opened."""
    answers = fleet.run(INVENTORY + END, vms, limit_s=ANSWER_S)
    return {vm: read_inventory(outcome) for vm, outcome in answers.items()}


def looked_at(
    fleet: Fleet, targets: Iterable[tuple[str, Disk]], without: Collection[str] = ()
) -> dict[str, Inventory | str]:
    """The same with what lies on the disks that a plan names. No other device is opened: one that hangs stops nobody.

    `without` : VMs that are not asked
    """
    serials: dict[str, list[str]] = {}
    for vm, disk in targets:
        serials.setdefault(vm, []).append(disk.serial)
    listed = fleet.run(dict.fromkeys(serials.keys() - without, INVENTORY + END), limit_s=ANSWER_S)
    known = {vm: read_inventory(outcome) for vm, outcome in listed.items()}
    found = {
        vm: [device.name for serial in serials[vm] for device in find(own, serial)]
        for vm, own in known.items()
        if not isinstance(own, str)
    }
    asked = {vm: content_of(" ".join(names)) + END for vm, names in found.items() if names}
    for vm, told in fleet.run(asked, limit_s=ANSWER_S).items() if asked else ():
        whole = told if not told.ok else replace(told, value=listed[vm].value.rpartition("==== end")[0] + told.value)
        known[vm] = read_inventory(whole)
    return known


def read_inventory(outcome: Outcome) -> Inventory | str:
    """The inventory in one host's answer; the script itself, which a failure would quote, is left out of the
    sentence."""
    if not outcome.ok:
        head, _, tail = outcome.error.rpartition("` ")
        return f"its devices could not be listed: {tail if head else outcome.error}"
    return _read({outcome.host: outcome.value})[outcome.host]


def _read(listings: Mapping[str, str]) -> dict[str, Inventory | str]:
    """VM -> its devices, or one sentence on why they are not known."""
    found: dict[str, Inventory | str] = {}
    for vm, text in listings.items():
        try:
            found[vm] = parse(text)
        except DevicesError as error:
            found[vm] = f"its devices could not be listed: {error}"
    return found


def judge(
    testbed: Testbed, vms: int, numjobs: int, inventories: Mapping[str, Inventory | str], writes: bool = True
) -> tuple[Guarded, list[Refusal]]:
    """Every target that was found exactly once, allowed or not, and every reason against writing one. Asks nobody."""
    found: Guarded = {}
    refused = []
    for vm, disk in testbed.targets(vms, numjobs):
        known = inventories.get(vm, "its host was not asked")
        devices = [] if isinstance(known, str) else find(known, disk.serial)
        if len(devices) == 1:
            found.setdefault(vm, {})[disk.serial] = devices[0]
        refused += [Refusal(vm, disk.serial, reason) for reason in _objections(disk, devices, known, writes)]
    return found, refused + (_shared(found, inventories) if writes else [])


def _objections(disk: Disk, devices: list[Device], known: Inventory | str, writes: bool) -> list[str]:
    if isinstance(known, str):
        return [known]
    if disk.serial in known.astray:
        where = known.astray[disk.serial]
        return [f"/dev/disk/by-id/{disk.serial} leads to {where}, which is no block device: fio would fill a file"]
    if not devices:
        return [f"no device of this host has this serial, WWN or by-id link; it has {_catalogue(known)}"]
    if len(devices) > 1:
        names = ", ".join(d.name for d in devices)
        return [f"{len(devices)} devices have this serial, WWN or by-id link: {names}; give each disk its own"]
    [device] = devices
    forbidden = known.may_overwrite(device)
    reasons = [forbidden] * bool(forbidden) + _in_use(device) + _content(device) if writes else []
    if writes and device.counted is False:
        switch = f"/sys/block/{device.name}/queue/iostats"
        reasons.append(f"what others write to {device.name} cannot be seen: {switch} is 0. Write 1 into it")
    if not device.flushed:
        root = "fio drops the kernel's cache of a disk first, which asks for root (BLKFLSBUF): log in as root"
        reasons.append(f"{device.name}: this account may not use it as fio does: {root}")
    if device.size_bytes != disk.size_bytes:
        reasons.insert(0, f"{device.name} has {device.size_bytes} bytes where the testbed says {disk.size_bytes}")
    return reasons


def _in_use(device: Device) -> list[str]:
    """What someone has made of the device; asked again before every step."""
    name = device.name
    boot = [_at(m, device) for m in device.mounts if m[0] in BOOT]
    reasons = [f"{name} is the boot disk: it carries {', '.join(boot)}"] if boot else []
    reasons += [f"{name} is in use as swap{_through(m, device)}" for m in device.mounts if m[0] == "[SWAP]"]
    reasons += [f"{name} is mounted on {_at(m, device)}" for m in device.mounts if m[0] not in (*BOOT, "[SWAP]")]
    reasons += [f"{name} is a partition, not a whole disk"] if device.partition else []
    reasons += [f"{name} has partition(s) {', '.join(device.partitions)}"] if device.partitions else []
    holders = ", ".join(device.holders)
    reasons += [f"{name} is held by {holders} (LVM, md, multipath, bcache or the like)"] if holders else []
    if device.slaves and not device.stack:  # an array or a DRBD device has an identity of its own, a mapping has none
        reasons.append(f"{name} is built on {', '.join(device.slaves)}: name the disk itself")
    if device.role not in ("", "Primary"):
        reasons.append(
            f"{name} is {device.role} here: another node may be writing this DRBD resource; name it where it is Primary"
        )
    reasons += [f"{name} is exported to other hosts ({entry})" for entry in device.exports]
    return reasons + ([f"{name} is read-only"] if device.read_only else [])


def _content(device: Device) -> list[str]:
    """What is written on the device, and whether the kernel holds it."""
    reasons = []
    if device.claimed and not _in_use(device):
        reasons.append(
            f"{device.name} is held by the kernel: mounted where this user cannot see it, or opened exclusively"
        )
    if device.signatures:
        idle = not (reasons or _in_use(device))  # a command that destroys is never suggested for what someone uses
        asked = "if nothing on it is needed, and no program uses it"
        hint = f"; {asked}, clear it on the host with `wipefs --all {device.path}`" if idle else ""
        reasons.append(f"{device.name} carries {', '.join(device.signatures)}{hint}")
    if device.unjudged != "":
        reasons.append(f"{device.name}: {device.unjudged or 'its content was not looked at'}")
    return reasons


def _at(mount: tuple[str, str], device: Device) -> str:
    return mount[0] + _through(mount, device)


def _through(mount: tuple[str, str], device: Device) -> str:
    return "" if mount[1] == device.name else f" (through {mount[1]})"


def _catalogue(known: Inventory) -> str:
    disks = [d for d in known.devices.values() if d.size_bytes and not d.partition and (d.stack or not d.slaves)]
    named = [f"{d.name} ({', '.join(sorted(d.identifiers)) or 'no serial'}, {d.size_bytes} bytes)" for d in disks]
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return ", ".join(named[:NAMED]) + more if named else "no disk at all"


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
        places = {place for identifier in device.identifiers for place in seen.get(identifier, ())}
        if others := sorted(place for place in places if not place.startswith(f"{vm} (")):
            why = f"has the serial or WWN of {', '.join(others)}: a shared disk, or one number given twice"
            refused.append(Refusal(vm, serial, f"{device.name} {why}"))
    return refused
