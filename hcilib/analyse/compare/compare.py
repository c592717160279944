"""Which system is faster, where, by how much, and whether the difference is real (METHODS section 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.campaigns.regression import regression
from hcilib.analyse.compare.cells import annotate, describe, listed
from hcilib.analyse.compare.language import records, sentence
from hcilib.analyse.compare.overall import everywhere, geometric_mean
from hcilib.analyse.compare.pairs import against, check_options, judge, own_notes, prior_note, unlike
from hcilib.analyse.compare.rank import rank
from hcilib.analyse.compare.welch import own_interval
from hcilib.analyse.curves.curves import crossover, peak
from hcilib.caveats import Caveat

__all__ = ["compare", "crossover", "everywhere", "geometric_mean", "peak", "rank", "regression", "summarize"]


def summarize(
    results: pd.DataFrame,
    metric: str = "iops",
    by: str | Sequence[str] = ("system", "pattern", "iodepth"),
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The centre of each cell's runs and its interval.

    Geometric mean with a t interval on logs; the arithmetic mean, its relative error by the delta method, where a
    cell is unstable (max/min > 1.3). One run has no interval. Only valid runs count.

    Returns the by columns, n, center, lo, hi, confidence, cv_pct, unstable, warnings.
    Raises ValueError for a missing column, rows that vary in a factor not in `by`, and a run given twice.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.summarize(results, "iops")[["system", "iodepth", "n", "center", "warnings"]].head(2)
         system  iodepth  n   center               warnings
    0  ceph-pve        1  1   8570.0  (n = 1: no interval,)
    1  ceph-pve        2  1  15100.0  (n = 1: no interval,)
    """
    by = [by] if isinstance(by, str) else list(by)
    cells = describe(results, metric, by)
    check_options(0.05, "welch", None, confidence)
    lo, hi = own_interval(cells, confidence)
    table = cells[[*by, "n", "center"]].assign(
        lo=lo,
        hi=hi,
        confidence=confidence,
        cv_pct=100 * np.sqrt(cells["rel_var"]),
        unstable=cells["unstable"],
        warnings=annotate(cells["notes"], (cells["n"] == 0, Caveat("no-run", "no usable run"))),
    )
    table.attrs = {
        "metric": metric,
        "source": ", ".join(map(str, results["source"].dropna().unique())) if "source" in results else "",
    }  # so that what shows it need not be told
    return table


def compare(
    results: pd.DataFrame,
    baseline: str,
    metric: str = "iops",
    by: str | Sequence[str] = ("pattern", "iodepth"),
    margin: float = 0.05,
    method: str = "welch",
    adjust: str | None = "bh",
    confidence: float = 0.95,
    labels: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Every other system against `baseline`, cell by cell: ratio of geometric means, Welch t on logs.

    Parameters
    ----------
    by : the factors that make a cell; rows that vary in another factor are refused, not pooled.
    margin : what counts as equivalent: a ratio inside [1 / (1 + margin), 1 + margin], by TOST.
    method : "welch", or "guarded": the larger of a cell's own and the moderated variance.
    adjust : "bh" for a grid that is explored, "holm" for a few declared claims, "iut" for one claim over all cells
        ("at every iodepth": its cells stay uncorrected and `everywhere` judges it), None for one declared cell.
        The family is every pair of this call that has a p.
    labels : system -> the name that the sentences use.

    Returns
    -------
    One row per system (not the baseline) and cell: system, the by columns, ratio (system / baseline), lo, hi, df, p,
    p_adjusted, n_baseline, n, verdict, sentence, warnings; then baseline, metric, center, center_baseline, equivalent,
    unstable, confidence, margin, tost_p, tost_lo, tost_hi, method, adjust.
    `verdict` is about the number, not the taste: higher, lower, equivalent, inconclusive; point where a side has one
    run (no interval), missing where it has none. `higher` and `equivalent` (the column) can both hold.

    Raises
    ------
    ValueError for a missing column, an unknown option, a baseline that no row is of, rows that vary in a factor, and a
    run given twice.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> found = hci.compare(results, baseline="starwind-rdma-pve")
    >>> found[["system", "iodepth", "ratio", "verdict"]].head(2).round(3)
         system  iodepth  ratio verdict
    0  ceph-pve        1  0.466   point
    1  ceph-pve        2  0.547   point
    >>> print(found["sentence"].iloc[0])
    ceph-pve delivers 53.4 % lower IOPS than starwind-rdma-pve in 1M read at iodepth 1 (single published mean or run each: no interval).
    """
    by = [by] if isinstance(by, str) else [*by]
    by = [name for name in by if name != "system"]
    check_options(margin, method, adjust, confidence)
    cells = describe(results, metric, ["system", *by])
    if len(cells) and baseline not in set(cells["system"]):  # else every verdict would be `missing`, without an error
        known = listed(pd.unique(cells["system"]))
        raise ValueError(f"baseline is {baseline!r}, which is not among the systems of these results: {known}")
    rows, base, keys = against(cells, baseline, by)
    differences = unlike(cells, rows, base, by)
    judged = judge(cells, rows, base, margin=margin, method=method, adjust=adjust, confidence=confidence)
    judged = judged.assign(
        baseline=baseline, metric=metric, method=method, adjust=str(adjust), **_both(cells, rows, base)
    )
    table = pd.concat([keys, judged], axis=1)
    table["sentence"] = [sentence(row, by, metric, labels or {}) for row in records(table)]
    table["warnings"] = annotate(
        own_notes(cells, rows, base, keys["system"].to_numpy(object), baseline),
        (differences.astype(bool), differences.__getitem__),
        (np.full(len(rows), method == "guarded"), lambda i: prior_note(cells)),
    )
    return table[[*keys.columns, *_FIRST, *_THEN]]


_FIRST = ["ratio", "lo", "hi", "df", "p", "p_adjusted", "n_baseline", "n", "verdict", "sentence", "warnings"]
_THEN = [
    "baseline", "metric", "center", "center_baseline", "equivalent", "unstable", "confidence", "margin",
    "tost_p", "tost_lo", "tost_hi", "method", "adjust",
]  # fmt: skip


def _both(cells: pd.DataFrame, rows: np.ndarray, base: np.ndarray) -> dict[str, np.ndarray]:
    """The centres and runs of both sides. A pair of which one side is unstable shows arithmetic means for both."""
    unstable = np.append(cells["unstable"].to_numpy(bool), False)
    arithmetic = unstable[rows] | unstable[base]
    mean = np.append(cells["mean"].to_numpy(), np.nan)
    center = np.append(cells["center"].to_numpy(), np.nan)
    runs = np.empty(len(cells) + 1, dtype=object)
    runs[:-1] = cells["runs"]
    return {
        "center": np.where(arithmetic, mean[rows], center[rows]),
        "center_baseline": np.where(arithmetic, mean[base], center[base]),
        "runs": runs[rows],
        "runs_baseline": runs[base],
    }
