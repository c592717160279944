"""Ceilings of whole tables: every block size of a drive, every system of a comparison (METHODS section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare.compare import summarize
from hcilib.analyse.physics.datapath import against_ceiling, ceiling
from hcilib.analyse.physics.schemes import Scheme


def ceilings(
    rates: pd.DataFrame, drives: int, schemes: Mapping[str, Scheme], rwmixread: Sequence[float] = (100, 70, 0)
) -> pd.DataFrame:
    """What `drives` drives cannot exceed, for every block size of a baseline and every scheme.

    Parameters
    ----------
    rates : as ``drive_rates`` returns it. Sequential writes count as full stripes.
    schemes : name -> scheme.

    Returns
    -------
    DataFrame
        scheme, bs_bytes, access, then the columns of ``ceiling`` (NaN where the drive's rate is missing).
    """
    limits = [
        ceiling(rate, drives, scheme, rwmixread, full_stripe=access == "sequential").assign(
            scheme=name, bs_bytes=size, access=access
        )
        for name, scheme in schemes.items()
        for (size, access), rate in rates.iterrows()
    ]
    columns = ["rwmixread", "write_cost", "harmonic_iops", "split_iops", "arithmetic_iops", "overstated"]
    if not limits:
        return pd.DataFrame(columns=["scheme", "bs_bytes", "access", *columns])
    return pd.concat(limits, ignore_index=True)[["scheme", "bs_bytes", "access", *columns]]


def best_share(
    told: pd.DataFrame,
    rates: pd.DataFrame | None,
    drives: int,
    scheme: Scheme,
    by: Sequence[str] = ("pattern", "curve"),
) -> pd.DataFrame:
    """The best of each curve (``fleet_curves``) against the drives' ceiling: the by columns, vms, iops, then those of
    ``against_ceiling``; without `rates` all of these are NaN."""
    keys = list(dict.fromkeys([*by, "system", "rw", "rwmixread", "bs_bytes", "vms"]))
    means = summarize(told, "iops", by=keys).rename(columns={"center": "iops"})
    best = means.loc[means["iops"].fillna(-1.0).groupby([means[c] for c in by], sort=False).idxmax()].reset_index(
        drop=True
    )
    best = best[[*keys, "iops"]].assign(vms=best["vms"].where(best["iops"].notna()))
    return against_ceiling(best, rates, drives, scheme)


def system_ceilings(
    results: pd.DataFrame, rates: pd.DataFrame | None, drives: int, schemes: Mapping[str, Scheme]
) -> pd.Series:
    """`ceiling_iops` of every row under its own system's scheme, by the results' index, for ``audit``.

    NaN where there are no `rates`, where the system has no scheme, or where the drive was not measured so.
    """
    limits = pd.Series(np.nan, results.index, name="ceiling_iops")
    if rates is None or rates.empty:
        return limits
    for name, scheme in schemes.items():
        rows = results[results["system"] == name]
        limits.loc[rows.index] = against_ceiling(rows, rates, drives, scheme)["ceiling_iops"]
    return limits
