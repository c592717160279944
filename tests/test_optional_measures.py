"""Notebooks end in their answer where no run has an optional measure: percentiles, CPU, network, flushes.

Every fourth notebook runs once with all of them missing. `make deep` runs every one.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from tests.cells import executed
from tests.test_notebooks import NOTEBOOKS

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


@pytest.mark.parametrize("notebook", IN_TURN)
def test_a_notebook_ends_in_its_answer_without_any_optional_measure(monkeypatch, notebook):
    gone = tuple(name for name in OPTIONAL if name not in NEEDED.get(notebook.stem, ()))
    without(monkeypatch, gone)
    assert executed(notebook.stem)[1].strip()
