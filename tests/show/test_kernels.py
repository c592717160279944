"""Forked kernels: a notebook sees nothing of another, gives the outputs of a kernel of its own, and leaves no
process."""

import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from hcilib import report
from hcilib.show.report import execute as execute_module
from hcilib.show.report.execute import KERNEL, execute
from hcilib.show.report.kernels import MeasuringKernelManager
from hcilib.show.report.scenarios import find_scenarios

LEAVE = "import json, os, random\njson.left = os.environ['LEFT'] = 'here'\nos.chdir('/')\nrandom.seed(7)"
LOOK = (
    "import json, os, sys\n[hasattr(json, 'left'), os.environ.get('LEFT'), os.path.basename(os.getcwd()), "
    "__name__, len(sys.argv) > 1]"
)
DRAW = "import matplotlib.pyplot as plt\nplt.plot([1, 2]);"
PID = "import os, random\nimport numpy\nprint(os.getpid(), random.random(), numpy.random.random())"


@pytest.fixture(scope="module")
def house(tmp_path_factory) -> Path:
    """Three notebooks: one leaves things behind, one looks for them, one draws."""
    root = tmp_path_factory.mktemp("kernels") / "house"
    for folder in ("notebooks", "params", "data/published"):
        (root / folder).mkdir(parents=True)
    for name, code in (("01_leave", LEAVE), ("02_look", LOOK), ("03_draw", DRAW)):
        answer = new_code_cell(PID, metadata={"tags": ["answer"]})
        cells = [
            new_markdown_cell("# What is left?"),
            new_code_cell("a: int = 1", metadata={"tags": ["parameters"]}),
            new_code_cell(code),
            answer,
        ]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(new_notebook(cells=cells, metadata=kernel), root / "notebooks" / f"{name}.ipynb")
        (root / "params" / f"{name}.one.yaml").write_text("")
    return root


@pytest.fixture(scope="module")
def site(house) -> Path:
    """The folder of their pages, made by one process."""
    return report(house / "params", house / "out", workers=1, root=house).parent


def outputs(out: Path, name: str) -> list[list[dict]]:
    """Every code cell's outputs but the last one's, which tells the process; of pictures their formats."""
    cells = [c for c in nbformat.read(out / f"{name}.one" / f"{name}.one.ipynb", 4).cells if c.cell_type == "code"]
    return [[_output(o) for o in cell.outputs] for cell in cells[:-1]]


def _output(output: dict) -> dict:
    data = output.get("data", {})
    return {"stream": output.get("text")} | {kind: data[kind] if kind.startswith("text") else "" for kind in data}


def pid(out: Path, name: str) -> int:
    return int(said(out, name)[0])


def said(out: Path, name: str) -> list[str]:
    """The process of a notebook, and what is random in it."""
    return (nbformat.read(out / f"{name}.one" / f"{name}.one.ipynb", 4).cells[-1].outputs[0]["text"]).split()


@pytest.mark.deep
def test_notebooks_of_one_process_see_nothing_of_each_other_and_end(house, site):
    looked = outputs(site, "02_look")[-1][0]["text/plain"]
    assert looked == f"[False, None, '{house.name}', '__main__', True]"
    assert "image/png" in outputs(site, "03_draw")[-1][0]
    kernels = {pid(site, name) for name in ("01_leave", "02_look", "03_draw")}
    assert len(kernels) == 3
    assert len({number for name in ("02_look", "03_draw") for number in said(site, name)[1:]}) == 4
    assert not [kernel for kernel in kernels if Path(f"/proc/{kernel}").exists()]


@pytest.mark.deep
def test_outputs_are_those_of_a_kernel_of_its_own(house, site, monkeypatch):
    """01_leave has none."""
    _, *scenarios = find_scenarios(house / "params", house / "notebooks")
    assert "kernel_manager_class" in execute_module._replay(scenarios[0])
    monkeypatch.setattr(execute_module, "_replay", lambda scenario: {})
    assert all(execute(scenario, house, house / "own", "r1")["ok"] for scenario in scenarios)
    for name in ("02_look", "03_draw"):
        assert outputs(site, name) == outputs(house / "own", name)


@pytest.mark.deep
def test_what_measures_gets_a_kernel_of_its_own(house):
    scenario = find_scenarios(house / "params", house / "notebooks")[0]
    scenario.params["testbed"] = "params/testbeds/lab.yaml"
    assert execute_module._replay(scenario) == {"kernel_manager_class": MeasuringKernelManager}


@pytest.mark.deep
def test_an_executor_executes_the_same_site(house, site):
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        there = report(house / "params", house / "there", root=house, executor=pool)
    assert {p.relative_to(there.parent) for p in there.parent.rglob("*.html")} == {
        p.relative_to(site) for p in site.rglob("*.html")
    }
    for name in ("01_leave", "02_look", "03_draw"):
        assert outputs(there.parent, name) == outputs(site, name)
        assert pid(there.parent, name) != os.getpid()
    shutil.rmtree(there.parent)


@pytest.mark.deep
def test_a_kernel_that_is_interrupted_to_end_logs_no_error_and_all_others(tmp_path):
    with open(tmp_path / "stderr", "w") as stderr:
        manager, client = start_new_kernel(kernel_name="python3", extra_arguments=KERNEL, stderr=stderr)
        try:
            said = client.execute_interactive(
                "from ipykernel.kernelapp import IPKernelApp\n"
                "IPKernelApp.instance().log.error('KeyboardInterrupt caught in kernel.')\n"
                "IPKernelApp.instance().log.error('another')\n"
                "assert 'text/csv' in get_ipython().display_formatter.formatters",  # all of the extension is loaded
                timeout=60,
            )
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    assert said["content"]["status"] == "ok", said["content"]
    assert "another" in (tmp_path / "stderr").read_text()
    assert "KeyboardInterrupt" not in (tmp_path / "stderr").read_text()
