"""Bad weather at a cluster's start: one plain line, and nothing left behind."""

import os
import signal
import threading
from pathlib import Path

import pytest
from probes import listening, processes, python, until

from hcilab.ceph import ceph
from hcilab.lab_hosts import LabError

pytestmark = [pytest.mark.lab, pytest.mark.deep]
SMALL = {"vms": 1, "disk_bytes": 4 * 2**20}


def nothing_left(folder: Path) -> bool:
    """Whether neither a file nor a process is left under the folder; processes get a moment to go."""
    return bool(until(lambda: not list(folder.iterdir()) and not processes(str(folder))))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"system": "box-swift"}, "unknown Ceph system 'box-swift': expected one of box-osd, box-ceph, box-ceph-ec"),
        ({"vms": 0}, "ceph(vms=0): Input should be greater than or equal to 1"),
        ({"disk_bytes": "64 MB/s"}, "ceph(disk_bytes='64 MB/s')"),
        ({"disk_bytes": 2 * 2**30}, "2 images of 2048 MiB need an OSD of at least"),
        ({"disk_bytes": 2**50, "osd_bytes": 2**53}, "MiB free, the cluster's OSDs need"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_in_one_line(ceph_programs, tmp_path, wrong, said):
    with pytest.raises(LabError) as caught, ceph(root=tmp_path / "bed", **wrong):
        pass
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("bed/*"))


@pytest.mark.parametrize("victim", ["mon.a", "osd.1"])
def test_a_daemon_killed_while_starting_is_named(ceph_programs, tmp_path, victim):
    killer = threading.Thread(target=kill_as_soon_as_it_runs, args=(tmp_path, victim))
    killer.start()
    try:
        with pytest.raises(LabError) as caught, ceph(root=tmp_path, **SMALL):
            pass
    finally:
        killer.join()
    kind = victim.partition(".")[0]
    assert f"ceph-{kind} {victim}" in str(caught.value)
    assert "exited with -9" in str(caught.value)
    assert nothing_left(tmp_path)


def kill_as_soon_as_it_runs(folder: Path, name: str) -> None:
    """SIGKILL to the daemon of that name under the folder; what makes its store, before it, is left alone."""
    kind, _, which = name.partition(".")
    command = f"ceph-{kind} -f -i {which} "
    pid = until(lambda: next((pid for pid, c in processes(str(folder)).items() if command in c), None), 60)
    os.kill(pid, signal.SIGKILL)


HOLD = """
import sys
from hcilab import ceph
ceph._start = lambda *a, start=ceph._start: print("starting", flush=True) or start(*a)
with ceph.ceph(vms=1, disk_bytes=4 * 2**20, root=sys.argv[1], base="127.213.9"):
    print("up", flush=True)
"""


def test_it_is_gone_after_kill_9_of_its_holder_while_it_starts(ceph_programs, tmp_path):
    holder = python(HOLD, str(tmp_path))
    try:
        assert holder.stdout.readline() == "starting\n"
        assert until(lambda: list(tmp_path.glob("*/mon.a.pid")), 60), "the monitor is running"
    finally:
        holder.kill()
        holder.communicate()
    assert nothing_left(tmp_path)
    assert listening("127.213.9") == []
