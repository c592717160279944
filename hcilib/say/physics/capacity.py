"""Sentences about usable capacity: the share of raw that is left."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pandas as pd

from hcilib.analyse.physics.capacity import reserve_share
from hcilib.say.words import counted, listed, number, scheme_words

USABLE = "of raw capacity usable"
NAMED = 3
"""A sentence names up to so many systems, and counts more of them."""


def capacity_sentence(
    capacity: pd.DataFrame, measured: Collection[str], labels: Mapping[str, str] | None = None
) -> str:
    """Return the usable shares of systems.

    Parameters
    ----------
    capacity : DataFrame
        A row a system or scheme, as ``system_capacity`` returns it.
    measured : collection of str
        The systems of `capacity` that were measured. Where it is empty, the schemes are compared.
    labels : mapping, optional
        System -> the name that the sentence uses.

    Returns
    -------
    str
        One sentence, the title of the page.

    Examples
    --------
    >>> table = hci.capacity_table({"A": "Mirror(2)", "B": "ErasureCode(4, 2)"}, 32e12)
    >>> hci.capacity_sentence(table, ["A", "B"])
    'B leaves 67 % of raw capacity usable, A 50 %.'
    """
    systems = capacity[capacity["system"].isin(measured)]
    ranked = _ranked(systems if len(systems) else capacity, labels)
    first = ranked["share"] == ranked["share"].iloc[0]
    kind = "systems" if len(systems) else "schemes"
    leaders, every = ranked.loc[first, "name"].tolist(), "All " * bool(first.all())
    several = f"{every}{len(leaders)} {kind} leave"
    text = several if len(leaders) > 2 else _leave(leaders)
    text += f" {ranked['share'].iloc[0]} {USABLE}{_reserve(ranked[first])}"
    if len(rest := ranked[~first]):
        others = rest["name"].iloc[0] if len(rest) == 1 else f"the other {len(rest)} {kind}"
        ends = dict.fromkeys(rest["share"].iloc[[-1, 0]])
        text += f", {others} {' to '.join(ends).replace(' % to', ' to')}{_reserve(rest)}"
    return f"{text}."


def capacity_facts(
    capacity: pd.DataFrame, measured: Collection[str], labels: Mapping[str, str] | None = None
) -> list[str]:
    """Return each usable share with its scheme and reserve, and how many printed shares follow.

    Parameters
    ----------
    capacity : DataFrame
        As of ``system_capacity``, with ``agrees`` where a printed share is held against its own.
    measured : collection of str
        Systems that are named one by one. Other schemes have a range.
    labels : mapping, optional
        System -> the name that the sentences use.

    Returns
    -------
    list of str
        One sentence each.

    Examples
    --------
    >>> table = hci.capacity_table({"A": "Mirror(2)"}, 32e12)
    >>> hci.capacity_facts(table, ["A"])
    ['A leaves 50 % of raw capacity usable (a two-way mirror).']
    """
    is_measured = capacity["system"].isin(measured)
    ranked, facts = _ranked(capacity[is_measured], labels), []
    for (_, scheme), alike in ranked.groupby(["efficiency", "scheme"], sort=False):
        names, share = alike["name"].tolist(), alike["share"].iloc[0]
        facts.append(f"{_leave(names)} {share} {USABLE} ({scheme_words(scheme)}).")
        if kept := reserve_share(scheme):
            whole = _percent(alike["efficiency"].iloc[0] / (1 - kept))
            each = " each" * (len(names) > 1)
            facts.append(
                f"Without a reserve for repairs, {_names(names)} would leave {whole} of raw capacity usable{each}."
            )
    return facts + list(_schemes(_ranked(capacity[~is_measured], labels))) + list(_stated(capacity))


def _ranked(capacity: pd.DataFrame, labels: Mapping[str, str] | None) -> pd.DataFrame:
    """Return the rows by falling share, with name, share (as printed) and kept (as a reserve)."""
    ranked = capacity.sort_values("efficiency", ascending=False, kind="stable")
    names = ranked["system"].map(lambda system: (labels or {}).get(system, system))
    kept = ranked["scheme"].map(reserve_share).astype(float)
    return ranked.assign(name=names, share=ranked["efficiency"].map(_percent), kept=kept)


def _percent(share: float) -> str:
    return f"{number(100 * share)} %"


def _names(names: Sequence[str], kind: str = "systems") -> str:
    """Return the names as a sentence lists them, or how many there are."""
    return listed(names) if len(names) <= NAMED else f"{len(names)} {kind}"


def _leave(names: Sequence[str]) -> str:
    return f"{_names(names)} {'leaves' if len(names) == 1 else 'each leave'}"


def _reserve(ranked: pd.DataFrame) -> str:
    """Return whether these shares are what is left after a reserve for repairs."""
    kept = ranked["kept"] > 0
    return " after a reserve" if kept.all() else " (some after a reserve)" if kept.any() else ""


def _schemes(ranked: pd.DataFrame) -> Iterator[str]:
    """Yield the highest and the lowest share of the schemes that were not measured."""
    if ranked.empty:
        return
    most, least = ranked.iloc[0], ranked.iloc[-1]
    if most["share"] == least["share"]:
        names, schemes = _names(ranked["name"].tolist(), "other schemes"), ranked["scheme"].unique()
        scheme = f" ({scheme_words(schemes[0])})" * (len(schemes) == 1)
        yield f"{names} would leave {most['share']} {USABLE}{_reserve(ranked)}{scheme}."
        return
    ends = f"{least['share']} ({least['name']}) to {most['share']} ({most['name']})"
    reserve = _reserve(ranked).strip(" ()")
    yield f"Other layouts, computed and not measured, leave {ends} usable{', ' * bool(reserve)}{reserve}."


def _stated(capacity: pd.DataFrame) -> Iterator[str]:
    """Yield how many printed shares follow from their scheme, and whether these keep a reserve."""
    if "agrees" not in capacity or not len(stated := capacity["agrees"].dropna()):
        return
    reserves = capacity["scheme"].map(reserve_share) > 0
    kept = int(reserves.reindex(stated.index).sum())
    yield f"{stated.sum()} of {counted(len(stated), 'published percentage')} of usable capacity match their layout."
    if reserves.any():
        yield (
            f"{kept} of these percentages include{'s' * (kept == 1)} a reserve."
            if kept
            else "The published percentages do not subtract the reserve for repairs."
        )
