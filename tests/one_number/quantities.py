"""Where each number of the sentences about ratios, outages and costs is on its page.

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

import math
import re
from collections.abc import Callable, Iterable, Iterator

import pandas as pd
from hcilib import parse_scheme
from hcilib.say.words import pattern_words
from tests.one_number.claims import (
    NUMBER,
    Claim,
    Free,
    Span,
    agree,
    count,
    ends,
    judge,
    least,
    lines,
    middle,
    most,
    numbers,
    off_pct,
    span,
    through,
    whole,
)
from tests.one_number.pages import NOTES, Page

# ---- one system against another: 00_files, 04_compare

KINDS = {"rw": "mixed I/O", "write": "writes", "read": "reads"}
SURE = "(?:95 % interval )?"
"""How an interval in brackets begins."""
VERDICTS = {
    "not significant": "undecided",
    " slower": "lower",
    " faster": "higher",
    "times as fast": "higher",
    "as fast": "same",
}
"""Words of a sentence -> the verdict that its tests have; the first that is found."""


def _against(page: Page) -> Iterator[Claim]:
    """Return the claims about a challenger and its baseline, from the table of their ratios."""
    table = page.table("System", "Pattern", "Ratio", "n of the baseline", "Verdict")
    kinds = [next(word for key, word in KINDS.items() if key in name) for name in table["Pattern"]]
    table = table.assign(kind=kinds)
    for line, part in lines(page):
        first, *others = _sentences(line, part)
        names = sorted((n for n in table["System"].unique() if n in first[0]), key=len)
        if not names or "patterns" in first[0] or "the second" in first[0] or " of its CPU" in line:
            continue
        rows = table[table["System"] == names[-1]]
        yield from _finding(rows, *first)
        turned = not first[0].removeprefix("Whether ").startswith(names[-1])
        yield from _single_runs(rows, turned, part)
        for said, place in others:
            yield from _parts(rows, said, place)
        yield from _limits(rows, part)
    dial = page.table("What", "Expected", "Off by (%)")
    ratios = dial[dial["What"].str.startswith("ratio")]
    for words in re.finditer(
        r"set speeds predict (a ratio of )?([^(]*?)(?: for mixed| for reads| for writes|,|\.)",
        page.said,
    ):
        truths = list(ratios["Expected"] if words[1] else map(off_pct, ratios["Expected"]))
        for said in re.compile(NUMBER).finditer(page.said, *words.span(2)):
            truth = next((one for one in truths if agree(said[0], one)), "no expected ratio")
            yield Claim("#", truth, part=said.span())


def _sentences(line: str, part: tuple[int, int]) -> list[tuple[str, tuple[int, int]]]:
    """Return each sentence of a line, and where it is on the page.

    An interval belongs to the sentence before it.
    """
    found = re.finditer(r"\S.*?[.](?=\s+(?!The 95 % interval)[A-Z0-9]|$)", line)
    return [(one[0], (part[0] + one.start(), part[0] + one.end())) for one in found]


def _verdict(said: str) -> str:
    return next((verdict for words, verdict in VERDICTS.items() if words in said), "")


def _finding(rows: pd.DataFrame, said: str, part: tuple[int, int]) -> Iterator[Claim]:
    """Return the claims about the first sentence: one verdict of all tests, or of one kind."""
    verdict = _verdict(said)
    own = rows[rows["Verdict"] == verdict]
    if both := re.search(r"tests and (slower|faster) in", said):
        other = rows[rows["Verdict"] == VERDICTS[f" {both[1]}"]]
        yield Claim("tests and .* in #", len(other), part=part)
    subject = re.search(r" in (?:.* tests of )?([^(]*?)(?: \(|\.$)", said)
    kind = _named(rows, subject[1]) if subject else rows.head(0)
    rows = kind if len(kind) else rows
    yield from _sizes(own.loc[own.index.intersection(rows.index)], len(rows), verdict, part)


def _named(rows: pd.DataFrame, said: str) -> pd.DataFrame:
    """Return the rows of the kinds, or of the patterns, that a part of a sentence names."""
    named = [kind.lower() in said.lower() or pattern_words(name) in said for kind, name in
             zip(rows["kind"], rows["Pattern"], strict=True)]  # fmt: skip
    return rows[named]


def _parts(rows: pd.DataFrame, said: str, part: tuple[int, int]) -> Iterator[Claim]:
    """Return the claims about kinds of I/O that have one verdict: clauses between commas."""
    verdict, place = _verdict(said), part[0]
    for clause in said.split(", ") if verdict else ():
        own = _named(rows, clause)
        span_of = (place, place + len(clause))
        yield from _sizes(own[own["Verdict"] == verdict], len(own), verdict, span_of)
        place += len(clause) + 2


def _sizes(rows: pd.DataFrame, total: int, verdict: str, part: tuple[int, int]) -> Iterator[Claim]:
    """Return the claims about the numbers that stand for tests of one verdict."""
    yield Claim("in # of # tests?", len(rows), total, part=part)
    yield Claim("in (?:all|any of the) # tests?", [len(rows), total], part=part)
    bounds = [ends(c) for c in rows.get("95 % interval", ()) if ends(c)[0]]
    if verdict == "same":
        reach = most(off_pct(end) for pair in bounds for end in pair)
        within = Span(most(map(off_pct, rows["Ratio"])).lo, math.ceil(reach.hi + 1e-6))
        yield Claim("within # %", within, part=part)
    if verdict not in ("lower", "higher") or rows.empty:
        return
    pooled = Free("of several tests together: their pooled interval is in no table")
    one = through(lambda *r: math.prod(r) ** (1 / len(r)), *rows["Ratio"])
    for unit, change in (("%", off_pct), ("times", span)):
        reach = list(map(change, rows["Ratio"]))
        lo, hi = (pooled, pooled) if len(rows) > 1 else sorted(map(change, bounds[0]), key=middle)
        yield Claim(
            rf"(?<!interval is)(?<![\d(.l]) # to # {unit}", least(reach), most(reach), part=part
        )
        yield Claim(rf"(?<![\d(.])(?<!to )(?<!The )# {unit}", change(one), part=part)
        yield Claim(rf"\({SURE}# to # {unit}\)", lo, hi, part=part)
        yield Claim(rf"interval is # to # {unit}", lo, hi, part=part)


def _single_runs(rows: pd.DataFrame, turned: bool, part: tuple[int, int]) -> Iterator[Claim]:
    """Return the claims about tests of single runs, whose subject may be the baseline."""
    points = rows[rows["Verdict"] == "untested"]
    ratios = [through(lambda r: 1 / r, cell) if turned else span(cell) for cell in points["Ratio"]]
    above = [ratio for ratio in ratios if middle(ratio) > 1]
    below = [ratio for ratio in ratios if middle(ratio) < 1]
    yield Claim("in # of # single-run tests", len(above), len(ratios), part=part)
    yield Claim("in all # single-run tests", [len(above), len(ratios)], part=part)
    yield Claim("# % more", off_pct(most(above)), part=part)
    yield Claim("# times as many", most(above), part=part)
    yield Claim("# % fewer in # tests?", off_pct(least(below)), len(below), part=part)


def _limits(rows: pd.DataFrame, part: tuple[int, int]) -> Iterator[Claim]:
    """Return the claims about runs that would decide a test, and tests that cannot be compared."""
    planned = Free("planned from the spread, in no table")
    open_ = count(rows["Verdict"], "undecided")
    settled = (
        r"# runs of each(?: test)? would decide (?:this|them|#)"
        "(?: of (?:them|these # tests). The other (?:# )?needs? over #)?"
    )
    yield Claim(settled, *[planned] * 5, part=part)
    yield Claim("More than # runs of each", planned, part=part)
    yield Claim("multiple tests, # of them", Span(0, open_), part=part)
    gone = count(rows["Verdict"], "missing")
    yield Claim("[Ii]n # of # tests a system", gone, len(rows), part=part)
    busy = sum("CPU was above 90 %" in note for note in rows[NOTES])
    yield Claim("above # % in (?:all #|# of #) tests", 90, busy, busy, len(rows), part=part)
    yield Claim(r"interval of # to #, in # of #", *[Free("of the first test outside")] * 4)


def _00(page: Page) -> Iterator[Claim]:
    yield from _against(page)
    checks = page.table("Check", "Holds", "Fails")
    for name, rows in checks.groupby("Check"):
        fails, asked = whole(rows["Fails"]), whole([*rows["Holds"], *rows["Fails"]])
        yield Claim(f"# of # checks? of {re.escape(name)}", fails, asked)
    noted = Free("counted from the notes of the runs, which no table has")
    yield Claim("(?:All #|# of #) runs (?:lasted|tested|used)", *[noted] * 3)
    yield Claim("lasted less than # s", noted)


def _04(page: Page) -> Iterator[Claim]:
    yield from _against(page)
    winners = page.table("State", "Share of the best (%)", "Pattern")
    patterns = winners["Pattern"].nunique()
    best = winners[winners["Share of the best (%)"].isin(["100", "100.0"])]
    alone = best[~best["Pattern"].duplicated(keep=False)]  # others round to 100 % too
    clear = _clear(winners)
    for name, own in best.groupby("System"):
        led = Span(count(alone[alone["Pattern"].isin(clear)]["System"], str(name)), len(own))
        yield Claim(
            rf"{re.escape(name)} (?:and .* have|has) the .* in # of # patterns", led, patterns
        )
        yield Claim(rf", {re.escape(name)} in #(?=,|\.| \()", led)
        yield Claim(rf"{re.escape(name)} is first in #", led)
    yield from _lead_sizes(winners)
    close = best[~best["Pattern"].isin(clear)]
    level = close["State"] == "untested"
    yield Claim("In # patterns? the first two are within # %", close[level]["Pattern"].nunique(), 2)
    yield Claim("In # patterns? the order is", close[~level]["Pattern"].nunique())
    proven = best[best["State"] == "leads"]["Pattern"].nunique()
    yield Claim("the most IOPS(?:, proven)? in all # patterns", patterns)
    yield Claim("# of these leads", proven)
    led, untested = (own["Pattern"].nunique() for own in (best, best[best["State"] == "untested"]))
    yield Claim("(?:significantly ahead|Proven) in # of # patterns?", proven, led)
    yield Claim("Proven in all # patterns", [proven, led])
    yield Claim("# (?:is|are) from single runs", untested)
    yield Claim("order in # patterns? rests", led)
    cost = "IOPS per 1 % of a node's CPU"
    for line, part in lines(page):
        if " of its CPU" in line and cost in winners:
            yield Claim("per # % of its CPU", 1, part=part)
            yield Claim("The last of # systems", winners["System"].nunique(), part=part)
            for row in winners.to_dict("records"):
                if f"In {pattern_words(row['Pattern'])} at" in line:
                    name = re.escape(row["System"])
                    yield Claim(
                        rf"{name},? (?:delivers )?#(?= IOPS|,|\.| and )", row[cost], part=part
                    )
    yield from _shares(page, page.table("System", "Scheme", "Usable share of raw (%)"))


def _clear(winners: pd.DataFrame) -> list[str]:
    """Return the patterns with a first: shown by a test, or by more than 2 % in single runs."""
    clear = []
    for pattern, own in winners.groupby("Pattern"):
        order = own[own["State"] != "missing"]
        shares = sorted(middle(share) for share in order["Share of the best (%)"])[-2:]
        sure = set(order["State"]) & {"leads", "alone"}
        if sure or ("tied" not in set(order["State"]) and shares[0] < 98):
            clear.append(str(pattern))
    return clear


def _lead_sizes(winners: pd.DataFrame) -> Iterator[Claim]:
    """Return the claims about the gap between the first and another, from the IOPS of a pattern."""
    if "IOPS" not in winners:
        return
    rows = []
    for pattern, own in winners.groupby("Pattern", sort=False):
        own = own[own["IOPS"].map(lambda cell: span(cell) is not None)]
        order = own.loc[own["IOPS"].map(middle).sort_values(ascending=False).index]
        first = order.iloc[0]
        for place, row in enumerate(order.iloc[1:].to_dict("records")):
            ratio = through(lambda a, b: a / b, first["IOPS"], row["IOPS"])
            rows.append({"Pattern": pattern, "first": first["System"], "state": first["State"],
                         "place": place, "other": row["System"], "ratio": ratio,
                         "iops": first["IOPS"], "others_iops": row["IOPS"]})  # fmt: skip
    gaps = pd.DataFrame(rows)
    if gaps.empty:
        return
    second, tied = gaps[gaps["place"] == 0], gaps[gaps["state"] == "tied"]
    for row in second.to_dict("records"):
        where = f"In {pattern_words(row['Pattern'])} it has # IOPS"
        yield Claim(f"{where}, {re.escape(row['other'])} #", row["iops"], row["others_iops"])
    clear = second[second["Pattern"].isin(_clear(winners))]
    for name, own in clear.groupby("first"):
        named = re.escape(name)
        second_ = r" the second-best in # patterns? \("
        yield from _ahead(own, rf"{named} has ", second_, " (?:than|of)")
        yield from _ahead(own, rf"{named} (?:has )?", r" in #(?: other)?(?: patterns?)?(?:,|\.)")
    best = tied[tied["place"] == 0]
    yield from _ahead(best, "the best system has ", " the second-best", " (?:than|of)")
    yield Claim("In # patterns? the best system has", tied["Pattern"].nunique())
    for name, own in tied[tied["place"] > 0].groupby("other"):
        ahead = rf" {re.escape(name)}(?: in #)? \(significant\)"
        yield from _ahead(own, "and ", ahead, " (?:than|of)")


def _ahead(gaps: pd.DataFrame, before: str, after: str, of: str = "") -> Iterator[Claim]:
    """Return the claims about a range of ratios, as per cent more or as a factor."""
    if gaps.empty:
        return
    ratios = list(gaps["ratio"])
    more = [Span(100 * (ratio.lo - 1), 100 * (ratio.hi - 1)) for ratio in ratios]
    for values, words in ((more, f"% more IOPS{of}"), (ratios, f"times the IOPS{of}")):
        low = most(values) if len(values) == 1 else least(values)
        counts = [len(gaps)] * after.count("#")
        yield Claim(f"{before}#(?: to #)? {words}{after}", low, most(values), *counts)


def _shares(page: Page, table: pd.DataFrame) -> Iterator[Claim]:
    """Return the claims about usable shares, by the name before or after them."""
    for row in table.to_dict("records"):
        share, kept = row["Usable share of raw (%)"], parse_scheme(row["Scheme"]).reserve_share
        without = through(lambda pct, kept=kept: pct / (1 - kept), share)
        name, others = re.escape(row["System"]), r"(?:(?:,| and) [^%.]*?)?"
        yield Claim(rf"{name}{others} (?:leaves|each leave) # %", share)
        yield Claim(rf"usable[^%.]*, {name} # %", share)
        yield Claim(rf"(?:leave|to) # % \({name}\)", share)
        yield Claim(rf"Without [^%.]*{name}{others} would leave # %", without)
        yield Claim(rf"(?<!repairs, ){name}{others} would leave # %", without if kept else share)


def _09(page: Page) -> Iterator[Claim]:
    capacity = page.table("System", "Scheme", "Usable share of raw (%)")
    yield from _shares(page, capacity)
    front = page.table("Pattern", "System", "Front")
    own = capacity[capacity["System"].isin(front["System"])] if len(front) else capacity
    shares = own["Usable share of raw (%)"]
    top = shares.map(middle) == shares.map(middle).max()
    others = (int((~top).sum()), least(shares[~top]), most(shares[~top]))
    yield Claim("the other # (?:systems|schemes) (?:# to )?# %", *others)
    yield Claim("# (?:systems|schemes) leave # %", int(top.sum()), most(shares[top]))
    yield Claim("# (?:other schemes|systems) (?:each|would) leave", len(capacity))
    stated = (
        capacity[capacity["Stated (%)"].map(span).notna()]
        if "Stated (%)" in capacity
        else capacity.head(0)
    )
    fits = sum(
        abs(middle(row["Stated (%)"]) - middle(row["Usable share of raw (%)"])) < 0.1
        for _, row in stated.iterrows()
    )
    reserves = sum(parse_scheme(formula).reserve_share > 0 for formula in stated["Scheme"])
    yield Claim(
        "# of # published percentages? of usable capacity match their layout",
        fits,
        len(stated),
    )
    yield Claim("# of these percentages include", reserves)


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
    "00_files": _00,
    "04_compare": _04,
    "09_capacity": _09,
    "12_regression": _12,
    "13_failure": _13,
    "template": _against,
}


def disagreements(page: Page) -> list[str]:
    """Return every number of a page of `RULES` that its tables contradict or do not have."""
    return judge(page, RULES[page.notebook](page)) if page.notebook in RULES else []
