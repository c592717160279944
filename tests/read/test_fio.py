"""fio's JSON: each capture, in each form that it comes in, gives the numbers that json gives.

The captures are of fio 3.33 (tests/data/fio). Other versions are made from them.
"""

import copy
import gzip
import json
import re
from math import isnan, nan
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zstandard

import hcilib as hci
from hcilib import read_fio
from hcilib.model import compressed
from hcilib.model.fio_buckets import MIDPOINTS
from hcilib.read.fio import fio
from hcilib.read.fio.fio import FioOutputError
from hcilib.read.fio.table import read_fio_bins
from tests.read.made import CASES, FIO, result, written

RAW = {case: (FIO / f"{case}.json").read_bytes() for case in CASES}
NOISE = b'fio: something {"a": 1} and /proc/{nope}\n{ not json\n{\n{"some": "object"}\nJobs: 1\r'
TAIL = b"\nDisk stats (read/write):\n  vda: ios=0/0\n"
WAYS = {
    "plain": bytes,
    "byte order mark": lambda raw: b"\xef\xbb\xbf" + raw,
    "UTF-16": lambda raw: raw.decode().encode("utf-16"),
    "two frames": lambda raw: zstandard.compress(raw[:999]) + zstandard.compress(raw[999:]),
    "gzip": gzip.compress,
    "carriage returns": lambda raw: raw.replace(b"\n", b"\r\n"),
    "text around": lambda raw: NOISE + raw.lstrip() + TAIL,
    "no UTF-8 before": lambda raw: b"-like \xe9 text\n" + raw,
    "stamped lines": lambda raw: re.sub(rb"(?m)^", b"2026-01-31T10:00:00.123456Z ", raw),
    "twice": lambda raw: raw.replace(b'"total_ios" : ', b'"total_ios" : 1') + raw,
    "behind one that was cut": lambda raw: raw[:2000] + b"\n" + raw,
    "nan where nothing is due": lambda raw: re.sub(
        rb'("\w*_(?:dev|agg)" : )[\d.]+', rb"\1-nan", raw
    ),
    "large": bytes,
    "large and packed": zstandard.compress,
}


def documents(case: str) -> list[dict]:
    """The documents of a capture, read without hcilib."""
    text = RAW[case].decode()
    starts = [found.start() for found in re.finditer(r'^\{\n  "fio version"', text, re.MULTILINE)]
    return [json.JSONDecoder().raw_decode(text, start)[0] for start in starts]


def document(case: str) -> dict:
    return documents(case)[-1]


def reports(doc: dict) -> list[dict]:
    return doc.get("client_stats", doc.get("jobs"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_a_capture_gives_the_numbers_of_its_file_in_every_form(case, way, tmp_path, monkeypatch):
    """Those are held by the nets."""
    path, plain = made(tmp_path, WAYS[way](RAW[case])), FIO / f"{case}.json"
    tables = [(read_fio, read_fio(plain)), (read_fio_bins, read_fio_bins(plain))]
    if way.startswith("large"):
        monkeypatch.setattr(compressed, "LARGEST", 1000)
        monkeypatch.setattr(fio, "LARGEST", 1000)
        if len(documents(case)) > 1 or (tables[0][1].empty and len(RAW[case]) > 1000):
            with pytest.raises(FioOutputError, match=re.escape(str(path))):
                read_fio(path)
            return
    for read, expected in tables:
        pd.testing.assert_frame_equal(read(path), expected)
    if way == "text around":
        noise = read_fio(path).attrs["noise"]
        assert [text for text in ("/proc/{nope}", "Disk stats") if text not in noise] == []


def test_only_a_report_that_can_be_the_others_future_replaces_it(tmp_path):
    sums = {"jobname": "All clients", "groupid": 0}

    def rows_with(change: str, *more: dict) -> int:
        doc = document("one_host")
        first = doc["client_stats"][0]
        second = copy.deepcopy(first)
        read, bins = second["read"], second["read"]["clat_ns"]["bins"]
        if change != "none":
            times = 1.03 if change == "soon" else 2
            read["runtime"] *= times
            read["iops"] /= times
        bins[list(bins)[1]] -= change == "bucket"
        read["clat_ns"]["max"] -= change == "extreme"
        second["ctx"] -= change == "count"
        doc["client_stats"] = [first, second, *more]
        return len(read_fio(made(tmp_path, doc)))

    assert [rows_with("soon"), rows_with("later", sums), rows_with("soon", sums)] == [1, 1, 2]
    rows = {change: rows_with(change) for change in ("later", "none", "bucket", "extreme", "count")}
    assert rows == {"later": 1, "none": 2, "bucket": 2, "extreme": 2, "count": 2}


# --- options


def clients(folder: Path, options: str) -> pd.DataFrame:
    """Read the capture of four hosts with other global options."""
    return read_fio(
        made(folder, re.sub(rb'"global options" : \{[^}]*\}', options.encode(), RAW["healthy"]))
    )


def test_options_of_jobs_stand_over_global_ones_as_text(tmp_path):
    doc = document("local")
    doc["global options"] |= {"rw": "randrw", "iodepth": 8}
    del doc["jobs"][0]["job options"]
    assert set(read_fio(made(tmp_path, doc))["opt_rw"]) == {"randrw"}
    files = RAW["one_host"].replace(b'"disk.img"', b'"a.img",\n"filename" : "b.img"')
    assert read_fio(made(tmp_path, files))["opt_filename"].item() == "a.img:b.img"
    tab = RAW["one_host"].replace(b'"disk.img"', b'"disk\tone.img"')
    assert read_fio(made(tmp_path, tab))["opt_filename"].item() == "disk one.img"


def test_global_options_of_several_clients(tmp_path):
    """Before 3.39 all are in one object: those that differ are nobody's. Later each has its own."""
    table = clients(
        tmp_path,
        '"global options" : {"size": "1m", "size": "1m", "ioengine": "1", "ioengine": "2"}',
    )
    assert (set(table["opt_size"]), table["opt_ioengine"].isna().all()) == ({"1m"}, True)
    each = '{{"hostname": "127.0.200.{n}", "port": 8765, "ioengine": "x", "ioengine": "e{n}"}}'
    own = ", ".join(each.format(n=n) for n in (1, 2, 3))
    table = clients(tmp_path, f'"global options" : [{own}]').set_index("hostname")
    engines = table["opt_ioengine"].fillna("none").sort_index()
    assert engines.tolist() == ["e1", "e2", "e3", "none"]
    assert (set(table["opt_rw"]), "opt_hostname" in table) == ({"randread"}, False)


# --- numbers that are no numbers, or contradict each other

NO_NUMBERS = ("nan", "-nan", "inf", "null", '"x"')
DUE = {name: name for name in ("io_bytes", "bw_bytes", "iops", "runtime", "total_ios")}
DUE |= {"mean": "clat_ns.mean", "max": "clat_ns.max"}
AMOUNTS = DUE | {
    "N": "clat_ns.N",
    "min": "clat_ns.min",
    "short_ios": "short_ios",
    "99.900000": "clat_ns",
}


def with_field(name: str, field: str, value: str) -> bytes:
    """One host's report whose read has another value."""
    text = RAW["one_host"].decode()
    at = text.index('"clat_ns" : {' if "clat" in field else '"read" : {')
    changed, times = re.subn(rf'"{name}" : [\d.]+', f'"{name}" : {value}', text[at:], count=1)
    assert times
    return (text[:at] + changed).encode()


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in DUE for value in NO_NUMBERS if name != "bw_bytes" or "x" in value]
    + [(name, "-1") for name in AMOUNTS],
)
@pytest.mark.parametrize("tail", ["", "\ntail"], ids=["clean", "text behind it"])
def test_what_is_no_amount_where_one_is_due_is_named(name, value, tail, tmp_path):
    path = made(tmp_path, with_field(name, AMOUNTS[name], value) + tail.encode())
    for reader in (read_fio, read_fio_bins):
        with pytest.raises(FioOutputError) as error:
            reader(path)
        for part in (str(path), "'4k-randread'", "127.0.200.1", "read", *AMOUNTS[name].split(".")):
            assert part in str(error.value)


@pytest.mark.parametrize("token", ["nan", "-nan", "inf", "NaN", "-Infinity", "null"])
def test_a_number_that_fio_does_not_have_is_missing(token, tmp_path):
    """It prints nan as a deviation, and in directions without I/O."""
    text = re.sub(
        r'"(stddev|usr_cpu|99.900000)" : [\d.]+', rf'"\1" : {token}', RAW["one_host"].decode()
    )
    head, write = text[: (at := text.index('"write" : {'))], text[at:]
    idle = re.sub(r'"(iops|mean|bw|runtime)" : 0[.0]*', rf'"\1" : {token}', write)
    row, plain = (
        read_fio(path).iloc[0]
        for path in (made(tmp_path, (head + idle).encode()), FIO / "one_host.json")
    )
    assert row[["clat_ns_stddev", "usr_cpu"]].isna().all()
    assert isnan(row.get("clat_ns_p99.9", nan))
    assert "clat_ns_p0" not in row
    assert row[["iops", "total_ios", "clat_ns_mean"]].equals(
        plain[["iops", "total_ios", "clat_ns_mean"]]
    )


# --- other versions


def test_fields_that_other_builds_leave_out(tmp_path):
    doc, modern = document("healthy"), read_fio(FIO / "healthy.json")
    for own in (report[ddir] for report in reports(doc) for ddir in fio.DDIRS):
        del own["bw_bytes"], own["clat_ns"]["N"]
    old = read_fio(made(tmp_path, doc))
    np.testing.assert_allclose(old["bw_bytes"], modern["bw_bytes"], atol=1024)
    assert old[["io_bytes", "lat_ns_mean"]].equals(modern[["io_bytes", "lat_ns_mean"]])


# --- histograms


def test_a_percentile_in_the_last_bucket_is_missing(tmp_path):
    """It ends nowhere: fio prints 17.1 s for an I/O of a minute (R1)."""
    last = max(MIDPOINTS)
    of_all = result()["jobs"][0]["read"]["lat_ns"]
    shares = of_all["percentile"] | dict.fromkeys(("99.000000", "99.900000"), last)
    slow = of_all["N"] // 50
    bins = {"100000": of_all["N"] - slow, str(last): slow}
    beyond = of_all | {"max": 41e9, "percentile": shares, "bins": bins}
    path = made(tmp_path, result({"ramp_time": "60"}, {"lat_ns": beyond}))
    row = read_fio(path).iloc[0]
    assert row[["lat_ns_p99", "lat_ns_p99.9"]].isna().all()
    assert row["lat_ns_p50"] < row["lat_ns_p95"]


# --- files that hold no whole result


def test_every_cut_of_a_file_is_refused_with_its_line(tmp_path):
    raw = RAW["dirty"]
    start = raw.index(b'{\n  "fio version"')
    for size in np.linspace(start + 20, len(raw.rstrip()) - 1, 60).astype(int):
        with pytest.raises(FioOutputError, match="broken off at line") as error:
            read_fio(made(tmp_path, raw[:size]))
        [line] = re.findall(r"at line (\d+)", str(error.value))
        assert abs(int(line) - raw[:size].count(b"\n")) <= 1


# --- flushes


def flushes(path: Path) -> tuple[float, float]:
    [row] = hci.read_results(path, system="s").to_dict("records")
    return row["sync_lat_ns"], row["sync_p99_ns"]


def test_flushes_of_all_jobs_are_one_distribution(tmp_path):
    mean, p99 = flushes(FIO / "sync/fdatasync.json")
    doc = json.loads((FIO / "sync/fdatasync.json").read_text())
    timed = [job["sync"]["lat_ns"] for job in doc["jobs"]]
    each = sorted(int(ns) for one in timed for ns, n in one["bins"].items() for _ in range(n))
    assert mean == pytest.approx(sum(one["N"] * one["mean"] for one in timed) / len(each))
    assert p99 == each[-(-99 * len(each) // 100) - 1]
    del timed[1]["bins"]
    assert flushes(made(tmp_path, doc)) == pytest.approx((mean, nan), nan_ok=True)


@pytest.mark.parametrize("iodepth", [1, 4])
def test_with_libaio_fios_flush_begins_with_its_write_which_is_taken_out_again(iodepth):
    """A write and its flush take 1 / IOPS at iodepth 1. Deeper, fio does not say which write it
    was."""
    path = FIO / f"sync/libaio-qd{iodepth}.json"
    [write] = [job["write"] for job in json.loads(path.read_text())["jobs"]]
    mean, p99 = flushes(path)
    assert isnan(p99)
    if iodepth == 1:
        assert write["lat_ns"]["mean"] + mean == pytest.approx(1e9 / write["iops"], rel=0.02)
    else:
        assert isnan(mean)


def made(folder: Path, content) -> Path:
    return written(folder / "made.json", content)


def of_fio_2() -> dict:
    """Its bytes are KiB and its times microseconds; builds lie about versions."""
    doc = document("healthy")
    for own in (report[ddir] for report in reports(doc) for ddir in fio.DDIRS):
        del own["bw_bytes"]
        for kind in ("slat", "clat", "lat"):
            own[kind] = own.pop(f"{kind}_ns")
    return doc


def of_both_latencies() -> dict:
    """Completion and total latency are not one distribution."""
    doc = document("healthy")
    read = doc["client_stats"][1]["read"]
    read["lat_ns"]["bins"] = read["clat_ns"].pop("bins")
    return doc


def with_bins(bins: bytes) -> bytes:
    return re.sub(rb'"bins" : \{[^}]*\}', b'"bins" : ' + bins, RAW["one_host"])


REFUSED = {
    "fio 2": (read_fio, of_fio_2(), "fio 3"),
    "bins of two latencies": (read_fio_bins, of_both_latencies(), "lat_percentiles"),
    "a bin of a word": (read_fio_bins, with_bins(b'{"10": 1, "twelve": 2}'), "bins"),
    "a list as a bin": (read_fio_bins, with_bins(b'{"10": [1]}'), "bins"),
    "half an I/O": (read_fio_bins, with_bins(b'{"10": 1.5}'), "bins"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_output_of_fio_3_is_named(case, tmp_path):
    read, content, names = REFUSED[case]
    with pytest.raises(FioOutputError, match=rf"made\.json.*{names}"):
        read(made(tmp_path, content))


def test_reports_of_which_nobody_can_say_which_are_final_are_refused(tmp_path):
    """A report in between that is no one's future and whose future is none: as of two runs."""
    doc = document("status_interval")
    stranger = copy.deepcopy(doc["client_stats"][0])
    stranger["read"]["total_ios"] += 10**9
    doc["client_stats"].insert(-1, stranger)
    with pytest.raises(FioOutputError, match=r"made\.json.*final"):
        read_fio(made(tmp_path, doc))
