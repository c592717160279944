"""Real block devices for the guard's tests: loop devices over files, and hosts that know them by serial."""

import contextlib
import fcntl
import functools
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from probes import patiently, until

from hcilib.drive.campaign import campaign
from hcilib.drive.guard.guard import Guarded, GuardError, disks_to_lease, identify
from hcilib.drive.guard.last_look import LastLook
from hcilib.drive.hosts import processes
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.hosts.lease import Lease
from hcilib.model.testbed import Disk, Fio, Testbed, Vm
from tests.needs import need

MIB = 2**20
SIZE = 16 * MIB
RANDOM = random.Random(16).randbytes(SIZE)
LOOP_CTL_REMOVE = 0x4C81
NO_LIBVIRT = "qemu+unix:///session?socket=/nowhere"  # the machine's own has guests that are none of a test's

# A loop device has no serial, so `lsblk` is decorated on the way: a serial belongs to the medium, here the backing
# file.
SHIM = """#!{python} -SE
import json, subprocess, sys
done = subprocess.run(["{lsblk}", *sys.argv[1:]], stdout=subprocess.PIPE)
serials, tree = json.load(open("{serials}")), json.loads(done.stdout or "{{}}")
def medium(name):
    try:
        return open("/sys/class/block/" + name + "/loop/backing_file").read().strip()
    except OSError:
        return name
for row in tree.get("blockdevices", ()):
    row["serial"] = serials.get(medium(row["kname"]), row["serial"])
print(json.dumps(tree))
sys.exit(done.returncode)
"""


def losetup(*args) -> str:
    return subprocess.run(["losetup", *map(str, args)], check=True, capture_output=True, text=True).stdout.strip()


def loop_names() -> set[str]:
    return {p.name for p in Path("/sys/class/block").glob("loop*")}


class Media:
    """Files and the loop devices over them; at the end each is detached by name, and removed if it was not there
    before."""

    def __init__(self, folder: Path):
        self.folder, self.attached, self.before = folder, [], loop_names()
        self.made: set[str] = set()

    def file(self, name: str, size: int = SIZE) -> Path:
        path = self.folder / name
        path.write_bytes(b"")
        os.truncate(path, size)
        return path

    def attach(self, path: Path, *options: str) -> str:
        device = losetup("--find", "--show", *options, path)
        self.attached.append(device)
        self.made.add(device.removeprefix("/dev/"))
        return device

    def detach(self, device: str) -> None:
        losetup("--detach", device)
        self.attached.remove(device)

    def close(self) -> None:
        for device in reversed(self.attached):
            losetup("--detach", device)
        self.attached.clear()
        with open("/dev/loop-control") as control:
            for name in self.made - self.before:
                with contextlib.suppress(OSError):  # taken by someone else meanwhile
                    fcntl.ioctl(control, LOOP_CTL_REMOVE, int(name.removeprefix("loop")))


class Hosts:
    """The lab's hosts as a real testbed: no lab_root, disks by serial; `serials` says which medium is whose on which
    VM."""

    def __init__(self, bed: Testbed, folder: Path, lsblk: str):
        self.bed, self.folder = bed, folder
        self.serials: dict[str, dict[str, str]] = {vm.name: {} for vm in bed.vms}
        for vm in bed.vms:
            (folder / vm.name).mkdir()
            shim = folder / vm.name / "lsblk"
            shim.write_text(SHIM.format(python=sys.executable, lsblk=lsblk, serials=folder / vm.name / "serials.json"))
            shim.chmod(0o755)

    def give(self, vm: str, serial: str, medium: Path | str) -> None:
        self.serials[vm][str(medium)] = serial

    def testbed(self, *disks: tuple[str, str], size: int = SIZE, **changes) -> Testbed:
        """A testbed of the VMs named, each with the serials given."""
        for name, known in self.serials.items():
            (self.folder / name / "serials.json").write_text(json.dumps(known))
        owned = {vm: [Disk(serial=s, size_bytes=size) for v, s in disks if v == vm] for vm, _ in disks}
        vms = tuple(vm.model_copy(update={"disks": tuple(owned[vm.name])}) for vm in self.bed.vms if vm.name in owned)
        given = {"nodes": self.bed.nodes, "vms": vms, "fio": Fio(port=self.bed.fio.port), "consent": "wipe",
                 "known_hosts": self.bed.known_hosts, "key": self.bed.key,
                 "lease_folder": self.bed.lease_folder}  # fmt: skip
        return Testbed(name="real", **{**given, **changes})

    def fleet(self, testbed: Testbed) -> Fleet:
        return _Shimmed(testbed, self.folder)


class _Shimmed(Fleet):
    """A fleet on whose hosts `lsblk` is the decorated one; everything else there is as it is."""

    def __init__(self, testbed: Testbed, folder: Path):
        super().__init__(testbed)
        self.folder = folder

    def run(self, command, hosts=None, limit_s=30, **limits):
        commands = (
            command if isinstance(command, dict) else dict.fromkeys(self.names if hosts is None else hosts, command)
        )
        own = f"export LIBVIRT_DEFAULT_URI='{NO_LIBVIRT}'\n"
        return super().run(
            {n: f"PATH={shlex.quote(str(self.folder / n))}:$PATH\n{own}{c}" for n, c in commands.items()},
            limit_s=limit_s,
            **limits,
        )


@contextlib.contextmanager
def own_kernels(folder: Path) -> Iterator[None]:
    """Campaigns reach the hosts whose lsblk is decorated, and count a VM's own fio only: these hosts share one
    kernel."""
    everything = processes.parse_processes

    def own(text, vm, bed):
        return {k: p for k, p in everything(text, vm, bed).items() if f"/hci-{vm.target}." in p.command}

    with (
        mock.patch.object(campaign, "Fleet", lambda testbed: _Shimmed(testbed, folder)),
        mock.patch.object(processes, "parse_processes", own),
    ):
        yield


@contextlib.contextmanager
def mounted(device: str, where: Path):
    where.mkdir()
    patiently(["mount", device, where])
    try:
        yield where
    finally:
        subprocess.run(["umount", where], check=True)


@contextlib.contextmanager
def mounted_elsewhere(device: str, folder: Path, make: bool = True):
    (folder / "mnt").mkdir()
    mkfs = f"mkfs.ext4 -qF {device} && " * make
    script = f"{mkfs}mount {device} {folder}/mnt && echo ready && exec sleep 60"
    with subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "ready\n"
            assert f" {device} " not in Path("/proc/self/mountinfo").read_text()
            yield
        finally:
            other.send_signal(signal.SIGKILL)
            other.wait()
    until(lambda: not subprocess.run(["wipefs", "-n", "-a", device], capture_output=True).stderr)


@contextlib.contextmanager
def by_id(name: str, target: str):
    """A link under /dev/disk/by-id, as udev would make it; the folders only if there are none, and removed again."""
    folder = Path("/dev/disk/by-id")
    made = [p for p in (folder.parent, folder) if not p.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(target)
    try:
        yield str(folder / name)
    finally:
        (folder / name).unlink()
        with contextlib.suppress(OSError):  # another test's link is there meanwhile
            for path in reversed(made):
                path.rmdir()


@dataclass
class Attacked:
    """The first VM's disks as a campaign holds them; `device` and `file` are of the first of them."""

    fleet: Fleet
    vms: tuple[Vm, ...]
    device: str
    file: Path
    lease: Lease
    look: LastLook

    @property
    def numjobs(self) -> int:
        return len(self.vms[0].disks)

    def note(self) -> None:
        self.look.writing(self.vms, self.numjobs)
        self.look.after()

    def fill(self, data: bytes = RANDOM) -> None:
        """As a prefill leaves it."""
        with open(self.device, "r+b") as device:
            device.write(data)
        self.note()

    def said(self) -> str:
        """What the look says before a step: `started`, as fio may then be, or why not."""
        try:
            self.look.before(self.vms, self.numjobs)
        except GuardError as error:
            return str(error)
        return "started"

    @property
    def left(self) -> dict:
        """What is known of the first disk since our last step; nothing where nothing is."""
        return self.look._left.get(("vm1", self.vms[0].disks[0].serial), {}).get("left", {})


def identified(fleet: Fleet, testbed: Testbed, vms: int = 1, numjobs: int = 1) -> Guarded:
    """The disks as they are held and judged when a campaign begins; GuardError of those that may not be written."""
    disks = functools.partial(disks_to_lease, fleet, testbed, vms, numjobs)
    with Lease(fleet, testbed, testbed.vms[:vms], "run", disks=disks) as lease:
        return identify(fleet, testbed, vms, numjobs, lease, testbed.consent)


@contextlib.contextmanager
def attacked(hosts: Hosts, testbed: Testbed, device="", file=None, **how) -> Iterator[Attacked]:
    """Hold the first VM's disks, and judge them as when a campaign begins; `how`: of the look at them."""
    numjobs, reading = len(testbed.vms[0].disks), how.get("readonly", False)
    with hosts.fleet(testbed) as fleet:
        disks = functools.partial(disks_to_lease, fleet, testbed, 1, numjobs)
        with Lease(fleet, testbed, testbed.vms[:1], "run", disks=disks, reading=reading) as lease:
            guarded = identify(fleet, testbed, 1, numjobs, lease, "wipe", not reading)
            yield Attacked(fleet, testbed.vms[:1], device, file, lease, LastLook(guarded, lease, **how))


@pytest.fixture(scope="module")
def machine(bed):
    """Loop devices need root and the kernel's loop driver."""
    need("loop devices (as root)", "losetup", "addpart", "lsblk", "blkid", "mkfs.ext4", "mkswap", "mount")
    return bed


def hosts_in(machine, folder: Path) -> Hosts:
    folder.mkdir()
    return Hosts(machine, folder, shutil.which("lsblk"))


@pytest.fixture
def media(machine, tmp_path):
    with contextlib.closing(Media(tmp_path)) as media:
        yield media


@pytest.fixture
def hosts(machine, tmp_path) -> Hosts:
    return hosts_in(machine, tmp_path / "hosts")


@pytest.fixture
def blank(media, hosts):
    """A blank disk B1 on vm1: its file, its device and its testbed."""
    file = media.file("b1.img")
    device = media.attach(file)
    hosts.give("vm1", "B1", file)
    return file, device, hosts.testbed(("vm1", "B1"))


@pytest.fixture
def own(hosts):
    """Campaigns on these hosts."""
    with own_kernels(hosts.folder):
        yield


@pytest.fixture
def held(blank, hosts):
    """A disk that was judged blank, and is held."""
    file, device, testbed = blank
    with attacked(hosts, testbed, device, file) as held:
        yield held
