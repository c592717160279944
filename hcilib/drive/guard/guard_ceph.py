"""May an image in a Ceph cluster be overwritten? Only in one that hcilib has made: its monitor and every OSD lie in its folder.

The name of a pool and an image says nothing about whose they are. So it is followed from the job's option to the bytes: the
configuration that the image's cluster name leads to, the monitor it names, and the files in which that cluster keeps its data.
"""

from __future__ import annotations

import re
from pathlib import Path

from hcilib.drive.beds.ceph_cluster import MON_PORT, admin
from hcilib.drive.beds.librados import read_config
from hcilib.drive.guard.guard_lab import judge_file, judge_hosts, root_of
from hcilib.testbed import Disk, Testbed

URI = re.compile(r"rbd://(?P<cluster>hci-[0-9a-f]{8})/(?P<pool>box(?:-meta)?)/(?P<image>[\w.-]+)")


def judge(testbed: Testbed, disk: Disk) -> list[str]:
    """Every reason why the image must not be written; asks the cluster's own monitor, on a socket in the cluster's folder."""
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
        return [
            f"{config} is of cluster {named.get('fsid')}, the monitor in its folder of {known.get('fsid')} at {addresses}"
        ]
    return []


def _stores(disk: Disk, root: Path) -> list[str]:
    """Every OSD of the folder keeps its bytes in a plain file there: none leads to a device."""
    stores = sorted(str(folder / "block") for folder in root.glob("osd.*") if folder.is_dir())
    reasons = [reason for store in stores for reason in judge_file(Path(store), root)]
    if sorted(disk.backing) != stores:
        reasons.append(f"the testbed names the stores {list(disk.backing)}, the cluster's folder has {stores}")
    return reasons
