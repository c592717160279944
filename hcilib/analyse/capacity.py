"""How much of the raw capacity is usable, and what a usable TiB delivers (METHODS section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from hcilib.analyse.rows import refuse_currencies
from hcilib.model.metrics import parse_bytes
from hcilib.model.schemes import Scheme, Tiers, parse_scheme

TB, TIB = 10**12, 2**40
"""Drives are sold in TB, operating systems count in TiB: 32 TB are 29.1 TiB. Never one for the other."""


def capacity_table(
    schemes: Mapping[str, Scheme | str], raw_bytes: float | str | Mapping[str, float] | None
) -> pd.DataFrame:
    """What each system makes of its raw capacity.

    Parameters
    ----------
    schemes : system -> scheme, or its formula, which is then shown as it was written.
    raw_bytes : bytes of all drives of all servers; one number, text such as "32 TB", or system -> bytes.

    Returns
    -------
    DataFrame
        One row per system: system, scheme (its formula), raw_bytes, reserve_bytes, reserve_tb, reserve_tib, efficiency
        (usable share of raw, after reserve and deduplication), dedup_ratio (client bytes per stored byte),
        usable_bytes, usable_tb, usable_tib, write_cost, stripe_cost, survives_drives, survives_servers, survives (in
        words).
    """
    if raw_bytes is None:
        raise ValueError(
            "raw_bytes is None: say how many bytes all drives of all servers hold, e.g. 32e12 for 10 of 3.2 TB"
        )
    one = parse_bytes(raw_bytes) if isinstance(raw_bytes, str) else raw_bytes
    raw = one if isinstance(one, Mapping) else dict.fromkeys(schemes, one)
    if absent := [name for name in schemes if name not in raw]:
        raise ValueError(f"raw_bytes has no entry for {', '.join(absent)}")
    rows = []
    for name, scheme in schemes.items():
        formula = {"scheme": scheme} if isinstance(scheme, str) else {}
        parsed = parse_scheme(scheme) if isinstance(scheme, str) else scheme
        rows.append({"system": name, **_capacity(parsed, raw[name]), **formula})
    return pd.DataFrame(rows)


def system_capacity(
    systems: Mapping[str, Any],
    schemes: Mapping[str, Scheme | str] | None = None,
    raw_bytes: float | str | None = None,
    fill_pct: float = 100.0,
) -> pd.DataFrame:
    """What systems make of the drives that their files say they have, each of its own, and schemes set beside them.

    Parameters
    ----------
    systems : name -> system, as `load_systems` or `systems_of` gives: its scheme, nodes, drives_per_node and
        drive.bytes
    schemes : name -> scheme or formula: instead of a system's own, or a further row, on the largest system's raw
        capacity
    raw_bytes : of all drives of all nodes, one for every row (text such as "32 TB" too), instead of what the files say
    fill_pct : how full the usable capacity may get, in percent

    Returns
    -------
    DataFrame : as `capacity_table`, with raw_tb, fill_pct, filled_tib (usable TiB at that fill level),
    and where systems have different drives also drives, such as 2 x 5 x 3.2 TB. A scheme set beside
    the systems is on the largest one's drives

    Examples
    --------
    >>> two = hci.systems_of(["ceph-pve", "s2d-two-way-mirror"])
    >>> hci.system_capacity(two)[["system", "drives", "usable_tb"]]
                   system          drives  usable_tb
    0            ceph-pve  2 x 5 x 3.2 TB       16.0
    1  s2d-two-way-mirror  2 x 6 x 0.2 TB        1.2
    """
    if not 0 < fill_pct <= 100:
        raise ValueError(f"fill_pct is {fill_pct:g}: expected a percentage above 0, at most 100")
    formulas = {name: system.scheme for name, system in systems.items()} | dict(schemes or {})
    if unsaid := [name for name, formula in formulas.items() if formula is None]:
        raise ValueError(f"system {', '.join(unsaid)}: its file has no scheme: give it there, or in schemes")
    known = {name: system.raw_bytes for name, system in systems.items() if system.raw_bytes == system.raw_bytes}
    given = parse_bytes(raw_bytes) if isinstance(raw_bytes, str) else raw_bytes
    most = float(given or max(known.values(), default=0))
    own = {name: most if given else known.get(name, most) for name in formulas}
    table = capacity_table(formulas, own if most else None)
    if len(set(own.values())) > 1:
        of = {name: systems[name] for name in known}
        said = {name: f"{s.nodes} x {s.drives_per_node} x {s.drive.bytes / TB:.3g} TB" for name, s in of.items()}
        table["drives"] = table["system"].map(said).fillna(f"{most / TB:.4g} TB in all")
    filled = table["usable_tib"] * fill_pct / 100
    raw_tb = table["system"].map(own) / TB
    return table.assign(raw_tb=raw_tb, fill_pct=float(fill_pct), filled_tib=filled)


def _capacity(scheme: Scheme, raw_bytes: float) -> dict:
    usable = scheme.usable_bytes(raw_bytes)
    return {
        "scheme": repr(scheme),
        "raw_bytes": raw_bytes,
        "reserve_bytes": raw_bytes * scheme.reserve_share,
        "reserve_tb": raw_bytes * scheme.reserve_share / TB,
        "reserve_tib": raw_bytes * scheme.reserve_share / TIB,
        "efficiency": scheme.efficiency,
        "dedup_ratio": scheme.dedup_ratio,
        "usable_bytes": usable,
        "usable_tb": usable / TB,
        "usable_tib": usable / TIB,
        "write_cost": scheme.write_cost,
        "stripe_cost": scheme.stripe_cost,
        "survives_drives": scheme.survives.drives,
        "survives_servers": scheme.survives.servers,
        "survives": str(scheme.survives),
    }


def reserve_share(scheme: object) -> float:
    """Return the share of raw that a scheme keeps free for repairs; 0 where it is not known."""
    return parse_scheme(scheme).reserve_share if isinstance(scheme, str) and scheme else 0.0


TIER_FULL = 0.85
"""Share of a mirror tier from which ReFS moves data to the parity tier, its default."""


def tier_fit(scheme: Scheme, raw_bytes: float, data_bytes: float) -> pd.DataFrame:
    """Does what a campaign writes stay in the first tier of a tiered volume, or does it spill?

    Parameters
    ----------
    scheme : of the volume; one without tiers has nothing to spill, and gives no row
    raw_bytes : of all drives of all nodes. The whole pool counts as volume: a reserve makes the tier smaller than is
        said here
    data_bytes : what lies on the volume while it is measured

    Returns
    -------
    DataFrame, one row or none: tier_bytes (usable, of the first tier), data_bytes, filled_pct, threshold_pct, fits
    (<NA> where `raw_bytes` is not known)

    Examples
    --------
    >>> hci.tier_fit(hci.nested_parity(5, 0.2), 32e12, 6e12)[["filled_pct", "fits"]].round(1)
       filled_pct   fits
    0       262.5  False
    """
    columns = ["tier_bytes", "data_bytes", "filled_pct", "threshold_pct", "fits"]
    if not isinstance(scheme, Tiers):
        return pd.DataFrame(columns=columns)
    tier = scheme.parts[0][0] * scheme.efficiency * raw_bytes
    filled = 100 * data_bytes / tier
    fits = pd.NA if pd.isna(filled) else bool(filled < 100 * TIER_FULL)
    row = pd.DataFrame([[tier, data_bytes, filled, 100 * TIER_FULL, fits]], columns=columns)
    return row.astype({"fits": "boolean"})


def pareto(table: pd.DataFrame, x: str, y: str, by: str | None = None) -> pd.DataFrame:
    """The table with a column `front`: no other row is at least as good in x and y and better in one (more is better).

    With `by` (``pattern``) rows compete only with those of the same value. A row where x or y is missing has front <NA>
    and pushes nobody off the front. Prices in several currencies are refused (ValueError).
    """
    refuse_currencies(table, [x, y])
    a, b = table[x].to_numpy(float), table[y].to_numpy(float)
    group = table[by].astype(str).to_numpy(object) if by else np.zeros(len(table))
    as_good = (a >= a[:, None]) & (b >= b[:, None]) & (group == group[:, None])
    better = (a > a[:, None]) | (b > b[:, None])
    front = pd.array(~(as_good & better).any(axis=1), dtype="boolean")
    front[np.isnan(a) | np.isnan(b)] = pd.NA
    return table.assign(front=front)
