"""One campaign at a time on a host: real sshd, real locks, real controllers that die."""

import contextlib
import fcntl
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from probes import processes, until

from hcilib import LeaseError, System
from hcilib.drive.campaign.campaign import run
from hcilib.drive.guard.guard import disks_to_lease
from hcilib.drive.hosts import lease as room
from hcilib.drive.hosts.hosts import Fleet, Outcome
from hcilib.drive.hosts.lease import Lease, _holders, ask

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


@pytest.mark.parametrize(
    ("launcher", "seconds"),
    [
        ("per-host", None),
        *(pytest.param(launcher, 5, marks=pytest.mark.deep) for launcher in ("per-host", "client-server")),
    ],
)
def test_a_second_campaign_is_refused_by_name(bed, short, tmp_path, launcher, seconds):
    """The clock is read in `make deep` alone: on a machine at load 20 the refusal took 5.3 s."""
    bed = bed.model_copy(update={"fio": bed.fio.model_copy(update={"launcher": launcher})})
    other = hold(bed, tmp_path)
    try:
        began = time.monotonic()
        with pytest.raises(LeaseError) as caught:
            run(short(), bed, System(name="lab-mirror", label="m"), tmp_path / "run", progress=False)
        assert seconds is None or time.monotonic() - began < seconds
        assert not (tmp_path / "run" / "plan.json").exists()
    finally:
        other.kill()
        other.wait()
    said = str(caught.value)
    assert "vm1 is in use by another campaign: " in said
    assert f"run directory /runs/other, process {other.pid}, since 20" in said
    results = run(short(), bed, System(name="lab-mirror", label="m"), tmp_path / "run", progress=False)
    assert results["valid"].all(), "whoever was killed holds nothing any more"


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


def test_a_machine_reached_by_two_names_is_one(bed, tmp_path):
    """Both names ask at once. Of 25 times both gave way to each other in 4, and nobody had the lease."""
    twice = bed.model_copy(update={"nodes": (bed.nodes[0].model_copy(update={"name": "again"}), *bed.nodes)})
    names = {"again", "node1"}
    for n in range(12):
        with Fleet(twice) as fleet, Lease(fleet, twice, twice.vms, tmp_path / str(n)) as lease:
            [(name, said)] = lease.unleased.items()
            assert said == f"the same machine as {(names - {name}).pop()}, which is"
            assert lease._holds((names - {name}).pop())


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


def test_a_windows_host_is_said_to_be_not_leased(bed, tmp_path):
    windows = bed.nodes[0].model_copy(update={"os": "windows", "name": "win"})
    one = part(bed, "vm1", nodes=(windows,))
    with Fleet(one) as fleet, Lease(fleet, one, one.vms, tmp_path) as lease:
        assert lease.unleased == {"win": "a Windows host is not leased"}
        assert lease._holds("vm1")


def test_a_host_that_cannot_be_leased_is_refused_unless_the_testbed_says_so(bed, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "SCRIPT", room.SCRIPT.replace("command -v flock", "command -v no-such-flock"))
    one = part(bed, "vm1", nodes=())
    with Fleet(one) as fleet, pytest.raises(LeaseError, match=r"^vm1 cannot be leased: flock .* `lease: none`"):
        Lease(fleet, one, one.vms, tmp_path).__enter__()
    none = one.model_copy(update={"lease": "none"})
    with Fleet(none) as fleet, Lease(fleet, none, none.vms, tmp_path) as lease:
        lease.renew()
        assert list(lease.unleased) == ["vm1"]
        assert processes(f"{lease._token}/") == {}


@pytest.mark.parametrize("trap", ["link", "fifo", "folder", "device"])
def test_what_somebody_put_in_the_locks_place_hangs_and_overwrites_nothing(bed, tmp_path, trap):
    one = part(bed, "vm1", nodes=())
    own = one.model_copy(update={"lease_folder": str(tmp_path)})
    place, precious = Path(own.lease_file(own.vms[0])), tmp_path / "precious"
    precious.write_text("precious")
    {
        "link": lambda: place.symlink_to(precious),
        "fifo": lambda: os.mkfifo(place),
        "folder": place.mkdir,
        "device": lambda: place.symlink_to("/dev/null"),
    }[trap]()
    with Fleet(own) as fleet, pytest.raises(LeaseError, match=f"^vm1 cannot be leased: {place} is no plain file"):
        Lease(fleet, own, own.vms, tmp_path).__enter__()
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_lease_whose_file_is_removed_still_counts_and_notices_it(bed, tmp_path, how):
    """N6: the lock is on a file that nobody finds any more."""
    one = part(bed, "vm1", nodes=())
    one = one.model_copy(update={"lease_folder": str(tmp_path)})
    place = Path(one.lease_file(one.vms[0]))
    with Fleet(one) as a, Fleet(one) as b, Lease(a, one, one.vms, tmp_path / "a") as lease:
        place.unlink()
        if how == "replaced":
            place.touch()
        with pytest.raises(LeaseError, match=r"^vm1 is in use by another campaign: .*/a, process"):
            Lease(b, one, one.vms, tmp_path / "b").__enter__()
        assert lease._holds("vm1")
        lease.renew()
        assert lease._holds("vm1"), "the file that is there now is taken"
        with pytest.raises(LeaseError, match=r"^vm1 is in use by another campaign: .*/a, process"):
            Lease(b, one, one.vms, tmp_path / "b").__enter__()


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


@pytest.fixture
def patient(monkeypatch):
    """A busy host searches all of /proc for who holds a lock, and is waited for."""
    monkeypatch.setattr(room, "CONNECT_S", 60)


# Disks that have a lock of their own: real loop devices


def leased(fleet, testbed, run_dir, campaign=""):
    """A lease on the hosts of a testbed whose VMs have a disk each."""
    disks = functools.partial(disks_to_lease, fleet, testbed, 1, 1)
    return Lease(fleet, testbed, testbed.vms, run_dir, campaign, disks)


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
    """N3: one machine reached by two addresses."""
    _, one, other = shared
    held = pytest.raises(LeaseError, match=r"^vm2 is in use by another campaign: .*/a, process")
    with hosts.fleet(one) as a, hosts.fleet(other) as b:
        with leased(a, one, tmp_path / "a"), held:
            leased(b, other, tmp_path / "b").__enter__()
        with leased(b, other, tmp_path / "b") as lease:
            assert lease._holds("vm2"), "the lease of before is over"


@pytest.mark.parametrize("trap", ["folder", "removed", "locked"])
def test_a_disk_stays_leased_whatever_is_done_to_the_locks_files(shared, hosts, tmp_path, trap):
    """N5, N6: any account may write where the files of leases are; a disk's lock is on the disk."""
    _, one, other = shared
    held = pytest.raises(LeaseError, match=r"vm2 is in use by another campaign: .*/a, process")
    with (
        contextlib.ExitStack() as stack,
        hosts.fleet(one) as a,
        hosts.fleet(other) as b,
        leased(a, one, tmp_path / "a"),
    ):
        for host in (*one.nodes, *one.vms, *other.vms):
            place = Path(one.lease_file(host))
            place.unlink(missing_ok=True)
            if trap == "folder":
                place.mkdir()
                stack.callback(place.rmdir)
            elif trap == "locked":
                fcntl.flock(stack.enter_context(open(place, "w")), fcntl.LOCK_EX)
        with held:
            leased(b, other, tmp_path / "b").__enter__()


def test_a_disk_leased_by_one_account_is_leased_for_all(shared, hosts, tmp_path):
    device, one, _ = shared
    number = f"{os.major(os.stat(device).st_rdev):x}:{os.minor(os.stat(device).st_rdev):x}"
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    argv = [*nobody, "sh", "-c", room.SCRIPT.replace("SILENT", "5"), "hci-lease", "nobody", "theirs/vm", number, device]
    os.chmod(device, 0o666)

    def said() -> str:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30).stdout

    assert said() == "hci leased\n"
    with hosts.fleet(one) as fleet, leased(fleet, one, tmp_path / "a"):
        assert re.match(r"hci held \w+/vm1 .*/a, process", said())


def test_a_disk_whose_lease_a_lost_link_left_behind_is_taken_over_by_its_own_campaign(shared, hosts, tmp_path):
    _, one, other = shared
    with (
        hosts.fleet(one) as a,
        hosts.fleet(one) as b,
        hosts.fleet(other) as c,
        leased(a, one, tmp_path, "campaign.lock") as left,
        leased(b, one, tmp_path, "campaign.lock") as lease,
    ):
        assert lease._holds("vm1")
        assert until(lambda: not left._holds("vm1"), 5)
        lease.renew()
        b._connections["vm1"].close()
        assert until(lambda: not lease._holds("vm1"), 5)
        lease.renew()
        with pytest.raises(LeaseError, match=r"^vm2 is in use by another"):
            leased(c, other, tmp_path).__enter__()


def test_a_lock_on_a_disk_that_is_no_campaigns_is_named(shared, hosts, tmp_path, patient):
    device, one, _ = shared
    with open(device, "rb") as disk:
        fcntl.flock(disk, fcntl.LOCK_SH)
        said = rf"^vm1 has a lock, {device}, that is held by python\S* \(process {os.getpid()}\)"
        with hosts.fleet(one) as fleet, pytest.raises(LeaseError, match=said):
            leased(fleet, one, tmp_path).__enter__()


@pytest.fixture
def open_folder():
    """One that other accounts may enter, which pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="hcilib-lease-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.needs("root", "setpriv")
def test_a_file_of_another_account_stands_in_nobodys_way_and_its_lease_counts(open_folder):
    """As root and as another account, on this very machine, whose hosts have no place of their own."""
    script = room.SCRIPT.replace("SILENT", "5").replace("d=/run;", f"d={open_folder / 'root'};")
    script = script.replace("/run/lock /var/lock /tmp", str(open_folder / "shared"))
    for folder, mode in (("root", 0o755), ("shared", 0o1777)):
        (open_folder / folder).mkdir()
        (open_folder / folder).chmod(mode)
    mark = f"file:{open_folder}"
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

    def lease(*account: str, token: str) -> subprocess.Popen:
        argv = [*account, "sh", "-c", script, "hci-lease", token, f"{token}/host", mark, ""]
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)

    (open_folder / "shared" / "hci-lease").mkdir()
    with lease(token="root") as root:
        assert root.stdout.readline() == "hci leased\n"
        with lease(*nobody, token="theirs") as other:
            assert other.stdout.readline().startswith("hci unleased ")
            other.stdin.close()
        (open_folder / "shared" / "hci-lease").rmdir()
        with lease(*nobody, token="theirs") as other:
            assert other.stdout.readline() == "hci held root/host root\n"
            other.stdin.close()
        root.stdin.close()
    with lease(*nobody, token="theirs") as other:
        assert other.stdout.readline() == "hci leased\n"
        with lease(token="root") as root:
            assert root.stdout.readline() == "hci held theirs/host theirs\n"
            root.stdin.close()
        other.stdin.close()


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
