"""The box in bad weather: every failure is one plain error, and leaves no process, no port and no file. No guest has to
boot for long."""

import os
import signal
import threading

import pytest
from probes import processes, until

from hcilab.cluster import LabError, cluster

pytestmark = [pytest.mark.box, pytest.mark.deep]
SMALL = {"drive_bytes": 16 * 2**20}


@pytest.fixture
def nothing_left(tmp_path):
    """The folder of a box that will not come up; afterwards there is nothing in it, and nothing runs there."""
    yield tmp_path
    until(lambda: not processes(str(tmp_path)))
    assert processes(str(tmp_path)) == {}
    assert list(tmp_path.iterdir()) == []


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
