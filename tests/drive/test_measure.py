"""What happens to a run directory when its testbed is a box, whose drives are new at every start."""

import shutil

import pytest

import hcilib as hci
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
