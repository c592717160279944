"""Faults with real parts: the right host is named, nothing partial becomes a result, and it goes on."""

import signal
import subprocess
import time
from pathlib import Path

import pytest
from injections import MIRROR, send, sshd, tree
from intrusions import by
from meanwhile import Meanwhile, attempts
from plain import run
from probes import until

from hcilib.drive.campaign import campaign
from hcilib.drive.campaign.campaign import CampaignError
from hcilib.drive.guard.preflight import PreflightError
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.launch import job
from tests.needs import need

pytestmark = pytest.mark.lab


@pytest.fixture
def victim(victim):
    """By fio's own client."""
    return by(victim, "client-server")


def running(bed, vm) -> list[set[int]]:
    """The VM's fio processes once a job is at work there: four generations."""
    generations = until(lambda: len(found := tree(bed, vm)) >= 4 and found, 20)
    assert generations, "no job was started"
    time.sleep(0.2)
    return generations


def test_a_step_that_cannot_be_done_is_missing_and_the_next_one_is_done(victim, short, run_dir, monkeypatch):
    monkeypatch.setattr(campaign, "ATTEMPTS", 1)
    with Meanwhile(lambda: send(set.union(*running(victim, victim.vms[0])), signal.SIGTERM)):
        plan = short(repeats=2, read_runtime_s=2)
        results = run(plan, victim, MIRROR, run_dir)
    [missing] = results.attrs["missing"]  # on a busy machine the fault may meet the second step
    assert missing in {step.id for step in plan.steps}
    assert [step.rep for step in plan.steps if step.id != missing] == list(results["rep"])
    again = run(plan, victim, MIRROR, run_dir)
    assert again.attrs["missing"] == []
    assert sorted(again["rep"]) == [1, 2]


@pytest.mark.deep
def test_a_step_beyond_its_deadline_is_ended_by_the_controller_and_blames_no_vm(victim, short, run_dir, monkeypatch):
    """The servers' own timeout comes later: first, it would end the healthy ones too, and wake a frozen one."""
    monkeypatch.setattr(job, "deadline_s", lambda *_: 2.0)
    monkeypatch.setattr(campaign, "ATTEMPTS", 1)
    plan = short(read_runtime_s=30)
    assert run(plan, victim, MIRROR, run_dir).attrs["missing"] == [plan.steps[0].id]
    [attempt] = attempts(run_dir)
    wrong = "; ".join(attempt["problems"])
    assert "stopped from outside after 2 s" in wrong
    assert "disconnected" not in wrong
    assert "gave no result" not in wrong
    assert until(lambda: not any(tree(victim, vm) for vm in victim.vms), 5)


def test_a_vm_without_sshd_is_refused_by_name_before_anything_starts(victim, short, run_dir):
    send(sshd(victim), signal.SIGKILL)
    with pytest.raises(PreflightError, match=r"1 check\(s\) failed: vm2: reachable: connection refused"):
        run(short(), victim, MIRROR, run_dir)
    assert not (run_dir / "plan.json").exists()


def test_a_node_that_dies_leaves_its_counters_missing(victim, short, tmp_path, run_dir):
    def die_after_the_first():
        assert until(lambda: list(tmp_path.glob("run/steps/*/step.json")), 60)
        for node in victim.nodes:
            send(sshd(victim, host=node.name), signal.SIGKILL)

    with Meanwhile(die_after_the_first):
        results = run(short(repeats=3, read_runtime_s=1), victim, MIRROR, run_dir)
    assert len(results) == 3, "the I/O itself was sound, in the steps after it as well"
    assert results.attrs["missing"] == []
    assert results["node_cpu_pct"].dropna().between(0, 100).all()
    assert results["node_cpu_pct"].isna().iloc[-1], "nobody could ask them then"
    assert (results["iops"] > 0).all()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 300 MiB, for the run directory."""
    place = tmp_path / "disk"
    place.mkdir()
    need("root")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "full", place], capture_output=True).returncode:
        pytest.skip("no right to mount a tmpfs")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def stuff(place: Path) -> Path:
    """A file that takes all that is left."""
    filler = place / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 2**20)
        except OSError:
            return filler


@pytest.mark.slow
def test_a_full_disk_stops_the_campaign_names_the_step_and_is_resumed(victim, short, small_disk, monkeypatch):
    """It is full as the second step is launched."""
    run_dir, plan, real = small_disk / "run", short(repeats=2), campaign.launch

    def fill_before_the_second(of):
        if list(run_dir.glob("steps/*")):
            stuff(small_disk)
        return real(of)

    monkeypatch.setattr(campaign, "launch", fill_before_the_second)
    with pytest.raises(
        CampaignError, match=r"no space left on device on the controller in step measure-.*run the same again"
    ):
        run(plan, victim, MIRROR, run_dir)
    monkeypatch.setattr(campaign, "launch", real)
    finished = {p.name for p in run_dir.glob("steps/*")}
    assert len(finished) == 1
    (small_disk / "filler").unlink()
    results = run(plan, victim, MIRROR, run_dir)
    assert sorted(results["rep"]) == [1, 2]
    assert {p.name for p in run_dir.glob("steps/*")} == {s.id for s in plan.steps}


def test_a_vm_whose_scratch_space_is_full_is_told_so_with_the_path(victim, small_disk):
    (small_disk / "job.fio").touch()
    stuff(small_disk)
    with (
        Fleet(victim) as fleet,
        pytest.raises(OSError, match=rf"{small_disk}/job\.fio cannot be written: is its file system full\?"),
    ):
        fleet.put_now("vm1", f"{small_disk}/job.fio", bytes(2**21))
