"""What libvirt says of its guests: a real libvirtd, and where a VM is placed by it."""

import contextlib
import os
import shutil
import signal
import subprocess

import pytest
from loops import NO_LIBVIRT
from probes import until
from test_discover import DATA, captured
from test_lab import ordinary_user  # noqa: F401 (a fixture)

import hcilib as hci
from hcilib.drive.discover import discover as module
from hcilib.drive.discover.answers import LIBVIRT, Guest, NodeFacts, parse_node, read_libvirt
from hcilib.drive.discover.discover import _placed
from hcilib.drive.discover.testbed_file import UNKNOWN_NODE
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.testbed import Node
from tests.needs import PATHS, need

PLATFORMS = DATA / "platforms"
SRV = [Node(name="srv1"), Node(name="srv2")]
VM = Node(name="vm01")
DOMAIN = """<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory>
<os><type arch='x86_64' machine='pc'>hvm</type></os><devices><emulator>{qemu}</emulator>
<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{home}/{name}.img'/><target dev='vda' bus='virtio'/>
<serial>{name}-D0</serial></disk>
<interface type='user'><mac address='{mac}'/><model type='virtio'/></interface>
<controller type='usb' model='none'/><memballoon model='none'/></devices></domain>"""  # noqa: E501


def text(name: str) -> str:
    return (PLATFORMS / name).read_text()


@pytest.fixture
def libvirt(ordinary_user):  # noqa: F811
    """A user's own libvirtd with two running guests without a system: its URI, and the first guest's file."""
    need("libvirtd", "virsh", "qemu-system-x86_64")
    programs = {name: shutil.which(name, path=PATHS) for name in ("libvirtd", "qemu-system-x86_64")}
    user, home = ordinary_user
    (home / "run").mkdir(mode=0o700)
    shutil.chown(home / "run", user)
    env = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    uri = f"qemu+unix:///session?socket={home}/run/libvirt/libvirt-sock"

    def as_user(*argv) -> str:
        done = subprocess.run(
            ["runuser", "-u", user, "--", *argv], env=env, cwd=home, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    (home / ".config/libvirt").mkdir(parents=True)
    (home / ".config/libvirt/qemu.conf").write_text('stdio_handler = "file"\n')  # else a virtlogd stays for two minutes
    for folder in (home / ".config", home / ".config/libvirt"):
        shutil.chown(folder, user)
    daemon = subprocess.Popen(["runuser", "-u", user, "--", programs["libvirtd"], "--timeout", "60"], env=env, cwd=home,
                              stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    names = ("vm01", "other")
    with contextlib.ExitStack() as stack:
        stack.callback(daemon.wait, 30)
        stack.callback(os.killpg, daemon.pid, signal.SIGTERM)
        assert until(lambda: (home / "run/libvirt/libvirt-sock").exists(), 20), "libvirtd does not listen"
        for n, name in enumerate(names, 1):
            (home / f"{name}.img").touch()
            os.truncate(home / f"{name}.img", 2**24)
            shutil.chown(home / f"{name}.img", user)
            (home / f"{name}.xml").write_text(
                DOMAIN.format(name=name, home=home, qemu=programs["qemu-system-x86_64"], mac=f"52:54:00:00:00:0{n}")
            )
            as_user("virsh", "-q", "-c", uri, "create", f"{name}.xml")
            stack.callback(as_user, "virsh", "-q", "-c", uri, "destroy", name)
        yield uri, home


@pytest.mark.box
def test_a_real_libvirtd_tells_its_guests_and_is_left_as_it_was(libvirt):
    uri, _ = libvirt
    asked = {**os.environ, "LIBVIRT_DEFAULT_URI": uri}
    told = subprocess.run(["sh", "-c", LIBVIRT], env=asked, capture_output=True, text=True, timeout=30)
    by_name = {guest.name: guest for guest in read_libvirt(told.stdout.partition("\n")[2])}
    assert by_name["other"].macs == {"52:54:00:00:00:02"}
    assert len(by_name["vm01"].uuid) == 36


@pytest.mark.box
@pytest.mark.lab
def test_a_node_with_a_real_libvirtd_places_its_guest(libvirt, bed, monkeypatch):
    uri, _ = libvirt

    class OnNode1(Fleet):
        """Only node1's account has a libvirtd; node2's asks for one that is not there, and not for the machine's."""

        def run(self, command, hosts=None, limit_s=30):
            if isinstance(command, dict) and "node1" in command:
                own = {"node1": uri, "node2": NO_LIBVIRT}
                command = {n: f"export LIBVIRT_DEFAULT_URI='{own.get(n, '')}'\n{c}" for n, c in command.items()}
            return super().run(command, hosts, limit_s)

    monkeypatch.setattr(module, "Fleet", OnNode1)
    vm = bed.vms[0].model_copy(update={"name": "vm01"})
    found = hci.discover([vm], bed.nodes, known_hosts=bed.known_hosts, key=bed.key)
    assert "node: node1  # found: libvirt's guest vm01, by its name" in found.text
    assert "node2: libvirt could not be read: virsh failed on the node" in " ".join(found.questions)


def test_captured_libvirt():
    uuid = "9e481e10-eba4-4cc1-871f-af830fffd20e"
    assert read_libvirt(text("libvirt.xml")) == (Guest("vm01", uuid),)


def test_a_drive_of_a_guest_is_called_by_what_it_hangs_on():
    node = (PLATFORMS / "node.txt").read_text()
    rows = "name=vda\tsize=8\tqueue/rotational=1\tdevice/model=\tdevice/vendor=0x1af4\n"
    rows += "name=xvdb\tsize=8\tqueue/rotational=1\tdevice/model=\tdevice/vendor=0x5853\n"
    drives, *_ = parse_node(node.replace("==== drives\n", f"==== drives\n{rows}")).hardware
    assert drives.startswith("drives: 1 x virtio disk of 4.096e-06 GB, 1 x disk of 4.096e-06 GB, ")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("failed error: failed to connect to the hypervisor\n", "virsh failed on the node: .*hypervisor"),
        ("<domain><name>x</domain>\n", "a <domain> that is no XML"),
        ("welcome to srv1\n", "virsh printed no <domain>"),
    ],
)  # fmt: skip
def test_what_virsh_prints_instead_is_named(answer, said):
    with pytest.raises(ValueError, match=said):
        read_libvirt(answer)


def known(*homes: tuple[str, Guest]) -> dict[str, NodeFacts]:
    return {node.name: NodeFacts(guests=tuple(g for home, g in homes if home == node.name)) for node in SRV}


MAC = frozenset({"bc:24:11:00:00:01"})


BY_NAME = Guest("vm01")
PLACES = [
    (SRV, [("srv2", Guest("web", macs=MAC)), ("srv1", BY_NAME)], "srv2", "found: libvirt's guest web, by its MAC"),
    (SRV, [("srv1", BY_NAME)], "srv1", "found: libvirt's guest vm01, by its name"),
    (SRV, [("srv1", BY_NAME), ("srv2", BY_NAME)], UNKNOWN_NODE, "guests of this name run on srv1, srv2"),
    (SRV, [], UNKNOWN_NODE, "no node's libvirt knows it"),
    (SRV[:1], [], "srv1", "assumed: it is the only node"),
    (SRV[:1], [("srv1", Guest("other"))], UNKNOWN_NODE, "no node's libvirt knows it"),
]


@pytest.mark.parametrize(("nodes", "guests", "node", "how"), PLACES)
def test_a_vm_is_placed_by_what_is_surest(nodes, guests, node, how):
    placed, said = _placed(VM, captured("debian12_proxmox"), nodes, known(*guests))
    assert placed == node
    assert said.startswith(how)
