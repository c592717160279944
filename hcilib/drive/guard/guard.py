"""The guard: decides what of a real host's devices may be overwritten. What it does not know to be safe it refuses.

The disks of a running bed (`lab_root`) are judged by the bed itself (hcilib.drive.beds)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hcilib.drive import beds
from hcilib.drive.guard.devices import END, INVENTORY, Device, DevicesError, Inventory, find, parse
from hcilib.drive.hosts.hosts import ANSWER_S, Fleet
from hcilib.drive.hosts.lease import Lease, Place
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
) -> list[Refusal]:
    """List every reason against writing a testbed's disks. No host is asked: the one seam of the guard.

    What lies on a disk is not among them but as far as udev knows it: that is asked of the disk itself.

    Parameters
    ----------
    listings : VM -> what INVENTORY and END (hcilib.drive.guard.devices) printed there; None: judge only by the testbed
        and this machine's files
    vms, numjobs : of the plan; all disks of all VMs if left out
    consent : the campaign's token; None: the one of the environment
    writes : False: the disks are only read

    Returns
    -------
    list of Refusal : one for each reason; empty: all of them may be written
    """
    vms = len(testbed.vms) if vms is None else vms
    numjobs = max(len(vm.disks) for vm in testbed.vms) if numjobs is None else numjobs
    asked = (testbed, vms, numjobs)
    refused = without_hosts(*asked, consent, writes)
    if listings is None:
        return refused
    unasked: Looked = {(vm, disk.serial): [] for vm, disk in testbed.targets(vms, numjobs)}
    known = {vm: _read(text) for vm, text in listings.items()}
    return refused + judge(*asked, known, writes, unasked)[1]


def without_hosts(
    testbed: Testbed, vms: int, numjobs: int, consent: str | None = None, writes: bool = True
) -> list[Refusal]:
    """Every refusal that needs no host to be asked: all of them for a lab, for real hosts consent and form.

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
Looked = Mapping[tuple[str, str], list[tuple[str, str]]]
"""(VM, serial) -> every reason against writing that the disk itself gives: code and what."""
_HELD = "is held by the kernel: mounted where this account cannot see it, swap, or opened exclusively"
SAID = {
    "size": "has {}",
    "read-only": "is read-only",
    "used": "is used by {}",
    "uncounted": "is not counted, so that what others write cannot be seen: {}",
    "unwritable": "may not be written by this account: log in as a user that can read and write it",
    "unflushed": "may not be used by this account as fio does, which drops the kernel's cache of a disk first and "
    "asks for root for it (BLKFLSBUF): log in as root",
    "carries": "carries {}",
    "written": "was written by somebody else since our last step: {}",
    "busy": _HELD + " {}",
    "gone": "cannot be opened, or is no block device any more ({})",
    "secondary": "is DRBD's Secondary here: another node may be writing this resource; name it where it is Primary",
    "unleased": "may not be used by this account: {}",
    "held": "{}",
    "unread": "cannot be read: {}",
}
"""Reason against writing a disk (`hcilib.drive.keeper.Disk.look`, `take`) -> what is said of it."""
OF_READING = {"size", "unflushed", "gone", "unleased", "held", "unread"}
"""Reasons against reading one too."""

NAMED = 8
BOOT = ("/", "/boot", "/boot/efi", "/efi", "/usr")


def identify(
    fleet: Fleet, testbed: Testbed, vms: int, numjobs: int, lease: Lease, consent: str | None = None,
    writes: bool = True,
) -> Guarded:  # fmt: skip
    """Every device that a plan may write, resolved and judged on its own host; {} for a lab, whose disks are its own
    exports. One that is only read (`writes` False) may be in use and hold data. `lease`: holds the disks.

    Raises
    ------
    GuardError : with every refusal, of every host; nothing was written
    """
    refused = without_hosts(testbed, vms, numjobs, consent, writes)
    found: Guarded = {}
    if not testbed.lab_root:
        targets = testbed.targets(vms, numjobs)
        known = inventory(fleet, {vm for vm, _ in targets} - testbed.windows)
        looked = look(lease, sizes(found_once(targets, known)))
        found, more = judge(testbed, vms, numjobs, known, writes, looked)
        refused += more
    if refused:
        raise GuardError(refused)
    return found


def disks_to_lease(
    fleet: Fleet, testbed: Testbed, vms: int, numjobs: int, hosts: Collection[str]
) -> dict[str, dict[str, Place] | str]:
    """Find the disks that a plan may write on these hosts; judges none.

    Returns VM -> {serial: place}, or why its devices are not known. A disk that is not
    there, or there twice, is left to :func:`identify`, which refuses it; a lab's have no lock of their own.
    """
    if testbed.lab_root:
        return {}
    targets = [(vm, disk) for vm, disk in testbed.targets(vms, numjobs) if vm in hosts and vm not in testbed.windows]
    known = inventory(fleet, {vm for vm, _ in targets})
    leased: dict[str, dict[str, Place] | str] = {vm: own if isinstance(own, str) else {} for vm, own in known.items()}
    return leased | places(found_once(targets, known))


def places(found: Guarded) -> dict[str, dict[str, Place]]:
    """Where these disks are."""
    return {vm: {s: Place(device.number, device.path) for s, device in own.items()} for vm, own in found.items()}


def sizes(found: Guarded) -> dict[str, dict[str, dict[str, int]]]:
    """What a look at these disks is given."""
    return {vm: {s: {"size": device.size_bytes} for s, device in own.items()} for vm, own in found.items()}


def found_once(targets: Iterable[tuple[str, Disk]], inventories: Mapping[str, Inventory | str]) -> Guarded:
    """Every target that is there, and once."""
    found: Guarded = {}
    for vm, disk in targets:
        known = inventories.get(vm, "")
        devices = [] if isinstance(known, str) else find(known, disk.serial)
        if len(devices) == 1:
            found.setdefault(vm, {})[disk.serial] = devices[0]
    return found


def look(lease: Lease, given: Mapping[str, Mapping[str, Mapping[str, Any]]], limit_s: float = ANSWER_S) -> Looked:
    """Ask held disks, VM -> serial -> what a look is given, for every reason against writing them.

    One that is not held, or does not answer, says that: nothing is known of it.
    """
    return {
        place: [unseen(lease, place, said)] if isinstance(said, OSError) else [(code, what) for code, what in said]
        for place, said in lease.ask("look", given, limit_s).items()
    }


def unseen(lease: Lease, place: tuple[str, str], error: OSError) -> tuple[str, str]:
    """Why a disk answers nothing: it is not held, or what it said."""
    return lease.refused.get(place, ("unread", str(error)))


def briefly(fleet: Fleet, testbed: Testbed, found: Guarded, run_dir: str | Path, reading: bool = False) -> Lease:
    """A lease of these disks alone, for one look at them."""
    vms, alone = [vm for vm in testbed.vms if found.get(vm.name)], testbed.model_copy(update={"nodes": ()})
    return Lease(fleet, alone, vms, run_dir, disks=lambda _: places(found), reading=reading, noting=True)


def inventory(fleet: Fleet, vms: Iterable[str]) -> dict[str, Inventory | str]:
    """VM -> its devices, or one sentence on why they are not known. None is opened."""
    answers = fleet.run(INVENTORY + END, vms, limit_s=ANSWER_S)
    return {vm: _read(o.value) if o.ok else _unlisted(o.error.rpartition("` ")[2]) for vm, o in answers.items()}


def _read(text: str) -> Inventory | str:
    try:
        return parse(text)
    except DevicesError as error:
        return _unlisted(error)


def _unlisted(why: object) -> str:
    """Of a failure without the script, which it would quote."""
    return f"its devices could not be listed: {why}"


def judge(
    testbed: Testbed, vms: int, numjobs: int, inventories: Mapping[str, Inventory | str], writes: bool = True,
    looked: Looked | None = None,
) -> tuple[Guarded, list[Refusal]]:  # fmt: skip
    """Every target that was found exactly once, allowed or not, and every reason against writing one. Asks nobody.

    `looked`: what the disks themselves say; None: nothing is said of what lies on them
    """
    targets = testbed.targets(vms, numjobs)
    found = found_once(targets, inventories)
    shared = _shared(found, inventories) if writes else []
    refused = []
    for vm, disk in targets:
        known = inventories.get(vm, "its host was not asked")
        reasons = _objections(disk, known, writes)
        reasons += [refusal.reason for refusal in shared if (refusal.host, refusal.device) == (vm, disk.serial)]
        if looked is not None and (device := found.get(vm, {}).get(disk.serial)):
            said = looked.get((vm, disk.serial), [] if reasons else [("unread", "it was not asked")])
            reasons += _of_itself(device, said, writes, idle=not reasons)
        refused += [Refusal(vm, disk.serial, reason) for reason in reasons]
    return found, refused


def _objections(disk: Disk, known: Inventory | str, writes: bool) -> list[str]:
    """What speaks against a disk by what its host says of it."""
    if isinstance(known, str):
        return [known]
    devices = find(known, disk.serial)
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
    reasons = [forbidden] * bool(forbidden) + _in_use(device) if writes else []
    if device.size_bytes != disk.size_bytes:
        reasons.insert(0, f"{device.name} has {device.size_bytes} bytes where the testbed says {disk.size_bytes}")
    return reasons


def _in_use(device: Device) -> list[str]:
    """What someone has made of the device."""
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
    return reasons + ([f"{name} is read-only"] if device.read_only else [])


def _of_itself(device: Device, said: list[tuple[str, str]], writes: bool, idle: bool) -> list[str]:
    """What the disk itself says, but for what its host has said already: what is made of it.

    `idle`: nothing speaks against it: a command that destroys is never suggested for what someone uses
    """
    signatures = dict.fromkeys([what for code, what in said if code == "carries"] + [*device.signatures])
    others = [(code, what) for code, what in said if code != "carries" and (writes or code in OF_READING)]
    if _in_use(device):
        others = [(code, what) for code, what in others if code in OF_READING]
    reasons = [f"{device.name} {sentence(code, what)}" for code, what in others]
    if signatures and writes:
        asked = "if nothing on it is needed, and no program uses it"
        hint = f"; {asked}, clear it on the host with `wipefs --all {device.path}`" * (idle and not reasons)
        reasons.append(f"{device.name} carries {', '.join(signatures)}{hint}")
    return reasons


def sentence(code: str, what: str) -> str:
    """What is said of a disk."""
    return SAID[code].format(what).replace(" ()", "").strip()


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
