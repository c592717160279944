"""Pages and the files beside them: what can be downloaded is what was shown, unrounded; what it rests on is
repeatable."""

import csv
import json
import re
import shutil
import subprocess
from io import StringIO
from itertools import pairwise
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from hcilib.show.report import export
from hcilib.show.report.execute import COMMAND, data_named, file_digest, fio_versions, sources_digest, tree_digest
from hcilib.show.report.page import plain, unescaped, write_numbers, write_page
from hcilib.show.report.report import build, main
from hcilib.show.report.scenarios import find_scenarios
from hcilib.show.report.site import write_index, write_method
from hcilib.show.report.studies import find_studies

NUMBERS = """
import pandas as pd
import seaborn as sns
import hcilib as hci
measured = source
iops = pd.DataFrame({
    "system": ["lab-single", "lab-single", "lab-mirror"], "pattern": "4k-randread", "iodepth": [1, 8, 1], "n": 3,
    "iops": [100.123456789, 200.0, 1 / 3], "iops_lo": [99.0, None, 0.3], "iops_hi": [101.0, None, 0.4],
    "confidence": 0.95, "warnings": ["", "one, run", ""],
})
"""

DRAWN = """
g = sns.FacetGrid(iops, **hci.by("system", iops))
g.map_dataframe(hci.marks, x="iodepth", y="iops")
hci.finish(g, "iodepth", "iops")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> tuple[Path, dict]:
    """One scenario with tables and a figure through the public names, executed as the report does."""
    root = tmp_path_factory.mktemp("repository")
    for folder in ("notebooks", "params", "data/run/facts"):
        (root / folder).mkdir(parents=True)
    (root / "data/run/facts/vm1.json").write_text('{"fio": "fio-3.33"}')
    (root / "data/run/facts/vm2.json").write_text('{"fio": "fio-3.39"}')
    cells = [
        new_markdown_cell("# How fast?"),
        new_code_cell("source: str = 'data/run'", metadata={"tags": ["parameters"]}),
        new_code_cell(NUMBERS),
        new_markdown_cell("IOPS of both."),
        new_code_cell(DRAWN),
        new_code_cell("hci.text(iops, 'system iodepth iops').pivot(index='iodepth', columns='System', values='IOPS')"),
        new_code_cell("hci.text(iops, 'warnings')"),
        new_code_cell("hci.text(flushes := iops.head(1))", metadata={"tags": ["main"]}),
        new_code_cell("print('Fast enough.')", metadata={"tags": ["answer"]}),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), root / "notebooks/03_sweep.ipynb")
    (root / "params/03_sweep.case.yaml").write_text("")
    index, (result,) = build(root / "params", root / "out", 1, root)
    return index.parent, result


@pytest.mark.parametrize("out", ["/sys/site", "full"])
def test_a_site_that_cannot_be_written_is_one_sentence_with_its_folder(out, site, capsys, monkeypatch):
    """A folder that nobody may make, and a disk that is full."""
    monkeypatch.chdir(root := site[0].parent)
    if out == "full":
        shutil.copytree(site[0], root / "full")
        (root / "full/method.html").unlink()
        (root / "full/method.html").symlink_to("/dev/full")
    assert main(["params", "--out", out]) == 2
    said = capsys.readouterr().err
    assert re.search(rf"{out}: the site cannot be written \(\w.*\)\. Free some space there, or give another", said)
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def html(site) -> str:
    return (site[0] / site[1]["page"]).read_text("utf-8")


def test_each_table_s_numbers_are_a_file_and_that_of_the_main_cell_is_the_download(site, html):
    out, result = site
    assert result["ok"], result["error"]
    assert result["files"] == ["iops.csv", "flushes.csv"]
    assert re.findall(r'<a href="([^"]+)" download>', html) == ["flushes.csv", "03_sweep.case.ipynb"]
    assert sorted(file.name for file in (out / "03_sweep.case").glob("*.csv")) == ["flushes.csv", "iops.csv"]


def test_the_files_hold_the_frames_own_numbers(site):
    table = pd.read_csv(site[0] / "03_sweep.case/iops.csv")
    assert table["iops"].tolist() == [100.123456789, 200.0, 1 / 3]  # every digit, though the page rounds
    assert table["iops_lo"].isna().tolist() == [False, True, False]
    assert table["warnings"][1] == "one, run"  # all columns, also those the page left out


def test_the_kept_notebook_carries_no_second_copy_and_shows_the_same(site):
    book = nbformat.read(site[0] / "03_sweep.case/03_sweep.case.ipynb", 4)
    kinds = {kind for cell in book.cells for o in cell.get("outputs", []) for kind in o.get("data", {})}
    assert kinds == {"text/html", "text/plain", "image/svg+xml", "image/png"}


def test_outputs_are_named_for_those_who_do_not_see_them(html):
    [figure] = set(re.findall(r'role="img" aria-label="(Figure 1: [^"]+)"', html))
    assert figure == "Figure 1: IOPS of both."
    names = re.findall(r'class="scroll" tabindex="0" role="region" aria-label="([^"]+)"', html)
    assert names == ["Table 1: IOPS of both.", "Table 2: IOPS of both.", "Table 3: IOPS of both."]


def test_provenance_names_the_data_its_digest_and_every_fio_version(site, html):
    (data,) = site[1]["data"]
    assert data == {"path": "data/run", "files": 2, "sha256": data["sha256"], "fio": ["fio-3.33", "fio-3.39"]}
    for word in ("data/run: 2 files", data["sha256"], "measured with fio-3.33, fio-3.39", "Python 3."):
        assert word in html


def test_the_method_page_explains_every_verdict_and_is_linked_from_every_page(site, html):
    from hcilib.analyse.compare import contrast

    method = (site[0] / "method.html").read_text("utf-8")
    assert 'href="../method.html"' in html
    assert 'href="method.html"' in (site[0] / "index.html").read_text("utf-8")
    words = set(re.findall(r"\"(higher|lower|same|undecided|untested|missing)\"", Path(contrast.__file__).read_text()))
    assert len(words) >= 5
    said = {
        "unstable",
        "Little",
        "percentile",
        "ceiling",
        "no verdict",
        "blocks no verdict",
        "from 1/1.05 to 1.05",
    }
    defined = {
        "rank",
        "ranked",
        "alone",
        "plateau",
        "peak",
        "Leave-one-out",
        "bias",
        "dip",
        "decline",
        "front",
        "Tied with",
        "Stripe cost",
        "campaign",
        "crossover",
    }
    for word in words | said | {f"<strong>{word}</strong>" for word in defined}:
        assert word in method, word
    assert "<table>" in method  # the markdown was rendered, tables too
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", method)


def test_headings_come_in_order(site, html):
    for page in (html, *((site[0] / name).read_text("utf-8") for name in ("index.html", "method.html"))):
        levels = [int(level) for level in re.findall(r"<h([1-6])", page)]
        assert levels.count(1) == 1
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_digest_of_a_folder_is_what_sha256sum_says(tmp_path):
    for name, text in {"b/x.txt": "1", "a y.txt": "", "b-2.txt": "3", "B.txt": "4"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    said = subprocess.run(["bash", "-c", COMMAND], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert tree_digest(tmp_path) == said.split()[0]
    assert COMMAND in (Path(export.__file__).parent / "templates/method.md").read_text("utf-8")
    assert tree_digest(tmp_path / "a y.txt") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_digest_of_a_run_directory_is_that_of_a_fresh_clone(tmp_path):
    """Earlier versions left a cache beside plan.json, and measuring leaves a lock. Such names elsewhere are data."""
    kept = {
        "a/plan.json": "{}",
        "a/steps/x/fio.json": "1",
        "a/steps/x/tables/t.csv": "2",
        "b/tables/t.csv": "3",
        "b/.lock": "",
    }
    made = {"a/tables/steps-0.parquet": "4", "a/tables/.lock": "", "a/tables/deep/x": "5", "a/.lock": ""}
    for name, text in kept.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    clone = [tree_digest(tmp_path), tree_digest(tmp_path / "a")]
    for name, text in made.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [tree_digest(tmp_path), tree_digest(tmp_path / "a")] == clone
    for folder, digest in zip((tmp_path, tmp_path / "a"), clone, strict=True):
        said = subprocess.run(["bash", "-c", COMMAND], cwd=folder, capture_output=True, text=True, check=True).stdout
        assert said.split()[0] == digest
    (tmp_path / "b/tables/t.csv").write_text("6")
    assert tree_digest(tmp_path) != clone[0]


def test_reading_samples_leaves_the_sources_as_they_were(tmp_path):
    (tmp_path / "n").mkdir()
    nbformat.write(new_notebook(cells=[new_code_cell("1")]), tmp_path / "n/01_x.ipynb")
    (tmp_path / "01_x.y.yaml").write_text("")
    (scenario,) = find_scenarios(tmp_path / "01_x.y.yaml", tmp_path / "n")
    run = tmp_path / "data/samples/run"
    (run / "tables").mkdir(parents=True)
    (run / "plan.json").write_text("{}")
    before = sources_digest(scenario, tmp_path)
    (run / "tables/steps-0.parquet").write_text("1")
    (run / "tables/.lock").touch()
    assert sources_digest(scenario, tmp_path) == before
    (run / "plan.json").write_text("{} ")
    assert sources_digest(scenario, tmp_path) != before


def test_a_digest_is_read_again_when_the_file_has_changed(tmp_path):
    path = tmp_path / "x"
    path.write_text("1")
    before = file_digest(path)
    path.write_text("2")  # the same size
    assert file_digest(path) != before


def test_data_named_leaves_out_what_is_not_there_and_the_repository_itself(tmp_path):
    (tmp_path / "n").mkdir()
    cell = new_code_cell("a: str = '.'\nb: list = ['gone', 'd.csv', 'd.csv']", metadata={"tags": ["parameters"]})
    nbformat.write(new_notebook(cells=[cell, new_code_cell("print(a, b)")]), tmp_path / "n/01_x.ipynb")
    (tmp_path / "01_x.y.yaml").write_text("")
    (tmp_path / "d.csv").write_text("1")
    (scenario,) = find_scenarios(tmp_path / "01_x.y.yaml", tmp_path / "n")
    (named,) = data_named(scenario, tmp_path)
    assert (named["path"], named["files"], named["fio"]) == ("d.csv", 1, [])
    assert fio_versions(tmp_path) == []


USES = """
import hcilib as hci
results = hci.read_results(run_dir if testbed else source)
if testbed:
    product = hci.load_system(system)
    counters = [run_dir]
told = counters
limits = hci.read_results(drive) if drive else None
"""


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("", ["source", "counters", "drive"]),
        ("testbed: testbed\n", ["testbed", "system", "run_dir", "drive"]),
        ("drive: null\n", ["source", "counters"]),
        ("run_dir: unused\n", ["source", "run_dir", "counters", "drive"]),
    ],
)
def test_a_default_that_had_no_part_in_the_page_is_not_among_its_data(tmp_path, given, named):
    """The system that a live campaign would have measured stood on the page of every replay."""
    names = ["testbed", "system", "source", "run_dir", "counters", "drive", "unused"]
    (tmp_path / "n").mkdir()
    for name in names:
        (tmp_path / name).write_text(name)
    defaults = "\n".join(f"{name}: str | None = {None if name == 'testbed' else name!r}" for name in names)
    cells = [new_code_cell(defaults, metadata={"tags": ["parameters"]}), new_code_cell(USES)]
    nbformat.write(new_notebook(cells=cells), tmp_path / "n/01_x.ipynb")
    (tmp_path / "01_x.y.yaml").write_text(given)
    (scenario,) = find_scenarios(tmp_path / "01_x.y.yaml", tmp_path / "n")
    expected = [scenario.params.get(name, name) for name in named]
    assert [d["path"] for d in data_named(scenario, tmp_path)] == expected
    magic = new_notebook(cells=[*cells, new_code_cell("%time 1")])
    nbformat.write(magic, tmp_path / "n/01_x.ipynb")
    assert {d["path"] for d in data_named(scenario, tmp_path)} >= set(names[1:]) - set(scenario.params)


def with_csv(*contents: str):
    cells = [
        new_code_cell("hci.text(x)", outputs=[new_output("display_data", {"text/csv": c}, metadata={"name": "x"})])
        for c in contents
    ]
    return new_notebook(cells=cells)


def test_the_same_table_twice_is_one_file_and_another_of_its_name_is_numbered(tmp_path):
    (tmp_path / "old.csv").write_text("of an earlier run")
    book = with_csv("a\n1\n", "a\n2\n", "a\n1\n")
    assert write_numbers(book, tmp_path) == (["x.csv", "x-2.csv"], "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x-2.csv", "x.csv"]
    assert book.cells[0].outputs == []


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": pd.Series([1, "x", None], dtype=object)}),
        pd.DataFrame({"a": []}),
        pd.DataFrame({("a", "mean"): [1.0], ("b", ""): [2.0]}),
        pd.DataFrame({1: [np.nan]}),
        pd.DataFrame({"a": [True, None]}, dtype="boolean"),
        pd.DataFrame({"a": [1]}, index=pd.Index(["r"], name="row")),
    ],
)
def test_any_frame_can_be_downloaded(frame):
    table = pd.read_csv(StringIO(export.as_csv(frame)))
    assert len(table) == len(frame)
    assert table.isna().sum().sum() == frame.isna().sum().sum()
    assert frame.index.name not in frame.columns  # the reader's own frame is left alone


FORMULA = "=cmd|' calc'!A1"


def test_no_text_of_a_download_is_a_formula():
    """Excel and LibreOffice run such cells when the file is opened."""
    texts = [FORMULA, "+1+1", "-x", "@SUM(A1)", "\t=1", "\r=1", "'=1", "a\r=1", "-5", "+1.5e-3", None]
    frame = pd.DataFrame({
        "system": texts, "mixed": [*texts[:-1], -2.5], "kind": pd.Categorical(texts), "iops": np.arange(11.0) - 5,
        "n": range(-5, 6), "at": pd.Timestamp("2024-01-01"), FORMULA: 1,
    }).set_index(pd.Index(texts, name="@index"))  # fmt: skip
    text = export.as_csv(frame)
    numbers = {"-5", "+1.5e-3", "-2.5", *map(str, frame["iops"]), *map(str, frame["n"])}
    cells = [cell for row in csv.reader(StringIO(text, newline="")) for cell in row]
    assert not [cell for cell in cells if cell.startswith(tuple("=+-@\t\r")) and cell not in numbers]
    back = pd.read_csv(StringIO(text, newline=""))
    assert back["iops"].tolist() == frame["iops"].tolist()
    assert back["n"].tolist() == frame["n"].tolist()
    assert back["system"].dropna().map(unescaped).tolist() == [text.replace("\r", "\n") for text in texts[:-1]]
    assert list(frame["system"][:-1]) == texts[:-1]


def test_index_and_method_page_escape_what_they_are_given(tmp_path):
    result = {
        "ok": True,
        "page": "",
        "question": "<b>?",
        "answer": "a & b",
        "title": "Yours: a & b",
        "study": "yours",
        "name": "01_x.y",
    }
    index = write_index([result], tmp_path / "new", "<rev>").read_text("utf-8")
    study = (tmp_path / "new/study.yours.html").read_text("utf-8")
    assert "Yours: a &amp; b" in index
    assert "a &amp; b" in study
    assert all("&lt;rev&gt;" in page for page in (index, study))
    assert "&lt;rev&gt;" in write_method(tmp_path / "new", "<rev>").read_text("utf-8")


def test_that_articles_print_no_tail_is_said_because_no_table_of_theirs_has_one():
    root = Path(__file__).resolve().parents[2]
    heads = [file.read_text("utf-8").partition("\n")[0] for file in (root / "data/published").glob("*.csv")]
    assert heads
    assert not [head for head in heads if re.search(r"p50|p9\d|percentile", head)]
    articles = [study for study in find_studies(root).values() if study.article]
    assert len(articles) == 5
    assert all("no percentiles" in study.repeats for study in articles)


def test_the_result_file_can_be_read_by_others(site):
    kept = json.loads((site[0] / "03_sweep.case/03_sweep.case.json").read_text("utf-8"))
    assert kept["files"] == site[1]["files"]


NOTED = '<table class="dataframe"><thead><tr><th>a</th></tr></thead>\n<tbody><tr><td>1 (1, 4)</td></tr></tbody></table>'


def shown(cells, folder: Path) -> str:
    """The page of cells that are given with their outputs."""
    result = {
        "name": "04_compare.case",
        "question": "Which?",
        "answer": "First.\n  second",
        "ok": True,
        "params": "",
        "versions": {},
    }
    write_page(new_notebook(cells=cells), result, folder)
    return (folder / "04_compare.case.html").read_text()


def given(source: str, **data) -> nbformat.NotebookNode:
    outputs = [new_output("display_data", {kind.replace("_", "/", 1): text for kind, text in data.items()})]
    return new_code_cell(source, outputs=outputs)


def test_sections_without_data_are_left_out_and_listed_in_one_line_at_the_end(tmp_path):
    empty = '<table class="dataframe"><tbody><tr><td>none</td><td></td></tr></tbody></table>'
    drawing = '<svg><g id="nothing"><text x="0">nothing to check</text></g></svg>'
    written = drawing.replace("<svg>", '<?xml version="1.0"?><svg width="9">')
    said = [new_output("stream", text="No node CPU.\n")]
    cells = [
        new_markdown_cell("# Which?"),
        new_markdown_cell("## Rows that break a law\n\nThe rows that break a law."),
        given("rows", text_html=empty),
        new_markdown_cell("## Physics\n\nEvery row."),
        new_code_cell("hci.plot_audit(a)", outputs=[new_output("display_data", {"image/svg+xml": written})]),
        given("rows", text_html=empty),
        new_markdown_cell("## Node CPU\n\nOver the load."),
        new_code_cell("if known:\n    sns.relplot(cpu)\nelse:\n    print('No node CPU.')", outputs=said),
        new_markdown_cell("## In words\n\nA sentence each."),
        new_code_cell("print(sentence)", outputs=said),
    ]
    page = shown(cells, tmp_path)
    [line] = re.findall(r'<p class="nothing" id="absent">(.*?)</p>', page)
    assert re.findall(r"“(.*?)” is empty: (.*?)\.(?: |$)", line) == [
        ("Rows that break a law", "its table has no rows"),
        ("Physics", "nothing to check"),
        ("Node CPU", "no node CPU"),
    ]
    assert page.index(line) > page.index(">In words</h2>")
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == ["In words"]
    assert page.count('class="nothing"') == 1
    assert "<figure" not in page


def test_what_is_missing_beside_data_is_said_where_it_is(tmp_path):
    said = [new_output("stream", text="No flush was timed.\n")]
    empty = new_code_cell("hci.text(flushes) if len(flushes) else print('No flush was timed.')", outputs=said)
    cells = [new_markdown_cell("# Which?"), new_markdown_cell("## Flushes\n\nEach."), given("rows", text_html=NOTED)]
    page = shown([*cells, empty], tmp_path)
    assert "no flush was timed." in page.lower()
    assert 'id="absent"' not in page


def test_a_heading_is_not_said_again_below_it_and_names_keep_their_underscores(tmp_path):
    cells = [new_markdown_cell("# Which?"), new_markdown_cell("## What it costs\n\nWhat it costs. Hours of fio.")]
    page = shown([*cells, given("cost", text_html=NOTED)], tmp_path)
    assert page.count(">What it costs<") == 2  # the contents and the heading
    assert plain("*A write* with O_SYNC, _said_ `p_99`") == "A write with O_SYNC, said p_99"
