"""One running lab for all tests that only use it; those that hurt a lab start their own."""

from functools import partial
from pathlib import Path

import pytest
from boxes import box_programs, drbd  # noqa: F401 (fixtures)
from ceph_beds import ceph_cluster, ceph_programs  # noqa: F401 (fixtures)
from injections import CALM_S
from loops import blank, held, hosts, machine, media, own  # noqa: F401 (fixtures)
from plain import short_plan

import hcilib as hci
from hcilab.lab import lab
from hcilab.lab_hosts import PACKAGES
from tests.needs import need

HELD_S = 0.2  # by a busy machine; on a calm one a dialled drive holds up an I/O for 0.05 s at most


@pytest.fixture
def run_dir(tmp_path) -> Path:
    """Where a campaign is kept; not there yet."""
    return tmp_path / "run"


@pytest.fixture(scope="session")
def programs():
    """Skip where the machine lacks what the lab is made of (a CI job that installs it never skips)."""
    need(*PACKAGES)


@pytest.fixture(scope="session")
def bed(programs, tmp_path_factory):
    """A running lab-mirror: 2 nodes, 3 VMs of 2 disks, in a folder with a long and awkward path."""
    deep = tmp_path_factory.mktemp("lab") / ("deep " * 12) / "100 % 'odd'" / ("x" * 90)
    with lab(2, 3, system="lab-mirror", disks=2, disk_bytes=16 * 2**20, delay_s=CALM_S, root=deep) as testbed:
        yield testbed


@pytest.fixture
def victim(programs, tmp_path):
    """A lab of two VMs that may be hurt."""
    with lab(2, 2, disk_bytes=8 * 2**20, delay_s=CALM_S, root=tmp_path / "lab") as testbed:
        yield testbed


@pytest.fixture(scope="session")
def short():
    """A short plan of two VMs."""
    return partial(short_plan, vms=2)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The first of at most five campaigns of which no I/O was held for `HELD_S`, or else the calmest.

    Beside busy processes one that slept may wait for its processor for half a second and more. A drive of known speed
    makes up for that within a run, but not at an end of it, where a rate is counted that no drive has. Only the
    slowest I/O decides which campaign counts, nothing that a test asks of it.
    """

    def held_s(results) -> float:
        return results["max_lat_ns"].max() / 1e9

    def measured(plan, testbed, systems):
        folder, tried = tmp_path_factory.mktemp("undisturbed"), []
        while len(tried) < 5 and (not tried or held_s(tried[-1]) >= HELD_S):
            tried.append(hci.run(plan, systems, testbed, folder / f"run{len(tried)}", progress=False))
        return min(tried, key=held_s)

    return measured
