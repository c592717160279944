"""What certainty costs: a campaign's own noise, and how wide the next comparison will be for the hours it takes.

Spreads are standard deviations of log rates, shown in percent. A run's spread has two parts: what its own seconds leave
open, which a longer run shrinks, and what differs from run to run, which only more runs do (METHODS sections 1 and 2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import chdtr, chdtri, gammaln, roots_jacobi

from hcilib.analyse.compare import cells_of
from hcilib.analyse.rows import as_list, numbered, valid_rows
from hcilib.analyse.series import MIN_EFFECTIVE, confidence_sequence, mean_interval, run_columns
from hcilib.analyse.stats import CONFIDENCE, critical, half_width
from hcilib.model.caveats import add_codes

LOOK_S = 30
"""An adaptive run is looked at every so many seconds (METHODS section 2)."""

ASSURED = 0.9
"""How many of all campaigns are no wider than the assured half-width."""


@dataclass(frozen=True)
class Protocol:
    """How often and how long a cell is run. ``first_s`` given: a run may stop early; ``most_runs``: a cell may get
    more."""

    name: str
    runs: int
    read_s: float
    write_s: float
    order: str = "blocks"
    first_s: float | None = None
    most_runs: int | None = None

    def __post_init__(self) -> None:
        if self.order not in ("blocks", "back-to-back"):
            raise ValueError(f"protocol {self.name!r}: order is {self.order!r}, expected 'blocks' or 'back-to-back'")
        numbers = {"runs - 1": self.runs - 1, "read_s": self.read_s, "write_s": self.write_s}
        for field, value in (numbers | {"first_s": self.first_s or 1}).items():
            if not value > 0:
                raise ValueError(f"protocol {self.name!r}: {field} is {value}, expected more than 0")
        if self.most_runs is not None and self.most_runs < self.runs:
            raise ValueError(f"protocol {self.name!r}: most_runs {self.most_runs} is below runs {self.runs}")

    def longest_s(self, writes: bool) -> float:
        return self.write_s if writes else self.read_s


def protocols_of(declared: Mapping[str, Mapping]) -> list[Protocol]:
    """Protocols from a parameter: name -> its fields. ValueError names the protocol and the field that is wrong."""
    known = [f.name for f in fields(Protocol)][1:]
    for name, given in declared.items():
        for wrong in set(given) - set(known):
            raise ValueError(f"protocol {name!r}: unknown field {wrong!r}; it has {', '.join(known)}")
        for absent in {"runs", "read_s", "write_s"} - set(given):
            raise ValueError(f"protocol {name!r}: {absent} is missing")
    return [Protocol(name, **given) for name, given in declared.items()]


def noise(
    results: pd.DataFrame,
    series: pd.DataFrame | None = None,
    metric: str = "iops",
    by: str | Sequence[str] = ("system", "run_id", "pattern", "iodepth"),
    second_cv_pct: float | None = None,
    between_cv_pct: float | None = None,
    tau_s: float | None = None,
) -> pd.DataFrame:
    """Return the noise of a campaign, cell by cell.

    Parameters
    ----------
    series : per-second rates of the same runs (`read_series`); without them the part of the seconds is unknown
    by : columns that make a cell, run_id among them, as two campaigns differ by more than their runs do
    second_cv_pct, tau_s, between_cv_pct : declared values, used where there is no series, or one run of a cell

    Returns
    -------
    DataFrame
        the by columns, rwmixread, n, runtime_s (median), cv_pct (of one run, on logs) with lo and hi (chi-square),
        within_cv_pct (its part from the run's own seconds), between_cv_pct (the rest: sqrt(max(0, cv^2 - within^2))),
        second_cv_pct (long-run spread of one second), tau_s (its autocorrelation time), runs_basis and seconds_basis
        (``measured``, ``declared`` or ``unknown``), confidence, warnings; NaN where unknown

    Raises
    ------
    ValueError : as `summarize`
    """
    by = as_list(by)
    cells, _ = cells_of(results, metric, by)
    runs = _with_seconds(results, series, metric)
    code = numbered(runs, by)
    usable = valid_rows(runs)
    per_cell = runs[usable].groupby(code[usable])
    seconds = per_cell[["_within2", "_second2", "_tau_s"]].mean().reindex(range(len(cells)))
    seconds["runtime_s"] = per_cell["runtime_s"].median()
    n, variance = cells["n"].to_numpy(), cells["log_var"].to_numpy()
    second2 = seconds["_second2"].fillna(_squared(second_cv_pct)).to_numpy()
    within2 = seconds["_within2"].fillna(pd.Series(second2) / seconds["runtime_s"]).to_numpy()
    between2 = np.where(n > 1, np.maximum(variance - within2, 0), _squared(between_cv_pct))
    table = cells[[*by, *[c for c in ("rwmixread",) if c in cells and c not in by], "n"]].assign(
        runtime_s=seconds["runtime_s"],
        cv_pct=100 * np.sqrt(variance),
        **spread_interval(variance, n - 1.0),
        within_cv_pct=100 * np.sqrt(within2),
        between_cv_pct=100 * np.sqrt(between2),
        second_cv_pct=100 * np.sqrt(second2),
        tau_s=seconds["_tau_s"].fillna(np.nan if tau_s is None else tau_s),
    )
    return table.assign(
        runs_basis=_basis(n > 1, between2),
        seconds_basis=_basis(seconds["_second2"].notna().to_numpy(), second2),
        confidence=CONFIDENCE,
        warnings=add_codes(cells["warnings"], (n < 2, "single-run-spread")),
    )


def pool_noise(noise: pd.DataFrame, by: str | Sequence[str] = ()) -> pd.DataFrame:
    """One noise for many cells: variances averaged by their degrees of freedom, where no single cell has enough of
    them.

    Cells of one run have no variance of their own: they count with what was declared for them, if
    nothing was measured. Returns the by columns, cells, n (runs), df, cv_pct, cv_pct_lo, cv_pct_hi,
    within_cv_pct, between_cv_pct, second_cv_pct, tau_s, confidence.
    """
    by = as_list(by)
    code = numbered(noise, by)
    out = noise[by].groupby(code).first()
    df = (noise["n"] - 1).clip(lower=0)
    measured = df.groupby(code).transform("sum") > 0
    weight = df.where(measured, 1.0)
    mean = {c: _pooled(noise[c], weight, code) for c in ("cv_pct", "within_cv_pct", "second_cv_pct", "between_cv_pct")}
    total, within = mean["cv_pct"].to_numpy(), mean["within_cv_pct"].to_numpy()
    # The parts of the pooled variance, not the pooled parts: cell by cell the difference is cut at 0, which adds up.
    between = np.where(total == total, np.sqrt(np.maximum(total**2 - within**2, 0)), mean["between_cv_pct"])
    freedom = df.groupby(code).sum().to_numpy(float)
    return out.assign(
        cells=noise.groupby(code).size().to_numpy(), n=noise["n"].groupby(code).sum().to_numpy(), df=freedom,
        cv_pct=total, **spread_interval((total / 100) ** 2, freedom), within_cv_pct=within,
        between_cv_pct=between, second_cv_pct=mean["second_cv_pct"].to_numpy(),
        tau_s=noise["tau_s"].groupby(code).mean().to_numpy(), confidence=CONFIDENCE,
    )  # fmt: skip


def precision(
    noise: pd.DataFrame,
    protocols: Mapping[str, Mapping],
    target: float = 0.02,
    runs: Sequence[int] | None = None,
) -> pd.DataFrame:
    """The half-width of a comparison of two systems that each protocol will reach, and its hours, planned from `noise`.

    Parameters
    ----------
    noise : as `noise` returns it: its cells (pattern, iodepth) are the list to be measured on both systems, its
        pooled spread is what is planned with; rwmixread < 100 counts as writing
    protocols : name -> fields of `Protocol`
    target : half-width, relative, at which an adaptive run stops and an adaptive cell has runs enough
    runs : plan with these numbers of runs a cell instead of the protocol's own, one row each

    Returns
    -------
    protocol, order, cells, runs (of a cell), read_s, write_s (a run), hours (running time of both systems, without
    prefill and warm-up), cv_pct (of a run so long), half_width_pct (expected, 100 (exp(h) - 1)), assured_pct (nine
    campaigns in ten are no wider), confidence. Raises ValueError where the noise does not say between_cv_pct,
    second_cv_pct and tau_s.
    """
    between, second, tau_s, writes = workload(noise)
    rows = []
    for protocol in protocols_of(protocols):
        run_s = {w: planned_run_s(protocol, w, second, tau_s, target) for w in (False, True)}
        lasts = np.where(writes, run_s[True], run_s[False])
        run_sd = float(np.sqrt((between**2 + second**2 / lasts).mean()))
        for n in runs or [planned_runs(protocol, run_sd, target)]:
            expected, assured = (100 * float(np.expm1(run_sd * factor)) for factor in half_width_factors(n))
            rows.append({
                "protocol": protocol.name, "order": protocol.order, "cells": len(writes), "runs": n,
                "read_s": run_s[False], "write_s": run_s[True], "hours": 2 * n * lasts.sum() / 3600,
                "cv_pct": 100 * run_sd, "half_width_pct": expected, "assured_pct": assured, "confidence": CONFIDENCE,
            })  # fmt: skip
    return pd.DataFrame(rows)


Workload: TypeAlias = tuple[float, float, float, np.ndarray]
"""Pooled spread between runs and of one second (as fractions), tau_s, and which cells write."""


def workload(noise: pd.DataFrame) -> Workload:
    """What a plan starts from; ValueError where the noise does not say one part of it."""
    if "rwmixread" not in noise:
        raise ValueError("the noise has no column rwmixread, so it is unknown which cells write")
    pooled = pool_noise(noise).iloc[0] if len(noise) else pd.Series(dtype=float)
    # The seconds first: without them the spread between runs is unknown too, for a reason that lies in the seconds.
    second, between = (_needed(pooled, c) / 100 for c in ("second_cv_pct", "between_cv_pct"))
    listed = noise.drop_duplicates([c for c in ("pattern", "iodepth") if c in noise])
    return between, second, _needed(pooled, "tau_s"), (listed["rwmixread"] < 100).to_numpy()


def planned_run_s(protocol: Protocol, writes: bool, second_sd: float, tau_s: float, target: float) -> float:
    """Seconds of a run: the protocol's, or the first look at which `stop_when` would be content.

    That is when the confidence sequence is within `target` and the seconds are worth 30 independent ones.
    """
    longest = protocol.longest_s(writes)
    if protocol.first_s is None:
        return longest
    looks = np.append(np.arange(protocol.first_s, longest, LOOK_S), longest)
    within = (confidence_sequence(looks, second_sd) <= target) & (looks >= MIN_EFFECTIVE * tau_s)
    return float(looks[within.argmax()]) if within.any() else longest


def planned_runs(protocol: Protocol, run_sd: float, target: float) -> int:
    """Runs of a cell: the protocol's, or the first number whose t interval of the cell's mean is within `target`."""
    if protocol.most_runs is None:
        return protocol.runs
    n = np.arange(protocol.runs, protocol.most_runs + 1)
    within = np.expm1(half_width(run_sd, n)) <= target
    return int(n[within.argmax()]) if within.any() else protocol.most_runs


@lru_cache(maxsize=256)
def half_width_factors(n: int) -> tuple[float, float]:
    """Welch's half-width at `n` runs a side, in spreads of one run: its expectation, and what nine in ten do not
    exceed.

    Exact for lognormal runs of equal spread: with f = n - 1 the sum of both variances is chi-square of 2f and the share
    u of one of them, which alone decides Welch's degrees of freedom f / (u^2 + (1-u)^2), is an independent Beta(f/2,
    f/2).
    """
    if n < 2:
        raise ValueError(f"half_width_factors: n is {n}; an interval needs at least 2 runs a side")
    f = n - 1
    x, weight = roots_jacobi(64, f / 2 - 1, f / 2 - 1)
    u = (1 + x) / 2
    t = critical(f / (u**2 + (1 - u) ** 2))
    weight = weight / weight.sum()
    root_chi = np.sqrt(2) * np.exp(gammaln(f + 0.5) - gammaln(f))  # mean of the root of a chi-square of 2f
    expected = weight @ t * root_chi / np.sqrt(f * n)
    beyond = brentq(lambda w: weight @ chdtr(2 * f, f * n * (w / t) ** 2) - ASSURED, 0, 10 * expected)
    return float(expected), float(beyond)


def _with_seconds(results: pd.DataFrame, series: pd.DataFrame | None, metric: str) -> pd.DataFrame:
    """The runs with the relative variance of their mean from their own seconds, and that of one second."""
    runs = results.assign(runtime_s=results.get("runtime_s", np.nan))
    if series is None or not len(series):
        return runs.assign(_within2=np.nan, _second2=np.nan, _tau_s=np.nan)
    inside = mean_interval(series, metric=metric)
    keys = [c for c in run_columns(inside) if c in results and c != "step_id"]
    inside = inside[[*keys, "mean", "se", "tau", "seconds"]].rename(columns=lambda c: c if c in keys else f"_{c}")
    runs = runs.merge(inside, on=keys, how="left", validate="one_to_one")
    within2 = (runs["_se"] / runs["_mean"]) ** 2
    step_s = runs["runtime_s"] / runs["_seconds"]  # a log may be finer than a second
    return runs.assign(_within2=within2, _second2=within2 * runs["runtime_s"], _tau_s=runs["_tau"] * step_s)


def _squared(pct: float | None) -> float:
    return np.nan if pct is None else (pct / 100) ** 2


def spread_interval(variance: ArrayLike, df: ArrayLike) -> dict[str, np.ndarray]:
    """Interval of a standard deviation, in percent: df s^2 / sigma^2 is chi-square."""
    df = np.where(np.asarray(df) > 0, df, np.nan)
    alpha = 1 - CONFIDENCE
    return {
        "cv_pct_lo": 100 * np.sqrt(df * variance / chdtri(df, alpha / 2)),
        "cv_pct_hi": 100 * np.sqrt(df * variance / chdtri(df, 1 - alpha / 2)),
    }


def _basis(measured: np.ndarray, spread: np.ndarray) -> np.ndarray:
    return np.select([measured, spread == spread], ["measured", "declared"], "unknown").astype(object)


def _pooled(pct: pd.Series, weight: pd.Series, code: np.ndarray) -> pd.Series:
    weight = weight.where(pct.notna(), 0.0)
    total = weight.groupby(code).sum()
    return np.sqrt((pct**2 * weight).groupby(code).sum() / total.where(total > 0))


def _needed(pooled: pd.Series, column: str) -> float:
    value = pooled.get(column, np.nan)
    if not value >= 0:
        why = "no cell has two runs" if column.startswith("between") else "no run has a per-second series"
        raise ValueError(f"the noise does not say {column}: {why}; declare {column}")
    return float(value)
