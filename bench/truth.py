"""How often an interval holds what is true: answers of the library to systems whose truth is known.

    .venv/bin/python bench/truth.py                       # the tables that docs/METHODS.md prints, on two cores 20 min
    .venv/bin/python bench/truth.py --only load --trials 20
    .venv/bin/python bench/truth.py --save data/samples/truth
    .venv/bin/python bench/truth.py --only cells --trials 10 --save data/samples/truth/few  # and `equivalence`

Fixed seeds: the same tables every time; `make test` makes those of few trials again. `load`: the demand that a latency
limit allows, of one server with Poisson arrivals and constant service (M/D/1), by Lindley's recursion. `cells`: the
ratio of two equal systems in grids of noisy cells. `equivalence`: two systems that differ by exactly the margin in
every cell of a grid.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from characteristics import noisy_cells

import hcilib as hci
from hcilib.analyse.compare.contrast import judge

CAPACITY = 2000.0  # I/Os a second
LEVELS = (0.3, 0.45, 0.6, 0.75, 0.85, 0.92, 0.98)
LIMITS = (0.5, 0.8, 0.95)  # shares of the capacity at which the limit is crossed
RUNS_S = (4, 30, 120, 600)
BLOCKS = 4


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("--only", choices=TABLES, help="one table")
    ask.add_argument("--trials", type=int, default=200)
    ask.add_argument("--save", type=Path, help="folder for the tables as CSV")
    given = ask.parse_args()
    for name in [given.only] if given.only else TABLES:
        table = TABLES[name](given.trials)
        print(f"== {name}", table.to_string(index=False), sep="\n")
        if given.save:
            given.save.mkdir(parents=True, exist_ok=True)
            table.to_csv(given.save / f"{name}.csv", index=False)


# The demand that a latency limit allows


def run_of_server(share: float, seconds: float, draw: np.random.Generator) -> tuple[float, float]:
    """(I/Os a second, p99 in s) of one run that begins with an empty queue."""
    mean = share * CAPACITY * seconds
    arrivals = np.cumsum(draw.exponential(1 / (share * CAPACITY), int(mean + 6 * np.sqrt(mean) + 100)))
    arrivals = arrivals[arrivals < seconds]
    n = len(arrivals)
    backlog = np.arange(n) / CAPACITY - arrivals
    waits = backlog - np.minimum.accumulate(backlog)
    place = int(np.ceil(0.99 * n)) - 1
    return n / seconds, np.partition(waits, place)[place] + 1 / CAPACITY


def true_p99(share: float) -> float:
    """Its p99 in s at this share of its capacity, from eight hours."""
    draw = np.random.default_rng(int(1e4 * share))
    return float(np.mean([run_of_server(share, 1800, draw)[1] for _ in range(16)]))


def campaign(seconds: float, draw: np.random.Generator) -> pd.DataFrame:
    """Results of a campaign of `BLOCKS` blocks, each with the closed-loop maximum and every level."""
    rows = []
    for block in range(1, BLOCKS + 1):
        rows.append((block, None, np.nan, CAPACITY, np.nan))
        for share in LEVELS:
            iops, p99 = run_of_server(share, seconds, draw)
            rows.append((block, f"{share:g}", share * CAPACITY, iops, 1e9 * p99))
    table = pd.DataFrame(rows, columns=["block", "rate_iops", "offered_iops", "iops", "p99_ns"])
    return table.assign(system="M/D/1", pattern="4k-randread", open_loop=True, valid=True, runtime_s=float(seconds))


def load(trials: int, runs_s: Sequence[float] = RUNS_S) -> pd.DataFrame:
    """Share of trials in which `load_within`'s interval holds the true demand, and its median width."""
    limits = {share: 1e9 * true_p99(share) for share in LIMITS}

    def trial(seconds: float, number: int) -> pd.DataFrame:
        results = campaign(seconds, np.random.default_rng([number, int(seconds)]))
        return hci.load_within(results, p99_ns=list(limits.values())).assign(share=list(limits))

    rows = []
    for seconds in runs_s:
        found = pd.concat(_parallel(trial, [(seconds, number) for number in range(trials)]))
        for share, own in found.groupby("share"):
            truth = share * CAPACITY
            numbers = own[own["bound"] == ""]
            rows.append({
                "run_s": seconds,
                "limit_at_pct": 100 * share,
                "trials": len(own),
                "holds": (own["iops_lo"].le(truth) & own["iops_hi"].ge(truth)).mean(),
                "bounds": own["bound"].ne("").mean(),
                "width_pct": (100 * (numbers["iops_hi"] - numbers["iops_lo"]) / truth).median(),
                "bias_pct": 100 * (numbers["iops"].median() / truth - 1),
            })  # fmt: skip
    return pd.DataFrame(rows).round({"holds": 3, "bounds": 2, "width_pct": 1, "bias_pct": 2})


# Two systems in a grid of cells


def cells(trials: int) -> pd.DataFrame:
    """How often an interval holds the true ratio, over all cells and over those that look calm and are not."""
    return noisy_cells(20 * trials).round(3)


def equivalence(trials: int) -> pd.DataFrame:
    """Share of grids in which anything is called the same though every ratio lies at the margin itself."""
    draw, margin, rows = np.random.default_rng(11), 0.05, []
    for n_cells, runs, cv in ((28, 3, 0.01), (28, 5, 0.01), (28, 5, 0.02), (28, 10, 0.02)):
        found = []
        for _ in range(5 * trials):
            logs = cv * draw.standard_normal((2, n_cells, runs))
            variance = logs.var(axis=2, ddof=1) / runs
            pair = pd.DataFrame({
                "log_ratio": logs[1].mean(axis=1) - logs[0].mean(axis=1) + np.log1p(margin),
                "se": np.sqrt(variance.sum(axis=0)), "n": runs, "n_baseline": runs, "unstable": False,
                "df": variance.sum(axis=0) ** 2 * (runs - 1) / (variance**2).sum(axis=0),
            })  # fmt: skip
            ways = {adjust: judge(pair, margin=margin, adjust=adjust)["equivalent"].any() for adjust in ("bh", None)}
            found.append((ways["bh"], ways[None]))
        corrected, alone = np.mean(found, axis=0)
        rows.append({"cells": n_cells, "n": runs, "cv_pct": 100 * cv, "grids": len(found), "any": corrected,
                     "any_uncorrected": alone})  # fmt: skip
    return pd.DataFrame(rows).round(3)


def _parallel(trial: Callable[..., pd.DataFrame], of: Sequence[tuple]) -> list[pd.DataFrame]:
    return joblib.Parallel(n_jobs=-1)(joblib.delayed(trial)(*one) for one in of)


TABLES = {"load": load, "cells": cells, "equivalence": equivalence}


if __name__ == "__main__":
    main()
