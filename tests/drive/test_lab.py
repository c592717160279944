"""The embedded lab: real parts come up, do what they say, and leave nothing behind however they end."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from probes import REPOSITORY, assert_gone, base_of, listening, processes, python, until

from hcilab import lab_hosts
from hcilab.lab import LabError, lab
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.testbed import Testbed
from tests.needs import need

pytestmark = pytest.mark.lab
SMALL = {"nodes": 2, "vms": 1, "disk_bytes": 4 * 2**20}


@pytest.fixture
def small(programs, tmp_path):
    """Start a lab of one VM in the test's folder."""

    def start(**options):
        return lab(**{**SMALL, "root": tmp_path, **options})

    return start


# What it is


def test_every_host_has_its_own_sshd_and_no_fio_listens(bed):
    base = base_of(bed)
    expected = {f"{h.address}:{h.port}" for h in (*bed.nodes, *bed.vms)}
    expected |= {f"{node.address}:10809" for node in bed.nodes}
    assert set(listening(base)) == expected
    assert len({h.address for h in (*bed.nodes, *bed.vms)}) == 5
    with Fleet(bed) as fleet:
        who = fleet.run("echo $HCILAB_HOST")
    assert {name: o.value.strip() for name, o in who.items()} == {h.name: h.name for h in (*bed.nodes, *bed.vms)}


def test_its_keys_are_for_it_alone(bed):
    folder = Path(bed.lab_root)
    for key in (folder / "client_key", *folder.glob("*.hostkey")):
        assert key.stat().st_mode & 0o777 == 0o600
    lines = Path(bed.known_hosts).read_text().splitlines()
    assert len(lines) == 5
    assert len({line.split()[2] for line in lines}) == 5, "every host its own key"


def images(testbed) -> dict[str, list[Path]]:
    return {disk.serial: [Path(p) for p in disk.backing] for vm in testbed.vms for disk in vm.disks}


def fill(testbed, disk, number: int) -> None:
    """Write a whole disk through the lab's front with random data of its own."""
    argv = [
        "fio",
        f"--name=fill{number}",
        "--ioengine=nbd",
        f"--uri={disk.uri}",
        "--rw=write",
        "--bs=256k",
        "--iodepth=4",
        f"--size={disk.size_bytes}",
        f"--randseed={number}",
        "--refill_buffers=1",
    ]
    done = subprocess.run(argv, cwd=testbed.lab_root, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_mirror_writes_two_equal_replicas_on_two_nodes(bed):
    vm = bed.vms[2]
    for number, disk in enumerate(vm.disks):
        fill(bed, disk, number + 1)
    contents = []
    for disk in vm.disks:
        one, other = images(bed)[disk.serial]
        assert {one.parent.name, other.parent.name} == {"node1", "node2"}
        assert one.read_bytes() == other.read_bytes()
        assert one.read_bytes().count(0) < disk.size_bytes / 100, "the whole disk was written, not just its start"
        assert one.stat().st_size == disk.size_bytes
        contents.append(one.read_bytes())
    assert contents[0] != contents[1], "two disks are two images"


# However it ends


HOLD = """
import sys, time
from hcilab.lab import lab
with lab(nodes=2, vms=1, disk_bytes=4 * 2**20, root=sys.argv[1]) as bed:
    print(bed.model_dump_json(), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def held(programs, tmp_path):
    """A lab held by another process, and that process."""
    holder = python(HOLD, str(tmp_path))
    try:
        line = holder.stdout.readline()
        assert line, holder.stderr.read()
        bed = Testbed.model_validate_json(line)
        assert until(lambda: listening(base_of(bed)))
        yield holder, bed
    finally:
        holder.kill()
        holder.communicate()


def test_it_is_gone_after_kill_9_of_its_holder(held):
    holder, bed = held
    with Fleet(bed) as fleet:  # what a session left behind goes too
        for outcome in fleet.run(f"cd '{bed.lab_root}' && setsid sleep 900 </dev/null >/dev/null 2>&1 &").values():
            assert outcome.ok
    asleep = lambda: [c for c in processes(bed.lab_root).values() if c.startswith("sleep 900")]  # noqa: E731
    assert until(lambda: len(asleep()) == 3), asleep()  # a shell takes its time to become it
    holder.kill()
    assert_gone(bed)


@pytest.mark.parametrize("sig", [pytest.param(signal.SIGINT, marks=pytest.mark.deep), signal.SIGTERM])
def test_it_is_gone_after_a_signal_to_its_holder(held, sig):
    holder, bed = held
    holder.send_signal(sig)
    holder.wait(timeout=10)
    assert_gone(bed)


def test_two_labs_at_once_share_nothing(bed, small):
    with small() as other:
        assert base_of(other) != base_of(bed)
        with Fleet(other) as theirs, Fleet(bed) as ours:
            assert all(o.ok for o in (theirs.connect() | ours.connect()).values())
    assert_gone(other, patience_s=0)
    assert listening(base_of(bed)), "the end of one is not the end of the other"


# Errors


@pytest.mark.parametrize("program", sorted(lab_hosts.PACKAGES))
def test_a_missing_program_is_named_with_its_package(programs, monkeypatch, program):
    which = shutil.which
    monkeypatch.setattr(
        lab_hosts.shutil, "which", lambda name, **options: None if name == program else which(name, **options)
    )
    with pytest.raises(LabError) as caught:
        lab_hosts.find_programs()
    assert str(caught.value).startswith(f"not found: {program}; install with: apt-get install")
    assert str(caught.value).endswith(f" {lab_hosts.PACKAGES[program]}")


@pytest.mark.parametrize(
    ("program", "script", "said"),
    [
        ("fio", "echo fio-3.15", r"fio is 3\.15; the lab needs 3\.16 or newer"),
        ("fio", "echo fio-2.21-dirty", r"fio is 2\.21"),
        ("fio", "exit 1", "fio is of unknown version"),
        ("fio", 'case $1 in --version) echo fio-3.33;; *) echo "\tlibaio";; esac', "without the nbd engine"),
        ("sshd", "echo 'OpenSSH_7.4p1 Debian' >&2", r"sshd is 7\.4; the lab needs 8\.0 or newer"),
    ],
)
def test_a_program_that_will_not_do_is_named(programs, monkeypatch, tmp_path, program, script, said):
    fake = tmp_path / "bin" / program
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(LabError, match=said), lab(root=tmp_path / "bed"):
        pass
    assert not (tmp_path / "bed").exists(), "before anything is made"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"nodes": 1}, "lab(nodes=1): Input should be greater than or equal to 2"),
        ({"vms": 0}, "lab(vms=0)"),
        ({"vms": 65}, "lab(vms=65)"),
        ({"disks": 9}, "lab(disks=9)"),
        ({"disk_bytes": "64 MB/s"}, "lab(disk_bytes='64 MB/s')"),
        ({"system": "lab-raid"}, "unknown lab system 'lab-raid': expected one of lab-drive, lab-single, lab-mirror"),
        pytest.param(
            {"disk_bytes": 2**60}, "MiB free, the lab's replicas need", marks=pytest.mark.needs("qemu-storage-daemon")
        ),
    ],
)
def test_a_lab_that_cannot_be_is_refused_in_one_line(tmp_path, wrong, said):
    with pytest.raises(LabError) as caught, lab(root=tmp_path / "bed", **wrong):
        pass
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_host_that_does_not_come_up_is_named_with_its_log(small, monkeypatch, tmp_path):
    monkeypatch.setattr(lab_hosts, "_SSHD", lab_hosts._SSHD + "NoSuchOption yes\n")
    with (
        pytest.raises(LabError, match=r"sshd of \w+ \(127\..*\) exited with 255; the end of its log: .*NoSuchOption"),
        small(),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


# As an ordinary user

AS_USER = """
import json, os, sys
import hcilib as hci
from hcilab.lab import lab
from hcilib.model.system import System
plan = hci.sweep(["4k-randwrite"], repeats=1, iodepth=2, vms=1, write_runtime_s=0.5, span_bytes=2**20, prefill=False, canary=False)
with lab(nodes=2, vms=1, disk_bytes=2**22) as bed:
    results = hci.run(plan, System(name="lab-mirror", label="x"), bed, "run", progress=False)
    print(json.dumps({"uid": os.getuid(), "rows": len(results), "iops": float(results["iops"].iloc[0]),
                      "bed": bed.model_dump(mode="json")}))
"""  # noqa: E501


def link_or_copy(source, target):
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def place_python(home: Path) -> tuple[Path, Path]:
    """This interpreter and its packages where another user can reach them: hard links, as /root is closed to others."""
    import site

    base, packages = Path(sys.base_prefix), Path(site.getsitepackages()[0])
    unneeded = shutil.ignore_patterns("site-packages", "test", "idlelib", "share", "*.a")
    for part in ("bin", "lib"):
        shutil.copytree(base / part, home / "python" / part, copy_function=link_or_copy, ignore=unneeded, symlinks=True)
    large = shutil.ignore_patterns("jupyterlab", "playwright", "debugpy", "hypothesis")

    def ignore(folder, names):
        return large(folder, names) if Path(folder) == packages else {"tests"}.intersection(names)

    shutil.copytree(packages, home / "packages", copy_function=link_or_copy, ignore=ignore, symlinks=True)
    return home / "python" / "bin" / Path(os.path.realpath(sys.executable)).name, home / "packages"


@pytest.fixture
def ordinary_user():
    """A throw-away account with a home folder, removed again."""
    need("root", "useradd", "runuser")
    name = f"hcilib{os.getpid()}"
    subprocess.run(["useradd", "--create-home", name], check=True, capture_output=True)
    try:
        yield name, Path("~" + name).expanduser()
    finally:
        subprocess.run(["userdel", "--remove", name], check=True, capture_output=True)


@pytest.mark.slow
def test_an_ordinary_user_runs_the_lab_and_a_campaign(programs, ordinary_user):
    user, home = ordinary_user
    home.chmod(0o755)
    for package in ("hcilib", "hcilab"):
        shutil.copytree(REPOSITORY / package, home / "repository" / package)
    shutil.copy(REPOSITORY / "pyproject.toml", home / "repository")
    interpreter, packages = place_python(home)
    subprocess.run(["chown", "-R", f"{user}:", home / "repository"], check=True)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "USER": user, "LOGNAME": user,
                   "PYTHONHOME": str(home / "python"), "LD_LIBRARY_PATH": str(home / "python" / "lib"),
                   "PYTHONPATH": os.pathsep.join([str(home / "repository"), str(packages)])}  # fmt: skip
    done = subprocess.run(
        [shutil.which("runuser"), "-u", user, "--", interpreter, "-c", AS_USER],
        cwd=home / "repository",
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["uid"] == (home / "repository").stat().st_uid != 0
    assert said["rows"] == 1
    assert said["iops"] > 0
    assert_gone(Testbed.model_validate(said["bed"]), patience_s=0)
    assert not [p for p in processes(str(home)).values()]
    with contextlib.suppress(FileNotFoundError):
        assert list((home / "repository" / "out").iterdir()) == []
