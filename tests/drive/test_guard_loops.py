"""The guard on real block devices: loop devices, on the lab's hosts, over SSH."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loops import RANDOM, SIZE, Media, attacked, by_id, identified, mounted
from probes import until
from signatures import CONTENT, write

from hcilib.drive.guard import guard, last_look
from hcilib.drive.guard.guard import GuardError

pytestmark = pytest.mark.lab


def test_the_disk_this_machine_runs_from_is_refused(hosts):
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    root = next(mount[2] for mount in mounts if mount[4] == "/")
    if root.startswith("0:"):
        pytest.skip("the root file system of this machine is on no block device of its own")
    boot = Path("/sys/dev/block", root).resolve().name
    hosts.give("vm1", "BOOT", boot)
    testbed = hosts.testbed(("vm1", "BOOT"))
    with hosts.fleet(testbed) as fleet, pytest.raises(GuardError, match=f"{boot} is the boot disk: it carries /"):
        identified(fleet, testbed)


def test_every_refusal_of_every_disk_is_told_and_how_to_clear_what_nobody_uses(media, hosts, tmp_path):
    """One call; a command that destroys is named for a disk alone that nobody uses."""
    serials = ("BLANK", "FILLED", "EXT4", "MOUNTED", "TWIN", "NOWHERE")
    files = {serial: media.file(f"{serial}.img") for serial in serials[:-1]}
    write(files["FILLED"], 0, RANDOM)
    for serial in ("EXT4", "MOUNTED"):
        CONTENT["EXT4"][0](files[serial])
    for serial, file in (*files.items(), ("TWIN", media.file("twin.img"))):
        hosts.give("vm1", serial, file)
        media.attach(file)
    testbed = hosts.testbed(*(("vm1", serial) for serial in serials))
    mount = mounted(media.attached[3], tmp_path / "mnt")
    with mount, hosts.fleet(testbed) as fleet, pytest.raises(GuardError) as caught:
        identified(fleet, testbed, 1, len(serials))
    said = {refusal.device: refusal.reason for refusal in caught.value.refusals}
    assert list(said) == ["EXT4", "MOUNTED", "TWIN", "NOWHERE"]
    assert {serial for serial, reason in said.items() if "wipefs --all" in reason} == {"EXT4"}


PROBE = """
import os, sys, time
for _ in range(500):  # a look of another test may have it for a moment
    try:
        held = os.open(sys.argv[1], os.O_RDWR | os.O_EXCL)
        break
    except OSError:
        time.sleep(0.01)
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""


@contextlib.contextmanager
def probing(device: str, seconds: float):
    """Somebody who looks at a disk as wipefs does: opened to write, exclusively, by that name."""
    process = subprocess.Popen([sys.executable, "-c", PROBE, device, str(seconds)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n"
        yield
    finally:
        process.kill()
        process.communicate()


def test_somebody_else_s_look_is_over_in_a_moment_and_a_claim_is_not(blank, hosts):
    _, device, testbed = blank
    with hosts.fleet(testbed) as fleet:
        with probing(device, 0.3):
            assert identified(fleet, testbed)
        with probing(device, 60), pytest.raises(GuardError, match="is held by the kernel: mounted where"):
            identified(fleet, testbed)


def test_one_medium_on_two_vms_is_refused_on_both(media, hosts):
    file = media.file("shared.img")
    device = media.attach(file).removeprefix("/dev/")
    hosts.give("vm1", "S1", file)
    hosts.give("vm2", "S1", file)
    testbed = hosts.testbed(("vm1", "S1"), ("vm2", "S2"))
    with hosts.fleet(testbed) as fleet, pytest.raises(GuardError) as caught:
        identified(fleet, testbed, 2, 1)
    assert f"{device} has the serial or WWN of vm2 ({device})" in str(caught.value)


def test_a_link_to_a_plain_file_is_refused_and_the_file_untouched(machine, hosts, tmp_path):
    precious = tmp_path / "precious.img"
    precious.write_bytes(b"p" * SIZE)
    testbed = hosts.testbed(("vm1", "hci-test-file"))
    with by_id("hci-test-file", str(precious)), hosts.fleet(testbed) as fleet, pytest.raises(GuardError) as caught:
        identified(fleet, testbed)
    assert f"leads to {precious}, which is no block device" in str(caught.value)
    assert precious.read_bytes() == b"p" * SIZE


@pytest.fixture
def listed(monkeypatch, tmp_path):
    """The host's own list of what may be overwritten, at another place."""
    file = tmp_path / "hci" / "may-overwrite"
    file.parent.mkdir(mode=0o755)
    monkeypatch.setattr(guard, "INVENTORY", guard.INVENTORY.replace("/etc/hci/may-overwrite", str(file)))
    return file


def test_a_hosts_own_list_says_what_may_be_overwritten(blank, hosts, listed):
    _, _, testbed = blank
    with hosts.fleet(testbed) as fleet:
        for text in ("# ours\nB1  # the second disk\n", "naa.5000c500a1b2c3d4\nB1\n"):
            listed.write_text(text)
            assert identified(fleet, testbed)
        for text, allowed in {"": "nothing", "B2\n#B1\n": "B2", "==== sysfs\nB1x\n": "B1x"}.items():
            listed.write_text(text)
            with pytest.raises(GuardError) as refused:
                identified(fleet, testbed)
            assert f"is not among what /etc/hci/may-overwrite of its host allows ({allowed})" in str(refused.value)


def test_a_list_that_others_may_write_allows_nothing(blank, hosts, listed):
    _, _, testbed = blank
    listed.write_text("B1\n")
    tricks = {
        "belongs to account 65534": lambda: os.chown(listed, 65534, 0),
        "(it belongs to account 0, mode -rw-rw-r--": lambda: (os.chown(listed, 0, 0), listed.chmod(0o664)),
        "(its folder belongs to account 0, mode drwxr-xrwx": lambda: (listed.chmod(0o644), listed.parent.chmod(0o757)),
        "it is larger than 64 KiB": lambda: (listed.parent.chmod(0o755), listed.write_text("B1\n" + "#" * 2**16)),
        "cannot be read": lambda: (listed.parent.chmod(0o755), listed.unlink(), listed.mkdir()),
    }
    with hosts.fleet(testbed) as fleet:
        for reason, trick in tricks.items():
            trick()
            with pytest.raises(GuardError) as refused:
                identified(fleet, testbed)
            assert reason in str(refused.value)


@pytest.mark.needs("root", "setpriv")
def test_a_list_in_a_folder_that_cannot_be_entered_allows_nothing():
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        folder = Path(place) / "hci"
        folder.mkdir(mode=0o700)
        (folder / "may-overwrite").write_text("B1\n")
        asked = guard.INVENTORY.replace("/etc/hci/may-overwrite", str(folder / "may-overwrite")) + guard.END
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c"]
        said = subprocess.run([*nobody, asked], capture_output=True, text=True).stdout
    assert "cannot be read" in guard.parse(said).unsure


class Served:
    """A file of which a process of ours serves every byte, so that it may be stopped."""

    def __init__(self, media: Media):
        self.file, image = media.file("hung.img"), media.file("served.img")
        export = f"type=fuse,id=e,node-name=f,mountpoint={self.file},writable=on,allow-other=off"
        argv = ["qemu-storage-daemon", f"--blockdev=driver=file,node-name=f,filename={image}", f"--export={export}"]
        self.server = subprocess.Popen(argv)
        assert until(lambda: f" {self.file} " in Path("/proc/mounts").read_text(), 10)

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        self.server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.send_signal(signal.SIGCONT)


@pytest.fixture
def served(media):
    """The file, and a loop device over it."""
    served = Served(media)
    device = media.attach(served.file, "--direct-io=on")  # or the cache of the file would answer
    yield served, device
    media.detach(device)
    served.server.terminate()
    served.server.wait(20)


def looks_dead(device: str) -> subprocess.Popen:
    return subprocess.Popen(["dd", f"if={device}", "bs=4096", "count=1", "iflag=direct", "of=/dev/null"])


# Who looks at every disk of this machine meanwhile (discover) waits for these.


@pytest.mark.deep
@pytest.mark.needs("qemu-storage-daemon")
def test_a_disk_that_hangs_and_is_nobodys_stops_nobody(blank, hosts, served):
    """Only what a plan names is opened."""
    _, _, testbed = blank
    hung, device = served
    with hosts.fleet(testbed) as fleet:
        with hung.hanging():
            before = looks_dead(device)
            began = time.monotonic()
            assert list(identified(fleet, testbed)["vm1"]) == ["B1"]
            assert time.monotonic() - began < 20
            assert before.poll() is None, "it does hang"
        before.wait(20)


@pytest.mark.deep
@pytest.mark.needs("qemu-storage-daemon")
def test_a_disk_of_the_plan_that_hangs_is_named_and_holds_nothing_up(blank, hosts, served, monkeypatch):
    """After a step nothing is known of it, and of the other all; the next step says which it is."""
    monkeypatch.setattr(last_look, "ANSWER_S", 5)
    monkeypatch.setattr(last_look, "LOOK_S", 5)
    hung, _ = served
    hosts.give("vm1", "H1", hung.file)
    with attacked(hosts, hosts.testbed(("vm1", "B1"), ("vm1", "H1"))) as held:
        held.look.begin()
        held.look.writing(held.vms, 2)
        with hung.hanging():
            held.look.after()
            assert [serial for _, serial in held.look.counted] == ["B1"]
            with pytest.raises(GuardError) as caught:
                held.look.before(held.vms, 2)
            [refusal] = caught.value.refusals
            assert refusal.device == "H1"
            assert refusal.reason.endswith("it answers nothing within 5 s")
        assert until(lambda: held.said() == "started"), "it is asked again"
