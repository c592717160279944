"""The process that holds a host's disks: real loop devices, a real fio, and programs that try to take a held disk."""

import contextlib
import itertools
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from loops import MIB, SIZE, Media
from probes import until
from signatures import CONTENT, write

from hcilib.drive import keeper
from tests.needs import need

SOURCE = Path(keeper.__file__).read_text()
RANDOM = random.Random(3).randbytes(SIZE)
GATE = "exec_prerun=[ -p gate ] && echo >ready && : <gate || true\n"
JOB = f"[global]\nioengine=libaio\ndirect=1\nrw=randwrite\nbs=4k\nsize=8m\ntime_based=1\n{GATE}filename="


class Keeper:
    """A keeper as a controller talks to it; what it says is read by a thread."""

    def __init__(self, token: str, *places: str, who: str = "a campaign", account: int | None = None):
        argv = [sys.executable, "-c", SOURCE, "hci-lease", who, token, "30", *places]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=account, extra_groups=None
        )
        self.said: queue.Queue = queue.Queue()
        self.ids = itertools.count(1)
        threading.Thread(target=self._read, daemon=True).start()
        self.first = self.said.get(timeout=20)

    def _read(self) -> None:
        for line in self.process.stdout:
            self.said.put(json.loads(line.removeprefix("hci ")))

    def send(self, **request) -> None:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def ask(self, do: str, limit_s: float = 20, **given):
        """What is answered to one request, whatever else is said meanwhile."""
        self.send(id=(number := next(self.ids)), do=do, **given)
        while (said := self.said.get(timeout=limit_s)).get("id") != number or "event" in said:
            pass
        return said

    def disk(self, do: str, key: str = "D", **given):
        return self.ask(do, disks={key: given}).get("answer")

    def look(self, **given) -> list[str]:
        """The codes against writing the disk."""
        return [code for code, _ in self.disk("look", **{"size": SIZE} | given)]

    def event(self, name: str) -> dict:
        while (said := self.said.get(timeout=20)).get("event") != name:
            pass
        return said

    def close(self) -> int:
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        return self.process.wait(timeout=10)


def place_of(device: str) -> str:
    rdev = os.stat(device).st_rdev
    return f"{os.major(rdev)}:{os.minor(rdev)}"


def held(device: str, key: str = "D", mode: str = "write") -> tuple[str, str, str, str]:
    return key, place_of(device), device, mode


@pytest.fixture
def media(tmp_path):
    need("loop devices (as root)", "losetup", "blkid", "mkfs.ext4", "mkswap", "mount")
    with contextlib.closing(Media(tmp_path)) as media:
        yield media


@pytest.fixture
def device(media) -> str:
    return media.attach(media.file("d.img"))


@pytest.fixture
def kept(device):
    keeper = Keeper("ours", *held(device))
    assert keeper.first["disks"]["D"]["word"] == "leased"
    yield keeper
    keeper.close()


TAKERS = ["mkfs.ext4 -FF -q {}", "mkswap -f {}", "mount {} {}.mnt", "wipefs -a {}", "blkdiscard {}",
          "python3 -c 'import os, sys; os.open(sys.argv[1], os.O_RDWR | os.O_EXCL)' {}"]  # fmt: skip


@pytest.mark.parametrize("taker", TAKERS)
def test_the_kernel_refuses_who_would_take_a_held_disk(taker, device, kept):
    command = taker.replace("{}", device)
    assert subprocess.run(["sh", "-c", command], capture_output=True).returncode
    assert Path(device).read_bytes() == bytes(SIZE)
    assert kept.look() == []


def partition(device: str) -> None:
    subprocess.run(["addpart", device, "1", "2048", "8192"], check=True)


USED = {
    "used": lambda device: partition(device),
    "read-only": lambda device: subprocess.run(["blockdev", "--setro", device], check=True),
    "carries": lambda device: write(device, 1080, b"\x53\xef"),
    "size": lambda device: (os.truncate(Path(f"/sys/class/block/{Path(device).name}/loop/backing_file").read_text()
                                        .strip(), SIZE + MIB), subprocess.run(["losetup", "-c", device], check=True)),
}  # fmt: skip


@pytest.mark.parametrize("code", USED)
def test_what_the_kernel_lets_pass_is_a_reason(code, device, kept):
    assert kept.look() == []
    USED[code](device)
    try:
        assert kept.look() == [code]
        assert kept.look(beside=True) == [code] * (code != "carries")
    finally:
        subprocess.run(["delpart", device, "1"], capture_output=True)
        subprocess.run(["blockdev", "--setrw", device], capture_output=True)


@pytest.mark.parametrize("serial", CONTENT)
def test_every_signature_is_recognised(serial, media):
    file = media.file("s.img")
    CONTENT[serial][0](file)
    keeper = Keeper("ours", *held(media.attach(file)))
    assert keeper.look(size=file.stat().st_size) == ["carries"]
    assert keeper.disk("note", seed=1, places=16)["signature"]
    keeper.close()


WRITTEN = {  # by the kernel's count; and, after a restart, by the sample
    "a block of 4 KiB": (lambda device: write(device, SIZE // 2, b"x" * 4096), ["written"], []),
    "the first MiB": (lambda device: write(device, 512, b"x"), ["written"], ["written"]),
    "a quarter": (lambda device: write(device, 4 * MIB, RANDOM[: 4 * MIB]), ["written"], ["written"]),
    "nothing": (lambda device: None, [], []),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_what_was_written_since_is_seen(what, device, kept):
    write(device, 0, RANDOM)
    left = kept.disk("note", seed=7, places=256)
    assert (left["blank"], left["signature"]) == (-1, "")
    given = {"seed": 7, "places": 256, "left": left}
    assert kept.look(**given) == []
    change, counted, sampled = WRITTEN[what]
    change(device)
    assert kept.look(**given) == counted
    again = left | {"counted": ["another boot", *left["counted"][1:]]}
    assert kept.look(**given | {"left": again}) in ([sampled] if what != "a block of 4 KiB" else [[], ["written"]])


@pytest.mark.parametrize("byte", [0, 255])
def test_a_blank_disk_is_known_by_its_byte(byte, device, kept):
    write(device, 0, bytes([byte]) * SIZE)
    assert kept.disk("note", seed=1, places=64)["blank"] == byte


def test_a_second_campaign_is_told_whose_the_disk_is(device, kept, media):
    link = Path(device).with_name("hci-test-link")
    os.mknod(link, 0o660 | 0o060000, os.stat(device).st_rdev)
    try:
        for path in (device, str(link)):
            other = Keeper("theirs", "D", place_of(device), path, "write", who="somebody else")
            found = other.first["disks"]["D"]
            assert (found["word"], found["what"]) == ("held", "ours a campaign")
            other.close()
    finally:
        link.unlink()
    again = Keeper("ours", *held(device))  # our controller came back: what its last one left is ended
    assert again.first["disks"]["D"]["word"] == "leased"
    assert kept.process.wait(timeout=10) == -signal.SIGKILL
    again.close()


def test_why_a_disk_cannot_be_held_is_a_word(device, media, tmp_path):
    (tmp_path / "mnt").mkdir()
    full = media.attach(media.file("m.img"))
    subprocess.run(["mkfs.ext4", "-q", full], check=True)
    subprocess.run(["mount", full, tmp_path / "mnt"], check=True)
    try:
        keeper = Keeper("ours", *held(full), "G", "7:9999", "/dev/hci-nowhere", "write", "N", "1:1", device, "write",
                        "L", "lock", str(tmp_path), "lock")  # fmt: skip
        words = {key: own["word"] for key, own in keeper.first["disks"].items()}
        assert words == {"D": "busy", "G": "gone", "N": "gone", "L": "leased"}
        locked = Keeper("theirs", "L", "lock", str(tmp_path), "lock")
        assert locked.first["disks"]["L"]["word"] == "held"
    finally:
        subprocess.run(["umount", tmp_path / "mnt"], check=True)
    locked.close()
    keeper.close()


def test_released_and_taken_again(device, kept):
    assert kept.disk("release") == "released"
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    assert kept.ask("take", given={"D": held(device)[1:]})["answer"]["word"] == "leased"
    assert kept.look() == ["carries"]


def started(keeper: Keeper, device: str, runtime_s: int, **given) -> dict:
    job = f"{JOB}/proc/self/fd/100\nruntime={runtime_s}\n[a]\n[b]\n"
    argv = ["fio", "--status-interval=250ms", "--output-format=json+", "job.fio"]
    asked = {"name": "t", "parent": "/tmp", "files": {"job.fio": job}, "argv": argv, "limit_s": 60, "rates_ms": 250}
    return keeper.ask("fio", given=asked | given)


def test_fio_writes_through_what_is_held_once_all_stand_at_the_gate(device, kept):
    need("fio")
    begun = started(kept, device, 1)
    number, folder = begun["id"], Path(begun["answer"])
    assert kept.event("ready")["id"] == number
    assert Path(device).read_bytes() == bytes(SIZE)
    kept.ask("go", run=number)
    assert len(kept.ask("workers", run=number)["answer"]) >= 3
    ended = kept.event("ended")
    assert (ended["code"], ended["stopped"]) == (0, "")
    jobs = json.loads((folder / "fio.json").read_text())["jobs"]
    assert sum(job["write"]["total_ios"] for job in jobs) > 0
    assert Path(device).read_bytes() != bytes(SIZE)
    kept.ask("remove", run=number)
    assert not folder.exists()


@pytest.mark.parametrize("how", ["asked", "its limit"])
def test_fio_is_ended(how, device, kept):
    need("fio")
    number = started(kept, device, 60, limit_s=1 if how == "its limit" else 60)["id"]
    kept.event("ready")
    kept.ask("go", run=number)
    kept.event("rates")
    if how == "asked":
        kept.ask("stop", run=number)
    assert kept.event("ended")["stopped"] == ("after 1 s" if how == "its limit" else "")


@pytest.mark.parametrize("how", ["the connection", "SIGKILL", "SIGTERM"])
def test_a_controller_s_death_frees_the_disk_and_ends_fio(how, device, kept):
    need("fio")
    folder = Path(started(kept, device, 60)["answer"])
    kept.event("ready")
    kept.ask("go", run=1)
    kept.event("rates")
    if how == "the connection":
        kept.process.stdin.close()
    else:
        kept.process.send_signal(getattr(signal, how))
    kept.process.wait(timeout=10)
    if how == "SIGKILL":  # fio has inherited the descriptor: nobody takes the disk while it writes
        assert subprocess.run(["mkswap", "-f", device], capture_output=True).returncode
        Keeper("ours", *held(device)).close()  # the next controller's keeper ends what that one left
        folder.rmdir() if not list(folder.iterdir()) else shutil.rmtree(folder)
    until(lambda: not subprocess.run(["mkswap", "-f", device], capture_output=True).returncode)
    assert not folder.exists()


def test_stamped_blocks_are_told_one_by_one_and_read_back(device, kept):
    where = {"offset": 8 * MIB, "blocks": 4, "nbytes": 4096, "run": "r", "vm": "v"}
    kept.send(id=90, do="write_stamped", disks={"D": where | {"seconds": 0.5, "seed": 1}})
    told: dict[int, int] = {}
    while (said := kept.said.get(timeout=20)).get("id") != 90:
        told[said["block"]] = said["sequence"]
        kept.send(do="heard", disk="D")
    assert said["answer"] == sum(told.values())
    assert kept.disk("read_stamped", **where) == [[told[n], told[n], 0] for n in range(4)]
    write(device, 8 * MIB + 4096 + 512, b"x" * 512)
    assert kept.disk("read_stamped", **where)[1] == [told[1], told[1], 1]
    assert kept.disk("read_stamped", **where | {"vm": "another"})[0] == [None, None, 8]


def test_a_broken_line_is_answered_and_costs_nothing(device, kept):
    kept.process.stdin.write("{\n")
    kept.process.stdin.flush()
    assert "error" in kept.said.get(timeout=10)
    assert "error" in kept.ask("dance")
    assert kept.ask("here")["answer"] == pytest.approx(time.time(), abs=5)
    assert kept.look() == []
    assert Path(f"/proc/{kept.process.pid}/comm").read_text().strip() == "hci-lease"
