"""Campaigns simulated with the truth known: which interval holds what it promises, and what a protocol really costs.

Two equal systems are measured under one slow drift of the whole testbed; an interval covers when it holds the ratio 1.
Formulas: METHODS sections 1 and 2. Everything is seeded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd
from scipy.signal import lfilter
from scipy.stats import binomtest

from hcilib.analyse.campaigns.design import LOOK_S, Protocol, Workload, protocols_of, workload
from hcilib.analyse.compare.contrast import CONFIDENCE, contrast, critical, half_width, judge
from hcilib.analyse.runs.series import MIN_EFFECTIVE, confidence_sequence, effective_samples, long_run_sd

CELLS, MARGIN = 6, 0.05
"""Cells of every simulated campaign, and the margin of equivalence of all."""
DRIFT_STEP_S = 300
LIBRARY = 1500
"""Adaptive runs simulated second by second; campaigns draw theirs from these."""


def simulate_coverage(
    run_cv_pct: float = 1.0,
    drift_cv_pct: float = 2.0,
    drift_h: float = 4.0,
    runs: Sequence[int] = (3, 5),
    draws: int = 300,
    resamples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how often a 95 % interval contains the truth, by method, with and without a drift of the testbed.

    Parameters
    ----------
    run_cv_pct : spread of lognormal runs, in percent
    drift_cv_pct, drift_h : spread, and time constant in hours, of an Ornstein-Uhlenbeck level that all runs share
    runs : numbers of runs of a cell
    draws : campaigns; resamples : of the bootstrap

    Returns
    -------
    DataFrame
        situation (its label), order (``blocks``, ``back-to-back``, ``apart``: one system after the other in rounds,
        ``pairs``: side by side), drift_cv_pct, runs, method, n (campaigns), coverage, coverage_lo, coverage_hi (95 %,
        over campaigns), half_width_pct (median), nominal, confidence, run_cv_pct
    """
    rng = np.random.default_rng(seed)
    rows = []
    for situation, order, drift in (
        ("no drift", "blocks", 0.0),
        ("drift, back to back", "back-to-back", drift_cv_pct),
        ("drift, one after the other in blocks", "apart", drift_cv_pct),
        ("drift, side by side in pairs", "pairs", drift_cv_pct),
    ):
        for n in runs:
            start_s = schedule(order, np.full(CELLS, 600.0), n, draws, rng)
            logs = run_cv_pct / 100 * rng.standard_normal(start_s.shape) + drift_levels(start_s, drift, drift_h, rng)
            for method, interval in _methods(rng, resamples, order == "pairs").items():
                found = _covered(*interval(logs[:, 0], logs[:, 1]))
                place = {"situation": situation, "order": order, "drift_cv_pct": drift}
                rows.append(place | {"runs": n, "method": method, **found})
    return pd.DataFrame(rows).assign(nominal=CONFIDENCE, confidence=CONFIDENCE, run_cv_pct=run_cv_pct)


def simulate_protocols(
    noise: pd.DataFrame,
    protocols: Mapping[str, Mapping],
    target: float = 0.02,
    drift_cv_pct: float = 2.0,
    drift_h: float = 4.0,
    draws: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """The protocols side by side on the same noise: hours against the error that remains.

    Parameters
    ----------
    noise : as `noise` returns it: its cells, and pooled over them its spread between runs, of one second, and tau_s
    protocols : name -> fields of `Protocol`
    target : half-width at which an adaptive run stops (`stop_when`) and a cell has runs enough (`enough_runs`)

    Returns
    -------
    protocol, order, n (campaigns), runs and run_s (means), hours (running time of both systems), time_ratio (to the
    first protocol), rmse_pct (of the log ratio), coverage of Welch's interval with lo and hi, half_width_pct (median),
    confidence.
    """
    rng = np.random.default_rng(seed)
    found, rows = workload(noise), []
    for protocol in protocols_of(protocols):
        logs, run_s = _campaigns(protocol, found, (drift_cv_pct, drift_h), target, draws, rng)
        used = ~np.isnan(logs)
        d, half = welch(logs[:, 0], logs[:, 1])
        row = {"protocol": protocol.name, "order": protocol.order, "runs": used.sum(-1).mean()}
        row |= {"run_s": run_s[used].mean(), "hours": (run_s * used).sum() / draws / 3600}
        rows.append(row | {"rmse_pct": 100 * np.sqrt((d**2).mean())} | _covered(d, half))
    table = pd.DataFrame(rows)
    table.insert(5, "time_ratio", table["hours"] / table["hours"].iloc[0])
    return table.assign(confidence=CONFIDENCE)


def characteristics(
    runs: Sequence[int] = (3, 5, 8),
    cv_pct: Sequence[float] = (1, 2, 5, 10, 20),
    drift_cv_pct: Sequence[float] = (0, 2),
    draws: int = 200,
) -> pd.DataFrame:
    """What `compare` is worth in the campaigns that can be run: two systems side by side, or one after the other.

    Parameters
    ----------
    cv_pct : spread of runs, of both systems; drift_cv_pct : of the testbed, as in `simulate_coverage`; it takes 4 h

    Returns
    -------
    design (pairs, apart), drift_cv_pct, cv_pct, runs, cells, n (campaigns), coverage (of the 95 % interval),
    calm_coverage (of cells whose runs spread by half of what is true or less; NaN below 50 of them), false_per_cell,
    false_per_grid (share of campaigns of equal systems that find anything), power (where the true ratio is 0.9; all
    else is of equal systems), half_width_pct (median), confidence.
    METHODS section 7.

    Examples
    --------
    >>> found = hci.characteristics(runs=[3], cv_pct=[2], drift_cv_pct=[0], draws=20)
    >>> found[["design", "runs", "cv_pct", "n"]]
      design  runs  cv_pct   n
    0  pairs     3       2  20
    1  apart     3       2  20
    """
    rng = np.random.default_rng(0)
    rows = []
    for drift, cv, n, design in product(drift_cv_pct, cv_pct, runs, ("pairs", "apart")):
        start_s = schedule(design, np.full(CELLS, 300.0), n, draws, rng)
        sd = np.log1p(cv / 100)
        logs = sd * rng.standard_normal(start_s.shape) + drift_levels(start_s, drift, 4.0, rng)
        found = pd.concat([_judged(own, design, sd) for own in logs], keys=range(draws), names=["draw"])
        grid = found["false"].groupby(level="draw").any()
        calm = found.loc[found["calm"], "covers"]
        rows.append({
            "design": design, "drift_cv_pct": drift, "cv_pct": cv, "runs": n, "cells": CELLS, "n": draws,
            "coverage": found["covers"].mean(), "calm_coverage": calm.mean() if len(calm) >= 50 else np.nan,
            "false_per_cell": found["false"].mean(), "false_per_grid": grid.mean(), "power": found["seen"].mean(),
            "half_width_pct": 100 * np.expm1(found["half"].median()),
        })  # fmt: skip
    return pd.DataFrame(rows).assign(confidence=CONFIDENCE)


def calibrated(campaigns: pd.DataFrame) -> pd.DataFrame:
    """What whole campaigns said of drives whose true difference was dialled, by that difference.

    Verdicts are those of today's `judge` on the measured ratios and intervals, not those that were saved: the rule that
    a difference below 0.1 % is none is younger than some campaigns.

    Parameters
    ----------
    campaigns : one row a campaign, as bench/calibrate.py writes them: difference_pct, n (pairs),
    truth, ratio, ratio_lo,
        ratio_hi, held, load_before

    Returns
    -------
    DataFrame
        difference_pct, n (campaigns), different (verdicts higher or lower), equivalent, inconclusive, wrong (verdicts
        that the truth contradicts), held_pct (intervals that hold the truth) with held_pct_lo and held_pct_hi (exact
        binomial),
        half_width_pct (median), off_pct (median distance of the ratio from the truth), load_lo, load_hi (1-minute load
        averages).

    Examples
    --------
    >>> import pandas as pd
    >>> measured = pd.read_csv(hci.ROOT / "data/samples/calibration.csv")
    >>> hci.calibrated(measured)["difference_pct"].tolist()
    [0, 2, 5, 10, 50]
    """
    rows = []
    for difference, own in campaigns.groupby("difference_pct"):
        n, held, verdicts = len(own), int(own["held"].sum()), _judged_again(own)
        larger, smaller = verdicts.eq("higher") & ~own["truth"].gt(1), verdicts.eq("lower") & ~own["truth"].lt(1)
        wrong = larger | smaller | (verdicts.eq("equivalent") & (difference > 100 * MARGIN))
        interval = binomtest(held, n).proportion_ci(CONFIDENCE, method="exact")
        row = {"difference_pct": difference, "n": n, "different": int(verdicts.isin(["higher", "lower"]).sum())}
        row |= {name: int((verdicts == name).sum()) for name in ("equivalent", "inconclusive")}
        row |= {"wrong": int(wrong.sum()), "held_pct": 100 * held / n}
        row |= {"held_pct_lo": 100 * interval.low, "held_pct_hi": 100 * interval.high, "confidence": CONFIDENCE}
        row["half_width_pct"] = float((50 * (own["ratio_hi"] - own["ratio_lo"]) / own["ratio"]).median())
        row["off_pct"] = float((100 * (own["ratio"] / own["truth"] - 1)).abs().median())
        rows.append(row | {"load_lo": own["load_before"].min(), "load_hi": own["load_before"].max()})
    return pd.DataFrame(rows)


def _judged_again(campaigns: pd.DataFrame) -> pd.Series:
    """Verdicts of campaigns of one cell each, from their ratio, the interval of its paired t, and their pairs."""
    n = campaigns["n"].to_numpy(int)
    half = np.log(campaigns["ratio_hi"] / campaigns["ratio_lo"]).to_numpy() / 2
    pair = {"log_ratio": np.log(campaigns["ratio"]).to_numpy(), "se": half / critical(n - 1), "df": n - 1.0}
    table = pd.DataFrame({**pair, "n": n, "n_baseline": n, "unstable": False})
    return judge(table, margin=MARGIN, adjust=None)["verdict"].set_axis(campaigns.index)


def _judged(logs: np.ndarray, design: str, sd: float) -> pd.DataFrame:
    """One campaign of logs (2 systems, cells, runs) through the tests of `compare`: of each cell whether it covers, is
    falsely found, looks calm, and is seen where the true ratio is 0.9."""
    _, cells, n = logs.shape
    flat = logs.reshape(2 * cells, n)
    moments = {"n": n, "log_mean": flat.mean(axis=1), "log_var": flat.var(axis=1, ddof=1)}
    described = pd.DataFrame({"system": np.repeat(["a", "b"], cells), **moments, "unstable": False, "flat": False})
    described["runs"] = pd.Series(list(np.exp(flat)), dtype=object)
    described["partners"] = pd.Series([np.arange(n) if design == "pairs" else np.full(n, -1)] * len(flat), dtype=object)
    here = np.arange(cells)
    pair = contrast(described, here + cells, here, pairs="auto")
    equal = judge(pair, margin=MARGIN, adjust="bh")
    unlike = judge(pair.assign(log_ratio=pair["log_ratio"] + np.log(0.9)), margin=MARGIN, adjust="bh")
    in_pairs, apart = (logs[1] - logs[0]).std(axis=1, ddof=1) / np.sqrt(2), logs.std(axis=2, ddof=1).max(axis=0)
    spread = in_pairs if design == "pairs" else apart
    return pd.DataFrame({
        "covers": (equal["ratio_lo"] <= 1) & (equal["ratio_hi"] >= 1),
        "false": equal["verdict"].isin(["higher", "lower"]),
        "calm": spread <= sd / 2, "seen": unlike["verdict"].eq("lower"),
        "half": np.log(equal["ratio_hi"] / equal["ratio_lo"]) / 2,
    })  # fmt: skip


def schedule(order: str, run_s: np.ndarray, runs: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Start times in seconds, shape (draws, 2 systems, cells, runs), for runs of `run_s` a cell.

    ``back-to-back``: one system after the other, the runs of a cell in a row. ``apart``: one system's whole campaign
    after the other's, each in blocks. ``pairs``: one campaign of both, every block visits every cell, both systems side
    by side. ``blocks``: every block visits every cell of both systems in an order of its own.
    """
    cells = len(run_s)
    if order == "apart":
        one = [_in_blocks(run_s, runs, draws, rng) for _ in range(2)]
        return np.stack([one[0], one[1] + runs * run_s.sum()], axis=1)
    if order == "pairs":
        first = rng.integers(0, 2, (draws, cells, runs))  # which system goes first
        pair = _in_blocks(2 * run_s, runs, draws, rng)
        return np.stack([pair + first * run_s[:, None], pair + (1 - first) * run_s[:, None]], axis=1)
    if order == "back-to-back":
        lasts = np.tile(np.repeat(run_s, runs), 2)
        start = (np.cumsum(lasts) - lasts).reshape(1, 2, cells, runs)
        return np.repeat(start, draws, axis=0)
    return _in_blocks(np.tile(run_s, 2), runs, draws, rng).reshape(draws, 2, cells, runs)


def _in_blocks(run_s: np.ndarray, runs: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Start times of one campaign in blocks, each in an order of its own, shape (draws, cells, runs)."""
    cells = len(run_s)
    visit = rng.permuted(np.tile(np.arange(cells), (draws, runs, 1)), axis=-1)  # which cell stands at a place
    lasts = run_s[visit]
    start = np.empty(visit.shape)
    np.put_along_axis(start, visit, np.cumsum(lasts, axis=-1) - lasts, axis=-1)
    return (start + run_s.sum() * np.arange(runs)[None, :, None]).transpose(0, 2, 1)


def drift_levels(start_s: np.ndarray, cv_pct: float, time_h: float, rng: np.random.Generator) -> np.ndarray:
    """Log level of the testbed at the start times, shape as `start_s`: one Ornstein-Uhlenbeck path for each first
    index."""
    if not cv_pct:
        return np.zeros(start_s.shape)
    at = (start_s / DRIFT_STEP_S).astype(int)
    path = _ar1(rng, (len(start_s), at.max() + 1), np.exp(-DRIFT_STEP_S / (3600 * time_h)))
    level = np.take_along_axis(path, at.reshape(len(at), -1), axis=1).reshape(at.shape)
    return cv_pct / 100 * level


def welch(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log ratio and half-width of its 95 % interval over the last axis of two arrays of logs; NaN is no run."""
    (na, va), (nb, vb) = ((n := (~np.isnan(x)).sum(-1), np.nanvar(x, axis=-1, ddof=1) / n) for x in (a, b))
    df = (va + vb) ** 2 / (va**2 / (na - 1) + vb**2 / (nb - 1))
    return np.nanmean(b, axis=-1) - np.nanmean(a, axis=-1), critical(df) * np.sqrt(va + vb)


def paired(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As `welch`, of runs that stand side by side."""
    d, n = b - a, a.shape[-1]
    return d.mean(axis=-1), half_width(d.std(axis=-1, ddof=1), n)


def _methods(rng: np.random.Generator, resamples: int, pairs: bool = False) -> dict[str, Callable]:
    def normal(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        se = np.sqrt((a.var(-1, ddof=1) + b.var(-1, ddof=1)) / a.shape[-1])
        return b.mean(-1) - a.mean(-1), 1.96 * se

    def bootstrap(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # The share of every run in a resample is the same for all cells: runs are independent, so this loses nothing.
        n = a.shape[-1]
        share = rng.multinomial(n, np.full(n, 1 / n), (2, resamples)) / n
        lo, hi = np.quantile(b @ share[1].T - a @ share[0].T, [0.025, 0.975], axis=-1)
        return (lo + hi) / 2, (hi - lo) / 2

    found = {"Welch t on logs": welch, "bootstrap": bootstrap, "mean ± 1.96 se": normal}
    return found | ({"paired t on logs": paired} if pairs else {})


def _covered(d: np.ndarray, half: np.ndarray) -> dict[str, float]:
    """Coverage over campaigns: its cells share a drift, so the campaign and not the cell is what was drawn."""
    share = (np.abs(d) <= half).mean(axis=-1)
    error = 1.96 * share.std(ddof=1) / np.sqrt(len(share))
    return {
        "n": len(share), "coverage": share.mean(),
        "coverage_lo": share.mean() - error, "coverage_hi": min(1.0, share.mean() + error),
        "half_width_pct": 100 * np.expm1(np.median(half)),
    }  # fmt: skip


def _campaigns(
    protocol: Protocol, found: Workload, drift: tuple[float, float], target: float, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Logs of every run and its seconds, both (draws, 2, cells, runs); NaN where a run was no longer needed."""
    (between, second, tau_s, writes), most = found, protocol.most_runs or protocol.runs
    shape = (draws, 2, len(writes), most)
    logs, run_s = np.empty(shape), np.empty(shape)
    for w in set(writes.tolist()):
        at, longest = writes == w, protocol.longest_s(w)
        part = (draws, 2, int(at.sum()), most)
        if protocol.first_s is None:
            logs[:, :, at], run_s[:, :, at] = second / np.sqrt(longest) * rng.standard_normal(part), longest
        else:
            stopped, mean = _stopped_early(second, tau_s, protocol.first_s, int(longest), target, rng)
            drawn = rng.integers(0, len(mean), part)
            logs[:, :, at], run_s[:, :, at] = np.log(mean[drawn]), stopped[drawn]
    start_s = schedule(protocol.order, run_s.mean(axis=(0, 1, 3)), most, draws, rng)
    logs += between * rng.standard_normal(shape) + drift_levels(start_s, *drift, rng)
    return _until_enough(logs, protocol, target), run_s


def _stopped_early(second: float, tau_s: float, first_s: float, longest: int, target: float, rng: np.random.Generator):
    """`stop_when` on LIBRARY series of AR(1) seconds around 1: when each stops, and its mean by then."""
    phi = (tau_s - 1) / (tau_s + 1)
    y = 1 + second / np.sqrt(tau_s) * _ar1(rng, (LIBRARY, longest), phi)
    stopped, mean = np.full(LIBRARY, float(longest)), y.mean(axis=-1)
    running = np.arange(LIBRARY)
    for t in range(int(first_s), longest, LOOK_S):
        seen = y[running, :t]
        level = seen.mean(axis=-1)
        known = confidence_sequence(t, long_run_sd(seen)) <= target * level
        stop = known & (effective_samples(seen) >= MIN_EFFECTIVE)
        stopped[running[stop]], mean[running[stop]] = t, level[stop]
        running = running[~stop]
    return stopped, mean


def _until_enough(logs: np.ndarray, protocol: Protocol, target: float) -> np.ndarray:
    """NaN from the run on at which the t interval of a cell's mean (`enough_runs`) was within target."""
    logs = logs.copy()
    enough = np.zeros(logs.shape[:-1], bool)
    for n in range(protocol.runs, logs.shape[-1]):
        half = np.expm1(half_width(logs[..., :n].std(axis=-1, ddof=1), n))
        enough |= half <= target
        logs[enough, n] = np.nan
    return logs


def _ar1(rng: np.random.Generator, shape: tuple[int, ...], phi: float) -> np.ndarray:
    """Stationary AR(1) of unit variance along the last axis."""
    noise = rng.standard_normal(shape)
    noise[..., 1:] *= np.sqrt(1 - phi**2)
    return lfilter([1], [1, -phi], noise, axis=-1)
