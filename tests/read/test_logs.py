"""fio's logs: captures, public cases, logs of a real fio beside its JSON, and logs by hand."""

import gzip
import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from math import nan
from pathlib import Path

import numpy as np
import pytest
import zstandard

import hcilib as hci
from hcilib.model.compressed import read_bytes
from hcilib.read.foreign.results import log_series
from hcilib.read.logs.rollup import FioLogError
from hcilib.read.run.run import read_rollup
from tests.needs import need
from tests.read.made import DATA, FIO, mixed_clients, write_plan, write_step, written

CASES = DATA / "cases"
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
    return written(folder / name, "".join(", ".join(map(str, line)) + "\n" for line in lines))


def averages(values: Sequence[int | None], start=0, step=1000, ddir=0):
    """Return lines as log_avg_msec makes them; None leaves the sample out."""
    times = range(start + step, start + step * (len(values) + 1), step)
    return [(t, v, ddir, 0, 0) for t, v in zip(times, values, strict=True) if v is not None]


def at(*times: int, ddir: int = 0, start: int = 0):
    """Return lines of one I/O each, of 100 ns and 4 KiB."""
    return [(start + t, 100, ddir, 4096, 0) for t in times]


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Path:
    """Logs of single I/Os and histograms of a real fio, and its JSON."""
    need("fio")
    folder = tmp_path_factory.mktemp("real")
    written(folder / "job.fio", JOB)
    argv = ["fio", "job.fio", "--output-format=json+", "--output=fio.json"]
    subprocess.run(argv, cwd=folder, check=True, timeout=60, stdout=subprocess.DEVNULL)
    return folder


# --- public cases


PUBLIC = {  # case -> direction and the first values of its columns
    "c09_per_job_logs_0": ("write", {"t_s": [0, 1, 2], "iops": [8, 4, 3]}),
    "c12_avg_200ms": ("read", {"t_s": [0, 1, 2, 3, 4], "iops": [10] * 5}),
    "c14_shifted": ("write", {"t_s": list(range(1, 10)), "stalled": [False] * 9}),
    "c15_all_ones": ("read", {"t_s": [0, 1, 2], "iops": [3, 3, 4]}),
    "c16_avg_25s": ("read", {"t_s": [0, 25], "iops": [360_844, 358_560]}),
    "n02_log_prio": ("read", {"t_s": [0, 1], "iops": [400, 400]}),
    "n03_log_issue": ("read", {"t_s": [0], "iops": [400], "lat_ns": [135_271]}),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", PUBLIC)
def test_a_public_log_is_read(case):
    ddir, columns = PUBLIC[case]
    table = log_series(CASES / case)
    rows = table[table["ddir"] == ddir]
    for name, values in columns.items():
        assert rows[name].head(len(values)).tolist() == pytest.approx(values, rel=1e-5)
    assert table.attrs["left_out"] == []


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
    rates = {"read": 70, "write": 30}
    samples = [(t, d, v) for t in (1000, 2000, 3000) for d, v in enumerate(rates.values())]
    lines = [line.format(t=t, v=value, d=ddir) for t, ddir, value in samples]
    written(tmp_path / "P_iops.1.log", "\n".join(lines) + "\n")
    found = log_series(tmp_path).groupby("ddir")["iops"].apply(list)
    assert found.to_dict() == {ddir: [value] * 3 for ddir, value in rates.items()}
    counted = read_rollup(tmp_path).groupby("ddir", observed=True)["sum"].sum()
    assert counted.to_dict() == {ddir: 3 * value for ddir, value in rates.items()}


@pytest.mark.parametrize("step", [10, 125, 300, 1000, 1500, 7000, 60_000])
def test_any_interval_gives_the_rate(step, tmp_path):
    write(tmp_path, "P_iops.1.log", averages([100] * max(8, 8000 // step), step=step))
    table = log_series(tmp_path)
    row_s = -(-step // 1000)
    assert table["t_s"].tolist() == list(range(0, row_s * len(table), row_s))
    assert len(table) >= 4
    np.testing.assert_allclose(table["iops"], 100)


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
    pack = {"zst": zstandard.compress, ".gz": gzip.compress}.get(name[-3:], bytes)
    written(tmp_path / name, pack(b"1000, 7, 0, 0, 0\n2000, 7, 0, 0, 0\n"))
    written(tmp_path / "fio_log.log.json", "{}")
    table = log_series(tmp_path)
    assert table[["run", "host", "iops"]].to_numpy().tolist() == [[run, host, 7]] * 2
    assert read_rollup(tmp_path)["host"].unique().tolist() == [host]


def test_a_broken_log_of_a_kind_that_is_not_needed_costs_nothing(tmp_path):
    write(tmp_path, "P_iops.1.log", averages([100, 100, 100]))
    write(tmp_path, "P_slat.1.log", [("no log",)])
    write(tmp_path, "P_lat.1.log", [(1000, "many", 0, 0, 0)])
    table = log_series(tmp_path)
    assert table["iops"].tolist() == [100] * 3
    assert table["lat_ns"].isna().all()
    assert {run for run, why in table.attrs["left_out"] if "P_lat" in why} == {"P"}


def test_a_last_line_without_its_end_is_not_counted(tmp_path):
    path = write(tmp_path, "P_iops.1.log", averages([5, 5, 5]))
    path.write_text(path.read_text() + "4000, 5")
    assert log_series(tmp_path)["iops"].tolist() == [5] * 3
    table = read_rollup(tmp_path)
    assert (table["count"].sum(), table.attrs["torn"]) == (3, [str(path)])


REFUSED = {  # logs of which no table of single I/Os can be made, and what is named
    "a negative value": ({"P_lat.1.log": [*at(1), (1000, -5, 0, 0, 0)]}, "line 2"),
    "a word": ({"P_lat.1.log": [*at(*range(250_000)), (1000, "x", 0, 0, 0)]}, "line 250001"),
    "a value of ten hours": ({"P_lat.1.log": [*at(1), (1000, 2**45, 0, 0, 0)]}, "line 2"),
    "a line without an end": ({"P_lat.1.log": [("7" * 200_000,)]}, "P_lat"),
    "a histogram that is none": ({"P_clat_hist.1.log": [(1000, 5, 0, 0, 0)]}, "P_clat_hist"),
    "a maximum that may be a direction": (
        {"P_iops.1.log": [(t, 2, 2, 0, 0, 0) for t in (1000, 2000, 3000)]},
        "log_window_value",
    ),
    "two clocks on a host": ({"P_lat.1.log.a": at(5), "P_lat.2.log.a": at(START)}, "^a: "),
    "too much for 64 bits": (
        {"P_lat.1.log": [(5, 2**45 - 1, 0, 512, 0)] * (2**17 + 10)},
        "P_lat",
    ),
    "no fio log": ({"iops.log": []}, "PREFIX"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_damaged_log_is_named(case, tmp_path):
    logs, names = REFUSED[case]
    for name, lines in logs.items():
        path = write(tmp_path, name, lines)
    with pytest.raises(FioLogError, match=names) as error:
        read_rollup(tmp_path if len(logs) > 1 else path)
    assert len(logs) > 1 or str(path) in str(error.value)


NO_SECONDS = {
    "two clocks": {"P_iops.1.log.a": averages([5, 5]), "P_iops.1.log.b": averages([5], START)},
    "single I/Os among averages": {"P_iops.1.log": averages([5, 5, 5]), "P_lat.1.log": at(1)},
    "too slow to show the interval": {"P_iops.1.log": averages([5, None, None, 5, None, 5])},
    "rarer than a minute": {"P_iops.1.log": averages([5] * 4, step=90_000)},
    "c11_avg_10ms": {},
    "c13_same_time": {},
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", NO_SECONDS)
def test_logs_that_give_no_seconds_are_left_out_by_name(case, tmp_path):
    for name, lines in NO_SECONDS[case].items():
        write(tmp_path, name, lines)
    place = tmp_path if NO_SECONDS[case] else CASES / case
    table = log_series(place)
    assert table.empty
    [(_, why)] = table.attrs["left_out"]
    assert not NO_SECONDS[case] or str(place) in why


# --- series

SAMPLES = {"P_iops.2.log.h": averages([100, 300]), "P_lat.1.log.h": averages([1000, 1000])}
WEIGHTED = {"P_iops.1.log.h": averages([900, 900]), **SAMPLES}


def both(jobs: dict[str, list[int | None]]) -> dict[str, list[tuple]]:
    """Return the logs of IOPS and of latency of some jobs."""
    kinds = ("iops", "lat")
    return {f"P_{kind}.{name}": averages(jobs[name]) for kind in kinds for name in jobs}


SERIES = {  # logs -> columns of all rows
    "a step across two rows": (
        {"P_iops.1.log": averages([100, 100, 0, 100, 100, 100], step=1500)},
        {"iops": [100, 50, 75, 100]},
    ),
    "shorter intervals; of the last second two of four samples are missing": (
        {
            "P_iops.1.log.h": averages([100, 200, 300, 400, None, None, 50, 50, 80, 80], step=250),
            "P_lat.1.log.h": averages([40, 20, 10, 10, None, None, 7, 9, 5, 5], step=250),
        },
        {"t_s": [0, 1], "iops": [250, 25], "lat_ns": [15, 8]},
    ),
    "jobs that share a file": (
        {
            "P_iops.log": [*averages([50, 60, 70]), *averages([5, 6, 7])],
            "P_lat.log": [*averages([10] * 3), *averages([120] * 3)],
        },
        {"iops": [55, 66, 77], "lat_ns": [20, 20, 20]},
    ),
    "latency is weighted by I/Os": (
        WEIGHTED | {"P_lat.2.log.h": averages([11000, 5000])},
        {"iops": [1000, 1200], "lat_ns": [2000, 2000], "bw_bytes": [nan, nan]},
    ),
    "a gap": (
        both({"1.log": [50, None, None, 50, 50], "1.log.z": [50] * 5}),
        {"iops": [50, 0, 0, 50, 50, *[50] * 5], "stalled": [0, 1, 1, 0, 0, *[0] * 5]},
    ),
    "a direction that is logged a step apart is no outage": (
        {
            f"P_{kind}.1.log": sorted([*averages([70] * 5), *averages([30] * 5, 1000, ddir=1)])
            for kind in ("iops", "lat")
        },
        {"t_s": [0, 1, 2, 3, 4, 1, 2, 3, 4, 5], "stalled": [0] * 10},
    ),
    "single I/Os of 1970 lose their first and last second": (
        {"P_clat.1.log.h": at(*range(700, 3700), start=START)},
        {"t_s": [1, 2], "iops": [1000, 1000], "lat_ns": [100, 100]},
    ),
    **{  # those behind the late one keep its rhythm or the old one
        f"a sample {late} ms late, and {after} ms those behind it": (
            {
                "P_iops.1.log": [
                    (t, 100, 0, 0, 0)
                    for t in (1000, 6000 + late, 7000 + after, 8000 + after, 9000 + after)
                ]
            },
            {"iops": pytest.approx([100, 0, 0, 0, 0, 100, 100, 100, 100], abs=50)},
        )
        for late, after in ((3, 0), (150, 0), (3, 3), (150, 150), (499, 499))
    },
    "sections are runs of their own": (
        {
            "P_iops.1.log.h": [*averages([70, 70]), *averages([30, 30], 2000, ddir=1)],
            "Q_bw.1.log.h": averages([5, 5]),
        },
        {
            "run": ["P"] * 7 + ["Q"] * 2,
            "bw_bytes": [nan] * 7 + [5 * 1024] * 2,
        },
    ),
}


@pytest.mark.parametrize("case", SERIES)
def test_logs_are_rates_and_latencies_a_second(case, tmp_path):
    logs, columns = SERIES[case]
    for name, lines in logs.items():
        write(tmp_path, name, lines)
    table = log_series(tmp_path)
    for name, values in columns.items():
        is_list = isinstance(values, list) and not isinstance(values[0], str)
        assert table[name].tolist() == (pytest.approx(values, nan_ok=True) if is_list else values)
    assert table.attrs["left_out"] == []


@pytest.mark.parametrize("phase", [0, 3, 498, 500, 502, 999])
def test_hosts_are_aligned_on_the_epoch_whatever_their_phase(phase, tmp_path):
    for host, shift in (("a", 0), ("b", 4), ("c", 2000)):
        begin, jitter = START + phase + shift, enumerate([0, 3, -3, 2, -2, 1])
        lines = [(begin + 1000 * n + late, 10, 0, 0, 0) for n, late in jitter]
        write(tmp_path, f"P_iops.1.log.{host}", lines)
    table = log_series(tmp_path)
    seconds = {
        host: list(range(first, first + 6)) for host, first in zip("abc", (0, 0, 2), strict=True)
    }
    assert table.groupby("host")["t_s"].apply(list).to_dict() == seconds
    assert not table["stalled"].any()


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


# --- rollup


def test_it_is_the_histogram_that_fio_itself_kept(real):
    table = read_rollup(real, "lat")
    assert not table["averaged"].any()
    jobs = json.loads((real / "fio.json").read_text())["jobs"]
    for ddir in ("read", "write"):
        counts: Counter = Counter()
        for job in jobs:
            counts += {int(ns): n for ns, n in job[ddir]["lat_ns"]["bins"].items()}
        rows = table[(table["ddir"] == ddir) & ~table["stalled"]]
        assert rows.groupby("lat_ns")["count"].sum().to_dict() == counts
        spent_ns = sum(j[ddir]["lat_ns"]["mean"] * j[ddir]["total_ios"] for j in jobs)
        assert rows["sum"].sum() == pytest.approx(spent_ns, rel=1e-9)
        assert rows["bytes"].sum() == sum(j[ddir]["io_bytes"] for j in jobs)


def test_histogram_logs_are_the_single_ios_without_the_last_interval(real):
    table = read_rollup(real)
    kinds = (table[table["log"] == log] for log in ("clat", "clat_hist"))
    ios, hist = (own.groupby("lat_ns")["count"].sum() for own in kinds)
    assert (hist <= ios.reindex(hist.index)).all()
    assert 0.6 * ios.sum() < hist.sum() < ios.sum()


def test_histograms_that_fio_s_server_sent_are_refused_and_ordinary_ones_are_not(tmp_path):
    """Of 6,001 I/Os at 1,000 a second its eleven lines hold 18,066."""
    [served] = (FIO / "served").iterdir()
    with pytest.raises(FioLogError, match="per-host") as error:
        read_rollup(served)
    assert str(served) in str(error.value)
    table = np.array(
        [[int(n) for n in line.split(b",")] for line in read_bytes(served).splitlines()]
    )
    table[2:, 3:] -= table[:-2, 3:].copy()
    mended = write(tmp_path, "P_clat_hist.1.log.127.0.0.1", table)
    assert read_rollup(mended)["count"].sum() == 5511


@pytest.mark.parametrize(("coarseness", "bucket"), [(0, 3), (1, 7), (5, 112)])
def test_a_coarse_histogram_stands_for_the_middle_of_its_buckets(coarseness, bucket, tmp_path):
    counts = np.zeros(1856 >> coarseness, int)
    counts[3] = 7
    write(tmp_path, "P_clat_hist.1.log", [(1000, 1, 4096, *counts)])
    [row] = read_rollup(tmp_path)[["bucket", "lat_ns", "count", "bytes"]].to_numpy().tolist()
    assert row == [bucket, bucket, 7, 7 * 4096]


def test_seconds_without_io_are_zero_io_and_marked(tmp_path):
    write(tmp_path, "P_lat.1.log.a", at(0, 900, 3100, 5200))
    of_both = [*at(*range(0, 6000, 2000), ddir=0), *at(*range(1000, 6000, 2000), ddir=1)]
    write(tmp_path, "P_lat.1.log.b", sorted(of_both))
    write(tmp_path, "P_lat.1.log.c", at(*range(0, 2000, 100)))
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
    write(tmp_path, "P_lat.1.log.a", at(*range(0, 6000, 200), start=START))
    write(tmp_path, "P_lat.1.log.b", at(*range(0, 3600, 200), start=other))
    table = read_rollup(tmp_path)
    logged = table[~table["stalled"]].groupby("host", observed=True)["t_s"].unique()
    assert logged["a"].tolist() == [0, 1, 2, 3, 4, 5]
    assert logged["b"].tolist() == t_s
    assert table.attrs["epoch_s"] == epoch_s


# --- gaps


def steady(*spans: tuple[int, int], zeros: tuple[int, int] = (0, 0), start: int = 0):
    """Return averages of writes, one in 500 ms within each span, and zeros in between."""
    times = [t for first, last in spans for t in range(first, last + 1, 500)]
    lines = [(start + t, 100, 1, 0, 0) for t in times]
    return sorted(lines + [(start + t, 0, 1, 0, 0) for t in range(*zeros, 500)])


WHOLE, HELD = ((500, 9000),), ((500, 3000), (6000, 9000))
GAPS = {  # what each host wrote -> the gap, in seconds
    "of one interval": ([steady((500, 3000), (4000, 9000))], (3.0, 3.5)),
    "of all writers": ([steady(*HELD), steady((500, 4000), (7000, 9000))], (4.0, 5.5)),
    "not where one writes": ([steady(*HELD), steady(*WHOLE)], (0.0, 0.0)),
    "on the epoch": ([steady((500, 3000), (4000, 9000), start=START)], (3.0, 3.5)),
    "of zeros to the end": ([steady((500, 5000), zeros=(5500, 9001))], (5.0, 8.5)),
    "no gap where fio looks late": (
        [[(round(508.5 * k), 9, 0, 0, 0) for k in range(1, 60)]],
        (0.0, 0.0),
    ),
}


@pytest.mark.parametrize("every_ms", [None, 500])
@pytest.mark.parametrize("case", GAPS)
def test_samples_left_out_and_zeros_are_a_gap(case, every_ms, tmp_path):
    hosts, gap = GAPS[case]
    write_plan(tmp_path)
    step = write_step(tmp_path, "measure", 1, 0.0, mixed_clients())
    for n, lines in enumerate(hosts):
        write(step / "logs", f"a_iops.1.log.h{n}", lines)
    if every_ms:
        written(step / "job.fio", f"[global]\nlog_avg_msec={every_ms}\n")
    [row] = hci.read_io_gaps(tmp_path)[["from_s", "to_s", "resolution_s"]].round(3).to_numpy()
    assert row[:2].tolist() == list(gap)
    assert row[2] == pytest.approx(0.5, rel=0.02)


def test_gaps_of_single_ios_are_exact_and_without_logs_unknown(tmp_path):
    write_plan(tmp_path)
    step = write_step(tmp_path, "measure", 1, 0.0, mixed_clients())
    assert hci.read_io_gaps(tmp_path)["resolution_s"].isna().all()
    write(step / "logs", "a_lat.1.log", at(0, 1, 2, 2, 700, 701))
    found = hci.read_io_gaps(tmp_path)
    assert (0.002, 0.7) in zip(found["from_s"].round(3), found["to_s"].round(3), strict=True)
