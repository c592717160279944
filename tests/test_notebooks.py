"""The committed notebooks: thin, executed, stripped as agreed, their params valid, and held by nbval so that it
bites."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hcilib as hci
from hcilib.show.site.scenarios import find_scenarios
from tests.cells import executed

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TAGS = ("parameters", "answer", "main")
STRIP = [
    "--keep-output",
    "--keep-count",
    "--extra-keys",
    ("metadata.papermill cell.metadata.papermill metadata.language_info.version"),
]


def code_cells(notebook: Path) -> list[dict]:
    cells = json.loads(notebook.read_text())["cells"]
    return [c for c in cells if c["cell_type"] == "code" and "".join(c["source"]).strip()]


def tags(cell: dict) -> list[str]:
    return cell["metadata"].get("tags", [])


def text(cell: dict) -> str:
    return "".join(cell["source"])


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.stem)
def test_is_thin_and_finished(notebook):
    """From a question over one answer and one main table to limits and a glossary; a cell has at most eight lines."""
    every = json.loads(notebook.read_text())["cells"]
    assert re.match(r"# .+\?\n", text(every[0])), "the title is a question"
    parameters, answer, main = ([n for n, c in enumerate(every) if tag in tags(c)] for tag in TAGS)
    limits = [n for n, c in enumerate(every) if text(c).startswith("## Limits")]
    assert len(parameters + answer + main + limits) == 4
    assert parameters < answer < main < limits
    assert ["hci.glossary(" in text(c) for c in every[limits[0] + 1 :]] in ([], [True])
    cells = code_cells(notebook)
    lines = {text(c): re.findall(r"^ *[^ #\n]", text(c), re.M) for c in cells if "parameters" not in tags(c)}
    assert [source for source, own in lines.items() if len(own) > 8] == []
    assert not any(isinstance(node, ast.FunctionDef | ast.ClassDef | ast.For | ast.While)
                   for c in cells if "open_testbed" not in text(c)
                   for node in ast.walk(ast.parse(text(c))))  # fmt: skip


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.stem)
def test_holds_outputs_that_nbval_compares(notebook):
    held = [c for c in code_cells(notebook) if c["outputs"] and "nbval-ignore-output" not in tags(c)]
    assert {"answer", "main"} <= {tag for c in held for tag in tags(c)}
    assert all(c["execution_count"] for c in code_cells(notebook))
    assert "raises-exception" not in [t for c in code_cells(notebook) for t in tags(c)]
    assert not [o for c in code_cells(notebook) for o in c["outputs"] if o["output_type"] == "error"]


def test_they_are_stripped_as_agreed_and_name_no_place_of_this_machine(tmp_path):
    copies = {notebook: Path(shutil.copy(notebook, tmp_path)) for notebook in NOTEBOOKS}
    subprocess.run([sys.executable, "-m", "nbstripout", *STRIP, *copies.values()], check=True)
    assert not [n.name for n, copy in copies.items() if copy.read_bytes() != n.read_bytes()], "run: make refresh"
    assert not [n.name for n in NOTEBOOKS for place in (Path.home(), ROOT) if str(place) in n.read_text()]


def test_every_params_file_fits_its_notebook():
    assert len(find_scenarios(ROOT / "params", ROOT / "notebooks")) >= len(NOTEBOOKS)


def test_every_notebook_has_a_scenario():
    named = {s.notebook.stem for s in find_scenarios(ROOT / "params", ROOT / "notebooks")}
    assert {n.stem for n in NOTEBOOKS} - named == {"template"}


def left_behind(_: str, names: list[str]) -> set[str]:
    """Name what Python and Jupyter left in a folder, for shutil.copytree to ignore."""
    return {name for name in names if name.endswith(("__pycache__", ".ipynb_checkpoints"))}


PRICES = {"starwind-rdma-hyperv": 50_000, "s2d-nmap-mirror": 80_000}


def test_a_price_becomes_a_figure_and_shares_and_none_is_made_up():
    """S2D mirror + parity has no price: no row, no share, no price in the answer."""
    names, answer, _ = executed("09_capacity", prices=PRICES, currency="EUR")
    bought, speeds = (names[name].set_index("system") for name in ("bought", "speeds"))
    assert bought["price"].to_dict() == PRICES
    assert set(speeds.index) == set(PRICES)
    usable_tib = {"starwind-rdma-hyperv": 32e12 * 0.4 / 2**40, "s2d-nmap-mirror": 32e12 / 2.8 * 0.8 / 2**40}
    for name, price in PRICES.items():
        assert bought.loc[name, "filled_tib_per_price"] == pytest.approx(0.85 * usable_tib[name] / price)
        assert speeds.loc[name, "iops_per_price"].gt(0).all()
    assert answer.count(" EUR") == len(PRICES)


def test_the_template_runs_with_other_parameters():
    names = executed("template", baseline="lab-mirror", challenger="lab-single", metric="lat_ns")[0]
    assert {"lat_ns", "lat_ns_lo", "per_io"} <= set(names["values"])


@pytest.mark.parametrize("source", ["data/published", "data/samples/lab-single"])
@pytest.mark.parametrize("notebook", ["03_sweep", "10_audit"])
def test_an_article_nobody_wrote_is_refused_and_never_named_as_a_source(notebook, source):
    """Of published tables and of a run directory, by each name of the parameter."""
    with pytest.raises(ValueError, match="no rows of article 'nosuch'; it holds "):
        executed(notebook, article="nosuch", **{"03_sweep": {"source": source}}.get(notebook, {"sources": [source]}))


def test_a_sweep_says_which_of_its_patterns_nobody_measured():
    own = {"system": "params/systems/box-drbd.yaml", "source": "tests/data/box-short/box-drbd"}
    patterns = ["4k-randread", "8k-randread"]
    assert "Not measured: 8k-randread" in executed("03_sweep", **own, article=None, drive=None, patterns=patterns)[2]


def test_the_load_of_the_answer_of_a_sweep_is_the_highest_of_all_numjobs(monkeypatch):
    read = hci.read_results(hci.ROOT / "data/samples/lab-load")  # most of its runs have four jobs
    fastest = read["numjobs"].eq(1) & read["iodepth"].eq(16)
    monkeypatch.setattr(hci, "read_results", lambda *_: read.assign(iops=read["iops"].mask(fastest, 2 * read["iops"])))
    own = {"system": "params/systems/lab-single.yaml", "article": None, "drive": None, "patterns": ["4k-randread"]}
    assert "2,067 IOPS in 4k random read at iodepth 16 (" in executed("03_sweep", **own)[1]
