"""Sentences about data loss: runs that lost acknowledged writes, and how many writes were checked."""

from __future__ import annotations

import pandas as pd

from hcilib.analyse.compare.contrast import CONFIDENCE
from hcilib.analyse.runs.integrity import none_found
from hcilib.say.words import counted

UNTESTED = "Data loss was not tested."


def integrity_sentence(verdicts: pd.DataFrame) -> str:
    """Return how many runs lost a write, the bound where none did, and how many were checked.

    Only the last write of each block can be checked, because it overwrote the earlier ones.

    Parameters
    ----------
    verdicts : DataFrame
        As ``integrity_verdicts`` returns it, a row a run, VM, disk and replica.

    Returns
    -------
    str
        One to five sentences.

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"run_id": "r", "vm": "vm1", "serial": "A", "acknowledged": 9, "checked": 4, "verdict": "lost"}
    >>> hci.integrity_sentence(pd.DataFrame([row]))
    'Acknowledged writes were lost in 1 of 1 run. Only the last write to each block can be checked: 4 of 9 acknowledged writes.'
    """  # noqa: E501
    worst = verdicts.groupby("run_id", observed=True)["verdict"].agg(_worst)
    lost, kept, unchecked = (int(worst.eq(verdict).sum()) for verdict in ("lost", "kept", "unchecked"))
    text = loss_words(lost, kept, unchecked, bound=True)
    judged = verdicts[verdicts["run_id"].isin(worst.index[worst.ne("unchecked")])]
    disks = [name for name in ("run_id", "vm", "serial") if name in judged]
    # each write and block once, however many replicas were read
    written, checked = judged.groupby(disks, observed=True)[["acknowledged", "checked"]].max().sum()
    if not checked:
        return text
    return f"{text} Only the last write to each block can be checked: {checked:,} of {written:,} acknowledged writes."


def loss_words(lost: int, kept: int, unchecked: int, bound: bool = False) -> str:
    """Return whether acknowledged writes were lost, from counts of runs.

    Parameters
    ----------
    lost, kept, unchecked : int
        Runs that lost acknowledged writes, lost none, and could not be checked.
    bound : bool
        Whether to add the share of runs that may still lose a write where none did.
    """
    if lost:
        text = f"Acknowledged writes were lost in {lost} of {counted(lost + kept, 'run')}."
    elif kept and bound:
        most = f"{100 * none_found(kept):.0f} % of such runs lose one ({100 * CONFIDENCE:g} % confidence)"
        text = f"No lost write was found in {counted(kept, 'run')}, so at most {most}."
    elif kept:
        text = "No lost write was found."
    else:
        return f"Data loss could not be checked in {counted(unchecked, 'run')}." if unchecked else UNTESTED
    return text + (f" Data loss could not be checked in {unchecked} more." if unchecked else "")


def _worst(verdicts: pd.Series) -> str:
    if verdicts.eq("lost").any():
        return "lost"
    return "kept" if verdicts.eq("kept").all() else "unchecked"
