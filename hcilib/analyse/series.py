"""Inside a run: the fleet's rate second by second, its mean with an interval, and when it may stop early.

Seconds are not replicates: they say how well one run's mean is known, never how well the system's is. A
campaign asks `stop_when` every 30 s on the fleet's summed per-second rates. All lengths are counted in
samples, one a second unless the log says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.signal import correlate

from hcilib.analyse.rows import groups_of, numbered, require_columns
from hcilib.analyse.stats import ALPHA, half_width, interval
from hcilib.model.caveats import join_codes
from hcilib.model.metrics import FACTORS, KEYS

BATCHES, LONG_RUN_BATCHES = 10, 20
"""Batches whose means give the interval of a run, and the spread by which a run may stop."""
MIN_EFFECTIVE = 30
"""Fewer independent samples than this support no interval."""
T_STAR = 300
"""The samples at which a confidence sequence is tightest."""
PARTS = ("host", "hostname", "port", "job", "jobname", "ddir")
"""Columns that tell the writers of a fleet's series apart; all that are present are summed over."""


# ---- when to stop


@dataclass(frozen=True)
class Decision:
    """Whether to stop, and why; `reached` tells a target that was met from a time or number that was used up."""

    stop: bool
    reached: bool
    half_width: float  # relative to the mean; NaN where it cannot be had yet
    reason: str

    def __bool__(self) -> bool:
        return self.stop


def stop_when(
    rates: ArrayLike, target: float = 0.02, first: int = 60, most: int = 300, t_star: float = T_STAR
) -> Decision:
    """Decide whether a run may stop: its mean is known to +-`target`.

    A usual interval misses the truth too often if a run may stop at each of many looks. So the interval
    is a confidence sequence, whose spread comes from 20 batch means. On AR(1) noise of tau 1, 5 and 10
    the interval at the stop covers at least .95, all looks at once .91 to .95. At tau 20 it covers .79.
    If IOPS change between two levels, no interval holds their mean: use `policy="fixed"`.

    Parameters
    ----------
    rates : shape (T,), the fleet's summed rate per second since the run began; missing seconds (NaN) are left out
    target : wanted half-width relative to the mean
    first, most : samples before which the answer is always no, and from which it is always yes
    t_star : of `confidence_sequence`
    """
    y = np.asarray(rates, float)
    y = y[~np.isnan(y)]
    n_eff = effective_samples(y)
    half = np.nan
    if y.size >= first and n_eff >= MIN_EFFECTIVE and y.mean() > 0:
        spread = batch_means(y, LONG_RUN_BATCHES).std(ddof=1) * (y.size // LONG_RUN_BATCHES) ** 0.5
        half = float(confidence_sequence(y.size, spread, t_star) / y.mean())
    reason = f"{_half_width_text(half)} after {y.size} samples, {n_eff:.0f} of them independent; wanted {target:.2%}"
    return Decision(bool(half <= target or y.size >= most), bool(half <= target), half, reason)


def enough_runs(values: ArrayLike, target: float = 0.02, least: int = 5, most: int = 10) -> Decision:
    """Decide whether a cell has runs enough: the 95 % t interval of its geometric mean is within +-`target`.

    Parameters
    ----------
    values : shape (n,), one number per valid run of one cell
    target : wanted half-width relative to the mean, exp(t s / sqrt n) - 1 on the logs
    least, most : runs before which the answer is always no, and from which it is always yes
    """
    x = np.asarray(values, float)
    with np.errstate(divide="ignore", invalid="ignore"):  # a run without I/O has no log, and the mean no interval
        half = float(np.expm1(half_width(np.log(x).std(ddof=1), x.size))) if x.size > 1 else np.nan
    reached = bool(x.size >= least and half <= target)
    reason = f"{_half_width_text(half)} over {x.size} runs; wanted {target:.2%}"
    return Decision(reached or x.size >= most, reached, half, reason)


def _half_width_text(half: float) -> str:
    return "half-width unknown" if np.isnan(half) else f"half-width {half:.2%}"


def confidence_sequence(t: ArrayLike, s: ArrayLike = 1.0, t_star: float = T_STAR) -> np.ndarray:
    """Return the half-width of a confidence sequence after `t` samples: valid at every t at once.

    The Gaussian mixture boundary of Waudby-Smith et al. 2021, tightest near `t_star`.

    Parameters
    ----------
    t : samples seen, any shape, above zero
    s : standard deviation that one independent sample would have, broadcast against t
    """
    t = np.asarray(t, float)
    rho2 = (-2 * np.log(ALPHA) + np.log(-2 * np.log(ALPHA) + 1)) / t_star
    grown = t * rho2 + 1
    return s * np.sqrt(2 * grown / (t**2 * rho2) * np.log(np.sqrt(grown) / ALPHA))


# ---- one series


def autocorrelation_time(y: np.ndarray) -> float:
    """Return the autocorrelation time in samples, by Geyer's initial positive monotone sequence (1992, 3.3).

    A constant series has nothing to correlate: 1. Fewer than 4 samples: NaN. Alternating series may come
    out below 1; the floor 1 / log10(T) keeps the effective samples finite (Vehtari et al. 2021).
    """
    if y.size < 4:
        return np.nan
    if _is_constant(y):
        return 1.0
    about = y - y.mean()
    rho = correlate(about, about)[y.size - 1 :] / (about @ about)
    pairs = np.minimum.accumulate(rho[: y.size // 2 * 2].reshape(-1, 2).sum(axis=1))
    return float(max(2 * pairs[pairs > 0].sum() - 1, 1 / np.log10(y.size)))


def _is_constant(y: np.ndarray) -> bool:
    return bool(np.ptp(y) <= 1e-12 * abs(y.mean()))


def effective_samples(y: np.ndarray) -> float:
    """Return how many independent samples a series is worth: T / tau, and never more than T."""
    return min(y.size / autocorrelation_time(y), y.size) if y.size >= 4 else 0.0


def batch_means(y: np.ndarray, batches: int) -> np.ndarray:
    """Return the means of equal stretches; what does not divide is left out where a run is furthest from steady."""
    return y[y.size % batches :].reshape(batches, -1).mean(axis=1)


def mser5(y: np.ndarray) -> int:
    """Return how many leading samples are transient, by MSER-5 (White 1997).

    The cut has the least squared standard error of what is left, over batches of 5 and up to half of the
    series. Under 10 samples nothing can be judged: 0.
    """
    if y.size < 10 or _is_constant(y):
        return 0
    means = y[: y.size // 5 * 5].reshape(-1, 5).mean(axis=1)
    errors = [means[cut:].var() / (means.size - cut) for cut in range(means.size // 2 + 1)]
    return 5 * int(np.argmin(errors))


# ---- the mean of a run


def level_of(name: str, y: np.ndarray) -> dict[str, Any]:
    """Return the mean of a stretch as `name`, its 95 % interval as `name`_lo and `name`_hi, and se.

    From 10 batch means by t with 9 degrees of freedom; NaN of fewer than 30 independent samples.
    """
    is_short, mean = effective_samples(y) < MIN_EFFECTIVE, y.mean() if y.size else np.nan
    se = np.nan if is_short else batch_means(y, BATCHES).std(ddof=1) / BATCHES**0.5
    lo, hi = interval(mean, se, BATCHES - 1)
    return {name: mean, f"{name}_lo": lo, f"{name}_hi": hi, "se": se}


def mean_interval(series: pd.DataFrame, metric: str = "iops") -> pd.DataFrame:
    """Return the mean of each run with its 95 % interval, as `level_of` has it.

    Parameters
    ----------
    series : the `series` table (run, host, ddir, t_s, iops, bw_bytes, lat_ns)

    Returns
    -------
    DataFrame : a row a run: its keys, seconds (samples used), mean, mean_lo, mean_hi, se, tau (in
        samples), n_eff, warnings (``too-short``: n_eff < 30, then mean_lo, mean_hi and se are NaN)
    """
    require_columns(series, ["t_s", metric, *(["iops"] if metric.endswith("lat_ns") else [])])
    if series["t_s"].isna().any():
        raise ValueError("series: t_s is missing in some rows; every row needs its second")
    keys, rows = run_columns(series), []
    for key, run in groups_of(series, keys):
        total, codes = _fleet(run, metric)
        y = total.dropna().to_numpy(float)
        row = level_of("mean", y) | {"seconds": y.size, "tau": autocorrelation_time(y)}
        own = "too-short" if np.isnan(row["se"]) else "no-variation" if row["se"] == 0 else ""
        rows.append(key | row | {"warnings": join_codes(own, *codes)})
    return pd.DataFrame(rows, columns=[*keys, "seconds", "mean", "mean_lo", "mean_hi", "se", "tau", "warnings"])


def run_columns(*tables: pd.DataFrame) -> list[str]:
    """Return the columns that tell one run from another, of those that all tables have; none means a single run."""
    return [c for c in ("run", *KEYS, *FACTORS) if all(c in table for table in tables)]


def runs_of(table: pd.DataFrame | None, keys: Sequence[str]) -> dict[tuple, pd.DataFrame]:
    """Return the rows of each run by its values of `keys`; none of no table. A missing value is None, as NaN is not
    equal to itself."""
    if table is None or table.empty:
        return {}
    runs = groups_of(table, keys)
    return {tuple(None if pd.isna(key) else key for key in place.values()): rows for place, rows in runs}


def _fleet(run: pd.DataFrame, metric: str) -> tuple[pd.Series, list[str]]:
    """Return one series of a run, on the seconds that all of its writers have, and codes of what is cut.

    Rates are summed over hosts, jobs and directions, latency is averaged by IOPS. A host that died early
    cuts the run short for all: its share cannot be made up. NaN in a second that some writer lacks.
    """
    run = run.assign(writer=numbered(run, [c for c in PARTS if c in run]))
    for second in run.loc[run.duplicated(["t_s", "writer"]), "t_s"]:
        raise ValueError(f"series holds second {second} twice: two runs without a key, or a log read twice")
    cells = run.set_index(["t_s", "writer"])
    wide = cells[metric].unstack()
    there = wide.notna()
    is_common = (there.cummax() & there[::-1].cummax()).all(axis=1)
    rates = wide[is_common]
    if metric.endswith("lat_ns"):
        weight = cells["iops"].unstack()[is_common]
        rates = rates.where(weight != 0, 0) * weight.div(weight.sum(axis=1).replace(0, np.nan), axis=0)
    total = rates.sum(axis=1, skipna=False)
    if total.empty:
        return total, ["no-run"]
    steps = np.diff(total.index)
    is_cut = len(total) < 0.95 * len(wide) or total.isna().any() or (steps > 1.5 * np.median(steps)).any()
    is_silent = metric != "lat_ns" and (total == 0).any()
    return total, [code for code, is_so in (("cut", is_cut), ("silent", is_silent)) if is_so]
