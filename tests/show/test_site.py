"""The report runs notebooks for real: tiny ones, in kernels of their own, and pages are read as HTML."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import nbformat
import pandas as pd
import psutil
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import hcilib as hci
from hcilib.show.site import build as building
from hcilib.show.site.build import ReportError, build, main, report
from hcilib.show.site.execute import execute, sources_digest, tree_digest, unchanged
from hcilib.show.site.pages import write_pages
from hcilib.show.site.scenarios import find_scenarios

DIGEST = (
    r"find . \( -name tables -o -name .lock \) -execdir test -e plan.json \; -prune -o -type f -print0 "
    "| LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
)
"""What docs/GUIDE.md gives a reader to repeat the digest of a folder."""
FRAMES = """
import pandas as pd
import seaborn as sns
import hcilib as hci
iops = pd.DataFrame({
    "system": ["lab-single", "lab-single", "lab-mirror"], "pattern": "4k-randread", "iodepth": [1, 8, 1], "n": 3,
    "iops": [100.123456789, 200.0, 1 / 3], "iops_lo": [99.0, None, 0.3], "iops_hi": [101.0, None, 0.4],
    "confidence": 0.95, "warnings": ["", "one, run", ""], "note": ["=1+1", "-5", "<b>&"],
})
flushes = iops.head(1)
number = open(data).read()
"""
DRAWN = """
g = sns.FacetGrid(iops, **hci.by("system", iops))
g.map_dataframe(hci.marks, x="iodepth", y="iops")
hci.finish(g, "iodepth", "iops")
"""
BARS = """
import sys, time
from tqdm.auto import tqdm
with tqdm(total=2, desc="measured") as bar:
    for _ in range(2):  # for longer than a kernel waits until it sends what was written
        time.sleep(0.5)
        bar.update()
tqdm.write("FAILED: kept above the bars")
print("\\rold: 0%", "\\rold: 50%", "\\rdone: 100%", sep="", file=sys.stderr)
"""
TOKEN = "wipe-the-bed"
KEPT = ["04_compare.one.json", "04_compare.one.html", "04_compare.one.ipynb", "iops.csv"]
"""Without one of them a page is not finished."""
LOOKS = """
import os, numpy, pandas
here, consent = os.path.basename(os.getcwd()), os.environ["HCI_CONSENT"]
print(numpy.random.random(), pandas.get_option("display.max_rows"), here, consent)
"""
LIVE = f"""
testbed: str | None = None
consent: str | None = None
run_dir: str = 'x'
import os
assert os.environ['HCI_CONSENT'][::-1] == '{TOKEN[::-1]}'
"""


def tagged(source: str, *tags: str):
    return new_code_cell(source, metadata={"tags": list(tags)})


def notebook(path: Path, *cells) -> None:
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=list(cells), metadata=kernel), path)


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """Notebooks that succeed, fail, lose their kernel, measure, and are to show what another one measures."""
    root = tmp_path_factory.mktemp("repository")
    for folder in ("notebooks", "params", "data/published", "data/run/facts"):
        (root / folder).mkdir(parents=True)
    (root / "data/numbers.txt").write_text("42")
    (root / "data/published/results.csv").write_text("iops\n1\n")
    for n in (1, 2):
        (root / f"data/run/facts/vm{n}.json").write_text(json.dumps({"fio": f"fio-3.3{n}"}))
    notebook(
        root / "notebooks/04_compare.ipynb",
        new_markdown_cell("# Which <system> is faster?\n\nTwo systems are compared."),
        tagged("who: str = 'Alpha'\ndata: str = 'data/numbers.txt'\nsource: str = 'data/run'", "parameters"),
        new_code_cell(FRAMES),
        new_markdown_cell("## Rates of both"),
        new_code_cell(DRAWN),
        new_code_cell("hci.text(iops, 'system iodepth iops')"),
        tagged("hci.text(flushes)", "main"),
        tagged("print(f'{who} delivers {number} % more IOPS & less.')", "answer"),
    )
    failing = new_code_cell("raise ValueError('no file <x>')")
    given = tagged("a: int = 1", "parameters")
    notebook(root / "notebooks/05_bad.ipynb", new_markdown_cell("# Does it fail?"), given,
             new_code_cell("print('before')"), failing, new_code_cell("print('never')"))  # fmt: skip
    killed = new_code_cell("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    notebook(root / "notebooks/06_dead.ipynb", new_markdown_cell("# Does its kernel live?"), given, killed)
    notebook(root / "notebooks/01_bars.ipynb", new_markdown_cell("# Bars?"), given, new_code_cell(BARS.strip()))
    broken = new_code_cell("raise RuntimeError('this machine serves 9 IOPS')")
    notebook(root / "notebooks/03_sweep.ipynb", new_markdown_cell("# Faster?"), tagged(LIVE, "parameters"), broken)
    of_others = new_code_cell("1", outputs=[nbformat.v4.new_output("stream", text="of other data")])
    shows = tagged("sources: list = ['data/published']", "parameters")
    notebook(root / "notebooks/10_audit.ipynb", new_markdown_cell("# Physics?"), shows, of_others)
    notebook(root / "notebooks/02_looks.ipynb", new_markdown_cell("# Alone?"), tagged(LOOKS, "answer"))
    params = {
        "02_looks.one": "",
        "02_looks.two": "",
        "04_compare.one": "who: Beta\n",
        "05_bad.one": "a: 2\n",
        "06_dead.one": "",
        "01_bars.one": "",
        "03_sweep.bed": f"testbed: lab.yaml  # {TOKEN}\nconsent: '{TOKEN}'\nrun_dir: data/runs/lab\n",
        "10_audit.bed": "sources: [data/runs/lab]\n",
        "10_audit.other": "sources: [data/other]\n",
    }
    for name, text in params.items():
        (root / f"params/{name}.yaml").write_text(text)
    return root


@pytest.fixture(scope="module")
def site(repository) -> tuple[Path, dict[str, dict]]:
    """The whole site, made once: its folder, and each scenario's result by its name."""
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HCI_CONSENT", "of the caller")
        index, results = build(repository / "params", repository / "out", 2, repository)
    assert Path.cwd() == before, "notebooks run in another folder"
    return index.parent, {result["name"]: result for result in results}


def page_of(site: tuple[Path, dict], name: str) -> BeautifulSoup:
    return BeautifulSoup((site[0] / name / f"{name}.html").read_text("utf-8"), "html.parser")


def one(root: Path):
    return find_scenarios(root / "params/04_compare.one.yaml", root / "notebooks")[0]


# ---- What is executed


def test_success_and_failures_are_told_apart_and_the_others_are_made(site):
    bad = {name for name, result in site[1].items() if not result["ok"]}
    assert bad == {"05_bad.one", "06_dead.one", "03_sweep.bed", "10_audit.bed"}
    assert "ValueError: no file <x>" in site[1]["05_bad.one"]["error"]
    assert "ied" in site[1]["06_dead.one"]["error"]  # DeadKernelError: Kernel died
    assert site[1]["04_compare.one"]["answer"] == "Beta delivers 42 % more IOPS & less."


def test_what_measures_is_first_and_its_failure_is_the_reason_of_what_would_show_it(site):
    """The cell that asks for the token has passed, and the token is in no file."""
    said, failure = site[1]["10_audit.bed"]["error"], "RuntimeError: this machine serves 9 IOPS"
    assert said.startswith("No data: the campaign of 03_sweep.bed failed: cell [")
    page = page_of(site, "10_audit.bed").get_text()
    assert failure in said
    assert failure in page
    assert "of other data" not in page
    assert [file for file in site[0].rglob("*") if file.is_file() and TOKEN.encode() in file.read_bytes()] == []
    assert os.environ.get("HCI_CONSENT") != TOKEN


def test_a_failed_page_shows_its_error_and_keeps_no_result(site):
    page = page_of(site, "05_bad.one")
    assert page.select_one(".failed").get_text(" ").startswith("This notebook failed.")
    assert "before" in page.get_text()
    for name in ("05_bad.one", "06_dead.one"):
        assert not (site[0] / name / f"{name}.json").exists()
    assert not list(site[0].rglob("*.part*"))


def test_a_page_shows_no_frozen_progress_bar(site):
    kept = nbformat.read(site[0] / "01_bars.one/01_bars.one.ipynb", 4)
    shown = "".join(part.get_text() for part in page_of(site, "01_bars.one").select(".output"))
    shown += "".join(str(output) for cell in kept.cells for output in cell.get("outputs", []))
    assert "FAILED: kept above the bars" in shown
    assert "done: 100%" in shown
    assert not re.search(r"\b0%|old|widget", shown)


def test_a_changed_or_half_finished_result_does_not_count(site, repository, tmp_path):
    copy = shutil.copytree(repository, tmp_path / "copy")
    changes = {"params/04_compare.one.yaml": "who: Gamma\n", "data/numbers.txt": "43", "uv.lock": "version = 2"}
    changes |= {"data/published/results.csv": "iops\n1.01\n"}
    changes |= {f"out/04_compare.one/{spoilt}": None for spoilt in KEPT}
    for file, change in changes.items():
        kept = (copy / file).read_bytes() if (copy / file).exists() else b""
        assert unchanged(one(copy), copy, copy / "out")["answer"].startswith("Beta"), file
        (copy / file).write_text(change) if change else (copy / file).unlink()
        assert unchanged(one(copy), copy, copy / "out") is None, file
        (copy / file).write_bytes(kept) if kept else (copy / file).unlink()


def test_outputs_in_the_notebook_are_no_change_but_source_and_tags_are(repository, tmp_path):
    copy = shutil.copytree(repository, tmp_path / "copy", ignore=shutil.ignore_patterns("out"))
    before, path = sources_digest(one(copy), copy), copy / "notebooks/04_compare.ipynb"
    book = nbformat.read(path, 4)
    book.cells[2].outputs = [nbformat.v4.new_output("stream", text="x")]
    nbformat.write(book, path)
    assert sources_digest(one(copy), copy) == before
    book.cells[-1].metadata["tags"] = []
    nbformat.write(book, path)
    assert sources_digest(one(copy), copy) != before


def test_what_has_not_changed_is_not_executed_again(site, repository, monkeypatch):
    monkeypatch.setattr(building, "execute", lambda *_, **__: pytest.fail("executed again"))
    written = {path: path.stat().st_mtime_ns for path in (site[0] / "04_compare.one").rglob("*")}
    assert report([repository / "params/04_compare.one.yaml"], site[0], root=repository) == site[0] / "index.html"
    assert {path: path.stat().st_mtime_ns for path in written} == written, "nor is its page made again"


def test_a_start_takes_the_old_result_away_first(site, repository, tmp_path, monkeypatch):
    import papermill

    copy = shutil.copytree(repository, tmp_path / "copy")
    kept = copy / "out/04_compare.one/04_compare.one.json"

    def stopped(*_, **__):
        assert not kept.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(papermill, "execute_notebook", stopped)
    with pytest.raises(KeyboardInterrupt):
        execute(one(copy), copy, copy / "out", "")
    assert not kept.exists()


def test_an_executor_executes_the_same_page(site, repository, tmp_path):
    name = "04_compare.one"
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        there = report(repository / f"params/{name}.yaml", tmp_path / "there", root=repository, executor=pool).parent
    kept = [nbformat.read(folder / name / f"{name}.ipynb", 4).cells for folder in (there, site[0])]
    shown = [[[o.get("data", o.get("text")) for o in c.get("outputs", [])] for c in cells] for cells in kept]
    assert shown[0] == shown[1]


SLEEPS = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_kernels_end_with_their_report_and_ctrl_c_says_what_is_kept_and_exits_by_130(number, tmp_path):
    """`hci report` as a process of its own. A live campaign that is ended in order: tests/drive/test_stopping.py."""
    root = tmp_path / "root"
    for folder in ("notebooks", "params"):
        (root / folder).mkdir(parents=True)
    notebook(root / "notebooks/02_slow.ipynb", new_markdown_cell("# Slow?"), tagged(SLEEPS, "answer"))
    (root / "params/02_slow.one.yaml").write_text("")
    argv = [sys.executable, "-m", "hcilib.cli", "report", "params", "--out", "out"]
    running = subprocess.Popen(
        argv, cwd=root, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(hci.ROOT)}
    )
    pid = root / "pid"
    while not pid.exists() or not pid.read_text():
        assert running.poll() is None
        time.sleep(0.1)
    kernel = psutil.Process(int(pid.read_text()))
    running.send_signal(number)
    said = running.communicate(timeout=60)[1]
    if number == signal.SIGINT:
        assert running.returncode == 130
        assert "Interrupted. 0 of 1 notebooks are done and kept." in said
    kernel.wait(10)


def test_replays_share_their_imports_and_nothing_else(site, repository):
    answers = [site[1][f"02_looks.{case}"]["answer"].split(" ", 3) for case in ("one", "two")]
    numbers, *others = zip(*answers, strict=True)
    assert len(set(numbers)) == 2
    assert others == [("400",) * 2, (repository.name,) * 2, ("of the caller",) * 2]
    commands = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
    assert not [command for command in commands if "kernels" in command], "nor does the library that they imported stay"


# ---- What is refused before anything runs


def test_a_params_file_that_cannot_run_stops_everything_before_it_starts(repository, tmp_path, capsys, monkeypatch):
    bad = tmp_path / "04_compare.bad.yaml"
    bad.write_text("whoo: x\n")
    with pytest.raises(ReportError, match=r"04_compare\.bad\.yaml: field whoo"):
        report([repository / "params/04_compare.one.yaml", bad], tmp_path / "out", root=repository)
    assert not (tmp_path / "out").exists()
    monkeypatch.chdir(repository)
    assert main([str(bad), "--out", str(tmp_path / "out")]) == 2
    assert "whoo" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["/sys/site", "full"])
def test_a_site_that_cannot_be_written_is_one_sentence_with_its_folder(out, site, capsys, monkeypatch):
    """A folder that nobody may make, and a disk that is full."""
    monkeypatch.chdir(root := site[0].parent)
    if out == "full":
        shutil.copytree(site[0], root / "full")
        for page in (root / "full").glob("*.html"):
            page.unlink()
            page.with_name(f".{page.name}.{os.getpid()}.part").symlink_to("/dev/full")
    assert main(["params/04_compare.one.yaml", "--out", out]) == 2
    said = capsys.readouterr().err
    assert re.search(rf"{out}: the site cannot be written \(\w.*\)\. Free some space there, or give another", said)
    assert "Traceback" not in said


def test_the_command_prints_answers_then_the_index_and_exits_by_success(site, repository, monkeypatch, capsys):
    monkeypatch.chdir(repository)
    assert main(["params/04_compare.one.yaml", "--out", "out"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == ["04_compare.one: Beta delivers 42 % more IOPS & less.", "out/index.html"]
    others = ", ".join(sorted(set(site[1]) - {"04_compare.one"}))
    assert said.err.endswith(f"({others}).\n"), "their pages stay, and the index is this run's"
    monkeypatch.setattr(building, "build", lambda *_: (site[0] / "index.html", list(site[1].values())))
    assert main(["params"]) == 1
    assert any(line.startswith("05_bad.one: FAILED: ") for line in capsys.readouterr().out.splitlines())
    with pytest.raises(ReportError, match=r"4 of 9 scenarios failed.*\n(.*\n)*.*05_bad\.one: .*no file <x>"):
        report(root=repository)


# ---- What a page shows


def test_index_and_studies_lead_to_every_page_and_name_what_failed(site):
    index = write_pages(list(site[1].values()), site[0], site[0].parent)
    text = BeautifulSoup(index.read_text("utf-8"), "html.parser").get_text(" ")
    assert "9 pages, 4 failed" in text
    assert "ValueError: no file <x>" in text
    reached, todo = set(), [index]
    while todo:
        page = todo.pop()
        links = BeautifulSoup(page.read_text("utf-8"), "html.parser").select("a[href]")
        for file in ((page.parent / link["href"]).resolve() for link in links):
            assert file.is_file(), file
            todo += [file] * (file not in reached and file.suffix == ".html")
            reached.add(file)
    assert {index.parent / r["name"] / f"{r['name']}.html" for r in site[1].values()} <= reached


def test_pages_fetch_and_run_nothing_and_have_one_title_each(site):
    for page in site[0].rglob("*.html"):
        html = BeautifulSoup(page.read_text("utf-8"), "html.parser")
        assert not html.find_all("script")
        addresses = [tag.get("src") or tag.get("href") for tag in html.select("[src], link[href], a[href]")]
        assert [a for a in addresses if re.match(r"(https?:)?//", a)] == []
        assert not re.search(r"@import|url\((?!data:)", str(html.style))
        levels = [int(tag.name[1]) for tag in html.find_all(re.compile("^h[1-6]$"))]
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        assert all(image.get("alt") for image in html.find_all("img"))
        assert str(site[0].parent) not in str(html)


def test_the_answer_stands_once_above_the_notebook_and_names_are_text(site):
    page = page_of(site, "04_compare.one")
    assert page.h1.get_text() == "Which <system> is faster?"
    assert page.title.get_text() == "Beta delivers 42 % more IOPS & less."
    assert page.get_text().count("Beta delivers 42 %") == 2, "the title of the window, and the answer"
    assert page.select_one("img")["alt"] == "Rates of both"


def test_each_table_s_numbers_are_a_file_and_that_of_the_main_cell_is_the_download(site):
    result = site[1]["04_compare.one"]
    assert (result["files"], result["main"]) == (["iops.csv", "flushes.csv"], "flushes.csv")
    downloads = [link["href"] for link in page_of(site, "04_compare.one").select("a[download]")]
    assert downloads == ["04_compare.one.ipynb", "flushes.csv"]
    table = pd.read_csv(site[0] / "04_compare.one/iops.csv")
    assert table["iops"].tolist() == [100.123456789, 200.0, 1 / 3]  # every digit, though the page rounds
    assert table["iops_lo"].isna().tolist() == [False, True, False]
    assert table["note"].tolist() == ["'=1+1", "-5", "<b>&"], "no text is a spreadsheet's formula"
    book = nbformat.read(site[0] / "04_compare.one/04_compare.one.ipynb", 4)
    kinds = {kind for cell in book.cells for o in cell.get("outputs", []) for kind in o.get("data", {})}
    assert kinds == {"text/html", "text/plain", "image/png"}


def test_provenance_names_revision_versions_data_and_their_digests(site):
    said = page_of(site, "04_compare.one").select_one("details pre").get_text()
    made = site[1]["04_compare.one"]["made"]
    data = {each["path"]: each for each in made["data"]}
    assert set(data) == {"data/numbers.txt", "data/run"}
    assert (data["data/run"]["files"], data["data/run"]["fio"]) == (2, ["fio-3.31", "fio-3.32"])
    for text in (data["data/run"]["sha256"], made["revision"], made["versions"]["pandas"], "who: Beta", "fio-3.31"):
        assert text in said
    assert f"digest: {site[1]['04_compare.one']['digest']}" in said


def test_the_digest_of_a_folder_is_what_sha256sum_says_without_what_reading_and_measuring_leave(tmp_path):
    kept = {"a/plan.json": "{}", "a/steps/x/tables/t.csv": "2", "b/tables/t.csv": "3", "b/.lock": "", "a y.txt": ""}
    made = {"a/tables/steps-0.parquet": "4", "a/tables/deep/x": "5", "a/.lock": ""}
    digests = []
    for files in (kept, made):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        digests.append(tree_digest(tmp_path))
    said = subprocess.run(["bash", "-c", DIGEST], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert digests == [said.split()[0]] * 2
    assert DIGEST in (hci.ROOT / "docs/GUIDE.md").read_text("utf-8")
    (tmp_path / "b/tables/t.csv").write_text("6")
    assert tree_digest(tmp_path) != digests[0]


def test_a_page_that_breaks_outside_its_notebook_is_that_scenario_s_failure(repository, tmp_path, monkeypatch):
    def broken(scenario, **_):
        raise TypeError(f"no page of {scenario.name}")

    monkeypatch.setattr(building, "execute", broken)
    index, [result] = build(repository / "params/04_compare.one.yaml", tmp_path / "out", 1, repository)
    assert result["error"] == "TypeError: no page of 04_compare.one"
    assert "no page of 04_compare.one" in index.read_text("utf-8")
