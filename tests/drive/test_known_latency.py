"""A disk of known latency: IOPS = iodepth / latency from end to end, and the audit's Little agrees on every row (half
a minute)."""

import pytest
from plain import short_plan

import hcilib as hci
from hcilab.lab import lab
from hcilib.model.system import System

pytestmark = [pytest.mark.lab, pytest.mark.deep]
DELAY_S = 0.2  # long beside what a busy machine of two cores adds to it: 2 to 20 ms, on a slow one up to 85


def test_little_s_law_holds_from_end_to_end_and_a_latency_that_was_not_measured_is_seen(programs, tmp_path, run_dir):
    """One VM on one disk that waits 200 ms, read and written at three iodepths, through a whole campaign. Then the same
    rows with the delay left out of the latency: what a tool that times only its own part would report."""
    given = {"iodepth": [1, 4, 16], "read_runtime_s": 20 * DELAY_S, "write_runtime_s": 20 * DELAY_S}
    plan = short_plan(["4k-randread", "4k-randwrite"], span_bytes=2**22, **given)
    with lab(2, 1, system="lab-single", disk_bytes=2**22, delay_s=DELAY_S, root=tmp_path) as bed:
        results = hci.run(plan, System(name="lab-single", label="delayed"), bed, run_dir, progress=False)
    share = results["iops"] * DELAY_S / results["iodepth"]
    assert len(share) == 6
    assert share.between(0.6, 1.01).all(), share.tolist()
    over_s = results["lat_ns"] / 1e9 - DELAY_S
    assert over_s.between(0, 0.6 * DELAY_S).all(), over_s.tolist()
    little = hci.audit(results).query("check == 'little'")
    assert len(little) == 6
    assert little["ok"].all(), little[["measured", "expected", "ratio", "note"]]
    wrong = results.assign(lat_ns=results["lat_ns"] - DELAY_S * 1e9)
    assert not hci.audit(wrong).query("check == 'little'")["ok"].any()
