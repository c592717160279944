"""fio's logs: captures, public cases, logs of a real fio beside its JSON, and logs by hand."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zstandard

import hcilib as hci
from hcilib import log_series, read_rollup
from hcilib.model.archives import unpacked
from hcilib.model.compressed import read_bytes
from hcilib.model.places import shipped
from hcilib.read.logs.rollup import FioLogError
from hcilib.read.logs.series import io_gaps, series
from tests.needs import need

DATA = unpacked(Path(__file__).parents[1] / "data" / "fio")
CASES = Path(__file__).parents[1] / "data" / "cases"
LOGS = DATA / "logs"
START = 1_700_000_000_000
JOB = """[P]
ioengine=psync
filename=disk
size=1m
rw=randrw
bs=4k
time_based=1
runtime=2500ms
numjobs=2
rate_iops=900,300
lat_percentiles=1
write_lat_log=P
write_iops_log=P
write_hist_log=P
log_hist_msec=500
"""


def write(folder: Path, name: str, lines) -> Path:
    path = folder / name
    path.write_text("".join(", ".join(map(str, line)) + "\n" for line in lines))
    return path


def averages(values: Sequence[int | None], start=0, step=1000, ddir=0, behind=(0, 0)):
    """Lines as log_avg_msec makes them; None leaves the sample out."""
    times = range(start + step, start + step * (len(values) + 1), step)
    return [(t, v, ddir, *behind) for t, v in zip(times, values, strict=True) if v is not None]


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Path:
    """Logs of single I/Os and histograms of a real fio, and its JSON."""
    need("fio")
    folder = tmp_path_factory.mktemp("real")
    (folder / "job.fio").write_text(JOB)
    argv = ["fio", "job.fio", "--output-format=json+", "--output=fio.json"]
    subprocess.run(argv, cwd=folder, check=True, timeout=60, stdout=subprocess.DEVNULL)
    return folder


# --- public cases


@pytest.mark.parametrize(
    ("case", "ddir", "t_s", "column", "values"),
    [
        ("c09_per_job_logs_0", "write", [0, 1, 2], "iops", [8, 4, 3]),
        ("c12_avg_200ms", "read", [0, 1, 2, 3, 4], "iops", [10] * 5),
        ("c14_shifted", "read", range(9), "stalled", [False] * 9),
        ("c14_shifted", "write", range(1, 10), "stalled", [False] * 9),
        ("c15_all_ones", "read", [0, 1, 2], "iops", [3, 3, 4]),
        ("c16_avg_25s", "read", [0, 25], "iops", [360_844, 358_560]),
        ("n02_log_prio", "read", [0, 1], "iops", [400, 400]),
        ("n03_log_issue", "read", [0], "iops", [400]),
        ("n03_log_issue", "read", [0], "lat_ns", [135_271]),
    ],
)
def test_a_public_log_is_read(case, ddir, t_s, column, values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = log_series(CASES / case)
    rows = table[table["ddir"] == ddir].head(len(values))
    assert rows["t_s"].tolist() == list(t_s)
    np.testing.assert_allclose(rows[column].astype(float), np.array(values, float), rtol=1e-5)
    assert table.attrs["left_out"] == []


@pytest.mark.parametrize(("case", "names"), [("c11_avg_10ms", "whole second"), ("c13_same_time", "per_job_logs=1")])
def test_a_public_log_that_gives_no_series_is_refused_by_its_remedy(case, names):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = log_series(CASES / case)
    assert table.empty
    [(_, why)] = table.attrs["left_out"]
    assert names in why


# --- layouts


@pytest.mark.parametrize(
    "line",
    [
        "{t}, {v}, {d}",
        "{t}, {v}, {d}, 0",
        "{t}, {v}, {d}, 0, 0",
        "{t}, {v}, {d}, 0, 0x0004",
        "{t}, {v}, {d}, 0, 4096, 0x0004",
        "{t}, {v}, {d}, 0, 4096, 0, 17",
        "{t}, {v}, 9000, {d}, 0, 0",
        "{t}, {v}, 9000, {d}, 0, 4096, 0x0004",
        "{t}, {v}, 9000, {d}, 0, 4096, 0, 17",
    ],
)
def test_every_layout_gives_time_value_and_direction(line, tmp_path):
    times = [(t, ddir) for t in (1000, 2000, 3000) for ddir in (0, 1)]
    lines = [line.format(t=t, v=70 if ddir == 0 else 30, d=ddir) for t, ddir in times]
    (tmp_path / "P_iops.1.log").write_text("\n".join(lines) + "\n")
    table = log_series(tmp_path)
    assert table.groupby("ddir")["iops"].apply(list).to_dict() == {
        "read": [70] * 3,
        "write": [30] * 3,
    }
    counted = read_rollup(tmp_path).groupby("ddir", observed=True)["sum"].sum()
    assert counted.to_dict() == {"read": 210, "write": 90}


def test_a_maximum_that_may_be_a_direction_is_refused(tmp_path):
    write(tmp_path, "P_iops.1.log", [(t, 2, 2, 0, 0, 0) for t in (1000, 2000, 3000)])
    with pytest.raises(FioLogError, match="log_window_value"):
        read_rollup(tmp_path)
    write(tmp_path, "P_iops.1.log", [(t, 1, 1, 4096, 0, 0) for t in (1, 2, 1003)])
    assert read_rollup(tmp_path)["ddir"].unique().tolist() == ["write"]


@pytest.mark.parametrize("step", [10, 20, 50, 100, 125, 250, 300, 500, 1000, 1500, 2000, 7000, 60_000])
def test_any_interval_gives_the_rate(step, tmp_path):
    write(tmp_path, "P_iops.1.log", averages([100] * max(8, 8000 // step), step=step))
    table = log_series(tmp_path)
    row_s = -(-step // 1000)
    assert table["t_s"].tolist() == list(range(0, row_s * len(table), row_s))
    assert len(table) >= 4
    np.testing.assert_allclose(table["iops"], 100)


def test_a_step_across_two_rows_is_shared_out(tmp_path):
    write(tmp_path, "P_iops.1.log", averages([100, 100, 0, 100, 100, 100], step=1500))
    assert log_series(tmp_path)["iops"].tolist() == [100, 50, 75, 100]


def test_jobs_that_share_a_file_are_added_up(tmp_path):
    write(tmp_path, "P_iops.log", [*averages([50, 60, 70]), *averages([5, 6, 7])])
    write(tmp_path, "P_lat.log", [*averages([10] * 3), *averages([120] * 3)])
    table = log_series(tmp_path)
    assert table["iops"].tolist() == [55, 66, 77]
    np.testing.assert_allclose(table["lat_ns"], 20)


@pytest.mark.parametrize(
    ("name", "run", "host"),
    [
        ("P_iops.1.log", "P", "localhost"),
        ("4k-rand_read_iops.12.log.vm-1.example", "4k-rand_read", "vm-1.example"),
        ("P_iops.log.10.0.0.7", "P", "10.0.0.7"),
        ("P_iops.3.log.h.zst", "P", "h"),
        ("P_iops.1.log.gz", "P", "localhost"),
    ],
)
def test_names_and_packing(name, run, host, tmp_path):
    raw = "".join(f"{t}, 7, 0, 0, 0\n" for t in (1000, 2000)).encode()
    pack = {"zst": zstandard.compress, ".gz": gzip.compress}.get(name[-3:], bytes)
    (tmp_path / name).write_bytes(pack(raw))
    (tmp_path / "fio_log.log.json").write_text("{}")
    table = log_series(tmp_path)
    assert table[["run", "host", "iops"]].to_numpy().tolist() == [[run, host, 7]] * 2
    assert read_rollup(tmp_path)["host"].unique().tolist() == [host]


def test_a_broken_log_of_a_kind_that_is_not_needed_costs_nothing(tmp_path):
    write(tmp_path, "P_iops.1.log", averages([100, 100, 100]))
    write(tmp_path, "P_lat.1.log", averages([9, 9, 9]))
    (tmp_path / "P_slat.1.log").write_text("no log\n")
    table = log_series(tmp_path)
    assert table[["iops", "lat_ns"]].to_numpy().tolist() == [[100, 9]] * 3
    (tmp_path / "P_lat.1.log").write_text("1000, many, 0, 0, 0\n")
    table = log_series(tmp_path)
    assert table["iops"].tolist() == [100] * 3
    assert table["lat_ns"].isna().all()
    assert {run for run, why in table.attrs["left_out"] if "P_lat" in why} == {"P"}


DAMAGED = [
    ("P_lat.1.log", "1000, 5, 7, 0, 0", True),
    ("P_lat.1.log", "1000, 5, 0", True),
    ("P_lat.1.log", "1000, -5, 0, 0, 0", True),
    ("P_lat.1.log", "1000, x, 0, 0, 0", True),
    ("P_lat.1.log", f"1000, {2**45}, 0, 0, 0", True),
    ("P_lat.1.log", "7" * 200_000, False),
    ("P_clat_hist.1.log", "1000, 5, 0, 0, 0", False),
]


@pytest.mark.parametrize(("name", "line", "places"), DAMAGED)
def test_a_damaged_line_is_named_wherever_it_is(name, line, places, tmp_path):
    good = 250_000 if places else 1
    path = write(tmp_path, name, [(t, 5, 0, 512, 0) for t in range(good)])
    with path.open("a") as file:
        file.write(f"{line}\n7, 5, 0, 512, 0\n")
    with pytest.raises(FioLogError) as error:
        read_rollup(path)
    assert str(path) in str(error.value)
    assert f"line {good + 1}" in str(error.value) or not places


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.999])
@pytest.mark.parametrize(("suffix", "pack"), [("zst", zstandard.compress), ("gz", gzip.compress)])
def test_a_cut_packed_log_is_named(keep, suffix, pack, tmp_path):
    packed = pack(b"".join(b"%d, %d, 0, 4096, 0\n" % (t, t * t % 997) for t in range(20_000)))
    path = tmp_path / f"P_lat.1.log.{suffix}"
    path.write_bytes(packed[: int(keep * len(packed))])
    with pytest.raises(FioLogError) as error:
        read_rollup(path)
    assert str(path) in str(error.value)


def test_a_last_line_without_its_end_is_not_counted(tmp_path):
    path = write(tmp_path, "P_iops.1.log", averages([5, 5, 5]))
    path.write_text(path.read_text() + "4000, 5")
    assert log_series(tmp_path)["iops"].tolist() == [5] * 3
    table = read_rollup(tmp_path)
    assert (table["count"].sum(), table.attrs["torn"]) == (3, [str(path)])


@pytest.mark.parametrize("name", ["fio.json", "iops.log", "P_lat.1.log"])
def test_what_is_no_log_is_refused(name, tmp_path):
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(FioLogError) as error:
            read_rollup(path)
        assert str(path) in str(error.value)


def test_empty_logs_are_empty_tables(tmp_path):
    (tmp_path / "P_slat.1.log").write_text("")
    assert read_rollup(tmp_path).empty
    assert log_series(tmp_path).empty


# --- series


def test_a_healthy_capture_adds_its_jobs_up():
    """Two jobs a VM, each capped at 400 IOPS: 800 a second and host, within fio's burst."""
    table = log_series(LOGS / "logs_relative")
    hosts = table.groupby("host")["t_s"].apply(list).to_dict()
    assert hosts == {"127.0.200.1": [0, 1, 2], "127.0.200.2": [0, 1, 2]}
    np.testing.assert_allclose(table["iops"], 800, rtol=0.02)
    np.testing.assert_allclose(table["bw_bytes"], 800 * 4096, rtol=0.02)
    assert not table["stalled"].any()
    assert table["lat_ns"].between(1000, 10**9).all()


def test_a_frozen_vm_is_stalled():
    table = log_series(LOGS / "logs_epoch")
    frozen = table[table["host"] == "127.0.200.2"]
    assert frozen.groupby("ddir")["stalled"].sum().tolist() == [2, 2]
    assert (frozen.loc[frozen["stalled"], ["iops", "bw_bytes"]] == 0).all(axis=None)
    assert frozen.loc[frozen["stalled"], "lat_ns"].isna().all()
    assert not table.loc[table["host"] == "127.0.200.1", "stalled"].any()


BOX = [file.name[: -len(".tar.zst")] for file in shipped("data/samples/box").glob("*.tar.zst")]


@pytest.mark.parametrize("name", sorted(BOX))
def test_committed_logs_sum_to_what_fio_counted(name):
    """Over the seconds that they cover: fio does not log the last interval, and a run of seconds
    is no steady one."""
    path = shipped(f"data/samples/box/{name}")
    series = hci.read_series(path)
    fio = hci.read_hosts(path).query("runtime >= 15_000").groupby(["step", "vm"], observed=True)
    counted = fio.agg({"total_ios": "sum", "runtime": "max"}) if len(series) else pd.DataFrame()
    for run, (total_ios, runtime_ms) in counted.iterrows():
        own = series[(series["step"] == run[0]) & (series["vm"] == run[1])]
        share = min(1, 1000 * own["t_s"].nunique() / runtime_ms)
        assert share * 0.97 <= own["iops"].sum() / total_ios <= 1.03, run


def test_latency_is_weighted_by_ios_over_the_jobs_of_a_host(tmp_path):
    write(tmp_path, "P_iops.1.log.h", averages([900, 900]))
    write(tmp_path, "P_iops.2.log.h", averages([100, 300]))
    write(tmp_path, "P_lat.1.log.h", averages([1000, 1000]))
    write(tmp_path, "P_lat.2.log.h", averages([11000, 5000]))
    table = log_series(tmp_path)
    assert table[["iops", "lat_ns"]].to_numpy().tolist() == [[1000, 2000], [1200, 2000]]
    assert table["bw_bytes"].isna().all()
    write(tmp_path, "P_lat.2.log.h", averages([11000, None]))
    assert log_series(tmp_path)["lat_ns"].tolist() == [2000, 1000], "of those that have one"
    for log in tmp_path.glob("*_iops*"):
        log.unlink()
    assert log_series(tmp_path)["lat_ns"].isna().all(), "without their rates"


@pytest.mark.parametrize(
    ("logs", "iops", "stalled"),
    [
        ({"1": [50, None, None, 50, 50], "1.log.b": [50] * 5}, [50, 0, 0, 50, 50], [1, 2]),
        ({"1": [50, 50, None, None, None], "1.log.b": [50] * 5}, [50, 50, 0, 0, 0], [2, 3, 4]),
        ({"1": [50, None, 50], "2": [50, 50, 50]}, [100, 50, 100], []),
        ({"1": [50, 50, 50], "2": [50, 50]}, [100, 100], []),
    ],
    ids=["gap", "dead to the end", "one job of two", "ended a moment before"],
)
def test_a_second_without_samples_is_zero_io(logs, iops, stalled, tmp_path):
    for kind in ("iops", "lat"):
        for number, values in logs.items():
            alive = kind == "lat" and number == "2" and len(values) == 2
            name = f"P_{kind}.{number}" + ("" if "log" in number else ".log")
            write(tmp_path, name, averages([*values, 50] if alive else values))
    table = log_series(tmp_path).query("host == 'localhost'")
    assert table["iops"].tolist() == iops
    assert table.loc[table["stalled"], "t_s"].tolist() == stalled
    assert table["lat_ns"].isna().tolist() == table["stalled"].tolist()


@pytest.mark.parametrize("late", [3, 150, 499])
@pytest.mark.parametrize("shifted", [True, False])
def test_a_sample_never_stands_for_the_gap_before_it(late, shifted, tmp_path):
    """The first after five seconds is late. Those behind it keep its rhythm or the old one."""
    after = late if shifted else 0
    times = [1000, 6000 + late, 7000 + after, 8000 + after, 9000 + after]
    log = write(tmp_path, "P_iops.1.log.h", [(time, 100, 0, 0, 0) for time in times])
    table = series([log], every_ms=1000).table
    assert table["iops"].max() <= 150
    assert table["iops"].head(6).tolist() == [100, 0, 0, 0, 0, 100]


def test_jitter_moves_no_io_between_seconds(tmp_path):
    late = np.random.default_rng(0).integers(0, 60, 300)
    times = 1000 * np.arange(1, 301) + late
    spent = np.diff(times, prepend=0)
    lines = [(t, round(100_000 / s), 0, 0, 0) for t, s in zip(times, spent, strict=True)]
    write(tmp_path, "P_iops.1.log.h", lines)
    table = log_series(tmp_path)
    assert (len(table), table["stalled"].any()) == (300, False)
    np.testing.assert_allclose(table["iops"], 100, atol=1)


@pytest.mark.parametrize("phase", [0, 3, 498, 500, 502, 999])
def test_hosts_are_aligned_on_the_epoch_whatever_their_phase(phase, tmp_path):
    for host, shift in (("a", 0), ("b", 4), ("c", 2000)):
        begin = START + phase + shift
        jitter = enumerate([0, 3, -3, 2, -2, 1])
        lines = [(begin + 1000 * n + late, 10, 0, 0, 0) for n, late in jitter]
        write(tmp_path, f"P_iops.1.log.{host}", lines)
    table, epoch_s, _ = series(list(tmp_path.iterdir()))
    assert table.groupby("host")["t_s"].apply(list).to_dict() == {
        "a": [0, 1, 2, 3, 4, 5],
        "b": [0, 1, 2, 3, 4, 5],
        "c": [2, 3, 4, 5, 6, 7],
    }
    assert not table["stalled"].any()
    assert epoch_s == pytest.approx((START + phase) / 1000 - 1)


def test_shorter_intervals_become_seconds(tmp_path):
    rates = [100, 200, 300, 400, None, None, 50, 50, 80, 80]
    write(tmp_path, "P_iops.1.log.h", averages(rates, step=250))
    write(tmp_path, "P_lat.1.log.h", averages([40, 20, 10, 10, None, None, 7, 9, 5, 5], step=250))
    table = log_series(tmp_path)
    assert table["t_s"].tolist() == [0, 1], "the third second has two of four samples"
    assert table[["iops", "lat_ns"]].to_numpy().tolist() == [[250, 15], [25, 8]]


def test_sections_are_runs_of_their_own(tmp_path):
    write(tmp_path, "P_iops.1.log.h", [*averages([70, 70]), *averages([30, 30], 2000, ddir=1)])
    write(tmp_path, "Q_bw.1.log.h", averages([5, 5]))
    table = log_series(tmp_path)
    assert set(zip(table["run"], table["ddir"], strict=True)) == {
        ("P", "read"),
        ("P", "write"),
        ("Q", "read"),
    }
    assert table.query("run == 'Q'")["bw_bytes"].tolist() == [5 * 1024] * 2
    assert read_rollup(tmp_path, "bw")["sum"].tolist() == [5 * 1024] * 2


def test_a_direction_that_is_logged_a_step_apart_is_no_outage(tmp_path):
    for kind in ("iops", "lat"):
        lines = [*averages([70] * 5), *averages([30] * 5, 1000, ddir=1)]
        write(tmp_path, f"P_{kind}.1.log", sorted(lines))
    table = log_series(tmp_path)
    assert not table["stalled"].any()
    assert table.groupby("ddir")["t_s"].apply(list).to_dict() == {
        "read": [0, 1, 2, 3, 4],
        "write": [1, 2, 3, 4, 5],
    }


REFUSED = {
    "two clocks": {"P_iops.1.log.a": averages([5, 5]), "P_iops.1.log.b": averages([5], START)},
    "a time with a wrong digit": {
        "P_iops.1.log.h": averages([5, 5], START),
        "P_iops.2.log.h": averages([5, 5], START + 10**12),
    },
    "single I/Os among averages": {
        "P_iops.1.log.h": averages([5, 5, 5]),
        "P_lat.1.log.h": [(1, 1, 0, 4096, 0)],
    },
    "too slow to show the interval": {"P_iops.1.log": averages([5, None, None, 5, None, 5])},
    "rarer than a minute": {"P_iops.1.log": averages([5] * 4, step=90_000)},
}


@pytest.mark.parametrize("logs", REFUSED.values(), ids=REFUSED)
def test_logs_that_give_no_seconds_are_refused(logs, tmp_path):
    for name, lines in logs.items():
        write(tmp_path, name, lines)
    table = log_series(tmp_path)
    assert table.empty
    [(run, why)] = table.attrs["left_out"]
    assert run == "P"
    assert str(tmp_path) in why


def test_the_interval_of_the_job_file_counts(tmp_path):
    log = write(tmp_path, "P_iops.1.log.h", averages([5, None, None, 5, None, 5]))
    assert series([log], every_ms=1000).table["iops"].tolist() == [5, 0, 0, 5, 0, 5]


def test_single_ios_are_counted_and_their_last_second_is_left_out(tmp_path):
    times = (*range(0, 1000), *range(3000, 4400))
    ios = [(t, 1000 + t % 2, t // 500 % 2, 4096 * (1 + t % 2), 0) for t in times]
    write(tmp_path, "P_lat.1.log.h", ios)
    write(tmp_path, "P_iops.1.log.h", [(t, 1, ddir, bs, 0) for t, _, ddir, bs, _ in ios])
    table = log_series(tmp_path).set_index(["ddir", "t_s"])
    assert table.loc["read", "iops"].to_dict() == {0: 500, 1: 0, 2: 0, 3: 500}
    assert table.loc["write", "stalled"].to_dict() == {0: False, 1: True, 2: True, 3: False}
    first = table.loc[("read", 0), ["bw_bytes", "lat_ns"]]
    assert first.tolist() == [500 * 1.5 * 4096, 1000.5]
    assert np.isnan(table.loc[("read", 1), "lat_ns"])


def test_single_ios_on_the_clock_of_1970_lose_their_first_second_too(tmp_path):
    log = write(tmp_path, "P_clat.1.log.h", [(START + 700 + t, 9, 0, 512, 0) for t in range(3000)])
    table, epoch_s, _ = series([log])
    assert table[["t_s", "iops"]].to_numpy().tolist() == [[1, 1000], [2, 1000]]
    assert epoch_s == START // 1000


def test_a_real_run_beside_its_result(tmp_path):
    need("fio")
    place = tmp_path / "oak_4k-randread_qd1_r1.json"
    argv = ["fio", "--name=j", "--rw=randread", "--bs=4k", "--ioengine=null", "--size=1g", "--thinktime=1ms",
            "--time_based", "--runtime=2s", "--write_iops_log=oak_r1", "--write_lat_log=oak_r1", "--log_avg_msec=500",
            "--output-format=json", f"--output={place.name}"]  # fmt: skip
    subprocess.run(argv, check=True, cwd=tmp_path)
    table = log_series(f"{tmp_path}/*.json")
    names = "{system}_{pattern}_qd{iodepth}_r{rep}.json"
    [result] = hci.read_results(tmp_path, names=names).to_dict("records")
    logged = pd.read_csv(tmp_path / "oak_r1_iops.1.log", header=None)[1]
    assert table["run"].unique().tolist() == ["oak_r1"]
    assert table["iops"].between(0.99 * logged.min(), 1.01 * logged.max()).all()
    assert table["iops"].sum() <= result["iops"] * result["runtime_s"] * 1.03
    assert table["lat_ns"].notna().all()


# --- rollup


def test_it_is_the_histogram_that_fio_itself_kept(real):
    table = read_rollup(real, "lat")
    assert not table["averaged"].any()
    jobs = json.loads((real / "fio.json").read_text())["jobs"]
    for ddir in ("read", "write"):
        own = pd.Series(dtype="int64")
        for job in jobs:
            bins = {int(k): v for k, v in job[ddir]["lat_ns"]["bins"].items()}
            own = own.add(pd.Series(bins), fill_value=0)
        rows = table[(table["ddir"] == ddir) & ~table["stalled"]]
        assert rows.groupby("lat_ns")["count"].sum().to_dict() == own.to_dict()
        mean = sum(j[ddir]["lat_ns"]["mean"] * j[ddir]["total_ios"] for j in jobs) / own.sum()
        assert rows["sum"].sum() / own.sum() == pytest.approx(mean, rel=1e-9)
        assert rows["bytes"].sum() == sum(j[ddir]["io_bytes"] for j in jobs)


def test_order_and_packing_of_files_change_nothing(real, tmp_path):
    table = read_rollup(real)
    for log in real.glob("*.log"):
        (tmp_path / f"{log.name}.zst").write_bytes(zstandard.compress(log.read_bytes()))
    for other in (sorted(real.glob("*.log"))[::-1], tmp_path):
        pd.testing.assert_frame_equal(read_rollup(other), table)


def test_percentiles_come_last_by_second_too(real):
    by_second = hci.percentiles(read_rollup(real, "clat"), by=["ddir", "t_s"])
    logs = [pd.read_csv(p, header=None, skipinitialspace=True) for p in real.glob("P_clat.?.log")]
    raw = pd.concat(logs)
    groups = raw.groupby([2, raw[0] // 1000])[1]
    assert by_second["n"].tolist() == groups.size().tolist()
    for name, q in (("p50_ns", 0.5), ("p99_ns", 0.99)):
        exact = [np.quantile(group, q, method="inverted_cdf") for _, group in groups]
        np.testing.assert_allclose(by_second[name], exact, rtol=1 / 128)


def test_histogram_logs_are_the_single_ios_without_the_last_interval(real):
    table = read_rollup(real)
    kinds = (table[table["log"] == log] for log in ("clat", "clat_hist"))
    ios, hist = (own.groupby("lat_ns")["count"].sum() for own in kinds)
    assert (hist <= ios.reindex(hist.index)).all()
    assert 0.6 * ios.sum() < hist.sum() < ios.sum()


def test_histograms_that_fio_s_server_sent_are_refused_and_ordinary_ones_are_not(real, tmp_path):
    """Of 6,001 I/Os at 1,000 a second its eleven lines hold 18,066."""
    [served] = (DATA / "served").iterdir()
    with pytest.raises(FioLogError, match="per-host") as error:
        read_rollup(served)
    assert str(served) in str(error.value)
    lines = [[int(n) for n in line.split(b",")] for line in read_bytes(served).splitlines()]
    before = [[0] * len(lines[0])] * 2 + lines
    true = [
        [*line[:3], *(n - last for n, last in zip(line[3:], earlier[3:], strict=True))]
        for line, earlier in zip(lines, before, strict=False)
    ]
    mended = write(tmp_path, "P_clat_hist.1.log.127.0.0.1", true)
    assert read_rollup(mended)["count"].sum() == 5511
    for log in real.glob("*_clat_hist.*"):
        copy = Path(shutil.copy(log, tmp_path / f"{log.name}.127.0.0.1"))
        assert read_rollup(copy)["count"].sum() == read_rollup(log)["count"].sum()


@pytest.mark.parametrize(("coarseness", "bucket"), [(0, 3), (1, 7), (5, 112)])
def test_a_coarse_histogram_stands_for_the_middle_of_its_buckets(coarseness, bucket, tmp_path):
    counts = np.zeros(1856 >> coarseness, int)
    counts[3] = 7
    write(tmp_path, "P_clat_hist.1.log", [(1000, 1, 4096, *counts)])
    table = read_rollup(tmp_path)
    assert table[["bucket", "lat_ns", "count", "bytes"]].to_numpy().tolist() == [[bucket, bucket, 7, 7 * 4096]]


def test_averages_and_several_kinds_have_no_percentiles(real):
    table = read_rollup(LOGS / "logs_epoch")
    assert table.loc[~table["stalled"], "averaged"].all()
    with pytest.raises(ValueError, match="log_avg_msec"):
        hci.percentiles(table[table["log"] == "lat"])
    with pytest.raises(ValueError, match="log"):
        hci.percentiles(read_rollup(real, ("lat", "clat")))


def test_a_run_directory_gives_the_rollups_of_its_steps(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(hci.samples()["lab-single"], run)
    assert read_rollup(run).attrs == {"epoch_s": None, "torn": [], "every_ms": 0}
    torn, steps = [], sorted((run / "steps").iterdir())[:2]
    for step, every_ms in zip(steps, (1000, 500), strict=True):
        [host] = json.loads((step / "step.json").read_text())["hosts"][:1]
        (step / "logs").mkdir(exist_ok=True)
        lines = [(START + t, 1000, 0, 4096, 0) for t in range(1000, 9000, every_ms)]
        file = write(step / "logs", f"P_lat.1.log.{host['hostname']}", lines)
        file.write_text(file.read_text() + "9999, 5")
        torn.append(str(file))
    alone = [read_rollup(Path(file).parent) for file in torn]
    table = read_rollup(run)
    assert table["step"].unique().tolist() == [step.name for step in steps]
    assert table["vm"].unique().tolist() == [host["vm"]]
    assert hci.percentiles(table, by=["step"])["n"].tolist() == [8, 16]
    assert table.attrs == alone[0].attrs | {"torn": sorted(torn)}


def test_seconds_without_io_are_zero_io_and_marked(tmp_path):
    write(tmp_path, "P_lat.1.log.a", [(t, 100, 0, 4096, 0) for t in (0, 900, 3100, 5200)])
    lines = [(t, 100, t // 1000 % 2, 4096, 0) for t in range(0, 6000, 500)]
    write(tmp_path, "P_lat.1.log.b", lines)
    write(tmp_path, "P_lat.1.log.c", [(t, 100, 0, 4096, 0) for t in range(0, 2000, 100)])
    table = read_rollup(tmp_path)
    stalled = table[table["stalled"]]
    by = stalled.groupby(["host", "ddir"], observed=True)["t_s"].apply(list)
    assert by.to_dict() == {
        ("a", "read"): [1, 2, 4],
        ("b", "read"): [1, 3],
        ("b", "write"): [0, 2, 4],
        ("c", "read"): [2, 3, 4],
    }
    assert stalled[["count", "bytes", "sum"]].eq(0).all(axis=None)
    assert stalled["lat_ns"].isna().all()


def test_averages_fall_into_the_second_they_are_of(tmp_path):
    late = [0, 3, 40, 7, 1, 90]
    write(tmp_path, "P_lat.1.log.a", [(1000 * (n + 1) + j, 5, 0, 0, 0) for n, j in enumerate(late)])
    lines = [(250 * (n + 1) + late[n % 6] // 4, 5, 0, 0, 0) for n in range(24)]
    write(tmp_path, "P_lat.1.log.b", lines)
    table = read_rollup(tmp_path)
    counts = table.groupby(["host", "t_s"], observed=True)["count"].sum()
    assert counts.tolist() == [1] * 6 + [4] * 6
    assert not table["stalled"].any()


@pytest.mark.parametrize(
    ("other", "t_s", "epoch_s"),
    [
        (START + 2300, [2, 3, 4, 5], START // 1000),
        (0, [0, 1, 2, 3], None),
        (START + 7_200_000, [0, 1, 2, 3], None),
    ],
    ids=["one clock", "since its start", "a clock two hours ahead"],
)
def test_hosts_are_aligned_by_one_clock_or_by_their_starts(other, t_s, epoch_s, tmp_path):
    write(tmp_path, "P_lat.1.log.a", [(START + t, 5, 0, 512, 0) for t in range(0, 6000, 200)])
    write(tmp_path, "P_lat.1.log.b", [(other + t, 5, 0, 512, 0) for t in range(0, 3600, 200)])
    table = read_rollup(tmp_path)
    logged = table[~table["stalled"]].groupby("host", observed=True)["t_s"].unique()
    assert logged["a"].tolist() == [0, 1, 2, 3, 4, 5]
    assert logged["b"].tolist() == t_s
    assert table.attrs["epoch_s"] == epoch_s


@pytest.mark.parametrize("time", [START, 32 * 86_400_000])
def test_two_clocks_on_one_host_are_refused(time, tmp_path):
    write(tmp_path, "P_lat.1.log.a", [(5, 5, 0, 512, 0)])
    write(tmp_path, "P_lat.2.log.a", [(time, 5, 0, 512, 0)])
    with pytest.raises(FioLogError) as error:
        read_rollup(tmp_path)
    assert str(error.value).startswith("a: ")


def test_too_much_for_64_bits_is_refused(tmp_path):
    path = write(tmp_path, "P_lat.1.log", [(5, 2**45 - 1, 0, 512, 0)] * (2**17 + 10))
    with pytest.raises(FioLogError) as error:
        read_rollup(path)
    assert str(path) in str(error.value)


# --- gaps


def gaps(folder: Path, every_ms: float | None = None) -> list[tuple[float, float]]:
    found = io_gaps(list(folder.iterdir()), every_ms)
    return list(found[["from_s", "to_s"]].round(3).itertuples(index=False, name=None))


def steady(folder: Path, host: str, *spans: tuple[int, int], zeros=(0, 0), start=0) -> None:
    times = [t for first, last in spans for t in range(first, last + 1, 500)]
    lines = [(start + t, 100, 1, 0, 0) for t in times]
    lines += [(start + t, 0, 1, 0, 0) for t in range(*zeros, 500)]
    write(folder, f"a_iops.1.log.{host}", sorted(lines))


@pytest.mark.parametrize(
    ("writers", "expected"),
    [
        ({"h1": ((500, 5000), (7000, 9000))}, (5.0, 6.5)),
        ({"h1": ((500, 3000), (4000, 9000))}, (3.0, 3.5)),
        ({"h1": ((500, 3000), (6000, 9000)), "h2": ((500, 4000), (7000, 9000))}, (4.0, 5.5)),
        ({"h1": ((500, 3000), (6000, 9000)), "h2": ((500, 9000),)}, (0.0, 0.0)),
        ({"h1": ((500, 5000), (7000, 9000)), "h2": ((500, 4000),)}, (5.0, 6.5)),
    ],
    ids=["up to the next interval", "of one interval", "of all writers", "not where one writes", "one never came back"],
)
@pytest.mark.parametrize("start", [0, START])
def test_samples_left_out_are_a_gap(writers, expected, start, tmp_path):
    for host, spans in writers.items():
        steady(tmp_path, host, *spans, start=start)
    assert gaps(tmp_path, 500) == gaps(tmp_path) == [expected]
    assert io_gaps(list(tmp_path.iterdir()), 500)["resolution_s"].tolist() == [0.5]


@pytest.mark.parametrize(("after", "expected"), [((6500, 6500), (5.0, 6.0)), ((0, -1), (5.0, 8.5))])
def test_a_zero_is_as_silent_as_no_sample(after, expected, tmp_path):
    until = 6001 if after[0] else 9001
    steady(tmp_path, "h1", (500, 5000), after, zeros=(5500, until))
    assert gaps(tmp_path) == [expected]


def test_fio_that_looks_late_is_no_gap(tmp_path):
    write(tmp_path, "a_iops.1.log.h", [(round(508.5 * k), 9, 0, 0, 0) for k in range(1, 60)])
    assert gaps(tmp_path, 500) == [(0.0, 0.0)]


def test_gaps_of_single_ios_are_exact_and_without_logs_unknown(tmp_path):
    assert io_gaps([])["resolution_s"].isna().all()
    write(tmp_path, "a_lat.1.log", [(t, 5, 0, 512, 0) for t in (0, 1, 2, 2, 700, 701)])
    assert (0.002, 0.7) in gaps(tmp_path)
