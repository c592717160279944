"""Since when, and what changed? Campaigns of months, cell by cell (METHODS section 12)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from hcilib.analyse.stats import CONFIDENCE
from hcilib.analyse.steps import LEAST_CAMPAIGNS, LEAST_SIDE, Steps, limit_of, steps_of
from hcilib.model.caveats import join_codes, warnings_of
from hcilib.model.metrics import FACTORS, SETTINGS, in_order, metric_of

FACT, FILL = "fact_", "pool_fill_pct"
KEYS = ("testbed", "system", "setup", *(name for name in FACTORS if name != FILL), *SETTINGS)
"""A cell's history is of one testbed, system and plan: rows that differ in one of these are never joined."""
LEAST_BEFORE = 5
"""Campaigns that `check` needs before the newest level."""
OFTEN = 4
"""A fact that is another in more than one of so many campaigns explains no change."""
UNITS = (1000, 1024, 1e6, 1024**2, 1e9)
"""A change by one of these factors is more likely one of units."""
POWER, MOST_NEEDED, SEEN = 0.8, 400, 1.5
UNDECIDED = ("too-few", "too-noisy", "missing")
"""Verdicts of `check` with exit status 2."""


@dataclass(frozen=True)
class _Cell:
    """One cell's campaigns in the order of time, and their levels."""

    keys: dict[str, Any]
    rows: pd.DataFrame
    steps: Steps

    def contrast(self, before: int, after: int) -> dict[str, float]:
        """The ratio of two levels, its interval and its p."""
        distance = self.steps.levels[after] - self.steps.levels[before]
        half = self.critical * np.hypot(self.steps.errors[before], self.steps.errors[after])
        ends = {"ratio": distance, "ratio_lo": distance - half, "ratio_hi": distance + half}
        return {name: float(np.exp(end)) for name, end in ends.items()} | {"p": self.steps.p(before, after)}

    @property
    def critical(self) -> float:
        return float(stdtrit(max(1, self.steps.df), 0.5 + CONFIDENCE / 2))

    def accepted(self, first: int, last: int) -> bool:
        """Whether the user accepts a new level that begins between these campaigns."""
        return "accepted" in self.rows and bool(self.rows["accepted"].iloc[first : last + 1].astype(bool).any())


def changes(history: pd.DataFrame, metric: str = "iops") -> pd.DataFrame:
    """Find since when each cell is on another level, and what else changed there.

    Parameters
    ----------
    history : of `hcilib.history`. Facts are its columns ``fact_*``, to which you may add your own
    metric : one of its metrics

    Returns
    -------
    DataFrame : one row a proven change, in the order of time: the keys of its cell, metric, campaign and start (the
        first of the new level), first and last (campaigns between which it began), ratio to the level before with
        its interval, p, n_baseline and n (campaigns of both levels without outliers), before and after (the levels),
        verdict (``regression``, ``improvement``, ``changed``), drift (a line fits better than steps), accepted,
        candidates (facts that changed there, never shown to be causes), warnings, confidence. Of 100 histories without
        a change, at most 5 show one in any of their cells.

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
    cells = list(_cells(history, metric))
    rows = [_change(cell, number, metric) for cell in cells for number in range(1, len(cell.steps.starts))]
    columns = ["metric", "campaign", "start", "first", "last", "ratio", "ratio_lo", "ratio_hi", "p", "n_baseline", "n"]
    columns += ["before", "after", "verdict", "drift", "accepted", "candidates", "warnings", "confidence"]
    table = pd.DataFrame(rows, columns=[*_told(cells), *columns])
    table = in_order(table.assign(metric=metric, confidence=CONFIDENCE))
    return table.sort_values("start", kind="stable", ignore_index=True)


def levels(history: pd.DataFrame, metric: str = "iops") -> pd.DataFrame:
    """Return every campaign of every cell with its level: what a figure over time draws.

    Returns
    -------
    DataFrame : the keys of its cell, campaign, start, n, the metric (as iops) with iops_lo and iops_hi (95 % interval
        from the campaign's own runs, NaN of one), level, level_lo, level_hi, level_number (from 0), begins (the level
        where a new one begins, else NaN), outlier (beyond 3 standard deviations of its level)

    Raises
    ------
    ValueError : as `changes`

    Examples
    --------
    >>> months = hci.levels(hci.history("data/samples/history.csv"))
    >>> months.groupby(["pattern", "iodepth"])["level_number"].max().to_dict()
    {('4k-randread', 1): 0, ('4k-randread', 8): 1, ('4k-randwrite', 1): 0, ('4k-randwrite', 8): 1}
    """
    cells = list(_cells(history, metric))
    keys, parts = _told(cells), []
    for cell in cells:
        number, rows, steps = cell.steps.of_level, cell.rows, cell.steps
        log, level, half = (
            np.log(rows["value"].astype(float)),
            steps.levels[number],
            cell.critical * steps.errors[number],
        )
        own = stdtrit(np.maximum(rows["n"] - 1, 1), 0.5 + CONFIDENCE / 2) * rows.get("log_se", np.nan)
        logs = {metric: log, f"{metric}_lo": log - own, f"{metric}_hi": log + own}
        logs |= {"level": level, "level_lo": level - half, "level_hi": level + half}
        shown = rows[[*keys, "campaign", "start", "n"]].assign(**{name: np.exp(end) for name, end in logs.items()})
        first = np.diff(number, prepend=0) > 0
        shown = shown.assign(level_number=number, begins=shown["level"].where(first), outlier=steps.outliers)
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
    DataFrame : one row a cell: its keys, metric, campaigns, campaign and since (the first of the newest level), n and
        n_baseline (campaigns of the newest level and of the one that it is held against), ratio with its interval, p,
        visible_pct (the smallest loss that three more campaigns prove), needed (campaigns after a loss of `size` that
        prove it; none beyond 400), cv_pct (between campaigns), candidates (facts that changed where the newest level
        begins), verdict, code, confidence. Verdicts and codes: ``regression`` 1 where the loss reaches `size`, else 0;
        ``too-few``, ``too-noisy``, ``missing`` (no campaign `against`) 2; ``suspect`` (the newest is an outlier on
        the worse side), ``accepted``, ``improvement``, ``changed``, ``no change`` 0.

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
    names = sorted(set(history["campaign"])) if "campaign" in history else []
    if against not in ("last", "best", *names):
        shown = ", ".join(names[:5]) + ", ..." * (len(names) > 5)
        raise ValueError(f"no campaign is called {against!r}. Give last, best, or one of {shown}.")
    cells = list(_cells(history, metric))
    keys = _told(cells)
    rows = [
        {key: cell.keys[key] for key in keys} | _checked(cell, against, size, metric, power, len(cells))
        for cell in cells
    ]
    table = in_order(pd.DataFrame(rows))
    return table.assign(needed=table["needed"].astype("Int64"), confidence=CONFIDENCE)


def campaigns(history: pd.DataFrame) -> pd.DataFrame:
    """Return the campaigns of a history, one row each, and what to know of them.

    Returns
    -------
    DataFrame : campaign, start, testbed, system (several with commas), cells, n (runs), valid (False: left out of every
        analysis), newest (it is not known that a valid campaign is later), warnings

    Examples
    --------
    >>> months = hci.campaigns(hci.history("data/samples/history.csv"))
    >>> len(months), bool(months["valid"].all())
    (30, True)
    """
    one = history[history["metric"].eq(history.groupby("campaign")["metric"].transform("first"))]
    groups = one.groupby("campaign", sort=False)
    table = groups.agg(start=("start", "first"), testbed=("testbed", "first"), cells=("value", "count"), n=("n", "sum"))
    table.insert(2, "system", groups["system"].agg(lambda names: ", ".join(dict.fromkeys(map(str, names)))))
    every = history.groupby("campaign", sort=False)
    table["valid"] = every["valid"].any()
    latest = table.loc[table["valid"], "start"].max()
    table["newest"] = ~(table["start"] < latest)
    table["warnings"] = warnings_of(history).groupby(history["campaign"]).agg(lambda rows: join_codes(*rows))
    return table.reset_index()


# ---- Cells


def _cells(history: pd.DataFrame, metric: str) -> Iterator[_Cell]:
    """Every cell of a metric with its proven levels."""
    if absent := [name for name in ("campaign", "start", "metric", "value") if name not in history]:
        raise ValueError(f"the history has no column {absent[0]!r}. Take the table that hci.history returns.")
    rows = history[history["metric"].eq(metric) & history["value"].gt(0)]
    rows = rows[rows["valid"].astype(bool)] if "valid" in rows else rows
    if rows.empty:
        there = ", ".join(sorted({str(name) for name in history["metric"]} - {""})) or "none"
        raise ValueError(f"the history has no valid row of metric {metric!r}. Its metrics: {there}.")
    if rows["start"].isna().any():
        name = rows.loc[rows["start"].isna(), "campaign"].iloc[0]
        raise ValueError(
            f"campaign {name} has no start, so it has no place in time. Give it one, or set valid to False."
        )
    keys = [name for name in KEYS if name in rows]
    rows = rows.sort_values("start", kind="stable")
    twice = rows[rows.duplicated([*keys, "campaign"])]
    if len(twice):
        cell = ", ".join(f"{name} {twice[name].iloc[0]}" for name in keys if name in ("system", "pattern", "iodepth"))
        raise ValueError(f"campaign {twice['campaign'].iloc[0]} is given twice for {cell}. Give it once.")
    groups = [group for _, group in rows.groupby(keys, dropna=False, sort=True)]
    logs = [np.log(group["value"].to_numpy(float)) for group in groups]
    errors = [group["log_se"].to_numpy(float) if "log_se" in group else np.full(len(group), np.nan) for group in groups]
    for group, steps in zip(groups, steps_of(logs, errors), strict=True):
        yield _Cell({name: group[name].iloc[0] for name in keys}, group, steps)


def _told(cells: list[_Cell]) -> list[str]:
    """The keys that a reader expects, then those without which two cells would look alike."""
    there = [key for key in cells[0].keys if key in ("system", "pattern", "iodepth")]
    apart = len({tuple(str(cell.keys[key]) for key in there) for cell in cells})
    for key in (key for key in cells[0].keys if key not in there):
        finer = len({tuple(str(cell.keys[name]) for name in (*there, key)) for cell in cells})
        if finer > apart:
            there, apart = [*there, key], finer
    return there


def _verdict(metric: str, ratio: float) -> str:
    worse = {"higher": ratio < 1, "lower": ratio > 1}.get(metric_of(metric).better)
    return "changed" if worse is None else "regression" if worse else "improvement"


# ---- One change


def _change(cell: _Cell, number: int, metric: str) -> dict[str, Any]:
    steps, rows = cell.steps, cell.rows
    at, (first, last) = steps.starts[number], steps.places(number)
    row = cell.keys | cell.contrast(number - 1, number)
    row |= {name: rows[name].iloc[at] for name in ("campaign", "start")}
    row |= {"first": rows["campaign"].iloc[first], "last": rows["campaign"].iloc[last]}
    row |= {"n_baseline": int(steps.counts[number - 1]), "n": int(steps.counts[number])}
    row |= {"before": np.exp(steps.levels[number - 1]), "after": np.exp(steps.levels[number])}
    row |= {"verdict": _verdict(metric, row["ratio"]), "drift": steps.is_drift()}
    row |= {"accepted": cell.accepted(first, last), "candidates": _candidates(rows, first, last)}
    return row | {"warnings": _warnings(row["ratio"])}


def _candidates(rows: pd.DataFrame, first: int, last: int) -> str:
    """Facts that differ between the last campaign of the old level and the first that is surely of the new one."""
    changed = []
    for name in (name for name in rows if str(name).startswith(FACT)):
        facts = rows[name].fillna("").astype(str)
        before, after = facts.iloc[first - 1], facts.iloc[last]
        turns = int((facts != facts.shift()).sum()) - 1
        if before and after and before != after and turns <= max(OFTEN, len(facts) / OFTEN):
            changed.append(f"{name.removeprefix(FACT)} from {_short(before)} to {_short(after)}")
    return "; ".join(changed)


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."


def _warnings(ratio: float) -> str:
    """Whether the ratio is one of units."""
    return "units" if any(abs(max(ratio, 1 / ratio) / unit - 1) < 0.02 for unit in UNITS) else ""


# ---- The newest level


def _checked(cell: _Cell, against: str, size: float, metric: str, power: float, cells: int) -> dict[str, Any]:
    steps, rows = cell.steps, cell.rows
    newest, base = len(steps.starts) - 1, _baseline(cell, against, metric)
    at, before = steps.starts[newest], int(steps.counts[newest])
    row: dict[str, Any] = {"metric": metric, "campaigns": len(rows), "campaign": rows["campaign"].iloc[at]}
    row |= {"since": rows["start"].iloc[at], "n": before, "n_baseline": 0}
    row |= dict.fromkeys(("ratio", "ratio_lo", "ratio_hi", "p"), np.nan)
    if base is not None and base != newest:
        row |= cell.contrast(base, newest) | {"n_baseline": int(steps.counts[base])}
    needed = _needed(steps.spread, before, size, cells, power)
    visible = smallest_loss(steps.spread, before, LEAST_SIDE, cells, power)
    row |= {"visible_pct": 100 * visible, "needed": needed, "cv_pct": 100 * steps.spread}
    row |= {"candidates": _candidates(rows, *steps.places(newest)) if newest else ""}
    verdict = _judgement(cell, base, row["p"], row["ratio"], metric, limit_of(len(rows), cells))
    few = len(rows) < LEAST_CAMPAIGNS or (newest > 0 and steps.counts[newest - 1] < LEAST_BEFORE)
    if few and verdict not in ("regression", "missing"):
        verdict = "too-few"
    elif verdict == "no change" and visible > size:
        verdict = "too-noisy"
    code = 2 if verdict in UNDECIDED else int(verdict == "regression" and abs(row["ratio"] - 1) >= size)
    return row | {"verdict": verdict, "code": code}


def _baseline(cell: _Cell, against: str, metric: str) -> int | None:
    """The level that the newest is held against: the newest where there is no other, None where it is missing."""
    steps, newest = cell.steps, len(cell.steps.starts) - 1
    if against == "last":
        return max(0, newest - 1)
    if against == "best":
        sign = -1 if metric_of(metric).better == "lower" else 1
        return int(np.argmax(sign * steps.levels[: max(1, newest)]))
    places = np.flatnonzero(cell.rows["campaign"] == against)
    return int(steps.of_level[places[0]]) if len(places) else None


def _judgement(cell: _Cell, base: int | None, p: float, ratio: float, metric: str, limit: float) -> str:
    steps, newest = cell.steps, len(cell.steps.starts) - 1
    if base is None:
        return "missing"
    if base != newest and p <= limit:
        verdict = _verdict(metric, ratio)
        accepted = cell.accepted(steps.places(base + 1)[0], steps.places(newest)[1])
        return "accepted" if accepted and verdict == "regression" else verdict
    worse = steps.residuals[-1] * (-1 if metric_of(metric).better == "lower" else 1) < 0
    return "suspect" if worse and steps.outliers[-1] else "no change"


def smallest_loss(spread: float, before: int, new: int, cells: int, power: float = POWER) -> float:
    """Return the smallest loss that so many new campaigns prove with a chance of `power`, 0.05 for 5 %.

    1 - exp(-s ((t* + t(power)) sqrt(w) + 1.5 w)), w = 1 / new + 1 / before, where t* is the limit of a change. The last
    term is from simulations: a change must also be seen before it is tested (METHODS section 12).

    Parameters
    ----------
    spread : standard deviation s of a campaign's log mean
    before, new : campaigns of both levels
    cells : how many cells are looked at
    """
    campaigns = before + new
    if campaigns < LEAST_CAMPAIGNS or min(before, new) < LEAST_SIDE:
        return 1.0
    t = stdtrit(campaigns - 2, power) - stdtrit(campaigns - 2, limit_of(campaigns, cells) / 2)
    weight = 1 / new + 1 / before
    return float(-np.expm1(-spread * (t * np.sqrt(weight) + SEEN * weight)))


def _needed(spread: float, before: int, size: float, cells: int, power: float) -> float:
    """Return how many campaigns after a loss of `size` prove it; NaN where more than 400 would have to."""
    enough = (n for n in range(LEAST_SIDE, MOST_NEEDED) if smallest_loss(spread, before, n, cells, power) <= size)
    return float(next(enough, np.nan))
