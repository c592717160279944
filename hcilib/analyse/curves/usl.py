"""The universal scalability law: contention and coherency as two numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares


def usl_fit(n: ArrayLike, x: ArrayLike, weight: ArrayLike = 1.0) -> dict[str, float]:
    """Fit the universal scalability law X(N) = gamma N / (1 + alpha (N - 1) + beta N (N - 1)).

    Parameters
    ----------
    n, x : VM counts and rates, shape (m,), at least 4 different counts
    weight : of each residual; 1 is the usual absolute fit, 1 / x a relative one

    Returns
    -------
    gamma, alpha, beta (all >= 0), peak_n = sqrt((1 - alpha) / beta) (inf without a peak), rss.
    Source: Gunther 1993; METHODS section 4.
    """
    n, x = np.asarray(n, float), np.asarray(x, float)
    if np.unique(n).size < 4 or not (np.isfinite(x).all() and (x > 0).all() and (n > 0).all()):
        raise ValueError("usl_fit: needs 4 different VM counts or more, counts and rates finite and above zero")
    scale = x.max()

    def residual(p: np.ndarray) -> np.ndarray:
        return (p[0] * n / (1 + p[1] * (n - 1) + p[2] * n * (n - 1)) - x / scale) * weight

    tight = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15, "max_nfev": 2000}
    start = _usl_start(n, x / scale)
    found = least_squares(residual, start, bounds=(0, np.inf), x_scale=np.maximum(start, 1e-6), **tight)
    gamma, alpha, beta = found.x
    peak = np.sqrt((1 - alpha) / beta) if beta > 0 and alpha < 1 else (np.inf if alpha < 1 else float(n.min()))
    return {
        "gamma": float(gamma * scale), "alpha": float(alpha), "beta": float(beta), "peak_n": float(peak),
        "rss": float(2 * found.cost * scale**2),
    }  # fmt: skip


def _usl_start(n: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Start from the linear form: N / X is a parabola in N."""
    a, b, c = np.linalg.lstsq(np.column_stack([np.ones_like(n), n - 1, n * (n - 1)]), n / x, rcond=None)[0]
    a = max(a, 1e-3 * float((n / x).min()))
    return np.maximum([1 / a, b / a, c / a], 1e-9)
