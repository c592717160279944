"""Whether more load gives fewer IOPS, in a sentence."""

from __future__ import annotations

import pandas as pd

from hcilib.analyse.curves.curves import curves_of
from hcilib.say.words import counted


def regimes_sentence(regimes: pd.DataFrame, results: pd.DataFrame, drop: float = 0.1) -> str:
    """Return at how many loads ``load_losses`` found fewer IOPS than at a lower one, and on which basis.

    Parameters
    ----------
    regimes : of these `results`, with this `drop` (a share of the IOPS)

    Examples
    --------
    >>> results = hci.published().query("system == 's2d-nmap-mirror' and pattern == '4k-randrw70' and vms > 1")
    >>> hci.regimes_sentence(hci.load_losses(results), results)
    'In 2 cases, a higher iodepth gives over 10 % fewer IOPS than a lower one (single runs).'
    """
    if regimes.empty:
        if any(len(curve) > 1 for curve in curves_of(results)[2]):
            return f"No loss of over {100 * drop:g} % of IOPS was seen at a higher iodepth."
        return "Each pattern was measured at one iodepth, so the effect of more load is unknown."
    sentences = []
    for verdict, basis in (("lower", ""), ("untested", " (single runs)")):
        if n := int(regimes["verdict"].eq(verdict).sum()):
            loads = f"{counted(n, 'case')}, a higher iodepth gives"
            sentences.append(f"In {loads} over {100 * drop:g} % fewer IOPS than a lower one{basis}.")
    return " ".join(sentences)
