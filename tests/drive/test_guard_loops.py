"""The guard on real block devices: loop devices, on the lab's hosts, over SSH."""

import contextlib
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from loops import SIZE, Media, by_id, hosts_in, losetup, mounted
from probes import mkfs, until
from signatures import CONTENT, write

from hcilib import GuardError, Testbed
from hcilib.drive.guard import guard
from hcilib.drive.guard.devices import content_of
from hcilib.drive.guard.guard import Refusal, identify, recheck, unchanged
from hcilib.drive.guard.last_look import LastLook
from hcilib.model.testbed import Disk, Node, Vm

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def verdicts(machine, tmp_path_factory):
    """Many devices judged by one call: serial -> what was said of it, as the guard refused them all."""
    folder = tmp_path_factory.mktemp("verdicts")
    hosts = hosts_in(machine, folder / "hosts")
    with contextlib.ExitStack() as stack:
        media = stack.enter_context(contextlib.closing(Media(folder)))

        def disk(serial: str, prepare=lambda file: None, *options: str, size: int = SIZE) -> str:
            file = media.file(f"{serial}.img", size)
            prepare(file)
            hosts.give("vm1", serial, file)
            return media.attach(file, *options)

        for serial, (prepare, _) in CONTENT.items():
            disk(serial, prepare)
        random_bytes = random.Random(20240623).randbytes(SIZE)
        devices = {
            "BLANK": disk("BLANK"),
            "FILLED": disk("FILLED", lambda file: write(file, 0, random_bytes)),
            "PARTED": disk("PARTED", lambda file: None, "--partscan"),
            "READONLY": disk("READONLY", lambda file: None, "--read-only"),
            "SIZE": disk("SIZE", size=SIZE + 4096),
            "HELD": disk("HELD"),
            "MOUNTED": disk("MOUNTED", CONTENT["EXT4"][0]),
        }
        twins = [media.file(f"twin{i}.img") for i in (1, 2)]
        for twin in twins:
            hosts.give("vm1", "TWIN", twin)
            media.attach(twin)
        subprocess.run(
            ["addpart", devices["PARTED"], "1", "2048", "8192"], check=True
        )  # as a kernel without tables knows it
        stack.callback(subprocess.run, ["delpart", devices["PARTED"], "1"], check=True)
        media.attach(Path(devices["HELD"]))
        stack.enter_context(mounted(devices["MOUNTED"], folder / "mnt"))
        root = next(
            line.split()[2] for line in Path("/proc/self/mountinfo").read_text().splitlines() if line.split()[4] == "/"
        )
        boot = Path("/sys/dev/block", root).resolve().name if not root.startswith("0:") else None
        if boot:
            hosts.give("vm1", "BOOT", boot)
        serials = [*CONTENT, *devices, "TWIN", "NOWHERE", *(["BOOT"] if boot else [])]
        testbed = hosts.testbed(*(("vm1", serial) for serial in serials))
        with hosts.fleet(testbed) as fleet, pytest.raises(GuardError) as caught:
            identify(fleet, testbed, 1, len(serials), "wipe")
        assert {r.host for r in caught.value.refusals} == {"vm1"}
        said = {serial: "; ".join(r.reason for r in caught.value.refusals if r.device == serial) for serial in serials}
        yield said, devices | {"BOOT": boot}


@pytest.mark.parametrize("serial", CONTENT)
def test_a_device_with_content_is_refused(verdicts, serial):
    said, _ = verdicts
    assert CONTENT[serial][1] in said[serial]
    assert "wipefs --all" in said[serial], "nobody uses it, so the way to clear it is named"


@pytest.mark.parametrize(
    ("serial", "reason"),
    [
        ("PARTED", "{0} has partition(s) {0}p1"),
        ("READONLY", "{0} is read-only"),
        ("SIZE", f"{{0}} has {SIZE + 4096} bytes where the testbed says {SIZE}"),
        ("HELD", "{0} is held by loop"),
        ("MOUNTED", "{0} is mounted on "),
    ],
)
def test_a_device_in_use_is_refused(verdicts, serial, reason):
    said, devices = verdicts
    assert reason.format(devices[serial].removeprefix("/dev/")) in said[serial]


@pytest.mark.parametrize("serial", ["BLANK", "FILLED"])
def test_a_blank_device_or_one_filled_with_random_bytes_is_not(verdicts, serial):
    assert verdicts[0][serial] == ""


def test_the_disk_this_machine_runs_from_is_refused(verdicts):
    said, devices = verdicts
    if not devices["BOOT"]:
        pytest.skip("the root file system of this machine is on no block device of its own")
    assert f"{devices['BOOT']} is " in said["BOOT"]
    assert "the boot disk: it carries /" in said["BOOT"]


def test_a_serial_carried_by_two_or_by_none_is_refused(verdicts):
    said, _ = verdicts
    assert said["TWIN"].startswith("2 devices have this serial, WWN or by-id link: loop")
    assert said["NOWHERE"].startswith("no device of this host has this serial, WWN or by-id link; it has ")


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
    """Of the shell's first look at the disk, which starts the other's."""
    _, device, testbed = blank
    look, mark = hosts.folder / "vm1" / "wipefs", hosts.folder / "looked"
    other = (
        f"{shlex.join([sys.executable, '-c', PROBE, device])} 0.15 >{mark} & until [ -s {mark} ]; do sleep 0.01; done"
    )
    look.write_text(f'#!/bin/sh\n[ -e {mark} ] || {{ {other}; }}\nexec {shutil.which("wipefs")} "$@"\n')
    look.chmod(0o755)
    with hosts.fleet(testbed) as fleet:
        assert identify(fleet, testbed, 1, 1, "wipe")
        assert mark.read_text() == "held\n", "the other looked first"
        with probing(device, 60), pytest.raises(GuardError, match="is held by the kernel: mounted where"):
            identify(fleet, testbed, 1, 1, "wipe")


def test_one_medium_on_two_vms_is_refused_on_both(media, hosts):
    file = media.file("shared.img")
    device = media.attach(file).removeprefix("/dev/")
    hosts.give("vm1", "S1", file)
    hosts.give("vm2", "S1", file)
    testbed = hosts.testbed(("vm1", "S1"), ("vm2", "S2"))
    with hosts.fleet(testbed) as fleet, pytest.raises(GuardError) as caught:
        identify(fleet, testbed, 2, 1, "wipe")
    assert f"{device} has the serial or WWN of vm2 ({device})" in str(caught.value)


def test_a_link_to_a_plain_file_is_refused_and_the_file_untouched(machine, hosts, tmp_path):
    precious = tmp_path / "precious.img"
    precious.write_bytes(b"p" * SIZE)
    testbed = hosts.testbed(("vm1", "hci-test-file"))
    with by_id("hci-test-file", str(precious)), hosts.fleet(testbed) as fleet, pytest.raises(GuardError) as caught:
        identify(fleet, testbed, 1, 1, "wipe")
    assert f"leads to {precious}, which is no block device" in str(caught.value)
    assert precious.read_bytes() == b"p" * SIZE


def test_a_device_that_vanishes_or_comes_back_as_another(blank, media, hosts):
    _, device, testbed = blank
    with hosts.fleet(testbed) as fleet:
        before = identify(fleet, testbed, 1, 1, "wipe")
        assert recheck(fleet, before, ["vm1"]) == []
        media.detach(device)
        [gone] = recheck(fleet, before, ["vm1"])
        assert "vanished" in gone.reason

        other = media.file("other.img")
        losetup(device, other)  # the same name, number and size; another medium
        media.attached.append(device)
        assert "vanished" in recheck(fleet, before, ["vm1"])[0].reason, "it does not carry the serial"
        hosts.give("vm1", "B1", other)
        hosts.testbed(("vm1", "B1"))
        [another] = recheck(fleet, before, ["vm1"])
        assert f"{device} came back as another device since it was checked: disk sequence" in another.reason
        with pytest.raises(GuardError, match="came back as another"):
            unchanged(fleet, before, ["vm1"])
        assert recheck(fleet, before, ["vm2"]) == [], "only the VMs of the step are asked"


def test_a_device_that_someone_takes_into_use_is_noticed_before_the_next_step(blank, hosts, tmp_path):
    _, device, testbed = blank
    with hosts.fleet(testbed) as fleet:
        before = identify(fleet, testbed, 1, 1, "wipe")
        mkfs(device)
        with mounted(device, tmp_path / "mnt") as where:
            [refusal] = recheck(fleet, before, ["vm1"])
            assert refusal == Refusal("vm1", "B1", f"{device.removeprefix('/dev/')} is mounted on {where}")
        with pytest.raises(GuardError, match="carries ext4"):
            identify(fleet, testbed, 1, 1, "wipe")


@pytest.fixture
def listed(monkeypatch, tmp_path):
    """The host's own list of what may be overwritten, at another place."""
    file = tmp_path / "hci" / "may-overwrite"
    file.parent.mkdir(mode=0o755)
    monkeypatch.setattr(guard, "INVENTORY", guard.INVENTORY.replace("/etc/hci/may-overwrite", str(file)))
    return file


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# ours\nB1  # the second disk\n", None),
        ("naa.5000c500a1b2c3d4\nB1\n", None),
        ("", "is not among what /etc/hci/may-overwrite of its host allows (nothing)"),
        ("B2\n#B1\n", "is not among what /etc/hci/may-overwrite of its host allows (B2)"),
        ("==== sysfs\nB1x\n", "is not among what /etc/hci/may-overwrite of its host allows (B1x)"),
    ],
)
def test_a_hosts_own_list_says_what_may_be_overwritten(blank, hosts, listed, text, reason):
    _, _, testbed = blank
    listed.write_text(text)
    with hosts.fleet(testbed) as fleet:
        if reason is None:
            assert identify(fleet, testbed, 1, 1, "wipe")
            return
        with pytest.raises(GuardError) as refused:
            identify(fleet, testbed, 1, 1, "wipe")
    assert reason in str(refused.value)


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
                identify(fleet, testbed, 1, 1, "wipe")
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
            assert list(identify(fleet, testbed, 1, 1, "wipe")["vm1"]) == ["B1"]
            assert time.monotonic() - began < 20
            assert before.poll() is None, "it does hang"
        before.wait(20)


@pytest.mark.deep
@pytest.mark.needs("qemu-storage-daemon")
def test_a_disk_of_the_plan_that_hangs_is_named_and_holds_nothing_up(blank, hosts, served):
    """After a step nothing is known of it, and of the other all; the next step says which it is."""
    hung, _ = served
    hosts.give("vm1", "H1", hung.file)
    testbed = hosts.testbed(("vm1", "B1"), ("vm1", "H1"))
    vms = testbed.fleet(1)
    with hosts.fleet(testbed) as fleet:
        look = LastLook(fleet, identify(fleet, testbed, 1, 2, "wipe"))
        look.begin()
        look.writing(vms, 2)
        began = time.monotonic()
        with hung.hanging():
            look.after()
            assert [serial for _, serial in look.counted] == ["B1"]
            _, preludes = look.before(vms, 2)
            [said] = fleet.run(preludes, limit_s=30).values()
            assert re.search(r"exited with 1: H1: /dev/loop\d+ .* cannot be read now: it answers nothing$", said.error)
            assert time.monotonic() - began < 40


@pytest.mark.needs("root", "setpriv", "blockdev")
def test_an_account_of_group_disk_is_told_what_fio_asks_for(media):
    """It may read and write the disk, and not drop the kernel's cache of it."""
    device = media.attach(media.file("d.img"))
    as_it_was = os.stat(device)
    shutil.chown(device, group="disk")
    os.chmod(device, 0o660)
    account = ["setpriv", "--reuid=65534", "--regid=disk", "--clear-groups", "sh", "-c"]
    text = guard.INVENTORY + content_of(device.removeprefix("/dev/")) + guard.END
    for who, is_told in ((account, True), (["sh", "-c"], False)):
        said = subprocess.run([*who, text], capture_output=True, text=True).stdout
        known = guard.parse(said).devices[device.removeprefix("/dev/")]
        known = replace(known, identifiers=frozenset({"S"}))
        vm = Vm(name="v", node="n", disks=(Disk(serial="S", size_bytes=SIZE),))
        bed = Testbed(name="t", nodes=(Node(name="n"),), vms=(vm,))
        _, refused = guard.judge(bed, 1, 1, {"v": guard.Inventory({known.name: known})})
        assert [r.reason.endswith("log in as root") for r in refused] == [True] * is_told, refused
    os.chown(device, as_it_was.st_uid, as_it_was.st_gid)
    os.chmod(device, as_it_was.st_mode)
