"""Bad weather at a cluster's start: one plain line, and nothing left behind."""

import os
import shutil
import signal
import socket
import threading
from pathlib import Path

import pytest
from probes import listening, processes, python, until

from hcilab import ceph as module
from hcilab import ceph_cluster, lab_hosts
from hcilab.ceph import ceph
from hcilab.ceph_cluster import CephError, Monitor
from hcilab.lab_hosts import LabError

pytestmark = [pytest.mark.lab, pytest.mark.deep]
SMALL = {"vms": 1, "disk_bytes": 4 * 2**20}


def nothing_left(folder: Path) -> bool:
    """Whether neither a file nor a process is left under the folder; processes get a moment to go."""
    return bool(until(lambda: not list(folder.iterdir()) and not processes(str(folder))))


@pytest.mark.parametrize("program", sorted(module.PACKAGES))
def test_a_missing_program_is_named_with_its_package(ceph_programs, monkeypatch, tmp_path, program):
    which = shutil.which
    monkeypatch.setattr(
        lab_hosts.shutil, "which", lambda name, **options: None if name == program else which(name, **options)
    )
    with pytest.raises(LabError) as caught, ceph(root=tmp_path / "bed"):
        pass
    assert str(caught.value).startswith(f"not found: {program}; install with: apt-get install")
    assert str(caught.value).endswith(f" {module.PACKAGES[program]}")
    assert not (tmp_path / "bed").exists()


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


def test_too_little_memory_is_said_before_anything_starts(ceph_programs, monkeypatch, tmp_path):
    """A machine of which 200 MiB are left, as /proc/meminfo would say it."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 8000000 kB\nMemFree: 1000 kB\nMemAvailable: 204800 kB\n")
    real = lab_hosts.available_memory
    assert real() > 2**28
    monkeypatch.setattr(lab_hosts, "available_memory", lambda: real(meminfo))
    with (
        pytest.raises(
            LabError, match=r"200 MiB of memory available, the cluster's 3 OSDs, monitor and manager need \d+ MiB"
        ),
        ceph(system="box-ceph-ec", root=tmp_path / "bed"),
    ):
        pass
    assert not (tmp_path / "bed").exists()


def test_a_folder_that_ceph_cannot_name_is_refused(ceph_programs, tmp_path):
    odd = tmp_path / "my beds"
    said = r"Ceph cannot be told of a path with ' ' in it; pass another root="
    with pytest.raises(LabError, match=said), ceph(root=odd):
        pass
    assert list(odd.iterdir()) == []


def test_a_port_in_use_is_named(ceph_programs, tmp_path):
    with (
        socket.create_server(("127.213.7.1", ceph_cluster.MON_PORT)),
        pytest.raises(LabError, match=r"address in use: 127\.213\.7\.1:3300 already answers; .*base="),
        ceph(base="127.213.7", root=tmp_path, **SMALL),
    ):
        pass
    assert nothing_left(tmp_path)


def test_a_port_that_is_bound_but_silent_is_in_the_monitors_own_words(ceph_programs, tmp_path):
    """Found only when the monitor tries: the end of its log is the error."""
    with socket.socket() as squatter:
        squatter.bind(("127.213.8.1", ceph_cluster.MON_PORT))
        said = r"ceph-mon mon\.a exited with -?\d+.*Address already in use"
        with pytest.raises(LabError, match=said), ceph(base="127.213.8", root=tmp_path, **SMALL):
            pass
    assert nothing_left(tmp_path)
    assert listening("127.213.8") == []


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


def test_a_monitor_that_is_not_there_is_an_error_and_no_hang(ceph_programs, tmp_path, monkeypatch):
    monkeypatch.setattr("hcilab.ceph_cluster.LIMIT_S", 2)
    config = tmp_path / "hci-00000000.conf"
    config.write_text("[global]\nfsid = 7d7dbfa1-2a51-4ac1-8f1e-4a5c3d8e3f00\nmon_host = v2:127.213.10.1:3300\n"
                      "auth_client_required = none\n")  # fmt: skip
    with pytest.raises(CephError, match="rados_connect: Connection timed out; does the cluster's monitor run"):
        Monitor(config)
