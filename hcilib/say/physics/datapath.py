"""Sentences of one I/O's way: network traffic and work of the drives against the scheme."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from hcilib.say.words import counted, scheme_words

TRAFFIC = {
    "inferred": "No test: the scheme was inferred from this counter.",
    "no-observed": "Not checkable: no traffic was counted.",
    "no-expected": "Not checkable: the scheme has no value for this placement.",
}
"""Code of ``check_traffic`` -> its sentence."""
DRIVES = {
    "not-sampled": "Not checkable: no drives were sampled in these runs.",
    "any-count": "Not checkable: splitting and merging decide how many I/Os this takes.",
    "merged": "Merging: fewer and larger {kind}s of the same bytes.",
    "cached": "Cache: {missing:.2f} of {expected:.2f} were not read from the drives.",
    "read-ahead": "Read-ahead, or larger reads than the client's.",
    "partial-blocks": "Metadata, or a block read before a part of it is written.",
    "other-readers": "Metadata, or other readers.",
    "fewer-copies": "Fewer copies than the scheme has: degraded, or drives that were not counted.",
    "not-written": "Not written yet (a write-back cache), or deduplicated or compressed.",
    "journal": "Journal: every byte is written twice.",
    "metadata": "Metadata or journal: {more:.2f} more for each of the client, in writes of {kib:.1f} KiB.",
    "split": "Splitting: more and smaller writes of the same bytes, or small metadata.",
    "more-bytes": "Metadata or journal: more bytes than the scheme writes.",
    "other-writers": "Metadata, or other writers.",
}
"""Code of ``amplification`` -> the sentence of what would fit the deviation."""


def traffic_notes(checked: pd.DataFrame) -> pd.Series:
    """Return why a counter of ``check_traffic`` was not judged; an empty text where it was.

    Examples
    --------
    >>> expected = hci.expected_traffic(hci.Mirror(2))
    >>> observed = expected.assign(observed=[0.0, 1.0, 1.0, None])
    >>> hci.traffic_notes(hci.check_traffic(observed, expected)).iloc[-1]
    'Not checkable: no traffic was counted.'
    """
    return checked["code"].map(TRAFFIC).fillna("")


def amplification_notes(table: pd.DataFrame) -> pd.Series:
    """Return what would fit each deviation of ``amplification``; an empty text where there is none.

    Examples
    --------
    >>> mirror = hci.samples()["lab-mirror"]  # measured before drives were sampled
    >>> results, drives = hci.read_results(mirror), hci.read_drives(mirror)
    >>> table = hci.amplification(results, drives, hci.Mirror(2), ["pattern", "iodepth"])
    >>> hci.amplification_notes(table).unique().tolist()
    ['Not checkable: no drives were sampled in these runs.']
    """
    return pd.Series([_deviation(row) for row in table.to_dict("records")], table.index, dtype=str)


def _deviation(row: Mapping) -> str:
    off = row["seen"] - row["expected"]
    numbers = {"missing": max(0.0, -off), "more": off, "kib": row["extra_bytes"] / 1024}
    kind = str(row["measure"]).removesuffix("s").removesuffix("_byte")
    return DRIVES.get(row["code"], "").format(kind=kind, expected=row["expected"], **numbers)


def traffic_answer(
    checked: pd.DataFrame,
    cost: pd.DataFrame,
    scheme: str,
    tolerance: float,
    on_drives: pd.DataFrame | None = None,
) -> str:
    """Return how many counters fit a scheme, what it sends by placement, and the drives' counts.

    Parameters
    ----------
    checked : ``check_traffic``, of counters or without any
    cost : ``placement_cost`` of the same scheme
    scheme : its formula
    tolerance : the one of ``check_traffic``, a share of the expected traffic
    on_drives : ``amplification``, where drives were sampled

    Examples
    --------
    >>> expected = hci.expected_traffic(hci.Mirror(2))
    >>> checked = hci.check_traffic(expected.assign(observed=expected["expected"]), expected)
    >>> cost = hci.placement_cost(expected)
    >>> print(hci.traffic_answer(checked, cost, "Mirror(2)", 0.1).replace(". ", ".\\n"))
    Network traffic fits the scheme in 4 of 4 counters (within 10 %).
    The scheme is a two-way mirror.
    For each byte written it sends 1 network byte from the owner node and 2 from others.
    For each byte read it sends 0 and 1.
    """
    layout, judged = scheme_words(scheme), checked["ok"].dropna()
    if judged.empty:
        sentences = [_sends(cost, layout), "No network counter tests this."]
    else:
        fits = f"{judged.sum()} of {counted(len(judged), 'counter')} (within {100 * tolerance:g} %)"
        sentences = [f"Network traffic fits the scheme in {fits}."]
        if inferred := int(checked["code"].eq("inferred").sum()):
            more, it = counted(inferred, "more counter"), "it" if inferred == 1 else "them"
            sentences.append(f"{more} cannot test the scheme inferred from {it}.")
        sentences += [f"The scheme is {layout}.", _sends(cost, "it")]
    counts = judged[:0] if on_drives is None else on_drives["ok"].dropna()
    if len(counts):
        sentences.append(f"On the drives, {counts.sum()} of {counted(len(counts), 'counter')} fit.")
    return " ".join(sentences)


def _sends(cost: pd.DataFrame, scheme: str) -> str:
    """Return the network bytes of a written and a read byte, on the owner and on another node."""
    sends = cost.set_index("ddir")
    own, other = sends.loc["write", ["owner", "non_owner"]]
    read = "{:g} and {:g}".format(*sends.loc["read", ["owner", "non_owner"]])
    sent = f"{own:g} network byte{'s' * (own != 1)} from the owner node and {other:g} from others"
    return f"For each byte written {scheme} sends {sent}. For each byte read it sends {read}."
