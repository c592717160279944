"""Fleets on real libvirt nodes whose guests have no system of their own: what a guest claims, what cannot be removed,
what a crash leaves, who works on it at the same time, and whose VMs are in use."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import pytest
from libvirts import NODES, _entered, libvirt_nodes
from probes import until

from hcilib.drive.hosts.lease import SOURCE
from tests.needs import need

DEEP = pytest.mark.deep


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """The nodes, and somebody's host at 10.77.40.1, whose key the user has."""
    need("root", "unshare", "nsenter", "libvirtd", "virsh", "qemu-system-x86_64", "sshd", "fio")
    with libvirt_nodes(tmp_path_factory.mktemp("libvirt"), booting=False) as there:
        for folder in ("guests", "fleets"):
            (there.home / folder).mkdir()
        known = there.home / "known_hosts"
        known.write_text(
            known.read_text() + "10.77.40.1" + known.read_text().splitlines()[0].removeprefix("10.77.0.11") + "\n"
        )
        there._in(there.inside, "ip", "route", "add", "10.99.0.0/16", "dev", "br0")
        yield there


@pytest.fixture(autouse=True)
def as_before(nodes):
    """What a test made is gone after it, whatever became of it; the user's own known_hosts is never written."""
    known = (nodes.home / "known_hosts").read_text()
    yield
    at_fault(nodes, "")
    running = nodes.virsh("srv1", "list --name").split()
    for vm in vms(nodes):
        if vm in running:
            nodes.virsh("srv1", f"destroy {vm}")
        nodes.virsh("srv1", f"undefine {vm}")
    for volume in volumes(nodes):
        nodes.virsh("srv1", f"vol-delete {volume} --pool default")
    for folder in ("fleets", "guests"):
        for file in (nodes.home / folder).glob("*"):
            file.unlink()
    assert (nodes.home / "known_hosts").read_text() == known


def volumes(nodes) -> list[str]:
    lines = nodes.virsh("srv1", "vol-list default").splitlines()
    return sorted(line.split()[0] for line in lines if line.strip() and "template" not in line)


def vms(nodes) -> list[str]:
    return sorted(name for name in nodes.virsh("srv1", "list --all --name").split() if name != "template")


def words(nodes, count=1, *more) -> list[str]:
    given = {"--template": "template", "--name": "t", "--disk": "1 MiB", "--user": "root", "--count": str(count)}
    given |= {"--known-hosts": f"{nodes.home}/known_hosts", "--key": f"{nodes.home}/client"}
    given |= {"--records": f"{nodes.home}/fleets"}
    return ["fleet", "up", f"srv1=root@{NODES['srv1']}", *(word for pair in given.items() for word in pair), *more]


def up(nodes, *given, first=""):
    """An agent answers at once here, or never: it is waited for three seconds."""
    code = "import os, hcilib.extras.fleet as c; from hcilib.cli import main; c.BOOT_S, c.LOOK_S = 3, 1"
    return nodes.python(f"{code}\n{first}\nraise SystemExit(main({words(nodes, *given)!r}))")


def down(nodes, *more):
    return nodes.hci("fleet", "down", "t", "--records", f"{nodes.home}/fleets", *more)


def record(nodes):
    return nodes.home / "fleets/t.json"


@contextlib.contextmanager
def made(nodes, count=1):
    """A fleet of `count` VMs, with a system each; yields their systems' process ids."""
    with contextlib.ExitStack() as stack:
        pids = [stack.enter_context(nodes.system(f"t-{n}", f"10.77.50.{n}")) for n in range(1, count + 1)]
        done = up(nodes, count)
        assert done.returncode == 0, done.stderr
        yield pids


def at_fault(nodes, *cases: str) -> None:
    """Let the node's virsh do this where its words are so: `pattern) shell`."""
    (nodes.home / "srv1/fault").write_text(f'case " $* " in {";; ".join(cases)};; esac' if any(cases) else "")


MEMORY = "*dumpxml*template*) /usr/bin/virsh $@ | sed s/1048576/524288/; exit"


@pytest.mark.parametrize(("count", "fault", "said"), [
    (64, "", r"srv1: 64 VMs of 1024 MiB of memory each, and \d+ MiB are available there"),
    (1, MEMORY, "srv1: the template has 512 MiB of memory, and a run needs 512 MiB"),
    (2, "*' --all --name '*) echo template t-2; exit", "t-2: a VM of this name is there already and stays"),
    (1, "*domstate*) echo running; exit", "srv1: template template is 'running'"),
    (1, "*pool-list*) rm fleets/t.lock", "was removed while it was held"),
])  # fmt: skip
def test_what_cannot_be_made_is_said_before_anything_is(nodes, count, fault, said):
    at_fault(nodes, fault.replace("fleets", f"{nodes.home}/fleets"))
    done = up(nodes, count)
    assert done.returncode == 1
    assert re.search(said, done.stderr)
    assert not record(nodes).exists()
    assert vms(nodes) == volumes(nodes) == []


@pytest.mark.parametrize(("system", "fault", "said"), [
    ({"sftp": False}, "", "a clone of the template cannot be measured on. t-1: no SFTP: "),
    ({"apt": "echo no package >&2; exit 100"}, "", r"no fio everywhere: t-1: (.|\n)*no package(.|\n)*Put fio into"),
    ({}, "*vol-clone*t-1*) echo no space >&2; exit 1", "fleet t is half made. Made: none. Not made: t-1: .*no space"),
])  # fmt: skip
def test_a_template_that_cannot_be_measured_on_costs_one_clone(nodes, system, fault, said):
    at_fault(nodes, fault)
    with nodes.system("t-1", "10.77.50.1", **system):
        done = up(nodes, 3)
        assert done.returncode == 1
        assert re.search(said, done.stderr), done.stderr
        assert vms(nodes) == ["t-1"]
        assert "fleet t is there already, whole or half made: t-1" in up(nodes).stderr
        assert down(nodes).returncode == 0
    assert vms(nodes) == volumes(nodes) == []


BAD = ["git.example.org", "192.0.2.1", NODES["srv1"], "10.77.50.1 git.example.org", "127.0.0.1", "::1", "0.0.0.0"]
NONE = f"t-1: no address and host key within 3 s.*it claims {', '.join(BAD[:4])}, and its cards are on 10.77.0.0/16"
TWICE = "t-2: its QEMU guest agent says that its address is 10.77.50.1, which is t-1's"


@pytest.mark.parametrize(("address", "says", "more", "said"), [
    ("10.77.50.1", BAD, (), NONE),
    pytest.param("10.77.50.1", [*BAD[:2], "10.77.50.1"], (), "t-1 at 10.77.50.1 is ready", marks=DEEP),
    pytest.param("10.77.50.1", ["10.77.40.1"], (), "10.77.40.1: .*known_hosts has another key for it", marks=DEEP),
    pytest.param("10.77.50.1", ["10.77.50.1"], ("--count", "2"), TWICE, marks=DEEP),
    pytest.param("10.99.0.1", (), ("--network", "10.99.0.0/16"), "t-1 at 10.99.0.1 is ready", marks=DEEP),
])  # fmt: skip
def test_an_address_that_cannot_be_the_vms_is_not_taken(nodes, address, says, more, said):
    guests = nodes.home / "guests"
    with nodes.system("t-1", address, says=says):
        (guests / "t-2.json").write_text((guests / "t-1.json").read_text())
        done = up(nodes, 1, *more)
        assert done.returncode == ("ready" not in said)
        assert re.search(said, done.stderr, re.DOTALL), done.stderr
        assert down(nodes).returncode == 0, "or nobody was ever told of it, so nobody can be using it"


ABSENT = "error: failed to get domain: Domain not found: no domain with matching uuid"
CALLS = ("list", "dumpxml", "domname", "domstate", "domblklist")
DOWN = [
    *((f"*' {call} '*) echo {ABSENT} >&2; exit 1", "Domain not found", 2) for call in CALLS),
    ("*vol-*) echo failed to get vol: no storage vol with matching name >&2; exit 1", "of its volumes are left", 2),
    ("*vol-delete*) exit 0", "though virsh vol-delete found no fault", 2),
    ("*vol-delete*data1*) echo volume is in use >&2; exit 1", "left: default/.*data1: volume is in use", 1),
]  # fmt: skip
"""virsh's own words for what is not there, printed for another reason, and deletions that are none."""


def test_an_error_is_no_absence_and_what_is_left_stays_in_the_record(nodes):
    with made(nodes):
        for fault, said, left in DOWN:
            at_fault(nodes, fault)
            gone = down(nodes)
            assert gone.returncode == 1, fault
            assert re.search(said, gone.stdout), fault
            assert vms(nodes) == ["t-1"] * ("uuid" in fault)
            assert len(volumes(nodes)) == len(json.loads(record(nodes).read_text())["vms"]["t-1"]["volumes"]) == left
        at_fault(nodes, "")
        assert down(nodes).returncode == 0
    assert vms(nodes) == volumes(nodes) == list((nodes.home / "fleets").iterdir()) == []


def test_what_is_not_as_recorded_stays(nodes):
    """Renamed, with another disk, of another origin; gone, with a disk that somebody uses, and gone whole."""
    theirs = f"{nodes.home}/theirs.xml"
    with made(nodes, 5):
        for n in range(1, 6):
            nodes.virsh("srv1", f"destroy t-{n}")
        [data] = [name for name in volumes(nodes) if re.match("t-4-.*data", name)]
        with open(theirs, "w") as file:
            xml = (nodes.home / "srv1/template.xml").read_text().replace("<name>template<", "<name>theirs<")
            file.write(xml.replace("template.img", data))
        for file in (nodes.home / "srv1/pool").glob("t-5-*"):
            file.unlink()
        for command in ("domrename t-1 database", "vol-create-as default theirs.img 1M --format raw",
                        f"attach-disk t-2 {nodes.home}/srv1/pool/theirs.img vdq --config", "desc t-3 theirs",
                        "undefine t-4", f"define {theirs}", "undefine t-5"):  # fmt: skip
            nodes.virsh("srv1", command)
        gone = down(nodes)
    assert gone.returncode == 1
    for said in (r"t-1 on srv1: it was renamed to database: left as it is",
                 r"t-2 on srv1: it has other disks than recorded \(.*theirs.img", "t-3 on srv1: a VM of another origin",
                 rf"t-4 on srv1: not there any more.*default/{data}: another VM uses it"):  # fmt: skip
        assert re.search(said, gone.stdout), gone.stdout
    assert vms(nodes) == ["database", "t-2", "t-3", "theirs"]
    assert list(json.loads(record(nodes).read_text())["vms"]) == ["t-1", "t-2", "t-3", "t-4"]
    assert len(volumes(nodes)) == 3 * 2 + 2, "theirs.img and the disk that is used"


def test_an_up_that_was_killed_leaves_vms_that_down_knows(nodes):
    """While the second VM is made, in the record's own folder: it is written down before."""
    at_fault(nodes, f'*define*) [ ! -f {nodes.home}/second ] || kill -KILL "$(cat {nodes.home}/up)"; '
                    f"touch {nodes.home}/second")  # fmt: skip
    with nodes.system("t-1", "10.77.50.1"):
        assert up(nodes, 2, first=f'open("{nodes.home}/up", "w").write(str(os.getpid()))').returncode
        assert list(json.loads(record(nodes).read_text())["vms"]) == ["t-1", "t-2"]
        at_fault(nodes, "")
        until(lambda: down(nodes).returncode == 0, 60)
    assert vms(nodes) == volumes(nodes) == []


DAMAGED = ["", "[]", '{"fleet": "t", "vms": {"t-1": 3}}', "[" * 10**5, '{"fleet": "t", "more": 1}']


def test_a_damaged_record_is_named(nodes):
    for damage in DAMAGED:
        record(nodes).write_text(damage)
        for said in (down(nodes), up(nodes)):
            assert said.returncode == 1
            assert f"{record(nodes)}: it is damaged" in said.stderr
            assert "Traceback" not in said.stderr
        assert record(nodes).read_text() == damage


def test_one_name_is_worked_on_by_one_process_at_a_time(nodes):
    """Two that begin at once, while the first is held up before it has written a line; then down beside an up."""
    asked, hold = nodes.home / "asked", nodes.home / "hold"
    at_fault(nodes, f"*pool-list*) touch {asked}; while [ -f {hold} ]; do sleep 0.1; done")
    hold.touch()
    argv = [*_entered(nodes.inside), sys.executable, "-m", "hcilib.cli", *words(nodes)]
    with nodes.system("t-1", "10.77.50.1"):
        first = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert until(asked.exists, 60)
            second = up(nodes)
            assert second.returncode == 1
            told = r"fleet t: another `hci fleet` is at work on it \(process \d+ of .*\), which holds .*t\.lock"
            assert re.search(told, second.stderr)
            record(nodes).touch()
            assert re.search(told, down(nodes).stderr)
            hold.unlink()
            _, said = first.communicate(timeout=300)
        finally:
            hold.unlink(missing_ok=True)
            first.kill()
            first.wait()
        assert first.returncode == 0, said
        assert down(nodes).returncode == 0
    assert vms(nodes) == []


@contextlib.contextmanager
def leased(pid: int, who="ann@desk, run directory /runs/raid5, process 42, since yesterday"):
    """A lease as its holder's arguments show it, among the processes of a VM's system."""
    argv = ["nsenter", "-t", str(pid), "-m", "-p", "--"]
    argv += [sys.executable, "-c", SOURCE, "hci-lease", who, "token/t-1", "600"]
    holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline().startswith("hci {")
    try:
        yield
    finally:
        holder.stdin.close()
        holder.wait()


def test_vms_under_a_campaign_stay(nodes):
    """And one that cannot be asked, unless it is named. Nobody uses t-2."""
    with made(nodes, 4) as pids:
        nodes.virsh("srv1", "destroy t-3")  # as a failure that a campaign makes
        os.kill(pids[3], signal.SIGKILL)
        with leased(pids[0]):
            for more in ((), ("--unasked", "t-1")):
                gone = down(nodes, *more)
                assert gone.returncode == 1
                for said in ("t-1 on srv1: a campaign has leased it: ann@desk, run directory /runs/raid5",
                             "t-3 on srv1: it is shut off while a campaign runs on t-1: left as it is",
                             "t-4 on srv1: it cannot be asked whether a campaign runs on it",
                             "hci fleet down t --unasked t-4"):  # fmt: skip
                    assert said in gone.stdout
                assert vms(nodes) == ["t-1", "t-3", "t-4"]
        assert "t-9: not in " in down(nodes, "--unasked", "t-9").stderr
        assert down(nodes).returncode == 1
        assert vms(nodes) == ["t-4"]
        assert down(nodes, "--unasked", "t-4").returncode == 0
    assert vms(nodes) == []
