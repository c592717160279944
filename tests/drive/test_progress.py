"""What is seen of a campaign: bars, the last result against the one before it, failures in red; also from another
process."""

import io
import sys
import threading

import pytest
from probes import python

from hcilib.drive.campaign import progress
from hcilib.drive.campaign.campaign import run
from hcilib.drive.campaign.progress import Bars, red
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
    for part in (
        "lab-mirror: ",
        "round 1 of 1",
        "round 2 of 2",
        "measure 4k-randread-nj1-qd4-vm2",
        "4/4 s",
        "left",
        "10 IOPS",
    ):
        assert part in shown, part


def test_a_running_step_moves_and_does_not_end_before_it_ended(short, capsys, monkeypatch):
    monkeypatch.setattr(progress, "TICK_S", 0.05)
    [step] = short().steps
    with Bars("x", [step], lambda _: 0.2, True) as bars, bars.step(step):
        threading.Event().wait(0.5)
        running = capsys.readouterr().err
    assert "measure 4k-randread-nj1-qd4-vm2:  50%" in running
    assert "measure 4k-randread-nj1-qd4-vm2: 100%" not in running


def test_only_what_failed_is_left_short_of_its_end(short):
    [step] = short().steps
    with Bars("x", [step], lambda _: 0.26, True) as bars, bars.step(step):
        pass
    assert bars._campaign.n == bars._campaign.total, "in a notebook a bar that is closed short of its end turns red"
    with pytest.raises(OSError, match="no space"), Bars("x", [step], lambda _: 0.26, True) as bars, bars.step(step):
        raise OSError("no space")
    assert bars._campaign.n < bars._campaign.total


def test_nothing_is_shown_unasked_but_a_failure(short, capsys):
    [step] = short().steps
    with Bars("x", [step], lambda _: 1.0, False) as bars, bars.step(step):
        bars.say("a caveat")
        bars.say("vm2 gave no result", failed=True)
    out, err = capsys.readouterr()
    assert (out.strip(), err.strip()) == ("vm2 gave no result", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Notebook(io.StringIO):
    __module__ = "ipykernel.iostream"


@pytest.mark.parametrize(("stream", "coloured"), [(Terminal(), True), (Notebook(), True), (io.StringIO(), False)])
def test_red_is_for_eyes_and_not_for_files(monkeypatch, stream, coloured):
    monkeypatch.setattr(sys, "stdout", stream)
    assert red("x") == ("\033[31mx\033[0m" if coloured else "x")


def journal(tmp_path, *runs) -> str:
    lines = [
        (
            f'{{"t": 1, "event": "done", "step": "s{i}", "kind": "{kind}", "cell": "{cell}", "block": {block}, "rep": '
            f'{rep}, "iops": {iops}}}'
        )
        for i, (kind, cell, block, rep, iops) in enumerate(runs)
    ]
    (tmp_path / "journal.jsonl").write_text("\n".join(lines))
    return last_result(tmp_path)


def test_the_last_result_is_held_against_the_same_cell_of_the_block_before(tmp_path):
    runs = [
        ("measure", "a", 1, 1, 25029),
        ("measure", "b", 1, 1, 7),
        ("canary", "a", 2, 0, 1),
        ("measure", "a", 2, 2, 24253),
    ]
    assert journal(tmp_path, *runs) == "a 24,253 IOPS, -3.1 % against round 1"
    assert journal(tmp_path, *runs[:2]) == "b 7 IOPS"
    assert (
        journal(tmp_path, ("measure", "a", 1, 1, 100), ("measure", "a", 1, 2, 101))
        == "a 101 IOPS, +1.0 % against rep 1"
    )
    assert journal(tmp_path, ("measure", "a", 1, 1, 0), ("measure", "a", 2, 2, 5)) == "a 5 IOPS", "no ratio to nothing"
    assert journal(tmp_path, ("prefill", "a", 0, 0, 9)) == ""
    assert last_result(tmp_path / "none") == ""


WATCH = """
import sys, time
from hcilib import watch  # which is loaded when it is asked for, and takes as long as a step on a busy machine
from pathlib import Path
print("watching", flush=True)
while not (Path(sys.argv[1]) / "plan.json").exists():
    time.sleep(0.05)
print(watch(sys.argv[1], every_s=0.1, limit_s=60))
"""


@pytest.mark.lab
def test_a_campaign_is_watched_from_another_process_while_it_runs(bed, short, mirror_system, tmp_path):
    watcher = python(WATCH, str(tmp_path / "run"))
    assert watcher.stdout.readline() == "watching\n", "it takes longer to start than two steps to run"
    results = run(short(repeats=2, read_runtime_s=0.4), bed, mirror_system, tmp_path / "run", progress=False)
    out, err = watcher.communicate(timeout=30)
    assert "'steps': 2, 'done': 2, 'failed': 0" in out
    assert "'running': False" in out
    assert "1/2" in err, "it was followed while it ran"
    rate = results.sort_values("rep")["iops"].iloc[1]
    assert f"4k-randread-nj1-qd4-vm2 {rate:,.0f} IOPS" in err
    assert "% against round 1" in err
