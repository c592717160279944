"""What each notebook comes to, in one sentence: subject first, then how much, how sure, of how many (docs/WORDS.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from hcilib.analyse.compare.cells import asked_by
from hcilib.analyse.compare.compare import rank
from hcilib.analyse.compare.overall import headline
from hcilib.analyse.curves.curves import peak
from hcilib.model.metrics import metric, noun, pattern_order, pattern_words
from hcilib.say.sweep import peak_sentence

LAWS = {"little": "Little's law", "bandwidth": "IOPS times block size", "cpu_efficiency": "IOPS per CPU"}
Labels = Mapping[str, str] | None


def files_answer(comparison: pd.DataFrame, audit: pd.DataFrame, results: pd.DataFrame) -> str:
    """Of anybody's files: who is faster (``compare``'s headline; of one system alone its peak), and which laws of
    physics (``audit``) their numbers break, as then one of them is not what it is called."""
    load = [name for name in asked_by(comparison) if name != "iodepth"]
    said = headline(comparison)
    if not len(comparison):
        alone = "One system alone: give a second folder as well, or names that tell two systems apart."
        said = f"{peak_sentence(peak(results, by=['system', *load]))} {alone}"
    broken = audit[audit["ok"].eq(False)].groupby("check", sort=False).size()
    asked = audit[audit["ok"].notna()].groupby("check").size()
    found = " and ".join(f"{n} of {asked[check]} checks of {LAWS.get(check, check)}" for check, n in broken.items())
    return f"{said} Before this is used: {found} fail." if found else said




def latency_answer(one: pd.DataFrame, cost: pd.DataFrame, labels: Labels = None, margin: float = 0.05) -> str:
    """Who answers one outstanding I/O first, by pattern, and what stable writes cost (``pattern_cost``).

    A leader is named as one only where ``rank`` shows it; systems that no test tells apart are named together, and of
    single printed numbers it is said that they are untested.
    """
    labels = labels or {}
    ranks = rank(one, "lat_ns", by=("pattern", "iodepth"), margin=margin)
    ranks = ranks[ranks["n"] > 0]
    patterns = {name: ranks[ranks["pattern"] == name] for name in pattern_order(ranks["pattern"].unique())}
    if ranks["system"].nunique() == 1:
        centers = {pattern_words(name): rows["lat_ns"].iloc[0] for name, rows in patterns.items()}
        own = ", ".join(f"{words} {metric('lat_ns').show(center)} ms" for words, center in centers.items())
        parts = [f"One I/O on {labels.get(ranks['system'].iloc[0], ranks['system'].iloc[0])} takes: {own}"]
    else:
        parts = _who_is_first(ranks, patterns, labels)
    known = cost.dropna(subset=["ratio"])
    for pattern in pattern_order(known["pattern"].unique()):
        own = known[known["pattern"] == pattern]
        dearest, times = own.loc[own["ratio"].idxmax(), "system"], own["ratio"]
        span = f"{times.min():.2f}" if len(times) == 1 else f"{times.min():.2f} to {times.max():.2f}"
        most = "" if len(times) == 1 else f", most on {labels.get(dearest, dearest)}"
        what = "one with fdatasync" if str(pattern).endswith("-fdatasync") else "a synchronous write"
        parts.append(f"{what} takes {span} times a plain one{most}")
    return "; ".join(parts) + "."


def _who_is_first(ranks: pd.DataFrame, patterns: Mapping[str, pd.DataFrame], labels: Mapping[str, str]) -> list[str]:
    """A clause for every system that is alone in front, then for those tied, each with its patterns."""
    ahead: dict[tuple[str, ...], list[str]] = {}
    proven = [(rows["n"] > 1).all() for rows in patterns.values()]
    for (name, rows), tested in zip(patterns.items(), proven, strict=True):
        rows = rows.sort_values("lat_ns")
        who = tuple(labels.get(name, name) for name in rows.loc[rows["rank"] == rows["rank"].min(), "system"])
        shown = f"{metric('lat_ns').show(rows['lat_ns'].iloc[0])} ms{' at best' * (len(who) > 1)}"
        shown += ", one number each: untested" * (any(proven) and not tested and len(rows) > 1)
        ahead.setdefault(who, []).append(f"{pattern_words(name)} ({shown})")
    of = f"with one outstanding I/O, of {ranks['system'].nunique()} systems"
    said = []
    for who, patterns_led in sorted(ahead.items(), key=lambda item: (len(item[0]) > 1, -len(item[1]))):
        said.append(f"{_and(who)} {'are tied for first' if len(who) > 1 else 'is first'} in {_and(patterns_led)}")
    said[0] = f"{_capital(of)}: {said[0]}"
    return said + ["each is one number, so none is proven"] * (not any(proven))






def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def unknown_facts(
    winners: pd.DataFrame, results: pd.DataFrame, tail: str = "p99_ns", labels: Labels = None
) -> list[str]:
    """What a comparison's `results` leave open, whoever leads (`winners`): the tail of the latency, the nodes' CPU, and
    how much one number each would vary; no sentence where all of it is known."""
    labels = labels or {}
    said = []
    for name, what in ((tail, f"the tail ({noun(metric(tail))})"), ("node_cpu_pct", "the nodes' CPU")):
        given = results.reindex(columns=["system", name]).groupby("system", sort=False)[name].count()
        absent = [labels.get(system, system) for system in given.index[given == 0]]
        if len(absent) == len(given):
            said.append(f"{what}, which no source gives")
        elif absent:
            said.append(f"{what} of {', '.join(absent)}")
    if (winners["n"] <= 1).all():
        said.append("what a second campaign would give, as each is one number")
    return [f"Not known: {'; '.join(said)}."] if said else []
