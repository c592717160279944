"""What libvirt says of its guests: a real libvirtd, and where a VM is placed by it."""

import pytest
from test_discover import DATA, captured
from test_lab import ordinary_user  # noqa: F401 (a fixture)

from hcilib.drive.discover.answers import Guest, NodeFacts, parse_node, read_libvirt
from hcilib.drive.discover.discover import _placed
from hcilib.drive.discover.testbed_file import UNKNOWN_NODE
from hcilib.model.testbed import Node

PLATFORMS = DATA / "platforms"
SRV = [Node(name="srv1"), Node(name="srv2")]
VM = Node(name="vm01")


def text(name: str) -> str:
    return (PLATFORMS / name).read_text()


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
