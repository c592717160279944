"""What must cross the network, and what the drives cannot exceed (METHODS section 4)."""

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
