"""The answer of a comparison in a few sentences: the finding, each kind of I/O, undecided tests, limits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import asked_by
from hcilib.analyse.compare.cells import listed as levels
from hcilib.analyse.compare.contrast import MOST_RUNS, least_difference
from hcilib.analyse.compare.overall import overall
from hcilib.model.caveats import warnings_of
from hcilib.model.metrics import SETTINGS, metric_of
from hcilib.say.caveats import FACTOR_WORDS
from hcilib.say.compare.comparisons import end, much
from hcilib.say.compare.leaders import winners_facts
from hcilib.say.words import (
    INTERVAL,
    Labels,
    counted,
    listed,
    more_or_less,
    noun,
    pattern_words,
    sentence,
    share,
    size,
    span,
    with_interval,
)

Truth: TypeAlias = Mapping[str, float] | pd.DataFrame

DECIDED = ("lower", "higher", "same")
ALIKE = 1.1
"""Ratios of tests that lie within this factor of each other are given as their mean, others as a range."""
SPEEDS = {"lower": "slower", "higher": "faster"}
RATES = ("iops", "read_iops", "write_iops", "bw_bytes")
"""Metrics of which lower is called slower."""
KINDS = {"rw": "mixed I/O", "write": "writes", "read": "reads"}
"""Part of a pattern's name -> the kind of I/O."""
SETTING_WORDS = {
    "set_runtime_s": "runtime",
    "ramp_time_s": "ramp_time",
    "size_bytes": "size",
    "iodepth_options": "queue options",
    "buffer_options": "buffer options",
    "other_options": "options",
}
"""Settings of a run, where fio's name is another."""


def headline(
    comparison: pd.DataFrame,
    challenger: str | None = None,
    labels: Labels = None,
    truth: Truth | None = None,
    winners: pd.DataFrame | None = None,
) -> str:
    """Return the answer of a comparison: the finding, then each kind of I/O, then undecided tests and limits.

    Every test counts where its own verdict puts it, so an undecided one hides no decided one.

    Parameters
    ----------
    comparison : of ``compare``
    challenger : the system to describe; None for every one that was compared
    labels : system -> its name in the sentences
    truth : pattern -> ratio that is known beforehand (drives of set speed), or a table with `pattern`, `ratio` and, if
        it matters, `system` and `iodepth`; the answer then compares it with the intervals
    winners : of ``best_points``; where it has more than two systems, the first line counts the patterns of each. Of a
        metric that is better lower, the answer is about the loads at which it compares the systems, and names them

    Returns
    -------
    str : a line a system; the first sentence of each is its finding

    Raises
    ------
    ValueError : a challenger that the comparison does not hold

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> print(hci.headline(hci.compare(results, baseline="starwind-rdma-pve"), "drbd-tcp-pve"))
    starwind-rdma-pve has more IOPS than drbd-tcp-pve in 3 of 4 single-run tests. It has up to 47 % more, but 3.9 % fewer in 1 test. Without repeats this is unproven.
    """  # noqa: E501
    systems = [str(name) for name in pd.unique(comparison["system"])]
    if challenger is not None and challenger not in systems:
        known = ", ".join(systems) or "none"
        raise ValueError(
            f"challenger is {challenger!r}, which was not compared; compared with the baseline are: {known}"
        )
    if not systems:
        return "No system was measured next to the baseline, so nothing is compared."
    metric = comparison["metric"].iloc[0]
    at_load = _at_equal_load(comparison, winners)
    comparison = comparison if at_load is None else at_load
    tables = (comparison[comparison["system"] == name] for name in ([challenger] if challenger else systems))
    lines = [_against_baseline(_with_truth(rows.reset_index(drop=True), truth), labels or {}) for rows in tables]
    if winners is not None and winners["system"].nunique() > 2:
        lines = [*winners_facts(winners, labels, metric)[:1], *lines]
    if at_load is not None:
        lines.append(f"All of this is at equal load, iodepth {levels(at_load['iodepth'].unique())}.")
    return "\n".join(lines)


def _at_equal_load(comparison: pd.DataFrame, winners: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return the tests at the loads of `best_points`; None where these are each system's own, or not all compared."""
    own = metric_of(comparison["metric"].iloc[0]).better != "lower"
    if winners is None or own or not {"pattern", "iodepth"} <= set(comparison):
        return None
    tests = comparison.merge(winners[["pattern", "iodepth"]].dropna().drop_duplicates())
    return tests if set(tests["system"]) == set(comparison["system"]) else None


def _against_baseline(rows: pd.DataFrame, labels: Mapping[str, str]) -> str:
    system, base = (labels.get(rows[role].iloc[0], rows[role].iloc[0]) for role in ("system", "baseline"))
    if (rows["verdict"] == "missing").all():
        return " ".join(_nothing_common(rows, system, base))
    rows = rows.assign(kind=_kinds(rows))
    sentences = list(_decided(rows, system, base))
    sentences += _undecided(rows, system, base, alone=not sentences)
    sentences += _single_runs(rows, system, base, alone=not sentences)
    if unlike := unlike_words(rows.get("unlike_settings", pd.Series(dtype=object)), system, base):
        sentences[:1] = [f"{first.removesuffix('.')}, but {unlike}." for first in sentences[:1]]
    return " ".join([*sentences, *_beyond_runs(rows)])


def unlike_words(unlike_settings: pd.Series, system: str, base: str) -> str:
    """Return how the runs of two systems were set differently, a clause without its end; empty if they were not."""
    pairs: dict[str, tuple[dict, dict]] = {}
    for name, values in ((n, v) for text in unlike_settings.dropna() if text for n, v in json.loads(text).items()):
        for seen, value in zip(pairs.setdefault(name, ({}, {})), _unlike_parts(name, values), strict=True):
            seen[setting_value(name, value)] = None
    clauses = []
    if pairs.get("direct") in (({"0": None}, {"1": None}), ({"1": None}, {"0": None})):
        cached, other = (system, base) if "0" in pairs.pop("direct")[0] else (base, system)
        clauses.append(f"{cached} used the page cache (direct=0), {other} did not")
    if pairs:
        here, there = (
            listed(f"{SETTING_WORDS.get(name, name)} {'/'.join(both[side]) or 'none'}" for name, both in pairs.items())
            for side in (0, 1)
        )
        clauses.append(f"{system} ran with {here}, {base} with {there}")
    return ", and ".join(clauses)


def _unlike_parts(name: str, values: Sequence) -> list:
    """Return two values of a setting; of lists of options those that are not in both."""
    if not name.endswith("_options"):
        return list(values)
    here, there = (value.split() for value in values)
    return [" ".join(word for word in own if word not in other) for own, other in ((here, there), (there, here))]


def setting_value(name: str, value: object) -> str:
    """Return a setting as text: with its unit, and at most 40 letters."""
    if name.endswith("_s"):
        return f"{value:g} s"
    text = str(value)
    if name == "size_bytes":
        unit = next((unit for unit in (30, 20, 10) if float(text) >= 2**unit), 0)
        text = f"{float(text) / 2**unit:.4g} {('bytes', 'KiB', 'MiB', 'GiB')[unit // 10]}"
    return text if len(text) <= 40 else f"{text[:37]}..."


def _nothing_common(rows: pd.DataFrame, system: str, base: str) -> Iterator[str]:
    yield f"{system} and {base} have no test in common."
    for name in asked_by(rows):
        here, there = (pd.unique(rows.loc[rows[n] > 0, name]) for n in ("n", "n_baseline"))
        if len(here) and len(there) and not set(here) & set(there):
            yield f"Only {base} was measured at {name} {levels(there)}, only {system} at {name} {levels(here)}."
            return


class Part(NamedTuple):
    """The tests of one kind of I/O that have one verdict: their rows, their name, of how many tests."""

    rows: pd.DataFrame
    subject: str
    total: int

    def __str__(self) -> str:
        return f"{self.subject} {'are' if self.subject in ('reads', 'writes') or ' and ' in self.subject else 'is'}"

    @property
    def place(self) -> str:
        """In how many tests, where it is not in all."""
        return "" if len(self.rows) == self.total else f" in {share(len(self.rows), self.total, 'test')}"


def _kinds(rows: pd.DataFrame) -> list[str]:
    if "pattern" not in rows:
        return ["I/O"] * len(rows)
    return [next((word for part, word in KINDS.items() if part in name), name) for name in map(str, rows["pattern"])]


def _parts(rows: pd.DataFrame, verdict: str) -> list[Part]:
    """Return the tests of a verdict by kind of I/O, or by pattern where it holds in some patterns of the kind."""
    parts = []
    for kind, own in rows[rows["verdict"] == verdict].groupby("kind", sort=False):
        others = rows[rows["kind"] == kind]
        if "pattern" in own and set(own["pattern"]) != set(others["pattern"]):
            names = own["pattern"].unique()
            parts.append(Part(own, listed(map(pattern_words, names)), int(others["pattern"].isin(names).sum())))
        else:
            parts.append(Part(own, str(kind), len(others)))
    return parts


def _in_pairs(parts: Sequence[Part]) -> Iterator[str]:
    """Yield a sentence for every two parts that hold in all of their tests, and one for each other part.

    Two intervals are too many numbers for one sentence.
    """
    groups: list[list[Part]] = []
    for part in (part for part in parts if not part.place):
        fits = groups and len(groups[-1]) == 1 and not all(_amount(p.rows)[1] for p in (part, *groups[-1]))
        groups[-1:] = [[*groups[-1], part]] if fits else [*groups[-1:], [part]]
    for some in [*groups, *([part] for part in parts if part.place)]:
        yield sentence(", ".join(_clause(part, first=part is some[0]) for part in some))


# ---- decided tests


def _decided(rows: pd.DataFrame, system: str, base: str) -> Iterator[str]:
    """Yield the finding, its parts where there are several, and what drives of set speed predict."""
    parts = {verdict: found for verdict in DECIDED if (found := _parts(rows, verdict))}
    if not parts:
        return
    verdict = next(iter(parts))
    if {"lower", "higher"} <= set(parts):
        yield _both_ways(rows, parts, system, base)
    else:
        own, [part, *more] = pd.concat([part.rows for part in parts[verdict]]), parts[verdict]
        place, alone = share(len(own), len(rows), "test"), not more and " and " not in part.subject
        if alone:
            place = part.subject if part.total == 1 else f"{share(len(own), part.total, 'test')} of {part.subject}"
        amount, interval = _amount(own, pool=alone)
        finding = f"{_finding(own, system, base, amount)} in {place}"
        yield from with_interval(finding, interval)
        if alone:
            del parts[verdict]
    for own_parts in parts.values():
        for factor in (False, True):
            alike = [part for part in own_parts if _amount(part.rows)[0].endswith("times") is factor]
            yield from _in_pairs(alike)
    yield from _prediction(rows)


def _both_ways(rows: pd.DataFrame, parts: Mapping[str, Sequence[Part]], system: str, base: str) -> str:
    counts = {verdict: sum(len(part.rows) for part in parts[verdict]) for verdict in ("higher", "lower")}
    most, least = sorted(counts, key=lambda verdict: -counts[verdict])
    name, place = rows["metric"].iloc[0], share(counts[most], len(rows), "test")
    if name in RATES:
        return f"{system} is {SPEEDS[most]} than {base} in {place} and {SPEEDS[least]} in {counts[least]}."
    return f"{system} has {most} {noun(metric_of(name))} than {base} in {place} and {least} in {counts[least]}."


def _finding(rows: pd.DataFrame, system: str, base: str, amount: str) -> str:
    """Return how far one system is from the other, by the verdict that all rows have."""
    name, verdict, factor = rows["metric"].iloc[0], rows["verdict"].iloc[0], amount.endswith("times")
    if name in RATES:
        if verdict == "same":
            return f"{system} is as fast as {base} within {amount}"
        return f"{system} is {amount} {'as fast as' if factor else f'{SPEEDS[verdict]} than'} {base}"
    what = noun(metric_of(name))
    if verdict == "same":
        return f"{system} has the same {what} as {base} within {amount}"
    return f"{system} has {much(amount, name, rows['ratio'].iloc[0], base)}"


def _amount(rows: pd.DataFrame, pool: bool = True) -> tuple[str, str]:
    """Return how far the ratios of one verdict are from 1, and the interval of their mean.

    Of ratios that are not alike, or not to be pooled, a range without an interval.
    """
    ratios = rows["ratio"]
    if rows["verdict"].iloc[0] == "same":
        reach = max(rows["tost_hi"].max(), 1 / rows["tost_lo"].min()) - 1
        return f"{ceil(round(100 * reach, 6))} %", ""
    if not pool or ratios.max() / ratios.min() > ALIKE:
        return span(ratios.min(), ratios.max()), ""
    mean = overall(rows).iloc[0]
    lo, hi = mean["ratio_lo"], mean["ratio_hi"]
    amount = size(mean["ratio"], lo, hi)
    interval = span(lo, hi) if (lo - 1) * (hi - 1) > 0 else amount
    return amount, "" if interval == amount else interval


def _clause(part: Part, first: bool) -> str:
    """Return one part of a sentence about parts of one verdict; the first has the words that they share."""
    name, verdict = part.rows["metric"].iloc[0], part.rows["verdict"].iloc[0]
    amount, interval = _amount(part.rows)
    interval = f" ({INTERVAL} {interval})" * bool(interval)
    amount = f"within {amount}" if verdict == "same" else amount
    of = "" if name in RATES else "of "
    if not first:
        return f"{of}{part.subject} {amount}{interval}{part.place}"
    fast, alike = ("as fast", "as fast") if name in RATES else ("as high", "the same")
    word = fast if amount.endswith("times") else SPEEDS.get(verdict, "") if name in RATES else verdict
    words = f"{alike} {amount}" if verdict == "same" else f"{amount} {word}"
    subject = str(part) if name in RATES else f"{noun(metric_of(name))} of {part.subject} is"
    return f"{subject} {words}{interval}{part.place}"


# ---- undecided tests, single runs, and limits of more runs


def _undecided(rows: pd.DataFrame, system: str, base: str, alone: bool) -> Iterator[str]:
    open_ = rows[rows["verdict"] == "undecided"]
    if open_.empty:
        return
    if alone:
        name = rows["metric"].iloc[0]
        place = _in_any(len(open_), len(rows))
        if name in RATES:
            yield f"{system} is not significantly faster or slower than {base} in {place}."
        else:
            yield f"{system} and {base} do not differ significantly in {noun(metric_of(name))} in {place}."
    else:
        for part in _parts(rows, "undecided"):
            place = f" in {_in_any(len(part.rows), part.total)}" * (part.total > 1)
            differ = "difference in {} is" if len(part.rows) == 1 else "differences in {} are"
            yield f"The {differ.format(part.subject)} not significant{place}."
    if lost := int(((open_["ratio_lo"] > 1) | (open_["ratio_hi"] < 1)).sum()):  # no more among all that was tested
        yield f"Before the correction for multiple tests, {lost} of them {'was' if lost == 1 else 'were'} significant."
    yield from _runs_needed(open_["runs_to_decide"].dropna())


def _in_any(count: int, total: int) -> str:
    """Return how many of how many, below a "not": ``2 of 3 tests``, ``any of the 3 tests``, ``either test``."""
    every = {1: "the only test", 2: "either test"}.get(total, f"any of the {total} tests")
    return every if count == total else share(count, total, "test")


def _runs_needed(runs: pd.Series) -> Iterator[str]:
    if runs.empty:
        return
    some = runs[np.isfinite(runs)]
    if some.empty:
        yield f"More than {MOST_RUNS} runs of each test would be needed."
    elif len(some) == len(runs):
        yield f"{some.max():.0f} runs of each test would decide {'this' if len(runs) == 1 else 'them'}."
    else:
        rest = len(runs) - len(some)
        others = "The other needs" if rest == 1 else f"The other {rest} need"
        decided = f"{len(some)} of these {len(runs)} tests"
        yield f"{some.max():.0f} runs of each would decide {decided}. {others} over {MOST_RUNS} runs."


def _single_runs(rows: pd.DataFrame, system: str, base: str, alone: bool) -> Iterator[str]:
    """Yield who has more in how many tests of single runs; if there are no others, whoever leads is the subject."""
    points = rows[(rows["verdict"] == "untested") & (rows["ratio"] > 0)]
    if points.empty:
        return
    name, ratios = points["metric"].iloc[0], points["ratio"]
    sign = -1 if metric_of(name).better == "lower" else 1
    if alone and (sign * np.sign(ratios - 1)).sum() < 0:
        system, base, ratios = base, system, 1 / ratios
    lead, trail = (ratios[sign * (ratios - 1) > 0], ratios[sign * (ratios - 1) < 0])
    what, tests = noun(metric_of(name)), counted(len(points), "single-run test")
    sides = [side for side in (lead, trail) if len(side)]
    if not sides:
        yield f"{system} has the same {what} as {base} in {share(len(points), len(points), 'single-run test')}."
    elif not alone and len(sides) == 1:
        every = share(len(points), len(points), "single-run test")
        yield sentence(f"{every} {_have(points)} {_up_to(sides[0], name)} {what}")
    elif not alone:
        both = " and ".join(f"{len(side)} {_have(side)} {_up_to(side, name)}" for side in sides)
        yield f"Of {tests}, {both} {what}."
    elif len(points) == 1:
        yield f"{system} has {much(size(ratios.iloc[0]), name, ratios.iloc[0], base)} in {tests}."
    else:
        word, place = more_or_less(name, lead.iloc[0]), share(len(lead), len(points), "single-run test")
        yield f"{system} has {word} {what} than {base} in {place}."
        others = f", but {_up_to(trail, name)} in {counted(len(trail), 'test')}" if len(trail) else ""
        yield f"{'It has' if 'iops' in name else 'It is'} {_up_to(lead, name)}{others}."
    yield "Without repeats this is unproven."


def _have(rows: pd.Series | pd.DataFrame) -> str:
    return "has" if len(rows) == 1 else "have"


def _up_to(ratios: pd.Series, name: str) -> str:
    """Return the ratio that is furthest from 1: ``up to 47 % more``, ``3 times as many``."""
    far = ratios.loc[np.log(ratios).abs().idxmax()]
    return f"up to {end(far, name)}" if len(ratios) > 1 else end(far, name)


def _beyond_runs(rows: pd.DataFrame) -> Iterator[str]:
    """Yield what more runs would not change."""
    stalled = int((rows["ratio"].isna() & rows["verdict"].ne("missing")).sum())
    if stalled:
        yield f"{counted(stalled, 'test')} had a run without I/O, so there is no ratio."
    if missing := int((rows["verdict"] == "missing").sum()):
        yield f"In {share(missing, len(rows), 'test')} a system was not measured."
    names = dict.fromkeys(name for names in rows["differs_in"].dropna() for name in names.split())
    names = {name: None for name in names if name not in SETTINGS}
    if names:
        also = listed(FACTOR_WORDS.get(name, name) for name in names)
        yield f"The systems also differ in {also}, which may explain part of this."
    if busy := sum("busy" in caveats.codes for caveats in warnings_of(rows)):
        yield f"A node's CPU was above 90 % in {share(busy, len(rows), 'test')}."
        yield "Repeat this on a quieter machine or with slower drives."


# ---- drives of set speed


def _with_truth(rows: pd.DataFrame, truth: Truth | None) -> pd.DataFrame:
    if truth is None:
        return rows.assign(truth=np.nan)
    table = truth if isinstance(truth, pd.DataFrame) else pd.DataFrame(truth.items(), columns=["pattern", "ratio"])
    keys = [c for c in table.columns if c in rows and c != "ratio"]
    known = table[[*keys, "ratio"]].rename(columns={"ratio": "truth"})
    return rows.assign(truth=rows[keys].merge(known, on=keys, how="left", validate="many_to_one")["truth"].to_numpy())


def _prediction(rows: pd.DataFrame) -> Iterator[str]:
    """Yield whether decided tests are as the drives' speeds predict: inside the interval, or no further from it than
    the least difference.

    Where runs repeat to three parts in ten thousand, a reader finds 50.0 % beside 50.0 to 50.1.
    """
    known = rows[rows["truth"].notna() & rows["verdict"].isin(DECIDED)]
    if known.empty:
        return
    least = np.exp(least_difference(known["margin"]))
    inside = (known["ratio_lo"] / least <= known["truth"]) & (known["truth"] <= known["ratio_hi"] * least)
    same = (known["verdict"] == "same") & (np.abs(np.log(known["truth"])) <= np.log1p(known["margin"]))
    wrong = known[~(inside | same)]
    if len(wrong):
        row = wrong.iloc[0]
        yield (
            f"The drives' set speeds predict a ratio of {row['truth']:.3g} for {row['kind']}, outside the measured "
            f"interval of {row['ratio_lo']:.3g} to {row['ratio_hi']:.3g}, in {share(len(wrong), len(known), 'test')}."
        )
        return
    in_order = known.sort_values("verdict", key=lambda verdicts: verdicts.map(DECIDED.index), kind="stable")
    in_order = in_order.assign(size=[_predicted(t, rows["metric"].iloc[0]) for t in in_order["truth"]])
    predicted = in_order.groupby("size", sort=False)["kind"].unique()
    each = [words.format(listed(kinds)) for words, kinds in predicted.items()]
    yield f"The drives' set speeds predict {listed(each)}."


def _predicted(ratio: float, name: str) -> str:
    """Return what a known ratio predicts, with a place for the kinds of I/O: ``50 % slower {}``."""
    if round(ratio, 6) == 1:
        return "no difference in {}"
    amount = size(ratio)
    if name not in RATES:
        return f"{amount} {more_or_less(name, ratio)} {noun(metric_of(name))} of {{}}"
    fast = f"{{}} {amount} as fast"
    return fast if amount.endswith("times") else f"{amount} {SPEEDS['higher' if ratio > 1 else 'lower']} {{}}"
