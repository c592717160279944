"""The report runs notebooks for real: tiny ones, in two processes, and all of them in one report."""

import json
import os
import re
import shutil
import signal
import time
from base64 import b64encode
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import hcilib as hci
from hcilib import report
from hcilib.show.report import report as report_module
from hcilib.show.report.execute import execute, sources_digest, unchanged
from hcilib.show.report.report import ReportError, build, main
from hcilib.show.report.scenarios import find_scenarios

PNG = b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()
GOOD = f"""
import base64
from IPython.display import Image, display
display(Image(base64.b64decode("{PNG}")));
"""


UNKNOWN = """
import hcilib as hci
results = hci.read_results(str(hci.ROOT / "data/samples/loose-files"), system="mine")
cpu = hci.summarize(results, "node_cpu_pct")
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


def notebook(path: Path, *cells) -> None:
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=list(cells), metadata=kernel), path)


def tagged(source: str, tag: str):
    return new_code_cell(source, metadata={"tags": [tag]})


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """Notebooks that succeed, fail and lose their kernel, a data file that one of them reads, and an analyst's own."""
    root = tmp_path_factory.mktemp("repository")
    for folder in ("notebooks", "params", "mine", "data/published"):
        (root / folder).mkdir(parents=True)
    (root / "data/numbers.txt").write_text("42")
    (root / "data/published/results.csv").write_text("iops\n1\n")
    notebook(
        root / "notebooks/04_compare.ipynb",
        new_markdown_cell("# Which <system> is faster?\n\nTwo systems are compared."),
        tagged("who: str = 'Alpha'  # the system\ndata: str = 'data/numbers.txt'  # the numbers\n", "parameters"),
        new_markdown_cell("The *rates* of both, side by side."),
        new_code_cell(GOOD),
        new_code_cell("number = open(data).read()\n{'n': number}"),
        tagged("f'{who} delivers {number} % more IOPS & less.'", "answer"),
        new_code_cell("import pandas as pd, hcilib as hci\nhci.text(pd.DataFrame({'n': [1]}))"),
    )
    notebook(
        root / "notebooks/05_bad.ipynb",
        new_markdown_cell("# Does it fail?"),
        tagged("a: int = 1", "parameters"),
        new_code_cell("print('before')"),
        new_code_cell("raise ValueError('no file <x>')"),
        new_code_cell("print('never')"),
    )
    notebook(
        root / "notebooks/06_dead.ipynb",
        new_markdown_cell("# Does its kernel live?"),
        tagged("a: int = 1", "parameters"),
        new_code_cell("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
    )
    (root / "params/04_compare.one.yaml").write_text("who: Beta\n")
    (root / "params/05_bad.one.yaml").write_text("a: 2\n")
    (root / "params/06_dead.one.yaml").write_text("")
    write_own(root)
    write_measured(root)
    return root


def write_own(root: Path) -> None:
    """An analyst's own scenarios."""
    parameters = tagged("a: int = 1", "parameters")
    cells = [parameters, new_markdown_cell("## What the nodes pay\n\nIt.")]
    cells += [
        new_code_cell(UNKNOWN.strip()),
        new_code_cell("hci.text(cpu) if cpu['node_cpu_pct'].notna().any() else print('No node CPU is known.')"),
    ]
    notebook(root / "notebooks/12_change.ipynb", new_markdown_cell("# Bars?"), *cells)
    notebook(root / "notebooks/01_bars.ipynb", new_markdown_cell("# Bars?"), parameters, new_code_cell(BARS.strip()))
    for name in ("12_change.mine", "01_bars.one"):
        (root / f"mine/{name}.yaml").write_text("")


def write_measured(root: Path) -> None:
    """A notebook that measures and fails, and one that is to show it and is committed with other data's outputs."""
    live = "testbed: str | None = None\nrun_dir: str = 'x'"
    broken = new_code_cell("raise RuntimeError('this machine serves 9 IOPS, the drives would let 2,048 through')")
    notebook(root / "notebooks/03_sweep.ipynb", new_markdown_cell("# Faster?"), tagged(live, "parameters"), broken)
    of_others = new_code_cell("1", outputs=[nbformat.v4.new_output("stream", text="of other data")])
    shows = tagged("sources: list = ['data/published']", "parameters")
    notebook(root / "notebooks/10_audit.ipynb", new_markdown_cell("# Physics?"), shows, of_others)
    (root / "mine/03_sweep.bed.yaml").write_text("testbed: lab.yaml\nrun_dir: data/runs/lab\n")
    (root / "mine/10_audit.bed.yaml").write_text("sources: [data/runs/lab]\n")
    (root / "mine/10_audit.other.yaml").write_text("sources: [data/other]\n")


@pytest.fixture(scope="module")
def site(repository) -> tuple[Path, list[dict]]:
    return build([repository / "params", repository / "mine"], repository / "out", 2, repository)


@pytest.fixture
def result(site) -> dict[str, dict]:
    return {r["name"]: r for r in site[1]}


def test_success_and_failures_are_told_apart(result):
    assert {name: r["ok"] for name, r in result.items()} == {
        "04_compare.one": True,
        "05_bad.one": False,
        "06_dead.one": False,
        "01_bars.one": True,
        "03_sweep.bed": False,
        "10_audit.bed": False,
        "10_audit.other": True,
        "12_change.mine": True,
    }
    assert "ValueError: no file <x>" in result["05_bad.one"]["error"]
    assert "ied" in result["06_dead.one"]["error"]  # DeadKernelError: Kernel died


def test_the_answer_is_the_tagged_cells_sentence(result):
    assert result["04_compare.one"]["answer"] == "Beta delivers 42 % more IOPS & less."
    assert result["04_compare.one"]["question"] == "Which <system> is faster?"


def test_the_index_and_the_study_lead_to_every_page_and_name_what_failed(site):
    index = site[0].read_text()
    assert "4 failed" in index
    assert "ValueError: no file &lt;x&gt;" in index
    assert 'href="study.yours.html"' in index
    study = (site[0].parent / "study.yours.html").read_text()
    assert "Beta delivers 42 % more IOPS &amp; less" in study
    assert "<svg" in study or "<img" in study, "the main figure of the page is on the study's too"
    for page in (index, study):
        links = re.findall(r'href="([^"#]+)"', page.partition("<script>")[2].partition("</script>")[2])
        assert [link for link in links if not (site[0].parent / link).is_file()] == []


def test_pages_fetch_nothing_fold_the_code_and_describe_pictures(site, result):
    for page in (r["page"] for r in result.values()):
        html = (site[0].parent / page).read_text()
        assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", html)
        assert re.findall(r"<script src=\"([^\"]+)\"", html) == ["../site.js"]  # a file beside, from file:// too
        assert not re.search(r"fetch\(|XMLHttpRequest|import\(|new WebSocket", html)
        assert "@import" not in html
        assert not re.search(r"url\((?!data:)", html)
    html = (site[0].parent / result["04_compare.one"]["page"]).read_text()
    assert html.count(" highlight hl-") == 6  # one cell more than written: the injected parameters
    assert 'alt="Figure 1: The rates of both, side by side."' in html
    assert html.index("Beta delivers 42 %") < html.index("<details")
    assert "who: Beta" in html
    for word in ("pandas", "Python 3.", "no git revision", result["04_compare.one"]["digest"]):
        assert word in html


def test_where_nothing_is_known_a_page_says_so_once(site, result):
    """About a change of your own."""
    change = result["12_change.mine"]
    assert change["ok"], change["error"]
    assert change["study"] == "yours"
    html = (site[0].parent / change["page"]).read_text()
    assert html.lower().count("no node cpu is known") == 1
    assert "<table" not in html


def test_a_page_shows_no_frozen_progress_bar(site, result):
    """A bar of JupyterLab is a widget, saved as it stood at 0 %; one of a terminal is a line written over and over."""
    bars, out = result["01_bars.one"], site[0].parent
    assert bars["ok"], bars["error"]
    kept = nbformat.read(out / "01_bars.one/01_bars.one.ipynb", 4)
    outputs = "".join(str(o) for cell in kept.cells for o in cell.get("outputs", []))
    html = (out / bars["page"]).read_text()
    shown = "".join(re.findall(r'<pre class="stream">(.*?)</pre>', html, re.S))
    for text in (shown, outputs):
        assert "FAILED: kept above the bars" in text
        assert "done: 100%" in text
        assert not re.search(r"\b0%|old|widget", text)


def test_no_path_of_this_machine_in_pages_or_results(repository, site, result):
    for path in (repository / "out").rglob("*"):
        if path.suffix in (".html", ".json"):
            assert str(repository) not in path.read_text()


def test_a_failed_page_shows_its_error_and_keeps_no_result(site, result, repository):
    html = (site[0].parent / result["05_bad.one"]["page"]).read_text()
    assert "This notebook failed." in html
    assert "before" in html
    for name in ("05_bad.one", "06_dead.one"):
        assert not (repository / "out" / name / f"{name}.json").exists()
    assert not list((repository / "out").rglob("*.part*"))


def one(repository):
    return find_scenarios(repository / "params/04_compare.one.yaml", repository / "notebooks")[0]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("params/04_compare.one.yaml", "who: Gamma\n"),
        ("data/numbers.txt", "43"),
        ("data/published/results.csv", "iops\n1.01\n"),
        ("uv.lock", "version = 2"),
    ],
)
def test_a_changed_input_is_noticed(site, repository, tmp_path, file, change):
    copy = shutil.copytree(repository, tmp_path / "copy")
    assert unchanged(one(copy), copy, copy / "out")["answer"].startswith("Beta")
    (copy / file).write_text(change)
    assert unchanged(one(copy), copy, copy / "out") is None


def test_outputs_in_the_notebook_are_no_change_but_source_and_tags_are(site, repository, tmp_path):
    copy = shutil.copytree(repository, tmp_path / "copy")
    before = sources_digest(one(copy), copy)
    path = copy / "notebooks/04_compare.ipynb"
    book = nbformat.read(path, 4)
    book.cells[3].outputs = [nbformat.v4.new_output("stream", text="x")]
    nbformat.write(book, path)
    assert sources_digest(one(copy), copy) == before
    book.cells[5].metadata["tags"] = []
    nbformat.write(book, path)
    assert sources_digest(one(copy), copy) != before


@pytest.mark.parametrize("spoilt", ["json", "html", "ipynb", "torn json", "download"])
def test_a_half_finished_result_never_counts(site, repository, tmp_path, spoilt):
    copy = shutil.copytree(repository, tmp_path / "copy")
    folder = copy / "out/04_compare.one"
    if spoilt == "torn json":
        (folder / "04_compare.one.json").write_text('{"format": 1, "digest": ')
    elif spoilt == "download":
        (folder / "table.csv").unlink()
    else:
        (folder / f"04_compare.one.{spoilt}").unlink()
    assert unchanged(one(copy), copy, copy / "out") is None


def test_what_has_not_changed_is_not_executed_again(site, repository, monkeypatch):
    monkeypatch.setattr(report_module, "execute", lambda *_: pytest.fail("executed again"))
    params, out = repository / "params/04_compare.one.yaml", repository / "out"
    written = {path: path.stat().st_mtime_ns for path in (out / "04_compare.one").rglob("*")}
    index, results = build(params, out, 2, repository)
    assert {path: path.stat().st_mtime_ns for path in written} == written, "nor is its page made again"
    assert len(written) > 3
    assert results[0]["answer"].startswith("Beta")
    assert report([params], out, root=repository) == index


def test_a_start_takes_the_old_result_away_first(site, repository, tmp_path, monkeypatch):
    import papermill

    copy = shutil.copytree(repository, tmp_path / "copy")
    kept = copy / "out/04_compare.one/04_compare.one.json"

    def killed(*_, **__):
        assert not kept.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(papermill, "execute_notebook", killed)
    with pytest.raises(KeyboardInterrupt):
        execute(one(copy), copy, copy / "out", "")
    assert not kept.exists()


def test_a_params_file_that_cannot_run_stops_everything_before_it_starts(repository, tmp_path, capsys, monkeypatch):
    bad = tmp_path / "04_compare.bad.yaml"
    bad.write_text("whoo: x\n")
    with pytest.raises(ReportError, match=r"04_compare\.bad\.yaml:1: 04_compare\.ipynb has no parameter 'whoo'"):
        report([repository / "params/04_compare.one.yaml", bad], tmp_path / "out", root=repository)
    assert not (tmp_path / "out").exists()
    monkeypatch.chdir(repository)
    assert main([str(bad), "--out", str(tmp_path / "out")]) == 2
    assert "whoo" in capsys.readouterr().err


def killed_or_done(scenario, root, out, revision):
    """Stands in for `execute` in a worker: one scenario is killed as by the kernel's out-of-memory killer."""
    if scenario.name.startswith("05"):
        os.kill(os.getpid(), signal.SIGKILL)
    return {"name": scenario.name, "ok": True, "question": "?", "answer": "done", "page": ""}


def test_a_killed_worker_fails_its_own_scenario_only(repository, tmp_path, monkeypatch):
    monkeypatch.setattr(report_module, "execute", killed_or_done)
    index, results = build(repository / "params", tmp_path / "out", 2, repository)
    assert [r["ok"] for r in results] == [True, False, True]
    assert "was killed" in results[1]["error"]
    assert "was killed" in index.read_text()


def interrupted(*_):
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(60)


def test_ctrl_c_does_not_wait_for_running_notebooks(repository, tmp_path, monkeypatch):
    monkeypatch.setattr(report_module, "execute", interrupted)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        build(repository / "params/05_bad.one.yaml", tmp_path / "out", 1, repository)
    assert time.monotonic() - started < 30


def test_the_command_prints_answers_then_the_index_and_exits_by_success(
    site, repository, monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(repository)
    assert main(["params/04_compare.one.yaml", "--out", "out"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "04_compare.one: Beta delivers 42 % more IOPS & less.",
        "out/index.html",
    ]
    others = ", ".join(sorted({r["name"] for r in site[1]} - {"04_compare.one"}))
    assert said.err.endswith(f"({others}).\n"), "their pages stay, and the index is this run's"
    assert "05_bad" not in site[0].read_text()
    shutil.copytree(repository / "out/04_compare.one", tmp_path / "alone/04_compare.one")
    assert main(["params/04_compare.one.yaml", "--out", str(tmp_path / "alone")]) == 0
    assert "Not in the index" not in capsys.readouterr().err
    failed = json.loads(json.dumps(site[1]))
    monkeypatch.setattr(report_module, "build", lambda *_: (site[0], failed))
    assert main(["params"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "out/index.html"
    assert any(line.startswith("05_bad.one: FAILED: ") for line in lines)
    with pytest.raises(ReportError, match=r"4 of 8 scenarios failed.*\n.*05_bad\.one: .*no file <x>"):
        report(root=repository)


def test_a_page_whose_campaign_failed_says_that_and_why_and_shows_nothing_else(site, result):
    said = result["10_audit.bed"]["error"]
    assert said.startswith("No data: the campaign of 03_sweep.bed failed: cell [")
    assert said.endswith("RuntimeError: this machine serves 9 IOPS, the drives would let 2,048 through")
    page = (site[0].parent / result["10_audit.bed"]["page"]).read_text()
    assert "this machine serves 9 IOPS" in page
    assert "of other data" not in page


@pytest.mark.deep
def test_a_plan_whose_hosts_are_gone_is_a_red_card_and_an_exit_code(tmp_path, monkeypatch, capsys):
    """The repository's own 01_plan, asked of addresses where nobody listens: each dead host once, and nothing green."""
    monkeypatch.chdir(hci.ROOT)
    (tmp_path / "known_hosts").touch()
    nodes, vms = [], []
    for n in (1, 2):
        nodes.append({"name": f"n{n}", "address": f"127.9.9.{n}", "port": 9})
        disk = {"serial": f"S{n}", "size_bytes": f"{n} GiB"}
        vms.append({"name": f"vm{n}", "node": f"n{n}", "address": f"127.9.9.{n + 2}", "port": 9, "disks": [disk]})
    bed = {"name": "gone", "known_hosts": f"{tmp_path}/known_hosts", "consent": "wipe-gone", "nodes": nodes, "vms": vms}
    (tmp_path / "bed.yaml").write_text(json.dumps(bed))
    (case := tmp_path / "01_plan.gone.yaml").write_text(
        f"testbed: {tmp_path}/bed.yaml\nsystem: params/systems/lab-single.yaml\nconsent: 'wipe-gone'  # wipe-gone\n"
        "patterns: [4k-randread]\nsweep: {vms: 2, repeats: 3}\n"
    )
    assert main([str(case), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().out
    assert said.count("connection refused") == len(nodes + vms)
    written = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert not [file for file in written if b"wipe-gone" in file.read_bytes()], "the consent token is published"
    page = (tmp_path / "out" / "01_plan.gone" / "01_plan.gone.html").read_text()
    assert "This notebook failed." in page
    assert "Not ready: 4 of 6 checks on 5 hosts failed" in page
    filled = re.findall(r">prefill</td>.*?</tr>", page, re.DOTALL)
    assert ["3.00" in row for row in filled] == [True, True], "cost and steps: disks of 1 and 2 GiB, a span of 100 GiB"
    assert "write 3 GiB" in page, "and so does the sentence"
