"""Something is done while fio runs: when, on the series' own axis; marked, never averaged away; taken back whatever
happens."""

import json
import re

import pytest
from loops import _Shimmed
from probes import processes, until

import hcilib as hci
from hcilib import Cell, Pattern, Plan, PlanError, Step, System, sweep
from hcilib.drive.beds import Actions
from hcilib.drive.campaign import campaign, events
from hcilib.drive.campaign.campaign import run
from hcilib.drive.campaign.events import EventError, during
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.system import Action, Check, Failures

pytestmark = pytest.mark.lab
FREEZE = {3: "freeze-replicas", 5: "thaw-replicas"}


def replicas(bed) -> list[int]:
    """Process ids of the servers that hold the replicas."""
    return sorted(pid for pid, command in processes(bed.lab_root).items() if "nbdkit" in command.split(" ")[0])


@pytest.fixture
def frozen(bed):
    """A system whose replicas can be frozen; seen to be whole while none of them is."""
    pids = " ".join(map(str, replicas(bed)))
    how = Failures(
        actions={"freeze-replicas": Action(run=f"kill -STOP {pids}", undo="thaw-replicas"),
                 "thaw-replicas": Action(run=f"kill -CONT {pids}"),
                 "break": Action(run="echo no such thing >&2; exit 3")},
        whole=Check(run=f"ps -o stat= -p {pids.replace(' ', ',')} | grep -c T || true", expect="^0$"),
    )  # fmt: skip
    yield System(name="lab-mirror", label="lab-mirror", failures=how)
    assert until(lambda: "T" not in {stat_of(pid) for pid in replicas(bed)}), "a replica was left frozen"


def stat_of(pid: int) -> str:
    return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]


@pytest.fixture
def disturbed(short):
    def plan(*given, runtime_s=8.0, **options):
        return short(["4k-randwrite"], events=given, write_runtime_s=runtime_s, vms=1, iodepth=2, **options)

    return plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "kept"), [pytest.param("client-server", 0, marks=pytest.mark.deep), ("per-host", 500)]
)
def test_what_was_done_stands_on_the_axis_of_the_series(bed, frozen, disturbed, tmp_path, launcher, kept):
    running = bed.model_copy(update={"fio": bed.fio.model_copy(update={"launcher": launcher, "log_hist_msec": kept})})
    results = run(disturbed(FREEZE), running, frozen, tmp_path / "run", progress=False)
    assert results.attrs["missing"] == []
    assert list(results["events"]) == ["freeze-replicas@3 thaw-replicas@5"]
    happened = hci.read_events(tmp_path / "run")
    done, seen = happened[~happened["seen"]], happened[happened["seen"]]
    assert list(done["what"]) == list(FREEZE.values())
    (frozen_s, thawed_s), ordered_s = done["t_s"], done["took_s"].sum()  # a busy machine does them late, and says so
    assert frozen_s < thawed_s
    first, *between, last = seen["what"]  # one state, or on a busy machine a second while the signals arrive
    assert first == last == "whole"
    assert f"node1: {len(replicas(bed))}" in between, "all stood still"
    assert "whole" not in between
    hosts = hci.read_hosts(tmp_path / "run")
    series, silences = hci.read_series(tmp_path / "run"), hci.read_io_gaps(tmp_path / "run")
    [cost] = hci.failures(series, happened, hosts, silences=silences).to_dict("records")
    assert cost["resolution_s"] == 0.1
    assert cost["gap_from_s"] == pytest.approx(frozen_s, abs=0.5 + ordered_s)
    assert cost["gap_s"] == pytest.approx(thawed_s - frozen_s, abs=0.5 + ordered_s)
    assert cost["max_lat_ns"] / 1e9 == pytest.approx(thawed_s - frozen_s, abs=0.5 + ordered_s)
    assert cost["whole_s"] > 0
    [step] = [json.loads(f.read_text()) for f in (tmp_path / "run").glob("steps/*@*/step.json")]
    assert [e["error"] for e in step["events"]] == ["", ""]
    if kept:
        assert {log.suffix for log in (tmp_path / "run").glob("steps/*/logs/*_clat_hist.*")} == {".zst"}, "mostly zeros"
        told = hci.read_rollup(tmp_path / "run", "clat_hist")["count"].sum()
        assert 0.8 * hosts["total_ios"].sum() < told <= hosts["total_ios"].sum(), "all but the last interval's"


@pytest.mark.slow
@pytest.mark.deep
def test_disturbed_and_undisturbed_runs_of_one_plan_are_never_pooled(bed, frozen, disturbed, tmp_path):
    results = run(disturbed({}, {3: "thaw-replicas"}, runtime_s=6.0), bed, frozen, tmp_path / "run", progress=False)
    assert results["events"].isna().sum() == 1
    with pytest.raises(ValueError, match=r"results vary in events: .*thaw-replicas@3"):
        hci.summarize(results)
    assert list(hci.summarize(results, by=["pattern", "events"])["n"]) == [1, 1]


def test_what_is_left_standing_is_taken_back(bed, disturbed, tmp_path):
    """And seen to be, by a check that answers late of what is missing: nothing old is told after what is newer."""
    mark = tmp_path / "mark"
    how = Failures(
        actions={"leave": Action(run=f"touch '{mark}'", undo="take"), "take": Action(run=f"rm '{mark}'")},
        whole=Check(run=f"if [ -e '{mark}' ]; then sleep 1.5; else echo clean; fi", expect="clean"),
    )
    system = System(name="lab-mirror", label="lab-mirror", failures=how)
    results = run(disturbed({3: "leave"}, runtime_s=6.0), bed, system, tmp_path / "run", progress=False)
    assert results.attrs["missing"] == []
    assert not mark.exists()
    happened = hci.read_events(tmp_path / "run")
    assert list(happened.loc[happened["seen"], "what"]) == ["whole", "node1: nothing", "whole"]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ("break", "break at 1 s: .* exited with 3: no such thing"),
        ("cut", "heal, which takes cut back, failed: .* exited with 4: no link"),
        ("set-clock", r"vm1's clock moved by \+[45]\.\d s against this machine's during the run"),
    ],
)
def test_an_action_a_heal_or_a_clock_that_went_wrong_leaves_nothing_to_count(
    bed, disturbed, tmp_path, monkeypatch, event, why
):
    """The clock: hosts that share a kernel have one, so vm1's `date` is another from then on."""
    monkeypatch.setattr(campaign, "ATTEMPTS", 1)
    monkeypatch.setattr(campaign, "Fleet", lambda testbed: _Shimmed(testbed, tmp_path))
    (date := tmp_path / "vm1/date").parent.mkdir()
    date.write_text(f"#!/bin/sh\n[ -e '{tmp_path}/set' ] && set -- -d '5 seconds' \"$@\"\nexec /bin/date \"$@\"\n")
    date.chmod(0o755)
    actions = {
        "break": Action(run="echo no such thing >&2; exit 3"),
        "cut": Action(run="true", undo="heal"),
        "heal": Action(run="echo no link >&2; exit 4"),
        "set-clock": Action(run=f"touch '{tmp_path}/set'"),
    }
    how = Failures(actions=actions, whole=Check(run="echo whole", expect="whole"))
    system = System(name="lab-mirror", label="lab-mirror", failures=how)
    results = run(disturbed({1: event}, runtime_s=5.0), bed, system, tmp_path / "run", progress=False)
    assert results.empty
    assert len(results.attrs["missing"]) == 1
    unseen = hci.read_failed_events(tmp_path / "run")
    assert re.search(why, unseen["why"].item(), re.DOTALL)
    assert event in unseen["events"].item()
    assert unseen["system"].tolist() == ["lab-mirror"]


def test_an_action_nobody_knows_is_refused_before_any_host(bed, mirror_system, frozen, disturbed, tmp_path):
    with pytest.raises(PlanError, match="the plan has the event 'freeze-replicas', which neither testbed lab nor"):
        run(disturbed(FREEZE), bed, mirror_system, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_system_that_is_not_whole_is_not_measured(bed, disturbed, monkeypatch):
    monkeypatch.setattr(events, "PATIENCE_S", 0.2)
    [step] = disturbed({1: "x"}).steps
    actions = Actions({"x": lambda fleet: None}, {}, lambda fleet: "one leg of two")
    whole = pytest.raises(EventError, match=r"not whole after 0\.2 s: one leg of two")
    with Fleet(bed) as fleet, whole, during(step, bed.fleet(1), fleet, actions, {}):
        pytest.fail("it began")


def test_fio_that_ends_before_an_event_is_due_is_said(bed, disturbed):
    [step] = disturbed({4: "x"}).steps
    actions, record = Actions({"x": lambda fleet: pytest.fail("it was done")}, {}, lambda fleet: ""), {}
    late = pytest.raises(EventError, match="x at 4 s: fio had ended before it was due")
    with Fleet(bed) as fleet, late, during(step, bed.fleet(1), fleet, actions, record) as begun:
        begun.set()
    assert record["events"][0]["began_s"] is None
    ahead_s, known_to_s = record["clocks"]["vm1"]
    assert abs(ahead_s) <= known_to_s + 0.01


# The plan


def test_events_are_part_of_the_cell_and_of_its_name(disturbed):
    plan = disturbed({}, FREEZE, {3: "kill-node2"})
    assert [c.name.partition("-vm1")[2] for c in plan.cells] != []
    assert {c.name.partition("-vm1")[2] for c in plan.cells} == {
        "",
        "-freeze-replicas@3-thaw-replicas@5",
        "-kill-node2@3",
    }
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert "events" not in str(disturbed({}).to_dict())
    cell = Cell(Pattern.parse("4k-randwrite"), 1, 2, 1, events=((2.0, "cut-link"),))
    assert cell.factors()["events"] == "cut-link@2"
    assert "events" not in Cell(Pattern.parse("4k-randwrite"), 1, 2, 1).factors()


def test_canaries_and_warm_ups_are_left_alone():
    plan = sweep(["4k-randwrite"], 2, iodepth=2, vms=1, events=[FREEZE], write_runtime_s=8, warmup_s=5)
    assert {s.kind: bool(s.cell.events) for s in plan.steps} == {
        "prefill": False,
        "warmup": False,
        "canary": False,
        "measure": True,
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"events": [{10: "cut-link"}]}, "cut-link at 10 s, but a run of 4k-randwrite lasts 8 s"),
        ({"events": [{1: "cut-link"}], "runtime_s": 4.0}, "a run of at least 5 s"),
        ({"events": [{1: "Cut the link"}]}, "'Cut the link': expected lower-case words"),
        ({"events": [{-1: "cut-link"}]}, "field events.*-1"),
        ({"events": ["cut-link"]}, "field events.0: expected names.*'cut-link'"),
        ({"events": []}, "the sweep has no cell"),
        ({"events": [{}, {}]}, "visits a cell twice"),
    ],
)
def test_events_that_cannot_be_are_refused(disturbed, given, said):
    runtime = {"runtime_s": given["runtime_s"]} if "runtime_s" in given else {}
    with pytest.raises(PlanError, match=said):
        disturbed(*given["events"], **runtime)


def test_an_adaptive_run_has_no_events():
    with pytest.raises(PlanError, match="events with policy 'adaptive'"):
        sweep(["4k-randwrite"], policy="adaptive", iodepth=1, vms=1, events=[{1: "cut-link"}], least_s=10, most_s=20)


def test_a_step_knows_nothing_of_events_when_there_are_none():
    step = Step("measure", Cell(Pattern.parse("4k-randread"), 1, 1, 1), 1, 1, 5.0)
    assert step.id == "measure-b1-r1-4k-randread-nj1-qd1-vm1"


def test_an_undo_that_is_no_action_is_refused():
    with pytest.raises(ValueError, match=r"actions.cut.undo: 'mend' is not among actions \['cut'\]"):
        Failures(actions={"cut": Action(run="x", undo="mend")}, whole=Check(run="y", expect="z"))


def test_what_was_done_before_fio_began_is_said(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "4k-randwrite_iops.1.log.127.0.0.1").write_text(
        "1000100, 9, 1, 0, 0\n"
    )  # begun at 1000 s there
    done = [
        {"action": "cut-link", "began_s": 998.4},
        {"action": "heal-link", "began_s": 999.6},
        {"action": "x", "began_s": None},
    ]
    record = {"clocks": {"vm1": [0.5, 0.01]}, "events": done}  # 999.5 s here
    said = events.premature(record, tmp_path)
    assert said == ["cut-link was done 1.1 s before fio began: this machine is too busy"]
    assert events.premature({}, tmp_path) == []


def nothing_is_missing(fleet) -> str:
    return ""


def standing(log: list[str], failing: str, times: int = 99) -> Actions:
    """Two failures that stand, whose undoing is logged; one of them cannot be undone, or not at the first try."""

    def act(name):
        def do(fleet):
            log.append(name)
            if name == failing and log.count(name) <= times:
                raise OSError(f"{name} does not work")

        return do

    names = ("cut", "heal", "stop", "start")
    return Actions({name: act(name) for name in names}, {"cut": "heal", "stop": "start"}, nothing_is_missing)


def eventful(second: str) -> Step:
    pattern = Pattern.parse("4k-randread")
    return Step("measure", Cell(pattern, 1, 1, 1, events=((0.0, "cut"), (0.1, second))), 1, 1, 8.0)


def both_done(
    bed,
    actions: Actions,
    log: list[str],
    record: dict,
    end: type[BaseException] | None = None,
    second: str = "stop",
) -> None:
    """A step in which `cut` and a second event were done, and which ends well or with `end`."""
    with Fleet(bed) as fleet, during(eventful(second), bed.fleet(1), fleet, actions, record) as begun:
        begun.set()
        assert until(lambda: len(log) == 2, 5)
        if end:
            raise end


def test_one_undo_that_fails_does_not_leave_the_others_undone(bed):
    log: list[str] = []
    with pytest.raises(EventError, match="start, which takes stop back, failed: start does not work"):
        both_done(bed, standing(log, "start"), log, {})
    assert log == ["cut", "stop", "start", "heal", "start", "start"], "the last first, and all"


def test_an_undo_that_fails_once_is_done_again(bed):
    log: list[str] = []
    both_done(bed, standing(log, "start", 1), log, {})
    assert log == ["cut", "stop", "start", "heal", "start"]


def test_a_repair_that_fails_as_an_event_is_done_again_before_the_system_has_to_be_whole(bed):
    """Seen on the box: a busy node closed the connection, the array stayed without its drive, the campaign ended."""
    log: list[str] = []
    record: dict = {}
    acts = standing(log, "heal", 1)

    def missing(fleet) -> str:
        return "" if "cut" not in log or log.count("heal") == 2 else "the link"

    with pytest.raises(EventError, match=r"^heal at 0\.1 s: heal does not work$"):
        both_done(bed, Actions(acts.do, acts.undo, missing), log, record, second="heal")
    assert log == ["cut", "heal", "heal"]
    assert [state["missing"] for state in record["states"]][-1] == ""


def test_ctrl_c_stays_ctrl_c_where_taking_back_fails(bed):
    log: list[str] = []
    record: dict = {}
    with pytest.raises(KeyboardInterrupt) as caught:
        both_done(bed, standing(log, "heal"), log, record, KeyboardInterrupt)
    assert any("heal" in note for note in caught.value.__notes__)
    assert log == ["cut", "stop", "start", "heal", "heal", "heal"]
    assert [e["action"] for e in record["events"]] == ["cut", "stop"]
