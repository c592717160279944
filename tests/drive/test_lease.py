"""One campaign at a time on a host: real sshd, real locks, real controllers that die."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from probes import processes, until

from hcilib.drive.campaign.campaign import run
from hcilib.drive.hosts import lease as room
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.hosts.lease import Lease, LeaseError
from hcilib.model.system import System

pytestmark = pytest.mark.lab
HOLD = """
import sys, time
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.hosts.lease import Lease
from hcilib.model.testbed import Testbed
bed = Testbed.model_validate_json(open(sys.argv[1]).read())
with Fleet(bed) as fleet, Lease(fleet, bed, bed.vms, "/runs/other"):
    print("held", flush=True)
    time.sleep(120)
"""


def hold(bed, tmp_path) -> subprocess.Popen:
    """Another controller, with a lease on a testbed."""
    (tmp_path / "bed.json").write_text(bed.model_dump_json())
    other = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / "bed.json"], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    return other


def part(bed, *vms: str, nodes=None, **changes):
    """A testbed file of its own: some of the VMs, under whatever names and users it gives them."""
    chosen = tuple(vm.model_copy(update=changes) for vm in bed.vms if vm.name in vms)
    return bed.model_copy(update={"name": "-".join(vms), "vms": chosen, "nodes": bed.nodes if nodes is None else nodes})


@pytest.mark.parametrize("launcher", ["per-host", pytest.param("client-server", marks=pytest.mark.deep)])
def test_a_second_campaign_is_refused_by_name_within_seconds(bed, short, tmp_path, launcher):
    bed = bed.model_copy(update={"fio": bed.fio.model_copy(update={"launcher": launcher})})
    other = hold(bed, tmp_path)
    try:
        began = time.monotonic()
        with pytest.raises(LeaseError) as caught:
            run(short(), bed, System(name="lab-mirror", label="m"), tmp_path / "run", progress=False)
        assert time.monotonic() - began < 5
        assert not (tmp_path / "run" / "plan.json").exists()
    finally:
        other.kill()
        other.wait()
    said = str(caught.value)
    assert "vm1 is in use by another campaign: " in said
    assert f"run directory /runs/other, process {other.pid}, since 20" in said
    results = run(short(), bed, System(name="lab-mirror", label="m"), tmp_path / "run", progress=False)
    assert results["valid"].all(), "whoever was killed holds nothing any more"


def test_a_lease_that_ended_is_gone_from_the_hosts(bed, tmp_path):
    with Fleet(bed) as fleet:
        for _ in range(5):
            with Lease(fleet, bed, bed.vms, tmp_path, campaign="soon-over"):
                assert len(processes(" soon-over/")) >= len(fleet.names)
            assert processes(" soon-over/") == {}


def test_a_controller_that_is_killed_frees_its_hosts_and_leaves_no_process(bed, tmp_path):
    other = hold(bed, tmp_path)
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    began = time.monotonic()
    with Fleet(bed) as fleet:

        def free() -> bool:
            try:
                with Lease(fleet, bed, bed.vms, tmp_path):
                    return True
            except LeaseError:
                return False

        assert until(free, 5)
        assert time.monotonic() - began < 5
        assert until(lambda: not processes(f"/runs/other, process {other.pid}, "), 5)


@pytest.mark.parametrize(("one", "two"), [(("vm1", "vm2"), ("vm2", "vm3")), (("vm1",), ("vm1",))])
def test_two_testbed_files_that_share_a_vm_count(bed, tmp_path, one, two):
    mine, theirs = part(bed, *one, nodes=()), part(bed, *two, nodes=(), name="called-otherwise")
    theirs = theirs.model_copy(
        update={"vms": tuple(v.model_copy(update={"name": f"x{i}"}) for i, v in enumerate(theirs.vms))}
    )
    refused = pytest.raises(LeaseError, match=r"x0 is in use by another campaign: .*/one, process")
    with Fleet(mine) as a, Fleet(theirs) as b, Lease(a, mine, mine.vms, tmp_path / "one"), refused:
        Lease(b, theirs, theirs.vms, tmp_path / "two").__enter__()


def test_testbeds_that_share_a_node_alone_count_and_others_do_not(bed, tmp_path):
    mine, theirs = part(bed, "vm1", nodes=bed.nodes[:1]), part(bed, "vm2", nodes=bed.nodes[:1])
    apart = part(bed, "vm2", nodes=bed.nodes[1:])
    with Fleet(mine) as a, Fleet(theirs) as b, Fleet(apart) as c, Lease(a, mine, mine.vms, tmp_path):
        with pytest.raises(LeaseError, match=r"^node1 is in use"):
            Lease(b, theirs, theirs.vms, tmp_path).__enter__()
        with Lease(c, apart, apart.vms, tmp_path) as lease:
            assert not lease.unleased


def test_a_machine_reached_by_two_names_is_one(bed, tmp_path):
    twice = bed.model_copy(update={"nodes": (bed.nodes[0].model_copy(update={"name": "again"}), *bed.nodes)})
    with Fleet(twice) as fleet, Lease(fleet, twice, twice.vms, tmp_path) as lease:
        names = {"again", "node1"}
        [(name, said)] = lease.unleased.items()
        assert said == f"the same machine as {(names - {name}).pop()}, which is"


def test_a_lost_connection_is_leased_again_unless_somebody_came_between(bed, tmp_path):
    one = part(bed, "vm1", nodes=())
    with Fleet(one) as a, Fleet(one) as b, Lease(a, one, one.vms, tmp_path / "a") as lease:
        a._connections["vm1"].close()
        assert until(lambda: not lease._holds("vm1"), 5)
        lease.renew()
        assert lease._holds("vm1")
        a._connections["vm1"].close()
        assert until(lambda: not lease._holds("vm1"), 5)
        time.sleep(0.5)
        with Lease(b, one, one.vms, tmp_path / "b"), pytest.raises(LeaseError, match="/b, process"):
            lease.renew()


def test_a_controller_that_falls_silent_loses_its_lease(bed, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "SILENT_S", 1)
    monkeypatch.setattr(room, "BEAT_S", 60)
    one = part(bed, "vm1", nodes=())
    with Fleet(one) as fleet, Lease(fleet, one, one.vms, tmp_path) as lease:
        assert until(lambda: not lease._holds("vm1"), 5)
    monkeypatch.setattr(room, "SILENT_S", 3)  # a beat may be a second late on a busy machine
    monkeypatch.setattr(room, "BEAT_S", 0.2)
    with Fleet(one) as fleet, Lease(fleet, one, one.vms, tmp_path) as lease:
        time.sleep(7)
        assert lease._holds("vm1")


def test_a_host_without_flock_and_one_with_windows_are_said_to_be_not_leased(bed, tmp_path, monkeypatch):
    windows = bed.nodes[0].model_copy(update={"os": "windows", "name": "win"})
    one = part(bed, "vm1", nodes=(windows,))
    monkeypatch.setattr(room, "SCRIPT", room.SCRIPT.replace("command -v flock", "command -v no-such-flock"))
    with Fleet(one) as fleet, Lease(fleet, one, one.vms, tmp_path) as lease:
        assert lease.unleased == {
            "win": "a Windows host is not leased",
            "vm1": "flock (util-linux) is not installed there",
        }


@pytest.mark.parametrize("trap", ["link", "fifo", "folder"])
def test_what_somebody_put_in_the_locks_place_hangs_and_overwrites_nothing(bed, tmp_path, trap, monkeypatch):
    monkeypatch.setattr(room, "SCRIPT", room.SCRIPT.replace("/run/lock /var/lock /tmp", str(tmp_path / "locks")))
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks").chmod(0o1777)
    one = part(bed, "vm1", nodes=())
    place, precious = tmp_path / "locks" / f"hci-lease-{one.vms[0].target}", tmp_path / "precious"
    precious.write_text("precious")
    {"link": lambda: place.symlink_to(precious), "fifo": lambda: os.mkfifo(place), "folder": place.mkdir}[trap]()
    with Fleet(one) as fleet, Lease(fleet, one, one.vms, tmp_path) as lease:
        assert "is no plain file that can be read" in lease.unleased["vm1"]
    assert precious.read_text() == "precious"


def test_a_lease_that_its_own_campaign_left_behind_is_taken_over_and_no_others(bed, tmp_path):
    """As after an outage: on the host the shell of the first one still waits for its controller."""
    one = part(bed, "vm1", nodes=())
    with Fleet(one) as a, Fleet(one) as b, Lease(a, one, one.vms, tmp_path, "campaign.lock") as left:
        with pytest.raises(LeaseError, match=r"^vm1 is in use by another campaign: .*, process"):
            Lease(b, one, one.vms, tmp_path, "campaign.copy").__enter__()
        assert left._holds("vm1"), "a copy of the run directory has another lock"
        with Lease(b, one, one.vms, tmp_path, "campaign.lock") as lease:
            assert lease._holds("vm1")
            assert until(lambda: not left._holds("vm1"), 5)


def test_a_lock_without_a_name_accuses_nobody(bed, tmp_path):
    one = part(bed, "vm2", nodes=())  # the shell of the test before may not have ended on vm1
    with Fleet(one) as fleet:
        with Lease(fleet, one, one.vms, tmp_path):
            pass
        folders = (Path(folder) for folder in ("/run/lock", "/var/lock", "/tmp"))
        place = next(file for f in folders if (file := f / f"hci-lease-{one.vms[0].target}").exists())
        with open(place) as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # as soon as the lease's shell has ended
            with pytest.raises(LeaseError, match=rf"^vm2 has a lock, {place}, that is held by a process that left no"):
                Lease(fleet, one, one.vms, tmp_path).__enter__()
