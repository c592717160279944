"""Odd files and odd options of other tools: each costs itself alone, and is named."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci

LOOSE = hci.ROOT / "data/samples/loose-files"
RESULT = (LOOSE / "birch_4k-randread_qd8_r1.json").read_text()
OTHER = (LOOSE / "cedar_4k-randread_qd8_r1.json").read_text()
PADDED = (hci.ROOT / "tests/data/cases/c31_no_head/randread_512k_qd1.txt").read_text()


def with_options(folder: Path, name: str, **options: str) -> None:
    """Write a real result with other options."""
    document = json.loads(RESULT)
    document["jobs"][0]["job options"] |= options
    (folder / name).write_text(json.dumps(document))


def two_groups() -> str:
    """Return fio's text of two groups, of which nothing says what they did."""
    body = PADDED[PADDED.index(": (groupid=0") :]
    second = body.replace("groupid=0, jobs=50", "groupid=1, jobs=25")
    return f"a{body}\nb{second}"


def test_groups_of_text_of_which_nothing_is_known_cost_that_file_alone(tmp_path):
    (tmp_path / "good.json").write_text(OTHER)
    (tmp_path / "groups.txt").write_text(two_groups())
    results = hci.read_results(tmp_path, system="x")
    assert len(results) == 1
    assert [file for file, _ in results.attrs["left_out"]] == ["groups.txt"]


@pytest.mark.parametrize("rates", ["0,0,0", "0,0,9", "1" * 400])
def test_rates_that_are_no_demand_are_none(tmp_path, rates):
    with_options(tmp_path, "a.json", rw="randrw", rate_iops=rates)
    (tmp_path / "good.json").write_text(OTHER)
    results = hci.read_results(tmp_path, system="x")
    assert len(results) == 2
    assert results["offered_iops"].isna().all()


@pytest.mark.parametrize("plan", ['{"format_version": "1.0"}', "[" * 1000 + "]" * 1000])
@pytest.mark.parametrize("below", ["", "steps/x"])
def test_a_plan_of_another_program_in_a_folder_costs_that_folder_alone(tmp_path, plan, below):
    (tmp_path / "good.json").write_text(OTHER)
    (tmp_path / "infra" / below).mkdir(parents=True)
    (tmp_path / "infra/plan.json").write_text(plan)
    assert len(hci.read_results(tmp_path, system="x")) == 1
    files = hci.recognise(tmp_path).set_index("file")
    assert files.loc[[name for name in files.index if "infra" in name], "skipped"].ne("").all()


def test_a_table_of_names_may_have_gaps_and_counts_that_pandas_made_fractions(tmp_path):
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(RESULT if name == "a.json" else OTHER)
    names = pd.DataFrame({"file": ["a.json", "b.json"], "system": ["q", "r"], "rep": [3.0, None]})
    results = hci.read_results(tmp_path, names=names).set_index("system")
    assert results["rep"].to_dict() == {"q": 3, "r": 0}


def test_a_count_that_no_machine_holds_is_named(tmp_path):
    (tmp_path / "a.json").write_text(RESULT)
    (tmp_path / "b.json").write_text(OTHER)
    names = pd.DataFrame({"file": ["a.json", "b.json"], "vms": ["9" * 400, "1"]})
    results = hci.read_results(tmp_path, names=names, system="x")
    assert [file for file, _ in results.attrs["left_out"]] == ["a.json"]


def test_jobs_of_which_one_has_both_directions_in_one_number_are_refused(tmp_path):
    document = json.loads(RESULT)
    [job] = document["jobs"]
    mix = {"rw": "randrw", "rwmixread": "50"}
    plain = job | {"job options": mix, "write": job["read"]}
    unified = {name: job[name] for name in job if name not in ("read", "write", "trim")}
    unified |= {"job options": mix, "mixed": job["read"]}
    document["jobs"] = [plain, unified]
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"a\.json: unified_rw_reporting"):
        hci.read_results(tmp_path, system="x")


def test_a_working_set_is_that_of_all_jobs(tmp_path):
    document = json.loads(RESULT)
    document["jobs"][0]["job options"] |= {"size": "10g", "numjobs": "2"}
    (tmp_path / "a.json").write_text(json.dumps(document))
    [codes] = hci.read_results(tmp_path, system="x")["warnings"]
    assert "small-file" not in codes.split()


def test_where_submission_is_most_of_the_latency_percentiles_of_completion_are_missing(tmp_path):
    document = json.loads(RESULT)
    read = document["jobs"][0]["read"]
    read["clat_ns"]["bins"] = read["lat_ns"].pop("bins")
    read["slat_ns"] |= {"mean": 0.6 * read["lat_ns"]["mean"]}
    (tmp_path / "a.json").write_text(json.dumps(document))
    [row] = hci.read_results(tmp_path, system="x").to_dict("records")
    assert pd.isna(row["p50_ns"])
    assert "percentiles" in row["warnings"].split()
