"""What may be made of a disk, on any stack: commands on its host, and the words with which the guard then refuses it at
the start of a campaign and at its next step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from hcilib.drive.guard import guard
from hcilib.drive.hosts.hosts import Fleet, Outcome
from hcilib.drive.hosts.lease import Lease, Place
from hcilib.model.testbed import Testbed


class Use(NamedTuple):
    """What makes it and what undoes it; the guard's words at the start and, where the kernel lets it pass while the
    disk is held, at a step (None: it does not)."""

    make: str
    undo: str
    start: str
    step: str | None


USES = {
    "partition": Use("addpart {d} 1 2048 8192", "delpart {d} 1", "used", "used"),
    "loop device": Use("losetup -f {d}", "for l in /sys/block/loop*/loop/backing_file; do if grep -qx {d} $l; then "
                       "l=${{l#/sys/block/}}; losetup -d /dev/${{l%%/*}}; fi; done", "used", "used"),
    "read-only": Use("blockdev --setro {d}", "blockdev --setrw {d}", "read-only", "read-only"),
    "file system": Use("mkfs.ext4 -qFF {d}", "wipefs -qa {d}", "carries", None),
    "mount": Use("mkfs.ext4 -qFF {d} && mkdir -p {d}.mnt && mount -t ext4 {d} {d}.mnt",
                 "umount {d}.mnt; rmdir {d}.mnt; wipefs -qa {d}", "busy", None),
    "swap": Use("mkswap {d} && swapon {d}", "swapoff {d}; wipefs -qa {d}", "busy", None),
}  # fmt: skip
"""Of every disk. What a stack has beside is with its test."""
TAKERS = {
    "mkfs.ext4": "mkfs.ext4 -qFF {d}",
    "mkswap": "mkswap -f {d}",
    "mount": "mount -t ext4 {d} /mnt",
    "wipefs": "wipefs -a {d}",
    "blkdiscard": "blkdiscard {d}",
    "alone": "python3 -c 'import os, sys; os.open(sys.argv[1], os.O_RDWR | os.O_EXCL)' {d}",
}
"""Programs that ask for a disk, which a held one refuses."""


@dataclass(frozen=True)
class Stack:
    """The first disk of a testbed's first VM, whatever it is built of; `always`: words that it has at any time. `at`:
    where it is, of one that no identity leads to."""

    fleet: Fleet
    testbed: Testbed
    always: tuple[str, ...] = ()
    at: Place | None = None

    @property
    def place(self) -> tuple[str, str]:
        [(vm, disk)] = self.testbed.targets(1, 1)
        return vm, disk.serial

    @cached_property
    def found(self) -> dict[str, dict[str, Place]]:
        vm, serial = self.place
        if self.at:
            return {vm: {serial: self.at}}
        return guard.disks_to_lease(self.fleet, self.testbed, 1, 1, [vm])

    @property
    def device(self) -> str:
        vm, serial = self.place
        return self.found[vm][serial].path

    def run(self, command: str) -> Outcome:
        return self.fleet.run(command.format(d=self.device), [self.place[0]])[self.place[0]]

    def made(self, command: str) -> None:
        assert (done := self.run(command)).ok, done.error

    @contextmanager
    def held(self) -> Iterator[Lease]:
        """Hold the disk as a campaign does."""
        alone = self.testbed.model_copy(update={"nodes": ()})
        with Lease(self.fleet, alone, alone.vms[:1], "run", disks=lambda _: self.found) as lease:
            yield lease

    def words(self, lease: Lease, **given: Any) -> list[str]:
        """Every word against writing the disk, but those that it always has."""
        vm, serial = self.place
        size = self.testbed.vms[0].disks[0].size_bytes
        said = guard.look(lease, {vm: {serial: {"size": size, **given}}})[self.place]
        return [word for word, _ in said if word not in self.always]


def kept_off(asked: Outcome) -> bool:
    """Whether the kernel refused somebody the disk because it is held, and for no other reason."""
    return not asked.ok and bool(re.search("busy|in use|held open", asked.error))


def refuse_at_the_start(stack: Stack, use: Use) -> None:
    """Assert that the disk is refused for as long as the use lasts."""
    stack.made(use.make)
    try:
        with stack.held() as lease:
            assert stack.words(lease) == [use.start]
    finally:
        stack.run(use.undo)
    with stack.held() as lease:
        assert stack.words(lease) == []


def refuse_at_a_step(stack: Stack, use: Use) -> None:
    """Assert that the kernel refuses the use of a held disk, or that the next step does, for as long as it lasts."""
    with stack.held() as lease:
        assert stack.words(lease) == []
        made = stack.run(use.make)
        try:
            assert made.ok if use.step else kept_off(made)
            assert stack.words(lease) == ([use.step] if use.step else [])
        finally:
            stack.run(use.undo)
        assert stack.words(lease) == []


def refuse_a_program(stack: Stack, taker: str) -> None:
    """Assert that the kernel gives the held disk to nobody."""
    with stack.held() as lease:
        assert kept_off(stack.run(TAKERS[taker]))
        assert stack.words(lease) == []
