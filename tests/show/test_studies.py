"""Studies: which scenarios tell one story, and what the index and its page say of it."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from bs4 import BeautifulSoup

import hcilib as hci
from hcilib.model.archives import unpacked
from hcilib.model.yaml_models import TestbedError
from hcilib.show.site.build import build
from hcilib.show.site.scenarios import find_scenarios, with_scenarios
from hcilib.show.site.studies import find_studies, load_studies, stories, study_of

ROOT = Path(__file__).resolve().parents[2]
STUDY = "short: A\ntitle: T\nunder_test: two systems\nscenarios: [04_compare.x]\n"


def test_studies_name_every_scenario_once_and_every_article_and_real_hardware_comes_first():
    studies = find_studies(ROOT).values()
    there = {path.stem for path in (ROOT / "params").glob("*.yaml")}
    assert sorted(name for study in studies for name in study.scenarios) == sorted(there)
    sources = pd.read_csv(ROOT / "data/published/sources.csv")
    every = find_scenarios(ROOT / "params", ROOT / "notebooks")
    assert {one.params.get("article") for one in every} - {None} == set(sources["source"])
    order = [study.hardware for study in studies]
    assert order == sorted(order, key=["real", "emulated", "simulated"].index)


def test_a_scenario_of_another_folder_is_its_own_study(tmp_path):
    (tmp_path / "04_compare.proxmox.yaml").write_text("")
    (own,) = find_scenarios(tmp_path, ROOT / "notebooks")
    assert study_of(own, ROOT) == "04_compare.proxmox"
    (shipped,) = find_scenarios(ROOT / "params/04_compare.proxmox.yaml", ROOT / "notebooks")
    assert study_of(shipped, ROOT) == "proxmox"


WRONG = {
    "title": [STUDY.replace("title: T\n", "")],
    "hardware": [STUDY + "hardware: virtual\n"],
    "order": [STUDY + "order: 3\n"],
    "scenarios": [STUDY, STUDY],
}
"""Field -> the files of a folder, of which the last is wrong in it."""


@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_study_names_its_file_and_field(tmp_path, field):
    for number, text in enumerate(WRONG[field]):
        (tmp_path / f"{number}.yaml").write_text(text)
    with pytest.raises(TestbedError, match=rf"{number}\.yaml: field {field}"):
        load_studies(tmp_path)


def page(name: str, study: str, answer: str = "It leads. It costs.", ok: bool = True) -> dict:
    return {"name": name, "study": study, "ok": ok, "error": "", "question": f"{name}?", "answer": answer}


def test_a_study_reads_in_the_order_of_its_file_and_own_scenarios_come_first(tmp_path):
    box = find_studies(ROOT)["box"]
    results = [page(name, "box") for name in sorted(box.scenarios)] + [page("04_compare.mine", "04_compare.mine")]
    told = stories(results, tmp_path, ROOT)
    assert [story.key for story in told] == ["04_compare.mine", "box"]
    assert [each["name"] for each in told[1].pages] == list(box.scenarios)
    assert "Hardware not stated" in told[0].provenance


@pytest.mark.parametrize(
    ("answer", "is_title"),
    [("A leads. B trails.", True), ("A" * 90 + ". B.", True), ("A" * 91 + ". B.", False), ("", False)],
)
def test_a_title_is_a_finding_that_is_never_cut(tmp_path, answer, is_title):
    (story,) = stories([page("04_compare.box", "box", answer)], tmp_path, ROOT)
    assert story.title == (answer.partition(". ")[0].rstrip(".") if is_title else find_studies(ROOT)["box"].title)
    assert len(story.title) <= 90


# ---- Pages of data that a test knows


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Two systems compared with their capacity, a failure, and one article, as studies of the repository."""
    names = ("04_compare.box", "09_capacity.box", "13_failure.box-drbd", "14_demand.box-drbd", "04_compare.proxmox")
    params = [ROOT / f"params/{name}.yaml" for name in names]
    return build(params, tmp_path_factory.mktemp("site"), 2, ROOT)[0].parent


def read(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text("utf-8"), "html.parser")


def rows(site: Path, key: str) -> dict[str, str]:
    """Return what the index says of a study, below a figure."""
    (section,) = [s for s in read(site / "index.html").find_all("section") if s.h2.a["href"] == f"study.{key}.html"]
    assert section.img
    return {row.th.get_text(): row.td.get_text() for row in section.find_all("tr")}


def test_the_index_answers_five_questions_from_the_tables_of_its_notebooks(site):
    box = rows(site, "box")
    winners = pd.read_csv(site / "04_compare.box/winners.csv")
    leads = winners.query("state == 'leads'")
    first, patterns = len(leads), winners["pattern"].nunique()
    assert box["Who is first?"] == f"box RAID 5 in {first} of {patterns} patterns, {patterns - first} undecided"
    second = winners[winners["pattern"].isin(leads["pattern"]) & (winners["state"] == "behind")]
    share = second.groupby("pattern")["pct_of_best"].max()
    assert box["By how much?"] == f"the second has {share.min():.0f} to {share.max():.0f} % of the first"
    assert box["Is it proven?"] == f"significantly in {first} of {patterns} patterns"
    assert box["Cost and space"].startswith("usable of raw: box RAID 5 80 %, box DRBD 40 %")
    assert box["Cost and space"].endswith("no price given")
    summary = pd.read_csv(site / "13_failure.box-drbd/summary.csv")
    for row in summary.query("column == 'gap_s' and worst > 0.1").itertuples():
        assert f"outage up to {row.worst:.3g}" in box["When something fails"]
    for row in summary.query("column == 'back_s'").itertuples():
        assert f"{row.seen:.0f} of {row.n:.0f} judged run" in box["When something fails"]
    survives = "nodes that may fail, by the scheme: box DRBD 1, box NVMe/TCP mirror 1, box RAID 5 0; box DRBD,"
    assert box["When something fails"].startswith(survives)
    assert box["When something fails"].endswith("box NVMe/TCP mirror, box RAID 5: no failure was tested")


def test_ranks_and_runs_are_the_least_and_the_next_of_unlike_rows(tmp_path):
    """In the box both of the others are alike, and so are the runs."""
    best = {
        "pattern": "4k-read",
        "system": ["a", "b", "c"],
        "pct_of_best": [100, 80, 40.0],
        "state": ["leads", "behind", "behind"],
    }
    folder = tmp_path / "04_compare.mine"
    folder.mkdir()
    pd.DataFrame(best | {"n": 3}).to_csv(folder / "winners.csv")
    runs = {"system": ["a", "b"], "runtime_s": [30.0, 60.0], "span_bytes": [2**30, 2**31]}
    pd.DataFrame(runs).to_csv(folder / "pooled.csv")
    (story,) = stories([page("04_compare.mine", "04_compare.mine")], tmp_path, ROOT)
    assert dict(story.rows)["By how much?"] == "the second has 80 % of the first"
    assert story.runs == "runs of at least 30 s, over at least 1 GiB"


def test_a_failure_of_two_pages_has_the_worst_outage_and_the_runs_of_both(tmp_path):
    known = {"system": "box-drbd", "failure": "cut-link", "quantity": ["outage (s)", "back (s)"]}
    known |= {"column": ["gap_s", "back_s"], "resolution_s": [0.1, float("nan")]}
    runs = {"13_failure.box-drbd-stamped": (0.705, 2, 2), "13_failure.box-drbd": (1.25, 3, 0)}
    results = [page("04_compare.box", "box"), *(page(name, "box") for name in runs)]
    best = {"pattern": ["4k-read"], "system": "box-drbd", "pct_of_best": 100.0, "state": "leads", "n": 3}
    tables = {"04_compare.box": ("winners", pd.DataFrame(best))}
    for name, (gap_s, judged, back) in runs.items():
        told = {"worst": [gap_s, float("inf")], "n": [3, judged], "seen": [3, back]}
        tables[name] = "summary", pd.DataFrame(known | told)
    for name, (table, frame) in tables.items():
        (tmp_path / name).mkdir()
        frame.to_csv(tmp_path / name / f"{table}.csv", index=False)
    (story,) = stories(results, tmp_path, ROOT)
    said = dict(story.rows)["When something fails"]
    assert said.endswith("cutting the link: outage up to 1.25 s, 2 of 5 judged runs recovered")


def test_the_page_of_a_study_has_its_pages_by_name_and_a_caveat_of_every_row_once(site):
    page = read(site / "study.box.html")
    said = [item.get_text().partition(":")[0] for item in page.section.find_all("li")]
    rows = pd.read_csv(site / "04_compare.box/iops.csv", keep_default_na=False)["warnings"]
    every = set.intersection(*(set(codes.split()) for codes in rows))
    assert every
    assert sorted(said) == sorted(every)
    names = [link.get_text() for link in page.select("section a") if link["href"].endswith(".html")]
    assert names == ["04_compare.box", "14_demand.box-drbd", "09_capacity.box", "13_failure.box-drbd"]


def test_the_answer_of_a_latency_limit_is_a_row_of_its_table(site):
    allowed = pd.read_csv(site / "14_demand.box-drbd/allowed.csv")
    [least] = allowed.query("limit_ns == 1e8 and bound == 'at least'")["iops_lo"]
    assert f"at least {least:.0f} IOPS" in (site / "study.box.html").read_text("utf-8")


def test_what_nobody_measured_or_tested_is_said(site):
    proxmox = rows(site, "proxmox")
    assert proxmox["Is it proven?"] == "untested: one run or printed value each"
    assert proxmox["Cost and space"] == "not measured"
    assert proxmox["When something fails"].endswith("StarWind TCP 1; no failure was tested")
    page = (site / "study.proxmox.html").read_text("utf-8")
    assert "Not measured: the latency of one I/O, the load within a latency limit and failures." in page


def test_runtime_and_working_set_are_on_the_index_and_in_the_table_of_systems(site):
    runs = hci.read_results([f"{hci.ROOT}/data/samples/box/box-{name}" for name in ("raid5", "drbd", "nvme-tcp")])
    least = f"at least {runs['runtime_s'].min():.3g} s, over at least {runs['span_bytes'].min() / 2**20:g} MiB"
    for name in ("index.html", "study.box.html"):
        assert least in (site / name).read_text("utf-8")
    table = read(site / "study.box.html").table
    head, *rows = [[cell.get_text() for cell in row.find_all(["th", "td"])] for row in table.find_all("tr")]
    (drbd,) = [dict(zip(head, row, strict=True)) for row in rows if row[0] == "box DRBD"]
    known = hci.load_system("params/systems/box-drbd.yaml")
    assert (drbd["Nodes"], drbd["Drives a node"]) == (str(known.nodes), str(known.drives_per_node))


# ---- A folder without params


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
    """What its page claims: tests/test_docs_site.py."""
    (scenario,) = find_scenarios(with_scenarios(ROOT / "data/samples/loose-files", tmp_path, ROOT), ROOT / "notebooks")
    assert scenario.name == "00_files.loose-files"
    assert scenario.params["path"] == "data/samples/loose-files"
