"""Sentences of tenants: how their IOPS and latency change next to neighbours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pandas as pd

from hcilib.model.metrics import metric_of, pattern_order
from hcilib.say.words import (
    cap_words,
    interval,
    is_factor,
    listed,
    noun,
    pattern_words,
    sentence,
    size,
    span,
    with_interval,
)


def neighbours_answer(table: pd.DataFrame, labels: Mapping[str, str] | None = None) -> str:
    """Return how each tenant changes next to its neighbours, a line for each set of neighbours.

    Parameters
    ----------
    table : ``neighbours``
    labels : system -> what it is called

    Examples
    --------
    >>> lost = hci.neighbours(hci.read_results("data/samples/lab-neighbours"), ["iops"])
    >>> print(hci.neighbours_answer(lost.query("tenant == 'database'")).replace(". ", ".\\n"))
    Next to “backup” and “desktops”, the IOPS of “database” on lab-single fall by 16 %.
    The 95 % interval is 7 to 24 %.
    Next to “backup” (limited to 1 MiB/s per VM) and “desktops”, the IOPS of “database” on lab-single fall by 12 % (95 % interval 6 to 19 %).
    """  # noqa: E501
    lines: list[str] = []
    for (system, tenant), rows in table.groupby(["system", "tenant"], sort=False):
        patterns = pattern_order(rows["pattern"].unique())
        for pattern in patterns:
            place = f" in {pattern_words(pattern)}" if len(patterns) > 1 else ""
            owner = f"“{tenant}” on {(labels or {}).get(system, system)}{place}"
            lines += _lines(rows[rows["pattern"] == pattern], owner, is_title=not lines)
    if table["verdict"].eq("undecided").any():
        lines.append("More repeats could show whether the changes that are not significant are real.")
    return "\n".join(lines)


def limit_words(limits: str) -> str:
    """Return ``64 MiB/s per VM; 500 IOPS per VM`` of ``64m; 500iops``; other text stays as it is."""
    return re.sub(r"\b[\d.]+(m|iops)\b", lambda cap: f"{cap_words(cap[0])} per VM", limits)


def _lines(rows: pd.DataFrame, owner: str, is_title: bool) -> Iterator[str]:
    """Yield a line for each set of neighbours of one tenant in one pattern, in the order of the table.

    `is_title`: the first sentence is the title of a page, which may have no room for an interval.
    """
    for beside, own in rows.groupby("beside", sort=False):
        sentences: list[str] = []
        whose = f"the {{}} of {owner}"
        is_one_run = bool(own["verdict"].eq("untested").any() and own["ratio_lo"].isna().all())
        running = f"next to {_others(str(beside))}{' (one run)' * is_one_run}, "
        effects: dict[tuple[str, str, str], list[str]] = {}
        for row in own.to_dict("records"):
            name = noun(metric_of(row["metric"])).removesuffix(" latency")
            effects.setdefault(_effect(row, is_one_run), []).append(name)
        for (one, many, reach), names in effects.items():
            verb = many if len(names) > 1 or names == ["IOPS"] else one
            said = f"{running}{verb.format(whose.format(listed(names)))}"
            sentences += with_interval(sentence(said).removesuffix("."), reach, is_title)
            running, whose, is_title = "", "its {}", False
        yield " ".join(sentences)


def _others(beside: str) -> str:
    """Return ``“backup” (limited to 64 MiB/s per VM) and “desktops”``."""
    named = (name.partition("-rate") for name in beside.split(", "))
    return listed(f"“{who}” (limited to {cap_words(cap)} per VM)" if cap else f"“{who}”" for who, _, cap in named)


def _effect(row: Mapping, is_one_run: bool) -> tuple[str, str, str]:
    """Return the change of one metric, for one and for several subjects, whose place is ``{}``, and its interval.

    `is_one_run`: the sentence has that already.
    """
    ratio, lo, hi = row["ratio"], row["ratio_lo"], row["ratio_hi"]
    if pd.isna(ratio):
        return "{} could not be computed", "{} could not be computed", ""
    if row["equivalent"]:
        same = f"the same within {100 * row['margin']:g} %"
        return f"{{}} stays {same}", f"{{}} stay {same}", ""
    if row["verdict"] == "undecided":
        reach = f"{lo:.2g} to {hi:.2g} times the value alone" if lo == lo else ""
        return "{} shows no significant change", "{} show no significant change", reach
    one_run = " in one run" * (lo != lo and not is_one_run)
    change = f"{'to' if is_factor(ratio, hi) else 'by'} {size(ratio, lo, hi)}{one_run}"
    way = "rise" if ratio > 1 else "fall"
    return f"{{}} {way}s {change}", f"{{}} {way} {change}", span(lo, hi) if interval(ratio, lo, hi) else ""
