"""When a measurement knows enough: autocorrelation, long-run spread, and the rule that may stop a run early.

Numpy alone, no tables: the orchestrator asks `stop_when` every 30 s on the fleet's summed per-second rates.
Formulas are METHODS section 2. All lengths are counted in samples, one a second unless the log says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

MIN_EFFECTIVE = 30
"""Fewer independent samples than this support no interval (METHODS section 2)."""


@dataclass(frozen=True)
class Decision:
    """An answer with its reason; truthy when the answer is to stop.

    `half_width` is relative to `mean`; NaN where it cannot be had yet. `reached` tells a target that was met from a
    time limit or a run count that was used up.
    """

    stop: bool
    reached: bool
    mean: float
    half_width: float
    n: int
    n_eff: float
    reason: str

    def __bool__(self) -> bool:
        return self.stop


def stop_when(
    rates: ArrayLike,
    target: float = 0.02,
    alpha: float = 0.05,
    t_star: float = 300,
    first: int = 60,
    most: int = 300,
) -> Decision:
    """Decide whether a run may stop: its mean is known to +-`target`.

    Looking again and again costs nothing: the interval at the look that stops covers at least .95 on AR(1) series of
    tau 1, 5 and 10 (tests). All looks at once are covered .91 to .95, because the spread is estimated.

    Parameters
    ----------
    rates : shape (T,), the fleet's summed rate per second since the run began; missing seconds (NaN) are left out
    target : wanted half-width relative to the mean
    alpha, t_star : of `confidence_sequence`
    first, most : samples before which the answer is always no, and from which it is always yes

    Source: METHODS section 2; the long-run spread comes from 20 batch means and is trusted from n_eff >= 30.
    """
    if not 0 < target < 1:
        raise ValueError(f"stop_when: target is {target}, expected a relative half-width between 0 and 1, e.g. 0.02")
    y = np.asarray(rates, float)
    y = y[~np.isnan(y)]
    mean = float(y.mean()) if y.size else np.nan
    n_eff = min(effective_samples(y), y.size) if y.size >= 4 else 0.0
    half = _relative_half_width(y, alpha, t_star) if y.size >= first and n_eff >= MIN_EFFECTIVE else np.nan
    reached = bool(half <= target)
    stop = reached or y.size >= most
    return Decision(stop, reached, mean, half, y.size, n_eff, _why(y.size, n_eff, half, target, first, most))


def _relative_half_width(y: np.ndarray, alpha: float, t_star: float) -> float:
    mean = y.mean()
    return float(confidence_sequence(y.size, long_run_sd(y), alpha, t_star) / mean) if mean > 0 else np.nan


def _why(n: int, n_eff: float, half: float, target: float, first: int, most: int) -> str:
    if half <= target:
        return f"half-width {half:.2%} is within {target:.2%} after {n} samples"
    if n < first:
        state = f"{n} samples, first look at {first}"
    elif n_eff < MIN_EFFECTIVE:
        state = f"{n_eff:.0f} independent samples in {n}, needs {MIN_EFFECTIVE}"
    elif half != half:
        state = f"no I/O in {n} samples"
    else:
        state = f"half-width {half:.2%} after {n} samples, wanted {target:.2%}"
    return f"time limit of {most} samples: {state}" if n >= most else state


def enough_runs(
    values: ArrayLike, target: float = 0.02, confidence: float = 0.95, least: int = 5, most: int = 10
) -> Decision:
    """Decide whether a cell has runs enough: the t interval of its geometric mean is within +-`target`.

    Parameters
    ----------
    values : shape (n,), one number per valid run of one cell, above zero
    target : wanted half-width relative to the mean, exp(t s / sqrt n) - 1 on the logs
    least, most : runs before which the answer is always no, and from which it is always yes

    Source: METHODS section 2, policy `adaptive`.
    """
    x = np.asarray(values, float)
    if not (x > 0).all():
        raise ValueError(f"enough_runs: {x[~(x > 0)][0]} is not a rate above zero; pass valid runs only")
    n, logs = x.size, np.log(x)
    mean = float(np.exp(logs.mean())) if n else np.nan
    half = float(np.expm1(stdtrit(n - 1, (1 + confidence) / 2) * logs.std(ddof=1) / n**0.5)) if n > 1 else np.nan
    reached = bool(n >= least and half <= target)
    wanted = f"half-width {half:.2%} over {n} runs, wanted {target:.2%}" if n > 1 else f"{n} runs, needs {least}"
    return Decision(reached or n >= most, reached, mean, half, n, float(n), wanted)


def confidence_sequence(
    t: ArrayLike, s: ArrayLike = 1.0, alpha: float = 0.05, t_star: float = 300
) -> np.ndarray | np.float64:
    """Half-width of the asymptotic confidence sequence after `t` samples: valid at every t at once, tightest near
    t_star.

    Parameters
    ----------
    t : samples seen, any shape, above zero
    s : long-run standard deviation of one sample (`long_run_sd`), broadcast against t

    Source: METHODS section 2; Waudby-Smith et al. 2021, Gaussian mixture boundary.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"confidence_sequence: alpha is {alpha}, expected a probability between 0 and 1, e.g. 0.05")
    t = np.asarray(t, float)
    rho2 = (-2 * np.log(alpha) + np.log(-2 * np.log(alpha) + 1)) / t_star
    grown = t * rho2 + 1
    return np.asarray(s, float) * np.sqrt(2 * grown / (t**2 * rho2) * np.log(np.sqrt(grown) / alpha))


def autocorrelation_time(y: ArrayLike) -> float | np.ndarray:
    """Integrated autocorrelation time in samples, by Geyer's initial positive monotone sequence.

    Parameters
    ----------
    y : shape (..., T); the last axis is time, a float is returned for one series

    A constant series has nothing to correlate: 1. Fewer than 4 samples or a NaN: NaN. Alternating series may come out
    below 1; the floor 1 / log10(T) keeps n_eff finite (Vehtari et al. 2021).
    Source: METHODS section 2; Geyer 1992, section 3.3.
    """
    y = np.asarray(y, float)
    n = y.shape[-1]
    if n < 4:
        return _scalar(np.full(y.shape[:-1], np.nan))
    rho, constant = _autocorrelation(y)
    pairs = rho[..., 0 : n - n % 2 : 2] + rho[..., 1 : n - n % 2 : 2]
    kept = np.logical_and.accumulate(pairs > 0, axis=-1)
    tau = 2 * np.where(kept, np.minimum.accumulate(pairs, axis=-1), 0).sum(axis=-1) - 1
    tau = np.where(constant, 1.0, np.maximum(tau, 1 / np.log10(n)))
    return _scalar(np.where(np.isnan(y).any(axis=-1), np.nan, tau))


def _autocorrelation(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Biased autocorrelation over the last axis, and which series are constant (their row is 0, not 0/0)."""
    n = y.shape[-1]
    mean = y.mean(axis=-1, keepdims=True)
    spectrum = np.fft.rfft(y - mean, 2 * n, axis=-1)
    cov = np.fft.irfft(spectrum.real**2 + spectrum.imag**2, 2 * n, axis=-1)[..., :n]
    constant = np.ptp(y, axis=-1) <= 1e-12 * np.abs(mean[..., 0])
    return cov / np.where(constant, 1.0, cov[..., 0])[..., None], constant


def effective_samples(y: ArrayLike) -> float | np.ndarray:
    """How many independent samples a series is worth, T / tau."""
    return np.asarray(y).shape[-1] / autocorrelation_time(y)


def batch_means(y: ArrayLike, batches: int = 10) -> np.ndarray:
    """Means of `batches` equal stretches of the last axis, shape (..., batches).

    What does not divide is left out at the start, where a run is furthest from steady. NaN where T < batches.
    """
    y = np.asarray(y, float)
    length = y.shape[-1] // batches
    if length == 0:
        return np.full((*y.shape[:-1], batches), np.nan)
    return y[..., y.shape[-1] - length * batches :].reshape(*y.shape[:-1], batches, length).mean(axis=-1)


def long_run_sd(y: ArrayLike, batches: int = 20) -> float | np.ndarray:
    """Standard deviation one sample would need for the mean of T independent ones to spread as this series' mean
    does."""
    length = np.asarray(y).shape[-1] // batches
    return _scalar(batch_means(y, batches).std(axis=-1, ddof=1) * length**0.5)


def _scalar(x: np.ndarray) -> float | np.ndarray:
    return float(x) if np.ndim(x) == 0 else x


# ---- Is it steady yet? The SNIA rule, the volume gate in front of it, MSER-5 truncation and two-level regimes


ROUNDS = 5
"""Rounds the SNIA rule looks at."""

SPANS = 2.0
"""Times the span must have been written before any rate is believed."""

MIN_LEVELS = 100
"""Samples below which one regime cannot be told from two (AR(1) runs of 60 s were flagged up to 9 %)."""


def warm_up_missing(bytes_written: float, span_bytes: float, rounds: ArrayLike) -> str:
    """What keeps the warm-up from being over, in words for the journal; empty when at least 2 x the span is written
    *and* the last five rounds are steady.

    Parameters
    ----------
    bytes_written : bytes written to the span since it was prepared, by this pattern
    span_bytes : bytes the pattern may touch, fleet-wide
    rounds : shape (n,), mean rate of each 300 s round, oldest first
    """
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
