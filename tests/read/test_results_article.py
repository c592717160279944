"""Results of one article out of the published tables."""

import hcilib
from hcilib.read.run.results import read_results

PUBLISHED = hcilib.ROOT / "data" / "published"


def test_keeps_the_article_and_counts_from_zero():
    results = read_results(PUBLISHED, "proxmox-2node-hci")
    assert set(results["source"]) == {"proxmox-2node-hci"}
    assert results.index.tolist() == list(range(127))


def test_several_sources_are_each_asked_for_the_article():
    results = read_results([PUBLISHED / "results.csv", PUBLISHED], "proxmox-2node-hci")
    assert len(results) == 254
    assert set(results["source"]) == {"proxmox-2node-hci"}


def test_a_run_directory_is_set_beside_an_article():
    results = read_results([PUBLISHED, hcilib.ROOT / "data/samples/lab-single"], "proxmox-2node-hci")
    assert set(results["source"]) == {"proxmox-2node-hci", "lab"}
