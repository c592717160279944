"""The guard and a Ceph cluster: an image is written only where monitor and stores lie in the folder that hcilib made
for them.

What is not the cluster's own is made from a real one: its folder's files beside its running monitor, then one of them
changed.
"""

import os
from pathlib import Path

import pytest
from ceph_beds import NONE, assert_ended, on

import hcilib as hci
from hcilab.ceph import config_of
from hcilib import sweep
from hcilib.drive.guard.guard import GuardError, refusals
from hcilib.model.system import System

pytestmark = [pytest.mark.lab, pytest.mark.deep]


@pytest.fixture
def copy(ceph_cluster, tmp_path):
    """A folder like the cluster's, with the real monitor's socket in it, that may be harmed."""
    bed, root = ceph_cluster.bed, tmp_path / "bed"
    root.mkdir()
    (root / config_of(bed).name).write_text(config_of(bed).read_text())
    (root / "mon.a.asok").symlink_to(Path(bed.lab_root) / "mon.a.asok")
    stores = []
    for store in bed.vms[0].disks[0].backing:
        stores.append(root / Path(store).parent.name / "block")
        stores[-1].parent.mkdir()
        stores[-1].touch()
    return with_disks(bed.model_copy(update={"lab_root": str(root)}), backing=tuple(map(str, stores)))


def with_disks(bed, **changes):
    """The testbed with every disk changed."""
    vms = [vm.model_copy(update={"disks": tuple(d.model_copy(update=changes) for d in vm.disks)}) for vm in bed.vms]
    return bed.model_copy(update={"vms": tuple(vms)})


def reasons(bed) -> str:
    return "; ".join(r.reason for r in refusals(bed, vms=1))


@on("box-ceph")
def test_its_own_images_may_be_written(ceph_cluster, copy):
    assert refusals(ceph_cluster.bed) == []
    assert refusals(copy) == [], "the copy is as good, before it is harmed"


@on("box-ceph")
@pytest.mark.parametrize(
    "uri",
    [
        None,
        "rbd://hci-0123456z/box/vm1-d0",
        "rbd://{cluster}/box/vm2-d0",
        "rbd://{cluster}/box/vm1-d0@snapshot",
        "nbd+unix:///vm1-d0?socket=node1.sock",
    ],
)
def test_an_image_that_is_not_of_the_disks_name_is_refused(ceph_cluster, uri):
    given = uri and uri.format(cluster=config_of(ceph_cluster.bed).stem)
    assert "is not the image of that name in a cluster made by hcilib" in reasons(
        with_disks(ceph_cluster.bed, uri=given)
    )


def rewrite(bed, old: str, new: str) -> None:
    config = config_of(bed)
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))


def other_monitor(bed):
    rewrite(bed, f"v2:{bed.nodes[0].address}:3300", "v2:192.0.2.1:3300")


def other_cluster(bed):
    rewrite(bed, "fsid = ", "fsid = 0")


def no_config(bed):
    config_of(bed).unlink()


def linked_config(bed):
    config = config_of(bed)
    config.rename(config.with_suffix(".real"))
    config.symlink_to(config.with_suffix(".real"))


def no_monitor(bed):
    Path(bed.lab_root, "mon.a.asok").unlink()


def store_on_a_device(bed):
    store = Path(bed.lab_root, "osd.1", "block")
    store.unlink()
    store.symlink_to("/dev/zero")


def one_store_more(bed):
    Path(bed.lab_root, "osd.2").mkdir()
    os.mkfifo(Path(bed.lab_root, "osd.2", "block"))


@on("box-ceph")
@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (other_monitor, "names the monitor 'v2:192.0.2.1:3300', not the cluster's own"),
        (other_cluster, "the monitor in its folder of"),
        (no_config, "No such file"),
        (linked_config, "is a symbolic link"),
        (no_monitor, "no monitor answers"),
        (store_on_a_device, "is a symbolic link"),
        (one_store_more, "is not a plain file"),
    ],
)
def test_what_is_not_the_clusters_own_is_refused(copy, harm, reason):
    harm(copy)
    assert reason in reasons(copy)


@on("box-ceph")
def test_a_refusal_comes_before_any_host_is_touched(copy, run_dir):
    no_monitor(copy)
    plan = sweep(["4k-randwrite"], repeats=1, iodepth=1, vms=1, write_runtime_s=1, span_bytes=2**20, canary=False)
    with pytest.raises(GuardError, match="no monitor answers"):
        hci.run(plan, System(name=copy.serves, label="x"), copy, run_dir, progress=False)
    assert not run_dir.exists()


@on(NONE)
def test_nothing_is_left_of_any_of_them(ceph_cluster, tmp_path_factory):
    assert_ended(ceph_cluster, tmp_path_factory)
