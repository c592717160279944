"""Policies: decided from the disk, the same again on resume, and valid only where the plan said so."""

import inspect
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from injections import MIRROR
from intrusions import by
from meanwhile import events
from plain import run, short_plan

from hcilib import measure, progress, read_counters, sweep
from hcilib.analyse.series import enough_runs, stop_when
from hcilib.drive.campaign import campaign
from hcilib.drive.campaign.policy import Policy, Rules, Watch, further_block, needed
from hcilib.drive.campaign.rundir import RunDir
from hcilib.drive.launch.launch import launch
from hcilib.drive.systems import subjects
from hcilib.model.patterns import PlanError
from hcilib.model.plan import Adaptive, Plan, shuffled

RULES = measure.RULES
MIB = 2**20


def answer(stop: bool, reason: str):
    return type("Answer", (), {"__bool__": lambda self: stop, "reason": reason})()


# The plan holds the policy and its numbers


def test_the_numbers_of_a_policy_are_the_plans():
    plan = sweep(["4k-randwrite"], policy="adaptive")
    assert plan.adaptive == Adaptive(60, 300, 30, 0.02, 1.0, 5, 10)
    assert {s.runtime_s for s in plan.steps if s.kind in ("measure", "canary")} == {300}
    again = Plan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert (again, again.digest) == (plan, plan.digest)
    for change in ({"target": 0.03}, {"look_s": 20}, {"most_runs": 9}, {"sample_s": 0.5}):
        assert sweep(["4k-randwrite"], policy="adaptive", **change).digest != plan.digest
    assert sweep(["4k-randwrite"], policy="adaptive", target=0.03).adaptive.target == 0.03
    assert sweep(["4k-randwrite"], policy="adaptive", least_s=60).digest == plan.digest, "60 and 60.0 are one"


def test_a_plan_without_such_rules_is_written_as_it_always_was():
    assert sweep(["4k-read"]).to_dict().keys() == {"format", "order", "policy", "seed", "span_bytes", "steps"}


@pytest.mark.parametrize(
    ("given", "runtimes"),
    [
        ({"policy": "fixed"}, {600, 1800}),
        ({"policy": "short"}, {300}),
        ({"policy": "short", "read_runtime_s": 20}, {20, 300}),
    ],
)
def test_runtimes_are_the_policys_unless_given(given, runtimes):
    plan = sweep(["4k-randread", "4k-randwrite"], prefill=False, **given)
    assert {s.runtime_s for s in plan.steps} == runtimes
    assert max(s.block for s in plan.steps) == 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"policy": "short", "look_s": 1}, "look_s is given, but only policy 'adaptive' has it"),
        ({"policy": "adaptive", "read_runtime_s": 9}, "read_runtime_s is given"),
        ({"policy": "adaptive", "most_s": 9}, "most_s 9: expected at least least_s, 60"),
        ({"policy": "adaptive", "target": 1}, "field target"),
        ({"policy": "adaptive", "target": 0}, "field target"),
        ({"policy": "adaptive", "repeats": 1}, "one run of a cell has no interval"),
        ({"policy": "adaptive", "most_runs": 4}, "most_runs 4: expected at least repeats, 5"),
        ({"policy": "adaptive", "order": "back-to-back"}, "order 'back-to-back'"),
        ({"policy": "adaptive", "ramp_s": 1}, "from a run's first second"),
        ({"warmup": "volume"}, "field warmup: unknown; did you mean warmup_s"),
    ],
)
def test_numbers_that_nobody_would_heed_are_refused(given, said):
    with pytest.raises(PlanError, match=said):
        sweep(["4k-randwrite"], **given)


# When a run stops


def watch(decide, **numbers) -> tuple[Watch, list[int]]:
    asked = []

    def stop(rates, **limits):
        asked.append(len(rates))
        return decide(rates, limits)

    return Watch(Adaptive(**numbers), stop), asked


def test_a_run_is_looked_at_when_it_is_due_however_late_the_call():
    look, asked = watch(lambda rates, limits: answer(len(rates) == 120, f"{len(rates)} seen"))
    rates = np.ones(300)
    assert [look(rates[:n]) for n in (5, 59, 61, 62)] == [False] * 4
    assert asked == [60], "a look sees the samples up to it, and is made once"
    assert look(rates[:135])
    assert asked == [60, 90, 120]
    assert (look.stopped_s, look.shortest_s, look.reason) == (120, 114, "120 seen")
    assert look(rates), "stopped is stopped"
    assert asked == [60, 90, 120]


def test_a_run_that_is_not_stopped_must_last_its_full_time():
    look, asked = watch(lambda rates, limits: answer(len(rates) >= limits["most"], f"{len(rates)} seen"))
    assert not look(np.ones(400))
    assert asked == list(range(60, 301, 30))
    assert (look.shortest_s, look.reason) == (None, "ran its 300 s; last look: 300 seen")
    look, asked = watch(lambda rates, limits: answer(False, str(limits)), least_s=4, most_s=20, look_s=2, sample_s=0.25)
    look(np.ones(33))
    assert asked == [16, 24, 32], "seconds become samples"
    assert "{'target': 0.02, 'first': 16, 'most': 80, 't_star': 80}" in look.reason


def test_the_statistics_decide_as_they_do_alone():
    rng = np.random.default_rng(4)
    for sd, stops in ((0.001, True), (0.5, False)):
        rates = 1e4 * (1 + sd * rng.standard_normal(90))
        look = Watch(Adaptive(), RULES.stop)
        assert look(rates) is stops
        alone = stop_when(rates[: 60 if stops else 90])
        assert alone.reason in look.reason


# When a cell has runs enough

CELLS = ["4k-randread", "64k-randwrite"]


def measured(plan, **rates) -> pd.DataFrame:
    """Results of block 1, 2, ... of each cell, by pattern."""
    by_name = {cell.pattern.name.replace("-", "_"): cell for cell in plan.cells}
    rows = [
        {"block": b, "iops": x, **by_name[name[1:]].factors()}
        for name, own in rates.items()
        for b, x in enumerate(own, 1)
    ]
    return pd.DataFrame(rows)


def test_only_cells_whose_interval_is_too_wide_get_another_run_with_its_reason():
    plan = sweep(CELLS, policy="adaptive", iodepth=4)
    wide = [100, 140, 90, 120, 100]
    results = measured(plan, _4k_randread=[100, 100.5, 100, 99.8, 100.1], _64k_randwrite=wide)
    [(cell, reason)] = needed(plan, 6, results, RULES).items()
    assert cell.pattern.name == "64k-randwrite"
    assert reason == enough_runs(wide).reason


def test_a_block_is_decided_by_the_blocks_before_it_and_no_other():
    plan = sweep(CELLS, policy="adaptive", iodepth=4)
    results = measured(plan, _4k_randread=[100, 140, 90, 120, 100, 101], _64k_randwrite=[100] * 5)
    assert needed(plan, 6, results, RULES) == needed(plan, 6, results[results["block"] <= 5], RULES)
    assert "over 6 runs" in next(iter(needed(plan, 7, results, RULES).values()))


def test_a_further_block_is_made_as_the_plans_own():
    plan = sweep(CELLS, policy="adaptive", iodepth=[2, 4])
    due = dict.fromkeys(plan.cells[1:], "too wide")
    first, *others = further_block(plan, 7, due)
    own = next(step for step in plan.steps if step.kind == "canary")
    assert (first[0].kind, first[0].id) == ("canary", f"canary-b7-r0-{own.cell.name}")
    assert {step.id for step, _ in others} == {f"measure-b7-r7-{cell.name}" for cell in due}
    assert [step.cell for step, _ in others] == [cell for cell in shuffled(plan.cells, 0, 7) if cell in due]
    assert {reason for _, reason in others} == {"too wide"}
    assert further_block(plan, 7, {}) == [], "no canary for nothing"


def test_a_lost_run_is_made_up_for_but_a_cell_that_never_ran_is_left_alone():
    plan = sweep(CELLS, policy="adaptive", iodepth=4)
    results = measured(plan, _4k_randread=[100, 100, 100, 100])
    assert [c.pattern.name for c in needed(plan, 6, results, RULES)] == ["4k-randread"]


# On the running lab


@pytest.fixture(scope="session")
def per_host(bed):
    """The lab by the launcher that shows the rates."""
    return by(bed, "per-host")


SOON = Rules(
    stop=lambda rates, **limits: answer(len(rates) >= 4, f"{len(rates)} samples do"),
    enough=enough_runs,
)
"""Stops a run at its first look: what decides is handed in, so a test need not wait for statistics."""


@pytest.fixture(scope="module")
def adaptive_plan():
    return sweep(
        {"4k-randread": {"iodepth": 2}, "4k-randwrite": {"iodepth": 2}},
        repeats=2,
        policy="adaptive",
        vms=1,
        span_bytes=4 * MIB,
        least_s=1,
        most_s=6,
        look_s=1,
        sample_s=0.25,
        target=1e-6,
        most_runs=3,
        prefill=False,
        canary=False,
    )


@pytest.fixture(scope="module")
def interrupted(per_host, adaptive_plan, tmp_path_factory):
    """An adaptive campaign whose controller dies in the extra block, and is called again."""
    run_dir = tmp_path_factory.mktemp("runs") / "adaptive"
    real, seen = campaign.launch, []

    def dies(of):
        seen.append(of.step.id)
        if of.step.block == 3 and of.step.kind == "measure":
            raise KeyboardInterrupt
        return real(of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(campaign, "launch", dies)
        with pytest.raises(KeyboardInterrupt):
            run(adaptive_plan, per_host, MIRROR, run_dir, rules=SOON)
    died_at = seen[-1]
    results = run(adaptive_plan, per_host, MIRROR, run_dir, rules=SOON)
    return SimpleNamespace(results=results, run_dir=run_dir, died_at=died_at)


@pytest.mark.lab
def test_runs_stop_early_and_count_because_the_plan_said_so(interrupted):
    results = interrupted.results
    assert results.attrs["missing"] == []
    assert results["runtime_s"].between(0.95, 5.5).all(), results["runtime_s"].tolist()
    steps = [json.loads(f.read_text()) for f in interrupted.run_dir.glob("steps/*/step.json")]
    assert all(s["stopped_early"] and s["reason"] == "4 samples do" for s in steps)
    reasons = {e["step"]: e["reason"] for e in events(interrupted.run_dir, "done")}
    assert reasons == {s["id"]: "4 samples do" for s in steps}
    first = read_counters(interrupted.run_dir).groupby("step")["t_s"].min()
    assert first.between(0, 3).all(), "counters are those of the run as it was, not of the runtime that was planned"


@pytest.mark.lab
def test_cells_get_runs_to_the_most_and_the_journal_says_why(interrupted, adaptive_plan):
    results = interrupted.results
    assert results.groupby("pattern")["block"].apply(sorted).tolist() == [[1, 2, 3]] * 2
    added = {e["step"]: e["reason"] for e in events(interrupted.run_dir, "added")}
    assert len(added) == 2, "a run of each cell"
    for cell in adaptive_plan.cells:
        rates = results[(results["pattern"] == cell.pattern.name) & (results["block"] < 3)].sort_values("block")["iops"]
        assert added[f"measure-b3-r3-{cell.name}"] == enough_runs(rates, target=1e-6, least=2, most=3).reason
    assert progress(interrupted.run_dir)["steps"] == progress(interrupted.run_dir)["done"] == 6


@pytest.mark.lab
def test_resumed_it_decides_the_same(interrupted):
    added = events(interrupted.run_dir, "added")
    [again] = [s for s in {e["step"] for e in added} if sum(e["step"] == s for e in added) > 1]
    assert again == interrupted.died_at, "only the run that was lost is asked for a second time"
    assert len({e["reason"] for e in added if e["step"] == again}) == 1, "and for the same reason, read from the disk"


@pytest.mark.lab
def test_every_decision_can_be_made_again_from_the_files(interrupted, adaptive_plan, per_host, tmp_path):
    """Whatever is missing of the extra block: a resume asks for exactly that, in the same order."""
    order = list(dict.fromkeys(e["step"] for e in events(interrupted.run_dir, "added")))
    for i, lost in enumerate((order, order[1:], order[:1], [])):
        copy = tmp_path / f"lost{i}"
        shutil.copytree(interrupted.run_dir, copy)
        for step in lost:
            shutil.rmtree(copy / "steps" / step)
        with RunDir.opened(copy, adaptive_plan, per_host, [MIRROR]) as rundir:
            asked = []
            for step in Policy(adaptive_plan, per_host, rundir, subjects([MIRROR], per_host, None), SOON).pending():
                asked.append(step.id)
                shutil.copytree(interrupted.run_dir / "steps" / step.id, copy / "steps" / step.id)
        assert asked == lost


@pytest.mark.lab
def test_a_run_shortened_under_another_policy_is_invalid(per_host, tmp_path, monkeypatch):
    def cut(of):
        return launch(replace(of, watch=lambda rates: len(rates) >= 1))

    monkeypatch.setattr(campaign, "launch", cut)
    monkeypatch.setattr(campaign, "ATTEMPTS", 1)
    plan = short_plan(iodepth=2, read_runtime_s=8, span_bytes=4 * MIB)
    results = run(plan, per_host, MIRROR, tmp_path / "cut")
    assert results.empty
    assert results.attrs["missing"] == [plan.steps[0].id]
    [failed] = events(tmp_path / "cut", "failed")
    assert "of 8 s, at least 7.6 s are needed" in failed["problems"][0]


# What hcilib.run adds


def test_run_is_that_of_drive_with_the_rules_filled_in():
    given = dict(inspect.signature(campaign.run).parameters)
    assert given.pop("rules").default is None
    assert set(inspect.signature(measure.run).parameters) == set(given)
