"""A simulator of campaigns: what a storage system does to a measurement, with the truth known.

Arrays of shape (replicates, ...) throughout, so that a thousand campaigns cost one call. Levels are relative to the
true mean. Nothing here imports the code under test.
"""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter
from scipy.stats import norm


def reference_series() -> np.ndarray:
    """The series S of METHODS section 5: AR(1) noise of 3 % on 100 000, 600 values, the same on every machine."""
    x, z = 12345, []
    for _ in range(600):
        x = (1103515245 * x + 12345) % 2**31
        z.append(norm.ppf((x + 0.5) / 2**31))
    return 1e5 * (1 + 0.03 * lfilter([0.6], [1, -0.8], [z[0] / 0.6, *z[1:]]))


def ar1(rng: np.random.Generator, shape: tuple[int, ...], tau: float) -> np.ndarray:
    """Stationary AR(1) of unit variance with integrated autocorrelation time `tau`, along the last axis."""
    phi = (tau - 1) / (tau + 1)
    noise = rng.standard_normal(shape)
    noise[..., 1:] *= np.sqrt(1 - phi**2)
    return lfilter([1], [1, -phi], noise, axis=-1)


def seconds(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    mean: float = 1e5,
    cv: float = 0.05,
    tau: float = 5,
    outliers: float = 0.0,
    second_level: float = 1.0,
    dwell_s: int = 30,
    rise: float = 0.0,
) -> np.ndarray:
    """Per-second rates of runs, shape (..., T): AR(1) noise, then what else goes wrong.

    outliers: share of seconds that stall to a tenth; second_level: level of the other regime, held for dwell_s at a
    time; rise: linear change over the run, relative to its start.
    """
    t = np.arange(shape[-1])
    y = mean * (1 + cv * ar1(rng, shape, tau)) * (1 + rise * t / shape[-1])
    y = y * np.where(t // dwell_s % 2, second_level, 1.0)
    return np.where(rng.random(shape) < outliers, 0.1 * y, y)


def runs(
    rng: np.random.Generator, shape: tuple[int, ...], sd: float = 0.01, outliers: float = 0.0, factor: float = 0.7
) -> np.ndarray:
    """Lognormal level of each run around 1; a share of them fails to reach it by `factor`."""
    level = np.exp(sd * rng.standard_normal(shape))
    return np.where(rng.random(shape) < outliers, factor * level, level)


def slow_drift(rng: np.random.Generator, starts_s: np.ndarray, sd: float = 0.02, tau_s: float = 4 * 3600) -> np.ndarray:
    """What the hours do to a whole testbed: an Ornstein-Uhlenbeck path read at the runs' start times.

    starts_s : shape (replicates, runs); returns the same shape, level around 1.
    """
    step = 300.0
    cells = int(starts_s.max() / step) + 2
    path = ar1(rng, (starts_s.shape[0], cells), tau=2 * tau_s / step)
    return np.exp(sd * np.take_along_axis(path, (starts_s / step).astype(int), axis=-1))


def starts(order: str, run_s: float, cells: int, repeats: int, replicates: int, rng: np.random.Generator) -> np.ndarray:
    """Start times of every run of two systems, shape (replicates, system, cell, repeat).

    `back-to-back`: one system after the other, a cell's repeats in a row. `blocks`: each block visits every cell of
    both systems in random order.
    """
    per_block = 2 * cells
    if order == "back-to-back":
        slot = np.arange(per_block * repeats).reshape(1, 2, cells, repeats).repeat(replicates, axis=0)
    else:
        visit = rng.permuted(np.tile(np.arange(per_block), (replicates, repeats, 1)), axis=-1)
        slot = (visit + per_block * np.arange(repeats)[None, :, None]).transpose(0, 2, 1)
        slot = slot.reshape(replicates, 2, cells, repeats)
    return slot * run_s
