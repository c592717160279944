"""Months of campaigns: how often nothing is taken for a change, how often a change is found, and one that is known.

    .venv/bin/python bench/history.py                          histories simulated: about 15 minutes
    .venv/bin/python bench/history.py --draws 50               the same, roughly
    .venv/bin/python bench/history.py --only nights            `hci check` after every night alone: 8 minutes
    .venv/bin/python bench/history.py --lab data/runs/history  30 campaigns of the lab, the drives slower from number 19

Simulated tables go to data/samples/history_alarms.csv, history_power.csv and history_nights.csv, with fixed
seeds. The lab's campaigns go to data/samples/history.csv, as `hci.history` reads them. docs/METHODS.md
section 12 and docs/GUIDE.md say what they mean.

Columns of history_alarms.csv: noise, campaigns, histories, cells, alarms_pct (histories in which any cell shows a
change). Of history_power.csv: noise, campaigns, noise_pct (between campaigns), step_pct, cells (that changed),
found_pct (within two campaigns of the truth), false_pct (of all changes found, those in cells without one). Of
history_nights.csv, where nothing changes: noise, nights, histories, cells, exit_pct (histories in which `hci check`
showed a loss by then, if it ran after every night), exit_size_pct (in which the loss was of --size, 5 %).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from parts.labs import served

import hcilib as hci
from hcilib.analyse.history import LEAST_CAMPAIGNS, find_levels
from hcilib.measure import run
from hcilib.model.sweeps import sweep
from hcilib.model.system import System

SAMPLES = Path(__file__).resolve().parents[1] / "data" / "samples"
CELLS, RUNS, WITHIN = 28, 5, 0.01
"""A history has so many cells; a campaign has so many runs of each, which repeat within 1 %."""
NOISES, LENGTHS = ("normal", "heavy tails", "autocorrelated", "bad days"), (10, 30, 60, 365)
STEPS_PCT, SPREADS_PCT = (2, 5, 10), (0.5, 2.0, 5.0)
NIGHTS, SIZE = (30, 60, 200, 365), 0.05
LAB_CAMPAIGNS, SLOWER_FROM, SLOWER_BY = 30, 19, 0.12
RATE, DELAY_S, DISK, RUN_S = 2**21, 0.004, 2**24, 1.2
SYSTEM = "lab-single"


def main() -> None:
    asked = arguments()
    if asked.lab:
        measured(asked.lab)
    else:
        for name in [asked.only] if asked.only else TABLES:
            simulate, share = TABLES[name]
            table = simulate(max(10, asked.draws // share))
            table.to_csv(SAMPLES / f"history_{name}.csv", index=False, float_format="%.4g")
            print(table.to_string(index=False), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000, help="histories of each case (default: %(default)s)")
    parser.add_argument("--only", choices=TABLES, help="simulate this table alone")
    parser.add_argument("--lab", type=Path, help="only measure, into this folder; what is there is not measured again")
    return parser.parse_args()


# ---- Simulated


def drawn(rng: np.random.Generator, noise: str, campaigns: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Log means and their standard errors of a history in which nothing changes, of shape (cells, campaigns)."""
    shape = (CELLS, campaigns)
    between = rng.standard_normal(shape)
    if noise == "heavy tails":  # Student's t with 3 degrees of freedom, of unit variance
        between = rng.standard_t(3, shape) / np.sqrt(3)
    elif noise == "autocorrelated":
        for n in range(1, campaigns):
            between[:, n] = 0.3 * between[:, n - 1] + np.sqrt(1 - 0.3**2) * between[:, n]
    elif noise == "bad days":  # one campaign in thirty is 10 to 30 % slower in every cell
        bad = rng.random(campaigns) < 1 / 30
        between += np.where(bad, np.log1p(-rng.uniform(0.1, 0.3, campaigns)) / spread, 0)
    error = WITHIN / np.sqrt(RUNS)
    logs = spread * between + error * rng.standard_normal(shape)
    return logs, error * np.sqrt(rng.chisquare(RUNS - 1, shape) / (RUNS - 1))


def alarms(draws: int, seed: int = 49) -> pd.DataFrame:
    """How many per cent of histories without a change show one in any of their cells."""
    rows = []
    for noise in NOISES:
        for campaigns in LENGTHS:
            rng = np.random.default_rng([seed, campaigns, NOISES.index(noise)])
            shown = 0
            for _ in range(draws):
                logs, errors = drawn(rng, noise, campaigns, 0.02)
                shown += any(len(levels.starts) > 1 for levels in find_levels(logs, errors))
            row = {"noise": noise, "campaigns": campaigns, "histories": draws, "cells": CELLS}
            rows.append(row | {"alarms_pct": 100 * shown / draws})
            print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def power(draws: int, seed: int = 12) -> pd.DataFrame:
    """How many per cent of changed cells are found within two campaigns, half of a history's cells changed at once."""
    rows = []
    for noise, campaigns, step, spread in product(("normal", "autocorrelated"), (30, 60), STEPS_PCT, SPREADS_PCT):
        rng = np.random.default_rng([seed, campaigns, step, round(10 * spread)])
        found, false = 0, 0
        for _ in range(draws):
            at = int(rng.integers(campaigns // 3, 2 * campaigns // 3 + 1))
            logs, errors = drawn(rng, noise, campaigns, spread / 100)
            logs[: CELLS // 2, at:] += np.log1p(-step / 100)
            starts = [levels.starts[1:] for levels in find_levels(logs, errors)]
            found += sum(any(abs(start - at) <= 2 for start in own) for own in starts[: CELLS // 2])
            false += sum(map(len, starts[CELLS // 2 :]))
        row = {"noise": noise, "campaigns": campaigns, "noise_pct": spread, "step_pct": step}
        row |= {"cells": draws * CELLS // 2, "found_pct": 100 * found / (draws * CELLS // 2)}
        rows.append(row | {"false_pct": 100 * false / max(1, found + false)})
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def nights(draws: int, seed: int = 64) -> pd.DataFrame:
    """How many per cent of histories without a change end `hci check` with a loss, if it runs after every night."""
    rows = []
    for noise in ("normal", "autocorrelated"):
        rng = np.random.default_rng([seed, NOISES.index(noise)])
        first = np.array([first_losses(*drawn(rng, noise, NIGHTS[-1], 0.02)) for _ in range(draws)])
        for number in NIGHTS:
            any_loss, large = 100 * (first <= number).mean(axis=0)
            row = {"noise": noise, "nights": number, "histories": draws, "cells": CELLS}
            rows.append(row | {"exit_pct": any_loss, "exit_size_pct": large})
            print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def first_losses(logs: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """The first night at which a newest level is proven worse than the one before it; and worse by SIZE."""
    first = {0.0: np.inf, SIZE: np.inf}
    for night in range(LEAST_CAMPAIGNS, logs.shape[1] + 1):
        moved = [levels for levels in find_levels(logs[:, :night], errors[:, :night]) if len(levels.starts) > 1]
        ratios = [np.exp(levels.level[-1] - levels.level[-2]) for levels in moved]
        loss = 1 - min(ratios, default=1.0)
        first |= {least: min(night, first[least]) for least in first if loss > 0 and loss >= least}
        if np.isfinite(first[SIZE]):
            break
    return first[0.0], first[SIZE]


TABLES = {"alarms": (alarms, 1), "power": (power, 10), "nights": (nights, 10)}
"""Name -> its simulation, and for how many draws it simulates one history."""


# ---- The lab


def measured(folder: Path) -> None:
    """Campaigns of the lab into a folder, one a run directory; then all of them as one table of the samples."""
    folder.mkdir(parents=True, exist_ok=True)
    plan = sweep(
        ["4k-randread", "4k-randwrite"], 3, iodepth=(1, 8), vms=2, read_runtime_s=RUN_S, write_runtime_s=RUN_S,
        ramp_s=0.0, span_bytes=DISK, canary=False, seed=1,
    )  # fmt: skip
    systems = [System(name=SYSTEM, label="Lab: one replica on the other node", scheme="Mirror(1)")]
    for number in range(1, LAB_CAMPAIGNS + 1):
        place = folder / f"c{number:02}"
        if place.exists():
            continue
        rate = round(RATE * (1 - SLOWER_BY)) if number >= SLOWER_FROM else RATE
        work = Path(tempfile.mkdtemp(prefix="hci-history-"))
        try:
            dial = {"read_bytes_per_s": rate, "write_bytes_per_s": rate, "delay_s": DELAY_S}
            with served(system=SYSTEM, disk_bytes=DISK, dial=dial, root=work) as bed:
                results = run(plan, systems, bed, work / "run", progress=False)
            shutil.move(work / "run", place)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        print(place.name, results.groupby(["pattern", "iodepth"])["iops"].mean().round().to_dict(), flush=True)
    table = hci.history(folder)
    table[table["metric"].isin(["iops", "lat_ns"])].to_csv(SAMPLES / "history.csv", index=False, float_format="%.7g")
    print(hci.changes(table).to_string(index=False))


if __name__ == "__main__":
    main()
