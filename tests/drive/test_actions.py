"""What can be done to a system, by name, and what its kernels say is missing. Texts as Linux 6.1 and DRBD 8.4 print
them."""

import pytest

from hcilab.actions import _missing_of_node, of_box
from hcilab.cluster import Cluster
from hcilib import System, Testbed
from hcilib.drive.campaign.events import actions_of
from hcilib.model.system import Action, Check, Failures
from hcilib.model.testbed import Box, Disk, Fio, Node, Vm

ARRAY = """Personalities : [raid6] [raid5] [raid4]
md0 : active raid5 vde[4] vdd[3] vdc[2] vdb[1] vda[0]
      1044480 blocks super 1.2 level 5, 64k chunk, algorithm 2 [5/{up}] [{legs}]
{more}
unused devices: <none>
"""
DRBD = """version: 8.4.11 (api:1/proto:86-101)
srcversion: 211FB288A383ED945B83420

 1: cs:{cs} ro:Primary/Secondary ds:{ds} C r-----
    ns:16384 nr:0 dw:16384 dr:2456 al:4 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0
 2: cs:Connected ro:Secondary/Primary ds:UpToDate/UpToDate C r-----
    ns:0 nr:0 dw:0 dr:0 al:8 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0
"""
WHOLE_ARRAY = ARRAY.format(up=5, legs="UUUUU", more="")
WHOLE = WHOLE_ARRAY + DRBD.format(cs="Connected", ds="UpToDate/UpToDate")


def box(system: str = "box-drbd") -> Cluster:
    nodes = tuple(Node(name=f"node{i}", address=f"127.0.99.{i}") for i in (1, 2))
    vms = tuple(
        Vm(name=n.name, address=n.address, node=n.name, disks=(Disk(serial=n.name, size_bytes=1),)) for n in nodes
    )
    return Cluster(system, Testbed(name="box", nodes=nodes, vms=vms), None, Box(), None, ("", "", ()))


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        (WHOLE, ""),
        (WHOLE_ARRAY, ""),
        (
            WHOLE_ARRAY + DRBD.format(cs="WFConnection", ds="UpToDate/DUnknown"),
            "cs:WFConnection ro:Primary/Secondary ds:UpToDate/DUnknown",
        ),
        (
            WHOLE_ARRAY + DRBD.format(cs="SyncSource", ds="UpToDate/Inconsistent"),
            "cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent",
        ),
        (WHOLE_ARRAY + "\n 1: cs:Unconfigured\n", "cs:Unconfigured"),
        (ARRAY.format(up=4, legs="_UUUU", more=""), "[5/4] [_UUUU]"),
        (
            ARRAY.format(
                up=4,
                legs="_UUUU",
                more="      [==>..........]  recovery = 12.6% (33024/261120) finish=0.1min speed=33024K/sec",
            ),
            "[5/4] [_UUUU], recovery = 12.6%",
        ),
        (ARRAY.format(up=5, legs="UUUUU", more="        resync=PENDING"), "resync=PENDING"),
    ],
)
def test_what_is_missing_stands_in_the_kernels_own_words(said, missing):
    assert _missing_of_node(said) == missing


def test_a_box_knows_its_failures_and_what_takes_each_back():
    actions = of_box(box())
    assert actions.undo == {"cut-link": "heal-link", "kill-node2": "revive-node2", "fail-drive": "replace-drive"}
    assert {*actions.undo, *actions.undo.values()} == set(actions.do)


@pytest.mark.parametrize(
    ("system", "failures"),
    [("box-nvme-tcp", {"cut-link", "fail-drive"}), ("box-raid5", {"fail-drive"}), ("box-drive", set())],
)
def test_a_box_offers_what_its_system_can_come_back_from(system, failures):
    assert set(of_box(box(system)).undo) == failures


def test_a_ceph_cluster_has_an_action_an_osd():
    bed = box().testbed.model_copy(update={"lab_root": "/x", "fio": Fio(ioengine="rbd")})
    disks = [Disk(serial=f"s{i}", size_bytes=1, uri=f"rbd://hci-1/box/vm{i}") for i in (1, 2)]
    vms = tuple(vm.model_copy(update={"disks": (disk,)}) for vm, disk in zip(bed.vms, disks, strict=True))
    actions = actions_of(bed.model_copy(update={"vms": vms}), System(name="box-ceph", label="x"))
    assert actions.undo == {"kill-osd0": "start-osd0", "kill-osd1": "start-osd1"}


def test_a_real_testbed_has_what_the_systems_file_names():
    how = Failures(
        actions={
            "cut-link": Action(run="ip link set eno2 down", undo="heal-link"),
            "heal-link": Action(run="ip link set eno2 up"),
        },
        whole=Check(run="drbdadm status", expect="peer-disk:UpToDate"),
    )
    actions = actions_of(box().testbed, System(name="mine", label="x", failures=how))
    assert set(actions.do) == {"cut-link", "heal-link"}
    assert actions.undo == {"cut-link": "heal-link"}
    assert actions_of(box().testbed, System(name="mine", label="x")).do == {}
