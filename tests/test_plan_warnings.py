"""Warnings of a plan before any host is asked."""

import pandas as pd
import pytest

import hcilib as hci
from hcilib import Testbed
from hcilib.model.system import Health
from hcilib.model.testbed import Disk, Node, Vm

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


def warned(plan, product=None, testbed=None) -> dict[str, tuple]:
    """Return code -> (have, need, names)."""
    table = hci.plan_warnings(plan, product, testbed)
    return {row.warning: (row.have, row.need, row.names) for row in table.itertuples()}


PLAN = hci.sweep(["4k-randread"], vms=3, numjobs=2, span_bytes="100 GiB")


def test_nothing_is_odd_about_a_plan_that_fits():
    fits = system(scheme="Mirror(2) * Raid5(5)", nodes=2, drives_per_node=5, cache_bytes="8 GiB")
    assert set(warned(PLAN, fits, bed())) == {"health-not-asked"}
    asked = fits.model_copy(update={"health": Health(run="zpool status -x", expect="^all pools are healthy")})
    assert warned(PLAN, asked, bed()) == warned(PLAN, fits) == {}
    assert warned(PLAN, system(scheme="Mirror(1)"), bed()) == {}


@pytest.mark.parametrize(
    ("scheme", "nodes", "drives", "code", "need"),
    [
        ("Raid6(9)", 2, 8, "scheme-drives", 9),
        ("Mirror(3)", 2, 5, "scheme-nodes", 3),
        ("Mirror(2) * Raid5(5).spare(1)", 2, 5, "scheme-drives", 6),
        ("ErasureCode(4, 2)", 4, 5, "scheme-nodes", 6),
        ("nested_parity(7, 0.2)", 2, 5, "scheme-drives", 7),
        ("Mirror(2) * Mirror(2)", 2, 2, None, 0),
        ("nested_parity(5, 0.2).reserve(2, 5)", 2, 5, None, 0),
        ("Mirror(2)", None, None, None, 0),
    ],
)
def test_a_scheme_wider_than_its_nodes_or_drives(scheme, nodes, drives, code, need):
    found = warned(PLAN, system(scheme=scheme, nodes=nodes, drives_per_node=drives))
    have = nodes if code == "scheme-nodes" else drives
    assert found == ({code: (have, need, (scheme,))} if code else {})


def test_no_system_of_this_repository_is_wider_than_its_drives():
    odd = pd.concat([hci.plan_warnings(PLAN, one) for one in hci.load_systems().values()])
    assert not set(odd["warning"]) & {"scheme-nodes", "scheme-drives"}


def test_disks_and_vms_without_a_job():
    assert warned(hci.sweep(["4k-randread"], vms=3), None, bed())["idle-disks"] == (1, 2, ("S01", "S11", "S21"))
    assert warned(hci.sweep(["4k-randread"], vms=2, numjobs=2), None, bed())["idle-vms"] == (2, 3, ("vm2",))


def test_a_span_above_a_disk():
    have, need, names = warned(PLAN, None, bed(size=10 * GIB))["small-disks"]
    assert (have, need, len(names)) == (10 * GIB, 100 * GIB, 6)


def test_a_working_set_that_fits_the_caches():
    caches = system(nodes=2, cache_bytes="16 GiB")
    assert warned(hci.sweep(["4k-randread"], vms=4, span_bytes="8 GiB"), caches)["cached"] == (8 * GIB, 8 * GIB, ())
    assert warned(hci.sweep(["4k-randread"], vms=4, span_bytes="9 GiB"), caches) == {}


def test_runs_that_are_too_short():
    short = {"read_runtime_s": 60, "write_runtime_s": 60}
    cold = warned(hci.sweep(["4k-randread", "4k-randwrite"], **short))["cold-writes"]
    assert cold == (60, 300, ("4k-randwrite",))
    assert warned(hci.sweep(["4k-randwrite"], warmup_s=600, **short)) == {}
    assert warned(hci.sweep(["4k-randwrite"])) == {}
    assert warned(hci.sweep(["4k-randread"], ramp_s=90, **short))["short-runs"] == (60, 90, ("4k-randread",))


def test_a_rate_may_be_text():
    plan = hci.sweep(["4k-randwrite"], read_runtime_s=60, write_runtime_s=60)
    assert plan.cost(write_bytes_per_s="1 GB").equals(plan.cost(write_bytes_per_s=1e9))
