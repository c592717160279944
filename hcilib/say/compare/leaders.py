"""Sentences about who is first: in which pattern, with one I/O, from which load on, and what the sources leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hcilib.analyse.compare.compare import rank
from hcilib.model.caveats import warnings_of
from hcilib.model.metrics import better_sign, metric, metric_of, pattern_order
from hcilib.say.compare.comparisons import much
from hcilib.say.words import (
    LONGEST,
    Labels,
    counted,
    listed,
    more_or_less,
    noun,
    number,
    pattern_words,
    sentence,
    share,
    size,
    span,
    where,
)

CLOSE = 1.02
"""Single runs whose ratio is within this factor have no first: repeats often differ by as much."""
SURE = {"shown": "significant", "untested": "single runs"}
"""Kind of a lead -> how sure it is."""
GAPS = ["pattern", "first", "gap", "second", "second_ratio", "beyond", "beyond_ratio"]
MOST = 4
"""Of more systems than these a sentence has the first and the last."""


def first_places(winners: pd.DataFrame, does: str, do: str, labels: Labels = None) -> str:
    """Return who is first in how many patterns and how sure that is, empty where no system has a value.

    Patterns whose order is open have no first and are counted apart, so the sentence says what its number counts.

    Parameters
    ----------
    winners : of ``best_points``
    does, do : what the first one does and several do, such as ``has the most IOPS``
    labels : system -> its name in the sentence
    """
    best = winners[(winners["pct_of_best"] - 100).abs() < 1e-9]
    if best.empty:
        return ""
    clear = best[[_is_clear(row, winners) for row in best.to_dict("records")]]
    close = best.drop(clear.index)
    best = clear if len(clear) else best
    counts = best.groupby("system", sort=False, observed=True).size().sort_values(ascending=False, kind="stable")
    named = [((labels or {}).get(name, name), count) for name, count in counts.items()]
    first = [name for name, count in named if count == counts.iloc[0]]
    others = [f"{name} in {count}" for name, count in named[len(first) :]]
    verb, each = (do, " each") if len(first) > 1 else (does, "")
    proven = int(best["state"].eq("leads").sum())
    untested = bool(best["state"].eq("untested").all())
    doubt = " (single runs, so untested)" if untested else "" if proven else " (not significant)"
    sure = ", proven" if proven == len(best) else ""
    head = f"{listed(first)} {verb}{sure} in {share(counts.iloc[0], winners['pattern'].nunique(), 'pattern')}{each}"
    found = [f"{', '.join([head, *others])}{doubt}."]
    if len(found[0]) > LONGEST:
        found = [f"{head}{doubt}."]
        if others:
            found.append(f"{', '.join(others)}.".replace(" in ", " is first in ", 1))
    if proven and not sure:
        found.append(f"{proven} of these leads {'are' if proven > 1 else 'is'} significant.")
    return " ".join([*found, *_close(close)] if len(clear) else found)


def _is_clear(first: Mapping[str, Any], winners: pd.DataFrame) -> bool:
    """Return whether the first of a pattern is ahead: shown by a test, or in single runs by more than `CLOSE`."""
    if first["state"] != "untested":
        return first["state"] != "tied"
    others = winners.loc[(winners["pattern"] == first["pattern"]) & (winners["system"] != first["system"])]
    ratios = others["pct_of_best"].dropna() / 100
    return bool((np.maximum(ratios, 1 / ratios) > CLOSE).all())


def _close(close: pd.DataFrame) -> Iterator[str]:
    """Yield in how many patterns no system is first."""
    untested = int(close["state"].eq("untested").sum())
    if untested:
        yield f"In {counted(untested, 'pattern')} the first two are within {100 * (CLOSE - 1):.0f} % of each other."
    if tied := len(close) - untested:
        yield f"In {counted(tied, 'pattern')} the order is not significant."


def winners_facts(winners: pd.DataFrame, labels: Labels = None, metric: str = "iops") -> list[str]:
    """Return who is first in how many patterns, how sure that is, and the IOPS for each percent of CPU.

    Parameters
    ----------
    winners : of ``best_points``
    labels : system -> its name in the sentences
    metric : what the winners are of

    Returns
    -------
    list[str] : who is first, and CPU where it is known

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> print(hci.winners_facts(hci.best_points(results))[0])
    drbd-tcp-pve has the most IOPS in the only pattern (single runs, so untested).
    """
    first = first_places(winners, f"has {extreme(metric)}", f"have {extreme(metric)}", labels)
    load = "its best load" if better_sign(metric) > 0 else "equal load"
    return [first, *_per_cpu(winners, labels or {}, load)] if first else []


def leads_proof(winners: pd.DataFrame) -> str:
    """Return whether tests show the leads, as a decider asks: yes, no or in part.

    Parameters
    ----------
    winners : of ``best_points``

    Returns
    -------
    str : one sentence, empty where no system has a value

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.leads_proof(hci.best_points(results))
    'Not proven: the order in 1 pattern rests on single runs, which cannot be tested.'
    """
    best = winners[(winners["pct_of_best"] - 100).abs() < 1e-9]
    if best.empty:
        return ""
    proven, untested = (int(best["state"].eq(state).sum()) for state in ("leads", "untested"))
    patterns = counted(len(best), "pattern")
    if untested == len(best):
        return f"Not proven: the order in {patterns} rests on single runs, which cannot be tested."
    are = "is" if untested == 1 else "are"
    single = f" {untested} {are} from single runs, which cannot be tested." if untested else ""
    if not proven:
        return f"Not proven: the first system is significantly ahead in 0 of {patterns}.{single}"
    return f"Proven in {share(proven, len(best), 'pattern')}: there, the first system is significantly ahead.{single}"


def leads_sizes(winners: pd.DataFrame, labels: Labels = None, metric: str = "iops") -> str:
    """Return how far the first is ahead of the second, in the patterns in which ``winners_facts`` has a first.

    Parameters
    ----------
    winners : of ``best_points``
    labels : system -> its name in the sentences
    metric : what the winners are of

    Returns
    -------
    str : the system that is first most often, with the values of its largest lead, then the others that
        are first, then the patterns in which no test shows a lead, and of whom one is shown there.
        Empty where fewer than two systems have a value in any pattern

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> print(hci.leads_sizes(hci.best_points(results)).replace(". ", ".\\n"))
    drbd-tcp-pve has 4.1 % more IOPS than the second-best in 1 pattern (single runs).
    In 1M read it has 33,100 IOPS, starwind-rdma-pve 31,800.
    """
    gaps = pd.DataFrame(_gaps(winners, labels or {}), columns=GAPS)
    led = gaps[gaps["gap"].isin(SURE)]
    if led.empty:  # as in `first_places`
        led = gaps[gaps["gap"] == "close"].assign(gap="untested")
    order = sorted((rows for _, rows in led.groupby(["gap", "first"], sort=False)), key=_place)
    said = []
    for most in order[:1]:
        ahead = _ahead(most["second_ratio"], metric, "the second-best")
        patterns = counted(len(most), "pattern")
        said.append(f"{most['first'].iloc[0]} has {ahead} in {patterns} ({SURE[most['gap'].iloc[0]]}).")
        if metric == "iops":
            said.append(_largest(most, winners))
    if others := order[1:]:
        said.append(_others(others, metric, order[0]["gap"].iloc[0]))
    tied = gaps[gaps["gap"] == "tied"]
    return " ".join([*said, *_ties(tied, metric)])


def _place(lead: pd.DataFrame) -> tuple[bool, int]:
    """Return the place of a system's leads: those that a test shows first, then by their number."""
    return lead["gap"].iloc[0] != "shown", -len(lead)


def _largest(gaps: pd.DataFrame, winners: pd.DataFrame) -> str:
    """Return the IOPS of the first and the second in the pattern of the largest gap."""
    gap = gaps.loc[gaps["second_ratio"].idxmax()]
    iops = winners.loc[winners["pattern"] == gap["pattern"], "iops"].dropna().sort_values(ascending=False)
    first, second = (metric_of("iops").show(value) for value in iops.iloc[:2])
    return f"In {pattern_words(gap['pattern'])} it has {first} IOPS, {gap['second']} {second}."


def _others(leads: Sequence[pd.DataFrame], metric: str, gap: str) -> str:
    """Return how far each other system is ahead where it is first; of more than two as one range.

    `gap` is the certainty of the sentence before, which is not repeated.
    """
    if len(leads) > 2:
        together = pd.concat(leads)
        names = listed(together["first"].unique(), "or")
        return f"In {len(together)} other patterns, {names} has {_ahead(together['second_ratio'], metric)}."
    parts: list[str] = []
    for rows in leads:
        has, patterns = ("", "") if parts else (" has", " pattern" if len(rows) == 1 else " patterns")
        sure = "" if rows["gap"].iloc[0] == gap else f" ({SURE[rows['gap'].iloc[0]]})"
        more = _ahead(rows["second_ratio"], metric)
        parts.append(f"{rows['first'].iloc[0]}{has} {more} in {len(rows)}{patterns}{sure}")
    return f"{', '.join(parts)}."


def _ties(tied: pd.DataFrame, metric: str) -> Iterator[str]:
    """Yield how far the first is ahead where no test shows it, and of whom one shows it there."""
    if tied.empty:
        return
    ahead = _ahead(tied["second_ratio"], metric, "the second-best")
    begin = f"In {counted(len(tied), 'pattern')} the best system has {ahead} (not significant)"
    beyond = tied.dropna(subset=["beyond"])
    if len(beyond):
        ahead = _ahead(beyond["beyond_ratio"], metric, listed(beyond["beyond"].unique(), "or"))
        where_ = "" if len(beyond) == len(tied) else f" in {len(beyond)}"
        begin += f", and {ahead}{where_} (significant)"
    yield f"{begin}."


def _gaps(winners: pd.DataFrame, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield a row a pattern: first, second, their ratio, how sure it is, and the next that a test shows.

    The gap is `shown` or `tied` by a test; in single runs `untested`, or `close` where no system is first.
    """
    for pattern, rows in winners.dropna(subset=["pct_of_best"]).groupby("pattern", sort=False, observed=True):
        nearest = (rows["pct_of_best"] - 100).abs().argsort(kind="stable")
        first, *others = rows.iloc[nearest].to_dict("records")
        if not others:
            continue
        tied = str(first["tied_with"]).split(", ")
        apart = [row for row in others if row["system"] not in tied and min(row["n"], first["n"]) > 1]
        clear = _is_clear(first, winners)
        untested = first["state"] == "untested"
        gap = ("untested" if clear else "close") if untested else "shown" if clear else "tied"
        row = {"pattern": pattern, "first": labels.get(first["system"], first["system"]), "gap": gap}
        for role, other in (("second", others[0]), ("beyond", next(iter(apart), None))):
            row[role] = labels.get(other["system"], other["system"]) if other else None
            row[f"{role}_ratio"] = 100 / other["pct_of_best"] if other else float("nan")
        yield row


def _ahead(ratios: pd.Series, metric: str, other: str = "") -> str:
    """Return how far the first is ahead, as a range over patterns: ``10 to 64 % more IOPS than B``."""
    amount = size(ratios.iloc[0]) if len(ratios) == 1 else span(ratios.min(), ratios.max())
    return much(amount, metric, ratios.iloc[0], other)


def extreme(metric: str) -> str:
    """Return ``the most IOPS`` or ``the lowest mean latency``."""
    what = metric_of(metric)
    return f"the {'most' if metric == 'iops' else 'lowest' if what.better == 'lower' else 'highest'} {noun(what)}"


def _per_cpu(winners: pd.DataFrame, labels: Mapping[str, str], load: str) -> Iterator[str]:
    """Yield the IOPS of a node for each percent of its CPU in the first pattern that has them."""
    cpu = winners.dropna(subset=["iops_per_cpu_pct"]) if "iops_per_cpu_pct" in winners else winners.head(0)
    for pattern in pattern_order(cpu["pattern"].unique())[:1]:
        here = cpu[cpu["pattern"] == pattern].sort_values("iops_per_cpu_pct", ascending=False)
        values = [(labels.get(row.system, row.system), f"{row.iops_per_cpu_pct:,.0f}") for row in here.itertuples()]
        (first, most), *rest = values
        place = f"In {pattern_words(pattern)} at {load}"
        text = f"{place}, a node of {first} delivers {most} IOPS per 1 % of its CPU."
        if len(values) > MOST:
            text += f" The last of {len(values)} systems, {rest[-1][0]}, delivers {rest[-1][1]}."
        elif rest:
            (second, fewer), *others = rest
            each = listed([f"{second} delivers {fewer}", *(f"{name} {iops}" for name, iops in others)])
            text += f" By the same measure, {each}."
        yield text


# ---- one outstanding I/O


def latency_answer(one: pd.DataFrame, cost: pd.DataFrame, labels: Labels = None, margin: float = 0.05) -> str:
    """Return where one outstanding I/O is fastest, by pattern, then how much longer stable writes take.

    The stable writes come first where nothing but plain and stable writes was measured. A system is first where
    ``rank`` shows it. Systems that no test separates are tied.

    Parameters
    ----------
    one : results of one VM with one job at one outstanding I/O
    cost : of ``pattern_cost``, of stable writes
    labels : system -> its name in the sentences
    margin : single numbers within this share of the best are not called slower

    Returns
    -------
    str : a line for each leader and each tie, then one for stable writes where they were measured

    Examples
    --------
    >>> rows = hci.published().query("source == 'proxmox-2node-hci'")
    >>> one = hci.select(rows, patterns=["4k-randread", "4k-randwrite"], where={"vms": 1, "numjobs": 1, "iodepth": 1})
    >>> print(hci.latency_answer(one, hci.pattern_cost(one, "4k-randwrite-sync", "4k-randwrite")).replace(". ", ".\\n"))
    At iodepth 1, drbd-tcp-pve has the lowest latency in 1 of 2 patterns (single runs).
    On average, 4k random read takes 0.094 ms.
    In 4k random write (0.189 ms), drbd-tcp-pve has the lowest mean latency, but starwind-rdma-pve is within 5 % of it.
    """
    labels = labels or {}
    ranks = rank(one, "lat_ns", by=("pattern", "iodepth"), margin=margin)
    ranks = ranks[ranks["n"] > 0].sort_values("lat_ns")
    ranks = ranks.assign(
        called=ranks["system"].map(lambda name: labels.get(name, name)),
        ms=ranks["lat_ns"].map(lambda latency: f"{metric('lat_ns').show(latency)} ms"),
    )
    patterns = {pattern_words(name): ranks[ranks["pattern"] == name] for name in pattern_order(ranks["pattern"])}
    common = {name: rows for name, rows in patterns.items() if len(rows) > 1}
    lines = list(_fastest(common, margin)) if common else [_each_alone(patterns)]
    stable = list(filter(None, [" ".join(_stable_writes(cost.dropna(subset=["ratio"]), labels))]))
    of_writes = len(set(ranks["pattern"]) - set(cost["pattern"])) == 1  # plain ones are there to compare with
    return "\n".join([*stable, *lines] if of_writes else [*lines, *stable])


def _each_alone(patterns: Mapping[str, pd.DataFrame]) -> str:
    """Return the latencies of systems that have no pattern in common, or of one system."""
    (first, rows), *others = patterns.items()
    single = " (single run)" if (rows["n"] == 1).all() else ""
    begin = f"One {first} takes {rows['ms'].iloc[0]} on {rows['called'].iloc[0]}{single}."
    named = "" if len({own["called"].iloc[0] for own in patterns.values()}) == 1 else " on {}"
    more = [f"one {name} takes {own['ms'].iloc[0]}{named.format(own['called'].iloc[0])}" for name, own in others]
    return f"{begin} {sentence(listed(more))}".rstrip()


def _fastest(patterns: Mapping[str, pd.DataFrame], margin: float) -> Iterator[str]:
    """Yield a line on who is first in most patterns, then one for each other leader and each tie."""
    groups: dict[tuple[bool, bool, tuple[str, ...]], list[tuple[str, str]]] = {}
    for name, rows in patterns.items():
        ahead, tested = rows[rows["rank"] == rows["rank"].min()], bool((rows["n"] > 1).all())
        groups.setdefault((len(ahead) == 1, tested, tuple(ahead["called"])), []).append((name, ahead["ms"].iloc[0]))
    ordered = sorted(groups.items(), key=lambda group: (not group[0][0], not group[0][1], -len(group[1])))
    (alone, tested, who), led = ordered[0]
    single, near = (
        ("", "not significantly different")
        if tested
        else (" (single runs)", f"within {100 * margin:g} % of each other")
    )
    if not alone:
        total = sum(len(found) for (_, same, _), found in ordered if same == tested)
        which = share(total, len(patterns), "pattern")
        yield f"At iodepth 1, the fastest systems are {near} in {which}{single}."
    elif len(patterns) == 1:
        yield f"At iodepth 1, {led[0][0]} has the lowest mean latency on {who[0]}, {led[0][1]}{single}."
    else:
        (name, ms), *others = led
        values = listed([f"{name} takes {ms}", *(f"{name} {ms}" for name, ms in others)])
        place = share(len(led), len(patterns), "pattern")
        yield f"At iodepth 1, {who[0]} has the lowest latency in {place}{single}. {sentence(f'on average, {values}')}"
    for (first, sure, names), found in ordered[alone:]:
        runs = "single runs of " if tested and not sure else ""
        places = listed(f"{name} ({ms})" for name, ms in found[:2])
        more = f" and {counted(len(found) - 2, 'other pattern')}" if len(found) > 2 else ""
        near = "not significantly slower" if sure else f"within {100 * margin:g} % of it"
        behind = f", but {listed(names[1:])} {'is' if len(names) == 2 else 'are'} {near}"
        yield f"In {runs}{places}{more}, {names[0]} has the lowest mean latency{'' if first else behind}."


def _stable_writes(cost: pd.DataFrame, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield how much longer each kind of stable write takes than a plain one, and on which system most."""
    for suffix, words in (("-fdatasync", "write with fdatasync"), ("-sync", "synchronous write")):
        own = cost[cost["pattern"].astype(str).str.endswith(suffix)]
        if own.empty:
            continue
        slowest = own.loc[own["ratio"].idxmax(), "system"]
        single = " (single runs)" if (own["n"] <= 1).all() else ""
        ends = dict.fromkeys(_times(ratio) for ratio in (own["ratio"].min(), own["ratio"].max()))
        times = f"A {words} takes {' to '.join(ends)} times as long as a plain write"
        if len(own) > 1:
            yield f"{times} on the same system."
            yield f"The factor is largest on {labels.get(slowest, slowest)}{single}."
        else:
            yield f"{times}{single}."
        if any("unsynced" in own_caveats.codes for own_caveats in warnings_of(own)):
            yield "But these were plain writes too, because fio's nbd engine ignores O_SYNC."


def _times(ratio: float) -> str:
    """Return a factor with two digits, or near 1 with those that show how far it is from 1."""
    return f"{ratio:.2f}" if 0.9 < ratio < 1.1 else f"{ratio:.2g}"


# ---- curves that cross


def crossover_sentences(crossings: pd.DataFrame, labels: Labels = None) -> list[str]:
    """Return each crossing, or each pattern without one, as a sentence.

    Parameters
    ----------
    crossings : of ``crossover``
    labels : system -> its name in the sentences

    Returns
    -------
    list[str] : one a row, for ``crossings.assign(sentence=...)``

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> print(*hci.crossover_sentences(hci.crossover(results, "starwind-rdma-pve", "drbd-tcp-pve")))
    drbd-tcp-pve overtakes starwind-rdma-pve in IOPS in 1M read between iodepth 4 and 8 (single runs).
    """
    return [_crossing(row, labels or {}) for row in crossings.to_dict("records")]


def _crossing(row: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    a, b = (labels.get(row[role], row[role]) for role in ("a", "b"))
    name, at = row["metric"], where({k: row[k] for k in str(row["by"]).split()})
    what = noun(metric_of(name))
    if row["verdict"] == "missing":
        return f"{a} and {b} were not both measured {at}, so a crossover is unknown."
    before, after = row["ratio_below"], row["ratio_above"]
    single = " (single runs)" if row["n"] == 1 else ""
    if row["verdict"] == "none":
        if before == after == 1:
            return f"{b} has the same {what} as {a} {at} at every measured iodepth{single}."
        lead = f"{b} has {more_or_less(name, max(before, after))} {what} than {a} {at} at every measured iodepth"
        doubt = " Not every difference is significant, so a crossover is possible."
        return f"{lead}{single}.{'' if row['apart'] else doubt}"
    first, second = (b, a) if (after > before) == (better_sign(name) > 0) else (a, b)
    between = f"between iodepth {row['below']:g} and {row['above']:g}"
    if row["verdict"] == "undecided":
        return f"{a} and {b} may change places in {what} {at} {between}. One of the differences is not significant."
    overtakes = f"{first} overtakes {second} in {what} {at}"
    if row["verdict"] == "untested":
        return f"{overtakes} {between} (single runs)."
    place, *limits = (row[f"iodepth{end}"] for end in ("", "_lo", "_hi"))
    lo, hi = (number(end, *limits) for end in limits)
    return f"{overtakes} at iodepth {number(place, *limits)} ({lo} to {hi})."


# ---- what the sources leave open


def unknown_facts(
    winners: pd.DataFrame, results: pd.DataFrame, tail: str = "p99_ns", labels: Labels = None
) -> list[str]:
    """Return what a comparison leaves open: the tail of the latency, the nodes' CPU, and repeats.

    Parameters
    ----------
    winners : of ``best_points``
    results : the rows that they are of
    tail : the percentile that the comparison shows
    labels : system -> its name in the sentences

    Returns
    -------
    list[str] : a fact each; empty where all of it is known

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> print(*hci.unknown_facts(hci.best_points(results), results))
    No source reports p99 latency. Each test has one run or value, so a repeat may differ.
    """
    facts, nowhere = [], []
    for name, words in ((tail, noun(metric(tail))), ("node_cpu_pct", "node CPU")):
        counts = results.reindex(columns=["system", name]).groupby("system", sort=False)[name].count()
        absent = [(labels or {}).get(system, system) for system in counts.index[counts == 0]]
        if len(absent) == len(counts):
            nowhere.append(words)
        elif absent:
            facts.append(f"No {words} is reported for {listed(absent)}.")
    if nowhere:
        facts.insert(0, f"No source reports {listed(nowhere, 'or')}.")
    if (winners["n"] <= 1).all():
        facts.append("Each test has one run or value, so a repeat may differ.")
    return facts
