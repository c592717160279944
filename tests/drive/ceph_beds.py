"""Running Ceph clusters for the tests, and what they did: each started once, measured by a small campaign, and found
gone."""

import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from plain import short_plan
from probes import assert_gone, processes

import hcilib as hci
from hcilab.ceph import PACKAGES, ceph, config_of
from hcilab.ceph_cluster import Monitor
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.plan import Plan
from hcilib.model.system import System
from hcilib.model.testbed import Testbed
from tests.needs import need

ROOT = Path(__file__).parents[2]
DISK, NONE = 32 * 2**20, "none"


def on(*systems: str):
    """Run a test on a cluster of each of these systems; all tests of a system share one cluster, whatever their file.

    pytest keeps the last one until the session ends: a test on `NONE`, which comes after all others, ends it.
    """
    return pytest.mark.parametrize("ceph_cluster", systems, indirect=True)


@dataclass(frozen=True)
class Cluster:
    """A running one: its testbed, open connections to its hosts and its monitor, and the campaign that has filled its
    images."""

    bed: Testbed
    fleet: Fleet
    monitor: Monitor
    system: System
    plan: Plan
    run_dir: Path
    results: pd.DataFrame
    empty: dict
    full: dict


@pytest.fixture(scope="session")
def ceph_programs():
    """Skip where the machine lacks what the cluster is made of (a CI job that installs it never skips)."""
    need(*PACKAGES)


@pytest.fixture(scope="session")
def ceph_cluster(request, ceph_programs, tmp_path_factory):
    """A cluster of the system given by `on`, on which a small campaign has been run; its end is looked at from
    outside."""
    if request.param == NONE:
        yield None
        return
    folder = tmp_path_factory.mktemp("ceph")
    system = hci.load_system(ROOT / "params" / "systems" / f"{request.param}.yaml")
    with pytest.MonkeyPatch.context() as elsewhere:  # what a user of another cluster has in the environment
        elsewhere.setenv("CEPH_CONF", "/nowhere/ceph.conf")
        elsewhere.setenv("CEPH_ARGS", "--mon-host 192.0.2.1 --name client.nobody")
        with (
            ceph(2, system=request.param, disk_bytes=DISK, root=folder) as bed,
            Fleet(bed) as fleet,
            Monitor(config_of(bed)) as monitor,
        ):
            yield measured(bed, fleet, monitor, system, folder / "run")
    assert_gone(bed, patience_s=0)
    assert [path.name for path in folder.iterdir()] == ["run"]


def measured(bed, fleet, monitor, system, run_dir) -> Cluster:
    """The cluster after prefill and two short runs, with what it holds before and after."""
    plan = short_plan(["4k-randread", "4k-randwrite"], vms=2, read_runtime_s=1, write_runtime_s=1, span_bytes=DISK,
                      prefill=True)  # fmt: skip
    empty = settled(monitor)
    results = hci.run(plan, system, bed, run_dir, progress=False)
    return Cluster(bed, fleet, monitor, system, plan, run_dir, results, empty, settled(monitor))


def settled(monitor: Monitor) -> dict[str, dict]:
    """Pool -> its counters of ``ceph df``, once two readings agree: OSDs report theirs once a second, on a busy machine
    later, and a pool whose images have headers is not empty before they have."""
    before, now = None, read_pools(monitor)
    while before != now or not now["box"]["objects"]:
        time.sleep(1.5)
        before, now = now, read_pools(monitor)
    return now


def read_pools(monitor: Monitor) -> dict[str, dict]:
    stats = {pool["name"]: pool["stats"] for pool in monitor.ask("df", detail="detail")["pools"]}
    return {name: {key: s[key] for key in ("stored", "bytes_used", "objects")} for name, s in stats.items()}


def assert_ended(ceph_cluster: Cluster | None, tmp_path_factory) -> None:
    """Assert that each cluster has ended. The last test of a worker that uses one asks for this: otherwise the cluster
    idles until the session ends, at three percent of a processor."""
    assert ceph_cluster is None
    left = processes(str(tmp_path_factory.getbasetemp() / "ceph")).values()
    assert not [command for command in left if "ceph-" in command]
