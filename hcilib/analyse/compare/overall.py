"""Many cells of a comparison in one line: a geometric mean with its parts beside it, and "at every iodepth"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from hcilib.analyse.compare.cells import annotate, group_codes
from hcilib.analyse.compare.contrast import holm, interval, tost, two_sided
from hcilib.analyse.compare.language import metric_of, noun, percent, percent_range, verb, where
from hcilib.caveats import NONE, Caveat


def geometric_mean(comparison: pd.DataFrame, by: str | Sequence[str] = ("system",)) -> pd.DataFrame:
    """Geometric mean of a comparison's ratios, every cell with the same weight, its per-pattern means beside it.

    The interval is over blocks: whatever shifted a block shifted all of its cells, so the runs of a block are taken
    together before anything is said of their spread (METHODS section 7). It speaks of these cells only, and is NaN as
    soon as one cell is a single run. Cells without a ratio are left out and counted.

    The verdict is that of a cell, by the mean's interval and Holm over the rows; but it is `no verdict` where some
    cells are higher and some lower: a mean would hide it.

    Returns the by columns, n (cells), ratio, lo, hi, confidence, lowest, highest (ratio), verdict (higher, lower,
    equivalent, inconclusive, no verdict, point, missing), warnings, tost_lo, tost_hi, then one column per pattern
    unless `by` holds it.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> found = hci.compare(results, baseline="starwind-rdma-pve")
    >>> hci.geometric_mean(found)[["system", "n", "ratio"]].round(3)
                 system  n  ratio
    0          ceph-pve  4  0.639
    1      drbd-tcp-pve  4  0.844
    2  starwind-tcp-pve  4  0.751
    """
    by = [by] if isinstance(by, str) else list(by)
    comparison = comparison.reset_index(drop=True)
    code, out = group_codes(comparison, by)
    groups, used = len(out), (comparison["ratio"] > 0).to_numpy()
    confidence, margin = (comparison[c].iloc[0] if len(comparison) else np.nan for c in ("confidence", "margin"))
    cells, size = (np.bincount(rows, minlength=groups) for rows in (code[used], code))
    with np.errstate(invalid="ignore", divide="ignore"):
        center = np.bincount(code[used], np.log(comparison["ratio"][used]), groups) / cells
    se, df = _error_over_blocks(comparison[used], code[used], cells, confidence)
    lo, hi = interval(center, se, df, confidence)
    tost_lo, tost_hi = interval(center, se, df, 2 * confidence - 1)
    above, below = (np.bincount(code[comparison["verdict"] == side], minlength=groups) for side in ("higher", "lower"))
    single, mixed = (cells > 0) & np.isnan(se), (above > 0) & (below > 0)
    spread = comparison["ratio"].where(used).groupby(code)
    out = out.assign(
        n=cells,
        ratio=np.exp(center),
        lo=lo,
        hi=hi,
        confidence=confidence,
        lowest=spread.min(),
        highest=spread.max(),
        verdict=np.select(
            [cells == 0, single, mixed],
            ["missing", "point", "no verdict"],
            _mean_verdict(center, se, df, margin, confidence),
        ),
        warnings=annotate(
            [NONE] * groups,
            (
                size > cells,
                lambda i: Caveat("no-ratio", f"{size[i] - cells[i]} of {size[i]} cells without a ratio left out"),
            ),
            (
                mixed & ~single,
                lambda i: Caveat(
                    "mixed", "no verdict on the mean", f": {above[i]} of {cells[i]} cells higher, {below[i]} lower"
                ),
            ),
            (single, Caveat("single-runs", "cells of a single run: no interval")),
        ),
        tost_lo=tost_lo,
        tost_hi=tost_hi,
    )
    return pd.concat([out, _per_pattern(comparison, used, code, by, groups)], axis=1)


def _error_over_blocks(
    rows: pd.DataFrame, code: np.ndarray, cells: np.ndarray, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Standard error and degrees of freedom of each group's mean log ratio.

    Of every block its part in the mean's error: the deviations of its runs from their cells' means, together. With
    complete blocks this is t over the blocks' means; a run that is missing leaves its cell's other runs their weight.
    The two systems of unpaired cells have blocks of their own, so their variances add (Satterthwaite). Never less than
    independent cells would have: blocks cannot make a mean surer than its cells are.
    """
    if rows.empty:
        return np.full(len(cells), np.nan), np.full(len(cells), np.nan)
    parts = [_parts(row, group, cells[group]) for row, group in zip(rows.to_dict("records"), code, strict=True)]
    moved = pd.DataFrame([part for found in parts for part in found], columns=["group", "side", "block", "moved"])
    sides = moved.groupby(["group", "side", "block"])["moved"].sum().groupby(level=["group", "side"])
    blocks = sides.size()
    variance = sides.agg(lambda x: (x**2).sum()) * blocks / (blocks - 1).where(blocks > 1)
    # Of single runs nothing is known, whatever else the group holds.
    index = range(len(cells))
    with np.errstate(invalid="ignore", divide="ignore"):
        total = variance.groupby(level="group").sum(min_count=1).reindex(index).to_numpy()
        freedom = (variance**2 / (blocks - 1)).groupby(level="group").sum(min_count=1).reindex(index).to_numpy()
        df = total**2 / freedom
        own_df = rows["df"].to_numpy(float)
        own = np.log(rows["hi"] / rows["lo"]).to_numpy() / (2 * stdtrit(own_df, 0.5 + confidence / 2))
        independent = np.bincount(code, own**2, len(cells)) / cells**2
        alone = cells == 1  # a group of one cell is that cell, degrees of freedom and all
        df = np.where(alone | ~(df > 0), np.bincount(code, own_df, len(cells)) / cells, df)
    return np.where(alone, np.sqrt(independent), np.sqrt(np.fmax(total, independent))) + 0 * independent, df


def _parts(row: Mapping, group: int, cells: int) -> list[tuple[int, str, int, float]]:
    """What each run of a cell moves its group's mean by, relative to the cell's mean: group, side, block, log."""
    system, base = row["runs"].logs, row["runs_baseline"].logs
    if row["method"].startswith("paired"):
        sides = {"pair": (system - base, row["runs"].blocks)}
    else:
        sides = {"system": (system, row["runs"].blocks), "baseline": (-base, row["runs_baseline"].blocks)}
    return [
        (group, side, block, (log - logs.mean()) / len(logs) / cells)
        for side, (logs, blocks) in sides.items()
        for log, block in zip(logs, blocks, strict=True)
    ]


def _mean_verdict(center: ArrayLike, se: ArrayLike, df: ArrayLike, margin: float, confidence: float) -> np.ndarray:
    """The verdict of each mean of log ratios, by the rules of a cell; one question a row, so Holm over the rows."""
    alpha, center = 1 - confidence, np.asarray(center)
    with np.errstate(invalid="ignore", divide="ignore"):
        differs = holm(two_sided(center, se, df)) <= alpha
        same = tost(center, se, df, margin) <= alpha
    return np.select([differs & (center > 0), differs, same], ["higher", "lower", "equivalent"], "inconclusive")


def cell_columns(comparison: pd.DataFrame) -> list[str]:
    """The factors that make a cell of a comparison, as `compare` was asked by.

    Raises ValueError for a table that no longer says so: pandas forgets it in a merge.
    """
    if "by" not in comparison.attrs:
        raise ValueError("the comparison has no attrs['by']: set it to the columns that compare was asked by")
    return list(comparison.attrs["by"])


def everywhere(
    comparison: pd.DataFrame, over: str = "iodepth", labels: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Does a system beat the baseline at every `over`? An intersection-union test of a comparison's cells.

    Such a claim falls with its weakest cell: it holds at the level of a single test if every cell is significant on
    the same side, so p is the largest of the uncorrected ones. A row is one such claim; p_adjusted is Holm's over the
    rows, and the verdict is by it: to ask many patterns is to ask many questions.

    Returns system, the other by columns, n (cells), lowest, highest (ratio), p, p_adjusted, confidence, verdict
    (higher, lower, inconclusive; point where a cell has a single run, missing where one has no ratio), sentence,
    warnings.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> found = hci.compare(results, baseline="starwind-rdma-pve")
    >>> hci.everywhere(found)[["system", "lowest", "highest", "verdict"]].round(3)
                 system  lowest  highest verdict
    0          ceph-pve   0.466    0.915   point
    1      drbd-tcp-pve   0.679    1.041   point
    2  starwind-tcp-pve   0.685    0.880   point
    """
    by = cell_columns(comparison)
    if over not in by:
        raise ValueError(f"the comparison has no factor {over!r}; it has {', '.join(by)}: compare by it first")
    rest = [c for c in by if c != over]
    code, out = group_codes(comparison, ["system", *rest])
    groups = comparison.groupby(code)
    out = out.assign(n=groups.size(), lowest=groups["ratio"].min(), highest=groups["ratio"].max())
    same_side = (out["lowest"] > 1) | (out["highest"] < 1)
    out["p"] = groups["p"].max().where(same_side, 1.0)
    no_p = groups["p"].apply(lambda p: p.isna().any())
    out.loc[no_p, "p"] = np.nan
    out["p_adjusted"] = holm(out["p"])
    out["confidence"] = groups["confidence"].first()
    holds = same_side & (out["p_adjusted"] <= 1 - out["confidence"])
    missing = comparison["ratio"].isna().groupby(code).any()
    point = (comparison["verdict"] == "point").groupby(code).any()
    out["verdict"] = np.select(
        [missing, point, no_p | ~holds, out["lowest"] > 1],
        ["missing", "point", "inconclusive", "higher"],
        "lower",
    )
    unstable = groups["unstable"].sum().to_numpy()
    first = groups[["baseline", "metric"]].first()
    facts = pd.concat([out, first, _changes_places(comparison, code)], axis=1).to_dict("records")
    out["sentence"] = [_everywhere_sentence(row, rest, over, labels or {}) for row in facts]
    out["warnings"] = annotate(
        [NONE] * len(out),
        (
            unstable > 0,
            lambda i: Caveat("unstable", f"{unstable[i]} unstable {'cell' if unstable[i] == 1 else 'cells'}"),
        ),
    )
    return out


def _changes_places(comparison: pd.DataFrame, code: np.ndarray) -> pd.Series:
    """Is a cell of the group really below 1 and another really above: by its verdict, a point by the margin."""
    ratio, within = comparison["ratio"], 1 + comparison["margin"]
    point = comparison["verdict"] == "point"
    below = (comparison["verdict"] == "lower") | (point & (ratio < 1 / within))
    above = (comparison["verdict"] == "higher") | (point & (ratio > within))
    return (below.groupby(code).any() & above.groupby(code).any()).rename("changes")


def _per_pattern(
    comparison: pd.DataFrame, used: np.ndarray, code: np.ndarray, by: list[str], cells: int
) -> pd.DataFrame:
    if "pattern" in by or "pattern" not in comparison:
        return pd.DataFrame(index=range(cells))
    logs = np.log(comparison["ratio"].where(used))
    wide = np.exp(
        logs.groupby([pd.Series(code, comparison.index, name="cell"), comparison["pattern"]]).mean().unstack()
    )
    return wide.reindex(range(cells)).rename_axis(columns=None, index=None)


def _everywhere_sentence(row: Mapping, rest: list[str], over: str, labels: Mapping[str, str]) -> str:
    what, place = metric_of(row["metric"]), where({k: row[k] for k in rest})
    system, base = (labels.get(row[k], row[k]) for k in ("system", "baseline"))
    if row["verdict"] == "missing":
        return f"{system} and {base} have no ratio at every {over} {place}: no claim over all of them."
    if not (row["lowest"] > 1 or row["highest"] < 1):
        span = f"{row['lowest']:.3f} to {row['highest']:.3f}"
        alone = "; single published means or runs: no interval" if row["verdict"] == "point" else ""
        if row["changes"]:
            return f"{system} and {base} change places in {noun(what)} over {over} {place} (ratio {span}{alone})."
        return (
            f"The ratio of {noun(what)} between {system} and {base} is not on one side of 1 at every {over} {place} "
            f"({span}{alone}): nothing is claimed."
        )
    if row["verdict"] == "inconclusive":
        return (
            f"No difference in {noun(what)} between {system} and {base} is established at every {over} {place} "
            f"({_adjusted(row)})."
        )
    side = "higher" if row["lowest"] > 1 else "lower"
    size = percent(row["lowest"]) if row["n"] == 1 else f"{percent_range(row['lowest'], row['highest'])} {side}"
    basis = f"{row['n']} cells, {_adjusted(row)}"
    if row["verdict"] == "point":
        basis = "single published means or runs: no interval"
    return f"{system} {verb(what)} {size} {noun(what)} than {base} at every {over} {place} ({basis})."


def _adjusted(row: Mapping) -> str:
    """The p that decides; where other claims were asked beside this one, that it was adjusted for them."""
    return f"p = {row['p_adjusted']:.2g}" + (" after correction" if row["p_adjusted"] > row["p"] else "")
