"""Notebooks end in their answer where no run has an optional measure: percentiles, CPU, network, flushes.

Every fourth notebook runs once with all of them missing. `make deep` runs every one.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from seaborn.axisgrid import Grid

import hcilib as hci

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
IN_TURN = [
    pytest.param(notebook, id=notebook.stem, marks=[pytest.mark.deep] * bool(n % 4))
    for n, notebook in enumerate(NOTEBOOKS)
]
OPTIONAL = (
    "node_cpu_pct", "iops_per_cpu_pct", "net_bytes_per_s", "p50_ns", "p95_ns", "p99_ns", "p999_ns", "p9999_ns",
    "lat_unweighted_ns", "sync_lat_ns", "sync_p99_ns", "integrity", "savings_pct",
)  # fmt: skip
NEEDED = {"14_demand": ("p99_ns", "p50_ns")}
"""Measures that a notebook is about."""


def without(monkeypatch, columns: tuple[str, ...]) -> None:
    """Let every reader of results lose these columns' values."""

    def bare(read):
        def wrapped(*args, **kwargs) -> pd.DataFrame:
            results = read(*args, **kwargs)
            return results.assign(**{name: np.nan for name in columns if name in results})

        return wrapped

    for name in ("read_results", "published"):
        monkeypatch.setattr(hci, name, bare(getattr(hci, name)))


def answer(notebook: Path) -> str:
    """Run a notebook's cells and return what its answer cell prints."""
    cells = [c for c in json.loads(notebook.read_text())["cells"] if c["cell_type"] == "code"]
    names, said = {"display": lambda *shown: None}, ""
    for cell in cells:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile("".join(cell["source"]), notebook.name, "exec"), names)
        if "answer" in cell["metadata"].get("tags", []):
            said = printed.getvalue()
        plt.close("all")
    return said


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Draw every figure, and leave out where seaborn lays it out, twice each: nobody looks at it."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(Grid, "tight_layout", lambda grid, **_: grid)
    mpl.use("Agg")


@pytest.mark.parametrize("notebook", IN_TURN)
def test_a_notebook_ends_in_its_answer_without_any_optional_measure(monkeypatch, notebook):
    gone = tuple(name for name in OPTIONAL if name not in NEEDED.get(notebook.stem, ()))
    without(monkeypatch, gone)
    assert answer(notebook).strip()
