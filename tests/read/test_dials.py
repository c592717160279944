"""What a run directory holds of drives of a set speed: real plan.json of a lab, and its journal."""

import json

import pytest

import hcilib as hci
from tests.read.made import write_plan, written

RATE = 2**22


@pytest.fixture
def claimed(tmp_path):
    """A run directory of a lab of two systems behind two drives, as before its first step."""
    drive = {"read_bytes_per_s": RATE, "write_bytes_per_s": RATE, "delay_s": 0.001, "burst_s": 0.1}
    nodes = [{"name": f"node{n}", "drives": [drive | {"system": None}]} for n in (1, 2)]
    backing = {"lab-single": ["node{}/single"], "lab-mirror": ["node{}/mirror", "node{}/mirror"]}
    vms = []
    for vm in (1, 2):
        places = (vm, 3 - vm)
        disks = [
            {
                "system": name,
                "backing": [file.format(n) for file, n in zip(files, places, strict=False)],
            }
            for name, files in backing.items()
        ]
        vms.append({"name": f"vm{vm}", "node": f"node{vm}", "disks": disks})
    write_plan(tmp_path, nodes=nodes, vms=vms)
    return tmp_path


def test_every_system_is_behind_every_drive(claimed):
    table = hci.read_set_speeds(claimed)
    assert table[["system", "node"]].to_numpy().tolist() == [
        ["lab-single", "node1"],
        ["lab-mirror", "node1"],
        ["lab-single", "node2"],
        ["lab-mirror", "node2"],
    ]
    assert set(table["limits"]) == {"separate"}
    assert set(table["read_bytes_per_s"]) == set(table["write_bytes_per_s"]) == {RATE}


def test_a_drive_that_was_turned_meanwhile_has_no_one_rate(claimed):
    turned = {"t": 1, "event": "dial", "node": "node2", "read_bytes_per_s": 1}
    written(claimed / "journal.jsonl", json.dumps(turned) + '\n{"t": 2, "event": "dial", "no')
    rates = hci.read_set_speeds(claimed).groupby("node")["read_bytes_per_s"].max()
    assert rates.isna().to_dict() == {"node1": False, "node2": True}


def test_what_an_idle_drive_lets_through_counts_where_runs_had_no_ramp(claimed):
    assert set(hci.read_set_speeds(claimed)["burst_s"]) == {0.1}
    plan = json.loads((claimed / "plan.json").read_text())
    for step in plan["plan"]["steps"]:
        step["ramp_s"] = 0.3
    written(claimed / "plan.json", plan)
    assert set(hci.read_set_speeds(claimed)["burst_s"]) == {0.0}


def test_a_drive_that_holds_nothing_of_a_system_is_not_behind_it(claimed):
    """One VM of lab-single has its data on one node; campaigns of earlier versions did not say on
    which."""
    plan = json.loads((claimed / "plan.json").read_text())
    del plan["testbed"]["vms"][1]
    for backing, drives in (("node1/single", 1), ("single", 2)):
        plan["testbed"]["vms"][0]["disks"][0]["backing"] = [backing]
        written(claimed / "plan.json", plan)
        behind = hci.read_set_speeds(claimed)["system"].value_counts().to_dict()
        assert behind == {"lab-mirror": 2, "lab-single": drives}
