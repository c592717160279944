"""Folders as they are: logs of containers, notes beside results, files that nobody expects.

Each is made of real results of fio (data/samples/loose-files, tests/data/sections).
"""

import gzip
import json
import os
import re

import pytest

import hcilib as hci
from hcilib.cli import main
from hcilib.read.foreign.settings import ForeignError
from tests.read.made import DATA, LOOSE, written

RESULT = (LOOSE / "birch_4k-randread_qd8_r1.json").read_text()
OTHER = (LOOSE / "cedar_4k-randread_qd8_r1.json").read_text()
TEXT = (DATA / "sections/numjobs.normal").read_text()
BEFORE_LINES = {  # what logs of containers and of systems put before each line
    "kubectl logs --prefix": "[pod/fio-7f/fio] ",
    "kubectl logs --timestamps": "2026-03-01T10:00:00.123456789Z ",
    "both": "[pod/fio-7f/fio] 2026-03-01T10:00:00.123456789Z ",
    "docker compose": "fio-1  | ",
    "journal": "Nov 23 14:00:00 node1 fio[123]: ",
    "times": "2026-03-01 10:00:00 ",
}


READ = {
    name: stamp + RESULT.replace("\n", f"\n{stamp}") for name, stamp in BEFORE_LINES.items()
} | {
    "times before text": re.sub("(?m)^", "Nov 23 14:00:00 ", TEXT),
    "colours": "\x1b[32m" + TEXT.replace("\n", "\x1b[0m\n\x1b[32m"),
    "a coloured line before": "\x1b[1mRunning\x1b[0m\n" + RESULT,
    "kubestr": json.dumps([{"storageClass": "x", "raw": {"result": json.loads(RESULT)}}]),
    "sorted keys": json.dumps(json.loads(RESULT), sort_keys=True),
    "text in UTF-16": TEXT.encode("utf-16"),
    "packed": gzip.compress(RESULT.encode()),
}


@pytest.mark.parametrize("form", READ)
def test_a_result_is_read_in_whatever_surrounds_it(tmp_path, form):
    written(tmp_path / ("a.log.gz" if form == "packed" else "a.log"), READ[form])
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
    (tmp_path / "deep" / ("long" * 40)).mkdir(parents=True)
    (tmp_path / "deep" / ("long" * 40) / "a.json").write_text(RESULT)
    (tmp_path / "b.json").write_text(RESULT[:3000])
    assert main(["recognise", str(tmp_path), "--names", "{system}/**"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("ioengine=nbd direct=0" in line for line in lines)
    assert max(map(len, lines)) <= 120
