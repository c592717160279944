"""Campaigns on real block devices: they write the disk they were given, and none that changed on the way."""

import json
import subprocess
from types import SimpleNamespace

import pandas as pd
import pytest
from intrusions import by
from loops import MIB, SIZE, identified, mounted
from plain import plain_bed, run, short_plan
from probes import mkfs

import hcilib as hci
from hcilib.drive.campaign import campaign
from hcilib.drive.campaign.campaign import CampaignError
from hcilib.drive.campaign.written import WriteLimit, written_to
from hcilib.drive.guard import preflight
from hcilib.drive.launch import job
from hcilib.model.patterns import PlanError
from hcilib.model.system import System

pytestmark = pytest.mark.lab


SYSTEM = System(name="real-disk", label="A disk")


def test_a_campaign_writes_the_disk_it_was_given_and_no_other(own, blank, media, hosts, run_dir):
    file, device, testbed = blank
    neighbour = media.file("neighbour.img")
    media.attach(neighbour)
    results = run(short_plan(["1m-write"]), testbed, SYSTEM, run_dir, consent="wipe")
    assert results["valid"].tolist() == [True]
    assert results.attrs["missing"] == []
    filled = file.read_bytes()
    assert filled[: 8 * MIB].count(0) < 8 * MIB // 2, "it wrote the span"
    assert filled[8 * MIB :].count(0) == SIZE - 8 * MIB, "and nothing behind it"
    assert neighbour.read_bytes() == bytes(SIZE)
    [job] = {f.read_text() for f in (run_dir / "steps").glob("measure*/job.fio")}
    assert "\nfilename=/proc/self/fd/100\nallow_file_create=0\n" in job, "what was judged is what fio opens"
    with hosts.fleet(testbed) as fleet:
        assert identified(fleet, testbed)["vm1"]["B1"].path == device, "its own random bytes may be written again"


def test_preflight_shows_each_disk_and_why(blank, media, hosts, monkeypatch):
    _, device, _ = blank
    file = media.file("bad.img", SIZE + 4096)
    bad = media.attach(file)
    hosts.give("vm1", "B2", file)
    testbed = hosts.testbed(("vm1", "B1"), ("vm1", "B2"), ("vm1", "B3"))
    plan = short_plan(["4k-randwrite"], numjobs=3)
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
    assert details[1] == f"B1: {device} ({device.removeprefix('/dev/')}), {SIZE} bytes"
    assert details[2].startswith("B1: may be overwritten"), "a process that has just ended is hidden too"
    assert details[3] == f"B2: {bad} ({bad.removeprefix('/dev/')}), {SIZE + 4096} bytes; the testbed says {SIZE}"
    assert details[6].startswith("B3: no device of this host has this serial")
    assert {"clock", "memory", "governor", "fio", "idle", "server"} <= set(table["check"])


@pytest.mark.parametrize("launcher", ["per-host", pytest.param("client-server", marks=pytest.mark.deep)])
def test_a_campaign_that_only_reads_needs_no_consent_and_leaves_a_mounted_disk_as_it_is(
    own, blank, tmp_path, run_dir, launcher
):
    file, device, testbed = blank
    testbed = by(testbed.model_copy(update={"consent": None}), launcher)
    mkfs(device)
    with mounted(device, tmp_path / "mnt") as where:
        (where / "precious").write_text("precious")
        subprocess.run(["mount", "-o", "remount,ro", where], check=True)  # ext4 itself writes now and then
        before = file.read_bytes()
        results = run(short_plan(readonly=True), testbed, SYSTEM, run_dir)
        assert results["valid"].tolist() == [True]
        assert file.read_bytes() == before
    assert not (run_dir / "facts" / "disks").exists()


@pytest.mark.parametrize("launcher", ["per-host", "client-server"])
def test_fio_itself_refuses_to_write_in_a_campaign_that_only_reads(own, blank, run_dir, launcher, monkeypatch):
    """Should a job that writes ever come past the plan, the guard and the parser of job files."""
    file, _, testbed = blank
    real = job.job_text
    monkeypatch.setattr(job, "job_text", lambda *of: real(*of).replace("rw=randread", "rw=randwrite"))
    monkeypatch.setattr(job, "verify", lambda *_: None)
    monkeypatch.setattr(campaign, "ATTEMPTS", 1)
    results = run(short_plan(readonly=True), by(testbed, launcher), SYSTEM, run_dir)
    assert results.empty
    assert file.read_bytes() == bytes(SIZE)


@pytest.mark.parametrize(
    ("patterns", "more", "said"),
    [
        (["4k-randread", "4k-randrw70"], {}, "readonly: 4k-randrw70 writes"),
        (["4k-randread"], {"prefill": True}, "readonly: a prefill writes; set prefill: false"),
        (["4k-randread"], {"events": [{1: "cut-link"}], "read_runtime_s": 10}, "readonly: events"),
    ],
)
def test_what_writes_is_refused_before_a_host_is_asked(patterns, more, said):
    with pytest.raises(PlanError, match=said):
        short_plan(patterns, readonly=True, **more)


def test_no_more_is_written_than_the_testbed_allows(own, blank, run_dir):
    _, _, testbed = blank
    plan = short_plan(["1m-write"], repeats=2, prefill=True)

    def measured(limit_mib: int | None):
        limited = testbed.model_copy(update={"most_bytes_written": limit_mib and limit_mib * MIB})
        return run(plan, limited, SYSTEM, run_dir, consent="wipe")

    with pytest.raises(CampaignError, match=r"most_bytes_written 7,340,032; 0 are written and prefill"):
        measured(7)
    assert not list((run_dir / "steps").iterdir())
    for limit_mib in (9, 10):
        with pytest.raises(CampaignError, match=rf"; {limit_mib * MIB:,} are written and measure-b"):
            measured(limit_mib)
        results = hci.read_results(run_dir)
        assert results["valid"].tolist() == [False]
        assert "ceiling-reached" in results["warnings"].iloc[0].split()
        if limit_mib == 9:
            assert file_bytes(run_dir) == 9 * MIB
    assert measured(None)["valid"].tolist() == [True] * 2


def file_bytes(run_dir) -> int:
    """Written in all, as the kernel counted."""
    records = (json.loads(file.read_text()) for file in run_dir.glob("*/*/step.json"))
    return sum(record["bytes_written"] for record in records)


@pytest.mark.parametrize(
    ("launcher", "pattern"),
    [
        ("per-host", "4k-randwrite"),
        ("per-host", "64k-write"),
        ("per-host", "4k-randrw70"),
        ("client-server", "64k-write"),
    ],
)
def test_a_ceiling_holds_over_jobs_and_run_directories(own, blank, tmp_path, launcher, pattern):
    _, _, testbed = blank
    bed = by(testbed.model_copy(update={"most_bytes_written": 4 * MIB}), launcher)
    plan = short_plan([pattern], numjobs=3)
    results = run(plan, bed, SYSTEM, tmp_path / "first", consent="wipe")
    assert results["valid"].tolist() == [False]
    [record] = (json.loads(file.read_text()) for file in tmp_path.glob("first/steps/*/step.json"))
    assert record["reason"] == "ceiling reached"
    assert not list(tmp_path.glob("first/failed/*"))
    most = 4 * MIB * (0.35 if "rw70" in pattern else 1)
    assert most / 2 < record["bytes_written"] <= most, "as the kernel counted"
    [job] = {file.read_text() for file in tmp_path.glob("first/steps/*/job.fio")}
    assert "time_based" not in job
    if "rw70" not in pattern:
        with pytest.raises(CampaignError, match=f"{record['bytes_written']:,} are written"):
            run(plan, bed, SYSTEM, tmp_path / "second", consent="wipe")


def test_what_failed_attempts_wrote_counts_when_no_step_is_done(blank, tmp_path):
    _, _, testbed = blank
    (tmp_path / "steps").mkdir()
    (attempt := tmp_path / "failed" / "prefill-1.1").mkdir(parents=True)
    (attempt / "step.json").write_text(json.dumps({"bytes_written": 6 * MIB}))
    limited = testbed.model_copy(update={"most_bytes_written": 8 * MIB})
    [step, *_] = short_plan(["1m-write"], prefill=True).steps
    with pytest.raises(CampaignError, match=f"; {6 * MIB:,} are written and prefill"):
        WriteLimit(SimpleNamespace(path=tmp_path), limited).require(step, limited, 4 * MIB)


def test_three_jobs_on_two_disks_are_counted_to_the_disk_they_wrote():
    bed = plain_bed({"vm1": {"a": 4096, "b": 1024}})
    rows = [(f"4k-randrw70.j{n}", ddir, size) for n, *both in ((0, 8, 400), (1, 0, 40), (2, 4, 100))
            for ddir, size in zip(("read", "write"), both, strict=True)]  # fmt: skip
    reports = pd.DataFrame(rows, columns=["job", "ddir", "io_bytes"]).assign(hostname=bed.vms[0].target)
    written = written_to([{"vm": "vm1", "hostname": bed.vms[0].target}], reports, bed)
    assert written == {("vm1", "a"): 500, ("vm1", "b"): 40}


@pytest.mark.parametrize("second", ["no answer within 30 s", {"7:0": "/dev/loop0"}])
def test_the_reason_why_a_vms_disks_are_not_known_is_kept_beside_another_systems(monkeypatch, second):
    answers = iter([{"vm1": "no answer within 60 s"}, {"vm1": second}])
    monkeypatch.setattr(campaign.guard, "disks_to_lease", lambda *_: next(answers))
    two = [SimpleNamespace(testbed=None)] * 2
    plan = SimpleNamespace(vms=1, numjobs=1)
    assert campaign._disks_to_lease(None, two, plan, ["vm1"]) == {"vm1": "no answer within 60 s"}
