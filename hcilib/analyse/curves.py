"""What does a curve over iodepth say: where is it best, where did more load give less, who is first at its own best?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hcilib.analyse.compare import cells_of, every_pair, summarize
from hcilib.analyse.rows import as_list, refuse_varying, sorted_by
from hcilib.analyse.stats import ALPHA, CONFIDENCE, below, guarded, welch
from hcilib.model.caveats import LEFT_OUT, add_codes, has_code, join_codes
from hcilib.model.metrics import FACTORS, better_sign, factors, in_order

LOAD = ("iodepth", "numjobs", "outstanding")
"""What may differ between two systems' best points: the load at which each was best."""


def curves(results: pd.DataFrame, metric: str, by: Sequence[str]) -> pd.DataFrame:
    """Return the cells of every curve in order of iodepth, with `curve`, its number.

    Raises ValueError if a factor other than iodepth changes along a curve: it would be two in one.
    """
    cells = cells_of(results, metric, [*by, "iodepth"])[0]
    if len(cells) and not pd.api.types.is_numeric_dtype(cells["iodepth"]):
        raise ValueError(f"iodepth holds {cells['iodepth'].iloc[0]!r}; a curve runs over numbers")
    cells["curve"] = cells.groupby(list(by), dropna=False, sort=False, observed=True).ngroup() if by else 0
    measured = cells[cells["n"] > 0]
    for name in (
        c for c in ("system", *factors(cells)) if c in cells and c not in (*by, "iodepth", "outstanding", metric)
    ):
        refuse_varying(measured[name], measured["curve"])
    return cells


def _pairs(cells: pd.DataFrame, sign: int) -> pd.DataFrame:
    """Return every two loads of a curve, and whether the first is shown to be worse than the second.

    By a one-sided Welch test at 5 % / (k - 1), for a curve of k loads. As in `compare`, a pair has at least
    the variance that the other pairs of its second load make likely (docs/METHODS 16).
    """
    pairs = cells.merge(cells, on="curve", suffixes=("", "_baseline"))
    pairs = pairs.assign(**welch(pairs), fewest=pairs[["n", "n_baseline"]].min(axis=1))
    usable = pairs[(pairs["df"] > 0) & ~pairs["flat"] & (pairs["iodepth"] != pairs["iodepth_baseline"])]
    for _, tests in usable.groupby(["curve", "iodepth_baseline"]):
        if len(tests) > 1:
            pairs.loc[tests.index, "se"] = np.sqrt(guarded(tests["v"], tests["f"]))
    others = (cells["n"] > 0).groupby(cells["curve"]).sum() - 1
    p = below(pairs.assign(log_ratio=sign * pairs["log_ratio"]))
    return pairs.assign(worse=p <= ALPHA / pairs["curve"].map(others.clip(lower=1)))


def peak(
    results: pd.DataFrame,
    metric: str = "iops",
    by: str | Sequence[str] = ("system", "pattern"),
) -> pd.DataFrame:
    """Return the best load of each curve, and the loads that are not shown to be worse.

    By a one-sided Welch test at 5 % / (k - 1), for a curve of k points. The observed best is biased: the
    luckiest of k wins. Best is the largest value, or the smallest of a metric that is better lower.

    Returns
    -------
    DataFrame, a row a curve: the by columns, best (iodepth), smallest_tied, tied (iodepths not shown to be
    worse, as text), n (fewest runs of a point), the metric and its interval at the best (the selection is
    not allowed for), confidence, verdict (peak; plateau where several are tied; untested where a point has
    a single run; missing), warnings.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.peak(results)[["system", "best", "iops", "verdict"]].head(2)
             system  best     iops   verdict
    0      ceph-pve     8  29100.0  untested
    1  drbd-tcp-pve     8  33100.0  untested
    """
    by, sign = as_list(by), better_sign(metric)
    cells = curves(results, metric, by)
    score = (sign * cells["center"]).where(cells["n"] > 0, -np.inf).fillna(-np.inf)
    top = cells.loc[score.groupby(cells["curve"]).idxmax()]
    pairs = _pairs(cells, sign)
    pairs = pairs[pairs["iodepth_baseline"] == pairs["curve"].map(top.set_index("curve")["iodepth"])]
    fewest = pairs["n"].where(pairs["n"] > 0).groupby(pairs["curve"])
    tied = (pairs["n"] > 0) & (fewest.transform("min") > 1) & ~pairs["worse"]
    tied = pairs[tied | (pairs["iodepth"] == pairs["iodepth_baseline"])].groupby("curve")["iodepth"]
    centre = summarize(results, metric, [*by, "iodepth"]).rename(columns={"iodepth": "best"})
    out = top.rename(columns={"iodepth": "best"})[[*by, "best", "curve"]].set_index("curve")
    out = out.assign(smallest_tied=tied.min(), tied=tied.agg(lambda own: ", ".join(f"{load:g}" for load in own)))
    out["n"] = fewest.min().fillna(0).astype(int)
    interval = [metric, f"{metric}_lo", f"{metric}_hi"]
    out = out.merge(centre[[*by, "best", *interval, "confidence"]], on=[*by, "best"], how="left")
    several = out["tied"].str.contains(", ", regex=False)
    conditions = [out["n"] == 0, out["n"] == 1, several]
    out["verdict"] = np.select(conditions, ["missing", "untested", "plateau"], "peak")
    depths = cells[cells["n"] > 0].groupby("curve")["iodepth"]
    least, most = (end.reindex(range(len(out))) for end in (depths.min(), depths.max()))
    out["warnings"] = add_codes(
        top["warnings"],
        (least == most, "one-point"),
        # Not so at the lowest: more load was tried, and below one outstanding I/O there is none.
        ((out["best"] == most) & (least < most), "at-the-end"),
    )
    return out


# ---- where more load gave less


def load_losses(results: pd.DataFrame, drop: float = 0.1) -> pd.DataFrame:
    """Return points where more load gave less: IOPS more than `drop` below the best at a lower iodepth.

    A drop is told if it is shown as in `peak` (`lower`), or if one of the two points is a single value,
    which nobody can test (`untested`). `dip`: a later point is not below the earlier best, so a peak alone
    misleads; `decline`: all are, the peak lies behind.

    Returns
    -------
    DataFrame: source, system and the factors present, iodepth, iops, n (fewest runs of the two points),
    best_iops and best_at (the best before), ratio, kind, verdict (lower, untested), warnings.
    """
    keys = [c for c in ("source", "system", *FACTORS) if c in results and c != "iodepth"]
    known = [c for c in (*keys, "iodepth", "iops", "run_id", "block", "rep", "valid") if c in results]
    cells = cells_of(
        results.loc[(results["iops"] > 0) & results["iodepth"].notna(), known], "iops", [*keys, "iodepth"]
    )[0]
    cells = cells[cells["n"] > 0]
    cells["curve"] = cells.groupby(keys, dropna=False, sort=False, observed=True).ngroup()
    pairs = _pairs(cells, 1)
    pairs = pairs[pairs["iodepth"] > pairs["iodepth_baseline"]]
    pairs["untested"] = pairs["fewest"] == 1
    pairs["ratio"] = pairs["center"] / pairs["center_baseline"]
    pairs["less"] = (pairs["ratio"] < 1) & (pairs["untested"] | pairs["worse"])
    before = pairs.sort_values("center_baseline", ascending=False, kind="stable").drop_duplicates(["curve", "iodepth"])
    lost = before[before["less"] & (before["ratio"] < 1 - drop)].sort_values(["curve", "iodepth"])
    regained = pairs[~pairs["less"]].groupby(["curve", "iodepth_baseline"])["iodepth"].max().rename("regained")
    lost = lost.join(regained, on=["curve", "iodepth_baseline"])
    lost["kind"] = np.where(lost["regained"] > lost["iodepth"], "dip", "decline")
    lost["verdict"] = np.where(lost["untested"], "untested", "lower")
    unsteady = lost["warnings_baseline"].where(lost["unstable_baseline"], "")
    lost["warnings"] = add_codes(unsteady, (lost["unstable"], lost["warnings"]))
    keyed = {f"{name}_baseline": f"best_{new}" for name, new in (("center", "iops"), ("iodepth", "at"))}
    lost = lost.drop(columns="n").rename(columns=keyed | {"center": "iops", "fewest": "n"})
    told = ["iops", "n", "best_iops", "best_at", "ratio", "kind", "verdict", "warnings"]
    return in_order(lost[[*keys, "iodepth", *told]].reset_index(drop=True))


# ---- where two systems change places


def crossover(
    results: pd.DataFrame,
    a: str,
    b: str,
    metric: str = "iops",
    by: str | Sequence[str] = ("pattern",),
) -> pd.DataFrame:
    """Return where the curves of systems `a` and `b` change places: linear in log2(iodepth) and log ratio.

    A crossing is claimed only if both tests beside it differ; its interval is where their confidence
    limits cross. Between single runs it is given as `untested`.

    Returns
    -------
    DataFrame, a row a crossing, or one for a curve without: the by columns, a, b, iodepth (NaN unless
    claimed) with iodepth_lo and iodepth_hi, below, above (the tests beside it), ratio_below, ratio_above
    (b / a), n (fewest runs of both), confidence, verdict (crossover, untested, undecided, none, missing),
    warnings, metric, by, apart (of a curve without: every test differs, or has single runs).

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> found = hci.crossover(results, "starwind-rdma-pve", "drbd-tcp-pve")
    >>> found[["below", "above", "verdict"]]
       below  above   verdict
    0      4      8  untested
    """
    by = as_list(by)
    if "iodepth" in results and (results["iodepth"] <= 0).any():
        least = results["iodepth"].min()
        raise ValueError(f"iodepth holds {least:g}; its logarithm is taken, expected positive values")
    two = results[results["system"].isin([a, b])]
    curves(two, metric, ["system", *by])
    pairs = every_pair(two, metric, [*by, "iodepth"], margin=0.05)
    pairs = sorted_by(pairs[pairs["system_baseline"] == a], [*by, "iodepth"])
    about = {"a": a, "b": b, "confidence": CONFIDENCE, "metric": metric, "by": " ".join(by)}
    places = sorted_by(two[by].drop_duplicates(), by).to_dict("records") if by else [{}]
    found = dict([*pairs.groupby(by, dropna=False, observed=True)]) if by else {(): pairs}
    rows = [
        {**place, **crossing, **about}
        for place in places
        for crossing in _crossings(found.get(tuple(place.values()), pairs[:0]))
    ]
    numbers = ["iodepth", "iodepth_lo", "iodepth_hi", "below", "above", "ratio_below", "ratio_above", "n"]
    told = ["confidence", "verdict", "warnings", "metric", "by", "apart"]
    return in_order(pd.DataFrame(rows, columns=[*by, "a", "b", *numbers, *told]))


def _crossings(curve: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the changes of sign along one curve's log ratio, or one row that says there is none."""
    met = curve[curve["ratio"] > 0]
    # A point exactly at 1 continues the side it came from, so that touching 1 is not crossing it.
    side = np.sign(np.log(met["ratio"])).replace(0, np.nan).ffill().bfill().to_numpy()
    changes = np.flatnonzero(side[1:] * side[:-1] < 0)
    for i in changes:
        two = met.iloc[[i, i + 1]]
        verdicts = set(two["verdict"])
        differ = "crossover" if verdicts <= {"higher", "lower"} else "undecided"
        verdict = "untested" if "untested" in verdicts else differ
        at, *ends = (_zero(two, name) for name in ("ratio", "ratio_lo", "ratio_hi"))
        lo, hi = sorted(ends) if verdict == "crossover" else (np.nan, np.nan)
        yield {
            "iodepth": np.nan if verdict == "undecided" else at, "iodepth_lo": lo, "iodepth_hi": hi,
            "below": two["iodepth"].iloc[0], "above": two["iodepth"].iloc[1],
            "ratio_below": two["ratio"].iloc[0], "ratio_above": two["ratio"].iloc[1], "verdict": verdict,
            "n": two[["n", "n_baseline"]].min(axis=None), "warnings": join_codes(*two["warnings"]), "apart": False,
        }  # fmt: skip
    if not len(changes):
        known = len(met) > 0
        yield {
            "ratio_below": met["ratio"].iloc[0] if known else np.nan,
            "ratio_above": met["ratio"].iloc[-1] if known else np.nan,
            "verdict": "none" if known else "missing",
            "n": met[["n", "n_baseline"]].min(axis=None) if known else 0,
            "warnings": "no-ratio" if len(met) < len(curve) else "",
            "apart": met["verdict"].isin(["higher", "lower", "untested"]).all(),
        }


def _zero(two: pd.DataFrame, name: str) -> float:
    """Return the iodepth at which the line through two points passes 1."""
    x, y = np.log2(two["iodepth"].to_numpy(float)), np.log(two[name].to_numpy(float))
    return 2 ** (x[0] + (x[1] - x[0]) * y[0] / (y[0] - y[1]))


# ---- who is first, each at its own best load


def best_points(results: pd.DataFrame, metric: str = "iops", margin: float = 0.05) -> pd.DataFrame:
    """Return each system's point in each pattern, its share of the best, and if that was tested.

    Of a metric that is better higher, every system is taken at the iodepth at which it was best (`peak`). A
    metric that is better lower, such as a latency, is lowest at the lowest load, so systems are compared at
    one load: the highest that most of them share.

    Returns
    -------
    DataFrame, a row for each system and pattern, also where it was not measured
        - system, pattern, iodepth (of that point), n, the metric (as iops)
        - pct_of_best, pct_of_best_lo, pct_of_best_hi: share of the pattern's best in percent, with
          the 95 % interval of that ratio, which the best itself and single runs do not have
        - state: `leads` (shown to be better than every other), `undecided` (first, or not told apart
          from the first), `untested` (by single runs or printed values, within `margin`), `alone` (no
          other system has a value), `behind`, `missing`
        - iops_per_cpu_pct (at that point; NaN where CPU is not known), confidence, margin, warnings

    The runs that chose the first's best load also prove its lead. So its p counts as many times as it has
    loads that are not shown to be worse than its best: chance had that many to choose from.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.best_points(results)[["system", "iodepth", "pct_of_best", "state"]].round(1)
                  system  iodepth  pct_of_best     state
    0           ceph-pve        8         87.9    behind
    1       drbd-tcp-pve        8        100.0  untested
    2  starwind-rdma-pve        8         96.1  untested
    3   starwind-tcp-pve        8         69.2    behind
    """
    keys, sign = ["system", "pattern"], better_sign(metric)
    at = _own_best(results, metric) if sign > 0 else _equal_load(results, metric)
    rows = results.merge(at, on=[c for c in at if c != "tries"])
    same_load = rows.drop(columns=[c for c in LOAD if c in rows])
    if sign > 0:
        pairs = every_pair(same_load, metric, ["pattern"], margin)
    else:  # verdicts are those of all loads, as `compare` gives them
        pairs = every_pair(results, metric, [c for c in at if c != "tries"], margin).merge(at)
    here = summarize(same_load, metric, keys)[[*keys, "n", metric]]
    here = here[here["n"] > 0].merge(rows.drop_duplicates(keys)[[*keys, "iodepth", "tries"]], on=keys)
    first = here.loc[(sign * here[metric]).groupby(here["pattern"], observed=True).idxmax()]
    pairs = pairs.drop(columns="tries", errors="ignore").merge(
        first[[*keys, "tries"]].add_suffix("_baseline").rename(columns={"pattern_baseline": "pattern"}),
        on=["system_baseline", "pattern"],
    )
    every = results[["system"]].drop_duplicates().merge(results[["pattern"]].drop_duplicates(), how="cross")
    table = every.merge(here, on=keys, how="left").fillna({"n": 0}).astype({"n": int})
    table = table.merge(_states(pairs, first, margin), on=keys, how="left").fillna({"state": "missing"})
    if "iops_per_cpu_pct" in rows and metric != "iops_per_cpu_pct":
        cpu = summarize(same_load, "iops_per_cpu_pct", keys)[[*keys, "iops_per_cpu_pct"]]
        table = table.merge(cpu, on=keys, how="left")
    share = ["pct_of_best", "pct_of_best_lo", "pct_of_best_hi"]
    shown = [*keys, "iodepth", "n", metric, *share, "state", "iops_per_cpu_pct"]
    codes = LEFT_OUT if has_code(results, LEFT_OUT).any() else ""
    table = in_order(sorted_by(table, keys).filter([*dict.fromkeys(shown)]))
    return table.assign(confidence=CONFIDENCE, margin=margin, warnings=codes)


def _states(pairs: pd.DataFrame, first: pd.DataFrame, margin: float) -> pd.DataFrame:
    """Return the state and share of each system; `pairs` are those with the first of their pattern."""
    pairs = pairs[pairs["ratio"].notna()]
    is_untested = pairs["verdict"].eq("untested")
    is_shown = (pairs["p_adjusted"] * pairs["tries_baseline"] <= ALPHA) & ~is_untested
    within = pairs["log_ratio"].abs() <= np.log1p(margin)
    conditions = [is_shown, is_untested & within, is_untested]
    others = pairs.assign(state=np.select(conditions, ["behind", "untested", "behind"], "undecided"), shown=is_shown)
    lead = others.groupby("pattern", observed=True).agg(proven=("shown", "all"), fewest=("n", "min"))
    lead = first[["system", "pattern", "n"]].merge(lead, on="pattern", how="left")
    conditions = [lead["proven"].isna(), lead["proven"].eq(True), lead[["n", "fewest"]].min(axis=1) == 1]
    lead = lead.assign(state=np.select(conditions, ["alone", "leads", "untested"], "undecided"), ratio=1.0)
    columns = ["system", "pattern", "state", "ratio", "ratio_lo", "ratio_hi"]
    table = pd.concat([others[columns], lead.reindex(columns=columns)])
    table[["ratio", "ratio_lo", "ratio_hi"]] *= 100
    return table.rename(columns=lambda name: name.replace("ratio", "pct_of_best"))


def _own_best(results: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the load at which each system is best in each pattern, and how many are as good (tries)."""
    peaks = peak(results, metric)
    at = peaks[["system", "pattern", "best"]].rename(columns={"best": "iodepth"})
    return at.assign(tries=peaks["tied"].str.count(",") + 1)


def _equal_load(results: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the highest load of each pattern that most systems share."""
    load = [c for c in ("iodepth", "outstanding") if c in results]
    cells = cells_of(results, metric, ["system", "pattern", *load])[0]
    shared = cells[cells["n"] > 0].groupby(["pattern", *load], dropna=False, observed=True).size().rename("systems")
    fullest = shared.reset_index().sort_values(["systems", *load])
    return fullest.drop_duplicates("pattern", keep="last").drop(columns="systems").assign(tries=1)
