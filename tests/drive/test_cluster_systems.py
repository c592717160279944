"""The other systems of the box: a mirror over NVMe/TCP, arrays with known ceilings, and what is left of a box when it
ends."""

import json
import re

import pytest
from boxes import DRIVE_BYTES, VERIFY, naming, say
from probes import listening, processes, until

import hcilib as hci
from hcilab.cluster import cluster, running
from hcilib import load_system
from hcilib.drive.guard.guard import inventory, judge
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.hosts.network import measure

pytestmark = [pytest.mark.box, pytest.mark.deep]
SYSTEMS = hci.ROOT / "params" / "systems"


def test_a_mirror_over_nvme_tcp_holds_two_equal_copies(box_programs, tmp_path):
    with running("box-nvme-tcp", drive_bytes=DRIVE_BYTES, root=tmp_path) as box:
        say(box, VERIFY.format(device="/dev/md1", rw="randwrite", more="--do_verify=1"), ["node1"])
        examined = say(box, "mdadm --examine /dev/mapper/vol1", ["node1"])["node1"]
        offset = re.search(r"Data Offset : (\d+) sectors", examined)[1]
        script = (
            f"sync; echo 3 >/proc/sys/vm/drop_caches; dd if=/dev/mapper/vol1 bs=512 skip={offset} count=32768 "
            "2>/dev/null | md5sum"
        )
        assert len(set(say(box, script).values())) == 1, "node1's copy, and the one that it has on node2"
        assert json.loads(say(box, "nvme list --output-format=json", ["node1"])["node1"])["Devices"]
        _capacity_is_the_schemes(box)
        _its_parts_are_refused(box)


def _capacity_is_the_schemes(box):
    system = load_system(SYSTEMS / f"{box.system}.yaml")
    scheme = hci.parse_scheme(system.scheme)
    usable, raw = sum(vm.disks[0].size_bytes for vm in box.testbed.vms), system.nodes * box.size.drives * DRIVE_BYTES
    assert 0.9 * scheme.efficiency < usable / raw < scheme.efficiency, (
        "two arrays' metadata, large on drives this small"
    )


def _its_parts_are_refused(box):
    with Fleet(box.testbed) as fleet:
        known = inventory(fleet, ["node1", "node2"])
    assert judge(box.testbed, 2, 1, known)[1] == []
    remote = known["node1"].devices["nvme0n1"]
    [serial] = [i for i in remote.identifiers if i.startswith("BOXN2")]
    said = [r.reason for r in judge(naming(box, "node1", serial, remote.size_bytes), 1, 1, known)[1]]
    assert any("nvme0n1 is held by md1" in reason for reason in said)


def test_a_mirror_of_three_on_four_nodes_outlives_one(box_programs, tmp_path):
    """Three equal copies on the node itself and the two after it, all four nodes in one network; with one of them dead
    what stands on it goes on with two."""
    with running("box-mirror3", drive_bytes=DRIVE_BYTES, root=tmp_path) as box:
        assert [len(node.drives) for node in box._guests().values()] == [1, 1, 1, 1]
        with Fleet(box.testbed) as fleet:
            links = measure(fleet, box.testbed, 1).query("transport == 'TCP'")
        assert len(links) == 4 * 3
        assert (links["bytes_per_s"] > 1e6).all(), links["note"].tolist()
        assert set(links["card"]) == {"repl"}
        say(box, VERIFY.format(device="/dev/md1", rw="randwrite", more="--do_verify=1"), ["node3"])
        examined = say(box, "mdadm --examine /dev/mapper/vol3", ["node3"])["node3"]
        offset = re.search(r"Data Offset : (\d+) sectors", examined)[1]
        copy = f"dd if=/dev/mapper/vol3 bs=512 skip={offset} count=16384 2>/dev/null | md5sum"
        copies = say(box, f"sync; echo 3 >/proc/sys/vm/drop_caches; {copy}", ["node3", "node4", "node1"])
        assert len(set(copies.values())) == 1
        _capacity_is_the_schemes(box)
        box.kill("node4")
        say(box, VERIFY.format(device="/dev/md1", rw="randwrite", more="--do_verify=1"), ["node3"])
        assert "[3/2]" in say(box, "cat /proc/mdstat", ["node3"])["node3"]


# Whoever starts it, however it ends


def test_nothing_is_left_when_it_ends(box_programs, tmp_path):
    with cluster(system="box-drive", drive_bytes=DRIVE_BYTES, root=tmp_path) as bed:
        base = bed.nodes[0].address.rsplit(".", 1)[0]
        assert listening(base) == [f"{base}.1:2222"]
        [qemu] = [command for command in processes(str(tmp_path)).values() if "qemu-system" in command]
        assert "accel tcg" in qemu or "accel kvm" in qemu
    assert until(lambda: not processes(str(tmp_path)))
    assert listening(base) == []
    assert list(tmp_path.iterdir()) == []
