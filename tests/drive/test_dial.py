"""A drive of known speed: its rate is found from end to end whatever else this machine does, and turned while it
runs."""

import json
import subprocess
from pathlib import Path

import pytest

from hcilab.lab import LabError, dial, lab, opened
from hcilib.model.testbed import Dial, Testbed

pytestmark = pytest.mark.lab
RATE = 2**21  # 512 IOPS of 4 KiB
NODES, VMS, DISK = 2, 4, 2**23
FOUND = 0.04  # of the truth: binomial noise of a mix's reads
PAUSE_S = 0.5  # of a busy machine, for which a drive makes up: its bucket holds as much. A ramp empties it before


def rate_of(testbed, node: str, system: str = "") -> str:
    return (Path(testbed.lab_root) / f"{node}{f'.{system}' if system else ''}.rate").read_text().strip()


@pytest.fixture(scope="module")
def dialled(programs, tmp_path_factory):
    """A lab that serves both systems on disks of their own, behind two drives of 2 MiB/s."""
    drives = Dial(read_bytes_per_s=RATE, write_bytes_per_s=RATE, burst_s=PAUSE_S)
    systems = ("lab-single", "lab-mirror")
    with lab(NODES, VMS, system=systems, disk_bytes=DISK, dial=drives, root=tmp_path_factory.mktemp("dialled")) as bed:
        yield bed


def only(testbed: Testbed, system: str) -> Testbed:
    """The testbed as one of its systems sees it."""
    vms = [vm.model_copy(update={"disks": tuple(d for d in vm.disks if d.system == system)}) for vm in testbed.vms]
    return testbed.model_copy(update={"vms": tuple(vms), "serves": system})


def delivered(testbed: Testbed, system: str, rw: str) -> float:
    """IOPS of all of a system's disks under one fio, whose jobs start together: a fleet's start apart on a busy
    machine."""
    disks = [disk for vm in only(testbed, system).vms for disk in vm.disks]
    argv = ["fio", "--output-format=json", "--name=global", "--ioengine=nbd", f"--rw={rw}", "--rwmixread=70",
            "--bs=4k", "--iodepth=8", f"--size={DISK}", "--time_based=1", "--runtime=3s",
            f"--ramp_time={2000 * PAUSE_S:.0f}ms"]  # fmt: skip
    argv += [option for disk in disks for option in (f"--name={disk.serial}", f"--uri={disk.uri}")]
    done = subprocess.run(argv, cwd=testbed.lab_root, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    return sum(job[ddir]["iops"] for job in found for ddir in ("read", "write"))


def test_what_is_delivered_is_what_was_dialled(dialled):
    """A mirror's reads N R, writes N W / 2; of seven reads to three writes the bucket of reads empties first."""
    drives = NODES * RATE / 4096
    for rw, share in {"randread": 1, "randwrite": 1 / 2, "randrw": 1 / 0.7}.items():
        assert delivered(dialled, "lab-mirror", rw) == pytest.approx(drives * share, rel=FOUND)


def test_a_drive_is_turned_while_it_runs(dialled, tmp_path):
    """node1 at a quarter: a system of one copy, whose reads are of one node each, loses three eighths of its reads."""
    dial(dialled, "node1", read_bytes_per_s=RATE // 4, run_dir=tmp_path)
    try:
        assert delivered(dialled, "lab-single", "randread") == pytest.approx((1 + 1 / 4) * RATE / 4096, rel=FOUND)
    finally:
        dial(dialled, "node1", read_bytes_per_s=RATE)
    [told] = map(json.loads, (tmp_path / "journal.jsonl").read_text().splitlines())
    assert (told["event"], told["node"], told["read_bytes_per_s"]) == ("dial", "node1", RATE // 4)


def test_disks_are_filled_with_the_drives_open_and_then_they_are_as_before(dialled):
    dial(dialled, "node2", read_bytes_per_s=RATE // 2)
    try:
        with opened(dialled):
            assert [rate_of(dialled, node.name) for node in dialled.nodes] == ["0", "0"]
        with pytest.raises(ZeroDivisionError):
            _fail_while_open(dialled)
        assert [rate_of(dialled, node.name) for node in dialled.nodes] == [f"{8 * RATE}", f"{4 * RATE}"]
    finally:
        dial(dialled, "node2", read_bytes_per_s=RATE)


def _fail_while_open(testbed) -> None:
    with opened(testbed):
        _ = 1 / 0


def test_a_rate_this_machine_cannot_serve_is_refused_with_one_that_it_can(programs, tmp_path):
    beyond = {"read_bytes_per_s": 10**11, "write_bytes_per_s": 10**11}
    with (
        pytest.raises(
            LabError,
            match=r"this machine serves [\d,]+ IOPS of 4 KiB .* would let 48,828,125 through: .* to [\d,]+ or less",
        ),
        lab(2, 1, disk_bytes=2**22, dial=beyond, root=tmp_path),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"read_bytes_per_s": 2**22, "write_bytes_per_s": 2**21}, "keeps a bucket for each way, both of one rate"),
        ({"read_bytes_per_s": 1, "write_bytes_per_s": 1}, "should be greater than or equal to 65536"),
        ({"lab-mirror": {"read_bytes_per_s": "4 MB/s", "write_bytes_per_s": RATE}}, "'4 MB/s' is not a size"),
    ],
)
def test_a_dial_that_cannot_be_is_refused_before_anything_is_made(tmp_path, given, said):
    with pytest.raises(LabError) as caught, lab(dial=given, root=tmp_path / "bed"):
        pass
    assert said in str(caught.value)
    assert not (tmp_path / "bed").exists()
