"""The guard: decides what may be overwritten. What it does not know to be safe it refuses."""

from __future__ import annotations

import ipaddress
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from hcilib.testbed import Disk, Testbed


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
        super().__init__(f"refused to overwrite {len(refusals)} device(s): " + "; ".join(map(str, refusals)))


def refusals(testbed: Testbed, vms: int, numjobs: int, consent: str | None = None) -> list[Refusal]:
    """Every refusal that needs no host to be asked (DESIGN section 6): all of them for a lab, for real hosts consent and form.

    What a real host's devices are is judged on the host, by :func:`hcilib.drive.guard_devices.identify`.
    """
    targets = testbed.targets(vms, numjobs)
    if testbed.lab_root:
        return [Refusal(vm, disk.serial, reason) for vm, disk in targets for reason in _judge_lab(testbed, disk)]
    windows = {vm.name for vm in testbed.vms if vm.os == "windows"}
    devices = [Refusal(vm, disk.serial, reason) for vm, disk in targets for reason in _judge_form(disk, vm in windows)]
    return _judge_consent(testbed, consent) + devices


def require(testbed: Testbed, vms: int, numjobs: int, consent: str | None = None) -> None:
    """GuardError if any device may not be overwritten. Looks at this machine's files alone: no host is touched."""
    refused = refusals(testbed, min(vms, len(testbed.vms)), numjobs, consent)
    if refused:
        raise GuardError(refused)


def _judge_consent(testbed: Testbed, consent: str | None) -> list[Refusal]:
    if not testbed.consent:
        reason = "the testbed's field consent is empty: give it a token there and repeat it in the campaign's consent"
    elif not consent:
        reason = "no consent was given: repeat the token of the testbed's field consent in the campaign's consent"
    elif consent != testbed.consent:
        reason = "the campaign's consent is not the testbed's field consent: is this the testbed you mean?"
    else:
        return []
    return [Refusal(testbed.name, "consent", reason)]


def _judge_form(disk: Disk, windows: bool) -> list[str]:
    if windows:
        return [
            "the VM runs Windows, whose disks this version cannot judge, so none is written: use a Linux VM as load generator"
        ]
    if disk.uri:
        return [
            f"its uri {disk.uri} is no block device of the VM; outside the lab only whole disks named by serial are written"
        ]
    return []


def _judge_lab(testbed: Testbed, disk: Disk) -> list[str]:
    """A lab's disk: every replica is a regular file of the planned size inside the lab, reached through the lab's own socket."""
    root, export = Path(testbed.lab_root).resolve(), disk.serial.removeprefix("lab-")
    reasons = [reason for image in disk.backing for reason in _judge_image(Path(image), root, disk.size_bytes)]
    if {Path(image).name for image in disk.backing} != {f"{export}.img"}:
        reasons.append(f"names no replica image {export}.img inside the lab, or another as well")
    if disk.uri not in {f"nbd+unix:///{export}?socket={node.name}.sock" for node in testbed.nodes}:
        reasons.append(f"its uri {disk.uri!r} is not an export of the lab's own fronts")
    outside = [v.name for v in (*testbed.nodes, *testbed.vms) if not _loopback(v.target)]
    return reasons + [f"host {name} of this lab is not on loopback" for name in outside]


def _judge_image(image: Path, root: Path, size: int) -> list[str]:
    try:
        found = os.lstat(image)
    except OSError as error:
        return [f"{image}: {error.strerror}"]
    if stat.S_ISLNK(found.st_mode):
        return [f"{image} is a symbolic link; only plain files inside the lab are written"]
    if root not in image.resolve().parents:
        return [f"{image} is outside the lab's folder {root}"]
    if not stat.S_ISREG(found.st_mode):
        return [f"{image} is not a plain file"]
    if found.st_nlink != 1:
        return [f"{image} is also known by another name (a hard link), maybe outside the lab"]
    return [] if found.st_size == size else [f"{image} has {found.st_size} bytes where the testbed says {size}"]


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
