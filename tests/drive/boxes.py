"""Running boxes for the tests, and the reason why there is none."""

import pytest

from hcilab import cluster_guest
from hcilab.cluster import LabError, running
from hcilab.cluster_image import image
from hcilib.drive.hosts.hosts import Fleet, need
from hcilib.drive.systems import ask
from hcilib.model.testbed import Disk, Testbed

DRIVE_BYTES = 64 * 2**20
VERIFY = (
    "fio --name=v --filename={device} --direct=1 --ioengine=libaio --rw={rw} --bs=64k --iodepth=4 --size=8M "
    "--verify=crc32c "
    "--randseed=7 {more} --output-format=terse"
)


@pytest.fixture(scope="session")
def box_programs():
    """Skip where the machine lacks what the box is made of, with the package that is missing."""
    try:
        return cluster_guest.find_qemu(), image()
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def drbd(box_programs, tmp_path_factory):
    """DRBD between two nodes with small drives, for every test of a module."""
    with running("box-drbd", drive_bytes=DRIVE_BYTES, root=tmp_path_factory.mktemp("box")) as box:
        yield box


def say(box, command: str, nodes=None) -> dict[str, str]:
    with Fleet(box.testbed) as fleet:
        return need(command, fleet.run(command, nodes, limit_s=60))


def naming(box, name: str, serial: str, size: int) -> Testbed:
    """The box's testbed with one VM alone, which names another device."""
    [vm] = [vm for vm in box.testbed.vms if vm.name == name]
    return box.testbed.model_copy(
        update={"vms": (vm.model_copy(update={"disks": (Disk(serial=serial, size_bytes=size),)}),)}
    )


def healthy_hosts(fleet: Fleet, system, testbed) -> list[str]:
    """The hosts whose answer to a system's question for its health is the expected one."""
    return [a.host for a in ask(fleet, testbed, {"health": system.checks["health"]}) if a.ok]
