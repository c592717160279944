"""A run in which something was to be done, and of which nothing is known, is named with its reason."""

import json
import shutil

import hcilib as hci
from hcilib.model.places import shipped

SAMPLE = shipped("data/samples/box/failure-drbd")


def test_a_planned_run_without_an_accepted_attempt_is_unseen(tmp_path):
    run_dir = tmp_path / "run"
    shutil.copytree(SAMPLE, run_dir)
    gone = next(run_dir.glob("steps/measure-b2-*cut-link*"))
    record = json.loads((gone / "step.json").read_text())
    why = "heal-link, which takes cut-link back, failed: exited with 3"
    for attempt, problems in ((1, ["fio was lost"]), (2, [why])):
        place = run_dir / "failed" / f"{gone.name}.{attempt}"
        place.mkdir(parents=True)
        kept = record | {"valid": False, "attempt": attempt, "problems": problems, "order": 50 + attempt}
        (place / "step.json").write_text(json.dumps(kept))
    shutil.rmtree(gone)
    never = next(run_dir.glob("steps/measure-b3-*kill-node2*"))
    shutil.rmtree(never)
    unseen = hci.read_failed_events(run_dir).set_index("block")
    assert unseen["events"].to_dict() == {2: "cut-link@12 heal-link@24", 3: "kill-node2@12 revive-node2@24"}
    assert (unseen.loc[2, "attempts"], unseen.loc[2, "why"]) == (2, why)
    assert (unseen.loc[3, "attempts"], unseen.loc[3, "why"]) == (0, "the campaign did not come so far")
