"""Which of the three binds: the drives, the network between the nodes, or the nodes' CPU (METHODS section 4)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hcilib.analyse.physics.schemes import Scheme
from hcilib.analyse.physics.traffic import expected_traffic

RESOURCES = {"drives": "drives_iops", "network": "network_iops", "node CPU": "cpu_iops"}
NEAR_PCT = 80.0
"""From this share of what a resource can give it is said to bind."""


def network_bytes_per_s(links: pd.DataFrame, one_kernel: bool = False) -> float:
    """What all nodes together can receive from one another: of each node the best of its incoming links, added up; NaN
    without any.

    Parameters
    ----------
    links : as ``network`` or ``read_network`` returns it; RDMA counts where it was measured, else TCP
    one_kernel : the nodes of a lab share one loopback, whose rate is counted once
    """
    known = links.dropna(subset=["bytes_per_s"])
    if known.empty:
        return float("nan")
    incoming = known.groupby("target")["bytes_per_s"].max()
    return float(incoming.max() if one_kernel else incoming.sum())


def binding(
    results: pd.DataFrame, links: pd.DataFrame | None = None, scheme: Scheme | None = None, redirected: float = 0.0
) -> pd.DataFrame:
    """What drives, network and CPU would each allow, and which of them binds.

    Parameters
    ----------
    results : rows with iops; `ceiling_iops` (``against_ceiling``) is the drives'. `node_cpu_pct` gives the CPU's: the
        same CPU time an I/O up to 100 %. `net_bytes_per_s` and `bw_bytes` give the network bytes of a client byte;
        without counters `scheme` does
    links : what the links between the nodes give (``network``, ``read_network``)
    scheme, redirected : as ``expected_traffic`` takes them, where the network was not counted; the share of VMs off
        their owner

    Returns
    -------
    The results with drives_iops, network_iops, cpu_iops (NaN where it is not known), binds (the nearest of those known:
    drives, network, node CPU), pct_of_binding, and said: one sentence, which names what is not known too.
    """
    iops = results["iops"].astype(float)
    cpu = results.get("node_cpu_pct", pd.Series(np.nan, results.index)).astype(float)
    capacity = float("nan") if links is None else network_bytes_per_s(links, links.attrs.get("one_kernel", False))
    crossing = _crossing(results, scheme, redirected)
    limits = pd.DataFrame({
        "drives_iops": results.get("ceiling_iops", pd.Series(np.nan, results.index)).astype(float),
        "network_iops": capacity / crossing.where(crossing > 0) / results["bs_bytes"].astype(float),
        "cpu_iops": iops * 100 / cpu.where(cpu > 0),
    })  # fmt: skip
    share = limits.rdiv(iops, axis=0)
    nearest = share.fillna(-1.0).idxmax(axis=1).where(share.notna().any(axis=1))
    named = {column: name for name, column in RESOURCES.items()}
    table = results.assign(**limits, binds=nearest.map(named), pct_of_binding=100 * share.max(axis=1))
    return table.assign(said=[_said(row) for _, row in table.iterrows()])


def _crossing(results: pd.DataFrame, scheme: Scheme | None, redirected: float) -> pd.Series:
    """Network bytes of a client byte: counted, else by the scheme; NaN where neither says."""
    counted = pd.Series(np.nan, results.index)
    if {"net_bytes_per_s", "bw_bytes"} <= set(results):
        counted = results["net_bytes_per_s"].astype(float) / results["bw_bytes"].where(results["bw_bytes"] > 0).astype(
            float
        )
    if scheme is None:
        return counted
    expected = expected_traffic(
        scheme, redirected, int(results["nodes"].max()) if results.get("nodes", pd.Series()).notna().any() else 2
    )
    each = expected.set_index("ddir")["expected"]
    read = (
        results["rw"]
        .map({"read": 1.0, "randread": 1.0, "write": 0.0, "randwrite": 0.0})
        .fillna(results["rwmixread"] / 100)
    )
    return counted.fillna(read * each["read"] + (1 - read) * each["write"])


def _said(row: pd.Series) -> str:
    shares = {name: row["iops"] / row[column] for name, column in RESOURCES.items() if row[column] > 0}
    unknown = [name for name, column in RESOURCES.items() if pd.isna(row[column])]
    tail = f"; not known: {', '.join(unknown)}" if unknown else ""
    if not shares or pd.isna(row["iops"]):
        return f"nothing is known of what could bind{tail}"
    order = sorted(shares, key=lambda name: -shares[name])
    rest = ", ".join(f"{name} {100 * shares[name]:.3g} %" for name in order[1:])
    used = f"{order[0]} used to {100 * shares[order[0]]:.3g} %"
    if 100 * shares[order[0]] >= NEAR_PCT:
        return (
            f"{order[0]} bind{'s' * (order[0] != 'drives')}: used to {100 * shares[order[0]]:.3g} "
            f"%{f' ({rest})' if rest else ''}{tail}"
        )
    return f"none of those known binds: {used}{f', {rest}' if rest else ''}{tail}"
