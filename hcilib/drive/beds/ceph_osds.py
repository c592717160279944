"""What befalls an OSD of a running cluster: killed and started again as a host's operator would, and what the cluster
says of it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable

from hcilib.drive.beds import ceph_cluster as cluster
from hcilib.drive.beds.ceph import PACKAGES, config_of
from hcilib.drive.beds.lab_hosts import LabError, find_programs
from hcilib.drive.beds.librados import CephError, Monitor
from hcilib.drive.hosts.hosts import Fleet, need
from hcilib.testbed import Testbed


def kill_osd(fleet: Fleet, testbed: Testbed, osd: int) -> None:
    """SIGKILL to the OSD, on its node; returns when the process is gone. FleetError where it does not run."""
    name, host = _placed(testbed, osd)
    gone = "while grep -qs '^State:.[^Z]' /proc/$p/status; do sleep 0.01; done"  # who started it may not have reaped it
    need(f"killing {name}", fleet.run({host: f"p=$(cat {_file(testbed, name + '.pid')}) && kill -KILL $p && {gone}"}))


def start_osd(fleet: Fleet, testbed: Testbed, osd: int) -> None:
    """Start a killed OSD again, on its node; returns at once. It ends with the cluster, like one that was never
    killed."""
    name, host = _placed(testbed, osd)
    folder, log = shlex.quote(str(config_of(testbed).parent)), _file(testbed, f"logs/{name}.log")
    argv = shlex.join(cluster.argv(find_programs(PACKAGES, engine="rbd"), name))
    need(f"starting {name}", fleet.run({host: f"cd {folder} && {{ setsid {argv} </dev/null >>{log} 2>&1 & }}"}))


def state(monitor: Monitor) -> dict:
    """The cluster now: t_s (epoch), health, osds, osds_up, osds_in, groups, groups_clean, degraded_pct, misplaced_pct,
    recovery_bytes_per_s. The manager counts anew once a second. Raises CephError where the monitor is silent."""
    said = monitor.ask("status")
    osds, groups = said["osdmap"], said["pgmap"]
    clean = sum(s["count"] for s in groups["pgs_by_state"] if s["state_name"] == "active+clean")
    return {
        "t_s": time.time(),
        "health": said["health"]["status"],
        "osds": osds["num_osds"],
        "osds_up": osds["num_up_osds"],
        "osds_in": osds["num_in_osds"],
        "groups": groups["num_pgs"],
        "groups_clean": clean,
        "degraded_pct": 100 * groups.get("degraded_ratio", 0.0),
        "misplaced_pct": 100 * groups.get("misplaced_ratio", 0.0),
        "recovery_bytes_per_s": float(groups.get("recovering_bytes_per_sec", 0)),
    }


def wait_for(monitor: Monitor, wanted: Callable[[dict], bool], patience_s: float = 120.0, every_s: float = 0.2) -> dict:
    """The first state that is `wanted`; CephError with the last one when patience ends."""
    deadline = time.monotonic() + patience_s
    while not wanted(now := state(monitor)):
        if time.monotonic() > deadline:
            raise CephError(f"after {patience_s:g} s the cluster is still {now}")
        time.sleep(every_s)
    return now


def is_whole(now: dict) -> bool:
    """Every OSD up and in, every placement group active and clean. IOPS do not tell: a degraded cluster writes fewer
    copies."""
    return now["osds"] == now["osds_up"] == now["osds_in"] and now["groups"] == now["groups_clean"]


def _placed(testbed: Testbed, osd: int) -> tuple[str, str]:
    """(daemon, node) of an OSD: each node has one, of the node's own number less one."""
    config_of(testbed)
    if not 0 <= osd < len(testbed.nodes):
        raise LabError(f"osd {osd}: testbed {testbed.name} has OSDs 0 to {len(testbed.nodes) - 1}")
    return f"osd.{osd}", testbed.nodes[osd].name


def _file(testbed: Testbed, name: str) -> str:
    return shlex.quote(f"{testbed.lab_root}/{name}")
