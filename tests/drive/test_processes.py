"""Which fio waits, which works, and which works for a controller that is gone."""

import contextlib
import os
import signal
import subprocess

import pytest
from fio_trees import JOB, LINGERING, LOST_RUN, RUN, SERVER
from probes import until

from hcilib.drive.guard.preflight import check
from hcilib.drive.hosts import processes
from hcilib.drive.hosts.hosts import Fleet
from hcilib.testbed import Disk, Node, Testbed, Vm

VM = Vm(name="vm1", address="192.0.2.11", node="n1", disks=(Disk(serial="A", size_bytes=1),))
REAL = Testbed(name="real", nodes=(Node(name="n1"),), vms=(VM,))


def test_only_a_job_whose_connection_is_gone_is_an_orphan():
    def lost(*lines):
        return sorted(p.pid for p in processes.orphans(processes.parse("\n".join(lines), VM, REAL)))

    assert lost(SERVER, LINGERING, RUN, JOB) == []
    assert lost(SERVER, LOST_RUN, JOB) == [12, 13]
    assert lost(SERVER, LOST_RUN, JOB, JOB.replace("13", "14")) == [12, 13, 14]
    assert lost(SERVER, LINGERING) == []
    assert lost("20\t1\t20\t/\tfio --name=x ", "21\t20\t21\t/\tfio --name=x ") == [], "someone's own fio is never ended"


@pytest.mark.parametrize(
    ("command", "port"),
    [
        ("fio --server", 8765),
        ("fio --server --daemonize=/run/fio.pid", 8765),
        ("/opt/fio-3.36/fio --server=192.0.2.11", 8765),
        ("fio --server=ip:192.0.2.11,8766", 8766),
        ("fio --server=ip6:fe80::1,9000 --bandwidth-log", 9000),
        ("fio --server=,8001", 8001),
        ("fio --server=sock:/run/fio.sock", None),
        ("fio --client=192.0.2.11,8765", None),
    ],
)
def test_the_port_of_a_server(command, port):
    assert processes.Process(1, 1, 1, command).port == port


@contextlib.contextmanager
def a_client(bed, tmp_path, seconds: int):
    """fio's client with a job on vm1's server, running."""
    vm = bed.vms[0]
    job = tmp_path / "job.fio"
    job.write_text(f"[j]\nioengine=null\nsize=1g\nrw=randread\ntime_based=1\nruntime={seconds}\nrate_iops=100\n")
    argv = ["fio", f"--client={vm.target}", str(job)]
    client = subprocess.Popen(
        argv, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with Fleet(bed) as fleet:
            assert until(lambda: working(fleet, bed)), "its job runs"
            yield client, fleet
    finally:
        client.kill()
        client.wait()


def working(fleet: Fleet, bed) -> list[int]:
    vm = bed.vms[0]
    text = fleet.run(processes.SCRIPT, [vm.name])[vm.name].value
    return [p.pid for p in processes.jobs(processes.parse(text.partition("==== processes\n")[2], vm, bed))]


@pytest.mark.lab
def test_a_job_left_by_a_controller_that_died_is_ended_and_one_with_a_controller_is_not(bed, short, tmp_path):
    with a_client(bed, tmp_path, seconds=60) as (client, fleet):
        table = check(fleet, bed, short(vms=2), None, None)
        [row] = table[~table["ok"]].itertuples()
        assert (row.host, row.check) == ("vm1", "idle")
        assert f"process {working(fleet, bed)[0]} (a job of a running server)" in row.detail
        assert processes.end_orphans(fleet, bed, bed.vms, patience_s=0) == {}, "its controller lives"
        assert working(fleet, bed)

        [job] = working(fleet, bed)
        os.kill(client.pid, signal.SIGKILL)
        killed = processes.end_orphans(fleet, bed, bed.vms)
        assert list(killed) == ["vm1"]
        assert job in killed["vm1"]
        assert until(lambda: not working(fleet, bed), 3)
        assert check(fleet, bed, short(vms=2), None, None)["ok"].all(), "and the server itself still waits"
