"""The box in bad weather: every failure is one plain error, and leaves no process, no port and no file. No guest has to
boot for long."""

import os
import shutil
import signal
import socket
import threading

import pytest
from probes import listening, processes, until

from hcilab import cluster_guest, cluster_image
from hcilab.cluster import LabError, cluster
from hcilab.cluster_guest import QmpError, execute

pytestmark = [pytest.mark.box, pytest.mark.deep]
SMALL = {"drive_bytes": 16 * 2**20}


@pytest.fixture
def nothing_left(tmp_path):
    """The folder of a box that will not come up; afterwards there is nothing in it, and nothing runs there."""
    yield tmp_path
    until(lambda: not processes(str(tmp_path)))
    assert processes(str(tmp_path)) == {}
    assert list(tmp_path.iterdir()) == []


def test_without_qemu_the_package_is_named(monkeypatch, nothing_left):
    which = shutil.which
    monkeypatch.setattr(
        cluster_guest.shutil, "which", lambda name, **given: None if "qemu" in name else which(name, **given)
    )
    with pytest.raises(LabError) as caught, cluster(root=nothing_left):
        pass
    assert str(caught.value) == (
        "not found: qemu-system-x86_64; install with: apt-get install -y --no-install-recommends qemu-system-x86"
    )


@pytest.mark.parametrize(("said", "old"), [("QEMU emulator version 5.2.0 (Debian)", True), ("", True),
                                           ("QEMU emulator version 10.0.2", False)])  # fmt: skip
def test_a_qemu_that_is_too_old_is_named(monkeypatch, tmp_path, said, old):
    fake = tmp_path / "qemu-system-x86_64"
    fake.write_text(f"#!/bin/sh\necho '{said}'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    if old:
        with pytest.raises(LabError, match=r"the box needs qemu 7\.2 or newer"):
            cluster_guest.find_qemu()
    else:
        assert cluster_guest.find_qemu() == str(fake)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"system": "box-vsan"},
            "unknown box system 'box-vsan': expected one of box-drbd, ",
        ),
        ({"nodes": 1}, "box-drbd stands on 2 nodes; nodes=1 was given"),
        ({"nodes": 3}, "box-drbd stands on 2 nodes; nodes=3 was given"),
        ({"system": "box-mirror3", "nodes": 3}, "box-mirror3 stands on 4 nodes; nodes=3 was given"),
        ({"nodes": 5}, "cluster(nodes=5): Input should be less than or equal to 4"),
        ({"drives": 2}, "box-drbd stands on RAID 5, which needs three drives; drives=2 was given"),
        ({"drive_bytes": "256 M"}, "cluster(drive_bytes='256 M')"),
        ({"memory_bytes": 2**50}, "guest(s) need 2147483648 MiB: end something, or start fewer nodes"),
        ({"drive_bytes": 2**60}, "MiB free, the box's drives need"),
    ],
)
def test_a_box_that_cannot_be_is_refused_in_one_line(box_programs, nothing_left, wrong, said):
    with pytest.raises(LabError) as caught, cluster(root=nothing_left, **wrong):
        pass
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_address_that_answers_is_in_use(box_programs, nothing_left):
    with (
        socket.create_server(("127.211.9.1", 2222)),
        pytest.raises(LabError, match=r"address in use: 127\.211\.9\.1:2222 .*base="),
        cluster(root=nothing_left, base="127.211.9", **SMALL),
    ):
        pass


def test_an_address_that_is_bound_but_silent_is_what_qemu_says(box_programs, nothing_left):
    with socket.socket() as squatter:
        squatter.bind(("127.211.10.1", 2222))
        with (
            pytest.raises(LabError, match=r"guest node1.* exited with 1; the end of its log: .*hostfwd"),
            cluster(root=nothing_left, base="127.211.10", **SMALL),
        ):
            pass
    assert listening("127.211.10") == []


def test_a_guest_that_does_not_boot_shows_its_console(box_programs, nothing_left):
    """Its initramfs does not fit into its memory."""
    with (
        pytest.raises(
            LabError,
            match=r"guest node1 .*exited with 0; the end of its log: .*node1's console says: .*(?:panic|memory)",
        ),
        cluster(root=nothing_left, system="box-drive", memory_bytes=128 * 2**20, **SMALL),
    ):
        pass


def test_a_guest_killed_while_it_boots_is_named(box_programs, nothing_left):
    def kill() -> None:
        found = until(
            lambda: [pid for pid, command in processes(str(nothing_left)).items() if "-name node2" in command], 60
        )
        os.kill(found[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(LabError, match=r"guest node2 .*exited with -9"), cluster(root=nothing_left, **SMALL):
        pass
    killer.join()


def test_packages_that_apt_does_not_know_are_named(monkeypatch, tmp_path):
    fake = tmp_path / "apt-cache"
    fake.write_text("#!/bin/sh\n[ $1 = depends ] && exit 0; printf 'Package: mdadm\\nVersion: 4.2-5\\n'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    cluster_image.resolve.cache_clear()
    with pytest.raises(LabError, match=r"apt knows no package busybox-static.*linux-image-cloud-amd64.*apt-get update"):
        cluster_image.resolve()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LabError, match="apt-cache: not found"):
        cluster_image.resolve()


def test_a_cache_folder_that_cannot_be_made_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(LabError, match=r"file/hcilib/box: not a directory.*XDG_CACHE_HOME"):
        cluster_image.cache_folder()


def test_a_monitor_that_nobody_answers_is_named(tmp_path):
    with pytest.raises(QmpError, match=r"node1\.qmp: `quit`: no answer from qemu"):
        execute(tmp_path / "node1.qmp", "quit")
