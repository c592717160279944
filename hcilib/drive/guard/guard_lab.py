"""May a lab's disk be overwritten? Only what lies in the lab's own folder, judged by this machine's files alone."""

from __future__ import annotations

import ipaddress
import os
import stat
from pathlib import Path

from hcilib.testbed import Disk, Testbed


def judge(testbed: Testbed, disk: Disk) -> list[str]:
    """A lab's disk: every replica is a regular file of the planned size inside the lab, reached through the lab's own socket."""
    root, export = root_of(testbed), disk.serial.removeprefix("lab-")
    reasons = [reason for image in disk.backing for reason in judge_file(Path(image), root, disk.size_bytes)]
    if {Path(image).name for image in disk.backing} != {f"{export}.img"}:
        reasons.append(f"names no replica image {export}.img inside the lab, or another as well")
    if disk.uri not in {f"nbd+unix:///{export}?socket={node.name}.sock" for node in testbed.nodes}:
        reasons.append(f"its uri {disk.uri!r} is not an export of the lab's own fronts")
    return reasons + judge_hosts(testbed)


def root_of(testbed: Testbed) -> Path:
    """The folder of a running lab: what lies elsewhere is not its own."""
    if not testbed.lab_root:
        raise ValueError(f"testbed {testbed.name}: no lab is running, so no disk can be judged by where its file lies")
    return Path(testbed.lab_root).resolve()


def judge_hosts(testbed: Testbed) -> list[str]:
    """A lab's hosts are this machine's: every one is on loopback."""
    outside = [host.name for host in (*testbed.nodes, *testbed.vms) if not _loopback(host.target)]
    return [f"host {name} of this lab is not on loopback" for name in outside]


def judge_file(image: Path, root: Path, size: int | None = None) -> list[str]:
    """Reasons why this is not a plain file of the lab's own, and of `size` where one is given."""
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
    return [] if size in (None, found.st_size) else [f"{image} has {found.st_size} bytes where the testbed says {size}"]


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
