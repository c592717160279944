"""The network before storage: real iperf3 over a lab's loopback, and what is said where something is missing."""

import pytest
from injections import MIRROR

import hcilib as hci
from hcilib.drive.hosts import network as links
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.testbed import Node


@pytest.mark.needs("iperf3")
def test_a_campaign_measures_every_link_once_and_keeps_it_with_its_facts(bed, short, run_dir):
    plan = short(network_s=0.3)
    hci.run(plan, MIRROR, bed, run_dir, progress=False)
    kept = hci.read_network(run_dir)
    assert set(kept["transport"]) == {"TCP"}
    assert set(zip(kept["source"], kept["target"], strict=True)) == {("node1", "node2"), ("node2", "node1")}
    assert (kept["bytes_per_s"] > 1e7).all()
    assert kept["note"].fillna("").eq("").all()
    assert kept["one_kernel"].all()
    assert "network" not in hci.read_results(run_dir).columns


def test_a_missing_tool_is_named_and_the_rest_goes_on(bed, monkeypatch):
    monkeypatch.setattr(links, "_TOOLS", links._TOOLS.replace("iperf3 ", "iperf3-of-nowhere "))
    with Fleet(bed) as fleet:
        table = links.measure(fleet, bed, 0.5)
    tcp = table[table["transport"] == "TCP"]
    assert tcp["bytes_per_s"].isna().all()
    assert tcp["note"].str.match("no iperf3 on node. and node.: apt-get install iperf3").all()
    assert len(table) == 2


def test_a_link_below_its_label_and_a_windows_node_are_named(bed):
    row = {"note": "", "bytes_per_s": 0.9e9 / 8, "label_bytes_per_s": 25e9 / 8}
    assert links._noted(row) == "slower than its label: 0.9 of 25 Gbit/s, 4 %"
    assert links._noted({**row, "label_bytes_per_s": 1e9 / 8}) == ""
    windows = bed.model_copy(update={"nodes": (bed.nodes[0], Node(name="hv2", address="127.0.0.9", os="windows"))})
    with Fleet(windows) as fleet:
        table = links.measure(fleet, windows, 0.3)
    assert table["note"].str.contains("hv2 runs Windows").all()
