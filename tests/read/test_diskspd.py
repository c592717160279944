"""DiskSPD's results as fio's tables: every number again by the standard library, from the XML of the same run."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from math import isnan
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from hcilib.model.fio_buckets import MIDPOINTS
from hcilib.read.diskspd.diskspd import DiskspdOutputError, _bucket, read_diskspd, read_diskspd_bins
from hcilib.read.fio.fio_json import read_fio
from tests.needs import examples

DATA = Path(__file__).parents[1] / "data" / "diskspd"
FIO = Path(__file__).parents[1] / "data" / "fio"
FORMATS = ("xml", "txt")


RUNS = sorted(file.stem for file in DATA.glob("*.xml"))
CASES = [(name, kind) for name in RUNS for kind in FORMATS]


def result(name: str, kind: str = "xml") -> Path:
    return DATA / f"{name}.{kind}"


def source(name: str, kind: str = "xml") -> str:
    return result(name, kind).read_bytes().decode()


def written(tmp_path: Path, content: str | bytes, name: str = "out.xml") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def outcome(path: Path, read=read_diskspd) -> pd.DataFrame | None:
    """The table, or None after an error that names the file."""
    try:
        return read(path)
    except DiskspdOutputError as error:
        message = str(error)
    assert message.startswith(str(path))
    return None


def spans(name: str) -> list[ET.Element]:
    return ET.fromstring(source(name)).findall("TimeSpan")


def numbers(name: str) -> list[tuple]:
    """Return every row that the table is to have, and its seconds, I/Os, bytes, mean and deviation of latency in ms."""
    rows = []
    for groupid, span in enumerate(spans(name)):
        seconds = float(span.findtext("TestTimeSeconds", "nan"))
        for position, thread in enumerate(span.findall("Thread")):
            for target in thread.findall("Target"):
                for ddir in ("Read", "Write"):
                    latency = [
                        float(target.findtext(tag, "nan"))
                        for tag in (f"Average{ddir}LatencyMilliseconds", f"{ddir}LatencyStdev")
                    ]
                    ios, size = (int(target.findtext(f"{ddir}{what}")) for what in ("Count", "Bytes"))
                    row = (groupid, int(thread.findtext("Id", str(position))), target.findtext("Path"), ddir.lower())
                    rows += [(row, seconds, ios, size, *latency)] if ios else []
    return rows


def percentiles(name: str, ddir: str, groupid: int = 0) -> dict[str, float]:
    """Return the printed percentiles of a timespan in ms."""
    buckets = spans(name)[groupid].findall("Latency/Bucket")
    return {b.findtext("Percentile"): float(b.findtext(f"{ddir.title()}Milliseconds", "nan")) for b in buckets}


# --- the hosts table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_every_thread_target_and_direction_is_a_row_with_its_own_numbers(name, kind):
    table = read_diskspd(result(name, kind)).query("error == 0")
    expected = numbers(name)
    assert list(zip(table["groupid"], table["thread"], table["job"], table["ddir"], strict=True)) == [
        row for row, *_ in expected
    ]
    assert set(table["hostname"]) == {"VM01"}
    for row, (_, seconds, ios, size, mean_ms, stdev_ms) in zip(table.itertuples(), expected, strict=True):
        assert (row.port, row.total_ios, row.io_bytes) == (0, ios, size)
        assert row.runtime == pytest.approx(1000 * seconds)
        assert row.iops == pytest.approx(ios / seconds, abs=0.005)
        assert row.bw_bytes == pytest.approx(size / ios * row.iops, rel=1e-9)
        assert row.lat_ns_mean == pytest.approx(1e6 * mean_ms, abs=501, nan_ok=True)
        assert row.lat_ns_stddev == pytest.approx(1e6 * stdev_ms, abs=501, nan_ok=True)
        assert np.isnan(mean_ms) or row.lat_ns_N == ios
    assert not table.duplicated(["hostname", "port", "job", "groupid", "clone", "ddir"]).any()


def test_the_columns_are_those_of_fio():
    fio, diskspd = read_fio(FIO / "healthy.json"), read_diskspd(result("no_latency"))
    fixed = [c for c in fio if "_ns_p" not in c and not c.startswith("opt_")]
    assert [c for c in diskspd if c in fixed] == fixed
    usual = ["rw", "bs", "iodepth", "numjobs", "rwmixread", "ioengine", "size", "filename"]
    assert {f"opt_{name}" for name in usual} <= set(diskspd)
    assert {"lat_ns_p50", "lat_ns_p99", "lat_ns_p99.9"} <= set(read_diskspd(result("write_one")))
    for column in ("io_bytes", "bw_bytes", "iops", "runtime", "total_ios", "lat_ns_mean", "slat_ns_mean", "usr_cpu"):
        assert diskspd[column].dtype.kind in "if", column
    assert {type(v) for c in diskspd if c.startswith("opt_") for v in diskspd[c].dropna()} == {str}


def test_xml_and_text_of_one_run_agree():
    for name in RUNS:
        xml, text = (read_diskspd(result(name, kind)) for kind in FORMATS)
        keys = [
            "hostname",
            "job",
            "groupid",
            "clone",
            "ddir",
            "error",
            "opt_rw",
            "opt_bs",
            "opt_iodepth",
            "opt_rwmixread",
        ]
        pd.testing.assert_frame_equal(xml[keys], text[keys])
        np.testing.assert_allclose(xml["iops"], text["iops"], rtol=1e-3)
        assert xml.attrs["outstanding"].keys() == text.attrs["outstanding"].keys()
        for groupid, total in xml.attrs["outstanding"].items():
            assert text.attrs["outstanding"][groupid] == pytest.approx(total, nan_ok=True), name


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("name", "total", "depths"),
    [
        ("mixed", 2 * 2 * 8, {8.0}),
        ("write_one", 32, {32.0}),
        ("no_latency", 3 * 4, {4.0}),
        ("pool_per_target", 20, {2.0}),  # the wiki's example: two threads, five files, two each
        ("pool", 2 * 8, {2.0, 4.0}),  # -O8 a thread, shared 1:1:2
        ("two_streams", 2 * 4 + 1, {4.0, 1.0}),
    ],
)
def test_outstanding_is_per_thread_and_target_or_per_thread(name, total, depths, kind):
    table = read_diskspd(result(name, kind))
    assert table.attrs["outstanding"] == {0: total}
    threads = table.drop_duplicates(["job", "clone"])
    assert threads["opt_iodepth"].astype(float).sum() == total
    assert set(threads["opt_iodepth"].astype(float)) == depths


@pytest.mark.parametrize("kind", FORMATS)
def test_settings_carry_fios_names(kind):
    mixed, one = read_diskspd(result("mixed", kind)), read_diskspd(result("write_one", kind))
    assert set(mixed["opt_rwmixread"]) == {"70"}, "-w30 is 30 % writes"
    assert set(mixed["opt_rw"]) == {"randrw"}
    assert set(mixed["opt_numjobs"]) == {"2"}
    assert set(mixed["opt_filename"]) == {"C:\\a (1).dat", "D:\\b.dat"}
    assert set(mixed["opt_direct"] + mixed["opt_sync"]) == {"11"}
    assert one[["opt_rw", "opt_bs", "opt_rwmixread", "opt_runtime", "opt_ramp_time"]].iloc[0].tolist() == [
        "write",
        "8192",
        "0",
        "5",
        "5",
    ]
    assert set(read_diskspd(result("pool_per_target", kind))["opt_percentage_random"]) == {"40"}
    assert read_diskspd(result("two_timespans", kind))["opt_rate_iops"].tolist()[0] == "500"
    assert set(read_diskspd(result("two_streams", kind)).query("ddir == 'write'")["opt_rw"]) == {"randwrite"}


@pytest.mark.parametrize(
    ("kind", "on", "off"),
    [
        ("xml", "<WriteThrough>true</WriteThrough>", ""),
        ("txt", "hardware write cache disabled, writethrough on", "using hardware write cache, writethrough off"),
    ],
)
def test_writes_through_the_drives_cache_are_no_synchronous_ones(kind, on, off, tmp_path):
    """As DiskSPD 2.0.21 prints -Su, whose tests expect these lines."""
    assert on in source("write_one", kind)
    table = read_diskspd(written(tmp_path, source("write_one", kind).replace(on, off)))
    assert set(table["opt_direct"] + table["opt_sync"]) == {"10"}


@pytest.mark.parametrize("kind", FORMATS)
def test_what_was_not_measured_is_missing_never_zero(kind):
    table = read_diskspd(result("no_latency", kind))
    assert table[[c for c in table if c.startswith(("lat_ns", "clat_ns", "slat_ns"))]].isna().all(axis=None)
    assert set(table["ddir"]) == {"read"}, "no rows of a direction without I/O"
    assert (table["iops"] > 0).all()
    assert table["usr_cpu"].isna().all(), "DiskSPD's CPU is the machine's, not its own"
    assert table.attrs["cpu_pct"] == {0: 12.5}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_timespan_that_was_interrupted_is_kept_and_invalid(kind):
    table = read_diskspd(result("interrupted", kind))
    first, second = (table[table["groupid"] == g] for g in (0, 1))
    assert set(first["error"]) == {0}
    assert second[["ddir", "error", "opt_rw"]].values.tolist() == [["write", 4, "randwrite"]]
    assert second[["iops", "total_ios", "runtime", "lat_ns_mean"]].isna().all(axis=None)
    assert isnan(table.attrs["outstanding"][1])


@pytest.mark.parametrize("kind", FORMATS)
def test_a_thread_without_io_has_one_row_in_its_planned_direction(kind, tmp_path):
    content = source("write_one", kind)
    for counted in ("24600576", "3003"):
        content = re.sub(rf"\b{counted}\b", f"{0:>{len(counted)}}" if kind == "txt" else "0", content)
    table = read_diskspd(written(tmp_path, content.replace("599.40", "  0.00")))
    assert table[["job", "ddir", "iops", "total_ios", "error"]].values.tolist() == [["#1", "write", 0.0, 0, 0]]
    assert isnan(table["lat_ns_mean"][0]), "AvgLat without I/O is no latency"


def test_a_thread_pool_may_weigh_a_target_differently_in_one_thread(tmp_path):
    special = "<ThreadTargets><ThreadTarget><Thread>1</Thread><Weight>6</Weight></ThreadTarget></ThreadTargets>"
    text = source("pool").replace("<Weight>2</Weight>", f"<Weight>2</Weight>{special}")
    table = read_diskspd(written(tmp_path, text)).drop_duplicates(["job", "clone"])
    assert table.loc[table["thread"] == 1, "opt_iodepth"].astype(float).tolist() == [1, 1, 6]
    assert table["opt_iodepth"].astype(float).sum() == 16


def test_the_rate_as_printed_is_used_where_it_has_more_digits_than_the_time(tmp_path):
    text = source("write_one", "txt")
    assert f"{read_diskspd(result('write_one', 'txt'))['iops'].iloc[0]:.2f}" in text
    for counted, few in (("24600576", "   24576"), ("3003", "   3"), ("599.40", "  0.60")):
        text = text.replace(counted, few)
    table = read_diskspd(written(tmp_path, text, "slow.txt"))
    assert table["iops"][0] == pytest.approx(3 / 5.01, rel=1e-12), "0.60 has two digits, 5.01 has three"


# --- percentiles -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_percentiles_of_one_thread_stand_in_its_row(kind):
    printed = percentiles("write_one", "write")
    row = read_diskspd(result("write_one", kind)).iloc[0]
    for share in ("25", "50", "90", "99", "99.9", "99.99"):
        assert row[f"lat_ns_p{share}"] == pytest.approx(1e6 * printed[share], abs=1)
    assert (row["lat_ns_min"], row["lat_ns_max"]) == pytest.approx((1e6 * printed["0"], 1e6 * printed["100"]))


@pytest.mark.parametrize("kind", FORMATS)
def test_percentiles_of_many_threads_are_no_single_rows(kind):
    table = read_diskspd(result("mixed", kind))
    assert (
        table[[c for c in table if c.startswith("lat_ns_p") or c in ("lat_ns_min", "lat_ns_max")]].isna().all(axis=None)
    )


@pytest.mark.parametrize(("name", "kind"), [c for c in CASES if c[0] not in ("no_latency", "interrupted")])
def test_bins_give_every_printed_percentile_back_within_a_bucket(name, kind):
    bins, rows = read_diskspd_bins(result(name, kind)), numbers(name)
    assert bins.attrs["latency"] == "lat"
    for (groupid, ddir), own in bins.groupby(["groupid", "ddir"]):
        assert own["count"].sum() == sum(ios for row, _, ios, *_ in rows if (row[0], row[3]) == (groupid, ddir))
        if own["job"].nunique() > 1:
            continue
        assert own["lat_ns"].is_monotonic_increasing
        counted = own["count"].cumsum().to_numpy()
        printed = percentiles(name, ddir, groupid)
        for share in printed if kind == "xml" else ("25", "50", "75", "90", "95", "99", "99.9"):
            at = np.searchsorted(counted, max(counted[-1] * float(share) / 100 - 1e-9, 1e-9))
            assert own["lat_ns"].to_numpy()[at] == pytest.approx(1e6 * printed[share], rel=1 / 127), share


def test_text_gives_the_distribution_of_each_target_and_xml_only_of_all():
    assert set(read_diskspd_bins(result("mixed", "txt"))["job"]) == {"C:\\a (1).dat", "D:\\b.dat"}
    assert set(read_diskspd_bins(result("mixed", "xml"))["job"]) == {"all targets"}
    assert set(read_diskspd_bins(result("two_streams", "xml"))["job"]) == {"D:\\t.dat"}
    both = [read_diskspd_bins(result("mixed", kind)).groupby("ddir")["count"].sum() for kind in FORMATS]
    pd.testing.assert_series_equal(*both)


def test_without_latency_there_are_no_bins():
    bins = read_diskspd_bins(result("no_latency"))
    assert bins.empty
    assert list(bins) == ["hostname", "port", "job", "groupid", "ddir", "lat_ns", "count"]
    assert bins.attrs["latency"] is None


@pytest.mark.parametrize("value", [0, 1, 63, 64, 127, 128, 129, 999, 123_456, 10**9])
def test_buckets_are_fios(value):
    """Against fio's own layout: the bucket whose midpoint is nearest, from the forward table."""
    midpoints = np.array(MIDPOINTS)
    nearest = midpoints[np.abs(midpoints - value).argmin()]
    assert abs(_bucket(value / 1e6) - value) <= max(abs(nearest - value), value / 128)
    assert _bucket(value / 1e6) in midpoints


def test_a_latency_beyond_fios_last_bucket_is_in_the_last():
    assert _bucket(1e30) == MIDPOINTS[-1]


# --- files as they come ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_byte_order_marks_utf16_and_ansi(kind, encoding, tmp_path):
    content = source("mixed", kind).replace("D:\\b.dat", "D:\\Prüfung.dat")
    table = read_diskspd(written(tmp_path, content.encode(encoding)))
    assert set(table["job"]) == {"C:\\a (1).dat", "D:\\Prüfung.dat"}
    assert table.attrs["noise"] == ""


def test_compressed_results(tmp_path):
    packed = zstandard.compress(result("mixed").read_bytes())
    pd.testing.assert_frame_equal(read_diskspd(written(tmp_path, packed)), read_diskspd(result("mixed")))


@pytest.mark.parametrize("kind", FORMATS)
def test_text_around_the_result_is_kept(kind, tmp_path):
    before = "WARNING: Could not set privileges for setting valid file size\r\n........\r\n"
    table = read_diskspd(written(tmp_path, before + source("mixed", kind)))
    assert table.attrs["noise"].splitlines()[0].startswith("WARNING: Could not set privileges")
    assert len(table) == len(read_diskspd(result("mixed", kind)))


@pytest.mark.parametrize("kind", FORMATS)
def test_results_appended_to_one_file_are_further_timespans(kind, tmp_path):
    both = source("mixed", kind) + "\r\n" + source("write_one", kind).replace("VM01", "VM02")
    table = read_diskspd(written(tmp_path, both))
    assert table.groupby("groupid")["hostname"].first().tolist() == ["VM01", "VM02"]
    assert table.attrs["outstanding"] == {0: 32, 1: 32}


def test_a_path_with_an_ampersand_is_read_though_diskspd_does_not_escape_it(tmp_path):
    table = read_diskspd(written(tmp_path, source("write_one").replace("#1", "D:\\R&D &amp; x\\t.dat")))
    assert set(table["job"]) == {"D:\\R&D & x\\t.dat"}
    assert table["opt_iodepth"].tolist() == ["32"]


def test_spaces_instead_of_tabs_and_lines_that_end_in_lf_only(tmp_path):
    content = source("mixed", "txt").replace("\t", "        ").replace("\r\n", "\n")
    pd.testing.assert_frame_equal(read_diskspd(written(tmp_path, content)), read_diskspd(result("mixed", "txt")))


def test_the_version_and_a_result_without_a_computer_name(tmp_path):
    assert read_diskspd(result("mixed")).attrs["diskspd_version"] == "2.0.21a"
    assert read_diskspd(result("pool")).attrs["diskspd_version"] == "2.2.0"
    unnamed = source("mixed", "txt").replace("computer name: VM01", "computer name: ")
    assert set(read_diskspd(written(tmp_path, unnamed))["hostname"]) == {"localhost"}


def test_results_without_a_profile_have_no_settings_and_all_numbers(tmp_path):
    text = source("mixed")
    start, end = text.index("<Profile>"), text.index("</Profile>") + len("</Profile>")
    table, whole = read_diskspd(written(tmp_path, text[:start] + text[end:])), read_diskspd(result("mixed"))
    pd.testing.assert_series_equal(table["iops"], whole["iops"])
    assert table[["opt_rw", "opt_iodepth", "opt_rwmixread"]].isna().all(axis=None)
    assert isnan(table.attrs["outstanding"][0])


# --- what is not whole -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        (
            "-b8K -o32 -w100 -d5 -W5 -Suw #1",
            {"bs": "8192", "iodepth": "32", "rw": "write", "rwmixread": "0", "direct": "1", "sync": "1"},
        ),
        (
            "-r4K -w30 -t1 #1",
            {
                "bs": "65536",
                "iodepth": "2",
                "rw": "randrw",
                "rwmixread": "70",
                "direct": "0",
                "sync": "0",
                "runtime": "10",
            },
        ),
        (
            "-b1M -rs40 -o8 -S #1",
            {"bs": "1048576", "percentage_random": "40", "rw": "randread", "direct": "1", "sync": "0"},
        ),
        ("-F1 -O4 -b4K #1", {"iodepth": "4", "numjobs": "1"}),
        ("-b99999999999999999999K -o -wx #1", {"bs": "65536", "iodepth": "2", "rwmixread": "100"}),
    ],
)
def test_without_input_parameters_the_command_line_says_what_was_planned(tmp_path, command, settings):
    row = read_diskspd(written(tmp_path, _without_parameters(f"diskspd.exe {command}"), "out.txt")).iloc[0]
    assert {name: row[f"opt_{name}"] for name in settings} == settings


def test_outstanding_of_a_command_line_is_per_thread(tmp_path):
    table = read_diskspd(written(tmp_path, _without_parameters("diskspd.exe -o32 -t1 #1"), "out.txt"))
    assert table.attrs["outstanding"] == {0: 32}
    profile = read_diskspd(written(tmp_path, _without_parameters("diskspd.exe -Xprofile.xml"), "out.txt"))
    assert isnan(profile.attrs["outstanding"][0])


def _without_parameters(command: str) -> str:
    text = source("write_one", "txt")
    start, end = text.index("Input parameters:"), text.index("System information:")
    return re.sub(r"Command Line:.*", lambda _: f"Command Line: {command}\r", text[:start]) + text[end:]


def test_rows_cut_out_of_the_text_make_the_timespan_invalid(tmp_path):
    lines = source("mixed", "txt").splitlines(keepends=True)
    table = read_diskspd(written(tmp_path, "".join(line for line in lines if not line.startswith("     3 |"))))
    assert set(table["error"]) == {74}
    assert "add up to" in table.attrs["noise"]


def test_a_thread_cut_out_of_the_xml_makes_the_timespan_invalid(tmp_path):
    text = source("mixed")
    start = text.rindex("<Thread>")
    end = text.index("</Thread>", start) + len("</Thread>")
    table = read_diskspd(written(tmp_path, text[:start] + text[end:]))
    assert set(table["error"]) == {74}
    assert "4 threads and holds rows of 3" in table.attrs["noise"]
    assert isnan(table.attrs["outstanding"][0])


def test_a_sum_that_is_not_its_parts_makes_the_timespan_invalid(tmp_path):
    text = source("write_one")
    table = read_diskspd(written(tmp_path, text.replace("<IOCount>3003<", "<IOCount>7<")))
    assert set(table["error"]) == {74}
    assert "IOCount is not the sum" in table.attrs["noise"]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", RUNS)
def test_a_file_cut_anywhere_is_an_error_or_says_so(name, kind, tmp_path):
    """Cut in steps over the whole file: never a table that passes for the whole."""
    text = source(name, kind).rstrip()
    end = len(text)
    if kind == "txt":  # what follows the last distribution (the sums of all timespans) is not read
        end = text.rindex("total:" if name == "no_latency" else "max |")
    for at in range(0, end, max(1, end // 40)):
        table = outcome(written(tmp_path, text[:at]))
        assert table is None or table["error"].any(), text[:at][-80:]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "it is empty"),
        ("hello\nworld\n", "results in this file. Give"),
        ("There has been an error\nERROR: no timespans specified\n", "it says 'ERROR: no timespans specified'"),
        ("<Results></Results>", "no thread and no target"),
        ("<Results><System></Results>", r"line 1, column \d+ \(mismatched tag\)"),
        ("x\n\n<Results>\n<TimeSpan>", r"broken off or damaged at line 4"),
        ("<!DOCTYPE x>\n<Results></Results>", "no thread and no target"),
        ("<Results><!DOCTYPE x><TimeSpan/></Results>", "damaged at line 1"),
        ("<Results>" + "<a>" * 5000 + "</a>" * 5000 + "</Results>", "nested deeper"),
    ],
)
def test_what_is_no_result_is_named(content, says, tmp_path):
    path = written(tmp_path, content)
    with pytest.raises(DiskspdOutputError, match=says) as caught:
        read_diskspd(path)
    assert str(path) in str(caught.value)


def test_a_wrong_field_names_its_line(tmp_path):
    text = source("mixed")
    line = text[: text.index("<ReadBytes>")].count("\n") + 1
    with pytest.raises(DiskspdOutputError, match=rf"line {line}, <ReadBytes>: 'x1' stands where a count"):
        read_diskspd(written(tmp_path, text.replace("<ReadBytes>", "<ReadBytes>x1</ReadBytes><ReadBytes>", 1)))
    text = source("mixed", "txt").replace("     1 | ", "     1 | z", 1)
    line = text[: text.index("     1 | z")].count("\n") + 1
    with pytest.raises(DiskspdOutputError, match=f"line {line}: 'z.*stands where a count"):
        read_diskspd(written(tmp_path, text))


@pytest.mark.parametrize("printed", ["-nan(ind)", "1.#QNAN0", "nan", "N/A", "-1.#IND", "inf"])
def test_what_c_prints_for_no_number_is_missing(printed, tmp_path):
    text = source("write_one", "txt")
    mean = text[text.index("I/O per s") :].splitlines()[2].split("|")[5]
    table = read_diskspd(written(tmp_path, text.replace(mean, f"  {printed} ")))
    assert table["lat_ns_mean"].isna().all()
    assert table["error"].tolist() == [0]


def test_many_targets_take_work_in_proportion(tmp_path, calls):
    def work(targets: int) -> int:
        def again(target: re.Match) -> str:
            return "".join(target[0].replace("#1", f"D:\\{n}.dat") for n in range(targets))

        path = written(tmp_path, re.sub(r"(?s)<Target>.*?</Target>", again, source("write_one")))
        table, number = calls(lambda: read_diskspd(path))
        assert len(table) == targets
        return number

    work(10)  # so that nothing is imported while it is counted
    assert work(40) < 1.2 * 4 * work(10)


# --- hostile input -----------------------------------------------------------------------------------------------

BASES = [result(name, kind).read_bytes() for name in ("no_latency", "interrupted", "pool") for kind in FORMATS]
_VALUES = [
    b"-1",
    b"1e999",
    b"99999999999999999999999",
    b"nan",
    b"",
    b"<",
    b"&",
    b"]]>",
    b"\0",
    b"\xff\xfe",
    b"|",
    b"\r",
    b"0",
]
EDIT = st.tuples(st.floats(0, 1), st.integers(0, 60), st.one_of(st.sampled_from(_VALUES), st.binary(max_size=6)))


@settings(max_examples=examples(300))
@given(st.sampled_from(BASES), st.lists(EDIT, min_size=1, max_size=6))
def test_a_mutated_result_is_a_table_or_a_named_error(tmp_path, base, edits):
    for where, width, value in edits:
        at = int(where * len(base))
        base = base[:at] + value + base[at + width :]
    path = written(tmp_path, base)
    for read in (read_diskspd, read_diskspd_bins):
        table = outcome(path, read)
        assert table is None or len(table) or read is read_diskspd_bins


@given(st.sampled_from(BASES), st.data())
def test_numbers_replaced_by_others_are_a_table_or_a_named_error(tmp_path, base, data):
    places = list(re.finditer(rb"\d+(\.\d+)?", base))
    for place in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=4)):
        base = base[: place.start()] + data.draw(st.sampled_from(_VALUES)) + base[place.end() :]
    table = outcome(written(tmp_path, base))
    assert table is None or set(table["error"]) <= {0, 4, 74}
