"""The process that holds a host's disks: real loop devices, a real fio, and programs that try to take a held disk."""

import contextlib
import itertools
import json
import os
import queue
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
OURS, THEIRS = f"ours{os.getpid()}", f"theirs{os.getpid()}"
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
        self.ids, self.rates, self.events = itertools.count(1), [], []
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
            self.events.append(said)
        return said

    def disk(self, do: str, key: str = "D", **given):
        return self.ask(do, disks={key: given}).get("answer")

    def look(self, **given) -> list[str]:
        """The codes against writing the disk."""
        return [code for code, _ in self.disk("look", **{"size": SIZE} | given)]

    def event(self, name: str) -> dict:
        said = {}
        while said.get("event") != name:
            said = self.events.pop(0) if self.events else self.said.get(timeout=20)
            self.rates += [said] if said.get("event") == "rates" else []
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
    keeper = Keeper(OURS, *held(device))
    assert keeper.first["disks"]["D"]["word"] == "leased"
    yield keeper
    keeper.close()


def test_a_signature_of_zfs_is_recognised(media):
    """It asks for a larger disk than the table of refusals has (test_disk_refusals)."""
    CONTENT["ZFS"][0](file := media.file("s.img"))
    keeper = Keeper(OURS, *held(media.attach(file)))
    assert keeper.look(size=file.stat().st_size) == ["carries"]
    assert keeper.look(size=file.stat().st_size, beside=True) == []
    assert keeper.disk("note", seed=1, places=16)["signature"]
    keeper.close()


def test_a_second_campaign_is_told_whose_the_disk_is(device, kept, media):
    link = Path(device).with_name("hci-test-link")
    os.mknod(link, 0o660 | 0o060000, os.stat(device).st_rdev)
    try:
        for path in (device, str(link)):
            other = Keeper(THEIRS, "D", place_of(device), path, "write", who="somebody else")
            found = other.first["disks"]["D"]
            assert (found["word"], found["what"]) == ("held", f"{OURS} a campaign")
            other.close()
    finally:
        link.unlink()
    again = Keeper(OURS, *held(device))  # our controller came back: what its last one left is ended
    assert again.first["disks"]["D"]["word"] == "leased"
    assert kept.process.wait(timeout=10) == -signal.SIGKILL
    again.close()


def test_another_device_is_not_held(device):
    keeper = Keeper(OURS, "G", "7:9999", "/dev/hci-nowhere", "write", "N", "1:1", device, "write")
    assert {own["word"] for own in keeper.first["disks"].values()} == {"gone"}
    keeper.close()


def test_released_and_taken_again(device, kept):
    assert kept.disk("release") == "released"
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    assert kept.ask("take", given={"D": held(device)[1:]})["answer"]["word"] == "leased"
    assert kept.look() == ["carries"]


def started(keeper: Keeper, device: str, runtime_s: int, **given) -> dict:
    job = f"{JOB}/proc/self/fd/100\nruntime={runtime_s}\n[a]\n[b]\n"
    argv = ["fio", "--status-interval=250ms", "--output-format=json+", "FOLDER/job.fio"]
    asked = {"name": "t", "parent": "/tmp", "files": {"job.fio": job}, "argv": argv, "limit_s": 60, "rates_ms": 250}
    prepared = keeper.ask("fio", given=asked | given)
    keeper.ask("start", run=prepared["id"])
    return prepared


def test_fio_writes_through_what_is_held_once_all_stand_at_the_gate(device, kept):
    need("fio")
    opened = lambda: len(os.listdir(f"/proc/{kept.process.pid}/fd"))  # noqa: E731
    before = opened()
    begun = started(kept, device, 1)
    number, folder = begun["id"], Path(begun["answer"])
    assert kept.event("ready")["id"] == number
    assert Path(device).read_bytes() == bytes(SIZE)
    kept.ask("go", run=number)
    assert len(kept.ask("workers", run=number)["answer"]) >= 3
    ended = kept.event("ended")
    assert (ended["code"], ended["stopped"]) == (0, "")
    noise, brace, document = (folder / "logs" / "fio.json").read_text().partition("{\n")
    assert noise.count("\n") == 2, "what fio says beside is kept, once"
    jobs = json.loads(brace + document)["jobs"]
    assert sum(job["write"]["total_ios"] for job in jobs) == kept.rates[-1]["ios"] > kept.rates[0]["ios"]
    assert Path(device).read_bytes() != bytes(SIZE)
    kept.ask("remove", run=number)
    assert not folder.exists()
    assert until(lambda: opened() == before), "a campaign has hundreds of runs"
    assert "error" in kept.ask("workers", run=number)


def test_no_room_for_fio_is_named_and_nothing_stays_there(device, kept, tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "full", tmp_path], check=True)
    try:
        given = {"name": "t", "parent": str(tmp_path), "files": {}, "argv": [], "limit_s": 60}
        assert kept.ask("fio", given=given)["error"] == f"{tmp_path} is full"
        assert not list(tmp_path.iterdir())
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize("how", ["asked", "its limit"])
def test_fio_is_ended(how, device, kept):
    need("fio")
    number = started(kept, device, 60, limit_s=1 if how == "its limit" else 60)["id"]
    kept.event("ready")
    if how == "asked":  # else it stands at its gate, where it hears nothing and is killed
        kept.ask("go", run=number)
        kept.event("rates")
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
        Keeper(OURS, *held(device)).close()  # the next controller's keeper ends what that one left
    until(lambda: not subprocess.run(["mkswap", "-f", device], capture_output=True).returncode)
    assert not folder.exists()


def test_what_its_own_campaign_left_is_ended_and_nobody_elses(media):
    need("fio")
    devices = [media.attach(media.file(name)) for name in ("a.img", "b.img")]
    ours, theirs = (Keeper(token, *held(device)) for token, device in zip((OURS, THEIRS), devices, strict=True))
    runs = [started(keeper, device, 60)["id"] for keeper, device in zip((ours, theirs), devices, strict=True)]
    for one in (ours, theirs):
        one.event("ready")
    ours.process.kill()
    again = Keeper(OURS, *held(devices[0]))
    assert again.first["disks"]["D"]["word"] == "leased"
    assert len(again.first["ended"]) >= 3
    assert len(theirs.ask("workers", run=runs[1])["answer"]) >= 3
    for one in (again, theirs):
        one.close()


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
