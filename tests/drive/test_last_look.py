"""The look right before fio, attacked on real loop devices: what is somebody's is not written, and what was judged is
what is."""

import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest
from loops import FIO, MIB, RANDOM, SIZE, Attacked, by_id, losetup, mounted_elsewhere
from probes import mkfs, patiently
from signatures import gpt, write

from hcilib import GuardError
from hcilib.drive.guard.guard import identify

pytestmark = pytest.mark.lab


@pytest.fixture
def look(blank, hosts):
    """A disk that was judged blank and then filled by a step of ours: device, file, the look and what it says when it
    is asked."""
    file, device, testbed = blank
    with hosts.fleet(testbed) as fleet:
        yield Attacked(fleet, testbed, device, file)


def test_a_file_system_made_after_the_prefill(look):
    look.fill()
    mkfs(look.device)
    assert "was written by somebody else since our last step: it carries ext4; what we left" in look.said()


@pytest.mark.parametrize("at", [0, 512, SIZE - 512, SIZE - MIB])
def test_a_byte_that_is_not_ours_at_either_end(look, at):
    look.fill()
    write(look.device, at, b"x")
    assert (
        "was written by somebody else since our last step: what we left at its first and last MiB is gone"
        in look.said()
    )


def test_without_a_note_the_signature_alone_decides(look):
    mkfs(look.device)
    assert "carries ext4 now" in look.said()


def test_a_table_whose_first_34_sectors_are_gone_is_refused_at_the_start_and_at_the_step(look, hosts):
    """As a disk is left by whoever wrote its beginning by mistake: its owner can still be helped."""
    gpt_at_the_end(look.file)
    assert "carries the second half of a gpt partition table" in look.said()
    with pytest.raises(
        GuardError, match="carries the second half of a gpt partition table; if nothing on it is needed"
    ):
        identify(look.fleet, hosts.testbed(("vm1", "B1")), 1, 1, "wipe")


def gpt_at_the_end(file: Path) -> None:
    gpt(file)
    header = bytearray(file.read_bytes()[512:1024])
    write(file, SIZE - 512, bytes(header))
    write(file, 0, bytes(34 * 512))


def test_a_file_system_mounted_in_another_mount_namespace(look, tmp_path):
    look.fill()
    with mounted_elsewhere(look.device, tmp_path):
        assert f"{look.device} ({Path(look.device).name}) is mounted on {tmp_path}/mnt now" in look.said()


def test_a_file_system_mounted_where_no_process_is_seen_is_held_all_the_same(look, tmp_path, monkeypatch):
    mkfs(look.device)
    monkeypatch.setattr("hcilib.drive.guard.last_look.MOUNTS", "cat /proc/self/mountinfo")
    with mounted_elsewhere(look.device, tmp_path, make=False):
        assert "is held by the kernel now: mounted somewhere, swap, or part of another device" in look.said()


def test_a_link_that_is_turned_between_the_look_and_fio_changes_nothing(blank, media, hosts):
    file, device, testbed = blank
    victim = media.file("victim.img")
    mkfs(victim)
    before, other = victim.read_bytes(), media.attach(victim)
    with by_id("hci-test-B1", f"../../{Path(device).name}") as link, hosts.fleet(testbed) as fleet:
        attacked = Attacked(fleet, testbed, device, file)
        assert attacked.look.guarded["vm1"]["B1"].path == link
        opened = attacked.paths["B1"]
        turn = f"ln -sfn {other} {link}"
        assert attacked.said(f"{turn}\n{FIO.format(opened)}") == "started"
        assert Path(link).resolve() == Path(other)
        assert victim.read_bytes() == before
        assert file.read_bytes()[: 8 * MIB].count(0) < MIB, "the disk that was judged was written"
        assert "leads to another device now: its number (hexadecimal) is" in attacked.said()


def test_a_disk_that_is_swapped_for_another(look, media):
    look.fill()
    other = media.file("other.img")
    write(other, 0, RANDOM)
    losetup("--detach", look.device)
    losetup(look.device, other)
    assert "is another disk now: its disk sequence is" in look.said()


def test_a_disk_that_is_open_stays_the_one_that_was_judged(look, media):
    """While the shell holds it its number is given to nobody, whatever is done to its name."""
    other = media.file("other.img")
    swap = f"losetup --detach {look.device}; losetup {look.device} {other} 2>/dev/null; "
    opened = look.paths["B1"]
    assert look.said(f"{swap}{FIO.format(opened)}") == "started"
    assert other.read_bytes() == bytes(SIZE)
    assert look.file.read_bytes()[: 8 * MIB].count(0) < MIB
    media.attached.remove(look.device)  # its number is anybody's now, and may be another test's


@pytest.mark.parametrize("make", [["mkfs.ext4", "-qF"], ["mkswap", "-q"]])
def test_a_signature_that_appears_during_our_step_is_not_ours(look, make):
    write(look.device, 0, RANDOM)
    patiently([*make, look.device])
    look.note()
    assert not look.noted
    assert " carries " in look.said()


def test_a_vm_that_could_not_be_asked_after_a_step_is_judged_by_signatures(look):
    look.fill()
    write(look.device, 0, RANDOM[::-1])
    look.look._fleet = type("Gone", (), {"run": lambda *_, **__: {"vm1": type("O", (), {"value": None})}})()
    look.note()
    assert not look.noted
    assert look.said() == "started"


def test_more_disks_than_a_shell_has_descriptors(media, hosts):
    serials = [f"M{i}" for i in range(8)]
    files = {serial: media.file(f"{serial}.img") for serial in serials}
    for serial, file in files.items():
        media.attach(file)
        hosts.give("vm1", serial, file)
    testbed = hosts.testbed(*(("vm1", serial) for serial in serials))
    with hosts.fleet(testbed) as fleet:
        attacked = Attacked(fleet, testbed, "", None)
        paths = attacked.paths
        assert list(paths.values()) == [*(f"/proc/self/fd/{n}" for n in range(4, 10)), "disk6", "disk7"]
        writes = "\n".join(f"{FIO.format(shlex.quote(path))} || exit 1" for path in paths.values())
        assert attacked.said(writes) == "started"
    assert all(file.read_bytes()[: 8 * MIB].count(0) < MIB for file in files.values())
    time.sleep(1.5)
    holders = subprocess.run(
        "find -L /proc/[0-9]*/fd -maxdepth 1 -type b 2>/dev/null", shell=True, capture_output=True, text=True
    )
    devices = {os.stat(device).st_rdev for device in media.attached}
    assert not [f for f in holders.stdout.split() if os.path.exists(f) and os.stat(f).st_rdev in devices], (
        "nobody holds them"
    )
