"""A VM that completed nothing for a while, told from its result alone; and a disk that answers nothing, from its
worker's counts."""

import numpy as np
import pandas as pd
import pytest
from plain import plain_bed

from hcilib.drive.launch import launch, watch
from hcilib.drive.launch.job import Launch
from hcilib.drive.launch.watch import Watched, Worker
from hcilib.model.patterns import Pattern
from hcilib.model.plan import Step
from hcilib.model.workload import Cell

BED = plain_bed({f"vm{v}": {f"{v}{d}": 2**30 for d in "ab"} for v in (1, 2)})
VMS = BED.vms


def order(numjobs: int = 2, iodepth: int = 4, pattern: str = "4k-randread") -> Launch:
    step = Step("measure", Cell(Pattern.parse(pattern), numjobs, iodepth, 2), 1, 1, 60.0)
    return Launch(step, VMS, BED, None, None, 2**20, 90.0)  # type: ignore[arg-type]  # neither is asked


def told(monkeypatch, tmp_path, slowest: dict[tuple[int, int], list[float]], iodepth: int = 4) -> dict[str, float]:
    """`slowest`: (vm, job) -> seconds of its slowest I/Os, beside 10,000 of 1 ms."""
    jobs = {(v, j): np.array([0.001] * 10_000 + slowest.get((v, j), [])) for v in (1, 2) for j in (0, 1)}
    key = lambda v, j: {"hostname": VMS[v - 1].target, "port": 8765, "job": f"j{j}"}  # noqa: E731
    table = pd.DataFrame(
        [
            key(v, j)
            | {"lat_ns_max": s.max() * 1e9, "lat_ns_mean": s.mean() * 1e9, "total_ios": len(s), "runtime": 60_000}
            for (v, j), s in jobs.items()
        ]
    )
    bins = pd.concat([pd.DataFrame(key(v, j) | {"lat_ns": s * 1e9, "count": 1}) for (v, j), s in jobs.items()])
    monkeypatch.setattr(launch, "read_fio", lambda path: table)
    monkeypatch.setattr(launch, "read_fio_bins", lambda path: bins)
    of = order(iodepth=iodepth)
    object.__setattr__(of, "work", tmp_path)
    return launch.silent(of, {vm.name: (vm.target, 8765) for vm in VMS})


def test_a_vm_whose_every_job_hung_is_said_with_how_long(monkeypatch, tmp_path):
    hung = {(2, 0): [2.0] * 4, (2, 1): [1.9] * 4}
    assert told(monkeypatch, tmp_path, hung) == {"vm2": pytest.approx(1.9)}


@pytest.mark.parametrize(
    "slowest",
    [
        {},
        {(2, 0): [2.0] * 4},  # its other job went on
        {(2, 0): [2.0] * 3, (2, 1): [2.0] * 3},  # of four I/Os under way one was answered meanwhile
        {(2, 0): [0.4] * 4, (2, 1): [0.4] * 4},
        {(2, 0): [0.7] * 9_000, (2, 1): [0.7] * 9_000},  # that is how slow it is
    ],
)
def test_what_is_no_silence_is_not_said(monkeypatch, tmp_path, slowest):
    assert told(monkeypatch, tmp_path, slowest) == {}


@pytest.mark.parametrize(
    ("due_s", "told_s", "stood", "state", "why"),
    [
        (float("inf"), 50.0, "40 s", "D", "its fio waits for storage"),
        (6.0, 26.0, "16 s", "T", "its fio is frozen"),
    ],
    ids=["long", "of 4 s"],
)
def test_a_disk_that_answers_nothing_is_named_and_no_other(due_s, told_s, stood, state, why):
    """Within a minute, and sooner where the step should be over, however short it is."""
    seen = Watched(order(), due_s)
    for now_s in np.arange(10.0, 60, 2 if due_s < 60 else watch.EVERY_S):
        busy = [Worker(10, "S", int(now_s)), Worker(11, "S", int(2 * now_s))]
        seen.note({"vm1": busy, "vm2": [Worker(20, "S", int(now_s)), Worker(21, state, 7)]}, now_s)
        if seen.faults:
            break
    [said] = seen.faults
    assert said.startswith(f"vm2: disk 2b has answered nothing for {stood} ({why})")
    assert now_s == told_s
    assert seen.standing_for() == seen.faults, "so it is where the deadline comes first"


def test_a_job_that_ended_is_no_disk_that_hangs_and_a_vm_that_says_nothing_is():
    seen = Watched(order())
    for now_s in np.arange(10.0, 61, 10):
        left = [Worker(10, "S", 1), Worker(11, "S", 1)] if now_s < 20 else []
        seen.note({"vm1": left, "vm2": "no answer within 10 s"}, now_s)
    assert seen.faults == ("vm2 does not answer: no answer within 10 s",)
