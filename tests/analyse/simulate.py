"""A simulator of campaigns: what a storage system does to a measurement, with the truth known.

Arrays of shape (replicates, ...) throughout, so that a thousand campaigns cost one call. Levels are relative to the
true mean. Nothing here imports the code under test.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
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
) -> np.ndarray:
    """Per-second rates of runs, shape (..., T), with AR(1) noise."""
    return mean * (1 + cv * ar1(rng, shape, tau))


def runs(
    rng: np.random.Generator, shape: tuple[int, ...], sd: float = 0.01, outliers: float = 0.0, factor: float = 0.7
) -> np.ndarray:
    """Lognormal level of each run around 1; a share of them fails to reach it by `factor`."""
    level = np.exp(sd * rng.standard_normal(shape))
    return np.where(rng.random(shape) < outliers, factor * level, level)


def cell(iodepth: int = 8, pattern: str = "4k-randread", metric: str = "iops", **systems) -> pd.DataFrame:
    """Results of one test: each system with its runs."""
    rows = [(name, pattern, iodepth, float(run)) for name, runs in systems.items() for run in np.atleast_1d(runs)]
    return pd.DataFrame(rows, columns=["system", "pattern", "iodepth", metric])


def history_of(logs: np.ndarray, **columns) -> pd.DataFrame:
    """A history as `hcilib.history` returns it, of log means of shape (cells, campaigns): c01, c02, ..."""
    cells, nights = logs.shape
    start = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(np.arange(nights), "D")
    known = {
        "campaign": np.tile([f"c{n + 1:02}" for n in range(nights)], cells), "start": np.tile(start, cells),
        "testbed": "lab", "system": "a", "setup": "", "pattern": "4k-randread",
        "iodepth": np.repeat(np.arange(cells) + 1, nights), "metric": "iops",
        "value": 1000 * np.exp(logs).ravel(), "log_se": 0.001, "n": 3,
        "accepted": False, "valid": True, "warnings": "",
    }  # fmt: skip
    return pd.DataFrame(known | columns)
