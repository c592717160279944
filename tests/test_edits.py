"""Analysts' edits: each changes at most three lines of one cell of 04_compare, and nothing in hcilib.

A real kernel runs the notebook's own cells up to the frames. Then it runs the edited cell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from difflib import ndiff
from pathlib import Path

import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).resolve().parents[1]
FIGURE = 'x="iodepth", y="iops"'
TABLE = "hci.text(iops"
WORDS = "import matplotlib.pyplot as plt, pandas as pd\nfrom matplotlib.colors import to_rgb\nfrom scipy import stats"
"""What the edits, and the expressions that show their effects, import."""
RESET = """plt.close("all")
few = ["4k-randread", "4k-randrw70", "1m-write"]
iops = hci.summarize(results[results["pattern"].isin(few)], "iops")
%config InlineBackend.close_figures = False"""
CODE = [
    "".join(cell["source"])
    for cell in json.loads((ROOT / "notebooks/04_compare.ipynb").read_text())["cells"]
    if cell["cell_type"] == "code"
]

# What is edited, the edits (old -> new), and an expression that is True afterwards.
EDITS = {
    "own column in a table": (
        TABLE,
        {
            TABLE: 'iops["share"] = iops["iops"] / iops["iops"].max()\nhci.text(iops',
            'wide="system"': '"system share"',
        },
        "list(hci.text(iops, 'system share').cells) == ['System', 'Share']",
    ),
    "own column in a figure": (
        FIGURE,
        {
            "g = sns": 'iops["per_io"] = iops["iops"] / iops["iodepth"]\ng = sns',
            'y="iops"': 'y="per_io"',
            '"iodepth", "iops"': '"iodepth", "per_io"',
        },
        "len(g.axes_dict) == len(few) and 'per' in g.axes.flat[0].get_ylabel().lower()",
    ),
    "another metric": (
        FIGURE,
        {
            "g = sns": 'iops = hci.summarize(results, "lat_ns")\ng = sns',
            'y="iops"': 'y="lat_ns"',
            '"iodepth", "iops"': '"iodepth", "lat_ns"',
        },
        "plt.gcf().get_supylabel() == 'Mean latency (ms)'",
    ),
    "a filter": (
        FIGURE,
        {"g = sns": 'iops = iops.query("iodepth > 4")\ng = sns'},
        "min(x for ax in g.axes.flat for line in ax.get_lines() if line.get_marker() != 'None' "
        "for x in line.get_xdata()) >= 7.5",
    ),
    "a merge with rows that are missing": (
        FIGURE,
        {
            "g = sns": 'own = pd.DataFrame({"system": ["ceph-pve"], "power_w": [400]})\n'
            'iops = iops.merge(own, how="left")\ng = sns'
        },
        "g.axes.flat[0].get_ylabel() == 'IOPS' and 'Power w' in hci.text(iops).cells",
    ),
    "hue by another factor": (
        FIGURE,
        {'"col": "pattern"': '"col": "system"', 'hci.by("system"': 'hci.by("pattern"'},
        "len(g.axes_dict) == 4",
    ),
    "col_wrap": (
        FIGURE,
        {'"col_wrap": 3': '"col_wrap": 2'},
        "g._ncol == 2 and len(g.axes_dict) == len(few)",
    ),
    "a log axis": (FIGURE, {"ylim=(0, None)": 'yscale="log"'}, "g.axes.flat[0].get_yscale() == 'log'"),
    "a palette": (
        FIGURE,
        {'hci.by("system", iops)': 'hci.by("system", iops, palette="deep")'},
        "sns.color_palette('deep')[0] in [to_rgb(line.get_color()) for line in g.axes.flat[0].get_lines()]",
    ),
    "a system is dropped": (
        FIGURE,
        {"g = sns": "iops = iops[iops[\"system\"] != \"ceph-pve\"]\ng = sns"},
        "'Ceph' not in [t.get_text() for t in g.axes.flat[0].texts]",
    ),
    "a second figure": (
        FIGURE,
        {"hci.finish(g": 'sns.histplot(iops, x="iops", hue="system", ax=plt.subplots()[1])\nhci.finish(g'},
        "len(plt.get_fignums()) >= 2",
    ),
    "an own test": (
        TABLE,
        {"hci.text(iops": 'two = [results.query("system == @s")["iops"] for s in ("ceph-pve", baseline)]\n'
         "print(stats.mannwhitneyu(*two).pvalue)\nhci.text(iops"},
        "stats.mannwhitneyu(*two).pvalue < 0.05",
    ),
}  # fmt: skip


def edited(cell: str, edits: dict[str, str]) -> str:
    """Return the cell with each text replaced once; it must be there."""
    for old, new in edits.items():
        assert old in cell, old
        cell = cell.replace(old, new, 1)
    return cell


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[[str], str]]:
    """Return what a cell prints, in one kernel that has 04_compare's frames. Errors raise."""
    book = new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    client = NotebookClient(book, timeout=120, resources={"metadata": {"path": str(ROOT)}})

    def execute(source: str) -> str:
        cell = new_code_cell(source)
        book.cells.append(cell)
        client.execute_cell(cell, len(book.cells) - 1)
        return "".join(output.get("text", "") for output in cell.outputs)

    with client.setup_kernel():
        frames = next(n for n, cell in enumerate(CODE) if "hci.answer(" in cell)
        for source in CODE[:frames]:
            execute(source)
        execute(WORDS)
        yield execute


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_three_lines_works(run, edit):
    find, edits, holds = EDITS[edit]
    cell = next(source for source in CODE if find in source)
    changed = edited(cell, edits)
    assert sum(line.startswith("+ ") for line in ndiff(cell.splitlines(), changed.splitlines())) <= 3
    run(RESET)
    run(changed)
    assert re.search("True", run(f"print(bool({holds}))")), edit
