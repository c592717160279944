"""A disk of known latency: IOPS = iodepth / latency from end to end, and the audit's Little agrees on every row (half
a minute)."""

import pytest

import hcilib as hci
from hcilab.lab import lab
from hcilib import sweep

pytestmark = [pytest.mark.lab, pytest.mark.deep]
DELAY_S = 0.2  # long beside what a busy machine of two cores adds to it: 2 to 20 ms, on a slow one up to 85


@pytest.fixture(scope="module")
def results(programs, tmp_path_factory):
    """One VM on one disk that waits 200 ms, read and written at three iodepths, through a whole campaign."""
    folder = tmp_path_factory.mktemp("latency")
    plan = sweep(
        ["4k-randread", "4k-randwrite"],
        repeats=1,
        iodepth=[1, 4, 16],
        vms=1,
        read_runtime_s=20 * DELAY_S,
        write_runtime_s=20 * DELAY_S,
        span_bytes=2**22,
        prefill=False,
        canary=False,
    )
    system = hci.System(name="lab-single", label="delayed")
    with lab(2, 1, system="lab-single", disk_bytes=2**22, delay_s=DELAY_S, root=folder) as bed:
        return hci.run(plan, system, bed, folder / "run", progress=False)


def test_no_row_is_faster_than_the_delay_allows_and_none_much_slower(results):
    share = results["iops"] * DELAY_S / results["iodepth"]
    assert len(share) == 6
    assert (share <= 1.01).all(), share.tolist()
    assert (share > 0.6).all(), share.tolist()


def test_its_latency_is_the_delay_and_what_the_way_costs(results):
    over_s = results["lat_ns"] / 1e9 - DELAY_S
    assert (over_s >= 0).all()
    assert (over_s < 0.6 * DELAY_S).all(), over_s.tolist()


def test_the_audit_finds_little_s_law_in_every_row(results):
    little = hci.audit(results).query("check == 'little'")
    assert len(little) == len(results)
    assert little["ok"].all(), little[["measured", "expected", "ratio", "note"]]


def test_the_audit_sees_a_latency_that_was_not_measured(results):
    """The same rows with the delay left out of the latency: what a tool that times only its own part would report."""
    wrong = results.assign(lat_ns=results["lat_ns"] - DELAY_S * 1e9)
    assert not hci.audit(wrong).query("check == 'little'")["ok"].any()
