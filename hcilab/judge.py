"""May a bed's disk be overwritten? Judged by this machine's files alone: only what lies in the bed's own folder may.

A lab's disk is an export of files there. Of a Ceph cluster the name of a pool and an image says nothing about whose
they are: so it is followed from the job's option to the bytes, by the configuration that the image's cluster name leads
to, the monitor it names, and the files in which that cluster keeps its data. Its monitor and every OSD lie in the
folder of one that hcilab has made.
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from pathlib import Path

from hcilab.ceph_daemons import MON_PORT, admin, read_config
from hcilib.model.testbed import Disk, Testbed

URI = re.compile(r"rbd://(?P<cluster>hci-[0-9a-f]{8})/(?P<pool>box(?:-meta)?)/(?P<image>[\w.-]+)")


def judge_export(testbed: Testbed, disk: Disk) -> list[str]:
    """A lab's disk: every replica is a regular file of the planned size inside the lab, reached through the lab's own
    socket."""
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


def judge_image(testbed: Testbed, disk: Disk) -> list[str]:
    """Every reason why the image must not be written; asks the cluster's own monitor, on a socket in the cluster's
    folder."""
    root, found = root_of(testbed), URI.fullmatch(disk.uri or "")
    if not found or f"ceph-{found['image']}" != disk.serial:
        return [f"its uri {disk.uri!r} is not the image of that name in a cluster made by hcilib"]
    config = root / f"{found['cluster']}.conf"
    return judge_file(config, root) or _cluster(testbed, config, root) + _stores(disk, root) + judge_hosts(testbed)


def _cluster(testbed: Testbed, config: Path, root: Path) -> list[str]:
    """Its configuration names one monitor, on the first node; there listens the one whose socket lies in the folder."""
    named = read_config(config)
    here = f"v2:{testbed.nodes[0].target}:{MON_PORT}"
    if named.get("mon_host") != here:
        return [f"{config} names the monitor {named.get('mon_host')!r}, not the cluster's own, {here}"]
    known = admin(root / "mon.a.asok", "mon_status").get("monmap", {})
    if not known:
        return [f"{root / 'mon.a.asok'}: no monitor answers, so nobody knows whose cluster this is; start it again"]
    addresses = [a["addr"] for m in known.get("mons", []) for a in m["public_addrs"]["addrvec"]]
    if known.get("fsid") != named.get("fsid") or addresses != [here.removeprefix("v2:")]:
        other = f"the monitor in its folder of {known.get('fsid')} at {addresses}"
        return [f"{config} is of cluster {named.get('fsid')}, {other}"]
    return []


def _stores(disk: Disk, root: Path) -> list[str]:
    """Every OSD of the folder keeps its bytes in a plain file there: none leads to a device."""
    stores = sorted(str(folder / "block") for folder in root.glob("osd.*") if folder.is_dir())
    reasons = [reason for store in stores for reason in judge_file(Path(store), root)]
    if sorted(disk.backing) != stores:
        reasons.append(f"the testbed names the stores {list(disk.backing)}, the cluster's folder has {stores}")
    return reasons
