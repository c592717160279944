"""Analysts' edits: each changes or adds at most three lines of one cell, and nothing in hcilib.

A cell is one of 04_compare's own, or as short as those are. Expressions hold afterwards: they name values, not words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import ndiff
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import openpyxl
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from scipy import stats

import hcilib as hci

ROOT = Path(__file__).resolve().parents[1]
CODE = [
    "".join(cell["source"])
    for cell in json.loads((ROOT / "notebooks/04_compare.ipynb").read_text())["cells"]
    if cell["cell_type"] == "code"
]
FRAMES, FIGURE = "comparison = hci.compare(", 'x="iodepth", y="iops"'
"""Pieces of 04's cells: its frames, and IOPS over iodepth."""
RUNS = """sources = ["data/samples/lab-single"]
results = hci.select(hci.read_results(sources))
mine = hci.summarize(results, "iops")"""
TABLE = """table = hci.text(iops, "pattern iodepth system iops")
table = table.pivot(index=["Pattern", "iodepth"], columns="System", values="IOPS")"""
PRICES = """systems = hci.systems_of(results["system"].unique())
costs = hci.cost(hci.peak(results), systems)"""
GRID = "g = sns.FacetGrid(iops"

# What is edited, old -> new, and an expression that is True afterwards. `before` has the unedited frames.
EDITS: dict[str, tuple[str, dict[str, str], str]] = {
    "another baseline": (
        FRAMES,
        {FRAMES: 'baseline = "ceph-pve"\n' + FRAMES},
        "np.isclose(ratio(comparison, 'starwind-rdma-pve') * ratio(before['comparison'], 'ceph-pve'), 1).all()",
    ),
    "a filter": (
        FIGURE,
        {GRID: 'iops = iops.query("iodepth > 4 and pattern != \'1m-read\'")\n' + GRID},
        "all(min(xs(ax)) > 7 for ax in g.figure.axes) and len(g.figure.axes) == iops['pattern'].nunique() == 4",
    ),
    "an own column in a table": (
        TABLE,
        {
            "table = hci": 'iops["share"] = iops["iops"] / iops["iops"].max()\ntable = hci',
            "system iops": "system share",
            '"IOPS"': '"Share"',
        },
        "table.stack().astype(float).max() == 1 and table.shape == (27, 4)",
    ),
    "a merge with rows that are missing": (
        FIGURE,
        {
            GRID: 'own = pd.DataFrame({"system": ["ceph-pve"], "power_w": [400]})\n'
            'iops = iops.merge(own, how="left")\n' + GRID
        },
        "iops['power_w'].sum() == 400 * 27 and len(g.axes_dict) == 7 and 'Power w' in hci.text(iops)",
    ),
    "bars": (
        FIGURE,
        {
            GRID: 'iops = iops.query("iodepth == 16")\n' + GRID,
            'hci.marks, x="iodepth", y="iops").set(xscale="log", ylim=(0, None)': 'hci.bars, x="iops", y="system"',
            'finish(g, "iodepth", "iops"': 'finish(g, "iops", "system"',
        },
        "np.isclose(max(bar.get_width() for bar in g.axes_dict['4k-randread'].patches), "
        "iops.query('pattern == \"4k-randread\"')['iops'].max())",
    ),
    "a log axis": (
        FIGURE,
        {"ylim=(0, None)": 'yscale="log"'},
        "{ax.get_yscale() for ax in g.axes.flat} == {'log'} and min(ys(g.axes.flat[0])) > 0",
    ),
    "an order of systems": (
        FRAMES,
        {
            "winners =": 'own = ["starwind-tcp-pve", "drbd-tcp-pve", "ceph-pve", "starwind-rdma-pve"]\n'
            'results = results.assign(system=pd.Categorical(results["system"], own, ordered=True))\nwinners ='
        },
        "list(comparison['system'].unique()) == own[:3] and hci.by('system', winners)['hue_order'] == own "
        "and [name for name, _ in hci.text(comparison).groupby('System')] == [labels[name] for name in own[:3]]",
    ),
    "p90": (
        RUNS,
        {
            "results = hci.select(hci.read_results(sources))": "runs = "
            '["system", "pattern", "iodepth", "run_id", "block", "rep"]\n'
            "results = hci.percentiles(hci.read_bins(sources), by=runs, q=[50, 90, 99])",
            '"iops"': '"p90_ns"',
        },
        "results['p90_ns'].between(results['p50_ns'], results['p99_ns']).all() and mine['n'].eq(4).all() "
        "and np.isclose(hci.summarize(results, 'p99_ns')['p99_ns'], hci.summarize(read, 'p99_ns')['p99_ns']).all() "
        "and 'P90 (ms)' in hci.text(mine)",
    ),
    "own prices": (
        PRICES,
        {
            "costs =": 'price = {"price": 42000, "currency": "EUR"}\n'
            'systems["ceph-pve"] = systems["ceph-pve"].model_copy(update=price)\ncosts ='
        },
        "np.isclose(costs['iops_per_price'] * 42000, costs['iops'].where(costs['system'] == 'ceph-pve'), "
        "equal_nan=True).all() and costs['price'].notna().sum() == 7",
    ),
    "by block size": (
        FRAMES,
        {
            "metric, margin=margin, adjust=adjust)": 'metric, ["pattern", "iodepth", "bs_bytes"], margin)\n'
            'sizes = comparison.groupby(["system", "bs_bytes"])["ratio"].agg(n="count", middle="median").reset_index()'
        },
        "sizes.groupby('bs_bytes')['n'].max().to_dict() == {4096: 13, 65536: 7, 1048576: 7} "
        "and np.isclose(ratio(comparison, 'ceph-pve'), ratio(before['comparison'], 'ceph-pve')).all()",
    ),
    "Excel": (
        TABLE,
        {
            'values="IOPS")': 'values="IOPS")\n'
            'table.to_excel(folder / "table.xlsx")\niops.to_excel(folder / "iops.xlsx")'
        },
        "np.allclose(pd.read_excel(folder / 'iops.xlsx')['iops'], iops['iops']) "
        "and openpyxl.load_workbook(folder / 'table.xlsx').active['C2'].value == table.iloc[0, 0]",
    ),
    "two campaigns pooled": (
        RUNS,
        {'"data/samples/lab-single"': '"data/samples/lab-single", "data/samples/lab-single-2"'},
        "mine['n'].eq(8).all() and np.isclose(np.log(mine['iops']), np.log(results['iops']).groupby("
        "[results[key] for key in ('system', 'pattern', 'iodepth')]).mean()).all() "
        "and mine['warnings'].str.split().map(lambda codes: 'pooled' in codes).all()",
    ),
    "hue by another factor": (
        FIGURE,
        {'"col": "pattern"': '"col": "system"', 'hci.by("system"': 'hci.by("pattern"'},
        "g.hue_names == [name for name, _ in iops.groupby('pattern')] and len(g.axes_dict) == 4",
    ),
    "a second figure": (
        FIGURE,
        {"hci.finish(g": 'sns.histplot(iops, x="iops", hue="system", ax=plt.subplots()[1])\nhci.finish(g'},
        "len(plt.get_fignums()) == 2",
    ),
}  # fmt: skip


def edited(cell: str, edits: dict[str, str]) -> str:
    """Return the cell with each text replaced once; it must be there."""
    for old, new in edits.items():
        assert old in cell, old
        cell = cell.replace(old, new, 1)
    return cell


def marked(ax) -> list:
    """Return the marks of a panel."""
    return [marks for marks in ax.collections if isinstance(marks, PathCollection) and not marks.get_gid()]


HELP: dict[str, Any] = {
    "ratio": lambda table, system: table[table["system"] == system].sort_values(["pattern", "iodepth"])["ratio"].array,
    "xs": lambda ax: [x for marks in marked(ax) for x in marks.get_offsets()[:, 0] if x == x],
    "ys": lambda ax: [y for marks in marked(ax) for y in marks.get_offsets()[:, 1] if y == y],
}
"""What the expressions name besides the cells' own names."""


@pytest.fixture(scope="module")
def frames() -> dict[str, Any]:
    """Return the names that 04's cells leave behind, up to its answer."""
    mpl.use("Agg")
    names: dict[str, Any] = {"pd": pd, "np": np, "plt": plt, "stats": stats, "hci": hci, "openpyxl": openpyxl, **HELP}
    for source in CODE[: next(n for n, cell in enumerate(CODE) if "hci.answer(" in cell)]:
        exec(source, names)
    return names | {"read": hci.read_results("data/samples/lab-single"), "labels": hci.short_labels()}


@pytest.fixture(autouse=True)
def figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_three_lines_works(frames, tmp_path, monkeypatch, edit):
    monkeypatch.chdir(ROOT)
    find, edits, holds = EDITS[edit]
    cell = next((source for source in CODE if find in source), find)
    changed = edited(cell, edits)
    assert sum(line.startswith("+ ") for line in ndiff(cell.splitlines(), changed.splitlines())) <= 3
    copies = {name: value.copy() for name, value in frames.items() if isinstance(value, pd.DataFrame)}
    names = frames | copies | {"before": frames, "folder": tmp_path}
    exec(changed, names)
    assert eval(holds, names), edit
