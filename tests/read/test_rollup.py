"""The rollup of fio's logs: logs written by hand, generated ones, and those of a real fio beside its own JSON."""

from __future__ import annotations

import ast
import itertools
import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hcilib as hci
from hcilib import read_rollup
from hcilib.model import archives, fio_buckets
from hcilib.model.compressed import unpacked
from hcilib.read.logs import rollup, rollup_kernel, rollup_script
from hcilib.read.logs.rollup import count_logs, frame, from_table, line_blocks, pushed_name
from hcilib.read.logs.rollup_cells import FioLogError, add_cells, room, script_for_vms
from hcilib.read.logs.rollup_kernel import slices
from hcilib.read.logs.rollup_script import LineError, Shape
from tests.needs import examples, need

LOGS = archives.unpacked(Path(__file__).parents[1] / "data" / "fio") / "logs"
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
IN_LITTLE_MEMORY = """
import re, resource, sys
from pathlib import Path
from hcilib.read.logs.rollup import FioLogError, rollup_of_logs as read_rollup

read_rollup(sys.argv[1], kernel="numba", workers=1)
held = 1024 * int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
resource.setrlimit(resource.RLIMIT_AS, (held + 4 * 2**20,) * 2)
try:
    read_rollup(sys.argv[1], kernel="numba", workers=1)  # whose tables alone need 50 MB
except FioLogError as error:
    print(error)
"""


def write(folder: Path, name: str, lines) -> Path:
    path = folder / name
    path.write_text("".join(", ".join(map(str, line)) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Path:
    """Logs of single I/Os and histograms of a real fio, and its JSON."""
    need("fio")
    folder = tmp_path_factory.mktemp("real")
    (folder / "job.fio").write_text(JOB)
    argv = ["fio", "job.fio", "--output-format=json+", "--output=fio.json"]
    subprocess.run(argv, cwd=folder, check=True, timeout=60, stdout=subprocess.DEVNULL)
    return folder


# --- the same table by every way


def by_kernel(counter, blocks, shape: Shape):
    """Cells, or where and why a line was refused."""
    seen = 0
    try:
        for block in blocks:
            counter.feed(block, shape)
            seen += len(block)
        return counter.cells().tolist()
    except LineError as error:
        return seen + error.offset, error.line
    except FioLogError as error:
        return str(error)


def by_script(blocks, shape: Shape):
    table, seen = rollup_script.new_table(), 0
    try:
        for block in blocks:
            rollup_script.count(block, shape, table)
            seen += len(block)
        return from_table(table).tolist()
    except LineError as error:
        return seen + error.offset, error.line
    except FioLogError as error:
        return str(error)


def both_ways(raw: bytes, cut: int, shape: Shape):
    """What the compiled loop and the standard library make of the same lines, each in other blocks."""
    lines = raw.splitlines(keepends=True) if b"\r" not in raw else [x + b"\n" for x in raw.split(b"\n")[:-1]]
    for block in ([raw] if raw else [], [b"".join(lines[:cut]), b"".join(lines[cut:])], lines):
        blocks = [b for b in block if b]
        yield by_kernel(rollup_kernel.Counter(pages=128), blocks, shape)
        yield by_script(blocks, shape)


def assert_all_alike(raw: bytes, cut: int, shape: Shape):
    first, *others = both_ways(raw, cut, shape)
    for other in others:
        assert other == first
    return first


numbers = st.one_of(
    st.integers(0, 300),
    st.integers(0, 2**20),
    st.integers(2**33 - 3, 2**36),
    st.integers(2**44, 2**46),
    st.just(10**19),
)
times = st.one_of(st.integers(0, 5000), st.integers(START, START + 5000), st.integers(2**49, 2**51))
samples = st.tuples(times, numbers, st.integers(0, 3), st.sampled_from([0, 512, 4096, 2**32]), st.integers(0, 2**65))
likely = st.tuples(st.integers(0, 9000), st.integers(0, 10**9), st.integers(0, 2), st.just(4096), st.integers(0, 2**40))


@given(st.lists(likely, max_size=80), st.integers(0, 80), st.sampled_from(["lat", "iops"]), st.sampled_from([3, 4, 5]))
def test_both_ways_count_the_same_and_loses_nothing(ios, cut, log, width):
    raw = "".join(", ".join(map(str, io[:width])) + "\n" for io in ios).encode()
    cells = assert_all_alike(raw, cut, Shape(log, width, 0, 0, False))
    assert sum(n for _, n, _, _ in cells) == len(ios)
    assert sum(size for _, _, size, _ in cells) == (4096 * len(ios) if width > 3 else 0)
    assert sum(total for _, _, _, total in cells) == sum(io[1] for io in ios)


@given(st.lists(samples, max_size=12), st.integers(0, 12), st.sampled_from(["lat", "bw"]), st.sampled_from([0, 500]))
@example([(0, 0, 0, 0, 2**64)], 0, "lat", 0)
@example([(0, 0, 0, 4096, 2**64 - 1)], 0, "lat", 0)
def test_numbers_no_log_holds_are_refused_by_both_ways(ios, cut, log, half_ms):
    raw = "".join(", ".join(map(str, io)) + "\n" for io in ios).encode()
    assert_all_alike(raw, cut, Shape(log, 5, half_ms, 2 * half_ms, False))


odd = st.sampled_from(
    [
        b"",
        b" ",
        b"  ",
        b",",
        b"\r",
        b"\n",
        b"-",
        b"+",
        b"0x1f",
        b"x",
        b".",
        b"1e3",
        b"007",
        b"\t",
        b'"',
        b"\xff",
        b"_1",
        b"\0",
        b"nan",
    ]
)


@given(
    st.lists(likely, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 200), odd), max_size=3),
    st.sampled_from([5, 6, 7]),
)
@settings(max_examples=examples(250))
def test_what_fio_did_not_print_is_read_or_refused_alike(ios, edits, width):
    words = ["0x0001", "0"][: width - 5]
    raw = bytearray("".join(", ".join([*map(str, io), *words]) + "\n" for io in ios), "ascii")
    for at, insert in edits:
        raw[at % len(raw) : at % len(raw)] = insert
    assert_all_alike(bytes(raw), 2, Shape("clat", width, 0, 0, False))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9000),
            st.integers(0, 2),
            st.dictionaries(st.integers(0, 57), st.integers(1, 10**9), max_size=6),
        ),
        max_size=6,
    ),
    st.lists(st.tuples(st.integers(0, 400), odd), max_size=2),
    st.integers(0, 6),
)
def test_histograms_too(rows, edits, cut):
    raw = bytearray()
    for t, ddir, counts in rows:
        raw += (", ".join(map(str, [t, ddir, 4096, *(counts.get(i, 0) for i in range(58))])) + "\n").encode()
    for at, insert in edits if raw else ():
        raw[at % len(raw) : at % len(raw)] = insert
    if raw[-1:] not in (b"", b"\n"):
        raw += b"\n"
    cells = assert_all_alike(bytes(raw), cut, Shape("clat_hist", 61, 500, 1000, False))
    if not edits and max((n for *_, counts in rows for n in counts.values()), default=0) < 10**6:
        assert sum(n for _, n, _, _ in cells) == sum(sum(counts.values()) for *_, counts in rows)


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_no_block_boundary_is_seen(size, real):
    path = real / "P_lat.1.log"
    whole = b"".join(line_blocks(path))
    assert b"".join(line_blocks(path, size=size)) == whole == path.read_bytes()
    assert all(b.endswith(b"\n") for b in line_blocks(path, size=size))


@given(
    st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b"")), max_size=12),
    st.booleans(),
    st.integers(0, 9),
)
def test_a_log_in_parts_is_the_log(tmp_path, lines, whole, number):
    path = tmp_path / "P_lat.1.log"
    path.write_bytes(b"\n".join([b"1", *lines]) + (b"\n" if whole else b""))
    parts, torn, at_once = slices(path, number), [], []
    together = b"".join(b for start, end in parts for b in line_blocks(path, torn, size=4, start=start, end=end))
    assert together == b"".join(line_blocks(path, at_once))
    assert torn == at_once
    assert len(parts) <= max(number, 1)


@pytest.mark.parametrize("kernel", ["numba", "python"])
def test_however_many_parts_the_table_is_the_same(kernel, real, tmp_path, monkeypatch):
    expected = read_rollup(real, kernel=kernel)
    shutil.copytree(real, tmp_path / "logs")
    with open(tmp_path / "logs" / "P_lat.2.log", "a") as file:
        file.write("11, 5")
    monkeypatch.setattr(rollup_kernel, "PART_BYTES", 10_000)
    table = read_rollup(tmp_path / "logs", kernel=kernel)
    assert table.attrs.pop("torn") == [str(tmp_path / "logs" / "P_lat.2.log")]
    assert expected.attrs.pop("torn") == []
    pd.testing.assert_frame_equal(table, expected)
    lines = (tmp_path / "logs" / "P_lat.1.log").read_text().splitlines()
    lines[-2] = "what is this"
    (tmp_path / "logs" / "P_lat.1.log").write_text("\n".join(lines) + "\n")
    with pytest.raises(FioLogError, match=rf"P_lat\.1\.log: line {len(lines) - 1} is 'what is this'"):
        read_rollup(tmp_path / "logs", kernel=kernel)


def test_more_seconds_than_pages_are_put_aside():
    raw = "".join(f"{1000 * (7 * n % 500)}, {n * n % 10**7}, {n % 3}, 512, 0\n" for n in range(20_000)).encode()
    shape = Shape("lat", 5, 0, 0, False)
    expected = by_script([raw], shape)
    assert by_kernel(rollup_kernel.Counter(pages=64), [raw], shape) == expected


cells_of_many = st.lists(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(0, 2**40), st.integers(0, 2**40)), max_size=9
    ).map(lambda rows: add_cells([np.array(rows, np.int64).reshape(-1, 4)])),
    min_size=3,
    max_size=3,
)


@given(cells_of_many)
def test_addition_is_associative_and_commutative(parts):
    a, b, c = parts
    every = [add_cells([add_cells([a, b]), c]), add_cells([a, add_cells([b, c])]), add_cells([c, b, a])]
    assert all(x.tolist() == y.tolist() for x, y in pairwise(every))
    assert every[0][:, 1].sum() == sum(part[:, 1].sum() for part in parts)


# --- real logs


def test_it_is_the_histogram_that_fio_itself_kept(real):
    table = read_rollup(real, "lat")
    assert not table["averaged"].any()
    jobs = json.loads((real / "fio.json").read_text())["jobs"]
    for ddir in ("read", "write"):
        own = pd.Series(dtype="int64")
        for job in jobs:
            bins = {int(k): v for k, v in job[ddir]["lat_ns"]["bins"].items()}
            own = own.add(pd.Series(bins), fill_value=0)
        counted = table[(table["ddir"] == ddir) & ~table["stalled"]].groupby("lat_ns")["count"].sum()
        pd.testing.assert_series_equal(
            counted, own.sort_index().astype("int64"), check_names=False, check_index_type=False
        )
        mean = sum(j[ddir]["lat_ns"]["mean"] * j[ddir]["total_ios"] for j in jobs) / counted.sum()
        assert table.loc[table["ddir"] == ddir, "sum"].sum() / counted.sum() == pytest.approx(mean, rel=1e-9)
        assert table.loc[table["ddir"] == ddir, "bytes"].sum() == sum(j[ddir]["io_bytes"] for j in jobs)


def added(tables: list[pd.DataFrame], folder: Path) -> pd.DataFrame:
    """What `read_rollup` gives of these tables, saved."""
    saved = [folder / f"{n}.parquet" for n in range(len(tables))]
    for table, file in zip(tables, saved, strict=True):
        table.to_parquet(file)
    return read_rollup(saved)


def test_both_kernels_and_any_order_of_files_give_the_same_table(real, tmp_path):
    files = sorted(real.glob("*.log"))
    tables = [read_rollup(real, kernel=kernel) for kernel in ("numba", "python")]
    tables += [read_rollup(files[::-1], workers=workers) for workers in (1, 3)]
    tables += [added([read_rollup(f) for f in files[::-1] if f.stat().st_size], tmp_path)]
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0])
        assert table.attrs == tables[0].attrs


def test_without_numba_the_reference_counts(real, monkeypatch):
    expected = read_rollup(real, kernel="numba")
    monkeypatch.setattr(rollup, "SMALL_BYTES", 0)
    monkeypatch.setitem(sys.modules, "hcilib.read.logs.rollup_kernel", None)
    pd.testing.assert_frame_equal(read_rollup(real), expected)
    with pytest.raises(ImportError):
        read_rollup(real, kernel="numba")
    with pytest.raises(ValueError, match="kernel 'gpu': expected 'numba' or 'python'"):
        read_rollup(real, kernel="gpu")


def test_percentiles_come_last_by_second_too(real):
    table = read_rollup(real, "clat")
    by_second = hci.percentiles(table, by=["ddir", "t_s"])
    raw = pd.concat([pd.read_csv(p, header=None, skipinitialspace=True) for p in real.glob("P_clat.?.log")])
    raw["second"] = raw[0] // 1000
    groups = raw.groupby([2, "second"])[1]
    assert by_second["n"].tolist() == groups.size().tolist()
    for name, q in (("p50_ns", 0.5), ("p99_ns", 0.99)):
        exact = [np.quantile(group, q, method="inverted_cdf") for _, group in groups]
        np.testing.assert_allclose(by_second[name], exact, rtol=1 / 128)


def test_histogram_logs_are_the_single_ios_without_the_last_interval(real):
    table = read_rollup(real)
    ios, hist = (table[table["log"] == log].groupby("lat_ns")["count"].sum() for log in ("clat", "clat_hist"))
    assert (hist <= ios.reindex(hist.index)).all()
    assert 0.6 * ios.sum() < hist.sum() < ios.sum()


def test_histograms_that_fio_s_server_sent_are_refused_and_ordinary_ones_are_not(real, tmp_path):
    """Of 6,001 I/Os at 1,000 a second its eleven lines hold 18,066; each less the last but one before it is right."""
    [served] = (LOGS.parent / "served").iterdir()
    with pytest.raises(FioLogError, match=r"served.* count I/Os again and again.*launcher: per-host"):
        read_rollup(served)
    lines = [[int(n) for n in line.split(b",")] for line in unpacked(served.read_bytes(), served).splitlines()]
    true = [
        [*line[:3], *(n - before for n, before in zip(line[3:], earlier[3:], strict=True))]
        for line, earlier in zip(lines, [[0] * len(lines[0])] * 2 + lines, strict=False)
    ]
    mended = tmp_path / "P_clat_hist.1.log.127.0.0.1"
    mended.write_text("".join(f"{', '.join(map(str, line))}\n" for line in true))
    assert read_rollup(mended)["count"].sum() == 5511
    for log in real.glob("*_clat_hist.*"):
        copy = tmp_path / f"{log.name}.127.0.0.1"
        copy.write_bytes(log.read_bytes())
        assert read_rollup(copy)["count"].sum() == read_rollup(log)["count"].sum()


def test_a_saved_rollup_is_the_same_table(real, tmp_path):
    table = read_rollup(real)
    table.to_parquet(tmp_path / "r.parquet")
    again = read_rollup(tmp_path / "r.parquet")
    pd.testing.assert_frame_equal(again, table)
    assert again.attrs == table.attrs


@pytest.mark.parametrize(
    "python", [sys.executable, pytest.param("/usr/bin/python3", marks=pytest.mark.needs("/usr/bin/python3"))]
)
def test_what_a_vm_makes_of_its_logs_is_the_same_table_to_the_bit(python, real, tmp_path):
    document = tmp_path / pushed_name("vm1")
    script = tmp_path / "rollup_script.py"
    script.write_bytes(script_for_vms())
    subprocess.run([python, "-I", script, real, document], check=True, timeout=60)
    raw = tmp_path / "raw"
    raw.mkdir()
    for log in real.glob("*.log"):
        shutil.copy(log, raw / f"{log.name}.vm1")
    pd.testing.assert_frame_equal(read_rollup(document), read_rollup(raw))
    shutil.copy(document, raw)
    pd.testing.assert_frame_equal(read_rollup(raw), read_rollup(document))  # nothing is counted twice
    assert document.stat().st_size < sum(log.stat().st_size for log in real.glob("*.log")) / 5


@pytest.mark.parametrize(
    "cell", [(-1, 1, 0, 0), (5, 0, 0, 0), (5, 1, 2**62, 0), (5, 1, 2**70, 0), (2047, 1, 0, 0), (3 << 12, 1, 0, 0)]
)
def test_what_no_log_adds_up_to_is_refused_of_a_vm_too(cell, tmp_path):
    path = tmp_path / pushed_name("vm1")
    table = {"job": "P", "log": "lat", "every_ms": 0, "cells": [cell]}
    path.write_text(json.dumps({"format": 1, "logs": [], "torn": [], "tables": [table]}))
    with pytest.raises(FioLogError, match=r"rollup\.vm1\.json\.gz: "):
        read_rollup(path)


def test_the_script_needs_the_standard_library_alone_and_no_python_after_3_6(tmp_path):
    (tmp_path / "rollup_script.py").write_bytes(script_for_vms())
    ast.parse(script_for_vms(), feature_version=(3, 6))
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; import rollup_script; print(*sys.modules)"
    names = subprocess.run(
        [sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {n.split(".")[0] for n in names} - {"rollup_script", "__main__"} <= set(sys.stdlib_module_names)


def test_what_numba_froze_is_what_stands_in_the_other_files():
    """numba compiles rollup_kernel anew when that file changes, and only then: what it takes over is to be changed
    there too."""
    assert {
        "limits": (
            rollup_script.TIME_LIMIT,
            rollup_script.VALUE_LIMIT,
            rollup_script.BS_LIMIT,
            rollup_script.SUM_LIMIT,
        ),
        "buckets": (fio_buckets.BUCKETS, rollup_script.NO_BUCKET),
        "bucket of 1e6 ns": fio_buckets.bucket_of(10**6),
        "key of second 5, write, averaged, bucket 7": rollup_script.key_of(rollup_script.when_of(5, 1, 1), 7),
    } == rollup_kernel.TAKEN_OVER


def test_a_key_says_what_it_was_made_of():
    key = rollup_script.key_of(rollup_script.when_of(1_700_000_000, 2, 1), 1856)
    of = (rollup_script.second_in, rollup_script.ddir_in, rollup_script.averaged_in, rollup_script.bucket_in)
    assert [field(key) for field in of] == [1_700_000_000, 2, 1, 1856]
    assert key < 2**62


def test_averaged_logs_are_marked_and_have_no_percentiles():
    table = read_rollup(LOGS / "logs_epoch")
    assert table["averaged"].all() | table["stalled"].any()
    assert table.loc[~table["stalled"], "averaged"].all()
    with pytest.raises(ValueError, match="log_avg_msec"):
        hci.percentiles(table[table["log"] == "lat"])


def test_a_run_directory_gives_the_rollups_of_its_steps(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(hci.samples()["lab-single"], run)
    step = next(iter(sorted((run / "steps").iterdir())))
    host = json.loads((step / "step.json").read_text())["hosts"][0]
    (step / "logs").mkdir(exist_ok=True)
    write(step / "logs", f"4k-randread_lat.1.log.{host['hostname']}", [(t, 1000, 0, 4096, 0) for t in range(2000)])
    table = read_rollup(run)
    assert table["step"].unique().tolist() == [step.name]
    assert table["vm"].unique().tolist() == [host["vm"]]
    assert hci.percentiles(table)["n"].tolist() == [2000]
    narrow = read_rollup(run, columns=["pattern", "t_s", "bucket", "lat_ns", "count", "averaged"])
    assert "host" not in narrow
    pd.testing.assert_frame_equal(narrow, table[list(narrow)])
    assert {"step", "vm", "pattern", "t_s"} <= set(narrow)
    assert hci.percentiles(narrow, by=["vm", "pattern"])["n"].tolist() == [2000]
    assert read_rollup(run, columns=["host", "count"])["host"].eq(host["hostname"]).all()


def test_a_run_directory_says_what_its_logs_said(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(hci.samples()["lab-single"], run)
    assert read_rollup(run).attrs == {"epoch_s": None, "torn": [], "every_ms": 0}
    torn = []
    for step, every_ms in zip(sorted((run / "steps").iterdir())[:2], (1000, 500), strict=True):
        host = json.loads((step / "step.json").read_text())["hosts"][0]["hostname"]
        (step / "logs").mkdir(exist_ok=True)
        write(
            step / "logs", f"P_lat.1.log.{host}", [(START + t, 1000, 0, 4096, 0) for t in range(1000, 9000, every_ms)]
        )
        file = step / "logs" / f"P_lat.1.log.{host}"
        file.write_text(file.read_text() + "9999, 5")
        torn.append(str(file))
    alone = [read_rollup(Path(file).parent).attrs for file in torn]
    attrs = read_rollup(run).attrs
    assert attrs["torn"] == sorted(torn)
    assert attrs["every_ms"] == max(one["every_ms"] for one in alone)
    assert attrs["epoch_s"] == alone[0]["epoch_s"] == alone[1]["epoch_s"] is not None


def test_logs_of_several_kinds_are_not_pooled(real):
    with pytest.raises(ValueError, match=r"vary in log: clat, clat_hist, .*add it to by"):
        hci.percentiles(read_rollup(real, ("lat", "clat", "clat_hist")))


# --- time: alignment, stalls


def test_seconds_without_io_are_zero_io_and_marked(tmp_path):
    write(tmp_path, "P_lat.1.log.a", [(t, 100, 0, 4096, 0) for t in (0, 900, 3100, 5200)])
    write(tmp_path, "P_lat.1.log.b", [(t, 100, t // 1000 % 2, 4096, 0) for t in range(0, 6000, 500)])
    table = read_rollup(tmp_path)
    a, b = (table[table["host"] == h] for h in "ab")
    assert a.loc[a["stalled"], "t_s"].tolist() == [1, 2, 4]
    assert a.loc[a["stalled"], ["count", "bytes", "sum"]].eq(0).all(axis=None)
    assert a.loc[a["stalled"], "lat_ns"].isna().all()
    assert b[b["stalled"]].groupby("ddir", observed=True)["t_s"].apply(list).to_dict() == {
        "read": [1, 3],
        "write": [0, 2, 4],
    }
    assert hci.percentiles(a, by=["t_s"])["n"].tolist() == [2, 1, 1]


def test_a_host_that_dies_is_stalled_to_the_end(tmp_path):
    write(tmp_path, "P_lat.1.log.a", [(t, 100, 0, 4096, 0) for t in range(0, 2000, 100)])
    write(tmp_path, "P_lat.1.log.b", [(t, 100, 0, 4096, 0) for t in range(0, 6000, 100)])
    table = read_rollup(tmp_path)
    assert table.loc[table["stalled"], ["host", "t_s"]].to_numpy().tolist() == [["a", 2], ["a", 3], ["a", 4]]


def test_averaged_samples_fall_into_the_second_they_were_averaged_over(tmp_path):
    late = [0, 3, 40, 7, 1, 90]
    write(tmp_path, "P_lat.1.log.a", [(1000 * (n + 1) + j, 5, 0, 0, 0) for n, j in enumerate(late)])
    write(tmp_path, "P_lat.1.log.b", [(250 * (n + 1) + late[n % 6] // 4, 5, 0, 0, 0) for n in range(24)])
    table = read_rollup(tmp_path)
    assert table.groupby(["host", "t_s"], observed=True)["count"].sum().tolist() == [1] * 6 + [4] * 6
    assert not table["stalled"].any()


def test_hosts_on_one_clock_are_aligned_by_it(tmp_path):
    write(tmp_path, "P_lat.1.log.a", [(START + t, 5, 0, 512, 0) for t in range(0, 5000, 200)])
    write(tmp_path, "P_lat.1.log.b", [(START + 2300 + t, 5, 0, 512, 0) for t in range(0, 3000, 200)])
    table = read_rollup(tmp_path)
    assert table.groupby("host", observed=True)["t_s"].agg(["min", "max"]).to_numpy().tolist() == [[0, 4], [2, 5]]
    assert table.attrs["epoch_s"] == START // 1000
    assert not table["stalled"].any()


@pytest.mark.parametrize("other", [0, START + 7_200_000], ids=["since its start", "a clock two hours ahead"])
def test_hosts_whose_times_differ_are_aligned_by_their_own_starts(other, tmp_path):
    write(tmp_path, "P_lat.1.log.a", [(START + t, 5, 0, 512, 0) for t in range(0, 4000, 200)])
    write(tmp_path, "P_lat.1.log.b", [(other + t, 5, 0, 512, 0) for t in range(0, 4000, 200)])
    table = read_rollup(tmp_path)
    assert table.groupby("host", observed=True)["t_s"].apply(lambda t: sorted(set(t))).tolist() == [[0, 1, 2, 3]] * 2
    assert table.attrs["epoch_s"] is None
    assert not table["stalled"].any()


def test_two_clocks_on_one_host_are_refused(tmp_path):
    write(tmp_path, "P_lat.1.log.a", [(5, 5, 0, 512, 0)])
    write(tmp_path, "P_lat.2.log.a", [(START, 5, 0, 512, 0)])
    with pytest.raises(FioLogError, match="a: some logs count from 1970"):
        read_rollup(tmp_path)


def test_a_clock_that_jumps_makes_no_million_of_rows(tmp_path):
    write(tmp_path, "P_lat.1.log.a", [(START, 5, 0, 512, 0), (START * 2, 5, 0, 512, 0)])
    with pytest.raises(FioLogError, match=r"P_lat.1.log.a: logs span \d+ s"):
        read_rollup(tmp_path)


# --- files as they are found


def test_packed_logs_and_other_files_in_the_folder(real, tmp_path):
    for log in real.glob("*.log"):
        (tmp_path / f"{log.name}.zst").write_bytes(zstandard.compress(log.read_bytes()))
    (tmp_path / "fio_log.log.json").write_text("{}")
    pd.testing.assert_frame_equal(read_rollup(tmp_path), read_rollup(real))


def test_what_does_not_fit_in_memory_is_said(tmp_path):
    write(tmp_path, "P_lat.1.log", [(1, 100, 0, 4096, 0)])
    ended = subprocess.run([sys.executable, "-c", IN_LITTLE_MEMORY, tmp_path], capture_output=True, text=True)
    assert (
        ended.stdout
        == f"{tmp_path}: the seconds and latencies of these logs do not fit in memory; do their times make "
        "sense? If so, read fewer logs at once\n"
    ), ended.stderr


def test_cells_beyond_all_memory_are_a_memory_error():
    with pytest.raises(MemoryError, match="cells: Cannot allocate memory"):
        room(1 << 45)


def test_thousands_of_logs_do_not_each_map_memory():
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("/dev/zero")

    before = mapped()
    held = [room(1 << 16) for _ in range(20)]
    assert mapped() == before + len(held)
    small = [room(100) for _ in range(1000)]
    assert mapped() == before + len(held), f"{len(small)} small ones"


@pytest.mark.parametrize("log", ["clat", "bw"])
def test_cells_that_must_not_be_written_to_are_copied(log):
    cells = np.array([[1 << 14 | 5, 2, 4096, 10], [2 << 14 | 6, 1, 4096, 6]])
    cells.flags.writeable = False
    table = frame({("h", "P", log): cells}, 0, [])
    assert table["second"].tolist() == [1, 2]
    assert table["sum"].tolist() == ([10 * 1024, 6 * 1024] if log == "bw" else [10, 6])
    assert cells[0].tolist() == [1 << 14 | 5, 2, 4096, 10]


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.999])
def test_a_cut_zstd_is_named(keep, real, tmp_path):
    packed = zstandard.compress((real / "P_lat.1.log").read_bytes())
    path = tmp_path / "P_lat.1.log.zst"
    path.write_bytes(packed[: int(keep * len(packed))])
    with pytest.raises(FioLogError, match=r"P_lat\.1\.log\.zst: the compressed stream is damaged or cut off"):
        read_rollup(path)


@pytest.mark.parametrize("filling", ["hole", "digits"])
def test_a_file_of_one_endless_line_is_refused_in_bounded_memory(filling, tmp_path):
    import tracemalloc

    path = tmp_path / "P_lat.1.log"
    with open(path, "wb") as file:
        file.write(b"1, 2, 0, 4096, 0\n")
        if filling == "digits":
            file.write(b"7" * 3_000_000)
        file.truncate(2 * 2**30)
    tracemalloc.start()
    with pytest.raises(FioLogError, match=r"P_lat\.1\.log: the line that begins at byte 17 is longer than 65536 bytes"):
        read_rollup(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 2**20  # most of it reserved by the kernel and never touched


def test_a_file_that_grows_while_it_is_read_ends_where_it_ended(tmp_path):
    path = write(tmp_path, "P_lat.1.log", [(t, 5, 0, 512, 0) for t in range(1000)])
    with open(path, "a") as file:
        file.write("1000, 5, 0, 5")
    before, torn, lines = path.stat().st_size, [], 0
    for block in line_blocks(path, torn, size=1000):
        lines += block.count(b"\n")
        with open(path, "a") as file:
            file.write("12, 0\n1001, 5, 0, 512, 0\n")
    assert path.stat().st_size > before
    assert lines == 1000
    assert torn == [str(path)]


def test_half_a_line_at_the_end_is_said(tmp_path):
    write(tmp_path, "P_lat.1.log", [(t, 5, 0, 512, 0) for t in range(10)])
    with open(tmp_path / "P_lat.1.log", "a") as file:
        file.write("11, 5")
    table = read_rollup(tmp_path)
    assert table["count"].sum() == 10
    assert table.attrs["torn"] == [str(tmp_path / "P_lat.1.log")]


@pytest.mark.parametrize("kernel", ["numba", "python"])
@pytest.mark.parametrize(
    ("name", "line", "says"),
    [
        ("P_lat.1.log", "5, 5, 7, 512, 0", "line 40001 is '5, 5, 7, 512, 0'"),
        ("P_lat.1.log", "5, 5, 0, 512", "line 40001 is"),
        ("P_lat.1.log", "5, -5, 0, 512, 0", "line 40001 is"),
        ("P_lat.1.log", f"5, {2**45}, 0, 512, 0", "line 40001 is .* holds a number too large"),
        ("P_clat_hist.1.log", "5, 5, 0, 512, 0", "line 1 is .* is no histogram of fio 3"),
    ],
)
def test_a_damaged_line_is_named_wherever_it_is(kernel, name, line, says, tmp_path):
    path = write(tmp_path, name, [(t, 5, 0, 512, 0) for t in range(40_000)])
    with open(path, "a") as file:
        file.write(line + "\n7, 5, 0, 512, 0\n")
    with pytest.raises(FioLogError, match=rf"{name}: {says}"):
        read_rollup(path, kernel=kernel)


def test_too_much_for_64_bits_is_refused_by_both(tmp_path):
    path = write(tmp_path, "P_lat.1.log", [(5, 2**45 - 1, 0, 512, 0)] * 2**17)
    write(tmp_path, "P_lat.2.log", [(5, 2**45 - 1, 0, 512, 0)] * 10)
    for kernel, workers in itertools.product(("numba", "python"), (1, 2)):  # one counter adds both up, or none does
        with pytest.raises(FioLogError, match=r"P_lat.1.log, .*: .* 64 bits"):
            read_rollup([path, tmp_path / "P_lat.2.log"], kernel=kernel, workers=workers)


def test_what_is_no_log_is_refused(tmp_path):
    with pytest.raises(FioLogError, match="no fio logs"):
        read_rollup(tmp_path)
    with pytest.raises(FioLogError, match="not named like a fio log"):
        read_rollup(tmp_path / "fio.json")
    with pytest.raises(FioLogError, match=r"P_lat\.1\.log: No such file"):
        read_rollup(tmp_path / "P_lat.1.log")
    (tmp_path / "r.parquet").write_text("no")
    with pytest.raises(FioLogError, match=r"r\.parquet: not a saved rollup"):
        read_rollup(tmp_path / "r.parquet")
    (tmp_path / pushed_name("vm1")).write_text("no")
    with pytest.raises(FioLogError, match=r"rollup\.vm1\.json\.gz: not a rollup made on a VM"):
        read_rollup(tmp_path)


def test_empty_logs_are_an_empty_table(tmp_path):
    (tmp_path / "P_slat.1.log").write_text("")
    table = read_rollup(tmp_path)
    assert table.empty
    assert count_logs([tmp_path / "P_slat.1.log"]).parts[("localhost", "P", "slat")][0].shape == (0, 4)
