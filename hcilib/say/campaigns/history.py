"""What does `hci check` print? A line for each test, the losses first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from hcilib.say.words import change, counted, interval, number, where

CHANGED = ("regression", "improvement", "changed", "accepted")


def check_sentences(found: pd.DataFrame, size: float) -> list[str]:
    """Return a sentence or two for each row of `hcilib.check`.

    Parameters
    ----------
    found : of `hcilib.check`
    size : the loss as `check` had it, as a share

    Examples
    --------
    >>> found = hci.check(hci.history("data/samples/history.csv"))
    >>> from hcilib.say.campaigns.history import check_sentences
    >>> check_sentences(found, 0.05)[0].split(": ")[0]
    'Undecided on lab-single in 4k random read at iodepth 1'
    """
    keys = list(found.columns[: found.columns.get_loc("metric")])
    return [_checked(row, keys, size) for row in found.to_dict("records")]


def check_lines(found: pd.DataFrame, size: float) -> list[str]:
    """Return what `hci check` prints: losses first, then what is undecided, tests with too few campaigns in one line.

    Examples
    --------
    >>> found = hci.check(hci.history("data/samples/history.csv"))
    >>> from hcilib.say.campaigns.history import check_lines
    >>> len(check_lines(found, 0.05))
    4
    """
    order = found["code"].map({2: 2, 0: 3}).where(found["verdict"] != "regression", 1 - found["code"])
    rows = found.loc[order.sort_values(kind="stable").index]
    few = rows["verdict"].eq("too-few")
    lines = check_sentences(rows[~few], size)
    if few.any():
        most = counted(int(rows.loc[few, "campaigns"].max()), "campaign")
        reason = f"they have at most {most}. Seven are needed, five of them before a change"
        lines.append(f"Undecided in {counted(int(few.sum()), 'test')}: {reason}.")
    return lines


def _checked(row: Mapping[str, Any], keys: list[str], declared: float) -> str:
    cell, campaigns = _cell(row, keys), counted(int(row["campaigns"]), "campaign")
    if row["verdict"] in CHANGED:
        accepted = " The new level is accepted." * (row["verdict"] == "accepted")
        others = row["candidates"].replace("; ", ", ")
        also = f" Also changed at that time: {others}." * bool(others)
        ratio, ends = row["ratio"], (row["ratio_lo"], row["ratio_hi"])
        far = change(ratio, row["metric"], True, *ends) + interval(ratio, *ends)
        return f"{far} {cell} since {row['campaign']}.{accepted}{also}"
    if row["verdict"] == "too-few":
        return f"Undecided {cell}, with only {campaigns}. Seven are needed, five of them before a change."
    if row["verdict"] == "too-noisy":
        needed = "more than 400" if pd.isna(row["needed"]) else row["needed"]
        more = f"proving a loss of {100 * declared:g} % takes {needed} campaigns after it"
        return f"Undecided {cell}: {more}. Campaigns vary by {number(row['cv_pct'])} %."
    if row["verdict"] == "missing":
        return f"Undecided {cell}: the campaign to compare with has no run there."
    if row["verdict"] == "suspect":
        return f"Suspect {cell}: the newest campaign is worse than its level. Three are needed to prove a loss."
    visible = f"Three more campaigns would prove a loss of {number(row['visible_pct'])} % or more"
    return f"No change {cell} in {campaigns}. {visible}."


def _cell(row: Mapping[str, Any], keys: list[str]) -> str:
    named = {name: row[name] for name in keys if name not in ("testbed", "setup") and row[name] == row[name]}
    testbed = f" on testbed {row['testbed']}" if row.get("testbed") else ""
    setup = f" with {row['setup'].replace('=', ' ')}" if row.get("setup") else ""
    return f"{where(named)}{testbed}{setup}"
