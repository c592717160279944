"""Disks that go away and come back cost one attempt each. A foreign write ends the campaign."""

import os

import pytest
from loops import MIB, RANDOM, SIZE, losetup, own_kernels
from meanwhile import Meanwhile, events, lost
from probes import until

from hcilib import CampaignError, GuardError, System, sweep
from hcilib.drive.campaign import campaign, wait
from hcilib.drive.campaign.campaign import run

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
