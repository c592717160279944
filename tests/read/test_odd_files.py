"""Folders as they are: logs of containers, notes beside results, names and files that nobody expects.

Each is made of real results of fio (data/samples/loose-files, tests/data/sections).
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

import hcilib as hci
from hcilib.read.foreign.settings import ForeignError

RESULT = (hci.ROOT / "data/samples/loose-files/birch_4k-randread_qd8_r1.json").read_text()
OTHER = (hci.ROOT / "data/samples/loose-files/cedar_4k-randread_qd8_r1.json").read_text()
TEXT = (hci.ROOT / "tests/data/sections/numjobs.normal").read_text()


def before_lines(stamp: str, text: str = RESULT) -> str:
    return "".join(f"{stamp}{line}\n" for line in text.splitlines())


READ = {
    "kubectl logs --prefix": before_lines("[pod/fio-7f/fio] "),
    "kubectl logs --timestamps": before_lines("2026-03-01T10:00:00.123456789Z "),
    "both": before_lines("[pod/fio-7f/fio] 2026-03-01T10:00:00.123456789Z "),
    "docker compose": before_lines("fio-1  | "),
    "journal": before_lines("Nov 23 14:00:00 node1 fio[123]: "),
    "times": before_lines("2026-03-01 10:00:00 "),
    "times before text": before_lines("Nov 23 14:00:00 ", TEXT),
    "colours": "\x1b[32m" + TEXT.replace("\n", "\x1b[0m\n\x1b[32m"),
    "a coloured line before": "\x1b[1mRunning\x1b[0m\n" + RESULT,
    "kubestr": json.dumps([{"storageClass": "x", "raw": {"result": json.loads(RESULT)}}]),
    "sorted keys": json.dumps(json.loads(RESULT), sort_keys=True),
    "carriage returns": RESULT.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("form", READ)
def test_a_result_is_read_in_whatever_surrounds_it(tmp_path, form):
    (tmp_path / "a.log").write_text(READ[form])
    table = hci.read_results(tmp_path, system="s")
    assert table.attrs["left_out"] == []
    assert table["iops"].tolist() == [pytest.approx(1498, abs=3)]


MENTIONS = {
    "README": 'It has "fio version" in it.',
    "notes.txt": 'We used {\n "fio version" : "fio-3.33", ... }\n',
    "run.pl": 'my %x = ("fio version" => 1);',
    "x.ipynb": json.dumps({"cells": ['{"fio version": "3"}']}),
    "Makefile": "grep -q '\"fio version\"' out",
    "example.txt": "Example:\njob: (g=0): rw=randread, bs=4k\n...\n",
}


@pytest.mark.parametrize("name", MENTIONS)
def test_what_merely_speaks_of_fio_is_no_result(tmp_path, name):
    (tmp_path / "a.json").write_text(RESULT)
    (tmp_path / name).write_text(MENTIONS[name])
    table = hci.read_results(tmp_path, system="s")
    assert len(table) == 1
    assert "left-out" not in table["warnings"].iat[0].split()
    assert hci.recognise(tmp_path).set_index("file").loc[name, "what"] == "something else"


DAMAGED = {
    "b.json": '{"fio version":' + "[" * 100_000,
    "b.txt": RESULT[:3000],
    "c.txt": TEXT[:200],
    "mix.json": OTHER.replace('"rw" : "randread"', '"rw" : "randrw", "rwmixread" : "abc"'),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_an_odd_file_costs_that_file_alone(tmp_path, name):
    (tmp_path / "a.json").write_text(RESULT)
    (tmp_path / name).write_text(DAMAGED[name])
    table = hci.read_results(tmp_path, system="s")
    assert [file for file, _ in table.attrs["left_out"]] == [name]
    assert "left-out" in table["warnings"].iat[0].split()


def test_a_size_of_400_digits_is_unknown(tmp_path):
    (tmp_path / "a.json").write_text(RESULT.replace('"4k"', '"' + "9" * 400 + '"'))
    [row] = hci.read_results(tmp_path, system="s").to_dict("records")
    assert row["pattern"] == "?-randread"


@pytest.mark.parametrize("name", ["größe ä 1", "a b  c", "x\x1b[31m", os.fsdecode(b"caf\xe9")])
def test_every_name_can_be_shown_and_written(tmp_path, name):
    (tmp_path / f"{name}.json").write_text(RESULT)
    for table in (hci.recognise(tmp_path), hci.read_results(tmp_path, names="{system}.json")):
        said = table.to_csv()
        said.encode()
        assert "\x1b" not in said
    assert hci.read_results(tmp_path, names="{system}.json")["system"].iat[0].isprintable()


def test_a_nested_plan_is_named(tmp_path):
    (tmp_path / "steps").mkdir()
    (tmp_path / "plan.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"plan\.json"):
        hci.read_results(tmp_path)


def test_packed_files_and_marks_of_encodings(tmp_path):
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf" + RESULT.encode())
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(OTHER.encode()))
    (tmp_path / "c.txt").write_bytes(TEXT.encode("utf-16"))
    assert len(hci.read_results(tmp_path, system="s")) == 3


NAMES = {  # pattern -> where it stops, for elm_dbmix_qd8_rb.json
    "{system}_{pattern}_qd{iodepth}_r{rep}.json": "stops at {pattern}: 'dbmix'",
    "{system}_{_}_qd{numjobs}_rep{rep}.json": "stops at '_rep'",
    "{system}_{_}_qd{iodepth}": "'_rb.json' is left",
}


@pytest.mark.parametrize("names", NAMES)
def test_names_says_where_a_name_stops_to_fit(tmp_path, names):
    (tmp_path / "elm_dbmix_qd8_rb.json").write_text(RESULT)
    with pytest.raises(ForeignError) as error:
        hci.read_results(tmp_path, names=names)
    assert NAMES[names] in str(error.value)


def test_a_repeat_may_be_a_letter(tmp_path):
    for letter, content in (("a", RESULT), ("B", OTHER)):
        (tmp_path / f"elm_r{letter}.json").write_text(content)
    assert sorted(hci.read_results(tmp_path, names="{system}_r{rep}.json")["rep"]) == [1, 2]


def test_recognise_shows_engine_and_direct_in_lines_of_120_letters(tmp_path, capsys):
    from hcilib.cli import main

    (tmp_path / "deep" / ("long" * 40)).mkdir(parents=True)
    (tmp_path / "deep" / ("long" * 40) / "a.json").write_text(RESULT)
    (tmp_path / "b.json").write_text(RESULT[:3000])
    assert main(["recognise", str(tmp_path), "--names", "{system}/**"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("ioengine=nbd direct=0" in line for line in lines)
    assert max(map(len, lines)) <= 120


def edited(folder: Path, options: dict[str, str]) -> dict:
    """Return the row of a real result with other options."""
    document = json.loads(RESULT)
    [job] = document["jobs"]
    job["job options"] |= options
    (folder / "a.json").write_text(json.dumps(document))
    [row] = hci.read_results(folder, system="s").to_dict("records")
    return row


OPTIONS = {  # options -> columns
    "kib is 1000": ({"size": "100kib"}, {"size_bytes": 100_000}),
    "kb is 1024": ({"size": "100kb"}, {"size_bytes": 102_400}),
    "rwmixwrite": ({"rw": "randrw", "rwmixread": "", "rwmixwrite": "0"}, {"rwmixread": 100, "rw": "randread"}),
    "as long as it should": ({"time_based": "1", "runtime": "5"}, {"valid": True}),
    "less than 95 % of it": ({"time_based": "1", "runtime": "6"}, {"valid": False}),
    "thinktime": ({"thinktime": "5"}, {"other_options": "thinktime=5"}),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_what_options_say(tmp_path, case):
    options, columns = OPTIONS[case]
    row = edited(tmp_path, options)
    for name, value in columns.items():
        if name == "other_options":
            assert value in row[name]
        else:
            assert row[name] == value, name


def test_a_mix_of_which_no_share_is_stated_is_half_and_another_one_is_marked(tmp_path):
    row = edited(tmp_path, {"rw": "randrw", "rwmixread": ""})
    assert row["rwmixread"] == 50
    assert "mix" in row["warnings"].split()


def test_three_jobs_on_two_vms_are_one_and_a_half_each(tmp_path):
    for vm, jobs in ((1, 1), (2, 2)):
        document = json.loads(RESULT)
        [job] = document["jobs"]
        document["jobs"] = [job] * jobs
        document["timestamp"] += vm
        (tmp_path / f"x_{vm}.json").write_text(json.dumps(document))
    [row] = hci.read_results(tmp_path, names="{system}_{vm}.json").to_dict("records")
    assert (row["vms"], row["numjobs"]) == (2, 1.5)


def test_bandwidth_of_elbencho_is_counted_where_whole_mib_are_printed():
    table = hci.read_results(hci.ROOT / "tests/data/foreign/elbencho")
    [reads] = table.query("system == 'ash' and rep == 0 and rw == 'randread'").to_dict("records")
    assert (reads["iops"], reads["bw_bytes"]) == (50_000, 50_000 * 4096)


def test_a_name_that_can_be_read_in_two_ways_is_left_out(tmp_path):
    (tmp_path / "a_b_c.json").write_text(RESULT)
    with pytest.raises(ForeignError, match="twice"):
        hci.read_results(tmp_path, names="{system}_{placement}.json")
