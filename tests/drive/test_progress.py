"""What is seen of a campaign: bars, and the last result against the one before it; also from another process."""

import json

import pytest
from injections import MIRROR
from plain import run
from probes import python

from hcilib.drive.campaign.progress import Bars
from hcilib.read.run.journal import last_result


def test_the_bars_name_campaign_block_and_step(short, capsys):
    """A step that was added on the way stretches them."""
    plan = short(repeats=2)
    with Bars("lab-mirror", plan.steps[:1], lambda _: 2.0, True) as bars:
        for step in plan.steps:
            with bars.step(step):
                pass
            bars.result("4k-randread 10 IOPS")
    shown = capsys.readouterr().err
    for part in ("lab-mirror: ", "round 2 of 2", "measure 4k-randread-nj1-qd4-vm2", "4/4 s", "10 IOPS"):
        assert part in shown, part


def test_nothing_is_shown_unasked_but_a_failure(short, capsys):
    [step] = short().steps
    with Bars("x", [step], lambda _: 1.0, False) as bars, bars.step(step):
        bars.say("a caveat")
        bars.say("vm2 gave no result", failed=True)
    out, err = capsys.readouterr()
    assert (out.strip(), err.strip()) == ("vm2 gave no result", "")


def test_the_last_result_is_held_against_the_same_cell_of_the_block_before(tmp_path):
    runs = [("measure", "a", 1, 1, 25029), ("measure", "b", 1, 1, 7), ("canary", "a", 2, 0, 1),
            ("measure", "a", 2, 2, 24253), ("measure", "a", 2, 3, 25466), ("measure", "c", 1, 1, 0),
            ("measure", "c", 2, 2, 5), ("prefill", "a", 0, 0, 9)]  # fmt: skip
    said = []
    for kind, cell, block, rep, iops in runs:
        done = {"t": 1, "event": "done", "step": f"{kind}{cell}{block}{rep}", "kind": kind, "cell": cell}
        with open(tmp_path / "journal.jsonl", "a") as file:
            file.write(json.dumps(done | {"block": block, "rep": rep, "iops": iops}) + "\n")
        said.append(last_result(tmp_path))
    assert said[1] == "b 7 IOPS"
    assert said[3] == "a 24,253 IOPS, -3.1 % against round 1"
    assert said[4] == "a 25,466 IOPS, +5.0 % against rep 2"
    assert said[6] == "c 5 IOPS", "no ratio to nothing"


WATCH = """
import sys, time
from hcilib.read.run.journal import watch  # which takes as long as a step on a busy machine
from pathlib import Path
print("watching", flush=True)
while not (Path(sys.argv[1]) / "plan.json").exists():
    time.sleep(0.05)
print(watch(sys.argv[1], every_s=0.1, limit_s=60))
"""


@pytest.mark.lab
def test_a_campaign_is_watched_from_another_process_while_it_runs(bed, short, run_dir):
    watcher = python(WATCH, str(run_dir))
    assert watcher.stdout.readline() == "watching\n", "it takes longer to start than two steps to run"
    results = run(short(repeats=2, read_runtime_s=0.4), bed, MIRROR, run_dir)
    out, err = watcher.communicate(timeout=30)
    assert "'steps': 2, 'done': 2, 'failed': 0" in out
    assert "'running': False" in out
    assert "1/2" in err, "it was followed while it ran"
    rate = results.sort_values("rep")["iops"].iloc[1]
    assert f"4k-randread-nj1-qd4-vm2 {rate:,.0f} IOPS" in err
    assert "% against round 1" in err
