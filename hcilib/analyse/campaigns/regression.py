"""Has it changed since? A new campaign against earlier ones (METHODS section 1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import fdtrc, gammaincinv, ndtr

from hcilib.analyse.campaigns.design import spread_interval
from hcilib.analyse.compare.cells import (
    annotate,
    as_list,
    describe,
    describe_along,
    group_codes,
    groups_of,
    listed,
    moments,
    refuse_mixing,
    valid_rows,
)
from hcilib.analyse.compare.contrast import CONFIDENCE, FLOOR, check_options, critical, judge
from hcilib.model.caveats import NONE, Caveats, caveats
from hcilib.model.metrics import metric_of
from hcilib.say.caveats import caveat


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
    check_options(margin, adjust=adjust)
    earlier = None if baselines is None else as_list(baselines)
    _require_campaigns(results, [new, *(earlier or [])])
    if "run_id" in results and earlier is not None:
        results = results[results["run_id"].isin([new, *earlier])]
    cells, code, places = describe_along(results, metric, by, "run_id")
    predicted = _prediction(cells, code, (cells["run_id"] == new).to_numpy(), len(places))
    judged = judge(predicted, margin=margin, adjust=adjust).rename(columns={"n_baseline": "k"})
    out = pd.concat([places, judged, predicted[["value", "value_baseline", "floored"]]], axis=1)
    out["metric"], out["run_id"] = metric, new
    out["verdict"] = _verdict(out, metric, margin, 1 - CONFIDENCE)
    joined = [NONE] * len(out)
    for i, name, notes in zip(code, cells["run_id"], cells["notes"], strict=True):
        joined[i] += caveats(notes).of(name)
    out["warnings"] = annotate(
        joined,
        (out["k"] == 1, caveat("one-campaign", margin_pct=100 * margin)),
        (out["floored"], caveat("zero-variance/campaigns")),
        (out["n"] == 0, caveat("no-run/new", campaign=new)),
        (out["k"] == 0, caveat("no-run/earlier")),
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


def _prediction(cells: pd.DataFrame, code: np.ndarray, is_new: np.ndarray, groups: int) -> pd.DataFrame:
    """What `judge` takes of each cell, from one log-mean per campaign: the distance of the new one, the error with
    which the earlier ones predict it, and how many they are (n_baseline); then both centres, and whether the spread is
    floored."""
    center = cells["center"].to_numpy()
    now, before = (moments(center, code, (center > 0) & rows, groups) for rows in (is_new, ~is_new))
    k, floored = before["n"], before["log_var"] < FLOOR**2 * 1e-6
    with np.errstate(divide="ignore"):
        scale = np.sqrt(np.where(floored, FLOOR**2, before["log_var"])) * np.sqrt(1 + 1 / k)
    found = {"log_ratio": now["log_mean"] - before["log_mean"], "se": scale, "df": np.where(k > 1, k - 1.0, np.nan)}
    found |= {"n": np.bincount(code[is_new], cells["n"].to_numpy()[is_new], groups), "n_baseline": k, "unstable": False}
    found |= {"value": now["center"], "value_baseline": before["center"], "floored": floored}
    return pd.DataFrame(found)


def _verdict(out: pd.DataFrame, metric: str, margin: float, alpha: float) -> np.ndarray:
    better = metric_of(metric).better
    ways = {"higher": ("improvement", "regression"), "lower": ("regression", "improvement")}
    up, down = ways.get(better, ("changed", "changed"))
    beyond = np.abs(np.log(out["ratio"])) > np.log1p(margin)
    changed = np.where(out["k"] == 1, beyond, out["p_adjusted"] <= alpha)
    conditions = [out["ratio"].isna(), changed & (out["ratio"] > 1), changed & (out["ratio"] < 1)]
    return np.select(conditions, ["missing", up, down], "no change seen")


# ---- What a campaign adds of its own


CELL = ("system", "pattern", "iodepth")


def campaign_ratios(
    results: pd.DataFrame, found: pd.DataFrame, metric: str = "iops", by: str | Sequence[str] = CELL
) -> pd.DataFrame:
    """Every campaign of `results` relative to the earlier ones of a `regression`, cell by cell.

    Parameters
    ----------
    found : as `regression` returns it for the same metric and by: its value_baseline is the base

    Returns the by columns, run_id, n, the metric (as iops), ratio (to value_baseline), warnings.
    """
    by = as_list(by)
    cells = describe(results, metric, [*by, "run_id"])
    table = cells[[*by, "run_id", "n", "center"]].rename(columns={"center": metric})
    table = table.assign(warnings=cells["notes"])
    table = table.merge(found[[*by, "value_baseline"]], on=by, how="inner", validate="many_to_one")
    table.insert(table.columns.get_loc(metric) + 1, "ratio", table[metric] / table["value_baseline"])
    return table.drop(columns="value_baseline")


def campaign_noise(results: pd.DataFrame, metric: str = "iops", by: str | Sequence[str] = CELL) -> pd.DataFrame:
    """How far whole campaigns of a system lie apart, and how far their runs alone would put them.

    Returns
    -------
    system, campaigns, cells, n (runs), cv_pct (of the campaigns' log means, pooled over cells) with
    its interval, from_runs_pct (what the spread of runs alone explains, sqrt(mean s^2 / n)),
    confidence, warnings. The interval counts k - 1 degrees of freedom however many the cells: a
    slow day slows them together.
    """
    by = as_list(by)
    cells = describe(results, metric, [*by, "run_id"])
    cells = cells[(cells["n"] > 0) & (cells["center"] > 0)]
    cells = cells.assign(log=np.log(cells["center"]), own=cells["log_var"] / cells["n"])
    per_cell = cells.groupby(by, dropna=False, observed=True)
    table = per_cell.agg(k=("log", "size"), variance=("log", "var"), own=("own", "mean"), n=("n", "sum")).reset_index()
    table = table[table["k"] > 1]
    rows = [_campaigns_of(system, part) for system, part in table.groupby("system", sort=False)]
    spread = ["cv_pct", "cv_pct_lo", "cv_pct_hi", "from_runs_pct"]
    columns = ["system", "campaigns", "cells", "n", *spread, "confidence", "warnings"]
    return pd.DataFrame(rows, columns=columns)


def visible_change(cv_pct: float, campaigns: Sequence[int] = (2, 3, 4, 5, 8, 12)) -> pd.DataFrame:
    """How far the range of a `regression` against k earlier campaigns reaches, of one cell.

    It is no limit of what can be seen: `chance_to_see` says how often a loss of a given size is shown.
    h = t_{k-1} s sqrt(1 + 1/k) on logs (METHODS section 1), before any correction for many cells. Returns k, df,
    lower_pct = 100 (1 - exp(-h)), higher_pct = 100 (exp(h) - 1), confidence. ValueError below two campaigns.
    """
    k = np.asarray(campaigns, int)
    if (k < 2).any():
        raise ValueError(f"visible_change: {k.min()} earlier campaign; a spread between campaigns needs at least 2")
    half = critical(k - 1) * cv_pct / 100 * np.sqrt(1 + 1 / k)
    seen = {"lower_pct": -100 * np.expm1(-half), "higher_pct": 100 * np.expm1(half)}
    return pd.DataFrame({"k": k, "df": k - 1, **seen, "confidence": CONFIDENCE})


def chance_to_see(
    cv_pct: float, losses_pct: Sequence[float] | None = None, campaigns: Sequence[int] = (2, 3, 5, 12)
) -> pd.DataFrame:
    """Return how often a `regression` against k earlier campaigns shows a true loss of one cell: the test's power.

    P(|T| > t_{k-1}) of a noncentral t with k - 1 degrees of freedom and -log(1 - loss) / (s sqrt(1 + 1/k)), before any
    correction for many cells (METHODS section 1).

    Parameters
    ----------
    cv_pct : true spread between campaigns (`campaign_noise` estimates it); of 0 the floor of `regression`, 0.1 %
    losses_pct : true losses, above 0 and below 100; None for 1, 2, 5, 10 and 20, and the first whole per cent past
        the range of `visible_change` for each number of campaigns

    Returns
    -------
    loss_pct, k, chance_pct, confidence. Raises ValueError below two campaigns.
    """
    if min(campaigns) < 2:
        raise ValueError(f"chance_to_see: {min(campaigns)} earlier campaign; a spread between them needs at least 2")
    if losses_pct is None:
        past_the_range = np.ceil(visible_change(cv_pct, campaigns)["lower_pct"]).clip(1, 90).astype(int)
        losses_pct = sorted({1, 2, 5, 10, 20, *past_the_range.tolist()})
    spread, rows = cv_pct / 100 or FLOOR, []
    for loss in losses_pct:
        for k in campaigns:
            shift = -np.log1p(-loss / 100) / (spread * np.sqrt(1 + 1 / k))
            bound = float(critical(k - 1)) * np.sqrt(2 * gammaincinv((k - 1) / 2, _EVENLY) / (k - 1))
            chance = (ndtr(shift - bound) + ndtr(-shift - bound)).mean()
            rows.append({"loss_pct": loss, "k": k, "chance_pct": 100 * float(chance)})
    return pd.DataFrame(rows).assign(confidence=CONFIDENCE)


_EVENLY = (np.arange(20_000) + 0.5) / 20_000
"""Quantiles of the spread that k campaigns show: a mean over them, as scipy's noncentral t is NaN where k is small."""


def block_drift(
    results: pd.DataFrame,
    metric: str = "iops",
    by: str | Sequence[str] = ("pattern", "iodepth"),
) -> pd.DataFrame:
    """Did the whole testbed move from round to round: the rounds' effect on all cells against what is left.

    Two-way analysis of variance on logs, cells by rounds, one run each; cells that lack a round are left out.

    Returns
    -------
    system, run_id, blocks (rounds), cells, n, block_cv_pct (spread of the rounds' common level; 0 where it is no
    larger than chance makes it), rest_cv_pct (of a run beyond cell and round), f, p, warnings. NaN under 2 rounds or 2
    cells.

    Raises ValueError for runs of one cell that vary in a factor not in `by`.
    """
    by = as_list(by)
    runs = results[valid_rows(results)]
    keys = ["system", "run_id"]
    refuse_mixing(runs, [*keys, *by], runs[metric] > 0, besides=[metric])
    rows = [key | _blocks_of(part, metric, by) for key, part in groups_of(runs, keys)]
    columns = ["blocks", "cells", "n", "block_cv_pct", "rest_cv_pct", "f", "p", "warnings"]
    return pd.DataFrame(rows, columns=[*keys, *columns])


def _campaigns_of(system: str, cells: pd.DataFrame) -> dict:
    weight = cells["k"] - 1
    variance, own = np.average(cells["variance"], weights=weight), cells["own"].mean()
    row = {"system": system, "campaigns": int(cells["k"].max()), "cells": len(cells), "n": int(cells["n"].sum())}
    row |= {"cv_pct": 100 * np.sqrt(variance), **spread_interval(variance, weight.min())}
    row |= {"from_runs_pct": 100 * np.sqrt(own), "confidence": CONFIDENCE}
    return row | {"warnings": caveats(caveat("from-runs") if variance <= own else None)}


def _blocks_of(runs: pd.DataFrame, metric: str, by: list[str]) -> dict:
    code, _ = group_codes(runs, by)
    grid = np.log(runs[metric].where(runs[metric] > 0)).groupby([code, runs["block"].to_numpy()]).mean().unstack()
    full = grid.dropna()
    (cells, blocks), left_out = full.shape, len(grid) - len(full)
    said = [caveat("cut/blocks", tests=left_out)] * bool(left_out)
    few = [caveat("few-points/blocks")] * (cells < 2 or blocks < 2)
    found = {"blocks": blocks, "cells": cells, "n": full.size, "warnings": Caveats([*said, *few])}
    if few:
        return found
    y = full.to_numpy() - full.to_numpy().mean(axis=1, keepdims=True)
    level = y.mean(axis=0)
    between = cells * (level**2).sum() / (blocks - 1)
    rest = ((y - level) ** 2).sum() / ((blocks - 1) * (cells - 1))
    f = between / rest if rest > 0 else np.nan
    p = fdtrc(blocks - 1, (blocks - 1) * (cells - 1), f)
    block_cv_pct = 100 * np.sqrt(max(0.0, (between - rest) / cells))
    return found | {"block_cv_pct": block_cv_pct, "rest_cv_pct": 100 * np.sqrt(rest), "f": f, "p": p}
