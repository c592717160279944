"""Speed and capacity per price, rack unit and watt, as system files declare them (METHODS 14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hcilib.analyse.capacity import TIB
from hcilib.analyse.rows import require_columns
from hcilib.model.metrics import SHARES, meant
from hcilib.model.schemes import parse_scheme
from hcilib.model.system import System
from hcilib.model.workload import NAME, UNIT

GB = 10**9
"""Throughput is sold in GB/s."""
DIVISORS = {"price": "price", "yearly_price": "yearly_price", "rack_unit": "rack_units", "watt": "watts"}
"""What a share is called after -> the column that it is divided by."""


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
    Source: price-performance of SPC-1 (total price over IOPS), turned round so that more is better.

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
    systems = dict(systems) | _priced(set(names), systems, prices or {}, currency)
    files = [systems.get(name, systems.get(name.partition(" [")[0])) for name in names]
    _refuse_unused(results, systems, dict(zip(names, files, strict=True)))
    rows = _with_throughput(results).assign(**_declared(files))
    if "usable_tib" not in rows:
        rows["usable_tib"] = [_usable_tib(file) for file in files]
    shares = {
        f"{share}{end}": rows[f"{worth}{end}"] / rows[DIVISORS[of]]
        for share in SHARES
        for worth, of in [share.rsplit("_per_", 1)]
        for end in ("", "_lo", "_hi")
        if f"{worth}{end}" in rows
    }
    return rows.assign(**shares)


def _priced(
    names: set[str], systems: Mapping[str, Any], prices: Mapping[str, float], currency: str | None
) -> dict[str, System]:
    """Return each system that has a price of its own, with that price."""
    names = names | {name.partition(" [")[0] for name in names}
    priced = {}
    for name, price in prices.items():
        if name not in names:
            near = meant(name, sorted(names)) or f"the rows are of {', '.join(sorted(names))}"
            raise ValueError(f"prices: no row is of the system {name!r}: {near}")
        if not isinstance(price, int | float) or not price > 0:
            raise ValueError(f"prices[{name!r}] is {price!r}: expected a number above 0")
        system = systems.get(name) or System(name=name, label=name)
        unit = currency or system.currency
        if not unit:
            raise ValueError(f"prices[{name!r}] has no currency. Give one, such as currency='EUR'")
        priced[name] = system.model_copy(update={"price": float(price), "currency": unit})
    return priced


def _refuse_unused(results: pd.DataFrame, systems: Mapping[str, Any], files: Mapping[str, Any]) -> None:
    """Raise ValueError for a price that no row would take, by the name under which it came."""
    declare = "Give prices={'ceph-pve': 42000}, currency='EUR', or declare both in the system's file"
    for name, system in systems.items():
        if not hasattr(system, "price"):
            raise ValueError(f"systems[{name!r}] is {system!r}, which is no system. {declare}")
    for name in ("price", "yearly_price"):
        if name in results and results[name].notna().any():
            raise ValueError(f"results have a column {name}, which is not used. {declare}")
    used = {id(file) for file in files.values()}
    unknown = [name for name, file in files.items() if file is None]
    for name in (name for name, system in systems.items() if system.price and id(system) not in used):
        near = meant(name, unknown)
        if near or (unknown and len(unknown) == len(files)):  # of other systems a folder of files may hold prices
            rows = near or f"the rows are of {', '.join(unknown)}"
            raise ValueError(f"the price of {name!r} is not used, because no row is of that system: {rows}")


def _with_throughput(results: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with gb_per_s and its interval, by the block size that the pattern names."""
    if not {"iops", "pattern"} <= set(results):
        return results
    named = {name: NAME.match(str(name)) for name in results["pattern"].unique()}
    sizes = {name: float(found["size"]) * UNIT[found["unit"]] for name, found in named.items() if found}
    gb = results["pattern"].map(sizes).astype(float) / GB
    ends = [end for end in ("", "_lo", "_hi") if f"iops{end}" in results]
    return results.assign(**{f"gb_per_s{end}": results[f"iops{end}"] * gb for end in ends})


def _declared(files: Sequence[Any]) -> dict[str, Any]:
    """Return what each row's system file declares, as columns."""
    names = ("price", "currency", "years", "yearly_price", "rack_units", "watts")
    declared = {name: np.array([getattr(file, name, None) for file in files], dtype=object) for name in names}
    numbers = {name: values.astype(float) for name, values in declared.items() if name != "currency"}
    return declared | numbers | {"yearly_price": numbers["price"] / numbers["years"]}


def _usable_tib(file: Any) -> float:
    """Return what the scheme of a file leaves of its own drives; NaN where it does not say both."""
    known = file and file.scheme and file.raw_bytes == file.raw_bytes
    return parse_scheme(file.scheme).usable_bytes(file.raw_bytes) / TIB if known else np.nan
