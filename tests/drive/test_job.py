"""fio's job files: what a step becomes, and that nothing else is ever handed to fio."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain import plain_bed
from pydantic import ValidationError

from hcilib.drive.launch import job as job_module
from hcilib.drive.launch.job import GATE, FioError, deadline_s, job_caps, job_text, read_job, verify
from hcilib.model.patterns import Pattern
from hcilib.model.plan import Content, Step
from hcilib.model.testbed import ENGINES, Fio, Testbed
from hcilib.model.workload import Cell

MIB = 2**20


def step(pattern: str, numjobs: int = 1, runtime_s: float = 60.0, ramp_s: float = 0.0, rep: int = 1) -> Step:
    return Step("measure", Cell(Pattern.parse(pattern), numjobs, 16, 2), 1, rep, runtime_s, ramp_s)


def real_bed() -> Testbed:
    disks = {name: {f"wwn-{name}{d}": (d + 1) * 100 * MIB for d in range(2)} for name in ("vm1", "vm2")}
    return plain_bed(disks, fio=Fio(ioengine="io_uring", direct=1))


PATHS = {f"wwn-vm{v}{d}": f"/dev/disk/by-id/wwn-vm{v}{d}" for v in (1, 2) for d in range(2)}


def job(pattern: str, bed=None, span=50 * MIB, vm=0, **options) -> dict[str, dict[str, str]]:
    bed = bed or real_bed()
    return read_job(job_text(step(pattern, **options), bed.vms[vm], bed, span, PATHS))


def test_a_job_says_what_the_pattern_says():
    [options] = job("4k-randrw70", runtime_s=90.5, ramp_s=2.25).values()
    expected = {
        "ioengine": "io_uring",
        "filename": PATHS["wwn-vm10"],
        "rw": "randrw",
        "rwmixread": "70",
        "bs": "4096",
        "iodepth": "16",
        "size": str(50 * MIB),
        "direct": "1",
        "time_based": "1",
        "runtime": "90500ms",
        "ramp_time": "2250ms",
        "exec_prerun": GATE,
        "lat_percentiles": "1",
    }
    assert {k: options.get(k) for k in expected} == expected
    assert not {"sync", "rate", "numjobs"} & options.keys()


def test_a_disk_the_guard_did_not_find_is_not_run_on():
    bed = real_bed()
    with pytest.raises(FioError, match="vm1: disk wwn-vm11"):
        job_text(step("4k-read", numjobs=2), bed.vms[0], bed, MIB, {"wwn-vm10": "/dev/sdb"})


def test_each_job_has_a_section_a_disk_in_turn_and_a_part_of_its_own_where_it_is_sequential():
    """Nothing stands in [global]; a span ends where its disk ends."""
    assert list(job("1m-write", numjobs=2)) == ["1m-write.j0", "1m-write.j1"]
    own = [(o["filename"][-8:], o.get("offset"), o["size"]) for o in job("1m-read", numjobs=4).values()]
    part = str(25 * MIB)
    starts = [None, None, part, part]
    assert own == [(disk, start, part) for disk, start in zip(("wwn-vm10", "wwn-vm11") * 2, starts, strict=True)]
    assert {o["size"] for o in job("4k-randread", numjobs=4).values()} == {str(50 * MIB)}
    sizes = [options["size"] for options in job("4k-randread", numjobs=2, span=150 * MIB).values()]
    assert sizes == [str(100 * MIB), str(150 * MIB)]


def test_a_flush_after_each_write_is_said_and_read_back():
    [synced] = job("4k-randwrite-sync").values()
    assert ("rwmixread" in synced, synced["sync"]) == (False, "1")
    [options] = job("4k-randwrite-fdatasync").values()
    assert (options["fdatasync"], "sync" in options) == ("1", False)
    nbd = real_bed().model_copy(update={"fio": Fio(ioengine="nbd")})
    [served] = job("4k-randwrite-fdatasync", nbd).values()
    assert (served.get("fsync"), "fdatasync" in served) == ("1", False), "fio's nbd engine refuses fdatasync"
    bed, of = real_bed(), step("4k-randwrite-fdatasync")
    text = job_text(of, bed.vms[0], bed, 50 * MIB, PATHS)
    for other in ("", "sync=1\n"):
        with pytest.raises(FioError, match=r"fdatasync|'sync'"):
            verify(text.replace("fdatasync=1\n", other), of, bed.vms[0], bed, 50 * MIB, PATHS)


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
    of = step(pattern, numjobs=numjobs)
    assert (job_caps(of, cap) if (cap := of.cell.pattern.rate_bytes) else (0, 0)) == caps
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


def test_a_prefill_has_no_runtime_only_a_long_run_is_logged_and_one_with_events_is_sampled_finer():
    [filling] = job("1m-write", runtime_s=0.0).values()
    assert not {"time_based", "runtime"} & filling.keys()
    for seconds, is_logged in ((60, True), (2, False)):
        [options] = job("4k-read", runtime_s=seconds).values()
        assert ("write_iops_log" in options) == is_logged
    plain, bed = step("4k-randwrite"), real_bed()
    disturbed = replace(plain, cell=replace(plain.cell, events=((10.0, "cut-link"),)))
    for this, interval in ((plain, "500"), (disturbed, "100")):
        [options] = read_job(job_text(this, bed.vms[0], bed, 50 * MIB, PATHS)).values()
        assert options["log_avg_msec"] == interval


def test_the_deadline_covers_runtime_and_ramp_and_leaves_a_slow_disk_all_the_time_it_needs():
    vms = real_bed().vms
    assert deadline_s(step("4k-read", runtime_s=600, ramp_s=60), vms, 10**12) == 690
    filled = 100 * MIB + 150 * MIB
    assert deadline_s(step("1m-write", numjobs=2, runtime_s=0), vms, 150 * MIB) > filled / 100e3


# What reaches fio

STEPS = [
    step("4k-randrw70", 3, 90.5, 2.25),
    step("1m-read", 4),
    step("4k-randwrite-sync"),
    step("1m-write-rate8m", 2, 0.5),
    replace(step("1m-write", 4, 0.0), kind="prefill"),
]


@pytest.mark.parametrize("of", STEPS, ids=lambda of: of.id)
@pytest.mark.parametrize("content", [None, Content(40, 50)])
def test_what_is_written_is_what_the_plan_asks(of, content):
    bed = real_bed()
    for disk in ("uri", "rbd", "path"):
        vm = bed.vms[0]
        if disk != "path":
            uri = {"uri": "nbd+unix:///vm1-d0?socket=node1.sock", "rbd": "rbd://hci-1/box/vm1-d0"}[disk]
            vm = vm.model_copy(update={"disks": tuple(d.model_copy(update={"uri": uri}) for d in vm.disks)})
        verify(job_text(of, vm, bed, 50 * MIB, PATHS, content), of, vm, bed, 50 * MIB, PATHS, content)
    colon = dict.fromkeys(PATHS, "/dev/disk/by-path/pci-0000:00:1f")
    verify(job_text(of, bed.vms[0], bed, MIB * 50, colon, content), of, bed.vms[0], bed, MIB * 50, colon, content)


ATTACKS = {
    "filename of another device": (r"^filename=.*$", "filename=/dev/loop2", "'filename'"),
    "one byte more": (r"^size=\d+$", f"size={50 * MIB + 1}", "'size'"),
    "writes for reads": (r"^rw=randread$", "rw=randwrite", "'rw'"),
    "files of its own": (r"^allow_file_create=0\n", "", "'allow_file_create'"),
    "an option twice": (r"^rw=randread$", "rw=randread\nrw=randread", "'rw' is given twice"),
    "a command": (r"^rw=", "exec_prerun=touch /tmp/x\nrw=", "'exec_prerun'"),
    "a file that is read": (r"^rw=", "include /etc/fio.inc\nrw=", "'include /etc/fio.inc'"),
    "a comment that cuts a name": (r"^(filename=.*)$", r"\1;x", "'filename'"),
    "blanks in front": (r"^rw=", " rw=", "' rw'"),
    "another line's end": (r"^rw=", "x=1\rrw=", r"'x'"),
    "a section more": (r"\Z", "[z]\nioengine=psync\n", "sections|'ioengine'"),
    "one for all": (r"\A", "[global]\nrw=write\n", "global"),
    "a section less": (r"(?s)\A.*\Z", "", "sections"),
    "no section": (r"\A", "rw=write\n", "'rw'"),
    "other digits": (r"^iodepth=16$", "iodepth=1٦", "'iodepth'"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_job_file_that_holds_anything_else_is_refused_and_says_where(attack):
    bed, of = real_bed(), step("4k-randread")
    text = job_text(of, bed.vms[0], bed, 50 * MIB, PATHS)
    pattern, by, said = ATTACKS[attack]
    hostile, times = re.subn(pattern, by, text, flags=re.MULTILINE)
    assert times >= 1
    with pytest.raises(FioError, match=rf"vm1: its job file.*(?:{said}).*nothing was started"):
        verify(hostile, of, bed.vms[0], bed, 50 * MIB, PATHS)


BEYOND = {
    "another disk": ({"filename": "/dev/disk/by-id/wwn-vm11"}, "wwn-vm10"),
    "more than one disk": ({"filename": r"/dev/disk/by-id/wwn-vm10:/dev/loop2"}, "wwn-vm10"),
    "an image of another": ({"filename": None, "clustername": "hci-1", "pool": "box", "rbdname": "x"}, "wwn-vm10"),
    "behind the span": ({"offset": 4096}, rf"byte {50 * MIB + 4096} of disk wwn-vm10, of which {50 * MIB}"),
    "more than the span": ({"size": 51 * MIB}, rf"byte {51 * MIB} of disk"),
    "writes": ({"rw": "randwrite"}, "writes to disk wwn-vm10, from which the plan reads"),
}


@pytest.mark.parametrize("way", BEYOND)
def test_a_wrong_option_of_ours_is_refused_too(way, monkeypatch):
    """What is overwritten is worked out a second time, from the file back to the disk."""
    wrong, said = BEYOND[way]
    real, bed, of = job_module._options, real_bed(), step("4k-randread")
    made = lambda *of: {name: value for name, value in (real(*of) | wrong).items() if value is not None}  # noqa: E731
    monkeypatch.setattr(job_module, "_options", made)
    text = job_text(of, bed.vms[0], bed, 50 * MIB, PATHS)
    with pytest.raises(FioError, match=rf"vm1: its job file: section .*{said}.*nothing was started"):
        verify(text, of, bed.vms[0], bed, 50 * MIB, PATHS)


@given(st.text(max_size=30), st.sampled_from(["ioengine", "serial", "uri", "path"]))
def test_no_text_of_a_testbed_becomes_more_than_its_own_option(text, field):
    """Whatever a field holds, the file is either exactly the plan's, option for option, or refused."""
    bed, of = real_bed(), step("4k-randread")
    vm, paths = bed.vms[0].model_copy(update={"disks": bed.vms[0].disks[:1]}), dict(PATHS)
    if field == "ioengine":
        bed = bed.model_copy(update={"fio": bed.fio.model_copy(update={"ioengine": text})})
    elif field == "path":
        paths = dict.fromkeys(PATHS, text)
    else:
        vm = vm.model_copy(update={"disks": (vm.disks[0].model_copy(update={field: text}),)})
    try:
        written = job_text(of, vm, bed, MIB, paths)
        verify(written, of, vm, bed, MIB, paths)
    except (FioError, ValueError):
        return
    assert written.isascii()
    assert not set(written.replace(f"exec_prerun={GATE}\n", "")) & set(";#$`()'\"<>|*{} \t\r\x0b\x0c")
    [options] = read_job(written).values()
    assert options["ioengine"] in ENGINES
    assert options.get("filename", "").replace("\\:", ":") in ("", paths.get(vm.disks[0].serial, ""))


@pytest.mark.parametrize(
    ("field", "given", "said"),
    [("ioengine", ("external:/x.so", "null", "mmap", "exec", "psync ", "Psync", ""),
      "expected one of psync, libaio, io_uring, nbd, rbd"),
     ("binary", ("", "sh", "./fio", "/x/../fio", "fio;id", "fio x", "-fio", "fio\n", "$(id)fio", "/x/fio/", "fi\u00f3"),
      "expected a program called fio")],
)  # fmt: skip
def test_a_text_that_is_no_engine_or_no_fio_is_refused(field, given, said):
    for text in given:
        with pytest.raises(ValidationError, match=said):
            Fio(**{field: text})
    for binary in ("fio", "fio-3.36", "/opt/fio-3.36/bin/fio", "/usr/local/bin/fio_x"):
        assert Fio(binary=binary).binary == binary
