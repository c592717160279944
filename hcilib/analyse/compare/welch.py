"""Welch's t on logs, for many pairs of cells at once; equivalence; moderated variances (METHODS section 1)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import digamma, polygamma, stdtr, stdtrit

FLOOR = 1e-3
"""Relative standard deviation given to identical runs: real runs repeat no better than 0.1 %, and zero would make
any difference certain."""

NO_PRIOR = (0.0, 0.0)


def contrast(
    cells: pd.DataFrame, rows: np.ndarray, base: np.ndarray, prior: tuple[float, float] = NO_PRIOR
) -> pd.DataFrame:
    """The log ratio of cell `rows[i]` to cell `base[i]`, both positions in `cells` (-1: the system has no such cell).

    If either cell is unstable, the ratio is of arithmetic means and its error by the delta method, so that ratio and
    interval speak of the same quantity (simulated cover at n = 3 and 5: .95-.97 lognormal, .96-.98 with outliers or
    regimes). `prior` is (d0, s0^2) of `fit_fdist`; without one this is plain Welch.
    Columns: log_ratio, se, df (Welch-Satterthwaite), unstable, n, n_baseline. NaN se where a side has one run.
    """
    a, b = (_side(cells, np.asarray(i)) for i in (base, rows))
    unstable = a["unstable"] | b["unstable"]
    with np.errstate(divide="ignore", invalid="ignore"):
        center = [np.where(unstable, np.log(s["mean"]), s["log_mean"]) for s in (b, a)]
        (vb, fb), (va, fa) = (_variance(s, unstable, prior) for s in (b, a))
        log_ratio = center[0] - center[1]
        eb, ea = vb / b["n"], va / a["n"]
        df = (ea + eb) ** 2 / (ea**2 / fa + eb**2 / fb)
    log_ratio = np.where(np.isfinite(log_ratio), log_ratio, np.nan)
    return pd.DataFrame(
        {
            "log_ratio": log_ratio,
            "se": np.sqrt(ea + eb),
            "df": df,
            "unstable": unstable,
            "n": b["n"],
            "n_baseline": a["n"],
        }
    )


def interval(log_ratio: ArrayLike, se: ArrayLike, df: ArrayLike, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper limit of the ratio, exp(d -+ t se)."""
    half = stdtrit(df, 0.5 + confidence / 2) * np.asarray(se)
    with np.errstate(over="ignore"):
        return np.exp(log_ratio - half), np.exp(log_ratio + half)


def own_interval(cells: pd.DataFrame, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Interval of each cell's own centre, on logs; NaN for a single run."""
    n = cells["n"].to_numpy()
    side = _side(cells, np.arange(len(cells)))
    variance, f = _variance(side, side["unstable"], NO_PRIOR)
    with np.errstate(divide="ignore", invalid="ignore"):
        return interval(np.log(cells["center"].to_numpy()), np.sqrt(variance / n), f, confidence)


def two_sided(log_ratio: ArrayLike, se: ArrayLike, df: ArrayLike) -> np.ndarray:
    """p of the hypothesis that the ratio is 1."""
    return 2 * stdtr(df, -np.abs(np.asarray(log_ratio) / np.asarray(se)))


def below(log_ratio: ArrayLike, se: ArrayLike, df: ArrayLike, bound: float = 0.0) -> np.ndarray:
    """One-sided p of the hypothesis that the log ratio is `bound` or more; small means it lies below."""
    return stdtr(df, (np.asarray(log_ratio) - bound) / np.asarray(se))


def tost(log_ratio: ArrayLike, se: ArrayLike, df: ArrayLike, margin: float) -> np.ndarray:
    """p of two one-sided tests: small means the ratio lies inside [1 / (1 + margin), 1 + margin]."""
    bound = np.log1p(margin)
    return np.maximum(below(log_ratio, se, df, bound), below(-np.asarray(log_ratio), se, df, bound))


def fit_fdist(variances: ArrayLike, f: ArrayLike) -> tuple[float, float]:
    """Prior degrees of freedom d0 and variance s0^2 from the moments of log variances (limma's fitFDist).

    `f` are the degrees of freedom of each variance. d0 is inf where the variances differ by no more than chance.
    """
    s2, f = np.broadcast_arrays(np.asarray(variances, float), np.asarray(f, float))
    e = np.log(s2) - digamma(f / 2) + np.log(f / 2)
    excess = e.var(ddof=1) - polygamma(1, f / 2).mean()
    if excess <= 0:
        return np.inf, float(s2.mean())
    d0 = 2 * _trigamma_inverse(excess)
    return d0, float(np.exp(e.mean() + digamma(d0 / 2) - np.log(d0 / 2)))


def prior(cells: pd.DataFrame) -> tuple[float, float, int]:
    """`fit_fdist` over the cells that have a variance, and how many those are; fewer than two give no prior."""
    usable = cells[(cells["n"] > 1) & np.isfinite(cells["log_var"]) & ~cells["flat"]]
    if len(usable) < 2:
        return (*NO_PRIOR, len(usable))
    return (*fit_fdist(usable["log_var"], usable["n"] - 1), len(usable))


def _side(cells: pd.DataFrame, rows: np.ndarray) -> dict[str, np.ndarray]:
    absent = rows < 0
    side = {c: cells[c].to_numpy() for c in ("n", "mean", "log_mean", "log_var", "rel_var", "unstable", "flat")}
    if not len(cells):
        side = {c: np.zeros(1, v.dtype) for c, v in side.items()}
    empty = {"n": 0, "unstable": False, "flat": False}
    return {c: np.where(absent, empty.get(c, np.nan), v[rows]) for c, v in side.items()}


def _variance(
    side: dict[str, np.ndarray], unstable: np.ndarray, prior: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Variance of the log of one run and its degrees of freedom: the larger of its own and the moderated one."""
    d0, s02 = prior
    f = np.where(side["n"] > 1, side["n"] - 1.0, np.nan)
    own = np.where(unstable, side["rel_var"], side["log_var"])
    moderated = s02 if np.isinf(d0) else (d0 * s02 + f * own) / (d0 + f)
    v = np.maximum(own, moderated)
    return np.where(side["flat"], np.maximum(v, FLOOR**2), v), d0 + f


def _trigamma_inverse(x: float) -> float:
    """Newton on 1/trigamma, which is nearly linear (Smyth 2004, appendix); converges from below in a few steps."""
    y = 0.5 + 1 / x
    for _ in range(50):
        tri = polygamma(1, y)
        step = tri * (1 - tri / x) / polygamma(2, y)
        y += step
        if abs(step) < 1e-12 * y:
            break
    return float(y)
