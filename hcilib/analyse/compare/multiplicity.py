"""Adjusted p values. A NaN is no test: it stays NaN and does not count in the family."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike


def holm(p: ArrayLike) -> np.ndarray:
    """Holm's step-down adjustment: controls the chance of any false claim. For few, declared claims."""
    return _over_tests(p, lambda s: np.maximum.accumulate(s * np.arange(len(s), 0, -1)))


def benjamini_hochberg(p: ArrayLike) -> np.ndarray:
    """Benjamini-Hochberg's step-up adjustment: controls the share of false finds in an exploratory grid."""
    return _over_tests(p, lambda s: np.minimum.accumulate((s * (len(s) / np.arange(1, len(s) + 1)))[::-1])[::-1])


def unadjusted(p: ArrayLike) -> np.ndarray:
    """The p values as they are."""
    return np.asarray(p, dtype=float).copy()


ADJUST: dict[str | None, Callable[[ArrayLike], np.ndarray]] = {
    "bh": benjamini_hochberg,
    "holm": holm,
    # A claim "at every iodepth" is rejected by its weakest cell, so its cells need no correction (see `everywhere`).
    "iut": unadjusted,
    None: unadjusted,
}


def _over_tests(p: ArrayLike, sorted_rule: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    p = np.asarray(p, dtype=float)
    tests = np.flatnonzero(~np.isnan(p))
    order = tests[np.argsort(p[tests], kind="stable")]
    out = np.full(p.shape, np.nan)
    out[order] = np.minimum(sorted_rule(p[order]), 1.0)
    return out
