"""The guard refuses what it does not know to be safe, before anything is touched."""

import os
from pathlib import Path

import pytest
from plain import plain_bed, run

from hcilib import sweep
from hcilib.drive.guard.guard import GuardError, Refusal, refusals, require
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.system import System
from hcilib.model.testbed import Disk, Fio, Node, Testbed, Vm

SIZE = 4096


@pytest.fixture
def bed(tmp_path):
    """A lab as it lies on the disk, without its processes: two VMs of one disk, two replicas each."""
    root = tmp_path / "bed"
    vms = []
    for j in (1, 2):
        images = [root / node / f"vm{j}-d0.img" for node in ("node1", "node2")]
        for image in images:
            image.parent.mkdir(parents=True, exist_ok=True)
            image.write_bytes(b"\0" * SIZE)
        uri, backing = f"nbd+unix:///vm{j}-d0?socket=node{j}.sock", tuple(map(str, images))
        disk = Disk(serial=f"lab-vm{j}-d0", size_bytes=SIZE, backing=backing, uri=uri)
        vms.append(Vm(name=f"vm{j}", address=f"127.66.0.10{j}", node=f"node{j}", disks=(disk,)))
    nodes = tuple(Node(name=f"node{i}", address=f"127.66.0.{i}") for i in (1, 2))
    fio = Fio(ioengine="nbd", direct=0)
    return Testbed(name="lab", nodes=nodes, vms=tuple(vms), fio=fio, lab_root=str(root), serves="lab-mirror")


def image(bed: Testbed) -> Path:
    return Path(bed.vms[1].disks[0].backing[0])


def only_refusal(bed: Testbed) -> Refusal:
    [refusal] = refusals(bed)
    return refusal


def test_only_the_devices_of_the_plan_are_judged(bed):
    os.unlink(image(bed))
    assert refusals(bed, vms=1) == []
    assert only_refusal(bed).host == "vm2"


@pytest.mark.parametrize("address", ["localhost.example", "128.0.0.1"])
def test_a_lab_host_that_is_not_on_loopback_is_refused(bed, address):
    one, two = bed.vms
    strange = bed.model_copy(update={"vms": (one, two.model_copy(update={"address": address}))})
    assert "host vm2 of this lab is not on loopback" in {r.reason for r in refusals(strange)}
    node = bed.model_copy(update={"nodes": (bed.nodes[0], bed.nodes[1].model_copy(update={"address": address}))})
    assert refusals(node)


def real_bed() -> Testbed:
    return plain_bed({"vm1": {"S3RIAL": 2**40}}, name="real", consent="wipe")


def test_the_consent_may_come_from_the_environment_and_what_is_given_counts_more(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("wipe\n")
    monkeypatch.setenv("HCI_CONSENT", "wipe")
    assert refusals(real_bed()) == []
    assert refusals(real_bed(), consent="other"), "a token that is given is the one that is judged"
    monkeypatch.setenv("HCI_CONSENT", "other")
    assert refusals(real_bed())
    monkeypatch.setenv("HCI_CONSENT_FILE", str(tmp_path / "token"))
    assert refusals(real_bed()) == []
    monkeypatch.setenv("HCI_CONSENT_FILE", str(tmp_path / "missing"))
    with pytest.raises(GuardError, match="missing"):
        refusals(real_bed())


@pytest.mark.parametrize(
    ("consent", "reason"),
    [("", "no consent was given"), ("wipe ", "is not the testbed's field consent")],
)
def test_a_real_testbed_needs_its_own_token(consent, reason):
    [refusal] = refusals(real_bed(), consent=consent)
    assert (refusal.host, refusal.device) == ("testbed real", "consent")
    assert reason in refusal.reason
    assert "wipe" not in str(refusal), "the token is not told to whoever does not have it"
    with pytest.raises(GuardError, match="refused to overwrite any device: testbed real: consent: ") as caught:
        require(real_bed(), 1, 1, consent)
    assert caught.value.refusals == [refusal]


@pytest.fixture
def no_host(monkeypatch):
    """Fail the test if anything tries to reach a host."""

    def touched(*_):
        raise AssertionError("a host was reached")

    monkeypatch.setattr(Fleet, "__init__", touched)


PLAN = sweep(["4k-randwrite"], repeats=1, vms=1, span_bytes=SIZE, read_runtime_s=1, write_runtime_s=1)


def test_a_campaign_is_refused_before_a_host_or_a_file_is_touched(no_host, tmp_path):
    with pytest.raises(GuardError, match="real: consent: no consent was given"):
        run(PLAN, real_bed(), System(name="s", label="S"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_so_is_one_on_a_lab_that_was_tampered_with(no_host, bed, tmp_path):
    (precious := tmp_path / "precious.img").write_bytes(b"p" * SIZE)
    image(bed).unlink()
    image(bed).symlink_to(precious)
    plan = sweep(["4k-randwrite"], repeats=1, vms=2, span_bytes=SIZE, read_runtime_s=1, write_runtime_s=1)
    with pytest.raises(GuardError, match=r"vm2: lab-vm2-d0: .*symbolic link"):
        run(plan, bed, System(name="lab-mirror", label="x"), tmp_path / "run")
    assert precious.read_bytes() == b"p" * SIZE
    assert not (tmp_path / "run").exists()
