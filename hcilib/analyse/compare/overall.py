"""Many cells of a comparison in one row: a geometric mean with its parts beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import PRINTED_MEAN, Runs, as_list, group_codes, require_columns
from hcilib.analyse.compare.contrast import critical, judge
from hcilib.model.caveats import LEFT_OUT, add_codes, has_code


def overall(comparison: pd.DataFrame, by: str | Sequence[str] = ("system",)) -> pd.DataFrame:
    """Geometric mean of a comparison's ratios, every cell with the same weight, its per-pattern means beside it.

    The interval is over rounds: whatever shifted a round shifted all of its cells, so the runs of a round are taken
    together before anything is said of their spread (METHODS section 7). It speaks of these cells only, and is NaN as
    soon as one cell is a single run. Cells without a ratio are left out and counted.

    The verdict is that of a cell, by the mean's interval and Holm over the rows; but it is `no verdict` where some
    cells are higher and some lower: a mean would hide it.

    Returns the by columns, n (cells), ratio, ratio_lo, ratio_hi, confidence, lowest, highest
    (ratio), verdict (higher, lower, same, undecided, no verdict, untested, missing),
    warnings, tost_lo, tost_hi, then one column per pattern unless `by` holds it.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> found = hci.compare(results, baseline="starwind-rdma-pve")
    >>> hci.overall(found)[["system", "n", "ratio"]].round(3)
                 system  n  ratio
    0          ceph-pve  4  0.639
    1      drbd-tcp-pve  4  0.844
    2  starwind-tcp-pve  4  0.751
    """
    by = as_list(by)
    require_columns(comparison, by)
    comparison = comparison.reset_index(drop=True)
    code, out = group_codes(comparison, by)
    groups, used = len(out), (comparison["ratio"] > 0).to_numpy()
    margin = comparison["margin"].iloc[0] if len(comparison) else np.nan
    cells, size = (np.bincount(rows, minlength=groups) for rows in (code[used], code))
    with np.errstate(invalid="ignore", divide="ignore"):
        center = np.bincount(code[used], np.log(comparison["ratio"][used]), groups) / cells
    se, df = _error_over_blocks(comparison[used], code[used], cells)
    # To `judge` none is a single run; where one cell is, the verdict below says so.
    mean = pd.DataFrame({"log_ratio": center, "se": se, "df": df, "n": 2, "n_baseline": 2, "unstable": False})
    judged = judge(mean, margin=margin, adjust="holm")
    above, below = (np.bincount(code[comparison["verdict"] == side], minlength=groups) for side in ("higher", "lower"))
    single, mixed = (cells > 0) & np.isnan(se), (above > 0) & (below > 0)
    spread = comparison["ratio"].where(used).groupby(code)
    printed = np.isin(range(groups), code[has_code(comparison, PRINTED_MEAN)])
    conditions, of_mean = [cells == 0, single, mixed], judged["verdict"].to_numpy(str)
    verdict = np.select(conditions, ["missing", "untested", "no verdict"], of_mean)
    warnings = add_codes(
        [""] * groups,
        (size > cells, "no-ratio"),
        (mixed & ~single, "mixed"),
        (single & ~printed, "single-runs"),
        (single & printed, PRINTED_MEAN),
        (np.full(groups, has_code(comparison, LEFT_OUT).any()), LEFT_OUT),
    )
    found = judged.assign(n=cells, lowest=spread.min(), highest=spread.max(), verdict=verdict, warnings=warnings)
    known = [
        "n",
        "ratio",
        "ratio_lo",
        "ratio_hi",
        "confidence",
        "lowest",
        "highest",
        "verdict",
        "warnings",
        "tost_lo",
        "tost_hi",
    ]
    return pd.concat([out.assign(**dict(found[known])), _per_pattern(comparison, used, code, by, groups)], axis=1)


def _error_over_blocks(rows: pd.DataFrame, code: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard error and degrees of freedom of each group's mean log ratio.

    Of every block its part in the mean's error: the deviations of its runs from their cells' means, together. With
    complete blocks this is t over the blocks' means; a run that is missing leaves its cell's other runs their weight.
    The two systems of unpaired cells have blocks of their own, so their variances add (Satterthwaite). Never less than
    independent cells would have: blocks cannot make a mean surer than its cells are.
    """
    if rows.empty:
        return np.full(len(cells), np.nan), np.full(len(cells), np.nan)
    moved = pd.DataFrame(_moves(rows, code, cells), columns=["group", "side", "block", "moved"])
    sides = moved.groupby(["group", "side", "block"])["moved"].sum().groupby(level=["group", "side"])
    blocks = sides.size()
    variance = sides.agg(lambda x: (x**2).sum()) * blocks / (blocks - 1).where(blocks > 1)

    def over_sides(values: pd.Series) -> np.ndarray:
        return values.groupby(level="group").sum(min_count=1).reindex(range(len(cells))).to_numpy()

    with np.errstate(invalid="ignore", divide="ignore"):
        total = over_sides(variance)
        df = total**2 / over_sides(variance**2 / (blocks - 1))
        # As if the cells were independent: their own errors, which the limits of their ratios tell.
        own_df = rows["df"].to_numpy(float)
        own = np.log(rows["ratio_hi"] / rows["ratio_lo"]).to_numpy() / (2 * critical(own_df))
        independent = np.bincount(code, own**2, len(cells)) / cells**2
        alone = cells == 1  # a group of one cell is that cell, degrees of freedom and all
        df = np.where(alone | ~(df > 0), np.bincount(code, own_df, len(cells)) / cells, df)
    # NaN where any cell is: of single runs nothing is known, whatever else the group holds, and fmax would hide it.
    known = np.where(np.isnan(independent), np.nan, np.where(alone, independent, np.fmax(total, independent)))
    return np.sqrt(known), df


def _moves(rows: pd.DataFrame, code: np.ndarray, cells: np.ndarray) -> Iterator[tuple[int, str, int, float]]:
    """What each run of a cell moves its group's mean by, relative to the cell's mean: group, side, block, log."""
    for row, group in zip(rows.to_dict("records"), code, strict=True):
        runs, runs_baseline = (Runs.read(row[side]) for side in ("runs", "runs_baseline"))
        system, base = runs.logs, runs_baseline.logs
        if row["paired"]:
            sides = {"pair": (system - base, runs.blocks)}
        else:
            sides = {"system": (system, runs.blocks), "baseline": (-base, runs_baseline.blocks)}
        for side, (logs, blocks) in sides.items():
            for log, block in zip(logs, blocks, strict=True):
                yield group, side, block, (log - logs.mean()) / len(logs) / cells[group]


def _per_pattern(
    comparison: pd.DataFrame, used: np.ndarray, code: np.ndarray, by: list[str], cells: int
) -> pd.DataFrame:
    if "pattern" in by or "pattern" not in comparison:
        return pd.DataFrame(index=range(cells))
    logs = np.log(comparison["ratio"].where(used))
    wide = np.exp(logs.groupby([code, comparison["pattern"]]).mean().unstack())
    return wide.reindex(range(cells)).rename_axis(columns=None, index=None)
