"""Whose the bytes on a disk are: blank, ours as it was left, or somebody's.

A disk without a signature may still hold data: a raw database, dm-crypt without a header, an LVM volume's middle. So it
is judged by a sample: the first and last MiB and `PLACES` blocks of 4 KiB at random places. A disk on which all of them
hold one and the same of `BLANKS` is blank; one that holds what the last campaign left there is ours; any other is
refused until it is cleared.

What a campaign leaves is noted in its run directory.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hcilib.drive.campaign.rundir import write_json
from hcilib.drive.guard.devices import Device
from hcilib.drive.guard.guard import Guarded, GuardError, Refusal, sentence, unseen
from hcilib.drive.hosts.lease import Lease
from hcilib.model.places import LEFT
from hcilib.model.testbed import Testbed

PLACES = 256
"""Blocks of a sample."""
BLANKS = (0, 255)
"""What every byte of a disk that was never written, or was erased, is."""


def drawn() -> dict[str, int]:
    """Return places that nobody knows before."""
    return {"seed": secrets.randbelow(2**31), "places": PLACES}


def compared(noted: Mapping[str, Any], through_cache: bool) -> dict[str, Any]:
    """Return what is asked of a disk that was noted: what the kernel counted says nothing of what goes through a
    cache."""
    return {**noted, "left": noted["left"] | ({"counted": None} if through_cache else {})}


@dataclass(frozen=True)
class Left:
    """What a campaign left on a disk (`noted`: a seed, places, and what lay there); None while it writes there.
    `run_dir`: where it was noted."""

    run_dir: Path
    campaign: str
    at_s: float
    noted: dict[str, Any] | None


class Memory:
    """What was left on each disk of a testbed. A campaign notes it in its run directory, and so another controller can
    resume it; it knows as well what is noted in the run directories beside its own."""

    def __init__(self, testbed: Testbed, campaign: str, run_dir: str | Path):
        self._testbed, self.campaign, self._run_dir = testbed.name, campaign, Path(run_dir).absolute()

    def of(self, vm: str, serial: str) -> Left | None:
        """What was noted last; None where nothing is known, or not to be understood."""
        files = self._run_dir.parent.glob(f"*/{LEFT}/{vm}/{serial}.json")
        known = [left for left in map(self._read, files) if left]
        last = max(known, key=lambda left: left.at_s, default=None)
        return last if last and last.campaign else None

    def _read(self, file: Path) -> Left | None:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            note = json.loads(file.read_text(encoding="utf-8"))
            left = Left(file.parents[2], note["campaign"], float(note["at_s"]), _whole(note["noted"]))
            return left if note["testbed"] == self._testbed else None
        return None

    def note(self, vm: str, serial: str, noted: Mapping[str, Any] | None) -> None:
        """Keep what is on the disk now; None: we are about to write there."""
        self._write(vm, serial, self.campaign, noted)

    def forget(self, vm: str, serial: str) -> None:
        """Know nothing of the disk any more: somebody else's bytes are among ours."""
        self._write(vm, serial, "", None)

    def _write(self, vm: str, serial: str, campaign: str, noted: Mapping[str, Any] | None) -> None:
        file = self._run_dir / LEFT / vm / f"{serial}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"testbed": self._testbed, "campaign": campaign, "at_s": time.time(), "noted": noted})


def _whole(noted: dict[str, Any] | None) -> dict[str, Any] | None:
    """What was noted; ValueError or the like of a note that lacks a part, since nothing could be compared with it."""
    if noted is not None:
        lacks = {"seed", "places"} - noted.keys() | {"ends", "blocks", "counted"} - noted["left"].keys()
        if lacks or noted["places"] < PLACES:
            raise ValueError("half a note")
    return noted


def require_known(lease: Lease, guarded: Guarded, memory: Memory) -> None:
    """Refuse every disk that holds what nobody here wrote.

    Raises
    ------
    GuardError : names each such disk, and how to clear it
    """
    devices = {(vm, serial): device for vm, disks in guarded.items() for serial, device in disks.items()}
    left = {place: memory.of(*place) for place in devices}
    ours = {place for place, known in left.items() if known and not known.noted and known.campaign == memory.campaign}
    remembered = {place: known.noted for place, known in left.items() if known and known.noted}
    refused: list[tuple[str, str, str]] = []
    for place, found in _asked(lease, "look", remembered, devices, refused):
        if not any(code == "written" for code, _ in found):
            ours.add(place)
    others = {place: drawn() for place in devices if place not in ours and place not in {r[:2] for r in refused}}
    for place, (_, _, byte) in _asked(lease, "sample", others, devices, refused):
        if byte not in BLANKS:
            refused.append((*place, _why(devices[place], left[place])))
    if refused:
        raise GuardError([Refusal(*one) for one in refused])


def _asked(lease: Lease, do: str, given: Mapping, devices: Mapping, refused: list) -> list[tuple[tuple[str, str], Any]]:
    """(place, what it answered) of each of these disks; one that did not answer is refused."""
    asked: dict[str, dict] = {}
    for (vm, serial), own in given.items():
        size = {"size": devices[vm, serial].size_bytes} if do == "look" else {}
        asked.setdefault(vm, {})[serial] = own | size
    found = lease.ask(do, asked)
    refused += [
        (*place, f"its content could not be sampled: {devices[place].name} {sentence(*unseen(lease, place, answer))}")
        for place, answer in found.items()
        if isinstance(answer, OSError)
    ]
    return [(place, answer) for place, answer in found.items() if not isinstance(answer, OSError)]


def _why(device: Device, left: Left | None) -> str:
    if left is None:
        what = f"{device.name} holds data that carries no signature and that no campaign here left there"
    elif left.noted:
        what = f"{device.name} was written by somebody else since the campaign in {left.run_dir} left it"
    else:
        what = f"{device.name} was being written by the campaign in {left.run_dir} when its controller ended: resume it"
    clear = f"`blkdiscard --zeroout {device.path}` on the host, which fills it with zeros"
    return f"{what} (a sample of {PLACES:,} places); to give it up, clear it: {clear}"
