"""One campaign at a time on a host: real sshd, real disks, real controllers that die."""

import contextlib
import fcntl
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from plain import run
from probes import processes, python, until

from hcilib.drive.guard.guard import disks_to_lease
from hcilib.drive.hosts import lease as room
from hcilib.drive.hosts.hosts import Fleet, FleetError, Outcome
from hcilib.drive.hosts.lease import SOURCE, Lease, LeaseError, Place, _holders, ask
from hcilib.drive.keeper import mark_of
from hcilib.model.system import System

pytestmark = pytest.mark.lab
OURS = f"campaign{os.getpid()}"
HOLD = """
import json, sys, time
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.hosts.lease import Lease, Place
from hcilib.model.testbed import Testbed
bed = Testbed.model_validate_json(open(sys.argv[1]).read())
campaign, disk = sys.argv[2], {"S1": Place(*sys.argv[3:])} if sys.argv[3:] else {}
with Fleet(bed) as fleet, Lease(fleet, bed, bed.vms, "/runs/other", campaign, lambda hosts: {"vm1": disk}) as lease:
    if disk:
        keeper = lease.keeper("vm1")
        assert not lease.refused, lease.refused
        job = f"[a]\\nfilename={lease.paths['vm1']['S1']}\\nrw=randwrite\\ndirect=1\\ntime_based=1\\nruntime=60\\n"
        argv = ["fio", "--status-interval=200ms", "--output-format=json+", "FOLDER/job.fio"]
        given = {"name": "t", "parent": "/tmp", "files": {"job.fio": job}, "argv": argv, "limit_s": 60, "rates_ms": 200}
        fio = keeper.send("fio", given=given)
        keeper.answer(fio, 20)
        keeper.ask("start", run=fio)
        while keeper.heard(fio).get(timeout=20).get("event") != "rates":
            pass
    print("held", flush=True)
    sys.stdin.readline()
    fleet._connections["vm1"].transport.sock.close()
    time.sleep(120)
"""


@contextlib.contextmanager
def holding(bed, tmp_path, *disk: str, campaign: str = ""):
    """Another controller with a lease on a testbed; on a disk of vm1's, fio is at work as well."""
    (tmp_path / "bed.json").write_text(bed.model_dump_json())
    other = python(HOLD, str(tmp_path / "bed.json"), campaign, *disk, stdin=subprocess.PIPE, stderr=None)
    try:
        assert other.stdout.readline() == "held\n"
        yield other
    finally:
        other.kill()
        other.communicate()


def part(bed, *vms: str, nodes=None, **changes):
    """A testbed file of its own: some of the VMs, under whatever names and users it gives them."""
    chosen = tuple(vm.model_copy(update=changes) for vm in bed.vms if vm.name in vms)
    return bed.model_copy(update={"name": "-".join(vms), "vms": chosen, "nodes": bed.nodes if nodes is None else nodes})


def taken(lease) -> None:
    """Require that a lease can be had, and end it."""
    with lease:
        pass


def test_a_second_campaign_is_refused_by_name(bed, short, tmp_path, run_dir):
    with holding(bed, tmp_path) as other:
        with pytest.raises(LeaseError) as caught:
            run(short(), bed, System(name="lab-mirror", label="m"), run_dir)
        assert not (run_dir / "plan.json").exists()
    said = str(caught.value)
    assert "vm1 is in use by another campaign: " in said
    assert f"run directory /runs/other, process {other.pid}, since 20" in said
    results = run(short(), bed, System(name="lab-mirror", label="m"), run_dir)
    assert results["valid"].all(), "whoever was killed holds nothing any more"
    assert until(lambda: not processes(f"/runs/other, process {other.pid}, "), 5)


def test_two_testbed_files_that_share_a_vm_count(bed, tmp_path):
    """By whatever name; and whoever has it is told in characters that can be seen."""
    mine, theirs = part(bed, "vm1", "vm2", nodes=()), part(bed, "vm2", nodes=(), name="x0")
    held = pytest.raises(LeaseError, match=r"^x0 is in use by another campaign: .*/one\?\[2J\?\?, process")
    odd = "/one\x1b[2J\n\udcff"
    with Fleet(mine) as a, Fleet(theirs) as b, Lease(a, mine, mine.vms, odd), held as caught:
        taken(Lease(b, theirs, theirs.vms, tmp_path / "two"))
    assert str(caught.value).isprintable()


def test_a_machine_reached_by_two_names_is_one(bed, tmp_path):
    """Both names ask at once; of many times one of them has the lease, each time."""
    twice = bed.model_copy(update={"nodes": (bed.nodes[0].model_copy(update={"name": "again"}), *bed.nodes)})
    names = {"again", "node1"}
    with Fleet(twice) as fleet:
        for n in range(12):
            with Lease(fleet, twice, twice.vms[:1], tmp_path / str(n)) as lease:
                [(name, said)] = lease.unleased.items()
                [other] = names - {name}
                assert said == f"the same machine as {other}, which is"
                fleet._connections[other].close()
                assert until(lambda: not lease._holds(other), 5)  # noqa: B023
                lease.renew()
                assert list(lease.unleased) == [name], "one that was refused stands in nobody's way"


def test_a_lost_connection_is_leased_again_unless_somebody_came_between(bed, tmp_path):
    one = part(bed, "vm1", nodes=())
    with Fleet(one) as a, Fleet(one) as b, Lease(a, one, one.vms, tmp_path / "a") as lease:
        a._connections["vm1"].close()
        assert until(lambda: not lease._holds("vm1"), 5)
        lease.renew()
        assert lease._holds("vm1")
        a._connections["vm1"].close()
        assert until(lambda: not lease._holds("vm1") and not processes(f"{lease._token}/vm1"), 10)
        with Lease(b, one, one.vms, tmp_path / "b"), pytest.raises(LeaseError, match="/b, process"):
            lease.renew()


@pytest.mark.parametrize(("silent_s", "beat_s", "keeps"), [(1, 60, False), (3, 0.2, True)])
def test_a_controller_that_falls_silent_loses_its_lease(bed, tmp_path, monkeypatch, silent_s, beat_s, keeps):
    monkeypatch.setattr(room, "SILENT_S", silent_s)  # of one that beats more: it may be late on a busy machine
    monkeypatch.setattr(room, "BEAT_S", beat_s)
    one = part(bed, "vm1", nodes=())
    with Fleet(one) as fleet, Lease(fleet, one, one.vms, tmp_path) as lease:
        assert bool(until(lambda: not lease._holds("vm1"), 7)) is not keeps


def test_a_windows_host_is_said_to_be_not_leased(bed, tmp_path):
    windows = bed.nodes[0].model_copy(update={"os": "windows", "name": "win"})
    one = part(bed, "vm1", nodes=(windows,))
    with Fleet(one) as fleet, Lease(fleet, one, one.vms, tmp_path) as lease:
        assert lease.unleased == {"win": "a Windows host is not leased"}
        assert lease._holds("vm1")


def test_a_host_that_cannot_be_leased_is_named_unless_the_testbed_says_so(bed, tmp_path):
    one = part(bed, "vm1", nodes=()).model_copy(update={"lease_folder": str(tmp_path / "nowhere")})
    with Fleet(one) as fleet, pytest.raises(LeaseError, match=r"^vm1 cannot be leased: .*nowhere.* `lease: none`"):
        taken(Lease(fleet, one, one.vms, tmp_path))
    none = one.model_copy(update={"lease": "none"})
    with Fleet(none) as a, Lease(a, none, none.vms, tmp_path), Lease(a, none, none.vms, tmp_path / "b") as lease:
        lease.renew()
        assert list(lease.unleased) == ["vm1"]


def test_a_host_without_python_is_named(bed, tmp_path):
    one = part(bed, "vm1", nodes=()).model_copy(update={"python": "no-such-python"})
    missing = pytest.raises(FleetError, match=r"vm1: no python3 there.*install it")
    with Fleet(one) as fleet, Lease(fleet, one, one.vms, tmp_path) as lease, missing:
        lease.renew()


# Disks: real loop devices


def leased(fleet, testbed, run_dir, campaign=""):
    """A lease on the hosts of a testbed whose VMs have a disk each."""
    disks = functools.partial(disks_to_lease, fleet, testbed, 1, 1)
    return Lease(fleet, testbed, testbed.vms, run_dir, campaign, disks)


def place_of(device: str) -> Place:
    own = os.stat(device).st_rdev
    return Place(f"{os.major(own)}:{os.minor(own)}", device)


@pytest.fixture
def shared(media, hosts):
    """One disk that both VMs know, each by a serial of its own; a testbed for each, which share no host."""
    file = media.file("shared.img")
    device = media.attach(file)
    hosts.give("vm1", "S1", file)
    hosts.give("vm2", "S2", file)
    nodes = hosts.bed.nodes
    others = [node.model_copy(update={"name": "elsewhere"}) for node in nodes[1:]]
    vm2 = [vm.model_copy(update={"node": "elsewhere"}) for vm in hosts.testbed(("vm2", "S2")).vms]
    one, other = hosts.testbed(("vm1", "S1")), hosts.testbed(("vm2", "S2"), vms=vm2, nodes=others)
    return device, one.model_copy(update={"nodes": nodes[:1]}), other


def test_a_disk_is_leased_whatever_the_address_and_the_testbed_file(shared, hosts, tmp_path):
    """One machine reached by two addresses."""
    _, one, other = shared
    held = pytest.raises(LeaseError, match=r"^vm2 is in use by another campaign: .*/a, process")
    with hosts.fleet(one) as a, hosts.fleet(other) as b:
        with leased(a, one, tmp_path / "a"), held:
            taken(leased(b, other, tmp_path / "b"))
        with leased(b, other, tmp_path / "b") as lease:
            assert lease.held == {("vm2", "S2")}, "the lease of before is over"


@pytest.fixture
def called(shared):
    """The disk under another name: a device node of its own."""
    node = Path("/dev/hci-test-lease")
    os.mknod(node, 0o600 | 0o060000, os.stat(shared[0]).st_rdev)
    yield str(node)
    node.unlink()


@pytest.mark.parametrize("reading", [(False, False), (False, True), (True, False), (True, True)])
def test_a_disk_is_leased_by_whatever_name_for_writing_or_reading(shared, called, hosts, tmp_path, reading):
    device, one, other = shared

    def lease(fleet, testbed, path, reading):
        [vm] = testbed.vms
        disks = {vm.name: {vm.disks[0].serial: place_of(path)}}
        return Lease(fleet, testbed, testbed.vms, tmp_path / vm.name, "", lambda hosts: disks, reading)

    held = pytest.raises(LeaseError, match=r"^vm2 is in use by another campaign: .*/vm1, process")
    with hosts.fleet(one) as a, hosts.fleet(other) as b, lease(a, one, device, reading[0]) as first:
        assert first.held == {("vm1", "S1")}
        with held:
            taken(lease(b, other, called, reading[1]))


NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
HIDDEN = ["unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh", *NOBODY]
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable


@contextlib.contextmanager
def keeper(account: list[str], *place: str):
    """The process of another account's campaign, and its word."""
    argv = [*account, PYTHON, "-c", SOURCE, "hci-lease", "nobody's", "theirs/vm", "60", "D", *place]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield json.loads(process.stdout.readline().removeprefix("hci "))["disks"]["D"]
        process.stdin.close()


@pytest.mark.needs("root", "setpriv", "unshare")
@pytest.mark.parametrize("mode", ["write", "read", "lock"])
def test_what_one_account_has_leased_is_leased_for_all(shared, hosts, tmp_path, mode):
    """A disk, or a host without disks: root locks /root, others /. And where processes are hidden from the other."""
    device, one, _ = shared
    os.chmod(device, 0o666)
    one, place, disks = one.model_copy(update={"nodes": (), "lease_folder": None}), ("/", "/", mode), {}
    if mode != "lock":
        place, disks = (*place_of(device), mode), {"vm1": {"S1": place_of(device)}}

    def lease():
        return Lease(fleet, one, one.vms, tmp_path / "a", "", lambda hosts: disks, mode == "read")

    with hosts.fleet(one) as fleet:
        with lease():
            with keeper(NOBODY, *place) as found:
                assert found["word"] == "held"
                assert "/vm1 " in found["what"]
                assert "/a, process" in found["what"]
            with keeper(HIDDEN, *place) as found:
                assert found["word"] == {"write": "busy", "read": "nameless", "lock": "nameless"}[mode]
        for account in (NOBODY, HIDDEN):
            with keeper(account, *place) as found:
                assert found["word"] == "leased"
                with pytest.raises(LeaseError, match=r"^vm1 is in use by another campaign: nobody's"):
                    taken(lease())


@pytest.mark.parametrize("state", ["awake", "frozen"])
def test_a_lease_that_its_own_campaign_left_behind_is_taken_over_and_no_others(shared, hosts, tmp_path, state):
    """As after an outage: on the host the process of the first one still waits for its controller, or is frozen; its
    fio writes on."""
    device, one, other = shared
    with (
        contextlib.ExitStack() as stack,
        hosts.fleet(one) as b,
        hosts.fleet(other) as c,
        holding(one, tmp_path, *place_of(device), campaign=OURS),
    ):
        for folder in Path("/tmp").glob(f"hci-t.{mark_of(f'{OURS}/vm1')}*"):
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        left = processes(f"{OURS}/vm1")
        assert left
        for pid in left if state == "frozen" else ():
            os.kill(pid, signal.SIGSTOP)
        with pytest.raises(LeaseError, match=r"vm1 is in use by another campaign: .*, process"):
            taken(leased(b, one, tmp_path, f"{OURS}.copy"))  # a copy of the run directory has another lock
        with leased(b, one, tmp_path, OURS) as lease:
            assert lease.held == {("vm1", "S1")}
            assert lease.ended["vm1"], "its fio"
            assert not left.keys() & processes(f"{OURS}/vm1").keys()
            b._connections["vm1"].close()
            assert until(lambda: not lease._holds("vm1"), 5)
            lease.renew()
            with pytest.raises(LeaseError, match=r"^vm2 is in use by another"):
                taken(leased(c, other, tmp_path))


@pytest.mark.parametrize("how", ["killed", "cut"])
@pytest.mark.parametrize("times", [2, pytest.param(30, marks=pytest.mark.deep)])
def test_a_controllers_death_frees_its_disk_within_ten_seconds(shared, tmp_path, how, times):
    """Each time, and while fio writes to it."""
    device, one, _ = shared

    def free() -> bool:
        try:
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
        except OSError:
            return False
        return True

    freed = 0
    for _ in range(times):
        with holding(one, tmp_path, *place_of(device)) as other:
            assert not free()
            if how == "killed":
                other.kill()
            else:
                print("cut", file=other.stdin, flush=True)
            freed += bool(until(free, 10))
    assert freed == times


def test_a_lock_on_a_disk_that_is_no_campaigns_is_named(shared, hosts, tmp_path):
    device, one, _ = shared
    with open(device, "rb") as disk:
        fcntl.flock(disk, fcntl.LOCK_SH)
        said = rf"^vm1 has a lock, {device}, which python\S* \(process {os.getpid()}\) locks"
        with hosts.fleet(one) as fleet, pytest.raises(LeaseError, match=said):
            taken(leased(fleet, one, tmp_path))


def test_a_lease_is_seen_while_it_is_held_and_who_cannot_be_asked_is_not_free(bed, tmp_path):
    """Hosts of a lab share their processes: each tells of this lease, and maybe of another test's. A command that only
    speaks of leases is none."""
    dead = bed.vms[0].model_copy(update={"port": 2223})
    with Fleet(bed) as fleet, Fleet(bed.model_copy(update={"vms": (dead,)})) as away:
        names = [vm.name for vm in bed.vms]
        held = fleet.session("vm1", "sh -c 'echo ready; read -r word; : hci-lease nobody token' name")
        assert held.recv(16) == b"ready\n"
        with Lease(fleet, bed, bed.vms, tmp_path / "my run"):
            told = ask(fleet, names)
            assert list(told) == names
            assert all(f"run directory {tmp_path}/my run, process " in o.value for o in told.values())
        assert not any({str(tmp_path), "nobody"} & set(o.value.split()) for o in ask(fleet, names).values())
        held.close()
        assert not ask(away, [dead.name])[dead.name].ok


@pytest.mark.parametrize(
    ("text", "ok", "who"),
    [
        ("hci asked\n", True, ""),
        ("Welcome\nhci leased ann\nhci leased ann\nhci leased bob \x1b[2J\nhci asked\n", True, "ann; bob ?[2J"),
        ("hci leased \nhci asked\n", True, "somebody who left no name"),
        ("hci leased ann\n", False, None),
        ("", False, None),
    ],
)
def test_an_answer(text, ok, who):
    told = _holders(Outcome("vm1", True, text))
    assert (told.ok, told.value) == (ok, who)
