"""What a Ceph cluster's files say, without a cluster: the testbed, the job, the configuration. No package is needed."""

from pathlib import Path

import pytest

import hcilib as hci
from hcilab.ceph_cluster import POOLS, environment, image_pool, read_config, write_config
from hcilib import sweep
from hcilib.drive.launch.job import job_text
from hcilib.model.testbed import Disk, Fio, Node, Testbed, Vm, load_testbed

PARAMS = Path(__file__).parents[2] / "params"
IMAGE = Disk(serial="ceph-vm1-d0", size_bytes=2**26, uri="rbd://hci-0a1b2c3d/box/vm1-d0")


def test_a_job_names_the_cluster_the_pool_and_the_image():
    """The cluster by a name of its own: whatever ceph.conf this machine has, no program finds another cluster by it."""
    [step] = [s for s in sweep(["4k-randwrite"], repeats=1, iodepth=8, vms=1, prefill=False, canary=False).steps]
    vm = Vm(name="vm1", node="node1", disks=(IMAGE,))
    bed = Testbed(name="box-ceph", nodes=(Node(name="node1"),), vms=(vm,), fio=Fio(ioengine="rbd", direct=0))
    lines = job_text(step, vm, bed, 2**25).splitlines()
    assert {"ioengine=rbd", "clustername=hci-0a1b2c3d", "clientname=admin", "pool=box", "rbdname=vm1-d0",
            f"size={2**25}"} <= set(lines)  # fmt: skip
    assert not [line for line in lines if line.startswith(("filename", "uri"))]


def test_the_configuration_names_one_monitor_and_the_cache(tmp_path):
    config = tmp_path / "hci-0a1b2c3d.conf"
    write_config(config, ["127.0.0.1", "127.0.0.2"], 2**32, True)
    known = read_config(config)
    assert known["mon_host"] == "v2:127.0.0.1:3300"
    assert known["bluestore_block_size"] == str(2**32)
    assert "\nrbd_cache = true\n" in config.read_text()
    assert "[osd.1]\ncrush_location = root=default host=node2\n" in config.read_text()
    assert {p.name for p in tmp_path.iterdir() if p.is_dir()} == {"mon.a", "mgr.x", "osd.0", "osd.1", "modules"}
    assert environment(config)["CEPH_CONF"] == str(config)


@pytest.mark.parametrize("name", sorted(POOLS))
def test_a_systems_file_says_what_its_cluster_is(name):
    system, pool = hci.load_system(PARAMS / "systems" / f"{name}.yaml"), POOLS[name]
    assert system.name == name
    assert system.nodes == pool.nodes
    assert system.raw_bytes == pool.nodes * load_testbed(PARAMS / "testbeds" / "box-ceph.yaml").ceph.osd_bytes
    if pool.profile:
        k, m = (int(part.partition("=")[2]) for part in pool.profile[:2])
        assert hci.parse_scheme(system.scheme) == hci.ErasureCode(k, m)
        assert pool.nodes == k + m, "a host a strip: what the scheme says of servers holds"
        assert image_pool(pool) != image_pool(POOLS["box-ceph"])
    else:
        assert hci.parse_scheme(system.scheme) == hci.Mirror(pool.create["size"])
    assert hci.parse_scheme(system.scheme).survives.servers == pool.nodes - pool.survivors
