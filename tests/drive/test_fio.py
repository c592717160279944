"""fio's job files, and servers that last as long as their step."""

import time

import pytest
from probes import base_of, listening, processes

from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.launch import fio
from hcilib.plan import Cell, Pattern, Step
from hcilib.testbed import Disk, Fio, Node, Testbed, Vm

MIB = 2**20


def step(pattern: str, numjobs: int = 1, runtime_s: float = 60.0, ramp_s: float = 0.0, rep: int = 1) -> Step:
    return Step("measure", Cell(Pattern.parse(pattern), numjobs, 16, 2), 1, rep, runtime_s, ramp_s)


def real_bed() -> Testbed:
    disks = {
        name: tuple(Disk(serial=f"wwn-{name}{d}", size_bytes=(d + 1) * 100 * MIB) for d in range(2))
        for name in ("vm1", "vm2")
    }
    vms = tuple(Vm(name=name, node="n1", disks=owned) for name, owned in disks.items())
    return Testbed(name="t", nodes=(Node(name="n1"),), vms=vms, fio=Fio(ioengine="io_uring", direct=1))


def sections(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in filter(None, text.splitlines()):
        if line.startswith("["):
            current = found.setdefault(line.strip("[]"), {})
        else:
            key, value = line.split("=", 1)
            assert key not in current, f"{key} twice"
            current[key] = value
    return found


def job(pattern: str, bed=None, span=50 * MIB, vm=0, **options) -> dict[str, dict[str, str]]:
    bed = bed or real_bed()
    paths = {disk.serial: f"/dev/{disk.serial}" for disk in bed.vms[vm].disks}
    return sections(fio.job_text(step(pattern, **options), bed.vms[vm], bed, span, paths))


def test_a_job_says_what_the_pattern_says():
    [options] = job("4k-randrw70", runtime_s=90.5, ramp_s=2.25).values()
    expected = {"ioengine": "io_uring", "filename": "/dev/wwn-vm10", "rw": "randrw", "rwmixread": "70", "bs": "4096",
                "iodepth": "16", "size": str(50 * MIB), "direct": "1", "time_based": "1", "runtime": "90500ms", "ramp_time": "2250ms",
                "lat_percentiles": "1"}  # fmt: skip
    assert {k: options.get(k) for k in expected} == expected
    assert not {"sync", "rate", "numjobs"} & options.keys()


def test_a_disk_the_guard_did_not_find_is_not_run_on():
    bed = real_bed()
    with pytest.raises(fio.FioError, match="vm1: disk wwn-vm11"):
        fio.job_text(step("4k-read", numjobs=2), bed.vms[0], bed, MIB, {"wwn-vm10": "/dev/sdb"})


def test_nothing_stands_in_global():
    assert list(job("1m-write", numjobs=2)) == ["1m-write.j0", "1m-write.j1"]


def test_one_job_a_disk_in_turn():
    files = [options["filename"][-8:] for options in job("4k-randread", numjobs=3).values()]
    assert files == ["wwn-vm10", "wwn-vm11", "wwn-vm10"]


def test_an_unmixed_pattern_has_no_share_and_sync_is_said():
    [options] = job("4k-randwrite-sync").values()
    assert "rwmixread" not in options
    assert options["sync"] == "1"


def test_the_span_ends_where_the_disk_ends():
    sizes = [options["size"] for options in job("4k-randread", numjobs=2, span=150 * MIB).values()]
    assert sizes == [str(100 * MIB), str(150 * MIB)]


@pytest.mark.parametrize(
    ("pattern", "numjobs", "caps"),
    [
        ("1m-read-rate256m", 1, (256 * MIB, 0)),
        ("1m-write-rate256m", 4, (0, 64 * MIB)),
        ("4k-randrw75-rate8m", 2, (3 * MIB, MIB)),
        ("4k-read", 1, (0, 0)),
    ],
)
def test_a_cap_is_the_vms_over_its_jobs_and_directions(pattern, numjobs, caps):
    assert fio.job_caps(step(pattern, numjobs=numjobs)) == caps
    for options in job(pattern, numjobs=numjobs).values():
        assert options.get("rate") == (f"{caps[0]},{caps[1]}" if any(caps) else None)


def test_seeds_differ_by_step_vm_and_job_and_are_the_same_again():
    seed = {
        options["randseed"]
        for vm in (0, 1)
        for rep in (1, 2)
        for options in job("4k-randread", vm=vm, rep=rep, numjobs=2).values()
    }
    assert len(seed) == 8
    assert job("4k-randread") == job("4k-randread")


def test_a_prefill_runs_until_the_span_is_full():
    [options] = job("1m-write", runtime_s=0.0).values()
    assert not {"time_based", "runtime"} & options.keys()


def test_only_a_long_run_is_logged():
    assert "write_iops_log" in next(iter(job("4k-read", runtime_s=60).values()))
    assert "write_iops_log" not in next(iter(job("4k-read", runtime_s=2).values()))


def test_the_deadline_covers_runtime_ramp_and_fill(monkeypatch):
    monkeypatch.setattr(fio, "GRACE_S", 30.0)
    vms = real_bed().vms
    assert fio.deadline_s(step("4k-read", runtime_s=600, ramp_s=60), vms, 10**12) == 690
    filled = 100 * MIB + 150 * MIB
    assert fio.deadline_s(step("1m-write", numjobs=2, runtime_s=0), vms, 150 * MIB) == pytest.approx(
        30 + filled / fio.SLOWEST_FILL
    )


@pytest.mark.lab
def test_a_server_started_for_a_step_ends_with_it(bed):
    elsewhere = bed.model_copy(update={"fio": bed.fio.model_copy(update={"port": 8766})})
    mine = [f"{vm.address}:8766" for vm in bed.vms[:2]]
    with Fleet(elsewhere) as fleet:
        with fio.servers(fleet, elsewhere, bed.vms[:2], limit_s=60) as started:
            assert started == ["vm1", "vm2"]
            assert set(mine) <= set(listening(base_of(bed)))
            with fio.servers(fleet, elsewhere, bed.vms[:1], limit_s=60) as again:
                assert again == [], "one that answers is used as it is"
            assert set(mine) <= set(listening(base_of(bed))), "and left as it is"
        assert not set(mine) & set(listening(base_of(bed)))
    assert len([a for a in listening(base_of(bed)) if a.endswith(":8765")]) == len(bed.vms), (
        "the lab's own are untouched"
    )


@pytest.mark.lab
def test_a_server_never_outlives_its_limit(bed, monkeypatch):
    monkeypatch.setattr(fio, "BEYOND_S", 0)  # of the client's deadline: not waited for here
    elsewhere = bed.model_copy(update={"fio": bed.fio.model_copy(update={"port": 8767})})
    with Fleet(elsewhere) as fleet, fio.servers(fleet, elsewhere, bed.vms[:1], limit_s=1):
        time.sleep(1.6)
        assert not processes(f"--server=ip:{bed.vms[0].address},8767"), "ended by timeout on the far side"


@pytest.mark.lab
def test_a_server_that_cannot_start_is_named_by_its_vm(bed, monkeypatch):
    monkeypatch.setattr(fio, "PATIENCE_S", 0.5)
    broken = bed.model_copy(update={"fio": bed.fio.model_copy(update={"port": 8768, "binary": "/no/such fio"})})
    said = r"no fio server on vm1 \(127\..*:8768\): it was started and does not answer"
    with (
        Fleet(broken) as fleet,
        pytest.raises(fio.FioError, match=said),
        fio.servers(fleet, broken, bed.vms[:1], limit_s=60),
    ):
        pass
