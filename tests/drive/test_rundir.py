"""The run directory: one campaign, atomic steps, nothing lost."""

import contextlib
import errno
import hashlib
import json
import os
import socket
from pathlib import Path

import pytest
import zstandard

from hcilib import read_pool_fill, sweep
from hcilib.drive.campaign import rundir as room
from hcilib.drive.campaign.facts import note_pool_fill
from hcilib.drive.campaign.rundir import RunDir, RunDirError
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.systems import Subject
from hcilib.model.system import Check, System
from hcilib.model.testbed import Disk, Node, Testbed, Vm
from hcilib.read.run.journal import events_of

PLAN = sweep(["4k-randread", "4k-randwrite"], repeats=2, iodepth=1, vms=1, span_bytes=2**20)
SYSTEM = System(name="s", label="S")
STEP = PLAN.steps[0]
TIMES = {"started_s": 100.0, "ended_s": 103.5}


def bed(**changes) -> Testbed:
    disk = Disk(serial="lab-vm1-d0", size_bytes=2**20, backing=("/home/someone/lab/node1/vm1-d0.img",))
    vm = Vm(name="vm1", node="n1", address="127.0.0.101", disks=(disk,))
    given = {
        "name": "t",
        "nodes": (Node(name="n1", address="127.0.0.1"),),
        "vms": (vm,),
        "key": "/home/someone/.ssh/id",
        "consent": "wipe",
        "known_hosts": "/home/someone/known",
        "lab_root": "/home/someone/lab",
    }
    return Testbed(**{**given, **changes})


@pytest.fixture
def opened(run_dir):
    def open_again(plan=PLAN, testbed=None, system=SYSTEM):
        return RunDir.opened(run_dir, plan, testbed or bed(), [system])

    return open_again


@pytest.fixture
def claimed(opened):
    with contextlib.ExitStack() as stack:
        rundir = stack.enter_context(opened())
        rundir.claim(PLAN, bed(), [SYSTEM])
        rundir.let_go = stack.close  # as a kill does
        yield rundir


def attempt(rundir, step=STEP, output=b'{"fio version": "fio-3.33"}') -> Path:
    work = rundir.work(step)
    (work / "fio.json").write_bytes(output)
    (work / "logs").mkdir()
    return work


def test_an_accepted_step_is_complete_where_it_appears(claimed):
    claimed.accept(attempt(claimed), STEP, {**TIMES, "kind": STEP.kind})
    folder = claimed.path / "steps" / STEP.id
    sealed, raw = (hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("step.json", "fio.json.zst"))
    assert json.loads((folder / "step.json").read_text()) == {
        "format": 1, **TIMES, "kind": STEP.kind, "id": STEP.id, "valid": True, "order": 1, "raw": {"fio.json.zst": raw},
        "campaign": {"id": claimed.campaign, **claimed.identity},
    }  # fmt: skip
    assert zstandard.decompress((folder / "fio.json.zst").read_bytes(), 1000) == b'{"fio version": "fio-3.33"}'
    assert not (folder / "fio.json").exists()
    assert claimed.done() == {STEP.id}
    done = {"t": 0, "event": "done", "step": STEP.id, "seconds": 3.5, "digest": sealed}
    assert [*events_of(claimed.path)][-1] | {"t": 0} == done
    assert list((claimed.path / "work").iterdir()) == []


def test_every_failed_attempt_is_kept_with_its_reasons(claimed):
    for number in (1, 2, 3):
        assert claimed.reject(attempt(claimed, output=b"x%d" % number), STEP.id, [f"reason {number}"], TIMES) == number
    for number in (1, 2, 3):
        folder = claimed.path / "failed" / f"{STEP.id}.{number}"
        record = json.loads((folder / "step.json").read_text())
        assert (record["valid"], record["attempt"], record["problems"]) == (False, number, [f"reason {number}"])
        assert zstandard.decompress((folder / "fio.json.zst").read_bytes(), 1000) == b"x%d" % number
    assert claimed.done() == set()
    assert [(e["event"], e["attempt"]) for e in events_of(claimed.path)] == [("failed", n) for n in (1, 2, 3)]


def test_attempts_of_steps_whose_names_begin_alike_are_counted_apart(claimed):
    one, ten = (
        sweep(["4k-randread"], repeats=1, iodepth=1, vms=n, prefill=False, canary=False).steps[0] for n in (1, 10)
    )
    assert ten.id.startswith(one.id)
    claimed.reject(attempt(claimed, ten), ten.id, ["x"], {})
    assert claimed.reject(attempt(claimed, one), one.id, ["x"], {}) == 1


def test_the_plan_is_written_whole_and_without_secrets(claimed):
    text = (claimed.path / "plan.json").read_text()
    document = json.loads(text)
    assert next(iter(document)) == "format"
    assert document["plan"] == json.loads(json.dumps(PLAN.to_dict()))
    assert document["testbed"]["vms"][0]["disks"][0]["backing"] == ["node1/vm1-d0.img"]
    assert "/home/someone" not in text, "nothing of this machine"
    assert "wipe" not in text
    assert document["one_kernel"] is True


def test_the_same_campaign_is_let_in_again_and_keeps_its_plan(opened, run_dir):
    with opened() as rundir:
        rundir.claim(PLAN, bed(), [SYSTEM])
    before = (run_dir / "plan.json").read_bytes()
    moved = bed(nodes=(Node(name="n1", address="127.9.9.1"),), key=None, consent=None, lab_root="/elsewhere")
    with opened(testbed=moved) as rundir:
        rundir.claim(PLAN, moved, [SYSTEM])
    assert (run_dir / "plan.json").read_bytes() == before


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"plan": sweep(["4k-randread"], repeats=2, iodepth=1, vms=1, span_bytes=2**20)}, "another plan;"),
        ({"testbed": bed(name="u"), "system": System(name="t", label="S")}, "another testbed and system;"),
    ],
)
def test_another_campaign_is_refused_by_what_differs(opened, run_dir, other, named):
    with opened() as rundir:
        rundir.claim(PLAN, bed(), [SYSTEM])
    with pytest.raises(RunDirError, match=named) as caught, opened(**other):
        pass
    assert str(run_dir) in str(caught.value)


def test_a_directory_is_one_controllers_at_a_time_and_free_until_it_is_claimed(opened):
    with opened(), pytest.raises(RunDirError, match="another controller is running this campaign"), opened():
        pass
    with opened(plan=sweep(["1m-read"], repeats=1)) as rundir:
        assert rundir.done() == set()


def test_a_lock_file_that_is_removed_lets_nobody_in(opened, claimed):
    work = attempt(claimed)
    claimed.path.joinpath(".lock").unlink()
    with pytest.raises(RunDirError, match="another controller is running this campaign"), opened():
        pass
    assert work.exists(), "the first one's running attempt stays where it is"


def test_a_file_system_without_locks_is_named(opened, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(room.fcntl, "flock", refuse)
    with (
        pytest.raises(RunDirError, match=r"keeps no locks \(No locks available\); choose a run_dir on a local"),
        opened(),
    ):
        pass


def test_what_a_killed_controller_left_is_a_failed_attempt(opened, claimed):
    """Also where it was killed while it accepted: a record that says so is not taken for done."""
    work = attempt(claimed)
    (work / "step.json").write_text(json.dumps({"id": STEP.id, "valid": True}))
    (work / "fio.json.zst").write_bytes(b"half a fra")
    claimed.let_go()
    with opened() as rundir:
        assert rundir.done() == set()
        folder = rundir.path / "failed" / f"{STEP.id}.1"
        record = json.loads((folder / "step.json").read_text())
        assert (record["valid"], record["problems"]) == (
            False, ["the controller ended while this attempt was running"],
        )  # fmt: skip
        assert zstandard.decompress((folder / "fio.json.zst").read_bytes(), 1000).startswith(b'{"fio')
        assert rundir.work(STEP).exists(), "and it can be done again"


def test_a_damaged_plan_is_named(opened, claimed):
    (claimed.path / "plan.json").write_text("")
    claimed.let_go()
    with pytest.raises(RunDirError, match=r"plan\.json: not JSON"), opened():
        pass


def test_a_file_is_there_whole_or_not_at_all(claimed, monkeypatch):
    claimed.facts("vm1", {"kernel": "old"})

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(room.os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        claimed.facts("vm1", {"kernel": "new"})
    assert json.loads((claimed.path / "facts/vm1.json").read_text())["kernel"] == "old"


def test_how_full_pools_are_is_kept_over_sessions_with_the_line_or_the_reason(claimed):
    """Asked on this machine: no host is reached."""
    said = {"two": "printf 'a 12,5%%\\nb 83%%\\n'", "strange": "echo b 101%", "gone": "echo no pool >&2; exit 3"}
    how = {name: Check(on="controller", run=run, expect=r" ([0-9.,]+)%$") for name, run in said.items()}
    checks = {name: {"pool-fill": own} for name, own in how.items()} | {"silent": {}}
    asked = [Subject(System(name=name, label=name, checks=own), bed(), None) for name, own in checks.items()]
    with Fleet(bed(key=None)) as fleet:
        for when in ("start", "end", "start"):
            note_pool_fill(fleet, asked, claimed, when)
        note_pool_fill(fleet, asked[-1:], claimed, "end")
    full = read_pool_fill(claimed.path)
    assert list(full["when"]) == [when for when in ("start", "end", "start") for _ in range(3)]
    [*_, two, strange, gone] = full.to_dict("records")
    assert (two["host"], two["pool_fill_pct"], two["line"]) == ("controller", 83, "b 83%")
    assert [one["pool_fill_pct"] == one["pool_fill_pct"] for one in (strange, gone)] == [False, False]
    assert [one["warnings"] for one in (two, strange, gone)] == ["", "pool-fill", "pool-fill"]
    assert "`echo b 101%` says 'b 101%'" in strange["line"]
    assert "exited with 3: no pool" in gone["line"]


@pytest.mark.parametrize("place", ["/sys/run", "file/run"])
def test_a_run_directory_that_cannot_be_written_is_named(place, tmp_path):
    (tmp_path / "file").write_text("")
    path = Path(place) if place.startswith("/") else tmp_path / place
    with pytest.raises(RunDirError, match=rf"{place}: .* on the controller; no host was touched. Choose a run_dir"):
        RunDir.opened(path, PLAN, bed(), [SYSTEM]).__enter__()


def test_a_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path):
    (thesis := tmp_path / "work" / "thesis").mkdir(parents=True)
    (thesis / "step.json").write_text("{}")
    (tmp_path / ".draft.1.tmp").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RunDirError, match=f"{tmp_path}: holds work, and no campaign. Choose a run_dir that is new"):
        RunDir.opened(tmp_path, PLAN, bed(), [SYSTEM]).__enter__()
    assert sorted(tmp_path.rglob("*")) == before


def test_sockets_of_a_killed_controller_are_removed(opened, tmp_path):
    with opened() as rundir:
        work = rundir.work(STEP)
        (client := work / "client.abc").mkdir()
        with socket.socket(socket.AF_UNIX) as dead:
            here = os.open(client, os.O_RDONLY)
            dead.bind(f"/proc/self/fd/{here}/vm1")
            os.close(here)
    with opened() as rundir:
        assert [path for path in rundir.path.rglob("*") if path.is_socket()] == []
        assert len(list((rundir.path / "failed").iterdir())) == 1
