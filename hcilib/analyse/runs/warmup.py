"""Is it steady yet? The SNIA rule, the volume gate in front of it, MSER-5 truncation and two-level regimes.

Arrays in, numbers out. A rule on the rate alone accepts the plateau before the write cliff, hence the volume gate
(METHODS section 2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

ROUNDS = 5
"""Rounds the SNIA rule looks at."""

SPANS = 2.0
"""Times the span must have been written before any rate is believed."""

MIN_LEVELS = 100
"""Samples below which one regime cannot be told from two (AR(1) runs of 60 s were flagged up to 9 %)."""


def warm_up_done(bytes_written: float, span_bytes: float, rounds: ArrayLike) -> bool:
    """Whether warm-up is over: at least 2 x the span written *and* the last five rounds steady.

    Parameters
    ----------
    bytes_written : bytes written to the span since it was prepared, by this pattern
    span_bytes : bytes the pattern may touch, fleet-wide
    rounds : shape (n,), mean rate of each 300 s round, oldest first
    """
    return not warm_up_missing(bytes_written, span_bytes, rounds)


def warm_up_missing(bytes_written: float, span_bytes: float, rounds: ArrayLike) -> str:
    """What keeps the warm-up from being over, in words for the journal; empty when nothing does."""
    if not span_bytes > 0:
        raise ValueError(f"warm-up: span_bytes is {span_bytes}, expected the working set in bytes, above zero")
    missing = []
    if not bytes_written >= SPANS * span_bytes:  # also when the volume is unknown (NaN)
        missing.append(f"written {bytes_written / span_bytes:.2f} x the span of {SPANS:g} x")
    rounds = np.asarray(rounds, float)
    if rounds.size < ROUNDS:
        missing.append(f"{rounds.size} rounds of {ROUNDS}")
    elif not _steady(rounds[None, -ROUNDS:])[0]:
        missing.append(f"the last {ROUNDS} rounds are not steady")
    return ", ".join(missing)  # not "; ", which separates warnings


def snia_steady(rounds: ArrayLike) -> np.ndarray:
    """First indices of the windows of five rounds that are steady; empty if none is.

    Steady: (max - min) <= 20 % of the mean, and |slope| x 4 <= 10 % of it (least squares over the five rounds).
    A window with a missing round or without I/O is not steady.
    Source: METHODS section 2; SNIA Solid State Storage Performance Test Specification, steady state.
    """
    rounds = np.asarray(rounds, float)
    if rounds.size < ROUNDS:
        return np.array([], dtype=int)
    return np.flatnonzero(_steady(np.lib.stride_tricks.sliding_window_view(rounds, ROUNDS)))


def _steady(windows: np.ndarray) -> np.ndarray:
    """The SNIA rule on each row of five rounds. Its limits are inclusive, so rounding is allowed for (1e-12)."""
    mean = windows.mean(axis=1)
    x = np.arange(ROUNDS) - (ROUNDS - 1) / 2
    rise = np.abs(windows @ x / (x @ x)) * (ROUNDS - 1)
    slack = 1e-12 * mean
    return (mean > 0) & (np.ptp(windows, axis=1) <= 0.20 * mean + slack) & (rise <= 0.10 * mean + slack)


def round_means(y: ArrayLike, samples: int) -> np.ndarray:
    """Means of consecutive full rounds of `samples`; a started last round is left out."""
    y = np.asarray(y, float)
    return y[: y.size // samples * samples].reshape(-1, samples).mean(axis=1)


def mser5(y: ArrayLike) -> tuple[int, float]:
    """How many leading samples are transient, and the mean of the rest, by MSER-5.

    The cut minimises the squared standard error of what is left, over batches of 5 and up to half of the series.
    Under 10 samples nothing can be judged: (0, NaN).
    Source: METHODS section 2; White 1997, Franklin and White 2008.
    """
    y = np.asarray(y, float)
    if y.size < 10:
        return 0, float("nan")
    batches = round_means(y, 5)
    batches = batches - batches.mean()  # the sums of squares below would cancel on raw rates
    left = np.arange(batches.size, 0, -1)
    total, squares = batches[::-1].cumsum()[::-1], (batches**2)[::-1].cumsum()[::-1]
    score = np.maximum(squares - total**2 / left, 0) / left**2
    constant = np.ptp(y) <= 1e-12 * abs(y.mean())
    cut = 0 if constant else 5 * int(np.argmin(score[: batches.size // 2 + 1]))
    return cut, float(y[cut:].mean())


def two_levels(y: ArrayLike) -> tuple[float, float] | None:
    """The low and the high level of a run that switches between two regimes; None if it has one.

    5-sample medians (a lone stalled second is an outlier, no regime) are split where two groups explain most of the
    variance; a Gaussian reaches 0.64, a straight drift 0.75. Two regimes: more than 0.85 explained, levels over 10 %
    apart, each held at least a tenth of the time. None also under `MIN_LEVELS` samples.
    The limits are this library's own, set on simulated AR(1) runs, transients and outliers; they are no standard.
    """
    y = np.asarray(y, float)
    if y.size < MIN_LEVELS:
        return None
    x = np.sort(np.median(y[: y.size // 5 * 5].reshape(-1, 5), axis=1))
    low_n = np.arange(1, x.size)
    low = x.cumsum()[:-1] / low_n
    high = (x.sum() - x.cumsum()[:-1]) / (x.size - low_n)
    share = low_n / x.size
    between = share * (1 - share) * (high - low) ** 2
    k = int(np.argmax(between))
    apart = between[k] > 0.85 * x.var() and high[k] > 1.10 * low[k]
    return (float(low[k]), float(high[k])) if apart and 0.1 <= share[k] <= 0.9 else None
