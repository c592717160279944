"""Disks that go away and come back cost one attempt each. A foreign write ends the campaign.

A loop device is held as any disk, and is there as long as it is held. What it can do under a hold is fail to be read
(its file is cut off), change its size, and become read-only; and it goes once it is let go of.
"""

import os
import subprocess

import pytest
from intrusions import by
from loops import MIB, RANDOM, SIZE, losetup, own_kernels
from meanwhile import Meanwhile, events, lost
from plain import run, short_plan
from probes import until
from signatures import write

from hcilib.drive.campaign import wait
from hcilib.drive.campaign.campaign import CampaignError
from hcilib.drive.guard.guard import GuardError
from hcilib.model.system import System

pytestmark = pytest.mark.lab
SYSTEM = System(name="real-disk", label="A disk")
PLAN = {"repeats": 2, "read_runtime_s": 1, "write_runtime_s": 1, "pause_s": 1}


@pytest.fixture
def own(hosts, monkeypatch):
    monkeypatch.setattr(wait, "LONGEST_PAUSE_S", 2.0)
    with own_kernels(hosts.folder):
        yield


@pytest.fixture
def disk(media, hosts):
    """A blank disk B1 on vm1 that tells where its file ends: the file, the device and the testbed."""
    hosts.give("vm1", "B1", file := media.file("b1.img"))
    return file, media.attach(file, "--direct-io=on"), hosts.testbed(("vm1", "B1"))


def measured(testbed, run_dir, pattern="4k-randread", launcher="per-host", **plan):
    bed = by(testbed, launcher)
    return run(short_plan([pattern], **PLAN | plan), bed, SYSTEM, run_dir, consent="wipe")


def unreadable(media, file, device):
    """Every read is an error; it is asked again as long as it is there."""
    os.truncate(file, 0)
    return lambda: os.truncate(file, SIZE)


def gone(media, file, device):
    """Once it cannot be read it is let go of, and then its number is anybody's."""
    os.truncate(file, 0)
    media.detach(device)

    def back():
        assert until(lambda: str(file) not in losetup("--list"), 60)
        media.attach(media.file("other.img", size=MIB))  # takes its number
        os.truncate(file, SIZE)
        media.attach(file, "--direct-io=on")

    return back


def resized(file, device, size):
    os.truncate(file, size)
    losetup("--set-capacity", device)


def shrunk(media, file, device):
    resized(file, device, SIZE // 2 + MIB)
    return lambda: resized(file, device, SIZE)


def read_only(media, file, device):
    subprocess.run(["blockdev", "--setro", device], check=True)
    return lambda: subprocess.run(["blockdev", "--setrw", device], check=True)


@pytest.mark.parametrize(
    ("fault", "pattern", "launcher"),
    [
        (unreadable, "4k-randread", "per-host"),
        (unreadable, "4k-randread", "client-server"),
        (gone, "4k-randread", "per-host"),
        (shrunk, "4k-randread", "per-host"),
        (read_only, "4k-randwrite", "per-host"),
    ],
)
def test_a_disk_that_is_away_costs_one_attempt(own, disk, media, run_dir, fault, pattern, launcher):
    file, device, testbed = disk

    def strike():
        assert until(lambda: events(run_dir, "done"), 60)
        heal = fault(media, file, device)
        assert until(lambda: events(run_dir, "outage"), 60)
        heal()

    with Meanwhile(strike):
        results = measured(testbed, run_dir, pattern, launcher)
    assert sorted(results["rep"]) == [1, 2]
    assert results.attrs["missing"] == []
    assert len(lost(run_dir)) <= 1, lost(run_dir)
    [outage] = events(run_dir, "outage")
    assert outage["host"] == "vm1"
    assert "B1" in outage["why"]
    assert [back["host"] for back in events(run_dir, "back")] == ["vm1"]


def test_a_disk_that_is_detached_while_it_is_held_goes_when_the_campaign_is_over(own, disk, media, run_dir):
    file, device, testbed = disk
    with Meanwhile(lambda: (until(lambda: events(run_dir, "done"), 60), media.detach(device))):
        results = measured(testbed, run_dir, "4k-randwrite")
    assert sorted(results["rep"]) == [1, 2]
    assert lost(run_dir) == []
    assert until(lambda: str(file) not in losetup("--list"))


FOREIGN = {
    "a write": lambda media, file, device: write(device, 0, RANDOM),
    "a partition": lambda media, file, device: subprocess.run(["addpart", device, "1", "2048", "8192"], check=True),
}


@pytest.mark.parametrize("what", [*FOREIGN, "a write while it is away"])
def test_what_is_foreign_ends_the_campaign_at_once(own, disk, media, tmp_path, run_dir, what):
    """Also of a disk that comes back with other bytes on it."""
    file, device, testbed = disk

    def strike():
        assert until(lambda: events(run_dir, "done"), 60)
        if what in FOREIGN:
            FOREIGN[what](media, file, device)
            return
        gone(media, file, device)
        assert until(lambda: events(run_dir, "outage") and str(file) not in losetup("--list"), 60)
        file.write_bytes(RANDOM)
        media.attach(file)

    try:
        with Meanwhile(strike), pytest.raises(CampaignError, match=r"vm1: .*B1.*(somebody else|is used by)"):
            measured(testbed, run_dir)
        assert len(lost(run_dir)) == 1, "no further attempt"
        assert len(events(run_dir, "done")) == 1
        for again in (run_dir, tmp_path / "later"):
            with pytest.raises(GuardError, match="B1"):
                measured(testbed, again)
    finally:
        if what == "a partition":
            subprocess.run(["delpart", device, "1"], capture_output=True)
