"""What is said of runs that are not what their pattern says: sequential jobs of earlier versions that all began where
their disk begins, O_SYNC that an engine does not pass on."""

import json
import re
import shutil

import pytest

import hcilib as hci


@pytest.fixture
def rewritten(tmp_path):
    """A real campaign, its first measured step rewritten as `change` says; without digests, as earlier versions left
    it."""

    def change(cell=(), **record):
        run_dir = shutil.copytree(hci.samples()["lab-single"], tmp_path / "run", dirs_exist_ok=True)
        journal = run_dir / "journal.jsonl"
        journal.write_text(re.sub(r', "digest": "\w+"', "", journal.read_text()))
        file = min((run_dir / "steps").glob("measure-*")) / "step.json"
        step = json.loads(file.read_text())
        step.pop("offsets", None)  # earlier versions recorded none
        file.write_text(json.dumps(step | record | {"cell": step["cell"] | dict(cell)}))
        return hci.read_results(run_dir)

    return change


def said(results):
    return results["warnings"].str.contains("one-start").sum()


SEQUENTIAL = {"pattern": "1m-read", "numjobs": 4}


def test_more_sequential_jobs_than_disks_without_offsets_are_warned_of(rewritten):
    assert said(rewritten(SEQUENTIAL)) == 1


def test_jobs_that_recorded_where_they_began_are_not(rewritten):
    assert said(rewritten(SEQUENTIAL, offsets={"vm1": [0, 2**20, 2**21, 3 * 2**20]})) == 0


@pytest.mark.parametrize("cell", [{"pattern": "4k-randread", "numjobs": 4}, {"pattern": "1m-read", "numjobs": 1}])
def test_random_jobs_and_one_job_a_disk_are_not(rewritten, cell):
    assert said(rewritten(cell)) == 0


def test_no_sample_is():
    assert not [name for name, sample in hci.samples().items() if said(hci.read_results(sample))]


@pytest.mark.parametrize(("pattern", "n"), [("4k-randwrite-sync", 1), ("4k-randwrite-fdatasync", 0)])
def test_synchronous_writes_over_fios_nbd_engine_are_said_to_be_plain(rewritten, pattern, n):
    results = rewritten({"pattern": pattern})
    assert sum("unsynced" in own.split() for own in results["warnings"]) == n
    assert (results["pattern"] == pattern).sum() == 1
