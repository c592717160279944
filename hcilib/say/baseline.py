"""Sentences of one bare drive against its datasheet."""

from __future__ import annotations

import pandas as pd

from hcilib.model.metrics import pattern_words
from hcilib.say.words import counted, listed


def baseline_answer(baseline: pd.DataFrame, name: str) -> str:
    """Return the highest IOPS of a bare drive, and how many figures of its datasheet it meets.

    Parameters
    ----------
    baseline : ``against_datasheet`` of one drive
    name : what the drive is called

    Examples
    --------
    >>> raw = hci.published().query("system == 'nvme-micron7450max-raw' and source == 'proxmox-2node-hci'")
    >>> print(hci.baseline_answer(hci.against_datasheet(raw, {"4k-randread": 990_000}), "Micron 7450 MAX"))
    Micron 7450 MAX delivers up to 997,000 IOPS in 4k random read (one value). It meets its one datasheet figure.
    """
    if baseline["measured"].isna().all():
        return f"{name} has no measured value."
    best = baseline.loc[baseline["measured"].idxmax()]
    runs = "one value" if best["n"] == 1 else f"mean of {best['n']} runs"
    top = f"{best['measured']:,.0f} IOPS in {pattern_words(best['pattern'])} ({runs})"
    return f"{name} delivers up to {top}. {_against_figures(baseline)}"


def _against_figures(baseline: pd.DataFrame) -> str:
    stated = baseline.loc[baseline["datasheet"].notna(), "verdict"]
    if stated.empty:
        return f"No datasheet figure is known for its {counted(len(baseline), 'pattern')}."
    count = {verdict: int(stated.eq(verdict).sum()) for verdict in ("meets", "below", "inconclusive", "not measured")}
    if count["meets"] == len(stated):
        return f"It meets {f'all {len(stated)} datasheet figures' if len(stated) > 1 else 'its one datasheet figure'}."
    verdicts = [f"meets {count['meets']}"] * (count["meets"] > 0) + [f"misses {count['below']}"] * (count["below"] > 0)
    others = {"undecided": count["inconclusive"], "not measured": count["not measured"]}
    open_ = [f"{n} {'is' if n == 1 else 'are'} {words}" for words, n in others.items() if n]
    it = [f"it {listed(verdicts)}"] * bool(verdicts)
    return f"Of {counted(len(stated), 'datasheet figure')}, {listed([*it, *open_])}."
