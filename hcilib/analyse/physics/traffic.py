"""What crossed a network card, per byte of the client: counted, to stand beside what the placement demands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import annotate, group_codes, valid_rows
from hcilib.analyse.compare.compare import summarize
from hcilib.caveats import Caveat
from hcilib.metrics import FACTORS, KEYS


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
