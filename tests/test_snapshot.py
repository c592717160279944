"""The nets find a changed number, tick, bound, title, column or refusal, and not a changed name."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.snapshot.compare import compare_folders
from tests.snapshot.content import columns_of
from tests.snapshot.files import read
from tests.snapshot.trees import save_tree

LIBRARY = '''
"""A library of two functions, in the place of hcilib."""
import matplotlib.pyplot as plt
import pandas as pd

__all__ = ["measure", "draw"]


def measure(last, columns="system iops p99"):
    rows = {"system": ["a", "b", "c"], "iops": [1.0, float("nan"), last], "p99": [5, 6, 7.5]}
    table = pd.DataFrame(rows)[columns.split()]
    table.attrs["metric"] = "iops"
    return table


def draw(table, ticks, title, bound, moved):
    figure, ax = plt.subplots()
    ax.plot([1 + moved, 2 + moved, 3 + moved], table["iops"], "o", color="#004c8c", label="a")
    ax.errorbar([1 + moved], [1.0], yerr=[[0.1], [bound]], fmt="none", ecolor="#004c8c", capsize=3)
    ax.set(xlim=(0, 4))
    ax.set_xticks(ticks)
    ax.set_xlabel(title)
'''
PARAMETERS = """
last = 2.5
columns = "system iops p99"
ticks = [1, 2, 3]
title = "depth"
bound = 0.2
moved = 0.0
twice = False
fail = False
"""
CELLS = [
    "import hcilib as hci\nimport numpy as np\nimport pandas as pd",
    "table = hci.measure(last, columns)\ntable",
    "spread = pd.Series([np.random.random()], name='spread')",
    "if twice:\n    hci.measure(last, columns)",
    "hci.draw(table, ticks, title, bound, moved);",
    "if fail:\n    raise ValueError('no data')",
]
CASES = {
    "same": {},
    "number": {"last": 2.5000000000000004},
    "column": {"columns": "iops system"},
    "tick": {"ticks": [1, 3]},
    "title": {"title": "iodepth"},
    "bound": {"bound": 0.25},
    "order": {"columns": "p99 iops system"},
    "dodge": {"moved": 0.07},
    "twice": {"twice": True},
}
FOUND = {
    "number": "values: measure: iops: c: 2.5 -> 2.5000000000000004 (1 of 3, at most 2.22e-14 %)",
    "column": "values: measure: p99: missing after",
    "tick": "axes: ticks: 11 -> 10 rows of label, way, scale, low, high, at, text",
    "title": 'axes: ticks: label: "depth" -> "iodepth" (3 of 11)',
    "bound": "figures: panel: hi: 1.2 -> 1.25 (1 of 2, at most 4.17 %)",
}
SAME = ("same", "order", "dodge", "twice")
"""The order of columns, loads moved apart and a second call are no differences."""


def checkout(root: Path) -> Path:
    """Make a checkout with one notebook, and a scenario for each case."""
    code = [{"cell_type": "code", "metadata": {}, "source": source} for source in CELLS]
    parameters = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": PARAMETERS}
    files = {
        "hcilib/__init__.py": LIBRARY,
        "notebooks/01_small.ipynb": json.dumps({"cells": [parameters, *code]}),
        "params/01_small.live.yaml": "testbed: params/testbeds/rack.yaml\n",
        "params/01_small.lab.yaml": "testbed: params/testbeds/lab.yaml\n",
        "params/01_small.fails.yaml": "fail: true\n",
    }
    files |= {f"params/01_small.{name}.yaml": json.dumps(CASES[name]) for name in CASES}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


@pytest.fixture(scope="module")
def saves(tmp_path_factory):
    """The save of all cases, and one in which each case is as the unchanged one."""
    folder = tmp_path_factory.mktemp("snapshot")
    only = ["params/*", "notebooks/*", "signatures"]
    status = save_tree(folder / "after", checkout(folder / "tree"), only, 2)
    assert status == 1, "a scenario fails, so the save does"
    (folder / "before").mkdir()
    for case in CASES:
        name = f"01_small.{case}.json.gz"
        shutil.copy(folder / "after" / "01_small.same.json.gz", folder / "before" / name)
    return folder


def differences(capsys, before: Path, after: Path, **options) -> tuple[int, list[str]]:
    """Return the status and the lines of a comparison."""
    status = compare_folders(before, after, **options)
    return status, capsys.readouterr().out.splitlines()


def test_a_scenario_that_failed_is_equal_to_nothing(saves, capsys):
    status, lines = differences(capsys, saves / "after", saves / "after")
    assert status == 1
    failed = "01_small.fails: failed in after: cell 7: ValueError: no data"
    assert lines[:2] == [failed, failed]


@pytest.mark.parametrize("case", FOUND)
def test_a_change_is_found_and_named(saves, capsys, case):
    only = f"*.{case}"
    status, lines = differences(capsys, saves / "before", saves / "after", only=only)
    assert status == 1
    assert f"01_small.{case}: {FOUND[case]}" in lines


@pytest.mark.parametrize("case", SAME)
def test_what_is_no_content_makes_no_difference(saves, capsys, case):
    only = f"*.{case}"
    status, lines = differences(capsys, saves / "before", saves / "after", only=only)
    assert (status, lines[0][:13]) == (0, "0 differences")


def test_a_missing_scenario_is_found(saves, capsys, tmp_path):
    shutil.copytree(saves / "after", tmp_path / "less")
    (tmp_path / "less" / "01_small.tick.json.gz").unlink()
    for pair in ((saves / "after", tmp_path / "less"), (tmp_path / "less", saves / "after")):
        status, lines = differences(capsys, *pair)
        assert status == 1
        assert any(line.startswith("01_small.tick: missing in ") for line in lines)


def test_the_scenarios_of_a_save(saves):
    manifest = json.loads((saves / "after" / "manifest.json").read_text())
    assert manifest["left out"]["01_small.live"] == "needs the testbed params/testbeds/rack.yaml"
    assert list(manifest["failed"]) == ["01_small.fails"]
    assert "01_small.lab" in manifest["scenarios"]
    failed = read(saves / "after" / "01_small.fails.json.gz")["error"]
    assert failed == {"cell": 7, "class": "ValueError", "message": "no data"}


# ---- digests


TABLE = pd.DataFrame(
    {
        "system": ["b", "a", "a"],
        "iodepth": [1, 8, 1],
        "iops": [30.5, np.nan, 10.25],
        "verdict": ["untested", "higher", "same"],
    }
)


def test_neither_order_nor_types_nor_renamed_words_are_content():
    other = TABLE.iloc[::-1][["verdict", "iops", "system", "iodepth"]].reset_index(drop=True)
    other["verdict"] = other["verdict"].replace({"untested": "untested", "same": "same"})
    other["iodepth"] = other["iodepth"].astype(float)
    other = other.astype({"system": "category", "iops": object}).set_index(["system", "iodepth"])
    assert columns_of(other) == columns_of(TABLE)
