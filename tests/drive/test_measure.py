"""What happens to a run directory when its testbed is a box, whose drives are new at every start."""

import json
import shutil

import pytest

import hcilib as hci
from hcilib.drive.campaign.campaign import CampaignError
from hcilib.model.system import System

LAB = "name: small\nmost_bytes_written: 4 MiB\nlease: none\nlab: {nodes: 2, vms: 1, disks: 1, disk_bytes: 8 MiB}\n"
SINGLE = hci.ROOT / "params/systems/lab-single.yaml"


@pytest.mark.lab
@pytest.mark.needs("qemu-storage-daemon")
def test_an_unfinished_campaign_on_drives_that_are_gone_is_kept_beside_and_begun_anew(tmp_path, run_dir):
    (tmp_path / "bed.yaml").write_text(LAB.replace("most_bytes_written: 4 MiB\n", ""))
    plan = {"patterns": ["4k-randread"], "repeats": 2, "iodepth": [1], "vms": 1, "read_runtime_s": 0.5, "canary": False}
    plan |= {"span_bytes": "1 MiB"}
    measured = hci.run(plan, SINGLE, tmp_path / "bed.yaml", run_dir, progress=False)
    assert hci.run(plan, SINGLE, tmp_path / "bed.yaml", run_dir, progress=False).equals(measured)
    assert {place.name for place in tmp_path.iterdir()} == {"bed.yaml", "run"}, "what is finished stays"
    [last] = (tmp_path / "run/steps").glob("measure-b2-*")
    shutil.rmtree(last)
    with hci.open_testbed(tmp_path / "bed.yaml", SINGLE) as bed:
        again = hci.run(plan, SINGLE, bed, run_dir, progress=False)
    [kept] = set(tmp_path.iterdir()) - {tmp_path / "bed.yaml", run_dir}
    assert kept.name.startswith("run.2")
    assert len(hci.read_results(kept)) == 1
    assert len(again) == 2
    assert not set(again["iops"]) & set(measured["iops"])


BED = """name: two
consent: x
nodes: [{name: srv1}]
vms:
  - name: vm1
    node: srv1
    disks: [{serial: A-1, size_bytes: 1 GiB}, {serial: A-2, size_bytes: 1 GiB}, {serial: A-3, size_bytes: 1 GiB}]
"""


def test_a_plan_of_one_of_several_systems_shows_and_asks_for_its_own_disks_alone(tmp_path):
    """Of a testbed that two share 01_plan showed, and had checked, the first disk of each VM, whosever it was."""
    (tmp_path / "two.yaml").write_text(BED)
    second = System(name="second", label="second", disks=("*-2",))
    plan = hci.sweep(["4k-randread"], iodepth=[1], vms=1, span_bytes="1 GiB", canary=False)
    with hci.open_testbed(tmp_path / "two.yaml", second) as bed:
        assert plan.to_frame(bed)["overwrites"].iloc[0] == "vm1:A-2"
        assert hci.objections(plan, bed, second).empty


@pytest.mark.lab
@pytest.mark.needs("qemu-storage-daemon")
def test_what_a_file_limits_holds_on_a_testbed_that_is_started_for_it(tmp_path, run_dir):
    (tmp_path / "bed.yaml").write_text(LAB)
    plan = {"patterns": ["4k-randread"], "repeats": 1, "iodepth": 1, "vms": 1, "span_bytes": "8 MiB"}
    with pytest.raises(CampaignError, match="allows most_bytes_written 4,194,304"):
        hci.run(plan, SINGLE, tmp_path / "bed.yaml", run_dir)
    assert not list((run_dir / "steps").iterdir())
    shown = json.loads((run_dir / "plan.json").read_text())["testbed"]
    assert (shown["most_bytes_written"], shown["lease"]) == (4 * 2**20, "none")
