"""The look before each step at disks that are held, attacked on real loop devices: what is somebody's is not written,
and what was judged is what is."""

import subprocess
from pathlib import Path

import pytest
from loops import MIB, RANDOM, SIZE, attacked, by_id, losetup, mounted_elsewhere
from probes import mkfs, until
from signatures import CONTENT, gpt, write

from hcilib.drive.guard.guard import GuardError
from hcilib.drive.hosts import lease

pytestmark = pytest.mark.lab


def test_a_table_of_which_only_the_end_is_left_is_refused_at_the_start_and_at_the_step(media, hosts):
    """As a disk is left by whoever wrote its beginning by mistake: its owner can still be helped. Of a disk with half a
    block over; of whole blocks: test_refusals."""
    size = SIZE + 512
    gpt(table := media.file("table.img"))
    hosts.give("vm1", "B1", file := media.file("b1.img", size))
    device, testbed = media.attach(file), hosts.testbed(("vm1", "B1"), size=size)
    with attacked(hosts, testbed, device, file) as held:
        held.note()
        restarted(held)
        write(device, size - 512, table.read_bytes()[512:1024])
        assert "since our last step: the second half of a gpt partition table" in held.said()
        held.note()
        assert "carries the second half of a gpt partition table" in held.said()
    refused = "carries the second half of a gpt partition table; if nothing on it is needed"
    with pytest.raises(GuardError, match=refused), attacked(hosts, testbed):
        pass


@pytest.mark.parametrize("at", [0, SIZE - MIB])
def test_after_a_restart_a_byte_at_either_end_is_still_seen(at, held):
    """The machine counts from zero then, and the sample decides."""
    held.fill()
    restarted(held)
    assert held.said() == "started"
    write(held.device, at, b"x")
    assert "was written by somebody else since our last step" in held.said()


def restarted(held) -> None:
    """As if its kernel had counted from another boot."""
    held.left["counted"][0] = "another"


def test_a_disk_that_is_mounted_elsewhere_cannot_be_held(held, hosts, tmp_path):
    """In a mount namespace that nobody lists, while nothing held it."""
    held.fill()
    held.lease.release("vm1")
    assert until(lambda: not subprocess.run(["mkfs.ext4", "-qFF", held.device], capture_output=True).returncode)
    with mounted_elsewhere(held.device, tmp_path, make=False):
        assert f"{held.device} ({Path(held.device).name}) is held by the kernel" in held.said()
    held.lease.release("vm1")
    assert "was written by somebody else since our last step" in held.said()


def test_a_link_that_is_turned_after_the_look_leads_nobody_to_another_disk(blank, media, hosts):
    file, device, testbed = blank
    other = media.attach(media.file("victim.img"))
    with by_id("hci-test-B1", f"../../{Path(device).name}") as link, attacked(hosts, testbed, device, file) as held:
        assert held.look.guarded["vm1"]["B1"].path == link
        paths = held.look.before(held.vms, 1)
        Path(link).unlink()
        Path(link).symlink_to(other)
        assert held.look.before(held.vms, 1) == paths, "what is held is what was judged"
        assert free(other)
        assert not free(device)


def free(device: str) -> bool:
    """Whether somebody who asks for a disk alone gets it."""
    return not subprocess.run(["mkswap", "-f", device], capture_output=True).returncode


def test_a_disk_of_the_same_serial_with_other_bytes_is_another(held, media, hosts):
    """Its number, its size and its path are as they were."""
    held.fill()
    write(other := media.file("other.img"), 0, RANDOM[::-1])
    held.lease.release("vm1")
    losetup("--detach", held.device)
    assert until(lambda: not subprocess.run(["losetup", held.device, other], capture_output=True).returncode)
    hosts.give("vm1", "B1", other)
    hosts.testbed(("vm1", "B1"))
    assert "was written by somebody else since our last step" in held.said()


def test_a_signature_that_appears_during_our_step_is_not_ours(held):
    write(held.device, 0, RANDOM)
    CONTENT["LUKS"][0](held.device)
    held.note()
    assert not held.left
    assert "carries crypto_LUKS" in held.said()


def test_who_writes_while_it_is_noted_is_seen_at_the_next_look(held):
    """All the time, a block in the middle: no note finds the disk at rest."""
    held.fill()
    block = f"dd if=/dev/zero of={held.device} bs=4096 count=1 seek=2048 conv=notrunc oflag=direct 2>/dev/null"
    restless = ["timeout", "60", "sh", "-c", f"while {block}; do echo written; done"]
    with subprocess.Popen(restless, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "written\n"
            held.note()
        finally:
            other.terminate()
    assert "was written by somebody else since our last step" in held.said()


def test_a_vm_that_could_not_be_asked_after_a_step_is_judged_by_signatures(held):
    held.fill()
    held.lease.release("vm1")
    held.note()
    assert not held.left
    assert held.said() == "started"
    CONTENT["LUKS"][0](held.device)
    assert "carries crypto_LUKS" in held.said()


def test_a_host_without_blkid_judges_nothing(blank, hosts, monkeypatch):
    monkeypatch.setattr(lease, "SOURCE", lease.SOURCE.replace('"blkid"', '"no-such-blkid"'))
    probed = pytest.raises(GuardError, match="carries something that cannot be probed")
    with probed, attacked(hosts, blank[2]):
        pass


def test_every_disk_of_a_vm_is_held_and_let_go(media, hosts):
    serials = [f"M{i}" for i in range(12)]
    for serial in serials:
        hosts.give("vm1", serial, file := media.file(f"{serial}.img"))
        media.attach(file)
    with attacked(hosts, hosts.testbed(*(("vm1", serial) for serial in serials))) as held:
        assert list(held.look.before(held.vms, 12)) == serials
        assert not any(map(free, media.attached))
    assert until(lambda: all(map(free, media.attached)))


def test_a_disk_that_is_only_read_may_be_in_use(blank, hosts, tmp_path):
    _, device, testbed = blank
    mkfs(device)
    with mounted_elsewhere(device, tmp_path, make=False), attacked(hosts, testbed, device, readonly=True) as held:
        assert held.said() == "started"
        counted = held.lease.ask("counted", {"vm1": {"B1": {}}})
        write(device, SIZE - MIB, RANDOM[:4096])
        assert held.lease.ask("counted", {"vm1": {"B1": {}}}) != counted
        assert held.said() == "started", "what others write there is theirs"
