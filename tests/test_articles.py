"""data/published/passages.csv: every passage of the five articles is there and leads to what exists."""

import fnmatch
import json
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml

import hcilib as hci
from hcilib import published_claims

ROOT = Path(__file__).resolve().parents[1]
PASSAGES, CLAIMS = pd.read_csv(hci.ROOT / "data/published/passages.csv").fillna(""), published_claims()
SENTENCES = {
    "starwind-s2d-rdma-hyperv": 351,
    "s2d-csv-io-datapath": 82,
    "starwind-vsan-4node-scaling": 248,
    "proxmox-2node-hci": 247,
    "s2d-2way-vs-nested": 67,
}
"""How many passages each article has by the rule in data/published/README.md."""
FOLDERS = {"c": "campaigns", "s": "systems", "t": "testbeds"}


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
