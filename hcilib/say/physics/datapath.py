"""Sentences of one I/O's way: network traffic and work of the drives against the scheme."""

from __future__ import annotations

import pandas as pd

from hcilib.say.words import counted, scheme_words, sentence, share

TRAFFIC = {
    "inferred": "Not a test, because the scheme was inferred from this counter.",
    "no-observed": "Not checked, because no traffic was counted.",
    "no-expected": "Not checked, because the scheme has no value for this placement.",
}
"""Code of ``check_traffic`` -> its sentence."""
DRIVES = {
    "not-sampled": "Not checked, because these runs have no counters of the drives.",
    "any-count": "Not checked, because drives may split or merge these I/Os.",
}
"""Code of ``amplification`` -> why a count was not judged."""


def traffic_notes(checked: pd.DataFrame) -> pd.Series:
    """Return why a counter of ``check_traffic`` was not judged; an empty text where it was.

    Examples
    --------
    >>> expected = hci.expected_traffic(hci.Mirror(2))
    >>> observed = expected.assign(observed=[0.0, 1.0, 1.0, None])
    >>> hci.traffic_notes(hci.check_traffic(observed, expected)).iloc[-1]
    'Not checked, because no traffic was counted.'
    """
    return checked["code"].map(TRAFFIC).fillna("")


def amplification_notes(table: pd.DataFrame) -> pd.Series:
    """Return why a count of ``amplification`` was not judged; an empty text where it was.

    Examples
    --------
    >>> mirror = hci.samples()["lab-mirror"]  # measured before drives were sampled
    >>> results, drives = hci.read_results(mirror), hci.read_drives(mirror)
    >>> table = hci.amplification(results, drives, hci.Mirror(2), ["pattern", "iodepth"])
    >>> hci.amplification_notes(table).unique().tolist()
    ['Not checked, because these runs have no counters of the drives.']
    """
    return table["code"].map(DRIVES).fillna("").astype(str)


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
    All 4 network counters match a two-way mirror (within 10 %).
    Each byte written should cause 1 network byte if the VM runs on the volume's owner node, 2 if not.
    Each byte read should cause 0 if the VM runs on the owner node, 1 if not.
    """
    layout, judged = scheme_words(scheme), checked["ok"].dropna()
    if judged.empty:
        sentences = [f"No network counter was measured, so the traffic of {layout} is untested.", _sends(cost)]
    else:
        counters = share(int(judged.sum()), len(judged), "network counter")
        match = f"match{'es' * (len(judged) == 1 and bool(judged.all()))} {layout}"
        sentences = [sentence(f"{counters} {match} (within {100 * tolerance:g} %)")]
        if inferred := int(checked["code"].eq("inferred").sum()):
            sentences.append(
                f"{counted(inferred, 'further counter')} {'is' if inferred == 1 else 'are'} no test, "
                f"because the layout was derived from {'it' if inferred == 1 else 'them'}."
            )
        sentences.append(_sends(cost))
    counts = judged[:0] if on_drives is None else on_drives["ok"].dropna()
    if len(counts):
        sentences.append(
            f"{counts.sum()} of {len(counts)} counters of the drives match the I/Os and bytes that the layout predicts."
        )
    return " ".join(sentences)


def _sends(cost: pd.DataFrame) -> str:
    """Return the network bytes of a written and a read byte, on the owner and on another node."""
    sends = cost.set_index("ddir")
    own, other = sends.loc["write", ["owner", "non_owner"]]
    near, far = sends.loc["read", ["owner", "non_owner"]]
    caused = f"{own:g} network byte{'s' * (own != 1)} if the VM runs on the volume's owner node, {other:g} if not"
    read = f"Each byte read should cause {near:g} if the VM runs on the owner node, {far:g} if not."
    return f"Each byte written should cause {caused}. {read}"
