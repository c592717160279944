"""DiskSPD's files as results: made-up runs whose every latency is known (tests/data/diskspd)."""

from __future__ import annotations

import re
from contextlib import suppress
from math import isnan
from pathlib import Path

import pandas as pd
import pytest
import zstandard

import hcilib as hci
from hcilib.read.foreign.settings import ForeignError

DATA = Path(__file__).parents[1] / "data" / "diskspd"
FORMATS = ("xml", "txt")


RUNS: dict[str, list[tuple | None]] = {
    "interrupted": [(10.0, 1, 2, 414, 0, 0.140572, (0.109, 0.297, 0.52)), None],
    "mixed": [(10.02, 4, 32, 1177, 495, 0.223665, ())],
    "no_latency": [(10.0, 3, 12, 1263, 0, None, ())],
    "pool_per_target": [(10.0, 10, 20, 4326, 0, 0.146125, ())],
    "two_timespans": [
        (10.0, 1, 16, 436, 0, 0.14181, (0.107, 0.285, 0.687)),
        (10.0, 1, 2, 0, 420, 0.410743, (0.318, 0.81, 1.785)),
    ],
    "write_one": [(5.01, 1, 32, 0, 3003, 0.446525, (0.327, 0.891, 1.992))],
}
"""Timespans: seconds, threads, outstanding I/Os, reads, writes, mean latency in ms; p50, p95 and p99 in ms where a
file has one distribution. Taken from the latency of each I/O; None: interrupted."""


def result(name: str, kind: str = "xml") -> Path:
    return DATA / f"{name}.{kind}"


def source(name: str, kind: str = "xml") -> str:
    return result(name, kind).read_bytes().decode()


def read(path: Path) -> pd.DataFrame:
    return hci.read_results(path, system="oak")


def written(tmp_path: Path, content: str | bytes, name: str = "out.xml") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", RUNS)
def test_a_timespan_is_a_run_with_the_numbers_of_all_its_ios(name, kind):
    results = read(result(name, kind))
    for row, run in zip(results.to_dict("records"), RUNS[name], strict=True):
        assert row["valid"] == (run is not None)
        if run is None:
            assert isnan(row["outstanding"])
            continue
        seconds, threads, outstanding, reads, writes, mean_ms, percentiles_ms = run
        printed = 0.005 * threads  # two digits a thread
        assert row["iops"] == pytest.approx((reads + writes) / seconds, abs=printed)
        assert row["read_iops"] == pytest.approx(reads / seconds, abs=printed)
        assert row["write_iops"] == pytest.approx(writes / seconds, abs=printed)
        assert row["bw_bytes"] == pytest.approx(row["bs_bytes"] * row["iops"], rel=1e-9)
        assert (row["runtime_s"], row["numjobs"], row["outstanding"]) == (seconds, threads, outstanding)
        if mean_ms:
            assert row["lat_ns"] == pytest.approx(1e6 * mean_ms, abs=501)
        else:
            assert isnan(row["lat_ns"]), "missing, never 0"
            assert all(isnan(row[f"p{share}_ns"]) for share in (50, 95, 99))
        for share, value_ms in zip((50, 95, 99), percentiles_ms, strict=False):
            found = row[f"p{share}_ns"]
            assert isnan(found) or found == pytest.approx(1e6 * value_ms, rel=1 / 127)
        assert not percentiles_ms or not isnan(row["p95_ns"])


@pytest.mark.parametrize(
    ("name", "iops", "lat_ns", "outstanding"), [("nolat", 309.18, None, 40), ("raw", 773.4, 82.74e6, 64)]
)
def test_public_text_results(name, iops, lat_ns, outstanding):
    [row] = read(DATA.parent / "cases" / "c23_diskspd" / f"{name}.txt").to_dict("records")
    assert (row["iops"], row["outstanding"]) == (pytest.approx(iops, abs=0.01), outstanding)
    assert row["lat_ns"] == lat_ns or (lat_ns is None and isnan(row["lat_ns"]))


@pytest.mark.parametrize("name", RUNS)
def test_xml_and_text_of_one_run_agree(name):
    xml, text = (read(result(name, kind)) for kind in FORMATS)
    same = ["pattern", "numjobs", "iodepth", "outstanding", "direct", "sync", "valid", "vms"]
    pd.testing.assert_frame_equal(xml[same], text[same])
    assert text["iops"].tolist() == pytest.approx(xml["iops"].tolist(), rel=1e-3, nan_ok=True)


@pytest.mark.parametrize("kind", FORMATS)
def test_settings(kind):
    settings = ["rw", "rwmixread", "bs_bytes", "iodepth", "direct", "sync"]
    assert read(result("mixed", kind))[settings].values.tolist() == [["randrw", 70, 4096, 8, 1, 1]]
    assert read(result("write_one", kind))[settings].values.tolist() == [["write", 0, 8192, 32, 1, 1]]


@pytest.mark.parametrize(
    ("kind", "before", "line"),
    [
        ("xml", "<WriteRatio>", "<Throughput>5000</Throughput>"),
        ("txt", "block size:", "throughput rate-limited to 5000 B/ms\r\n\t\t"),
    ],
)
def test_a_rate_is_bytes_a_millisecond(kind, before, line, tmp_path):
    limited = source("write_one", kind).replace(before, line + before, 1)
    assert read(written(tmp_path, limited, f"out.{kind}"))["rate_bytes"].tolist() == [5e6]


def test_writes_without_write_through_are_another_pattern(tmp_path):
    text = source("write_one")
    assert "<WriteThrough>true" in text
    plain = read(written(tmp_path, text.replace("<WriteThrough>true", "<WriteThrough>false")))
    assert read(result("write_one"))["pattern"].tolist() == [f"{plain['pattern'].iat[0]}-sync"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_queue_that_targets_share_is_refused_by_name(kind, tmp_path):
    with pytest.raises(ForeignError, match=rf"pool\.{kind}.*-O"):
        read(result("pool", kind))
    with pytest.raises(ForeignError, match=rf"two_streams\.{kind}.*one path"):
        read(result("two_streams", kind))
    if kind == "txt":
        with pytest.raises(ForeignError, match="-O"):
            read(written(tmp_path, _without_parameters("diskspd.exe -F1 -O4 -b8K -w100 #1"), "out.txt"))


# --- files as they come ------------------------------------------------------------------------------------------

AS_THEY_COME = {
    **{
        encoding: lambda text, encoding=encoding: text.replace("D:\\b.dat", "D:\\Prüfung.dat").encode(encoding)
        for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252")
    },
    "zst": lambda text: zstandard.compress(text.encode()),
    "text before": lambda text: ("WARNING: Could not set privileges\r\n........\r\n" + text).encode(),
    "lf": lambda text: text.replace("\t", "        ").replace("\r\n", "\n").encode(),
}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("how", AS_THEY_COME)
def test_wrappings_change_nothing(how, kind, tmp_path):
    table = read(written(tmp_path, AS_THEY_COME[how](source("mixed", kind)), f"out.{kind}"))
    whole = read(result("mixed", kind))
    assert table["target"].iat[0].replace("Prüfung", "b") == whole["target"].iat[0]
    others = whole.columns.drop(["source", "run_id", "target"])
    pd.testing.assert_frame_equal(table[others], whole[others])


def test_a_path_with_an_ampersand_is_read_though_diskspd_does_not_escape_it(tmp_path):
    table = read(written(tmp_path, source("write_one").replace("#1", "D:\\R&D &amp; x\\t.dat")))
    assert table["iodepth"].tolist() == [32]


@pytest.mark.parametrize("kind", FORMATS)
def test_results_appended_to_one_file_are_further_runs(kind, tmp_path):
    both = source("mixed", kind) + "\r\n" + source("write_one", kind)
    assert read(written(tmp_path, both, f"out.{kind}"))["outstanding"].tolist() == [32, 32]


def test_without_input_parameters_the_command_line_says_what_was_planned(tmp_path):
    command = "diskspd.exe -b8K -o32 -w100 -d5 -W5 -Suw #1"
    [row] = read(written(tmp_path, _without_parameters(command), "out.txt")).to_dict("records")
    assert (row["rw"], row["iodepth"], row["outstanding"], row["direct"], row["sync"]) == ("write", 32, 32, 1, 1)
    with pytest.raises(ForeignError, match="numbers are not of the test"):
        read(written(tmp_path, _without_parameters("diskspd.exe -r4K -w30 #1"), "out.txt"))


def _without_parameters(command: str) -> str:
    text = source("write_one", "txt")
    start, end = text.index("Input parameters:"), text.index("System information:")
    return re.sub(r"Command Line:.*", lambda _: f"Command Line: {command}\r", text[:start]) + text[end:]


# --- what is not whole -------------------------------------------------------------------------------------------


def _a_row_less() -> str:
    lines = source("mixed", "txt").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("     3 |"))


def _a_thread_less() -> str:
    text = source("mixed")
    start = text.rindex("<Thread>")
    return text[:start] + text[text.index("</Thread>", start) + len("</Thread>") :]


def _another_sum() -> str:
    return source("write_one").replace("<IOCount>3003<", "<IOCount>7<")


@pytest.mark.parametrize("damaged", [_a_row_less, _a_thread_less, _another_sum])
def test_rows_that_cannot_be_all_make_a_run_that_does_not_count(damaged, tmp_path):
    table = read(written(tmp_path, damaged()))
    assert table["valid"].tolist() == [False]
    assert table["outstanding"].isna().all()
    assert "invalid" in table["warnings"].iat[0].split()


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", ["mixed", "no_latency"])
def test_a_file_cut_anywhere_is_refused_or_does_not_count(name, kind, tmp_path):
    """Cut in steps over the whole file: never a table that passes for the whole."""
    text = source(name, kind).rstrip()
    end = len(text)
    if kind == "txt":  # what follows the last distribution (the sums of all timespans) is not read
        end = text.rindex("total:" if name == "no_latency" else "max |")
    for at in range(0, end, max(1, end // 40)):
        with suppress(ForeignError):
            assert not read(written(tmp_path, text[:at], f"out.{kind}"))["valid"].any(), text[:at][-80:]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("<Results></Results>", "no thread and no target"),
        ("<Results><System></Results>", "line 1"),
        ("<Results>\n\n<TimeSpan>\n<a>", "line 4"),
        ("<Results><!DOCTYPE x><TimeSpan/></Results>", "line 1"),
        ("<Results>" + "<a>" * 5000 + "</a>" * 5000 + "</Results>", "no thread and no target"),
    ],
)
def test_what_is_no_result_is_named(content, says, tmp_path):
    with pytest.raises(ForeignError, match=says) as caught:
        read(written(tmp_path, content))
    assert "out.xml" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "before", "after", "place"),
    [
        ("out.xml", "<ReadBytes>", "<ReadBytes>x1</ReadBytes><ReadBytes>", "<ReadBytes>"),
        ("out.txt", "     1 | ", "     1 | z", "line {line}"),
    ],
)
def test_a_wrong_field_names_its_place(name, before, after, place, tmp_path):
    text = source("mixed", name[-3:])
    line = text[: text.index(before)].count("\n") + 1
    with pytest.raises(ForeignError, match=rf"{name}.*{place.format(line=line)}"):
        read(written(tmp_path, text.replace(before, after, 1), name))


@pytest.mark.parametrize("printed", ["-nan(ind)", "1.#QNAN0", "N/A"])
def test_what_c_prints_for_no_number_is_missing(printed, tmp_path):
    text = source("write_one", "txt")
    mean = text[text.index("I/O per s") :].splitlines()[2].split("|")[5]
    table = read(written(tmp_path, text.replace(mean, f"  {printed} "), "out.txt"))
    assert table["lat_ns"].isna().all()
    assert table["valid"].tolist() == [True]


def test_many_runs_of_one_file_take_work_in_proportion(tmp_path, calls):
    def work(runs: int) -> int:
        path = written(tmp_path, "\r\n".join([source("mixed")] * runs))
        table, number = calls(lambda: read(path))
        assert table["outstanding"].tolist() == [32] * runs
        return number

    work(3)  # so that nothing is imported while it is counted
    assert work(12) < 1.2 * 4 * work(3)
