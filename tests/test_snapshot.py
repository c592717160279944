"""The nets find a changed number, row, tick, point, title, column or refusal, and not a changed order."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from tests.snapshot.compare import compare_folders
from tests.snapshot.content import columns_of, moved
from tests.snapshot.saves import SUFFIX, save_tree

PARAMETERS = """
last = 2.5
rows = 3
columns = "system iops p99_ns"
ticks = [1, 2, 3]
title = "depth"
bound = 0.2
twice = False
fail = False
"""
CELLS = [
    "import hcilib as hci\nimport matplotlib.pyplot as plt\nimport numpy as np\nimport pandas as pd",
    'runs = {"system": ["a", "b", "c"], "iops": [1.0, float("nan"), last], "p99_ns": [5, 6, 7.5]}\n'
    "table = hci.select(pd.DataFrame(runs)[columns.split()].head(rows))",
    "spread = pd.Series([np.random.random()], name='spread')",
    "if twice:\n    hci.select(table)",
    "figure, ax = plt.subplots()\n"
    'ax.plot(table["iops"], "o", color="#004c8c", label="a")\n'
    'ax.errorbar([1], [1.0], yerr=[[0.1], [bound]], fmt="none", ecolor="#004c8c")\n'
    "ax.set(xlim=(0, 4), xticks=ticks, xlabel=title)",
    "if fail:\n    raise ValueError('no data')",
]
CASES = {
    "same": {},
    "number": {"last": 2.5000000000000004},
    "row": {"rows": 2},
    "column": {"columns": "iops system"},
    "tick": {"ticks": [1, 3]},
    "title": {"title": "iodepth"},
    "bound": {"bound": 0.25},
    "order": {"columns": "p99_ns iops system"},
    "twice": {"twice": True},
    "fails": {"fail": True},
}
FOUND = {
    "number": 'values: select: iops: "c" 2.5 -> 2.5000000000000004 (1 of 3)',
    "row": "values: select: 3 -> 2 rows of iops, p99_ns, system",
    "column": "values: select: p99_ns: missing after",
    "tick": "axes: ticks: 11 -> 10 rows of at, high, label, low, scale, text, way",
    "title": 'axes: ticks: label: "depth" -> "iodepth" (3 of 11)',
    "bound": "figures: panel: y: 1.2 -> 1.25 (1 of 5)",
    "fails": "error: None -> ValueError: no data",
}


@pytest.fixture(scope="module")
def saves(tmp_path_factory) -> Path:
    """The save of all cases of a checkout with one notebook, and one in which each case is as the unchanged one."""
    root = tmp_path_factory.mktemp("snapshot")
    code = [{"cell_type": "code", "metadata": {}, "source": source, "outputs": []} for source in CELLS]
    parameters = {**code[0], "metadata": {"tags": ["parameters"]}, "source": PARAMETERS}
    book = {"cells": [parameters, *code], "metadata": {}, "nbformat": 4, "nbformat_minor": 2}
    for folder in ("tree/notebooks", "tree/params", "before"):
        (root / folder).mkdir(parents=True)
    (root / "tree/hcilib").symlink_to(hci.ROOT / "hcilib")
    (root / "tree/notebooks/01_small.ipynb").write_text(json.dumps(book))
    for name, values in CASES.items():
        (root / f"tree/params/01_small.{name}.yaml").write_text(json.dumps({"ticks": [1, 2, 3], **values}))
    assert save_tree(root / "after", root / "tree", ["01_small.*"]) == 1, "a scenario fails"
    for file in (root / "after").iterdir():
        shutil.copy(root / "after" / f"01_small.same{SUFFIX}", root / "before" / file.name)
    return root


def test_what_moved_is_found_and_named_and_nothing_else_is(saves, capsys):
    assert compare_folders(saves / "before", saves / "after") == 1
    lines = capsys.readouterr().out.splitlines()
    assert {f"01_small.{case}: {line}" for case, line in FOUND.items()} <= {*lines}
    assert {line.split(":")[0] for line in lines[:-1]} == {f"01_small.{case}" for case in FOUND}


def test_a_missing_scenario_is_found_and_the_same_save_is_equal(saves, capsys, tmp_path):
    shutil.copytree(saves / "before", tmp_path / "less")
    assert compare_folders(saves / "before", tmp_path / "less") == 0
    (tmp_path / "less" / f"01_small.tick{SUFFIX}").unlink()
    for pair in ((saves / "before", tmp_path / "less"), (tmp_path / "less", saves / "before")):
        assert compare_folders(*pair) == 1
        assert "01_small.tick: error: " in capsys.readouterr().out


def test_neither_order_nor_types_are_content():
    rows = {"system": ["b", "a", "a"], "iodepth": [1, 8, 1], "iops": [30.5, np.nan, 10.25]}
    table = pd.DataFrame(rows)
    other = table.iloc[::-1][["iops", "system", "iodepth"]].astype({"iodepth": float})
    other = other.astype({"system": "category", "iops": object}).set_index(["system", "iodepth"])
    assert columns_of(other) == columns_of(table)


def test_a_net_names_what_moved_is_missing_or_is_new():
    before, after = {"a": {"x": "1", "y": "2"}, "b": ["3"]}, {"a": {"x": "1", "y": "5"}, "c": ["3"]}
    assert moved(before, after) == ["a: y: 2 -> 5", "b: 1: 3 -> missing", "c: 1: new -> 3"]
