"""How do the fastest systems take a dead node?"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hcilib.model.schemes import parse_scheme
from hcilib.say.words import Labels


def without_failure(first: Mapping[str, str | None], failed: Collection[str], labels: Labels = None) -> str:
    """Return how the fastest systems take a dead node, where the failures measured are those of others.

    Parameters
    ----------
    first : the fastest systems, each with the formula of how it keeps data; None where that is unknown
    failed : systems whose failures were measured
    labels : system -> its name in the sentences

    Returns
    -------
    str : empty where the failure of each was measured, or none was and each has a copy on another node

    Examples
    --------
    >>> without_failure({"raid": "Raid5(5)"}, ["drbd"])
    'Without another copy, raid is down.'
    """
    labels, said = labels or {}, []
    for name, scheme in first.items():
        if name in failed:
            continue
        if scheme and not parse_scheme(scheme).survives.servers:
            said.append(f"Without another copy, {labels.get(name, name)} is down.")
        elif failed:
            said.append(f"No failure of {labels.get(name, name)} was measured.")
    return " ".join(said)
