"""What is odd about a plan before any host is asked, and what 01_plan says of it in a sentence."""

import pandas as pd
import pytest

import hcilib as hci
from hcilib.model.testbed import Disk, Node, Testbed, Vm

GIB = 2**30


def bed(disks: int = 2, vms: int = 3, size: int = 100 * GIB) -> Testbed:
    nodes = (Node(name="srv1"), Node(name="srv2"))
    owned = [tuple(Disk(serial=f"S{v}{d}", size_bytes=size) for d in range(disks)) for v in range(vms)]
    return Testbed(
        name="rack",
        nodes=nodes,
        vms=tuple(Vm(name=f"vm{n}", node=nodes[n % 2].name, disks=its) for n, its in enumerate(owned)),
    )


def system(**fields) -> hci.System:
    return hci.System(name="s", label="s", **fields)


def warned(plan, product=None, testbed=None) -> dict[str, str]:
    table = hci.plan_warnings(plan, product, testbed)
    return dict(zip(table["warning"], table["detail"], strict=True))


PLAN = hci.sweep(["4k-randread"], vms=3, numjobs=2, span_bytes="100 GiB")


def test_nothing_is_odd_about_a_plan_that_fits():
    fits = system(scheme="Mirror(2) * Raid5(5)", nodes=2, drives_per_node=5, cache_bytes="8 GiB")
    assert warned(PLAN, fits, bed()) == {}


@pytest.mark.parametrize(
    ("scheme", "nodes", "drives", "said"),
    [
        ("Raid6(9)", 2, 8, "Raid6(9) takes 9 drives of a server, its file says 8 drives_per_node"),
        ("Mirror(3)", 2, 5, "Mirror(3) lies across 3 servers, its file says 2 nodes"),
        ("Mirror(2) * Raid5(5).spare(1)", 2, 5, "takes 6 drives"),
        ("ErasureCode(4, 2)", 4, 5, "across 6 servers"),
        ("nested_parity(7, 0.2)", 2, 5, "takes 7 drives"),
        ("Mirror(2) * Mirror(2)", 2, 2, None),
        ("nested_parity(5, 0.2).reserve(2, 5)", 2, 5, None),
        ("Mirror(2)", None, None, None),
    ],
)
def test_a_scheme_wider_than_its_nodes_or_drives(scheme, nodes, drives, said):
    found = warned(PLAN, system(scheme=scheme, nodes=nodes, drives_per_node=drives))
    assert said in found["scheme"] if said else "scheme" not in found


def test_no_system_of_this_repository_is_wider_than_its_drives():
    odd = [hci.plan_warnings(PLAN, one).query("warning == 'scheme'") for one in hci.load_systems().values()]
    assert pd.concat(odd)["detail"].tolist() == []


def test_disks_and_vms_without_a_job():
    assert warned(hci.sweep(["4k-randread"], vms=3), None, bed())["unused"] == (
        "3 of 6 disks of the VMs at work have no job with numjobs=1: S01, S11, S21; numjobs=2 uses all"
    )
    assert (
        "1 of 3 VMs have nothing to do with vms=2: vm2"
        in warned(hci.sweep(["4k-randread"], vms=2, numjobs=2), None, bed())["unused"]
    )


def test_a_span_above_a_disk():
    assert (
        "span_bytes is 100 GiB, 6 disk(s) are smaller (from 10 GiB)" in warned(PLAN, None, bed(size=10 * GIB))["span"]
    )


def test_a_working_set_that_fits_the_caches():
    said = warned(hci.sweep(["4k-randread"], vms=4, span_bytes="8 GiB"), system(nodes=2, cache_bytes="16 GiB"))
    assert "the working set of 32 GiB fits the caches of 32 GiB (2 x cache_bytes)" in said["cached"]
    assert warned(hci.sweep(["4k-randread"], vms=4, span_bytes="9 GiB"), system(nodes=2, cache_bytes="16 GiB")) == {}


def test_runs_that_are_too_short():
    short = {"read_runtime_s": 60, "write_runtime_s": 60}
    assert "runs of 60 s and no warm-up" in warned(hci.sweep(["4k-randread", "4k-randwrite"], **short))["short"]
    assert warned(hci.sweep(["4k-randwrite"], warmup_s=600, **short)) == {}
    assert warned(hci.sweep(["4k-randwrite"])) == {}
    assert "shorter than their own ramp_s of 90 s" in warned(hci.sweep(["4k-randread"], ramp_s=90, **short))["short"]


def test_the_sentence_is_green_only_if_everything_is():
    columns = ["host", "check", "ok", "detail"]
    rows = [("vm1", "reachable", True, "ssh"), ("vm2", "reachable", False, "no answer within 10 s")]
    cost, odd = PLAN.cost(write_bytes_per_s=1e9), hci.plan_warnings(PLAN, None, bed(size=10 * GIB))
    green = hci.plan_answer(cost, 1, 3, pd.DataFrame(rows[:1], columns=columns))
    assert green.startswith("Ready: all 1 checks on 1 hosts hold. 1 tests in")
    checks = pd.DataFrame(rows, columns=columns)
    assert hci.plan_answer(cost, 1, 3, checks, odd).startswith(
        "Not ready: 1 of 2 checks on 2 hosts failed (vm2: reachable: no answer within 10 s). 1 tests in"
    )
    assert "1 warning: span_bytes is 100 GiB" in hci.plan_answer(cost, 1, 3, checks, odd)
    hci.require_ready(checks.head(1))
    with pytest.raises(hci.PreflightError, match=r"1 check.s. failed: vm2: reachable: no answer within 10 s"):
        hci.require_ready(checks)


def test_what_is_nearly_right_is_guessed(tmp_path):
    (tmp_path / "bed.yaml").write_text("name: a\nfio: {ioengine: libio, launcher: per-hosts}\nlab: {}\n")
    with pytest.raises(hci.TestbedError, match=r"did you mean libaio.*did you mean per-host"):
        hci.load_testbed(tmp_path / "bed.yaml")
    with pytest.raises(hci.PlanError, match=r"order 'block': did you mean blocks"):
        hci.sweep(["4k-randread"], order="block")
    with pytest.raises(hci.PlanError, match=r"unknown field 'iodepths'; did you mean iodepth"):
        hci.sweep({"4k-randread": {"iodepths": [1]}})


def test_a_rate_may_be_text():
    plan = hci.sweep(["4k-randwrite"], read_runtime_s=60, write_runtime_s=60)
    assert plan.cost(write_bytes_per_s="1 GB").equals(plan.cost(write_bytes_per_s=1e9))
    with pytest.raises(ValueError, match="'1 gigabyte' is not a size"):
        plan.cost(write_bytes_per_s="1 gigabyte")
