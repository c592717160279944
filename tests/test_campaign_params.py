"""params/campaigns: the two-node articles' campaigns, ready for a testbed. What they measure is what the articles printed."""

import re
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib.show.report.scenarios import find_scenarios
from hcilib.system import load_system
from hcilib.testbed import load_testbed

ROOT = Path(__file__).resolve().parents[1]
SCENARIOS = find_scenarios(ROOT / "params" / "campaigns", ROOT / "notebooks")
SWEEPS = [s for s in SCENARIOS if s.notebook.stem == "10_audit"]
ARTICLES = {"proxmox": ("proxmox-2node-hci", 16), "hyperv": ("starwind-s2d-rdma-hyperv", 20)}
LOAD = ["pattern", "numjobs", "iodepth"]


def article_of(scenario) -> tuple[str, int]:
    return ARTICLES[Path(scenario.params["testbed"]).name.split(".")[0]]


def test_every_system_of_both_articles_has_its_campaign():
    rows = hci.published(ROOT / "data" / "published")
    for article, vms in ARTICLES.values():
        systems = set(rows.loc[(rows["source"] == article) & (rows["vms"] == vms), "system"])
        assert systems == {s.name.split(".")[1] for s in SWEEPS if article_of(s) == (article, vms)}
        assert systems <= {s.name.split(".")[1] for s in SCENARIOS if s.notebook.stem == "05_latency"}


@pytest.mark.parametrize("scenario", SWEEPS, ids=lambda s: s.name)
def test_the_cells_are_those_the_article_printed(scenario):
    article, vms = article_of(scenario)
    system = scenario.name.split(".")[1]
    plan = hci.sweep(**scenario.params["sweep"])
    rows = hci.published(ROOT / "data" / "published")
    rows = rows[(rows["source"] == article) & (rows["system"] == system) & (rows["vms"] == vms)]
    printed = {tuple(row) for row in rows[LOAD].astype({"numjobs": int, "iodepth": int}).itertuples(index=False)}
    assert {(c.pattern.name, c.numjobs, c.iodepth) for c in plan.cells} == printed
    assert {c.vms for c in plan.cells} == {vms}
    assert plan.order == "back-to-back"
    runs = pd.Series([s.cell for s in plan.steps if s.kind == "measure"]).value_counts()
    assert set(runs) == {3}
    assert {s.cell.pattern.writes: s.runtime_s for s in plan.steps if s.kind == "measure"} == {False: 600, True: 1800}
    assert {s.cell.pattern.name: s.runtime_s for s in plan.steps if s.kind == "warmup"} == {
        "4k-randwrite": 14400,
        "64k-randwrite": 7200,
    }
    assert sum(s.kind == "prefill" for s in plan.steps) == 1


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_it_fits_its_testbed_and_says_how_it_is_run(scenario):
    params = scenario.params
    bed = load_testbed(ROOT / params["testbed"])
    assert params["consent"] == bed.consent
    system = load_system(ROOT / params.get("system", params.get("drive")))
    assert system.name in scenario.name or scenario.name == "02_baseline.raw-drives"
    header = "".join(line for line in scenario.params_path.read_text().splitlines(True) if line.startswith("#"))
    for path in re.findall(r"(?:params|notebooks)/\S+\.(?:yaml|ipynb)", header):
        assert (ROOT / path).exists(), path
    assert f"-f params/campaigns/{scenario.params_path.name}" in header
    if "sweep" in params:
        plan = hci.sweep(**{"patterns": params.get("patterns"), **params["sweep"]})
        assert len(bed.fleet(plan.vms)) == plan.vms
        assert plan.to_frame(bed)["overwrites"].str.len().max() > 0


def test_no_two_share_a_run_directory():
    folders = [s.params["run_dir"] for s in SCENARIOS]
    assert len(set(folders)) == len(folders)


def test_they_are_not_in_the_report():
    reported = {s.params_path.name for s in find_scenarios(ROOT / "params", ROOT / "notebooks")}
    assert not reported & {s.params_path.name for s in SCENARIOS}


def test_a_bare_drive_is_filled_once_however_many_jobs_follow():
    [scenario] = [s for s in SCENARIOS if s.notebook.stem == "02_baseline"]
    plan = hci.sweep(**scenario.params["sweep"])
    bed = load_testbed(ROOT / scenario.params["testbed"])
    frame = plan.to_frame(bed)
    assert frame.loc[frame["kind"] == "prefill", "bytes_written"].tolist() == [3.2e12]
