"""Rules of the readers of fio, its logs, DiskSPD and the nodes that no other test asks about."""

from __future__ import annotations

import json
from math import isnan, nan
from pathlib import Path

import pytest

import hcilib as hci
from hcilib.model.archives import unpacked
from hcilib.read.foreign.settings import ForeignError

DATA = Path(__file__).parents[1] / "data"


# --- DiskSPD


@pytest.mark.parametrize("name", ["mixed", "no_latency", "two_timespans", "write_one"])
def test_diskspd_text_and_xml_name_one_file_size(name):
    text, xml = (
        hci.read_results(DATA / "diskspd" / f"{name}.{kind}", system="s") for kind in ("txt", "xml")
    )
    assert text["size_bytes"].tolist() == xml["size_bytes"].tolist()


def test_a_diskspd_target_without_a_size_has_none(tmp_path):
    written = (
        (DATA / "diskspd" / "no_latency.xml").read_text().split("<FileSize>10737418240</FileSize>")
    )
    (tmp_path / "out.xml").write_text("".join(written))
    [row] = hci.read_results(tmp_path / "out.xml", system="s").to_dict("records")
    assert row["iops"] == pytest.approx(126.3)
    assert "size_bytes" not in row or row["size_bytes"] != row["size_bytes"]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ("-b8K -o32 -w100 -Sh", (8192, 32, 0, 1, 1)),
        ("-b8K -o32 -w100 -S", (8192, 32, 0, 1, 0)),
        ("/b8K /o32 /w100 -Sw", (8192, 32, 0, 0, 1)),
        ("-o4 -b8K -o32 -w100", (8192, 32, 0, 0, 0)),
        ("-b8K -o32 -w100 -rs40 -Sh", (8192, 32, 0, 1, 1)),
    ],
)
def test_the_command_line_of_diskspd_states_the_test(options, numbers, tmp_path):
    text = (DATA / "diskspd" / "write_one.txt").read_bytes().decode()
    head, _, rest = text.partition("Input parameters:")
    command = head[: head.index("Command Line:")] + f"Command Line: diskspd.exe {options} #1\r\n"
    file = tmp_path / "out.txt"
    file.write_text(command + rest[rest.index("System information:") :])
    [row] = hci.read_results(file, system="s").to_dict("records")
    assert row["rw"] == ("randwrite" if "-r" in options else "write")
    columns = ("bs_bytes", "iodepth", "rwmixread", "direct", "sync")
    assert tuple(row[name] for name in columns) == numbers


@pytest.mark.parametrize(
    ("name", "gone", "numbers"),
    [
        ("cases/c23_diskspd/raw", "", {"p999_ns": 364.756e6, "p9999_ns": 580.786e6, "direct": 1}),
        ("diskspd/mixed", "", {"iops": 166.87, "read_iops": 117.46}),
        ("diskspd/mixed", "software cache disabled", {"direct": nan, "sync": 1}),
    ],
)
def test_what_diskspd_prints_is_read_and_what_it_does_not_is_missing(name, gone, numbers, tmp_path):
    text = (DATA / f"{name}.txt").read_bytes().decode()
    assert gone in text
    (tmp_path / "out.txt").write_text(text.replace(gone, ""))
    [row] = hci.read_results(tmp_path / "out.txt", system="s").to_dict("records")
    for column, value in numbers.items():
        own = row.get(column, nan)
        assert own == (
            value if isinstance(value, str) else pytest.approx(value, rel=1 / 127, nan_ok=True)
        ), column


def test_sections_of_diskspd_that_repeat_are_refused(tmp_path):
    text = (DATA / "diskspd" / "two_timespans.txt").read_bytes().decode()
    (tmp_path / "out.txt").write_text(text.replace("Totals:", ""))
    with pytest.raises(ForeignError, match="copy the file again"):
        hci.read_results(tmp_path / "out.txt", system="s")


def test_latencies_of_diskspd_without_their_distribution_do_not_count(tmp_path):
    text = (DATA / "diskspd" / "write_one.txt").read_bytes().decode()
    (tmp_path / "out.txt").write_text(text[: text.index("Total latency distribution:")])
    assert hci.read_results(tmp_path / "out.txt", system="s")["valid"].tolist() == [False]


# --- fio


def of_fio(folder: Path, options: dict[str, str], slat_ns: float = 0) -> dict:
    """Return the row of a captured run (2 s, 2 GB), with other options or a time to submit a read."""
    document = json.loads((unpacked(DATA / "fio") / "local.json").read_text())
    [job] = document["jobs"]
    document["global options"] |= options
    if slat_ns:
        ios = job["read"]["total_ios"]
        job["read"]["slat_ns"] |= {"N": ios, "min": 1, "max": slat_ns, "mean": slat_ns}
    (folder / "out.json").write_text(json.dumps(document))
    return hci.read_results(folder / "out.json", system="s").iloc[0].to_dict()


@pytest.mark.parametrize(
    ("options", "is_valid"),
    [
        ({"runtime": "2", "time_based": "1"}, True),
        ({"runtime": "60", "time_based": "1"}, False),
        ({"runtime": "60", "size": "2g"}, True),
        ({"runtime": "60", "size": "100g"}, False),
        ({"runtime": "60", "size": "50%"}, True),
        ({"runtime": "60", "size": "100g", "io_size": "2g"}, True),
        ({"runtime": "60", "size": "100g", "number_ios": "1000"}, True),
    ],
)
def test_a_run_counts_if_it_did_its_runtime_or_its_size(options, is_valid, tmp_path):
    row = of_fio(tmp_path, options)
    assert row["valid"] == is_valid
    assert ("invalid" in row["warnings"].split()) != is_valid


@pytest.mark.parametrize(("slat_ns", "is_known"), [(400, True), (800, False)])
def test_where_submission_is_most_of_the_latency_percentiles_of_completion_are_none(
    slat_ns, is_known, tmp_path
):
    row = of_fio(tmp_path, {}, slat_ns)  # the mean latency is 1193 ns
    assert isnan(row["p50_ns"]) != is_known
    assert row["lat_ns"] > 1000
    assert "percentiles" in row["warnings"].split()


@pytest.mark.parametrize(("rw", "ddir"), [("randread", "read"), ("randwrite", "write")])
def test_mixed_numbers_in_text_are_those_of_the_one_direction_there_is(rw, ddir, tmp_path):
    text = (DATA / "cases" / "n05_text_mixed" / "text-mixed-342.txt").read_text()
    (tmp_path / "out.txt").write_text(text.replace("rw=randrw", f"rw={rw}"))
    [row] = hci.read_results(tmp_path / "out.txt", system="s").to_dict("records")
    assert row["pattern"] == f"4k-{rw}"
    assert row[f"{ddir}_iops"] == row["iops"] > 0
    (tmp_path / "out.txt").write_text(text)
    with pytest.raises(ForeignError, match="unified_rw_reporting"):
        hci.read_results(tmp_path / "out.txt", system="s")
