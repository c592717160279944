"""Whose bytes lie on a disk: real loop devices, real campaigns, and somebody who writes beside them."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from loops import MIB, RANDOM, SIZE, Attacked, own_kernels

from hcilib import CampaignError, GuardError, PreflightError, System, read_fio, sweep
from hcilib.drive.campaign import campaign
from hcilib.drive.campaign.campaign import run
from hcilib.drive.guard import content, guard, last_look
from hcilib.drive.guard.content import Memory, Sample, require_known
from hcilib.drive.guard.guard import identify
from hcilib.drive.guard.last_look import LastLook

pytestmark = pytest.mark.lab
SYSTEM = System(name="real-disk", label="A disk")
PLAN = {"repeats": 2, "iodepth": 4, "vms": 1, "read_runtime_s": 0.5, "write_runtime_s": 0.5, "span_bytes": 8 * MIB,
        "canary": False, "prefill": False}  # fmt: skip
STRANGE, MUCH = random.Random(42).randbytes(4096), random.Random(43).randbytes(2**18)


@pytest.fixture
def own(hosts):
    """Campaigns on these hosts."""
    with own_kernels(hosts.folder):
        yield


def measured(testbed, run_dir, patterns=("4k-randwrite", "64k-write"), **plan):
    return run(sweep(list(patterns), **PLAN | plan), testbed, SYSTEM, run_dir, consent="wipe", progress=False)


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


@pytest.mark.parametrize("erased", [b"\0", b"\xff"])
def test_a_blank_disk_is_known_by_its_sample(blank, hosts, tmp_path, erased):
    _, device, testbed = blank
    put(device, 0, erased * SIZE)
    with hosts.fleet(testbed) as fleet:
        guarded = identify(fleet, testbed, 1, 1, "wipe")
        require_known(fleet, guarded, Memory(testbed, "one", tmp_path))
        put(device, 5 * MIB, MUCH)
        with pytest.raises(GuardError, match="holds data that carries no signature"):
            require_known(fleet, guarded, Memory(testbed, "one", tmp_path))


@pytest.mark.needs("blkdiscard")
def test_data_without_a_signature_is_refused_until_it_is_cleared(own, blank, tmp_path):
    """N4: dm-crypt without a header, a database on the raw disk."""
    file, device, testbed = blank
    put(device, 0, RANDOM)
    before = file.read_bytes()
    with pytest.raises(GuardError, match="holds data that carries no signature") as error:
        measured(testbed, tmp_path / "run")
    assert file.read_bytes() == before
    [clear] = re.findall("`(blkdiscard --zeroout .*?)`", refusal(error))
    subprocess.run([*clear.split()[:-1], device], check=True)
    assert measured(testbed, tmp_path / "run")["valid"].all()


def test_what_one_campaign_left_the_next_may_overwrite_and_nothing_else(own, blank, tmp_path):
    _, device, testbed = blank
    assert measured(testbed, tmp_path / "first")["valid"].all()
    assert measured(testbed, tmp_path / "second")["valid"].all()
    put(device, 3 * MIB, MUCH)
    with pytest.raises(GuardError, match=rf"somebody else since the campaign in {tmp_path}/second left it"):
        measured(testbed, tmp_path / "third")
    assert at(device, 3 * MIB, len(MUCH)) == MUCH


def test_a_disk_that_was_written_when_its_controller_died_is_its_own_campaigns_alone(own, blank, hosts, tmp_path):
    _, device, testbed = blank
    mine, other = Memory(testbed, "mine", tmp_path / "mine"), Memory(testbed, "other", tmp_path / "other")
    put(device, 0, RANDOM)
    mine.note("vm1", "B1", None)
    with hosts.fleet(testbed) as fleet:
        guarded = identify(fleet, testbed, 1, 1, "wipe")
        require_known(fleet, guarded, mine)
        with pytest.raises(GuardError, match=rf"by the campaign in {tmp_path}/mine when its controller ended"):
            require_known(fleet, guarded, other)


def test_a_disk_of_the_same_serial_elsewhere_is_another(own, blank, hosts, tmp_path):
    """`drive-scsi1` is what every QEMU guest calls its second disk."""
    _, device, testbed = blank
    put(device, 0, RANDOM)
    elsewhere = testbed.model_copy(update={"name": "elsewhere"})
    Memory(elsewhere, "mine", tmp_path).note("vm1", "B1", None)
    with hosts.fleet(testbed) as fleet, pytest.raises(GuardError, match="holds data that carries no signature"):
        require_known(fleet, identify(fleet, testbed, 1, 1, "wipe"), Memory(testbed, "mine", tmp_path))


def test_a_memory_that_is_damaged_knows_nothing(blank, tmp_path):
    _, _, testbed = blank
    memory = Memory(testbed, "mine", tmp_path / "run")
    memory.note("vm1", "B1", Sample(7, 256, "a" * 32))
    assert memory.of("vm1", "B1").sample == Sample(7, 256, "a" * 32)
    for text in ("", "[]", "{}", '{"campaign": "mine", "testbed": "x", "sample": {"seed": 1}}'):
        (tmp_path / "run/left/vm1/B1.json").write_text(text)
        assert memory.of("vm1", "B1") is None


def test_another_controller_resumes_a_run_directory_that_was_copied(own, blank, tmp_path, monkeypatch):
    """D5: nothing that it needs lies in the first one's home folder."""
    _, device, testbed = blank
    measure, begun = campaign._measure, []

    def stopped(*of):
        begun.append(1)
        return measure(*of) if len(begun) < 3 else os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(campaign, "_measure", stopped)
        with pytest.raises(KeyboardInterrupt):
            measured(testbed, tmp_path / "first" / "run")
    shutil.copytree(tmp_path / "first" / "run", tmp_path / "second" / "run")
    shutil.rmtree(tmp_path / "first")
    for home in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(home, str(tmp_path / "home"))
    assert len(measured(testbed, tmp_path / "second" / "run")) == 4
    assert len(begun) == 3, "what was finished is not measured again"
    put(device, 3 * MIB, MUCH)
    with pytest.raises(GuardError, match=r"since the campaign in .*second/run left it"):
        measured(testbed, tmp_path / "second" / "other")
    with pytest.raises(GuardError, match=r"no campaign here left there.*blkdiscard"):
        measured(testbed, tmp_path / "third" / "run")


# Between steps


@pytest.fixture
def attacked(blank, hosts):
    file, device, testbed = blank
    with hosts.fleet(testbed) as fleet:
        yield Attacked(fleet, testbed, device, file)


@pytest.mark.parametrize("offset", [0, 64 * 1024, 3 * MIB, 8 * MIB + 4096, SIZE - 4096])
def test_one_foreign_block_anywhere_is_seen_before_the_next_step(attacked, offset):
    attacked.fill()
    assert attacked.said() == "started"
    put(attacked.device, offset)
    for _ in range(2):
        assert "was written by somebody else since our last step" in attacked.said()
    assert at(attacked.device, offset) == STRANGE


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
            lambda device, media: subprocess.run(["blkdiscard", "-o", str(3 * MIB), "-l", "4096", device], check=True),
            marks=pytest.mark.needs("blkdiscard"),
        ),
    ],
    ids=["a block", "a loop device", "a partition", "a discard"],
)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_write_that_leaves_what_was_there_is_seen_by_the_kernels_count(attacked, media, write, is_open):
    """A lease keeps the disk open, so whoever closes it after a write may leave the block in the cache."""
    attacked.fill()
    with open(attacked.device, "rb") if is_open else contextlib.nullcontext():
        write(attacked.device, media)
        said = attacked.said()
    assert "was written by somebody else since our last step" in said
    counts = [re.findall(r"\d+", text)[:2] for text in said.partition("discarded ")[2].split(" where we left ")]
    assert sum(map(int, counts[0])) > sum(map(int, counts[1])), said


def drawn(device: str, seed: int, blocks: int) -> set[int]:
    """The blocks that a sample of this seed reads; every block of the disk holds its own number now."""
    put(device, 0, b"".join(n.to_bytes(8, "big") * 512 for n in range(SIZE // 4096)))
    draw = f"{content.READ}\nblocks {device} {SIZE} {seed} {blocks}"
    told = subprocess.run(["sh", "-c", draw], check=True, capture_output=True).stdout
    return {int.from_bytes(told[n : n + 8], "big") for n in range(0, len(told), 4096)}


@pytest.mark.parametrize("through_cache", [False, True])
def test_after_a_restart_all_4096_places_are_compared(attacked, monkeypatch, tmp_path, through_cache):
    """The machine counts from zero then. `FEW` of the places missed what was written beside them."""
    boot = tmp_path / "boot"
    boot.write_text("first\n")
    patched = last_look._COMMON.replace("/proc/sys/kernel/random/boot_id", str(boot))
    monkeypatch.setattr(last_look, "_COMMON", patched)
    attacked.look._through_cache = through_cache
    attacked.fill()
    sample = attacked.look._left["vm1", "B1"].sample
    assert sample.blocks == content.PLACES == 4096
    few, many = (drawn(attacked.device, sample.seed, blocks) for blocks in (content.FEW, content.PLACES))
    assert few < many
    place = next(n for n in sorted(many - few) if 2 * MIB < 4096 * n < SIZE - 2 * MIB)
    put(attacked.device, 0, RANDOM)
    boot.write_text("second\n")
    assert attacked.said() == "started"
    put(attacked.device, 4096 * place)
    assert "at one of several places it holds other bytes" in attacked.said()
    boot.write_text("first\n")
    few_said = attacked.said()
    assert few_said == "started" if through_cache else "sectors written and discarded" in few_said


def test_what_the_look_refused_is_not_ours_at_the_next_one(own, blank, tmp_path, monkeypatch):
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
        measured(testbed, tmp_path / "run")
    assert len(list((tmp_path / "run" / "failed").iterdir())) == 1
    assert at(device, 3 * MIB) == STRANGE
    with pytest.raises(GuardError):
        measured(testbed, tmp_path / "another")


# During a step


def test_the_kernel_counts_what_fio_says_it_wrote(own, blank, tmp_path, monkeypatch):
    counted = []
    compare = campaign._foreign_writes

    def seen(step, record, look, *of):
        counted.append((step.cell.pattern.name, look.counted.get(("vm1", "B1"), 0)))
        return compare(step, record, look, *of)

    monkeypatch.setattr(campaign, "_foreign_writes", seen)
    _, _, testbed = blank
    results = measured(testbed, tmp_path / "run", ["4k-randwrite", "64k-write", "8k-randrw70"])
    assert results.attrs["missing"] == []
    steps = (tmp_path / "run" / "steps").iterdir()
    in_order = sorted(steps, key=lambda step: json.loads((step / "step.json").read_text())["order"])
    fio = [int(read_fio(step / "fio.json.zst").query("ddir == 'write'")["io_bytes"].sum()) for step in in_order]
    assert fio == [written for _, written in counted]
    assert min(fio) > 0


def test_more_bytes_than_fio_wrote_end_the_disks_use(own, blank, tmp_path, monkeypatch):
    _, device, testbed = blank
    after, notes = LastLook.after, []

    def strike(look):
        notes.append(1)
        if len(notes) == 2:
            put(device, 12 * MIB)  # at the end of the second step, out of its span
        return after(look)

    monkeypatch.setattr(LastLook, "after", strike)
    with pytest.raises(CampaignError, match=r"vm1: B1: .* somebody else"):
        measured(testbed, tmp_path / "run")
    [problem] = [(f / "step.json").read_text() for f in (tmp_path / "run" / "failed").iterdir()]
    assert "4,096 bytes more were written or discarded during" in problem
    assert at(device, 12 * MIB) == STRANGE
    with pytest.raises(GuardError, match="holds data that carries no signature"):
        measured(testbed, tmp_path / "another")


@pytest.mark.deep
def test_fewer_bytes_than_fio_wrote_are_no_result(own, blank, tmp_path, monkeypatch):
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
        results = measured(testbed, tmp_path / "run")
        assert len(results.attrs["missing"]) == 3
        problems = [(f / "step.json").read_text() for f in (tmp_path / "run" / "failed").iterdir()]
        assert all("did not reach it, as its kernel counts" in text for text in problems)
        with pytest.raises((GuardError, PreflightError), match="iostats is 0"):
            measured(testbed, tmp_path / "another")
    finally:
        switch.write_text("1")


def test_a_sample_is_of_its_seed_whoever_reads_it(attacked, monkeypatch):
    attacked.fill()
    device = attacked.look.guarded["vm1"]["B1"]
    drawn = {
        seed: content.samples(attacked.fleet, {("vm1", "B1"): (device, seed, 16)})["vm1", "B1"][0] for seed in (3, 4)
    }
    assert drawn[3].digest != drawn[4].digest
    monkeypatch.setattr(content, "READ", content.READ.replace("command -v python3", "command -v no-such-python"))
    again = content.samples(attacked.fleet, {("vm1", "B1"): (replace(device), 3, 16)})["vm1", "B1"][0]
    assert again == drawn[3]


def test_the_paths_of_an_nvme_disk_are_summed(tmp_path):
    """In a stand-in for sysfs: this kernel has no NVMe. The box asks a real one (test_cluster_systems.py)."""
    stat = "1 0 8 0 1 0 {} 0 0 0 0 1 0 {} 0 0 0\n"
    for name, written in (("nvme0n1", 0), ("nvme0c0n1", 800), ("nvme0c1n1", 16), ("nvme0c0n12", 9), ("sda", 5)):
        (disk := tmp_path / "block" / name).mkdir(parents=True)
        (disk / "stat").write_text(stat.format(written, written // 8))
    (tmp_path / "dev" / "block").mkdir(parents=True)
    for number, name in (("259:0", "nvme0n1"), ("8:0", "sda")):
        (tmp_path / "dev" / "block" / number).symlink_to(tmp_path / "block" / name)

    def said(command: str) -> str:
        script = content.READ.replace("/sys/", f"{tmp_path}/") + command
        return subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True).stdout.strip()

    assert said("counts 259:0 /dev/null") == "816 102"
    assert said("counts 8:0 /dev/null") == "5 0"
    one_path = said("boot 259:0")
    (tmp_path / "block" / "nvme0c1n1" / "stat").unlink()
    assert said("boot 259:0") != one_path, "counts over other paths are no counts of the same"


def test_a_kernel_that_counts_nothing_is_said_on_the_row(own, blank, tmp_path, monkeypatch):
    """As NVMe's head: a device that counts by itself, and counts 0."""
    _, device, testbed = blank
    switch = Path("/sys/class/block") / device.removeprefix("/dev/") / "queue" / "iostats"
    monkeypatch.setattr(guard, "INVENTORY", guard.INVENTORY.replace("printf '\\tmq=yes'", ":"))
    switch.write_text("0")
    try:
        results = measured(testbed, tmp_path / "run", ["4k-randwrite"])
    finally:
        switch.write_text("1")
    assert results["valid"].all()
    assert results["warnings"].str.contains("counters").all()
