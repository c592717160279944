"""DiskSPD's files as results: made-up runs whose every latency is known (tests/data/diskspd/make.py)."""

from __future__ import annotations

import importlib.util
import re
import sys
from contextlib import suppress
from math import isnan
from pathlib import Path

import pandas as pd
import pytest
import zstandard

import hcilib as hci
from hcilib import caveats
from hcilib.read.foreign.parts import ForeignError

DATA = Path(__file__).parents[1] / "data" / "diskspd"
FORMATS = ("xml", "txt")


def _maker():
    spec = importlib.util.spec_from_file_location("diskspd_make", DATA / "make.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


make = _maker()
READ = sorted(set(make.RUNS) - {"pool", "two_streams"})


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


def latencies(run) -> dict[str, list[int]]:
    """Direction -> the latency of every I/O of a timespan."""
    both = {"read": [], "write": []}
    for _, _, reads, writes in run.samples:
        both["read"] += reads
        both["write"] += writes
    return both


@pytest.mark.parametrize("name", sorted(make.RUNS))
def test_the_files_are_what_make_writes(name):
    runs, new = make.RUNS[name], name not in make.OLD
    assert source(name, "xml").replace("\r\n", "\n") == make.xml(runs, new)
    assert source(name, "txt").replace("\r\n", "\n") == make.text(runs, new)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", READ)
def test_a_timespan_is_a_run_with_the_numbers_of_all_its_ios(name, kind):
    results = read(result(name, kind))
    for (_, row), run in zip(results.iterrows(), make.RUNS[name], strict=True):
        assert row["valid"] != run.interrupted
        if run.interrupted:
            assert isnan(row["outstanding"])
            continue
        own = latencies(run)
        rates = {ddir: len(own[ddir]) / run.seconds for ddir in own}
        printed = 0.005 * len(run.samples)  # two digits a thread
        assert row["iops"] == pytest.approx(sum(rates.values()), abs=printed)
        for ddir, rate in rates.items():
            assert row[f"{ddir}_iops"] == pytest.approx(rate, abs=printed)
        assert row["bw_bytes"] == pytest.approx(row["bs_bytes"] * row["iops"], rel=1e-9)
        assert row["runtime_s"] == run.seconds
        assert row["outstanding"] == sum(target.depth for _, target, *_ in run.samples)
        assert row["numjobs"] == len(run.samples)
        every = [value for values in own.values() for value in values]
        if run.latency:
            assert row["lat_ns"] == pytest.approx(1e6 * make.mean(every), abs=501)
        else:
            assert row.filter(regex="lat_ns|p[0-9]+_ns").isna().all(), "missing, never 0"
        if run.latency and min(map(len, own.values())) == 0 and len(run.targets) == 1:  # one distribution
            shares = {share: row[f"p{share}_ns"] for share in ("50", "95", "99")}
            for share, found in shares.items():
                assert isnan(found) or found == pytest.approx(1e6 * make.percentile(every, share), rel=1 / 127)
            assert not isnan(shares["95"])


@pytest.mark.parametrize("name", READ)
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


def test_writes_without_write_through_are_another_pattern(tmp_path):
    text = source("write_one")
    assert "<WriteThrough>true" in text
    plain = read(written(tmp_path, text.replace("<WriteThrough>true", "<WriteThrough>false")))
    assert read(result("write_one"))["pattern"].tolist() == [f"{plain['pattern'].iat[0]}-sync"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_queue_that_targets_share_is_refused_by_name(kind, tmp_path):
    with pytest.raises(ForeignError, match=rf"pool\.{kind}.*-O"):
        read(result("pool", kind))
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
    ios = make.RUNS["write_one"][0].samples[0]
    return source("write_one").replace(f"<IOCount>{len(ios[3])}<", "<IOCount>7<")


@pytest.mark.parametrize("damaged", [_a_row_less, _a_thread_less, _another_sum])
def test_rows_that_cannot_be_all_make_a_run_that_does_not_count(damaged, tmp_path):
    table = read(written(tmp_path, damaged()))
    assert table["valid"].tolist() == [False]
    assert table["outstanding"].isna().all()
    assert "invalid" in caveats(table["warnings"].iat[0]).codes


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
        ("<Results><System></Results>", r"line 1, column \d+ \(mismatched tag\)"),
        ("<Results>\n\n<TimeSpan>\n<a>", r"broken off or damaged at line 4"),
        ("<Results><!DOCTYPE x><TimeSpan/></Results>", "damaged at line 1"),
        ("<Results>" + "<a>" * 5000 + "</a>" * 5000 + "</Results>", "nested deeper"),
    ],
)
def test_what_is_no_result_is_named(content, says, tmp_path):
    with pytest.raises(ForeignError, match=says) as caught:
        read(written(tmp_path, content))
    assert "out.xml" in str(caught.value)


def test_a_wrong_field_names_its_line(tmp_path):
    for name, before, after in (
        ("out.xml", "<ReadBytes>", "<ReadBytes>x1</ReadBytes><ReadBytes>"),
        ("out.txt", "     1 | ", "     1 | z"),
    ):
        text = source("mixed", name[-3:])
        line = text[: text.index(before)].count("\n") + 1
        with pytest.raises(ForeignError, match=rf"line {line}\b"):
            read(written(tmp_path, text.replace(before, after, 1), name))


@pytest.mark.parametrize("printed", ["-nan(ind)", "1.#QNAN0", "N/A"])
def test_what_c_prints_for_no_number_is_missing(printed, tmp_path):
    text = source("write_one", "txt")
    mean = text[text.index("I/O per s") :].splitlines()[2].split("|")[5]
    table = read(written(tmp_path, text.replace(mean, f"  {printed} "), "out.txt"))
    assert table["lat_ns"].isna().all()
    assert table["valid"].tolist() == [True]


def test_many_threads_and_targets_take_work_in_proportion(tmp_path, calls):
    def work(targets: int) -> int:
        run = make.Run(1, [make.Target(f"D:\\{i}.dat", threads=20) for i in range(targets)], ios=1)
        path = written(tmp_path, make.xml([run], True))
        table, number = calls(lambda: read(path))
        assert table["outstanding"].tolist() == [2 * 20 * targets]
        return number

    work(10)  # so that nothing is imported while it is counted
    assert work(40) < 1.2 * 4 * work(10)
