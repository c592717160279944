"""data/published/passages.csv: every passage of the five articles is there and leads to what exists."""

import fnmatch
import json
import re
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
import yaml

import hcilib as hci
from hcilib import published_claims
from hcilib.show.site.scenarios import Scenario, find_scenarios

ROOT = Path(__file__).resolve().parents[1]
PASSAGES, CLAIMS = pd.read_csv(hci.ROOT / "data/published/passages.csv").fillna(""), published_claims()
HOW = ["checked by", "applied by", "replayed by", "named, not checkable", "recorded in", "text only", "not reproduced"]
SENTENCES = {
    "starwind-s2d-rdma-hyperv": 351,
    "s2d-csv-io-datapath": 82,
    "starwind-vsan-4node-scaling": 248,
    "proxmox-2node-hci": 247,
    "s2d-2way-vs-nested": 67,
}
"""How many passages each article has by the rule in data/published/README.md."""
FOLDERS = {"c": "campaigns", "s": "systems", "t": "testbeds"}


@cache
def campaigns() -> dict[str, Scenario]:
    return {s.name: s for s in find_scenarios(ROOT / "params" / "campaigns", ROOT / "notebooks")}


def planned(scenario: Scenario) -> hci.Plan:
    """Return the plan that the scenario's notebook makes of its params, and of nothing else."""
    params = scenario.params
    depth = {"iodepth": [params["iodepth"]]} if "iodepth" in params else {}
    if scenario.notebook.stem == "05_latency":
        depth = {"iodepth": [1], "numjobs": 1, "vms": 1}
    return hci.sweep(**{"patterns": params.get("patterns"), **depth, **params["sweep"]})


def headings(notebook: str) -> set[str]:
    cells = json.loads((ROOT / "notebooks" / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return set(re.findall(r"(?m)^## (.+)$", text))


@pytest.mark.parametrize("source", SENTENCES)
def test_every_sentence_is_in_one_row(source):
    mine = PASSAGES[PASSAGES["source"] == source]
    assert (mine["last"] - mine["first"] + 1).sum() == SENTENCES[source]
    for _, under in mine.groupby("heading", sort=False):
        numbers = [n for row in under.itertuples() for n in range(row.first, row.last + 1)]
        assert numbers == [*range(1, len(numbers) + 1)]


def test_every_row_has_its_kind_and_place():
    """Only what a file sets is applied, and only what a table can judge, or a file or page asks for, is checked."""
    judged = hci.check_claims(hci.published(), CLAIMS, hci.published_facts()).set_index("id")["verdict"]
    claims = CLAIMS.assign(is_open=CLAIMS["id"].map(judged).eq("not checkable"))
    found = PASSAGES.reset_index(names="row").merge(claims[["source", "heading", "sentence", "is_open"]])
    found = (
        found[found["sentence"].between(found["first"], found["last"])].groupby("row")["is_open"].agg(["size", "all"])
    )
    rows = PASSAGES.join(found).fillna({"size": 0, "all": False})
    place, is_open, has_claim = rows["where"], rows["all"].astype(bool), rows["size"] > 0
    of_version = place.ne("") & place.str.split("; ").map(lambda own: all(token.endswith(":versions") for token in own))
    is_right = {
        "checked by": place.ne("") | (has_claim & ~is_open),
        "named, not checkable": place.eq("") & has_claim & is_open,
        "applied by": place.ne("") & ~of_version,
        "recorded in": of_version,
        "replayed by": place.ne(""),
        "text only": ~has_claim,
        "not reproduced": rows["reason"].ne(""),
    }
    wrong = [row for how, right in is_right.items() for row in rows[(rows["how"] == how) & ~right].itertuples()]
    assert not wrong
    assert PASSAGES["statement"].ne("").all()


def test_the_counts_of_the_document_are_those_of_the_rows():
    told = (hci.ROOT / "data/published/README.md").read_text(encoding="utf-8").partition("Rows: ")[2]
    counts = PASSAGES["how"].value_counts()
    assert set(counts.index) == set(HOW)
    assert [int(re.search(rf"(\d+) {how}", told)[1]) for how in HOW] == counts[HOW].tolist()


def test_every_claim_is_in_a_passage_and_quotes_at_most_five_words():
    known = {(r.source, r.heading, n) for r in PASSAGES.itertuples() for n in range(r.first, r.last + 1)}
    assert {(row.source, row.heading, row.sentence) for row in CLAIMS.itertuples()} <= known
    assert CLAIMS["phrase"].str.split().str.len().between(1, 5).all()
    assert PASSAGES["statement"].str.split().str.len().max() <= 12  # own words, no copied sentence


def test_every_place_that_is_named_exists():
    tokens = {token for where in PASSAGES["where"] for token in where.split("; ") if token}
    for scenario, heading in {re.fullmatch(r"p:([^#]+)#(.+)", t).groups() for t in tokens if t.startswith("p:")}:
        assert (ROOT / "params" / f"{scenario}.yaml").exists(), scenario
        assert heading in {*headings(scenario.partition(".")[0])}, (scenario, heading)
    for token in (token for token in tokens if token.partition(":")[0] in FOLDERS):
        kind, pattern, key = token.split(":", 2)
        files = (ROOT / "params" / FOLDERS[kind]).glob("*.yaml")
        named = [file for file in files if fnmatch.fnmatch(file.stem, pattern)]
        assert named, token
        for file in named if not key.startswith("plan.") else ():
            found = yaml.safe_load(file.read_text(encoding="utf-8"))
            for part in key.split("."):
                found = found[int(part) if part.isdigit() else part]


# ---- Every campaign is the plan of its article's text. The numbers are those of the texts.


def kinds(plan: hci.Plan) -> dict[str, int]:
    counted = [step.kind for step in plan.steps]
    return {kind: counted.count(kind) for kind in dict.fromkeys(counted)}


def written(name: str) -> dict[str, float]:
    """Pattern of a prefill -> the bytes that it writes, all disks together, by the plan's own table."""
    from hcilib import load_testbed

    scenario = campaigns()[name]
    frame = planned(scenario).to_frame(load_testbed(ROOT / scenario.params["testbed"]))
    fills = frame[frame["kind"] == "prefill"]
    return {"prefills": len(fills), "bytes": fills["bytes_written"].iloc[0]}


def runtimes(plan: hci.Plan) -> tuple[set, set]:
    measured = [step for step in plan.steps if step.kind == "measure"]
    return tuple(
        {step.runtime_s for step in measured if step.cell.pattern.writes is writes} for writes in (False, True)
    )


def warmups(plan: hci.Plan) -> dict[str, float]:
    return {step.cell.pattern.name: step.runtime_s for step in plan.steps if step.kind == "warmup"}


@pytest.mark.parametrize("name", [n for n in campaigns() if n.startswith("05_latency.")])
def test_articles_000_and_003_with_one_io(name):
    plan = planned(campaigns()[name])
    assert {(cell.vms, cell.numjobs, cell.iodepth) for cell in plan.cells} == {(1, 1, 1)}
    assert {cell.pattern.name for cell in plan.cells} == {"4k-randread", "4k-randwrite", "4k-randwrite-sync"}
    assert kinds(plan)["measure"] == 9
    assert runtimes(plan) == ({600}, {1800})
    assert {*warmups(plan).values()} == {4 * 3600}


def test_articles_000_and_003_on_the_bare_drive():
    plan = planned(campaigns()["02_baseline.raw-drives"])
    loads = {cell.pattern.name: (cell.numjobs, cell.iodepth) for cell in plan.cells}
    assert loads == {
        "4k-randread": (6, 32),
        "4k-randrw70": (6, 16),
        "4k-randwrite": (4, 4),
        "64k-randread": (8, 8),
        "64k-randwrite": (2, 1),
        "1m-read": (1, 8),
        "1m-write": (1, 2),
    }
    assert written("02_baseline.raw-drives") == {"prefills": 1, "bytes": 3.2e12}


def test_article_001():
    plan = planned(campaigns()["07_datapath.s2d-csv"])
    assert {cell.pattern.name for cell in plan.cells} == {"1m-read-rate1024m", "1m-write-rate1024m"}
    assert {cell.pattern.rate_bytes for cell in plan.cells} == {2**30}
    assert {(cell.vms, cell.placement) for cell in plan.cells} == {(1, "owner"), (1, "non-owner")}
    assert kinds(plan)["measure"] == 4
    assert warmups(plan) == {}


SIX = {"4k-randwrite", "4k-randread", "64k-randwrite", "64k-randread", "8k-randrw70", "1m-read"}


def test_article_002_over_threads():
    plan = planned(campaigns()["03_sweep.starwind-iscsi-4node"])
    assert {(cell.numjobs, cell.iodepth) for cell in plan.cells} == {
        (threads, depth) for threads in (1, 2, 4, 8) for depth in (1, 2, 4, 8, 16, 32, 64, 128)
    }
    assert {(cell.vms, cell.pattern.name) for cell in plan.cells} == {(1, "4k-randread")}
    assert runtimes(plan) == ({60}, set())
    assert plan.pause_s == 10
    assert written("03_sweep.starwind-iscsi-4node")["bytes"] == 256e9


def test_article_002_on_the_bare_drive():
    plan = planned(campaigns()["02_baseline.raw-p3700"])
    assert {cell.pattern.name for cell in plan.cells} == SIX
    assert {(c.pattern.name, c.numjobs, c.iodepth) for c in plan.cells if c.iodepth != 8} == {("4k-randread", 4, 32)}
    assert {cell.numjobs for cell in plan.cells} == {4}
    assert runtimes(plan) == ({60}, {60})
    assert written("02_baseline.raw-p3700") == {"prefills": 7, "bytes": 2e12}


@pytest.mark.parametrize("name", ["proxmox", "hyperv", "hyperv-mirror", "raw-drives"])
def test_articles_000_and_003_ran_fios_client_and_servers(name):
    assert hci.load_testbed(ROOT / f"params/testbeds/{name}.example.yaml").fio.launcher == "client-server"
