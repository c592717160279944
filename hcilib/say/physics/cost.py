"""Sentences on cost: who is faster, who is cheaper per IOPS, and whose price is missing."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from hcilib.say.compare.leaders import first_places
from hcilib.say.words import listed


def cost_sentences(
    costs: pd.DataFrame,
    fast: pd.DataFrame,
    cheap: pd.DataFrame,
    labels: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the declared prices, who is faster, who is cheaper, and which prices are missing.

    Parameters
    ----------
    costs : as `cost` returns it, of all systems compared
    fast : as `best_points` returns it
    cheap : as `best_points` returns it of ``iops_per_price``, with a column ``currency``; each currency
        is ranked by itself
    labels : system -> the name that the sentences use

    Returns
    -------
    list : one sentence where no price is given

    Examples
    --------
    >>> results = hci.published().query("system == 'ceph-pve' and pattern == '1m-read' and vms > 1")
    >>> costs = hci.cost(hci.peak(results), hci.load_systems())
    >>> print(*hci.cost_sentences(costs, hci.best_points(results), costs.head(0)), sep="\\n")
    No price is given.
    """
    called = {name: (labels or {}).get(name, name) for name in costs["system"].unique()}
    systems = costs.drop_duplicates("system").set_index("system")["price"]
    said = _declared(costs, called)
    if len(cheap):
        said += filter(None, [first_places(fast, "has the most IOPS", "have the most IOPS", called)])
        for currency, own in cheap.groupby("currency"):
            said += _cheapest(str(currency), own, called)
    if unpriced := [called[name] for name in systems.index[systems.isna()]]:
        whose = "" if systems.isna().all() else f" for {listed(unpriced)}"
        said.append(f"No price is given{whose}.")
    return said


def _declared(costs: pd.DataFrame, called: Mapping[str, str]) -> list[str]:
    """Return the lowest and the highest price of each currency, as the files declare them."""
    priced = costs.dropna(subset=["price"]).drop_duplicates("system")
    priced = priced.sort_values("price", kind="stable")
    said = []
    for currency, own in priced.groupby("currency"):
        each = zip(own["price"], own["system"], strict=True)
        prices = [f"{price:,.10g} {currency} ({called[name]})" for price, name in each]
        several = f"The declared prices range from {prices[0]} to {prices[-1]}."
        said.append(several if len(prices) > 1 else f"The declared price is {prices[0]}.")
    if len(said) > 1:
        said.append(f"Prices in {listed(sorted(priced['currency'].unique()))} are not compared.")
    return said


def _cheapest(currency: str, own: pd.DataFrame, called: Mapping[str, str]) -> list[str]:
    """Return who costs least per IOPS in one currency."""
    if own["system"].nunique() < 2:
        only = called[own["system"].iloc[0]]
        return [f"Only {only} has a price in {currency}, so its price per IOPS is not compared."]
    first = first_places(own, "costs least per IOPS", "cost least per IOPS", called)
    return [f"In {currency}, {first}"] if first else []
