"""Has it changed since? A new campaign against earlier ones (METHODS section 1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import chdtri, gammaincinv, ndtr

from hcilib.analyse.compare import cells_of
from hcilib.analyse.rows import as_list, listed, numbered, refuse_mixing
from hcilib.analyse.stats import CONFIDENCE, FLOOR, critical, judge
from hcilib.model.caveats import add_codes, join_codes, warnings_of
from hcilib.model.metrics import factors, metric_of

SERIES = ["system", "pattern", "testbed", "setup"]
"""Rows of a history that differ in one of these are never compared."""


def regression(
    results: pd.DataFrame,
    new: str,
    baselines: str | Sequence[str] | None = None,
    metric: str = "iops",
    by: str | Sequence[str] = ("system", "pattern", "iodepth"),
    margin: float = 0.05,
    adjust: str | None = "bh",
) -> pd.DataFrame:
    """Compare a new campaign with the range that k earlier ones predict.

    A cell has changed where |new - mean| > t_{k-1} s sqrt(1 + 1/k) on logs (METHODS section 1). The campaign is the
    unit, as its runs share a day, a firmware and a fill level. With k = 1 the declared `margin` decides, untested.

    Parameters
    ----------
    results : runs of several campaigns, or their means as `hcilib.history` returns them
    new : name of the campaign in question
    baselines : names of the earlier ones, None for all others
    by : columns that make a cell
    margin : relative change that counts where k is 1
    adjust : correction of p over the cells, as in `compare`

    Returns
    -------
    DataFrame
        the by columns, metric, run_id (the new campaign), ratio (new / geometric mean of the earlier ones), ratio_lo,
        ratio_hi, df, p, p_adjusted, k, n (runs of the new campaign), value, value_baseline (centres), verdict
        (``regression``, ``improvement``, ``changed`` where no way is better, ``no change seen``, ``missing``),
        confidence, warnings

    Raises
    ------
    ValueError : a campaign that is not there, runs that differ in a factor outside `by`, as in `compare`
    """
    by = as_list(by)
    is_history = "campaign" in results
    if is_history:
        results = results[results["metric"] == metric]
        results = results.rename(columns={"campaign": "run_id", "value": metric})
    earlier = None if baselines is None else as_list(baselines)
    _require_campaigns(results, [new, *(earlier or [])])
    if is_history:
        results = results.merge(results.loc[results["run_id"] == new, SERIES].drop_duplicates())
    if "run_id" in results and earlier is not None:
        results = results[results["run_id"].isin([new, *earlier])]
    cells, _ = cells_of(results, metric, [*by, "run_id"])
    code = pd.Series(numbered(cells, by))
    measured = cells[cells["n"] > 0]
    refuse_mixing(measured, by, besides=("run_id", metric), among=factors(measured))
    places = cells[by].groupby(code).first()
    if is_history:  # a row is a mean: what is known of its runs stands beside it
        means = cells[[*by, "run_id"]].merge(results, how="left")
        cells = cells.assign(n=means["n"].where(cells["n"] > 0, 0), warnings=warnings_of(means))
    predicted = _prediction(cells, code, (cells["run_id"] == new))
    out = pd.concat([places, predicted.rename(columns={"n_baseline": "k"}), judge(predicted, margin, adjust)], axis=1)
    out["confidence"] = CONFIDENCE
    out["metric"], out["run_id"] = metric, new
    out["verdict"] = _verdict(out, metric, margin, 1 - CONFIDENCE)
    out["warnings"] = add_codes(
        cells["warnings"].groupby(code).agg(lambda notes: join_codes(*notes)),
        (out["k"] == 1, "one-campaign"),
        (out["floored"], "zero-variance"),
        ((out["n"] == 0) | (out["k"] == 0), "no-run"),
    )
    tested = ["ratio", "ratio_lo", "ratio_hi", "df", "p", "p_adjusted", "k", "n", "value", "value_baseline"]
    return out[[*by, "metric", "run_id", *tested, "verdict", "confidence", "warnings"]]


def _require_campaigns(results: pd.DataFrame, asked: Sequence[str]) -> None:
    """A campaign that nobody measured would be compared as one without a valid run."""
    there = list(pd.unique(results["run_id"].dropna())) if "run_id" in results else list(asked)
    if absent := [name for name in asked if name not in there]:
        raise ValueError(f"no campaign of these results is called {absent[0]!r}; they are called {listed(there)}")
    if len(there) < 2:
        raise ValueError(
            f"these results are of one campaign, {listed(there)}: nothing earlier to compare with; add a source"
        )


def _prediction(cells: pd.DataFrame, code: pd.Series, is_new: pd.Series) -> pd.DataFrame:
    """Return what `judge` takes of each cell, from one log-mean per campaign.

    The distance of the new one, the error with which the earlier ones predict it, and how many they are
    (n_baseline); then both centres, and whether the spread is floored.
    """
    logs = np.log(cells["center"].where(cells["center"] > 0))
    now = logs[is_new].groupby(code).mean().reindex(code.drop_duplicates())
    before = logs[~is_new].groupby(code).agg(["count", "mean", "var"]).reindex(now.index)
    k, is_floored = before["count"].fillna(0).astype(int), before["var"] < FLOOR**2 * 1e-6
    spread = np.sqrt(before["var"].mask(is_floored, FLOOR**2)) * np.sqrt(1 + 1 / k)
    n = cells["n"][is_new].groupby(code).sum().reindex(now.index).fillna(0).astype(int)
    return pd.DataFrame({
        "log_ratio": now - before["mean"], "se": spread, "df": (k - 1.0).where(k > 1),
        "n": n, "n_baseline": k, "test": now.index,
        "value": np.exp(now), "value_baseline": np.exp(before["mean"]), "floored": is_floored,
    })  # fmt: skip


def _verdict(out: pd.DataFrame, metric: str, margin: float, alpha: float) -> np.ndarray:
    better = metric_of(metric).better
    ways = {"higher": ("improvement", "regression"), "lower": ("regression", "improvement")}
    up, down = ways.get(better, ("changed", "changed"))
    beyond = np.abs(np.log(out["ratio"])) > np.log1p(margin)
    changed = np.where(out["k"] == 1, beyond, out["p_adjusted"] <= alpha)
    conditions = [out["ratio"].isna(), changed & (out["ratio"] > 1), changed & (out["ratio"] < 1)]
    return np.select(conditions, ["missing", up, down], "no change seen")


# ---- What can be seen


def chance_to_see(
    cv_pct: float,
    cv_n: int,
    losses_pct: Sequence[float] = (1, 2, 5, 10, 20),
    campaigns: Sequence[int] = (2, 3, 5, 12),
) -> pd.DataFrame:
    """Return how often a `regression` against k earlier campaigns shows a loss of one cell, at least.

    P(|T| > t_{k-1}) of a noncentral t with k - 1 degrees of freedom and
    -log(1 - loss) / (s sqrt(1 + 1/k)), before any correction for many cells. s is the upper 95 % limit
    of the true spread, cv sqrt(df / chi2_{0.05, df}) with df = cv_n - 1. So the true chance is smaller
    in at most 5 % of all cases.

    Parameters
    ----------
    cv_pct : spread between campaigns as measured; below 0.1 the floor of `regression`, 0.1 %
    cv_n : campaigns from which it was computed; of fewer than two no chance is known
    losses_pct : true losses, above 0 and below 100
    campaigns : numbers of earlier campaigns

    Returns
    -------
    DataFrame : loss_pct, k, chance_pct (at least), cv_n

    Raises
    ------
    ValueError : fewer than two campaigns to compare with

    Examples
    --------
    >>> hci.chance_to_see(2.0, cv_n=2, losses_pct=[10], campaigns=[5])["chance_pct"].round().item()
    6.0
    >>> hci.chance_to_see(2.0, cv_n=18, losses_pct=[10], campaigns=[5])["chance_pct"].round().item()
    73.0
    """
    if min(campaigns) < 2:
        raise ValueError(f"chance_to_see: {min(campaigns)} earlier campaign; a spread between them needs at least 2")
    df = max(cv_n - 1, 0) or np.nan
    spread = max(cv_pct / 100 * np.sqrt(df / chdtri(df, CONFIDENCE)), FLOOR)
    rows = []
    for loss in losses_pct:
        for k in campaigns:
            shift = -np.log1p(-loss / 100) / (spread * np.sqrt(1 + 1 / k))
            bound = float(critical(k - 1)) * np.sqrt(2 * gammaincinv((k - 1) / 2, _EVENLY) / (k - 1))
            chance = (ndtr(shift - bound) + ndtr(-shift - bound)).mean()
            rows.append({"loss_pct": loss, "k": k, "chance_pct": 100 * float(chance), "cv_n": cv_n})
    return pd.DataFrame(rows)


_EVENLY = (np.arange(20_000) + 0.5) / 20_000
"""Quantiles of the spread that k campaigns show: a mean over them, as scipy's noncentral t is NaN where k is small."""
