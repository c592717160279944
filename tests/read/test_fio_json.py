"""fio's JSON as tables: captures of fio 3.33 (tests/data/fio) and variants of other versions made from them."""

from __future__ import annotations

import gzip
import json
import math
import re
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from hcilib import FioOutputError, read_fio
from hcilib.model.archives import unpacked
from hcilib.model.fio_buckets import MIDPOINTS, midpoint
from hcilib.read.fio.fio_json import read_fio_bins
from hcilib.read.fio.fio_reports import parse_bins

DATA = unpacked(Path(__file__).parents[1] / "data" / "fio")
CASES = json.loads((DATA / "cases.json").read_text())
WITH_BINS = sorted(set(CASES) - {"bad_option", "plain_json", "local_failed"})


def capture(case: str) -> Path:
    return DATA / f"{case}.json"


def document(case: str) -> dict:
    """The last document of a capture, read without hcilib."""
    text = capture(case).read_text()
    return json.JSONDecoder().raw_decode(text, max(text.rfind('\n{\n  "fio version"') + 1, 0))[0]


def as_file(tmp_path: Path, doc: dict, before: str = "", after: str = "") -> Path:
    path = tmp_path / "made.json"
    path.write_text(before + json.dumps(doc, indent=2) + after)
    return path


# --- the hosts table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", sorted(set(CASES) - {"status_interval"}))
def test_every_report_of_a_capture_is_there_with_its_own_numbers(case):
    """Against the raw JSON: every report but "All clients", every direction with I/O, no other row."""
    doc = document(case)
    reports = [r for r in doc.get("client_stats", doc.get("jobs")) if r["jobname"] != "All clients"]
    table = read_fio(capture(case))
    want = []
    for r in reports:
        busy = [d for d in ("read", "write", "trim") if r.get(d) and r[d]["total_ios"]] or (
            ["mixed"] if "mixed" in r else []
        )
        for ddir in busy or ["write" if "write" in r["job options"]["rw"] else "read"]:
            d = r[ddir]
            want.append(
                (
                    r.get("hostname", "localhost"),
                    r.get("port", 0),
                    r["jobname"],
                    r["groupid"],
                    ddir,
                    r["error"],
                    d["io_bytes"],
                    d["bw_bytes"],
                    d["iops"],
                    d["runtime"],
                    d["total_ios"],
                    r["usr_cpu"],
                )
            )
    columns = ["hostname", "port", "job", "groupid", "ddir", "error",
               "io_bytes", "bw_bytes", "iops", "runtime", "total_ios", "usr_cpu"]  # fmt: skip
    assert [tuple(row) for row in table[columns].itertuples(index=False)] == want
    assert "All clients" not in set(table["job"])


def test_latencies_keep_fios_names_and_are_ns():
    table = read_fio(capture("healthy")).set_index("hostname")
    for report in document("healthy")["client_stats"][:-1]:
        row, read = table.loc[report["hostname"]], report["read"]
        assert row["lat_ns_mean"] == read["lat_ns"]["mean"]
        assert row["clat_ns_stddev"] == read["clat_ns"]["stddev"]
        assert row["clat_ns_N"] == read["clat_ns"]["N"]
        assert row["clat_ns_p99.9"] == read["clat_ns"]["percentile"]["99.900000"]
        assert row["clat_ns_p50"] == read["clat_ns"]["percentile"]["50.000000"]


def test_what_was_not_measured_is_missing_never_zero():
    """psync has no submission latency: fio prints zeros with N 0."""
    table = read_fio(capture("healthy"))
    assert (table["slat_ns_N"] == 0).all()
    assert table[["slat_ns_mean", "slat_ns_max", "slat_ns_min", "slat_ns_stddev"]].isna().all(axis=None)
    assert table["total_err"].isna().all()


def test_a_report_without_io_keeps_a_row_of_its_planned_direction():
    table = read_fio(capture("permission")).set_index("hostname")
    row = table.loc["127.0.200.2"]
    assert (row["ddir"], row["error"], row["total_ios"], row["opt_rw"]) == ("write", 13, 0, "randwrite")
    assert math.isnan(row["clat_ns_mean"])


def test_no_report_at_all_is_an_empty_table_with_its_columns_and_the_reason_in_the_noise():
    table = read_fio(capture("bad_option"))
    assert table.empty
    assert {"hostname", "ddir", "iops", "lat_ns_mean", "opt_rw"} <= set(table.columns)
    assert table["iops"].dtype == "float64"
    assert "Bad option <nosuchoption=1>" in table.attrs["noise"]


# --- repeated reports: clones, hosts listed twice, snapshots ---------------------------------------------------------


def test_interim_snapshots_of_clients_leave_only_the_last():
    reports = [r for r in document("status_interval")["client_stats"] if r["jobname"] != "All clients"]
    assert len(reports) > 4  # the capture holds what it claims
    last = {r["hostname"]: r["read"]["total_ios"] for r in reports}
    table = read_fio(capture("status_interval"))
    assert dict(zip(table["hostname"], table["total_ios"], strict=True)) == last
    assert (table["runtime"] >= 2900).all()


def test_snapshots_are_found_without_bins_too(tmp_path):
    doc = document("status_interval")
    for report in doc["client_stats"]:
        report["read"]["clat_ns"].pop("bins", None)
    assert len(read_fio(as_file(tmp_path, doc))) == 2


def test_snapshots_of_clones_keep_one_report_a_clone(tmp_path):
    doc = document("status_interval")
    doc["client_stats"] = [
        {**r, "job options": {**r.get("job options", {}), "numjobs": "2"}}
        for r in doc["client_stats"]
        for _ in range(2)
    ]
    table = read_fio(as_file(tmp_path, doc))
    assert Counter(table["hostname"]) == {"127.0.200.1": 2, "127.0.200.2": 2}
    assert (table["runtime"] >= 2900).all()


def test_clones_and_hosts_listed_twice_are_not_taken_for_snapshots():
    clones = read_fio(capture("clones"))
    assert sorted(zip(clones["hostname"], clones["clone"], strict=True)) == [
        ("127.0.200.1", 0), ("127.0.200.1", 1), ("127.0.200.2", 0), ("127.0.200.2", 1),
    ]  # fmt: skip
    assert Counter(read_fio(capture("listed_twice"))["hostname"]) == {"127.0.200.1": 1, "127.0.200.2": 2}


def twins(tmp_path, change) -> pd.DataFrame:
    """One report and, behind it, its copy as `change` left it."""
    doc = document("one_host")
    first = doc["client_stats"][0]
    second = json.loads(json.dumps(first))
    change(second)
    doc["client_stats"] = [first, second]
    return read_fio(as_file(tmp_path, doc))


def grow(report: dict) -> None:
    """What a report becomes when its job runs on."""
    report["read"]["runtime"] *= 2
    report["read"]["total_ios"] += 7
    bins = report["read"]["clat_ns"]["bins"]
    bins[next(iter(bins))] += 7


def test_only_a_report_that_can_be_the_others_future_replaces_it(tmp_path):
    def shrink_a_bucket(report):
        grow(report)
        bins = report["read"]["clat_ns"]["bins"]
        bins[list(bins)[1]] -= 1

    def lose_an_extreme(report):
        grow(report)
        report["read"]["clat_ns"]["max"] -= 1

    def count_less(report):
        grow(report)
        report["ctx"] -= 1

    assert len(twins(tmp_path, grow)) == 1
    assert len(twins(tmp_path, lambda report: None)) == 2  # listed twice and equally fast: no time has passed
    for change in (shrink_a_bucket, lose_an_extreme, count_less):
        assert len(twins(tmp_path, change)) == 2


# --- options


def test_job_options_stand_over_global_ones_as_text():
    row = read_fio(capture("mixed70")).iloc[0]
    assert (row["opt_rw"], row["opt_bs"], row["opt_rwmixread"], row["opt_ioengine"]) == ("randrw", "4k", "70", "psync")
    assert (row["opt_runtime"], row["opt_filename"]) == ("2", "disk.img")


def test_global_options_of_clients_that_disagree_are_left_out(tmp_path):
    """fio 3.33 writes all clients' global options into one object; json would keep the last client's for all."""
    text = capture("healthy").read_text()
    first = text.index('"ioengine" : "psync"')
    path = tmp_path / "two.json"
    path.write_text(text[:first] + '"ioengine" : "libaio"' + text[first + len('"ioengine" : "psync"') :])
    table = read_fio(path)
    assert table["opt_ioengine"].isna().all()
    assert (table["opt_size"] == "1m").all()


def test_global_options_of_fio_339_belong_to_their_client(tmp_path):
    doc = document("healthy")
    doc["global options"] = [
        {"hostname": f"127.0.200.{n}", "port": 8765, "ioengine": f"engine{n}", "rw": "write"} for n in (1, 2, 3)
    ]
    table = read_fio(as_file(tmp_path, doc)).set_index("hostname")
    assert table.loc["127.0.200.2", "opt_ioengine"] == "engine2"
    assert pd.isna(table.loc["127.0.200.4", "opt_ioengine"])
    assert (table["opt_rw"] == "randread").all()
    assert "opt_hostname" not in table


def test_repeated_file_names_of_a_job_add_up(tmp_path):
    text = capture("one_host").read_text()
    path = tmp_path / "files.json"
    path.write_text(text.replace('"filename" : "disk.img"', '"filename" : "a.img",\n"filename" : "b.img"'))
    assert read_fio(path)["opt_filename"].item() == "a.img:b.img"


def test_job_options_may_be_absent(tmp_path):
    doc = document("local")
    doc["global options"]["rw"] = "randrw"
    del doc["jobs"][0]["job options"]
    assert set(read_fio(as_file(tmp_path, doc))["opt_rw"]) == {"randrw"}


# --- the same document in other wrappings

NOISE = 'fio: something {"a": 1} and /proc/{nope}\n{ not json\n{\n{"some": "object"}\nJobs: 1 (f=1): [r(1)]\r'


def wrapped(raw: bytes) -> dict[str, tuple[str, bytes]]:
    text = raw.decode()
    return {
        "bom": ("x.json", b"\xef\xbb\xbf" + raw),
        "utf16": ("x.json", text.encode("utf-16")),
        "zst": ("x.json.zst", zstandard.compress(raw)),
        "zst_in_two_frames": ("x.json.zst", zstandard.compress(raw[:999]) + zstandard.compress(raw[999:])),
        "gz": ("x.json.gz", gzip.compress(raw)),
        "renamed_zst": ("x.json", zstandard.compress(raw)),
        "crlf": ("x.json", text.replace("\n", "\r\n").encode()),
        "noise": ("x.json", NOISE.encode() + raw.lstrip() + b"\nDisk stats (read/write):\n  vda: ios=0/0\n"),
        "noise_not_utf8": ("x.json", b"\xff\xfe-like \xe9 text\n"[2:] + raw),
        "one_line": ("x.json", b"note: on one line " + json.dumps(json.loads(raw)).encode()),
        "twice": ("x.json", raw.replace(b'"total_ios" : ', b'"total_ios" : 1') + raw),
    }


@pytest.mark.parametrize("how", sorted(wrapped(b'{"fio version": "fio-3.33"}')))
def test_wrappings_change_nothing(how, tmp_path):
    name, raw = wrapped(capture("mixed70").read_bytes())[how]
    path = tmp_path / name
    path.write_bytes(raw)
    assert_frame_equal(read_fio(path), read_fio(capture("mixed70")), check_exact=True)
    assert_frame_equal(read_fio_bins(path), read_fio_bins(capture("mixed70")))


def test_noise_is_kept_on_both_sides(tmp_path):
    name, raw = wrapped(capture("mixed70").read_bytes())["noise"]
    (tmp_path / name).write_bytes(raw)
    noise = read_fio(tmp_path / name).attrs["noise"]
    assert "/proc/{nope}" in noise
    assert "Disk stats" in noise


def test_keys_that_patched_builds_leave_out(tmp_path):
    doc = document("mixed70")
    for report in doc["client_stats"]:
        del report["write"], report["trim"], report["usr_cpu"]
    del doc["disk_util"]
    table = read_fio(as_file(tmp_path, doc))
    assert set(table["ddir"]) == {"read"}
    assert table["usr_cpu"].isna().all()
    assert table.attrs["disk_util"] == []


NO_NUMBERS = ["nan", "-nan", "inf", "NaN", "-Infinity", "1e999", "null"]
DUE = {"io_bytes": "io_bytes", "bw_bytes": "bw_bytes", "iops": "iops", "runtime": "runtime", "total_ios": "total_ios",
       "mean": "clat_ns.mean", "max": "clat_ns.max", "N": "clat_ns.N", "99.900000": "clat_ns.99.900000"}  # fmt: skip


@pytest.mark.parametrize("name", DUE)
@pytest.mark.parametrize("token", NO_NUMBERS)
def test_what_is_no_number_where_one_is_due_is_named_with_field_and_file(token, name, tmp_path):
    """It was read as missing, and a sum took it for 0."""
    path = tmp_path / "nan.json"
    read = capture("one_host").read_text().index('"read" : {')
    text = capture("one_host").read_text()
    changed = re.sub(rf'"{name}" : [1-9][\d.]*', f'"{name}" : {token}', text[read:], count=1)
    path.write_text(text[:read] + changed)
    for shown in (read_fio, read_fio_bins):
        with pytest.raises(FioOutputError, match=rf"nan\.json.*\[0\]\.read\.{DUE[name]} is .*expected a number"):
            shown(path)


AMOUNTS = DUE | {"min": "clat_ns.min", "stddev": "clat_ns.stddev", "short_ios": "short_ios", "bw": "bw"}


@pytest.mark.parametrize("name", AMOUNTS)
@pytest.mark.parametrize("tail", ["", "\ntail"], ids=["clean", "text behind it"])
def test_an_amount_below_zero_is_named_with_file_job_and_field(name, tail, tmp_path):
    """A table of -42,388 IOPS was averaged like any other."""
    path = tmp_path / "below.json"
    text = capture("one_host").read_text()
    read = text.index('"clat_ns" : {' if "clat" in AMOUNTS[name] else '"read" : {')
    changed, times = re.subn(rf'"{name}" : ([\d.]+)', rf'"{name}" : -1\1', text[read:], count=1)
    assert times
    path.write_text(text[:read] + changed + tail)
    [report] = document("one_host")["client_stats"][:1]
    for shown in (read_fio, read_fio_bins):
        with pytest.raises(FioOutputError) as error:
            shown(path)
        for part in ("below.json", repr(report["jobname"]), report["hostname"], f"[0].read.{AMOUNTS[name]} is -1"):
            assert part in str(error.value)


def test_no_amount_of_an_idle_direction_or_a_job_is_below_zero(tmp_path):
    text = capture("one_host").read_text()
    head, write = text[: (at := text.index('"write" : {'))], text[at:]
    for changed in (
        head + re.sub(r'"iops" : 0[.0]*', '"iops" : -5', write, count=1),
        re.sub(r'"usr_cpu" : ', '"usr_cpu" : -', text, count=1),
    ):
        assert changed != text
        (path := tmp_path / "below.json").write_text(changed)
        with pytest.raises(FioOutputError, match=r"\[0\]\.(write\.iops|usr_cpu) is -.*below 0"):
            read_fio(path)


@pytest.mark.parametrize("token", NO_NUMBERS)
def test_a_number_that_fio_does_not_have_is_missing(token, tmp_path):
    """It prints nan as a deviation, and in directions without I/O."""
    path = tmp_path / "nan.json"
    text = capture("one_host").read_text()
    text = re.sub(r'"(stddev|bw_dev|iops_stddev|bw_agg|usr_cpu)" : [\d.]+', rf'"\1" : {token}', text)
    head, write = text[: (at := text.index('"write" : {'))], text[at:]
    path.write_text(head + re.sub(r'"(iops|mean|bw|runtime)" : 0[.0]*', rf'"\1" : {token}', write))
    row, plain = read_fio(path).iloc[0], read_fio(capture("one_host")).iloc[0]
    assert math.isnan(row["clat_ns_stddev"])
    assert math.isnan(row["usr_cpu"])
    assert row[["iops", "total_ios", "clat_ns_mean"]].equals(plain[["iops", "total_ios", "clat_ns_mean"]])


def test_a_control_character_in_a_name(tmp_path):
    path = tmp_path / "tab.json"
    path.write_text(capture("one_host").read_text().replace('"disk.img"', '"disk\tone.img"'))
    assert read_fio(path)["opt_filename"].item() == "disk\tone.img"


# --- fio 2.x


def legacy(doc: dict) -> dict:
    """The same result as fio 2.x writes it: microseconds, KiB, bins by index, percentiles padded with 0.00."""
    doc["fio version"] = "fio-2.2.10"
    for report in doc.get("jobs", doc.get("client_stats")):
        for ddir in ("read", "write", "trim"):
            d = report[ddir]
            d["io_bytes"] = d.pop("io_kbytes")
            for key in ("bw_bytes", "total_ios", "short_ios", "drop_ios"):
                d.pop(key)
            for kind in ("slat", "clat", "lat"):
                old = d.pop(f"{kind}_ns")
                new = {s: old[s] / 1000 for s in ("min", "max", "mean", "stddev")}
                if kind == "clat":
                    new["percentile"] = {q: v // 1000 for q, v in old.get("percentile", {}).items()} | {"0.00": 0}
                d[kind] = new
    return doc


def test_fio_2_is_converted_to_ns_and_bytes(tmp_path):
    modern = read_fio(capture("healthy"))
    old = read_fio(as_file(tmp_path, legacy(document("healthy")), before="fio: this is fio 2\n"))
    assert list(old["hostname"]) == list(modern["hostname"])
    np.testing.assert_allclose(old["lat_ns_mean"], modern["lat_ns_mean"])
    np.testing.assert_allclose(old["clat_ns_p99"], modern["clat_ns_p99"], atol=1000)
    np.testing.assert_allclose(old["io_bytes"], modern["io_bytes"], atol=1024)
    np.testing.assert_allclose(old["bw_bytes"], modern["bw_bytes"], atol=1024)
    assert (old["runtime"] == modern["runtime"]).all()
    assert old["total_ios"].isna().all()
    assert old["slat_ns_mean"].isna().all()
    assert "clat_ns_p0" not in old
    assert "clat_ns_p" not in old


def test_fio_30_has_ns_but_no_bw_bytes(tmp_path):
    doc = document("healthy")
    for report in doc["client_stats"]:
        for ddir in ("read", "write", "trim"):
            del report[ddir]["bw_bytes"]
    old, modern = read_fio(as_file(tmp_path, doc)), read_fio(capture("healthy"))
    np.testing.assert_allclose(old["bw_bytes"], modern["bw_bytes"], atol=1024)
    assert (old["io_bytes"] == modern["io_bytes"]).all()
    assert (old["lat_ns_mean"] == modern["lat_ns_mean"]).all()


def test_bins_of_fio_2_are_refused(tmp_path):
    doc = legacy(document("local"))
    doc["jobs"][0]["read"]["clat"]["bins"] = {"FIO_IO_U_PLAT_BITS": 6, "5": 2}
    with pytest.raises(FioOutputError, match="fio 2"):
        read_fio_bins(as_file(tmp_path, doc))


# --- bins


def plain_bins(case: str) -> Counter:
    """The same histogram by loops over the standard library's json."""
    doc, counts = document(case), Counter()
    for r in doc.get("client_stats", doc.get("jobs")):
        if r["jobname"] != "All clients":
            for ddir in ("read", "write", "trim", "mixed"):
                for kind in ("lat_ns", "clat_ns"):
                    bins = r.get(ddir, {}).get(kind, {}).get("bins")
                    if bins and not (ddir == "mixed" and "read" in r):
                        for lat, n in bins.items():
                            key = (r.get("hostname", "localhost"), r.get("port", 0), r["jobname"], r["groupid"], ddir)
                            counts[(*key, int(lat))] += n
                        break
    return counts


@pytest.mark.parametrize("case", sorted(set(WITH_BINS) - {"status_interval"}))
def test_bins_against_plain_json(case):
    table = read_fio_bins(capture(case))
    keys = ["hostname", "port", "job", "groupid", "ddir", "lat_ns"]
    assert {tuple(r[:-1]): r[-1] for r in table[[*keys, "count"]].itertuples(index=False)} == plain_bins(case)
    assert not table.duplicated(keys).any()
    assert table.attrs["latency"] == ("lat" if case == "lat_percentiles" else "clat")


@pytest.mark.parametrize("case", sorted(set(WITH_BINS) - {"clones", "listed_twice"}))
def test_bins_reproduce_fios_own_percentiles_exactly(case):
    """First bucket whose cumulative count reaches the share (METHODS section 3), for every host, direction and q."""
    bins = read_fio_bins(capture(case))
    kind, checked = bins.attrs["latency"], 0
    for host in read_fio(capture(case)).to_dict("records"):
        of_host = bins[(bins[["hostname", "port", "job", "groupid", "ddir"]] == [
            host["hostname"], host["port"], host["job"], host["groupid"], host["ddir"]]).all(axis=1)]  # fmt: skip
        if of_host.empty:
            continue
        reached = of_host["count"].cumsum().to_numpy()
        assert reached[-1] == host[f"{kind}_ns_N"]
        for column in (c for c in host if c.startswith(f"{kind}_ns_p")):
            q = float(column.rpartition("_p")[2])
            own = of_host["lat_ns"].iloc[np.searchsorted(reached, math.ceil(q / 100 * reached[-1]))]
            assert own == host[column], column
            checked += 1
    assert checked >= 3


def test_clones_are_merged_and_snapshots_are_not():
    clones = read_fio_bins(capture("clones")).groupby("hostname")["count"].sum()
    assert clones.to_dict() == read_fio(capture("clones")).groupby("hostname")["clat_ns_N"].sum().to_dict()
    last = read_fio_bins(capture("status_interval")).groupby("hostname")["count"].sum()
    assert last.to_dict() == read_fio(capture("status_interval")).set_index("hostname")["clat_ns_N"].to_dict()


@pytest.mark.parametrize("case", ["plain_json", "bad_option"])
def test_no_bins_is_an_empty_table_that_says_so(case):
    table = read_fio_bins(capture(case))
    assert table.empty
    assert list(table.columns) == ["hostname", "port", "job", "groupid", "ddir", "lat_ns", "count"]
    assert table.attrs["latency"] is None


def test_completion_and_total_latency_are_not_mixed(tmp_path):
    doc = document("healthy")
    read = doc["client_stats"][1]["read"]
    read["lat_ns"]["bins"] = read["clat_ns"].pop("bins")
    with pytest.raises(FioOutputError, match="lat and others of clat"):
        read_fio_bins(as_file(tmp_path, doc))


def test_damaged_bins_are_named(tmp_path):
    path = tmp_path / "bins.json"
    doc = document("one_host")
    doc["client_stats"][0]["read"]["clat_ns"]["bins"] = {"10": 1, "twelve": 2}
    path.write_text(json.dumps(doc))
    with pytest.raises(FioOutputError, match=r"bins\.json: latency bins"):
        read_fio_bins(path)


def test_bucket_midpoints_are_fios():
    """plat_idx_to_val by hand: exact below 128, then 64 buckets an octave, midpoint up."""
    index = np.array([0, 1, 64, 127, 128, 129, 191, 192, 200])
    assert [midpoint(one) for one in index.tolist()] == [0, 1, 64, 127, 129, 131, 255, 258, 290]


def test_every_bucket_of_a_capture_is_one_of_fios():
    lat = read_fio_bins(capture("mixed70"))["lat_ns"].unique()
    assert set(lat) <= set(MIDPOINTS)


@example({}, 0)
@given(st.dictionaries(st.integers(0, 2**62), st.integers(0, 2**62)), st.integers(0, 4))
def test_parse_bins_is_json(bins, indent):
    lat, count = parse_bins(json.dumps({str(k): v for k, v in bins.items()}, indent=indent or None).encode())
    assert dict(zip(lat.tolist(), count.tolist(), strict=True)) == bins


# --- fast path and tolerant path

number = st.one_of(st.none(), st.integers(0, 2**53), st.floats(0, 1e12))
latency = st.fixed_dictionaries({}, optional={
    "min": number, "max": number, "mean": number, "N": number,
    "percentile": st.dictionaries(st.sampled_from(["1.000000", "50.000000", "99.990000"]), st.integers(0, 10**12)),
    "bins": st.dictionaries(st.integers(0, 10**9).map(str), st.integers(0, 10**6)),
})  # fmt: skip
direction = st.fixed_dictionaries({"iops": number}, optional={
    "io_bytes": number, "io_kbytes": number, "bw": number, "bw_bytes": number, "total_ios": number,
    "clat_ns": latency, "clat": latency, "lat": latency,
})  # fmt: skip
report = st.fixed_dictionaries(
    {"jobname": st.text(max_size=8), "hostname": st.sampled_from(["a", "b"])},
    optional={"read": direction, "write": direction, "mixed": direction, "error": number, "port": st.integers(1, 9),
              "job options": st.dictionaries(st.sampled_from(["rw", "bs", "numjobs"]), st.text(max_size=4))},
)  # fmt: skip


@given(st.lists(report, min_size=1, max_size=4), st.sampled_from(["jobs", "client_stats"]), st.sampled_from([None, 2]))
def test_both_paths_give_the_same_tables(tmp_path, reports, shape, indent):
    """Clean output is decoded at once; behind a line of text the scan finds the document first."""
    clean, dirty = tmp_path / "clean.json", tmp_path / "dirty.json"
    text = json.dumps({"fio version": "fio-3.33", shape: reports}, indent=indent)
    clean.write_text(text)
    dirty.write_text("<vm> a note with a { brace\n" + text + "\ntail {\n")
    try:
        table = read_fio(clean)
    except FioOutputError:
        with pytest.raises(FioOutputError, match="expected a number"):
            read_fio(dirty)
        return
    assert_frame_equal(table, read_fio(dirty))
    try:
        bins = read_fio_bins(clean)
    except FioOutputError:
        with pytest.raises(FioOutputError):
            read_fio_bins(dirty)
    else:
        assert_frame_equal(bins, read_fio_bins(dirty))


# --- files that hold no result


def test_every_cut_of_a_file_is_refused_with_its_line(tmp_path):
    raw = capture("dirty").read_bytes()
    start, path = raw.index(b'{\n  "fio version"'), tmp_path / "cut.json"
    began = time.process_time()
    for size in np.linspace(start + 20, len(raw.rstrip()) - 1, 60).astype(int):
        path.write_bytes(raw[:size])
        with pytest.raises(FioOutputError, match="broken off at line") as error:
            read_fio(path)
        line = int(str(error.value).split("broken off at line ")[1].split()[0])
        assert raw[:size].count(b"\n") - 1 <= line <= raw[:size].count(b"\n") + 1
    assert time.process_time() - began < 5


def test_a_complete_document_behind_a_cut_off_one_is_the_result(tmp_path):
    """Two runs into one file, the first of them killed."""
    whole = capture("one_host").read_text()
    path = tmp_path / "two.json"
    path.write_text(whole[:2000] + "\n" + whole)
    table = read_fio(path)
    assert_frame_equal(table, read_fio(capture("one_host")))
    assert '"fio version"' in table.attrs["noise"]
