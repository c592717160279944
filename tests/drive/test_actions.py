"""What can be done to a system, by name, and what its kernels say is missing, from what the box's node printed."""

import json

import pytest

from hcilab.actions import _missing_of_node
from hcilib.drive.systems import actions_of
from hcilib.model.places import shipped
from hcilib.model.system import System
from hcilib.model.testbed import Disk, Fio, Node, Testbed, Vm

SAID = shipped("data/samples/box/box-drbd/facts/node1.json").read_text()
PRINTED = "".join(json.loads(SAID)["fingerprint"][f"cat /proc/{name}"] for name in ("mdstat", "drbd"))


def bed() -> Testbed:
    nodes = tuple(Node(name=f"node{i}", address=f"127.0.99.{i}") for i in (1, 2))
    disks = [Disk(serial=f"s{i}", size_bytes=1, uri=f"rbd://hci-1/box/vm{i}") for i in (1, 2)]
    vms = tuple(Vm(name=f"of-{n.name}", node=n.name, disks=(disk,)) for n, disk in zip(nodes, disks, strict=True))
    return Testbed(name="box", nodes=nodes, vms=vms)


LEG = "cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate"
MISSING = "[5/4] [_UUUU]"
REBUILT = "      [==>..........]  recovery = 12.6% (33024/261120) finish=0.1min speed=33024K/sec"


@pytest.mark.parametrize(
    ("part", "text", "missing"),
    [
        (PRINTED, "", ""),
        (LEG, away := "cs:WFConnection ro:Primary/Secondary ds:UpToDate/DUnknown", away),
        (LEG, behind := "cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent", behind),
        ("[5/5] [UUUUU]", MISSING, MISSING),
        ("[5/5] [UUUUU]", f"{MISSING}\n{REBUILT}", f"{MISSING}, recovery = 12.6%"),
        ("[5/5] [UUUUU]", "[5/5] [UUUUU]\n        resync=PENDING", "resync=PENDING"),
    ],
)
def test_what_is_missing_stands_in_the_kernels_own_words(part, text, missing):
    assert part in PRINTED
    assert _missing_of_node(PRINTED.replace(part, text)).startswith(missing)
    assert bool(_missing_of_node(PRINTED.replace(part, text))) is bool(missing)


def test_a_ceph_cluster_has_an_action_an_osd():
    ceph = bed().model_copy(update={"lab_root": "/x", "fio": Fio(ioengine="rbd")})
    actions = actions_of(ceph, System(name="box-ceph", label="x"))
    assert actions.undo == {"kill-osd0": "start-osd0", "kill-osd1": "start-osd1"}


def test_a_real_testbed_has_what_the_systems_file_names():
    cut = {"do": {"run": "ip link set eno2 down"}, "undo": {"run": "ip link set eno2 up"}}
    whole = {"run": "drbdadm status", "expect": "peer-disk:UpToDate"}
    system = System(name="mine", label="x", checks={"whole": whole}, changes={"cut-link": cut})
    actions = actions_of(bed(), system)
    assert set(actions.do) == {"cut-link", "undo-cut-link"}
    assert actions.undo == {"cut-link": "undo-cut-link"}
    assert actions_of(bed(), System(name="mine", label="x")).do == {}
