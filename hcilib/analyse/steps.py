"""Levels of a cell over months: changes proposed by a bounded loss and proven by t (METHODS section 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest

import numpy as np
from scipy.special import stdtr

from hcilib.analyse.stats import FLOOR

FAR = 3.0
"""A campaign further than this from its level, in standard deviations, is an outlier: its loss is bounded."""
PENALTY = 18.5
"""What a change must save: more than two outliers cost, so that two campaigns alone are never a level."""
STEP, REACH = 0.15, 10
"""The grid of levels, in standard deviations, and how many steps beyond a campaign's value it goes."""
LEAST_CAMPAIGNS, LEAST_SIDE = 7, 3
"""No change is proven with fewer campaigns in all, or with fewer that are no outliers on a side."""
STRICT, STRICTER, CELLS = 4.9, 28.0, 28
"""A change needs t > 4.9 + 28 / m in a history of m campaigns and 28 cells; with C cells p is 28 / C times that."""
MOST_PHI = 0.7
NEAR = 7.0
"""Places that cost less than this more than the best (times the inflation) are where the change may be."""
_CHUNK = 250


# ---- Scale


def noise_of(logs: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the variance of each campaign's log mean, and how far autocorrelation inflates that of a level.

    Parameters
    ----------
    logs : log means, shape (cells, campaigns); NaN after the last of a shorter history
    errors : their standard errors from the campaign's own repeats; NaN where there is one run

    Returns
    -------
    variances of that shape, inflation (1 + phi) / (1 - phi). From medians of differences between neighbours, so that
    neither levels nor outliers count. phi is shared by the cells.
    """
    counts = np.isfinite(logs).sum(axis=1)
    first, second = (_median(np.abs(logs[:, lag:] - logs[:, :-lag])) for lag in (1, 2))
    own = np.nan_to_num(errors) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = 2 * np.log(second / first)
    ratios = ratios[np.isfinite(ratios)]
    phi = np.clip(np.expm1(np.median(ratios)), 0, MOST_PHI) if len(ratios) else 0.0
    phi = max(0.0, phi - 4.2 / np.sqrt(counts.sum())) if counts.any() else 0.0
    between = np.maximum((first / 0.6745) ** 2 / 2, FLOOR**2)
    within = _median(np.where(np.isfinite(logs), own, np.nan))
    tau2 = np.maximum(0.05 * between, between - within) / (1 - phi)
    return tau2[:, None] + own, (1 + phi) / (1 - phi)


def _median(values: np.ndarray) -> np.ndarray:
    """Medians of rows without their NaN; 0 where a row has nothing else."""
    counts = np.isfinite(values).sum(axis=1)
    ordered = np.sort(values, axis=1)
    rows = np.arange(len(values))
    ends = [ordered[rows, np.maximum(0, place)] for place in ((counts - 1) // 2, counts // 2)] if values.size else [[0]]
    return np.where(counts > 0, np.mean(ends, axis=0), 0.0)


# ---- Propose


def propose(logs: np.ndarray, variances: np.ndarray) -> list[list[int]]:
    """Return of each cell the first campaign of every level that a bounded loss proposes, from 0.

    The least sum of min((y - mu)^2 / v, 9) + 18.5 a change, over a grid of levels: the best end of every beginning is
    kept (Fearnhead and Rigaill 2019, doi 10.1080/01621459.2017.1385466).
    """
    grids = [_grid(row, spread) for row, spread in zip(logs, np.sqrt(_median(variances)), strict=True)]
    order = np.argsort([len(grid) for grid in grids], kind="stable")
    starts: list[list[int]] = [[] for _ in grids]
    for at in range(0, len(order), _CHUNK):
        rows = order[at : at + _CHUNK]
        levels = np.empty((len(rows), len(grids[rows[-1]])))
        for level, row in zip(levels, rows, strict=True):
            level[:], level[: len(grids[row])] = grids[row][-1], grids[row]
        for row, begun in zip(rows, _begun(logs[rows], variances[rows], levels), strict=True):
            starts[row] = begun
    return starts


def _grid(row: np.ndarray, spread: float) -> np.ndarray:
    """Return levels around the values of a history."""
    places = np.unique(np.round(row[np.isfinite(row)] / (STEP * spread)))
    if not len(places):
        return np.zeros(1)
    return STEP * spread * np.unique(places[:, None] + np.arange(-REACH, REACH + 1))


def _begun(logs: np.ndarray, variances: np.ndarray, levels: np.ndarray) -> list[list[int]]:
    """Dynamic programming over campaigns, for many histories at once."""
    rows, campaigns = logs.shape
    scale = (1 / np.sqrt(_median(variances)))[:, None]
    there, base = np.isfinite(logs), levels[:, :1]
    grid = (scale * (levels - base)).astype(np.float32)
    values = np.where(there, scale * (logs - base), 0).astype(np.float32)
    weights = np.where(there, 1 / (variances * scale**2), 0).astype(np.float32)
    cost, loss, begin = np.zeros_like(grid), np.empty_like(grid), np.zeros(grid.shape, np.int16)
    of_best, every = np.zeros((campaigns, rows), int), np.arange(rows)
    for campaign in range(campaigns):
        if campaign:
            changed = cost.min(axis=1, keepdims=True) + np.float32(PENALTY)
            np.copyto(begin, campaign, where=cost > changed)  # of the level that a history has, if it is this one
            np.minimum(cost, changed, out=cost)
        np.subtract(values[:, campaign, None], grid, out=loss)
        np.square(loss, out=loss)
        loss *= weights[:, campaign, None]
        cost += np.minimum(loss, np.float32(FAR**2), out=loss)
        of_best[campaign] = begin[every, cost.argmin(axis=1)]
    return [_back(of_best[:, row]) for row in range(rows)]


def _back(of_best: np.ndarray) -> list[int]:
    starts = [int(of_best[-1])]
    while starts[-1]:
        starts.append(int(of_best[starts[-1] - 1]))
    return starts[::-1]


# ---- Prove


@dataclass(frozen=True)
class Steps:
    """A history as levels: log means and variances of its campaigns, and the first campaign of each level."""

    logs: np.ndarray
    variances: np.ndarray
    inflation: float
    starts: tuple[int, ...]

    @cached_property
    def of_level(self) -> np.ndarray:
        """The level of each campaign."""
        return np.searchsorted(self.starts, np.arange(len(self.logs)), side="right") - 1

    @cached_property
    def levels(self) -> np.ndarray:
        """Weighted means of the campaigns that are no outliers."""
        ends = [*self.starts[1:], len(self.logs)]
        return np.array([self._level(slice(*part)) for part in zip(self.starts, ends, strict=True)])

    def _level(self, part: slice) -> float:
        logs, variances = self.logs[part], self.variances[part]
        level = np.median(logs)
        for _ in range(10):
            near = np.abs(logs - level) <= FAR * np.sqrt(variances)
            if not near.any():
                return level
            moved = np.average(logs[near], weights=1 / variances[near])
            if abs(moved - level) < 1e-12:
                break
            level = moved
        return level

    @cached_property
    def residuals(self) -> np.ndarray:
        """How far each campaign is from its level, in standard deviations."""
        return (self.logs - self.levels[self.of_level]) / np.sqrt(self.variances)

    @cached_property
    def inliers(self) -> np.ndarray:
        return np.abs(self.residuals) <= FAR

    @cached_property
    def counts(self) -> np.ndarray:
        """Campaigns of each level that are no outliers."""
        return np.bincount(self.of_level[self.inliers], minlength=len(self.starts))

    @cached_property
    def scale(self) -> float:
        """Variance of a level's campaigns relative to `variances`, inflated. Outliers count up to their bound: where
        the variances are too low by chance, many campaigns are."""
        bounded = np.minimum(self.residuals**2, FAR**2).sum() / max(1, self.df)
        return float(bounded * self.inflation)

    @property
    def outliers(self) -> np.ndarray:
        """Campaigns far from their level, by the wider of both estimates of what campaigns vary by."""
        return np.abs(self.residuals) > FAR * np.sqrt(max(1.0, self.scale))

    @property
    def df(self) -> int:
        return len(self.logs) - len(self.starts)

    @property
    def spread(self) -> float:
        """Standard deviation of one campaign's log mean, as the error of a level needs it."""
        return float(np.sqrt(self.scale * np.median(self.variances)))

    @cached_property
    def errors(self) -> np.ndarray:
        """Standard error of each level."""
        weights = np.bincount(self.of_level, self.inliers / self.variances, len(self.starts))
        with np.errstate(divide="ignore"):
            return np.sqrt(self.scale / weights)

    def p(self, one: int, other: int) -> float:
        """Return the two-sided p of a difference between two levels."""
        if self.df < 1 or min(self.counts[[one, other]]) < LEAST_SIDE:
            return 1.0
        error = np.hypot(self.errors[one], self.errors[other])
        t = abs(self.levels[one] - self.levels[other]) / error if error else np.inf
        return float(2 * stdtr(self.df, -t))

    @property
    def cost(self) -> float:
        return float(np.minimum(self.residuals**2, FAR**2).sum()) + PENALTY * (len(self.starts) - 1)

    def places(self, change: int) -> tuple[int, int]:
        """Return the first and the last campaign at which the level after `change` may have begun."""
        begin = self.starts[change - 1]
        part = slice(begin, [*self.starts, len(self.logs)][change + 1])
        logs, variances = self.logs[part], self.variances[part]
        before, after = (np.minimum((logs - self.levels[n]) ** 2 / variances, FAR**2) for n in (change - 1, change))
        costs = np.cumsum(before)[:-1] + np.cumsum(after[::-1])[::-1][1:]
        near = np.flatnonzero(costs <= costs.min() + NEAR * self.inflation) + begin + 1
        return int(near[0]), int(near[-1])

    def is_drift(self) -> bool:
        """Whether a line costs less than the steps: of values that go down steadily, no step is the change."""
        x = np.arange(len(self.logs)) - (len(self.logs) - 1) / 2
        near = np.ones(len(x), bool)
        for _ in range(5):
            if near.sum() < LEAST_CAMPAIGNS:
                return False
            line = np.polynomial.Polynomial.fit(x[near], self.logs[near], 1, w=self.variances[near] ** -0.5)
            far = np.abs(self.logs - line(x)) / np.sqrt(self.variances)
            near = far <= max(FAR, np.median(far))
        return float(np.minimum(far**2, FAR**2).sum()) + PENALTY < self.cost


def limit_of(campaigns: int, cells: int) -> float:
    """Return the largest p of a proven change: in a history without one, any cell passes it in at most 5 %."""
    if campaigns < LEAST_CAMPAIGNS:
        return 0.0
    return float(2 * stdtr(campaigns - 2, -(STRICT + STRICTER / campaigns)) * CELLS / cells)


def prove(steps: Steps, cells: int) -> Steps:
    """Drop the weakest change, until each one that is left is proven."""
    limit = limit_of(len(steps.logs), cells) if len(steps.starts) > 1 else 0.0
    while len(steps.starts) > 1:
        ps = [steps.p(n - 1, n) for n in range(1, len(steps.starts))]
        weakest = int(np.argmax(ps))
        if ps[weakest] <= limit:
            break
        steps = replace(steps, starts=(*steps.starts[: weakest + 1], *steps.starts[weakest + 2 :]))
    return steps


def steps_of(logs: Sequence[np.ndarray], errors: Sequence[np.ndarray], cells: int | None = None) -> list[Steps]:
    """Return the proven levels of every cell of one plan on one testbed.

    Parameters
    ----------
    logs : of each cell the log means of its campaigns in the order of time; histories may differ in length
    errors : their standard errors
    cells : how many are looked at, where these are not all
    """
    counts = [len(row) for row in logs]
    if not max(counts, default=0):
        return []
    padded_logs, padded_errors = (np.array([*zip_longest(*rows, fillvalue=np.nan)]).T.copy() for rows in (logs, errors))
    variances, inflation = noise_of(padded_logs, padded_errors)
    every = zip(logs, variances, propose(padded_logs, variances), counts, strict=True)
    return [prove(Steps(y, v[:m], inflation, tuple(starts)), cells or len(logs)) for y, v, starts, m in every]
