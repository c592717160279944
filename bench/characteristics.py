"""What a comparison is worth, simulated: coverage, false finds and power of the campaigns that can be run, and noisy
cells.

Both tables, roughly, in half a minute; noisy cells as docs/METHODS.md has them; and the committed table of designs:

    .venv/bin/python bench/characteristics.py
    .venv/bin/python bench/characteristics.py --draws 4000 --designs 0
    .venv/bin/python bench/characteristics.py data/samples/characteristics.csv --draws 0 --designs 60

Nothing is measured, so the tables are the same on every machine. docs/METHODS.md section 7 says what they mean.
"""

import argparse
from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
from scipy.signal import lfilter
from scipy.special import stdtrit

from hcilib.analyse.compare.cells import UNSTABLE
from hcilib.analyse.compare.contrast import (
    CONFIDENCE,
    benjamini_hochberg,
    contrast,
    guarded_variances,
    judge,
    two_sided,
)

CAMPAIGNS = [  # cells, runs, cv of a and b in percent, how unlike the spreads of the cells are (sd of their logs)
    (2, 3, 20, 20, 0.0), (2, 5, 20, 20, 0.0), (3, 3, 20, 20, 0.0), (3, 5, 20, 20, 0.0), (4, 3, 20, 20, 0.0),
    (4, 5, 20, 20, 0.0), (6, 3, 20, 20, 0.0), (6, 5, 20, 20, 0.0), (28, 3, 20, 20, 0.0), (28, 5, 20, 20, 0.0),
    (28, 3, 2, 20, 0.0), (28, 5, 2, 20, 0.0), (3, 5, 5, 5, 0.7), (4, 3, 5, 5, 0.7), (4, 5, 5, 5, 0.7),
    (28, 3, 5, 5, 0.7), (28, 5, 5, 5, 0.7),
]  # fmt: skip


def noisy_cells(draws: int, campaigns: Sequence[tuple] = CAMPAIGNS, seed: int = 0) -> pd.DataFrame:
    """Campaigns of two equal systems whose cells are noisy: how often the 95 % interval holds the truth, over all cells
    and over those that look calm although a side of theirs is not, and the share of campaigns that find anything."""
    rng = np.random.default_rng(seed)
    rows = []
    for cells, runs, cv_a, cv_b, unlike in campaigns:
        row = {"cells": cells, "n": runs, "cv_a": cv_a, "cv_b": cv_b, "unlike": unlike}
        spread = np.log1p(np.array([cv_a, cv_b])[:, None, None] / 100) * np.exp(
            unlike * rng.standard_normal((2, draws, cells))
        )
        logs = spread[..., None] * rng.standard_normal((2, draws, cells, runs))
        variance, means = logs.var(axis=-1, ddof=1), logs.mean(axis=-1)
        calm = (variance < UNSTABLE**2).all(axis=0) & (spread > UNSTABLE).any(axis=0)
        guarded = _guarded(variance, runs)
        for rule, used in {"guarded": guarded, "own": variance}.items():
            judged = _judged(means[1] - means[0], used / runs, variance / runs, runs, calm)
            row |= {f"{name}_{rule}": value for name, value in judged.items()}
        rows.append(row | {"calm_cells": int(calm.sum())})
    return pd.DataFrame(rows)


def _guarded(variance: np.ndarray, runs: int) -> np.ndarray:
    """What `compare` makes of the variances of each campaign and system, an array of shape (systems, campaigns,
    cells)."""
    cells = variance.shape[-1]
    n, one_system, none_flat = np.full(cells, runs), np.zeros(cells, int), np.zeros(cells, bool)
    campaigns = variance.reshape(-1, cells)
    return np.stack([guarded_variances(own, n, one_system, none_flat) for own in campaigns]).reshape(variance.shape)


def _judged(ratio: np.ndarray, error: np.ndarray, own: np.ndarray, runs: int, calm: np.ndarray) -> dict[str, float]:
    """`error`: the squared standard error of each side's mean; `own`: by its own runs alone, whose freedom it has."""
    both = error.sum(axis=0)
    df = own.sum(axis=0) ** 2 * (runs - 1) / (own**2).sum(axis=0)
    covers = np.abs(ratio) <= stdtrit(df, 0.975) * np.sqrt(both)
    p = two_sided(ratio, np.sqrt(both), df)
    finds = [bool((benjamini_hochberg(own) <= 0.05).any()) for own in p]
    return {"coverage": covers.mean(), "calm": covers[calm].mean() if calm.any() else np.nan, "any": np.mean(finds)}


CELLS, MARGIN = 6, 0.05
"""Cells of every simulated campaign, and the margin of equivalence of all."""
DRIFT_STEP_S = 300


def characteristics(
    runs: Sequence[int] = (3, 5, 8),
    cv_pct: Sequence[float] = (1, 2, 5, 10, 20),
    drift_cv_pct: Sequence[float] = (0, 2),
    draws: int = 200,
) -> pd.DataFrame:
    """What `compare` is worth in the campaigns that can be run: two systems side by side, or one after the other.

    Parameters
    ----------
    cv_pct : spread of runs, of both systems; drift_cv_pct : of the testbed; it takes 4 h

    Returns
    -------
    design (pairs, apart), drift_cv_pct, cv_pct, runs, cells, n (campaigns), coverage (of the 95 % interval),
    calm_coverage (of cells whose runs spread by half of what is true or less; NaN below 50 of them), false_per_cell,
    false_per_grid (share of campaigns of equal systems that find anything), power (where the true ratio is 0.9; all
    else is of equal systems), half_width_pct (median), confidence.
    """
    rng = np.random.default_rng(0)
    rows = []
    for drift, cv, n, design in product(drift_cv_pct, cv_pct, runs, ("pairs", "apart")):
        start_s = schedule(design, np.full(CELLS, 300.0), n, draws, rng)
        sd = np.log1p(cv / 100)
        logs = sd * rng.standard_normal(start_s.shape) + drift_levels(start_s, drift, 4.0, rng)
        found = pd.concat([_campaign(own, design, sd) for own in logs], keys=range(draws), names=["draw"])
        grid = found["false"].groupby(level="draw").any()
        calm = found.loc[found["calm"], "covers"]
        rows.append({
            "design": design, "drift_cv_pct": drift, "cv_pct": cv, "runs": n, "cells": CELLS, "n": draws,
            "coverage": found["covers"].mean(), "calm_coverage": calm.mean() if len(calm) >= 50 else np.nan,
            "false_per_cell": found["false"].mean(), "false_per_grid": grid.mean(), "power": found["seen"].mean(),
            "half_width_pct": 100 * np.expm1(found["half"].median()),
        })  # fmt: skip
    return pd.DataFrame(rows).assign(confidence=CONFIDENCE)


def _campaign(logs: np.ndarray, design: str, sd: float) -> pd.DataFrame:
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

    ``apart``: one system's whole campaign after the other's, each in blocks. ``pairs``: one campaign of both, every
    block visits every cell, both systems side by side.
    """
    if order == "apart":
        one = [_in_blocks(run_s, runs, draws, rng) for _ in range(2)]
        return np.stack([one[0], one[1] + runs * run_s.sum()], axis=1)
    first = rng.integers(0, 2, (draws, len(run_s), runs))  # which system goes first
    pair = _in_blocks(2 * run_s, runs, draws, rng)
    return np.stack([pair + first * run_s[:, None], pair + (1 - first) * run_s[:, None]], axis=1)


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


def _ar1(rng: np.random.Generator, shape: tuple[int, ...], phi: float) -> np.ndarray:
    """Stationary AR(1) of unit variance along the last axis."""
    noise = rng.standard_normal(shape)
    noise[..., 1:] *= np.sqrt(1 - phi**2)
    return lfilter([1], [1, -phi], noise, axis=-1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "out", nargs="?", help="where the table of designs is written, as CSV; printed where none is named"
    )
    options.add_argument("--draws", type=int, default=400, help="campaigns of noisy cells a row; 0: not that table")
    options.add_argument("--designs", type=int, default=5, help="campaigns of each design a row; 0: not that table")
    given = options.parse_args()
    if given.draws:
        print(noisy_cells(given.draws).round(3).to_string(index=False))
    if given.designs:
        table = characteristics(draws=given.designs).round(4)
        if given.out:
            table.to_csv(given.out, index=False)
        else:
            print(table.to_string(index=False))


if __name__ == "__main__":
    main()
