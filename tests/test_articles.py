"""docs/ARTICLES.md: every figure of the five articles leads to a page that exists, or says why it cannot."""

import json
import re
from pathlib import Path

import pytest
import yaml

from hcilib.show.report.site import write_index

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ("article", "figure", "what", "scenario", "heading", "why")
TEXT = (ROOT / "docs" / "ARTICLES.md").read_text(encoding="utf-8")


def rows() -> list[dict]:
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| ")]
    return [dict(zip(COLUMNS, row, strict=True)) for row in cells if len(row) == len(COLUMNS)][1:]  # after the header


def headings(notebook: str) -> set[str]:
    cells = json.loads((ROOT / "notebooks" / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return set(re.findall(r"(?m)^## (.+)$", text))


def leads(row: dict) -> bool:
    scenario = row["scenario"].strip("`")
    if not scenario:
        return bool(row["why"]) and not row["heading"]
    return (ROOT / "params" / f"{scenario}.yaml").exists() and row["heading"] in headings(scenario.partition(".")[0])


def test_every_row_leads_to_a_page_or_says_why_not():
    assert len(rows()) > 90
    assert not [row for row in rows() if not row["what"] or not leads(row)]


@pytest.mark.parametrize("source", yaml.safe_load("[starwind-s2d-rdma-hyperv, proxmox-2node-hci]"))
def test_every_numbered_figure_of_the_two_node_articles_is_there(source):
    article = {"starwind-s2d-rdma-hyperv": "000", "proxmox-2node-hci": "003"}[source]
    figures = {row["figure"] for row in rows() if row["article"].startswith(article)}
    assert {f"Figure {n}" for n in range(1, 22)} <= figures
    assert {f"1 VM, Figure {n}" for n in range(1, 7)} <= figures


def test_every_figure_of_the_datapath_article_and_every_articles_prose_is_there():
    assert {f"Figure {n}" for n in range(1, 9)} <= {r["figure"] for r in rows() if r["article"].startswith("001")}
    assert {r["article"][:3] for r in rows() if r["figure"] == "Prose"} == {"000", "001", "002", "003", "004"}


def test_a_page_shows_the_article_its_row_names():
    sources = {"000": "starwind-s2d-rdma-hyperv", "003": "proxmox-2node-hci"}
    for row in rows():
        source = sources.get(row["article"][:3])
        if source and row["scenario"] and not row["scenario"].startswith("`09_"):
            params = yaml.safe_load((ROOT / "params" / f"{row['scenario'].strip('`')}.yaml").read_text())
            assert params["article"] == source


def test_every_named_campaign_exists_and_none_is_left_out():
    table = TEXT.partition("| article | figure")[0]
    named = set(re.findall(r"`(\d\d_\w+\.[\w-]+)`", table))
    there = {p.stem for p in (ROOT / "params" / "campaigns").glob("*.yaml")}
    assert named <= there
    left_out = {name for name in there - named if not name.startswith(("05_latency.", "02_baseline."))}
    assert not left_out


def test_the_report_leads_from_every_figure_to_the_heading_that_shows_it(tmp_path):
    page = {
        "title": "",
        "ok": True,
        "error": "",
        "question": "",
        "answer": "",
        "files": [],
        "seconds": 0,
    }
    shown = {row["scenario"].strip("`") for row in rows() if row["article"].startswith("003") and row["scenario"]}
    results = [page | {"name": name, "page": f"{name}/{name}.html", "study": "proxmox"} for name in shown]
    index = write_index(results, tmp_path, "x").read_text("utf-8")
    assert "figures.html" not in index
    assert 'href="figures.html#proxmox"' in (tmp_path / "study.proxmox.html").read_text("utf-8")
    table = (tmp_path / "figures.html").read_text("utf-8")
    wanted = [row for row in rows() if row["article"].startswith("003")]
    assert table.count('<tr><th scope="row">') == len(wanted)
    assert (
        'href="04_compare.proxmox/04_compare.proxmox.html#throughput-of-large-blocks">Throughput of large blocks<'
        in table
    )
    assert table.count('<td><a href="') == sum(bool(row["scenario"]) for row in wanted)
    assert "not in this report" not in table
    (tmp_path / "figures.html").unlink()
    write_index([results[0] | {"study": "yours"}], tmp_path, "x")
    assert not (tmp_path / "figures.html").exists()
