"""fio's job files, and servers that last as long as their step."""

import time

import pytest
from probes import base_of, listening, processes

from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.launch import fio
from hcilib.plan import Cell, Pattern, Step
from hcilib.testbed import Disk, Fio, Node, Testbed, Vm

MIB = 2**20


def step(pattern: str, numjobs: int = 1, runtime_s: float = 60.0, ramp_s: float = 0.0, rep: int = 1) -> Step:
    return Step("measure", Cell(Pattern.parse(pattern), numjobs, 16, 2), 1, rep, runtime_s, ramp_s)


def real_bed() -> Testbed:
    disks = {
        name: tuple(Disk(serial=f"wwn-{name}{d}", size_bytes=(d + 1) * 100 * MIB) for d in range(2))
        for name in ("vm1", "vm2")
    }
    vms = tuple(Vm(name=name, node="n1", disks=owned) for name, owned in disks.items())
    return Testbed(name="t", nodes=(Node(name="n1"),), vms=vms, fio=Fio(ioengine="io_uring", direct=1))


def test_the_deadline_covers_runtime_ramp_and_fill(monkeypatch):
    monkeypatch.setattr(fio, "GRACE_S", 30.0)
    vms = real_bed().vms
    assert fio.deadline_s(step("4k-read", runtime_s=600, ramp_s=60), vms, 10**12) == 690
    filled = 100 * MIB + 150 * MIB
    assert fio.deadline_s(step("1m-write", numjobs=2, runtime_s=0), vms, 150 * MIB) == pytest.approx(
        30 + filled / fio.SLOWEST_FILL
    )


@pytest.mark.lab
def test_a_server_started_for_a_step_ends_with_it(bed):
    elsewhere = bed.model_copy(update={"fio": bed.fio.model_copy(update={"port": 8766})})
    mine = [f"{vm.address}:8766" for vm in bed.vms[:2]]
    with Fleet(elsewhere) as fleet:
        with fio.servers(fleet, elsewhere, bed.vms[:2], limit_s=60) as started:
            assert started == ["vm1", "vm2"]
            assert set(mine) <= set(listening(base_of(bed)))
            with fio.servers(fleet, elsewhere, bed.vms[:1], limit_s=60) as again:
                assert again == [], "one that answers is used as it is"
            assert set(mine) <= set(listening(base_of(bed))), "and left as it is"
        assert not set(mine) & set(listening(base_of(bed)))
    assert len([a for a in listening(base_of(bed)) if a.endswith(":8765")]) == len(bed.vms), (
        "the lab's own are untouched"
    )


@pytest.mark.lab
def test_a_server_never_outlives_its_limit(bed, monkeypatch):
    monkeypatch.setattr(fio, "BEYOND_S", 0)  # of the client's deadline: not waited for here
    elsewhere = bed.model_copy(update={"fio": bed.fio.model_copy(update={"port": 8767})})
    with Fleet(elsewhere) as fleet, fio.servers(fleet, elsewhere, bed.vms[:1], limit_s=1):
        time.sleep(1.6)
        assert not processes(f"--server=ip:{bed.vms[0].address},8767"), "ended by timeout on the far side"


@pytest.mark.lab
def test_a_server_that_cannot_start_is_named_by_its_vm(bed, monkeypatch):
    monkeypatch.setattr(fio, "PATIENCE_S", 0.5)
    broken = bed.model_copy(update={"fio": bed.fio.model_copy(update={"port": 8768, "binary": "/no/such fio"})})
    said = r"no fio server on vm1 \(127\..*:8768\): it was started and does not answer"
    with (
        Fleet(broken) as fleet,
        pytest.raises(fio.FioError, match=said),
        fio.servers(fleet, broken, bed.vms[:1], limit_s=60),
    ):
        pass
