"""Inside a run: the fleet's rate second by second, its mean with an interval, and when it may stop early.

Seconds are not replicates: they say how well one run's mean is known, never how well the system's is. The rules that
stop a run are numpy alone, on arrays: a campaign asks `stop_when` every 30 s on the fleet's summed per-second rates.
Formulas are METHODS section 2. All lengths are counted in samples, one a second unless the log says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from hcilib.analyse.rows import groups_of
from hcilib.analyse.stats import CONFIDENCE, critical, half_width
from hcilib.model.caveats import join_codes
from hcilib.model.metrics import FACTORS, KEYS

LONG_RUN_BATCHES = 20
MIN_EFFECTIVE = 30
"""Fewer independent samples than this support no interval (METHODS section 2)."""
ALPHA, T_STAR = 0.05, 300
"""Of the confidence sequence: how often it may fail at any look, and the samples at which it is tightest."""


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
    rates: ArrayLike, target: float = 0.02, first: int = 60, most: int = 300, t_star: float = T_STAR
) -> Decision:
    """Decide whether a run may stop: its mean is known to +-`target`.

    Looking again and again costs nothing: the interval at the look that stops covers at least .95 on AR(1) series of
    tau 1, 5 and 10 (tests). All looks at once are covered .91 to .95, because the spread is estimated.

    Parameters
    ----------
    rates : shape (T,), the fleet's summed rate per second since the run began; missing seconds (NaN) are left out
    target : wanted half-width relative to the mean
    first, most : samples before which the answer is always no, and from which it is always yes
    t_star : of `confidence_sequence`

    Source: METHODS section 2; the long-run spread comes from 20 batch means and is trusted from n_eff >= 30.
    """
    if not 0 < target < 1:
        raise ValueError(f"stop_when: target is {target}, expected a relative half-width between 0 and 1, e.g. 0.02")
    y = np.asarray(rates, float)
    y = y[~np.isnan(y)]
    mean = float(y.mean()) if y.size else np.nan
    n_eff = min(effective_samples(y), y.size) if y.size >= 4 else 0.0
    can_be_had = y.size >= first and n_eff >= MIN_EFFECTIVE and mean > 0
    half = float(confidence_sequence(y.size, long_run_sd(y), t_star) / mean) if can_be_had else np.nan
    reached = bool(half <= target)
    stop = reached or y.size >= most
    return Decision(stop, reached, mean, half, y.size, n_eff, _why(y.size, n_eff, half, target, first, most))


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


def enough_runs(values: ArrayLike, target: float = 0.02, least: int = 5, most: int = 10) -> Decision:
    """Decide whether a cell has runs enough: the 95 % t interval of its geometric mean is within +-`target`.

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
    half = float(np.expm1(half_width(logs.std(ddof=1), n)) if n > 1 else float(np.nan))
    reached = bool(n >= least and half <= target)
    wanted = f"half-width {half:.2%} over {n} runs, wanted {target:.2%}" if n > 1 else f"{n} runs, needs {least}"
    return Decision(reached or n >= most, reached, mean, half, n, float(n), wanted)


def confidence_sequence(t: ArrayLike, s: ArrayLike = 1.0, t_star: float = T_STAR) -> np.ndarray | np.float64:
    """Half-width of the asymptotic confidence sequence after `t` samples: valid at every t at once, tightest near
    `t_star`.

    Parameters
    ----------
    t : samples seen, any shape, above zero
    s : long-run standard deviation of one sample (`long_run_sd`), broadcast against t

    Source: METHODS section 2; Waudby-Smith et al. 2021, Gaussian mixture boundary.
    """
    t = np.asarray(t, float)
    rho2 = (-2 * np.log(ALPHA) + np.log(-2 * np.log(ALPHA) + 1)) / t_star
    grown = t * rho2 + 1
    return np.asarray(s, float) * np.sqrt(2 * grown / (t**2 * rho2) * np.log(np.sqrt(grown) / ALPHA))


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


def long_run_sd(y: ArrayLike) -> float | np.ndarray:
    """Standard deviation one sample would need for the mean of T independent ones to spread as this series' mean
    does."""
    length = np.asarray(y).shape[-1] // LONG_RUN_BATCHES
    return _scalar(batch_means(y, LONG_RUN_BATCHES).std(axis=-1, ddof=1) * length**0.5)


def _scalar(x: np.ndarray) -> float | np.ndarray:
    return float(x) if np.ndim(x) == 0 else x


# ---- Where does the steady part begin? MSER-5 truncation


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


BATCHES = 10
PARTS = ("host", "hostname", "port", "job", "jobname", "ddir")
"""Columns that tell the writers of a fleet's series apart; all that are present are summed over."""


def mean_interval(series: pd.DataFrame, metric: str = "iops") -> pd.DataFrame:
    """Mean of each run with its interval, from 10 batch means.

    Parameters
    ----------
    series : the `series` table (run, host, ddir, t_s, iops, bw_bytes, lat_ns), or one run's rates as an array

    Returns
    -------
    One row per run: its keys, n (always 1: seconds are not runs), seconds (samples used), mean,
    mean_lo, mean_hi, se, tau (in samples), n_eff, confidence, verdict (`ok` or `run too short`:
    n_eff < 30, then mean_lo, mean_hi and se are NaN), warnings.
    """
    columns = ["n", "seconds", "mean", "mean_lo", "mean_hi", "se", "tau", "n_eff", "confidence", "verdict", "warnings"]
    return _per_run(series, metric, columns, lambda t, y: _interval(y))


def _interval(y: np.ndarray) -> dict:
    mean = float(y.mean()) if y.size else np.nan
    tau = autocorrelation_time(y)
    n_eff = y.size / tau
    short = not min(n_eff, y.size) >= MIN_EFFECTIVE
    se = np.nan if short else float(batch_means(y, BATCHES).std(ddof=1) / BATCHES**0.5)
    half = critical(BATCHES - 1) * se
    warnings = "too-short" if short else "no-variation" if se == 0 else ""
    return {
        "n": 1, "seconds": y.size, "mean": mean, "mean_lo": mean - half, "mean_hi": mean + half, "se": se, "tau": tau,
        "n_eff": n_eff, "confidence": CONFIDENCE, "verdict": "run too short" if short else "ok", "warnings": warnings,
    }  # fmt: skip


def run_columns(table: pd.DataFrame) -> list[str]:
    """The columns that tell one run from another, of those the table has; none means it holds a single run."""
    return [c for c in ("run", "step_id", *KEYS, *FACTORS) if c in table]


def _per_run(series: pd.DataFrame, metric: str, columns: list[str], judge: Callable) -> pd.DataFrame:
    """One row per run from `judge(t, y)`, its `warnings` joined to those of the summing."""
    rows = []
    for key, total, cut in fleet(series, metric):
        known = total.dropna()
        row = judge(known.index.to_numpy(float), known.to_numpy(float))
        rows.append(key | row | {"warnings": join_codes(row["warnings"], *cut)})
    keys = run_columns(series) if isinstance(series, pd.DataFrame) else []
    return pd.DataFrame(rows, columns=[*keys, *columns])


def fleet(series: pd.DataFrame, metric: str = "iops") -> Iterator[tuple[dict, pd.Series, list[str]]]:
    """Each run's keys, its one series, summed over hosts, jobs and directions on the seconds all of them have, and what
    was cut of it.

    Latency is averaged by IOPS instead of summed. A host that died early cuts the run short for all: its share cannot
    be made up. NaN in a second that some writer lacks; indexed by t_s.
    """
    table = _checked(series, metric)
    for key, run in groups_of(table, run_columns(table)):
        yield key, *_summed(run, metric)


def _checked(series: pd.DataFrame, metric: str) -> pd.DataFrame:
    if not isinstance(series, pd.DataFrame):
        rates = np.asarray(series, float)
        series = pd.DataFrame({"t_s": np.arange(rates.size), metric: rates})
    needed = {"t_s", metric} | ({"iops"} if metric.endswith("lat_ns") else set())
    if missing := sorted(needed - set(series)):
        raise ValueError(f"series has no column {', '.join(missing)}; it has {', '.join(map(str, series))}")
    if series["t_s"].isna().any():
        raise ValueError("series: t_s is missing in some rows; every row needs its second")
    return series


def _summed(run: pd.DataFrame, metric: str) -> tuple[pd.Series, list[str]]:
    """The fleet's series of one run, and warnings."""
    parts = [c for c in PARTS if c in run]
    writer = run.groupby(parts, dropna=False, sort=False).ngroup() if parts else pd.Series(0, run.index)
    table = run.set_index(["t_s", writer.rename("writer")])
    if table.index.has_duplicates:
        where = run[table.index.duplicated()].iloc[0][["t_s", *parts]].to_dict()
        raise ValueError(f"series holds {where} twice: two runs without a key, or a log read twice")
    wide = table[metric].unstack("writer").sort_index()
    ends = [(c.first_valid_index(), c.last_valid_index()) for _, c in wide.items()]
    if not ends or any(first is None for first, _ in ends):
        return wide.sum(axis=1, skipna=False).iloc[:0], ["no-run"]
    common = wide.loc[max(first for first, _ in ends) : min(last for _, last in ends)]
    if metric.endswith("lat_ns"):
        weight = table["iops"].unstack("writer").loc[common.index]
        total = common.where(weight != 0, 0).mul(weight).sum(axis=1, skipna=False) / weight.sum(axis=1).replace(
            0, np.nan
        )
    else:
        total = common.sum(axis=1, skipna=False)
    return total, _gaps(wide, total, metric)


def _gaps(wide: pd.DataFrame, total: pd.Series, metric: str) -> list[str]:
    said = []
    if len(total) < 0.95 * len(wide):
        said.append("cut")
    steps = np.diff(total.index.to_numpy(float))
    lost = int(np.rint(steps / np.median(steps) - 1).sum()) if steps.size else 0
    if lost + total.isna().sum():
        said.append("cut")
    if metric != "lat_ns" and (total == 0).any():
        said.append("silent")
    return said
