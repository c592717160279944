"""Many cells of a comparison in one line: a geometric mean with its parts beside it, and "at every iodepth"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from hcilib.analyse.compare.cells import annotate, group_codes
from hcilib.analyse.compare.language import metric_of, noun, percent, percent_range, verb, where
from hcilib.analyse.compare.multiplicity import holm
from hcilib.analyse.compare.welch import tost, two_sided
from hcilib.caveats import NONE, Caveat


def geometric_mean(comparison: pd.DataFrame, by: str | Sequence[str] = ("system",)) -> pd.DataFrame:
    """Geometric mean of a comparison's ratios, every cell with the same weight, its per-pattern means beside it.

    The interval treats the cells as independent and speaks of these cells only; it is NaN as soon as one cell is a
    single run. Cells without a ratio are left out and counted.

    The verdict is that of a cell, by the mean's interval and Holm over the rows; but it is `no verdict` where a mean
    would hide what its cells say: one is unstable, some are higher and some lower, or none has a verdict of its own.

    Returns the by columns, n (cells), ratio, lo, hi, confidence, lowest, highest (ratio), verdict (higher, lower,
    equivalent, inconclusive, no verdict, point, missing), warnings, then one column per pattern unless `by` holds it.

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
    code, out = group_codes(comparison, by)
    ratio, used = comparison["ratio"].to_numpy(), (comparison["ratio"] > 0).to_numpy()
    cells, g = len(out), code[used]
    confidence = comparison["confidence"].iloc[0] if len(comparison) else np.nan
    out = out.assign(n=np.bincount(g, minlength=cells))
    se, df = _error(comparison, used, confidence)
    with np.errstate(invalid="ignore", divide="ignore"):
        center = np.bincount(g, np.log(ratio[used]), cells) / out["n"]
        variance = np.bincount(g, se**2, cells)
        mean_se, mean_df = np.sqrt(variance) / out["n"], variance**2 / np.bincount(g, se**4 / df, cells)
        half = stdtrit(mean_df, 0.5 + confidence / 2) * mean_se
    spread = pd.Series(ratio).where(used).groupby(code)
    absent, size = np.bincount(code[~used], minlength=cells), np.bincount(code, minlength=cells)
    single = np.bincount(g, np.isnan(se), cells) > 0
    hidden = _hidden(comparison, code, cells)
    found = _mean_verdict(
        center, mean_se, mean_df, comparison["margin"].iloc[0] if len(comparison) else np.nan, confidence
    )
    out = out.assign(
        ratio=np.exp(center),
        lo=np.exp(center - half),
        hi=np.exp(center + half),
        confidence=confidence,
        lowest=spread.min(),
        highest=spread.max(),
        verdict=np.select([out["n"] == 0, single, hidden != ""], ["missing", "point", "no verdict"], found),
        warnings=annotate(
            [NONE] * cells,
            (absent > 0, lambda i: Caveat("no-ratio", f"{absent[i]} of {size[i]} cells without a ratio left out")),
            (
                (hidden != "") & ~single & (out["n"] > 0),
                lambda i: Caveat("hidden", "no verdict on the mean", detail=f": {hidden[i]}"),
            ),
            (single, Caveat("single-runs", "cells of a single run: no interval")),
        ),
    )
    return pd.concat([out, _per_pattern(comparison, used, code, by, cells)], axis=1)


def _hidden(comparison: pd.DataFrame, code: np.ndarray, groups: int) -> np.ndarray:
    """What a mean over each group's cells would hide, "" where it hides nothing: then it may have a verdict."""

    def count(mask: pd.Series) -> np.ndarray:
        return np.bincount(code, (mask & comparison["ratio"].notna()).to_numpy(float), groups).astype(int)

    cells, unstable = count(comparison["ratio"] > 0), count(comparison["unstable"].astype(bool))
    above, below, same = (count(comparison["verdict"] == verdict) for verdict in ("higher", "lower", "equivalent"))
    mixed, open_ = (above > 0) & (below > 0) & (unstable == 0), (above + below + same == 0) & (unstable == 0)
    why = [""] * groups
    for i in range(groups):
        if unstable[i]:
            why[i] = f"{unstable[i]} of {cells[i]} cells {'is' if unstable[i] == 1 else 'are'} unstable"
        elif mixed[i]:
            why[i] = f"{above[i]} of {cells[i]} cells higher, {below[i]} lower"
        elif open_[i]:
            why[i] = "no cell has a verdict of its own"
    return np.array(why, dtype=object)


def _mean_verdict(center: ArrayLike, se: ArrayLike, df: ArrayLike, margin: float, confidence: float) -> np.ndarray:
    """The verdict of each mean of log ratios, by the rules of a cell; one question a row, so Holm over the rows."""
    alpha, center = 1 - confidence, np.asarray(center)
    with np.errstate(invalid="ignore", divide="ignore"):
        differs = holm(two_sided(center, se, df)) <= alpha
        same = tost(center, se, df, margin) <= alpha
    return np.select([differs & (center > 0), differs, same], ["higher", "lower", "equivalent"], "inconclusive")


def everywhere(
    comparison: pd.DataFrame, over: str = "iodepth", labels: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Does a system beat the baseline at every `over`? An intersection-union test of a comparison's cells.

    Such a claim falls with its weakest cell: it holds at the level of a single test if every cell is significant on
    the same side, so p is the largest of the uncorrected ones. A row is one such claim; p_adjusted is Holm's over the
    rows, and the verdict is by it: to ask many patterns is to ask many questions.

    Returns system, the other by columns, n (cells), lowest, highest (ratio), p, p_adjusted, confidence, verdict (higher,
    lower, inconclusive; point where a cell has a single run, missing where one has no ratio), sentence, warnings.

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
    columns = list(comparison.columns)
    by = columns[1 : columns.index("ratio")]
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
    facts = pd.concat([out, first, groups["unstable"].any(), _changes_places(comparison, code)], axis=1).to_dict(
        "records"
    )
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


def _error(comparison: pd.DataFrame, used: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Standard error of the log ratio, read back from its interval, and its degrees of freedom."""
    rows = comparison[used]
    df = rows["df"].to_numpy()
    return np.log(rows["hi"] / rows["lo"]).to_numpy() / (2 * stdtrit(df, 0.5 + confidence / 2)), df


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
        return f"No difference in {noun(what)} between {system} and {base} is established at every {over} {place} ({_adjusted(row)})."
    side = "higher" if row["lowest"] > 1 else "lower"
    size = percent(row["lowest"]) if row["n"] == 1 else f"{percent_range(row['lowest'], row['highest'])} {side}"
    basis = f"{row['n']} cells, {_adjusted(row)}"
    if row["verdict"] == "point":
        basis = "single published means or runs: no interval"
    size = side if row["unstable"] else size
    return f"{system} {verb(what)} {size} {noun(what)} than {base} at every {over} {place} ({basis})."


def _adjusted(row: Mapping) -> str:
    """The p that decides; where other claims were asked beside this one, that it was adjusted for them."""
    return f"p = {row['p_adjusted']:.2g}" + (" after correction" if row["p_adjusted"] > row["p"] else "")
