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

import numpy as np
import pandas as pd
from scipy.special import stdtrit

import hcilib as hci
from hcilib.analyse.compare.cells import UNSTABLE
from hcilib.analyse.compare.contrast import benjamini_hochberg, guarded_variances, two_sided

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
        table = hci.characteristics(draws=given.designs).round(4)
        if given.out:
            table.to_csv(given.out, index=False)
        else:
            print(table.to_string(index=False))


if __name__ == "__main__":
    main()
