"""What is said of O_SYNC that an engine does not pass on."""

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
        file.write_text(json.dumps(step | record | {"cell": step["cell"] | dict(cell)}))
        return hci.read_results(run_dir)

    return change


@pytest.mark.parametrize(("pattern", "n"), [("4k-randwrite-sync", 1), ("4k-randwrite-fdatasync", 0)])
def test_synchronous_writes_over_fios_nbd_engine_are_said_to_be_plain(rewritten, pattern, n):
    results = rewritten({"pattern": pattern})
    assert sum("unsynced" in own.split() for own in results["warnings"]) == n
    assert (results["pattern"] == pattern).sum() == 1
