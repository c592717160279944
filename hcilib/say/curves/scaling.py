"""Sentences of a curve over the VM count: its peak, its knee, and the bottleneck there."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from hcilib.analyse.curves.scaling import MEASURED, PRINTED
from hcilib.analyse.physics.traffic import RESOURCES
from hcilib.say.words import CURVES, INTERVAL, listed, number, pattern_words, sentence

ARTICLES = {"drives": "the drives", "network": "the network", "node CPU": "node CPU"}
FULL_PCT = 97.0
"""Per cent of its computed limit from which on a resource is at it."""
ABOVE_PCT, FAR_ABOVE_PCT = 100.5, 110.0
"""Per cent of the drives' limit that need a reason, and up to which rates that are added up give one."""
APART = "VMs start slightly apart, so the sum of their IOPS can exceed the limit."
TOO_LOW = "A share this high means that the drives are faster than the speed given for them, or that a cache answered."


def saturation_sentences(saturated: pd.DataFrame, labels: Mapping[str, str] | None = None) -> pd.Series:
    """Return the peak and the shape of the curve of every row of ``saturation`` in IOPS.

    Parameters
    ----------
    saturated : ``saturation`` by system, pattern and, if there is one, `curve`
    labels : system -> what it is called

    Returns
    -------
    Series of texts, on the table's index

    Examples
    --------
    >>> import pandas as pd
    >>> curve = pd.DataFrame({"vms": range(1, 21), "iops": [120] * 9 + [46] * 11}).cumsum()
    >>> curve = curve.assign(vms=range(1, 21), system="A", pattern="4k-randread")
    >>> print(hci.saturation_sentences(hci.saturation(curve)).iloc[0].replace(". ", ".\\n"))
    A reaches 1,586 IOPS with 20 VMs in 4k random read (single runs).
    Each VM adds 120 IOPS up to 9 VMs, and 46 after that.
    """
    rows = saturated.to_dict("records")
    return pd.Series([_saturation(row, labels or {}) for row in rows], saturated.index, dtype=str)


def _saturation(row: Mapping, labels: Mapping[str, str]) -> str:
    system, pattern = labels.get(row["system"], row["system"]), pattern_words(row["pattern"])
    curve = row.get("curve", MEASURED)
    if row["n"] == 0:
        return f"{system} has no value at any VM count in {pattern}{_brackets(curve)}."
    vms = "1 VM" if row["peak_vms"] == 1 else f"{row['peak_vms']:g} VMs"
    runs = "single runs" if row["n"] == 1 else f"mean of at least {row['n']} runs"
    basis = _brackets(runs if curve == MEASURED else curve)
    return f"{system} reaches {row['peak']:,.0f} IOPS with {vms} in {pattern}{basis}. {_shape(row)}"


def _brackets(words: str) -> str:
    return "" if words == MEASURED else f" ({CURVES.get(words, words)})"


def _shape(row: Mapping) -> str:
    """Return how the curve bends, or why that is not known."""
    match row["model"]:
        case "two-segment":
            known = pd.notna(row["knee_lo"])
            sure = f" ({INTERVAL} {row['knee_lo']:g} to {row['knee_hi']:g})" if known else ""
            after = f"{row['slope_after']:,.0f}".replace("-", "minus ")
            return (
                f"Each VM adds {row['slope_before']:,.0f} IOPS up to {row['knee']:g} VMs{sure}, and {after} after that."
            )
        case "line":
            return f"Each VM adds {row['slope_before']:,.0f} IOPS, without saturation."
        case "smooth":
            return "Each further VM adds fewer IOPS, without a clear point of saturation."
    was = "was" if row["points"] == 1 else "were"
    return f"Locating the point of saturation takes 5 VM counts, but only {row['points']} {was} measured."


def binding_notes(bound: pd.DataFrame) -> pd.Series:
    """Return the bottleneck of every row of ``bottleneck``, the use of the others, and unknown uses.

    Parameters
    ----------
    bound : ``bottleneck``

    Returns
    -------
    Series of texts, on the table's index

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"iops": 900, "ceiling_iops": 1000, "bs_bytes": 4096, "node_cpu_pct": 40}
    >>> print(hci.binding_notes(hci.bottleneck(pd.DataFrame([row]))).item().replace(". ", ".\\n"))
    The drives are the bottleneck, at 90 % of their computed limit.
    Node CPU is at 40 %.
    The load on the network was not reported.
    """
    rows = bound.to_dict("records")
    return pd.Series([_bottleneck(row) for row in rows], bound.index, dtype=str)


def _bottleneck(row: Mapping) -> str:
    stated = row["stated_cpu"] if isinstance(row["stated_cpu"], str) else ""
    limits = {name: row[column] for name, column in RESOURCES.items()}
    known = {name: 100 * row["iops"] / limit for name, limit in limits.items() if limit > 0}
    used = {name: pct for name, pct in known.items() if pct == pct}
    main = row["binds"] if pd.notna(row["bottleneck"]) and row["bottleneck"] else None
    in_words = bool(main and pd.isna(row["pct_of_binding"]))
    others = sorted(used.keys() - {main}, key=used.__getitem__, reverse=True)
    if main and in_words:
        first = sentence(f"{ARTICLES[main]} is the bottleneck, as the source states its load as {stated}")
    elif main:
        whose = "their" if main == "drives" else "its"
        share = f"at {number(used[main])} % of {whose} computed limit"
        if used[main] >= FULL_PCT:
            share = f"at {whose} computed limit ({number(used[main])} %)"
        first = sentence(f"{ARTICLES[main]} {_are(main)} the bottleneck, {share}")
    else:
        first = "No bottleneck was found." if others else "The bottleneck is unknown."
    second = "maybe a second bottleneck"
    full = [
        sentence(f"{ARTICLES[name]} {_are(name)} at the limit as well ({number(used[name])} %), {second}")
        for name in others
        if used[name] >= FULL_PCT
    ]
    free = [name for name in others if used[name] < FULL_PCT]
    verbs = [f" {_are(name)}" if place == 0 else "" for place, name in enumerate(free)]
    loads = [f"{ARTICLES[name]}{verb} at {number(used[name])} %" for name, verb in zip(free, verbs, strict=True)]
    rest = [sentence(listed(loads))] if loads else []
    drives = used.get("drives", 0.0)
    near = drives <= FAR_ABOVE_PCT and row.get("vms", 1) > 1
    above = [APART if near else TOO_LOW] if drives > ABOVE_PCT else []
    unknown = [ARTICLES[n] for n, limit in limits.items() if pd.isna(limit) and not (n == "node CPU" and stated)]
    low = [f"The source states a node CPU of {stated}."] if stated and not in_words else []
    last = [f"The load on {listed(unknown)} was not reported."] if 0 < len(unknown) < len(limits) else []
    return " ".join([first, *above, *full, *rest, *low, *last])


def _are(name: str) -> str:
    return "are" if name == "drives" else "is"


def scaling_answer(
    knees: pd.DataFrame, bound: pd.DataFrame, pattern: str, labels: Mapping[str, str] | None = None
) -> str:
    """Return the peak and the knee of one pattern's fullest curve, and the bottleneck at its best.

    Parameters
    ----------
    knees : ``saturation`` by system, pattern and curve
    bound : ``bottleneck`` of ``best_share``, which has a row of each curve
    labels : system -> what it is called
    """
    fullest = knees[knees["pattern"] == pattern].nlargest(1, "points")
    if fullest.empty:
        return f"No fleet was measured in {pattern_words(pattern)}."
    best = bound[(bound["pattern"] == pattern) & bound["curve"].isin(fullest["curve"])]
    total = knees[(knees["pattern"] == pattern) & knees["curve"].eq(PRINTED) & ~knees.index.isin(fullest.index)]
    stated = [f"The source itself states a total of {iops:,.0f} IOPS." for iops in total["peak"].dropna()]
    return " ".join([*saturation_sentences(fullest, labels), *stated, *binding_notes(best)])
