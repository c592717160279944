"""A real link is cut under a real DRBD while fio writes: what the kernels said of it stands beside what the client
saw."""

import re
import time

import pytest
from boxes import plan

import hcilib as hci
from hcilab.actions import of_box
from hcilib.drive.beds import Actions
from hcilib.drive.campaign import campaign
from hcilib.drive.hosts.hosts import Fleet, need

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


def test_a_guests_clock_that_is_set_while_a_run_is_on_leaves_nothing_to_count(drbd, tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "ATTEMPTS", 1)
    system, box = hci.load_system(hci.ROOT / "params/systems/box-drbd.yaml"), of_box(drbd)
    given = plan(["4k-randwrite"], write_runtime_s=5, events=[{1: "set-clock"}])
    [vm] = [vm.name for vm in drbd.testbed.fleet(1)]

    def set_clock(fleet, by_s: float = 20.0) -> None:
        need("date -s", fleet.run(f"date -s @{time.time() + by_s:.0f}", [vm]))

    actions = Actions({"set-clock": set_clock}, {}, box.missing)
    try:
        results = hci.run(given, system, drbd.testbed, tmp_path / "run", consent=drbd.testbed.consent, progress=False,
                          actions=actions)  # fmt: skip
    finally:
        with Fleet(drbd.testbed) as fleet:
            set_clock(fleet, 0.0)
    assert results.empty
    unseen = hci.read_failed_events(tmp_path / "run")
    assert re.fullmatch(rf"{vm}'s clock moved by \+(19|20)\.\d s against this machine's .*", unseen["why"].item())
