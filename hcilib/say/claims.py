"""What does a claim say? Its subject, metric, pattern, load and comparator."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from hcilib.analyse.claim_values import METRICS, words
from hcilib.analyse.claims import completed
from hcilib.model.metrics import metric

CURVES = {
    "spread": "highest above lowest",
    "spread_lower": "smaller spread over iodepth",
    "least_step": "smallest step to the next iodepth",
    "drop": "largest drop to the next iodepth",
    "fall": "last below highest",
    "overtakes_at": "iodepth from which it leads",
}


def claim_words(claims: pd.DataFrame, labels: Mapping[str, str] | None = None) -> list[str]:
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
    return [_words(claim, labels or {}) for claim in completed(claims).to_dict("records")]


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
