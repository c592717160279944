"""Texts about claims: the claim in words, and why it does not follow from its tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import pandas as pd

from hcilib.analyse.claims.claim_values import METRICS, words
from hcilib.analyse.claims.claims import OPTIONAL, REQUIRED
from hcilib.model.metrics import metric
from hcilib.say.words import Labels, sentence

TEXTS = ("metric", "pattern", "reduce", "iodepth", "comparator", "word")
CURVES = {
    "spread": "highest above lowest",
    "spread_lower": "smaller spread over iodepth",
    "least_step": "smallest step to the next iodepth",
    "drop": "largest drop to the next iodepth",
    "fall": "last below highest",
    "overtakes_at": "iodepth from which it leads",
}
VERDICTS = {
    "holds": "holds",
    "rounding": "off by rounding",
    "off": "off",
    "opposite": "opposite",
    "not checkable": "not checkable",
}
"""Verdict on a claim -> what a table calls it."""
KINDS = {"pct_higher": "higher", "pct_lower": "lower", "pct_of": "of it", "times": "it", "times_higher": "more"}


def claim_words(claims: pd.DataFrame, labels: Labels = None) -> list[str]:
    """Return each claim in words: subject, metric, pattern, load, comparator.

    Parameters
    ----------
    claims : DataFrame
        One claim a row, as ``published_claims`` returns it.
    labels : mapping, optional
        System -> the name that the words use.

    Returns
    -------
    list of str
        In the order of the claims.

    Examples
    --------
    >>> hci.claim_words(hci.published_claims().query("id == 155"), hci.short_labels())
    ['StarWind RDMA: Mean latency, 1m-read, iodepth 16, 20 VMs, against S2D mirror tier']
    """
    return [_words(claim, labels or {}) for claim in _records(claims)]


def claim_verdicts(judged: pd.DataFrame) -> list[str]:
    """Return each verdict in words, with the size of what is off.

    Parameters
    ----------
    judged : DataFrame
        As ``check_claims`` returns it.

    Returns
    -------
    list of str
        In the order of `judged`. A size is in the unit of the claim: claimed minus recomputed, or beyond the bounds of
        the word.

    Examples
    --------
    >>> claims = hci.published_claims().query("id in [101, 155, 632]")
    >>> hci.claim_verdicts(hci.check_claims(hci.published(), claims))
    ['opposite', 'holds', 'off by 100 %']
    """
    return [_verdict(row) for row in judged.to_dict("records")]


def _verdict(row: Mapping) -> str:
    size = abs(row["off_by"])
    if row["verdict"] != "off" or size < 1e-9:
        return VERDICTS[row["verdict"]]
    return f"off by {size:,.3g} {UNITS.get(row['unit'], row['unit'])}".strip()


def claim_findings(judged: pd.DataFrame, claims: pd.DataFrame, labels: Labels = None) -> list[str]:
    """Return why each claim does not hold, as far as an editor can act on it.

    Parameters
    ----------
    judged : DataFrame
        As ``check_claims`` returns it, of any of the claims.
    claims : DataFrame
        The claims that were judged.
    labels : mapping, optional
        System -> the name that the sentences use.

    Returns
    -------
    list of str
        In the order of `judged`, empty where a claim holds.

    Examples
    --------
    >>> claims = hci.published_claims().query("id == 155")
    >>> hci.claim_findings(hci.check_claims(hci.published(), claims), claims)[0]
    'The article claims 278 % higher, but its tables give 177.7 %.'
    """
    by_id = {claim["id"]: claim for claim in _records(claims)}
    found = (_finding(row, by_id[row["id"]], labels or {}) for row in judged.to_dict("records"))
    return [" ".join(filter(None, map(sentence, texts))) for texts in found]


def _records(claims: pd.DataFrame) -> list[dict]:
    """Return the claims with every column, empty texts as ''."""
    table = claims.reindex(columns=[*REQUIRED, *OPTIONAL])
    return table.assign(**{name: table[name].astype(object).fillna("") for name in TEXTS}).to_dict("records")


UNITS = {"x": "times", "count": ""}


def _words(claim: Mapping, labels: Mapping[str, str]) -> str:
    name, depths, vms = claim["metric"], words(claim["iodepth"]), claim["vms"]
    parts = [
        f"{labels.get(claim['subject'], claim['subject'])}: {metric(name).label if name in METRICS else name}",
        ", ".join(words(claim["pattern"])),
        f"iodepth {', '.join(depths)}" if depths else "",
        {"at": "", "max": "maximum", "min": "minimum"}.get(claim["reduce"], claim["reduce"]),
        CURVES.get(claim["statistic"], ""),
        "" if pd.isna(vms) else f"{vms:.0f} VM{'s' * (vms != 1)}",
    ]
    others = [labels.get(system, system) for system in words(claim["comparator"])]
    return ", ".join(filter(None, parts)) + (f", against {', '.join(others)}" if others else "")


def _finding(row: Mapping, claim: Mapping, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield the sentences about one claim that does not hold."""
    system = labels.get(row["reason_system"], row["reason_system"])
    if row["verdict"] == "not checkable":
        yield f"{row['reason']}{f' ({system})' * bool(system)}"
    elif claim["word"] and row["verdict"] != "holds":
        yield from _worded(row, claim)
    elif row["verdict"] != "holds":
        digits = claim["unit"] in ("%", "x", "GB/s", "count")
        kind = f" {KINDS[claim['statistic']]}" if claim["statistic"] in KINDS else ""
        found = _shown(row["recomputed"], claim, digits)
        yield f"The article claims {_number(claim)}{kind}, but its tables give {found}"
        yield row["reason"]


def _worded(row: Mapping, claim: Mapping) -> Iterator[str]:
    """Yield the sentences about a word whose bounds the number misses."""
    bounds = {"low": "above", "high": "below"}
    asked = " and ".join(f"{side} {claim[name]:g}" for name, side in bounds.items() if abs(claim[name]) < math.inf)
    unit = UNITS.get(claim["unit"], claim["unit"])
    yield f"The word is read as {asked} {unit}, but the tables give {row['recomputed']:,.1f} {unit}"
    if row["compared"] > 1:
        yield f"It holds in {row['held']:.0f} of {row['compared']:.0f} comparisons"


def _number(claim: Mapping) -> str:
    return _shown(claim["claimed"], claim)


def _shown(value: float, claim: Mapping, one_more: bool = False) -> str:
    """Return a number with its unit, to the claim's last printed digit or one more."""
    decimals = max(0, -math.floor(math.log10(claim["resolution"]) + 1e-9))
    unit = UNITS.get(claim["unit"], claim["unit"])
    return f"{value:,.{decimals + one_more}f} {unit}".strip()
