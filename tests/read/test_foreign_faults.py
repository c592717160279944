"""Faults of reading that were mended: each row is a folder that was refused, lost or read wrongly."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import hcilib as hci
from hcilib.model.archives import pack, unpacked

RESULT = (hci.ROOT / "data/samples/loose-files/birch_4k-randread_qd8_r1.json").read_text()
NESTED = "[" * 1000 + "]" * 1000


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Make a run directory whose plan is nested too deep."""
    (tmp_path / "bad/steps").mkdir(parents=True)
    (tmp_path / "bad/plan.json").write_text(NESTED)
    return tmp_path / "bad"


@pytest.mark.parametrize("other", ["a run directory", "a file"])
def test_in_a_list_a_damaged_plan_costs_its_run_directory_alone(damaged, tmp_path, other):
    (tmp_path / "a.json").write_text(RESULT)
    good = hci.samples()["lab-single"] if other == "a run directory" else tmp_path / "a.json"
    alone, table = hci.read_results(good), hci.read_results([damaged, good])
    assert table["iops"].tolist() == alone["iops"].tolist()
    [(place, why)] = table.attrs["left_out"]
    assert place == str(damaged)
    assert "plan.json" in why
    assert all("left-out" in codes.split() for codes in table["warnings"])


def test_a_plan_that_is_no_plan_beside_results_is_no_run_directory(tmp_path):
    (tmp_path / "a.json").write_text(RESULT)
    (tmp_path / "plan.json").write_text(NESTED)
    assert len(hci.read_results(tmp_path, system="s")) == 1
    files = hci.recognise(tmp_path).set_index("file")["what"].to_dict()
    assert files == {"a.json": "result", "plan.json": "something else"}


@pytest.mark.parametrize("read", [hci.read_results, hci.read_hosts, hci.read_bins])
def test_a_warning_points_at_the_line_that_reads(tmp_path, read):
    place = shutil.copytree(hci.samples()["lab-single"], tmp_path / "run")
    shutil.rmtree(next((place / "steps").glob("measure-*")))
    with pytest.warns(hci.RunDirWarning) as caught:
        read(place)
    ours = [one for one in caught if one.category is hci.RunDirWarning]
    assert {one.filename for one in ours} == {__file__}


# ---- Months


def months(folder: Path, captures: dict[str, str]) -> dict[str, set[str]]:
    """Return campaign -> its codes, of captures of fio or elbencho under new names."""
    for name, capture in captures.items():
        source = unpacked(hci.ROOT / "tests/data" / capture)
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / name)
    table = hci.campaigns(hci.history(folder))
    return {row.campaign: set(row.warnings.split()) for row in table.itertuples()}


def test_a_campaign_without_a_valid_run_is_named(tmp_path):
    campaigns = {"good.json": "fio/healthy.json", "bad.json": "fio/enospc.json"}
    assert months(tmp_path, campaigns) == {"good.json": set(), "bad.json": {"unread"}}


def test_a_results_csv_of_another_tool_is_a_campaign_of_its_time(tmp_path):
    assert months(tmp_path, {"night": "foreign/elbencho"}) == {"night": set()}
    starts = hci.history(tmp_path)["start"].unique()
    assert [str(start) for start in starts] == ["2026-01-02 03:00:00+00:00"]


def test_an_archived_search_is_one_campaign(tmp_path):
    search = shutil.copytree(unpacked(hci.ROOT / "data/samples/lab-load"), tmp_path / "search")
    loads = hci.read_results(search)
    pack(search)
    shutil.rmtree(search)
    table = hci.history(tmp_path).query("metric == 'iops'")
    assert set(table["campaign"]) == {"search"}
    assert table["n"].sum() == len(loads)
    assert (table["setup"] != "").all()


def test_an_entry_that_is_no_file_is_no_campaign(tmp_path):
    (tmp_path / "gone.json").symlink_to("nowhere.json")
    (tmp_path / ".hidden.json").write_text(RESULT)
    assert months(tmp_path, {"a.json": "fio/healthy.json"}) == {"a.json": set()}


def test_months_are_in_the_order_of_time_whatever_campaigns_are_called(tmp_path):
    captures = {"z.json": "fio/healthy.json", "a.json": "fio/local_status.json"}
    months(tmp_path, captures)
    table = hci.history(tmp_path)
    assert table["campaign"].unique().tolist() == ["z.json", "a.json"]
    assert table["start"].is_monotonic_increasing


def test_the_tree_in_which_cbt_left_a_run_at_first_is_no_repeat_and_nothing_is_left_out(tmp_path):
    folder = shutil.copytree(hci.ROOT / "tests/data/foreign/cbt", tmp_path / "cbt")
    alone = hci.read_results(folder)
    gathered = sorted(folder.rglob("json_output.*"))[0]
    raw = folder / "00000000/LibrbdFio/osd_ra-00004096/client.0/output.0"
    raw.parent.mkdir(parents=True)
    raw.write_text(f"{gathered.read_text()}\n")
    table = hci.read_results(folder)
    assert len(table) == len(alone)
    assert table.attrs["left_out"] == []
    file = hci.recognise(folder).set_index("file").loc[str(raw.relative_to(folder))]
    assert (file["what"], file["run"]) == ("something else", "")
    assert gathered.name in file["skipped"]


def test_a_campaign_began_when_its_first_file_did(tmp_path):
    for n, name in enumerate(("local_status.json", "healthy.json")):
        (tmp_path / "night").mkdir(exist_ok=True)
        shutil.copy(unpacked(hci.ROOT / "tests/data/fio" / name), tmp_path / "night" / f"{n}.json")
    [start] = hci.history(tmp_path)["start"].unique()
    each = [hci.history(one)["start"].iloc[0] for one in split(tmp_path)]
    assert start == min(each)
    assert start < max(each)


def split(folder: Path) -> list[Path]:
    """Return folders with one file of a campaign each."""
    alone = []
    for file in sorted(folder.glob("night/*")):
        place = folder.parent / f"{folder.name}-{file.stem}"
        place.mkdir()
        shutil.copy(file, place)
        alone.append(place)
    return alone
