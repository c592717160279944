"""Load generators made and removed again, on two real libvirt nodes whose guests boot."""

import pytest
import yaml
from libvirts import NODES, libvirt_nodes

from hcilib.extras.libvirt import Template, clone_of, systems_of
from tests.needs import need


@pytest.fixture(scope="module")
def servers(box_programs, tmp_path_factory):
    """Beside what they have, a template `cow` on each, of a qcow2 image on a backing file."""
    need("root", "unshare", "nsenter", "libvirtd", "virsh")
    with libvirt_nodes(tmp_path_factory.mktemp("libvirt")) as nodes:
        cow = "vol-create-as default cow.qcow2 16M --format qcow2 --backing-vol base.qcow2 --backing-vol-format qcow2"
        for node in NODES:
            nodes.virsh(node, "vol-create-as default base.qcow2 16M --format qcow2")
            nodes.virsh(node, cow)
            own = nodes.home / node / "template.xml"
            xml = own.read_text().replace("<name>template<", "<name>cow<").replace("template.img", "cow.qcow2")
            own.with_name("cow.xml").write_text(xml.replace("type='raw'", "type='qcow2'"))
            nodes.virsh(node, f"define {own.with_name('cow.xml')}")
        yield nodes


MEASURED = """
import hcilib as hci
from hcilib.model.system import System
from hcilib.model.testbed import load_testbed
bed = load_testbed("HOME/mine.yaml")
plan = hci.sweep(["4k-randread"], iodepth=[4], vms=2, repeats=2, read_runtime_s=2, span_bytes="16 MiB", canary=False)
hci.require_ready(hci.preflight(bed, plan, consent="wipe"))
both = [System(name=name, label=name, disks=(f"HCI-*-{n}",)) for n, name in ((1, "first"), (2, "second"))]
results = hci.run(plan, both, bed, "HOME/run", consent="wipe", progress=False)
print(hci.compare(results, "first")[["system", "baseline", "verdict"]].to_string())
"""
"""From the discovered testbed to a green preflight, and to a comparison of two systems that own a disk of each VM."""


@pytest.mark.deep
def test_a_fleet_is_made_discovered_and_removed_and_nothing_else_is(servers):
    """The guest's own disk has the image's size, which read as raw would be some hundred KiB."""
    home, bed = servers.home, servers.home / "mine.yaml"

    def theirs():
        asked = [
            servers.virsh(node, what).split() for node in NODES for what in ("list --all --name", "vol-list default")
        ]
        return asked, [file.read_bytes() for node in NODES for file in sorted((home / node / "pool").iterdir())]

    before = theirs()
    given = {"--template": "cow", "--name": "t", "--count": "2", "--disks": "2", "--disk": "64 MiB", "--user": "root"}
    given |= {"--known-hosts": f"{home}/known_hosts", "--key": f"{home}/client", "--records": f"{home}/fleets"}
    where = [f"{name}=root@{address}" for name, address in NODES.items()]
    done = servers.hci("fleet", "up", *where, *(word for pair in given.items() for word in pair), "-o", str(bed))
    assert done.returncode == 0, done.stderr + done.stdout
    found = yaml.safe_load(bed.read_text())
    assert [
        (vm["name"], vm["node"], *((d["serial"], d["size_bytes"]) for d in vm["disks"])) for vm in found["vms"]
    ] == [(f"t-{n}", f"srv{n}", *((f"HCI-t-{n}-{disk}", "64 MiB") for disk in (1, 2))) for n in (1, 2)]
    assert "not vda (no serial, 16 MiB;" in bed.read_text()
    bed.write_text(bed.read_text() + "consent: wipe\n")
    compared = servers.python(MEASURED.replace("HOME", str(home)))
    assert compared.returncode == 0, compared.stderr[-2000:]
    assert {"first", "second"} <= set(compared.stdout.split())
    gone = servers.hci("fleet", "down", "t", "--records", f"{home}/fleets")
    assert gone.returncode == 0, gone.stderr
    assert theirs() == before


def test_each_pool_is_a_system_with_its_own_disks_of_every_vm():
    xml = "<domain><devices><disk device='disk'/></devices></domain>"
    made = clone_of(Template(xml, (("/p/a", "slow", "a"),), ("slow", "fast")), "t-1", "srv1", "abc", 2)
    assert list(made.serials) == [f"HCI-t-1-{disk}" for disk in (1, 2, 3, 4)]
    assert [pool for pool, _ in made.volumes] == ["slow", "slow", "slow", "fast", "fast"], "its own disk, then the data"
    assert systems_of("t", 2, ["slow", "fast 2"]) == {
        "slow": ["HCI-t-*-1", "HCI-t-*-2"],
        "fast-2": ["HCI-t-*-3", "HCI-t-*-4"],
    }
