"""fio's logs: captures (tests/data/fio/logs) and logs written by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hcilib as hci
from hcilib import read_fio
from hcilib.model.archives import unpacked
from hcilib.model.places import shipped
from hcilib.read.logs.fio_log import FioLogError, read_log, series_from_logs
from hcilib.read.logs.rollup_script import LineError, sample_of
from tests.needs import examples

DATA = unpacked(Path(__file__).parents[1] / "data" / "fio")
LOGS = DATA / "logs"
START = 1_700_000_000_000


def write(folder: Path, name: str, lines) -> Path:
    path = folder / name
    path.write_text("".join(", ".join(map(str, line)) + "\n" for line in lines))
    return path


def seconds(values, start=0, step=1000, ddir=0):
    """Log lines of an averaged log; None leaves the sample out."""
    return [(start + step * (n + 1), v, ddir, 0, 0) for n, v in enumerate(values) if v is not None]


# --- one log


def test_a_client_log_is_read_with_what_its_name_says():
    table = read_log(LOGS / "logs_epoch" / "cell_iops.2.log.127.0.200.1")
    raw = [line.split(", ") for line in (LOGS / "logs_epoch" / "cell_iops.2.log.127.0.200.1").read_text().splitlines()]
    assert table["value"].tolist() == [int(f[1]) for f in raw]
    assert (table["t_s"] * 1000).round().astype("int64").tolist() == [int(f[0]) for f in raw]
    assert table["ddir"].tolist() == [("read", "write")[int(f[2])] for f in raw]
    assert table.attrs == {"kind": "iops", "job": "cell", "number": 2, "host": "127.0.200.1", "epoch": True}


@pytest.mark.parametrize(
    ("name", "kind", "job", "number", "host"),
    [
        ("P_lat.1.log", "lat", "P", 1, "localhost"),
        ("4k-rand_read_clat.12.log.vm-1.example", "clat", "4k-rand_read", 12, "vm-1.example"),
        ("P_bw.log.10.0.0.7", "bw", "P", 1, "10.0.0.7"),
        ("P_slat.3.log.h.zst", "slat", "P", 3, "h"),
        ("P_lat.1.log.zst", "lat", "P", 1, "localhost"),
    ],
)
def test_names(name, kind, job, number, host, tmp_path):
    raw = b"1000, 7, 0, 0, 0\n"
    (tmp_path / name).write_bytes(zstandard.compress(raw) if name.endswith("zst") else raw)
    table = read_log(tmp_path / name)
    assert table.attrs == {"kind": kind, "job": job, "number": number, "host": host, "epoch": False}
    assert table["value"].tolist() == [7 * 1024 if kind == "bw" else 7]


@pytest.mark.parametrize(
    ("line", "columns"),
    [
        ("5, 9, 2", ["t_s", "value", "ddir"]),
        ("5, 9, 2, 4096", ["t_s", "value", "ddir", "bs"]),
        ("5, 9, 2, 4096, 8192", ["t_s", "value", "ddir", "bs", "offset"]),
        ("5, 9, 2, 4096, 8192, 0x0001", ["t_s", "value", "ddir", "bs", "offset", "prio"]),
    ],
)
def test_logs_of_all_versions_by_their_number_of_fields(line, columns, tmp_path):
    path = write(tmp_path, "P_lat.1.log", [[line]])
    table = read_log(path)
    assert list(table.columns) == columns
    assert table.iloc[0]["ddir"] == "trim"


def test_an_empty_log_is_an_empty_table():
    table = read_log(LOGS / "logs_epoch" / "cell_slat.1.log.127.0.200.1")
    assert table.empty
    assert list(table.columns) == ["t_s", "value", "ddir", "bs"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1000, 5, 0, 0, 0\n2000, 5, 0\n", 2),
        ("1000, 5, 0, 0, 0\n2000, x, 0, 0, 0\n3000, 5, 0, 0, 0\n", 2),
        ("1000, 5, 0, 0, 0\n2000, 5, 7, 0, 0\n", 2),
        ("1000, 5, 0, 0, 0\n2000, 5, 0, 0, 0, 0, 0\n", 2),
        ("1000, -5, 0, 0, 0\n", 1),
        ("fio: no such thing, at all, here\n", 1),
    ],
)
def test_a_damaged_log_names_file_and_line(text, line, tmp_path):
    path = tmp_path / "P_iops.1.log"
    path.write_text(text)
    with pytest.raises(FioLogError, match=rf"P_iops\.1\.log: line {line} is"):
        read_log(path)


def line_by_line(raw: bytes) -> list[tuple] | None:
    """What the reference makes of a log, words behind its numbers included; None where it refuses a line."""
    lines = [line for line in raw.split(b"\n") if line.strip()]
    width = lines[0].count(b",") + 1 if lines else 3
    try:
        rows = [
            (*sample_of(line)[: min(width, 5)], *(w.strip().decode() for w in line.split(b",")[5:])) for line in lines
        ]
    except LineError:
        return None
    return rows if 3 <= width <= 7 and {line.count(b",") + 1 for line in lines} <= {width} else None


usual = st.tuples(st.integers(0, 9000), st.integers(0, 10**9), st.integers(0, 2), st.just(4096), st.integers(0, 2**40))
odd = st.sampled_from(
    [b" ", b"  ", b",", b"\r", b"\n", b"-", b"+", b"0x1f", b"x", b"1e3", b"007", b"\t", b'"', b"\xff", b"_1"]
)


@given(
    st.lists(usual, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 200), odd), max_size=2),
    st.integers(3, 7),
)
@example([(1, 2, 0, 4096, 5)], [], 7)
@example([(1, 2, 0, 4096, 5)], [(4, b"0x1f")], 6)
@settings(max_examples=examples(150))
def test_a_log_is_read_or_refused_as_line_by_line(tmp_path, ios, edits, width):
    raw = bytearray("".join(", ".join([*map(str, io), "0x0001", "0"][:width]) + "\n" for io in ios), "ascii")
    for at, insert in edits:
        raw[at % len(raw) : at % len(raw)] = insert
    raw += b"" if raw.endswith(b"\n") else b"\n"
    (tmp_path / "P_lat.1.log").write_bytes(raw)
    expected = line_by_line(bytes(raw))
    if expected is None:
        with pytest.raises(FioLogError, match=r"P_lat\.1\.log: line \d+ is"):
            read_log(tmp_path / "P_lat.1.log")
        return
    table = read_log(tmp_path / "P_lat.1.log")
    table["ddir"] = table["ddir"].map({"read": 0, "write": 1, "trim": 2})
    table["t_s"] = (table["t_s"] * 1000).round().astype("int64")
    assert [tuple(row) for row in table.to_numpy(object)] == expected


def test_a_file_that_is_no_log(tmp_path):
    for name in ("fio.json", "P_clat_hist.1.log", "iops.log"):
        (tmp_path / name).write_text("1, 2, 0\n")
        with pytest.raises(FioLogError, match="not named like a fio log"):
            read_log(tmp_path / name)


# --- captured series


def test_a_healthy_capture_adds_its_jobs_up():
    """Two jobs a VM, each capped at 400 IOPS: 800 a second and host, within fio's burst of a few I/Os."""
    table = series_from_logs(LOGS / "logs_relative")
    assert table["host"].unique().tolist() == ["127.0.200.1", "127.0.200.2"]
    assert table.groupby("host")["t_s"].apply(list).tolist() == [[0, 1, 2], [0, 1, 2]]
    np.testing.assert_allclose(table["iops"], 800, rtol=0.02)
    np.testing.assert_allclose(table["bw_bytes"], 800 * 4096, rtol=0.02)
    assert not table["stalled"].any()
    assert table["lat_ns"].between(1000, 10**9).all()
    assert table.attrs == {"latency": "lat", "epoch_s": None}


def test_a_frozen_vm_is_stalled_and_no_io_is_invented():
    table = series_from_logs(LOGS / "logs_epoch")
    frozen = table[table["host"] == "127.0.200.2"]
    assert frozen.groupby("ddir")["stalled"].sum().tolist() == [2, 2]
    assert (frozen.loc[frozen["stalled"], ["iops", "bw_bytes"]] == 0).all(axis=None)
    assert frozen.loc[frozen["stalled"], "lat_ns"].isna().all()
    assert not table.loc[table["host"] == "127.0.200.1", "stalled"].any()
    hosts = read_fio(DATA / "logs_epoch.json").set_index(["hostname", "ddir"])
    for (host, ddir), logged in table.groupby(["host", "ddir"])["iops"].sum().items():
        missing = hosts.loc[(host, ddir), "total_ios"] - logged
        # fio does not log the last incomplete second; what a VM did around its freeze no sample tells apart
        assert 0 <= missing <= (3.2 if host == "127.0.200.2" else 1.2) * 800, (host, ddir)
    assert (
        abs(table.attrs["epoch_s"] - read_log(LOGS / "logs_epoch" / "cell_iops.1.log.127.0.200.1")["t_s"][0] + 1) < 0.1
    )


# --- series by hand


def test_latency_is_weighted_by_ios_over_the_jobs_of_a_host(tmp_path):
    write(tmp_path, "P_iops.1.log.h", seconds([900, 900]))
    write(tmp_path, "P_iops.2.log.h", seconds([100, 300]))
    write(tmp_path, "P_lat.1.log.h", seconds([1000, 1000]))
    write(tmp_path, "P_lat.2.log.h", seconds([11000, 5000]))
    table = series_from_logs(tmp_path)
    assert table["iops"].tolist() == [1000, 1200]
    assert table["lat_ns"].tolist() == [2000, 2000]
    assert table["bw_bytes"].isna().all()


def test_a_gap_is_zero_io_and_stalled(tmp_path):
    write(tmp_path, "P_iops.1.log.a", seconds([50, None, None, 50, 50]))
    write(tmp_path, "P_iops.1.log.b", seconds([50, 50, 50, 50, 50]))
    write(tmp_path, "P_lat.1.log.a", seconds([9, None, None, 9, 9]))
    write(tmp_path, "P_lat.1.log.b", seconds([9, 9, 9, 9, 9]))
    a = series_from_logs(tmp_path).query("host == 'a'")
    assert a["iops"].tolist() == [50, 0, 0, 50, 50]
    assert a["stalled"].tolist() == [False, True, True, False, False]
    assert a["lat_ns"].isna().tolist() == [False, True, True, False, False]


def test_a_host_dead_to_the_end_is_stalled_to_the_end(tmp_path):
    write(tmp_path, "P_iops.1.log.a", seconds([50, 50, None, None, None]))
    write(tmp_path, "P_lat.1.log.a", seconds([9, 9, None, None, None]))
    write(tmp_path, "P_iops.1.log.b", seconds([50] * 5))
    write(tmp_path, "P_lat.1.log.b", seconds([9] * 5))
    a = series_from_logs(tmp_path).query("host == 'a'")
    assert a["stalled"].tolist() == [False, False, True, True, True]


def test_a_last_second_that_some_jobs_did_not_log_is_left_out(tmp_path):
    """Job 2 ended 2 ms before it would have logged its rate; its latency log shows that it was alive."""
    write(tmp_path, "P_iops.1.log.h", seconds([50, 50, 50]))
    write(tmp_path, "P_iops.2.log.h", seconds([50, 50]))
    write(tmp_path, "P_lat.1.log.h", seconds([9, 9, 9]))
    write(tmp_path, "P_lat.2.log.h", seconds([9, 9, 9]))
    assert series_from_logs(tmp_path)["iops"].tolist() == [100, 100]


def test_a_stall_of_one_job_does_not_stall_its_host(tmp_path):
    write(tmp_path, "P_iops.1.log.h", seconds([50, None, 50]))
    write(tmp_path, "P_iops.2.log.h", seconds([50, 50, 50]))
    table = series_from_logs(tmp_path)
    assert table["iops"].tolist() == [100, 50, 100]
    assert not table["stalled"].any()


@pytest.mark.parametrize("late", [3, 150, 499])
@pytest.mark.parametrize("shifted", [True, False])
def test_a_sample_never_stands_for_the_gap_before_it(late, shifted, tmp_path):
    """The first after five seconds is late, and those behind it keep its rhythm or come back to the old one."""
    after = late if shifted else 0
    times = [1000, 6000 + late, 7000 + after, 8000 + after, 9000 + after]
    write(tmp_path, "P_iops.1.log.h", [(time, 100, 0, 0, 0) for time in times])
    table = series_from_logs(tmp_path, log_avg_msec=1000)
    assert table["iops"].max() <= 150
    assert table["iops"].head(6).tolist() == [100, 0, 0, 0, 0, 100]


@pytest.mark.parametrize("name", ["failure-ceph", "failure-drbd", "stamped-ceph", "stamped-drbd"])
def test_the_series_of_a_failure_sum_to_what_fio_counted(name):
    path = shipped(f"data/samples/box/{name}")
    counted = hci.read_hosts(path).groupby(["step", "vm"], observed=True)["total_ios"].sum()
    series = hci.read_series(path)
    assert series["step"].nunique() == len(hci.read_results(path)) > 2
    for run, logged in series.groupby(["step", "vm"])["iops"].sum().items():
        assert logged == pytest.approx(counted[run], rel=0.03), run


def test_jitter_moves_no_io_between_seconds(tmp_path):
    rng = np.random.default_rng(0)
    late = rng.integers(0, 60, 300)
    times = 1000 * np.arange(1, 301) + late
    spent = np.diff(times, prepend=0)
    write(tmp_path, "P_iops.1.log.h", [(t, round(100 * 1000 / s), 0, 0, 0) for t, s in zip(times, spent, strict=True)])
    table = series_from_logs(tmp_path)
    assert len(table) == 300
    assert not table["stalled"].any()
    np.testing.assert_allclose(table["iops"], 100, atol=1)


@pytest.mark.parametrize("phase", [0, 3, 497, 498, 499, 500, 501, 502, 997, 998, 999])
def test_hosts_are_aligned_on_the_epoch_whatever_their_phase(phase, tmp_path):
    jitter = [0, 3, -3, 2, -2, 1]
    for host, shift in (("a", 0), ("b", 4), ("c", 2000)):
        lines = [(START + phase + shift + 1000 * n + j, 10, 0, 0, 0) for n, j in enumerate(jitter)]
        write(tmp_path, f"P_iops.1.log.{host}", lines)
    table = series_from_logs(tmp_path)
    assert table.groupby("host")["t_s"].apply(list).to_dict() == {
        "a": [0, 1, 2, 3, 4, 5], "b": [0, 1, 2, 3, 4, 5], "c": [2, 3, 4, 5, 6, 7],
    }  # fmt: skip
    assert not table["stalled"].any()
    assert table.attrs["epoch_s"] == pytest.approx((START + phase) / 1000 - 1)


def test_a_late_host_is_not_expected_beyond_the_run(tmp_path):
    write(tmp_path, "P_iops.1.log.a", seconds([10] * 6, start=START))
    write(tmp_path, "P_iops.1.log.b", seconds([None, None, 10, 10, 10, 10], start=START))
    write(tmp_path, "P_lat.1.log.a", seconds([10] * 6, start=START))
    b = series_from_logs(tmp_path).query("host == 'b'")
    assert b["t_s"].tolist() == [2, 3, 4, 5]
    assert not b["stalled"].any()


def test_shorter_intervals_become_seconds(tmp_path):
    write(tmp_path, "P_iops.1.log.h", seconds([100, 200, 300, 400, None, None, 50, 50, 80, 80], step=250))
    write(tmp_path, "P_lat.1.log.h", seconds([40, 20, 10, 10, None, None, 7, 9, 5, 5], step=250))
    table = series_from_logs(tmp_path)
    assert table["t_s"].tolist() == [0, 1]  # the third second has two of four samples
    assert table["iops"].tolist() == [250, 25]
    assert table["lat_ns"].tolist() == [15000 / 1000, 8]


def test_directions_and_sections_stay_apart(tmp_path):
    write(tmp_path, "P_iops.1.log.h", [*seconds([70, 70]), *seconds([30, 30], ddir=1)])
    write(tmp_path, "Q_iops.1.log.h", seconds([5, 5]))
    table = series_from_logs(tmp_path)
    assert table.groupby(["job", "ddir"])["iops"].apply(list).to_dict() == {
        ("P", "read"): [70, 70], ("P", "write"): [30, 30], ("Q", "read"): [5, 5],
    }  # fmt: skip


def test_only_latency_logs_give_latency_alone(tmp_path):
    write(tmp_path, "P_clat.1.log.h", seconds([10, None, 30, 20]))
    table = series_from_logs(tmp_path)
    assert table["iops"].isna().all()
    assert table["stalled"].tolist() == [False, True, False, False]
    assert table["lat_ns"].dropna().tolist() == [10, 30, 20]
    assert table.attrs["latency"] == "clat"


def test_latencies_of_several_jobs_without_their_rates_are_not_averaged(tmp_path):
    write(tmp_path, "P_lat.1.log.h", seconds([10, 10]))
    write(tmp_path, "P_lat.2.log.h", seconds([30, 30]))
    assert series_from_logs(tmp_path)["lat_ns"].isna().all()


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (seconds([5, 5, 5], step=2000), "does not divide a second"),
        (seconds([5, 5, 5], step=300), "does not divide a second"),
    ],
)
def test_logs_that_give_no_seconds_are_refused(lines, says, tmp_path):
    write(tmp_path, "P_iops.1.log.h", lines)
    with pytest.raises(FioLogError, match=says):
        series_from_logs(tmp_path)


def test_single_ios_among_averages_are_refused(tmp_path):
    write(tmp_path, "P_iops.1.log.h", seconds([5, 5, 5]))
    write(tmp_path, "P_lat.1.log.h", [(1, 1, 0, 4096, 0)])
    with pytest.raises(FioLogError, match="some logs hold single I/Os and some averages"):
        series_from_logs(tmp_path)


def test_single_ios_are_counted_and_their_last_second_is_left_out(tmp_path):
    ios = [(t, 1000 + t % 2, t // 500 % 2, 4096 * (1 + t % 2), 0) for t in (*range(0, 1000), *range(3000, 4400))]
    write(tmp_path, "P_lat.1.log.h", ios)
    write(tmp_path, "P_iops.1.log.h", [(t, 1, ddir, bs, 0) for t, _, ddir, bs, _ in ios])
    table = series_from_logs(tmp_path).set_index(["ddir", "t_s"])
    assert table.loc["read", "iops"].to_dict() == {0: 500, 1: 0, 2: 0, 3: 500}
    assert table.loc["write", "stalled"].to_dict() == {0: False, 1: True, 2: True, 3: False}
    assert table.loc[("read", 0), "bw_bytes"] == 500 * 1.5 * 4096
    assert table.loc[("read", 0), "lat_ns"] == 1000.5
    assert np.isnan(table.loc[("read", 1), "lat_ns"])
    assert table.attrs == {"latency": "lat", "epoch_s": None}


def test_single_ios_on_the_clock_of_1970_lose_their_first_second_too(tmp_path):
    write(tmp_path, "P_clat.1.log.h", [(START + 700 + t, 9, 0, 512, 0) for t in range(0, 3000)])
    table = series_from_logs(tmp_path)
    assert table["t_s"].tolist() == [1, 2]
    assert table["iops"].tolist() == [1000, 1000]
    assert table.attrs == {"latency": "clat", "epoch_s": START // 1000}


def test_a_last_line_without_its_end_may_still_be_written_and_is_not_counted(tmp_path):
    path = tmp_path / "P_iops.1.log"
    path.write_text("1000, 5, 0, 0, 0\n2000, 5, 0, 0, 0\n3000, 5")
    table = read_log(path)
    assert table["t_s"].tolist() == [1, 2]
    assert table.attrs["torn"] is True


def test_a_device_too_slow_to_show_the_interval(tmp_path):
    write(tmp_path, "P_iops.1.log.h", seconds([5, None, None, 5, None, 5]))
    with pytest.raises(FioLogError, match="pass log_avg_msec="):
        series_from_logs(tmp_path)
    assert series_from_logs(tmp_path, log_avg_msec=1000)["iops"].tolist() == [5, 0, 0, 5, 0, 5]
    with pytest.raises(FioLogError, match="does not divide"):
        series_from_logs(tmp_path, log_avg_msec=300)


def test_two_clocks_are_refused(tmp_path):
    write(tmp_path, "P_iops.1.log.a", seconds([5, 5]))
    write(tmp_path, "P_iops.1.log.b", seconds([5, 5], start=START))
    with pytest.raises(FioLogError, match="log_unix_epoch"):
        series_from_logs(tmp_path)


def test_nothing_logged_is_an_empty_series(tmp_path):
    (tmp_path / "P_iops.1.log.h").write_text("")
    for folder in (tmp_path, tmp_path / "absent"):
        table = series_from_logs(folder)
        assert table.empty
        assert list(table.columns) == ["host", "job", "ddir", "t_s", "iops", "bw_bytes", "lat_ns", "stalled"]


def test_compressed_logs_and_other_files_in_the_folder(tmp_path):
    plain, packed = LOGS / "logs_epoch", tmp_path / "packed"
    packed.mkdir()
    for log in plain.iterdir():
        (packed / f"{log.name}.zst").write_bytes(zstandard.compress(log.read_bytes()))
    shutil.copy(DATA / "healthy.json", packed / "fio_log.log.json")
    pd.testing.assert_frame_equal(series_from_logs(packed), series_from_logs(plain))


def test_a_time_with_a_wrong_digit_is_refused(tmp_path):
    """A row for each second of thirty years took all memory."""
    write(tmp_path, "P_iops.1.log.h", seconds([50, 50], start=START))
    write(tmp_path, "P_iops.2.log.h", seconds([50, 50], start=START + 10**12))
    with pytest.raises(FioLogError, match="span"):
        series_from_logs(tmp_path)
