"""Load that is offered: how a sweep asks for it, and what a job file says of it."""

import pytest

import hcilib as hci
from hcilib.model.patterns import Pattern
from hcilib.model.plan import Plan, Step
from hcilib.model.workload import Cell

SWEEP = {"iodepth": [1, 32], "read_runtime_s": 10, "write_runtime_s": 10, "repeats": 2}


def test_every_load_is_measured_closed_loop_first_and_then_at_its_demands():
    asked = {"offered": [0.5, "2000iops", 0.95], "offered_process": "linear"}
    plan = hci.sweep(["4k-randread", "8k-randrw70"], **asked, **SWEEP)
    assert Plan.from_dict(plan.to_dict()) == plan
    assert len(plan.cells) == 2 * (2 + 3)
    for block in (1, 2):
        visited = [s.cell for s in plan.steps if s.kind == "measure" and s.block == block]
        for start in (0, 5):
            closed, offered = visited[start : start + 2], visited[start + 2 : start + 5]
            assert all(not cell.demand and cell.same_load(visited[start]) for cell in closed)
            assert all(cell.demand and cell.iodepth == 256 and cell.same_load(visited[start]) for cell in offered)


def test_a_plan_without_demands_says_nothing_of_them():
    plain = str(hci.sweep(["4k-randread"], **SWEEP).to_dict())
    assert "offered" not in plain
    assert "demand" not in plain


def test_a_demand_is_a_share_or_iops():
    share, iops = (Cell(Pattern.parse("4k-randread"), 1, 256, 4, demand=demand) for demand in ("0.25", "2000iops"))
    assert share.offered_iops(2000) == 500
    assert iops.offered_iops(float("nan")) == 2000
    assert share.name == "4k-randread-nj1-qd256-vm4-at0.25"
    assert Step("measure", share, 1, 1, 10).cell.factors()["rate_iops"] == "0.25"


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("4k-randread-rate2000iops", "rate_iops", 2000),
        ("1m-read-rate256m", "rate_bytes", 256 * 2**20),
        ("4k-randread-zipf1.2", "random_distribution", "zipf:1.2"),
        ("8k-randrw70-zoned95on5-sync-rate50iops", "random_distribution", "zoned:95/5:5/95"),
    ],
)
def test_hot_spots_and_caps_are_words_of_a_pattern_s_name(name, field, value):
    pattern = Pattern.parse(name)
    assert pattern.name == name
    assert pattern.factors()[field] == value
    assert "rate_iops" not in Pattern.parse("4k-randread").factors()


def test_a_plan_of_tenants_survives_its_file_and_each_is_measured_as_long_alone_as_together():
    plan = hci.sweep(tenants={"database": "oltp", "backup": {"profile": "backup", "limit": "64m"}}, repeats=2)
    assert Plan.from_dict(plan.to_dict()) == plan
    measured = [step for step in plan.steps if step.kind == "measure" and step.block == 1]
    assert sorted(step.cell.name for step in measured) == [
        "tenants-backup",
        "tenants-database",
        "tenants-database.backup",
        "tenants-database.backup-rate64m",
    ]
    assert len({step.runtime_s for step in measured}) == 1
