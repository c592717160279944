"""Which load to choose: threads x outstanding I/Os from coarse to fine, and when a sweep over VMs has seen enough
(METHODS section 11)."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from hcilib.analyse.compare import summarize
from hcilib.analyse.rows import numbers_of

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
    curve = summarize(known, "iops", by=["vms"])[["vms", "iops"]].dropna(subset=["iops"])
    curve = curve.merge(summarize(known, "node_cpu_pct", by=["vms"])[["vms", "node_cpu_pct"]], on="vms")
    curve = curve.sort_values("vms", ignore_index=True)
    vms, cpu = curve["vms"], curve["node_cpu_pct"]
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
