"""Since when, and what changed? Levels of a cell over months of campaigns.

A bounded loss proposes levels, and a t test proves them (docs/METHODS section 12). `y` is the log of a
campaign's mean and `v` its variance, in the order of time. Rows are cells, and shorter histories end on NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from hcilib.analyse.rows import listed, require_columns, valid_rows
from hcilib.analyse.stats import FLOOR, critical, interval
from hcilib.model.caveats import join_codes, warnings_of
from hcilib.model.metrics import FACTORS, SETTINGS, in_order, metric_of

FACT, FILL = "fact_", "pool_fill_pct"
CELL = ("system", "pattern", "iodepth")
KEYS = (*CELL, "testbed", "setup", *(name for name in FACTORS if name not in (*CELL, FILL)), *SETTINGS)
"""A cell's history is of one testbed, system and plan: rows that differ in one of these are never joined."""
FAR = 3.0
"""A campaign further than this from its level, in standard deviations, is an outlier: its loss is bounded."""
PENALTY = 18.5
"""What a change must save: more than two outliers cost, so that two campaigns alone are never a level."""
STEP, REACH = 0.15, 10
"""The grid of levels, in standard deviations, and how many steps beyond a campaign's value it goes."""
LEAST_CAMPAIGNS, LEAST_SIDE, LEAST_BEFORE = 7, 3, 5
"""Campaigns that a change needs in all and, without outliers, on each side; and before it for `check`."""
STRICT, STRICTER, CELLS = 4.9, 28.0, 28
"""A change needs t > 4.9 + 28 / m in m campaigns of 28 cells; with C cells p is 28 / C times that."""
MOST_PHI, LUCK = 0.7, 4.2
"""Most autocorrelation, and how much of it, times the root of all campaigns, may be chance."""
NEAR = 7.0
"""Places that cost less than this more than the best (times the inflation) are where the change may be."""
OFTEN = 4
"""A fact that is another in more than one of so many campaigns explains no change."""
POWER, MOST_NEEDED, SEEN = 0.8, 400, 1.5
CONTRAST = ("ratio", "ratio_lo", "ratio_hi", "p", "n_baseline", "n")
UNDECIDED = ("too-few", "too-noisy", "missing")
"""Verdicts of `check` with exit status 2."""


def changes(history: pd.DataFrame, metric: str = "iops") -> pd.DataFrame:
    """Find since when each cell is on another level, and what else changed there.

    Parameters
    ----------
    history : of `hcilib.history`. Facts are its columns ``fact_*``, to which you may add your own
    metric : one of its metrics

    Returns
    -------
    DataFrame : one row a proven change, in the order of time: the keys of its cell, metric, campaign and
        start (the first of the new level), first and last (campaigns between which it began), ratio to the
        level before with its 95 % interval, p, n_baseline and n (campaigns of both levels without
        outliers), verdict (``regression``, ``improvement``, ``changed``), drift (a line fits better than
        steps), accepted, candidates (facts that changed there, never shown to be causes). Of
        100 histories without a change, at most 5 show one in any of their cells.

    Raises
    ------
    ValueError : a metric without a valid row, a column that is missing, a campaign given twice

    Source
    ------
    METHODS section 12. Bounded loss: Fearnhead and Rigaill 2019, doi 10.1080/01621459.2017.1385466.

    Examples
    --------
    >>> months = hci.history("data/samples/history.csv")
    >>> hci.changes(months)[["pattern", "iodepth", "campaign", "verdict"]].head(2)
            pattern  iodepth campaign     verdict
    0   4k-randread        8      c19  regression
    1  4k-randwrite        8      c19  regression
    """
    keys, found = _cells(history, metric)
    rows = []
    for cell, levels in found:
        for number in range(1, len(levels.level)):
            first, last = levels.places(number)
            row = cell[[*keys, "campaign", "start"]].iloc[levels.starts[number]].to_dict()
            row |= dict(zip(("first", "last"), cell["campaign"].iloc[[first, last]], strict=True))
            row |= levels.contrast(number - 1, number)
            row |= {"verdict": verdict_of(metric, row["ratio"]), "drift": levels.is_drift()}
            row |= {"accepted": _is_accepted(cell, first, last), "candidates": _candidates(cell, first, last)}
            rows.append(row)
    columns = ["campaign", "start", "first", "last", *CONTRAST, "verdict", "drift", "accepted", "candidates"]
    table = pd.DataFrame(rows, columns=[*keys, "metric", *columns]).assign(metric=metric)
    return in_order(table).sort_values("start", kind="stable", ignore_index=True)


def levels(history: pd.DataFrame, metric: str = "iops") -> pd.DataFrame:
    """Return every campaign of every cell with its level: what a figure over time draws.

    Parameters
    ----------
    history : as `hcilib.history` returns it
    metric : column of `METRICS`

    Returns
    -------
    DataFrame : the keys of its cell, campaign, start, n, the metric (as iops) with iops_lo and iops_hi
        (95 % interval from the campaign's own runs, NaN of one), level, level_lo, level_hi, level_number
        (from 0), begins (the level where a new one begins, else NaN), outlier (beyond 3 standard
        deviations of its level)

    Raises
    ------
    ValueError : as `changes`

    Examples
    --------
    >>> months = hci.levels(hci.history("data/samples/history.csv"))
    >>> months.groupby(["pattern", "iodepth"])["level_number"].max().to_dict()
    {('4k-randread', 1): 0, ('4k-randread', 8): 1, ('4k-randwrite', 1): 0, ('4k-randwrite', 8): 1}
    """
    keys, found = _cells(history, metric)
    parts = []
    for cell, levels in found:
        own = critical(np.maximum(cell["n"] - 1, 1)) * cell["log_se"]
        lo, hi = interval(levels.level, levels.se, levels.df)
        logs = {metric: cell["y"], f"{metric}_lo": cell["y"] - own, f"{metric}_hi": cell["y"] + own}
        logs |= {"level": levels.level[levels.of], "level_lo": lo[levels.of], "level_hi": hi[levels.of]}
        shown = cell[[*keys, "campaign", "start", "n"]].join(np.exp(pd.DataFrame(logs)))
        begins = shown["level"].where(np.diff(levels.of, prepend=0) > 0)
        shown = shown.assign(level_number=levels.of, begins=begins, outlier=levels.outlier)
        parts.append(shown)
    return pd.concat(parts, ignore_index=True)


def check(
    history: pd.DataFrame, against: str = "last", size: float = 0.05, metric: str = "iops", power: float = POWER
) -> pd.DataFrame:
    """Judge the newest level of every cell: what `hci check` prints and exits with.

    Parameters
    ----------
    against : ``last`` (the level before), ``best`` (the best earlier level) or the name of a campaign (its level)
    size : the loss that matters and must not be missed, 0.05 for 5 %
    power : the chance with which the loss `visible_pct` is proven

    Returns
    -------
    DataFrame : one row a cell: its keys, metric, campaigns, campaign (the first of the newest level),
        ratio with its 95 % interval, p, n_baseline and n (as `changes`, of the level that it is held
        against), visible_pct (the smallest loss that three more campaigns prove), needed (campaigns
        after a loss of `size` that prove it; none beyond 400), cv_pct (between campaigns), candidates
        (facts that changed where the newest level begins), verdict, code. Verdicts and codes:
        ``regression`` 1 where the loss reaches `size`, else 0; ``too-few``, ``too-noisy``, ``missing``
        (no campaign `against`) 2; ``suspect`` (the newest is an outlier on the worse side),
        ``accepted``, ``improvement``, ``changed``, ``no change`` 0.

    Raises
    ------
    ValueError : as `changes`; an unknown campaign, a size that is no share

    Examples
    --------
    >>> found = hci.check(hci.history("data/samples/history.csv"))
    >>> sorted(found["code"].tolist())
    [1, 1, 2, 2]
    """
    if not 0 < size < 1:
        raise ValueError(f"size is {size}: expected a share between 0 and 1, such as 0.05 for 5 %")
    keys, found = _cells(history, metric)
    names = history["campaign"].unique()
    if against not in ("last", "best", *names):
        raise ValueError(f"no campaign is called {against!r}. Give last, best, or one of {listed(names)}.")
    rows = []
    for cell, levels in found:
        newest, base = len(levels.level) - 1, _baseline(cell, levels, against, metric)
        row = cell[keys].iloc[0].to_dict() | {"metric": metric, "campaigns": len(cell)}
        row |= {"campaign": cell["campaign"].iloc[levels.starts[newest]]}
        row |= dict.fromkeys(CONTRAST, np.nan) | {"n_baseline": 0, "n": levels.n[newest]}
        if base not in (None, newest):
            row |= levels.contrast(base, newest)
        spread = np.sqrt(levels.scale * np.median(levels.v))
        losses = provable_losses(spread, levels.n[newest], len(found), power)
        visible, needed = losses[LEAST_SIDE], losses.index[losses <= size].min()
        row |= {"visible_pct": 100 * visible, "needed": needed, "cv_pct": 100 * spread}
        row["candidates"] = _candidates(cell, *levels.places(newest)) if newest else ""
        moved, is_proven = verdict_of(metric, row["ratio"]), row["p"] <= limit_of(len(cell), len(found))
        is_loss = is_proven and moved == "regression"
        is_accepted = is_loss and _is_accepted(cell, levels.places((base or 0) + 1)[0], levels.places(newest)[1])
        verdicts = [
            ("missing", base is None),
            ("regression", is_loss and not is_accepted),
            ("too-few", len(cell) < LEAST_CAMPAIGNS or (newest > 0 and levels.n[newest - 1] < LEAST_BEFORE)),
            ("accepted", is_accepted),
            (moved, is_proven),
            ("suspect", levels.outlier[-1] and way_of(metric) * levels.far[-1] < 0),
            ("too-noisy", visible > size),
            ("no change", True),
        ]
        verdict = next(name for name, holds in verdicts if holds)
        is_large = verdict == "regression" and abs(row["ratio"] - 1) >= size
        rows.append(row | {"verdict": verdict, "code": 2 if verdict in UNDECIDED else int(is_large)})
    return in_order(pd.DataFrame(rows).astype({"needed": "Int64"}))


def campaigns(history: pd.DataFrame) -> pd.DataFrame:
    """Return the campaigns of a history, one row each, and what to know of them.

    Parameters
    ----------
    history : as `hcilib.history` returns it

    Returns
    -------
    DataFrame : campaign, start, system (several with commas), valid (False: left out of every analysis),
        warnings, newest (it is not known that a valid campaign is later)

    Examples
    --------
    >>> months = hci.campaigns(hci.history("data/samples/history.csv"))
    >>> len(months), bool(months["valid"].all())
    (30, True)
    """
    table = (
        history.assign(warnings=warnings_of(history))
        .groupby("campaign", sort=False)
        .agg(
            start=("start", "first"),
            system=("system", lambda names: ", ".join(map(str, names.unique()))),
            valid=("valid", "any"),
            warnings=("warnings", lambda codes: join_codes(*codes)),
        )
    )
    table["newest"] = ~(table["start"] < table.loc[table["valid"], "start"].max())
    return table.reset_index()


# ---- cells


def measured(history: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the rows of a metric with `y`, the log of a campaign's mean; missing where it is not valid."""
    require_columns(history, ["campaign", "start", "metric", "value", "log_se", "accepted"])
    rows = history[history["metric"].eq(metric)]
    rows = rows.assign(y=np.log(rows["value"].where(valid_rows(rows) & rows["value"].gt(0))))
    if rows["y"].isna().all():
        there = listed(history["metric"].unique())
        raise ValueError(f"the history has no valid row of metric {metric!r}. Its metrics: {there}.")
    is_again = rows.duplicated([*keys_of(rows), "campaign"]) & rows["y"].notna()
    for campaign in rows.loc[is_again, "campaign"]:
        raise ValueError(f"campaign {campaign} is given twice for one cell. Give it once.")
    return rows


def keys_of(rows: pd.DataFrame) -> list[str]:
    """Return the columns that tell the cells of a history apart."""
    return [name for name in KEYS if name in rows]


def shown_keys(rows: pd.DataFrame) -> list[str]:
    """Return the keys that a reader expects, then those in which cells that look alike differ."""
    alike = rows.groupby([*CELL], dropna=False)[keys_of(rows)].nunique(dropna=False).max()
    return [name for name in keys_of(rows) if name in CELL or alike[name] > 1]


def way_of(metric: str) -> int:
    """Return 1 if more is better, -1 if less is, 0 if neither."""
    return {"higher": 1, "lower": -1}.get(metric_of(metric).better, 0)


def verdict_of(metric: str, ratio: float) -> str:
    """Return what a change of a metric by this ratio is."""
    return {1: "improvement", -1: "regression", 0: "changed"}[way_of(metric) * (1 if ratio > 1 else -1)]


def _cells(history: pd.DataFrame, metric: str) -> tuple[list[str], list[tuple[pd.DataFrame, Levels]]]:
    """Return the keys to show, and every cell's campaigns in the order of time with their levels."""
    rows = measured(history, metric).dropna(subset="y").sort_values("start", kind="stable")
    for name in rows.loc[rows["start"].isna(), "campaign"]:
        remedy = "Give it one, or set valid to False."
        raise ValueError(f"campaign {name} has no start, so it has no place in time. {remedy}")
    rows["cell"] = rows.groupby(keys_of(rows), dropna=False).ngroup()
    cells = rows.groupby("cell")
    wide = rows.assign(place=cells.cumcount()).pivot(index="cell", columns="place", values=["y", "log_se"])
    found = find_levels(wide["y"].to_numpy(float), wide["log_se"].to_numpy(float))
    return shown_keys(rows), [(cell, levels) for (_, cell), levels in zip(cells, found, strict=True)]


def _is_accepted(cell: pd.DataFrame, first: int, last: int) -> bool:
    """Return whether the user accepts a new level that begins between these campaigns."""
    return bool(cell["accepted"].iloc[first : last + 1].astype(bool).any())


def _candidates(cell: pd.DataFrame, first: int, last: int) -> str:
    """Return facts that differ between the last campaign of the old level and the first surely of the new one."""
    changed = []
    for name, facts in cell.filter(like=FACT).fillna("").astype(str).items():
        before, after = facts.iloc[first - 1], facts.iloc[last]
        turns = int((facts != facts.shift()).sum()) - 1
        if before and after and before != after and turns <= max(OFTEN, len(facts) / OFTEN):
            changed.append(f"{str(name).removeprefix(FACT)} from {before:.100} to {after:.100}")
    return "; ".join(changed)


# ---- the newest level


def _baseline(cell: pd.DataFrame, levels: Levels, against: str, metric: str) -> int | None:
    """Return the level that the newest is held against: the newest where there is no other, None if it is missing."""
    earlier = levels.level[: max(1, len(levels.level) - 1)]
    if against in ("last", "best"):
        return len(earlier) - 1 if against == "last" else int(np.argmax(way_of(metric) * earlier))
    return next(iter(levels.of[cell["campaign"] == against]), None)


def provable_losses(spread: float, before: int, cells: int, power: float) -> pd.Series:
    """Return the smallest loss that so many new campaigns (the index) prove with a chance of `power`, 0.05 for 5 %.

    1 - exp(-s ((t* + t(power)) sqrt(w) + 1.5 w)), w = 1 / new + 1 / before, where t* is the limit of a
    change. The last term is from simulations: a change must also be seen before it is tested
    (METHODS section 12).

    Parameters
    ----------
    spread : standard deviation s of a campaign's log mean
    before : campaigns of the level before
    cells : how many cells are looked at
    """
    new = pd.RangeIndex(LEAST_SIDE, MOST_NEEDED)
    campaigns, weight = before + new, 1 / new + 1 / max(1, before)
    t = stdtrit(campaigns - 2, power) - stdtrit(campaigns - 2, limit_of(campaigns, cells) / 2)
    losses = -np.expm1(-spread * (t * np.sqrt(weight) + SEEN * weight))
    return pd.Series(losses, new).where((campaigns >= LEAST_CAMPAIGNS) & (before >= LEAST_SIDE), 1.0)


# ---- levels: noise, propose, prove


def noise_of(y: np.ndarray, se: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the variance of each campaign, and how far autocorrelation inflates that of a level.

    From medians of differences between neighbours, so that neither levels nor outliers count. The
    inflation (1 + phi) / (1 - phi) is shared by the cells.

    Parameters
    ----------
    se : standard errors from the campaign's own repeats; NaN where there is one run
    """
    first, second = (_median(np.abs(y[:, lag:] - y[:, :-lag])) for lag in (1, 2))
    own = np.nan_to_num(se) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = pd.Series(2 * np.log(second / first))
    phi = np.expm1(ratios[np.isfinite(ratios)].median())  # NaN where no cell tells it
    phi = max(0.0, min(phi, MOST_PHI) - LUCK / np.sqrt(np.isfinite(y).sum()))
    between = np.maximum((first / 0.6745) ** 2 / 2, FLOOR**2)
    within = _median(np.where(np.isfinite(y), own, np.nan))
    tau2 = np.maximum(0.05 * between, between - within) / (1 - phi)
    return tau2[:, None] + own, (1 + phi) / (1 - phi)


def _median(values: np.ndarray) -> np.ndarray:
    """Return medians of rows without their NaN; 0 where a row has nothing else."""
    return pd.DataFrame(values).median(axis=1).fillna(0).to_numpy()


def propose(y: np.ndarray, v: np.ndarray) -> Iterator[np.ndarray]:
    """Yield of each cell the first campaign of every level that a bounded loss proposes, from 0.

    The least sum of min((y - mu)^2 / v, 9) + 18.5 a change, over a grid of levels: the best end of every
    beginning is kept (Fearnhead and Rigaill 2019, doi 10.1080/01621459.2017.1385466).
    """
    spread = np.sqrt(_median(v))[:, None]
    steps = y / (STEP * spread)
    near = np.arange(-REACH, REACH + 1)
    grids = [np.unique(np.unique(np.round(row[np.isfinite(row)]))[:, None] + near) for row in steps]
    grid = np.array([*zip_longest(*grids, fillvalue=np.nan)]).T
    steps, grid = (np.nan_to_num(STEP * (part - grid[:, :1])).astype(np.float32) for part in (steps, grid))
    weights = np.where(np.isfinite(y), spread**2 / v, 0).astype(np.float32)
    cost, begin, best = np.zeros_like(grid), np.zeros(grid.shape, np.int16), []
    every = np.arange(len(y))
    for campaign, (at, weight) in enumerate(zip(steps.T[..., None], weights.T[..., None], strict=True)):
        changed = cost.min(axis=1, keepdims=True) + np.float32(PENALTY)
        np.copyto(begin, campaign, where=cost > changed)
        loss = weight * (at - grid) ** 2
        cost = np.minimum(cost, changed) + np.minimum(loss, np.float32(FAR**2))
        best.append(begin[every, cost.argmin(axis=1)])
    for cell in range(len(y)):
        starts = [best[-1][cell]]
        while starts[0]:
            starts.insert(0, best[starts[0] - 1][cell])
        yield np.array(starts, int)


class Levels(NamedTuple):
    """A history as levels, in logs. Their variance is `scale` times what the campaigns' own are."""

    y: np.ndarray
    v: np.ndarray
    of: np.ndarray  # the level of each campaign
    far: np.ndarray  # how far each campaign is from its level, in standard deviations
    starts: np.ndarray  # the first campaign of each level
    level: np.ndarray
    se: np.ndarray
    n: np.ndarray  # its campaigns that are no outliers
    outlier: np.ndarray  # of each campaign, by the wider of both estimates of what campaigns vary by
    df: int
    scale: float
    inflation: float

    def contrast(self, one: int, other: int) -> dict[str, float]:
        """Return the ratio of two levels, its interval, its p, and how many campaigns they have."""
        distance, se = self.level[other] - self.level[one], np.hypot(self.se[one], self.se[other])
        t = abs(distance) / se if se else np.inf
        p = 2 * stdtr(self.df, -t) if min(self.n[[one, other]]) >= LEAST_SIDE else 1.0
        ends = np.exp([distance, *interval(distance, se, self.df)])
        return dict(zip(CONTRAST, (*ends, p, self.n[one], self.n[other]), strict=True))

    def places(self, change: int) -> tuple[int, int]:
        """Return the first and the last campaign at which the level after `change` may have begun."""
        part = (self.of == change - 1) | (self.of == change)
        before, after = (_bounded((self.y - self.level[n])[part] / self.v[part] ** 0.5) for n in (change - 1, change))
        costs = np.cumsum(before)[:-1] + np.cumsum(after[::-1])[::-1][1:]
        near = np.flatnonzero(costs <= costs.min() + NEAR * self.inflation) + self.starts[change - 1] + 1
        return int(near[0]), int(near[-1])

    def is_drift(self) -> bool:
        """Return whether a line costs less than the steps: of values that go down steadily, no step is the change."""
        x = np.arange(len(self.y)) - (len(self.y) - 1) / 2
        near = np.ones(len(x), bool)
        for _ in range(5):
            if near.sum() < LEAST_CAMPAIGNS:
                return False
            line = np.polynomial.Polynomial.fit(x[near], self.y[near], 1, w=self.v[near] ** -0.5)
            far = np.abs(self.y - line(x)) / np.sqrt(self.v)
            near = far <= max(FAR, np.median(far))
        return _bounded(far).sum() < _bounded(self.far).sum() + PENALTY * (len(self.level) - 2)


def _bounded(far: np.ndarray) -> np.ndarray:
    return np.minimum(far**2, FAR**2)


def _levels(y: np.ndarray, v: np.ndarray, starts: np.ndarray, inflation: float) -> Levels:
    """Return levels that begin there.

    Outliers count in `scale` up to their bound: where the variances are too low by chance, many
    campaigns are outliers.
    """
    of = np.searchsorted(starts, np.arange(len(y)), side="right") - 1
    level = np.array([_center(y[of == n], v[of == n]) for n in range(len(starts))])
    far = (y - level[of]) / np.sqrt(v)
    near, df = np.abs(far) <= FAR, max(1, len(y) - len(starts))
    scale = float(_bounded(far).sum() / df * inflation)
    with np.errstate(divide="ignore"):
        se = np.sqrt(scale / np.bincount(of, near / v, len(starts)))
    n, outlier = np.bincount(of[near], minlength=len(starts)), np.abs(far) > FAR * np.sqrt(max(1.0, scale))
    return Levels(y, v, of, far, starts, level, se, n, outlier, df, scale, inflation)


def _center(y: np.ndarray, v: np.ndarray) -> float:
    """Return the weighted mean of the campaigns that are no outliers."""
    level = np.median(y)
    for _ in range(10):
        near = np.abs(y - level) <= FAR * np.sqrt(v)
        if not near.any():
            break
        before, level = level, np.average(y[near], weights=1 / v[near])
        if abs(level - before) < 1e-12:
            break
    return float(level)


def limit_of(campaigns: ArrayLike, cells: int) -> np.ndarray:
    """Return the largest p of a proven change: in a history without one, any cell passes it in at most 5 %."""
    m = np.asarray(campaigns)
    limit = 2 * stdtr(m - 2.0, -(STRICT + STRICTER / m)) * CELLS / cells
    return np.where(m < LEAST_CAMPAIGNS, -1.0, limit)


def find_levels(y: np.ndarray, se: np.ndarray) -> list[Levels]:
    """Return the proven levels of every cell of one plan on one testbed.

    The weakest change is dropped, until each one that is left is proven.

    Parameters
    ----------
    y, se : log means and their standard errors, shape (cells, campaigns)
    """
    v, inflation = noise_of(y, se)
    found = []
    for row, own, starts in zip(y, v, propose(y, v), strict=True):
        is_there = np.isfinite(row)
        while True:
            levels = _levels(row[is_there], own[is_there], starts, inflation)
            ps = [levels.contrast(n - 1, n)["p"] for n in range(1, len(starts))]
            if max(ps, default=-1.0) <= limit_of(is_there.sum(), len(y)):
                break
            starts = np.delete(starts, 1 + np.argmax(ps))
        found.append(levels)
    return found
