"""Ceilings of whole tables: every block size of a drive, every system of a comparison (METHODS section 4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

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
    stripes: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """The best of each curve (``fleet_curves``) against the drives' ceiling: the by columns, vms, iops, then those of
    ``against_ceiling``; without `rates` all of these are NaN. `stripes` as in ``system_ceilings``."""
    keys = list(dict.fromkeys([*by, "system", "rw", "rwmixread", "bs_bytes", "vms"]))
    means = summarize(told, "iops", by=keys).rename(columns={"center": "iops"})
    best = means.loc[means["iops"].fillna(-1.0).groupby([means[c] for c in by], sort=False).idxmax()].reset_index(
        drop=True
    )
    best = best[[*keys, "iops"]].assign(vms=best["vms"].where(best["iops"].notna()))
    return against_ceiling(best, rates, drives, scheme, stripes=stripes)


def system_ceilings(
    results: pd.DataFrame,
    rates: pd.DataFrame | None,
    drives: int,
    schemes: Mapping[str, Scheme],
    stripes: Mapping[str, float] | None = None,
) -> pd.Series:
    """`ceiling_iops` of every row under its own system's scheme, by the results' index, for ``audit``.

    NaN where there are no `rates`, where the system has no scheme, or where the drive was not measured so.

    Parameters
    ----------
    stripes : system -> bytes of data in one parity stripe (``stripe_bytes``): random writes of that size fill it, and
        read nothing. Where it is not known, the ceiling is that of small writes, and ``attrs["full_stripe_iops"]``
        (index -> IOPS) that of full stripes: between the two nobody can judge.
    """
    limits = pd.Series(np.nan, results.index, name="ceiling_iops")
    if rates is None or rates.empty:
        return limits
    for name, scheme in schemes.items():
        rows = results[results["system"] == name]
        stripe = (stripes or {}).get(name, np.nan)
        own = against_ceiling(rows, rates, drives, scheme, None if np.isnan(stripe) else stripe)["ceiling_iops"]
        limits.loc[rows.index] = own
        if np.isnan(stripe):
            full = against_ceiling(rows, rates, drives, scheme, 0)["ceiling_iops"]
            limits.attrs.setdefault("full_stripe_iops", {}).update(full[full > own * (1 + 1e-9)].to_dict())
    return limits


def stripe_bytes(commands: Iterable[str]) -> float:
    """Bytes of data in one stripe of the array that a system's commands make; NaN where none of them says.

    Examples
    --------
    >>> hci.stripe_bytes(hci.load_system("params/systems/starwind-rdma-pve.yaml").tuning)
    16384.0
    """
    for command in commands:
        if not command.lstrip().startswith("mdadm"):
            continue
        level, chunk, drives = (re.search(f"--{name}=(\\w+)", command) for name in ("level", "chunk", "raid-devices"))
        if level and chunk and drives and level[1] in ("5", "6"):
            number, unit = (
                chunk[1].rstrip("KMG"),
                chunk[1][-1:].strip("0123456789"),
            )  # mdadm counts KiB where it names no unit
            size = int(number) * {"": 2**10, "K": 2**10, "M": 2**20, "G": 2**30}[unit]
            return float(size * (int(drives[1]) - int(level[1]) + 4))
    return np.nan
