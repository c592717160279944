"""How is a code called? Actions on a system, rates of tenants, and why a number is missing."""

from __future__ import annotations

import re

from hcilib.say.words import cap_words

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
REASONS = {
    "not-sampled": "Counters of its drives or block layers were not sampled.",
    "few-samples": "The run has fewer than two samples of its node.",
    "appeared": "The device appeared during the run.",
    "vanished": "The device disappeared during the run.",
    "counts-nothing": "The device counted no I/O, or has no device below it that did.",
    "counts-differ": "The kernel's counts and fio's differ by more than 2 %.",
    "other-writer": "Another device used it during the run.",
    "locked-to-ticks": "Its times are whole ticks of the kernel's clock, so they are too coarse.",
    "below-exceeds": "A layer took longer than the layer above it, which is impossible.",
    "mixed-directions": "The run mixed reads and writes, so phases of its drives are unknown.",
    "several-below": "It spread its I/Os over several devices.",
    "several-disks": "fio opened several disks. Measure one.",
    "no-other-end": "The device behind it, such as another node's volume, was not found.",
    "no-device": "The device that fio opened was not found.",
    "no-osd-counters": "Counters of the OSDs are missing.",
    "virtual-drive": "It is a VM's virtual drive. The node's device behind it is unknown.",
    "invalid-run": "The run is invalid.",
    "other-path": "In most runs I/Os took another path, such as the other leg of a mirror.",
    "no-iodepth-1": "There is no run at iodepth 1.",
    "no-part-at-1": "At iodepth 1 the path has no such part.",
    "inferred": "Not a test, because the scheme was inferred from this counter.",
    "no-observed": "Not checked, because no traffic was counted.",
    "no-expected": "Not checked, because the scheme has no value for this placement.",
    "nothing-expected": "Not counted, because no I/O was expected and none was seen.",
    "outside": "The ratio is outside its tolerance.",
    "truncated": "The printed number was truncated at its last digit, not rounded, which breaks no law.",
    "missing": "Not checked, because a number is missing.",
    "demand": "Not checked. At a fixed request rate, outstanding is only a limit.",
    "capped": "Not checked. A rate cap, thinktime, a flush or the page cache keeps fewer I/Os in flight.",
    "unweighted": "Not checked. The latency is (read + write)/2, and the law needs the mean over all I/Os.",
    "chunk": "Not checked. The chunk size is unknown, and full stripes would allow this.",
    "cache": "The rest came from a cache of a node, the storage software or a drive.",
    "undecided": "The interval is neither inside the tolerance nor outside it. Measure more runs.",
    "untested": "A single value has no interval, so it is compared and not tested.",
    "any-count": "Not checked, because drives may split or merge these I/Os.",
}
"""Code of a part of latency, a law, a network counter or a count of drives -> why it is missing or not judged."""


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
    """Return what an action does, or a system's report on its copies; other text stays as it is."""
    return WHOLE.get(action) or _action(action) or action


def limit_words(limits: str) -> str:
    """Return ``64 MiB/s per VM; 500 IOPS per VM`` of ``64m; 500iops``; other text stays as it is."""
    return re.sub(r"\b[\d.]+(m|iops)\b", lambda cap: f"{cap_words(cap[0])} per VM", limits)


def _action(action: str) -> str:
    """Return what an action does; empty where its name has another form."""
    named = re.fullmatch(r"([a-z]+)-([a-z-]+?)-?(\d*)", action)
    if not named or named[1] not in ACTIONS:
        return ""
    verb, kind, place = named.groups()
    thing = f"{kind.upper() if kind == 'osd' else kind} {place}" if place else f"the {kind}"
    return SPECIAL.get(f"{verb} {kind}", ACTIONS[verb]).format(thing.replace("-", " "))
