"""Sentences about failures: the outage, the worst second after the repair, recovery, data loss."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import asked_by
from hcilib.analyse.runs.failure import BY, TOLERANCE
from hcilib.model.schemes import parse_scheme
from hcilib.say.runs.integrity import loss_words
from hcilib.say.words import INTERVAL, LONGEST, Labels, counted, number, pattern_words, sentence, size, span, where

Quantities = Mapping[str, Mapping]
"""Column of ``failures`` -> its row of ``failure_summary``, of one failure."""
ACTIONS = {
    "kill": "killing {}",
    "cut": "cutting {}",
    "fail": "failing {}",
    "stop": "stopping {}",
    "pull": "pulling {}",
    "heal": "restoring {}",
    "revive": "starting {} again",
    "start": "starting {} again",
    "replace": "replacing {}",
}
"""First word of an action's name -> what it does, with a place for the thing."""
SPECIAL = {"kill node": "cutting the power of {}", "fail drive": "failing a drive"}
"""Action and kind of thing whose words are others: a killed node loses its power, and one of several drives fails."""
WHOLE = {"whole": "all copies complete"}
"""Report of a system on its copies, where it is one word -> what it means."""


def failure_answer(
    verdicts: pd.DataFrame, summary: pd.DataFrame, unseen: pd.DataFrame | None = None, labels: Labels = None
) -> str:
    """Return a line a failure: the outage, the worst second after it, recovery, and data loss.

    Each number is of the worst and of the median run.

    Parameters
    ----------
    verdicts : DataFrame
        As ``failure_verdicts`` returns it, the worst failure first.
    summary : DataFrame
        As ``failure_summary`` returns it.
    unseen : DataFrame, optional
        As ``read_failed_events`` returns it: runs that cannot be used, a line each.
    labels : mapping, optional
        System -> the name that the lines use.

    Returns
    -------
    str
        Lines of at most five sentences. The first sentence is the title of the page.

    Examples
    --------
    >>> folder = hci.ROOT / "data/samples/box/failure-ceph"
    >>> series, events = hci.read_series(folder), hci.read_events(folder)
    >>> summary = hci.failure_summary(hci.failures(series, events, silences=hci.read_io_gaps(folder)))
    >>> print(hci.failure_answer(hci.failure_verdicts(summary), summary).split(". ")[0])
    Killing OSD 1 stopped 4k random write on box-ceph for up to 0.5 s (3 runs, median 0.5 s)
    """
    lines: list[str] = []
    for row, found in _failures(verdicts, summary):
        after = [_lowest(found), _recovery(found), _copies(found)]
        text = [_outage(row, found, pattern_words(row["pattern"]), labels, is_title=not lines), *after]
        lines.append(_with_loss(text, row, labels))
    if lines and len(outages := _rows(summary, "gap_s").query("worst > 0")):
        every_s = outages["resolution_s"].max()
        reason = f"because the logs have one value every {every_s:g} s"
        lines.append(f"Each outage may have lasted up to {2 * every_s:g} s longer, {reason}.")
    for run in [] if unseen is None else unseen.to_dict("records"):
        place = f"{_name(run, labels)} ({events_words(run['events'])})"
        lines.append(f"The run in round {run['block']} on {place} cannot be used: {' '.join(run['why'].split())}.")
    return "\n".join(lines)


def failure_facts(verdicts: pd.DataFrame, summary: pd.DataFrame, labels: Labels = None) -> list[str]:
    """Return what clients saw of the worst failure, and when their IOPS recovered, as a decider asks.

    The second line names the runs, because a study may hold several sets of runs of one failure. Writes that test for
    data loss take IOPS, so recovered is another level with them.

    Parameters
    ----------
    verdicts, summary, labels
        As of ``failure_answer``.

    Returns
    -------
    list of str
        Two lines; none where there is no failure.

    Examples
    --------
    >>> folder = hci.ROOT / "data/samples/box/failure-ceph"
    >>> summary = hci.failure_summary(hci.failures(hci.read_series(folder), hci.read_events(folder)))
    >>> print(hci.failure_facts(hci.failure_verdicts(summary), summary)[1])
    In runs without a test for data loss, box-ceph recovered in 1 of 3 runs.
    """
    for row, found in _failures(verdicts.head(1), summary):
        name, stamped = _name(row, labels), row["lost"] or row["kept"] or row["unchecked"]
        outage = sentence(f"{event_words(row['failure'])} stopped {name} for {_duration(found['gap_s'])}")
        runs = f"In runs {'with' if stamped else 'without'} a test for data loss"
        return [_with_loss([outage], row, labels), f"{runs}, {name} {_recovered(found)}."]
    return []


def without_failure(first: Mapping[str, str | None], failed: Collection[str], labels: Labels = None) -> str:
    """Return how the fastest systems take a dead node, where the failures measured are those of others.

    Parameters
    ----------
    first : the fastest systems, each with the formula of how it keeps data; None where that is unknown
    failed : systems whose failures were measured
    labels : system -> its name in the sentences

    Returns
    -------
    str : empty where the failure of each was measured, or none was and each has a copy on another node

    Examples
    --------
    >>> without_failure({"raid": "Raid5(5)"}, ["drbd"])
    'Without another copy, raid is down.'
    """
    labels, said = labels or {}, []
    for name, scheme in first.items():
        if name in failed:
            continue
        if scheme and not parse_scheme(scheme).survives.servers:
            said.append(f"Without another copy, {labels.get(name, name)} is down.")
        elif failed:
            said.append(f"No failure of {labels.get(name, name)} was measured.")
    return " ".join(said)


def failure_sentences(
    verdicts: pd.DataFrame, summary: pd.DataFrame, tolerance: float = TOLERANCE, labels: Labels = None
) -> list[str]:
    """Return every quantity of each failure in short sentences, in the order of its verdicts.

    Parameters
    ----------
    verdicts, summary, labels
        As of ``failure_answer``.
    tolerance : float
        As of ``failures``: recovered is at least 1 - tolerance of the healthy level.

    Returns
    -------
    list of str
        A text a failure.

    Examples
    --------
    >>> folder = hci.ROOT / "data/samples/box/failure-ceph"
    >>> summary = hci.failure_summary(hci.failures(hci.read_series(folder), hci.read_events(folder)))
    >>> found = hci.failure_verdicts(summary)
    >>> [text] = hci.failure_sentences(found, summary)
    >>> text.endswith("Data loss was not tested.")
    True
    """
    texts = []
    for row, found in _failures(verdicts, summary):
        load = {name: row[name] for name in asked_by(summary) if name not in (*BY, "iodepth")}
        pattern = f"{pattern_words(row['pattern'])} at iodepth {row['iodepth']}{f' {where(load)}' * bool(load)}"
        text = [
            _outage(row, found, pattern, labels),
            _each(found, "gap_sum_s", "All outages of a run add up to {}."),
            _each(found, "max_lat_s", "The longest I/O took {}."),
            DEGRADED[row["verdict"]](found.get("ratio", {})),
            _lowest(found),
            _recovery(found, f"{100 * (1 - tolerance):g} %"),
            _copies(found),
        ]
        texts.append(_with_loss(text, row, labels, bound=True))
    return texts


def _failures(verdicts: pd.DataFrame, summary: pd.DataFrame) -> Iterator[tuple[dict, Quantities]]:
    """Yield the verdict's row and the quantities of each failure."""
    for row in verdicts.to_dict("records"):
        own = summary
        for name in asked_by(summary):
            own = own[own[name] == row[name]]
        yield row, {quantity["column"]: quantity for quantity in own.to_dict("records")}


def _rows(summary: pd.DataFrame, column: str) -> pd.DataFrame:
    return summary[summary["column"] == column] if len(summary) else pd.DataFrame(columns=["worst", "resolution_s"])


def _with_loss(text: list[str], row: Mapping, labels: Labels, bound: bool = False) -> str:
    """Return the sentences with the one about data loss, first where writes were lost."""
    loss = loss_words(row["lost"], row["kept"], row["unchecked"], bound)
    if row["lost"]:
        after = f"After {event_words(row['failure'])} on {_name(row, labels)}"
        text = [f"{after}, {loss[:1].lower()}{loss[1:]}", *text]
    else:
        text = [*text, loss]
    return " ".join(filter(None, text))


def event_words(action: str) -> str:
    """Return ``killing OSD 1`` of kill-osd1, ``cutting the link`` of cut-link; another action's name in quotes.

    Examples
    --------
    >>> event_words("kill-osd1"), event_words("kill-node2"), event_words("full")
    ('killing OSD 1', 'cutting the power of node 2', 'event “full”')
    """
    return _action(action) or f"event “{action}”"


def events_words(events: str) -> str:
    """Return every event of a run with its second; other text stays as it is.

    Examples
    --------
    >>> events_words("cut-link@12 heal-link@24")
    'cutting the link at 12 s, restoring the link at 24 s'
    """
    done = re.findall(r"(\S+)@([\d.]+)(?:\s|$)", events)
    return ", ".join(f"{event_words(action)} at {second} s" for action, second in done) or events


def action_words(action: str) -> str:
    """Return what an action does; other text stays as it is."""
    return _action(action) or action


def report_words(report: str) -> str:
    """Return an action, or a system's report on its copies, in words; other text stays as it is."""
    return WHOLE.get(report) or action_words(report)


def _action(action: str) -> str:
    """Return what an action does; empty where its name has another form."""
    named = re.fullmatch(r"([a-z]+)-([a-z-]+?)-?(\d*)", action)
    if not named or named[1] not in ACTIONS:
        return ""
    verb, kind, place = named.groups()
    thing = f"{kind.upper() if kind == 'osd' else kind} {place}" if place else f"the {kind}"
    return SPECIAL.get(f"{verb} {kind}", ACTIONS[verb]).format(thing.replace("-", " "))


def _name(row: Mapping, labels: Labels) -> str:
    return (labels or {}).get(row["system"], row["system"])


def _outage(row: Mapping, found: Quantities, pattern: str, labels: Labels, is_title: bool = False) -> str:
    """Return the sentence about the longest outage, of the worst and of the median run.

    A title that is too long has no median run, then no pattern.
    """
    gap = found["gap_s"]
    middle = f"{_seconds(gap, 'median')} s" if gap["median"] > 0 else f"< {2 * gap['resolution_s']:g} s"
    several = gap["n"] > 1 and gap["worst"] > 0
    duration = _duration(gap, f", median {middle}" if several else "")
    if row["lost"]:
        return sentence(f"{pattern} stopped for {duration}")
    name, stopped = _name(row, labels), f"{event_words(row['failure'])} stopped"
    forms = ((f"{pattern} on {name}", duration), (f"{pattern} on {name}", _duration(gap)), (name, _duration(gap)))
    said = [sentence(f"{stopped} {what} for {lasted}") for what, lasted in forms]
    return next((text for text in said if len(text) <= LONGEST), said[-1]) if is_title else said[0]


def _duration(gap: Mapping, median: str = "") -> str:
    """Return the longest outage of all runs and how many these are. One that was not seen is never called 0."""
    runs = counted(gap["n"], "run")
    if not gap["worst"] > 0:
        return f"less than {2 * gap['resolution_s']:g} s ({runs})"
    return f"{'up to ' * (gap['n'] > 1)}{_seconds(gap, 'worst')} s ({runs}{median})"


def _seconds(gap: Mapping, side: str) -> str:
    """Return an outage with the digits that its sampling allows."""
    return number(gap[side], gap[side], gap[side] + 2 * gap["resolution_s"])


def _lowest(found: Quantities) -> str:
    """Return the sentence about the lowest second after the repair."""
    if "dip_pct" not in found:
        return ""
    dip = found["dip_pct"]
    worst, median = (f"{number(100 - dip[side])} %" for side in ("worst", "median"))
    middle = f" (median run {median})" if dip["n"] > 1 else ""
    did = "dipped to" if dip["worst"] > 0 else "were at least"
    return f"After repair, IOPS {did} {worst} of normal{middle}."


def _recovery(found: Quantities, level: str = "") -> str:
    """Return the sentence about the time to recovery, or in how many runs it was unfinished.

    `level` is the share of normal IOPS from which on a run counts as recovered. IOPS that are there from the repair on
    are not called recovered: a system may be that fast without its copy, and fall when that comes back.
    """
    if "back_s" not in found:
        return "There was no repair."
    back, missing = found["back_s"], found["back_s"]["n"] - found["back_s"]["seen"]
    to = f" to {level} of normal IOPS" * bool(level)
    if np.isinf(back["median"]):
        runs = f"{back['seen']} of {back['n']} runs recovered" if back["seen"] else "No run recovered"
        return f"{'The run did not recover' if back['n'] == 1 else runs}{to} before its end."
    if missing:
        return f"Recovery{to} took {number(back['median'])} s (median). {counted(missing, 'run')} did not recover."
    if not back["worst"]:
        stayed = f"stayed {f'above {level} of' if level else 'at'} normal IOPS"
        dips = " apart from short dips" * _has_dips(found)
        return f"{'All runs' if back['n'] > 1 else 'The run'} {stayed}{dips}."
    return _each(found, "back_s", f"Recovery{to} took {{}}.")


def _recovered(found: Quantities) -> str:
    """Return when IOPS recovered, as a predicate of the system: of the worst and of the median run."""
    if "back_s" not in found:
        return "was not repaired"
    back, missing = found["back_s"], found["back_s"]["n"] - found["back_s"]["seen"]
    if np.isinf(back["median"]):
        return f"recovered in {back['seen'] or 'none'} of {counted(back['n'], 'run')}"
    if missing:
        return f"recovered in {number(back['median'])} s (median), but not in {missing} of {back['n']} runs"
    if not back["worst"]:
        return f"had normal IOPS from the repair on{', apart from short dips' * _has_dips(found)}"
    median = f" at worst (median {number(back['median'])} s)" if back["n"] > 1 else ""
    return f"recovered in {number(back['worst'])} s{median}"


def _has_dips(found: Quantities) -> bool:
    """Return whether the worst second after the repair was below the level of recovery."""
    return bool(found.get("dip_pct", {"worst": 0})["worst"] > 100 * TOLERANCE)


def _copies(found: Quantities) -> str:
    """Return when all copies were complete, which may be long after the IOPS recovered, and after the run."""
    if "whole_s" not in found:
        return ""
    whole = found["whole_s"]
    late = int(whole["late"])
    worst, median = (f"{number(whole[side])} s" for side in ("worst", "median"))
    several = f" at worst (median {median})" * (whole["n"] > 1)
    text = f"All copies were complete {worst} after the repair{several}."
    if late:
        among = f"all {late}" if 1 < late == whole["n"] else f"{late} of {whole['n']}"
        text += f" {'The run' if whole['n'] == 1 else f'In {among} runs fio'} had ended by then."
    if missing := whole["n"] - whole["seen"]:
        text += f" In {counted(missing, 'run')} the system did not report them complete."
    return text


def _each(found: Quantities, column: str, text: str) -> str:
    """Return a text with ``2 s at worst (median 1.5 s)``, nothing where no run has the quantity."""
    if column not in found:
        return ""
    row = found[column]
    worst = f"{number(row['worst'])} s"
    return text.format(worst if row["n"] == 1 else f"{worst} at worst (median {number(row['median'])} s)")


def _degraded(ratio: Mapping) -> str:
    """Return how many more or fewer IOPS a degraded system delivers. The interval excludes 1."""
    ends = (ratio["mean_lo"], ratio["mean_hi"])
    change = size(ratio["mean"], *ends)
    more = "more" if ratio["mean"] > 1 else "fewer"
    than = "as many IOPS as" if change.endswith("times") else f"{more} IOPS than"
    return f"Degraded, it delivers {change} {than} healthy (mean, {INTERVAL} {span(*ends)})"


DEGRADED: dict[str, Callable[[Mapping], str]] = {
    "faster": lambda ratio: f"{_degraded(ratio)}, so high IOPS does not mean that it is healthy.",
    "slower": lambda ratio: f"{_degraded(ratio)}.",
    "undecided": lambda ratio: (
        f"The change of IOPS while degraded is not significant (mean {ratio['mean']:.2g} times, "
        f"{INTERVAL} {ratio['mean_lo']:.2g} to {ratio['mean_hi']:.2g})."
    ),
    "untested": lambda ratio: f"Degraded, it delivered {ratio['mean']:.2g} times the healthy IOPS in this one run.",
    "missing": lambda ratio: "IOPS between failure and repair could not be measured.",
}
"""Verdict -> the sentence about the level without the copy."""
