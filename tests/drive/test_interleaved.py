"""Several systems, or settings of one, in one campaign: each visit of a cell once per system, next to each other, on
disks of its own."""

import json
from itertools import groupby

import pandas as pd
import pytest
from plain import plain_bed, run

import hcilib as hci
from hcilib import progress
from hcilib.drive.campaign import campaign
from hcilib.drive.campaign.rundir import RunDirError
from hcilib.model.patterns import PlanError
from hcilib.model.plan import Plan
from hcilib.model.system import System
from hcilib.model.yaml_models import TestbedError

A, B = (System(name=name, label=name) for name in ("lab-a", "lab-b"))
BED = plain_bed({vm: dict.fromkeys((f"ceph-{vm}", f"drbd-{vm}"), 2**20) for vm in ("vm1", "vm2")})


def interleaved(**options) -> Plan:
    given = {"repeats": 3, "iodepth": [1, 4], "vms": 2, "span_bytes": 2**20}
    plan = hci.sweep(["4k-randread", "4k-randwrite"], **{**given, **options})
    return plan.interleaved({"lab-a": "lab-a", "lab-b": "lab-b"})


# What is planned


def test_every_visit_has_each_system_once_and_next_to_each_other():
    plan = interleaved()
    runs = [step for step in plan.steps if step.kind == "measure"]
    visits = [list(own) for _, own in groupby(runs, key=lambda step: step.pair)]
    assert [own[0].pair for own in visits] == list(range(1, 3 * 4 + 1)), "one number a visit, in the order of the plan"
    for own in visits:
        assert sorted(step.system for step in own) == ["lab-a", "lab-b"]
        assert len({(step.cell, step.block) for step in own}) == 1
    first = [own[0].system for own in visits]
    assert 2 <= first.count("lab-a") <= 10, "who comes first is drawn for each visit"
    assert len({step.id for step in plan.steps}) == len(plan.steps)
    assert sorted(step.system for step in plan.steps if step.kind == "prefill") == ["lab-a", "lab-b"]
    assert interleaved(seed=1) != plan == interleaved()


def test_the_plan_is_kept_whole_and_shown():
    plan = interleaved()
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    frame = plan.to_frame()
    assert list(frame)[:4] == ["step", "kind", "system", "pair"]
    assert frame.loc[frame["kind"] != "measure", "pair"].isna().all()
    assert "interleaved: lab-a, lab-b" in repr(plan)
    alone = hci.sweep(["4k-randread"], vms=1)
    assert not {"system", "pair"} & set(alone.to_frame())
    assert "pair" not in json.dumps(alone.to_dict())


@pytest.mark.parametrize("systems", [{}, {"a": "a"}, {"a [x]": "a", "a-x": "a-x"}])
def test_systems_that_cannot_be_told_apart_are_refused(systems):
    with pytest.raises(PlanError, match="expected at least two systems"):
        hci.sweep(["4k-randread"]).interleaved(systems)
    with pytest.raises(PlanError, match="names none yet"):
        interleaved().interleaved({"c": "c", "d": "d"})


# Whose a disk is


def test_disks_are_divided_by_the_patterns_of_the_systems_files():
    marked = BED.divided({"x": ["ceph-*"], "y": ["drbd-*"]})
    assert [d.serial for vm in marked.of_system("y").vms for d in vm.disks] == ["drbd-vm1", "drbd-vm2"]
    plan = hci.sweep(["4k-randwrite"], vms=2, span_bytes=2**20).interleaved({"x": "x", "y": "y"})
    overwrites = plan.to_frame(marked).groupby("system")["overwrites"].agg(set)
    assert overwrites["x"] == {"vm1:ceph-vm1, vm2:ceph-vm2"}
    assert overwrites["y"] == {"vm1:drbd-vm1, vm2:drbd-vm2"}
    with pytest.raises(TestbedError, match="disk ceph-vm1 is x and z's"):
        marked.divided({"z": ["ceph-*"]})
    with pytest.raises(TestbedError, match="no disk is system z's; they are x, y's"):
        marked.of_system("z")
    partly = BED.divided({"x": ["ceph-*"], "y": ["drbd-vm2"]})
    assert [vm.name for vm in partly.of_system("y").vms] == ["vm2"], "the other VM does not load it"
    assert BED.divided({"x": []}) is BED, "a testbed of one system keeps its identity"
    assert BED.divided({"x": ["*"]}).digest != BED.digest


@pytest.mark.parametrize(
    "patterns", [{"x": ["*-vm1"], "y": ["ceph-*"]}, {"x": [], "y": []}, {"x": ["ceph-*"], "y": []}]
)
def test_systems_that_share_a_disk_are_refused_by_name(patterns):
    with pytest.raises(TestbedError, match=r"vm1: disk ceph-vm1 is x and y's: systems that share a disk.*field disks"):
        BED.divided(patterns)


# On the running lab


@pytest.fixture(scope="module")
def both(bed):
    """The lab as one that serves two systems: each VM's first disk is the one's, its second the other's."""
    vms = tuple(
        vm.model_copy(
            update={
                "disks": tuple(d.model_copy(update={"system": s.name}) for d, s in zip(vm.disks, (A, B), strict=True))
            }
        )
        for vm in bed.vms
    )
    return bed.model_copy(update={"vms": vms, "serves": None})


@pytest.fixture(scope="module")
def interrupted(both, short, tmp_path_factory):
    """A campaign whose controller dies amid the second visit, and its run directory, plan and launched steps."""
    run_dir, real, seen = tmp_path_factory.mktemp("runs") / "both", campaign.launch, []
    plan = short(["4k-randread", "4k-randwrite"], repeats=2, vms=1, prefill=True)

    def dies(of):
        seen.append(of.step.id)
        if len(seen) == 6:
            raise KeyboardInterrupt
        return real(of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(campaign, "launch", dies)
        with pytest.raises(KeyboardInterrupt, match="5 of 10 steps are kept; run the same again"):
            run(plan, both, [A, B], run_dir)
        whole = {name: (run_dir / "steps" / name / "step.json").read_bytes() for name in seen[:4]}
        return run(plan, both, [A, B], run_dir), run_dir, plan, seen, whole


@pytest.mark.lab
def test_both_systems_rows_come_from_one_run_directory(interrupted):
    results, run_dir, *_ = interrupted
    assert results.attrs["missing"] == []
    assert results.groupby("system").size().to_dict() == {"lab-a": 4, "lab-b": 4}
    shared = results.groupby("pair")
    assert (shared["system"].nunique() == 2).all()
    assert (shared[["pattern", "block"]].nunique() == 1).all(axis=None)
    assert sorted(results["pair"].unique()) == [1, 2, 3, 4]
    steps = {json.loads(f.read_text())["id"]: f.parent for f in run_dir.glob("steps/*/step.json")}
    assert len([name for name in steps if name.startswith("prefill")]) == 2
    for folder in steps.values():
        of = json.loads((folder / "step.json").read_text())["disks_of"]
        disks = {
            line.split("=")[1] for line in (folder / "job.fio").read_text().splitlines() if line.startswith("uri=")
        }
        assert {uri.split("?")[0][-2:] for uri in disks} == {{"lab-a": "d0", "lab-b": "d1"}[of]}, "only its own"
    pd.testing.assert_frame_equal(hci.read_results(run_dir), results)


@pytest.mark.lab
def test_the_other_order_of_the_systems_is_the_same_campaign_and_another_system_is_not(interrupted, both):
    results, run_dir, plan, *_ = interrupted
    pd.testing.assert_frame_equal(run(plan, both, [B, A], run_dir), results)
    with pytest.raises(RunDirError, match="another system; runs are never mixed"):
        run(plan, both, [A, B.model_copy(update={"label": "tuned"})], run_dir)


@pytest.mark.lab
def test_an_interrupted_pair_is_measured_again_whole(interrupted):
    _, run_dir, _, seen, whole = interrupted
    first, second = seen[4:6]
    assert seen[6:8] == [first, second], "both halves, in the order of the plan"
    assert {name: (run_dir / "steps" / name / "step.json").read_bytes() for name in whole} == whole, (
        "a whole pair is kept"
    )
    kept = json.loads((run_dir / "failed" / f"{first}.1" / "step.json").read_text())
    assert kept["problems"] == [
        "its visit, which systems share, was interrupted: it is measured again beside the other's"
    ]
    assert progress(run_dir)["done"] == 10
