"""What happens to a run directory when its testbed is a box, whose drives are new at every start."""

import json
import shutil

import pytest

import hcilib as hci
from hcilib import CampaignError
from hcilib.measure import _set_aside_unfinished as set_aside_unfinished


@pytest.fixture
def run_dir(tmp_path):
    shutil.copytree(hci.samples()["lab-mirror"], tmp_path / "run")
    return tmp_path / "run"


def test_a_finished_campaign_stays_where_it_is(run_dir):
    set_aside_unfinished(run_dir)
    assert [f.name for f in run_dir.parent.iterdir()] == ["run"]


def test_an_unfinished_one_is_kept_beside_and_begun_anew(run_dir):
    for step in sorted((run_dir / "steps").iterdir())[9:]:
        shutil.rmtree(step)
    set_aside_unfinished(run_dir)
    [kept] = run_dir.parent.iterdir()
    assert kept.name.startswith("run.2")
    assert (kept / "plan.json").exists()


def test_a_folder_that_holds_no_campaign_is_left_alone(tmp_path):
    set_aside_unfinished(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


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
    second = hci.System(name="second", label="second", disks=("*-2",))
    plan = hci.sweep(["4k-randread"], iodepth=[1], vms=1, span_bytes="1 GiB", canary=False)
    with hci.open_testbed(tmp_path / "two.yaml", second) as bed:
        assert plan.to_frame(bed)["overwrites"].iloc[0] == "vm1:A-2"
        assert hci.plan_warnings(plan, second, bed).empty


@pytest.mark.lab
def test_what_a_file_limits_holds_on_a_testbed_that_is_started_for_it(tmp_path):
    lab = "{nodes: 2, vms: 1, disks: 1, disk_bytes: 8 MiB}"
    (tmp_path / "bed.yaml").write_text(f"name: small\nmost_bytes_written: 4 MiB\nlease: none\nlab: {lab}\n")
    system = hci.ROOT / "params/systems/lab-single.yaml"
    plan = {"patterns": ["4k-randread"], "repeats": 1, "iodepth": 1, "vms": 1, "span_bytes": "8 MiB"}
    with pytest.raises(CampaignError, match="allows most_bytes_written 4,194,304"):
        hci.obtain(plan, system, testbed=tmp_path / "bed.yaml", run_dir=tmp_path / "run")
    assert not list((tmp_path / "run" / "steps").iterdir())
    shown = json.loads((tmp_path / "run" / "plan.json").read_text())["testbed"]
    assert (shown["most_bytes_written"], shown["lease"]) == (4 * 2**20, "none")
