"""A step counts only if it is what was accepted; after any deletion a resume repairs, or names what is done again."""

import contextlib
import hashlib
import json
import shutil
import warnings
from pathlib import Path

import pandas as pd
import pytest
import zstandard

import hcilib as hci
from hcilib import progress, sweep
from hcilib.drive.campaign.rundir import RunDir, RunDirError, _unlike_document
from hcilib.model.archives import ARCHIVE, extract
from hcilib.model.places import shipped
from hcilib.model.plan import Step
from hcilib.model.system import System
from hcilib.model.testbed import Disk, Node, Testbed, Vm
from hcilib.read.run.accepted import RunDirWarning
from hcilib.read.run.journal import events_of
from hcilib.read.run.step import RunReadError
from tests.read.made import client, direction, write_counters

EARLIER = shipped("tests/data/box-short/box-drbd")
"""A campaign of before digests were kept."""
PLAN = sweep(["4k-randread", "4k-randwrite"], repeats=2, iodepth=1, vms=1, span_bytes=2**20, read_runtime_s=8,
             write_runtime_s=8, prefill=False, canary=False)  # fmt: skip
SYSTEM = System(name="s", label="S")
BED = Testbed(
    name="t",
    nodes=(Node(name="node1"),),
    vms=(Vm(name="vm1", node="node1", address="127.9.9.101", user="me", jump="me@gate:22",
            disks=(Disk(serial="d1", size_bytes=2**20),)),),
)  # fmt: skip


def opened(run_dir: Path, plan=PLAN):
    return RunDir.opened(run_dir, plan, BED, [SYSTEM])


def measured(rundir: RunDir, step: Step, started_s: float) -> None:
    """One accepted attempt, with everything that one leaves."""
    work, n = rundir.work(step), PLAN.steps.index(step)
    rates = direction(8000 + n, 8, 5e5, {500_000 + 64 * n: 8000 + n})
    stats = [client(1, **{"write" if step.cell.pattern.writes else "read": rates})]
    document = {"fio version": "fio-3.33", "timestamp": 1, "global options": {}, "client_stats": stats, "disk_util": []}
    (work / "fio.json").write_text(json.dumps(document))
    (work / "fio.stderr").write_text("")
    (work / "job.fio").write_text("[j0]\nlog_avg_msec=500\n")
    (work / "logs").mkdir()
    for what in ("iops", "bw", "lat"):
        lines = "".join(f"{1000 * (int(started_s) + t)}, {1000 + n}, 0, 4096, 0\n" for t in range(1, 9))
        (work / "logs" / f"x_{what}.1.log.127.9.9.101").write_text(lines)
    write_counters(work, started_s, {"node1": 40.0 + n})
    host = {"vm": "vm1", "node": "node1", "hostname": "127.9.9.101", "port": 8765, "jobs": 1}
    record = {"kind": step.kind, "block": step.block, "rep": step.rep, "runtime_s": 8.0, "ramp_s": 0.0, "system": "s",
              "cell": step.cell.to_dict(), "span_bytes": 2**20, "nodes": 1, "hosts": [host], "returncode": 0,
              "started_s": started_s, "ended_s": started_s + 10.15, "elapsed_s": 10.15}  # fmt: skip
    rundir.accept(work, step, record, 1000.0)


def campaign(run_dir: Path) -> list[str]:
    """Do what is left, as the controller does; what is said about it."""
    with opened(run_dir) as rundir:
        rundir.claim(PLAN, BED, [SYSTEM])
        rundir.log("start", campaign={"id": rundir.campaign, **rundir.identity})
        for host in ("node1", "vm1"):
            rundir.facts(host, {})
        for n, step in enumerate(PLAN.steps):
            if step.id not in rundir.done():
                measured(rundir, step, 1000.0 + 20 * n)
        rundir.log("end", missing=[])
        return rundir.said


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A campaign with all its steps, and an attempt that failed."""
    run_dir = tmp_path_factory.mktemp("finished") / "run"
    assert campaign(run_dir) == []
    with opened(run_dir) as rundir:
        rundir.reject(rundir.work(PLAN.steps[0]), PLAN.steps[0].id, ["vm1 gave no result"], {})
    return run_dir


@pytest.fixture
def run_dir(finished, tmp_path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(finished, tmp_path / "run")


def read(run_dir: Path) -> list[pd.DataFrame]:
    readers = (hci.read_results, hci.read_hosts, hci.read_bins, hci.read_series, hci.read_counters)
    return [reader(run_dir) for reader in readers]


def folder_of(run_dir: Path, n: int) -> Path:
    return run_dir / "steps" / PLAN.steps[n].id


def test_what_was_accepted_is_read_without_a_word(run_dir):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results, *_ = read(run_dir)
        assert len(results) == len(PLAN.steps)
        pd.testing.assert_frame_equal(hci.read_results(run_dir), results)
    assert hci.verify(run_dir).empty


# Edited, exchanged, copied


@pytest.mark.parametrize("log", ["edited", "gone"])
def test_a_log_is_held_against_its_digest_when_it_is_read(run_dir, log):
    path = next((folder_of(run_dir, 1) / "logs").iterdir())
    path.write_text("1, 1, 0, 4096\n") if log == "edited" else path.unlink()
    with pytest.warns(RunDirWarning, match=f"{PLAN.steps[1].id}: logs/{path.name} is not what was accepted"):
        assert PLAN.steps[1].id not in set(hci.read_series(run_dir)["step"])
    assert len(hci.verify(run_dir)) == 1


def test_a_copied_step_does_not_count_twice(run_dir):
    before = read(run_dir)
    shutil.copytree(folder_of(run_dir, 1), folder_of(run_dir, 1).with_name("again"))
    shutil.copytree(next((EARLIER / "steps").iterdir()), run_dir / "steps" / "old")
    with pytest.warns(RunDirWarning, match=f"steps/again: it is a copy of {PLAN.steps[1].id}") as caught:
        after = read(run_dir)
    assert any("steps/old: it carries no digests" in str(one.message) for one in caught)
    for one, other in zip(before, after, strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_a_campaign_of_an_earlier_version_is_read_and_a_copy_in_it_counts_once(tmp_path):
    run_dir = shutil.copytree(EARLIER, tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = hci.read_results(run_dir)
    [problem] = hci.verify(run_dir)["problem"]
    assert "no digests were kept" in problem
    step = next((run_dir / "steps").glob("measure*"))
    shutil.copytree(step, step.with_name("again"))
    with pytest.warns(RunDirWarning, match="steps/again: it is a copy of"):
        assert len(hci.read_results(run_dir)) == len(before) > 0


# Deleted, and resumed


def everything(run_dir: Path) -> list[str]:
    return sorted(path.relative_to(run_dir).as_posix() for path in run_dir.rglob("*"))


ONE_EACH = [
    "facts/vm1.json",
    "failed",
    "steps",
    *(f"steps/{PLAN.steps[1].id}{file}" for file in ("", "/step.json", "/logs")),
]
"""Plan, journal and what a step holds besides have tests of their own below and above."""


@pytest.mark.parametrize("deleted", [ONE_EACH, pytest.param([], marks=pytest.mark.deep)], ids=["one each", "all"])
def test_after_any_deletion_a_resume_repairs_or_names_what_is_done_again(run_dir, tmp_path, deleted):
    wanted = read(run_dir)
    paths = everything(run_dir)
    assert len(paths) > 50
    assert set(deleted) <= set(paths)
    for n, path in enumerate(deleted or paths):
        copy = shutil.copytree(run_dir, tmp_path / f"{n}" / "run")
        gone = copy / path
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
        steps = {step.id: [f.read_bytes() for f in sorted((copy / "steps" / step.id).rglob("*")) if f.is_file()]
                 for step in PLAN.steps}  # fmt: skip
        said = campaign(copy)
        named = [step.id for step in PLAN.steps if any(s.startswith(f"{step.id} is done again") for s in said)]
        for step in PLAN.steps:
            now = [f.read_bytes() for f in sorted((copy / "steps" / step.id).rglob("*")) if f.is_file()]
            assert (now == steps[step.id]) == (step.id not in named), f"{path}: {said}"
        if path.startswith(("steps", "plan.json", "journal.jsonl", "facts")):
            assert said, f"{path} was deleted and nothing is said"
        assert hci.verify(copy).empty, path
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for one, other in zip(wanted, read(copy), strict=True):
                by = [c for c in ("run_id", "step", "block", "rep", "pattern") if c in one]
                same = [
                    t.sort_values(by, kind="stable", ignore_index=True).drop(columns="warmup_ratio", errors="ignore")
                    for t in (one, other)
                ]
                pd.testing.assert_frame_equal(*same)
        assert progress(copy)["done"] == len(PLAN.steps)
        shutil.rmtree(copy.parent)


def test_a_deleted_plan_is_written_again_for_its_own_campaign_and_refuses_another(run_dir):
    (run_dir / "plan.json").unlink()
    other = sweep(["4k-randread"], repeats=1, iodepth=1, vms=1, span_bytes=2**20)
    with pytest.raises(RunDirError, match="holds a campaign with another plan"), opened(run_dir, other):
        pass
    assert not (run_dir / "plan.json").exists()
    [said] = campaign(run_dir)
    assert said.startswith("plan.json, or its campaign, was gone")
    assert hci.verify(run_dir).empty


def test_a_deleted_plan_of_steps_that_do_not_say_whose_they_are_is_refused(tmp_path):
    run_dir = shutil.copytree(EARLIER, tmp_path / "run")
    (run_dir / "plan.json").unlink()
    with pytest.raises(RunDirError, match=r"plan\.json: it does not say of which campaign"), opened(run_dir):
        pass


# The journal


@pytest.mark.parametrize("torn", [7, -1])
def test_a_torn_line_loses_no_step_and_progress_tells_the_truth(run_dir, torn):
    lines = (run_dir / "journal.jsonl").read_bytes().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if b'"done"' in line)
    (run_dir / "journal.jsonl").write_bytes(b"".join(lines[:last]) + lines[last][:torn])
    assert progress(run_dir)["done"] == len(PLAN.steps)
    steps = {f: f.read_bytes() for f in run_dir.glob("steps/*/step.json")}
    campaign(run_dir)
    assert {f: f.read_bytes() for f in run_dir.glob("steps/*/step.json")} == steps, "nothing was done again"
    done = [event for event in events_of(run_dir) if event["event"] == "done"]
    assert {event["step"] for event in done if "digest" in event} == {step.id for step in PLAN.steps}
    assert hci.verify(run_dir).empty


def test_what_was_written_behind_a_torn_line_is_read(run_dir):
    with open(run_dir / "journal.jsonl", "a") as journal:
        journal.write(
            '{"t": 12, "event": "fai{"t": 13, "event": "failed", "step": "x", "attempt": 1, "problems": []}\n'
        )
    assert progress(run_dir)["failed"] == 2


# Plan, journal and steps hold each other


def edit(run_dir: Path, n: int) -> str:
    """Twice the IOPS in fio's result of a step, with its digest in step.json made right."""
    folder = folder_of(run_dir, n)
    packed = folder / "fio.json.zst"
    text = zstandard.decompress(packed.read_bytes(), 2**20).decode()
    packed.write_bytes(zstandard.compress(text.replace('"iops": 1', '"iops": 2').encode()))
    record = json.loads((folder / "step.json").read_text())
    record["raw"]["fio.json.zst"] = hashlib.sha256(packed.read_bytes()).hexdigest()
    (folder / "step.json").write_text(json.dumps(record))
    return PLAN.steps[n].id


def journal_lines(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "journal.jsonl").read_text().splitlines()]


def write_journal(run_dir: Path, events: list[dict]) -> None:
    (run_dir / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def warned(run_dir: Path) -> dict[str, list[str]]:
    """Reader -> what it warns of."""
    every = {}
    for reader in (hci.read_results, hci.read_hosts, hci.read_bins, hci.read_series, hci.read_counters):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with contextlib.suppress(RunReadError):  # where no step counts any more
                reader(run_dir)
        every[reader.__name__] = [str(w.message) for w in caught if issubclass(w.category, RunDirWarning)]
    return every


def exchanged(run_dir: Path, file: str) -> str:
    shutil.copy(folder_of(run_dir, 2) / file, folder_of(run_dir, 1) / file)
    return PLAN.steps[1].id


def gone(run_dir: Path, file: str) -> str:
    (folder_of(run_dir, 1) / file).unlink()
    return PLAN.steps[1].id


def of_another_campaign(run_dir: Path) -> str:
    campaign(run_dir.parent / "other")
    shutil.rmtree(folder_of(run_dir, 1))
    shutil.copytree(folder_of(run_dir.parent / "other", 1), folder_of(run_dir, 1))
    return PLAN.steps[1].id


def hidden(run_dir: Path) -> str:
    """Edit a step, and take the campaign's name out of plan.json."""
    document = json.loads((run_dir / "plan.json").read_text()) | {"campaign": ""}
    (run_dir / "plan.json").write_text(json.dumps(document))
    return edit(run_dir, 1)


def shortened(run_dir: Path, left: int) -> str:
    """Leave so many lines of finished steps."""
    lines = journal_lines(run_dir)
    later = [line for line in lines if line["event"] == "done"][left:]
    write_journal(run_dir, [line for line in lines if line not in later])
    return "journal.jsonl"


DAMAGE = {
    # what was done -> how, and whether the step is done again
    "another step's result": (lambda run_dir: exchanged(run_dir, "fio.json.zst"), True),
    "another step's counters": (lambda run_dir: exchanged(run_dir, "counters.csv"), True),
    "another step's record": (lambda run_dir: exchanged(run_dir, "step.json"), True),
    "no counters": (lambda run_dir: gone(run_dir, "counters.csv"), True),
    "no job file": (lambda run_dir: gone(run_dir, "job.fio"), True),
    "a step of another campaign": (of_another_campaign, True),
    "an edited step of a hidden campaign": (hidden, True),
    "a line of the journal": (lambda run_dir: shortened(run_dir, 3), False),
    "all lines of the journal": (lambda run_dir: shortened(run_dir, 0), False),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named_by_every_reader_and_repaired_by_a_resume(run_dir, damage):
    """Although the undamaged directory was read, and is in the cache."""
    wanted = read(run_dir)[0]
    damaged, again = DAMAGE[damage]
    name = damaged(run_dir)
    said = warned(run_dir)
    for reader in ("read_results", "read_hosts", "read_bins"):  # others look at the files that they read
        assert any(name in sentence for sentence in said[reader]), reader
    assert any(name in file for file in hci.verify(run_dir)["file"])
    with pytest.warns(RunDirWarning):
        assert (name in set(hci.read_hosts(run_dir).get("step", ()))) is False
    assert any(sentence.startswith(f"{name} is done again") for sentence in campaign(run_dir)) is again
    assert hci.verify(run_dir).empty
    assert sorted(hci.read_results(run_dir)["iops"]) == sorted(wanted["iops"])


@pytest.mark.parametrize("n", [0, len(PLAN.steps) - 1])
def test_an_edited_step_is_not_counted_and_is_done_again(run_dir, n):
    """Its digests of raw files were redone; the journal still holds the digest of step.json."""
    name = edit(run_dir, n)
    for reader, said in warned(run_dir).items():
        assert any(name in sentence for sentence in said), reader
    with pytest.warns(RunDirWarning):
        assert name not in set(hci.read_hosts(run_dir)["step"])
    assert f"steps/{name}" in list(hci.verify(run_dir)["file"])
    assert any(sentence.startswith(f"{name} is done again") for sentence in campaign(run_dir))
    assert hci.verify(run_dir).empty
    assert (hci.read_results(run_dir)["iops"] < 2000).all()


def test_a_run_directory_with_the_seals_of_the_version_before_is_read_and_gone_on_with(run_dir):
    """Its steps hold digests of each other, and its journal has `accepting` before every `done`."""
    lines = journal_lines(run_dir)
    of_before: list[dict] = []
    for line in lines:
        if line["event"] == "done":
            file = run_dir / "steps" / line["step"] / "step.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | {"holds": {"other": "0" * 64}}))
            line["digest"] = hashlib.sha256(file.read_bytes()).hexdigest()
            of_before.append({"t": 1, "event": "accepting", "step": line["step"], "digest": line["digest"]})
        of_before.append(line)
    write_journal(run_dir, of_before)
    assert len(hci.read_results(run_dir)) == len(PLAN.steps)
    assert hci.verify(run_dir).empty
    assert campaign(run_dir) == []


@pytest.mark.parametrize(
    ("field", "edited"),
    [
        ("plan", lambda plan: plan["plan"]["steps"][0].update(runtime_s=800.0)),
        ("testbed", lambda plan: plan["testbed"]["vms"][0]["disks"][0].update(size_bytes=2**30)),
        ("system", lambda plan: plan["system"].update(label="another")),
        ("plan is damaged", lambda plan: plan["plan"].pop("steps")),
        ("testbed or system is damaged", lambda plan: plan.pop("testbed")),
    ],
)
def test_an_edited_plan_is_named_and_written_again(run_dir, field, edited):
    file = run_dir / "plan.json"
    before = file.read_bytes()
    plan = json.loads(before)
    edited(plan)
    file.write_text(json.dumps(plan))
    assert ("plan.json" in list(hci.verify(run_dir)["file"])) is field.startswith("plan")
    assert any(said.startswith(f"plan.json is written again: its {field}") for said in campaign(run_dir))
    assert file.read_bytes() == before


def test_a_plan_whose_own_digests_were_edited_counts_no_step(run_dir):
    file = run_dir / "plan.json"
    plan = json.loads(file.read_text())
    plan["identity"]["testbed"] = "0" * 16
    file.write_text(json.dumps(plan))
    with pytest.warns(RunDirWarning, match="measured by another plan, testbed or system than"):
        assert hci.read_hosts(run_dir).empty


@pytest.mark.parametrize("line", ['{"event": "done"}', '{"event": "aside", "step": [1]}'])
def test_an_odd_line_of_the_journal_costs_nothing(run_dir, line):
    with open(run_dir / "journal.jsonl", "a") as file:
        file.write(line + "\n")
    assert hci.verify(run_dir).empty
    assert set(hci.read_hosts(run_dir)["step"]) == {step.id for step in PLAN.steps}


@pytest.mark.parametrize("text", ["", "[]"])
def test_a_plan_that_is_none_is_named_by_every_reader(run_dir, text):
    (run_dir / "plan.json").write_text(text)
    for reader in (hci.read_results, hci.read_hosts, hci.read_series, hci.verify):
        with pytest.raises(RunReadError, match="plan"):
            reader(run_dir)


EARLIER_VERSIONS = sorted((hci.ROOT / "tests/data/rundirs").glob(f"*{ARCHIVE}"))


@pytest.mark.parametrize("archive", EARLIER_VERSIONS, ids=lambda file: file.name)
def test_plans_of_every_earlier_version_are_what_they_state(archive, tmp_path):
    """A field that measuring no longer has is of the version that has to go on with it: each of these has one."""
    extract(archive, tmp_path / "run")
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    gone = "rollup_above_bytes" if "rollup_above_bytes" in plan["testbed"].get("fio", {}) else "fingerprint"
    assert f"{gone})" in _unlike_document(plan)


@pytest.mark.parametrize("renamed", [False, True])
def test_a_controller_killed_while_it_accepted_loses_no_step_that_is_there(run_dir, renamed):
    """Between the rename and the journal's line; and before the rename, when the attempt is only failed."""
    name = PLAN.steps[-1].id
    events = journal_lines(run_dir)
    last = max(n for n, event in enumerate(events) if event["event"] == "done" and event["step"] == name)
    write_journal(run_dir, events[:last])
    before = (folder_of(run_dir, -1) / "step.json").read_bytes()
    if not renamed:
        (run_dir / "work").mkdir(exist_ok=True)
        folder_of(run_dir, -1).rename(run_dir / "work" / name)
    campaign(run_dir)
    assert ((folder_of(run_dir, -1) / "step.json").read_bytes() == before) is renamed
    assert hci.verify(run_dir).empty


def test_an_older_run_directory_without_its_journal_is_read_and_the_journal_is_named(tmp_path):
    """Its steps carry digests."""
    run_dir = shutil.copytree(hci.samples()["lab-single"], tmp_path / "run")
    (run_dir / "journal.jsonl").write_text("")
    with pytest.warns(RunDirWarning, match=r"journal\.jsonl has no line of 25 finished steps") as caught:
        assert len(hci.read_results(run_dir)) == len(hci.read_results(hci.samples()["lab-single"]))
    assert len(caught) == 1


# The clock, secrets, leftovers


def test_a_clock_that_is_set_back_changes_no_order_and_no_warm_up(tmp_path):
    for name, back_s in (("straight", 0), ("back", 3600)):
        with opened(tmp_path / name) as rundir:
            rundir.claim(PLAN, BED, [SYSTEM])
            for n, step in enumerate(PLAN.steps):
                measured(rundir, step, 10_000.0 + 20 * n - (back_s if n > 1 else 0))
    one, other = (hci.read_results(tmp_path / name).drop(columns="run_id") for name in ("straight", "back"))
    pd.testing.assert_frame_equal(one, other)
    assert other["warmup_ratio"].is_monotonic_increasing
    assert other["warmup_ratio"].iloc[-1] > 0
    hosts = [hci.read_hosts(tmp_path / name)["step"].tolist() for name in ("straight", "back")]
    assert hosts[0] == hosts[1] == [step.id for step in PLAN.steps]


def test_what_a_kill_left_half_written_is_removed_and_attempts_are_kept(run_dir):
    left = [
        run_dir / ".plan.json.41.tmp",
        run_dir / "facts" / ".vm1.json.41.tmp",
        folder_of(run_dir, 0) / ".step.json.41.tmp",
    ]
    read(run_dir)
    for file in left:
        file.parent.mkdir(exist_ok=True)
        file.write_text("half")
    failed = everything(run_dir / "failed")
    campaign(run_dir)
    assert not any(file.exists() for file in left)
    assert everything(run_dir / "failed") == failed


@pytest.mark.parametrize(
    ("content", "said"),
    [("garbage\n", "line 1: .*no column node, t_s"), ("a,b\n1,2,3\n", "counters.csv: not the counters"),
     ("node,t_s,interval_s,cpu_pct,core_max_pct,nic,rx_bytes_per_s,tx_bytes_per_s\nn,1,1,2,2,lo,0,0\nn,x,1,2,2,lo,0,0\n",
      "line 3: not the counters of a step: t_s is 'x', expected a number")],
)  # fmt: skip
def test_counters_that_are_none_are_named_with_their_line(tmp_path, content, said):
    run_dir = shutil.copytree(EARLIER, tmp_path / "run")
    step = next((run_dir / "steps").glob("measure*"))
    (step / "counters.csv").write_text(content)
    for reader in (hci.read_results, hci.read_counters):
        with pytest.raises(ValueError, match=f"{step.name}/counters.csv: .*{said.removeprefix('counters.csv: ')}"):
            reader(run_dir)
