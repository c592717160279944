"""How many VMs until a system saturates, and which load of threads x outstanding I/Os to choose.

METHODS sections 4 and 11. Errors of a knee are relative: IOPS spread by percent, and an absolute fit would look at
the largest fleets only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import fdtrc

from hcilib.analyse.compare import summarize
from hcilib.analyse.rows import groups_of, numbers_of, refuse_mixing, require_columns, valid_rows
from hcilib.analyse.stats import ALPHA, CONFIDENCE, critical
from hcilib.model.metrics import FACTORS, MAY_BE_UNTOLD, in_order

GRID = 0.25
NEAR_PEAK = 0.95
DRAWS = 2000

MAY_FOLLOW = ("nodes", "placement", "span_bytes", "pool_fill_pct")
"""Factors that may change with the number of VMs because they describe where the VMs and their data are; named in a
warning."""

COLUMNS = [
    "n", "points", "knee", "knee_lo", "knee_hi", "slope_before", "slope_after", "smallest_vms", "peak", "peak_vms",
    "model", "confidence", "warnings",
]  # fmt: skip


def saturation(results: pd.DataFrame, by: Sequence[str] = ("system", "pattern")) -> pd.DataFrame:
    """Where each curve over the VM count bends, and the smallest fleet that is as good as the largest.

    Parameters
    ----------
    results : the results table, one row per run; or any table with `by`, `vms` and `iops`

    Returns
    -------
    One row per group of `by`: n (fewest runs at any VM count), points (VM counts), knee (VMs, on a
    0.25 grid), knee_lo, knee_hi (parametric bootstrap of the runs), slope_before, slope_after
    (IOPS per VM), smallest_vms (smallest count whose lower bound, by the pooled spread, is >=
    95 % of the peak), peak (largest geometric mean), peak_vms, model (`two-segment`, `line`, `smooth` where a
    curve without a corner is as good by AICc, or "" under 5 VM counts), confidence, warnings.

    Where a straight line fits as well there is no knee: NaN, and both slopes are the line's. With one run a count
    there is no interval, and smallest_vms rests on the points themselves.

    Raises ValueError for a missing column, or if runs to be pooled vary in a factor. Source: METHODS section 4.

    Examples
    --------
    >>> curves = hci.fleet_curves(hci.read_results("data/published/scaling.csv"))
    >>> knees = hci.saturation(curves.query("vms > 0"), by=["system", "pattern", "curve"])
    >>> knees[["pattern", "curve", "knee", "smallest_vms"]].head(1)
           pattern           curve  knee  smallest_vms
    0  4k-randread  gains added up   9.0          19.0
    """
    by, rows = list(by), []
    require_columns(results, [*by, "vms", "iops"])
    numbers = results[["vms", "iops"]].astype(float)
    usable = (np.isfinite(numbers) & (numbers > 0)).all(axis=1) & valid_rows(results)
    for place, group in groups_of(results.assign(_usable=usable), by, sort=True):
        runs = group[group["_usable"]]
        warnings = _refuse_mixing(runs, by)
        if len(group) > len(runs):
            warnings.append("invalid")
        row = _saturate(runs["vms"].to_numpy(float), runs["iops"].to_numpy(float), warnings)
        rows.append(place | row)
    return in_order(pd.DataFrame(rows, columns=[*by, *COLUMNS]))


def _saturate(vms: np.ndarray, x: np.ndarray, warnings: list[str]) -> dict:
    """One group's row. `warnings` is added to."""
    row = {"n": 0, "points": 0, "model": "", "confidence": CONFIDENCE}
    if x.size:
        curve = _curve(vms, x)
        row |= _plateau(curve, warnings)
        if len(curve) < 5:
            warnings.append("few-points")
        else:
            row |= _model(curve, warnings)
    return row | {"warnings": " ".join(warnings)}


def _curve(vms: np.ndarray, x: np.ndarray) -> pd.DataFrame:
    """One row per VM count: vms, n, center (geometric mean), sd (of the logs), low (lower bound of the t interval).

    The bounds rest on the spread pooled over all VM counts: two or three runs say little about their own.
    """
    logs = pd.Series(np.log(x)).groupby(vms)
    curve = pd.DataFrame({"n": logs.count(), "center": np.exp(logs.mean()), "sd": logs.std()})
    curve = curve.rename_axis("vms").reset_index()
    df = int((curve["n"] - 1).sum())
    pooled = np.sqrt(_scatter_inside(curve) / df) if df else np.nan
    half = critical(max(df, 1)) * pooled / np.sqrt(curve["n"])
    return curve.assign(low=curve["center"] * np.exp(-half))


def _plateau(curve: pd.DataFrame, warnings: list[str]) -> dict:
    """Peak and the smallest fleet near it, by lower bounds; by the points where there are none."""
    top = curve.loc[curve["center"].idxmax()]
    single = int(curve["n"].min()) == 1
    if single:
        warnings.append("single-runs")
    near = curve["center" if single else "low"] >= NEAR_PEAK * top["center"]
    if not near.any():
        warnings.append("no-bound")
    return {
        "n": int(curve["n"].min()), "points": len(curve), "peak": top["center"], "peak_vms": top["vms"],
        "smallest_vms": curve["vms"][near].min(),
    }  # fmt: skip


def _model(curve: pd.DataFrame, warnings: list[str]) -> dict:
    """Which model fits, by AICc on relative errors, and what it says: a knee only where no line and no smooth curve is
    as good (every smooth curve bends, few have a knee: METHODS section 7)."""
    n, y, counts = (curve[c].to_numpy(float) for c in ("vms", "center", "n"))
    weight = np.sqrt(counts) / y
    line, line_rss = _fit(_hinge(n, None), weight, y)
    knots = np.arange(n[1], n[-2] + GRID / 2, GRID)
    bends = [_fit(_hinge(n, k), weight, y) for k in knots]
    best = int(np.argmin([rss for _, rss in bends]))
    (_, before, change), rss = bends[best]
    # X = N / (a + b (N - 1)): linear in N / X, whose relative error is that of X.
    hyperbola = _fit(np.column_stack([np.ones_like(n), n - 1]), np.sqrt(counts) * y / n, n / y)[1]
    bend = _aicc(rss, curve, 5)
    smooth = _aicc(hyperbola, curve, 3)
    row = {"slope_before": before, "slope_after": before + change}
    if not _bend_is_real(line_rss, rss, curve):
        warnings.append("no-knee")
        row = {"slope_before": line[1], "slope_after": line[1], "model": "line"}
    elif smooth <= bend:
        warnings.append("no-knee")
        row["model"] = "smooth"
    else:
        row |= _knee(curve, knots, best, bends[best][0], warnings)
    return row


def _knee(curve: pd.DataFrame, knots: np.ndarray, best: int, fit: np.ndarray, warnings: list[str]) -> dict:
    """The knot and its interval."""
    if best in (0, len(knots) - 1):
        warnings.append("at-the-end")
    if fit[2] > 0:
        warnings.append("steepens")
    lo, hi = np.nan, np.nan
    if curve["n"].min() > 1:
        lo, hi = _knee_interval(curve, _hinge(curve["vms"].to_numpy(), knots[best]) @ fit, knots)
    return {"knee": knots[best], "knee_lo": lo, "knee_hi": hi, "model": "two-segment"}


def _hinge(n: np.ndarray, knot: float | None) -> np.ndarray:
    """Design matrix of a straight line, or of a continuous line that bends at `knot`."""
    columns = [np.ones_like(n), n] + ([] if knot is None else [np.maximum(n - knot, 0)])
    return np.column_stack(columns)


def _fit(design: np.ndarray, weight: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Weighted least squares: coefficients and the residual sum of squares."""
    coefficients = np.linalg.lstsq(design * weight[:, None], y * weight, rcond=None)[0]
    return coefficients, float((((y - design @ coefficients) * weight) ** 2).sum())


def _scatter_inside(curve: pd.DataFrame) -> float:
    """Relative sum of squares of the runs around their own VM count's mean; no model can explain it."""
    return float(((curve["n"] - 1) * curve["sd"].fillna(0) ** 2).sum())


def _floor(runs: int) -> float:
    """Residual sum of squares below which a fit is exact: 1e-9 a run is the arithmetic's, not the system's."""
    return runs * 1e-18


def _bend_is_real(line_rss: float, bend_rss: float, curve: pd.DataFrame) -> bool:
    """F test of the bend (its place and its size) against the line."""
    runs, within = int(curve["n"].sum()), _scatter_inside(curve)
    spare, gain = runs - 4, (line_rss + within) - (bend_rss + within)
    rest = max(bend_rss + within, _floor(runs)) / spare
    return gain > _floor(runs) and fdtrc(2, spare, gain / 2 / rest) < ALPHA


def _knee_interval(curve: pd.DataFrame, fitted: np.ndarray, knots: np.ndarray) -> tuple[float, float]:
    """Parametric bootstrap: runs drawn around the fitted bend with the runs' own pooled spread, refitted each time.

    The spread is itself drawn (chi-square), as it rests on few runs. All draws meet one projection per knot.
    """
    n, counts, rng = curve["vms"].to_numpy(), curve["n"].to_numpy(), np.random.default_rng(0)
    df = int((counts - 1).sum())
    sd = np.sqrt(_scatter_inside(curve) / df * df / rng.chisquare(df, size=(DRAWS, 1)))
    drawn = fitted * np.exp(sd / np.sqrt(counts) * rng.standard_normal((DRAWS, n.size)))
    weight = np.sqrt(counts) / fitted
    bases = np.stack([np.linalg.qr(_hinge(n, k) * weight[:, None])[0] for k in knots])
    explained = (((drawn * weight) @ bases.transpose(1, 0, 2).reshape(n.size, -1)) ** 2).reshape(DRAWS, len(knots), 3)
    found = knots[explained.sum(axis=2).argmax(axis=1)]
    lo, hi = np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(lo), float(hi)


def _aicc(rss: float, curve: pd.DataFrame, parameters: int) -> float:
    """AIC corrected for few runs, of a model that leaves `rss` between the counts' means; `parameters` counts the
    error's variance. Infinite where the correction is undefined."""
    runs, rss = int(curve["n"].sum()), rss + _scatter_inside(curve)
    if runs <= parameters + 1:
        return np.inf
    correction = 2 * parameters * (parameters + 1) / (runs - parameters - 1)
    return runs * np.log(max(rss, _floor(runs)) / runs) + 2 * parameters + correction


def _refuse_mixing(runs: pd.DataFrame, by: list[str]) -> list[str]:
    """The refusal to pool at each VM count, and of known factors along the curve; what may follow the count is returned
    as caveats. A column of the user's own, such as a note, may change along it: nothing is pooled there."""
    refuse_mixing(runs, [*by, "vms"])
    refuse_mixing(runs, by, besides=("vms", *MAY_FOLLOW), among=FACTORS)
    own = [c for c in MAY_FOLLOW if c in runs and c not in by]
    follow = any(runs[c].nunique(dropna=c in MAY_BE_UNTOLD) > 1 for c in own)
    return ["follows"] if follow else []


# ---- The curve over the VM count as a table tells it: measured, printed, or rebuilt from the gains an article prints


GAINS = "iops_from_gains"
MEASURED, PRINTED, ADDED_UP = "measured", "printed", "gains added up"


def fleet_curves(results: pd.DataFrame) -> pd.DataFrame:
    """Return the rows once for every way the table tells their IOPS, named in `curve`.

    Own runs have one curve, ``measured``. A table with `iops_from_gains` has two: ``printed``, the article's totals,
    and, where it prints gains per added VM, ``gains added up``. They should be the same curve; where both have a value
    the difference is the article's. `curve` counts as a factor, so the two are never pooled.

    Parameters
    ----------
    results : DataFrame, one row a run (`read_results`)

    Returns
    -------
    DataFrame : the rows with curve

    Raises
    ------
    ValueError
        If the table has no `iops`.

    Examples
    --------
    >>> curves = hci.fleet_curves(hci.read_results("data/published/scaling.csv"))
    >>> curves["curve"].unique().tolist()
    ['printed', 'gains added up']
    """
    require_columns(results, ["iops"])
    if GAINS not in results:
        return results.assign(curve=MEASURED)
    gained = results[results[GAINS].notna()]
    told = {PRINTED: results, ADDED_UP: gained.assign(iops=gained[GAINS])}
    rows = pd.concat([rows.assign(curve=name) for name, rows in told.items()], ignore_index=True)
    return rows.drop(columns=GAINS)


# ---- which load

SATURATED = 0.95
"""Share of the highest IOPS from which a load counts as saturating."""


def loads(
    results: pd.DataFrame,
    within_ns: float | None = None,
    saturated: float = SATURATED,
    latency: str = "lat_ns",
    by: Sequence[str] = ("system", "pattern", "vms"),
) -> pd.DataFrame:
    """Every load of threads x outstanding I/Os with what it gave, and the one to choose: the smallest that saturates in
    time.

    Parameters
    ----------
    results : results table; rows of `by` are one search each
    within_ns : the latency that a load may cost; None: any
    saturated : a load saturates from this share of the highest IOPS that stay within the latency
    latency : the metric that is bounded, such as ``lat_ns`` or ``p99_ns``

    Returns
    -------
    `by`, numjobs, iodepth, outstanding (of a VM), n, iops, the latency's own column, pct_of_best (of the highest IOPS
    within the latency), within, chosen, warnings; in order of numjobs and iodepth. Of loads with as many
    outstanding I/Os the one with more IOPS is chosen. None is chosen where no load stays within the latency.

    Raises
    ------
    ValueError : a missing column, `saturated` outside 0 to 1, or a latency that is not above zero

    Examples
    --------
    >>> results = hci.published().query("system == 'drbd-tcp-pve' and pattern == '4k-randread' and vms > 1")
    >>> found = hci.loads(results, within_ns=2e6)
    >>> print(found.loc[found["chosen"], ["numjobs", "iodepth", "pct_of_best"]].round(1).to_string(index=False))
     numjobs  iodepth  pct_of_best
           3        8         96.9
    """
    if not 0 < saturated <= 1:
        raise ValueError(f"saturated is {saturated!r}: expected a share of the highest IOPS, such as 0.95")
    if within_ns is not None and not within_ns > 0:
        raise ValueError(f"within_ns is {within_ns!r}: expected nanoseconds above zero, or None for any latency")
    by = list(by)
    keys = [*by, "numjobs", "iodepth"]
    table = summarize(results, "iops", by=keys)
    table[latency] = summarize(results, latency, by=keys)[latency]
    table = table.sort_values(keys, ignore_index=True)
    table["outstanding"] = table["numjobs"] * table["iodepth"]
    in_time = True if within_ns is None else table[latency] <= within_ns  # not bounded: nothing has to be known
    table["within"] = table["iops"].notna() & in_time
    best = table["iops"].where(table["within"]).groupby([table[c] for c in by], dropna=False).transform("max")
    table["pct_of_best"] = 100 * table["iops"] / best
    enough = table[table["within"] & (table["pct_of_best"] >= 100 * saturated - 1e-9)]
    first = enough.sort_values(["outstanding", "iops"], ascending=[True, False]).drop_duplicates(by)
    table["chosen"] = table.index.isin(first.index)
    columns = [*keys, "outstanding", "n", "iops", latency, "pct_of_best", "within", "chosen", "warnings"]
    return table[columns]


def next_loads(found: pd.DataFrame, numjobs: Sequence[int], iodepth: Sequence[int]) -> list[dict]:
    """Propose the loads of a grid to measure next, from coarse to fine; none when the search is over.

    First every second value of both axes and their ends; then whatever is not measured yet beside the chosen load,
    until everything beside it is. Where no load stays within the latency, what lies beside the quickest one.

    Parameters
    ----------
    found : as ``loads`` returns it for one search, empty before the first look
    numjobs, iodepth : the grid's axes

    Returns
    -------
    list of dict : `numjobs` and its `iodepth`, as ``hci.sweep`` takes them by name

    Examples
    --------
    >>> hci.next_loads(hci.published().head(0), numjobs=[1, 2, 4], iodepth=[1, 8, 32])
    [{'numjobs': 1, 'iodepth': [1, 32]}, {'numjobs': 4, 'iodepth': [1, 32]}]
    """
    axes = [sorted(set(numjobs)), sorted(set(iodepth))]
    if found.empty:
        jobs, depths = (sorted({*axis[::2], axis[-1]}) for axis in axes)
        return [{"numjobs": n, "iodepth": depths} for n in jobs]
    known = {(int(row.numjobs), int(row.iodepth)) for row in found.itertuples()}
    chosen = found[found["chosen"]] if found["chosen"].any() else found.nsmallest(1, "outstanding")
    jobs, depths = (
        axis[max(0, (at := axis.index(int(chosen[name].iloc[0]))) - 1) : at + 2]
        for name, axis in zip(("numjobs", "iodepth"), axes, strict=True)
    )
    due = {n: [depth for depth in depths if (n, depth) not in known] for n in jobs}
    return [{"numjobs": n, "iodepth": left} for n, left in due.items() if left]


def stops(results: pd.DataFrame, gain_pct: float | None = None, cpu_pct: float | None = None) -> str:
    """Say why a sweep over VMs that adds them one by one ends now; nothing where it goes on.

    Parameters
    ----------
    results : of the VM counts measured so far, of one system and pattern
    gain_pct : end where a further VM adds less than this percent of the mean IOPS a VM so far; None: never
    cpu_pct : end where the nodes' CPU is above this, so that no cycles are left for the guests; None: never

    Returns
    -------
    str : the reason, empty where no rule holds

    Examples
    --------
    >>> curve = hci.read_results("data/samples/lab-fleet")
    >>> hci.stops(curve, gain_pct=5)[:36]
    'gain below 5 % of a VM at 6 VMs: the'
    """
    known = results.assign(node_cpu_pct=numbers_of(results, "node_cpu_pct"))
    curve = summarize(known, "iops", by=["vms"])
    curve["cpu"] = summarize(known, "node_cpu_pct", by=["vms"])["node_cpu_pct"]
    curve = curve.dropna(subset=["iops"]).sort_values("vms", ignore_index=True)
    vms, cpu = curve["vms"], curve["cpu"]
    added, fair = curve["iops"].diff() / vms.diff(), curve["iops"].shift() / vms.shift()
    why = []
    if gain_pct is not None and len(small := curve.index[100 * added < gain_pct * fair]):
        at = small[0]
        less = f"the next VM adds {added[at]:,.0f} IOPS, each of the earlier ones added {fair[at]:,.0f}"
        why.append(f"gain below {gain_pct:g} % of a VM at {vms[at - 1]:g} VMs: {less}")
    if cpu_pct is not None and len(over := curve.index[(cpu > cpu_pct) & (curve.index > 0)]):
        at = over[0]
        why.append(f"node CPU up to {cpu_pct:g} % at {vms[at - 1]:g} VMs: {cpu[at]:.0f} % at {vms[at]:g} VMs")
    return "; ".join(why)
