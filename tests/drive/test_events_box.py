"""A real link is cut under a real DRBD while fio writes: what the kernels said of it stands beside what the client
saw."""

import pytest
from boxes import plan

import hcilib as hci
from hcilab.actions import of_box
from hcilib.drive.hosts.hosts import Fleet

pytestmark = [pytest.mark.box, pytest.mark.deep]


def test_a_cut_link_is_seen_by_both_sides_and_is_whole_again(drbd, tmp_path):
    system = hci.load_system(hci.ROOT / "params/systems/box-drbd.yaml")
    given = plan(["4k-randwrite"], write_runtime_s=9, events=[{3: "cut-link", 6: "heal-link"}])
    results = hci.run(given, system, drbd.testbed, tmp_path / "run", consent=drbd.testbed.consent, progress=False,
                      actions=of_box(drbd))  # fmt: skip
    assert results.attrs["missing"] == []
    assert list(results["events"]) == ["cut-link@3 heal-link@6"]
    happened = hci.read_events(tmp_path / "run")
    assert list(happened.loc[~happened["seen"], "what"]) == ["cut-link", "heal-link"]
    seen = list(happened.loc[happened["seen"], "what"])
    assert (seen[0], seen[-1]) == ("whole", "whole")
    assert any("node1: cs:" in said and "DUnknown" in said for said in seen)
    [cost] = hci.failures(hci.read_series(tmp_path / "run"), happened, hci.read_hosts(tmp_path / "run")).to_dict(
        "records"
    )
    assert cost["max_lat_ns"] > 0.5e9, "no write is acknowledged before the peer is given up"
    assert cost["whole_s"] > 0
    with Fleet(drbd.testbed) as fleet:
        assert of_box(drbd).missing(fleet) == ""
