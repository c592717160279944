"""What an NVMe drive says was written to it: qemu's in the box, whose controller counts as the specification says."""

import json
import os
import subprocess

import pytest
from boxes import naming, plan

import hcilib as hci
from hcilab import cluster_guest
from hcilab.cluster import running
from hcilib.drive.campaign import campaign
from hcilib.drive.campaign.facts import SMART, _answers
from hcilib.drive.hosts.hosts import Fleet, Outcome, need
from hcilib.model.caveats import caveats
from hcilib.read.nodes.facts import parse_smart

WEAR = hci.ROOT / "tests/data/wear"
SERIAL, BYTES = "BOX-NVME1", 64 * 2**20


@pytest.fixture(scope="module")
def box(box_programs, tmp_path_factory):
    """A node that has an NVMe drive beside its virtio drive."""
    folder, command = tmp_path_factory.mktemp("box"), cluster_guest.command
    image = folder / "nvme"
    image.touch()
    os.truncate(image, BYTES)
    drive = ["-drive", f"if=none,id=n0,file={image},format=raw", "-device", f"nvme,drive=n0,serial={SERIAL}"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cluster_guest, "command", lambda *given: [*command(*given), *drive])
        stand = running("box-drive", drive_bytes=BYTES, root=folder)
        box = stand.__enter__()
    try:
        with Fleet(box.testbed) as fleet:
            found = "modprobe nvme; for i in $(seq 50); do ls /dev/nvme0n1 && exit; sleep 0.1; done; exit 1"
            need("an NVMe drive", fleet.run(found))
        yield box
    finally:
        stand.__exit__(None, None, None)


@pytest.mark.box
@pytest.mark.deep
def test_a_drive_says_what_a_campaign_wrote_to_it_interrupted_and_resumed(box, tmp_path, monkeypatch):
    bed, run_dir, launch = naming(box, "node1", SERIAL, BYTES), tmp_path / "run", campaign.launch
    system = hci.load_system(hci.ROOT / "params/systems/box-drive.yaml")
    given = plan(["64k-randwrite", "4k-randwrite"])

    def measure():
        return hci.run(given, bed, system, run_dir, consent=bed.consent, progress=False)

    def stopped(of):
        monkeypatch.setattr(campaign, "launch", launch)
        launch(of)
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "launch", stopped)
    with pytest.raises(KeyboardInterrupt):
        measure()
    with Fleet(bed) as fleet:
        need("a write in between", fleet.run("dd if=/dev/zero of=/dev/nvme0n1 bs=1M count=5 oflag=direct 2>&1"))
        assert measure().attrs["missing"] == []
        counted = need("sectors", fleet.run("set -- $(cat /sys/class/block/nvme0n1/stat); echo $7"))["node1"]
    nvme, virtual = hci.read_wear(run_dir).to_dict("records")
    written = 512 * int(counted)
    assert written > 6 * 2**20
    assert abs(nvme["bytes_written"] - written) <= 512_000, "as the kernel counted since it booted, in whole units"
    assert (nvme["serial"], nvme["wear_before_pct"], nvme["wear_after_pct"]) == (SERIAL, 0, 0)
    assert caveats(nvme["warnings"]).codes == {"smart-paused"}
    assert "virtual" in str(virtual["warnings"])
    assert [r["when"] for r in json.loads((run_dir / "facts/wear/node1.json").read_text())["readings"]] == [
        *("start", "end") * 2
    ]


def test_where_nvme_cli_is_refused_smartctl_is_asked_and_no_shell_changes_what_it_says(tmp_path):
    printed = (WEAR / "smartctl_nvme.json").read_text().replace("QEMU NVMe Ctrl", r"a \\n \"drive\"")
    (tmp_path / "printed").write_text(printed)
    for tool, does in (("nvme", "echo Permission denied; exit 1"), ("smartctl", f"cat {tmp_path}/printed; exit 4")):
        (tmp_path / tool).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / tool).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", SMART.replace("{drives}", "nvme99n1")], env=env, capture_output=True, text=True)
    found = _answers(Outcome("node1", True, done.stdout), {"nvme99n1": "md0"})["nvme99n1"]
    assert (found["tool"], found["carries"]) == ("smartctl", "md0")
    assert parse_smart(found["tool"], found["said"]).model == r'a \n "drive"'


@pytest.mark.box
@pytest.mark.deep
@pytest.mark.needs("smartctl")
def test_smartctl_says_of_the_same_drive_what_nvme_cli_says(box):
    with Fleet(box.testbed) as fleet:
        nvme, smartctl = (
            parse_smart(tool, need(tool, fleet.run(f"{tool} {asked} /dev/nvme0n1"))["node1"])
            for tool, asked in (
                ("nvme", "smart-log -o json"),
                ("smartctl", "--json=c -i -A -l devstat -l ssd -l error"),
            )
        )
    assert (smartctl.model, smartctl.serial) == ("QEMU NVMe Ctrl", SERIAL)
    assert nvme[:3] == smartctl[:3]
    assert nvme.why == smartctl.why == ""
