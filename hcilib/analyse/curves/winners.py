"""Who is first in which pattern, each system at its own best load: the matrix that a decider reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from hcilib.analyse.compare.rank import rank
from hcilib.analyse.curves.curves import peak
from hcilib.metrics import METRICS, pattern_order

LOAD = ("iodepth", "numjobs", "outstanding")
"""What may differ between two systems' best points: the load at which each was best."""


def winners(results: pd.DataFrame, metric: str = "iops", margin: float = 0.05) -> pd.DataFrame:
    """The best of each system and pattern beside the pattern's best, and whether that is shown, tied or untested.

    Every system stands at the iodepth at which it was best (``peak``); ``rank`` tells those runs apart. So a lead is
    one of best points, chosen from the same runs: `warnings` of ``peak`` say how far that flatters.

    Returns
    -------
    DataFrame : system, pattern, iodepth (of the best), n, center, pct_of_best, state (`leads`: shown to be better than
        every other; `tied`: first, and not told apart from another; `untested`: first by single runs or printed values;
        `behind`; `missing`), tied_with, iops_per_cpu_pct (at that point; NaN where CPU is not known)

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.winners(results)[["system", "iodepth", "pct_of_best", "state"]].round(1)
                  system  iodepth  pct_of_best     state
    0           ceph-pve        8         87.9    behind
    1       drbd-tcp-pve        8        100.0  untested
    2  starwind-rdma-pve        8         96.1  untested
    3   starwind-tcp-pve        8         69.2    behind
    """
    peaks = peak(results, metric, by=("system", "pattern"))
    here = peaks[["system", "pattern", "best"]].rename(columns={"best": "iodepth"})
    rows = results.merge(here, on=["system", "pattern", "iodepth"]).drop(columns=[c for c in LOAD if c in results])
    ranks = rank(rows, metric, by=("pattern",), margin=margin).drop_duplicates(["system", "pattern"])
    table = peaks[["system", "pattern", "best", "n", "center"]].rename(columns={"best": "iodepth"})
    table = table.merge(
        ranks[["system", "pattern", "rank", "best", "tied_with", "verdict"]], on=["system", "pattern"], how="left"
    )
    top = table.groupby("pattern", observed=True)["center"].transform(
        "min" if METRICS[metric].better == "lower" else "max"
    )
    first = table["rank"].eq(1)
    table["state"] = np.select(
        [table["center"].isna(), table["best"].eq(True), first & table["verdict"].eq("point"), first],
        ["missing", "leads", "untested", "tied"],
        "behind",
    )
    table["pct_of_best"] = 100 * table["center"] / top
    if "iops_per_cpu_pct" in rows:
        cpu = rows.groupby(["system", "pattern"], observed=True)["iops_per_cpu_pct"].mean().reset_index()
        table = table.merge(cpu, on=["system", "pattern"], how="left")
    order = {name: i for i, name in enumerate(pattern_order(table["pattern"]))}
    table = table.sort_values(
        ["system", "pattern"], key=lambda c: c.map(order) if c.name == "pattern" else c, kind="stable"
    )
    table.attrs["metric"] = metric
    shown = ["system", "pattern", "iodepth", "n", "center", "pct_of_best", "state", "tied_with", "iops_per_cpu_pct"]
    return table.filter(shown).reset_index(drop=True)


def winners_facts(table: pd.DataFrame, labels: Mapping[str, str] | None = None) -> list[str]:
    """Who has the highest best point in how many patterns and how sure that is, and what a percent of CPU buys."""
    labels, patterns = labels or {}, table["pattern"].nunique()
    first = (
        table[table["pct_of_best"] >= 100 - 1e-9].groupby("system", observed=True).size().sort_values(ascending=False)
    )
    if first.empty:
        return []
    sure = table.loc[table["pct_of_best"] >= 100 - 1e-9, "state"].value_counts()
    how = ["none of it tested: one number each"] if sure.get("untested", 0) == patterns else [
        f"{sure.get('leads', 0)} of {patterns} shown by a test",
        *([f"{sure['tied']} tied"] if sure.get("tied", 0) else []),
    ]  # fmt: skip
    said = [
        "Highest best IOPS: "
        + ", ".join(f"{labels.get(name, name)} in {n} of {patterns} patterns" for name, n in first.items())
        + f" ({', '.join(how)})."
    ]
    cpu = table.dropna(subset=["iops_per_cpu_pct"]) if "iops_per_cpu_pct" in table else table.head(0)
    for pattern in pattern_order(cpu["pattern"].unique())[:1]:
        here = cpu[cpu["pattern"] == pattern].sort_values("iops_per_cpu_pct", ascending=False)
        each = ", ".join(f"{labels.get(r.system, r.system)} {r.iops_per_cpu_pct:,.0f}" for r in here.itertuples())
        said.append(f"IOPS for 1 % of a node's CPU at its best {pattern}: {each}.")
    return said
