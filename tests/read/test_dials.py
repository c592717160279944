"""What a run directory holds of drives of a set speed: real plan.json of a lab, and its journal."""

import json

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib import System, Testbed, sweep
from hcilib.drive.campaign.rundir import RunDir
from hcilib.model.testbed import Disk, Drive, Node, Vm

RATE = 2**22
WRITES = {
    "pattern": "4k-randwrite",
    "rw": "randwrite",
    "rwmixread": 0,
    "bs_bytes": 4096,
    "sync": 0,
    "runtime_s": np.inf,
}


@pytest.fixture
def claimed(tmp_path):
    """A run directory of a lab of two systems behind two drives, as the campaign writes it before its first step."""
    drives = (Drive(read_bytes_per_s=RATE, write_bytes_per_s=RATE, delay_s=0.001),)
    nodes = tuple(Node(name=f"node{i}", address=f"127.0.9.{i}", drives=drives) for i in (1, 2))
    disks = [
        tuple(
            Disk(
                serial=f"lab-{name}-{vm}",
                size_bytes=2**22,
                system=f"lab-{name}",
                backing=tuple(f"/lab/node{(vm + i) % 2 + 1}/{name}-{vm}.img" for i in range(n)),
            )
            for name, n in (("single", 1), ("mirror", 2))
        )
        for vm in range(2)
    ]
    vms = tuple(
        Vm(name=f"vm{vm + 1}", address=f"127.0.9.{vm + 3}", node=f"node{vm + 1}", disks=own)
        for vm, own in enumerate(disks)
    )
    testbed = Testbed(name="lab", nodes=nodes, vms=vms, lab_root="/lab")
    plan = sweep(["4k-randread"], repeats=1, vms=1, read_runtime_s=1, prefill=False, canary=False)
    given = plan, testbed, [System(name="lab-single", label="x")]
    with RunDir.opened(tmp_path, *given) as rundir:
        rundir.claim(*given)
    return tmp_path


def test_every_system_is_behind_every_drive(claimed):
    table = hci.read_set_speeds(claimed)
    assert table[["system", "node"]].to_numpy().tolist() == [
        ["lab-single", "node1"], ["lab-mirror", "node1"], ["lab-single", "node2"], ["lab-mirror", "node2"],
    ]  # fmt: skip
    assert set(table["limits"]) == {"separate"}
    assert set(table["read_bytes_per_s"]) == set(table["write_bytes_per_s"]) == {RATE}
    asked = pd.DataFrame([WRITES | {"system": name, "runtime_s": np.inf} for name in ("lab-single", "lab-mirror")])
    known = hci.predicted(asked, table, hci.load_systems()).set_index("system")
    assert known["iops"].to_dict() == {
        "lab-single": 2048,
        "lab-mirror": 1024,
    }
    assert len(hci.read_set_speeds([claimed, claimed])) == len(table)


def test_a_drive_that_was_turned_meanwhile_has_no_one_rate(claimed):
    lines = [
        json.dumps({"t": 1, "event": "dial", "node": "node2", "read_bytes_per_s": 1}),
        '{"t": 2, "event": "dial", "no',
    ]
    (claimed / "journal.jsonl").write_text("\n".join(lines))
    assert hci.read_set_speeds(claimed).groupby("node")["read_bytes_per_s"].max().isna().to_dict() == {
        "node1": False,
        "node2": True,
    }


def test_what_was_measured_elsewhere_has_no_set_speed(claimed, tmp_path):
    assert hci.read_set_speeds(["data/published", tmp_path / "nothing", "data/samples/box/box-ceph"]).empty
    assert len(hci.read_set_speeds(["data/published", claimed])) == 4
    loose = {"path": "data/samples/loose-files", "names": "{system}_*.json"}  # as `sources` of a notebook may say it
    assert len(hci.read_set_speeds([loose, {"path": str(claimed)}, {"path": ["a.json", "b.json"]}])) == 4


def test_what_an_idle_drive_lets_through_counts_where_runs_had_no_ramp(claimed):
    assert set(hci.read_set_speeds(claimed)["burst_s"]) == {0.1}
    plan = json.loads((claimed / "plan.json").read_text())
    for step in plan["plan"]["steps"]:
        step["ramp_s"] = 0.3
    (claimed / "plan.json").write_text(json.dumps(plan))
    assert set(hci.read_set_speeds(claimed)["burst_s"]) == {0.0}


def test_a_drive_that_holds_nothing_of_a_system_is_not_behind_it(claimed):
    """One VM of lab-single has its data on one node; campaigns of earlier versions did not say on which."""
    plan = json.loads((claimed / "plan.json").read_text())
    single, mirror = plan["testbed"]["vms"][0]["disks"]
    assert single["backing"] == ["node1/single-0.img"]
    assert mirror["backing"] == ["node1/mirror-0.img", "node2/mirror-0.img"]
    del plan["testbed"]["vms"][1]
    (claimed / "plan.json").write_text(json.dumps(plan))
    assert hci.read_set_speeds(claimed)["system"].value_counts().to_dict() == {"lab-mirror": 2, "lab-single": 1}
    single["backing"] = ["single-0.img"]
    (claimed / "plan.json").write_text(json.dumps(plan))
    assert hci.read_set_speeds(claimed)["system"].value_counts().to_dict() == {"lab-mirror": 2, "lab-single": 2}
