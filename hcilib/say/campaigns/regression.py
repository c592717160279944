"""A new campaign against earlier ones in sentences: its change, and the change that could have been found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from hcilib.analyse.campaigns.regression import chance_to_see, spread_between
from hcilib.model.metrics import metric_of
from hcilib.say.words import INTERVAL, counted, noun, number, where

CHANGED = ("regression", "improvement", "changed")
ENOUGH = 5
"""Earlier campaigns from which on their spread is not called uncertain."""
OFTEN = 80.0
"""Per cent of cases in which a loss is found that the answer names."""


def regression_headline(found: pd.DataFrame, new: str, margin: float) -> str:
    """Return how the new campaign differs from the earlier ones, and the loss that they could show.

    Parameters
    ----------
    found : of `regression`
    new : name of the new campaign
    margin : as `regression` had it, used where there is one earlier campaign

    Returns
    -------
    str : the first sentence names the worst change

    Examples
    --------
    >>> results = hci.read_results([f"data/samples/lab-single{end}" for end in ("", "-2", "-3")])
    >>> found = hci.regression(results, "lab-single-3")
    >>> hci.regression_headline(found, "lab-single-3", 0.05).split(". ")[0]
    'lab-single-3 has 12 % fewer IOPS than 2 earlier campaigns in 3 of 6 tests'
    """
    k, text = int(found["k"].max()), _verdicts(found, new)
    if k < 2:
        judged = f"With one earlier campaign, any difference above {100 * margin:g} % counts as a change"
        return f"{text} {judged}. This is no significance test."
    if found["ratio"].isna().all():
        return text
    cv_pct, most = spread_between(found)
    spread, high = number(cv_pct), number(most)
    chances = chance_to_see(cv_pct, campaigns=[k])
    often = chances[chances["chance_pct"] >= OFTEN]
    row = (often if len(often) else chances.tail(1)).iloc[0]
    share = "over 99" if row["chance_pct"] >= 99.5 else f"{row['chance_pct']:.0f}"
    few = f", but with only {k} of them it may be up to {high} %" * (k < ENOUGH)
    return (
        f"{text} The standard deviation between the earlier campaigns is {spread} %{few}. "
        f"With {k} earlier campaigns, a loss of {row['loss_pct']:g} % would be found in {share} % of cases."
    )


def regression_sentences(found: pd.DataFrame) -> list[str]:
    """Return a sentence for each row of `regression`: the new campaign, its change, system and load, interval.

    Examples
    --------
    >>> results = hci.read_results([f"data/samples/lab-single{end}" for end in ("", "-2", "-3")])
    >>> hci.regression_sentences(hci.regression(results, "lab-single-3"))[1]
    'lab-single-3 has 12.1 % fewer IOPS than 2 earlier campaigns on lab-single in 4k random read at iodepth 8 (95 % interval 11.8 to 12.4 %).'
    """  # noqa: E501
    by = list(found.columns[: found.columns.get_loc("metric")])
    return [_cell(row, by) for row in found.to_dict("records")]


def _verdicts(found: pd.DataFrame, new: str) -> str:
    """The changes of the new campaign, the worst first, then how many tests have none."""
    what, k = noun(metric_of(found["metric"].iloc[0])), int(found["k"].max())
    earlier, tests, groups = counted(k, "earlier campaign"), counted(len(found), "test"), []
    for verdict in CHANGED:
        rows = found[found["verdict"] == verdict]
        for more in (False, True):
            ratios = rows.loc[rows["ratio"].gt(1) == more, "ratio"]
            if len(ratios):
                groups.append((len(ratios), _change(ratios, what, more)))
    same, absent = (int(found["verdict"].eq(verdict).sum()) for verdict in ("no change seen", "missing"))
    if groups:
        (count, change), *others = groups
        untested = ", untested" * (k == 1)
        text = f"{new} has {change} than {earlier} in {count} of {tests}{untested}."
        text += "".join(f" It has {change} in {count}." for count, change in others)
    elif same:
        text = f"No change in {what} of {new} was seen in {same} of {tests} against {earlier}."
        same = 0
    else:
        text = f"{new} cannot be compared with {earlier} in any of {tests}."
        absent = 0
    text += f" No change was seen in the other {same}." * (same > 0)
    return text + f" {absent} cannot be compared." * (absent > 0)


def _change(ratios: pd.Series, what: str, more: bool) -> str:
    sizes = (100 * (ratios - 1).abs()).agg(["min", "max"])
    ends = dict.fromkeys(number(size, 0, 10) for size in sizes)
    return f"{' to '.join(ends)} % {_side(what, more)} {what}"


def _side(what: str, more: bool) -> str:
    if what.endswith("IOPS"):
        return "more" if more else "fewer"
    return "higher" if more else "lower"


def _cell(row: Mapping[str, Any], by: list[str]) -> str:
    what, place = noun(metric_of(row["metric"])), where({name: row[name] for name in by})
    earlier, ratio, lo, hi = counted(row["k"], "earlier campaign"), row["ratio"], row["ratio_lo"], row["ratio_hi"]
    if row["verdict"] == "missing":
        return f"{row['run_id']} or every earlier campaign has no valid run {place}."
    sizes = sorted(100 * abs(end - 1) for end in (lo, hi))
    size = f"{number(100 * abs(ratio - 1), *sizes)} % {_side(what, ratio > 1)} {what}"
    change = f"{row['run_id']} has {size} than {earlier} {place}"
    if row["k"] == 1:
        return f"{change}. With only one earlier campaign there is no interval."
    if lo <= 1 <= hi:
        ends = [f"{number(100 * abs(end - 1), *sizes)} % {_side(what, end > 1)}" for end in (lo, hi)]
        return f"No change was seen in {what} {place} ({INTERVAL} {ends[0]} to {ends[1]})."
    if row["verdict"] == "no change seen":
        return f"{change}. After the correction for multiple tests this is not significant (p {row['p_adjusted']:.2g})."
    return f"{change} ({INTERVAL} {number(sizes[0], *sizes)} to {number(sizes[1], *sizes)} %)."
