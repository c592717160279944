"""Months of campaigns in sentences: since when, by how much, what else changed, and what could have been found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from hcilib.model.caveats import caveats
from hcilib.model.metrics import FACTORS, SETTINGS, metric_of
from hcilib.say.words import change, counted, interval, listed, more_or_less, noun, number, share, size, where

CELL = ("system", "pattern", "iodepth")
"""Keys of a cell that sentences name first; others follow where cells differ in them."""


def history_answer(changes: pd.DataFrame, found: pd.DataFrame, chance: float) -> str:
    """Return what changed and since when, and the loss that would have been found elsewhere.

    Parameters
    ----------
    changes : of `hcilib.changes`
    found : of `hcilib.check` with ``power=chance``
    chance : share of cases in which the loss is found, 0.9 for 90 %

    Examples
    --------
    >>> months = hci.history("data/samples/history.csv")
    >>> hci.history_answer(hci.changes(months), hci.check(months, power=0.9), 0.9).split(". ")[0]
    'lab-single has 12 % fewer IOPS since campaign c19 in 2 of 4 tests'
    """
    metric = found["metric"].iloc[0]
    what, total = noun(metric_of(metric)), len(found)
    keys = [name for name in found.columns[: found.columns.get_loc("metric")]]
    campaigns = counted(int(found["campaigns"].max()), "campaign")
    last = changes.drop_duplicates(keys, keep="last") if len(changes) else changes
    sentences = []
    for verdict in ("regression", "improvement", "changed"):
        for rows in (own for _, own in last[last["verdict"].eq(verdict)].groupby(last["ratio"].gt(1))):
            sentences.append(f"{_group(rows, metric)} in {share(len(rows), total, 'test')}.")
    rest = found.merge(last[keys], on=keys, how="left", indicator=True)
    rest = rest[rest["_merge"].eq("left_only")]
    if sentences and len(rest):
        sentences.append(f"No change was found in the other {len(rest)}.")
    elif not sentences:
        sentences.append(
            f"{what[:1].upper()}{what[1:]} did not change in {share(total, total, 'test')} over {campaigns}."
        )
    return " ".join([*sentences, *_visible(rest if len(rest) else found, chance)])


def change_sentences(changes: pd.DataFrame) -> list[str]:
    """Return a sentence or two for each row of `hcilib.changes`: size, cell, place, and what else changed then.

    Examples
    --------
    >>> months = hci.history("data/samples/history.csv")
    >>> hci.change_sentences(hci.changes(months))[0].split(". ")[0]
    '11.9 % fewer IOPS (95 % interval 11.8 to 12 %) on lab-single in 4k random read at iodepth 8 since c19'
    """
    keys = list(changes.columns[: changes.columns.get_loc("metric")])
    return [_change(row, keys) for row in changes.to_dict("records")]


def candidate_notes(changes: pd.DataFrame) -> list[str]:
    """Return a sentence for each campaign at which a level begins: what else changed then, for a figure's caption.

    Examples
    --------
    >>> hci.candidate_notes(hci.changes(hci.history("data/samples/history.csv")))
    ["Changed at c19: drives' read_bytes_per_s from 2097152 to 1845494, drives' write_bytes_per_s from 2097152 to 1845494."]
    """  # noqa: E501
    told = changes.drop_duplicates(["campaign", "candidates"]).sort_values("start", kind="stable")
    told = told[told["candidates"].ne("")]
    return [
        f"Changed at {name}: {text.replace('; ', ', ')}."
        for name, text in zip(told["campaign"], told["candidates"], strict=True)
    ]


def check_sentences(found: pd.DataFrame, size: float, chance: float = 0.8) -> list[str]:
    """Return a sentence or two for each row of `hcilib.check`.

    Parameters
    ----------
    size, chance : as `check` had them (its `power`)

    Examples
    --------
    >>> found = hci.check(hci.history("data/samples/history.csv"))
    >>> hci.check_sentences(found, 0.05)[0].split(": ")[0]
    'Undecided on lab-single in 4k random read at iodepth 1'
    """
    keys = list(found.columns[: found.columns.get_loc("metric")])
    return [_checked(row, keys, size, chance) for row in found.to_dict("records")]


def check_lines(found: pd.DataFrame, size: float, chance: float = 0.8) -> list[str]:
    """Return what `hci check` prints: losses first, then what is undecided, tests with too few campaigns in one line.

    Examples
    --------
    >>> found = hci.check(hci.history("data/samples/history.csv"))
    >>> len(hci.check_lines(found, 0.05))
    4
    """
    order = found["code"].map({1: 0, 2: 1, 0: 2}).sort_values(kind="stable").index
    rows = found.loc[order]
    few = rows["verdict"].eq("too-few")
    lines = check_sentences(rows[~few], size, chance)
    if few.any():
        most = counted(int(rows.loc[few, "campaigns"].max()), "campaign")
        reason = f"they have at most {most}. Seven are needed, five of them before a change"
        lines.append(f"Undecided in {counted(int(few.sum()), 'test')}: {reason}.")
    return lines


# ---- Parts


def _group(rows: pd.DataFrame, metric: str) -> str:
    """``lab has 12 % fewer IOPS since c19``; sizes and campaigns as ranges."""
    ends = [rows["ratio"].min(), rows["ratio"].max()]
    sizes = dict.fromkeys(size(end).removesuffix(" %") for end in sorted(ends, key=lambda end: abs(end - 1)))
    unit = "" if next(reversed(sizes)).endswith("times") else " %"
    since = list(dict.fromkeys(rows.sort_values("start")["campaign"]))
    place = since[0] if len(since) == 1 else f"{since[0]} to {since[-1]}"
    what, campaign = noun(metric_of(metric)), "campaign" if len(since) == 1 else "campaigns"
    systems = listed(dict.fromkeys(rows["system"])) if "system" in rows else "The history"
    verb = "has" if systems.count(" and ") == 0 else "have"
    return (
        f"{systems} {verb} {' to '.join(sizes)}{unit} {more_or_less(metric, ends[0])} {what} since {campaign} {place}"
    )


def _visible(rows: pd.DataFrame, chance: float) -> list[str]:
    """The loss that three more campaigns would have shown, of the worst test."""
    worst = rows.loc[rows["visible_pct"].idxmax()]
    if worst["visible_pct"] >= 100:
        return [f"{counted(int(worst['campaigns']), 'campaign')} cannot show a change. Seven are needed."]
    percent, sure = number(worst["visible_pct"]), f"{100 * chance:.0f} %"
    place = "There" if len(rows) == 1 else f"In the noisiest of these {len(rows)} tests"
    return [f"{place}, three more campaigns would prove a loss of {percent} % or more ({sure} probability)."]


def _cell(row: Mapping[str, Any], keys: list[str]) -> str:
    named = {name: row[name] for name in keys if name in CELL}
    others = {
        name: row[name]
        for name in keys
        if name in (*FACTORS, *SETTINGS) and name not in CELL and row[name] == row[name]
    }
    testbed = f" on testbed {row['testbed']}" if "testbed" in keys and row["testbed"] else ""
    setup = f" with {row['setup'].replace('=', ' ')}" if "setup" in keys and row["setup"] else ""
    return f"{where(named | others)}{testbed}{setup}"


def _size(row: Mapping[str, Any], what: str) -> str:
    ratio, ends = row["ratio"], (row["ratio_lo"], row["ratio_hi"])
    if what.endswith("IOPS"):
        return f"{change(ratio, *ends)} {what}{interval(ratio, *ends)}"
    return f"{size(ratio, *ends)} {more_or_less(row['metric'], ratio)} {what}{interval(ratio, *ends)}"


def _change(row: Mapping[str, Any], keys: list[str]) -> str:
    since = f"since {row['campaign']}"
    if row["first"] != row["last"]:
        since += f" (between {row['first']} and {row['last']})"
    text = f"{_size(row, noun(metric_of(row['metric'])))} {_cell(row, keys)} {since}."
    text += " A steady drift fits better than a step." * bool(row["drift"])
    text += " The new level is accepted." * bool(row["accepted"])
    said = [f" It is {caveat.text}" for caveat in caveats(row["warnings"]) if caveat.code == "units"]
    return text + "".join(said) + _candidates(row["candidates"])


def _candidates(text: str) -> str:
    return f" Also changed at that time: {text.replace('; ', ', ')}." if text else ""


def _checked(row: Mapping[str, Any], keys: list[str], declared: float, chance: float) -> str:
    what, cell = noun(metric_of(row["metric"])), _cell(row, keys)
    campaigns, percent = counted(int(row["campaigns"]), "campaign"), f"{100 * declared:g} %"
    visible = f"Three more campaigns would prove a loss of {number(row['visible_pct'])} % or more"
    visible += f" ({100 * chance:.0f} % probability)."
    match row["verdict"]:
        case "regression" | "improvement" | "changed" | "accepted":
            known = " The new level is accepted." * (row["verdict"] == "accepted")
            return f"{_size(row, what)} {cell} since {row['campaign']}.{known}{_candidates(row['candidates'])}"
        case "too-few":
            return f"Undecided {cell}, with only {campaigns}. Seven are needed, five of them before a change."
        case "too-noisy":
            needed = "more than 400" if pd.isna(row["needed"]) else row["needed"]
            more = f"{needed} campaigns after it"
            vary = f"Campaigns vary by {number(row['cv_pct'])} %."
            return f"Undecided {cell}: proving a loss of {percent} takes {more}. {vary}"
        case "missing":
            return f"Undecided {cell}: the campaign to compare with has no run there."
        case "suspect":
            return f"Suspect {cell}: the newest campaign is worse than its level. Three are needed to prove a loss."
    return f"No change {cell} in {campaigns}. {visible}"
