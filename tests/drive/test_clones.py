"""Load generators made and removed again: on two real libvirt nodes, and on Proxmox VE by shims that print what its
documents say."""

import json
import socket
import subprocess
import time
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
import yaml
from libvirts import NODES, libvirt_nodes

from hcilib.drive.clones.clones import _bed, _see_to_fio
from hcilib.drive.clones.hypervisors import (
    Clone,
    ClonesError,
    Libvirt,
    Proxmox,
    Template,
    address_of,
    domain,
    networks_of,
    systems_of,
)
from hcilib.drive.hosts.hosts import Fleet
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
results = hci.run(plan, bed, both, "HOME/run", consent="wipe", progress=False)
print(hci.headline(hci.compare(results, "first")))
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
    there = Libvirt(frozenset(), {"srv1": Template(xml, (("/p/a", "slow", "a"),), ("slow", "fast"))})
    made = there.clone("t-1", "srv1", 0, "abc", 2)
    assert made.serials == [f"HCI-t-1-{disk}" for disk in (1, 2, 3, 4)]
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


# Proxmox VE: no machine with it was at hand. What these two print is what its documents (pve-docs, the API viewer)
# show.
QM = """#!/usr/bin/env python3
import json, os, sys
file = os.environ["PVE"]
state = json.load(open(file))
if sys.argv[1:] == ["list"]:
    print("      VMID NAME                 STATUS     MEM(MB)    BOOTDISK(GB) PID")
    print(*(f"{n:>10} {v['name']:<20} {v['status']:<10} 2048 32.00 0" for n, v in state.items()), sep="\\n")
    sys.exit()
verb, number, *rest = sys.argv[1:]
given = dict(zip(rest[::2], rest[1::2]))
if verb == "clone":
    new, *rest = rest
    given = dict(zip(rest[::2], rest[1::2]))
    if new in state: sys.exit(f"unable to create VM {new}: config file already exists")
    state[new] = {"name": given["--name"], "description": given["--description"], "status": "stopped",
                  "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1"}
elif number not in state:
    sys.exit(f"Configuration file 'nodes/pve1/qemu-server/{number}.conf' does not exist")
elif verb == "set":
    state[number] |= {k[2:]: v for k, v in given.items()}
elif verb == "config":
    print(*(f"{k}: {v}" for k, v in state[number].items()), sep="\\n")
elif verb == "status":
    print("status:", state[number]["status"])
elif verb in ("start", "stop"):
    state[number]["status"] = {"start": "running", "stop": "stopped"}[verb]
elif verb == "destroy":
    if state[number]["status"] != "stopped": sys.exit(f"VM {number} is running - destroy failed")
    del state[number]
elif verb == "agent":
    own = f"192.0.2.{int(number[-2:])}"
    cards = {"lo": ("00:00:00:00:00:00", "127.0.0.1"), "eth0": ("bc:24:11:00:00:01", own)}
    print(json.dumps([{"name": name, "hardware-address": mac, "ip-addresses": [
        {"ip-address": ip, "ip-address-type": "ipv4", "prefix": 8}]} for name, (mac, ip) in cards.items()]))
json.dump(state, open(file, "w"))
"""
PVESH = """#!/usr/bin/env python3
import json, os, sys
state = json.load(open(os.environ["PVE"]))
path = sys.argv[2]
if path == "/cluster/resources":
    print(json.dumps([{"id": f"qemu/{n}", "vmid": int(n), "name": v["name"], "node": "pve1", "status": v["status"],
                       "template": int(v.get("template", 0)), "type": "qemu"} for n, v in state.items()]))
elif path == "/cluster/nextid":
    print(min(n for n in range(100, 999) if str(n) not in state))
elif path.endswith("/storage"):
    print(json.dumps([{"storage": name, "type": kind, "content": "images,rootdir", "active": 1}
                      for name, kind in {"local-lvm": "lvmthin", "ceph-rbd": "rbd"}.items()]))
elif path.endswith("/file-read"):
    print(json.dumps({"content": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB root@tpl\\n"}))
"""

IP = """#!/bin/sh
[ "$*" != "-o addr show dev vmbr0" ] || echo '4: vmbr0    inet 192.0.2.100/24 scope global vmbr0'
"""
PVESM = """#!/usr/bin/env python3
import json, os, sys
state = json.load(open(os.environ["PVE"]))
verb, storage, _, number = sys.argv[1:]
print("Volid                    Format  Type             Size VMID")
for volume in os.environ.get("LEFT", "").split():
    if volume.startswith(storage + ":"):
        print(f"{volume} raw     images    107374182400 {number}")
"""


@pytest.fixture
def pve(tmp_path):
    """Runs a script where qm and pvesh are these, on a cluster of one node with a template and somebody's VM."""
    for name, text in {
        "qm": QM,
        "pvesh": PVESH,
        "hostname": "#!/bin/sh\necho pve1\n",
        "ip": IP,
        "pvesm": PVESM,
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    state = tmp_path / "state.json"
    state.write_text(
        json.dumps(
            {"100": {"name": "db", "status": "running"}, "9000": {"name": "tpl", "status": "stopped", "template": 1}}
        )
    )
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PVE": str(state)}

    def run(script: str) -> str:
        done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run.state = lambda: json.loads(state.read_text())
    run.set = lambda number, **fields: state.write_text(json.dumps({**run.state(), number: fields}))
    return run


def test_proxmox_clones_carry_our_mark_and_only_they_are_destroyed(pve):
    there = Proxmox.found({"srv1": pve(Proxmox.look("tpl"))}, "tpl", ["local-lvm"])
    clones = [there.clone(f"b-{n + 1}", "srv1", n, "abc123", 1) for n in range(2)]
    assert [clone.ident for clone in clones] == ["101", "102"]
    for stage in there.stages(clones, 100 * 2**30):
        for _, _, script in stage:
            pve(f"set -e\n{script}")
    made = pve.state()["101"]
    assert (made["scsi20"], made["status"]) == ("local-lvm:100,serial=HCI-b-1-1,backup=0", "running")
    assert Proxmox.told(pve(Proxmox.tell(clones[0])), clones[0]) == (
        "192.0.2.1",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB",
    )
    pve.set("102", name="theirs", status="running")  # somebody took the number after ours was gone
    assert [pve(Proxmox.remove(clone)).strip() for clone in clones] == [
        "removed",
        "a VM of another origin has its number: left as it is",
    ]
    assert sorted(pve.state()) == ["100", "102", "9000"]
    assert pve(Proxmox.remove(clones[0])).strip() == "not there any more"


def test_on_proxmox_absence_is_what_a_list_says(pve, tmp_path):
    """qm's own words for a VM that is not there, of a call that failed; and a list that could not be made."""
    there = Proxmox.found({"srv1": pve(Proxmox.look("tpl"))}, "tpl", ["local-lvm"])
    clone = there.clone("b-1", "srv1", 0, "abc123", 1)
    for stage in there.stages([clone], 2**30):
        for _, _, script in stage:
            pve(f"set -e\n{script}")
    for call in ("list", "config", "status", "destroy"):
        words = "Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist"
        (tmp_path / "qm").write_text(
            QM.replace("file = os", f'if "{call}" in sys.argv: sys.exit("{words}")\nfile = os')
        )
        with pytest.raises(AssertionError, match="does not exist"):
            pve(Proxmox.remove(clone))
        assert "101" in pve.state()
    (tmp_path / "qm").write_text(QM)
    (tmp_path / "pvesh").write_text("#!/bin/sh\ntrue\n")
    with pytest.raises(AssertionError, match="pvesh printed no list of VMs"):
        pve(Proxmox.remove(clone))
    (tmp_path / "pvesh").write_text(PVESH)
    pve.set("101", **{**pve.state()["101"], "name": "database"})
    assert pve(Proxmox.remove(clone)).strip() == "it was renamed to database: left as it is"
    pve.set("101", **{**pve.state()["101"], "name": "b-1", "status": "running"})
    assert pve(Proxmox.remove(clone, "shut off")).strip() == "it is running now, and was shut off: left as it is"
    assert pve(Proxmox.remove(clone, "running")).strip() == "removed"


def test_on_proxmox_a_volume_that_destroy_left_is_named(pve, monkeypatch):
    there = Proxmox.found({"srv1": pve(Proxmox.look("tpl"))}, "tpl", ["local-lvm"])
    clone = there.clone("b-1", "srv1", 0, "abc123", 1)
    pve(f"qm clone 9000 101 --name b-1 --full 1 --description '{clone.mark}'; "
        "qm set 101 --scsi0 local-lvm:vm-101-disk-0,size=8G --ide2 local:iso/a.iso,media=cdrom "
        "--scsi20 ceph:vm-101-disk-1,serial=HCI-b-1-1")  # fmt: skip
    state, volumes = Proxmox.judged(pve(Proxmox.judge(clone)))
    assert (state, sorted(volumes)) == (
        "shut off",
        [("ceph", "ceph:vm-101-disk-1"), ("local-lvm", "local-lvm:vm-101-disk-0")],
    )
    clone = replace(clone, volumes=volumes)
    text = pve("export LEFT='ceph:vm-101-disk-1 ceph:vm-101-disk-7'\n" + Proxmox.remove(clone, state))
    said, left, why = Proxmox.removed(text)
    assert (said, left) == ("removed", [("ceph", "ceph:vm-101-disk-1")])
    assert "pvesm free ceph:vm-101-disk-1" in why
    clone = replace(clone, volumes=left)
    assert Proxmox.removed(pve("export LEFT=ceph:vm-101-disk-1\n" + Proxmox.remove(clone)))[1] == left
    assert Proxmox.removed(pve(Proxmox.remove(clone))) == ("not there any more", [], "")


def test_on_proxmox_each_storage_is_a_system_with_its_own_disks_of_every_vm(pve):
    pools = ["ceph-rbd", "local-lvm"]
    there = Proxmox.found({"srv1": pve(Proxmox.look("tpl"))}, "tpl", pools)
    clones = [there.clone(f"b-{n + 1}", "srv1", n, "abc123", 2) for n in range(2)]
    for stage in there.stages(clones, 2**30):
        for _, _, script in stage:
            pve(f"set -e\n{script}")
    own = {key: value for key, value in pve.state()["102"].items() if key.startswith("scsi")}
    assert own == {
        "scsi20": "ceph-rbd:1,serial=HCI-b-2-1,backup=0",
        "scsi21": "ceph-rbd:1,serial=HCI-b-2-2,backup=0",
        "scsi22": "local-lvm:1,serial=HCI-b-2-3,backup=0",
        "scsi23": "local-lvm:1,serial=HCI-b-2-4,backup=0",
    }
    owned = systems_of("b", 2, pools)
    for clone in clones:
        whose = [[pool for pool, its in owned.items() if any(fnmatchcase(s, p) for p in its)] for s in clone.serials]
        assert whose == [["ceph-rbd"], ["ceph-rbd"], ["local-lvm"], ["local-lvm"]]
    assert [pve(Proxmox.remove(clone)).strip() for clone in clones] == ["removed"] * 2
    assert sorted(pve.state()) == ["100", "9000"]


@pytest.mark.parametrize(
    ("template", "pool", "said"),
    [
        ("tplx", ["local-lvm"], "no template 'tplx' on srv1; the cluster has tpl"),
        ("tpl", [], "pool: say on which storage the data disks are to lie: ceph-rbd, local-lvm"),
        ("tpl", ["local-lvm", "nvme"], "srv1: no storage 'nvme'"),
    ],
)
def test_what_proxmox_does_not_have_is_named(pve, template, pool, said):
    with pytest.raises(ClonesError, match=said):
        Proxmox.found({"srv1": pve(Proxmox.look(template))}, template, pool)


def test_a_platform_that_prints_something_else_is_named():
    with pytest.raises(ClonesError, match="srv1: pvesh printed something else than is known"):
        Proxmox.found({"srv1": "==== node\nsrv1\n==== guests\nipcc_send_rec failed\n==== end\n"}, "tpl", ["x"])
    with pytest.raises(ClonesError, match="srv1: virsh's answer ends early: 'error: failed to connect"):
        Libvirt.found({"srv1": "error: failed to connect to the hypervisor\n"}, "tpl", [])
