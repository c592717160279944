"""Inside a run: the fleet's rate second by second, its mean with an interval, and whether it stands still.

Seconds are not replicates: they say how well one run's mean is known, never how well the system's is. METHODS section
2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from hcilib.analyse.runs.stopping import (
    MIN_EFFECTIVE,
    MIN_LEVELS,
    ROUNDS,
    autocorrelation_time,
    batch_means,
    mser5,
    round_means,
    snia_steady,
    two_levels,
)
from hcilib.caveats import Caveat, Caveats
from hcilib.metrics import FACTORS, KEYS

BATCHES = 10
DRIFT_PCT = 5.0
PARTS = ("host", "hostname", "port", "job", "jobname", "ddir")
"""Columns that tell the writers of a fleet's series apart; all that are present are summed over."""


def mean_interval(series: pd.DataFrame, confidence: float = 0.95, metric: str = "iops") -> pd.DataFrame:
    """Mean of each run with its interval, from 10 batch means.

    Parameters
    ----------
    series : the `series` table (run, host, ddir, t_s, iops, bw_bytes, lat_ns), or one run's rates as an array

    Returns
    -------
    One row per run: its keys, n (always 1: seconds are not runs), seconds (samples used), mean, lo, hi, se, tau (in
    samples), n_eff, confidence, verdict (`ok` or `run too short`: n_eff < 30, then lo, hi and se are NaN), warnings.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"mean_interval: confidence is {confidence}, expected a probability such as 0.95")
    columns = ["n", "seconds", "mean", "lo", "hi", "se", "tau", "n_eff", "confidence", "verdict", "warnings"]
    return _per_run(series, metric, columns, lambda t, y: _interval(y, confidence))


def _interval(y: np.ndarray, confidence: float) -> dict:
    mean = float(y.mean()) if y.size else np.nan
    tau = autocorrelation_time(y)
    n_eff = y.size / tau
    short = not min(n_eff, y.size) >= MIN_EFFECTIVE
    se = np.nan if short else float(batch_means(y, BATCHES).std(ddof=1) / BATCHES**0.5)
    half = stdtrit(BATCHES - 1, (1 + confidence) / 2) * se
    worth = f", worth {n_eff:.0f} independent ones" if n_eff < y.size else ""
    warnings = []
    if short:
        warnings.append(Caveat("too-short", f"run too short: {y.size} samples{worth}, needs {MIN_EFFECTIVE}"))
    if se == 0:
        warnings.append(Caveat("no-variation", "no variation between batches: a rate cap or a copied value"))
    return {
        "n": 1, "seconds": y.size, "mean": mean, "lo": mean - half, "hi": mean + half, "se": se, "tau": tau,
        "n_eff": n_eff, "confidence": confidence, "verdict": "run too short" if short else "ok", "warnings": warnings,
    }  # fmt: skip


def stationarity(series: pd.DataFrame, metric: str = "iops", round_s: float | None = None) -> pd.DataFrame:
    """Does each run stand still: drift, SNIA steady state, transient at the start, two regimes.

    Parameters
    ----------
    series : the `series` table, or one run's rates as an array
    round_s : length of an SNIA round; by default a fifth of the run, at most the standard's 300 s

    Returns
    -------
    One row per run: its keys, seconds, mean, drift_pct (second half against first), drift (beyond 5 %;
    <NA> under 10 samples), round_s, steady
    (the last five rounds; <NA> if there are fewer), steady_from_s (since the run began; NaN if never), mser_truncate_s,
    mser_mean, regimes (<NA> below 100 samples), low and high (their levels), warnings.
    """
    if round_s is not None and not round_s > 0:
        raise ValueError(f"stationarity: round_s is {round_s}, expected seconds above zero")
    columns = ["seconds", "mean", "drift_pct", "drift", "round_s", "steady", "steady_from_s", "mser_truncate_s",
               "mser_mean", "regimes", "low", "high", "warnings"]  # fmt: skip
    table = _per_run(series, metric, columns, lambda t, y: _stands_still(t, y, round_s))
    return table.astype({"drift": "boolean", "steady": "boolean", "regimes": "boolean"})


def _stands_still(t: np.ndarray, y: np.ndarray, round_s: float | None) -> dict:
    half = y.size // 2
    first, second = (y[:half].mean(), y[half:].mean()) if half else (np.nan, np.nan)
    drift_pct = 100 * (second / first - 1) if first > 0 and y.size >= 10 else np.nan
    cut, mser_mean = mser5(y)
    levels = two_levels(y)
    return {
        "seconds": y.size, "mean": y.mean() if y.size else np.nan,
        "drift_pct": drift_pct, "drift": abs(drift_pct) > DRIFT_PCT if drift_pct == drift_pct else pd.NA,
        **_steady_state(t, y, round_s),
        "mser_truncate_s": t[cut] - t[0] if y.size >= 10 else np.nan, "mser_mean": mser_mean,
        "regimes": levels is not None if y.size >= MIN_LEVELS else pd.NA,
        "low": levels[0] if levels else np.nan, "high": levels[1] if levels else np.nan,
        "warnings": _complaints(drift_pct, cut, y.size, levels),
    }  # fmt: skip


def _steady_state(t: np.ndarray, y: np.ndarray, round_s: float | None) -> dict:
    step = float(np.median(np.diff(t))) if y.size > 1 else 1.0
    samples = max(1, min(y.size // ROUNDS, int(300 / step)) if round_s is None else round(round_s / step))
    rounds = round_means(y, samples)
    starts = snia_steady(rounds)
    known = rounds.size >= ROUNDS
    return {
        "round_s": samples * step if y.size else np.nan,
        "steady": bool(starts.size and starts[-1] == rounds.size - ROUNDS) if known else pd.NA,
        "steady_from_s": t[starts[0] * samples] - t[0] if starts.size else np.nan,
    }


def _complaints(drift_pct: float, cut: int, n: int, levels: tuple[float, float] | None) -> list[Caveat]:
    said = []
    if abs(drift_pct) > DRIFT_PCT:
        said.append(Caveat("drift", f"drift: the second half is {drift_pct:+.1f} % from the first"))
    if n >= 10 and cut >= n // 10 * 5:
        said.append(Caveat("no-level", "no level found: MSER-5 would cut half of the run"))
    if levels:
        said.append(Caveat("regimes", f"two regimes: {levels[0]:,.0f} and {levels[1]:,.0f}"))
    return said


def fleet(series: pd.DataFrame, metric: str = "iops") -> pd.DataFrame:
    """One series per run: summed over hosts, jobs and directions, on the seconds all of them have.

    Latency is averaged by IOPS instead of summed. A host that died early cuts the run short for all: its share cannot
    be made up. `mean_interval` and `stationarity` say in their warnings what was cut.

    Returns
    -------
    The run's keys, t_s, `metric` (NaN in a second some writer lacks), ascending in t_s.
    """
    frames = [total.rename(metric).reset_index().assign(**key) for key, total, _ in _runs(series, metric)]
    if not frames:
        return pd.DataFrame(columns=[*run_columns(series), "t_s", metric])
    table = pd.concat(frames, ignore_index=True)
    return table[[c for c in table if c not in ("t_s", metric)] + ["t_s", metric]]


def run_columns(table: pd.DataFrame) -> list[str]:
    """The columns that tell one run from another, of those the table has; none means it holds a single run."""
    return [c for c in ("run", "step_id", *KEYS, *FACTORS) if c in table]


def _per_run(series: pd.DataFrame, metric: str, columns: list[str], judge: Callable) -> pd.DataFrame:
    """One row per run from `judge(t, y)`, its `warnings` joined to those of the summing."""
    rows = []
    for key, total, cut in _runs(series, metric):
        known = total.dropna()
        row = judge(known.index.to_numpy(float), known.to_numpy(float))
        rows.append(key | row | {"warnings": Caveats([*row["warnings"], *cut])})
    keys = run_columns(series) if isinstance(series, pd.DataFrame) else []
    return pd.DataFrame(rows, columns=[*keys, *columns])


def _runs(series: pd.DataFrame, metric: str) -> Iterator[tuple[dict, pd.Series, list[Caveat]]]:
    """Each run's keys, its fleet series indexed by t_s, and what was wrong with it."""
    table = _checked(series, metric)
    keys = run_columns(table)
    for key, run in table.groupby(keys, dropna=False, sort=False) if keys else [((), table)]:
        total, warnings = _summed(run, metric)
        yield dict(zip(keys, key, strict=True)), total, warnings


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


def _summed(run: pd.DataFrame, metric: str) -> tuple[pd.Series, list[Caveat]]:
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
        none = Caveat("no-run", "some host has no second at all: nothing can be summed")
        return wide.sum(axis=1, skipna=False).iloc[:0], [none]
    common = wide.loc[max(first for first, _ in ends) : min(last for _, last in ends)]
    if metric.endswith("lat_ns"):
        weight = table["iops"].unstack("writer").loc[common.index]
        total = common.where(weight != 0, 0).mul(weight).sum(axis=1, skipna=False) / weight.sum(axis=1).replace(
            0, np.nan
        )
    else:
        total = common.sum(axis=1, skipna=False)
    return total, _gaps(wide, total, metric)


def _gaps(wide: pd.DataFrame, total: pd.Series, metric: str) -> list[Caveat]:
    said = []
    if len(total) < 0.95 * len(wide):
        common = f"only {len(total)} of {len(wide)} seconds are common to all {wide.shape[1]} writers"
        said.append(Caveat("cut", common))
    steps = np.diff(total.index.to_numpy(float))
    lost = int(np.rint(steps / np.median(steps) - 1).sum()) if steps.size else 0
    if lost + total.isna().sum():
        said.append(Caveat("cut", f"{lost + total.isna().sum()} seconds lack a writer and are left out"))
    if metric != "lat_ns" and (total == 0).any():
        said.append(Caveat("silent", f"{(total == 0).sum()} seconds without any I/O"))
    return said
