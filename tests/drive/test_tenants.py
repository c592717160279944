"""Tenants at once on drives of known speed: who shares a drive loses the half that arithmetic says, who does not,
nothing."""

import pytest
from plain import short_plan

import hcilib as hci
from hcilab.lab import lab
from hcilib import sweep
from hcilib.model.patterns import PlanError
from hcilib.model.system import System

pytestmark = pytest.mark.lab
RATE = 2**22  # 1,024 IOPS of 4 KiB each way
SYSTEM = System(name="lab-single", label="one copy on the other node")
FOUND = 0.06  # of the truth: VMs that begin 50 ms apart, on a busy machine more
PAUSE_S = 0.5  # of a busy machine, for which a drive makes up: its bucket holds as much. A ramp empties it before


@pytest.fixture(scope="module")
def bed(programs, tmp_path_factory):
    """vm1 and vm3 have their data behind node2's drive, vm2 behind node1's."""
    dial = {"read_bytes_per_s": RATE, "write_bytes_per_s": RATE, "burst_s": PAUSE_S}
    with lab(2, 3, system="lab-single", disk_bytes=2**22, dial=dial, root=tmp_path_factory.mktemp("tenants")) as bed:
        yield bed


def tenants(**more):
    """Three at once: `left` and `right` share a drive, `apart` does not."""
    of = {"left": "vm1", "right": "vm3", "apart": "vm2"}
    return {
        name: {"patterns": "4k-randread", "iodepth": 8, "vms": [vm]} | more.get(name, {}) for name, vm in of.items()
    }


@pytest.mark.deep
def test_who_shares_a_drive_loses_half_and_a_limit_on_the_neighbour_gives_back_what_it_does_not_take(bed, undisturbed):
    """Each tenant alone, beside the others, and beside them with the limit; a row is one of them."""
    plan = sweep(tenants=tenants(right={"limit": "256iops"}), repeats=1, read_runtime_s=6, ramp_s=4 * PAUSE_S,
                 span_bytes=2**22, prefill=False, canary=False)  # fmt: skip
    results = undisturbed(plan, bed, SYSTEM)
    assert len(results) == 3 + 3 + 3
    limit = {"right-rate256iops, apart", "left, right-rate256iops"}
    assert set(results["beside"].dropna()) == limit | {"right, apart", "left, apart", "left, right"}
    assert results.loc[results["beside"].notna(), "iops_per_cpu_pct"].isna().all()
    alone = results[results["beside"].isna()].set_index("tenant")
    assert alone.loc["left", ["pattern", "vms", "iodepth", "outstanding"]].tolist() == ["4k-randread", 1, 8, 8]
    assert alone["iops"].to_dict() == pytest.approx(dict.fromkeys(("left", "right", "apart"), RATE / 4096), rel=FOUND)
    found = hci.neighbours(results, ["iops"]).set_index("tenant")
    limited = found["beside"].str.contains("rate")
    free = found[~limited]
    assert free["ratio"].to_dict() == pytest.approx({"left": 0.5, "right": 0.5, "apart": 1.0}, rel=2 * FOUND)
    assert free.loc[["left", "right"], "value"].sum() == pytest.approx(RATE / 4096, rel=FOUND)
    left = found[limited].loc["left"]
    assert left["value"] == pytest.approx(RATE / 4096 - 256, rel=FOUND)
    taken = free.loc["left", "ratio"]
    assert (left["ratio"] - taken) / (1 - taken) == pytest.approx(0.5, abs=0.12)
    cap = results[results["pattern"] == "4k-randread-rate256iops"].iloc[0]
    assert (cap["rate_iops"], cap["iops"]) == (256, pytest.approx(256, rel=FOUND))


def test_a_profile_of_two_patterns_is_two_rows_of_one_tenant(bed, run_dir):
    who = {
        "database": {"profile": "oltp", "vms": ["vm1"]},
        "backup": {"patterns": {"4k-randread": {"offered": "100iops"}}},
    }
    plan = sweep(
        tenants=who, repeats=1, read_runtime_s=1, write_runtime_s=1, span_bytes=2**22, prefill=False, canary=False
    )
    results = hci.run(plan, SYSTEM, bed, run_dir, progress=False)
    own = results[(results["tenant"] == "database") & results["beside"].notna()]
    assert own["pattern"].tolist() == ["8k-randrw70-zoned95on5", "32k-write-sync"]
    assert own["iops"].gt(0).all()
    offered = results[results["tenant"] == "backup"]
    assert offered["offered_iops"].eq(100).all()
    assert not offered["open_loop"].eq(False).any(), "too short to show that 1 % is missing"
    assert results.loc[results["tenant"] == "database", "offered_iops"].isna().all()


def test_tenants_that_ask_for_one_vm_twice_or_for_one_that_is_not_there_are_named(bed):
    shared = [vm.model_copy(update={"disks": bed.vms[0].disks}) if vm.name == "vm3" else vm for vm in bed.vms]
    for of, more, said in (
        (bed, {"apart": {"vms": ["vm9"]}}, "tenant 'apart': testbed lab has no VM vm9; it has vm1, vm2, vm3"),
        (bed, {"apart": {"vms": 2}}, "tenant 'apart' asks for 2 VMs, 1 of testbed lab are free"),
        (bed.model_copy(update={"vms": tuple(shared)}), {}, "tenants 'left' and 'right' share the disk nbd"),
    ):
        with pytest.raises(PlanError, match=said):
            sweep(tenants=tenants(**more)).seated(of)


def test_a_cap_that_was_missed_is_said_in_the_row(bed, run_dir):
    """A cap of four times what the drive lets through is missed however busy the machine is."""
    plan = short_plan(["4k-randread-rate4000iops"], iodepth=8, read_runtime_s=2, span_bytes=2**22)
    [row] = hci.run(plan, SYSTEM, bed, run_dir, progress=False).to_dict("records")
    assert "cap-missed" in row["warnings"].split()
