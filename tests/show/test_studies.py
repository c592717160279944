"""Studies: which scenarios tell one story, what the index shows of it."""

import math
import shutil
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib import TestbedError
from hcilib.model.archives import unpacked
from hcilib.model.study import load_studies
from hcilib.show.report.folders import with_scenarios
from hcilib.show.report.page import rendered
from hcilib.show.site.scenarios import find_scenarios, page_title
from hcilib.show.report.site import topology
from hcilib.show.report.strips import strip
from hcilib.show.report.studies import CHAPTERS, Story, find_studies, reading_order, stories, study_of

ROOT = Path(__file__).resolve().parents[2]
STUDY = "short: A\ntitle: T\nunder_test: two systems\nscenarios: [04_compare.x]\n"


def rows_of(table: pd.DataFrame) -> list[dict[str, str]]:
    """Return the rows as a CSV file gives them."""
    return [{key: "" if pd.isna(v) else str(v) for key, v in row.items()} for row in table.to_dict("records")]


def test_every_scenario_belongs_to_one_study_and_every_study_names_scenarios_that_exist():
    studies = load_studies(ROOT / "params/studies")
    there = {path.stem for path in (ROOT / "params").glob("*.yaml")}
    named = [name for study in studies.values() for name in study.scenarios]
    assert sorted(named) == sorted(there)


def test_the_five_articles_are_studies():
    sources = pd.read_csv(ROOT / "data/published/sources.csv")
    articles = {study.article for study in find_studies(ROOT).values() if study.article}
    assert articles == set(sources["source"])


def test_real_hardware_comes_before_stand_ins():
    order = [study.hardware for study in find_studies(ROOT).values()][1:]  # without the reader's own
    assert order == sorted(order, key=["real", "emulated", "simulated"].index)


def test_a_scenario_of_another_folder_is_yours(tmp_path):
    (tmp_path / "04_compare.proxmox.yaml").write_text("")
    (own,) = find_scenarios(tmp_path, ROOT / "notebooks")
    assert study_of(own, ROOT) == "yours"
    (shipped,) = find_scenarios(ROOT / "params/04_compare.proxmox.yaml", ROOT / "notebooks")
    assert study_of(shipped, ROOT) == "proxmox"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (STUDY.replace("title: T\n", ""), "title"),
        (STUDY + "hardware: virtual\n", "hardware"),
        (STUDY + "order: 3\n", "order"),
        (STUDY.replace("[04_compare.x]", "04_compare.x"), "scenarios"),
    ],
)
def test_a_wrong_study_names_its_file_and_field(tmp_path, text, field):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(TestbedError) as refused:
        load_studies(tmp_path)
    assert str(tmp_path / "a.yaml") in str(refused.value)
    assert f"field {field}" in str(refused.value)


def test_a_scenario_of_two_studies_is_refused(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(STUDY)
    with pytest.raises(TestbedError, match=r"b\.yaml: field scenarios: 04_compare\.x"):
        load_studies(tmp_path)


def test_a_story_has_the_answers_of_its_pages_in_reading_order():
    names = ["04_compare.x", "10_audit.x", "13_failure.x", "13_failure.y", "09_capacity.x"]
    pages = [{"name": name, "ok": True, "answer": f"{name}."} for name in sorted(names, key=reading_order)]
    study = next(iter(load_studies(ROOT / "params/studies").values()))
    shown = ["04_compare.x", "09_capacity.x", "13_failure.x"]
    assert Story("x", study, pages).answers == [(CHAPTERS[name[:2]], f"{name}.") for name in shown]
    assert Story("x", study, pages[-1:]).answers == [(CHAPTERS["10"], "10_audit.x.")]
    assert Story("x", study, [{**pages[0], "ok": False}]).answers == [], "a failed page holds its notebook's outputs"


def test_a_study_without_a_comparison_is_called_after_the_page_that_its_file_names_first():
    method = find_studies(ROOT)["method"]
    results = [
        {"name": name, "study": "method", "ok": True, "title": name, "answer": f"{name}."} for name in method.scenarios
    ]
    (story,) = stories(results, ROOT)
    assert story.pages[0]["name"] != method.scenarios[0] == story.title
    assert [text for _, text in story.answers] == [f"{method.scenarios[0]}."]


def test_a_comparison_is_read_before_its_audit():
    names = ["10_audit.a", "04_compare.a", "99_own.a", "13_failure.a"]
    assert sorted(names, key=reading_order) == ["04_compare.a", "13_failure.a", "10_audit.a", "99_own.a"]


def test_a_folder_of_run_directories_is_compared_and_audited(tmp_path):
    runs = [ROOT / "data/samples/lab-single", ROOT / "data/samples/lab-mirror"]
    made = with_scenarios(runs[0], tmp_path / "out", ROOT)
    assert [file.name for file in made] == ["10_audit.lab-single.yaml"], "one system alone is not compared"
    (tmp_path / "both").mkdir()
    for run in runs:
        shutil.copytree(unpacked(run), tmp_path / "both" / run.name)
    made = with_scenarios([tmp_path / "both"], tmp_path / "out", ROOT)
    scenarios = {scenario.name: scenario.params for scenario in find_scenarios(made, ROOT / "notebooks")}
    assert list(scenarios) == ["04_compare.both", "10_audit.both"]
    compared = scenarios["04_compare.both"]
    assert {compared["baseline"], compared["challenger"]} == {"lab-single", "lab-mirror"}
    assert all((ROOT / source).is_dir() for source in compared["sources"])


def test_a_folder_of_other_tools_files_is_read_as_such(tmp_path):
    made = with_scenarios(ROOT / "data/samples/loose-files", tmp_path, ROOT)
    (scenario,) = find_scenarios(made, ROOT / "notebooks")
    assert scenario.name == "00_files.loose-files"
    assert scenario.params["path"] == "data/samples/loose-files"


def test_a_drawing_shows_the_nodes_drives_and_copies_of_the_system_files():
    (hardware,) = topology(["starwind-rdma-pve", "ceph-pve", "no-such-system"], hci.load_systems())
    system = hci.load_system("params/systems/starwind-rdma-pve.yaml")
    assert (hardware["nodes"], hardware["drives"]) == (system.nodes, system.drives_per_node)
    assert hardware["vms"] == system.vms.count
    assert [told["label"] for told in hardware["systems"]] == ["StarWind RDMA", "Ceph"]
    assert system.transport in hardware["systems"][0]["layout"]


# ---- Strips


def published() -> pd.DataFrame:
    return hci.published().query("source == 'proxmox-2node-hci' and vms > 1")


def test_a_strip_shows_every_system_and_pattern_with_the_values_of_its_tables():
    winners = hci.best_points(published())
    shown = strip(rows_of(winners))
    assert len(shown["rows"]) == winners["pattern"].nunique()
    marks = {(m["system"], round(m["share"], 6)) for row in shown["rows"] for m in row["marks"]}
    assert marks == set(zip(winners["system"], winners["pct_of_best"].round(6), strict=True))
    assert all(mark["open"] for row in shown["rows"] for mark in row["marks"]), "one printed mean each"
    assert all("lo" not in mark for row in shown["rows"] for mark in row["marks"])
    best = winners.loc[winners.groupby("pattern")["iops"].idxmax()].set_index("pattern")
    values = [float(row["value"].replace(",", "")) for row in shown["rows"]]
    assert sorted(values) == sorted(best["iops"].round())


@pytest.mark.parametrize(("lo", "hi", "beyond"), [(60.0, 90.0, False), (40.0, 250.0, True)])
def test_an_interval_is_drawn_whole_or_ends_in_an_arrow(lo, hi, beyond):
    table = hci.best_points(published()).query("pattern == '4k-randread'").assign(n=3)
    behind = table["pct_of_best"] < 99
    table = table.assign(pct_of_best_lo=lo, pct_of_best_hi=hi).where(behind, table)
    shown = strip(rows_of(table))
    marks = [mark for mark in shown["rows"][0]["marks"] if "lo" in mark]
    assert marks
    assert all((mark["lo"], mark["hi"], mark["beyond"]) == (lo, min(hi, 100), beyond) for mark in marks)
    assert all(f"({lo:.1f} to {hi:.1f} %)" in mark["said"] for mark in marks)
    html = rendered("index", stories=[Story("x", find_studies(ROOT)["yours"], [], shown)], results=[], revision="")
    assert ("bar beyond" in html) == beyond


def test_a_system_that_was_not_measured_in_a_pattern_is_named():
    table = hci.best_points(published()).query("not (system == 'ceph-pve' and pattern == '4k-randread')")
    gap = hci.best_points(published()).query("system == 'ceph-pve' and pattern == '4k-randread'")
    gap = gap.assign(iops=math.nan, pct_of_best=math.nan, state="missing")
    shown = strip(rows_of(pd.concat([table, gap])))
    assert shown["rows"][0]["missing"] == ["Ceph"]


def test_a_study_reads_in_the_order_of_its_file_within_a_chapter():
    box = find_studies(ROOT)["box"]
    results = [{"name": name, "study": "box"} for name in sorted(box.scenarios)]
    (story,) = stories(results, ROOT)
    failures = [page["name"] for page in story.pages if page["name"].startswith("13_")]
    assert failures == ["13_failure.box-drbd-stamped", "13_failure.box-drbd"]
    chapters = [page["name"][:2] for page in story.pages]
    assert chapters == sorted(chapters, key=list(CHAPTERS).index)


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("A leads. B trails.", "Box: A leads"),
        ("A" * 88 + ". B.", "A" * 88),
        ("four " * 40, "four " * 17 + "…"),
        ("four " * 15 + "(in the mean of at least three)", "Box: " + "four " * 15 + "…"),
    ],
)
def test_a_title_has_ninety_letters_at_most(answer, title):
    assert page_title("Box", answer) == title
    assert len(page_title("Box", answer)) <= 90
