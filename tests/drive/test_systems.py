"""A system's own commands: where they run, what is asked, what is changed for a run and put back after it."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from meanwhile import attempts
from plain import run
from probes import processes

import hcilib as hci
from hcilib import prepare
from hcilib.drive.campaign import campaign, changes
from hcilib.drive.systems import _here, tasks
from hcilib.model.patterns import PlanError
from hcilib.model.system import Check, Command, System
from hcilib.model.yaml_models import TestbedError

pytestmark = pytest.mark.lab
NAMED = {"name": "lab-mirror", "label": "x"}


@pytest.mark.parametrize(
    ("on", "run", "expected"),
    [
        ("nodes", "a", [("node1", "a"), ("node2", "a")]),
        (["node", "vm"], "a", [("node1", "a"), ("vm1", "a")]),
        ("controller", "a", [("controller", "a")]),
        ("vm2", "a", [("vm2", "a")]),
        ("nodes", "{vm} {node} {other} {x}", [("node1", "vm1 node1 node2 {x}"), ("node2", "vm2 node2 node1 {x}")]),
        ("vms", "{vm}", [("vm1", "vm1"), ("vm2", "vm2")]),
        ("node", "{vm}", [("node1", "vm1"), ("node1", "vm2")]),
    ],
)
def test_where_a_command_runs(bed, on, run, expected):
    assert [task[:2] for task in tasks(Command(on=on, run=run), bed, bed.fleet(2))] == expected


def test_what_the_controller_runs_ends_with_all_it_started():
    outcome = _here("sleep 61.25 & sleep 62.25", limit_s=0.5)
    assert not outcome.ok
    assert "gave no answer within 0.5 s" in outcome.error
    assert not processes("sleep 61.25") | processes("sleep 62.25")
    assert _here("cat; echo done", limit_s=5).value == "done\n", "nothing to read from the analyst's terminal"


def test_prepare_is_shown_and_on_request_run_in_order_up_to_the_first_failure(bed, tmp_path):
    texts = ("echo $HCILAB_HOST >'@'/$HCILAB_HOST", "cat '@'/$HCILAB_HOST", "[ $HCILAB_HOST = node1 ]", "touch '@/x'")
    commands = [Command(on="nodes", run=text.replace("@", str(tmp_path))) for text in texts]
    system = System(**NAMED, prepare=(*commands, Command(on="controller", run=f"touch '{tmp_path}/y'")))
    shown = prepare(bed, system)
    assert list(shown) == ["host", "command", "executed", "ok", "output"]
    assert list(shown["host"]) == ["node1", "node2"] * 4 + ["controller"]
    assert not shown["executed"].any()
    assert shown["ok"].isna().all()
    assert list(tmp_path.iterdir()) == []
    done = prepare(bed, system, execute=True)
    assert list(done["executed"]) == [True] * 6 + [False] * 3
    assert list(done["ok"][:6]) == [True] * 5 + [False]
    assert list(done["output"][2:4]) == ["node1", "node2"]
    assert "exited with 1" in done["output"][5]
    assert {file.name for file in tmp_path.iterdir()} == {"node1", "node2"}


# Placement


def owned(bed, folder: Path, **checks) -> System:
    """A system whose data has an owner: a file per VM says which node. All VMs start on their owner."""
    for vm in bed.vms:
        (folder / f"owner-{vm.name}").write_text(vm.node + "\n")
    move = f"echo {{to}} >'{folder}/owner-{{vm}}'; echo {{vm}} >>'{folder}/moves'"
    see = Check(on="nodes", run=f"cat '{folder}/owner-{{vm}}'", expect="^{node}$")
    undo = {"on": "nodes", "run": f"echo {{node}} >'{folder}/owner-{{vm}}'"}
    to = {"owner": "{node}", "non-owner": "{other}"}
    do = {name: {"on": "nodes", "run": move.replace("{to}", place)} for name, place in to.items()}
    given = {name: {"do": how, "undo": undo} for name, how in do.items()}
    return System(**NAMED, checks={"placement": see} | checks, changes=given)


def owners(folder: Path) -> dict[str, str]:
    return {file.name.removeprefix("owner-"): file.read_text().strip() for file in folder.glob("owner-*")}


@pytest.mark.slow
def test_every_cell_is_measured_in_both_placements_and_all_is_put_back(bed, short, tmp_path, run_dir, monkeypatch):
    seen, real = {}, campaign.launch

    def looks(of):
        seen[of.step.cell.placement] = owners(tmp_path)
        return real(of)

    monkeypatch.setattr(campaign, "launch", looks)
    own = {vm.name: vm.node for vm in bed.vms}
    plan = short(placement=("owner", "non-owner"), repeats=2)
    assert len(run(plan, bed, owned(bed, tmp_path), run_dir)) == 4
    assert seen["owner"] == own
    assert {vm for vm, node in seen["non-owner"].items() if node != own[vm]} == {"vm1", "vm2"}, "the step's VMs alone"
    moves = (tmp_path / "moves").read_text().split()
    assert {moves.count(vm) for vm in ("vm1", "vm2")} <= {2, 3}, "what is placed as wanted is not moved"
    assert owners(tmp_path) == own


FAILED_MOVE = {"do": {"on": "node", "run": "false"}}
BROKEN = "vm1: placement cannot be seen"


@pytest.mark.parametrize(
    ("wanted", "given", "said"),
    [
        ("non-owner", {"changes": {}}, "placement non-owner: vm1: on its owner"),
        ("non-owner", {"changes": {"non-owner": {"do": {"run": "true"}}}}, "`true` did not change that"),
        ("non-owner", {"changes": {"non-owner": FAILED_MOVE}}, "placement could not be changed: node1: `false`"),
        ("owner", {"checks": {"placement": {"run": "cat /no/such/{vm}", "expect": "x"}}}, BROKEN),
        ("non-owner", {"checks": {"placement": {"run": "true", "expect": "x"}}}, BROKEN),
        # as `cat /proc/drbd` on every node: each VM's own node answers
        ("owner", {"checks": {"placement": {"run": "echo $HCILAB_HOST", "expect": "node1"}}, "changes": {}},
         "placement owner: vm2: on another node than its owner"),
    ],
)  # fmt: skip
def test_a_placement_that_is_not_so_and_cannot_be_made_is_said_by_vm(
    bed, short, tmp_path, run_dir, monkeypatch, wanted, given, said
):
    monkeypatch.setattr(changes, "PATIENCE_S", 0.1)
    monkeypatch.setattr(campaign, "ATTEMPTS", 1)
    system = System.model_validate(owned(bed, tmp_path).to_dict() | given)
    results = run(short(placement=wanted), bed, system, run_dir)
    assert len(results.attrs["missing"]) == 1
    [attempt] = attempts(run_dir)
    [problem] = attempt["problems"]
    assert said in problem
    assert not list(tmp_path.glob("run/failed/*/job.fio")), "fio was not started"


@pytest.mark.parametrize("state", ["FileSystemRedirected", "Direct"])
def test_a_volume_that_is_redirected_is_said_beside_its_run(bed, short, tmp_path, run_dir, state):
    """S2D's StateInfo, as its placement's check prints it; a node that prints another word is not called redirected."""
    see = {"on": "nodes", "run": f"echo owner={{node}} state={state}"}
    checks = {
        "placement": see | {"expect": "owner={node} "},
        "redirected": see | {"expect": r"state=(?:File|Block)\w+"},
    }
    run(short(placement="owner", vms=1), bed, System(**NAMED, checks=checks), run_dir)
    [step] = [json.loads(f.read_text()) for f in tmp_path.glob("run/steps/*/step.json")]
    told = [remark for remark in step["counters"] if "redirected" in remark]
    assert bool(told) is (state != "Direct")
    assert all(remark.startswith("vm1: its volume is redirected (owner=node1 state=File") for remark in told)


def test_placements_are_a_factor_of_the_plan(short):
    plan = short(["4k-randread", "4k-randwrite"], placement=("owner", "non-owner"), repeats=3)
    assert len(plan.cells) == 4
    assert len({s.id for s in plan.steps}) == len(plan.steps)
    for block in (1, 2, 3):
        order = [s.cell.placement for s in plan.steps if s.block == block]
        assert sum(a != b for a, b in pairwise(order)) == 1, "moved once a block"
    assert type(plan).from_dict(plan.to_dict()) == plan
    assert "placement" not in str(short().to_dict())
    with pytest.raises(PlanError, match=r"placement\.0: expected 'spread', 'owner' or 'non-owner'"):
        short(placement="there")
    with pytest.raises(PlanError, match="spread"):
        short(placement=("spread", "owner"))


# A setting


def tunable(folder: Path, do="echo on", undo="echo off") -> System:
    where = f"'{folder}'/$HCILAB_HOST"
    how = {
        "do": {"on": "nodes", "run": f"{do} >{where}"},
        "check": {"on": "nodes", "run": f"cat {where}", "expect": "^on$"},
        "undo": {"on": "nodes", "run": f"{undo} >{where}; echo undone >>{where}.log"},
    }
    return System(**NAMED, changes={"turbo": how})


def standing(folder: Path) -> set[str]:
    return {file.read_text().strip() for file in folder.glob("node?")}


BOTH = {"settings": [None, "turbo"], "progress": False}


def test_a_setting_is_applied_for_its_runs_and_put_back(bed, short, tmp_path, run_dir, monkeypatch):
    system, seen, real = tunable(tmp_path), [], campaign.launch

    def looks(of):
        seen.append((of.step.system, standing(tmp_path)))
        return real(of)

    monkeypatch.setattr(campaign, "launch", looks)
    plan = short(repeats=2, prefill=True)
    results = hci.run(plan, system, bed, run_dir, **BOTH)
    assert results.groupby("system").size().to_dict() == {"lab-mirror": 2, "lab-mirror [turbo]": 2}
    assert (results.groupby("pair")["system"].nunique() == 2).all()
    assert seen[0] == ("lab-mirror", set()), "one prefill, of the disks they share"
    for name, state in seen[1:]:
        assert (state == {"on"}) == (name == "lab-mirror [turbo]")
    assert standing(tmp_path) == {"off"}
    assert hci.run(plan, system, bed, run_dir, **BOTH).equals(results)


@pytest.mark.parametrize(
    ("do", "undo", "said"),
    [
        ("echo of", "echo off", "setting turbo is not seen on node1 after it was applied: `cat"),
        ("false", "echo off", "setting turbo could not be applied: node1: `false"),
        ("echo of", "exit 3 #", "it was undone; setting turbo of lab-mirror could not be undone, it stands: node1: "),
    ],
)
def test_a_setting_that_does_not_hold_is_named_and_its_steps_are_missing(
    bed, short, tmp_path, run_dir, capsys, do, undo, said
):
    results = hci.run(short(), tunable(tmp_path, do, undo), bed, run_dir, **BOTH)
    missing = results.attrs["missing"]
    assert any(name.endswith("lab-mirror-turbo") for name in missing)
    assert said in capsys.readouterr().out
    if undo == "echo off":
        assert list(results["system"]) == ["lab-mirror"], "nothing else is lost"
        assert standing(tmp_path) == {"off"}


@pytest.mark.parametrize("what", ["setting", "placement"])
def test_what_a_killed_controller_left_changed_is_put_back_once(bed, short, tmp_path, run_dir, what):
    """Though the campaign is finished, nothing more is measured, and the hosts are touched for this alone."""
    if what == "setting":
        system, given = tunable(tmp_path), BOTH
        on = {"lab-mirror": "lab-mirror", "lab-mirror [turbo]": "lab-mirror"}
        plans = (short(seed=seed) for seed in range(99))
        plan = next(plan for plan in plans if plan.interleaved(on).steps[-1].system == "lab-mirror [turbo]")
    else:
        system, given, plan = owned(bed, tmp_path), {"progress": False}, short(placement="non-owner")
    look = {"setting": standing, "placement": lambda folder: set(owners(folder).items())}[what]
    before = look(tmp_path) or {"off"}
    with pytest.MonkeyPatch.context() as patch:  # as after kill -9: nothing is put back
        patch.setattr(campaign, "_put_back", lambda *_: None)
        results = hci.run(plan, system, bed, run_dir, **given)
    assert look(tmp_path) != before
    assert hci.run(plan, system, bed, run_dir, **given).equals(results)
    assert look(tmp_path) == before
    (run_dir / "journal.jsonl").touch()
    starts = (run_dir / "journal.jsonl").read_text().count('"start"')
    hci.run(plan, system, bed, run_dir, **given)
    assert (run_dir / "journal.jsonl").read_text().count('"start"') == starts, "once"


@pytest.mark.parametrize(("name", "said"), [("warp", "has no setting 'warp': it has turbo"), (None, "is given twice")])
def test_a_setting_that_no_file_knows_and_one_given_twice_are_refused(bed, short, tmp_path, run_dir, name, said):
    with pytest.raises(ValueError, match=said):
        hci.run(short(), tunable(tmp_path), bed, run_dir, settings=[None, name], progress=False)
    assert not run_dir.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("setting: turbo", "field setting: a campaign chooses"),
        ("checks: {health: {run: x}}", r"checks\.health\.expect: missing"),
        ("checks: {health: {run: x, expect: y, when: plan}}", r"checks\.health\.when: expected before or after"),
        ("checks: {savings: {run: x, expect: y}}", r"checks\.savings\.expect: missing.* brackets"),
        ("checks: {version: {run: x, when: after}}", r"checks\.version\.when: expected plan or start"),
        ("checks: {health: {on: [], run: x, expect: y}}", r"checks\.health\.on: .*at least 1 item"),
        ("changes: {cut: {undo: {run: x}}}", r"changes\.cut\.do"),
        ("failures: {}", "field failures: unknown"),
    ],
)
def test_a_file_that_asks_or_changes_what_cannot_be_is_refused(tmp_path, text, said):
    (tmp_path / "s.yaml").write_text(f"name: s\nlabel: s\n{text}\n")
    with pytest.raises(TestbedError, match=said):
        hci.load_system(tmp_path / "s.yaml")


def test_the_identity_is_what_a_system_is_and_not_what_its_plan_asks():
    plain = System(**NAMED)
    read = System(**NAMED, checks={"pool-size": {"run": "x", "expect": "2"}}, price=1, currency="EUR")
    assert read.digest == plain.digest
    for more in ({"checks": {"kernel": {"run": "uname"}}}, {"changes": {"cut": {"do": {"run": "x"}}}}):
        assert System(**NAMED, **more).digest != plain.digest
    assert System.model_validate(read.to_dict()).digest == plain.digest
