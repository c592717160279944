"""How much of the raw capacity is usable, and what a usable TiB, a price and a watt deliver (docs/METHODS 4 and 14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from hcilib.analyse.rows import refuse_currencies, require_columns
from hcilib.model.metrics import SHARES, meant, parse_bytes
from hcilib.model.patterns import NAME, UNIT
from hcilib.model.schemes import Scheme, parse_scheme
from hcilib.model.system import System

TB, TIB, GB = 10**12, 2**40, 10**9
"""Drives are sold in TB, operating systems count in TiB: 32 TB are 29.1 TiB. Throughput is sold in GB/s."""
DIVISORS = {"price": "price", "yearly_price": "yearly_price", "rack_unit": "rack_units", "watt": "watts"}
"""What a share is called after -> the column that it is divided by."""


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
    DataFrame, a row a system: system, scheme (its formula), raw_bytes, raw_tb, reserve_bytes, reserve_tib, efficiency
    (usable share of raw, after reserve and deduplication), dedup_ratio (client bytes per stored byte), usable_tb,
    usable_tib, fill_pct, filled_tib (usable TiB at that fill level), write_cost, stripe_cost, survives_drives,
    survives_servers, survives (in words). Where systems have different drives also drives, such as 2 x 5 x 3.2 TB

    Raises
    ------
    ValueError : a system without a scheme, no raw capacity, a fill level that is no percentage

    Notes
    -----
    The usable share is 1/copies of a mirror and (n-1)/n of RAID 5; nested levels multiply, tiers add up by their
    shares of the data (`parse_scheme`). A reserve for repairs is not usable

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
    one = parse_bytes(raw_bytes) if isinstance(raw_bytes, str) else raw_bytes
    most = float(one or max(known.values(), default=0))
    if not most and formulas:
        raise ValueError("raw_bytes is None: give the bytes of all drives of all servers, e.g. 32e12 for 10 of 3.2 TB")
    own = {name: most if one else known.get(name, most) for name in formulas}
    parsed = {name: parse_scheme(text) if isinstance(text, str) else text for name, text in formulas.items()}
    table = pd.DataFrame([_capacity(parsed[name], raw) for name, raw in own.items()], columns=CAPACITY)
    texts = [text if isinstance(text, str) else repr(text) for text in formulas.values()]
    table = table.assign(scheme=texts, fill_pct=float(fill_pct), filled_tib=table["usable_tib"] * fill_pct / 100)
    table.insert(0, "system", [*own])
    if len(set(own.values())) > 1:
        of = {name: systems[name] for name in known}
        drives = {name: f"{s.nodes} x {s.drives_per_node} x {s.drive.bytes / TB:.3g} TB" for name, s in of.items()}
        table["drives"] = table["system"].map(drives).fillna(f"{most / TB:.4g} TB in all")
    return table


CAPACITY = [
    "scheme", "raw_bytes", "raw_tb", "reserve_bytes", "reserve_tib", "efficiency", "dedup_ratio", "usable_tb",
    "usable_tib", "write_cost", "stripe_cost", "survives_drives", "survives_servers", "survives",
]  # fmt: skip


def _capacity(scheme: Scheme, raw_bytes: float) -> list:
    """Return what a scheme makes of its raw capacity: `CAPACITY`."""
    usable, reserve, survives = scheme.usable_bytes(raw_bytes), raw_bytes * scheme.reserve_share, scheme.survives
    return [
        "", raw_bytes, raw_bytes / TB, reserve, reserve / TIB, scheme.efficiency, scheme.dedup_ratio, usable / TB,
        usable / TIB, scheme.write_cost, scheme.stripe_cost, survives.drives, survives.servers, str(survives),
    ]  # fmt: skip


def pareto(table: pd.DataFrame, x: str, y: str, by: str | None = None) -> pd.DataFrame:
    """Return the table with `front`: no other row is at least as good in x and y and better in one (more is better).

    With `by` (``pattern``) rows compete only with those of the same value. A row where x or y is missing has front <NA>
    and pushes none off the front.

    Parameters
    ----------
    table : a row a system
    x, y : columns of which more is better
    by : column within which rows compete

    Returns
    -------
    DataFrame : the table with front (True, False, or <NA> where x or y is missing)

    Raises
    ------
    ValueError : prices in several currencies

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"system": ["a", "b", "c"], "iops": [3, 2, 1], "efficiency": [0.4, 0.5, 0.3]})
    >>> hci.pareto(table, "iops", "efficiency")["front"].tolist()
    [True, True, False]
    """
    refuse_currencies(table, [x, y])
    a, b = table[x].to_numpy(float), table[y].to_numpy(float)
    group = table[by].astype(str).to_numpy(object) if by else np.zeros(len(table))
    as_good = (a >= a[:, None]) & (b >= b[:, None]) & (group == group[:, None])
    better = (a > a[:, None]) | (b > b[:, None])
    front = pd.Series(~(as_good & better).any(axis=1), table.index, dtype="boolean")
    return table.assign(front=front.mask(np.isnan(a) | np.isnan(b)))


# ---- What does it cost?


def cost(
    results: pd.DataFrame,
    systems: Mapping[str, Any],
    prices: Mapping[str, float] | None = None,
    currency: str | None = None,
) -> pd.DataFrame:
    """Return what each row gives per price, per yearly price, per rack unit and per watt.

    Parameters
    ----------
    results : one row per system and load, or per system: as `peak` (the best load of each curve),
        `summarize`, `read_results` or `system_capacity` return it. Of its columns iops (with
        iops_lo and iops_hi), usable_tib and filled_tib are divided. Without usable_tib it is that
        of the system's own file
    systems : name -> system, as `load_systems` or `systems_of` gives: its price, currency, years,
        rack_units and watts. They are declared, not measured
    prices : name -> price of the whole system, instead of its file's
    currency : of `prices`; None: that of the file

    Returns
    -------
    DataFrame : the rows, with gb_per_s (10^9 bytes a second: IOPS x block size), usable_tib, price,
        currency, years, yearly_price (price / years), rack_units, watts, and of iops, gb_per_s,
        usable_tib and filled_tib (TiB at the fill level of `system_capacity`) a column each that
        ends on _per_price, _per_yearly_price, _per_rack_unit and _per_watt. A price has no
        interval: _lo and _hi are those of the measurement, divided. NaN where nothing is declared

    Raises
    ------
    ValueError : results without a column system, a price that is no number above 0 or has no currency, or one that
        would not be used: a bare number instead of a system, a column of the results, or a system that no row is of

    Notes
    -----
    Source: price-performance of SPC-1 (total price over IOPS), turned round so that more is better. Declared numbers
    are not tested. Currencies are never converted nor compared. Divided by one number, a system's runs keep the
    variance of their logs, so who is cheaper is tested as who is faster.

    Examples
    --------
    >>> system = hci.load_system("params/systems/ceph-pve.yaml")
    >>> system = system.model_copy(update={"rack_units": 4})
    >>> rows = "system == 'ceph-pve' and pattern == '1m-read' and vms > 1"
    >>> costs = hci.cost(hci.peak(hci.published().query(rows)), {"ceph-pve": system})
    >>> costs[["iops", "gb_per_s", "iops_per_rack_unit", "iops_per_price"]].round(1)
          iops  gb_per_s  iops_per_rack_unit  iops_per_price
    0  29100.0      30.5              7275.0             NaN
    """
    require_columns(results, ["system"])
    names = results["system"].astype(str)
    bare = names.str.replace(r" \[.*", "", regex=True)
    systems = dict(systems) | _priced({*names, *bare}, systems, prices or {}, currency)
    _refuse_unused(results, systems, {*names, *bare})
    files = [systems.get(name, systems.get(base)) for name, base in zip(names, bare, strict=True)]
    declared = [(*(getattr(file, name, None) for name in DECLARED), _usable_tib(file)) for file in files]
    known = pd.DataFrame(declared, results.index, [*DECLARED, "usable_tib"])
    known = known.astype(dict.fromkeys({*known} - {"currency"}, float))
    known["yearly_price"] = known["price"] / known["years"]
    rows = _with_throughput(results)
    rows = rows.assign(**known.drop(columns=rows.columns.intersection(["usable_tib"])))
    shares = {
        f"{share}{end}": rows[f"{worth}{end}"] / rows[DIVISORS[of]]
        for share in SHARES
        for worth, of in [share.rsplit("_per_", 1)]
        for end in ("", "_lo", "_hi")
        if f"{worth}{end}" in rows
    }
    return rows.assign(**shares)


DECLARED = ["price", "currency", "years", "rack_units", "watts"]


def _priced(
    names: set[str], systems: Mapping[str, Any], prices: Mapping[str, float], currency: str | None
) -> dict[str, System]:
    """Return each system that has a price of its own, with that price."""
    priced = {}
    for name, price in prices.items():
        system = systems.get(name) or System(name=name, label=name)
        unit = currency or system.currency
        is_price = isinstance(price, int | float) and price > 0
        if name not in names or not is_price or not unit:
            raise ValueError(
                f"prices[{name!r}] is {price!r} in {unit}: expected a number above 0 in a currency, such as EUR, of a "
                f"system of the rows: {meant(name, sorted(names)) or ', '.join(sorted(names))}"
            )
        priced[name] = system.model_copy(update={"price": float(price), "currency": unit})
    return priced


def _refuse_unused(results: pd.DataFrame, systems: Mapping[str, Any], names: set[str]) -> None:
    """Raise ValueError for a price that no row would take, by the name under which it came."""
    declare = "Give prices={'ceph-pve': 42000}, currency='EUR', or declare both in the system's file"
    if wrong := [name for name, system in systems.items() if not hasattr(system, "price")]:
        raise ValueError(f"systems[{wrong[0]!r}] is {systems[wrong[0]]!r}, which is no system. {declare}")
    if wrong := [name for name in ("price", "yearly_price") if name in results and results[name].notna().any()]:
        raise ValueError(f"results have a column {wrong[0]}, which is not used. {declare}")
    unknown = sorted(names - {*systems})
    for name, system in systems.items():  # a folder of files may hold prices of systems that were not measured
        near = meant(name, unknown) or (names == {*unknown} and ", ".join(unknown))
        if system.price and name not in names and near:
            raise ValueError(f"the price of {name!r} is not used, because no row is of that system: {near}")


def _with_throughput(results: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with gb_per_s and its interval, by the block size that the pattern names."""
    if not {"iops", "pattern"} <= set(results):
        return results
    named = results["pattern"].astype(str).str.extract(f"^{NAME.pattern}")
    gb = named["size"].astype(float) * named["unit"].map(UNIT) / GB
    ends = [end for end in ("", "_lo", "_hi") if f"iops{end}" in results]
    return results.assign(**{f"gb_per_s{end}": results[f"iops{end}"] * gb for end in ends})


def _usable_tib(file: Any) -> float:
    """Return what the scheme of a file leaves of its own drives; NaN where it does not say both."""
    known = file and file.scheme and file.raw_bytes == file.raw_bytes
    return parse_scheme(file.scheme).usable_bytes(file.raw_bytes) / TIB if known else np.nan
