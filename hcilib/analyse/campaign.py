"""Has it changed, and what must be measured next? One campaign against earlier ones, and what certainty costs.

Spreads are standard deviations of log rates, shown in percent. A run's spread has two parts: one from
its own seconds, which a longer run shrinks, and one between runs, which only more runs do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import chdtri, gammaincinv, ndtr

from hcilib.analyse.compare import cells_of
from hcilib.analyse.history import keys_of, measured, shown_keys, verdict_of
from hcilib.analyse.rows import as_list, listed, numbered, require_columns, sorted_by, valid_rows
from hcilib.analyse.series import MIN_EFFECTIVE, confidence_sequence, mean_interval, run_columns
from hcilib.analyse.stats import (
    ALPHA,
    CONFIDENCE,
    FLOOR,
    IDENTICAL,
    critical,
    floored,
    half_width,
    judge,
    simulated,
    smallest_difference,
)  # fmt: skip
from hcilib.model.caveats import add_codes, join_codes
from hcilib.model.yaml_models import Amount, Model, Whole, checked

SERIES = ["system", "pattern", "testbed", "setup"]
"""Rows of a history that differ in one of these are never compared."""
LOOK_S = 30
"""An adaptive run is looked at every so many seconds (METHODS section 2)."""
_EVENLY = (np.arange(20_000) + 0.5) / 20_000
"""Quantiles of the spread that k campaigns show: a mean over them, as scipy's noncentral t is NaN where k is small."""


# ---- one campaign against earlier ones


def regression(
    history: pd.DataFrame,
    new: str,
    baselines: str | Sequence[str] | None = None,
    metric: str = "iops",
    margin: float = 0.05,
    adjust: str | None = "bh",
) -> pd.DataFrame:
    """Compare a new campaign with the range that k earlier ones predict.

    A cell has changed where |new - mean| > t_{k-1} s sqrt(1 + 1/k) on logs. The campaign is the unit, as
    its runs share a day, a firmware and a fill level. With k = 1 the declared `margin` decides, untested.

    Parameters
    ----------
    history : of `hcilib.history`
    new : name of the campaign in question
    baselines : names of the earlier ones, None for all others
    metric : one of the history's metrics
    margin : relative change that counts where k is 1
    adjust : correction of p over the cells, as in `compare`

    Returns
    -------
    DataFrame : the keys of the cell, metric, ratio (new / geometric mean of the earlier ones) with its
        95 % interval, p, p_adjusted, k (earlier campaigns), n (runs of the new one), value_baseline, verdict
        (``regression``, ``improvement``, ``changed`` where no way is better, ``no change seen``,
        ``missing``), warnings

    Raises
    ------
    ValueError : a campaign that is not there, a metric without a valid row

    Examples
    --------
    >>> found = hci.regression(hci.history("data/samples/history.csv"), "c30", ["c01", "c02", "c03"])
    >>> found[["pattern", "iodepth", "k", "verdict"]].head(2)
           pattern  iodepth  k         verdict
    0  4k-randread        1  3  no change seen
    1  4k-randread        8  3      regression
    """
    rows = measured(history, metric)
    there = rows["campaign"].unique()
    earlier = there[there != new] if baselines is None else as_list(baselines)
    for name in (name for name in (new, *earlier) if name not in there):
        raise ValueError(f"no campaign of these results is called {name!r}; they are called {listed(there)}")
    if not len(earlier):
        raise ValueError(f"the history has one campaign, {new}: nothing earlier to compare with; add a source")
    now, keys = rows[rows["campaign"] == new], keys_of(rows)
    before = rows[rows["campaign"].isin(earlier)].merge(now[SERIES].drop_duplicates())
    cells = before.groupby(keys, dropna=False)["y"].agg(k="count", mean="mean", log_var="var")
    table = sorted_by(now.merge(cells.reset_index(), "outer", keys), keys)
    n, k = table["n"].where(table["y"].notna(), 0).astype(int), table["k"].fillna(0).astype(int)
    table = table.assign(n=n, k=k, n_baseline=k, log_ratio=table["y"] - table["mean"], test=table.index)
    table["se"] = np.sqrt(floored(table["log_var"]) * (1 + 1 / k))
    table["df"] = (k - 1.0).where(k > 1)
    table = table.join(judge(table, margin, adjust))
    beyond = np.abs(table["log_ratio"]) > np.log1p(margin)
    changed = table["p_adjusted"].le(ALPHA).mask(k == 1, beyond)
    moved = table["ratio"].map(partial(verdict_of, metric))
    table["verdict"] = moved.where(changed, "no change seen").mask(table["ratio"].isna(), "missing")
    table["value_baseline"] = np.exp(table["mean"])
    table["warnings"] = add_codes(
        pd.Series("", table.index),
        (k == 1, "one-campaign"),
        (table["log_var"] < IDENTICAL, "zero-variance"),
        (table["ratio"].isna(), "no-run"),
    )
    shown = ["metric", "ratio", "ratio_lo", "ratio_hi", "p", "p_adjusted", "k", "n", "value_baseline", "verdict"]
    return table.assign(metric=metric)[[*shown_keys(rows), *shown, "warnings"]]


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
    DataFrame : loss_pct, k, chance_pct (at least; missing where k is 1, which is no test)

    Examples
    --------
    >>> hci.chance_to_see(2.0, cv_n=2, losses_pct=[10], campaigns=[5])["chance_pct"].round().item()
    6.0
    >>> hci.chance_to_see(2.0, cv_n=18, losses_pct=[10], campaigns=[5])["chance_pct"].round().item()
    73.0
    """
    df = max(cv_n - 1, 0) or np.nan
    spread = max(cv_pct / 100 * np.sqrt(df / chdtri(df, CONFIDENCE)), FLOOR)
    shift = -np.log1p(-np.array(losses_pct) / 100) / spread
    parts = []
    for k in campaigns:
        bound = float(critical(k - 1)) * np.sqrt(2 * gammaincinv((k - 1) / 2, _EVENLY) / (k - 1))
        far = shift[:, None] / np.sqrt(1 + 1 / k)
        chance = (ndtr(far - bound) + ndtr(-far - bound)).mean(axis=1)
        parts.append(pd.DataFrame({"loss_pct": losses_pct, "k": k, "chance_pct": 100 * chance}))
    return pd.concat(parts, ignore_index=True)


# ---- the noise of a campaign


def noise(
    results: pd.DataFrame,
    series: pd.DataFrame | None = None,
    metric: str = "iops",
    by: str | Sequence[str] = ("system", "run_id", "pattern", "iodepth"),
    second_cv_pct: float = np.nan,
    between_cv_pct: float = np.nan,
    tau_s: float = np.nan,
) -> pd.DataFrame:
    """Return the noise of a campaign, cell by cell.

    Parameters
    ----------
    series : per-second rates of the same runs (`read_series`); without them the part of the seconds is unknown
    by : columns that make a cell, run_id among them, as two campaigns differ by more than their runs do
    second_cv_pct, tau_s, between_cv_pct : declared values, used where there is no series, or one run of a cell

    Returns
    -------
    DataFrame : the by columns, rwmixread, n, runtime_s (median), cv_pct (of one run, on logs) with its
        95 % interval (chi-square), within_cv_pct (its part from the run's own seconds), between_cv_pct
        (the rest: sqrt(max(0, cv^2 - within^2))), second_cv_pct (long-run spread of one second), tau_s
        (its autocorrelation time), runs_basis and seconds_basis (``measured``, ``declared`` or
        ``unknown``), warnings (those of `mean_interval` too); NaN where unknown

    Raises
    ------
    ValueError : as `summarize`

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"])
    >>> hci.noise(results)[["pattern", "iodepth", "n", "cv_pct"]].head(1).round(2)
           pattern  iodepth  n  cv_pct
    0  4k-randread        1  4     0.4
    """
    by = as_list(by)
    cells, _ = cells_of(results, metric, by)
    runs = _with_seconds(results, series, metric).assign(cell=numbered(results, by))
    runs = runs[valid_rows(runs)].groupby("cell")
    codes = runs["series_codes"].agg(lambda codes: join_codes(*codes.dropna()))
    seconds = runs[["within2", "second2", "tau_s"]].mean().assign(runtime_s=runs["runtime_s"].median(), codes=codes)
    table = cells.filter(dict.fromkeys([*by, "rwmixread", "n", "warnings"])).join(seconds)
    n, total2 = table["n"], cells["log_var"]
    is_repeated = n > 1
    second2 = table["second2"].fillna((second_cv_pct / 100) ** 2)
    within2 = table["within2"].fillna(second2 / table["runtime_s"])
    between2 = (total2 - within2).clip(lower=0).where(is_repeated, (between_cv_pct / 100) ** 2)
    df, basis = (n - 1.0).where(is_repeated), ["measured", "declared"]
    parts = {
        "cv_pct": total2, "within_cv_pct": within2, "between_cv_pct": between2, "second_cv_pct": second2,
        "cv_pct_lo": df * total2 / chdtri(df, ALPHA / 2), "cv_pct_hi": df * total2 / chdtri(df, 1 - ALPHA / 2),
    }  # fmt: skip
    table = table.assign(**{name: 100 * np.sqrt(part) for name, part in parts.items()})
    return table.drop(columns=["within2", "second2", "codes"]).assign(
        tau_s=table["tau_s"].fillna(tau_s),
        runs_basis=np.select([is_repeated, between2.notna()], basis, "unknown"),
        seconds_basis=np.select([table["second2"].notna(), second2.notna()], basis, "unknown"),
        warnings=add_codes(table["warnings"], (True, table["codes"].fillna("")), (~is_repeated, "single-run-spread")),
    )


def _with_seconds(results: pd.DataFrame, series: pd.DataFrame | None, metric: str) -> pd.DataFrame:
    """Return the runs with the relative variance of their mean from their own seconds, that of one second, and the
    codes of their series."""
    runs = results.assign(runtime_s=results.get("runtime_s", np.nan))
    if series is None or series.empty:
        return runs.assign(**dict.fromkeys(["within2", "second2", "tau_s"], np.nan), series_codes="")
    inside = mean_interval(series, metric=metric).rename(columns={"warnings": "series_codes"})
    runs = runs.merge(inside, on=run_columns(inside, results), how="left", validate="one_to_one")
    within2, runtime_s = (runs["se"] / runs["mean"]) ** 2, runs["runtime_s"]
    tau_s = runs["tau"] * runtime_s / runs["seconds"]  # a log may be finer than a second
    return runs.assign(within2=within2, second2=within2 * runtime_s, tau_s=tau_s)


# ---- how wide the next comparison will be


class Protocol(Model):
    """How often and how long a cell is run.

    ``first_s`` given: a run may stop early; ``most_runs``: a cell may get more.
    """

    runs: Whole
    read_s: Amount
    write_s: Amount
    order: Literal["blocks", "back-to-back"] = "blocks"
    first_s: float | None = None
    most_runs: int = 0


def precision(
    noise: pd.DataFrame,
    protocols: Mapping[str, Mapping],
    target: float = 0.02,
    runs: Sequence[int] = (),
) -> pd.DataFrame:
    """Return the half-width of a comparison of two systems that each protocol will reach, and its hours.

    Parameters
    ----------
    noise : as `noise` returns it. Its cells (pattern, iodepth) are measured on both systems, its pooled
        spread is planned with. Cells with rwmixread < 100 write
    protocols : name -> runs, read_s, write_s; order (``blocks`` or ``back-to-back``), first_s (a run may
        stop early, from then on), most_runs (a cell may get more)
    target : half-width, relative, at which an adaptive run stops and an adaptive cell has runs enough
    runs : plan with these numbers of runs a cell instead of the protocol's own, one row each

    Returns
    -------
    DataFrame : protocol, order, cells, runs (of a cell), read_s, write_s (a run), hours (running time of
        both systems, without prefill and warm-up), cv_pct (of a run so long), half_width_pct (expected of
        `compare`, 100 (exp(h) - 1)), difference_pct (the smallest true difference that a test shows 9 times
        in 10, as `chance` has it; NaN above 100 %)

    Raises
    ------
    ValueError : a protocol's wrong field; a noise without between_cv_pct, second_cv_pct or tau_s

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"])
    >>> noise = hci.noise(results, second_cv_pct=5.0, tau_s=1.0)
    >>> planned = hci.precision(noise, {"ours": {"runs": 5, "read_s": 30, "write_s": 60}})
    >>> planned[["protocol", "cells", "runs", "hours"]].round(2)
      protocol  cells  runs  hours
    0     ours      6     5   0.83
    """
    plans = {name: checked(Protocol, own, ValueError, f"protocol {name!r}: ") for name, own in protocols.items()}
    require_columns(noise, ["rwmixread"])
    between, second, tau_s = _pooled(noise)
    cells = noise.drop_duplicates([c for c in ("pattern", "iodepth") if c in noise])
    rows = []
    for name, plan in plans.items():
        read_s, write_s = (_run_s(plan, longest, second, tau_s, target) for longest in (plan.read_s, plan.write_s))
        lasts = np.where(cells["rwmixread"] < 100, write_s, read_s)
        run_sd = float(np.sqrt((between**2 + second**2 / lasts).mean()))
        for n in runs or [_runs(plan, run_sd, target)]:
            shown = smallest_difference(run_sd, n, len(cells))
            _, se, df = simulated(n, len(cells))
            half = run_sd * (critical(df) * se).mean()
            rows.append({
                "protocol": name, "order": plan.order, "cells": len(cells), "runs": n,
                "read_s": read_s, "write_s": write_s, "hours": 2 * n * lasts.sum() / 3600,
                "cv_pct": 100 * run_sd, "half_width_pct": 100 * np.expm1(half), "difference_pct": 100 * shown,
            })  # fmt: skip
    return pd.DataFrame(rows)


def _pooled(noise: pd.DataFrame) -> tuple[float, float, float]:
    """Return one spread between runs, one of a second (as shares) and one tau for many cells.

    Variances are averaged by their degrees of freedom. Declared ones of single runs count if nothing was
    measured. The spread between runs is what the pooled total has beyond the pooled seconds: cell by
    cell the difference is cut at 0, which adds up.
    """
    df = (noise["n"] - 1).clip(lower=0)
    weight = df if df.sum() else df + 1
    square = noise[["cv_pct", "within_cv_pct", "between_cv_pct", "second_cv_pct"]] ** 2
    mean = square.mul(weight, axis=0).sum() / square.notna().mul(weight, axis=0).sum()
    rest = max(mean["cv_pct"] - mean["within_cv_pct"], 0.0)
    between2 = mean["between_cv_pct"] if np.isnan(mean["cv_pct"]) else rest
    between, second, tau_s = between2**0.5, mean["second_cv_pct"] ** 0.5, noise["tau_s"].mean()
    for name, value in {"second_cv_pct": second, "between_cv_pct": between, "tau_s": tau_s}.items():
        if not value >= 0:
            raise ValueError(f"the noise has no {name}. Declare it, or measure two runs of a cell with logs")
    return between / 100, second / 100, tau_s


def _run_s(plan: Protocol, longest: float, second_sd: float, tau_s: float, target: float) -> float:
    """Return the seconds of a run: the protocol's, or the first look at which `stop_when` would be content.

    That is when the confidence sequence is within `target` and the seconds are worth 30 independent ones.
    """
    if plan.first_s is None:
        return longest
    looks = np.append(np.arange(plan.first_s, longest, LOOK_S), longest)
    within = (confidence_sequence(looks, second_sd) <= target) & (looks >= MIN_EFFECTIVE * tau_s)
    return float(looks[within].min(initial=longest))


def _runs(plan: Protocol, run_sd: float, target: float) -> int:
    """Return the runs of a cell: the protocol's, or the first number that makes the mean's t interval narrow enough."""
    most = max(plan.runs, plan.most_runs)
    n = np.arange(plan.runs, most)
    return int(n[np.expm1(half_width(run_sd, n)) <= target].min(initial=most))
