"""The answer for files of other tools: who is faster, and whether the numbers can be right."""

from __future__ import annotations

import pandas as pd

from hcilib.analyse.compare.cells import asked_by
from hcilib.analyse.curves.curves import peak
from hcilib.say.compare.headlines import headline
from hcilib.say.curves.sweep import peak_sentence
from hcilib.say.physics.audit import LAWS
from hcilib.say.words import counted, listed


def files_answer(comparison: pd.DataFrame, audit: pd.DataFrame, results: pd.DataFrame) -> str:
    """Return who is faster in files of other tools, and which checks of physics their numbers fail.

    Parameters
    ----------
    comparison : of ``compare``; without a row where there is one system, of which the answer has the peak
    audit : of ``audit``
    results : the rows that both are of

    Returns
    -------
    str : a line a system

    Examples
    --------
    >>> rows = hci.read_results("data/samples/loose-files", names="{system}_{pattern}_qd{iodepth}_r{rep}.json")
    >>> print(hci.files_answer(hci.compare(rows, "birch"), hci.audit(rows), rows))
    cedar is 33.4 % faster than birch in both tests. Reads are 33.4 % faster (33.3 to 33.4 %), writes 33.4 % (33 to 33.7 %).
    """  # noqa: E501
    load = [name for name in asked_by(comparison) if name != "iodepth"]
    answer = headline(comparison)
    if not len(comparison):
        alone = "No second system was found. Add a second folder, or names that separate two systems."
        answer = f"{peak_sentence(peak(results, by=['system', *load]))} {alone}"
    fails = audit[audit["ok"].eq(False)].groupby("check", sort=False).size()
    totals = audit[audit["ok"].notna()].groupby("check").size()
    broken = [f"{n} of {counted(totals[check], 'check')} of {LAWS.get(check, check)}" for check, n in fails.items()]
    return " ".join([answer, *([f"Check the files first, as {listed(broken)} fail."] if broken else [])])
