"""Sentences of curves over the load: where one peaks, and where more load gives fewer IOPS."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from hcilib.analyse.curves.curves import curves_of
from hcilib.model.caveats import caveats
from hcilib.say.words import counted, listed, pattern_words


def peak_sentence(peaks: pd.DataFrame, labels: Mapping[str, str] | None = None) -> str:
    """Return the highest IOPS of a ``peak`` table, at which load, and how sure that load is.

    Parameters
    ----------
    peaks : ``peak`` of IOPS by system and pattern: the loads of a curve were tested, not its patterns
    labels : system -> what it is called

    Examples
    --------
    >>> results = hci.published().query("system == 's2d-nmap-mirror' and vms > 1")
    >>> print(hci.peak_sentence(hci.peak(results)).replace(". ", ".\\n"))
    s2d-nmap-mirror delivers up to 2,615,000 IOPS (single runs) in 4k random read at iodepth 128.
    Each iodepth has a single run or value, so the best one is untested.
    """
    if peaks["iops"].isna().all():
        return "No system has a valid run with IOPS."
    row = peaks.loc[peaks["iops"].idxmax()]
    system = (labels or {}).get(row["system"], row["system"])
    runs = "single runs" if row["verdict"] == "untested" else "mean"
    place = f"in {pattern_words(row['pattern'])} at iodepth {row['best']:g}"
    first = f"{system} delivers up to {row['iops']:,.0f} IOPS ({runs}) {place}."
    return f"{first} {_certainty(row)}".strip()


def _certainty(row: pd.Series) -> str:
    """Return how the best load differs from the others of its curve, if there are any."""
    if "one-point" in caveats(row["warnings"]).codes:
        return ""
    if row["verdict"] == "untested":
        return "Each iodepth has a single run or value, so the best one is untested."
    others = [at for at in str(row["tied"]).split(", ") if at != f"{row['best']:g}"]
    runs = f"(at least {counted(row['n'], 'run')} each)"
    if others:
        return f"The difference to iodepth {listed(others)} is not significant {runs}."
    return f"Every other iodepth has significantly fewer IOPS {runs}."


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


def sweep_answer(
    peaks: pd.DataFrame,
    regimes: pd.DataFrame,
    results: pd.DataFrame,
    labels: Mapping[str, str] | None = None,
) -> str:
    """Return where one system is best (``peak``), and where more load gives fewer IOPS.

    Parameters
    ----------
    peaks, regimes : ``peak`` and ``load_losses`` of these `results`
    labels : system -> what it is called

    Examples
    --------
    >>> results = hci.published().query("system == 's2d-nmap-mirror' and vms > 1")
    >>> print(hci.sweep_answer(hci.peak(results), hci.load_losses(results), results).replace(". ", ".\\n"))
    s2d-nmap-mirror delivers up to 2,615,000 IOPS (single runs) in 4k random read at iodepth 128.
    Each iodepth has a single run or value, so the best one is untested.
    In 9 cases, a higher iodepth gives over 10 % fewer IOPS than a lower one (single runs).
    """
    return f"{peak_sentence(peaks, labels)} {regimes_sentence(regimes, results)}"
