"""Something is done while fio runs: when, on the series' own axis; marked, never averaged away; taken back whatever
happens."""

import json
import re

import pytest
from intrusions import by
from loops import _Shimmed
from plain import run
from probes import replicas, until

import hcilib as hci
from hcilib import sweep
from hcilib.drive.beds import Actions
from hcilib.drive.campaign import campaign, events
from hcilib.drive.campaign.events import during
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.systems import CommandError
from hcilib.model.patterns import Pattern, PlanError
from hcilib.model.plan import Plan, Step
from hcilib.model.system import Check, System
from hcilib.model.workload import Cell

pytestmark = pytest.mark.lab
FREEZE = {3: "freeze", 5: "undo-freeze"}
WHOLE = Check(on="node", run="echo whole", expect="whole")


def failing(whole: Check = WHOLE, **changes) -> System:
    """A system on whose first node these commands are run: each with what takes it back."""
    given = {name: {do: {"on": "node", "run": run} for do, run in how.items()} for name, how in changes.items()}
    return System(name="lab-mirror", label="lab-mirror", checks={"whole": whole}, changes=given)


def stat_of(pid: int) -> str:
    return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]


@pytest.fixture
def frozen(bed):
    """A system whose replicas can be frozen; seen to be whole while none of them is."""
    pids = " ".join(map(str, replicas(bed)))
    look = f"ps -o stat= -p {pids.replace(' ', ',')} | grep -c T || true"
    freeze = {"do": f"kill -STOP {pids}", "undo": f"kill -CONT {pids}"}
    yield failing(Check(on="node", run=look, expect="^0$"), freeze=freeze)
    assert until(lambda: "T" not in {stat_of(pid) for pid in replicas(bed)}), "a replica was left frozen"


@pytest.fixture
def disturbed(short):
    def plan(*given, runtime_s=8.0, **options):
        return short(["4k-randwrite"], events=given, write_runtime_s=runtime_s, vms=1, iodepth=2, **options)

    return plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "kept"), [pytest.param("client-server", 0, marks=pytest.mark.deep), ("per-host", 500)]
)
def test_what_was_done_stands_on_the_axis_of_the_series(bed, frozen, disturbed, run_dir, launcher, kept):
    results = run(disturbed(FREEZE), by(bed, launcher, log_hist_msec=kept), frozen, run_dir)
    assert results.attrs["missing"] == []
    assert list(results["events"]) == ["freeze@3 undo-freeze@5"]
    happened = hci.read_events(run_dir)
    done, seen = happened[~happened["seen"]], happened[happened["seen"]]
    assert list(done["what"]) == list(FREEZE.values())
    (frozen_s, thawed_s), ordered_s = done["t_s"], done["took_s"].sum()  # a busy machine does them late, and says so
    assert frozen_s < thawed_s
    first, *between, last = seen["what"]  # one state, or on a busy machine a second while the signals arrive
    assert first == last == "whole"
    assert f"node1: {len(replicas(bed))}" in between, "all stood still"
    assert "whole" not in between
    hosts = hci.read_hosts(run_dir)
    series, silences = hci.read_series(run_dir), hci.read_io_gaps(run_dir)
    [cost] = hci.failures(series, happened, hosts, silences=silences).to_dict("records")
    assert cost["resolution_s"] == 0.1
    assert cost["gap_from_s"] == pytest.approx(frozen_s, abs=0.5 + ordered_s)
    assert cost["gap_s"] == pytest.approx(thawed_s - frozen_s, abs=0.5 + ordered_s)
    assert cost["max_lat_ns"] / 1e9 == pytest.approx(thawed_s - frozen_s, abs=0.5 + ordered_s)
    assert cost["whole_s"] > 0
    [step] = [json.loads(f.read_text()) for f in run_dir.glob("steps/*@*/step.json")]
    assert [e["error"] for e in step["events"]] == ["", ""]
    if kept:
        assert {log.suffix for log in run_dir.glob("steps/*/logs/*_clat_hist.*")} == {".zst"}, "mostly zeros"
        told = hci.read_rollup(run_dir, "clat_hist")["count"].sum()
        assert 0.8 * hosts["total_ios"].sum() < told <= hosts["total_ios"].sum(), "all but the last interval's"


def test_what_is_left_standing_is_taken_back(bed, disturbed, tmp_path, run_dir):
    """And seen to be, by a check that answers late of what is missing: nothing old is told after what is newer."""
    mark = tmp_path / "mark"
    look = f"if [ -e '{mark}' ]; then sleep 1.5; else echo clean; fi"
    system = failing(
        Check(on="node", run=look, expect="clean"), leave={"do": f"touch '{mark}'", "undo": f"rm '{mark}'"}
    )
    results = run(disturbed({3: "leave"}, runtime_s=6.0), bed, system, run_dir)
    assert results.attrs["missing"] == []
    assert not mark.exists()
    happened = hci.read_events(run_dir)
    assert list(happened.loc[happened["seen"], "what"]) == ["whole", "node1: nothing", "whole"]


WRONG = {
    "break": "break at 1 s: .* exited with 3: no such thing",
    "cut": "undo-cut, which takes cut back, failed: .* exited with 4: no link",
    "set-clock": r"vm1's clock moved by \+[45]\.\d s against this machine's during the run",
}


def test_an_action_a_heal_or_a_clock_that_went_wrong_leaves_nothing_to_count(
    bed, disturbed, tmp_path, run_dir, monkeypatch
):
    """The clock: hosts that share a kernel have one, so vm1's `date` is another from then on."""
    monkeypatch.setattr(campaign, "ATTEMPTS", 1)
    monkeypatch.setattr(campaign, "Fleet", lambda testbed: _Shimmed(testbed, tmp_path))
    (date := tmp_path / "vm1/date").parent.mkdir()
    date.write_text(f"#!/bin/sh\n[ -e '{tmp_path}/set' ] && set -- -d '5 seconds' \"$@\"\nexec /bin/date \"$@\"\n")
    date.chmod(0o755)
    changes = {
        "break": {"do": "echo no such thing >&2; exit 3"},
        "cut": {"do": "true", "undo": "echo no link >&2; exit 4"},
        "set-clock": {"do": f"touch '{tmp_path}/set'"},
    }
    plan = disturbed(*({1: event} for event in WRONG), runtime_s=5.0)
    results = run(plan, bed, failing(**changes), run_dir)
    assert results.empty
    unseen = hci.read_failed_events(run_dir).set_index("events")
    assert len(unseen) == len(results.attrs["missing"]) == 3
    for event, why in WRONG.items():
        assert re.search(why, unseen.loc[f"{event}@1", "why"], re.DOTALL)
    assert set(unseen["system"]) == {"lab-mirror"}


def test_an_action_nobody_knows_is_refused_before_any_host(bed, frozen, disturbed, run_dir):
    with pytest.raises(PlanError, match=r"the plan has the event 'pull-plug'.* known are freeze, undo-freeze"):
        run(disturbed({1: "pull-plug"}), bed, frozen, run_dir)
    assert not run_dir.exists()


# The plan


def test_events_are_part_of_the_cell_and_of_its_name(disturbed):
    plan = disturbed({}, FREEZE, {3: "kill-node2"})
    assert {c.name.partition("-vm1")[2] for c in plan.cells} == {"", "-freeze@3-undo-freeze@5", "-kill-node2@3"}
    assert {c.factors().get("events") for c in plan.cells} == {None, "freeze@3 undo-freeze@5", "kill-node2@3"}
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert "events" not in str(disturbed({}).to_dict())
    plan = sweep(["4k-randwrite"], 2, iodepth=2, vms=1, events=[FREEZE], write_runtime_s=8, warmup_s=5)
    assert {s.kind for s in plan.steps if s.cell.events} == {"measure"}, "canaries and warm-ups are left alone"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"events": [{10: "cut-link"}]}, "cut-link at 10 s, but a run of 4k-randwrite lasts 8 s"),
        ({"events": [{1: "cut-link"}], "write_runtime_s": 4.0}, "a run of at least 5 s"),
        ({"events": [{1: "Cut the link"}]}, "'Cut the link': expected lower-case words"),
        ({"events": [{-1: "cut-link"}]}, "field events.*-1"),
        ({"events": ["cut-link"]}, "field events.0: expected names.*'cut-link'"),
        ({"events": []}, "the sweep has no cell"),
        ({"events": [{}, {}]}, "visits a cell twice"),
        ({"events": [{1: "cut"}], "policy": "adaptive", "least_s": 10, "most_s": 20}, "events with policy 'adaptive'"),
    ],
)
def test_events_that_cannot_be_are_refused(short, given, said):
    given = {"iodepth": 2} | given if "policy" in given else {"iodepth": 2, "write_runtime_s": 8.0} | given
    with pytest.raises(PlanError, match=said):
        sweep(["4k-randwrite"], vms=1, **given)


def test_what_was_done_before_fio_began_is_said(tmp_path):
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "4k-randwrite_iops.1.log.127.0.0.1"
    log.write_text("1000100, 9, 1, 0, 0\n")  # begun at 1000 s there
    times = {"cut-link": 998.4, "heal-link": 999.6, "x": None}
    done = [{"action": name, "began_s": at_s} for name, at_s in times.items()]
    said = events.premature({"clocks": {"vm1": [0.5, 0.01]}, "events": done}, tmp_path)  # 999.5 s here
    assert said == ["cut-link was done 1.1 s before fio began: this machine is too busy"]
    assert events.premature({}, tmp_path) == []


# What is taken back, and what is waited for


def standing(log: list[str], fails: str, times: int = 99, missing=lambda fleet: "") -> Actions:
    """Two failures that stand, whose undoing is logged; one of them cannot be undone, or not at the first try."""

    def act(name):
        def do(fleet):
            log.append(name)
            if name == fails and log.count(name) <= times:
                raise OSError(f"{name} does not work")

        return do

    names = ("cut", "heal", "stop", "start")
    return Actions({name: act(name) for name in names}, {"cut": "heal", "stop": "start"}, missing)


def both_done(bed, actions: Actions, log: list[str], record: dict, end=None, second: str = "stop") -> None:
    """A step in which `cut` and a second event were done, and which ends well or with `end`."""
    cell = Cell(Pattern.parse("4k-randread"), 1, 1, 1, events=((0.0, "cut"), (0.1, second)))
    step = Step("measure", cell, 1, 1, 8.0)
    with Fleet(bed) as fleet, during(step, bed.fleet(1), fleet, actions, record) as begun:
        begun.set()
        assert until(lambda: len(log) == 2, 5)
        if end:
            raise end


@pytest.mark.parametrize(
    ("fails", "times", "undone", "said"),
    [
        ("start", 99, ["start", "heal", "start", "start"], "start, which takes stop back, failed: start does not work"),
        ("start", 1, ["start", "heal", "start"], None),
        ("", 0, ["start", "heal"], None),
        ("stop", 1, ["start", "heal"], r"^stop at 0\.1 s: stop does not work$"),
    ],
)
def test_what_stands_is_undone_the_last_first_and_again_where_it_failed(bed, fails, times, undone, said):
    log: list[str] = []
    if said:
        with pytest.raises(CommandError, match=said):
            both_done(bed, standing(log, fails, times), log, {})
    else:
        both_done(bed, standing(log, fails, times), log, {})
    assert log == ["cut", "stop", *undone]


def test_a_repair_that_fails_as_an_event_is_done_again_before_the_system_has_to_be_whole(bed):
    """Seen on the box: a busy node closed the connection, the array stayed without its drive, the campaign ended."""
    log: list[str] = []
    record: dict = {}
    missing = lambda fleet: "" if "cut" not in log or log.count("heal") == 2 else "the link"  # noqa: E731
    with pytest.raises(CommandError, match=r"^heal at 0\.1 s: heal does not work$"):
        both_done(bed, standing(log, "heal", 1, missing), log, record, second="heal")
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


@pytest.mark.parametrize(
    ("missing", "said"),
    [("one leg of two", r"not whole after 0\.2 s: one leg of two"), ("", "x at 4 s: fio had ended before it was due")],
)
def test_a_system_that_is_not_whole_is_not_measured_and_an_event_that_comes_too_late_is_said(
    bed, disturbed, monkeypatch, missing, said
):
    monkeypatch.setattr(events, "PATIENCE_S", 0.2)
    [step] = disturbed({4: "x"}).steps
    actions, record = Actions({"x": lambda fleet: pytest.fail("it was done")}, {}, lambda fleet: missing), {}
    refused = pytest.raises(CommandError, match=said)
    with Fleet(bed) as fleet, refused, during(step, bed.fleet(1), fleet, actions, record) as begun:
        assert not missing, "it began"
        begun.set()
    if not missing:
        assert record["events"][0]["began_s"] is None
        ahead_s, known_to_s = record["clocks"]["vm1"]
        assert abs(ahead_s) <= known_to_s + 0.01
