"""What does a curve over iodepth say: where is it best, where did more load give less, who is first at its own best?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from hcilib.analyse.compare import cells_of, every_pair, summarize
from hcilib.analyse.rows import refuse_mixing, sorted_by
from hcilib.analyse.stats import ALPHA, below, guarded, welch
from hcilib.model.caveats import LEFT_OUT, add_codes, has_code
from hcilib.model.metrics import FACTORS, better_sign, in_order

BY = ["system", "pattern"]
LOAD = ("iodepth", "numjobs", "outstanding")
"""What may differ between two systems' best points: the load at which each was best."""
ENDS = ("", "_lo", "_hi")


def _curves(results: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the cells of every curve of a system and pattern in order of iodepth, with `curve`, its number.

    Raises ValueError if a factor other than iodepth changes along a curve: it would be two in one.
    """
    cells = cells_of(results, metric, [*BY, "iodepth"])[0]
    if len(cells) and not pd.api.types.is_numeric_dtype(cells["iodepth"]):
        raise ValueError(f"iodepth holds {cells['iodepth'].iloc[0]!r}; a curve runs over numbers")
    refuse_mixing(cells[cells["n"] > 0], BY, besides=["iodepth", metric])
    return cells.assign(curve=cells.groupby(BY, dropna=False, sort=False).ngroup())


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


def peak(results: pd.DataFrame, metric: str = "iops") -> pd.DataFrame:
    """Return the best load of each system and pattern, and the loads that are not shown to be worse.

    By a one-sided Welch test at 5 % / (k - 1), for a curve of k loads. Best is the largest value, or the
    smallest of a metric that is better lower. The luckiest of k wins, so its value is biased: by 2.5 % where
    runs spread by 5 %.

    Parameters
    ----------
    results : DataFrame, one row a run (`read_results`)
    metric : column of `METRICS`

    Returns
    -------
    DataFrame, a row a curve: system, pattern, best (iodepth), smallest_tied, tied (iodepths not shown to be
    worse, as text), n (fewest runs of a load), the metric and its interval at the best (the selection is
    not allowed for), verdict (peak; plateau where several are tied; untested where a load has a single run;
    missing), warnings.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.peak(results)[["system", "best", "iops", "verdict"]].head(2)
             system  best     iops   verdict
    0      ceph-pve     8  29100.0  untested
    1  drbd-tcp-pve     8  33100.0  untested
    """
    sign, values = better_sign(metric), [f"{metric}{end}" for end in ENDS]
    cells = _curves(results, metric)
    cells[values] = summarize(results, metric)[values]
    measured = cells[cells["n"] > 0].groupby("curve")
    score = (sign * cells["center"]).where(cells["n"] > 0).fillna(-np.inf)
    out = cells.loc[score.groupby(cells["curve"]).idxmax()].set_index("curve")
    pairs = _pairs(cells, sign)
    is_best = pairs["iodepth"] == pairs["curve"].map(out["iodepth"])
    fewest = measured["n"].min().reindex(out.index, fill_value=0)
    is_tied = (pairs["n"] > 0) & (pairs["curve"].map(fewest) > 1) & ~pairs["worse"]
    against = pairs["iodepth_baseline"] == pairs["curve"].map(out["iodepth"])
    tied = pairs[against & (is_tied | is_best)].groupby("curve")["iodepth"]
    loads, most = (measured["iodepth"].agg(of).reindex(out.index) for of in ("size", "max"))
    out["warnings"] = add_codes(
        out["warnings"],
        (loads == 1, "one-point"),
        # Not so at the lowest: more load was tried, and below one outstanding I/O there is none.
        ((out["iodepth"] == most) & (loads > 1), "at-the-end"),
    )
    out = out.rename(columns={"iodepth": "best"}).assign(n=fewest, smallest_tied=tied.min())
    out["tied"] = tied.agg(lambda own: ", ".join(f"{load:g}" for load in own))
    conditions = [fewest == 0, fewest == 1, tied.size() > 1]
    out["verdict"] = np.select(conditions, ["missing", "untested", "plateau"], "peak")
    shown = ["best", "smallest_tied", "tied", "n", *values, "verdict", "warnings"]
    return out[[*BY, *shown]].reset_index(drop=True)


# ---- where more load gave less


def load_losses(results: pd.DataFrame, drop: float = 0.1) -> pd.DataFrame:
    """Return points where more load gave less: IOPS more than `drop` below the best at a lower iodepth.

    A drop is told if it is shown as in `peak` (`lower`), or if one of the two points is a single value,
    which nobody can test (`untested`). `dip`: a later point is not below the earlier best, so a peak alone
    misleads; `decline`: all are, the peak lies behind.

    Parameters
    ----------
    results : DataFrame, one row a run (`read_results`)
    drop : least loss, as a share of the best before

    Returns
    -------
    DataFrame: source, system and the factors present, iodepth, iops, n (fewest runs of the two points),
    best_iops and best_at (the best before), ratio, kind, verdict (lower, untested), warnings.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and vms > 1")
    >>> set(hci.load_losses(results)["verdict"]) <= {"lower", "untested"}
    True
    """
    keys = [c for c in ("source", "system", *FACTORS) if c in results and c != "iodepth"]
    rows = results.filter([*keys, "iodepth", "iops", "run_id", "block", "rep", "valid"])
    rows = rows[(rows["iops"] > 0) & rows["iodepth"].notna()]
    cells = cells_of(rows, "iops", [*keys, "iodepth"])[0].query("n > 0")
    cells = cells.assign(curve=cells.groupby(keys, dropna=False, sort=False).ngroup())
    pairs = _pairs(cells, 1).query("iodepth > iodepth_baseline")
    is_untested, ratio = pairs["fewest"] == 1, pairs["center"] / pairs["center_baseline"]
    less = (ratio < 1) & (is_untested | pairs["worse"])
    regained = pairs["iodepth"].where(~less).groupby([pairs["curve"], pairs["iodepth_baseline"]])
    told = {
        "iops": pairs["center"], "n": pairs["fewest"], "best_iops": pairs["center_baseline"],
        "best_at": pairs["iodepth_baseline"], "ratio": ratio,
        "kind": np.where(regained.transform("max") > pairs["iodepth"], "dip", "decline"),
        "verdict": np.where(is_untested, "untested", "lower"),
        "warnings": add_codes(
            pairs["warnings_baseline"].where(pairs["unstable_baseline"], ""),
            (pairs["unstable"], pairs["warnings"]),
        ),
    }  # fmt: skip
    found = pairs.assign(**told).sort_values("best_iops", ascending=False, kind="stable")
    best = found.drop_duplicates(["curve", "iodepth"]).sort_index()
    lost = best[less[best.index] & (best["ratio"] < 1 - drop)]
    return in_order(lost[[*keys, "iodepth", *told]].reset_index(drop=True))


# ---- where two systems change places


def crossover(results: pd.DataFrame, a: str, b: str, metric: str = "iops") -> pd.DataFrame:
    """Return where the curves of systems `a` and `b` change places: linear in log2(iodepth) and log ratio.

    A crossing is claimed only if both tests beside it differ. Its interval is where their confidence
    limits cross. Between single runs it is given as `untested`.

    Parameters
    ----------
    results : DataFrame, one row a run (`read_results`)
    a, b : two systems among them
    metric : column of `METRICS`

    Returns
    -------
    DataFrame, a row a crossing, or one for a pattern without: pattern, a, b, iodepth (NaN unless claimed)
    with iodepth_lo and iodepth_hi, below, above (the loads beside it), ratio_below, ratio_above (b / a),
    n (fewest runs of both), verdict (crossover, untested, undecided, none, missing), warnings.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> found = hci.crossover(results, "starwind-rdma-pve", "drbd-tcp-pve")
    >>> found[["below", "above", "verdict"]]
       below  above   verdict
    0    4.0    8.0  untested
    """
    if "iodepth" in results and (results["iodepth"] <= 0).any():
        least = results["iodepth"].min()
        raise ValueError(f"iodepth holds {least:g}; its logarithm is taken, expected positive values")
    two = results[results["system"].isin([a, b])]
    _curves(two, metric)
    pairs = every_pair(two, metric, ["pattern", "iodepth"], margin=0.05)
    pairs = sorted_by(pairs[pairs["system_baseline"] == a], ["pattern", "iodepth"])
    pairs["least"] = pairs[["n", "n_baseline"]].min(axis=1)
    met = pairs[pairs["ratio"] > 0].copy()
    curve = met["pattern"]
    # A point exactly at 1 continues the side it came from, so that touching 1 is not crossing it.
    side = np.sign(np.log(met["ratio"])).replace(0, np.nan)
    side = side.groupby(curve).ffill().groupby(curve).bfill()
    crosses = side * side.groupby(curve).shift(-1) < 0
    above = met.groupby("pattern").shift(-1)[crosses].add_suffix("_above")
    found = met[crosses].join(above)
    verdicts = found[["verdict", "verdict_above"]]
    conditions = [verdicts.eq("untested").any(axis=1), verdicts.isin(["higher", "lower"]).all(axis=1)]
    found["verdict"] = np.select(conditions, ["untested", "crossover"], "undecided")
    at = {end: _zero(found, f"ratio{end}") for end in ENDS}
    is_claimed = found["verdict"] == "crossover"
    found = found.assign(
        below=found["iodepth"],
        above=found["iodepth_above"],
        ratio_below=found["ratio"],
        iodepth=at[""].where(found["verdict"] != "undecided"),
        iodepth_lo=np.minimum(at["_lo"], at["_hi"]).where(is_claimed),
        iodepth_hi=np.maximum(at["_lo"], at["_hi"]).where(is_claimed),
        n=found[["least", "least_above"]].min(axis=1),
        warnings=add_codes(found["warnings"], (True, found["warnings_above"])),
    )
    left = pd.Index(two.loc[~two["pattern"].isin(found["pattern"]), "pattern"].unique(), name="pattern")
    ends, tests = met.groupby("pattern"), pairs.groupby("pattern")["ratio"]
    apart = ends.agg(ratio_below=("ratio", "first"), ratio_above=("ratio", "last"), n=("least", "min")).reindex(left)
    apart["verdict"] = np.where(apart["n"].isna(), "missing", "none")
    apart["warnings"] = np.where((tests.count() < tests.size()).reindex(left, fill_value=False), "no-ratio", "")
    table = pd.concat([found, apart.reset_index()]).assign(a=a, b=b).fillna({"n": 0})
    shown = ["iodepth", "iodepth_lo", "iodepth_hi", "below", "above", "ratio_below", "ratio_above", "n"]
    table = table.reindex(columns=["pattern", "a", "b", *shown, "verdict", "warnings"])
    return in_order(sorted_by(table.astype({"n": int}), ["pattern"]))


def _zero(found: pd.DataFrame, name: str) -> pd.Series:
    """Return the iodepth at which the line through two neighbouring tests passes 1."""
    x, x_above = np.log2(found["iodepth"]), np.log2(found["iodepth_above"])
    y, y_above = np.log(found[name]), np.log(found[f"{name}_above"])
    return 2 ** (x + (x_above - x) * y / (y - y_above))


# ---- who is first, each at its own best load


def best_points(results: pd.DataFrame, metric: str = "iops", margin: float = 0.05) -> pd.DataFrame:
    """Return each system's point in each pattern, its share of the best, and if that was tested.

    Of a metric that is better higher, every system is taken at the iodepth at which it was best (`peak`). A
    metric that is better lower, such as a latency, is lowest at the lowest load, so systems are compared at
    one load: the highest that most of them share.

    Parameters
    ----------
    results : DataFrame, one row a run (`read_results`)
    metric : column of `METRICS`
    margin : share within which untested points count as equal

    Returns
    -------
    DataFrame, a row for each system and pattern, also where it was not measured
        - system, pattern, iodepth (of that point), n, the metric (as iops)
        - pct_of_best, pct_of_best_lo, pct_of_best_hi: share of the pattern's best in percent, with
          the 95 % interval of that ratio, which the best itself and single runs do not have
        - state: `leads` (shown to be better than every other), `undecided` (first, or not told apart
          from the first), `untested` (by single runs or printed values, within `margin`), `alone` (no
          other system has a value), `behind`, `missing`
        - iops_per_cpu_pct (at that point; NaN where CPU is not known), warnings

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
    sign = better_sign(metric)
    at = _own_best(results, metric) if sign > 0 else _equal_load(results, metric)
    load = [c for c in at if c != "tries"]
    rows = results.merge(at, on=load)
    same_load = rows.drop(columns=[c for c in LOAD if c in rows])
    if sign > 0:
        pairs = every_pair(same_load, metric, ["pattern"], margin)
    else:  # verdicts are those of all loads, as `compare` gives them
        pairs = every_pair(results, metric, load, margin).merge(at[load])
    here = summarize(same_load, metric, BY)
    if "iops_per_cpu_pct" in rows:
        here["iops_per_cpu_pct"] = summarize(same_load, "iops_per_cpu_pct", BY)["iops_per_cpu_pct"]
    here = here.filter([*BY, "n", metric, "iops_per_cpu_pct"]).query("n > 0")
    here = here.merge(rows.drop_duplicates(BY)[[*BY, "iodepth", "tries"]], on=BY)
    first = here.loc[(sign * here[metric]).groupby(here["pattern"]).idxmax()]
    of_first = first[[*BY, "tries"]].rename(columns={"system": "system_baseline"})
    pairs = pairs.merge(of_first, on=["system_baseline", "pattern"])
    every = results[["system"]].drop_duplicates().merge(results[["pattern"]].drop_duplicates(), how="cross")
    table = every.merge(here, on=BY, how="left").merge(_states(pairs, first, margin), on=BY, how="left")
    table = table.fillna({"n": 0, "state": "missing"}).astype({"n": int})
    share = [f"pct_of_best{end}" for end in ENDS]
    shown = [*BY, "iodepth", "n", metric, *share, "state", "iops_per_cpu_pct"]
    codes = LEFT_OUT if has_code(results, LEFT_OUT).any() else ""
    return in_order(sorted_by(table, BY).filter([*dict.fromkeys(shown)])).assign(warnings=codes)


def _states(pairs: pd.DataFrame, first: pd.DataFrame, margin: float) -> pd.DataFrame:
    """Return the state and share of each system; `pairs` are those with the first of their pattern."""
    pairs = pairs[pairs["ratio"].notna()]
    is_untested = pairs["verdict"].eq("untested")
    is_shown = (pairs["p_adjusted"] * pairs["tries"] <= ALPHA) & ~is_untested
    within = pairs["log_ratio"].abs() <= np.log1p(margin)
    conditions = [is_shown, is_untested & within, is_untested]
    others = pairs.assign(state=np.select(conditions, ["behind", "untested", "behind"], "undecided"), shown=is_shown)
    lead = others.groupby("pattern").agg(proven=("shown", "all"), fewest=("n", "min"))
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
    shared = cells[cells["n"] > 0].groupby(["pattern", *load], dropna=False).size().rename("systems")
    fullest = shared.reset_index().sort_values(["systems", *load])
    return fullest.drop_duplicates("pattern", keep="last").drop(columns="systems").assign(tries=1)
