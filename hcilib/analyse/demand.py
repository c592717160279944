"""Which latency at which demand, and which demand does a latency limit allow? (METHODS section 6)

A closed loop cannot say: its latency is outstanding / IOPS. Here the load was *offered*: so many I/Os a
second, whether or not the storage kept up. Where it did not, latencies are lower bounds, and nothing is
interpolated through them. Nor is it through a demand above the closed-loop maximum, which a short run may
seem to keep up with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from hcilib.analyse.compare import SINGLE_RUN, summarize
from hcilib.analyse.rows import (
    as_list,
    groups_of,
    numbers_of,
    refuse_mixing,
    require_columns,
    sorted_by,
    valid_rows,
)
from hcilib.analyse.stats import half_width
from hcilib.model.caveats import add_codes
from hcilib.model.metrics import in_order

BY = ["system", "pattern"]
OF_A_LEVEL = ("iodepth", "rate_iops")
"""Factors that differ along a curve: the level, and how deep a queue was granted so that it never binds."""
ABOVE = 1.001
"""Of the closed-loop maximum: a demand is a whole number of I/Os a second."""
LATENCY = ["latency_ns", "latency_ns_lo", "latency_ns_hi"]
"""Columns of a table of several latencies, whose column `metric` says which."""
SHORT_RUN = 12.0
"""How far the log of a latency may lie too low, times the relaxation time over the run's length."""
BURST_S = 0.25
"""Of its rate: what a drive may let through at once, so that a short run sees a faster one."""


def load_curve(results: pd.DataFrame, metric: str | Sequence[str] = "p99_ns") -> pd.DataFrame:
    """Return a latency over the IOPS that were delivered, one row a demand and metric.

    Parameters
    ----------
    results : the results table; only rows with a demand (`offered_iops`) count
    metric : a latency of it, or several, such as `lat_ns`, `p50_ns`, `p99_ns`

    Returns
    -------
    DataFrame: system, pattern, rate_iops (the demand, as set), offered_iops and iops (geometric means),
    metric, n (runs), latency_ns (geometric mean) with latency_ns_lo and latency_ns_hi (t on logs; NaN of
    one run, of a level that the storage did not keep up with, and where an end lies above everything
    measured), open_loop (no run fell short, nor was more offered than the closed-loop maximum),
    warnings. Sorted by what was offered.

    Raises
    ------
    ValueError : no such column, nothing offered, or runs of one curve that vary in a factor

    Examples
    --------
    >>> import pandas as pd
    >>> results = pd.DataFrame({
    ...     "system": "A", "pattern": "4k-randread", "block": [1, 1, 1, 2, 2, 2],
    ...     "rate_iops": ["0.3", "0.6", "0.9"] * 2,
    ...     "offered_iops": [300, 600, 900, 310, 620, 930], "iops": [300, 600, 900, 310, 620, 930],
    ...     "open_loop": True, "p99_ns": [1e6, 2e6, 9e6, 1.1e6, 2.2e6, 9.4e6]})
    >>> hci.load_curve(results)[["rate_iops", "iops", "n", "latency_ns", "open_loop"]].round(0)
      rate_iops   iops  n  latency_ns  open_loop
    0       0.3  305.0  2   1048809.0       True
    1       0.6  610.0  2   2097618.0       True
    2       0.9  915.0  2   9197826.0       True
    """
    return pd.concat([_curve(results, name) for name in as_list(metric)], ignore_index=True)


def _curve(results: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return `load_curve` of one metric."""
    runs, keys = _offered(results, metric), [*BY, "rate_iops"]
    n, mean, lo, hi = _means(runs, keys, [metric, "offered_iops", "iops"])
    levels = runs.groupby(keys, sort=False, dropna=False)
    said = levels[["saturated", "above", "unsure"]].any()
    table = mean[["offered_iops", "iops"]].assign(metric=metric, n=n[metric], open_loop=levels["kept_up"].all())
    table["latency_ns"] = mean[metric]
    for end, values in (("lo", lo), ("hi", hi)):  # a latency that is a lower bound has no interval
        table[f"latency_ns_{end}"] = values[metric].where(table["open_loop"])
    table["warnings"] = add_codes(
        [""] * len(table),
        (said["saturated"], "saturated"),
        (said["above"], "above-maximum"),
        (said["unsure"] & ~said["above"], "too-few"),
        (table["n"] < levels.size(), "no-value"),
        (table["n"] == 1, SINGLE_RUN),
    )
    table = _known(table, "latency_ns_hi", levels["measured"].max()).reset_index()
    shown = ["rate_iops", "offered_iops", "iops", "metric", "n", *LATENCY, "open_loop", "warnings"]
    return sorted_by(table.sort_values("offered_iops", kind="stable"), BY)[[*BY, *shown]]


def latency_over_iops(results: pd.DataFrame) -> pd.DataFrame:
    """Return the mean latency over the IOPS of the same tests: at demands, or at depths of a closed loop.

    Only the former tells which latency a demand has. In a closed loop each axis is the other's reciprocal
    times the queue. Then the table shows where more queue buys no more work.

    Parameters
    ----------
    results : DataFrame, one row a run (`read_results`)

    Returns
    -------
    DataFrame: `load_curve`'s where any demand was offered; else system, pattern, iodepth, iops, metric, n,
    latency_ns, latency_ns_lo, latency_ns_hi, open_loop (True: no demand was missed), warnings, in the order
    of iodepth

    Examples
    --------
    >>> table = hci.latency_over_iops(hci.published().query("source == 'proxmox-2node-hci' and vms > 1"))
    >>> table[["system", "pattern", "iodepth", "iops", "latency_ns"]].head(1)
         system        pattern  iodepth     iops  latency_ns
    0  ceph-pve  64k-randwrite        1  36200.0   1323000.0
    """
    if "offered_iops" in results and results["offered_iops"].notna().any():
        return load_curve(results, "lat_ns")
    table = summarize(results, "lat_ns").rename(columns=lambda name: name.replace("lat_ns", "latency_ns"))
    table = table.assign(iops=summarize(results, "iops")["iops"], metric="lat_ns", open_loop=True)
    return table.sort_values("iodepth", kind="stable", ignore_index=True)


def load_within(results: pd.DataFrame, **limits: float | Sequence[float]) -> pd.DataFrame:
    """Return the most IOPS that a latency limit allows, with bounds from the rounds.

    Each round's curve, log-linear between demands, is crossed with the limit. A latency is convex over the
    load, so the curve lies below the line through two demands and above the lines of the intervals beside.
    iops_lo is of the earliest crossing that this allows, less what short runs hide; iops_hi of the latest.

    Parameters
    ----------
    limits : metric = a limit in ns, or several, such as ``p99_ns=[2e6, 5e6]``; each is a row

    Returns
    -------
    DataFrame: system, pattern, metric, limit_ns, n (rounds), iops (geometric mean), iops_lo, iops_hi, bound,
    warnings. `bound` is ``at least`` where a round stayed within the limit at every demand (iops_hi is inf,
    iops is iops_lo), ``below`` where one exceeded it at the least demand (iops_lo is 0, iops is iops_hi).
    Where rounds disagree, iops is NaN. An upper end above all that was measured is NaN. A larger limit
    never allows less.

    Source: METHODS section 6. On M/D/1 queues the bounds hold in 98 to 100 % of campaigns.

    Examples
    --------
    >>> import pandas as pd
    >>> results = pd.DataFrame({
    ...     "system": "A", "pattern": "4k-randread", "block": [1, 1, 1, 2, 2, 2],
    ...     "rate_iops": ["0.3", "0.6", "0.9"] * 2,
    ...     "offered_iops": [300, 600, 900, 310, 620, 930], "iops": [300, 600, 900, 310, 620, 930],
    ...     "open_loop": True, "p99_ns": [1e6, 2e6, 9e6, 1.1e6, 2.2e6, 9.4e6]})
    >>> hci.load_within(results, p99_ns=5e6)[["system", "metric", "n", "iops"]].round(0)
      system  metric  n   iops
    0      A  p99_ns  2  789.0
    """
    rounds = pd.concat([_crossings(results, *limit) for limit in _limits(limits)])
    keys = [*BY, "metric", "limit_ns"]
    n, mean, least, most = _means(rounds, keys, ["iops", "least", "most", "maximum"])
    every = rounds.groupby(keys, sort=False, dropna=False)
    under, over = every["under"].any(), every["over"].any()
    disagree = under & over
    lowest = least["least"].fillna(every["least"].min()) / (1 + every["behind"].max())
    highest = np.fmin(most["most"], most["maximum"])
    highest = highest.mask(under, highest.fillna(every["most"].max()))
    table = mean[["iops"]].assign(n=n["iops"])
    table["iops_lo"] = least["least"].mask(over, lowest).mask(under, 0.0)
    table["iops_hi"] = highest.mask(over, np.inf)
    table["bound"] = np.select([disagree, over, under], ["", "at least", "below"], "")
    codes = [(disagree, "disagree"), (over & ~under, "at-least"), (under & ~over, "below")]
    table["warnings"] = add_codes([""] * len(table), (table["n"] == 1, SINGLE_RUN), *codes)
    table = _known(table, "iops_hi", every["measured"].max())
    ends = ["iops", "iops_lo", "iops_hi"]
    table[ends] = table[ends].mask(disagree)
    # What a limit allows, a larger one allows too.
    rising = table.sort_index(level="limit_ns", kind="stable")
    table["iops_lo"] = rising.groupby(keys[:-1], dropna=False)["iops_lo"].cummax()
    table["iops_hi"] = rising[::-1].groupby(keys[:-1], dropna=False)["iops_hi"].cummin()
    table["iops"] = table["iops"].mask(over, table["iops_lo"]).mask(under, table["iops_hi"])
    return table.reset_index()[[*keys, "n", *ends, "bound", "warnings"]]


def load_within_runs(results: pd.DataFrame, **limit: float) -> pd.DataFrame:
    """Return the IOPS that one latency limit allows, a row a round, for ``compare(..., metric="iops")``.

    Parameters
    ----------
    results : DataFrame, one row a run (`read_results`), at several demands
    limit : one latency and its bound in ns, such as ``p99_ns=5e6``

    Returns
    -------
    DataFrame: system, pattern, source, run_id, block (where the results have them), iops, valid. A
    round whose crossing lies beyond what was measured is not valid: a ratio of bounds says nothing.

    Raises
    ------
    ValueError : several limits

    Examples
    --------
    >>> import pandas as pd
    >>> results = pd.DataFrame({
    ...     "system": "A", "pattern": "4k-randread", "block": [1, 1, 1, 2, 2, 2],
    ...     "rate_iops": ["0.3", "0.6", "0.9"] * 2,
    ...     "offered_iops": [300, 600, 900, 310, 620, 930], "iops": [300, 600, 900, 310, 620, 930],
    ...     "open_loop": True, "p99_ns": [1e6, 2e6, 9e6, 1.1e6, 2.2e6, 9.4e6]})
    >>> hci.load_within_runs(results, p99_ns=5e6)[["system", "block", "iops", "valid"]].round(0)
      system  block   iops  valid
    0      A      1  783.0   True
    1      A      2  795.0   True
    """
    limits = _limits(limit)
    if len(limits) != 1:
        raise ValueError(f"one limit is needed, such as p99_ns=5e6; got {len(limits)}")
    [(metric, limit_ns)] = limits
    rounds = _crossings(results, metric, limit_ns)
    rounds["valid"] = ~(rounds["under"] | rounds["over"])
    return rounds[[*_round_keys(rounds), "iops", "valid"]]


def latency_at(results: pd.DataFrame, iops: float | Sequence[float], metric: str = "p99_ns") -> pd.DataFrame:
    """Return the latency at a demand, with bounds from the rounds, and never extrapolate.

    latency_ns is log-linear between demands. latency_ns_lo is of the least that a convex curve allows,
    latency_ns_hi of the most, more by what short runs hide. An end above every latency that was measured is
    unknown, and NaN.

    Parameters
    ----------
    results : DataFrame, one row a run (`read_results`), at several demands
    iops : demand, or several
    metric : column of a latency, in ns

    Returns
    -------
    DataFrame: system, pattern, iops (asked for), metric, n (rounds whose demands enclose it), latency_ns,
    latency_ns_lo, latency_ns_hi, warnings. latency_ns is NaN where no round measured both below and above
    it while the storage kept up.

    Source: METHODS section 6.

    Examples
    --------
    >>> import pandas as pd
    >>> results = pd.DataFrame({
    ...     "system": "A", "pattern": "4k-randread", "block": [1, 1, 1, 2, 2, 2],
    ...     "rate_iops": ["0.3", "0.6", "0.9"] * 2,
    ...     "offered_iops": [300, 600, 900, 310, 620, 930], "iops": [300, 600, 900, 310, 620, 930],
    ...     "open_loop": True, "p99_ns": [1e6, 2e6, 9e6, 1.1e6, 2.2e6, 9.4e6]})
    >>> hci.latency_at(results, [700, 5000])[["iops", "n", "latency_ns"]].round(0)
         iops  n  latency_ns
    0   700.0  2   3250696.0
    1  5000.0  0         NaN
    """
    runs, tables = _offered(results, metric), []
    measured = runs.groupby(BY, sort=False)["measured"].first()
    for asked in np.atleast_1d(np.asarray(iops, dtype=float)):
        rows = [key | _at(asked, metric, *curve) for key, *curve in _rounds(runs, metric)]
        n, mean, lo, hi = _means(in_order(pd.DataFrame(rows)), BY, ["latency_ns", "least", "most"])
        table = mean[["latency_ns"]].assign(iops=asked, metric=metric, n=n["latency_ns"])
        table["latency_ns_lo"], table["latency_ns_hi"] = lo["least"], hi["most"]
        codes = (table["n"] == 1, SINGLE_RUN), (table["n"] == 0, "not-measured")
        table["warnings"] = add_codes([""] * len(table), *codes)
        tables.append(_known(table, "latency_ns_hi", measured).reset_index())
    return pd.concat(tables, ignore_index=True)[[*BY, "iops", "metric", "n", *LATENCY, "warnings"]]


# ---- what was offered


def _offered(results: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the valid runs at a demand, round by round in the order of the field.

    With maximum (of the closed loop), saturated, above (the maximum), unsure (too few I/Os), kept_up, and
    measured, the highest value of the metric on the curve.

    Raises ValueError where a column is missing, nothing was offered or a curve mixes factors.
    """
    require_columns(results, [*BY, "rate_iops", "offered_iops", "open_loop", "iops", metric])
    runs = in_order(results[valid_rows(results)])
    if "rep" in runs and numbers_of(runs, "block").isna().all():
        runs = runs.assign(block=runs["rep"])  # files of other tools have no blocks: a repeat is a curve
    is_closed = runs["offered_iops"].isna()
    if is_closed.all():
        raise ValueError(
            "measured without a request rate, so the latency follows from the IOPS; "
            "measure with sweep(offered=[0.25, 0.5, 0.75, 0.9])"
        )
    # Of the same storage; of the same round where it was measured there.
    closed, most = runs["iops"].where(is_closed), pd.Series(np.nan, runs.index)
    for keys in (_round_keys(runs), BY):
        most = most.fillna(closed.groupby([runs[k] for k in keys], dropna=False).transform("max"))
    runs = runs.assign(maximum=most.fillna(np.inf))[~is_closed]
    refuse_mixing(runs, BY, besides=OF_A_LEVEL)
    runs["saturated"], runs["unsure"] = runs["open_loop"].eq(False), runs["open_loop"].isna()
    runs["above"] = runs["offered_iops"] > ABOVE * runs["maximum"]
    runs["kept_up"] = ~(runs["saturated"] | runs["above"])
    runs["measured"] = runs.groupby(BY)[metric].transform("max")
    return sorted_by(runs, _round_keys(runs))


def _round_keys(runs: pd.DataFrame) -> list[str]:
    """Return the columns that name a round of a curve."""
    return [*BY, *(name for name in ("source", "run_id", "block") if name in runs)]


def _limits(limits: Mapping[str, float | Sequence[float]]) -> list[tuple[str, float]]:
    """Return (metric, ns) of every limit."""
    named = [(name, float(one)) for name, values in limits.items() for one in np.atleast_1d(values)]
    if not named or any(not name.endswith("_ns") or not one > 0 for name, one in named):
        raise ValueError(f"limits are {limits!r}: expected latencies and nanoseconds, e.g. p99_ns=2e6")
    return named


def _means(rows: pd.DataFrame, keys: list[str], columns: list[str]) -> list[pd.DataFrame]:
    """Return n, the geometric mean and both ends of its t interval on logs, of each group and column."""
    logs = np.log(rows[columns].astype(float))
    groups = logs.where(np.isfinite(logs)).groupby([rows[key] for key in keys], sort=False, dropna=False)
    n, mean = groups.count(), groups.mean()
    half = half_width(groups.std(), n)
    return [n, *map(np.exp, (mean, mean - half, mean + half))]


def _known(table: pd.DataFrame, end: str, measured: pd.Series) -> pd.DataFrame:
    """Return the table without upper ends above everything that was measured: they are unknown."""
    beyond = np.isfinite(table[end]) & (table[end] > measured)
    codes = add_codes(table["warnings"], (beyond, "beyond-measured"))
    return table.assign(**{end: table[end].mask(beyond)}, warnings=codes)


# ---- one curve


def _rounds(runs: pd.DataFrame, metric: str) -> Iterator[tuple]:
    """Yield each round's keys, rows, and curve, as far as the storage kept up: IOPS, and logs of the latency.

    The logs are made non-decreasing over IOPS by isotonic regression.
    """
    for key, rows in groups_of(runs, _round_keys(runs)):
        known = rows[rows["kept_up"] & np.isfinite(rows[metric])].sort_values("iops", kind="stable")
        logs = np.log(known[metric].to_numpy(float))
        yield key, rows, known["iops"].to_numpy(float), isotonic_regression(logs).x if len(logs) else logs


def _crossings(results: pd.DataFrame, metric: str, limit_ns: float) -> pd.DataFrame:
    """Return a row a round: iops, where its curve, log-linear between demands, reaches the limit.

    Also under (it exceeds the limit at the least demand), over (it stays within the limit), least and most
    (where a convex curve may reach it), maximum (of the closed loop), measured (the most IOPS) and behind.
    """
    rows, limit = [], np.log(limit_ns)
    for key, runs, x, y in _rounds(_offered(results, metric), metric):
        found = {"under": not len(x) or y[0] > limit, "over": len(x) > 0 and y[-1] <= limit, "behind": 0.0}
        if len(x):
            found["iops"] = found["most"] = np.interp(limit, y, x)
            hidden = _hidden(found["iops"], limit_ns, metric, runs)
            found["least"] = np.interp(limit_ns * np.exp(-hidden), np.exp(y), x)
        if found["over"]:
            found |= {"most": np.inf, "behind": _behind(np.exp(y[-1]), metric, runs)}
        elif not found["under"]:
            found["most"] = _last_crossing(x, np.exp(y), limit_ns)
        found["maximum"] = most = runs["maximum"].iloc[0]
        found["measured"] = max(runs["iops"].max(), most if np.isfinite(most) else 0)
        rows.append(key | found)
    columns = dict.fromkeys(("iops", "least", "most"), np.nan)
    return in_order(pd.DataFrame(columns | row for row in rows)).assign(metric=metric, limit_ns=limit_ns)


def _at(asked: float, metric: str, runs: pd.DataFrame, x: np.ndarray, y: np.ndarray) -> dict:
    """Return the latency of a round at a demand, the least and the most that it can be; NaN beyond its curve."""
    if not len(x) or not x[0] <= asked <= x[-1]:
        return dict.fromkeys(("latency_ns", "least", "most"), np.nan)
    latency_ns, y = np.exp(np.interp(asked, x, y)), np.exp(y)
    most = np.interp(asked, x, y) * np.exp(_hidden(asked, latency_ns, metric, runs))
    return {"latency_ns": latency_ns, "least": _least_at(x, y, asked), "most": most}


def _beside(x: np.ndarray, y: np.ndarray, k: int) -> Iterator[tuple[float, float, float]]:
    """Yield the ends of the interval before point k, and the slope of the interval beyond each end."""
    slopes = np.diff(y) / np.diff(x)
    for point, line in ((k - 1, k - 2), (k, k)):
        if 0 <= line < len(slopes):
            yield x[point], y[point], slopes[line]


def _last_crossing(x: np.ndarray, y: np.ndarray, limit: float) -> float:
    """Return where a convex, rising curve reaches the limit at the latest."""
    k = int(np.argmax(y > limit))
    lines = [at + (limit - level) / slope for at, level, slope in _beside(x, y, k) if slope > 0]
    return max(np.interp(limit, y, x), min([x[k], *lines]))


def _least_at(x: np.ndarray, y: np.ndarray, asked: float) -> float:
    """Return the least that a convex, rising curve can be there."""
    k = min(int(np.searchsorted(x, asked, side="right")), len(x) - 1)
    lines = [level + slope * (asked - at) for at, level, slope in _beside(x, y, k)]
    return min(max([y[max(k - 1, 0)], *lines]), np.interp(asked, x, y))


def _hidden(iops: float, latency_ns: float, metric: str, runs: pd.DataFrame) -> float:
    """Return how far the log of a latency may lie too low because the runs were short.

    They began with an empty queue, and hold few of its long fillings. 0 where their length is not known.
    """
    tail = -np.log1p(-_share_below(metric))
    relaxation_s = 4 * iops * (latency_ns / 1e9 / tail) ** 2
    return float(np.nan_to_num(SHORT_RUN * relaxation_s / numbers_of(runs, "runtime_s").min()))


def _behind(latency_ns: float, metric: str, runs: pd.DataFrame) -> float:
    """Return by which share of its IOPS the storage may have fallen behind, unseen.

    By as many I/Os as wait when the run ends, and a burst. 0 where the runs' length is not known.
    """
    waiting_s = latency_ns / 1e9 / _share_below(metric)
    return float(np.nan_to_num((waiting_s + BURST_S) / numbers_of(runs, "runtime_s").min()))


def _share_below(metric: str) -> float:
    """Return the share of I/Os that are faster than a percentile. For a mean, as of exponential times."""
    share = re.fullmatch(r"p(\d\d)(\d*)_ns", metric)
    return float(f"0.{share[1]}{share[2]}") if share else 1 - np.exp(-1)
