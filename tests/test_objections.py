"""What speaks against a plan before any host is asked: a row a code."""

import csv
from pathlib import Path

import pytest

import hcilib as hci
from hcilib import sweep
from hcilib.measure import run
from hcilib.model import objections as listed
from hcilib.model.patterns import PlanError
from hcilib.model.plan import Plan
from hcilib.model.system import Check, System
from hcilib.model.testbed import Disk, Fio, Node, Testbed, Vm

GIB = 2**30
CODES = Path(listed.__file__).with_suffix(".csv")
READS = {"readonly": True, "prefill": False, "canary": False, "read_runtime_s": 600}
SHORT = {"read_runtime_s": 60, "write_runtime_s": 60}
FITS = {"scheme": "Mirror(2) * Raid5(5)", "nodes": 2, "drives_per_node": 5, "cache_bytes": "8 GiB"}
ASKED = {"checks": {"health": Check(run="zpool status -x", expect="^all pools are healthy")}}
PLAN = sweep(["4k-randread"], vms=3, numjobs=2, span_bytes="100 GiB")
DIES = {"kill": {"do": {"run": "x"}}}


def bed(size: int = 100 * GIB, nodes: int = 2, serials: tuple[str, ...] = (), **more) -> Testbed:
    """Return three VMs of two disks each; `serials` replace those of the first disks."""
    names = [[f"S{vm}{disk}" for disk in (0, 1)] for vm in range(3)]
    for own, serial in zip(names, serials, strict=False):
        own[0] = serial
    made = [Node(name=f"srv{n}") for n in range(nodes)]
    disks = [tuple(Disk(serial=serial, size_bytes=size) for serial in own) for own in names]
    vms = tuple(Vm(name=f"vm{n}", node=f"srv{n % nodes}", disks=own) for n, own in enumerate(disks))
    return Testbed(name="rack", nodes=tuple(made), vms=vms, **more)


def system(**fields) -> System:
    return System(name="s", label="s", **fields)


def events(*, known: bool) -> tuple:
    plan = sweep(["4k-randread"], vms=3, numjobs=2, events=[{10: "kill" if known else "cut"}])
    return plan, bed(), system(changes=DIES, **ASKED)


STAMPED = sweep(["4k-randwrite"], vms=1, integrity="1 MiB", events=[{10: "kill"}], span_bytes="100 GiB")
ROWS = {
    # code -> what is asked, and what the text names
    "readonly-writes": (
        lambda: (Plan.from_dict({**PLAN.to_dict(), "readonly": True}),), "prefill",
    ),
    "adaptive-launcher": (
        lambda: (sweep(["4k-read"], policy="adaptive"), bed(fio=Fio(launcher="client-server"))),
        "fio.launcher: per-host",
    ),
    "demand-engine": (
        lambda: (sweep(["4k-read"], offered=[0.5]), bed(fio=Fio(ioengine="psync"))), "'psync'",
    ),
    "shared-disk": (
        lambda: (PLAN, bed(serials=("wwn-0x60022480AA000001", "naa.60022480aa000001"))), "vm1's disk naa.",
    ),
    "stamped-export": (
        lambda: (STAMPED, bed().model_copy(update={"vms": (Vm(name="vm0", node="srv0", disks=(
            Disk(serial="a", size_bytes=GIB, uri="nbd://h/a"),)),)})), "vm0's disk a",
    ),
    "stamped-space": (lambda: (STAMPED, bed()), f"{100 * GIB + 2**20}"),
    "placement-unknown": (lambda: (sweep(["4k-read"], placement="owner"), bed(), system()), "owner"),
    "placement-nodes": (lambda: (sweep(["4k-read"], placement="owner"), bed(nodes=1), system()), "has 1"),
    "event-unknown": (lambda: events(known=False), "known are kill"),
    "command-host": (
        lambda: (PLAN, bed(), system(changes={"cut": {"do": {"on": ["srv1", "srv9"], "run": "x"}}})), "'srv9'",
    ),
    "health-not-asked": (lambda: (PLAN, bed(), system(**FITS)), "Add a check health"),
    "scheme-nodes": (lambda: (PLAN, None, system(scheme="ErasureCode(4, 2)", nodes=4)), "needs 6 nodes"),
    "scheme-drives": (
        lambda: (PLAN, None, system(scheme="Mirror(2) * Raid5(5).spare(1)", drives_per_node=5)), "6 drives",
    ),
    "first-tier-full": (
        lambda: (PLAN, bed(), system(scheme="nested_parity(5, 0.2)", nodes=2, drives_per_node=5,
                                     drive={"model": "x", "bytes": "100 GB"})), "fill 902 %",
    ),
    "cached": (
        lambda: (sweep(["4k-randread"], vms=4, span_bytes="8 GiB"), None,
                 system(nodes=2, cache_bytes="16 GiB")), "above 8 GiB",
    ),
    "idle-vms": (lambda: (sweep(["4k-randread"], vms=2, numjobs=2), bed()), "(vm2). Set vms to 3"),
    "idle-disks": (lambda: (sweep(["4k-randread"], vms=3), bed()), "(S01, S11, S21). Set numjobs to 2"),
    "small-disks": (lambda: (PLAN, bed(size=10 * GIB)), "above 6 disks"),
    "short-runs": (lambda: (sweep(["4k-randread"], ramp_s=90, **SHORT),), "take 60 s"),
    "cold-writes": (lambda: (sweep(["4k-randread", "4k-randwrite"], **SHORT),), "of 4k-randwrite take"),
}  # fmt: skip


@pytest.mark.parametrize("code", ROWS)
def test_an_objection_names_what_it_is_about(code):
    asked, named = ROWS[code]
    [row, *_] = hci.objections(*asked()).query("code == @code").to_dict("records")
    assert named in row["detail"]
    assert row["about"] in ("plan", "rack", "s")


def test_every_code_is_listed_and_tested():
    with CODES.open(encoding="utf-8", newline="") as file:
        assert {row["code"] for row in csv.DictReader(file)} == set(ROWS)


@pytest.mark.parametrize(
    "asked",
    [
        (PLAN, bed(), system(**FITS, **ASKED)),
        (PLAN, None, system(scheme="nested_parity(5, 0.2).reserve(2, 5)", nodes=2, drives_per_node=5)),
        (PLAN, bed(serials=("S6CKNN0W", "s6cknn0w"))),
        (sweep(["4k-randread"], vms=4, span_bytes="9 GiB"), None, system(nodes=2, cache_bytes="16 GiB")),
        (sweep(["4k-randwrite"], warmup_s=600, **SHORT),),
        (sweep(["4k-randread"], **READS),),
    ],
)
def test_nothing_speaks_against_a_plan_that_fits(asked):
    assert hci.objections(*asked).empty


def test_a_campaign_is_refused_for_every_fatal_reason_at_once(tmp_path):
    plan = sweep(["4k-read"], placement="owner", policy="adaptive")
    where = bed(nodes=1, fio=Fio(launcher="client-server"))
    fatal = hci.objections(plan, where, system()).query("fatal")["detail"]
    with pytest.raises(PlanError) as refusal:
        run(plan, system(), where, tmp_path / "run")
    assert len(fatal) == 3
    assert all(detail in str(refusal.value) for detail in fatal)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("tb", "full"), [(0.849, False), (0.851, True)])
def test_the_tiers_threshold_is_where_refs_moves_data(tb, full):
    scheme = hci.nested_parity(5, 0.2)
    raw = PLAN.vms * PLAN.numjobs * PLAN.span_bytes / (tb * 0.2 * scheme.efficiency)
    drive = {"model": "x", "bytes": round(raw / 10)}
    tiered = system(scheme=repr(scheme), nodes=2, drives_per_node=5, drive=drive)
    assert ("first-tier-full" in set(hci.objections(PLAN, bed(), tiered)["code"])) == full
