"""Plan: names that say everything, an order that is reproducible, identity by content."""

import json
import math
from collections import Counter
from itertools import pairwise

import pytest

from hcilib import sweep
from hcilib.model.patterns import Pattern
from hcilib.model.plan import Plan, Step
from hcilib.model.workload import Cell


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("4k-randread", ("randread", 4096, 100, 0, 0)),
        ("64k-rw5", ("rw", 65536, 5, 0, 0)),
        ("1m-write", ("write", 2**20, 0, 0, 0)),
        ("4k-randrw70-fdatasync-rate3m", ("randrw", 4096, 70, 2, 3 * 2**20)),
        ("1m-read-rate256m", ("read", 2**20, 100, 0, 256 * 2**20)),
        ("4k-randrw70-sync-rate3m", ("randrw", 4096, 70, 1, 3 * 2**20)),
    ],
)
def test_a_pattern_is_its_name(name, fields):
    pattern = Pattern.parse(name)
    assert (pattern.rw, pattern.bs_bytes, pattern.rwmixread, pattern.sync, pattern.rate_bytes) == fields
    assert pattern.name == name
    assert pattern.writes == (pattern.rwmixread < 100)


def test_a_block_of_whole_mebibytes_has_one_name():
    assert Pattern.parse("2048k-read").name == "2m-read"
    assert Pattern.parse("1536k-read").name == "1536k-read"


def test_cell_counts_outstanding_per_vm_and_job():
    cell = Cell(Pattern.parse("4k-randrw70"), numjobs=3, iodepth=16, vms=20)
    assert cell.outstanding == 960


def small(**kwargs) -> Plan:
    given = {"iodepth": [1, 8], "vms": 2, "repeats": 3, "read_runtime_s": 1, "write_runtime_s": 2, "span_bytes": 2**23}
    return sweep(["4k-randread", "1m-write"], **{**given, **kwargs})


def test_blocks_visit_every_cell_once_in_an_order_of_their_own_after_a_canary():
    plan = small(repeats=5)
    assert len(plan.cells) == 4
    orders = []
    for block in range(1, 6):
        steps = [s for s in plan.steps if s.block == block]
        assert [s.kind for s in steps] == ["canary"] + ["measure"] * 4
        assert Counter(s.cell for s in steps[1:]) == Counter(plan.cells), "each cell exactly once"
        assert {s.rep for s in steps[1:]} == {block}
        assert steps[0].rep == 0
        orders.append(tuple(s.cell for s in steps[1:]))
    assert len(set(orders)) > 1, "five blocks in one and the same order are not random"
    assert len({s.cell for s in plan.steps if s.kind == "canary"}) == 1, "the canary is the same cell in every block"


def test_back_to_back_is_the_articles_protocol():
    plan = small(order="back-to-back", prefill=False)
    assert [(s.cell, s.rep) for s in plan.steps] == [(c, r) for c in plan.cells for r in (1, 2, 3)]
    assert {s.kind for s in plan.steps} == {"measure"}


def test_prefill_comes_first_and_reaches_every_disk_any_cell_uses():
    plan = sweep({"4k-randread": {"numjobs": 3}, "4k-randwrite": {"iodepth": 4}}, vms=[1, 5], span_bytes=2**30)
    first = plan.steps[0]
    assert (first.kind, first.cell.vms, first.cell.numjobs, first.runtime_s) == ("prefill", 5, 3, 0.0)
    assert plan.vms == 5
    assert plan.numjobs == 3


@pytest.mark.parametrize(
    ("patterns", "warmed"), [(["4k-randread"], []), (["4k-randrw70"], ["4k-randwrite"]), (["1m-write"], [])]
)
def test_a_warmup_of_a_block_size_that_is_not_written_is_left_out(patterns, warmed):
    """So that who changes 01_plan's patterns alone need not touch its warm-ups."""
    page = {"warmup_s": {"4k-randwrite": 14400, "64k-randwrite": 7200}, "order": "back-to-back", "canary": False}
    assert [s.cell.pattern.name for s in sweep(patterns, **page).steps if s.kind == "warmup"] == warmed


def test_runtime_follows_the_direction_and_ramp_is_added():
    plan = small(ramp_s=0.5, canary=False, prefill=False)
    assert {(s.cell.pattern.name, s.runtime_s, s.duration_s) for s in plan.steps} == {
        ("4k-randread", 1.0, 1.5),
        ("1m-write", 2.0, 2.5),
    }


def test_a_pattern_may_bring_its_own_load():
    plan = sweep({"4k-randread": {"iodepth": [64], "numjobs": 2}, "1m-read": None}, iodepth=(1, 2), vms=1)
    assert {c.name for c in plan.cells} == {"4k-randread-nj2-qd64-vm1", "1m-read-nj1-qd1-vm1", "1m-read-nj1-qd2-vm1"}


def test_a_plan_survives_json():
    plan = small(warmup_s=1, ramp_s=0.25, seed=3)
    again = Plan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert again == plan
    assert again.digest == plan.digest != small().digest


def test_a_tenants_own_words_count_more_than_its_profiles_and_less_than_its_patterns():
    who = {
        "backup": {"profile": "backup", "iodepth": 2},
        "own": {"iodepth": 3, "patterns": {"4k-read": {"iodepth": 5}, "8k-read": {}}},
    }
    loads = {part.pattern.name: part.iodepth for cell in sweep(tenants=who).cells for part in cell.parts}
    assert loads == {"1m-read": 2, "4k-read": 5, "8k-read": 3}


def test_the_frame_has_every_step_with_its_cost():
    frame = small(warmup_s=5).to_frame()
    assert len(frame) == len(small(warmup_s=5).steps)
    fill, warm = frame.iloc[0], frame.iloc[1]
    assert fill["bytes_written"] == 2 * 2**23
    assert math.isnan(fill["duration_s"]), "how long a prefill takes is not known, and not 0"
    assert math.isnan(warm["bytes_written"]), "nor is what a write without a cap writes"
    reads = frame[frame["pattern"] == "4k-randread"]
    assert (reads["bytes_written"] == 0).all()
    assert (reads["overwrites"] == "").all()
    assert (frame.loc[frame["pattern"] == "1m-write", "overwrites"] == "2 devices").all()


def test_the_frame_uses_a_known_write_rate_and_a_cap():
    plan = sweep(
        ["4k-randwrite", "4k-randrw75-rate8m"],
        repeats=1,
        iodepth=1,
        vms=2,
        write_runtime_s=10,
        span_bytes=2**23,
        canary=False,
    )
    frame = plan.to_frame(write_bytes_per_s=2**20).set_index("pattern")
    assert frame.loc["4k-randwrite", "bytes_written"] == 10 * 2**20
    assert frame.loc["4k-randrw75-rate8m", "bytes_written"] == 2 * 2 * 2**20 * 10, "a quarter of 8 MiB/s on two VMs"
    assert frame.loc["1m-write", "duration_s"] == 2 * 2**23 / 2**20


@pytest.mark.parametrize(("pattern", "kind"), [("1m-read", "measure"), ("1m-write", "measure"), ("4k-rw70", "warmup")])
def test_sequential_jobs_on_one_disk_have_disjoint_parts_of_its_span(pattern, kind):
    step = Step(kind, Cell(Pattern.parse(pattern), 7, 1, 1), 1, 1, 10)
    span, disks = 2**26 + 4096, 3
    own = {job: step.region(job, disks, span) for job in range(7)}
    for disk in range(disks):
        parts = sorted((first, first + size) for job, (first, size) in own.items() if job % disks == disk)
        assert len(parts) == len(range(disk, 7, disks))
        assert all(end <= first for (_, end), (first, _) in pairwise(parts))
        assert parts[0][0] == 0
        assert span - parts[-1][1] < len(parts) * 2**20, "no more than a block a job is left out"


def test_a_step_says_what_it_is():
    step = Step("measure", Cell(Pattern.parse("4k-randread"), 1, 8, 2), block=3, rep=3, runtime_s=60.0)
    assert step.id == "measure-b3-r3-4k-randread-nj1-qd8-vm2"


def test_the_limit_of_an_outage_is_in_a_plan_only_where_it_is_not_the_usual_one():
    usual, other = sweep(["4k-randread"]), sweep(["4k-randread"], outage_limit_s=60)
    assert "outage_limit_s" not in usual.to_dict()
    assert sweep(["4k-randread"], outage_limit_s=900).digest == usual.digest != other.digest
    assert Plan.from_dict(json.loads(json.dumps(other.to_dict()))) == other
