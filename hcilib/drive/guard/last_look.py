"""The look before each step, at the held device itself; and what our own steps left on it.

A campaign lasts for hours, and what was judged at its start may have become somebody's since. While a disk is held the
kernel itself refuses mounts, swap, file systems, arrays and a second campaign, and fio is given the very descriptor
that is held (``/proc/self/fd/100``): a link that is turned meanwhile changes nothing. What the kernel lets pass is
asked of the disk before each step: plain writes, partitions, loop devices, exports, another size, read-only.

**What we wrote ourselves is allowed, by remembering it.** Right after each step that writes it is noted what lies at
both ends of a disk (a MiB each: where every signature that util-linux knows lies, backup GPT, md, ZFS and DRBD
included) and at `content.PLACES` places that were drawn at random, as digests, and how many sectors the kernel says
were written and discarded since the machine started. Before the next step the ends, the places and the count must be as
they were: random data that happens to look like a signature is never refused, and another writer is seen by the
kernel's count, to the sector, wherever on the disk he wrote. After a restart the count says nothing, and the sample
decides, as it does where fio writes through a cache (``direct: 0``). After a step the count must not exceed what fio
wrote.

A signature that appears *during* a step of ours is somebody's: none of 1180 random fills looked like one to blkid 2.38.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hcilib.drive.guard import content
from hcilib.drive.guard.content import Memory
from hcilib.drive.guard.devices import Device
from hcilib.drive.guard.guard import OF_READING, Guarded, GuardError, Refusal, look, sentence
from hcilib.drive.hosts.hosts import ANSWER_S
from hcilib.drive.hosts.lease import Lease
from hcilib.model.testbed import Vm

STOPPED_S = 5
"""How long a campaign that is stopped waits for what lies on its disks: one may hang."""
LOOK_S = 20.0
"""How long a disk may take over the look before a step."""
Place = tuple[str, str]


class LastLook:
    """What was judged when a campaign began, and what our own steps have left on it since.

    `before` says which devices `hcilib.drive.launch` may open, and no others; `writing` and `after` frame a step that
    writes. `memory` remembers for the next campaign what was left on a disk.
    `through_cache`: fio's writes may reach the disk later than its end. `readonly`: disks may be in use and hold data,
    and only whose they are is asked.
    """

    def __init__(
        self,
        guarded: Guarded,
        lease: Lease,
        memory: Memory | None = None,
        through_cache: bool = False,
        readonly: bool = False,
    ):
        self.guarded = guarded
        self._lease, self._memory, self._through_cache, self._readonly = lease, memory, through_cache, readonly
        self._left: dict[Place, dict[str, Any]] = {}
        self._writing: dict[Place, dict[str, Any] | None] = {}
        self._strange: dict[Place, str] = {}
        self.counted: dict[Place, int] = {}

    def begin(self) -> None:
        """Note what lies on the disks before the first step: nobody else may write there from now on."""
        if not self._readonly:
            self._note(self.guarded, ANSWER_S)

    def before(self, vms: Sequence[Vm], numjobs: int, *, beside: bool = False) -> dict[str, str]:
        """Serial -> what fio opens for it, once every disk has proved to be ours.

        `beside`: for what writes beside a fio of ours, whose own bytes are no reason.

        Raises
        ------
        LeaseError : the connection to a host was lost, and another campaign has it now
        GuardError : why a disk may not be written; or more was written during a step than by us
        """
        self._lease.renew(required=[vm.name for vm in vms])
        devices = self._of(vms, numjobs)
        if strange := [Refusal(*place, self._strange[place]) for place in _places(devices) if place in self._strange]:
            raise GuardError(strange)
        asked = {vm: {s: self._asked(vm, s, d, beside) for s, d in own.items()} for vm, own in devices.items()}
        refused = []
        for (vm, serial), found in look(self._lease, asked, LOOK_S).items():
            device = devices[vm][serial]
            refused += [
                Refusal(vm, serial, f"{device.path} ({device.name}) {sentence(code, what)}")
                for code, what in found
                if code in OF_READING or not self._readonly
            ]
        if refused:
            raise GuardError(refused)
        return {serial: self._lease.paths[vm][serial] for vm, own in devices.items() for serial in own}

    def _asked(self, vm: str, serial: str, device: Device, beside: bool) -> dict[str, Any]:
        left = None if beside or self._readonly else self._left.get((vm, serial))
        given = {"size": device.size_bytes, "beside": beside or self._readonly}
        return given | (content.compared(left, self._through_cache) if left else {})

    def names(self, vms: Sequence[Vm], numjobs: int) -> dict[str, list[str]]:
        """VM -> the kernel's names of the devices that fio uses there; none where its engine reaches the storage past
        the kernel."""
        return {vm.name: [d.name for d in self._of([vm], numjobs).get(vm.name, {}).values()] for vm in vms}

    def writing(self, vms: Sequence[Vm], numjobs: int) -> None:
        """Know that what lies on these disks changes from now on, by us."""
        for place in _places(self._of(vms, numjobs)):
            self._writing[place] = self._left.pop(place, None)
            if self._memory:
                self._memory.note(*place, None)

    def after(self) -> None:
        """Note what lies on the disks that were written; of a VM that does not answer, that nothing is known.

        `counted` is then (VM, serial) -> bytes written and discarded since the note before, as the kernel counts them.
        A disk that it does not count, or whose machine was restarted meanwhile, is not in it.
        """
        was, self._writing = self._writing, {}
        devices: Guarded = {}
        for vm, serial in was:
            devices.setdefault(vm, {})[serial] = self.guarded[vm][serial]
        stopped = sys.exception()
        if isinstance(stopped, KeyboardInterrupt):
            self._note(devices, STOPPED_S)
            hung = ", ".join(f"{vm}: disk {serial}" for vm, serial in was if (vm, serial) not in self._left)
            if hung:
                unread = f"did not answer within {STOPPED_S:g} s and may hang, with the fio on it"
                stopped.add_note(
                    f"{hung} {unread}. Look at its path; no other campaign may write there before this one"
                )
        else:
            self._note(devices, ANSWER_S)
        both = {place: (old, self._left[place]) for place, old in was.items() if old and place in self._left}
        counted = {place: _since(old, now) for place, (old, now) in both.items()}
        known = {place: written for place, written in counted.items() if written is not None}
        self.counted = {} if self._through_cache else known

    def accuse(self, place: Place, why: str) -> None:
        """Let no further step, and no later campaign, open this disk: somebody else's bytes are on it."""
        self._strange[place] = why
        self._left.pop(place, None)
        if self._memory:
            self._memory.forget(*place)

    def _note(self, devices: Guarded, limit_s: float) -> None:
        for place in _places(devices):
            self._left.pop(place, None)
        asked = {vm: {serial: content.drawn() for serial in own} for vm, own in devices.items()}
        for place, found in self._lease.ask("note", asked, limit_s).items():
            if isinstance(found, OSError) or found["signature"]:
                continue
            vm, serial = place
            self._left[place] = asked[vm][serial] | {"left": found}
            if self._memory:
                self._memory.note(vm, serial, content.compared(self._left[place], self._through_cache))

    def _of(self, vms: Sequence[Vm], numjobs: int) -> Guarded:
        """The devices that a step opens; {} for a lab, whose disks are its own exports."""
        used = {vm.name: [disk.serial for disk in vm.disks[:numjobs]] for vm in vms if vm.name in self.guarded}
        return {vm: {s: self.guarded[vm][s] for s in serials if s in self.guarded[vm]} for vm, serials in used.items()}


def _since(old: Mapping[str, Any], now: Mapping[str, Any]) -> int | None:
    """Bytes written and discarded since then; None where the kernel counts from another boot, or another disk."""
    (since, *then), (again, *today) = old["left"]["counted"], now["left"]["counted"]
    return 512 * (sum(today) - sum(then)) if since == again else None


def _places(devices: Guarded) -> list[Place]:
    return [(vm, serial) for vm, own in devices.items() for serial in own]
