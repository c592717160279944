"""Owner and non-owner: seen before each run, moved by the system's own commands, put back; refused where it cannot
be."""

from itertools import pairwise
from pathlib import Path

import pytest
from probes import processes

from hcilib import PlanError, System, prepare, sweep
from hcilib.drive.campaign import subjects
from hcilib.drive.campaign.campaign import run
from hcilib.drive.campaign.subjects import PlacementError, ensure_placement
from hcilib.drive.hosts.commands import _here, tasks
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.system import Check, Command, Placement

pytestmark = pytest.mark.lab


@pytest.fixture
def owned(bed, tmp_path):
    """A system whose data has an owner: a file per VM says which node. All VMs start on their owner."""
    for vm in bed.vms:
        (tmp_path / f"owner-{vm.name}").write_text(vm.node + "\n")
    see, move = (
        f"cat '{tmp_path}/owner-{{vm}}'",
        f"echo {{to}} >'{tmp_path}/owner-{{vm}}'; echo {{vm}} >>'{tmp_path}/moves'",
    )
    how = Placement(
        check=Check(on="nodes", run=see, expect="^{node}$"),
        owner=Command(on="nodes", run=move.replace("{to}", "{node}")),
        non_owner=Command(on="node", run=move.replace("{to}", "{other}")),
        restore=Command(on="nodes", run=f"echo {{node}} >'{tmp_path}/owner-{{vm}}'"),
    )
    return System(name="lab-mirror", label="owned", placement=how), tmp_path


def owners(folder: Path) -> dict[str, str]:
    return {file.name.removeprefix("owner-"): file.read_text().strip() for file in folder.glob("owner-*")}


def moves(folder: Path) -> list[str]:
    return (folder / "moves").read_text().split() if (folder / "moves").exists() else []


@pytest.mark.slow
def test_a_campaign_measures_every_cell_in_both_placements_and_puts_all_back(bed, short, owned, tmp_path):
    system, folder = owned
    plan = short(["4k-randread"], placement=("owner", "non-owner"), read_runtime_s=0.4)
    seen = {}
    results = run(plan, bed, system, tmp_path / "run", progress=False)
    assert results.attrs["missing"] == []
    assert sorted(results["placement"]) == ["non-owner", "owner"]
    assert moves(folder)[:2] == ["vm1", "vm2"] or moves(folder)[:2] == ["vm2", "vm1"], (
        "only the VMs of the step are moved"
    )
    assert owners(folder) == {vm.name: vm.node for vm in bed.vms}, seen


def test_what_is_placed_as_wanted_is_not_moved(bed, short, owned):
    system, folder = owned
    [owner, other] = [s for s in short(placement=("owner", "non-owner")).steps if s.kind == "measure"]
    owner, other = sorted((owner, other), key=lambda s: s.cell.placement == "non-owner")
    with Fleet(bed) as fleet:
        ensure_placement(fleet, bed, system, owner)
        assert moves(folder) == []
        ensure_placement(fleet, bed, system, other)
        assert sorted(moves(folder)) == ["vm1", "vm2"]
        ensure_placement(fleet, bed, system, other)
        assert len(moves(folder)) == 2
    vm1 = bed.fleet(2)[0]
    assert owners(folder)[vm1.name] != vm1.node


def test_without_a_command_a_wrong_placement_is_refused_by_vm(bed, short, owned):
    system, folder = owned
    how = system.placement.model_copy(update={"non_owner": None})
    step = short(placement="non-owner").steps[-1]
    with Fleet(bed) as fleet, pytest.raises(PlacementError) as caught:
        ensure_placement(fleet, bed, system.model_copy(update={"placement": how}), step)
    said = str(caught.value)
    assert said.startswith("placement non-owner: vm1: on its owner")
    assert "the system's file has no command placement.non_owner" in said
    assert moves(folder) == []


def test_a_move_that_does_not_help_is_said(bed, short, owned, monkeypatch):
    monkeypatch.setattr(subjects, "PATIENCE_S", 0.1)
    monkeypatch.setattr(subjects, "AGAIN_S", 0.05)
    system, _ = owned
    how = system.placement.model_copy(update={"non_owner": Command(on="nodes", run="true")})
    with Fleet(bed) as fleet, pytest.raises(PlacementError, match="`true` did not change that"):
        ensure_placement(
            fleet, bed, system.model_copy(update={"placement": how}), short(placement="non-owner").steps[-1]
        )


def test_a_move_that_fails_is_said_of_its_host(bed, short, owned):
    system, _ = owned
    how = system.placement.model_copy(update={"non_owner": Command(on="node", run="false")})
    with (
        Fleet(bed) as fleet,
        pytest.raises(PlacementError, match=f"could not be changed: {bed.nodes[0].name}: `false`"),
    ):
        ensure_placement(
            fleet, bed, system.model_copy(update={"placement": how}), short(placement="non-owner").steps[-1]
        )


@pytest.mark.parametrize("broken", ["cat /no/such/{vm}", "true"])
def test_a_check_that_fails_or_is_silent_is_no_answer(bed, short, owned, broken):
    system, _ = owned
    how = system.placement.model_copy(update={"check": Check(on="nodes", run=broken, expect="^{node}$")})
    for wanted in ("owner", "non-owner"):
        with Fleet(bed) as fleet, pytest.raises(PlacementError, match="vm1: placement cannot be seen"):
            ensure_placement(
                fleet, bed, system.model_copy(update={"placement": how}), short(placement=wanted).steps[-1]
            )


def test_a_system_that_cannot_say_is_refused_before_any_host(bed, short, mirror_system, tmp_path):
    with pytest.raises(PlanError, match="system lab-mirror has no field placement"):
        run(short(placement="owner"), bed, mirror_system, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_placements_are_a_factor_of_the_plan(short):
    plan = short(["4k-randread", "4k-randwrite"], placement=("owner", "non-owner"), repeats=3)
    assert len(plan.cells) == 4
    assert len({s.id for s in plan.steps}) == len(plan.steps)
    for block in (1, 2, 3):
        order = [s.cell.placement for s in plan.steps if s.block == block]
        assert sum(a != b for a, b in pairwise(order)) == 1, "moved once a block"
    assert type(plan).from_dict(plan.to_dict()) == plan
    with pytest.raises(PlanError, match="placement 'there': expected 'spread', 'owner' or 'non-owner'"):
        short(placement="there")
    with pytest.raises(PlanError, match="spread"):
        short(placement=("spread", "owner"))


def test_a_plan_without_placement_is_the_plan_it_was(short):
    assert "placement" not in str(short().to_dict())


@pytest.mark.parametrize(
    ("on", "run_text", "expected"),
    [
        ("nodes", "a", [("node1", "a", ""), ("node2", "a", "")]),
        ("node", "a", [("node1", "a", "")]),
        ("vm", "a", [("vm1", "a", "")]),
        ("controller", "a", [("controller", "a", "")]),
        ("nodes", "x {vm} {node} {other} {print}", [("node1", ("x vm1 node1 node2 "
                                                              "{print}"), "vm1"), ("node2", ("x vm2 node2 node1 "
                                                                                            "{print}"), "vm2")]),
        ("vms", "{vm}", [("vm1", "vm1", "vm1"), ("vm2", "vm2", "vm2")]),
        ("node", "{vm}", [("node1", "vm1", "vm1"), ("node1", "vm2", "vm2")]),
    ],
)  # fmt: skip
def test_where_a_command_runs(bed, on, run_text, expected):
    found = tasks(Command(on=on, run=run_text), bed, bed.fleet(2))
    assert [(t.host, t.run, t.vm) for t in found] == expected


# prepare


def tuned(tmp_path, *texts) -> System:
    commands = tuple(Command(on="nodes", run=text.replace("@", str(tmp_path))) for text in texts)
    return System(
        name="lab-mirror",
        label="tuned",
        prepare=(*commands, Command(on="controller", run=f"echo here >'{tmp_path}/here'")),
    )


def test_prepare_shows_and_touches_nothing(bed, tmp_path):
    table = prepare(bed, tuned(tmp_path, "touch '@/a'"))
    assert list(table) == ["host", "command", "executed", "ok", "output"]
    assert list(table["host"]) == ["node1", "node2", "controller"]
    assert not table["executed"].any()
    assert table["ok"].isna().all()
    assert list(tmp_path.iterdir()) == []


def test_prepare_executes_on_request_in_order(bed, tmp_path):
    table = prepare(bed, tuned(tmp_path, "echo $HCILAB_HOST >'@'/$HCILAB_HOST", "cat '@'/$HCILAB_HOST"), execute=True)
    assert table["executed"].all()
    assert table["ok"].all()
    assert list(table["output"]) == ["", "", "node1", "node2", ""]
    assert (tmp_path / "here").read_text() == "here\n"


def test_prepare_stops_at_the_first_failure(bed, tmp_path):
    table = prepare(
        bed, tuned(tmp_path, "[ $HCILAB_HOST = node1 ] || { echo no >&2; exit 3; }", "touch '@/never'"), execute=True
    )
    assert list(table["ok"])[:2] == [True, False]
    assert "exited with 3: no" in table["output"].iloc[1]
    assert list(table["executed"]) == [True, True, False, False, False]
    assert not (tmp_path / "never").exists()
    assert not (tmp_path / "here").exists()
    assert not processes(str(tmp_path))


def test_a_system_without_prepare_is_an_empty_table(bed, mirror_system):
    assert prepare(bed, mirror_system).empty


def test_sweep_takes_no_placement_by_default():
    assert {c.placement for c in sweep(["4k-read"]).cells} == {"spread"}


def test_each_vm_is_judged_by_its_own_node_where_the_check_names_none(bed, short, tmp_path):
    """As `cat /proc/drbd` on every node: what the other node says is not the answer."""
    for node in bed.nodes:
        (tmp_path / node.name).write_text("Primary" if node.name == "node1" else "Secondary")
    see = f"cat '{tmp_path}'/$HCILAB_HOST"
    system = System(
        name="lab-mirror", label="x", placement=Placement(check=Check(on="nodes", run=see, expect="Primary"))
    )
    step = short(placement="owner", vms=2).steps[-1]
    on_the_second = next(vm.name for vm in bed.fleet(2) if vm.node == "node2")
    with Fleet(bed) as fleet, pytest.raises(PlacementError) as caught:
        ensure_placement(fleet, bed, system, step)
    assert f"{on_the_second}: on another node than its owner" in str(caught.value)
    assert "vm1: " not in str(caught.value)


def test_what_the_controller_runs_ends_with_all_it_started():
    outcome = _here("sleep 61.25 & sleep 62.25", limit_s=0.5)
    assert not outcome.ok
    assert "gave no answer within 0.5 s" in outcome.error
    assert not processes("sleep 61.25") | processes("sleep 62.25")
    assert _here("cat; echo done", limit_s=5).value == "done\n", "nothing to read from the analyst's terminal"


@pytest.mark.parametrize(("state", "seen"), [("FileSystemRedirected", True), ("Direct", False), ("", False)])
def test_the_state_of_a_volume_is_judged(bed, short, state, seen):
    """S2D's StateInfo, as its placement's check prints it; a node that prints another word is not called redirected."""
    check = Check(on="nodes", run=f"echo owner={{node}} state={state}", expect="owner={node} ")
    system = System(
        name="lab-mirror", label="m", placement=Placement(check=check), redirected="state=(?:File|Block)\\w+"
    )
    [step] = [s for s in short(placement="owner", vms=1).steps if s.kind == "measure"]
    with Fleet(bed) as fleet:
        said = subjects.redirected(fleet, bed, system, step)
    assert bool(said) is seen
    if seen:
        assert said[0].startswith("vm1: its volume is redirected (state=FileSystemRedirected)")
