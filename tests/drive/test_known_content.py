"""Whose bytes lie on a disk: real loop devices, real campaigns, and somebody who writes beside them."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from loops import MIB, RANDOM, SIZE, attacked
from plain import run, short_plan

from hcilib import read_fio
from hcilib.drive import keeper
from hcilib.drive.campaign import campaign
from hcilib.drive.campaign.campaign import CampaignError
from hcilib.drive.guard import guard
from hcilib.drive.guard.content import PLACES, Memory, require_known
from hcilib.drive.guard.guard import GuardError
from hcilib.drive.guard.last_look import LastLook
from hcilib.drive.guard.preflight import PreflightError
from hcilib.drive.hosts import lease
from hcilib.model.system import System

pytestmark = pytest.mark.lab
SYSTEM = System(name="real-disk", label="A disk")
STRANGE, MUCH = random.Random(42).randbytes(4096), random.Random(43).randbytes(2**20)


def measured(testbed, run_dir, *patterns, **plan):
    short = short_plan(patterns or ["4k-randwrite"], **{"repeats": 2, **plan})
    return run(short, testbed, SYSTEM, run_dir, consent="wipe")


def put(device: str, offset: int, data: bytes = STRANGE) -> None:
    with open(device, "r+b") as disk:
        disk.seek(offset)
        disk.write(data)


def at(device: str, offset: int, size: int = len(STRANGE)) -> bytes:
    with open(device, "rb") as disk:
        disk.seek(offset)
        return disk.read(size)


def refusal(error) -> str:
    [refused] = error.value.refusals
    return str(refused)


# At the start


def judged(held, memory) -> str:
    """Why the disk may not be written, by what lies on it and what is remembered."""
    try:
        require_known(held.lease, held.look.guarded, memory)
    except GuardError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("erased", [b"\0", b"\xff"])
def test_a_blank_disk_is_known_by_its_sample(blank, held, tmp_path, erased):
    memory = Memory(blank[2], "one", tmp_path)
    put(held.device, 0, erased * SIZE)
    assert judged(held, memory) == ""
    put(held.device, 5 * MIB, MUCH)
    assert "holds data that carries no signature" in judged(held, memory)


@pytest.mark.needs("blkdiscard")
def test_data_without_a_signature_is_refused_until_it_is_cleared(own, blank, run_dir):
    """N4: dm-crypt without a header, a database on the raw disk. What a campaign left the next may overwrite."""
    file, device, testbed = blank
    put(device, 0, RANDOM)
    before = file.read_bytes()
    said = r"refused to overwrite 1 device\(s\): vm1: B1: loop\d+ holds data that carries no signature"
    with pytest.raises(GuardError, match=said) as error:
        measured(testbed, run_dir)
    assert file.read_bytes() == before
    assert not (run_dir / "plan.json").exists()
    [clear] = re.findall("`(blkdiscard --zeroout .*?)`", refusal(error))
    subprocess.run([*clear.split()[:-1], device], check=True)
    for name in ("run", "next"):
        assert measured(testbed, run_dir.with_name(name))["valid"].all()


def test_a_disk_that_was_written_when_its_controller_died_is_its_own_campaigns_alone(blank, held, tmp_path):
    mine, other = (Memory(blank[2], name, tmp_path / name) for name in ("mine", "other"))
    put(held.device, 0, RANDOM)
    mine.note("vm1", "B1", None)
    assert judged(held, mine) == ""
    assert f"by the campaign in {tmp_path}/mine when its controller ended" in judged(held, other)


def test_a_disk_of_the_same_serial_elsewhere_is_another(blank, held, tmp_path):
    """`drive-scsi1` is what every QEMU guest calls its second disk."""
    elsewhere = blank[2].model_copy(update={"name": "elsewhere"})
    put(held.device, 0, RANDOM)
    Memory(elsewhere, "mine", tmp_path).note("vm1", "B1", None)
    assert "holds data that carries no signature" in judged(held, Memory(blank[2], "mine", tmp_path))


def test_a_disk_that_cannot_be_asked_is_refused(blank, held, tmp_path):
    held.lease.release("vm1")
    assert "its content could not be sampled" in judged(held, Memory(blank[2], "mine", tmp_path))


LEFT = {"ends": "a", "blocks": "b", "counted": None}
NOTED = {"seed": 7, "places": PLACES, "left": LEFT}
DAMAGED = {
    "an older form": {"sample": {"seed": 7, "blocks": 4096, "digest": "a" * 32}},
    "nothing of what lay there": {"noted": {"seed": 7, "places": PLACES}},
    "no ends": {"noted": NOTED | {"left": {"blocks": "b", "counted": None}}},
    "no places": {"noted": NOTED | {"places": 0}},
}


def test_a_note_that_is_not_whole_knows_nothing(blank, held, run_dir):
    """A disk is compared with all that was noted, or it is somebody's."""
    memory = Memory(blank[2], "mine", run_dir)
    memory.note("vm1", "B1", NOTED)
    assert memory.of("vm1", "B1").noted == NOTED
    put(held.device, 0, RANDOM)
    for what, damaged in DAMAGED.items():
        note = {"testbed": blank[2].name, "campaign": "mine", "at_s": 1.0, **damaged}
        (run_dir / "left/vm1/B1.json").write_text(json.dumps(note))
        assert memory.of("vm1", "B1") is None, what
        assert "that no campaign here left there" in judged(held, memory), what
    [answer] = held.lease.ask("look", {"vm1": {"B1": {"size": SIZE, "seed": 7, "places": 1, "left": {}}}}).values()
    assert isinstance(answer, OSError), "nor does the host take half of it for a blank disk's"


def test_another_controller_resumes_a_run_directory_that_was_copied(own, blank, tmp_path, monkeypatch):
    """D5: nothing that it needs lies in the first one's home folder."""
    _, device, testbed = blank
    measure, begun = campaign._measure, []

    def stopped(*of):
        begun.append(1)
        return measure(*of) if len(begun) < 2 else os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(campaign, "_measure", stopped)
        with pytest.raises(KeyboardInterrupt):
            measured(testbed, tmp_path / "first" / "run")
    shutil.copytree(tmp_path / "first" / "run", tmp_path / "second" / "run")
    shutil.rmtree(tmp_path / "first")
    for home in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(home, str(tmp_path / "home"))
    assert len(measured(testbed, tmp_path / "second" / "run")) == 2
    assert len(begun) == 2, "what was finished is not measured again"
    put(device, 3 * MIB, MUCH)
    with pytest.raises(GuardError, match=r"since the campaign in .*second/run left it"):
        measured(testbed, tmp_path / "second" / "other")
    with pytest.raises(GuardError, match=r"no campaign here left there.*blkdiscard"):
        measured(testbed, tmp_path / "third" / "run")


# Between steps


@pytest.mark.parametrize("offset", [0, 3 * MIB, SIZE - 4096])
def test_one_foreign_block_anywhere_is_seen_before_the_next_step(held, offset):
    held.fill()
    assert held.said() == "started"
    put(held.device, offset)
    for _ in range(2):
        assert "was written by somebody else since our last step" in held.said()
    assert at(held.device, offset) == STRANGE


SAME = RANDOM[3 * MIB : 3 * MIB + 4096]


def through_a_loop(device: str, media) -> None:
    upper = media.attach(device, "--offset", str(2 * MIB))
    put(upper, MIB, SAME)
    media.detach(upper)


def through_a_partition(device: str, media) -> None:
    """One that is mapped without a table, and gone at the next look."""
    done = subprocess.run(["addpart", device, "1", "4096", "4096"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"addpart: {done.stderr.strip()}")
    put(f"{device}p1", MIB, SAME)
    subprocess.run(["delpart", device, "1"], check=True)


@pytest.mark.parametrize(
    "write",
    [
        lambda device, media: put(device, 3 * MIB, SAME),
        through_a_loop,
        through_a_partition,
        pytest.param(
            lambda device, _: subprocess.run(["blkdiscard", "-f", "-o", "3M", "-l", "4096", device], check=True),
            marks=pytest.mark.needs("blkdiscard"),
        ),
    ],
    ids=["a block", "a loop device", "a partition", "a discard"],
)
def test_a_write_that_leaves_what_was_there_is_seen_by_the_kernels_count(held, media, write):
    """What is held stays open, so whoever closes it after a write may leave the block in the cache."""
    held.fill()
    write(held.device, media)
    assert re.search("since our last step: .*8 (sectors written|discarded)", held.said())


@pytest.mark.parametrize("through_cache", [False, True])
def test_where_the_count_says_nothing_the_sample_decides(blank, hosts, through_cache):
    """After a restart the machine counts from zero; what goes through a cache is counted when it leaves it."""
    file, device, testbed = blank
    with attacked(hosts, testbed, device, file, through_cache=through_cache) as held:
        held.fill()
        noted = held.look._left["vm1", "B1"]
        if not through_cache:
            held.left["counted"][0] = "another boot"
        draw = random.Random(noted["seed"])
        seen = {int(draw.random() * SIZE // 4096) for _ in range(noted["places"])}
        inside = range(2 * MIB // 4096, (SIZE - 2 * MIB) // 4096)
        put(device, 4096 * next(n for n in inside if n not in seen))
        assert held.said() == "started", "a block beside all places"
        put(device, 4096 * next(n for n in inside if n in seen))
        assert "was written by somebody else since our last step" in held.said()


def test_what_the_look_refused_is_not_ours_at_the_next_one(own, blank, tmp_path, run_dir, monkeypatch):
    """An attempt that never wrote notes nothing: else somebody's bytes would pass for ours at the second attempt."""
    _, device, testbed = blank
    before_step, looks = LastLook.before, []

    def strike(look, vms, numjobs, **how):
        looks.append(1)
        if len(looks) == 2:
            put(device, 3 * MIB)
        return before_step(look, vms, numjobs, **how)

    monkeypatch.setattr(LastLook, "before", strike)
    with pytest.raises(CampaignError, match=r"vm1: .*B1: .* somebody else"):
        measured(testbed, run_dir)
    assert len(list((run_dir / "failed").iterdir())) == 1
    assert at(device, 3 * MIB) == STRANGE
    with pytest.raises(GuardError):
        measured(testbed, tmp_path / "another")


# During a step


def test_the_kernel_counts_what_fio_says_it_wrote(own, blank, run_dir, monkeypatch):
    counted = []
    compare = campaign._foreign_writes

    def seen(step, record, look, *of):
        counted.append((step.cell.pattern.name, look.counted.get(("vm1", "B1"), 0)))
        return compare(step, record, look, *of)

    monkeypatch.setattr(campaign, "_foreign_writes", seen)
    _, _, testbed = blank
    results = measured(testbed, run_dir, "4k-randwrite", "64k-write", "8k-randrw70", repeats=1)
    assert results.attrs["missing"] == []
    steps = (run_dir / "steps").iterdir()
    in_order = sorted(steps, key=lambda step: json.loads((step / "step.json").read_text())["order"])
    fio = [int(read_fio(step / "fio.json.zst").query("ddir == 'write'")["io_bytes"].sum()) for step in in_order]
    assert fio == [written for _, written in counted]
    assert min(fio) > 0


def test_more_bytes_than_fio_wrote_end_the_disks_use(own, blank, tmp_path, run_dir, monkeypatch):
    _, device, testbed = blank
    after, notes = LastLook.after, []

    def strike(look):
        notes.append(1)
        if len(notes) == 2:
            put(device, 12 * MIB)  # at the end of the second step, out of its span
        return after(look)

    monkeypatch.setattr(LastLook, "after", strike)
    with pytest.raises(CampaignError, match=r"vm1: B1: .* somebody else"):
        measured(testbed, run_dir)
    [problem] = [(f / "step.json").read_text() for f in (run_dir / "failed").iterdir()]
    assert "4,096 bytes more were written or discarded during" in problem
    assert at(device, 12 * MIB) == STRANGE
    with pytest.raises(GuardError, match="holds data that carries no signature"):
        measured(testbed, tmp_path / "another")


@pytest.mark.deep
def test_fewer_bytes_than_fio_wrote_are_no_result(own, blank, tmp_path, run_dir, monkeypatch):
    """A kernel that stopped to count sees no stranger, and a disk that our bytes did not reach is another one."""
    _, device, testbed = blank
    switch, judged = Path(f"/sys/block/{Path(device).name}/queue/iostats"), []
    writing = LastLook.writing

    def strike(look, vms, numjobs):
        judged.append(1)
        if len(judged) == 2:
            switch.write_text("0")
        return writing(look, vms, numjobs)

    monkeypatch.setattr(LastLook, "writing", strike)
    try:
        with pytest.raises(CampaignError, match=r"B1: .*iostats is 0"):
            measured(testbed, run_dir, outage_limit_s=2)
        [problem] = [(f / "step.json").read_text() for f in (run_dir / "failed").iterdir()]
        assert "did not reach it, as its kernel counts" in problem
        with pytest.raises((GuardError, PreflightError), match="iostats is 0"):
            measured(testbed, tmp_path / "another")
    finally:
        switch.write_text("1")


def test_the_paths_of_an_nvme_disk_are_summed(tmp_path, monkeypatch):
    """In a stand-in for sysfs: this kernel has no NVMe. The box asks a real one (test_refusals_box.py)."""
    for name, written in (("nvme0n1", 0), ("nvme0c0n1", 800), ("nvme0c1n1", 16), ("nvme0c0n12", 9), ("sda", 5)):
        (disk := tmp_path / name).mkdir()
        (disk / "stat").write_text(f"1 0 8 0 1 0 {written} 0 0 0 0 1 0 {written // 8} 0 0 0\n")
    find = keeper.glob.glob
    monkeypatch.setattr(keeper.glob, "glob", lambda of: find(of.replace("/sys/block", str(tmp_path))))
    monkeypatch.setattr(keeper.os, "fsync", lambda fd: None)
    counted = {}
    for name in ("nvme0n1", "sda"):
        counted[name] = keeper.Disk.__new__(keeper.Disk)
        counted[name].__dict__.update(fd=-1, sys=str(tmp_path / name))
    both, *sums = counted["nvme0n1"].counted()
    assert sums == [816, 102]
    assert counted["sda"].counted()[1:] == [5, 0]
    (tmp_path / "nvme0c1n1" / "stat").unlink()
    assert counted["nvme0n1"].counted()[0] != both, "counts over other paths are no counts of the same"


def test_a_kernel_that_counts_nothing_is_said_on_the_row(own, blank, run_dir, monkeypatch):
    """As NVMe's head: a device that counts by itself, and counts 0."""
    _, device, testbed = blank
    switch = Path("/sys/class/block") / device.removeprefix("/dev/") / "queue" / "iostats"
    monkeypatch.setattr(guard, "INVENTORY", guard.INVENTORY.replace("printf '\\tmq=yes'", ":"))
    monkeypatch.setattr(lease, "SOURCE", lease.SOURCE.replace('self.sys + "/mq"', 'self.sys + "/none"'))
    switch.write_text("0")
    try:
        results = measured(testbed, run_dir)
    finally:
        switch.write_text("1")
    assert results["valid"].all()
    assert results["warnings"].str.contains("counters").all()
