"""The nets find a changed number, tick, title, alternative text or refusal."""

import json
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import hcilib as hci
from tests.snapshot import refusals
from tests.snapshot.compare import compare_folders
from tests.snapshot.files import read, write
from tests.snapshot.outcomes import Outcomes
from tests.snapshot.trees import save_tree
from tests.snapshot.values import Normal

LIBRARY = '''
"""A library of two functions, in the place of hcilib."""
import matplotlib.pyplot as plt
import pandas as pd

__all__ = ["measure", "draw"]


def measure(last):
    table = pd.DataFrame({"system": ["a", "b", "c"], "iops": [1.0, float("nan"), last]})
    table.attrs["metric"] = "iops"
    return table


def draw(table, ticks, title, alt):
    figure, ax = plt.subplots()
    ax.plot([1, 2, 3], table["iops"], label="a")
    ax.set_xticks(ticks)
    ax.set_xlabel(title)
    figure.hci_said = alt
'''
PARAMETERS = "last = 2.5\nticks = [1, 2]\ntitle = 'depth'\nalt = 'b leads'\nfail = False"
CELLS = [
    "import hcilib as hci\nimport numpy as np\nspread = np.random.random()",
    "table = hci.measure(last)\ntable",
    "hci.draw(table, ticks, title, alt);",
    "if fail:\n    raise ValueError('no data')",
]
CASES = {
    "same": {},
    "number": {"last": 2.5000000000000004},
    "tick": {"ticks": [1, 2, 3]},
    "title": {"title": "iodepth"},
    "alt": {"alt": "c leads"},
}
MEASURED = "values / calls / measure #1 (cell 3) / value / values"
PLACES = {
    "number": f"{MEASURED} / iops / 2: 2.5 -> 2.5000000000000004",
    "tick": "figures / figure 1 (cell 4) / axes / 0 / x / ticks / length: 2 -> 3",
    "title": 'figures / figure 1 (cell 4) / axes / 0 / x / label: "depth" -> "iodepth"',
    "alt": 'figures / figure 1 (cell 4) / added / hci_said: "b leads" -> "c leads"',
}


def checkout(root: Path) -> Path:
    """Make a checkout with one notebook, and a scenario for each case."""
    code = [{"cell_type": "code", "metadata": {}, "source": source} for source in CELLS]
    parameters = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": PARAMETERS}
    files = {
        "hcilib/__init__.py": LIBRARY,
        "notebooks/01_small.ipynb": json.dumps({"cells": [parameters, *code]}),
        "params/01_small.live.yaml": "testbed: params/testbeds/rack.yaml\n",
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
    only = ["params/*", "notebooks/*"]
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


def test_a_save_is_equal_to_itself(saves, capsys):
    (saves / "whole").mkdir()
    for case in CASES:
        name = f"01_small.{case}.json.gz"
        shutil.copy(saves / "after" / name, saves / "whole" / name)
    status, lines = differences(capsys, saves / "whole", saves / "whole")
    assert status == 0
    assert lines[-1].startswith("0 differences. 5 files and ")


def test_a_scenario_that_failed_is_equal_to_nothing(saves, capsys):
    status, lines = differences(capsys, saves / "after", saves / "after")
    assert status == 1
    failed = "01_small.fails: failed in after: cell 5: ValueError: no data"
    assert lines[:2] == [failed, failed]


@pytest.mark.parametrize("case", PLACES)
def test_a_change_is_found_and_named(saves, capsys, case):
    only = f"*.{case}"
    status, lines = differences(capsys, saves / "before", saves / "after", only=only)
    assert status == 1
    assert f"01_small.{case}: {PLACES[case]}" in lines


def test_the_unchanged_scenario_is_equal(saves, capsys):
    assert differences(capsys, saves / "before", saves / "after", only="*.same")[0] == 0


def test_a_missing_scenario_is_found(saves, capsys, tmp_path):
    shutil.copytree(saves / "after", tmp_path / "less")
    (tmp_path / "less" / "01_small.tick.json.gz").unlink()
    for pair in ((saves / "after", tmp_path / "less"), (tmp_path / "less", saves / "after")):
        status, lines = differences(capsys, *pair)
        assert status == 1
        assert any(line.startswith("01_small.tick: missing in ") for line in lines)


def test_nothing_compared_is_an_error(capsys, tmp_path):
    assert differences(capsys, tmp_path, tmp_path)[0] == 2


def test_the_scenarios_of_a_save(saves):
    manifest = json.loads((saves / "after" / "manifest.json").read_text())
    assert manifest["left out"]["01_small.live"] == "needs the testbed params/testbeds/rack.yaml"
    assert list(manifest["failed"]) == ["01_small.fails"]
    failed = read(saves / "after" / "01_small.fails.json.gz")["error"]
    assert failed == {"cell": 5, "class": "ValueError", "message": "no data"}


def test_tables_keep_missing_values_and_attributes(saves):
    document = read(saves / "after" / "01_small.same.json.gz")
    table = document["tables"][document["values"]["names"]["table"]["@table"]]
    assert table["attrs"] == {"metric": "iops"}
    assert [value != value for value in table["values"]["iops"]] == [False, True, False]


def test_points_spread_at_random_are_the_same_in_every_save(saves):
    names = read(saves / "after" / "01_small.same.json.gz")["values"]["names"]
    assert names["spread"] == np.random.RandomState(0).random()


def ask(folder: Path) -> None:
    """Save what the guard decides on consents and on disks that were changed."""
    outcomes, guard = Outcomes(Normal()), refusals.Guard()
    refusals.consents(guard, outcomes)
    refusals.changed_devices(guard, outcomes)
    document = {"refusals": outcomes.refusals, "wording": outcomes.wording}
    write(folder / "refusals.json.gz", document)


def test_a_changed_refusal_is_found(capsys, tmp_path, monkeypatch):
    ask(tmp_path / "before")
    ask(tmp_path / "again")
    assert differences(capsys, tmp_path / "before", tmp_path / "again")[0] == 0
    guard = import_module(hci.GuardError.__module__)
    judge = guard.judge

    def lenient(*arguments):
        found, refused = judge(*arguments)
        return found, [r for r in refused if "is mounted on" not in r.reason]

    monkeypatch.setattr(guard, "judge", lenient)
    ask(tmp_path / "after")
    status, lines = differences(capsys, tmp_path / "before", tmp_path / "after", kinds=["refusals"])
    assert status == 1
    case = "a blank disk with mounts (('/srv', 'sdb'),)"
    assert f"refusals: refusals / {case} / refused / length: 1 -> 0" in lines
