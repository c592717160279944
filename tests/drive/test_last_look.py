"""The look before each step at disks that are held, attacked on real loop devices: what is somebody's is not written,
and what was judged is what is."""

import subprocess
from pathlib import Path

import pytest
from loops import MIB, RANDOM, SIZE, attacked, by_id, losetup, mounted_elsewhere
from probes import mkfs, until
from signatures import CONTENT, gpt, write

from hcilib import GuardError
from hcilib.drive.hosts import lease

pytestmark = pytest.mark.lab


@pytest.fixture
def look(blank, hosts):
    """A disk that was judged blank, and is held."""
    file, device, testbed = blank
    with attacked(hosts, testbed, device, file) as held:
        yield held


@pytest.mark.parametrize("size", [SIZE, SIZE + 512], ids=["whole blocks", "half a block over"])
def test_a_table_of_which_only_the_end_is_left_is_refused_at_the_start_and_at_the_step(size, media, hosts):
    """As a disk is left by whoever wrote its beginning by mistake: its owner can still be helped."""
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


@pytest.mark.parametrize("at", [0, 512, SIZE - 512, SIZE - MIB])
def test_after_a_restart_a_byte_at_either_end_is_still_seen(at, look):
    """The machine counts from zero then, and the sample decides."""
    look.fill()
    restarted(look)
    assert look.said() == "started"
    write(look.device, at, b"x")
    assert "was written by somebody else since our last step" in look.said()


def restarted(look) -> None:
    """As if its kernel had counted from another boot."""
    look.left["counted"][0] = "another"


def test_a_disk_that_is_mounted_elsewhere_cannot_be_held(look, hosts, tmp_path):
    """In a mount namespace that nobody lists, while nothing held it."""
    look.fill()
    look.lease.release("vm1")
    assert until(lambda: not subprocess.run(["mkfs.ext4", "-qFF", look.device], capture_output=True).returncode)
    with mounted_elsewhere(look.device, tmp_path, make=False):
        assert f"{look.device} ({Path(look.device).name}) is held by the kernel" in look.said()
    look.lease.release("vm1")
    assert "was written by somebody else since our last step" in look.said()


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


def test_a_disk_of_the_same_serial_with_other_bytes_is_another(look, media, hosts):
    """Its number, its size and its path are as they were."""
    look.fill()
    write(other := media.file("other.img"), 0, RANDOM[::-1])
    look.lease.release("vm1")
    losetup("--detach", look.device)
    assert until(lambda: not subprocess.run(["losetup", look.device, other], capture_output=True).returncode)
    hosts.give("vm1", "B1", other)
    hosts.testbed(("vm1", "B1"))
    assert "was written by somebody else since our last step" in look.said()


def test_a_signature_that_appears_during_our_step_is_not_ours(look):
    write(look.device, 0, RANDOM)
    CONTENT["LUKS"][0](look.device)
    look.note()
    assert not look.left
    assert "carries crypto_LUKS" in look.said()


def test_who_writes_while_it_is_noted_is_seen_at_the_next_look(look):
    """All the time, a block in the middle: no note finds the disk at rest."""
    look.fill()
    block = f"dd if=/dev/zero of={look.device} bs=4096 count=1 seek=2048 conv=notrunc oflag=direct 2>/dev/null"
    restless = ["timeout", "60", "sh", "-c", f"while {block}; do echo written; done"]
    with subprocess.Popen(restless, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "written\n"
            look.note()
        finally:
            other.terminate()
    assert "was written by somebody else since our last step" in look.said()


def test_a_vm_that_could_not_be_asked_after_a_step_is_judged_by_signatures(look):
    look.fill()
    look.lease.release("vm1")
    look.note()
    assert not look.left
    assert look.said() == "started"
    CONTENT["LUKS"][0](look.device)
    assert "carries crypto_LUKS" in look.said()


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
