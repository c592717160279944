"""Sentences of one bare drive against its datasheet."""

from __future__ import annotations

import pandas as pd

from hcilib.say.words import counted, listed, pattern_words, share


def baseline_answer(baseline: pd.DataFrame, name: str) -> str:
    """Return the highest IOPS of a bare drive, and how many figures of its datasheet it meets.

    Parameters
    ----------
    baseline : ``against_datasheet`` of one drive
    name : what the drive is called

    Examples
    --------
    >>> raw = hci.published().query("system == 'nvme-micron7450max-raw'").head(1)
    >>> against = hci.against_datasheet(raw, {raw["pattern"].item(): 990_000})
    >>> print(hci.baseline_answer(against, "Micron 7450 MAX").replace(". ", ".\\n"))
    Micron 7450 MAX delivers up to 997,000 IOPS in 4k random read (one value).
    It meets the only datasheet figure.
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
        return "No datasheet figures are available for comparison."
    count = stated.value_counts().to_dict()
    if count.get("meets") == len(stated):
        return f"It meets {share(len(stated), len(stated), 'datasheet figure')}."
    words = {
        "meets": "met",
        "below": "missed",
        "undecided": "too close to decide",
        "not measured": "not measured",
    }
    each = listed(
        f"{count[code]} {'is' if count[code] == 1 else 'are'} {said}" for code, said in words.items() if code in count
    )
    return f"Of its {counted(len(stated), 'datasheet figure')}, {each}."
