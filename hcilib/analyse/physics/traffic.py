"""What must cross the network, what crossed it, and whether it is the network, the drives or the nodes' CPU that binds
(METHODS section 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import annotate, group_codes, valid_rows
from hcilib.analyse.compare.compare import summarize
from hcilib.analyse.physics.schemes import ErasureCode, Product, Scheme, Tiers, Wrapped
from hcilib.caveats import Caveat
from hcilib.metrics import FACTORS, KEYS

PLACEMENT = ["placement", "ddir"]
RESOURCES = {"drives": "drives_iops", "network": "network_iops", "node CPU": "cpu_iops"}
NEAR_PCT = 80.0
"""From this share of what a resource can give it is said to bind."""


def expected_traffic(
    scheme: Scheme, redirected: bool | float | None = None, nodes: int = 2, copies_per_node: float | None = None
) -> pd.DataFrame:
    """Network bytes per client byte: redirection plus the remote copies of a write.

    A byte is counted once as it crosses the network: the bytes sent by all nodes together or, with two nodes, what
    one node's "Bytes Total/sec" (sent + received) shows. METHODS section 4; the CSV datapath article measures it.

    Parameters
    ----------
    scheme : every mirror copy is sent by the node that owns the data, parity is computed where it is stored. Of
        `Tiers` the first counts, where new writes land; moving data to the next tier later is not included.
    redirected : does the VM run on another node than the owner? A share for a mix (Ceph's primaries are spread, so
        1 - 1/nodes); None gives both placements.
    nodes : nodes the copies are spread over.
    copies_per_node : copies the owner itself holds, below 1 if it holds a copy of only part of the data. Default:
        copies / nodes, at least 1 (1/k of an erasure code).

    Returns
    -------
    DataFrame
        placement (`owner`, `non-owner`, `mixed`), ddir (`read`, `write`), redirected, expected.

    Examples
    --------
    >>> hci.expected_traffic(hci.Mirror(2), nodes=2)[["placement", "ddir", "expected"]]
       placement   ddir  expected
    0      owner   read       0.0
    1  non-owner   read       1.0
    2      owner  write       1.0
    3  non-owner  write       2.0
    """
    copies, owned = _copies(scheme, nodes, copies_per_node)
    remote = {"read": 1 - min(owned, 1.0), "write": copies - owned}
    shares = (0.0, 1.0) if redirected is None else (float(redirected),)
    if not all(0 <= share <= 1 for share in shares):
        raise ValueError(f"redirected must be true, false or a share from 0 to 1, got {redirected!r}")
    names = {0.0: "owner", 1.0: "non-owner"}
    return pd.DataFrame(
        [(names.get(r, "mixed"), ddir, r, r + remote[ddir]) for ddir in remote for r in shares],
        columns=[*PLACEMENT, "redirected", "expected"],
    )


def _copies(scheme: Scheme, nodes: int, copies_per_node: float | None) -> tuple[float, float]:
    """Bytes stored per client byte as the network sees them, and how many of them stay on the owner."""
    while isinstance(scheme, Tiers | Wrapped):
        scheme = scheme.parts[0][1] if isinstance(scheme, Tiers) else scheme.scheme
    if isinstance(scheme, Product) and isinstance(scheme.levels[0], ErasureCode):
        scheme = scheme.levels[0]
    copies = scheme.stripe_cost if isinstance(scheme, ErasureCode) else scheme.copies
    if copies_per_node is None:
        if copies > nodes and copies % nodes:
            raise ValueError(
                f"{copies} copies do not spread evenly over {nodes} nodes: give nodes= (at least {copies}) or "
                "copies_per_node="
            )
        copies_per_node = 1 / scheme.k if isinstance(scheme, ErasureCode) else max(copies / nodes, 1)
    if not 0 <= copies_per_node <= copies:
        raise ValueError(
            f"copies_per_node must lie between 0 and the {copies} copies of {scheme!r}, got {copies_per_node}"
        )
    return copies, copies_per_node


def check_traffic(observed: pd.DataFrame, expected: pd.DataFrame, tolerance: float = 0.1) -> pd.DataFrame:
    """Counters beside the scheme: does the network carry what the placement demands?

    Parameters
    ----------
    observed : placement, ddir (or rw) and either `observed` (network bytes per client byte) or `net_bytes_per_s` and
        `bw_bytes`, in the counting of `expected_traffic`. A client without `bw_bytes` is taken to run at its cap
        `rate_bytes`.
    expected : as `expected_traffic` returns it.
    tolerance : allowed deviation, relative to the expected traffic or to the client's own if that is larger, so that
        an expected 0 can be tested. 0.1 leaves room for headers and for figures read off a graph.

    Returns
    -------
    DataFrame
        The observed rows with observed, expected, ratio (NaN where 0 is expected), ok (<NA> where one side is
        missing), note.
    """
    table = _per_client_byte(observed).merge(
        expected[[*PLACEMENT, "expected"]], on=PLACEMENT, how="left", validate="m:1"
    )
    deviation = (table["observed"] - table["expected"]).abs()
    ok = (deviation <= tolerance * table["expected"].clip(lower=1) + 1e-12).astype("boolean")
    table["ratio"] = table["observed"] / table["expected"].where(table["expected"] > 0)
    table["ok"] = ok.mask(deviation.isna())
    table["note"] = [_traffic_note(row, tolerance) for row in table.itertuples()]
    return table


def _per_client_byte(observed: pd.DataFrame) -> pd.DataFrame:
    """The rows with ddir and observed; NaN where the client's own rate is unknown or mixes directions."""
    table = observed.drop(columns=["expected"], errors="ignore")
    if "ddir" not in table:
        table = table.assign(ddir=table["rw"].map(lambda rw: rw.removeprefix("rand")))
    if "observed" not in table:
        client = table["bw_bytes"] if "bw_bytes" in table else pd.Series(np.nan, table.index)
        client = client.fillna(table["rate_bytes"]) if "rate_bytes" in table else client
        table = table.assign(observed=table["net_bytes_per_s"] / client.where(client > 0))
    return table


def _traffic_note(row, tolerance: float) -> str:
    if pd.isna(row.ok):
        return (
            f"not checkable: no {'expected' if pd.isna(row.expected) else 'observed'} traffic for "
            f"{row.placement} {row.ddir}"
        )
    verdict = "as" if row.ok else "not as"
    return (
        f"{row.observed:.2f} x the client's bytes, {verdict} expected ({row.expected:.2f} within {100 * tolerance:g} %)"
    )


# ---- What crossed a network card, per byte of the client: counted, to stand beside what the placement demands


def traffic(
    results: pd.DataFrame, counters: pd.DataFrame, nic: str, by: Sequence[str] = ("system", "placement", "ddir")
) -> pd.DataFrame:
    """Bytes that crossed a network card per byte of the client, over repeats, in the counting of `expected_traffic`.

    Parameters
    ----------
    results : runs of patterns that only read or only write, whose `bw_bytes` is the client's rate
    counters : ``read_counters`` of the same runs; what all nodes received on `nic`, weighted by the intervals, is what
        crossed

    Returns
    -------
    The by columns, n, observed, observed_lo, observed_hi, confidence, net_bytes_per_s, bw_bytes (means of the n runs),
    warnings, which count the valid runs that have no counters of the card.

    Raises
    ------
    ValueError : no node has such a card, or a run mixes directions
    """
    own = counters[counters["nic"] == nic]
    if own.empty:
        raise ValueError(f"no counters of card {nic!r}; there are {', '.join(sorted(counters['nic'].unique()))}")
    if (mixed := ~results["rwmixread"].isin((0, 100))).any():
        raise ValueError(
            f"{results.loc[mixed, 'pattern'].iloc[0]} mixes directions: its bytes cannot be told apart on a card"
        )
    keys = [c for c in (*KEYS, *FACTORS) if c in results and c in counters]
    spans = own.assign(moved=own["rx_bytes_per_s"] * own["interval_s"]).groupby([*keys, "node"], dropna=False)
    rates = spans["moved"].sum() / spans["interval_s"].sum()
    received = rates.groupby(level=keys, dropna=False).sum().rename("nic_bytes_per_s").reset_index()
    runs = results.assign(ddir=results["rwmixread"].map({0: "write", 100: "read"})).merge(received, on=keys, how="left")
    runs["net_bytes_per_s"], runs["observed"] = runs["nic_bytes_per_s"], runs["nic_bytes_per_s"] / runs["bw_bytes"]
    table = summarize(runs.drop(columns="nic_bytes_per_s"), "observed", by=list(by)).rename(
        columns={"center": "observed", "lo": "observed_lo", "hi": "observed_hi"}
    )
    code, valid, counted = group_codes(runs, list(by))[0], valid_rows(runs), np.isfinite(runs["observed"])
    rate = runs[["net_bytes_per_s", "bw_bytes"]].where(valid & counted).groupby(code).mean()
    absent = np.bincount(code[valid & runs["nic_bytes_per_s"].isna()], minlength=len(table))
    warnings = annotate(
        table["warnings"],
        (
            absent,
            lambda i: Caveat("counters", f"{absent[i]} run{'s' * int(absent[i] > 1)} without counters of card {nic!r}"),
        ),
    )
    return table.assign(warnings=warnings).join(rate)


def placement_cost(expected: pd.DataFrame) -> pd.DataFrame:
    """Network bytes per client byte of a VM on the owner and on another node, and what the latter adds; of
    ``expected_traffic``.

    Returns ddir, owner, non_owner, added.
    """
    table = expected.pivot(index="ddir", columns="placement", values="expected").reset_index()
    table = table.rename(columns={"non-owner": "non_owner"}).rename_axis(columns=None)[["ddir", "owner", "non_owner"]]
    return table.assign(added=table["non_owner"] - table["owner"])


# ---- Which of the three binds: the drives, the network between the nodes, or the nodes' CPU?


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
