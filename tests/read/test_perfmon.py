"""Counters of Windows nodes from Performance Monitor's files: a real capture, and files in the form
of real ones."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hcilib as hci
from hcilib.read.nodes.counters import COLUMNS
from hcilib.read.nodes.perfmon import as_counters, of_step, read_perfmon_csv
from tests.needs import examples
from tests.read.test_run import mixed_clients, write_plan, write_step

DATA = Path(__file__).parents[1] / "data" / "windows"
CARD = "Mellanox ConnectX-4 Lx Ethernet Adapter _2"
START_S = datetime(2026, 2, 10, 9, tzinfo=UTC).timestamp()
HV1 = {"name": "HV1", "os": "windows"}
HV2 = {"name": "hv2", "os": "windows", "utc_offset": "+01:00"}
FILES = ("hv1.csv", "hv2.csv")


def campaign(folder: Path, *windows: tuple[float, float], nodes=(HV1, HV2), files=FILES) -> Path:
    """A run directory with a step a window, in seconds from START_S, and the nodes' files."""
    run = folder / "run"
    write_plan(run, one_kernel=False)
    plan = json.loads((run / "plan.json").read_text())
    testbed = {"name": "hyperv", "nodes": nodes}
    (run / "plan.json").write_text(json.dumps(plan | {"testbed": testbed}))
    for rep, (begin_s, end_s) in enumerate(windows, 1):
        measured_s = [START_S + begin_s, START_S + end_s]
        times = {"measured_s": measured_s, "ended_s": measured_s[1] + 1, "nodes": len(nodes)}
        write_step(run, "measure", rep, measured_s[0] - 1, mixed_clients(), **times)
    (run / "windows").mkdir()
    for file in files:
        shutil.copy(DATA / file, run / "windows")
    return run


def put(run: Path, text: str, encoding: str = "utf-8") -> None:
    (run / "windows" / "hv1.csv").write_bytes(text.encode(encoding))


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
    table = hci.read_perfmon(campaign(tmp_path, (2, 5)))
    means = table.set_index(["node", "counter", "instance"])[["value", "seconds"]]
    disk, volume = r"PhysicalDisk(*)\Disk Bytes/sec", r"Cluster CSVFS(*)\{} Bytes/sec"
    for place, value, seconds in [
        (("HV1", disk, "0 C:"), (4096 + 0 + 4096) / 3, 3),
        (("HV1", disk, "3"), (1e6 + 2e6 + 6e6) / 3, 3),
        (("HV1", r"Network Interface(*)\Bytes Total/sec", CARD), 600 + 100, 3),
        (("HV1", volume.format("Read"), "Volume1"), (400_000 + 400_000 + 100_000) / 3, 3),
        (("HV1", volume.format("Write"), "Volume1"), (8192 + 0 + 8192) / 3, 3),
        (("hv2", disk, "1"), 1000, 1),  # the other sample had no valid value
        (("hv2", r"Network Interface(*)\Bytes Sent/sec", CARD), 10, 2),
    ]:
        assert means.loc[place].tolist() == pytest.approx([value, seconds])
    sums = [r"Hyper-V Hypervisor Logical Processor(_Total)\% Total Run Time"]
    assert table.loc[table["instance"] == "_Total", "counter"].unique().tolist() == sums
    assert not table["counter"].str.contains("Memory").any()


def test_rows_of_read_counters_are_those_of_a_linux_node(tmp_path):
    table = hci.read_counters(campaign(tmp_path, (2, 5)))
    results = hci.read_results(tmp_path / "run").assign(rwmixread=100)
    assert hci.traffic(results, table, CARD)["n"].tolist() == [1]
    rows = table[table["node"] == "HV1"].sort_values(["t_s", "nic"])
    columns = ["t_s", "interval_s", "cpu_pct", "nic", "rx_bytes_per_s", "tx_bytes_per_s"]
    assert rows[columns].to_numpy().tolist()[-3:] == [
        [3, 1, 60, "Hyper-V Virtual Ethernet Adapter", 900, 0],
        [3, 1, 60, CARD, 900, 100],
        [3, 1, 60, f"{CARD} (RDMA)", 7000, 7000],
    ]
    assert len(rows) == 9
    assert rows["core_max_pct"].isna().all()


def test_disks_of_a_real_capture(tmp_path):
    """A real capture: four samples ten seconds apart. One interval lies in the window of 20 s."""
    node = {"name": "GORANS2", "os": "windows", "utc_offset": "+01:00"}
    begin_s = datetime(2020, 12, 29, 17, 34, 30, tzinfo=UTC).timestamp() - START_S
    run = campaign(tmp_path, (begin_s, begin_s + 20), nodes=[node], files=["physicaldisk.csv"])
    [row] = hci.read_perfmon(run).to_dict("records")
    assert (row["node"], row["instance"]) == ("GORANS2", "0 C:")
    assert (row["value"], row["seconds"]) == pytest.approx((223710.647402, 48.369 - 38.338))
    assert hci.read_results(run)["node_cpu_pct"].isna().all(), "it has no counter of CPU"


def test_a_step_that_a_file_does_not_cover_has_no_counters_(tmp_path):
    """HV1's file ends 7 s after START_S, hv2's 6.25 s."""
    run = campaign(tmp_path, (2, 5), (2.2, 2.8), (4, 6.5))
    results = hci.read_results(run)
    assert results["node_cpu_pct"].notna().tolist() == [True, False, False]
    assert ["counters" in codes.split() for codes in results["warnings"]] == [False, True, True]
    assert hci.read_perfmon(run).query("rep == 3")["node"].unique().tolist() == ["HV1"]


def test_a_second_file_covers_what_the_first_does_not(tmp_path):
    run = campaign(tmp_path, (3, 5), nodes=[HV1], files=["hv1.csv"])
    lines = HV1_TEXT.splitlines(keepends=True)
    put(run, "".join(lines[:5]))
    assert hci.read_results(run)["node_cpu_pct"].isna().all()
    (run / "windows" / "second.csv").write_text("".join([lines[0], *lines[3:]]), newline="")
    assert hci.read_results(run)["node_cpu_pct"].tolist() == pytest.approx([(20 + 60) / 2])


def test_a_file_that_comes_later_is_read_in_place_of_what_was_cached(tmp_path, monkeypatch):
    monkeypatch.setattr("hcilib.read.run.steps.RESTLESS_NS", 0)
    run = campaign(tmp_path, (2, 5), files=["hv1.csv"])
    assert hci.read_results(run)["node_cpu_pct"].isna().all()
    shutil.copy(DATA / "hv2.csv", run / "windows")
    assert hci.read_results(run)["node_cpu_pct"].tolist() == pytest.approx([40])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_file_of_powershell_and_a_line_that_was_cut_short(tmp_path, encoding):
    run = campaign(tmp_path, (2, 5), nodes=[HV1], files=["hv1.csv"])
    put(run, HV1_TEXT + '"02/10/2026 10:00:08.000","9', encoding)
    assert hci.read_results(run)["node_cpu_pct"].tolist() == pytest.approx([30])


GERMAN = r"\\HV1\Physikalischer Datenträger(_Total)\Bytes/s"
ZONE = " (W. Europe Standard Time)(-60)"


@pytest.mark.parametrize(
    ("text", "node", "said"),
    [
        (HV1_TEXT.replace(ZONE, ""), {}, "no time zone, and HV1 has no utc_offset"),
        (HV1_TEXT.replace(ZONE, " ("), {}, "no time zone"),
        (HV1_TEXT, {"utc_offset": "+02:00"}, r"adds -60 minutes.*\+02:00 for HV1"),
        (HV1_TEXT, {"name": "node1"}, "host HV1 is no node"),
        (f'"(PDH-CSV 4.0) (Zeit)(-60)","{GERMAN}"\n', {}, "Physikalischer Datenträger"),
        (HV1_TEXT.replace('"60"', '"60,5"'), {}, "60,5"),
        (HV1_TEXT.replace("10:00:04.", "09:00:04."), {}, "10:00:03.000 to 02/10/2026 09:00:04"),
        (HV1_TEXT.replace("10:00:04.", "11:00:04."), {}, "10:00:03.000 to 02/10/2026 11:00:04"),
        (HV1_TEXT.replace("02/10/2026", "10.02.2026"), {}, "time '10.02.2026 10:00:00.000'"),
        (HV1_TEXT.splitlines()[0] + "\n", {}, "no table of numbers"),
        ("".join(HV1_TEXT.splitlines(keepends=True)[:2]), {}, "fewer than two samples"),
        (HV1_TEXT.replace('"60",', '"60","60",'), {}, "Expected 20 columns, got 21"),
        ("node,t_s\n1,2\n", {}, "PDH-CSV"),
    ],
)
def test_what_cannot_be_trusted_is_refused_by_file_and_field(tmp_path, text, node, said):
    run = campaign(tmp_path, (2, 5), nodes=[HV1 | node], files=[])
    put(run, text)
    for reader in (hci.read_results, hci.read_counters, hci.read_perfmon):
        with pytest.raises(ValueError, match=rf"windows/hv1\.csv: .*{said}"):
            reader(run)


ZONES = [("(-330)", "+05:30"), ("(300)", "-05:00"), ("(0)", "+00:00")]


@pytest.mark.parametrize(("header", "ahead"), ZONES)
def test_the_headers_zone_is_what_is_added_to_get_utc(tmp_path, header, ahead):
    shift_s = int(header[1:-1]) * 60 + 3600
    run = campaign(tmp_path, (2 + shift_s, 5 + shift_s), nodes=[HV1], files=["hv1.csv"])
    put(run, HV1_TEXT.replace("(-60)", header))
    of_header = hci.read_perfmon(run)
    put(run, HV1_TEXT.replace(ZONE, ""))
    plan = json.loads((run / "plan.json").read_text())
    plan["testbed"]["nodes"][0]["utc_offset"] = ahead
    (run / "plan.json").write_text(json.dumps(plan))
    pd.testing.assert_frame_equal(hci.read_perfmon(run), of_header)
    assert len(of_header)


EDIT = st.tuples(
    st.floats(0, 1),
    st.integers(0, 40),
    st.one_of(st.sampled_from([b"-1", b",", b"\r\n", b'"', b"\\\\HV1\\"]), st.binary(max_size=4)),
)


@settings(max_examples=examples(200))
@given(st.lists(EDIT, min_size=1, max_size=5))
def test_an_edited_file_is_samples_or_a_refusal_that_names_it(edits):
    content = HV1_TEXT.encode()
    for where, width, value in edits:
        at = int(where * len(content))
        content = content[:at] + value + content[at + width :]
    try:
        logs = read_perfmon_csv(content, "run/windows/hv1.csv", [HV1])
        samples, reasons = of_step(logs, "s", START_S, START_S + 5)
    except ValueError as error:
        if not str(error).startswith("run/windows/hv1.csv: "):
            raise
        return
    assert len(samples) + len(reasons) == 1
    assert all(tuple(as_counters(own)) == COLUMNS for own in samples)
