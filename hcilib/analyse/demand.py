"""Which latency at which demand, and which demand does a latency allow? (METHODS section 6)

A closed loop cannot say: its latency is outstanding / IOPS. Here the load was *offered*: a demand of so many I/Os a
second, whether or not the storage kept up. What it did not keep up with is saturated: its latencies are lower bounds
and nothing is interpolated through them. Nor is what was offered beyond the closed-loop maximum, which a short run may
seem to keep up with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from hcilib.analyse.compare import SINGLE_RUN, summarize
from hcilib.analyse.rows import interval_names, numbered, refuse_mixing, valid_rows
from hcilib.analyse.stats import CONFIDENCE, mean_of
from hcilib.model.metrics import in_order

BY = ("system", "pattern")
DEMAND = ("rate_iops", "offered_iops", "open_loop", "iops")
"""The columns that offered load brings: the level asked for, in IOPS, whether it was an open loop, and what was
delivered."""
OF_A_LEVEL = ("iodepth", "rate_iops")
"""Factors that differ along one curve: the level, and how deep a queue was granted so that it never binds."""
ABOVE = 1.001
"""Of the closed-loop maximum: a demand is a whole number of I/Os a second."""
LATENCY = ("latency_ns", "latency_ns_lo", "latency_ns_hi")
"""Columns of a table of several latencies, whose column `metric` says which."""
SHORT_RUN = 12.0
"""How far the log of a latency may lie too low, times the run's length in relaxation times (METHODS section 6)."""
BURST_S = 0.25
"""Of its rate: what a drive may let through at once after a pause, so that a short run sees a faster one."""


def load_curve(results: pd.DataFrame, metric: str | Sequence[str] = "p99_ns", by: Sequence[str] = BY) -> pd.DataFrame:
    """A latency over the IOPS that were delivered, one row a demand and metric.

    Parameters
    ----------
    results : the results table; only rows with a demand (`offered_iops`) count
    metric : a latency of it, or several, such as `lat_ns`, `p50_ns`, `p99_ns`, `p999_ns`
    by : what makes a curve

    Returns
    -------
    `by`, demand, offered_iops and iops (geometric means over runs), metric, n (runs), latency_ns
    (geometric mean), latency_ns_lo, latency_ns_hi (t on logs, NaN at n = 1), fitted_ns (latency_ns
    made monotone over iops by isotonic regression, NaN where saturated), open_loop (no run fell
    short, nor was more offered than the closed-loop maximum), confidence, warnings. Sorted by what
    was offered.

    Raises
    ------
    ValueError : no such column, or runs of one curve that vary in a factor

    Examples
    --------
    >>> import pandas as pd
    >>> results = pd.DataFrame({
    ...     "system": "A", "pattern": "4k-randread", "block": [1, 1, 1, 2, 2, 2],
    ...     "rate_iops": ["0.3", "0.6", "0.9"] * 2,
    ...     "offered_iops": [300, 600, 900, 310, 620, 930], "iops": [300, 600, 900, 310, 620, 930], "open_loop": True,
    ...     "p99_ns": [1e6, 2e6, 9e6, 1.1e6, 2.2e6, 9.4e6]})
    >>> hci.load_curve(results)[["rate_iops", "iops", "n", "latency_ns", "open_loop"]].round(0)
      rate_iops   iops  n  latency_ns  open_loop
    0       0.3  305.0  2   1048809.0       True
    1       0.6  610.0  2   2097618.0       True
    2       0.9  915.0  2   9197826.0       True
    """
    if not isinstance(metric, str):
        return pd.concat([load_curve(results, one, by) for one in metric], ignore_index=True)
    offered = _offered(results, metric, by)
    rows = []
    for key, runs in _groups(offered, by):
        levels = [_level(level, metric) for _, level in runs.groupby("rate_iops", sort=False)]
        curve = pd.DataFrame(levels).sort_values("offered_iops", ignore_index=True)
        curve["fitted_ns"] = _monotone(curve["iops"], curve["latency_ns"], curve["open_loop"], curve["n"])
        rows.append(curve.assign(**key))
    columns = [*by, "rate_iops", "offered_iops", "iops", "metric", "n", *LATENCY, "fitted_ns", "open_loop"]
    table = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=[*columns, "warnings"])
    return in_order(table).assign(confidence=CONFIDENCE)[[*columns, "confidence", "warnings"]]


def latency_over_iops(results: pd.DataFrame) -> pd.DataFrame:
    """The mean latency over the IOPS of the same tests: at demands where any was offered, else at the depths of a
    closed loop.

    Only the former says which latency a demand has: of a closed loop each axis is the other's reciprocal times the
    queue, and the figure shows where more queue buys no more work.

    Returns
    -------
    `load_curve`'s table; of a closed loop system, pattern, iodepth, iops (of ``summarize``),
    metric, n, latency_ns, latency_ns_lo, latency_ns_hi, open_loop (True: no demand was missed),
    confidence, warnings, in the order of iodepth

    Examples
    --------
    >>> table = hci.latency_over_iops(hci.published().query("source == 'proxmox-2node-hci' and vms > 1"))
    >>> table[["system", "pattern", "iodepth", "iops", "latency_ns"]].head(1)
         system        pattern  iodepth     iops  latency_ns
    0  ceph-pve  64k-randwrite        1  36200.0   1323000.0
    """
    if "offered_iops" in results and results["offered_iops"].notna().any():
        return load_curve(results, "lat_ns", BY)
    latency = summarize(results, "lat_ns").rename(columns=interval_names("lat_ns", "latency_ns"))
    delivered = summarize(results, "iops")
    table = latency.merge(delivered[[*BY, "iodepth", "iops"]], on=[*BY, "iodepth"])
    return table.assign(metric="lat_ns", open_loop=True).sort_values("iodepth", kind="stable", ignore_index=True)


def load_within(results: pd.DataFrame, by: Sequence[str] = BY, **limits: float | Sequence[float]) -> pd.DataFrame:
    """The most IOPS that a latency limit allows, with an interval over rounds.

    Parameters
    ----------
    limits : one or several of metric = limit in ns, or limits, such as ``p99_ns=[2e6, 5e6]``; each is a row of its own

    Returns
    -------
    `by`, metric, limit_ns, n (blocks), iops (geometric mean), iops_lo, iops_hi, bound, confidence,
    warnings. No end of a larger limit is below that of a smaller one, and without `at least` none is above
    the closed-loop maximum. `bound` is ``at least`` where in any round the limit was not reached while the storage
    kept up (iops_hi is inf, iops is iops_lo), ``below`` where in any round even the least demand
    exceeded it (iops_lo is 0, iops is iops_hi), else empty; `warnings` has the count. An upper end
    above all IOPS that were measured is unknown, and NaN. Where rounds
    disagree about that, iops is NaN and the row says so.

    Source: METHODS section 6. The crossing of each round's curve with the limit, log-linear between
    levels. iops_lo is of the least that a convex curve through the levels allows, less what short
    runs hide, and iops_hi of the most.

    Examples
    --------
    >>> import pandas as pd
    >>> results = pd.DataFrame({
    ...     "system": "A", "pattern": "4k-randread", "block": [1, 1, 1, 2, 2, 2],
    ...     "rate_iops": ["0.3", "0.6", "0.9"] * 2,
    ...     "offered_iops": [300, 600, 900, 310, 620, 930], "iops": [300, 600, 900, 310, 620, 930], "open_loop": True,
    ...     "p99_ns": [1e6, 2e6, 9e6, 1.1e6, 2.2e6, 9.4e6]})
    >>> hci.load_within(results, p99_ns=5e6)[["system", "metric", "n", "iops"]].round(0)
      system  metric  n   iops
    0      A  p99_ns  2  789.0
    """
    rows = []
    for metric, limit_ns in _limits(limits):
        for key, blocks in _groups(_crossings(results, by, metric, limit_ns), by):
            rows.append(key | {"metric": metric, "limit_ns": limit_ns} | _over_blocks(blocks))
    columns = [*by, "metric", "limit_ns", "n", "iops", "iops_lo", "iops_hi", "bound", "warnings"]
    table = pd.DataFrame(rows, columns=columns).assign(confidence=CONFIDENCE)
    return _rising(in_order(table), [*by, "metric"])


def _rising(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the table with bounds that hold for every limit: what a limit allows, a larger one allows too."""
    rising = table.sort_values("limit_ns", kind="stable")
    least = rising.groupby(list(by), dropna=False)["iops_lo"].cummax()
    most = rising[::-1].groupby(list(by), dropna=False)["iops_hi"].cummin()
    table = table.assign(iops_lo=least, iops_hi=most)
    table.loc[table["bound"] == "at least", "iops"] = table["iops_lo"]
    table.loc[table["bound"] == "below", "iops"] = table["iops_hi"]
    return table


def load_within_runs(results: pd.DataFrame, by: Sequence[str] = BY, **limit: float) -> pd.DataFrame:
    """What `load_within` averages, one row a round: a results table of its own, for ``compare(..., metric="iops")``.

    Columns: `by`, source, run_id, block, pair (where the results have them), iops, bound, valid. A round whose crossing
    lies beyond what was measured is not valid: its iops is a bound, and a ratio of bounds says nothing.

    Examples
    --------
    >>> import pandas as pd
    >>> results = pd.DataFrame({
    ...     "system": "A", "pattern": "4k-randread", "block": [1, 1, 1, 2, 2, 2],
    ...     "rate_iops": ["0.3", "0.6", "0.9"] * 2,
    ...     "offered_iops": [300, 600, 900, 310, 620, 930], "iops": [300, 600, 900, 310, 620, 930], "open_loop": True,
    ...     "p99_ns": [1e6, 2e6, 9e6, 1.1e6, 2.2e6, 9.4e6]})
    >>> hci.load_within_runs(results, p99_ns=5e6)[["system", "block", "iops", "valid"]].round(0)
      system  block   iops  valid
    0      A      1  783.0   True
    1      A      2  795.0   True
    """
    [(metric, limit_ns)] = _limits(limit)
    return _crossings(results, by, metric, limit_ns).drop(columns=["least", "most", "maximum", "delivered", "behind"])


def latency_at(
    results: pd.DataFrame,
    iops: float | Sequence[float],
    metric: str = "p99_ns",
    by: Sequence[str] = BY,
) -> pd.DataFrame:
    """The latency at a demand, with an interval over rounds, or a refusal to extrapolate.

    Returns
    -------
    `by`, iops (asked for), metric, n (rounds whose levels enclose it), latency_ns, latency_ns_lo,
    latency_ns_hi, confidence, warnings; latency_ns is NaN where no round measured both below and
    above it while the storage kept up, and the row says what was measured.

    Source: METHODS section 6. latency_ns is log-linear between levels; latency_ns_lo is of the
    least that a convex curve through the levels allows, and latency_ns_hi of the most, more by what
    short runs hide. An end above every latency that was measured is unknown, and NaN.

    Examples
    --------
    >>> import pandas as pd
    >>> results = pd.DataFrame({
    ...     "system": "A", "pattern": "4k-randread", "block": [1, 1, 1, 2, 2, 2],
    ...     "rate_iops": ["0.3", "0.6", "0.9"] * 2,
    ...     "offered_iops": [300, 600, 900, 310, 620, 930], "iops": [300, 600, 900, 310, 620, 930], "open_loop": True,
    ...     "p99_ns": [1e6, 2e6, 9e6, 1.1e6, 2.2e6, 9.4e6]})
    >>> hci.latency_at(results, [700, 5000])[["iops", "n", "latency_ns"]].round(0)
         iops  n  latency_ns
    0   700.0  2   3250696.0
    1  5000.0  0         NaN
    """
    offered = _offered(results, metric, by)
    rows = []
    for asked in np.atleast_1d(np.asarray(iops, dtype=float)):
        for key, runs in _groups(offered, by):
            rows.append(key | {"iops": asked, "metric": metric} | _at(runs, asked, metric))
    columns = [*by, "iops", "metric", "n", *LATENCY, "warnings"]
    return in_order(pd.DataFrame(rows, columns=columns)).assign(confidence=CONFIDENCE)


# --- what was offered -------------------------------------------------------------------------------------------------


def _offered(results: pd.DataFrame, metric: str, by: Sequence[str]) -> pd.DataFrame:
    """The valid runs at a demand; ValueError where a column is missing, nothing was offered or a curve mixes
    factors."""
    if missing := [name for name in (*by, *DEMAND, metric) if name not in results]:
        raise ValueError(
            f"results have no column {', '.join(map(repr, missing))}: load was offered by sweep(offered=...)"
        )
    valid = results[valid_rows(results)]
    closed, offered = (valid[valid["offered_iops"].isna() == is_closed] for is_closed in (True, False))
    if offered.empty:
        raise ValueError(
            "measured without a request rate, so the latency follows from the IOPS; "
            "measure with sweep(offered=[0.25, 0.5, 0.75, 0.9])"
        )
    refuse_mixing(offered, by, besides=OF_A_LEVEL)
    if "rep" in offered and offered.reindex(columns=["block"])["block"].isna().all():
        offered = offered.assign(block=offered["rep"])  # files of other tools have no blocks: a repeat is a curve
    maximum = _maximum(offered, closed, by)
    return offered.assign(maximum=maximum, above=offered["offered_iops"] > ABOVE * maximum)


def _maximum(offered: pd.DataFrame, closed: pd.DataFrame, by: Sequence[str]) -> pd.Series:
    """The most that a closed loop got of the same storage, in the same block where it was measured there; inf where it
    was not."""
    found = pd.Series(np.inf, offered.index)
    for keys in ([*by], [*by, *(name for name in ("source", "run_id", "block") if name in offered and name not in by)]):
        if not closed.empty and not closed[keys].isna().all().any():
            most = closed.groupby(keys, dropna=False)["iops"].max().rename("most").reset_index()
            own = offered[keys].merge(most, on=keys, how="left")["most"].set_axis(offered.index)
            found = own.fillna(found)
    return found


def _limits(limits: Mapping[str, float | Sequence[float]]) -> list[tuple[str, float]]:
    """(metric, ns) of every limit."""
    named = [(name, float(value)) for name, values in limits.items() for value in np.atleast_1d(values)]
    for name, value in named:
        if not name.endswith("_ns") or not value > 0:
            raise ValueError(f"limit {name}={value!r}: expected a latency column and nanoseconds, e.g. p99_ns=2e6")
    if not named:
        raise ValueError("no limit given: name one, e.g. p99_ns=2e6")
    return named


def _groups(frame: pd.DataFrame, by: Sequence[str]):
    """(the keys as a mapping, the rows) of each group, in the field's order."""
    for _, rows in frame.groupby(numbered(frame, by)):
        [key] = rows[[*by]].head(1).to_dict("records")
        yield key, rows


# --- one curve --------------------------------------------------------------------------------------------------------


def _level(runs: pd.DataFrame, metric: str) -> dict:
    """One demand over its runs."""
    found = _interval(runs[metric], "latency_ns")
    saturated, above = int(runs["open_loop"].eq(False).sum()), int(runs["above"].sum())
    unsure, missing = int(runs["open_loop"].isna().sum()), len(runs) - found["n"]
    rates = {name: np.exp(np.log(runs[name]).mean()) for name in ("offered_iops", "iops")}
    said = []
    if saturated:
        said.append("saturated")
    if above:
        said.append("above-maximum")
    if unsure and not above:
        said.append("too-few")
    if missing:
        said.append("no-value")
    if found["n"] == 1:
        said.append(SINGLE_RUN)
    level = {"rate_iops": runs["rate_iops"].iloc[0], "metric": metric, "open_loop": not (saturated or above)}
    return level | rates | found | {"warnings": " ".join(said)}


def _interval(values: ArrayLike, name: str) -> dict[str, Any]:
    """Return n, and the geometric mean with its t interval on logs as `name`, `name`_lo and `name`_hi; NaN where there
    is none."""
    logs = np.log(np.asarray(values, float))
    logs = logs[np.isfinite(logs)]
    return {"n": len(logs)} | {name: np.exp(value) for name, value in mean_of(name, logs).items()}


def _monotone(iops: pd.Series, latency: pd.Series, kept_up: pd.Series, weights: pd.Series) -> np.ndarray:
    """`latency` made non-decreasing over `iops`, on logs, weighted; NaN where the storage did not keep up."""
    fitted = np.full(len(iops), np.nan)
    use = kept_up.to_numpy(bool) & np.isfinite(latency.to_numpy(float))
    if use.any():
        places = np.flatnonzero(use)[np.argsort(iops.to_numpy(float)[use], kind="stable")]
        logs, weight = np.log(latency.to_numpy(float)[places]), np.maximum(weights.to_numpy(float)[places], 1)
        fitted[places] = np.exp(isotonic_regression(logs, weights=weight).x)
    return fitted


def _kept_up_with(block: pd.DataFrame, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """A block's curve as far as the storage kept up: IOPS, and the log of the latency made monotone over them."""
    levels = block.sort_values("iops")
    kept_up = ~(levels["open_loop"].eq(False) | levels["above"])
    latency = _monotone(levels["iops"], levels[metric], kept_up, pd.Series(1, levels.index))
    known = np.isfinite(latency)
    return levels["iops"].to_numpy(float)[known], np.log(latency[known])


def _crossings(results: pd.DataFrame, by: Sequence[str], metric: str, limit_ns: float) -> pd.DataFrame:
    """One row a block: iops (where the curve, log-linear between levels, reaches the limit), `least` and `most` (where
    a convex curve may), maximum (of the closed loop), bound, valid."""
    offered = _offered(results, metric, by)
    own = [name for name in ("source", "run_id", "block") if name in offered and name not in by]
    rows = []
    for key, block in _groups(offered, [*by, *own]):
        x, y = _kept_up_with(block, metric)
        crossing, bound = _crossing(x, y, np.log(limit_ns))
        hidden = _hidden(crossing, limit_ns, metric, block)
        least = _crossing(x, np.exp(y), limit_ns * np.exp(-hidden))[0]
        behind = _behind(np.exp(y[-1]), metric, block) if bound == "at least" else 0.0
        most = np.inf if bound == "at least" else _last_crossing(x, np.exp(y), limit_ns)
        ends = {"least": least, "most": most, "maximum": block["maximum"].iloc[0], "delivered": block["iops"].max(),
                "behind": behind}  # fmt: skip
        rows.append(key | {"iops": crossing} | ends | {"bound": bound, "valid": bound == ""})
    found = ["iops", "least", "most", "maximum", "delivered", "behind", "bound", "valid"]
    return in_order(pd.DataFrame(rows, columns=[*by, *own, *found]))


def _crossing(x: np.ndarray, y: np.ndarray, limit: float) -> tuple[float, str]:
    """Where the lines between a block's levels reach the limit, and whether that is a bound."""
    if not len(x):
        return np.nan, "below"
    if y[0] > limit:
        return float(x[0]), "below"
    if y[-1] <= limit:
        return float(x[-1]), "at least"
    k = int(np.argmax(y > limit))
    return float(x[k - 1] + (limit - y[k - 1]) / (y[k] - y[k - 1]) * (x[k] - x[k - 1])), ""


# A latency is convex over the load. So between two levels it lies below the line through them (`_crossing` of the
# latencies is the least), and above the lines of the two intervals beside, continued.


def _last_crossing(x: np.ndarray, y: np.ndarray, limit: float) -> float:
    """Where a convex, rising curve reaches the limit at the latest; NaN where there is none."""
    if not len(x) or y[0] > limit:
        return float(x[0]) if len(x) else np.nan
    k = int(np.argmax(y > limit))
    slopes = np.diff(y) / np.diff(x)
    most = [x[k]]
    if k > 1 and slopes[k - 2] > 0:
        most.append(x[k - 1] + (limit - y[k - 1]) / slopes[k - 2])
    if k + 1 < len(x) and slopes[k] > 0:
        most.append(x[k] - (y[k] - limit) / slopes[k])
    return float(max(_crossing(x, y, limit)[0], min(most)))


def _least_at(x: np.ndarray, y: np.ndarray, asked: float) -> float:
    """The least that a convex, rising curve can be there."""
    k = min(max(int(np.searchsorted(x, asked, side="right")), 1), len(x) - 1)
    slopes = np.diff(y) / np.diff(x)
    least = [y[k - 1]]
    if k > 1:
        least.append(y[k - 1] + slopes[k - 2] * (asked - x[k - 1]))
    if k + 1 < len(x):
        least.append(y[k] - slopes[k] * (x[k] - asked))
    return float(min(max(least), np.interp(asked, x, y)))


def _hidden(iops: float, latency_ns: float, metric: str, block: pd.DataFrame) -> float:
    """How far the log of a latency may lie too low because the runs were short: they began with an empty queue, and
    hold few of its long fillings. 0 where their length is not known."""
    tail = -np.log1p(-_share_below(metric))
    relaxation_s = 4 * iops * (latency_ns / 1e9 / tail) ** 2
    return float(np.nan_to_num(SHORT_RUN * relaxation_s / _seconds(block)))


def _behind(latency_ns: float, metric: str, block: pd.DataFrame) -> float:
    """Which share of the IOPS the storage may have fallen behind by, unseen: as many I/Os as wait when the run ends,
    and a burst. 0 where the runs' length is not known."""
    longest_s = latency_ns / 1e9 / _share_below(metric) + BURST_S
    return float(np.nan_to_num(longest_s / _seconds(block)))


def _seconds(block: pd.DataFrame) -> float:
    return block["runtime_s"].min() if "runtime_s" in block else np.nan


def _share_below(metric: str) -> float:
    """Return the share of I/Os that are faster than a percentile. For a mean, as of exponential times."""
    share = re.fullmatch(r"p(\d\d)(\d*)_ns", metric)
    return float(f"0.{share[1]}{share[2]}") if share else 1 - np.exp(-1)


# --- over blocks ------------------------------------------------------------------------------------------------------


def _over_blocks(blocks: pd.DataFrame) -> dict:
    found = _interval(blocks["iops"], "iops")
    least, most, maximum = (_interval(blocks[end], "iops") for end in ("least", "most", "maximum"))
    found |= {"iops_lo": least["iops_lo"], "iops_hi": np.fmin(most["iops_hi"], maximum["iops_hi"])}
    said = [SINGLE_RUN] if found["n"] == 1 else []
    under, over = (int(blocks["bound"].eq(bound).sum()) for bound in ("below", "at least"))
    bound, maxima = "", blocks["maximum"].replace(np.inf, np.nan)
    measured = np.fmax(blocks["delivered"].max(), maxima.max())
    if under and over:
        said.append("disagree")
        found |= dict.fromkeys(("iops", "iops_lo", "iops_hi"), np.nan)
    elif over:
        bound = "at least"
        said.append("at-least")
        lowest = blocks["least"].min() if np.isnan(found["iops_lo"]) else found["iops_lo"]
        lowest /= 1 + blocks["behind"].max()
        found |= {"iops": lowest, "iops_lo": lowest, "iops_hi": np.inf}
    elif under:
        bound = "below"
        said.append("below")
        highest = blocks["most"].max() if np.isnan(found["iops_hi"]) else found["iops_hi"]
        highest = _up_to(highest, measured, said)
        found |= {"iops": highest, "iops_lo": 0.0, "iops_hi": highest}
    else:
        found["iops_hi"] = _up_to(found["iops_hi"], measured, said)
    return found | {"bound": bound, "warnings": " ".join(said)}


def _up_to(value: float, most: float, said: list) -> float:
    """Return an upper end; NaN, and why, where it lies above everything that was measured: it is unknown."""
    if np.isfinite(value) and value > most:
        said.append("beyond-measured")
        return np.nan
    return value


def _at(runs: pd.DataFrame, asked: float, metric: str) -> dict:
    own = [name for name in ("source", "run_id", "block") if name in runs]
    found, least, most = [], [], []
    for _, block in _groups(runs, own):
        x, y = _kept_up_with(block, metric)
        if len(x) and x[0] <= asked <= x[-1]:
            found.append(np.exp(np.interp(asked, x, y)))
            least.append(_least_at(x, np.exp(y), asked) if len(x) > 1 else found[-1])
            most.append(np.interp(asked, x, np.exp(y)) * np.exp(_hidden(asked, found[-1], metric, block)))
    said = [SINGLE_RUN] if len(found) == 1 else []
    if not found:
        said.append("not-measured")
    lo, hi = (_interval(ends, "latency_ns") for ends in (least, most))
    end = _up_to(hi["latency_ns_hi"], runs[metric].max(), said)
    interval = {"latency_ns_lo": lo["latency_ns_lo"], "latency_ns_hi": end}
    return _interval(found, "latency_ns") | interval | {"warnings": " ".join(said)}
