"""Which load to choose: threads x outstanding I/Os from coarse to fine, and when a sweep over VMs has seen enough
(METHODS section 11)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import groups_of, numbers_of, valid_rows
from hcilib.analyse.compare.compare import summarize

SATURATED = 0.95
"""Share of the highest IOPS from which a load counts as saturating."""
Load = tuple[int, int]
"""numjobs (threads of a VM), iodepth (outstanding I/Os of each)."""


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
    within the latency), within, chosen, why, warnings; in order of numjobs and iodepth. Of loads with as many
    outstanding I/Os the one with more IOPS is chosen. `why` says of the chosen one what decided it, and of a group
    without one that no load stays within the latency.

    Raises
    ------
    ValueError : a missing column, `saturated` outside 0 to 1, or a latency that is not above zero

    Examples
    --------
    >>> results = hci.published().query("system == 'drbd-tcp-pve' and pattern == '4k-randread' and vms > 1")
    >>> found = hci.loads(results, within_ns=2e6)
    >>> print(found.loc[found["chosen"], "why"].item().replace(". ", ".\\n"))
    numjobs 3 at iodepth 8 gives 97 % of the highest IOPS within the latency limit of 2 ms.
    Smaller loads give less than 95 % of them
    """
    if not 0 < saturated <= 1:
        raise ValueError(f"saturated is {saturated!r}: expected a share of the highest IOPS, such as 0.95")
    if within_ns is not None and not within_ns > 0:
        raise ValueError(f"within_ns is {within_ns!r}: expected nanoseconds above zero, or None for any latency")
    by = list(by)
    keys = [*by, "numjobs", "iodepth"]
    table = summarize(results, "iops", by=keys)[[*keys, "n", "iops", "warnings"]]
    cost = summarize(results, latency, by=keys)[[*keys, latency]]
    table = table.merge(cost, on=keys, how="left").sort_values(keys, ignore_index=True)
    table["outstanding"] = table["numjobs"] * table["iodepth"]
    in_time = True if within_ns is None else table[latency] <= within_ns  # not bounded: nothing has to be known
    table["within"] = table["iops"].notna() & in_time
    best = table["iops"].where(table["within"]).groupby([table[c] for c in by], dropna=False).transform("max")
    table["pct_of_best"] = 100 * table["iops"] / best
    enough = table[table["within"] & (table["pct_of_best"] >= 100 * saturated - 1e-9)]
    first = enough.sort_values(["outstanding", "iops"], ascending=[True, False]).drop_duplicates(by)
    table["chosen"] = table.index.isin(first.index)
    bound = "" if within_ns is None else f" within the latency limit of {within_ns / 1e6:g} ms"
    table["why"], least = "", f"{100 * saturated:g} %"
    table.loc[table["pct_of_best"].isna(), "why"] = f"no load was measured{bound}"
    for row in table[table["chosen"]].itertuples():
        load = f"numjobs {row.numjobs:.0f} at iodepth {row.iodepth:.0f}"
        reached = f"{row.pct_of_best:.0f} % of the highest IOPS{bound}"
        table.loc[row.Index, "why"] = f"{load} gives {reached}. Smaller loads give less than {least} of them"
    columns = [*keys, "outstanding", "n", "iops", latency, "pct_of_best", "within", "chosen", "why", "warnings"]
    return table[columns]


def next_loads(found: pd.DataFrame, numjobs: Sequence[int], iodepth: Sequence[int]) -> list[Load]:
    """The loads of the grid to measure next, from coarse to fine; empty when the search is over.

    First every second value of both axes and their ends; then whatever is not measured yet beside the chosen load,
    until everything beside it is. Where no load stays within the latency, what lies beside the quickest one.

    Parameters
    ----------
    found : as ``loads`` returns it for one search, empty before the first look
    """
    axes = [sorted(set(numjobs)), sorted(set(iodepth))]
    if found.empty:
        jobs, depths = (sorted({*axis[::2], axis[-1]}) for axis in axes)
        return list(product(jobs, depths))
    known = {(int(row.numjobs), int(row.iodepth)) for row in found.itertuples()}
    chosen = found[found["chosen"]] if found["chosen"].any() else found.nsmallest(1, "outstanding")
    jobs, depths = (
        axis[max(0, (at := axis.index(int(chosen[name].iloc[0]))) - 1) : at + 2]
        for name, axis in zip(("numjobs", "iodepth"), axes, strict=True)
    )
    return [load for load in product(jobs, depths) if load not in known]


def stop_rules(
    results: pd.DataFrame,
    shares: Collection[float] = (0.8, 0.95),
    gain_pct: float | None = 5.0,
    cpu_pct: float | None = 80.0,
    by: Sequence[str] = ("system", "pattern"),
    stated_cpu: Mapping[int, str] | None = None,
) -> pd.DataFrame:
    """At how many VMs each rule ends a sweep over VMs, and what is reached there.

    Parameters
    ----------
    shares : of the highest IOPS of the curve, such as 0.8 (the four-node article's) and 0.95: the fewest VMs that reach
        it
    gain_pct : the first VM count from which a further VM adds less than this percent of the mean IOPS a VM so far
    cpu_pct : the last VM count at which the nodes' CPU is at most this, so that cycles are left for the guests
    stated_cpu : VM count -> node CPU in words (``stated_cpu``), to name where no number is known

    Returns
    -------
    `by`, rule, vms (NaN where the rule does not fire), iops, pct_of_peak, node_cpu_pct (NaN where it is not known),
    why.

    Raises
    ------
    ValueError : a missing column, or a share outside 0 to 1

    Examples
    --------
    >>> told = hci.fleet_curves(hci.read_results("data/published/scaling.csv").query("vms > 0"))
    >>> found = hci.stop_rules(told.query("curve == 'gains added up'"), gain_pct=50, cpu_pct=None)
    >>> found[["rule", "vms", "pct_of_peak"]].round(1)
                          rule   vms  pct_of_peak
    0      80 % of the maximum  14.0         82.6
    1      95 % of the maximum  19.0         97.1
    2  gain below 50 % of a VM   9.0         68.1
    """
    if wrong := [share for share in shares if not 0 < share <= 1]:
        raise ValueError(f"shares has {wrong[0]!r}: expected shares of the highest IOPS, such as 0.8 and 0.95")
    by = list(by)
    runs = results[valid_rows(results)]
    cpu = numbers_of(runs, "node_cpu_pct")
    logs = runs.assign(iops=np.log(runs["iops"]), node_cpu_pct=np.log(cpu.where(cpu > 0)))
    means = np.exp(logs.groupby([*by, "vms"], dropna=False, observed=True)[["iops", "node_cpu_pct"]].mean())
    table = means.reset_index().dropna(subset=["iops"])  # as `summarize` gives them
    rows = []
    for place, own in groups_of(table, by):
        own = own.sort_values("vms", ignore_index=True)
        for rule, at, why in _rules(own, shares, gain_pct, cpu_pct, stated_cpu or {}):
            there = own.loc[at] if at is not None else pd.Series(np.nan, ["vms", "iops", "node_cpu_pct"])
            reached = {name: there[name] for name in ("vms", "iops", "node_cpu_pct")}
            share = 100 * there["iops"] / own["iops"].max()
            rows.append({**place, "rule": rule, **reached, "pct_of_peak": share, "why": why})
    return pd.DataFrame(rows, columns=[*by, "rule", "vms", "iops", "pct_of_peak", "node_cpu_pct", "why"])


def _rules(
    curve: pd.DataFrame,
    shares: Collection[float],
    gain_pct: float | None,
    cpu_pct: float | None,
    stated_cpu: Mapping[int, str],
):
    """Rule, row of the curve where it ends the sweep (None: nowhere), why; of one curve in order of VMs."""
    top, last = curve["iops"].max(), f"up to {curve['vms'].iloc[-1]:g} VMs"
    for share in shares:
        at = curve.index[curve["iops"] >= share * top - 1e-9][0]
        yield f"{100 * share:g} % of the maximum", at, f"the maximum is {top:,.0f} IOPS ({last})"
    if gain_pct is not None:
        added = curve["iops"].diff() / curve["vms"].diff()
        fair = curve["iops"].shift() / curve["vms"].shift()
        small = curve.index[100 * added < gain_pct * fair]
        at, why = None, f"every further VM adds more than that ({last})"
        if len(small):
            at, why = (
                small[0] - 1,
                f"the next VM adds {added[small[0]]:,.0f} IOPS, each of the earlier ones added {fair[small[0]]:,.0f}",
            )
        yield f"gain below {gain_pct:g} % of a VM", at, why
    if cpu_pct is not None:
        over = curve.index[curve["node_cpu_pct"] > cpu_pct]
        at, why = len(curve) - 1, f"not exceeded ({last})"
        if len(over):
            at, why = over[0] - 1, f"{curve['node_cpu_pct'].iloc[over[0]]:.0f} % at {curve['vms'].iloc[over[0]]:g} VMs"
        elif curve["node_cpu_pct"].isna().all():
            stated = [f"{words} at {vms} VMs" for vms, words in stated_cpu.items() if curve["vms"].eq(vms).any()]
            at, why = -1, f"only {', '.join(stated)} is stated" if stated else "the nodes' CPU is not known"
        yield f"node CPU up to {cpu_pct:g} %", at if at >= 0 else None, why


def stops(results: pd.DataFrame, rules: Mapping[str, float]) -> str:
    """Why a sweep over VMs that adds them one by one ends now, by the last of them; empty where it goes on.

    Parameters
    ----------
    results : of the VM counts measured so far, of one system and pattern
    rules : of ``gain_pct`` and ``cpu_pct``, as in `stop_rules`; a rule that is not named ends nothing
    """
    found = stop_rules(results, (), rules.get("gain_pct"), rules.get("cpu_pct"))
    most = results["vms"].max()
    ended = found[found["vms"].notna() & (found["vms"] < most)]
    return "; ".join(f"{row.rule} at {row.vms:g} VMs: {row.why}" for row in ended.itertuples())
