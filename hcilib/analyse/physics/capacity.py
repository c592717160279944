"""How much of the raw capacity is usable, and what a usable TiB delivers (METHODS section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import refuse_currencies
from hcilib.model.metrics import parse_bytes
from hcilib.model.schemes import Scheme, Tiers, nested_parity, parse_scheme

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


def usable_shares(
    names: Iterable[str], systems: Mapping[str, Any], schemes: Mapping[str, Scheme | str] | None = None
) -> pd.DataFrame:
    """What share of the raw capacity each system leaves, whatever its drives: beside a comparison, what the speed
    costs.

    Parameters
    ----------
    names : systems of results; of one with a setting in brackets the file is that of the system
    systems : name -> system, as `load_systems` or `systems_of` gives
    schemes : name -> scheme or formula, instead of a system's own

    Returns
    -------
    DataFrame : a row a system: system, scheme, efficiency, survives, write_cost; missing where no scheme is known

    Examples
    --------
    >>> hci.usable_shares(["ceph-pve", "mine"], hci.load_systems())[["system", "scheme", "efficiency"]]
         system     scheme  efficiency
    0  ceph-pve  Mirror(2)         0.5
    1      mine        NaN         NaN
    """
    wanted = list(dict.fromkeys(map(str, names)))
    own = {name: getattr(systems.get(name.partition(" [")[0]), "scheme", None) for name in wanted}
    own |= {name: scheme for name, scheme in (schemes or {}).items() if name in own}
    table = capacity_table({name: scheme for name, scheme in own.items() if scheme}, 1.0)
    known = table.reindex(columns=["system", "scheme", "efficiency", "survives", "write_cost"])
    return known.set_index("system").reindex(wanted).reset_index()


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


def nested_parity_grid() -> pd.DataFrame:
    """Usable percent of nested mirror-accelerated parity: drives (a server, 4 to 7), then mirror_10_pct, mirror_20_pct
    and mirror_30_pct by the mirror's share.

    More than seven drives a server are as seven (see :func:`nested_parity`).
    """
    drives = range(4, 8)
    usable = {f"mirror_{m}_pct": [100 * nested_parity(n, m / 100).efficiency for n in drives] for m in (10, 20, 30)}
    return pd.DataFrame({"drives": drives, **usable})


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


def with_stated(table: pd.DataFrame, stated_pct: Mapping[str, float]) -> pd.DataFrame:
    """A capacity table with stated_pct, the usable share somebody printed, and agrees: does ours round to it?

    `stated_pct` is system -> percent as printed. Its own digits decide: 40 is held to the percent, 35.7 to the tenth.
    agrees is <NA> where nothing was stated.

    Raises
    ------
    ValueError
        If a stated system is not in the table: its figure would be checked by nobody.
    """
    if absent := [name for name in stated_pct if name not in set(table["system"])]:
        raise ValueError(
            f"stated, but not in the capacity table: {', '.join(absent)}; give stated the names of your schemes, or "
            f"{{}}"
        )
    stated = table["system"].map(stated_pct).astype(float)
    unit = stated.map(lambda value: 10.0 ** -len(f"{value:g}".partition(".")[2]))
    # half a printed unit, and a hair for what binary fractions cannot hold
    agrees = (100 * table["efficiency"] - stated).abs() <= unit / 2 + 1e-9
    return table.assign(stated_pct=stated, agrees=agrees.astype("boolean").mask(stated.isna()))


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


def more_for_less(speeds: pd.DataFrame, margin: float) -> pd.DataFrame:
    """Mark the systems that deliver more IOPS than every system with more usable space.

    A difference counts from a share of `margin` on. Where both sides have intervals, these must not overlap, which is
    stricter than a test at their level.

    Parameters
    ----------
    speeds : of ``per_usable_tib``: system, pattern, iops, usable_tib, n and, of repeats, iops_lo and iops_hi
    margin : share of the IOPS up to which a difference does not matter, such as 0.05

    Returns
    -------
    DataFrame : the rows with IOPS and space, and `more`: <NA> where no system has more space
    """
    known = speeds.dropna(subset=["iops", "usable_tib"])
    known = known.assign(n=known.get("n", 1))
    ends = known.reindex(columns=["iops_lo", "iops_hi"]).set_axis(["low", "high"], axis=1)
    known = known.assign(low=ends["low"].fillna(known["iops"]), high=ends["high"].fillna(known["iops"]))
    more = []
    for row in known.itertuples():
        larger = known[(known["pattern"] == row.pattern) & (known["usable_tib"] > row.usable_tib)]
        above = (row.iops > (1 + margin) * larger["iops"]) & (row.low > larger["high"])
        more.append(bool(above.all()) if len(larger) else pd.NA)
    return known.drop(columns=["low", "high"]).assign(more=pd.array(more, dtype="boolean"))


def per_usable_tib(results: pd.DataFrame, usable_bytes: Mapping[str, float] | pd.Series) -> pd.DataFrame:
    """The results, or their ``peak``s, with usable_tib and iops_per_usable_tib, from system -> usable bytes; NaN where
    a system has none."""
    usable_tib = results["system"].map(usable_bytes).astype(float) / TIB
    iops = results["iops"]
    return results.assign(iops=iops, usable_tib=usable_tib, iops_per_usable_tib=iops / usable_tib)


# ---- Deduplication savings as a ratio and as effective capacity (METHODS section 4)


def effective_capacity(
    schemes: Mapping[str, Sequence[str]], savings_pct: Mapping[str, float] | pd.Series, raw_bytes: float | str
) -> pd.DataFrame:
    """What deduplication makes of the usable capacity.

    With savings s the ratio is 1/(1-s), and effective = efficiency x ratio.

    Parameters
    ----------
    schemes : resiliency -> its formulas; several where it is not known which one was used.
    savings_pct : resiliency -> percent of the stored data that deduplication saved; absent or NaN is not known.
    raw_bytes : bytes of all drives of all servers, or text such as "2.4 TB".

    Returns
    -------
    DataFrame
        One row per formula: resiliency, scheme, efficiency_pct (usable share of raw), savings_pct, dedup_ratio,
        effective_pct (data held per raw byte), usable_tib, effective_tib; NaN where the savings are not known.

    Raises
    ------
    ValueError
        If a formula is not understood, or savings lie outside 0 to below 100.
    """
    rows = pd.DataFrame(
        [(name, text) for name, texts in schemes.items() for text in texts], columns=["resiliency", "scheme"]
    )
    saved = rows["resiliency"].map(dict(savings_pct)).astype(float)
    if (outside := saved.notna() & ~saved.between(0, 100, inclusive="left")).any():
        name, value = rows["resiliency"][outside].iloc[0], saved[outside].iloc[0]
        raise ValueError(f"savings_pct of {name!r} is {value:g}: expected a percentage from 0 to below 100")
    efficiency = pd.Series([parse_scheme(text).efficiency for text in rows["scheme"]], rows.index, dtype=float)
    ratio, raw = 1 / (1 - saved / 100), parse_bytes(raw_bytes) if isinstance(raw_bytes, str) else raw_bytes
    return rows.assign(
        efficiency_pct=100 * efficiency,
        savings_pct=saved,
        dedup_ratio=ratio,
        effective_pct=100 * efficiency * ratio,
        usable_tib=raw * efficiency / TIB,
        effective_tib=raw * efficiency * ratio / TIB,
    )
