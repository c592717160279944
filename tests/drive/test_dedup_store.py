"""A store that shares blocks: what a job after the writing saves is known beforehand, files stay as they are, and
nothing stays mounted."""

from pathlib import Path

import pytest
from injections import MIRROR

import hcilib as hci
from hcilib.drive.campaign.facts import saved_pct
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.systems import Subject
from hcilib.model.system import Check

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = [f"params/systems/lab-{name}-store.yaml" for name in ("single", "mirror")]
BOTH = ("node1", "node2")
pytestmark = pytest.mark.needs("loop devices (as root)", "mkfs.xfs", "qemu-storage-daemon")


def test_the_factorial_runs_and_its_savings_are_the_stores(tmp_path, run_dir):
    sweep = {"patterns": ["4k-randread", "4k-randrw70"], "iodepth": [8], "vms": 2, "repeats": 1, "read_runtime_s": 0.5,
             "write_runtime_s": 2, "span_bytes": "8 MiB", "canary": False, "dedupe_pct": 70}  # fmt: skip
    bed = tmp_path / "bed.yaml"
    bed.write_text("name: lab-store\nlab: {nodes: 2, vms: 2, disk_bytes: 8 MiB, store: xfs}\n")
    results = hci.run(sweep, SYSTEMS[:1], bed, run_dir, settings=[None, "dedup"])
    cells = results.assign(dedup=results["system"].str.contains("dedup"), write_pct=100 - results["rwmixread"])
    saved = cells.set_index(["dedup", "write_pct"])["savings_pct"]
    assert (saved[False] < 1).all()
    assert 40 < saved[True, 0] < 90  # of seven in ten blocks each repeats the one before it
    assert 0 < saved[True, 30] < saved[True, 0]  # what was written since is a copy
    full = hci.read_pool_fill(run_dir)
    assert list(zip(full["when"], full["host"], strict=True)) == [(w, n) for w in ("start", "end") for n in BOTH]
    assert full["pool_fill_pct"].between(1, 60).all()
    assert full["line"].str.fullmatch(r"\d+%").all(), "df's own line"
    level = 10 * ((full["pool_fill_pct"].max() + 5) // 10)
    assert set(results["pool_fill_pct"]) == {level}, "the store as it is and deduplicated lie in one pool"
    assert results["iops"].gt(0).all()


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("saved 68.4 %", 68.4),
        ("SavingsRate : 70", 70.0),
        ("eingespart: 68,4", 68.4),
        ("Zugriff verweigert", None),
        ("saved 101 %", None),
    ],
)
def test_a_store_that_answers_in_another_language_is_named(bed, said, known):
    how = Check(on="node", run=f"echo '{said}'", expect=r"(?:saved |SavingsRate : |eingespart: )([0-9.,]+)")
    system = MIRROR.model_copy(update={"checks": {"savings": how}})
    with Fleet(bed) as fleet:
        value, remarks = saved_pct(fleet, Subject(system, bed, None))
    assert value == known if known else value != value
    assert bool(remarks) is (known is None)
    if remarks:
        assert remarks[0].startswith("node1: what is saved is not known")
        assert said in remarks[0]
