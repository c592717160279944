"""Stamped writes beside fio in a campaign with events, on a real disk over SSH: what was kept, lost, and not to be
known."""

import pytest
from loops import MIB, own_kernels
from plain import run, short_plan

import hcilib as hci
from hcilib.drive.beds import Actions
from hcilib.model.patterns import PlanError
from hcilib.model.system import System

pytestmark = pytest.mark.lab
SPAN, STAMPED = 2 * MIB, 64 * 1024
GIVEN = {"iodepth": [1], "write_runtime_s": 5, "span_bytes": SPAN, "integrity": STAMPED}
LIGHT = ["4k-randwrite-rate1m"]


@pytest.fixture
def measured(blank, hosts, run_dir):
    """A campaign of these events on vm1's disk, whose stamped blocks are zeroed when `spoil` is taken back."""
    _, device, testbed = blank
    zero = f"dd if=/dev/zero of={device} bs=4096 seek={SPAN // 4096} count=2 oflag=direct conv=notrunc 2>/dev/null"
    nothing = {"run": "true"}
    changes = {"touch": {"do": nothing}, "spoil": {"do": nothing, "undo": {"run": zero, "on": "node"}}}
    system = System(name="a-disk", label="A disk", changes=changes)

    def campaign(*events, **given):
        with own_kernels(hosts.folder):
            return hci.run(short_plan(LIGHT, events=events, **GIVEN), system, testbed, run_dir, consent="wipe",
                           progress=False, **given)  # fmt: skip

    return campaign


def test_what_an_event_took_is_lost_in_its_row_and_what_stays_is_kept(measured, run_dir):
    results = measured({1: "touch"}, {1: "spoil"})
    assert results.attrs["missing"] == []
    rows = results.set_index("events")
    kept, lost = rows.loc["touch@1"], rows.loc["spoil@1"]
    assert (kept["integrity"], kept["lost"], kept["torn"], kept["foreign"]) == ("kept", 0, 0, 0)
    assert kept["acknowledged"] >= STAMPED // 4096
    assert (lost["integrity"], lost["lost"], lost["foreign"]) == ("lost", 2, 0), "two blocks of zeros"
    again = measured({1: "touch"}, {1: "spoil"})
    assert again["integrity"].tolist() == results["integrity"].tolist(), "resumed, nothing is done again"
    assert hci.verify(run_dir).empty
    every = hci.integrity(run_dir)
    assert sorted(every["verdict"]) == ["kept", "lost"]


def test_a_replica_that_cannot_be_read_is_not_checkable(measured, run_dir):
    nowhere = {"node2": {("vm1", "B1"): ("vm1", "/dev/nothing-here")}}
    measured({1: "touch"}, actions=Actions({"touch": lambda fleet: None}, {}, lambda fleet: "", nowhere))
    verdicts = hci.integrity(run_dir).set_index("replica")["verdict"]
    assert verdicts.to_dict() == {"system": "kept", "node2": "not checkable: no block could be read"}


def test_blocks_that_do_not_fit_are_refused_before_anything_is_written(blank, hosts, run_dir):
    file, _, testbed = blank
    given = GIVEN | {"span_bytes": testbed.vms[0].disks[0].size_bytes}
    system = System(name="a-disk", label="A disk", changes={"touch": {"do": {"run": "true"}}})
    with own_kernels(hosts.folder), pytest.raises(PlanError, match=r"vm1's disk B1 has .* make span_bytes smaller"):
        run(short_plan(LIGHT, events=[{1: "touch"}], **given), testbed, system, run_dir, consent="wipe")
    assert not any(file.read_bytes())


@pytest.mark.parametrize(
    ("given", "said"),
    [({"events": [{}]}, "nothing is done to the system"), ({"integrity": 5000}, "multiple of 4096"),
     ({"integrity": "a lot"}, "integrity: ")],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(given, said):
    with pytest.raises(PlanError, match=said):
        short_plan(LIGHT, **{"events": [{1: "touch"}], **GIVEN, **given})
