"""Load generators made and removed again, on two real libvirt nodes."""

import socket
import subprocess
import time

import pytest
import yaml
from libvirts import NODES, libvirt_nodes

from hcilib import ClonesError
from hcilib.drive.hosts.hosts import Fleet
from hcilib.extras.fleet import _bed, _see_to_fio
from hcilib.extras.libvirt import Clone, Template, address_of, clone_of, domain, found, networks_of, systems_of
from hcilib.model.testbed import Host
from tests.needs import need


@pytest.fixture(scope="module")
def servers(box_programs, tmp_path_factory):
    need("root", "unshare", "nsenter", "libvirtd", "virsh")
    with libvirt_nodes(tmp_path_factory.mktemp("libvirt")) as nodes:
        yield nodes


def up(nodes, *more):
    where = [f"{name}=root@{address}" for name, address in NODES.items()]
    return nodes.hci(
        "fleet",
        "up",
        *where,
        "--template",
        "template",
        "--name",
        "t",
        "--disk",
        "64 MiB",
        "--user",
        "root",
        "--known-hosts",
        f"{nodes.home}/known_hosts",
        "--key",
        f"{nodes.home}/client",
        "--records",
        f"{nodes.home}/fleets",
        *more,
    )


MEASURED = """
import hcilib as hci
bed = hci.load_testbed("HOME/mine.yaml")
plan = hci.sweep(["4k-randread"], iodepth=[4], vms=2, repeats=2, read_runtime_s=2, span_bytes="16 MiB", canary=False)
hci.require_ready(hci.preflight(bed, plan, consent="wipe"))
both = [hci.System(name=name, label=name, disks=(f"HCI-*-{n}",)) for n, name in ((1, "first"), (2, "second"))]
results = hci.run(plan, both, bed, "HOME/run", consent="wipe", progress=False)
print(hci.compare(results, "first")[["system", "baseline", "verdict"]].to_string())
"""
"""From the discovered testbed to a green preflight, and to a comparison of two systems that own a disk of each VM."""


@pytest.mark.deep
def test_a_fleet_is_made_discovered_and_removed_and_nothing_else_is(servers):
    theirs = {
        node: (servers.virsh(node, "list --all --name").split(), servers.virsh(node, "vol-list default").split())
        for node in NODES
    }
    known = (servers.home / "known_hosts").read_text()
    done = up(servers, "--count", "2", "--disks", "2", "-o", f"{servers.home}/mine.yaml")
    assert done.returncode == 0, done.stderr + done.stdout
    bed = yaml.safe_load((servers.home / "mine.yaml").read_text())
    assert [(vm["name"], vm["node"], [d["serial"] for d in vm["disks"]]) for vm in bed["vms"]] == [
        ("t-1", "srv1", ["HCI-t-1-1", "HCI-t-1-2"]),
        ("t-2", "srv2", ["HCI-t-2-1", "HCI-t-2-2"]),
    ]
    assert {d["size_bytes"] for vm in bed["vms"] for d in vm["disks"]} == {"64 MiB"}
    (servers.home / "mine.yaml").write_text((servers.home / "mine.yaml").read_text() + "consent: wipe\n")
    compared = servers.python(MEASURED.replace("HOME", str(servers.home)))
    assert compared.returncode == 0, compared.stderr[-2000:]
    assert "second" in compared.stdout
    assert "first" in compared.stdout
    again = up(servers, "--count", "1")
    assert again.returncode == 1
    assert "fleet t is there already, whole or half made: t-1, t-2" in again.stderr
    gone = servers.hci("fleet", "down", "t", "--records", f"{servers.home}/fleets")
    assert gone.returncode == 0, gone.stderr
    assert {
        node: (servers.virsh(node, "list --all --name").split(), servers.virsh(node, "vol-list default").split())
        for node in NODES
    } == theirs
    assert (servers.home / "known_hosts").read_text() == known


@pytest.mark.deep
def test_a_name_that_is_there_stays_and_a_half_made_fleet_is_named(servers):
    home = servers.home
    servers.virsh("srv2", "vol-create-as default theirs.img 1M --format raw")
    xml = (
        (home / "srv2/template.xml")
        .read_text()
        .replace("<name>template</name>", "<name>t-2</name>")
        .replace("template.img", "theirs.img")
    )
    (home / "theirs.xml").write_text(xml)
    servers.virsh("srv2", f"define {home}/theirs.xml")
    taken = up(servers, "--count", "2")
    assert taken.returncode == 1
    assert "t-2: a VM of this name is there already and stays" in taken.stderr
    assert servers.virsh("srv1", "list --all --name").split() == ["template"]
    servers.virsh("srv2", "undefine t-2")
    servers.virsh("srv2", "pool-destroy default")  # the second node can make nothing from now on
    servers.virsh("srv2", f"pool-create-as default dir --target {home}/srv2/pool")
    (home / "srv2/pool/template.img").rename(home / "srv2/pool/moved.img")
    half = up(servers, "--count", "2")
    assert half.returncode == 1
    assert "fleet t is half made. Made: t-1. Not made: t-2:" in half.stderr
    (home / "srv2/pool/moved.img").rename(home / "srv2/pool/template.img")
    gone = servers.hci("fleet", "down", "t", "--records", f"{home}/fleets")
    assert gone.returncode == 0, gone.stderr
    assert servers.virsh("srv1", "list --all --name").split() == ["template"]
    assert (home / "srv2/pool/theirs.img").exists()
    servers.virsh("srv2", "vol-delete theirs.img --pool default")


@pytest.mark.deep
def test_a_qcow2_template_on_a_backing_file_is_copied_whole_and_stays(servers):
    """The guest's own disk has the image's size, which read as raw would be some hundred KiB."""
    for node in NODES:
        servers.virsh(node, "vol-create-as default base.qcow2 16M --format qcow2")
        servers.virsh(
            node,
            "vol-create-as default cow.qcow2 16M --format qcow2 --backing-vol base.qcow2 --backing-vol-format qcow2",
        )
        xml = (servers.home / node / "template.xml").read_text().replace("<name>template</name>", "<name>cow</name>")
        own = xml.replace("template.img", "cow.qcow2").replace("type='raw'", "type='qcow2'")
        (servers.home / node / "cow.xml").write_text(own)
        servers.virsh(node, f"define {servers.home / node / 'cow.xml'}")
    images = {file: file.read_bytes() for node in NODES for file in (servers.home / node / "pool").glob("*.qcow2")}
    done = up(servers, "--count", "1", "--template", "cow", "-o", f"{servers.home}/cow.yaml")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "not vda (no serial, 16 MiB;" in (servers.home / "cow.yaml").read_text()
    gone = servers.hci("fleet", "down", "t", "--records", f"{servers.home}/fleets")
    assert gone.returncode == 0, gone.stderr
    assert {
        file: file.read_bytes() for node in NODES for file in (servers.home / node / "pool").glob("*.qcow2")
    } == images
    for node in NODES:
        servers.virsh(node, "undefine cow")
        for volume in ("cow.qcow2", "base.qcow2"):
            servers.virsh(node, f"vol-delete {volume} --pool default")


# This machine once more, in a layer of its own that is gone with its sshd: without fio, and with a repository on disk
# that has this one package.
BARE = r"""
set -e
mount -t tmpfs layer "$1"; mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay layer -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"; mount -t proc proc proc; mount --rbind /dev dev
cp -r "$2" etc/bare; mkdir -p run/sshd repo/p/DEBIAN
dpkg -L fio | while read -r file; do [ ! -f "$file" ] || echo "$file"; done | tar -cT - 2>/dev/null | tar -xC repo/p
dpkg-query -f 'Package: fio\nVersion: ${Version}\nArchitecture: ${Architecture}\nMaintainer: ${Maintainer}\n' -W fio \
  > repo/p/DEBIAN/control
echo 'Description: fio' >> repo/p/DEBIAN/control
dpkg-deb -b repo/p repo >/dev/null
chroot . sh -ec 'dpkg --purge --force-depends fio; cd /repo; dpkg-scanpackages . > Packages
  rm -rf /etc/apt/sources.list.d; echo "deb [trusted=yes] file:/repo ./" > /etc/apt/sources.list' >/dev/null 2>&1
exec chroot . /usr/sbin/sshd -D -e -f /etc/bare/sshd_config
"""
SSHD = """ListenAddress 127.71.24.1:2271
HostKey /etc/bare/host
AuthorizedKeysFile /etc/bare/client.pub
StrictModes no
PidFile none
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A fleet of one host without fio."""
    need("root", "apt-get", "dpkg-scanpackages", "fio", "unshare")
    if subprocess.run(["dpkg-query", "-W", "fio"], capture_output=True).returncode:
        pytest.skip("fio is not of a package")
    home, layer = tmp_path_factory.mktemp("bare"), tmp_path_factory.mktemp("layer")
    for key in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / key], check=True)
    (home / "sshd_config").write_text(SSHD)
    (home / "known_hosts").write_text("[127.71.24.1]:2271 " + (home / "host.pub").read_text())
    with (home / "said").open("w") as said:
        host = subprocess.Popen(["unshare", "-m", "sh", "-c", BARE, "bare", layer, home], stdout=said, stderr=said)
    try:
        deadline = time.monotonic() + 60
        while host.poll() is None and time.monotonic() < deadline:
            with socket.socket() as sock:
                if not sock.connect_ex(("127.71.24.1", 2271)):
                    break
            time.sleep(0.1)
        assert host.poll() is None, (home / "said").read_text()
        given = Host(name="t-1", address="127.71.24.1", port=2271, user="root")
        with Fleet(_bed([given], f"{home}/known_hosts", f"{home}/client")) as fleet:
            yield fleet
    finally:
        host.terminate()
        host.wait()


def done(fleet, command: str) -> str:
    [outcome] = fleet.run(command).values()
    assert outcome.ok, outcome.error
    return outcome.value


HOLD = """
import fcntl, glob, pathlib, time
def installing():
    for line in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            if b"apt-get\\0install" in pathlib.Path(line).read_bytes(): return True
        except OSError: pass
lock = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
until = time.monotonic() + 60
while not installing() and time.monotonic() < until: time.sleep(0.1)
time.sleep(2)
"""
"""Another package tool of the VM at work, until two seconds after ours has begun to install."""


@pytest.mark.deep
def test_fio_is_installed_by_apt_while_the_vm_still_installs_for_itself(bare):
    assert done(bare, "command -v fio || echo none") == "none\n"
    done(bare, f"python3 -c '{HOLD}' > /tmp/held 2>&1 & until grep -q held /tmp/held; do sleep 0.1; done")
    assert _see_to_fio(bare, "t")["t-1"].startswith("fio-3.")
    done(bare, "dpkg --purge fio")


def test_a_host_that_cannot_get_fio_is_named_with_what_to_do(bare):
    todo = r"Put fio into the template, then `hci fleet down t` and up again"
    done(bare, "rm -rf /var/lib/apt/lists/* && mv /etc/apt/sources.list /tmp")
    with pytest.raises(ClonesError, match=rf"t-1: (.|\n)*fio(.|\n)*\. {todo}"):
        _see_to_fio(bare, "t")
    done(bare, "mv /tmp/sources.list /etc/apt && mv /usr/bin/apt-get /tmp")
    with pytest.raises(ClonesError, match=rf"t-1: exited with 1: neither apt-get nor dnf is there.*\. {todo}"):
        _see_to_fio(bare, "t")
    done(bare, "mv /tmp/apt-get /usr/bin")


CLONE = Clone(
    "t-1",
    "srv1",
    "5f0c2f0e-0000-4000-8000-000000000001",
    "abc123",
    ["HCI-t-1-1"],
    ["52:54:00:00:00:01"],
    [["default", "t-1-abc123-data1"]],
)


def test_a_domain_of_the_template_is_the_clones_own():
    xml = """<domain type='kvm'><name>tpl</name>
    <uuid>11111111-1111-4111-8111-111111111111</uuid><title>x</title><metadata/>
    <description>theirs</description>
    <devices><disk type='file' device='cdrom'><target dev='sda'/></disk>
    <disk type='file' device='disk'><source file='/p/a.qcow2'/><target dev='vda'/></disk>
    <interface type='bridge'><mac address='52:54:00:99:99:99'/></interface>
    <channel type='unix'><source mode='bind' path='/x/tpl/agent'/></channel></devices></domain>"""
    own = Clone(
        "t-1",
        "srv1",
        CLONE.ident,
        "abc123",
        ["HCI-t-1-1"],
        ["52:54:00:00:00:01"],
        [["default", "sys"], ["fast", "data"]],
    )
    text = domain(Template(xml, (("/p/a.qcow2", "default", "a.qcow2"),), ("fast",)), own)
    for theirs in ("tpl", "1111", "theirs", "99:99", "/p/a.qcow2", "<title>"):
        assert theirs not in text
    for ours in (
        "t-1",
        CLONE.ident,
        "hcilib fleet t abc123",
        'pool="fast" volume="data"',
        'dev="vdb"',
        "<serial>HCI-t-1-1</serial>",
    ):
        assert ours in text


def test_each_pool_is_a_system_with_its_own_disks_of_every_vm():
    xml = "<domain><devices><disk device='disk'/></devices></domain>"
    made = clone_of(Template(xml, (("/p/a", "slow", "a"),), ("slow", "fast")), "t-1", "srv1", "abc", 2)
    assert list(made.serials) == [f"HCI-t-1-{disk}" for disk in (1, 2, 3, 4)]
    assert [pool for pool, _ in made.volumes] == ["slow", "slow", "slow", "fast", "fast"], "its own disk, then the data"
    assert systems_of("t", 2, ["slow", "fast 2"]) == {
        "slow": ["HCI-t-*-1", "HCI-t-*-2"],
        "fast-2": ["HCI-t-*-3", "HCI-t-*-4"],
    }


def test_an_address_is_that_of_the_clones_own_card():
    cards = [
        {
            "name": "lo",
            "hardware-address": "00:00:00:00:00:00",
            "ip-addresses": [{"ip-address": "127.0.0.1", "ip-address-type": "ipv4"}],
        },
        {
            "name": "docker0",
            "hardware-address": "02:42:00:00:00:01",
            "ip-addresses": [{"ip-address": "172.17.0.1", "ip-address-type": "ipv4"}],
        },
        {
            "name": "eth0",
            "hardware-address": "52:54:00:00:00:01",
            "ip-addresses": [
                {"ip-address": "fe80::1", "ip-address-type": "ipv6"},
                {"ip-address": "192.0.2.7", "ip-address-type": "ipv4"},
            ],
        },
    ]
    plugged = networks_of("52:54:00:00:00:01 192.0.2.1/24\n52:54:00:00:00:01 fe80::5/64\n52:54:00:00:00:02\n")
    assert address_of(cards, plugged) == ("192.0.2.7", [])
    assert address_of(cards[:1], plugged) == ("", [])


def test_what_virsh_prints_instead_is_named():
    with pytest.raises(ClonesError, match="srv1: virsh's answer ends early: 'error: failed to connect"):
        found({"srv1": "error: failed to connect to the hypervisor\n"}, "tpl", [])
