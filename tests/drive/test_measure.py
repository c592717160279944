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
