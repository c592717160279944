"""Counters of Windows nodes from Performance Monitor's files: a real capture, and files in the form
of real ones."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

import hcilib as hci
from hcilib.read.run.run import read_perfmon
from tests.read.made import mixed_clients, write_plan, write_step, written

DATA = Path(__file__).parents[1] / "data" / "windows"
CARD = "Mellanox ConnectX-4 Lx Ethernet Adapter _2"
START_S = datetime(2026, 2, 10, 9, tzinfo=UTC).timestamp()
HV1 = {"name": "HV1", "os": "windows"}
HV2 = {"name": "hv2", "os": "windows", "utc_offset": "+01:00"}
FILES = ("hv1.csv", "hv2.csv")


def campaign(folder: Path, *windows: tuple[float, float], nodes=(HV1, HV2), files=FILES) -> Path:
    """A run directory with a step a window, in seconds from START_S, and the nodes' files."""
    run = folder / "run"
    write_plan(run, one_kernel=False, name="hyperv", nodes=nodes)
    for rep, (begin_s, end_s) in enumerate(windows, 1):
        measured_s = [START_S + begin_s, START_S + end_s]
        times = {"measured_s": measured_s, "ended_s": measured_s[1] + 1, "nodes": len(nodes)}
        write_step(run, "measure", rep, measured_s[0] - 1, mixed_clients(), **times)
    for file in files:
        put(run, (DATA / file).read_bytes(), file)
    return run


def put(run: Path, content: str | bytes, name: str = "hv1.csv") -> None:
    written(run / "windows" / name, content)


def cpu(run: Path) -> float:
    """Return the nodes' CPU of the first step."""
    return hci.read_results(run)["node_cpu_pct"].iat[0]


HV1_TEXT = (DATA / "hv1.csv").read_bytes().decode()


def test_a_step_has_its_nodes_cpu_and_what_they_received(tmp_path):
    """HV1's three intervals in the window: 10, 20, 60 % busy; 300, 600, 900 bytes a second and, by
    RDMA, 5,000, 6,000, 7,000. hv2's two: 40 and 60 %, 50 and 150 bytes. What passes a virtual
    adapter passes the card too."""
    [row] = hci.read_results(campaign(tmp_path, (2, 5))).to_dict("records")
    assert row["node_cpu_pct"] == pytest.approx((30 + 50) / 2)
    assert row["net_bytes_per_s"] == pytest.approx(600 + 6000 + 100)
    assert "counters" not in row["warnings"].split()


def test_each_counter_of_a_step_is_a_mean_over_its_window(tmp_path):
    table = read_perfmon(campaign(tmp_path, (2, 5)))
    means = table.set_index(["node", "counter", "instance"])[["value", "seconds"]]
    disk, volume = r"PhysicalDisk(*)\Disk Bytes/sec", r"Cluster CSVFS(*)\{} Bytes/sec"
    for place, value, seconds in [
        (("HV1", disk, "3"), (1e6 + 2e6 + 6e6) / 3, 3),
        (("HV1", r"Network Interface(*)\Bytes Total/sec", CARD), 600 + 100, 3),
        (("HV1", volume.format("Read"), "Volume1"), (400_000 + 400_000 + 100_000) / 3, 3),
        (("HV1", volume.format("Write"), "Volume1"), (8192 + 0 + 8192) / 3, 3),
        (("hv2", disk, "1"), 1000, 1),  # the other sample had no valid value
        (("hv2", r"Network Interface(*)\Bytes Sent/sec", CARD), 10, 2),
    ]:
        assert means.loc[place].tolist() == pytest.approx([value, seconds])


def test_disks_of_a_real_capture(tmp_path):
    """A real capture: four samples ten seconds apart. One interval lies in the window of 20 s."""
    node = {"name": "GORANS2", "os": "windows", "utc_offset": "+01:00"}
    begin_s = datetime(2020, 12, 29, 17, 34, 30, tzinfo=UTC).timestamp() - START_S
    run = campaign(tmp_path, (begin_s, begin_s + 20), nodes=[node], files=["physicaldisk.csv"])
    [row] = read_perfmon(run).to_dict("records")
    assert (row["node"], row["instance"]) == ("GORANS2", "0 C:")
    assert (row["value"], row["seconds"]) == pytest.approx((223710.647402, 48.369 - 38.338))
    assert hci.read_results(run)["node_cpu_pct"].isna().all(), "it has no counter of CPU"


def test_a_step_that_a_file_does_not_cover_has_no_counters_(tmp_path):
    """HV1's file ends 7 s after START_S, hv2's 6.25 s."""
    run = campaign(tmp_path, (2, 5), (2.2, 2.8), (4, 6.5))
    results = hci.read_results(run)
    assert results["node_cpu_pct"].notna().tolist() == [True, False, False]
    assert ["counters" in codes.split() for codes in results["warnings"]] == [False, True, True]
    assert read_perfmon(run).query("rep == 3")["node"].unique().tolist() == ["HV1"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_file_of_powershell_and_a_line_that_was_cut_short(tmp_path, encoding):
    run = campaign(tmp_path, (2, 5), nodes=[HV1], files=[])
    put(run, (HV1_TEXT + '"02/10/2026 10:00:08.000","9').encode(encoding))
    assert cpu(run) == pytest.approx(30)


GERMAN = r'"(PDH-CSV 4.0) (Zeit)(-60)","\\HV1\Physikalischer Datenträger(_Total)\Bytes/s"'
HEAD, *LINES = HV1_TEXT.splitlines(keepends=True)
ZONE = " (W. Europe Standard Time)(-60)"
WRONG = [  # a text of the file, what is there instead, fields of the node, and what is named
    (ZONE, "", {}, "HV1 has no utc_offset"),
    (ZONE, " (", {}, "time zone"),
    (ZONE, ZONE, {"utc_offset": "+02:00"}, r"-60 minutes.*\+02:00 for HV1"),
    (ZONE, ZONE, {"name": "node1"}, "HV1"),
    (HEAD, f"{GERMAN}\n", {}, "Physikalischer Datenträger"),
    ('"60"', '"60,5"', {}, "60,5"),
    ("10:00:04.", "09:00:04.", {}, "10:00:03.000 to 02/10/2026 09:00:04"),
    ("10:00:04.", "11:00:04.", {}, "10:00:03.000 to 02/10/2026 11:00:04"),
    ("02/10/2026", "10.02.2026", {}, "time '10.02.2026 10:00:00.000'"),
    ("".join(LINES), "", {}, "table"),
    ("".join(LINES[1:]), "", {}, "two samples"),
    ('"60",', '"60","60",', {}, "20 columns, got 21"),
    (HV1_TEXT, "node,t_s\n1,2\n", {}, "PDH-CSV"),
]


@pytest.mark.parametrize(("text", "instead", "node", "named"), WRONG)
def test_what_cannot_be_trusted_is_refused_by_file_and_field(tmp_path, text, instead, node, named):
    run = campaign(tmp_path, (2, 5), nodes=[HV1 | node], files=[])
    put(run, HV1_TEXT.replace(text, instead))
    for reader in (hci.read_results, hci.read_counters, read_perfmon):
        with pytest.raises(ValueError, match=rf"windows/hv1\.csv: .*{named}"):
            reader(run)


@pytest.mark.parametrize(
    ("header", "ahead"), [("(-330)", "+05:30"), ("(300)", "-05:00"), ("(0)", "+00:00")]
)
def test_the_headers_zone_is_what_is_added_to_get_utc(tmp_path, header, ahead):
    shift_s = int(header[1:-1]) * 60 + 3600
    of_node = HV1 | {"utc_offset": ahead}
    for nodes, text in (
        ([HV1], HV1_TEXT.replace("(-60)", header)),
        ([of_node], HV1_TEXT.replace(ZONE, "")),
    ):
        run = campaign(tmp_path / ahead, (2 + shift_s, 5 + shift_s), nodes=nodes, files=[])
        put(run, text)
        assert cpu(run) == pytest.approx(30)
        shutil.rmtree(run)
