"""Campaigns on real block devices: they write the disk they were given, and none that changed on the way."""

import subprocess

import pytest
from loops import MIB, SIZE, own_kernels

from hcilib.drive.campaign import campaign
from hcilib.drive.campaign.campaign import run
from hcilib.drive.guard import preflight
from hcilib.drive.guard.guard import GuardError, identify
from hcilib.drive.guard.last_look import LastLook
from hcilib.model.sweeps import sweep
from hcilib.model.system import System

pytestmark = pytest.mark.lab


@pytest.fixture
def own(hosts):
    with own_kernels(hosts.folder):
        yield


PLAN = {"repeats": 1, "iodepth": 4, "vms": 1, "read_runtime_s": 0.5, "write_runtime_s": 0.5, "span_bytes": 8 * MIB,
        "canary": False, "prefill": False}  # fmt: skip
SYSTEM = System(name="real-disk", label="A disk")


def test_a_campaign_writes_the_disk_it_was_given_and_no_other(own, blank, media, hosts, tmp_path):
    file, device, testbed = blank
    neighbour = media.file("neighbour.img")
    media.attach(neighbour)
    results = run(sweep(["1m-write"], **PLAN), testbed, SYSTEM, tmp_path / "run", consent="wipe", progress=False)
    assert results["valid"].tolist() == [True]
    assert results.attrs["missing"] == []
    filled = file.read_bytes()
    assert filled[: 8 * MIB].count(0) < 8 * MIB // 2, "it wrote the span"
    assert filled[8 * MIB :].count(0) == SIZE - 8 * MIB, "and nothing behind it"
    assert neighbour.read_bytes() == bytes(SIZE)
    [job] = {f.read_text() for f in (tmp_path / "run" / "steps").glob("measure*/job.fio")}
    assert "\nfilename=/proc/self/fd/4\nallow_file_create=0\n" in job, "what was judged is what fio opens"
    with hosts.fleet(testbed) as fleet:
        assert identify(fleet, testbed, 1, 1, "wipe")["vm1"]["B1"].path == device, (
            "its own random bytes may be written again"
        )


def test_a_campaign_on_a_disk_with_a_file_system_is_refused_whole(own, blank, tmp_path):
    file, device, testbed = blank
    subprocess.run(["mkfs.ext4", "-qF", device], check=True)
    before = file.read_bytes()
    with pytest.raises(GuardError, match=r"refused to overwrite 1 device\(s\): vm1: B1: loop\d+ carries ext4"):
        run(sweep(["4k-randwrite"], **PLAN), testbed, SYSTEM, tmp_path / "run", consent="wipe", progress=False)
    assert file.read_bytes() == before
    assert not (tmp_path / "run" / "plan.json").exists()


def test_a_disk_lost_on_the_way_costs_its_steps_and_makes_no_file(own, blank, media, tmp_path, monkeypatch):
    _, device, testbed = blank
    before_step = LastLook.before

    # A loop device stays while anybody has it open, as the lease does; a real disk goes.
    monkeypatch.setattr(campaign, "_disks_to_lease", lambda *_: {})

    def lose(look, vms, numjobs):
        if device in media.attached:
            media.detach(device)
        return before_step(look, vms, numjobs)

    monkeypatch.setattr(LastLook, "before", lose)
    plan = sweep(["4k-randread"], **PLAN)
    results = run(plan, testbed, SYSTEM, tmp_path / "run", consent="wipe", progress=False)
    assert results.empty
    assert results.attrs["missing"] == [step.id for step in plan.steps]
    record = (tmp_path / "run" / "failed" / f"{plan.steps[0].id}.1" / "step.json").read_text()
    assert f"B1: {device} ({device.removeprefix('/dev/')}) is another disk now: its disk sequence is" in record


def test_preflight_shows_each_disk_and_why(blank, media, hosts, monkeypatch):
    _, device, _ = blank
    file = media.file("bad.img", SIZE + 4096)
    bad = media.attach(file)
    hosts.give("vm1", "B2", file)
    testbed = hosts.testbed(("vm1", "B1"), ("vm1", "B2"), ("vm1", "B3"))
    plan = sweep(["4k-randwrite"], **PLAN | {"numjobs": 3})
    with hosts.fleet(testbed) as fleet:
        table = preflight.check(fleet, testbed, plan, "no", None)
    rows = table[table["check"].isin(preflight.GUARDED)]
    assert list(zip(rows["host"], rows["check"], rows["ok"], strict=True)) == [
        ("testbed real", "consent", False),
        ("vm1", "device", True),
        ("vm1", "writable", True),
        ("vm1", "device", False),
        ("vm1", "writable", False),
        ("vm1", "device", False),
        ("vm1", "writable", False),
    ]
    details = list(rows["detail"])
    assert details[1:3] == [f"B1: {device} ({device.removeprefix('/dev/')}), {SIZE} bytes", "B1: may be overwritten"]
    assert details[3] == f"B2: {bad} ({bad.removeprefix('/dev/')}), {SIZE + 4096} bytes; the testbed says {SIZE}"
    assert details[6].startswith("B3: no device of this host has this serial")
    assert {"clock", "memory", "governor", "fio", "idle", "server"} <= set(table["check"])
