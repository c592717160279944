"""How often an interval holds what is true: answers of the library to systems whose truth is known.

    .venv/bin/python bench/truth.py                       # the tables that docs/METHODS.md prints, on two cores 20 min
    .venv/bin/python bench/truth.py --only load --trials 20
    .venv/bin/python bench/truth.py --save data/samples/truth
    .venv/bin/python bench/truth.py --only rule --trials 1 --save data/samples/truth/few

Fixed seeds: the same tables every time; `make test` makes those of few trials again. `load`: the demand that a latency
limit allows, of one server with Poisson arrivals and constant service (M/D/1), by Lindley's recursion. `rule`: false
finds, coverage and power of a comparison of two systems in grids of noisy tests.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import joblib
import numpy as np
import pandas as pd

import hcilib as hci

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


# Two systems in a grid of tests

SCENARIOS = (
    "like",
    "unlike 0.7",
    "unlike 1.0",
    "one in ten noisier",
    "one system noisier",
    "rounds shift 2 %",
)
"""How the logs of runs spread, around a standard deviation of 2 %."""
GRIDS = [(scenario, cells, runs) for scenario in SCENARIOS for runs in (3, 5) for cells in (6, 12, 28)]


def drawn(scenario: str, cells: int, runs: int, draw: np.random.Generator) -> np.ndarray:
    """Logs of runs, of shape systems x tests x runs."""
    logs = 0.02 * draw.standard_normal((2, cells, runs))
    if scenario.startswith("unlike"):
        logs *= np.exp(float(scenario.split()[1]) * draw.standard_normal((2, cells, 1)))
    elif scenario.startswith("one in ten"):
        logs *= np.where(draw.random((2, cells, 1)) < 0.1, 5, 1)
    elif scenario.startswith("one system"):
        logs[1] *= 10
    elif scenario.startswith("rounds"):
        logs += 0.02 * draw.standard_normal((2, 1, runs))
    return logs


def compared(logs: np.ndarray) -> pd.DataFrame:
    """What `compare` says of them, in the order of tests."""
    index = pd.MultiIndex.from_product(map(range, logs.shape), names=["system", "iodepth", "rep"])
    results = index.to_frame(index=False).assign(iops=1e5 * np.exp(logs).ravel())
    results = results.assign(system=results["system"].map({0: "a", 1: "b"}), run_id=results["system"])
    return hci.compare(results, "a", by="iodepth")


def rule(trials: int) -> pd.DataFrame:
    """The table of docs/METHODS 16: false finds and coverage of equal systems, and how often 5 % is found.

    `any`: campaigns with at least one false find; `calm_coverage`: of the third of the tests that spread
    least; `found_pct`: of the tests that differ, which are half of them.
    """

    def trial(scenario: str, cells: int, runs: int, number: int) -> pd.DataFrame:
        draw = np.random.default_rng([number, cells, runs, SCENARIOS.index(scenario)])
        logs, half = drawn(scenario, cells, runs, draw), np.arange(cells) % 2 == 0
        equal, faster = compared(logs), compared(logs + np.array([0, np.log(1.05)])[:, None, None] * half[:, None])
        covers = equal["ratio_lo"].le(1) & equal["ratio_hi"].ge(1)
        spread = pd.Series(logs.var(axis=2, ddof=1).sum(axis=0))
        row = {"scenario": scenario, "cells": cells, "n": runs, "any": equal["verdict"].isin(["higher", "lower"]).any()}
        row |= {"coverage": covers.mean(), "calm_coverage": covers[spread.rank() <= cells / 3].mean()}
        return pd.DataFrame([row | {"found_pct": 100 * faster["verdict"].eq("higher")[half].mean()}])

    found = pd.concat(_parallel(trial, [(*grid, number) for grid in GRIDS for number in range(trials)]))
    table = found.groupby(["scenario", "cells", "n"], sort=False).mean().round({"found_pct": 1})
    return table.round(3).assign(campaigns=trials).reset_index()


def _parallel(trial: Callable[..., pd.DataFrame], of: Sequence[tuple]) -> list[pd.DataFrame]:
    return joblib.Parallel(n_jobs=-1)(joblib.delayed(trial)(*one) for one in of)


TABLES = {"load": load, "rule": rule}


if __name__ == "__main__":
    main()
