"""DiskSPD's files as results: made-up runs whose every latency is known (tests/data/diskspd)."""

import re
from contextlib import suppress
from math import nan
from pathlib import Path

import pandas as pd
import pytest
import zstandard

import hcilib as hci
from hcilib.read.foreign.settings import ForeignError
from tests.read.made import DATA, written

FORMATS = pytest.mark.parametrize("kind", ["xml", "txt"])
RUNS: dict[str, list[tuple | None]] = {
    "interrupted": [(10.0, 1, 2, 414, 0, 0.140572, (0.109, 0.297, 0.52)), None],
    "mixed": [(10.02, 4, 32, 1177, 495, 0.223665, ())],
    "no_latency": [(10.0, 3, 12, 1263, 0, nan, (nan, nan, nan))],
    "pool_per_target": [(10.0, 10, 20, 4326, 0, 0.146125, ())],
    "two_timespans": [
        (10.0, 1, 16, 436, 0, 0.14181, (0.107, 0.285, 0.687)),
        (10.0, 1, 2, 0, 420, 0.410743, (0.318, 0.81, 1.785)),
    ],
    "write_one": [(5.01, 1, 32, 0, 3003, 0.446525, (0.327, 0.891, 1.992))],
}
"""Timespans: seconds, threads, outstanding I/Os, reads, writes, mean latency in ms; p50, p95, p99
in ms where a file has one distribution. Taken from the latency of each I/O; None: interrupted."""


def source(name: str, kind: str = "xml") -> str:
    return (DATA / f"diskspd/{name}.{kind}").read_bytes().decode()


def read(path: Path) -> pd.DataFrame:
    return hci.read_results(path, system="oak")


@pytest.fixture
def of(tmp_path):
    """What is read of a text, or of bytes."""
    return lambda content, kind="xml": read(written(tmp_path / f"out.{kind}", content))


@FORMATS
@pytest.mark.parametrize("name", RUNS)
def test_a_timespan_is_a_run_with_the_numbers_of_all_its_ios(name, kind, of):
    """Rates are printed with two digits a thread, percentiles where ten I/Os lie beyond."""
    results = of(source(name, kind), kind)
    assert results.attrs["left_out"] == []
    for row, run in zip(results.to_dict("records"), RUNS[name], strict=True):
        assert (row["valid"], "invalid" in row["warnings"].split()) == (
            run is not None,
            run is None,
        )
        if run is None:
            assert pd.isna(row["outstanding"])
            continue
        seconds, threads, outstanding, reads, writes, mean_ms, percentiles_ms = run
        counted = {"iops": reads + writes, "read_iops": reads, "write_iops": writes}
        for rate, ios in counted.items():
            assert row[rate] == pytest.approx(ios / seconds, abs=0.005 * threads)
        assert row["bw_bytes"] == pytest.approx(row["bs_bytes"] * row["iops"], rel=1e-9)
        load = row["runtime_s"], row["numjobs"], row["outstanding"]
        assert load == (seconds, threads, outstanding)
        assert row["lat_ns"] == pytest.approx(1e6 * mean_ms, abs=501, nan_ok=True)
        for name_of, value_ms in zip(("p50_ns", "p95_ns", "p99_ns"), percentiles_ms, strict=False):
            is_absent = name_of == "p99_ns" and pd.isna(row[name_of])
            assert is_absent or row[name_of] == pytest.approx(
                1e6 * value_ms, rel=1 / 127, nan_ok=True
            )


def commanded(command: str) -> str:
    """Return a text without its input parameters: the command line says what was planned."""
    text = source("write_one", "txt")
    start, end = text.index("Input parameters:"), text.index("System information:")
    head = re.sub(r"Command Line:.*", lambda _: f"Command Line: {command}\r", text[:start])
    return head + text[end:]


@pytest.mark.parametrize(
    ("options", "planned"),
    [
        ("-b8K -o32 -w100 -Sh", ["write", 8192, 32, 1, 1]),
        ("-b8K -o32 -w100 -S", ["write", 8192, 32, 1, 0]),
        ("/b8K /o32 /w100 -Sw", ["write", 8192, 32, 0, 1]),
        ("-o4 -b8K -o32 -w100", ["write", 8192, 32, 0, 0]),
        ("-b8K -o32 -w100 -rs40 -Sh", ["randwrite", 8192, 32, 1, 1]),
    ],
)
def test_without_input_parameters_the_command_line_says_what_was_planned(options, planned, of):
    [row] = of(commanded(f"diskspd.exe {options} #1"), "txt").to_dict("records")
    assert [row[name] for name in ("rw", "bs_bytes", "iodepth", "direct", "sync")] == planned


MEAN = source("write_one", "txt").partition("I/O per s")[2].splitlines()[2].split("|")[5]
EDITED = [  # a text, what is written instead, and columns
    ("xml", "<WriteRatio>", "<Throughput>5000</Throughput><WriteRatio>", {"rate_bytes": 5e6}),
    (
        "txt",
        "block size:",
        "throughput rate-limited to 5000 B/ms\r\n\t\tblock size:",
        {"rate_bytes": 5e6},
    ),
    ("xml", "<WriteThrough>true", "<WriteThrough>false", {"pattern": "8k-write"}),
    ("xml", "#1", "D:\\R&D &amp; x\\t.dat", {"iodepth": 32}),
    ("txt", "software cache disabled", "", {"direct": nan, "sync": 1}),
    *(
        ("txt", MEAN, f"  {printed} ", {"lat_ns": nan, "valid": True})
        for printed in ("-nan(ind)", "1.#QNAN0", "N/A")
    ),
]


@pytest.mark.parametrize(("kind", "text", "instead", "columns"), EDITED)
def test_what_diskspd_prints_is_read_and_what_it_does_not_is_missing(
    kind, text, instead, columns, of
):
    edited = source("write_one", kind).replace(text, instead)
    assert edited != source("write_one", kind)
    [row] = of(edited, kind).to_dict("records")
    assert {name: row.get(name, nan) for name in columns} == pytest.approx(columns, nan_ok=True)


# --- files as they come

AS_THEY_COME = {
    **{
        encoding: lambda text, encoding=encoding: text.replace("b.dat", "ü.dat").encode(encoding)
        for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252")
    },
    "zst": lambda text: zstandard.compress(text.encode()),
    "text before": lambda text: "WARNING: Could not set privileges\r\n........\r\n" + text,
    "lf": lambda text: text.replace("\t", "        ").replace("\r\n", "\n"),
}


@FORMATS
@pytest.mark.parametrize("how", AS_THEY_COME)
def test_wrappings_change_nothing(how, kind, of):
    whole = of(source("mixed", kind), kind)
    table = of(AS_THEY_COME[how](source("mixed", kind)), kind)
    assert table["target"].iat[0].replace("ü", "b") == whole["target"].iat[0]
    pd.testing.assert_frame_equal(table.drop(columns="target"), whole.drop(columns="target"))


# --- what is not whole

INCOMPLETE = {
    "a row less": ("txt", "mixed", r"(?m)^     3 \|.*\n", ""),
    "a thread less": ("xml", "mixed", r"(?s)<Thread>((?!<Thread>).)*</Thread>(?!.*<Thread>)", ""),
    "another sum": ("xml", "write_one", "<IOCount>3003<", "<IOCount>7<"),
    "no distribution": ("txt", "write_one", r"(?s)Total latency distribution:.*", ""),
    "another sum of text": ("txt", "write_one", r"(?<=total: )( *)\d", r"\g<1>9"),
}


@pytest.mark.parametrize("damage", INCOMPLETE)
def test_rows_that_cannot_be_all_make_a_run_that_does_not_count(damage, of):
    kind, name, pattern, instead = INCOMPLETE[damage]
    table = of(re.sub(pattern, instead, source(name, kind)), kind)
    assert table["valid"].tolist() == [False]
    assert table["outstanding"].isna().all()


@FORMATS
@pytest.mark.parametrize("name", ["mixed", "no_latency"])
def test_a_file_cut_anywhere_is_refused_or_does_not_count(name, kind, of):
    """Never a table that passes for the whole. What follows the last distribution is not read."""
    text = source(name, kind).rstrip()
    last = "total:" if name == "no_latency" else "max |"
    end = text.rindex(last) if kind == "txt" else len(text)
    for at in range(0, end, max(1, end // 40)):
        with suppress(ForeignError):
            assert not of(text[:at], kind)["valid"].any(), text[:at][-80:]


REFUSED = {
    "a queue that targets share": ("xml", source("pool"), "-O"),
    "such a queue of text": ("txt", source("pool", "txt"), "-O"),
    "such a queue of the command line": (
        "txt",
        commanded("diskspd.exe -F1 -O4 -b8K -w100 #1"),
        "-O",
    ),
    "two streams on a path": ("xml", source("two_streams"), "path"),
    "sections that repeat": (
        "txt",
        source("two_timespans", "txt").replace("Totals:", ""),
        "copy the file again",
    ),
    "two streams of text": ("txt", source("two_streams", "txt"), "path"),
    "another test's numbers": ("txt", commanded("diskspd.exe -r4K -w30 #1"), "numbers"),
    "no result": ("xml", "<Results></Results>", ""),
    "no end of a tag": ("xml", "<Results><System></Results>", "line 1"),
    "no end of a document": ("xml", "<Results>\n\n<TimeSpan>\n<a>", "line 4"),
    "a declaration": ("xml", "<Results><!DOCTYPE x><TimeSpan/></Results>", "line 1"),
    "depth": ("xml", "<Results>" + "<a>" * 5000 + "</a>" * 5000 + "</Results>", ""),
    "a text for a count": (
        "xml",
        source("mixed").replace("<ReadBytes>", "<ReadBytes>x", 1),
        "<ReadBytes>",
    ),
    "a text for a number": (
        "txt",
        source("mixed", "txt").replace("     1 | ", "     1 | z", 1),
        "line 63",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_result_is_named_with_its_place(case, of):
    kind, content, names = REFUSED[case]
    with pytest.raises(ForeignError, match=rf"out\.{kind}.*{names}"):
        of(content, kind)
