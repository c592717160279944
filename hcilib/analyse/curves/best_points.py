"""Which system is first in which pattern: the matrix for a decision."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import describe, group_codes
from hcilib.analyse.compare.compare import rank
from hcilib.analyse.compare.contrast import CONFIDENCE, contrast, interval
from hcilib.analyse.curves.curves import best_of, peak
from hcilib.model.caveats import LEFT_OUT, has_code
from hcilib.model.metrics import better_sign

LOAD = ("iodepth", "numjobs", "outstanding")
"""What may differ between two systems' best points: the load at which each was best."""


def best_points(results: pd.DataFrame, metric: str = "iops", margin: float = 0.05) -> pd.DataFrame:
    """Return each system's point in each pattern, its share of the best, and if that was tested.

    Of a metric that is better higher, every system is taken at the iodepth at which it was best
    (``peak``). Such a lead is one of best points, chosen from the same runs: `warnings` of ``peak``
    say how far that flatters. A metric that is better lower, such as a latency, is lowest at the
    lowest load, so systems are compared at one load: the highest that most of them share.

    Returns
    -------
    DataFrame : a row for each system and pattern, also where it was not measured

        - system, pattern, iodepth (of that point), n, the metric (as iops)
        - pct_of_best, pct_of_best_lo, pct_of_best_hi: share of the pattern's best in percent, with
          the 95 % interval of that ratio, which the best itself and single runs do not have
        - state: `leads` (shown to be better than every other), `undecided` (first, not told apart
          from another), `untested` (first by single runs or printed values, or within `margin` of
          the first), `alone` (no other system has a value), `behind`, `missing`
        - tied_with, iops_per_cpu_pct (at that point; NaN where CPU is not known), confidence,
          margin, warnings

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
    keys = ["system", "pattern"]
    choose = _at_own_best if better_sign(metric) > 0 else _at_equal_load
    here, rows, ranks = choose(results, metric, margin)
    told = ranks[[*keys, "rank", "best", "tied_with", "verdict"]]
    table = here.merge(told, on=keys, how="left").merge(_shares(rows, metric), on=keys, how="left")
    table = _every_pattern(table, results)
    alone = table.groupby("pattern")[metric].transform("count").eq(1)
    first = table["rank"].eq(1)
    missing, leads = table[metric].isna(), table["best"].eq(True)
    conditions = [missing, alone, leads, first & table["verdict"].eq("untested"), first]
    states = ["missing", "alone", "leads", "untested", "undecided"]
    table["state"] = np.select(conditions, states, "behind")
    if "iops_per_cpu_pct" in rows and metric != "iops_per_cpu_pct":
        cpu = describe(rows, "iops_per_cpu_pct", keys)[[*keys, "center"]]
        table = table.merge(cpu.rename(columns={"center": "iops_per_cpu_pct"}), on=keys, how="left")
    share = ["pct_of_best", "pct_of_best_lo", "pct_of_best_hi"]
    shown = [*keys, "iodepth", "n", metric, *share, "state", "tied_with", "iops_per_cpu_pct"]
    table = table.filter(list(dict.fromkeys(shown))).reset_index(drop=True)
    codes = LEFT_OUT if has_code(results, LEFT_OUT).any() else ""
    return table.assign(confidence=CONFIDENCE, margin=margin, warnings=codes)


Points: TypeAlias = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]
"""The point of each system and pattern, the runs there, and their ranks."""


def _at_own_best(results: pd.DataFrame, metric: str, margin: float) -> Points:
    keys = ["system", "pattern"]
    peaks = peak(results, metric, by=keys)
    here = peaks[[*keys, "best", "n", metric]].rename(columns={"best": "iodepth"})
    rows = results.merge(here[[*keys, "iodepth"]], on=[*keys, "iodepth"])
    rows = rows.drop(columns=[c for c in LOAD if c in results])
    return here, rows, rank(rows, metric, by=("pattern",), margin=margin).drop_duplicates(keys)


def _at_equal_load(results: pd.DataFrame, metric: str, margin: float) -> Points:
    """Ranks are of all loads, as ``compare`` tests them, so that both give one verdict."""
    load = [c for c in ("iodepth", "outstanding") if c in results]
    ranks = rank(results, metric, by=("pattern", *load), margin=margin)
    known = ranks[ranks["n"] > 0]
    shared = known.groupby(["pattern", *load], dropna=False).size().rename("systems")
    fullest = shared.reset_index().sort_values(["systems", *load]).drop_duplicates("pattern", keep="last")
    at = fullest.drop(columns="systems")
    here = known.merge(at)
    rows = results.merge(at).drop(columns=[c for c in LOAD if c in results])
    return here[["system", "pattern", "iodepth", "n", metric]], rows, here


def _shares(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return each system's share of the pattern's best in percent, with the ratio's interval."""
    cells = describe(rows, metric, ["system", "pattern"])
    code, places = group_codes(cells, ["pattern"])
    score = better_sign(metric) * cells["center"].to_numpy()
    base = best_of(score, code, cells["n"].to_numpy() > 0, len(places))[code]
    pair = contrast(cells, np.arange(len(cells)), base, pairs="auto")
    ends = interval(pair["log_ratio"], pair["se"], pair["df"])
    itself = np.arange(len(cells)) == base
    lo, hi = (np.where(itself, np.nan, 100 * end) for end in ends)
    center = cells["center"].to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        share = 100 * np.where(center == center[base], 1.0, center / center[base])
    ends_of_share = {"pct_of_best_lo": lo, "pct_of_best_hi": hi}
    return cells[["system", "pattern"]].assign(pct_of_best=share, **ends_of_share)


def _every_pattern(table: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a row for every system and pattern, in the order of all tables."""
    pairs = pd.MultiIndex.from_product([results["system"].unique(), results["pattern"].unique()])
    absent = pairs.difference(pd.MultiIndex.from_frame(table[["system", "pattern"]]), sort=False)
    if len(absent):
        rows = pd.DataFrame(list(absent), columns=["system", "pattern"]).assign(n=0, tied_with="")
        table = pd.concat([table, rows], ignore_index=True)
    order = np.argsort(group_codes(table, ["system", "pattern"])[0], kind="stable")
    return table.iloc[order].reset_index(drop=True)
