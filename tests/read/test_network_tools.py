"""iperf3 and ping as they print: numbers, or a sentence that says what is there instead."""

from pathlib import Path

import pytest

import hcilib as hci
from hcilib.read.nodes.facts import NetworkOutputError, parse_iperf3, parse_ping

DATA = Path(__file__).parents[1] / "data" / "network"


def text(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def test_iperf3_tells_what_arrived():
    told = parse_iperf3(text("iperf3-3.12.json"))
    assert 1e8 < told["bytes_per_s"] < 1e12
    assert told["retransmits"] >= 0


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (text("iperf3-refused.json"), "unable to connect to server: Connection refused"),
        ("", "printed no result: nothing"),
        ("iperf3: Versuch's noch einmal", "printed no result: iperf3: Versuch's"),
        ('{"end": {}}', "printed no result"),
        ("[1]", "printed no result"),
    ],
)
def test_iperf3_that_measured_nothing_is_named(output, said):
    with pytest.raises(NetworkOutputError, match=said):
        parse_iperf3(output)


def test_ping_of_iputils_and_of_busybox():
    assert 0 < parse_ping(text("ping-iputils.txt")) < 1e6
    assert parse_ping("round-trip min/avg/max = 0.100/0.300/0.900 ms") == pytest.approx(150_000)
    with pytest.raises(NetworkOutputError, match="100% packet loss"):
        parse_ping("20 packets transmitted, 0 received, 100% packet loss, time 19ms\n")


def test_a_run_directory_without_links_has_an_empty_table_and_garbage_is_named(tmp_path):
    assert hci.read_network(tmp_path).empty
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "network.csv").write_text("source,target\n\x00a,b\n")
    with pytest.raises(ValueError, match=r"network\.csv: not a table of links"):
        hci.read_network(tmp_path)


def test_links_are_found_from_the_notebooks_folder_and_other_tools_files_have_none(tmp_path, monkeypatch):
    monkeypatch.chdir(hci.ROOT / "notebooks")
    assert len(hci.read_network("data/samples/lab-fleet"))
    assert hci.read_network({"path": tmp_path, "names": "{system}_{pattern}.json"}).empty
