"""Which system is faster, where, by how much, is the difference real, and who is first?

The run is the unit: seconds of a run, or its I/Os, say nothing of how well a system repeats. A cell is
one test (a pattern and its load) of one system. Every verdict is a filter of one table, `every_pair`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from hcilib.analyse.rows import (
    as_list,
    listed,
    not_among,
    numbered,
    numbers_of,
    refuse_currencies,
    refuse_mixing,
    refuse_varying,
    require_columns,
    run_values,
    sorted_by,
    tools_of,
)
from hcilib.analyse.stats import (
    CONFIDENCE,
    IDENTICAL,
    SURE,
    borrowed,
    floored,
    guarded,
    half_width,
    interval,
    judge,
    of_mean,
    shared,
    welch,
)
from hcilib.model.caveats import BEYOND, LEFT_OUT, PERCENTILES, THIN_TAIL, add_codes, has_code, join_codes, warnings_of
from hcilib.model.metrics import MAY_BE_UNTOLD, METRICS, SETTINGS, better_sign, factors, in_order, own_columns

UNSTABLE = 0.1
"""A cell whose logs of runs spread by more than this standard deviation is called unstable."""
SINGLE_RUN, TWO_RUNS, PRINTED_MEAN = "single-run", "two-runs", "printed-mean"
OF_SYSTEM = ("nodes", "placement", "span_bytes", "pool_fill_pct", "vms", "source", *SETTINGS)
"""In these two systems may differ, and are then said to be unlike. In what was asked of them they may not."""
KNOWN = 5e-4
"""A counter that reads 0 or 100 % is known to half a tenth of a percent."""


# ---- runs to cells


def cells_of(results: pd.DataFrame, metric: str, by: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the cells of `by` in their order, and their usable runs.

    Usable is a valid run with a finite value that is not negative. A cell that has no such run stays,
    with n = 0. Of a percentile a cell counts only if each of its valid runs has it: the runs that lack a
    tail are the slow ones.

    Cells: cell (its number), the by columns, n, log_mean, log_var, center (geometric mean), cv_pct,
    unstable, warnings, then every factor that is not in `by`. Runs: cell, log, value, round, partner.
    """
    by = list(by)
    _refuse(results, metric, by)
    results = in_order(results.assign(tool=tools_of(results))).reset_index(drop=True)
    runs = run_values(results, metric)
    runs["cell"] = numbered(results, by)
    lacking = runs["valid"] & ~runs["usable"] & is_percentile(metric)
    runs["usable"] &= ~runs["cell"].isin(runs.loc[lacking, "cell"])
    usable = runs[runs["usable"]]
    refuse_mixing(results.loc[usable.index], by, besides=[metric])
    refuse_varying(results.loc[usable.index, "tool"], usable["cell"], "tools measure differently: filter one")
    _refuse_twice(results, runs, by)
    first = runs.sort_values("usable", ascending=False, kind="stable").drop_duplicates("cell")
    told = [c for c in (*factors(results), "source", "tool") if c in results and c not in (*by, metric)]
    cells = results.loc[first.index, [*by, *told]].set_axis(first["cell"]).sort_index()
    groups = usable.groupby("cell")
    moments = groups["log"].agg(n="size", log_mean="mean", log_var="var")
    cells = cells.join(moments.join(groups["value"].agg(mean="mean", sd="std", high="max")))
    cells["n"] = cells["n"].fillna(0).astype(int)
    cells["center"] = np.exp(cells["log_mean"])
    cells["cv_pct"] = 100 * cells["sd"] / cells["mean"]
    cells["unstable"] = (cells["n"] > 1) & (cells["high"] > 0) & ~(cells["log_var"] <= UNSTABLE**2)
    cells["warnings"] = _codes(results, runs, cells, metric)
    return cells.drop(columns=["mean", "sd", "high"]).reset_index(), usable


def _codes(results: pd.DataFrame, runs: pd.DataFrame, cells: pd.DataFrame, metric: str) -> np.ndarray:
    """Return what to know of each cell."""
    tail, usable, unusable = is_percentile(metric), runs["usable"], runs["valid"] & ~runs["number"]
    said = runs.join(warnings_of(results).str.split().explode().rename("code")).dropna(subset="code")
    is_usable = np.where(said["code"].isin([PERCENTILES, BEYOND]), tail, said["valid"] & said["number"])
    told = said[is_usable & said["code"].ne(THIN_TAIL)].groupby("cell")["code"].agg(lambda codes: join_codes(*codes))
    short = unusable & has_code(results, THIN_TAIL) & tail
    averaged = numbers_of(results, "runs_behind") > 1

    def any_of(rows: pd.Series) -> pd.Series:
        return rows.groupby(runs["cell"]).any()

    campaigns = runs[usable].groupby("cell")[["source", "run_id"]].nunique().max(axis=1).reindex(cells.index)
    single, printed = cells["n"] == 1, any_of(averaged & usable)
    return add_codes(
        told.reindex(cells.index).fillna(""),
        (any_of(~runs["valid"]), "invalid"),
        (any_of(unusable & ~short), "unusable"),
        (any_of(short), THIN_TAIL),
        (campaigns > 1, "pooled"),
        (single & ~printed, SINGLE_RUN),
        (single & printed, PRINTED_MEAN),
        (cells["n"] == 2, TWO_RUNS),
        (any_of(usable & runs["value"].eq(0)), "zero"),
        (cells["log_var"] < IDENTICAL, "zero-variance"),
        (cells["unstable"], "unstable"),
    )


def is_percentile(name: str) -> bool:
    """Return whether a column is one, such as p99_ns."""
    return re.fullmatch(r"p\d+_ns", name) is not None


def _refuse(results: pd.DataFrame, metric: str, by: list[str]) -> None:
    """Raise ValueError for rows that are no runs, missing columns and several currencies."""
    require_columns(results, [metric, *by])
    if {"hostname", "ddir"} <= set(results.columns):
        raise ValueError(
            "these are rows of hosts and directions, not runs. Read the same file by read_results, which returns runs"
        )
    refuse_currencies(results, [metric])


def _refuse_twice(results: pd.DataFrame, runs: pd.DataFrame, by: list[str]) -> None:
    """Raise ValueError for a run that was read twice: it would count as a replicate."""
    identity = [c for c in ("run_id", "block", "rep") if c in results]
    if not identity:
        return
    told = runs["valid"] & results[identity].notna().any(axis=1)
    columns = [c for c in ("source", "system") if c in results and c not in by]
    known = results.loc[told, [*columns, *identity]].assign(cell=runs.loc[told, "cell"])
    if (twice := known.duplicated()).any():
        copies = known[known.duplicated(keep=False)].groupby([*known], dropna=False, sort=False)
        alike = results.loc[next(iter(copies))[1].index]
        named = ", ".join(f"{c} {alike[c].iloc[0]}" for c in dict.fromkeys([*columns, *identity, *by]))
        unlike = [name for name in own_columns(results) if alike[name].nunique(dropna=False) > 1]
        remedy = f"they differ in {', '.join(unlike)}: add it to by= or filter" if unlike else "drop the copies"
        raise ValueError(f"{twice.sum()} run(s) appear twice, the first: {named}; {remedy}")


def summarize(
    results: pd.DataFrame,
    metric: str = "iops",
    by: str | Sequence[str] = ("system", "pattern", "iodepth"),
) -> pd.DataFrame:
    """Return the centre of each cell's runs and its interval.

    The geometric mean with a t interval on logs (of a percentage on logits), by the cell's own runs. One
    run has no interval. Only valid runs count.

    Parameters
    ----------
    metric : a column of results
    by : the factors that make a cell. Rows that vary in another factor are refused

    Returns
    -------
    DataFrame, a row a cell: the by columns, the metric (as iops, iops_lo, iops_hi), n, confidence, cv_pct,
    unstable (the runs spread by more than 10 %), warnings; of printed means also runs_behind.

    Raises
    ------
    ValueError : a missing column, rows that vary in a factor, a run given twice, several currencies

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.summarize(results, "iops")[["system", "iodepth", "iops", "n"]].head(2)
         system  iodepth     iops  n
    0  ceph-pve        1   8570.0  1
    1  ceph-pve        2  15100.0  1
    """
    by = as_list(by)
    cells, runs = cells_of(results, metric, by)
    df = (cells["n"] - 1.0).where(cells["n"] > 1)
    lo, hi = np.exp(interval(cells["log_mean"], np.sqrt(floored(cells["log_var"]) / cells["n"]), df))
    if metric in METRICS and METRICS[metric].unit == "%":  # on logits it ends inside 0 to 100
        logits = logit((runs["value"] / 100).clip(KNOWN, 1 - KNOWN)).groupby(runs["cell"]).std()
        half = half_width(cells["cell"].map(logits), cells["n"])
        center = logit((cells["center"] / 100).clip(KNOWN, 1 - KNOWN))
        lo, hi = 100 * expit(center - half), 100 * expit(center + half)
        lo, hi = np.minimum(lo, cells["center"]), np.maximum(hi, cells["center"])
    known = {metric: cells["center"], f"{metric}_lo": lo, f"{metric}_hi": hi}
    table = cells.assign(**known, confidence=CONFIDENCE)
    table["warnings"] = add_codes(cells["warnings"], (cells["n"] == 0, "no-run"))
    shown = [*by, *known, "n", "confidence", "cv_pct", "unstable", "warnings"]
    if "runs_behind" in results:
        shown.append("runs_behind")
        table["runs_behind"] = cells["cell"].map(
            results["runs_behind"].reset_index(drop=True).groupby(runs["cell"]).first()
        )
    return table[shown]


# ---- pairs of systems


def every_pair(
    results: pd.DataFrame,
    metric: str,
    by: list[str],
    margin: float,
    adjust: str | None = "bh",
) -> pd.DataFrame:
    """Return every two systems of a test, both ways round, judged as one family.

    Systems that were measured side by side (column `pair`) are compared by the differences of their logs,
    others by Welch's test: the campaign's design decides, not what the runs look like. The family is every
    pair in every test, so no verdict depends on which system is called the baseline.
    """
    cells, runs = cells_of(results, metric, ["system", *by])
    places = cells[by].drop_duplicates() if by else cells.head(1)[[]]
    every = cells[["system"]].drop_duplicates().merge(places, how="cross")
    every = every.merge(cells, on=["system", *by], how="left")
    found = every.merge(every, **({"on": by} if by else {"how": "cross"}), suffixes=("", "_baseline"))
    there = found[["cell", "cell_baseline"]].notna().any(axis=1)
    found = found[(found["system"] != found["system_baseline"]) & there].reset_index(drop=True)
    found[["n", "n_baseline"]] = found[["n", "n_baseline"]].fillna(0).astype(int)
    found = found.assign(**welch(found), paired=False, unpaired=0, common=1.0)
    beside = _side_by_side(runs, found)
    found.loc[beside.index, beside.columns] = beside
    usable = found[(found["v"] > 0) & (found["df"] > 0) & ~found["flat"].astype(bool)]
    for _, tests in usable.groupby(["system", "system_baseline", "paired"]):
        if len(tests) > 1:
            moves = _moves(runs, tests)
            widened = np.sqrt(guarded(tests["v"], tests["f"]) / tests["v"])
            moves["move"] /= moves["sd"] * moves["at"].map(widened)
            found.loc[tests.index, ["se", "df"]] = borrowed(tests, shared(moves))
            found.loc[tests.index, "common"] = shared(moves, SURE)
    two = np.sort(found[["system", "system_baseline"]].to_numpy(str), axis=1)
    found["test"] = found.assign(one=two[:, 0], other=two[:, 1]).groupby(["one", "other", *by], dropna=False).ngroup()
    return _unlike(found.join(judge(found, margin, adjust)), by)


def _side_by_side(runs: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return the contrast of the pairs of cells of which every run has a partner."""
    moved = _differences(runs, found).groupby("at")["log"].agg(n="size", log_ratio="mean", var="var")
    n, v = moved["n"], floored(moved["var"]) / moved["n"]
    free = (n - 1.0).where(n > 1)
    left_out = found.loc[moved.index, ["n", "n_baseline"]].sum(axis=1) - 2 * n
    known = {"n_baseline": n, "v": v, "f": free, "df": free, "se": np.sqrt(v), "flat": moved["var"] < IDENTICAL}
    return moved[["n", "log_ratio"]].assign(**known, paired=True, unpaired=left_out)


def _moves(runs: pd.DataFrame, tests: pd.DataFrame) -> pd.DataFrame:
    """Return how far each run of some tests lies from its test's mean: side, at (its test), round, move.

    Also `sd` and `n`, of the runs of its side. Runs that were measured side by side move as one.
    """
    is_paired = tests["paired"].astype(bool)
    parts = [_differences(runs, tests[is_paired]).assign(side=0)]
    for side, column in ((1, "cell"), (-1, "cell_baseline")):
        place = pd.Series(tests.index[~is_paired], tests.loc[~is_paired, column])
        own = runs[runs["cell"].isin(place.index)]
        parts.append(own[["round"]].assign(at=own["cell"].map(place), log=side * own["log"], side=side))
    moves = pd.concat(parts)
    logs = moves.groupby(["side", "at"])["log"]
    return moves.assign(move=moves["log"] - logs.transform("mean"), sd=logs.transform("std"), n=logs.transform("size"))


def _differences(runs: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return the difference of logs (log) of every two runs side by side, its round, and the pair (at) it is of."""
    alone = runs["partner"].isna().groupby(runs["cell"]).transform("any")
    runs = runs.loc[~alone, ["cell", "partner", "round", "log"]]
    both = found[["cell", "cell_baseline"]].reset_index(names="at").merge(runs, on="cell")
    both = both.merge(runs, left_on=["cell_baseline", "partner"], right_on=["cell", "partner"], suffixes=("", "_its"))
    return both.assign(log=both["log"] - both["log_its"])[["at", "round", "log"]]


def _unlike(found: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the pairs with the factors in which their systems differ, and the codes of both.

    Raises ValueError where they differ in what was asked of them: those are two questions, not one ratio.
    """
    both, differ = (found["n"] > 0) & (found["n_baseline"] > 0), []
    for name in (c for c in ("source", *factors(found)) if f"{c}_baseline" in found and c not in (*by, "target")):
        one, other = found[name], found[f"{name}_baseline"]
        untold = one.isna() | other.isna() if name in MAY_BE_UNTOLD else one.isna() & other.isna()
        unlike = both & ~untold & ~(one == other)
        if unlike.any() and name not in OF_SYSTEM:
            levels = pd.concat([one[unlike], other[unlike]]).unique()
            systems = pd.concat([found.loc[unlike, "system"], found.loc[unlike, "system_baseline"]]).unique()
            raise ValueError(
                f"results vary in {name}: {listed(levels)}; add it to by= or filter (systems {listed(systems)})"
            )
        differ.append((unlike, name))
    found["differs_in"] = add_codes([""] * len(found), *differ)
    tools = found[["tool", "tool_baseline"]]
    other = tools.notna().all(axis=1) & (tools["tool"] != tools["tool_baseline"])
    found["unlike"] = add_codes([""] * len(found), (found["differs_in"] != "", "unlike"), (other, "tools"))
    found["warnings"] = add_codes(
        found["warnings_baseline"].fillna(""),
        (True, found["warnings"].fillna("")),
        (found[["cell", "cell_baseline"]].isna().any(axis=1), "no-run"),
        (True, found["unlike"]),
        (found["unpaired"] > 0, "unpaired"),
    )
    return found


def _against(baseline: str, results: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of a baseline. Raises ValueError for one without a row: every verdict would be `missing`."""
    if len(results) and baseline not in set(results["system"]):
        raise ValueError(not_among("baseline", baseline, results))
    return found[found["system_baseline"] == baseline]


SHOWN = [
    "metric", "baseline", "value", "value_baseline", "ratio", "ratio_lo", "ratio_hi", "p", "p_adjusted",
    "n", "n_baseline", "verdict", "runs_to_decide", "margin", "paired", "differs_in", "warnings",
]  # fmt: skip


def compare(
    results: pd.DataFrame,
    baseline: str,
    metric: str = "iops",
    by: str | Sequence[str] = ("pattern", "iodepth"),
    margin: float = 0.05,
    adjust: str | None = "bh",
) -> pd.DataFrame:
    """Compare every other system with `baseline`, test by test: the ratio of geometric means, t on logs.

    Parameters
    ----------
    by : the factors that make a test. Rows that vary in another factor are refused
    margin : a ratio inside [1 / (1 + margin), 1 + margin] is the same, by two one-sided tests
    adjust : ``bh`` for a grid that is explored, ``holm`` for a few declared claims, None for one

    Runs that were measured side by side (column `pair`) are compared pair by pair. Without the column they
    are not.

    Returns
    -------
    DataFrame, a row for each system and test: system, the by columns, metric, baseline, value,
    value_baseline (centres), ratio (system / baseline) with ratio_lo and ratio_hi, p, p_adjusted, n,
    n_baseline, verdict (higher, lower, same, undecided, untested, missing: of the number, not the taste),
    runs_to_decide, margin, paired, differs_in (factors, with blanks between), warnings.

    Raises
    ------
    ValueError : a missing column, an unknown option, a baseline without a row, rows that vary in a
        factor, a run given twice

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> found = hci.compare(results, baseline="starwind-rdma-pve")
    >>> found[["system", "iodepth", "ratio", "verdict"]].head(2).round(3)
         system  iodepth  ratio   verdict
    0  ceph-pve        1  0.466  untested
    1  ceph-pve        2  0.547  untested
    """
    by = [name for name in as_list(by) if name != "system"]
    found = _against(baseline, results, every_pair(results, metric, by, margin, adjust))
    table = found.rename(columns={"center": "value", "center_baseline": "value_baseline"})
    table = table.assign(metric=metric, baseline=baseline)
    return sorted_by(table, ["system", *by])[["system", *by, *SHOWN]]


def rank(
    results: pd.DataFrame,
    metric: str = "iops",
    by: str | Sequence[str] = ("pattern", "iodepth"),
    margin: float = 0.05,
) -> pd.DataFrame:
    """Rank the systems of each test: 1 + the number of systems that are shown to be better.

    Shown means: the test of `compare`, corrected over all pairs of systems in all tests. Where a side has a
    single run nothing is tested, and a pair differs if its ratio lies outside the margin. A may tie with B,
    and B with C, although A is shown to be better than C.

    Parameters
    ----------
    results : DataFrame, one row a run (`read_results`)
    metric : column of `METRICS`
    by : columns that make a test
    margin : share within which untested systems count as equal

    Returns
    -------
    DataFrame: the by columns, rank (NaN without a run above 0), system, tied_with, n, the metric and its
    interval, confidence, verdict (ranked; alone: no other system has a ratio to it; untested; missing),
    best (shown to be better than every other system; nobody is where one is missing), warnings.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.rank(results)[["iodepth", "rank", "system", "verdict"]].head(2)
       iodepth  rank             system   verdict
    0        1   1.0  starwind-rdma-pve  untested
    1        1   2.0   starwind-tcp-pve  untested
    """
    by, sign = [name for name in as_list(by) if name != "system"], better_sign(metric)
    keys = ["system", *by]
    pairs = every_pair(results, metric, by, margin).dropna(subset="log_ratio")
    point = pairs["verdict"].eq("untested")
    differ = pairs["verdict"].isin(["higher", "lower"]).mask(point, pairs["log_ratio"].abs() > np.log1p(margin))
    ahead = sign * pairs["log_ratio"] > 0
    pairs = pairs.assign(point=point, behind=differ & ~ahead, beaten=differ & ahead & ~point)
    groups, tied = (rows.groupby(keys, dropna=False) for rows in (pairs, pairs[~differ]))
    found = groups[["behind", "beaten", "point"]].sum()
    found["tied_with"] = tied["system_baseline"].agg(", ".join)
    found["unlike"] = groups["unlike"].agg(lambda codes: join_codes(*codes))
    table = summarize(results, metric, keys).merge(found.reset_index(), on=keys, how="left")
    ranked, systems = table[metric] > 0, table["system"].nunique()
    table["rank"] = (1.0 + table["behind"].fillna(0)).where(ranked)
    untested = (table["point"] > 0) | (table["n"] == 1)
    conditions = [~ranked, untested, table["behind"].isna()]
    table["verdict"] = np.select(conditions, ["missing", "untested", "alone"], "ranked")
    table["best"] = table["beaten"].eq(systems - 1) & (systems > 1)
    there = table["n"].gt(0).groupby(numbered(table, by)).transform("sum")
    codes = table["warnings"].str.replace("no-run", "").str.strip()
    table["warnings"] = add_codes(codes, (True, table["unlike"].fillna("")), (ranked & (there < systems), "missing"))
    table = table.fillna({"tied_with": ""}).assign(score=-sign * table[metric].fillna(0))
    table = sorted_by(table.sort_values(["rank", "score"]), by)
    shown = ["rank", "system", "tied_with", "n", metric, f"{metric}_lo", f"{metric}_hi"]
    return table[[*by, *shown, "confidence", "verdict", "best", "warnings"]].reset_index(drop=True)


# ---- many tests in one row

KINDS = {"read": "reads", "rw": "mixed", "write": "writes"}
"""What is in a pattern's name -> its kind of I/O."""


def overall(
    results: pd.DataFrame,
    baseline: str,
    metric: str = "iops",
    by: str | Sequence[str] = ("pattern", "iodepth"),
    margin: float = 0.05,
) -> pd.DataFrame:
    """Return the mean ratio to the baseline over all tests, and over reads, mixed I/O and writes apart.

    Every test has the same weight. The interval is over rounds: what shifted a round shifted all of its
    tests, so its runs count once; it is never surer than independent tests would be (docs/METHODS 7). It
    speaks of these tests only. p is corrected by Holm over all rows of this table.

    Parameters
    ----------
    results : DataFrame, one row a run (`read_results`)
    baseline : system that the others are divided by
    metric : column of `METRICS`
    by : columns that make a test
    margin : share within which a difference does not matter (0.05: within about 5 % is the same)

    Returns
    -------
    DataFrame: system, part (all, reads, mixed, writes), n (tests), ratio, ratio_lo, ratio_hi, p_adjusted,
    lowest, highest (ratio of a test), verdict (untested where one test has a single run), mixed (some
    tests are higher and some lower), warnings.

    Raises
    ------
    ValueError : as `compare`

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.overall(results, "starwind-rdma-pve")[["system", "part", "n", "ratio"]].round(3)
                 system part  n  ratio
    0          ceph-pve  all  4  0.639
    1      drbd-tcp-pve  all  4  0.844
    2  starwind-tcp-pve  all  4  0.751
    """
    by = [name for name in as_list(by) if name != "system"]
    runs = cells_of(results, metric, ["system", *by])[1]
    runs = runs.assign(round=runs["round"].fillna(runs.groupby("cell").cumcount()))
    found = _against(baseline, results, every_pair(results, metric, by, margin))
    kinds = found.reindex(columns=["pattern"])["pattern"].astype(str)
    found["kind"] = kinds.str.extract("(rw|read|write)", expand=False).map(KINDS).fillna("other")
    rows = []
    for system, own in found.groupby("system", sort=True):
        parts = [part for part in (*KINDS.values(), "other") if own["kind"].eq(part).any()]
        tests = {"all": own} | {part: own[own["kind"] == part] for part in parts if len(parts) > 1}
        rows += [{"system": system, "part": part} | _mean(runs, of_part) for part, of_part in tests.items()]
    columns = ["system", "part", "n", "log_ratio", "se", "df", "lowest", "highest", "single", "mixed", "warnings"]
    table = pd.DataFrame(rows, columns=columns)
    told = table.assign(n_baseline=2, n=2, test=range(len(table)))
    table = table.join(judge(told, margin, "holm"))
    table["verdict"] = table["verdict"].mask(table["single"], "untested").mask(table["n"] == 0, "missing")
    shown = ["system", "part", "n", "ratio", "ratio_lo", "ratio_hi", "p_adjusted", "lowest", "highest", "verdict"]
    return table[[*shown, "mixed", "warnings"]]


def _mean(runs: pd.DataFrame, found: pd.DataFrame) -> dict:
    """Return the mean log ratio of some tests of one system, its standard error and degrees of freedom."""
    tests = found[found["ratio"] > 0]
    moves = _moves(runs, tests)
    moves["move"] /= moves["n"] * len(tests)
    rounds = moves.groupby(["side", "round"], as_index=False)["move"].sum()
    se, df = of_mean(tests, rounds, tests["common"].max()) if len(tests) else (np.nan, np.nan)
    is_single = len(tests) > 0 and bool(np.isnan(se))
    is_mixed = {"higher", "lower"} <= set(tests["verdict"])
    said = {code for codes in found["warnings"] for code in codes.split()}
    codes = {
        "no-ratio": len(found) > len(tests),
        "mixed": is_mixed and not is_single,
        "single-runs": is_single and PRINTED_MEAN not in said,
        PRINTED_MEAN: is_single and PRINTED_MEAN in said,
        LEFT_OUT: LEFT_OUT in said,
    }
    return {
        "n": len(tests), "log_ratio": tests["log_ratio"].mean(), "se": se, "df": df,
        "single": is_single, "mixed": is_mixed,
        "lowest": tests["ratio"].min(), "highest": tests["ratio"].max(),
        "warnings": " ".join(code for code, is_there in codes.items() if is_there),
    }  # fmt: skip
