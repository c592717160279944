"""How sure is a mean, and a ratio of two means? Everything is a t test on logs of runs.

A cell is a row with n, log_mean and log_var. A pair of cells is a row with these and the same columns
ending on ``_baseline``. Nothing here knows storage. Formulas: docs/METHODS sections 1, 7 and 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from scipy.stats import chi2, false_discovery_control, norm, t
from scipy.stats import f as f_of

CONFIDENCE = 0.95
"""Of every interval."""
ALPHA = 1 - CONFIDENCE
FLOOR = 1e-3
"""Real runs repeat no better than 0.1 %.

It is the standard deviation given to identical runs, as zero would make any difference certain, and no
smaller difference is called one: a run counts whole I/Os and milliseconds.
"""
IDENTICAL = 1e-18
"""Variance of logs below which runs are identical: less is the arithmetic's own noise."""
SURE = 0.9
"""How sure it must be that cells differ in spread before a calm one is trusted more than the rest."""
MOST_RUNS, POWER = 100, 0.9
"""More runs decide nothing that anybody would wait for; how often `runs_to_decide` does decide."""


# ---- means


def critical(df: ArrayLike, confidence: float = CONFIDENCE) -> np.ndarray:
    """Return Student's two-sided critical value; NaN without a degree of freedom."""
    return t.ppf(0.5 + confidence / 2, df)


def interval(
    center: ArrayLike, se: ArrayLike, df: ArrayLike, confidence: float = CONFIDENCE
) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of a t interval."""
    half = critical(df, confidence) * np.asarray(se)
    return center - half, center + half


def half_width(sd: ArrayLike, n: ArrayLike) -> np.ndarray:
    """Return half of the t interval of the mean of n values that spread by sd; NaN of fewer than two."""
    n = np.asarray(n)
    return critical(n - 1) * np.asarray(sd) / np.sqrt(np.maximum(n, 1))


def mean_of(name: str, values: ArrayLike) -> dict[str, float]:
    """Return the mean as `name`, and its t interval as `name`_lo and `name`_hi; NaN where there is none."""
    x = np.asarray(values, float)
    mean = float(x.mean()) if x.size else np.nan
    half = float(half_width(x.std(ddof=1), x.size)) if x.size > 1 else np.nan
    return {name: mean, f"{name}_lo": mean - half, f"{name}_hi": mean + half}


def floored(log_var: pd.Series) -> pd.Series:
    """Return variances, with that of identical runs at the floor."""
    return log_var.mask(log_var < IDENTICAL, FLOOR**2)


# ---- two means


def prior(s2: pd.Series, f: pd.Series, sure: float | None = None) -> tuple[float, float]:
    """Return the prior degrees of freedom and variance of variances `s2` on `f` degrees (limma's fitFDist).

    With `sure` the spread of the log variances counts only as far as it is known to be there: its lower
    confidence limit, by chi-square. d0 is inf where they differ by no more than chance.
    """
    e = np.log(s2) - digamma(f / 2) + np.log(f / 2)
    known = 1 if sure is None else (len(e) - 1) / chi2.ppf(sure, len(e) - 1)
    excess = e.var(ddof=1) * known - polygamma(1, f / 2).mean()
    if excess <= 0:
        return np.inf, float(s2.mean())
    over = lambda half: polygamma(1, half) / excess - 1  # noqa: E731
    half = brentq(over, 1e-6, 2 / excess + 2, xtol=1e-300, rtol=1e-15)
    return 2 * half, float(np.exp(e.mean() + digamma(half) - np.log(half)))


def welch(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the log ratio of each pair of cells, its own variance, and how well that is known (Welch 1947).

    Columns: log_ratio; v, the variance of the difference; f, its degrees of freedom if both spreads were
    one; df, Welch's own; se; flat (the runs of a side are identical).
    """
    n, n0 = pairs["n"], pairs["n_baseline"]
    own, own0 = floored(pairs["log_var"]) / n, floored(pairs["log_var_baseline"]) / n0
    df = (own + own0) ** 2 / (own**2 / (n - 1) + own0**2 / (n0 - 1))
    log_ratio = pairs["log_mean"] - pairs["log_mean_baseline"]
    flat = (pairs[["log_var", "log_var_baseline"]] < IDENTICAL).any(axis=1)
    known = {"log_ratio": log_ratio.where(np.isfinite(log_ratio)), "v": own + own0, "f": n + n0 - 2.0}
    return pd.DataFrame(known | {"df": df, "se": np.sqrt(own + own0), "flat": flat})


def guarded(v: pd.Series, f: pd.Series) -> pd.Series:
    """Return the larger of each variance and what all of them make likely: runs that agree make no calm test."""
    d0, v0 = prior(v, f, SURE)
    return np.maximum(v, v0 if np.isinf(d0) else (d0 * v0 + f * v) / (d0 + f))


def shared(moves: pd.DataFrame, sure: float | None = None) -> float:
    """Return which share of the runs' variance the tests of a round have in common.

    The intraclass correlation, by the analysis of variance; with `sure` its upper limit (Searle 1971).

    Parameters
    ----------
    moves : a row a run: side, at (its test), round, and move, how far it lies from its test's mean in
        standard deviations
    """
    rounds = moves.groupby(["side", "round"])["move"].agg(["sum", "size"])
    between, total = (rounds["sum"] ** 2 / rounds["size"]).sum(), (moves["move"] ** 2).sum()
    free = len(rounds) - moves["side"].nunique()
    left = len(moves) - moves.groupby(["side", "at"]).ngroups - free
    if free < 1 or left < 1 or total - between <= 1e-12 * total:  # rounds are all there is
        return 1.0
    ratio, per_round = (between / free) / ((total - between) / left), rounds["size"].mean()
    ratio /= 1 if sure is None else f_of.ppf(1 - sure, free, left)
    return float(np.clip((ratio - 1) / (ratio + per_round - 1), 0, 1))


def borrowed(pairs: pd.DataFrame, common: float) -> pd.DataFrame:
    """Return se and df of the tests of one pair of systems, with what the other tests tell of their spread.

    Tests that are noisier than the rest keep their own variance. Tests whose runs move together, as a
    round is slow as a whole, count for fewer: m of them for m / (1 + (m - 1) common^2). The degrees of
    freedom grow by Smyth's d0 (2004), in units of Welch's. Calibrated by simulation (docs/METHODS 16).
    """
    v, f, m = pairs["v"], pairs["f"], len(pairs)
    d0 = np.minimum(prior(v, f)[0], f * (m / (1 + (m - 1) * common**2) - 1))
    return pd.DataFrame({"se": np.sqrt(guarded(v, f)), "df": pairs["df"] * (1 + d0 / f)})


def of_mean(tests: pd.DataFrame, rounds: pd.DataFrame, common: float) -> tuple[float, float]:
    """Return se and df of the mean of tests: rounds as units, but never surer than separate tests.

    The rounds carry at most `common` of the runs' variance, so a part of the mean's. That part is known as
    well as rounds are, the rest as well as all tests together are (Satterthwaite).

    Parameters
    ----------
    tests : se and df of each
    rounds : side, round, and move, how far a round moved the mean
    """
    m, alone = len(tests), (tests["se"] ** 2).sum(skipna=False)
    if m == 1 or np.isnan(alone):
        return np.sqrt(alone) / m, tests["df"].mean()
    sides = rounds.groupby("side")["move"]
    n = sides.size()
    var = sides.agg(lambda move: (move**2).sum()) * n / (n - 1).where(n > 1)
    part = m * common / (1 + (m - 1) * common)
    rest = (1 - part) ** 2 * (tests["se"] ** 4 / tests["df"]).sum() / alone**2
    of_rounds = var.sum() ** 2 / (var**2 / (n - 1)).sum()
    se = np.sqrt(max(var.sum(), alone / m**2))
    return se, 1 / (rest + (part**2 / of_rounds if of_rounds > 0 else 0))


def below(pairs: pd.DataFrame) -> pd.Series:
    """Return the one-sided p of the hypothesis that the log ratio is 0 or more."""
    return pd.Series(t.cdf(pairs["log_ratio"] / pairs["se"], pairs["df"]), pairs.index)


# ---- verdicts


def judge(pairs: pd.DataFrame, margin: float, adjust: str | None) -> pd.DataFrame:
    """Judge every pair of one family of tests.

    Parameters
    ----------
    pairs : log_ratio, se, df, n, n_baseline, and `test`, its number: a pair may stand there both ways
    margin : a ratio inside [1 / (1 + margin), 1 + margin] is the same, by two one-sided tests
    adjust : ``bh`` (Benjamini and Hochberg) for a grid that is explored, ``holm`` for declared claims,
        None for a claim that its weakest cell refutes

    Returns
    -------
    DataFrame: ratio, ratio_lo, ratio_hi, p, p_adjusted, equivalent, verdict, runs_to_decide, margin.
    The verdict is missing, untested (a side has one run), higher, lower, same or undecided.
    """
    if adjust not in ("bh", "holm", None) or not 0 < margin < 1:
        raise ValueError(
            f"adjust is {adjust!r}, margin {margin!r}: expected bh, holm or None, and a share such as 0.05"
        )
    d, se, df = (pairs[name].astype(float) for name in ("log_ratio", "se", "df"))
    out = pd.DataFrame({"ratio": np.exp(d)}, index=pairs.index)
    out["ratio_lo"], out["ratio_hi"] = np.exp(interval(d, se, df))
    out["p"] = 2 * t.sf(d.abs() / se, df)
    out["p_adjusted"] = adjusted(out["p"], pairs["test"], adjust)
    same = t.cdf((d.abs() - np.log1p(margin)) / se, df)
    out["equivalent"] = adjusted(pd.Series(same, d.index), pairs["test"], adjust) <= ALPHA
    fewest = pairs[["n", "n_baseline"]].fillna(0).min(axis=1)
    differs = (out["p_adjusted"] <= ALPHA) & (d.abs() > least_difference(margin))
    cases = [fewest == 0, fewest == 1, differs & (d > 0), differs & (d < 0), out["equivalent"]]
    verdicts = ["missing", "untested", "higher", "lower", "same"]
    out["verdict"] = np.select(cases, verdicts, "undecided").astype(object)
    more = runs_to_decide(d.to_numpy(), se.to_numpy(), df.to_numpy(), fewest.to_numpy(float), margin)
    out["runs_to_decide"] = np.where(out["verdict"] == "undecided", more, np.nan)
    return out.assign(margin=margin)


def least_difference(margin: float) -> float:
    """Return the log ratio up to which no difference is called one."""
    return min(FLOOR, np.log1p(margin) / 2)


def runs_to_decide(log_ratio: np.ndarray, se: np.ndarray, df: np.ndarray, n: np.ndarray, margin: float) -> np.ndarray:
    """Return how many runs a side show a difference, or none, 9 times in 10, with the ratio and spread seen.

    Before any correction for many cells. NaN where there is no error yet; inf beyond `MOST_RUNS`.
    """
    m = np.arange(2, MOST_RUNS + 1)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        spread, freedom = se * np.sqrt(n / m), np.maximum(df / (n - 1), 1) * (m - 1)
    differs = (critical(freedom) + norm.ppf(POWER)) * spread <= np.abs(log_ratio)
    # Both one-sided tests must hold: of a ratio near 1 each fails half as often.
    reach = (t.ppf(CONFIDENCE, freedom) + norm.ppf((1 + POWER) / 2)) * spread
    enough = (differs | (reach <= np.log1p(margin) - np.abs(log_ratio))) & (m > n)
    found = np.where(enough.any(axis=0), enough.argmax(axis=0) + 2.0, np.inf)
    return np.where(np.isfinite(se), found, np.nan)


def adjusted(p: pd.Series, test: pd.Series | Sequence, adjust: str | None) -> pd.Series:
    """Return p corrected for the number of tests; NaN is no test."""
    known = p.groupby(np.asarray(test)).first().dropna().sort_values(kind="stable")
    if adjust == "bh" and len(known):
        known[:] = false_discovery_control(known)
    elif adjust == "holm":
        known[:] = np.minimum(np.maximum.accumulate(known * np.arange(len(known), 0, -1)), 1)
    return pd.Series(np.asarray(test), p.index).map(known)


# ---- before a campaign


@lru_cache(maxsize=64)
def simulated(n: int, cells: int, trials: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return error, se and df of each test of simulated campaigns of two equal systems, by `borrowed`.

    The tests are alike in spread and no round moves them. Errors are in spreads of one run, of shape
    trials x cells, with a fixed seed.
    """
    draw = np.random.default_rng(1)
    own = draw.chisquare(n - 1, (trials, 2, cells)) / (n - 1) / n
    v, df = own.sum(axis=1), own.sum(axis=1) ** 2 * (n - 1) / (own**2).sum(axis=1)
    se = np.sqrt(v)
    for trial in range(trials if cells > 1 else 0):
        tests = pd.DataFrame({"v": v[trial], "f": 2.0 * (n - 1), "df": df[trial]})
        se[trial], df[trial] = borrowed(tests, common=0).to_numpy().T
    return np.sqrt(2 / n) * draw.standard_normal((trials, cells)), se, df


def chance(differences: ArrayLike, cv: float, n: int, cells: int) -> np.ndarray:
    """Return how often a test with each true difference is found, by the rule that `compare` uses.

    Half of the tests have the difference, the tests are alike in spread, and Benjamini and Hochberg correct
    for all of them. Simulated, as if it were known that no round moves its tests: up to .06 too high for
    six tests of three runs. A closed form by the noncentral t is off by up to .5 (docs/METHODS 16).

    Parameters
    ----------
    differences : true ratios - 1, such as 0.05
    cv : spread of the runs of a test, as a share of their mean
    n, cells : runs of a test on each of the two systems, and tests of the campaign

    Raises
    ------
    ValueError : fewer than two runs, no test, or no spread

    Examples
    --------
    >>> from hcilib.analyse.stats import chance
    >>> chance([0.02, 0.05, 0.10], cv=0.02, n=5, cells=12).round(1)
    array([0.1, 0.9, 1. ])
    """
    if n < 2 or cells < 1 or not cv > 0:
        raise ValueError(f"n is {n}, cells {cells}, cv {cv}: expected 2 runs or more, a test, and a spread")
    error, se, df = simulated(n, cells)
    differs = np.arange(cells) < max(cells // 2, 1)
    found = []
    for difference in np.log1p(differences) / max(cv, FLOOR):
        p = 2 * t.sf(np.abs(error + difference * differs) / se, df)
        found.append((false_discovery_control(p, axis=1) <= ALPHA)[:, differs].mean())
    return np.array(found)


def smallest_difference(cv: float, n: int, cells: int) -> float:
    """Return the difference that a test shows 9 times in 10, as a share; NaN above 100 %."""
    differences = np.geomspace(FLOOR, 1, 60)
    found = np.maximum.accumulate(chance(differences, cv, n, cells))
    return float(np.interp(POWER, found, differences, right=np.nan))
