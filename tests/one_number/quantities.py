"""Where each number of the sentences about changes and outages is on its page.

A page says a quantity in its answer, lists it in a table and draws it in a figure. The rules below
name, for each notebook of `RULES`, the numbers of its generated sentences: a fragment around the
number, in which ``#`` stands for it, and where the page's tables have it. A number that no rule
finds, or that is not the one its table has, is a disagreement. Of other notebooks, tests of `say`
hold the numbers, and nbval every committed sentence.

To extend it: write a rule ``_NN(page)`` that yields ``Claim(fragment, expected, ...)``, one
`expected` for each ``#`` (claims.py), and enter it in `RULES`. Keep fragments to the number, its
unit and the one word that names the quantity, so that a new wording changes little here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import pandas as pd
from tests.one_number.claims import (
    NUMBER,
    Claim,
    Free,
    Span,
    count,
    ends,
    judge,
    least,
    lines,
    middle,
    most,
    numbers,
    off_pct,
    through,
)
from tests.one_number.pages import NOTES, Page

SURE = "(?:95 % interval )?"
"""How an interval in brackets begins."""


def _12(page: Page) -> Iterator[Claim]:
    tables = [t for t in page.tables if {"Pattern", "k", "Ratio", "Verdict"} <= set(t)]
    found, noise = tables[0], page.table("System", "CV (%)")
    k, ratios = found["k"].max(), found["Ratio"].map(middle)
    for side, word in ((ratios < 1, "fewer"), (ratios > 1, "more")):
        changed = found[side & found["Verdict"].isin(["regression", "improvement"])]
        sizes = [off_pct(cell) for cell in changed["Ratio"]]
        reach = rf"# (?:to # )?% {word} IOPS"
        yield Claim(reach, least(sizes), most(sizes))
        yield Claim(
            rf"{word} IOPS than # earlier campaigns? in # of #", k, len(changed), len(found)
        )
    same = count(found["Verdict"], "no change seen")
    yield Claim(r"No change was seen in (?:the other )?#\.", same)
    yield Claim("seen in # of # tests? against # earlier", same, len(found), k)
    yield Claim("# cannot be compared", count(found["Verdict"], "missing"))
    widest = noise.loc[noise["CV (%)"].map(middle).idxmax()] if len(noise) else {"CV (%)": ""}
    spread = "campaigns is # %(?:, but with only # of them it may be up to # %)?"
    yield Claim(spread, widest["CV (%)"], k, Free("the upper end of that spread"))
    for row in page.table("Loss (%)", "k", "Chance (%)").query("k == @k").to_dict("records"):
        yield Claim(
            rf"[Aa] loss of {row['Loss (%)']} % would be found in (?:over )?# %", row["Chance (%)"]
        )
    yield Claim("[Aa] loss of # %", Free("the row of the table by which the chance is known"))
    yield Claim("With # earlier campaigns, a loss", k)
    yield Claim("difference above # %", 100 * page.params["margin"])


def _13(page: Page) -> Iterator[Claim]:
    summary = page.table("System", "Failure", "Quantity", "Median", "Worst")
    costs = page.table("System", "Failure", "Round", "Outage (s)", BACK)
    stamped = page.table("Events", "Integrity")
    by_failure = summary.groupby(["System", "Failure"], sort=False)
    doubts = [_longer(rows.set_index("Quantity")) for _, rows in by_failure]
    known = [doubt for doubt in doubts if isinstance(doubt, Span)]
    yield Claim("up to # s longer", most(known) if known else Free("no interval has it"))
    yield Claim("one value every # s", Free("the interval of the logs, by which outages are known"))
    known_head = None
    names = {name: name for name in costs["Failure"].unique()}
    said = "|".join(map(re.escape, names))
    for words in names:  # killing node 2
        yield Claim(rf"(?i:{re.sub(NUMBER, '#', words)})", *re.findall(NUMBER, words))
    for line, part in lines(page):
        head = re.match(
            rf"(?:After )?((?i:{said})) (?:stopped (?:.+ on )?|on )(.+?)(?: for |, )", line
        )
        if not head and " a test for data loss (" not in line:  # these go on about it
            continue
        known_head = head = head or known_head
        event = names[f"{head[1][:1].lower()}{head[1][1:]}"]
        own = summary[(summary["Failure"] == event) & (summary["System"] == head[2])]
        runs = costs[(costs["Failure"] == event) & (costs["System"] == head[2])]
        yield from _one_failure(page, own.set_index("Quantity"), runs, part)
        verdicts = stamped[stamped["Events"].str.startswith(f"{event} at ")]["Integrity"]
        fine, lost = count(verdicts, "kept"), count(verdicts, "lost")
        chance = 100 * (1 - 0.05 ** (1 / fine)) if fine else 0
        bound = r"found in # runs?, so at most # % of such runs lose one"
        yield Claim(bound, fine, chance, part=part)
        yield Claim("lost in # of # runs?", lost, lost + fine, part=part)
        unchecked = len(verdicts) - fine - lost
        yield Claim("could not be checked in # (?:more|runs?)", unchecked, part=part)


LOWEST = "Lowest second after the repair (% below healthy)"
BACK, COPIES = "IOPS recovered after the repair (s)", "Copies complete after the repair (s)"
"""Columns of the runs of a failure."""
QUANTITIES = {
    "outage": ("Outage (s)", "for"),
    "all outages of a run": ("All outages (s)", "add up to"),
    "longest I/O": ("", "longest I/O took"),
    "lowest second after the repair": (LOWEST, "IOPS (?:dipped to|were at least)"),
    "IOPS recovered after the repair": (
        BACK,
        "(?:Recovery(?: to # % of normal IOPS)? took|recovered in)",
    ),
    "copies complete after the repair": (COPIES, "copies were complete"),
}
"""Quantity as the summary calls it -> column of the runs, words before the number in a sentence."""


def _one_failure(
    page: Page, own: pd.DataFrame, runs: pd.DataFrame, part: tuple[int, int]
) -> Iterator[Claim]:
    """Return the claims about one failure, from the summary and from its runs."""
    rounds, level = len(runs), 100 * (1 - page.params["tolerance"])
    yield Claim(r"\(# runs?[,)]", rounds, part=part)
    never = count(runs[BACK], "not recovered")
    yield Claim("recovered in # of # runs?", rounds - never, rounds, part=part)
    yield Claim("recovered in none of # runs?", rounds, part=part)
    yield Claim("but not in # of # runs?", never, rounds, part=part)
    yield Claim("# of # runs recovered", rounds - never, rounds, part=part)
    yield Claim("# runs? did not recover", never, part=part)
    yield Claim("[Rr]ecover(?:ed|y)? to # % of normal", level, part=part)
    yield Claim("stayed above # % of normal", level, part=part)
    late = runs[NOTES].str.contains("when fio had already ended").sum() if NOTES in runs else 0
    yield Claim("In (?:all )?#(?: of #)? runs fio had ended", late, rounds, part=part)
    unseen = count(runs[COPIES], "–") if COPIES in runs else 0
    yield Claim("In # runs? the system did not report", unseen, part=part)
    for row in own.reset_index().to_dict("records"):
        quantity, _, unit = row["Quantity"].removesuffix(")").partition(" (")
        unit = unit.partition(" ")[0]
        if quantity not in QUANTITIES:
            continue
        column, words = QUANTITIES[quantity]
        median, worst = _each_way(row, runs.get(column, ()))
        if quantity == "lowest second after the repair":
            median, worst = (
                [through(lambda v: 100 - v, one) for one in each] for each in (median, worst)
            )
        within = [level] if "Recovery" in words else []
        middle_ = rf" \((?:\d+ runs?, )?median (?:run )?(?:< )?# {unit}"
        after = "(?: after the repair)?(?: at worst)?(?: of normal)?"
        size = rf"(?:less than |up to )?# {unit}(?! \(median\)){after}"
        both = rf"{words} {size}(?:{middle_})?"
        yield Claim(both, *within, worst, median, part=part)
        yield Claim(rf"{words} # {unit} \(median\)", *within, median, part=part)
    ratio = own.loc["degraded / healthy"] if "degraded / healthy" in own.index else None
    if ratio is not None:
        lo, hi = ends(ratio.get("95 % interval", ""))
        near, far = sorted((off_pct(lo), off_pct(hi)), key=middle) if lo else ("", "")
        change = rf"# % (?:more|fewer) IOPS than healthy \(mean, {SURE}#(?: to #)? %"
        yield Claim(change, off_pct(ratio["Mean"]), near, far, part=part)
        times = rf"(?:# times as many IOPS as healthy \(mean,|mean # times,) {SURE}# to #"
        yield Claim(times, ratio["Mean"], ratio["Mean"], lo, hi, part=part)
        yield Claim("it delivered # times", ratio["Mean"], part=part)


def _each_way(row: dict, cells: Iterable[str]) -> tuple[list, list]:
    """Return the median and the worst, of the summary and of the runs if each has a number.

    An outage that no run saw is listed as shorter than it could have been seen.
    """
    median, worst = ([row[side].removeprefix("< ")] for side in ("Median", "Worst"))
    known = ["0" if cell == "–" and "outage" in row["Quantity"] else cell for cell in cells]
    ordered = sorted(numbers(known))
    if known and len(ordered) == len(known) and not row["Median"].startswith("<"):
        inner = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
        median.append(through(lambda *values: sum(values) / len(values), *inner))
        worst.append(ordered[-1])
    return median, worst


def _longer(own: pd.DataFrame) -> Span | Free | str:
    """Return how much further an interval of outages reaches up than down: their own doubt."""
    if "outage (s)" not in own.index:
        return "no outage in the summary"
    row = own.loc["outage (s)"]
    lo, hi = ends(row.get("95 % interval", ""))
    if not lo or middle(lo) == 0:
        return Free("the interval ends at 0, or there is none")
    return through(lambda c, a, b: (b - c) - (c - a), row["Mean"], lo, hi)


RULES: dict[str, Callable[[Page], Iterator[Claim]]] = {
    "12_regression": _12,
    "13_failure": _13,
}


def disagreements(page: Page) -> list[str]:
    """Return every number of a page of `RULES` that its tables contradict or do not have."""
    return judge(page, RULES[page.notebook](page)) if page.notebook in RULES else []
