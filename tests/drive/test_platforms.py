"""What platforms say of their guests: a real libvirtd, and answers in the others' documented formats."""

import contextlib
import os
import re
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
from hcilib.drive.discover.answers import (
    PLATFORM_QUESTIONS,
    Guest,
    NodeFacts,
    PlatformError,
    guests,
    parse_node,
    parse_windows_node,
    read_kubevirt,
)
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
    told = subprocess.run(
        ["sh", "-c", PLATFORM_QUESTIONS["libvirt"]], env=asked, capture_output=True, text=True, timeout=30
    )
    found, failed = guests(told.stdout)
    assert not failed
    by_name = {guest.name: guest for guest in found["libvirt"]}
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
    found = hci.discover([vm], bed.nodes, "libvirt", known_hosts=bed.known_hosts, key=bed.key)
    assert "node: node1  # found: libvirt's guest vm01, by its name" in found.text
    assert "node2: libvirt could not be read: virsh failed on the node" in " ".join(found.questions)


def test_captured_libvirt():
    found, _ = guests(f"==== libvirt\n{text('libvirt.xml')}==== end\n")
    assert found == {"libvirt": [Guest("vm01", "", "9e481e10-eba4-4cc1-871f-af830fffd20e", frozenset())]}


def test_proxmox():
    [guest] = parse_node(text("proxmox.txt")).guests["proxmox"]
    uuid, macs = "0f5c6f9e-2a41-4c8e-9b1a-0c8d3e6f1a22", frozenset({"bc:24:11:00:00:01"})
    assert guest == Guest("vm01", "", uuid, macs)


def test_kubevirt():
    [guest] = read_kubevirt(text("kubevirt.json"))
    assert (guest.name, guest.node, guest.macs) == ("vm01", "k8s-1", {"52:54:00:aa:00:01"})


WARNED = """W1123 17:00:00.000000 4711 warnings.go:70] kubevirt.io/v1alpha3 is deprecated, use kubevirt.io/v1
[client-go] {"level": "warn"} couldn't get current server API group list
{"level": "warn", "msg": "[throttled] waited for 1.2 s"}
Unable to connect to the server's metrics: {}
"""
"""What kubectl, client-go and plugins write beside a document."""


def test_what_kubectl_writes_beside_its_json_is_no_part_of_it():
    plain = read_kubevirt(document := text("kubevirt.json"))
    for noisy in (WARNED + document, document + WARNED, f"{WARNED}\n\n{document}\n{WARNED}"):
        assert read_kubevirt(noisy) == plain
    for cut in (len(document) // 3, len(document) - 4):
        with pytest.raises(PlatformError, match=r"kubectl printed (no|other) JSON"):
            read_kubevirt(WARNED + document[:cut])
    with pytest.raises(PlatformError, match="kubectl printed no JSON: 'No resources found"):
        read_kubevirt("No resources found\n")


@pytest.mark.parametrize(("program", "platform"), [("kubectl", "kubevirt"), ("pvesh", "proxmox")])
def test_a_warning_on_standard_error_is_shown_only_where_the_program_fails(program, platform, tmp_path):
    shim = tmp_path / program
    document = text("kubevirt.json") if program == "kubectl" else '[{"vmid": 101, "name": "vm01"}]'
    (tmp_path / "document").write_text(document)
    shim.write_text(f"#!/bin/sh\necho '[warn] one' >&2; cat {tmp_path}/document; echo '{{two' >&2; exit ${{EXIT:-0}}\n")
    shim.chmod(0o755)

    def answered(code: str) -> tuple[dict, dict]:
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "EXIT": code}
        asked = subprocess.run(
            ["sh", "-c", PLATFORM_QUESTIONS[platform]], env=env, capture_output=True, text=True, timeout=30
        )
        assert not asked.stderr
        return guests(asked.stdout)

    found, failed = answered("0")
    assert not failed
    assert [guest.name for guest in found[platform]] == (["vm01"] if program == "kubectl" else [])
    found, failed = answered("1")
    assert not found
    assert f"{program} failed on the node: '{{two'" in failed[platform]


def test_a_drive_of_a_guest_is_called_by_what_it_hangs_on():
    node = (PLATFORMS / "node.txt").read_text()
    rows = "name=vda\tsize=8\tqueue/rotational=1\tdevice/model=\tdevice/vendor=0x1af4\n"
    rows += "name=xvdb\tsize=8\tqueue/rotational=1\tdevice/model=\tdevice/vendor=0x5853\n"
    drives = parse_node(node.replace("==== drives\n", f"==== drives\n{rows}")).drives
    assert drives[:2] == (("virtio disk", 4096, 1), ("disk", 4096, 1))


def test_hyperv():
    node = parse_windows_node(text("hyperv.json"))
    assert node.drives == (("NVMe SSD SAMSUNG MZQL21T9HCJR-00A07", 1920383410176, 2),)
    assert node.links == ("SLOT 3 Port 1 25 Gbit/s",), "PowerShell writes a list of one as its one"
    [guest] = node.guests["hyperv"]
    assert guest.macs == {"00:15:5d:01:2a:03"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("==== proxmox\nipcc_send_rec[1] failed: Connection refused\nfailed "
         "pvesh\n", "pvesh failed on the node: .*Connection refused"),
        ("==== proxmox\n{}\n", "pvesh printed other JSON"),
        ('==== proxmox\n[{"name": "x"}]\n', "without its vmid"),
        ("==== kubevirt\nerror: You must be logged in\nfailed kubectl\n", "kubectl failed on the node: .*logged in"),
        ("==== libvirt\nfailed error: failed to connect to the hypervisor\n", "virsh failed on the node: .*hypervisor"),
        ("==== libvirt\n<domain><name>x</domain>\n", "a <domain> that is no XML"),
        ("==== libvirt\nwelcome to srv1\n", "virsh printed no <domain>"),
    ],
)  # fmt: skip
def test_what_a_platform_prints_instead_is_named(answer, said):
    found, failed = guests(answer)
    assert not found
    [why] = failed.values()
    assert re.search(said, why)


def test_a_windows_node_that_prints_something_else():
    with pytest.raises(PlatformError, match="PowerShell printed nothing about drives, links"):
        parse_windows_node('{"node": "HV1", "guests": []}')


def known(*homes: tuple[str, Guest]) -> dict[str, NodeFacts]:
    return {
        node.name: NodeFacts(
            f"{node.name}.example.org", guests={"proxmox": [g for home, g in homes if home == node.name]}
        )
        for node in SRV
    }


MAC = frozenset({"bc:24:11:00:00:01"})


@pytest.mark.parametrize(
    ("guests", "node", "how"),
    [
        ([("srv2", Guest("web", macs=MAC)), ("srv1", Guest("vm01"))], "srv2", ("found: proxmox's guest web, by its "
                                                                              "MAC address")),
        ([("srv1", Guest("vm01"))], "srv1", "found: proxmox's guest vm01, by its name"),
        ([("srv1", Guest("vm01")), ("srv2", Guest("vm01"))], UNKNOWN_NODE, "guests of this name run on srv1, srv2"),
        ([("srv1", Guest("vm01", node="srv2"))], "srv2", "found: proxmox's guest vm01, by its name"),
        ([("srv1", Guest("vm01", node="srv3"))], UNKNOWN_NODE, "it runs on srv3, which is not among the nodes"),
        ([], UNKNOWN_NODE, "no node's platform knows it"),
    ],
)  # fmt: skip
def test_a_vm_is_placed_by_what_is_surest(guests, node, how):
    placed, said = _placed(VM, captured("debian12_proxmox"), SRV, known(*guests))
    assert placed == node
    assert said.startswith(how)


def test_a_vm_is_not_assumed_on_an_only_node_that_has_other_guests():
    one, vm = SRV[:1], captured("debian12_proxmox")
    assert _placed(VM, vm, one, known())[0] == "srv1"
    assert _placed(VM, vm, one, known(("srv1", Guest("other")))) == (UNKNOWN_NODE, "no node's platform knows it")
