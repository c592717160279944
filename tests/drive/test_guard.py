"""The guard refuses what it does not know to be safe, before anything is touched."""

import os
from pathlib import Path

import pytest

from hcilib.drive.campaign.campaign import run
from hcilib.drive.guard.guard import GuardError, Refusal, refusals, require
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.sweeps import sweep
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
        disk = Disk(
            serial=f"lab-vm{j}-d0",
            size_bytes=SIZE,
            backing=tuple(map(str, images)),
            uri=f"nbd+unix:///vm{j}-d0?socket=node{j}.sock",
        )
        vms.append(Vm(name=f"vm{j}", address=f"127.66.0.10{j}", node=f"node{j}", disks=(disk,)))
    nodes = tuple(Node(name=f"node{i}", address=f"127.66.0.{i}") for i in (1, 2))
    return Testbed(
        name="lab",
        nodes=nodes,
        vms=tuple(vms),
        fio=Fio(ioengine="nbd", direct=0),
        lab_root=str(root),
        serves="lab-mirror",
    )


def with_disk(bed: Testbed, **changes) -> Testbed:
    """The testbed with its second VM's disk changed."""
    one, two = bed.vms
    return bed.model_copy(
        update={"vms": (one, two.model_copy(update={"disks": (two.disks[0].model_copy(update=changes),)}))}
    )


def image(bed: Testbed, number: int = 0) -> Path:
    return Path(bed.vms[1].disks[0].backing[number])


def only_refusal(bed: Testbed) -> Refusal:
    [refusal] = refusals(bed, 2, 1)
    return refusal


def test_a_lab_as_it_should_be_may_be_overwritten(bed):
    assert refusals(bed, 2, 1) == []
    require(bed, 2, 1)


def test_only_the_devices_of_the_plan_are_judged(bed):
    os.unlink(image(bed))
    assert refusals(bed, 1, 1) == []
    assert only_refusal(bed).host == "vm2"


def break_symlink(bed, tmp_path):
    target = tmp_path / "precious.img"
    target.write_bytes(b"p" * SIZE)
    image(bed).unlink()
    image(bed).symlink_to(target)


def break_folder_symlink(bed, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    image(bed).parent.rename(elsewhere)
    (tmp_path / "bed" / "node1").symlink_to(elsewhere)


def break_hard_link(bed, tmp_path):
    os.link(image(bed), tmp_path / "precious.img")


def break_size(bed, tmp_path):
    image(bed, 1).write_bytes(b"\0" * (SIZE + 1))


def break_missing(bed, tmp_path):
    image(bed).unlink()


def break_folder(bed, tmp_path):
    image(bed).unlink()
    image(bed).mkdir()


def break_fifo(bed, tmp_path):
    image(bed).unlink()
    os.mkfifo(image(bed))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (break_symlink, "is a symbolic link"),
        (break_hard_link, "hard link"),
        (break_size, f"has {SIZE + 1} bytes where the testbed says {SIZE}"),
        (break_missing, "No such file"),
        (break_folder, "is not a plain file"),
        (break_fifo, "is not a plain file"),
    ],
)
def test_what_is_not_the_labs_own_image_is_refused(bed, tmp_path, harm, reason):
    harm(bed, tmp_path)
    refusal = only_refusal(bed)
    assert (refusal.host, refusal.device) == ("vm2", "lab-vm2-d0")
    assert reason in refusal.reason
    assert str(image(bed).parent.parent) in refusal.reason, "the reason names the file"


def test_a_folder_that_leads_out_of_the_lab_is_refused_for_every_disk_in_it(bed, tmp_path):
    break_folder_symlink(bed, tmp_path)
    assert {(r.host, "outside the lab" in r.reason) for r in refusals(bed, 2, 1)} == {("vm1", True), ("vm2", True)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"backing": ()}, "names no replica image"),
        ({"uri": "nbd://10.0.0.1:10809/vm2-d0"}, "not an export of the lab's own fronts"),
        ({"uri": "nbd+unix:///vm2-d0?socket=/tmp/other.sock"}, "not an export"),
        ({"uri": "nbd+unix:///vm1-d0?socket=node2.sock"}, "not an export"),
        ({"uri": None}, "not an export"),
    ],
)
def test_a_disk_that_points_elsewhere_is_refused(bed, changes, reason):
    assert reason in only_refusal(with_disk(bed, **changes)).reason


def test_an_image_outside_the_lab_is_refused(bed, tmp_path):
    outside = tmp_path / "vm2-d0.img"
    outside.write_bytes(b"\0" * SIZE)
    refusal = only_refusal(with_disk(bed, backing=(str(outside),)))
    assert f"{outside} is outside the lab's folder" in refusal.reason
    sneaky = Path(bed.lab_root) / ".." / "vm2-d0.img"
    assert "is outside the lab's folder" in only_refusal(with_disk(bed, backing=(str(sneaky),))).reason


def test_the_image_of_another_disk_is_refused(bed):
    assert (
        "names no replica image vm2-d0.img" in only_refusal(with_disk(bed, backing=bed.vms[0].disks[0].backing)).reason
    )


@pytest.mark.parametrize("address", ["192.0.2.1", "localhost.example", "vm2", "128.0.0.1"])
def test_a_lab_host_that_is_not_on_loopback_is_refused(bed, address):
    one, two = bed.vms
    strange = bed.model_copy(update={"vms": (one, two.model_copy(update={"address": address}))})
    assert "host vm2 of this lab is not on loopback" in {r.reason for r in refusals(strange, 2, 1)}
    node = bed.model_copy(update={"nodes": (bed.nodes[0], bed.nodes[1].model_copy(update={"address": address}))})
    assert refusals(node, 2, 1)


def real_bed() -> Testbed:
    vm = Vm(name="vm1", address="192.0.2.7", node="n1", disks=(Disk(serial="S3RIAL", size_bytes=2**40),))
    return Testbed(name="real", nodes=(Node(name="n1", address="192.0.2.1"),), vms=(vm,), consent="wipe")


def test_the_consent_may_come_from_the_environment_and_what_is_given_counts_more(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("wipe\n")
    monkeypatch.setenv("HCI_CONSENT", "wipe")
    assert refusals(real_bed(), 1, 1) == []
    assert refusals(real_bed(), 1, 1, "other"), "a token that is given is the one that is judged"
    monkeypatch.setenv("HCI_CONSENT", "other")
    assert refusals(real_bed(), 1, 1)
    monkeypatch.setenv("HCI_CONSENT_FILE", str(tmp_path / "token"))
    assert refusals(real_bed(), 1, 1) == []
    monkeypatch.setenv("HCI_CONSENT_FILE", str(tmp_path / "missing"))
    with pytest.raises(GuardError, match="missing"):
        refusals(real_bed(), 1, 1)


@pytest.mark.parametrize(
    ("consent", "reason"),
    [(None, "no consent was given"), ("", "no consent was given"), ("wipe ", "is not the testbed's field consent")],
)
def test_a_real_testbed_needs_its_own_token(consent, reason):
    [refusal] = refusals(real_bed(), 1, 1, consent)
    assert (refusal.host, refusal.device) == ("testbed real", "consent")
    assert reason in refusal.reason
    assert "wipe" not in str(refusal), "the token is not told to whoever does not have it"
    with pytest.raises(GuardError, match="refused to overwrite any device: testbed real: consent: ") as caught:
        require(real_bed(), 1, 1, consent)
    assert caught.value.refusals == [refusal]


@pytest.mark.parametrize("token", [None, ""])
def test_a_testbed_without_a_token_is_refused_whatever_is_given(token):
    [refusal] = refusals(real_bed().model_copy(update={"consent": token}), 1, 1, token)
    assert "the testbed's field consent is empty" in refusal.reason


def test_with_the_token_only_the_host_itself_can_refuse():
    assert refusals(real_bed(), 1, 1, "wipe") == []


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
    precious = tmp_path / "precious.img"
    break_symlink(bed, tmp_path)
    before = precious.read_bytes()
    plan = sweep(["4k-randwrite"], repeats=1, vms=2, span_bytes=SIZE, read_runtime_s=1, write_runtime_s=1)
    with pytest.raises(GuardError, match=r"vm2: lab-vm2-d0: .*symbolic link"):
        run(plan, bed, System(name="lab-mirror", label="x"), tmp_path / "run", progress=False)
    assert precious.read_bytes() == before
    assert not (tmp_path / "run").exists()
