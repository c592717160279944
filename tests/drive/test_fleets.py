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
from libvirts import NODES, libvirt_nodes
from probes import until

from hcilib.drive.hosts import lease
from tests.needs import need

BOOT_S = 60  # what never comes is waited for so long


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    need("root", "unshare", "nsenter", "libvirtd", "virsh", "qemu-system-x86_64", "sshd")
    with libvirt_nodes(tmp_path_factory.mktemp("libvirt"), booting=False) as there:
        (there.home / "guests").mkdir()
        yield there


@pytest.fixture(autouse=True)
def as_before(nodes):
    """What a test made is gone after it, whatever became of it."""
    yield
    for node in NODES:
        (nodes.home / node / "fault").unlink(missing_ok=True)
        running = nodes.virsh(node, "list --name").split()
        for vm in (name for name in nodes.virsh(node, "list --all --name").split() if name != "template"):
            if vm in running:
                nodes.virsh(node, f"destroy {vm}")
            nodes.virsh(node, f"undefine {vm}")
        for volume in volumes(nodes, node):
            nodes.virsh(node, f"vol-delete {volume} --pool default")
    for file in (nodes.home / "fleets").glob("*"):
        file.unlink()


def volumes(nodes, node="srv1") -> list[str]:
    lines = nodes.virsh(node, "vol-list default").splitlines()
    return sorted(line.split()[0] for line in lines if line.strip() and "template" not in line)


def vms(nodes, node="srv1") -> list[str]:
    return sorted(name for name in nodes.virsh(node, "list --all --name").split() if name != "template")


def up_code(nodes, count=1, *more, on=("srv1",)):
    where = [f"{name}=root@{NODES[name]}" for name in on]
    given = {"--template": "template", "--name": "t", "--disk": "1 MiB", "--user": "root", "--count": str(count)}
    given |= {"--known-hosts": f"{nodes.home}/known_hosts", "--key": f"{nodes.home}/client"}
    given |= {"--records": f"{nodes.home}/fleets"}
    argv = ["fleet", "up", *where, *(word for pair in given.items() for word in pair), *more]
    return (
        "import hcilib.extras.fleet as clones; from hcilib.cli import main; "
        f"clones.BOOT_S = {BOOT_S}; raise SystemExit(main({argv!r}))"
    )


def up(nodes, count=1, *more, on=("srv1",)):
    return nodes.python(up_code(nodes, count, *more, on=on))


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


def at_fault(nodes, shell: str, node="srv1") -> None:
    (nodes.home / node / "fault").write_text(shell)


@pytest.mark.deep
def test_a_fleet_is_made_said_and_removed(nodes):
    known = (nodes.home / "known_hosts").read_text()
    with nodes.system("t-1", "10.77.50.1"), nodes.system("t-2", "10.77.50.2"):
        done = up(nodes, 2)
        assert done.returncode == 0, done.stderr
        assert (nodes.home / "known_hosts").read_text() == known, "the user's own file is not written"
        own = (nodes.home / "fleets/t.known_hosts").read_text()
        assert {line.split()[0] for line in own.splitlines()} == {NODES["srv1"], "10.77.50.1", "10.77.50.2"}
        for said in ("t-1 is being made on srv1", "t-2 made on srv1 in ", "t-1 has started",
                     "t-1 at 10.77.50.1 is ready (1 of 2)", "t-2 at 10.77.50.2 is ready (2 of 2)"):  # fmt: skip
            assert said in done.stderr
        order = [done.stderr.index(said) for said in ("t-1 at 10.77.50.1 is ready", "t-2 is being made")]
        assert order == sorted(order), "the first is tried before the second is made"
        gone = down(nodes)
        assert gone.returncode == 0, gone.stderr + gone.stdout
    assert vms(nodes) == []
    assert volumes(nodes) == []
    assert list((nodes.home / "fleets").iterdir()) == []


# --- N7: what a guest claims ---------------------------------------------------------------------------------------


BAD = ["git.example.org", "192.0.2.1", NODES["srv1"], "10.77.50.1 git.example.org", "127.0.0.1", "::1", "0.0.0.0"]


def test_an_address_that_cannot_be_the_vms_is_not_taken(nodes):
    code = f"""
import hcilib.extras.fleet as c
c.BOOT_S, c.LOOK_S = 3, 1
c.fleet_up(["srv1=root@{NODES["srv1"]}"], "template", 1, name="t", disk_bytes="1 MiB", user="root",
           known_hosts="{nodes.home}/known_hosts", key="{nodes.home}/client", records="{nodes.home}/fleets")
"""
    known = (nodes.home / "known_hosts").read_text()
    with nodes.system("t-1", "10.77.50.1", says=BAD):
        done = nodes.python(code)
    assert (nodes.home / "known_hosts").read_text() == known
    assert done.returncode == 1
    assert "ClonesError: t-1: no address and host key within 3 s" in done.stderr
    assert f"it claims {', '.join(BAD[:4])}, and its cards are on 10.77.0.0/16" in done.stderr
    assert not (nodes.home / "fleets/t.known_hosts").exists()
    gone = down(nodes)
    assert gone.returncode == 0, "nobody was ever told of it, so nobody can be using it"


@pytest.mark.deep
def test_a_claim_is_passed_over_where_a_true_address_is_there(nodes):
    with nodes.system("t-1", "10.77.50.1", says=["git.example.org", "192.0.2.9", "10.77.50.1"]):
        assert up(nodes).returncode == 0
    assert json.loads(record(nodes).read_text())["vms"]["t-1"]["address"] == "10.77.50.1"


@pytest.mark.deep
def test_an_address_of_another_host_is_named(nodes):
    """The node's neighbour, whose key the user has; and a clone's."""
    known = nodes.home / "known_hosts"
    before = known.read_text()
    known.write_text(before + f"10.77.40.1 {before.splitlines()[0].split(maxsplit=1)[1]}\n")
    try:
        with nodes.system("t-1", "10.77.50.1", says=["10.77.40.1"]):
            done = up(nodes)
    finally:
        known.write_text(before)
    assert done.returncode == 1
    assert f"10.77.40.1: {known} has another key for it" in done.stderr
    assert down(nodes).returncode == 0
    with nodes.system("t-1", "10.77.50.1"), nodes.system("t-2", "10.77.50.2", says=["10.77.50.1"]):
        done = up(nodes, 2)
    assert done.returncode == 1
    assert "t-2: its QEMU guest agent says that its address is 10.77.50.1, which is t-1's" in done.stderr


@pytest.mark.deep
def test_a_network_that_the_node_is_not_on_has_to_be_allowed(nodes):
    nodes._in(nodes.inside, "ip", "route", "add", "10.99.0.0/16", "dev", "br0")
    with nodes.system("t-1", "10.99.0.1"):
        done = up(nodes, 1, "--network", "10.99.0.0/16")
    assert done.returncode == 0, done.stderr


# --- N8, N9: what cannot be removed, and what is not there ---------------------------------------------------------


def test_a_volume_that_cannot_be_deleted_stays_in_the_record(nodes):
    with made(nodes):
        own = volumes(nodes)
        at_fault(nodes, 'case "$*" in *vol-delete*data1*) echo "error: volume is in use" >&2; exit 1;; esac')
        gone = down(nodes)
    [left] = volumes(nodes)
    assert gone.returncode == 1
    assert left in own
    assert f"t-1 on srv1: removed, but of its volumes are left: default/{left}: error: volume is in use" in gone.stdout
    at_fault(nodes, "")
    again = down(nodes)
    assert again.returncode == 0, again.stdout
    assert volumes(nodes) == []
    assert not record(nodes).exists()


@pytest.mark.deep
def test_a_deletion_that_only_says_so_is_none(nodes):
    with made(nodes):
        at_fault(nodes, 'case "$*" in *vol-delete*) exit 0;; esac')
        gone = down(nodes)
    assert gone.returncode == 1
    assert gone.stdout.count("though virsh vol-delete found no fault") == 2
    assert len(volumes(nodes)) == 2


@pytest.mark.deep
def test_a_volume_whose_pool_cannot_be_listed_is_not_gone(nodes):
    with made(nodes):
        at_fault(nodes, 'case "$*" in *vol-*) echo "error: failed to get vol: no storage vol with matching name" >&2\n'
                        "exit 1;; esac")  # fmt: skip
        assert down(nodes).returncode == 1
    at_fault(nodes, "")
    assert len(volumes(nodes)) == 2
    assert down(nodes).returncode == 0
    assert volumes(nodes) == []


@pytest.mark.deep
def test_a_volume_that_was_deleted_by_hand_is_gone(nodes):
    with made(nodes):
        for file in (nodes.home / "srv1/pool").glob("t-1-*"):
            file.unlink()
        gone = down(nodes)
    assert gone.returncode == 0, gone.stdout


@pytest.mark.deep
def test_an_error_is_no_absence_whatever_it_says(nodes):
    """virsh's own words for a VM that is not there, printed for another reason."""
    with made(nodes):
        said = "error: failed to get domain: Domain not found: no domain with matching uuid"
        for call in ("list", "dumpxml", "domname", "domstate", "domblklist"):
            at_fault(nodes, f'case " $* " in *" {call} "*) echo "{said}" >&2; exit 1;; esac')
            gone = down(nodes)
            assert gone.returncode == 1
            assert vms(nodes) == ["t-1"]
            assert record(nodes).exists()
        at_fault(nodes, "")
        assert down(nodes).returncode == 0
    assert vms(nodes) == []


@pytest.mark.deep
def test_a_vm_that_is_gone_is_so_by_the_list(nodes):
    with made(nodes):
        nodes.virsh("srv1", "destroy t-1")
        nodes.virsh("srv1", "undefine t-1")
        gone = down(nodes)
    assert gone.returncode == 0, gone.stderr
    assert "t-1 on srv1: not there any more" in gone.stdout
    assert volumes(nodes) == []


def test_a_volume_that_another_vm_uses_stays(nodes):
    with made(nodes):
        nodes.virsh("srv1", "destroy t-1")
        nodes.virsh("srv1", "undefine t-1")
        [data] = [name for name in volumes(nodes) if "data" in name]
        xml = (nodes.home / "srv1/template.xml").read_text().replace("<name>template</name>", "<name>theirs</name>")
        (nodes.home / "theirs.xml").write_text(xml.replace("template.img", data))
        nodes.virsh("srv1", f"define {nodes.home}/theirs.xml")
        gone = down(nodes)
    assert gone.returncode == 1
    assert f"default/{data}: another VM uses it" in gone.stdout
    assert volumes(nodes) == [data]


# --- N10: what a crash leaves --------------------------------------------------------------------------------------


def test_an_up_that_was_killed_leaves_vms_that_down_knows(nodes):
    """While the second VM is made, in the record's own folder: it is written down before."""
    at_fault(nodes, f'case "$*" in *define*) [ ! -f {nodes.home}/second ] || kill -KILL "$(cat {nodes.home}/up)"\n'
                    f"touch {nodes.home}/second;; esac")  # fmt: skip
    with nodes.system("t-1", "10.77.50.1"):
        code = f'import os; open("{nodes.home}/up", "w").write(str(os.getpid()))\n{up_code(nodes, 2)}'
        assert nodes.python(code).returncode
        assert list(json.loads(record(nodes).read_text())["vms"]) == ["t-1", "t-2"]
        at_fault(nodes, "")
        (nodes.home / "second").unlink()
        until(lambda: down(nodes).returncode == 0, 60)
    assert vms(nodes) == volumes(nodes) == []


DAMAGED = [
    "",
    "{",
    "[]",
    "5",
    '{"fleet": "t", "vms": {"t-1": 3}}',
    "\0" * 40,
    "[" * 100_000,
    '{"fleet": "t", "more": 1}',
]


def test_a_damaged_record_is_named(nodes):
    (nodes.home / "fleets").mkdir(exist_ok=True)
    for damage in DAMAGED:
        record(nodes).write_text(damage)
        for said in (down(nodes), up(nodes)):
            assert said.returncode == 1
            assert f"{record(nodes)}: it is damaged" in said.stderr
            assert "Traceback" not in said.stderr
        assert record(nodes).read_text() == damage


# --- N11: one at a time, and nobody's VMs --------------------------------------------------------------------------


def test_one_name_is_worked_on_by_one_process_at_a_time(nodes):
    """Two that begin at once, while the first is held up before it has written a line; then down beside an up."""
    at_fault(nodes, f'case "$*" in *pool-list*) touch {nodes.home}/asked\n'
                    f"while [ -f {nodes.home}/hold ]; do sleep 0.1; done;; esac")  # fmt: skip
    (nodes.home / "hold").touch()
    argv = ["fleet", "up", f"srv1=root@{NODES['srv1']}", "--template", "template", "--name", "t", "--count", "1"]
    argv += ["--disk", "1 MiB", "--user", "root", "--known-hosts", f"{nodes.home}/known_hosts"]
    argv += ["--key", f"{nodes.home}/client", "--records", f"{nodes.home}/fleets"]
    inside = ["nsenter", "-t", str(nodes.inside), "-m", "-n", "--", sys.executable, "-m", "hcilib.cli"]
    with nodes.system("t-1", "10.77.50.1"):
        first = subprocess.Popen([*inside, *argv], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert until(lambda: (nodes.home / "asked").exists(), 60)
            second = up(nodes)
            assert second.returncode == 1
            assert re.search(
                r"fleet t: another `hci fleet` is at work on it \(process \d+ of .*\), which holds .*t\.lock",
                second.stderr,
            )
            record(nodes).touch()
            assert "another `hci fleet` is at work on it" in down(nodes).stderr
            (nodes.home / "hold").unlink()
            _, said = first.communicate(timeout=300)
        finally:
            (nodes.home / "hold").unlink(missing_ok=True)
            first.kill()
            first.wait()
            (nodes.home / "asked").unlink(missing_ok=True)
        assert first.returncode == 0, said
        assert vms(nodes) == ["t-1"]
        assert down(nodes).returncode == 0


def test_who_loses_the_lock_file_stops(nodes):
    """It is removed while an up holds it, which then makes nothing: another could have taken it."""
    at_fault(nodes, f'case "$*" in *pool-list*) rm {nodes.home}/fleets/t.lock;; esac')
    done = up(nodes)
    assert done.returncode == 1
    assert "was removed while it was held" in done.stderr
    assert vms(nodes) == []


@pytest.mark.deep
def test_a_lock_that_a_killed_process_left_stops_nobody(nodes):
    (nodes.home / "fleets").mkdir(exist_ok=True)
    (nodes.home / "fleets/t.lock").write_text("process 1 of root@gone")
    with made(nodes):
        assert down(nodes).returncode == 0
    assert not (nodes.home / "fleets/t.lock").exists()


@contextlib.contextmanager
def leased(pid: int, who="ann@desk, run directory /runs/raid5, process 42, since yesterday"):
    """A lease as its holder's arguments show it, among the processes of a VM's system."""
    argv = ["nsenter", "-t", str(pid), "-m", "-p", "--"]
    script = lease.SCRIPT.splitlines()[1] + "\necho ready; read -r word; exit 0"
    holder = subprocess.Popen([*argv, "sh", "-c", script, "hci-lease", who, "token/t-1"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert holder.stdout.readline() == "ready\n"
    try:
        yield
    finally:
        holder.stdin.close()
        holder.wait()


def test_vms_under_a_campaign_stay(nodes):
    with made(nodes, 3) as pids:
        nodes.virsh("srv1", "destroy t-3")  # as a failure that a campaign makes
        with leased(pids[0]):
            for more in ((), ("--unasked", "t-1")):
                gone = down(nodes, *more)
                assert gone.returncode == 1
                assert "t-1 on srv1: a campaign has leased it: ann@desk, run directory /runs/raid5" in gone.stdout
                assert "t-3 on srv1: it is shut off while a campaign runs on t-1: left as it is" in gone.stdout
                assert vms(nodes) == ["t-1", "t-3"], "nobody uses t-2"
        assert down(nodes).returncode == 0
    assert vms(nodes) == []


@pytest.mark.deep
def test_a_vm_that_cannot_be_asked_stays_unless_it_is_named(nodes):
    with made(nodes, 2) as pids:
        os.kill(pids[1], signal.SIGKILL)
        gone = down(nodes)
        assert gone.returncode == 1
        assert vms(nodes) == ["t-2"]
        assert "t-2 on srv1: it cannot be asked whether a campaign runs on it" in gone.stdout
        assert "hci fleet down t --unasked t-2" in gone.stdout
        assert "t-9: not in " in down(nodes, "--unasked", "t-9").stderr
        assert vms(nodes) == ["t-2"]
        assert down(nodes, "--unasked", "t-2").returncode == 0
    assert vms(nodes) == []


@pytest.mark.deep
def test_a_vm_that_is_shut_off_needs_no_answer(nodes):
    with made(nodes):
        pass
    nodes.virsh("srv1", "destroy t-1")
    assert down(nodes).returncode == 0


def test_a_vm_that_was_renamed_or_has_other_disks_stays(nodes):
    with made(nodes, 2):
        for vm in ("t-1", "t-2"):
            nodes.virsh("srv1", f"destroy {vm}")
        nodes.virsh("srv1", "domrename t-1 database")
        nodes.virsh("srv1", "vol-create-as default theirs.img 1M --format raw")
        nodes.virsh("srv1", f"attach-disk t-2 {nodes.home}/srv1/pool/theirs.img vdq --config")
        gone = down(nodes)
        assert gone.returncode == 1
        assert "t-1 on srv1: it was renamed to database: left as it is" in gone.stdout
        assert re.search(r"t-2 on srv1: it has other disks than recorded \(.*theirs.img", gone.stdout)
        assert vms(nodes) == ["database", "t-2"]
        assert len(volumes(nodes)) == 5
        nodes.virsh("srv1", "domrename database t-1")
        nodes.virsh("srv1", "detach-disk t-2 vdq --config")
        assert down(nodes).returncode == 0
    assert volumes(nodes) == ["theirs.img"]


# --- U1: said, and tried before ------------------------------------------------------------------------------------


def test_too_little_memory_is_said_before_anything_is_made(nodes):
    done = up(nodes, 64)
    assert done.returncode == 1
    assert re.search(r"srv1: 64 VMs of 1024 MiB of memory each, and \d+ MiB are available there", done.stderr)
    own = nodes.virsh("srv1", "dumpxml --inactive template")
    small = re.sub(r"(emory[^>]*>)\d+<", rf"\g<1>{512 * 1024}<", own)
    (nodes.home / "small.xml").write_text(small)
    nodes.virsh("srv1", f"define {nodes.home}/small.xml")
    try:
        done = up(nodes)
    finally:
        (nodes.home / "own.xml").write_text(own)
        nodes.virsh("srv1", f"define {nodes.home}/own.xml")
    assert done.returncode == 1
    assert "srv1: the template has 512 MiB of memory, and a run needs 512 MiB" in done.stderr
    assert not record(nodes).exists()
    assert vms(nodes) == []


def test_a_template_without_sftp_costs_one_clone(nodes):
    with nodes.system("t-1", "10.77.50.1", sftp=False):
        done = up(nodes, 3)
        assert done.returncode == 1
        assert "a clone of the template cannot be measured on. t-1: no SFTP: " in done.stderr
        assert vms(nodes) == ["t-1"]
        assert down(nodes).returncode == 0
    assert vms(nodes) == []
