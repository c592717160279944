"""Folders as they are: logs of containers, notes beside results, files that nobody expects.

Each is made of real results of fio (data/samples/loose-files, tests/data/sections).
"""

import gzip
import json
import os
import re

import pandas as pd
import pytest

import hcilib as hci
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


PADDED = (DATA / "cases/c31_no_head/randread_512k_qd1.txt").read_text()
GROUP = PADDED[PADDED.index(": (groupid=0") :]
DAMAGED = {
    "b.json": '{"fio version":' + "[" * 100_000,
    "b.txt": RESULT[:3000],
    "c.txt": TEXT[:200],
    "mix.json": OTHER.replace('"rw" : "randread"', '"rw" : "randrw", "rwmixread" : "abc"'),
    "groups.txt": f"a{GROUP}\nb{GROUP.replace('groupid=0, jobs=50', 'groupid=1, jobs=25')}",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_an_odd_file_costs_that_file_alone(tmp_path, name):
    (tmp_path / "a.json").write_text(RESULT)
    (tmp_path / name).write_text(DAMAGED[name])
    table = hci.read_results(tmp_path, system="s")
    assert [file for file, _ in table.attrs["left_out"]] == [name]
    assert "left-out" in table["warnings"].iat[0].split()


NESTED = "[" * 1000 + "]" * 1000


@pytest.mark.parametrize("folder", ["", "infra", "infra/steps/x"])
@pytest.mark.parametrize("plan", ['{"format_version": "1.0"}', NESTED])
def test_a_plan_of_another_program_costs_its_folder_alone(tmp_path, plan, folder):
    (tmp_path / "good.json").write_text(RESULT)
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    written(tmp_path / folder.partition("/")[0] / "plan.json", plan if folder else NESTED)
    assert len(hci.read_results(tmp_path, system="x")) == 1
    files = hci.recognise(tmp_path).set_index("file")
    assert (files.drop("good.json")["what"] != "result").all()


def test_a_table_of_names_has_gaps_and_fractions_and_a_count_that_no_machine_holds_is_named(
    tmp_path,
):
    for name, content in (("a", RESULT), ("b", OTHER), ("c", RESULT + " ")):
        (tmp_path / f"{name}.json").write_text(content)
    names = pd.DataFrame({"file": ["c.json", "a.json", "b.json"], "system": [*"sqr"]})
    names = names.assign(rep=[None, 3.0, None], vms=["9" * 400, "1", "1"])
    results = hci.read_results(tmp_path, names=names)
    assert results.set_index("system")["rep"].to_dict() == {"q": 3, "r": 0}
    assert [file for file, _ in results.attrs["left_out"]] == ["c.json"]


@pytest.mark.parametrize("name", ["größe ä 1", "a b  c", "x\x1b[31m", os.fsdecode(b"caf\xe9")])
def test_every_name_can_be_shown_and_written(tmp_path, name):
    (tmp_path / f"{name}.json").write_text(RESULT)
    for table in (hci.recognise(tmp_path), hci.read_results(tmp_path, names="{system}.json")):
        said = table.to_csv()
        said.encode()
        assert "\x1b" not in said
    assert hci.read_results(tmp_path, names="{system}.json")["system"].iat[0].isprintable()


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
