"""Disks that go away and come back, a full /tmp, a killed fio: one attempt each. A foreign write ends the campaign."""

import os
import signal
import subprocess

import pytest
from injections import send, tree
from loops import MIB, RANDOM, SIZE, losetup, own_kernels
from meanwhile import Meanwhile, events, lost
from probes import until

from hcilib import CampaignError, GuardError, System, sweep
from hcilib.drive.campaign import campaign, wait
from hcilib.drive.campaign.campaign import run
from hcilib.drive.launch import session
from tests.needs import need

pytestmark = pytest.mark.lab
SYSTEM = System(name="real-disk", label="A disk")
PLAN = {"repeats": 3, "iodepth": 4, "vms": 1, "read_runtime_s": 1, "write_runtime_s": 1, "span_bytes": 8 * MIB,
        "canary": False, "prefill": False, "pause_s": 1}  # fmt: skip


@pytest.fixture
def own(hosts, monkeypatch):
    """A loop device stays while anybody has it open, as a lease does; a real disk goes."""
    monkeypatch.setattr(campaign, "_disks_to_lease", lambda *_: {})
    monkeypatch.setattr(wait, "LONGEST_PAUSE_S", 2.0)
    with own_kernels(hosts.folder):
        yield


def measured(testbed, run_dir, pattern="4k-randread", launcher="per-host", **plan):
    bed = testbed.model_copy(update={"fio": testbed.fio.model_copy(update={"launcher": launcher})})
    return run(sweep([pattern], **PLAN | plan), bed, SYSTEM, run_dir, consent="wipe", progress=False)


def put(device, offset, data):
    with open(device, "r+b") as disk:
        disk.seek(offset)
        disk.write(data)


def detached(media, file, device):
    media.detach(device)
    return lambda: media.attach(file)


def renamed(media, file, device):
    media.detach(device)

    def back():
        media.attach(media.file("other.img", size=MIB))  # takes its number
        media.attach(file)

    return back


def resized(file, device, size):
    os.truncate(file, size)
    losetup("--set-capacity", device)


def shrunk(media, file, device):
    resized(file, device, SIZE // 2 + MIB)
    return lambda: resized(file, device, SIZE)


@pytest.mark.parametrize(
    ("fault", "pattern", "launcher"),
    [
        (detached, "4k-randread", "per-host"),
        (detached, "4k-randwrite", "client-server"),
        (renamed, "4k-randwrite", "per-host"),
        (shrunk, "4k-randread", "per-host"),
    ],
)
def test_a_disk_that_is_away_costs_one_attempt(own, blank, media, tmp_path, fault, pattern, launcher):
    file, device, testbed = blank
    run_dir = tmp_path / "run"

    def strike():
        assert until(lambda: events(run_dir, "done"), 60)
        heal = fault(media, file, device)
        assert until(lambda: events(run_dir, "outage"), 60)
        heal()

    striking = Meanwhile(strike)
    results = measured(testbed, run_dir, pattern, launcher)
    striking.end()
    assert sorted(results["rep"]) == [1, 2, 3]
    assert results.attrs["missing"] == []
    assert len(lost(run_dir)) <= 1, lost(run_dir)
    [outage] = events(run_dir, "outage")
    assert outage["host"] == "vm1"
    assert "B1" in outage["why"]
    assert [back["host"] for back in events(run_dir, "back")] == ["vm1"]


def test_beyond_the_limit_a_lost_disk_ends_the_campaign_and_it_is_resumed(own, blank, media, tmp_path):
    file, device, testbed = blank
    run_dir = tmp_path / "run"
    striking = Meanwhile(lambda: (until(lambda: events(run_dir, "done"), 60), media.detach(device)))
    with pytest.raises(CampaignError, match=r"vm1 has been away since .*B1"):
        measured(testbed, run_dir, outage_limit_s=3)
    striking.end()
    assert len(lost(run_dir)) == 1
    media.attach(file)
    assert sorted(measured(testbed, run_dir, outage_limit_s=3)["rep"]) == [1, 2, 3]
    assert len(lost(run_dir)) == 1


@pytest.mark.parametrize("away", [False, True])
def test_a_foreign_write_ends_the_campaign_at_once(own, blank, media, tmp_path, away):
    """Also of a disk that comes back with other bytes on it."""
    file, device, testbed = blank
    run_dir = tmp_path / "run"

    def strike():
        assert until(lambda: events(run_dir, "done"), 60)
        if away:
            media.detach(device)
            assert until(lambda: events(run_dir, "outage"), 60)
        put(file if away else device, 0, RANDOM)
        if away:
            media.attach(file)

    striking = Meanwhile(strike)
    with pytest.raises(CampaignError, match=r"vm1: .*B1.*somebody else"):
        measured(testbed, run_dir)
    striking.end()
    assert len(lost(run_dir)) == 1, "no further attempt"
    assert len(events(run_dir, "done")) == 1
    with pytest.raises(GuardError, match="B1"):
        measured(testbed, run_dir)
    with pytest.raises(GuardError, match="B1"):
        measured(testbed, tmp_path / "later")


@pytest.mark.parametrize(("launcher", "depth"), [("per-host", 2), ("client-server", 4)])
def test_a_killed_fio_is_named_and_waited_for(victim, short, mirror_system, tmp_path, launcher, depth):
    bed = victim.model_copy(update={"fio": victim.fio.model_copy(update={"launcher": launcher})})
    run_dir, plan = tmp_path / "run", short(read_runtime_s=2)

    def strike():
        for _ in range(campaign.ATTEMPTS):
            generations = until(lambda: len(found := tree(bed, bed.vms[1])) >= depth and found, 60)
            send(set.union(*generations), signal.SIGKILL)
            assert until(lambda: not tree(bed, bed.vms[1]), 20)

    striking = Meanwhile(strike)
    results = run(plan, bed, mirror_system, run_dir, progress=False)
    striking.end()
    assert results.attrs["missing"] == [], "more kills than attempts cost no run"
    for problem in lost(run_dir):
        assert problem.startswith("fio was killed on vm2 (signal 9): out of memory?")
        assert plan.steps[0].id in problem
        assert "lab-vm2-d0" in problem
    assert {e["host"] for e in events(run_dir, "outage")} == {"vm2"}


def test_a_full_tmp_costs_one_attempt_and_is_named(own, blank, tmp_path, monkeypatch):
    need("root")
    _, _, testbed = blank
    run_dir, place = tmp_path / "run", tmp_path / "tmp"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "small", place], capture_output=True).returncode:
        pytest.skip("no right to mount a tmpfs")
    monkeypatch.setattr(session, "PLACE", str(place))

    def strike():
        assert until(lambda: events(run_dir, "done"), 60)
        subprocess.run(["dd", "if=/dev/zero", f"of={place}/filler", "bs=4k"], capture_output=True)
        assert until(lambda: events(run_dir, "outage"), 60)
        (place / "filler").unlink()

    striking = Meanwhile(strike)
    try:
        results = measured(testbed, run_dir)
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
    striking.end()
    assert sorted(results["rep"]) == [1, 2, 3]
    assert len(lost(run_dir)) == 1
    assert all("vm1" in problem for problem in lost(run_dir))
    assert "full" in events(run_dir, "outage")[0]["why"]
