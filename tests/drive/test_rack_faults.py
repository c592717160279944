"""Faults on the way by which real hosts are measured: block devices, and fio's servers on unix sockets reached through
SSH.

Each is done to vm2 of two, in a campaign: vm2 is named and vm1 is not, the attempt is kept and done again, and no fio
is left.
"""

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from injections import at_work, everybody, killed_sshd, once_at_work
from loops import own_kernels
from meanwhile import events
from probes import REPOSITORY, base_of, processes, python, until
from test_campaign import fingerprints

from hcilib import Plan, System, Testbed, read_hosts
from hcilib.drive.campaign import campaign
from hcilib.drive.campaign.campaign import run
from hcilib.drive.launch import job
from hcilib.model.testbed import Fio
from hcilib.read.run.journal import read_journal
from hcilib.read.run.results import read_results

pytestmark = pytest.mark.lab
SYSTEM = System(name="real-disk", label="A disk")
RUN = {"consent": "wipe", "progress": False}
RUNTIME_S = 2.5  # a fault has to meet it: on a busy machine a look at every process takes a second


@pytest.fixture
def rack(hosts, media) -> Iterator[Testbed]:
    """vm1 and vm2 of the lab as a real testbed, a block device each."""
    for vm, serial in (("vm1", "T1"), ("vm2", "T2")):
        media.attach(file := media.file(f"{serial}.img"))
        hosts.give(vm, serial, file)
    with own_kernels(hosts.folder):
        yield hosts.testbed(("vm1", "T1"), ("vm2", "T2"), fio=Fio(launcher="client-server"))


@pytest.fixture
def one_step(short) -> Plan:
    return short(["4k-randrw50"], read_runtime_s=RUNTIME_S, write_runtime_s=RUNTIME_S)


def left(bed: Testbed) -> list[str]:
    """Every fio that still runs on this lab's hosts when patience ends; another lab of this machine is none of ours."""
    mark = f"/hci-{base_of(bed)}."
    found = lambda: [c for c in processes(mark).values() if re.search(r"/hci-\S+/(server|job\.fio)", c)]  # noqa: E731
    until(lambda: not found(), 5)
    return found()


def at(bed: Testbed) -> Testbed:
    """The lab as `injections` looks at it: by the launcher of these campaigns."""
    return bed.model_copy(update={"fio": bed.fio.model_copy(update={"launcher": "client-server"})})


def failed(run_dir: Path) -> dict[str, str]:
    """Every attempt that was kept, and what was wrong with it."""
    files = sorted(run_dir.glob("failed/*/step.json"))
    return {file.parent.name: "; ".join(json.loads(file.read_text())["problems"]) for file in files}


def blames_vm2_alone(said: str) -> bool:
    blamed = set(re.findall(r"(?<!-)\bvm\d\b", said))  # the name of a step ends with -vm2, for two VMs
    return blamed == {"vm2"}


def assert_done_again(bed: Testbed, run_dir: Path, plan: Plan, results, said: str) -> str:
    """One attempt was lost, told and kept; the next one alone is the result. Returns what was wrong with the first."""
    [step] = plan.steps
    assert results.attrs["missing"] == []
    assert list(failed(run_dir)) == [f"{step.id}.1"]
    wrong = failed(run_dir)[f"{step.id}.1"]
    assert blames_vm2_alone(wrong), wrong
    assert f"{step.id}: not accepted: {wrong}" in said
    hosts = read_hosts(run_dir)
    assert set(hosts["vm"]) == {"vm1", "vm2"}
    assert list(results["iops"]) == [pytest.approx(hosts["iops"].sum())], "no row of the failed attempt is in it"
    assert left(bed) == []
    return wrong


def hasty_at_first(monkeypatch, run_dir: Path) -> None:
    """Nothing but the deadline ends what hangs, so the first attempt's is near; the next has all the time that a busy
    machine needs."""
    patient = job.deadline_s
    monkeypatch.setattr(job, "deadline_s", lambda *given: patient(*given) if failed(run_dir) else 6.0)


FAULTS = {
    "fio server killed": (once_at_work(signal.SIGKILL, everybody), "gave no result"),
    "sshd session killed": (killed_sshd(listener=False), "vm2: its SSH connection was lost while fio ran"),
    "fio server frozen": (once_at_work(signal.SIGSTOP, everybody), "(its fio is frozen)"),
}


@pytest.mark.deep
@pytest.mark.parametrize("fault", FAULTS)
def test_a_vm_lost_on_the_way_is_named_and_the_step_done_again(
    bed, rack, one_step, tmp_path, monkeypatch, capsys, fault
):
    hasty_at_first(monkeypatch, tmp_path / "run")
    inject, reason = FAULTS[fault]
    with inject(at(bed)):
        results = run(one_step, rack, SYSTEM, tmp_path / "run", **RUN)
    assert reason in assert_done_again(rack, tmp_path / "run", one_step, results, capsys.readouterr().out)


CONTROL = """
import json, sys
from pathlib import Path
from loops import own_kernels
from hcilib.drive.campaign.campaign import run
from hcilib.model.plan import Plan
from hcilib.model.system import System
from hcilib.model.testbed import Testbed
folder, bed, plan, system, run_dir = sys.argv[1:]
with own_kernels(Path(folder)):
    run(Plan.from_dict(json.loads(plan)), Testbed.model_validate_json(bed), System.model_validate_json(system), run_dir,
        consent="wipe", progress=False)
"""


@pytest.mark.slow
@pytest.mark.deep
def test_kill_9_of_the_controller_costs_one_attempt_and_its_servers_take_no_connection(
    bed, hosts, rack, short, tmp_path
):
    plan, run_dir = short(["4k-randrw50"], repeats=2, read_runtime_s=1, write_runtime_s=1), tmp_path / "run"
    given = [
        str(hosts.folder),
        rack.model_dump_json(),
        json.dumps(plan.to_dict()),
        SYSTEM.model_dump_json(),
        str(run_dir),
    ]
    controller = python(CONTROL, *given, env={"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests' / 'drive'}"})
    try:
        assert until(lambda: list(run_dir.glob("steps/*")) or controller.poll() is not None, 90), "no step was finished"
        assert controller.poll() is None, controller.communicate()
        assert len(at_work(at(bed))) >= 4
    finally:
        controller.kill()
        controller.communicate()
    before = fingerprints(run_dir)
    results = run(plan, rack, SYSTEM, run_dir, **RUN)
    assert sorted(results["rep"]) == [1, 2]
    after = fingerprints(run_dir)
    assert before
    assert {name: after[name] for name in before} == before, "what was finished keeps its bytes"
    assert list(failed(run_dir)) == [f"{plan.steps[1].id}.1"]
    assert [e["left"] for e in events(run_dir, "start")] == [2, 1]
    assert len(events(run_dir, "done")) == 2, "each step once"
    assert left(rack) == []


def test_ctrl_c_leaves_no_fio_and_keeps_the_attempt(bed, rack, short, tmp_path):
    def interrupt():
        if len(at_work(at(bed))) >= 4:
            os.kill(os.getpid(), signal.SIGINT)

    plan, run_dir = short(["4k-randrw50"], read_runtime_s=60, write_runtime_s=60), tmp_path / "run"
    interrupter = threading.Thread(target=interrupt, daemon=True)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        run(plan, rack, SYSTEM, run_dir, **RUN)
    interrupter.join()
    assert left(rack) == []
    assert failed(run_dir) == {f"{plan.steps[0].id}.1": "interrupted: KeyboardInterrupt: "}
    assert read_results(run_dir).empty
    assert list(read_journal(run_dir)["event"]) == ["start", "failed", "end"]


@pytest.mark.deep
def test_a_step_beyond_its_deadline_is_ended_by_the_controller_and_blames_no_vm(rack, short, tmp_path, monkeypatch):
    """The servers' own timeout comes later: first, it would end the healthy ones too, and wake a frozen one."""
    monkeypatch.setattr(job, "deadline_s", lambda *_: 2.0)
    monkeypatch.setattr(campaign, "ATTEMPTS", 1)
    plan = short(["4k-randrw50"], read_runtime_s=30, write_runtime_s=30)
    assert run(plan, rack, SYSTEM, tmp_path / "run", **RUN).attrs["missing"] == [plan.steps[0].id]
    [wrong] = failed(tmp_path / "run").values()
    assert "stopped from outside after 2 s" in wrong
    assert "disconnected" not in wrong
    assert "gave no result" not in wrong
    assert left(rack) == []
