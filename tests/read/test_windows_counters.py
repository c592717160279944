"""Counters of Windows nodes: lines written by hand (tests/data/windows/README.md); nothing here ran on Windows."""

from __future__ import annotations

import base64
import json
from math import isnan
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcilib.drive.hosts.counters import counters_script
from hcilib.drive.hosts.hosts import powershell
from hcilib.read.nodes.counters import (
    CLASSES,
    COLUMNS,
    MARK,
    VOLUME_COLUMNS,
    WindowsCountersError,
    node_means,
    parse_windows_counters,
)
from tests.needs import examples

DATA = Path(__file__).parents[1] / "data" / "windows"
NODE = (DATA / "node.txt").read_bytes()
CARD = "Mellanox ConnectX-4 Lx Ethernet Adapter _2"
PERF = 10_000_000


def line(**message) -> bytes:
    return f"{MARK}{json.dumps(message)}\r\n".encode()


def nic(ms: int, ticks: int, received: int, sent: int = 0, frequency: int = PERF, name: str = "a") -> bytes:
    return line(ms=ms, nic={name: [ticks, frequency, received, sent]})


def cpu(ticks: int, *run: int) -> bytes:
    return line(ms=ticks, lp={f"Hv LP {i}": [ticks, PERF, r] for i, r in enumerate(run)})


# --- rates -------------------------------------------------------------------------------------------------------


def test_a_row_an_interval_and_physical_card():
    counters, _ = parse_windows_counters((DATA / "node.txt").read_bytes(), "n1")
    assert tuple(counters) == COLUMNS
    assert counters.values.tolist() == [
        ["n1", 1_700_000_001.0, 1.0, 40.0, 100.0, CARD, 1e9, 2e8],
        ["n1", 1_700_000_001.0, 1.0, 40.0, 100.0, f"{CARD} (RDMA)", 3e9, 4e9],
        ["n1", 1_700_000_003.0, 2.0, 25.0, 25.0, CARD, 5e8, 1e8],
        ["n1", 1_700_000_003.0, 2.0, 25.0, 25.0, f"{CARD} (RDMA)", 1e9, 2e9],
    ]
    assert node_means(counters) == {
        "node_cpu_pct": pytest.approx(30.0),
        "net_bytes_per_s": pytest.approx(7e9 / 3),
    }


def test_volumes_and_disks_of_vms_with_a_32_bit_count_that_wraps():
    _, volumes = parse_windows_counters(NODE, "n1")
    assert tuple(volumes) == VOLUME_COLUMNS
    csv, vdisk = (volumes[volumes["kind"] == kind] for kind in ("csv", "virtual disk"))
    assert csv["name"].tolist() == ["Volume1", "Volume1"], "_Total is left out"
    assert csv[["read_iops", "write_iops", "read_bytes_per_s"]].values.tolist() == [
        [1e5, 1e4, 4.096e8],
        [1e5, 1e4, 4.096e8],
    ]
    assert csv["redirected_read_bytes_per_s"].tolist() == [4096.0, 0.0]
    assert csv["redirected_write_bytes_per_s"].tolist() == [0.0, 4096.0]
    assert vdisk["read_iops"].tolist() == [50000.0, 50000.0]
    assert vdisk["redirected_read_bytes_per_s"].isna().all(), "a virtual disk has no such counter"


def test_other_lines_and_the_torn_last_one_are_noise():
    counters, volumes = parse_windows_counters(NODE, "n1")
    noise = counters.attrs["noise"].splitlines()
    assert [n.partition(":")[0] for n in noise] == ["line 1", "line 5", "line 7"]
    assert noise[0].startswith("line 1: Willkommen auf NODE1")
    assert noise[2].startswith(f"line 7: {MARK}")
    assert volumes.attrs == counters.attrs
    assert counters.attrs["missing"] == []


def test_without_the_hyperv_role_cpu_is_missing_and_said():
    counters, volumes = parse_windows_counters((DATA / "no_hyperv.txt").read_bytes(), "f1")
    assert counters[["cpu_pct", "core_max_pct"]].isna().all(axis=None)
    assert counters[["interval_s", "rx_bytes_per_s", "tx_bytes_per_s"]].values.tolist() == [[1.0, 5000.0, 300.0]]
    assert volumes.empty
    said = "\n".join(counters.attrs["missing"])
    assert "Win32_PerfRawData_*_HyperVHypervisorLogicalProcessor: CPU is NaN" in said
    assert len(counters.attrs["missing"]) == 4


def test_cpu_alone_is_a_row_without_a_card():
    counters, _ = parse_windows_counters(cpu(0, 0, 0) + cpu(PERF, PERF, PERF // 2), "n")
    [row] = counters.to_dict("records")
    assert (row["cpu_pct"], row["core_max_pct"]) == (75.0, 100.0)
    assert isnan(row["nic"])
    assert isnan(row["rx_bytes_per_s"])


def test_the_sum_over_processors_is_not_taken_for_one():
    before, after = (
        {"_Total": [t, PERF, 2 * r], "NUMA Node 0 Total": [t, PERF, r], "Hv LP 0": [t, PERF, r]}
        for t, r in ((0, 0), (PERF, PERF // 5))
    )
    counters, _ = parse_windows_counters(line(ms=0, lp=before) + line(ms=1, lp=after), "n")
    assert counters["core_max_pct"].tolist() == [20.0]


def test_the_performance_timer_measures_and_not_the_clock_that_is_set_back():
    counters, _ = parse_windows_counters(nic(9000, 0, 0) + nic(4000, 3 * PERF, 600), "n")
    assert counters[["t_s", "interval_s", "rx_bytes_per_s"]].values.tolist() == [[4.0, 3.0, 200.0]]


@pytest.mark.parametrize(
    ("before", "after", "rate"),
    [
        (2**64 - 10, 5, 15.0),  # wrapped
        (10**12, 10, float("nan")),  # the driver was restarted
        (5, 5, 0.0),
        (None, 5, float("nan")),
        (5, None, float("nan")),
    ],
)
def test_a_counter_that_falls_has_wrapped_or_was_reset(before, after, rate):
    counters, _ = parse_windows_counters(nic(0, 0, before) + nic(1000, PERF, after), "n")
    assert counters["rx_bytes_per_s"].tolist() == [pytest.approx(rate, nan_ok=True)]
    assert counters["tx_bytes_per_s"].tolist() == [0.0]


@pytest.mark.parametrize("second", [nic(1000, 0, 5), nic(1000, PERF, 5, frequency=0), nic(1000, PERF, 5, frequency=3)])
def test_no_time_between_two_samples_is_missing(second):
    counters, _ = parse_windows_counters(nic(0, 0, 0) + second, "n")
    assert counters["rx_bytes_per_s"].isna().all()


def test_nothing_is_subtracted_across_a_restart_of_the_process():
    stream = nic(0, 0, 0) + nic(1, PERF, 7) + line(begin=1, classes={}) + nic(2, 9 * PERF, 70) + nic(3, 10 * PERF, 80)
    counters, _ = parse_windows_counters(stream, "n")
    assert counters["rx_bytes_per_s"].tolist() == [7.0, 10.0]


def test_a_card_that_comes_later_and_one_sample_alone():
    stream = nic(0, 0, 0) + line(ms=1, nic={"a": [PERF, PERF, 1, 0], "b": [PERF, PERF, 9, 0]})
    assert parse_windows_counters(stream, "n")[0]["nic"].tolist() == ["a"]
    counters, volumes = parse_windows_counters(nic(0, 0, 0), "n")
    assert (len(counters), tuple(counters)) == (0, COLUMNS)
    assert (len(volumes), tuple(volumes)) == (0, VOLUME_COLUMNS)


def test_physical_adapters_that_no_counter_names_leave_all_cards_and_say_so():
    stream = line(begin=1, classes={}, physical=["Intel X710"]) + nic(0, 0, 0) + nic(1, PERF, 7)
    counters, _ = parse_windows_counters(stream, "n")
    assert counters["nic"].tolist() == ["a"]
    assert "named like a physical adapter (Intel X710)" in counters.attrs["missing"][-1]


def test_an_error_of_a_class_is_a_gap_and_is_kept():
    stream = nic(0, 0, 0) + line(ms=1, nic={"a": [PERF, PERF, 7, 0]}, errors={"lp": "Zugriff verweigert"})
    counters, _ = parse_windows_counters(stream, "n")
    assert counters.attrs["noise"] == "line 2: lp: Zugriff verweigert"
    assert counters["cpu_pct"].isna().all()


def test_a_byte_order_mark_does_not_hide_the_first_line():
    stream = b"\xef\xbb\xbf" + nic(0, 0, 0) + nic(1, PERF, 7)
    assert parse_windows_counters(stream, "n")[0]["rx_bytes_per_s"].tolist() == [7.0]


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (b"", "it is empty"),
        (b"'powershell.exe' is not recognized\r\n", "begins with .*not recognized.* Is PowerShell on the node"),
        (line(begin=1, classes={}), "ended before its first sample"),
        (MARK.encode() + b'{"ms": 1, "nic": {"a": [1, 2', "begins with 'line 1"),
    ],
)
def test_a_stream_without_a_sample_is_an_error_that_says_what_it_holds(stream, says):
    with pytest.raises(WindowsCountersError, match=says):
        parse_windows_counters(stream, "n")


EDIT = st.tuples(
    st.floats(0, 1),
    st.integers(0, 40),
    st.one_of(st.sampled_from([b"null", b"-1", b"[]", b"1e5", b"\r\n", b'"']), st.binary(max_size=4)),
)


@settings(max_examples=examples(200))
@given(st.lists(EDIT, min_size=1, max_size=5))
def test_a_mutated_stream_is_two_tables_or_a_named_error(edits):
    stream = NODE
    for where, width, value in edits:
        at = int(where * len(stream))
        stream = stream[:at] + value + stream[at + width :]
    try:
        counters, volumes = parse_windows_counters(stream, "n")
    except WindowsCountersError:
        return
    assert (tuple(counters), tuple(volumes)) == (COLUMNS, VOLUME_COLUMNS)


# --- the command (never run: there is no Windows here) -----------------------------------------------------------


def test_the_command_needs_no_quoting_and_fits_a_command_line():
    command = powershell(counters_script(1800))
    assert len(command) < 8191, "characters of a command line in cmd.exe, the default shell of OpenSSH on Windows"
    assert command.startswith("powershell.exe ")
    encoded = command.split()[-1]
    assert base64.b64decode(encoded, validate=True).decode("utf-16-le") == counters_script(1800)


def test_the_script_asks_for_every_class_by_its_unlocalized_name_and_ends_by_itself():
    script = counters_script(90, every_s=0.5)
    for name, (ending, properties) in CLASSES.items():
        assert f"{name}=@('{ending}',@({','.join(repr(p) for p in properties)}))" in script
    assert f"'{MARK}'" in script
    assert "-lt 90000)" in script
    assert "$n*500-" in script
    assert "@WANT@" not in script
    assert script.isascii()
    for opening, closing in ("{}", "()", "[]"):
        assert script.count(opening) == script.count(closing)
    assert "Get-Counter" not in script, "its paths are in the node's language"


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf")])
def test_a_command_without_an_end_is_refused(wrong):
    with pytest.raises(ValueError, match="seconds is"):
        counters_script(wrong)
    with pytest.raises(ValueError, match="every_s is"):
        counters_script(10, wrong)
